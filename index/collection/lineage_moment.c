/*
 * lineage_moment.c - a collection with a lineage as of one write: what a manifest is made of. A snapshot that also
 * knows the number of the write, and the tenants that were dropped by then.
 */
#include "index/collection/lineage_priv.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

struct lineage_moment {
    struct collection *collection; /* a reference */
    struct view *view;             /* a reference */
    struct tombstones tombstones;
    struct lineage_identity identity;
    uint64_t lsn, pin;
    struct former_tenant *former; /* owned, with the names */
    uint32_t n_former;
};

static int copy_former(struct lineage_moment *m, const struct collection *c)
{
    uint32_t n = atomic_load(&c->n_former);
    m->former = calloc(n + 1u, sizeof *m->former);
    for (uint32_t i = 0; m->former && i < n; i++) {
        m->former[i] = c->former[i];
        m->former[i].name = malloc((size_t)c->former[i].bytes + 1);
        if (!m->former[i].name)
            return QUIRE_ENOMEM;
        memcpy(m->former[i].name, c->former[i].name, c->former[i].bytes);
        m->n_former++;
    }
    return m->former ? 0 : QUIRE_ENOMEM;
}

int lineage_moment_open(struct collection *c, struct lineage_moment **out, struct quire_error *err)
{
    struct lineage_moment *m = calloc(1, sizeof *m);
    bool quiesce = !journal_in_batch(c->host->journal); /* whoever has one open sees what it has written */
    if (!m || collection_pin(c, &m->pin) < 0) {
        free(m);
        return error_set(err, QUIRE_ENOMEM, "no memory for a moment of a set");
    }
    m->collection = collection_ref(c);
    if (quiesce)
        journal_quiesce_begin(c->host->journal);
    int rc = collection_tombstones_begin(c, &m->tombstones, &m->view), state = 0;
    if (rc == 0) {
        m->lsn = c->last_lsn;
        state = copy_former(m, c);
        if (!c->lineage)
            state = error_set(err, QUIRE_ENOTFOUND, "set %llu has no identity", (unsigned long long)c->uid);
        else if (c->lineage->n_told > 0)
            state = error_set(err, QUIRE_EBUSY,
                              "%u segments of set %llu are on their way to this copy: ask when it "
                              "has them, or its leader",
                              c->lineage->n_told, (unsigned long long)c->uid);
        else
            m->identity = c->lineage->identity;
        pthread_mutex_unlock(&c->lock);
    }
    if (quiesce)
        journal_quiesce_end(c->host->journal);
    if (rc == 0)
        rc = collection_tombstones_end(c, &m->tombstones);
    if (rc == QUIRE_ENOMEM || state == QUIRE_ENOMEM)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a moment of a set");
    rc = rc < 0 ? rc : state;
    if (rc < 0)
        lineage_moment_close(m);
    else
        *out = m;
    return rc;
}

void lineage_moment_close(struct lineage_moment *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_former; i++)
        free(m->former[i].name);
    free(m->former);
    tombstones_destroy(&m->tombstones);
    view_unref(m->view);
    collection_unpin(m->collection, m->pin);
    collection_unref(m->collection);
    free(m);
}

const struct lineage_identity *lineage_moment_identity(const struct lineage_moment *m)
{
    return &m->identity;
}

const struct view *lineage_moment_view(const struct lineage_moment *m)
{
    return m->view;
}

const uint8_t *lineage_moment_dead(const struct lineage_moment *m, uint32_t i)
{
    assert(i < m->tombstones.n);
    return m->tombstones.dead[i];
}

uint64_t lineage_moment_cut(const struct lineage_moment *m, uint32_t i)
{
    assert(i < m->view->n_memtables);
    return i ? m->view->memtables[i]->last_seq : 0;
}

int lineage_moment_rows(const struct lineage_moment *m, uint32_t i,
                        int (*visit)(void *context, const struct memtable *memtable, uint32_t number,
                                     const struct memtable_row *row),
                        void *context)
{
    return view_each_row_of(m->view->memtables[i]->memtable, m->collection->host->epochs, m->lsn, visit, context);
}

uint32_t lineage_moment_tenants(const struct lineage_moment *m)
{
    return m->n_former;
}

struct grant lineage_moment_tenant(const struct lineage_moment *m, uint32_t i)
{
    assert(i < m->n_former);
    return (struct grant){
        .name = m->former[i].name, .bytes = m->former[i].bytes, .generation = m->former[i].generation};
}
