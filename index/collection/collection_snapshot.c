/*
 * collection_snapshot.c - a collection as it was: a view, the number of its last write, and its tombstones of then.
 *
 * Rows of memtables carry the LSNs where they begin and end, so that a number is enough for them, as long as the
 * rows that die later are not given back (collection_pin). Tombstones of sealed rows carry none: they are copied, a
 * bit a row, beside writers (tombstones.h).
 */
#include "index/collection/collection_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>

int collection_tombstones_begin(struct collection *c, struct tombstones *out, struct view **view)
{
    for (;;) {
        struct view *seen = collection_view(c);
        if (tombstones_create(out, seen->parts, seen->n_parts) < 0) {
            view_unref(seen);
            return QUIRE_ENOMEM;
        }
        pthread_mutex_lock(&c->lock);
        if (c->view == seen) {
            tombstones_begin(out);
            *view = seen;
            return 0;
        }
        pthread_mutex_unlock(&c->lock); /* it was replaced meanwhile, which is seldom */
        tombstones_destroy(out);
        view_unref(seen);
    }
}

int collection_tombstones_end(struct collection *c, struct tombstones *tombstones)
{
    tombstones_copy(tombstones);
    pthread_mutex_lock(&c->lock);
    tombstones_end(tombstones);
    pthread_mutex_unlock(&c->lock);
    return tombstones_settle(tombstones);
}

int collection_pin(struct collection *c, uint64_t *lsn)
{
    pthread_mutex_lock(&c->lock);
    int rc = array_reserve(&c->pins, &c->pins_capacity, c->n_pins + 1u) ? 0 : QUIRE_ENOMEM;
    if (rc == 0)
        c->pins[c->n_pins++] = *lsn = c->last_lsn;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void collection_unpin(struct collection *c, uint64_t lsn)
{
    struct memtable_stats stats;
    pthread_mutex_lock(&c->lock);
    uint32_t at = 0;
    while (at < c->n_pins && c->pins[at] != lsn)
        at++;
    assert(at < c->n_pins);
    c->pins[at] = c->pins[--c->n_pins];
    memtable_get_stats(c->view->memtables[0]->memtable, &stats);
    if (stats.dead > 0) /* what the pin kept can go, also if nobody writes again */
        collection_wake(c);
    pthread_mutex_unlock(&c->lock);
}

int collection_snapshot_open(struct collection *c, struct collection_snapshot **out, struct quire_error *err)
{
    struct collection_snapshot *s = calloc(1, sizeof *s);
    if (!s || collection_pin(c, &s->pin) < 0) {
        free(s);
        return error_set(err, QUIRE_ENOMEM, "no memory for a snapshot");
    }
    s->collection = collection_ref(c);
    /* the pin may be older than what is read now, which keeps more, never less */
    int rc = collection_tombstones_begin(c, &s->tombstones, &s->view);
    if (rc == 0) {
        s->lsn = c->last_lsn;
        s->n_elements = collection_count(c);
        assert(s->lsn >= s->pin);
        pthread_mutex_unlock(&c->lock);
        rc = collection_tombstones_end(c, &s->tombstones);
    }
    if (rc < 0) {
        collection_snapshot_close(s);
        return error_set(err, rc, "no memory for a snapshot's tombstones");
    }
    *out = s;
    return 0;
}

void collection_snapshot_close(struct collection_snapshot *s)
{
    if (!s)
        return;
    tombstones_destroy(&s->tombstones);
    view_unref(s->view);
    collection_unpin(s->collection, s->pin);
    collection_unref(s->collection);
    free(s);
}

uint64_t collection_snapshot_count(const struct collection_snapshot *s)
{
    return s->n_elements;
}
