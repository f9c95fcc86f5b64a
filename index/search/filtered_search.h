/*
 * filtered_search.h - a search of one segment for what a filter and a scope leave of it, also where columns alone
 * cannot decide that.
 *
 * A selection that is not residual is the search's own matter (search.h). Of one that is, hits are rechecked by their
 * attributes, nearest first: those that do not match are dropped, and where too few are left more are asked for, until
 * there are k or no more. So min(k, matches) are answered here, too.
 */
#ifndef QUIRE_INDEX_FILTERED_SEARCH_H
#define QUIRE_INDEX_FILTERED_SEARCH_H

#include "index/search/search.h"
#include "index/segment/selection.h"

struct filtered_work;

struct filtered_search {
    /* set by the caller, who owns the struct until done */
    struct segment *segment; /* the caller holds a reference until done */
    const float *query;      /* dim floats, kept by the caller until done */
    /* filter_effort bounds the rows whose attributes are looked at, too. Filter and tenants are not looked at. */
    struct quire_search_options options;
    struct selection *selection; /* kept by the caller until done; NULL: all rows */
    struct filter *filter;       /* likewise; NULL: none */
    uint32_t asked_max;          /* hits that one round may ask for; 0: QUIRE_K_MAX */
    void (*done)(struct filtered_search *search);
    void *owner;
    /* filled before done; hits are valid during it and have neither keys nor vectors */
    int code;
    struct quire_error error;
    const struct search_hit *hits;
    uint32_t n_hits;
    struct quire_search_stats stats; /* sums over what had to be asked and read */
    /* inside */
    struct searcher *searcher;
    struct search_request request;
    struct filtered_work *work; /* NULL where nothing has to be rechecked */
};

/* As search_start. */
int filtered_search_start(struct searcher *searcher, struct filtered_search *search, struct quire_error *err);

#endif
