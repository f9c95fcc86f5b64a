/*
 * vector_call.h - what the commands of vector sets share: limits of tenants, counts, scores.
 */
#ifndef QUIRE_SERVER_VECTOR_CALL_H
#define QUIRE_SERVER_VECTOR_CALL_H

#include "server/call/fair.h"
#include "server/call/worker_call.h"

/* fair_enter for the tenant whose elements the request sees, or would see if there were a set, if it is one: named by
 * it, or its user's. only: as for vector_view_begin, which has filled the view. False after an error reply. */
bool vector_enter(struct caller *c, const struct vector_view *view, const struct tenant_names *only,
                  struct fair_request *facts, struct fair_pass *pass);

/* Counts a look-up of an element in the statistics of INFO. */
void vector_count_fetch(struct lane *lane, uint32_t reads);

/* A count with its name; a vector as an array of numbers. */
void vector_put_count(struct resp_buffer *out, const char *name, uint64_t value);
void vector_put_numbers(struct resp_buffer *out, const float *vector, uint32_t dim);

/* Similarity as VSIM reports it: cosine (1 + cos) / 2; l2 1 / (1 + squared distance); ip the inner product. */
double vector_score(enum quire_metric metric, float distance);

/* Links of an element of the mutable graph: what VADD calls M. */
unsigned vector_links(const struct collection_config *config);

#endif
