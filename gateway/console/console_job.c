/*
 * console_job.c - one request of the API: its parameters, what the server is asked for it, its answer.
 *
 * A view asks for parts, all at once on the user's connection; when the last reply has come, its next step runs or the
 * answer goes out. A part that the server refuses is an error in its place; where all are refused, or one that must be
 * there, the whole answer is that error. Without a connection there is no part at all.
 */
#include "gateway/console/console_priv.h"
#include "gateway/encode/encode.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/buffer.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 16u

struct console_ask {
    struct console_job *job;
    struct console_ask *previous, *next;
    struct sc_call *call;
    json_t *into; /* owned */
    char *key;    /* NULL: an element */
    unsigned how;
};

/* ---- answers ---- */

bool console_fields(struct fields *fields, const char *type)
{
    return fields_append(fields, "Content-Type", type) && fields_append(fields, "Cache-Control", "no-store") &&
           fields_append(fields, "X-Content-Type-Options", "nosniff") &&
           fields_append(fields, "Referrer-Policy", "no-referrer") &&
           fields_append(fields, "Cross-Origin-Resource-Policy", "same-origin") &&
           fields_append(fields, "X-Frame-Options", "DENY");
}

static int add_dumped(const char *text, size_t bytes, void *out)
{
    return evbuffer_add(out, text, bytes);
}

/* `allow`: NULL but with 405. */
static void send_buffer(struct http_request *r, int status, const char *allow, struct evbuffer *body)
{
    struct fields fields = {0};
    if (console_fields(&fields, "application/json") &&
        fields_append(&fields, "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") &&
        (!allow || fields_append(&fields, "Allow", allow))) {
        http_head(r, status, &fields, (int64_t)evbuffer_get_length(body));
        http_data_move(r, body);
        http_end(r);
    } else
        http_abort(r);
    fields_fini(&fields);
}

static void send_json(struct http_request *r, int status, const char *allow, json_t *value)
{
    struct evbuffer *body = evbuffer_new();
    bool ok = value && body &&
              json_dump_callback(value, add_dumped, body, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0 &&
              evbuffer_add(body, "\n", 1) == 0;
    json_decref(value);
    if (ok && evbuffer_get_length(body) > CONSOLE_REPLY_BYTES_MAX) {
        evbuffer_drain(body, evbuffer_get_length(body));
        evbuffer_add_printf(
            body,
            "{\"error\":{\"code\":\"too_large\",\"message\":\"the answer has more than %u bytes: ask for "
            "less (count, limit)\"}}\n",
            CONSOLE_REPLY_BYTES_MAX);
        status = 502;
    }
    if (ok)
        send_buffer(r, status, allow, body);
    else
        http_abort(r);
    if (body)
        evbuffer_free(body);
}

void console_answer(struct http_request *r, int status, json_t *value)
{
    send_json(r, status, NULL, value);
}

void console_answer_error(struct http_request *r, const struct console_refusal *why)
{
    json_t *message = console_json_text(why->message, strlen(why->message));
    send_json(r, why->status, why->allow, json_pack("{s:{s:s, s:o}}", "error", "code", why->code, "message", message));
}

/* ---- the end ---- */

static void drop_ask(struct console_ask *ask)
{
    struct console_job *job = ask->job;
    *(ask->previous ? &ask->previous->next : &job->asks) = ask->next;
    if (ask->next)
        ask->next->previous = ask->previous;
    job->n_asks--;
    json_decref(ask->into);
    free(ask->key);
    free(ask);
}

static void free_job(struct console_job *job)
{
    for (struct console_ask *ask = job->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->call)
            sc_cancel(ask->call);
        drop_ask(ask);
    }
    if (job->encoding)
        encode_cancel(job->encoding);
    sc_users_put(job->user);
    job->console->n_jobs--;
    job->console->n_maps -= job->is_map;
    json_decref(job->root);
    json_decref(job->body);
    for (size_t i = 0; i < sizeof job->work / sizeof *job->work; i++)
        json_decref(job->work[i]);
    free(job->words);
    free(job->blob);
    explicit_bzero(&job->credential, sizeof job->credential);
    free(job);
}

static void on_nothing(void *context, struct http_request *r)
{
    (void)context;
    (void)r;
}

static void on_gone(void *context, struct http_request *r)
{
    static const struct http_handlers nobody = {on_nothing, on_nothing, on_nothing, on_nothing, on_nothing};
    http_own(r, &nobody, NULL);
    free_job(context);
}

static void answer(struct console_job *job)
{
    static const struct http_handlers nobody = {on_nothing, on_nothing, on_nothing, on_nothing, on_nothing};
    struct http_request *r = job->r;
    json_t *root = job->root;
    job->root = NULL;
    http_own(r, &nobody, NULL);
    if (root && job->truncated)
        json_object_set_new(root, "truncated", json_true());
    if (job->failed || (job->n_bad > 0 && job->n_good == 0)) {
        json_decref(root);
        console_answer_error(r, &job->failure);
    } else
        console_answer(r, 200, root);
    free_job(job);
}

/* The last thing that a callback does: the job may be gone after it. */
static void go_on(struct console_job *job)
{
    while (job->n_asks == 0 && !job->encoding) {
        void (*next)(struct console_job * job) = job->next;
        job->next = NULL;
        if (!next || job->failed) {
            answer(job);
            return;
        }
        next(job);
    }
}

void console_job_go_on(struct console_job *job)
{
    go_on(job);
}

void console_job_refuse(struct console_job *job, int status, const char *code, const char *format, ...)
{
    va_list list;
    if (job->failed)
        return;
    job->failed = true;
    job->failure.status = status;
    job->failure.code = code;
    va_start(list, format);
    vsnprintf(job->failure.message, sizeof job->failure.message, format, list);
    va_end(list);
}

/* ---- asking the server ---- */

static struct console_refusal refusal_of(const char *why)
{
    static const struct {
        const char *begin, *code;
        int status;
    } kinds[] = {{"NOPERM", "forbidden", 403}, {"NOAUTH", "unauthorized", 401}, {"WRONGPASS", "unauthorized", 401}};
    static const char *const absent[] = {"no such", "does not exist", "not found", "no category", "unknown category"};
    struct console_refusal out = {.status = 409, .code = "server"};
    snprintf(out.message, sizeof out.message, "%s", why);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(why, kinds[i].begin, strlen(kinds[i].begin)) == 0) {
            out.status = kinds[i].status;
            out.code = kinds[i].code;
            return out;
        }
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        if (strcasestr(why, absent[i])) {
            out.status = 404;
            out.code = "not_found";
        }
    }
    return out;
}

/* There is no connection, or not in time: nothing of the answer can be there. */
static void fail_all(struct console_job *job, enum sc_outcome outcome, const char *why)
{
    struct sc_client_state state;
    sc_client_state(sc_users_client(job->user), &state);
    if (outcome == SC_TIMEOUT)
        console_job_refuse(job, 504, "timeout", "the server did not answer in time (setting ui-timeout)");
    else if (state.refused) {
        char text[300];
        sc_users_refusal(job->user, why, text, sizeof text);
        console_job_refuse(job, 401, "unauthorized", "%s", text);
    } else
        console_job_refuse(job, 503, "server_down", "%.200s", why);
}

static void place(struct console_ask *ask, json_t *value)
{
    int rc =
        ask->key ? json_object_set_new_nocheck(ask->into, ask->key, value) : json_array_append_new(ask->into, value);
    if (rc != 0)
        console_job_refuse(ask->job, 503, "busy", "no memory for the answer");
}

static void place_error(struct console_ask *ask, const char *why)
{
    struct console_job *job = ask->job;
    struct console_refusal failure = refusal_of(why);
    json_t *message = console_json_text(failure.message, strlen(failure.message));
    if (ask->how & CONSOLE_MUST)
        console_job_refuse(job, failure.status, failure.code, "%s", failure.message);
    else if (!job->failed && job->n_bad == 0)
        job->failure = failure;
    job->n_bad++;
    if (ask->how & CONSOLE_QUIET) {
        json_decref(message);
        place(ask, json_null());
    } else
        place(ask, json_pack("{s:{s:s, s:o}}", "error", "code", failure.code, "message", message));
}

static void on_reply(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct console_ask *ask = context;
    struct console_job *job = ask->job;
    ask->call = NULL;
    if (outcome == SC_REPLY) {
        job->n_good++;
        place(ask, console_json(reply->str, (size_t)reply->len, ask->how & 255u, &job->truncated));
    } else if (outcome == SC_ERROR) {
        place_error(ask, why);
    } else if (ask->how & CONSOLE_OWN) {
        place(ask, json_null());
    } else
        fail_all(job, outcome, why);
    drop_ask(ask);
    go_on(job);
}

void console_job_ask_words(struct console_job *job, json_t *into, const char *key, unsigned how, unsigned n,
                           const char *const *words, const size_t *bytes)
{
    bool slow = job->view->flags & CONSOLE_SLOW;
    unsigned deadline_ms = slow ? CONSOLE_CHECK_MS : (unsigned)job->console->settings->ui_timeout;
    struct console_ask *ask = job->failed ? NULL : calloc(1, sizeof *ask);
    into = into ? into : job->root;
    if (ask)
        *ask = (struct console_ask){.job = job, .how = how, .key = key ? strdup(key) : NULL};
    struct sc_client *client = how & CONSOLE_OWN ? console_ring_client(job->console->ring) : sc_users_client(job->user);
    if (!ask || (key && !ask->key) || !(ask->call = sc_call(client, n, words, bytes, deadline_ms, on_reply, ask))) {
        if (ask)
            free(ask->key);
        free(ask);
        console_job_refuse(job, 503, "busy", "no memory to ask the server");
        return;
    }
    ask->into = json_incref(into);
    ask->next = job->asks;
    if (job->asks)
        job->asks->previous = ask;
    job->asks = ask;
    job->n_asks++;
}

void console_job_ask(struct console_job *job, json_t *into, const char *key, unsigned how, ...)
{
    const char *words[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    unsigned n = 0;
    va_list list;
    va_start(list, how);
    for (const char *word; (word = va_arg(list, const char *)) != NULL; n++) {
        assert(n < WORDS_MAX);
        words[n] = word;
        bytes[n] = strlen(word);
    }
    va_end(list);
    console_job_ask_words(job, into, key, how, n, words, bytes);
}

/* ---- parameters ---- */

const struct console_param *console_job_param(const struct console_job *job, const char *name)
{
    for (unsigned i = 0; i < job->n_params; i++) {
        if (strcmp(job->params[i].name, name) == 0)
            return &job->params[i];
    }
    return NULL;
}

const char *console_job_text(const struct console_job *job, const char *name, const char *absent)
{
    const struct console_param *param = console_job_param(job, name);
    return param ? param->value : absent;
}

bool console_job_number(struct console_job *job, const char *name, int64_t absent, int64_t min, int64_t max,
                        int64_t *out)
{
    const char *text = console_job_text(job, name, NULL);
    char *end = NULL;
    *out = text ? strtoll(text, &end, 10) : absent;
    if (!text || (*text && *end == 0 && strlen(text) < 19 && *out >= min && *out <= max))
        return true;
    console_job_refuse(job, 400, "bad_request", "%s is '%.40s': a whole number from %lld to %lld", name, text,
                       (long long)min, (long long)max);
    return false;
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* In place; false: a broken %XX, or a NUL (no name here has one, and texts end with it). */
static bool decode(char *text, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (c == '%') {
            int high = i + 2 < n ? digit(text[i + 1]) : -1, low = high >= 0 ? digit(text[i + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == 0)
            return false;
        text[used++] = c;
    }
    text[used] = 0;
    return true;
}

static bool add_param(struct console_job *job, const char *name, const char *value)
{
    if (job->n_params == CONSOLE_PARAMS_MAX || console_job_param(job, name))
        return false;
    job->params[job->n_params++] = (struct console_param){name, value, strlen(value)};
    return true;
}

static bool read_query(struct console_job *job)
{
    const char *query = strchr(http_target(job->r), '?');
    if (!query || !query[1])
        return true;
    if (!(job->words = strdup(query + 1)))
        return false;
    for (char *at = job->words, *end; at; at = end ? end + 1 : NULL) {
        if ((end = strchr(at, '&')))
            *end = 0;
        char *equals = strchr(at, '=');
        if (!equals)
            return false;
        *equals = 0;
        if (!decode(at, strlen(at)) || !decode(equals + 1, strlen(equals + 1)) || !add_param(job, at, equals + 1))
            return false;
    }
    return true;
}

/* Texts and numbers of the body are parameters, too; objects and lists stay there. */
static bool read_members(struct console_job *job)
{
    const char *name;
    json_t *value;
    size_t room = 1, used = 0;
    json_object_foreach(job->body, name, value) room += json_is_string(value) ? 0 : 40;
    if (!(job->words = malloc(room)))
        return false;
    json_object_foreach(job->body, name, value)
    {
        const char *text = job->words + used;
        if (json_is_string(value)) {
            if (strlen(json_string_value(value)) != json_string_length(value))
                return false; /* a NUL */
            text = json_string_value(value);
        } else if (json_is_integer(value))
            used += 1 + (size_t)sprintf(job->words + used, "%lld", (long long)json_integer_value(value));
        else if (json_is_real(value))
            used += 1 + (size_t)sprintf(job->words + used, "%.17g", json_real_value(value));
        else if (json_is_boolean(value))
            used += 1 + (size_t)sprintf(job->words + used, "%s", json_is_true(value) ? "true" : "false");
        else
            text = "(a list)";
        if (!add_param(job, name, text))
            return false;
    }
    return true;
}

/* All that must be given are, and no others; *wrong: which. */
static bool fits(const struct console_job *job, char *wrong, size_t room)
{
    unsigned known = 0;
    for (const char *at = job->view->params; *at;) {
        size_t n = strcspn(at, " !");
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        bool given = console_job_param(job, name) != NULL;
        known += given;
        if (at[n] == '!' && !given) {
            snprintf(wrong, room, "'%s' is missing", name);
            return false;
        }
        at += n + strspn(at + n, " !");
    }
    if (known < job->n_params)
        snprintf(wrong, room, "a parameter is unknown, or a list where it must not be");
    return known == job->n_params;
}

/* ---- the beginning ---- */

static void begin(struct console_job *job)
{
    char wrong[100];
    if (!fits(job, wrong, sizeof wrong))
        console_job_refuse(job, 400, "bad_request", "%s; %s takes: %s", wrong, job->view->path, job->view->params);
    else if (!job->root)
        console_job_refuse(job, 503, "busy", "no memory for the answer");
    else
        job->view->begin(job);
    go_on(job);
}

static void on_body(void *context, struct http_request *r)
{
    struct console_job *job = context;
    struct evbuffer *in = http_body(r);
    size_t n = evbuffer_get_length(in);
    json_error_t error = {.text = "no memory"};
    if (!http_body_is_whole(r) || n > CONSOLE_BODY_BYTES_MAX) {
        http_close_after(r);
        console_job_refuse(job, 413, "too_large", "the body has more than %u bytes", CONSOLE_BODY_BYTES_MAX);
        go_on(job);
        return;
    }
    const char *bytes = n > 0 ? (const char *)evbuffer_pullup(in, -1) : "";
    job->body = bytes ? json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!json_is_object(job->body) || !read_members(job)) {
        console_job_refuse(job, 400, "bad_request", "the body is no JSON object, or one of too many members: %.100s",
                           json_is_object(job->body) ? "" : error.text);
        go_on(job);
    } else
        begin(job);
}

void console_job_begin(struct console *console, struct http_request *r, const struct console_view *view,
                       const struct sc_credential *credential, struct sc_user *user)
{
    static const struct http_handlers handlers = {on_nothing, on_body, on_nothing, on_gone, on_nothing};
    struct console_job *job = calloc(1, sizeof *job);
    if (!job) {
        sc_users_put(user);
        http_abort(r);
        return;
    }
    *job = (struct console_job){.console = console,
                                .r = r,
                                .view = view,
                                .user = user,
                                .credential = *credential,
                                .root = json_object(),
                                .began_us = clock_us()};
    console->n_jobs++;
    http_own(r, &handlers, job);
    if (strcmp(view->method, "POST") == 0)
        http_read(r, CONSOLE_BODY_BYTES_MAX);
    else if (!read_query(job)) {
        console_job_refuse(job, 400, "bad_request", "the query is not name=value&..., each name once, without NUL");
        go_on(job);
    } else
        begin(job);
}
