/*
 * clusters_order.c - puts rows in order of their clusters.
 *
 * Clusters that ended without rows vanish; inside a cluster rows keep their order, which is that of the bisection.
 *
 * Rows in memory change places in place. Rows in a file are dealt out to buckets of consecutive new places, each of
 * which fits in memory: all rows are read once and written to the spare file by bucket, then each bucket is loaded, put
 * in order and written back. That is two passes whatever the memory, and all transfers but the pieces of buckets are
 * large.
 */
#include "index/cluster/clusters_priv.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>

/* targets[row]: its new place; clusters->first. */
static int place_rows(struct clustering *s, struct clusters *clusters)
{
    uint32_t n = s->store->n, n_full = 0, *next = malloc(sizeof *next * s->n);
    clusters->first = malloc(sizeof *clusters->first * ((size_t)s->n + 1));
    if (!next || !clusters->first) {
        free(next);
        return QUIRE_ENOMEM;
    }
    uint32_t at = 0;
    for (uint32_t c = 0; c < s->n; c++) {
        next[c] = at;
        if (s->sizes[c] > 0)
            clusters->first[n_full++] = at;
        at += s->sizes[c];
    }
    assert(at == n && n_full > 0);
    clusters->first[n_full] = at;
    clusters->n = n_full;
    for (uint32_t row = 0; row < n; row++)
        s->targets[row] = next[s->cluster_of[row]]++;
    free(next);
    return 0;
}

/* ---- in files ---------------------------------------------------------------------------------------------------- */

struct buckets {
    struct clustering *s;
    uint32_t rows, n, piece; /* rows of a bucket; buckets; rows of each that are held until they are written */
    struct rows held;        /* n x piece */
    uint32_t *inputs;        /* of these */
    uint32_t *filled;        /* per bucket: held now */
    uint32_t *written;       /* per bucket: before */
    uint32_t *window_inputs;
    uint32_t *places; /* per place of the spare file: the new place of the row there */
};

static int buckets_init(struct buckets *b, struct clustering *s, uint32_t rows)
{
    uint32_t n = s->store->n;
    b->s = s;
    b->rows = rows;
    b->n = (n + b->rows - 1) / b->rows;
    b->piece = b->rows / 2 / b->n ? b->rows / 2 / b->n : 1;
    b->places = s->cluster_of;
    b->inputs = malloc(sizeof *b->inputs * b->n * b->piece);
    b->filled = calloc(b->n, sizeof *b->filled);
    b->written = calloc(b->n, sizeof *b->written);
    b->window_inputs = malloc(sizeof *b->window_inputs * b->rows);
    if (!b->inputs || !b->filled || !b->written || !b->window_inputs)
        return QUIRE_ENOMEM;
    return rows_alloc(&b->held, b->n * b->piece, s->store->code_dim);
}

static int write_piece(struct buckets *b, uint32_t bucket)
{
    struct rows part = rows_part(&b->held, bucket * b->piece, b->filled[bucket]);
    int rc = row_store_write(b->s->spare, bucket * b->rows + b->written[bucket], &part,
                             b->inputs + (size_t)bucket * b->piece);
    b->written[bucket] += b->filled[bucket];
    b->filled[bucket] = 0;
    return rc;
}

/* Deals the rows out to their buckets, a window at a time. */
static int deal(struct buckets *b)
{
    struct clustering *s = b->s;
    uint32_t n = s->store->n;
    int rc = 0;
    for (uint32_t first = 0; rc == 0 && first < n;) {
        uint32_t now = n - first < s->window.n ? n - first : s->window.n;
        rc = row_store_read(s->store, first, now, &s->window, 0, b->window_inputs);
        for (uint32_t i = 0; rc == 0 && i < now; i++) {
            uint32_t place = s->targets[first + i], bucket = place / b->rows;
            uint32_t at = bucket * b->piece + b->filled[bucket];
            assert(bucket < b->n && b->filled[bucket] < b->piece);
            b->places[bucket * b->rows + b->written[bucket] + b->filled[bucket]] = place;
            b->inputs[at] = b->window_inputs[i];
            rows_copy(&s->window, i, &b->held, at);
            if (++b->filled[bucket] == b->piece)
                rc = write_piece(b, bucket);
        }
        if (rc == 0)
            rc = parallel_report(&s->advance, now / 2);
        first += now;
    }
    for (uint32_t bucket = 0; rc == 0 && bucket < b->n; bucket++)
        rc = write_piece(b, bucket);
    return rc;
}

/* Loads a bucket, puts it in order and writes it to the store. */
static int finish_bucket(struct buckets *b, uint32_t bucket, uint32_t *order, uint32_t *inputs)
{
    struct clustering *s = b->s;
    uint32_t first = bucket * b->rows, n = s->store->n - first < b->rows ? s->store->n - first : b->rows;
    struct rows rows = rows_part(&s->window, 0, n);
    int rc = row_store_read(s->spare, first, n, &rows, 0, b->window_inputs);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t to = b->places[first + i] - first;
        assert(to < n);
        order[to] = i;
        inputs[to] = b->window_inputs[i];
    }
    if (rc == 0)
        rc = rows_permute(&rows, order);
    if (rc == 0)
        rc = row_store_write(s->store, first, &rows, inputs);
    return rc == 0 ? parallel_report(&s->advance, n - n / 2) : rc;
}

static int sort_files(struct clustering *s)
{
    struct buckets b = {0};
    uint32_t *order = NULL, *inputs = NULL, most = s->window.n;
    rows_free(&s->window);
    int rc = rows_alloc(&s->window, most - most / 2, s->store->code_dim); /* the other half is held for buckets */
    if (rc == 0)
        rc = buckets_init(&b, s, most);
    if (rc == 0)
        rc = deal(&b);
    rows_free(&b.held);
    rows_free(&s->window);
    if (rc == 0)
        rc = rows_alloc(&s->window, most, s->store->code_dim);
    if (rc == 0) {
        order = malloc(sizeof *order * b.rows);
        inputs = malloc(sizeof *inputs * b.rows);
        rc = order && inputs ? 0 : QUIRE_ENOMEM;
    }
    for (uint32_t bucket = 0; rc == 0 && bucket < b.n; bucket++)
        rc = finish_bucket(&b, bucket, order, inputs);
    array_free_all(order, inputs);
    rows_free(&b.held);
    array_free_all(b.inputs, b.filled, b.written, b.window_inputs);
    return rc;
}

int clusters_order(struct clustering *s, struct clusters *clusters)
{
    int rc = place_rows(s, clusters);
    if (rc < 0)
        return rc;
    /* s->order follows the rows, which lie in cluster_of's place afterwards: the row that goes to each new place */
    uint32_t n = s->store->n, *from = s->cluster_of, *before = (uint32_t *)(void *)s->ratios;
    memcpy(before, s->order, sizeof *before * n);
    for (uint32_t row = 0; row < n; row++) {
        from[s->targets[row]] = row;
        s->order[s->targets[row]] = before[row];
    }
    return s->store->rows.codes ? rows_permute(&s->store->rows, s->cluster_of) : sort_files(s);
}
