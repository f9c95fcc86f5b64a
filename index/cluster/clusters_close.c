/*
 * clusters_close.c - heads and points of clusters, and the closure: rows near a border stand in the lists on its other
 * side, too.
 *
 * The head is the row nearest to the middle of its cluster (centre.h), so all heads are different rows. The closure is
 * measured against the points, because the search chooses lists by them.
 *
 * Replicas follow the RNG rule of SPANN (Chen et al., NeurIPS 2021, section 3.2.2): the points near to a row's own are
 * looked at, nearest to the row first, and one is taken if no point taken before, its own among them, is much nearer to
 * it than the row is (SLACK): a list beside one that has the row already would be read together with it. Only points
 * within REACH times the distance of its own point count. The rule as it stands in the paper (SLACK 1) admits next to
 * nothing between middles and needs two to three times as many probes between rows; without any (SLACK 0) copies gather
 * in a few long lists in the middle of the data.
 *
 * That gives each row a few admissible lists. How many replicas there are in all is set by config->replicas: those with
 * the least ratio of distances, to the point by to its own, are taken over all rows, since a row as near to another
 * point as to its own is the one that is missed when only the other list is read. The limit comes from a histogram of
 * the ratios; rows are measured twice, rather than keeping up to REPLICAS_MOST candidates for each.
 *
 * A row always stands in its own list. Where a list would be too long the replicas with the largest ratios stay out.
 */
#include "index/cluster/centre.h"
#include "index/cluster/clusters_priv.h"
#include "index/kernels/kernels.h"
#include "io/array.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#define POINTS_NEAR   64u
#define REPLICAS_MOST 7u    /* of a row */
#define SLACK         0.35f /* of squared distances */
#define REACH         2.0f  /* of squared distances */
#define BINS          4096u /* of ratios up to REACH */
#define WINDOW_ROWS   (1u << 18)

struct replica {
    near_t near; /* ratio and row */
    uint32_t list;
};

struct closing {
    struct row_store *store;
    const struct clusters_config *config;
    struct clusters *clusters;
    struct parallel_advance advance;
    struct rows window;  /* of rows in a file */
    struct rows rows;    /* those looked at now: all, or the window */
    uint32_t first;      /* cluster of the window */
    uint32_t largest;    /* rows of a cluster */
    uint32_t *near;      /* per cluster: POINTS_NEAR others */
    uint32_t n_near;     /* of them there are */
    atomic_ullong *bins; /* admissible replicas by ratio */
    uint32_t limit;      /* bins below count */
    struct replica *found;
    atomic_ullong n_found;
    uint64_t n_wanted; /* replicas within the limit */
};

static int closing_init(struct closing *c)
{
    struct clusters *clusters = c->clusters;
    assert(clusters->n > 0 && clusters->first[clusters->n] == c->store->n && !clusters->heads);
    uint32_t n = clusters->n, dim = c->store->code_dim;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = clusters->first[i + 1] - clusters->first[i];
        c->largest = size > c->largest ? size : c->largest;
    }
    uint32_t window = c->config->window_rows > c->largest ? c->config->window_rows : c->largest;
    c->n_near = n - 1 < POINTS_NEAR ? n - 1 : POINTS_NEAR;
    c->near = malloc(sizeof *c->near * n * POINTS_NEAR);
    c->bins = calloc(BINS, sizeof *c->bins);
    clusters->heads = malloc(sizeof *clusters->heads * n);
    clusters->replica_at = calloc((size_t)n + 1, sizeof *clusters->replica_at);
    if (!c->near || !c->bins || !clusters->heads || !clusters->replica_at)
        return QUIRE_ENOMEM;
    int rc = rows_alloc(&clusters->points, n, dim);
    if (rc < 0 || c->store->rows.codes)
        return rc;
    return rows_alloc(&c->window, window < c->store->n ? window : c->store->n, dim);
}

/* Calls body for all clusters, as many at a time as fit in the window; range gets their numbers less c->first. */
static int closing_pass(struct closing *c, int (*range)(void *context, uint64_t begin, uint64_t end))
{
    const uint32_t *first = c->clusters->first;
    uint32_t n = c->clusters->n, most = c->store->rows.codes ? WINDOW_ROWS : c->window.n;
    most = most > c->largest ? most : c->largest;
    int rc = 0;
    for (c->first = 0; rc == 0 && c->first < n;) {
        uint32_t end = c->first + 1;
        while (end < n && first[end + 1] - first[c->first] <= most)
            end++;
        uint32_t n_rows = first[end] - first[c->first];
        rc = row_store_view(c->store, first[c->first], n_rows, &c->window, &c->rows);
        if (rc == 0)
            rc = parallel_for(c->config->threads, end - c->first, 16, range, c, NULL);
        if (rc == 0)
            rc = parallel_report(&c->advance, n_rows);
        c->first = end;
    }
    return rc;
}

/* Where the rows of a cluster lie in the window. */
static struct rows cluster_rows(const struct closing *c, uint32_t cluster)
{
    const uint32_t *first = c->clusters->first;
    return rows_part(&c->rows, first[cluster] - first[c->first], first[cluster + 1] - first[cluster]);
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

static void choose_head(struct closing *c, uint32_t cluster, struct centre_scratch *s, float *centre)
{
    struct rows rows = cluster_rows(c, cluster);
    uint32_t dim = rows.code_dim, head = 0;
    float least = INFINITY;
    assert(rows.n > 0 && rows.n <= c->largest);
    centre_take(s, &rows, 0, rows.n);
    centre_find(s, rows.n, dim, centre);
    for (uint32_t i = 0; i < rows.n; i++) {
        float distance = kernels()->f32_l2(centre, s->rows + (size_t)i * dim, dim);
        if (distance < least) {
            least = distance;
            head = i;
        }
    }
    c->clusters->heads[cluster] = c->clusters->first[cluster] + head;
    if (c->config->points_are_heads)
        rows_copy(&rows, head, &c->clusters->points, cluster);
    else
        rows_encode(&c->clusters->points, cluster, centre);
}

static int head_range(void *context, uint64_t begin, uint64_t end)
{
    struct closing *c = context;
    struct centre_scratch s;
    int rc = centre_scratch_init(&s, c->largest, c->store->code_dim);
    if (rc < 0)
        return rc;
    float *centre = malloc(sizeof *centre * c->store->code_dim);
    for (uint64_t i = begin; centre && i < end; i++)
        choose_head(c, c->first + (uint32_t)i, &s, centre);
    rc = centre ? 0 : QUIRE_ENOMEM;
    free(centre);
    centre_scratch_fini(&s);
    return rc;
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

/* Points near a cluster's, its own first. */
struct border {
    uint32_t n;
    uint32_t ids[POINTS_NEAR + 1];
    float between[POINTS_NEAR + 1][POINTS_NEAR + 1];
    float distances[POINTS_NEAR + 1]; /* from a row to them */
    int32_t dots[POINTS_NEAR + 1];
    near_t items[POINTS_NEAR + 1], spare[POINTS_NEAR + 1];
    int8_t *levels; /* code_dim */
};

/* A list that a row is admitted to. */
struct admitted {
    uint32_t list, bin;
    float ratio;
};

static void border_set(struct border *b, const struct closing *c, uint32_t cluster)
{
    struct row_query query;
    b->n = 1 + c->n_near;
    b->ids[0] = cluster;
    memcpy(b->ids + 1, c->near + (size_t)cluster * POINTS_NEAR, sizeof *b->ids * c->n_near);
    for (uint32_t i = 0; i < b->n; i++) {
        row_query_set(&query, &c->clusters->points, b->ids[i], b->levels);
        row_query_among(&query, &c->clusters->points, b->ids, b->n, b->dots, b->between[i]);
    }
}

/* The lists that a row is admitted to, nearest first; returns how many. */
static uint32_t admit(struct border *b, const struct closing *c, const struct rows *rows, uint32_t row,
                      struct admitted *out)
{
    struct row_query query;
    uint32_t taken[REPLICAS_MOST + 1] = {0}, n = 0;
    row_query_set(&query, rows, row, b->levels);
    row_query_among(&query, &c->clusters->points, b->ids, b->n, b->dots, b->distances);
    float limit = REACH * b->distances[0];
    uint32_t n_near = 0; /* points within reach of the row, nearest first */
    for (uint32_t i = 1; i < b->n; i++)
        if (b->distances[i] < limit)
            b->items[n_near++] = near_of(b->distances[i], i);
    near_keep_sorted(b->items, n_near, n_near, b->spare);
    for (uint32_t i = 0; i < n_near && n < REPLICAS_MOST; i++) {
        uint32_t point = (uint32_t)b->items[i];
        bool apart = true;
        for (uint32_t t = 0; t <= n && apart; t++)
            apart = b->between[point][taken[t]] > SLACK * b->distances[point];
        if (!apart)
            continue;
        float ratio = b->distances[point] / b->distances[0]; /* may be rounded up to REACH */
        uint32_t bin = (uint32_t)(ratio * (BINS / REACH));
        out[n++] = (struct admitted){b->ids[point], bin < BINS ? bin : BINS - 1, ratio};
        taken[n] = point;
    }
    return n;
}

static void count_row(struct closing *c, uint32_t row, const struct admitted *admitted, uint32_t n)
{
    (void)row;
    for (uint32_t i = 0; i < n; i++)
        atomic_fetch_add_explicit(&c->bins[admitted[i].bin], 1, memory_order_relaxed);
}

static void keep_row(struct closing *c, uint32_t row, const struct admitted *admitted, uint32_t n)
{
    uint32_t kept = 0;
    while (kept < n && admitted[kept].bin < c->limit)
        kept++;
    if (kept == 0)
        return;
    uint64_t at = atomic_fetch_add_explicit(&c->n_found, kept, memory_order_relaxed);
    assert(at + kept <= c->n_wanted); /* what is measured twice comes out the same */
    struct replica *to = c->found + at;
    for (uint32_t i = 0; i < kept; i++)
        to[i] = (struct replica){near_of(admitted[i].ratio, row), admitted[i].list};
}

static int admit_clusters(struct closing *c, uint64_t begin, uint64_t end,
                          void (*take)(struct closing *c, uint32_t row, const struct admitted *admitted, uint32_t n))
{
    struct admitted admitted[REPLICAS_MOST];
    struct border *b = calloc(1, sizeof *b);
    int8_t *levels = malloc(c->store->code_dim);
    for (uint64_t i = begin; b && levels && i < end; i++) {
        uint32_t cluster = c->first + (uint32_t)i;
        struct rows rows = cluster_rows(c, cluster);
        b->levels = levels;
        border_set(b, c, cluster);
        for (uint32_t row = 0; row < rows.n; row++)
            take(c, c->clusters->first[cluster] + row, admitted, admit(b, c, &rows, row, admitted));
    }
    int rc = b && levels ? 0 : QUIRE_ENOMEM;
    array_free_all(b, levels);
    return rc;
}

static int count_range(void *context, uint64_t begin, uint64_t end)
{
    return admit_clusters(context, begin, end, count_row);
}

static int keep_range(void *context, uint64_t begin, uint64_t end)
{
    return admit_clusters(context, begin, end, keep_row);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

struct lists {
    struct closing *closing;
    near_t *replicas, *spare; /* of all lists */
    uint32_t *kept;           /* per list */
};

static int list_range(void *context, uint64_t begin, uint64_t end)
{
    struct lists *l = context;
    const struct clusters *clusters = l->closing->clusters;
    for (uint64_t i = begin; i < end; i++) {
        uint64_t at = clusters->replica_at[i];
        uint32_t n = (uint32_t)(clusters->replica_at[i + 1] - at), most = l->closing->config->list_most;
        uint32_t own = clusters->first[i + 1] - clusters->first[i], left = most > own ? most - own : 0;
        if (n > left)
            near_select(l->replicas + at, n, left);
        l->kept[i] = n = n < left ? n : left;
        for (uint32_t j = 0; j < n; j++)
            l->replicas[at + j] = (uint32_t)l->replicas[at + j]; /* now in order of rows */
        near_keep_sorted(l->replicas + at, n, n, l->spare + at);
    }
    return 0;
}

/* Cuts the lists to what they keep; clusters->replicas. */
static int store_lists(struct closing *c, const struct lists *l)
{
    struct clusters *clusters = c->clusters;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < clusters->n; i++)
        sum += l->kept[i];
    clusters->replicas = malloc(sizeof *clusters->replicas * (sum ? sum : 1));
    if (!clusters->replicas)
        return QUIRE_ENOMEM;
    uint64_t to = 0;
    for (uint32_t i = 0; i < clusters->n; i++) {
        uint64_t at = clusters->replica_at[i];
        clusters->replica_at[i] = to;
        for (uint32_t j = 0; j < l->kept[i]; j++)
            clusters->replicas[to++] = (uint32_t)l->replicas[at + j];
    }
    assert(to == sum);
    clusters->replica_at[clusters->n] = to;
    return 0;
}

static int make_lists(struct closing *c)
{
    size_t most = c->n_wanted ? c->n_wanted : 1;
    struct lists l = {c, malloc(sizeof(near_t) * most), malloc(sizeof(near_t) * most),
                      malloc(sizeof(uint32_t) * c->clusters->n)};
    int rc = l.replicas && l.spare && l.kept ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        uint64_t *at = c->clusters->replica_at, sum = 0;
        assert(c->n_found == c->n_wanted);
        for (uint64_t i = 0; i < c->n_wanted; i++)
            at[c->found[i].list]++;
        for (uint32_t i = 0; i <= c->clusters->n; i++) {
            sum += at[i];
            at[i] = sum;
        }
        for (uint64_t i = 0; i < c->n_wanted; i++)
            l.replicas[--at[c->found[i].list]] = c->found[i].near;
        rc = parallel_for(c->config->threads, c->clusters->n, 64, list_range, &l, NULL);
    }
    if (rc == 0)
        rc = store_lists(c, &l);
    array_free_all(l.replicas, l.spare, l.kept);
    return rc;
}

static int find_replicas(struct closing *c)
{
    struct clusters_near near = {0};
    int rc = clusters_near_init(&near, &c->clusters->points);
    if (rc == 0)
        rc = clusters_near_all(&near, c->n_near, POINTS_NEAR, c->config->threads, c->near);
    clusters_near_fini(&near);
    if (rc == 0)
        rc = closing_pass(c, count_range);
    if (rc < 0)
        return rc;
    /* the largest ratio at which there are not more replicas than wanted */
    uint64_t most = (uint64_t)((double)(c->config->replicas - 1) * c->store->n);
    while (c->limit < BINS && c->n_wanted + c->bins[c->limit] <= most)
        c->n_wanted += c->bins[c->limit++];
    c->found = malloc(sizeof *c->found * (c->n_wanted ? c->n_wanted : 1));
    return c->found ? closing_pass(c, keep_range) : QUIRE_ENOMEM;
}

int clusters_close(struct row_store *store, const struct clusters_config *config, const struct progress *progress,
                   struct clusters *clusters)
{
    struct closing c = {.store = store, .config = config, .clusters = clusters};
    c.advance = (struct parallel_advance){progress, "replicas", 0, (uint64_t)store->n * 3};
    int rc = closing_init(&c);
    if (rc == 0)
        rc = closing_pass(&c, head_range);
    if (rc == 0 && config->replicas > 1)
        rc = find_replicas(&c);
    if (rc == 0)
        rc = make_lists(&c);
    if (rc == 0)
        rc = parallel_report(&c.advance, c.advance.total);
    rows_free(&c.window);
    array_free_all(c.near, c.bins, c.found);
    return rc;
}
