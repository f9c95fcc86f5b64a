/*
 * encode.c - texts that wait for their vectors, in batches; and the breaker.
 *
 * A text that is asked goes to a list; at the end of the loop's turn, or when a request has come back, what waits there
 * (at most ENCODE_BATCH_MAX) goes out as one request, with at most REQUESTS_MAX under way. So a single text waits for
 * nothing, and a thousand at once are some sixteen requests.
 *
 * A text whose deadline ends leaves at once; the request goes on, and its vectors are remembered if they come. Only
 * requests count for the breaker, so a burst that waits too long in the list does not open it.
 */
#include "gateway/encode/encode.h"
#include "datasets/embed.h"
#include "gateway/encode/encode_priv.h"
#include "gateway/http/fields_list.h"
#include "gateway/upstream/upstream.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MAX     4u
#define ANSWER_BYTES_MAX (64u << 20)

struct encode_call {
    struct encode *encode;
    struct encode_call *next, *previous; /* of the list of those that wait or are asked */
    struct batch *batch;                 /* NULL: waits */
    struct event timer;
    encode_done *done;
    void *context;
    uint8_t hash[ENCODE_HASH_BYTES];
    enum encode_outcome outcome; /* for those that are answered at the timer: `ready` */
    bool ready;
    size_t bytes;
    char text[];
};

struct batch {
    struct encode *encode;
    struct batch *next;
    struct upstream_call *request;
    struct evbuffer *answer;
    struct encode_call *calls[ENCODE_BATCH_MAX]; /* NULL: has left */
    uint8_t hashes[ENCODE_BATCH_MAX][ENCODE_HASH_BYTES];
    unsigned n;
    int status;
    bool too_large;
};

struct encode {
    struct event_base *base;
    struct upstream_set *upstreams;
    struct encode_options options;
    char *url, *model, *prefix, *authorization;
    char name[200];
    struct embed_model *file;
    struct encode_memory *memory; /* NULL: the dimension is not known yet, or there was no memory */
    struct encode_call *first, *last;
    unsigned n_waiting;
    struct batch *batches;
    unsigned n_batches;
    struct event flush;
    unsigned failures_in_row;
    uint64_t open_until_us;
    bool probing;
    struct encode_state state;
};

static void send_waiting(struct encode *encode);

static void count_failure(struct encode *encode, const char *why)
{
    encode->state.failures++;
    encode->probing = false;
    snprintf(encode->state.why, sizeof encode->state.why, "%s", why);
    if (++encode->failures_in_row >= encode->options.breaker_failures)
        encode->open_until_us = clock_us() + encode->options.breaker_ms * 1000ull;
}

static void unlink_call(struct encode_call *call)
{
    struct encode *encode = call->encode;
    *(call->previous ? &call->previous->next : &encode->first) = call->next;
    *(call->next ? &call->next->previous : &encode->last) = call->previous;
    if (!call->batch && !call->ready) {
        encode->n_waiting--;
        encode->probing = false; /* if it was the one that was to find out, the next one does */
    }
    if (call->batch)
        for (unsigned i = 0; i < call->batch->n; i++)
            if (call->batch->calls[i] == call)
                call->batch->calls[i] = NULL;
    event_del(&call->timer);
}

static void finish_call(struct encode_call *call, enum encode_outcome outcome, const float *vector, const char *why)
{
    unlink_call(call);
    call->done(call->context, outcome, vector, vector ? call->encode->state.dim : 0, why);
    free(call);
}

/* Takes the dimension of the first vector; false: another one than before. */
static bool take_dim(struct encode *encode, uint32_t dim)
{
    if (encode->state.dim == 0)
        encode->state.dim = dim;
    if (encode->state.dim != dim)
        return false;
    if (!encode->memory)
        encode->memory = encode_memory_create(encode->options.remembered, dim);
    return true;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void free_batch(struct batch *batch)
{
    struct encode *encode = batch->encode;
    struct batch **at = &encode->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
    encode->n_batches--;
    evbuffer_free(batch->answer);
    free(batch);
}

static void fail_batch(struct batch *batch, enum encode_outcome outcome, const char *why)
{
    count_failure(batch->encode, why);
    for (unsigned i = 0; i < batch->n; i++)
        if (batch->calls[i])
            finish_call(batch->calls[i], outcome, NULL, why);
}

static void on_head(void *context, struct upstream_call *request, const struct upstream_head *head)
{
    struct batch *batch = context;
    (void)request;
    batch->status = head->status;
}

static void on_data(void *context, struct upstream_call *request, const void *bytes, size_t n)
{
    struct batch *batch = context;
    (void)request;
    if (evbuffer_get_length(batch->answer) + n > ANSWER_BYTES_MAX || evbuffer_add(batch->answer, bytes, n) != 0)
        batch->too_large = true;
}

/* The vectors of a whole answer to those that still wait. */
static void deliver(struct batch *batch)
{
    struct encode *encode = batch->encode;
    size_t bytes = evbuffer_get_length(batch->answer);
    const char *body = (const char *)evbuffer_pullup(batch->answer, -1);
    struct quire_error err = {0};
    float *vectors = NULL;
    uint32_t dim;
    char why[160];
    if (encode_json_answer(body ? body : "", body ? bytes : 0, batch->n, &vectors, &dim, &err) != 0)
        return fail_batch(batch, ENCODE_FAILED, err.message);
    if (!take_dim(encode, dim)) {
        snprintf(why, sizeof why, "the encoder gave a vector of %u dimensions where it gave %u before", dim,
                 encode->state.dim);
        fail_batch(batch, ENCODE_FAILED, why);
    } else {
        encode->failures_in_row = 0;
        encode->open_until_us = 0;
        encode->probing = false;
        for (unsigned i = 0; i < batch->n; i++) {
            if (encode->memory)
                encode_memory_add(encode->memory, batch->hashes[i], vectors + (size_t)i * dim);
            if (batch->calls[i])
                finish_call(batch->calls[i], ENCODE_VECTOR, vectors + (size_t)i * dim, NULL);
        }
    }
    free(vectors);
}

static void on_done(void *context, struct upstream_call *request, const struct upstream_result *result)
{
    struct batch *batch = context;
    struct encode *encode = batch->encode;
    char why[160];
    (void)request;
    if (result->outcome == UPSTREAM_TIMEOUT) {
        encode->state.timeouts++;
        fail_batch(batch, ENCODE_TIMEOUT, "the encoder did not answer in time (setting embed-timeout)");
    } else if (result->outcome != UPSTREAM_WHOLE) {
        snprintf(why, sizeof why, "the encoder failed: %.120s", result->message);
        fail_batch(batch, ENCODE_FAILED, why);
    } else if (batch->status != 200 || batch->too_large) {
        snprintf(why, sizeof why, batch->too_large ? "the encoder's answer is too large" : "the encoder answered %d",
                 batch->status);
        fail_batch(batch, ENCODE_FAILED, why);
    } else {
        deliver(batch);
    }
    free_batch(batch);
    send_waiting(encode);
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

static bool ask(struct batch *batch)
{
    struct encode *encode = batch->encode;
    const char *texts[ENCODE_BATCH_MAX];
    size_t bytes[ENCODE_BATCH_MAX];
    struct evbuffer *body = evbuffer_new();
    struct fields fields = {0};
    struct quire_error err;
    for (unsigned i = 0; i < batch->n; i++) {
        texts[i] = batch->calls[i]->text;
        bytes[i] = batch->calls[i]->bytes;
    }
    if (body && encode_json_request(body, encode->model, encode->prefix, texts, bytes, batch->n) &&
        fields_append(&fields, "Content-Type", "application/json") &&
        fields_append(&fields, "Accept", "application/json") &&
        (!encode->authorization || fields_append(&fields, "Authorization", encode->authorization))) {
        struct upstream_request request = {.method = "POST",
                                           .url = encode->url,
                                           .fields = &fields,
                                           .body = body,
                                           .body_whole = true,
                                           .total_timeout_ms = encode->options.deadline_ms};
        batch->request = upstream_start(encode->upstreams, &request, &events, batch, &err);
    }
    if (body)
        evbuffer_free(body);
    fields_fini(&fields);
    return batch->request != NULL;
}

static struct batch *new_batch(struct encode *encode)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (!batch || !(batch->answer = evbuffer_new())) {
        free(batch);
        return NULL;
    }
    batch->encode = encode;
    batch->next = encode->batches;
    encode->batches = batch;
    encode->n_batches++;
    return batch;
}

static void send_waiting(struct encode *encode)
{
    while (encode->n_waiting > 0 && encode->n_batches < REQUESTS_MAX) {
        struct batch *batch = new_batch(encode);
        if (!batch)
            return; /* their deadlines tell them */
        for (struct encode_call *call = encode->first; call && batch->n < ENCODE_BATCH_MAX; call = call->next)
            if (!call->batch && !call->ready) {
                memcpy(batch->hashes[batch->n], call->hash, ENCODE_HASH_BYTES);
                batch->calls[batch->n++] = call;
                call->batch = batch;
                encode->n_waiting--;
            }
        assert(batch->n > 0);
        encode->state.requests++;
        if (!ask(batch)) {
            fail_batch(batch, ENCODE_FAILED, "no memory for a request to the encoder");
            free_batch(batch);
        }
    }
}

static void on_flush(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    send_waiting(context);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void from_file(struct encode_call *call)
{
    struct encode *encode = call->encode;
    struct quire_error err;
    float vector[EMBED_DIM_MAX];
    int rc = embed_apply(encode->file, call->text, call->bytes, vector, &err);
    if (rc == 0)
        finish_call(call, ENCODE_VECTOR, vector, NULL);
    else if (rc == QUIRE_EZEROVEC)
        finish_call(call, ENCODE_NOTHING, NULL, "the encoder's file knows no word of the text");
    else
        finish_call(call, rc == QUIRE_ELIMIT ? ENCODE_TOO_LONG : ENCODE_FAILED, NULL, err.message);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct encode_call *call = context;
    struct encode *encode = call->encode;
    const float *vector;
    (void)fd;
    (void)what;
    if (!call->ready) {
        finish_call(call, ENCODE_TIMEOUT, NULL, "the encoder did not answer in time (setting embed-timeout)");
    } else if (call->outcome == ENCODE_TOO_LONG) {
        finish_call(call, ENCODE_TOO_LONG, NULL,
                    "the text is longer than the encoder's window (setting embed-text-max)");
    } else if (call->outcome == ENCODE_FAILED) {
        finish_call(call, ENCODE_FAILED, NULL,
                    "the encoder failed several times in a row and is left alone for a moment");
    } else if (encode->file) {
        from_file(call);
    } else if ((vector = encode_memory_find(encode->memory, call->hash)) != NULL) {
        finish_call(call, ENCODE_VECTOR, vector, NULL);
    } else {
        finish_call(call, ENCODE_FAILED, NULL, "no vector"); /* forgotten since: 10,000 others came in one turn */
    }
}

static bool breaker_lets(struct encode *encode)
{
    if (encode->open_until_us == 0)
        return true;
    if (encode->probing || clock_us() < encode->open_until_us)
        return false;
    return encode->probing = true;
}

/* Whether it is answered at the end of this turn, and how; otherwise it waits for a request. */
static bool is_ready(struct encode_call *call)
{
    struct encode *encode = call->encode;
    call->outcome = ENCODE_VECTOR;
    if (call->bytes > encode->options.text_bytes_max) {
        call->outcome = ENCODE_TOO_LONG;
        encode->state.too_long++;
        return true;
    }
    if (encode->file)
        return true;
    if (encode->memory && encode_memory_find(encode->memory, call->hash)) {
        encode->state.remembered++;
        return true;
    }
    if (breaker_lets(encode))
        return false;
    call->outcome = ENCODE_FAILED;
    return true;
}

struct encode_call *encode_text(struct encode *encode, const char *text, size_t bytes, encode_done *done, void *context)
{
    struct encode_call *call = malloc(sizeof *call + bytes);
    unsigned ms = encode->options.deadline_ms;
    struct timeval deadline = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000 * 1000)}, now = {0, 0};
    if (!call)
        return NULL;
    *call = (struct encode_call){.encode = encode, .done = done, .context = context, .bytes = bytes};
    memcpy(call->text, text, bytes);
    evtimer_assign(&call->timer, encode->base, on_timer, call);
    encode->state.asked++;
    if (!SHA256((const uint8_t *)text, bytes, call->hash)) {
        free(call);
        return NULL;
    }
    call->ready = is_ready(call);
    if (evtimer_add(&call->timer, call->ready ? &now : &deadline) != 0 ||
        (!call->ready && evtimer_add(&encode->flush, &now) != 0)) {
        event_del(&call->timer);
        free(call);
        return NULL;
    }
    encode->n_waiting += !call->ready;
    call->previous = encode->last;
    *(encode->last ? &encode->last->next : &encode->first) = call;
    encode->last = call;
    return call;
}

void encode_cancel(struct encode_call *call)
{
    unlink_call(call);
    free(call);
}

/* ---- the encoder ------------------------------------------------------------------------------------------------- */

static bool copy(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

static bool copy_texts(struct encode *encode, const struct encode_options *options)
{
    const char *slash = options->url && *options->url && options->url[strlen(options->url) - 1] == '/' ? "" : "/";
    if (!copy(&encode->model, options->model ? options->model : "") || !copy(&encode->prefix, options->prefix))
        return false;
    if (options->url) {
        size_t n = strlen(options->url);
        bool whole = n >= 11 && strcmp(options->url + n - 11, "/embeddings") == 0;
        if (asprintf(&encode->url, "%s%s%s", options->url, whole ? "" : slash, whole ? "" : "embeddings") < 0) {
            encode->url = NULL;
            return false;
        }
    }
    if (options->key && asprintf(&encode->authorization, "Bearer %s", options->key) < 0) {
        encode->authorization = NULL;
        return false;
    }
    return true;
}

/* ENCODER is name@rev: of a file its dimension and seed tell it from others, of a server its prefix does. */
static void make_name(struct encode *encode, const struct encode_options *options)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    const char *prefix = options->prefix ? options->prefix : "";
    struct embed_info info;
    if (options->name && *options->name) {
        snprintf(encode->name, sizeof encode->name, "%s", options->name);
    } else if (encode->file) {
        embed_model_info(encode->file, &info);
        snprintf(encode->name, sizeof encode->name, "quire-embed@%u-%llu-%llu", info.dim, (unsigned long long)info.seed,
                 (unsigned long long)info.lines);
    } else {
        SHA256((const uint8_t *)prefix, strlen(prefix), digest);
        snprintf(encode->name, sizeof encode->name, "%.100s@%02x%02x%02x%02x",
                 *encode->model ? encode->model : "encoder", digest[0], digest[1], digest[2], digest[3]);
    }
    for (char *c = encode->name; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '_';
}

int encode_create(struct event_base *base, struct upstream_set *upstreams, const struct encode_options *options,
                  struct encode **out, struct quire_error *err)
{
    struct encode *encode = calloc(1, sizeof *encode);
    int rc = 0;
    if (!encode)
        return error_set(err, QUIRE_ENOMEM, "no memory for the encoder");
    assert(options->breaker_failures >= 1 && options->text_bytes_max <= ENCODE_TEXT_BYTES_MAX);
    encode->base = base;
    encode->upstreams = upstreams;
    encode->options = *options;
    encode->state.dim = options->dim;
    evtimer_assign(&encode->flush, base, on_flush, encode);
    if (!options->url == !options->file)
        rc = error_set(err, QUIRE_EINVALID, "give an encoder as embed-url or as embed-file, not both");
    else if (!copy_texts(encode, options))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the encoder");
    else if (options->file)
        rc = embed_model_open(options->file, &encode->file, err);
    if (rc == 0 && encode->file) {
        struct embed_info info;
        embed_model_info(encode->file, &info);
        encode->state.dim = info.dim;
    }
    if (rc) {
        encode_destroy(encode);
        return rc;
    }
    make_name(encode, options);
    encode->options.url = encode->options.model = encode->options.key = encode->options.file = NULL;
    encode->options.prefix = encode->options.name = NULL;
    *out = encode;
    return 0;
}

void encode_destroy(struct encode *encode)
{
    if (!encode)
        return;
    event_del(&encode->flush);
    for (struct batch *batch = encode->batches, *next; batch; batch = next) {
        next = batch->next;
        if (batch->request)
            upstream_cancel(batch->request);
        evbuffer_free(batch->answer);
        free(batch);
    }
    for (struct encode_call *call = encode->first, *next; call; call = next) {
        next = call->next;
        event_del(&call->timer);
        free(call);
    }
    encode_memory_destroy(encode->memory);
    embed_model_free(encode->file);
    free(encode->url);
    free(encode->model);
    free(encode->prefix);
    if (encode->authorization)
        explicit_bzero(encode->authorization, strlen(encode->authorization));
    free(encode->authorization);
    free(encode);
}

void encode_state(const struct encode *encode, struct encode_state *out)
{
    *out = encode->state;
    out->breaker_open = encode->open_until_us != 0;
}

const char *encode_name(const struct encode *encode)
{
    return encode->name;
}
