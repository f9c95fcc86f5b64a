/*
 * module_copies.c - a replica: what its primary says is done to the sets here; and the change of roles.
 *
 * A set of a replica is a copy (lineage.h): it takes effects of its primary's writes and no others, and is neither
 * sealed nor merged here. It is
 *
 *   whole        it answers, and holds what its primary held at its number, whatever segments are on their way
 *   incomplete   it lacks segments that are nowhere else (after a full sync), or all of it is on its way: TRYAGAIN
 *   stopped      its primary has said something that this version does not know: nothing behind it is done
 *
 * A cache goes the same way (cache/core/cache_replica.h), with entries for segments: the primary alone evicts, lets
 * expire and learns. Nothing is kept of what its new primary has otherwise, and it holds back no election: who takes
 * the lead while it is copied serves what was confirmed, and the rest is a miss.
 *
 * A copy that cannot go on (a gap, a history that has parted, an error of the disk) is copied anew from its primary,
 * and of its segments only those travel that it lacks. Effects that come meanwhile are kept, and done to the new copy:
 * those that are in it already do nothing.
 *
 * While a set is not whole the node is not to be elected: cluster-replica-no-failover yes (in a cluster), and
 * replica-priority 0 (for Sentinel); both are put back to what they were.
 *
 * The node that takes the lead begins a new history of every set, seals and merges. Publications that were on their way
 * are given up: their rows are in memory here. The node that loses it makes copies of its sets; what its new primary
 * replaces of them is kept for a while under another name (QUIRE.LOST).
 */
#include "index/replica/replica_effect.h"
#include "index/replica/replica_manifest.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "module/replication/module_copy.h"
#include "server/call/lane.h"
#include "server/dump/transfer.h"
#include "server/keys/keyspace.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_MS = 250,
    RETRY_MS = 500,
    IMAGE_MS = 1000,
    DAMAGED_MS = 10000,
    DAMAGED_TOLD = 3,
    UNKNOWN_ASKS = 10,
    HAVE_MS = 5000,
    LATE_BYTES_MAX = 64 << 20,
    LATE_SLICE_US = 5000,
    IMAGE_AT_ONCE = 64 << 10 /* bytes of an image of which the main thread makes a set itself */
};

/* A write that came while the set is copied anew. */
struct late {
    uint8_t *bytes; /* owned */
    uint32_t n;
};

struct module_copy {
    uint64_t generation; /* what was asked for an earlier one is thrown away */
    bool is_queued;      /* the thread that fetches has it */
    bool is_wanted;      /* it must be copied anew */
    bool is_stopped;
    bool is_left;    /* this node leads, and misses segments that its primary had */
    bool led;        /* this node led it, and nothing of its new primary's was done to it */
    bool is_missing; /* segments, when that was looked at last */
    bool is_settled; /* nothing was on its way then: it need not be looked at before it is told of something */
    uint32_t n_segments;
    unsigned n_damaged, n_unknown; /* segments that came damaged; answers that the primary has no such set */
    uint64_t retry_ms, seq;
    struct late *late;
    size_t n_late, late_done, late_capacity, late_bytes;
    bool late_lost;
    char why[MODULE_TEXT_BYTES];
};

static struct {
    bool loading;
    uint64_t generation, ticked_ms, said_ms;
    bool role_known;
    struct module_copies_stats stats;
    struct guard {
        const char *setting, *guarded;
        char *before; /* owned; NULL: it is as it was */
    } guards[2];
} copies = {.guards = {{"cluster-replica-no-failover", "yes", NULL}, {"replica-priority", "0", NULL}}};

static uint64_t now_ms(void)
{
    return clock_us() / 1000;
}

static bool is_attached(const struct module_item *item)
{
    return item->attached > 0 && (item->state == MODULE_LIVE || item->state == MODULE_ABSENT);
}

/* ---- what comes late --------------------------------------------------------------------------------------------- */

static void forget_late(struct module_copy *copy)
{
    for (size_t i = 0; i < copy->n_late; i++)
        free(copy->late[i].bytes);
    copy->n_late = copy->late_done = 0;
    copy->late_bytes = 0;
    copy->late_lost = false;
}

static void keep_late(struct module_copy *copy, const void *bytes, size_t n)
{
    uint8_t *kept = NULL;
    if (!copy->late_lost && copy->late_bytes + n <= LATE_BYTES_MAX &&
        array_reserve(&copy->late, &copy->late_capacity, copy->n_late + 1))
        kept = malloc(n + 1);
    if (!kept) {
        forget_late(copy);
        copy->late_lost = true; /* it is asked for once more */
        return;
    }
    memcpy(kept, bytes, n);
    copy->late[copy->n_late++] = (struct late){kept, (uint32_t)n};
    copy->late_bytes += n;
}

static void free_copy(struct module_copy *copy)
{
    if (!copy)
        return;
    forget_late(copy);
    free(copy->late);
    free(copy);
}

void module_copies_forget(struct module_item *item)
{
    free_copy(item->copy);
    item->copy = NULL;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static struct module_copy *copy_of(struct module_item *item)
{
    if (!item->copy) {
        item->copy = calloc(1, sizeof *item->copy);
        if (item->copy)
            item->copy->generation = ++copies.generation;
    }
    return item->copy;
}

static void say(struct module_copy *copy, const char *why)
{
    snprintf(copy->why, sizeof copy->why, "%.*s", MODULE_TEXT_BYTES - 1, why);
}

static void want(struct module_item *item, const char *why)
{
    struct module_copy *copy = item->copy;
    if (copy->is_wanted || copy->is_stopped)
        return;
    copy->generation = ++copies.generation; /* segments of the old one are not awaited any more */
    copy->is_queued = copy->is_settled = false;
    copy->is_wanted = true;
    copy->retry_ms = 0;
    forget_late(copy);
    say(copy, why);
    log_line(&module_the.log, LOG_LEVEL_NOTICE, "key '%.*s' is copied anew from its primary: %s", (int)item->key_bytes,
             item->key ? item->key : "", why);
}

static void stop(struct module_item *item, const char *why)
{
    struct module_copy *copy = item->copy;
    if (!copy->is_stopped)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s' is not followed any more: %s", (int)item->key_bytes,
                 item->key ? item->key : "", why);
    copy->is_stopped = true;
    forget_late(copy);
    say(copy, why);
}

/* Whether the set is here; *lacks: something of it is on its way. */
static bool look_at_set(struct module_item *item, bool *lacks)
{
    struct module_copy *copy = item->copy;
    struct collection *set = module_set_of(item->name);
    struct lineage_identity own;
    if (!set)
        return false;
    uint32_t n_told = lineage_list_told(set, NULL, 0);
    copy->is_missing = n_told > 0 && lineage_missing(set) > 0;
    copy->seq = n_told == 0 && lineage_get(set, &own) ? own.seq : copy->seq;
    copy->is_settled = n_told == 0;
    collection_unref(set);
    *lacks = n_told > 0;
    return true;
}

/* The same of a cache. One that has no history has heard nothing since this node follows. */
static bool look_at_cache(struct module_item *item, bool *lacks)
{
    struct cache_standing standing;
    if (!module_caches_standing(item, &standing) || standing.history == 0)
        return false;
    item->copy->is_missing = standing.is_copying;
    item->copy->is_settled = !standing.is_copying;
    *lacks = standing.is_copying && !standing.is_listed;
    return true;
}

/* What became of it: whether it lacks something, and who is to fetch that. */
static void look_at(struct module_item *item)
{
    struct module_copy *copy = item->copy;
    bool lacks = false;
    copy->is_missing = copy->is_settled = false;
    bool here =
        !copy->is_wanted && (item->kind == MODULE_SET ? look_at_set(item, &lacks) : look_at_cache(item, &lacks));
    if (!here && !copy->is_wanted && !copy->is_stopped && is_attached(item) && !copies.loading &&
        now_ms() >= copy->retry_ms)
        want(item, item->kind == MODULE_SET ? "its data is not here" : "nothing was heard of it yet");
    if ((!lacks && !copy->is_wanted) || copy->is_queued || copy->is_stopped || copies.loading ||
        !module_the.is_replica || !is_attached(item) || now_ms() < copy->retry_ms)
        return;
    bool asks_key = copy->is_wanted && copy->n_unknown > 0 && copy->n_unknown % UNKNOWN_ASKS == 0;
    copy->is_queued = module_fetch_post(item, copy->generation, copy->is_wanted, asks_key);
}

static uint32_t missing_of(const struct module_item *item)
{
    struct collection *set = module_set_of(item->name);
    uint32_t n = set ? lineage_missing(set) : 0;
    collection_unref(set);
    return n;
}

bool module_copies_describe(struct module_item *item, char text[MODULE_TEXT_BYTES])
{
    struct module_copy *copy = item->copy;
    struct cache_standing standing;
    if (!copy)
        return false;
    int key_bytes = (int)(item->key_bytes < 64 ? item->key_bytes : 64);
    const char *key = item->key ? item->key : "";
    if (copy->is_stopped)
        snprintf(text, MODULE_TEXT_BYTES, "%.*s is not followed any more: %.120s", key_bytes, key, copy->why);
    else if (copy->is_left)
        snprintf(text, MODULE_TEXT_BYTES,
                 "%.*s was not whole when this node took the lead: %u segments are missing. Make a node that has them "
                 "the primary, or DEL the key",
                 key_bytes, key, missing_of(item));
    else if (copy->is_wanted || item->state == MODULE_ABSENT)
        snprintf(text, MODULE_TEXT_BYTES, "%.*s is being copied", key_bytes, key);
    else if (item->kind == MODULE_CACHE) {
        if (!module_the.is_replica ||
            (module_caches_standing(item, &standing) && !standing.is_copying && standing.history))
            return false;
        snprintf(text, MODULE_TEXT_BYTES, "%.*s is being copied", key_bytes, key);
    } else if (copy->is_missing && (copy->is_missing = missing_of(item) > 0)) {
        uint32_t n = missing_of(item), all = copy->n_segments > n ? copy->n_segments : n;
        snprintf(text, MODULE_TEXT_BYTES, "%.*s is being copied: %u of %u segments", key_bytes, key, all - n, all);
    } else {
        return false;
    }
    return true;
}

bool module_copies_refuse(struct module_item *item, char text[MODULE_TEXT_BYTES])
{
    char why[MODULE_TEXT_BYTES];
    if (!item->copy || !module_copies_describe(item, why))
        return false;
    snprintf(text, MODULE_TEXT_BYTES, "%s %.240s", item->copy->is_stopped || item->copy->is_left ? "ERR" : "TRYAGAIN",
             why);
    return true;
}

/* ---- a set that came --------------------------------------------------------------------------------------------- */

void module_copies_lost_name(const struct module_item *item, char out[MODULE_NAME_BYTES + 2])
{
    out[0] = '~';
    memcpy(out + 1, item->name, MODULE_NAME_BYTES + 1);
}

/* In the place of what the store has under the item's name. */
static int put_under_name(const struct module_item *item, struct collection *set, struct quire_error *err)
{
    struct lane *lane = &module_the.lanes[0].lane;
    struct transfer_target target = {.key = {(const uint8_t *)item->name, MODULE_NAME_BYTES}, .replace = true};
    struct key_value value = {.type = KEY_VECTOR_SET, .set = collection_ref(set)};
    uint64_t lsn;
    lane_enter(lane);
    int rc = transfer_bind(&module_the.service, &target, &value, &lsn, err);
    lane_leave(lane);
    return rc;
}

/* What this node led, and its new primary has otherwise: renamed, since a set without a key would be removed. */
static void keep_lost(struct module_item *item)
{
    char name[MODULE_NAME_BYTES + 2];
    struct quire_error err = {0};
    struct keyspace *keyspace = &module_the.service.keyspace;
    struct lane *lane = &module_the.lanes[0].lane;
    struct keyspace_lock lock;
    struct key_entry *entry;
    if (module_the.settings.divergent_keep_s == 0)
        return;
    module_copies_lost_name(item, name);
    const struct resp_arg args[] = {{(const uint8_t *)item->name, MODULE_NAME_BYTES},
                                    {(const uint8_t *)name, MODULE_NAME_BYTES + 1}};
    struct key from = keyspace_key(keyspace, args[0]), to = keyspace_key(keyspace, args[1]);
    lane_enter(lane);
    keyspace_lock_args(&lock, keyspace, args, 2, 1);
    int rc = keyspace_find_to_write(&lock, &from, &entry, &err);
    if (rc == 0 && entry)
        rc = keyspace_rename(&lock, entry, &to, &err);
    entry = rc == 0 ? keyspace_find(&lock, &to) : NULL;
    if (entry)
        rc = keyspace_expire(&lock, entry, keyspace_now(&lock) + module_the.settings.divergent_keep_s * 1000, &err);
    keyspace_unlock(&lock);
    lane_leave(lane);
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "what key '%.*s' had alone is not kept: %s", (int)item->key_bytes,
                 item->key ? item->key : "", err.message);
}

/* The fresh set is the item's from now on; a reference is taken over. */
static int take_fresh(struct module_item *item, struct collection *fresh, uint32_t n_segments, struct quire_error *err)
{
    struct module_copy *copy = item->copy;
    struct collection *old = module_set_of(item->name);
    uint64_t lsn;
    if (old && copy->led)
        keep_lost(item);
    collection_unref(old);
    int rc = put_under_name(item, fresh, err);
    collection_unref(fresh);
    if (rc < 0)
        return rc;
    item->state = item->attached > 0 || item->state == MODULE_ABSENT ? MODULE_LIVE : item->state;
    item->is_copy = true;
    copy->led = copy->is_wanted = copy->is_left = false;
    copy->n_segments = n_segments;
    copy->why[0] = 0;
    return module_item_log(item, &lsn, err);
}

/* All of a cache but its entries, of which those that are here stay if the primary confirms them. */
static int take_cache(struct module_item *item, const uint8_t *bytes, size_t n, struct quire_error *err)
{
    uint64_t lsn;
    int rc = module_caches_take(item, bytes, n, err);
    if (rc < 0)
        return rc;
    item->copy->is_wanted = false;
    item->copy->why[0] = 0;
    item->state = item->attached > 0 || item->state == MODULE_ABSENT ? MODULE_LIVE : item->state;
    return module_item_log(item, &lsn, err);
}

/* What is here stays where it has all that the image has. */
static bool keep_set(struct module_item *item, const struct replica_manifest_info *info, struct collection *old)
{
    struct lineage_identity own;
    if (!old || !lineage_get(old, &own) || memcmp(own.id, info->identity.id, LINEAGE_ID_BYTES) != 0 ||
        memcmp(own.history, info->identity.history, LINEAGE_ID_BYTES) != 0 || own.seq < info->identity.seq ||
        collection_available(old, NULL) < 0 || lineage_set_replica(old, true, NULL) < 0)
        return false;
    item->copy->n_segments = info->n_segments;
    item->copy->led = false;
    item->is_copy = true;
    return true;
}

/* Rows of a large image are put into memory by the thread that fetches, or other clients would wait; but not those of
 * one in the stream, where a COPY that gives it a key may follow at once. */
static int take_set(struct module_item *item, const uint8_t *bytes, size_t n, struct quire_error *err)
{
    struct module_copy *copy = item->copy;
    struct replica_manifest_info info;
    struct collection *old = module_set_of(item->name), *fresh = NULL;
    int rc = replica_manifest_read(bytes, n, &info, err);
    if (rc == 0 && !keep_set(item, &info, old)) {
        if (copies.loading && n > IMAGE_AT_ONCE) {
            copy->is_wanted = true;
            copy->retry_ms = 0;
            say(copy, "its rows are on their way into memory");
            copy->is_queued = module_fetch_given(item, copy->generation, bytes, n); /* false: it is asked for */
        } else {
            rc = replica_manifest_load(module_the.service.store, bytes, n, old, &fresh, err);
            copies.stats.copied_anew += rc == 0;
            if (rc == 0)
                rc = take_fresh(item, fresh, info.n_segments, err);
        }
    }
    collection_unref(old);
    return rc;
}

/* An image that came in the stream or in an RDB. */
static void take_image_or_want(struct module_item *item, const uint8_t *bytes, size_t n)
{
    struct module_copy *copy = item->copy;
    struct quire_error err = {0};
    copy->generation = ++copies.generation;
    copy->is_queued = copy->is_wanted = copy->is_stopped = false;
    copy->n_damaged = 0;
    forget_late(copy);
    int rc = item->kind == MODULE_CACHE ? take_cache(item, bytes, n, &err) : take_set(item, bytes, n, &err);
    if (rc == QUIRE_EVERSION)
        stop(item, err.message);
    else if (rc < 0)
        want(item, err.message);
    look_at(item);
}

void module_copies_attach(struct module_item *item, const uint8_t *bytes, size_t n)
{
    if (!module_the.is_replica || !copy_of(item))
        return;
    if (bytes)
        take_image_or_want(item, bytes, n);
    else if (copies.loading)
        want(item, "it was not in the RDB of its primary");
    else
        item->copy->retry_ms = now_ms() + IMAGE_MS; /* it follows in the stream */
}

static int apply_one(const struct module_item *item, const uint8_t *bytes, size_t n, uint64_t *lsn,
                     struct quire_error *err)
{
    if (item->kind == MODULE_CACHE)
        return module_caches_apply(item, bytes, n, lsn, err);
    struct collection *set = module_set_of(item->name);
    int rc =
        set ? replica_effect_apply(set, bytes, n, lsn, err) : error_set(err, QUIRE_ENOTFOUND, "its data is not here");
    collection_unref(set);
    return rc;
}

static void drop_fresh(struct collection *fresh)
{
    struct quire_error err = {0};
    uint64_t lsn;
    if (fresh && store_drop_collection(module_the.service.store, fresh, &lsn, &err) < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "a copy that nobody wants stays until the next start: %s",
                 err.message);
    collection_unref(fresh);
}

static void note_failure(struct module_item *item, const struct module_fetch *f)
{
    struct module_copy *copy = item->copy;
    say(copy, f->error.message);
    copy->retry_ms = now_ms() + RETRY_MS;
    if (f->code == QUIRE_ECORRUPT) {
        copies.stats.damaged++;
        copy->n_damaged++;
        if (copy->n_damaged < DAMAGED_TOLD) {
            copy->retry_ms = 0;
            return;
        }
        copy->retry_ms = now_ms() + DAMAGED_MS;
        if (copy->n_damaged == DAMAGED_TOLD)
            log_line(&module_the.log, LOG_LEVEL_WARNING,
                     "a segment of key '%.*s' came damaged %u times: %s. Check the network and the disk of the primary",
                     (int)item->key_bytes, item->key ? item->key : "", copy->n_damaged, f->error.message);
    } else if (f->code == QUIRE_EVERSION) {
        stop(item, f->error.message);
    } else if (f->anew && f->code == QUIRE_ENOTFOUND && ++copy->n_unknown == UNKNOWN_ASKS) {
        log_line(
            &module_the.log, LOG_LEVEL_WARNING,
            "key '%.*s': %s. What the key is on the primary is asked for; if this goes on, synchronise this node in "
            "full (REPLICAOF NO ONE, then REPLICAOF its primary)",
            (int)item->key_bytes, item->key ? item->key : "", f->error.message);
    } else if (!f->anew && (f->code == QUIRE_ENOTFOUND || f->code == QUIRE_ESTALE)) {
        want(item, f->error.message);
    }
}

/* The item of what the thread has done; NULL: it is for nobody any more. */
static struct module_item *item_of(const struct module_fetch *f)
{
    struct module_item *item = module_item_find(f->name);
    return item && item->copy && item->copy->generation == f->generation && module_the.is_replica ? item : NULL;
}

static void end_fetched(struct module_item *item, struct module_fetch *f)
{
    item->copy->is_queued = false;
    if (f->code < 0)
        note_failure(item, f);
    else
        item->copy->n_damaged = item->copy->n_unknown = 0;
    look_at(item);
    module_fetch_free(f);
}

/* Does what came while it was copied, some at a time: what comes meanwhile stands behind that, and until all is done
 * the set is not whole. */
static void apply_late(struct lane *lane, struct message *message)
{
    struct module_fetch *f = (struct module_fetch *)(void *)message;
    struct module_item *item = item_of(f);
    struct module_copy *copy = item ? item->copy : NULL;
    uint64_t lsn, until_us = clock_us() + LATE_SLICE_US;
    int rc = 0;
    if (!item) {
        module_fetch_free(f);
        return;
    }
    while (rc >= 0 && copy->late_done < copy->n_late && clock_us() < until_us) {
        const struct late *late = &copy->late[copy->late_done++];
        rc = apply_one(item, late->bytes, late->n, &lsn, &f->error);
    }
    if (rc >= 0 && copy->late_done < copy->n_late) {
        lane_post(lane, message);
        return;
    }
    copy->is_wanted = copy->is_queued = false;
    if (rc == QUIRE_EVERSION)
        stop(item, f->error.message);
    else if (rc < 0)
        want(item, f->error.message);
    else if (copy->late_lost)
        want(item, "more was written while it was copied than is kept in memory");
    else
        forget_late(copy);
    end_fetched(item, f);
}

void module_copies_fetched(struct lane *lane, struct message *message)
{
    struct module_fetch *f = (struct module_fetch *)(void *)message;
    struct module_item *item = item_of(f);
    if (item && copies.loading) { /* the engine looks at its clients now and then while it loads */
        lane_post(lane, message);
        return;
    }
    if (!item) {
        drop_fresh(f->fresh);
        module_fetch_free(f);
        return;
    }
    struct module_copy *copy = item->copy;
    if (f->code == 0 && f->anew && copy->late_lost) {
        forget_late(copy);
        drop_fresh(f->fresh);
    } else if (f->code == 0 && f->anew) {
        copies.stats.copied_anew++;
        f->code = f->kind == MODULE_CACHE ? take_cache(item, f->image, f->n_image, &f->error)
                                          : take_fresh(item, f->fresh, f->n_segments, &f->error);
        if (f->code == 0) {
            copy->is_wanted = true; /* until what came late is done */
            f->message.run = apply_late;
            apply_late(lane, message);
            return;
        }
    }
    end_fetched(item, f);
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static void apply(struct module_item *item, const uint8_t *bytes, size_t n, uint64_t *lsn)
{
    struct module_copy *copy = item->copy;
    struct quire_error err = {0};
    if (!module_item_exists(item) && !is_attached(item))
        return; /* deleted here and there */
    int rc = apply_one(item, bytes, n, lsn, &err);
    copies.stats.effects += rc == 0 && *lsn > 0;
    copies.stats.skipped += rc == 0 && *lsn == 0;
    if (rc == 0 && *lsn > 0)
        copy->led = false;
    if (rc == QUIRE_EVERSION) {
        stop(item, err.message);
    } else if (rc < 0) {
        want(item, err.message);
        keep_late(copy, bytes, n);
    }
    if (rc < 0 || (item->kind == MODULE_SET && replica_effect_kind(bytes, n) == EFFECT_EDIT))
        look_at(item);
}

/* Arguments of a command of the stream: key, id, bytes. The copy that it is about, or NULL: there is none here. False
 * after a reply. */
static bool take_stream(struct rm_ctx *ctx, struct rm_string **argv, int argc, struct module_item **copy,
                        const uint8_t **bytes, size_t *n)
{
    size_t n_name;
    if (argc != 4) {
        rm.wrong_arity(ctx);
        return false;
    }
    if (!(rm.get_context_flags(ctx) & RM_FLAG_REPLICATED)) {
        rm.reply_error(ctx, "ERR this command is for the stream from a primary to its replicas");
        return false;
    }
    struct module_item *item = module_item_find(rm.string_bytes(argv[2], &n_name));
    *bytes = (const uint8_t *)rm.string_bytes(argv[3], n);
    bool is_here = module_the.open && module_the.is_replica && item && copy_of(item) != NULL;
    *copy = is_here ? item : NULL;
    return true;
}

/* QUIRE._W key id effect */
int module_copies_write(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct module_item *item;
    const uint8_t *bytes;
    size_t n;
    uint64_t lsn = 0;
    if (!take_stream(ctx, argv, argc, &item, &bytes, &n))
        return RM_OK;
    if (item && item->copy->is_wanted)
        keep_late(item->copy, bytes, n);
    else if (item && !item->copy->is_stopped)
        apply(item, bytes, n, &lsn);
    if (lsn > 0)
        rm.signal_modified_key(ctx, argv[1]);
    return rm.reply_simple(ctx, "OK");
}

/* An image of a set that no key has here yet: of a COPY, which follows. NULL: it is damaged, or there is no memory. */
static struct module_item *make_imaged(struct rm_ctx *ctx, struct rm_string **argv, const uint8_t *bytes, size_t n)
{
    struct replica_manifest_info info;
    struct quire_error err = {0};
    char name[MODULE_NAME_BYTES + 1];
    size_t n_name, n_key;
    const char *id = rm.string_bytes(argv[2], &n_name), *key = rm.string_bytes(argv[1], &n_key);
    if (!module_the.open || !module_the.is_replica || module_item_find(id) ||
        replica_manifest_read(bytes, n, &info, &err) < 0)
        return NULL;
    bytes_to_hex(info.identity.id, LINEAGE_ID_BYTES, name);
    struct module_item *item = strcmp(name, id) == 0 ? module_item_create(name, MODULE_SET, &err) : NULL;
    if (!item)
        return NULL;
    item->state = MODULE_ABSENT;
    module_item_place(item, rm.get_selected_db(ctx), key, n_key);
    return copy_of(item) ? item : NULL;
}

/* QUIRE._IMAGE key id image */
int module_copies_image(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct module_item *item;
    const uint8_t *bytes;
    size_t n;
    if (!take_stream(ctx, argv, argc, &item, &bytes, &n))
        return RM_OK;
    if (!item)
        item = make_imaged(ctx, argv, bytes, n);
    if (item) {
        take_image_or_want(item, bytes, n);
        rm.signal_modified_key(ctx, argv[1]);
    }
    return rm.reply_simple(ctx, "OK");
}

/* ---- loading what a primary sent --------------------------------------------------------------------------------- */

static void begin_loading(void *context, struct module_item *item)
{
    struct module_copy *copy = item->copy;
    (void)context;
    if (!copy)
        return;
    copy->generation = ++copies.generation;
    copy->is_queued = copy->is_wanted = copy->is_stopped = copy->is_settled = false;
    forget_late(copy);
}

bool module_copies_are_loading(void)
{
    return copies.loading;
}

/* ---- elections --------------------------------------------------------------------------------------------------- */

static void set_in_engine(struct rm_ctx *ctx, const char *name, const char *value)
{
    struct rm_reply *reply = rm.call(ctx, "CONFIG", "ccc", "SET", name, value);
    if (!reply || rm.reply_type(reply) == RM_REPLY_ERROR)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the engine does not take %s %s", name, value);
    if (reply)
        rm.free_reply(reply);
}

static void guard(struct rm_ctx *ctx, bool on)
{
    if (on == copies.stats.is_guarded)
        return;
    copies.stats.is_guarded = on;
    for (size_t i = 0; i < sizeof copies.guards / sizeof *copies.guards; i++) {
        struct guard *g = &copies.guards[i];
        if (on && (g->before = module_setting_of_engine(ctx, g->setting)))
            set_in_engine(ctx, g->setting, g->guarded);
        if (!on && g->before)
            set_in_engine(ctx, g->setting, g->before);
        if (!on) {
            free(g->before);
            g->before = NULL;
        }
    }
    log_line(&module_the.log, LOG_LEVEL_NOTICE, "%s",
             on ? "sets are being copied: until they are whole this node is not to be elected, and its primary has no "
                  "standby in it"
                : "all sets are whole: this node can be elected again");
}

void module_copies_loading(struct rm_ctx *ctx, bool begins)
{
    copies.loading = begins;
    if (!module_the.open || !module_the.is_replica)
        return;
    if (begins) {
        module_fetch_cancel();
        module_items_each(begin_loading, NULL);
        guard(ctx, true);
    } else {
        module_items_settle_all();
        copies.ticked_ms = 0;
    }
}

/* ---- roles ------------------------------------------------------------------------------------------------------- */

static void lead(void *context, struct module_item *item)
{
    struct quire_error err = {0};
    uint64_t lsn;
    (void)context;
    struct collection *set = item->kind == MODULE_SET && item->is_copy ? module_set_of(item->name) : NULL;
    if (!set) {
        if (item->kind == MODULE_CACHE)
            module_caches_lead(item);
        if (item->state == MODULE_ABSENT && item->copy)
            log_line(&module_the.log, LOG_LEVEL_WARNING,
                     "key '%.*s' has no data here: this node took the lead before it came. Make a node that has it the "
                     "primary, or DEL the key",
                     (int)item->key_bytes, item->key ? item->key : "");
        module_copies_forget(item);
        return;
    }
    if (item->copy && item->copy->is_wanted && is_attached(item))
        log_line(&module_the.log, LOG_LEVEL_WARNING,
                 "key '%.*s' is as of an earlier write: this node took the lead while it was copied anew (%s)",
                 (int)item->key_bytes, item->key ? item->key : "", item->copy->why);
    int rc = lineage_take_lead(set, &lsn, &err);
    if (rc == 0) {
        item->is_copy = false;
        rc = module_item_log(item, &lsn, &err);
        module_copies_forget(item);
    } else if (copy_of(item)) {
        item->copy->is_left = true;
    }
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s' has no leader here: %s", (int)item->key_bytes,
                 item->key ? item->key : "", err.message);
    collection_unref(set);
}

static void follow(void *context, struct module_item *item)
{
    struct quire_error err = {0};
    uint64_t lsn;
    (void)context;
    struct collection *set = item->kind == MODULE_SET ? module_set_of(item->name) : NULL;
    if (item->kind == MODULE_CACHE && copy_of(item)) {
        module_caches_follow(item);
        item->copy->retry_ms = now_ms() + IMAGE_MS; /* its image comes in the stream, or with a full sync */
    }
    if (!set || !copy_of(item)) {
        collection_unref(set);
        return;
    }
    int rc = module_stream_identify(item, set, &err);
    if (rc == 0)
        rc = lineage_set_replica(set, true, &err);
    item->copy->led |= !item->is_copy;
    item->copy->is_left = false;
    if (rc == 0 && !item->is_copy) {
        item->is_copy = true;
        rc = module_item_log(item, &lsn, &err);
    }
    if (!copies.role_known && item->seen) /* the stream goes on where the engine's files end, not the store */
        item->copies = item->replayed_copies;
    if (rc < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "key '%.*s' cannot be a copy: %s", (int)item->key_bytes,
                 item->key ? item->key : "", err.message);
    collection_unref(set);
}

/* What a fetch that was under way has made whole since. */
static void lead_late(void *context, struct module_item *item)
{
    if (item->copy && item->copy->is_left && missing_of(item) == 0)
        lead(context, item);
}

void module_copies_role(bool is_replica)
{
    bool was = module_the.is_replica;
    module_the.is_replica = is_replica;
    if (!module_the.open || !copies.role_known || was == is_replica)
        return;
    module_fetch_cancel();
    if (is_replica) {
        module_stream_end();
        module_items_each(follow, NULL);
        log_line(&module_the.log, LOG_LEVEL_NOTICE,
                 "this node is a replica now: its sets and caches follow those of its primary");
    } else {
        module_stream_begin(); /* before its sets begin histories: other replicas are told of them */
        module_items_each(lead, NULL);
        log_line(&module_the.log, LOG_LEVEL_NOTICE, "this node leads now");
    }
}

/* In a cluster a node that starts as a replica is told of its primary a moment later; its own entry says it before. */
static bool is_replica_of_cluster(struct rm_ctx *ctx)
{
    struct rm_reply *reply = rm.call(ctx, "CLUSTER", "c", "NODES");
    size_t n = 0;
    const char *text = reply && rm.reply_type(reply) == RM_REPLY_STRING ? rm.reply_bytes(reply, &n) : NULL;
    bool is = text && memmem(text, n, "myself,slave", 12) != NULL;
    if (reply)
        rm.free_reply(reply);
    return is;
}

void module_copies_begin(struct rm_ctx *ctx)
{
    int flags = rm.get_context_flags(ctx);
    bool is_replica =
        module_the.is_replica || (flags & RM_FLAG_SLAVE) || ((flags & RM_FLAG_CLUSTER) && is_replica_of_cluster(ctx));
    module_the.is_replica = is_replica;
    module_items_each(is_replica ? follow : lead, NULL);
    copies.role_known = true;
}

static void open_lost(void *context, const struct key_entry *entry)
{
    (void)context;
    if (entry->type == KEY_VECTOR_SET && entry->set && entry->node.key_bytes == MODULE_NAME_BYTES + 1 &&
        entry->key[0] == '~')
        lineage_set_replica(entry->set, true, NULL);
}

static void open_one(void *context, struct module_item *item)
{
    struct quire_error *err = context;
    struct collection *set = item->kind == MODULE_SET && item->is_copy ? module_set_of(item->name) : NULL;
    if (set && lineage_set_replica(set, true, err) < 0)
        item->is_copy = false; /* it has no identity: it was none */
    collection_unref(set);
}

int module_copies_open(struct quire_error *err)
{
    module_the.forget_copy = module_copies_forget;
    module_items_each(open_one, err);
    keyspace_each(&module_the.service.keyspace, open_lost, NULL);
    return 0;
}

/* ---- now and then ------------------------------------------------------------------------------------------------ */

static void tick_one(void *context, struct module_item *item)
{
    struct module_copies_stats *stats = context;
    char text[MODULE_TEXT_BYTES];
    if (!is_attached(item) || !copy_of(item))
        return;
    if (!item->copy->is_settled)
        look_at(item);
    bool incomplete = module_copies_describe(item, text);
    if (item->kind == MODULE_CACHE) {
        stats->caches_incomplete += incomplete;
        stats->caches_whole += !incomplete;
        return;
    }
    stats->stopped += item->copy->is_stopped;
    stats->incomplete += incomplete && !item->copy->is_stopped;
    stats->whole += !incomplete;
}

static void say_what_is_here(void *context, struct module_item *item)
{
    (void)context;
    if (item->kind == MODULE_SET && is_attached(item) && item->copy && !item->copy->is_wanted && item->copy->seq > 0)
        module_fetch_have(item->name, item->copy->seq);
}

void module_copies_tick(struct rm_ctx *ctx)
{
    struct module_copies_stats found = {.whole = 0};
    uint64_t now = now_ms();
    unsigned next = 0;
    if (now - copies.ticked_ms < TICK_MS)
        return;
    copies.ticked_ms = now;
    keyspace_expire_due(&module_the.service.keyspace, 0, 1, &next, 200); /* what is kept for QUIRE.LOST */
    if (module_the.is_replica && !copies.loading) {
        module_items_each(tick_one, &found);
        if (now - copies.said_ms > HAVE_MS) {
            copies.said_ms = now;
            module_items_each(say_what_is_here, NULL);
        }
        module_fetch_look(ctx, now);
    }
    if (!module_the.is_replica)
        module_items_each(lead_late, NULL);
    copies.stats.whole = found.whole;
    copies.stats.incomplete = found.incomplete;
    copies.stats.stopped = found.stopped;
    copies.stats.caches_whole = found.caches_whole;
    copies.stats.caches_incomplete = found.caches_incomplete;
    guard(ctx, module_the.is_replica && (copies.loading || found.incomplete + found.stopped > 0));
}

void module_copies_get_stats(struct module_copies_stats *out)
{
    *out = copies.stats;
}
