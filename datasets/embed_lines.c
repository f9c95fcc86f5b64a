/*
 * embed_lines.c - texts out of a file or a pipe, one at a time.
 *
 * The reader holds one line and never more than EMBED_LINE_BYTES_MAX of it: getline() would take a gigabyte without a
 * newline as one line. A file of vectors begins with the number of its rows, so `quire embed apply` reads its input
 * twice: once to count, once to embed. What cannot be read twice is copied to an unnamed temporary file, since text is
 * an order of magnitude smaller than its vectors and keeping either in memory would be unbounded.
 */
#include "datasets/embed.h"
#include "io/error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES_FIRST 4096u

struct embed_lines {
    FILE *file;
    char *name; /* for messages */
    unsigned text_column, key_column;
    char *line;
    size_t capacity;
    uint64_t number, done, total;
};

/* Text through a temporary file that has no name: it is gone when it is closed. */
static int spool(FILE *from, const char *name, FILE **out, struct quire_error *err)
{
    char buffer[65536];
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/quire-text-XXXXXX", folder && *folder ? folder : "/tmp");
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, QUIRE_ELIMIT, "the path in TMPDIR is longer than %zu bytes", sizeof path);
    int fd = mkstemp(path);
    FILE *to = fd < 0 ? NULL : fdopen(fd, "w+b");
    if (!to) {
        int rc = error_set_errno(err, errno, "make a temporary file", path);
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        return rc;
    }
    unlink(path);
    size_t got;
    bool failed = false;
    while (!failed && (got = fread(buffer, 1, sizeof buffer, from)) > 0)
        failed = fwrite(buffer, 1, got, to) != got;
    if (failed || ferror(from) || fflush(to) != 0) {
        int code = ferror(from) ? error_set_errno(err, errno, "read", name)
                                : error_set_errno(err, errno, "write a temporary copy of", name);
        fclose(to);
        return code;
    }
    rewind(to);
    *out = to;
    return 0;
}

static int open_file(struct embed_lines *lines, const char *path, bool again, struct quire_error *err)
{
    bool standard_input = strcmp(path, "-") == 0;
    struct stat status;
    lines->file = standard_input ? stdin : fopen(path, "rb");
    if (!lines->file)
        return error_set_errno(err, errno, "open", path);
    if (fstat(fileno(lines->file), &status) != 0)
        return error_set_errno(err, errno, "examine", path);
    if (S_ISDIR(status.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is a folder; give a file of text, one text to a line", path);
    if (again && !(S_ISREG(status.st_mode) && !standard_input)) {
        FILE *copy = NULL;
        int rc = spool(lines->file, lines->name, &copy, err);
        if (rc != 0)
            return rc;
        if (!standard_input)
            fclose(lines->file);
        lines->file = copy;
        if (fstat(fileno(copy), &status) != 0)
            return error_set_errno(err, errno, "examine a copy of", path);
    }
    lines->total = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    return 0;
}

int embed_lines_open(const char *path, unsigned text_column, unsigned key_column, bool again, struct embed_lines **out,
                     struct quire_error *err)
{
    struct embed_lines *lines = calloc(1, sizeof *lines);
    if (!lines)
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", path);
    lines->text_column = text_column;
    lines->key_column = key_column;
    lines->name = strdup(strcmp(path, "-") == 0 ? "standard input" : path);
    lines->line = malloc(LINE_BYTES_FIRST);
    lines->capacity = LINE_BYTES_FIRST;
    int rc = lines->name && lines->line ? open_file(lines, path, again, err)
                                        : error_set(err, QUIRE_ENOMEM, "no memory to read %s", path);
    if (rc == 0)
        *out = lines;
    else
        embed_lines_close(lines);
    return rc;
}

void embed_lines_close(struct embed_lines *lines)
{
    if (!lines)
        return;
    if (lines->file && lines->file != stdin)
        fclose(lines->file);
    free(lines->name);
    free(lines->line);
    free(lines);
}

static int grow(struct embed_lines *lines, struct quire_error *err)
{
    if (lines->capacity >= EMBED_LINE_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s: line %llu is longer than %u bytes; split it", lines->name,
                         (unsigned long long)lines->number, EMBED_LINE_BYTES_MAX);
    char *larger = realloc(lines->line, lines->capacity * 2);
    if (!larger)
        return error_set(err, QUIRE_ENOMEM, "no memory for line %llu of %s", (unsigned long long)lines->number,
                         lines->name);
    lines->line = larger;
    lines->capacity *= 2;
    return 0;
}

/* 1 with the line's bytes, its end left out; 0 at the end of the file. */
static int read_line(struct embed_lines *lines, size_t *bytes, struct quire_error *err)
{
    size_t n = 0;
    int c;
    lines->number++;
    while ((c = getc_unlocked(lines->file)) != EOF && c != '\n') {
        if (n == lines->capacity) {
            int rc = grow(lines, err);
            if (rc != 0)
                return rc;
        }
        lines->line[n++] = (char)c; /* NOLINT(clang-analyzer-unix.Malloc): grow never makes space of no bytes */
    }
    if (c == EOF && ferror(lines->file))
        return error_set_errno(err, errno, "read", lines->name);
    lines->done += n + (c == '\n');
    if (c == EOF && n == 0)
        return 0;
    if (n > 0 && lines->line[n - 1] == '\r')
        n--;
    *bytes = n;
    return 1;
}

static int take_column(const struct embed_lines *lines, size_t bytes, unsigned column, const char **out,
                       size_t *out_bytes, struct quire_error *err)
{
    const char *from = lines->line, *end = lines->line + bytes;
    for (unsigned i = 1; i < column; i++) {
        const char *tab = memchr(from, '\t', (size_t)(end - from));
        if (!tab)
            return error_set(err, QUIRE_EPARSE,
                             "%s: line %llu has %u columns and column %u was asked for; columns are "
                             "separated by one tab",
                             lines->name, (unsigned long long)lines->number, i, column);
        from = tab + 1;
    }
    const char *tab = memchr(from, '\t', (size_t)(end - from));
    *out = from;
    *out_bytes = (size_t)((tab ? tab : end) - from);
    return 0;
}

int embed_lines_next(struct embed_lines *lines, struct embed_line *out, struct quire_error *err)
{
    size_t bytes = 0;
    int rc = read_line(lines, &bytes, err);
    if (rc <= 0)
        return rc;
    struct embed_line line = {.text = lines->line, .text_bytes = bytes, .number = lines->number};
    rc = 0;
    if (lines->text_column > 0)
        rc = take_column(lines, bytes, lines->text_column, &line.text, &line.text_bytes, err);
    if (rc == 0 && lines->key_column > 0)
        rc = take_column(lines, bytes, lines->key_column, &line.key, &line.key_bytes, err);
    if (rc != 0)
        return rc;
    *out = line;
    return 1;
}

int embed_lines_rewind(struct embed_lines *lines, struct quire_error *err)
{
    if (fseeko(lines->file, 0, SEEK_SET) != 0)
        return error_set_errno(err, errno, "read again", lines->name);
    clearerr(lines->file);
    lines->number = lines->done = 0;
    return 0;
}

void embed_lines_place(const struct embed_lines *lines, uint64_t *done, uint64_t *total)
{
    *done = lines->done;
    *total = lines->total;
}
