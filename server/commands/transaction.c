/*
 * transaction.c - the queue between MULTI and EXEC, watched keys, and EXEC.
 *
 * EXEC in order:
 *   1. what the disk must say. A write to an element that a sealed segment may hold needs it, and the gate is never
 *      held over a read: so these writes are found (the commands are run with replies thrown away and vector_write.c
 *      only noting what it is asked) and looked up first (vector_plan.h). So are the values of hashes that only indexes
 *      have (call/key_values.h);
 *   2. the gate is closed: no other lane runs requests. Watched keys are compared;
 *   3. a batch of the journal is opened. From here to its end no segments are exchanged, which the store does only
 *      while no batch is open. If some were exchanged before, and what the disk said is no longer true, the batch is
 *      ended empty, the gate opened, and all begins again with 1;
 *   4. the commands are run, in order, each as if alone; the batch is ended, the gate opened.
 * So all writes are one frame, which is durable as a whole or not at all, and nobody sees one of them without the
 * others. As in Redis a command that fails does not undo those before it.
 *
 * Until the end of step 4 nobody else gets to keys and sets, on any lane. But lanes are not held up: where there are
 * many commands, every SERVE_EVERY_US the gate is called shut (keys/gate.h), so that other lanes do not wait at it, and
 * this one takes a short turn (loop_serve_others): bytes come and go, and PING and its like are answered. Requests that
 * need more wait in their buffers for the gate to open; completions that would change keys wait for a slice. So such an
 * EXEC runs in a slice itself, where no completion and no client is in the middle of something.
 *
 * Writes are bounded by the commands and the bytes that may be queued, and all of them are made. What only reads may
 * take much longer than its request is long: after READS_MS no further one is run, each answers an error, and none is
 * run for a client that is being closed.
 *
 * Replies go to a group (client.h) while commands run, so handlers need not know. Those that read the disk are started
 * in step 4 and end later; EXEC's reply leaves when all have. Behind EXEC nothing of the client runs before that.
 *
 * A watched key counts as changed where its version is another than at WATCH; no key has version 0. A key that was not
 * there then and is not there now is unchanged, even if it was made and removed in between.
 */
#include "server/commands/transaction.h"
#include "io/journal.h"
#include "server/access/command_table.h"
#include "server/call/key_values.h"
#include "server/call/slice.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/command.h"
#include "server/keys/gate.h"
#include "server/keys/keyspace.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    READS_MS = 1000,
    FEW_COMMANDS = 64, /* are run at once, unless they have more than FEW_BYTES */
    FEW_BYTES = 65536,
    SERVE_EVERY_US = 500 /* others, between the commands of longer ones */
};

struct queued {
    struct queued *next;
    unsigned row;
    uint32_t n;
    size_t bytes;           /* of this */
    struct resp_arg args[]; /* into the bytes behind them */
};

struct watched {
    struct watched *next;  /* of all */
    struct watched *chain; /* of its bucket */
    uint64_t version, hash;
    uint32_t bytes;
    uint8_t key[];
};

struct transaction {
    bool open, tainted;
    struct queued *first, *last;
    uint32_t n;
    unsigned flags; /* of all queued commands together */
    bool asks_disk; /* one of them has CMD_ASKS_DISK */
    uint64_t bytes; /* held by queue and watched keys */
    struct watched *watched;
    struct watched **buckets; /* of watched, by hash; n_buckets of them, a power of two; owned */
    uint32_t n_watched, n_buckets;
};

/* ---- a client's ---------------------------------------------------------------------------------------------------*/

static struct transaction *begin(struct client *c)
{
    if (!c->transaction)
        c->transaction = calloc(1, sizeof *c->transaction);
    if (!c->transaction)
        caller_error(&c->caller, "OOM no memory for a transaction");
    return c->transaction;
}

static void free_queue(struct client *c, struct transaction *t)
{
    for (struct queued *q = t->first, *next; q; q = next) {
        next = q->next;
        client_memory_give(c, q->bytes);
        t->bytes -= q->bytes;
        free(q);
    }
    t->first = t->last = NULL;
    t->n = 0;
}

static void transaction_free(struct client *c, struct transaction *t)
{
    if (!t)
        return;
    free_queue(c, t);
    for (struct watched *w = t->watched, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    client_memory_give(c, t->bytes);
    free(t->buckets);
    free(t);
}

void transaction_forget(struct client *c)
{
    transaction_free(c, c->transaction);
    c->transaction = NULL;
}

bool transaction_is_open(const struct client *c)
{
    return c->transaction && c->transaction->open;
}

long transaction_queued(const struct client *c)
{
    return transaction_is_open(c) ? (long)c->transaction->n : -1;
}

/* Whether that many more bytes may be held, after an error reply where not. */
static bool has_room(struct client *c, uint64_t bytes)
{
    uint64_t most = c->loop->server->service.config->query_buffer_max;
    if (c->transaction->bytes + bytes <= most) {
        if (!client_memory_take(c, bytes))
            return false; /* it will be closed */
        c->transaction->bytes += bytes;
        return true;
    }
    caller_error(&c->caller,
                 "ERR the transaction is larger than client-query-buffer-limit (%llu bytes): make smaller ones",
                 (unsigned long long)most);
    return false;
}

/* Whether one command more may be queued, after an error reply where not. */
static bool may_have_another(struct client *c)
{
    uint64_t most = c->loop->server->service.config->transaction_commands_max;
    if (c->transaction->n < most)
        return true;
    caller_error(&c->caller,
                 "ERR a transaction of %llu commands: transaction-commands-limit is %llu, for others wait for keys and "
                 "sets while EXEC runs them; make smaller ones or raise it with CONFIG SET",
                 (unsigned long long)c->transaction->n + 1, (unsigned long long)most);
    return false;
}

/* ---- queueing -----------------------------------------------------------------------------------------------------*/

bool transaction_takes(const struct client *c, unsigned row)
{
    static command_fn *const at_once[] = {transaction_multi, transaction_exec, transaction_discard,
                                          transaction_watch, cmd_quit,         cmd_reset};
    if (!transaction_is_open(c))
        return false;
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++)
        if (commands[row].run == at_once[i])
            return false;
    return true;
}

bool transaction_would_write(const struct client *c, unsigned row)
{
    return commands[row].run == transaction_exec && (c->transaction->flags & CMD_WRITE);
}

/* No request is kept any more that will not be run. */
static void taint(struct client *c)
{
    c->transaction->tainted = true;
    free_queue(c, c->transaction);
}

void transaction_queue(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    struct transaction *t = c->transaction;
    uint64_t bytes = sizeof(struct queued) + (uint64_t)n * sizeof *args;
    assert(transaction_takes(c, row) && (!t->tainted || t->n == 0));
    for (uint32_t i = 0; i < n; i++)
        bytes += args[i].bytes;
    if (commands[row].flags & CMD_NO_MULTI) {
        caller_error(&c->caller, "ERR Command not allowed inside a transaction");
        taint(c);
        return;
    }
    if (t->tainted) {
        resp_simple(client_reply(c), "QUEUED");
        return;
    }
    if (!may_have_another(c) || !has_room(c, bytes)) {
        taint(c);
        return;
    }
    struct queued *q = malloc(bytes);
    if (!q) {
        client_memory_give(c, bytes);
        t->bytes -= bytes;
        caller_error(&c->caller, "OOM no memory to queue a command");
        taint(c);
        return;
    }
    uint8_t *to = (uint8_t *)&q->args[n];
    q->next = NULL;
    q->row = row;
    q->n = n;
    q->bytes = bytes;
    for (uint32_t i = 0; i < n; i++) {
        q->args[i] = (struct resp_arg){to, args[i].bytes};
        if (args[i].bytes > 0)
            memcpy(to, args[i].data, args[i].bytes);
        to += args[i].bytes;
    }
    if (t->last)
        t->last->next = q;
    else
        t->first = q;
    t->last = q;
    t->n++;
    t->flags |= commands[row].flags;
    t->asks_disk |= (commands[row].flags & CMD_ASKS_DISK) != 0;
    resp_simple(client_reply(c), "QUEUED");
}

/* The text of an error reply without what frames it; the group is empty afterwards. */
static void take_refusal(struct client *c, struct reply_group *refusal, char *text, size_t bytes)
{
    struct resp_buffer out = {.protocol = c->caller.protocol};
    client_group_take(c, refusal, &out);
    size_t length = out.bytes > 3 ? out.bytes - 3 : 0; /* "-", CR, LF */
    length = length < bytes ? length : bytes - 1;
    if (length > 0)
        memcpy(text, out.data + 1, length);
    text[length] = 0;
    resp_buffer_fini(&out);
}

void transaction_refused(struct client *c, int row, struct reply_group *refusal)
{
    char text[1024];
    assert(transaction_is_open(c) && !c->group);
    if (row >= 0 && commands[row].run == transaction_exec) {
        take_refusal(c, refusal, text, sizeof text);
        transaction_forget(c);
        caller_error(&c->caller, "EXECABORT Transaction discarded because of: %s",
                     strncmp(text, "ERR ", 4) == 0 ? text + 4 : text);
        return;
    }
    client_group_take(c, refusal, client_reply(c));
    taint(c);
}

/* ---- commands but EXEC --------------------------------------------------------------------------------------------*/

void transaction_multi(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    if (transaction_is_open(c)) {
        caller_error(&c->caller, "ERR MULTI calls can not be nested");
        return;
    }
    if (!begin(c))
        return;
    c->transaction->open = true;
    resp_simple(client_reply(c), "OK");
}

void transaction_discard(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    if (!transaction_is_open(c)) {
        caller_error(&c->caller, "ERR DISCARD without MULTI");
        return;
    }
    transaction_forget(c);
    resp_simple(client_reply(c), "OK");
}

static bool is_watched(const struct transaction *t, struct resp_arg key, uint64_t hash)
{
    for (const struct watched *w = t->n_buckets ? t->buckets[hash & (t->n_buckets - 1)] : NULL; w; w = w->chain)
        if (w->hash == hash && w->bytes == key.bytes && memcmp(w->key, key.data, key.bytes) == 0)
            return true;
    return false;
}

static void put_in_bucket(struct transaction *t, struct watched *w)
{
    struct watched **bucket = &t->buckets[w->hash & (t->n_buckets - 1)];
    w->chain = *bucket;
    *bucket = w;
}

/* Room for one more, at least a bucket for each; false without memory. */
static bool grow_buckets(struct transaction *t)
{
    uint32_t n = t->n_buckets ? 2 * t->n_buckets : 8;
    if (t->n_watched < t->n_buckets)
        return true;
    struct watched **more = calloc(n, sizeof(struct watched *));
    if (!more)
        return false;
    free(t->buckets);
    t->buckets = more;
    t->n_buckets = n;
    for (struct watched *w = t->watched; w; w = w->next)
        put_in_bucket(t, w);
    return true;
}

/* As in Redis a key that is watched already keeps the version it had then. */
static bool watch(struct client *c, struct resp_arg key)
{
    struct transaction *t = c->transaction;
    bool vectors;
    uint64_t hash = keyspace_key(&c->loop->server->service.keyspace, key).hash;
    if (is_watched(t, key, hash))
        return true;
    if (!has_room(c, sizeof(struct watched) + sizeof(struct watched *) * 2 + key.bytes))
        return false;
    struct watched *w = grow_buckets(t) ? malloc(sizeof *w + key.bytes) : NULL;
    if (!w) {
        caller_error(&c->caller, "OOM no memory to watch a key");
        return false;
    }
    w->version = keyspace_version(&c->loop->server->service.keyspace, key, &vectors);
    if (vectors && c->caller.n_tenants > 0) {
        /* the version of a set tells what others write to it */
        free(w);
        resp_error(client_reply(c),
                   "NOPERM this user is bound to tenants: WATCH of a vector set would show what others write");
        return false;
    }
    w->bytes = key.bytes;
    if (key.bytes > 0)
        memcpy(w->key, key.data, key.bytes);
    w->hash = hash;
    w->next = t->watched;
    t->watched = w;
    t->n_watched++;
    put_in_bucket(t, w);
    return true;
}

void transaction_watch(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    if (transaction_is_open(c)) {
        caller_error(&c->caller, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    if (!begin(c))
        return;
    for (uint32_t i = 1; i < n; i++)
        if (!watch(c, args[i]))
            return;
    resp_simple(client_reply(c), "OK");
}

/* In a transaction it comes too late to change anything: the keys have been compared. */
void transaction_unwatch(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    if (!transaction_is_open(c))
        transaction_forget(c);
    resp_simple(client_reply(c), "OK");
}

/* ---- EXEC ---------------------------------------------------------------------------------------------------------*/

struct exec_call {
    struct pending pending;
    struct slice slice; /* in which a longer one is run */
    struct loop *loop;
    struct transaction *transaction; /* owned */
    struct vector_plan *plan;        /* NULL: no writes to vector sets; owned */
    struct values_wait wait;         /* for values of hashes, which the lane holds meanwhile */
    const struct queued *bring_from; /* those before were asked for; NULL: all */
    struct reply_group group;
};

enum { VALUES_AT_ONCE = 256 };

static const struct planner *planner_of(const struct exec_call *x)
{
    return x->loop->server->planner;
}

static bool watched_have_changed(struct exec_call *x)
{
    for (const struct watched *w = x->transaction->watched; w; w = w->next) {
        struct resp_arg key = {w->key, w->bytes};
        if (keyspace_version(&x->loop->server->service.keyspace, key, NULL) != w->version)
            return true;
    }
    return false;
}

static void end(struct exec_call *x)
{
    assert(!x->group.first && x->wait.n == 0);
    key_values_release(&x->loop->lane);
    planner_of(x)->destroy(x->plan);
    transaction_free(client_of(x->pending.caller), x->transaction);
    caller_done(&x->pending);
}

/* All replies are there. */
static void on_replies(struct reply_group *group)
{
    struct exec_call *x = (struct exec_call *)(void *)((char *)group - offsetof(struct exec_call, group));
    struct resp_buffer *out = &x->pending.out;
    assert(group->n_waiting == 0 && !x->pending.ready);
    resp_array(out, x->transaction->n);
    client_group_take(client_of(x->pending.caller), group, out);
    end(x);
}

/* Whether the user still may, after the error reply where not. */
static bool is_permitted(struct client *c, const struct queued *q)
{
    struct reply_group refusal = {.first = NULL}, *outer = c->group;
    char text[512];
    if (client_is_free(c))
        return true;
    c->group = &refusal;
    bool permitted = client_permits(c, q->row, q->args, q->n);
    c->group = outer;
    if (permitted)
        return true;
    take_refusal(c, &refusal, text, sizeof text);
    caller_error(&c->caller,
                 "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This "
                 "command is no longer allowed for the following reason: %s",
                 strncmp(text, "NOPERM ", 7) == 0 ? text + 7 : text);
    return false;
}

/* Whether the command may be run, for it writes, or there is time; after an error reply where not. */
static bool is_in_time(struct client *c, const struct queued *q, uint64_t began_us)
{
    const struct command *command = &commands[q->row];
    if (command->flags & CMD_WRITE)
        return true;
    if (c->state == CLIENT_DEAD || c->excess != EXCESS_NONE)
        return false;
    if (clock_us() - began_us < READS_MS * 1000)
        return true;
    caller_error(
        &c->caller,
        "ERR EXEC took more than %u ms, in which others wait for keys and sets: this command was not run, those "
        "that write were; make smaller transactions",
        READS_MS);
    return false;
}

static bool is_long(const struct exec_call *x)
{
    return x->transaction->n > FEW_COMMANDS || x->transaction->bytes > FEW_BYTES;
}

/* What its client runs is the transaction's from here on. */
static void begin_commands(struct exec_call *x, struct client *c)
{
    assert(c->blocked && !c->group && !c->caller.plan);
    c->group = &x->group;
    c->caller.plan = x->plan;
    c->caller.whole = true;
    command_begin_timing(x->loop); /* what the disk took is EXEC's */
}

static void end_commands(struct exec_call *x, struct client *c)
{
    c->row = x->pending.row;
    c->caller.whole = false;
    c->caller.plan = NULL;
    c->group = NULL;
    command_end_timing(x->loop);
}

/* Between two commands: no lock is held but the gate. */
static void serve_others(struct exec_call *x, struct client *c)
{
    end_commands(x, c);
    gate_shut(&x->loop->lane.service->gate);
    loop_serve_others(x->loop);
    begin_commands(x, c);
}

static void run_commands(struct exec_call *x)
{
    struct client *c = client_of(x->pending.caller);
    uint64_t began_us = clock_us(), served_us = began_us;
    begin_commands(x, c);
    for (const struct queued *q = x->transaction->first; q; q = q->next) {
        if (is_long(x) && clock_us() - served_us >= SERVE_EVERY_US) {
            serve_others(x, c);
            served_us = clock_us();
        }
        c->row = q->row;
        if (is_in_time(c, q, began_us) && is_permitted(c, q))
            command_call(c, q->row, q->args, q->n);
    }
    end_commands(x, c);
}

/* Whether a command needs the values of its keys; those that write only where several indexes follow them. */
static bool needs_values(const struct exec_call *x, const struct queued *q)
{
    unsigned flags = commands[q->row].flags;
    const struct documents *documents = x->loop->server->service.documents;
    if (!(flags & CMD_VALUES) || !documents_have_vectors(documents))
        return false;
    return !(flags & CMD_WRITE) || (flags & CMD_READS_TOO) || documents_count((struct documents *)documents) > 1;
}

/* Brings the values of a command's keys, or only looks whether they are there; false: some are not. */
static bool look_at_values(struct exec_call *x, const struct queued *q, bool brings)
{
    struct command_keys keys = command_keys(&commands[q->row], q->n);
    struct keyspace *k = &x->loop->server->service.keyspace;
    bool there = true;
    for (uint32_t i = 0; i < keys.n && needs_values(x, q); i++) {
        struct key key = keyspace_key(k, q->args[keys.first + i * keys.step]);
        struct keyspace_lock lock;
        keyspace_lock_key(&lock, k, &key);
        struct key_entry *e = keyspace_find(&lock, &key);
        bool missing = e && e->type == KEY_HASH && hash_n_missing(e->hash) > 0;
        there = there && (!missing || (brings && key_values_bring(&x->wait, &lock, e, NULL, 0)));
        keyspace_unlock(&lock);
    }
    return there;
}

/* Whether none is waited for. */
static bool bring_values(struct exec_call *x)
{
    if (!x->bring_from)
        x->bring_from = x->transaction->first;
    lane_enter(&x->loop->lane);
    while (x->bring_from && x->wait.n < VALUES_AT_ONCE && x->wait.code == 0) {
        look_at_values(x, x->bring_from, true);
        x->bring_from = x->bring_from->next;
    }
    lane_leave(&x->loop->lane);
    return x->wait.n == 0;
}

static bool values_are_there(struct exec_call *x)
{
    bool there = true;
    for (const struct queued *q = x->transaction->first; q && there; q = q->next)
        there = look_at_values(x, q, false);
    return there;
}

enum outcome { RAN, REFUSED, AGAIN };

/* Inside the gate, alone. */
static enum outcome run_in_batch(struct exec_call *x)
{
    struct server *server = x->loop->server;
    struct resp_buffer *out = &x->pending.out;
    struct quire_error err = {0};
    bool logs = server->service.journal && (x->transaction->flags & CMD_WRITE);
    assert(x->loop->lane.gate_depth > 0 && (!logs || !journal_in_batch(server->service.journal)));
    if (watched_have_changed(x)) {
        resp_null_array(out);
        return REFUSED;
    }
    if (logs && journal_batch_begin(server->service.journal, &err) < 0) {
        resp_error(out, "EXECABORT Transaction discarded because of: MISCONF Errors writing to the log: %s",
                   err.message);
        return REFUSED;
    }
    bool ready = (!x->plan || planner_of(x)->is_ready(x->plan)) && values_are_there(x);
    if (ready)
        run_commands(x);
    if (logs)
        journal_batch_end(server->service.journal, &x->pending.lsn, &err);
    assert(!logs || !journal_in_batch(server->service.journal));
    return ready ? RAN : AGAIN;
}

/* Whether all is there that the commands need of the disk; false also where it cannot be, and the call has ended. */
static bool prepare(struct exec_call *x)
{
    struct quire_error err = {0};
    if (!bring_values(x))
        return false;
    if (x->wait.code < 0) {
        resp_error(&x->pending.out, "EXECABORT Transaction discarded because of: a vector could not be read: %s",
                   x->wait.error.message);
        end(x);
        return false;
    }
    if (x->plan && !planner_of(x)->ask(x->plan))
        return false;
    if (x->plan && planner_of(x)->failed(x->plan, &err)) {
        resp_error(&x->pending.out, "EXECABORT Transaction discarded because of: %s", err.message);
        end(x);
        return false;
    }
    return true;
}

/* Goes on until the disk must be waited for, or to the end. In a slice where others are to be served in between: so no
 * completion and no other client is being worked on. */
static void run(struct slice *slice)
{
    struct exec_call *x = (struct exec_call *)(void *)((char *)slice - offsetof(struct exec_call, slice));
    struct lane *lane = &x->loop->lane;
    enum outcome outcome = AGAIN;
    assert(!lane_is_shut(lane));
    while (outcome == AGAIN) {
        if (!prepare(x))
            return;
        lane_enter(lane);
        gate_close(&lane->service->gate, lane->index);
        outcome = run_in_batch(x);
        bool was_shut = gate_open(&lane->service->gate, lane->index);
        lane_leave(lane);
        if (was_shut)
            loop_gate_opened(x->loop->server);
    }
    if (outcome == REFUSED)
        end(x);
    else
        client_group_done(&x->group);
}

static void go_on(void *context)
{
    struct exec_call *x = context;
    struct lane *lane = &x->loop->lane;
    x->slice = (struct slice){.run = run, .caller = x->pending.caller};
    if (is_long(x) || lane_is_shut(lane))
        slice_post(lane, &x->slice);
    else
        run(&x->slice);
}

/* Has the writes to vector sets noted, without replies. */
static struct vector_plan *make_plan(struct exec_call *x)
{
    struct client *c = client_of(x->pending.caller);
    const struct planner *planner = planner_of(x);
    struct reply_group nobody = {.first = NULL};
    struct vector_plan *plan = planner->create(&x->loop->lane, x->pending.out.account, go_on, x);
    if (!plan)
        return NULL;
    assert(!c->group && !c->caller.plan);
    c->group = &nobody;
    c->caller.plan = plan;
    for (const struct queued *q = x->transaction->first; q; q = q->next) {
        const struct command *command = &commands[q->row];
        if (command->flags & CMD_ASKS_DISK)
            command->run(&c->caller, q->args, q->n);
        else if (command->flags & CMD_RENAMES)
            planner->note_rename(plan, q->args[1]);
    }
    c->caller.plan = NULL;
    c->group = NULL;
    struct resp_buffer out = {.protocol = c->caller.protocol};
    client_group_take(c, &nobody, &out);
    resp_buffer_fini(&out);
    return plan;
}

static void on_values(struct values_wait *wait)
{
    go_on((struct exec_call *)(void *)((char *)wait - offsetof(struct exec_call, wait)));
}

void transaction_exec(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct transaction *t = c->transaction;
    struct reply_group refusal = {.first = NULL};
    (void)args;
    (void)n;
    if (!transaction_is_open(c)) {
        caller_error(&c->caller, "ERR EXEC without MULTI");
        return;
    }
    if (t->tainted) {
        transaction_forget(c);
        caller_error(&c->caller, "EXECABORT Transaction discarded because of previous errors.");
        return;
    }
    c->group = &refusal;
    bool refused = (t->flags & CMD_WRITE) && command_refuses_write(c, t->flags);
    c->group = NULL;
    if (refused) {
        transaction_refused(c, (int)c->row, &refusal);
        return;
    }
    c->transaction = NULL;
    struct exec_call *x = caller_defer(caller, sizeof *x, true);
    if (!x) {
        transaction_free(c, t);
        return;
    }
    x->loop = c->loop;
    x->transaction = t;
    x->group = (struct reply_group){.n_waiting = 1, .done = on_replies};
    x->wait = (struct values_wait){.lane = &c->loop->lane, .come = on_values};
    key_values_hold(&c->loop->lane);
    if (t->asks_disk && c->loop->server->service.store && !(x->plan = make_plan(x))) {
        resp_error(&x->pending.out, "EXECABORT Transaction discarded because of: OOM no memory for its plan");
        end(x);
        return;
    }
    go_on(x);
}
