/*
 * test_columns.c - the file of columns against its rows: what a filter leaves is what filter_matches says of each row,
 * whatever the attributes and the expression; tenants see their rows; a damaged file is refused, or answers as before.
 *
 * Attributes and expressions are drawn at random from words that meet often. Where columns cannot decide, the rows they
 * leave must be a superset, and the rest follows from filter_matches.
 */
#include "index/column/columns_priv.h"
#include "io/bytes.h"
#include "io/random.h"
#include "io/sections.h"
#include "tests/index/support_columns.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <inttypes.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

static const uint8_t segment_id[16] = "columns of tests";

/* ---- memory that is not there ------------------------------------------------------------------------------------ */

static unsigned fail_in; /* calls; 0: none fails */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"
#endif

/* ---- files ------------------------------------------------------------------------------------------------------- */

static struct columns *open_file(const char *path, uint32_t n)
{
    struct columns *columns = NULL;
    struct quire_error err = {0};
    int rc = columns_open(fs_real(), path, segment_id, n, &columns, &err);
    if (rc < 0)
        fail_msg("columns_open: %s", err.message);
    return columns;
}

static struct columns *write_and_open(struct support_table *t, const struct attribute_schema *schema, uint64_t learnt,
                                      const char *path)
{
    struct quire_error err = {0};
    bool written = false;
    unlink(path);
    int rc = columns_write(fs_real(), path, segment_id, t->n, schema, learnt, support_table_give, t, &written, &err);
    if (rc < 0)
        fail_msg("columns_write: %s", err.message);
    assert_true(written);
    return open_file(path, t->n);
}

/* ---- what is drawn ----------------------------------------------------------------------------------------------- */

static const char *const words[] = {"a", "ab", "abc", "b", "7", "", "2020-01-01", "z\\u00e9", "x\\\"y", "8.5", "Red"};
static const char *const fields[] = {"n", "s", "l", "mix", "t", "i", "flag", "rare", "many", "nosuch"};

/* Of rows only: what reads as a number, or does not, in some way of its own. */
static const char *const odd_words[] = {"nan",   "-nan",    "inf",      "-inf",           "-0",     "0x10", " 7",
                                        "1e999", "\\u0037", "7\\u0000", "\\ud83d\\ude00", "\\ud800"};

static const char *row_word(struct random *r)
{
    return random_below(r, 10) ? words[random_below(r, SUPPORT_COUNT(words))]
                               : odd_words[random_below(r, SUPPORT_COUNT(odd_words))];
}

static const char *word(struct random *r)
{
    return words[random_below(r, SUPPORT_COUNT(words))];
}

static void put_number(struct random *r, FILE *to)
{
    switch (random_below(r, 7)) {
    case 0:
        fprintf(to, "%d", (int)random_below(r, 10));
        break;
    case 1:
        fprintf(to, "%d", (int)random_below(r, 2000) - 1000);
        break;
    case 2:
        fprintf(to, "%.2f", (double)random_below(r, 1000) / 8);
        break;
    case 3:
        fprintf(to, "-0");
        break;
    case 4:
        fprintf(to, "%" PRIu64, random_next(r) >> random_below(r, 60));
        break;
    case 5:
        fprintf(to, "%s1e%s%d", random_below(r, 2) ? "-" : "", random_below(r, 2) ? "-" : "",
                (int)random_below(r, 999));
        break;
    default:
        fprintf(to, "1e%d", (int)random_below(r, 320));
    }
}

static void put_value(struct random *r, FILE *to, unsigned kinds)
{
    switch (random_below(r, kinds)) {
    case 0:
        put_number(r, to);
        break;
    case 1:
        fprintf(to, "\"%s\"", row_word(r));
        break;
    case 2:
        fputs(random_below(r, 2) ? "true" : "false", to);
        break;
    case 3:
        fputs("null", to);
        break;
    case 4:
        fputs("{\"x\":1}", to);
        break;
    case 5:
        fputs("tru", to);
        break;
    default:
        fputs("[", to);
        for (uint64_t n = random_below(r, 4); n > 0; n--) {
            put_value(r, to, random_below(r, 8) ? 3 : 7);
            fputs(n > 1 ? "," : "", to);
        }
        fputs("]", to);
    }
}

/* A field that has mostly values of one kind, now and then any. */
static void put_field(struct random *r, FILE *to, const char *name, unsigned row)
{
    if (random_below(r, 9) == 0) /* the same name */
        fprintf(to, "\"\\u00%02x%s\":", (unsigned)name[0], name + 1);
    else
        fprintf(to, "\"%s\":", name);
    if (random_below(r, 12) == 0)
        put_value(r, to, 9);
    else if (strcmp(name, "n") == 0)
        put_number(r, to);
    else if (strcmp(name, "s") == 0)
        fprintf(to, "\"%s\"", row_word(r));
    else if (strcmp(name, "l") == 0)
        fprintf(to, "[\"%s\",%d,\"%s\"]", row_word(r), (int)random_below(r, 9), row_word(r));
    else if (strcmp(name, "t") == 0)
        fprintf(to, "\"20%02u-0%u-11T0%u:00:00Z\"", row % 90 + 10, row % 9 + 1, (unsigned)random_below(r, 10));
    else if (strcmp(name, "i") == 0)
        fprintf(to, "%u", 1700000000 + (unsigned)random_below(r, 4000));
    else if (strcmp(name, "many") == 0)
        fprintf(to, "\"word %" PRIu64 "\"", random_below(r, 3000));
    else
        put_value(r, to, 9);
}

static char *random_json(struct random *r, uint32_t row)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    fputs("{", to);
    for (size_t i = 0; i + 1 < SUPPORT_COUNT(fields); i++)
        if (random_below(r, strcmp(fields[i], "rare") == 0 ? 200 : 2) == 0) {
            put_field(r, to, fields[i], row);
            fputs(",", to);
        }
    if (random_below(r, 20) == 0)
        put_field(r, to, fields[random_below(r, SUPPORT_COUNT(fields))], row); /* perhaps a second time */
    else
        fputs("\"last\":1", to);
    fputs(random_below(r, 50) ? "}" : " oops", to);
    fclose(to);
    return text;
}

static void random_table(struct random *r, uint32_t n, struct support_table *t)
{
    support_table_init(t, n);
    for (uint32_t row = 0; row < n; row++) {
        char *json = random_below(r, 10) ? random_json(r, row) : NULL;
        support_table_put(t, row, NULL, 0, json);
        free(json);
    }
}

static void put_constant(struct random *r, FILE *to)
{
    if (random_below(r, 2))
        fprintf(to, "%d", (int)random_below(r, 10));
    else if (random_below(r, 3) == 0)
        fprintf(to, "%d", 1700000000 + (int)random_below(r, 4000));
    else
        fprintf(to, "\"%s\"", word(r));
}

/* A number out of two or three fields. */
static void put_arithmetic(struct random *r, FILE *to)
{
    static const char *const operators[] = {"+", "-", "*", "/", "%", "**"};
    fprintf(to, ".%s", fields[random_below(r, SUPPORT_COUNT(fields))]);
    for (uint64_t more = 1 + random_below(r, 2); more > 0; more--)
        fprintf(to, " %s .%s", operators[random_below(r, 6)], fields[random_below(r, SUPPORT_COUNT(fields))]);
}

static void put_condition(struct random *r, FILE *to)
{
    static const char *const compares[] = {"==", "!=", "<", "<=", ">", ">="};
    const char *field = fields[random_below(r, SUPPORT_COUNT(fields))];
    switch (random_below(r, 15)) {
    case 0:
        fprintf(to, "exists .%s", field);
        break;
    case 1:
        fprintf(to, ".%s %s null", field, compares[random_below(r, 2)]);
        break;
    case 2:
        put_constant(r, to);
        fprintf(to, " in .%s", field);
        break;
    case 3:
        fprintf(to, ".%s in [", field);
        put_constant(r, to);
        fputs(", ", to);
        put_constant(r, to);
        fputs("]", to);
        break;
    case 4:
        fprintf(to, ".%s prefix \"%s\"", field, word(r));
        break;
    case 5:
        fprintf(to, ".%s * 2 - 1 > %d", field, (int)random_below(r, 9));
        break;
    case 6:
        fprintf(to, ".%s %s .%s", field, compares[random_below(r, 6)], fields[random_below(r, SUPPORT_COUNT(fields))]);
        break;
    case 12:
        put_arithmetic(r, to);
        fprintf(to, " %s ", compares[random_below(r, 6)]);
        put_constant(r, to);
        break;
    case 13:
        put_arithmetic(r, to);
        fprintf(to, " in [1, \"7\", .5]");
        break;
    case 14:
        fprintf(to, ".%s %s .%s", field, random_below(r, 2) ? "in" : "prefix",
                fields[random_below(r, SUPPORT_COUNT(fields))]);
        break;
    case 7:
        fprintf(to, "1 / .%s > 0", field);
        break;
    case 8:
        fprintf(to, ".%s", field);
        break;
    case 9:
        fprintf(to, "key in [\"%d\", \"%d\"]", (int)random_below(r, 100), (int)random_below(r, 100));
        break;
    default:
        fprintf(to, ".%s %s ", field, compares[random_below(r, 6)]);
        put_constant(r, to);
    }
}

static void put_expression(struct random *r, FILE *to, unsigned depth)
{
    if (depth == 0 || random_below(r, 3) == 0) {
        put_condition(r, to);
        return;
    }
    if (random_below(r, 4) == 0)
        fputs("not ", to);
    fputs("(", to);
    put_expression(r, to, depth - 1);
    fputs(random_below(r, 2) ? ") and (" : ") or (", to);
    put_expression(r, to, depth - 1);
    fputs(")", to);
}

static struct filter *compile(const char *text, const struct attribute_schema *schema)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    if (filter_compile(text, strlen(text), schema, &filter, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return filter;
}

/* One that the schema lets pass: a word is no time. */
static struct filter *random_filter(struct random *r, const struct attribute_schema *schema)
{
    struct filter *filter = NULL;
    int rc = QUIRE_EPARSE;
    while (rc == QUIRE_EPARSE) {
        char *text = NULL;
        size_t bytes;
        FILE *to = open_memstream(&text, &bytes);
        put_expression(r, to, (unsigned)random_below(r, 4));
        fclose(to);
        rc = filter_compile(text, bytes, schema, &filter, NULL);
        free(text);
    }
    assert_int_equal(rc, 0);
    return filter;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static bool row_matches(const struct support_table *t, const struct filter *filter, uint32_t row)
{
    const char *json = NULL;
    char key[16];
    uint32_t bytes = 0, n_grants = 0;
    assert_int_equal(grants_split(t->texts[row], t->bytes[row], &json, &bytes, &n_grants), 0);
    int key_bytes = snprintf(key, sizeof key, "%u", row);
    return filter_matches(filter, json, bytes, key, (uint32_t)key_bytes);
}

/* The answer is exactly what matches, or where it is residual a superset. Returns whether it was residual. */
static bool check_select(const struct support_table *t, const struct columns *columns, const struct filter *filter,
                         const roaring_bitmap_t *within, const roaring_bitmap_t *keys)
{
    roaring_bitmap_t *rows = NULL;
    bool residual = false;
    uint32_t bytes;
    const char *text = filter_text(filter, &bytes);
    assert_int_equal(columns_select(columns, filter, within, keys, &rows, &residual), 0);
    for (uint32_t row = 0; row < t->n; row++) {
        bool in = roaring_bitmap_contains(rows, row);
        bool allowed = !within || roaring_bitmap_contains(within, row);
        bool wanted = allowed && row_matches(t, filter, row);
        if ((in != wanted && !(residual && in && allowed)) || (in && !allowed))
            fail_msg("%.*s: row %u (%.*s) is %s the answer%s", (int)bytes, text, row, (int)t->bytes[row], t->texts[row],
                     in ? "in" : "not in", residual ? " (residual)" : "");
    }
    assert_true(roaring_bitmap_is_empty(rows) || roaring_bitmap_maximum(rows) < t->n);
    roaring_bitmap_free(rows);
    return residual;
}

static roaring_bitmap_t *random_rows(struct random *r, uint32_t n_rows, uint64_t n)
{
    roaring_bitmap_t *rows = roaring_bitmap_create();
    for (uint64_t i = 0; i < n; i++)
        roaring_bitmap_add(rows, (uint32_t)random_below(r, n_rows));
    return rows;
}

/* The rows whose key one part of the filter names, as the caller of columns_select finds them: of one KEYS part. */
static const struct filter_part *keys_part(const struct filter_part *part, unsigned *n)
{
    const struct filter_part *left = part->left ? keys_part(part->left, n) : NULL;
    const struct filter_part *right = part->right ? keys_part(part->right, n) : NULL;
    *n += part->kind == FILTER_KEYS;
    return part->kind == FILTER_KEYS ? part : left ? left : right;
}

static roaring_bitmap_t *rows_of_keys(const struct filter *filter, uint32_t n_rows)
{
    unsigned n = 0;
    const struct filter_part *part = keys_part(filter_root(filter), &n);
    if (n != 1)
        return NULL;
    roaring_bitmap_t *rows = roaring_bitmap_create();
    for (uint32_t i = 0; i < part->n_keys; i++) {
        uint32_t bytes, row;
        char text[16];
        const char *key = filter_key(filter, part->first_key + i, &bytes);
        snprintf(text, sizeof text, "%.*s", (int)bytes, key);
        if (sscanf(text, "%u", &row) == 1 && row < n_rows)
            roaring_bitmap_add(rows, row);
    }
    return rows;
}

static unsigned check_random(struct random *r, const struct support_table *t, const struct columns *columns,
                             const struct attribute_schema *schema, unsigned n)
{
    unsigned n_residual = 0;
    for (unsigned i = 0; i < n; i++) {
        struct filter *filter = random_filter(r, schema);
        uint64_t few = random_below(r, 4);
        roaring_bitmap_t *within = few == 0 ? random_rows(r, t->n, t->n) : few == 1 ? random_rows(r, t->n, 20) : NULL;
        roaring_bitmap_t *keys = random_below(r, 2) ? rows_of_keys(filter, t->n) : NULL;
        n_residual += check_select(t, columns, filter, within, keys);
        if (within)
            roaring_bitmap_free(within);
        if (keys)
            roaring_bitmap_free(keys);
        filter_unref(filter);
    }
    return n_residual;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static struct attribute_schema *declare(void)
{
    static const struct quire_column declared[] = {
        {"t", QUIRE_COLUMN_TIMESTAMP, true}, {"i", QUIRE_COLUMN_INTEGER, true}, {"flag", QUIRE_COLUMN_BOOL, true},
        {"l", QUIRE_COLUMN_LIST, true},      {"n", QUIRE_COLUMN_FLOAT, true},   {"s", QUIRE_COLUMN_STRING, true},
        {"mix", QUIRE_COLUMN_STRING, false}};
    struct attribute_schema *schema = NULL;
    assert_int_equal(attribute_schema_create(declared, SUPPORT_COUNT(declared), &schema, NULL), 0);
    return schema;
}

static void test_random_expressions(void **state)
{
    struct support_columns *s = *state;
    struct random r;
    random_init(&r, 11);
    struct attribute_schema *schemas[2] = {NULL, declare()};
    unsigned n_residual = 0, n = 0;
    for (uint32_t n_rows = 1; n_rows < 4000; n_rows = n_rows * 3 + 1)
        for (unsigned i = 0; i < 2; i++) {
            struct support_table t;
            random_table(&r, n_rows, &t);
            if (!t.texts[0])
                support_table_put(&t, 0, NULL, 0, "{}");
            struct columns *columns = write_and_open(&t, schemas[i], UINT64_MAX, s->path);
            n_residual += check_random(&r, &t, columns, schemas[i], 250);
            n += 250;
            columns_close(columns);
            support_table_fini(&t);
        }
    attribute_schema_destroy(schemas[1]);
    print_message("%u of %u expressions were residual\n", n_residual, n);
    assert_in_range(n_residual, n / 100, n / 2);
}

/* Learnt columns without room, more columns than are learnt, and one written column among them. */
static void test_values_left_out(void **state)
{
    struct support_columns *s = *state;
    struct random r;
    struct support_table t;
    random_init(&r, 5);
    random_table(&r, 2000, &t);
    struct columns *columns = write_and_open(&t, NULL, 0, s->path);
    struct column_info info;
    for (uint32_t i = 0; columns_info(columns, i, &info); i++) {
        assert_int_equal(info.distinct, 0);
        assert_true(info.rows > 0);
        assert_int_equal(info.type, QUIRE_COLUMN_LEARNT);
    }
    assert_true(check_random(&r, &t, columns, NULL, 200) > 50);
    struct filter *filter = compile("exists .rare", NULL);
    assert_false(check_select(&t, columns, filter, NULL, NULL)); /* where it is, is known nevertheless */
    filter_unref(filter);
    columns_close(columns);
    support_table_fini(&t);
}

static void test_more_fields_than_columns(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    char json[COLUMNS_LEARNT_MAX * 24 + 100];
    support_table_init(&t, 300);
    for (uint32_t row = 0; row < t.n; row++) {
        size_t at = (size_t)snprintf(json, sizeof json, "{\"seldom\":%u", row % 7);
        for (uint32_t i = 0; i < COLUMNS_LEARNT_MAX && row > 0; i++)
            at += (size_t)snprintf(json + at, sizeof json - at, ",\"f%u\":%u", i, row % (i + 2));
        snprintf(json + at, sizeof json - at, "}");
        support_table_put(&t, row, NULL, 0, row % 2 ? strchr(json + 2, ',') ? json : "{}" : NULL);
    }
    support_table_put(&t, 0, NULL, 0, "{\"lonely\":1}");
    struct columns *columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    struct columns_stats stats;
    columns_get_stats(columns, &stats);
    assert_int_equal(stats.n_columns, COLUMNS_LEARNT_MAX);
    struct filter *filter = compile(".lonely == 1", NULL);
    assert_true(check_select(&t, columns, filter, NULL, NULL));
    filter_unref(filter);
    filter = compile(".f3 == 1 and .f0 == 1", NULL);
    assert_false(check_select(&t, columns, filter, NULL, NULL));
    filter_unref(filter);
    filter = compile(".f3 == 1 or .lonely == 1", NULL); /* required, and nobody knows where it is */
    assert_true(check_select(&t, columns, filter, NULL, NULL));
    filter_unref(filter);
    columns_close(columns);
    /* a declared one is kept, however few have it */
    struct quire_column declared = {"lonely", QUIRE_COLUMN_LEARNT, true};
    struct attribute_schema *schema = NULL;
    assert_int_equal(attribute_schema_create(&declared, 1, &schema, NULL), 0);
    columns = write_and_open(&t, schema, UINT64_MAX, s->path);
    filter = compile(".lonely == 1", schema);
    assert_false(check_select(&t, columns, filter, NULL, NULL));
    filter_unref(filter);
    columns_close(columns);
    attribute_schema_destroy(schema);
    support_table_fini(&t);
}

static void test_no_attributes(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    bool written = true;
    support_table_init(&t, 10);
    assert_int_equal(
        columns_write(fs_real(), s->path, segment_id, t.n, NULL, UINT64_MAX, support_table_give, &t, &written, NULL),
        0);
    assert_false(written);
    assert_int_not_equal(access(s->path, F_OK), 0);
    support_table_fini(&t);
}

/* A value of its own in each row: ranges of any length are exact, within and without few rows, and take little room. */
static void test_ranges(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    struct random r;
    char json[64], text[100];
    support_table_init(&t, 100000);
    random_init(&r, 3);
    for (uint32_t row = 0; row < t.n; row++) {
        uint32_t time = (uint32_t)(row * 7919ull % t.n);
        snprintf(json, sizeof json, "{\"time\":%u,\"x\":%u.5}", 1700000000 + time, time);
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    struct column_info info;
    assert_true(columns_info(columns, 0, &info));
    assert_int_equal(info.distinct, t.n);
    print_message("a timestamp in each row: %.1f bytes\n", (double)info.bytes / t.n);
    assert_true(info.bytes < 12ull * t.n);
    assert_true(columns_info(columns, 1, &info));
    assert_true(info.bytes < 16ull * t.n);
    for (unsigned i = 0; i < 60; i++) {
        uint32_t low = (uint32_t)random_below(&r, t.n), high = low + (uint32_t)random_below(&r, t.n - low);
        snprintf(text, sizeof text, i % 2 ? ".x >= %u and .x < %u" : "not (.time >= 17%08u and .time < 17%08u)", low,
                 high);
        struct filter *filter = compile(text, NULL);
        roaring_bitmap_t *rows = NULL, *within = i % 3 ? NULL : random_rows(&r, t.n, 50);
        bool residual = true;
        uint64_t n = 0;
        assert_int_equal(columns_select(columns, filter, within, NULL, &rows, &residual), 0);
        assert_false(residual);
        for (uint32_t row = 0; row < t.n; row++) {
            uint32_t time = (uint32_t)(row * 7919ull % t.n);
            bool wanted =
                (time >= low && time < high) == (i % 2 == 1) && (!within || roaring_bitmap_contains(within, row));
            n += wanted;
            assert_true(roaring_bitmap_contains(rows, row) == wanted);
        }
        assert_int_equal(roaring_bitmap_get_cardinality(rows), n);
        roaring_bitmap_free(rows);
        if (within)
            roaring_bitmap_free(within);
        filter_unref(filter);
    }
    columns_close(columns);
    support_table_fini(&t);
}

/* Several fields in one test: exact, but where it asks what is in a list. */
static void test_several_fields(void **state)
{
    static const struct {
        const char *text;
        bool residual;
    } cases[] = {{".a + .b == 5", false},
                 {".a > .b", false},
                 {"not (.a < .b)", false},
                 {".a == .word", false},
                 {".a * .b + .a in [6, 12]", false},
                 {".a < .row", false},
                 {".row > .other", false},
                 {".row % .a == 3 and .row ** 2 > .other * .a", false},
                 {"exists .b == .a > 4", false},
                 {".word prefix .word and .a > .b", false},
                 {".a == .mixed", false},
                 {".a in .mixed", true},
                 {".a == .nowhere", false}};
    struct support_columns *s = *state;
    struct support_table t;
    struct random r;
    char json[160];
    support_table_init(&t, 3000);
    random_init(&r, 5);
    for (uint32_t row = 0; row < t.n; row++) {
        uint32_t a = (uint32_t)random_below(&r, 9), b = (uint32_t)random_below(&r, 9);
        snprintf(json, sizeof json, "{\"a\":%u,%s\"word\":\"%u\",\"row\":%u%u,\"other\":%u,\"mixed\":%s}", a,
                 b == 8   ? ""
                 : b == 7 ? "\"b\":null,"
                          : (char[]){'"', 'b', '"', ':', (char)('0' + b), ',', 0},
                 b, row, row % 7, row * 3, row % 11 ? "4" : "[4]");
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct filter *filter = compile(cases[i / 2].text, NULL);
        roaring_bitmap_t *rows = NULL, *within = i % 2 ? random_rows(&r, t.n, 60) : NULL;
        bool residual;
        assert_int_equal(columns_select(columns, filter, within, NULL, &rows, &residual), 0);
        assert_int_equal(residual, cases[i / 2].residual);
        for (uint32_t row = 0; row < t.n; row++) {
            bool wanted = (!within || roaring_bitmap_contains(within, row)) &&
                          filter_matches(filter, t.texts[row], t.bytes[row], "", 0);
            assert_true(residual ? !wanted || roaring_bitmap_contains(rows, row)
                                 : roaring_bitmap_contains(rows, row) == wanted);
        }
        roaring_bitmap_free(rows);
        if (within)
            roaring_bitmap_free(within);
        filter_unref(filter);
    }
    columns_close(columns);
    support_table_fini(&t);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

#define SCOPE_TENANTS 40u

static bool row_allowed(const struct support_table *t, uint32_t row, const struct tenant_scope *scope)
{
    return grants_allow(t->texts[row], t->bytes[row], scope);
}

static void check_scope(const struct support_table *t, const struct columns *columns, const struct tenant_scope *scope)
{
    roaring_bitmap_t *rows = NULL;
    uint64_t n = 0;
    assert_int_equal(columns_scope(columns, scope, &rows), 0);
    for (uint32_t row = 0; row < t->n; row++) {
        bool allowed = row_allowed(t, row, scope);
        n += allowed;
        if (roaring_bitmap_contains(rows, row) != allowed)
            fail_msg("row %u is %s the scope of %u tenants", row, allowed ? "missing in" : "no part of", scope->n);
    }
    assert_int_equal(roaring_bitmap_get_cardinality(rows), n);
    roaring_bitmap_free(rows);
}

static void test_scopes(void **state)
{
    struct support_columns *s = *state;
    struct random r;
    struct support_table t;
    char names[SCOPE_TENANTS][16];
    random_init(&r, 21);
    for (uint32_t i = 0; i < SCOPE_TENANTS; i++)
        snprintf(names[i], sizeof names[i], i % 2 ? "tenant%u" : "t%u", i);
    support_table_init(&t, 5000);
    for (uint32_t row = 0; row < t.n; row++) {
        struct grant grants[4];
        uint32_t n = (uint32_t)random_below(&r, 5);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t tenant = (uint32_t)random_below(&r, random_below(&r, SCOPE_TENANTS) + 1);
            grants[i] = (struct grant){names[tenant], (uint32_t)strlen(names[tenant]), (uint32_t)random_below(&r, 3)};
        }
        if (row >= 2000 && row < 2100)
            grants[0] = (struct grant){"block", 5, 0}, n = 1;
        support_table_put(&t, row, grants, n, row % 3 ? "{\"a\":1}" : NULL);
    }
    struct columns *columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    for (unsigned i = 0; i < 200; i++) {
        struct grant tenants[6];
        struct tenant_scope scope = {tenants, (uint32_t)random_below(&r, 7)};
        for (uint32_t j = 0; j < scope.n; j++) {
            const char *name = random_below(&r, 20) ? names[random_below(&r, SCOPE_TENANTS)] : "stranger";
            tenants[j] = (struct grant){name, (uint32_t)strlen(name), (uint32_t)random_below(&r, 4)};
        }
        check_scope(&t, columns, &scope);
    }
    struct grant block = {"block", 5, 0}, later = {"block", 5, 1}, here;
    struct row_set set;
    assert_true(columns_find_tenant(columns, &block, &set));
    assert_true(set.form == SET_RUN && set.n == 100 && set.first == 2000);
    assert_false(columns_find_tenant(columns, &later, &set));
    /* each tenant is listed once, with as many rows as it has */
    struct columns_stats stats;
    uint64_t n_rows = 0, sum = 0;
    uint32_t n = 0;
    columns_get_stats(columns, &stats);
    for (; columns_tenant_at(columns, n, &here, &n_rows); n++) {
        struct tenant_scope scope = {&here, 1};
        assert_true(columns_find_tenant(columns, &here, &set) && set.n == n_rows);
        for (uint32_t row = 0; row < t.n; row++)
            assert_int_equal(columns_tenant_has(columns, &here, row), row_allowed(&t, row, &scope));
        sum += n_rows;
    }
    assert_int_equal(n, stats.n_tenants);
    assert_int_equal(sum, stats.n_grants);
    columns_close(columns);
    support_table_fini(&t);
}

/* 10,000 tenants with sizes by a power law: bytes in memory for each grant. */
static void test_tenant_bytes(void **state)
{
    struct support_columns *s = *state;
    struct random r;
    for (unsigned sparse = 0; sparse < 2; sparse++) {
        struct support_table t;
        uint32_t n_tenants = sparse ? 50000 : 10000;
        double sum = 0, *ends = malloc(sizeof *ends * n_tenants);
        for (uint32_t i = 0; i < n_tenants; i++)
            ends[i] = sum += sparse ? 1 : 1.0 / (i + 1);
        random_init(&r, 9);
        support_table_init(&t, 200000);
        for (uint32_t row = 0; row < t.n; row++) {
            double at = (double)(random_next(&r) >> 11) * 0x1p-53 * sum;
            uint32_t low = 0, high = n_tenants - 1;
            while (low < high)
                if (ends[low + (high - low) / 2] < at)
                    low += (high - low) / 2 + 1;
                else
                    high = low + (high - low) / 2;
            char name[24];
            snprintf(name, sizeof name, "tenant-%05u", low);
            struct grant grant = {name, (uint32_t)strlen(name), low % 3};
            support_table_put(&t, row, &grant, 1, NULL);
        }
        struct columns *columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
        struct columns_stats stats;
        columns_get_stats(columns, &stats);
        print_message("%u tenants, %.1f rows each: %.2f bytes per grant\n", stats.n_tenants,
                      (double)stats.n_grants / stats.n_tenants, (double)stats.tenant_bytes / (double)stats.n_grants);
        assert_int_equal(stats.n_grants, t.n);
        assert_true(stats.tenant_bytes <= 8 * stats.n_grants);
        columns_close(columns);
        support_table_fini(&t);
        free(ends);
    }
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void damage_table(struct support_table *t)
{
    struct random r;
    random_init(&r, 4);
    random_table(&r, 700, t);
    for (uint32_t row = 0; row < t->n; row++) {
        struct grant grants[2] = {{"acme", 4, row % 2}, {"globex", 6, 0}};
        char *json = random_json(&r, row);
        support_table_put(t, row, grants, row % 3, json);
        free(json);
    }
}

/* Asks all kinds of things; crashes are what is looked for. */
static void ask(const struct columns *columns, struct filter **filters, unsigned n)
{
    struct grant tenant = {"acme", 4, 1};
    struct tenant_scope scope = {&tenant, 1};
    roaring_bitmap_t *rows = NULL;
    assert_int_equal(columns_scope(columns, &scope, &rows), 0);
    for (unsigned i = 0; i < n; i++) {
        roaring_bitmap_t *selected = NULL;
        bool residual;
        assert_int_equal(columns_select(columns, filters[i], i % 2 ? rows : NULL, NULL, &selected, &residual), 0);
        roaring_bitmap_free(selected);
    }
    roaring_bitmap_free(rows);
}

static void test_flipped_bytes(void **state)
{
    struct support_columns *s = *state;
    struct random r;
    struct support_table t;
    size_t bytes = 0;
    unsigned refused = 0, kept = 0, forged = 0;
    damage_table(&t);
    columns_close(write_and_open(&t, NULL, UINT64_MAX, s->path));
    uint8_t *whole = support_read_file(s->path, &bytes), *file = malloc(bytes);
    random_init(&r, 8);
    struct filter *filters[12];
    for (unsigned i = 0; i < SUPPORT_COUNT(filters); i++)
        filters[i] = random_filter(&r, NULL);
    for (unsigned trial = 0; trial < 3000; trial++) {
        struct columns *columns = NULL;
        struct quire_error err = {0};
        size_t at = random_below(&r, bytes);
        bool forge = trial % 3 > 0 && at >= 4096;
        memcpy(file, whole, bytes);
        file[at] ^= (uint8_t)(1 + random_below(&r, 255));
        if (forge)
            support_reseal(file);
        support_write_file(s->path, file, bytes);
        int rc = columns_open(fs_real(), s->path, segment_id, t.n, &columns, &err);
        if (rc < 0) {
            assert_non_null(strstr(err.message, s->path));
            refused++;
            continue;
        }
        ask(columns, filters, SUPPORT_COUNT(filters));
        if (!forge && kept++ < 20) /* the padding behind a section: all is as it was */
            for (unsigned i = 0; i < SUPPORT_COUNT(filters); i++)
                check_select(&t, columns, filters[i], NULL, NULL);
        forged += forge;
        columns_close(columns);
    }
    print_message("%u refused, %u without effect, %u forged and taken\n", refused, kept, forged);
    assert_true(refused > 1000);
    for (unsigned i = 0; i < SUPPORT_COUNT(filters); i++)
        filter_unref(filters[i]);
    free(file);
    free(whole);
    support_table_fini(&t);
}

static void test_other_segment(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    struct columns *columns = NULL;
    struct quire_error err = {0};
    damage_table(&t);
    columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    columns_close(columns);
    assert_int_equal(columns_open(fs_real(), s->path, (const uint8_t *)"another segment!", t.n, &columns, &err),
                     QUIRE_ECORRUPT);
    assert_int_equal(columns_open(fs_real(), s->path, segment_id, t.n - 1, &columns, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "section"));
    support_table_fini(&t);
}

/* ---- without memory ---------------------------------------------------------------------------------------------- */

struct use {
    struct support_table *t;
    const char *path;
    struct columns *columns;
    struct filter *filter;
    const roaring_bitmap_t *within;
};

static int use_write(struct use *u)
{
    bool written = false;
    unlink(u->path);
    return columns_write(fs_real(), u->path, segment_id, u->t->n, NULL, UINT64_MAX, support_table_give, u->t, &written,
                         NULL);
}

static int use_open(struct use *u)
{
    struct columns *columns = NULL;
    int rc = columns_open(fs_real(), u->path, segment_id, u->t->n, &columns, NULL);
    columns_close(columns);
    return rc;
}

static int use_scope(struct use *u)
{
    struct grant both[2] = {{"acme", 4, 1}, {"globex", 6, 0}};
    struct tenant_scope scope = {both, 2};
    roaring_bitmap_t *rows = NULL;
    int rc = columns_scope(u->columns, &scope, &rows);
    if (rows)
        roaring_bitmap_free(rows);
    return rc;
}

static int use_select(struct use *u)
{
    roaring_bitmap_t *rows = NULL;
    bool residual;
    int rc = columns_select(u->columns, u->filter, u->within, NULL, &rows, &residual);
    if (rows)
        roaring_bitmap_free(rows);
    return rc;
}

/* Each allocation fails in turn: nothing crashes, all is told. */
static void fail_each(int (*use)(struct use *u), struct use *u)
{
    unsigned failed = 0;
    for (unsigned n = 1;; n++) {
        fail_in = n;
        int rc = use(u);
        bool all = fail_in > 0;
        fail_in = 0;
        if (all) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc == QUIRE_ENOMEM || rc == 0); /* 0: it could do without */
        failed += rc == QUIRE_ENOMEM;
    }
    assert_true(failed > 0);
}

static void test_no_memory(void **state)
{
    static const char *const expressions[] = {".n > 10 and not (.s prefix \"a\")",
                                              "\"a\" in .l or 3 in .l",
                                              ".i >= 1700001000 and .i != 1700002000",
                                              "exists .rare and .mix == null",
                                              ".many == \"word 7\"",
                                              "not (.nosuch == 1) or .n > .i",
                                              ".n * 2 + .mix > .many"};
    struct support_columns *s = *state;
    struct support_table t;
#if SANITIZED
    skip();
#endif
    damage_table(&t);
    struct use use = {.t = &t, .path = s->path};
    fail_each(use_write, &use);
    fail_each(use_open, &use);
    use.columns = write_and_open(&t, NULL, UINT64_MAX, s->path);
    fail_each(use_scope, &use);
    struct random r;
    random_init(&r, 1);
    roaring_bitmap_t *within = random_rows(&r, t.n, 15);
    for (size_t i = 0; i < 2 * SUPPORT_COUNT(expressions); i++) {
        use.filter = compile(expressions[i / 2], NULL);
        use.within = i % 2 ? within : NULL;
        fail_each(use_select, &use);
        filter_unref(use.filter);
    }
    roaring_bitmap_free(within);
    columns_close(use.columns);
    support_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_expressions, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_values_left_out, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_more_fields_than_columns, support_columns_set_up,
                                        support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_no_attributes, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_ranges, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_several_fields, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_scopes, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_tenant_bytes, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_flipped_bytes, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_other_segment, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, support_columns_set_up, support_columns_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
