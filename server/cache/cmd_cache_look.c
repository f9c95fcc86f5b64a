/*
 * cmd_cache_look.c - looking at semantic caches: SC.LIST, SC.INFO, SC.STATS, SC.HIST, SC.TUNE, SC.TOP, SC.SCAN,
 * SC.SAMPLE.
 *
 * SC.TOP and SC.SAMPLE look at every entry, which is the worker's; SC.SCAN at as many as its reply holds. All show the
 * questions of entries, which lie in their documents: these are read by the lane's engine before the reply is written.
 */
#include "cache/guard/guard.h"
#include "io/error.h"
#include "server/cache/cache_call.h"
#include "server/cache/cache_metrics.h"
#include "server/cache/cmd_caches.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1000, SCAN_COUNT = 10, SCOPES_SHOWN = 10, SAMPLE_COUNT = 100, SAMPLE_MAX = 2000 };
#define SAMPLE_BYTES_MAX (16u << 20) /* of vectors */
#define NOTHING_SERVED   1.01        /* a threshold that no similarity reaches */

/* ---- SC.LIST, SC.INFO -------------------------------------------------------------------------------------------- */

/* Names, gathered before the number of them is known. */
struct names {
    const struct caller *caller; /* NULL: all names are shown, not only those that it may read */
    struct resp_buffer text;
    size_t n;
};

static void add_cache(void *context, struct cache *cache)
{
    struct names *names = context;
    struct quire_bytes name = cache_get_config(cache)->name;
    const struct caller *c = names->caller;
    if (c && !c->lane->host->may_read(c, (struct resp_arg){name.data, (uint32_t)name.n_bytes}))
        return;
    resp_bulk(&names->text, name.data, name.n_bytes);
    names->n++;
}

static void add_category(void *context, struct quire_bytes name)
{
    struct names *names = context;
    resp_bulk(&names->text, name.data, name.n_bytes);
    names->n++;
}

static void put_names(struct names *names, struct resp_buffer *out)
{
    resp_array(out, names->n);
    resp_raw(out, names->text.data, names->text.bytes);
    out->failed = out->failed || names->text.failed;
    resp_buffer_fini(&names->text);
}

void cmd_sc_list(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct names names = {.caller = c, .text.protocol = c->protocol};
    struct caches *caches = c->lane->service->caches;
    (void)args;
    (void)n;
    if (caches)
        caches_each(caches, add_cache, &names);
    put_names(&names, caller_reply(c));
}

void cmd_sc_cat_list(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct names names = {.text.protocol = c->protocol};
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    cache_each_category(cache, add_category, &names);
    put_names(&names, caller_reply(c));
    cache_unref(cache);
}

void cmd_sc_info(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct names names = {.text.protocol = c->protocol};
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    if (cache_get_stats(cache, (struct quire_bytes){NULL, 0}, &stats, &err) < 0) {
        cache_reply_error(c, &err);
    } else {
        struct resp_buffer *out = caller_reply(c);
        resp_map(out, 18);
        const struct cache_config *config = cache_get_config(cache);
        cache_field_bytes(out, "name", config->name);
        cache_field_integer(out, "dim", config->dim);
        cache_field_text(out, "type", quire_type_name(config->type));
        cache_field_bytes(out, "encoder", config->encoder);
        cache_field_integer(out, "memory", (long long)config->memory_bytes);
        cache_field_integer(out, "disk", (long long)config->disk_bytes);
        resp_text(out, "scope");
        resp_array(out, config->n_scope_keys);
        for (uint32_t i = 0; i < config->n_scope_keys; i++)
            resp_bulk(out, config->scope_keys[i].data, config->scope_keys[i].n_bytes);
        cache_field_integer(out, "require_scope", config->require_scope);
        resp_text(out, "categories");
        cache_each_category(cache, add_category, &names);
        put_names(&names, out);
        cache_field_integer(out, "entries", (long long)stats.entries);
        cache_field_integer(out, "pinned", (long long)stats.pinned);
        cache_field_integer(out, "memory_bytes", (long long)stats.memory_bytes);
        cache_field_integer(out, "disk_bytes", (long long)stats.disk_bytes);
        cache_field_integer(out, "document_bytes", (long long)stats.document_bytes);
        cache_field_integer(out, "sealed_entries", (long long)stats.sealed_entries);
        cache_field_integer(out, "sealed_segments", (long long)stats.sealed_segments);
        cache_field_integer(out, "sealed_disk_bytes", (long long)stats.sealed_disk_bytes);
        cache_field_integer(out, "sealed_memory_bytes", (long long)stats.sealed_memory_bytes);
    }
    cache_unref(cache);
}

/* ---- SC.STATS, SC.HIST, SC.TUNE ---------------------------------------------------------------------------------- */

void cmd_sc_stats(struct caller *c, const struct resp_arg *args, uint32_t n)
{
#define X(name) +1
    enum { FIELDS = 2 CACHE_COUNTS(X) CACHE_NUMBERS(X) };
#undef X
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct quire_bytes category = {NULL, 0};
    uint64_t guarded[GUARD_KINDS] = {0};
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = n == 2 || (n == 4 && arg_is(args[2], "CAT") && args[3].bytes)
                 ? 0
                 : error_set(&err, QUIRE_EINVALID, "syntax error at '%.*s': SC.STATS cache [CAT category]",
                             ARG_SHOWN(args[2], 64u));
    if (rc == 0 && n == 4)
        category = cache_arg_bytes(args[3]);
    if (rc == 0)
        rc = cache_get_stats(cache, category, &stats, &err);
    if (rc == 0)
        rc = cache_get_guarded(cache, category, guarded, &err);
    if (rc < 0) {
        cache_reply_error(c, &err);
    } else {
        struct cache_scope_stats scopes[SCOPES_SHOWN]; /* those that have the most entries */
        uint32_t n_scopes = n == 2 ? cache_top_scopes(cache, scopes, SCOPES_SHOWN) : 0;
        struct resp_buffer *out = caller_reply(c);
        resp_map(out, FIELDS + (n == 2));
#define X(name) cache_field_integer(out, #name, (long long)stats.name);
        CACHE_COUNTS(X)
#undef X
#define X(name) cache_field_double(out, #name, stats.name);
        CACHE_NUMBERS(X)
#undef X
        cache_field_double(out, "hit_rate", cache_hit_rate(&stats));
        resp_text(out, "guards");
        resp_map(out, GUARD_KINDS);
        for (unsigned kind = 0; kind < GUARD_KINDS; kind++)
            cache_field_integer(out, guard_name(kind), (long long)guarded[kind]);
        if (n == 2) {
            resp_text(out, "scopes");
            resp_array(out, n_scopes);
        }
        for (uint32_t i = 0; i < n_scopes; i++) {
            resp_map(out, 4);
            cache_field_text(out, "scope", scopes[i].text);
            cache_field_integer(out, "entries", (long long)scopes[i].entries);
            cache_field_integer(out, "requests", (long long)scopes[i].requests);
            cache_field_integer(out, "hits", (long long)scopes[i].hits);
        }
    }
    cache_unref(cache);
}

static bool bin_holds(const struct cache_histogram *h, uint32_t bin)
{
    return (h->hits[bin] | h->misses[bin] | h->guarded[bin] | h->right[bin] | h->wrong[bin]) != 0;
}

void cmd_sc_hist(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct cache_histogram h;
    size_t bins = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    if (cache_get_histogram(cache, cache_arg_bytes(args[2]), &h, &err) < 0) {
        cache_reply_error(c, &err);
        cache_unref(cache);
        return;
    }
    struct resp_buffer *out = caller_reply(c);
    for (uint32_t i = 0; i < CACHE_HISTOGRAM_BINS; i++)
        bins += bin_holds(&h, i);
    resp_array(out, bins);
    for (uint32_t i = 0; i < CACHE_HISTOGRAM_BINS; i++) {
        if (!bin_holds(&h, i))
            continue;
        const uint64_t *columns[] = {h.hits, h.misses, h.guarded, h.right, h.wrong};
        resp_array(out, 6);
        resp_double(out, (double)i / (CACHE_HISTOGRAM_BINS - 1));
        for (size_t column = 0; column < 5; column++)
            resp_integer(out, (long long)columns[column][i]);
    }
    cache_unref(cache);
}

/* With RISK delta: what would be chosen for it. */
void cmd_sc_tune(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct quire_cache_tune tune;
    double delta = -1; /* the one in force */
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_option(args, n, 3, "RISK", "SC.TUNE cache category [RISK delta]", &err);
    if (rc == 0 && n == 5)
        rc = cache_arg_number("RISK", args[4], 1, &delta, &err);
    if (rc == 0)
        rc = cache_tune(cache, cache_arg_bytes(args[2]), delta, &tune, &err);
    if (rc != 0) {
        cache_reply_error(c, &err);
    } else {
        struct resp_buffer *out = caller_reply(c);
        resp_map(out, 5);
        cache_field_double(out, "threshold", tune.threshold);
        cache_field_double(out, "delta", tune.delta);
        cache_field_integer(out, "requests", (long long)tune.requests);
        cache_field_integer(out, "labels", (long long)tune.labels);
        resp_text(out, "points");
        resp_array(out, tune.n);
        for (uint32_t i = 0; i < tune.n; i++) {
            resp_array(out, 4);
            resp_double(out, tune.points[i].similarity);
            resp_double(out, tune.points[i].served);
            resp_double(out, tune.points[i].wrong);
            resp_double(out, tune.points[i].bound);
        }
    }
    cache_unref(cache);
}

/* ---- SC.TOP, SC.SCAN, SC.SAMPLE ---------------------------------------------------------------------------------- */

struct entries_call {
    struct worker_call base;
    struct cache *cache; /* a reference */
    struct cache_reading reading;
    bool scan, values;
    uint64_t next;                 /* cursor */
    struct cache_sampled *sampled; /* of SC.SAMPLE, and their vectors; owned; NULL: it is another */
    int8_t *vectors;
    uint32_t n, capacity;
    struct cache_entry_info *infos; /* owned, as items */
    struct cache_text *items;
    struct quire_bytes category; /* of SC.TOP, SC.SAMPLE; in bytes */
    uint8_t bytes[];
};

static void end_entries(struct entries_call *call)
{
    cache_reading_fini(&call->reading);
    free(call->infos);
    free(call->items);
    free(call->sampled);
    free(call->vectors);
    cache_unref(call->cache);
    deferred_end(&call->base.base);
}

static void on_entries_read(struct cache_reading *reading)
{
    struct entries_call *call =
        (struct entries_call *)(void *)((char *)reading - offsetof(struct entries_call, reading));
    struct resp_buffer *out = &call->base.base.pending.out;
    uint64_t now_ms = clock_wall_ms();
    if (call->scan) {
        char cursor[24];
        snprintf(cursor, sizeof cursor, "%llu", (unsigned long long)call->next);
        resp_array(out, 2);
        resp_text(out, cursor);
    }
    resp_array(out, call->n);
    for (uint32_t i = 0; i < call->n; i++) {
        const struct cache_entry_info *info = &call->infos[i];
        uint64_t created_ms = info->created_ms;
        resp_map(out, call->sampled ? 11 : 7 + (size_t)call->scan + (size_t)call->values);
        cache_field_id(out, "id", info->id);
        cache_field_integer(out, "hits", info->hits);
        cache_field_integer(out, "age_ms", now_ms > created_ms ? (long long)(now_ms - created_ms) : 0);
        cache_field_integer(out, "ttl_ms", cache_ttl(info->expire_ms, now_ms));
        cache_field_integer(out, "bytes", info->document_bytes);
        cache_field_integer(out, "pinned", info->pinned);
        cache_field_bytes(out, "text", (struct quire_bytes){call->items[i].bytes, call->items[i].text});
        if (call->values)
            cache_field_bytes(
                out, "value",
                (struct quire_bytes){call->items[i].bytes ? call->items[i].bytes + call->items[i].text : NULL,
                                     call->items[i].value});
        if (call->scan || call->sampled)
            cache_field_bytes(out, "category", info->category);
        if (!call->sampled)
            continue;
        const struct cache_sampled *one = &call->sampled[i];
        size_t dim = cache_get_config(call->cache)->dim;
        cache_field_bytes(out, "scope", (struct quire_bytes){one->scope, strlen(one->scope)});
        cache_field_double(out, "step", (double)one->step);
        cache_field_bytes(out, "vector", (struct quire_bytes){call->vectors + i * dim, dim});
    }
    end_entries(call);
}

static void refuse_entries(struct worker_call *base)
{
    struct entries_call *call = (struct entries_call *)base;
    resp_quire_error(&base->base.pending.out, &base->error);
    end_entries(call);
}

/* The entries are known, base->code of them, or it is an error: their questions are read. */
static void entries_found(struct worker_call *base)
{
    struct entries_call *call = (struct entries_call *)base;
    if (base->code < 0) {
        refuse_entries(base);
        return;
    }
    call->n = (uint32_t)base->code;
    for (uint32_t i = 0; i < call->n; i++)
        call->items[i] = (struct cache_text){.id = call->infos[i].id, .at = call->infos[i].at};
    call->reading = (struct cache_reading){.lane = base->base.lane,
                                           .pending = &base->base.pending,
                                           .log = cache_documents(call->cache),
                                           .items = call->items,
                                           .n = call->n,
                                           .with_values = call->values,
                                           .done = on_entries_read};
    cache_reading_start(&call->reading);
}

/* Takes the reference to the cache over. NULL: after an error reply, or without memory for one. */
static struct entries_call *begin_entries(struct caller *c, struct cache *cache, uint64_t capacity,
                                          struct quire_bytes category, bool barrier)
{
    struct entries_call *call = deferred_begin(c, NULL, sizeof *call + category.n_bytes, barrier);
    if (!call) {
        cache_unref(cache);
        return NULL;
    }
    call->cache = cache;
    call->capacity = (uint32_t)capacity;
    if (caller_hold(&call->base.base.pending, capacity * (sizeof *call->infos + sizeof *call->items))) {
        call->infos = calloc(capacity, sizeof *call->infos);
        call->items = calloc(capacity, sizeof *call->items);
    }
    call->base.done = entries_found;
    if (!call->infos || !call->items) {
        error_set(&call->base.error, QUIRE_ENOMEM, "no memory for %u entries", call->capacity);
        refuse_entries(&call->base);
        return NULL;
    }
    call->category = category;
    if (category.n_bytes)
        call->category.data = memcpy(call->bytes, category.data, category.n_bytes);
    return call;
}

static void find_top(struct worker_call *base)
{
    struct entries_call *call = (struct entries_call *)base;
    base->code = cache_top(call->cache, call->category, call->infos, call->capacity, &base->error);
}

void cmd_sc_top(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t count;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_integer("the number of entries", args[3], 1, ENTRIES_MAX, &count, &err);
    if (rc == 0 && (n > 5 || (n == 5 && !arg_is(args[4], "WITHVALUES"))))
        rc = error_set(&err, QUIRE_EINVALID, "syntax error at '%.*s': SC.TOP cache category count [WITHVALUES]",
                       ARG_SHOWN(args[n > 5 ? 5 : 4], 64u));
    if (rc < 0) {
        cache_reply_error(c, &err);
        cache_unref(cache);
        return;
    }
    struct entries_call *call = begin_entries(c, cache, count, cache_arg_bytes(args[2]), true);
    if (!call)
        return;
    call->values = n == 5;
    call->base.work = find_top;
    worker_call_start(&call->base);
}

void cmd_sc_scan(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    static const char syntax[] = "SC.SCAN cache cursor [CAT category] [COUNT n] [WITHVALUES]";
    struct quire_error err = {0};
    struct quire_bytes category = {NULL, 0};
    uint64_t cursor = 0, count = SCAN_COUNT;
    bool counted = false, values = false;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_integer("the cursor", args[2], 0, INT64_MAX, &cursor, &err);
    for (uint32_t i = 3; rc == 0 && i < n; i++) {
        if (arg_is(args[i], "CAT") && !category.data && i + 1 < n && args[i + 1].bytes)
            category = cache_arg_bytes(args[++i]);
        else if (arg_is(args[i], "COUNT") && !counted && i + 1 < n) {
            counted = true;
            rc = cache_arg_integer("COUNT", args[++i], 1, ENTRIES_MAX, &count, &err);
        } else if (arg_is(args[i], "WITHVALUES") && !values)
            values = true;
        else
            rc = error_set(&err, QUIRE_EINVALID, "syntax error at '%.*s': %s", ARG_SHOWN(args[i], 64u), syntax);
    }
    if (rc < 0) {
        cache_reply_error(c, &err);
        cache_unref(cache);
        return;
    }
    struct entries_call *call = begin_entries(c, cache, count, category, false);
    if (!call)
        return;
    struct worker_call *base = &call->base;
    call->scan = true;
    call->values = values;
    base->code = cache_scan(cache, call->category, cursor, call->infos, call->capacity, &call->next, &base->error);
    entries_found(base);
}

static void find_sample(struct worker_call *base)
{
    struct entries_call *call = (struct entries_call *)base;
    base->code = cache_sample(call->cache, call->category, call->sampled, call->vectors, call->capacity, &base->error);
    for (int i = 0; i < base->code; i++)
        call->infos[i] = call->sampled[i].info;
}

void cmd_sc_sample(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    static const char syntax[] = "SC.SAMPLE cache [CAT category] [COUNT n]";
    struct quire_error err = {0};
    struct quire_bytes category = {NULL, 0};
    uint64_t count = SAMPLE_COUNT;
    bool counted = false;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = n % 2 ? error_set(&err, QUIRE_EINVALID, "syntax error: %s", syntax) : 0;
    for (uint32_t i = 2; rc == 0 && i < n; i += 2) {
        if (arg_is(args[i], "CAT") && !category.data && args[i + 1].bytes)
            category = cache_arg_bytes(args[i + 1]);
        else if (arg_is(args[i], "COUNT") && !counted) {
            counted = true;
            rc = cache_arg_integer("COUNT", args[i + 1], 1, SAMPLE_MAX, &count, &err);
        } else
            rc = error_set(&err, QUIRE_EINVALID, "syntax error at '%.*s': %s", ARG_SHOWN(args[i], 64u), syntax);
    }
    size_t dim = cache_get_config(cache)->dim;
    if (rc == 0 && count * dim > SAMPLE_BYTES_MAX)
        rc = error_set(&err, QUIRE_ERANGE, "%llu vectors of %zu numbers are more than %u bytes: COUNT %zu or less",
                       (unsigned long long)count, dim, SAMPLE_BYTES_MAX, SAMPLE_BYTES_MAX / dim);
    if (rc < 0) {
        cache_reply_error(c, &err);
        cache_unref(cache);
        return;
    }
    struct entries_call *call = begin_entries(c, cache, count, category, true);
    if (!call)
        return;
    if (caller_hold(&call->base.base.pending, count * (dim + sizeof *call->sampled))) {
        call->sampled = calloc(count, sizeof *call->sampled);
        call->vectors = malloc(count * dim);
    }
    if (!call->sampled || !call->vectors) {
        error_set(&call->base.error, QUIRE_ENOMEM, "no memory for %u vectors", call->capacity);
        refuse_entries(&call->base);
        return;
    }
    call->base.work = find_sample;
    worker_call_start(&call->base);
}
