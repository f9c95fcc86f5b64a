/* info.h - what the lanes have counted, added up: for INFO and for /metrics. Implemented by info.c. */
#ifndef QUIRE_SERVER_INFO_H
#define QUIRE_SERVER_INFO_H

#include "server/net/client.h"

struct info_totals {
#define X(name) uint64_t name;
    LANE_STATS(X)
#undef X
    uint64_t clients;
    struct histogram latency; /* of searches, us */
    _Atomic uint64_t latency_counts[LATENCY_BUCKETS];
};

/* One row of the command table over all lanes. */
struct info_row_totals {
    uint64_t calls, us, failed, rejected;
};

/* Both may be a moment apart from what the lanes go on to count. *out must not move afterwards: it holds a pointer into
 * itself. */
void info_sum(const struct server *server, struct info_totals *out);
void info_row(const struct server *server, unsigned row, struct info_row_totals *out);
/* Calls visit for each code of error replies with how many there were. */
void info_errors(const struct server *server, void (*visit)(void *context, const char *code, uint64_t count),
                 void *context);
/* The bytes of memory that all vector sets keep: memtables, and what their segments have resident. */
uint64_t info_index_bytes(struct server *server);
/* The same of all semantic caches. */
uint64_t info_cache_bytes(struct server *server);

/* The text of INFO's sections that match. */
void info_write(struct server *server, const struct resp_arg *sections, uint32_t n, struct resp_buffer *text);
/* "mimalloc" or "libc"; in cmd_memory.c. */
const char *cmd_memory_allocator(void);
/* The bytes that an entry keeps in memory, all of a vector set's included. */
uint64_t cmd_memory_of_key(const struct key_entry *entry);

/* How many vector sets and caches cannot be used because of their files: INFO damage names them. */
void info_count_unavailable(const struct server *server, uint64_t *sets, uint64_t *caches);

#endif
