/* vector_call.c - what the commands of vector sets share: limits of tenants, counts, scores. */
#include "server/vector/vector_call.h"
#include "server/protocol/resp.h"
#include <stdlib.h>

bool vector_enter(struct caller *c, const struct vector_view *view, const struct tenant_names *only,
                  struct fair_request *facts, struct fair_pass *pass)
{
    struct quire_error err = {0};
    struct tenant_scope *own = NULL;
    const struct tenant_scope *scope = view->scope;
    if (!view->collection) {
        if (!vector_scope_of(c, only, &own))
            return false;
        scope = own;
    }
    if (scope && scope->n == 1) {
        facts->tenant = scope->tenants[0].name;
        facts->tenant_bytes = scope->tenants[0].bytes;
    }
    int rc = fair_enter(c, facts, pass, &err);
    if (rc < 0)
        resp_quire_error(caller_reply(c), &err);
    free(own);
    return rc == 0;
}

unsigned vector_links(const struct collection_config *config)
{
    enum { LINKS_USUAL = 16 }; /* the graph's own default, which is Redis's, too */
    return config->link_degree ? config->link_degree : LINKS_USUAL;
}

void vector_count_fetch(struct lane *lane, uint32_t reads)
{
    lane_stat_add(&lane->stats.fetches, 1);
    lane_stat_add(&lane->stats.fetch_reads, reads);
}

void vector_put_count(struct resp_buffer *out, const char *name, uint64_t value)
{
    resp_text(out, name);
    resp_integer(out, (long long)value);
}

void vector_put_numbers(struct resp_buffer *out, const float *vector, uint32_t dim)
{
    resp_array(out, dim);
    for (uint32_t i = 0; i < dim; i++)
        resp_double(out, (double)vector[i]);
}

double vector_score(enum quire_metric metric, float distance)
{
    double d = (double)distance;
    switch (metric) {
    case QUIRE_METRIC_COSINE:
        return 1 - d / 2;
    case QUIRE_METRIC_L2:
        return 1 / (1 + d);
    case QUIRE_METRIC_IP:
        break;
    }
    return -d;
}
