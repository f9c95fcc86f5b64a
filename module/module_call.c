/*
 * module_call.c - a command of a client: from the engine to its handler and back.
 *
 *   main thread   the key names an item; the handler gets the item's name in the store in place of the key
 *   search        --message--> a lane with a thread: handler, reply built there --> unblock
 *   the rest      handler on lane 0. A reply at once is handed on at once; one that comes later blocks the client, and
 *                 is handed on in the engine's reply callback.
 *   in EXEC, Lua  the engine lets no client wait there: the handler runs on the main thread's second lane, which is
 *                 turned until the reply is there
 *
 * What a write did to the key itself (the first VADD makes it, the VREM of the last element removes it) is done to the
 * engine's key in the command's own context or in the reply callback, and only there: the one place where the engine
 * takes RM_Replicate of a command that was answered later. From a callback of its event loop it would end with an
 * assertion. Between commit and callback others may have changed the key; so what is done is not what the handler has
 * seen, but what makes key and store agree now (settle_key). Where the client is gone meanwhile there is no callback:
 * then a timer does it (module_calls_tick).
 *
 * A reply waits for its LSN as quire-server's does: under `always` until it is synced.
 */
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"
#include "server/process/log.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_ON_HAND = 64 };

/* Arguments of the command being run; the main thread's. */
static struct {
    struct resp_arg *items; /* owned */
    size_t capacity;
} scratch;

/* Of the main thread: commands whose clients are blocked; those whose client went before the reply, whose keys are
 * looked at later; and those that a lane is still to be told of. */
static struct module_call *blocked_calls, *orphans, *told;

/* ---- the functions of a host ------------------------------------------------------------------------------------- */

static struct module_call *call_of(struct caller *c)
{
    return (struct module_call *)(void *)c;
}

static struct resp_buffer *host_reply(struct caller *c)
{
    struct module_call *call = call_of(c);
    call->out.protocol = c->protocol;
    return &call->out;
}

static void *host_defer(struct caller *c, size_t bytes, bool barrier)
{
    struct module_call *call = call_of(c);
    struct pending *p = calloc(1, bytes);
    assert(!call->waits); /* a client has one command at a time */
    if (!p) {
        resp_error(host_reply(c), "OOM no memory for a command");
        return NULL;
    }
    p->caller = c;
    p->out.protocol = c->protocol;
    p->barrier = barrier;
    p->deferred = true;
    call->waits = true;
    return p;
}

static void finish(struct module_call *call);

static void host_done(struct pending *p)
{
    struct module_call *call = call_of(p->caller);
    assert(call->waits && !call->done);
    resp_buffer_fini(&call->out);
    call->out = p->out;
    call->lsn = p->lsn > call->lsn ? p->lsn : call->lsn;
    free(p);
    call->done = true;
    finish(call);
}

static void host_wait_lsn(struct caller *c, uint64_t lsn)
{
    struct module_call *call = call_of(c);
    call->lsn = lsn > call->lsn ? lsn : call->lsn;
}

/* The engine takes the next command of other clients anyway. */
static void host_rest(struct caller *c)
{
    (void)c;
}

static void host_slow(struct caller *c, uint32_t us)
{
    call_of(c)->slow_us = us;
}

static void host_spent(struct caller *c, uint64_t us)
{
    (void)c;
    (void)us;
}

/* Users of the engine are bound to no tenants: callers have none. */
static struct resp_arg host_tenant(const struct caller *c, uint32_t i)
{
    assert(i < c->n_tenants);
    (void)c;
    (void)i;
    return (struct resp_arg){NULL, 0};
}

/* Asked by FT.* alone: SC.LIST, which would ask, is the module's own. */
static bool host_may_read(const struct caller *c, struct resp_arg key)
{
    return module_query_may_read((const struct module_call *)(const void *)c, key);
}

/* A client that is blocked sends nothing more. */
static void host_release(struct lane *lane, const struct fair_share *share)
{
    (void)lane;
    (void)share;
}

static struct module_lane *choose_lane(void);

/* Searches of FT.* that may take long are for threads, what is before and behind them for the main thread, which has
 * the documents. */
static struct lane *host_search_begins(struct caller *c)
{
    (void)c;
    if (module_the.n_threads == 0)
        return NULL;
    struct module_lane *lane = choose_lane();
    if (atomic_load(&lane->stopping)) /* its thread has ended, or is about to */
        return NULL;
    atomic_fetch_add(&lane->n_calls, 1);
    return &lane->lane;
}

static void host_search_ended(struct lane *lane)
{
    atomic_fetch_sub(&((struct module_lane *)(void *)lane)->n_calls, 1);
}

const struct host module_host = {.reply = host_reply,
                                 .defer = host_defer,
                                 .done = host_done,
                                 .wait_lsn = host_wait_lsn,
                                 .rest = host_rest,
                                 .slow = host_slow,
                                 .spent = host_spent,
                                 .tenant = host_tenant,
                                 .may_read = host_may_read,
                                 .release = host_release,
                                 .post = module_lane_post,
                                 .search_begins = host_search_begins,
                                 .search_ended = host_search_ended};

/* ---- key and store ----------------------------------------------------------------------------------------------- */

static bool failed(const struct module_call *call)
{
    return call->out.failed || (call->out.bytes > 0 && call->out.data[0] == '-');
}

static void reply_instead(struct module_call *call, const char *text)
{
    resp_buffer_fini(&call->out);
    call->out = (struct resp_buffer){.protocol = call->caller.protocol};
    resp_error(&call->out, "%s", text);
}

/* A command that could make the key: it has, or it has not. */
static void settle_new(struct rm_ctx *ctx, struct rm_string *key, struct module_call *call)
{
    struct module_item *item = call->item;
    struct quire_error err = {0};
    bool other = false;
    size_t n;
    if (!module_item_exists(item))
        return;
    if (module_item_of_key(ctx, key, &other) || other) {
        reply_instead(call, "BUSYKEY Target key name already exists: it was made meanwhile");
        return;
    }
    const char *bytes = rm.string_bytes(key, &n);
    module_item_place(item, rm.get_selected_db(ctx), bytes, n);
    if (module_item_log(item, &call->lsn, &err) < 0 || !module_type_put(ctx, key, item, true)) {
        log_line(&module_the.log, LOG_LEVEL_WARNING, "a key could not be made: %s", err.message);
        reply_instead(call, "MISCONF Errors writing to the log: the key was not made");
        return;
    }
    call->made = true;
    module_stream_image(item);
}

/* Makes the engine's key agree with the store after a write. */
static void settle_key(struct rm_ctx *ctx, struct rm_string *key, struct module_call *call)
{
    if (!call->item || !key || !(commands[call->row].flags & CMD_WRITE))
        return;
    if (call->is_new) {
        settle_new(ctx, key, call);
    } else if (module_command_may_end(call->row) && call->item->state == MODULE_LIVE &&
               !module_item_exists(call->item)) {
        module_item_end(call->item);
        module_type_remove(ctx, key, call->item);
    }
    if (call->lsn == 0 || failed(call))
        return;
    rm.signal_modified_key(ctx, key);
    rm.notify_keyspace_event(ctx, RM_NOTIFY_MODULE, commands[call->row].name, key);
}

/* What it did goes to replicas before its reply leaves. */
static void stream_write(struct rm_ctx *ctx, struct module_call *call)
{
    if (!module_stream_flush(ctx) && call->lsn > 0 && (commands[call->row].flags & CMD_WRITE))
        reply_instead(call,
                      "TRYAGAIN this node hands over its lead: whether the write is kept is known when that is done");
}

static void release_item(struct module_call *call)
{
    struct module_item *item = call->item;
    call->item = NULL;
    if (item && call->is_new && !call->made)
        module_item_give_up(item);
    else if (item)
        module_item_detach(item);
}

/* ---- the end of a command ---------------------------------------------------------------------------------------- */

static void free_call(struct module_call *call)
{
    assert(module_is_main_thread());
    release_item(call);
    if (call->key)
        rm.free_string(NULL, call->key);
    resp_buffer_fini(&call->out);
    free(call->block);
    free(call);
}

static void send_reply(struct rm_ctx *ctx, struct module_call *call)
{
    const char *own = NULL;
    size_t n = 0;
    if (call->key_bytes.data) {
        own = (const char *)call->key_bytes.data;
        n = call->key_bytes.bytes;
    }
    if (call->out.failed)
        rm.reply_error(ctx, "OOM no memory for the reply");
    else if (!module_reply_send(ctx, &call->out, call->item ? call->item->name : NULL, own, n))
        rm.reply_error(ctx, "ERR the reply is damaged: this is an error of the module");
}

/* In the reply callback of a client that waited for the main lane. */
static int on_reply(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct module_call *call = rm.get_blocked_data(ctx);
    (void)argv;
    (void)argc;
    if (!call->settled)
        settle_key(ctx, call->key, call);
    call->settled = true;
    stream_write(ctx, call);
    module_items_sync(); /* replies of this round leave next */
    send_reply(ctx, call);
    return RM_OK;
}

static void unlist(struct module_call *call)
{
    *(call->previous ? &call->previous->next : &blocked_calls) = call->next;
    if (call->next)
        call->next->previous = call->previous;
}

/* The last that happens to a blocked client, on the main thread; its client may be gone. */
static void on_release(struct rm_ctx *ctx, void *data)
{
    struct module_call *call = data;
    (void)ctx;
    unlist(call);
    if (call->gone_posted && !atomic_load(&call->gone_ran)) {
        call->next_held = told; /* the message to the lane lies in it */
        told = call;
        return;
    }
    if (!call->settled && call->item && (commands[call->row].flags & CMD_WRITE)) {
        call->next_held = orphans;
        orphans = call;
        return;
    }
    free_call(call);
}

void module_calls_tick(struct rm_ctx *ctx)
{
    while (orphans) {
        struct module_call *call = orphans;
        orphans = call->next_held;
        rm.select_db(ctx, call->db);
        settle_key(ctx, call->key, call);
        free_call(call);
    }
    for (struct module_call **at = &told, *call; (call = *at);) {
        if (!atomic_load(&call->gone_ran)) {
            at = &call->next_held;
            continue;
        }
        *at = call->next_held;
        free_call(call);
    }
}

static void note_gone(struct lane *lane, struct message *message)
{
    struct module_call *call = (struct module_call *)(void *)((char *)message - offsetof(struct module_call, gone));
    call->caller.gone = call->caller.leaving = true;
    call->caller.left_ms = lane->now_ms;
    atomic_store(&call->gone_ran, true);
}

/* Its client is gone: what it still waits for ends soon; a write ends as if it were there. */
static void on_disconnect(struct rm_ctx *ctx, struct rm_blocked *blocked)
{
    struct module_call *call = blocked_calls;
    (void)ctx;
    while (call && call->blocked != blocked)
        call = call->next;
    if (!call || (commands[call->row].flags & CMD_WRITE) || call->gone_posted)
        return;
    call->gone_posted = true;
    call->gone.run = note_gone;
    lane_post(&call->lane->lane, &call->gone);
}

static void hand_on(struct module_call *call)
{
    struct rm_blocked *blocked = call->blocked;
    atomic_fetch_sub(&call->lane->n_calls, 1);
    rm.measure_end(blocked);
    if (call->reply_ctx) {
        send_reply(call->reply_ctx, call);
        rm.free_thread_safe_context(call->reply_ctx);
        call->reply_ctx = NULL;
    }
    rm.unblock_client(blocked, call);
}

static bool must_wait(const struct module_call *call, uint64_t now_us)
{
    const struct journal *journal = module_the.service.journal;
    return (call->lsn && journal_durable_lsn(journal) < call->lsn) || call->held_until_us > now_us ||
           (call->lsn && module_stream_runs() && module_stream_is_held());
}

static void hold(struct module_call *call)
{
    struct module_lane *lane = call->lane;
    assert(call->blocked);
    call->next_held = lane->held;
    lane->held = call;
}

void module_call_release(struct module_lane *lane, bool all)
{
    uint64_t now_us = lane->lane.now_us, until_us = UINT64_MAX;
    for (struct module_call **at = &lane->held, *call; (call = *at);) {
        if (!all && must_wait(call, now_us)) {
            if (call->held_until_us > now_us && call->held_until_us < until_us)
                until_us = call->held_until_us;
            at = &call->next_held;
            continue;
        }
        *at = call->next_held;
        hand_on(call);
    }
    if (until_us != UINT64_MAX)
        module_lane_wake_in(lane, until_us - now_us);
}

/* The reply is there. While the handler is being run, who runs it hands it on: afterwards another thread may have freed
 * the call. */
static void finish(struct module_call *call)
{
    if (call->runs)
        return;
    assert(call->blocked && call->done);
    if (call->slow_us)
        call->held_until_us = clock_us() + call->slow_us;
    if (call->lane == &module_the.lanes[0] && must_wait(call, call->caller.lane->now_us))
        hold(call);
    else
        hand_on(call);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

static void run_handler(struct module_call *call, command_fn *run)
{
    struct lane *lane = &call->lane->lane;
    call->runs = true;
    lane_enter(lane);
    run(&call->caller, call->args, call->n_args);
    lane_leave(lane);
    call->runs = false;
    if (!call->waits)
        call->done = true;
}

static void run_search(struct lane *lane, struct message *message)
{
    struct module_call *call = (struct module_call *)(void *)((char *)message - offsetof(struct module_call, message));
    (void)lane;
    run_handler(call, commands[call->row].run);
    if (call->done)
        finish(call);
}

/* The lane with the fewest calls. */
static struct module_lane *choose_lane(void)
{
    unsigned n = module_the.n_threads, first = module_the.next_thread++ % n;
    struct module_lane *best = NULL;
    unsigned least = UINT32_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct module_lane *m = &module_the.lanes[1 + (first + i) % n];
        unsigned calls = atomic_load_explicit(&m->n_calls, memory_order_relaxed);
        if (calls < least) {
            least = calls;
            best = m;
        }
    }
    return best;
}

/* Copies the arguments. False: no memory. */
static bool keep_args(struct module_call *call)
{
    size_t bytes = call->n_args * sizeof *call->args;
    for (uint32_t i = 0; i < call->n_args; i++)
        bytes += call->args[i].bytes;
    call->block = malloc(bytes + 1);
    if (!call->block)
        return false;
    struct resp_arg *args = (struct resp_arg *)(void *)call->block;
    char *to = call->block + call->n_args * sizeof *args;
    for (uint32_t i = 0; i < call->n_args; i++) {
        memcpy(to, call->args[i].data, call->args[i].bytes);
        args[i] = (struct resp_arg){(uint8_t *)to, call->args[i].bytes};
        to += call->args[i].bytes;
    }
    call->args = args;
    return true;
}

static void block(struct rm_ctx *ctx, struct module_call *call, struct rm_string *key)
{
    if (key) {
        rm.retain_string(NULL, key);
        call->key = key;
        size_t n;
        const char *bytes = rm.string_bytes(key, &n);
        call->key_bytes = (struct resp_arg){(const uint8_t *)bytes, (uint32_t)n};
    }
    call->blocked = rm.block_client(ctx, call->reply_on_lane ? NULL : on_reply, NULL, on_release, 0);
    rm.set_disconnect_callback(call->blocked, on_disconnect);
    rm.measure_begin(call->blocked);
    atomic_fetch_add(&call->lane->n_calls, 1);
    call->next = blocked_calls;
    if (call->next)
        call->next->previous = call;
    blocked_calls = call;
}

static int start_search(struct rm_ctx *ctx, struct module_call *call, struct rm_string *key)
{
    call->lane = choose_lane();
    call->caller.lane = &call->lane->lane;
    if (!keep_args(call)) {
        free_call(call);
        return rm.reply_error(ctx, "OOM no memory for a search");
    }
    call->reply_on_lane = true;
    block(ctx, call, key);
    call->reply_ctx = rm.get_thread_safe_context(call->blocked);
    call->message.run = run_search;
    lane_post(&call->lane->lane, &call->message);
    return RM_OK;
}

/* ---- from the engine --------------------------------------------------------------------------------------------- */

static bool take_args(struct rm_string **argv, int argc)
{
    if (!array_reserve(&scratch.items, &scratch.capacity, (size_t)argc + ARGS_ON_HAND))
        return false;
    for (int i = 0; i < argc; i++) {
        size_t n;
        const char *bytes = rm.string_bytes(argv[i], &n);
        scratch.items[i] = (struct resp_arg){(const uint8_t *)bytes, (uint32_t)n};
    }
    return true;
}

static void note_user(struct rm_ctx *ctx, struct module_call *call)
{
    struct rm_string *name = rm.get_current_user_name(ctx);
    size_t n = 0;
    const char *bytes = name ? rm.string_bytes(name, &n) : "";
    n = n < sizeof call->user ? n : sizeof call->user;
    memcpy(call->user, bytes, n);
    call->caller.user = call->user;
    call->caller.user_bytes = (uint32_t)n;
    if (name)
        rm.free_string(ctx, name);
}

/* Whether it is about data that is in the store alone. */
static bool is_of_store(const struct command *row)
{
    unsigned at = (unsigned)(row - commands);
    return !module_command_is_query(at) && !module_command_is_json(at);
}

/* Why a command cannot run now; NULL: it can. */
static const char *refusal(const struct command *row, bool may_wait)
{
    if (!module_the.open)
        return "ERR quire has no data folder open: see the engine's log";
    if (!module_the.loaded &&
        !module_command_is_json(
            (unsigned)(row - commands))) /* the first timer is to come, some milliseconds from now */
        return "LOADING quire is about to give keys their data: try again";
    if (!may_wait && (row->flags & CMD_NO_MULTI))
        return "ERR this command takes long: it is not for transactions and scripts";
    if ((row->flags & CMD_WRITE) && is_of_store(row) && module_the.is_replica)
        return "READONLY You can't write against a read only replica: write to its primary.";
    return NULL;
}

/* The item that the key names, or a new one for a command that may make it. False after a reply. */
static bool take_item(struct rm_ctx *ctx, struct module_call *call, struct rm_string *key, struct resp_arg *arg)
{
    enum module_kind kind = module_command_kind(call->row);
    struct quire_error err = {0};
    bool other = false;
    struct module_item *item = module_item_of_key(ctx, key, &other);
    if (other || (item && item->kind != kind)) {
        rm.reply_error(ctx, "WRONGTYPE Operation against a key holding the wrong kind of value");
        return false;
    }
    char text[MODULE_TEXT_BYTES];
    if (item && module_copies_refuse(item, text)) {
        rm.reply_error(ctx, text);
        return false;
    }
    if (item && item->state == MODULE_ABSENT) {
        rm.reply_error(ctx,
                       "ERR the data of this key is not in quire.dir of this node: restore that folder, or DEL the "
                       "key");
        return false;
    }
    if (item && item->state == MODULE_ENDED) { /* its key goes with the next write to it */
        if (!module_the.is_replica)
            module_type_remove(ctx, key, item);
        item = NULL;
    }
    if (!item && module_command_makes(call->row)) {
        item = module_item_create(NULL, kind, &err);
        if (!item) {
            rm.reply_error(ctx, "OOM no memory for a key");
            return false;
        }
        call->is_new = true;
    }
    call->item = item;
    if (item) {
        module_item_hold(item);
        call->key_bytes = *arg;
        *arg = (struct resp_arg){(const uint8_t *)item->name, MODULE_NAME_BYTES};
    } else if (module_item_is_name(arg->data, arg->bytes)) {
        *arg = (struct resp_arg){(const uint8_t *)"(reserved)", 10}; /* a name in the store is no key */
    }
    return true;
}

/* The handler, on the main thread. */
static void begin_here(struct module_call *call, bool may_wait)
{
    struct lane *lane = &call->lane->lane;
    lane->now_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    lane->turn++;
    run_handler(call, commands[call->row].run);
    if (!may_wait && !call->done) {
        call->runs = true; /* the reply is handed on here */
        module_lane_run(call->lane, &call->done);
    }
}

static int end_here(struct rm_ctx *ctx, struct module_call *call, struct rm_string *key, bool may_wait)
{
    struct quire_error err = {0};
    const struct lane *lane = &call->lane->lane;
    if (call->done) {
        settle_key(ctx, key, call);
        stream_write(ctx, call);
        call->settled = true;
        if (call->slow_us)
            call->held_until_us = lane->now_us + call->slow_us;
    }
    if (!may_wait && call->lsn && journal_wait(module_the.service.journal, call->lsn, &err) < 0)
        reply_instead(call, "MISCONF Errors writing to the log: what was written may not be on the disk yet");
    if (may_wait && (!call->done || must_wait(call, lane->now_us))) {
        block(ctx, call, key);
        if (call->done)
            hold(call);
        return RM_OK;
    }
    send_reply(ctx, call);
    free_call(call);
    return RM_OK;
}

static int run_query(struct rm_ctx *ctx, struct module_call *call, struct rm_string **argv, int argc)
{
    bool may_wait = !call->caller.whole;
    module_query_enter(ctx, call);
    begin_here(call, may_wait);
    module_query_leave(ctx, call, argv, argc);
    return end_here(ctx, call, NULL, may_wait);
}

int module_call_run(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    int flags = rm.get_context_flags(ctx);
    bool may_wait = !(flags & (RM_FLAG_LUA | RM_FLAG_MULTI | RM_FLAG_DENY_BLOCKING | RM_FLAG_REPLICATED));
    uint32_t n = (uint32_t)argc;
    if (!take_args(argv, argc))
        return rm.reply_error(ctx, "OOM no memory for the arguments");
    int row = module_command_find(scratch.items, n);
    if (row < 0 || !commands[row].run)
        return rm.reply_error(ctx, "ERR unknown subcommand. Try HELP.");
    if (!command_arity_fits(&commands[row], n))
        return rm.wrong_arity(ctx);
    const char *refused = refusal(&commands[row], may_wait);
    if (!refused && module_command_is_query((unsigned)row))
        refused = module_query_refusal(ctx, (unsigned)row);
    if (refused) {
        module_the.n_refused++;
        return rm.reply_error(ctx, refused);
    }
    struct module_call *call = calloc(1, sizeof *call);
    if (!call)
        return rm.reply_error(ctx, "OOM no memory for a command");
    call->lane = may_wait ? &module_the.lanes[0] : &module_the.lanes[module_the.service.n_lanes - 1];
    call->row = (unsigned)row;
    call->args = scratch.items;
    call->n_args = n;
    call->db = rm.get_selected_db(ctx);
    call->caller = (struct caller){.lane = &call->lane->lane,
                                   .id = rm.get_client_id(ctx),
                                   .protocol = flags & RM_FLAG_RESP3 ? 3 : 2,
                                   .user = "default",
                                   .user_bytes = 7,
                                   .command = commands[row].name,
                                   .whole = !may_wait};
    int at = commands[row].first_key;
    if (module_command_is_query((unsigned)row))
        return run_query(ctx, call, argv, argc);
    if (module_command_is_json((unsigned)row)) {
        module_json_run(ctx, call, argv, argc);
        return end_here(ctx, call, NULL, may_wait);
    }
    struct rm_string *key = at > 0 ? argv[at] : NULL;
    if (key && !take_item(ctx, call, key, &scratch.items[at])) {
        free_call(call);
        return RM_OK;
    }
    bool search = module_command_is_search((unsigned)row, call->args, n);
    if (search)
        note_user(ctx, call);
    if (search && may_wait && module_the.n_threads > 0)
        return start_search(ctx, call, key);
    begin_here(call, may_wait);
    return end_here(ctx, call, key, may_wait);
}

void module_calls_fini(void)
{
    free(scratch.items);
    scratch.items = NULL;
    scratch.capacity = 0;
}
