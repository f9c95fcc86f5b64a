/*
 * fuzz_expressions.c - any bytes as an expression of APPLY, or as the words of FT.AGGREGATE behind its query.
 *
 * Bit 0 of the first byte says which. An expression is evaluated over rows of every kind of value: it gives one value,
 * the same one twice, or an error with a message, and holds no memory afterwards. Words (a line each) are parsed, bound
 * to a schema and run over three documents, all at once and in slices of one row: both give as many rows and the same
 * error.
 */
#include "document/pipeline/expression.h"
#include "document/pipeline/pipeline.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 256u
#define ROWS_MAX  10000u /* of a run: arrays may multiply them */

static void require(bool right)
{
    if (!right)
        abort();
}

/* ---- an expression ----------------------------------------------------------------------------------------------- */

static struct datum *value_of(struct datum_pool *pool, uint32_t kind)
{
    struct datum *list;
    switch (kind % 6) {
    case 0:
        return datum_number(pool, kind - 2.5);
    case 1:
        return datum_string(pool, "12", 2);
    case 2:
        return datum_string(pool, "text, of\0words", 14);
    case 3:
        return datum_null(pool);
    case 4:
        list = datum_array(pool, 2);
        require(list != NULL);
        datum_items(list)[0] = datum_string(pool, "one", 3);
        datum_items(list)[1] = datum_number(pool, 2);
        return list;
    default:
        return NULL;
    }
}

static int terms(void *context, uint32_t most, struct datum_pool *pool, struct datum **out, struct quire_error *err)
{
    (void)context;
    (void)err;
    require(most >= 1 && most <= 100);
    *out = value_of(pool, 4);
    return 0;
}

static void evaluate(const struct expression *expression, uint32_t shift)
{
    uint32_t n = expression_n_names(expression), columns[EXPRESSION_NAMES_MAX];
    struct datum_pool pool = {.bytes_max = 1 << 26};
    struct datum *values[EXPRESSION_NAMES_MAX], *first = NULL, *second = NULL;
    struct quire_error err = {0};
    require(n <= EXPRESSION_NAMES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        columns[i] = i;
        values[i] = value_of(&pool, i + shift);
    }
    const struct expression_row row = {
        .values = values, .n_values = n - (shift == 1 && n > 0), .columns = columns, .terms = terms};
    int rc = expression_evaluate(expression, &row, &pool, &first, &err);
    require(rc == 0 ? first != NULL : !first && err.code == rc && err.message[0]);
    require(expression_evaluate(expression, &row, &pool, &second, NULL) == rc);
    if (rc == 0) {
        char text[DATUM_PRINT_MAX];
        require(datum_is_same(first, second) && datum_hash(first, 1) == datum_hash(second, 1));
        require(first->kind != DATUM_NUMBER || datum_print(first->number, text) > 0);
    }
    datum_release(&pool, first);
    datum_release(&pool, second);
    for (uint32_t i = 0; i < n; i++)
        datum_release(&pool, values[i]);
    require(pool.bytes == 0);
}

static void fuzz_expression(const char *text, size_t bytes)
{
    struct expression *expression = NULL;
    struct quire_error err = {0};
    int rc = expression_parse(text, bytes, &expression, &err);
    if (rc) {
        require((rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT) && err.code == rc && err.message[0] && !expression);
        return;
    }
    for (uint32_t shift = 0; shift < 6; shift++)
        evaluate(expression, shift);
    expression_free(expression);
}

/* ---- a command --------------------------------------------------------------------------------------------------- */

static int next(void *context, uint64_t *id, struct quire_error *err)
{
    uint32_t *at = context;
    (void)err;
    *id = *at;
    return (*at)++ < 3;
}

static int load(void *context, uint64_t id, const struct pipeline_wanted *wanted, struct datum_pool *pool,
                struct datum **value, struct quire_error *err)
{
    static const char *const texts[] = {"3", "Two", "", "1.5"};
    (void)context;
    if (wanted->origin == PIPELINE_TERMS || (id == 2 && wanted->name_bytes % 2 == 1)) {
        *value = NULL;
        return 0;
    }
    const char *text = texts[(id + wanted->name_bytes) % 4];
    *value = datum_string(pool, text, strlen(text));
    return *value ? 0 : pipeline_no_value(pool, err);
}

static int load_all(void *context, uint64_t id, struct pipeline_run *run, struct quire_error *err)
{
    struct datum_pool *pool = pipeline_run_pool(run);
    (void)context;
    (void)err;
    int rc = pipeline_run_put(run, "n", 1, datum_number(pool, (double)id));
    return rc ? rc : pipeline_run_put(run, id == 1 ? "more" : "other", id == 1 ? 4 : 5, datum_string(pool, "x", 1));
}

static int run_all(const struct pipeline *pipeline, uint32_t slice, uint32_t *rows)
{
    uint32_t at = 0;
    const struct pipeline_source source = {&at, next, load, load_all};
    const struct pipeline_limits limits = {.rows_max = 1000, .bytes_max = 1 << 24};
    struct pipeline_run *run = NULL;
    struct quire_error err = {0};
    int rc = pipeline_run_create(pipeline, &source, &limits, &run, &err);
    require(rc == 0);
    *rows = 0;
    do {
        uint32_t budget = slice;
        rc = pipeline_run_next(run, &budget, &err);
        require(budget <= slice && (rc != PIPELINE_PAUSED || budget == 0));
        if (rc == PIPELINE_ROW) {
            const struct pipeline_cell *cells;
            uint32_t n = pipeline_run_cells(run, &cells);
            for (uint32_t i = 0; i < n; i++)
                require(cells[i].value != NULL && cells[i].name[cells[i].name_bytes] == '\0');
            ++*rows;
        }
    } while ((rc == PIPELINE_ROW || rc == PIPELINE_PAUSED) && *rows < ROWS_MAX);
    require(rc >= 0 || (err.code == rc && err.message[0]));
    pipeline_run_destroy(run);
    return rc;
}

static struct schema *make_schema(void)
{
    static const char *const texts[] = {"i", "SCHEMA", "n", "NUMERIC", "s", "TEXT",    "SORTABLE",
                                        "t", "TAG",    "o", "AS",      "v", "NUMERIC", "SORTABLE"};
    struct schema_word words[sizeof texts / sizeof texts[0]];
    struct schema *schema = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        words[i] = (struct schema_word){texts[i], (uint32_t)strlen(texts[i])};
    require(schema_parse(words, sizeof texts / sizeof texts[0], &schema, NULL) == 0);
    return schema;
}

static void fuzz_command(const char *text, size_t bytes, struct schema *schema)
{
    static const struct schema_word yields[] = {{"near", 4}, {"far", 3}};
    struct schema_word words[WORDS_MAX];
    struct pipeline *pipeline = NULL;
    struct quire_error err = {0};
    uint32_t n = 0, whole, slices;
    for (size_t at = 0; at < bytes && n < WORDS_MAX;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        words[n++] = (struct schema_word){text + at, (uint32_t)length};
        at += length + 1;
    }
    int rc = pipeline_parse(words, n, 3, &pipeline, &err);
    require(rc == 0 ? pipeline != NULL : !pipeline && err.code == rc && err.message[0]);
    const struct pipeline_binding binding = {schema, yields, 2};
    if (rc == 0) {
        rc = pipeline_bind(pipeline, &binding, &err);
        require(rc == 0 || (err.code == rc && err.message[0]));
    }
    if (rc == 0) {
        rc = run_all(pipeline, 1u << 30, &whole);
        require(run_all(pipeline, 1, &slices) == rc && slices == whole);
    }
    pipeline_free(pipeline);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 17)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] & 1) {
        struct schema *schema = make_schema();
        fuzz_command(text, size - 1, schema);
        schema_free(schema);
    } else {
        fuzz_expression(text, size - 1);
    }
    return 0;
}
