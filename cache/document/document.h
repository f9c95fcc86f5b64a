/*
 * document.h - an answer as it lies in the document log: its bytes, and what identifies it.
 *
 * A document carries everything that its entry in memory has only a short form of, so that a reader checks with one
 * read that it holds what was asked for: whole hashes, the scope in words, the entry's id. All of it stands under one
 * checksum. Numbers are little-endian. docs/format.md gives every byte.
 */
#ifndef QUIRE_CACHE_DOCUMENT_H
#define QUIRE_CACHE_DOCUMENT_H

#include "quire.h"

#define DOCUMENT_BYTES_MAX  (16u << 20) /* encoded */
#define DOCUMENT_PEEK_BYTES 16u
#define DOCUMENT_UNIT       256u /* documents begin at multiples of this and are padded to it: a length takes 16 bits */

struct hash128 {
    uint64_t low, high; /* both 0: none */
};

/* Pointers belong to whoever made it: the caller of encode, or the bytes that were decoded. */
struct document {
    uint64_t id, created_ms, expire_ms; /* wall clock */
    struct hash128 exact, compat;
    struct quire_bytes category, text, model;
    const struct quire_pair *scope; /* encode: n_scope pairs, sorted by key; decode: NULL, see document_scope */
    const struct quire_bytes *tags;
    uint32_t n_scope, n_tags, n_chunks;
    const struct quire_bytes *chunks; /* the value in pieces; 1: it is whole */
    uint32_t tokens_in, tokens_out, llm_ms;
    float cost;                /* USD that the answer took */
    struct quire_bytes packed; /* decode: the document as it lies */
};

/* Bytes that encoding takes, padding included; 0 if it is more than DOCUMENT_BYTES_MAX. */
size_t document_bytes(const struct document *document);
/* Writes exactly document_bytes(). */
void document_encode(const struct document *document, uint8_t *out);
/* What the first DOCUMENT_PEEK_BYTES of a document say that it takes; 0: these begin none. Checks nothing. */
uint32_t document_peek(const uint8_t bytes[DOCUMENT_PEEK_BYTES]);
/* Verifies the checksum and every length of `n` bytes that begin with a document, and fills *out with what points into
 * them; arrays (scope, tags, chunks) are read by the functions below. *n_bytes: what it takes. QUIRE_ECORRUPT. */
int document_decode(const uint8_t *bytes, size_t n, struct document *out, size_t *n_bytes, struct quire_error *err);
/* Of decoded documents, i below its count. */
struct quire_pair document_scope(const struct document *document, uint32_t i);
struct quire_bytes document_tag(const struct document *document, uint32_t i);
struct quire_bytes document_chunk(const struct document *document, uint32_t i);
/* All chunks, which lie one behind the other. */
struct quire_bytes document_value(const struct document *document);

#endif
