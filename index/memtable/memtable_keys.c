/*
 * memtable_keys.c - from a key to its living row: open addressing over row numbers and 32 bits of the hash.
 *
 * The keys themselves lie in the records; the hash decides nearly every comparison, so that a look-up touches one
 * record. Linear probing; taking an entry out moves the following ones back, so that there are no tombstones and a set
 * in which everything is replaced all the time stays as fast as a new one. Up to SCAN_ROWS rows there is no map.
 *
 * Only used under the lock. The map grows beyond three quarters and shrinks below an eighth; without memory for a
 * smaller one it stays as it is.
 */
#include "index/memtable/memtable_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SCAN_ROWS   16u
#define ENTRIES_MIN 32u

/* The table's address makes it hard to choose keys of one hash. */
static uint32_t hash_of(const struct memtable *table, const void *key, uint32_t key_bytes)
{
    uint64_t hash = XXH3_64bits_withSeed(key, key_bytes, (uint64_t)(uintptr_t)table);
    return (uint32_t)(hash >> 32);
}

static uint32_t hash_of_row(const struct memtable *table, uint32_t row)
{
    const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
    return hash_of(table, memtable_record_key(table, record), record->key_bytes);
}

static bool has_key(const struct memtable *table, const struct memtable_record *record, const void *key,
                    uint32_t key_bytes)
{
    return record->key_bytes == key_bytes &&
           (key_bytes == 0 || memcmp(memtable_record_key(table, record), key, key_bytes) == 0);
}

static uint32_t scan(const struct memtable *table, const void *key, uint32_t key_bytes)
{
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct slot *slot = memtable_slot(table, row);
        const struct memtable_record *record = memtable_slot_record(slot);
        if (record && memtable_slot_end_lsn(slot) == MEMTABLE_LSN_MAX && has_key(table, record, key, key_bytes))
            return row;
    }
    return MEMTABLE_NONE;
}

uint32_t memtable_find(const struct memtable *table, const void *key, uint32_t key_bytes)
{
    const struct key_map *map = &table->keys;
    if (!map->entries)
        return scan(table, key, key_bytes);
    uint32_t hash = hash_of(table, key, key_bytes);
    for (uint32_t at = hash & map->mask; map->entries[at].row != MEMTABLE_NONE; at = (at + 1) & map->mask) {
        const struct key_entry *entry = &map->entries[at];
        if (entry->hash == hash &&
            has_key(table, memtable_slot_record(memtable_slot(table, entry->row)), key, key_bytes))
            return entry->row;
    }
    return MEMTABLE_NONE;
}

static void insert(struct key_map *map, struct key_entry entry)
{
    uint32_t at = entry.hash & map->mask;
    while (map->entries[at].row != MEMTABLE_NONE)
        at = (at + 1) & map->mask;
    map->entries[at] = entry;
}

static int resize(struct memtable *table, uint32_t capacity)
{
    struct key_map old = table->keys, map = {NULL, capacity - 1, old.n};
    map.entries = memtable_block_alloc(table, capacity * sizeof *map.entries);
    if (!map.entries)
        return QUIRE_ENOMEM;
    memset(map.entries, 0xff, capacity * sizeof *map.entries); /* MEMTABLE_NONE everywhere */
    if (old.entries) {
        for (uint32_t i = 0; i <= old.mask; i++)
            if (old.entries[i].row != MEMTABLE_NONE)
                insert(&map, old.entries[i]);
    } else {
        for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
            const struct slot *slot = memtable_slot(table, row);
            if (memtable_slot_record(slot) && memtable_slot_end_lsn(slot) == MEMTABLE_LSN_MAX)
                insert(&map, (struct key_entry){row, hash_of_row(table, row)});
        }
    }
    memtable_block_free(table, old.entries);
    table->keys = map;
    return 0;
}

int memtable_keys_reserve(struct memtable *table)
{
    const struct key_map *map = &table->keys;
    if (!map->entries)
        return atomic_load(&table->row_end) < SCAN_ROWS ? 0 : resize(table, ENTRIES_MIN);
    uint32_t capacity = map->mask + 1;
    return map->n < capacity / 4 * 3 ? 0 : resize(table, capacity * 2);
}

void memtable_keys_add(struct memtable *table, uint32_t row)
{
    table->keys.n++;
    assert(!table->keys.entries || table->keys.n <= table->keys.mask);
    if (table->keys.entries)
        insert(&table->keys, (struct key_entry){row, hash_of_row(table, row)});
}

static uint32_t place_of(const struct memtable *table, uint32_t row)
{
    const struct key_map *map = &table->keys;
    uint32_t at = hash_of_row(table, row) & map->mask;
    while (map->entries[at].row != row) {
        assert(map->entries[at].row != MEMTABLE_NONE);
        at = (at + 1) & map->mask;
    }
    return at;
}

void memtable_keys_replace(struct memtable *table, uint32_t from, uint32_t to)
{
    assert(from != to && hash_of_row(table, from) == hash_of_row(table, to));
    if (table->keys.entries)
        table->keys.entries[place_of(table, from)].row = to;
}

void memtable_keys_remove(struct memtable *table, uint32_t row)
{
    struct key_map *map = &table->keys;
    assert(map->n > 0);
    map->n--;
    if (!map->entries)
        return;
    uint32_t hole = place_of(table, row);
    for (uint32_t at = (hole + 1) & map->mask; map->entries[at].row != MEMTABLE_NONE; at = (at + 1) & map->mask) {
        uint32_t home = map->entries[at].hash & map->mask;
        if (((at - home) & map->mask) >= ((at - hole) & map->mask)) {
            map->entries[hole] = map->entries[at];
            hole = at;
        }
    }
    map->entries[hole].row = MEMTABLE_NONE;
    if (map->mask + 1 > ENTRIES_MIN && map->n < (map->mask + 1) / 8)
        (void)resize(table, (map->mask + 1) / 2); /* without memory it stays as large as it is */
}

int memtable_keys_check(const struct memtable *table, struct quire_error *reason)
{
    uint32_t living = atomic_load(&table->living);
    if (table->keys.n != living)
        return error_set(reason, QUIRE_ECORRUPT, "the key map counts %u keys, %u rows live", table->keys.n, living);
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct slot *slot = memtable_slot(table, row);
        const struct memtable_record *record = memtable_slot_record(slot);
        if (!record || memtable_slot_end_lsn(slot) != MEMTABLE_LSN_MAX)
            continue;
        uint32_t found = memtable_find(table, memtable_record_key(table, record), record->key_bytes);
        if (found != row)
            return error_set(reason, QUIRE_ECORRUPT, "the key of living row %u leads to row %u", row, found);
    }
    return 0;
}
