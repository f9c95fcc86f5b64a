/*
 * module_stream.c - the primary's side of the engine's stream: what writes did, in the order of commits.
 *
 *   QUIRE._W key id effect      one write of a set (index/replica/replica_effect.h) or a cache
 *                               (cache/core/cache_replica.h), by its id
 *   QUIRE._IMAGE key id image   all of a set (replica_manifest.h), when its key is made or its data is new to replicas;
 *                               of a cache all but its entries
 *   QUIRE._MANIFEST ...         a key and its id (module_type.c)
 *
 * The store tells of a write under the collection's lock (or the cache's), on any thread; here it is put into a queue.
 * The engine takes it in the context of a command, a reply callback or a timer, so before the reply of the command
 * leaves: a WAIT behind it counts it. Effects go to replicas and not to the AOF: the store is the truth of a node.
 *
 * Nothing of this runs, and sets have no identity, before a replica asks for the first time (module_fork.c), and it
 * ends when none was there for a while. Whenever it begins, every set begins a new history: a replica that was attached
 * before finds a gap and copies anew, of which segments that it has are not fetched.
 *
 * While the engine hands over its lead it takes nothing into the stream: an assertion would end it. What is queued then
 * waits, and so do the replies of the writes (module_call.c).
 *
 * Where rows of a merged segment were before (lineage.h) is forgotten when every replica has said that it has the
 * segment: QUIRE._HAVE, with the number up to which it has all publications of a set.
 */
#include "index/replica/replica_effect.h"
#include "index/replica/replica_manifest.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include "server/process/log.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { TICK_MS = 1000, HAVE_MS = 15000 };

struct entry {
    struct entry *next;
    char name[MODULE_NAME_BYTES + 1];
    uint8_t *bytes; /* owned; NULL: an image of the set as it is when this is sent */
    uint8_t *rest;  /* owned, behind them; NULL: none */
    uint32_t n, n_rest;
};

/* A merged segment of which it is remembered where its rows were. */
struct note {
    char name[MODULE_NAME_BYTES + 1];
    uint8_t segment[LINEAGE_ID_BYTES];
    uint64_t seq; /* of its publication */
};

static struct {
    pthread_mutex_t lock; /* of the queue and the notes */
    struct entry *first, *last;
    struct note *notes;
    size_t n_notes, notes_capacity;
    atomic_bool runs;
    _Atomic size_t n_queued;
    /* the main thread's */
    uint64_t ticked_ms, seen_ms; /* a replica was there */
    struct {
        char id[17];
        uint64_t said_ms;
    } replicas[MODULE_REPLICAS_MAX];
} stream = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct collection *module_set_of(const char name[MODULE_NAME_BYTES + 1])
{
    bool other;
    return keyspace_get_vectors(&module_the.service.keyspace,
                                (struct resp_arg){(const uint8_t *)name, (uint32_t)strlen(name)}, &other);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static void free_entry(struct entry *e)
{
    free(e->bytes);
    free(e->rest);
    free(e);
}

static void push(const char *name, uint8_t *bytes, uint32_t n, uint8_t *rest, uint32_t n_rest)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e) { /* replicas find a gap at the next write, and copy the set anew */
        free(bytes);
        free(rest);
        return;
    }
    memcpy(e->name, name, sizeof e->name);
    e->bytes = bytes;
    e->rest = rest;
    e->n = n;
    e->n_rest = n_rest;
    pthread_mutex_lock(&stream.lock);
    *(stream.first ? &stream.last->next : &stream.first) = e;
    stream.last = e;
    pthread_mutex_unlock(&stream.lock);
    atomic_fetch_add(&stream.n_queued, 1);
}

static struct entry *take_all(void)
{
    pthread_mutex_lock(&stream.lock);
    struct entry *first = stream.first;
    stream.first = stream.last = NULL;
    pthread_mutex_unlock(&stream.lock);
    return first;
}

static void drop_all(void)
{
    for (struct entry *e = take_all(), *next; e; e = next) {
        next = e->next;
        atomic_fetch_sub(&stream.n_queued, 1);
        free_entry(e);
    }
}

static void note_merge(const char *name, const struct effect *effect)
{
    pthread_mutex_lock(&stream.lock);
    if (array_reserve(&stream.notes, &stream.notes_capacity, stream.n_notes + 1)) {
        struct note *note = &stream.notes[stream.n_notes++];
        memcpy(note->name, name, sizeof note->name);
        memcpy(note->segment, effect->segment, LINEAGE_ID_BYTES);
        note->seq = effect->seq;
    } /* without memory it is remembered until the next merge */
    pthread_mutex_unlock(&stream.lock);
}

void module_stream_effect(void *context, struct collection *collection, const struct effect *effect)
{
    char name[MODULE_NAME_BYTES + 1];
    uint32_t n = 0;
    (void)context;
    (void)collection;
    bytes_to_hex(effect->of->id, LINEAGE_ID_BYTES, name);
    if (effect->kind == EFFECT_EDIT && effect->n_gone > 0)
        note_merge(name, effect);
    if (!atomic_load(&stream.runs))
        return;
    module_ship_note(effect);
    uint8_t *bytes = replica_effect_encode(effect, &n);
    push(name, bytes, bytes ? n : 0, NULL, 0); /* what is too large to be told is sent as a whole */
}

void module_stream_told(void *context, struct cache *cache, const struct cache_told *told)
{
    char name[MODULE_NAME_BYTES + 1] = "";
    const struct quire_bytes own = cache_get_config(cache)->name;
    (void)context;
    if (!atomic_load(&stream.runs) || !told->bytes || own.n_bytes != MODULE_NAME_BYTES) {
        free(told->bytes);
        free(told->document);
        return;
    }
    memcpy(name, own.data, MODULE_NAME_BYTES);
    push(name, told->bytes, told->n, told->document, told->document_bytes);
}

void module_stream_image(struct module_item *item)
{
    if (atomic_load(&stream.runs))
        push(item->name, NULL, 0, NULL, 0);
}

bool module_stream_is_held(void)
{
    return rm.avoid_replica_traffic();
}

static void give_image(struct rm_ctx *ctx, const struct module_item *item, const uint8_t *bytes, size_t n)
{
    rm.replicate(ctx, MODULE_IMAGE, "Abcb", item->key, (size_t)item->key_bytes, item->name, (const char *)bytes, n);
}

static void send_image(struct rm_ctx *ctx, const struct module_item *item)
{
    struct quire_error err = {0};
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct collection *set = item->kind == MODULE_SET ? module_set_of(item->name) : NULL;
    if (item->kind == MODULE_SET && !set)
        return;
    int rc = set ? module_stream_identify(item, set, &err) : module_caches_image(item->name, &bytes, &n, &err);
    if (rc == 0 && set)
        rc = replica_manifest_make(set, &bytes, &n, &err);
    if (rc == 0)
        give_image(ctx, item, bytes, n);
    else /* they ask for it: what a key has and a replica has not is fetched */
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s' is not in the stream for replicas: %s",
                 (int)item->key_bytes, item->key ? item->key : "", err.message);
    free(bytes);
    collection_unref(set);
}

static void send_effect(struct rm_ctx *ctx, const struct module_item *item, const struct entry *e)
{
    uint8_t *whole = e->n_rest ? malloc((size_t)e->n + e->n_rest) : NULL;
    if (e->n_rest && !whole) /* replicas find a gap at the next write */
        return;
    if (whole) {
        memcpy(whole, e->bytes, e->n);
        memcpy(whole + e->n, e->rest, e->n_rest);
    }
    rm.replicate(ctx, MODULE_WRITE, "Abcb", item->key, (size_t)item->key_bytes, e->name,
                 (const char *)(whole ? whole : e->bytes), (size_t)e->n + e->n_rest);
    free(whole);
}

bool module_stream_flush(struct rm_ctx *ctx)
{
    if (atomic_load(&stream.n_queued) == 0)
        return true;
    if (module_stream_is_held())
        return false;
    for (struct entry *e = take_all(), *next; e; e = next) {
        next = e->next;
        atomic_fetch_sub(&stream.n_queued, 1);
        const struct module_item *item = module_item_find(e->name);
        if (item && item->key && !module_the.is_replica) {
            if (e->bytes)
                send_effect(ctx, item, e);
            else
                send_image(ctx, item);
        }
        free_entry(e);
    }
    return true;
}

void module_stream_key(struct rm_ctx *ctx, const struct rm_string *db, struct rm_string *key)
{
    int was = rm.get_selected_db(ctx);
    size_t n;
    long number = strtol(rm.string_bytes(db, &n), NULL, 10);
    bool other;
    if (!module_the.loaded || module_the.is_replica || module_stream_is_held() || number < 0 || number > INT_MAX ||
        rm.select_db(ctx, (int)number) != RM_OK)
        return;
    struct module_item *item = module_item_of_key(ctx, key, &other);
    if (item) {
        rm.replicate(ctx, MODULE_MANIFEST, "Asccl", key, item->kind == MODULE_SET ? "set" : "cache", item->name,
                     (long long)item->copies);
        module_stream_image(item);
        module_stream_flush(ctx);
    } else if (!other) {
        rm.replicate(ctx, "DEL", "As", key);
    }
    rm.select_db(ctx, was);
}

/* ---- identities -------------------------------------------------------------------------------------------------- */

int module_stream_identify(const struct module_item *item, struct collection *set, struct quire_error *err)
{
    struct lineage_identity identity = {.begins = 1, .seq = 1};
    uint64_t lsn;
    if (lineage_get(set, NULL))
        return 0;
    if (!bytes_from_hex(item->name, LINEAGE_ID_BYTES, identity.id))
        return error_set(err, QUIRE_EINVALID, "'%s' is no id of a set", item->name);
    if (getrandom(identity.history, LINEAGE_ID_BYTES, 0) != (ssize_t)LINEAGE_ID_BYTES)
        return error_set_errno(err, errno, "get", "random bytes");
    return lineage_begin(set, &identity, &lsn, err);
}

static void begin_one(void *context, struct module_item *item)
{
    struct quire_error err = {0};
    uint64_t lsn;
    struct collection *set = item->kind == MODULE_SET ? module_set_of(item->name) : NULL;
    (void)context;
    if (item->kind == MODULE_CACHE)
        module_caches_tell(item, true);
    if (item->kind == MODULE_CACHE && item->state == MODULE_LIVE && item->attached > 0)
        module_stream_image(item);
    if (!set)
        return;
    int rc = 0;
    if (!lineage_get(set, NULL))
        rc = module_stream_identify(item, set, &err);
    else if (!lineage_is_replica(set))
        rc = lineage_begin_history(set, &lsn, &err);
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s' cannot be copied: %s", (int)item->key_bytes,
                 item->key ? item->key : "", err.message);
    collection_unref(set);
}

void module_stream_begin(void)
{
    stream.seen_ms = clock_us() / 1000;
    if (atomic_load(&stream.runs) || !module_the.open || module_the.is_replica)
        return;
    atomic_store(&stream.runs, true);
    module_items_each(begin_one, NULL);
}

static void end_one(void *context, struct module_item *item)
{
    (void)context;
    if (item->kind == MODULE_CACHE)
        module_caches_tell(item, false);
}

void module_stream_end(void)
{
    atomic_store(&stream.runs, false);
    if (module_the.open)
        module_items_each(end_one, NULL);
    drop_all();
}

bool module_stream_runs(void)
{
    return atomic_load(&stream.runs);
}

/* ---- what replicas have ------------------------------------------------------------------------------------------ */

static int slot_of(const char *id, size_t n, uint64_t now_ms)
{
    int free_slot = -1;
    for (int i = 0; i < MODULE_REPLICAS_MAX; i++) {
        if (strlen(stream.replicas[i].id) == n && memcmp(stream.replicas[i].id, id, n) == 0)
            return i;
        if (now_ms - stream.replicas[i].said_ms > HAVE_MS)
            free_slot = i;
    }
    return free_slot;
}

static void forget_slot(void *context, struct module_item *item)
{
    item->have[*(const int *)context] = 0;
}

/* QUIRE._HAVE replica id seq [id seq ...]: the sets of these ids have all publications up to these numbers. */
int module_stream_have(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    uint64_t now_ms = clock_us() / 1000;
    size_t n;
    if (argc < 4 || argc % 2 != 0)
        return rm.wrong_arity(ctx);
    const char *replica = rm.string_bytes(argv[1], &n);
    int slot = n < sizeof stream.replicas[0].id ? slot_of(replica, n, now_ms) : -1;
    if (slot < 0)
        return rm.reply_error(ctx, "ERR more replicas than are counted: what they have is not noted");
    if (strcmp(stream.replicas[slot].id, replica) != 0) {
        memcpy(stream.replicas[slot].id, replica, n + 1);
        module_items_each(forget_slot, &slot);
    }
    stream.replicas[slot].said_ms = now_ms;
    for (int i = 2; i < argc; i += 2) {
        size_t name_bytes, seq_bytes;
        struct module_item *item = module_item_find(rm.string_bytes(argv[i], &name_bytes));
        if (item)
            item->have[slot] = strtoull(rm.string_bytes(argv[i + 1], &seq_bytes), NULL, 10);
    }
    return rm.reply_simple(ctx, "OK");
}

static bool all_have(const struct note *note, unsigned n_replicas, uint64_t now_ms)
{
    const struct module_item *item = module_item_find(note->name);
    unsigned n = 0;
    for (unsigned i = 0; item && i < MODULE_REPLICAS_MAX; i++)
        n += stream.replicas[i].said_ms && now_ms - stream.replicas[i].said_ms <= HAVE_MS && item->have[i] >= note->seq;
    return !item || n >= n_replicas;
}

/* n_replicas 0: nobody will ask. */
static void forget_origins(unsigned n_replicas, uint64_t now_ms)
{
    struct note *over = NULL;
    size_t n_over = 0, kept = 0;
    pthread_mutex_lock(&stream.lock);
    if (stream.n_notes > 0)
        over = malloc(stream.n_notes * sizeof *over);
    for (size_t i = 0; over && i < stream.n_notes; i++)
        if (all_have(&stream.notes[i], n_replicas, now_ms))
            over[n_over++] = stream.notes[i];
        else
            stream.notes[kept++] = stream.notes[i];
    stream.n_notes = over ? kept : stream.n_notes;
    pthread_mutex_unlock(&stream.lock);
    for (size_t i = 0; i < n_over; i++) { /* outside of the lock: effects come under the collection's */
        struct collection *set = module_set_of(over[i].name);
        if (set)
            lineage_forget_origins(set, over[i].segment);
        collection_unref(set);
    }
    free(over);
}

unsigned module_stream_replicas(struct rm_ctx *ctx)
{
    struct rm_server_info *info = rm.get_server_info(ctx, "replication");
    int error = 0;
    unsigned long long n = info ? rm.server_info_number(info, "connected_slaves", &error) : 0;
    if (info)
        rm.free_server_info(ctx, info);
    return error == RM_OK ? (unsigned)n : 0;
}

void module_stream_tick(struct rm_ctx *ctx)
{
    uint64_t now_ms = clock_us() / 1000;
    module_stream_flush(ctx);
    if (now_ms - stream.ticked_ms < TICK_MS)
        return;
    stream.ticked_ms = now_ms;
    unsigned n_replicas = module_stream_replicas(ctx);
    if (n_replicas > 0)
        stream.seen_ms = now_ms;
    else if (module_stream_runs() && now_ms - stream.seen_ms > module_the.settings.ship_keep_s * 1000)
        module_stream_end();
    if (n_replicas > 0 || !module_stream_runs())
        forget_origins(n_replicas, now_ms);
    module_ship_tick();
}
