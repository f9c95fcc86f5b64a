/*
 * search_options.h - the words of FT.SEARCH behind the index's name.
 */
#ifndef QUIRE_SERVER_SEARCH_OPTIONS_H
#define QUIRE_SERVER_SEARCH_OPTIONS_H

#include "document/fields/fields.h"
#include "document/query/query.h"

#define SEARCH_FILTERS_MAX 64u
#define SEARCH_RESULTS_MAX 1000000u /* offset and number of LIMIT together are cut to that */

struct search_return {
    struct schema_word name, as; /* as: as it is shown */
};

/* Words point into the request's; lists are owned. */
struct search_options {
    struct schema_word text;
    bool no_content, with_scores, with_payloads, with_sort_keys;
    bool returns; /* RETURN was given */
    struct search_return *returned;
    uint32_t n_returned;
    struct schema_word sort_by; /* bytes 0: by score, or distance */
    bool descending;
    uint64_t offset, limit;
    const struct schema_word *in_keys, *in_fields; /* NULL: not given */
    uint32_t n_in_keys, n_in_fields;
    struct query_param *params;
    uint32_t n_params;
    bool verbatim, no_stopwords, in_order;
    int64_t slop;
    char *language;             /* owned, terminated; NULL: none */
    uint32_t language_position; /* in the command */
    enum fields_scorer scorer;
    uint64_t timeout_ms; /* 0: none */
    unsigned dialect;
    struct {
        struct schema_word field, low, high;
    } filters[SEARCH_FILTERS_MAX]; /* FILTER */
    uint32_t n_filters;
    struct {
        struct schema_word field, longitude, latitude, radius, unit;
    } geo_filters[SEARCH_FILTERS_MAX];
    uint32_t n_geo_filters;
};

/* words[0]: the query. QUIRE_EINVALID with the word and what it should be; EUNSUPPORTED; ENOMEM. */
int search_options_parse(const struct schema_word *words, uint32_t n, struct search_options *out,
                         struct quire_error *err);
void search_options_fini(struct search_options *options);

#endif
