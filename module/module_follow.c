/*
 * module_follow.c - indexes follow the hashes and JSON documents of database 0.
 *
 * Whatever is heard of a key that an index follows, the key is looked at: what it holds is the document, or none.
 * So it does not matter which command, script, expiry or eviction it was. The engine tells inside the command, so a
 * document can be found when its write is answered.
 *
 * Documents are the engine's, vectors and definitions are the store's, and after a crash they are of different moments:
 * the engine may have lost its last second, or the store its last milliseconds. So at the start every document is
 * looked at, the vectors in the store are compared with its own, and what differs is written again; rows of documents
 * that are not there go. It is done before the first command is served. While the engine reads its files, nothing is
 * followed.
 *
 * A document whose vectors the store cannot take now (memory, disk, seals behind) is in no index until it can: then the
 * keys are gone through once more.
 */
#include "io/clock.h"
#include "io/error.h"
#include "module/module_priv.h"
#include "server/call/data.h"
#include "server/process/log.h"
#include <stdlib.h>
#include <string.h>

enum { FILL_US = 1000, OWED_US = 1000000 };

/* A back-fill. */
struct filling {
    struct filling *next;
    struct document_index *index; /* a reference */
    struct rm_cursor *cursor;
    bool again;
    uint64_t seen;
};

/* The main thread's. */
static struct {
    struct rm_ctx *ctx; /* of database 0 */
    bool tried, begun;  /* to make indexes and keys agree; they do */
    bool timer_runs;
    struct filling *fillings;
    uint64_t owed_us; /* since when documents are missing that the store did not take; 0: none are */
} following;

struct rm_ctx *module_documents_context(void)
{
    return following.ctx;
}

bool module_documents_begun(void)
{
    return following.begun;
}

bool module_documents_owed(void)
{
    return following.owed_us != 0;
}

static struct documents *documents(void)
{
    return module_the.service.documents;
}

static bool is_key(size_t n)
{
    return n <= QUIRE_KEY_BYTES_MAX;
}

/* Some documents are in no index. */
static void owe(void)
{
    following.owed_us = following.owed_us ? following.owed_us : clock_us();
}

/* ---- one key ----------------------------------------------------------------------------------------------------- */

/* What the key holds is the document from now on. */
static void take(struct rm_key *key, const char *name, uint32_t n)
{
    struct module_document document;
    struct document_view view;
    if (!module_document_view(&document, key, &view)) {
        documents_gone(documents(), name, n);
        return;
    }
    if (documents_have_vectors(documents()) && documents_admit(documents(), name, n, NULL) < 0) {
        documents_gone(documents(), name, n);
        owe();
    } else {
        documents_changed(documents(), name, n, &view);
    }
    module_document_end(&document);
}

static void look_at(struct rm_ctx *ctx, struct rm_string *name)
{
    size_t n;
    const char *bytes = rm.string_bytes(name, &n);
    struct rm_key *key = rm.open_key(ctx, name, RM_READ | RM_NO_TOUCH);
    take(key, bytes, (uint32_t)n);
    rm.close_key(key);
}

static int on_event(struct rm_ctx *ctx, int type, const char *event, struct rm_string *name)
{
    size_t n;
    if (!following.begun || !documents_follow(documents()) || rm.get_selected_db(ctx) != 0)
        return RM_OK;
    const char *bytes = rm.string_bytes(name, &n);
    if (!is_key(n) || !documents_follow_key(documents(), bytes, (uint32_t)n))
        return RM_OK;
    if (type == RM_NOTIFY_GENERIC && (strcmp(event, "expire") == 0 || strcmp(event, "persist") == 0))
        return RM_OK; /* the value is what it was */
    /* a name that is told while files are read may not be kept, as opening does */
    struct rm_string *copy = rm.create_string(NULL, bytes, n);
    look_at(ctx, copy);
    rm.free_string(NULL, copy);
    return RM_OK;
}

/* ---- all keys ---------------------------------------------------------------------------------------------------- */

static bool is_living(struct rm_key *key, size_t n)
{
    return key && is_key(n) && rm.get_expire(key) != 0;
}

static void give(struct rm_ctx *ctx, struct rm_string *name, struct rm_key *key, void *data)
{
    size_t n;
    const char *bytes = rm.string_bytes(name, &n);
    (void)ctx;
    (void)data;
    if (is_living(key, n) && documents_follow_key(documents(), bytes, (uint32_t)n))
        take(key, bytes, (uint32_t)n);
}

static void give_all(void)
{
    struct rm_cursor *cursor = rm.create_cursor();
    while (documents_follow(documents()) && rm.scan(following.ctx, cursor, give, NULL))
        ;
    rm.destroy_cursor(cursor);
}

void module_documents_begin(void)
{
    uint64_t began_us = clock_us();
    struct quire_error err = {0};
    if (following.tried)
        return;
    following.tried = true;
    int rc = documents_compare(documents(), &err);
    if (rc == 0)
        give_all();
    if (rc == 0)
        rc = data_documents_given(&module_the.service, began_us, &err);
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "indexes of hashes are not whole: %s", err.message);
    following.begun = rc == 0;
}

/* ---- back-fills -------------------------------------------------------------------------------------------------- */

static void end_filling(struct filling *f)
{
    document_index_filled(f->index, 1);
    document_index_unref(f->index);
    rm.destroy_cursor(f->cursor);
    free(f);
}

static void fill_one(struct rm_ctx *ctx, struct rm_string *name, struct rm_key *key, void *data)
{
    struct filling *f = data;
    const struct schema *schema = document_index_schema(f->index);
    struct module_document document;
    struct document_view view;
    size_t n;
    const char *bytes = rm.string_bytes(name, &n);
    (void)ctx;
    f->seen++;
    if (!is_living(key, n) || !schema_follows(schema, bytes, (uint32_t)n) ||
        !module_document_view(&document, key, &view))
        return;
    bool fits = view.source == schema->source, admitted = fits && document_index_admit(f->index, NULL) == 0;
    if (admitted) {
        documents_write_begin(documents());
        document_index_put(f->index, bytes, (uint32_t)n, &view, !f->again);
        documents_write_end(documents());
    } else if (fits) {
        owe();
    }
    module_document_end(&document);
}

/* Whether there is more to do. */
static bool fill_some(struct filling *f)
{
    uint64_t end_us = clock_us() + FILL_US;
    bool more = !document_index_is_dropped(f->index);
    while (more && clock_us() < end_us)
        more = rm.scan(following.ctx, f->cursor, fill_one, f);
    unsigned long long all = rm.db_size(following.ctx);
    double share = all > 0 ? (double)f->seen / (double)all : 1;
    document_index_filled(f->index, share < .99 ? share : .99);
    return more;
}

static void start_timer(void);

/* The first of them for a while, then another one: they take turns. */
static void on_fill(struct rm_ctx *ctx, void *data)
{
    struct filling *f = following.fillings;
    (void)ctx;
    (void)data;
    following.timer_runs = false;
    if (!f)
        return;
    following.fillings = f->next;
    f->next = NULL;
    if (fill_some(f)) {
        struct filling **last = &following.fillings;
        while (*last)
            last = &(*last)->next;
        *last = f;
    } else {
        end_filling(f);
    }
    if (following.fillings)
        start_timer();
}

static void start_timer(void)
{
    if (following.timer_runs)
        return;
    following.timer_runs = true;
    rm.create_timer(following.ctx, 1, on_fill, NULL);
}

void module_documents_fill(struct service *service, struct document_index *index, bool again)
{
    (void)service;
    if (rm.db_size(following.ctx) == 0)
        return;
    struct filling *f = calloc(1, sizeof *f);
    if (!f) {
        owe(); /* later */
        return;
    }
    document_index_filled(index, 0);
    *f = (struct filling){
        .next = following.fillings, .index = document_index_ref(index), .cursor = rm.create_cursor(), .again = again};
    following.fillings = f;
    start_timer();
}

/* ---- documents that the store did not take ----------------------------------------------------------------------- */

struct indexes {
    struct document_index *items[DOCUMENTS_INDEXES_MAX]; /* references */
    uint32_t n;
};

static void take_index(void *context, struct document_index *index)
{
    struct indexes *all = context;
    if (all->n < DOCUMENTS_INDEXES_MAX)
        all->items[all->n++] = document_index_ref(index);
}

/* Every index there is. NULL: no memory. Ended by free_indexes. */
static struct indexes *take_indexes(void)
{
    struct indexes *all = calloc(1, sizeof *all);
    if (all)
        documents_each(documents(), take_index, all);
    return all;
}

static void free_indexes(struct indexes *all)
{
    for (uint32_t i = 0; all && i < all->n; i++)
        document_index_unref(all->items[i]);
    free(all);
}

void module_documents_tick(void)
{
    if (!following.begun || !following.owed_us || clock_us() - following.owed_us < OWED_US || following.fillings)
        return;
    struct indexes *all = take_indexes();
    bool may = all != NULL;
    for (uint32_t i = 0; may && i < all->n; i++)
        may = document_index_admit(all->items[i], NULL) == 0;
    following.owed_us = may ? 0 : clock_us();
    for (uint32_t i = 0; may && i < all->n; i++)
        module_documents_fill(&module_the.service, all->items[i], false);
    free_indexes(all);
}

/* ---- FLUSHALL, SWAPDB -------------------------------------------------------------------------------------------- */

/* As in RediSearch, indexes go with their keys. */
void module_documents_flush(int db)
{
    struct quire_error err = {0};
    uint64_t lsn;
    if (!following.begun || (db != 0 && db != -1) || !documents_follow(documents()))
        return;
    struct indexes *all = take_indexes();
    for (uint32_t i = 0; all && i < all->n; i++) {
        const char *name = document_index_name(all->items[i]);
        struct document_index *gone = NULL;
        if (documents_drop(documents(), (struct schema_word){name, (uint32_t)strlen(name)}, &gone, &lsn, &err) < 0)
            log_line(&module_the.log, LOG_LEVEL_WARNING, "an index could not be dropped with its keys: %s",
                     err.message);
        document_index_unref(gone);
    }
    free_indexes(all);
}

enum { KEYS_BYTES = 256 << 10 };

/* Database 0 has other keys now: what the index has is looked at again. */
static void look_at_index(struct document_index *index, uint8_t *keys)
{
    struct document_index_stats stats;
    document_index_get_stats(index, &stats);
    uint32_t from = 1; /* a document that is looked at gets an id above those of now */
    while (from != 0 && from <= stats.max_id) {
        size_t n_bytes = 0;
        from = document_index_keys(index, from, keys, KEYS_BYTES, &n_bytes);
        for (size_t at = 0; at < n_bytes;) {
            uint32_t n;
            memcpy(&n, keys + at, sizeof n);
            struct rm_string *name = rm.create_string(NULL, (const char *)keys + at + sizeof n, n);
            at += sizeof n + n;
            look_at(following.ctx, name);
            rm.free_string(NULL, name);
        }
    }
}

void module_documents_swap(int first, int second)
{
    if (!following.begun || (first != 0 && second != 0) || !documents_follow(documents()))
        return;
    struct indexes *all = take_indexes();
    uint8_t *keys = malloc(KEYS_BYTES);
    for (uint32_t i = 0; all && keys && i < all->n; i++)
        look_at_index(all->items[i], keys);
    free(keys);
    free_indexes(all);
    give_all();
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

int module_documents_create(struct rm_ctx *ctx)
{
    enum {
        CLASSES = RM_NOTIFY_GENERIC | RM_NOTIFY_STRING | RM_NOTIFY_LIST | RM_NOTIFY_SET | RM_NOTIFY_HASH |
                  RM_NOTIFY_ZSET | RM_NOTIFY_EXPIRED | RM_NOTIFY_EVICTED | RM_NOTIFY_STREAM | RM_NOTIFY_LOADED |
                  RM_NOTIFY_MODULE
    };
    following.ctx = rm.get_detached_context(ctx);
    rm.select_db(following.ctx, 0);
    return rm.subscribe_to_keyspace_events(ctx, CLASSES, on_event);
}

void module_documents_end(void)
{
    following.begun = false;
    while (following.fillings) {
        struct filling *f = following.fillings;
        following.fillings = f->next;
        end_filling(f);
    }
}
