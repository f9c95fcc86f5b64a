/*
 * aggregation.h - an FT.AGGREGATE that is under way: documents found, and the pipeline that makes rows of them. One
 * that outlives its command is a cursor.
 */
#ifndef QUIRE_SERVER_AGGREGATION_H
#define QUIRE_SERVER_AGGREGATION_H

#include "document/pipeline/pipeline.h"
#include "server/document/aggregation_values.h"

struct aggregation_field; /* how a field that the pipeline wants is read */

struct aggregation {
    struct service *service;
    struct arena arena; /* the request's words */
    struct document_index *index;
    const struct schema *schema;
    struct query *query;
    struct document_search search; /* what was found */
    struct pipeline *pipeline;
    struct pipeline_run *run;
    struct document_terms *terms; /* of matched_terms(); owned, NULL: not asked for */
    uint64_t row;                 /* the next one that the pipeline gets */
    struct aggregation_field *fields;
    uint32_t n_fields, fields_capacity;
    struct document_loaded loaded;
    struct aggregation_values values; /* vectors */
    uint64_t held;                    /* the row whose document is held */
    bool is_loaded;                   /* it is */
    uint8_t key[QUIRE_KEY_BYTES_MAX];
    /* of a cursor */
    uint64_t id, used_ms, idle_ms;
    uint64_t bytes; /* as of the last time it was put back */
    uint32_t rows_at_once;
    bool busy, ended;
    struct aggregation *next;
};

/* The call's index, query, documents and memory become the aggregation's, with the pipeline. *out is owned by the
 * caller. On failure all stays the call's, and the pipeline the caller's. */
int aggregation_create(struct query_call *call, struct pipeline *pipeline, struct aggregation **out,
                       struct quire_error *err);
void aggregation_destroy(struct aggregation *aggregation); /* NULL is fine */
/* Of memory that grows with what was found: documents, and the values of the pipeline. */
uint64_t aggregation_bytes(const struct aggregation *aggregation);
/* As pipeline_run_next; nothing is held afterwards. */
int aggregation_next(struct aggregation *aggregation, uint32_t *budget, struct quire_error *err);
/* Adds the row that it has answered. */
void aggregation_put_row(const struct aggregation *aggregation, bool maps, struct resp_buffer *out);
/* The reply around n rows: RESP2's array with its number, or RESP3's map. */
void aggregation_put_rows(const struct aggregation *aggregation, bool maps, struct resp_buffer *rows, uint64_t n,
                          struct resp_buffer *out);

#endif
