/*
 * document_search.h - a query over one index: which documents, with which scores and distances.
 *
 * Vector parts are searched first, on the lane's ring (ranges), then the tree is decided in memory, then the nearest
 * neighbours among what is left are searched (KNN). What comes out are numbers of documents; their keys and fields are
 * the caller's to load, and a document may have changed or gone by then.
 */
#ifndef QUIRE_DOCUMENT_SEARCH_H
#define QUIRE_DOCUMENT_SEARCH_H

#include "document/index/document_index.h"

#define DOCUMENT_RANGES_MAX 16u /* VECTOR_RANGE parts of one query */
#define DOCUMENT_TERMS_MAX  100u

struct document_work;

/* A distance that the query gives a name: of each document found, NaN where it has none. */
struct document_yield {
    struct query_text name;
    double *values;
};

struct document_search {
    /* set by the caller, who owns the struct until done */
    struct document_index *index; /* the caller's reference, which it keeps until done */
    const struct query *query;
    const struct query_node *const *also; /* n_also more that must hold; no vectors in them */
    uint32_t n_also;
    const roaring_bitmap_t *only; /* none but these; NULL: all */
    bool scored;
    enum fields_scorer scorer;
    uint64_t deadline_us; /* clock_us(); 0: none. Looked at between the steps, and within the tree and ranges */
    struct searcher *searcher;
    uint32_t priority;                            /* of its reads: search.h */
    void (*done)(struct document_search *search); /* on the lane; where no read is needed inside the start */
    void *owner;
    /* filled before done; freed by document_search_fini */
    int code; /* QUIRE_ETIMEOUT, QUIRE_ENOMEM, what the tree or the vectors answer */
    struct quire_error error;
    bool by_distance; /* ids are in the order of yields[0], ascending; otherwise ascending themselves */
    uint64_t n;
    uint32_t *ids;
    double *scores; /* NULL: not scored */
    struct document_yield yields[DOCUMENT_RANGES_MAX + 1];
    uint32_t n_yields;
    struct quire_search_stats stats; /* of the vector parts together */
    struct document_work *work;
};

/* 0, or QUIRE_ETIMEOUT behind the deadline (0: none); err may be NULL. */
int document_search_in_time(uint64_t deadline_us, struct quire_error *err);
/* Names of the distances that a query gives, in the order of yields: that of KNN first, then those of ranges. Fills at
 * most DOCUMENT_RANGES_MAX + 1. QUIRE_ELIMIT: more ranges than that; QUIRE_EINVALID: two distances of one name, or a
 * name that a field of the query's schema has. */
int document_search_yields(const struct query *query, const struct schema *schema, struct query_text *names,
                           uint32_t *n, struct quire_error *err);
/* Whether the query has a vector part; whether it has a word in it. */
bool document_search_has_vectors(const struct query *query);
bool document_search_has_words(const struct query *query);

/* The words that a query looks for, and which documents have each: for matched_terms() of FT.AGGREGATE. */
struct document_terms {
    struct query_text words[DOCUMENT_TERMS_MAX];
    roaring_bitmap_t *documents[DOCUMENT_TERMS_MAX]; /* owned */
    uint32_t n;
};
/* The first DOCUMENT_TERMS_MAX of them. Errors: those of fields_eval. */
int document_search_terms(struct document_index *index, const struct query *query, struct document_terms *out,
                          struct quire_error *err);
void document_terms_fini(struct document_terms *terms);

/* Gives done one call, perhaps before it returns. */
void document_search_start(struct document_search *search);
void document_search_fini(struct document_search *search);

#endif
