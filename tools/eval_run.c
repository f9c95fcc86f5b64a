/*
 * eval_run.c - one stream of requests through one cache, as a program that uses the library would do it.
 *
 * Each row is a request with its vector and its text. What the cache does is the library's own: exact hashes, search in
 * 8-bit codes, guards, thresholds, audits, vetoes, breaker, documents on the disk. The value of an entry is its row and
 * answer, so a served answer can be evaluated. Truth labels what the cache asks to have labelled: audits from the value
 * in the reply, sampled misses from the pair that quire_cache_audit_pop hands out.
 *
 * Every row is put after its request, whether it was served or not, because a stream is known by its rows and hindsight
 * needs the same entries for every policy; with --insert misses only what a real client would have had to compute.
 * A row whose text was there before is found by its hash: it is served, and counts as exact. Its entry is replaced.
 * Leases are left out: one request is made at a time.
 */
#include "io/clock.h"
#include "io/error.h"
#include "io/random.h"
#include "tools/eval.h"
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX       16u
#define WORD_BYTES      32u
#define LEAST_THRESHOLD 1e-6           /* SIM 0 is refused; opposite vectors have similarity 0 and are not served */
#define TTL_MS          "315360000000" /* nothing expires */

struct eval_value {
    uint32_t row, answer;
};

struct client {
    const struct eval_run *run;
    struct quire_cache *cache;
    struct eval_result *out;
    struct random random; /* of wrong labels */
    struct quire_error *err;
};

uint64_t eval_served(const struct eval_counts *counts)
{
    return counts->exact + counts->hits;
}

uint64_t eval_labels(const struct eval_counts *counts)
{
    return counts->audits + counts->samples;
}

static struct quire_bytes bytes_of_text(const char *text)
{
    return (struct quire_bytes){text, strlen(text)};
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static int set_category(struct client *c, uint32_t category)
{
    const struct eval_run *run = c->run;
    char number[WORD_BYTES];
    const char *words[WORDS_MAX] = {"GUARD", run->options->guards, "TTL", TTL_MS};
    uint32_t n = 4;
    struct quire_bytes bytes[WORDS_MAX];
    if (run->policy == EVAL_RISK || run->policy == EVAL_IMPORTED) {
        snprintf(number, sizeof number, "%.9g", run->delta);
        words[n++] = "RISK";
        words[n++] = number;
    } else if (run->thresholds[category] > 1) {
        words[n++] = "MODE";
        words[n++] = "exact";
    } else {
        double threshold = run->thresholds[category];
        snprintf(number, sizeof number, "%.9g", threshold > LEAST_THRESHOLD ? threshold : LEAST_THRESHOLD);
        words[n++] = "FLOOR";
        words[n++] = "0";
        words[n++] = "SIM";
        words[n++] = number;
    }
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = bytes_of_text(words[i]);
    return quire_cache_set_category(c->cache, bytes_of_text(run->data->category_names[category]), bytes, n, c->err);
}

static int open_cache(struct client *c, const char *folder)
{
    struct quire_cache_options options;
    quire_cache_options_init(&options);
    options.create = true;
    options.dim = c->run->data->vectors.dim;
    options.type = QUIRE_TYPE_F32;
    options.durability = QUIRE_DURABLE_NO;
    options.seed = random_mix(c->run->seed + 1);
    int rc = quire_cache_open(folder, &options, &c->cache, c->err);
    for (uint32_t i = 0; rc == 0 && i < c->run->data->n_categories; i++)
        rc = set_category(c, i);
    if (rc == 0 && c->run->policy == EVAL_IMPORTED)
        rc = quire_cache_import(c->cache, c->run->curves, c->run->curves_bytes, c->err); /* how many were taken */
    return rc < 0 ? rc : 0;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static int is_right(struct client *c, uint32_t row, struct quire_bytes value, bool *right)
{
    struct eval_value entry;
    uint32_t wanted = c->run->data->answer[row];
    if (value.n_bytes != sizeof entry)
        return error_set(c->err, QUIRE_ECORRUPT, "the cache gave a value of %zu bytes, where %zu were put",
                         value.n_bytes, sizeof entry);
    memcpy(&entry, value.data, sizeof entry);
    *right = wanted != STREAM_NO_ANSWER && entry.answer == wanted;
    return 0;
}

static int put_label(struct client *c, uint64_t number, uint32_t row, struct quire_bytes value)
{
    bool right = false;
    int rc = is_right(c, row, value, &right);
    bool flipped = (double)(random_next(&c->random) >> 11) * 0x1p-53 < c->run->options->noise;
    return rc < 0 ? rc : quire_cache_audit_put(c->cache, number, right != flipped, c->err);
}

/* The pair of a sampled miss; there is no other that waits. */
static int label_miss(struct client *c, uint64_t number, uint32_t row)
{
    struct quire_cache_audit pair;
    int rc = quire_cache_audit_pop(c->cache, &pair, c->err);
    while (rc == 0 && pair.number < number) { /* audits, which have their labels */
        quire_cache_audit_free(&pair);
        rc = quire_cache_audit_pop(c->cache, &pair, c->err);
    }
    if (rc < 0)
        return rc;
    rc = put_label(c, number, row, pair.entry_value);
    quire_cache_audit_free(&pair);
    return rc;
}

/* What came of a request, in counts that are added to those it belongs to. */
static int evaluate(struct client *c, uint32_t row, const struct quire_cache_answer *answer, struct eval_counts *counts,
                    enum eval_timing *timing)
{
    bool right = true;
    int rc = 0;
    counts->requests = 1;
    *timing = EVAL_GET_MISS;
    if (answer->status == QUIRE_CACHE_HIT || answer->status == QUIRE_CACHE_EXACT) {
        *timing = answer->status == QUIRE_CACHE_HIT ? EVAL_GET_SERVED : EVAL_GET_EXACT;
        *(answer->status == QUIRE_CACHE_HIT ? &counts->hits : &counts->exact) = 1;
        rc = is_right(c, row, answer->value, &right);
        counts->wrong = !right;
    } else if (answer->status == QUIRE_CACHE_AUDIT) {
        *timing = EVAL_GET_AUDIT;
        counts->audits = 1;
        rc = put_label(c, answer->audit, row, answer->value);
    } else if (answer->audit) {
        counts->samples = 1;
        rc = label_miss(c, answer->audit, row);
    }
    counts->bypassed = answer->status == QUIRE_CACHE_BYPASS;
    return rc;
}

static void add_counts(struct eval_counts *to, const struct eval_counts *from)
{
    to->requests += from->requests;
    to->exact += from->exact;
    to->hits += from->hits;
    to->wrong += from->wrong;
    to->audits += from->audits;
    to->samples += from->samples;
    to->bypassed += from->bypassed;
}

static int get_one(struct client *c, uint32_t at, struct eval_counts *counts)
{
    const struct stream_data *data = c->run->data;
    const uint32_t row = c->run->order[at], category = data->category[row];
    struct quire_cache_query query = {.category = bytes_of_text(data->category_names[category]),
                                      .vector = (const float *)data->vectors.data + (size_t)row * data->vectors.dim,
                                      .text = bytes_of_text(data->texts[row]),
                                      .no_lease = true};
    struct quire_cache_answer answer;
    enum eval_timing timing;
    uint64_t begin = clock_ns();
    int rc = quire_cache_get(c->cache, &query, &answer, c->err);
    uint64_t ns = clock_ns() - begin;
    if (rc < 0)
        return rc;
    rc = evaluate(c, row, &answer, counts, &timing);
    quire_cache_answer_free(&answer);
    histogram_add(&c->run->timings->of[timing].h, ns);
    add_counts(&c->out->all, counts);
    add_counts(&c->out->categories[category], counts);
    add_counts(&c->out->sections[(uint64_t)at * EVAL_SECTIONS / data->rows], counts);
    if (at >= data->rows / 2)
        add_counts(&c->out->half, counts);
    return rc;
}

static int put_one(struct client *c, uint32_t row)
{
    const struct stream_data *data = c->run->data;
    const struct eval_value value = {row, data->answer[row]};
    const struct quire_bytes chunk = {&value, sizeof value};
    const struct quire_cache_entry entry = {.category = bytes_of_text(data->category_names[data->category[row]]),
                                            .vector =
                                                (const float *)data->vectors.data + (size_t)row * data->vectors.dim,
                                            .text = bytes_of_text(data->texts[row]),
                                            .chunks = &chunk,
                                            .n_chunks = 1};
    struct quire_cache_put_result result;
    uint64_t begin = clock_ns();
    int rc = quire_cache_put(c->cache, &entry, &result, c->err);
    histogram_add(&c->run->timings->of[EVAL_PUT].h, clock_ns() - begin);
    return rc;
}

static int stream_all(struct client *c)
{
    const struct eval_run *run = c->run;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < run->data->rows; i++) {
        struct eval_counts counts = {0};
        rc = get_one(c, i, &counts);
        if (rc == 0 && !(run->options->only_misses && eval_served(&counts)))
            rc = put_one(c, run->order[i]);
        if (rc == 0 && cli_progress(run->cli, "requests", run->done + i + 1, run->total))
            rc = cli_cancelled(c->err);
    }
    return rc;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static int read_end(struct client *c)
{
    const struct stream_data *data = c->run->data;
    struct quire_cache_stats stats;
    int rc = quire_cache_get_stats(c->cache, (struct quire_bytes){NULL, 0}, &stats, c->err);
    if (rc < 0)
        return rc;
    c->out->entries = stats.entries;
    c->out->memory_bytes = stats.memory_bytes;
    c->out->disk_bytes = stats.disk_bytes;
    c->out->guarded = stats.guarded;
    for (uint32_t i = 0; rc == 0 && i < data->n_categories; i++) {
        rc = quire_cache_get_stats(c->cache, bytes_of_text(data->category_names[i]), &stats, c->err);
        c->out->thresholds[i] = stats.threshold;
    }
    return rc == 0 ? quire_cache_export(c->cache, &c->out->curves, &c->out->curves_bytes, c->err) : rc;
}

static int remove_one(const char *path, const struct stat *what, int type, struct FTW *at)
{
    (void)what;
    (void)type;
    (void)at;
    return remove(path);
}

static int make_folder(char **out, struct quire_error *err)
{
    const char *parent = getenv("TMPDIR");
    char *folder;
    if (asprintf(&folder, "%s/quire-cache-eval.XXXXXX", parent && *parent ? parent : "/tmp") < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a folder");
    if (!mkdtemp(folder)) {
        int rc = error_set_errno(err, errno, "cannot make", folder);
        free(folder);
        return rc;
    }
    *out = folder;
    return 0;
}

void eval_result_free(struct eval_result *result)
{
    free(result->categories);
    free(result->thresholds);
    free(result->curves);
    memset(result, 0, sizeof *result);
}

int eval_run(const struct eval_run *run, struct eval_result *out, struct quire_error *err)
{
    struct client c = {.run = run, .out = out, .err = err};
    char *folder = NULL;
    memset(out, 0, sizeof *out);
    random_init(&c.random, random_mix(run->seed + 2));
    out->categories = calloc(run->data->n_categories, sizeof *out->categories);
    out->thresholds = calloc(run->data->n_categories, sizeof *out->thresholds);
    int rc = out->categories && out->thresholds ? make_folder(&folder, err)
                                                : error_set(err, QUIRE_ENOMEM, "no memory for counts");
    if (rc == 0)
        rc = open_cache(&c, folder);
    if (rc == 0)
        rc = stream_all(&c);
    if (rc == 0)
        rc = read_end(&c);
    int closed = quire_cache_close(c.cache, rc < 0 ? NULL : err);
    rc = rc < 0 ? rc : closed;
    if (folder && nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && rc == 0)
        rc = error_set_errno(err, errno, "cannot remove", folder);
    free(folder);
    if (rc < 0)
        eval_result_free(out);
    return rc;
}
