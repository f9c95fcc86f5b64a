/*
 * vecstream.c - the bytes below files of vectors: forward reading of files and pipes, writing that is whole or nothing.
 *
 * Reading uses read(2), so that a pipe and a file take the same way; only who reads a plain file again seeks. Small
 * reads go through a buffer of 1 MiB, reads of that size and more go straight into the caller's memory. What the header
 * announces is compared with the length of a plain file before any row is read; a pipe shows the same damage when it
 * ends too early or goes on.
 *
 * Writing goes to a temporary name beside the final one, with a random part, so that two runs never share it. It is
 * synced and renamed, and the folder is synced, in that order; the final name is the old file or the whole new one.
 * Standard output can be none of that and gets the bytes as they come. A name that is there and is no plain file
 * (/dev/null, a fifo) is refused: the rename would replace it.
 */
#include "datasets/vecfile_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/fs.h"
#include "io/memory.h"
#include "io/random.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES   (1024u * 1024u)
#define TRANSFER_BYTES (1024u * 1024u * 1024u) /* one system call; Linux takes just under 2 GiB */

static int open_input(struct instream *in, const char *path, struct quire_error *err)
{
    struct stat st;
    bool standard = strcmp(path, "-") == 0;
    in->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0)
        return error_set_errno(err, errno, "open", path);
    in->owned = !standard;
    if (fstat(in->fd, &st) < 0)
        return error_set_errno(err, errno, "examine", in->name);
    if (S_ISDIR(st.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is a folder; give a file of vectors", in->name);
    if (S_ISREG(st.st_mode)) {
        off_t at = lseek(in->fd, 0, SEEK_CUR);
        if (at < 0)
            return error_set_errno(err, errno, "examine", in->name);
        in->base = at;
        in->total = at < st.st_size ? (uint64_t)(st.st_size - at) : 0;
    }
    return 0;
}

int vecstream_in_open(struct instream *in, const char *path, struct quire_error *err)
{
    *in = (struct instream){.fd = -1, .total = VECFILE_UNKNOWN, .expected = VECFILE_UNKNOWN};
    in->name = strdup(strcmp(path, "-") == 0 ? "standard input" : path);
    in->buffer = memory_aligned(4096, BUFFER_BYTES);
    int rc =
        in->name && in->buffer ? open_input(in, path, err) : error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (rc < 0)
        vecstream_in_close(in);
    return rc;
}

void vecstream_in_close(struct instream *in)
{
    if (in->owned)
        close(in->fd);
    free(in->name);
    memory_free(in->buffer);
    *in = (struct instream){.fd = -1};
}

int vecstream_in_seek(struct instream *in, uint64_t at, struct quire_error *err)
{
    if (in->total == VECFILE_UNKNOWN)
        return error_set(err, QUIRE_EUNSUPPORTED, "%s is a pipe, which is read forward only: write it to a file first",
                         in->name);
    if (lseek(in->fd, (off_t)(in->base + (int64_t)at), SEEK_SET) < 0)
        return error_set_errno(err, errno, "seek in", in->name);
    in->begin = in->end = 0;
    in->taken = at;
    in->ended = false;
    return 0;
}

/* One read(2) that goes on after a signal. 0: the end. */
static int64_t read_some(struct instream *in, void *to, size_t bytes, struct quire_error *err)
{
    if (in->ended)
        return 0;
    for (;;) {
        ssize_t n = read(in->fd, to, bytes < TRANSFER_BYTES ? bytes : TRANSFER_BYTES);
        if (n >= 0) {
            in->ended = n == 0;
            return n;
        }
        if (errno != EINTR)
            return error_set_errno(err, errno, "read", in->name);
    }
}

int64_t vecstream_in_read(struct instream *in, void *to, size_t bytes, struct quire_error *err)
{
    uint8_t *at = to;
    size_t left = bytes;
    while (left > 0) {
        size_t ready = in->end - in->begin;
        int64_t n;
        if (ready > 0) {
            n = (int64_t)(ready < left ? ready : left);
            memcpy(at, in->buffer + in->begin, (size_t)n);
            in->begin += (size_t)n;
        } else if (left >= BUFFER_BYTES) {
            n = read_some(in, at, left, err);
        } else {
            n = read_some(in, in->buffer, BUFFER_BYTES, err);
            in->begin = 0;
            in->end = n > 0 ? (size_t)n : 0;
            if (n > 0)
                continue;
        }
        if (n < 0)
            return n;
        if (n == 0)
            break;
        at += n;
        left -= (size_t)n;
        in->taken += (uint64_t)n;
    }
    return (int64_t)(bytes - left);
}

int vecstream_in_exact(struct instream *in, void *to, size_t bytes, const char *what, struct quire_error *err)
{
    uint64_t before = in->taken;
    int64_t n = vecstream_in_read(in, to, bytes, err);
    if (n < 0)
        return (int)n;
    if ((uint64_t)n == bytes)
        return 0;
    if (in->taken == 0)
        return error_set(err, QUIRE_ETRUNCATED, "%s is empty: expected %s of %zu bytes, found 0 bytes", in->name, what,
                         bytes);
    uint64_t expected = in->expected != VECFILE_UNKNOWN ? in->expected : before + bytes;
    return error_set(err, QUIRE_ETRUNCATED, "%s ends inside %s: expected %s%llu bytes, found %llu bytes", in->name,
                     what, in->expected != VECFILE_UNKNOWN ? "" : "at least ", (unsigned long long)expected,
                     (unsigned long long)in->taken);
}

int vecstream_in_expect(struct instream *in, uint64_t expected, struct quire_error *err)
{
    in->expected = expected;
    if (in->total == VECFILE_UNKNOWN || in->total == expected)
        return 0;
    bool shorter = in->total < expected;
    return error_set(err, shorter ? QUIRE_ETRUNCATED : QUIRE_EOVERSIZED,
                     "%s is %s than its header says: expected %llu bytes, found %llu bytes", in->name,
                     shorter ? "shorter" : "longer", (unsigned long long)expected, (unsigned long long)in->total);
}

int vecstream_in_finish(struct instream *in, struct quire_error *err)
{
    uint8_t more;
    int64_t n = vecstream_in_read(in, &more, 1, err);
    if (n <= 0)
        return (int)n;
    return error_set(err, QUIRE_EOVERSIZED,
                     "%s is longer than its header says: expected %llu bytes, found at least %llu bytes", in->name,
                     (unsigned long long)in->expected, (unsigned long long)in->taken);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* A name beside the final one that no other run has. */
static char *temporary_name(const char *path)
{
    struct timespec now;
    struct random random;
    char *name;
    clock_gettime(CLOCK_REALTIME, &now);
    random_init(&random, ((uint64_t)now.tv_sec << 30) ^ (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 40));
    if (asprintf(&name, "%s.partial-%016llx", path, (unsigned long long)random_next(&random)) < 0)
        return NULL;
    return name;
}

static int open_output(struct outstream *out, const char *path, struct quire_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is not a plain file: give another name, or - for standard output",
                         path);
    out->path = strdup(path);
    out->temporary = temporary_name(path);
    if (!out->path || !out->temporary)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    return fs_open(fs_real(), out->temporary, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &out->file, err);
}

int vecstream_out_open(struct outstream *out, const char *path, struct quire_error *err)
{
    *out = (struct outstream){.buffer = memory_aligned(4096, BUFFER_BYTES)};
    int rc = out->buffer ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    if (rc == 0 && strcmp(path, "-") != 0)
        rc = open_output(out, path, err);
    if (rc < 0)
        vecstream_out_abort(out);
    return rc;
}

static int flush_buffer(struct outstream *out, struct quire_error *err)
{
    size_t done = 0;
    if (out->file) {
        int rc = fs_write_exact(out->file, out->buffer, out->used, out->written, err);
        if (rc < 0)
            return rc;
        done = out->used;
    }
    while (done < out->used) {
        ssize_t n = write(STDOUT_FILENO, out->buffer + done, out->used - done);
        if (n < 0 && errno != EINTR)
            return error_set_errno(err, errno, "write to", "standard output");
        done += n > 0 ? (size_t)n : 0;
    }
    out->written += out->used;
    out->used = 0;
    return 0;
}

int vecstream_out_put(struct outstream *out, const void *elements, uint64_t n, size_t element_bytes,
                      struct quire_error *err)
{
    const uint8_t *from = elements;
    while (n > 0) {
        uint64_t capacity = (BUFFER_BYTES - out->used) / element_bytes;
        uint64_t now = capacity < n ? capacity : n;
        if (now == 0) {
            int rc = flush_buffer(out, err);
            if (rc < 0)
                return rc;
            continue;
        }
        memcpy(out->buffer + out->used, from, now * element_bytes);
        vecstream_order(out->buffer + out->used, now, element_bytes);
        out->used += now * element_bytes;
        from += now * element_bytes;
        n -= now;
    }
    return 0;
}

/* dirname(3) may change its argument, which is not needed after this. */
static int publish(struct outstream *out, struct quire_error *err)
{
    struct io_fs *fs = fs_real();
    int rc = fs_sync(out->file, err);
    if (rc < 0)
        return rc;
    rc = fs->ops->rename(fs, out->temporary, out->path);
    if (rc < 0)
        return error_set(err, rc, "cannot rename %s to %s: %s", out->temporary, out->path, quire_error_text(rc));
    free(out->temporary); /* there is nothing of that name to remove any more */
    out->temporary = NULL;
    const char *folder = dirname(out->path);
    rc = fs->ops->sync_dir(fs, folder);
    return rc < 0 ? error_set(err, rc, "cannot sync the folder %s: %s", folder, quire_error_text(rc)) : 0;
}

int vecstream_out_finish(struct outstream *out, struct quire_error *err)
{
    int rc = flush_buffer(out, err);
    if (rc == 0 && out->file)
        rc = publish(out, err);
    vecstream_out_abort(out);
    return rc;
}

void vecstream_out_abort(struct outstream *out)
{
    if (out->file && out->temporary)
        fs_real()->ops->unlink(fs_real(), out->temporary);
    fs_close(out->file);
    free(out->path);
    free(out->temporary);
    memory_free(out->buffer);
    *out = (struct outstream){0};
}

void vecstream_order(void *elements, uint64_t n, size_t element_bytes)
{
    uint8_t *at = elements;
    for (uint64_t i = 0; element_bytes == 2 && i < n; i++) {
        uint16_t x = bytes_load_u16(at + 2 * i);
        memcpy(at + 2 * i, &x, sizeof x);
    }
    for (uint64_t i = 0; element_bytes == 4 && i < n; i++) {
        uint32_t x = bytes_load_u32(at + 4 * i);
        memcpy(at + 4 * i, &x, sizeof x);
    }
}
