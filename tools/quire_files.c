/*
 * quire_files.c - text files of lines, sizes of indexes, and the rule that no output replaces what is there.
 *
 * Lines are cut in place: the text is read whole (also from a pipe, whose size nobody knows) and the library gets
 * pointers into it, so a file of keys costs its own bytes and 12 more per line.
 */
#include "cli.h"
#include "index/format.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/sections.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES_FIRST 65536u

int cli_refuse_existing(const char *path, struct quire_error *err)
{
    struct stat status;
    if (strcmp(path, "-") == 0 || lstat(path, &status) != 0)
        return 0;
    return error_set(err, QUIRE_EEXISTS, "%s is there already: choose another name or remove it", path);
}

static int read_whole(int fd, const char *path, char **out, size_t *out_bytes, struct quire_error *err)
{
    size_t room = 0, bytes = 0;
    char *text = NULL;
    for (;;) {
        if (bytes == room) {
            size_t more = room ? room * 2 : READ_BYTES_FIRST;
            char *larger = realloc(text, more);
            if (!larger) {
                free(text);
                return error_set(err, QUIRE_ENOMEM, "no memory for %s (%zu bytes so far)", path, bytes);
            }
            text = larger;
            room = more;
        }
        ssize_t n = read(fd, text + bytes, room - bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return error_set_errno(err, errno, "cannot read", path);
        }
        if (n == 0)
            break;
        bytes += (size_t)n;
    }
    *out = text;
    *out_bytes = bytes;
    return 0;
}

/* Where lines are NULL they are only counted. */
static uint64_t cut_lines(const char *text, size_t bytes, struct cli_lines *lines)
{
    uint64_t n = 0;
    for (size_t at = 0; at < bytes; n++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t stop = end ? (size_t)(end - text) : bytes, length = stop - at;
        if (length && text[stop - 1] == '\r')
            length--;
        if (lines) {
            lines->start[n] = text + at;
            lines->bytes[n] = length > UINT32_MAX ? UINT32_MAX : (uint32_t)length;
        }
        at = stop + 1;
    }
    return n;
}

int cli_lines_load(const char *path, struct cli_lines *out, struct quire_error *err)
{
    struct cli_lines lines = {0};
    size_t bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open", path);
    int rc = read_whole(fd, path, &lines.text, &bytes, err);
    close(fd);
    if (rc < 0)
        return rc;
    lines.n = cut_lines(lines.text, bytes, NULL);
    lines.start = malloc(size_mul(lines.n + 1, sizeof *lines.start));
    lines.bytes = malloc(size_mul(lines.n + 1, sizeof *lines.bytes));
    if (!lines.start || !lines.bytes) {
        cli_lines_free(&lines);
        return error_set(err, QUIRE_ENOMEM, "no memory for the %llu lines of %s", (unsigned long long)lines.n, path);
    }
    cut_lines(lines.text, bytes, &lines);
    *out = lines;
    return 0;
}

void cli_lines_free(struct cli_lines *lines)
{
    free(lines->text);
    free(lines->start);
    free(lines->bytes);
    *lines = (struct cli_lines){0};
}

int cli_index_raw_bytes(const char *path, uint64_t *out, struct quire_error *err)
{
    struct section_file *meta = NULL;
    uint8_t bytes[PARAMS_BYTES];
    struct segment_params params;
    char *name;
    if (asprintf(&name, "%s/" META_NAME, path) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a path");
    int rc = section_file_open(fs_real(), name, FILE_META, NULL, FS_READ, &meta, err);
    const struct section_entry *entry = rc == 0 ? section_find(meta, META_PARAMS) : NULL;
    if (rc == 0 && (!entry || entry->bytes != PARAMS_BYTES))
        rc = error_set(err, QUIRE_ECORRUPT, "%s has no parameters", name);
    if (rc == 0)
        rc = section_load(meta, entry, bytes, err);
    if (rc == 0)
        rc = params_decode(bytes, &params, err);
    if (rc == 0)
        *out = params.rows * params.dim * quire_type_bytes((enum quire_type)params.type);
    section_file_close(meta);
    free(name);
    return rc;
}
