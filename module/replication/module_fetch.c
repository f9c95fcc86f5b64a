/*
 * module_fetch.c - a replica's thread that asks its primary for what is not here.
 *
 * The main thread posts sets, one task each; the result comes back to it as a message. A task of a set that must be
 * copied anew asks for its image (QUIRE._COPY) and makes a set of it, with hard links to the segments that the old one
 * has; a large image that came in an RDB is given to a task instead. Where the primary has no set of that id it is
 * asked now and then what the key is: it says so in the stream. A task of a set that lacks segments fetches those whose
 * turn has come, one after the other, until none is awaited: a list of files, then pieces of PIECE_BYTES with IN_FLIGHT
 * of them asked for ahead. What came is verified and adopted by index/replica/replica_fetch.h; a damaged segment is
 * gone, and the main thread decides when to ask again. A task of a cache that must be copied anew brings its image,
 * which the main thread makes a cache of; one of a cache that lacks entries asks for lists (QUIRE._LIST) and, of each,
 * for the entries that are not here (_ENTRIES).
 *
 * quire.ship-rate bounds the bytes per second. A change of roles or a full sync ends a task at its next piece.
 */
#include "index/replica/replica_manifest.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    PIECE_BYTES = 1 << 20,
    IN_FLIGHT = 4,
    LOOK_MS = 1000,
    HAVE_AT_ONCE = 256,
    ENTRIES_AT_ONCE = 512,
    NUMBER_BYTES = 24
};

struct have {
    struct have *next;
    char name[MODULE_NAME_BYTES + 1];
    uint64_t seq;
};

static struct {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ready;
    struct module_fetch *first, *last;
    struct have *have;
    struct module_link_target target;
    uint64_t target_version; /* 0: the primary is not known, or its link is down */
    bool stopping;
    struct module_fetch_stats stats;
    _Atomic uint64_t epoch; /* a task begun in another is for nobody */
    uint64_t looked_ms;     /* the main thread's */
    /* the thread's */
    struct module_link *link;
    uint64_t link_version, rate_us; /* when the next byte may be asked for */
    char replica[17];
} fetch = {.lock = PTHREAD_MUTEX_INITIALIZER, .ready = PTHREAD_COND_INITIALIZER};

static void note_link(const char *text)
{
    pthread_mutex_lock(&fetch.lock);
    snprintf(fetch.stats.link, sizeof fetch.stats.link, "%.*s", MODULE_TEXT_BYTES - 1, text);
    pthread_mutex_unlock(&fetch.lock);
}

void module_fetch_get_stats(struct module_fetch_stats *out)
{
    pthread_mutex_lock(&fetch.lock);
    *out = fetch.stats;
    pthread_mutex_unlock(&fetch.lock);
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

static void hang_up(void)
{
    module_link_close(fetch.link);
    fetch.link = NULL;
}

static int connect_now(struct quire_error *err)
{
    pthread_mutex_lock(&fetch.lock);
    struct module_link_target target = fetch.target;
    uint64_t version = fetch.target_version;
    pthread_mutex_unlock(&fetch.lock);
    if (fetch.link && fetch.link_version != version)
        hang_up();
    if (fetch.link)
        return 0;
    int rc = version ? module_link_open(&target, &fetch.link, err)
                     : error_set(err, QUIRE_EIO, "there is no link to a primary");
    fetch.link_version = version;
    note_link(rc == 0 ? "up" : err->message);
    return rc;
}

static struct module_word word(const char *text)
{
    return (struct module_word){text, strlen(text)};
}

static int ask(const struct module_word *words, unsigned n, enum module_reply_kind kind, struct module_link_reply *out,
               struct quire_error *err)
{
    int rc = module_link_send(fetch.link, words, n, err);
    if (rc == 0)
        rc = module_link_receive(fetch.link, out, err);
    if (rc == 0 && out->kind != kind)
        rc = error_set(err, QUIRE_EIO, "the primary gives an answer of another kind than is expected");
    return rc;
}

static bool is_over(uint64_t epoch)
{
    return atomic_load(&fetch.epoch) != epoch;
}

static int over(struct quire_error *err)
{
    return error_set(err, QUIRE_ECLOSED, "this node has another primary, or leads");
}

/* Waits until n more bytes may be asked for. */
static void keep_rate(uint64_t n)
{
    uint64_t rate = atomic_load(&module_the.settings.ship_rate), now_us = clock_us();
    if (rate == 0)
        return;
    if (fetch.rate_us > now_us) {
        uint64_t us = fetch.rate_us - now_us;
        const struct timespec pause = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
        nanosleep(&pause, NULL);
        now_us = fetch.rate_us;
    }
    fetch.rate_us = now_us + n * 1000000 / rate;
}

/* ---- a segment --------------------------------------------------------------------------------------------------- */

struct coming {
    const char *name;
    char segment[2 * LINEAGE_ID_BYTES + 1];
    struct replica_file files[REPLICA_FILES_MAX];
    uint32_t n_files;
    struct replica_fetch *fetch;
    uint32_t file; /* of the next piece to ask for */
    uint64_t offset;
};

static int list_files(struct coming *c, struct quire_error *err)
{
    const struct module_word words[] = {word("QUIRE._FILES"), word(c->name), word(c->segment)};
    struct module_link_reply reply, item;
    int rc = ask(words, 3, MODULE_REPLY_ARRAY, &reply, err);
    size_t n = rc == 0 ? reply.n / 2 : 0;
    if (rc == 0 && (n == 0 || n > REPLICA_FILES_MAX || reply.n % 2 != 0))
        rc = error_set(err, QUIRE_EIO, "the primary lists %zu files of a segment", n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = module_link_receive(fetch.link, &item, err);
        if (rc == 0 && (item.kind != MODULE_REPLY_BULK || item.n >= REPLICA_NAME_BYTES))
            rc = error_set(err, QUIRE_EIO, "the primary lists no files of a segment");
        if (rc == 0) {
            c->files[i] = (struct replica_file){.bytes = 0};
            memcpy(c->files[i].name, item.bytes, item.n);
            rc = module_link_receive(fetch.link, &item, err);
            c->files[i].bytes = rc == 0 && item.kind == MODULE_REPLY_INTEGER ? (uint64_t)item.number : 0;
        }
    }
    c->n_files = (uint32_t)n;
    return rc;
}

/* The next piece that was not asked for; false: all were. */
static bool next_piece(struct coming *c, const char **file, uint64_t *offset, uint32_t *n)
{
    while (c->file < c->n_files && c->offset == c->files[c->file].bytes) {
        c->file++;
        c->offset = 0;
    }
    if (c->file == c->n_files)
        return false;
    uint64_t left = c->files[c->file].bytes - c->offset;
    *file = c->files[c->file].name;
    *offset = c->offset;
    *n = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
    c->offset += *n;
    return true;
}

struct piece {
    const char *file;
    uint64_t offset;
    uint32_t n;
};

static int ask_piece(struct coming *c, const struct piece *p, struct quire_error *err)
{
    char offset[NUMBER_BYTES], n[NUMBER_BYTES];
    snprintf(offset, sizeof offset, "%llu", (unsigned long long)p->offset);
    snprintf(n, sizeof n, "%u", p->n);
    const struct module_word words[] = {word("QUIRE._READ"), word(c->name), word(c->segment),
                                        word(p->file),       word(offset),  word(n)};
    keep_rate(p->n);
    return module_link_send(fetch.link, words, 6, err);
}

static int take_piece(struct coming *c, const struct piece *p, struct quire_error *err)
{
    struct module_link_reply reply;
    int rc = module_link_receive(fetch.link, &reply, err);
    if (rc == 0 && (reply.kind != MODULE_REPLY_BULK || reply.n != p->n))
        rc = error_set(err, QUIRE_ECORRUPT, "a piece of a segment came with %zu bytes, %u were asked for", reply.n,
                       p->n);
    if (rc == 0)
        rc = replica_fetch_write(c->fetch, p->file, p->offset, reply.bytes, p->n, err);
    if (rc == 0) {
        pthread_mutex_lock(&fetch.lock);
        fetch.stats.bytes += p->n;
        pthread_mutex_unlock(&fetch.lock);
    }
    return rc;
}

static int take_pieces(struct coming *c, uint64_t epoch, struct quire_error *err)
{
    struct piece asked[IN_FLIGHT], p;
    unsigned n_asked = 0, first = 0;
    int rc = 0;
    bool more = true;
    while (rc == 0 && (more || n_asked > 0)) {
        if (more && n_asked < IN_FLIGHT && (more = next_piece(c, &p.file, &p.offset, &p.n))) {
            asked[(first + n_asked++) % IN_FLIGHT] = p;
            rc = ask_piece(c, &p, err);
        } else if (n_asked > 0) {
            rc = take_piece(c, &asked[first], err);
            first = (first + 1) % IN_FLIGHT;
            n_asked--;
        }
        if (rc == 0 && is_over(epoch))
            rc = over(err);
    }
    if (rc < 0)
        hang_up(); /* answers to what was asked ahead would come */
    return rc;
}

static int fetch_segment(const char *name, struct collection *set, const struct lineage_told *told, uint64_t epoch,
                         struct quire_error *err)
{
    struct coming c = {.name = name};
    uint64_t lsn;
    bytes_to_hex(told->segment, LINEAGE_ID_BYTES, c.segment);
    int rc = connect_now(err);
    if (rc == 0)
        rc = list_files(&c, err);
    if (rc == 0)
        rc = replica_fetch_begin(module_the.service.store, set, told, c.files, c.n_files, &c.fetch, err);
    if (rc < 0)
        return rc;
    rc = take_pieces(&c, epoch, err);
    if (rc < 0) {
        replica_fetch_abort(c.fetch);
        return rc;
    }
    rc = replica_fetch_end(c.fetch, &lsn, err);
    if (rc == 0) {
        pthread_mutex_lock(&fetch.lock);
        fetch.stats.segments++;
        pthread_mutex_unlock(&fetch.lock);
    }
    return rc;
}

/* What the set or cache is; where its id was not known to the primary, what the key is, too. */
static int ask_copy(struct module_fetch *f, struct module_link_reply *reply)
{
    char db[NUMBER_BYTES];
    snprintf(db, sizeof db, "%d", f->db);
    const struct module_word words[] = {word("QUIRE._COPY"), word(f->name), word(db), {f->key, f->key_bytes}};
    int rc = connect_now(&f->error);
    return rc < 0 ? rc : ask(words, f->key ? 4 : 2, MODULE_REPLY_BULK, reply, &f->error);
}

/* ---- a cache ----------------------------------------------------------------------------------------------------- */

static void count_entries(uint64_t n, uint64_t bytes)
{
    pthread_mutex_lock(&fetch.lock);
    fetch.stats.entries += n;
    fetch.stats.bytes += bytes;
    pthread_mutex_unlock(&fetch.lock);
}

static int copy_image(struct module_fetch *f, uint64_t epoch)
{
    struct module_link_reply reply;
    int rc = ask_copy(f, &reply);
    if (rc == 0 && is_over(epoch))
        rc = over(&f->error);
    f->image = rc == 0 ? malloc(reply.n + 1) : NULL;
    if (rc == 0 && !f->image)
        rc = error_set(&f->error, QUIRE_ENOMEM, "no memory for a cache");
    if (rc == 0) {
        memcpy(f->image, reply.bytes, reply.n);
        f->n_image = reply.n;
    }
    return rc;
}

/* Some of the entries that are lacking; *done of the ids were looked at. */
static int take_entries(const char *name, struct cache *cache, struct cache_scratch *scratch, const uint64_t *ids,
                        uint32_t n, uint32_t *done, struct quire_error *err)
{
    uint8_t bytes[8 * ENTRIES_AT_ONCE];
    struct module_link_reply reply = {.n = 0}, item = {.n = 0};
    uint32_t taken = 0;
    n = n < ENTRIES_AT_ONCE ? n : ENTRIES_AT_ONCE;
    for (uint32_t i = 0; i < n; i++)
        bytes_store_u64(bytes + (size_t)8 * i, ids[i]);
    const struct module_word words[] = {word("QUIRE._ENTRIES"), word(name), {bytes, (size_t)8 * n}};
    int rc = ask(words, 3, MODULE_REPLY_ARRAY, &reply, err);
    if (rc == 0)
        rc = module_link_receive(fetch.link, &item, err);
    if (rc == 0 && (reply.n != 2 || item.kind != MODULE_REPLY_INTEGER || item.number < 1 || item.number > n))
        rc = error_set(err, QUIRE_EIO, "the primary gives no entries of a cache");
    *done = rc == 0 ? (uint32_t)item.number : 0;
    if (rc == 0)
        rc = module_link_receive(fetch.link, &item, err);
    if (rc == 0 && item.kind != MODULE_REPLY_BULK)
        rc = error_set(err, QUIRE_EIO, "the primary gives no entries of a cache");
    if (rc < 0)
        return rc;
    keep_rate(item.n);
    rc = cache_take_entries(cache, scratch, item.bytes, item.n, &taken, err);
    count_entries(taken, item.n);
    return rc;
}

static int take_list(const char *name, struct cache *cache, uint32_t first, uint64_t *lacking, uint32_t *n_lacking,
                     uint32_t *next, struct quire_error *err)
{
    char number[NUMBER_BYTES];
    struct module_link_reply reply;
    snprintf(number, sizeof number, "%u", first);
    const struct module_word words[] = {word("QUIRE._LIST"), word(name), word(number)};
    int rc = ask(words, 3, MODULE_REPLY_BULK, &reply, err);
    return rc == 0 ? cache_take_list(cache, reply.bytes, reply.n, lacking, n_lacking, next, err) : rc;
}

/* List by list, and the entries of each that are not here. */
static int fetch_entries(struct module_fetch *f, uint64_t epoch)
{
    struct cache *cache = module_cache_of(f->name);
    struct cache_scratch *scratch = NULL;
    uint64_t *lacking = malloc(CACHE_LIST_ENTRIES * sizeof *lacking);
    int rc = cache ? 0 : error_set(&f->error, QUIRE_ENOTFOUND, "its data is not here");
    if (rc == 0)
        rc = lacking ? cache_scratch_create(&scratch, &f->error)
                     : error_set(&f->error, QUIRE_ENOMEM, "no memory for a list of entries");
    for (uint32_t first = 0, n = 0, done = 0; rc == 0 && first != UINT32_MAX;) {
        rc = connect_now(&f->error);
        if (rc == 0)
            rc = take_list(f->name, cache, first, lacking, &n, &first, &f->error);
        if (rc == 0 && is_over(epoch))
            rc = over(&f->error);
        for (uint32_t at = 0; rc == 0 && at < n; at += done) {
            rc = take_entries(f->name, cache, scratch, lacking + at, n - at, &done, &f->error);
            if (rc == 0 && is_over(epoch))
                rc = over(&f->error);
        }
    }
    if (rc == 0)
        rc = cache_take_end(cache, &f->error);
    cache_scratch_destroy(scratch);
    free(lacking);
    if (cache)
        cache_unref(cache);
    return rc;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static bool find_ready(struct collection *set, struct lineage_told *out, uint32_t *n_told)
{
    static const uint8_t nothing[LINEAGE_ID_BYTES];
    struct lineage_told *told = malloc(LINEAGE_TOLD_MAX * sizeof *told);
    bool found = false;
    *n_told = told ? lineage_list_told(set, told, LINEAGE_TOLD_MAX) : 0;
    for (uint32_t i = 0; i < *n_told && i < LINEAGE_TOLD_MAX && !found; i++)
        if (told[i].is_ready && memcmp(told[i].segment, nothing, sizeof nothing) != 0) {
            *out = told[i];
            found = true;
        }
    free(told);
    return found;
}

static bool is_told(struct collection *set, const struct lineage_told *wanted)
{
    struct lineage_told *told = malloc(LINEAGE_TOLD_MAX * sizeof *told);
    uint32_t n = told ? lineage_list_told(set, told, LINEAGE_TOLD_MAX) : 0;
    bool found = false;
    for (uint32_t i = 0; i < n && i < LINEAGE_TOLD_MAX && !found; i++)
        found = told[i].uid == wanted->uid;
    free(told);
    return found;
}

static int fetch_segments(struct module_fetch *f, uint64_t epoch)
{
    struct collection *set = module_set_of(f->name);
    struct lineage_told told;
    uint32_t n_told = 0;
    int rc = set ? 0 : error_set(&f->error, QUIRE_ENOTFOUND, "its data is not here");
    while (rc >= 0) {
        rc = is_over(epoch) ? over(&f->error) : replica_fetch_settle(module_the.service.store, set, &f->error);
        if (rc < 0)
            break;
        if (!find_ready(set, &told, &n_told)) {
            rc = n_told > 0 ? error_set(&f->error, QUIRE_ESTALE,
                                        "%u publications wait for segments that its primary has taken away", n_told)
                            : 0;
            break;
        }
        rc = fetch_segment(f->name, set, &told, epoch, &f->error);
        if (rc == QUIRE_EBUSY || (rc == QUIRE_ENOTFOUND && !is_told(set, &told)))
            rc = 0; /* a later publication has overtaken it */
    }
    collection_unref(set);
    return rc;
}

static int copy_anew(struct module_fetch *f, uint64_t epoch)
{
    struct module_link_reply reply = {.bytes = f->image, .n = f->n_image};
    struct replica_manifest_info info;
    struct collection *old = module_set_of(f->name);
    int rc = f->image ? 0 : ask_copy(f, &reply);
    if (rc == 0)
        rc = replica_manifest_read(reply.bytes, reply.n, &info, &f->error);
    if (rc == 0 && is_over(epoch))
        rc = over(&f->error);
    if (rc == 0)
        rc = replica_manifest_load(module_the.service.store, reply.bytes, reply.n, old, &f->fresh, &f->error);
    f->n_segments = rc == 0 ? info.n_segments : 0;
    collection_unref(old);
    return rc;
}

static void run_task(struct module_fetch *f)
{
    uint64_t epoch = atomic_load(&fetch.epoch);
    if (f->kind == MODULE_CACHE)
        f->code = f->anew ? copy_image(f, epoch) : fetch_entries(f, epoch);
    else
        f->code = f->anew ? copy_anew(f, epoch) : fetch_segments(f, epoch);
    if (f->code < 0) {
        pthread_mutex_lock(&fetch.lock);
        fetch.stats.failures++;
        fetch.stats.damaged += f->code == QUIRE_ECORRUPT;
        pthread_mutex_unlock(&fetch.lock);
    }
    if (f->code == QUIRE_EIO)
        hang_up();
    f->message.run = module_copies_fetched;
    lane_post(&module_the.lanes[0].lane, &f->message);
}

static void tell_have(struct have *list)
{
    struct quire_error err = {0};
    struct module_word words[2 + 2 * HAVE_AT_ONCE] = {word("QUIRE._HAVE"), word(fetch.replica)};
    char numbers[HAVE_AT_ONCE][NUMBER_BYTES];
    struct module_link_reply reply;
    int rc = connect_now(&err);
    while (rc == 0 && list) {
        struct have *first = list;
        unsigned n = 0;
        for (; list && n < HAVE_AT_ONCE; list = list->next, n++) {
            snprintf(numbers[n], NUMBER_BYTES, "%llu", (unsigned long long)list->seq);
            words[2 + 2 * n] = word(list->name);
            words[3 + 2 * n] = word(numbers[n]);
        }
        rc = ask(words, 2 + 2 * n, MODULE_REPLY_SIMPLE, &reply, &err);
        while (first != list) {
            struct have *next = first->next;
            free(first);
            first = next;
        }
    }
    if (rc < 0)
        hang_up();
    while (list) {
        struct have *next = list->next;
        free(list);
        list = next;
    }
}

static void *run_thread(void *context)
{
    (void)context;
    pthread_mutex_lock(&fetch.lock);
    for (;;) {
        while (!fetch.stopping && !fetch.first && !fetch.have)
            pthread_cond_wait(&fetch.ready, &fetch.lock);
        if (fetch.stopping)
            break;
        struct module_fetch *f = fetch.first;
        struct have *have = fetch.have;
        fetch.first = f ? f->next : NULL;
        fetch.have = NULL;
        pthread_mutex_unlock(&fetch.lock);
        if (have)
            tell_have(have);
        if (f)
            run_task(f);
        pthread_mutex_lock(&fetch.lock);
    }
    pthread_mutex_unlock(&fetch.lock);
    hang_up();
    return NULL;
}

/* ---- for the main thread ----------------------------------------------------------------------------------------- */

int module_fetch_open(struct quire_error *err)
{
    sigset_t all, before;
    uint8_t id[8];
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return error_set(err, QUIRE_EIO, "the kernel gives no random numbers for the name of a replica");
    bytes_to_hex(id, sizeof id, fetch.replica);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = pthread_create(&fetch.thread, NULL, run_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errnum)
        return error_set_errno(err, errnum, "start", "the thread that fetches segments");
    fetch.started = true;
    return 0;
}

void module_fetch_close(void)
{
    if (!fetch.started)
        return;
    module_fetch_cancel();
    pthread_mutex_lock(&fetch.lock);
    fetch.stopping = true;
    pthread_cond_signal(&fetch.ready);
    pthread_mutex_unlock(&fetch.lock);
    pthread_join(fetch.thread, NULL);
    fetch.started = false;
}

void module_fetch_free(struct module_fetch *f)
{
    free(f->key);
    free(f->image);
    free(f);
}

static struct module_fetch *new_task(const struct module_item *item, uint64_t generation, bool anew)
{
    struct module_fetch *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    memcpy(f->name, item->name, sizeof f->name);
    f->kind = item->kind;
    f->generation = generation;
    f->anew = anew;
    f->db = item->db;
    return f;
}

static void post(struct module_fetch *f)
{
    pthread_mutex_lock(&fetch.lock);
    *(fetch.first ? &fetch.last->next : &fetch.first) = f;
    fetch.last = f;
    pthread_cond_signal(&fetch.ready);
    pthread_mutex_unlock(&fetch.lock);
}

bool module_fetch_post(const struct module_item *item, uint64_t generation, bool anew, bool asks_key)
{
    struct module_fetch *f = new_task(item, generation, anew);
    if (!f)
        return false;
    if (asks_key && item->key && (f->key = malloc(item->key_bytes + 1u))) {
        memcpy(f->key, item->key, item->key_bytes);
        f->key_bytes = item->key_bytes;
    }
    post(f);
    return true;
}

bool module_fetch_given(const struct module_item *item, uint64_t generation, const uint8_t *image, size_t n)
{
    struct module_fetch *f = new_task(item, generation, true);
    if (!f)
        return false;
    f->image = malloc(n + 1);
    if (!f->image) {
        module_fetch_free(f);
        return false;
    }
    memcpy(f->image, image, n);
    f->n_image = n;
    post(f);
    return true;
}

void module_fetch_have(const char *name, uint64_t seq)
{
    struct have *have = calloc(1, sizeof *have);
    if (!have)
        return;
    memcpy(have->name, name, sizeof have->name);
    have->seq = seq;
    pthread_mutex_lock(&fetch.lock);
    have->next = fetch.have;
    fetch.have = have;
    pthread_cond_signal(&fetch.ready);
    pthread_mutex_unlock(&fetch.lock);
}

void module_fetch_cancel(void)
{
    atomic_fetch_add(&fetch.epoch, 1);
}

static void take_setting(struct rm_ctx *ctx, const char *name, char *out, size_t n)
{
    char *text = module_setting_of_engine(ctx, name);
    snprintf(out, n, "%s", text ? text : "");
    free(text);
}

static void look_at_settings(struct rm_ctx *ctx, struct module_link_target *t)
{
    char tls[8];
    take_setting(ctx, "masteruser", t->user, sizeof t->user);
    take_setting(ctx, "masterauth", t->password, sizeof t->password);
    take_setting(ctx, "tls-replication", tls, sizeof tls);
    t->tls = strcmp(tls, "yes") == 0;
    if (!t->tls)
        return;
    take_setting(ctx, "tls-ca-cert-file", t->ca_file, sizeof t->ca_file);
    take_setting(ctx, "tls-ca-cert-dir", t->ca_folder, sizeof t->ca_folder);
    take_setting(ctx, "tls-client-cert-file", t->cert_file, sizeof t->cert_file);
    take_setting(ctx, "tls-client-key-file", t->key_file, sizeof t->key_file);
    if (!t->cert_file[0]) {
        take_setting(ctx, "tls-cert-file", t->cert_file, sizeof t->cert_file);
        take_setting(ctx, "tls-key-file", t->key_file, sizeof t->key_file);
    }
}

static bool is_same_target(const struct module_link_target *a, const struct module_link_target *b)
{
    return a->port == b->port && a->tls == b->tls && strcmp(a->host, b->host) == 0 && strcmp(a->user, b->user) == 0 &&
           strcmp(a->password, b->password) == 0 && strcmp(a->ca_file, b->ca_file) == 0 &&
           strcmp(a->ca_folder, b->ca_folder) == 0 && strcmp(a->cert_file, b->cert_file) == 0 &&
           strcmp(a->key_file, b->key_file) == 0;
}

void module_fetch_look(struct rm_ctx *ctx, uint64_t now_ms)
{
    struct module_link_target *t;
    if (now_ms - fetch.looked_ms < LOOK_MS || !(t = calloc(1, sizeof *t)))
        return;
    fetch.looked_ms = now_ms;
    struct rm_server_info *info = rm.get_server_info(ctx, "replication");
    const char *host = info ? rm.server_info_text(info, "master_host") : NULL;
    int error = 0;
    if (host)
        snprintf(t->host, sizeof t->host, "%s", host);
    t->port = host ? (unsigned)rm.server_info_number(info, "master_port", &error) : 0;
    if (info)
        rm.free_server_info(ctx, info);
    if (t->port)
        look_at_settings(ctx, t);
    pthread_mutex_lock(&fetch.lock);
    if (!is_same_target(t, &fetch.target)) {
        fetch.target = *t;
        fetch.target_version = t->port ? now_ms : 0;
    }
    pthread_mutex_unlock(&fetch.lock);
    free(t);
}
