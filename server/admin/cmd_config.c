/*
 * cmd_config.c - CONFIG GET, SET, REWRITE, RESETSTAT: settings and statistics while the server runs.
 *
 * SET takes effect with the next look at a setting, on every lane, since lanes keep no copies. Copies are with the log
 * (its level), the journal (appendfsync), the store (its limits), the user `default` (requirepass) and TLS (what its
 * files hold): they are told, and where they cannot follow nothing is changed. Connections that are open keep what they
 * were given when they came: their keep-alive, their TLS, and that they have authenticated. Files are read and written
 * by the worker: REWRITE, and SET of settings of TLS. RESETSTAT asks every lane to put its own counts to zero; those
 * of the device go on, since the engine counts them.
 */
#include "index/store/store.h"
#include "io/error.h"
#include "io/journal.h"
#include "server/access/acl.h"
#include "server/admin/cmd_admin.h"
#include "server/call/fair.h"
#include "server/call/worker_call.h"
#include "server/net/gather.h"
#include "server/net/tls.h"
#include "server/process/config.h"
#include "server/process/log.h"
#include "server/protocol/glob.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct matches {
    const struct resp_arg *patterns;
    uint32_t n_patterns;
    struct resp_buffer *out; /* NULL: count only */
    size_t found;
};

static void match_setting(void *context, const char *name, const char *value, const char *help)
{
    struct matches *m = context;
    (void)help;
    bool found = false;
    for (uint32_t i = 0; i < m->n_patterns && !found; i++)
        found = glob_matches((const char *)m->patterns[i].data, m->patterns[i].bytes, name);
    if (!found)
        return;
    m->found++;
    if (m->out) {
        resp_text(m->out, name);
        resp_text(m->out, value);
    }
}

void cmd_config_get(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct matches m = {.patterns = args + 2, .n_patterns = n - 2};
    config_each(c->loop->server->service.config, match_setting, &m);
    m.out = client_reply(c);
    resp_map(m.out, m.found);
    config_each(c->loop->server->service.config, match_setting, &m);
}

/* ---- SET --------------------------------------------------------------------------------------------------------- */

/* What SET was asked for: n pairs of texts. */
struct set_request {
    struct server *server;
    uint64_t client_id;
    size_t n;
    struct config_change *changes;
    char *texts[]; /* 2 n; owned */
};

static void free_request(struct set_request *r)
{
    for (size_t i = 0; r && i < 2 * r->n; i++)
        free(r->texts[i]);
    free(r ? r->changes : NULL);
    free(r);
}

/* NULL without memory, or where a text holds a 0. */
static struct set_request *make_request(const struct client *c, const struct resp_arg *args, size_t n)
{
    struct set_request *r = calloc(1, sizeof *r + 2 * n * sizeof *r->texts);
    if (r)
        r->changes = calloc(n, sizeof *r->changes);
    bool whole = r && r->changes;
    for (size_t i = 0; whole && i < 2 * n; i++) {
        r->n = i / 2 + 1;
        r->texts[i] = arg_text(args[i]);
        whole = r->texts[i] != NULL;
    }
    if (!whole) {
        free_request(r);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        r->changes[i] = (struct config_change){r->texts[2 * i], r->texts[2 * i + 1]};
    r->server = c->loop->server;
    r->client_id = c->caller.id;
    return r;
}

/* Whether a setting that begins with `prefix` is among them, and the first such. */
static bool names(const struct config_change *changes, size_t n, const char *prefix, size_t *index)
{
    for (size_t i = 0; i < n; i++)
        if (strncasecmp(changes[i].name, prefix, strlen(prefix)) == 0) {
            *index = i;
            return true;
        }
    return false;
}

static int allow(void *context, const char *name, const char *text, uint64_t number, struct quire_error *err)
{
    const struct server *server = context;
    uint64_t possible = loop_clients_possible(server);
    if (strcmp(name, "maxclients") == 0 && number > possible)
        return error_set(err, QUIRE_ELIMIT,
                         "The operating system is not able to handle the specified number of clients, try with %llu",
                         (unsigned long long)possible);
    if (strcmp(name, "requirepass") == 0 && strlen(text) >= ACL_RULE_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a password has at most %d bytes", ACL_RULE_BYTES_MAX - 1);
    if (strcmp(name, "requirepass") == 0 && text[0] == 0 && server->listens_beyond &&
        server->service.config->protected_mode)
        return error_set(err, QUIRE_EPERM,
                         "the server listens beyond loopback and protected-mode is yes: without a password everybody "
                         "could command it; set another password");
    return strcmp(name, "tenant-limits") == 0 ? fair_check_limits(text, err) : 0;
}

/* What keeps a copy of a setting, or files that it names, gets the new value. What can fail comes first. */
static int apply(void *context, const struct config_change *changes, size_t n, size_t *index, struct quire_error *err)
{
    struct server *server = context;
    const struct config *config = server->service.config;
    int rc = 0;
    if (server->tls && names(changes, n, "tls-", index))
        rc = tls_reload(server, err);
    if (rc == 0 && names(changes, n, "requirepass", index))
        rc = acl_set_requirepass(&server->acl, config->requirepass, err);
    if (rc == 0 && names(changes, n, "tenant-limits", index))
        rc = fair_set_limits(&server->service, config->tenant_limits, err);
    if (rc < 0)
        return rc;
    log_set_level(server->service.log, (enum log_level)config->loglevel);
    if (server->service.journal)
        journal_set_sync(server->service.journal, (enum journal_sync)config->appendfsync);
    if (server->service.store)
        store_set_limits(server->service.store, config->maxmemory, config->disk_max);
    return 0;
}

/* 0, or an error whose message is what the client is told. */
static int run_request(const struct set_request *r, struct quire_error *err)
{
    struct server *server = r->server;
    const struct config_host host = {allow, apply, server};
    struct config_refusal refusal = {0};
    size_t at;
    int rc = config_change(server->service.config, r->changes, r->n, &host, &refusal);
    for (size_t i = 0; i < r->n && rc == 0; i++)
        log_line(server->service.log, LOG_LEVEL_NOTICE, "client %llu set %s", (unsigned long long)r->client_id,
                 r->changes[i].name);
    if (rc == 0)
        return 0;
    /* the old files again, in case others than theirs were to blame */
    if (server->tls && names(r->changes, r->n, "tls-", &at))
        tls_reload(server, NULL);
    if (rc == QUIRE_ENOTFOUND && refusal.reason[0] == 0)
        return error_set(err, QUIRE_EINVALID, "Unknown option or number of arguments for CONFIG SET - '%.128s'",
                         r->changes[refusal.index].name);
    if (refusal.index >= r->n)
        return error_set(err, QUIRE_EINVALID, "CONFIG SET failed - %s", refusal.reason);
    return error_set(err, QUIRE_EINVALID, "CONFIG SET failed (possibly related to argument '%.128s') - %s",
                     r->changes[refusal.index].name, refusal.reason);
}

struct set_call {
    struct worker_call base; /* first */
    struct set_request *request;
};

static void set_work(struct worker_call *base)
{
    struct set_call *call = (struct set_call *)base;
    base->code = run_request(call->request, &base->error);
    free_request(call->request);
}

void cmd_config_set(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct quire_error err = {0};
    size_t at;
    if (n % 2) {
        caller_error(&c->caller, "ERR wrong number of arguments for 'config|set' command");
        return;
    }
    struct set_request *r = make_request(c, args + 2, (n - 2) / 2);
    if (!r) {
        caller_error(&c->caller, "ERR CONFIG SET failed - no memory, or a value that holds a zero byte");
        return;
    }
    if (c->loop->server->tls && names(r->changes, r->n, "tls-", &at)) {
        /* files are read: not on this thread */
        struct set_call *call = deferred_begin(&c->caller, NULL, sizeof *call, true);
        if (!call) {
            free_request(r);
            return;
        }
        call->request = r;
        call->base.work = set_work;
        worker_call_start(&call->base);
        return;
    }
    if (run_request(r, &err) < 0)
        resp_quire_error(client_reply(c), &err);
    else
        resp_simple(client_reply(c), "OK");
    free_request(r);
}

/* ---- REWRITE ----------------------------------------------------------------------------------------------------- */

static void rewrite_work(struct worker_call *call)
{
    struct server *server = loop_of(call->base.lane)->server;
    struct quire_error err = {0};
    call->code = config_rewrite(server->service.config, &err);
    if (call->code < 0) {
        log_line(server->service.log, LOG_LEVEL_WARNING, "CONFIG REWRITE failed: %s", err.message);
        call->code = error_set(&call->error, QUIRE_EIO, "Rewriting config file: %s", err.message);
    } else {
        log_line(server->service.log, LOG_LEVEL_NOTICE, "CONFIG REWRITE executed with success.");
    }
}

void cmd_config_rewrite(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    if (!c->loop->server->service.config->file) {
        caller_error(&c->caller, "ERR The server is running without a config file");
        return;
    }
    struct worker_call *call = deferred_begin(&c->caller, NULL, sizeof *call, true);
    if (!call)
        return;
    call->work = rewrite_work;
    worker_call_start(call);
}

/* ---- RESETSTAT --------------------------------------------------------------------------------------------------- */

static void reset_lane(struct gather *gather, struct gather_part *part, struct loop *loop)
{
    (void)gather;
    (void)part;
    loop_reset_stats(loop);
}

static void reset_done(struct gather *gather)
{
    atomic_store(&gather->asker->server->rejected_connections, 0);
    atomic_store(&gather->asker->server->service.keyspace.expired, 0);
    resp_simple(&gather->pending.out, "OK");
}

void cmd_config_resetstat(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    gather_ask(c, reset_lane, reset_done);
}
