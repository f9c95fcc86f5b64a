/*
 * snapshot.c - making, naming and removing snapshots; SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF, and INFO persistence.
 *
 * The store makes the copy as `new` and renames it when it is whole and synced; it gets its final name, which holds the
 * LSN, after that. Only then older ones go, if `snapshots-keep` says so, and only folders named like a snapshot: each
 * is renamed to `old` before anything of it is removed. So whatever bears a final name is whole; what a process that
 * was killed leaves of the others is removed at the next start, or by the next snapshot.
 *
 * Age is decided by the time in the name. The LSN would not do: it goes back when a server is started on an older
 * snapshot.
 */
#include "server/admin/snapshot.h"
#include "cache/core/cache.h"
#include "index/store/store.h"
#include "io/array.h"
#include "io/error.h"
#include "io/fs.h"
#include "io/journal.h"
#include "server/admin/cmd_admin.h"
#include "server/call/worker_call.h"
#include "server/net/client.h"
#include "server/process/log.h"
#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STAMP_BYTES = 16 }; /* 20261121T190512Z */

static uint64_t now_s(void)
{
    return (uint64_t)time(NULL);
}

void snapshots_fini(struct server *server)
{
    if (server->snapshots)
        pthread_mutex_destroy(&server->snapshots->lock);
    free(server->snapshots);
}

/* ---- folders ------------------------------------------------------------------------------------------------------*/

static char *path_of(const struct config *config)
{
    char *path;
    const char *name = config->snapshot_dir;
    int bytes = name[0] == '/' ? asprintf(&path, "%s", name) : asprintf(&path, "%s/%s", config->dir, name);
    return bytes < 0 ? NULL : path;
}

/* The folder of snapshots, made where it is not there; owned by the caller. */
static char *snapshot_folder(const struct config *config, struct quire_error *err)
{
    char *path = path_of(config);
    if (!path) {
        error_set(err, QUIRE_ENOMEM, "no memory for the name of a snapshot");
        return NULL;
    }
    if (mkdir(path, 0750) == 0 || errno == EEXIST)
        return path;
    error_set_errno(err, errno, "make snapshot-dir", path);
    free(path);
    return NULL;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* A folder with all that is below it; that it is not there is fine. */
static int remove_tree(const char *folder, const char *name, struct quire_error *err)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a snapshot");
    int rc = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT
                 ? 0
                 : error_set_errno(err, errno, "remove", path);
    free(path);
    return rc;
}

static bool is_snapshot(const char *name)
{
    static const char form[] = "ddddddddTddddddZ-";
    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'd' ? !isdigit((unsigned char)name[i]) : name[i] != form[i])
            return false;
    const char *lsn = name + sizeof form - 1;
    return *lsn && lsn[strspn(lsn, "0123456789")] == 0;
}

struct names {
    char **list; /* owned, as each name */
    size_t n, capacity;
};

static int note_name(void *context, const char *name)
{
    struct names *names = context;
    if (!is_snapshot(name))
        return 0;
    if (!array_reserve(&names->list, &names->capacity, names->n + 1))
        return QUIRE_ENOMEM;
    names->list[names->n] = strdup(name);
    return names->list[names->n] ? (names->n++, 0) : QUIRE_ENOMEM;
}

static int oldest_first(const void *left, const void *right)
{
    const char *a = *(char *const *)left, *b = *(char *const *)right;
    int order = strncmp(a, b, STAMP_BYTES);
    uint64_t x = strtoull(a + STAMP_BYTES + 1, NULL, 10), y = strtoull(b + STAMP_BYTES + 1, NULL, 10);
    return order ? order : (x > y) - (x < y);
}

/* One that is whole until it has another name. */
static int remove_snapshot(const char *folder, const char *name, struct quire_error *err)
{
    char *from = NULL, *to = NULL;
    int rc = remove_tree(folder, "old", err); /* of a process that was killed */
    if (rc == 0 && (asprintf(&from, "%s/%s", folder, name) < 0 || asprintf(&to, "%s/old", folder) < 0))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the name of a snapshot");
    if (rc == 0)
        rc = fs_publish(fs_real(), from, to, err);
    free(from);
    free(to);
    return rc == 0 ? remove_tree(folder, "old", err) : rc;
}

/* All but the youngest `keep`, and never the one that was just made. */
static int remove_older(const char *folder, const char *made, uint64_t keep, struct quire_error *err)
{
    struct names names = {.list = NULL};
    struct io_fs *fs = fs_real();
    int rc = fs->ops->list(fs, folder, note_name, &names);
    if (rc < 0)
        error_set(err, rc, "cannot list %s: %s", folder, quire_error_text(rc));
    if (names.n > 1)
        qsort(names.list, names.n, sizeof *names.list, oldest_first);
    for (size_t i = 0; rc == 0 && i + keep < names.n; i++)
        if (strcmp(names.list[i], made) != 0)
            rc = remove_snapshot(folder, names.list[i], err);
    while (names.n > 0)
        free(names.list[--names.n]);
    free(names.list);
    return rc;
}

static int remove_leftovers(const char *folder, struct quire_error *err)
{
    static const char *const names[] = {"new.building", "new", "old"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = remove_tree(folder, names[i], err);
    return rc;
}

/* What is in the way is said, and tried again by the next snapshot. */
static void remove_unfinished(struct server *server)
{
    struct quire_error err = {0};
    const struct config *config = server->service.config;
    char *folder = config->dir[0] ? path_of(config) : NULL;
    if (folder && access(folder, F_OK) == 0 && remove_leftovers(folder, &err) < 0)
        log_line(server->service.log, LOG_LEVEL_WARNING, "an unfinished snapshot stays for now: %s", err.message);
    free(folder);
}

int snapshots_init(struct server *server, struct quire_error *err)
{
    struct snapshots *s = server->snapshots = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory for snapshots");
    pthread_mutex_init(&s->lock, NULL);
    s->last_s = now_s();
    s->seconds = s->rewrite_seconds = -1;
    s->lsn = server->service.journal ? journal_last_lsn(server->service.journal) : 0;
    remove_unfinished(server);
    return 0;
}

/* ---- making one ---------------------------------------------------------------------------------------------------*/

/* Gives the snapshot `new` its name. One of the same second and LSN holds the same: then it stays instead. */
static int name_it(const char *folder, const char *from, uint64_t lsn, char *name, size_t bytes,
                   struct quire_error *err)
{
    char stamp[STAMP_BYTES + 1], *to;
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(name, bytes, "%s-%" PRIu64, stamp, lsn);
    if (asprintf(&to, "%s/%s", folder, name) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a snapshot");
    int rc = fs_publish(fs_real(), from, to, err);
    free(to);
    return rc == QUIRE_EEXISTS ? remove_tree(folder, "new", err) : rc;
}

static int make_in(struct server *server, const char *folder, uint64_t *lsn, struct quire_error *err)
{
    char name[64], *path;
    uint64_t keep = server->service.config->snapshots_keep;
    if (asprintf(&path, "%s/new", folder) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the name of a snapshot");
    int rc = remove_leftovers(folder, err);
    caches_pin_files(server->service.caches);
    if (rc == 0)
        rc = store_snapshot(server->service.store, path, lsn, err);
    /* entries of the snapshot point to documents and segments that were there before it */
    if (rc == 0)
        rc = caches_link_documents(server->service.caches, path, err);
    caches_unpin_files(server->service.caches);
    if (rc == 0)
        rc = name_it(folder, path, *lsn, name, sizeof name, err);
    if (rc == 0)
        log_line(server->service.log, LOG_LEVEL_NOTICE, "snapshot %s/%s", folder, name);
    if (rc == 0 && keep)
        rc = remove_older(folder, name, keep, err);
    free(path);
    return rc;
}

/* Makes one; *lsn is its. Blocks. Any thread, one at a time. */
static int make_snapshot(struct server *server, uint64_t *lsn, struct quire_error *err)
{
    struct snapshots *s = server->snapshots;
    pthread_mutex_lock(&s->lock);
    s->begun_s = now_s();
    pthread_mutex_unlock(&s->lock);
    char *folder = snapshot_folder(server->service.config, err);
    int rc = folder ? make_in(server, folder, lsn, err) : err->code;
    free(folder);
    pthread_mutex_lock(&s->lock);
    s->seconds = (int64_t)(now_s() - s->begun_s);
    s->begun_s = 0;
    s->failed = rc < 0;
    if (rc == 0) {
        s->last_s = now_s();
        s->lsn = *lsn;
        s->saves++;
    }
    pthread_mutex_unlock(&s->lock);
    if (rc < 0)
        log_line(server->service.log, LOG_LEVEL_WARNING, "no snapshot: %s", err->message);
    return rc;
}

/* ---- commands -----------------------------------------------------------------------------------------------------*/

/* Whether one may be begun, which counts as running then; otherwise after an error reply. */
static bool may_begin(struct client *c)
{
    struct server *server = c->loop->server;
    struct snapshots *s = server->snapshots;
    if (!server->service.store) {
        caller_error(&c->caller, "ERR snapshots need a data folder: start the server with --dir FOLDER");
        return false;
    }
    pthread_mutex_lock(&s->lock);
    bool free_now = s->running == 0;
    s->running += free_now;
    pthread_mutex_unlock(&s->lock);
    if (!free_now)
        caller_error(&c->caller, "ERR Background save already in progress");
    return free_now;
}

static void end_running(struct server *server)
{
    pthread_mutex_lock(&server->snapshots->lock);
    server->snapshots->running--;
    pthread_mutex_unlock(&server->snapshots->lock);
}

static void save(struct worker_call *call)
{
    struct server *server = loop_of(call->base.lane)->server;
    uint64_t lsn = 0;
    call->code = make_snapshot(server, &lsn, &call->error);
    end_running(server);
}

void snapshot_save(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    if (!may_begin(c))
        return;
    struct worker_call *call = deferred_begin(&c->caller, NULL, sizeof *call, true);
    if (!call) {
        end_running(c->loop->server);
        return;
    }
    call->work = save;
    worker_call_start(call);
}

struct background {
    struct job job;
    struct server *server;
};

static void save_in_background(struct job *job)
{
    struct background *b = (struct background *)(void *)job;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    make_snapshot(b->server, &lsn, &err); /* has logged what went wrong, and INFO tells */
    end_running(b->server);
    free(b);
}

void snapshot_bgsave(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    if (n > 2 || (n == 2 && !arg_is(args[1], "SCHEDULE"))) {
        caller_error(&c->caller, "ERR syntax error");
        return;
    }
    if (!may_begin(c))
        return;
    struct background *b = malloc(sizeof *b);
    if (!b) {
        end_running(c->loop->server);
        caller_error(&c->caller, "OOM no memory for a snapshot");
        return;
    }
    *b = (struct background){{.run = save_in_background}, c->loop->server};
    worker_post(&c->loop->server->service.worker, &b->job);
    /* in a transaction it begins when that has ended */
    resp_simple(client_reply(c), c->group ? "Background saving scheduled" : "Background saving started");
}

void snapshot_lastsave(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct snapshots *s = c->loop->server->snapshots;
    (void)args;
    (void)n;
    pthread_mutex_lock(&s->lock);
    uint64_t last_s = s->last_s;
    pthread_mutex_unlock(&s->lock);
    resp_integer(client_reply(c), (long long)last_s);
}

/* ---- BGREWRITEAOF -------------------------------------------------------------------------------------------------*/

static void rewrite_in_background(struct job *job)
{
    struct background *b = (struct background *)(void *)job;
    struct snapshots *s = b->server->snapshots;
    struct quire_error err = {0};
    uint64_t begun_s = now_s();
    int rc = store_checkpoint(b->server->service.store, &err);
    if (rc < 0)
        log_line(b->server->service.log, LOG_LEVEL_WARNING, "BGREWRITEAOF: no checkpoint: %s", err.message);
    pthread_mutex_lock(&s->lock);
    s->rewriting = false;
    s->rewrite_failed = rc < 0;
    s->rewrite_seconds = (int64_t)(now_s() - begun_s);
    pthread_mutex_unlock(&s->lock);
    free(b);
}

void snapshot_bgrewriteaof(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct server *server = c->loop->server;
    struct snapshots *s = server->snapshots;
    (void)args;
    (void)n;
    if (!server->service.store) {
        caller_error(caller, "ERR there is no log without a data folder: start the server with --dir FOLDER");
        return;
    }
    struct background *b = malloc(sizeof *b);
    if (!b) {
        caller_error(caller, "OOM no memory for a checkpoint");
        return;
    }
    pthread_mutex_lock(&s->lock);
    bool free_now = !s->rewriting;
    s->rewriting = true;
    pthread_mutex_unlock(&s->lock);
    if (!free_now) {
        free(b);
        caller_error(caller, "ERR Background append only file rewriting already in progress");
        return;
    }
    *b = (struct background){{.run = rewrite_in_background}, server};
    worker_post(&server->service.worker, &b->job);
    resp_simple(client_reply(c), c->group ? "Background append only file rewriting scheduled"
                                          : "Background append only file rewriting started");
}
