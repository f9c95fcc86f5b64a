/*
 * neighbours.c - near neighbours by neighbouring groups, pruned to different directions.
 *
 * Rows already lie in groups of near ones (partition.h), so a row's neighbours are sought where they must be: for each
 * group its GROUP_POOL nearest groups by centre are found once, each row of the group ranks those by its own distance
 * to their centres, and all rows of its nearest `groups` groups are measured: contiguous 8-bit codes, a few thousand
 * products per row. The nearest `pool` rows then compete under the relative-neighbourhood rule (Arya and Mount 1993;
 * alpha after DiskANN, Subramanya et al. 2019): a candidate is dropped when an edge already kept leads nearer to it.
 *
 * Against inserting rows one after the other into a growing graph (HNSW, Vamana) this costs about a tenth on a million
 * rows, needs no locks, and its result is a function of the input alone whatever the number of threads. What it lacks
 * are long edges; the search does not need them, because it starts from the centres of all groups.
 *
 * Rejected: edges without reverse ones (recall .944 instead of .954 at the same reads on the text set); degree 32
 * instead of 24 (+.001).
 */
#include "index/neighbours.h"
#include "index/kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

#define GROUP_POOL 128u

struct near {
    float distance;
    uint32_t id;
};

struct job {
    const struct rows *rows;
    const float *centres;
    const struct neighbours_config *config;
    struct neighbours *out;
    uint32_t n_groups;
};

struct scratch {
    float *centre_distances; /* n_groups */
    struct near *groups;     /* n_groups, then GROUP_POOL of interest */
    float *row;              /* code_dim */
    int8_t *levels;          /* code_dim */
    uint32_t *ids;           /* members of the searched groups */
    int32_t *dots;
    float *distances;
    struct near *pool;
};

static void scratch_fini(struct scratch *s)
{
    free(s->centre_distances);
    free(s->groups);
    free(s->row);
    free(s->levels);
    free(s->ids);
    free(s->dots);
    free(s->distances);
    free(s->pool);
}

static int scratch_init(struct scratch *s, const struct job *job)
{
    size_t members = (size_t)job->config->groups * job->config->capacity, dim = job->rows->code_dim;
    s->centre_distances = malloc(sizeof(float) * job->n_groups);
    s->groups = malloc(sizeof(struct near) * job->n_groups);
    s->row = malloc(sizeof(float) * dim);
    s->levels = malloc(dim);
    s->ids = malloc(sizeof(uint32_t) * members);
    s->dots = malloc(sizeof(int32_t) * members);
    s->distances = malloc(sizeof(float) * members);
    s->pool = malloc(sizeof(struct near) * members);
    if (s->centre_distances && s->groups && s->row && s->levels && s->ids && s->dots && s->distances && s->pool)
        return 0;
    scratch_fini(s);
    return QUIRE_ENOMEM;
}

static bool is_nearer(struct near a, struct near b)
{
    return a.distance < b.distance || (a.distance == b.distance && a.id < b.id);
}

static int compare_near(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    return is_nearer(*x, *y) ? -1 : is_nearer(*y, *x) ? 1 : 0;
}

/* Moves the `keep` nearest of items[0..n) to the front, in no order. */
static void select_nearest(struct near *items, uint32_t n, uint32_t keep)
{
    uint32_t begin = 0, end = n;
    while (end - begin > 1 && keep > begin && keep < end) {
        struct near pivot = items[begin + (end - begin) / 2];
        uint32_t i = begin, j = end - 1;
        for (;;) {
            while (is_nearer(items[i], pivot))
                i++;
            while (is_nearer(pivot, items[j]))
                j--;
            if (i >= j)
                break;
            struct near t = items[i];
            items[i++] = items[j];
            items[j--] = t;
        }
        uint32_t split = i == j ? i : j + 1;
        if (split == begin)
            split++;
        if (split == end)
            split--;
        if (keep < split)
            end = split;
        else
            begin = split;
    }
}

static uint32_t keep_nearest_sorted(struct near *items, uint32_t n, uint32_t keep)
{
    if (n > keep) {
        select_nearest(items, n, keep);
        n = keep;
    }
    qsort(items, n, sizeof *items, compare_near);
    return n;
}

/* The nearest groups of a group, its own among them, into s->groups; returns how many. */
static uint32_t near_groups(const struct job *job, struct scratch *s, uint32_t group)
{
    size_t dim = job->rows->code_dim;
    kernels()->f32_l2_many(job->centres + group * dim, job->centres, job->n_groups, dim, s->centre_distances);
    for (uint32_t g = 0; g < job->n_groups; g++)
        s->groups[g] = (struct near){g == group ? -1 : s->centre_distances[g], g};
    return keep_nearest_sorted(s->groups, job->n_groups, GROUP_POOL);
}

/* All rows of the row's nearest groups, but the row; returns how many are in s->ids. */
static uint32_t gather_members(const struct job *job, struct scratch *s, uint32_t row, uint32_t n_near)
{
    struct near ranked[GROUP_POOL];
    uint32_t capacity = job->config->capacity, n = 0;
    size_t dim = job->rows->code_dim;
    code_decode(job->rows->codes + row * dim, (uint32_t)dim, 8, job->rows->f[row], s->row);
    for (uint32_t i = 0; i < n_near; i++) {
        uint32_t group = s->groups[i].id;
        float d = i == 0 ? -1 : kernels()->f32_l2(s->row, job->centres + group * dim, dim);
        ranked[i] = (struct near){d, group};
    }
    uint32_t n_ranked = keep_nearest_sorted(ranked, n_near, job->config->groups);
    for (uint32_t i = 0; i < n_ranked; i++) {
        uint32_t begin = ranked[i].id * capacity;
        uint32_t end = job->rows->n - begin < capacity ? job->rows->n : begin + capacity;
        for (uint32_t r = begin; r < end; r++)
            if (r != row)
                s->ids[n++] = r;
    }
    return n;
}

/* Keeps of pool[0..n), nearest first, those that no kept one leads to. */
static uint32_t prune(const struct job *job, struct scratch *s, uint32_t n, uint32_t *kept)
{
    struct row_query query;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n && n_kept < job->config->degree; i++) {
        bool covered = false;
        if (n_kept) {
            row_query_set(&query, job->rows, s->pool[i].id, s->levels);
            row_query_distances(&query, kept, n_kept, s->dots, s->distances);
        }
        for (uint32_t j = 0; j < n_kept && !covered; j++)
            covered = job->config->alpha * s->distances[j] < s->pool[i].distance;
        if (!covered)
            kept[n_kept++] = s->pool[i].id;
    }
    return n_kept;
}

static void link_row(const struct job *job, struct scratch *s, uint32_t row, uint32_t n_near)
{
    uint32_t *kept = job->out->ids + (size_t)row * job->out->degree;
    struct row_query query;
    uint32_t n = gather_members(job, s, row, n_near);
    row_query_set(&query, job->rows, row, s->levels);
    row_query_distances(&query, s->ids, n, s->dots, s->distances);
    for (uint32_t i = 0; i < n; i++)
        s->pool[i] = (struct near){s->distances[i], s->ids[i]};
    n = keep_nearest_sorted(s->pool, n, job->config->pool);
    uint32_t n_kept = prune(job, s, n, kept);
    for (uint32_t i = n_kept; i < job->out->degree; i++)
        kept[i] = NEIGHBOUR_NONE;
}

static int link_groups(void *context, uint64_t begin, uint64_t end)
{
    struct job *job = context;
    struct scratch s;
    int rc = scratch_init(&s, job);
    if (rc < 0)
        return rc;
    for (uint64_t g = begin; g < end; g++) {
        uint32_t n_near = near_groups(job, &s, (uint32_t)g), capacity = job->config->capacity;
        uint32_t first = (uint32_t)g * capacity;
        uint32_t last = job->rows->n - first < capacity ? job->rows->n : first + capacity;
        for (uint32_t row = first; row < last; row++)
            link_row(job, &s, row, n_near);
    }
    scratch_fini(&s);
    return 0;
}

/* Counting sort of all edges by target. */
static int build_reverse(struct neighbours *nb, uint32_t n)
{
    size_t places = (size_t)n * nb->degree;
    nb->reverse_at = calloc((size_t)n + 2, sizeof(uint32_t));
    if (!nb->reverse_at)
        return QUIRE_ENOMEM;
    uint32_t *at = nb->reverse_at;
    for (size_t i = 0; i < places; i++)
        if (nb->ids[i] != NEIGHBOUR_NONE)
            at[nb->ids[i] + 2]++;
    for (uint32_t i = 0; i < n; i++)
        at[i + 2] += at[i + 1];
    nb->reverse = malloc(sizeof(uint32_t) * ((size_t)at[n + 1] + 1));
    if (!nb->reverse)
        return QUIRE_ENOMEM;
    /* at[t + 1] is where the next edge to t goes; when all are placed it is the end of t's and the begin of t + 1's */
    for (size_t i = 0; i < places; i++)
        if (nb->ids[i] != NEIGHBOUR_NONE)
            nb->reverse[at[nb->ids[i] + 1]++] = (uint32_t)(i / nb->degree);
    return 0;
}

int neighbours_build(const struct rows *rows, const float *centres, const struct neighbours_config *config,
                     const struct progress *progress, struct neighbours *out)
{
    uint32_t n_groups = (rows->n + config->capacity - 1) / config->capacity;
    struct neighbours nb = {.degree = config->degree};
    struct job job = {rows, centres, config, &nb, n_groups};
    nb.ids = malloc(sizeof(uint32_t) * rows->n * config->degree);
    int rc = nb.ids ? 0 : QUIRE_ENOMEM;
    if (rc == 0)
        rc = parallel_for(config->threads, n_groups, 8, link_groups, &job, progress);
    if (rc == 0)
        rc = build_reverse(&nb, rows->n);
    if (rc < 0)
        neighbours_fini(&nb);
    else
        *out = nb;
    return rc;
}

void neighbours_fini(struct neighbours *nb)
{
    free(nb->ids);
    free(nb->reverse_at);
    free(nb->reverse);
    memset(nb, 0, sizeof *nb);
}
