/*
 * file_replace.c - files that operators and the server both write: users (ACL SAVE) and settings (CONFIG REWRITE).
 *
 * The temporary name is made by the system, so that two who write at once do not meet, and lies in the same folder, so
 * that the rename replaces the old file in one step. The file is synced before it gets its name and the folder after
 * it: at no moment does the name stand for half a text, and once this returns the new one survives a power cut.
 */
#include "server/process/file_replace.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4200 };

static int write_whole(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(fd, bytes, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return -1;
        bytes += written;
        n -= (size_t)written;
    }
    return fsync(fd);
}

static int sync_folder_of(const char *path)
{
    char copy[PATH_ROOM];
    snprintf(copy, sizeof copy, "%s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

int file_replace(const char *path, const void *bytes, size_t n, mode_t mode, struct quire_error *err)
{
    /* of a symbolic link the file is replaced that it leads to: it is its owner's way to keep the file elsewhere */
    char temporary[PATH_ROOM], real[PATH_MAX];
    if (realpath(path, real))
        path = real;
    int used = snprintf(temporary, sizeof temporary, "%s.tmp-%d-XXXXXX", path, (int)getpid());
    if (used < 0 || (size_t)used >= sizeof temporary)
        return error_set(err, QUIRE_EINVALID, "a path of %zu bytes is too long", strlen(path));
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "create", temporary);
    int rc = 0;
    if (fchmod(fd, mode) < 0 || write_whole(fd, bytes, n) < 0)
        rc = error_set_errno(err, errno, "write", temporary);
    if (close(fd) < 0 && rc == 0)
        rc = error_set_errno(err, errno, "write", temporary);
    if (rc == 0 && rename(temporary, path) < 0)
        rc = error_set_errno(err, errno, "replace", path);
    if (rc < 0)
        unlink(temporary);
    else if (sync_folder_of(path) < 0)
        rc = error_set_errno(err, errno, "sync the folder of", path);
    return rc;
}
