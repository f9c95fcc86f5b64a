/*
 * labels.c - attributes of chosen selectivity and tenants by a power law, from a seed.
 *
 * What is at random is a hash of (seed, what, row): nothing depends on the order of work. What is by position comes
 * from distances to rows that are drawn first ("centres"): one per label, one for the time, LABELS_KINDS for the kinds
 * and CELLS for the tenants, whose rows are put in an order in which neighbours are neighbours (cell by cell, the
 * nearest cell next, by distance inside) and cut into runs.
 *
 * A label by position has exactly its share of the rows, one at random about that.
 */
#include "datasets/labels.h"
#include "index/kernels/kernels.h"
#include "index/vector/near.h"
#include "index/vector/parallel.h"
#include "index/vector/space.h"
#include "io/array.h"
#include "io/error.h"
#include "io/random.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ROWS 1024u
#define CELLS      256u
#define NOBODY     UINT32_MAX
#define TAGS       20u
#define TAGS_MAX   3u

static const struct {
    const char *name;
    double share;
    bool by_position;
} fields[] = {{"p001", 0.0001, true}, {"p005", 0.0005, true}, {"p01", 0.001, true}, {"p05", 0.005, true},
              {"p1", 0.01, true},     {"p5", 0.05, true},     {"p10", 0.1, true},   {"p30", 0.3, true},
              {"a20", 0.2, true},     {"b20", 0.2, false}};
#define FIELDS (sizeof fields / sizeof *fields)

enum draw { DRAW_FIELD = 0, DRAW_KIND = 64, DRAW_TIME, DRAW_TAGS, DRAW_ORDER, DRAW_SHARED, DRAW_OTHER, DRAW_CENTRES };

struct labels {
    struct label_options options;
    uint64_t rows;
    uint16_t *flags; /* per row, a bit per field */
    uint8_t *kinds;
    uint32_t *times;           /* seconds after LABELS_TIME_FIRST */
    uint32_t *tenants, *other; /* NOBODY: none; NULL without tenants */
};

static uint64_t draw(const struct labels *l, unsigned what, uint64_t row)
{
    return random_mix(random_mix(l->options.seed + (what + 1) * 0x9e3779b97f4a7c15ull) + row * 0xd1342543de82ef95ull);
}

static uint64_t draw_below(const struct labels *l, unsigned what, uint64_t row, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)draw(l, what, row) * n) >> 64);
}

static bool draw_share(const struct labels *l, unsigned what, uint64_t row, double share)
{
    return (double)(draw(l, what, row) >> 11) * 0x1p-53 < share;
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* Distances of rows to the centres of fields and of the time, and the nearest of those of kinds and cells. */
struct positions {
    struct labels *labels;
    const struct vectors *base;
    const struct kernels *kernels;
    uint32_t dim;
    float *centres;   /* (FIELDS + 1 + LABELS_KINDS + CELLS) x dim */
    float *distances; /* (FIELDS + 1) x rows, by field, then of the time */
    uint16_t *cells;
    float *cell_distances;
};
#define ALL_CENTRES (FIELDS + 1 + LABELS_KINDS + CELLS)

static uint32_t nearest_of(const struct positions *p, const float *row, uint32_t first, uint32_t n, float *distance)
{
    uint32_t best = 0;
    *distance = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float d = p->kernels->f32_l2(row, p->centres + (size_t)(first + i) * p->dim, p->dim);
        if (d < *distance) {
            *distance = d;
            best = i;
        }
    }
    return best;
}

static void take_row(const struct vectors *base, uint64_t row, float *out)
{
    const uint8_t *at = (const uint8_t *)base->data + row * base->dim * quire_type_bytes(base->type);
    space_floats(base->type, at, base->dim, out);
}

static int measure_rows(void *context, uint64_t begin, uint64_t end)
{
    struct positions *p = context;
    float *row = malloc(sizeof *row * p->dim), ignored;
    if (!row)
        return QUIRE_ENOMEM;
    for (uint64_t r = begin; r < end; r++) {
        take_row(p->base, r, row);
        for (uint32_t f = 0; f <= FIELDS; f++)
            p->distances[f * p->labels->rows + r] = p->kernels->f32_l2(row, p->centres + (size_t)f * p->dim, p->dim);
        p->labels->kinds[r] = (uint8_t)nearest_of(p, row, FIELDS + 1, LABELS_KINDS, &ignored);
        p->cells[r] = (uint16_t)nearest_of(p, row, FIELDS + 1 + LABELS_KINDS, CELLS, &p->cell_distances[r]);
    }
    free(row);
    return 0;
}

/* The nearest share of the rows have the label. items: space for all rows. */
static void label_nearest(struct positions *p, uint32_t field, near_t *items)
{
    struct labels *l = p->labels;
    const float *distances = p->distances + field * l->rows;
    uint32_t n = (uint32_t)l->rows, keep = (uint32_t)ceil(fields[field].share * (double)l->rows);
    for (uint32_t r = 0; r < n; r++)
        items[r] = near_of(distances[r], r);
    near_select(items, n, keep);
    for (uint32_t i = 0; i < keep; i++)
        l->flags[(uint32_t)items[i]] |= (uint16_t)(1u << field);
}

static void time_by_rank(struct positions *p, near_t *items)
{
    struct labels *l = p->labels;
    const float *distances = p->distances + FIELDS * l->rows;
    for (uint32_t r = 0; r < l->rows; r++)
        items[r] = near_of(distances[r], r);
    array_sort_u64(items, l->rows);
    for (uint64_t i = 0; i < l->rows; i++)
        l->times[(uint32_t)items[i]] = (uint32_t)(i * LABELS_TIME_SPAN / l->rows);
}

/* Each cell's place in a walk from the nearest to the next nearest. */
static void order_cells(const struct positions *p, uint32_t place[CELLS])
{
    const float *centres = p->centres + (size_t)(FIELDS + 1 + LABELS_KINDS) * p->dim;
    bool taken[CELLS] = {true};
    uint32_t at = 0;
    place[0] = 0;
    for (uint32_t n = 1; n < CELLS; n++) {
        float least = INFINITY;
        uint32_t next = 0;
        for (uint32_t i = 0; i < CELLS; i++) {
            float d = p->kernels->f32_l2(centres + (size_t)at * p->dim, centres + (size_t)i * p->dim, p->dim);
            if (!taken[i] && !(d >= least)) {
                least = d;
                next = i;
            }
        }
        taken[next] = true;
        place[next] = n;
        at = next;
    }
}

struct placed {
    uint32_t cell;
    float distance;
    uint32_t row;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Rows in an order in which neighbours follow one another. */
static int order_by_place(const struct positions *p, uint32_t *order)
{
    uint64_t n = p->labels->rows;
    uint32_t place[CELLS];
    struct placed *placed = malloc((size_t)n * sizeof *placed);
    if (!placed)
        return QUIRE_ENOMEM;
    order_cells(p, place);
    for (uint64_t r = 0; r < n; r++)
        placed[r] = (struct placed){place[p->cells[r]], p->cell_distances[r], (uint32_t)r};
    qsort(placed, n, sizeof *placed, by_place);
    for (uint64_t i = 0; i < n; i++)
        order[i] = placed[i].row;
    free(placed);
    return 0;
}

static void positions_fini(struct positions *p)
{
    free(p->centres);
    free(p->distances);
    free(p->cells);
    free(p->cell_distances);
}

static int positions_init(struct positions *p, struct labels *l)
{
    const struct vectors *base = l->options.base;
    *p = (struct positions){.labels = l, .base = base, .kernels = kernels(), .dim = base->dim};
    p->centres = malloc(ALL_CENTRES * sizeof(float) * base->dim);
    p->distances = malloc((FIELDS + 1) * sizeof(float) * l->rows);
    p->cells = malloc((size_t)l->rows * sizeof *p->cells);
    p->cell_distances = malloc((size_t)l->rows * sizeof *p->cell_distances);
    if (!p->centres || !p->distances || !p->cells || !p->cell_distances)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < ALL_CENTRES; i++)
        take_row(base, draw_below(l, DRAW_CENTRES, i, l->rows), p->centres + (size_t)i * base->dim);
    unsigned threads = l->options.threads ? l->options.threads : parallel_processors();
    return parallel_for(threads, l->rows, CHUNK_ROWS, measure_rows, p, NULL);
}

/* ---- at random --------------------------------------------------------------------------------------------------- */

static void label_at_random(struct labels *l, uint32_t field)
{
    for (uint64_t r = 0; r < l->rows; r++)
        if (draw_share(l, DRAW_FIELD + field, r, fields[field].share))
            l->flags[r] |= (uint16_t)(1u << field);
}

static void rest_at_random(struct labels *l)
{
    for (uint64_t r = 0; r < l->rows; r++) {
        l->kinds[r] = (uint8_t)draw_below(l, DRAW_KIND, r, LABELS_KINDS);
        l->times[r] = (uint32_t)draw_below(l, DRAW_TIME, r, LABELS_TIME_SPAN);
    }
}

static int order_at_random(const struct labels *l, uint32_t *order)
{
    near_t *items = malloc((size_t)l->rows * sizeof *items);
    if (!items)
        return QUIRE_ENOMEM;
    for (uint64_t r = 0; r < l->rows; r++)
        items[r] = (draw(l, DRAW_ORDER, r) & 0xffffffff00000000ull) | r;
    array_sort_u64(items, l->rows);
    for (uint64_t i = 0; i < l->rows; i++)
        order[i] = (uint32_t)items[i];
    free(items);
    return 0;
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

/* Rows of each tenant: one, and of the rest a share by the power law. */
static void tenant_sizes(const struct labels *l, uint64_t *sizes)
{
    uint32_t n = l->options.tenants;
    double sum = 0, before = 0;
    uint64_t rest = l->rows - n, given = 0;
    for (uint32_t t = 0; t < n; t++)
        sum += pow(t + 1.0, -l->options.exponent);
    for (uint32_t t = 0; t < n; t++) {
        before += pow(t + 1.0, -l->options.exponent);
        uint64_t until = t + 1 == n ? rest : (uint64_t)(before / sum * (double)rest);
        until = until < given ? given : until > rest ? rest : until;
        sizes[t] = 1 + until - given;
        given = until;
    }
}

/* Runs of the order, of tenants in an order drawn at random, so that large and small ones are neighbours. */
static int assign_tenants(struct labels *l, const uint32_t *order)
{
    uint32_t n = l->options.tenants;
    uint64_t *sizes = malloc((size_t)n * sizeof *sizes);
    near_t *turns = malloc((size_t)n * sizeof *turns);
    int rc = sizes && turns ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        tenant_sizes(l, sizes);
        for (uint32_t t = 0; t < n; t++)
            turns[t] = (draw(l, DRAW_ORDER, l->rows + t) & 0xffffffff00000000ull) | t;
        array_sort_u64(turns, n);
        uint64_t at = 0;
        for (uint32_t i = 0; i < n; i++)
            for (uint64_t end = at + sizes[(uint32_t)turns[i]]; at < end; at++)
                l->tenants[order[at]] = (uint32_t)turns[i];
    }
    for (uint64_t r = 0; rc == 0 && r < l->rows; r++) {
        uint32_t other = (uint32_t)draw_below(l, DRAW_OTHER, r, n);
        bool shares = draw_share(l, DRAW_SHARED, r, l->options.shared) && other != l->tenants[r];
        l->other[r] = shares ? other : NOBODY;
    }
    free(sizes);
    free(turns);
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* positions: NULL where all is at random. */
static int fill(struct labels *l, struct positions *positions)
{
    uint32_t *order = l->tenants ? malloc((size_t)l->rows * sizeof *order) : NULL;
    near_t *items = positions ? malloc((size_t)l->rows * sizeof *items) : NULL;
    int rc = (l->tenants && !order) || (positions && !items) ? QUIRE_ENOMEM : 0;
    for (uint32_t f = 0; rc == 0 && f < FIELDS; f++)
        if (positions && fields[f].by_position)
            label_nearest(positions, f, items);
        else
            label_at_random(l, f);
    if (rc == 0 && positions)
        time_by_rank(positions, items);
    else if (rc == 0)
        rest_at_random(l);
    if (rc == 0 && l->tenants)
        rc = positions ? order_by_place(positions, order) : order_at_random(l, order);
    if (rc == 0 && l->tenants)
        rc = assign_tenants(l, order);
    free(order);
    free(items);
    return rc;
}

static int check_options(const struct label_options *o, uint64_t rows, struct quire_error *err)
{
    if (rows < 1 || rows > QUIRE_ROWS_MAX)
        return error_set(err, QUIRE_ERANGE, "%llu rows; expected 1 to %u", (unsigned long long)rows, QUIRE_ROWS_MAX);
    if (o->tenants > rows || o->tenants > LABELS_TENANTS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u tenants of %llu rows; each has one at least, and there are at most %u",
                         o->tenants, (unsigned long long)rows, LABELS_TENANTS_MAX);
    if (!(o->exponent >= 0 && o->exponent <= 10) || !(o->shared >= 0 && o->shared <= 1))
        return error_set(err, QUIRE_ERANGE, "exponent %g, shared %g; expected 0 to 10 and 0 to 1", o->exponent,
                         o->shared);
    return 0;
}

int labels_create(const struct label_options *options, struct labels **out, struct quire_error *err)
{
    uint64_t rows = options->base ? options->base->rows : options->rows;
    struct positions positions = {0};
    int rc = check_options(options, rows, err);
    if (rc < 0)
        return rc;
    struct labels *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(err, QUIRE_ENOMEM, "no memory for labels");
    l->options = *options;
    l->rows = rows;
    l->flags = calloc(rows, sizeof *l->flags);
    l->kinds = malloc((size_t)rows * sizeof *l->kinds);
    l->times = malloc((size_t)rows * sizeof *l->times);
    l->tenants = options->tenants ? malloc((size_t)rows * sizeof *l->tenants) : NULL;
    l->other = options->tenants ? malloc((size_t)rows * sizeof *l->other) : NULL;
    rc = l->flags && l->kinds && l->times && (!options->tenants || (l->tenants && l->other)) ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && options->base)
        rc = positions_init(&positions, l);
    if (rc == 0)
        rc = fill(l, options->base ? &positions : NULL);
    positions_fini(&positions);
    if (rc == 0) {
        *out = l;
        return 0;
    }
    labels_destroy(l);
    return error_set(err, rc, "no memory for labels of %llu rows", (unsigned long long)rows);
}

void labels_destroy(struct labels *l)
{
    if (!l)
        return;
    free(l->flags);
    free(l->kinds);
    free(l->times);
    free(l->tenants);
    free(l->other);
    free(l);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static uint32_t put_tags(const struct labels *l, uint64_t row, char *out, size_t capacity)
{
    static const char *const words[TAGS] = {"red",   "blue", "green", "old",   "new",  "large", "small",
                                            "round", "flat", "hot",   "cold",  "fast", "slow",  "wet",
                                            "dry",   "soft", "hard",  "light", "dark", "plain"};
    uint64_t random = draw(l, DRAW_TAGS, row);
    uint32_t n = 1 + (uint32_t)(random % TAGS_MAX), bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        random = random_mix(random + i);
        bytes += (uint32_t)snprintf(out + bytes, capacity - bytes, "%s\"%s\"", i ? "," : "", words[random % TAGS]);
    }
    return bytes;
}

uint32_t labels_attributes(const struct labels *l, uint64_t row, char out[LABELS_TEXT_MAX])
{
    uint32_t bytes = 0;
    for (uint32_t f = 0; f < FIELDS; f++)
        bytes += (uint32_t)snprintf(out + bytes, LABELS_TEXT_MAX - bytes, "%c\"%s\":%d", f ? ',' : '{', fields[f].name,
                                    l->flags[row] >> f & 1);
    bytes += (uint32_t)snprintf(out + bytes, LABELS_TEXT_MAX - bytes, ",\"kind\":\"k%u\",\"time\":%u,\"tags\":[",
                                l->kinds[row], LABELS_TIME_FIRST + l->times[row]);
    bytes += put_tags(l, row, out + bytes, LABELS_TEXT_MAX - bytes);
    return bytes + (uint32_t)snprintf(out + bytes, LABELS_TEXT_MAX - bytes, "],\"name\":\"row %llu\"}",
                                      (unsigned long long)row);
}

uint32_t labels_tenants(const struct labels *l, uint64_t row, char out[LABELS_TEXT_MAX])
{
    if (!l->tenants) {
        out[0] = 0;
        return 0;
    }
    uint32_t bytes = (uint32_t)snprintf(out, LABELS_TEXT_MAX, "t%u", l->tenants[row] + 1);
    if (l->other[row] != NOBODY)
        bytes += (uint32_t)snprintf(out + bytes, LABELS_TEXT_MAX - bytes, " t%u", l->other[row] + 1);
    return bytes;
}
