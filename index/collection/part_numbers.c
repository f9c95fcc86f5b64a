/*
 * part_numbers.c - the numbers of the rows of a part, both ways round.
 *
 * Rows are sorted by their numbers. Numbers are dense, or nearly so: they are given again when their elements have
 * gone. So runs of as many numbers as have about eight rows on average find a row by a look at a few.
 */
#include "index/collection/part_numbers.h"
#include "index/build/merge.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_PER_RUN 8u

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct each_name {
    int (*visit)(void *context, uint32_t row, const void *name, uint32_t bytes);
    void *context;
};

static int on_scanned(void *context, const struct scanned_row *row)
{
    const struct each_name *each = context;
    return each->visit(each->context, row->row, row->key, row->key_bytes);
}

/* Whether all names of the segment are in memory. */
static bool has_names(const struct segment *s)
{
    bool all = s->names != NULL;
    for (uint64_t row = 0; all && row < s->params.rows; row++)
        all = s->names->bytes[row] != NAMES_LONG;
    return all;
}

/* dead NULL: of all rows. */
static int each_name(const struct part *part, const uint8_t *dead, const struct each_name *each,
                     struct quire_error *err)
{
    struct segment *s = part->segment;
    int rc = 0;
    if (!has_names(s))
        return segment_scan(s, dead, on_scanned, NULL, (void *)(uintptr_t)each, err);
    for (uint64_t row = 0; rc == 0 && row < s->params.rows; row++) {
        uint32_t bytes;
        const uint8_t *name = names_get(s->names, (uint32_t)row, &bytes);
        if (!dead || !bitmap_has_shared(dead, (uint32_t)row))
            rc = each->visit(each->context, (uint32_t)row, name, bytes);
    }
    return rc;
}

int part_each_name(const struct part *part, int (*visit)(void *context, uint32_t row, const void *name, uint32_t bytes),
                   void *context, struct quire_error *err)
{
    return each_name(part, part->dead, &(struct each_name){visit, context}, err);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

struct numbering {
    struct part_numbers *numbers;
    const char *path;
    struct quire_error *err;
};

static int take_number(void *context, uint32_t row, const void *name, uint32_t bytes)
{
    struct numbering *n = context;
    assert(row < n->numbers->rows);
    if (bytes < NUMBER_BYTES)
        return error_set(n->err, QUIRE_ECORRUPT, "row %u of %s: a name of %u bytes has no number", row, n->path, bytes);
    n->numbers->of[row] = number_of_name(name);
    return 0;
}

/* Counts rows by runs, and puts each in its place: sorted by runs, within a run by rows. */
static int sort_rows(struct part_numbers *n)
{
    uint32_t first = UINT32_MAX, last = 0;
    for (uint64_t row = 0; row < n->rows; row++) {
        first = n->of[row] < first ? n->of[row] : first;
        last = n->of[row] > last ? n->of[row] : last;
    }
    n->first = first;
    while (((uint64_t)(last - first) >> n->shift) + 1 > n->rows / ROWS_PER_RUN + 1)
        n->shift++;
    n->n_runs = ((last - first) >> n->shift) + 1;
    n->starts = calloc((size_t)n->n_runs + 2, sizeof *n->starts);
    n->sorted = malloc(sizeof *n->sorted * n->rows);
    if (!n->starts || !n->sorted)
        return QUIRE_ENOMEM;
    uint32_t *ends = n->starts + 1; /* of each run when all are placed: the beginning of the next */
    for (uint64_t row = 0; row < n->rows; row++)
        ends[((n->of[row] - first) >> n->shift) + 1]++;
    for (uint32_t i = 0; i < n->n_runs; i++)
        ends[i + 1] += ends[i];
    for (uint64_t row = 0; row < n->rows; row++)
        n->sorted[ends[(n->of[row] - first) >> n->shift]++] = (uint32_t)row;
    assert(n->starts[0] == 0 && n->starts[n->n_runs] == n->rows);
    return 0;
}

int part_number(struct part *part, struct quire_error *err)
{
    assert(part->segment && !part->numbers);
    struct part_numbers *n = calloc(1, sizeof *n);
    uint64_t rows = part->segment->params.rows;
    struct numbering numbering = {n, part->segment->info.path, err};
    int rc = QUIRE_ENOMEM;
    if (n) {
        n->rows = rows;
        n->of = malloc(sizeof *n->of * rows);
        rc = n->of ? each_name(part, NULL, &(struct each_name){take_number, &numbering}, err) : QUIRE_ENOMEM;
    }
    if (rc == 0)
        rc = sort_rows(n);
    if (rc == 0) {
        part->numbers = n;
        return 0;
    }
    part_numbers_free(n);
    return rc == QUIRE_ENOMEM ? error_set(err, rc, "no memory for the numbers of %llu rows", (unsigned long long)rows)
                              : rc;
}

void part_numbers_free(struct part_numbers *n)
{
    if (!n)
        return;
    free(n->of);
    free(n->sorted);
    free(n->starts);
    free(n);
}

uint64_t part_numbers_bytes(const struct part_numbers *n)
{
    return n ? sizeof *n + sizeof(uint32_t) * (2 * n->rows + n->n_runs + 2) : 0;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* The rows of the run that a number is in. */
static const uint32_t *find_run(const struct part_numbers *n, uint32_t number, uint32_t *n_rows)
{
    uint32_t run = (number - n->first) >> n->shift;
    *n_rows = 0;
    if (number < n->first || run >= n->n_runs)
        return NULL;
    *n_rows = n->starts[run + 1] - n->starts[run];
    return n->sorted + n->starts[run];
}

uint32_t part_row_of_number(const struct part *part, uint32_t number)
{
    uint32_t n_rows;
    const uint32_t *rows = find_run(part->numbers, number, &n_rows);
    for (uint32_t i = 0; i < n_rows; i++)
        if (part->numbers->of[rows[i]] == number && !part_is_dead(part, rows[i]))
            return rows[i];
    return ROW_NONE;
}

/* Each number of the list is looked up. */
static int look_up(const struct part *part, const struct number_set *set, struct selection **out)
{
    const struct part_numbers *n = part->numbers;
    uint32_t n_rows, found = 0, capacity = 0, *rows = NULL;
    bool has_room = array_reserve(&rows, &capacity, (size_t)set->n + 1);
    for (uint32_t i = 0; i < set->n && has_room; i++) {
        const uint32_t *run = find_run(n, set->list[i], &n_rows);
        has_room = array_reserve(&rows, &capacity, (size_t)found + n_rows);
        for (uint32_t k = 0; k < n_rows && has_room; k++)
            if (n->of[run[k]] == set->list[i])
                rows[found++] = run[k];
    }
    int rc = QUIRE_ENOMEM;
    if (has_room) {
        array_sort_u32(rows, found);
        rc = selection_create_rows(part->segment, rows, found, false, out);
    }
    free(rows);
    return rc;
}

/* Each row is looked at. */
static int look_through(const struct part *part, const struct number_set *set, struct selection **out)
{
    const struct part_numbers *n = part->numbers;
    uint64_t *bits = calloc((size_t)(n->rows + 63) / 64, sizeof *bits);
    if (!bits)
        return QUIRE_ENOMEM;
    for (uint64_t row = 0; row < n->rows; row++)
        bits[row / 64] |= (uint64_t)number_set_has(set, n->of[row]) << row % 64;
    int rc = selection_create_bits(part->segment, bits, out);
    free(bits);
    return rc;
}

int part_select_numbers(const struct part *part, const struct number_set *set, struct selection **out)
{
    assert(part->numbers && part->numbers->rows == part->segment->params.rows);
    bool few = set->list && set->n <= part->numbers->rows / ROWS_PER_RUN;
    return few ? look_up(part, set, out) : look_through(part, set, out);
}
