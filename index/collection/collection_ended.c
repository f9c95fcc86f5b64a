/*
 * collection_ended.c - what ends while a new segment is made, and carrying it into that.
 *
 * A seal or a merge copies the rows that live at its beginning; those that end afterwards must be dead in its result.
 * It learns of them by logs: of parts by those that their tombstones begin with (tombstones.h), of frozen memtables by
 * the list of ended rows that these keep anyway. Taking what a log has is O(1) under the collection's lock; where those
 * rows have gone is looked up and marked without it, since nobody else knows the added part yet. Each round leaves what
 * ended during the one before, so after some rounds little is left, and only that is carried under the lock under which
 * the view is replaced: no row that ends before that is missed, none after it can end in the old parts.
 *
 * The rows that were carried are kept as a list, too: the journal's record names them.
 */
#include "index/collection/collection_priv.h"
#include "index/collection/tombstones.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>

#define TABLE_ROWS   1024u /* ended rows of memtables that are listed in one hold of the lock */
#define FEW_ROWS     256u  /* that a round carried: the next one is not worth it */
#define ROUNDS_MAX   32u   /* however fast rows end meanwhile */
#define ROWS_AT_ONCE 65536u

struct collection_ended {
    struct tombstones tombstones;
    uint32_t n_tables;
    struct memtable_ref *const *tables; /* the caller's, as the parts are */
    uint32_t *last;                     /* n_tables: the row that ended last of those that were carried; owned */
    uint32_t *rows;                     /* of the added part that are dead; owned */
    size_t n_rows, rows_capacity;
};

void collection_ended_free(struct collection *c, struct collection_ended *ended)
{
    if (!ended)
        return;
    pthread_mutex_lock(&c->lock);
    tombstones_end(&ended->tombstones);
    pthread_mutex_unlock(&c->lock);
    tombstones_destroy(&ended->tombstones);
    free(ended->last);
    free(ended->rows);
    free(ended);
}

int collection_ended_begin(struct collection *c, struct part *const *parts, uint32_t n_parts,
                           struct memtable_ref *const *tables, uint32_t n_tables, struct collection_ended **out)
{
    struct collection_ended *ended = calloc(1, sizeof *ended);
    if (!ended)
        return QUIRE_ENOMEM;
    ended->tables = tables;
    ended->n_tables = n_tables;
    ended->last = calloc(n_tables + 1u, sizeof *ended->last);
    if (!ended->last || tombstones_create(&ended->tombstones, parts, n_parts) < 0) {
        free(ended->last);
        free(ended);
        return QUIRE_ENOMEM;
    }
    pthread_mutex_lock(&c->lock);
    tombstones_begin(&ended->tombstones);
    for (uint32_t i = 0; i < n_tables; i++) {
        assert(tables[i]->last_lsn != MEMTABLE_LSN_MAX); /* frozen: nothing of it is given back */
        ended->last[i] = memtable_last_ended(tables[i]->memtable);
    }
    pthread_mutex_unlock(&c->lock);
    tombstones_copy(&ended->tombstones);
    *out = ended;
    return 0;
}

const uint8_t *collection_ended_dead(const struct collection_ended *ended, uint32_t i)
{
    assert(i < ended->tombstones.n);
    return ended->tombstones.dead[i];
}

const uint32_t *collection_ended_rows(const struct collection_ended *ended, uint64_t *n)
{
    *n = ended->n_rows;
    return ended->rows;
}

/* ---- carrying ---------------------------------------------------------------------------------------------------- */

/* rows[0 .. n) have ended; rows_of says where they are in the added part. */
static int carry(struct collection_ended *ended, const struct collection_edit *edit, const uint32_t *rows_of,
                 const uint32_t *rows, uint32_t n)
{
    if (!array_reserve(&ended->rows, &ended->rows_capacity, ended->n_rows + n))
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to = rows_of[rows[i]];
        int killed = to == UINT32_MAX ? 0 : part_kill(edit->added, to);
        if (killed < 0)
            return QUIRE_EINTERNAL;
        if (killed)
            ended->rows[ended->n_rows++] = to;
    }
    return 0;
}

static int carry_list(struct collection_ended *ended, const struct collection_edit *edit, uint32_t part,
                      const struct dead_rows *rows, uint64_t *n)
{
    int rc = 0;
    for (; rows && rc == 0; rows = rows->next) {
        rc = carry(ended, edit, edit->rows_of[part], rows->rows, rows->n);
        *n += rows->n;
    }
    return rc;
}

/* (lock) The next rows of a memtable that have ended; how many. */
static uint32_t list_ended(struct collection_ended *ended, uint32_t table, uint32_t rows[TABLE_ROWS])
{
    const struct memtable *memtable = ended->tables[table]->memtable;
    uint32_t n = 0, row = memtable_ended_after(memtable, ended->last[table]);
    for (; row != MEMTABLE_NONE && n < TABLE_ROWS; row = memtable_ended_after(memtable, row))
        rows[n++] = ended->last[table] = row;
    return n;
}

/* One round; *n: rows that it has met. */
static int carry_round(struct collection *c, struct collection_ended *ended, const struct collection_edit *edit,
                       uint64_t *n)
{
    uint32_t rows[TABLE_ROWS];
    int rc = 0;
    *n = 0;
    for (uint32_t i = 0; i < ended->tombstones.n && rc == 0; i++) {
        pthread_mutex_lock(&c->lock);
        struct dead_rows *list = part_log_take(&ended->tombstones.logs[i]);
        pthread_mutex_unlock(&c->lock);
        rc = carry_list(ended, edit, i, list, n);
        part_dead_rows_free(list);
    }
    for (uint32_t i = 0; i < ended->n_tables && rc == 0; i++) {
        pthread_mutex_lock(&c->lock);
        uint32_t listed = list_ended(ended, i, rows);
        pthread_mutex_unlock(&c->lock);
        rc = carry(ended, edit, edit->memtable_rows_of[i], rows, listed);
        *n += listed;
    }
    return rc;
}

static int say(int rc, struct quire_error *err)
{
    if (rc == QUIRE_EINTERNAL)
        return error_set(err, rc, "the merge's map of rows does not fit its segment");
    return rc < 0 ? error_set(err, rc, "no memory for rows that ended while a segment was made") : 0;
}

int collection_ended_carry(struct collection *c, const struct collection_edit *edit, struct quire_error *err)
{
    struct collection_ended *ended = edit->ended;
    uint64_t n = UINT64_MAX;
    int rc = 0;
    if (!ended || !edit->added)
        return 0;
    for (unsigned i = 0; i < ROUNDS_MAX && rc == 0 && n > FEW_ROWS; i++)
        rc = carry_round(c, ended, edit, &n);
    /* room for what is carried under the lock */
    if (rc == 0 && !array_reserve(&ended->rows, &ended->rows_capacity, ended->n_rows + ROWS_AT_ONCE))
        rc = QUIRE_ENOMEM;
    return say(rc, err);
}

int collection_ended_carry_rest(struct collection *c, const struct collection_edit *edit, struct quire_error *err)
{
    struct collection_ended *ended = edit->ended;
    uint32_t rows[TABLE_ROWS], listed;
    uint64_t n = 0;
    int rc = 0;
    assert(lock_is_held(&c->lock));
    if (!ended || !edit->added)
        return 0;
    for (uint32_t i = 0; i < ended->tombstones.n && rc == 0; i++) {
        struct dead_rows *list = part_log_take(&ended->tombstones.logs[i]);
        rc = carry_list(ended, edit, i, list, &n);
        part_dead_rows_free(list);
        rc = ended->tombstones.logs[i].failed ? QUIRE_ENOMEM : rc;
    }
    for (uint32_t i = 0; i < ended->n_tables; i++)
        while (rc == 0 && (listed = list_ended(ended, i, rows)) > 0)
            rc = carry(ended, edit, edit->memtable_rows_of[i], rows, listed);
    assert(rc < 0 || ended->n_rows == atomic_load_explicit(&edit->added->n_dead, memory_order_relaxed));
    return say(rc, err);
}
