/*
 * cells.c - cells of near rows that do not share a block: written by a build, loaded and checked at opening.
 *
 * On the disk there is a number per row, its cell. The rows of each cell follow from it, ascending, so that those
 * which share a block after all are scored together. A cell's place among the others is that of the bisection
 * (partition.h): the tree over the centres needs near ones to be neighbours, which blocks of runs are not.
 */
#include "index/segment/cells.h"
#include "index/vector/codes.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

static bool are_there(const struct segment_params *p)
{
    return p->index == QUIRE_INDEX_PAGEGRAPH && p->run_rows > 0;
}

uint64_t cells_bytes_of(const struct segment_params *p)
{
    return are_there(p) ? entry_bytes_of(p->n_blocks, p->code_dim) + 2 * sizeof(uint32_t) * p->rows : 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

int cells_write(struct section_writer *writer, const struct segment_params *p, const uint8_t *codes,
                const float *factors, const uint32_t *of, struct quire_error *err)
{
    size_t bytes = (size_t)p->n_blocks * code_bytes_of(p->code_dim, CENTRE_BITS);
    assert(are_there(p));
    int rc = section_put(writer, CODES_CELL_CENTRES, codes, bytes, err);
    if (rc == 0)
        rc = format_section_put_words(writer, CODES_CELL_FACTORS, factors, (uint64_t)p->n_blocks * ENTRY_FACTORS, err);
    return rc == 0 ? format_section_put_words(writer, CODES_CELLS, of, p->rows, err) : rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int load_centres(struct cells *g, const struct segment_params *p, struct section_file *codes,
                        struct quire_error *err)
{
    void *bytes = NULL, *factors = NULL;
    size_t n = (size_t)g->n * ENTRY_FACTORS;
    int rc = format_section_load(codes, CODES_CELL_CENTRES, (uint64_t)g->n * code_bytes_of(p->code_dim, CENTRE_BITS),
                                 &bytes, NULL, err);
    if (rc == 0)
        rc = format_section_load(codes, CODES_CELL_FACTORS, 4 * n, &factors, NULL, err);
    g->centres = (struct entry_level){bytes, factors, g->n};
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!isfinite(g->centres.factors[i] = bytes_load_f32((const uint8_t *)&g->centres.factors[i])))
            rc = error_set(err, QUIRE_ECORRUPT, "%s: the centre of cell %zu is not finite",
                           section_file_io(codes)->path, i / ENTRY_FACTORS);
    return rc == 0 ? entry_init(&g->entry, &g->centres, p->code_dim) : rc;
}

/* The rows of each cell from the cell of each row. */
static int load_rows(struct cells *g, const struct segment_params *p, struct section_file *codes,
                     struct quire_error *err)
{
    void *bytes = NULL;
    uint32_t *filled = calloc(g->n, sizeof *filled), wrong = UINT32_MAX;
    g->rows = malloc(sizeof *g->rows * p->rows);
    int rc = filled && g->rows
                 ? format_section_load(codes, CODES_CELLS, 4 * p->rows, &bytes, NULL, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory for the cells of %s", section_file_io(codes)->path);
    g->of = bytes;
    for (uint32_t row = 0; rc == 0 && wrong == UINT32_MAX && row < p->rows; row++) {
        uint32_t cell = g->of[row] = bytes_load_u32((const uint8_t *)&g->of[row]);
        if (cell >= g->n || filled[cell] == format_block_rows(p, cell))
            wrong = row;
        else
            g->rows[(size_t)cell * g->capacity + filled[cell]++] = row;
    }
    if (wrong != UINT32_MAX)
        rc = error_set(err, QUIRE_ECORRUPT, "%s: row %u is in cell %u of %u, or one row too many is",
                       section_file_io(codes)->path, wrong, g->of[wrong], g->n);
    free(filled);
    return rc;
}

int cells_open(const struct segment_params *p, struct section_file *codes, struct cells **out, struct quire_error *err)
{
    if (!are_there(p))
        return 0;
    struct cells *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, QUIRE_ENOMEM, "no memory for the cells of %s", section_file_io(codes)->path);
    g->n = p->n_blocks;
    g->capacity = p->slots_per_block;
    g->bytes = cells_bytes_of(p);
    int rc = load_rows(g, p, codes, err);
    if (rc == 0)
        rc = load_centres(g, p, codes, err);
    assert(rc < 0 || (g->entry.n_levels > 0 && !*out));
    if (rc < 0)
        cells_close(g);
    else
        *out = g;
    return rc;
}

void cells_close(struct cells *g)
{
    if (!g)
        return;
    entry_fini(&g->entry);
    free(g->centres.codes);
    free(g->centres.factors);
    free(g->of);
    free(g->rows);
    free(g);
}
