/*
 * library_collection.c - quire.h's live collections: a store with one collection in it, and lanes for blocking calls.
 *
 * A write is located (in memory, or with a read where a sealed segment may hold its key), committed, linked into the
 * graph by the calling thread, and waited for as its durability asks. A commit that comes too late, because segments
 * have changed since it was located, is located again. What a write keeps of a sealed element (grants, attributes or
 * vector) is read together with its place, so that it is used only if that row is the one replaced. While the
 * background is behind, writes pause: a writer that never waits would otherwise run into the limit where puts are
 * refused.
 */
#include "index/api/library_priv.h"
#include "index/collection/collection.h"
#include "index/format/format.h"
#include "index/search/search.h"
#include "index/search/search_lane.h"
#include "index/store/store_check.h"
#include "index/vector/space.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct quire_result {
    uint32_t n;
    struct quire_element *elements;
    uint8_t *bytes; /* keys, attributes and vectors */
};

struct quire_snapshot {
    const struct quire_collection *of;
    struct collection_snapshot *snapshot;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void quire_collection_options_init(struct quire_collection_options *options)
{
    *options = (struct quire_collection_options){.struct_bytes = sizeof *options};
}

static void pass_log(void *context, bool warning, const char *line)
{
    struct quire_collection *c = context;
    if (c->log)
        c->log(c->context, warning, line);
}

static void find_first(void *context, struct collection *collection)
{
    struct collection **first = context;
    if (!*first || collection_uid(collection) < collection_uid(*first)) {
        collection_unref(*first);
        *first = collection_ref(collection);
    }
}

static int compare_config(const struct collection *c, const struct quire_collection_options *o, const char *path,
                          struct quire_error *err)
{
    const struct collection_config *have = collection_config(c);
    const struct attribute_schema *schema = collection_schema(c);
    if (o->tenants && !have->tenants)
        return error_set(err, QUIRE_EINVALID, "%s was made without tenants: its elements may be nobody's", path);
    if (o->dim && have->dim != o->dim)
        return error_set(err, QUIRE_EDIM, "%s has dimension %u, not %u", path, have->dim, o->dim);
    if (o->dim && (have->type != o->type || have->metric != o->metric))
        return error_set(err, QUIRE_ETYPE, "%s holds %s under %s, not %s under %s", path, quire_type_name(have->type),
                         quire_metric_name(have->metric), quire_type_name(o->type), quire_metric_name(o->metric));
    bool same = o->n_columns == 0 || o->n_columns == schema->n;
    for (uint32_t i = 0; same && i < o->n_columns; i++) {
        const struct quire_column *wanted = &o->columns[i];
        const struct quire_column *there = attribute_schema_find(schema, wanted->name, strlen(wanted->name));
        same = there && there->type == wanted->type && there->indexed == wanted->indexed;
    }
    return same ? 0
                : error_set(err, QUIRE_EINVALID,
                            "%s has other declared columns (%u of them): they are fixed when it is made", path,
                            schema->n);
}

/* The one collection of the store, found or made. */
static int take_collection(struct quire_collection *c, const struct quire_collection_options *o, const char *path,
                           struct quire_error *err)
{
    struct collection_config config = {.dim = o->dim,
                                       .type = o->type,
                                       .metric = o->metric,
                                       .slot = o->slot,
                                       .block_bytes = o->block_bytes,
                                       .code_bits = o->code_bits,
                                       .index = o->index,
                                       .tenants = o->tenants};
    struct attribute_schema *schema = NULL;
    uint64_t lsn;
    store_each(c->store, find_first, &c->collection);
    if (c->collection) {
        int rc = collection_available(c->collection, err);
        return rc < 0 ? rc : compare_config(c->collection, o, path, err);
    }
    if (!o->create)
        return error_set(err, QUIRE_ENOFILE, "%s holds no collection: open it with create", path);
    int rc = collection_config_begin(&config, err);
    if (rc == 0)
        rc = attribute_schema_create(o->columns, o->n_columns, &schema, err);
    if (rc == 0)
        rc = store_create_collection(c->store, &config, schema, &c->collection, &lsn, err);
    attribute_schema_destroy(schema);
    return rc == 0 ? journal_wait(store_journal(c->store), lsn, err) : rc;
}

/* Without create nothing is made, in a folder that holds other things least of all. */
static int check_there(const char *path, struct quire_error *err)
{
    char *segments;
    if (access(path, F_OK) != 0)
        return error_set(err, QUIRE_ENOFILE, "%s is not there: open it with create to make a collection", path);
    if (asprintf(&segments, "%s/" SEGMENTS_NAME, path) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    bool there = access(segments, F_OK) == 0;
    free(segments);
    return there ? 0 : error_set(err, QUIRE_ENOFILE, "%s holds no collection: open it with create to make one", path);
}

/* Records of a server or of a cache: they would be missing in the next checkpoint. */
static int refuse_record(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                         struct quire_error *err)
{
    (void)context, (void)lsn, (void)bytes, (void)n;
    return error_set(err, QUIRE_EUNSUPPORTED,
                     "the folder is a server's or a cache's (record of kind %u), of which a collection would keep "
                     "nothing: open it with quire-server or quire_cache_open, or choose another folder",
                     kind);
}

static int open_store(struct quire_collection *c, const struct quire_collection_options *o, const char *path,
                      struct quire_error *err)
{
    static const enum journal_sync syncs[] = {[QUIRE_DURABLE_ALWAYS] = JOURNAL_ALWAYS,
                                              [QUIRE_DURABLE_EVERYSEC] = JOURNAL_EVERYSEC,
                                              [QUIRE_DURABLE_NO] = JOURNAL_NO};
    assert(o->durability < sizeof syncs / sizeof *syncs);
    struct store_options options = {.sync = syncs[o->durability],
                                    .memtable_bytes = o->memtable_bytes,
                                    .segment_memory_bytes = o->memory_bytes,
                                    .disk_bytes = o->disk_bytes,
                                    .threads = o->threads};
    struct store_host host = {.restore = refuse_record, .replay = refuse_record, .log = pass_log, .context = c};
    int rc = o->create ? 0 : check_there(path, err);
    return rc < 0 ? rc : store_open(path, &options, &host, &c->store, &c->report, err);
}

int quire_collection_open(const char *path, const struct quire_collection_options *options,
                          struct quire_collection **out, struct quire_error *err)
{
    struct quire_collection_options defaults;
    quire_collection_options_init(&defaults);
    const struct quire_collection_options *o = options ? options : &defaults;
    if (!path || !out)
        return error_set(err, QUIRE_EINVALID, "path and out must be given");
    int rc = library_struct_validate(o->struct_bytes, sizeof *o, "quire_collection_options", err);
    if (rc == 0 && (unsigned)o->durability > QUIRE_DURABLE_NO)
        rc = error_set(err, QUIRE_EINVALID, "unknown durability %d", (int)o->durability);
    if (rc == 0 && o->n_columns > 0 && !o->columns)
        rc = error_set(err, QUIRE_EINVALID, "n_columns is %u, but columns is NULL", o->n_columns);
    struct quire_collection *c = rc == 0 ? calloc(1, sizeof *c) : NULL;
    if (rc < 0)
        return rc;
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    c->log = o->log;
    c->context = o->context;
    rc = search_lane_pool_init(&c->lanes, o->engine, o->reads_max, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    rc = open_store(c, o, path, err);
    if (rc == 0)
        rc = take_collection(c, o, path, err);
    if (rc < 0)
        quire_collection_close(c, NULL);
    else
        *out = c;
    return rc;
}

int quire_collection_close(struct quire_collection *c, struct quire_error *err)
{
    if (!c)
        return 0;
    int here = library_here(c, err);
    if (here < 0)
        return here;
    search_lane_pool_fini(&c->lanes);
    collection_unref(c->collection);
    int rc = c->store ? store_close(c->store, err) : 0;
    free(c);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Fetches an element on a lane of the pool; the fetch's owner raises *done. */
static int run_fetch(struct quire_collection *c, struct collection_fetch *fetch, const bool *done,
                     struct quire_error *err)
{
    struct search_lane *lane;
    int rc = search_lane_pool_take(&c->lanes, 1, &lane, err);
    if (rc < 0)
        return rc;
    rc = collection_fetch_start(lane->searcher, fetch, err);
    if (rc == 0)
        search_lane_run(lane, done);
    assert(rc < 0 || *done);
    search_lane_pool_put(&c->lanes, lane);
    return rc;
}

/* What a write must know of the sealed row that it replaces, if there is one. */
struct old_row {
    struct located located;
    bool in_memory; /* a memtable has the element */
    float *vector;  /* of a sealed row, where it was asked for; owned */
    char *text;     /* likewise its grants and attributes; NULL: none */
    uint32_t text_bytes, dim;
    bool done;
    int code; /* QUIRE_ENOTFOUND: there is no such element */
    struct quire_error error;
};

static void old_row_free(struct old_row *old)
{
    free(old->vector);
    free(old->text);
}

static void on_old_row(struct collection_fetch *fetch)
{
    struct old_row *old = fetch->owner;
    assert(!old->done && !old->vector && !old->text);
    old->done = true;
    old->code = fetch->code;
    old->error = fetch->error;
    old->located = fetch->located;
    old->in_memory = fetch->in_memory;
    if (fetch->code < 0 || fetch->in_memory)
        return;
    old->text_bytes = fetch->attributes ? fetch->attribute_bytes : 0;
    if (fetch->want_vector)
        old->vector = malloc(sizeof(float) * old->dim);
    if (old->text_bytes)
        old->text = malloc(old->text_bytes);
    if ((fetch->want_vector && !old->vector) || (old->text_bytes && !old->text)) {
        old->code = error_set(&old->error, QUIRE_ENOMEM, "no memory to replace an element");
        return;
    }
    if (old->vector)
        memcpy(old->vector, fetch->vector, sizeof(float) * old->dim);
    if (old->text)
        memcpy(old->text, fetch->attributes, old->text_bytes);
}

/* *old is ended by old_row_free. 0, also where there is no such element. */
static int fetch_old_row(struct quire_collection *c, const void *key, uint32_t key_bytes, bool want_vector,
                         bool want_text, struct old_row *old, struct quire_error *err)
{
    struct collection_fetch fetch = {.collection = c->collection,
                                     .key = key,
                                     .key_bytes = key_bytes,
                                     .want_vector = want_vector,
                                     .want_attributes = want_text,
                                     .want_grants = want_text,
                                     .done = on_old_row,
                                     .owner = old};
    *old = (struct old_row){.dim = collection_config(c->collection)->dim};
    int rc = run_fetch(c, &fetch, &old->done, err);
    if (rc == 0 && old->code < 0 && old->code != QUIRE_ENOTFOUND) {
        if (err)
            *err = old->error;
        rc = old->code;
    }
    return rc;
}

/* As fetch_old_row, and without the disk where no segment can hold the key. */
static int locate(struct quire_collection *c, const void *key, uint32_t key_bytes, bool want_text, struct old_row *old,
                  struct quire_error *err)
{
    *old = (struct old_row){.done = true};
    return collection_locate_now(c->collection, key, key_bytes, &old->located)
               ? 0
               : fetch_old_row(c, key, key_bytes, false, want_text, old, err);
}

/* Lets maintenance catch up where it is behind, and waits for the write's LSN. */
static int finish_write(struct quire_collection *c, uint64_t lsn, struct quire_error *err)
{
    const struct timespec pause = {.tv_nsec = (long)store_delay_us(c->store) * 1000};
    assert(lsn > 0);
    if (pause.tv_nsec > 0)
        nanosleep(&pause, NULL);
    return journal_wait(store_journal(c->store), lsn, err);
}

int library_key_validate(const void *key, size_t key_bytes, struct quire_error *err)
{
    if (!key || key_bytes == 0 || key_bytes > QUIRE_KEY_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a key has 1..%u bytes, not %zu", QUIRE_KEY_BYTES_MAX, key_bytes);
    return 0;
}

/* scope: on whose behalf; NULL: of nobody, grants stay as they are. */
static int put_element(struct quire_collection *c, const void *key, size_t key_bytes, const void *vector,
                       const char *attributes, size_t attribute_bytes, const struct tenant_scope *scope, bool *was_new,
                       struct quire_error *err)
{
    if (!c || !vector)
        return error_set(err, QUIRE_EINVALID, "collection and vector must be given");
    int rc = library_here(c, err);
    if (rc == 0)
        rc = library_key_validate(key, key_bytes, err);
    if (rc == 0 && attributes && attribute_bytes > ATTRIBUTE_BYTES_MAX)
        rc = error_set(err, QUIRE_ERANGE, "attributes of %zu bytes: at most %u", attribute_bytes, ATTRIBUTE_BYTES_MAX);
    if (rc < 0)
        return rc;
    struct collection_put put = {.key = key,
                                 .key_bytes = (uint32_t)key_bytes,
                                 .vector = vector,
                                 .attributes = attributes,
                                 .attribute_bytes = attributes ? (uint32_t)attribute_bytes : 0,
                                 .keep_attributes = !attributes,
                                 .grants = scope ? scope->tenants : NULL,
                                 .n_grants = scope ? scope->n : 0,
                                 .keep_grants = true,
                                 .scope = scope};
    do {
        struct old_row old;
        rc = locate(c, key, put.key_bytes, true, &old, err);
        put.located = old.located;
        put.old_text = old.text;
        put.old_text_bytes = old.text_bytes;
        if (rc == 0)
            rc = collection_put(c->collection, &put, err);
        old_row_free(&old);
    } while (rc == QUIRE_ESTALE);
    if (rc == 0 && was_new)
        *was_new = put.was_new;
    return rc == 0 ? finish_write(c, put.lsn, err) : rc;
}

int quire_put(struct quire_collection *c, const void *key, size_t key_bytes, const void *vector, const char *attributes,
              size_t attribute_bytes, bool *was_new, struct quire_error *err)
{
    return put_element(c, key, key_bytes, vector, attributes, attribute_bytes, NULL, was_new, err);
}

int quire_put_granted(struct quire_collection *c, const void *key, size_t key_bytes, const void *vector,
                      const char *attributes, size_t attribute_bytes, const struct quire_bytes *tenants,
                      uint32_t n_tenants, bool *was_new, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    struct tenant_scope scope = {0};
    if (!tenants || n_tenants == 0)
        return error_set(err, QUIRE_EINVALID, "tenants must be given, one at least");
    int rc = library_scope_of(tenants, n_tenants, &scope, err);
    if (rc == 0)
        rc = put_element(c, key, key_bytes, vector, attributes, attribute_bytes, &scope, was_new, err);
    free(scope.tenants);
    return rc;
}

int quire_remove(struct quire_collection *c, const void *key, size_t key_bytes, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    struct old_row old;
    bool removed = false;
    uint64_t lsn = 0;
    if (!c)
        return error_set(err, QUIRE_EINVALID, "collection must be given");
    int rc = library_key_validate(key, key_bytes, err);
    if (rc < 0)
        return rc;
    do {
        rc = locate(c, key, (uint32_t)key_bytes, false, &old, err);
        if (rc == 0)
            rc = collection_remove(c->collection, key, (uint32_t)key_bytes, &old.located, NULL, &removed, &lsn, err);
    } while (rc == QUIRE_ESTALE);
    if (rc == 0 && !removed)
        return error_set(err, QUIRE_ENOTFOUND, "there is no such element");
    return rc == 0 ? journal_wait(store_journal(c->store), lsn, err) : rc;
}

/* An element of a sealed segment is put again with its stored vector, in the elements of the collection's type, and its
 * changed text. QUIRE_ESTALE where it has gone to a memtable meanwhile. */
static int change_sealed(struct quire_collection *c, struct collection_change *change, struct quire_error *err)
{
    const struct collection_config *config = collection_config(c->collection);
    struct old_row old;
    void *elements = NULL;
    char *text = NULL;
    uint32_t text_bytes = 0;
    int rc = fetch_old_row(c, change->key, change->key_bytes, true, true, &old, err);
    if (rc == 0 && old.code == QUIRE_ENOTFOUND)
        rc = error_set(err, QUIRE_ENOTFOUND, "there is no such element");
    else if (rc == 0 && old.in_memory)
        rc = QUIRE_ESTALE;
    if (rc == 0)
        rc = collection_changed_text(c->collection, change, old.text, old.text_bytes, &text, &text_bytes,
                                     &change->n_changed, err);
    if (rc < 0 || (!change->set_attributes && change->n_changed == 0))
        goto out;
    elements = malloc(sizeof(float) * config->dim);
    if (!elements) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a vector");
        goto out;
    }
    space_elements(config->type, old.vector, config->dim, elements);
    struct collection_put put = {.key = change->key,
                                 .key_bytes = change->key_bytes,
                                 .vector = elements,
                                 .keep_attributes = true,
                                 .keep_grants = true,
                                 .old_text = text,
                                 .old_text_bytes = text_bytes,
                                 .condition = PUT_ONLY_SEALED,
                                 .located = old.located};
    rc = collection_put(c->collection, &put, err);
    change->lsn = put.lsn;
out:
    free(text);
    free(elements);
    old_row_free(&old);
    return rc;
}

int library_change(struct quire_collection *c, struct collection_change *change, struct quire_error *err)
{
    int rc;
    do {
        change->lsn = 0;
        rc = collection_change(c->collection, change, err);
        if (rc == QUIRE_ENOTFOUND)
            rc = change_sealed(c, change, err);
    } while (rc == QUIRE_ESTALE);
    return rc == 0 && change->lsn > 0 ? finish_write(c, change->lsn, err) : rc;
}

int quire_set_attributes(struct quire_collection *c, const void *key, size_t key_bytes, const char *attributes,
                         size_t attribute_bytes, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    if (!c)
        return error_set(err, QUIRE_EINVALID, "collection must be given");
    int rc = library_key_validate(key, key_bytes, err);
    attributes = attribute_bytes ? attributes : NULL;
    attribute_bytes = attributes ? attribute_bytes : 0;
    if (rc == 0 && attribute_bytes > ATTRIBUTE_BYTES_MAX)
        rc = error_set(err, QUIRE_ERANGE, "attributes of %zu bytes: at most %u", attribute_bytes, ATTRIBUTE_BYTES_MAX);
    if (rc < 0)
        return rc;
    struct collection_change change = {.key = key,
                                       .key_bytes = (uint32_t)key_bytes,
                                       .set_attributes = true,
                                       .attributes = attributes,
                                       .attribute_bytes = (uint32_t)attribute_bytes};
    return library_change(c, &change, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct get_answer {
    float *vector;
    char *attributes;
    size_t *attribute_bytes;
    uint32_t dim;
    bool done;
    int code;
    struct quire_error *err;
};

static void on_fetched(struct collection_fetch *fetch)
{
    struct get_answer *a = fetch->owner;
    assert(!a->done && fetch->code <= 0);
    a->done = true;
    a->code = fetch->code;
    if (fetch->code < 0) {
        if (a->err)
            *a->err = fetch->error;
        return;
    }
    size_t capacity = a->attribute_bytes ? *a->attribute_bytes : 0;
    if (a->attribute_bytes)
        *a->attribute_bytes = fetch->attribute_bytes;
    if (a->attribute_bytes && fetch->attribute_bytes > capacity) {
        a->code = error_set(a->err, QUIRE_ELIMIT, "the attributes have %u bytes, there is room for %zu",
                            fetch->attribute_bytes, capacity);
        return;
    }
    if (a->vector)
        memcpy(a->vector, fetch->vector, sizeof(float) * a->dim);
    if (a->attributes && a->attribute_bytes && fetch->attribute_bytes > 0)
        memcpy(a->attributes, fetch->attributes, fetch->attribute_bytes);
}

int quire_get(struct quire_collection *c, const void *key, size_t key_bytes, float *vector, char *attributes,
              size_t *attribute_bytes, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    if (!c)
        return error_set(err, QUIRE_EINVALID, "collection must be given");
    int rc = library_key_validate(key, key_bytes, err);
    if (rc < 0)
        return rc;
    struct get_answer answer = {.vector = vector,
                                .attributes = attributes,
                                .attribute_bytes = attribute_bytes,
                                .dim = collection_config(c->collection)->dim,
                                .err = err};
    struct collection_fetch fetch = {.collection = c->collection,
                                     .key = key,
                                     .key_bytes = (uint32_t)key_bytes,
                                     .want_vector = vector != NULL,
                                     .want_attributes = attribute_bytes != NULL,
                                     .done = on_fetched,
                                     .owner = &answer};
    rc = run_fetch(c, &fetch, &answer.done, err);
    return rc < 0 ? rc : answer.code;
}

struct search_answer {
    struct quire_result *result;
    struct quire_search_stats *stats;
    bool done;
    int code;
    struct quire_error *err;
    uint32_t dim;
};

static size_t rounded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Copies what the search found into one piece of memory. */
static int copy_result(const struct collection_search *search, uint32_t dim, struct quire_result *result)
{
    size_t total = 0;
    for (uint32_t i = 0; i < search->n_hits; i++)
        total += rounded(search->hits[i].key_bytes) + rounded(search->hits[i].attribute_bytes) +
                 (search->hits[i].vector ? rounded(sizeof(float) * dim) : 0);
    result->elements = calloc((size_t)search->n_hits + 1, sizeof *result->elements);
    result->bytes = malloc(total + 1);
    if (!result->elements || !result->bytes)
        return QUIRE_ENOMEM;
    uint8_t *to = result->bytes;
    for (uint32_t i = 0; i < search->n_hits; i++) {
        const struct collection_hit *hit = &search->hits[i];
        struct quire_element *e = &result->elements[i];
        *e = (struct quire_element){.key = memcpy(to, hit->key, hit->key_bytes),
                                    .key_bytes = hit->key_bytes,
                                    .distance = hit->distance,
                                    .deviation = hit->deviation,
                                    .attribute_bytes = hit->attribute_bytes};
        to += rounded(hit->key_bytes);
        if (hit->attributes)
            e->attributes = memcpy(to, hit->attributes, hit->attribute_bytes);
        to += rounded(hit->attribute_bytes);
        if (hit->vector) {
            e->vector = memcpy(to, hit->vector, sizeof(float) * dim);
            to += rounded(sizeof(float) * dim);
        }
    }
    assert(to == result->bytes + total);
    result->n = search->n_hits;
    return 0;
}

static void on_search(struct collection_search *search)
{
    struct search_answer *a = search->owner;
    assert(!a->done && a->result && a->result->n == 0);
    a->done = true;
    a->code = search->code;
    if (search->code < 0 && a->err)
        *a->err = search->error;
    if (search->code < 0)
        return;
    if (copy_result(search, a->dim, a->result) < 0)
        a->code = error_set(a->err, QUIRE_ENOMEM, "no memory for a result of %u elements", search->n_hits);
    if (a->stats)
        *a->stats = search->stats;
}

int quire_collection_search(struct quire_collection *c, const struct quire_snapshot *snapshot, const float *query,
                            const struct quire_search_options *options, unsigned with, struct quire_result **result,
                            struct quire_search_stats *stats, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    struct quire_search_options o;
    struct search_lane *lane;
    struct chosen chosen;
    quire_search_options_init(&o);
    if (options)
        o = *options;
    if (!c || !query || !result)
        return error_set(err, QUIRE_EINVALID, "collection, query and result must be given");
    int rc = library_search_validate(&o, collection_config(c->collection)->dim, err);
    if (rc == 0 && snapshot && snapshot->of != c)
        rc = error_set(err, QUIRE_EINVALID, "the snapshot is of another collection");
    if (rc == 0 && (with & ~(unsigned)(QUIRE_WITH_ATTRIBUTES | QUIRE_WITH_VECTORS)))
        rc = error_set(err, QUIRE_EINVALID, "with is %u: a sum of QUIRE_WITH_ATTRIBUTES and QUIRE_WITH_VECTORS", with);
    if (rc == 0)
        rc = library_choose(c, &(struct quire_where){o.filter, o.filter_bytes, o.tenants, o.n_tenants}, &chosen, err);
    if (rc < 0)
        return rc;
    struct search_answer answer = {.result = calloc(1, sizeof *answer.result),
                                   .stats = stats,
                                   .err = err,
                                   .dim = collection_config(c->collection)->dim};
    struct collection_search search = {.collection = c->collection,
                                       .query = query,
                                       .options = o,
                                       .filter = chosen.filter,
                                       .scope = library_chosen_scope(&chosen),
                                       .want_attributes = with & QUIRE_WITH_ATTRIBUTES,
                                       .want_vectors = with & QUIRE_WITH_VECTORS,
                                       .snapshot = snapshot ? snapshot->snapshot : NULL,
                                       .done = on_search,
                                       .owner = &answer};
    rc = answer.result ? search_lane_pool_take(&c->lanes, 1, &lane, err)
                       : error_set(err, QUIRE_ENOMEM, "no memory for a result");
    if (rc == 0) {
        rc = collection_search_start(lane->searcher, &search, err);
        if (rc == 0) {
            search_lane_run(lane, &answer.done);
            rc = answer.code;
        }
        search_lane_pool_put(&c->lanes, lane);
    }
    library_chosen_free(&chosen);
    if (rc < 0)
        quire_result_free(answer.result);
    else
        *result = answer.result;
    return rc;
}

uint32_t quire_result_count(const struct quire_result *result)
{
    return result->n;
}

void quire_result_element(const struct quire_result *result, uint32_t i, struct quire_element *out)
{
    *out = result->elements[i];
}

void quire_result_free(struct quire_result *result)
{
    if (!result)
        return;
    free(result->elements);
    free(result->bytes);
    free(result);
}

/* ---- snapshots, upkeep ------------------------------------------------------------------------------------------- */

int quire_snapshot_open(struct quire_collection *c, struct quire_snapshot **out, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    if (!c || !out)
        return error_set(err, QUIRE_EINVALID, "collection and out must be given");
    struct quire_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return error_set(err, QUIRE_ENOMEM, "no memory for a snapshot");
    snapshot->of = c;
    int rc = collection_snapshot_open(c->collection, &snapshot->snapshot, err);
    if (rc < 0)
        free(snapshot);
    else
        *out = snapshot;
    return rc;
}

uint64_t quire_snapshot_count(const struct quire_snapshot *snapshot)
{
    return collection_snapshot_count(snapshot->snapshot);
}

void quire_snapshot_close(struct quire_snapshot *snapshot)
{
    if (!snapshot || search_lane_pool_check(&snapshot->of->lanes, NULL) < 0)
        return;
    collection_snapshot_close(snapshot->snapshot);
    free(snapshot);
}

int quire_checkpoint(struct quire_collection *c, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    return c ? store_checkpoint(c->store, err) : error_set(err, QUIRE_EINVALID, "collection must be given");
}

int quire_seal(struct quire_collection *c, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    return c ? store_seal(c->store, c->collection, err) : error_set(err, QUIRE_EINVALID, "collection must be given");
}

int quire_compact(struct quire_collection *c, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    return c ? store_compact(c->store, c->collection, err) : error_set(err, QUIRE_EINVALID, "collection must be given");
}

int quire_backup(struct quire_collection *c, const char *to, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    uint64_t lsn;
    if (!c || !to)
        return error_set(err, QUIRE_EINVALID, "collection and the new folder must be given");
    return store_snapshot(c->store, to, &lsn, err);
}

void quire_collection_get_info(struct quire_collection *c, struct quire_collection_info *out)
{
    *out = (struct quire_collection_info){.elements = 0};
    if (library_here(c, NULL) < 0)
        return;
    const struct collection_config *config = collection_config(c->collection);
    struct collection_stats stats;
    collection_get_stats(c->collection, &stats);
    *out = (struct quire_collection_info){.elements = stats.elements,
                                          .raw_bytes = stats.raw_bytes,
                                          .dim = config->dim,
                                          .type = config->type,
                                          .metric = config->metric,
                                          .slot = config->slot,
                                          .index = collection_index_kind(c->collection),
                                          .memory_rows = stats.memtable_rows,
                                          .memory_bytes = stats.memtable_bytes,
                                          .segments = stats.segments,
                                          .segment_rows = stats.segment_rows,
                                          .dead_rows = stats.dead_rows,
                                          .resident_bytes = stats.resident_bytes,
                                          .disk_bytes = stats.disk_bytes,
                                          .recovery_us = c->report.duration_us,
                                          .replayed_records = c->report.journal.records};
}
