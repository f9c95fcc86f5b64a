/*
 * pipeline_options.c - the options of FT.AGGREGATE, which may stand anywhere between its steps, and reading words.
 *
 * Options that Quire has no use for are checked and accepted where leaving them out changes no row (SLOP without
 * phrases, a scorer without scores is the caller's to judge); what would change rows is refused by its name.
 */
#include "document/pipeline/pipeline_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool pipeline_word_is(const struct schema_word *word, const char *name)
{
    return strlen(name) == word->bytes && strncasecmp(name, word->data, word->bytes) == 0;
}

bool pipeline_take_word(struct pipeline_words *words, const char *name)
{
    if (words->at >= words->n || !pipeline_word_is(&words->words[words->at], name))
        return false;
    words->at++;
    return true;
}

uint32_t pipeline_last_position(const struct pipeline_words *words)
{
    assert(words->at > 0);
    return words->position + words->at - 1;
}

static int too_few(const struct pipeline_words *words, const char *what)
{
    return error_set(words->err, QUIRE_EPARSE,
                     "Bad arguments for %s: Expected an argument, but none provided (position %u)", what,
                     words->position + words->n);
}

int pipeline_take_count(struct pipeline_words *words, const char *what, uint64_t most, uint64_t *count)
{
    uint64_t value = 0;
    if (words->at >= words->n)
        return too_few(words, what);
    const struct schema_word *word = &words->words[words->at];
    bool fine = word->bytes > 0 && word->bytes <= 20;
    for (uint32_t i = 0; i < word->bytes && fine; i++) {
        uint64_t digit = (uint64_t)(word->data[i] - '0');
        fine = word->data[i] >= '0' && word->data[i] <= '9' && value <= (UINT64_MAX - digit) / 10;
        value = 10 * value + digit;
    }
    if (!fine)
        return error_set(
            words->err, QUIRE_EPARSE,
            "Bad arguments for %s: Could not convert argument to expected type ('%.*s' at position %u is no "
            "whole number)",
            what, (int)(word->bytes < 64 ? word->bytes : 64), word->data, words->position + words->at);
    if (value > most)
        return error_set(words->err, QUIRE_ELIMIT,
                         "Bad arguments for %s: Value is outside acceptable bounds (%llu at position %u, at most %llu)",
                         what, (unsigned long long)value, words->position + words->at, (unsigned long long)most);
    words->at++;
    *count = value;
    return 0;
}

int pipeline_take_list(struct pipeline_words *words, const char *what, uint32_t most, const struct schema_word **list,
                       uint32_t *n)
{
    uint64_t count;
    int rc = pipeline_take_count(words, what, most, &count);
    if (rc)
        return rc;
    if (count > words->n - words->at)
        return error_set(words->err, QUIRE_EPARSE,
                         "Bad arguments for %s: Expected an argument, but none provided (%llu are said at position %u, "
                         "%u follow)",
                         what, (unsigned long long)count, pipeline_last_position(words), words->n - words->at);
    *list = words->words + words->at;
    *n = (uint32_t)count;
    words->at += *n;
    return 0;
}

static int take_text(struct pipeline_words *words, const char *what, struct schema_word *text)
{
    if (words->at >= words->n)
        return too_few(words, what);
    *text = words->words[words->at++];
    return 0;
}

static int take_params(struct pipeline_words *words, struct pipeline *pipeline)
{
    const struct schema_word *list = NULL;
    uint32_t n = 0;
    if (pipeline->params)
        return error_set(words->err, QUIRE_EPARSE,
                         "Multiple PARAMS are not allowed. Parameters can be defined only once (position %u)",
                         pipeline_last_position(words));
    int rc = pipeline_take_list(words, "PARAMS", 2 * PIPELINE_PARAMS_MAX, &list, &n);
    if (rc)
        return rc;
    if (n == 0 || n % 2 != 0)
        return error_set(words->err, QUIRE_EPARSE,
                         "Parameters must be specified in PARAM VALUE pairs: %u words are none (position %u)", n,
                         pipeline_last_position(words) - n);
    pipeline->params = malloc(n / 2 * sizeof *pipeline->params);
    if (!pipeline->params)
        return error_set(words->err, QUIRE_ENOMEM, "no memory for %u PARAMS", n / 2);
    for (uint32_t i = 0; i < n / 2; i++) {
        const struct schema_word *name = &list[2 * i], *value = &list[2 * i + 1];
        for (uint32_t j = 0; j < i; j++)
            if (pipeline->params[j].name.bytes == name->bytes &&
                memcmp(pipeline->params[j].name.data, name->data, name->bytes) == 0)
                return error_set(words->err, QUIRE_EPARSE, "Duplicate parameter `%.*s` (position %u)",
                                 (int)(name->bytes < 64 ? name->bytes : 64), name->data,
                                 pipeline_last_position(words) - (n - 1 - 2 * i));
        pipeline->params[i] =
            (struct query_param){.name = {name->data, name->bytes}, .value = {value->data, value->bytes}};
    }
    pipeline->options.params = pipeline->params;
    pipeline->options.n_params = n / 2;
    return 0;
}

static int take_cursor(struct pipeline_words *words, struct pipeline_options *options)
{
    uint64_t count;
    int rc = 0;
    options->with_cursor = true;
    while (rc == 0) {
        if (pipeline_take_word(words, "COUNT")) {
            rc = pipeline_take_count(words, "COUNT", UINT32_MAX, &count);
            if (rc == 0 && count == 0)
                rc = error_set(words->err, QUIRE_EPARSE,
                               "Bad arguments for COUNT: Value is outside acceptable bounds (0 at position %u)",
                               pipeline_last_position(words));
            options->cursor_rows = rc == 0 ? (uint32_t)count : options->cursor_rows;
        } else if (pipeline_take_word(words, "MAXIDLE")) {
            rc = pipeline_take_count(words, "MAXIDLE", INT64_MAX, &count);
            if (rc == 0 && count == 0)
                rc = error_set(words->err, QUIRE_EPARSE,
                               "Bad arguments for MAXIDLE: Value is outside acceptable bounds (0 at position %u)",
                               pipeline_last_position(words));
            if (rc == 0)
                options->cursor_idle_ms = count < PIPELINE_IDLE_MAX_MS ? count : PIPELINE_IDLE_MAX_MS;
        } else {
            return 0;
        }
    }
    return rc;
}

static int take_dialect(struct pipeline_words *words, struct pipeline_options *options)
{
    uint64_t dialect;
    int rc = pipeline_take_count(words, "DIALECT", UINT64_MAX, &dialect);
    if (rc == 0 && (dialect < 1 || dialect > 4))
        rc = error_set(words->err, QUIRE_EPARSE, "DIALECT requires a non negative integer >=1 and <= 4 (position %u)",
                       pipeline_last_position(words));
    if (rc == 0)
        options->dialect = (unsigned)dialect;
    return rc;
}

static int take_timeout(struct pipeline_words *words, struct pipeline_options *options)
{
    int rc = pipeline_take_count(words, "TIMEOUT", INT64_MAX, &options->timeout_ms);
    if (rc == QUIRE_EPARSE && words->at < words->n)
        return error_set(words->err, QUIRE_EPARSE, "TIMEOUT requires a non negative integer (position %u)",
                         words->position + words->at);
    options->timeout_given = rc == 0;
    return rc;
}

static int take_slop(struct pipeline_words *words, struct pipeline_options *options)
{
    uint64_t slop;
    if (words->at < words->n && pipeline_word_is(&words->words[words->at], "-1")) {
        words->at++;
        options->slop = -1;
        return 0;
    }
    int rc = pipeline_take_count(words, "SLOP", INT32_MAX, &slop);
    if (rc == 0)
        options->slop = (int64_t)slop;
    return rc;
}

static int take_format(struct pipeline_words *words)
{
    struct schema_word format = {0};
    int rc = take_text(words, "FORMAT", &format);
    if (rc || pipeline_word_is(&format, "STRING"))
        return rc;
    return error_set(words->err, QUIRE_EUNSUPPORTED,
                     "FORMAT %.*s is not supported: values are given as STRING (position %u)",
                     (int)(format.bytes < 64 ? format.bytes : 64), format.data, pipeline_last_position(words));
}

static int take_in_keys(struct pipeline_words *words, struct pipeline_options *options)
{
    options->in_keys_given = true;
    return pipeline_take_list(words, "INKEYS", UINT32_MAX, &options->in_keys, &options->n_in_keys);
}

/* What the language of FT.AGGREGATE or of RediSearch has, and Quire has not. */
static int refuse(struct pipeline_words *words)
{
    static const struct {
        const char *word, *why;
    } refused[] = {
        {"HIGHLIGHT", "HIGHLIGHT is not supported on FT.AGGREGATE"},
        {"SUMMARIZE", "SUMMARIZE is not supported on FT.AGGREGATE"},
        {"RETURN", "RETURN is not supported on FT.AGGREGATE: LOAD and APPLY make the fields of its rows"},
        {"WITHSCORES", "WITHSCORES is not supported on FT.AGGREGATE: ADDSCORES gives them as @__score"},
        {"WITHSORTKEYS", "WITHSORTKEYS is not supported on FT.AGGREGATE: LOAD the field that SORTBY names"},
        {"WITHPAYLOADS", "Quire has no payloads"},
        {"PAYLOAD", "Quire has no payloads"},
        {"EXPLAINSCORE", "Quire has no EXPLAINSCORE"},
        {"GEOFILTER", "GEOFILTER is not supported on FT.AGGREGATE: write @field:[lon lat radius unit] in the query"},
        {"COLLECT", "Quire has no COLLECT"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (pipeline_word_is(&words->words[words->at], refused[i].word))
            return error_set(words->err, QUIRE_EUNSUPPORTED, "%s (position %u)", refused[i].why,
                             words->position + words->at);
    return 0;
}

int pipeline_take_option(struct pipeline_words *words, struct pipeline *pipeline)
{
    struct pipeline_options *options = &pipeline->options;
    const struct {
        const char *word;
        bool *set;
    } flags[] = {{"VERBATIM", &options->verbatim},
                 {"NOSTOPWORDS", &options->no_stopwords},
                 {"INORDER", &options->in_order},
                 {"ADDSCORES", &options->add_scores},
                 {"WITHCOUNT", &options->with_count}};
    int rc;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (pipeline_take_word(words, flags[i].word)) {
            *flags[i].set = true;
            return 1;
        }
    if (pipeline_take_word(words, "WITHOUTCOUNT")) {
        options->with_count = false;
        return 1;
    }
    if (pipeline_take_word(words, "WITHCURSOR"))
        rc = take_cursor(words, options);
    else if (pipeline_take_word(words, "PARAMS"))
        rc = take_params(words, pipeline);
    else if (pipeline_take_word(words, "DIALECT"))
        rc = take_dialect(words, options);
    else if (pipeline_take_word(words, "TIMEOUT"))
        rc = take_timeout(words, options);
    else if (pipeline_take_word(words, "SLOP"))
        rc = take_slop(words, options);
    else if (pipeline_take_word(words, "SCORER"))
        rc = take_text(words, "SCORER", &options->scorer);
    else if (pipeline_take_word(words, "LANGUAGE"))
        rc = take_text(words, "LANGUAGE", &options->language);
    else if (pipeline_take_word(words, "EXPANDER"))
        rc = take_text(words, "EXPANDER", &options->expander);
    else if (pipeline_take_word(words, "FORMAT"))
        rc = take_format(words);
    else if (pipeline_take_word(words, "INFIELDS"))
        rc = pipeline_take_list(words, "INFIELDS", PIPELINE_FIELDS_MAX, &options->in_fields, &options->n_in_fields);
    else if (pipeline_take_word(words, "INKEYS"))
        rc = take_in_keys(words, options);
    else
        return refuse(words);
    return rc ? rc : 1;
}
