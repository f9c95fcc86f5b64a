/*
 * fs.c - the operating system's files behind the io_fs table, and helpers that hold for every io_fs.
 *
 * Direct I/O is asked for with O_DIRECT; a file system without it (tmpfs, some network file systems) answers EINVAL,
 * and the file is opened buffered with direct_refused set, so that reports can say so. Reads and writes go on after
 * EINTR and short transfers. Publication follows the only order that survives a power cut: contents synced, folder
 * synced, rename, parent folder synced.
 */
#include "io/fs.h"
#include "io/error.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_flags(unsigned flags)
{
    int o = O_CLOEXEC | (flags & FS_WRITE ? O_RDWR : O_RDONLY);
    if (flags & FS_CREATE)
        o |= O_CREAT;
    if (flags & FS_EXCLUSIVE)
        o |= O_EXCL;
    return o;
}

static int real_open(struct io_fs *fs, const char *path, unsigned flags, struct io_file **out, struct quire_error *err)
{
    bool direct = flags & FS_DIRECT, refused = false;
    struct stat st;
    int fd = open(path, open_flags(flags) | (direct ? O_DIRECT : 0), 0644);
    if (fd < 0 && direct && errno == EINVAL) {
        /* the failed call may have made the file already */
        fd = open(path, open_flags(flags & ~(unsigned)FS_EXCLUSIVE), 0644);
        direct = false;
        refused = true;
    }
    if (fd < 0)
        return error_set_errno(err, errno, "open", path);
    struct io_file *file = malloc(sizeof *file);
    char *copy = strdup(path);
    int rc = file && copy ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (rc == 0 && fstat(fd, &st) < 0)
        rc = error_set_errno(err, errno, "stat", path);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = error_set(err, QUIRE_EFORMAT, "%s is not a plain file", path);
    if (rc < 0) {
        free(file);
        free(copy);
        close(fd);
        return rc;
    }
    *file = (struct io_file){
        .fs = fs, .fd = fd, .direct = direct, .direct_refused = refused, .bytes = (uint64_t)st.st_size, .path = copy};
    *out = file;
    return 0;
}

static void real_close(struct io_file *file)
{
    assert(file->fd >= 0);
    close(file->fd);
    free(file->path);
    free(file);
}

static ssize_t real_read(struct io_file *file, void *buffer, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    assert(offset <= INT64_MAX - bytes);
    while (done < bytes) {
        ssize_t n = pread(file->fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_from_errno(errno);
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static ssize_t real_write(struct io_file *file, const void *buffer, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    assert(offset <= INT64_MAX - bytes);
    while (done < bytes) {
        ssize_t n = pwrite(file->fd, (const char *)buffer + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_from_errno(errno);
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static int zero_or_error(int rc)
{
    return rc < 0 ? error_from_errno(errno) : 0;
}

static int real_sync(struct io_file *file)
{
    return zero_or_error(fdatasync(file->fd));
}

static int real_allocate(struct io_file *file, uint64_t bytes)
{
    int errnum = posix_fallocate(file->fd, 0, (off_t)bytes);
    return errnum ? error_from_errno(errnum) : 0;
}

static int real_truncate(struct io_file *file, uint64_t bytes)
{
    return zero_or_error(ftruncate(file->fd, (off_t)bytes));
}

static int real_rename(struct io_fs *fs, const char *from, const char *to)
{
    (void)fs;
    return zero_or_error(rename(from, to));
}

static int real_link(struct io_fs *fs, const char *from, const char *to)
{
    (void)fs;
    return zero_or_error(link(from, to));
}

static int real_unlink(struct io_fs *fs, const char *path)
{
    (void)fs;
    return zero_or_error(unlink(path));
}

static int real_mkdir(struct io_fs *fs, const char *path)
{
    (void)fs;
    return zero_or_error(mkdir(path, 0755));
}

static int real_rmdir(struct io_fs *fs, const char *path)
{
    (void)fs;
    return zero_or_error(rmdir(path));
}

static int real_sync_dir(struct io_fs *fs, const char *path)
{
    (void)fs;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_from_errno(errno);
    int rc = zero_or_error(fsync(fd));
    close(fd);
    return rc;
}

static int real_list(struct io_fs *fs, const char *path, int (*visit)(void *context, const char *name), void *context)
{
    (void)fs;
    DIR *dir = opendir(path);
    int rc = 0;
    if (!dir)
        return error_from_errno(errno);
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = visit(context, entry->d_name);
    closedir(dir);
    return rc;
}

static const struct io_fs_ops real_ops = {.open = real_open,
                                          .close = real_close,
                                          .read = real_read,
                                          .write = real_write,
                                          .sync = real_sync,
                                          .allocate = real_allocate,
                                          .truncate = real_truncate,
                                          .rename = real_rename,
                                          .link = real_link,
                                          .unlink = real_unlink,
                                          .mkdir = real_mkdir,
                                          .rmdir = real_rmdir,
                                          .sync_dir = real_sync_dir,
                                          .list = real_list};

static struct io_fs real_fs = {&real_ops};

struct io_fs *fs_real(void)
{
    return &real_fs;
}

int fs_open(struct io_fs *fs, const char *path, unsigned flags, struct io_file **out, struct quire_error *err)
{
    return fs->ops->open(fs, path, flags, out, err);
}

void fs_close(struct io_file *file)
{
    if (file)
        file->fs->ops->close(file);
}

/* Direct I/O takes multiples of 4096 only. */
static int check_aligned(const struct io_file *file, const void *buffer, size_t bytes, uint64_t offset,
                         struct quire_error *err)
{
    if (!file->direct || ((uintptr_t)buffer % 4096 == 0 && bytes % 4096 == 0 && offset % 4096 == 0))
        return 0;
    return error_set(err, QUIRE_EINVALID, "%s: direct I/O of %zu bytes at offset %llu is not aligned to 4096",
                     file->path, bytes, (unsigned long long)offset);
}

int fs_read_exact(struct io_file *file, void *buffer, size_t bytes, uint64_t offset, struct quire_error *err)
{
    int rc = check_aligned(file, buffer, bytes, offset, err);
    if (rc < 0)
        return rc;
    ssize_t n = file->fs->ops->read(file, buffer, bytes, offset);
    assert(n <= (ssize_t)bytes);
    if (n == (ssize_t)bytes)
        return 0;
    int code = n < 0 ? (int)n : QUIRE_ESHORTREAD;
    return error_set(err, code, "read of %s at offset %llu: %s (%zd of %zu bytes)", file->path,
                     (unsigned long long)offset, quire_error_text(code), n < 0 ? 0 : n, bytes);
}

int fs_write_exact(struct io_file *file, const void *buffer, size_t bytes, uint64_t offset, struct quire_error *err)
{
    int rc = check_aligned(file, buffer, bytes, offset, err);
    if (rc < 0)
        return rc;
    ssize_t n = file->fs->ops->write(file, buffer, bytes, offset);
    assert(n <= (ssize_t)bytes);
    if (n == (ssize_t)bytes)
        return 0;
    int code = n < 0 ? (int)n : QUIRE_EIO;
    return error_set(err, code, "write of %zu bytes to %s at offset %llu: %s%s", bytes, file->path,
                     (unsigned long long)offset, quire_error_text(code),
                     code == QUIRE_ENOSPACE ? ": make room or choose another disk" : "");
}

int fs_sync(struct io_file *file, struct quire_error *err)
{
    int rc = file->fs->ops->sync(file);
    return rc < 0 ? error_set(err, rc, "cannot sync %s: %s", file->path, quire_error_text(rc)) : 0;
}

struct removal {
    struct io_fs *fs;
    const char *folder;
};

static int remove_entry(void *context, const char *name)
{
    const struct removal *removal = context;
    char *path;
    if (asprintf(&path, "%s/%s", removal->folder, name) < 0)
        return QUIRE_ENOMEM;
    int rc = removal->fs->ops->unlink(removal->fs, path);
    free(path);
    return rc == QUIRE_ENOFILE ? 0 : rc;
}

int fs_remove_folder(struct io_fs *fs, const char *path, struct quire_error *err)
{
    struct removal removal = {fs, path};
    int rc = fs->ops->list(fs, path, remove_entry, &removal);
    if (rc == QUIRE_ENOFILE)
        return 0;
    if (rc == 0)
        rc = fs->ops->rmdir(fs, path);
    return rc < 0 ? error_set(err, rc, "cannot remove %s: %s", path, quire_error_text(rc)) : 0;
}

/* The folder that holds a path; owned by the caller. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static int exists_visit(void *context, const char *name)
{
    return strcmp(context, name) == 0 ? 1 : 0;
}

int fs_publish(struct io_fs *fs, const char *from, const char *to, struct quire_error *err)
{
    char *parent = parent_of(to);
    const char *slash = strrchr(to, '/');
    char *name = strdup(slash ? slash + 1 : to);
    int rc = parent && name ? fs->ops->list(fs, parent, exists_visit, name) : QUIRE_ENOMEM;
    if (rc > 0)
        rc = error_set(err, QUIRE_EEXISTS, "%s is there already: choose another name or remove it", to);
    if (rc == 0) {
        rc = fs->ops->sync_dir(fs, from);
        if (rc == QUIRE_ENOFILE || rc == QUIRE_EINVALID)
            rc = 0; /* a plain file: its writer has synced it */
    }
    if (rc == 0)
        rc = fs->ops->rename(fs, from, to);
    if (rc == 0) {
        rc = fs->ops->sync_dir(fs, parent);
        if (rc < 0)
            fs->ops->rename(fs, to, from); /* what is reported as failed must not be found */
    }
    if (rc < 0 && rc != QUIRE_EEXISTS)
        error_set(err, rc, "cannot publish %s as %s: %s", from, to, quire_error_text(rc));
    free(parent);
    free(name);
    return rc;
}
