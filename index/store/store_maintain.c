/*
 * store_maintain.c - what happens in the background: space given back, seals, checkpoints, merges, removals.
 *
 * Three threads of low priority (store_priority.c), because what they do takes times so different. `upkeep` does what
 * takes milliseconds: gives memory of dead rows back, counts what collections take, removes files. `write` seals and
 * writes checkpoints: seconds. `merge` merges: minutes. So a merge holds up no seal, and a seal no upkeep.
 *
 * Each looks for one thing that is due, does it, and looks again; with nothing to do it sleeps until it is woken. A
 * collection wakes them when its memtable is full. Beyond that all collections are counted again after there have been
 * writes, at most ten times a second, and so that this takes no more than a twentieth of the time, with a hundred
 * thousand collections as with one.
 *
 * What fails is logged and tried again after 1, 2, 4, ... 64 seconds. A failed seal or merge has changed nothing, so
 * there is nothing to undo; its rows are in memory and in the log still.
 *
 * Under pressure of memory (memtables take half of what is allowed, or all together three quarters) the largest
 * memtable is sealed before it is full; of memtables with fewer than SEAL_ROWS_MIN rows none is: thousands of small
 * segments would take more than they give back.
 */
#include "index/store/store_priv.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define COUNT_PAUSE_MS   100u
#define COUNT_TIME_SHARE 20u /* counting takes at most one such part of the time */
#define IDLE_MS          1000u
#define BACKOFF_MAX      6u

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static uint64_t backoff_ms(unsigned failures)
{
    return 1000ull << (failures < BACKOFF_MAX ? failures : BACKOFF_MAX);
}

/* What failed waits; what was cancelled because the store closes or the collection went is no failure. */
static void note_result(struct store *store, struct collection *c, const char *what, int rc,
                        const struct quire_error *err)
{
    struct upkeep *u = store_upkeep(c);
    bool failed = rc < 0 && rc != QUIRE_ECANCELLED && rc != QUIRE_ECLOSED;
    pthread_mutex_lock(&store->lock);
    u->retry_ms = failed ? store_now_ms() + backoff_ms(u->n_failures) : 0;
    u->n_failures = failed ? u->n_failures + 1 : 0;
    store->stats.failures += failed;
    pthread_mutex_unlock(&store->lock);
    if (failed)
        store_log(store, true, "%s of set %llu failed, tried again later: %s", what,
                  (unsigned long long)collection_uid(c), err->message);
}

/* ---- memory, files ----------------------------------------------------------------------------------------------- */

/* One collection: true if something is left to do. */
static bool upkeep_collection(struct store *store, struct collection *c)
{
    struct quire_error err = {0};
    if (collection_is_dropped(c) || collection_available(c, NULL) < 0)
        return false;
    if (collection_remove_void(c, &err) < 0) /* tried again when there have been other writes */
        store_log(store, true, "elements of dropped tenants of set %llu stay for now: %s",
                  (unsigned long long)collection_uid(c), err.message);
    bool more = collection_reclaim(c);
    store_count(store, c);
    return more;
}

static int upkeep_woken(struct maintainer *m)
{
    struct store *store = m->store;
    pthread_mutex_lock(&store->wake_lock);
    struct collection *c = store->woken;
    if (c) {
        assert(store_upkeep(c)->woken);
        store->woken = store_upkeep(c)->next_woken;
        store_upkeep(c)->next_woken = NULL;
        store_upkeep(c)->woken = false;
    }
    pthread_mutex_unlock(&store->wake_lock);
    if (!c)
        return 0;
    if (upkeep_collection(store, c))
        store_wake(store, c);
    collection_unref(c);
    store_apply_limits(store);
    return 1;
}

/* Every collection, when there were writes since. 1 if any was left with something to do. */
static int upkeep_all(struct maintainer *m, struct quire_error *err)
{
    struct store *store = m->store;
    struct collection **list = NULL;
    uint32_t n = 0;
    uint64_t lsn = journal_last_lsn(store->journal);
    bool more = false;
    if (lsn == atomic_load(&store->counted_lsn))
        return 0;
    int rc = store_list(store, &list, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n && !atomic_load(&store->stopping); i++)
        if (upkeep_collection(store, list[i])) {
            more = true;
            store_wake(store, list[i]);
        }
    store_list_free(list, n);
    if (rc == 0)
        atomic_store(&store->counted_lsn, lsn);
    store_apply_limits(store);
    return rc < 0 ? rc : more;
}

/* Frees parts that lie in no view and have no files, but those whose segments lanes hold still: they let go of them
 * within a turn. Whether there was one. */
static bool free_lingering(struct store *store)
{
    bool any = false;
    for (struct part **at = &store->lingering; *at;) {
        struct part *part = *at;
        if (part->segment && segment_is_shared(part->segment)) {
            at = &part->next_gone;
            continue;
        }
        *at = part->next_gone;
        part_free(part);
        any = true;
    }
    return any;
}

/* Memtables that nobody reads, and parts without files. */
static int free_memory(struct store *store)
{
    pthread_mutex_lock(&store->wake_lock);
    struct memtable_ref *tables = store->sealed_away;
    store->sealed_away = NULL;
    pthread_mutex_unlock(&store->wake_lock);
    int done = tables != NULL;
    while (tables) {
        struct memtable_ref *next = tables->next_gone;
        memtable_ref_free(tables);
        tables = next;
    }
    return free_lingering(store) || done;
}

void store_free_gone(struct store *store)
{
    while (store->sealed_away) {
        struct memtable_ref *table = store->sealed_away;
        store->sealed_away = table->next_gone;
        memtable_ref_free(table);
    }
    struct part **const lists[] = {&store->garbage, &store->lingering};
    for (unsigned i = 0; i < 2; i++)
        while (*lists[i]) {
            struct part *part = *lists[i];
            *lists[i] = part->next_gone;
            part_free(part);
        }
}

/* Folders whose parts are gone; the records that say so are synced before, those of batches that were open, too. What
 * cannot be removed stays listed. */
static int remove_garbage(struct store *store, struct quire_error *err)
{
    pthread_mutex_lock(&store->wake_lock);
    struct part *list = store->garbage;
    store->garbage = NULL;
    pthread_mutex_unlock(&store->wake_lock);
    if (!list)
        return 0;
    journal_quiesce_begin(store->journal);
    journal_quiesce_end(store->journal);
    int rc = journal_sync(store->journal, err);
    while (list) {
        struct part *part = list;
        list = part->next_gone;
        char *path = rc == 0 ? store_segment_path(store, part->uid) : NULL;
        if (rc == 0)
            rc = path ? fs_remove_folder(store->fs, path, err) : QUIRE_ENOMEM;
        free(path);
        if (rc == 0) {
            part->next_gone = store->lingering;
            store->lingering = part;
            continue;
        }
        pthread_mutex_lock(&store->wake_lock);
        part->next_gone = store->garbage;
        store->garbage = part;
        pthread_mutex_unlock(&store->wake_lock);
    }
    if (rc < 0)
        store_log(store, true, "files of old segments stay for now: %s", err->message);
    return rc < 0 ? rc : 1;
}

static int upkeep_pass(struct maintainer *m, struct quire_error *err)
{
    int done = remove_garbage(m->store, err), freed = free_memory(m->store), woken = upkeep_woken(m);
    return done != 0 ? done : freed || woken;
}

/* ---- seals and checkpoints --------------------------------------------------------------------------------------- */

/* (lock) The collection for which one of `bits` is due and that nobody works on, or under pressure that with the
 * largest memtable. */
static struct collection *choose(struct store *store, unsigned bit)
{
    struct collection *best = NULL;
    uint64_t limit = atomic_load(&store->memory_max);
    bool pressed = bit == BUSY_SEAL && limit &&
                   (store->memtable_bytes > limit / 2 || store->memtable_bytes + store->resident_bytes > limit / 4 * 3);
    assert(lock_is_held(&store->lock) && (bit == BUSY_SEAL || bit == BUSY_MERGE));
    uint64_t now = store_now_ms();
    if (store->n_due[bit == BUSY_MERGE] == 0 && !pressed)
        return NULL;
    for (uint32_t i = 0; i < store->n_buckets; i++)
        for (struct collection *c = store->buckets[i]; c; c = store_upkeep(c)->next) {
            const struct upkeep *u = store_upkeep(c);
            bool wanted = (u->due & bit) || (pressed && u->counted.memtable_rows >= SEAL_ROWS_MIN);
            if (wanted && !(u->busy & bit) && u->retry_ms <= now &&
                (!best || u->counted.memtable_bytes > store_upkeep(best)->counted.memtable_bytes))
                best = c;
        }
    return best;
}

/* Seals or merges one collection for which that is due. */
static int serve(struct maintainer *m, unsigned bit, struct quire_error *err)
{
    struct store *store = m->store;
    pthread_mutex_lock(&store->lock);
    struct collection *c = choose(store, bit);
    if (c) {
        assert(!(store_upkeep(c)->busy & bit));
        store_upkeep(c)->busy |= bit;
        collection_ref(c);
    }
    pthread_mutex_unlock(&store->lock);
    if (!c)
        return 0;
    bool with_parts = bit == BUSY_SEAL && store_claim(store, c, BUSY_MERGE, false);
    int rc = bit == BUSY_SEAL ? store_seal_claimed(store, m, c, with_parts, err)
                              : store_merge_claimed(store, m, c, false, err);
    store_priority_hurry(m, false);
    note_result(store, c, bit == BUSY_SEAL ? "seal" : "merge", rc, err);
    store_release(store, c, bit | (with_parts ? BUSY_MERGE : 0));
    collection_unref(c);
    store_apply_limits(store);
    store_signal(store);
    return rc < 0 ? rc : 1;
}

/* Collections are listed after the checkpoint has begun: one that is made later is in the log that follows it. */
static int save_all(struct store *store, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct collection **list = NULL;
    uint32_t n = 0;
    uint8_t counters[16];
    pthread_mutex_lock(&store->lock);
    bytes_store_u64(counters, store->next_collection);
    bytes_store_u64(counters + 8, store->next_segment);
    pthread_mutex_unlock(&store->lock);
    int rc = journal_checkpoint_put(checkpoint, RECORD_COUNTERS, journal_last_lsn(store->journal), counters,
                                    sizeof counters, err);
    if (rc == 0 && store->host.save)
        rc = store->host.save(store->host.context, checkpoint, err);
    if (rc == 0)
        rc = store_list(store, &list, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (atomic_load(&store->stopping))
            rc = error_set(err, QUIRE_ECANCELLED, "the store is closing");
        else if (!collection_is_dropped(list[i]))
            rc = collection_save(list[i], checkpoint, err);
    }
    store_list_free(list, n);
    return rc;
}

/* What a checkpoint's records know must be in the log, too, before it counts: hence the sync. */
static int write_checkpoint(struct store *store, struct quire_error *err)
{
    struct checkpoint *checkpoint = NULL;
    assert(lock_is_held(&store->checkpoint) && store->stats.checkpointing);
    int rc = journal_checkpoint_begin(store->journal, &checkpoint, err);
    if (rc < 0)
        return rc;
    rc = save_all(store, checkpoint, err);
    if (rc == 0)
        rc = journal_sync(store->journal, err);
    if (rc == 0)
        return journal_checkpoint_finish(checkpoint, err);
    journal_checkpoint_abort(checkpoint);
    return rc;
}

int store_checkpoint(struct store *store, struct quire_error *err)
{
    uint64_t started = clock_us();
    pthread_mutex_lock(&store->checkpoint);
    pthread_mutex_lock(&store->lock);
    store->stats.checkpointing = true;
    pthread_mutex_unlock(&store->lock);
    int rc = write_checkpoint(store, err);
    pthread_mutex_lock(&store->lock);
    store->stats.checkpointing = false;
    store->stats.checkpoints += rc == 0;
    pthread_mutex_unlock(&store->lock);
    pthread_mutex_unlock(&store->checkpoint);
    if (rc == 0)
        store_log(store, false, "checkpoint written in %.2f s", (double)(clock_us() - started) * 1e-6);
    store_apply_limits(store);
    return rc;
}

/* The log has grown to so many times what makes a checkpoint due. */
static bool checkpoint_is_due(struct store *store, unsigned times)
{
    struct journal_stats stats;
    journal_get_stats(store->journal, &stats);
    uint64_t limit = store->options.checkpoint_bytes;
    return stats.log_bytes / times > (stats.checkpoint_bytes > limit ? stats.checkpoint_bytes : limit);
}

static int checkpoint_if_due(struct store *store, unsigned times, struct quire_error *err)
{
    if (!checkpoint_is_due(store, times) || store_now_ms() < store->checkpoint_retry_ms)
        return 0;
    int rc = store_checkpoint(store, err);
    bool failed = rc < 0 && rc != QUIRE_ECANCELLED;
    pthread_mutex_lock(&store->lock);
    store->checkpoint_retry_ms = failed ? store_now_ms() + backoff_ms(store->checkpoint_failures) : 0;
    store->checkpoint_failures = failed ? store->checkpoint_failures + 1 : 0;
    store->stats.failures += failed;
    pthread_mutex_unlock(&store->lock);
    if (failed)
        store_log(store, true, "a checkpoint failed, tried again later: %s", err->message);
    return rc < 0 ? rc : 1;
}

/* A seal before a checkpoint, which then need not save its rows; but where the next seal is always due, as under a
 * flood of writes or after a start that replayed much, a checkpoint that is overdue comes first, for otherwise the log
 * and the time to recover would have no bound. */
static int write_pass(struct maintainer *m, struct quire_error *err)
{
    int done = checkpoint_if_due(m->store, 2, err);
    if (done == 0)
        done = serve(m, BUSY_SEAL, err);
    return done != 0 ? done : checkpoint_if_due(m->store, 1, err);
}

static int merge_pass(struct maintainer *m, struct quire_error *err)
{
    return serve(m, BUSY_MERGE, err);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Until something wakes the store (n_wakes is no longer `seen`) or so much time has gone. */
static void sleep_until_woken(struct store *store, uint64_t seen, uint64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&store->wake_lock);
    int rc = 0;
    while (store->n_wakes == seen && rc != ETIMEDOUT && !atomic_load(&store->stopping))
        rc = pthread_cond_timedwait(&store->wake, &store->wake_lock, &until);
    pthread_mutex_unlock(&store->wake_lock);
}

static uint64_t wakes(struct store *store)
{
    pthread_mutex_lock(&store->wake_lock);
    uint64_t n = store->n_wakes;
    pthread_mutex_unlock(&store->wake_lock);
    return n;
}

static void *maintain(void *context)
{
    struct maintainer *m = context;
    struct store *store = m->store;
    uint64_t next_ms = 0;
    if (!store->options.no_priorities)
        store_priority_begin(m, m->pass == write_pass);
    while (!atomic_load(&store->stopping)) {
        struct quire_error err = {0};
        uint64_t seen = wakes(store), pause = IDLE_MS;
        atomic_fetch_add(&store->passes_begun, 1);
        int rc = m->pass(m, &err);
        if (m->pass == upkeep_pass) { /* all collections are counted in their turn */
            uint64_t started = clock_us();
            if (store_now_ms() >= next_ms) {
                upkeep_all(m, &err);
                pause = (clock_us() - started) * COUNT_TIME_SHARE / 1000;
                next_ms = store_now_ms() + (pause > COUNT_PAUSE_MS ? pause : COUNT_PAUSE_MS);
            }
            pause = next_ms > store_now_ms() ? next_ms - store_now_ms() : 0;
        }
        atomic_fetch_add(&store->passes_ended, 1);
        if (rc <= 0)
            sleep_until_woken(store, rc < 0 ? wakes(store) : seen, pause);
    }
    return NULL;
}

int store_start_maintenance(struct store *store, struct quire_error *err)
{
    int (*const passes[MAINTENANCE_ROLES])(struct maintainer *, struct quire_error *) = {upkeep_pass, write_pass,
                                                                                         merge_pass};
    for (unsigned i = 0; i < MAINTENANCE_ROLES; i++) {
        struct maintainer *m = &store->maintainers[i];
        m->store = store;
        m->pass = passes[i];
    }
    return store->options.no_maintenance ? 0 : store_begin_maintenance(store, err);
}

int store_begin_maintenance(struct store *store, struct quire_error *err)
{
    int rc = 0;
    store->options.no_maintenance = false;
    for (unsigned i = 0; i < MAINTENANCE_ROLES && rc == 0; i++) {
        struct maintainer *m = &store->maintainers[i];
        assert(!m->started && m->pass);
        int errnum = pthread_create(&m->thread, NULL, maintain, m);
        if (errnum)
            rc = error_set_errno(err, errnum, "start a thread for", store->path);
        m->started = errnum == 0;
    }
    return rc;
}

void store_end_maintenance(struct store *store)
{
    pthread_mutex_lock(&store->wake_lock);
    atomic_store(&store->stopping, true);
    pthread_cond_broadcast(&store->wake);
    pthread_mutex_unlock(&store->wake_lock);
    for (unsigned i = 0; i < MAINTENANCE_ROLES; i++) {
        struct maintainer *m = &store->maintainers[i];
        if (m->started)
            pthread_join(m->thread, NULL);
        m->started = false;
    }
}

/* ---- on request -------------------------------------------------------------------------------------------------- */

int store_maintain(struct store *store, struct quire_error *err)
{
    struct quire_error reason = {0}; /* passes log what they say in it */
    int done = 0, rc = upkeep_all(&store->maintainers[0], &reason);
    done += rc > 0;
    for (unsigned i = 0; i < MAINTENANCE_ROLES && rc >= 0; i++) {
        rc = store->maintainers[i].pass(&store->maintainers[i], &reason);
        done += rc > 0;
    }
    return rc < 0 ? error_set(err, rc, "%s", reason.message) : done;
}

/* What waits after a failure is not due. */
static bool is_due(struct store *store)
{
    pthread_mutex_lock(&store->wake_lock);
    bool due = store->woken || store->garbage || store->sealed_away;
    pthread_mutex_unlock(&store->wake_lock);
    due = due || atomic_load(&store->counted_lsn) != journal_last_lsn(store->journal);
    pthread_mutex_lock(&store->lock);
    due = due || choose(store, BUSY_SEAL) || choose(store, BUSY_MERGE) || store->stats.checkpointing;
    for (uint32_t i = 0; i < store->n_buckets && !due; i++)
        for (struct collection *c = store->buckets[i]; c && !due; c = store_upkeep(c)->next)
            due = store_upkeep(c)->busy != 0;
    bool waits = store_now_ms() < store->checkpoint_retry_ms;
    pthread_mutex_unlock(&store->lock);
    return due || (!waits && checkpoint_is_due(store, 1));
}

int store_settle(struct store *store, struct quire_error *err)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    int rc = 0;
    while (rc >= 0) {
        uint64_t ended = atomic_load(&store->passes_ended);
        /* no pass has begun since one that ended before all of this was looked at, so none was under way */
        if (!is_due(store) && atomic_load(&store->passes_begun) == ended)
            break;
        if (store->options.no_maintenance)
            rc = store_maintain(store, err);
        else
            nanosleep(&pause, NULL);
    }
    return rc < 0 ? rc : 0;
}
