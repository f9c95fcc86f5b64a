/*
 * columns_write.c - the file `columns` from the attributes of a segment's rows.
 *
 * The rows are asked for several times, always in order, so that no more is held than the values that are being sorted:
 *   first   which fields there are, in how many rows and with how many values; which tenants, and with how many grants
 *   then    the values of as many columns as fit in COLLECT_BYTES, at least one at a time, and the tenants' rows
 *
 * Which fields become columns: those declared INDEXED; of the others the COLUMNS_LEARNT_MAX that most rows have. A
 * table of a learnt column that would take more than its share (COLUMN_BYTES_PER_ROW, or LEARNT_BYTES_PER_ROW of all)
 * is written without values: then it still says which rows have the field, and a test of it is left over. Titles and
 * texts end so.
 *
 * Numbers that are whole and near each other are stored as their way above the least, in 1, 2 or 4 bytes.
 *
 * A table of numbers gets marks: the rows below every so many values. A range is then the difference of two of them and
 * the values between mark and bound, a thirtieth of all on average, however long it is and however many values differ.
 */
#include "index/column/columns_priv.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/sections.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FIELDS_MAX           4096u       /* different names that are looked at; others are left out */
#define COLLECT_BYTES        (64u << 20) /* of values in memory at a time */
#define LEARNT_BYTES_PER_ROW 64u         /* of all learnt columns together */
#define LEARNT_BYTES_LEAST   65536u      /* what small segments may use anyhow */
#define AREA_BYTES_MAX       UINT32_MAX  /* of a table's values, and of its sets */

/* ---- names, and numbers for them --------------------------------------------------------------------------------- */

/* Texts, each once, numbered as they came: open addressing, at most half full. */
struct texts {
    uint32_t *slots; /* number + 1; 0: free */
    uint64_t *at;    /* n + 1 places in heap */
    uint32_t n, n_slots;
    struct column_buffer heap;
};

static void texts_fini(struct texts *t)
{
    free(t->slots);
    free(t->at);
    free(t->heap.at);
    memset(t, 0, sizeof *t);
}

static const uint8_t *texts_get(const struct texts *t, uint32_t i, uint32_t *bytes)
{
    assert(i < t->n);
    *bytes = (uint32_t)(t->at[i + 1] - t->at[i]);
    return t->heap.at + t->at[i];
}

/* The slot of a text, or the free one where it belongs. */
static uint32_t texts_slot(const struct texts *t, const void *text, uint32_t bytes)
{
    uint32_t slot = (uint32_t)XXH3_64bits(text, bytes) & (t->n_slots - 1), length;
    for (; t->slots[slot]; slot = (slot + 1) & (t->n_slots - 1)) {
        const uint8_t *here = texts_get(t, t->slots[slot] - 1, &length);
        if (format_compare_bytes(here, length, text, bytes) == 0)
            break;
    }
    return slot;
}

static int texts_grow(struct texts *t)
{
    uint32_t n_slots = t->n_slots ? 2 * t->n_slots : 64, bytes;
    uint32_t *slots = calloc(n_slots, sizeof *slots), *old = t->slots;
    uint64_t *at = realloc(t->at, sizeof *at * (n_slots / 2 + 1));
    t->at = at ? at : t->at;
    if (!slots || !at || n_slots == 0) {
        free(slots);
        return QUIRE_ENOMEM;
    }
    t->at[0] = 0;
    t->slots = slots;
    t->n_slots = n_slots;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *text = texts_get(t, i, &bytes);
        t->slots[texts_slot(t, text, bytes)] = i + 1;
    }
    free(old);
    return 0;
}

/* The text's number; UINT32_MAX: it is not there. */
static uint32_t texts_find(const struct texts *t, const void *text, uint32_t bytes)
{
    return t->n_slots ? t->slots[texts_slot(t, text, bytes)] - 1 : UINT32_MAX;
}

static int texts_add(struct texts *t, const void *text, uint32_t bytes, uint32_t *number)
{
    if (t->n == t->n_slots / 2 && texts_grow(t) < 0)
        return QUIRE_ENOMEM;
    uint32_t slot = texts_slot(t, text, bytes);
    if (t->slots[slot] == 0) {
        column_buffer_put(&t->heap, text, bytes);
        if (t->heap.failed)
            return QUIRE_ENOMEM;
        t->slots[slot] = ++t->n;
        t->at[t->n] = t->heap.n;
    }
    *number = t->slots[slot] - 1;
    assert(*number < t->n && t->n <= t->n_slots / 2 && t->at[t->n] == t->heap.n);
    return 0;
}

/* ---- the first time: fields and tenants -------------------------------------------------------------------------- */

struct field {
    uint64_t rows, values; /* values: members of lists included */
    uint64_t seen;         /* row + 1 that had it last */
    const struct quire_column *declared;
    uint32_t number; /* of its name */
    uint32_t chosen; /* place among the chosen + 1; 0: it gets no column */
};

/* One value of a table: its number, or the number of its text, and its row. */
struct number_entry {
    double number;
    uint32_t row;
};
struct text_entry {
    uint32_t text, row;
};

struct collected {
    struct texts texts;
    union {
        struct number_entry *numbers;
        struct text_entry *words;
    }; /* by the kind of the table; owned */
    size_t n, capacity;
    uint64_t *rows; /* bits; owned */
    bool left_out;
};

/* The values of one column while they are collected, then its record. */
enum row_kind { ROWS_NULL, ROWS_LIST, ROWS_ODD, ROWS_OBJECT, ROW_KINDS };
struct collector {
    const struct field *field;
    struct collected tables[TABLES];
    uint64_t *rows[ROW_KINDS]; /* bits; owned */
    struct column_buffer record;
};

struct granted {
    uint64_t n, at; /* rows; place of the next in granted_rows */
    uint64_t seen;  /* row + 1 that was granted last */
};

struct writer {
    const struct attribute_schema *schema;
    columns_source *source;
    void *context;
    uint32_t n_rows;
    uint64_t learnt_left; /* bytes that learnt columns may still take */
    struct texts names;   /* of fields */
    struct field *fields; /* per name; owned */
    bool complete, any;
    struct field **chosen; /* what is dearest first; owned */
    uint32_t n_chosen;
    struct texts tenants;    /* u32 generation, then the name */
    struct granted *granted; /* per tenant; owned */
    uint32_t granted_capacity;
    uint32_t *granted_rows; /* of all tenants, one after the other; owned */
    uint64_t n_grants;
    struct collector *collectors; /* per chosen; owned */
    uint32_t first, end;          /* those of the chosen whose values are collected this time */
    char *scratch;                /* a text without escapes; owned */
    size_t scratch_capacity;
    struct quire_error *err;
};

/* A text without escapes; NULL: no memory. */
static const char *plain_text(struct writer *w, const struct json_value *value, uint32_t *bytes)
{
    *bytes = value->bytes;
    if (!value->escaped)
        return value->text;
    if (!array_reserve(&w->scratch, &w->scratch_capacity, value->bytes + 1u))
        return NULL;
    *bytes = json_unescape(value, w->scratch);
    return w->scratch;
}

/* What is done with each field, and with the grants, of a row. */
struct row_visitor {
    int (*field)(struct writer *w, uint32_t row, struct field *field, const struct json_value *value);
    int (*grant)(struct writer *w, uint32_t row, const struct grant *grant);
    bool learn; /* names that are new become fields */
};

/* The field of this name, NULL where it is none of ours. */
static int find_field(struct writer *w, const struct json_value *name, bool learn, struct field **out)
{
    uint32_t bytes = 0, number;
    const char *text = plain_text(w, name, &bytes);
    *out = NULL;
    if (!text)
        return QUIRE_ENOMEM;
    if (bytes == 0 || bytes > ATTRIBUTE_NAME_BYTES_MAX) {
        w->complete &= bytes == 0; /* a name without bytes no filter can ask for */
        return 0;
    }
    number = texts_find(&w->names, text, bytes);
    if (number == UINT32_MAX && learn) {
        const struct quire_column *declared = attribute_schema_find(w->schema, text, bytes);
        if ((w->names.n >= FIELDS_MAX && !declared) || (declared && !declared->indexed)) {
            w->complete = false;
            return 0;
        }
        if (texts_add(&w->names, text, bytes, &number) < 0)
            return QUIRE_ENOMEM;
        w->fields[number] = (struct field){.number = number, .declared = declared};
    }
    *out = number == UINT32_MAX ? NULL : &w->fields[number];
    return 0;
}

static int visit_json(struct writer *w, uint32_t row, const char *json, uint32_t bytes, const struct row_visitor *visit)
{
    struct json_walk walk;
    struct json_value name, value;
    json_walk_object(&walk, json, bytes);
    while (json_next(&walk, &name, &value)) {
        struct field *field;
        int rc = find_field(w, &name, visit->learn, &field);
        if (rc < 0)
            return rc;
        if (!field || field->seen == row + 1ull)
            continue; /* of a name that stands twice the first counts */
        field->seen = row + 1ull;
        value = attribute_typed(field->declared, value);
        rc = value.kind == VALUE_NONE ? 0 : visit->field(w, row, field, &value);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int visit_row(struct writer *w, uint32_t row, const char *text, uint32_t bytes, const struct row_visitor *visit)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants = 0, at = 0;
    struct grant grant;
    if (grants_split(text, bytes, &json, &json_bytes, &n_grants) < 0)
        return error_set(w->err, QUIRE_ECORRUPT, "the grants of row %u are damaged", row);
    w->any |= bytes > 0;
    while (visit->grant && n_grants && grants_next(text, bytes, &at, &grant)) {
        int rc = visit->grant(w, row, &grant);
        if (rc < 0)
            return rc;
    }
    return visit->field && json_bytes ? visit_json(w, row, json, json_bytes, visit) : 0;
}

static int visit_rows(struct writer *w, const struct row_visitor *visit)
{
    int rc = 0;
    for (uint32_t i = 0; i < w->names.n; i++)
        w->fields[i].seen = 0;
    for (uint32_t row = 0; rc == 0 && row < w->n_rows; row++) {
        const char *text = NULL;
        uint32_t bytes = 0;
        rc = w->source(w->context, row, &text, &bytes, w->err);
        if (rc == 0 && bytes)
            rc = visit_row(w, row, text, bytes, visit);
    }
    return rc;
}

static int count_field(struct writer *w, uint32_t row, struct field *field, const struct json_value *value)
{
    (void)w;
    (void)row;
    field->rows++;
    field->values++;
    if (value->kind == VALUE_LIST) {
        struct json_walk walk;
        struct json_value member;
        json_walk_list(&walk, value);
        while (json_next(&walk, NULL, &member))
            field->values++;
    }
    return 0;
}

/* The tenant of a grant, new ones are added; NULL: the row was granted to it before. */
static int find_tenant(struct writer *w, uint32_t row, const struct grant *grant, struct granted **out)
{
    uint8_t name[4 + TENANT_BYTES_MAX];
    uint32_t before = w->tenants.n, number = 0;
    assert(grant->bytes > 0 && grant->bytes <= TENANT_BYTES_MAX); /* grants_split */
    bytes_store_u32(name, grant->generation);
    memcpy(name + 4, grant->name, grant->bytes);
    if (!array_reserve(&w->granted, &w->granted_capacity, before + 1u) ||
        texts_add(&w->tenants, name, 4 + grant->bytes, &number) < 0)
        return QUIRE_ENOMEM;
    struct granted *granted = &w->granted[number];
    if (w->tenants.n > before)
        *granted = (struct granted){0};
    *out = granted->seen == row + 1ull ? NULL : granted;
    granted->seen = row + 1ull;
    return 0;
}

static int count_grant(struct writer *w, uint32_t row, const struct grant *grant)
{
    struct granted *granted = NULL;
    int rc = find_tenant(w, row, grant, &granted);
    if (granted) {
        granted->n++;
        w->n_grants++;
    }
    return rc;
}

static int keep_grant(struct writer *w, uint32_t row, const struct grant *grant)
{
    struct granted *granted = NULL;
    int rc = find_tenant(w, row, grant, &granted);
    if (granted)
        w->granted_rows[granted->at++] = row;
    return rc;
}

static int compare_texts(const struct texts *t, uint32_t x, uint32_t y)
{
    uint32_t x_bytes, y_bytes;
    const uint8_t *a = texts_get(t, x, &x_bytes), *b = texts_get(t, y, &y_bytes);
    return format_compare_bytes(a, x_bytes, b, y_bytes);
}

/* Declared ones first, then what most rows have. */
static int by_worth(const void *a, const void *b, void *context)
{
    const struct field *x = *(struct field *const *)a, *y = *(struct field *const *)b;
    if (!x->declared != !y->declared)
        return x->declared ? -1 : 1;
    if (x->rows != y->rows)
        return x->rows > y->rows ? -1 : 1;
    return compare_texts(context, x->number, y->number);
}

static int choose(struct writer *w)
{
    uint32_t learnt = 0, n = 0;
    w->chosen = malloc(sizeof(struct field *) * (w->names.n + 1u));
    w->collectors = calloc(w->names.n + 1u, sizeof *w->collectors);
    if (!w->chosen || !w->collectors)
        return QUIRE_ENOMEM;
    /* one without values (all are of other types than declared, or none is well-formed) is empty: quire_verify then
     * knows that no row has any */
    for (; n < w->names.n; n++)
        w->chosen[n] = &w->fields[n];
    qsort_r(w->chosen, n, sizeof(struct field *), by_worth, &w->names);
    for (uint32_t i = 0; i < n; i++) {
        if (!w->chosen[i]->declared && learnt++ == COLUMNS_LEARNT_MAX) {
            w->complete = false;
            break;
        }
        w->collectors[i].field = w->chosen[i];
        w->chosen[i]->chosen = ++w->n_chosen;
    }
    return 0;
}

/* ---- then: values ------------------------------------------------------------------------------------------------ */

static uint64_t learnt_share(const struct writer *w, uint32_t per_row)
{
    uint64_t share = (uint64_t)per_row * w->n_rows;
    return share > LEARNT_BYTES_LEAST ? share : LEARNT_BYTES_LEAST;
}

static int add_bit(const struct writer *w, uint64_t **bits, uint32_t row)
{
    if (!*bits)
        *bits = calloc(w->n_rows / 64u + 1, sizeof **bits);
    if (!*bits)
        return QUIRE_ENOMEM;
    (*bits)[row / 64] |= 1ull << row % 64;
    return 0;
}

static void leave_out(struct collected *c)
{
    c->left_out = true;
    texts_fini(&c->texts);
    free(c->numbers);
    c->numbers = NULL;
    c->n = c->capacity = 0;
}

static int keep_text(struct writer *w, struct collected *c, bool learnt, uint32_t row, const struct json_value *value)
{
    uint32_t bytes = 0, number = 0;
    const char *text = plain_text(w, value, &bytes);
    if (!text || !array_reserve(&c->words, &c->capacity, c->n + 1) || texts_add(&c->texts, text, bytes, &number) < 0)
        return QUIRE_ENOMEM;
    c->words[c->n++] = (struct text_entry){number, row};
    if (c->texts.heap.n > AREA_BYTES_MAX || (learnt && c->texts.heap.n > learnt_share(w, COLUMN_BYTES_PER_ROW)))
        leave_out(c);
    return 0;
}

/* A number, bool or string, of the row itself or of its list. */
static int keep_single(struct writer *w, struct collector *to, uint32_t row, const struct json_value *value,
                       bool member)
{
    bool text = value->kind == VALUE_STRING;
    struct collected *c = &to->tables[(member ? TABLE_MEMBER_NUMBERS : TABLE_NUMBERS) + text];
    int rc = add_bit(w, &c->rows, row);
    if (rc < 0 || c->left_out)
        return rc;
    if (text)
        return keep_text(w, c, !to->field->declared, row, value);
    if (!array_reserve(&c->numbers, &c->capacity, c->n + 1))
        return QUIRE_ENOMEM;
    c->numbers[c->n++] = (struct number_entry){value->number, row};
    return 0;
}

static bool is_single(const struct json_value *value)
{
    return value->kind == VALUE_NUMBER || value->kind == VALUE_BOOL || value->kind == VALUE_STRING;
}

static int keep_list(struct writer *w, struct collector *to, uint32_t row, const struct json_value *list)
{
    struct json_walk walk;
    struct json_value member;
    int rc = add_bit(w, &to->rows[ROWS_LIST], row);
    json_walk_list(&walk, list);
    while (rc == 0 && json_next(&walk, NULL, &member))
        rc = is_single(&member) ? keep_single(w, to, row, &member, true) : add_bit(w, &to->rows[ROWS_ODD], row);
    return rc;
}

static int keep_field(struct writer *w, uint32_t row, struct field *field, const struct json_value *value)
{
    if (field->chosen <= w->first || field->chosen > w->end)
        return 0;
    struct collector *to = &w->collectors[field->chosen - 1];
    assert(to->field == field && row < w->n_rows);
    if (value->kind == VALUE_LIST)
        return keep_list(w, to, row, value);
    if (is_single(value))
        return keep_single(w, to, row, value, false);
    return add_bit(w, &to->rows[value->kind == VALUE_NULL ? ROWS_NULL : ROWS_OBJECT], row);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A table as it is written. */
struct table_out {
    uint32_t n, width, n_marks;
    double base;
    struct column_buffer values, text_groups, set_groups, sets, marks;
    uint32_t *rows;  /* by value; owned */
    uint64_t *ends;  /* per value the end of its rows; owned */
    uint64_t *below; /* bits: rows of the values so far; owned */
};

static void table_out_fini(struct table_out *t)
{
    free(t->values.at);
    free(t->text_groups.at);
    free(t->set_groups.at);
    free(t->sets.at);
    free(t->marks.at);
    free(t->rows);
    free(t->ends);
    free(t->below);
    memset(t, 0, sizeof *t);
}

static int by_number(const void *a, const void *b)
{
    const struct number_entry *x = a, *y = b;
    int order = column_numbers_compare(x->number, y->number);
    if (order)
        return order;
    return (x->row > y->row) - (x->row < y->row);
}

/* Whole numbers that are near each other need few bytes. */
static void choose_width(struct table_out *t, const struct number_entry *entries, uint64_t n)
{
    double least = entries[0].number, range = entries[n - 1].number - least;
    assert(n > 0 && !(range < 0)); /* in order */
    t->width = 8;
    if (!(fabs(least) < 9e15) || !(range <= UINT32_MAX))
        return;
    for (uint64_t i = 0; i < n; i++)
        if (entries[i].number != floor(entries[i].number) || column_numbers_compare(entries[i].number, -0.0) == 0)
            return;
    t->base = least;
    t->width = range < 256 ? 1 : range < 65536 ? 2 : 4;
}

static void put_number(struct table_out *t, double number)
{
    uint8_t bytes[8];
    uint64_t stored;
    if (t->width == 8)
        memcpy(&stored, &number, sizeof stored);
    else
        stored = (uint64_t)(number - t->base);
    bytes_store_u64(bytes, stored);
    column_buffer_put(&t->values, bytes, t->width);
}

/* Values in order with the ends of their rows, and the rows. */
static void order_numbers(struct table_out *t, struct collected *c)
{
    struct number_entry *entries = c->numbers;
    qsort(entries, c->n, sizeof *entries, by_number);
    choose_width(t, entries, c->n);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < c->n; i++) {
        bool again = i && column_numbers_compare(entries[i].number, entries[i - 1].number) == 0;
        if (again && entries[i].row == entries[i - 1].row)
            continue;
        if (!again) {
            put_number(t, entries[i].number);
            t->n++;
        }
        t->rows[kept++] = entries[i].row;
        t->ends[t->n - 1] = kept;
    }
}

static int by_text(const void *a, const void *b, void *texts)
{
    return compare_texts(texts, *(const uint32_t *)a, *(const uint32_t *)b);
}

static int order_texts(struct table_out *t, struct collected *c)
{
    const struct text_entry *entries = c->words;
    uint32_t *order = malloc(sizeof *order * c->texts.n), *place = malloc(sizeof *place * c->texts.n);
    int rc = order && place ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < c->texts.n; i++)
        order[i] = i;
    if (rc == 0)
        qsort_r(order, c->texts.n, sizeof *order, by_text, &c->texts);
    for (uint32_t i = 0; rc == 0 && i < c->texts.n; i++) {
        uint32_t bytes;
        const uint8_t *text = texts_get(&c->texts, order[i], &bytes);
        place[order[i]] = i;
        if (i % TABLE_GROUP == 0)
            column_buffer_put_u32(&t->text_groups, (uint32_t)t->values.n);
        column_buffer_put_varint(&t->values, bytes);
        column_buffer_put(&t->values, text, bytes);
        t->ends[i] = 0;
    }
    /* rows by value: how many, where they begin, and each to its place, after which that is the end */
    for (uint64_t i = 0; rc == 0 && i < c->n; i++)
        t->ends[place[entries[i].text]]++;
    uint64_t at = 0;
    for (uint32_t i = 0; rc == 0 && i < c->texts.n; i++) {
        at += t->ends[i];
        t->ends[i] = at - t->ends[i];
    }
    for (uint64_t i = 0; rc == 0 && i < c->n; i++)
        t->rows[t->ends[place[entries[i].text]]++] = entries[i].row;
    t->n = rc == 0 ? c->texts.n : 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): every row has one of at least one text */
    assert(rc < 0 || (at == c->n && t->ends[t->n - 1] == c->n));
    free(order);
    free(place);
    return rc;
}

/* The set of value i; of a list that holds it twice the row stands there once. */
static void put_set(struct table_out *t, uint32_t i)
{
    uint64_t from = i ? t->ends[i - 1] : 0;
    assert(from < t->ends[i]); /* no value without a row */
    struct row_view view = {.rows = t->rows + from, .n = 0};
    for (uint64_t at = from; at < t->ends[i]; at++)
        if (view.n == 0 || t->rows[at] != t->rows[from + view.n - 1])
            t->rows[from + view.n++] = t->rows[at];
    if (i % TABLE_GROUP == 0)
        column_buffer_put_u32(&t->set_groups, (uint32_t)t->sets.n);
    row_set_put(&t->sets, &view);
    for (uint64_t at = 0; t->below && at < view.n; at++)
        t->below[view.rows[at] / 64] |= 1ull << view.rows[at] % 64;
}

static void put_sets(struct table_out *t, uint64_t n_rows)
{
    uint64_t step = t->ends[t->n - 1] / (TABLE_MARKS + 1) + 1, marked = 0;
    struct row_view below = {.bits = t->below, .n = (n_rows + 63) / 64};
    assert(t->n > 0);
    for (uint32_t i = 0; i < t->n; i++) {
        put_set(t, i);
        if (!t->below || t->ends[i] - marked < step || i == t->n - 1)
            continue;
        column_buffer_put_u32(&t->marks, i + 1);
        row_set_put(&t->marks, &below);
        marked = t->ends[i];
        t->n_marks++;
    }
}

/* The table of what was collected. Values that take too much space are left out. */
static int make_table(struct writer *w, const struct collector *from, enum table_kind kind, struct table_out *t)
{
    struct collected *c = (struct collected *)&from->tables[kind];
    bool texts = kind == TABLE_TEXTS || kind == TABLE_MEMBER_TEXTS;
    int rc = 0;
    if (c->n == 0)
        return 0;
    t->rows = malloc(sizeof *t->rows * c->n);
    t->ends = malloc(sizeof *t->ends * (texts ? c->texts.n : c->n));
    if (!t->rows || !t->ends)
        return QUIRE_ENOMEM;
    if (texts)
        rc = order_texts(t, c);
    else
        order_numbers(t, c);
    if (rc == 0 && kind == TABLE_NUMBERS && t->n >= TABLE_VALUES_MARKS) {
        t->below = calloc(w->n_rows / 64u + 1, sizeof *t->below);
        rc = t->below ? 0 : QUIRE_ENOMEM;
    }
    if (rc < 0)
        return rc;
    put_sets(t, w->n_rows);
    if (t->values.failed || t->text_groups.failed || t->set_groups.failed || t->sets.failed || t->marks.failed)
        return QUIRE_ENOMEM;
    uint64_t bytes = t->values.n + t->text_groups.n + t->set_groups.n + t->sets.n + t->marks.n;
    uint64_t most = learnt_share(w, COLUMN_BYTES_PER_ROW);
    bool learnt = !from->field->declared;
    if (t->values.n > AREA_BYTES_MAX || t->sets.n > AREA_BYTES_MAX ||
        (learnt && (bytes > most || bytes > w->learnt_left)))
        table_out_fini(t);
    else if (learnt)
        w->learnt_left -= bytes;
    return 0;
}

static void put_bits(struct column_buffer *out, const uint64_t *bits, uint32_t n_rows)
{
    struct row_view view = {.bits = bits, .n = bits ? n_rows / 64u + 1 : 0};
    row_set_put(out, &view);
}

static void put_table(struct column_buffer *record, size_t header_at, const struct table_out *t, const uint64_t *rows,
                      uint32_t n_rows)
{
    uint64_t base;
    memcpy(&base, &t->base, sizeof base);
    column_buffer_put(record, t->values.at, t->values.n);
    column_buffer_put(record, t->text_groups.at, t->text_groups.n);
    column_buffer_put(record, t->set_groups.at, t->set_groups.n);
    column_buffer_put(record, t->sets.at, t->sets.n);
    put_bits(record, rows, n_rows);
    column_buffer_put(record, t->marks.at, t->marks.n);
    if (record->failed)
        return;
    uint8_t *header = record->at + header_at;
    bytes_store_u32(header, t->n);
    bytes_store_u32(header + 4, t->width);
    bytes_store_u64(header + 8, base);
    bytes_store_u32(header + 16, (uint32_t)t->values.n);
    bytes_store_u32(header + 20, (uint32_t)t->sets.n);
    bytes_store_u32(header + 24, t->n_marks);
}

static void collector_fini(struct collector *c)
{
    for (unsigned i = 0; i < TABLES; i++) {
        leave_out(&c->tables[i]);
        free(c->tables[i].rows);
        c->tables[i].rows = NULL;
    }
    for (unsigned i = 0; i < ROW_KINDS; i++) {
        free(c->rows[i]);
        c->rows[i] = NULL;
    }
}

/* Makes the record; what was collected has served then. */
static int make_record(struct writer *w, struct collector *c)
{
    static const uint8_t header[COLUMN_HEADER_BYTES];
    struct column_buffer *record = &c->record;
    uint32_t name_bytes;
    const uint8_t *name = texts_get(&w->names, c->field->number, &name_bytes);
    column_buffer_put(record, header, sizeof header);
    column_buffer_put(record, name, name_bytes);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < TABLES; i++) {
        struct table_out table = {0};
        rc = make_table(w, c, (enum table_kind)i, &table);
        assert(rc < 0 || table.n == 0 || !c->tables[i].left_out);
        if (rc == 0)
            put_table(record, 16 + (size_t)COLUMN_TABLE_BYTES * i, &table, c->tables[i].rows, w->n_rows);
        table_out_fini(&table);
    }
    for (unsigned i = 0; i < ROW_KINDS; i++)
        put_bits(record, c->rows[i], w->n_rows);
    if (rc < 0 || record->failed)
        return QUIRE_ENOMEM;
    bytes_store_u64(record->at, record->n);
    bytes_store_u32(record->at + 8, c->field->declared ? c->field->declared->type : QUIRE_COLUMN_LEARNT);
    bytes_store_u32(record->at + 12, name_bytes);
    collector_fini(c);
    return 0;
}

/* The chosen from `first` on whose values fit in memory together. */
static uint32_t fit(const struct writer *w, uint32_t first)
{
    uint64_t bytes = 0;
    uint32_t end = first;
    for (; end < w->n_chosen; end++) {
        bytes += w->chosen[end]->values * (sizeof(struct number_entry) + sizeof(uint32_t));
        if (bytes > COLLECT_BYTES && end > first)
            break;
    }
    return end;
}

static int collect(struct writer *w)
{
    uint64_t at = 0;
    w->granted_rows = malloc(sizeof *w->granted_rows * (w->n_grants + 1));
    if (!w->granted_rows)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < w->tenants.n; i++) {
        w->granted[i].at = at;
        w->granted[i].seen = 0;
        at += w->granted[i].n;
    }
    do {
        w->end = fit(w, w->first);
        assert(w->end > w->first || w->n_chosen == 0);
        struct row_visitor visit = {.field = w->n_chosen ? keep_field : NULL, .grant = w->first ? NULL : keep_grant};
        int rc = visit_rows(w, &visit);
        for (; rc == 0 && w->first < w->end; w->first++)
            rc = make_record(w, &w->collectors[w->first]);
        if (rc < 0)
            return rc;
    } while (w->first < w->n_chosen);
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int write_header(const struct writer *w, struct section_writer *file)
{
    uint8_t header[COLUMNS_HEADER_BYTES] = {0};
    bytes_store_u32(header, w->n_chosen);
    bytes_store_u32(header + 4, w->complete ? COLUMNS_COMPLETE : 0);
    bytes_store_u32(header + 8, w->tenants.n);
    bytes_store_u64(header + 16, w->n_grants);
    return section_put(file, COLUMNS_HEADER, header, sizeof header, w->err);
}

static int by_name(const void *a, const void *b, void *context)
{
    const struct collector *x = a, *y = b;
    return compare_texts(context, x->field->number, y->field->number);
}

static int write_records(struct writer *w, struct section_writer *file)
{
    assert(w->first == w->n_chosen); /* each has its record */
    qsort_r(w->collectors, w->n_chosen, sizeof *w->collectors, by_name, &w->names);
    int rc = section_begin(file, COLUMNS_RECORDS, 0, w->err);
    for (uint32_t i = 0; rc == 0 && i < w->n_chosen; i++)
        rc = section_write(file, w->collectors[i].record.at, w->collectors[i].record.n, w->err);
    return rc == 0 ? section_end(file, w->err) : rc;
}

static int by_tenant(const void *a, const void *b, void *texts)
{
    uint32_t x_bytes, y_bytes;
    const uint8_t *x = texts_get(texts, *(const uint32_t *)a, &x_bytes);
    const uint8_t *y = texts_get(texts, *(const uint32_t *)b, &y_bytes);
    int order = format_compare_bytes(x + 4, x_bytes - 4, y + 4, y_bytes - 4);
    return order ? order : (bytes_load_u32(x) > bytes_load_u32(y)) - (bytes_load_u32(x) < bytes_load_u32(y));
}

static void put_tenant(const struct writer *w, uint32_t number, struct column_buffer *out)
{
    uint32_t bytes;
    const uint8_t *name = texts_get(&w->tenants, number, &bytes);
    const struct granted *granted = &w->granted[number];
    assert(granted->n > 0 && granted->at >= granted->n && granted->at <= w->n_grants); /* collect has kept all */
    struct row_view view = {.rows = w->granted_rows + granted->at - granted->n, .n = granted->n};
    column_buffer_put_varint(out, bytes - 4);
    column_buffer_put(out, name + 4, bytes - 4);
    column_buffer_put_varint(out, bytes_load_u32(name));
    row_set_put(out, &view);
}

static int write_tenants(struct writer *w, struct section_writer *file)
{
    struct column_buffer groups = {0}, tenants = {0};
    uint32_t *order = malloc(sizeof *order * (w->tenants.n + 1u));
    int rc = order ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < w->tenants.n; i++)
        order[i] = i;
    if (rc == 0)
        qsort_r(order, w->tenants.n, sizeof *order, by_tenant, &w->tenants);
    for (uint32_t i = 0; rc == 0 && i < w->tenants.n; i++) {
        uint8_t at[8];
        bytes_store_u64(at, tenants.n);
        if (i % TENANT_GROUP == 0)
            column_buffer_put(&groups, at, sizeof at);
        put_tenant(w, order[i], &tenants);
    }
    if (rc == 0 && (groups.failed || tenants.failed))
        rc = QUIRE_ENOMEM;
    if (rc == 0)
        rc = section_put(file, COLUMNS_TENANT_GROUPS, groups.at, groups.n, w->err);
    if (rc == 0)
        rc = section_put(file, COLUMNS_TENANTS, tenants.at, tenants.n, w->err);
    free(order);
    free(groups.at);
    free(tenants.at);
    return rc;
}

static void writer_fini(struct writer *w)
{
    for (uint32_t i = 0; w->collectors && i < w->n_chosen; i++) {
        collector_fini(&w->collectors[i]);
        free(w->collectors[i].record.at);
    }
    free(w->collectors);
    free(w->chosen);
    free(w->fields);
    free(w->granted);
    free(w->granted_rows);
    free(w->scratch);
    texts_fini(&w->names);
    texts_fini(&w->tenants);
}

int columns_write(struct io_fs *fs, const char *path, const uint8_t segment_id[16], uint32_t n_rows,
                  const struct attribute_schema *schema, uint64_t learnt_bytes_max, columns_source *source,
                  void *context, bool *written, struct quire_error *err)
{
    static const struct row_visitor first = {.field = count_field, .grant = count_grant, .learn = true};
    struct writer w = {.schema = schema, .source = source, .context = context, .n_rows = n_rows, .err = err};
    struct section_writer *file = NULL;
    w.complete = true;
    w.learnt_left = learnt_share(&w, LEARNT_BYTES_PER_ROW);
    w.learnt_left = w.learnt_left < learnt_bytes_max ? w.learnt_left : learnt_bytes_max;
    w.fields = malloc(sizeof *w.fields * (FIELDS_MAX + ATTRIBUTE_COLUMNS_MAX));
    int rc = w.fields ? visit_rows(&w, &first) : QUIRE_ENOMEM;
    if (rc < 0 || !w.any)
        goto out;
    rc = choose(&w);
    if (rc == 0)
        rc = collect(&w);
    if (rc == 0)
        rc = section_writer_create(fs, path, FILE_COLUMNS, segment_id, &file, err);
    if (rc == 0)
        rc = write_header(&w, file);
    if (rc == 0)
        rc = write_records(&w, file);
    if (rc == 0)
        rc = write_tenants(&w, file);
    rc = section_writer_conclude(file, rc, err);
out:
    if (rc == 0)
        *written = w.any;
    else if (rc == QUIRE_ENOMEM)
        error_set(err, rc, "no memory for the columns of %u rows", n_rows);
    writer_fini(&w);
    return rc;
}
