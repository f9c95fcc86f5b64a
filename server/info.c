/*
 * info.c - INFO: the server's figures as sections of "name:value" lines.
 *
 * Figures of lanes are read while the lanes go on counting, so sums may be a moment apart; each figure itself is whole.
 * Names that tools know (prometheus-redis-exporter, clients' start-up checks) are Redis's; what is Quire's own stands
 * in section "quire".
 *
 * redis_version tells clients which commands' behaviour to expect, not whose server this is: that is quire_version.
 */
#include "index/kernels/kernels.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/command.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define REDIS_COMPATIBLE_VERSION "7.2.0"

struct sums {
#define X(name) uint64_t name;
    LANE_STATS(X)
#undef X
    uint64_t clients;
    struct histogram latency;
    _Atomic uint64_t latency_counts[LATENCY_BUCKETS];
};

static void line(struct resp_buffer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void line(struct resp_buffer *text, const char *format, ...)
{
    char bytes[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(bytes, sizeof bytes, format, arguments);
    va_end(arguments);
    resp_raw(text, bytes, n < 0 ? 0 : (size_t)n < sizeof bytes ? (size_t)n : sizeof bytes - 1);
    resp_raw(text, "\r\n", 2);
}

static void sum_lanes(const struct server *server, struct sums *sums)
{
    uint64_t largest = 0;
    memset(sums, 0, sizeof *sums);
    histogram_init(&sums->latency, sums->latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    for (unsigned i = 0; i < server->n_lanes; i++) {
        const struct lane *lane = &server->lanes[i];
#define X(name) sums->name += stat_get(&lane->stats.name);
        LANE_STATS(X)
#undef X
        sums->clients += atomic_load(&lane->n_clients);
        uint64_t peak = stat_get(&lane->stats.output_bytes_peak);
        sums->output_bytes_peak = peak > largest ? peak : largest;
        largest = sums->output_bytes_peak;
        histogram_merge(&sums->latency, &lane->stats.latency);
    }
}

/* 0 before the first search. */
static double latency_us(const struct sums *sums, double share)
{
    double us = histogram_percentile(&sums->latency, share);
    return isnan(us) ? 0 : us;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static void section_server(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    struct timespec now;
    (void)sums;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seconds = (uint64_t)now.tv_sec - server->started_ms / 1000;
    line(text, "redis_version:%s", REDIS_COMPATIBLE_VERSION);
    line(text, "quire_version:%s", quire_version());
    line(text, "redis_mode:standalone");
    line(text, "process_id:%d", (int)getpid());
    line(text, "run_id:%s", server->run_id);
    line(text, "tcp_port:%u", server->port);
    line(text, "server_time_usec:%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    line(text, "uptime_in_seconds:%" PRIu64, seconds);
    line(text, "uptime_in_days:%" PRIu64, seconds / 86400);
}

static void section_clients(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    line(text, "connected_clients:%" PRIu64, sums->clients);
    line(text, "connected_clients_tls:%" PRIu64, sums->tls_clients);
    line(text, "maxclients:%" PRIu64, server->config->maxclients);
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

static void section_memory(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    struct memory_resident resident;
    uint64_t indexes = 0;
    (void)sums;
    memory_resident(&resident);
    keyspace_each((struct keyspace *)(uintptr_t)&server->keyspace, sum_memory, &indexes);
    line(text, "used_memory:%" PRIu64, resident.anonymous);
    line(text, "used_memory_rss:%" PRIu64, resident.total);
    line(text, "used_memory_peak:%" PRIu64, resident.peak);
    line(text, "used_memory_indexes:%" PRIu64, indexes);
    line(text, "used_memory_dataset:%" PRIu64, (uint64_t)atomic_load(&server->keyspace.used_bytes));
    line(text, "maxmemory:%" PRIu64, server->config->maxmemory);
    line(text, "maxmemory_policy:noeviction");
}

static void put_snapshots(struct server *server, struct resp_buffer *text)
{
    struct snapshots *s = &server->snapshots;
    pthread_mutex_lock(&s->lock);
    struct snapshots now = *s;
    pthread_mutex_unlock(&s->lock);
    uint64_t last_lsn = server->journal ? journal_last_lsn(server->journal) : 0;
    line(text, "rdb_changes_since_last_save:%" PRIu64, last_lsn > now.lsn ? last_lsn - now.lsn : 0);
    line(text, "rdb_bgsave_in_progress:%d", now.running > 0);
    line(text, "rdb_last_save_time:%" PRIu64, now.last_s);
    line(text, "rdb_last_bgsave_status:%s", now.failed ? "err" : "ok");
    line(text, "rdb_last_bgsave_time_sec:%" PRId64, now.seconds);
    line(text, "rdb_current_bgsave_time_sec:%" PRId64, now.begun_s ? (int64_t)time(NULL) - (int64_t)now.begun_s : -1);
    line(text, "rdb_saves:%" PRIu64, now.saves);
}

static void section_persistence(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    struct journal_stats log;
    struct store_stats stats;
    struct quire_error err;
    (void)sums;
    line(text, "loading:0");
    put_snapshots((struct server *)(uintptr_t)server, text);
    line(text, "aof_enabled:%d", server->journal != NULL);
    if (!server->store)
        return;
    journal_get_stats(server->journal, &log);
    store_get_stats(server->store, &stats);
    line(text, "aof_rewrite_in_progress:%d", stats.checkpointing);
    line(text, "aof_last_write_status:%s", journal_health(server->journal, &err) == 0 ? "ok" : "err");
    line(text, "aof_current_size:%" PRIu64, log.log_bytes + log.checkpoint_bytes);
    line(text, "aof_base_size:%" PRIu64, log.checkpoint_bytes);
    line(text, "aof_buffer_length:%" PRIu64, log.unwritten_bytes);
    line(text, "aof_rewrites:%" PRIu64, stats.checkpoints);
}

static void section_stats(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    line(text, "total_connections_received:%" PRIu64, sums->connections);
    line(text, "total_connections_tls:%" PRIu64, sums->tls_connections);
    line(text, "tls_failures:%" PRIu64, sums->tls_failures);
    line(text, "total_commands_processed:%" PRIu64, sums->commands);
    line(text, "total_net_input_bytes:%" PRIu64, sums->net_input_bytes);
    line(text, "total_net_output_bytes:%" PRIu64, sums->net_output_bytes);
    line(text, "rejected_connections:%" PRIu64, (uint64_t)atomic_load(&server->rejected_connections));
    line(text, "client_output_buffer_limit_disconnections:%" PRIu64, sums->closed_output_limit);
    line(text, "client_query_buffer_limit_disconnections:%" PRIu64, sums->closed_query_limit);
    line(text, "protocol_error_disconnections:%" PRIu64, sums->closed_protocol);
    line(text, "idle_disconnections:%" PRIu64, sums->closed_idle);
    line(text, "expired_keys:%" PRIu64, (uint64_t)atomic_load(&server->keyspace.expired));
    line(text, "keyspace_hits:%" PRIu64, sums->keyspace_hits);
    line(text, "keyspace_misses:%" PRIu64, sums->keyspace_misses);
    line(text, "acl_access_denied_auth:%" PRIu64, sums->auth_failures);
    line(text, "acl_access_denied_cmd:%" PRIu64, sums->acl_denied_commands);
    line(text, "acl_access_denied_key:%" PRIu64, sums->acl_denied_keys);
}

static void section_replication(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    (void)server;
    (void)sums;
    line(text, "role:master");
    line(text, "connected_slaves:0");
}

static void section_cpu(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    struct rusage usage;
    (void)server;
    (void)sums;
    if (getrusage(RUSAGE_SELF, &usage) < 0)
        return;
    line(text, "used_cpu_sys:%lld.%06ld", (long long)usage.ru_stime.tv_sec, (long)usage.ru_stime.tv_usec);
    line(text, "used_cpu_user:%lld.%06ld", (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec);
}

static void section_commandstats(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    (void)sums;
    for (unsigned row = 0; row < n_commands; row++) {
        uint64_t calls = 0, us = 0, failed = 0, rejected = 0;
        for (unsigned i = 0; i < server->n_lanes; i++) {
            const struct command_stats *s = &server->lanes[i].stats.commands_by_row[row];
            calls += stat_get(&s->calls);
            us += stat_get(&s->us);
            failed += stat_get(&s->failed);
            rejected += stat_get(&s->rejected);
        }
        if (calls + rejected)
            line(text,
                 "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=%" PRIu64
                 ",failed_calls=%" PRIu64,
                 commands[row].name, calls, us, calls ? (double)us / (double)calls : 0.0, rejected, failed);
    }
}

static void section_keyspace(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    struct keyspace_expiries expiries;
    size_t keys = keyspace_count(&server->keyspace);
    (void)sums;
    keyspace_get_expiries((struct keyspace *)(uintptr_t)&server->keyspace, &expiries);
    if (keys)
        line(text, "db0:keys=%zu,expires=%" PRIu64 ",avg_ttl=%" PRIu64, keys, expiries.keys, expiries.mean_ms);
}

static void section_quire(const struct server *server, const struct sums *sums, struct resp_buffer *text)
{
    double searches = sums->searches ? (double)sums->searches : 1;
    struct lane *lane = &server->lanes[0];
    line(text, "lanes:%u", server->n_lanes);
    pthread_mutex_lock(&lane->inbox_lock);
    line(text, "engine:%s", lane->engine_name);
    line(text, "engine_note:%s", lane->engine_note);
    pthread_mutex_unlock(&lane->inbox_lock);
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
}

static const struct {
    const char *name, *title;
    void (*write)(const struct server *server, const struct sums *sums, struct resp_buffer *text);
    bool by_default;
} sections[] = {{"server", "Server", section_server, true},
                {"clients", "Clients", section_clients, true},
                {"memory", "Memory", section_memory, true},
                {"persistence", "Persistence", section_persistence, true},
                {"stats", "Stats", section_stats, true},
                {"replication", "Replication", section_replication, true},
                {"cpu", "CPU", section_cpu, true},
                {"commandstats", "Commandstats", section_commandstats, false},
                {"keyspace", "Keyspace", section_keyspace, true},
                {"quire", "Quire", section_quire, true}};

void info_write(struct server *server, const struct resp_arg *wanted, uint32_t n, struct resp_buffer *text)
{
    struct sums sums;
    sum_lanes(server, &sums);
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
