/*
 * store_import.c - the files of an index that was built elsewhere, taken into the data folder.
 *
 * The folder is somebody else's: its entries may be links, pipes, sockets or devices, and may change while it is looked
 * at. So nothing is read there. Each file that an index consists of is opened once, relative to the folder's
 * descriptor, following no link and waiting for nobody (O_NOFOLLOW, O_NONBLOCK), and must be a plain file; that very
 * file, by its descriptor, gets a second name in segments/, or is copied where a file system or the kernel's rules for
 * links do not allow that. What is then opened and checked is this store's own. Other entries of the folder are not
 * looked at.
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "index/store/store_priv.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES (1u << 20)

struct store_import {
    struct store *store;
    uint64_t uid;
    char *path;              /* where the index was; owned */
    char *folder;            /* segments/<uid>.building; owned; NULL: it was taken */
    struct segment *segment; /* the index, open in that folder; NULL: it was taken */
};

static const struct {
    const char *name;
    bool needed;
} index_files[] = {{META_NAME, true},        {BLOCKS_NAME, true},   {CODES_NAME, true},    {KEYS_NAME, true},
                   {ATTRIBUTES_NAME, false}, {COLUMNS_NAME, false}, {POSTINGS_NAME, false}};

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    return S_ISLNK(mode)    ? "a symbolic link"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static int refuse(const char *path, const char *name, mode_t mode, struct quire_error *err)
{
    return error_set(err, QUIRE_EPERM, "%.200s/%s is %s: the files of an index must be plain files, copy it there",
                     path, name, kind_of(mode));
}

/* *fd -1: there is no such file. */
static int open_file(int folder, const char *path, const char *name, int *fd, struct quire_error *err)
{
    struct stat status;
    char shown[PATH_MAX];
    *fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return 0;
    if (*fd < 0) { /* a link says ELOOP, a socket ENXIO */
        int errnum = errno;
        if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(status.st_mode))
            return refuse(path, name, status.st_mode, err);
        snprintf(shown, sizeof shown, "%.200s/%s", path, name);
        return error_set_errno(err, errnum, "open", shown);
    }
    if (fstat(*fd, &status) == 0 && S_ISREG(status.st_mode))
        return 0;
    close(*fd);
    *fd = -1;
    return refuse(path, name, status.st_mode, err);
}

static int copy_bytes(int from, const char *to, struct quire_error *err)
{
    struct io_file *target = NULL;
    uint8_t *buffer = malloc(COPY_BYTES);
    int rc = buffer ? fs_open(fs_real(), to, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &target, err)
                    : error_set(err, QUIRE_ENOMEM, "no memory to copy %s", to);
    for (uint64_t at = 0; rc == 0;) {
        ssize_t n = pread(from, buffer, COPY_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = error_set_errno(err, errno, "copy to", to);
        if (n <= 0)
            break;
        rc = fs_write_exact(target, buffer, (size_t)n, at, err);
        at += (uint64_t)n;
    }
    if (rc == 0)
        rc = fs_sync(target, err);
    fs_close(target);
    free(buffer);
    return rc;
}

/* The file that a descriptor is of gets another name; by /proc, which needs no privilege. */
static int take_file(int fd, const char *to, struct quire_error *err)
{
    char self[40];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    return errno == ENOSPC || errno == EDQUOT ? error_set_errno(err, errno, "link", to) : copy_bytes(fd, to, err);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* Of a path that was found to be right, what was opened must be what lies there: nobody has put a link in its way. */
static int check_place(int folder, const char *path, struct quire_error *err)
{
    char self[40], real[PATH_MAX];
    snprintf(self, sizeof self, "/proc/self/fd/%d", folder);
    ssize_t n = readlink(self, real, sizeof real - 1);
    real[n > 0 ? n : 0] = 0;
    return strcmp(real, path) == 0
               ? 0
               : error_set(err, QUIRE_EPERM, "%.200s is another folder than it was a moment ago: try again", path);
}

static int take_files(const char *path, bool resolved, const char *to, struct quire_error *err)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (resolved ? O_NOFOLLOW : 0)), rc = 0;
    if (folder < 0)
        return error_set_errno(err, errno, "open", path);
    if (resolved)
        rc = check_place(folder, path, err);
    for (size_t i = 0; rc == 0 && i < sizeof index_files / sizeof *index_files; i++) {
        char *name = NULL;
        int fd = -1;
        rc = open_file(folder, path, index_files[i].name, &fd, err);
        if (rc == 0 && fd < 0 && index_files[i].needed)
            rc =
                error_set(err, QUIRE_ENOFILE, "%.200s is not an index: there is no file %s", path, index_files[i].name);
        if (rc == 0 && fd >= 0 && asprintf(&name, "%s/%s", to, index_files[i].name) < 0)
            rc = error_set(err, QUIRE_ENOMEM, "no memory to load %s", path);
        if (rc == 0 && fd >= 0)
            rc = take_file(fd, name, err);
        if (fd >= 0)
            close(fd);
        free(name);
    }
    close(folder);
    return rc;
}

/* ---- imports ----------------------------------------------------------------------------------------------------- */

int store_import_begin(struct store *store, const char *path, bool resolved, struct store_import **out,
                       struct quire_error *err)
{
    struct segment_options options = {.fs = store->fs};
    struct quire_error reason = {0};
    struct store_import *import = calloc(1, sizeof *import);
    char *final = NULL;
    if (!import)
        return error_set(err, QUIRE_ENOMEM, "no memory to load %s", path);
    import->store = store;
    import->uid = store_new_segment(store);
    final = store_segment_path(store, import->uid);
    if (!final || asprintf(&import->folder, "%s" BUILDING_MARK, final) < 0)
        import->folder = NULL;
    import->path = strdup(path);
    int rc = import->folder && import->path ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to load %s", path);
    if (rc == 0 && store->fs != fs_real()) { /* files in memory: no links, no pipes */
        rc = store_link_folder(store->fs, path, import->folder, true, err);
    } else if (rc == 0) {
        rc = store->fs->ops->mkdir(store->fs, import->folder);
        rc = rc < 0 ? error_set(err, rc, "cannot make %s: %s", import->folder, quire_error_text(rc))
                    : take_files(path, resolved, import->folder, err);
        if (rc == 0)
            rc = store_sync_folder(store->fs, import->folder, err);
    }
    if (rc == 0 && (rc = segment_open(import->folder, &options, &import->segment, &reason)) < 0)
        error_set(err, rc, "%.120s cannot be loaded: %.230s", path, reason.message);
    free(final);
    assert(rc < 0 || (import->folder && import->segment));
    if (rc < 0)
        store_import_end(import);
    else
        *out = import;
    return rc;
}

struct segment *store_import_segment(const struct store_import *import)
{
    return import->segment;
}

struct store *store_import_store(const struct store_import *import)
{
    return import->store;
}

const char *store_import_path(const struct store_import *import)
{
    return import->path;
}

const char *store_import_folder(const struct store_import *import, uint64_t *uid)
{
    *uid = import->uid;
    return import->folder;
}

void store_import_taken(struct store_import *import)
{
    assert(import->folder && import->segment);
    free(import->folder);
    import->folder = NULL;
    segment_unref(import->segment);
    import->segment = NULL;
}

void store_import_end(struct store_import *import)
{
    if (!import)
        return;
    segment_unref(import->segment);
    if (import->folder)
        fs_remove_folder(import->store->fs, import->folder, NULL); /* what stays goes at the next opening */
    free(import->folder);
    free(import->path);
    free(import);
}
