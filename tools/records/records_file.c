/*
 * records_file.c - what formats share: files that appear whole or not at all, and what a row's parts must be.
 *
 * A file is written under a temporary name beside its own, synced, renamed, and the folder is synced.
 */
#include "index/attribute/grants.h"
#include "io/array.h"
#include "io/error.h"
#include "io/fs.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *records_temporary_name(const char *path)
{
    char *name;
    return asprintf(&name, "%s.partial-%ld", path, (long)getpid()) < 0 ? NULL : name;
}

int records_publish(const char *temporary, const char *path, struct quire_error *err)
{
    struct io_fs *fs = fs_real();
    int fd = open(temporary, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0 || fsync(fd) != 0)
        rc = error_set_errno(err, errno, "cannot sync", temporary);
    if (fd >= 0)
        close(fd);
    if (rc == 0 && rename(temporary, path) != 0)
        rc = error_set_errno(err, errno, "cannot rename to", path);
    char *copy = rc == 0 ? strdup(path) : NULL;
    if (copy) {
        const char *folder = dirname(copy);
        int synced = fs->ops->sync_dir(fs, folder);
        if (synced < 0)
            rc = error_set(err, synced, "cannot sync the folder %s: %s", folder, quire_error_text(synced));
    }
    free(copy);
    return rc;
}

int records_file_create(struct records_file *out, const char *path, struct quire_error *err)
{
    struct stat st;
    *out = (struct records_file){0};
    if (strcmp(path, "-") == 0) {
        out->file = stdout;
        return 0;
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is not a plain file: give another name, or - for standard output",
                         path);
    out->path = strdup(path);
    out->temporary = records_temporary_name(path);
    if (!out->path || !out->temporary) {
        records_file_abort(out);
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    }
    out->file = fopen(out->temporary, "wxe");
    if (out->file)
        return 0;
    int rc = error_set_errno(err, errno, "cannot create", out->temporary);
    free(out->temporary); /* another's, or none */
    out->temporary = NULL;
    records_file_abort(out);
    return rc;
}

int records_file_finish(struct records_file *file, struct quire_error *err)
{
    int rc = 0;
    if (fflush(file->file) != 0 || ferror(file->file))
        rc = error_set_errno(err, errno ? errno : EIO, "cannot write", file->path ? file->path : "standard output");
    if (rc == 0 && file->path)
        rc = records_publish(file->temporary, file->path, err);
    if (rc == 0) {
        free(file->temporary);
        file->temporary = NULL;
    }
    records_file_abort(file);
    return rc;
}

void records_file_abort(struct records_file *file)
{
    if (file->file && file->path)
        fclose(file->file);
    if (file->temporary)
        unlink(file->temporary);
    free(file->path);
    free(file->temporary);
    *file = (struct records_file){0};
}

int records_pread(int fd, const char *name, void *to, size_t bytes, uint64_t at, struct quire_error *err)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, errno, "cannot read", name);
        if (n == 0)
            return error_set(err, QUIRE_ETRUNCATED, "%s ends at byte %llu: expected %zu bytes at %llu", name,
                             (unsigned long long)(at + done), bytes, (unsigned long long)at);
        done += (size_t)n;
    }
    return 0;
}

int records_line(FILE *file, const char *name, uint64_t number, char **line, size_t *capacity, size_t *bytes,
                 struct quire_error *err)
{
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(file)) != EOF && c != '\n') {
        if (n == RECORDS_TEXT_BYTES_MAX)
            return error_set(err, QUIRE_ERANGE, "%s line %llu has more than %u bytes, the most that a row may have",
                             name, (unsigned long long)number + 1, RECORDS_TEXT_BYTES_MAX);
        if (n + 1 >= *capacity && !array_reserve(line, capacity, n + 2))
            return error_set(err, QUIRE_ENOMEM, "no memory for line %llu of %s", (unsigned long long)number + 1, name);
        (*line)[n++] = (char)c;
    }
    if (c == EOF && ferror(file))
        return error_set_errno(err, errno, "cannot read", name);
    if (c == EOF && n == 0)
        return 0;
    if (!array_reserve(line, capacity, n + 1))
        return error_set(err, QUIRE_ENOMEM, "no memory for line %llu of %s", (unsigned long long)number + 1, name);
    if (n > 0 && (*line)[n - 1] == '\r')
        n--;
    (*line)[n] = 0;
    *bytes = n;
    return 1;
}

bool records_keep(struct arena *arena, const char *text, size_t bytes, const char **out, uint32_t *out_bytes)
{
    char *copy = text ? arena_take(arena, bytes + 1) : NULL;
    *out = copy;
    *out_bytes = (uint32_t)bytes;
    if (!copy)
        return text == NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return true;
}

/* ---- what a row's parts must be ---------------------------------------------------------------------------------- */

int records_check_finite(const char *name, const float *rows, uint64_t first, uint64_t n, uint32_t dim,
                         struct quire_error *err)
{
    for (uint64_t i = 0; i < n * dim; i++)
        if (!isfinite(rows[i]))
            return error_set(err, QUIRE_ENOTFINITE,
                             "row %llu of %s holds NaN or infinity in dimension %llu: repair or leave out that row",
                             (unsigned long long)(first + i / dim), name, (unsigned long long)(i % dim));
    return 0;
}

int records_check_attributes(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err)
{
    json_error_t error;
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    bool object = json_is_object(value);
    json_decref(value);
    if (value && object)
        return 0;
    return error_set(err, QUIRE_EPARSE, "%s: the attributes of row %llu are not a JSON object: %s", name,
                     (unsigned long long)row, value ? "they are another kind of value" : error.text);
}

int records_check_tenants(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err)
{
    for (size_t at = 0; at <= bytes;) {
        const char *end = memchr(text + at, ' ', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        struct quire_error why = {0};
        int rc = grants_check_tenant(text + at, length, &why);
        if (rc < 0)
            return error_set(err, rc, "%s, tenants of row %llu: %s; names are separated by single spaces", name,
                             (unsigned long long)row, why.message);
        at += length + 1;
    }
    return 0;
}

int records_check_key(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err)
{
    if (text && bytes >= 1 && bytes <= QUIRE_KEY_BYTES_MAX)
        return 0;
    return error_set(err, QUIRE_EINVALID, "%s: the key of row %llu has %zu bytes, it must have 1 to %u", name,
                     (unsigned long long)row, bytes, QUIRE_KEY_BYTES_MAX);
}
