/*
 * info.c - INFO: the server's statistics as sections of "name:value" lines.
 *
 * Statistics are read while the lanes go on counting, so sums may be a moment apart; each number itself is whole.
 * Names that tools know (prometheus-redis-exporter, clients' start-up checks) are Redis's; what is Quire's own stands
 * in section "quire".
 *
 * redis_version tells clients which commands' behaviour to expect, not whose server this is: that is quire_version.
 */
#include "server/admin/info.h"
#include "index/kernels/kernels.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/admin/snapshot.h"
#include "server/cache/cache_metrics.h"
#include "server/call/fair_metrics.h"
#include "server/net/client.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define REDIS_COMPATIBLE_VERSION "7.2.0"

static void line(struct resp_buffer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void line(struct resp_buffer *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    resp_format(text, format, arguments);
    va_end(arguments);
    resp_raw(text, "\r\n", 2);
}

void info_sum(const struct server *server, struct info_totals *sums)
{
    uint64_t largest = 0;
    memset(sums, 0, sizeof *sums);
    histogram_init(&sums->latency, sums->latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    for (unsigned i = 0; i < server->service.n_lanes; i++) {
        const struct loop *loop = &server->loops[i];
#define X(name) sums->name += stat_get(&loop->lane.stats.name);
        LANE_STATS(X)
#undef X
        sums->clients += atomic_load(&loop->n_clients);
        uint64_t peak = stat_get(&loop->lane.stats.output_bytes_peak);
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

static const char *program_path(char *room, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", room, bytes - 1);
    room[n > 0 ? n : 0] = 0;
    return room;
}

static void section_server(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct timespec now;
    struct utsname system;
    char room[1024];
    (void)sums;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seconds = (uint64_t)now.tv_sec - server->started_ms / 1000;
    line(text, "redis_version:%s", REDIS_COMPATIBLE_VERSION);
    line(text, "quire_version:%s", quire_version());
    line(text, "redis_mode:standalone");
    if (uname(&system) == 0)
        line(text, "os:%s %s %s", system.sysname, system.release, system.machine);
    line(text, "arch_bits:%zu", 8 * sizeof(void *));
    line(text, "process_id:%d", (int)getpid());
    line(text, "run_id:%s", server->run_id);
    line(text, "tcp_port:%u", server->port);
    line(text, "server_time_usec:%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    line(text, "uptime_in_seconds:%" PRIu64, seconds);
    line(text, "uptime_in_days:%" PRIu64, seconds / 86400);
    line(text, "executable:%s", program_path(room, sizeof room));
    line(text, "config_file:%s", server->service.config->file ? server->service.config->file : "");
}

static void section_clients(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    line(text, "connected_clients:%" PRIu64, sums->clients);
    line(text, "connected_clients_tls:%" PRIu64, sums->tls_clients);
    line(text, "maxclients:%" PRIu64, server->service.config->maxclients);
    line(text, "blocked_clients:0");
    line(text, "tracking_clients:0");
    line(text, "monitor_clients:%u", atomic_load(&server->n_monitors));
    line(text, "client_recent_max_output_buffer:%" PRIu64, sums->output_bytes_peak);
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

static void section_memory(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct memory_resident resident;
    uint64_t indexes = info_index_bytes((struct server *)(uintptr_t)server), most = server->service.config->maxmemory;
    char room[32];
    (void)sums;
    memory_resident(&resident);
    line(text, "used_memory:%" PRIu64, resident.anonymous);
    line(text, "used_memory_human:%s", human(resident.anonymous, room));
    line(text, "used_memory_rss:%" PRIu64, resident.total);
    line(text, "used_memory_rss_human:%s", human(resident.total, room));
    line(text, "used_memory_peak:%" PRIu64, resident.peak);
    line(text, "used_memory_peak_human:%s", human(resident.peak, room));
    line(text, "used_memory_dataset:%" PRIu64, (uint64_t)atomic_load(&server->service.keyspace.used_bytes));
    line(text, "used_memory_indexes:%" PRIu64, indexes);
    line(text, "used_memory_caches:%" PRIu64, info_cache_bytes((struct server *)(uintptr_t)server));
    line(text, "maxmemory:%" PRIu64, most);
    line(text, "maxmemory_human:%s", human(most, room));
    line(text, "maxmemory_policy:noeviction");
    line(text, "mem_fragmentation_ratio:%.2f",
         resident.anonymous ? (double)resident.total / (double)resident.anonymous : 0.0);
    line(text, "mem_allocator:%s", cmd_memory_allocator());
}

static void put_snapshots(struct server *server, struct resp_buffer *text)
{
    struct snapshots *s = server->snapshots;
    pthread_mutex_lock(&s->lock);
    struct snapshots now = *s;
    pthread_mutex_unlock(&s->lock);
    uint64_t last_lsn = server->service.journal ? journal_last_lsn(server->service.journal) : 0;
    line(text, "rdb_changes_since_last_save:%" PRIu64, last_lsn > now.lsn ? last_lsn - now.lsn : 0);
    line(text, "rdb_bgsave_in_progress:%d", now.running > 0);
    line(text, "rdb_last_save_time:%" PRIu64, now.last_s);
    line(text, "rdb_last_bgsave_status:%s", now.failed ? "err" : "ok");
    line(text, "rdb_last_bgsave_time_sec:%" PRId64, now.seconds);
    line(text, "rdb_current_bgsave_time_sec:%" PRId64, now.begun_s ? (int64_t)time(NULL) - (int64_t)now.begun_s : -1);
    line(text, "rdb_saves:%" PRIu64, now.saves);
}

static void section_persistence(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct journal_stats log;
    struct store_stats stats;
    struct quire_error err;
    (void)sums;
    line(text, "loading:0");
    line(text, "async_loading:0");
    put_snapshots((struct server *)(uintptr_t)server, text);
    line(text, "aof_enabled:%d", server->service.journal != NULL);
    if (!server->service.store)
        return;
    journal_get_stats(server->service.journal, &log);
    store_get_stats(server->service.store, &stats);
    line(text, "aof_rewrite_in_progress:%d", stats.checkpointing);
    line(text, "aof_last_write_status:%s", journal_health(server->service.journal, &err) == 0 ? "ok" : "err");
    line(text, "aof_current_size:%" PRIu64, log.log_bytes + log.checkpoint_bytes);
    line(text, "aof_base_size:%" PRIu64, log.checkpoint_bytes);
    line(text, "aof_buffer_length:%" PRIu64, log.unwritten_bytes);
    line(text, "aof_rewrites:%" PRIu64, stats.checkpoints);
}

static void section_stats(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    line(text, "total_connections_received:%" PRIu64, sums->connections);
    line(text, "total_connections_tls:%" PRIu64, sums->tls_connections);
    line(text, "tls_failures:%" PRIu64, sums->tls_failures);
    line(text, "total_commands_processed:%" PRIu64, sums->commands);
    line(text, "total_net_input_bytes:%" PRIu64, sums->net_input_bytes);
    line(text, "total_net_output_bytes:%" PRIu64, sums->net_output_bytes);
    line(text, "instantaneous_ops_per_sec:%" PRIu64, stat_get(&server->ops_per_second));
    line(text, "rejected_connections:%" PRIu64, (uint64_t)atomic_load(&server->rejected_connections));
    line(text, "client_output_buffer_limit_disconnections:%" PRIu64, sums->closed_output_limit);
    line(text, "client_query_buffer_limit_disconnections:%" PRIu64, sums->closed_query_limit);
    line(text, "protocol_error_disconnections:%" PRIu64, sums->closed_protocol);
    line(text, "idle_disconnections:%" PRIu64, sums->closed_idle);
    line(text, "expired_keys:%" PRIu64, (uint64_t)atomic_load(&server->service.keyspace.expired));
    line(text, "keyspace_hits:%" PRIu64, sums->keyspace_hits);
    line(text, "keyspace_misses:%" PRIu64, sums->keyspace_misses);
    line(text, "total_error_replies:%" PRIu64, sums->error_replies);
    line(text, "acl_access_denied_auth:%" PRIu64, sums->auth_failures);
    line(text, "acl_access_denied_cmd:%" PRIu64, sums->acl_denied_commands);
    line(text, "acl_access_denied_key:%" PRIu64, sums->acl_denied_keys);
}

static void section_replication(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)sums;
    line(text, "role:master");
    line(text, "connected_slaves:0");
    line(text, "master_replid:%s", server->run_id);
    line(text, "master_repl_offset:0");
}

static void section_cpu(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct rusage usage;
    (void)server;
    (void)sums;
    if (getrusage(RUSAGE_SELF, &usage) < 0)
        return;
    line(text, "used_cpu_sys:%lld.%06ld", (long long)usage.ru_stime.tv_sec, (long)usage.ru_stime.tv_usec);
    line(text, "used_cpu_user:%lld.%06ld", (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec);
}

void info_row(const struct server *server, unsigned row, struct info_row_totals *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < server->service.n_lanes; i++) {
        const struct command_stats *s = &server->loops[i].lane.stats.commands_by_row[row];
        out->calls += stat_get(&s->calls);
        out->us += stat_get(&s->us);
        out->failed += stat_get(&s->failed);
        out->rejected += stat_get(&s->rejected);
    }
}

static void section_commandstats(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)sums;
    for (unsigned row = 0; row < n_commands; row++) {
        struct info_row_totals f;
        info_row(server, row, &f);
        if (f.calls + f.rejected)
            line(text,
                 "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=%" PRIu64
                 ",failed_calls=%" PRIu64,
                 commands[row].name, f.calls, f.us, f.calls ? (double)f.us / (double)f.calls : 0.0, f.rejected,
                 f.failed);
    }
}

static void section_latencystats(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)sums;
    for (unsigned row = 0; row < n_commands; row++) {
        struct histogram all;
        _Atomic uint64_t counts[ROW_BUCKETS] = {0};
        histogram_init(&all, counts, ROW_SUB_BITS, ROW_BITS);
        for (unsigned i = 0; i < server->service.n_lanes; i++)
            histogram_merge(&all, &server->loops[i].lane.stats.commands_by_row[row].latency);
        if (histogram_count(&all))
            line(text, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f", commands[row].name,
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
            count += same ? stat_get(&stats->errors[i].count) : 0;
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

static void error_line(void *text, const char *code, uint64_t count)
{
    line(text, "errorstat_%s:count=%" PRIu64, code, count);
}

static void section_errorstats(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)sums;
    info_errors(server, error_line, text);
}

static void section_modules(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)server;
    (void)sums;
    (void)text; /* there are none; clients look for the section */
}

static void section_cluster(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    (void)server;
    (void)sums;
    line(text, "cluster_enabled:0");
}

static void section_keyspace(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct keyspace_expiries expiries;
    size_t keys = keyspace_count(&server->service.keyspace);
    (void)sums;
    keyspace_get_expiries((struct keyspace *)(uintptr_t)&server->service.keyspace, &expiries);
    if (keys)
        line(text, "db0:keys=%zu,expires=%" PRIu64 ",avg_ttl=%" PRIu64, keys, expiries.keys, expiries.mean_ms);
}

static void journal_lines(const struct server *server, struct resp_buffer *text)
{
    struct journal_stats s;
    if (!server->service.journal)
        return;
    journal_get_stats(server->service.journal, &s);
    line(text, "log_frames:%" PRIu64, s.frames);
    line(text, "log_bytes:%" PRIu64, s.log_bytes);
    line(text, "log_files:%" PRIu64, s.log_files);
    line(text, "log_unwritten_bytes:%" PRIu64, s.unwritten_bytes);
    line(text, "log_syncs:%" PRIu64, s.syncs);
    line(text, "log_sync_us:mean=%.0f,max=%" PRIu64, s.syncs ? (double)s.sync_us / (double)s.syncs : 0.0,
         s.sync_us_max);
    line(text, "log_failures:%" PRIu64, s.failures);
    line(text, "checkpoint_bytes:%" PRIu64, s.checkpoint_bytes);
}

static void store_lines(const struct server *server, struct resp_buffer *text)
{
    struct store_stats s;
    if (!server->service.store)
        return;
    store_get_stats(server->service.store, &s);
    line(text, "collections:%" PRIu64, s.collections);
    line(text, "segments:%" PRIu64, s.segments);
    line(text, "memtable_bytes:%" PRIu64, s.memtable_bytes);
    line(text, "resident_bytes:%" PRIu64, s.resident_bytes);
    line(text, "disk_bytes:%" PRIu64, s.disk_bytes);
    line(text, "seals:%" PRIu64, s.seals);
    line(text, "merges:%" PRIu64, s.merges);
    line(text, "checkpoints:%" PRIu64, s.checkpoints);
    line(text, "rows_sealed:%" PRIu64, s.rows_sealed);
    line(text, "rows_merged:%" PRIu64, s.rows_merged);
    line(text, "store_failures:%" PRIu64, s.failures);
    line(text, "writers_wait:%d", store_is_behind(server->service.store));
}

static void section_quire(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    double searches = sums->searches ? (double)sums->searches : 1;
    struct loop *loop = &server->loops[0];
    line(text, "lanes:%u", server->service.n_lanes);
    pthread_mutex_lock(&loop->inbox_lock);
    line(text, "engine:%s", loop->engine_name);
    line(text, "engine_note:%s", loop->engine_note);
    pthread_mutex_unlock(&loop->inbox_lock);
    line(text, "cpu:%s", kernels()->name);
    line(text, "searches:%" PRIu64, sums->searches);
    line(text, "search_errors:%" PRIu64, sums->search_errors);
    line(text, "search_reads:%" PRIu64, sums->search_reads);
    line(text, "reads_per_search:%.2f", (double)sums->search_reads / searches);
    line(text, "rounds_per_search:%.2f", (double)sums->search_rounds / searches);
    line(text, "step_us_per_search:%.1f", (double)sums->search_cpu_ns / searches / 1000);
    line(text, "search_latency_us:p50=%.0f,p99=%.0f,p99.9=%.0f", latency_us(sums, 0.5), latency_us(sums, 0.99),
         latency_us(sums, 0.999));
    line(text, "fetches:%" PRIu64, sums->fetches);
    line(text, "fetch_reads:%" PRIu64, sums->fetch_reads);
    line(text, "device_reads:%" PRIu64, sums->engine_reads);
    line(text, "device_read_bytes:%" PRIu64, sums->engine_read_bytes);
    line(text, "device_read_errors:%" PRIu64, sums->engine_read_errors);
    line(text, "reads_in_flight:%" PRIu64, sums->reads_in_flight);
    line(text, "reads_in_flight_peak_sum:%" PRIu64, sums->reads_in_flight_peak);
    line(text, "reads_waiting:%" PRIu64, sums->reads_waiting);
    line(text, "submissions:%" PRIu64, sums->engine_submissions);
    store_lines(server, text);
    journal_lines(server, text);
}

static void add_stats(struct quire_cache_stats *sum, const struct quire_cache_stats *s)
{
#define X(name) sum->name += s->name;
    CACHE_COUNTS(X)
#undef X
    sum->cost_saved += s->cost_saved;
    sum->cost_audits += s->cost_audits;
}

static uint64_t entries_gone(const struct quire_cache_stats *s)
{
    return s->evicted_own + s->evicted_cache + s->expired + s->invalidated + s->replaced + s->removed + s->lost;
}

static void cache_line(unsigned number, const struct cache_metric *f, struct resp_buffer *text)
{
    const struct quire_cache_stats *s = &f->stats;
    line(text,
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

static void section_cache(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct cache_metrics metrics;
    struct quire_cache_stats all = {0};
    (void)sums;
    text->failed |= !cache_metrics_take(server->service.caches, false, &metrics);
    for (uint32_t i = 0; i < metrics.n_caches; i++)
        add_stats(&all, &metrics.caches[i].stats);
    line(text, "caches:%" PRIu64, metrics.n_caches + metrics.left_out);
    line(text, "cache_entries:%" PRIu64, all.entries);
    line(text, "cache_memory_bytes:%" PRIu64, all.memory_bytes);
    line(text, "cache_disk_bytes:%" PRIu64, all.disk_bytes);
    line(text, "cache_sealed_entries:%" PRIu64, all.sealed_entries);
    line(text, "cache_sealed_disk_bytes:%" PRIu64, all.sealed_disk_bytes);
    line(text, "cache_sealed_memory_bytes:%" PRIu64, all.sealed_memory_bytes);
    line(text, "cache_requests:%" PRIu64, all.requests);
    line(text, "cache_hits:%" PRIu64, all.hits + all.exact + all.stale);
    line(text, "cache_hit_rate:%.4f", cache_hit_rate(&all));
    line(text, "cache_entries_gone:%" PRIu64, entries_gone(&all));
    line(text, "cache_tokens_saved:%" PRIu64, all.tokens_saved);
    line(text, "cache_llm_ms_saved:%" PRIu64, all.llm_ms_saved);
    line(text, "cache_cost_saved:%.6g", all.cost_saved);
    for (uint32_t i = 0; i < metrics.n_caches; i++)
        cache_line(i, &metrics.caches[i], text);
    cache_metrics_fini(&metrics);
}

static void tenant_line(unsigned number, const struct fair_metric *f, struct resp_buffer *text)
{
    const struct fair_sums *s = &f->sums;
    line(text,
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

static void section_tenants(const struct server *server, const struct info_totals *sums, struct resp_buffer *text)
{
    struct fair_metrics metrics;
    text->failed |= !fair_metrics_take((struct service *)(uintptr_t)&server->service, FAIR_METRICS_INFO, &metrics);
    line(text, "tenants:%" PRIu64, metrics.tenants);
    line(text, "searches_at_once:%" PRIu64, sums->searches_at_once);
    line(text, "tenant_queries:%" PRIu64, metrics.all.queries);
    line(text, "tenant_running:%" PRIu64, metrics.all.running);
    line(text, "tenant_waiting:%" PRIu64, metrics.all.waiting);
    line(text, "tenant_failed:%" PRIu64, metrics.all.failed);
    line(text, "tenant_cancelled:%" PRIu64, metrics.all.cancelled);
    line(text, "tenant_refused:%" PRIu64, fair_refused(&metrics.all));
    line(text, "tenant_reads:%" PRIu64, metrics.all.reads);
    line(text, "tenant_cpu_us:%" PRIu64, metrics.all.cpu_us);
    line(text, "tenant_cost_us:%" PRIu64, metrics.all.cost_us);
    for (uint32_t i = 0; i < metrics.n; i++)
        tenant_line(i, &metrics.metrics[i], text);
    fair_metrics_fini(&metrics);
}

static const struct {
    const char *name, *title;
    void (*write)(const struct server *server, const struct info_totals *sums, struct resp_buffer *text);
    bool by_default;
} sections[] = {{"server", "Server", section_server, true},
                {"clients", "Clients", section_clients, true},
                {"memory", "Memory", section_memory, true},
                {"persistence", "Persistence", section_persistence, true},
                {"stats", "Stats", section_stats, true},
                {"replication", "Replication", section_replication, true},
                {"cpu", "CPU", section_cpu, true},
                {"modules", "Modules", section_modules, true},
                {"commandstats", "Commandstats", section_commandstats, false},
                {"errorstats", "Errorstats", section_errorstats, true},
                {"latencystats", "Latencystats", section_latencystats, false},
                {"cluster", "Cluster", section_cluster, true},
                {"keyspace", "Keyspace", section_keyspace, true},
                {"quire", "Quire", section_quire, true},
                {"cache", "Cache", section_cache, true},
                {"tenants", "Tenants", section_tenants, false}};

void info_write(struct server *server, const struct resp_arg *wanted, uint32_t n, struct resp_buffer *text)
{
    struct info_totals sums;
    info_sum(server, &sums);
    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++) {
        bool show = n == 0 && sections[s].by_default;
        for (uint32_t i = 0; i < n; i++)
            show |= arg_is(wanted[i], sections[s].name) || arg_is(wanted[i], "all") ||
                    arg_is(wanted[i], "everything") || (arg_is(wanted[i], "default") && sections[s].by_default);
        if (!show)
            continue;
        if (text->bytes > 0)
            resp_raw(text, "\r\n", 2);
        line(text, "# %s", sections[s].title);
        sections[s].write(server, &sums, text);
    }
}
