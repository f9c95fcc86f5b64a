/*
 * lease.c - leases in two hash tables, their waiters in queues, everybody's deadlines in two heaps.
 *
 * A lease lies in a slot; its vector lies in the same row of one array. By exact hash it is found in one chain; by
 * nearness, all leases of its group are gone through with one dot product each: a thousand of dimension 256 in flight
 * in one group take 18 us (AVX-512; AVX2 22), once per miss, beside a model that takes seconds. A structure for fewer
 * products would have to change with every miss. Waking 65,536 waiters takes 2 to 3 ms, less than that under the lock.
 *
 * Rules:
 *  1. A group leads an exact hash at most once. lease_ask looks before it grants; a hand-over looks before a waiter's
 *     hash becomes the lease's.
 *  2. A waiter is in exactly one queue and in the heap, or in neither with lease NULL. Only under the lock is it taken
 *     from both and put on a list of wakes; whoever took it wakes it, so it is woken once.
 *  3. `wake` runs without the lock and with its waiter's `next` read before: the waiter may be gone, or wait again.
 *  4. Waiters whose time is over go before leases do: nobody is made leader in the moment of its own deadline.
 *  5. Nothing is allocated after lease_table_create.
 *
 * The slot stands in the low 16 bits of a token's nonce, so that a token finds its lease without a third table; the
 * other 48 bits, epoch and time tell it from those that had the slot before.
 */
#include "cache/lease/lease.h"
#include "cache/lease/deadlines.h"
#include "cache/lease/lease_token.h"
#include "index/kernels/kernels.h"
#include "io/error.h"
#include "io/lock.h"
#include "io/memory.h"
#include "io/random.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LEASES_USUAL  4096u
#define WAITERS_USUAL 65536u
#define SLOT_BITS     16
#define GRANTED_MASK  ((1ull << 48) - 1) /* what a token's text keeps of the time */
_Static_assert(LEASES_MAX == 1u << SLOT_BITS, "a slot fits into a nonce");

struct link { /* of a chain of a hash table */
    struct link *next, **at;
    struct lease *lease;
};

struct lease {
    struct link by_exact, by_group;
    uint64_t group;
    struct hash128 exact;
    struct lease_token token;
    uint64_t deadline_ms, term_ms, refreshes; /* term_ms: that it was granted for, at least 1 */
    struct lease_waiter *first, *last;        /* by `asked` */
    struct lease *next_free;
    uint32_t slot, place;
    bool in_flight, has_vector;
};

struct lease_table {
    pthread_mutex_t lock;
    struct lease *leases, *free;
    struct link **by_exact, **by_group; /* mask + 1 chains each */
    float *vectors;                     /* leases_max x dim; NULL: dim is 0 */
    struct deadlines running, waiting;  /* of leases, of waiters */
    struct random random;
    uint64_t secret[2];
    uint64_t asked;         /* how many waited so far */
    uint64_t wall_ahead_ms; /* of the wall clock before the caller's, when one asked last; modulo 2^64 */
    uint32_t dim, leases_max, mask;
    struct lease_stats stats;
};

/* Who is to be woken once the lock is free, linked by `next`. */
struct wakes {
    struct lease_waiter *first, *last;
};

/* ---- a table ----------------------------------------------------------------------------------------------------- */

static int allocate(struct lease_table *table, uint32_t waiters_max)
{
    uint32_t n = table->leases_max;
    if (deadlines_init(&table->running, n) != 0 || deadlines_init(&table->waiting, waiters_max) != 0)
        return QUIRE_ENOMEM;
    table->leases = calloc(n, sizeof *table->leases);
    table->by_exact = calloc(table->mask + 1, sizeof(struct link *));
    table->by_group = calloc(table->mask + 1, sizeof(struct link *));
    if (!table->leases || !table->by_exact || !table->by_group)
        return QUIRE_ENOMEM;
    if (table->dim) {
        table->vectors = memory_map(memory_size_mul(n, memory_size_mul(table->dim, sizeof(float))), 0);
        if (!table->vectors)
            return QUIRE_ENOMEM;
    }
    for (uint32_t i = n; i-- > 0;) {
        struct lease *lease = table->leases + i;
        lease->by_exact.lease = lease->by_group.lease = lease;
        lease->slot = i;
        lease->next_free = table->free;
        table->free = lease;
    }
    return 0;
}

static void release(struct lease_table *table)
{
    if (table->vectors)
        memory_unmap(table->vectors, (size_t)table->leases_max * table->dim * sizeof(float));
    free(table->leases);
    free(table->by_exact);
    free(table->by_group);
    deadlines_fini(&table->running);
    deadlines_fini(&table->waiting);
    free(table);
}

int lease_table_create(const struct lease_options *options, struct lease_table **out, struct quire_error *err)
{
    if (options->leases_max > LEASES_MAX)
        return error_set(err, QUIRE_ERANGE, "%u leases in flight: at most %u are possible", options->leases_max,
                         LEASES_MAX);
    if (!options->secret[0] && !options->secret[1])
        return error_set(err, QUIRE_EINVALID, "the secret of lease tokens is 0: give 16 random bytes");
    struct lease_table *table = calloc(1, sizeof *table);
    if (!table)
        return error_set(err, QUIRE_ENOMEM, "no memory for leases");
    table->dim = options->dim;
    table->leases_max = options->leases_max ? options->leases_max : LEASES_USUAL;
    table->secret[0] = options->secret[0];
    table->secret[1] = options->secret[1];
    random_init(&table->random, options->seed);
    while (table->mask + 1 < table->leases_max)
        table->mask = table->mask * 2 + 1;
    uint32_t waiters_max = options->waiters_max ? options->waiters_max : WAITERS_USUAL;
    if (allocate(table, waiters_max) != 0 || pthread_mutex_init(&table->lock, NULL) != 0) {
        int rc = error_set(err, QUIRE_ENOMEM, "no memory for %u leases of dimension %u and %u waiters: take fewer",
                           table->leases_max, table->dim, waiters_max);
        release(table);
        return rc;
    }
    *out = table;
    return 0;
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

static bool is_none(struct hash128 hash)
{
    return !hash.low && !hash.high;
}

/* Keyed, so that nobody outside can aim at one chain. */
static struct link **group_chain(const struct lease_table *table, uint64_t group)
{
    return table->by_group + (random_mix(group ^ table->secret[0]) & table->mask);
}

static struct link **exact_chain(const struct lease_table *table, uint64_t group, struct hash128 exact)
{
    uint64_t hash = random_mix(group ^ table->secret[0]) ^ exact.low;
    return table->by_exact + (random_mix(random_mix(hash) ^ exact.high) & table->mask);
}

static void link_into(struct link **chain, struct link *link)
{
    assert(!link->at);
    link->next = *chain;
    link->at = chain;
    if (link->next)
        link->next->at = &link->next;
    *chain = link;
}

/* A link that is in no chain stays so. */
static void unlink_from_chain(struct link *link)
{
    if (!link->at)
        return;
    *link->at = link->next;
    if (link->next)
        link->next->at = link->at;
    link->at = NULL;
}

static void set_exact(struct lease_table *table, struct lease *lease, struct hash128 exact)
{
    unlink_from_chain(&lease->by_exact);
    lease->exact = exact;
    if (!is_none(exact))
        link_into(exact_chain(table, lease->group, exact), &lease->by_exact);
}

static struct lease *find_exact(const struct lease_table *table, uint64_t group, struct hash128 exact)
{
    if (is_none(exact))
        return NULL;
    for (struct link *link = *exact_chain(table, group, exact); link; link = link->next) {
        struct lease *lease = link->lease;
        if (lease->group == group && lease->exact.low == exact.low && lease->exact.high == exact.high)
            return lease;
    }
    return NULL;
}

static float *vector_of(const struct lease_table *table, const struct lease *lease)
{
    return table->vectors + (size_t)lease->slot * table->dim;
}

/* The most similar of the group, if it is near enough. */
static struct lease *find_near(const struct lease_table *table, const struct lease_question *question)
{
    struct lease *best = NULL;
    float best_cosine = question->nearness;
    if (!question->vector || !table->dim || !(question->nearness <= 1.0f))
        return NULL;
    const struct kernels *k = kernels();
    for (struct link *link = *group_chain(table, question->group); link; link = link->next) {
        struct lease *lease = link->lease;
        if (lease->group != question->group || !lease->has_vector)
            continue;
        float cosine = k->f32_dot(question->vector, vector_of(table, lease), table->dim);
        if (cosine >= best_cosine) {
            best = lease;
            best_cosine = cosine;
        }
    }
    return best;
}

/* The lease in flight that a token of this table stands for; NULL: it is over. */
static struct lease *find_token(const struct lease_table *table, const struct lease_token *token)
{
    uint64_t slot = token->nonce & (LEASES_MAX - 1);
    struct lease *lease = slot < table->leases_max ? table->leases + slot : NULL;
    return lease && lease->in_flight && lease->token.nonce == token->nonce && lease->token.epoch == token->epoch &&
                   lease->token.granted_ms == token->granted_ms
               ? lease
               : NULL;
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static void append(struct lease *lease, struct lease_waiter *waiter)
{
    assert(lease->in_flight);
    waiter->lease = lease;
    waiter->prev = lease->last;
    waiter->next = NULL;
    if (lease->last)
        lease->last->next = waiter;
    else
        lease->first = waiter;
    lease->last = waiter;
}

static void leave(struct lease_table *table, struct lease_waiter *waiter)
{
    struct lease *lease = waiter->lease;
    assert(lease && lease->in_flight && lease->first && lease->last);
    if (waiter->prev)
        waiter->prev->next = waiter->next;
    else
        lease->first = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        lease->last = waiter->prev;
    waiter->lease = NULL;
    deadlines_remove(&table->waiting, waiter->place);
}

static void wakes_add(struct wakes *wakes, struct lease_waiter *first, struct lease_waiter *last)
{
    if (wakes->last)
        wakes->last->next = first;
    else
        wakes->first = first;
    wakes->last = last;
    last->next = NULL;
}

static void wake_one(struct lease_table *table, struct lease_waiter *waiter, enum lease_wake how, struct wakes *wakes)
{
    leave(table, waiter);
    waiter->how = how;
    wakes_add(wakes, waiter, waiter);
}

/* Empties the queue. From its end, since the latest deadlines leave the heap at least cost. How many there were. */
static uint32_t wake_all(struct lease_table *table, struct lease *lease, enum lease_wake how, struct wakes *wakes)
{
    uint32_t n = 0;
    for (struct lease_waiter *waiter = lease->last; waiter; waiter = waiter->prev, n++) {
        deadlines_remove(&table->waiting, waiter->place);
        waiter->lease = NULL;
        waiter->how = how;
    }
    assert((n > 0) == (lease->first != NULL));
    if (n)
        wakes_add(wakes, lease->first, lease->last);
    lease->first = lease->last = NULL;
    return n;
}

/* All who wait for `lease` wait for `into`, each where its time of asking puts it. */
static void join(struct lease *lease, struct lease *into)
{
    struct lease_waiter *a = into->first, *b = lease->first;
    assert(into != lease && into->in_flight && lease->in_flight);
    into->first = into->last = lease->first = lease->last = NULL;
    while (a || b) {
        struct lease_waiter **earlier = !b || (a && a->asked < b->asked) ? &a : &b, *waiter = *earlier;
        *earlier = waiter->next;
        append(into, waiter);
    }
}

static void run_wakes(const struct wakes *wakes)
{
    for (struct lease_waiter *waiter = wakes->first, *next; waiter; waiter = next) {
        next = waiter->next;
        waiter->wake(waiter, waiter->how);
    }
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

static uint64_t later(uint64_t now_ms, uint64_t ms)
{
    return ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + ms;
}

/* A lease has a new leader. At least 1 ms, or a tick would pass it on from waiter to waiter without end of its own. */
static void begin_term(struct lease_table *table, struct lease *lease, uint64_t epoch, uint64_t now_ms,
                       uint64_t lease_ms)
{
    assert(lease->in_flight);
    lease->token = (struct lease_token){.epoch = epoch,
                                        .granted_ms = (now_ms + table->wall_ahead_ms) & GRANTED_MASK,
                                        .nonce = random_next(&table->random) << SLOT_BITS | lease->slot};
    lease->term_ms = lease_ms ? lease_ms : 1;
    lease->deadline_ms = later(now_ms, lease->term_ms);
    deadlines_add(&table->running, lease->deadline_ms, lease, &lease->place);
}

static void end(struct lease_table *table, struct lease *lease)
{
    assert(lease->in_flight && !lease->first);
    unlink_from_chain(&lease->by_exact);
    unlink_from_chain(&lease->by_group);
    deadlines_remove(&table->running, lease->place);
    lease->in_flight = false;
    lease->next_free = table->free;
    table->free = lease;
}

static struct lease *grant(struct lease_table *table, const struct lease_question *question)
{
    struct lease *lease = table->free;
    if (!lease)
        return NULL;
    assert(lock_is_held(&table->lock) && !lease->in_flight && !lease->first && !lease->by_exact.at);
    assert(!find_exact(table, question->group, question->exact)); /* rule 1 */
    table->free = lease->next_free;
    lease->in_flight = true;
    lease->group = question->group;
    lease->refreshes = question->refreshes;
    lease->has_vector = question->vector && table->dim;
    if (lease->has_vector)
        memcpy(vector_of(table, lease), question->vector, table->dim * sizeof(float));
    link_into(group_chain(table, lease->group), &lease->by_group);
    set_exact(table, lease, question->exact);
    begin_term(table, lease, question->epoch, question->now_ms, question->lease_ms);
    table->stats.granted++;
    return lease;
}

/* The leader is gone: somebody who waits leads, or all join who leads their question already, or the lease ends.
 * Whether there is a new leader. */
static bool hand_over(struct lease_table *table, struct lease *lease, uint64_t now_ms, struct wakes *wakes)
{
    struct lease_waiter *heir = lease->first;
    assert(lock_is_held(&table->lock) && lease->in_flight);
    while (heir && (!heir->want_lease || heir->deadline_ms <= now_ms))
        heir = heir->next;
    struct lease *other = heir ? find_exact(table, lease->group, heir->exact) : NULL;
    if (!heir)
        table->stats.timeouts += wake_all(table, lease, LEASE_TIMEOUT, wakes);
    else if (other && other != lease)
        join(lease, other);
    if (!heir || !lease->first) {
        end(table, lease);
        return false;
    }
    assert(!other || other == lease);
    wake_one(table, heir, LEASE_LEAD, wakes);
    set_exact(table, lease, heir->exact);
    deadlines_remove(&table->running, lease->place);
    begin_term(table, lease, heir->epoch, now_ms, heir->lease_ms);
    lease_token_write(&lease->token, table->secret, heir->token);
    heir->token_deadline_ms = lease->deadline_ms;
    table->stats.handed_over++;
    return true;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A lease in flight for the question. One that is past its deadline, with nobody to take it over, ends here. */
static struct lease *find(struct lease_table *table, const struct lease_question *question)
{
    assert(lock_is_held(&table->lock));
    for (;;) {
        struct lease *lease = find_exact(table, question->group, question->exact);
        if (!lease)
            lease = find_near(table, question);
        if (!lease || lease->first || lease->deadline_ms > question->now_ms)
            return lease;
        table->stats.expired++;
        end(table, lease);
    }
}

static enum lease_answer queue(struct lease_table *table, const struct lease_question *question, bool want_lease,
                               struct lease *lease, struct lease_waiter *waiter, uint64_t wait_ms)
{
    if (!waiter || !wait_ms)
        return LEASE_TAKEN;
    if (table->waiting.n == table->waiting.max)
        return LEASE_FULL;
    assert(!waiter->lease && waiter->wake);
    waiter->exact = question->exact;
    waiter->asked = table->asked++;
    waiter->deadline_ms = later(question->now_ms, wait_ms);
    waiter->lease_ms = question->lease_ms;
    waiter->epoch = question->epoch;
    waiter->want_lease = want_lease;
    append(lease, waiter);
    deadlines_add(&table->waiting, waiter->deadline_ms, waiter, &waiter->place);
    return LEASE_WAITING;
}

enum lease_answer lease_ask(struct lease_table *table, const struct lease_question *question, bool want_lease,
                            struct lease_waiter *waiter, uint64_t wait_ms, char token[LEASE_TOKEN_BYTES],
                            uint64_t *deadline_ms)
{
    enum lease_answer answer;
    struct lease_token granted = {0};
    pthread_mutex_lock(&table->lock);
    table->wall_ahead_ms = question->wall_ms ? question->wall_ms - question->now_ms : 0;
    struct lease *lease = find(table, question);
    if (lease) {
        answer = queue(table, question, want_lease, lease, waiter, wait_ms);
    } else if (!want_lease) {
        answer = LEASE_TAKEN;
    } else if ((lease = grant(table, question))) {
        answer = LEASE_GRANTED;
        granted = lease->token;
        *deadline_ms = lease->deadline_ms;
    } else {
        answer = LEASE_FULL;
    }
    table->stats.refused += answer == LEASE_FULL;
    pthread_mutex_unlock(&table->lock);
    if (answer == LEASE_GRANTED)
        lease_token_write(&granted, table->secret, token);
    return answer;
}

bool lease_cancel(struct lease_table *table, struct lease_waiter *waiter)
{
    pthread_mutex_lock(&table->lock);
    bool waits = waiter->lease != NULL;
    if (waits)
        leave(table, waiter);
    pthread_mutex_unlock(&table->lock);
    return waits;
}

static enum lease_state state_of(const struct lease *lease, uint64_t now_ms)
{
    return lease && lease->deadline_ms > now_ms ? LEASE_VALID : LEASE_DEAD;
}

enum lease_state lease_look(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, uint64_t *epoch,
                            uint64_t *granted_ms)
{
    struct lease_token read;
    if (!lease_token_read(token, table->secret, &read))
        return LEASE_UNKNOWN;
    pthread_mutex_lock(&table->lock);
    enum lease_state state = state_of(find_token(table, &read), now_ms);
    pthread_mutex_unlock(&table->lock);
    if (epoch)
        *epoch = read.epoch;
    if (granted_ms)
        *granted_ms = read.granted_ms;
    return state;
}

uint64_t lease_refreshes(struct lease_table *table, struct quire_bytes token)
{
    struct lease_token read;
    if (!lease_token_read(token, table->secret, &read))
        return 0;
    pthread_mutex_lock(&table->lock);
    const struct lease *lease = find_token(table, &read);
    uint64_t id = lease ? lease->refreshes : 0;
    pthread_mutex_unlock(&table->lock);
    return id;
}

/* lease may be NULL. Gives the lock back, then wakes. */
static uint32_t done_and_unlock(struct lease_table *table, struct lease *lease)
{
    struct wakes wakes = {0};
    uint32_t n = 0;
    assert(lock_is_held(&table->lock));
    if (lease) {
        n = wake_all(table, lease, LEASE_READY, &wakes);
        end(table, lease);
        table->stats.done++;
        table->stats.woken += n;
    }
    pthread_mutex_unlock(&table->lock);
    run_wakes(&wakes);
    return n;
}

uint32_t lease_done(struct lease_table *table, struct quire_bytes token)
{
    struct lease_token read;
    if (!lease_token_read(token, table->secret, &read))
        return 0;
    pthread_mutex_lock(&table->lock);
    return done_and_unlock(table, find_token(table, &read));
}

uint32_t lease_done_exact(struct lease_table *table, uint64_t group, struct hash128 exact)
{
    pthread_mutex_lock(&table->lock);
    return done_and_unlock(table, find_exact(table, group, exact));
}

enum lease_state lease_fail(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, bool *led)
{
    struct lease_token read;
    struct wakes wakes = {0};
    *led = false;
    if (!lease_token_read(token, table->secret, &read))
        return LEASE_UNKNOWN;
    pthread_mutex_lock(&table->lock);
    struct lease *lease = find_token(table, &read);
    enum lease_state state = state_of(lease, now_ms);
    if (state == LEASE_VALID) {
        table->stats.failed++;
        *led = hand_over(table, lease, now_ms, &wakes);
    }
    pthread_mutex_unlock(&table->lock);
    run_wakes(&wakes);
    return state;
}

enum lease_state lease_renew(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, uint64_t ms,
                             uint64_t *left_ms)
{
    struct lease_token read;
    if (!lease_token_read(token, table->secret, &read))
        return LEASE_UNKNOWN;
    pthread_mutex_lock(&table->lock);
    struct lease *lease = find_token(table, &read);
    enum lease_state state = state_of(lease, now_ms);
    if (state == LEASE_VALID) {
        uint64_t deadline = later(now_ms, ms && ms < lease->term_ms ? ms : lease->term_ms);
        if (deadline > lease->deadline_ms) {
            deadlines_remove(&table->running, lease->place);
            lease->deadline_ms = deadline;
            deadlines_add(&table->running, lease->deadline_ms, lease, &lease->place);
        }
        assert(lease->deadline_ms > now_ms);
        *left_ms = lease->deadline_ms - now_ms;
    }
    pthread_mutex_unlock(&table->lock);
    return state;
}

uint64_t lease_tick(struct lease_table *table, uint64_t now_ms)
{
    struct wakes wakes = {0};
    struct lease_waiter *waiter;
    struct lease *lease;
    pthread_mutex_lock(&table->lock);
    while ((waiter = deadlines_due(&table->waiting, now_ms))) {
        wake_one(table, waiter, LEASE_TIMEOUT, &wakes);
        table->stats.timeouts++;
    }
    while ((lease = deadlines_due(&table->running, now_ms))) {
        table->stats.expired++;
        hand_over(table, lease, now_ms, &wakes);
    }
    uint64_t lease_ms = deadlines_next(&table->running), waiter_ms = deadlines_next(&table->waiting);
    pthread_mutex_unlock(&table->lock);
    run_wakes(&wakes);
    uint64_t next = lease_ms < waiter_ms ? lease_ms : waiter_ms;
    return next == UINT64_MAX ? UINT64_MAX : next - now_ms;
}

void lease_get_stats(const struct lease_table *constant, struct lease_stats *out)
{
    struct lease_table *table = (struct lease_table *)constant; /* its lock is all that changes */
    pthread_mutex_lock(&table->lock);
    *out = table->stats;
    out->in_flight = table->running.n;
    out->waiting = table->waiting.n;
    assert(out->granted + out->handed_over >= out->in_flight + out->done + out->failed + out->expired);
    pthread_mutex_unlock(&table->lock);
}

void lease_table_close(struct lease_table *table)
{
    struct wakes wakes = {0};
    pthread_mutex_lock(&table->lock);
    for (uint32_t i = 0; i < table->leases_max; i++)
        if (table->leases[i].in_flight) {
            wake_all(table, table->leases + i, LEASE_CLOSED, &wakes);
            end(table, table->leases + i);
        }
    table->free = NULL; /* whoever asks is granted nothing */
    pthread_mutex_unlock(&table->lock);
    run_wakes(&wakes);
}

void lease_table_destroy(struct lease_table *table)
{
    if (!table)
        return;
    lease_table_close(table);
    pthread_mutex_destroy(&table->lock);
    release(table);
}
