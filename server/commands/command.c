/*
 * command.c - finding and running commands.
 *
 * The table (commands.def) is the only list of commands. Look-up is a hash of the upper-case name into a small
 * open-addressing table that is filled when the server is created; sub-commands follow their container in the table and
 * are found by a short scan.
 *
 * Time: a look at the clock costs a tenth of a PING. So commands of one pipeline that are answered at once and follow
 * each other are timed together, and count as equally long, while none of them can be one that SLOWLOG or LATENCY
 * wants: the coarse clock, which costs next to nothing, has made no step since. When it has, the last command is taken
 * to be the long one. Where shorter times than its steps are wanted, each command is timed for itself.
 *
 * Error texts for unknown commands and wrong arity are those of Redis: clients match them.
 */
#include "server/commands/command.h"
#include "io/journal.h"
#include "server/commands/monitor.h"
#include "server/commands/transaction.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

const struct command commands[] = {
#define COMMAND_ROW(name, handler, arity, flags, first, last, step, group, since, summary, syntax)                     \
    {name, sizeof name - 1, handler, arity, flags, first, last, step, group, since, summary, syntax},
#include "server/commands.def"
#undef COMMAND_ROW
};
const unsigned n_commands = sizeof commands / sizeof *commands;
_Static_assert(sizeof commands / sizeof *commands < COMMANDS_MAX, "raise COMMANDS_MAX");

static unsigned hash_name(const uint8_t *name, size_t bytes)
{
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (name[i] | 0x20u)) * 16777619u;
    return hash % (2 * COMMANDS_MAX);
}

void command_index_fill(uint16_t *index)
{
    memset(index, 0, 2 * COMMANDS_MAX * sizeof *index);
    for (unsigned row = 0; row < n_commands; row++) {
        const char *name = commands[row].name;
        if (strchr(name, '|'))
            continue;
        unsigned at = hash_name((const uint8_t *)name, commands[row].name_bytes);
        while (index[at])
            at = (at + 1) % (2 * COMMANDS_MAX);
        index[at] = (uint16_t)(row + 1);
    }
}

static int find_top(const uint16_t *index, const uint8_t *name, size_t bytes)
{
    for (unsigned at = hash_name(name, bytes); index[at]; at = (at + 1) % (2 * COMMANDS_MAX)) {
        const struct command *candidate = &commands[index[at] - 1];
        if (candidate->name_bytes == bytes && strncasecmp(candidate->name, (const char *)name, bytes) == 0)
            return index[at] - 1;
    }
    return -1;
}

bool command_is_sub(const struct command *command, const struct command *container)
{
    return command->name_bytes > container->name_bytes && command->name[container->name_bytes] == '|' &&
           memcmp(command->name, container->name, container->name_bytes) == 0;
}

static int find_sub(int container, const uint8_t *name, size_t bytes)
{
    size_t prefix = commands[container].name_bytes + 1;
    for (unsigned row = (unsigned)container + 1;
         row < n_commands && command_is_sub(&commands[row], &commands[container]); row++)
        if (commands[row].name_bytes == prefix + bytes &&
            strncasecmp(commands[row].name + prefix, (const char *)name, bytes) == 0)
            return (int)row;
    return -1;
}

int command_find(const uint16_t *index, const void *name, size_t bytes)
{
    const uint8_t *bar = memchr(name, '|', bytes), *text = name;
    int row = find_top(index, text, bar ? (size_t)(bar - text) : bytes);
    return row >= 0 && bar ? find_sub(row, bar + 1, bytes - (size_t)(bar - text) - 1) : row;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void reject_unknown(struct client *c, const struct resp_arg *args, uint32_t n)
{
    char words[140] = "";
    size_t used = 0;
    for (uint32_t i = 1; i < n && used < 128; i++) {
        int more = snprintf(words + used, sizeof words - used, "'%.*s' ", ARG_SHOWN(args[i], 64u));
        used += more > 0 ? (size_t)more : 0;
    }
    resp_error(client_reply(c), "ERR unknown command '%.*s', with args beginning with: %s", ARG_SHOWN(args[0], 128u),
               words);
}

/* The row of a request, or -1 after an error reply. */
static int route(struct client *c, const struct resp_arg *args, uint32_t n)
{
    int row = find_top(c->lane->server->command_index, args[0].data, args[0].bytes);
    if (row < 0) {
        reject_unknown(c, args, n);
        return -1;
    }
    bool container = (unsigned)row + 1 < n_commands && command_is_sub(&commands[row + 1], &commands[row]);
    int sub = n > 1 && container ? find_sub(row, args[1].data, args[1].bytes) : -1;
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
    struct server *server = c->lane->server;
    uint64_t most = server->config->maxmemory;
    struct quire_error err = {0};
    if ((flags & CMD_DENYOOM) && most && atomic_load(&server->keyspace.used_bytes) > most) {
        resp_error(client_reply(c), "OOM command not allowed when used memory > 'maxmemory'.");
        return true;
    }
    if (server->journal && journal_health(server->journal, &err) < 0) {
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
    const struct resp_buffer *out = discarded ? &c->lane->discard : last ? &last->out : &c->out;
    size_t begin = discarded || last != mark->last ? 0 : mark->bytes;
    *bytes = 0;
    if (last != mark->last && last->deferred)
        return NULL;
    if ((c->group && !last) || out->bytes <= begin)
        return (const uint8_t *)"";
    *bytes = out->bytes - begin;
    return out->data + begin;
}

/* Counts an error by its first word. */
static void count_code(struct lane *lane, const uint8_t *reply, size_t bytes)
{
    struct lane_stats *stats = &lane->stats;
    unsigned n = atomic_load_explicit(&stats->n_errors, memory_order_relaxed), i = 0;
    char code[sizeof stats->errors->code];
    size_t length = 0;
    while (1 + length < bytes && length + 1 < sizeof code && reply[1 + length] > ' ')
        length++;
    memcpy(code, reply + 1, length);
    code[length] = 0;
    stat_add(&stats->error_replies, 1);
    while (i < n && strcmp(stats->errors[i].code, code) != 0)
        i++;
    if (i == ERRORS_MAX)
        return;
    if (i == n) {
        memcpy(stats->errors[i].code, code, sizeof code);
        atomic_store_explicit(&stats->n_errors, n + 1, memory_order_release);
    }
    stat_add(&stats->errors[i].count, 1);
}

/* Counts a reply that is an error; row: of the command that ran, -1: none did. */
static void count_error(struct lane *lane, int row, const uint8_t *reply, size_t bytes)
{
    if (bytes == 0 || reply[0] != '-')
        return;
    count_code(lane, reply, bytes);
    if (row >= 0)
        stat_add(&lane->stats.commands_by_row[row].failed, 1);
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
    struct server *server = c->lane->server;
    int64_t slow_us = server->config->slowlog_us;
    if (slow_us >= 0 && us >= (uint64_t)slow_us)
        slowlog_add(c, row, us, deferred);
    if (us >= 1000 && server->config->latency_ms)
        latency_add(server,
                    deferred && strcmp(commands[row].group, "vector_set") == 0 ? "search"
                    : commands[row].flags & CMD_FAST                           ? "fast-command"
                                                                               : "command",
                    us);
}

/* Looks at the clock: time from here on belongs to what runs next. Returns what has passed since the last look. */
static uint64_t stamp(struct lane *lane)
{
    const struct config *config = lane->server->config;
    int64_t slow_us = config->slowlog_us;
    uint64_t latency_ms = config->latency_ms, now_us = clock_us(), us = now_us - lane->stamp_us;
    lane->times_each = (slow_us >= 0 && slow_us < COARSE_STEP_US) || (latency_ms && latency_ms < COARSE_STEP_US / 1000);
    lane->stamp_us = now_us;
    lane->stamp_coarse_us = lane->times_each ? 0 : coarse_us();
    return us;
}

/* Counts the commands that have run since the last look at the clock; returns how long they took. */
static uint64_t end_run(struct lane *lane)
{
    struct command_stats *stats = &lane->stats.commands_by_row[lane->run_row];
    if (lane->run_n == 0)
        return 0;
    uint64_t us = stamp(lane);
    stat_add(&stats->us, us);
    histogram_add_many(&stats->latency, us / lane->run_n, lane->run_n);
    lane->run_n = 0;
    return us;
}

void command_begin_timing(struct lane *lane)
{
    end_run(lane);
    stamp(lane);
}

void command_end_timing(struct lane *lane)
{
    end_run(lane);
}

/* A command was answered at once. */
static void time_command(struct client *c, unsigned row)
{
    struct lane *lane = c->lane;
    lane->run_row = row;
    lane->run_n++;
    if (lane->times_each || coarse_us() != lane->stamp_coarse_us)
        note_slow(c, row, end_run(lane), NULL);
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
    return (acl_is_free(c) || acl_permits(c, row, args, n)) &&
           !((command->flags & CMD_WRITE) && command_refuses_write(c, command->flags));
}

/* The row of a request that may run; -1 after an error reply. */
static int route_and_admit(struct client *c, const struct resp_arg *args, uint32_t n, int *row)
{
    *row = route(c, args, n);
    if (*row < 0)
        return -1;
    if (admit(c, (unsigned)*row, args, n))
        return *row;
    stat_add(&c->lane->stats.commands_by_row[*row].rejected, 1);
    return -1;
}

/* Between MULTI and EXEC. False where no command was called. */
static bool run_in_multi(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct reply_group refusal = {.first = NULL};
    int row;
    c->group = &refusal;
    int admitted = route_and_admit(c, args, n, &row);
    c->group = NULL;
    if (admitted < 0)
        transaction_refused(c, row, &refusal);
    else if (transaction_takes(c, (unsigned)row))
        transaction_queue(c, (unsigned)row, args, n);
    else
        command_call(c, (unsigned)row, args, n);
    return admitted >= 0 && !transaction_takes(c, (unsigned)row);
}

static bool run_alone(struct client *c, const struct resp_arg *args, uint32_t n)
{
    int row;
    if (route_and_admit(c, args, n, &row) < 0)
        return false;
    command_call(c, (unsigned)row, args, n);
    return true;
}

void command_run(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct lane *lane = c->lane;
    struct reply_mark mark = mark_reply(c);
    size_t bytes;
    c->muted = c->reply_off || c->reply_skip;
    c->reply_skip = false;
    lane->discard.bytes = 0;
    stat_add(&lane->stats.commands, 1);
    if (!(transaction_is_open(c) ? run_in_multi(c, args, n) : run_alone(c, args, n))) {
        /* refused, or queued: what it took is nobody's */
        const uint8_t *reply = reply_since(c, &mark, &bytes);
        count_error(lane, -1, reply, bytes);
        command_begin_timing(lane);
    }
    c->muted = false;
}

void command_call(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    struct lane *lane = c->lane;
    const struct resp_arg *outer_args = lane->args; /* EXEC's */
    uint32_t outer_n = lane->n_args;
    size_t bytes;
    if (row != lane->run_row)
        end_run(lane);
    c->row = row;
    lane->args = args;
    lane->n_args = n;
    stat_add(&lane->stats.commands_by_row[row].calls, 1);
    if (atomic_load_explicit(&lane->server->n_monitors, memory_order_relaxed) && !(commands[row].flags & CMD_ADMIN))
        monitor_feed(c, row, args, n);
    struct reply_mark mark = mark_reply(c);
    commands[row].run(c, args, n);
    const uint8_t *reply = reply_since(c, &mark, &bytes);
    count_error(lane, (int)row, reply, bytes);
    if (reply)
        time_command(c, row);
    else
        stamp(lane);
    lane->args = outer_args;
    lane->n_args = outer_n;
}

void command_ended(struct pending *p)
{
    struct lane *lane = p->client->lane;
    struct command_stats *stats = &lane->stats.commands_by_row[p->row];
    uint64_t us = clock_us() - p->started_us;
    count_error(lane, (int)p->row, p->out.data, p->out.bytes);
    stat_add(&stats->us, us);
    histogram_add(&stats->latency, us);
    note_slow(p->client, p->row, us, p);
}

bool command_must_wait(const struct client *c, const struct resp_arg *args, uint32_t n)
{
    const struct server *server = c->lane->server;
    uint64_t until = atomic_load_explicit(&server->pause_until_ms, memory_order_relaxed);
    if (until == 0 || clock_us() / 1000 >= until)
        return false;
    int row = find_top(server->command_index, args[0].data, args[0].bytes);
    if (row < 0)
        return false;
    if (atomic_load(&server->pause_writes_only))
        return (transaction_is_open(c) ? transaction_would_write(c, (unsigned)row)
                                       : (commands[row].flags & CMD_WRITE) != 0);
    /* what ends the pause must get through, and who is not let in gets no further than before */
    return !(strcmp(commands[row].name, "client") == 0 && n > 1 && arg_is(args[1], "UNPAUSE")) && c->authenticated;
}

bool command_arg_is_secret(unsigned row, const struct resp_arg *args, uint32_t i)
{
    const char *name = commands[row].name;
    if (strcmp(name, "auth") == 0)
        return i > 0;
    if (strcmp(name, "hello") == 0)
        return (i > 1 && arg_is(args[i - 1], "AUTH")) || (i > 2 && arg_is(args[i - 2], "AUTH"));
    if (strcmp(name, "config|set") == 0)
        return i > 2 && i % 2 == 1 && config_is_secret((const char *)args[i - 1].data, args[i - 1].bytes);
    return strcmp(name, "acl|setuser") == 0 && i > 2;
}

/* ---- helpers of handlers ----------------------------------------------------------------------------------------- */

bool arg_is(struct resp_arg arg, const char *word)
{
    return strlen(word) == arg.bytes && strncasecmp((const char *)arg.data, word, arg.bytes) == 0;
}

bool arg_integer(struct resp_arg arg, long long *out)
{
    bool negative = arg.bytes > 0 && arg.data[0] == '-';
    uint64_t value = 0, most = (uint64_t)LLONG_MAX + negative;
    uint32_t i = negative;
    if (i == arg.bytes || (arg.data[i] == '0' && arg.bytes > 1))
        return false;
    for (; i < arg.bytes; i++) {
        unsigned digit = arg.data[i] - (unsigned)'0';
        if (digit > 9 || value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = negative ? (long long)(0 - value) : (long long)value;
    return true;
}

bool arg_number(struct resp_arg arg, double *out)
{
    char text[128], *end;
    if (arg.bytes == 0 || arg.bytes >= sizeof text || isspace(arg.data[0]))
        return false;
    memcpy(text, arg.data, arg.bytes);
    text[arg.bytes] = 0;
    double value = strtod(text, &end);
    if (end != text + arg.bytes)
        return false;
    *out = value;
    return true;
}

char *arg_text(struct resp_arg arg)
{
    if (memchr(arg.data, 0, arg.bytes))
        return NULL;
    char *text = malloc((size_t)arg.bytes + 1);
    if (text) {
        memcpy(text, arg.data, arg.bytes);
        text[arg.bytes] = 0;
    }
    return text;
}

static int folded(bool fold, char c)
{
    return fold ? tolower((unsigned char)c) : (unsigned char)c;
}

/* One "[...]" at *p against c; *p stands behind it afterwards. */
static bool set_matches(const char **p, const char *end, char c, bool fold)
{
    const char *at = *p + 1;
    bool negated = at < end && *at == '^', found = false;
    if (negated)
        at++;
    for (; at < end && *at != ']'; at++) {
        char low = *at == '\\' && at + 1 < end ? *++at : *at, high = low;
        if (at + 2 < end && at[1] == '-' && at[2] != ']') {
            high = at[2];
            at += 2;
        }
        int l = folded(fold, low), h = folded(fold, high), x = folded(fold, c);
        found |= (l <= h ? l <= x && x <= h : h <= x && x <= l);
    }
    *p = at < end ? at + 1 : end;
    return found != negated;
}

bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold)
{
    /* iterative, with one place to go back to: a pattern of many stars stays quadratic */
    const char *p = (const char *)pattern.data, *end = p + pattern.bytes, *star = NULL, *star_text = NULL;
    const char *t = (const char *)text.data, *text_end = t + text.bytes;
    while (t < text_end) {
        const char *next = p;
        bool same = false;
        if (p < end && *p == '*') {
            star = ++p;
            star_text = t;
            continue;
        }
        if (p < end && *p == '[') {
            same = set_matches(&next, end, *t, fold);
        } else if (p < end) {
            next = *p == '\\' && p + 1 < end ? p + 1 : p;
            same = *p == '?' || folded(fold, *next) == folded(fold, *t);
            next++;
        }
        if (same) {
            p = next;
            t++;
        } else if (star) {
            p = star;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text)
{
    return glob_matches_bytes((struct resp_arg){(const uint8_t *)pattern, (uint32_t)pattern_bytes},
                              (struct resp_arg){(const uint8_t *)text, (uint32_t)strlen(text)}, true);
}
