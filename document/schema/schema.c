/*
 * schema.c - the words of FT.CREATE and FT.ALTER become a schema.
 *
 * Options before SCHEMA come in any order and in any case; so do those of a field behind its type. What tunes another
 * engine (INITIAL_CAP, BLOCK_SIZE, graph sizes, ...) is accepted, and remembered where FT.INFO shows it. What would
 * change answers and is not here (FILTER, TEMPORARY, GEOSHAPE, PHONETIC search) is refused by name.
 *
 * Error texts that clients and their tests look for are those of RediSearch's documentation and of
 * docs/search.md; the others name the word and what could stand there. The place stands behind each: the position of
 * the word in the command, as FT.AGGREGATE counts it, and the field.
 */
#include "document/schema/schema.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_BYTES_MAX = 63, WORD_SHOWN = 64, SENTENCE_BYTES = 280 };

/* ---- words ------------------------------------------------------------------------------------------------------- */

struct words {
    const struct schema_word *words;
    uint32_t n, at, position; /* position: of the first word in the command */
    const char *field;        /* that is being read; NULL: none */
    struct quire_error *err;
};

static bool word_is(const struct schema_word *w, const char *text)
{
    return w->bytes == strlen(text) && strncasecmp(w->data, text, w->bytes) == 0;
}

static int shown_bytes(const struct schema_word *w)
{
    return w->bytes < WORD_SHOWN ? (int)w->bytes : WORD_SHOWN;
}

/* Takes the next word if it is this one. */
static bool take(struct words *w, const char *text)
{
    if (w->at == w->n || !word_is(&w->words[w->at], text))
        return false;
    w->at++;
    return true;
}

static const struct schema_word *next(struct words *w)
{
    return w->at < w->n ? &w->words[w->at++] : NULL;
}

/* The sentence, and the place: that of the word at `at`. */
static int fail_at(const struct words *w, uint32_t at, int code, const char *format, va_list arguments)
{
    char sentence[SENTENCE_BYTES];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    if (!w->field)
        return error_set(w->err, code, "%s (position %u)", sentence, w->position + at);
    return error_set(w->err, code, "%s (position %u, field `%.64s`)", sentence, w->position + at, w->field);
}

/* What is wrong with the word that was taken last. */
static int fail(const struct words *w, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(const struct words *w, int code, const char *format, ...)
{
    va_list arguments;
    assert(w->at > 0);
    va_start(arguments, format);
    int rc = fail_at(w, w->at - 1, code, format, arguments);
    va_end(arguments);
    return rc;
}

/* That there is none where one should be: behind the last one. */
static int fail_end(const struct words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail_end(const struct words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int rc = fail_at(w, w->n, QUIRE_EINVALID, format, arguments);
    va_end(arguments);
    return rc;
}

static int missing(const struct words *w, const char *what)
{
    return fail_end(w, "Bad arguments for %s: Expected an argument, but none provided", what);
}

static int take_number(struct words *w, const char *what, double low, double high, double *out)
{
    char text[NUMBER_BYTES_MAX + 1], *end;
    const struct schema_word *word = next(w);
    if (!word)
        return missing(w, what);
    if (word->bytes == 0 || word->bytes > NUMBER_BYTES_MAX)
        return fail(w, QUIRE_EINVALID, "Bad arguments for %s: '%.*s' is not a number", what, shown_bytes(word),
                    word->data);
    memcpy(text, word->data, word->bytes);
    text[word->bytes] = 0;
    double x = strtod(text, &end);
    if (*end || isspace((unsigned char)text[0]) || isnan(x))
        return fail(w, QUIRE_EINVALID, "Bad arguments for %s: Could not convert argument to expected type: '%s'", what,
                    text);
    if (x < low || x > high)
        return fail(w, QUIRE_ERANGE, "Bad arguments for %s: %s is not between %.15g and %.15g", what, text, low, high);
    *out = x;
    return 0;
}

static int take_count(struct words *w, const char *what, uint32_t low, uint32_t high, uint32_t *out)
{
    double x = 0;
    int rc = take_number(w, what, low, high, &x);
    if (rc == 0 && x != floor(x))
        return fail(w, QUIRE_EINVALID, "Bad arguments for %s: %.15g is not a whole number", what, x);
    *out = (uint32_t)x;
    return rc;
}

/* A terminated copy. */
static int copy_word(const struct words *w, const struct schema_word *word, char **out)
{
    char *text = malloc(word->bytes + (size_t)1);
    if (!text)
        return error_set(w->err, QUIRE_ENOMEM, "no memory for a schema");
    memcpy(text, word->data, word->bytes);
    text[word->bytes] = 0;
    free(*out);
    *out = text;
    return 0;
}

/* In the command: of the word that comes next. */
static uint32_t next_position(const struct words *w)
{
    return w->position + w->at;
}

/* A name or a path: not empty, no NUL inside. */
static int take_name(struct words *w, const char *what, char **out, uint32_t *n_bytes)
{
    const struct schema_word *word = next(w);
    if (!word)
        return missing(w, what);
    if (word->bytes == 0 || memchr(word->data, 0, word->bytes))
        return fail(w, QUIRE_EINVALID, "Bad arguments for %s: a name may not be empty or hold a NUL byte", what);
    int rc = copy_word(w, word, out);
    if (rc == 0 && n_bytes)
        *n_bytes = word->bytes;
    return rc;
}

/* A counted list of words, copied; lower: in lower case. */
static int take_list(struct words *w, const char *what, uint32_t n_max, bool lower, struct schema_word **list,
                     uint32_t *n_list)
{
    uint32_t n = 0;
    int rc = take_count(w, what, 0, n_max, &n);
    if (rc < 0)
        return rc;
    if (n > w->n - w->at)
        return missing(w, what);
    struct schema_word *words = calloc(n ? n : 1, sizeof *words);
    if (!words)
        return error_set(w->err, QUIRE_ENOMEM, "no memory for a schema");
    for (uint32_t i = 0; i < *n_list; i++)
        free((char *)(uintptr_t)(*list)[i].data);
    free(*list);
    *list = words;
    *n_list = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct schema_word *word = next(w);
        char *copy = NULL;
        if ((rc = copy_word(w, word, &copy)) < 0)
            return rc;
        for (uint32_t j = 0; lower && j < word->bytes; j++)
            copy[j] = (char)tolower((unsigned char)copy[j]);
        words[i] = (struct schema_word){copy, word->bytes};
    }
    return 0;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static int take_element(struct words *w, struct schema_vector *v)
{
    static const char *const names[] = {"FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16", "INT8", "UINT8"};
    const struct schema_word *word = next(w);
    for (unsigned i = 0; word && i < sizeof names / sizeof *names; i++)
        if (word_is(word, names[i])) {
            v->element = (enum schema_element)i;
            return 0;
        }
    if (!word)
        return missing(w, "vector similarity index type");
    return fail(w, QUIRE_EINVALID,
                "Bad arguments for vector similarity index type: '%.*s' is not FLOAT32, FLOAT64, FLOAT16, BFLOAT16, "
                "INT8 or UINT8",
                shown_bytes(word), word->data);
}

static int take_metric(struct words *w, struct schema_vector *v)
{
    static const char *const names[] = {"L2", "IP", "COSINE"};
    const struct schema_word *word = next(w);
    for (unsigned i = 0; word && i < sizeof names / sizeof *names; i++)
        if (word_is(word, names[i])) {
            v->metric = (enum schema_metric)i;
            return 0;
        }
    if (!word)
        return missing(w, "vector similarity index metric");
    return fail(w, QUIRE_EINVALID, "Bad arguments for vector similarity index metric: '%.*s' is not L2, IP or COSINE",
                shown_bytes(word), word->data);
}

/* Tunes another engine: accepted, nothing is done with it. */
static bool is_tuning(const struct schema_word *word)
{
    static const char *const names[] = {"INITIAL_CAP",
                                        "BLOCK_SIZE",
                                        "RERANK",
                                        "GRAPH_MAX_DEGREE",
                                        "CONSTRUCTION_WINDOW_SIZE",
                                        "SEARCH_WINDOW_SIZE",
                                        "COMPRESSION",
                                        "REDUCE",
                                        "TRAINING_THRESHOLD",
                                        "LEANVEC_DIM",
                                        "USE_SEARCH_HISTORY",
                                        "SEARCH_BUFFER_CAPACITY"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (word_is(word, names[i]))
            return true;
    return false;
}

static int take_vector(struct words *w, struct schema_field *f)
{
    struct schema_vector *v = &f->vector;
    bool typed = false, measured = false;
    uint32_t n = 0;
    const struct schema_word *word = next(w);
    *v = (struct schema_vector){.m = 16, .ef_construction = 200, .ef_runtime = 10, .epsilon = .01};
    if (!word)
        return missing(w, "vector similarity algorithm");
    if (word_is(word, "FLAT"))
        v->algorithm = SCHEMA_FLAT;
    else if (word_is(word, "HNSW"))
        v->algorithm = SCHEMA_HNSW;
    else if (word_is(word, "SVS-VAMANA"))
        v->algorithm = SCHEMA_SVS;
    else
        return fail(w, QUIRE_EINVALID,
                    "Bad arguments for vector similarity algorithm: '%.*s' is not FLAT, HNSW or SVS-VAMANA",
                    shown_bytes(word), word->data);
    int rc = take_count(w, "vector similarity number of parameters", 0, 1000, &n);
    if (rc < 0)
        return rc;
    if (n % 2 || n > w->n - w->at)
        return fail(w, QUIRE_EINVALID,
                    "Bad number of arguments for vector similarity index: got %u but expected even number as algorithm "
                    "parameters (should be submitted as named arguments)",
                    n);
    for (uint32_t end = w->at + n; w->at < end && rc == 0;) {
        word = next(w);
        if (word_is(word, "TYPE")) {
            rc = take_element(w, v);
            typed = true;
        } else if (word_is(word, "DIM")) {
            rc = take_count(w, "vector similarity dim", 1, SCHEMA_DIM_MAX, &v->dim);
        } else if (word_is(word, "DISTANCE_METRIC")) {
            rc = take_metric(w, v);
            measured = true;
        } else if (word_is(word, "M")) {
            rc = take_count(w, "vector similarity M", 1, 4096, &v->m);
        } else if (word_is(word, "EF_CONSTRUCTION")) {
            rc = take_count(w, "vector similarity EF_CONSTRUCTION", 1, 1000000, &v->ef_construction);
        } else if (word_is(word, "EF_RUNTIME")) {
            rc = take_count(w, "vector similarity EF_RUNTIME", 1, 1000000, &v->ef_runtime);
        } else if (word_is(word, "EPSILON")) {
            rc = take_number(w, "vector similarity EPSILON", 0, 1e9, &v->epsilon);
        } else if (word_is(word, "INDEXMISSING")) { /* redisvl writes it here, with a value */
            word = next(w);
            f->index_missing = !word_is(word, "False");
        } else if (is_tuning(word)) {
            w->at++;
        } else {
            rc = fail(w, QUIRE_EINVALID, "Bad arguments for algorithm %s: Unknown argument `%.*s`",
                      schema_algorithm_name(v->algorithm), shown_bytes(word), word->data);
        }
    }
    if (rc < 0)
        return rc;
    if (!typed || v->dim == 0 || !measured)
        return fail(w, QUIRE_EINVALID,
                    "Missing mandatory parameter: cannot create %s index without specifying %s argument",
                    schema_algorithm_name(v->algorithm),
                    !typed        ? "TYPE"
                    : v->dim == 0 ? "DIM"
                                  : "DISTANCE_METRIC");
    return 0;
}

static int take_type(struct words *w, struct schema_field *f)
{
    static const char *const names[] = {"TEXT", "TAG", "NUMERIC", "GEO", "VECTOR"};
    const struct schema_word *word = next(w);
    if (!word)
        return fail_end(w, "Fields arguments are missing: field `%.64s` has no type", f->name);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (word_is(word, names[i])) {
            f->type = (enum schema_type)i;
            return f->type == SCHEMA_VECTOR ? take_vector(w, f) : 0;
        }
    if (word_is(word, "GEOSHAPE"))
        return fail(w, QUIRE_EUNSUPPORTED, "GEOSHAPE is not supported by Quire");
    return fail(w, QUIRE_EINVALID,
                "Invalid field type for field `%.64s`: '%.*s' is not TEXT, TAG, NUMERIC, GEO or VECTOR", f->name,
                shown_bytes(word), word->data);
}

static int take_phonetic(struct words *w, struct schema_field *f)
{
    const struct schema_word *word = next(w);
    if (!word)
        return missing(w, "PHONETIC");
    if (word->bytes != 5 || strncasecmp(word->data, "dm:", 3) != 0)
        return fail(w, QUIRE_EINVALID,
                    "Matcher Format: <2 chars algorithm>:<2 chars language>. Support algorithms: double metaphone "
                    "(dm): '%.*s' is none",
                    shown_bytes(word), word->data);
    memcpy(f->phonetic, word->data, 5);
    return 0;
}

static int take_separator(struct words *w, struct schema_field *f)
{
    const struct schema_word *word = next(w);
    if (!word)
        return missing(w, "SEPARATOR");
    if (word->bytes != 1)
        return fail(w, QUIRE_EINVALID, "Tag separator must be a single character. Got `%.*s`", shown_bytes(word),
                    word->data);
    f->separator = word->data[0];
    return 0;
}

/* The options behind a type, as many as there are. */
static int take_options(struct words *w, struct schema_field *f)
{
    bool text = f->type == SCHEMA_TEXT, tag = f->type == SCHEMA_TAG;
    int rc = 0;
    while (rc == 0) {
        if (take(w, "NOINDEX"))
            f->no_index = true;
        else if (take(w, "INDEXMISSING"))
            f->index_missing = true;
        else if (f->type != SCHEMA_VECTOR && take(w, "SORTABLE"))
            f->sortable = true;
        else if (f->type != SCHEMA_VECTOR && take(w, "UNF"))
            f->unf = true;
        else if ((text || tag) && take(w, "INDEXEMPTY"))
            f->index_empty = true;
        else if ((text || tag) && take(w, "WITHSUFFIXTRIE"))
            f->suffix_trie = true;
        else if (text && take(w, "WEIGHT"))
            rc = take_number(w, "weight", 0, 1e9, &f->weight);
        else if (text && take(w, "NOSTEM"))
            f->no_stem = true;
        else if (text && take(w, "PHONETIC"))
            rc = take_phonetic(w, f);
        else if (tag && take(w, "SEPARATOR"))
            rc = take_separator(w, f);
        else if (tag && take(w, "CASESENSITIVE"))
            f->case_sensitive = true;
        else
            break;
    }
    if (rc == 0 && f->no_index && f->index_missing)
        return fail(w, QUIRE_EINVALID, "'Field `%.64s` cannot be defined with both `NOINDEX` and `INDEXMISSING`'",
                    f->name);
    if (rc == 0 && f->no_index && f->type == SCHEMA_VECTOR)
        return fail(w, QUIRE_EINVALID, "a vector that is not indexed has no use: leave it out");
    return rc;
}

static int take_field(struct words *w, struct schema *s)
{
    struct schema_field *fields = realloc(s->fields, (s->n_fields + (size_t)1) * sizeof *fields);
    if (!fields)
        return error_set(w->err, QUIRE_ENOMEM, "no memory for a schema");
    s->fields = fields;
    struct schema_field *f = &fields[s->n_fields];
    /* tags of JSON are parted by its arrays, unless a separator is given */
    *f = (struct schema_field){.index = s->n_fields, .weight = 1, .separator = s->source == SCHEMA_JSON ? 0 : ','};
    s->n_fields++; /* freed with the others from here on */
    f->position = next_position(w);
    int rc = take_name(w, "field", &f->identifier, &f->identifier_bytes);
    if (rc == 0 && take(w, "AS"))
        rc = take_name(w, "AS", &f->name, &f->name_bytes);
    else if (rc == 0)
        rc = copy_word(w, &(struct schema_word){f->identifier, f->identifier_bytes}, &f->name);
    if (rc < 0)
        return rc;
    f->name_bytes = (uint32_t)strlen(f->name);
    w->field = f->name;
    for (uint32_t i = 0; i + 1 < s->n_fields; i++)
        if (strcmp(fields[i].name, f->name) == 0)
            return fail(w, QUIRE_EINVALID, "Duplicate field in schema - %.64s", f->name);
    rc = take_type(w, f);
    if (rc == 0)
        rc = take_options(w, f);
    if (rc < 0 || f->type != SCHEMA_TEXT)
        return rc;
    for (uint32_t i = 0; i + 1 < s->n_fields; i++)
        f->text_bit += fields[i].type == SCHEMA_TEXT;
    return f->text_bit < SCHEMA_TEXT_FIELDS_MAX
               ? 0
               : fail(w, QUIRE_ELIMIT, "Schema is limited to %u TEXT fields", SCHEMA_TEXT_FIELDS_MAX);
}

static int take_fields(struct words *w, struct schema *s)
{
    int rc = 0;
    if (w->at == w->n)
        return fail_end(w, "Fields arguments are missing");
    while (w->at < w->n && rc == 0) {
        w->field = NULL;
        if (s->n_fields == SCHEMA_FIELDS_MAX) {
            w->at++;
            return fail(w, QUIRE_ELIMIT, "Schema is limited to %u fields", SCHEMA_FIELDS_MAX);
        }
        rc = take_field(w, s);
    }
    return rc;
}

/* ---- FT.CREATE --------------------------------------------------------------------------------------------------- */

static int take_source(struct words *w, struct schema *s)
{
    const struct schema_word *word = next(w);
    if (!word)
        return missing(w, "ON");
    if (word_is(word, "HASH"))
        s->source = SCHEMA_HASH;
    else if (word_is(word, "JSON"))
        s->source = SCHEMA_JSON;
    else
        return fail(w, QUIRE_EINVALID, "Invalid rule type: '%.*s' is not HASH or JSON", shown_bytes(word), word->data);
    return 0;
}

static int take_option(struct words *w, struct schema *s)
{
    if (take(w, "ON"))
        return take_source(w, s);
    if (take(w, "PREFIX")) {
        s->prefixes_given = true;
        int rc = take_list(w, "PREFIX", SCHEMA_PREFIXES_MAX, false, &s->prefixes, &s->n_prefixes);
        return rc == 0 && s->n_prefixes == 0 ? fail(w, QUIRE_EINVALID, "Bad arguments for PREFIX: it takes 1 at least")
                                             : rc;
    }
    if (take(w, "LANGUAGE")) {
        s->language_position = next_position(w);
        return take_name(w, "LANGUAGE", &s->language, NULL);
    }
    if (take(w, "LANGUAGE_FIELD")) {
        s->language_field_position = next_position(w);
        return take_name(w, "LANGUAGE_FIELD", &s->language_field, NULL);
    }
    if (take(w, "SCORE"))
        return take_number(w, "SCORE", 0, 1, &s->score);
    if (take(w, "SCORE_FIELD")) {
        s->score_field_position = next_position(w);
        return take_name(w, "SCORE_FIELD", &s->score_field, NULL);
    }
    if (take(w, "STOPWORDS")) {
        s->stopwords_given = true;
        return take_list(w, "STOPWORDS", 10000, true, &s->stopwords, &s->n_stopwords);
    }
    if (take(w, "MAXTEXTFIELDS"))
        s->max_text_fields = true;
    else if (take(w, "NOOFFSETS"))
        s->no_offsets = true;
    else if (take(w, "NOHL"))
        s->no_highlight = true;
    else if (take(w, "NOFIELDS"))
        s->no_fields = true;
    else if (take(w, "NOFREQS"))
        s->no_freqs = true;
    else if (take(w, "SKIPINITIALSCAN"))
        s->skip_initial_scan = true;
    else {
        const struct schema_word *word = next(w);
        static const char *const refused[] = {"FILTER", "TEMPORARY", "PAYLOAD_FIELD", "INDEXALL"};
        for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
            if (word_is(word, refused[i]))
                return fail(w, QUIRE_EUNSUPPORTED, "FT.CREATE: %s is not supported by Quire", refused[i]);
        return fail(w, QUIRE_EINVALID, "Unknown argument `%.*s`", shown_bytes(word), word->data);
    }
    return 0;
}

static int fill(struct words *w, struct schema *s)
{
    static const struct schema_word english = {"english", 7};
    static const struct schema_word none = {"", 0};
    int rc = take_name(w, "index name", &s->name, &s->name_bytes);
    if (rc == 0)
        rc = copy_word(w, &english, &s->language);
    while (rc == 0 && w->at < w->n && !word_is(&w->words[w->at], "SCHEMA"))
        rc = take_option(w, s);
    if (rc < 0)
        return rc;
    if (!take(w, "SCHEMA"))
        return fail_end(w, "No schema found");
    if (!s->prefixes_given) {
        char *copy = NULL;
        if (!(s->prefixes = calloc(1, sizeof *s->prefixes)) || copy_word(w, &none, &copy) < 0)
            return error_set(w->err, QUIRE_ENOMEM, "no memory for a schema");
        s->prefixes[0] = (struct schema_word){copy, 0};
        s->n_prefixes = 1;
    }
    return take_fields(w, s);
}

int schema_parse(const struct schema_word *words, uint32_t n_words, struct schema **out, struct quire_error *err)
{
    struct words w = {.words = words, .n = n_words, .position = 1, .err = err};
    struct schema *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for a schema");
    s->score = 1;
    int rc = fill(&w, s);
    if (rc < 0) {
        schema_free(s);
        return rc;
    }
    assert(s->n_fields > 0 && s->n_prefixes > 0);
    *out = s;
    return 0;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static bool copy_text(const char *from, char **to)
{
    return !from || (*to = strdup(from));
}

static bool copy_list(const struct schema_word *from, uint32_t n, struct schema_word **to, uint32_t *n_to)
{
    if (n > 0 && !(*to = calloc(n, sizeof **to)))
        return false;
    for (; *n_to < n; (*n_to)++) {
        char *copy = malloc(from[*n_to].bytes + (size_t)1);
        if (!copy)
            return false;
        memcpy(copy, from[*n_to].data, from[*n_to].bytes);
        copy[from[*n_to].bytes] = 0;
        (*to)[*n_to] = (struct schema_word){copy, from[*n_to].bytes};
    }
    return true;
}

static bool copy_fields(const struct schema *from, struct schema *to)
{
    if (!(to->fields = calloc(from->n_fields, sizeof *to->fields)))
        return false;
    for (; to->n_fields < from->n_fields; to->n_fields++) {
        struct schema_field *f = &to->fields[to->n_fields];
        *f = from->fields[to->n_fields];
        f->identifier = f->name = NULL;
        if (!copy_text(from->fields[to->n_fields].identifier, &f->identifier) ||
            !copy_text(from->fields[to->n_fields].name, &f->name)) {
            free(f->identifier);
            return false;
        }
    }
    return true;
}

static struct schema *copy_schema(const struct schema *from)
{
    struct schema *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = *from;
    s->name = s->language = s->language_field = s->score_field = NULL;
    s->prefixes = s->stopwords = NULL;
    s->fields = NULL;
    s->n_prefixes = s->n_stopwords = s->n_fields = 0;
    if (copy_text(from->name, &s->name) && copy_text(from->language, &s->language) &&
        copy_text(from->language_field, &s->language_field) && copy_text(from->score_field, &s->score_field) &&
        copy_list(from->prefixes, from->n_prefixes, &s->prefixes, &s->n_prefixes) &&
        copy_list(from->stopwords, from->n_stopwords, &s->stopwords, &s->n_stopwords) && copy_fields(from, s))
        return s;
    schema_free(s);
    return NULL;
}

int schema_alter(const struct schema *schema, const struct schema_word *words, uint32_t n_words, uint32_t position,
                 struct schema **out, struct quire_error *err)
{
    struct words w = {.words = words, .n = n_words, .position = position, .err = err};
    struct schema *s = copy_schema(schema);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for a schema");
    int rc = take_fields(&w, s);
    if (rc < 0)
        schema_free(s);
    else
        *out = s;
    return rc;
}

static void free_list(struct schema_word *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free((char *)(uintptr_t)list[i].data);
    free(list);
}

void schema_free(struct schema *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_fields; i++) {
        free(s->fields[i].identifier);
        free(s->fields[i].name);
    }
    free(s->fields);
    free_list(s->prefixes, s->n_prefixes);
    free_list(s->stopwords, s->n_stopwords);
    free(s->name);
    free(s->language);
    free(s->language_field);
    free(s->score_field);
    free(s);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

const char *schema_algorithm_name(enum schema_algorithm algorithm)
{
    static const char *const names[] = {"FLAT", "HNSW", "SVS-VAMANA"};
    assert((unsigned)algorithm < sizeof names / sizeof *names);
    return names[algorithm];
}

size_t schema_element_bytes(enum schema_element element)
{
    static const uint8_t bytes[] = {4, 8, 2, 2, 1, 1};
    assert((unsigned)element < sizeof bytes);
    return bytes[element];
}

/* Infinite or not a number, by the exponent's bits of its type. */
static bool is_finite(enum schema_element element, const uint8_t *at)
{
    uint16_t half;
    uint32_t single;
    uint64_t whole;
    switch (element) {
    case SCHEMA_FLOAT32:
        memcpy(&single, at, sizeof single);
        return (single & 0x7f800000u) != 0x7f800000u;
    case SCHEMA_FLOAT64:
        memcpy(&whole, at, sizeof whole);
        return (whole & 0x7ff0000000000000u) != 0x7ff0000000000000u;
    case SCHEMA_FLOAT16:
        memcpy(&half, at, sizeof half);
        return (half & 0x7c00u) != 0x7c00u;
    case SCHEMA_BFLOAT16:
        memcpy(&half, at, sizeof half);
        return (half & 0x7f80u) != 0x7f80u;
    case SCHEMA_INT8:
    case SCHEMA_UINT8:
        break;
    }
    return true;
}

bool schema_elements_are_finite(enum schema_element element, const void *elements, size_t n)
{
    size_t step = schema_element_bytes(element);
    for (size_t i = 0; i < n; i++)
        if (!is_finite(element, (const uint8_t *)elements + i * step))
            return false;
    return true;
}

const struct schema_field *schema_find(const struct schema *s, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < s->n_fields; i++)
        if (s->fields[i].name_bytes == bytes && memcmp(s->fields[i].name, name, bytes) == 0)
            return &s->fields[i];
    return NULL;
}

const struct schema_field *schema_find_any(const struct schema *s, const char *name, size_t bytes)
{
    const struct schema_field *found = schema_find(s, name, bytes);
    for (uint32_t i = 0; i < s->n_fields && !found; i++)
        if (s->fields[i].identifier_bytes == bytes && memcmp(s->fields[i].identifier, name, bytes) == 0)
            found = &s->fields[i];
    return found;
}

bool schema_follows(const struct schema *s, const void *key, size_t bytes)
{
    for (uint32_t i = 0; i < s->n_prefixes; i++)
        if (s->prefixes[i].bytes <= bytes && memcmp(s->prefixes[i].data, key, s->prefixes[i].bytes) == 0)
            return true;
    return false;
}
