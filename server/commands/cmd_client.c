/*
 * cmd_client.c - CLIENT LIST, INFO, KILL, PAUSE, UNPAUSE, REPLY, NO-EVICT, NO-TOUCH, TRACKING: clients as an operator
 * sees them.
 *
 * Clients live on lanes, so LIST and KILL ask every lane (gather.h); each looks at its own with the same filter. PAUSE
 * is a moment in time that all lanes look at before they run a request: what must wait stays in its client's buffer,
 * and its socket fills, as when a lane is crowded.
 */
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/command.h"
#include "server/commands/transaction.h"
#include "server/net/gather.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a client as a line ------------------------------------------------------------------------------------------ */

static void put_client(struct resp_buffer *out, const struct client *c)
{
    char line[2048], theirs[CLIENT_ADDRESS_BYTES], ours[CLIENT_ADDRESS_BYTES], flags[16] = "";
    size_t n_flags = 0;
    uint64_t now = c->loop->lane.now_ms, in = client_backlog_bytes(c);
    uint64_t held = client_unsent_bytes(c), memory = sizeof *c + client_memory_bytes(c);
    uint64_t queued = c->requests.held - c->in.capacity;
    client_address(c, false, theirs);
    client_address(c, true, ours);
    const struct {
        bool set;
        char flag;
    } states[] = {{c->monitor, 'O'},
                  {transaction_is_open(c), 'x'},
                  {c->state == CLIENT_DRAINING || c->state == CLIENT_LINGERING, 'c'},
                  {c->state == CLIENT_DEAD, 'A'},
                  {c->no_evict, 'e'},
                  {c->no_touch, 'T'},
                  {client_is_unix(c), 'U'}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (states[i].set)
            flags[n_flags++] = states[i].flag;
    if (n_flags == 0)
        flags[n_flags++] = 'N';
    int n = snprintf(
        line, sizeof line,
        "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu flags=%s db=0 sub=0 psub=0 ssub=0 "
        "multi=%ld qbuf=%llu qbuf-free=%llu argv-mem=0 multi-mem=%llu rbs=%llu rbp=%llu obl=%llu oll=%u "
        "omem=%llu tot-mem=%llu events=%s cmd=%s user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
        (unsigned long long)c->caller.id, theirs, ours, c->fd, c->name ? c->name : "",
        (unsigned long long)(now - c->created_ms) / 1000, (unsigned long long)(now - c->last_ms) / 1000, flags,
        transaction_queued(c), (unsigned long long)in, (unsigned long long)(c->in.capacity - c->in.bytes),
        (unsigned long long)queued, (unsigned long long)c->out.capacity, (unsigned long long)c->send_buffer.capacity,
        (unsigned long long)c->out.bytes, c->n_pending - c->blocked, (unsigned long long)held,
        (unsigned long long)memory, c->sending ? "rw" : "r", c->row == ROW_NONE ? "NULL" : commands[c->row].name,
        c->caller.user, c->caller.protocol, c->library ? c->library : "", c->library_version ? c->library_version : "");
    resp_raw(out, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void cmd_client_info(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct resp_buffer text = {.protocol = 2};
    (void)args;
    (void)n;
    put_client(&text, c);
    resp_verbatim(client_reply(c), (const char *)text.data, text.bytes);
    resp_buffer_fini(&text);
}

/* ---- which clients ----------------------------------------------------------------------------------------------- */

enum client_type { TYPE_ANY, TYPE_NORMAL, TYPE_NOBODY /* replicas, masters, subscribers: there are none */ };

struct filter {
    char address[CLIENT_ADDRESS_BYTES], local[CLIENT_ADDRESS_BYTES]; /* "": any */
    uint64_t user_id;                                                /* 0: any */
    enum client_type type;
    uint64_t age_s; /* at least; 0: any */
    bool skip_me, by_id;
    uint32_t n_ids;
};

struct client_call {
    struct gather gather;
    struct filter filter;
    bool old_form, self;
    uint64_t ids[];
};

static bool is_wanted(const struct client_call *call, const struct client *c)
{
    const struct filter *f = &call->filter;
    char text[CLIENT_ADDRESS_BYTES];
    bool named = !f->by_id;
    for (uint32_t i = 0; i < f->n_ids && !named; i++)
        named = call->ids[i] == c->caller.id;
    if (c->state == CLIENT_DEAD || !named || f->type == TYPE_NOBODY ||
        (f->skip_me && c == client_of(call->gather.pending.caller)))
        return false;
    if (f->age_s && (c->loop->lane.now_ms - c->created_ms) / 1000 < f->age_s)
        return false;
    if (f->user_id && c->user->id != f->user_id)
        return false;
    if (f->address[0]) {
        client_address(c, false, text);
        if (strcmp(text, f->address) != 0)
            return false;
    }
    if (f->local[0]) {
        client_address(c, true, text);
        return strcmp(text, f->local) == 0;
    }
    return true;
}

/* "normal", "pubsub", ...; false after an error reply. */
static bool take_type(struct client *c, struct resp_arg arg, enum client_type *out)
{
    static const char *const nobody[] = {"master", "replica", "slave", "pubsub"};
    *out = arg_is(arg, "normal") ? TYPE_NORMAL : TYPE_ANY;
    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++)
        if (arg_is(arg, nobody[i]))
            *out = TYPE_NOBODY;
    if (*out == TYPE_ANY)
        caller_error(&c->caller, "ERR Unknown client type '%.*s'", ARG_SHOWN(arg, 64u));
    return *out != TYPE_ANY;
}

static void take_text(struct resp_arg arg, char *out, size_t capacity)
{
    /* what is longer than any address or name is like none */
    size_t bytes = arg.bytes < capacity ? arg.bytes : capacity - 1;
    memcpy(out, arg.data, bytes);
    out[bytes] = 0;
}

/* ---- LIST -------------------------------------------------------------------------------------------------------- */

static void list_lane(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    const struct client_call *call = (const struct client_call *)(const void *)gather;
    for (const struct client *c = loop->clients; c; c = c->next)
        if (is_wanted(call, c))
            put_client(&part->out, c);
}

static void reply_list(struct gather *gather)
{
    struct resp_buffer text = {.protocol = 2};
    for (unsigned i = 0; i < gather->n_parts; i++) {
        resp_raw(&text, gather->parts[i].out.data, gather->parts[i].out.bytes);
        text.failed |= gather->parts[i].out.failed;
    }
    if (text.failed)
        resp_error(&gather->pending.out, "OOM no memory for the list");
    else
        resp_verbatim(&gather->pending.out, (const char *)text.data, text.bytes);
    resp_buffer_fini(&text);
}

void cmd_client_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct filter filter = {0};
    long long id = 0;
    if (n == 4 && arg_is(args[2], "TYPE")) {
        if (!take_type(c, args[3], &filter.type))
            return;
    } else if (n > 3 && arg_is(args[2], "ID")) {
        filter.by_id = true;
        filter.n_ids = n - 3;
        for (uint32_t i = 3; i < n; i++)
            if (!arg_integer(args[i], &id) || id < 1) {
                caller_error(&c->caller, "ERR Invalid client ID");
                return;
            }
    } else if (n != 2) {
        caller_error(&c->caller, "ERR syntax error");
        return;
    }
    struct client_call *call = gather_begin(c, sizeof *call + filter.n_ids * sizeof *call->ids, list_lane, reply_list);
    if (!call)
        return;
    call->filter = filter;
    for (uint32_t i = 0; i < filter.n_ids && arg_integer(args[3 + i], &id); i++)
        call->ids[i] = (uint64_t)id;
    gather_start(&call->gather);
}

/* ---- KILL -------------------------------------------------------------------------------------------------------- */

static void kill_lane(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    struct client_call *call = (struct client_call *)(void *)gather;
    for (struct client *c = loop->clients; c; c = c->next) {
        if (!is_wanted(call, c))
            continue;
        part->count++;
        if (c == client_of(gather->pending.caller))
            call->self = true; /* it is told first */
        else
            client_kill(c);
    }
}

static void reply_kill(struct gather *gather)
{
    const struct client_call *call = (const struct client_call *)(const void *)gather;
    uint64_t killed = gather_count(gather);
    if (!call->old_form)
        resp_integer(&gather->pending.out, (long long)killed);
    else if (killed)
        resp_simple(&gather->pending.out, "OK");
    else
        resp_error(&gather->pending.out, "ERR No such client");
    if (call->self)
        client_end(client_of(gather->pending.caller));
}

/* The pair args[i], args[i + 1]; false after an error reply. */
static bool take_kill_option(struct client *c, const struct resp_arg *args, uint32_t i, struct filter *f, uint64_t *id)
{
    struct resp_arg name = args[i], value = args[i + 1];
    long long number = 0;
    bool right = true;
    if (arg_is(name, "ID")) {
        right = arg_integer(value, &number) && number > 0;
        if (!right)
            caller_error(&c->caller, "ERR client-id should be greater than 0");
        f->by_id = true;
        *id = (uint64_t)number;
    } else if (arg_is(name, "MAXAGE")) {
        right = arg_integer(value, &number) && number > 0;
        if (!right)
            caller_error(&c->caller, "ERR maxage is not an integer or out of range");
        f->age_s = (uint64_t)number;
    } else if (arg_is(name, "TYPE")) {
        right = take_type(c, value, &f->type);
    } else if (arg_is(name, "ADDR")) {
        take_text(value, f->address, sizeof f->address);
    } else if (arg_is(name, "LADDR")) {
        take_text(value, f->local, sizeof f->local);
    } else if (arg_is(name, "USER")) {
        struct acl_user *user = acl_find(&c->loop->server->acl, value.data, value.bytes);
        right = user != NULL;
        if (!right)
            caller_error(&c->caller, "ERR No such user '%.*s'", ARG_SHOWN(value, 128u));
        f->user_id = right ? user->id : 0;
        acl_user_release(user);
    } else if (arg_is(name, "SKIPME") && (arg_is(value, "yes") || arg_is(value, "no"))) {
        f->skip_me = arg_is(value, "yes");
    } else {
        caller_error(&c->caller, "ERR syntax error");
        right = false;
    }
    return right;
}

void cmd_client_kill(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct filter filter = {.skip_me = n > 3};
    uint64_t id = 0;
    if (n == 3)
        take_text(args[2], filter.address, sizeof filter.address);
    if (n > 3 && n % 2) {
        caller_error(&c->caller, "ERR syntax error");
        return;
    }
    for (uint32_t i = 2; i + 1 < n; i += 2)
        if (!take_kill_option(c, args, i, &filter, &id))
            return;
    filter.n_ids = filter.by_id;
    struct client_call *call = gather_begin(c, sizeof *call + sizeof *call->ids, kill_lane, reply_kill);
    if (!call)
        return;
    call->filter = filter;
    call->ids[0] = id;
    call->old_form = n == 3;
    gather_start(&call->gather);
}

/* ---- PAUSE ------------------------------------------------------------------------------------------------------- */

void cmd_client_pause(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct server *server = c->loop->server;
    long long ms;
    bool writes = n == 4 && arg_is(args[3], "WRITE");
    if (n > 4) {
        caller_error(&c->caller, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try CLIENT HELP.",
                     ARG_SHOWN(args[1], 128u));
        return;
    }
    if (n == 4 && !writes && !arg_is(args[3], "ALL")) {
        caller_error(&c->caller, "ERR CLIENT PAUSE mode must be WRITE or ALL");
        return;
    }
    if (!arg_integer(args[2], &ms) || ms > INT64_MAX / 2) {
        caller_error(&c->caller, "ERR timeout is not an integer or out of range");
        return;
    }
    if (ms < 0) {
        caller_error(&c->caller, "ERR timeout is negative");
        return;
    }
    /* a pause that is on gets neither shorter nor weaker */
    uint64_t now = clock_us() / 1000, until = now + (uint64_t)ms, old = atomic_load(&server->pause_until_ms);
    bool on = old > now;
    atomic_store(&server->pause_writes_only, writes && (!on || atomic_load(&server->pause_writes_only)));
    atomic_store(&server->pause_until_ms, on && old > until ? old : until);
    resp_simple(client_reply(c), "OK");
}

static void resume_lane(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    (void)gather;
    (void)part;
    loop_end_pause(loop);
}

void cmd_client_unpause(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    atomic_store(&c->loop->server->pause_until_ms, 0);
    gather_ask(c, resume_lane, gather_reply_ok);
}

/* ---- this connection --------------------------------------------------------------------------------------------- */

void cmd_client_reply(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    if (arg_is(args[2], "ON")) {
        c->reply_off = c->muted = false;
        resp_simple(client_reply(c), "OK");
    } else if (arg_is(args[2], "OFF")) {
        c->reply_off = true;
    } else if (arg_is(args[2], "SKIP")) {
        c->reply_skip = !c->reply_off;
    } else {
        caller_error(&c->caller, "ERR syntax error");
    }
}

/* NO-EVICT and NO-TOUCH. */
void cmd_client_flag(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    bool on = arg_is(args[2], "ON");
    (void)n;
    if (!on && !arg_is(args[2], "OFF")) {
        caller_error(caller, "ERR syntax error");
        return;
    }
    *(arg_is(args[1], "NO-EVICT") ? &c->no_evict : &c->no_touch) = on;
    resp_simple(caller_reply(caller), "OK");
}

void cmd_client_getredir(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_integer(caller_reply(caller), -1); /* as Redis: tracking is not on */
}

void cmd_client_tracking(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    if (n == 3 && arg_is(args[2], "OFF"))
        resp_simple(caller_reply(caller), "OK");
    else if (arg_is(args[2], "ON"))
        caller_error(caller, "ERR CLIENT TRACKING is not supported: this server does not follow what clients cache");
    else
        caller_error(caller, "ERR syntax error");
}
