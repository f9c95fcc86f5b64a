/* cache_frame.h - frames between caches of several nodes (cache_replica.h), as the files that write and read them share
 * them. */
#ifndef QUIRE_CACHE_CACHE_FRAME_H
#define QUIRE_CACHE_CACHE_FRAME_H

#include "cache/core/cache_log.h"
#include "cache/core/cache_reader.h"
#include "cache/core/cache_replica.h"

enum cache_frame_kind {
    FRAME_IMAGE = 1,
    FRAME_PUT,
    FRAME_GONE,
    FRAME_CHANGE,
    FRAME_EPOCH,
    FRAME_CURVE,
    FRAME_CATEGORY,
    FRAME_CATEGORY_DROP,
    FRAME_LIST,
    FRAME_ENTRIES
};
#define FRAME_VERSION 1u

/* Flags of a word that are told; the others are each node's own. */
#define FRAME_WORD_BITS (EXPIRE_NEVER | ENTRY_PINNED | ENTRY_VECTOR | ENTRY_EXACT | ENTRY_TEXT)

struct cache_frame {
    enum cache_frame_kind kind;
    uint64_t history, seq;
    struct cache_reader body;
    struct quire_bytes document; /* behind it */
};

/* A frame of the cache's history, as of its number; its head is filled in by cache_frame_end. (lock) */
void cache_frame_begin(struct cache_record *r, const struct cache *cache, enum cache_frame_kind kind);
/* Owned by the caller; NULL: no memory. document_bytes follow it. Ends the record. */
uint8_t *cache_frame_end(struct cache_record *r, uint32_t document_bytes, uint32_t *n);
/* Checks everything but the body. QUIRE_ECORRUPT, QUIRE_EVERSION. */
int cache_frame_read(const uint8_t *bytes, size_t n, struct cache_frame *out, struct quire_error *err);

/* An entry as PUT has it. */
struct cache_frame_entry {
    uint64_t id, word;
    float veto, f, norm2;
    uint32_t hits, category;
    struct quire_bytes code, document;
};
void cache_frame_put_entry(struct cache_record *r, const struct cache_frame_entry *entry);

/* What tells entries of one id apart: the moment it came, its hash, its group, its size. (lock) */
uint64_t cache_entry_print(const struct cache *cache, uint32_t row);

/* In cache_restore.c: the rest of an EPOCH. vector is owned by the caller. QUIRE_ECORRUPT, QUIRE_ENOMEM. */
int cache_read_invalidation(uint32_t dim, struct cache_reader *r, struct invalidation *out);
/* What has been told so far is what the new history goes on from. (lock) */
void cache_begin_history(struct cache *cache);

/* What of a follower is on its way. */
struct cache_change {
    uint64_t id, word;
    float veto;
};
struct cache_copying {
    uint8_t *known; /* bitmap of numbers of entries that are as they should be; owned */
    uint32_t n_known;
    struct cache_change *changes; /* of effects: a list may be older; owned */
    size_t n_changes, changes_capacity;
    uint64_t until; /* effects must have come so far */
    bool ended;     /* all lists have come */
    bool lost;      /* there was no memory to remember something: it begins anew */
};

#endif
