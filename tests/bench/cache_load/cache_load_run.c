/*
 * cache_load_run.c - one run of the open loop: requests come when they come, whatever the server and the model do.
 *
 * A request is a lookup. What is served from the cache is judged at once: a value says of which question, version and
 * tenant it is, and the stream knows what they should be. What is not served waits in the model's queue; then the
 * answer is put with the lease of the miss, if it had one, and an audit gets its label. Without a lease another client
 * has this question under way: its answer is not put a second time. Sampled misses, whose best candidate the server
 * does not show, are labelled through SC.AUDIT POP, as a judge in the background would do.
 *
 * An audit or feedback says whether the answer was of the right question; that an answer is out of date is no mistake
 * of a threshold, and is counted by itself.
 *
 * Every latency is from the moment at which the request came, so a stall of the server, or of this program, is seen by
 * all requests that came meanwhile.
 */
#include "io/clock.h"
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES      128u /* of a run, for the figure */
#define POLL_NS_MAX  20000000u
#define DRAIN_NS     20000000000u /* for what is under way at the end of the run */
#define ISSUE_MAX    256u         /* requests between two looks at replies */
#define POP_COUNT    64u
#define MODEL_NAME   "model"
#define TOKEN_MAX    80u
#define LOAD_EXPIRES 10u /* s: a generator that dies leaves no load behind */

const char *const load_status_names[LOAD_STATUSES] = {"hit", "exact", "stale", "miss", "negative", "bypass", "audit"};

struct request {
    struct load_ask ask;
    struct request *next_free;
    char lease[TOKEN_MAX];
    uint64_t audit; /* 0: none */
    bool right;     /* what the audit is to say */
    bool in_burst, answered;
};
struct run {
    const struct load_options *options;
    const char *cache;
    struct cli *cli;
    struct wire *wire;
    struct load_stream stream;
    struct model model;
    struct load_result *result;
    struct request *free;
    struct request **chunks;
    size_t n_chunks;
    struct random random;
    uint64_t begin_ns, sample_ns, next_sample_ns, next_load_ns;
    double load, lam, load_sum;
    uint64_t n_loads, n_judging;
    float *vector;
    char *value;
    bool popping, asked_lam;
    int rc;
    struct quire_error *err;
};

static uint64_t now_in(const struct run *run)
{
    return clock_ns() - run->begin_ns;
}

static void fail(struct run *run, int rc)
{
    if (run->rc == 0)
        run->rc = rc == QUIRE_ENOMEM ? error_set(run->err, rc, "no memory for a call") : rc;
}

static void fail_reply(struct run *run, const char *command, const redisReply *reply)
{
    if (run->rc == 0)
        run->rc = error_set(run->err, QUIRE_EINVALID, "%s answers: %s", command,
                            reply->type == REDIS_REPLY_ERROR ? reply->str : "something unexpected");
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

#define CHUNK_REQUESTS 256u

static struct request *take_request(struct run *run)
{
    if (!run->free) {
        struct request **chunks = realloc(run->chunks, (run->n_chunks + 1) * sizeof *chunks);
        if (chunks)
            run->chunks = chunks;
        struct request *chunk = chunks ? calloc(CHUNK_REQUESTS, sizeof *chunk) : NULL;
        if (!chunk) {
            fail(run, QUIRE_ENOMEM);
            return NULL;
        }
        run->chunks[run->n_chunks++] = chunk;
        for (uint32_t i = 0; i < CHUNK_REQUESTS; i++) {
            chunk[i].next_free = run->free;
            run->free = &chunk[i];
        }
    }
    struct request *request = run->free;
    run->free = request->next_free;
    *request = (struct request){0};
    return request;
}

static void give_request(struct run *run, struct request *request)
{
    request->next_free = run->free;
    run->free = request;
}

static void count(struct run *run, const struct request *request, size_t field_offset)
{
    struct load_counts *of[] = {&run->result->all, &run->result->categories[request->ask.category],
                                request->in_burst ? &run->result->burst : NULL};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i])
            ++*(uint64_t *)(void *)((char *)of[i] + field_offset);
}
#define COUNT(run, request, field) count((run), (request), offsetof(struct load_counts, field))

/* ---- what is put after SC.GET, SC.PUT ---------------------------------------------------------------------------- */

static void add_scope(struct run *run, struct wire_words *words, const struct load_ask *ask, char tenant[32])
{
    if (run->options->tenants < 2)
        return;
    snprintf(tenant, 32, "tenant%u", ask->tenant);
    words_text(words, "SCOPE");
    words_text(words, "tenant");
    words_text(words, tenant);
}

/* The text stands for the canonical request: its hash is made by the server. */
static void add_question(struct run *run, struct wire_words *words, const struct load_ask *ask, const char *text)
{
    stream_vector(&run->stream, ask, run->vector);
    words_text(words, "HASH");
    words_text(words, text);
    words_text(words, "TEXT");
    words_text(words, text);
    words_text(words, "VEC");
    words_blob(words, run->vector, run->options->dim * sizeof *run->vector);
}

/* ---- after the model --------------------------------------------------------------------------------------------- */

static void on_put(void *owner, uint64_t begun_ns, const redisReply *reply)
{
    struct run *run = owner;
    if (reply->type == REDIS_REPLY_ERROR)
        fail_reply(run, "SC.PUT", reply);
    else
        histogram_add(&run->result->put_ns.h, now_in(run) - begun_ns);
}

static void on_label(void *owner, uint64_t unused, const redisReply *reply)
{
    struct run *run = owner;
    (void)unused;
    /* labelled by the judge of SC.AUDIT POP meanwhile, or too long ago */
    if (reply->type == REDIS_REPLY_ERROR)
        run->result->all.labels_late++;
    else
        run->result->all.labels++;
}

static void on_nothing(void *owner, uint64_t command, const redisReply *reply)
{
    static const char *const names[] = {"SC.FEEDBACK", "SC.LOAD"};
    if (reply->type == REDIS_REPLY_ERROR)
        fail_reply(owner, names[command], reply);
}

static bool with_noise(struct run *run, bool right)
{
    return random_unit(&run->random) < run->options->label_noise ? !right : right;
}

static void put_label(struct run *run, uint64_t audit, bool right)
{
    struct wire_words words;
    words_begin(&words, "SC.AUDIT", NULL);
    words_text(&words, "PUT");
    words_text(&words, run->cache);
    words_count(&words, audit);
    words_text(&words, with_noise(run, right) ? "GOOD" : "BAD");
    fail(run, wire_call(run->wire, &words, on_label, run, 0));
}

static void put_answer(struct run *run, const struct request *request, uint64_t at_ns)
{
    struct wire_words words;
    char text[LOAD_TEXT_BYTES], tenant[32];
    stream_text(&request->ask, text);
    uint32_t version = stream_version(&run->stream, request->ask.question, at_ns);
    int n = snprintf(run->value, run->options->value_bytes, "%u %u %u\n", request->ask.question, version,
                     request->ask.tenant);
    run->value[n] = ' ';
    words_begin(&words, "SC.PUT", run->cache);
    words_text(&words, "CAT");
    words_text(&words, run->stream.categories[request->ask.category].name);
    words_text(&words, "LEASE");
    words_text(&words, request->lease);
    add_scope(run, &words, &request->ask, tenant);
    add_question(run, &words, &request->ask, text);
    words_text(&words, "VALUE");
    words_blob(&words, run->value, run->options->value_bytes);
    words_text(&words, "MODEL");
    words_text(&words, MODEL_NAME);
    fail(run, wire_call(run->wire, &words, on_put, run, at_ns));
}

static void model_answers(struct run *run, struct request *request, uint64_t now)
{
    if (!request->answered)
        histogram_add(&run->result->answer_ns.h, now - request->ask.arrival_ns);
    if (*request->lease)
        put_answer(run, request, now);
    if (request->audit)
        put_label(run, request->audit, request->right);
    give_request(run, request);
}

/* ---- replies of lookups ------------------------------------------------------------------------------------------ */

struct served {
    uint32_t question, version, tenant;
};

/* Three numbers, as put_answer writes them. */
static bool read_value(const redisReply *value, struct served *out)
{
    uint32_t *const fields[] = {&out->question, &out->version, &out->tenant};
    const char *text = reply_text(value);
    for (size_t i = 0; text && i < sizeof fields / sizeof *fields; i++) {
        char *end;
        unsigned long number = strtoul(text, &end, 10);
        if (end == text || number > UINT32_MAX)
            return false;
        *fields[i] = (uint32_t)number;
        text = end;
    }
    return text != NULL;
}

static void give_feedback(struct run *run, const redisReply *reply, bool exact, bool right)
{
    struct wire_words words;
    const char *id = reply_text(reply_field(reply, "id"));
    if (!id || random_unit(&run->random) >= run->options->feedback)
        return;
    words_begin(&words, "SC.FEEDBACK", run->cache);
    words_text(&words, id);
    words_text(&words, with_noise(run, right) ? "GOOD" : "BAD");
    if (!exact) {
        words_text(&words, "SIM");
        words_real(&words, reply_real(reply_field(reply, "similarity")));
    }
    run->result->all.feedback++;
    fail(run, wire_call(run->wire, &words, on_nothing, run, 0));
}

/* An answer of the cache, or one that an audit shows. */
static bool judge(struct run *run, struct request *request, const redisReply *reply, enum load_status status)
{
    struct served value;
    if (!read_value(reply_field(reply, "value"), &value)) {
        run->rc = run->rc < 0 ? run->rc
                              : error_set(run->err, QUIRE_EINVALID, "SC.GET: %s without a value of this program",
                                          load_status_names[status]);
        return false;
    }
    bool right = value.question == request->ask.question;
    if (status == LOAD_AUDIT)
        return right;
    COUNT(run, request, served);
    if (!right)
        COUNT(run, request, wrong);
    else if (value.version != stream_version(&run->stream, request->ask.question, now_in(run)))
        COUNT(run, request, stale);
    if (run->options->tenants > 1 && value.tenant != request->ask.tenant)
        COUNT(run, request, cross);
    give_feedback(run, reply, status == LOAD_EXACT, right);
    return right;
}

static enum load_status status_of(const redisReply *reply)
{
    const char *name = reply_text(reply_field(reply, "status"));
    unsigned i = 0;
    while (i < LOAD_STATUSES && (!name || strcmp(name, load_status_names[i]) != 0))
        i++;
    return (enum load_status)i;
}

static void on_lookup(void *owner, uint64_t pointer, const redisReply *reply)
{
    struct run *run = owner;
    struct request *request = (struct request *)(uintptr_t)pointer;
    uint64_t now = now_in(run), waited = now - request->ask.arrival_ns;
    enum load_status status = status_of(reply);
    if (status == LOAD_STATUSES) {
        fail_reply(run, "SC.GET", reply);
        give_request(run, request);
        return;
    }
    const char *lease = reply_text(reply_field(reply, "lease"));
    double audit = reply_real(reply_field(reply, "audit"));
    count(run, request, offsetof(struct load_counts, by_status) + status * sizeof(uint64_t));
    histogram_add(&run->result->lookup_ns[status].h, waited);
    bool has_value = status <= LOAD_STALE || status == LOAD_AUDIT;
    request->answered = status <= LOAD_STALE;
    request->right = has_value && judge(run, request, reply, status);
    request->audit = status == LOAD_AUDIT && audit > 0 ? (uint64_t)audit : 0;
    if (lease && strlen(lease) < sizeof request->lease) {
        memcpy(request->lease, lease, strlen(lease) + 1);
        COUNT(run, request, leases);
    }
    if (request->answered)
        histogram_add(&run->result->answer_ns.h, waited);
    if (request->answered && !*request->lease) {
        give_request(run, request);
    } else {
        COUNT(run, request, calls);
        fail(run, model_submit(&run->model, now, request, run->err));
    }
}

static void look_up(struct run *run, struct request *request)
{
    struct wire_words words;
    char text[LOAD_TEXT_BYTES], tenant[32];
    stream_text(&request->ask, text);
    words_begin(&words, "SC.GET", run->cache);
    words_text(&words, "CAT");
    words_text(&words, run->stream.categories[request->ask.category].name);
    add_scope(run, &words, &request->ask, tenant);
    add_question(run, &words, &request->ask, text);
    if (run->options->wait_ms > 0) {
        words_text(&words, "WAIT");
        words_count(&words, run->options->wait_ms);
    }
    fail(run, wire_call(run->wire, &words, on_lookup, run, (uintptr_t)request));
}

/* ---- what goes on beside requests -------------------------------------------------------------------------------- */

/* Labels a sampled pair: both texts are this program's. */
static void on_pop(void *owner, uint64_t unused, const redisReply *reply)
{
    struct run *run = owner;
    (void)unused;
    run->popping = false;
    if (reply->type != REDIS_REPLY_ARRAY) {
        fail_reply(run, "SC.AUDIT POP", reply);
        return;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *one = reply->element[i];
        const char *text = reply_text(reply_field(one, "text"));
        double audit = reply_real(reply_field(one, "audit"));
        struct served value;
        /* the document of an entry that has gone meanwhile says nothing: such a pair stays without a label */
        if (text && audit > 0 && read_value(reply_field(one, "entry_value"), &value))
            put_label(run, (uint64_t)audit, stream_question_of(text) == value.question);
    }
}

static void on_stats(void *owner, uint64_t unused, const redisReply *reply)
{
    struct run *run = owner;
    double lam = reply_real(reply_field(reply, "lam"));
    (void)unused;
    run->asked_lam = false;
    if (isnan(lam))
        fail_reply(run, "SC.STATS", reply);
    else
        run->lam = lam;
}

/* Tells how full the model is, asks what became of it, and has sampled pairs judged. */
static void tell_load(struct run *run, uint64_t now)
{
    struct wire_words words;
    run->load = model_load(&run->model, now);
    run->load_sum += run->load;
    run->n_loads++;
    words_begin(&words, "SC.LOAD", run->cache);
    words_text(&words, MODEL_NAME);
    words_real(&words, run->load);
    words_text(&words, "EX");
    words_count(&words, LOAD_EXPIRES);
    fail(run, wire_call(run->wire, &words, on_nothing, run, 1));
    if (!run->asked_lam) {
        run->asked_lam = true;
        words_begin(&words, "SC.STATS", run->cache);
        words_text(&words, "CAT");
        words_text(&words, run->stream.categories[0].name);
        fail(run, wire_call(run->wire, &words, on_stats, run, 0));
    }
    if (!run->popping) {
        run->popping = true;
        words_begin(&words, "SC.AUDIT", NULL);
        words_text(&words, "POP");
        words_text(&words, run->cache);
        words_text(&words, "COUNT");
        words_count(&words, POP_COUNT);
        fail(run, wire_call(run->wire, &words, on_pop, run, 0));
    }
    run->next_load_ns = now + run->options->load_every_ms * 1000000u;
}

static void take_sample(struct run *run, uint64_t now)
{
    struct load_result *r = run->result;
    run->next_sample_ns += run->sample_ns;
    if (r->n_samples == LOAD_SAMPLES_MAX)
        return;
    struct load_sample *s = &r->samples[r->n_samples++];
    s->seconds = (double)now / 1e9;
    s->load = run->load;
    s->lam = run->lam;
    s->queue = (double)run->model.n_jobs;
    s->all = r->all;
    for (uint32_t i = 0; i < run->stream.n_categories; i++) {
        s->requests[i] = r->categories[i].requests;
        s->served[i] = r->categories[i].served;
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Requests that have come by now. */
static void issue(struct run *run, struct load_ask *next, uint64_t end_ns, uint64_t now)
{
    for (unsigned i = 0; i < ISSUE_MAX && run->rc == 0 && next->arrival_ns <= now && next->arrival_ns < end_ns; i++) {
        struct request *request = take_request(run);
        if (!request)
            return;
        request->ask = *next;
        request->in_burst = stream_in_burst(run->options, (double)next->arrival_ns / 1e9);
        COUNT(run, request, requests);
        look_up(run, request);
        stream_next(&run->stream, next);
    }
}

static int loop(struct run *run)
{
    uint64_t end_ns = (uint64_t)(run->options->seconds * 1e9), now = 0;
    struct load_ask next;
    struct request *done;
    stream_next(&run->stream, &next);
    run->begin_ns = clock_ns();
    run->next_sample_ns = run->sample_ns;
    while (run->rc == 0) {
        now = now_in(run);
        bool over = now >= end_ns;
        issue(run, &next, end_ns, now);
        while (run->rc == 0 && (done = model_finished(&run->model, now)))
            model_answers(run, done, now);
        if (!over && now >= run->next_load_ns)
            tell_load(run, now);
        if (!over && now >= run->next_sample_ns)
            take_sample(run, now);
        if (over && ((wire_under_way(run->wire) == 0 && run->model.n_jobs == 0) || now > end_ns + DRAIN_NS))
            break;
        uint64_t until =
            earlier(model_next_ns(&run->model),
                    over ? UINT64_MAX : earlier(next.arrival_ns, earlier(run->next_load_ns, run->next_sample_ns)));
        now = now_in(run);
        int rc = wire_poll(run->wire, until <= now ? 0 : earlier(until - now, POLL_NS_MAX), run->err);
        if (rc < 0)
            fail(run, rc);
        if (run->rc == 0 && cli_progress(run->cli, run->cache, earlier(now, end_ns), end_ns))
            run->rc = cli_cancelled(run->err);
    }
    run->result->seconds = (double)earlier(now, end_ns) / 1e9;
    return run->rc;
}

/* ---- caches ------------------------------------------------------------------------------------------------------ */

int load_set_category(struct wire *wire, const char *cache, const char *category, const char *settings,
                      struct quire_error *err)
{
    struct wire_words words;
    char text[2 * LOAD_SETTINGS_MAX], *place = NULL;
    snprintf(text, sizeof text, "%s", settings);
    words_begin(&words, "SC.CAT.SET", cache);
    words_text(&words, category);
    for (char *word = strtok_r(text, " ", &place); word; word = strtok_r(NULL, " ", &place)) {
        if (words.n == (int)WIRE_WORDS_MAX)
            return error_set(err, QUIRE_ELIMIT, "category %s has more than %u words", category, WIRE_WORDS_MAX);
        words_text(&words, word);
    }
    return wire_do(wire, &words, err);
}

int load_make_cache(struct wire *wire, const struct load_options *options, const char *name,
                    const struct load_stream *stream, const char *extra, struct quire_error *err)
{
    struct wire_words words;
    char settings[2 * LOAD_SETTINGS_MAX];
    words_begin(&words, "SC.CREATE", name);
    words_text(&words, "DIM");
    words_count(&words, options->dim);
    if (options->tenants > 1) {
        words_text(&words, "SCOPE");
        words_text(&words, "tenant");
        words_text(&words, "REQUIRESCOPE");
    }
    int rc = wire_do(wire, &words, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < stream->n_categories; i++) {
        snprintf(settings, sizeof settings, "%s %s", stream->categories[i].settings, extra);
        rc = load_set_category(wire, name, stream->categories[i].name, settings, err);
    }
    if (rc < 0)
        load_drop_cache(wire, name, NULL);
    return rc;
}

int load_drop_cache(struct wire *wire, const char *name, struct quire_error *err)
{
    struct wire_words words;
    words_begin(&words, "SC.DROP", name);
    return wire_do(wire, &words, err);
}

static int read_thresholds(struct run *run)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < run->stream.n_categories; i++) {
        struct wire_words words;
        redisReply *reply = NULL;
        words_begin(&words, "SC.STATS", run->cache);
        words_text(&words, "CAT");
        words_text(&words, run->stream.categories[i].name);
        rc = wire_ask(run->wire, &words, &reply, run->err);
        if (rc < 0)
            break;
        run->result->thresholds[i] = reply_real(reply_field(reply, "threshold"));
        freeReplyObject(reply);
    }
    return rc;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void finish(struct run *run)
{
    struct load_result *r = run->result;
    r->n_categories = run->stream.n_categories;
    for (uint32_t i = 0; i < r->n_categories; i++)
        memcpy(r->names[i], run->stream.categories[i].name, sizeof r->names[i]);
    r->queue_p50_ms = histogram_percentile(&run->model.queued_us, 0.5) / 1000;
    r->queue_p99_ms = histogram_percentile(&run->model.queued_us, 0.99) / 1000;
    r->queue_mean_ms = histogram_mean(&run->model.queued_us) / 1000;
    r->load_mean = run->n_loads ? run->load_sum / (double)run->n_loads : 0;
}

static int prepare(struct run *run)
{
    const struct load_options *o = run->options;
    int rc = stream_create(o, &run->stream, run->err);
    if (rc == 0)
        rc = model_create(o, &run->model, run->err);
    if (rc < 0)
        return rc;
    run->vector = calloc(o->dim, sizeof *run->vector);
    run->value = malloc(o->value_bytes);
    if (!run->vector || !run->value)
        return error_set(run->err, QUIRE_ENOMEM, "no memory for a vector and a value");
    memset(run->value, ' ', o->value_bytes);
    run->sample_ns = (uint64_t)(o->seconds / SAMPLES * 1e9);
    for (unsigned i = 0; i < LOAD_STATUSES; i++)
        report_timing_init(&run->result->lookup_ns[i]);
    report_timing_init(&run->result->put_ns);
    report_timing_init(&run->result->answer_ns);
    return wire_open(o, (uint32_t)o->connections, 1, &run->wire, run->err);
}

int load_run(const struct load_options *options, const char *name, const char *extra, struct cli *cli,
             struct load_result *out, struct quire_error *err)
{
    struct run run = {.options = options, .cache = name, .cli = cli, .result = out, .err = err};
    bool made = false;
    memset(out, 0, sizeof *out);
    random_init(&run.random, random_mix(options->seed ^ 0x1abe15ull));
    int rc = prepare(&run);
    if (rc == 0)
        rc = load_make_cache(run.wire, options, name, &run.stream, extra, err);
    made = rc == 0;
    if (rc == 0)
        rc = loop(&run);
    if (rc == 0)
        rc = read_thresholds(&run);
    if (rc == 0)
        finish(&run);
    /* an error before is the one to tell */
    if (made && !options->keep) {
        int dropped = load_drop_cache(run.wire, name, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : dropped;
    }
    wire_close(run.wire);
    model_destroy(&run.model);
    stream_destroy(&run.stream);
    for (size_t i = 0; i < run.n_chunks; i++)
        free(run.chunks[i]);
    free(run.chunks);
    free(run.vector);
    free(run.value);
    return rc;
}
