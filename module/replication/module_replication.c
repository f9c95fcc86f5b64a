/*
 * module_replication.c - what an operator asks about replicas.
 *
 *   QUIRE.REPLICATION   the role of this node, what it sends or lacks, and each set that is not whole
 *   QUIRE.DOCTOR        what of the engine's settings is not as it should be for replicas, and why; empty: all is
 *   QUIRE.LOST key      elements that this node had acknowledged as a primary and its new primary has not, or has
 *                       otherwise: their number, then names; kept for quire.divergent-keep seconds
 */
#include "index/collection/collection_digest.h"
#include "index/collection/collection_export.h"
#include "io/array.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { LOST_NAMES_MAX = 10000 };

/* ---- QUIRE.REPLICATION ------------------------------------------------------------------------------------------- */

/* What is not whole. A thread makes sets whole meanwhile: each is looked at once. */
struct report {
    char (*lines)[MODULE_TEXT_BYTES]; /* owned */
    size_t n, capacity;
    bool is_short; /* there was no memory for all */
};

static void report_one(void *context, struct module_item *item)
{
    struct report *r = context;
    char text[MODULE_TEXT_BYTES];
    if (item->attached == 0 || !module_copies_describe(item, text))
        return;
    r->is_short |= !array_reserve(&r->lines, &r->capacity, r->n + 1);
    if (!r->is_short)
        memcpy(r->lines[r->n++], text, strlen(text) + 1);
}

static void put_text(struct rm_ctx *ctx, const char *name, const char *value)
{
    rm.reply_bulk(ctx, name, strlen(name));
    rm.reply_bulk(ctx, value, strlen(value));
}

static void put_number(struct rm_ctx *ctx, const char *name, uint64_t value)
{
    rm.reply_bulk(ctx, name, strlen(name));
    rm.reply_integer(ctx, (long long)value);
}

int module_replication_report(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct report report = {.lines = NULL};
    struct module_copies_stats copies;
    struct module_fetch_stats fetch;
    struct module_ship_stats ship;
    (void)argv;
    if (argc != 1)
        return rm.wrong_arity(ctx);
    module_copies_get_stats(&copies);
    module_fetch_get_stats(&fetch);
    module_ship_get_stats(&ship);
    module_items_each(report_one, &report);
    if (report.is_short) {
        free(report.lines);
        return rm.reply_error(ctx, "OOM no memory for the list of sets that are not whole");
    }
    rm.reply_map(ctx, 22);
    put_text(ctx, "role", module_the.is_replica ? "replica" : "primary");
    put_text(ctx, "stream", module_stream_runs() ? "yes" : "no");
    put_number(ctx, "replicas", module_stream_replicas(ctx));
    put_number(ctx, "images_sent", ship.images);
    put_number(ctx, "pieces_sent", ship.pieces);
    put_number(ctx, "bytes_sent", ship.bytes);
    put_number(ctx, "segments_kept", ship.pool.segments);
    put_number(ctx, "segments_kept_bytes", ship.pool.bytes);
    put_text(ctx, "primary_link", !module_the.is_replica ? "" : fetch.link[0] ? fetch.link : "idle");
    put_text(ctx, "may_be_elected", copies.is_guarded ? "no" : "yes");
    put_number(ctx, "sets_whole", copies.whole);
    put_number(ctx, "sets_incomplete", copies.incomplete);
    put_number(ctx, "sets_stopped", copies.stopped);
    put_number(ctx, "sets_copied", copies.copied_anew);
    put_number(ctx, "caches_whole", copies.caches_whole);
    put_number(ctx, "caches_incomplete", copies.caches_incomplete);
    put_number(ctx, "writes_applied", copies.effects);
    put_number(ctx, "writes_skipped", copies.skipped);
    put_number(ctx, "segments_fetched", fetch.segments);
    put_number(ctx, "entries_fetched", fetch.entries);
    put_number(ctx, "bytes_fetched", fetch.bytes);
    rm.reply_bulk(ctx, "sets", 4);
    rm.reply_array(ctx, (long)report.n);
    for (size_t i = 0; i < report.n; i++)
        rm.reply_bulk(ctx, report.lines[i], strlen(report.lines[i]));
    free(report.lines);
    return RM_OK;
}

/* ---- QUIRE.DOCTOR ------------------------------------------------------------------------------------------------ */

struct advice {
    struct rm_ctx *ctx;
    char lines[16][MODULE_TEXT_BYTES];
    long n;
};

static void advise(struct advice *a, const char *setting, const char *value, const char *why)
{
    if (a->n < (long)(sizeof a->lines / sizeof *a->lines))
        snprintf(a->lines[a->n++], MODULE_TEXT_BYTES, "%s is %s: %s", setting, value, why);
}

/* Settings that are a number, and should not be below (or above) one. */
static void look_at_number(struct advice *a, const char *setting, long long least, long long most, const char *why)
{
    char *text = module_setting_of_engine(a->ctx, setting);
    if (text && (strtoll(text, NULL, 10) < least || strtoll(text, NULL, 10) > most))
        advise(a, setting, text, why);
    free(text);
}

static void look_at_text(struct advice *a, const char *setting, const char *bad, const char *why)
{
    char *text = module_setting_of_engine(a->ctx, setting);
    if (text && strcmp(text, bad) == 0)
        advise(a, setting, text, why);
    free(text);
}

/* "normal 0 0 0 slave 268435456 67108864 60 pubsub ...": the hard and soft limits of replicas. */
static void look_at_buffers(struct advice *a)
{
    char *text = module_setting_of_engine(a->ctx, "client-output-buffer-limit");
    const char *at = text ? strstr(text, "slave ") : NULL;
    char shown[64], *end = NULL;
    unsigned long long hard = at ? strtoull(at + strlen("slave "), &end, 10) : 0;
    unsigned long long soft = at ? strtoull(end, NULL, 10) : 0;
    if ((hard && hard < 1073741824ull) || (soft && soft < 536870912ull)) {
        snprintf(shown, sizeof shown, "%llu %llu for replicas", hard, soft);
        advise(a, "client-output-buffer-limit", shown,
               "a replica that falls behind is cut off and synchronised anew. Set 'replica 1gb 512mb 60'");
    }
    free(text);
}

int module_replication_doctor(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct advice *a = calloc(1, sizeof *a);
    (void)argv;
    if (argc != 1 || !a) {
        free(a);
        return argc != 1 ? rm.wrong_arity(ctx) : rm.reply_error(ctx, "OOM no memory");
    }
    a->ctx = ctx;
    look_at_number(a, "repl-backlog-size", 256ll << 20, INT64_MAX,
                   "a replica whose link was down for longer than that holds must synchronise in full. Set 256mb");
    look_at_buffers(a);
    look_at_number(a, "repl-diskless-sync-delay", 0, 5,
                   "a replica waits that long before its first byte. Set 5 or less");
    if (rm.get_context_flags(ctx) & RM_FLAG_CLUSTER) {
        look_at_text(a, "cluster-require-full-coverage", "yes",
                     "all shards refuse while one has no primary. Set no, unless that is meant");
        look_at_number(
            a, "cluster-node-timeout", 2000, 15000,
            "below 2 s a slow disk looks like a failure, above 15 s writes of a cut off primary are lost for "
            "longer. Set 5000");
        look_at_number(a, "cluster-replica-validity-factor", 1, 100,
                       "0 lets a replica of any age take the lead. Set 10");
    }
    if (!module_the.is_replica && module_stream_replicas(ctx) == 1)
        look_at_number(a, "min-replicas-to-write", 0, 0,
                       "with one replica each failover stops writes until the old primary is back: have two, or set 0");
    rm.reply_array(ctx, a->n);
    for (long i = 0; i < a->n; i++)
        rm.reply_bulk(ctx, a->lines[i], strlen(a->lines[i]));
    free(a);
    return RM_OK;
}

/* ---- QUIRE.LOST -------------------------------------------------------------------------------------------------- */

struct loss {
    struct job job;
    struct rm_blocked *blocked;
    struct collection *old, *now; /* references */
    XXH3_state_t *state;
    uint64_t *have; /* hashes of the elements that are there; owned */
    size_t n_have, capacity;
    char **names; /* owned, with the names */
    uint32_t *name_bytes;
    size_t n_names;
    uint64_t n_lost;
    int code;
    struct quire_error error;
};

static int note_present(void *context, const struct exported_element *element)
{
    struct loss *l = context;
    if (!array_reserve(&l->have, &l->capacity, l->n_have + 1))
        return error_set(&l->error, QUIRE_ENOMEM, "no memory to compare two sets");
    l->have[l->n_have++] = collection_digest_element(l->state, element).low64;
    return 0;
}

static int note_lost(void *context, const struct exported_element *element)
{
    struct loss *l = context;
    if (array_has_u64(l->have, l->n_have, collection_digest_element(l->state, element).low64))
        return 0;
    if (l->n_names < LOST_NAMES_MAX && (l->names[l->n_names] = malloc(element->key_bytes + 1u))) {
        memcpy(l->names[l->n_names], element->key, element->key_bytes);
        l->name_bytes[l->n_names++] = element->key_bytes;
    }
    l->n_lost++;
    return 0;
}

static void run_loss(struct job *job)
{
    struct loss *l = (struct loss *)(void *)job;
    l->state = XXH3_createState();
    l->names = calloc(LOST_NAMES_MAX, sizeof *l->names);
    l->name_bytes = calloc(LOST_NAMES_MAX, sizeof *l->name_bytes);
    l->code =
        l->state && l->names && l->name_bytes ? 0 : error_set(&l->error, QUIRE_ENOMEM, "no memory to compare two sets");
    if (l->code == 0)
        l->code = collection_export_all(l->now, note_present, l, &l->error);
    if (l->code == 0) {
        array_sort_u64(l->have, l->n_have);
        l->code = collection_export_all(l->old, note_lost, l, &l->error);
    }
    rm.unblock_client(l->blocked, l);
}

static int reply_loss(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    const struct loss *l = rm.get_blocked_data(ctx);
    char text[sizeof l->error.message + 8];
    (void)argv;
    (void)argc;
    if (l->code < 0) {
        snprintf(text, sizeof text, "ERR %s", l->error.message);
        return rm.reply_error(ctx, text);
    }
    rm.reply_array(ctx, 1 + (long)l->n_names);
    rm.reply_integer(ctx, (long long)l->n_lost);
    for (size_t i = 0; i < l->n_names; i++)
        rm.reply_bulk(ctx, l->names[i], l->name_bytes[i]);
    return RM_OK;
}

static void free_loss(struct rm_ctx *ctx, void *data)
{
    struct loss *l = data;
    (void)ctx;
    collection_unref(l->old);
    collection_unref(l->now);
    for (size_t i = 0; i < l->n_names; i++)
        free(l->names[i]);
    XXH3_freeState(l->state);
    free(l->names);
    free(l->name_bytes);
    free(l->have);
    free(l);
}

int module_replication_lost(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    char text[MODULE_TEXT_BYTES], name[MODULE_NAME_BYTES + 2];
    bool other;
    if (argc != 2)
        return rm.wrong_arity(ctx);
    struct module_item *item = module_item_of_key(ctx, argv[1], &other);
    if (other || (item && item->kind != MODULE_SET))
        return rm.reply_error(ctx, "WRONGTYPE QUIRE.LOST is of vector sets");
    if (!item)
        return rm.reply_null(ctx);
    if (module_copies_refuse(item, text))
        return rm.reply_error(ctx, text);
    if (rm.get_context_flags(ctx) & (RM_FLAG_LUA | RM_FLAG_MULTI | RM_FLAG_DENY_BLOCKING))
        return rm.reply_error(ctx, "ERR this command takes long: it is not for transactions and scripts");
    module_copies_lost_name(item, name);
    struct loss *l = calloc(1, sizeof *l);
    if (!l)
        return rm.reply_error(ctx, "OOM no memory");
    l->old = module_set_of(name);
    l->now = module_set_of(item->name);
    if (!l->old || !l->now) {
        free_loss(ctx, l);
        return rm.reply_null(ctx);
    }
    l->job.run = run_loss;
    l->blocked = rm.block_client(ctx, reply_loss, NULL, free_loss, 0);
    worker_post(&module_the.service.worker, &l->job);
    return RM_OK;
}
