/*
 * build_plan.c - how a build divides its memory: everything at once, or in shares of a budget.
 *
 * The steps of a build follow each other, and each has arrays that grow with the rows (a few bytes each: order, keys of
 * a cut, places of reverse edges), buffers of a fixed size, and one share that may be smaller or larger: rows that are
 * partitioned in memory, vectors that change places, rows among which edges are sought, edges that are turned round,
 * codes of the index that is searched to calibrate it. A budget is given to each step as a whole, less what stands
 * already; where the smallest share of some step does not fit, the build is refused with the number of bytes that would
 * do.
 *
 * The budget counts resident memory of the process, as the kernel does: what is resident when the build begins is
 * counted, and PROGRAM_BYTES for code that is not touched before, stacks and the allocator's own.
 *
 * With a budget in which everything fits nothing lies in files. The result is the same either way.
 */
#include "index/build/build_priv.h"
#include "index/segment/entry.h"
#include "index/vector/parallel.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>

#define PROGRAM_BYTES  (4u << 20)
#define PROCESS_BYTES  (3u << 20)                  /* resident before a build begins */
#define THREAD_BYTES   (128u << 10)                /* stack and small scratch of a thread */
#define STREAM_BYTES   (3 * (uint64_t)BATCH_BYTES) /* a batch, what is made of it, buffers of files */
#define SEARCHER_BYTES (6u << 20)                  /* what one search task after the other holds */
#define SHARE_LEAST    (2u << 20)

/* One step: bytes that it needs anyway, bytes of one item of its share, least and most items. */
struct share {
    uint64_t fixed, item, least, most;
};

enum { SHARE_PARTITION, SHARE_INPUT, SHARE_GRAPH, SHARE_PLACE, SHARE_REVERSE, SHARE_TABLES, SHARE_SEARCH, SHARES };

static uint64_t least_items(uint64_t bytes, uint64_t most)
{
    uint64_t items = SHARE_LEAST / bytes + 1;
    return items < most ? items : most;
}

/* Bytes of the index that is searched, with its narrowest code. */
static uint64_t narrowest_segment(const struct build *b)
{
    uint64_t centres = entry_bytes_of(b->params.n_blocks, b->space.code_dim);
    uint64_t cells = b->runs.of ? centres + 8 * (uint64_t)b->n : 0;
    return centres + cells + (uint64_t)b->n * (code_bytes_of(b->space.code_dim, 1) + 4) + 65536;
}

static void set_shares(const struct build *b, struct share shares[SHARES])
{
    const struct segment_params *p = &b->params;
    struct neighbours_config config = build_neighbours_config(b);
    uint32_t dim = b->space.code_dim;
    uint64_t n = b->n, order = 4 * n, centre_codes = (uint64_t)p->n_blocks * (code_bytes_of(dim, CENTRE_BITS) + 12);
    uint64_t centres = centre_codes + sizeof(float) * (uint64_t)p->n_blocks * dim, places = b->options.keys ? 8 * n : 0;
    /* rows of runs: order before, order after, places twice */
    uint64_t placing = b->runs.of ? 4 * order : 0;
    uint64_t cells = b->runs.of ? order + centre_codes : 0;
    uint64_t near = (uint64_t)NEIGHBOUR_GROUPS_MAX * p->slots_per_block;
    shares[SHARE_PARTITION] =
        (struct share){(placing ? placing + centres : order) + STREAM_BYTES, partition_row_bytes(dim), 0, n};
    shares[SHARE_PARTITION].least = least_items(partition_row_bytes(dim), n);
    if (shares[SHARE_PARTITION].least < p->slots_per_block)
        shares[SHARE_PARTITION].least = p->slots_per_block;
    /* the first cut holds no rows, but 8 bytes of each */
    while (shares[SHARE_PARTITION].least < n && shares[SHARE_PARTITION].least * partition_row_bytes(dim) < 8 * n)
        shares[SHARE_PARTITION].least += n / 64 + 1;
    shares[SHARE_INPUT] = (struct share){b->vectors ? 0 : 2 * order + STREAM_BYTES, b->row_bytes, 0, n};
    shares[SHARE_INPUT].least = b->vectors ? 0 : least_items(b->row_bytes, n);
    shares[SHARE_GRAPH] =
        (struct share){order + centres + neighbours_bytes(p->n_blocks, dim, &config) + ROW_STORE_BUFFER_BYTES,
                       rows_bytes(dim), near < n ? near : n, n};
    shares[SHARE_PLACE] =
        (struct share){placing + cells + centres + STREAM_BYTES, 1, placing ? SHARE_LEAST : 0, UINT64_MAX};
    shares[SHARE_REVERSE] =
        (struct share){2 * order + cells + centres + BATCH_BYTES, 8, least_items(8, n), n * config.degree};
    /* keys are sorted as pairs of 16 bytes, and qsort may take as much again */
    uint64_t keys = b->options.keys ? 32 * n : 4 * n;
    uint64_t codes = 8 * n + STREAM_BYTES, blocks = 2 * STREAM_BYTES;
    shares[SHARE_TABLES] =
        (struct share){2 * order + cells + places + centres + (keys > codes ? keys : codes), 1, 0, 0};
    if (keys < blocks && codes < blocks)
        shares[SHARE_TABLES].fixed = 2 * order + cells + places + centres + blocks;
    shares[SHARE_SEARCH] =
        (struct share){2 * order + cells + places + centre_codes + SEARCHER_BYTES, 1, narrowest_segment(b), UINT64_MAX};
}

static uint32_t items_of(const struct share *share, uint64_t budget)
{
    assert(budget >= share->fixed && share->item > 0);
    uint64_t items = (budget - share->fixed) / share->item;
    items = items > share->most ? share->most : items;
    return items > UINT32_MAX ? UINT32_MAX : (uint32_t)items;
}

/* Everything in memory: rows, their order twice while they are cut, then edges both ways. */
static uint64_t whole_bytes(const struct build *b, const struct share shares[SHARES])
{
    uint64_t n = b->n, edges = 4 * n * b->options.degree;
    uint64_t rows = n * partition_row_bytes(b->space.code_dim), input = b->vectors ? 0 : n * b->row_bytes + 4 * n;
    uint64_t graph = shares[SHARE_GRAPH].fixed + n * rows_bytes(b->space.code_dim) + edges;
    if (b->runs.of)
        graph += edges + 4 * 4 * n;
    unsigned bits = build_is_lists(b) ? b->params.list_bits : b->options.code_bits;
    uint64_t segment = narrowest_segment(b) + n * code_bytes_of(b->space.code_dim, bits);
    uint64_t search = shares[SHARE_SEARCH].fixed * 2 + 2 * edges + segment;
    uint64_t tables = shares[SHARE_TABLES].fixed + 2 * edges, first = rows + input + STREAM_BYTES;
    uint64_t most = first > graph ? first : graph;
    most = tables > most ? tables : most;
    return search > most ? search : most;
}

/* The largest of what the steps need at least. */
static uint64_t least_bytes(const struct share shares[SHARES])
{
    uint64_t needed = 0;
    for (int i = 0; i < SHARES; i++) {
        uint64_t bytes = shares[i].fixed + shares[i].least * shares[i].item;
        needed = bytes > needed ? bytes : needed;
    }
    return needed;
}

void build_needs_for(uint64_t rows, uint32_t dim, enum quire_type type, const struct quire_build_options *options,
                     struct build_needs *out)
{
    struct share shares[SHARES];
    struct build b = {.n = (uint32_t)rows, .dim = dim, .type = type, .options = *options};
    uint64_t columns_bytes;
    assert(rows <= UINT32_MAX && options->index != QUIRE_INDEX_AUTO);
    build_layout_for(rows, dim, type, options, &b.params, &columns_bytes);
    b.space.code_dim = b.params.code_dim;
    b.row_bytes = build_row_bytes(dim, type, false);
    b.options.degree = options->degree ? options->degree : DEGREE_DEFAULT;
    b.options.build_beam = options->build_beam ? options->build_beam : POOL_DEFAULT;
    b.options.threads = options->threads ? options->threads : parallel_processors();
    b.options.code_bits = options->code_bits ? options->code_bits : 4;
    b.params.list_bits = b.options.code_bits;
    set_shares(&b, shares);
    uint64_t process = PROCESS_BYTES + PROGRAM_BYTES + (uint64_t)THREAD_BYTES * b.options.threads;
    out->memory_bytes = process + whole_bytes(&b, shares);
    out->memory_least_bytes = process + least_bytes(shares);
    /* rows and their order twice, edges both ways, and the vectors as they are moved */
    uint64_t edges = options->index == QUIRE_INDEX_SPANN ? 0 : 8ull * b.options.degree;
    out->work_bytes = rows * (2 * ((uint64_t)b.params.code_dim + 16) + edges + 2 * b.row_bytes);
}

int build_plan(struct build *b)
{
    struct share shares[SHARES];
    struct build_plan *plan = &b->plan;
    struct memory_resident resident;
    uint64_t budget = b->options.build_memory_bytes;
    *plan = (struct build_plan){false, b->n, b->n, b->n, UINT32_MAX, UINT64_MAX, UINT64_MAX};
    if (budget == 0)
        return 0;
    set_shares(b, shares);
    memory_resident(&resident);
    uint64_t taken = resident.total + PROGRAM_BYTES + (uint64_t)THREAD_BYTES * b->options.threads;
    uint64_t needed = least_bytes(shares);
    if (budget < taken + needed)
        return error_set(b->err, QUIRE_ELIMIT,
                         "a build memory of %llu bytes is below the %llu that a build of %u rows needs here: "
                         "give at least that much",
                         (unsigned long long)budget, (unsigned long long)(taken + needed), b->n);
    /* an allocator that keeps what was freed needs more than the sum */
    if (budget >= taken + whole_bytes(b, shares) * 5 / 4)
        return 0;
    uint64_t left = budget - taken;
    assert(left >= needed);
    plan->in_files = true;
    plan->partition_rows = items_of(&shares[SHARE_PARTITION], left);
    plan->input_rows = b->vectors ? b->n : items_of(&shares[SHARE_INPUT], left);
    plan->graph_rows = items_of(&shares[SHARE_GRAPH], left);
    plan->reverse_edges = items_of(&shares[SHARE_REVERSE], left);
    plan->place_bytes = left - shares[SHARE_PLACE].fixed;
    plan->segment_bytes = left - shares[SHARE_SEARCH].fixed;
    return 0;
}
