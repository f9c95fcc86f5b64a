/*
 * cli_files.c - text files of lines, sizes of indexes, and the rule that no output replaces what is there.
 *
 * Attributes and tenants of rows come as lines, too, one per row, and are checked here, before any long work begins.
 *
 * Lines are cut in place: the text is read whole (also from a pipe, whose size nobody knows) and the library gets
 * pointers into it, so a file of keys costs its own bytes and 12 more per line.
 */
#include "index/attribute/grants.h"
#include "index/format/format.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/sections.h"
#include "tools/cli/cli.h"
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
    size_t capacity = 0, bytes = 0;
    char *text = NULL;
    for (;;) {
        if (!array_reserve(&text, &capacity, bytes ? bytes + 1 : READ_BYTES_FIRST)) {
            free(text);
            return error_set(err, QUIRE_ENOMEM, "no memory for %s (%zu bytes so far)", path, bytes);
        }
        ssize_t n = read(fd, text + bytes, capacity - bytes);
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

static int load_lines(const char *path, struct cli_lines *out, struct quire_error *err)
{
    struct cli_lines lines = {0};
    size_t bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open", path);
    int rc = read_whole(fd, path, &lines.text, &bytes, err);
    close(fd);
    if (rc < 0)
        return rc;
    lines.n = cut_lines(lines.text, bytes, NULL);
    lines.start = malloc(memory_size_mul(lines.n + 1, sizeof *lines.start));
    lines.bytes = malloc(memory_size_mul(lines.n + 1, sizeof *lines.bytes));
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

/* ---- lines of rows ----------------------------------------------------------------------------------------------- */

int cli_lines_load_rows(const char *path, const char *what, const char *base, uint64_t rows, struct cli_lines *out,
                        struct quire_error *err)
{
    int rc = load_lines(path, out, err);
    if (rc == 0 && out->n != rows) {
        rc = error_set(err, QUIRE_EINVALID, "%s has %llu lines, but %s has %llu rows: give %s per row", path,
                       (unsigned long long)out->n, base, (unsigned long long)rows, what);
        cli_lines_free(out);
    }
    return rc;
}

static int check_attribute(const char *path, const struct cli_lines *lines, uint64_t line, struct quire_error *err)
{
    json_error_t error;
    json_t *value = json_loadb(lines->start[line], lines->bytes[line], JSON_REJECT_DUPLICATES, &error);
    bool object = json_is_object(value);
    json_decref(value);
    if (value && object)
        return 0;
    return error_set(err, QUIRE_EPARSE, "%s line %llu is not a JSON object: %s", path, (unsigned long long)line + 1,
                     value ? "it is another kind of value" : error.text);
}

int cli_attributes_load(struct cli *cli, const char *path, const char *base, uint64_t rows, struct cli_lines *out,
                        struct quire_error *err)
{
    int rc = cli_lines_load_rows(path, "one line, an empty one for a row without attributes,", base, rows, out, err);
    for (uint64_t i = 0; rc == 0 && i < rows; i++) {
        if (out->bytes[i])
            rc = check_attribute(path, out, i, err);
        else
            out->start[i] = NULL;
        if (rc == 0 && i % 1024 == 0 && cli_progress(cli, "attributes", i, rows))
            rc = cli_cancelled(err);
    }
    return rc;
}

static int check_tenants(const char *path, uint64_t line, const char *text, size_t bytes, struct quire_error *err)
{
    for (size_t at = 0; at <= bytes;) {
        const char *end = memchr(text + at, ' ', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        struct quire_error why = {0};
        int rc = grants_check_tenant(text + at, length, &why);
        if (rc < 0)
            return error_set(err, rc, "%s line %llu: %s; names are separated by single spaces", path,
                             (unsigned long long)line + 1, why.message);
        at += length + 1;
    }
    return 0;
}

int cli_tenants_load(const char *path, const char *base, uint64_t rows, struct cli_lines *out, struct quire_error *err)
{
    int rc = cli_lines_load_rows(path, "one line, an empty one for a row that is nobody's,", base, rows, out, err);
    for (uint64_t i = 0; rc == 0 && i < rows; i++) {
        char *text = (char *)(uintptr_t)out->start[i];
        if (out->bytes[i])
            rc = check_tenants(path, i, text, out->bytes[i], err);
        text[out->bytes[i]] = 0; /* the end of the line, or space that reading has left */
        if (!out->bytes[i])
            out->start[i] = NULL;
    }
    return rc;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static bool column_type(const char *name, enum quire_column_type *out)
{
    for (int type = QUIRE_COLUMN_LEARNT; type <= QUIRE_COLUMN_TIMESTAMP; type++)
        if (strcmp(name, quire_column_type_name((enum quire_column_type)type)) == 0) {
            *out = (enum quire_column_type)type;
            return true;
        }
    return false;
}

/* From the end, so that a name may have colons of its own. */
static int parse_column(const char *text, struct quire_column *out, struct quire_error *err)
{
    static const char indexed[] = ":indexed";
    size_t bytes = strlen(text), more = sizeof indexed - 1;
    out->indexed = bytes > more && strcmp(text + bytes - more, indexed) == 0;
    char *name = strndup(text, out->indexed ? bytes - more : bytes);
    char *colon = name ? strrchr(name, ':') : NULL;
    out->name = name;
    if (!name)
        return error_set(err, QUIRE_ENOMEM, "no memory for the columns");
    if (!colon || !column_type(colon + 1, &out->type) || out->type == QUIRE_COLUMN_LEARNT)
        return error_set(err, QUIRE_EINVALID,
                         "--attr %s: it must be NAME:TYPE or NAME:TYPE:indexed, with integer, float, string, bool, "
                         "list or timestamp",
                         text);
    *colon = 0;
    return 0;
}

int cli_columns_parse(const struct cli_texts *texts, struct cli_columns *out, struct quire_error *err)
{
    int rc = 0;
    out->columns = calloc(texts->n + 1u, sizeof *out->columns);
    if (!out->columns)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u columns", texts->n);
    for (unsigned i = 0; rc == 0 && i < texts->n; i++)
        rc = parse_column(texts->text[i], &out->columns[out->n++], err);
    if (rc < 0)
        cli_columns_free(out);
    return rc;
}

void cli_columns_free(struct cli_columns *columns)
{
    for (uint32_t i = 0; i < columns->n; i++)
        free((void *)(uintptr_t)columns->columns[i].name);
    free(columns->columns);
    *columns = (struct cli_columns){0};
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

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
        rc = format_params_decode(bytes, &params, err);
    if (rc == 0)
        *out = params.rows * params.dim * quire_type_bytes((enum quire_type)params.type);
    section_file_close(meta);
    free(name);
    return rc;
}
