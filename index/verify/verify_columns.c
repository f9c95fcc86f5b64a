/*
 * verify_columns.c - quire_verify: do columns and tenants say what the attributes say?
 *
 * The attributes are read in order of rows. Each value must stand in its column with the row in its set, each grant in
 * its tenant's; and since the pairs of value and row are counted on both sides, nothing else can stand there. Then what
 * columns hold twice is compared with itself: the rows of a table are those of its values, and each mark those of the
 * values below it.
 *
 * A field without a column is a finding only where the file says that every field has one; values that were left out
 * for their size are none. What of the attributes cannot be read is a finding of its own, and the counts are not
 * compared then.
 */
#include "index/attribute/attribute_schema.h"
#include "index/attribute/grants.h"
#include "index/attribute/json_value.h"
#include "index/column/columns_view.h"
#include "index/verify/verify_priv.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_READ_MAX (4u << 20) /* of attributes at a time, unless one is longer */
#define TENANT_NAME   40         /* bytes of a name in a sentence */

/* Pairs and rows that the attributes have, of one column. */
struct counted {
    uint64_t seen; /* row + 1 that had the field last */
    uint64_t pairs[TABLES], rows[TABLES];
    uint64_t nulls, lists, odd, objects;
};

struct comparison {
    struct verification *v;
    const struct columns *columns;
    struct counted *counted; /* per column; owned */
    uint64_t n_grants;
    bool unread;     /* some attributes could not be read */
    uint8_t *heap;   /* owned */
    char *text;      /* a string without escapes; owned */
    uint64_t *pairs; /* of one row: table and value of its list's members; owned */
    size_t heap_capacity, text_capacity, n_pairs, pairs_capacity;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void found_missing(struct comparison *c, const struct column *column, uint32_t row, const char *what)
{
    verify_found(c->v, "column %.*s of %s does not have row %u %s, as its attributes do", (int)column->name_bytes,
                 column->name, c->v->s->info.path, row, what);
}

/* The place of a number, or of the text in c->text; table->n: none. */
static uint32_t find_number(const struct column_table *table, double number)
{
    uint32_t i = column_table_bound(table, number, false);
    while (i < table->n && column_numbers_compare(column_table_number(table, i), number) < 0)
        i++;
    return i < table->n && column_numbers_compare(column_table_number(table, i), number) == 0 ? i : table->n;
}

static int find_value(struct comparison *c, const struct column_table *table, const struct json_value *value,
                      uint32_t *out)
{
    if (value->kind != VALUE_STRING)
        *out = find_number(table, value->number);
    else if (!array_reserve(&c->text, &c->text_capacity, value->bytes + 1u))
        return QUIRE_ENOMEM;
    else
        *out = column_table_find_text(table, c->text, json_unescape(value, c->text));
    assert(*out <= table->n);
    return 0;
}

/* A number, bool or string of a row, or of its list. */
static int compare_single(struct comparison *c, uint32_t column, uint32_t row, const struct json_value *value,
                          bool member)
{
    const struct column *col = &c->columns->columns[column];
    unsigned kind = (member ? (unsigned)TABLE_MEMBER_NUMBERS : TABLE_NUMBERS) + (value->kind == VALUE_STRING);
    const struct column_table *table = &col->tables[kind];
    uint32_t place = 0;
    struct row_set set;
    if (table->n == 0) {
        if (!row_set_has(&table->rows, row))
            found_missing(c, col, row, "among the rows that have a value");
        return 0;
    }
    int rc = find_value(c, table, value, &place);
    if (rc < 0)
        return rc;
    if (place < table->n)
        column_table_set(table, place, &set);
    if (place == table->n || !row_set_has(&set, row)) {
        found_missing(c, col, row, member ? "under a member of its list" : "under its value");
        return 0;
    }
    if (!array_reserve(&c->pairs, &c->pairs_capacity, c->n_pairs + 1))
        return QUIRE_ENOMEM;
    c->pairs[c->n_pairs++] = (uint64_t)kind << 32 | place;
    return 0;
}

/* Each pair once, though a list may have a member twice. */
static void count_pairs(struct comparison *c, struct counted *counted)
{
    array_sort_u64(c->pairs, c->n_pairs);
    for (size_t i = 0; i < c->n_pairs; i++) {
        assert(c->pairs[i] >> 32 < TABLES);
        counted->pairs[c->pairs[i] >> 32] += i == 0 || c->pairs[i] != c->pairs[i - 1];
    }
    c->n_pairs = 0;
}

static int compare_list(struct comparison *c, uint32_t column, uint32_t row, const struct json_value *list)
{
    const struct column *col = &c->columns->columns[column];
    struct counted *counted = &c->counted[column];
    struct json_walk walk;
    struct json_value member;
    bool has[TABLES] = {false}, odd = false;
    int rc = 0;
    if (!row_set_has(&col->lists, row))
        found_missing(c, col, row, "among the lists");
    counted->lists++;
    assert(list->kind == VALUE_LIST && c->n_pairs == 0);
    json_walk_list(&walk, list);
    while (rc == 0 && json_next(&walk, NULL, &member)) {
        bool single = member.kind == VALUE_NUMBER || member.kind == VALUE_BOOL || member.kind == VALUE_STRING;
        odd |= !single;
        has[TABLE_MEMBER_NUMBERS + (member.kind == VALUE_STRING)] |= single;
        rc = single ? compare_single(c, column, row, &member, true) : 0;
    }
    if (odd && !row_set_has(&col->odd, row))
        found_missing(c, col, row, "among the lists with members that are no values");
    counted->odd += odd;
    for (unsigned i = 0; i < TABLES; i++)
        counted->rows[i] += has[i];
    return rc;
}

static int compare_value(struct comparison *c, uint32_t column, uint32_t row, const struct json_value *value)
{
    const struct column *col = &c->columns->columns[column];
    struct counted *counted = &c->counted[column];
    int rc = 0;
    switch (value->kind) {
    case VALUE_NONE:
        break;
    case VALUE_NULL:
        if (!row_set_has(&col->nulls, row))
            found_missing(c, col, row, "among the nulls");
        counted->nulls++;
        break;
    case VALUE_OBJECT:
        if (!row_set_has(&col->objects, row))
            found_missing(c, col, row, "among the objects");
        counted->objects++;
        break;
    case VALUE_LIST:
        rc = compare_list(c, column, row, value);
        break;
    default:
        counted->rows[value->kind == VALUE_STRING ? TABLE_TEXTS : TABLE_NUMBERS]++;
        rc = compare_single(c, column, row, value, false);
    }
    count_pairs(c, counted);
    return rc;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int compare_field(struct comparison *c, uint32_t row, const struct json_value *name, struct json_value value)
{
    if (!array_reserve(&c->text, &c->text_capacity, name->bytes + 1u))
        return QUIRE_ENOMEM;
    uint32_t bytes = json_unescape(name, c->text);
    const struct column *column = columns_find(c->columns, c->text, bytes);
    if (!column) {
        if (c->columns->complete && bytes && value.kind != VALUE_NONE)
            verify_found(c->v, "%s says that it has all columns, but row %u has a field %.*s", c->v->s->info.path, row,
                         (int)bytes, c->text);
        return 0;
    }
    struct counted *counted = &c->counted[column - c->columns->columns];
    struct quire_column declared = {.type = column->type, .indexed = true};
    if (counted->seen == row + 1ull)
        return 0;
    counted->seen = row + 1ull;
    value = attribute_typed(&declared, value);
    return compare_value(c, (uint32_t)(column - c->columns->columns), row, &value);
}

static void compare_grant(struct comparison *c, uint32_t row, const struct grant *grant)
{
    struct row_set set;
    if (!columns_find_tenant(c->columns, grant, &set) || !row_set_has(&set, row))
        verify_found(c->v, "row %u of %s is granted to %.*s (generation %u), but is not among that tenant's rows", row,
                     c->v->s->info.path, (int)(grant->bytes < TENANT_NAME ? grant->bytes : TENANT_NAME), grant->name,
                     grant->generation);
    c->n_grants++;
}

static int compare_row(struct comparison *c, uint32_t row, const char *text, uint32_t bytes)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants = 0, at = 0;
    struct grant grant;
    struct json_walk walk;
    struct json_value name, value;
    int rc = 0;
    if (grants_split(text, bytes, &json, &json_bytes, &n_grants) < 0) {
        verify_found(c->v, "the grants of row %u of %s are damaged", row, c->v->s->info.path);
        c->unread = true;
        return 0;
    }
    while (n_grants && grants_next(text, bytes, &at, &grant))
        compare_grant(c, row, &grant);
    json_walk_object(&walk, json, json_bytes);
    while (rc == 0 && json_bytes && json_next(&walk, &name, &value))
        rc = compare_field(c, row, &name, value);
    return rc;
}

/* ---- reading the attributes -------------------------------------------------------------------------------------- */

/* The entry of a row: where its record lies in the heap, and the bytes of its text. False: it has none. */
static bool find_record(const uint8_t *page, uint32_t row, uint64_t *at, uint32_t *bytes)
{
    uint64_t entry = bytes_load_u64(page + 8 * (size_t)(row % ATTRIBUTES_PER_PAGE));
    *at = (entry >> 24) - 1;
    *bytes = (uint32_t)(entry & ATTRIBUTE_BYTES_MAX);
    return entry != 0;
}

/* Rows of one page of the index whose records lie in from..to of the heap, which is read at once. */
struct piece {
    uint32_t first, end;
    uint64_t from, to;
};

/* As many of the rows first .. n - 1 as are read at once. QUIRE_ECORRUPT: their records do not follow one another. */
static int next_piece(struct comparison *c, const uint8_t *page, uint32_t first, uint32_t n, struct piece *out)
{
    const struct segment *s = c->v->s;
    *out = (struct piece){.first = first, .end = first, .from = UINT64_MAX};
    for (; out->end < n; out->end++) {
        uint64_t at;
        uint32_t bytes;
        if (!find_record(page, out->end, &at, &bytes))
            continue;
        uint64_t behind = at + RECORD_HEADER_BYTES + bytes;
        if (at >= s->attribute_heap_bytes || behind > s->attribute_heap_bytes ||
            (out->from != UINT64_MAX && at != out->to)) {
            verify_found(c->v, "the attributes of row %u of %s do not follow those of the rows before it", out->end,
                         s->info.path);
            return QUIRE_ECORRUPT;
        }
        if (out->from != UINT64_MAX && behind - out->from > HEAP_READ_MAX)
            break;
        out->from = out->from == UINT64_MAX ? at : out->from;
        out->to = behind;
    }
    return 0;
}

static int compare_piece(struct comparison *c, const uint8_t *page, const struct piece *piece)
{
    struct segment *s = c->v->s;
    if (piece->from == UINT64_MAX)
        return 0;
    size_t n_bytes = (size_t)(piece->to - piece->from);
    if (!array_reserve(&c->heap, &c->heap_capacity, n_bytes))
        return QUIRE_ENOMEM;
    int rc = section_read(s->attributes, section_find(s->attributes, ATTRIBUTES_HEAP), piece->from, c->heap, n_bytes,
                          c->v->err);
    for (uint32_t row = piece->first; rc == 0 && row < piece->end; row++) {
        uint64_t at;
        uint32_t bytes;
        if (!find_record(page, row, &at, &bytes))
            continue;
        assert(at >= piece->from && at + RECORD_HEADER_BYTES + bytes <= piece->to); /* next_piece */
        const uint8_t *record = c->heap + (at - piece->from), *text = record + RECORD_HEADER_BYTES;
        if (bytes_load_u64(record) == format_record_checksum(text, bytes, s->segment_id)) {
            rc = compare_row(c, row, (const char *)text, bytes);
        } else {
            verify_found(c->v, "the attributes of row %u of %s are damaged: wrong checksum", row, s->info.path);
            c->unread = true;
        }
    }
    return rc;
}

static int compare_page(struct comparison *c, uint32_t first)
{
    struct segment *s = c->v->s;
    const struct section_entry *index = section_find(s->attributes, ATTRIBUTES_INDEX);
    uint32_t number = first / ATTRIBUTES_PER_PAGE, rows = (uint32_t)s->params.rows;
    uint32_t end = rows - first < ATTRIBUTES_PER_PAGE ? rows : first + ATTRIBUTES_PER_PAGE;
    uint8_t page[PAGE_BYTES];
    int rc = section_read(s->attributes, index, (uint64_t)number * PAGE_BYTES, page, sizeof page, c->v->err);
    if (rc == 0 && !format_page_is_valid(page, number, s->segment_id)) {
        verify_found(c->v, "page %u of section %d of %s is damaged: wrong checksum", number, ATTRIBUTES_INDEX,
                     section_file_io(s->attributes)->path);
        c->unread = true;
        return 0;
    }
    struct piece piece = {.end = first};
    while (rc == 0 && piece.end < end) {
        rc = next_piece(c, page, piece.end, end, &piece);
        if (rc == 0)
            rc = compare_piece(c, page, &piece);
    }
    if (rc != QUIRE_ECORRUPT)
        return rc;
    c->unread = true; /* told above */
    return 0;
}

/* ---- what columns hold twice ------------------------------------------------------------------------------------- */

static bool same_rows(const struct row_set *set, const uint64_t *bits, uint64_t *scratch, const struct universe *all)
{
    memset(scratch, 0, row_set_words(all) * sizeof *scratch);
    row_set_add(set, all, scratch);
    return memcmp(scratch, bits, row_set_words(all) * sizeof *bits) == 0;
}

static int compare_marks(struct comparison *c, const struct column *column, const struct column_table *table)
{
    struct universe all = {NULL, c->columns->n_rows};
    uint64_t *bits = calloc(row_set_words(&all), sizeof *bits), *scratch = malloc(row_set_words(&all) * sizeof *bits);
    int rc = bits && scratch ? 0 : QUIRE_ENOMEM;
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    uint32_t mark = 0;
    column_walk_from(&walk, table, 0);
    while (rc == 0 && column_walk_next(&walk, &value, &set)) {
        row_set_add(&set, &all, bits);
        assert(mark == table->n_marks || table->marks[mark].values >= walk.next); /* none is passed */
        if (mark == table->n_marks || table->marks[mark].values != walk.next)
            continue;
        if (!same_rows(&table->marks[mark].rows, bits, scratch, &all))
            verify_found(c->v, "column %.*s of %s: the rows below value %u are not those of its values",
                         (int)column->name_bytes, column->name, c->v->s->info.path, walk.next);
        mark++;
    }
    if (rc == 0 && !same_rows(&table->rows, bits, scratch, &all))
        verify_found(c->v, "column %.*s of %s: its rows are not those of its values", (int)column->name_bytes,
                     column->name, c->v->s->info.path);
    free(bits);
    free(scratch);
    return rc;
}

static uint64_t pairs_of(const struct column_table *table)
{
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    uint64_t n = 0;
    column_walk_from(&walk, table, 0);
    while (column_walk_next(&walk, &value, &set))
        n += set.n;
    return n;
}

static void compare_count(struct comparison *c, const struct column *column, const char *what, uint64_t stored,
                          uint64_t wanted)
{
    if (stored != wanted)
        verify_found(c->v, "column %.*s of %s has %llu %s, its attributes %llu", (int)column->name_bytes, column->name,
                     c->v->s->info.path, (unsigned long long)stored, what, (unsigned long long)wanted);
}

static int compare_column(struct comparison *c, uint32_t i)
{
    static const char *const what[] = {"rows with a number", "rows with a string", "rows with numbers in a list",
                                       "rows with strings in a list"};
    const struct column *column = &c->columns->columns[i];
    const struct counted *counted = &c->counted[i];
    int rc = 0;
    for (unsigned t = 0; rc == 0 && t < TABLES; t++) {
        const struct column_table *table = &column->tables[t];
        if (table->n)
            rc = compare_marks(c, column, table);
        if (c->unread)
            continue;
        compare_count(c, column, what[t], table->rows.n, counted->rows[t]);
        if (table->n)
            compare_count(c, column, "pairs of value and row", pairs_of(table), counted->pairs[t]);
    }
    if (rc < 0 || c->unread)
        return rc;
    compare_count(c, column, "nulls", column->nulls.n, counted->nulls);
    compare_count(c, column, "lists", column->lists.n, counted->lists);
    compare_count(c, column, "lists with members that are no values", column->odd.n, counted->odd);
    compare_count(c, column, "objects", column->objects.n, counted->objects);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int compare_all(struct comparison *c)
{
    uint32_t rows = (uint32_t)c->v->s->params.rows;
    int rc = 0;
    assert(c->columns->n_rows == rows);
    for (uint32_t row = 0; rc == 0 && row < rows; row += ATTRIBUTES_PER_PAGE) {
        rc = compare_page(c, row);
        if (rc == 0)
            rc = verify_progress(c->v, "check columns", row, rows);
    }
    for (uint32_t i = 0; rc == 0 && i < c->columns->n_columns; i++)
        rc = compare_column(c, i);
    if (rc == 0 && !c->unread && c->n_grants != c->columns->n_grants)
        verify_found(c->v, "the tenants of %s have %llu rows, its attributes %llu grants", c->v->s->info.path,
                     (unsigned long long)c->columns->n_grants, (unsigned long long)c->n_grants);
    return rc;
}

int verify_columns(struct verification *v)
{
    struct comparison c = {.v = v, .columns = v->s->columns};
    if (!c.columns || !v->s->attributes)
        return 0;
    c.counted = calloc(c.columns->n_columns + 1u, sizeof *c.counted);
    int rc = c.counted ? compare_all(&c) : QUIRE_ENOMEM;
    if (rc == QUIRE_ENOMEM)
        error_set(v->err, rc, "no memory to compare the columns of %s with its attributes", v->s->info.path);
    free(c.counted);
    free(c.heap);
    free(c.text);
    free(c.pairs);
    return rc;
}
