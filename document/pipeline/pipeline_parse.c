/*
 * pipeline_parse.c - the words behind FT.AGGREGATE's query become steps.
 *
 * Only the form is read here; which fields there are is known later (pipeline_bind.c), because the names of distances
 * come from the query, and the query needs PARAMS, which may be the last words. Messages are those that RediSearch
 * gives where it gives one, and name the place.
 *
 * SORTBY and LIMIT beside each other are one step, in either order: what is sorted is then cut. A SORTBY without LIMIT
 * or MAX gives ten rows, as in RediSearch.
 */
#include "document/pipeline/pipeline_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SORT_DEFAULT 10u /* rows of a SORTBY without LIMIT and MAX */

static int shown(const struct schema_word *word)
{
    return (int)(word->bytes < 64 ? word->bytes : 64);
}

static struct pipeline_step *add_step(struct pipeline_words *words, struct pipeline *pipeline, enum pipeline_kind kind)
{
    if (pipeline->n_steps == PIPELINE_STEPS_MAX) {
        error_set(words->err, QUIRE_ELIMIT, "FT.AGGREGATE has %u steps at most: '%.*s' at position %u is one more",
                  PIPELINE_STEPS_MAX, shown(&words->words[words->at - 1]), words->words[words->at - 1].data,
                  pipeline_last_position(words));
        return NULL;
    }
    if (!array_reserve(&pipeline->steps, &pipeline->steps_capacity, pipeline->n_steps + 1u)) {
        error_set(words->err, QUIRE_ENOMEM, "no memory for a step of FT.AGGREGATE");
        return NULL;
    }
    struct pipeline_step *step = &pipeline->steps[pipeline->n_steps++];
    *step = (struct pipeline_step){.kind = kind, .position = pipeline_last_position(words)};
    return step;
}

/* Why add_step gave none. */
static int not_added(const struct pipeline_words *words)
{
    return words->err->code;
}

static int no_memory(const struct pipeline_words *words)
{
    return error_set(words->err, QUIRE_ENOMEM, "no memory for a step of FT.AGGREGATE");
}

static struct schema_word without_at(struct schema_word word)
{
    if (word.bytes > 0 && word.data[0] == '@')
        return (struct schema_word){word.data + 1, word.bytes - 1};
    return word;
}

static int add_field(struct pipeline_words *words, struct pipeline_step *step, struct schema_word name,
                     struct schema_word as)
{
    if (!array_reserve(&step->fields, &step->fields_capacity, step->n_fields + 1u))
        return no_memory(words);
    step->fields[step->n_fields++] = (struct pipeline_field){name, as, PIPELINE_NO_COLUMN};
    return 0;
}

/* ---- LOAD -------------------------------------------------------------------------------------------------------- */

/* Fields, each with or without @, AS and a name. n: words of all of it. */
static int parse_fields(struct pipeline_words *words, struct pipeline_step *step, const struct schema_word *list,
                        uint32_t n)
{
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct schema_word name = without_at(list[i]), as = name;
        uint32_t position = pipeline_last_position(words) - (n - 1 - i);
        if (name.bytes == 0)
            return error_set(words->err, QUIRE_EPARSE, "Bad arguments for LOAD: the name at position %u is empty",
                             position);
        if (i + 1 < n && pipeline_word_is(&list[i + 1], "AS")) {
            if (i + 2 >= n)
                return error_set(words->err, QUIRE_EPARSE,
                                 "LOAD path AS name - must be accompanied with NAME (position %u)", position + 1);
            if (pipeline_word_is(&list[i + 2], "AS"))
                return error_set(words->err, QUIRE_EPARSE, "Alias for LOAD cannot be `AS` (position %u)", position + 2);
            as = without_at(list[i + 2]);
            i += 2;
        }
        rc = add_field(words, step, name, as);
    }
    return rc;
}

static int parse_load(struct pipeline_words *words, struct pipeline *pipeline)
{
    const struct schema_word *list;
    uint32_t n;
    struct pipeline_step *step = add_step(words, pipeline, STEP_LOAD);
    if (!step)
        return not_added(words);
    if (pipeline_take_word(words, "*")) {
        step->kind = STEP_ALL;
        return 0;
    }
    if (words->at < words->n && words->words[words->at].bytes > 0 &&
        !isdigit((unsigned char)words->words[words->at].data[0]))
        return error_set(words->err, QUIRE_EPARSE,
                         "Bad arguments for LOAD: Expected number of fields or `*` ('%.*s' at position %u)",
                         shown(&words->words[words->at]), words->words[words->at].data, words->position + words->at);
    int rc = pipeline_take_list(words, "LOAD", 3 * PIPELINE_FIELDS_MAX, &list, &n);
    return rc ? rc : parse_fields(words, step, list, n);
}

/* ---- APPLY, FILTER ----------------------------------------------------------------------------------------------- */

static int parse_expression(struct pipeline_words *words, struct pipeline *pipeline, enum pipeline_kind kind)
{
    struct quire_error wrong = {0};
    struct pipeline_step *step = add_step(words, pipeline, kind);
    if (!step)
        return not_added(words);
    const char *name = kind == STEP_APPLY ? "APPLY" : "FILTER";
    if (words->at >= words->n)
        return error_set(words->err, QUIRE_EPARSE,
                         "Bad arguments for APPLY/FILTER: Expected an argument, but none provided (%s at position %u)",
                         name, step->position);
    const struct schema_word *text = &words->words[words->at++];
    int rc = expression_parse(text->data, text->bytes, &step->expression, &wrong);
    if (rc)
        return error_set(words->err, rc, "%.330s (%s at position %u)", wrong.message, name, step->position);
    step->as = *text;
    if (kind != STEP_APPLY || !pipeline_take_word(words, "AS"))
        return 0;
    if (words->at >= words->n)
        return error_set(words->err, QUIRE_EPARSE, "AS needs argument (position %u)", pipeline_last_position(words));
    step->as = words->words[words->at++];
    return 0;
}

/* ---- GROUPBY, REDUCE --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum reducer_kind kind;
    uint32_t args_min, args_max;
} reducers[] = {
    {"COUNT", REDUCER_COUNT, 0, 0},
    {"COUNT_DISTINCT", REDUCER_COUNT_DISTINCT, 1, 1},
    {"COUNT_DISTINCTISH", REDUCER_COUNT_DISTINCTISH, 1, 1},
    {"SUM", REDUCER_SUM, 1, 1},
    {"MIN", REDUCER_MIN, 1, 1},
    {"MAX", REDUCER_MAX, 1, 1},
    {"AVG", REDUCER_AVG, 1, 1},
    {"STDDEV", REDUCER_STDDEV, 1, 1},
    {"QUANTILE", REDUCER_QUANTILE, 2, 2},
    {"TOLIST", REDUCER_TOLIST, 1, 1},
    {"FIRST_VALUE", REDUCER_FIRST_VALUE, 1, 4},
    {"RANDOM_SAMPLE", REDUCER_RANDOM_SAMPLE, 2, 2},
};

/* FIRST_VALUE field [BY field [ASC|DESC]] */
static int parse_first_value(struct pipeline_words *words, struct pipeline_reduce *reduce,
                             const struct schema_word *args, uint32_t n)
{
    uint32_t wrong = 1;
    if (n > 1 && pipeline_word_is(&args[1], "BY")) {
        wrong = 2;
        if (n > 2) {
            reduce->by = without_at(args[2]);
            reduce->reducer.by = true;
            wrong = 3;
        }
        if (n > 3 && (pipeline_word_is(&args[3], "ASC") || pipeline_word_is(&args[3], "DESC"))) {
            reduce->reducer.descending = pipeline_word_is(&args[3], "DESC");
            wrong = 4;
        }
    }
    if (wrong == n)
        return wrong == 2 ? error_set(words->err, QUIRE_EPARSE,
                                      "Missing arguments for FIRST_VALUE: a field behind BY "
                                      "(position %u)",
                                      pipeline_last_position(words))
                          : 0;
    return error_set(words->err, QUIRE_EPARSE, "Unknown argument `%.*s` at position %u for FIRST_VALUE",
                     shown(&args[wrong]), args[wrong].data, pipeline_last_position(words) - (n - 1 - wrong));
}

static int parse_quantile(struct pipeline_words *words, struct pipeline_reduce *reduce, const struct schema_word *arg)
{
    char text[64], *end = text;
    if (arg->bytes > 0 && arg->bytes < sizeof text) {
        memcpy(text, arg->data, arg->bytes);
        text[arg->bytes] = '\0';
        reduce->reducer.quantile = strtod(text, &end);
    }
    if (end == text || *end != '\0')
        return error_set(
            words->err, QUIRE_EPARSE,
            "Bad arguments for QUANTILE: Could not convert argument to expected type ('%.*s' at position %u)",
            shown(arg), arg->data, pipeline_last_position(words));
    if (!(reduce->reducer.quantile >= 0 && reduce->reducer.quantile <= 1)) {
        reduce->reducer.quantile = 0;
        return error_set(words->err, QUIRE_EPARSE, "Percentage must be between 0.0 and 1.0 ('%.*s' at position %u)",
                         shown(arg), arg->data, pipeline_last_position(words));
    }
    return 0;
}

static int parse_samples(struct pipeline_words *words, struct pipeline_reduce *reduce)
{
    uint64_t samples;
    words->at--;
    int rc = pipeline_take_count(words, "RANDOM_SAMPLE", UINT64_MAX, &samples);
    if (rc)
        return rc;
    if (samples > REDUCER_SAMPLE_MAX)
        return error_set(words->err, QUIRE_ELIMIT, "Sample size too large: %llu at position %u, at most %u",
                         (unsigned long long)samples, pipeline_last_position(words), REDUCER_SAMPLE_MAX);
    reduce->reducer.samples = (uint32_t)samples;
    return 0;
}

/* The name of a result without AS: __generated_alias, the reducer, its arguments without @ and with commas between. */
static int make_alias(struct pipeline_words *words, struct pipeline_reduce *reduce, const struct schema_word *name,
                      const struct schema_word *args, uint32_t n)
{
    static const char prefix[] = "__generated_alias";
    size_t bytes = sizeof prefix - 1 + name->bytes, at = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += args[i].bytes + 1;
    char *alias = malloc(bytes + 1);
    if (!alias)
        return no_memory(words);
    memcpy(alias, prefix, sizeof prefix - 1);
    at = sizeof prefix - 1;
    memcpy(alias + at, name->data, name->bytes);
    at += name->bytes;
    for (uint32_t i = 0; i < n; i++) {
        struct schema_word arg = without_at(args[i]);
        if (i > 0)
            alias[at++] = ',';
        memcpy(alias + at, arg.data, arg.bytes);
        at += arg.bytes;
    }
    assert(at <= bytes);
    alias[at] = '\0';
    for (size_t i = 0; i < at; i++)
        alias[i] = (char)tolower((unsigned char)alias[i]);
    reduce->alias = alias;
    reduce->alias_bytes = (uint32_t)at;
    return 0;
}

static int take_alias(struct pipeline_words *words, struct pipeline_reduce *reduce)
{
    if (words->at >= words->n)
        return error_set(words->err, QUIRE_EPARSE,
                         "Bad arguments for AS: Expected an argument, but none provided (position %u)",
                         pipeline_last_position(words));
    const struct schema_word *as = &words->words[words->at++];
    reduce->alias = malloc(as->bytes + 1u);
    if (!reduce->alias)
        return no_memory(words);
    memcpy(reduce->alias, as->data, as->bytes);
    reduce->alias[as->bytes] = '\0';
    reduce->alias_bytes = as->bytes;
    return 0;
}

static int find_reducer(struct pipeline_words *words, const struct schema_word *name, size_t *found)
{
    for (*found = 0; *found < sizeof reducers / sizeof reducers[0]; ++*found)
        if (pipeline_word_is(name, reducers[*found].name))
            return 0;
    if (pipeline_word_is(name, "HLL") || pipeline_word_is(name, "HLL_SUM") || pipeline_word_is(name, "COLLECT"))
        return error_set(words->err, QUIRE_EUNSUPPORTED,
                         "Quire has no reducer %.*s (position %u); COUNT_DISTINCTISH counts", shown(name), name->data,
                         pipeline_last_position(words));
    return error_set(words->err, QUIRE_EPARSE, "No such reducer: %.*s (position %u)", shown(name), name->data,
                     pipeline_last_position(words));
}

/* Behind REDUCE. */
static int parse_reduce(struct pipeline_words *words, struct pipeline_step *step)
{
    const struct schema_word *args;
    uint32_t n;
    size_t at;
    if (words->at >= words->n)
        return error_set(words->err, QUIRE_EPARSE,
                         "Bad arguments for REDUCE: Expected an argument, but none provided (position %u)",
                         pipeline_last_position(words));
    if (step->n_reduces == PIPELINE_FIELDS_MAX)
        return error_set(words->err, QUIRE_ELIMIT, "a GROUPBY has %u REDUCE at most (position %u)", PIPELINE_FIELDS_MAX,
                         pipeline_last_position(words));
    if (!array_reserve(&step->reduces, &step->reduces_capacity, step->n_reduces + 1u))
        return no_memory(words);
    struct pipeline_reduce *reduce = &step->reduces[step->n_reduces++];
    const struct schema_word *name = &words->words[words->at++];
    *reduce = (struct pipeline_reduce){.column = PIPELINE_NO_COLUMN, .by_column = PIPELINE_NO_COLUMN};
    int rc = find_reducer(words, name, &at);
    if (rc == 0)
        rc = pipeline_take_list(words, reducers[at].name, PIPELINE_FIELDS_MAX, &args, &n);
    if (rc)
        return rc;
    if (n < reducers[at].args_min)
        return error_set(words->err, QUIRE_EPARSE, "Missing arguments for %s: it takes %u (position %u)",
                         reducers[at].name, reducers[at].args_min, pipeline_last_position(words));
    if (n > reducers[at].args_max)
        return error_set(words->err, QUIRE_EPARSE, "Unknown argument `%.*s` at position %u for %s",
                         shown(&args[reducers[at].args_max]), args[reducers[at].args_max].data,
                         pipeline_last_position(words) - (n - 1 - reducers[at].args_max), reducers[at].name);
    reduce->reducer.kind = reducers[at].kind;
    reduce->takes_field = n > 0;
    if (n > 0)
        reduce->field = without_at(args[0]);
    if (reduce->reducer.kind == REDUCER_FIRST_VALUE)
        rc = parse_first_value(words, reduce, args, n);
    else if (reduce->reducer.kind == REDUCER_QUANTILE)
        rc = parse_quantile(words, reduce, &args[1]);
    else if (reduce->reducer.kind == REDUCER_RANDOM_SAMPLE)
        rc = parse_samples(words, reduce);
    if (rc)
        return rc;
    return pipeline_take_word(words, "AS") ? take_alias(words, reduce) : make_alias(words, reduce, name, args, n);
}

static int parse_group(struct pipeline_words *words, struct pipeline *pipeline)
{
    const struct schema_word *list;
    uint32_t n;
    struct pipeline_step *step = add_step(words, pipeline, STEP_GROUP);
    if (!step)
        return not_added(words);
    int rc = pipeline_take_list(words, "GROUPBY", PIPELINE_FIELDS_MAX, &list, &n);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (list[i].bytes < 2 || list[i].data[0] != '@')
            return error_set(words->err, QUIRE_EPARSE,
                             "Bad arguments for GROUPBY: Unknown property `%.*s`. Did you mean `@%.*s`? (position %u)",
                             shown(&list[i]), list[i].data, shown(&list[i]), list[i].data,
                             pipeline_last_position(words) - (n - 1 - i));
        struct schema_word name = without_at(list[i]);
        rc = add_field(words, step, name, name);
    }
    while (rc == 0 && pipeline_take_word(words, "REDUCE"))
        rc = parse_reduce(words, step);
    return rc;
}

/* ---- SORTBY, LIMIT ----------------------------------------------------------------------------------------------- */

/* The step that SORTBY and LIMIT beside each other make. */
static struct pipeline_step *arrange_step(struct pipeline_words *words, struct pipeline *pipeline)
{
    if (pipeline->n_steps > 0 && pipeline->steps[pipeline->n_steps - 1].kind == STEP_ARRANGE)
        return &pipeline->steps[pipeline->n_steps - 1];
    return add_step(words, pipeline, STEP_ARRANGE);
}

static int parse_sort_field(struct pipeline_words *words, struct pipeline_step *step, const struct schema_word *word,
                            uint32_t position)
{
    if (word->bytes > 1 && word->data[0] == '@') {
        if (step->n_fields == PIPELINE_SORT_MAX)
            return error_set(words->err, QUIRE_ELIMIT, "Cannot sort by more than %u fields: '%.*s' at position %u",
                             PIPELINE_SORT_MAX, shown(word), word->data, position);
        return add_field(words, step, without_at(*word), without_at(*word));
    }
    bool descending = pipeline_word_is(word, "DESC");
    if ((!descending && !pipeline_word_is(word, "ASC")) || step->n_fields == 0)
        return error_set(words->err, QUIRE_EPARSE, "MISSING ASC or DESC after sort field (%.*s) at position %u",
                         shown(word), word->data, position);
    uint64_t bit = 1ull << (step->n_fields - 1);
    step->descending = descending ? step->descending | bit : step->descending & ~bit;
    return 0;
}

static int parse_sort(struct pipeline_words *words, struct pipeline *pipeline)
{
    const struct schema_word *list;
    uint32_t n;
    struct pipeline_step *step = arrange_step(words, pipeline);
    if (!step)
        return not_added(words);
    if (step->sorts)
        return error_set(words->err, QUIRE_EPARSE,
                         "Multiple SORTBY steps are not allowed. Sort multiple fields in a single step (position %u)",
                         pipeline_last_position(words));
    int rc = pipeline_take_list(words, "SORTBY", 2 * PIPELINE_SORT_MAX, &list, &n);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = parse_sort_field(words, step, &list[i], pipeline_last_position(words) - (n - 1 - i));
    step->sorts = rc == 0 && n > 0;
    if (rc == 0 && pipeline_take_word(words, "MAX"))
        rc = pipeline_take_count(words, "MAX", UINT32_MAX, &step->limit);
    if (rc == 0 && n == 0 && !step->limited && step->limit == 0)
        pipeline->n_steps--; /* SORTBY 0: no order; with MAX, a limit */
    return rc;
}

static int parse_limit(struct pipeline_words *words, struct pipeline *pipeline)
{
    struct pipeline_step *step = arrange_step(words, pipeline);
    if (!step)
        return not_added(words);
    if (words->n - words->at < 2)
        return error_set(words->err, QUIRE_EPARSE, "LIMIT requires two arguments (position %u)",
                         pipeline_last_position(words));
    int rc = pipeline_take_count(words, "LIMIT", INT64_MAX, &step->offset);
    if (rc == 0)
        rc = pipeline_take_count(words, "LIMIT", INT64_MAX, &step->limit);
    if (rc == QUIRE_EPARSE)
        return error_set(words->err, QUIRE_EPARSE, "LIMIT needs two numeric arguments ('%.*s' at position %u)",
                         shown(&words->words[words->at]), words->words[words->at].data, words->position + words->at);
    if (rc == 0 && step->limit == 0 && step->offset != 0)
        return error_set(words->err, QUIRE_EPARSE, "The `offset` of the LIMIT must be 0 when `num` is 0 (position %u)",
                         pipeline_last_position(words) - 1);
    step->limited = true;
    return rc;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int parse_next(struct pipeline_words *words, struct pipeline *pipeline)
{
    int rc = pipeline_take_option(words, pipeline);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (pipeline_take_word(words, "LOAD"))
        return parse_load(words, pipeline);
    if (pipeline_take_word(words, "APPLY"))
        return parse_expression(words, pipeline, STEP_APPLY);
    if (pipeline_take_word(words, "FILTER"))
        return parse_expression(words, pipeline, STEP_FILTER);
    if (pipeline_take_word(words, "GROUPBY"))
        return parse_group(words, pipeline);
    if (pipeline_take_word(words, "SORTBY"))
        return parse_sort(words, pipeline);
    if (pipeline_take_word(words, "LIMIT"))
        return parse_limit(words, pipeline);
    return error_set(words->err, QUIRE_EPARSE, "Unknown argument `%.*s` at position %u for <main>",
                     shown(&words->words[words->at]), words->words[words->at].data, words->position + words->at);
}

int pipeline_parse(const struct schema_word *words, uint32_t n, uint32_t position, struct pipeline **out,
                   struct quire_error *err)
{
    struct quire_error ignored;
    struct pipeline_words reader = {words, n, 0, position, err ? err : &ignored};
    struct pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (!pipeline)
        return error_set(err, QUIRE_ENOMEM, "no memory for FT.AGGREGATE");
    pipeline->options =
        (struct pipeline_options){.cursor_rows = 1000, .cursor_idle_ms = PIPELINE_IDLE_MAX_MS, .slop = -1};
    int rc = 0;
    while (rc == 0 && reader.at < n)
        rc = parse_next(&reader, pipeline);
    if (rc) {
        pipeline_free(pipeline);
        return rc;
    }
    for (uint32_t i = 0; i < pipeline->n_steps; i++)
        if (pipeline->steps[i].sorts && pipeline->steps[i].limit == 0 && !pipeline->steps[i].limited)
            pipeline->steps[i].limit = SORT_DEFAULT;
    *out = pipeline;
    return 0;
}

static void free_step(struct pipeline_step *step)
{
    for (uint32_t i = 0; i < step->n_reduces; i++)
        free(step->reduces[i].alias);
    expression_free(step->expression);
    array_free_all(step->loads, step->fields, step->columns, step->reduces);
}

void pipeline_free(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (uint32_t i = 0; i < pipeline->n_steps; i++)
        free_step(&pipeline->steps[i]);
    for (uint32_t i = 0; i < pipeline->n_tables; i++)
        pipeline_table_free(&pipeline->tables[i]);
    array_free_all(pipeline->steps, pipeline->tables, pipeline->params);
    free(pipeline);
}

const struct pipeline_options *pipeline_options(const struct pipeline *pipeline)
{
    return &pipeline->options;
}

bool pipeline_uses_terms(const struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < pipeline->n_steps; i++)
        if (pipeline->steps[i].expression && expression_uses_terms(pipeline->steps[i].expression))
            return true;
    return false;
}
