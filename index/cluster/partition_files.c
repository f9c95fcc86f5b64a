/*
 * partition_files.c - the bisection of partition.c over rows in a file, for builds with less memory than data.
 *
 * A node that does not fit is cut as one that does: its sample is read, its rows are streamed past once to be projected
 * and once more to be written to the other file, left rows to the front of the node's range, right rows behind. Nodes
 * lie in the one file or the other in turns, a range of places always belongs to one node, and so two files are enough
 * (quicksort with ping-pong). Nodes that fit are loaded, ordered by partition_node, and written to the first file.
 *
 * All rows move once per level that does not fit, that is log2(rows / most) times, by large sequential transfers.
 */
#include "index/cluster/partition_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES (2u << 20)

struct files {
    struct row_store *stores[2];
    const struct partition_config *config;
    struct parallel_advance advance;
    uint32_t most; /* rows in memory */
    uint32_t *order;
    struct partition_scratch scratch;
    struct code_query query;
    struct rows window;   /* rows being streamed */
    struct rows sides[2]; /* rows on their way to the left and to the right */
    uint32_t n_window;    /* rows that each of these holds */
    uint32_t *inputs, *side_inputs[2];
    uint32_t *iota;
    float *keys, *spare; /* of a node's rows */
    uint32_t first;      /* of the window, within the node */
};

static void files_fini(struct files *f)
{
    partition_scratch_fini(&f->scratch);
    rows_free(&f->window);
    free(f->inputs);
    for (int side = 0; side < 2; side++) {
        rows_free(&f->sides[side]);
        free(f->side_inputs[side]);
    }
    free(f->iota);
}

static int files_init(struct files *f)
{
    uint32_t dim = f->stores[0]->code_dim, n = (uint32_t)(WINDOW_BYTES / row_record_bytes(dim));
    int rc = partition_scratch_init(&f->scratch, dim);
    if (rc < 0) {
        memset(&f->scratch, 0, sizeof f->scratch);
        return rc;
    }
    f->n_window = n;
    f->inputs = malloc(sizeof *f->inputs * n);
    f->iota = malloc(sizeof *f->iota * n);
    rc = f->inputs && f->iota ? rows_alloc(&f->window, n, dim) : QUIRE_ENOMEM;
    for (int side = 0; side < 2 && rc == 0; side++) {
        f->side_inputs[side] = malloc(sizeof(uint32_t) * n);
        rc = f->side_inputs[side] ? rows_alloc(&f->sides[side], n, dim) : QUIRE_ENOMEM;
    }
    for (uint32_t i = 0; i < n && rc == 0; i++)
        f->iota[i] = i;
    return rc;
}

static int project_range(void *context, uint64_t begin, uint64_t end)
{
    struct files *f = context;
    partition_project(&f->window, &f->query, f->iota + begin, (uint32_t)(end - begin), f->keys + f->first + begin);
    return 0;
}

static int project_node(struct files *f, struct row_store *from, struct node node)
{
    uint32_t n = node.end - node.begin;
    int rc = 0;
    for (f->first = 0; rc == 0 && f->first < n;) {
        uint32_t now = n - f->first < f->n_window ? n - f->first : f->n_window;
        rc = row_store_read(from, node.begin + f->first, now, &f->window, 0, NULL);
        if (rc == 0)
            rc = parallel_for(f->config->threads, now, 1024, project_range, f, NULL);
        if (rc == 0)
            rc = parallel_report(&f->advance, now / 2);
        f->first += now;
    }
    return rc;
}

/* Moves the node's rows to the other file, each to its side. */
static int move_rows(struct files *f, struct row_store *from, struct row_store *to, struct node node, uint32_t cut)
{
    uint32_t at[2] = {node.begin, cut}, filled[2] = {0, 0}, n = node.end - node.begin;
    memcpy(f->spare, f->keys, sizeof(float) * n);
    struct near_limit limit = near_limit_of(f->spare, n, cut - node.begin);
    int rc = 0;
    for (uint32_t first = 0; rc == 0 && first < n;) {
        uint32_t now = n - first < f->n_window ? n - first : f->n_window;
        rc = row_store_read(from, node.begin + first, now, &f->window, 0, f->inputs);
        for (uint32_t i = 0; rc == 0 && i < now; i++) {
            int side = !near_limit_takes(&limit, f->keys[first + i]);
            f->side_inputs[side][filled[side]] = f->inputs[i];
            rows_copy(&f->window, i, &f->sides[side], filled[side]++);
            if (filled[side] < f->n_window)
                continue;
            rc = row_store_write(to, at[side], &f->sides[side], f->side_inputs[side]);
            at[side] += filled[side];
            filled[side] = 0;
        }
        first += now;
        if (rc == 0)
            rc = parallel_report(&f->advance, now - now / 2);
    }
    assert(rc < 0 || (at[0] + filled[0] == cut && at[1] + filled[1] == node.end));
    for (int side = 0; side < 2 && rc == 0; side++) {
        struct rows rest = rows_part(&f->sides[side], 0, filled[side]);
        rc = row_store_write(to, at[side], &rest, f->side_inputs[side]);
    }
    return rc;
}

static int cut_node(struct files *f, int side, struct node node, uint32_t cut)
{
    struct random random;
    struct row_store *from = f->stores[side];
    uint32_t n = node.end - node.begin, m = partition_draw(&f->scratch, node, f->config->seed, &random);
    int rc = 0;
    for (uint32_t i = 0, dim = from->code_dim; i < m && rc == 0; i++) {
        rc = row_store_read(from, node.begin + f->scratch.positions[i], 1, &f->window, 0, NULL);
        if (rc == 0)
            code_decode(f->window.codes, dim, 8, f->window.f[0], f->scratch.sample + (size_t)i * dim);
    }
    if (rc < 0)
        return rc;
    partition_direction(&f->scratch, m, from->code_dim, &random);
    f->query.levels = f->scratch.levels;
    code_query_set(&f->query, f->scratch.direction, from->code_dim);
    assert(!f->keys && !f->spare);
    f->keys = malloc(sizeof(float) * n);
    f->spare = malloc(sizeof(float) * n);
    rc = f->keys && f->spare ? project_node(f, from, node) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = move_rows(f, from, f->stores[!side], node, cut);
    free(f->keys);
    free(f->spare);
    f->keys = f->spare = NULL;
    return rc;
}

/* Loads a node, orders it and writes it to the first file. */
static int finish_node(struct files *f, int side, struct node node)
{
    struct rows rows = {0}, *window = &f->window;
    uint32_t n = node.end - node.begin, *local = malloc(sizeof *local * n), *inputs = f->order + node.begin;
    int rc = local ? rows_alloc(&rows, n, f->stores[0]->code_dim) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = row_store_read(f->stores[side], node.begin, n, &rows, 0, inputs);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        local[i] = i;
    if (rc == 0)
        rc = partition_node(&rows, node, f->config, &f->advance, local);
    for (uint32_t at = 0; at < n && rc == 0;) {
        uint32_t now = n - at < f->n_window ? n - at : f->n_window;
        for (uint32_t i = 0; i < now; i++) {
            rows_copy(&rows, local[at + i], window, i);
            f->inputs[i] = inputs[local[at + i]];
        }
        struct rows part = rows_part(window, 0, now);
        rc = row_store_write(f->stores[0], node.begin + at, &part, f->inputs);
        for (uint32_t i = 0; i < now; i++)
            local[at + i] = f->inputs[i]; /* this place was read already */
        at += now;
    }
    if (rc == 0)
        memcpy(inputs, local, sizeof *local * n);
    free(local);
    rows_free(&rows);
    return rc;
}

/* Depth is that of a balanced tree. */
static int order_node(struct files *f, int side, struct node node)
{
    uint32_t cut = partition_cut(node, f->config->capacity);
    assert(node.begin < node.end && cut < node.end);
    if (node.end - node.begin <= f->most || cut == node.begin)
        return finish_node(f, side, node);
    int rc = cut_node(f, side, node, cut);
    if (rc == 0)
        rc = order_node(f, !side, (struct node){node.begin, cut});
    if (rc == 0)
        rc = order_node(f, !side, (struct node){cut, node.end});
    return rc;
}

int partition_files(struct row_store *from, struct row_store *spare, uint32_t most,
                    const struct partition_config *config, const struct progress *progress, uint32_t *order)
{
    struct files f = {.stores = {from, spare}, .config = config, .most = most, .order = order};
    f.advance = (struct parallel_advance){progress, progress ? progress->phase : NULL, 0,
                                          partition_work(from->n, config->capacity)};
    int rc = files_init(&f);
    if (rc == 0)
        rc = order_node(&f, 0, (struct node){0, from->n});
    if (rc == 0)
        rc = parallel_report(&f.advance, f.advance.total);
    files_fini(&f);
    return rc;
}
