/*
 * collection_search_priv.h - one search over a collection on its way: what collection_search.c, which leads it, and
 * collection_filter.c, which sees to filters and scopes, share.
 */
#ifndef QUIRE_INDEX_COLLECTION_SEARCH_PRIV_H
#define QUIRE_INDEX_COLLECTION_SEARCH_PRIV_H

#include "index/attribute/filter.h"
#include "index/collection/collection_priv.h"
#include "index/search/search.h"
#include "index/segment/selection.h"
#include "io/arena.h"

#define ATTRIBUTES_AT_ONCE 8u
#define PART_NONE          UINT32_MAX

/* Whether a hit of a selection that is a superset must still be held against the filter. */
enum recheck { RECHECK_NONE, RECHECK_DUE, RECHECK_ASKED, RECHECK_REFUSED };

/* A hit on its way. Key, vector and attributes lie in work->kept. */
struct found {
    float distance, deviation;
    uint32_t part, row; /* part: index in the view's parts, or PART_NONE: of a memtable */
    uint64_t begin;     /* LSN, of a memtable's row; 0: sealed, older than all of those */
    const uint8_t *key; /* this and what follows: in work->kept */
    const float *vector;
    const char *attributes; /* or in a memtable, while work->in_epoch */
    uint32_t key_bytes, attribute_bytes;
    uint8_t recheck; /* enum recheck */
    bool has_text;   /* its attributes have been read */
};

struct sub_search {
    struct search_request request;
    struct search_work *work;
    uint32_t part;
    struct selection *named; /* a reference: of the rows that are named; NULL: none are */
    /* with a filter or a scope */
    struct selection *selection; /* a reference */
    roaring_bitmap_t *keys;      /* rows that the filter names; NULL: not looked up */
    uint32_t *by_name;           /* these while they are looked up, n_by_name; owned */
    uint32_t n_by_name, by_name_capacity;
    uint32_t asked, n_unchecked, n_matched;
    bool is_counted; /* its matches */
};

struct attribute_fetch {
    struct fetch_request request;
    struct search_work *work;
    uint32_t hit, rounds; /* hit: in found, or a part; rounds: of all that this one has fetched */
    bool busy;
};

struct search_work {
    struct search_work *next_free;
    struct searcher *searcher;
    struct collection_search *search;
    struct view *view;
    uint32_t n_pending, k, n_views, n_restarts;
    uint64_t n_elements;
    struct sub_search *subs;
    uint32_t subs_capacity, n_subs; /* n_subs: whose selections and keys are to be given back */
    float *query;
    uint32_t query_capacity;
    struct found *found;
    uint32_t n_found, found_capacity;
    struct arena kept; /* keys, vectors and attributes of what was found */
    struct memtable_hit *memtable_hits;
    uint32_t memtable_hits_capacity;
    struct collection_hit *hits;
    uint32_t hits_capacity;
    float *scratch; /* a rotated vector */
    uint32_t scratch_capacity;
    struct attribute_fetch attributes[ATTRIBUTES_AT_ONCE];
    uint32_t next_attributes;
    uint64_t started_ns, plan_reads;
    unsigned epoch;   /* while in_epoch: what memtables hold stays */
    struct view *now; /* whose memtables those are; a reference */
    bool in_epoch;
    bool starting;
    unsigned pins; /* of the pass: with the last one it goes on, if all segments have answered */
    /* with a filter or a scope */
    bool is_filtered;
    struct filter *filter;      /* a reference */
    struct tenant_scope *scope; /* owned */
    uint32_t next_recheck;
    uint32_t key_part, key_next; /* that is looked up next */
};

/* collection_search.c */
/* The first error counts; error may be NULL. */
void collection_search_fail(struct search_work *work, int code, const struct quire_error *error);
/* Starts a->request, whose owner is a; false: it could not, which is noted in the search, and a is free. */
bool collection_search_fetch(struct search_work *work, struct attribute_fetch *a);
/* Starts requests in places that are free, as long as there is a next one. Those that end within their start call
 * again, which does nothing: the loop that is running sees to it (false then). */
bool collection_search_fill(struct search_work *work,
                            bool (*start_next)(struct search_work *work, struct attribute_fetch *a));
/* The JSON of an element's text, kept in f. */
void collection_search_keep_json(struct search_work *work, struct found *f, const char *text, uint32_t bytes);
/* Asks a segment of the view with sub->selection for sub->asked rows. */
void collection_search_start_segment(struct search_work *work, struct sub_search *sub);
/* All segments, after the names of the filter have been looked up. */
void collection_search_start_segments(struct search_work *work);
/* Around all that may end a pass: it does not end before the last pin is released. */
void collection_search_pin(struct search_work *work);
void collection_search_release(struct search_work *work);

/* collection_filter.c */
int collection_filter_begin(struct search_work *work, struct quire_error *err);
void collection_filter_end(struct search_work *work);
/* Before each pass: what the last one held goes. */
void collection_filter_reset(struct search_work *work);
/* Looks up the names that the filter lists, if it does: true, and collection_search_start_segments follows. */
bool collection_filter_find_names(struct search_work *work);
/* The rows of its segment that may be answered. */
int collection_filter_select(struct search_work *work, struct sub_search *sub, struct quire_error *err);
/* A segment has answered with the last n of work->found: n_pending is lowered now or later. */
void collection_filter_take(struct search_work *work, struct sub_search *sub, uint32_t n);
/* Hits that are refused go. */
void collection_filter_drop_refused(struct search_work *work);
/* memtable_test.accepts; context: the work. */
bool collection_filter_accepts(void *context, const struct memtable_row *row);

#endif
