/*
 * lists.h - what an open segment of inverted lists holds in memory: the directory of its lists, the graph of their
 * heads, and where the budget has room the codes of all rows.
 *
 * Heads are the middles of clusters, as 8-bit codes; the graph's row i is the head of list i. CODES_HEADS is a u32 with
 * the number of rows per image, then per so many rows u32 bytes and an image (graph.h).
 *
 * Each row is a member of one list, and has replicas in others. The own rows of a list are consecutive; a segment in
 * which the rows of small tenants lie side by side (build_place.c) has these behind all others, and they are guests:
 * members by number, which stand in the posting block like replicas. CODES_GUESTS says which list each is a guest of.
 *
 * Resident codes are those of members, replicas left out, by list: first its own rows, then its guests, ascending. They
 * are in groups of 32 interleaved codes, whatever lists they belong to, factors beside them. Without guests that is the
 * order of rows; lists_place tells where a row's code is. Immutable once opened; shared by lanes.
 */
#ifndef QUIRE_INDEX_LISTS_H
#define QUIRE_INDEX_LISTS_H

#include "index/format/format.h"
#include "index/format/posting_block.h"
#include "index/graph/graph.h"
#include "index/kernels/kernels.h"
#include "io/sections.h"

struct lists {
    uint32_t n;
    struct list_entry *entries; /* owned */
    float *norms2;              /* squared lengths of the heads' codes; owned */
    struct epochs *epochs;      /* of the graph; owned */
    struct graph *heads;        /* owned */
    struct graph_root root;
    uint64_t heads_bytes;
    uint32_t first_guest;  /* rows from here on are guests; all rows: there are none */
    uint32_t *guest_lists; /* per guest its list; NULL: there are none; owned */
    uint32_t *guest_at;    /* n + 1: those of list i are guests[guest_at[i]] .. guests[guest_at[i + 1]]; owned */
    uint32_t *guests;      /* rows; ascending in a list; owned */
    uint8_t *codes;        /* groups of 32 rows; memory_map; NULL: read with the posting blocks */
    f16_t *factors;        /* rows x 2, in groups of 32; NULL likewise */
    size_t codes_mapped, factors_mapped;
    uint32_t group_bytes;
};

/* What directory and heads take in memory, and the resident codes. */
uint64_t lists_bytes_of(const struct segment_params *params);
uint64_t lists_codes_bytes_of(const struct segment_params *params);

/* Rows that are members of lists before this one: where the codes of its members begin. */
static inline uint32_t lists_first(const struct lists *lists, uint32_t list)
{
    return lists->entries[list].first + (lists->guests ? lists->guest_at[list] : 0);
}
static inline uint32_t lists_guests(const struct lists *lists, uint32_t list)
{
    return lists->guests ? lists->guest_at[list + 1] - lists->guest_at[list] : 0;
}
/* Members of a list. */
static inline uint32_t lists_members(const struct lists *lists, uint32_t list)
{
    return lists->entries[list].own + lists_guests(lists, list);
}
/* Row of the member at place lists_first + i. */
static inline uint32_t lists_member(const struct lists *lists, uint32_t list, uint32_t i)
{
    const struct list_entry *e = &lists->entries[list];
    return i < e->own ? e->first + i : lists->guests[lists->guest_at[list] + i - e->own];
}
/* The list that a row is a member of, and the place of its resident code: group place / 32, and factors. */
uint32_t lists_place(const struct lists *lists, uint32_t row, uint32_t *list);

/* A graph for n heads with the options that all segments share. epochs: made for it. */
int lists_graph_create(uint32_t code_dim, uint64_t seed, struct epochs **epochs, struct graph **graph,
                       struct quire_error *err);
/* Writes the sections. guest_lists: per guest its list, or NULL. */
int lists_write(struct section_writer *writer, const struct list_entry *entries, uint32_t n, const struct graph *heads,
                struct epochs *epochs, const uint32_t *guest_lists, uint32_t n_guests, struct quire_error *err);

/* Loads directory and heads from the codes file. Everything is checked: each row of the segment is a member of
 * one list, own rows in order; the graph is mended. Errors name file and list. */
int lists_open(const struct segment_params *params, struct section_file *codes, struct lists **out,
               struct quire_error *err);
/* Reads all posting blocks and keeps the codes of the rows' own lists. */
int lists_load_codes(struct lists *lists, const struct segment_params *params, struct section_file *postings,
                     uint64_t postings_at, const uint8_t segment_id[16], struct quire_error *err);
void lists_close(struct lists *lists); /* NULL is fine */
/* Of all posting blocks on the disk. */
uint64_t lists_postings_bytes(const struct lists *lists, const struct segment_params *params);

#endif
