/*
 * cache_load.h - the parts of `bench_cache_load`: what is asked, of whom, who answers where the cache does not, what
 * came of it.
 *
 * cache_load_stream.c   categories, questions, their vectors and texts, arrivals, versions of answers: the truth
 * cache_load_wire.c     connections to the server, calls without waiting for replies
 * cache_load_model.c    a model with a queue, in simulated servers and real time
 * cache_load_run.c      one run of the open loop, and its counts
 * cache_load_report.c   counts as JSON, and the figure
 * cache_load_crowd.c    a thousand clients with one question
 * cache_load_bench.c    rates, latencies and memory of a cache that is full
 * bench_cache_load.c    options; which of these
 */
#ifndef QUIRE_TESTS_CACHE_LOAD_H
#define QUIRE_TESTS_CACHE_LOAD_H

#include "io/random.h"
#include "tools/cli/report.h"
#include "tools/measure/figure.h"
#include <hiredis.h>

#define LOAD_CATEGORIES_MAX 16u
#define LOAD_NAME_MAX       64u
#define LOAD_SETTINGS_MAX   256u
#define LOAD_TEXT_BYTES     160u
#define LOAD_DIM_MAX        4096u

struct load_options {
    const char *host, *cache, *mix, *svg, *settings;
    uint64_t port, dim, seed, connections, tenants, value_bytes, wait_ms;
    double rate, shape, burst, seconds;                     /* arrivals */
    double zipf, noise, overlap, repeat, change_per_second; /* what categories that say nothing else get */
    uint64_t questions, variants;
    uint64_t servers, load_every_ms;
    double model_ms, sigma;       /* service time: mean, and of its logarithm the deviation */
    double feedback, label_noise; /* probabilities */
    bool keep;
    double risk_max, ttl_factor; /* of load-adaptation */
    uint64_t clients;            /* of flash-crowd */
    uint64_t entries, depth, pid;
};

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

struct load_category {
    char name[LOAD_NAME_MAX];
    char settings[LOAD_SETTINGS_MAX]; /* words of SC.CAT.SET */
    double weight, zipf, noise, change_per_second;
    uint32_t first, n; /* its questions among those of all categories */
};
struct load_question {
    uint64_t changes_ns; /* when its answer changes next, from the beginning of the run */
    struct random random;
    uint32_t version, category;
};
struct load_stream {
    const struct load_options *options;
    struct load_category categories[LOAD_CATEGORIES_MAX];
    uint32_t n_categories, n_questions;
    float *vectors;     /* n_questions x dim, unit length */
    double *popularity; /* cumulative within a category, n_questions */
    struct load_question *questions;
    struct random random;
    double arrival_s; /* of the last request */
};
/* A request; its text and its vector are functions of question and variant, as with a real encoder. */
struct load_ask {
    uint64_t arrival_ns; /* from the beginning of the run */
    uint32_t category, question, variant, tenant;
};
/* Reads options->mix where given, otherwise three categories of its own. */
int stream_create(const struct load_options *options, struct load_stream *out, struct quire_error *err);
void stream_destroy(struct load_stream *stream);
void stream_next(struct load_stream *stream, struct load_ask *out);
/* Whether a moment lies in the middle third of the run, in which the rate is --burst times as high. */
bool stream_in_burst(const struct load_options *options, double seconds);
void stream_vector(const struct load_stream *stream, const struct load_ask *ask, float *out);
void stream_text(const struct load_ask *ask, char out[LOAD_TEXT_BYTES]);
/* The question that a text asks; UINT32_MAX: not a text of stream_text. */
uint32_t stream_question_of(const char *text);
/* The version of a question's answer at a moment, which must not be before that of the last call for the question. */
uint32_t stream_version(struct load_stream *stream, uint32_t question, uint64_t at_ns);

double random_unit(struct random *random);   /* 0 <= x < 1 */
double random_normal(struct random *random); /* mean 0, deviation 1 */
double random_gamma(struct random *random, double shape);
void random_direction(struct random *random, float *out, size_t dim); /* unit length */

/* ---- connections ------------------------------------------------------------------------------------------------- */

#define WIRE_WORDS_MAX 96u
struct wire_words {
    int n;
    const char *at[WIRE_WORDS_MAX];
    size_t bytes[WIRE_WORDS_MAX];
    char numbers[512];
    size_t used;
};
/* cache NULL: another word comes next, as in SC.AUDIT PUT. */
void words_begin(struct wire_words *words, const char *command, const char *cache);
void words_text(struct wire_words *words, const char *text); /* borrowed until the call is made */
void words_blob(struct wire_words *words, const void *blob, size_t bytes);
void words_count(struct wire_words *words, uint64_t value);
void words_real(struct wire_words *words, double value);

/* Runs once per call, in wire_poll; the reply is freed afterwards. A reply that is an error is passed on. */
typedef void wire_done(void *owner, uint64_t tag, const redisReply *reply);
struct wire;
/* n_links connections, each with up to `depth` calls under way. The password is that of REDISCLI_AUTH, if set. */
int wire_open(const struct load_options *options, uint32_t n_links, uint32_t depth, struct wire **out,
              struct quire_error *err);
void wire_close(struct wire *wire); /* NULL is fine; replies that are missing are not waited for */
/* Makes a call on the next connection with room, or as soon as there is one. */
int wire_call(struct wire *wire, const struct wire_words *words, wire_done *done, void *owner, uint64_t tag);
/* On one connection, whatever is under way there. */
int wire_call_on(struct wire *wire, uint32_t link, const struct wire_words *words, wire_done *done, void *owner,
                 uint64_t tag);
/* Closes a connection as a client does that dies. What was under way there gets no reply. */
void wire_drop(struct wire *wire, uint32_t link);
/* Sends what was called, waits for at most timeout_ns, runs what has its reply. */
int wire_poll(struct wire *wire, uint64_t timeout_ns, struct quire_error *err);
uint64_t wire_under_way(const struct wire *wire);
/* One call with its reply, which the caller frees, on a connection of its own; a reply that is an error is one here. */
int wire_ask(struct wire *wire, const struct wire_words *words, redisReply **out, struct quire_error *err);
/* The same, for its effect only. */
int wire_do(struct wire *wire, const struct wire_words *words, struct quire_error *err);

/* Of a map: the value of a field, NULL where there is none. */
const redisReply *reply_field(const redisReply *map, const char *name);
/* A number, or text that is one; NAN otherwise. */
double reply_real(const redisReply *reply);
const char *reply_text(const redisReply *reply); /* NULL unless it is text */

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* c servers with one queue, first come first served; service times are log-normal. Time is real: a job is over when
 * the clock says so. */
struct model_job {
    uint64_t over_ns;
    void *owner;
};
struct model {
    uint64_t *free_ns;      /* when each server has done all that it was given; a heap */
    struct model_job *jobs; /* a heap by over_ns */
    size_t n_servers, n_jobs, room;
    double mean_ns, sigma;
    struct random random;
    uint64_t calls, seen_ns;
    double added_ns, left_ns;   /* work since model_load was called, and work there was then */
    struct histogram queued_us; /* time that jobs waited for a server */
    _Atomic uint64_t *queued_counts;
};
int model_create(const struct load_options *options, struct model *out, struct quire_error *err);
void model_destroy(struct model *model);
int model_submit(struct model *model, uint64_t now_ns, void *owner, struct quire_error *err);
/* A job that is over, or NULL; and when the next one will be (UINT64_MAX: none). */
void *model_finished(struct model *model, uint64_t now_ns);
uint64_t model_next_ns(const struct model *model);
/* The share of all servers' time that was worked since the last call: 0..1. */
double model_load(struct model *model, uint64_t now_ns);

/* ---- one run ----------------------------------------------------------------------------------------------------- */

enum load_status { LOAD_HIT, LOAD_EXACT, LOAD_STALE, LOAD_MISS, LOAD_NEGATIVE, LOAD_BYPASS, LOAD_AUDIT, LOAD_STATUSES };
extern const char *const load_status_names[LOAD_STATUSES];

struct load_counts {
    uint64_t requests, by_status[LOAD_STATUSES], served;
    uint64_t wrong, stale, cross; /* of those served: of another question; a former version; another tenant's */
    uint64_t calls;               /* of the model */
    uint64_t labels, labels_late, feedback, leases;
};
#define LOAD_SAMPLES_MAX 256u
struct load_sample {
    double seconds, load, lam, queue;
    struct load_counts all;
    uint64_t requests[LOAD_CATEGORIES_MAX], served[LOAD_CATEGORIES_MAX];
};
struct load_result {
    struct load_counts all, burst, categories[LOAD_CATEGORIES_MAX];
    struct timing lookup_ns[LOAD_STATUSES], put_ns, answer_ns; /* from the arrival; the answer with the model */
    struct load_sample samples[LOAD_SAMPLES_MAX];
    uint32_t n_samples;
    double seconds, queue_p50_ms, queue_p99_ms, queue_mean_ms, load_mean;
    double thresholds[LOAD_CATEGORIES_MAX]; /* at the end, as SC.STATS says */
    char names[LOAD_CATEGORIES_MAX][LOAD_NAME_MAX];
    uint32_t n_categories;
};
/* Makes the cache `name`, runs, drops it (unless options->keep). extra: words added to SC.CAT.SET of all categories. */
int load_run(const struct load_options *options, const char *name, const char *extra, struct cli *cli,
             struct load_result *out, struct quire_error *err);
/* A new cache with the stream's categories; extra: more words for their settings. On an error there is none. */
int load_make_cache(struct wire *wire, const struct load_options *options, const char *name,
                    const struct load_stream *stream, const char *extra, struct quire_error *err);
int load_drop_cache(struct wire *wire, const char *name, struct quire_error *err);
int load_set_category(struct wire *wire, const char *cache, const char *category, const char *settings,
                      struct quire_error *err);

/* ---- what is said of it ------------------------------------------------------------------------------------------ */

void report_run(struct cli *cli, json_t *into, const struct load_result *result);
/* One or two runs below each other in an SVG; titles[i] names results[i]. */
int figure_write(const char *path, const struct load_result *const *results, const char *const *titles, uint32_t n,
                 struct quire_error *err);

int load_flash_crowd(const struct load_options *options, struct cli *cli, struct quire_error *err);
int load_bench(const struct load_options *options, struct cli *cli, struct quire_error *err);
int load_adaptation(const struct load_options *options, struct cli *cli, struct quire_error *err);

#endif
