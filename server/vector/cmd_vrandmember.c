/*
 * cmd_vrandmember.c - VRANDMEMBER: elements at random.
 *
 * With a positive count elements are distinct, without a list of those given: the i-th comes from place perm(i), where
 * perm is a random permutation of the set's places (collection.h; some hold nothing that lives) made by a Feistel
 * network over the next power of four, walked until it falls below the number of places (Black and Rogaway, "Ciphers
 * with arbitrary finite domains", 2002). Where a seal or a merge has moved elements meanwhile all of it is done again.
 *
 * A client who sees few of a set's elements would try many places for each. Where that is to be expected its elements
 * are gone through on the worker's thread instead: which of them are taken, by their number in the scan, is chosen
 * before it.
 */
#include "io/error.h"
#include "io/random.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include "server/vector/vector_scan.h"
#include <stdlib.h>
#include <string.h>

enum {
    COUNT_MAX = 100000,
    WINDOW = 16,
    RESTARTS_MAX = 20, /* of one command: elements move some times a second at most */
    TRIES_MAX = 1000   /* expected: some milliseconds of a lane */
};

/* ---- numbers at random ------------------------------------------------------------------------------------------- */

/* The i-th of random numbers below n. */
struct lottery {
    uint64_t seed, n;
    unsigned half_bits; /* of the Feistel network */
    bool repeat;        /* numbers may come again */
};

static struct lottery lottery_of(uint64_t n, bool repeat, uint64_t seed)
{
    struct lottery lottery = {.seed = seed, .n = n, .repeat = repeat};
    while (((uint64_t)1 << 2 * lottery.half_bits) < n)
        lottery.half_bits++;
    lottery.half_bits += lottery.half_bits == 0;
    return lottery;
}

static uint64_t lottery_draw(const struct lottery *l, uint64_t i)
{
    uint64_t mask = ((uint64_t)1 << l->half_bits) - 1;
    if (l->repeat)
        return random_mix(l->seed + i * 0x9e3779b97f4a7c15ull) % l->n;
    do {
        uint64_t left = i >> l->half_bits, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (random_mix(right + l->seed + (round << 56)) & mask);
            left = right;
            right = next;
        }
        i = left << l->half_bits | right;
    } while (i >= l->n);
    return i;
}

/* What was asked for. */
struct wish {
    uint64_t n, seed;
    uint64_t tries; /* places that are expected to be tried in vain; 0: few */
    bool repeat, single;
};

/* ---- by places --------------------------------------------------------------------------------------------------- */

struct random_call {
    struct deferred base;
    struct lottery places;
    struct wish wish;
    uint64_t n; /* elements asked for */
    uint64_t tried, given;
    uint64_t tries_max;
    uint64_t version; /* of the places */
    unsigned running, restarts;
    bool starting;
    int code;
    struct quire_error error;
    struct resp_buffer keys; /* the elements, without what stands before them */
    unsigned n_free;
    struct place_request *free[WINDOW];
    struct place_request requests[WINDOW];
};

static void start_random(struct random_call *call);

/* Whether more places are of use: elements are missing, none failed, and the client can still be told. */
static bool random_goes_on(const struct random_call *call)
{
    return call->given + call->running < call->n && call->tried < call->tries_max && call->code == 0 &&
           !call->keys.failed && !call->base.pending.caller->gone;
}

/* From the first place on. */
static void begin_places(struct random_call *call)
{
    call->version = collection_places_version(call->base.collection);
    uint64_t places = collection_places(call->base.collection);
    call->places = lottery_of(places, call->wish.repeat, call->wish.seed);
    call->n = places ? call->wish.n : 0; /* a set that was made and not filled yet */
    /* Distinct elements end with the last place; repeated ones when far more places were empty than a set has (merges
     * see to that), or than the client's elements let expect. */
    call->tries_max = call->wish.repeat ? 1000 + 100 * (call->n + call->wish.tries) : places;
    call->tried = call->given = 0;
    call->keys.bytes = 0;
}

/* Whether elements have moved meanwhile, so that some may have come twice and some never. */
static bool has_moved(struct random_call *call)
{
    return !call->wish.repeat && call->code == 0 && !call->keys.failed && !call->base.pending.caller->gone &&
           collection_places_version(call->base.collection) != call->version && call->restarts++ < RESTARTS_MAX;
}

static void on_random(struct place_request *request)
{
    struct random_call *call = request->owner;
    vector_count_fetch(call->base.lane, request->reads);
    if (request->code == 0 && call->given < call->n) {
        resp_bulk(&call->keys, request->key, request->key_bytes);
        call->given++;
    } else if (request->code < 0 && request->code != QUIRE_ENOTFOUND && call->code == 0) {
        call->code = request->code;
        call->error = request->error;
    }
    call->running--;
    call->free[call->n_free++] = request;
    start_random(call);
}

/* Keeps the window full; ends the call with the last place. */
static void start_random(struct random_call *call)
{
    if (call->starting)
        return;
    call->starting = true;
    while (call->n_free > 0 && random_goes_on(call)) {
        struct place_request *request = call->free[--call->n_free];
        *request = (struct place_request){.collection = call->base.collection,
                                          .scope = call->base.scope,
                                          .place = lottery_draw(&call->places, call->tried++),
                                          .done = on_random,
                                          .owner = call};
        call->running++;
        int rc = collection_place_start(call->base.lane->searcher, request, &call->error);
        if (rc < 0) {
            call->code = rc;
            call->running--;
            call->free[call->n_free++] = request;
        }
    }
    call->starting = false;
    if (call->running > 0 || random_goes_on(call))
        return;
    if (has_moved(call)) {
        begin_places(call);
        start_random(call);
        return;
    }
    struct resp_buffer *out = &call->base.pending.out;
    if (call->code < 0)
        resp_quire_error(out, &call->error);
    else if (call->wish.single && call->given == 0)
        resp_null(out);
    else if (!call->wish.single)
        resp_array(out, call->given);
    if (call->code == 0)
        resp_take(out, &call->keys);
    resp_buffer_fini(&call->keys);
    deferred_end(&call->base);
}

static void begin_random(struct caller *c, struct vector_view *view, const struct wish *wish)
{
    struct random_call *call = deferred_begin(c, view, sizeof *call, false);
    if (!call)
        return;
    call->wish = *wish;
    call->keys = resp_buffer_beside(&call->base.pending.out);
    begin_places(call);
    for (unsigned i = 0; i < WINDOW; i++)
        call->free[call->n_free++] = &call->requests[i];
    start_random(call);
}

/* ---- few among many ---------------------------------------------------------------------------------------------- */

struct pick {
    uint64_t number; /* in the scan */
    uint32_t place;  /* in the reply */
};

struct picked {
    uint8_t *key; /* owned; NULL: none came */
    uint32_t bytes;
};

struct pick_call {
    struct worker_call base;
    bool single;
    uint64_t n_seen;
    uint64_t bytes, most; /* of memory for names, and what it may be */
    const char *setting;  /* whose limit that is */
    uint32_t n, next;
    struct pick *picks;   /* n, by number; owned */
    struct picked *found; /* n; owned */
};

static int by_number(const void *left, const void *right)
{
    const struct pick *a = left, *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static int take_picked(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    struct pick_call *call = context;
    uint64_t number = call->n_seen++;
    (void)located;
    for (; call->next < call->n && call->picks[call->next].number == number; call->next++) {
        struct picked *found = &call->found[call->picks[call->next].place];
        call->bytes += key_bytes + 1u;
        if (call->bytes > call->most)
            return error_set(&call->base.error, QUIRE_ELIMIT,
                             "the names of these elements take more than %llu bytes, which is what %s allows one "
                             "reply: ask for fewer",
                             (unsigned long long)call->most, call->setting);
        found->key = malloc(key_bytes + 1u);
        if (!found->key)
            return error_set(&call->base.error, QUIRE_ENOMEM, "no memory for the names of elements");
        memcpy(found->key, key, key_bytes);
        found->bytes = key_bytes;
    }
    return 0;
}

static void pick(struct worker_call *base)
{
    struct pick_call *call = (struct pick_call *)base;
    struct vector_scanner *lane = NULL;
    struct collection_scan scan = {.collection = base->base.collection,
                                   .scope = base->base.scope,
                                   .want_keys = true,
                                   .visit = take_picked,
                                   .context = call};
    base->code = vector_scan_open(QUIRE_ENGINE_AUTO, &lane, &base->error);
    if (base->code == 0)
        base->code = vector_scan_run(lane, &scan, &base->error);
    vector_scan_close(lane);
}

/* Replies and ends the call. */
static void pick_done(struct worker_call *base)
{
    struct pick_call *call = (struct pick_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    uint32_t n = 0;
    caller_hold(&base->base.pending, call->bytes); /* where it may not, the client goes */
    for (uint32_t i = 0; i < call->n; i++)
        n += call->found[i].key != NULL;
    if (base->code < 0)
        resp_quire_error(out, &base->error);
    else if (call->single && n == 0)
        resp_null(out);
    else if (!call->single)
        resp_array(out, n);
    for (uint32_t i = 0; i < call->n; i++) {
        if (call->found[i].key && base->code == 0)
            resp_bulk(out, call->found[i].key, call->found[i].bytes);
        free(call->found[i].key);
    }
    free(call->picks);
    free(call->found);
    deferred_end(&base->base);
}

/* own: elements that the client sees, one at least. */
static void begin_pick(struct caller *c, struct vector_view *view, const struct wish *wish, uint64_t own)
{
    struct lottery lottery = lottery_of(own, wish->repeat, wish->seed);
    uint32_t n = (uint32_t)(wish->repeat || wish->n < own ? wish->n : own);
    struct pick_call *call = deferred_begin(c, view, sizeof *call, true);
    if (!call)
        return;
    struct pick *picks = NULL;
    if (caller_hold(&call->base.base.pending, n * (sizeof *call->picks + sizeof *call->found))) {
        picks = call->picks = calloc(n, sizeof *call->picks);
        call->found = calloc(n, sizeof *call->found);
    }
    if (!picks || !call->found) {
        call->base.code = error_set(&call->base.error, QUIRE_ENOMEM, "no memory for %u elements", n);
        pick_done(&call->base);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        picks[i] = (struct pick){.number = lottery_draw(&lottery, i), .place = i};
    qsort(picks, n, sizeof *picks, by_number);
    call->single = wish->single;
    call->n = n;
    call->most = caller_reply_max(c, &call->setting);
    call->base.work = pick;
    call->base.done = pick_done;
    worker_call_start(&call->base);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

void cmd_vrandmember(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    long long count = 1;
    if (n > 3) {
        caller_error(c, "ERR wrong number of arguments for 'vrandmember' command");
        return;
    }
    if (n == 3 && !arg_integer(args[2], &count)) {
        caller_error(c, "ERR count is not an integer");
        return;
    }
    struct vector_view view;
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_REFUSED)
        return;
    uint64_t own = vector_view_count(&view); /* elements that the client sees */
    if (count > 0 && (uint64_t)count > own && own <= COUNT_MAX)
        count = (long long)own; /* distinct ones: all there are */
    if (found == VIEW_SET && (count > COUNT_MAX || count < -COUNT_MAX)) {
        vector_view_end(&view);
        caller_error(c, "ERR one reply has at most %d elements: ask for fewer, or for names in their order (VRANGE)",
                     COUNT_MAX);
        return;
    }
    if (found == VIEW_SET && count != 0) {
        struct wish wish = {.n = (uint64_t)(count < 0 ? -count : count),
                            .repeat = count < 0 || n == 2,
                            .single = n == 2,
                            .seed = random_mix(clock_us() ^ c->id << 40 ^ (uint64_t)(uintptr_t)view.collection)};
        /* places that must be tried on average where the client sees only some of the elements */
        if (view.scope && own > 0) {
            uint64_t places = collection_places(view.collection);
            wish.tries = !wish.repeat && wish.n >= own / 2 ? places : wish.n * (places / own + 1);
        }
        if (view.scope && own == 0)
            wish.n = 0;
        if (wish.tries > TRIES_MAX)
            begin_pick(c, &view, &wish, own);
        else
            begin_random(c, &view, &wish);
        return;
    }
    vector_view_end(&view);
    struct resp_buffer *out = caller_reply(c);
    if (n == 2)
        resp_null(out);
    else
        resp_array(out, 0);
}
