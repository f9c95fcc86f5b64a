/*
 * console.c - the console's routes, and what is checked before anything is asked.
 *
 * In this order: Host and Origin, the method and its content type, the setting ui, the credential, the number of
 * requests at once. The server's ACL decides the rest.
 */
#include "gateway/console/console.h"
#include "gateway/console/console_priv.h"
#include "gateway/store/sc_tls.h"
#include "io/error.h"
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct sc_options console_server_options(const struct console *console)
{
    const char *server = console->settings->server;
    return (struct sc_options){.address = strncmp(server, "tls://", 6) == 0 ? server + 6 : server,
                               .tls = console->tls,
                               .connections = 1,
                               .connect_ms = CONSOLE_CONNECT_MS,
                               .breaker_failures = UINT32_MAX, /* its calls wait for nobody's request */
                               .breaker_ms = 1,
                               .pending_bytes_max = 4 * CONSOLE_BODY_BYTES_MAX,
                               .raw = true,
                               .reply_bytes_max = CONSOLE_REPLY_BYTES_MAX};
}

static int open_users(struct console *console, struct quire_error *err)
{
    struct sc_options options = console_server_options(console);
    return sc_users_create(console->base, &options, &console->users, err);
}

int console_create(struct event_base *base, const struct settings *settings, const struct console_options *options,
                   struct console **out, struct quire_error *err)
{
    struct console *console = calloc(1, sizeof *console);
    int rc = 0;
    if (!console)
        return error_set(err, QUIRE_ENOMEM, "no memory for the console");
    console->base = base;
    console->settings = settings;
    console->options = *options;
    if (strncmp(settings->server, "tls://", 6) == 0)
        rc = sc_tls_create(settings->server_ca_file, &console->tls, err);
    if (rc == 0 && !(console->seen = console_seen_create()))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the console's requests");
    if (rc == 0)
        rc = console_page_create(&console->page, err);
    if (rc == 0)
        rc = open_users(console, err);
    if (rc == 0)
        rc = console_ring_create(console, &console->ring, err);
    if (rc < 0) {
        console_destroy(console);
        return rc;
    }
    *out = console;
    return 0;
}

void console_destroy(struct console *console)
{
    if (!console)
        return;
    console_ring_destroy(console->ring);
    sc_users_destroy(console->users);
    free(console->page);
    free(console->seen);
    SSL_CTX_free(console->tls);
    free(console);
}

void console_reload(struct console *console, const struct settings *settings)
{
    if (console)
        console->settings = settings;
}

void console_request_ended(struct console *console, const struct http_request *r, const struct console_request *end)
{
    if (!console)
        return;
    console_ring_count(console->ring, r, end);
    console_seen_add(console->seen, r, end);
}

void console_judge_asked(struct console *console, uint64_t tokens)
{
    if (console)
        console_ring_judged(console->ring, tokens);
}

/* ---- routes ---- */

static const struct console_view *find(const struct console_view *views, const char *path, size_t n)
{
    for (; views->path; views++) {
        if (strlen(views->path) == n && memcmp(views->path, path, n) == 0)
            return views;
    }
    return NULL;
}

static void refuse(struct http_request *r, int status, const char *code, const char *message)
{
    struct console_refusal why = {.status = status, .code = code};
    snprintf(why.message, sizeof why.message, "%s", message);
    console_answer_error(r, &why);
}

static void refuse_method(struct http_request *r, const char *allow)
{
    struct console_refusal why = {.status = 405, .code = "method", .allow = allow};
    snprintf(why.message, sizeof why.message, "this takes another method: %s", allow);
    console_answer_error(r, &why);
}

static bool is_json(const char *type)
{
    return type && strncasecmp(type, "application/json", 16) == 0 && (type[16] == 0 || strchr("; \t", type[16]));
}

/* The view of this method and path; NULL: it is answered. */
static const struct console_view *choose(struct http_request *r)
{
    size_t n;
    const char *path = http_path(r, &n), *method = http_method(r);
    const struct console_view *read = find(console_views, path, n), *act = find(console_acts, path, n);
    if (!read && !act)
        refuse(r, 404, "not_found", "there is no such endpoint: docs/console-api.md lists them");
    else if (read && strcmp(method, "GET") == 0)
        return read;
    else if (!act || strcmp(method, "POST") != 0)
        refuse_method(r, read && act ? "GET, POST" : read ? "GET" : "POST");
    else if (!is_json(http_field(r, "Content-Type")))
        refuse(r, 415, "content_type", "a POST needs Content-Type: application/json");
    else
        return act;
    return NULL;
}

static void serve_api(struct console *console, struct http_request *r)
{
    struct console_refusal why;
    struct sc_credential credential;
    const struct console_view *view = choose(r);
    struct sc_user *user = NULL;
    unsigned how = 0;
    if (!view)
        return;
    how |= view->flags & CONSOLE_SLOW ? SC_USERS_APART : 0u;
    how |= console_door_is_local(r) ? 0u : SC_USERS_LOCKED;
    if ((view->flags & CONSOLE_CHANGES) && console->settings->ui != SETTINGS_UI_YES)
        refuse(r, 403, "read_only", "the setting ui is read: it lets nobody change anything here");
    else if (console_door_credential(r, &credential, &why) != 0)
        console_answer_error(r, &why);
    else if (console->n_jobs >= CONSOLE_JOBS_MAX || !(user = sc_users_get(console->users, &credential, how)))
        refuse(r, 503, "busy", "too many requests or users at once: ask again in a second");
    else
        console_job_begin(console, r, view, &credential, user);
    explicit_bzero(&credential, sizeof credential);
}

bool console_begin(struct console *console, struct http_request *r)
{
    size_t n;
    const char *path = http_path(r, &n);
    struct console_refusal why;
    bool is_page = (n == 3 && memcmp(path, "/ui", 3) == 0) || (n == 4 && memcmp(path, "/ui/", 4) == 0);
    bool is_doc = n > 9 && memcmp(path, "/ui/docs/", 9) == 0;
    if (!is_page && !is_doc && !(n >= 8 && memcmp(path, "/ui/api/", 8) == 0))
        return false;
    if (console->settings->ui == SETTINGS_UI_NO)
        return false;
    if (console_door_host(r, console->settings, &why) != 0)
        console_answer_error(r, &why);
    else if (!is_page && !is_doc)
        serve_api(console, r);
    else if (strcmp(http_method(r), "GET") != 0 && strcmp(http_method(r), "HEAD") != 0)
        refuse_method(r, "GET, HEAD");
    else if (is_doc)
        console_docs_answer(r, path + 9, n - 9);
    else
        console_page_answer(console->page, r);
    return true;
}
