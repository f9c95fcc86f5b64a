/*
 * fs.h - files and folders, behind a table, so that a test can stand between the project and the disk.
 *
 * Everything durable goes through an io_fs: opening, positioned reads and writes, sync, rename, unlink, folder sync.
 * fs_real() is the operating system. That of the tests (tests/support/fault.h) keeps unsynced writes apart and can cut
 * the power, tear sectors, misdirect writes and fail the n-th call. Asynchronous I/O on the same files goes through an
 * engine (engine.h).
 *
 * Thread-safety: an io_fs may be used from many threads; an io_file may be read from many threads and engines at once,
 * writes to one file come from one thread at a time.
 */
#ifndef QUIRE_IO_FS_H
#define QUIRE_IO_FS_H

#include "quire.h"
#include <sys/types.h>

struct io_fs;

enum fs_open_flags {
    FS_READ = 1,   /* open for reading */
    FS_WRITE = 2,  /* open for reading and writing */
    FS_CREATE = 4, /* create; with FS_EXCLUSIVE fail if it is there */
    FS_EXCLUSIVE = 8,
    FS_DIRECT = 16, /* ask for O_DIRECT; where the file system refuses, the file opens buffered and says so */
};

/* An open file. Read-only for all but its io_fs. */
struct io_file {
    struct io_fs *fs;
    int fd;              /* -1 where files are not the operating system's */
    bool direct;         /* O_DIRECT is in force */
    bool direct_refused; /* FS_DIRECT was asked for and the file system said no */
    uint64_t bytes;      /* size when opened */
    char *path;          /* owned */
};

struct io_fs_ops {
    int (*open)(struct io_fs *fs, const char *path, unsigned flags, struct io_file **out, struct quire_error *err);
    void (*close)(struct io_file *file);
    /* bytes transferred (may be short at the end of the file) or a negative QUIRE_E. */
    ssize_t (*read)(struct io_file *file, void *buffer, size_t bytes, uint64_t offset);
    ssize_t (*write)(struct io_file *file, const void *buffer, size_t bytes, uint64_t offset);
    int (*sync)(struct io_file *file);                     /* data and size are durable on return */
    int (*allocate)(struct io_file *file, uint64_t bytes); /* reserve space; QUIRE_ENOSPACE where there is none */
    int (*truncate)(struct io_file *file, uint64_t bytes);
    int (*rename)(struct io_fs *fs, const char *from, const char *to); /* replaces a file, never a folder in use */
    /* gives a plain file another name, on the same file system; QUIRE_EEXISTS if `to` is there */
    int (*link)(struct io_fs *fs, const char *from, const char *to);
    int (*unlink)(struct io_fs *fs, const char *path);
    int (*mkdir)(struct io_fs *fs, const char *path);
    int (*rmdir)(struct io_fs *fs, const char *path);
    int (*sync_dir)(struct io_fs *fs, const char *path);
    /* Calls visit(context, name) for each entry of a folder but "." and "..". Stops at the first non-zero answer. */
    int (*list)(struct io_fs *fs, const char *path, int (*visit)(void *context, const char *name), void *context);
};

struct io_fs {
    const struct io_fs_ops *ops;
};

/* The operating system's files. Static storage. */
struct io_fs *fs_real(void);

/* Opens; *out is owned by the caller and ended by fs_close. Errors name the path and the remedy. */
int fs_open(struct io_fs *fs, const char *path, unsigned flags, struct io_file **out, struct quire_error *err);
void fs_close(struct io_file *file); /* NULL is fine */
/* Read or write exactly `bytes`; QUIRE_ESHORTREAD names path, offset, expected and found bytes. Under O_DIRECT buffer,
 * offset and bytes must be multiples of 4096 (QUIRE_EINVALID). */
int fs_read_exact(struct io_file *file, void *buffer, size_t bytes, uint64_t offset, struct quire_error *err);
int fs_write_exact(struct io_file *file, const void *buffer, size_t bytes, uint64_t offset, struct quire_error *err);
/* What was written is durable on return. */
int fs_sync(struct io_file *file, struct quire_error *err);
/* Removes a folder and the plain files in it (one level, as segments are). Missing is fine. */
int fs_remove_folder(struct io_fs *fs, const char *path, struct quire_error *err);
/* Publishes a finished folder or file: sync of `from` when it is a folder, rename to `to`, sync of the parent.
 * QUIRE_EEXISTS if `to` is there. */
int fs_publish(struct io_fs *fs, const char *from, const char *to, struct quire_error *err);

#endif
