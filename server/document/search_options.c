/*
 * search_options.c - see search_options.h. Options come in any order and in any case; what Quire has not is refused by
 * name, what only tunes RediSearch is taken and has no effect. Of an option that comes twice the last one holds, but
 * for SORTBY and PARAMS, which are refused then: as in RediSearch.
 */
#include "server/document/search_options.h"
#include "document/index/record_read.h"
#include "io/error.h"
#include "server/document/document_call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEFAULT_LIMIT = 10 };

struct reading {
    const struct schema_word *words;
    uint32_t n, at;
    struct search_options *o;
    struct quire_error *err;
};

static bool take(struct reading *r, const char *text)
{
    const struct schema_word *w = &r->words[r->at];
    if (r->at == r->n || w->bytes != strlen(text) || strncasecmp(w->data, text, w->bytes) != 0)
        return false;
    r->at++;
    return true;
}

static int shown(const struct schema_word *w)
{
    return w->bytes < 64 ? (int)w->bytes : 64;
}

/* In the command: of the word that was taken last. */
static uint32_t position(const struct reading *r)
{
    return DOCUMENT_FIRST_POSITION + r->at - 1;
}

static int take_words(struct reading *r, const char *option, uint32_t n, const struct schema_word **out)
{
    if (n > r->n - r->at)
        return error_set(r->err, QUIRE_EINVALID,
                         "Bad arguments for %s: Expected an argument, but none provided (position %u)", option,
                         DOCUMENT_FIRST_POSITION + r->n);
    *out = r->words + r->at;
    r->at += n;
    return 0;
}

static bool is_whole(const struct schema_word *w, double low, double high, double *out)
{
    return record_number(w->data, w->bytes, out) && *out == floor(*out) && *out >= low && *out <= high;
}

static int take_number(struct reading *r, const char *option, double low, double high, double *out)
{
    const struct schema_word *w = NULL;
    int rc = take_words(r, option, 1, &w);
    if (rc < 0 || is_whole(w, low, high, out))
        return rc;
    return error_set(r->err, QUIRE_EINVALID,
                     "Bad arguments for %s: '%.*s' is not a whole number from %.0f to %.0f (position %u)", option,
                     shown(w), w->data, low, high, position(r));
}

static int take_list(struct reading *r, const char *option, const struct schema_word **out, uint32_t *n)
{
    double count = 0;
    int rc = take_number(r, option, 0, r->n, &count);
    *n = (uint32_t)count;
    return rc < 0 ? rc : take_words(r, option, *n, out);
}

/* Whether a field of RETURN has this name already: the first one holds. */
static bool is_returned(const struct search_options *o, const struct schema_word *as)
{
    for (uint32_t i = 0; i < o->n_returned; i++)
        if (o->returned[i].as.bytes == as->bytes && memcmp(o->returned[i].as.data, as->data, as->bytes) == 0)
            return true;
    return false;
}

static int take_return(struct reading *r)
{
    const struct schema_word *words = NULL;
    uint32_t n = 0;
    int rc = take_list(r, "RETURN", &words, &n);
    if (rc < 0)
        return rc;
    struct search_return *list = calloc(n + (size_t)1, sizeof *list);
    if (!list)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for a request");
    free(r->o->returned);
    r->o->returned = list;
    r->o->n_returned = 0;
    r->o->returns = true;
    for (uint32_t i = 0; i < n; i++) {
        struct search_return *one = &list[r->o->n_returned];
        one->name = one->as = words[i];
        if (i + 1 < n && words[i + 1].bytes == 2 && strncasecmp(words[i + 1].data, "AS", 2) == 0) {
            if (i + 2 >= n)
                return error_set(r->err, QUIRE_EINVALID,
                                 "RETURN path AS name - must be accompanied with NAME (position %u)", position(r));
            one->as = words[i + 2];
            i += 2;
        }
        r->o->n_returned += !is_returned(r->o, &one->as);
    }
    return 0;
}

static int take_sort(struct reading *r)
{
    const struct schema_word *w = NULL;
    if (r->o->sort_by.bytes > 0)
        return error_set(r->err, QUIRE_EINVALID, "Multiple SORTBY steps are not allowed (position %u)", position(r));
    int rc = take_words(r, "SORTBY", 1, &w);
    if (rc < 0)
        return rc;
    r->o->sort_by = *w;
    if (w->bytes > 0 && w->data[0] == '@') {
        r->o->sort_by.data++;
        r->o->sort_by.bytes--;
    }
    if (r->o->sort_by.bytes == 0)
        return error_set(r->err, QUIRE_EINVALID, "Bad SORTBY arguments: a field is missing (position %u)", position(r));
    r->o->descending = take(r, "DESC");
    if (!r->o->descending)
        take(r, "ASC");
    return 0;
}

static int take_limit(struct reading *r)
{
    double numbers[2] = {0};
    if (r->n - r->at < 2)
        return error_set(r->err, QUIRE_EINVALID, "LIMIT requires two arguments (position %u)", position(r));
    for (unsigned i = 0; i < 2; i++) {
        const struct schema_word *w = &r->words[r->at++];
        if (!is_whole(w, 0, 9e15, &numbers[i]))
            return error_set(r->err, QUIRE_EINVALID, "LIMIT needs two numeric arguments ('%.*s' at position %u)",
                             shown(w), w->data, position(r));
    }
    if (numbers[0] > 0 && !(numbers[1] > 0))
        return error_set(r->err, QUIRE_EINVALID, "The `offset` of the LIMIT must be 0 when `num` is 0 (position %u)",
                         position(r) - 1);
    if (numbers[0] > SEARCH_RESULTS_MAX)
        return error_set(r->err, QUIRE_ELIMIT, "OFFSET exceeds maximum of %u (LIMIT at position %u)",
                         SEARCH_RESULTS_MAX, position(r) - 2);
    r->o->offset = (uint64_t)numbers[0];
    r->o->limit = numbers[1] < SEARCH_RESULTS_MAX ? (uint64_t)numbers[1] : SEARCH_RESULTS_MAX;
    return 0;
}

static int take_params(struct reading *r)
{
    const struct schema_word *words = NULL;
    uint32_t n = 0;
    if (r->o->params)
        return error_set(r->err, QUIRE_EINVALID,
                         "Multiple PARAMS are not allowed. Parameters can be defined only once (position %u)",
                         position(r));
    int rc = take_list(r, "PARAMS", &words, &n);
    if (rc == 0 && (n == 0 || n % 2))
        return error_set(r->err, QUIRE_EINVALID,
                         "Parameters must be specified in PARAM VALUE pairs (PARAMS at position %u)",
                         position(r) - n - 1);
    if (rc < 0)
        return rc;
    struct query_param *list = calloc(n / 2 + (size_t)1, sizeof *list);
    if (!list)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for a request");
    r->o->params = list;
    r->o->n_params = n / 2;
    for (uint32_t i = 0; i < n / 2; i++) {
        list[i] = (struct query_param){{words[2 * i].data, words[2 * i].bytes},
                                       {words[2 * i + 1].data, words[2 * i + 1].bytes}};
        for (uint32_t j = 0; j < i && n <= 2000; j++)
            if (list[j].name.bytes == list[i].name.bytes &&
                memcmp(list[j].name.data, list[i].name.data, list[i].name.bytes) == 0)
                return error_set(r->err, QUIRE_EINVALID, "Duplicate parameter `%.*s` (position %u)",
                                 shown(&words[2 * i]), words[2 * i].data, position(r) - n + 1 + 2 * i);
    }
    return 0;
}

static int take_filter(struct reading *r)
{
    const struct schema_word *w = NULL;
    int rc = take_words(r, "FILTER", 3, &w);
    if (rc == 0 && r->o->n_filters == SEARCH_FILTERS_MAX)
        return error_set(r->err, QUIRE_ELIMIT, "a query has at most %u FILTERs (position %u)", SEARCH_FILTERS_MAX,
                         position(r) - 3);
    if (rc < 0)
        return rc;
    r->o->filters[r->o->n_filters].field = w[0];
    r->o->filters[r->o->n_filters].low = w[1];
    r->o->filters[r->o->n_filters++].high = w[2];
    return 0;
}

static int take_geo_filter(struct reading *r)
{
    const struct schema_word *w = NULL;
    int rc = take_words(r, "GEOFILTER", 5, &w);
    if (rc == 0 && r->o->n_geo_filters == SEARCH_FILTERS_MAX)
        return error_set(r->err, QUIRE_ELIMIT, "a query has at most %u GEOFILTERs (position %u)", SEARCH_FILTERS_MAX,
                         position(r) - 5);
    if (rc < 0)
        return rc;
    uint32_t i = r->o->n_geo_filters++;
    r->o->geo_filters[i].field = w[0];
    r->o->geo_filters[i].longitude = w[1];
    r->o->geo_filters[i].latitude = w[2];
    r->o->geo_filters[i].radius = w[3];
    r->o->geo_filters[i].unit = w[4];
    return 0;
}

static int take_language(struct reading *r)
{
    const struct schema_word *w = NULL;
    int rc = take_words(r, "LANGUAGE", 1, &w);
    if (rc < 0)
        return rc;
    free(r->o->language);
    r->o->language_position = position(r);
    r->o->language = strndup(w->data, w->bytes);
    return r->o->language ? 0 : error_set(r->err, QUIRE_ENOMEM, "no memory for a request");
}

static int take_scorer(struct reading *r)
{
    const struct schema_word *w = NULL;
    int rc = take_words(r, "SCORER", 1, &w);
    if (rc == 0 && !fields_scorer_find(w->data, w->bytes, &r->o->scorer))
        return error_set(r->err, QUIRE_EINVALID, "No such scorer %.*s (position %u)", shown(w), w->data, position(r));
    return rc;
}

static int take_dialect(struct reading *r)
{
    const struct schema_word *w = NULL;
    double number = 0;
    int rc = take_words(r, "DIALECT", 1, &w);
    if (rc == 0 && !is_whole(w, 1, 4, &number))
        rc = error_set(r->err, QUIRE_EINVALID,
                       "DIALECT requires a non negative integer >=1 and <= 4 ('%.*s' at position %u)", shown(w),
                       w->data, position(r));
    r->o->dialect = (unsigned)number;
    return rc;
}

/* Taken, without effect. */
static bool take_hint(struct reading *r, int *rc)
{
    static const char *const bare[] = {"WITHCOUNT",  "WITHOUTCOUNT", "ALLSHARDS",
                                       "SOMESHARDS", "CONSISTENT",   "INCONSISTENT"};
    const struct schema_word *w = NULL;
    for (unsigned i = 0; i < sizeof bare / sizeof *bare; i++)
        if (take(r, bare[i]))
            return true;
    if (take(r, "EXPANDER")) {
        *rc = take_words(r, "EXPANDER", 1, &w);
        return true;
    }
    if (take(r, "FORMAT")) {
        *rc = take(r, "STRING") ? 0
                                : error_set(r->err, QUIRE_EUNSUPPORTED,
                                            "FORMAT: only STRING is supported by Quire (position %u)", position(r) + 1);
        return true;
    }
    return false;
}

static int take_option(struct reading *r)
{
    struct search_options *o = r->o;
    double number = 0;
    int rc = 0;
    if (take(r, "NOCONTENT"))
        o->no_content = true;
    else if (take(r, "VERBATIM"))
        o->verbatim = true;
    else if (take(r, "NOSTOPWORDS"))
        o->no_stopwords = true;
    else if (take(r, "WITHSCORES"))
        o->with_scores = true;
    else if (take(r, "WITHPAYLOADS"))
        o->with_payloads = true;
    else if (take(r, "WITHSORTKEYS"))
        o->with_sort_keys = true;
    else if (take(r, "INORDER"))
        o->in_order = true;
    else if (take(r, "RETURN"))
        rc = take_return(r);
    else if (take(r, "SORTBY"))
        rc = take_sort(r);
    else if (take(r, "LIMIT"))
        rc = take_limit(r);
    else if (take(r, "PARAMS"))
        rc = take_params(r);
    else if (take(r, "INKEYS"))
        rc = take_list(r, "INKEYS", &o->in_keys, &o->n_in_keys);
    else if (take(r, "INFIELDS"))
        rc = take_list(r, "INFIELDS", &o->in_fields, &o->n_in_fields);
    else if (take(r, "FILTER"))
        rc = take_filter(r);
    else if (take(r, "GEOFILTER"))
        rc = take_geo_filter(r);
    else if (take(r, "LANGUAGE"))
        rc = take_language(r);
    else if (take(r, "SCORER"))
        rc = take_scorer(r);
    else if (take(r, "SLOP")) {
        rc = take_number(r, "SLOP", -1, 1e9, &number);
        o->slop = (int64_t)number;
    } else if (take(r, "TIMEOUT")) {
        rc = take_number(r, "TIMEOUT", 0, 1e12, &number);
        o->timeout_ms = (uint64_t)number;
    } else if (take(r, "DIALECT")) {
        rc = take_dialect(r);
    } else if (!take_hint(r, &rc)) {
        static const char *const refused[] = {"HIGHLIGHT", "SUMMARIZE", "EXPLAINSCORE", "PAYLOAD"};
        const struct schema_word *w = &r->words[r->at];
        for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
            if (take(r, refused[i]))
                return error_set(r->err, QUIRE_EUNSUPPORTED, "FT.SEARCH: %s is not supported by Quire (position %u)",
                                 refused[i], position(r));
        return error_set(r->err, QUIRE_EINVALID, "Unknown argument `%.*s` at position %u for <main>", shown(w), w->data,
                         position(r) + 1);
    }
    return rc;
}

int search_options_parse(const struct schema_word *words, uint32_t n, struct search_options *out,
                         struct quire_error *err)
{
    struct reading r = {words, n, 1, out, err};
    int rc = 0;
    *out = (struct search_options){
        .text = words[0], .limit = DEFAULT_LIMIT, .slop = -1, .dialect = 2, .scorer = FIELDS_BM25STD};
    while (rc == 0 && r.at < n)
        rc = take_option(&r);
    if (rc == 0 && out->returns && out->n_returned == 0)
        out->no_content = true;
    if (rc < 0)
        search_options_fini(out);
    return rc;
}

void search_options_fini(struct search_options *o)
{
    free(o->returned);
    free(o->params);
    free(o->language);
    o->returned = NULL;
    o->params = NULL;
    o->language = NULL;
}
