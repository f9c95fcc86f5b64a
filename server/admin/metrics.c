/*
 * metrics.c - /metrics, /health and /ready.
 *
 * As much HTTP/1.1 as a scraper, a load balancer and a person with curl need: GET and HEAD, one request per connection,
 * at most 8 KiB of it, the rest of a request ignored, "Connection: close". Connections are few (32 at once; for one
 * more the oldest goes that has not sent its request) and short (10 seconds); they are no clients of the server and
 * count for no limit of it. They run on lane 0's ring like all else: no thread, no library.
 *
 * Series of semantic caches have names that clients chose: cache_metrics.h bounds how many there are, and what is
 * beyond is counted (quire_cache_series_left_out).
 *
 * The histogram of search latencies has buckets at powers of two, where the lanes' own histograms (log-linear, a few
 * percent wide) have an edge: so each bucket is exact.
 */
#include "server/admin/metrics.h"
#include "index/store/store.h"
#include "io/error.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/access/command_table.h"
#include "server/admin/info.h"
#include "server/cache/cache_metrics.h"
#include "server/call/fair_metrics.h"
#include "server/commands/latency.h"
#include "server/keys/keyspace.h"
#include "server/net/loop.h"
#include "server/process/config.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* CLIENTS_MAX: beyond it the oldest goes; CLIENTS_HARD_MAX: with those that the kernel has not given back yet. */
enum { REQUEST_BYTES = 8192, CLIENTS_MAX = 32, CLIENTS_HARD_MAX = 256, TIME_MS = 10000, LINGER_MS = 1000 };

struct http_client {
    struct loop *loop;
    struct http_client *next, *prev;
    int fd;
    struct io_op recv, send, cancel;
    bool receiving, sending, cancelling, answered, dead;
    uint64_t deadline_ms;
    size_t n_in, sent;
    struct resp_buffer out;
    char in[REQUEST_BYTES];
};

struct metrics {
    struct io_op accepts[LISTENERS_MAX];
    bool accepting[LISTENERS_MAX];
    struct http_client *clients;
    unsigned n_clients;
};

int metrics_init(struct server *server, struct quire_error *err)
{
    server->metrics = calloc(1, sizeof *server->metrics);
    return server->metrics ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for /metrics");
}

void metrics_fini(struct server *server)
{
    free(server->metrics);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void put(struct resp_buffer *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    resp_format(text, format, arguments);
    va_end(arguments);
}

/* Counters are those whose name ends so, as Prometheus has it; all others are gauges. */
static void head(struct resp_buffer *text, const char *name, const char *help)
{
    size_t bytes = strlen(name);
    bool counter = bytes > 6 && strcmp(name + bytes - 6, "_total") == 0;
    put(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, counter ? "counter" : "gauge");
}

static void number(struct resp_buffer *text, const char *name, const char *help, double value)
{
    head(text, name, help);
    put(text, "%s %.17g\n", name, value);
}

/* A number of a command, a tenant, a cache or a category: its labels beside those of the names, and where it lies. */
struct series {
    const char *label; /* "" or ",cause=\"expired\"" */
    size_t place;
    bool is_double;
    double scale;
};

static double series_value(const struct series *series, const void *of)
{
    const void *at = (const char *)of + series->place;
    return series->scale * (series->is_double ? *(const double *)at : (double)*(const uint64_t *)at);
}

/* A label's value: what the format escapes is escaped. */
static void put_label(struct resp_buffer *text, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            put(text, "\\%c", *value);
        else if (*value == '\n')
            put(text, "\\n");
        else
            put(text, "%c", *value);
    }
}

static void put_server(struct server *server, const struct info_totals *f, struct resp_buffer *text)
{
    struct rusage usage;
    struct loop *loop = &server->loops[0];
    head(text, "quire_info", "Version and engine.");
    put(text, "quire_info{version=\"");
    put_label(text, quire_version());
    put(text, "\",run_id=\"%s\",engine=\"", server->run_id);
    pthread_mutex_lock(&loop->inbox_lock);
    put_label(text, loop->engine_name);
    pthread_mutex_unlock(&loop->inbox_lock);
    put(text, "\",lanes=\"%u\"} 1\n", server->service.n_lanes);
    number(text, "process_start_time_seconds", "When the server was started, seconds since 1970.",
           (double)server->started_ms / 1000);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        number(text, "process_cpu_seconds_total", "Processor time of user and system.",
               (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    number(text, "quire_healthy", "1 while /health says ok.", atomic_load(&server->unhealthy) ? 0 : 1);
    uint64_t sets, caches;
    info_count_unavailable(server, &sets, &caches);
    head(text, "quire_unavailable", "Vector sets and caches that cannot be used because of their files.");
    put(text, "quire_unavailable{what=\"set\"} %" PRIu64 "\n", sets);
    put(text, "quire_unavailable{what=\"cache\"} %" PRIu64 "\n", caches);
    number(text, "quire_connected_clients", "Clients connected.", (double)f->clients);
    number(text, "quire_connections_total", "Connections accepted.", (double)f->connections);
    number(text, "quire_connections_rejected_total", "Connections refused for maxclients.",
           (double)atomic_load(&server->rejected_connections));
    head(text, "quire_connections_closed_total", "Connections that the server closed, by reason.");
    put(text, "quire_connections_closed_total{reason=\"output_limit\"} %" PRIu64 "\n", f->closed_output_limit);
    put(text, "quire_connections_closed_total{reason=\"query_limit\"} %" PRIu64 "\n", f->closed_query_limit);
    put(text, "quire_connections_closed_total{reason=\"protocol\"} %" PRIu64 "\n", f->closed_protocol);
    put(text, "quire_connections_closed_total{reason=\"idle\"} %" PRIu64 "\n", f->closed_idle);
    put(text, "quire_connections_closed_total{reason=\"unauthenticated\"} %" PRIu64 "\n", f->closed_unauthenticated);
    put(text, "quire_connections_closed_total{reason=\"http\"} %" PRIu64 "\n", f->closed_http);
    put(text, "quire_connections_closed_total{reason=\"evicted\"} %" PRIu64 "\n", f->evicted_clients);
    number(text, "quire_clients_memory_bytes", "Requests and replies of all clients; see maxmemory-clients.",
           (double)client_memory_total(server));
    number(text, "quire_auth_failures_total", "Wrong passwords.", (double)f->auth_failures);
    head(text, "quire_acl_denied_total", "Requests that the user had no right to, by what was denied.");
    put(text, "quire_acl_denied_total{what=\"command\"} %" PRIu64 "\n", f->acl_denied_commands);
    put(text, "quire_acl_denied_total{what=\"key\"} %" PRIu64 "\n", f->acl_denied_keys);
    number(text, "quire_tls_clients", "Clients connected by TLS.", (double)f->tls_clients);
    number(text, "quire_tls_failures_total", "Connections that TLS refused.", (double)f->tls_failures);
    number(text, "quire_net_input_bytes_total", "Bytes received from clients.", (double)f->net_input_bytes);
    number(text, "quire_net_output_bytes_total", "Bytes sent to clients.", (double)f->net_output_bytes);
}

static void put_error(void *text, const char *code, uint64_t count)
{
    put(text, "quire_errors_total{code=\"");
    put_label(text, code);
    put(text, "\"} %" PRIu64 "\n", count);
}

static void put_commands(struct server *server, const struct info_totals *f, struct resp_buffer *text)
{
    static const struct {
        const char *name, *help;
        struct series series;
    } families[] = {
        {"quire_commands_total", "Calls of each command.", {"", offsetof(struct info_row_totals, calls), false, 1}},
        {"quire_command_seconds_total",
         "Time of each command; of one that waits for the disk, from its request to its reply.",
         {"", offsetof(struct info_row_totals, us), false, 1e-6}},
        {"quire_command_failures_total",
         "Calls that ended in an error.",
         {"", offsetof(struct info_row_totals, failed), false, 1}},
        {"quire_command_rejections_total",
         "Requests refused before they ran.",
         {"", offsetof(struct info_row_totals, rejected), false, 1}}};
    number(text, "quire_commands_processed_total", "Requests, whatever became of them.", (double)f->commands);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        head(text, families[i].name, families[i].help);
        for (unsigned row = 0; row < n_commands; row++) {
            struct info_row_totals totals;
            info_row(server, row, &totals);
            if (totals.calls + totals.rejected)
                put(text, "%s{command=\"%s\"} %.17g\n", families[i].name, commands[row].name,
                    series_value(&families[i].series, &totals));
        }
    }
    head(text, "quire_errors_total", "Error replies by their code.");
    info_errors(server, put_error, text);
}

static void put_searches(const struct info_totals *f, struct resp_buffer *text)
{
    enum { LEAST_POWER = 5, MOST_POWER = 24 }; /* 32 us to 17 s */
    static const char name[] = "quire_search_latency_seconds";
    put(text, "# HELP %s Time of a search on the index, from its start to its result.\n# TYPE %s histogram\n", name,
        name);
    for (unsigned power = LEAST_POWER; power <= MOST_POWER; power++)
        put(text, "%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name, (double)(1u << power) * 1e-6,
            histogram_below(&f->latency, 1u << power));
    uint64_t count = histogram_count(&f->latency);
    put(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    put(text, "%s_sum %.17g\n%s_count %" PRIu64 "\n", name, (double)lane_stat_get(&f->latency.sum) * 1e-6, name, count);
    number(text, "quire_searches_total", "Searches that ended well.", (double)f->searches);
    number(text, "quire_search_errors_total", "Searches that failed.", (double)f->search_errors);
    number(text, "quire_search_reads_total", "Blocks read by searches.", (double)f->search_reads);
    number(text, "quire_search_rounds_total", "Times that searches waited for the device.", (double)f->search_rounds);
    number(text, "quire_fetches_total", "Look-ups of single elements.", (double)f->fetches);
    number(text, "quire_device_reads_total", "Reads of files.", (double)f->engine_reads);
    number(text, "quire_device_read_bytes_total", "Bytes read of files.", (double)f->engine_read_bytes);
    number(text, "quire_device_read_errors_total", "Reads that failed.", (double)f->engine_read_errors);
    number(text, "quire_device_reads_in_flight", "Reads that the device works on.", (double)f->reads_in_flight);
    number(text, "quire_device_reads_waiting", "Reads that wait for reads-in-flight.", (double)f->reads_waiting);
}

/* ---- semantic caches --------------------------------------------------------------------------------------------- */

enum { CACHE_SERIES_MAX = 7 };

#define COUNT(label, field)                                                                                            \
    {                                                                                                                  \
        label, offsetof(struct quire_cache_stats, field), false, 1                                                     \
    }
#define SCALED(label, field, scale)                                                                                    \
    {                                                                                                                  \
        label, offsetof(struct quire_cache_stats, field), false, scale                                                 \
    }
#define NUMBER(label, field, scale)                                                                                    \
    {                                                                                                                  \
        label, offsetof(struct quire_cache_stats, field), true, scale                                                  \
    }

struct cache_family {
    const char *name, *help;
    struct series series[CACHE_SERIES_MAX]; /* one without a label ends them, but for the first */
};

static const struct cache_family of_caches[] = {
    {"quire_cache_memory_bytes", "Memory of a semantic cache.", {COUNT("", memory_bytes)}},
    {"quire_cache_disk_bytes", "Its document log.", {COUNT("", disk_bytes)}},
    {"quire_cache_document_bytes", "Living documents in it.", {COUNT("", document_bytes)}},
    {"quire_cache_sealed_entries", "Entries whose vectors lie on the disk.", {COUNT("", sealed_entries)}},
    {"quire_cache_sealed_disk_bytes", "Segments of vectors on the disk.", {COUNT("", sealed_disk_bytes)}},
    {"quire_cache_sealed_memory_bytes", "What those keep in memory.", {COUNT("", sealed_memory_bytes)}},
    {"quire_cache_get_seconds",
     "Quantiles of the time that lookups took.",
     {NUMBER(",quantile=\"0.5\"", get_p50_us, 1e-6), NUMBER(",quantile=\"0.99\"", get_p99_us, 1e-6),
      NUMBER(",quantile=\"0.999\"", get_p999_us, 1e-6)}},
    {"quire_cache_put_seconds",
     "Quantiles of the time that stores took.",
     {NUMBER(",quantile=\"0.5\"", put_p50_us, 1e-6), NUMBER(",quantile=\"0.99\"", put_p99_us, 1e-6),
      NUMBER(",quantile=\"0.999\"", put_p999_us, 1e-6)}},
};

static const struct cache_family of_categories[] = {
    {"quire_cache_entries", "Entries.", {COUNT("", entries)}},
    {"quire_cache_pinned", "Entries that are pinned.", {COUNT("", pinned)}},
    {"quire_cache_requests_total",
     "Lookups, by what came of them.",
     {COUNT(",outcome=\"hit\"", hits), COUNT(",outcome=\"exact\"", exact), COUNT(",outcome=\"stale\"", stale),
      COUNT(",outcome=\"audit\"", audits), COUNT(",outcome=\"miss\"", misses), COUNT(",outcome=\"negative\"", negative),
      COUNT(",outcome=\"bypass\"", bypassed)}},
    {"quire_cache_waits_total", "Lookups that waited for an answer in flight.", {COUNT("", waited)}},
    {"quire_cache_puts_total",
     "Answers offered, by what came of them.",
     {COUNT(",outcome=\"stored\"", stored), COUNT(",outcome=\"not_admitted\"", not_admitted),
      COUNT(",outcome=\"outdated\"", outdated), COUNT(",outcome=\"no_room\"", no_room)}},
    {"quire_cache_entries_gone_total",
     "Entries that went, by cause.",
     {COUNT(",cause=\"evicted_own\"", evicted_own), COUNT(",cause=\"evicted_cache\"", evicted_cache),
      COUNT(",cause=\"expired\"", expired), COUNT(",cause=\"invalidated\"", invalidated),
      COUNT(",cause=\"replaced\"", replaced), COUNT(",cause=\"removed\"", removed), COUNT(",cause=\"lost\"", lost)}},
    {"quire_cache_kept_back_total",
     "Candidates that were near enough and not served, by what kept them back.",
     {COUNT(",by=\"guard\"", guarded), COUNT(",by=\"veto\"", vetoed)}},
    {"quire_cache_labels_total", "Verdicts on answers.", {COUNT("", labels)}},
    {"quire_cache_false_hits_total", "Wrong answers among those with a verdict.", {COUNT("", false_hits)}},
    {"quire_cache_feedback_total",
     "SC.FEEDBACK by its verdict.",
     {COUNT(",verdict=\"good\"", feedback_good), COUNT(",verdict=\"bad\"", feedback_bad)}},
    {"quire_cache_tokens_saved_total", "Tokens of answers that were served.", {COUNT("", tokens_saved)}},
    {"quire_cache_model_seconds_saved_total",
     "Time of the model that answers took which were served.",
     {SCALED("", llm_ms_saved, 1e-3)}},
    {"quire_cache_cost_saved_dollars_total", "What they cost.", {NUMBER("", cost_saved, 1)}},
    {"quire_cache_cost_audits_dollars_total", "What audits cost.", {NUMBER("", cost_audits, 1)}},
    {"quire_cache_threshold", "Similarity from which entries are served.", {NUMBER("", threshold, 1)}},
    {"quire_cache_load", "How far load relaxes the error budget, 0 to 1.", {NUMBER("", lam, 1)}},
};

static void put_families(struct resp_buffer *text, const struct cache_family *families, size_t n_families,
                         const struct cache_metric *metrics, uint32_t n)
{
    for (size_t i = 0; i < n_families && n > 0; i++) {
        const struct cache_family *family = &families[i];
        head(text, family->name, family->help);
        for (uint32_t j = 0; j < n; j++) {
            for (unsigned k = 0; k < CACHE_SERIES_MAX && (k == 0 || family->series[k].label); k++) {
                const struct cache_metric *f = &metrics[j];
                put(text, "%s{cache=\"%s\"", family->name, f->cache);
                if (families == of_categories)
                    put(text, ",category=\"%s\"", f->category);
                put(text, "%s} %.17g\n", family->series[k].label, series_value(&family->series[k], &f->stats));
            }
        }
    }
}

static void put_caches(struct server *server, struct resp_buffer *text)
{
    struct cache_metrics metrics;
    text->failed |= !cache_metrics_take(server->service.caches, true, &metrics);
    number(text, "quire_caches", "Semantic caches.", (double)metrics.n_caches);
    number(text, "quire_cache_series_left_out", "Caches and categories that are too many to be shown here.",
           (double)metrics.left_out);
    number(text, "quire_caches_memory_bytes", "What all semantic caches keep in memory.",
           (double)info_cache_bytes(server));
    put_families(text, of_caches, sizeof of_caches / sizeof *of_caches, metrics.caches, metrics.n_caches);
    put_families(text, of_categories, sizeof of_categories / sizeof *of_categories, metrics.categories,
                 metrics.n_categories);
    cache_metrics_fini(&metrics);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

#define TENANT(field, is_double, scale)                                                                                \
    {                                                                                                                  \
        "", offsetof(struct fair_metric, field), is_double, scale                                                      \
    }

static void put_tenants(struct server *server, const struct info_totals *f, struct resp_buffer *text)
{
    static const struct {
        const char *name, *help;
        struct series series; /* scale 0: all that was refused */
    } families[] = {
        {"quire_tenant_queries_total", "Searches of a tenant that ended well.", TENANT(sums.queries, false, 1)},
        {"quire_tenant_refused_total", "Requests beyond a limit of the tenant.", TENANT(sums.refused, false, 0)},
        {"quire_tenant_reads_total", "Blocks read by its searches.", TENANT(sums.reads, false, 1)},
        {"quire_tenant_cpu_seconds_total", "Processor time of its searches.", TENANT(sums.cpu_us, false, 1e-6)},
        {"quire_tenant_cost_seconds_total", "What they cost: processor, and waiting for the disk.",
         TENANT(sums.cost_us, false, 1e-6)},
        {"quire_tenant_waiting", "Its searches that wait for their turn.", TENANT(sums.waiting, false, 1)},
        {"quire_tenant_wait_p99_seconds", "99th percentile of that wait.", TENANT(wait_p99_us, true, 1e-6)},
        {"quire_tenant_latency_p99_seconds", "The same of the wait and the search.",
         TENANT(latency_p99_us, true, 1e-6)}};
    struct fair_metrics metrics;
    text->failed |= !fair_metrics_take(&server->service, FAIR_METRICS_SCRAPED, &metrics);
    number(text, "quire_tenants", "Tenants, and users without one, that are remembered.", (double)metrics.tenants);
    number(text, "quire_tenant_series_left_out", "Tenants that are too many to be shown here.",
           (double)(metrics.tenants - metrics.n));
    number(text, "quire_searches_at_once", "Searches that lanes run before others wait.", (double)f->searches_at_once);
    for (size_t i = 0; i < sizeof families / sizeof *families && metrics.n > 0; i++) {
        const struct series *series = &families[i].series;
        head(text, families[i].name, families[i].help);
        for (uint32_t k = 0; k < metrics.n; k++) {
            const struct fair_metric *m = &metrics.metrics[k];
            put(text, "%s{%s=\"%s\"} %.17g\n", families[i].name, m->kind == FAIR_TENANT ? "tenant" : "user", m->name,
                series->scale > 0 ? series_value(series, m) : (double)fair_refused(&m->sums));
        }
    }
    head(text, "quire_refused_total", "Requests of all tenants beyond a limit, by the limit.");
    for (unsigned i = 0; i < N_REFUSALS; i++)
        put(text, "quire_refused_total{limit=\"%s\"} %" PRIu64 "\n", fair_refusal_name((enum fair_refusal)i),
            metrics.all.refused[i]);
    fair_metrics_fini(&metrics);
}

static void put_keys(struct server *server, const struct info_totals *f, struct resp_buffer *text)
{
    number(text, "quire_keys", "Keys.", (double)keyspace_count(&server->service.keyspace));
    number(text, "quire_keyspace_bytes", "Keys, strings and hashes with their tables; see maxmemory.",
           (double)atomic_load(&server->service.keyspace.used_bytes));
    number(text, "quire_keyspace_hits_total", "Keys that were there when a command read them.",
           (double)f->keyspace_hits);
    number(text, "quire_keyspace_misses_total", "Keys that were not.", (double)f->keyspace_misses);
    number(text, "quire_expired_keys_total", "Keys removed because their time was over.",
           (double)atomic_load(&server->service.keyspace.expired));
}

static void put_journal(struct server *server, struct resp_buffer *text)
{
    struct journal_stats s;
    if (!server->service.journal)
        return;
    journal_get_stats(server->service.journal, &s);
    number(text, "quire_log_bytes", "Log since the last checkpoint.", (double)s.log_bytes);
    number(text, "quire_log_unwritten_bytes", "Log in memory, not written yet.", (double)s.unwritten_bytes);
    number(text, "quire_log_frames_total", "Frames written to the log.", (double)s.frames);
    number(text, "quire_log_written_bytes_total", "Bytes written to the log.", (double)s.bytes);
    number(text, "quire_log_syncs_total", "Syncs of the log.", (double)s.syncs);
    number(text, "quire_log_sync_seconds_total", "Time of these syncs.", (double)s.sync_us * 1e-6);
    number(text, "quire_log_failures_total", "Writes and syncs of the log that failed.", (double)s.failures);
    number(text, "quire_log_delayed_total", "Writes refused since the disk had not taken one for two seconds.",
           (double)s.delayed);
    number(text, "quire_checkpoint_bytes", "The last checkpoint.", (double)s.checkpoint_bytes);
}

static void put_store(struct server *server, struct resp_buffer *text)
{
    struct store_stats s;
    if (!server->service.store)
        return;
    store_get_stats(server->service.store, &s);
    number(text, "quire_collections", "Vector sets.", (double)s.collections);
    number(text, "quire_segments", "Sealed segments.", (double)s.segments);
    number(text, "quire_memtable_bytes", "Elements in memory, not sealed yet.", (double)s.memtable_bytes);
    number(text, "quire_disk_bytes", "The folder of data; see maxdisk.", (double)s.disk_bytes);
    number(text, "quire_seals_total", "Memtables sealed to segments.", (double)s.seals);
    number(text, "quire_merges_total", "Merges of segments.", (double)s.merges);
    number(text, "quire_checkpoints_total", "Checkpoints written.", (double)s.checkpoints);
    number(text, "quire_store_failures_total", "Seals, merges and checkpoints that failed.", (double)s.failures);
    head(text, "quire_store_busy", "What the store does in the background: 1 while it does it.");
    put(text, "quire_store_busy{work=\"seal\"} %d\n", s.sealing);
    put(text, "quire_store_busy{work=\"merge\"} %d\n", s.merging);
    put(text, "quire_store_busy{work=\"checkpoint\"} %d\n", s.checkpointing);
}

static void put_setting(void *context, const char *name, const char *value, const char *help)
{
    struct resp_buffer *text = context;
    char *end = NULL;
    (void)help;
    if (config_is_secret(name, strlen(name)) || !*value)
        return;
    bool yes = strcmp(value, "yes") == 0, no = strcmp(value, "no") == 0;
    double as_number = yes || no ? yes : strtod(value, &end);
    if (end && *end)
        return;
    put(text, "quire_setting{name=\"%s\"} %.17g\n", name, as_number);
}

void metrics_write(struct server *server, struct resp_buffer *text)
{
    struct info_totals f;
    info_sum(server, &f);
    put_server(server, &f, text);
    put_commands(server, &f, text);
    put_searches(&f, text);
    struct memory_resident resident;
    memory_resident(&resident);
    number(text, "process_resident_memory_bytes", "Resident memory as the kernel counts it.", (double)resident.total);
    number(text, "quire_anonymous_memory_bytes", "Resident memory that is no file's: codes, buffers, heap.",
           (double)resident.anonymous);
    number(text, "quire_peak_memory_bytes", "The most that was resident.", (double)resident.peak);
    number(text, "quire_index_memory_bytes", "What all vector sets keep in memory.", (double)info_index_bytes(server));
    put_keys(server, &f, text);
    put_journal(server, text);
    put_store(server, text);
    put_caches(server, text);
    put_tenants(server, &f, text);
    head(text, "quire_setting", "Settings that are numbers; yes is 1, no is 0.");
    config_each(server->service.config, put_setting, text);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void free_if_over(struct http_client *h)
{
    struct metrics *m = h->loop->server->metrics;
    if (!h->dead || h->receiving || h->sending || h->cancelling)
        return;
    assert((h == m->clients) == !h->prev);
    if (h->prev)
        h->prev->next = h->next;
    else
        m->clients = h->next;
    if (h->next)
        h->next->prev = h->prev;
    m->n_clients--;
    close(h->fd);
    resp_buffer_fini(&h->out);
    free(h);
}

static void on_cancel(struct io_op *op, int result, unsigned flags)
{
    struct http_client *h = op->owner;
    (void)result;
    (void)flags;
    h->cancelling = false;
    free_if_over(h);
}

/* Has the kernel give the ops back; freed when it has. */
static void end(struct http_client *h)
{
    if (!h->dead) {
        shutdown(h->fd, SHUT_RDWR);
        h->cancelling = h->receiving; /* a receive may miss the shutdown (engine.h) */
        h->cancel = (struct io_op){.kind = IO_CANCEL, .target = &h->recv, .done = on_cancel, .owner = h};
        if (h->cancelling)
            engine_queue(h->loop->lane.engine, &h->cancel);
    }
    h->dead = true;
    free_if_over(h);
}

static void send_more(struct http_client *h)
{
    h->send.buffer = h->out.data + h->sent;
    h->send.bytes = (uint32_t)(h->out.bytes - h->sent);
    h->sending = true;
    engine_queue(h->loop->lane.engine, &h->send);
}

static void on_send(struct io_op *op, int result, unsigned flags)
{
    struct http_client *h = op->owner;
    (void)flags;
    h->sending = false;
    h->sent += result > 0 ? (size_t)result : 0;
    if (result <= 0 || h->dead) {
        end(h);
    } else if (h->sent < h->out.bytes) {
        send_more(h);
    } else {
        /* until the other side closes too: a reset would take the answer with it */
        shutdown(h->fd, SHUT_WR);
        h->deadline_ms = h->loop->lane.now_ms + LINGER_MS;
    }
}

static void answer(struct http_client *h, const char *status, const char *type, const char *allow, bool with_body,
                   const struct resp_buffer *body)
{
    h->answered = true;
    put(&h->out,
        "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n",
        status, type, body->bytes, allow);
    if (with_body)
        resp_raw(&h->out, body->data, body->bytes);
    if (h->out.failed || body->failed)
        end(h);
    else
        send_more(h);
}

static void answer_line(struct http_client *h, const char *status, const char *allow, bool with_body, const char *line)
{
    struct resp_buffer body = {.protocol = 2};
    put(&body, "%s\n", line);
    answer(h, status, "text/plain; charset=utf-8", allow, with_body, &body);
    resp_buffer_fini(&body);
}

/* /health says whether the server lives and can write: who answers 503 there is worth a restart or a look at the disk.
 * What some files' damage makes unavailable no restart brings back, so it is told with 200 there, and is 503 at /ready
 * only. */
static void answer_state(struct http_client *h, bool get, bool ready, const char *unhealthy)
{
    uint64_t sets, caches;
    char line[160];
    info_count_unavailable(h->loop->server, &sets, &caches);
    bool degraded = sets + caches > 0;
    if (degraded)
        snprintf(line, sizeof line,
                 "degraded: %" PRIu64 " vector sets and %" PRIu64 " caches are unavailable, INFO damage names them",
                 sets, caches);
    answer_line(h, unhealthy || (degraded && ready) ? "503 Service Unavailable" : "200 OK", "", get,
                unhealthy  ? unhealthy
                : degraded ? line
                           : "ok");
}

/* Answers once the request's head is whole. */
static void take(struct http_client *h)
{
    char method[16], path[256], version[16];
    const char *ends[] = {"\r\n\r\n", "\n\n"};
    bool whole = false;
    for (size_t i = 0; i < 2; i++)
        whole |= memmem(h->in, h->n_in, ends[i], strlen(ends[i])) != NULL;
    if (!whole && h->n_in < sizeof h->in - 1)
        return;
    h->in[h->n_in] = 0;
    if (!whole || sscanf(h->in, "%15[A-Z] %255[^ \r\n] %15[^ \r\n]", method, path, version) != 3 ||
        strncmp(version, "HTTP/1.", 7) != 0) {
        answer_line(h, "400 Bad Request", "", true, whole ? "not an HTTP/1 request" : "a request of more than 8 KiB");
        return;
    }
    path[strcspn(path, "?#")] = 0;
    struct server *server = h->loop->server;
    const char *unhealthy = atomic_load(&server->unhealthy);
    bool get = strcmp(method, "GET") == 0;
    if (!get && strcmp(method, "HEAD") != 0) {
        answer_line(h, "405 Method Not Allowed", "Allow: GET, HEAD\r\n", true, "only GET and HEAD");
    } else if (strcmp(path, "/metrics") == 0) {
        struct resp_buffer body = {.protocol = 2};
        metrics_write(server, &body);
        answer(h, "200 OK", "text/plain; version=0.0.4; charset=utf-8", "", get, &body);
        resp_buffer_fini(&body);
    } else if (strcmp(path, "/health") == 0 || strcmp(path, "/ready") == 0) {
        answer_state(h, get, path[1] == 'r', unhealthy);
    } else {
        answer_line(h, "404 Not Found", "", get, "there are /metrics, /health and /ready");
    }
}

static void on_receive(struct io_op *op, int result, unsigned flags)
{
    struct http_client *h = op->owner;
    if (!(flags & IO_MORE))
        h->receiving = false;
    if (result <= 0 || h->dead) {
        end(h);
        return;
    }
    if (h->answered)
        return;
    size_t capacity = sizeof h->in - 1 - h->n_in, n = (size_t)result < capacity ? (size_t)result : capacity;
    memcpy(h->in + h->n_in, op->buffer, n);
    h->n_in += n;
    take(h);
}

/* Who has not sent a whole request goes for one that comes, the oldest first; then who does not read his answer. A
 * scraper sends its request at once. */
static void drop_oldest(struct metrics *m)
{
    struct http_client *oldest = NULL;
    for (struct http_client *h = m->clients; h; h = h->next) /* the newest is the first */
        if (!h->dead && (!oldest || !h->answered || oldest->answered))
            oldest = h;
    if (oldest)
        end(oldest);
}

static void on_accept(struct io_op *op, int result, unsigned flags)
{
    struct loop *loop = op->owner;
    struct metrics *m = loop->server->metrics;
    if (!(flags & IO_MORE))
        m->accepting[op - m->accepts] = false;
    if (result < 0)
        return; /* tried again with the next tick */
    if (m->n_clients >= CLIENTS_MAX)
        drop_oldest(m);
    struct http_client *h = loop->stopping || m->n_clients >= CLIENTS_HARD_MAX ? NULL : calloc(1, sizeof *h);
    if (!h) {
        close(result);
        return;
    }
    h->loop = loop;
    h->fd = result;
    h->out.protocol = 2;
    h->deadline_ms = loop->lane.now_ms + TIME_MS;
    h->recv = (struct io_op){.kind = IO_RECV, .fd = result, .done = on_receive, .owner = h};
    h->send = (struct io_op){.kind = IO_SEND, .fd = result, .done = on_send, .owner = h};
    h->next = m->clients;
    if (h->next)
        h->next->prev = h;
    m->clients = h;
    m->n_clients++;
    h->receiving = true;
    engine_queue(loop->lane.engine, &h->recv);
}

/* Begins to accept, and begins again where that has ended. */
static void tick(struct lane *lane)
{
    struct server *server = loop_of(lane)->server;
    struct metrics *m = server->metrics;
    for (unsigned i = 0; lane->index == 0 && i < server->n_metrics_listeners; i++) {
        if (m->accepting[i])
            continue;
        m->accepts[i] = (struct io_op){
            .kind = IO_ACCEPT, .fd = server->metrics_listeners[i], .done = on_accept, .owner = loop_of(lane)};
        m->accepting[i] = true;
        engine_queue(lane->engine, &m->accepts[i]);
    }
}

static void scan(struct lane *lane, bool all)
{
    struct server *server = loop_of(lane)->server;
    struct http_client *next;
    if (lane->index != 0)
        return;
    if (server->service.journal) {
        /* what /health and LATENCY say of the journal */
        struct quire_error err;
        int code = journal_health(server->service.journal, &err);
        atomic_store(&server->unhealthy, code == 0                ? NULL
                                         : code == QUIRE_ENOSPACE ? "writes are refused: the disk is full"
                                                                  : "writes are refused: the log cannot be written");
        latency_add(server, "sync", journal_take_sync_us(server->service.journal));
    }
    for (struct http_client *h = server->metrics->clients; h; h = next) {
        next = h->next;
        if (all || lane->now_ms >= h->deadline_ms)
            end(h);
    }
}

static bool busy(const struct lane *lane)
{
    const struct loop *loop = (const struct loop *)(const void *)lane;
    return lane->index == 0 && loop->server->metrics->n_clients > 0;
}

const struct lane_hook metrics_hook = {.tick = tick, .scan = scan, .busy = busy};
