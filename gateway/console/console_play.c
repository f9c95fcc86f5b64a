/* console_play.c - a question for trying: to a cache, or to a set, with what became of it. */
#include "gateway/console/console_priv.h"
#include "gateway/encode/encode.h"
#include "io/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX  128u
#define VECTOR_MAX 65536u

/* job->numbers[] of a question */
enum { ENCODE_US, ASKED_US };

struct words {
    const char *text[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    unsigned n;
};

static void add_bytes(struct words *words, const char *text, size_t bytes)
{
    assert(words->n < WORDS_MAX);
    words->text[words->n] = text;
    words->bytes[words->n++] = bytes;
}

static void add(struct words *words, const char *text)
{
    add_bytes(words, text, strlen(text));
}

/* A word and the parameter of that name, where it was given. */
static void add_param(struct words *words, const struct console_job *job, const char *word, const char *name)
{
    const char *value = console_job_text(job, name, NULL);
    if (value) {
        add(words, word);
        add(words, value);
    }
}

/* ---- the vector ---- */

static void say_vector(struct console_job *job, const char *from, const char *why)
{
    json_object_set_new(job->root, "vector", json_string(from));
    json_object_set_new(job->root, "why", why ? console_json_text(why, strlen(why)) : json_null());
}

static bool keep_vector(struct console_job *job, const float *vector, size_t dim)
{
    size_t bytes = dim * sizeof *vector;
    if (!(job->blob = malloc(bytes))) {
        console_job_refuse(job, 503, "busy", "no memory for a vector");
        return false;
    }
    memcpy(job->blob, vector, bytes);
    job->blob_bytes = bytes;
    return true;
}

static bool keep_given(struct console_job *job, const json_t *numbers)
{
    size_t n = json_array_size(numbers), i;
    const json_t *number;
    float *vector = n > 0 && n <= VECTOR_MAX ? malloc(n * sizeof *vector) : NULL;
    bool ok = vector != NULL;
    if (ok)
        json_array_foreach(numbers, i, number)
        {
            ok = ok && json_is_number(number);
            vector[i] = (float)json_number_value(number);
        }
    if (!ok)
        console_job_refuse(job, 400, "bad_request", "vector is no list of 1 to %u numbers", VECTOR_MAX);
    ok = ok && keep_vector(job, vector, n);
    free(vector);
    return ok;
}

static void on_vector(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim, const char *why)
{
    struct console_job *job = context;
    job->encoding = NULL;
    job->numbers[ENCODE_US] = clock_us() - job->began_us;
    if (outcome == ENCODE_VECTOR && keep_vector(job, vector, dim))
        say_vector(job, "encoder", NULL);
    else
        say_vector(job, "none", why ? why : "no memory");
    console_job_go_on(job);
}

/* A vector of what was given; `next` runs when it is there, or is known not to be. */
static void find_vector(struct console_job *job, void (*next)(struct console_job *job))
{
    const json_t *given = json_object_get(job->body, "vector");
    const struct console_param *text = console_job_param(job, "text");
    struct encode *encode = job->console->options.encode;
    job->next = next;
    say_vector(job, "none", NULL);
    if (given) {
        if (keep_given(job, given))
            say_vector(job, "given", NULL);
    } else if (text && !encode) {
        say_vector(job, "none",
                   "the gateway has no encoder (settings embed-url, embed-file): only the same request is found");
    } else if (text && !(job->encoding = encode_text(encode, text->value, text->bytes, on_vector, job)))
        say_vector(job, "none", "no memory to ask the encoder");
}

static bool is_true(const struct console_job *job, const char *name, bool absent)
{
    return strcmp(console_job_text(job, name, absent ? "true" : "false"), "true") == 0;
}

/* `query` of the answer: the vector that was searched by, where it is asked for; null: there was none. Of an element it
 * is in the reply already. */
static void say_query(struct console_job *job)
{
    json_t *numbers = json_array();
    float number;
    for (size_t at = 0; at + sizeof number <= job->blob_bytes; at += sizeof number) {
        memcpy(&number, job->blob + at, sizeof number);
        json_array_append_new(numbers, json_real((double)number));
    }
    if (job->blob || !json_object_get(job->root, "query"))
        json_object_set(job->root, "query", job->blob ? numbers : json_null());
    json_decref(numbers);
}

/* ---- a cache ---- */

static void answer_reply(struct console_job *job)
{
    json_object_set_new(job->root, "encode_us", json_integer((json_int_t)job->numbers[ENCODE_US]));
    json_object_set_new(job->root, "us", json_integer((json_int_t)(clock_us() - job->numbers[ASKED_US])));
    json_object_del(job->root, "info");
    if (is_true(job, "query", false))
        say_query(job);
}

/* {"tenant": "t1"} as words; false: no object of a few texts. */
static bool add_scope(struct words *words, const json_t *scope)
{
    const char *key;
    json_t *value;
    if (scope && (!json_is_object(scope) || json_object_size(scope) > 16))
        return false;
    if (json_object_size(scope) > 0)
        add(words, "SCOPE");
    json_object_foreach((json_t *)scope, key, value)
    {
        if (!json_is_string(value))
            return false;
        add(words, key);
        add(words, json_string_value(value));
    }
    return true;
}

static void ask_cache(struct console_job *job)
{
    struct words words = {.n = 0};
    const char *type = json_string_value(json_object_get(json_object_get(job->root, "info"), "type"));
    if (job->blob && type && strcmp(type, "f32") != 0) {
        console_job_refuse(job, 409, "server", "the cache keeps vectors of %.10s; the playground makes those of f32",
                           type);
        return;
    }
    add(&words, "SC.GET");
    add(&words, console_job_text(job, "cache", ""));
    add_param(&words, job, "CAT", "category");
    if (!add_scope(&words, json_object_get(job->body, "scope"))) {
        console_job_refuse(job, 400, "bad_request", "scope is no object of up to 16 texts");
        return;
    }
    add_param(&words, job, "HASH", "hash");
    add_param(&words, job, "COMPAT", "compat");
    if (job->blob) {
        add(&words, "VEC");
        add_bytes(&words, job->blob, job->blob_bytes);
    }
    add_param(&words, job, "TEXT", "text");
    add_param(&words, job, "SIM", "similarity");
    add_param(&words, job, "MAXAGE", "max_age_ms");
    add(&words, "EXPLAIN");
    add(&words, "NOLEASE");
    add(&words, "STALEOK");
    job->numbers[ASKED_US] = clock_us();
    job->next = answer_reply;
    console_job_ask_words(job, NULL, "reply", CONSOLE_MUST, words.n, words.text, words.bytes);
}

void console_play_cache_begin(struct console_job *job)
{
    find_vector(job, ask_cache);
    console_job_ask(job, NULL, "info", CONSOLE_MUST, "SC.INFO", console_job_text(job, "cache", ""), NULL);
}

/* ---- a set ---- */

/* [name, score] or [name, [score, attributes]] */
static json_t *result_of(const json_t *pair)
{
    json_t *name = json_array_get(pair, 0), *value = json_array_get(pair, 1);
    json_t *score = json_is_array(value) ? json_array_get(value, 0) : value;
    json_t *attributes = json_is_array(value) ? json_array_get(value, 1) : NULL;
    return json_pack("{s:O, s:O, s:o}", "element", name, "score", score, "attributes",
                     attributes ? json_incref(attributes) : json_null());
}

static void answer_set(struct console_job *job)
{
    json_t *reply = json_incref(json_object_get(job->root, "reply")), *results = json_array();
    const json_t *pair;
    size_t i;
    json_array_foreach(json_array_get(reply, 0), i, pair) json_array_append_new(results, result_of(pair));
    answer_reply(job);
    json_object_del(job->root, "reply");
    json_object_set_new(job->root, "results", results);
    json_object_set(job->root, "explain", json_array_get(reply, 1));
    json_decref(reply);
}

static bool add_tenants(struct words *words, const json_t *tenants)
{
    const json_t *tenant;
    size_t i;
    if (tenants && (!json_is_array(tenants) || json_array_size(tenants) > 16))
        return false;
    json_array_foreach(tenants, i, tenant)
    {
        if (!json_is_string(tenant))
            return false;
        add(words, "TENANT");
        add(words, json_string_value(tenant));
    }
    return true;
}

static void ask_set(struct console_job *job)
{
    struct words words = {.n = 0};
    int64_t n;
    char count[24];
    const char *element = console_job_text(job, "element", NULL);
    if (!console_job_number(job, "count", 10, 1, 1000, &n))
        return;
    snprintf(count, sizeof count, "%lld", (long long)n);
    add(&words, "VSIM");
    add(&words, console_job_text(job, "set", ""));
    if (!element == !job->blob) {
        console_job_refuse(job, 400, "bad_request", "give one of element, vector and text%s",
                           console_job_text(job, "text", NULL) ? "; of this text there is no vector" : "");
        return;
    }
    add(&words, element ? "ELE" : "FP32");
    if (element)
        add(&words, element);
    else
        add_bytes(&words, job->blob, job->blob_bytes);
    add(&words, "COUNT");
    add(&words, count);
    add_param(&words, job, "FILTER", "filter");
    add_param(&words, job, "RECALL", "recall");
    add_param(&words, job, "EF", "effort");
    add_param(&words, job, "MAXREADS", "max_reads");
    if (!add_tenants(&words, json_object_get(job->body, "tenants"))) {
        console_job_refuse(job, 400, "bad_request", "tenants is no list of up to 16 texts");
        return;
    }
    if (is_true(job, "truth", false))
        add(&words, "TRUTH");
    add(&words, "WITHSCORES");
    if (is_true(job, "attributes", true))
        add(&words, "WITHATTRIBS");
    add(&words, "EXPLAIN");
    job->numbers[ASKED_US] = clock_us();
    job->next = answer_set;
    console_job_ask_words(job, NULL, "reply", CONSOLE_MUST | CONSOLE_PAIRS, words.n, words.text, words.bytes);
    if (element && is_true(job, "query", false))
        console_job_ask(job, NULL, "query", CONSOLE_QUIET, "VEMB", console_job_text(job, "set", ""), element, NULL);
}

void console_play_set_begin(struct console_job *job)
{
    find_vector(job, ask_set);
}
