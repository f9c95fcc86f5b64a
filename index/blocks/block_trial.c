/*
 * block_trial.c - an index of some thousand rows, built as the whole one will be and asked for rows that are not in it.
 *
 * The trial index has the kind, block size, codes and slots of the real one, and is calibrated, in brief, as that will
 * be: how reads fall with larger blocks depends on the data, the width of the codes and the rule by which a search
 * reads, and no formula knows all of that. Its codes are those that the whole index has within its budget, which
 * need not be those that a sample would have.
 */
#include "index/blocks/block_trial.h"
#include "index/build/build.h"
#include "index/search/search.h"
#include "index/segment/segment.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "io/fs.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define K      10u
#define RECALL 0.95f
#define PASSES 4u /* the first warms up and is not counted */
#define TASKS  16u

/* ---- the sample -------------------------------------------------------------------------------------------------- */

/* Row `row` of the input into `out`. */
static int read_row(const struct quire_input *input, uint64_t row, size_t row_bytes, void *out, struct quire_error *err)
{
    if (!input->vectors)
        return input->read(input->context, row, 1, out, err);
    memcpy(out, (const uint8_t *)input->vectors + row * row_bytes, row_bytes);
    return 0;
}

int block_sample_make(const struct quire_input *input, const struct quire_build_options *options, uint32_t n_rows,
                      uint32_t n_queries, struct block_sample *out, struct quire_error *err)
{
    const uint32_t n = n_rows + n_queries, each = n / n_queries;
    size_t row_bytes = (size_t)input->dim * quire_type_bytes(input->type);
    struct block_sample s = {.dim = input->dim, .type = input->type};
    uint8_t *asked = malloc(row_bytes);
    int rc = 0;
    assert(input->rows >= n && n_rows % n_queries == 0);
    s.rows = malloc(memory_size_mul(n_rows, row_bytes));
    s.queries = malloc(memory_size_mul(n_queries, sizeof(float) * input->dim));
    s.keys = options->keys ? malloc(sizeof *s.keys * n_rows) : NULL;
    s.key_bytes = options->keys ? malloc(sizeof *s.key_bytes * n_rows) : NULL;
    if (!asked || !s.rows || !s.queries || (options->keys && (!s.keys || !s.key_bytes)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a sample of %u rows", n);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        uint64_t row = (uint64_t)((unsigned __int128)input->rows * i / n);
        bool is_query = i % each == each / 2;
        void *place = is_query ? asked : (uint8_t *)s.rows + s.n_rows * row_bytes;
        rc = read_row(input, row, row_bytes, place, err);
        if (rc == 0 && is_query) {
            space_floats(input->type, asked, input->dim, s.queries + (size_t)s.n_queries++ * input->dim);
        } else if (rc == 0) {
            if (s.keys) {
                s.keys[s.n_rows] = options->keys[row];
                s.key_bytes[s.n_rows] = options->key_bytes[row];
            }
            s.n_rows++;
        }
    }
    free(asked);
    if (rc < 0) {
        block_sample_free(&s);
        return rc;
    }
    assert(s.n_rows == n_rows && s.n_queries == n_queries);
    *out = s;
    return 0;
}

void block_sample_free(struct block_sample *s)
{
    free(s->rows);
    free(s->queries);
    free((void *)s->keys);
    free(s->key_bytes);
    memset(s, 0, sizeof *s);
}

/* ---- build ------------------------------------------------------------------------------------------------------- */

int block_trial_build(const char *path, const struct block_sample *sample, const struct quire_build_options *options,
                      const struct block_way *way, bool whole_edges, struct quire_error *err)
{
    struct quire_build_options o = *options;
    struct quire_input input = {
        .rows = sample->n_rows, .dim = sample->dim, .type = sample->type, .vectors = sample->rows};
    struct build_merge merge = {.type = sample->type, .brief = true, .whole_edges = whole_edges};
    merge.places = malloc(sizeof *merge.places * sample->n_rows);
    if (!merge.places)
        return error_set(err, QUIRE_ENOMEM, "no memory to try a block size");
    o.index = way->index;
    o.block_bytes = way->block_bytes;
    o.edge_codes = way->edge_codes ? QUIRE_EDGE_CODES_YES : QUIRE_EDGE_CODES_NO;
    o.memory_bytes = o.build_memory_bytes = 0;
    o.keys = sample->keys;
    o.key_bytes = sample->key_bytes;
    o.attributes = NULL;
    o.attribute_bytes = NULL;
    o.columns = NULL;
    o.n_columns = 0;
    o.tenants = NULL;
    o.resume = false;
    int rc = build_merged(fs_real(), path, &input, &o, &merge, err);
    free(merge.places);
    return rc;
}

/* ---- search ------------------------------------------------------------------------------------------------------ */

struct asking {
    uint64_t reads, bytes, rounds, codes;
    int code;
    struct quire_error *err;
};

static void on_answer(struct search_request *request)
{
    struct asking *asking = request->owner;
    asking->reads += request->stats.reads;
    asking->bytes += request->stats.bytes;
    asking->rounds += request->stats.rounds;
    asking->codes += request->stats.codes_scored;
    if (request->code < 0 && asking->code == 0) {
        asking->code = request->code;
        if (asking->err)
            *asking->err = request->error;
    }
}

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Asks all queries once. */
static int ask_all(struct engine *engine, struct searcher *searcher, struct segment *segment,
                   const struct block_sample *sample, float recall, struct search_request *requests,
                   struct asking *asking)
{
    int rc = 0;
    for (uint32_t q = 0; q < sample->n_queries && rc >= 0; q++) {
        requests[q] = (struct search_request){
            .segment = segment,
            .query = sample->queries + (size_t)q * sample->dim,
            .options = {.struct_bytes = sizeof(struct quire_search_options), .k = K, .recall = recall},
            .done = on_answer,
            .owner = asking};
        rc = search_start(searcher, &requests[q], asking->err);
        if (rc == 0 && searcher_running(searcher) >= TASKS)
            rc = engine_poll(engine, 1, UINT64_MAX);
    }
    while (rc >= 0 && searcher_running(searcher) > 0)
        rc = engine_poll(engine, 1, UINT64_MAX);
    return rc < 0 ? rc : asking->code;
}

static int search_sample(struct segment *segment, const struct block_sample *sample, float recall,
                         struct block_cost *out, struct quire_error *err)
{
    const struct engine_config engine_config = {.kind = QUIRE_ENGINE_AUTO};
    struct searcher_config config = {.tasks_max = TASKS};
    struct engine *engine = NULL;
    struct searcher *searcher = NULL;
    struct asking asking = {.err = err};
    struct search_request *requests = calloc(sample->n_queries, sizeof *requests);
    int rc =
        requests ? engine_create(&engine_config, &engine, err) : error_set(err, QUIRE_ENOMEM, "no memory for queries");
    if (rc == 0)
        rc = searcher_create(engine, &config, &searcher, err);
    double begun_us = 0;
    for (uint32_t pass = 0; rc == 0 && pass < PASSES; pass++) {
        if (pass == 1) {
            asking = (struct asking){.err = err};
            begun_us = thread_us();
        }
        rc = ask_all(engine, searcher, segment, sample, recall, requests, &asking);
    }
    double asked = (double)(PASSES - 1) * sample->n_queries;
    out->cpu_us = (thread_us() - begun_us) / asked;
    out->reads = (double)asking.reads / asked;
    out->read_bytes = (double)asking.bytes / asked;
    out->rounds = (double)asking.rounds / asked;
    out->codes = (double)asking.codes / asked;
    if (searcher)
        searcher_cancel(searcher);
    searcher_destroy(searcher);
    if (engine)
        engine_destroy(engine);
    free(requests);
    return rc;
}

int block_trial_search(const char *path, const struct block_sample *sample, const struct block_way *way, float recall,
                       struct block_cost *out, struct quire_error *err)
{
    bool lists = way->index == QUIRE_INDEX_SPANN;
    struct segment_options open = {.memory_bytes = UINT64_MAX,
                                   .code_bits = lists ? 0 : way->code_bits,
                                   .naming = SEGMENT_NOTHING,
                                   .no_cache = true,
                                   .edge_codes = !lists && way->code_bits == 0,
                                   .read_lists = lists && way->code_bits == 0};
    struct segment *segment = NULL;
    assert(lists || way->code_bits > 0 || way->edge_codes);
    int rc = segment_open(path, &open, &segment, err);
    if (rc < 0)
        return rc;
    *out = (struct block_cost){.resident_bytes = segment_info(segment)->resident_bytes,
                               .index_bytes = segment_info(segment)->index_bytes};
    rc = search_sample(segment, sample, recall, out, err);
    segment_unref(segment);
    return rc;
}

int block_trial(const char *path, const struct block_sample *sample, const struct quire_build_options *options,
                const struct block_way *way, struct block_cost *out, struct quire_error *err)
{
    int rc = block_trial_build(path, sample, options, way, false, err);
    if (rc < 0)
        return rc;
    rc = block_trial_search(path, sample, way, RECALL, out, err);
    int removed = fs_remove_folder(fs_real(), path, rc == 0 ? err : NULL);
    return rc < 0 ? rc : removed;
}
