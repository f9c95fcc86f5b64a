/*
 * collection_fetch.c - single elements of a collection: by key, and by place.
 *
 * A key is looked for in the memtables, under the lock and without the disk; then in the sealed segments whose filters
 * may have it, one after the other, the youngest first: a walk. An element may move to a memtable, or into another
 * segment, while the disk is asked: when the walk ends without it, the memtables are asked again, and if the view has
 * changed, it begins again.
 */
#include "index/collection/collection_priv.h"
#include "index/search/search.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 100u /* of a walk: the view changes a few times a second at most */

/* ---- a walk ------------------------------------------------------------------------------------------------------ */

static void on_part(struct fetch_request *fetch);

/* Asks the next part that may have the key. */
static void walk_on(struct part_walk *walk)
{
    assert(walk->next_part <= walk->view->n_parts);
    while (walk->next_part > 0) {
        struct part *part = walk->view->parts[--walk->next_part];
        if (!part_may_have(part, walk->fetch.key, walk->fetch.key_bytes))
            continue;
        walk->fetch.segment = part->segment;
        walk->fetch.code = 0;
        int rc = fetch_start(walk->searcher, &walk->fetch, &walk->fetch.error);
        if (rc == 0)
            return;
        walk->fetch.code = rc;
        walk->ended(walk, false);
        return;
    }
    walk->fetch.code = QUIRE_ENOTFOUND;
    walk->ended(walk, false);
}

static void on_part(struct fetch_request *fetch)
{
    struct part_walk *walk = fetch->owner;
    assert(walk->next_part < walk->view->n_parts);
    if (fetch->code == QUIRE_ENOTFOUND ||
        (fetch->code == 0 && part_is_dead(walk->view->parts[walk->next_part], fetch->row)))
        walk_on(walk);
    else
        walk->ended(walk, fetch->code == 0);
}

/* What to fetch stands in walk->fetch. Takes the view's reference over. */
static void walk_begin(struct part_walk *walk, struct searcher *searcher, struct view *view)
{
    walk->searcher = searcher;
    walk->view = view;
    walk->next_part = view->n_parts;
    walk->fetch.done = on_part;
    walk->fetch.owner = walk;
    walk_on(walk);
}

/* ---- locate ------------------------------------------------------------------------------------------------------ */

bool collection_locate_now(struct collection *c, const void *key, uint32_t key_bytes, struct located *out)
{
    struct view *view = collection_view(c);
    bool maybe = false;
    for (uint32_t i = 0; i < view->n_parts && !maybe && !c->config.numbered; i++)
        maybe = part_may_have(view->parts[i], key, key_bytes);
    *out = (struct located){.generation = view->generation};
    view_unref(view);
    return !maybe;
}

/* ---- fetch ------------------------------------------------------------------------------------------------------- */

/* What a fetch copies out of a memtable. */
struct copied {
    struct collection_hit *links;
    struct memtable_hit *rows;
    float *vector, *scratch;
};

static bool is_allowed(void *context, const struct memtable_row *row)
{
    return grants_allow(row->attributes, row->attribute_bytes, context);
}

/* Of an element's text what is wanted of it. */
static int take_text(struct collection_fetch *f, const char *text, uint32_t bytes)
{
    const char *json = text;
    uint32_t json_bytes = bytes, n_grants;
    f->attributes = NULL;
    f->attribute_bytes = 0;
    if (!f->want_attributes || bytes == 0)
        return 0;
    if (!f->want_grants && grants_split(text, bytes, &json, &json_bytes, &n_grants) < 0)
        return error_set(&f->error, QUIRE_ECORRUPT, "the grants of element %.*s are damaged",
                         f->key_bytes > 100 ? 100 : (int)f->key_bytes, (const char *)f->key);
    f->attributes = json_bytes ? json : NULL;
    f->attribute_bytes = json_bytes;
    return 0;
}

/* Fills the fetch from a memtable's row. Inside an epoch: keys and attributes are the row's own. */
static int take_row(struct collection_fetch *f, const struct memtable *memtable, uint32_t number, uint64_t snapshot,
                    struct copied *copied)
{
    uint32_t dim = f->collection->config.dim;
    struct memtable_row row;
    memtable_row(memtable, number, &row);
    f->in_memory = true;
    if (!grants_allow(row.attributes, row.attribute_bytes, f->resolved))
        return error_set(&f->error, QUIRE_ENOTFOUND, "there is no such element");
    int rc = take_text(f, row.attributes, row.attribute_bytes);
    if (rc < 0 || (!f->want_vector && !f->want_links))
        return rc;
    copied->vector = malloc(sizeof(float) * dim);
    copied->scratch = malloc(sizeof(float) * (2 * (size_t)dim + 64));
    if (!copied->vector || !copied->scratch)
        return QUIRE_ENOMEM;
    memtable_vector(memtable, number, copied->scratch, copied->vector);
    f->vector = copied->vector;
    if (!f->want_links)
        return 0;
    /* the vectors' distance in the user's terms from that in the working space */
    copied->rows = calloc(f->links_max + 1, sizeof *copied->rows);
    copied->links = calloc(f->links_max + 1, sizeof *copied->links);
    if (!copied->rows || !copied->links)
        return QUIRE_ENOMEM;
    const struct memtable_test test = {.accepts = is_allowed, .context = f->resolved, .scope = f->resolved};
    int n = memtable_links(memtable, number, snapshot, f->resolved ? &test : NULL, copied->rows, f->links_max);
    for (int i = 0; i < n; i++) {
        struct memtable_row link;
        memtable_row(memtable, copied->rows[i].row, &link);
        copied->links[i] =
            (struct collection_hit){.key = link.key, .key_bytes = link.key_bytes, .distance = copied->rows[i].distance};
    }
    f->n_links = n < 0 ? 0 : (uint32_t)n;
    f->links = n < 0 ? NULL : copied->links;
    return n < 0 ? n : 0;
}

/* The fetch is the caller's again within `done`. */
static void end_fetch(struct collection_fetch *f)
{
    free(f->resolved);
    f->resolved = NULL;
    f->done(f);
}

/* Answers from a memtable; false where none has the key. The view is that of the moment the lock was held. */
static bool fetch_from_memory(struct collection_fetch *f, struct view **view)
{
    struct collection *c = f->collection;
    struct epochs *epochs = c->host->epochs;
    struct copied copied = {.links = NULL};
    struct memtable_ref *table = NULL;
    uint32_t row = MEMTABLE_NONE;
    unsigned epoch = epoch_enter(epochs);
    pthread_mutex_lock(&c->lock);
    *view = view_ref(c->view);
    for (uint32_t i = 0; i < c->view->n_memtables && row == MEMTABLE_NONE; i++) {
        table = c->view->memtables[i];
        row = memtable_find(table->memtable, f->key, f->key_bytes);
    }
    uint64_t snapshot = c->last_lsn;
    pthread_mutex_unlock(&c->lock);
    bool found = row != MEMTABLE_NONE;
    if (found) {
        f->code = take_row(f, table->memtable, row, snapshot, &copied);
        if (f->code == QUIRE_ENOMEM)
            error_set(&f->error, f->code, "no memory for an element");
        f->located = (struct located){.generation = (*view)->generation};
        end_fetch(f);
    }
    epoch_exit(epochs, epoch);
    free(copied.links);
    free(copied.rows);
    free(copied.vector);
    free(copied.scratch);
    return found;
}

static void finish_sealed(struct collection_fetch *f, bool found)
{
    struct part_walk *walk = &f->walk;
    const struct fetch_request *fetch = &walk->fetch;
    struct collection_hit *links = NULL;
    f->code = fetch->code;
    f->error = fetch->error;
    f->located = (struct located){.generation = walk->view->generation};
    f->reads = fetch->reads;
    f->rounds = fetch->rounds;
    f->bytes = fetch->bytes;
    assert(found == (fetch->code == 0));
    const struct part *part = found ? walk->view->parts[walk->next_part] : NULL;
    if (found) {
        f->located.segment_uid = part->uid;
        f->located.row = fetch->row;
    }
    if (found && !part_allows(part, fetch->row, f->resolved)) {
        f->code = error_set(&f->error, QUIRE_ENOTFOUND, "there is no such element");
    } else if (found) {
        f->vector = fetch->vector;
        f->code = take_text(f, fetch->attributes, fetch->attributes_bytes);
        if (f->code == 0 && f->want_links && !(links = calloc(fetch->n_links + 1, sizeof *links)))
            f->code = error_set(&f->error, QUIRE_ENOMEM, "no memory for links");
        /* those that have died since the segment was made are left out */
        for (uint32_t i = 0; links && i < fetch->n_links; i++)
            if (!part_is_dead(part, fetch->links[i].row) && part_allows(part, fetch->links[i].row, f->resolved))
                links[f->n_links++] = (struct collection_hit){.key = fetch->links[i].key,
                                                              .key_bytes = fetch->links[i].key_bytes,
                                                              .distance = fetch->links[i].distance};
        f->links = links;
    }
    struct view *view = walk->view;
    end_fetch(f);
    free(links);
    view_unref(view);
}

static void on_fetched(struct part_walk *walk, bool found)
{
    struct collection_fetch *f = walk->owner;
    if (found || walk->fetch.code != QUIRE_ENOTFOUND) {
        finish_sealed(f, found);
        return;
    }
    /* it may have moved meanwhile */
    struct view *now, *old = walk->view;
    if (fetch_from_memory(f, &now)) {
        view_unref(now);
        view_unref(old);
        return;
    }
    if (now->generation == old->generation || ++walk->tries > TRIES_MAX) {
        view_unref(now);
        finish_sealed(f, false);
        return;
    }
    view_unref(old);
    walk_begin(walk, walk->searcher, now);
}

int collection_fetch_start(struct searcher *searcher, struct collection_fetch *f, struct quire_error *err)
{
    struct part_walk *walk = &f->walk;
    struct view *view;
    int rc = collection_check_key(f->key_bytes, err);
    if (rc < 0)
        return rc;
    memset(walk, 0, sizeof *walk);
    f->code = 0;
    memset(&f->error, 0, sizeof f->error);
    f->vector = NULL;
    f->attributes = NULL;
    f->links = NULL;
    f->attribute_bytes = f->n_links = f->reads = f->rounds = 0;
    f->bytes = 0;
    f->in_memory = false;
    rc = collection_scope_resolve(f->collection, f->scope, &f->resolved, err);
    if (rc < 0)
        return rc;
    walk->searcher = searcher;
    walk->ended = on_fetched;
    walk->owner = f;
    walk->fetch = (struct fetch_request){.key = f->key,
                                         .key_bytes = f->key_bytes,
                                         .want_vector = f->want_vector,
                                         .want_attributes = f->want_attributes,
                                         .want_links = f->want_links,
                                         .links_max = f->links_max};
    if (fetch_from_memory(f, &view)) {
        view_unref(view);
        return 0;
    }
    walk_begin(walk, searcher, view);
    return 0;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

uint64_t collection_places_version(const struct collection *c)
{
    return atomic_load_explicit(&c->n_views, memory_order_acquire);
}

uint64_t collection_places(const struct collection *constant)
{
    struct view *view = collection_view((struct collection *)constant);
    uint64_t n = 0;
    for (uint32_t i = 0; i < view->n_parts; i++)
        n += segment_info(view->parts[i]->segment)->rows;
    for (uint32_t i = 0; i < view->n_memtables; i++)
        n += view_memtable_rows(view->memtables[i]->memtable);
    view_unref(view);
    return n;
}

static void end_place_request(struct place_request *request, int code)
{
    struct view *view = request->view;
    assert(view && (code < 0 || request->key));
    request->code = code;
    request->done(request);
    view_unref(view);
}

static void on_place(struct fetch_request *fetch)
{
    struct place_request *request = fetch->owner;
    request->error = fetch->error;
    request->key = fetch->found_key;
    request->key_bytes = fetch->found_key_bytes;
    request->reads = fetch->reads;
    end_place_request(request, fetch->code);
}

static void take_place_in_memory(struct place_request *request, uint64_t place, const struct tenant_scope *scope)
{
    struct epochs *epochs = request->collection->host->epochs;
    unsigned epoch = epoch_enter(epochs);
    for (uint32_t i = 0; i < request->view->n_memtables; i++) {
        const struct memtable *memtable = request->view->memtables[i]->memtable;
        uint64_t rows = view_memtable_rows(memtable);
        struct memtable_row row;
        if (place < rows && memtable_row_at(memtable, (uint32_t)place, MEMTABLE_LSN_MAX - 1, &row)) {
            request->key = row.key;
            request->key_bytes = row.key_bytes;
            end_place_request(request, grants_allow(row.attributes, row.attribute_bytes, scope) ? 0 : QUIRE_ENOTFOUND);
            epoch_exit(epochs, epoch);
            return;
        }
        if (place < rows)
            break;
        place -= rows;
    }
    end_place_request(request, QUIRE_ENOTFOUND);
    epoch_exit(epochs, epoch);
}

static int start_place(struct searcher *searcher, struct place_request *request, const struct tenant_scope *scope,
                       struct quire_error *err)
{
    uint64_t place = request->place;
    request->view = collection_view(request->collection);
    request->reads = 0;
    for (uint32_t i = 0; i < request->view->n_parts; i++) {
        struct part *part = request->view->parts[i];
        uint64_t rows = segment_info(part->segment)->rows;
        if (place >= rows) {
            place -= rows;
            continue;
        }
        if (part_is_dead(part, (uint32_t)place) || !part_allows(part, (uint32_t)place, scope)) {
            end_place_request(request, QUIRE_ENOTFOUND);
            return 0;
        }
        request->fetch = (struct fetch_request){
            .segment = part->segment, .row = (uint32_t)place, .want_key = true, .done = on_place, .owner = request};
        int rc = fetch_start(searcher, &request->fetch, err);
        if (rc < 0)
            view_unref(request->view);
        return rc;
    }
    take_place_in_memory(request, place, scope);
    return 0;
}

int collection_place_start(struct searcher *searcher, struct place_request *request, struct quire_error *err)
{
    struct tenant_scope *scope = NULL;
    int rc = collection_scope_resolve(request->collection, request->scope, &scope, err);
    if (rc == 0)
        rc = start_place(searcher, request, scope, err);
    free(scope);
    return rc;
}
