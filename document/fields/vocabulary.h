/*
 * vocabulary.h - the values of a TAG field, or the words of an index's texts: found by their bytes, and in order.
 *
 * An entry is the head of a struct of its owner's (postings follow), with its bytes behind that struct, in one
 * allocation. A hash table finds an entry by its bytes, sorted blocks find the first that begins with some. An entry
 * without bytes (the empty tag) is fine. Entries never move.
 */
#ifndef QUIRE_DOCUMENT_VOCABULARY_H
#define QUIRE_DOCUMENT_VOCABULARY_H

#include "document/fields/sorted.h"
#include "io/hash.h"

struct vocabulary_entry {
    const char *text; /* behind the owner's struct */
    uint32_t bytes, hash;
};

/* Negative, 0, positive: by bytes, a prefix first. */
static inline int vocabulary_compare(const char *a, uint32_t a_bytes, const char *b, uint32_t b_bytes)
{
    uint32_t bytes = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = bytes > 0 ? memcmp(a, b, bytes) : 0;
    return order ? order : a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}
static inline bool vocabulary_is_before(const void *context, struct vocabulary_entry *a, struct vocabulary_entry *b)
{
    (void)context;
    return vocabulary_compare(a->text, a->bytes, b->text, b->bytes) < 0;
}
SORTED_DEFINE(vocabulary_sorted, struct vocabulary_entry *, vocabulary_is_before)

struct vocabulary_place {
    struct vocabulary_entry *entry;
};
static inline bool vocabulary_is_set(const struct vocabulary_place *place)
{
    return place->entry != NULL;
}
static inline uint64_t vocabulary_hash_of(const struct vocabulary_place *place)
{
    return place->entry->hash;
}
static inline bool vocabulary_is_same(const struct vocabulary_place *a, const struct vocabulary_place *b)
{
    return a->entry->hash == b->entry->hash &&
           vocabulary_compare(a->entry->text, a->entry->bytes, b->entry->text, b->entry->bytes) == 0;
}
HASH_DEFINE(vocabulary_table, struct vocabulary_place, vocabulary_is_set, vocabulary_hash_of, vocabulary_is_same)

/* Zeroed before first use. */
struct vocabulary {
    struct vocabulary_table table;
    struct vocabulary_sorted sorted;
    uint64_t entry_bytes; /* memory of the entries, without what their owner hangs on them */
};

/* NULL: there is none. */
struct vocabulary_entry *vocabulary_find(const struct vocabulary *vocabulary, const char *text, uint32_t bytes);
/* One that is not there: owner_bytes of zeroed memory that begin with the entry. NULL without memory: nothing has
 * changed. */
struct vocabulary_entry *vocabulary_add(struct vocabulary *vocabulary, const char *text, uint32_t bytes,
                                        size_t owner_bytes);
/* Takes the entry out and frees it; what its owner hung on it is gone already. */
void vocabulary_remove(struct vocabulary *vocabulary, struct vocabulary_entry *entry, size_t owner_bytes);
/* The first that does not stand before `text`. */
struct sorted_place vocabulary_lower_bound(const struct vocabulary *vocabulary, const char *text, uint32_t bytes);
/* Memory: entries, table, blocks. */
uint64_t vocabulary_bytes(const struct vocabulary *vocabulary);
/* All entries are freed; the caller has freed what they hold. */
void vocabulary_fini(struct vocabulary *vocabulary);

#endif
