/*
 * test_replica_pair.c - a leader and a copy in two stores of one process, queues between them: random writes, seals
 * and merges of the leader; effects and pieces of segments that come late, twice, damaged or not at all; both started
 * again; the copy in the lead.
 *
 * What the copy must hold is known for each number of a write: the XOR of the elements' hashes, which the test keeps
 * itself. A copy that is whole holds just that of its number at every moment, whatever has not arrived yet. In the end
 * it answers as the model does: each element by its name, all by an exact search.
 */
#include "index/collection/collection_digest.h"
#include "index/replica/replica_effect.h"
#include "index/replica/replica_fetch.h"
#include "index/replica/replica_manifest.h"
#include "index/replica/replica_pool.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/random.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 300, PIECE = 100000, SEQS_MAX = 200000 };

struct message {
    uint8_t *bytes;
    uint32_t n;
    uint64_t seq;
};

struct digest {
    uint64_t low, high;
};

struct side {
    char *path;
    struct store *store;
    struct collection *collection;
    struct replica_pool *pool;
    struct support_lane lane;
};

struct world {
    struct io_fs *fs; /* NULL: the real one */
    struct side leader, copy;
    struct support_model model;
    XXH3_state_t *hash;
    struct digest now, *expected; /* of the leader; by number */
    uint64_t told_upto;           /* numbers whose digest is known */
    struct message *log;          /* all that the leader has said; owned */
    size_t n_log, log_capacity;
    size_t next; /* the first that the copy has not been given */
    struct random random;
    struct io_fs *copies[64]; /* disks of copies that are over */
    uint32_t n_copies;
    struct {
        uint64_t resyncs, damaged, adopted, restarts, failovers, given_up, seals, linked;
    } did;
};

/* ---- what is expected -------------------------------------------------------------------------------------------- */

static struct digest digest_of(struct world *w, uint32_t key, struct support_element element)
{
    char name[16], json[32];
    float vector[SUPPORT_DIM];
    struct exported_element e = {.key = name, .exact = vector, .exact_bytes = sizeof vector};
    if (element.version == 0)
        return (struct digest){0, 0};
    e.key_bytes = (uint32_t)snprintf(name, sizeof name, "key-%u", key);
    support_vector(key, element.version, vector);
    if (element.attributes) {
        e.attributes = json;
        e.attribute_bytes = (uint32_t)snprintf(json, sizeof json, "{\"n\":%u}", element.attributes);
    }
    XXH128_hash_t hash = collection_digest_element(w->hash, &e);
    return (struct digest){hash.low64, hash.high64};
}

static void toggle(struct world *w, uint32_t key)
{
    struct digest d = digest_of(w, key, w->model.elements[key]);
    w->now.low ^= d.low;
    w->now.high ^= d.high;
}

static uint64_t seq_of(struct collection *c)
{
    struct lineage_identity identity;
    assert_true(lineage_get(c, &identity));
    return identity.seq;
}

/* The leader has written: from here to its number all is as it is now. */
static void note_expected(struct world *w)
{
    uint64_t seq = seq_of(w->leader.collection);
    assert_true(seq < SEQS_MAX);
    while (w->told_upto < seq)
        w->expected[++w->told_upto] = w->now;
    w->expected[seq] = w->now;
}

static struct digest digest_now(struct collection *c)
{
    uint8_t bytes[COLLECTION_DIGEST_BYTES];
    struct quire_error err = {0};
    if (collection_digest(c, bytes, NULL, &err) < 0)
        fail_msg("digest: %s", err.message);
    return (struct digest){bytes_load_u64(bytes), bytes_load_u64(bytes + 8)};
}

static void check_copy(struct world *w)
{
    if (lineage_missing(w->copy.collection) > 0)
        return;
    uint64_t seq = seq_of(w->copy.collection);
    struct digest d = digest_now(w->copy.collection);
    if (d.low != w->expected[seq].low || d.high != w->expected[seq].high)
        fail_msg("the copy does not hold what the leader held at write %llu", (unsigned long long)seq);
}

/* ---- sides ------------------------------------------------------------------------------------------------------- */

static void on_effect(void *context, struct collection *collection, const struct effect *effect)
{
    struct world *w = context;
    if (collection != w->leader.collection)
        return;
    struct message m = {.seq = effect->seq};
    m.bytes = replica_effect_encode(effect, &m.n);
    assert_non_null(m.bytes);
    assert_true(array_reserve(&w->log, &w->log_capacity, w->n_log + 1));
    w->log[w->n_log++] = m;
    replica_pool_note(w->leader.pool, effect);
}

static void open_side(struct world *w, struct side *side)
{
    struct store_options options = support_store_options(w->fs);
    struct store_host host = {.effect = on_effect, .context = w};
    struct quire_error err = {0};
    options.memtable_bytes = 1u << 30; /* the test seals */
    if (store_open(side->path, &options, &host, &side->store, NULL, &err) < 0)
        fail_msg("open %s: %s", side->path, err.message);
    assert_int_equal(replica_pool_create(side->store, 1u << 30, 0, &side->pool, &err), 0);
    support_lane_open(&side->lane, w->fs);
}

static void close_side(struct side *side)
{
    support_lane_close(&side->lane);
    collection_unref(side->collection);
    side->collection = NULL;
    replica_pool_destroy(side->pool);
    support_store_close(side->store);
}

static uint64_t the_uid;
static uint32_t n_found;
static void note_collection(void *context, struct collection *c)
{
    (void)context;
    the_uid = collection_uid(c);
    n_found++;
}

static void start_again(struct world *w, struct side *side, bool is_copy)
{
    struct quire_error err = {0};
    uint64_t lsn;
    if (random_below(&w->random, 2)) {
        if (store_checkpoint(side->store, &err) < 0)
            fail_msg("checkpoint: %s", err.message);
    }
    close_side(side);
    open_side(w, side);
    n_found = 0;
    store_each(side->store, note_collection, NULL);
    assert_int_equal(n_found, 1);
    side->collection = store_find(side->store, the_uid);
    assert_non_null(side->collection);
    assert_int_equal(collection_available(side->collection, &err), 0);
    if (is_copy)
        assert_int_equal(lineage_set_replica(side->collection, true, &err), 0);
    else
        assert_int_equal(lineage_begin_history(side->collection, &lsn, &err), 0);
    w->did.restarts++;
}

/* ---- the leader -------------------------------------------------------------------------------------------------- */

static void write_one(struct world *w)
{
    uint32_t key = (uint32_t)random_below(&w->random, KEYS), version = (uint32_t)random_below(&w->random, 1u << 20) + 1;
    struct side *s = &w->leader;
    int rc = QUIRE_ENOTFOUND;
    toggle(w, key);
    if (random_below(&w->random, 5) == 0)
        rc = support_remove(&s->lane, s->collection, &w->model, key, NULL);
    else if (random_below(&w->random, 4) == 0 && w->model.elements[key].version)
        rc = support_set_attributes(s->collection, &w->model, key, version, NULL);
    else
        rc = support_put(&s->lane, s->collection, &w->model, key, version, random_below(&w->random, 2) ? version : 0,
                         NULL);
    assert_true(rc == 0 || rc == QUIRE_ENOTFOUND);
    toggle(w, key);
    note_expected(w);
}

static void seal(struct world *w)
{
    struct quire_error err = {0};
    struct side *s = &w->leader;
    int rc = random_below(&w->random, 3) == 0 ? store_compact(s->store, s->collection, &err)
                                              : store_seal(s->store, s->collection, &err);
    if (rc < 0)
        fail_msg("seal: %s", err.message);
    assert_true(store_maintain(s->store, &err) >= 0); /* which may merge, too */
    note_expected(w);
    replica_pool_tick(s->pool);
    w->did.seals++;
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

static void copy_anew(struct world *w)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct quire_error err = {0};
    struct collection *fresh = NULL, *old = w->copy.collection;
    struct replica_manifest_info info;
    uint64_t lease = 0, lsn;
    assert_int_equal(replica_pool_lease(w->leader.pool, w->leader.collection, 1u << 30, &lease, &err), 0);
    if (replica_manifest_make(w->leader.collection, &bytes, &n, &err) < 0)
        fail_msg("manifest: %s", err.message);
    assert_int_equal(replica_manifest_read(bytes, n, &info, &err), 0);
    assert_int_equal(info.identity.seq, seq_of(w->leader.collection));
    bytes[random_below(&w->random, n)] ^= 1; /* a manifest that was damaged makes nothing */
    assert_true(replica_manifest_load(w->copy.store, bytes, n, old, &fresh, &err) < 0);
    free(bytes);
    assert_int_equal(replica_manifest_make(w->leader.collection, &bytes, &n, &err), 0);
    if (replica_manifest_load(w->copy.store, bytes, n, old, &fresh, &err) < 0)
        fail_msg("load: %s", err.message);
    free(bytes);
    w->did.linked += info.n_segments - lineage_list_told(fresh, NULL, 0);
    if (old) {
        assert_int_equal(store_drop_collection(w->copy.store, old, &lsn, &err), 0);
        collection_unref(old);
    }
    w->copy.collection = fresh;
    assert_int_equal(seq_of(fresh), seq_of(w->leader.collection));
    w->next = w->n_log;
    w->did.resyncs++;
    check_copy(w);
}

static void deliver(struct world *w, size_t n)
{
    for (; n > 0 && w->next < w->n_log; n--) {
        struct message *m = &w->log[w->next];
        struct quire_error err = {0};
        uint64_t lsn;
        if (random_below(&w->random, 20) == 0) { /* one that was damaged does nothing */
            size_t at = (size_t)random_below(&w->random, m->n);
            m->bytes[at] ^= 0x10;
            int rc = replica_effect_apply(w->copy.collection, m->bytes, m->n, &lsn, &err);
            assert_true(rc == QUIRE_ECORRUPT || rc == QUIRE_EVERSION);
            m->bytes[at] ^= 0x10;
        }
        int rc = replica_effect_apply(w->copy.collection, m->bytes, m->n, &lsn, &err);
        if (rc == QUIRE_ESTALE) {
            copy_anew(w);
            return;
        }
        if (rc < 0)
            fail_msg("write %llu: %s", (unsigned long long)m->seq, err.message);
        w->next++;
    }
}

static uint32_t pick_ready(struct world *w, struct lineage_told *out)
{
    static const uint8_t nothing[LINEAGE_ID_BYTES];
    struct lineage_told told[LINEAGE_TOLD_MAX];
    uint32_t n = lineage_list_told(w->copy.collection, told, LINEAGE_TOLD_MAX);
    for (uint32_t i = 0; i < n; i++)
        if (told[i].is_ready && memcmp(told[i].segment, nothing, sizeof nothing) != 0) {
            *out = told[i];
            return 1;
        }
    return 0;
}

enum harm { HARM_NONE, HARM_BYTE, HARM_BREAK_OFF, HARM_CUT, HARM_EXCHANGE, HARM_KINDS };

/* Fetches one segment; what is done to it on its way. */
static void fetch_one(struct world *w, enum harm harm)
{
    struct lineage_told told;
    struct replica_file files[REPLICA_FILES_MAX], file;
    struct replica_fetch *fetch = NULL;
    struct quire_error err = {0};
    static uint8_t piece[PIECE];
    uint64_t offset, lsn, at = 0;
    uint32_t bytes;
    assert_true(replica_fetch_settle(w->copy.store, w->copy.collection, &err) >= 0);
    if (!pick_ready(w, &told))
        return;
    int n = replica_pool_files(w->leader.pool, w->leader.collection, told.segment, files, REPLICA_FILES_MAX, &err);
    if (n == QUIRE_ENOTFOUND) { /* of a leader that was started again, or of one before it */
        copy_anew(w);
        return;
    }
    assert_true(n > 0);
    if (harm == HARM_CUT) {
        files[random_below(&w->random, (uint64_t)n)].bytes -= 4096;
        assert_int_equal(
            replica_fetch_begin(w->copy.store, w->copy.collection, &told, files, (uint32_t)n, &fetch, &err),
            QUIRE_ECORRUPT);
        return;
    }
    if (replica_fetch_begin(w->copy.store, w->copy.collection, &told, files, (uint32_t)n, &fetch, &err) < 0)
        fail_msg("fetch: %s", err.message);
    uint64_t harmed = random_below(&w->random, told.bytes);
    while (replica_fetch_next(fetch, PIECE, &file, &offset, &bytes)) {
        int64_t got = replica_pool_read(w->leader.pool, w->leader.collection, told.segment, file.name, offset, piece,
                                        bytes, &err);
        assert_int_equal(got, bytes);
        if (harm == HARM_BYTE && harmed >= at && harmed < at + bytes)
            piece[harmed - at] ^= 0x40;
        if (harm == HARM_EXCHANGE && strcmp(file.name, "meta") == 0)
            memset(piece + 16, 7, 16); /* the id of another */
        if (harm == HARM_BREAK_OFF && harmed < at + bytes) {
            replica_fetch_abort(fetch);
            fetch = NULL;
            break;
        }
        if (replica_fetch_write(fetch, file.name, offset, piece, bytes, &err) < 0)
            fail_msg("write: %s", err.message);
        at += bytes;
    }
    if (!fetch)
        return;
    uint32_t before = lineage_list_told(w->copy.collection, NULL, 0);
    int rc = replica_fetch_end(fetch, &lsn, &err);
    if (harm == HARM_NONE) {
        if (rc < 0)
            fail_msg("adopt: %s", err.message);
        assert_int_equal(lineage_list_told(w->copy.collection, NULL, 0), before - 1);
        w->did.adopted++;
    } else {
        if (rc != QUIRE_ECORRUPT)
            fail_msg("harm %d: %d (%s)", (int)harm, rc, err.message);
        assert_int_equal(lineage_list_told(w->copy.collection, NULL, 0), before);
        w->did.damaged++;
    }
    assert_true(store_maintain(w->copy.store, &err) >= 0);
}

/* Until the copy has all. */
static void catch_up(struct world *w)
{
    struct quire_error err = {0};
    for (unsigned round = 0; round < 10000; round++) {
        deliver(w, SIZE_MAX);
        assert_true(replica_fetch_settle(w->copy.store, w->copy.collection, &err) >= 0);
        if (w->next == w->n_log && lineage_list_told(w->copy.collection, NULL, 0) == 0)
            return;
        fetch_one(w, HARM_NONE);
        check_copy(w);
    }
    fail_msg("the copy does not catch up");
}

/* Who has just taken the lead is started again: what it gave up must not come back. */
static void start_again_after(struct world *w)
{
    start_again(w, &w->leader, false);
    assert_int_equal(lineage_list_told(w->leader.collection, NULL, 0), 0);
    note_expected(w);
}

/* The copy takes the lead with publications on their way, which it gives up; or the old leader has written on unseen,
 * numbers that the new one will give to other writes. Either must be noticed at once. */
static void swap_roles(struct world *w)
{
    struct quire_error err = {0};
    uint64_t lsn;
    bool writes_on = random_below(&w->random, 2), gave_up;
    deliver(w, SIZE_MAX);
    if (seq_of(w->copy.collection) != seq_of(w->leader.collection)) /* the connection was lost, with the last writes */
        copy_anew(w);
    if (writes_on || lineage_missing(w->copy.collection) > 0)
        catch_up(w);
    gave_up = lineage_list_told(w->copy.collection, NULL, 0) > 0;
    if (writes_on) {
        seal(w);
        w->next = w->n_log;
        writes_on = seq_of(w->leader.collection) > seq_of(w->copy.collection);
    }
    struct side side = w->leader;
    w->leader = w->copy;
    w->copy = side;
    assert_int_equal(lineage_set_replica(w->copy.collection, true, &err), 0);
    assert_int_equal(lineage_take_lead(w->leader.collection, &lsn, &err), 0);
    assert_int_equal(lineage_list_told(w->leader.collection, NULL, 0), 0);
    note_expected(w);
    if (random_below(&w->random, 2))
        start_again_after(w);
    uint64_t resyncs = w->did.resyncs;
    deliver(w, SIZE_MAX);
    assert_true(w->did.resyncs > resyncs || (!gave_up && !writes_on));
    assert_int_equal(seq_of(w->copy.collection), seq_of(w->leader.collection));
    w->did.given_up += gave_up;
    w->did.failovers++;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static void begin(struct world *w, struct io_fs *fs, const char *folder, uint64_t seed)
{
    struct quire_error err = {0};
    uint64_t lsn;
    memset(w, 0, sizeof *w);
    w->fs = fs;
    w->hash = XXH3_createState();
    w->expected = calloc(SEQS_MAX, sizeof *w->expected);
    assert_non_null(w->expected);
    random_init(&w->random, seed);
    support_model_init(&w->model, KEYS);
    w->leader.path = support_path(folder, "leader");
    w->copy.path = support_path(folder, "copy");
    open_side(w, &w->leader);
    open_side(w, &w->copy);
    w->leader.collection = support_create(w->leader.store);
    assert_int_equal(lineage_begin(w->leader.collection, NULL, &lsn, &err), 0);
    note_expected(w);
    for (unsigned i = 0; i < 100; i++)
        write_one(w);
    copy_anew(w);
}

static void end(struct world *w)
{
    close_side(&w->leader);
    close_side(&w->copy);
    for (size_t i = 0; i < w->n_log; i++)
        free(w->log[i].bytes);
    free(w->log);
    free(w->leader.path);
    free(w->copy.path);
    free(w->expected);
    XXH3_freeState(w->hash);
    support_model_free(&w->model);
}

static void step(struct world *w)
{
    switch (random_below(&w->random, 24)) {
    case 0:
    case 1:
        seal(w);
        break;
    case 2:
    case 3:
        fetch_one(w, HARM_NONE);
        break;
    case 4:
        fetch_one(w, (enum harm)random_below(&w->random, HARM_KINDS));
        break;
    case 5:
        if (random_below(&w->random, 3) == 0)
            w->next = w->n_log; /* the connection is lost, with all that was on its way */
        break;
    case 6:
        if (random_below(&w->random, 3) == 0)
            start_again(w, &w->copy, true);
        break;
    case 7:
        if (random_below(&w->random, 8) == 0) {
            start_again(w, &w->leader, false);
            note_expected(w);
        }
        break;
    case 8:
        if (random_below(&w->random, 3) == 0)
            swap_roles(w);
        break;
    case 9:
        if (w->next > 5)
            w->next -= 5; /* it is said again */
        break;
    case 10:
    case 11:
    case 12:
    case 13:
        deliver(w, (size_t)random_below(&w->random, 60));
        break;
    default:
        for (unsigned i = 0; i < 8; i++)
            write_one(w);
    }
}

static void a_copy_is_whole_at_every_moment(void **in)
{
    enum { SEEDS = SANITIZED_SIZE(6, 2), STEPS = SANITIZED_SIZE(500, 150) };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world w;
        char name[16];
        snprintf(name, sizeof name, "seed-%u", (unsigned)seed);
        char *folder = support_path(*in, name);
        assert_int_equal(fs_real()->ops->mkdir(fs_real(), folder), 0);
        begin(&w, NULL, folder, seed);
        for (unsigned i = 0; i < STEPS; i++) {
            step(&w);
            check_copy(&w);
        }
        catch_up(&w);
        check_copy(&w);
        assert_int_equal(seq_of(w.copy.collection), seq_of(w.leader.collection));
        assert_true(support_equal(&w.leader.lane, w.leader.collection, &w.model));
        assert_true(support_equal(&w.copy.lane, w.copy.collection, &w.model));
        start_again(&w, &w.copy, true);
        assert_true(support_equal(&w.copy.lane, w.copy.collection, &w.model));
        check_copy(&w);
        fprintf(
            stderr,
            "seed %u: %llu writes, %llu seals; the copy: %llu adopted, %llu damaged, %llu linked, %llu copied anew, "
            "%llu starts, %llu changes of the lead, %llu of them with segments on their way\n",
            (unsigned)seed, (unsigned long long)w.told_upto, (unsigned long long)w.did.seals,
            (unsigned long long)w.did.adopted, (unsigned long long)w.did.damaged, (unsigned long long)w.did.linked,
            (unsigned long long)w.did.resyncs, (unsigned long long)w.did.restarts, (unsigned long long)w.did.failovers,
            (unsigned long long)w.did.given_up);
        assert_true(w.did.adopted > 0 && w.did.resyncs > 0);
        end(&w);
        free(folder);
    }
}

/* ---- power that goes out at every call of a copy ----------------------------------------------------------------- */

#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)

static int fetch_ready(struct world *w, const struct lineage_told *told, struct quire_error *err)
{
    struct replica_file files[REPLICA_FILES_MAX], file;
    struct replica_fetch *fetch = NULL;
    static uint8_t piece[PIECE];
    uint64_t offset, lsn;
    uint32_t bytes;
    int n = replica_pool_files(w->leader.pool, w->leader.collection, told->segment, files, REPLICA_FILES_MAX, NULL);
    assert_true(n > 0);
    int rc = replica_fetch_begin(w->copy.store, w->copy.collection, told, files, (uint32_t)n, &fetch, err);
    if (rc < 0)
        return rc;
    while (rc >= 0 && replica_fetch_next(fetch, PIECE, &file, &offset, &bytes)) {
        assert_int_equal(replica_pool_read(w->leader.pool, w->leader.collection, told->segment, file.name, offset,
                                           piece, bytes, NULL),
                         bytes);
        rc = replica_fetch_write(fetch, file.name, offset, piece, bytes, err);
    }
    if (rc >= 0)
        return replica_fetch_end(fetch, &lsn, err);
    replica_fetch_abort(fetch);
    return rc;
}

/* All that a copy does from a manifest to the last segment; ends with the first error. */
static int run_copy(struct world *w, const uint8_t *manifest, size_t n, bool *loaded, struct quire_error *err)
{
    struct lineage_told told;
    uint64_t lsn;
    unsigned fetched = 0;
    int rc = 0;
    if (!*loaded) {
        rc = replica_manifest_load(w->copy.store, manifest, n, NULL, &w->copy.collection, err);
        if (rc == 0 && (rc = journal_sync(store_journal(w->copy.store), err)) == 0) /* before a key names it */
            *loaded = true;
    }
    for (size_t i = 0; rc == 0 && i < w->n_log; i++)
        rc = replica_effect_apply(w->copy.collection, w->log[i].bytes, w->log[i].n, &lsn, err);
    while (rc >= 0 && (rc = replica_fetch_settle(w->copy.store, w->copy.collection, err)) >= 0 &&
           pick_ready(w, &told)) {
        rc = fetch_ready(w, &told, err);
        if (rc >= 0 && fetched++ == 0)
            rc = store_checkpoint(w->copy.store, err);
        if (rc >= 0)
            rc = store_maintain(w->copy.store, err);
    }
    return rc < 0 ? rc : 0;
}

/* The power has gone: what is there of the copy when it is opened again. */
static void open_after(struct world *w, struct io_fs *fs, uint64_t uid, bool *loaded, uint64_t seed)
{
    uint64_t lsn;
    collection_unref(w->copy.collection);
    w->copy.collection = NULL;
    replica_pool_destroy(w->copy.pool);
    store_close(w->copy.store, NULL);
    support_lane_close(&w->copy.lane);
    fault_power_cut(fs, seed);
    open_side(w, &w->copy);
    struct collection *c = *loaded ? store_find(w->copy.store, uid) : NULL;
    assert_true(!*loaded || c);
    if (c) {
        assert_int_equal(collection_available(c, NULL), 0);
        assert_int_equal(lineage_set_replica(c, true, NULL), 0);
        w->copy.collection = c;
        check_copy(w);
        return;
    }
    for (;;) { /* what no key names is dropped */
        n_found = 0;
        store_each(w->copy.store, note_collection, NULL);
        c = n_found ? store_find(w->copy.store, the_uid) : NULL;
        if (!c)
            return;
        assert_int_equal(store_drop_collection(w->copy.store, c, &lsn, NULL), 0);
        collection_unref(c);
    }
}

static void a_copy_goes_on_after_the_power_was_out(void **in)
{
    enum { POINTS = SANITIZED_SIZE(16, 6) }; /* of its calls, evenly; each takes a recovery and a copy */
    struct world w;
    uint8_t *manifest = NULL;
    size_t n = 0;
    uint64_t calls = 1, lsn;
    struct quire_error err = {0};
    begin(&w, fault_fs_create(), "", 77);
    seal(&w);
    for (unsigned i = 0; i < 40; i++)
        write_one(&w);
    for (size_t i = 0; i < w.n_log; i++)
        free(w.log[i].bytes);
    w.n_log = 0;
    assert_int_equal(replica_manifest_make(w.leader.collection, &manifest, &n, &err), 0);
    for (unsigned round = 0; round < 2; round++) { /* the manifest's segment is merged away; the pool keeps it */
        for (unsigned i = 0; i < 50; i++)
            write_one(&w);
        assert_int_equal(store_seal(w.leader.store, w.leader.collection, &err), 0);
        note_expected(&w);
    }
    assert_int_equal(store_drop_collection(w.copy.store, w.copy.collection, &lsn, &err), 0);
    for (unsigned point = 0; point <= POINTS; point++) {
        struct io_fs *fs = fault_fs_create(), *leaders = w.fs;
        bool loaded = false;
        collection_unref(w.copy.collection);
        w.copy.collection = NULL;
        replica_pool_destroy(w.copy.pool);
        support_lane_close(&w.copy.lane);
        support_store_close(w.copy.store);
        w.fs = fs;
        open_side(&w, &w.copy);
        fault_fail_nth(fs, CALLS, point ? 1 + calls * (point - 1) / POINTS : 0, QUIRE_EIO, true);
        int rc = run_copy(&w, manifest, n, &loaded, &err);
        if (point == 0) {
            assert_int_equal(rc, 0);
            calls = fault_calls(fs, CALLS);
            assert_true(calls > POINTS);
        }
        uint64_t uid = w.copy.collection ? collection_uid(w.copy.collection) : 0;
        if (rc < 0 || point > 0)
            open_after(&w, fs, uid, &loaded, point);
        if ((rc = run_copy(&w, manifest, n, &loaded, &err)) < 0)
            fail_msg("cut at call %llu of %llu: %s", (unsigned long long)(1 + calls * (point - 1) / POINTS),
                     (unsigned long long)calls, err.message);
        assert_int_equal(lineage_list_told(w.copy.collection, NULL, 0), 0);
        assert_int_equal(seq_of(w.copy.collection), seq_of(w.leader.collection));
        check_copy(&w);
        assert_true(support_equal(&w.copy.lane, w.copy.collection, &w.model));
        w.fs = leaders;
        if (point == POINTS)
            fprintf(stderr, "power cut at %d of %llu calls of a copy\n", (int)POINTS, (unsigned long long)calls);
        (void)in;
        w.copies[w.n_copies++] = fs;
    }
    free(manifest);
    struct io_fs *leaders = w.fs, *copies[64];
    uint32_t n_copies = w.n_copies;
    memcpy(copies, w.copies, sizeof copies);
    end(&w);
    fault_fs_destroy(leaders);
    for (uint32_t i = 0; i < n_copies; i++)
        fault_fs_destroy(copies[i]);
}

static int set_up(void **in)
{
    support_folder_in_memory();
    *in = support_folder_make();
    return 0;
}

static int tear_down(void **in)
{
    support_folder_remove(*in);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_is_whole_at_every_moment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copy_goes_on_after_the_power_was_out, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
