/*
 * columns_mixed.c - tests of several fields at once (.a > .b, .price * .count < 100), decided by what values rows have.
 *
 * Each row of the universe gets a number for the combination of values that it has in the fields, and each combination
 * that occurs is tested once. That takes a pass over the columns' sets and eight bytes per row, so it is done where the
 * combinations that may occur are few (COLUMN_TESTS_MAX); beyond that, and where a row has a list, the attributes
 * themselves have to be asked.
 */
#include "index/column/columns_priv.h"
#include <assert.h>
#include <stdlib.h>

#define FIELDS_MAX 4u

/* What a row may have in a field, before the numbers and texts of its column. An object counts as nothing. */
enum mixed_value { MIXED_MISSING, MIXED_LIST, MIXED_NULL, MIXED_FIRST };
enum verdict { VERDICT_OPEN, VERDICT_NO, VERDICT_YES, VERDICT_MAYBE };

struct mixed {
    const struct filter *filter;
    const struct filter_part *part;
    const struct universe *universe;
    const struct column *columns[FIELDS_MAX];
    uint32_t fields[FIELDS_MAX], sizes[FIELDS_MAX], n;
    uint32_t *combinations, *values, *rows; /* per row of the universe; of one set */
    uint8_t *verdicts;
};

/* Marks the rows of a set with a value. */
static void mark(struct mixed *m, const struct row_set *set, uint32_t value)
{
    const struct universe *u = m->universe;
    uint64_t place = 0;
    row_set_rows(set, m->rows);
    for (uint32_t i = 0; i < set->n; i++) {
        if (!u->rows) {
            m->values[m->rows[i]] = value;
            continue;
        }
        while (place < u->n && u->rows[place] < m->rows[i])
            place++;
        if (place == u->n)
            return;
        if (u->rows[place] == m->rows[i])
            m->values[place] = value;
    }
}

static void mark_table(struct mixed *m, const struct column_table *table, uint32_t first)
{
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    column_walk_from(&walk, table, 0);
    for (uint32_t i = 0; column_walk_next(&walk, &value, &set); i++)
        mark(m, &set, first + i);
}

static void add_field(struct mixed *m, uint32_t i)
{
    const struct column *c = m->columns[i];
    for (uint64_t at = 0; at < m->universe->n; at++)
        m->values[at] = MIXED_MISSING;
    mark(m, &c->lists, MIXED_LIST);
    mark(m, &c->nulls, MIXED_NULL);
    mark_table(m, &c->tables[TABLE_NUMBERS], MIXED_FIRST);
    mark_table(m, &c->tables[TABLE_TEXTS], MIXED_FIRST + c->tables[TABLE_NUMBERS].n);
    for (uint64_t at = 0; at < m->universe->n; at++)
        m->combinations[at] = m->combinations[at] * m->sizes[i] + m->values[at];
}

static struct json_value value_of(const struct column *c, uint32_t value)
{
    struct json_value out = {.kind = VALUE_NULL};
    uint32_t numbers = c->tables[TABLE_NUMBERS].n;
    assert(value >= MIXED_NULL && value < MIXED_FIRST + numbers + c->tables[TABLE_TEXTS].n);
    if (value == MIXED_NULL)
        return out;
    value -= MIXED_FIRST;
    out.kind = value < numbers ? VALUE_NUMBER : VALUE_STRING;
    if (value < numbers)
        out.number = column_table_number(&c->tables[TABLE_NUMBERS], value);
    else
        out.text = column_table_text(&c->tables[TABLE_TEXTS], value - numbers, &out.bytes);
    return out;
}

static enum verdict evaluate(const struct mixed *m, uint32_t combination)
{
    struct json_value values[FILTER_FIELDS_MAX];
    bool list = false;
    for (uint32_t i = m->n; i-- > 0; combination /= m->sizes[i]) {
        uint32_t value = combination % m->sizes[i];
        if (value == MIXED_MISSING)
            return VERDICT_NO; /* the fields are required */
        list = list || value == MIXED_LIST;
        if (!list)
            values[m->fields[i]] = value_of(m->columns[i], value);
    }
    if (list)
        return VERDICT_MAYBE;
    return filter_test_several(m->filter, m->part, values) ? VERDICT_YES : VERDICT_NO;
}

/* The columns of the part's fields. *decided: false where they cannot tell; otherwise with *none no row matches. */
static void find_columns(struct mixed *m, const struct columns *columns, bool *decided, bool *none)
{
    uint64_t combinations = 1;
    *decided = filter_part_fields(m->filter, m->part, m->fields, FIELDS_MAX, &m->n);
    *none = false;
    for (uint32_t i = 0; *decided && i < m->n; i++) {
        uint32_t bytes;
        bool required;
        const char *name = filter_field(m->filter, m->fields[i], &bytes, &required);
        const struct column *c = m->columns[i] = columns_find(columns, name, bytes);
        *none = *none || (!c && columns->complete);
        if (!c || !required) {
            *decided = !c && *none && required;
            return;
        }
        const struct column_table *numbers = &c->tables[TABLE_NUMBERS], *texts = &c->tables[TABLE_TEXTS];
        bool kept = (numbers->n || !numbers->rows.n) && (texts->n || !texts->rows.n);
        m->sizes[i] = MIXED_FIRST + numbers->n + texts->n;
        combinations *= m->sizes[i];
        *decided = kept && combinations <= COLUMN_TESTS_MAX;
    }
}

static uint32_t largest_set(const struct mixed *m)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct column *c = m->columns[i];
        const struct row_set *sets[] = {&c->lists, &c->nulls, &c->tables[TABLE_NUMBERS].rows,
                                        &c->tables[TABLE_TEXTS].rows};
        for (size_t j = 0; j < sizeof sets / sizeof *sets; j++)
            most = sets[j]->n > most ? sets[j]->n : most;
    }
    return (uint32_t)most;
}

static void evaluate_all(struct mixed *m, uint64_t *yes, uint64_t *maybe)
{
    for (uint64_t at = 0; at < m->universe->n; at++) {
        uint8_t *verdict = &m->verdicts[m->combinations[at]];
        if (*verdict == VERDICT_OPEN)
            *verdict = (uint8_t)evaluate(m, m->combinations[at]);
        if (*verdict == VERDICT_YES)
            yes[at / 64] |= 1ull << at % 64;
        else if (*verdict == VERDICT_MAYBE)
            maybe[at / 64] |= 1ull << at % 64;
    }
}

int columns_select_mixed(const struct columns *columns, const struct filter *filter, const struct filter_part *part,
                         const struct universe *universe, uint64_t *yes, uint64_t *maybe, bool *decided)
{
    struct mixed m = {.filter = filter, .part = part, .universe = universe};
    uint64_t n = universe->n ? universe->n : 1, combinations = 1;
    bool none;
    find_columns(&m, columns, decided, &none);
    if (!*decided || none)
        return 0;
    for (uint32_t i = 0; i < m.n; i++)
        combinations *= m.sizes[i];
    assert(m.n > 0 && m.n <= FIELDS_MAX && combinations <= COLUMN_TESTS_MAX);
    m.combinations = calloc(n, sizeof *m.combinations);
    m.values = malloc(sizeof *m.values * n);
    m.rows = malloc(sizeof *m.rows * ((size_t)largest_set(&m) + 1));
    m.verdicts = calloc(combinations, 1);
    int rc = m.combinations && m.values && m.rows && m.verdicts ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        for (uint32_t i = 0; i < m.n; i++)
            add_field(&m, i);
        evaluate_all(&m, yes, maybe);
    }
    free(m.combinations);
    free(m.values);
    free(m.rows);
    free(m.verdicts);
    return rc;
}
