/*
 * cmd_vector.c - the commands of vector sets but VSIM and VLOAD: what is in a set, and single elements of it.
 *
 * What is known without the disk is answered at once. The rest (VEMB, VISMEMBER, VLINKS, VGETATTR, VRANDMEMBER) is one
 * fetch or several: the reply is deferred and built when the fetch is done.
 *
 * VRANDMEMBER with a positive count gives distinct elements without a list of those given: the i-th comes from place
 * perm(i), where perm is a random permutation of the set's places (collection.h; some hold nothing that lives) made by
 * a Feistel network over the next power of four, walked until it falls below the number of places (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", 2002).
 */
#include "index/block_cache.h"
#include "io/random.h"
#include "server/key_call.h"
#include "server/vector_call.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM_COUNT_MAX = 100000, RANDOM_WINDOW = 16, LINKS_MAX = 64 };

int arg_vectors(struct client *c, struct resp_arg name, struct collection **out)
{
    struct key_call call;
    if (!key_read(&call, c, name, KEY_VECTOR_SET))
        return -1;
    if (call.entry)
        *out = collection_ref(call.entry->set);
    bool found = call.entry != NULL;
    key_end(&call);
    return found;
}

void *vector_call_begin(struct client *c, struct collection *collection, size_t bytes, bool barrier)
{
    struct vector_call *call = client_defer(c, bytes, barrier);
    if (!call) {
        collection_unref(collection);
        return NULL;
    }
    call->collection = collection;
    call->lane = c->lane;
    return call;
}

void vector_call_end(struct vector_call *call)
{
    collection_unref(call->collection);
    pending_done(&call->pending);
}

static void reply_worker_call(struct lane *lane, struct message *message)
{
    struct worker_call *call = (struct worker_call *)(void *)((char *)message - offsetof(struct worker_call, message));
    struct resp_buffer *out = &call->base.pending.out;
    (void)lane;
    if (call->done) {
        call->done(call);
        return;
    }
    if (call->code < 0)
        reply_quire_error(out, &call->error);
    else if (call->reply)
        call->reply(call, out);
    else
        resp_simple(out, "OK");
    call->base.pending.lsn = call->lsn;
    vector_call_end(&call->base);
}

static void run_worker_call(struct job *job)
{
    struct worker_call *call = (struct worker_call *)(void *)((char *)job - offsetof(struct worker_call, job));
    call->work(call);
    call->message.run = reply_worker_call;
    lane_post(call->base.lane, &call->message);
}

void worker_call_start(struct worker_call *call)
{
    call->job.run = run_worker_call;
    worker_post(&call->base.lane->server->worker, &call->job);
}

unsigned vector_links(const struct collection_config *config)
{
    enum { LINKS_USUAL = 16 }; /* the graph's own default, which is Redis's, too */
    return config->link_degree ? config->link_degree : LINKS_USUAL;
}

double vector_score(enum quire_metric metric, float distance)
{
    double d = (double)distance;
    switch (metric) {
    case QUIRE_METRIC_COSINE:
        return 1 - d / 2;
    case QUIRE_METRIC_L2:
        return 1 / (1 + d);
    case QUIRE_METRIC_IP:
        break;
    }
    return -d;
}

/* ---- answered at once -------------------------------------------------------------------------------------------- */

void cmd_vcard(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct collection *collection = NULL;
    if (arg_vectors(c, args[1], &collection) < 0)
        return;
    resp_integer(client_reply(c), collection ? (long long)collection_count(collection) : 0);
    collection_unref(collection);
}

void cmd_vdim(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct collection *collection;
    int found = arg_vectors(c, args[1], &collection);
    if (found > 0) {
        resp_integer(client_reply(c), collection_config(collection)->dim);
        collection_unref(collection);
    } else if (found == 0) {
        client_error(c, "ERR key does not exist");
    }
}

static void put_text(struct resp_buffer *out, const char *name, const char *value)
{
    resp_text(out, name);
    resp_text(out, value);
}

static void put_integer(struct resp_buffer *out, const char *name, uint64_t value)
{
    resp_text(out, name);
    resp_integer(out, (long long)value);
}

/* What Redis calls the way in which vectors are kept. */
static const char *quantisation_name(const struct collection_config *config)
{
    switch (config->slot) {
    case QUIRE_SLOT_Q8:
    case QUIRE_SLOT_I8:
        return config->code_bits == 1 ? "bin" : "int8";
    default:
        return quire_slot_name(config->slot);
    }
}

static void put_info(struct resp_buffer *out, const struct collection *collection)
{
    const struct collection_config *config = collection_config(collection);
    struct collection_stats stats;
    collection_get_stats(collection, &stats);
    resp_map(out, 24);
    put_text(out, "quant-type", quantisation_name(config));
    put_integer(out, "hnsw-m", vector_links(config));
    put_integer(out, "vector-dim", config->dim);
    put_integer(out, "projection-input-dim", config->input_dim);
    put_integer(out, "size", stats.elements);
    put_integer(out, "vset-uid", collection_uid(collection));
    put_text(out, "metric", quire_metric_name(config->metric));
    put_text(out, "index", quire_index_kind_name(collection_index_kind(collection)));
    put_text(out, "vector-type", quire_type_name(config->type));
    put_text(out, "slot-type", quire_slot_name(config->slot));
    put_integer(out, "memory-budget", config->memory_bytes);
    put_integer(out, "memory-rows", stats.memtable_rows);
    put_integer(out, "memory-bytes", stats.memtable_bytes);
    put_integer(out, "unlinked-rows", stats.unlinked);
    put_integer(out, "segments", stats.segments);
    put_integer(out, "segment-rows", stats.segment_rows);
    put_integer(out, "dead-rows", stats.dead_rows);
    put_integer(out, "resident-bytes", stats.resident_bytes);
    put_integer(out, "cache-bytes", stats.cache_bytes);
    put_integer(out, "cache-hits", stats.cache_hits);
    put_integer(out, "cache-misses", stats.cache_misses);
    put_integer(out, "disk-bytes", stats.disk_bytes);
    put_integer(out, "raw-bytes", stats.raw_bytes);
    put_integer(out, "merges", stats.merges);
}

void cmd_vinfo(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct collection *collection;
    int found = arg_vectors(c, args[1], &collection);
    if (found > 0) {
        put_info(client_reply(c), collection);
        collection_unref(collection);
    } else if (found == 0) {
        resp_null_array(client_reply(c));
    }
}

/* ---- one element ------------------------------------------------------------------------------------------------- */

enum element_kind { ELEMENT_VECTOR, ELEMENT_RAW, ELEMENT_MEMBER, ELEMENT_LINKS, ELEMENT_ATTRIBUTES };

struct element_call {
    struct vector_call base;
    enum element_kind kind;
    bool with_scores;
    struct collection_fetch fetch;
    uint8_t key[];
};

static void put_vector(struct resp_buffer *out, const float *vector, uint32_t dim)
{
    resp_array(out, dim);
    for (uint32_t i = 0; i < dim; i++)
        resp_double(out, (double)vector[i]);
}

/* As Redis: the kind of the numbers, the numbers, the length the vector had before it was normalised. */
static void put_raw(struct resp_buffer *out, const float *vector, uint32_t dim)
{
    resp_array(out, 3);
    resp_simple(out, "f32");
    resp_bulk(out, vector, dim * sizeof(float));
    resp_double(out, 1);
}

/* One layer, as the graph has one. */
static void put_links(struct resp_buffer *out, const struct collection_fetch *f, enum quire_metric metric,
                      bool with_scores)
{
    resp_array(out, 1);
    if (with_scores)
        resp_map(out, f->n_links);
    else
        resp_array(out, f->n_links);
    for (uint32_t i = 0; i < f->n_links; i++) {
        resp_bulk(out, f->links[i].key, f->links[i].key_bytes);
        if (with_scores)
            resp_double(out, vector_score(metric, f->links[i].distance));
    }
}

static void count_fetch(struct lane *lane, uint32_t reads)
{
    stat_add(&lane->stats.fetches, 1);
    stat_add(&lane->stats.fetch_reads, reads);
}

/* What a missing key or element answers is the same. */
static void put_missing(struct resp_buffer *out, enum element_kind kind)
{
    if (kind == ELEMENT_MEMBER)
        resp_bool(out, false);
    else if (kind == ELEMENT_ATTRIBUTES)
        resp_null(out);
    else
        resp_null_array(out);
}

static void on_element(struct collection_fetch *f)
{
    struct element_call *call = f->owner;
    struct resp_buffer *out = &call->base.pending.out;
    const struct collection_config *config = collection_config(f->collection);
    count_fetch(call->base.lane, f->reads);
    if (f->code < 0 && f->code != QUIRE_ENOTFOUND)
        reply_quire_error(out, &f->error);
    else if (f->code < 0)
        put_missing(out, call->kind);
    else if (call->kind == ELEMENT_MEMBER)
        resp_bool(out, true);
    else if (call->kind == ELEMENT_VECTOR)
        put_vector(out, f->vector, config->dim);
    else if (call->kind == ELEMENT_RAW)
        put_raw(out, f->vector, config->dim);
    else if (call->kind == ELEMENT_LINKS)
        put_links(out, f, config->metric, call->with_scores);
    else if (f->attribute_bytes)
        resp_bulk(out, f->attributes, f->attribute_bytes);
    else
        resp_null(out);
    vector_call_end(&call->base);
}

/* Fetches the element of args[2]. */
static void start_element(struct client *c, const struct resp_arg *args, enum element_kind kind, bool with_scores)
{
    struct quire_error err = {0};
    struct collection *collection;
    int found = arg_vectors(c, args[1], &collection);
    if (found < 0)
        return;
    if (!found || args[2].bytes == 0 || args[2].bytes > QUIRE_KEY_BYTES_MAX) {
        put_missing(client_reply(c), kind);
        if (found)
            collection_unref(collection);
        return;
    }
    struct element_call *call = vector_call_begin(c, collection, sizeof *call + args[2].bytes, false);
    if (!call)
        return;
    memcpy(call->key, args[2].data, args[2].bytes);
    call->kind = kind;
    call->with_scores = with_scores;
    call->fetch = (struct collection_fetch){.collection = collection,
                                            .key = call->key,
                                            .key_bytes = args[2].bytes,
                                            .want_vector = kind == ELEMENT_VECTOR || kind == ELEMENT_RAW,
                                            .want_attributes = kind == ELEMENT_ATTRIBUTES,
                                            .want_links = kind == ELEMENT_LINKS,
                                            .links_max = LINKS_MAX,
                                            .done = on_element,
                                            .owner = call};
    if (collection_fetch_start(c->lane->searcher, &call->fetch, &err) < 0) {
        reply_quire_error(&call->base.pending.out, &err);
        vector_call_end(&call->base);
    }
}

void cmd_vemb(struct client *c, const struct resp_arg *args, uint32_t n)
{
    if (n > 4 || (n == 4 && !arg_is(args[3], "RAW")))
        client_error(c, "ERR syntax error: VEMB key element [RAW]");
    else
        start_element(c, args, n == 4 ? ELEMENT_RAW : ELEMENT_VECTOR, false);
}

void cmd_vismember(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    start_element(c, args, ELEMENT_MEMBER, false);
}

void cmd_vlinks(struct client *c, const struct resp_arg *args, uint32_t n)
{
    if (n > 4 || (n == 4 && !arg_is(args[3], "WITHSCORES")))
        client_error(c, "ERR syntax error: VLINKS key element [WITHSCORES]");
    else
        start_element(c, args, ELEMENT_LINKS, n == 4);
}

void cmd_vgetattr(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    start_element(c, args, ELEMENT_ATTRIBUTES, false);
}

/* ---- VRANDMEMBER ------------------------------------------------------------------------------------------------- */

struct random_call {
    struct vector_call base;
    uint64_t seed, places, n; /* n: elements asked for */
    uint64_t tried, given;
    unsigned half_bits; /* of the Feistel network */
    unsigned running;
    bool repeat, single, starting;
    int code;
    struct quire_error error;
    struct resp_buffer keys; /* the elements, without what stands before them */
    unsigned n_free;
    struct place_request *free[RANDOM_WINDOW];
    struct place_request requests[RANDOM_WINDOW];
};

static uint64_t permute_once(const struct random_call *call, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << call->half_bits) - 1, left = x >> call->half_bits, right = x & mask;
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t next = left ^ (random_mix(right + call->seed + (round << 56)) & mask);
        left = right;
        right = next;
    }
    return left << call->half_bits | right;
}

static uint64_t random_place(const struct random_call *call, uint64_t i)
{
    if (call->repeat)
        return random_mix(call->seed + i * 0x9e3779b97f4a7c15ull) % call->places;
    do
        i = permute_once(call, i);
    while (i >= call->places);
    return i;
}

static void start_random(struct random_call *call);

/* Whether more places are of use: elements are missing, none failed, and the client can still be told. Distinct
 * elements end with the last place; repeated ones when far more places were dead than a set has (merges see to that).
 * */
static bool random_goes_on(const struct random_call *call)
{
    uint64_t most = call->repeat ? 1000 + 100 * call->n : call->places;
    return call->given + call->running < call->n && call->tried < most && call->code == 0 &&
           call->base.pending.client->state != CLIENT_DEAD;
}

static void on_random(struct place_request *request)
{
    struct random_call *call = request->owner;
    count_fetch(call->base.lane, request->reads);
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

static void end_random(struct random_call *call)
{
    struct resp_buffer *out = &call->base.pending.out;
    if (call->code < 0)
        reply_quire_error(out, &call->error);
    else if (call->single && call->given == 0)
        resp_null(out);
    else if (!call->single)
        resp_array(out, call->given);
    if (call->code == 0)
        resp_raw(out, call->keys.data, call->keys.bytes);
    resp_buffer_fini(&call->keys);
    vector_call_end(&call->base);
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
                                          .place = random_place(call, call->tried++),
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
    if (call->running == 0 && !random_goes_on(call))
        end_random(call);
}

static void begin_random(struct client *c, struct collection *collection, uint64_t count, bool repeat, bool single)
{
    struct random_call *call = vector_call_begin(c, collection, sizeof *call, false);
    if (!call)
        return;
    call->places = collection_places(collection);
    call->n = call->places ? count : 0; /* a set that was made and not filled yet */
    call->repeat = repeat;
    call->single = single;
    call->keys.protocol = c->protocol;
    call->seed = random_mix(clock_us() ^ c->id << 40 ^ (uint64_t)(uintptr_t)call);
    while (((uint64_t)1 << 2 * call->half_bits) < call->places)
        call->half_bits++;
    call->half_bits += call->half_bits == 0;
    for (unsigned i = 0; i < RANDOM_WINDOW; i++)
        call->free[call->n_free++] = &call->requests[i];
    start_random(call);
}

void cmd_vrandmember(struct client *c, const struct resp_arg *args, uint32_t n)
{
    long long count = 1;
    if (n > 3) {
        client_error(c, "ERR wrong number of arguments for 'vrandmember' command");
        return;
    }
    if (n == 3 && (!arg_integer(args[2], &count) || count > RANDOM_COUNT_MAX || count < -RANDOM_COUNT_MAX)) {
        client_error(c, "ERR count is not an integer from -%d to %d", RANDOM_COUNT_MAX, RANDOM_COUNT_MAX);
        return;
    }
    struct collection *collection = NULL;
    int found = arg_vectors(c, args[1], &collection);
    if (found < 0)
        return;
    if (found && count != 0) {
        begin_random(c, collection, (uint64_t)(count < 0 ? -count : count), count < 0 || n == 2, n == 2);
        return;
    }
    collection_unref(collection);
    struct resp_buffer *out = client_reply(c);
    if (n == 2)
        resp_null(out);
    else
        resp_array(out, 0);
}
