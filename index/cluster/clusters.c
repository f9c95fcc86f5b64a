/*
 * clusters.c - clusters of about equal size: balanced bisection, then rounds of k-means with a price on size.
 *
 * Bisection (partition.h) gives clusters of equal size whose borders are cuts of planes, and each cut was made without
 * knowing of those to come. A few rounds let rows near the borders change sides: centroids are the means of the rows,
 * and a row goes to the cluster for which distance * (1 + PENALTY * size / config->rows) is least, among the
 * CLUSTER_NEAR clusters near its own. The price on size is a factor of the distance, so the rule is the same for unit
 * vectors and raw bytes, and rows that are equal to their centroid never have a reason to go: a hundred thousand
 * identical vectors stay in the equal clusters that bisection gave them. (Count penalised clustering: SPANN, Chen et
 * al. 2021, section 3.2.1; there the price is added to the distance, and its weight depends on the data.)
 *
 * What rows choose is computed in parallel against the sizes at the beginning of the round. Moves are then made one
 * after the other in order of rows, each only if it still pays and the target is not full: the result is a function of
 * the rows, whatever the number of threads.
 *
 * A device (index/offload) may have the products of rows and centroids, which are whole numbers; what a row chooses is
 * computed from them by the same lines as without one.
 *
 * A row far out would pull its centroid away from all others. From the second round on rows FAR times as far from the
 * centroid as the mean of their cluster are left out of it.
 *
 * Rows are streamed in windows, in memory as in a file, and every sum is taken in order of rows: both give the same.
 */
#include "index/cluster/clusters_priv.h"
#include "io/array.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define PENALTY     0.05f
#define FAR         16.0f      /* squared: four times as far */
#define WINDOW_ROWS (1u << 18) /* of rows in memory: how often progress is reported */
#define DEVICE_ROWS (1u << 15) /* whose products a device returns at once */

int clusters_pass(struct clustering *s, int (*body)(struct clustering *s, const struct rows *rows, uint32_t first))
{
    uint32_t n = s->store->n, most = s->store->rows.codes ? WINDOW_ROWS : s->window.n;
    int rc = 0;
    assert(most > 0);
    for (uint32_t first = 0; rc == 0 && first < n;) {
        uint32_t now = n - first < most ? n - first : most;
        struct rows rows;
        rc = row_store_view(s->store, first, now, &s->window, &rows);
        if (rc == 0)
            rc = body(s, &rows, first);
        if (rc == 0)
            rc = parallel_report(&s->advance, now);
        first += now;
    }
    return rc;
}

static void free_clusters(struct clustering *s)
{
    array_free_all(s->sizes, s->active, s->limits, s->sums, s->counts, s->near);
    rows_free(&s->centres);
    s->sizes = s->counts = s->near = NULL;
    s->active = NULL;
    s->limits = s->sums = NULL;
}

int clusters_allocate(struct clustering *s, uint32_t n)
{
    uint32_t dim = s->store->code_dim;
    assert(n > 0);
    free_clusters(s);
    s->n = n;
    s->n_near = n - 1 < CLUSTER_NEAR ? n - 1 : CLUSTER_NEAR;
    s->sizes = calloc(n, sizeof *s->sizes);
    s->active = malloc(n);
    s->limits = malloc(sizeof *s->limits * n);
    s->sums = malloc(sizeof *s->sums * n * dim);
    s->counts = malloc(sizeof *s->counts * n);
    s->near = malloc(sizeof *s->near * n * CLUSTER_NEAR);
    int rc = s->sizes && s->active && s->limits && s->sums && s->counts && s->near ? rows_alloc(&s->centres, n, dim)
                                                                                   : QUIRE_ENOMEM;
    if (rc < 0)
        return rc;
    memset(s->active, 1, n);
    for (uint32_t c = 0; c < n; c++)
        s->limits[c] = FLT_MAX;
    return 0;
}

static int clustering_init(struct clustering *s)
{
    uint32_t n = s->store->n, window = s->config->window_rows < n ? s->config->window_rows : n;
    s->cluster_of = malloc(sizeof *s->cluster_of * n);
    s->targets = malloc(sizeof *s->targets * n);
    s->ratios = malloc(sizeof *s->ratios * n);
    s->distances = calloc(n, sizeof *s->distances);
    if (!s->cluster_of || !s->targets || !s->ratios || !s->distances)
        return QUIRE_ENOMEM;
    return s->store->rows.codes ? 0 : rows_alloc(&s->window, window, s->store->code_dim);
}

/* ---- centroids --------------------------------------------------------------------------------------------------- */

struct sums_job {
    struct clustering *s;
    const struct rows *rows;
    uint32_t first;
    uint32_t *at;      /* n + 1 */
    uint32_t *members; /* rows of the window, by cluster */
};

/* Sorts rows first .. first + n by cluster: those of cluster c at members[at[c]] .. members[at[c + 1]]. */
static void sort_members(const struct clustering *s, uint32_t first, uint32_t n, uint32_t *at, uint32_t *members)
{
    const uint32_t *cluster_of = s->cluster_of + first;
    memset(at, 0, sizeof *at * ((size_t)s->n + 1));
    for (uint32_t i = 0; i < n; i++)
        if (cluster_of[i] != CLUSTER_NONE)
            at[cluster_of[i]]++;
    for (uint32_t c = 0, sum = 0; c <= s->n; c++) {
        sum += at[c];
        at[c] = sum;
    }
    for (uint32_t i = n; i-- > 0;)
        if (cluster_of[i] != CLUSTER_NONE)
            members[--at[cluster_of[i]]] = i;
    assert(at[0] == 0);
}

void clusters_members(const struct clustering *s, uint32_t *at, uint32_t *members)
{
    sort_members(s, 0, s->store->n, at, members);
}

static void add_row(float *restrict sum, const uint8_t *restrict code, float f, uint32_t dim)
{
    for (uint32_t d = 0; d < dim; d++)
        sum[d] += f * ((float)code[d] - 127.5f);
}

static int sum_range(void *context, uint64_t begin, uint64_t end)
{
    const struct sums_job *job = context;
    struct clustering *s = job->s;
    uint32_t dim = s->store->code_dim;
    for (uint64_t c = begin; c < end; c++)
        for (uint32_t i = job->at[c]; i < job->at[c + 1]; i++) {
            uint32_t row = job->members[i];
            if (s->distances[job->first + row] > s->limits[c])
                continue;
            s->counts[c]++;
            add_row(s->sums + c * dim, job->rows->codes + (size_t)row * dim, job->rows->f[row], dim);
        }
    return 0;
}

static int sum_window(struct clustering *s, const struct rows *rows, uint32_t first)
{
    struct sums_job job = {s, rows, first, malloc(sizeof(uint32_t) * ((size_t)s->n + 1)),
                           malloc(sizeof(uint32_t) * rows->n)};
    int rc = QUIRE_ENOMEM;
    if (job.at && job.members) {
        sort_members(s, first, rows->n, job.at, job.members);
        rc = parallel_for(s->config->threads, s->n, 64, sum_range, &job, NULL);
    }
    array_free_all(job.at, job.members);
    return rc;
}

static int encode_range(void *context, uint64_t begin, uint64_t end)
{
    struct clustering *s = context;
    uint32_t dim = s->store->code_dim;
    for (uint64_t c = begin; c < end; c++) {
        if (s->counts[c] == 0)
            continue;
        float *sum = s->sums + c * dim;
        for (uint32_t d = 0; d < dim; d++)
            sum[d] /= (float)s->counts[c];
        rows_encode(&s->centres, (uint32_t)c, sum);
    }
    return 0;
}

int clusters_centres(struct clustering *s)
{
    memset(s->sums, 0, sizeof *s->sums * s->n * s->store->code_dim);
    memset(s->counts, 0, sizeof *s->counts * s->n);
    int rc = clusters_pass(s, sum_window);
    return rc == 0 ? parallel_for(s->config->threads, s->n, 64, encode_range, s, NULL) : rc;
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

static float price(const struct clustering *s, uint32_t size)
{
    return 1 + PENALTY * (float)size / (float)s->config->rows;
}

struct choice_job {
    struct clustering *s;
    const struct rows *rows;
    uint32_t first, begin; /* row of the store that rows begin with; row of `rows` that threads begin with */
    const struct choice_device *device; /* NULL: it has no products of these rows */
};

/* The cluster that a row would rather be in. ids: its own and those near that; distances from the row to them. */
static void choose(struct clustering *s, uint32_t row, const uint32_t *ids, const float *distances)
{
    float own = distances[0], least = own * price(s, s->sizes[ids[0]]);
    uint32_t best = 0;
    for (uint32_t i = 1; i <= s->n_near; i++) {
        float cost = distances[i] * price(s, s->sizes[ids[i]] + 1);
        if (cost < least && s->sizes[ids[i]] > 0) {
            least = cost;
            best = i;
        }
    }
    s->distances[row] = own;
    if (best == 0)
        return;
    s->targets[row] = ids[best];
    s->ratios[row] = distances[best] / own;
}

/* ---- with a device: products of rows with the centroids of their own cluster and of those near it ---------------- */

static void device_fini(struct choice_device *device)
{
    if (device->offload)
        offload_unload(device->offload, device->block);
    array_free_all(device->ids, device->queries, device->runs, device->dots);
    *device = (struct choice_device){0};
}

/* The centroids of this round, and which of them the rows of each cluster are compared with. */
static void device_init(struct clustering *s)
{
    struct choice_device *device = &s->choice;
    uint32_t n_ids = 1 + s->n_near, most = s->store->n < DEVICE_ROWS ? s->store->n : DEVICE_ROWS;
    struct offload_rows centres = {OFFLOAD_CODE8, s->n, s->store->code_dim, s->centres.codes, NULL};
    if (!s->config->offload || offload_load(s->config->offload, &centres, &device->block, NULL) < 0)
        return;
    device->offload = s->config->offload;
    device->ids = malloc(sizeof *device->ids * s->n * n_ids);
    device->queries = malloc((size_t)most * s->store->code_dim);
    device->runs = malloc(sizeof *device->runs * most);
    device->dots = malloc(sizeof *device->dots * most * n_ids);
    if (!device->ids || !device->queries || !device->runs || !device->dots) {
        device_fini(device);
        return;
    }
    for (uint32_t c = 0; c < s->n; c++) {
        uint32_t *ids = device->ids + (size_t)c * n_ids;
        ids[0] = c;
        memcpy(ids + 1, s->near + (size_t)c * CLUSTER_NEAR, sizeof *ids * s->n_near);
    }
}

/* The products of n rows from job->begin on. Without an answer the processor goes on. */
static bool device_ask(struct clustering *s, const struct choice_job *job, uint32_t n)
{
    struct choice_device *device = &s->choice;
    uint32_t n_ids = 1 + s->n_near, dim = s->store->code_dim;
    struct offload_dots request = {n,           n,           n * n_ids, s->n * n_ids, device->queries, device->runs,
                                   device->ids, device->dots};
    for (uint32_t i = 0; i < n; i++) {
        struct row_query query;
        uint32_t cluster = s->cluster_of[job->first + job->begin + i];
        row_query_set(&query, job->rows, job->begin + i, device->queries + (size_t)i * dim);
        device->runs[i] = (struct offload_run){i, cluster * n_ids, s->active[cluster] ? n_ids : 0, i * n_ids};
    }
    bool answered = offload_dots(device->offload, device->block, &request, NULL) == 0;
    if (!answered)
        device_fini(device);
    return answered;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static int choose_range(void *context, uint64_t begin, uint64_t end)
{
    const struct choice_job *job = context;
    struct clustering *s = job->s;
    uint32_t ids[CLUSTER_NEAR + 1], n_ids = 1 + s->n_near;
    int32_t dots[CLUSTER_NEAR + 1];
    float distances[CLUSTER_NEAR + 1];
    struct row_query query;
    int8_t *levels = malloc(s->store->code_dim);
    if (!levels)
        return QUIRE_ENOMEM;
    for (uint64_t i = begin; i < end; i++) {
        uint32_t in_rows = job->begin + (uint32_t)i, row = job->first + in_rows, cluster = s->cluster_of[row];
        s->targets[row] = CLUSTER_NONE;
        if (!s->active[cluster])
            continue;
        ids[0] = cluster;
        memcpy(ids + 1, s->near + (size_t)cluster * CLUSTER_NEAR, sizeof *ids * s->n_near);
        row_query_set(&query, job->rows, in_rows, levels);
        if (job->device)
            row_query_finish_among(&query, &s->centres, ids, n_ids, job->device->dots + i * n_ids, distances);
        else
            row_query_among(&query, &s->centres, ids, n_ids, dots, distances);
        choose(s, row, ids, distances);
    }
    free(levels);
    return 0;
}

static int choose_window(struct clustering *s, const struct rows *rows, uint32_t first)
{
    struct choice_job job = {s, rows, first, 0, NULL};
    int rc = 0;
    for (uint32_t n; rc == 0 && job.begin < rows->n; job.begin += n) {
        bool asks = s->choice.offload != NULL;
        n = asks && rows->n - job.begin > DEVICE_ROWS ? DEVICE_ROWS : rows->n - job.begin;
        job.device = asks && device_ask(s, &job, n) ? &s->choice : NULL;
        rc = parallel_for(s->config->threads, n, 1024, choose_range, &job, NULL);
    }
    return rc;
}

static int refine(struct clustering *s)
{
    struct clusters_near near = {0};
    int rc = clusters_centres(s);
    if (rc == 0)
        rc = clusters_near_init(&near, &s->centres);
    if (rc == 0)
        rc = clusters_near_all(&near, s->n_near, CLUSTER_NEAR, s->config->threads, s->near);
    clusters_near_fini(&near);
    if (rc == 0) {
        device_init(s);
        rc = clusters_pass(s, choose_window);
        device_fini(&s->choice);
    }
    if (rc < 0)
        return rc;
    for (uint32_t row = 0; row < s->store->n; row++) { /* the moves that still pay, in order of rows */
        uint32_t to = s->targets[row], from = s->cluster_of[row];
        if (to == CLUSTER_NONE || s->sizes[to] >= s->config->most ||
            !(s->ratios[row] * price(s, s->sizes[to] + 1) < price(s, s->sizes[from])))
            continue;
        assert(to != from && to < s->n && s->sizes[from] > 0);
        s->distances[row] *= s->ratios[row];
        s->cluster_of[row] = to;
        s->sizes[from]--;
        s->sizes[to]++;
    }
    double *sums = calloc(s->n, sizeof *sums);
    for (uint32_t row = 0; sums && row < s->store->n; row++)
        sums[s->cluster_of[row]] += s->distances[row];
    for (uint32_t c = 0; sums && c < s->n; c++)
        s->limits[c] = s->sizes[c] ? (float)(FAR * sums[c] / s->sizes[c]) : FLT_MAX;
    free(sums);
    return sums ? 0 : QUIRE_ENOMEM;
}

int clusters_find(struct row_store *store, struct row_store *spare, const struct clusters_known *known,
                  const struct clusters_config *config, const struct progress *progress, uint32_t *order,
                  struct clusters *clusters)
{
    struct clustering s = {.store = store, .spare = spare, .config = config, .order = order};
    assert(store->n > 0 && config->rows > 0 && config->most >= config->rows);
    *clusters = (struct clusters){0};
    s.advance = (struct parallel_advance){progress, "cluster", 0, (uint64_t)store->n * (7 + 2 * config->rounds)};
    int rc = clustering_init(&s);
    if (rc == 0)
        rc = clusters_start(&s, known);
    assert(rc < 0 || (s.n > 0 && s.n <= store->n));
    for (unsigned round = 0; rc == 0 && s.n > 1 && round < config->rounds; round++)
        rc = refine(&s);
    if (rc == 0)
        rc = clusters_order(&s, clusters);
    if (rc == 0)
        rc = parallel_report(&s.advance, s.advance.total);
    assert(rc < 0 || (clusters->n > 0 && clusters->first[clusters->n] == store->n));
    free_clusters(&s);
    rows_free(&s.window);
    array_free_all(s.cluster_of, s.targets, s.ratios, s.distances);
    if (rc < 0)
        clusters_fini(clusters);
    return rc;
}

void clusters_fini(struct clusters *clusters)
{
    array_free_all(clusters->first, clusters->heads);
    rows_free(&clusters->points);
    array_free_all(clusters->replica_at, clusters->replicas);
    memset(clusters, 0, sizeof *clusters);
}
