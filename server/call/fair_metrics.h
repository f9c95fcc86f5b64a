/* fair_metrics.h - the statistics of tenants: for INFO tenants and /metrics. */
#ifndef QUIRE_SERVER_FAIR_METRICS_H
#define QUIRE_SERVER_FAIR_METRICS_H

#include "server/call/fair_priv.h"
#include "server/protocol/label.h"

enum { FAIR_METRICS_INFO = 100, FAIR_METRICS_SCRAPED = 50 };

/* A tenant, or a user whose requests named none, over all lanes. */
struct fair_metric {
    char name[LABEL_BYTES];
    enum fair_kind kind;
    struct fair_limits limits;
    struct fair_sums sums;
    double wait_p50_us, wait_p99_us, latency_p50_us, latency_p99_us; /* 0 before the first query */
};

struct fair_metrics {
    uint64_t tenants;     /* that are remembered: tenants and users */
    struct fair_sums all; /* with those that are forgotten */
    uint32_t n;
    struct fair_metric *metrics; /* those that have cost most, the most first; owned */
};

/* At most `most` of them. False without memory: the sums are there. Thread-safe. Ended by fair_metrics_fini. */
bool fair_metrics_take(struct service *service, uint32_t most, struct fair_metrics *out);
void fair_metrics_fini(struct fair_metrics *metrics);
uint64_t fair_refused(const struct fair_sums *sums); /* whatever the limit */
const char *fair_refusal_name(enum fair_refusal refusal);

#endif
