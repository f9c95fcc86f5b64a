/*
 * support_spann.c - what the tests of inverted lists share.
 *
 * Answers are compared with those of an exact search of the same index, so that the precision of slots plays no part:
 * what differs is what the lists have missed. Rows that are equally far may stand for each other.
 *
 * Every function fails the running test instead of returning an error.
 */
#include "tests/index/support_spann.h"
#include "tests/support/fault.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct quire_build_options spann_options(enum quire_metric metric, uint32_t list_rows)
{
    struct quire_build_options options = support_options(metric, QUIRE_SLOT_AUTO);
    options.index = QUIRE_INDEX_SPANN;
    options.list_rows = list_rows;
    return options;
}

struct segment *spann_open(struct io_fs *fs, const char *path, enum spann_mode mode)
{
    struct segment_options options = {.fs = fs, .memory_bytes = UINT64_MAX, .read_lists = mode == SPANN_HEADS};
    struct segment *segment = NULL;
    struct quire_error err;
    int rc = segment_open(path, &options, &segment, &err);
    if (rc < 0)
        fail_msg("%s: %s", path, err.message);
    const struct segment_info *info = segment_info(segment);
    assert_true(info->n_lists > 0 && info->index == QUIRE_INDEX_SPANN);
    assert_true((info->code_bits > 0) == (mode == SPANN_CODES));
    return segment;
}

void spann_lane_open(struct spann_lane *lane, enum quire_engine_kind kind, uint64_t seed, unsigned tasks)
{
    struct engine_config config = {.kind = kind, .one_thread = true};
    struct searcher_config searcher = {.tasks_max = tasks};
    struct quire_error err;
    int rc =
        seed ? engine_fault_create(&config, seed, &lane->engine, &err) : engine_create(&config, &lane->engine, &err);
    if (rc < 0)
        fail_msg("%s", err.message);
    assert_int_equal(searcher_create(lane->engine, &searcher, &lane->searcher, NULL), 0);
}

void spann_lane_close(struct spann_lane *lane)
{
    searcher_destroy(lane->searcher);
    engine_destroy(lane->engine);
}

static void take_answer(struct search_request *request)
{
    struct spann_answer *out = request->owner;
    out->code = request->code;
    out->error = request->error;
    out->n = request->n_hits;
    out->stats = request->stats;
    assert_true(out->n <= SPANN_HITS);
    for (uint32_t i = 0; i < out->n; i++) {
        out->ids[i] = request->hits[i].id;
        out->rows[i] = request->hits[i].row;
        out->distances[i] = request->hits[i].distance;
        assert_true(i == 0 || out->distances[i - 1] <= out->distances[i]);
    }
}

void spann_ask(struct spann_lane *lane, struct segment *segment, const float *query,
               const struct quire_search_options *options, const uint8_t *dead, struct spann_answer *out)
{
    struct search_request request = {.segment = segment, .query = query, .options = *options, .dead = dead};
    struct quire_error err;
    request.done = take_answer;
    request.owner = out;
    out->code = 1;
    if (search_start(lane->searcher, &request, &err) < 0)
        fail_msg("%s", err.message);
    while (out->code == 1)
        assert_true(engine_poll(lane->engine, 1, UINT64_MAX) >= 0);
}

static bool is_near(float a, float b)
{
    return fabsf(a - b) <= 1e-5f * (1 + fabsf(b));
}

void spann_same(const struct spann_answer *a, const struct spann_answer *b, const char *what)
{
    if (a->n != b->n)
        fail_msg("%s: %u hits, expected %u", what, a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++)
        if (!is_near(a->distances[i], b->distances[i]))
            fail_msg("%s: hit %u of %u is row %llu at %g, expected row %llu at %g", what, i, a->n,
                     (unsigned long long)a->ids[i], (double)a->distances[i], (unsigned long long)b->ids[i],
                     (double)b->distances[i]);
}

double spann_share(const struct spann_answer *a, const struct spann_answer *b)
{
    uint32_t shared = 0;
    for (uint32_t i = 0; i < a->n && b->n > 0; i++)
        shared += a->distances[i] <= b->distances[b->n - 1] || is_near(a->distances[i], b->distances[b->n - 1]);
    return b->n ? (double)shared / b->n : 1;
}
