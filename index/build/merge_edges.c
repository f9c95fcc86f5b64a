/*
 * merge_edges.c - the edges of the segment that a merge is mostly made of, kept for the new graph.
 *
 * A block keeps one list for each few slots (8, or all of a block): the heaviest edges of those rows, both ways. So a
 * row's candidates are its list's targets. They are only the distant part of what the row had, because edges inside the
 * block and the lighter ones were never written; what is near is looked for again among fewer groups (build_edges.c).
 * Edges to rows that are dead are dropped for the same reason: what was near to them is near here.
 */
#include "index/build/merge_priv.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

int merge_edges_init(struct build_known *known, struct segment *segment)
{
    const struct segment_params *p = &segment->params;
    /* at most a list per slot */
    memset(known, 0, sizeof *known);
    known->list_of = malloc(sizeof *known->list_of * p->rows);
    known->capacity = p->rows * 8;
    known->at = malloc(sizeof *known->at * (p->rows + 1));
    known->targets = malloc(sizeof *known->targets * known->capacity);
    if (known->list_of && known->at && known->targets) {
        known->at[0] = 0;
        return 0;
    }
    merge_edges_fini(known);
    return QUIRE_ENOMEM;
}

void merge_edges_fini(struct build_known *known)
{
    array_free_all(known->list_of, known->at, known->targets);
    memset(known, 0, sizeof *known);
}

int merge_edges_add(struct build_known *known, struct segment *segment, const struct block_view *view,
                    struct quire_error *err)
{
    uint64_t rows = segment->params.rows;
    uint32_t first_list = known->n_lists, lists = view->n_lists ? view->n_lists : 1, before;
    if (known->n_targets + view->n_edges > known->capacity) { /* by half: budgets count what is there */
        uint64_t capacity = known->capacity + known->capacity / 2 + view->n_edges;
        uint32_t *targets = realloc(known->targets, sizeof *targets * capacity);
        if (!targets)
            return error_set(err, QUIRE_ENOMEM, "no memory for the edges of %s", segment->info.path);
        known->targets = targets;
        known->capacity = capacity;
    }
    for (uint32_t list = 0; list < lists; list++) {
        uint32_t *to = known->targets + known->n_targets;
        int n = view->n_lists ? block_edges(view, list, to, &before) : 0;
        for (int i = 0; i < n; i++)
            if (to[i] >= rows)
                n = QUIRE_ECORRUPT;
        if (n < 0)
            return error_set(err, n, "the edges of block %u of %s do not decode", view->number,
                             section_file_io(segment->blocks)->path);
        known->n_targets += (uint32_t)n;
        known->at[++known->n_lists] = known->n_targets;
    }
    for (uint32_t slot = 0; slot < view->n_slots; slot++)
        known->list_of[view->first_row + slot] = first_list + (view->n_lists ? slot / view->list_slots : 0);
    return 0;
}

void merge_edges_finish(struct build_known *known, const uint32_t *rows_of, uint32_t n_rows)
{
    for (uint64_t i = 0; i < known->n_targets; i++)
        known->targets[i] = rows_of[known->targets[i]];
    for (uint32_t row = 0; row < n_rows; row++)
        if (rows_of[row] != UINT32_MAX)
            known->list_of[known->n_rows++] = known->list_of[row]; /* living rows keep their order */
    uint32_t *targets = realloc(known->targets, sizeof *targets * (known->n_targets + 1));
    uint64_t *at = realloc(known->at, sizeof *at * ((size_t)known->n_lists + 1));
    known->targets = targets ? targets : known->targets;
    known->at = at ? at : known->at;
    known->capacity = known->n_targets + 1;
}
