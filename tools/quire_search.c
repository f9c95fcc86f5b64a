/*
 * quire_search.c - `quire search`: run a file of queries and say what that cost.
 *
 * The process is measured whole (VmRSS), so it keeps little itself: queries are read in chunks of about 2 MiB with
 * their hits, of the truth only the ids that count as right stay, and latencies go into a histogram, within 0.4 %,
 * instead of a list. What queries and truth still hold is reported as query_bytes. The clock and the processor time
 * cover the searches only, not the reading of files nor the counting of hits; lanes exist before the clock starts.
 *
 * Recall counts a hit when its id is among the truth's first k, or tied with the k-th by the truth's own distances:
 * distances of the index itself are no judge, since its blocks may hold vectors rounded. Only where the ties reach the
 * end of the truth's list, so that a tied id may be missing there, a hit at that same distance counts too.
 *
 * With --exact a device may name the rows that can be among the nearest (index/exact): the answers are the same, bit
 * for bit, with far fewer reads. Its time is part of the run, and of each query's latency in its chunk.
 *
 * Under a filter or for tenants a query may have fewer than k neighbours, and its truth says how many (vecfile.h):
 * recall is of those, and a query that got another number of hits is counted, as that must not be.
 */
#include "datasets/vecfile.h"
#include "index/api/library.h"
#include "index/exact/exact.h"
#include "index/kernels/kernels.h"
#include "index/offload/offload.h"
#include "index/vector/space.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/engine.h"
#include "io/error.h"
#include "io/histogram.h"
#include "io/memory.h"
#include "tools/cli/cli_gpu.h"
#include "tools/measure/open_loop.h"
#include "tools/measure/slowest.h"
#include "tools/quire_verbs.h"
#include <assert.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CHUNK_BYTES      ((uint64_t)2 << 20)
#define CHUNK_ROUNDS_MIN 8u    /* a chunk refills each place in flight this often, so that its end does not weigh */
#define CHUNK_DEVICE     1024u /* queries that a device has at once, at least */
#define LANES_MAX        256u
#define INFLIGHT_MAX     4096u
#define INFLIGHT_DEFAULT 32u
#define TIE_TOLERANCE    1e-6f /* relative: two ways of summing the same floats */
#define SLOWEST_SHARE    0.01
#define PROCESSOR_BOUND  0.85 /* share of the lanes' time */
#define LATENCY_SUB_BITS 7u
#define LATENCY_BITS     40u /* 2^40 ns: 18 minutes */

/* The right answers: ids of query q at ids[start[q]] .. ids[start[q + 1]], ascending; wanted[q] of them are to be
 * found. */
struct expected {
    uint32_t n, *start, *ids, *wanted;
    float *
        open_tie; /* per query the distance at which the list was cut off within a tie, NAN where it was not; or NULL */
    uint64_t bytes;
    bool by_distance;
};

#define PLANS (QUIRE_PLAN_MEMORY + 1)

struct totals {
    uint64_t asked, queries, reads, cached, bytes, rounds, rows_scored, codes_scored, effort, estimated, cut_short,
        right, wanted;
    uint64_t plans[PLANS], switched, exact, reads_expected, reads_max, matches; /* matches: of the last query */
    uint64_t too_few, too_many;                                                 /* queries whose hits are */
    double wall_s, cpu_s;
};

struct search_work {
    struct cli *cli;
    const char *path, *queries_path, *truth_path, *filter;
    struct cli_texts tenants;
    struct quire_bytes tenant_bytes[CLI_TEXTS_MAX];
    uint64_t k, limit, lanes, inflight, repeat, effort, reads_max, in_flight_reads, filter_effort;
    double recall, rate, seconds;
    bool exact, no_cache, show_hits, explain;
    int engine, distance;
    struct cli_memory memory;
    struct cli_gpu gpu;

    struct quire_index *index;
    struct quire_info info;
    struct expected expected;
    uint64_t chunk, rows; /* queries at a time, and in a pass */
    size_t stored_bytes;  /* of a query in its file */
    void *stored;         /* as in the file; NULL for f32, which is read in place */
    float *queries;
    bool first_pass;
    struct exact_rows *device; /* the index's rows on a device; NULL: the processor looks at all */
    uint32_t *named_rows;      /* of a chunk: device_most places per query */
    uint32_t *named_counts;
    uint32_t device_most;
    const float **query_places;
    struct library_named *named;
    uint64_t queries_named;
    char *text; /* of shown attributes */
    size_t text_room;
    struct quire_hit *hits;
    uint32_t *n_hits;
    struct quire_search_stats *stats;
    struct totals totals;
    struct histogram latencies; /* ns */
    _Atomic uint64_t latency_counts[HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS)];
    struct slowest slowest;
    struct {
        struct histogram line; /* ns */
        _Atomic uint64_t line_counts[HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS)];
        double due_s; /* of the last arrival */
        uint64_t line_at_end;
        bool kept;
    } open; /* of an open loop */
    char engine_name[16], engine_note[160];
};

/* ---- truth ------------------------------------------------------------------------------------------------------- */

/* How many of a query's ids count as right where `wanted` are wanted. */
static uint32_t count_right(const struct truth *truth, uint32_t query, uint32_t wanted)
{
    const float *distances = truth->distances ? truth->distances + (size_t)query * truth->k : NULL;
    uint32_t n = wanted, all = truth_count(truth, query);
    while (distances && wanted > 0 && n < all && distances[n] <= distances[wanted - 1])
        n++;
    return n;
}

static uint32_t count_wanted(const struct truth *truth, uint32_t query, uint32_t k)
{
    uint32_t n = truth_count(truth, query);
    return n < k ? n : k;
}

static int keep_expected(const struct truth *truth, uint32_t n, uint32_t k, struct expected *out,
                         struct quire_error *err)
{
    uint64_t total = 0;
    for (uint32_t q = 0; q < n; q++)
        total += count_right(truth, q, count_wanted(truth, q, k));
    *out = (struct expected){.n = n, .by_distance = truth->distances != NULL};
    out->start = malloc(sizeof *out->start * (n + 1u));
    out->wanted = malloc(sizeof *out->wanted * (n + 1u));
    out->ids = malloc(memory_size_mul(total + 1, sizeof *out->ids));
    out->open_tie = truth->distances ? malloc(sizeof *out->open_tie * (n + 1u)) : NULL;
    if (total > UINT32_MAX || !out->start || !out->wanted || !out->ids || (truth->distances && !out->open_tie))
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu ids of the truth", (unsigned long long)total);
    out->bytes = (sizeof *out->start + sizeof *out->wanted) * (n + 1u) + total * sizeof *out->ids +
                 (out->open_tie ? sizeof(float) * n : 0);
    uint32_t at = 0;
    for (uint32_t q = 0; q < n; q++) {
        uint32_t wanted = count_wanted(truth, q, k), right = count_right(truth, q, wanted);
        out->start[q] = at;
        out->wanted[q] = wanted;
        memcpy(out->ids + at, truth->ids + (size_t)q * truth->k, sizeof(uint32_t) * right);
        array_sort_u32(out->ids + at, right);
        if (out->open_tie)
            out->open_tie[q] =
                right == truth->k && right > 0 ? truth->distances[(size_t)q * truth->k + wanted - 1] : NAN;
        at += right;
    }
    out->start[n] = at;
    return 0;
}

static int load_expected(struct search_work *w, struct quire_error *err)
{
    struct truth truth = {0};
    uint32_t k = (uint32_t)(w->k < w->info.rows ? w->k : w->info.rows);
    int rc = truth_load(w->truth_path, &truth, err);
    if (rc < 0)
        return rc;
    if (truth.k < k)
        rc = error_set(err, QUIRE_ERANGE, "%s has the %u nearest, --k %u asks for more", w->truth_path, truth.k, k);
    else if (w->rows != UINT64_MAX && truth.n_queries < w->rows)
        rc = error_set(err, QUIRE_ERANGE, "%s has %u queries, %llu are to be searched: it belongs to other queries",
                       w->truth_path, truth.n_queries, (unsigned long long)w->rows);
    else
        rc = keep_expected(&truth, w->rows == UINT64_MAX ? truth.n_queries : (uint32_t)w->rows, k, &w->expected, err);
    truth_free(&truth);
    malloc_trim(0);
    return rc;
}

static bool is_right(const struct expected *expected, uint64_t query, const struct quire_hit *hit)
{
    const uint32_t *ids = expected->ids + expected->start[query], id = (uint32_t)hit->id;
    if (array_has_u32(ids, expected->start[query + 1] - expected->start[query], id))
        return true;
    float tie = expected->open_tie ? expected->open_tie[query] : NAN;
    return fabsf(hit->distance - tie) <= TIE_TOLERANCE * fabsf(tie);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

/* Which engine the lanes will get, and why not io_uring: a handle does not say. */
static int name_engine(struct search_work *w, struct quire_error *err)
{
    struct engine_config config = {.kind = (enum quire_engine_kind)w->engine};
    struct engine *engine = NULL;
    int rc = engine_create(&config, &engine, err);
    if (rc < 0)
        return rc;
    snprintf(w->engine_name, sizeof w->engine_name, "%s", engine_name(engine));
    snprintf(w->engine_note, sizeof w->engine_note, "%s", engine_note(engine));
    engine_destroy(engine);
    return 0;
}

static int open_index(struct search_work *w, struct quire_error *err)
{
    struct quire_open_options options;
    uint64_t raw_bytes = 0;
    int rc = w->memory.percent > 0 ? cli_index_raw_bytes(w->path, &raw_bytes, err) : 0;
    if (rc < 0)
        return rc;
    quire_open_options_init(&options);
    options.memory_bytes = cli_memory_bytes(&w->memory, raw_bytes);
    options.no_cache = w->no_cache;
    options.engine = (enum quire_engine_kind)w->engine;
    options.reads_max = (unsigned)w->in_flight_reads;
    rc = quire_open(w->path, &options, &w->index, err);
    if (rc == 0)
        quire_get_info(w->index, &w->info);
    return rc;
}

/* Checks the file of queries against the index and sets how many there are. */
static int look_at_queries(struct search_work *w, const struct vecfile *file, struct quire_error *err)
{
    if (vecfile_is_ivecs(file))
        return error_set(err, QUIRE_ETYPE, "%s holds ids, not vectors", w->queries_path);
    if (vecfile_dim(file) != w->info.dim)
        return error_set(err, QUIRE_EDIM, "%s has dimension %u, %s has %u", w->queries_path, vecfile_dim(file), w->path,
                         w->info.dim);
    w->rows = vecfile_rows(file);
    if (w->limit && w->limit < w->rows)
        w->rows = w->limit;
    w->stored_bytes = vecfile_dim(file) * quire_type_bytes(vecfile_type(file));
    return w->rows ? 0 : error_set(err, QUIRE_EINVALID, "%s has no rows", w->queries_path);
}

/* Why an exact search of this kind is the processor's; NULL: a device may help. */
static const char *processor_only(const struct search_work *w)
{
    if (w->filter || w->tenants.n > 0)
        return "with a filter or tenants the processor reads what they leave";
    if (w->rate > 0)
        return "queries that arrive one by one are the processor's";
    if (w->reads_max > 0)
        return "--reads-max bounds what the processor reads";
    return w->rows == UINT64_MAX ? "how many queries there will be is not known" : NULL;
}

static void leave_device(struct search_work *w)
{
    exact_close(w->device);
    w->device = NULL;
    array_free_all(w->named_rows, w->named_counts, w->query_places, w->named);
    w->named_rows = w->named_counts = NULL;
    w->query_places = NULL;
    w->named = NULL;
}

static int make_device_buffers(struct search_work *w, struct quire_error *err)
{
    w->device_most = exact_most(w->device, (uint32_t)w->k, 0);
    w->named_rows = malloc(memory_size_mul(w->chunk * w->device_most, sizeof *w->named_rows));
    w->named_counts = malloc(memory_size_mul(w->chunk, sizeof *w->named_counts));
    w->query_places = malloc(memory_size_mul(w->chunk, sizeof *w->query_places));
    w->named = malloc(memory_size_mul(w->chunk, sizeof *w->named));
    return w->named_rows && w->named_counts && w->query_places && w->named
               ? 0
               : error_set(err, QUIRE_ENOMEM, "no memory for the rows that a device names");
}

/* Whether a device is to name rows; where not, gpu.note says why. */
static void open_device(struct search_work *w)
{
    struct quire_error err = {0};
    struct offload_work works[2];
    const char *why = w->exact ? processor_only(w) : NULL;
    bool is_off = w->gpu.wanted && strcmp(w->gpu.wanted, "off") == 0;
    if (!w->exact || is_off)
        return;
    if (why) {
        snprintf(w->gpu.note, sizeof w->gpu.note, "%s", why);
        if (w->gpu.wanted && strcmp(w->gpu.wanted, "auto") != 0)
            cli_note(w->cli, "--gpu %s: %s", w->gpu.wanted, why);
        return;
    }
    uint64_t queries = w->rows * w->repeat;
    struct segment *segment = library_segment(w->index);
    struct offload_status status;
    exact_work(segment, 0, queries < UINT32_MAX ? (uint32_t)queries : UINT32_MAX, &works[0], &works[1]);
    cli_gpu_open(w->cli, &w->gpu, works, 2, (unsigned)w->lanes);
    if (!w->gpu.offload)
        return;
    offload_get_status(w->gpu.offload, &status);
    /* queries that are asked together read all rows once, as parts or to make codes, and rows name fewer */
    unsigned bits = queries > CHUNK_DEVICE ? exact_bits_for(segment, status.device.memory_bytes / 4 * 3) : 0;
    if (exact_open(w->gpu.offload, segment, bits, &w->device, &err) < 0)
        snprintf(w->gpu.note, sizeof w->gpu.note, "%s", err.message);
}

static int make_buffers(struct search_work *w, struct quire_error *err)
{
    if (w->rate > 0 && w->rows == UINT64_MAX)
        return error_set(
            err, QUIRE_EINVALID,
            "%s does not say how many queries it has: give --limit, or a file instead of a pipe, with --rate",
            w->queries_path);
    uint64_t dim = w->info.dim, places = w->lanes * w->inflight;
    uint64_t row = dim * sizeof(float) + w->k * sizeof *w->hits + sizeof *w->stats;
    uint64_t least = w->exact ? places : places * CHUNK_ROUNDS_MIN;
    w->chunk = w->exact || CHUNK_BYTES / row < least ? least : CHUNK_BYTES / row;
    if (w->device && w->chunk < CHUNK_DEVICE)
        w->chunk = CHUNK_DEVICE;
    if (w->chunk > w->rows || w->rate > 0)
        w->chunk = w->rows;
    w->queries = malloc(memory_size_mul(w->chunk * dim, sizeof(float)));
    w->stored = w->stored_bytes == dim * sizeof(float) ? NULL : malloc(memory_size_mul(w->chunk, w->stored_bytes));
    w->hits = malloc(memory_size_mul(w->chunk * w->k, sizeof *w->hits));
    w->n_hits = malloc(memory_size_mul(w->chunk, sizeof *w->n_hits));
    w->stats = malloc(memory_size_mul(w->chunk, sizeof *w->stats));
    bool ok = w->queries && w->hits && w->n_hits && w->stats && (w->stored || w->stored_bytes == dim * sizeof(float));
    if (ok && w->device && make_device_buffers(w, err) < 0) {
        snprintf(w->gpu.note, sizeof w->gpu.note, "%s", err->message);
        leave_device(w);
    }
    return ok ? 0
              : error_set(err, QUIRE_ENOMEM,
                          "no memory for %llu queries at a time with k %llu: use a smaller --k, "
                          "--lanes or --inflight",
                          (unsigned long long)w->chunk, (unsigned long long)w->k);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static bool is_restricted(const struct search_work *w)
{
    return w->filter || w->tenants.n > 0;
}

static void count_answer(struct search_work *w, uint64_t query, uint32_t n_hits, const struct quire_hit *hits)
{
    struct totals *t = &w->totals;
    uint32_t wanted = (uint32_t)(w->k < w->info.rows ? w->k : w->info.rows);
    if (w->expected.ids) {
        wanted = w->expected.wanted[query];
        for (uint32_t i = 0; i < n_hits; i++)
            t->right += is_right(&w->expected, query, &hits[i]);
        t->too_few += n_hits < wanted;
        t->too_many += n_hits > wanted;
    }
    t->wanted += wanted;
}

static void count(struct search_work *w, uint64_t first, uint64_t n)
{
    struct totals *t = &w->totals;
    for (uint64_t q = 0; q < n; q++) {
        const struct quire_search_stats *s = &w->stats[q];
        t->reads += s->reads;
        t->reads_max = s->reads > t->reads_max ? s->reads : t->reads_max;
        t->reads_expected += s->reads_expected;
        t->cached += s->cached;
        t->bytes += s->bytes;
        t->rounds += s->rounds;
        t->rows_scored += s->rows_scored;
        t->codes_scored += s->codes_scored;
        t->cut_short += !s->complete;
        t->effort = s->effort;
        t->estimated += s->estimated;
        t->matches = s->matches;
        t->switched += s->switched;
        t->exact += s->exact;
        t->plans[s->plan < PLANS ? s->plan : 0]++;
        if (w->rate == 0) {
            struct slowest_sums answer = {
                .n = 1, .latency_ns = s->latency_ns, .cpu_ns = s->cpu_ns, .reads = s->reads, .rounds = s->rounds};
            histogram_add(&w->latencies, s->latency_ns);
            slowest_add(&w->slowest, &answer);
        }
        count_answer(w, first + q, w->n_hits[q], &w->hits[q * w->k]);
    }
    t->queries += n;
}

/* ---- what single queries got ------------------------------------------------------------------------------------- */

static void explain(struct search_work *w, uint64_t query, uint64_t at)
{
    const struct quire_search_stats *s = &w->stats[at];
    json_t *row = cli_put_row(w->cli, NULL, "explain");
    cli_put_count(w->cli, row, "query", query);
    cli_put_text(w->cli, row, "plan", quire_plan_name(s->plan));
    cli_put_bool(w->cli, row, "switched", s->switched);
    cli_put_count(w->cli, row, "matches", s->matches);
    cli_put_count(w->cli, row, "hits", w->n_hits[at]);
    cli_put_count(w->cli, row, "reads_expected", s->reads_expected);
    cli_put_count(w->cli, row, "reads", s->reads);
    cli_put_count(w->cli, row, "cached", s->cached);
    cli_put_count(w->cli, row, "rounds", s->rounds);
    cli_put_real(w->cli, row, "latency_us", (double)s->latency_ns / 1e3);
    cli_put_text(w->cli, row, "answer", s->exact ? "exact" : s->complete ? "complete" : "partial");
}

/* *bytes 0: the row has none. */
static int read_attributes(struct search_work *w, uint32_t row, size_t *bytes, struct quire_error *err)
{
    int rc;
    do {
        *bytes = w->text_room;
        rc = quire_attributes(w->index, row, w->text, bytes, err);
        if (rc != QUIRE_ELIMIT)
            break;
        char *larger = realloc(w->text, *bytes);
        if (!larger)
            return error_set(err, QUIRE_ENOMEM, "no memory for attributes of %zu bytes", *bytes);
        w->text = larger;
        w->text_room = *bytes;
    } while (true);
    *bytes = rc == 0 ? *bytes : 0;
    return rc == QUIRE_ENOTFOUND ? 0 : rc;
}

static int show_hit(struct search_work *w, uint64_t query, const struct quire_hit *hit, struct quire_error *err)
{
    static char key[QUIRE_KEY_BYTES_MAX];
    size_t key_bytes = sizeof key, bytes = 0;
    json_t *row = cli_put_row(w->cli, NULL, "hits");
    int rc = quire_key(w->index, hit->row, key, &key_bytes, err);
    if (rc == 0)
        rc = read_attributes(w, hit->row, &bytes, err);
    if (rc < 0)
        return rc;
    json_t *name = json_stringn(key, key_bytes), *attributes = bytes ? json_stringn(w->text, bytes) : json_null();
    cli_put_count(w->cli, row, "query", query);
    cli_put_count(w->cli, row, "id", hit->id);
    cli_put(w->cli, row, "key", name ? name : json_string("(not UTF-8)"));
    cli_put_real(w->cli, row, "distance", (double)hit->distance);
    cli_put_real(w->cli, row, "deviation", (double)hit->deviation);
    cli_put(w->cli, row, "attributes", attributes ? attributes : json_string("(not UTF-8)"));
    return 0;
}

static int show(struct search_work *w, uint64_t first, uint64_t n, struct quire_error *err)
{
    int rc = 0;
    for (uint64_t q = 0; rc == 0 && q < n; q++) {
        if (w->explain)
            explain(w, first + q, q);
        for (uint32_t i = 0; rc == 0 && w->show_hits && i < w->n_hits[q]; i++)
            rc = show_hit(w, first + q, &w->hits[q * w->k + i], err);
    }
    return rc;
}

static void set_options(const struct search_work *w, struct quire_search_options *options)
{
    quire_search_options_init(options);
    options->k = (uint32_t)w->k;
    options->recall = (float)w->recall;
    options->effort = (uint32_t)w->effort;
    options->reads_max = (uint32_t)w->reads_max;
    options->exact = w->exact;
    options->distance = (enum quire_distance)w->distance;
    options->filter = w->filter;
    options->filter_bytes = w->filter ? strlen(w->filter) : 0;
    options->filter_effort = (uint32_t)w->filter_effort;
    options->tenants = w->tenants.n > 0 ? w->tenant_bytes : NULL;
    options->n_tenants = w->tenants.n;
}

/* The rows that can be among the nearest of each of n queries, by the device; false: the processor looks at all. */
static bool name_rows(struct search_work *w, uint64_t n)
{
    struct quire_error err = {0};
    struct exact_request request = {.n = (uint32_t)n,
                                    .k = (uint32_t)w->k,
                                    .queries = w->query_places,
                                    .most = w->device_most,
                                    .counts = w->named_counts,
                                    .rows = w->named_rows};
    if (!w->device)
        return false;
    for (uint64_t q = 0; q < n; q++)
        w->query_places[q] = w->queries + q * w->info.dim;
    if (exact_name(w->device, &request, &err) < 0) {
        snprintf(w->gpu.note, sizeof w->gpu.note, "%s", err.message);
        leave_device(w);
        return false;
    }
    for (uint64_t q = 0; q < n; q++) {
        w->named[q] = (struct library_named){w->named_rows + q * w->device_most, w->named_counts[q]};
        w->queries_named += w->named_counts[q] > 0;
    }
    return true;
}

static int search_chunk(struct search_work *w, uint64_t n, struct quire_error *err)
{
    struct quire_search_options options;
    set_options(w, &options);
    double cpu = processor_seconds();
    uint64_t begin = clock_ns();
    bool is_named = name_rows(w, n);
    uint64_t naming_ns = is_named ? clock_ns() - begin : 0;
    int rc = library_search_named(w->index, w->queries, n, &options, (unsigned)w->lanes, (unsigned)w->inflight,
                                  is_named ? w->named : NULL, w->hits, w->n_hits, w->stats, err);
    for (uint64_t q = 0; rc == 0 && q < n; q++)
        w->stats[q].latency_ns += naming_ns;
    w->totals.wall_s += (double)(clock_ns() - begin) / 1e9;
    w->totals.cpu_s += processor_seconds() - cpu;
    w->totals.asked += n;
    return rc;
}

static int on_arrivals(void *context, uint64_t done, uint64_t total)
{
    struct search_work *w = context;
    return cli_progress(w->cli, "search", done, total);
}

/* What to know of an open loop whose rate was too high, and whose latencies therefore say how long it went on. */
static void warn_of_rate(struct search_work *w, const struct open_loop *open)
{
    const struct totals *t = &w->totals;
    double busy = t->cpu_s / t->wall_s, share = busy / (double)w->lanes;
    cli_note(w->cli,
             "%.0f queries a second came and %.0f were answered: the rate was not kept. %llu stood in line behind %llu "
             "under way when the last one came, and latencies grow with the length of the run. %s: lower --rate%s",
             (double)open->arrivals / open->due_s, (double)open->arrivals / t->wall_s,
             (unsigned long long)open->line_at_end, (unsigned long long)(w->lanes * w->inflight),
             share >= PROCESSOR_BOUND ? "The lanes computed nearly all the time, so the processor is the limit"
                                      : "The lanes waited much of the time, so reads are the limit, or other programs",
             share >= PROCESSOR_BOUND ? ", or give more --lanes" : ", or give more --inflight or --depth");
}

/* All passes at once: the queries arrive one by one. What is said per query is of the last time it was asked. */
static int run_open(struct search_work *w, struct vecfile *file, struct quire_error *err)
{
    uint64_t arrivals = w->seconds > 0 ? open_loop_count(w->rate, w->seconds) : w->rows * w->repeat;
    if (arrivals == 0 || arrivals > OPEN_LOOP_ARRIVALS_MAX)
        return error_set(err, QUIRE_ERANGE, "%g queries a second for %g s are %s: 1 to %llu can be asked", w->rate,
                         w->seconds, arrivals == 0 ? "none" : "too many", (unsigned long long)OPEN_LOOP_ARRIVALS_MAX);
    uint64_t n = arrivals < w->rows ? arrivals : w->rows;
    struct quire_search_options options;
    struct open_loop open = {.index = w->index,
                             .options = &options,
                             .queries = w->queries,
                             .dim = w->info.dim,
                             .n = w->rows,
                             .arrivals = arrivals,
                             .lanes = (unsigned)w->lanes,
                             .rate = w->rate,
                             .hits = w->hits,
                             .n_hits = w->n_hits,
                             .stats = w->stats,
                             .latencies = &w->latencies,
                             .line = &w->open.line,
                             .slowest = &w->slowest,
                             .progress = on_arrivals,
                             .context = w};
    int64_t got = vecfile_read(file, w->stored ? w->stored : w->queries, w->rows, err);
    if (got < 0)
        return (int)got;
    assert((uint64_t)got == w->rows);
    if (w->stored)
        space_floats(vecfile_type(file), w->stored, (size_t)got * w->info.dim, w->queries);
    set_options(w, &options);
    quire_loop_options_init(&open.loop);
    open.loop.engine = (enum quire_engine_kind)w->engine;
    open.loop.reads_max = (unsigned)w->in_flight_reads;
    open.loop.inflight = (unsigned)w->inflight;
    double cpu = processor_seconds();
    int rc = open_loop_run(&open, err);
    w->totals.wall_s = open.wall_s;
    w->totals.cpu_s = processor_seconds() - cpu;
    w->totals.asked = open.arrivals;
    if (rc < 0)
        return rc;
    w->open.due_s = open.due_s;
    w->open.line_at_end = open.line_at_end;
    w->open.kept = open_loop_kept(&open);
    if (!w->open.kept)
        warn_of_rate(w, &open);
    count(w, 0, n);
    return show(w, 0, n, err);
}

/* One pass over the file. */
static int run_pass(struct search_work *w, struct vecfile *file, struct quire_error *err)
{
    uint64_t done = 0, total = w->rows == UINT64_MAX ? 0 : w->rows * w->repeat;
    int rc = 0;
    while (rc == 0 && done < w->rows) {
        uint64_t n = w->rows - done < w->chunk ? w->rows - done : w->chunk;
        int64_t got = vecfile_read(file, w->stored ? w->stored : w->queries, n, err);
        if (got < 0)
            return (int)got;
        if (got == 0)
            break;
        if (w->expected.ids && done + (uint64_t)got > w->expected.n)
            return error_set(err, QUIRE_ERANGE, "%s has %u queries only", w->truth_path, w->expected.n);
        if (w->stored)
            space_floats(vecfile_type(file), w->stored, (size_t)got * w->info.dim, w->queries);
        rc = search_chunk(w, (uint64_t)got, err);
        if (rc == 0)
            count(w, done, (uint64_t)got);
        if (rc == 0 && w->first_pass)
            rc = show(w, done, (uint64_t)got, err);
        done += (uint64_t)got;
        if (rc == 0 && cli_progress(w->cli, "search", w->totals.queries, total))
            rc = error_set(err, QUIRE_ECANCELLED, "interrupted after %llu queries",
                           (unsigned long long)w->totals.queries);
    }
    return rc;
}

static int run(struct search_work *w, struct quire_error *err)
{
    struct vecfile *file = NULL;
    cli_may_end(true); /* until the first query */
    int rc = name_engine(w, err);
    if (rc == 0)
        rc = open_index(w, err);
    if (rc == 0)
        rc = vecfile_open(w->queries_path, VECFILE_AUTO, &file, err);
    if (rc == 0)
        rc = look_at_queries(w, file, err);
    if (rc == 0 && w->truth_path)
        rc = load_expected(w, err);
    if (rc == 0)
        open_device(w);
    if (rc == 0)
        rc = make_buffers(w, err);
    if (rc == 0) /* no queries: makes the lanes */
        rc = quire_search_batch(w->index, w->queries, 0, NULL, (unsigned)w->lanes, (unsigned)w->inflight, w->hits,
                                w->n_hits, NULL, err);
    cli_may_end(false);
    if (rc == 0 && w->rate > 0)
        rc = run_open(w, file, err);
    for (uint64_t pass = 0; rc == 0 && w->rate == 0 && pass < w->repeat; pass++) {
        if (pass > 0) {
            vecfile_close(file);
            file = NULL;
            rc = vecfile_open(w->queries_path, VECFILE_AUTO, &file, err);
        }
        w->first_pass = pass == 0;
        if (rc == 0)
            rc = run_pass(w, file, err);
    }
    vecfile_close(file);
    return rc;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void report_times(struct cli *cli, const char *name, const struct histogram *ns)
{
    json_t *times = json_object();
    cli_put_real(cli, times, "mean", histogram_mean(ns) / 1e3);
    cli_put_real(cli, times, "p50", histogram_percentile(ns, 0.5) / 1e3);
    cli_put_real(cli, times, "p99", histogram_percentile(ns, 0.99) / 1e3);
    cli_put_real(cli, times, "p999", histogram_percentile(ns, 0.999) / 1e3);
    cli_put_real(cli, times, "max", histogram_percentile(ns, 1) / 1e3);
    cli_put(cli, NULL, name, times);
}

/* How an open loop went. */
static void report_open(struct search_work *w)
{
    struct cli *cli = w->cli;
    cli_put_real(cli, NULL, "rate_wanted", w->rate);
    cli_put_real(cli, NULL, "rate_offered", (double)w->totals.asked / w->open.due_s);
    cli_put_bool(cli, NULL, "rate_kept", w->open.kept);
    report_times(cli, "line_us", &w->open.line);
    cli_put_count(cli, NULL, "line_at_end", w->open.line_at_end);
}

/* Where the time of the slowest share of all queries went, in means. */
static void report_slowest(struct search_work *w, double share)
{
    struct slowest_sums sums = slowest_share(&w->slowest, share);
    double n = (double)sums.n;
    if (sums.n == 0)
        return;
    json_t *row = cli_put_row(w->cli, NULL, "slowest");
    cli_put_real(w->cli, row, "share", n / (double)w->totals.asked);
    cli_put_real(w->cli, row, "latency_us", (double)sums.latency_ns / n / 1e3);
    cli_put_real(w->cli, row, "line_us", (double)sums.line_ns / n / 1e3);
    cli_put_real(w->cli, row, "cpu_us", (double)sums.cpu_ns / n / 1e3);
    cli_put_real(w->cli, row, "waits_us", (double)(sums.latency_ns - sums.line_ns - sums.cpu_ns) / n / 1e3);
    cli_put_real(w->cli, row, "reads", (double)sums.reads / n);
    cli_put_real(w->cli, row, "rounds", (double)sums.rounds / n);
}

static void report_costs(struct search_work *w)
{
    const struct totals *t = &w->totals;
    struct cli *cli = w->cli;
    double n = (double)t->queries, asked = (double)t->asked;
    cli_put_real(cli, NULL, "qps", asked / t->wall_s);
    report_times(cli, "latency_us", &w->latencies);
    if (w->rate > 0)
        report_open(w);
    report_slowest(w, 1);
    report_slowest(w, SLOWEST_SHARE);
    cli_put_real(cli, NULL, "reads_per_query", (double)t->reads / n);
    cli_put_real(cli, NULL, "cached_per_query", (double)t->cached / n);
    cli_put_real(cli, NULL, "bytes_per_query", (double)t->bytes / n);
    cli_put_real(cli, NULL, "rounds_per_query", (double)t->rounds / n);
    cli_put_real(cli, NULL, "rows_scored_per_query", (double)t->rows_scored / n);
    cli_put_real(cli, NULL, "codes_scored_per_query", (double)t->codes_scored / n);
    cli_put_real(cli, NULL, "cpu_us_per_query", t->cpu_s * 1e6 / asked);
    cli_put_real(cli, NULL, "reads_per_second", (double)t->reads / n * asked / t->wall_s);
    cli_put_real(cli, NULL, "seconds", t->wall_s);
}

static void report_memory(struct search_work *w, const struct memory_resident *resident)
{
    struct cli *cli = w->cli;
    uint64_t query_bytes =
        w->chunk * (w->info.dim * sizeof(float) + (w->stored ? w->stored_bytes : 0)) + w->expected.bytes;
    cli_put_count(cli, NULL, "resident_bytes", resident->total);
    cli_put_count(cli, NULL, "resident_anonymous_bytes", resident->anonymous);
    cli_put_count(cli, NULL, "resident_peak_bytes", resident->peak);
    cli_put_real(cli, NULL, "resident_of_raw", (double)resident->total / (double)w->info.raw_bytes);
    cli_put_count(cli, NULL, "query_bytes", query_bytes);
    cli_put_count(cli, NULL, "index_resident_bytes", w->info.resident_bytes);
    cli_put_count(cli, NULL, "cache_bytes", w->info.cache_bytes);
    cli_put_count(cli, NULL, "memory_budget_bytes", w->info.memory_bytes);
    cli_put_count(cli, NULL, "index_bytes", w->info.index_bytes);
    cli_put_count(cli, NULL, "raw_bytes", w->info.raw_bytes);
}

/* How the planner went about a filter or tenants. */
static void report_plan(struct search_work *w)
{
    const struct totals *t = &w->totals;
    struct cli *cli = w->cli;
    unsigned most = 0;
    for (unsigned plan = 1; plan < PLANS; plan++)
        most = t->plans[plan] > t->plans[most] ? plan : most;
    if (w->filter)
        cli_put_text(cli, NULL, "filter", w->filter);
    cli_put_count(cli, NULL, "tenants", w->tenants.n);
    cli_put_text(cli, NULL, "plan", quire_plan_name((enum quire_plan)most));
    cli_put_count(cli, NULL, "matches", t->matches);
    cli_put_real(cli, NULL, "selectivity", (double)t->matches / (double)w->info.rows);
    cli_put_real(cli, NULL, "reads_expected_per_query", (double)t->reads_expected / (double)t->queries);
    cli_put_count(cli, NULL, "reads_most", t->reads_max);
    cli_put_count(cli, NULL, "queries_exact", t->exact);
    cli_put_count(cli, NULL, "queries_switched", t->switched);
    if (w->expected.ids) {
        cli_put_count(cli, NULL, "queries_too_few", t->too_few);
        cli_put_count(cli, NULL, "queries_too_many", t->too_many);
    }
    for (unsigned plan = 0; plan < PLANS; plan++)
        if (t->plans[plan] > 0) {
            json_t *row = cli_put_row(cli, NULL, "plans");
            cli_put_text(cli, row, "plan", quire_plan_name((enum quire_plan)plan));
            cli_put_count(cli, row, "queries", t->plans[plan]);
        }
}

static void report(struct search_work *w, const struct memory_resident *resident)
{
    struct cli *cli = w->cli;
    const struct totals *t = &w->totals;
    json_t *engine = json_object();
    if (w->expected.ids) {
        cli_put_real(cli, NULL, "recall_at_k", (double)t->right / (double)t->wanted);
        cli_put_text(cli, NULL, "recall_by",
                     w->expected.by_distance ? "ids, and ties by the truth's distances" : "ids");
    } else {
        cli_put(cli, NULL, "recall_at_k", json_null());
    }
    if (is_restricted(w))
        report_plan(w);
    report_costs(w);
    report_memory(w, resident);
    cli_put_text(cli, engine, "name", w->engine_name);
    cli_put_text(cli, engine, "note", w->engine_note);
    cli_put_bool(cli, engine, "direct_io", w->info.direct_io);
    cli_put(cli, NULL, "engine", engine);
    cli_put_text(cli, NULL, "cpu", kernels()->name);
    cli_put_text(cli, NULL, "metric", quire_metric_name(w->info.metric));
    cli_put_text(cli, NULL, "slot", quire_slot_name(w->info.slot));
    cli_put_count(cli, NULL, "code_bits", w->info.code_bits);
    cli_put_count(cli, NULL, "rows", w->info.rows);
    cli_put_count(cli, NULL, "dim", w->info.dim);
    cli_put_count(cli, NULL, "k", w->k);
    cli_put_count(cli, NULL, "queries", t->asked);
    cli_put_count(cli, NULL, "queries_cut_short", t->cut_short);
    cli_put_count(cli, NULL, "lanes", w->lanes);
    cli_put_count(cli, NULL, "inflight", w->inflight);
    cli_put_count(cli, NULL, "effort", t->effort);
    cli_put_real(cli, NULL, "estimated_per_query", (double)t->estimated / (double)t->queries);
    if (w->recall > 0)
        cli_put_real(cli, NULL, "recall_wanted", w->recall);
    cli_put_bool(cli, NULL, "exact", w->exact);
    if (w->exact) {
        cli_gpu_report(cli, &w->gpu, false);
        cli_put_count(cli, NULL, "queries_named", w->queries_named);
    }
}

static void release(struct search_work *w)
{
    leave_device(w);
    cli_gpu_close(&w->gpu);
    quire_close(w->index);
    free(w->expected.start);
    free(w->expected.ids);
    free(w->expected.wanted);
    free(w->expected.open_tie);
    free(w->text);
    free(w->stored);
    free(w->queries);
    free(w->hits);
    free(w->n_hits);
    free(w->stats);
}

static const char summary[] =
    "Searches an index for every row of --queries and reports recall (with --truth), rate, latency, reads and memory.\n"
    "With --rate the loop is open: latency counts from the moment at which a query was to arrive, line_us is how long "
    "it\n"
    "stood in line before a lane took it, and rate_kept says whether the answers kept up. slowest: where the time of "
    "all\n"
    "queries and of the slowest hundredth goes; waits_us are reads, and steps of others.\n"
    "resident_bytes is the whole process at the end of the run; --memory picks the widest\n"
    "navigation code that leaves space for the rest of it. With --filter or --tenant each query has min(k, matches)\n"
    "hits; with --truth for the same filter (quire truth --filter), queries_too_few and queries_too_many count the\n"
    "queries that have fewer or more.";
static const char examples[] =
    "  quire search --index index --queries base.query.fbin --truth base.gt.bin --k 10\n"
    "  quire search --index index --queries q.fbin --recall 0.98 --lanes 2 --inflight 64 --json\n"
    "  quire search --index index --queries q.fbin --distance estimate --json\n"
    "  quire search --index index --queries q.fbin --lanes 2 --rate 5000 --seconds 10 --json\n"
    "  quire search --index index --queries q.fbin --memory 10% --effort 200 --engine threads\n"
    "  quire search --index index --queries q.fbin --truth gt.bin --exact --limit 100 --gpu auto\n"
    "  quire search --index index --queries q.fbin --filter '.year > 2020 and .kind in [\"a\", \"b\"]' --tenant acme "
    "\\\n"
    "      --limit 1 --attrs --explain\n";

static const struct cli_choice distances[] = {
    {"exact", QUIRE_DISTANCE_EXACT}, {"estimate", QUIRE_DISTANCE_ESTIMATE}, {0}};

int quire_search_verb(int argc, char **argv)
{
    static struct search_work w = {.k = 10, .lanes = 1, .inflight = INFLIGHT_DEFAULT, .repeat = 1};
    struct cli cli;
    struct quire_error err = {0};
    struct memory_resident resident;
    const struct cli_option options[] = {
        CLI_OPTION("index", CLI_TEXT, &w.path, "DIR", "the index", CLI_REQUIRED),
        CLI_OPTION("queries", CLI_TEXT, &w.queries_path, "FILE", "vectors to search for", CLI_REQUIRED),
        CLI_OPTION("k", CLI_COUNT, &w.k, "N", "neighbours per query", CLI_RANGE(1, QUIRE_K_MAX)),
        CLI_OPTION("truth", CLI_TEXT, &w.truth_path, "FILE", "ground truth: .bin (ids and distances) or .ivecs"),
        CLI_OPTION("memory", CLI_MEMORY, &w.memory, "SIZE|N%",
                   "resident budget; without: what it was built with, or all"),
        CLI_OPTION("recall", CLI_REAL, &w.recall, "R", "recall wanted, by the index's calibration; without: 0.95",
                   CLI_RANGE(0, 1)),
        CLI_OPTION("no-cache", CLI_FLAG, &w.no_cache, NULL, "keep no blocks in memory, whatever the budget leaves"),
        CLI_OPTION("effort", CLI_COUNT, &w.effort, "E", "width of the search instead of a recall",
                   CLI_RANGE(1, UINT32_MAX)),
        CLI_OPTION("exact", CLI_FLAG, &w.exact, NULL, "read every block"),
        CLI_OPTION("distance", CLI_CHOICE, &w.distance, NULL,
                   "estimate: rows whose place is certain by their codes are not read", .choices = distances),
        CLI_OPTION("reads-max", CLI_COUNT, &w.reads_max, "N", "blocks that one query may read; 0: no limit",
                   CLI_RANGE(0, UINT32_MAX)),
        CLI_OPTION("lanes", CLI_COUNT, &w.lanes, "N", "threads, each with a ring of its own", CLI_RANGE(1, LANES_MAX)),
        CLI_OPTION("inflight", CLI_COUNT, &w.inflight, "N", "queries interleaved per lane", CLI_RANGE(1, INFLIGHT_MAX)),
        CLI_OPTION("depth", CLI_COUNT, &w.in_flight_reads, "N", "reads in flight per lane; 0: 64", CLI_RANGE(0, 65536)),
        CLI_OPTION("engine", CLI_CHOICE, &w.engine, NULL, "how blocks are read", .choices = cli_engines),
        CLI_OPTION("filter", CLI_TEXT, &w.filter, "EXPRESSION", "only rows whose attributes match"),
        CLI_OPTION("filter-effort", CLI_COUNT, &w.filter_effort, "N",
                   "rows to look at for the filter's sake; 0: as many as it takes", CLI_RANGE(0, UINT32_MAX)),
        CLI_OPTION("tenant", CLI_TEXTS, &w.tenants, "NAME", "only rows granted to it; again for more: to any of them"),
        CLI_OPTION("attrs", CLI_FLAG, &w.show_hits, NULL, "list each query's hits with keys and attributes"),
        CLI_OPTION("explain", CLI_FLAG, &w.explain, NULL,
                   "list each query's plan, matches, reads, and whether its answer is exact, complete or partial"),
        CLI_OPTION("rate", CLI_REAL, &w.rate, "R",
                   "open loop: R queries arrive per second, at random moments; latency counts from there",
                   CLI_RANGE(0, 10000000)),
        CLI_OPTION("seconds", CLI_REAL, &w.seconds, "S",
                   "with --rate: for how long queries arrive, instead of --repeat passes", CLI_RANGE(0, 1000000)),
        CLI_OPTION("repeat", CLI_COUNT, &w.repeat, "N", "passes over the queries", CLI_RANGE(1, UINT32_MAX)),
        CLI_OPTION("limit", CLI_COUNT, &w.limit, "N", "queries per pass; 0: all"),
        CLI_GPU_OPTION(&w.gpu),
    };
    const struct cli_verb verb = {"quire search", summary, "", 0, options, sizeof options / sizeof *options, examples};
    int code;
    w.cli = &cli;
    histogram_init(&w.latencies, w.latency_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    histogram_init(&w.open.line, w.open.line_counts, LATENCY_SUB_BITS, LATENCY_BITS);
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if ((w.recall > 0) + (w.effort > 0) + w.exact > 1)
        return cli_mistake(&cli, "give one of --recall, --effort and --exact");
    if (w.seconds > 0 && w.rate == 0)
        return cli_mistake(&cli, "--seconds %g: it goes with --rate, without which --repeat says how many", w.seconds);
    if (w.seconds > 0 && w.repeat > 1)
        return cli_mistake(&cli, "give one of --seconds and --repeat");
    bool device_named = w.gpu.wanted && strcmp(w.gpu.wanted, "auto") != 0 && strcmp(w.gpu.wanted, "off") != 0;
    if (device_named && !w.exact)
        return cli_mistake(&cli, "--gpu %s: a device helps searches with --exact alone", w.gpu.wanted);
    for (unsigned i = 0; i < w.tenants.n; i++)
        w.tenant_bytes[i] = (struct quire_bytes){w.tenants.text[i], strlen(w.tenants.text[i])};
    int rc = run(&w, &err);
    memory_resident(&resident);
    if (rc == 0)
        report(&w, &resident);
    release(&w);
    return cli_end(&cli, rc, &err);
}
