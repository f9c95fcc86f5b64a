/*
 * clusters_start.c - the clusters that refinement begins with: by bisection, or those that rows had before.
 *
 * By bisection rows are put in that order first, so that a cluster is a run of rows and stays nearly one.
 *
 * Known clusters are mended where they need it (LIRE: split, merge and reassign locally; SPFresh, Xu et al., SOSP
 * 2023): those below a DISSOLVED-th of config->rows are dissolved, rows without a cluster go to the nearest centroid,
 * clusters above config->most are split by bisection of their rows. Only clusters that came about so, or that got more
 * than a CHANGED-th of their rows so, and the clusters near them, take part in refinement. Clusters are numbered by
 * bisection of their centroids, because near ones must have near numbers.
 *
 * Where less than half of the rows have a cluster, or one is larger than what fits in memory, bisection is begun anew.
 */
#include "index/cluster/clusters_priv.h"
#include "index/cluster/partition.h"
#include <assert.h>
#include <stdlib.h>

#define BISECTION_SHARE 4u /* of the work, in passes */
#define DISSOLVED       4u
#define CHANGED         8u
#define CHANGED_NEAR    8u  /* clusters near a changed one that take part */
#define NUMBERED_ROWS   32u /* near clusters in a group, when they are numbered */

static int report_bisection(void *context, const char *phase, uint64_t done, uint64_t total)
{
    const struct clustering *s = context;
    struct parallel_advance now = s->advance;
    double share = total ? (double)done / (double)total : 1;
    (void)phase;
    return parallel_report(&now, (uint64_t)(share * s->store->n * BISECTION_SHARE));
}

static uint32_t balanced(uint32_t n, uint32_t rows)
{
    assert(n > 0 && rows > 0);
    uint32_t parts = (n + rows - 1) / rows;
    return (n + parts - 1) / parts;
}

static int bisect(struct clustering *s)
{
    struct row_store *store = s->store;
    uint32_t n = store->n;
    struct partition_config config = {balanced(n, s->config->rows), s->config->threads, s->config->seed,
                                      s->config->bisection};
    struct progress progress = {report_bisection, s, s->advance.phase};
    uint32_t window = s->window.n > config.capacity ? s->window.n : config.capacity;
    bool in_memory = store->rows.codes;
    rows_free(&s->window); /* partition_files has its own */
    int rc = in_memory ? partition_build(&store->rows, &config, &progress, s->order)
                       : partition_files(store, s->spare, window, &config, &progress, s->order);
    if (rc == 0)
        rc = in_memory ? rows_permute(&store->rows, s->order) : rows_alloc(&s->window, window, store->code_dim);
    if (rc == 0)
        rc = clusters_allocate(s, (n + config.capacity - 1) / config.capacity);
    if (rc < 0)
        return rc;
    for (uint32_t row = 0; row < n; row++)
        s->sizes[s->cluster_of[row] = row / config.capacity]++;
    return parallel_report(&s->advance, (uint64_t)n * BISECTION_SHARE);
}

/* ---- known clusters ---------------------------------------------------------------------------------------------- */

/* Takes the known clusters that are large enough; returns how many rows are in them. */
static int64_t take_known(struct clustering *s, const struct clusters_known *known)
{
    uint32_t n = s->store->n, kept = 0, *sizes = calloc((size_t)known->n + 1, sizeof *sizes);
    int64_t rows = 0;
    if (!sizes)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < n; row++)
        if (known->cluster_of[row] != CLUSTER_NONE)
            sizes[known->cluster_of[row]]++;
    for (uint32_t c = 0; c < known->n; c++) {
        bool large = sizes[c] > 0 && sizes[c] >= s->config->rows / DISSOLVED;
        rows += large ? sizes[c] : 0;
        sizes[c] = large ? kept++ : CLUSTER_NONE;
    }
    for (uint32_t row = 0; row < n; row++) {
        uint32_t before = known->cluster_of[row];
        s->cluster_of[row] = before == CLUSTER_NONE ? CLUSTER_NONE : sizes[before];
        s->order[row] = row;
    }
    free(sizes);
    int rc = kept ? clusters_allocate(s, kept) : 0;
    return rc < 0 ? rc : rows;
}

/* Numbers clusters so that near ones have near numbers: cluster c is then the one that was order[c]. */
static int number(struct clustering *s, uint32_t *order)
{
    uint32_t n = s->n, *numbers = malloc(sizeof *numbers * n);
    struct partition_config config = {NUMBERED_ROWS, s->config->threads, s->config->seed, NULL};
    int rc = numbers ? partition_build(&s->centres, &config, NULL, order) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = rows_permute(&s->centres, order);
    for (uint32_t c = 0; rc == 0 && c < n; c++)
        numbers[order[c]] = c;
    for (uint32_t row = 0; rc == 0 && row < s->store->n; row++)
        if (s->cluster_of[row] != CLUSTER_NONE)
            s->cluster_of[row] = numbers[s->cluster_of[row]];
    free(numbers);
    return rc;
}

/* Rows of the window without a cluster go to the nearest centroid; counts: how many a cluster got. */
static int assign_window(struct clustering *s, const struct rows *rows, uint32_t first)
{
    uint32_t n = 0, *places = calloc(rows->n, sizeof *places), *nearest = malloc(sizeof *nearest * rows->n);
    int rc = QUIRE_ENOMEM;
    if (!places || !nearest)
        goto out;
    for (uint32_t i = 0; i < rows->n; i++)
        if (s->cluster_of[first + i] == CLUSTER_NONE)
            places[n++] = i;
    rc = clusters_near_assign(&s->assigned, rows, places, n, s->config->threads, nearest);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        s->cluster_of[first + places[i]] = nearest[i];
        s->counts[nearest[i]]++;
    }
out:
    free(places);
    free(nearest);
    return rc;
}

static int assign(struct clustering *s)
{
    uint32_t *order = malloc(sizeof *order * s->n);
    int rc = order ? number(s, order) : QUIRE_ENOMEM;
    free(order);
    if (rc == 0)
        rc = clusters_near_init(&s->assigned, &s->centres);
    memset(s->counts, 0, sizeof *s->counts * s->n);
    if (rc == 0)
        rc = clusters_pass(s, assign_window);
    clusters_near_fini(&s->assigned);
    return rc;
}

/* Bisects cluster c: the first part keeps its number, the others get those from *n_clusters on. */
static int split(struct clustering *s, uint32_t c, const uint32_t *members, uint32_t n, uint32_t *n_clusters)
{
    struct rows rows = {0};
    struct partition_config config = {balanced(n, s->config->rows), s->config->threads, s->config->seed, NULL};
    uint32_t *order = malloc(sizeof *order * n);
    int rc = order ? rows_alloc(&rows, n, s->store->code_dim) : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (s->store->rows.codes)
            rows_copy(&s->store->rows, members[i], &rows, i);
        else
            rc = row_store_read(s->store, members[i], 1, &rows, i, NULL);
    if (rc == 0)
        rc = partition_build(&rows, &config, NULL, order);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t part = i / config.capacity;
        s->cluster_of[members[order[i]]] = part == 0 ? c : *n_clusters + part - 1;
    }
    assert(config.capacity <= s->config->rows);
    *n_clusters += (n + config.capacity - 1) / config.capacity - 1;
    rows_free(&rows);
    free(order);
    return rc;
}

/* Splits clusters above the limit. changed[c] of the clusters before; n_clusters: after. QUIRE_ELIMIT: one is larger
 * than what may be in memory. */
static int split_large(struct clustering *s, uint8_t *changed, uint32_t *n_clusters)
{
    uint32_t n = s->n, most = s->store->rows.codes ? UINT32_MAX : s->window.n, *members = s->targets;
    uint32_t *at = malloc(sizeof *at * ((size_t)n + 1));
    int rc = at ? 0 : QUIRE_ENOMEM;
    if (rc == 0)
        clusters_members(s, at, members);
    for (uint32_t c = 0; rc == 0 && c < n; c++)
        rc = at[c + 1] - at[c] > most ? QUIRE_ELIMIT : 0;
    for (uint32_t c = 0; rc == 0 && c < n; c++) {
        uint32_t size = at[c + 1] - at[c];
        changed[c] = s->counts[c] > size / CHANGED || size > s->config->most;
        if (size > s->config->most)
            rc = split(s, c, members + at[c], size, n_clusters);
    }
    free(at);
    return rc;
}

/* Changed clusters and those near them are active. order: what each cluster's number was when `changed` was set. */
static int activate(struct clustering *s, const uint8_t *changed, const uint32_t *order)
{
    struct clusters_near near = {0};
    int rc = clusters_near_init(&near, &s->centres);
    if (rc == 0)
        rc = clusters_near_all(&near, s->n_near, CLUSTER_NEAR, s->config->threads, s->near);
    clusters_near_fini(&near);
    memset(s->active, 0, s->n);
    for (uint32_t c = 0; rc == 0 && c < s->n; c++) {
        if (!changed[order[c]])
            continue;
        s->active[c] = 1;
        for (uint32_t i = 0; i < s->n_near && i < CHANGED_NEAR; i++)
            s->active[s->near[(size_t)c * CLUSTER_NEAR + i]] = 1;
    }
    return rc;
}

/* Splits what is too large and numbers anew. */
static int mend(struct clustering *s)
{
    uint32_t n_clusters = s->n, n_before = s->n, *order = NULL;
    uint8_t *changed = malloc(s->store->n); /* clusters are not empty */
    int rc = changed ? split_large(s, changed, &n_clusters) : QUIRE_ENOMEM;
    assert(n_clusters >= n_before && n_clusters <= s->store->n);
    if (rc == 0) {
        memset(changed + n_before, 1, n_clusters - n_before);
        rc = clusters_allocate(s, n_clusters);
    }
    if (rc == 0)
        rc = clusters_centres(s);
    if (rc == 0) {
        order = malloc(sizeof *order * s->n);
        rc = order ? number(s, order) : QUIRE_ENOMEM;
    }
    for (uint32_t row = 0; rc == 0 && row < s->store->n; row++) {
        assert(s->cluster_of[row] < s->n); /* each has one by now */
        s->sizes[s->cluster_of[row]]++;
    }
    if (rc == 0)
        rc = activate(s, changed, order);
    free(changed);
    free(order);
    return rc;
}

int clusters_start(struct clustering *s, const struct clusters_known *known)
{
    int64_t rows = known ? take_known(s, known) : 0;
    if (rows < 0)
        return (int)rows;
    assert(rows <= s->store->n);
    if (rows < s->store->n - rows)
        return bisect(s);
    int rc = clusters_centres(s);
    if (rc == 0)
        rc = assign(s);
    if (rc == 0)
        rc = mend(s);
    return rc == QUIRE_ELIMIT ? bisect(s) : rc;
}
