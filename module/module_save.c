/*
 * module_save.c - when what is gone may be removed, and the events of the engine that it depends on.
 *
 * A key that was deleted may come back while the engine's files still name it: it restarts from an RDB that is older
 * than the deletion, as it does for all its keys. So the data of a deleted key stays
 *
 *   with an AOF     until the deletion is synced in it: for SYNCED_MS, and until the engine says that no sync is
 *                   under way and its last write went well
 *   with RDBs only  until a save that began later has succeeded
 *   with neither    for UNSAVED_MS
 *
 * A save in the foreground says itself that it ended well. Of a child the parent hears only that it was born and that
 * it died; that it has written an RDB is seen by the file, which is another one then. The parent hears of a birth after
 * the fork, when a child with little to write may have ended already: so the file is looked at once a second before.
 */
#include "io/clock.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"
#include "server/process/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHECK_MS = 1000, SYNCED_MS = 5000, UNSYNCED_MS = 90000, UNSAVED_MS = 60000 };

struct stamp {
    uint64_t inode;
    struct timespec changed;
};

static struct {
    uint64_t mark;     /* gone before the save under way began */
    struct stamp file; /* of the RDB, before that began */
    bool file_known;   /* looked at since it last changed by our own doing */
    bool in_child;
    uint64_t saved_mark; /* gone before a save began that succeeded */
    uint64_t checked_ms;
    bool in_foreground;
} saves;

static uint64_t info_number(struct rm_server_info *info, const char *field)
{
    int error = 0;
    unsigned long long value = rm.server_info_number(info, field, &error);
    return error == RM_OK ? value : 0;
}

static bool info_is(struct rm_server_info *info, const char *field, const char *value)
{
    const char *text = rm.server_info_text(info, field);
    return text && strcmp(text, value) == 0;
}

char *module_saves_path(struct rm_ctx *ctx)
{
    char *dir = module_setting_of_engine(ctx, "dir"), *name = module_setting_of_engine(ctx, "dbfilename"), *path = NULL;
    if (dir && name && asprintf(&path, "%s/%s", dir, name) < 0)
        path = NULL;
    free(dir);
    free(name);
    return path;
}

/* Zeros where there is no file. */
static struct stamp stamp_of_rdb(struct rm_ctx *ctx)
{
    struct stat status;
    struct stamp stamp = {0};
    char *path = module_saves_path(ctx);
    if (path && stat(path, &status) == 0)
        stamp = (struct stamp){(uint64_t)status.st_ino, status.st_mtim};
    free(path);
    return stamp;
}

void module_saves_fork(struct rm_ctx *ctx, bool born)
{
    saves.in_child = born;
    if (born) {
        saves.mark = module_items_mark();
        if (!saves.file_known)
            saves.file = stamp_of_rdb(ctx);
        return;
    }
    struct stamp file = stamp_of_rdb(ctx);
    bool saved = file.inode && (file.inode != saves.file.inode || file.changed.tv_sec != saves.file.changed.tv_sec ||
                                file.changed.tv_nsec != saves.file.changed.tv_nsec);
    if (saved)
        saves.saved_mark = saves.mark;
    saves.file = file;
    saves.file_known = true;
    module_backup_child_ended(saved);
}

/* SAVE, and the save of a shutdown. */
void module_saves_foreground(uint64_t what)
{
    if (what == RM_SYNC_RDB_START) {
        saves.mark = module_items_mark();
        saves.in_foreground = true;
    } else if (what == RM_PERSISTENCE_ENDED || what == RM_PERSISTENCE_FAILED) {
        if (saves.in_foreground && what == RM_PERSISTENCE_ENDED)
            saves.saved_mark = saves.mark;
        saves.in_foreground = false;
        saves.file_known = false;
    }
}

/* How long a deletion waits that the AOF has; 0: it is not known to be on the disk. */
static uint64_t aof_wait_ms(struct rm_ctx *ctx)
{
    char *sync = module_setting_of_engine(ctx, "appendfsync");
    bool leaves_it = !sync || strcmp(sync, "no") == 0; /* to the kernel */
    free(sync);
    struct rm_server_info *info = rm.get_server_info(ctx, "persistence");
    bool synced =
        info && info_number(info, "aof_pending_bio_fsync") == 0 && info_is(info, "aof_last_write_status", "ok");
    if (info)
        rm.free_server_info(ctx, info);
    return !synced ? 0 : leaves_it ? UNSYNCED_MS : SYNCED_MS;
}

void module_saves_tick(struct rm_ctx *ctx)
{
    uint64_t now_ms = clock_us() / 1000;
    if (now_ms - saves.checked_ms < CHECK_MS)
        return;
    saves.checked_ms = now_ms;
    if (!saves.in_child) {
        saves.file = stamp_of_rdb(ctx);
        saves.file_known = true;
    }
    if (module_items_n_over() == 0 || module_backup_runs())
        return;
    int flags = rm.get_context_flags(ctx);
    uint64_t wait_ms = UNSAVED_MS, mark = saves.saved_mark;
    if (flags & RM_FLAG_AOF) {
        wait_ms = aof_wait_ms(ctx);
        mark = 0; /* a start reads the AOF, whatever RDB there is */
    } else if (flags & RM_FLAG_RDB) {
        wait_ms = 0;
    }
    unsigned n = module_items_drop(mark, wait_ms && now_ms > wait_ms ? now_ms - wait_ms : 0);
    if (n > 0)
        log_line(&module_the.log, LOG_LEVEL_NOTICE, "the data of %u deleted keys was removed", n);
}
