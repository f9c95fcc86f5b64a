/*
 * vocabulary.c - entries by their bytes: a hash table for one, sorted blocks for those that begin alike.
 *
 * Every entry is in both. Both have taken it, or neither: an addition that fails in the second is taken back from the
 * first, which needs no memory.
 */
#include "document/fields/vocabulary.h"
#include <xxhash.h>

static struct vocabulary_entry key_of(const char *text, uint32_t bytes)
{
    return (struct vocabulary_entry){.text = text, .bytes = bytes, .hash = (uint32_t)XXH3_64bits(text, bytes)};
}

struct vocabulary_entry *vocabulary_find(const struct vocabulary *vocabulary, const char *text, uint32_t bytes)
{
    struct vocabulary_entry key = key_of(text, bytes);
    struct vocabulary_place *place = vocabulary_table_find(&vocabulary->table, &(struct vocabulary_place){&key});
    return place ? place->entry : NULL;
}

struct vocabulary_entry *vocabulary_add(struct vocabulary *vocabulary, const char *text, uint32_t bytes,
                                        size_t owner_bytes)
{
    struct vocabulary_entry *entry = calloc(1, owner_bytes + bytes);
    assert(owner_bytes >= sizeof *entry && !vocabulary_find(vocabulary, text, bytes));
    if (!entry)
        return NULL;
    *entry = key_of(text, bytes);
    if (bytes > 0)
        memcpy((char *)entry + owner_bytes, text, bytes);
    entry->text = (const char *)entry + owner_bytes;
    struct vocabulary_place *place = vocabulary_table_add(&vocabulary->table, (struct vocabulary_place){entry});
    if (!place || !vocabulary_sorted_insert(&vocabulary->sorted, NULL, entry)) {
        if (place)
            vocabulary_table_remove(&vocabulary->table, place);
        free(entry);
        return NULL;
    }
    vocabulary->entry_bytes += owner_bytes + bytes;
    assert(vocabulary->table.n == vocabulary->sorted.n);
    return entry;
}

void vocabulary_remove(struct vocabulary *vocabulary, struct vocabulary_entry *entry, size_t owner_bytes)
{
    struct vocabulary_place *place = vocabulary_table_find(&vocabulary->table, &(struct vocabulary_place){entry});
    assert(place && place->entry == entry);
    vocabulary_table_remove(&vocabulary->table, place);
    bool was_sorted = vocabulary_sorted_remove(&vocabulary->sorted, NULL, entry);
    assert(was_sorted && vocabulary->table.n == vocabulary->sorted.n);
    (void)was_sorted;
    vocabulary->entry_bytes -= owner_bytes + entry->bytes;
    free(entry);
}

struct sorted_place vocabulary_lower_bound(const struct vocabulary *vocabulary, const char *text, uint32_t bytes)
{
    struct vocabulary_entry key = {.text = text, .bytes = bytes};
    return vocabulary_sorted_lower_bound(&vocabulary->sorted, NULL, &key);
}

uint64_t vocabulary_bytes(const struct vocabulary *vocabulary)
{
    return vocabulary->entry_bytes + vocabulary->table.capacity * sizeof *vocabulary->table.places +
           vocabulary_sorted_bytes(&vocabulary->sorted);
}

void vocabulary_fini(struct vocabulary *vocabulary)
{
    for (uint64_t i = 0; i < vocabulary->table.capacity; i++)
        free(vocabulary->table.places[i].entry);
    free(vocabulary->table.places);
    vocabulary_sorted_fini(&vocabulary->sorted);
    memset(vocabulary, 0, sizeof *vocabulary);
}
