/*
 * cmd_vload.c - VLOAD key path [REPLACE] [MEMORY bytes]: opens an index made offline under a key.
 *
 * The path is taken below `import-dir`, and after symbolic links are resolved it must still lie there: a client must
 * not be able to have the server open other files. Opening reads the resident codes and may take seconds, so the worker
 * does it; requests that the client sent behind it wait, those of other clients do not. With REPLACE searches that run
 * on the old index end on it, later ones see the new: there is no moment without either.
 */
#include "io/error.h"
#include "server/command.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vload_call {
    struct pending pending;
    struct message message;
    struct job job;
    struct lane *lane;
    char *path;
    size_t key_bytes;
    bool replace;
    uint64_t memory_bytes;
    int code;
    struct quire_error error;
    struct segment *segment;
    uint8_t key[];
};

/* The real path of `path` below the import folder, allocated; NULL with *err set. */
static char *resolve(const char *folder, const char *path, struct quire_error *err)
{
    char *base = realpath(folder, NULL), *joined = NULL, *real = NULL;
    size_t bytes = base ? strlen(base) : 0, room = bytes + strlen(path) + 2;
    if (!base) {
        error_set_errno(err, errno, "open import-dir", folder);
        return NULL;
    }
    joined = malloc(room);
    if (joined) {
        snprintf(joined, room, "%s/%s", base, path);
        real = realpath(joined, NULL);
    }
    if (!real) {
        error_set_errno(err, joined ? errno : ENOMEM, "find below import-dir", path);
    } else if (strncmp(real, base, bytes) != 0 || (real[bytes] != '/' && bytes > 1)) {
        error_set(err, QUIRE_EPERM, "%.200s lies outside of import-dir; copy or move the index there", path);
        free(real);
        real = NULL;
    }
    free(joined);
    free(base);
    return real;
}

static void reply(struct lane *lane, struct message *message)
{
    struct vload_call *call = (struct vload_call *)(void *)((char *)message - offsetof(struct vload_call, message));
    struct server *server = lane->server;
    struct collection *collection = NULL, *replaced = NULL;
    int rc = call->code;
    if (rc == 0)
        rc = collection_create(server, call->key, call->key_bytes, call->segment, &collection, &call->error);
    if (rc == 0) {
        rc = keyspace_put(&server->keyspace, collection, call->replace, &replaced, &call->error);
        if (rc < 0)
            collection_destroy(collection);
    }
    if (replaced)
        keyspace_release(server, replaced);
    if (rc < 0)
        reply_quire_error(&call->pending.out, &call->error);
    else
        resp_simple(&call->pending.out, "OK");
    free(call->path);
    pending_done(&call->pending);
}

static void open_job(struct job *job)
{
    struct vload_call *call = (struct vload_call *)(void *)((char *)job - offsetof(struct vload_call, job));
    struct segment_options options = {.memory_bytes = call->memory_bytes};
    char *real = resolve(call->lane->server->config->import_dir, call->path, &call->error);
    call->code = real ? segment_open(real, &options, &call->segment, &call->error) : call->error.code;
    free(real);
    call->message.run = reply;
    lane_post(call->lane, &call->message);
}

struct vload_options {
    bool replace;
    uint64_t memory_bytes;
};

static bool take_options(struct client *c, const struct resp_arg *args, uint32_t n, struct vload_options *o)
{
    for (uint32_t i = 3; i < n; i++) {
        long long bytes;
        if (arg_is(args[i], "REPLACE")) {
            o->replace = true;
        } else if (arg_is(args[i], "MEMORY") && i + 1 < n && arg_integer(args[i + 1], &bytes) && bytes > 0) {
            o->memory_bytes = (uint64_t)bytes;
            i++;
        } else {
            client_error(c, "ERR syntax error at '%.*s': VLOAD key path [REPLACE] [MEMORY bytes]",
                         ARG_SHOWN(args[i], 64u));
            return false;
        }
    }
    return true;
}

void cmd_vload(struct client *c, const struct resp_arg *args, uint32_t n)
{
    const struct config *config = c->lane->server->config;
    struct vload_options o = {.memory_bytes = config->memory};
    if (!take_options(c, args, n, &o))
        return;
    if (config->import_dir[0] == 0) {
        client_error(c,
                     "ERR VLOAD is off: start the server with --import-dir FOLDER, below which indexes may be opened");
        return;
    }
    if (args[1].bytes == 0 || args[1].bytes > QUIRE_KEY_BYTES_MAX) {
        client_error(c, "ERR a key has 1 to %u bytes", QUIRE_KEY_BYTES_MAX);
        return;
    }
    if (!o.replace && arg_collection(c, args[1])) {
        client_error(c, "BUSYKEY Target key name already exists");
        return;
    }
    char *path = arg_text(args[2]);
    if (!path) {
        client_error(c, "ERR not a path");
        return;
    }
    struct vload_call *call = client_defer(c, sizeof *call + args[1].bytes, true);
    if (!call) {
        free(path);
        return;
    }
    call->lane = c->lane;
    call->path = path;
    call->replace = o.replace;
    call->memory_bytes = o.memory_bytes;
    call->key_bytes = args[1].bytes;
    memcpy(call->key, args[1].data, args[1].bytes);
    call->job.run = open_job;
    worker_post(&c->lane->server->worker, &call->job);
}
