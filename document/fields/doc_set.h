/*
 * doc_set.h - a set of document ids that is kept, grows at its end and is combined with others.
 *
 * Ids are grouped by their upper 16 bits into chunks, each a sorted array of the lower 16 bits or, where that would
 * take more, 65,536 bits (the idea of Roaring bitmaps: Chambi, Lemire et al., 2016). Up to DOC_SET_FEW ids lie in the
 * set itself: most values of a field with many values have few documents. Made here, and not by CRoaring, because
 * version 0.2 of that does not look at what its allocations give; callers outside get a roaring_bitmap_t in the end.
 *
 * A zeroed set is empty. What may fail says so; after a failure the set holds what it held.
 */
#ifndef QUIRE_DOCUMENT_DOC_SET_H
#define QUIRE_DOCUMENT_DOC_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOC_SET_FEW       4u
#define DOC_SET_ARRAY_MAX 4096u /* ids of a chunk that is an array */
#define DOC_SET_WORDS     1024u /* of a chunk of bits */

struct doc_chunk {
    uint16_t high, capacity; /* capacity: of lows; unused where there are bits */
    bool is_bits;
    uint32_t n;
    union {
        uint16_t *lows; /* ascending */
        uint64_t *bits; /* DOC_SET_WORDS */
    };
};
struct doc_set {
    uint32_t n; /* ids */
    uint32_t n_chunks;
    bool chunked; /* chunks holds, not few */
    uint32_t capacity;
    union {
        uint32_t few[DOC_SET_FEW]; /* ascending */
        struct doc_chunk *chunks;  /* owned, as what they point to; ascending; none is empty */
    };
};

void doc_set_fini(struct doc_set *set);            /* the set is empty afterwards */
uint64_t doc_set_bytes(const struct doc_set *set); /* memory besides the set itself */
bool doc_set_has(const struct doc_set *set, uint32_t id);
/* Which of the ids 64 * word .. + 63 are in the set, a bit each. */
uint64_t doc_set_word(const struct doc_set *set, uint32_t word);
uint32_t doc_set_last(const struct doc_set *set); /* of a set that is not empty */

/* id is above all in the set. doc_set_reserve makes sure that doc_set_append succeeds next; false without memory. */
bool doc_set_reserve(struct doc_set *set, uint32_t id);
bool doc_set_append(struct doc_set *set, uint32_t id);
bool doc_set_remove(struct doc_set *set, uint32_t id); /* whether it was there */

/* *out is empty or undefined before, and the caller's afterwards. False without memory. */
bool doc_set_copy(const struct doc_set *set, struct doc_set *out);
/* Of n ids in ascending order. */
bool doc_set_from(const uint32_t *ids, size_t n, struct doc_set *out);
/* Of the ids whose bits are set. */
bool doc_set_from_bits(const uint64_t *bits, size_t n_words, struct doc_set *out);
/* These two only take ids away, and need no memory. */
void doc_set_and(struct doc_set *set, const struct doc_set *other);
void doc_set_and_not(struct doc_set *set, const struct doc_set *other);
/* Ids below `end` stay only if they are in `kept`. */
void doc_set_purge(struct doc_set *set, const struct doc_set *kept, uint32_t end);
bool doc_set_or(struct doc_set *set, const struct doc_set *other);

/* All ids, ascending; room for set->n. */
void doc_set_ids(const struct doc_set *set, uint32_t *ids);
/* Sets the bits of ids below 64 * n_words. */
void doc_set_mark(const struct doc_set *set, uint64_t *bits, size_t n_words);

/* Walks a set that does not change meanwhile:
 *     struct doc_walk walk = doc_walk(&set);
 *     while (doc_walk_next(&walk, &id)) */
struct doc_walk {
    const struct doc_set *set;
    uint32_t chunk, at; /* at: of the few or the lows; of bits the next word */
    uint64_t word;      /* what is left of the one before */
};
struct doc_walk doc_walk(const struct doc_set *set);
bool doc_walk_next(struct doc_walk *walk, uint32_t *id);

/* Ids in any order, also twice, become a set: as bits of all ids below `ids_end`, or as a list that is sorted in the
 * end, whichever of the two is smaller for about `expected` ids. */
struct doc_gather {
    uint64_t *bits; /* owned; NULL: a list */
    size_t n_words;
    uint32_t *ids; /* owned */
    size_t n_ids, capacity;
};
bool doc_gather_init(struct doc_gather *gather, uint64_t expected, uint32_t ids_end);
void doc_gather_fini(struct doc_gather *gather);
/* Room for n more, without looking again; false without memory. Nothing to do for bits. */
bool doc_gather_reserve(struct doc_gather *gather, size_t n);
static inline void doc_gather_put(struct doc_gather *gather, uint32_t id)
{
    if (gather->bits)
        gather->bits[id >> 6] |= UINT64_C(1) << (id & 63);
    else
        gather->ids[gather->n_ids++] = id;
}
bool doc_gather_put_set(struct doc_gather *gather, const struct doc_set *set);
/* *out is the caller's; what was gathered is given back. */
bool doc_gather_finish(struct doc_gather *gather, struct doc_set *out);

#endif
