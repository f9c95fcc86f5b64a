/*
 * graph_image.c - rows with their links as bytes, and what makes a graph of them again.
 *
 * Linking a million rows takes minutes; reading them back takes a fraction of a second. A row's image is its head word
 * and, unless the number is free, f, norm2, the code and the links of each of its layers, with their counts. On how
 * many layers a row is follows from its number and the seed, so the same seed makes the same layers.
 *
 * Rows are saved one by one while others are linked and removed, each under its lock: an image is a set of rows of
 * which each was true at some moment. A link made between two of those moments is in one of its ends only; a number
 * that was used again has links from before. And an image comes from a disk: its checksums are someone else's duty, but
 * no bytes may lead to a crash, a walk without end or a link that leaves its root. So nothing in it is believed:
 *
 * 1. Loading takes any links, as many as a row can have.
 * 2. Links to where no link may lead go. A link that is not returned is, unless the row is full, and goes otherwise.
 * 3. The links that both ends mark as the tree's (graph_link.c, rule 2) are kept as long as they make no circle (union
 *    by size with path halving; Tarjan 1975); where they do not hold a root's rows together, any other link that joins
 *    two parts becomes one of them. What still is apart from the largest part of its root is unlinked.
 *
 * All passes go through the rows in order and know ahead which others they need, so they can be fetched in time; this,
 * and a look-up of roots by number in one array, is why no cheaper way for quiet images is needed.
 */
#include "index/graph/graph_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_LIVE   0x1u
#define IMAGE_LINKED 0x2u
#define IMAGE_COUNT  8 /* bits below the count of links */
#define HEAD_BYTES   4u
#define FIXED_BYTES  12u /* of a row that is not free, before its code */
#define AHEAD        6u  /* rows */

/* ---- saving ---- */

size_t graph_image_bytes(const struct graph *graph, uint32_t first, uint32_t n)
{
    size_t bytes = n * (FIXED_BYTES + (size_t)graph->code_dim + graph->capacity * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        bytes += graph_row_layers(graph, first + i) * (1 + graph->degree) * sizeof(uint32_t);
    return bytes;
}

static uint8_t *put_links(uint8_t *out, const struct graph_link_list *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, out += sizeof(uint32_t))
        bytes_store_u32(out, atomic_load_explicit(&list->links[i], memory_order_relaxed));
    return out;
}

/* Its numbers and code do not change as long as the caller's epoch lasts, so only links are copied under the lock. A
 * row that is being removed is saved without links: it may have lost some already. */
static uint8_t *save_row(const struct graph *graph, uint32_t row, uint8_t *out)
{
    const struct graph_row_numbers *numbers = graph_row_numbers(graph, row);
    uint8_t *head = out, *code = out + FIXED_BYTES;
    if (!graph_row_lock(graph, row)) {
        bytes_store_u32(head, 0);
        return out + HEAD_BYTES;
    }
    uint32_t state = graph_row_state(graph, row), word = IMAGE_LIVE;
    out = code + graph->code_dim;
    if ((state & (STATE_LINKED | STATE_DYING)) == STATE_LINKED) {
        struct graph_link_list list = graph_link_list(graph, row, 0);
        word |= IMAGE_LINKED | (state & STATE_COUNT) << IMAGE_COUNT;
        out = put_links(out, &list, state & STATE_COUNT);
        for (unsigned layer = graph_row_layers(graph, row); layer > 0; layer--) {
            list = graph_link_list(graph, row, layer);
            uint32_t n = graph_link_count(&list);
            bytes_store_u32(out, n);
            out = put_links(out + sizeof(uint32_t), &list, n);
        }
    }
    graph_row_unlock(graph, row);
    bytes_store_u32(head, word);
    bytes_store_f32(head + 4, numbers->f);
    bytes_store_f32(head + 8, numbers->norm2);
    memcpy(code, graph_row_code(graph, row), graph->code_dim);
    return out;
}

size_t graph_image_save(const struct graph *graph, uint32_t first, uint32_t n, uint8_t *out)
{
    uint8_t *begin = out;
    uint32_t end = graph_row_end(graph);
    for (uint32_t i = 0; i < n; i++) {
        if (first + i < end) {
            out = save_row(graph, first + i, out);
        } else {
            bytes_store_u32(out, 0);
            out += HEAD_BYTES;
        }
    }
    return (size_t)(out - begin);
}

/* ---- loading ---- */

struct image {
    const uint8_t *at, *end;
};

static bool image_has(const struct image *image, size_t bytes)
{
    return (size_t)(image->end - image->at) >= bytes;
}

/* Links as they are; false if there are more than fit into the row, or into the image. */
static bool load_links(struct image *image, const struct graph_link_list *list, uint32_t n, uint32_t mask)
{
    if (n > list->capacity || !image_has(image, n * sizeof(uint32_t)))
        return false;
    for (uint32_t i = 0; i < n; i++, image->at += sizeof(uint32_t))
        atomic_store_explicit(&list->links[i], bytes_load_u32(image->at) & mask, memory_order_relaxed);
    graph_link_set_count(list, n);
    return true;
}

static bool load_layers(struct graph *graph, uint32_t row, struct image *image, uint32_t n)
{
    struct graph_link_list list = graph_link_list(graph, row, 0);
    if (!load_links(image, &list, n, UINT32_MAX))
        return false;
    for (unsigned layer = graph_row_layers(graph, row); layer > 0; layer--) {
        list = graph_link_list(graph, row, layer);
        if (!image_has(image, sizeof(uint32_t)))
            return false;
        n = bytes_load_u32(image->at);
        image->at += sizeof(uint32_t);
        if (!load_links(image, &list, n, ~LINK_TREE))
            return false;
    }
    return true;
}

static int corrupt(struct quire_error *err, uint32_t row, const char *what)
{
    return error_set(err, QUIRE_ECORRUPT, "image of the graph, row %u: %s", row, what);
}

static int load_row(struct graph *graph, uint32_t row, struct image *image, struct quire_error *err)
{
    if (!image_has(image, HEAD_BYTES))
        return corrupt(err, row, "the image ends before it");
    uint32_t head = bytes_load_u32(image->at);
    if (head == 0) {
        image->at += HEAD_BYTES;
        return 0;
    }
    if (!(head & IMAGE_LIVE) || (head & 0xfc) || (!(head & IMAGE_LINKED) && head >> IMAGE_COUNT))
        return corrupt(err, row, "its first word is none that is written");
    if (!image_has(image, FIXED_BYTES + graph->code_dim))
        return corrupt(err, row, "the image ends within it");
    float f = bytes_load_f32(image->at + 4), norm2 = bytes_load_f32(image->at + 8);
    if (!isfinite(f) || !isfinite(norm2) || norm2 < 0)
        return corrupt(err, row, "its length is no number");
    int rc = graph_row_prepare(graph, row);
    if (rc < 0)
        return error_set(err, rc, "row %u of an image cannot be put into the graph", row);
    graph_row_fill(graph, row, image->at + FIXED_BYTES, f, norm2);
    image->at += FIXED_BYTES + graph->code_dim;
    if (!(head & IMAGE_LINKED))
        return 0;
    if (!load_layers(graph, row, image, head >> IMAGE_COUNT))
        return corrupt(err, row, "it has more links than a row can have, or than the image holds");
    atomic_fetch_or_explicit(&graph_row_numbers(graph, row)->state, STATE_LINKED, memory_order_relaxed);
    return 0;
}

int graph_image_load(struct graph *graph, uint32_t first, uint32_t n, const void *bytes, size_t n_bytes,
                     struct quire_error *err)
{
    struct image image = {bytes, (const uint8_t *)bytes + n_bytes};
    int rc = first > ROW_NONE || n > ROW_NONE - first ? corrupt(err, first, "there is no such number") : 0;
    graph->loaded = true;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = load_row(graph, first + i, &image, err);
    assert(image.at <= image.end);
    if (rc == 0 && image.at != image.end)
        rc = corrupt(err, first + n, "the image goes on behind its last row");
    return rc;
}

/* ---- mending: roots ---- */

struct mend {
    struct graph *graph;
    struct graph_mending *mending;
    uint32_t n_rows, n_linked;
    uint32_t n_parts; /* of trees; and of these, roots that have rows */
    uint32_t n_roots;
    struct graph_root **roots; /* of linked rows, NULL of others: by this it is known whether a link may be */
    int32_t *part;             /* the row above it in its part of the tree; of the topmost - rows of the part */
};

/* Takes the links of all layers off a row, and its mark. Rows that link to it are not told. */
static void clear_row(struct graph *graph, uint32_t row)
{
    for (unsigned layer = graph_row_layers(graph, row); layer > 0; layer--)
        atomic_store_explicit(graph_link_list(graph, row, layer).count, 0, memory_order_relaxed);
    atomic_store_explicit(&graph_row_numbers(graph, row)->state, 0, memory_order_relaxed);
}

static void find_roots(struct mend *m)
{
    for (uint32_t row = 0; row < m->n_rows; row++) {
        uint32_t state = graph_row_state(m->graph, row);
        m->roots[row] = NULL;
        m->part[row] = -1;
        if (state & STATE_GONE)
            continue;
        struct graph_root *root = m->mending->root_of(m->mending->context, row);
        if (!root) {
            atomic_store_explicit(&graph_row_numbers(m->graph, row)->state, STATE_GONE | ROW_NONE,
                                  memory_order_relaxed);
            m->mending->n_dropped++;
        } else if (state & STATE_LINKED) {
            uint32_t others = atomic_fetch_add_explicit(&root->linked, 1, memory_order_relaxed);
            assert(others || root->entry == 0);
            m->roots[row] = root;
            m->n_roots += others == 0;
            m->n_linked++;
        }
    }
}

/* ---- mending: links both ways ---- */

static uint32_t link_at(const struct graph_link_list *list, uint32_t i)
{
    return atomic_load_explicit(&list->links[i], memory_order_relaxed);
}

static void link_mark(const struct graph_link_list *list, uint32_t at, uint32_t flag)
{
    atomic_store_explicit(&list->links[at], (link_at(list, at) & ~LINK_TREE) | flag, memory_order_relaxed);
}

/* Whether link i of a row may be: to another row of its root on this layer that is not among those before. */
static bool may_be(const struct mend *m, uint32_t row, unsigned layer, const struct graph_link_list *list, uint32_t i)
{
    uint32_t link = link_at(list, i) & ~LINK_TREE;
    return link < m->n_rows && link != row && m->roots[link] == m->roots[row] && graph_link_find(list, i, link) == i &&
           (layer == 0 || graph_row_layers(m->graph, link) >= layer);
}

/* Makes the other end agree about link i of a row; false if it cannot. Of the tree is what both mark so. */
static bool return_link(struct mend *m, uint32_t row, unsigned layer, const struct graph_link_list *list, uint32_t i)
{
    uint32_t link = link_at(list, i);
    struct graph_link_list other = graph_link_list(m->graph, link & ~LINK_TREE, layer);
    uint32_t n = graph_link_count(&other), at = graph_link_find(&other, n, row);
    if (at < n) {
        uint32_t flag = link & link_at(&other, at) & LINK_TREE;
        if (flag != (link & LINK_TREE))
            link_mark(list, i, flag);
        if (flag != (link_at(&other, at) & LINK_TREE))
            link_mark(&other, at, flag);
        return true;
    }
    if (n == other.capacity)
        return false;
    graph_link_append(&other, n, row);
    link_mark(list, i, 0);
    m->mending->links_added++;
    return true;
}

static void mend_layer(struct mend *m, uint32_t row, unsigned layer)
{
    struct graph_link_list list = graph_link_list(m->graph, row, layer);
    uint32_t n = graph_link_count(&list);
    for (uint32_t i = 0; i < n;) {
        if (may_be(m, row, layer, &list, i) && return_link(m, row, layer, &list, i)) {
            i++;
        } else {
            graph_link_take(&list, n--, i);
            assert(graph_link_count(&list) == n);
            m->mending->links_dropped++;
        }
    }
}

/* Fetches what mending a row will look at: roots, counts and links of the rows it is linked with. */
static void fetch_links(const struct mend *m, uint32_t row)
{
    uint32_t links[LINKS_MAX], n = row < m->n_rows && m->roots[row] ? graph_links_read(m->graph, row, 0, links) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t link = links[i] & ~LINK_TREE;
        if (link >= m->n_rows)
            continue;
        const char *at = stable_array_at(&m->graph->links, link);
        __builtin_prefetch(&m->roots[link]);
        __builtin_prefetch(graph_row_numbers(m->graph, link));
        __builtin_prefetch(at);
        __builtin_prefetch(at + m->graph->links.stride - 1);
    }
}

/* ---- mending: the trees ---- */

static uint32_t top_of(const struct mend *m, uint32_t row)
{
    int32_t *part = m->part;
    while (part[row] >= 0) {
        if (part[part[row]] >= 0)
            part[row] = part[part[row]];
        row = (uint32_t)part[row];
    }
    return row;
}

/* False if both are in one part already. */
static bool unite(struct mend *m, uint32_t a, uint32_t b)
{
    a = top_of(m, a);
    b = top_of(m, b);
    if (a == b)
        return false;
    uint32_t large = m->part[a] <= m->part[b] ? a : b, small = a ^ b ^ large;
    assert(m->part[large] < 0 && m->part[small] < 0 && m->n_parts > 1);
    m->part[large] += m->part[small];
    m->part[small] = (int32_t)large;
    m->n_parts--;
    return true;
}

/* Of links with this flag (both ends), those that join two parts become the tree's and others do not. */
static void grow_trees(struct mend *m, uint32_t flag)
{
    for (uint32_t row = 0; row < m->n_rows; row++) {
        if (!m->roots[row])
            continue;
        struct graph_link_list list = graph_link_list(m->graph, row, 0);
        uint32_t n = graph_link_count(&list);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t link = link_at(&list, i), to = link & ~LINK_TREE;
            if ((link & LINK_TREE) != flag || to < row)
                continue;
            uint32_t due = unite(m, row, to) ? LINK_TREE : 0;
            if (due == flag)
                continue;
            struct graph_link_list other = graph_link_list(m->graph, to, 0);
            link_mark(&list, i, due);
            link_mark(&other, graph_link_find(&other, graph_link_count(&other), row), due);
        }
    }
}

/* Takes a row out of the upper layers of others, and all its links. On the lowest its whole part goes. */
static void unlink_row(struct mend *m, uint32_t row)
{
    for (unsigned layer = graph_row_layers(m->graph, row); layer > 0; layer--) {
        uint32_t links[LINKS_MAX], n = graph_links_read(m->graph, row, layer, links);
        for (uint32_t i = 0; i < n; i++) {
            struct graph_link_list other = graph_link_list(m->graph, links[i], layer);
            uint32_t n_other = graph_link_count(&other), at = graph_link_find(&other, n_other, row);
            if (at < n_other) /* not if it was unlinked before */
                graph_link_take(&other, n_other, at);
        }
    }
    clear_row(m->graph, row);
    assert(m->roots[row]->linked > 0 && m->n_linked > 0);
    atomic_fetch_sub_explicit(&m->roots[row]->linked, 1, memory_order_relaxed);
    m->roots[row] = NULL;
    m->n_linked--;
}

/* Of each root the largest part remains; until all are looked at, the roots' entries say which. */
static void unlink_parts(struct mend *m)
{
    for (uint32_t row = 0; row < m->n_rows; row++) {
        struct graph_root *root = m->roots[row];
        if (!root || m->part[row] >= 0)
            continue;
        uint64_t entry = atomic_load_explicit(&root->entry, memory_order_relaxed);
        if (entry == 0 || m->part[row] < m->part[graph_entry_row(entry)])
            atomic_store_explicit(&root->entry, graph_entry_of(row, 0), memory_order_relaxed);
    }
    for (uint32_t row = 0; row < m->n_rows; row++)
        if (m->roots[row] && top_of(m, row) != graph_entry_row(m->roots[row]->entry))
            unlink_row(m, row);
    for (uint32_t row = 0; row < m->n_rows; row++)
        if (m->roots[row])
            atomic_store_explicit(&m->roots[row]->entry, 0, memory_order_relaxed);
}

/* Each root's entry is its first row of the most layers. */
static void find_entries(struct mend *m)
{
    for (uint32_t row = 0; row < m->n_rows; row++) {
        struct graph_root *root = m->roots[row];
        unsigned layers = graph_row_layers(m->graph, row);
        uint64_t entry = root ? atomic_load_explicit(&root->entry, memory_order_relaxed) : 0;
        if (root && (entry == 0 || layers > graph_entry_layers(entry)))
            atomic_store_explicit(&root->entry, graph_entry_of(row, layers), memory_order_relaxed);
    }
}

int graph_mend(struct graph *graph, struct graph_mending *mending)
{
    uint32_t n = graph->n_rows;
    struct mend m = {.graph = graph, .mending = mending, .n_rows = n};
    mending->n_dropped = mending->n_unlinked = 0;
    mending->links_dropped = mending->links_added = 0;
    m.roots = malloc(((size_t)n + 1) * sizeof *m.roots);
    m.part = malloc(((size_t)n + 1) * sizeof *m.part);
    int rc = m.roots && m.part ? 0 : QUIRE_ENOMEM;
    if (rc == 0) {
        find_roots(&m);
        for (uint32_t row = 0; row < n; row++) {
            fetch_links(&m, row + AHEAD);
            for (unsigned layer = m.roots[row] ? graph_row_layers(graph, row) + 1 : 0; layer-- > 0;)
                mend_layer(&m, row, layer);
        }
        m.n_parts = m.n_linked;
        grow_trees(&m, LINK_TREE);
        if (m.n_parts > m.n_roots)
            grow_trees(&m, 0);
        assert(m.n_parts >= m.n_roots && m.n_linked >= m.n_parts);
        if (m.n_parts > m.n_roots)
            unlink_parts(&m);
        find_entries(&m);
        atomic_store_explicit(&graph->linked, m.n_linked, memory_order_relaxed);
        for (uint32_t row = 0; row < n; row++) {
            if (m.roots[row] || (graph_row_state(graph, row) & STATE_GONE))
                continue;
            mending->n_unlinked++;
            if (mending->unlinked)
                mending->unlinked(mending->context, row);
        }
        graph->loaded = false;
    }
    free(m.roots);
    free(m.part);
    return rc;
}
