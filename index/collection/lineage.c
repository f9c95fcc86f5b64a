/*
 * lineage.c - who a collection is, the numbers of its writes, and what is told of them.
 *
 * The number of a write stands in the frame of its record, not in the record: journals of collections without a lineage
 * are what they were. A frame holds the record that says what happened to this collection, then rows of other segments
 * that end with it (copies only: an element's row in a segment that is on its way), then RECORD_SEQ.
 *
 * A told publication that a later one has overtaken is never carried out: the two become one, which takes away what
 * both do, but for what the first would have brought.
 */
#include "index/collection/lineage_priv.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int random_bytes(uint8_t out[LINEAGE_ID_BYTES], struct quire_error *err)
{
    do
        if (getrandom(out, LINEAGE_ID_BYTES, 0) != (ssize_t)LINEAGE_ID_BYTES)
            return error_set_errno(err, errno, "get", "random bytes");
    while (lineage_is_zero(out));
    return 0;
}

static void told_free(struct told *told)
{
    part_unref(told->part);
    free(told->gone);
}

void lineage_free(struct lineage *lineage)
{
    if (!lineage)
        return;
    for (uint32_t i = 0; i < lineage->n_told; i++)
        told_free(&lineage->told[i]);
    free(lineage->told);
    free(lineage->cuts);
    free(lineage);
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

/* (lock) Logs it without a number of its own. */
static int log_identity(struct collection *c, const struct lineage_identity *identity, uint64_t *lsn,
                        struct quire_error *err)
{
    uint32_t n_bytes;
    struct journal_record record = {.kind = RECORD_IDENTITY};
    assert(lock_is_held(&c->lock));
    if (atomic_load(&c->dropped))
        return error_set(err, QUIRE_ECLOSED, "the collection was removed");
    uint8_t *bytes = lineage_record_identity(c, identity, &n_bytes);
    record.bytes = bytes;
    record.n_bytes = n_bytes;
    int rc = bytes ? journal_append(c->host->journal, &record, 1, lsn, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory for the record of a collection's identity");
    free(bytes);
    if (rc == 0)
        collection_seen(c, *lsn);
    return rc;
}

int lineage_begin(struct collection *c, const struct lineage_identity *identity, uint64_t *lsn, struct quire_error *err)
{
    struct lineage *lineage = calloc(1, sizeof *lineage);
    int rc = lineage ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a collection's identity");
    if (rc == 0 && identity)
        lineage->identity = *identity;
    else if (rc == 0 && (rc = random_bytes(lineage->identity.id, err)) == 0)
        rc = random_bytes(lineage->identity.history, err);
    if (rc == 0 && !identity)
        lineage->identity.begins = lineage->identity.seq = 1;
    if (rc == 0 && (lineage_is_zero(lineage->identity.id) || lineage_is_zero(lineage->identity.history)))
        rc = error_set(err, QUIRE_EINVALID, "the id of a collection, or of its history, is zero");
    pthread_mutex_lock(&c->lock);
    if (rc == 0 && c->lineage)
        rc = error_set(err, QUIRE_EEXISTS, "the collection has an identity already");
    if (rc == 0)
        rc = log_identity(c, &lineage->identity, lsn, err);
    if (rc == 0) {
        c->lineage = lineage;
        for (uint32_t i = 1; i < c->view->n_memtables; i++)
            c->view->memtables[i]->last_seq = lineage->identity.seq;
        lineage = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    lineage_free(lineage);
    return rc;
}

bool lineage_get(struct collection *c, struct lineage_identity *out)
{
    pthread_mutex_lock(&c->lock);
    bool has = c->lineage != NULL;
    if (has && out)
        *out = c->lineage->identity;
    pthread_mutex_unlock(&c->lock);
    return has;
}

static int no_lineage(const struct collection *c, struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "set %llu has no identity: it has no copies", (unsigned long long)c->uid);
}

/* (lock) */
static int begin_history(struct collection *c, const uint8_t history[LINEAGE_ID_BYTES], uint64_t *lsn,
                         struct quire_error *err)
{
    struct effect effect = {.kind = EFFECT_HISTORY};
    struct lineage_identity next = c->lineage->identity, before = next;
    effect.of = &before;
    memcpy(effect.history, history, LINEAGE_ID_BYTES);
    memcpy(next.history, history, LINEAGE_ID_BYTES);
    effect.upto = c->lineage->n_told > 0 ? 0 : before.seq;
    next.begins = ++next.seq;
    int rc = log_identity(c, &next, lsn, err);
    if (rc < 0)
        return rc;
    c->lineage->identity = next;
    lineage_give_up_told(c);
    c->lineage->is_replica = false;
    lineage_tell(c, &effect);
    return 0;
}

int lineage_begin_history(struct collection *c, uint64_t *lsn, struct quire_error *err)
{
    uint8_t history[LINEAGE_ID_BYTES];
    int rc = random_bytes(history, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    rc = !c->lineage ? no_lineage(c, err) : c->lineage->is_replica ? lineage_refuse(c, err) : 0;
    if (rc == 0)
        rc = begin_history(c, history, lsn, err);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int lineage_take_lead(struct collection *c, uint64_t *lsn, struct quire_error *err)
{
    uint8_t history[LINEAGE_ID_BYTES];
    uint32_t missing = lineage_missing(c);
    int rc = random_bytes(history, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->lock);
    rc = !c->lineage   ? no_lineage(c, err)
         : missing > 0 ? error_set(err, QUIRE_EBUSY, "%u segments of set %llu are not here: it cannot take the lead",
                                   missing, (unsigned long long)c->uid)
                       : 0;
    if (rc == 0) {
        lineage_name_cuts(c, c->lineage->identity.seq);
        rc = begin_history(c, history, lsn, err);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void lineage_give_up_told(struct collection *c)
{
    while (c->lineage->n_told > 0)
        lineage_remove_told(c, &c->lineage->told[0]);
}

int lineage_set_replica(struct collection *c, bool is_replica, struct quire_error *err)
{
    pthread_mutex_lock(&c->lock);
    int rc = c->lineage ? 0 : no_lineage(c, err);
    if (rc == 0 && !is_replica && c->lineage->n_told > 0)
        rc = error_set(err, QUIRE_EBUSY, "%u segments of set %llu are not here yet: it cannot take the lead",
                       c->lineage->n_told, (unsigned long long)c->uid);
    if (rc == 0 && !is_replica)
        lineage_name_cuts(c, c->lineage->identity.seq);
    if (rc == 0)
        c->lineage->is_replica = is_replica;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int lineage_become(struct collection *c, const struct lineage_identity *identity, uint64_t *lsn,
                   struct quire_error *err)
{
    pthread_mutex_lock(&c->lock);
    int rc = c->lineage ? log_identity(c, identity, lsn, err) : no_lineage(c, err);
    if (rc == 0)
        c->lineage->identity = *identity;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void lineage_name_cuts(struct collection *c, uint64_t seq)
{
    assert(lock_is_held(&c->lock));
    for (uint32_t i = 1; i < c->view->n_memtables; i++)
        if (c->view->memtables[i]->last_seq == CUT_HERE)
            c->view->memtables[i]->last_seq = seq;
}

bool lineage_is_replica(const struct collection *c)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&c->lock;
    pthread_mutex_lock(lock);
    bool is = c->lineage && c->lineage->is_replica;
    pthread_mutex_unlock(lock);
    return is;
}

int lineage_cancel(const struct collection *c, struct quire_error *err)
{
    return error_set(err, QUIRE_ECANCELLED, "set %llu has become a copy: its leader seals and merges",
                     (unsigned long long)c->uid);
}

int lineage_refuse(const struct collection *c, struct quire_error *err)
{
    return error_set(err, QUIRE_EPERM, "set %llu is a copy: write to where it is copied from",
                     (unsigned long long)c->uid);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

unsigned lineage_add_records(struct collection *c, struct journal_record *records, unsigned n, uint32_t effects)
{
    struct lineage *l = c->lineage;
    assert(lock_is_held(&c->lock) && l->n_ends <= EFFECT_PLACES_MAX);
    for (uint32_t i = 0; i < l->n_ends; i++) {
        uint8_t *bytes = l->end_records[i];
        bytes_store_u64(bytes, c->uid);
        bytes_store_u64(bytes + 8, l->ends[i].uid);
        bytes_store_u32(bytes + 16, 1);
        bytes_store_u32(bytes + 20, 0);
        bytes_store_u32(bytes + 24, l->ends[i].row);
        records[n++] = (struct journal_record){.kind = RECORD_VOID_ROWS, .bytes = bytes, .n_bytes = END_RECORD_BYTES};
    }
    bytes_store_u64(l->seq_record, c->uid);
    bytes_store_u64(l->seq_record + 8, l->identity.seq + effects);
    records[n++] = (struct journal_record){.kind = RECORD_SEQ, .bytes = l->seq_record, .n_bytes = sizeof l->seq_record};
    return n;
}

void lineage_advance(struct collection *c, uint32_t effects)
{
    assert(lock_is_held(&c->lock) && effects > 0);
    c->lineage->identity.seq += effects;
}

int lineage_log_freeze(struct collection *c, struct quire_error *err)
{
    struct effect effect = {.kind = EFFECT_FREEZE};
    uint64_t lsn;
    uint8_t *bytes = malloc(FREEZE_RECORD_BYTES);
    if (bytes)
        lineage_encode_freeze(c, c->lineage->identity.seq + 1, 0, bytes);
    int rc = collection_append(c, RECORD_FREEZE, bytes, FREEZE_RECORD_BYTES, &lsn, err);
    if (rc < 0)
        return rc;
    collection_seen(c, lsn);
    lineage_tell(c, &effect);
    return 0;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

void lineage_tell(struct collection *c, struct effect *effect)
{
    assert(lock_is_held(&c->lock));
    if (!c->host->effect || c->lineage->is_replica)
        return;
    if (effect->seq == 0)
        effect->seq = c->lineage->identity.seq;
    if (!effect->of)
        effect->of = &c->lineage->identity;
    c->host->effect(c->host->context, c, effect);
}

struct part_origins {
    atomic_uint references;
    uint32_t n_sources, n_rows;
    struct origin_source {
        uint8_t segment[LINEAGE_ID_BYTES];
        struct part_origins *before; /* a reference, or NULL */
    } * sources;
    struct {
        uint32_t source, row; /* source UINT32_MAX: from a memtable */
    } rows[];
};

void lineage_origins_unref(struct part_origins *o)
{
    if (!o || atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < o->n_sources; i++)
        lineage_origins_unref(o->sources[i].before);
    free(o->sources);
    free(o);
}

int lineage_make_origins(struct part *added, struct part *const *parts, uint32_t n, uint32_t *const *rows_of)
{
    uint64_t rows = segment_info(added->segment)->rows;
    struct part_origins *o = malloc(sizeof *o + rows * sizeof o->rows[0]);
    struct origin_source *sources = calloc(n + 1u, sizeof *sources);
    assert(!added->origins && rows < UINT32_MAX);
    if (!o || !sources) {
        free(o);
        free(sources);
        return QUIRE_ENOMEM;
    }
    atomic_init(&o->references, 1);
    o->n_sources = n;
    o->n_rows = (uint32_t)rows;
    o->sources = sources;
    memset(o->rows, 0xff, rows * sizeof o->rows[0]);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(sources[i].segment, parts[i]->segment->segment_id, LINEAGE_ID_BYTES);
        if (parts[i]->origins) {
            sources[i].before = parts[i]->origins;
            atomic_fetch_add_explicit(&sources[i].before->references, 1, memory_order_relaxed);
        }
        for (uint32_t row = 0; row < segment_info(parts[i]->segment)->rows; row++)
            if (rows_of[i][row] != UINT32_MAX && rows_of[i][row] < rows) {
                o->rows[rows_of[i][row]].source = i;
                o->rows[rows_of[i][row]].row = row;
            }
    }
    added->origins = o;
    return 0;
}

void lineage_forget_origins(struct collection *c, const uint8_t segment[LINEAGE_ID_BYTES])
{
    struct part_origins *gone = NULL;
    pthread_mutex_lock(&c->lock);
    struct part *part = lineage_part(c, segment);
    if (part) {
        gone = part->origins;
        part->origins = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    lineage_origins_unref(gone);
}

/* The row, and where it was before. More than EFFECT_PLACES_MAX merges ago no copy can be that has not gone along. */
static void add_places(struct effect *effect, const struct part *part, uint32_t row)
{
    const struct part_origins *o = part->origins;
    memcpy(effect->places[0].segment, part->segment->segment_id, LINEAGE_ID_BYTES);
    effect->places[0].row = row;
    effect->n_places = 1;
    while (o && effect->n_places < EFFECT_PLACES_MAX && row < o->n_rows && o->rows[row].source < o->n_sources) {
        const struct origin_source *source = &o->sources[o->rows[row].source];
        row = o->rows[row].row;
        memcpy(effect->places[effect->n_places].segment, source->segment, LINEAGE_ID_BYTES);
        effect->places[effect->n_places++].row = row;
        o = source->before;
    }
}

void lineage_tell_element(struct collection *c, enum effect_kind kind, const struct record_element *e,
                          const struct element_place *ended)
{
    struct effect effect = {.kind = kind,
                            .key = e->key,
                            .key_bytes = e->key_bytes,
                            .stored = e->stored,
                            .stored_bytes = e->stored_bytes,
                            .text = e->attributes,
                            .text_bytes = e->attribute_bytes};
    if (!c->host->effect || c->lineage->is_replica)
        return;
    if (ended && ended->part)
        add_places(&effect, ended->part, ended->part_row);
    lineage_tell(c, &effect);
}

void lineage_tell_edit(struct collection *c, const struct collection_edit *edit, const struct element_place *replaced)
{
    const uint64_t last = c->lineage->identity.seq;
    uint64_t n_dead = edit->n_dead;
    struct effect effect = {.kind = EFFECT_EDIT, .seq = last - edit->n_replaced, .required = view_is_adoption(edit)};
    const uint32_t *dead = edit->ended ? collection_ended_rows(edit->ended, &n_dead) : edit->dead;
    if (!c->host->effect)
        return;
    assert(edit->n_removed_parts == 0 || edit->gone);
    for (uint32_t i = 0; i < edit->n_removed_parts; i++)
        memcpy(edit->gone[i], edit->removed_parts[i]->segment->segment_id, LINEAGE_ID_BYTES);
    effect.gone = (const uint8_t(*)[LINEAGE_ID_BYTES])edit->gone;
    effect.n_gone = edit->n_removed_parts;
    effect.gone_parts = edit->removed_parts;
    effect.rows = dead;
    effect.n_rows = (uint32_t)n_dead;
    for (uint32_t i = 0; i < edit->n_removed_memtables; i++)
        if (edit->removed_memtables[i]->last_seq > effect.upto)
            effect.upto = edit->removed_memtables[i]->last_seq;
    if (edit->added) {
        memcpy(effect.segment, edit->added->segment->segment_id, LINEAGE_ID_BYTES);
        effect.segment_rows = segment_info(edit->added->segment)->rows;
        effect.segment_bytes = segment_info(edit->added->segment)->index_bytes;
    }
    lineage_tell(c, &effect);
    for (uint32_t i = 0; i < edit->n_replaced; i++) {
        struct effect removal = {.kind = EFFECT_REMOVE,
                                 .seq = effect.seq + 1 + i,
                                 .key = edit->replaced[i].key,
                                 .key_bytes = edit->replaced[i].key_bytes};
        if (replaced[i].part)
            add_places(&removal, replaced[i].part, replaced[i].part_row);
        lineage_tell(c, &removal);
    }
}

/* ---- what was told ----------------------------------------------------------------------------------------------- */

struct part *lineage_part(const struct collection *c, const uint8_t segment[LINEAGE_ID_BYTES])
{
    for (uint32_t i = 0; i < c->view->n_parts; i++)
        if (c->view->parts[i]->segment &&
            memcmp(c->view->parts[i]->segment->segment_id, segment, LINEAGE_ID_BYTES) == 0)
            return c->view->parts[i];
    return NULL;
}

struct told *lineage_find_uid(const struct collection *c, uint64_t uid)
{
    for (uint32_t i = 0; c->lineage && i < c->lineage->n_told; i++)
        if (c->lineage->told[i].part->uid == uid)
            return &c->lineage->told[i];
    return NULL;
}

struct told *lineage_find(const struct collection *c, const uint8_t segment[LINEAGE_ID_BYTES])
{
    for (uint32_t i = 0; i < c->lineage->n_told; i++)
        if (memcmp(c->lineage->told[i].segment, segment, LINEAGE_ID_BYTES) == 0)
            return &c->lineage->told[i];
    return NULL;
}

void lineage_remove_told(struct collection *c, struct told *told)
{
    struct lineage *l = c->lineage;
    uint32_t i = (uint32_t)(told - l->told);
    assert(i < l->n_told);
    told_free(told);
    memmove(told, told + 1, (l->n_told - i - 1) * sizeof *told);
    l->n_told--;
}

static bool names(uint8_t (*ids)[LINEAGE_ID_BYTES], uint32_t n, const uint8_t id[LINEAGE_ID_BYTES])
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(ids[i], id, LINEAGE_ID_BYTES) == 0)
            return true;
    return false;
}

static uint32_t without(uint8_t (*ids)[LINEAGE_ID_BYTES], uint32_t n, const uint8_t id[LINEAGE_ID_BYTES])
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(ids[i], id, LINEAGE_ID_BYTES) != 0)
            memmove(ids[kept++], ids[i], LINEAGE_ID_BYTES);
    return kept;
}

static bool is_overtaken(const struct told *old, uint8_t (*gone)[LINEAGE_ID_BYTES], uint32_t n)
{
    return !lineage_is_zero(old->segment) && names(gone, n, old->segment);
}

static void add_cuts(struct told *to, uint64_t lowest, uint64_t upto)
{
    if (lowest && (!to->lowest || lowest < to->lowest))
        to->lowest = lowest;
    to->upto = upto > to->upto ? upto : to->upto;
}

/* Memtables go in the order in which they were cut, which is what the journal can say of them. So the cuts of one
 * publication must not lie around those of another: a copy that far behind is made anew. */
static bool lies_around(const struct told *a, const struct told *b)
{
    return a->upto && b->upto && a->lowest < b->lowest && b->lowest < a->upto;
}

int lineage_prepare_told(struct collection *c, const struct effect *edit, struct part *part, struct told *out,
                         struct quire_error *err)
{
    struct lineage *l = c->lineage;
    struct told next = {.part = part,
                        .n_gone = edit->n_gone,
                        .upto = edit->upto,
                        .lowest = edit->lowest ? edit->lowest : edit->upto,
                        .rows = edit->segment_rows,
                        .bytes = edit->segment_bytes,
                        .required = edit->required};
    size_t room = edit->n_gone;
    for (uint32_t i = 0; i < l->n_told; i++)
        room += l->told[i].n_gone;
    memcpy(next.segment, edit->segment, LINEAGE_ID_BYTES);
    next.gone = malloc((room + 1) * LINEAGE_ID_BYTES);
    if (!next.gone || !array_reserve(&l->told, &l->told_capacity, l->n_told + 1u) ||
        part_reserve(part, edit->segment_rows) < 0) {
        free(next.gone);
        return error_set(err, QUIRE_ENOMEM, "no memory for a publication of a copied set");
    }
    if (edit->n_gone)
        memcpy(next.gone, edit->gone, (size_t)edit->n_gone * LINEAGE_ID_BYTES);
    struct told all = next;
    bool crossed = false;
    for (uint32_t i = 0; i < l->n_told; i++)
        if (is_overtaken(&l->told[i], next.gone, next.n_gone))
            add_cuts(&all, l->told[i].lowest, l->told[i].upto);
    for (uint32_t i = 0; i < l->n_told; i++)
        crossed |= !is_overtaken(&l->told[i], next.gone, next.n_gone) &&
                   (lies_around(&all, &l->told[i]) || lies_around(&l->told[i], &all));
    if (crossed) {
        free(next.gone);
        return error_set(err, QUIRE_ESTALE,
                         "a publication takes the place of others around one that is on its way to "
                         "set %llu: copy it anew",
                         (unsigned long long)c->uid);
    }
    for (uint32_t i = 0; i < edit->n_rows; i++) {
        int killed = part_kill(part, edit->rows[i]);
        assert(killed >= 0); /* there is room for all rows */
    }
    *out = next;
    return 0;
}

void lineage_commit_told(struct collection *c, struct told *next)
{
    struct lineage *l = c->lineage;
    for (uint32_t i = 0; i < l->n_told;) {
        struct told *old = &l->told[i];
        if (!is_overtaken(old, next->gone, next->n_gone)) {
            i++;
            continue;
        }
        next->n_gone = without(next->gone, next->n_gone, old->segment);
        for (uint32_t k = 0; k < old->n_gone; k++)
            if (!names(next->gone, next->n_gone, old->gone[k]))
                memcpy(next->gone[next->n_gone++], old->gone[k], LINEAGE_ID_BYTES);
        add_cuts(next, old->lowest, old->upto);
        next->required |= old->required;
        lineage_remove_told(c, old);
    }
    assert(l->n_told < l->told_capacity);
    l->told[l->n_told++] = *next;
}

bool lineage_told_is_ready(const struct collection *c, const struct told *told)
{
    for (uint32_t i = 0; i < told->n_gone; i++)
        if (!lineage_part(c, told->gone[i]))
            return false;
    for (uint32_t i = 0; i < c->lineage->n_told; i++)
        if (told->upto && c->lineage->told[i].upto && c->lineage->told[i].lowest < told->lowest)
            return false;
    return true;
}

uint32_t lineage_list_told(struct collection *c, struct lineage_told *out, uint32_t n)
{
    pthread_mutex_lock(&c->lock);
    uint32_t all = c->lineage ? c->lineage->n_told : 0;
    for (uint32_t i = 0; i < all && i < n; i++) {
        const struct told *told = &c->lineage->told[i];
        out[i] = (struct lineage_told){.uid = told->part->uid,
                                       .rows = told->rows,
                                       .bytes = told->bytes,
                                       .required = told->required,
                                       .is_ready = lineage_told_is_ready(c, told)};
        memcpy(out[i].segment, told->segment, LINEAGE_ID_BYTES);
    }
    pthread_mutex_unlock(&c->lock);
    return all;
}

uint32_t lineage_missing(struct collection *c)
{
    uint32_t n = 0;
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; c->lineage && i < c->lineage->n_told; i++)
        n += c->lineage->told[i].required;
    pthread_mutex_unlock(&c->lock);
    return n;
}
