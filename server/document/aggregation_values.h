/*
 * aggregation_values.h - vectors that an aggregation loads and that only indexes have (server/call/key_values.h): all
 * of them are brought before its pipeline runs, which asks for them in any order and cannot wait.
 */
#ifndef QUIRE_SERVER_AGGREGATION_VALUES_H
#define QUIRE_SERVER_AGGREGATION_VALUES_H

#include "server/document/query_call.h"

struct pipeline;

struct aggregation_values {
    struct query_call *call; /* until `ready` */
    struct values_wait wait;
    struct resp_arg *fields; /* that the pipeline may load; owned; NULL with `all` */
    uint32_t n_fields, fields_capacity;
    bool all, failed;
    uint64_t row, brought; /* the next one whose values are taken; rows below were asked for */
    uint8_t *bytes;        /* values, in the order of rows; owned */
    size_t n_bytes, capacity;
    struct aggregation_value *values; /* owned */
    uint64_t n, values_capacity;
    void (*ready)(struct aggregation_values *values, int code, const struct quire_error *err);
};

/* Brings what the pipeline may load of the documents that were found; then `ready` is called, perhaps inside. Errors:
 * QUIRE_ELIMIT (128 MiB), QUIRE_ENOMEM, those of a read. */
void aggregation_values_start(struct aggregation_values *values, struct query_call *call,
                              const struct pipeline *pipeline);
/* The value of a field of a row; false: it is none of those. */
bool aggregation_values_find(const struct aggregation_values *values, uint64_t row, struct schema_word field,
                             struct schema_word *value);
void aggregation_values_fini(struct aggregation_values *values); /* of a zeroed one, too */

#endif
