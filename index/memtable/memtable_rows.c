/*
 * memtable_rows.c - slots and records: memory that a writer grows and gives back while readers without a lock look at
 * it.
 *
 * A set of ten elements is as common as one of a million and should cost about what its vectors do. So the first chunk
 * of slots starts with four and grows by half: copied, published, and the old one goes through the epochs. Slots that
 * change in the new chunk afterwards are begins and ends later than the snapshot of any reader of the old one. Beyond
 * CHUNK_ROWS chunks do not move, so that a put never copies more than a directory of 8 bytes per 1024 rows.
 *
 * A row's end has three steps. It dies (its end_lsn is set; readers of older snapshots go on). When the horizon has
 * passed its end_lsn, and the readers that were inside then have left, nobody can be given it any more (the marker, in
 * memtable.c). Then its record goes out of the slot and through the epochs, since readers who walk all rows may still
 * see it, and its number is free at once: whoever reads the number's next row has a begin beyond its snapshot.
 *
 * Every block is counted with what malloc really took for it.
 */
#include "index/memtable/memtable_priv.h"
#include <assert.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST     4u
#define ALLOCATION_HEAD 8u /* what malloc keeps beside a block */

void *memtable_workspace_begin(struct workspace *workspace, size_t bytes)
{
    workspace->beyond = bytes > sizeof workspace->here ? malloc(bytes) : NULL;
    return bytes > sizeof workspace->here ? workspace->beyond : workspace->here;
}

void memtable_workspace_end(struct workspace *workspace)
{
    free(workspace->beyond);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint64_t block_bytes(void *block)
{
    return malloc_usable_size(block) + ALLOCATION_HEAD;
}

void memtable_block_count(struct memtable *table, void *block)
{
    atomic_fetch_add_explicit(&table->bytes, block_bytes(block), memory_order_relaxed);
}

void memtable_block_uncount(struct memtable *table, void *block)
{
    atomic_fetch_sub_explicit(&table->bytes, block_bytes(block), memory_order_relaxed);
}

void *memtable_block_alloc(struct memtable *table, size_t bytes)
{
    void *block = malloc(bytes);
    if (block)
        memtable_block_count(table, block);
    return block;
}

void memtable_block_free(struct memtable *table, void *block)
{
    if (!block)
        return;
    memtable_block_uncount(table, block);
    free(block);
}

static void free_retired(struct epoch_item *item)
{
    struct retired *retired = (struct retired *)(void *)item; /* its first member */
    for (uint32_t i = 0; i < retired->n; i++)
        free(retired->blocks[i]);
    free(retired);
}

struct retired *memtable_retired_new(uint32_t n)
{
    struct retired *retired = malloc(sizeof *retired + n * sizeof(void *));
    if (retired) {
        retired->item.run = free_retired;
        retired->n = 0;
    }
    return retired;
}

void memtable_block_retire(struct memtable *table, struct retired *retired, void *block)
{
    if (!block)
        return;
    memtable_block_uncount(table, block);
    retired->blocks[retired->n++] = block;
}

void memtable_retired_defer(struct memtable *table, struct retired *retired)
{
    epoch_defer(table->config.epochs, &retired->item);
}

void memtable_block_replaced(struct memtable *table, struct retired *retired, void *old)
{
    assert((retired != NULL) == (old != NULL));
    if (!old)
        return;
    memtable_block_retire(table, retired, old);
    memtable_retired_defer(table, retired);
}

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

int memtable_pointers_reserve(struct memtable *table, _Atomic(struct pointers *) *list, uint32_t first, uint32_t need)
{
    struct pointers *old = atomic_load_explicit(list, memory_order_relaxed);
    uint32_t capacity = old ? old->capacity : first;
    assert(first > 0 && need > 0);
    if (old && need <= capacity)
        return 0;
    while (capacity < need)
        capacity *= 2;
    struct retired *retired = old ? memtable_retired_new(1) : NULL;
    struct pointers *pointers = memtable_block_alloc(table, sizeof *pointers + capacity * sizeof pointers->items[0]);
    if (!pointers || (old && !retired)) {
        memtable_block_free(table, pointers);
        free(retired);
        return QUIRE_ENOMEM;
    }
    pointers->capacity = capacity;
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&pointers->items[i], memtable_pointers_get(list, i));
    atomic_store_explicit(list, pointers, memory_order_release);
    memtable_block_replaced(table, retired, old);
    return 0;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static struct slot *chunk_new(struct memtable *table, uint32_t n, const struct slot *from, uint32_t n_from)
{
    struct slot *chunk = memtable_block_alloc(table, n * sizeof *chunk);
    if (!chunk)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        atomic_init(&chunk[i].record, i < n_from ? memtable_slot_record(&from[i]) : NULL);
        atomic_init(&chunk[i].begin_lsn, i < n_from ? memtable_slot_begin_lsn(&from[i]) : MEMTABLE_LSN_MAX);
        atomic_init(&chunk[i].end_lsn, i < n_from ? memtable_slot_end_lsn(&from[i]) : 0);
    }
    return chunk;
}

/* The first chunk while it is not full. */
static int first_chunk_grow(struct memtable *table)
{
    struct slot *old = memtable_pointers_get(&table->chunks, 0);
    uint32_t n = table->capacity ? table->capacity + (table->capacity + 1) / 2 : SLOTS_FIRST;
    n = n < CHUNK_ROWS ? n : CHUNK_ROWS;
    struct retired *retired = old ? memtable_retired_new(1) : NULL;
    struct slot *chunk = old && !retired ? NULL : chunk_new(table, n, old, table->capacity);
    if (!chunk) {
        free(retired);
        return QUIRE_ENOMEM;
    }
    memtable_pointers_set(&table->chunks, 0, chunk);
    table->capacity = n;
    memtable_block_replaced(table, retired, old);
    return 0;
}

int memtable_rows_reserve(struct memtable *table)
{
    if (table->free_row != MEMTABLE_NONE || atomic_load(&table->row_end) < table->capacity)
        return 0;
    if (table->capacity == MEMTABLE_NONE / CHUNK_ROWS * CHUNK_ROWS)
        return QUIRE_ELIMIT;
    int rc = memtable_pointers_reserve(table, &table->chunks, 1, table->capacity / CHUNK_ROWS + 1);
    if (rc < 0)
        return rc;
    if (table->capacity < CHUNK_ROWS)
        return first_chunk_grow(table);
    struct slot *chunk = chunk_new(table, CHUNK_ROWS, NULL, 0);
    if (!chunk)
        return QUIRE_ENOMEM;
    memtable_pointers_set(&table->chunks, table->capacity / CHUNK_ROWS, chunk);
    table->capacity += CHUNK_ROWS;
    return 0;
}

uint32_t memtable_rows_next(const struct memtable *table)
{
    return table->free_row != MEMTABLE_NONE ? table->free_row : atomic_load(&table->row_end);
}

uint32_t memtable_rows_publish(struct memtable *table, struct memtable_record *record, uint64_t lsn)
{
    bool is_free = table->free_row != MEMTABLE_NONE;
    uint32_t row = memtable_rows_next(table);
    assert(row < table->capacity && lsn < MEMTABLE_LSN_MAX);
    struct slot *slot = memtable_slot(table, row);
    assert(!memtable_slot_record(slot));
    if (is_free)
        table->free_row = (uint32_t)memtable_slot_end_lsn(slot);
    atomic_store_explicit(&slot->end_lsn, MEMTABLE_LSN_MAX, memory_order_release);
    atomic_store_explicit(&slot->begin_lsn, lsn, memory_order_relaxed);
    atomic_store_explicit(&slot->record, record, memory_order_release);
    if (row == atomic_load(&table->row_end))
        atomic_store(&table->row_end, row + 1);
    return row;
}

void memtable_rows_release(struct memtable *table, uint32_t row)
{
    struct slot *slot = memtable_slot(table, row);
    assert(memtable_slot_record(slot) && memtable_slot_end_lsn(slot) != MEMTABLE_LSN_MAX);
    atomic_store_explicit(&slot->record, NULL, memory_order_release);
    atomic_store_explicit(&slot->begin_lsn, MEMTABLE_LSN_MAX, memory_order_release);
    atomic_store_explicit(&slot->end_lsn, table->free_row, memory_order_release);
    table->free_row = row;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

struct memtable_record *memtable_record_new(struct memtable *table, const void *key, uint32_t key_bytes,
                                            bool has_vector)
{
    size_t before = has_vector ? table->kept_bytes : MEMTABLE_LENGTH_BYTES;
    struct memtable_record *record = memtable_block_alloc(table, sizeof *record + before + key_bytes);
    if (!record)
        return NULL;
    atomic_init(&record->attributes, NULL);
    atomic_init(&record->place, 0);
    record->next_dead = MEMTABLE_NONE;
    record->key_bytes = (uint16_t)key_bytes;
    record->has_vector = has_vector;
    if (key_bytes)
        memcpy(record->bytes + before, key, key_bytes);
    return record;
}

struct memtable_text *memtable_attributes_new(struct memtable *table, const void *text, uint32_t bytes)
{
    struct memtable_text *attributes = memtable_block_alloc(table, sizeof *attributes + bytes);
    if (attributes) {
        attributes->bytes = bytes;
        memcpy(attributes->text, text, bytes);
    }
    return attributes;
}

void memtable_rows_destroy(struct memtable *table)
{
    struct pointers *chunks = atomic_load(&table->chunks);
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (record)
            free(atomic_load(&record->attributes));
        free(record);
    }
    for (uint32_t i = 0; chunks && i < chunks->capacity; i++)
        free(memtable_pointers_get(&table->chunks, i));
    free(chunks);
}
