/*
 * graph_link.c - linking a row and taking it out again.
 *
 * Linking: from the entry down to the row's layers, a beam search on each of them, and of the rows found those in
 * different directions: a candidate is kept if it is nearer to the row than to any that is kept already (Malkov and
 * Yashunin 2016, algorithm 4); what is left is filled with the nearest others. Links go both ways. A row that is
 * full prunes its links by the same rule; who is dropped loses its link back, too.
 *
 * Rules
 * 1. A link is made and ended under the locks of both rows, so that links are symmetric whenever no lock is held.
 *    Distances are measured before, without locks, on links as they were then; what has changed since is found out
 *    under the locks, and the attempt repeated.
 * 2. Pruning cuts graphs apart: rows of which there are many copies, or tight clusters, keep only each other. So the
 *    first link of a row, to the nearest row that is linked, is marked as LINK_TREE and never pruned. Those links form
 *    a tree that spans the lowest layer: every linked row can be reached, whatever the data.
 * 3. When a row is removed, its neighbours in that tree are joined by tree links among themselves (nearest first), and
 *    all its neighbours get links to each other by the rule of selection. One row is removed at a time, since joining
 *    two parts is right only as long as nothing else joins them; insertions only add leaves and go on meanwhile.
 * 4. A row in removal is STATE_DYING: it gets no more links, so those it has can be ended one by one. Whoever is about
 *    to link to it finds that out under its lock.
 */
#include "index/graph/graph_priv.h"
#include "io/lock.h"
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define COPIES    4u /* of one row among the candidates for links */
#define ATTEMPTS  4u /* to link two rows that others are changing */
#define TREE_EASY 6u /* tree links of a row that takes another without a look at the next */
#define FEWEST    4u /* links of a row below which pruning of others does not take one */

/* ---- two rows ---- */

static bool lock_pair(const struct graph *graph, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    assert(low != high);
    if (!graph_row_lock(graph, low))
        return false;
    if (graph_row_lock(graph, high))
        return true;
    graph_row_unlock(graph, low);
    return false;
}

static void unlock_pair(const struct graph *graph, uint32_t a, uint32_t b)
{
    graph_row_unlock(graph, a);
    graph_row_unlock(graph, b);
}

uint32_t graph_link_find(const struct graph_link_list *list, uint32_t n, uint32_t row)
{
    uint32_t at = 0;
    while (at < n && (atomic_load_explicit(&list->links[at], memory_order_relaxed) & ~LINK_TREE) != row)
        at++;
    return at;
}

/* Under the row's lock, under which nobody else changes what the count shares its word with. */
void graph_link_set_count(const struct graph_link_list *list, uint32_t n)
{
    uint32_t word = atomic_load_explicit(list->count, memory_order_relaxed);
    assert(n <= list->capacity);
    atomic_store_explicit(list->count, (word & ~STATE_COUNT) | n, memory_order_release);
}

void graph_link_append(const struct graph_link_list *list, uint32_t n, uint32_t link)
{
    atomic_store_explicit(&list->links[n], link, memory_order_release);
    graph_link_set_count(list, n + 1);
}

void graph_link_take(const struct graph_link_list *list, uint32_t n, uint32_t at)
{
    assert(at < n);
    uint32_t last = atomic_load_explicit(&list->links[n - 1], memory_order_relaxed);
    atomic_store_explicit(&list->links[at], last, memory_order_release);
    graph_link_set_count(list, n - 1);
}

enum joined { JOINED, REFUSED, FULL };

/* A row that gets its first link is reachable from now on. (row's lock) */
static void become_linked(struct graph *graph, struct graph_root *root, uint32_t row)
{
    _Atomic uint32_t *state = &graph_row_numbers(graph, row)->state;
    uint32_t before = atomic_fetch_or_explicit(state, STATE_LINKED, memory_order_release);
    assert((before & (STATE_LOCKED | STATE_GONE)) == STATE_LOCKED);
    if (before & STATE_LINKED)
        return;
    atomic_fetch_add_explicit(&root->linked, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&graph->linked, 1, memory_order_relaxed);
}

/* Links a to b, which is linked already. FULL: *full has as many as it can. REFUSED: one of them is going. */
static enum joined join(struct graph *graph, struct graph_root *root, unsigned layer, uint32_t a, uint32_t b,
                        uint32_t flag, uint32_t *full)
{
    if (!lock_pair(graph, a, b))
        return REFUSED;
    struct graph_link_list of_a = graph_link_list(graph, a, layer), of_b = graph_link_list(graph, b, layer);
    uint32_t n_a = graph_link_count(&of_a), n_b = graph_link_count(&of_b), at_a = graph_link_find(&of_a, n_a, b);
    enum joined joined = JOINED;
    if (((graph_row_state(graph, a) | graph_row_state(graph, b)) & STATE_DYING) ||
        !(graph_row_state(graph, b) & STATE_LINKED)) {
        joined = REFUSED;
    } else if (at_a < n_a) {
        assert(graph_link_find(&of_b, n_b, a) < n_b); /* rule 1 */
        atomic_fetch_or_explicit(&of_a.links[at_a], flag, memory_order_relaxed);
        atomic_fetch_or_explicit(&of_b.links[graph_link_find(&of_b, n_b, a)], flag, memory_order_relaxed);
    } else if (n_a == of_a.capacity || n_b == of_b.capacity) {
        *full = n_b == of_b.capacity ? b : a;
        joined = FULL;
    } else {
        graph_link_append(&of_a, n_a, b | flag);
        graph_link_append(&of_b, n_b, a | flag);
        become_linked(graph, root, a);
    }
    unlock_pair(graph, a, b);
    return joined;
}

/* Ends the link of two rows, if there is one; not if it is of the tree or b would be left with fewer than `fewest`. */
static bool part(const struct graph *graph, unsigned layer, uint32_t a, uint32_t b, uint32_t keep, uint32_t fewest)
{
    if (!lock_pair(graph, a, b))
        return false;
    struct graph_link_list of_a = graph_link_list(graph, a, layer), of_b = graph_link_list(graph, b, layer);
    uint32_t n_a = graph_link_count(&of_a), n_b = graph_link_count(&of_b), at = graph_link_find(&of_a, n_a, b);
    bool parted = at < n_a && n_b > fewest && !(atomic_load_explicit(&of_a.links[at], memory_order_relaxed) & keep);
    if (parted) {
        assert(graph_link_find(&of_b, n_b, a) < n_b);
        graph_link_take(&of_a, n_a, at);
        graph_link_take(&of_b, n_b, graph_link_find(&of_b, n_b, a));
    }
    unlock_pair(graph, a, b);
    return parted;
}

/* ---- selection ---- */

/* Of n candidates for the links of a row, nearest first, chooses at most `most`: those that are nearer to the row than
 * to any chosen one, then the nearest others. Those with LINK_TREE are chosen in any case. A copy of a chosen row is
 * in no new direction, however near. */
static void choose(const struct graph *graph, struct graph_scratch *scratch, const uint64_t *candidates, uint32_t n,
                   uint32_t most, bool *chosen)
{
    uint32_t kept[LINKS_MAX], n_kept = 0;
    assert(most <= LINKS_MAX);
    memset(chosen, 0, n);
    for (uint32_t i = 0; i < n; i++)
        n_kept += (near_row(candidates[i]) & LINK_TREE) != 0;
    uint32_t free = most > n_kept ? most - n_kept : 0;
    n_kept = 0;
    for (uint32_t i = 0; i < n && n_kept < LINKS_MAX; i++) {
        uint32_t row = near_row(candidates[i]) & ~LINK_TREE;
        bool tree = near_row(candidates[i]) & LINK_TREE, good = free > 0;
        if (good && !tree && n_kept) {
            float limit = near_distance(candidates[i]);
            graph_measure_row(graph, &scratch->other, row);
            graph_measure_rows(graph, scratch, &scratch->other, kept, n_kept, scratch->distances);
            for (uint32_t k = 0; k < n_kept && good; k++)
                good = scratch->distances[k] * graph->slack > limit;
        }
        chosen[i] = tree || good;
        if (chosen[i]) {
            kept[n_kept++] = row;
            free -= !tree;
        }
    }
    for (uint32_t i = 0; i < n && n_kept < most / 2; i++)
        if (!chosen[i]) {
            chosen[i] = true;
            n_kept++;
        }
}

static void sort_keys(uint64_t *keys, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        uint32_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

/* Prunes the links of a row for a newcomer. False if the rule prefers the others, unless `force`. */
static bool prune_for(struct graph *graph, struct graph_scratch *scratch, unsigned layer, uint32_t row,
                      uint32_t newcomer, bool force)
{
    uint32_t links[LINKS_MAX + 1], n = graph_links_read(graph, row, layer, links);
    uint64_t keys[LINKS_MAX + 1];
    bool chosen[LINKS_MAX + 1], any = false, wanted = force;
    float distances[LINKS_MAX + 1];
    uint32_t rows[LINKS_MAX + 1];
    assert(newcomer != row && newcomer < LINK_TREE);
    links[n] = newcomer;
    for (uint32_t i = 0; i <= n; i++)
        rows[i] = links[i] & ~LINK_TREE;
    graph_measure_row(graph, &scratch->other, row);
    graph_measure_rows(graph, scratch, &scratch->other, rows, n, distances);
    graph_measure_rows(graph, scratch, &scratch->other, rows + n, 1, distances + n);
    for (uint32_t i = 0; i <= n; i++)
        keys[i] = near_of(distances[i], links[i]);
    sort_keys(keys, n + 1);
    uint32_t capacity = graph_link_list(graph, row, layer).capacity;
    choose(graph, scratch, keys, n + 1, capacity - capacity / 8, chosen);
    for (uint32_t i = 0; i <= n; i++)
        wanted |= chosen[i] && near_row(keys[i]) == newcomer;
    if (!wanted)
        return false;
    for (uint32_t i = n + 1; i-- > 0;)
        if (!chosen[i] && near_row(keys[i]) != newcomer)
            any |= part(graph, layer, row, near_row(keys[i]), LINK_TREE, FEWEST);
    for (uint32_t i = n + 1; force && !any && i-- > 0;)
        if (near_row(keys[i]) != newcomer)
            any = part(graph, layer, row, near_row(keys[i]) & ~LINK_TREE, LINK_TREE, 0);
    return any;
}

/* Links a to b, pruning where one is full. flag: LINK_TREE or 0; a tree link is made at the cost of any other. */
static bool join_pruning(struct graph *graph, struct graph_scratch *scratch, unsigned layer, uint32_t a, uint32_t b,
                         uint32_t flag)
{
    uint32_t full = a;
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        enum joined joined = join(graph, scratch->root, layer, a, b, flag, &full);
        if (joined != FULL)
            return joined == JOINED;
        if (!prune_for(graph, scratch, layer, full, full == a ? b : a, flag != 0))
            return false;
    }
    return false;
}

/* ---- the tree ---- */

static uint32_t tree_links(const struct graph *graph, uint32_t row, uint32_t *links)
{
    uint32_t all[LINKS_MAX], n = graph_links_read(graph, row, 0, all), count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (all[i] & LINK_TREE)
            links[count++] = all[i] & ~LINK_TREE;
    return count;
}

/* A row in the same part of the tree that can take one more link of it, the row itself if it can. A walk that does not
 * turn back ends in a tree at a row with one link, at the latest. */
static uint32_t tree_open_row(const struct graph *graph, uint32_t row)
{
    for (uint32_t last = ROW_NONE;;) {
        uint32_t links[LINKS_MAX], n = tree_links(graph, row, links);
        if (n < graph_link_list(graph, row, 0).capacity)
            return row;
        uint32_t next = links[links[0] == last];
        last = row;
        row = next;
    }
}

/* Gives a new row its first link: to the nearest of the candidates in scratch->best that has few of the tree. */
static bool join_tree(struct graph *graph, struct graph_scratch *scratch, uint32_t row)
{
    uint32_t links[LINKS_MAX];
    for (unsigned most = TREE_EASY; most <= LINKS_MAX; most += LINKS_MAX - TREE_EASY)
        for (uint32_t i = 0; i < scratch->n_best; i++)
            if (tree_links(graph, near_row(scratch->best[i]), links) <= most &&
                join_pruning(graph, scratch, 0, row, near_row(scratch->best[i]), LINK_TREE))
                return true;
    return scratch->n_best &&
           join_pruning(graph, scratch, 0, row, tree_open_row(graph, near_row(scratch->best[0])), LINK_TREE);
}

/* ---- linking a row ---- */

/* Makes a row the entry if the root has none (alone: then it is linked) or one of fewer layers. */
static bool become_entry(struct graph *graph, struct graph_root *root, uint32_t row, bool alone)
{
    unsigned layers = graph_row_layers(graph, row);
    if (!graph_row_lock(graph, row))
        return false;
    pthread_mutex_lock(&graph->mutex);
    uint64_t entry = atomic_load_explicit(&root->entry, memory_order_relaxed);
    bool empty = entry == 0;
    bool due =
        !(graph_row_state(graph, row) & STATE_DYING) && (alone ? empty : !empty && layers > graph_entry_layers(entry));
    if (due) {
        atomic_store_explicit(&root->entry, graph_entry_of(row, layers), memory_order_release);
        become_linked(graph, root, row);
    }
    pthread_mutex_unlock(&graph->mutex);
    graph_row_unlock(graph, row);
    return due;
}

/* Candidates for the links of the upper layers, chosen on the way down and linked after the lowest. */
struct chosen {
    uint32_t rows[LAYERS_MAX][LINKS_MAX];
    uint32_t n[LAYERS_MAX];
};

/* Finds the row's candidates on all its layers; those of the lowest stay in scratch->best. False: it is empty. */
static bool find_candidates(const struct graph *graph, struct graph_scratch *scratch, uint32_t row,
                            struct chosen *chosen, unsigned *layers)
{
    enum { MOST = 1024 };
    bool marks[MOST];
    unsigned top, own = graph_row_layers(graph, row);
    graph_measure_row(graph, &scratch->row, row);
    if (!graph_enter(graph, scratch->root, scratch, &scratch->row, own, &top))
        return false;
    *layers = own < top ? own : top;
    for (unsigned layer = *layers + 1; layer-- > 0;) {
        graph_search_layer(graph, scratch,
                           &(struct graph_layer_search){
                               .measure = &scratch->row, .layer = layer, .beam = graph->beam, .copies = COPIES});
        uint32_t n = scratch->n_best < MOST ? scratch->n_best : MOST;
        choose(graph, scratch, scratch->best, n, layer ? graph->degree : graph->fill, marks);
        chosen->n[layer] = 0;
        for (uint32_t i = 0; i < n; i++)
            if (marks[i])
                chosen->rows[layer][chosen->n[layer]++] = near_row(scratch->best[i]);
    }
    return true;
}

int graph_link(struct graph *graph, struct graph_root *root, struct graph_scratch *scratch, uint32_t row)
{
    struct chosen chosen;
    unsigned layers = 0;
    assert(!graph->loaded && row < graph_row_end(graph));
    scratch->root = root;
    if (graph_scratch_reserve(scratch, graph, graph->beam) < 0)
        return QUIRE_ENOMEM;
    for (;;) {
        if (graph_row_state(graph, row) & (STATE_GONE | STATE_DYING | STATE_LINKED))
            return 0;
        if (!find_candidates(graph, scratch, row, &chosen, &layers)) {
            if (become_entry(graph, root, row, true))
                return 0;
        } else if (join_tree(graph, scratch, row)) {
            break;
        }
        sched_yield(); /* all that was found is being removed */
    }
    for (unsigned layer = 0; layer <= layers; layer++) /* NOLINTBEGIN(clang-analyzer-*): find_candidates chose them */
        for (uint32_t i = 0; i < chosen.n[layer]; i++)
            join_pruning(graph, scratch, layer, row, chosen.rows[layer][i], 0);
    /* NOLINTEND(clang-analyzer-*) */
    become_entry(graph, root, row, false);
    graph_scratch_settle(graph, scratch);
    return 0;
}

/* ---- taking a row out ---- */

/* Distances among n rows: graph->matrix, n x n. (removing) */
static void measure_matrix(struct graph *graph, struct graph_scratch *scratch, const uint32_t *rows, uint32_t n)
{
    assert(lock_is_held(&graph->removing) && n <= LINKS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        graph_measure_row(graph, &scratch->other, rows[i]);
        graph_measure_rows(graph, scratch, &scratch->other, rows, n, graph->matrix + (size_t)i * n);
    }
}

/* Joins the parts of the tree in which n rows are: each time the nearest row that is not joined yet. (removing) */
static void rejoin_tree(struct graph *graph, struct graph_scratch *scratch, const uint32_t *rows, uint32_t n)
{
    bool joined[LINKS_MAX] = {n > 0};
    for (uint32_t left = n; left > 1; left--) {
        uint64_t best = UINT64_MAX;
        for (uint32_t i = 0; i < n * n; i++)
            if (joined[i / n] && !joined[i % n]) {
                uint64_t key = near_of(graph->matrix[i], i);
                best = key < best ? key : best;
            }
        assert(best != UINT64_MAX);
        uint32_t from = rows[near_row(best) / n], to = near_row(best) % n;
        while (!join_pruning(graph, scratch, 0, tree_open_row(graph, rows[to]), tree_open_row(graph, from), LINK_TREE))
            sched_yield(); /* insertions took the place */
        joined[to] = true;
    }
}

/* Links n rows, which have lost a neighbour, with each other: each with those in different directions. (removing) */
static void relink(struct graph *graph, struct graph_scratch *scratch, unsigned layer, const uint32_t *rows, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t keys[LINKS_MAX];
        bool marks[LINKS_MAX];
        uint32_t m = 0;
        for (uint32_t j = 0; j < n; j++)
            if (j != i)
                keys[m++] = near_of(graph->matrix[(size_t)i * n + j], rows[j]);
        sort_keys(keys, m);
        choose(graph, scratch, keys, m, 2, marks);
        for (uint32_t j = 0; j < m; j++)
            if (marks[j])
                join_pruning(graph, scratch, layer, rows[i], near_row(keys[j]), 0);
    }
}

static void take_out_of_layer(struct graph *graph, struct graph_scratch *scratch, unsigned layer, uint32_t row)
{
    uint32_t links[LINKS_MAX], n = 0, n_tree = 0, tree[LINKS_MAX];
    if (graph_row_lock(graph, row)) { /* others still prune: unlocked, a link that moves would be read twice */
        n = graph_links_read(graph, row, layer, links);
        graph_row_unlock(graph, row);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (links[i] & LINK_TREE)
            tree[n_tree++] = links[i] & ~LINK_TREE;
        links[i] &= ~LINK_TREE;
        part(graph, layer, row, links[i], 0, 0);
    }
    if (n_tree > 1) {
        measure_matrix(graph, scratch, tree, n_tree);
        rejoin_tree(graph, scratch, tree, n_tree);
    }
    measure_matrix(graph, scratch, links, n);
    relink(graph, scratch, layer, links, n);
}

/* Another entry instead of a row in removal: of its neighbours on the highest layer the one on most. (removing) */
static void replace_entry(struct graph *graph, struct graph_root *root, uint32_t row)
{
    uint64_t next = 0;
    assert(lock_is_held(&graph->removing) && (graph_row_state(graph, row) & STATE_DYING));
    if (graph_entry_row(atomic_load_explicit(&root->entry, memory_order_relaxed)) != row)
        return;
    for (unsigned layer = graph_row_layers(graph, row) + 1; layer-- > 0 && next == 0;) {
        uint32_t links[LINKS_MAX], n = graph_links_read(graph, row, layer, links);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t link = links[i] & ~LINK_TREE;
            unsigned layers = graph_row_layers(graph, link);
            if (next == 0 || layers > graph_entry_layers(next))
                next = graph_entry_of(link, layers);
        }
    }
    pthread_mutex_lock(&graph->mutex);
    if (graph_entry_row(atomic_load_explicit(&root->entry, memory_order_relaxed)) == row)
        atomic_store_explicit(&root->entry, next, memory_order_release);
    pthread_mutex_unlock(&graph->mutex);
}

void graph_remove(struct graph *graph, struct graph_root *root, struct graph_scratch *scratch, uint32_t row)
{
    scratch->root = root;
    pthread_mutex_lock(&graph->removing);
    bool there = graph_row_lock(graph, row);
    if (there) {
        _Atomic uint32_t *state = &graph_row_numbers(graph, row)->state;
        bool linked = atomic_fetch_or_explicit(state, STATE_DYING, memory_order_acq_rel) & STATE_LINKED;
        graph_row_unlock(graph, row);
        if (linked) {
            replace_entry(graph, root, row);
            for (unsigned layer = graph_row_layers(graph, row) + 1; layer-- > 0;)
                take_out_of_layer(graph, scratch, layer, row);
            atomic_fetch_sub_explicit(&root->linked, 1, memory_order_relaxed);
            atomic_fetch_sub_explicit(&graph->linked, 1, memory_order_relaxed);
        }
        there = graph_row_lock(graph, row);
    }
    if (there)
        graph_row_gone(graph, row);
    pthread_mutex_unlock(&graph->removing);
    if (there)
        graph_gone_defer(graph); /* may run what others have deferred, so without a lock */
    graph_scratch_settle(graph, scratch);
}
