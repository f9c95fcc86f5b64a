/*
 * offload_probe.c - rates of a device and of the processor, measured by the calls that are to be faster.
 *
 * Nothing is taken from data sheets or from what a driver says about its device. Each kind of work is done once to warm
 * up (the driver compiles, memory is touched) and then timed; a device is charged for everything between a call and its
 * answer. The processor is timed with one thread on rows that fit into its caches, which flatters it somewhat: where
 * both come out alike, the processor keeps the work.
 */
#include "index/offload/offload_probe.h"
#include "index/kernels/kernels.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/random.h"
#include <assert.h>
#include <stdlib.h>

#define DIM            128u
#define ROWS           32768u
#define QUERIES        256u
#define K              16u
#define RUN_ROWS       4096u /* of a query of codes */
#define PROCESSOR_ROWS 512u
#define PROCESSOR_NS   20000000u

struct probe {
    struct offload *offload;
    float *floats; /* ROWS x DIM, of which the first are queries as well */
    uint8_t *bytes;
    int32_t *dots;
    struct offload_near *found;
    struct offload_run runs[QUERIES];
    uint32_t ids[PROCESSOR_ROWS];
    double sum; /* of what the processor computed, so that none of it is left out */
};

static double seconds_since(uint64_t begin)
{
    double seconds = (double)(clock_ns() - begin) / 1e9;
    return seconds > 1e-9 ? seconds : 1e-9;
}

static const void *data_of(const struct probe *p, enum offload_work_kind kind)
{
    return kind == OFFLOAD_FLOATS ? (const void *)p->floats : p->bytes;
}

/* The kind's work for some queries. */
static int work_on_device(struct probe *p, enum offload_work_kind kind, struct offload_block *block, uint32_t n_queries,
                          struct quire_error *err)
{
    const struct offload_nearest nearest = {
        .measure = OFFLOAD_L2, .n_queries = n_queries, .k = K, .queries = data_of(p, kind), .out = p->found};
    const struct offload_dots dots = {.n_queries = n_queries,
                                      .n_runs = n_queries,
                                      .n_out = n_queries * RUN_ROWS,
                                      .queries = (const int8_t *)p->bytes,
                                      .runs = p->runs,
                                      .out = p->dots};
    return kind == OFFLOAD_CODES ? offload_dots(p->offload, block, &dots, err)
                                 : offload_nearest(p->offload, block, &nearest, err);
}

static int measure_device(struct probe *p, enum offload_work_kind kind, struct offload_rates *out,
                          struct quire_error *err)
{
    static const enum offload_element elements[OFFLOAD_KINDS] = {OFFLOAD_F32, OFFLOAD_U8, OFFLOAD_CODE8};
    const struct offload_rows rows = {elements[kind], ROWS, DIM, data_of(p, kind), NULL};
    uint64_t pairs = kind == OFFLOAD_CODES ? (uint64_t)QUERIES * RUN_ROWS : (uint64_t)QUERIES * ROWS;
    struct offload_block *block;
    uint64_t begin = clock_ns();
    int rc = offload_load(p->offload, &rows, &block, err);
    double load_seconds = seconds_since(begin);
    if (rc < 0)
        return rc;
    rc = work_on_device(p, kind, block, 1, err);
    begin = clock_ns();
    if (rc == 0)
        rc = work_on_device(p, kind, block, 1, err);
    double call_seconds = seconds_since(begin);
    if (rc == 0)
        rc = work_on_device(p, kind, block, QUERIES, err);
    begin = clock_ns();
    if (rc == 0)
        rc = work_on_device(p, kind, block, QUERIES, err);
    out->products_per_second[kind] = (double)pairs * DIM / seconds_since(begin);
    offload_unload(p->offload, block);
    if (kind == OFFLOAD_FLOATS)
        out->send_bytes_per_second = (double)ROWS * DIM * sizeof(float) / load_seconds;
    if (kind == OFFLOAD_CODES)
        out->call_seconds = call_seconds;
    return rc;
}

static double measure_processor(struct probe *p, enum offload_work_kind kind)
{
    const struct kernels *k = kernels();
    uint64_t begin = clock_ns(), pairs = 0;
    do {
        const float *query = p->floats + pairs % ROWS * DIM;
        const uint8_t *byte_query = p->bytes + pairs % ROWS * DIM;
        if (kind == OFFLOAD_CODES)
            k->code_dot[3]((const int8_t *)byte_query, p->bytes, DIM, p->ids, PROCESSOR_ROWS, DIM, p->dots);
        for (uint32_t row = 0; row < PROCESSOR_ROWS && kind != OFFLOAD_CODES; row++)
            p->sum += kind == OFFLOAD_FLOATS ? (double)k->f32_l2(query, p->floats + (size_t)row * DIM, DIM)
                                             : (double)k->u8_l2(byte_query, p->bytes + (size_t)row * DIM, DIM);
        pairs += PROCESSOR_ROWS;
    } while (clock_ns() - begin < PROCESSOR_NS);
    return (double)pairs * DIM / seconds_since(begin);
}

int offload_measure(struct offload *offload, struct offload_rates *out, struct quire_error *err)
{
    struct probe p = {.offload = offload};
    struct offload_rates rates = {0};
    struct random random;
    assert(offload);
    p.floats = malloc((size_t)ROWS * DIM * sizeof *p.floats);
    p.bytes = malloc((size_t)ROWS * DIM);
    p.dots = malloc((size_t)QUERIES * RUN_ROWS * sizeof *p.dots);
    p.found = malloc((size_t)QUERIES * K * sizeof *p.found);
    int rc =
        p.floats && p.bytes && p.dots && p.found ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to measure a device");
    random_init(&random, 1);
    for (size_t i = 0; rc == 0 && i < (size_t)ROWS * DIM; i++) {
        uint64_t bits = random_next(&random);
        p.floats[i] = (float)(bits % 4096) / 4096;
        p.bytes[i] = (uint8_t)(bits >> 32);
    }
    for (uint32_t i = 0; i < QUERIES; i++)
        p.runs[i] = (struct offload_run){i, i * 64, RUN_ROWS, i * RUN_ROWS};
    for (uint32_t i = 0; i < PROCESSOR_ROWS; i++)
        p.ids[i] = i;
    for (unsigned kind = 0; rc == 0 && kind < OFFLOAD_KINDS; kind++) {
        rc = measure_device(&p, kind, &rates, err);
        if (rc == 0)
            rates.processor_per_second[kind] = measure_processor(&p, kind);
    }
    free(p.floats);
    free(p.bytes);
    free(p.dots);
    free(p.found);
    if (rc == 0)
        *out = rates;
    return rc;
}

double offload_device_seconds(const struct offload_rates *rates, const struct offload_work *work)
{
    return (double)work->calls * rates->call_seconds + (double)work->bytes / rates->send_bytes_per_second +
           (double)work->products / rates->products_per_second[work->kind] +
           (double)work->prepared / rates->processor_per_second[work->kind];
}

double offload_processor_seconds(const struct offload_rates *rates, const struct offload_work *work, unsigned threads)
{
    assert(threads > 0);
    return (double)work->products / (rates->processor_per_second[work->kind] * threads);
}
