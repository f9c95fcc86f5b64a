/*
 * sealed_rescue.c - see sealed_rescue.h.
 *
 * A row is believed when its block has its checksum and its key is the id of the entry that is said to be there. Codes
 * and entry points are not needed: they are made anew with the segment.
 */
#include "cache/core/sealed_rescue.h"
#include "index/segment/segment.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>

enum { LOGGED_AT_ONCE = 1024 };

struct gathering {
    struct sealed_rescue *rescue;
    float *vectors; /* n_saved x dim; owned */
    uint64_t *ids;  /* n_saved; owned */
    size_t vectors_capacity, ids_capacity;
    uint32_t n_saved;
};

static int by_row(const void *a, const void *b)
{
    const struct rescued_entry *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static struct rescued_entry *entry_of(const struct sealed_rescue *rescue, uint32_t row)
{
    const struct rescued_entry wanted = {.from = row};
    return bsearch(&wanted, rescue->entries, rescue->n, sizeof wanted, by_row);
}

static int take_row(void *context, const struct scanned_row *row)
{
    struct gathering *g = context;
    uint32_t dim = g->rescue->cache->config.dim;
    struct rescued_entry *entry = entry_of(g->rescue, row->row);
    if (!entry || entry->saved || row->key_bytes != sizeof entry->id ||
        memcmp(row->key, &entry->id, sizeof entry->id) != 0)
        return 0;
    if (!array_reserve(&g->vectors, &g->vectors_capacity, (g->n_saved + (size_t)1) * dim) ||
        !array_reserve(&g->ids, &g->ids_capacity, g->n_saved + (size_t)1))
        return QUIRE_ENOMEM;
    memcpy(g->vectors + (size_t)g->n_saved * dim, row->vector, sizeof(float) * dim);
    g->ids[g->n_saved] = entry->id;
    entry->at = g->n_saved++;
    entry->saved = true;
    return 0;
}

static void skip_damage(void *context, const char *sentence)
{
    (void)context, (void)sentence; /* has been said by the check */
}

static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    const struct gathering *g = context;
    uint32_t dim = g->rescue->cache->config.dim;
    assert(i < g->n_saved);
    (void)attributes, (void)attribute_bytes;
    memcpy(vector, g->vectors + (size_t)i * dim, sizeof(float) * dim);
    *key = &g->ids[i];
    *key_bytes = sizeof g->ids[i];
}

/* Which row of the new segment each has become. */
static int log_moves(struct gathering *g, uint32_t number, const uint32_t *rows, struct journal *journal,
                     struct quire_error *err)
{
    struct cache *cache = g->rescue->cache;
    struct sealing batch[LOGGED_AT_ONCE];
    struct sealed *sealed = NULL;
    int rc = sealed_create(number, g->rescue->group, &sealed);
    if (rc < 0)
        return error_set(err, rc, "no memory for a segment");
    cache->of->journal = journal;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t first = 0; first < g->n_saved && rc == 0; first += LOGGED_AT_ONCE) {
        uint32_t n = g->n_saved - first < LOGGED_AT_ONCE ? g->n_saved - first : LOGGED_AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            batch[i] = (struct sealing){.id = g->ids[first + i], .segment_row = rows[first + i]};
        rc = cache_log_sealed(cache, sealed, batch, n, err);
        if (rc == QUIRE_EBUSY && (rc = journal_sync(journal, err)) == 0) /* its buffer was full */
            rc = cache_log_sealed(cache, sealed, batch, n, err);
    }
    pthread_mutex_unlock(&cache->lock);
    cache->of->journal = NULL;
    sealed_unref(sealed);
    return rc;
}

static int build(struct gathering *g, const char *to, struct journal *journal, struct quire_error *err)
{
    struct cache *cache = g->rescue->cache;
    struct merge_options options;
    struct merge_result result = {0};
    const struct merge_rows rows = {.n = g->n_saved, .type = QUIRE_TYPE_F32, .row = give_row, .context = g};
    uint32_t number = cache->next_sealed++;
    char *path = sealed_path(to, cache->uid, number);
    seal_build_options(cache, &options);
    int rc = path ? merge_build(path, NULL, 0, &rows, &options, &result, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
    if (rc == 0)
        rc = log_moves(g, number, result.rows_of[0], journal, err);
    merge_result_fini(&result);
    free(path);
    return rc;
}

int sealed_rescue(struct sealed_rescue *rescue, const char *to, struct journal *journal, struct quire_error *err)
{
    struct gathering g = {.rescue = rescue};
    struct cache *cache = rescue->cache;
    struct segment_options options = {
        .memory_bytes = UINT64_MAX, .no_cache = true, .rows_only = true, .fs = cache->of->options.fs};
    struct segment *segment = NULL;
    char *path = sealed_path(cache->of->folder, cache->uid, rescue->number);
    assert(to && journal && rescue->n > 0);
    qsort(rescue->entries, rescue->n, sizeof *rescue->entries, by_row);
    int rc = path ? segment_open(path, &options, &segment, err) : QUIRE_ENOMEM;
    if (rc == 0 && segment_info(segment)->dim == cache->config.dim)
        rc = segment_scan(segment, NULL, take_row, skip_damage, &g, err);
    else if (rc < 0 && rc != QUIRE_ENOMEM)
        rc = 0; /* nothing of it can be read, which the check has said */
    if (rc == QUIRE_ENOMEM)
        error_set(err, rc, "no memory for the vectors of %u entries", rescue->n);
    if (rc == 0 && g.n_saved)
        rc = build(&g, to, journal, err);
    segment_unref(segment);
    free(g.vectors);
    free(g.ids);
    free(path);
    return rc;
}
