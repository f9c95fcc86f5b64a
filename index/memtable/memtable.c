/*
 * memtable.c - putting, ending and giving back rows; what a row is.
 *
 * A put prepares everything that may fail (a slot, a place in the key map, the record, the cell's copy of the code)
 * and then publishes what cannot fail, so that without memory the table is as it was. The new row is published with its
 * begin before the old one gets its end; both are the same LSN, which no reader's snapshot has reached yet, so no
 * reader sees both or neither. A collection logs between the two: what is in the log is in the table.
 *
 * Giving back: rows end in the order of LSNs, so the dead form a queue. A horizon that the caller tells
 * (no snapshot before it is read any more) holds for readers that enter from then on; a marker goes through the epochs
 * and when it has passed, everything that ended at or before its horizon is out of reach (`settled`): only then are
 * rows taken out of the graph. A search that took its snapshot inside its epoch thus never misses a row that was
 * replaced while it was on its way.
 */
#include "index/attribute/number_set.h"
#include "index/kernels/kernels.h"
#include "index/memtable/memtable_priv.h"
#include "index/vector/unit_code.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECLAIM_ROWS 128u /* rows a call gives back */

/* ---- create ------------------------------------------------------------------------------------------------------ */

uint32_t memtable_stored_bytes(const struct memtable_config *config)
{
    if (memtable_is_coded(config))
        return rotation_code_dim(config->dim) + UNIT_CODE_FACTOR_BYTES;
    return config->dim * (uint32_t)quire_type_bytes(config->type);
}

int memtable_create(const struct memtable_config *config, struct memtable **out, struct quire_error *err)
{
    if (config->dim == 0 || config->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_EDIM, "a dimension of %u is out of range: 1 to %u", config->dim, QUIRE_DIM_MAX);
    struct memtable *table = calloc(1, sizeof *table);
    if (!table)
        return error_set(err, QUIRE_ENOMEM, "no memory for a memtable");
    table->config = *config;
    table->coded = memtable_is_coded(config);
    table->stored_bytes = memtable_stored_bytes(config);
    bool inverse = config->metric == QUIRE_METRIC_COSINE && !table->coded;
    table->kept_bytes = table->stored_bytes + (inverse ? (uint32_t)sizeof(float) : 0);
    table->free_row = table->dead_first = table->dead_last = MEMTABLE_NONE;
    memtable_block_count(table, table);
    if (table->coded) {
        if (space_init(&table->space, config->metric, config->type, config->dim, config->seed) < 0) {
            free(table);
            return error_set(err, QUIRE_ENOMEM, "no memory for the rotation of %u dimensions", config->dim);
        }
        memtable_block_count(table, table->space.mean);
        memtable_block_count(table, table->space.rotation.signs);
    }
    *out = table;
    return 0;
}

void memtable_destroy(struct memtable *table)
{
    if (!table)
        return;
    if (table->marker && atomic_exchange(&table->marker->state, MARKER_ORPHAN) == MARKER_PASSED)
        free(table->marker);
    memtable_rows_destroy(table);
    memtable_cells_destroy(table);
    free(table->keys.entries);
    if (table->space.mean)
        space_fini(&table->space);
    free(table);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

double memtable_norm2(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

void memtable_encode(const struct memtable *table, const void *vector, float *floats, uint8_t *code, float *f,
                     float *norm2)
{
    const struct space *space = &table->space;
    space_floats(table->config.type, vector, table->config.dim, floats);
    float apart = space_row(space, floats, floats);
    *norm2 = (float)memtable_norm2(floats, space->code_dim) + apart;
    *f = code_encode(floats, space->code_dim, 8, code, NULL, NULL);
}

int memtable_stored(const struct memtable *table, const void *vector, void *out)
{
    const struct memtable_config *config = &table->config;
    if (config->metric != QUIRE_METRIC_COSINE) {
        memcpy(out, vector, table->stored_bytes);
        return 0;
    }
    struct workspace workspace;
    uint32_t code_dim = rotation_code_dim(config->dim);
    float *floats = memtable_workspace_begin(&workspace, sizeof(float) * code_dim);
    if (floats) {
        uint8_t *code = out;
        space_floats(config->type, vector, config->dim, floats);
        if (table->coded)
            unit_code_encode(&table->space.rotation, floats, config->dim, floats, code, code + code_dim);
        else if (space_is_ordinary(space_unit(floats, config->dim, floats)))
            memcpy(out, vector, table->stored_bytes);
        else
            space_elements(config->type, floats, config->dim, out);
    }
    memtable_workspace_end(&workspace);
    return floats ? 0 : QUIRE_ENOMEM;
}

int memtable_check_vector(const struct memtable *table, const void *vector, struct quire_error *err)
{
    const struct memtable_config *config = &table->config;
    struct space shape = {.metric = config->metric, .dim = config->dim};
    struct workspace workspace;
    float *floats = memtable_workspace_begin(&workspace, sizeof(float) * config->dim);
    int rc = floats ? 0 : QUIRE_ENOMEM;
    double norm2 = 0;
    if (floats) {
        space_floats(config->type, vector, config->dim, floats);
        rc = space_check(&shape, floats);
        norm2 = memtable_norm2(floats, config->dim);
    }
    memtable_workspace_end(&workspace);
    if (rc < 0)
        return error_set(err, rc, "%s", quire_error_text(rc));
    bool too_long = config->metric == QUIRE_METRIC_IP && memtable_cells(table) && norm2 > table->space.norm2_max;
    return too_long ? MEMTABLE_TOO_LONG : 0;
}

int memtable_check_stored(const struct memtable *table, const void *stored, struct quire_error *err)
{
    const float unit = 0.25f; /* what rounding takes or adds is far less */
    if (!table->coded)
        return memtable_check_vector(table, stored, err);
    struct workspace workspace;
    uint32_t n = table->space.code_dim;
    float *floats = memtable_workspace_begin(&workspace, sizeof(float) * n);
    double decoded2 = 0;
    float f = bytes_load_f32((const uint8_t *)stored + n);
    float length = bytes_load_f32((const uint8_t *)stored + n + sizeof(float));
    if (floats) {
        code_decode(stored, n, 8, f, floats);
        decoded2 = memtable_norm2(floats, n);
    }
    memtable_workspace_end(&workspace);
    if (!floats)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    bool is_zero = f == 0 && length == 0; /* otherwise the code is of a unit vector; NaN is neither */
    if (is_zero || (length > 0 && fabs(decoded2 - 1) < (double)unit))
        return 0;
    return error_set(err, QUIRE_ECORRUPT, "a code is of no vector: its squared length is %g, that of the vector %g",
                     decoded2, (double)length);
}

/* ---- putting ----------------------------------------------------------------------------------------------------- */

/* More rows than a search should compare one by one. Dead ones count less: they are only looked at. */
static bool wants_cells(const struct memtable *table, bool is_new)
{
    uint32_t living = atomic_load(&table->living) + is_new, dead = atomic_load(&table->dead);
    return living > MEMTABLE_FLAT_ROWS || dead > 16 * MEMTABLE_FLAT_ROWS;
}

/* The record of a vector in the stored form, with its place in a cell if there are cells; floats: dim. */
static int make_record(struct memtable *table, const void *key, uint32_t key_bytes, const void *vector, float *floats,
                       const void *attributes, uint32_t attribute_bytes, struct memtable_record **out)
{
    bool in_cell = memtable_cells(table) != NULL, has_vector = !table->coded || !in_cell;
    struct memtable_text *text = attribute_bytes ? memtable_attributes_new(table, attributes, attribute_bytes) : NULL;
    struct memtable_record *record = memtable_record_new(table, key, key_bytes, has_vector);
    int rc = record && (text || !attribute_bytes) ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && in_cell)
        rc = memtable_columns_prepare(table, memtable_cells(table)->columns, memtable_rows_next(table), attributes,
                                      attribute_bytes);
    if (rc == 0 && in_cell && table->config.numbered)
        rc = memtable_columns_reserve_number(table, memtable_cells(table)->columns, memtable_rows_next(table));
    if (rc == 0 && in_cell)
        rc = memtable_cells_reserve(table, vector, record);
    if (rc < 0) {
        memtable_block_free(table, text);
        memtable_block_free(table, record);
        return rc;
    }
    if (has_vector)
        memcpy(record->bytes, vector, table->stored_bytes);
    else
        memcpy(record->bytes, (const uint8_t *)vector + table->stored_bytes - MEMTABLE_LENGTH_BYTES,
               MEMTABLE_LENGTH_BYTES);
    if (has_vector && table->kept_bytes > table->stored_bytes) {
        space_floats(table->config.type, vector, table->config.dim, floats);
        double norm2 = memtable_norm2(floats, table->config.dim);
        float inverse = norm2 > 0 ? (float)(1 / sqrt(norm2)) : 0;
        memcpy(record->bytes + table->stored_bytes, &inverse, sizeof inverse);
    }
    atomic_store_explicit(&record->attributes, text, memory_order_relaxed);
    *out = record;
    return 0;
}

/* A living row's end; its key may have another row by now. */
static void end_row(struct memtable *table, uint32_t row, uint64_t lsn)
{
    struct slot *slot = memtable_slot(table, row);
    assert(memtable_slot_record(slot) && memtable_slot_end_lsn(slot) == MEMTABLE_LSN_MAX);
    assert(atomic_load(&table->living) > 0);
    atomic_store_explicit(&slot->end_lsn, lsn, memory_order_release);
    if (table->dead_last == MEMTABLE_NONE)
        table->dead_first = row;
    else
        memtable_slot_record(memtable_slot(table, table->dead_last))->next_dead = row;
    table->dead_last = row;
    atomic_fetch_sub(&table->living, 1);
    atomic_fetch_add(&table->dead, 1);
}

/* floats: rotation_code_dim(dim + 1). */
static int prepare(struct memtable *table, const void *key, uint32_t key_bytes, const void *vector, float *floats,
                   const void *attributes, uint32_t attribute_bytes, struct memtable_pending *out)
{
    assert(key_bytes <= QUIRE_KEY_BYTES_MAX);
    out->old = memtable_find(table, key, key_bytes);
    int rc = memtable_rows_reserve(table);
    if (rc == 0 && out->old == MEMTABLE_NONE)
        rc = memtable_keys_reserve(table);
    if (rc == 0 && !memtable_cells(table) && wants_cells(table, out->old == MEMTABLE_NONE))
        rc = memtable_cells_begin(table, vector);
    return rc == 0 ? make_record(table, key, key_bytes, vector, floats, attributes, attribute_bytes, &out->record) : rc;
}

static size_t floats_bytes(const struct memtable *table)
{
    return sizeof(float) * rotation_code_dim(table->config.dim + 1);
}

int memtable_prepare(struct memtable *table, const void *key, uint32_t key_bytes, const void *stored,
                     const void *attributes, uint32_t attribute_bytes, struct memtable_pending *out)
{
    struct workspace workspace;
    float *floats = memtable_workspace_begin(&workspace, floats_bytes(table));
    int rc = floats ? prepare(table, key, key_bytes, stored, floats, attributes, attribute_bytes, out) : QUIRE_ENOMEM;
    memtable_workspace_end(&workspace);
    return rc;
}

uint32_t memtable_commit(struct memtable *table, const struct memtable_pending *pending, uint64_t lsn)
{
    assert(lsn < MEMTABLE_LSN_MAX);
    if (memtable_cells(table))
        memtable_columns_commit(memtable_cells(table)->columns, memtable_rows_next(table), false);
    if (memtable_cells(table) && table->config.numbered)
        memtable_columns_set_number(memtable_cells(table)->columns, memtable_rows_next(table),
                                    number_of_name(memtable_record_key(table, pending->record)));
    uint32_t row = memtable_rows_publish(table, pending->record, lsn);
    if (memtable_cells(table))
        memtable_cells_add(table, pending->record, row);
    atomic_fetch_add(&table->living, 1);
    assert(row != pending->old && memtable_slot_record(memtable_slot(table, row)) == pending->record);
    if (pending->old == MEMTABLE_NONE) {
        memtable_keys_add(table, row);
    } else {
        memtable_keys_replace(table, pending->old, row);
        end_row(table, pending->old, lsn);
    }
    return row;
}

void memtable_cancel(struct memtable *table, const struct memtable_pending *pending)
{
    struct memtable_record *record = pending->record;
    memtable_block_free(table, atomic_load_explicit(&record->attributes, memory_order_relaxed));
    memtable_block_free(table, record);
}

int memtable_put(struct memtable *table, const void *key, uint32_t key_bytes, const void *vector, bool stored,
                 const void *attributes, uint32_t attribute_bytes, uint64_t lsn, uint32_t *row)
{
    struct workspace workspace;
    struct memtable_pending pending;
    uint8_t *memory = memtable_workspace_begin(&workspace, floats_bytes(table) + table->stored_bytes);
    int rc = memory ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && !stored) {
        rc = memtable_stored(table, vector, memory + floats_bytes(table));
        vector = memory + floats_bytes(table);
    }
    if (rc == 0)
        rc = prepare(table, key, key_bytes, vector, (float *)(void *)memory, attributes, attribute_bytes, &pending);
    if (rc == 0)
        *row = memtable_commit(table, &pending, lsn);
    memtable_workspace_end(&workspace);
    return rc;
}

void memtable_end(struct memtable *table, uint32_t row, uint64_t lsn)
{
    assert(row < atomic_load(&table->row_end));
    memtable_keys_remove(table, row);
    end_row(table, row, lsn);
}

uint32_t memtable_last_ended(const struct memtable *table)
{
    return table->dead_last;
}

uint32_t memtable_ended_after(const struct memtable *table, uint32_t row)
{
    return row == MEMTABLE_NONE ? table->dead_first : memtable_slot_record(memtable_slot(table, row))->next_dead;
}

int memtable_attributes_prepare(struct memtable *table, uint32_t row, const void *attributes, uint32_t attribute_bytes,
                                struct memtable_pending_text *out)
{
    struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
    assert(record && memtable_slot_end_lsn(memtable_slot(table, row)) == MEMTABLE_LSN_MAX);
    bool had_some = atomic_load_explicit(&record->attributes, memory_order_relaxed) != NULL;
    *out = (struct memtable_pending_text){.row = row, .retired = had_some ? memtable_retired_new(1) : NULL};
    out->text = attribute_bytes ? memtable_attributes_new(table, attributes, attribute_bytes) : NULL;
    if ((!had_some || out->retired) && (attribute_bytes == 0 || out->text) &&
        (!memtable_cells(table) ||
         memtable_columns_prepare(table, memtable_cells(table)->columns, row, attributes, attribute_bytes) == 0))
        return 0;
    memtable_attributes_cancel(table, out);
    return QUIRE_ENOMEM;
}

void memtable_attributes_commit(struct memtable *table, const struct memtable_pending_text *pending)
{
    struct memtable_record *record = memtable_slot_record(memtable_slot(table, pending->row));
    struct memtable_text *old = atomic_load_explicit(&record->attributes, memory_order_relaxed);
    if (memtable_cells(table))
        memtable_columns_commit(memtable_cells(table)->columns, pending->row, true);
    atomic_store_explicit(&record->attributes, pending->text, memory_order_release);
    memtable_block_replaced(table, pending->retired, old);
}

void memtable_attributes_cancel(struct memtable *table, const struct memtable_pending_text *pending)
{
    memtable_block_free(table, pending->text);
    free(pending->retired);
}

int memtable_set_attributes(struct memtable *table, uint32_t row, const void *attributes, uint32_t attribute_bytes)
{
    struct memtable_pending_text pending;
    int rc = memtable_attributes_prepare(table, row, attributes, attribute_bytes, &pending);
    if (rc == 0)
        memtable_attributes_commit(table, &pending);
    return rc;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

static void marker_pass(struct epoch_item *item)
{
    struct marker *marker = (struct marker *)(void *)item; /* its first member */
    if (atomic_exchange(&marker->state, MARKER_PASSED) == MARKER_ORPHAN)
        free(marker);
}

/* Sends a horizon on its way through the epochs, and takes note of the one that has passed. */
static void settle(struct memtable *table, uint64_t horizon)
{
    if (!table->marker && horizon > atomic_load(&table->settled)) {
        struct marker *marker = malloc(sizeof *marker);
        if (!marker)
            return; /* a later call tries again */
        marker->item.run = marker_pass;
        marker->horizon = horizon;
        atomic_init(&marker->state, MARKER_PENDING);
        table->marker = marker;
        epoch_defer(table->config.epochs, &marker->item);
    }
    if (!table->marker)
        return;
    epochs_collect(table->config.epochs);
    if (atomic_load(&table->marker->state) == MARKER_PASSED) {
        atomic_store(&table->settled, table->marker->horizon);
        free(table->marker);
        table->marker = NULL;
    }
}

/* Whether the row that died first is out of every reader's reach. */
static bool has_settled(const struct memtable *table)
{
    return table->dead_first != MEMTABLE_NONE &&
           memtable_slot_end_lsn(memtable_slot(table, table->dead_first)) <= atomic_load(&table->settled);
}

bool memtable_reclaim(struct memtable *table, uint64_t horizon)
{
    if (table->dead_first == MEMTABLE_NONE || memtable_slot_end_lsn(memtable_slot(table, table->dead_first)) > horizon)
        return false;
    assert(table->dead_last != MEMTABLE_NONE && atomic_load(&table->dead) > 0);
    if (!has_settled(table))
        settle(table, horizon);
    if (!has_settled(table))
        return false;
    struct retired *retired = memtable_retired_new(2 * RECLAIM_ROWS);
    if (!retired)
        return false;
    for (uint32_t i = 0; i < RECLAIM_ROWS && has_settled(table); i++) {
        uint32_t row = table->dead_first;
        struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        table->dead_first = record->next_dead;
        if (table->dead_first == MEMTABLE_NONE)
            table->dead_last = MEMTABLE_NONE;
        memtable_rows_release(table, row);
        if (memtable_cells(table))
            memtable_cells_remove(table, record);
        memtable_block_retire(table, retired, atomic_load_explicit(&record->attributes, memory_order_relaxed));
        memtable_block_retire(table, retired, record);
        atomic_fetch_sub(&table->dead, 1);
    }
    memtable_retired_defer(table, retired);
    return has_settled(table);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void memtable_row(const struct memtable *table, uint32_t row, struct memtable_row *out)
{
    const struct slot *slot = memtable_slot(table, row);
    const struct memtable_record *record = memtable_slot_record(slot);
    *out = (struct memtable_row){.begin_lsn = MEMTABLE_LSN_MAX};
    if (!record)
        return;
    const struct memtable_text *attributes = atomic_load_explicit(&record->attributes, memory_order_acquire);
    out->key = memtable_record_key(table, record);
    out->key_bytes = record->key_bytes;
    out->attributes = attributes ? attributes->text : NULL;
    out->attribute_bytes = attributes ? attributes->bytes : 0;
    out->end_lsn = memtable_slot_end_lsn(slot);
    out->begin_lsn = memtable_slot_begin_lsn(slot);
}

bool memtable_row_at(const struct memtable *table, uint32_t row, uint64_t snapshot, struct memtable_row *out)
{
    if (memtable_end_lsn(table, row) <= snapshot)
        return false;
    memtable_row(table, row, out);
    return out->begin_lsn <= snapshot;
}

uint64_t memtable_end_lsn(const struct memtable *table, uint32_t row)
{
    const struct slot *slot = memtable_slot(table, row);
    uint64_t end_lsn = memtable_slot_end_lsn(slot); /* of one whose record is still to come there is nothing to read */
    return memtable_slot_record(slot) ? end_lsn : 0;
}

const uint8_t *memtable_record_code(const struct memtable *table, const struct memtable_record *record, float *f)
{
    float norm2;
    if (!record->has_vector)
        return memtable_cell_code(table, record, f, &norm2);
    *f = bytes_load_f32(record->bytes + table->space.code_dim);
    return record->bytes;
}

const uint8_t *memtable_record_length(const struct memtable *table, const struct memtable_record *record)
{
    return record->bytes + (record->has_vector ? table->stored_bytes - MEMTABLE_LENGTH_BYTES : 0);
}

/* Of a row of a coded table. */
static void take_factors(const struct memtable *table, const struct memtable_record *record, float f,
                         uint8_t factors[UNIT_CODE_FACTOR_BYTES])
{
    bytes_store_f32(factors, f);
    memcpy(factors + sizeof f, memtable_record_length(table, record), MEMTABLE_LENGTH_BYTES);
}

void memtable_row_stored(const struct memtable *table, uint32_t row, void *out)
{
    const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
    uint8_t *bytes = out;
    if (record->has_vector) {
        memcpy(bytes, record->bytes, table->stored_bytes);
        return;
    }
    float f;
    memcpy(bytes, memtable_record_code(table, record, &f), table->space.code_dim);
    take_factors(table, record, f, bytes + table->space.code_dim);
}

void memtable_vector(const struct memtable *table, uint32_t row, float *scratch, float *out)
{
    const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
    uint8_t factors[UNIT_CODE_FACTOR_BYTES];
    if (!table->coded) {
        space_floats(table->config.type, record->bytes, table->config.dim, out);
        return;
    }
    float f;
    const uint8_t *code = memtable_record_code(table, record, &f);
    take_factors(table, record, f, factors);
    unit_code_decode(&table->space.rotation, code, factors, table->config.dim, scratch, out);
}

void memtable_get_stats(const struct memtable *table, struct memtable_stats *out)
{
    *out = (struct memtable_stats){.rows = atomic_load(&table->living),
                                   .dead = atomic_load(&table->dead),
                                   .row_end = atomic_load(&table->row_end),
                                   .bytes = atomic_load(&table->bytes)};
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* The chain of free rows, and then the queue of the dead. */
static int verify_chains(const struct memtable *table, uint32_t n_free, uint32_t n_dead, struct quire_error *reason)
{
    uint32_t n = 0;
    for (uint32_t row = table->free_row; row != MEMTABLE_NONE && n <= n_free; n++) {
        if (row >= atomic_load(&table->row_end) || memtable_slot_record(memtable_slot(table, row)))
            return error_set(reason, QUIRE_ECORRUPT, "row %u is in the chain of free rows but holds something", row);
        row = (uint32_t)memtable_slot_end_lsn(memtable_slot(table, row));
    }
    if (n != n_free)
        return error_set(reason, QUIRE_ECORRUPT, "%u rows are free, their chain has %u", n_free, n);
    n = 0;
    uint64_t before = 0;
    for (uint32_t row = table->dead_first; row != MEMTABLE_NONE && n <= n_dead; n++) {
        const struct slot *slot = memtable_slot(table, row);
        if (!memtable_slot_record(slot) || memtable_slot_end_lsn(slot) == MEMTABLE_LSN_MAX ||
            memtable_slot_end_lsn(slot) < before)
            return error_set(reason, QUIRE_ECORRUPT, "row %u is in the queue of the dead out of its order", row);
        before = memtable_slot_end_lsn(slot);
        row = memtable_slot_record(slot)->next_dead;
    }
    if (n != n_dead)
        return error_set(reason, QUIRE_ECORRUPT, "%u rows are dead, their queue has %u", n_dead, n);
    return 0;
}

int memtable_check(const struct memtable *table, struct quire_error *reason)
{
    uint32_t row_end = atomic_load(&table->row_end), n_free = 0, n_dead = 0;
    for (uint32_t row = 0; row < row_end; row++) {
        const struct slot *slot = memtable_slot(table, row);
        if (!memtable_slot_record(slot))
            n_free++;
        else if (memtable_slot_end_lsn(slot) != MEMTABLE_LSN_MAX)
            n_dead++;
        if (memtable_slot_record(slot) && memtable_slot_begin_lsn(slot) > memtable_slot_end_lsn(slot))
            return error_set(reason, QUIRE_ECORRUPT, "row %u died before it was born", row);
    }
    if (n_dead != atomic_load(&table->dead) || row_end - n_free - n_dead != atomic_load(&table->living))
        return error_set(reason, QUIRE_ECORRUPT, "of %u rows %u are free and %u dead; counted: %u living, %u dead",
                         row_end, n_free, n_dead, atomic_load(&table->living), atomic_load(&table->dead));
    int rc = verify_chains(table, n_free, n_dead, reason);
    if (rc == 0)
        rc = memtable_keys_check(table, reason);
    return rc == 0 && memtable_cells(table) ? memtable_cells_check(table, reason) : rc;
}
