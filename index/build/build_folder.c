/*
 * build_folder.c - the folder in which a build works, and its files.
 *
 * A plain build works in PATH.building-<pid>-<random> and removes it whatever goes wrong. One that may be resumed works
 * in PATH.building-resume under a lock (a second one is refused, a killed one holds none), keeps what it has finished
 * in work files and tables, and after each stage writes WORK_STATE: a page with stage, segment id, parameters and
 * calibration, under a checksum. Everything that a state speaks of is synced before the state replaces the one before
 * it by renaming, so that after a kill or a power cut the state is true.
 */
#include "index/build/build_priv.h"
#include "index/column/columns.h"
#include "index/format/posting_block.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */

char *build_file_path(const struct build *b, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", b->folder, name) < 0 ? NULL : path;
}

int build_section_writer(struct build *b, const char *name, uint32_t kind, struct section_writer **out)
{
    char *path = build_file_path(b, name);
    int rc = path ? section_writer_create(b->fs, path, kind, b->segment_id, out, b->err) : QUIRE_ENOMEM;
    free(path);
    return rc;
}

int build_open_work(struct build *b, const char *name, unsigned flags, struct io_file **out)
{
    char *path = build_file_path(b, name);
    int rc = path ? fs_open(b->fs, path, flags, out, b->err) : QUIRE_ENOMEM;
    free(path);
    return rc;
}

int build_remove_file(struct build *b, const char *name)
{
    char *path = build_file_path(b, name);
    int rc = path ? b->fs->ops->unlink(b->fs, path) : QUIRE_ENOMEM;
    if (rc < 0 && rc != QUIRE_ENOFILE)
        error_set(b->err, rc, "cannot remove %s/%s: %s", b->folder, name, quire_error_text(rc));
    free(path);
    return rc == QUIRE_ENOFILE ? 0 : rc;
}

static void release_lock(struct build *b)
{
    fs_close(b->state.lock);
    b->state.lock = NULL;
}

int build_remove_work(struct build *b)
{
    /* the state after what it speaks of, so that a kill in between leaves one that can be resumed */
    static const char *const names[] = {WORK_ROWS,   WORK_SPARE, WORK_INPUT,     WORK_EDGES, WORK_REVERSE, WORK_LISTS,
                                        WORK_PLACED, WORK_MOVED, WORK_STATE_NEW, WORK_STATE, WORK_LOCK};
    int rc = 0;
    assert(b->folder && b->state.stage == STAGE_WRITTEN);
    release_lock(b);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = build_remove_file(b, names[i]);
    return rc;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static int take_lock(struct build *b)
{
    int rc = build_open_work(b, WORK_LOCK, FS_WRITE | FS_CREATE, &b->state.lock);
    if (rc < 0 || b->state.lock->fd < 0) /* files in memory have no locks, and no second process */
        return rc;
    if (flock(b->state.lock->fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return error_set(b->err, QUIRE_EBUSY, "%s: another build works in this folder: wait for it or stop it", b->folder);
}

static int clear_entry(void *context, const char *name)
{
    return strcmp(name, WORK_LOCK) == 0 ? 0 : build_remove_file(context, name);
}

/* What an earlier run has finished stays, what it has begun and all else goes. */
static int resume_folder(struct build *b)
{
    static const char *const tables[] = {KEYS_NAME, ATTRIBUTES_NAME, COLUMNS_NAME, CODES_NAME, POSTINGS_NAME};
    int rc = take_lock(b);
    if (rc == 0)
        rc = build_load_state(b);
    if (rc == QUIRE_ENOFILE)
        return b->fs->ops->list(b->fs, b->folder, clear_entry, b);
    enum build_stage stage = b->state.stage;
    if (rc == 0)
        rc = build_remove_file(b, WORK_SPARE);
    for (size_t i = 0; rc == 0 && stage < STAGE_TABLES && i < sizeof tables / sizeof *tables; i++)
        rc = build_remove_file(b, tables[i]);
    if (rc == 0 && stage < STAGE_WRITTEN)
        rc = build_remove_file(b, BLOCKS_NAME);
    return rc == 0 && stage < STAGE_WRITTEN ? build_remove_file(b, META_NAME) : rc;
}

static void forget_folder(struct build *b)
{
    release_lock(b);
    free(b->folder);
    b->folder = NULL;
}

int build_open_folder(struct build *b)
{
    uint64_t random;
    assert(!b->folder && b->state.stage == STAGE_NONE);
    if (access(b->path, F_OK) == 0)
        return error_set(b->err, QUIRE_EEXISTS, "%s is there already: choose another name or remove it", b->path);
    if (getrandom(b->segment_id, sizeof b->segment_id, 0) != sizeof b->segment_id ||
        getrandom(&random, sizeof random, 0) != sizeof random)
        return error_set(b->err, QUIRE_EINTERNAL, "no random bytes from the kernel");
    int n = b->options.resume ? asprintf(&b->folder, "%s.building-resume", b->path)
                              : asprintf(&b->folder, "%s.building-%d-%08x", b->path, (int)getpid(), (unsigned)random);
    if (n < 0) {
        b->folder = NULL;
        return QUIRE_ENOMEM;
    }
    int rc = b->fs->ops->mkdir(b->fs, b->folder);
    bool was_there = rc == QUIRE_EEXISTS && b->options.resume;
    if (rc < 0 && !was_there) {
        error_set(b->err, rc, "cannot make folder %s: %s", b->folder, quire_error_text(rc));
        forget_folder(b);
        return rc;
    }
    rc = b->options.resume ? resume_folder(b) : 0;
    if (rc < 0 && was_there)
        forget_folder(b); /* it is not this build's to remove */
    return rc;
}

void build_close_folder(struct build *b, int rc)
{
    release_lock(b);
    if (b->folder && rc < 0 && (!b->options.resume || b->state.stage == STAGE_NONE))
        fs_remove_folder(b->fs, b->folder, NULL);
}
