/* figures.h - what the lanes have counted, added up: for INFO and for /metrics. Implemented by info.c. */
#ifndef QUIRE_SERVER_FIGURES_H
#define QUIRE_SERVER_FIGURES_H

#include "server/net/client.h"

struct figures {
#define X(name) uint64_t name;
    LANE_STATS(X)
#undef X
    uint64_t clients;
    struct histogram latency; /* of searches, us */
    _Atomic uint64_t latency_counts[LATENCY_BUCKETS];
};

/* One row of the command table over all lanes. */
struct row_figures {
    uint64_t calls, us, failed, rejected;
};

/* Both may be a moment apart from what the lanes go on to count. *out must not move afterwards: it holds a pointer into
 * itself. */
void figures_sum(const struct server *server, struct figures *out);
void figures_of_row(const struct server *server, unsigned row, struct row_figures *out);
/* Calls visit for each code of error replies with how many there were. */
void figures_errors(const struct server *server, void (*visit)(void *context, const char *code, uint64_t count),
                    void *context);
/* The bytes of memory that all vector sets keep: memtables, and what their segments have resident. */
uint64_t figures_index_bytes(struct server *server);
/* The same of all semantic caches. */
uint64_t figures_cache_bytes(struct server *server);

/* The text of INFO's sections that match. */
void info_write(struct server *server, const struct resp_arg *sections, uint32_t n, struct resp_buffer *text);
/* "mimalloc" or "libc"; in cmd_memory.c. */
const char *allocator_name(void);

#endif
