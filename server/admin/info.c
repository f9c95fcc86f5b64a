/*
 * info.c - INFO: the server's statistics as sections of "name:value" lines.
 *
 * Statistics are read while the lanes go on counting, so sums may be a moment apart; each number itself is whole.
 * Names that tools know (prometheus-redis-exporter, clients' start-up checks) are Redis's; what is Quire's own stands
 * in section "quire".
 *
 * redis_version is a setting: clients look at it to know which commands they may use. Whose server this is says
 * quire_version.
 */
#include "server/admin/info.h"
#include "cache/core/cache.h"
#include "document/index/documents.h"
#include "index/collection/collection.h"
#include "index/kernels/kernels.h"
#include "index/store/store.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/access/command_table.h"
#include "server/admin/snapshot.h"
#include "server/cache/cache_metrics.h"
#include "server/call/fair_metrics.h"
#include "server/commands/modules.h"
#include "server/device/device.h"
#include "server/keys/keyspace.h"
#include "server/net/client.h"
#include "server/protocol/label.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* What sections are written from and to. */
struct page {
    struct server *server;
    struct resp_buffer *text;
    struct info_totals sums;
};

__attribute__((format(printf, 2, 3))) static void line(struct page *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    resp_format(p->text, format, arguments);
    va_end(arguments);
    resp_raw(p->text, "\r\n", 2);
}

void info_sum(const struct server *server, struct info_totals *sums)
{
    uint64_t largest = 0;
    memset(sums, 0, sizeof *sums);
    histogram_init(&sums->latency, sums->latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    for (unsigned i = 0; i < server->service.n_lanes; i++) {
        const struct loop *loop = &server->loops[i];
#define X(name) sums->name += lane_stat_get(&loop->lane.stats.name);
        LANE_STATS(X)
#undef X
        sums->clients += atomic_load(&loop->n_clients);
        uint64_t peak = lane_stat_get(&loop->lane.stats.output_bytes_peak);
        sums->output_bytes_peak = peak > largest ? peak : largest;
        largest = sums->output_bytes_peak;
        histogram_merge(&sums->latency, &loop->lane.stats.latency);
    }
}

/* 0 before the first search. */
static double latency_us(const struct info_totals *sums, double share)
{
    double us = histogram_percentile(&sums->latency, share);
    return isnan(us) ? 0 : us;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static void section_server(struct page *p)
{
    struct timespec now;
    struct utsname system;
    char path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seconds = (uint64_t)now.tv_sec - p->server->started_ms / 1000;
    line(p, "redis_version:%s", p->server->service.config->redis_version);
    line(p, "quire_version:%s", quire_version());
    line(p, "redis_mode:standalone");
    if (uname(&system) == 0)
        line(p, "os:%s %s %s", system.sysname, system.release, system.machine);
    line(p, "arch_bits:%zu", 8 * sizeof(void *));
    line(p, "process_id:%d", (int)getpid());
    line(p, "run_id:%s", p->server->run_id);
    line(p, "tcp_port:%u", p->server->port);
    line(p, "server_time_usec:%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    line(p, "uptime_in_seconds:%" PRIu64, seconds);
    line(p, "uptime_in_days:%" PRIu64, seconds / 86400);
    line(p, "executable:%s", path);
    line(p, "config_file:%s", p->server->service.config->file ? p->server->service.config->file : "");
}

static void section_clients(struct page *p)
{
    line(p, "connected_clients:%" PRIu64, p->sums.clients);
    line(p, "connected_clients_tls:%" PRIu64, p->sums.tls_clients);
    line(p, "maxclients:%" PRIu64, p->server->service.config->maxclients);
    line(p, "blocked_clients:0");
    line(p, "tracking_clients:0");
    line(p, "monitor_clients:%u", atomic_load(&p->server->n_monitors));
    line(p, "client_recent_max_output_buffer:%" PRIu64, p->sums.output_bytes_peak);
}

static void sum_memory(void *context, const struct key_entry *entry)
{
    uint64_t *bytes = context;
    struct collection_stats stats;
    if (entry->type != KEY_VECTOR_SET)
        return;
    collection_get_stats(entry->set, &stats);
    *bytes += stats.memtable_bytes + stats.resident_bytes;
}

uint64_t info_index_bytes(struct server *server)
{
    uint64_t bytes = 0;
    keyspace_each(&server->service.keyspace, sum_memory, &bytes);
    return bytes;
}

static void sum_cache_memory(void *context, struct cache *cache)
{
    uint64_t *bytes = context;
    struct quire_cache_stats stats;
    if (cache_get_stats(cache, (struct quire_bytes){NULL, 0}, &stats, NULL) == 0)
        *bytes += stats.memory_bytes;
}

uint64_t info_cache_bytes(struct server *server)
{
    uint64_t bytes = 0;
    if (server->service.caches)
        caches_each(server->service.caches, sum_cache_memory, &bytes);
    return bytes;
}

/* Bytes as people read them: "1.50G". */
static const char *human(uint64_t bytes, char text[32])
{
    static const char units[] = "BKMGT";
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && units[unit + 1]; unit++)
        value /= 1024;
    snprintf(text, 32, unit ? "%.2f%c" : "%.0f%c", value, units[unit]);
    return text;
}

static void section_memory(struct page *p)
{
    struct memory_resident resident;
    uint64_t indexes = info_index_bytes(p->server), most = p->server->service.config->maxmemory;
    char shown[32];
    memory_resident(&resident);
    line(p, "used_memory:%" PRIu64, resident.anonymous);
    line(p, "used_memory_human:%s", human(resident.anonymous, shown));
    line(p, "used_memory_rss:%" PRIu64, resident.total);
    line(p, "used_memory_rss_human:%s", human(resident.total, shown));
    line(p, "used_memory_peak:%" PRIu64, resident.peak);
    line(p, "used_memory_peak_human:%s", human(resident.peak, shown));
    line(p, "used_memory_dataset:%" PRIu64, (uint64_t)atomic_load(&p->server->service.keyspace.used_bytes));
    line(p, "used_memory_indexes:%" PRIu64, indexes);
    line(p, "used_memory_documents:%" PRIu64, documents_bytes(p->server->service.documents));
    line(p, "used_memory_caches:%" PRIu64, info_cache_bytes(p->server));
    line(p, "mem_clients_normal:%" PRIu64, client_memory_total(p->server));
    line(p, "maxmemory_clients:%" PRIu64, client_memory_max(p->server));
    line(p, "maxmemory:%" PRIu64, most);
    line(p, "maxmemory_human:%s", human(most, shown));
    line(p, "maxmemory_policy:noeviction");
    line(p, "mem_fragmentation_ratio:%.2f",
         resident.anonymous ? (double)resident.total / (double)resident.anonymous : 0.0);
    line(p, "mem_allocator:%s", cmd_memory_allocator());
}

struct search_totals {
    uint64_t indexes, documents, failures, uses, filling, vector_memory, vector_disk;
};

static void add_index(void *context, struct document_index *index)
{
    struct search_totals *t = context;
    struct document_index_stats stats;
    document_index_get_stats(index, &stats);
    t->indexes++;
    t->documents += stats.documents;
    t->failures += stats.failures;
    t->uses += stats.uses;
    t->filling += stats.filling;
    t->vector_memory += stats.vectors.memory_bytes;
    t->vector_disk += stats.vectors.disk_bytes;
}

/* Indexes of documents (FT.*). */
static void section_search(struct page *p)
{
    struct search_totals t = {0};
    documents_each(p->server->service.documents, add_index, &t);
    line(p, "search_number_of_indexes:%" PRIu64, t.indexes);
    line(p, "search_indexes_being_filled:%" PRIu64, t.filling);
    line(p, "search_documents:%" PRIu64, t.documents);
    line(p, "search_indexing_failures:%" PRIu64, t.failures);
    line(p, "search_queries:%" PRIu64, t.uses);
    line(p, "search_memory_bytes:%" PRIu64, documents_bytes(p->server->service.documents));
    line(p, "search_vector_memory_bytes:%" PRIu64, t.vector_memory);
    line(p, "search_vector_disk_bytes:%" PRIu64, t.vector_disk);
}

static void section_persistence(struct page *p)
{
    struct journal_stats log;
    struct store_stats stats;
    struct quire_error err;
    line(p, "loading:0");
    line(p, "async_loading:0");
    pthread_mutex_lock(&p->server->snapshots->lock);
    struct snapshots now = *p->server->snapshots;
    pthread_mutex_unlock(&p->server->snapshots->lock);
    uint64_t last_lsn = p->server->service.journal ? journal_last_lsn(p->server->service.journal) : 0;
    line(p, "rdb_changes_since_last_save:%" PRIu64, last_lsn > now.lsn ? last_lsn - now.lsn : 0);
    line(p, "rdb_bgsave_in_progress:%d", now.running > 0);
    line(p, "rdb_last_save_time:%" PRIu64, now.last_s);
    line(p, "rdb_last_bgsave_status:%s", now.failed ? "err" : "ok");
    line(p, "rdb_last_bgsave_time_sec:%" PRId64, now.seconds);
    line(p, "rdb_current_bgsave_time_sec:%" PRId64, now.begun_s ? (int64_t)time(NULL) - (int64_t)now.begun_s : -1);
    line(p, "rdb_saves:%" PRIu64, now.saves);
    line(p, "aof_enabled:%d", p->server->service.journal != NULL);
    if (!p->server->service.store)
        return;
    journal_get_stats(p->server->service.journal, &log);
    store_get_stats(p->server->service.store, &stats);
    line(p, "aof_rewrite_in_progress:%d", stats.checkpointing || now.rewriting);
    line(p, "aof_rewrite_scheduled:0");
    line(p, "aof_last_rewrite_time_sec:%" PRId64, now.rewrite_seconds);
    line(p, "aof_last_bgrewrite_status:%s", now.rewrite_failed ? "err" : "ok");
    line(p, "aof_last_write_status:%s", journal_health(p->server->service.journal, &err) == 0 ? "ok" : "err");
    line(p, "aof_current_size:%" PRIu64, log.log_bytes + log.checkpoint_bytes);
    line(p, "aof_base_size:%" PRIu64, log.checkpoint_bytes);
    line(p, "aof_buffer_length:%" PRIu64, log.unwritten_bytes);
    line(p, "aof_rewrites:%" PRIu64, stats.checkpoints);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

enum { DAMAGE_SHOWN = 100 }; /* of what is unavailable; the rest is counted */

struct damage {
    struct page *page;
    unsigned shown;
};

void info_count_unavailable(const struct server *server, uint64_t *sets, uint64_t *caches)
{
    struct store_stats stats = {0};
    if (server->service.store)
        store_get_stats(server->service.store, &stats);
    *sets = stats.unavailable;
    *caches = server->service.caches ? caches_count_unavailable(server->service.caches) : 0;
}

static void damage_line(struct damage *d, const char *kind, struct quire_bytes name, const struct quire_error *why)
{
    char label[LABEL_BYTES];
    label_write(name, label);
    if (d->shown < DAMAGE_SHOWN)
        line(d->page, "unavailable%u:%s=%s,why=%s", d->shown, kind, label, why->message);
    d->shown++;
}

static void show_set(void *context, const struct key_entry *entry)
{
    struct quire_error why;
    if (entry->type == KEY_VECTOR_SET && collection_available(entry->set, &why) < 0)
        damage_line(context, "set", (struct quire_bytes){entry->key, entry->node.key_bytes}, &why);
}

static void show_cache(void *context, struct cache *cache)
{
    struct quire_error why;
    if (cache_available(cache, &why) < 0)
        damage_line(context, "cache", cache_get_config(cache)->name, &why);
}

static void section_damage(struct page *p)
{
    struct damage d = {.page = p};
    uint64_t sets, caches;
    info_count_unavailable(p->server, &sets, &caches);
    line(p, "unavailable_sets:%" PRIu64, sets);
    line(p, "unavailable_caches:%" PRIu64, caches);
    if (sets)
        keyspace_each(&p->server->service.keyspace, show_set, &d);
    if (caches)
        caches_each(p->server->service.caches, show_cache, &d);
}

static void section_stats(struct page *p)
{
    line(p, "total_connections_received:%" PRIu64, p->sums.connections);
    line(p, "total_connections_tls:%" PRIu64, p->sums.tls_connections);
    line(p, "tls_failures:%" PRIu64, p->sums.tls_failures);
    line(p, "total_commands_processed:%" PRIu64, p->sums.commands);
    line(p, "total_net_input_bytes:%" PRIu64, p->sums.net_input_bytes);
    line(p, "total_net_output_bytes:%" PRIu64, p->sums.net_output_bytes);
    line(p, "instantaneous_ops_per_sec:%" PRIu64, lane_stat_get(&p->server->ops_per_second));
    line(p, "rejected_connections:%" PRIu64, (uint64_t)atomic_load(&p->server->rejected_connections));
    line(p, "client_output_buffer_limit_disconnections:%" PRIu64, p->sums.closed_output_limit);
    line(p, "client_query_buffer_limit_disconnections:%" PRIu64, p->sums.closed_query_limit);
    line(p, "protocol_error_disconnections:%" PRIu64, p->sums.closed_protocol);
    line(p, "unauthenticated_disconnections:%" PRIu64, p->sums.closed_unauthenticated);
    line(p, "http_disconnections:%" PRIu64, p->sums.closed_http);
    line(p, "evicted_clients:%" PRIu64, p->sums.evicted_clients);
    line(p, "idle_disconnections:%" PRIu64, p->sums.closed_idle);
    line(p, "expired_keys:%" PRIu64, (uint64_t)atomic_load(&p->server->service.keyspace.expired));
    line(p, "keyspace_hits:%" PRIu64, p->sums.keyspace_hits);
    line(p, "keyspace_misses:%" PRIu64, p->sums.keyspace_misses);
    line(p, "total_error_replies:%" PRIu64, p->sums.error_replies);
    line(p, "acl_access_denied_auth:%" PRIu64, p->sums.auth_failures);
    line(p, "acl_access_denied_cmd:%" PRIu64, p->sums.acl_denied_commands);
    line(p, "acl_access_denied_key:%" PRIu64, p->sums.acl_denied_keys);
}

static void section_replication(struct page *p)
{
    line(p, "role:master");
    line(p, "connected_slaves:0");
    line(p, "master_replid:%s", p->server->run_id);
    line(p, "master_repl_offset:0");
}

static void section_cpu(struct page *p)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) < 0)
        return;
    line(p, "used_cpu_sys:%lld.%06ld", (long long)usage.ru_stime.tv_sec, (long)usage.ru_stime.tv_usec);
    line(p, "used_cpu_user:%lld.%06ld", (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec);
}

void info_row(const struct server *server, unsigned row, struct info_row_totals *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < server->service.n_lanes; i++) {
        const struct command_stats *s = &server->loops[i].lane.stats.commands_by_row[row];
        out->calls += lane_stat_get(&s->calls);
        out->us += lane_stat_get(&s->us);
        out->failed += lane_stat_get(&s->failed);
        out->rejected += lane_stat_get(&s->rejected);
    }
}

static void section_commandstats(struct page *p)
{
    for (unsigned row = 0; row < n_commands; row++) {
        struct info_row_totals f;
        info_row(p->server, row, &f);
        if (f.calls + f.rejected)
            line(p,
                 "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=%" PRIu64
                 ",failed_calls=%" PRIu64,
                 commands[row].name, f.calls, f.us, f.calls ? (double)f.us / (double)f.calls : 0.0, f.rejected,
                 f.failed);
    }
}

static void section_latencystats(struct page *p)
{
    for (unsigned row = 0; row < n_commands; row++) {
        struct histogram all;
        _Atomic uint64_t counts[ROW_BUCKETS] = {0};
        histogram_init(&all, counts, ROW_SUB_BITS, ROW_BITS);
        for (unsigned i = 0; i < p->server->service.n_lanes; i++)
            histogram_merge(&all, &p->server->loops[i].lane.stats.commands_by_row[row].latency);
        if (histogram_count(&all))
            line(p, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f", commands[row].name,
                 histogram_percentile(&all, 0.5), histogram_percentile(&all, 0.99), histogram_percentile(&all, 0.999));
    }
}

/* How often all lanes from `lane` on have counted a code; 0 where an earlier lane has it, which then spoke for all. */
static uint64_t errors_of_code(const struct server *server, unsigned lane, const char *code)
{
    uint64_t count = 0;
    for (unsigned l = 0; l < server->service.n_lanes; l++) {
        const struct lane_stats *stats = &server->loops[l].lane.stats;
        unsigned n = atomic_load_explicit(&stats->n_errors, memory_order_acquire);
        for (unsigned i = 0; i < n; i++) {
            bool same = strcmp(stats->errors[i].code, code) == 0;
            if (same && l < lane)
                return 0;
            count += same ? lane_stat_get(&stats->errors[i].count) : 0;
        }
    }
    return count;
}

void info_errors(const struct server *server, void (*visit)(void *context, const char *code, uint64_t count),
                 void *context)
{
    for (unsigned l = 0; l < server->service.n_lanes; l++) {
        const struct lane_stats *stats = &server->loops[l].lane.stats;
        unsigned n = atomic_load_explicit(&stats->n_errors, memory_order_acquire);
        for (unsigned i = 0; i < n; i++) {
            uint64_t count = errors_of_code(server, l, stats->errors[i].code);
            if (count)
                visit(context, stats->errors[i].code, count);
        }
    }
}

static void error_line(void *page, const char *code, uint64_t count)
{
    line(page, "errorstat_%s:count=%" PRIu64, code, count);
}

static void section_errorstats(struct page *p)
{
    info_errors(p->server, error_line, p);
}

static void section_cluster(struct page *p)
{
    line(p, "cluster_enabled:0");
}

static void section_keyspace(struct page *p)
{
    struct keyspace_expiries expiries;
    size_t keys = keyspace_count(&p->server->service.keyspace);
    keyspace_get_expiries(&p->server->service.keyspace, &expiries);
    if (keys)
        line(p, "db0:keys=%zu,expires=%" PRIu64 ",avg_ttl=%" PRIu64, keys, expiries.keys, expiries.mean_ms);
}

static void journal_lines(struct page *p)
{
    struct journal_stats s;
    if (!p->server->service.journal)
        return;
    journal_get_stats(p->server->service.journal, &s);
    line(p, "log_frames:%" PRIu64, s.frames);
    line(p, "log_bytes:%" PRIu64, s.log_bytes);
    line(p, "log_files:%" PRIu64, s.log_files);
    line(p, "log_unwritten_bytes:%" PRIu64, s.unwritten_bytes);
    line(p, "log_syncs:%" PRIu64, s.syncs);
    line(p, "log_sync_us:mean=%.0f,max=%" PRIu64, s.syncs ? (double)s.sync_us / (double)s.syncs : 0.0, s.sync_us_max);
    line(p, "log_failures:%" PRIu64, s.failures);
    line(p, "log_delayed:%" PRIu64, s.delayed);
    line(p, "checkpoint_bytes:%" PRIu64, s.checkpoint_bytes);
}

static void store_lines(struct page *p)
{
    struct store_stats s;
    if (!p->server->service.store)
        return;
    store_get_stats(p->server->service.store, &s);
    line(p, "collections:%" PRIu64, s.collections);
    line(p, "segments:%" PRIu64, s.segments);
    line(p, "memtable_bytes:%" PRIu64, s.memtable_bytes);
    line(p, "resident_bytes:%" PRIu64, s.resident_bytes);
    line(p, "disk_bytes:%" PRIu64, s.disk_bytes);
    line(p, "seals:%" PRIu64, s.seals);
    line(p, "merges:%" PRIu64, s.merges);
    line(p, "checkpoints:%" PRIu64, s.checkpoints);
    line(p, "rows_sealed:%" PRIu64, s.rows_sealed);
    line(p, "rows_merged:%" PRIu64, s.rows_merged);
    line(p, "store_failures:%" PRIu64, s.failures);
    line(p, "sealing:%d", s.sealing);
    line(p, "merging:%d", s.merging);
    line(p, "checkpointing:%d", s.checkpointing);
    line(p, "writers_wait:%d", store_is_behind(p->server->service.store));
}

static void section_quire(struct page *p)
{
    double searches = p->sums.searches ? (double)p->sums.searches : 1;
    struct loop *loop = &p->server->loops[0];
    line(p, "lanes:%u", p->server->service.n_lanes);
    pthread_mutex_lock(&loop->inbox_lock);
    line(p, "engine:%s", loop->engine_name);
    line(p, "engine_note:%s", loop->engine_note);
    pthread_mutex_unlock(&loop->inbox_lock);
    line(p, "cpu:%s", kernels()->name);
    line(p, "searches:%" PRIu64, p->sums.searches);
    line(p, "search_errors:%" PRIu64, p->sums.search_errors);
    line(p, "search_reads:%" PRIu64, p->sums.search_reads);
    line(p, "reads_per_search:%.2f", (double)p->sums.search_reads / searches);
    line(p, "rounds_per_search:%.2f", (double)p->sums.search_rounds / searches);
    line(p, "step_us_per_search:%.1f", (double)p->sums.search_cpu_ns / searches / 1000);
    line(p, "search_latency_us:p50=%.0f,p99=%.0f,p99.9=%.0f", latency_us(&p->sums, 0.5), latency_us(&p->sums, 0.99),
         latency_us(&p->sums, 0.999));
    line(p, "fetches:%" PRIu64, p->sums.fetches);
    line(p, "fetch_reads:%" PRIu64, p->sums.fetch_reads);
    line(p, "device_reads:%" PRIu64, p->sums.engine_reads);
    line(p, "device_read_bytes:%" PRIu64, p->sums.engine_read_bytes);
    line(p, "device_read_errors:%" PRIu64, p->sums.engine_read_errors);
    line(p, "reads_in_flight:%" PRIu64, p->sums.reads_in_flight);
    line(p, "reads_in_flight_peak_sum:%" PRIu64, p->sums.reads_in_flight_peak);
    line(p, "reads_waiting:%" PRIu64, p->sums.reads_waiting);
    line(p, "submissions:%" PRIu64, p->sums.engine_submissions);
    store_lines(p);
    journal_lines(p);
}

/* What the setting gpu has come to, and what the device has done. A line of its own for each sentence. */
static void section_gpu(struct page *p)
{
    static const char *const states[] = {"opening", "ready", "none", "lost"};
    struct device *device = p->server->service.device;
    struct device_status s;
    line(p, "gpu_wanted:%s", p->server->service.config->gpu);
    if (!device) {
        line(p, "gpu_state:off");
        return;
    }
    device_get_status(device, &s);
    line(p, "gpu_state:%s", states[s.state]);
    line(p, "gpu_device:%s", s.offload.device.name);
    line(p, "gpu_note:%s", s.state == DEVICE_LOST ? s.offload.note : s.note);
    line(p, "gpu_memory_bytes:%" PRIu64, s.offload.device.memory_bytes);
    line(p, "gpu_rows_bytes:%" PRIu64, s.rows_bytes);
    line(p, "gpu_segments:%" PRIu64, s.segments);
    line(p, "gpu_asks:%" PRIu64, s.asks);
    line(p, "gpu_batches:%" PRIu64, s.batches);
    line(p, "gpu_queries:%" PRIu64, s.queries);
    line(p, "gpu_queries_waiting:%" PRIu64, s.waiting);
    line(p, "gpu_named:%" PRIu64, s.named);
    line(p, "gpu_uncertain:%" PRIu64, s.uncertain);
    line(p, "gpu_declined:%" PRIu64, s.declined);
    line(p, "gpu_failed:%" PRIu64, s.failed);
    line(p, "gpu_refused:%" PRIu64, s.refused);
    line(p, "gpu_last_fall_back:%s", s.last_fall_back);
    line(p, "gpu_calls:%" PRIu64, s.offload.calls);
    line(p, "gpu_bytes_sent:%" PRIu64, s.offload.bytes_sent);
    line(p, "gpu_bytes_received:%" PRIu64, s.offload.bytes_received);
    line(p, "gpu_seconds:%.6f", s.offload.seconds);
}

static void cache_line(struct page *p, unsigned number, const struct cache_metric *f)
{
    const struct quire_cache_stats *s = &f->stats;
    line(p,
         "cache%u:name=%s,entries=%" PRIu64 ",memory_bytes=%" PRIu64 ",disk_bytes=%" PRIu64 ",requests=%" PRIu64
         ",hits=%" PRIu64 ",exact=%" PRIu64 ",stale=%" PRIu64 ",audits=%" PRIu64 ",misses=%" PRIu64 ",negative=%" PRIu64
         ",bypassed=%" PRIu64 ",hit_rate=%.4f,stored=%" PRIu64 ",evicted=%" PRIu64 ",expired=%" PRIu64
         ",invalidated=%" PRIu64 ",labels=%" PRIu64 ",false_hits=%" PRIu64 ",tokens_saved=%" PRIu64
         ",cost_saved=%.6g,get_p50_us=%.0f,get_p99_us=%.0f,get_p999_us=%.0f",
         number, f->cache, s->entries, s->memory_bytes, s->disk_bytes, s->requests, s->hits, s->exact, s->stale,
         s->audits, s->misses, s->negative, s->bypassed, cache_hit_rate(s), s->stored,
         s->evicted_own + s->evicted_cache, s->expired, s->invalidated, s->labels, s->false_hits, s->tokens_saved,
         s->cost_saved, s->get_p50_us, s->get_p99_us, s->get_p999_us);
}

static void section_cache(struct page *p)
{
    struct cache_metrics metrics;
    struct quire_cache_stats all = {0};
    p->text->failed |= !cache_metrics_take(p->server->service.caches, false, &metrics);
    for (uint32_t i = 0; i < metrics.n_caches; i++) {
        const struct quire_cache_stats *s = &metrics.caches[i].stats;
#define X(name) all.name += s->name;
        CACHE_COUNTS(X)
#undef X
        all.cost_saved += s->cost_saved;
        all.cost_audits += s->cost_audits;
    }
    line(p, "caches:%" PRIu64, metrics.n_caches + metrics.left_out);
    line(p, "cache_entries:%" PRIu64, all.entries);
    line(p, "cache_memory_bytes:%" PRIu64, all.memory_bytes);
    line(p, "cache_disk_bytes:%" PRIu64, all.disk_bytes);
    line(p, "cache_sealed_entries:%" PRIu64, all.sealed_entries);
    line(p, "cache_sealed_disk_bytes:%" PRIu64, all.sealed_disk_bytes);
    line(p, "cache_sealed_memory_bytes:%" PRIu64, all.sealed_memory_bytes);
    line(p, "cache_requests:%" PRIu64, all.requests);
    line(p, "cache_hits:%" PRIu64, all.hits + all.exact + all.stale);
    line(p, "cache_hit_rate:%.4f", cache_hit_rate(&all));
    line(p, "cache_entries_gone:%" PRIu64,
         all.evicted_own + all.evicted_cache + all.expired + all.invalidated + all.replaced + all.removed + all.lost);
    line(p, "cache_tokens_saved:%" PRIu64, all.tokens_saved);
    line(p, "cache_llm_ms_saved:%" PRIu64, all.llm_ms_saved);
    line(p, "cache_cost_saved:%.6g", all.cost_saved);
    line(p, "cache_cost_audits:%.6g", all.cost_audits);
    for (uint32_t i = 0; i < metrics.n_caches; i++)
        cache_line(p, i, &metrics.caches[i]);
    cache_metrics_fini(&metrics);
}

static void tenant_line(struct page *p, unsigned number, const struct fair_metric *f)
{
    const struct fair_sums *s = &f->sums;
    line(p,
         "tenant%u:%s=%s,weight=%" PRIu64 ",queries=%" PRIu64 ",running=%" PRIu64 ",waiting=%" PRIu64 ",failed=%" PRIu64
         ",cancelled=%" PRIu64 ",refused=%" PRIu64 ",refused_rate=%" PRIu64 ",refused_k=%" PRIu64
         ",refused_effort=%" PRIu64 ",refused_filter_bytes=%" PRIu64 ",refused_concurrent=%" PRIu64 ",reads=%" PRIu64
         ",cpu_us=%" PRIu64 ",cost_us=%" PRIu64
         ",wait_p50_us=%.0f,wait_p99_us=%.0f,latency_p50_us=%.0f,latency_p99_us=%.0f",
         number, f->kind == FAIR_TENANT ? "name" : "user", f->name, f->limits.weight, s->queries, s->running,
         s->waiting, s->failed, s->cancelled, fair_refused(s), s->refused[REFUSED_RATE], s->refused[REFUSED_K],
         s->refused[REFUSED_EFFORT], s->refused[REFUSED_FILTER], s->refused[REFUSED_CONCURRENT], s->reads, s->cpu_us,
         s->cost_us, f->wait_p50_us, f->wait_p99_us, f->latency_p50_us, f->latency_p99_us);
}

static void section_tenants(struct page *p)
{
    struct fair_metrics metrics;
    p->text->failed |= !fair_metrics_take(&p->server->service, FAIR_METRICS_INFO, &metrics);
    line(p, "tenants:%" PRIu64, metrics.tenants);
    line(p, "searches_at_once:%" PRIu64, p->sums.searches_at_once);
    line(p, "tenant_queries:%" PRIu64, metrics.all.queries);
    line(p, "tenant_running:%" PRIu64, metrics.all.running);
    line(p, "tenant_waiting:%" PRIu64, metrics.all.waiting);
    line(p, "tenant_failed:%" PRIu64, metrics.all.failed);
    line(p, "tenant_cancelled:%" PRIu64, metrics.all.cancelled);
    line(p, "tenant_refused:%" PRIu64, fair_refused(&metrics.all));
    line(p, "tenant_reads:%" PRIu64, metrics.all.reads);
    line(p, "tenant_cpu_us:%" PRIu64, metrics.all.cpu_us);
    line(p, "tenant_cost_us:%" PRIu64, metrics.all.cost_us);
    for (uint32_t i = 0; i < metrics.n; i++)
        tenant_line(p, i, &metrics.metrics[i]);
    fair_metrics_fini(&metrics);
}

static void section_modules(struct page *p)
{
    modules_put_info(p->server->service.config, p->text);
}

static const struct {
    const char *name, *title;
    void (*write)(struct page *page);
    bool by_default;
} sections[] = {{"server", "Server", section_server, true},
                {"clients", "Clients", section_clients, true},
                {"memory", "Memory", section_memory, true},
                {"persistence", "Persistence", section_persistence, true},
                {"damage", "Damage", section_damage, true},
                {"stats", "Stats", section_stats, true},
                {"replication", "Replication", section_replication, true},
                {"cpu", "CPU", section_cpu, true},
                {"modules", "Modules", section_modules, true},
                {"search", "Search", section_search, true},
                {"commandstats", "Commandstats", section_commandstats, false},
                {"errorstats", "Errorstats", section_errorstats, true},
                {"latencystats", "Latencystats", section_latencystats, false},
                {"cluster", "Cluster", section_cluster, true},
                {"keyspace", "Keyspace", section_keyspace, true},
                {"quire", "Quire", section_quire, true},
                {"gpu", "GPU", section_gpu, true},
                {"cache", "Cache", section_cache, true},
                {"tenants", "Tenants", section_tenants, false}};

void info_write(struct server *server, const struct resp_arg *wanted, uint32_t n, struct resp_buffer *text)
{
    struct page page = {server, text, {0}};
    info_sum(server, &page.sums);
    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++) {
        bool show = n == 0 && sections[s].by_default;
        for (uint32_t i = 0; i < n; i++)
            show |= arg_is(wanted[i], sections[s].name) || arg_is(wanted[i], "all") ||
                    arg_is(wanted[i], "everything") || (arg_is(wanted[i], "default") && sections[s].by_default);
        if (!show)
            continue;
        if (text->bytes > 0)
            resp_raw(text, "\r\n", 2);
        line(&page, "# %s", sections[s].title);
        sections[s].write(&page);
    }
}
