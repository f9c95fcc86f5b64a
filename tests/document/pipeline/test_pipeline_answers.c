/*
 * test_pipeline_answers.c - FT.AGGREGATE commands beside the recorded answers of a RediSearch.
 *
 * ft-answers.jsonl.gz (QUIRE_SHARED_DATA or ../shared/data beside the sources) holds data sets and commands with what
 * RediSearch answered. Here the documents are kept in lists, and the few forms of queries that the aggregate commands
 * have are evaluated by hand: all, none, a tag, a range, k neighbours by brute force. The steps are the product's. Rows
 * are compared in order where SORTBY is given, numbers within 1e-6, JSON as JSON, TOLIST as a set.
 *
 * All of them are equal today. FT_ANSWERS_VERBOSE=n prints the first n differences.
 */
#include "document/pipeline/pipeline.h"
#include "document/schema/schema.h"
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define DOCUMENTS_MAX 64u
#define WORDS_MAX     128u

struct document {
    struct schema_word key;
    const struct schema_word *words; /* a hash: names and values by turns */
    uint32_t n;
    json_t *json; /* a JSON document */
    char *text;   /* its text */
};

struct data {
    struct schema *schema;
    struct document documents[DOCUMENTS_MAX];
    uint32_t n;
    struct schema_word *words[DOCUMENTS_MAX + 1];
    uint32_t n_words[DOCUMENTS_MAX + 1], n_commands;
};

/* What a query found. */
struct hits {
    const struct data *data;
    uint32_t rows[DOCUMENTS_MAX];
    double distances[DOCUMENTS_MAX];
    uint32_t n, at;
};

static uint32_t n_equal, n_different, n_skipped, n_shown;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct schema_word word_of(const char *text)
{
    return (struct schema_word){text, (uint32_t)strlen(text)};
}

static bool is_word(struct schema_word word, const char *text)
{
    return word.bytes == strlen(text) && strncasecmp(word.data, text, word.bytes) == 0;
}

/* "b:" and Latin-1 in UTF-8: the bytes. Numbers as text. Owned by the caller. */
static struct schema_word bytes_of(const json_t *value)
{
    char number[32];
    if (!json_is_string(value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return word_of(strdup(number));
    }
    const unsigned char *text = (const unsigned char *)json_string_value(value) + 2;
    size_t n = json_string_length(value) - 2;
    char *bytes = malloc(n + 1);
    uint32_t out = 0;
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        if (text[i] < 0x80) {
            bytes[out++] = (char)text[i];
        } else {
            bytes[out++] = (char)((text[i] & 3) << 6 | (text[i + 1] & 0x3f));
            i++;
        }
    bytes[out] = '\0';
    return (struct schema_word){bytes, out};
}

static uint32_t words_of(const json_t *list, struct schema_word words[])
{
    uint32_t n = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < n; i++)
        words[i] = bytes_of(json_array_get(list, i));
    return n;
}

static void free_words(struct schema_word *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free((void *)(uintptr_t)words[i].data);
}

static const struct schema_word *hash_value(const struct document *document, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i + 1 < document->n; i += 2)
        if (document->words[i].bytes == bytes && memcmp(document->words[i].data, name, bytes) == 0)
            return &document->words[i + 1];
    return NULL;
}

/* The value of "$.name". */
static json_t *json_value(const struct document *document, const char *path)
{
    return strncmp(path, "$.", 2) == 0 ? json_object_get(document->json, path + 2) : NULL;
}

/* Whether RediSearch indexes the document: numbers are numbers, vectors have the right length. */
static bool is_indexed(const struct data *data, const struct document *document)
{
    for (uint32_t i = 0; i < data->schema->n_fields; i++) {
        const struct schema_field *field = &data->schema->fields[i];
        if (document->json) {
            const json_t *value = json_value(document, field->identifier);
            if (value && field->type == SCHEMA_NUMERIC && !json_is_number(value))
                return false;
            if (value && field->type == SCHEMA_VECTOR &&
                (!json_is_array(value) || json_array_size(value) != field->vector.dim))
                return false;
            continue;
        }
        const struct schema_word *value = hash_value(document, field->identifier, field->identifier_bytes);
        char *end = NULL;
        if (value && field->type == SCHEMA_NUMERIC)
            (void)strtod(value->data, &end);
        if (end && (end == value->data || *end))
            return false;
        if (value && field->type == SCHEMA_VECTOR && value->bytes != 4 * field->vector.dim)
            return false;
    }
    return true;
}

static struct data *load_set(const json_t *commands)
{
    struct data *data = calloc(1, sizeof *data);
    struct quire_error err;
    assert_non_null(data);
    data->n_commands = (uint32_t)json_array_size(commands);
    assert_true(data->n_commands <= DOCUMENTS_MAX + 1);
    for (uint32_t i = 0; i < data->n_commands; i++) {
        const json_t *command = json_array_get(commands, i);
        data->words[i] = calloc(json_array_size(command), sizeof *data->words[i]);
        uint32_t n = data->n_words[i] = words_of(command, data->words[i]);
        if (is_word(data->words[i][0], "FT.CREATE")) {
            if (schema_parse(data->words[i] + 1, n - 1, &data->schema, &err) != 0)
                fail_msg("%s", err.message);
            continue;
        }
        struct document *document = &data->documents[data->n];
        *document = (struct document){.key = data->words[i][1], .words = data->words[i] + 2, .n = n - 2};
        if (is_word(data->words[i][0], "JSON.SET")) {
            document->json = json_loadb(data->words[i][3].data, data->words[i][3].bytes, JSON_ALLOW_NUL, NULL);
            assert_non_null(document->json);
            document->text = json_dumps(document->json, JSON_COMPACT);
        }
        if (is_indexed(data, document)) {
            data->n++;
        } else {
            json_decref(document->json);
            free(document->text);
        }
    }
    return data;
}

static void free_set(struct data *data)
{
    for (uint32_t i = 0; i < data->n; i++) {
        json_decref(data->documents[i].json);
        free(data->documents[i].text);
    }
    for (uint32_t i = 0; i < data->n_commands; i++) {
        free_words(data->words[i], data->n_words[i]);
        free(data->words[i]);
    }
    schema_free(data->schema);
    free(data);
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static void vector_of(const struct data *data, const struct document *document, float *vector)
{
    const struct schema_field *field = schema_find(data->schema, "v1", 2);
    if (document->json) {
        const json_t *list = json_value(document, field->identifier);
        for (uint32_t i = 0; i < field->vector.dim; i++)
            vector[i] = (float)json_number_value(json_array_get(list, i));
    } else {
        memcpy(vector, hash_value(document, "v1", 2)->data, 4 * field->vector.dim);
    }
}

static void to_unit(float *vector, uint32_t dim)
{
    float sum = 0;
    for (uint32_t i = 0; i < dim; i++)
        sum += vector[i] * vector[i];
    for (uint32_t i = 0; i < dim && sum > 0; i++)
        vector[i] /= sqrtf(sum);
}

static float distance(const struct schema_field *field, const float *a, const float *b)
{
    float dot = 0, l2 = 0;
    for (uint32_t i = 0; i < field->vector.dim; i++) {
        dot += a[i] * b[i];
        l2 += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return field->vector.metric == SCHEMA_L2 ? l2 : 1 - dot;
}

/* "*=>[KNN k @v1 $BLOB [AS name] ]": the k nearest, nearest first. */
static bool find_nearest(const struct data *data, const char *query, const struct pipeline_options *options,
                         struct hits *hits, char name[64])
{
    uint32_t k;
    char rest[64] = "";
    float wanted[8], vector[8];
    const struct schema_field *field = schema_find(data->schema, "v1", 2);
    if (sscanf(query, "*=>[KNN %u @v1 $BLOB %63[^]]", &k, rest) < 1 || options->n_params != 1 || !field)
        return false;
    if (sscanf(rest, "AS %63s", name) != 1)
        strcpy(name, "__v1_score");
    memcpy(wanted, options->params[0].value.data, 4 * field->vector.dim);
    if (field->vector.metric == SCHEMA_COSINE)
        to_unit(wanted, field->vector.dim);
    for (uint32_t i = 0; i < data->n; i++) {
        vector_of(data, &data->documents[i], vector);
        if (field->vector.metric == SCHEMA_COSINE)
            to_unit(vector, field->vector.dim);
        double d = distance(field, wanted, vector);
        uint32_t at = hits->n < k ? hits->n++ : k;
        for (; at > 0 && hits->distances[at - 1] > d; at--)
            if (at < k) {
                hits->rows[at] = hits->rows[at - 1];
                hits->distances[at] = hits->distances[at - 1];
            }
        if (at < k) {
            hits->rows[at] = i;
            hits->distances[at] = d;
        }
    }
    return true;
}

/* False: a query that this test does not know. */
static bool find(const struct data *data, const char *query, const struct pipeline_options *options, struct hits *hits,
                 char name[64])
{
    static const struct {
        const char *query;
        bool all;
    } known[] = {{"@t1:{aaaaaaa*}", false},  {"-@t1:{aaaaaa*}", true},    {"@n1:[-inf inf]", true},
                 {"-@n1:[-inf inf]", false}, {"@price:[-inf inf]", true}, {"*", true}};
    name[0] = '\0';
    *hits = (struct hits){.data = data};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(query, known[i].query) == 0) {
            for (uint32_t row = 0; row < data->n && known[i].all; row++)
                hits->rows[hits->n++] = row;
            return true;
        }
    return find_nearest(data, query, options, hits, name);
}

/* ---- the source of rows ------------------------------------------------------------------------------------------ */

static int next_hit(void *context, uint64_t *id, struct quire_error *err)
{
    struct hits *hits = context;
    (void)err;
    if (hits->at == hits->n)
        return 0;
    *id = hits->at++;
    return 1;
}

static struct datum *datum_of_json(const json_t *value, struct datum_pool *pool)
{
    if (json_is_string(value))
        return datum_string(pool, json_string_value(value), json_string_length(value));
    if (json_is_number(value))
        return datum_number(pool, json_number_value(value));
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    struct datum *made = datum_string(pool, text, strlen(text));
    free(text);
    return made;
}

static int load_value(void *context, uint64_t id, const struct pipeline_wanted *wanted, struct datum_pool *pool,
                      struct datum **value, struct quire_error *err)
{
    const struct hits *hits = context;
    const struct document *document = &hits->data->documents[hits->rows[id]];
    const char *path = wanted->field ? wanted->field->identifier : wanted->name;
    *value = NULL;
    if (wanted->origin == PIPELINE_KEY) {
        *value = datum_string(pool, document->key.data, document->key.bytes);
    } else if (wanted->origin == PIPELINE_YIELD) {
        *value = datum_number(pool, hits->distances[id]);
    } else if (wanted->origin == PIPELINE_FIELD && document->json) {
        const json_t *found = json_value(document, path);
        if (!found)
            return 0;
        *value = datum_of_json(found, pool);
    } else if (wanted->origin == PIPELINE_FIELD) {
        const struct schema_word *found = hash_value(document, path, strlen(path));
        if (!found)
            return 0;
        *value = datum_string(pool, found->data, found->bytes);
    } else {
        return 0;
    }
    return *value ? 0 : pipeline_no_value(pool, err);
}

static int load_all(void *context, uint64_t id, struct pipeline_run *run, struct quire_error *err)
{
    const struct hits *hits = context;
    const struct document *document = &hits->data->documents[hits->rows[id]];
    struct datum_pool *pool = pipeline_run_pool(run);
    int rc = 0;
    (void)err;
    if (document->json)
        return pipeline_run_put(run, "$", 1, datum_string(pool, document->text, strlen(document->text)));
    for (uint32_t i = 0; i + 1 < document->n && rc == 0; i += 2)
        rc = pipeline_run_put(run, document->words[i].data, document->words[i].bytes,
                              datum_string(pool, document->words[i + 1].data, document->words[i + 1].bytes));
    return rc;
}

/* ---- rows as JSON, to be compared -------------------------------------------------------------------------------- */

/* Bytes as Latin-1 in UTF-8 behind "b:", as the file has them. */
static json_t *json_of_bytes(const char *bytes, size_t n)
{
    char *text = malloc(2 * n + 3);
    size_t out = 2;
    assert_non_null(text);
    memcpy(text, "b:", 2);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x80)
            text[out++] = (char)(0xc0 | c >> 6);
        text[out++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
    }
    json_t *made = json_stringn_nocheck(text, out);
    free(text);
    assert_non_null(made);
    return made;
}

static json_t *json_of_datum(const struct datum *datum)
{
    char number[DATUM_PRINT_MAX];
    if (datum->kind == DATUM_NUMBER)
        return json_of_bytes(number, datum_print(datum->number, number));
    if (datum->kind == DATUM_STRING)
        return json_of_bytes(datum_text(datum), datum->n);
    if (datum->kind == DATUM_NULL)
        return json_null();
    json_t *list = json_array();
    for (uint32_t i = 0; i < datum->n; i++)
        json_array_append_new(list, json_of_datum(datum_items(datum)[i]));
    return list;
}

/* Rows as [name, value, ...]; NULL: the command failed, and *err says why. */
static json_t *run_rows(const struct pipeline *pipeline, struct hits *hits, struct quire_error *err)
{
    const struct pipeline_source source = {hits, next_hit, load_value, load_all};
    struct pipeline_run *run = NULL;
    json_t *rows = json_array();
    int rc = pipeline_run_create(pipeline, &source, NULL, &run, err);
    assert_int_equal(rc, 0);
    for (rc = PIPELINE_PAUSED; rc == PIPELINE_ROW || rc == PIPELINE_PAUSED;) {
        uint32_t budget = 3; /* so that runs pause all the time */
        rc = pipeline_run_next(run, &budget, err);
        if (rc != PIPELINE_ROW)
            continue;
        const struct pipeline_cell *cells;
        uint32_t n = pipeline_run_cells(run, &cells);
        json_t *row = json_array();
        for (uint32_t i = 0; i < n; i++) {
            json_array_append_new(row, json_of_bytes(cells[i].name, cells[i].name_bytes));
            json_array_append_new(row, json_of_datum(cells[i].value));
        }
        json_array_append_new(rows, row);
    }
    pipeline_run_destroy(run);
    if (rc < 0) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}

static bool number_of(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0';
}

static bool same_value(const json_t *a, const json_t *b);

/* Each of a has its own one in b; both are as long. */
static bool same_set(const json_t *a, const json_t *b)
{
    bool used[256] = {false};
    size_t n = json_array_size(a);
    if (n != json_array_size(b) || n > 256)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t j = 0;
        while (j < n && (used[j] || !same_value(json_array_get(a, i), json_array_get(b, j))))
            j++;
        if (j == n)
            return false;
        used[j] = true;
    }
    return true;
}

static bool same_value(const json_t *a, const json_t *b)
{
    double x, y;
    if (json_is_array(a) || json_is_array(b))
        return json_is_array(a) && json_is_array(b) && same_set(a, b);
    if (!json_is_string(a) || !json_is_string(b))
        return json_equal(a, b);
    if (json_equal(a, b))
        return true;
    const char *p = json_string_value(a) + 2, *q = json_string_value(b) + 2;
    if (number_of(p, &x) && number_of(q, &y))
        return (isnan(x) && isnan(y)) || x == y || fabs(x - y) <= 1e-6 * fmax(fabs(x), fabs(y));
    if (*p != '{' && *p != '[')
        return false;
    json_t *u = json_loads(p, JSON_ALLOW_NUL, NULL), *v = json_loads(q, JSON_ALLOW_NUL, NULL);
    bool same = u && v && json_equal(u, v);
    json_decref(u);
    json_decref(v);
    return same;
}

/* Names and values, in any order. */
static bool same_row(const json_t *a, const json_t *b)
{
    size_t n = json_array_size(a);
    if (n != json_array_size(b))
        return false;
    for (size_t i = 0; i < n; i += 2) {
        size_t j = 0;
        while (j < n && !json_equal(json_array_get(a, i), json_array_get(b, j)))
            j += 2;
        if (j >= n || !same_value(json_array_get(a, i + 1), json_array_get(b, j + 1)))
            return false;
    }
    return true;
}

static bool same_rows(const json_t *rows, const json_t *reply, bool ordered)
{
    bool used[256] = {false};
    size_t n = json_array_size(rows);
    if (n + 1 != json_array_size(reply) || n > 256)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t j = ordered ? i : 0, end = ordered ? i + 1 : n;
        while (j < end && (used[j] || !same_row(json_array_get(rows, i), json_array_get(reply, j + 1))))
            j++;
        if (j == end)
            return false;
        used[j] = true;
    }
    return true;
}

/* ---- one command ------------------------------------------------------------------------------------------------- */

static void show(const json_t *command, const json_t *reply, const json_t *rows, const char *why)
{
    const char *most = getenv("FT_ANSWERS_VERBOSE");
    if (n_shown++ >= (most ? strtoul(most, NULL, 10) : 0))
        return;
    char *a = json_dumps(command, JSON_COMPACT), *b = json_dumps(reply, JSON_COMPACT | JSON_ENCODE_ANY),
         *c = rows ? json_dumps(rows, JSON_COMPACT) : NULL;
    print_message("%.300s\n   wanted %.300s\n   is     %.300s\n", a, b, c ? c : why);
    free(a);
    free(b);
    free(c);
}

static void check_command(const struct data *data, const json_t *line)
{
    struct schema_word words[WORDS_MAX];
    struct quire_error err = {0};
    struct pipeline *pipeline = NULL;
    struct hits hits;
    char name[64];
    const json_t *command = json_object_get(line, "cmd"), *reply = json_object_get(line, "reply");
    json_t *rows = NULL;
    bool ordered = false;
    assert_true(json_array_size(command) <= WORDS_MAX);
    uint32_t n = words_of(command, words);
    for (uint32_t i = 3; i < n; i++)
        ordered = ordered || is_word(words[i], "SORTBY");
    int rc = pipeline_parse(words + 3, n - 3, 3, &pipeline, &err);
    if (rc == 0 && !find(data, words[2].data, pipeline_options(pipeline), &hits, name)) {
        n_skipped++;
        goto out;
    }
    if (rc == 0) {
        struct schema_word yield = word_of(name);
        struct pipeline_binding binding = {data->schema, &yield, name[0] != '\0'};
        rc = pipeline_bind(pipeline, &binding, &err);
    }
    if (rc == 0)
        rows = run_rows(pipeline, &hits, &err);
    bool fails = json_is_true(json_object_get(line, "fails"));
    if (fails ? !rows : rows && same_rows(rows, reply, ordered)) {
        n_equal++;
    } else {
        n_different++;
        show(command, reply, rows, err.message);
    }
out:
    json_decref(rows);
    pipeline_free(pipeline);
    free_words(words, n);
}

static FILE *open_answers(void)
{
    char command[1200], beside[600], file[1100];
    const char *folder = getenv("QUIRE_SHARED_DATA");
    snprintf(beside, sizeof beside, "%s/../shared/data", QUIRE_SOURCE_DIR);
    snprintf(file, sizeof file, "%s/ft-answers.jsonl.gz", folder ? folder : beside);
    if (access(file, R_OK) != 0 || strchr(file, '\''))
        return NULL;
    snprintf(command, sizeof command, "gzip -dc '%s'", file);
    return popen(command, "r");
}

static void test_answers(void **state)
{
    char *line = NULL, *set_name = NULL;
    size_t capacity = 0;
    struct data *data = NULL;
    (void)state;
    FILE *file = open_answers();
    if (!file) {
        print_message("skipped: no ft-answers.jsonl.gz in QUIRE_SHARED_DATA or ../shared/data\n");
        skip();
    }
    assert_true(getline(&line, &capacity, file) > 0);
    json_t *first = json_loads(line, JSON_ALLOW_NUL, NULL);
    const json_t *sets = json_object_get(first, "sets");
    assert_non_null(sets);
    while (getline(&line, &capacity, file) > 0) {
        if (!strcasestr(line, "\"b:FT.AGGREGATE\""))
            continue;
        json_t *record = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(record);
        const char *name = json_string_value(json_object_get(record, "set"));
        if (!set_name || strcmp(set_name, name) != 0) {
            if (data)
                free_set(data);
            free(set_name);
            set_name = strdup(name);
            data = load_set(json_object_get(sets, name));
        }
        check_command(data, record);
        json_decref(record);
    }
    if (data)
        free_set(data);
    free(set_name);
    free(line);
    json_decref(first);
    assert_int_equal(pclose(file), 0);
    print_message("FT.AGGREGATE: %u equal, %u different, %u with a query unknown here\n", n_equal, n_different,
                  n_skipped);
    assert_true(n_equal > 1000 && n_skipped * 100 <= n_equal);
    assert_int_equal(n_different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
