/*
 * cmd_memory.c - MEMORY: what is held, per key and in all.
 *
 * Memory is counted where it can be: the kernel's statistics for the process, what keys, strings and hashes take, what
 * vector sets say they keep resident.
 * Under mimalloc (which only the program links, hence the weak symbols) PURGE and MALLOC-STATS are its own; otherwise
 * those of the C library. PURGE walks the heap, so it takes its time on the lane that was asked.
 *
 * cmd_memory_of_key is the one place that knows how much a key of each type takes.
 */
#include "index/collection/collection.h"
#include "io/memory.h"
#include "server/admin/cmd_admin.h"
#include "server/admin/info.h"
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

__attribute__((weak)) void mi_collect(bool force);
__attribute__((weak)) void mi_stats_print_out(void (*print)(const char *text, void *context), void *context);

const char *cmd_memory_allocator(void)
{
    return mi_collect ? "mimalloc" : "libc";
}

uint64_t cmd_memory_of_key(const struct key_entry *entry)
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
        resp_integer(caller_reply(caller), (long long)cmd_memory_of_key(call.entry));
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
