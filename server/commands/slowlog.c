/*
 * slowlog.c - SLOWLOG.
 *
 * An entry is Redis's: number, time, microseconds, arguments, client, name; behind it, where the command can say more
 * (a search: its plan and reads), a text with it. Of a command that waits for the disk the time is that from its
 * request to its reply, since that is what its client waited; its arguments are copied when it begins, because the
 * request is gone when it ends. Others cost nothing unless they are slow.
 */
#include "server/commands/slowlog.h"
#include "server/access/command_table.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/command.h"
#include "server/net/gather.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARGS_SHOWN = 32, ARG_BYTES_SHOWN = 128, NOTE_BYTES = 160, NAME_BYTES = 257, GET_DEFAULT = 10 };

struct slow_args {
    uint32_t n, bytes;         /* bytes: of data */
    uint32_t ends[ARGS_SHOWN]; /* of each text in data */
    uint8_t data[];
};

struct slow_entry {
    struct slow_entry *next;
    uint64_t id, us;
    time_t time;
    struct slow_args *args; /* owned */
    char address[CLIENT_ADDRESS_BYTES], name[NAME_BYTES], note[NOTE_BYTES];
};

/* Oldest first. The lane's. */
struct slowlog {
    struct slow_entry *first, *last;
    size_t n;
};

static size_t shown_text(char capacity[ARG_BYTES_SHOWN + 64], const uint8_t *data, size_t bytes)
{
    if (bytes <= ARG_BYTES_SHOWN) {
        memcpy(capacity, data, bytes);
        return bytes;
    }
    memcpy(capacity, data, ARG_BYTES_SHOWN);
    return ARG_BYTES_SHOWN +
           (size_t)snprintf(capacity + ARG_BYTES_SHOWN, 64, "... (%zu more bytes)", bytes - ARG_BYTES_SHOWN);
}

struct slow_args *slowlog_copy(unsigned row, const struct resp_arg *args, uint32_t n)
{
    char text[ARG_BYTES_SHOWN + 64];
    uint32_t shown = n > ARGS_SHOWN ? ARGS_SHOWN : n, used = 0, capacity = 0;
    for (uint32_t i = 0; i < shown; i++)
        capacity += args[i].bytes > ARG_BYTES_SHOWN ? (uint32_t)sizeof text : args[i].bytes + 40;
    struct slow_args *copy = malloc(sizeof *copy + capacity);
    if (!copy)
        return NULL;
    copy->n = shown;
    for (uint32_t i = 0; i < shown; i++) {
        size_t bytes;
        if (i + 1 == ARGS_SHOWN && n > ARGS_SHOWN)
            bytes = (size_t)snprintf(text, sizeof text, "... (%u more arguments)", n - ARGS_SHOWN + 1);
        else if (command_arg_is_secret(row, args, i))
            bytes = (size_t)snprintf(text, sizeof text, "(redacted)");
        else
            bytes = shown_text(text, args[i].data, args[i].bytes);
        memcpy(copy->data + used, text, bytes);
        used += (uint32_t)bytes;
        copy->ends[i] = used;
    }
    copy->bytes = used; /* requests may wait for long, and many */
    struct slow_args *smaller = realloc(copy, sizeof *copy + used);
    return smaller ? smaller : copy;
}

size_t slowlog_copy_bytes(const struct slow_args *args)
{
    return sizeof *args + args->bytes;
}

static void trim(struct slowlog *log, size_t most)
{
    while (log->n > most) {
        struct slow_entry *oldest = log->first;
        assert(oldest);
        log->first = oldest->next;
        if (!log->first)
            log->last = NULL;
        log->n--;
        free(oldest->args);
        free(oldest);
    }
}

static struct slow_args *own_args(unsigned row, const struct loop *loop, const struct pending *deferred)
{
    if (!deferred)
        return slowlog_copy(row, loop->args, loop->n_args);
    const struct slow_args *kept = deferred->slow;
    if (!kept)
        return NULL;
    struct slow_args *copy = malloc(slowlog_copy_bytes(kept));
    if (copy)
        memcpy(copy, kept, slowlog_copy_bytes(kept));
    return copy;
}

void slowlog_add(struct client *c, unsigned row, uint64_t us, const struct pending *deferred)
{
    struct loop *loop = c->loop;
    size_t most = loop->server->service.config->slowlog_max;
    struct slow_args *args = most ? own_args(row, loop, deferred) : NULL;
    struct slow_entry *e = args ? calloc(1, sizeof *e) : NULL;
    if (e && !loop->slowlog)
        loop->slowlog = calloc(1, sizeof *loop->slowlog);
    struct slowlog *log = loop->slowlog;
    if (!e || !log) {
        free(e);
        free(args); /* a note that cannot be taken must not stop the command */
        return;
    }
    e->id = atomic_fetch_add(&loop->server->next_slow_id, 1);
    e->time = time(NULL);
    e->us = us;
    e->args = args;
    client_address(c, false, e->address);
    snprintf(e->name, sizeof e->name, "%s", c->name ? c->name : "");
    if (deferred && deferred->describe)
        deferred->describe(deferred, e->note, sizeof e->note);
    if (log->last)
        log->last->next = e;
    else
        log->first = e;
    log->last = e;
    log->n++;
    trim(log, most);
}

void slowlog_end(struct loop *loop)
{
    if (loop->slowlog)
        trim(loop->slowlog, 0);
    free(loop->slowlog);
    loop->slowlog = NULL;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* Before each entry in a part: by what it is put in order, and how long it is. */
struct entry_head {
    uint64_t id;
    size_t bytes;
    const uint8_t *data; /* of the reader */
};

struct slowlog_call {
    struct gather gather;
    size_t wanted;
};

static void put_entry(struct resp_buffer *out, const struct slow_entry *e)
{
    resp_array(out, e->note[0] ? 7 : 6);
    resp_integer(out, (long long)e->id);
    resp_integer(out, (long long)e->time);
    resp_integer(out, (long long)e->us);
    resp_array(out, e->args->n);
    for (uint32_t i = 0; i < e->args->n; i++) {
        uint32_t begin = i ? e->args->ends[i - 1] : 0;
        resp_bulk(out, e->args->data + begin, e->args->ends[i] - begin);
    }
    resp_text(out, e->address);
    resp_text(out, e->name);
    if (e->note[0])
        resp_text(out, e->note);
}

static void collect(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    size_t most = loop->server->service.config->slowlog_max;
    (void)gather;
    if (!loop->slowlog)
        return;
    trim(loop->slowlog, most); /* slowlog-max-len may have been lowered */
    for (const struct slow_entry *e = loop->slowlog->first; e; e = e->next) {
        struct entry_head head = {.id = e->id};
        size_t at = part->out.bytes;
        resp_raw(&part->out, &head, sizeof head);
        put_entry(&part->out, e);
        if (part->out.failed)
            return;
        head.bytes = part->out.bytes - at - sizeof head;
        memcpy(part->out.data + at, &head, sizeof head);
        part->count++;
    }
}

static int later_first(const void *a, const void *b)
{
    const struct entry_head *x = a, *y = b;
    return (x->id < y->id) - (x->id > y->id);
}

static void reply_entries(struct gather *gather)
{
    const struct slowlog_call *call = (const struct slowlog_call *)(const void *)gather;
    struct resp_buffer *out = &gather->pending.out;
    size_t n = gather_count(gather), filled = 0, most = gather->asker->server->service.config->slowlog_max;
    struct entry_head *heads = calloc(n + 1, sizeof *heads);
    if (!heads) {
        resp_error(out, "OOM no memory for the entries");
        return;
    }
    for (unsigned i = 0; i < gather->n_parts; i++) {
        const struct resp_buffer *part = &gather->parts[i].out;
        for (size_t at = 0, k = 0; k < gather->parts[i].count; k++) {
            struct entry_head *head = &heads[filled++];
            memcpy(head, part->data + at, sizeof *head);
            head->data = part->data + at + sizeof *head;
            at += sizeof *head + head->bytes;
        }
    }
    qsort(heads, n, sizeof *heads, later_first);
    n = n > most ? most : n;
    n = n > call->wanted ? call->wanted : n;
    resp_array(out, n);
    for (size_t i = 0; i < n; i++)
        resp_raw(out, heads[i].data, heads[i].bytes);
    free(heads);
}

void slowlog_get(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    long long wanted = GET_DEFAULT;
    if (n > 3) {
        caller_error(&c->caller, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try SLOWLOG HELP.",
                     ARG_SHOWN(args[1], 128u));
        return;
    }
    if (n == 3 && (!arg_integer(args[2], &wanted) || wanted < -1)) {
        caller_error(&c->caller, "ERR count should be greater than or equal to -1");
        return;
    }
    struct slowlog_call *call = gather_begin(c, sizeof *call, collect, reply_entries);
    if (!call)
        return;
    call->wanted = wanted < 0 ? SIZE_MAX : (size_t)wanted;
    gather_start(&call->gather);
}

static void count_entries(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    (void)gather;
    part->count = loop->slowlog ? loop->slowlog->n : 0;
}

static void reply_length(struct gather *gather)
{
    uint64_t n = gather_count(gather), most = gather->asker->server->service.config->slowlog_max;
    resp_integer(&gather->pending.out, (long long)(n > most ? most : n));
}

static void clear_entries(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    (void)gather;
    (void)part;
    if (loop->slowlog)
        trim(loop->slowlog, 0);
}

void slowlog_len(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    gather_ask(c, count_entries, reply_length);
}

void slowlog_reset(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    gather_ask(c, clear_entries, gather_reply_ok);
}
