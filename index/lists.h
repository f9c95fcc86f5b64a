/*
 * lists.h - what an open segment of inverted lists holds in memory: the directory of its lists, the graph of their
 * heads, and where the budget has room the codes of all rows.
 *
 * Heads are the middles of clusters, as 8-bit codes; the graph's row i is the head of list i. CODES_HEADS is a u32 with
 * the number of rows per image, then per so many rows u32 bytes and an image (graph.h).
 *
 * Resident codes are those of the rows' own lists, replicas left out: consecutive rows in groups of 32 interleaved
 * codes, factors beside them. Immutable once opened; shared by lanes.
 */
#ifndef QUIRE_INDEX_LISTS_H
#define QUIRE_INDEX_LISTS_H

#include "index/format.h"
#include "index/graph.h"
#include "index/kernels/kernels.h"
#include "index/posting.h"
#include "io/sections.h"

struct lists {
    uint32_t n;
    struct list_entry *entries; /* owned */
    float *norms2;              /* squared lengths of the heads' codes; owned */
    struct epochs *epochs;      /* of the graph; owned */
    struct graph *heads;        /* owned */
    struct graph_root root;
    uint64_t heads_bytes;
    uint8_t *codes; /* groups of 32 rows; memory_map; NULL: read with the postings */
    f16_t *factors; /* rows x 2, in groups of 32; NULL likewise */
    size_t codes_mapped, factors_mapped;
    uint32_t group_bytes;
};

/* What directory and heads take in memory, and the resident codes. */
uint64_t lists_bytes_of(const struct segment_params *params);
uint64_t lists_codes_bytes_of(const struct segment_params *params);

/* A graph for n heads with the options that all segments share. epochs: made for it. */
int lists_graph_create(uint32_t code_dim, uint64_t seed, struct epochs **epochs, struct graph **graph,
                       struct quire_error *err);
/* Writes both sections. */
int lists_write(struct section_writer *writer, const struct list_entry *entries, uint32_t n, const struct graph *heads,
                struct epochs *epochs, struct quire_error *err);

/* Loads directory and heads from the codes file. Everything is checked: lists have each row of the segment once as
 * their own, in order; the graph is mended. Errors name file and list. */
int lists_open(const struct segment_params *params, struct section_file *codes, struct lists **out,
               struct quire_error *err);
/* Reads all postings and keeps the codes of the rows' own lists. */
int lists_load_codes(struct lists *lists, const struct segment_params *params, struct section_file *postings,
                     uint64_t postings_at, const uint8_t segment_id[16], struct quire_error *err);
void lists_close(struct lists *lists); /* NULL is fine */
/* Of all postings on the disk. */
uint64_t lists_postings_bytes(const struct lists *lists, const struct segment_params *params);

#endif
