/*
 * columns.c - the file `columns` read back: checked once, then looked up.
 *
 * The sections are kept in memory as they lie in the file. Opening walks all of it: lengths add up, values ascend, each
 * set holds rows of the segment in order, every offset leads where the walk came by. What is used afterwards relies on
 * that and does not look again. Whether the sets are the right ones only the attributes can tell (quire_verify).
 *
 * A table finds value i by the offset of its group of TABLE_GROUP and a walk of at most that many: offsets then cost a
 * quarter of a byte per value, which matters where each row has a value of its own. Tenants are found likewise, by name
 * and generation.
 */
#include "index/column/column_rows.h"
#include "index/column/columns_priv.h"
#include "index/vector/varint.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/sections.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (1u << 24) /* attributes are not longer */
#define KEPT_BYTES     (8u << 20) /* of columns by rows, beyond as much as the columns take */

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static uint32_t column_table_groups(const struct column_table *t)
{
    return t->n / TABLE_GROUP + (t->n % TABLE_GROUP != 0);
}

double column_table_number(const struct column_table *t, uint32_t i)
{
    assert(i < t->n && !t->texts);
    const uint8_t *at = t->values + (size_t)t->width * i;
    if (t->width == 8) {
        uint64_t bits = bytes_load_u64(at);
        double number;
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    return t->base + (t->width == 4 ? bytes_load_u32(at) : t->width == 2 ? bytes_load_u16(at) : *at);
}

/* The text at p; returns the place behind it, NULL where it does not end in the values. */
static const uint8_t *text_at(const struct column_table *t, const uint8_t *p, const char **text, uint32_t *n_bytes)
{
    uint64_t bytes = 0;
    p = varint_get(p, t->values_end, &bytes);
    if (!p || bytes > TEXT_BYTES_MAX || bytes > (uint64_t)(t->values_end - p))
        return NULL;
    *text = (const char *)p;
    *n_bytes = (uint32_t)bytes;
    return p + bytes;
}

const char *column_table_text(const struct column_table *t, uint32_t i, uint32_t *n_bytes)
{
    assert(i < t->n && t->texts);
    const uint8_t *at = t->values + bytes_load_u32(t->text_groups + 4 * (size_t)(i / TABLE_GROUP));
    const char *text = NULL;
    for (uint32_t skip = 0; skip <= i % TABLE_GROUP; skip++)
        at = text_at(t, at, &text, n_bytes);
    return text;
}

void column_table_set(const struct column_table *t, uint32_t i, struct row_set *out)
{
    assert(i < t->n);
    const uint8_t *at = t->sets + bytes_load_u32(t->set_groups + 4 * (size_t)(i / TABLE_GROUP));
    for (uint32_t skip = 0; skip <= i % TABLE_GROUP; skip++)
        at = row_set_parse(at, t->sets_end, out);
}

uint32_t column_table_find_text(const struct column_table *t, const char *text, uint32_t n_bytes)
{
    uint32_t low = 0, high = column_table_groups(t);
    while (low < high) { /* the first group that begins behind it */
        uint32_t middle = low + (high - low) / 2, bytes = 0;
        const char *first = column_table_text(t, middle * TABLE_GROUP, &bytes);
        if (format_compare_bytes(first, bytes, text, n_bytes) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return t->n;
    uint32_t i = (low - 1) * TABLE_GROUP, end = t->n - i < TABLE_GROUP ? t->n : i + TABLE_GROUP;
    const uint8_t *at = t->values + bytes_load_u32(t->text_groups + 4 * (size_t)(low - 1));
    for (; i < end; i++) {
        const char *here = NULL;
        uint32_t bytes = 0;
        at = text_at(t, at, &here, &bytes);
        if (format_compare_bytes(here, bytes, text, n_bytes) == 0)
            return i;
    }
    return t->n;
}

uint32_t column_table_bound(const struct column_table *t, double number, bool above)
{
    uint32_t at;
    if (above)
        array_find_first(at, 0, t->n, column_table_number(t, at) <= number);
    else
        array_find_first(at, 0, t->n, column_table_number(t, at) < number);
    assert(at <= t->n && (at == 0 || !(column_table_number(t, at - 1) > number)));
    return at;
}

void column_walk_from(struct column_walk *walk, const struct column_table *t, uint32_t first)
{
    struct json_value value;
    struct row_set set;
    *walk = (struct column_walk){.table = t, .next = first - first % TABLE_GROUP};
    if (walk->next >= t->n)
        return;
    walk->set = t->sets + bytes_load_u32(t->set_groups + 4 * (size_t)(first / TABLE_GROUP));
    if (t->texts)
        walk->text = t->values + bytes_load_u32(t->text_groups + 4 * (size_t)(first / TABLE_GROUP));
    while (walk->next < first)
        column_walk_next(walk, &value, &set);
}

bool column_walk_next(struct column_walk *walk, struct json_value *value, struct row_set *set)
{
    const struct column_table *t = walk->table;
    if (walk->next >= t->n)
        return false;
    assert(walk->set && (!t->texts || walk->text)); /* columns_open has checked all of it */
    *value = (struct json_value){.kind = t->texts ? VALUE_STRING : VALUE_NUMBER};
    if (t->texts)
        walk->text = text_at(t, walk->text, &value->text, &value->bytes);
    else
        value->number = column_table_number(t, walk->next);
    walk->set = row_set_parse(walk->set, t->sets_end, set);
    walk->next++;
    return true;
}

/* ---- opening: checks --------------------------------------------------------------------------------------------- */

/* Bytes that are taken from a record one after the other; at is NULL once they did not suffice. */
struct reader {
    const uint8_t *at, *end;
};

static const uint8_t *take(struct reader *r, uint64_t bytes)
{
    const uint8_t *taken = r->at;
    if (r->at && bytes > (uint64_t)(r->end - r->at))
        r->at = NULL;
    if (!r->at)
        return NULL;
    r->at += bytes;
    return taken;
}

static bool take_set(struct reader *r, uint64_t n_rows, struct row_set *out)
{
    r->at = r->at ? row_set_parse(r->at, r->end, out) : NULL;
    return r->at && row_set_is_valid(out, n_rows);
}

static bool texts_are_valid(const struct column_table *t)
{
    const uint8_t *at = t->values;
    const char *text = NULL, *before = NULL;
    uint32_t bytes = 0, before_bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        if (i % TABLE_GROUP == 0 &&
            bytes_load_u32(t->text_groups + i / TABLE_GROUP * 4ull) != (uint64_t)(at - t->values))
            return false;
        at = text_at(t, at, &text, &bytes);
        if (!at || (before && format_compare_bytes(before, before_bytes, text, bytes) >= 0))
            return false;
        before = text;
        before_bytes = bytes;
    }
    return at == t->values_end;
}

static bool numbers_are_valid(const struct column_table *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        double number = column_table_number(t, i);
        if (isnan(number) || (i && column_numbers_compare(number, column_table_number(t, i - 1)) <= 0))
            return false;
    }
    return true;
}

static bool sets_are_valid(const struct column_table *t, uint64_t n_rows)
{
    const uint8_t *at = t->sets;
    struct row_set set;
    for (uint32_t i = 0; i < t->n; i++) {
        if (i % TABLE_GROUP == 0 && bytes_load_u32(t->set_groups + i / TABLE_GROUP * 4ull) != (uint64_t)(at - t->sets))
            return false;
        at = row_set_parse(at, t->sets_end, &set);
        if (!at || set.n == 0 || !row_set_is_valid(&set, n_rows))
            return false;
    }
    return at == t->sets_end;
}

/* 0, QUIRE_ECORRUPT or QUIRE_ENOMEM. */
static int open_marks(struct column_table *t, struct reader *r, uint32_t n, uint64_t n_rows)
{
    if (n > TABLE_MARKS || (n && t->texts))
        return QUIRE_ECORRUPT;
    t->marks = n ? calloc(n, sizeof *t->marks) : NULL;
    if (n && !t->marks)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *values = take(r, 4);
        t->marks[i].values = values ? bytes_load_u32(values) : 0;
        if (!take_set(r, n_rows, &t->marks[i].rows) || t->marks[i].values >= t->n ||
            t->marks[i].values <= (i ? t->marks[i - 1].values : 0))
            return QUIRE_ECORRUPT;
        t->n_marks = i + 1;
    }
    return 0;
}

static int open_table(struct column_table *t, const uint8_t *header, struct reader *r, uint64_t n_rows)
{
    uint64_t base = bytes_load_u64(header + 8), values = bytes_load_u32(header + 16),
             sets = bytes_load_u32(header + 20);
    t->n = bytes_load_u32(header);
    t->width = bytes_load_u32(header + 4);
    memcpy(&t->base, &base, sizeof t->base);
    bool width_fits =
        t->texts || t->n == 0 ? t->width == 0 : t->width == 1 || t->width == 2 || t->width == 4 || t->width == 8;
    if (!width_fits || (!t->texts && values != (uint64_t)t->width * t->n))
        return QUIRE_ECORRUPT;
    t->values = take(r, values);
    t->text_groups = take(r, t->texts ? 4ull * column_table_groups(t) : 0);
    t->set_groups = take(r, 4ull * column_table_groups(t));
    t->sets = take(r, sets);
    if (!r->at)
        return QUIRE_ECORRUPT;
    t->values_end = t->values + values;
    t->sets_end = t->sets + sets;
    if (!sets_are_valid(t, n_rows) || !(t->texts ? texts_are_valid(t) : numbers_are_valid(t)) ||
        !take_set(r, n_rows, &t->rows) || (t->n && t->rows.n == 0))
        return QUIRE_ECORRUPT;
    return open_marks(t, r, bytes_load_u32(header + 24), n_rows);
}

static int open_column(struct column *c, struct reader *r, uint64_t n_rows)
{
    const uint8_t *header = take(r, COLUMN_HEADER_BYTES);
    if (!header)
        return QUIRE_ECORRUPT;
    uint32_t type = bytes_load_u32(header + 8);
    c->type = (enum quire_column_type)type;
    c->name_bytes = bytes_load_u32(header + 12);
    c->bytes = bytes_load_u64(header);
    c->name = (const char *)take(r, c->name_bytes);
    if (type > QUIRE_COLUMN_TIMESTAMP || c->name_bytes == 0 || c->name_bytes > ATTRIBUTE_NAME_BYTES_MAX || !c->name)
        return QUIRE_ECORRUPT;
    for (unsigned i = 0; i < TABLES; i++) {
        c->tables[i].texts = i == TABLE_TEXTS || i == TABLE_MEMBER_TEXTS;
        int rc = open_table(&c->tables[i], header + 16 + (size_t)COLUMN_TABLE_BYTES * i, r, n_rows);
        if (rc < 0)
            return rc;
    }
    if (!take_set(r, n_rows, &c->nulls) || !take_set(r, n_rows, &c->lists) || !take_set(r, n_rows, &c->odd) ||
        !take_set(r, n_rows, &c->objects))
        return QUIRE_ECORRUPT;
    return (uint64_t)((const uint8_t *)r->at - header) == c->bytes ? 0 : QUIRE_ECORRUPT;
}

static int open_columns(struct columns *columns)
{
    struct reader r = {columns->records, columns->records + columns->records_bytes};
    if (columns->n_columns > columns->records_bytes / COLUMN_HEADER_BYTES)
        return QUIRE_ECORRUPT;
    columns->columns = calloc(columns->n_columns + 1u, sizeof *columns->columns);
    if (!columns->columns)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < columns->n_columns; i++) {
        struct column *c = &columns->columns[i];
        int rc = open_column(c, &r, columns->n_rows);
        if (rc == 0 && i && format_compare_bytes(c[-1].name, c[-1].name_bytes, c->name, c->name_bytes) >= 0)
            rc = QUIRE_ECORRUPT;
        if (rc < 0)
            return rc;
    }
    return r.at == r.end ? 0 : QUIRE_ECORRUPT;
}

/* A tenant's record at p; returns the place behind it, NULL where it is damaged. */
static const uint8_t *tenant_at(const struct columns *columns, const uint8_t *p, struct grant *tenant,
                                struct row_set *rows)
{
    const uint8_t *end = columns->tenants + columns->tenants_bytes;
    uint64_t bytes = 0, generation = 0;
    p = varint_get(p, end, &bytes);
    if (!p || bytes == 0 || bytes > TENANT_BYTES_MAX || bytes > (uint64_t)(end - p))
        return NULL;
    tenant->name = (const char *)p;
    tenant->bytes = (uint32_t)bytes;
    p = varint_get(p + bytes, end, &generation);
    if (!p || generation > UINT32_MAX)
        return NULL;
    tenant->generation = (uint32_t)generation;
    return row_set_parse(p, end, rows);
}

static int compare_tenants(const struct grant *a, const struct grant *b)
{
    int order = format_compare_bytes(a->name, a->bytes, b->name, b->bytes);
    return order ? order : (a->generation > b->generation) - (a->generation < b->generation);
}

static int check_tenants(const struct columns *columns)
{
    const uint8_t *at = columns->tenants;
    uint64_t groups = columns->n_tenants / TENANT_GROUP + (columns->n_tenants % TENANT_GROUP != 0), n_grants = 0;
    struct grant tenant = {0}, before = {0};
    struct row_set rows;
    if (columns->tenant_groups_bytes != 8 * groups)
        return QUIRE_ECORRUPT;
    for (uint32_t i = 0; i < columns->n_tenants; i++) {
        if (i % TENANT_GROUP == 0 &&
            bytes_load_u64(columns->tenant_groups + i / TENANT_GROUP * 8ull) != (uint64_t)(at - columns->tenants))
            return QUIRE_ECORRUPT;
        at = tenant_at(columns, at, &tenant, &rows);
        if (!at || rows.n == 0 || !row_set_is_valid(&rows, columns->n_rows) ||
            (i && compare_tenants(&before, &tenant) >= 0))
            return QUIRE_ECORRUPT;
        before = tenant;
        n_grants += rows.n;
    }
    bool whole = at == columns->tenants + columns->tenants_bytes && n_grants == columns->n_grants;
    return whole ? 0 : QUIRE_ECORRUPT;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int load(struct section_file *file, uint32_t id, uint8_t **out, uint64_t *bytes, struct quire_error *err)
{
    void *section = NULL;
    int rc = format_section_load(file, id, UINT64_MAX, &section, bytes, err);
    *out = section;
    return rc;
}

static int load_header(struct columns *columns, struct section_file *file, struct quire_error *err)
{
    uint8_t *header = NULL;
    uint64_t bytes = 0;
    int rc = load(file, COLUMNS_HEADER, &header, &bytes, err);
    if (rc == 0 && (bytes != COLUMNS_HEADER_BYTES || bytes_load_u32(header + 4) > COLUMNS_COMPLETE))
        rc = error_set(err, QUIRE_ECORRUPT, "%s: section %u is damaged: its %llu bytes are no header of columns",
                       section_file_io(file)->path, COLUMNS_HEADER, (unsigned long long)bytes);
    if (rc == 0) {
        columns->n_columns = bytes_load_u32(header);
        columns->complete = bytes_load_u32(header + 4) & COLUMNS_COMPLETE;
        columns->n_tenants = bytes_load_u32(header + 8);
        columns->n_grants = bytes_load_u64(header + 16);
    }
    free(header);
    return rc;
}

static int say_damaged(struct section_file *file, uint32_t id, int rc, struct quire_error *err)
{
    if (rc == QUIRE_ECORRUPT)
        return error_set(err, rc, "%s: section %u is damaged: its values or sets of rows are not in order",
                         section_file_io(file)->path, id);
    return rc < 0 ? error_set(err, rc, "no memory for %s", section_file_io(file)->path) : 0;
}

int columns_open(struct io_fs *fs, const char *path, const uint8_t segment_id[16], uint32_t n_rows,
                 struct columns **out, struct quire_error *err)
{
    struct section_file *file = NULL;
    struct columns *columns = calloc(1, sizeof *columns);
    if (!columns)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    columns->n_rows = n_rows;
    int rc = section_file_open(fs, path, FILE_COLUMNS, segment_id, FS_READ, &file, err);
    if (rc == 0)
        rc = load_header(columns, file, err);
    if (rc == 0)
        rc = load(file, COLUMNS_RECORDS, &columns->records, &columns->records_bytes, err);
    if (rc == 0)
        rc = load(file, COLUMNS_TENANT_GROUPS, &columns->tenant_groups, &columns->tenant_groups_bytes, err);
    if (rc == 0)
        rc = load(file, COLUMNS_TENANTS, &columns->tenants, &columns->tenants_bytes, err);
    if (rc == 0)
        rc = say_damaged(file, COLUMNS_RECORDS, open_columns(columns), err);
    if (rc == 0)
        rc = say_damaged(file, COLUMNS_TENANTS, check_tenants(columns), err);
    columns->kept = column_rows_keep_create(KEPT_BYTES + columns->records_bytes);
    if (rc == 0 && !columns->kept)
        rc = error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    section_file_close(file);
    if (rc < 0)
        columns_close(columns);
    else
        *out = columns;
    return rc;
}

void columns_close(struct columns *columns)
{
    if (!columns)
        return;
    column_rows_keep_destroy(columns->kept);
    for (uint32_t i = 0; columns->columns && i < columns->n_columns; i++)
        for (unsigned table = 0; table < TABLES; table++)
            free(columns->columns[i].tables[table].marks);
    free(columns->columns);
    free(columns->records);
    free(columns->tenant_groups);
    free(columns->tenants);
    free(columns);
}

static uint64_t column_bytes(uint64_t n_columns, uint64_t records_bytes)
{
    return n_columns * sizeof(struct column) + records_bytes;
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

const struct column *columns_find(const struct columns *columns, const char *name, uint32_t name_bytes)
{
    uint32_t low = 0, high = columns->n_columns;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct column *c = &columns->columns[middle];
        int order = format_compare_bytes(c->name, c->name_bytes, name, name_bytes);
        if (order == 0)
            return c;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static uint64_t marks_bytes(const struct column *c)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < TABLES; i++)
        n += c->tables[i].n_marks;
    return n * sizeof(struct column_mark);
}

void columns_get_stats(const struct columns *columns, struct columns_stats *out)
{
    *out = (struct columns_stats){.n_columns = columns->n_columns,
                                  .n_tenants = columns->n_tenants,
                                  .n_grants = columns->n_grants,
                                  .column_bytes =
                                      sizeof *columns + column_bytes(columns->n_columns, columns->records_bytes),
                                  .tenant_bytes = columns->tenant_groups_bytes + columns->tenants_bytes};
    for (uint32_t i = 0; i < columns->n_columns; i++)
        out->column_bytes += marks_bytes(&columns->columns[i]);
}

uint64_t columns_kept_bytes(const struct columns *columns)
{
    return column_rows_kept_bytes(columns->kept);
}

bool columns_info(const struct columns *columns, uint32_t i, struct column_info *out)
{
    if (i >= columns->n_columns)
        return false;
    const struct column *c = &columns->columns[i];
    *out = (struct column_info){.name = c->name, .name_bytes = c->name_bytes, .type = c->type};
    out->rows = (uint64_t)c->tables[TABLE_NUMBERS].rows.n + c->tables[TABLE_TEXTS].rows.n + c->nulls.n + c->lists.n +
                c->objects.n;
    for (unsigned table = 0; table < TABLES; table++)
        out->distinct += c->tables[table].n;
    out->bytes = column_bytes(1, c->bytes) + marks_bytes(c);
    return true;
}

static const uint8_t *tenant_group(const struct columns *columns, uint32_t group)
{
    return columns->tenants + bytes_load_u64(columns->tenant_groups + 8 * (size_t)group);
}

bool columns_find_tenant(const struct columns *columns, const struct grant *wanted, struct row_set *rows)
{
    struct grant here;
    uint32_t low = 0, high = columns->n_tenants / TENANT_GROUP + (columns->n_tenants % TENANT_GROUP != 0);
    while (low < high) { /* the first group that begins behind it */
        uint32_t middle = low + (high - low) / 2;
        const uint8_t *found = tenant_at(columns, tenant_group(columns, middle), &here, rows);
        assert(found); /* check_tenants has read it */
        if (compare_tenants(&here, wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    const uint8_t *at = tenant_group(columns, low - 1);
    for (uint32_t i = (low - 1) * TENANT_GROUP; i < columns->n_tenants && i < low * TENANT_GROUP; i++) {
        at = tenant_at(columns, at, &here, rows);
        if (compare_tenants(&here, wanted) == 0)
            return true;
    }
    return false;
}

/* The union of a scope's sets, of `n` rows together, as numbers. */
static int scope_of_few(const struct columns *columns, const struct tenant_scope *scope, uint64_t n,
                        roaring_bitmap_t **out)
{
    uint32_t *rows = malloc(sizeof *rows * (n + 1));
    struct row_set set;
    uint64_t at = 0;
    if (!rows)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < scope->n; i++)
        if (columns_find_tenant(columns, &scope->tenants[i], &set)) {
            row_set_rows(&set, rows + at);
            at += set.n;
        }
    assert(at == n);
    struct row_view view = {.rows = rows, .n = scope->n > 1 ? row_set_order(rows, at) : at};
    int rc = row_view_roaring(&view, out);
    free(rows);
    return rc;
}

int columns_scope(const struct columns *columns, const struct tenant_scope *scope, roaring_bitmap_t **out)
{
    struct universe all = {NULL, columns->n_rows};
    struct row_set set;
    uint64_t n = 0;
    for (uint32_t i = 0; i < scope->n; i++)
        n += columns_find_tenant(columns, &scope->tenants[i], &set) ? set.n : 0;
    if (n < columns->n_rows / 32 || n == 0)
        return scope_of_few(columns, scope, n, out);
    uint64_t *bits = calloc(row_set_words(&all), sizeof *bits);
    if (!bits)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < scope->n; i++)
        if (columns_find_tenant(columns, &scope->tenants[i], &set))
            row_set_add(&set, &all, bits);
    struct row_view view = {.bits = bits, .n = row_set_words(&all)};
    int rc = row_view_roaring(&view, out);
    free(bits);
    return rc;
}

bool columns_tenant_has(const struct columns *columns, const struct grant *tenant, uint32_t row)
{
    struct row_set set;
    return columns_find_tenant(columns, tenant, &set) && row_set_has(&set, row);
}

bool columns_tenant_at(const struct columns *columns, uint32_t i, struct grant *tenant, uint64_t *rows)
{
    struct row_set set;
    if (i >= columns->n_tenants)
        return false;
    const uint8_t *at = tenant_group(columns, i / TENANT_GROUP);
    for (uint32_t skip = 0; skip <= i % TENANT_GROUP; skip++)
        at = tenant_at(columns, at, tenant, &set);
    assert(at); /* check_tenants has read it */
    *rows = set.n;
    return true;
}
