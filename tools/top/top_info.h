/*
 * top_info.h - the text of INFO as figures: numbers by name, and the rows of tenants, caches and commands.
 *
 * One table here names every field that is read; screen, JSON and rates go by it. A field that is missing, or whose
 * value is no number, is absent (top_info_has), not 0: another version of the server may not have it.
 */
#ifndef QUIRE_TOOLS_TOP_INFO_H
#define QUIRE_TOOLS_TOP_INFO_H

#include "quire.h"

/* What becomes of a number from one INFO to the next. */
enum top_kind {
    TOP_LEVEL, /* rises and falls */
    TOP_COUNT, /* only grows; begins at 0 with the server, and many with CONFIG RESETSTAT */
    TOP_SUM,   /* grows, and falls when what it is summed over goes (an index of documents, a cache) */
    TOP_CPU    /* TOP_COUNT of seconds with a fraction, held in microseconds */
};

/* X(field of INFO, kind) */
#define TOP_NUMBERS(X)                                                                                                 \
    X(uptime_in_seconds, TOP_LEVEL)                                                                                    \
    X(connected_clients, TOP_LEVEL)                                                                                    \
    X(connected_clients_tls, TOP_LEVEL)                                                                                \
    X(maxclients, TOP_LEVEL)                                                                                           \
    X(used_memory, TOP_LEVEL)                                                                                          \
    X(used_memory_rss, TOP_LEVEL)                                                                                      \
    X(used_memory_dataset, TOP_LEVEL)                                                                                  \
    X(used_memory_indexes, TOP_LEVEL)                                                                                  \
    X(used_memory_documents, TOP_LEVEL)                                                                                \
    X(used_memory_caches, TOP_LEVEL)                                                                                   \
    X(mem_clients_normal, TOP_LEVEL)                                                                                   \
    X(maxmemory_clients, TOP_LEVEL)                                                                                    \
    X(maxmemory, TOP_LEVEL)                                                                                            \
    X(rdb_bgsave_in_progress, TOP_LEVEL)                                                                               \
    X(unavailable_sets, TOP_LEVEL)                                                                                     \
    X(unavailable_caches, TOP_LEVEL)                                                                                   \
    X(total_connections_received, TOP_COUNT)                                                                           \
    X(total_commands_processed, TOP_COUNT)                                                                             \
    X(total_net_input_bytes, TOP_COUNT)                                                                                \
    X(total_net_output_bytes, TOP_COUNT)                                                                               \
    X(rejected_connections, TOP_COUNT)                                                                                 \
    X(evicted_clients, TOP_COUNT)                                                                                      \
    X(total_error_replies, TOP_COUNT)                                                                                  \
    X(used_cpu_sys, TOP_CPU)                                                                                           \
    X(used_cpu_user, TOP_CPU)                                                                                          \
    X(search_number_of_indexes, TOP_LEVEL)                                                                             \
    X(search_indexes_being_filled, TOP_LEVEL)                                                                          \
    X(search_documents, TOP_LEVEL)                                                                                     \
    X(search_queries, TOP_SUM)                                                                                         \
    X(keys, TOP_LEVEL) /* of the line db0 */                                                                           \
    X(lanes, TOP_LEVEL)                                                                                                \
    X(searches, TOP_COUNT)                                                                                             \
    X(search_errors, TOP_COUNT)                                                                                        \
    X(search_reads, TOP_COUNT)                                                                                         \
    X(fetches, TOP_COUNT)                                                                                              \
    X(fetch_reads, TOP_COUNT)                                                                                          \
    X(device_reads, TOP_COUNT)                                                                                         \
    X(device_read_bytes, TOP_COUNT)                                                                                    \
    X(device_read_errors, TOP_COUNT)                                                                                   \
    X(reads_in_flight, TOP_LEVEL)                                                                                      \
    X(reads_waiting, TOP_LEVEL)                                                                                        \
    X(collections, TOP_LEVEL)                                                                                          \
    X(segments, TOP_LEVEL)                                                                                             \
    X(memtable_bytes, TOP_LEVEL)                                                                                       \
    X(disk_bytes, TOP_LEVEL)                                                                                           \
    X(seals, TOP_COUNT)                                                                                                \
    X(merges, TOP_COUNT)                                                                                               \
    X(checkpoints, TOP_COUNT)                                                                                          \
    X(store_failures, TOP_COUNT)                                                                                       \
    X(sealing, TOP_LEVEL)                                                                                              \
    X(merging, TOP_LEVEL)                                                                                              \
    X(checkpointing, TOP_LEVEL)                                                                                        \
    X(writers_wait, TOP_LEVEL)                                                                                         \
    X(log_frames, TOP_COUNT)                                                                                           \
    X(log_bytes, TOP_LEVEL)                                                                                            \
    X(log_unwritten_bytes, TOP_LEVEL)                                                                                  \
    X(log_syncs, TOP_COUNT)                                                                                            \
    X(log_failures, TOP_COUNT)                                                                                         \
    X(caches, TOP_LEVEL)                                                                                               \
    X(cache_entries, TOP_LEVEL)                                                                                        \
    X(cache_memory_bytes, TOP_LEVEL)                                                                                   \
    X(cache_disk_bytes, TOP_LEVEL)                                                                                     \
    X(cache_requests, TOP_SUM)                                                                                         \
    X(cache_hits, TOP_SUM)                                                                                             \
    X(cache_tokens_saved, TOP_SUM)                                                                                     \
    X(tenants, TOP_LEVEL)                                                                                              \
    X(searches_at_once, TOP_LEVEL)                                                                                     \
    X(tenant_running, TOP_LEVEL)                                                                                       \
    X(tenant_waiting, TOP_LEVEL)                                                                                       \
    X(tenant_refused, TOP_COUNT)

enum top_number {
#define X(name, kind) TOP_##name,
    TOP_NUMBERS(X)
#undef X
        TOP_N_NUMBERS
};

/* Fields of rows: X(field of INFO, kind). Those of one table have their places in a row's values in this order. */
#define TOP_TENANT_FIELDS(X)                                                                                           \
    X(weight, TOP_LEVEL)                                                                                               \
    X(queries, TOP_COUNT)                                                                                              \
    X(running, TOP_LEVEL)                                                                                              \
    X(waiting, TOP_LEVEL)                                                                                              \
    X(failed, TOP_COUNT)                                                                                               \
    X(cancelled, TOP_COUNT)                                                                                            \
    X(refused, TOP_COUNT)                                                                                              \
    X(reads, TOP_COUNT)                                                                                                \
    X(cpu_us, TOP_COUNT)                                                                                               \
    X(cost_us, TOP_COUNT)                                                                                              \
    X(wait_p50_us, TOP_LEVEL)                                                                                          \
    X(wait_p99_us, TOP_LEVEL)                                                                                          \
    X(latency_p50_us, TOP_LEVEL)                                                                                       \
    X(latency_p99_us, TOP_LEVEL)
#define TOP_CACHE_FIELDS(X)                                                                                            \
    X(entries, TOP_LEVEL)                                                                                              \
    X(memory_bytes, TOP_LEVEL)                                                                                         \
    X(disk_bytes, TOP_LEVEL)                                                                                           \
    X(requests, TOP_COUNT)                                                                                             \
    X(hits, TOP_COUNT)                                                                                                 \
    X(exact, TOP_COUNT)                                                                                                \
    X(stale, TOP_COUNT)                                                                                                \
    X(audits, TOP_COUNT)                                                                                               \
    X(misses, TOP_COUNT)                                                                                               \
    X(negative, TOP_COUNT)                                                                                             \
    X(bypassed, TOP_COUNT)                                                                                             \
    X(stored, TOP_COUNT)                                                                                               \
    X(evicted, TOP_COUNT)                                                                                              \
    X(expired, TOP_COUNT)                                                                                              \
    X(invalidated, TOP_COUNT)                                                                                          \
    X(labels, TOP_COUNT)                                                                                               \
    X(false_hits, TOP_COUNT)                                                                                           \
    X(tokens_saved, TOP_COUNT)                                                                                         \
    X(get_p50_us, TOP_LEVEL)                                                                                           \
    X(get_p99_us, TOP_LEVEL)                                                                                           \
    X(get_p999_us, TOP_LEVEL)
#define TOP_COMMAND_FIELDS(X)                                                                                          \
    X(calls, TOP_COUNT)                                                                                                \
    X(usec, TOP_COUNT)                                                                                                 \
    X(rejected_calls, TOP_COUNT)                                                                                       \
    X(failed_calls, TOP_COUNT)

enum top_tenant_field {
#define X(name, kind) TOP_TENANT_##name,
    TOP_TENANT_FIELDS(X)
#undef X
        TOP_N_TENANT_FIELDS
};
enum top_cache_field {
#define X(name, kind) TOP_CACHE_##name,
    TOP_CACHE_FIELDS(X)
#undef X
        TOP_N_CACHE_FIELDS
};
enum top_command_field {
#define X(name, kind) TOP_COMMAND_##name,
    TOP_COMMAND_FIELDS(X)
#undef X
        TOP_N_COMMAND_FIELDS
};

enum top_table { TOP_TENANTS, TOP_CACHES, TOP_COMMANDS, TOP_N_TABLES };

#define TOP_FIELDS_MAX 24u  /* of a row */
#define TOP_ROWS_MAX   512u /* of a table; INFO has 100 tenants, 256 caches, some 300 commands */
#define TOP_NAME_BYTES 208u
#define TOP_WORD_BYTES 64u

struct top_field {
    const char *name;
    enum top_kind kind;
};
extern const struct top_field top_info_numbers[TOP_N_NUMBERS];
/* The fields of a table's rows; *n of them. */
const struct top_field *top_info_fields(enum top_table table, unsigned *n);

struct top_row {
    char name[TOP_NAME_BYTES]; /* as INFO has it, %XX included; what is no plain ASCII is '?' */
    bool is_user;              /* of a tenant: a user whose requests named none */
    uint32_t present;          /* bit by field */
    uint64_t values[TOP_FIELDS_MAX];
};

struct top_info {
    char quire_version[TOP_WORD_BYTES], run_id[TOP_WORD_BYTES]; /* "" where INFO has none */
    uint64_t values[TOP_N_NUMBERS];
    bool present[TOP_N_NUMBERS];
    double latency_us[3]; /* of searches since the start: p50, p99, p99.9; NAN where there is none */
    struct top_row *rows[TOP_N_TABLES];
    uint32_t n_rows[TOP_N_TABLES], capacity[TOP_N_TABLES], left_out[TOP_N_TABLES];
};

/* Zeroed before the first use; reused by further calls. QUIRE_ENOMEM leaves *out without a row. */
int top_info_parse(const char *text, size_t bytes, struct top_info *out, struct quire_error *err);
void top_info_fini(struct top_info *info);

static inline bool top_info_has(const struct top_info *info, enum top_number number)
{
    return info->present[number];
}
/* 0 where it is absent. */
static inline uint64_t top_info_get(const struct top_info *info, enum top_number number)
{
    return info->present[number] ? info->values[number] : 0;
}
static inline bool top_info_row_has(const struct top_row *row, unsigned field)
{
    return row->present >> field & 1;
}

#endif
