/*
 * lineage_apply.c - what a leader's writes did, done to a copy; and publications carried out.
 *
 * An element is somewhere here: in a memtable, found by its key, or in a sealed part, at one of the places that the
 * effect names. Of those places some may be of segments that are on their way: rows there end, too, in the bitmap that
 * goes with them. At least one place must be of a segment that is here or on its way; otherwise this copy and its
 * leader have parted.
 */
#include "index/attribute/grants.h"
#include "index/attribute/number_set.h"
#include "index/collection/lineage_priv.h"
#include "index/segment/segment_view.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int parted(const struct collection *c, const struct effect *e, const char *why, struct quire_error *err)
{
    return error_set(err, QUIRE_ESTALE,
                     "write %llu cannot be done to this copy of set %llu, which has %llu: %s; copy it "
                     "anew",
                     (unsigned long long)e->seq, (unsigned long long)c->uid,
                     (unsigned long long)c->lineage->identity.seq, why);
}

static int damaged(const struct effect *e, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "write %llu of a set's leader is damaged", (unsigned long long)e->seq);
}

/* (lock) 1: it is the next; 0: it was done before. */
static int check_number(const struct collection *c, const struct effect *e, struct quire_error *err)
{
    if (atomic_load(&c->dropped))
        return error_set(err, QUIRE_ECLOSED, "the collection was removed");
    if (!c->lineage || !c->lineage->is_replica)
        return error_set(err, QUIRE_EINVALID, "set %llu is not a copy", (unsigned long long)c->uid);
    if (e->seq <= c->lineage->identity.seq)
        return 0;
    return e->seq == c->lineage->identity.seq + 1 ? 1 : parted(c, e, "writes before it are missing", err);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static void add_end(struct lineage *l, uint64_t uid, uint32_t row)
{
    assert(l->n_ends < EFFECT_PLACES_MAX);
    l->ends[l->n_ends].uid = uid;
    l->ends[l->n_ends++].row = row;
}

/* (lock) Where the element is, and in lineage->ends what ends besides. */
static int find_element(struct collection *c, const struct effect *e, struct element_place *out,
                        struct quire_error *err)
{
    struct lineage *l = c->lineage;
    bool known = e->n_places == 0;
    *out = (struct element_place){.table = NULL};
    l->n_ends = 0;
    for (uint32_t i = 0; i < c->view->n_memtables && !out->table; i++) {
        out->row = memtable_find(c->view->memtables[i]->memtable, e->key, e->key_bytes);
        if (out->row != MEMTABLE_NONE) {
            out->table = c->view->memtables[i];
            out->newest = i == 0;
        }
    }
    for (uint32_t i = 0; i < e->n_places && i < EFFECT_PLACES_MAX; i++) {
        struct part *part = lineage_part(c, e->places[i].segment);
        struct told *told = part ? NULL : lineage_find(c, e->places[i].segment);
        uint32_t row = e->places[i].row;
        if (part ? row >= segment_info(part->segment)->rows : told && row >= told->rows)
            return damaged(e, err);
        known |= part || told;
        if (told)
            add_end(l, told->part->uid, row);
        else if (part && !part_is_dead(part, row) && !out->table && !out->part) {
            out->part = part;
            out->part_row = row;
        } else if (part && !part_is_dead(part, row)) {
            add_end(l, part->uid, row);
        }
    }
    return known ? 0 : parted(c, e, "it ends a row of a segment that nobody has told of", err);
}

/* (lock) After they were logged. */
static void end_others(struct collection *c)
{
    struct lineage *l = c->lineage;
    for (uint32_t i = 0; i < l->n_ends; i++) {
        struct told *told = lineage_find_uid(c, l->ends[i].uid);
        struct part *part = told ? told->part : view_part(c->view, l->ends[i].uid);
        int killed = part_kill(part, l->ends[i].row);
        assert(killed >= 0); /* there is room for all rows */
    }
    l->n_ends = 0;
}

static int check_element(const struct collection *c, const struct effect *e, struct quire_error *err)
{
    const char *json;
    uint32_t json_bytes, n;
    bool sound = e->key_bytes > 0 && e->key_bytes <= QUIRE_KEY_BYTES_MAX && e->n_places <= EFFECT_PLACES_MAX &&
                 grants_split(e->text, e->text_bytes, &json, &json_bytes, &n) == 0;
    if (e->kind == EFFECT_PUT)
        sound = sound && e->stored_bytes == memtable_stored_bytes(&c->table_config) &&
                (!c->config.numbered || e->key_bytes > NUMBER_BYTES);
    return sound ? 0 : damaged(e, err);
}

/* (lock, in an epoch) MEMTABLE_TOO_LONG: it needs another memtable. */
static int apply_element(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    struct element_place place;
    struct record_element element = {.key = e->key,
                                     .key_bytes = e->key_bytes,
                                     .stored = e->kind == EFFECT_PUT ? e->stored : NULL,
                                     .stored_bytes = e->kind == EFFECT_PUT ? e->stored_bytes : 0,
                                     .attributes = e->kind == EFFECT_REMOVE || !e->text_bytes ? NULL : e->text,
                                     .attribute_bytes = e->kind == EFFECT_REMOVE ? 0 : e->text_bytes};
    int fits = e->kind == EFFECT_PUT ? memtable_check_stored(c->view->memtables[0]->memtable, e->stored, err) : 0;
    int rc = fits ? fits : find_element(c, e, &place, err);
    if (rc != 0)
        return rc;
    element.ended_uid = place.part ? place.part->uid : 0;
    element.ended_row = place.part_row;
    if (e->kind == EFFECT_TEXT) {
        rc = place.table ? collection_write_text(c, &place, &element, lsn, err)
                         : parted(c, e, "the element is not in memory", err);
    } else if (e->kind == EFFECT_PUT) {
        rc = collection_put_row(c, &place, &element, lsn, err);
    } else {
        uint32_t n_bytes;
        uint8_t *bytes = collection_record_element(c->uid, &element, &n_bytes);
        rc = collection_append(c, RECORD_REMOVE, bytes, n_bytes, lsn, err);
        if (rc == 0 && (place.table || place.part)) {
            collection_count_attributes(c, &place, NULL, 0);
            collection_end_place(&place, *lsn);
            atomic_fetch_sub_explicit(&c->n_elements, 1, memory_order_relaxed);
        }
        if (rc == 0)
            collection_seen(c, *lsn);
    }
    if (rc == 0) {
        end_others(c);
        collection_watch_memtable(c);
    }
    c->lineage->n_ends = 0;
    return rc;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* (lock) The number alone. */
static int log_number(struct collection *c, uint64_t *lsn, struct quire_error *err)
{
    struct journal_record records[LINEAGE_RECORDS_MAX];
    unsigned n = lineage_add_records(c, records, 0, 1);
    int rc = journal_append(c->host->journal, records, n, lsn, err);
    if (rc == 0) {
        lineage_advance(c, 1);
        collection_seen(c, *lsn);
    }
    return rc;
}

/* (lock) */
static int apply_end_rows(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    struct part *part = lineage_part(c, e->segment);
    struct told *told = part ? NULL : lineage_find(c, e->segment);
    uint64_t rows = part ? segment_info(part->segment)->rows : told ? told->rows : UINT64_MAX;
    uint32_t n_bytes;
    for (uint32_t i = 0; i < e->n_rows; i++)
        if (e->rows[i] >= rows)
            return damaged(e, err);
    if (!part && !told)
        return log_number(c, lsn, err);
    int rc;
    if (part) {
        uint32_t *copy = malloc(4 * (size_t)e->n_rows + 1);
        if (!copy)
            return error_set(err, QUIRE_ENOMEM, "no memory for rows that end");
        if (e->n_rows)
            memcpy(copy, e->rows, 4 * (size_t)e->n_rows);
        rc = collection_end_rows(c, part, copy, e->n_rows, err);
        *lsn = c->last_lsn;
        free(copy);
        return rc;
    }
    uint8_t *record = collection_record_void_rows(c->uid, told->part->uid, e->rows, e->n_rows, &n_bytes);
    rc = collection_append(c, RECORD_VOID_ROWS, record, n_bytes, lsn, err);
    for (uint32_t i = 0; rc == 0 && i < e->n_rows; i++)
        part_kill(told->part, e->rows[i]);
    if (rc == 0)
        collection_seen(c, *lsn);
    return rc;
}

/* (lock) */
static int apply_history(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    struct lineage_identity next = c->lineage->identity;
    struct journal_record record = {.kind = RECORD_IDENTITY};
    if (lineage_is_zero(e->history))
        return damaged(e, err);
    if (e->upto != c->lineage->identity.seq)
        return parted(c, e, "who has taken the lead did not have all that is here", err);
    if (c->lineage->n_told > 0) /* the new leader does not know where rows were before */
        return parted(c, e, "another has taken the lead while segments were on their way", err);
    memcpy(next.history, e->history, LINEAGE_ID_BYTES);
    next.begins = next.seq = e->seq;
    uint8_t *bytes = lineage_record_identity(c, &next, &record.n_bytes);
    record.bytes = bytes;
    int rc = bytes ? journal_append(c->host->journal, &record, 1, lsn, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory for the record of a collection's identity");
    free(bytes);
    if (rc == 0) {
        c->lineage->identity = next;
        collection_seen(c, *lsn);
    }
    return rc;
}

/* (lock) */
static int apply_tenant(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    if (grants_check_tenant(e->key, e->key_bytes, NULL) < 0)
        return damaged(e, err);
    return collection_append_drop(c, e->key, e->key_bytes, e->generation, lsn, err);
}

static int apply_edit(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    struct part *part = NULL;
    struct told next;
    bool sound = e->segment_rows < UINT32_MAX && (e->segment_rows > 0 || lineage_is_zero(e->segment));
    for (uint32_t i = 0; sound && i < e->n_rows; i++)
        sound = e->rows[i] < e->segment_rows;
    if (!sound)
        return damaged(e, err);
    if (!c->host->new_segment)
        return error_set(err, QUIRE_EUNSUPPORTED, "this host keeps no copies");
    uint64_t uid = c->host->new_segment(c->host->context); /* not under the lock: it has one that comes before */
    int rc = part_create(uid, &part, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    if (c->lineage->n_told >= LINEAGE_TOLD_MAX)
        rc = parted(c, e, "too many segments are on their way", err);
    if (rc == 0)
        rc = lineage_prepare_told(c, e, part, &next, err);
    if (rc == 0) {
        uint32_t n_bytes;
        uint8_t *bytes = lineage_record_told(c, e, uid, &n_bytes);
        rc = collection_append(c, RECORD_TOLD, bytes, n_bytes, lsn, err);
        if (rc == 0) {
            lineage_commit_told(c, &next);
            collection_seen(c, *lsn);
            part = NULL;
        } else {
            free(next.gone);
        }
    }
    pthread_mutex_unlock(&c->lock);
    part_unref(part);
    return rc;
}

/* Cuts the memtable, which its leader has cut; or, by itself, because of a vector that needs another. */
static int cut(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    if (journal_in_batch(c->host->journal))
        return error_set(err, QUIRE_EINVALID, "a leader's writes are done outside of batches");
    journal_quiesce_begin(c->host->journal);
    int rc = collection_freeze(c, err);
    journal_quiesce_end(c->host->journal);
    if (rc < 0 || !e)
        return rc;
    uint8_t *bytes = malloc(FREEZE_RECORD_BYTES);
    uint64_t number = e->upto ? e->upto : e->seq;
    pthread_mutex_lock(&c->lock);
    if (bytes)
        lineage_encode_freeze(c, number, 0, bytes);
    rc = collection_append(c, RECORD_FREEZE, bytes, FREEZE_RECORD_BYTES, lsn, err);
    if (rc == 0) {
        collection_seen(c, *lsn);
        lineage_name_cuts(c, number);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static int apply_locked(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    switch (e->kind) {
    case EFFECT_DROP_TENANT:
        return apply_tenant(c, e, lsn, err);
    case EFFECT_END_ROWS:
        return apply_end_rows(c, e, lsn, err);
    case EFFECT_HISTORY:
        return apply_history(c, e, lsn, err);
    default:
        return apply_element(c, e, lsn, err);
    }
}

int lineage_apply(struct collection *c, const struct effect *e, uint64_t *lsn, struct quire_error *err)
{
    struct epochs *epochs = c->host->epochs;
    bool is_element = e->kind == EFFECT_PUT || e->kind == EFFECT_REMOVE || e->kind == EFFECT_TEXT;
    *lsn = 0;
    if (e->kind < EFFECT_PUT || e->kind >= EFFECT_KINDS_END)
        return error_set(err, QUIRE_EVERSION, "a write of kind %d, which this version does not know", (int)e->kind);
    int rc = is_element ? check_element(c, e, err) : 0;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    int next = check_number(c, e, err);
    pthread_mutex_unlock(&c->lock);
    if (next <= 0)
        return next;
    if (e->kind == EFFECT_EDIT)
        return apply_edit(c, e, lsn, err);
    if (e->kind == EFFECT_FREEZE)
        return cut(c, e, lsn, err);
    do {
        unsigned epoch = epoch_enter(epochs);
        pthread_mutex_lock(&c->lock);
        rc = apply_locked(c, e, lsn, err);
        pthread_mutex_unlock(&c->lock);
        epoch_exit(epochs, epoch);
    } while (rc == MEMTABLE_TOO_LONG && (rc = cut(c, NULL, NULL, err)) == 0);
    return rc;
}

/* ---- publications ------------------------------------------------------------------------------------------------ */

/* (lock) What goes: references, in lists of the edit's own. */
static int list_gone(struct collection *c, const struct told *told, struct part ***parts, struct memtable_ref ***tables,
                     struct collection_edit *edit)
{
    const struct view *view = c->view;
    *parts = calloc(told->n_gone + 1u, sizeof(struct part *));
    *tables = calloc(view->n_memtables + 1u, sizeof(struct memtable_ref *));
    if (!*parts || !*tables)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < told->n_gone; i++)
        (*parts)[edit->n_removed_parts++] = part_ref(lineage_part(c, told->gone[i]));
    for (uint32_t i = 1; told->upto && i < view->n_memtables; i++)
        if (view->memtables[i]->last_seq <= told->upto)
            (*tables)[edit->n_removed_memtables++] = memtable_ref(view->memtables[i]);
    edit->removed_parts = *parts;
    edit->removed_memtables = *tables;
    return 0;
}

/* (lock) The tombstones that were noted meanwhile. */
static int take_dead(const struct told *told, struct part *part, struct collection_edit *edit, uint32_t **dead)
{
    *dead = malloc(4 * (size_t)atomic_load_explicit(&told->part->n_dead, memory_order_relaxed) + 1);
    if (!*dead)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; part && row < told->part->dead_end; row++)
        if (part_is_dead(told->part, row) && part_kill(part, row) == 1)
            (*dead)[edit->n_dead++] = row;
    edit->dead = *dead;
    return 0;
}

int lineage_adopt(struct collection *c, uint64_t uid, struct part *part, struct collection_edit *edit, uint64_t *lsn,
                  struct quire_error *err)
{
    struct view *gone = NULL;
    struct part **parts = NULL;
    struct memtable_ref **tables = NULL;
    uint32_t *dead = NULL;
    *edit = (struct collection_edit){.added = part};
    pthread_mutex_lock(&c->lock);
    struct told *told = lineage_find_uid(c, uid);
    int rc =
        !told ? error_set(err, QUIRE_ENOTFOUND, "segment %llu is not awaited any more", (unsigned long long)uid)
        : (part != NULL) == lineage_is_zero(told->segment)
            ? error_set(err, QUIRE_EINVALID, "segment %llu and what was told of it differ", (unsigned long long)uid)
        : !lineage_told_is_ready(c, told)
            ? error_set(err, QUIRE_EBUSY, "segment %llu waits for others", (unsigned long long)uid)
            : 0;
    if (rc == 0 && (list_gone(c, told, &parts, &tables, edit) < 0 || take_dead(told, part, edit, &dead) < 0))
        rc = error_set(err, QUIRE_ENOMEM, "no memory to publish a segment");
    if (rc == 0)
        rc = collection_publish_locked(c, edit, &gone, lsn, err);
    bool counts = rc == 0 && told->required && !view_is_adoption(edit); /* it brings rows that nothing here had */
    if (rc == 0)
        lineage_remove_told(c, told);
    if (counts)
        collection_recount(c);
    pthread_mutex_unlock(&c->lock);
    view_unref(gone);
    free(dead);
    edit->dead = NULL;
    edit->removed_parts = parts;
    edit->removed_memtables = tables;
    if (rc < 0)
        lineage_edit_free(edit);
    return rc;
}

void lineage_edit_free(struct collection_edit *edit)
{
    assert(edit->removed_parts || edit->n_removed_parts == 0);
    assert(edit->removed_memtables || edit->n_removed_memtables == 0);
    for (uint32_t i = 0; i < edit->n_removed_parts; i++)
        part_unref(edit->removed_parts[i]);
    for (uint32_t i = 0; i < edit->n_removed_memtables; i++)
        memtable_unref(edit->removed_memtables[i]);
    free((void *)(uintptr_t)edit->removed_parts);
    free((void *)(uintptr_t)edit->removed_memtables);
    *edit = (struct collection_edit){.added = NULL};
}
