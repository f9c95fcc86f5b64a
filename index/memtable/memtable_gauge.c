/*
 * memtable_gauge.c - how far a search must go for a recall, measured on the rows themselves while they come in.
 *
 * A search goes through the cells that may hold one of the k nearest, and must know which those are. Some rows are kept
 * as probes, each with the rows nearest to it, exactly: every row that is put is compared with all probes, and a probe
 * that is new is compared with the rows before it, GAUGE_STEP of them at each put. Where the neighbours of the probes
 * lie is the answer. Let c0 be the centre nearest to a probe, c that of a neighbour's cell, D0 and D their squared
 * distances to the probe, and r the distance of the k-th neighbour. The plane between the two cells is
 * (D - D0) / (2 |c - c0|) away from the probe, and a neighbour that lies in the other cell is beyond it. That over r is
 * the *stretch* of the cell. A search that goes through all cells whose stretch, by the k-th distance that it has
 * found, is at most that of the q-th part of all neighbours of all probes misses about 1 - q of its own. It says the
 * same for other k, and for searches under a filter, whose k-th neighbour is farther away. Tried and worse: the
 * stretch without |c - c0|; how many standard deviations of a cell's rows the k-th distance is below their mean.
 *
 * Each time that the rows have doubled, other rows become probes. All of it is done by writers, under the lock: some
 * distances for each put, and one probe's stretches now and then. What searches read is a few numbers.
 */
#include "index/memtable/memtable_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_PER_PROBE 16u
#define GAUGE_STEP     2u  /* rows that a put compares with probes that are new */
#define MEASURE_EVERY  16u /* puts from one probe that is measured again to the next */

/* What part of the stretches is looked up for. Recall beyond the last is looked for as far as any neighbour was. */
static const float parts[GAUGE_PARTS] = {0.5f, 0.8f, 0.9f, 0.95f, 0.975f, 0.99f, 0.995f, 1.0f};
/* Beyond the farthest that was seen. */
#define BEYOND_ALL 0.1f
/* Of what may be missed, the share that the cells may miss: 8-bit codes miss some themselves (2.5 % of text of 256
 * dimensions), and the probes are few. Under inner product rows have lengths and questions have none, so that these are
 * less like probes. */
#define MISS_SHARE    0.5f
#define MISS_SHARE_IP 0.4f

/* ---- probes ------------------------------------------------------------------------------------------------------ */

/* So many as the rows are worth: they cost about as much memory as they have codes. */
static struct probes *probes_new(struct memtable *table)
{
    uint32_t n = atomic_load(&table->living) / ROWS_PER_PROBE;
    n = n < GAUGE_PROBES / 4 ? GAUGE_PROBES / 4 : n < GAUGE_PROBES ? n : GAUGE_PROBES;
    size_t before = sizeof(struct probes) + n * sizeof(struct probe);
    struct probes *probes = memtable_block_alloc(table, before + (size_t)n * table->space.code_dim);
    if (!probes)
        return NULL;
    memset(probes, 0, before);
    probes->capacity = n;
    probes->codes = (uint8_t *)&probes->probes[n];
    return probes;
}

static bool is_known(const struct probe *probe, uint32_t row)
{
    for (uint32_t i = 0; i < probe->n; i++)
        if (probe->rows[i] == row)
            return true;
    return row == probe->row;
}

/* A row at this distance, if it is nearer than what is known. */
static void probe_offer(struct probe *probe, uint32_t row, float distance)
{
    if ((probe->n == GAUGE_NEAR && distance >= probe->distances[GAUGE_NEAR - 1]) || is_known(probe, row))
        return;
    uint32_t at = probe->n < GAUGE_NEAR ? probe->n++ : GAUGE_NEAR - 1;
    for (; at > 0 && probe->distances[at - 1] > distance; at--) {
        probe->distances[at] = probe->distances[at - 1];
        probe->rows[at] = probe->rows[at - 1];
    }
    probe->distances[at] = distance;
    probe->rows[at] = row;
}

/* A row, which is `query`, with all probes. */
static void probes_offer(struct probes *probes, uint32_t code_dim, const struct code_query *query, uint32_t row)
{
    int32_t dots[GAUGE_PROBES];
    kernels()->code_dot[3](query->levels, probes->codes, code_dim, memtable_iota, probes->n, code_dim, dots);
    for (uint32_t i = 0; i < probes->n; i++) {
        struct probe *probe = &probes->probes[i];
        float d = query->norm2 + probe->norm2 - 2 * probe->f * code_query_dot(query, dots[i], code_half(8));
        probe_offer(probe, row, d > 0 ? d : 0);
    }
}

/* Rows spread at random over the table. */
static void pick_probes(struct memtable *table, struct gauge *gauge, struct probes *probes)
{
    uint32_t row_end = atomic_load(&table->row_end), code_dim = table->space.code_dim;
    probes->scan_end = row_end;
    for (uint32_t tries = 0; tries < 4 * probes->capacity && probes->n < probes->capacity; tries++) {
        uint32_t row = (uint32_t)random_below(&gauge->random, row_end);
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record || !atomic_load(&record->place))
            continue;
        struct probe *probe = &probes->probes[probes->n];
        *probe = (struct probe){.row = row};
        memcpy(probes->codes + (size_t)probes->n * code_dim,
               memtable_cell_code(table, record, &probe->f, &probe->norm2), code_dim);
        probes->n++;
    }
    gauge->rows_at_pick = atomic_load(&table->living);
}

/* The next row that was there before the probes were; cells->query becomes it. */
static void scan_next(struct memtable *table, struct cells *cells, struct probes *probes)
{
    uint32_t row = probes->scanned++;
    const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
    float f, norm2;
    if (!record || !atomic_load(&record->place) || memtable_slot_end_lsn(memtable_slot(table, row)) != MEMTABLE_LSN_MAX)
        return;
    const uint8_t *code = memtable_cell_code(table, record, &f, &norm2);
    memtable_cells_query(cells, table->space.code_dim, code, f, norm2);
    probes_offer(probes, table->space.code_dim, &cells->query, row);
}

/* ---- stretches --------------------------------------------------------------------------------------------------- */

/* One probe's stretches, with the cells as they are; cells->query is changed. */
static void measure(struct memtable *table, struct cells *cells, struct probes *probes, struct probe *probe)
{
    uint32_t code_dim = table->space.code_dim, place = (uint32_t)(probe - probes->probes), at;
    const struct cell *of[GAUGE_NEAR];
    float distances[GAUGE_NEAR], least = 0, gap;
    const struct cell_directory *directory = atomic_load_explicit(&cells->directory, memory_order_relaxed);
    memtable_cells_query(cells, code_dim, probes->codes + (size_t)place * code_dim, probe->f, probe->norm2);
    const struct cell *nearest = memtable_nearest_cell(directory, code_dim, &cells->query, NULL, &least);
    for (uint32_t i = 0; i < probe->n; i++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, probe->rows[i]));
        of[i] = memtable_record_group(record, &at)->cell;
        memtable_code_distances(code_dim, &cells->query, of[i]->code, &of[i]->f, &of[i]->norm2, 1, &distances[i]);
    }
    memtable_cells_query(cells, code_dim, nearest->code, nearest->f, nearest->norm2);
    probe->n_stretches = probe->n;
    for (uint32_t i = 0; i < probe->n; i++) {
        memtable_code_distances(code_dim, &cells->query, of[i]->code, &of[i]->f, &of[i]->norm2, 1, &gap);
        probe->stretches[i] =
            of[i] == nearest ? 0 : memtable_stretch(distances[i], least, gap, probe->distances[probe->n - 1]);
    }
}

static int ascending(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* What searches read, of all probes. */
static void tell(struct gauge *gauge, const struct probes *probes)
{
    float all[GAUGE_PROBES * GAUGE_NEAR];
    uint32_t n = 0;
    for (uint32_t i = 0; i < probes->n; i++)
        for (uint32_t j = 0; j < probes->probes[i].n_stretches; j++)
            all[n++] = probes->probes[i].stretches[j];
    if (n == 0)
        return;
    qsort(all, n, sizeof all[0], ascending);
    for (uint32_t i = 0; i < GAUGE_PARTS; i++) {
        uint32_t at = (uint32_t)ceilf(parts[i] * (float)n);
        atomic_store_explicit(&gauge->stretches[i], all[at > 0 ? at - 1 : 0], memory_order_relaxed);
    }
}

float memtable_gauge_stretch(const struct memtable *table, float recall)
{
    const struct gauge *gauge = &memtable_cells(table)->gauge;
    float share = table->config.metric == QUIRE_METRIC_IP ? MISS_SHARE_IP : MISS_SHARE;
    float part = 1 - (1 - recall) * share, below = 0, above;
    if (part > parts[GAUGE_PARTS - 2])
        return atomic_load_explicit(&gauge->stretches[GAUGE_PARTS - 1], memory_order_relaxed) + BEYOND_ALL;
    uint32_t i = 0;
    while (parts[i] < part)
        i++;
    above = atomic_load_explicit(&gauge->stretches[i], memory_order_relaxed);
    if (i == 0)
        return above;
    below = atomic_load_explicit(&gauge->stretches[i - 1], memory_order_relaxed);
    return below + (above - below) * (part - parts[i - 1]) / (parts[i] - parts[i - 1]);
}

/* ---- as rows come and go ----------------------------------------------------------------------------------------- */

/* The young take the place of the ones before them, when they know as much. */
static void advance_young(struct memtable *table, struct cells *cells)
{
    struct gauge *gauge = &cells->gauge;
    struct probes *young = gauge->young;
    for (uint32_t i = 0; i < GAUGE_STEP && young->scanned < young->scan_end; i++)
        scan_next(table, cells, young);
    if (young->scanned < young->scan_end)
        return;
    if (young->measured < young->n) {
        measure(table, cells, young, &young->probes[young->measured++]);
        return;
    }
    struct probes *old = gauge->grown;
    gauge->grown = young;
    gauge->young = NULL;
    memtable_block_free(table, old);
    tell(gauge, gauge->grown);
}

void memtable_gauge_add(struct memtable *table, struct cells *cells, uint32_t row)
{
    struct gauge *gauge = &cells->gauge;
    uint32_t code_dim = table->space.code_dim;
    probes_offer(gauge->grown, code_dim, &cells->query, row);
    if (gauge->young)
        probes_offer(gauge->young, code_dim, &cells->query, row);
    if (!gauge->young && atomic_load(&table->living) >= 2 * (uint64_t)gauge->rows_at_pick) {
        gauge->young = probes_new(table); /* without memory the next put tries again */
        if (gauge->young)
            pick_probes(table, gauge, gauge->young);
        return;
    }
    if (gauge->young)
        advance_young(table, cells);
    struct probes *grown = gauge->grown;
    if (++gauge->puts % MEASURE_EVERY != 0 || grown->n == 0)
        return;
    measure(table, cells, grown, &grown->probes[grown->measured++ % grown->n]);
    if (grown->measured % grown->n == 0)
        tell(gauge, grown);
}

static void forget(struct probes *probes, uint32_t row)
{
    for (uint32_t i = 0; probes && i < probes->n; i++) {
        struct probe *probe = &probes->probes[i];
        if (probe->row == row)
            probe->row = MEMTABLE_NONE;
        uint32_t at = 0;
        while (at < probe->n && probe->rows[at] != row)
            at++;
        if (at == probe->n)
            continue;
        memmove(&probe->rows[at], &probe->rows[at + 1], (probe->n - at - 1) * sizeof probe->rows[0]);
        memmove(&probe->distances[at], &probe->distances[at + 1], (probe->n - at - 1) * sizeof probe->distances[0]);
        probe->n--;
    }
}

void memtable_gauge_remove(struct gauge *gauge, uint32_t row)
{
    forget(gauge->grown, row);
    forget(gauge->young, row);
}

int memtable_gauge_init(struct memtable *table, struct cells *cells)
{
    struct gauge *gauge = &cells->gauge;
    random_init(&gauge->random, table->config.seed);
    gauge->grown = probes_new(table);
    if (!gauge->grown)
        return QUIRE_ENOMEM;
    pick_probes(table, gauge, gauge->grown);
    while (gauge->grown->scanned < gauge->grown->scan_end)
        scan_next(table, cells, gauge->grown);
    for (uint32_t i = 0; i < gauge->grown->n; i++)
        measure(table, cells, gauge->grown, &gauge->grown->probes[i]);
    tell(gauge, gauge->grown);
    return 0;
}

void memtable_gauge_fini(struct memtable *table, struct gauge *gauge)
{
    memtable_block_free(table, gauge->grown);
    memtable_block_free(table, gauge->young);
}
