/*
 * cmd_memory.c - MEMORY and DEBUG: what is held, per key and in all, and the two means of looking inside.
 *
 * Memory is counted where it can be: the kernel's statistics for the process, what keys, strings and hashes take, what
 * vector sets say they keep resident.
 * Under mimalloc (which only the program links, hence the weak symbols) PURGE and MALLOC-STATS are its own; otherwise
 * those of the C library. PURGE walks the heap, so it takes its time on the lane that was asked.
 *
 * key_memory is the one place that knows how much a key of each type takes.
 */
#include "index/collection/collection.h"
#include "io/memory.h"
#include "server/admin/cmd_admin.h"
#include "server/admin/info.h"
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

__attribute__((weak)) void mi_collect(bool force);
__attribute__((weak)) void mi_stats_print_out(void (*print)(const char *text, void *context), void *context);

const char *cmd_memory_allocator(void)
{
    return mi_collect ? "mimalloc" : "libc";
}

/* The bytes that an entry keeps in memory. */
static uint64_t key_memory(const struct key_entry *entry)
{
    struct collection_stats stats;
    uint64_t bytes = keyspace_entry_bytes(entry);
    if (entry->type != KEY_VECTOR_SET)
        return bytes;
    collection_get_stats(entry->set, &stats);
    return bytes + stats.memtable_bytes + stats.resident_bytes;
}

void cmd_memory_usage(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    long long samples;
    if (n != 3 && !(n == 5 && arg_is(args[3], "SAMPLES"))) {
        caller_error(caller, "ERR syntax error");
    } else if (n == 5 && !arg_integer(args[4], &samples)) {
        caller_error(caller, "ERR value is not an integer or out of range");
    } else if (n == 5 && samples < 0) {
        caller_error(caller, "ERR syntax error");
    } else if (!key_peek(&call, caller, args[2])) {
        resp_null(caller_reply(caller));
    } else {
        resp_integer(caller_reply(caller), (long long)key_memory(call.entry));
        key_end(&call);
    }
}

/* ---- STATS, DOCTOR ----------------------------------------------------------------------------------------------- */

struct memory_totals {
    struct memory_resident resident;
    uint64_t vectors, dataset; /* bytes of vector sets; of these and all other keys */
    uint64_t keys, clients;
};

static void take_totals(struct server *server, struct memory_totals *f)
{
    memset(f, 0, sizeof *f);
    memory_resident(&f->resident);
    f->vectors = info_index_bytes(server);
    f->dataset = f->vectors + atomic_load(&server->service.keyspace.used_bytes);
    f->keys = keyspace_count(&server->service.keyspace);
    for (unsigned i = 0; i < server->service.n_lanes; i++)
        f->clients += atomic_load(&server->loops[i].n_clients);
}

void cmd_memory_stats(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct memory_totals f;
    (void)args;
    (void)n;
    take_totals(c->loop->server, &f);
    uint64_t rest = f.resident.anonymous > f.dataset ? f.resident.anonymous - f.dataset : 0;
    struct resp_buffer *out = client_reply(c);
    resp_map(out, 9);
    resp_field(out, "peak.allocated", (long long)f.resident.peak);
    resp_field(out, "total.allocated", (long long)f.resident.anonymous);
    resp_field(out, "overhead.total", (long long)rest);
    resp_field(out, "keys.count", (long long)f.keys);
    resp_field(out, "keys.bytes-per-key", (long long)(f.keys ? f.dataset / f.keys : 0));
    resp_field(out, "dataset.bytes", (long long)f.dataset);
    resp_text(out, "dataset.percentage");
    resp_double(out, f.resident.anonymous ? 100.0 * (double)f.dataset / (double)f.resident.anonymous : 0);
    resp_text(out, "peak.percentage");
    resp_double(out, f.resident.peak ? 100.0 * (double)f.resident.total / (double)f.resident.peak : 0);
    resp_field(out, "rss", (long long)f.resident.total);
}

void cmd_memory_doctor(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct memory_totals f;
    char text[700];
    (void)args;
    (void)n;
    take_totals(c->loop->server, &f);
    uint64_t rest = f.resident.anonymous > f.dataset ? f.resident.anonymous - f.dataset : 0;
    const char *verdict =
        rest > f.dataset + (256ull << 20)
            ? "Buffers and heap take more than the keys: CLIENT LIST shows clients with large buffers (qbuf, omem), "
              "client-query-buffer-limit and client-output-buffer-limit bound them, MEMORY PURGE gives back what is "
              "free."
            : "Nothing out of the ordinary.";
    snprintf(text, sizeof text,
             "%" PRIu64 " bytes are resident (peak %" PRIu64 "), %" PRIu64 " of them anonymous: %" PRIu64
             " of vector sets, %" PRIu64 " of other values and the tables of %" PRIu64 " keys, %" PRIu64
             " of buffers and heap with %" PRIu64 " clients connected. %s\n",
             f.resident.total, f.resident.peak, f.resident.anonymous, f.vectors, f.dataset - f.vectors, f.keys, rest,
             f.clients, verdict);
    resp_verbatim(client_reply(c), text, strlen(text));
}

/* ---- the allocator ----------------------------------------------------------------------------------------------- */

void cmd_memory_purge(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    if (mi_collect)
        mi_collect(true);
    else
        malloc_trim(0);
    resp_simple(caller_reply(caller), "OK");
}

static void add_text(const char *text, void *context)
{
    resp_raw(context, text, strlen(text));
}

void cmd_memory_malloc_stats(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer text = {.protocol = 2};
    (void)args;
    (void)n;
    if (mi_stats_print_out) {
        mi_stats_print_out(add_text, &text);
    } else {
        struct mallinfo2 m = mallinfo2();
        char line[300];
        snprintf(line, sizeof line, "glibc malloc: arena %zu, mapped %zu in %zu blocks, in use %zu, free %zu\n",
                 m.arena, m.hblkhd, m.hblks, m.uordblks, m.fordblks);
        add_text(line, &text);
    }
    resp_verbatim(caller_reply(caller), (const char *)text.data, text.bytes);
    resp_buffer_fini(&text);
}

/* ---- DEBUG ------------------------------------------------------------------------------------------------------- */

enum { DEBUG_NO, DEBUG_LOCAL, DEBUG_YES, SLEEP_MAX = 3600 };

/* false after an error reply */
static bool may_debug(struct client *c)
{
    char address[CLIENT_ADDRESS_BYTES];
    uint64_t who = c->loop->server->service.config->debug_command;
    client_address(c, false, address);
    bool local = strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0;
    if (who == DEBUG_YES || (who == DEBUG_LOCAL && local))
        return true;
    caller_error(
        &c->caller,
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it "
        "from a local connection, otherwise you need to set this option in the configuration file, and then "
        "restart the server.");
    return false;
}

/* Sleeps on the lane's thread: its other clients wait too, which is what the command is for. */
void cmd_debug_sleep(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    double seconds;
    (void)n;
    if (!may_debug(c))
        return;
    if (!arg_number(args[2], &seconds) || !(seconds >= 0 && seconds <= SLEEP_MAX)) {
        caller_error(&c->caller, "ERR value is not a number of seconds from 0 to %d", SLEEP_MAX);
        return;
    }
    double whole = floor(seconds);
    struct timespec left = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
    nanosleep(&left, NULL);
    resp_simple(client_reply(c), "OK");
}

void cmd_debug_object(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct key_call call;
    char text[200];
    (void)n;
    if (!may_debug(c))
        return;
    if (!key_peek(&call, &c->caller, args[2])) {
        caller_error(&c->caller, "ERR no such key");
        return;
    }
    unsigned idle_s = atomic_load_explicit(&call.lock.keyspace->second, memory_order_relaxed) - call.entry->used_s;
    snprintf(text, sizeof text,
             "Value at:%p refcount:1 encoding:%s serializedlength:%" PRIu64 " lru:%u lru_seconds_idle:%u",
             (const void *)call.entry, key_encoding(call.entry), key_memory(call.entry), call.entry->used_s, idle_s);
    resp_simple(client_reply(c), text);
    key_end(&call);
}
