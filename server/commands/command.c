/*
 * command.c - finding and running commands.
 *
 * Time: a look at the clock costs a tenth of a PING. So commands of one pipeline that are answered at once and follow
 * each other are timed together, and count as equally long, while none of them can be one that SLOWLOG or LATENCY
 * wants: the coarse clock, which costs next to nothing, has made no step since. When it has, the last command is taken
 * to be the long one. Where shorter times than its steps are wanted, each command is timed for itself.
 *
 * Error texts for unknown commands and wrong arity are those of Redis: clients match them.
 */
#include "server/commands/command.h"
#include "document/index/documents.h"
#include "io/journal.h"
#include "server/access/command_table.h"
#include "server/commands/absent.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/latency.h"
#include "server/commands/monitor.h"
#include "server/commands/slowlog.h"
#include "server/commands/transaction.h"
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The row of a request, or -1 after an error reply, or where the client was closed. */
static int route(struct client *c, const struct resp_arg *args, uint32_t n)
{
    int row = command_find_top(args[0].data, args[0].bytes);
    if (row < 0 && (arg_is(args[0], "POST") || arg_is(args[0], "Host:"))) {
        client_refuse_http(c);
        return -1;
    }
    if (row < 0) {
        const char *kind = absent_kind(args[0]);
        if (kind) {
            resp_error(client_reply(c),
                       "ERR unknown command '%.*s': %s are not here; there are strings, hashes, vector sets and "
                       "semantic caches",
                       ARG_SHOWN(args[0], 128u), kind);
            return -1;
        }
        char words[140] = "";
        size_t used = 0;
        for (uint32_t i = 1; i < n && used < 128; i++) {
            int more = snprintf(words + used, sizeof words - used, "'%.*s' ", ARG_SHOWN(args[i], 64u));
            used += more > 0 ? (size_t)more : 0;
        }
        resp_error(client_reply(c), "ERR unknown command '%.*s', with args beginning with: %s",
                   ARG_SHOWN(args[0], 128u), words);
        return -1;
    }
    bool container = (unsigned)row + 1 < n_commands && command_is_sub(&commands[row + 1], &commands[row]);
    int sub = n > 1 && container ? command_find_sub((unsigned)row, args[1].data, args[1].bytes) : -1;
    if (sub >= 0)
        return sub;
    if (container && n > 1) {
        char name[32];
        snprintf(name, sizeof name, "%s", commands[row].name);
        for (char *p = name; *p; p++)
            *p = (char)toupper((unsigned char)*p);
        resp_error(client_reply(c), "ERR unknown subcommand '%.*s'. Try %s HELP.", ARG_SHOWN(args[1], 128u), name);
        return -1;
    }
    return row;
}

bool command_refuses_write(struct client *c, unsigned flags)
{
    struct server *server = c->loop->server;
    uint64_t most = server->service.config->maxmemory;
    struct quire_error err = {0};
    if ((flags & CMD_DENYOOM) && most &&
        atomic_load(&server->service.keyspace.used_bytes) + documents_bytes(server->service.documents) > most) {
        resp_error(client_reply(c), "OOM command not allowed when used memory > 'maxmemory'.");
        return true;
    }
    if (server->service.journal && journal_health(server->service.journal, &err) < 0) {
        resp_error(client_reply(c), "MISCONF Errors writing to the log: %s", err.message);
        return true;
    }
    return false;
}

/* Where the reply to a command will begin: behind so many bytes of the last pending one, or of the client's output. */
struct reply_mark {
    const struct pending *last;
    size_t bytes;
};

static struct reply_mark mark_reply(const struct client *c)
{
    const struct pending *last = c->group ? c->group->last : c->last;
    if (c->group || last)
        return (struct reply_mark){last, last ? last->out.bytes : 0};
    return (struct reply_mark){NULL, c->out.bytes};
}

/* The reply that came since the mark, NULL where it is deferred; *bytes of it. */
static const uint8_t *reply_since(const struct client *c, const struct reply_mark *mark, size_t *bytes)
{
    const struct pending *last = c->group ? c->group->last : c->last;
    bool discarded = c->muted && !c->group;
    const struct resp_buffer *out = discarded ? &c->loop->discard : last ? &last->out : &c->out;
    size_t begin = discarded || last != mark->last ? 0 : mark->bytes;
    *bytes = 0;
    if (last && last != mark->last && last->deferred)
        return NULL;
    if ((c->group && !last) || out->bytes <= begin)
        return (const uint8_t *)"";
    *bytes = out->bytes - begin;
    return out->data + begin;
}

/* Counts a reply that is an error, by its first word; row: of the command that ran, -1: none did. */
static void count_error(struct loop *loop, int row, const uint8_t *reply, size_t bytes)
{
    if (bytes == 0 || reply[0] != '-')
        return;
    struct lane_stats *stats = &loop->lane.stats;
    unsigned n = atomic_load_explicit(&stats->n_errors, memory_order_relaxed), i = 0;
    char code[sizeof stats->errors->code];
    size_t length = 0;
    while (1 + length < bytes && length + 1 < sizeof code && reply[1 + length] > ' ')
        length++;
    memcpy(code, reply + 1, length);
    code[length] = 0;
    lane_stat_add(&stats->error_replies, 1);
    if (row >= 0)
        lane_stat_add(&stats->commands_by_row[row].failed, 1);
    while (i < n && strcmp(stats->errors[i].code, code) != 0)
        i++;
    if (i == ERRORS_MAX)
        return;
    if (i == n) {
        memcpy(stats->errors[i].code, code, sizeof code);
        atomic_store_explicit(&stats->n_errors, n + 1, memory_order_release);
    }
    lane_stat_add(&stats->errors[i].count, 1);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* From so many microseconds on an interval holds a step of the coarse clock, whose steps are 1 to 10 ms. */
enum { COARSE_STEP_US = 10000 };

static uint64_t coarse_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* For SLOWLOG and LATENCY. deferred: the command's reply, NULL where it was answered at once. */
static void note_slow(struct client *c, unsigned row, uint64_t us, const struct pending *deferred)
{
    struct server *server = c->loop->server;
    int64_t slow_us = server->service.config->slowlog_us;
    if (slow_us >= 0 && us >= (uint64_t)slow_us)
        slowlog_add(c, row, us, deferred);
    if (us >= 1000 && server->service.config->latency_ms)
        latency_add(server,
                    deferred && strcmp(commands[row].group, "vector_set") == 0 ? "search"
                    : commands[row].flags & CMD_FAST                           ? "fast-command"
                                                                               : "command",
                    us);
}

/* Looks at the clock: time from here on belongs to what runs next. Returns what has passed since the last look. */
static uint64_t stamp(struct loop *loop)
{
    const struct config *config = loop->server->service.config;
    int64_t slow_us = config->slowlog_us;
    uint64_t latency_ms = config->latency_ms, now_us = clock_us(), us = now_us - loop->stamp_us;
    loop->times_each = (slow_us >= 0 && slow_us < COARSE_STEP_US) || (latency_ms && latency_ms < COARSE_STEP_US / 1000);
    loop->stamp_us = now_us;
    loop->stamp_coarse_us = loop->times_each ? 0 : coarse_us();
    return us;
}

/* Counts the commands that have run since the last look at the clock; returns how long they took. */
static uint64_t end_run(struct loop *loop)
{
    struct command_stats *stats = &loop->lane.stats.commands_by_row[loop->run_row];
    if (loop->run_n == 0)
        return 0;
    uint64_t us = stamp(loop);
    lane_stat_add(&stats->us, us);
    histogram_add_many(&stats->latency, us / loop->run_n, loop->run_n);
    loop->run_n = 0;
    return us;
}

void command_begin_timing(struct loop *loop)
{
    end_run(loop);
    stamp(loop);
}

void command_end_timing(struct loop *loop)
{
    end_run(loop);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

/* Whether a request of this row may run, after an error reply where not. */
static bool admit(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    const struct command *command = &commands[row];
    if (!command->run || !command_arity_fits(command, n)) {
        resp_error(client_reply(c), "ERR wrong number of arguments for '%s' command", command->name);
        return false;
    }
    if (!c->authenticated && !(command->flags & CMD_NOAUTH)) {
        resp_error(client_reply(c), "NOAUTH Authentication required.");
        return false;
    }
    c->row = row;
    return (client_is_free(c) || client_permits(c, row, args, n)) &&
           !((command->flags & CMD_WRITE) && command_refuses_write(c, command->flags));
}

/* Whether a request may run, after an error reply where not. *row: its command; -1: there is no such. */
static bool route_and_admit(struct client *c, const struct resp_arg *args, uint32_t n, int *row)
{
    *row = route(c, args, n);
    if (*row < 0)
        return false;
    bool admitted = admit(c, (unsigned)*row, args, n);
    if (!admitted)
        lane_stat_add(&c->loop->lane.stats.commands_by_row[*row].rejected, 1);
    return admitted;
}

/* Between MULTI and EXEC. False where no command was called. */
static bool run_in_multi(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct reply_group refusal = {.first = NULL};
    int row;
    c->group = &refusal;
    bool admitted = route_and_admit(c, args, n, &row);
    c->group = NULL;
    if (c->state == CLIENT_DEAD)
        return false;
    if (!admitted)
        transaction_refused(c, row, &refusal);
    else if (transaction_takes(c, (unsigned)row))
        transaction_queue(c, (unsigned)row, args, n);
    else
        command_call(c, (unsigned)row, args, n);
    return admitted && !transaction_takes(c, (unsigned)row);
}

/* Runs one request. */
static void command_run(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct loop *loop = c->loop;
    struct reply_mark mark = mark_reply(c);
    size_t bytes;
    assert(n > 0 && c->state == CLIENT_OPEN && c->user);
    assert(!c->group && !c->blocked && !loop->args && (loop->lane.gate_depth > 0 || loop->lane.shut));
    c->muted = c->reply_off || c->reply_skip;
    c->reply_skip = false;
    loop->discard.bytes = 0;
    loop->discard.failed = false;
    if (!c->caller.values)
        lane_stat_add(&loop->lane.stats.commands, 1);
    bool ran;
    if (transaction_is_open(c)) {
        ran = run_in_multi(c, args, n);
    } else {
        int row;
        ran = route_and_admit(c, args, n, &row);
        if (ran)
            command_call(c, (unsigned)row, args, n);
    }
    if (!ran) {
        /* refused, or queued: what it took is nobody's */
        const uint8_t *reply = reply_since(c, &mark, &bytes);
        count_error(loop, -1, reply, bytes);
        command_begin_timing(loop);
    }
    if (c->caller.again && c->muted && !c->reply_off)
        c->reply_skip = true;
    c->muted = false;
}

/* Whether a command that has run gives no reply: CLIENT REPLY, SHUTDOWN, or there was no memory for it. */
static bool gives_none(const struct client *c)
{
    const struct pending *last = c->group ? c->group->last : c->last;
    return c->reply_off || c->reply_skip || c->state != CLIENT_OPEN || c->excess != EXCESS_NONE ||
           (last ? &last->out : &c->out)->failed || c->loop->discard.failed;
}

void command_call(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    struct loop *loop = c->loop;
    const struct resp_arg *outer_args = loop->args; /* EXEC's */
    uint32_t outer_n = loop->n_args;
    size_t bytes;
    assert(row < n_commands && commands[row].run && command_arity_fits(&commands[row], n));
    assert((c->group || !c->blocked) && (loop->lane.gate_depth > 0 || loop->lane.shut));
    if (row != loop->run_row)
        end_run(loop);
    c->row = row;
    loop->args = args;
    loop->n_args = n;
    bool anew = !c->caller.values || c->group; /* not one that runs again (key_values.h) */
    if (anew)
        lane_stat_add(&loop->lane.stats.commands_by_row[row].calls, 1);
    if (anew && atomic_load_explicit(&loop->server->n_monitors, memory_order_relaxed) &&
        !(commands[row].flags & CMD_ADMIN))
        monitor_feed(c, row, args, n);
    struct reply_mark mark = mark_reply(c);
    c->caller.command = commands[row].name;
    commands[row].run(&c->caller, args, n);
    const uint8_t *reply = reply_since(c, &mark, &bytes);
    assert(bytes > 0 || !reply || c->caller.again || gives_none(c));
    count_error(loop, (int)row, reply, bytes);
    if (reply && !c->caller.again) {
        /* answered at once */
        loop->run_row = row;
        loop->run_n++;
        if (loop->times_each || coarse_us() != loop->stamp_coarse_us)
            note_slow(c, row, end_run(loop), NULL);
    } else {
        stamp(loop);
    }
    loop->args = outer_args;
    loop->n_args = outer_n;
}

static void on_deferred(struct client *c, struct pending *p)
{
    const struct loop *loop = c->loop;
    if (!loop->args || loop->server->service.config->slowlog_us < 0)
        return;
    p->slow = slowlog_copy(c->row, loop->args, loop->n_args);
    if (p->slow && !caller_hold(p, slowlog_copy_bytes(p->slow))) {
        free(p->slow);
        p->slow = NULL;
    }
}

/* Counts a deferred command: from its request to its reply. */
static void command_ended(struct client *c, struct pending *p)
{
    struct loop *loop = c->loop;
    struct command_stats *stats = &loop->lane.stats.commands_by_row[p->row];
    uint64_t us = clock_us() - p->started_us;
    assert(p->deferred && !p->ready && p->row < n_commands);
    count_error(loop, (int)p->row, p->out.data, p->out.bytes);
    lane_stat_add(&stats->us, us);
    histogram_add(&stats->latency, us);
    note_slow(c, p->row, us, p);
}

/* Whether a request is about its connection alone (PING, ECHO, HELLO, ...), so that it may run beside a transaction. */
static bool is_of_connection(const struct client *c, const struct resp_arg *args, uint32_t n)
{
    int row = command_find_request(args, n);
    return row >= 0 && (commands[row].flags & CMD_FAST) && !(commands[row].flags & CMD_ADMIN) &&
           strcmp(commands[row].group, "connection") == 0 && !transaction_is_open(c);
}

/* Whether a request waits for the end of CLIENT PAUSE, or of a transaction that takes long. */
static bool command_must_wait(const struct client *c, const struct resp_arg *args, uint32_t n)
{
    const struct server *server = c->loop->server;
    if (c->loop->lane.shut && !is_of_connection(c, args, n))
        return true;
    uint64_t until = atomic_load_explicit(&server->pause_until_ms, memory_order_relaxed);
    if (until == 0 || clock_us() / 1000 >= until)
        return false;
    int row = command_find_top(args[0].data, args[0].bytes);
    if (row < 0)
        return false;
    if (atomic_load(&server->pause_writes_only))
        return (transaction_is_open(c) ? transaction_would_write(c, (unsigned)row)
                                       : (commands[row].flags & CMD_WRITE) != 0);
    /* what ends the pause must get through, and who is not let in gets no further than before */
    return !(strcmp(commands[row].name, "client") == 0 && n > 1 && arg_is(args[1], "UNPAUSE")) && c->authenticated;
}

const struct dispatcher command_dispatcher = {.begin = command_begin_timing,
                                              .end = command_end_timing,
                                              .run = command_run,
                                              .must_wait = command_must_wait,
                                              .deferred = on_deferred,
                                              .ended = command_ended,
                                              .forget_client = transaction_forget,
                                              .forget_loop = slowlog_end};
