/*
 * words.h - the words of texts, or their stems: for each the documents that have it, in which fields and where.
 *
 * A word's postings are blocks of some thousand bytes. A posting is, in varints: the id less the one before it, the
 * bytes that follow, a bit for each TEXT field that has the word, then for each of these fields the number of places
 * and the places, ascending, each less the one before. A block says which ids it covers, so a search for an id passes
 * over blocks; a block is purged in place, since a posting only gets shorter or moves forward.
 *
 * Places count through a document's fields one after the other, as RediSearch's do: a phrase may go on in the next.
 */
#ifndef QUIRE_DOCUMENT_WORDS_H
#define QUIRE_DOCUMENT_WORDS_H

#include "document/fields/doc_set.h"
#include "document/fields/vocabulary.h"

#define WORDS_BLOCK_BYTES 2048u /* of postings; a single posting may take more */

struct words_block {
    uint32_t first, last; /* ids */
    uint32_t n, bytes, capacity;
    uint8_t *data; /* owned */
};
struct word {
    struct vocabulary_entry entry;
    bool is_stem;
    uint32_t n_documents; /* dead ones that are not purged as well */
    uint32_t n_blocks, capacity;
    struct words_block *blocks; /* owned; the one behind the last may have a buffer already */
};

/* A posting on its way in: words_prepare may fail, words_commit does not. */
struct words_posting {
    uint32_t id;
    const uint8_t *payload; /* fields and places, made by words_encode */
    uint32_t bytes;
};
/* A place of a word in a document. */
struct words_place {
    uint32_t field, position; /* field: bit number */
};
/* The payload for places in ascending order, by field first; returns its bytes. Room for WORDS_PAYLOAD_MAX(n). */
#define WORDS_PAYLOAD_MAX(n) (10u + 10u * (size_t)(n))
uint32_t words_encode(const struct words_place *places, uint32_t n, uint8_t *payload);
/* *memory grows by what it takes, also of what is taken in vain; false without memory. */
bool words_prepare(struct word *word, const struct words_posting *posting, uint64_t *memory);
void words_commit(struct word *word, const struct words_posting *posting);
void words_fini(struct word *word);            /* frees postings, not the entry */
uint64_t words_bytes(const struct word *word); /* of postings */
/* Ids below `end` that are not in `kept` go away. */
struct words_purge {
    const struct doc_set *kept;
    uint32_t end;
    uint64_t budget;                  /* bytes of postings that may still be looked at */
    uint64_t records, places, blocks; /* that went away, summed up */
    uint64_t *memory;                 /* becomes less by what was given back */
};
/* From block *block on, which goes on; true: there are no more. Needs no memory. */
bool words_purge(struct word *word, struct words_purge *purge, uint32_t *block);

/* Postings in order. struct words_cursor c = words_begin(word); while (words_next(&c)) ... c.id ... */
struct words_cursor {
    const struct word *word;
    uint32_t block, at; /* at: byte of the next posting in the block */
    uint32_t id;
    const uint8_t *payload, *payload_end;
};
struct words_cursor words_begin(const struct word *word);
bool words_next(struct words_cursor *cursor);
/* The first posting from the cursor's on whose id is not below `id`; false: there is none. */
bool words_seek(struct words_cursor *cursor, uint32_t id);
/* The fields of the posting. */
uint64_t words_fields(const struct words_cursor *cursor);
/* How often the word is in each field of `fields` (a bit each): called for each with field and count. */
struct words_field {
    const uint8_t *at;
    uint64_t rest;     /* fields to come */
    uint32_t field, n; /* of this one: places */
    uint32_t position; /* the last one read */
    uint32_t left;     /* places of this field that are not read */
};
struct words_field words_first_field(const struct words_cursor *cursor);
bool words_next_field(struct words_field *field);
/* The next place in the field. */
bool words_next_place(struct words_field *field, uint32_t *position);

#endif
