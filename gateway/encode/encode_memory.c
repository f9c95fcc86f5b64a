/*
 * encode_memory.c - the vectors of the texts that were asked last, by the hash of the text.
 *
 * Places are an array of fixed size, linked by index in the order of use; the table leads from a hash to its place. All
 * vectors lie in one block that the system backs with memory as it is filled.
 */
#include "gateway/encode/encode_priv.h"
#include "io/hash.h"
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct remembered {
    uint8_t hash[ENCODE_HASH_BYTES];
    uint32_t newer, older;
};

struct memory_place {
    const struct remembered *entry;
    uint32_t at;
    bool set;
};

static inline bool memory_is_set(const struct memory_place *place)
{
    return place->set;
}

static inline uint64_t memory_hash(const struct memory_place *place)
{
    uint64_t hash;
    memcpy(&hash, place->entry->hash, sizeof hash); /* of SHA-256 */
    return hash;
}

static inline bool memory_is_same(const struct memory_place *a, const struct memory_place *b)
{
    return memcmp(a->entry->hash, b->entry->hash, ENCODE_HASH_BYTES) == 0;
}
HASH_DEFINE(memory_table, struct memory_place, memory_is_set, memory_hash, memory_is_same)

struct encode_memory {
    struct memory_table table;
    struct remembered *entries;
    float *vectors;
    uint32_t n, n_max, dim, newest, oldest;
};

struct encode_memory *encode_memory_create(unsigned n_max, uint32_t dim)
{
    struct encode_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    memory->n_max = n_max;
    memory->dim = dim;
    memory->newest = memory->oldest = NONE;
    memory->entries = n_max ? calloc(n_max, sizeof *memory->entries) : NULL;
    memory->vectors = n_max ? calloc(n_max, (size_t)dim * sizeof *memory->vectors) : NULL;
    if (n_max && (!memory->entries || !memory->vectors)) {
        encode_memory_destroy(memory);
        return NULL;
    }
    return memory;
}

void encode_memory_destroy(struct encode_memory *memory)
{
    if (!memory)
        return;
    free(memory->table.places);
    free(memory->entries);
    free(memory->vectors);
    free(memory);
}

static void unlink_entry(struct encode_memory *memory, uint32_t at)
{
    struct remembered *entry = &memory->entries[at];
    *(entry->newer == NONE ? &memory->newest : &memory->entries[entry->newer].older) = entry->older;
    *(entry->older == NONE ? &memory->oldest : &memory->entries[entry->older].newer) = entry->newer;
}

static void put_newest(struct encode_memory *memory, uint32_t at)
{
    struct remembered *entry = &memory->entries[at];
    entry->newer = NONE;
    entry->older = memory->newest;
    *(memory->newest == NONE ? &memory->oldest : &memory->entries[memory->newest].newer) = at;
    memory->newest = at;
}

static struct memory_place *find(const struct encode_memory *memory, const uint8_t hash[ENCODE_HASH_BYTES])
{
    struct remembered entry;
    struct memory_place like = {.entry = &entry};
    memcpy(entry.hash, hash, sizeof entry.hash);
    return memory_table_find(&memory->table, &like);
}

const float *encode_memory_find(struct encode_memory *memory, const uint8_t hash[ENCODE_HASH_BYTES])
{
    const struct memory_place *place = find(memory, hash);
    if (!place)
        return NULL;
    unlink_entry(memory, place->at);
    put_newest(memory, place->at);
    return memory->vectors + (size_t)place->at * memory->dim;
}

void encode_memory_add(struct encode_memory *memory, const uint8_t hash[ENCODE_HASH_BYTES], const float *vector)
{
    struct memory_place place = {.set = true};
    if (memory->n_max == 0 || find(memory, hash))
        return;
    if (memory->n < memory->n_max) {
        place.at = memory->n;
    } else {
        place.at = memory->oldest;
        unlink_entry(memory, place.at);
        memory_table_remove(&memory->table, find(memory, memory->entries[place.at].hash));
        memory->n--;
    }
    place.entry = &memory->entries[place.at];
    memcpy(memory->entries[place.at].hash, hash, ENCODE_HASH_BYTES);
    if (!memory_table_add(&memory->table, place)) {
        /* the place is lost to us only if it was not the last of the array */
        if (place.at != memory->n)
            memory->n_max = 0;
        return;
    }
    memory->n++;
    put_newest(memory, place.at);
    memcpy(memory->vectors + (size_t)place.at * memory->dim, vector, memory->dim * sizeof *vector);
}
