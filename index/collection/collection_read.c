/*
 * collection_read.c - the vector of one element of a numbered collection.
 *
 * Where its row is, is known in memory: in a memtable by its name, in a part by its number (part_numbers.h). It is
 * looked up under the collection's lock; the row itself never changes, and the view keeps both. So unlike a fetch
 * (collection_fetch.c) a read is of one moment, never begins again, and asks for one block.
 */
#include "index/collection/collection_priv.h"
#include "index/collection/part_numbers.h"
#include "io/error.h"
#include <stdlib.h>

/* (lock) The memtable that has the name; NULL: none. */
static struct memtable *find_table(const struct collection *c, const void *name, uint32_t bytes, uint32_t *row)
{
    for (uint32_t i = 0; i < c->view->n_memtables; i++) {
        struct memtable *table = c->view->memtables[i]->memtable;
        *row = memtable_find(table, name, bytes);
        if (*row != MEMTABLE_NONE)
            return table;
    }
    return NULL;
}

/* Where it is: in a memtable, or in a part, of *view, which is a reference then; NULL both: nowhere. In an epoch. */
static struct memtable *locate(struct collection *c, const struct collection_read *read, uint32_t *row,
                               struct part **part, struct view **view)
{
    *part = NULL;
    *view = NULL;
    pthread_mutex_lock(&c->lock);
    struct memtable *table = find_table(c, read->name, read->name_bytes, row);
    for (uint32_t i = table ? 0 : c->view->n_parts; i > 0 && !*part; i--) {
        *row = part_row_of_number(c->view->parts[i - 1], read->number);
        if (*row != ROW_NONE)
            *part = c->view->parts[i - 1];
    }
    if (table || *part)
        *view = view_ref(c->view);
    pthread_mutex_unlock(&c->lock);
    return table;
}

static bool take_vector(const struct collection *c, const struct memtable *table, uint32_t row, float *out)
{
    float *scratch = malloc(sizeof(float) * (2 * (size_t)c->config.dim + 64));
    if (scratch)
        memtable_vector(table, row, scratch, out);
    free(scratch);
    return scratch != NULL;
}

bool collection_read_now(struct collection *c, const void *name, uint32_t name_bytes, float *vector)
{
    struct epochs *epochs = c->host->epochs;
    struct view *view = NULL;
    uint32_t row;
    assert(c->config.numbered);
    unsigned epoch = epoch_enter(epochs);
    pthread_mutex_lock(&c->lock);
    const struct memtable *table = find_table(c, name, name_bytes, &row);
    if (table)
        view = view_ref(c->view); /* keeps the memtable, which may be sealed meanwhile */
    pthread_mutex_unlock(&c->lock);
    bool taken = table && take_vector(c, table, row, vector);
    epoch_exit(epochs, epoch);
    view_unref(view);
    return taken;
}

static void end_read(struct collection_read *read, int code)
{
    struct collection *c = read->collection;
    struct view *view = read->view;
    read->code = code;
    read->done(read); /* which may free it */
    view_unref(view);
    collection_unref(c);
}

static void on_fetched(struct fetch_request *fetch)
{
    struct collection_read *read = fetch->owner;
    read->error = fetch->error;
    read->vector = fetch->vector;
    read->reads = fetch->reads;
    end_read(read, fetch->code);
}

int collection_read_start(struct searcher *searcher, struct collection_read *read, struct quire_error *err)
{
    struct collection *c = read->collection;
    struct epochs *epochs = c->host->epochs;
    struct part *part;
    uint32_t row;
    int rc = 0;
    assert(c->config.numbered && read->name_bytes >= NUMBER_BYTES);
    float *vector = malloc(sizeof(float) * c->config.dim);
    if (!vector)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    read->vector = NULL;
    read->reads = 0;
    unsigned epoch = epoch_enter(epochs);
    const struct memtable *table = locate(c, read, &row, &part, &read->view);
    bool taken = table && take_vector(c, table, row, vector);
    epoch_exit(epochs, epoch);
    if (part) {
        read->fetch = (struct fetch_request){
            .segment = part->segment, .row = row, .want_vector = true, .done = on_fetched, .owner = read};
        collection_ref(c);
        rc = fetch_start(searcher, &read->fetch, err);
        if (rc < 0) {
            view_unref(read->view);
            collection_unref(c);
        }
    } else if (table && !taken) {
        view_unref(read->view);
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    } else {
        collection_ref(c);
        read->vector = taken ? vector : NULL;
        end_read(read, taken ? 0 : error_set(&read->error, QUIRE_ENOTFOUND, "the vector is not there"));
    }
    free(vector);
    return rc;
}
