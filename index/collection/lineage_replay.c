/*
 * lineage_replay.c - a lineage's records: their bytes, and how it is made again from them.
 *
 *   IDENTITY  u64 uid, 16 id, 16 history, u64 begins, u64 seq
 *   SEQ       u64 uid, u64 seq
 *   FREEZE    u64 uid, u64 seq, u64 LSN (0: the record's own): rows begun up to there lie before the cut
 *   TOLD      u64 uid, u64 segment's uid here, 16 its id, u64 upto, u64 rows, u64 bytes, u32 required, u32 n that go,
 *             u32 dead rows, u32 0, u64 lowest; then 16 bytes per segment that goes, u32 per dead row
 *
 * Valid if and only if lengths fit, ids are not zero, and dead rows lie below the segment's rows.
 *
 * Where memtables were cut is noted while records are played back, since all rows go into one memtable meanwhile, and
 * cut again at the end: a publication that comes later takes away what lies before its cut and nothing else.
 */
#include "index/collection/lineage_priv.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/bytes.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define IDENTITY_RECORD_BYTES 56u
#define TOLD_HEADER_BYTES     80u
#define STATE_ENTRY_BYTES     8u /* of lineage_state: u32 kind, u32 bytes; then those */

uint8_t *lineage_record_identity(const struct collection *c, const struct lineage_identity *identity, uint32_t *n_bytes)
{
    uint8_t *bytes = malloc(IDENTITY_RECORD_BYTES);
    *n_bytes = IDENTITY_RECORD_BYTES;
    if (!bytes)
        return NULL;
    bytes_store_u64(bytes, c->uid);
    memcpy(bytes + 8, identity->id, LINEAGE_ID_BYTES);
    memcpy(bytes + 24, identity->history, LINEAGE_ID_BYTES);
    bytes_store_u64(bytes + 40, identity->begins);
    bytes_store_u64(bytes + 48, identity->seq);
    return bytes;
}

void lineage_encode_freeze(const struct collection *c, uint64_t seq, uint64_t lsn, uint8_t out[FREEZE_RECORD_BYTES])
{
    bytes_store_u64(out, c->uid);
    bytes_store_u64(out + 8, seq);
    bytes_store_u64(out + 16, lsn);
}

uint8_t *lineage_record_told(const struct collection *c, const struct effect *edit, uint64_t uid, uint32_t *n_bytes)
{
    uint64_t total = TOLD_HEADER_BYTES + (uint64_t)LINEAGE_ID_BYTES * edit->n_gone + 4 * (uint64_t)edit->n_rows;
    uint8_t *bytes = total < JOURNAL_RECORD_BYTES_MAX ? malloc(total) : NULL, *to = bytes + TOLD_HEADER_BYTES;
    *n_bytes = (uint32_t)total;
    if (!bytes)
        return NULL;
    bytes_store_u64(bytes, c->uid);
    bytes_store_u64(bytes + 8, uid);
    memcpy(bytes + 16, edit->segment, LINEAGE_ID_BYTES);
    bytes_store_u64(bytes + 32, edit->upto);
    bytes_store_u64(bytes + 40, edit->segment_rows);
    bytes_store_u64(bytes + 48, edit->segment_bytes);
    bytes_store_u32(bytes + 56, edit->required);
    bytes_store_u32(bytes + 60, edit->n_gone);
    bytes_store_u32(bytes + 64, edit->n_rows);
    bytes_store_u32(bytes + 68, 0);
    bytes_store_u64(bytes + 72, edit->lowest ? edit->lowest : edit->upto);
    if (edit->n_gone)
        memcpy(to, edit->gone, (size_t)LINEAGE_ID_BYTES * edit->n_gone);
    to += (size_t)LINEAGE_ID_BYTES * edit->n_gone;
    for (uint32_t i = 0; i < edit->n_rows; i++, to += 4)
        bytes_store_u32(to, edit->rows[i]);
    assert(to == bytes + total);
    return bytes;
}

/* ---- playing back ------------------------------------------------------------------------------------------------ */

static int bad(const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "a journal record is not %s: its bytes do not fit", what);
}

static int replay_identity(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (n != IDENTITY_RECORD_BYTES || lineage_is_zero(bytes + 8) || lineage_is_zero(bytes + 24))
        return bad("an identity", err);
    if (!c->lineage)
        c->lineage = calloc(1, sizeof *c->lineage);
    if (!c->lineage)
        return error_set(err, QUIRE_ENOMEM, "no memory for a collection's identity");
    struct lineage_identity *identity = &c->lineage->identity;
    if (memcmp(identity->history, bytes + 24, LINEAGE_ID_BYTES) != 0)
        lineage_give_up_told(c); /* it took the lead */
    memcpy(identity->id, bytes + 8, LINEAGE_ID_BYTES);
    memcpy(identity->history, bytes + 24, LINEAGE_ID_BYTES);
    identity->begins = bytes_load_u64(bytes + 40);
    identity->seq = bytes_load_u64(bytes + 48);
    return 0;
}

static int replay_freeze(struct collection *c, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct lineage *l = c->lineage;
    if (n != FREEZE_RECORD_BYTES)
        return bad("a cut", err);
    uint64_t at = bytes_load_u64(bytes + 16);
    if (!array_reserve(&l->cuts, &l->cuts_capacity, l->n_cuts + 1u))
        return error_set(err, QUIRE_ENOMEM, "no memory for where memtables were cut");
    l->cuts[l->n_cuts++] = (struct cut){bytes_load_u64(bytes + 8), at ? at : lsn};
    return 0;
}

static int replay_told(struct collection *c, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct part *part = NULL;
    uint32_t *rows = NULL;
    if (n < TOLD_HEADER_BYTES)
        return bad("a publication", err);
    uint64_t uid = bytes_load_u64(bytes + 8);
    struct effect edit = {.kind = EFFECT_EDIT,
                          .upto = bytes_load_u64(bytes + 32),
                          .lowest = bytes_load_u64(bytes + 72),
                          .segment_rows = bytes_load_u64(bytes + 40),
                          .segment_bytes = bytes_load_u64(bytes + 48),
                          .required = bytes_load_u32(bytes + 56) != 0,
                          .n_gone = bytes_load_u32(bytes + 60),
                          .n_rows = bytes_load_u32(bytes + 64)};
    if (TOLD_HEADER_BYTES + (uint64_t)LINEAGE_ID_BYTES * edit.n_gone + 4 * (uint64_t)edit.n_rows != n || uid == 0 ||
        lineage_find_uid(c, uid) || edit.segment_rows >= UINT32_MAX)
        return bad("a publication", err);
    memcpy(edit.segment, bytes + 16, LINEAGE_ID_BYTES);
    edit.gone = (const uint8_t(*)[LINEAGE_ID_BYTES])(const void *)(bytes + TOLD_HEADER_BYTES);
    const uint8_t *dead = bytes + TOLD_HEADER_BYTES + (size_t)LINEAGE_ID_BYTES * edit.n_gone;
    int rc = part_create(uid, &part, err);
    rows = malloc(4 * (size_t)edit.n_rows + 1);
    if (rc == 0 && !rows)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for tombstones");
    for (uint32_t i = 0; rc == 0 && i < edit.n_rows; i++) {
        rows[i] = bytes_load_u32(dead + 4 * (size_t)i);
        rc = rows[i] < edit.segment_rows ? 0 : bad("a publication", err);
    }
    edit.rows = rows;
    struct told next;
    if (rc == 0 && (rc = lineage_prepare_told(c, &edit, part, &next, err)) == 0)
        lineage_commit_told(c, &next);
    free(rows);
    if (rc < 0)
        part_unref(part);
    return rc;
}

int lineage_replay(struct collection *c, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                   struct quire_error *err)
{
    if (kind == RECORD_IDENTITY)
        return replay_identity(c, bytes, n, err);
    if (!c->lineage)
        return error_set(err, QUIRE_ECORRUPT, "the journal numbers writes of a set that has no identity");
    if (kind == RECORD_FREEZE)
        return replay_freeze(c, lsn, bytes, n, err);
    if (kind == RECORD_TOLD)
        return replay_told(c, bytes, n, err);
    if (n != SEQ_RECORD_BYTES)
        return bad("a number", err);
    c->lineage->identity.seq = bytes_load_u64(bytes + 8);
    return 0;
}

void lineage_replay_edit(struct collection *c, uint64_t come, uint64_t sealed_lsn)
{
    struct lineage *l = c->lineage;
    struct told *told = NULL;
    for (uint32_t i = 0; i < l->n_told && !told; i++)
        if (come ? l->told[i].part->uid == come : lineage_is_zero(l->told[i].segment))
            told = &l->told[i];
    if (told)
        lineage_remove_told(c, told);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->n_cuts; i++)
        if (l->cuts[i].lsn > sealed_lsn)
            l->cuts[kept++] = l->cuts[i];
    l->n_cuts = kept;
}

/* Rows begun after `after` and up to `upto`, into a memtable of their own. */
static int cut_piece(struct collection *c, const struct memtable *from, uint64_t after, uint64_t upto, uint8_t *stored,
                     struct memtable_ref **out)
{
    int rc = memtable_ref_create(&c->table_config, out, NULL);
    uint32_t rows = view_memtable_rows(from), number;
    for (uint32_t r = 0; r < rows && rc >= 0; r++) {
        struct memtable_row row;
        if (!memtable_row_at(from, r, MEMTABLE_LSN_MAX - 1, &row) || row.begin_lsn <= after || row.begin_lsn > upto)
            continue;
        memtable_row_stored(from, r, stored);
        rc = memtable_put((*out)->memtable, row.key, row.key_bytes, stored, true, row.attributes, row.attribute_bytes,
                          row.begin_lsn, &number);
    }
    return rc < 0 ? rc : 0;
}

int lineage_recut(struct collection *c)
{
    struct lineage *l = c->lineage;
    if (!l || l->n_cuts == 0)
        return 0;
    struct memtable_ref *whole = c->view->memtables[0],
                        **tables = calloc(l->n_cuts + 1u, sizeof(struct memtable_ref *));
    uint8_t *stored = malloc(memtable_stored_bytes(&c->table_config));
    uint64_t after = 0;
    uint32_t n = l->n_cuts + 1u;
    int rc = tables && stored ? 0 : QUIRE_ENOMEM;
    assert(c->view->n_memtables == 1);
    for (uint32_t i = 0; rc == 0 && i <= l->n_cuts; i++) { /* cuts ascend, as their records do */
        uint64_t upto = i < l->n_cuts ? l->cuts[i].lsn : MEMTABLE_LSN_MAX - 1;
        rc = cut_piece(c, whole->memtable, after, upto, stored, &tables[i]);
        if (rc == 0 && i < l->n_cuts) {
            tables[i]->last_lsn = upto;
            tables[i]->last_seq = l->cuts[i].seq;
        }
        if (rc == 0)
            tables[i]->after_lsn = after;
        after = upto;
    }
    struct view *view = rc == 0 ? view_with_memtables(c->view, tables, n) : NULL;
    if (view) {
        view_unref(c->view);
        c->view = view;
        atomic_fetch_add_explicit(&c->n_views, 1, memory_order_release);
        l->n_cuts = 0;
    }
    for (uint32_t i = 0; tables && i < n; i++)
        memtable_unref(tables[i]);
    free(tables);
    free(stored);
    return view ? 0 : QUIRE_ENOMEM;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

struct state {
    uint8_t *bytes;
    size_t n, capacity;
    bool failed;
};

static void add_record(struct state *s, uint8_t kind, uint8_t *bytes, uint32_t n)
{
    s->failed |= !bytes || !array_reserve(&s->bytes, &s->capacity, s->n + STATE_ENTRY_BYTES + n);
    if (!s->failed) {
        bytes_store_u32(s->bytes + s->n, kind);
        bytes_store_u32(s->bytes + s->n + 4, n);
        memcpy(s->bytes + s->n + STATE_ENTRY_BYTES, bytes, n);
        s->n += STATE_ENTRY_BYTES + n;
    }
    free(bytes);
}

static void add_told(struct state *s, const struct collection *c, const struct told *told)
{
    struct effect edit = {.kind = EFFECT_EDIT,
                          .gone = (const uint8_t(*)[LINEAGE_ID_BYTES])told->gone,
                          .n_gone = told->n_gone,
                          .upto = told->upto,
                          .lowest = told->lowest,
                          .segment_rows = told->rows,
                          .segment_bytes = told->bytes,
                          .required = told->required};
    uint64_t n = atomic_load_explicit(&told->part->n_dead, memory_order_relaxed);
    uint32_t *rows = malloc(4 * n + 1), n_bytes = 0;
    memcpy(edit.segment, told->segment, LINEAGE_ID_BYTES);
    for (uint32_t row = 0; rows && row < told->part->dead_end; row++)
        if (part_is_dead(told->part, row))
            rows[edit.n_rows++] = row;
    edit.rows = rows;
    assert(!rows || edit.n_rows == n);
    uint8_t *bytes = rows ? lineage_record_told(c, &edit, told->part->uid, &n_bytes) : NULL;
    add_record(s, RECORD_TOLD, bytes, n_bytes);
    free(rows);
}

uint8_t *lineage_state(const struct collection *c, size_t *n_bytes)
{
    struct state s = {.bytes = NULL};
    const struct lineage *l = c->lineage;
    uint32_t n = 0;
    *n_bytes = 0;
    if (!l)
        return malloc(1);
    uint8_t *identity = lineage_record_identity(c, &l->identity, &n);
    add_record(&s, RECORD_IDENTITY, identity, n);
    for (uint32_t i = c->view->n_memtables; i-- > 1;) { /* the oldest is the last */
        const struct memtable_ref *table = c->view->memtables[i];
        if (table->last_seq == CUT_HERE)
            continue;
        uint8_t *bytes = malloc(FREEZE_RECORD_BYTES);
        if (bytes)
            lineage_encode_freeze(c, table->last_seq, table->last_lsn, bytes);
        add_record(&s, RECORD_FREEZE, bytes, FREEZE_RECORD_BYTES);
    }
    for (uint32_t i = 0; i < l->n_told; i++)
        add_told(&s, c, &l->told[i]);
    if (s.failed) {
        free(s.bytes);
        return NULL;
    }
    *n_bytes = s.n;
    return s.bytes;
}

int lineage_save(struct checkpoint *checkpoint, uint64_t lsn, const uint8_t *state, size_t n_bytes,
                 struct quire_error *err)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < n_bytes;) {
        uint32_t kind = bytes_load_u32(state + at), n = bytes_load_u32(state + at + 4);
        rc = journal_checkpoint_put(checkpoint, (uint8_t)kind, lsn, state + at + STATE_ENTRY_BYTES, n, err);
        at += STATE_ENTRY_BYTES + n;
    }
    return rc;
}
