/*
 * columns_mixed.c - tests of several fields at once (.a > .b, .price * .count < 100), and those of one field that has
 * very many values, decided row by row from what the columns say that each row has.
 *
 * The columns of the test's fields are taken by rows (column_rows.h) and the test is run over a chunk of rows after the
 * other (filter_rows.h). Only where the answer hangs on what is in a list, or on values that were left out of a column,
 * must the attributes themselves be asked: those rows may match.
 */
#include "index/attribute/filter_rows.h"
#include "index/column/column_rows.h"
#include "index/column/columns_priv.h"
#include <assert.h>
#include <stdlib.h>

/* Of a field, for the rows of a chunk. */
struct field_rows {
    double numbers[FILTER_ROWS_MAX];
    uint8_t kinds[FILTER_ROWS_MAX];
};

struct mixed {
    const struct filter_part *part;
    const struct universe *universe;
    uint32_t fields[FILTER_FIELDS_MAX], n_fields;
    struct column_rows *by_field[FILTER_FIELDS_MAX]; /* NULL: no row has it */
    struct filter_values values[FILTER_FIELDS_MAX];  /* by field */
    struct field_rows *chunk;                        /* n_fields */
    struct filter_rows *run;
    uint64_t first; /* place of the chunk */
};

/* The columns of the part's fields. *decided: false where there is none for one of them, and rows may have it. */
static int find_columns(struct mixed *m, const struct columns *columns, const struct filter *filter, bool *decided)
{
    int rc = 0;
    m->n_fields = filter_part_fields(filter, m->part, m->fields);
    *decided = m->n_fields > 0;
    for (uint32_t i = 0; rc == 0 && *decided && i < m->n_fields; i++) {
        uint32_t bytes;
        bool required;
        const char *name = filter_field(filter, m->fields[i], &bytes, &required);
        const struct column *c = columns_find(columns, name, bytes);
        if (c)
            rc = column_rows_get(columns, c, &m->by_field[m->fields[i]]);
        else
            *decided = columns->complete;
    }
    return rc;
}

static void value_of(void *context, uint32_t field, uint32_t row, struct json_value *out)
{
    const struct mixed *m = context;
    uint64_t place = m->first + row;
    column_rows_value(m->by_field[field], m->universe->rows ? m->universe->rows[place] : (uint32_t)place, out);
}

static void load_chunk(struct mixed *m, uint32_t n)
{
    for (uint32_t i = 0; i < m->n_fields; i++) {
        struct field_rows *to = &m->chunk[i];
        const struct column_rows *from = m->by_field[m->fields[i]];
        bool plain = from && column_rows_are_numbers(from);
        m->values[m->fields[i]] =
            (struct filter_values){to->numbers, plain ? NULL : to->kinds, plain ? column_rows_whole_max(from) : 0};
        if (from)
            column_rows_load(from, m->universe, m->first, n, to->numbers, plain ? NULL : to->kinds);
        else
            memset(to, 0, sizeof *to); /* VALUE_NONE */
    }
}

/* Rows of the chunk whose values are not known as a whole are taken from yes to maybe. */
static void leave_open(const struct mixed *m, uint32_t n, uint64_t *yes, uint64_t *maybe)
{
    for (uint32_t field = 0; field < m->n_fields; field++) {
        const struct column_rows *from = m->by_field[m->fields[field]];
        const uint8_t *kinds = m->values[m->fields[field]].kinds;
        bool open = from && kinds && (!m->part->lists_alike || column_rows_have_gaps(from));
        for (uint32_t i = 0; open && i < n; i++)
            if (kinds[i] == VALUE_LIST) {
                yes[i / 64] &= ~(1ull << i % 64);
                maybe[i / 64] |= 1ull << i % 64;
            }
    }
}

static void match_all(struct mixed *m, uint64_t *yes, uint64_t *maybe)
{
    for (m->first = 0; m->first < m->universe->n; m->first += FILTER_ROWS_MAX) {
        uint64_t left = m->universe->n - m->first;
        uint32_t n = left < FILTER_ROWS_MAX ? (uint32_t)left : FILTER_ROWS_MAX;
        struct filter_chunk chunk = {.n = n, .fields = m->values, .value = value_of, .context = m};
        load_chunk(m, n);
        filter_rows_match(m->run, &chunk, yes + m->first / 64);
        leave_open(m, n, yes + m->first / 64, maybe + m->first / 64);
    }
}

int columns_select_mixed(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                         const struct universe *universe, uint64_t *yes, uint64_t *maybe, bool *decided)
{
    struct mixed m = {.part = part, .universe = universe};
    int rc = find_columns(&m, columns, filter, decided);
    if (rc == 0 && *decided) {
        m.chunk = malloc(sizeof *m.chunk * m.n_fields);
        m.run = filter_rows_create(filter, part);
        rc = m.chunk && m.run ? 0 : QUIRE_ENOMEM;
        if (rc == 0)
            match_all(&m, yes, maybe);
    }
    filter_rows_free(m.run);
    free(m.chunk);
    for (uint32_t i = 0; i < FILTER_FIELDS_MAX; i++)
        column_rows_unref(m.by_field[i]);
    return rc;
}
