/*
 * memtable_ref.c - memtables that views share.
 *
 * A memtable is destroyed with the last view that has it: a reader of an older view may still look at one that was
 * sealed long ago.
 */
#include "index/collection/memtable_ref.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

int memtable_ref_create(const struct memtable_config *config, struct memtable_ref **out, struct quire_error *err)
{
    struct memtable_ref *table = calloc(1, sizeof *table);
    if (!table)
        return error_set(err, QUIRE_ENOMEM, "no memory for a memtable");
    int rc = memtable_create(config, &table->memtable, err);
    if (rc < 0) {
        free(table);
        return rc;
    }
    atomic_init(&table->references, 1);
    table->last_lsn = MEMTABLE_LSN_MAX;
    *out = table;
    return 0;
}

struct memtable_ref *memtable_ref(struct memtable_ref *table)
{
    unsigned before = atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
    assert(before > 0);
    return table;
}

void memtable_unref(struct memtable_ref *table)
{
    unsigned before = table ? atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) : 0;
    assert(!table || before > 0);
    if (before != 1)
        return;
    if (table->gone)
        table->gone(table->context, table);
    else
        memtable_ref_free(table);
}

void memtable_ref_free(struct memtable_ref *table)
{
    memtable_destroy(table->memtable);
    free(table);
}
