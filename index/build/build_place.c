/*
 * build_place.c - the place of rows: those of a small tenant side by side, and still found as if they were not.
 *
 * A build puts rows in order of similarity, and finds edges or lists in that order, whoever the rows belong to: what
 * is near a row is near it in other tenants' rows, too, and a search of everything has to get there. Only then rows get
 * their numbers. First come the rows that are in no run, in the order in which they were, then the runs
 * (build_tenants.c): run after run by the mean place of its rows, so that tenants with similar rows are neighbours, and
 * inside a run by place.
 *
 *   page graph      edges are renumbered; what were blocks when they were sought are kept as the cells that a search
 *                   enters by (cells.h). What remains outside of runs is cut into whole blocks once more, as
 *                   partition.c does: rows that shared a block with rows of runs would otherwise lie across two.
 *   inverted lists  a row of a run stays in the list that it was put in, as a guest: its number stands in the posting
 *   block
 *                   like that of a replica (lists.h). A list's own rows follow one another, whatever was taken out
 *                   between them.
 *
 * Runs are not aligned to blocks: the first and the last block of a run are shared with its neighbours, and a run of
 * few rows with many others. Alignment would cost half a block per tenant.
 *
 * Rows and edges in files are moved window by window: as much of the new file as fits in memory is gathered in one
 * forward pass over the old one. The old files stay as they are, since a build that is resumed begins with them; then
 * everything here is done again, with the same result.
 */
#include "index/build/build_priv.h"
#include "index/cluster/partition.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PHASE "place rows"

struct placing {
    struct build *b;
    uint32_t n_free;  /* rows in no run: the first ones */
    uint32_t *before; /* b->order as it was */
    uint32_t *place;  /* per row as it was: its number now */
};

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct run {
    double place; /* sum, then mean, of its rows' */
    uint32_t rows, number;
};

static int by_place(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* next[run]: the number of its first row. */
static int rank_runs(const struct placing *p, uint32_t *next)
{
    const struct build *b = p->b;
    struct run *runs = calloc(b->runs.n, sizeof *runs);
    if (!runs)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < b->runs.n; i++)
        runs[i].number = i;
    for (uint32_t row = 0; row < b->n; row++) {
        uint32_t run = b->runs.of[b->order[row]];
        if (run == RUN_NONE)
            continue;
        runs[run].place += row;
        runs[run].rows++;
    }
    for (uint32_t i = 0; i < b->runs.n; i++)
        runs[i].place /= runs[i].rows;
    qsort(runs, b->runs.n, sizeof *runs, by_place);
    uint32_t at = p->n_free;
    for (uint32_t i = 0; i < b->runs.n; i++) {
        next[runs[i].number] = at;
        at += runs[i].rows;
    }
    assert(at == b->n);
    free(runs);
    return 0;
}

static int number_rows(struct placing *p)
{
    const struct build *b = p->b;
    uint32_t at = 0, *next = malloc(sizeof *next * b->runs.n);
    int rc = next ? rank_runs(p, next) : QUIRE_ENOMEM;
    for (uint32_t row = 0; rc == 0 && row < b->n; row++) {
        uint32_t run = b->runs.of[b->order[row]];
        p->place[row] = run == RUN_NONE ? at++ : next[run]++;
    }
    assert(rc < 0 || at == p->n_free);
    free(next);
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Records of rows from one file to their places in another. */
struct move {
    const struct placing *placing;
    struct io_file *from, *to;
    size_t bytes; /* of a record */
    bool edges;   /* records are numbers of rows, which change */
    uint32_t n_window, n_batch;
    uint8_t *window, *batch;
};

static void place_edges(const struct placing *p, uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] != NEIGHBOUR_NONE)
            ids[i] = p->place[ids[i]];
}

/* Gathers the records whose places are first .. first + n. */
static int fill_window(struct move *m, uint32_t first, uint32_t n)
{
    struct build *b = m->placing->b;
    for (uint32_t at = 0; at < b->n;) {
        uint32_t now = b->n - at < m->n_batch ? b->n - at : m->n_batch;
        int rc = fs_read_exact(m->from, m->batch, now * m->bytes, at * m->bytes, b->err);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0; i < now; i++) {
            uint32_t place = m->placing->place[at + i] - first;
            if (place < n)
                memcpy(m->window + place * m->bytes, m->batch + i * m->bytes, m->bytes);
        }
        at += now;
    }
    if (m->edges)
        place_edges(m->placing, (uint32_t *)(void *)m->window, n * m->bytes / sizeof(uint32_t));
    return 0;
}

static int move_records(struct move *m, const char *name)
{
    struct build *b = m->placing->b;
    uint64_t window = b->plan.place_bytes / m->bytes;
    m->n_window = window < 1 ? 1 : window > b->n ? b->n : (uint32_t)window;
    m->n_batch = (uint32_t)(BATCH_BYTES / m->bytes);
    m->window = malloc(m->n_window * m->bytes);
    m->batch = malloc(m->n_batch * m->bytes);
    int rc = m->window && m->batch ? build_remove_file(b, name) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = build_open_work(b, name, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &m->to);
    for (uint32_t first = 0; rc == 0 && first < b->n; first += m->n_window) {
        uint32_t n = b->n - first < m->n_window ? b->n - first : m->n_window;
        rc = fill_window(m, first, n);
        if (rc == 0)
            rc = fs_write_exact(m->to, m->window, n * m->bytes, first * m->bytes, b->err);
        if (rc == 0)
            rc = build_report(b, PHASE, first + n, b->n);
    }
    array_free_all(m->window, m->batch);
    return rc;
}

static int move_rows_in_files(struct placing *p)
{
    struct build *b = p->b;
    struct move move = {.placing = p, .from = b->rows.file, .bytes = row_record_bytes(b->space.code_dim)};
    int rc = move_records(&move, WORK_PLACED);
    fs_close(move.to);
    if (rc < 0)
        return rc;
    row_store_close(&b->rows);
    rc = build_open_store(b, &b->rows, b->n, WORK_PLACED, true);
    return rc == 0 ? build_read_order(b) : rc;
}

static int move_edges_in_files(struct placing *p)
{
    struct edges *e = &p->b->edges;
    struct move move = {.placing = p, .from = e->ids_file, .bytes = sizeof *e->ids * e->degree, .edges = true};
    int rc = move_records(&move, WORK_MOVED);
    fs_close(e->ids_file);
    e->ids_file = move.to;
    return rc == 0 && !p->b->options.resume ? build_remove_file(p->b, WORK_EDGES) : rc;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int move_rows(struct placing *p)
{
    struct build *b = p->b;
    if (b->plan.in_files)
        return move_rows_in_files(p);
    uint32_t *from = malloc(sizeof *from * b->n);
    if (!from)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < b->n; row++)
        from[p->place[row]] = row;
    for (uint32_t row = 0; row < b->n; row++)
        b->order[row] = p->before[from[row]];
    int rc = rows_permute(&b->rows.rows, from);
    free(from);
    return rc;
}

/* Cuts the rows that are in no run into blocks. */
static int cut_free_rows(struct placing *p)
{
    struct build *b = p->b;
    uint32_t n = p->n_free, *from = n ? malloc(sizeof *from * n) : NULL;
    if (n == 0)
        return 0;
    int rc = from ? build_partition(b, n, PHASE, from) : QUIRE_ENOMEM;
    if (rc == 0 && b->plan.in_files)
        rc = build_read_order(b);
    for (uint32_t row = 0; rc == 0 && !b->plan.in_files && row < n; row++)
        from[row] = b->order[from[row]];
    if (rc == 0 && !b->plan.in_files)
        memcpy(b->order, from, sizeof *from * n);
    free(from);
    if (rc < 0)
        return rc;
    /* p->place once more: rows have changed places again */
    uint32_t *row_of = malloc(sizeof *row_of * b->n);
    for (uint32_t row = 0; row_of && row < b->n; row++)
        row_of[b->order[row]] = row;
    for (uint32_t row = 0; row_of && row < b->n; row++)
        p->place[row] = row_of[p->before[row]];
    free(row_of);
    return row_of ? 0 : QUIRE_ENOMEM;
}

/* ---- edges and lists --------------------------------------------------------------------------------------------- */

/* The blocks that there were before are cells now. */
static int keep_cells(struct placing *p)
{
    struct build *b = p->b;
    assert(!b->cell_of && !b->cell_codes && b->centre_codes);
    b->cell_of = malloc(sizeof *b->cell_of * b->n);
    if (!b->cell_of)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < b->n; row++)
        b->cell_of[p->place[row]] = row / b->params.slots_per_block; /* NOLINT: place has all rows */
    b->cell_codes = b->centre_codes;
    b->cell_factors = b->centre_factors;
    b->centre_codes = NULL;
    b->centre_factors = NULL;
    return 0;
}

static int move_edges(struct placing *p)
{
    struct build *b = p->b;
    struct edges *e = &b->edges;
    if (!e->ids)
        return move_edges_in_files(p);
    uint32_t *ids = malloc(sizeof *ids * b->n * e->degree);
    if (!ids)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < b->n; row++) {
        uint32_t *to = ids + (size_t)p->place[row] * e->degree;
        memcpy(to, e->ids + (size_t)row * e->degree, sizeof *ids * e->degree);
        place_edges(p, to, e->degree);
    }
    free(e->ids);
    e->ids = ids;
    return 0;
}

static int place_lists(struct placing *p)
{
    struct build *b = p->b;
    struct clusters *c = &b->clusters;
    uint64_t *at = calloc((size_t)c->n + 1, sizeof *at); /* where the rows of each list that are not its own begin */
    uint32_t *ids = malloc(sizeof *ids * (c->replica_at[c->n] + b->runs.rows)), own = 0;
    b->guest_lists = malloc(sizeof *b->guest_lists * b->runs.rows);
    if (!at || !ids || !b->guest_lists) {
        array_free_all(at, ids);
        return QUIRE_ENOMEM;
    }
    for (uint32_t list = 0; list < c->n; list++) {
        uint32_t begin = c->first[list], end = c->first[list + 1], n = 0, *to = ids + at[list];
        for (uint64_t i = c->replica_at[list]; i < c->replica_at[list + 1]; i++)
            to[n++] = p->place[c->replicas[i]];
        for (uint32_t row = begin; row < end; row++)
            if (p->place[row] >= p->n_free) { /* a guest from now on */
                b->guest_lists[p->place[row] - p->n_free] = list;
                to[n++] = p->place[row];
            }
        array_sort_u32(to, n);
        at[list + 1] = at[list] + n;
        c->heads[list] = p->place[c->heads[list]];
        c->first[list] = own;
        for (uint32_t row = begin; row < end; row++)
            own += p->place[row] < p->n_free;
    }
    assert(own == p->n_free && at[c->n] == c->replica_at[c->n] + b->runs.rows);
    c->first[c->n] = own;
    array_free_all(c->replica_at, c->replicas);
    c->replica_at = at;
    c->replicas = ids;
    return 0;
}

int build_place_rows(struct build *b)
{
    struct placing p = {.b = b, .n_free = b->n - b->runs.rows};
    size_t bytes = sizeof(uint32_t) * b->n;
    assert(b->step == STEP_CENTRES && b->runs.of && b->runs.rows > 0);
    p.before = malloc(bytes);
    p.place = malloc(bytes);
    int rc = p.before && p.place ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        memcpy(p.before, b->order, bytes);
        rc = number_rows(&p);
    }
    if (rc == 0)
        rc = move_rows(&p);
    if (rc == 0 && !build_is_lists(b))
        rc = cut_free_rows(&p);
    if (rc == 0 && !build_is_lists(b))
        rc = keep_cells(&p);
    if (rc == 0 && !build_is_lists(b))
        rc = move_edges(&p);
    /* lists of a build that is resumed behind their writing have nothing more to be told */
    if (rc == 0 && b->clusters.replica_at)
        rc = place_lists(&p);
    array_free_all(p.before, p.place);
    if (rc == 0)
        rc = build_remove_file(b, WORK_INPUT);
    if (rc == 0)
        rc = build_order_input(b, PHASE);
    return rc == 0 ? build_centres(b, PHASE) : rc;
}
