/*
 * cmd_vector.c - the commands of vector sets but VSIM and VLOAD: what is in a set, and single elements of it.
 *
 * What the segment knows without the disk is answered at once. The rest (VEMB, VISMEMBER, VLINKS, VRANDMEMBER) is one
 * fetch or several: the reply is deferred and built when the fetch is done.
 *
 * VRANDMEMBER with a positive count gives distinct elements without a list of those given: the i-th is perm(i), where
 * perm is a random permutation of the rows made by a Feistel network over the next power of four, walked until it falls
 * below the number of rows (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
 */
#include "index/block_cache.h"
#include "io/random.h"
#include "server/vector_call.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM_COUNT_MAX = 100000, RANDOM_WINDOW = 16, LINKS_MAX = 64 };

void *vector_call_begin(struct client *c, struct collection *collection, size_t bytes)
{
    struct vector_call *call = client_defer(c, bytes, false);
    if (!call)
        return NULL;
    call->collection = collection;
    call->lane = c->lane;
    collection_begin(collection, c->lane);
    return call;
}

void vector_call_end(struct vector_call *call)
{
    collection_end(call->collection, call->lane);
    pending_done(&call->pending);
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

static const struct segment_info *info_of(const struct collection *collection)
{
    return segment_info(collection_segment(collection));
}

/* ---- answered at once -------------------------------------------------------------------------------------------- */

void cmd_vcard(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    const struct collection *collection = arg_collection(c, args[1]);
    resp_integer(client_reply(c), collection ? (long long)info_of(collection)->rows : 0);
}

void cmd_vdim(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    const struct collection *collection = arg_collection(c, args[1]);
    if (collection)
        resp_integer(client_reply(c), info_of(collection)->dim);
    else
        client_error(c, "ERR key does not exist");
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

void cmd_vinfo(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    const struct collection *collection = arg_collection(c, args[1]);
    struct resp_buffer *out = client_reply(c);
    if (!collection) {
        resp_null_array(out);
        return;
    }
    const struct segment_info *info = info_of(collection);
    struct block_cache_stats cache;
    segment_cache_stats(collection_segment(collection), &cache);
    resp_map(out, 19);
    put_text(out, "quant-type", quire_slot_name(info->slot));
    put_integer(out, "vector-dim", info->dim);
    put_integer(out, "size", info->rows);
    put_integer(out, "vset-uid", collection_id(collection));
    put_text(out, "metric", quire_metric_name(info->metric));
    put_text(out, "index", "pagegraph");
    put_text(out, "vector-type", quire_type_name(info->type));
    put_text(out, "path", info->path);
    put_integer(out, "block-bytes", info->block_bytes);
    put_integer(out, "blocks", info->n_blocks);
    put_integer(out, "code-bits", info->code_bits);
    put_integer(out, "memory-budget", info->memory_bytes);
    put_integer(out, "resident-bytes", info->resident_bytes);
    put_integer(out, "cache-bytes", info->cache_bytes);
    put_integer(out, "cache-hits", cache.hits);
    put_integer(out, "cache-misses", cache.misses);
    put_integer(out, "disk-bytes", info->index_bytes);
    put_integer(out, "raw-bytes", info->raw_bytes);
    resp_text(out, "direct-io");
    resp_bool(out, info->direct_io);
}

/* ---- one element ------------------------------------------------------------------------------------------------- */

enum element_kind { ELEMENT_VECTOR, ELEMENT_RAW, ELEMENT_MEMBER, ELEMENT_LINKS };

struct element_call {
    struct vector_call base;
    enum element_kind kind;
    bool with_scores;
    struct fetch_request fetch;
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
static void put_links(struct resp_buffer *out, const struct fetch_request *f, enum quire_metric metric,
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

static void count_fetch(struct lane *lane, const struct fetch_request *f)
{
    stat_add(&lane->stats.fetches, 1);
    stat_add(&lane->stats.fetch_reads, f->reads);
}

static void on_element(struct fetch_request *f)
{
    struct element_call *call = f->owner;
    struct resp_buffer *out = &call->base.pending.out;
    const struct segment_info *info = info_of(call->base.collection);
    count_fetch(call->base.lane, f);
    if (f->code < 0 && f->code != QUIRE_ENOTFOUND)
        reply_quire_error(out, &f->error);
    else if (call->kind == ELEMENT_MEMBER)
        resp_bool(out, f->code == 0);
    else if (f->code < 0)
        resp_null_array(out);
    else if (call->kind == ELEMENT_VECTOR)
        put_vector(out, f->vector, info->dim);
    else if (call->kind == ELEMENT_RAW)
        put_raw(out, f->vector, info->dim);
    else
        put_links(out, f, info->metric, call->with_scores);
    vector_call_end(&call->base);
}

/* Fetches the element of args[2]. What a missing key or element answers is the same. */
static void start_element(struct client *c, const struct resp_arg *args, enum element_kind kind, bool with_scores)
{
    struct quire_error err = {0};
    struct collection *collection = arg_collection(c, args[1]);
    if (!collection || args[2].bytes == 0 || args[2].bytes > QUIRE_KEY_BYTES_MAX) {
        struct resp_buffer *out = client_reply(c);
        if (kind == ELEMENT_MEMBER)
            resp_bool(out, false);
        else
            resp_null_array(out);
        return;
    }
    struct element_call *call = vector_call_begin(c, collection, sizeof *call + args[2].bytes);
    if (!call)
        return;
    memcpy(call->key, args[2].data, args[2].bytes);
    call->kind = kind;
    call->with_scores = with_scores;
    call->fetch = (struct fetch_request){.segment = collection_segment(collection),
                                         .key = call->key,
                                         .key_bytes = args[2].bytes,
                                         .want_vector = kind == ELEMENT_VECTOR || kind == ELEMENT_RAW,
                                         .want_links = kind == ELEMENT_LINKS,
                                         .links_max = LINKS_MAX,
                                         .done = on_element,
                                         .owner = call};
    if (fetch_start(c->lane->searcher, &call->fetch, &err) < 0) {
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

/* ---- VRANDMEMBER ------------------------------------------------------------------------------------------------- */

struct random_call {
    struct vector_call base;
    uint64_t seed, rows, n, started, ended;
    unsigned half_bits; /* of the Feistel network */
    bool repeat, starting;
    int code;
    struct quire_error error;
    unsigned n_free;
    struct fetch_request *free[RANDOM_WINDOW];
    struct fetch_request fetches[RANDOM_WINDOW];
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

static uint32_t random_row(const struct random_call *call, uint64_t i)
{
    if (call->repeat)
        return (uint32_t)(random_mix(call->seed + i * 0x9e3779b97f4a7c15ull) % call->rows);
    do
        i = permute_once(call, i);
    while (i >= call->rows);
    return (uint32_t)i;
}

static void start_random(struct random_call *call);

/* Whether more elements are of use: none failed, and the client can still be told. */
static bool random_goes_on(const struct random_call *call)
{
    return call->started < call->n && call->code == 0 && call->base.pending.client->state != CLIENT_DEAD;
}

static void on_random(struct fetch_request *f)
{
    struct random_call *call = f->owner;
    count_fetch(call->base.lane, f);
    if (f->code == 0) {
        resp_bulk(&call->base.pending.out, f->found_key, f->found_key_bytes);
    } else if (call->code == 0) {
        call->code = f->code;
        call->error = f->error;
    }
    call->ended++;
    call->free[call->n_free++] = f;
    start_random(call);
}

/* Keeps the window full; ends the call with the last fetch. */
static void start_random(struct random_call *call)
{
    if (call->starting)
        return;
    call->starting = true;
    while (call->n_free > 0 && random_goes_on(call)) {
        struct fetch_request *f = call->free[--call->n_free];
        *f = (struct fetch_request){.segment = collection_segment(call->base.collection),
                                    .row = random_row(call, call->started++),
                                    .want_key = true,
                                    .done = on_random,
                                    .owner = call};
        int rc = fetch_start(call->base.lane->searcher, f, &call->error);
        if (rc < 0) {
            call->code = rc;
            call->ended++;
            call->free[call->n_free++] = f;
        }
    }
    call->starting = false;
    if (call->ended < call->started || random_goes_on(call))
        return;
    if (call->code < 0) {
        call->base.pending.out.bytes = 0;
        reply_quire_error(&call->base.pending.out, &call->error);
    }
    vector_call_end(&call->base);
}

static void begin_random(struct client *c, struct collection *collection, uint64_t count, bool repeat, bool single)
{
    struct random_call *call = vector_call_begin(c, collection, sizeof *call);
    if (!call)
        return;
    call->rows = info_of(collection)->rows;
    call->n = !repeat && count > call->rows ? call->rows : count;
    call->repeat = repeat;
    call->seed = random_mix(clock_us() ^ c->id << 40 ^ (uint64_t)(uintptr_t)call);
    while (((uint64_t)1 << 2 * call->half_bits) < call->rows)
        call->half_bits++;
    call->half_bits += call->half_bits == 0;
    for (unsigned i = 0; i < RANDOM_WINDOW; i++)
        call->free[call->n_free++] = &call->fetches[i];
    if (!single)
        resp_array(&call->base.pending.out, call->n);
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
    struct collection *collection = arg_collection(c, args[1]);
    if (collection && count != 0) {
        begin_random(c, collection, (uint64_t)(count < 0 ? -count : count), count < 0, n == 2);
        return;
    }
    struct resp_buffer *out = client_reply(c);
    if (n == 2)
        resp_null(out);
    else
        resp_array(out, 0);
}
