/*
 * column_rows.c - columns by rows: making them, keeping the last of them, reading pieces of them.
 *
 * Two forms. Where a column has few different values (a code of 16 bits can name each), a row has the code of its
 * value, two bytes, and tables say what number and what kind that is. Where it has more, a row has its number, eight
 * bytes. A column never holds NaN, so what is no number is one whose low half is the code: 0 to CODE_FIRST - 1 for what
 * has no value of its own, then the texts.
 *
 * Reading is a gather from a small table or a copy, a chunk at a time: nothing is as large as the segment but what is
 * kept. The lock of what is kept is held for a look along a short list, never over the making: two lanes that miss at
 * once both make theirs, and the second finds the first one's.
 */
#include "index/column/column_rows.h"
#include "index/attribute/filter_rows.h"
#include "index/column/columns_priv.h"
#include "io/memory.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define CODES_MAX 65536u
#define NAN_BITS  0x7ff8000000000000ull

/* Codes; texts follow, then in the short form numbers. LIST: also of values that were left out of the column. */
enum { CODE_MISSING, CODE_OBJECT, CODE_NULL, CODE_LIST, CODE_FIRST };

struct row_text {
    const char *text;
    uint32_t bytes;
};

struct column_rows {
    atomic_uint references;
    const struct column *column;
    uint64_t n_rows;
    uint32_t n_codes;
    bool are_numbers, have_gaps, are_whole; /* are_whole: all numbers that there are */
    double most;                            /* the greatest magnitude of a number */
    uint16_t *codes;                        /* of each row; NULL: row_numbers */
    double *row_numbers;                    /* of each row, or NaN with a code */
    double *numbers;                        /* of each code */
    uint8_t *kinds;                         /* of each code */
    struct row_text *texts; /* of each code - CODE_FIRST that is a text; NULL with row_numbers: looked up */
    uint64_t bytes;
    struct column_rows *next; /* kept */
    uint64_t used;
};

struct kept_rows {
    pthread_mutex_t lock;
    struct column_rows *first;
    uint64_t bytes_max, clock;
    atomic_uint_fast64_t bytes;
};

static uint32_t texts_of(const struct column *c)
{
    return c->tables[TABLE_TEXTS].n;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static double boxed(uint32_t code)
{
    uint64_t bits = NAN_BITS | code;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static uint32_t unboxed(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint32_t)bits;
}

/* The rows of a set have a code, or in the long form a number; buffer: room for the set. */
static void mark(struct column_rows *r, const struct row_set *set, uint32_t code, double number, uint32_t *buffer)
{
    row_set_rows(set, buffer);
    for (uint32_t i = 0; r->codes && i < set->n; i++)
        r->codes[buffer[i]] = (uint16_t)code;
    for (uint32_t i = 0; r->row_numbers && i < set->n; i++)
        r->row_numbers[buffer[i]] = number;
}

static void mark_table(struct column_rows *r, enum table_kind kind, uint32_t *buffer)
{
    const struct column_table *table = &r->column->tables[kind];
    bool texts = kind == TABLE_TEXTS, in_tables = texts || r->codes;
    uint32_t code = CODE_FIRST + (texts ? 0 : texts_of(r->column));
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    if (table->n == 0 && table->rows.n) {
        mark(r, &table->rows, CODE_LIST, boxed(CODE_LIST), buffer);
        r->have_gaps = true;
    }
    column_walk_from(&walk, table, 0);
    for (; column_walk_next(&walk, &value, &set); code++) {
        mark(r, &set, code, texts ? boxed(code) : value.number, buffer);
        if (!texts) {
            r->are_whole = r->are_whole && value.number == trunc(value.number);
            r->most = fmax(r->most, fabs(value.number));
        }
        if (in_tables) {
            r->numbers[code] = filter_number_of(&value);
            r->kinds[code] = (uint8_t)value.kind;
        }
        if (texts && r->texts)
            r->texts[code - CODE_FIRST] = (struct row_text){value.text, value.bytes};
    }
}

static uint32_t largest_set(const struct column *c)
{
    const struct row_set *sets[] = {&c->objects, &c->nulls, &c->lists, &c->tables[TABLE_NUMBERS].rows,
                                    &c->tables[TABLE_TEXTS].rows};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        most = sets[i]->n > most ? sets[i]->n : most;
    return most;
}

/* Without memory false, and what there is is freed by the caller. */
static bool reserve(struct column_rows *r)
{
    uint64_t all = (uint64_t)CODE_FIRST + texts_of(r->column) + r->column->tables[TABLE_NUMBERS].n;
    bool is_short = all <= CODES_MAX;
    r->n_codes = is_short ? (uint32_t)all : CODE_FIRST + texts_of(r->column);
    if (is_short) {
        r->codes = calloc(r->n_rows + 1, sizeof *r->codes);
        r->texts = malloc(memory_size_mul(texts_of(r->column) + 1ull, sizeof *r->texts));
        r->bytes = r->n_rows * sizeof *r->codes + texts_of(r->column) * sizeof *r->texts;
    } else {
        r->row_numbers = malloc(memory_size_mul(r->n_rows + 1, sizeof *r->row_numbers));
        r->bytes = r->n_rows * sizeof *r->row_numbers;
    }
    for (uint64_t row = 0; r->row_numbers && row < r->n_rows; row++)
        r->row_numbers[row] = boxed(CODE_MISSING);
    r->numbers = calloc(r->n_codes, sizeof *r->numbers);
    r->kinds = calloc(r->n_codes, sizeof *r->kinds);
    r->bytes += sizeof *r + r->n_codes * (sizeof *r->numbers + sizeof *r->kinds);
    return (is_short ? r->codes && r->texts : r->row_numbers != NULL) && r->numbers && r->kinds;
}

static int make(const struct columns *columns, const struct column *column, struct column_rows **out)
{
    struct column_rows *r = calloc(1, sizeof *r);
    uint32_t *buffer = malloc(memory_size_mul(largest_set(column) + 1ull, sizeof *buffer));
    if (r) {
        atomic_init(&r->references, 1);
        r->column = column;
        r->n_rows = columns->n_rows;
        r->are_whole = true;
    }
    if (!r || !buffer || !reserve(r)) {
        column_rows_unref(r);
        free(buffer);
        return QUIRE_ENOMEM;
    }
    r->kinds[CODE_MISSING] = VALUE_NONE;
    r->kinds[CODE_OBJECT] = VALUE_OBJECT;
    r->kinds[CODE_NULL] = VALUE_NULL;
    r->kinds[CODE_LIST] = VALUE_LIST;
    mark(r, &column->objects, CODE_OBJECT, boxed(CODE_OBJECT), buffer);
    mark(r, &column->nulls, CODE_NULL, boxed(CODE_NULL), buffer);
    mark(r, &column->lists, CODE_LIST, boxed(CODE_LIST), buffer);
    mark_table(r, TABLE_NUMBERS, buffer);
    mark_table(r, TABLE_TEXTS, buffer);
    r->are_numbers = column->tables[TABLE_NUMBERS].n && column->tables[TABLE_NUMBERS].rows.n == r->n_rows;
    free(buffer);
    *out = r;
    return 0;
}

void column_rows_unref(struct column_rows *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) != 1)
        return;
    free(r->codes);
    free(r->row_numbers);
    free(r->numbers);
    free(r->kinds);
    free(r->texts);
    free(r);
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

struct kept_rows *column_rows_keep_create(uint64_t bytes_max)
{
    struct kept_rows *kept = calloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    pthread_mutex_init(&kept->lock, NULL);
    kept->bytes_max = bytes_max;
    return kept;
}

void column_rows_keep_destroy(struct kept_rows *kept)
{
    if (!kept)
        return;
    while (kept->first) {
        struct column_rows *gone = kept->first;
        kept->first = gone->next;
        column_rows_unref(gone);
    }
    pthread_mutex_destroy(&kept->lock);
    free(kept);
}

uint64_t column_rows_kept_bytes(const struct kept_rows *kept)
{
    return atomic_load_explicit(&kept->bytes, memory_order_relaxed);
}

/* (lock) The column's, with a reference; NULL: it is not kept. */
static struct column_rows *find(struct kept_rows *kept, const struct column *column)
{
    struct column_rows *r = kept->first;
    while (r && r->column != column)
        r = r->next;
    if (r) {
        r->used = ++kept->clock;
        atomic_fetch_add_explicit(&r->references, 1, memory_order_relaxed);
    }
    return r;
}

/* (lock) Takes out the one that was asked for longest ago. */
static struct column_rows *take_oldest(struct kept_rows *kept)
{
    struct column_rows **oldest = &kept->first;
    assert(kept->first);
    for (struct column_rows **at = &kept->first; *at; at = &(*at)->next)
        if ((*at)->used < (*oldest)->used)
            oldest = at;
    struct column_rows *r = *oldest;
    *oldest = r->next;
    atomic_fetch_sub_explicit(&kept->bytes, r->bytes, memory_order_relaxed);
    return r;
}

/* Keeps it, if it fits at all and nobody else's is kept; r is the caller's as before. */
static void keep(struct kept_rows *kept, struct column_rows *r)
{
    struct column_rows *gone = NULL, *other;
    if (r->bytes > kept->bytes_max)
        return;
    pthread_mutex_lock(&kept->lock);
    other = find(kept, r->column);
    while (!other && atomic_load_explicit(&kept->bytes, memory_order_relaxed) + r->bytes > kept->bytes_max) {
        struct column_rows *oldest = take_oldest(kept);
        oldest->next = gone;
        gone = oldest;
    }
    if (!other) {
        r->used = ++kept->clock;
        r->next = kept->first;
        kept->first = r;
        atomic_fetch_add_explicit(&r->references, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&kept->bytes, r->bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&kept->lock);
    column_rows_unref(other);
    while (gone) {
        struct column_rows *next = gone->next;
        column_rows_unref(gone);
        gone = next;
    }
}

int column_rows_get(const struct columns *columns, const struct column *column, struct column_rows **out)
{
    struct kept_rows *kept = columns->kept;
    assert(column >= columns->columns && column < columns->columns + columns->n_columns);
    pthread_mutex_lock(&kept->lock);
    struct column_rows *r = find(kept, column);
    pthread_mutex_unlock(&kept->lock);
    if (!r) {
        int rc = make(columns, column, &r);
        if (rc < 0)
            return rc;
        keep(kept, r);
    }
    *out = r;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

bool column_rows_are_numbers(const struct column_rows *r)
{
    return r->are_numbers;
}

double column_rows_whole_max(const struct column_rows *r)
{
    assert(r->are_numbers);
    return r->are_whole ? fmax(r->most, 1) : 0;
}

bool column_rows_have_gaps(const struct column_rows *r)
{
    return r->have_gaps;
}

static void load_codes(const struct column_rows *r, const uint32_t *rows, uint64_t first, uint32_t n, double *numbers,
                       uint8_t *kinds)
{
    const uint16_t *codes = r->codes + (rows ? 0 : first);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t code = codes[rows ? rows[i] : i];
        numbers[i] = r->numbers[code];
        if (kinds)
            kinds[i] = r->kinds[code];
    }
}

static void load_numbers(const struct column_rows *r, const uint32_t *rows, uint64_t first, uint32_t n, double *numbers,
                         uint8_t *kinds)
{
    const double *from = r->row_numbers + (rows ? 0 : first);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = from[rows ? rows[i] : i];
    for (uint32_t i = 0; kinds && i < n; i++) {
        uint32_t code = isnan(numbers[i]) ? unboxed(numbers[i]) : r->n_codes;
        kinds[i] = VALUE_NUMBER;
        if (code < r->n_codes) {
            kinds[i] = r->kinds[code];
            numbers[i] = r->numbers[code];
        }
    }
}

void column_rows_load(const struct column_rows *r, const struct universe *universe, uint64_t first, uint32_t n,
                      double *numbers, uint8_t *kinds)
{
    const uint32_t *rows = universe->rows ? universe->rows + first : NULL;
    assert(first + n <= universe->n && (kinds || r->are_numbers));
    if (r->codes)
        load_codes(r, rows, first, n, numbers, kinds);
    else
        load_numbers(r, rows, first, n, numbers, kinds);
}

void column_rows_value(const struct column_rows *r, uint32_t row, struct json_value *out)
{
    uint32_t code = r->codes ? r->codes[row] : unboxed(r->row_numbers[row]);
    assert(code < r->n_codes && (code >= CODE_FIRST || code == CODE_LIST));
    *out = (struct json_value){.kind = VALUE_LIST, .text = ""};
    if (code == CODE_LIST)
        return;
    out->kind = VALUE_STRING;
    if (r->texts) {
        out->text = r->texts[code - CODE_FIRST].text;
        out->bytes = r->texts[code - CODE_FIRST].bytes;
    } else {
        out->text = column_table_text(&r->column->tables[TABLE_TEXTS], code - CODE_FIRST, &out->bytes);
    }
}
