/*
 * query_call.h - what FT.SEARCH and FT.AGGREGATE share: a request that outlives the handler's call, its query, and the
 * search of documents in the fair queue of the lane.
 */
#ifndef QUIRE_SERVER_QUERY_CALL_H
#define QUIRE_SERVER_QUERY_CALL_H

#include "document/index/document_search.h"
#include "io/arena.h"
#include "server/call/fair.h"
#include "server/call/key_values.h"
#include "server/call/slice.h"
#include "server/document/document_call.h"
#include "server/document/document_load.h"

/* First member of what a command keeps. */
struct query_call {
    struct pending pending;
    struct slice slice;
    struct lane *lane;
    struct lane *search_lane;  /* that the search runs on: `lane`, or one that the host has for it */
    struct message message;    /* there and back */
    struct arena arena;        /* the request's words, and what else lives as long */
    struct schema_word *words; /* behind the index's name */
    uint32_t n_words;
    struct document_index *index;
    const struct schema *schema;
    struct query *query;
    struct document_search search;
    struct document_loaded loaded;
    uint8_t *key; /* QUIRE_KEY_BYTES_MAX bytes for the key of a document */
    bool maps;    /* the reply is made of maps */
    bool entered, failed;
    struct fair_pass pass;
    struct fair_ticket ticket;
    struct aggregation_values *values;      /* that are brought for it; aggregation_values.h */
    size_t held;                            /* of what was found, in the client's account */
    void (*found)(struct query_call *call); /* the documents are there: search.ids and so on */
    void (*fini)(struct query_call *call);  /* frees what the command has added; NULL: nothing */
};

/* The request's index, and a deferred reply with the words behind it, copied. `bytes` zeroed bytes. NULL after an error
 * reply. From then on query_call_end is owed. */
void *query_call_begin(struct caller *c, const struct resp_arg *args, uint32_t n, size_t bytes);
/* The limits of tenants, then the search; `found` or an error reply. search.index, query and lane are filled in. */
void query_call_search(struct query_call *call, uint32_t k, uint32_t ef);
/* Gives the reply in pending.out and frees everything. */
void query_call_end(struct query_call *call);
/* The same with an error for the reply. */
void query_call_fail(struct query_call *call, const struct quire_error *err);
/* The key of a document; false: it is gone. */
bool query_call_key(struct query_call *call, uint32_t id, struct resp_arg *key);
/* The position in the command, for errors, of the word that these bytes are in. */
uint32_t query_call_position(const struct query_call *call, const char *bytes);
/* Bitmap of INKEYS. NULL: no memory. */
roaring_bitmap_t *query_call_keys(const struct query_call *call, const struct schema_word *names, uint32_t n);

#endif
