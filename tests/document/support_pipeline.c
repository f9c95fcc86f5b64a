/* support_pipeline.c - documents and rows as text. */
#include "tests/document/support_pipeline.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 512u

static char answer[16384];
static size_t answered, n_rows;

struct found {
    const struct support_table *table;
    uint32_t at;
};

uint32_t support_words(const char *text, struct schema_word *words, uint32_t most)
{
    uint32_t n = 0;
    while (text && *text && n < most) {
        size_t bytes = strcspn(text, ";");
        words[n++] = (struct schema_word){text, (uint32_t)bytes};
        text += bytes + (text[bytes] == ';');
    }
    return n;
}

static int next(void *context, uint64_t *id, struct quire_error *err)
{
    struct found *found = context;
    (void)err;
    if (!found->table->documents[found->at])
        return 0;
    *id = found->at++;
    return 1;
}

static int give(struct datum *made, struct datum_pool *pool, struct datum **value, struct quire_error *err)
{
    *value = made;
    return made ? 0 : pipeline_no_value(pool, err);
}

static int load(void *context, uint64_t id, const struct pipeline_wanted *wanted, struct datum_pool *pool,
                struct datum **value, struct quire_error *err)
{
    struct schema_word words[WORDS_MAX];
    const struct found *found = context;
    const char *name = wanted->field ? wanted->field->identifier : wanted->name;
    uint32_t n = support_words(found->table->documents[id], words, WORDS_MAX);
    if (found->table->gone >> id & 1)
        return QUIRE_ENOTFOUND;
    if (wanted->origin == PIPELINE_KEY)
        return give(datum_string(pool, words[0].data, words[0].bytes), pool, value, err);
    if (wanted->origin == PIPELINE_YIELD)
        return give(datum_number(pool, (double)id + wanted->yield / 10.0), pool, value, err);
    if (wanted->origin == PIPELINE_SCORE)
        return give(datum_number(pool, 1 + (double)id), pool, value, err);
    if (wanted->origin == PIPELINE_TERMS) {
        struct datum *terms = datum_array(pool, 1);
        if (terms && !(datum_items(terms)[0] = datum_string(pool, "term", 4))) {
            datum_release(pool, terms);
            terms = NULL;
        }
        return give(terms, pool, value, err);
    }
    for (uint32_t i = 1; i + 1 < n; i += 2)
        if (words[i].bytes == strlen(name) && memcmp(words[i].data, name, words[i].bytes) == 0)
            return give(datum_string(pool, words[i + 1].data, words[i + 1].bytes), pool, value, err);
    *value = NULL;
    return 0;
}

static int load_all(void *context, uint64_t id, struct pipeline_run *run, struct quire_error *err)
{
    struct schema_word words[WORDS_MAX];
    const struct found *found = context;
    uint32_t n = support_words(found->table->documents[id], words, WORDS_MAX);
    int rc = found->table->gone >> id & 1 ? QUIRE_ENOTFOUND : 0;
    (void)err;
    for (uint32_t i = 1; i + 1 < n && rc == 0; i += 2)
        rc = pipeline_run_put(run, words[i].data, words[i].bytes,
                              datum_string(pipeline_run_pool(run), words[i + 1].data, words[i + 1].bytes));
    return rc;
}

static void say(const char *text, size_t bytes)
{
    if (bytes >= sizeof answer - answered)
        bytes = sizeof answer - answered - 1;
    memcpy(answer + answered, text, bytes);
    answered += bytes;
    answer[answered] = '\0';
}

static void say_datum(const struct datum *datum)
{
    char number[DATUM_PRINT_MAX];
    if (datum->kind == DATUM_NULL)
        say("NULL", 4);
    if (datum->kind == DATUM_NUMBER)
        say(number, datum_print(datum->number, number));
    if (datum->kind == DATUM_STRING)
        say(datum_text(datum), datum->n);
    if (datum->kind != DATUM_ARRAY)
        return;
    say("[", 1);
    for (uint32_t i = 0; i < datum->n; i++) {
        say(",", i > 0);
        say_datum(datum_items(datum)[i]);
    }
    say("]", 1);
}

static void say_row(const struct pipeline_run *run)
{
    const struct pipeline_cell *cells;
    uint32_t n = pipeline_run_cells(run, &cells);
    say("; ", n_rows++ > 0 ? 2 : 0);
    for (uint32_t i = 0; i < n; i++) {
        say(" ", i > 0);
        say(cells[i].name, cells[i].name_bytes);
        say("=", 1);
        say_datum(cells[i].value);
    }
}

static int run_all(struct support_table *table, const struct pipeline *pipeline, struct quire_error *err)
{
    struct found found = {table, 0};
    const struct pipeline_source source = {&found, next, load, load_all};
    struct pipeline_run *run = NULL;
    int rc = pipeline_run_create(pipeline, &source, &table->limits, &run, err);
    if (rc)
        return rc;
    do {
        uint32_t budget = table->budget ? table->budget : 1000;
        rc = pipeline_run_next(run, &budget, err);
        table->paused += rc == PIPELINE_PAUSED;
        if (rc == PIPELINE_ROW)
            say_row(run);
    } while (rc == PIPELINE_ROW || rc == PIPELINE_PAUSED);
    table->total = pipeline_run_total(run);
    pipeline_run_destroy(run);
    return rc;
}

const char *support_aggregate(struct support_table *table, const char *words)
{
    struct schema_word schema_words[WORDS_MAX], command[WORDS_MAX], yields[8];
    struct quire_error err = {0};
    struct schema *schema = NULL;
    struct pipeline *pipeline = NULL;
    answered = n_rows = 0;
    answer[0] = '\0';
    table->paused = 0;
    schema_words[0] = (struct schema_word){"index", 5};
    uint32_t n = 1 + support_words(table->schema, schema_words + 1, WORDS_MAX - 1);
    int rc = schema_parse(schema_words, n, &schema, &err);
    if (rc == 0)
        rc = pipeline_parse(command, support_words(words, command, WORDS_MAX), 3, &pipeline, &err);
    if (rc == 0) {
        const struct pipeline_binding binding = {schema, yields, support_words(table->yields, yields, 8)};
        rc = pipeline_bind(pipeline, &binding, &err);
    }
    if (rc == 0)
        rc = run_all(table, pipeline, &err);
    pipeline_free(pipeline);
    schema_free(schema);
    if (rc < 0) {
        answered = 0;
        say("! ", 2);
        say(err.message, strlen(err.message));
        if (err.code != rc)
            say(" (another code)", 15);
    }
    return answer;
}
