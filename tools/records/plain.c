/*
 * plain.c - files of vectors alone (datasets/vecfile.h), with lines of keys, attributes and tenants beside them.
 *
 * Line n belongs to row n, as `quire build` reads them. Lines are read as rows are, so that no file has to fit into
 * memory. What a line cannot hold is refused: a key with a newline in it, and a row without a key where others have
 * one. JSON may be written over several lines; its line ends outside of strings (inside there are none) become spaces.
 */
#include "datasets/vecfile.h"
#include "io/error.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum side { SIDE_KEYS, SIDE_ATTRIBUTES, SIDE_TENANTS, SIDES };
static const char *const side_names[SIDES] = {"key", "attributes", "tenants"};

/* ---- out of ------------------------------------------------------------------------------------------------------ */

struct plain_source {
    struct records_source base;
    struct vecfile *file;
    FILE *side[SIDES];
    const char *side_path[SIDES];
    char *line;
    size_t line_capacity;
    uint64_t row;
    struct arena texts;
};

static int line_count_differs(const struct plain_source *s, int side, const char *how, struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID, "%s has %s lines than %s has rows: give one line per row", s->side_path[side],
                     how, s->base.name);
}

static int read_side(struct plain_source *s, int side, uint64_t row, const char **out, uint32_t *out_bytes,
                     struct quire_error *err)
{
    if (!s->side[side])
        return 0;
    size_t n = 0;
    int rc = records_line(s->side[side], s->side_path[side], row, &s->line, &s->line_capacity, &n, err);
    if (rc == 0)
        return line_count_differs(s, side, "fewer", err);
    if (rc < 0)
        return rc;
    rc = 0;
    if (side == SIDE_KEYS)
        rc = records_check_key(s->side_path[side], row, s->line, n, err);
    else if (n > 0)
        rc = side == SIDE_TENANTS ? records_check_tenants(s->side_path[side], row, s->line, n, err)
                                  : records_check_attributes(s->side_path[side], row, s->line, n, err);
    if (rc == 0 && !records_keep(&s->texts, n > 0 ? s->line : NULL, n, out, out_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the lines of %s", s->side_path[side]);
    return rc;
}

static int64_t plain_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                          struct quire_error *err)
{
    struct plain_source *s = (struct plain_source *)source;
    int64_t got = vecfile_read(s->file, vectors, n, err);
    arena_reset(&s->texts);
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < got; i++, s->row++) {
        struct record *r = &records[i];
        rc = read_side(s, SIDE_KEYS, s->row, &r->key, &r->key_bytes, err);
        if (rc == 0)
            rc = read_side(s, SIDE_ATTRIBUTES, s->row, &r->attributes, &r->attribute_bytes, err);
        if (rc == 0)
            rc = read_side(s, SIDE_TENANTS, s->row, &r->tenants, &r->tenant_bytes, err);
    }
    bool at_end = got == 0 || (got > 0 && s->row == source->rows);
    for (int side = 0; rc == 0 && at_end && side < SIDES; side++)
        if (s->side[side] && getc(s->side[side]) != EOF)
            rc = line_count_differs(s, side, "more", err);
    return rc < 0 ? rc : got;
}

static void plain_close(struct records_source *source)
{
    struct plain_source *s = (struct plain_source *)source;
    vecfile_close(s->file);
    for (int side = 0; side < SIDES; side++)
        if (s->side[side])
            fclose(s->side[side]);
    arena_fini(&s->texts);
    free(s->line);
    free(source->name);
    free(s);
}

static const struct records_source_ops plain_source_ops = {plain_read, plain_close};

static int open_sides(struct plain_source *s, const struct records_sides *sides, struct quire_error *err)
{
    const char *const paths[SIDES] = {sides->keys, sides->attributes, sides->tenants};
    for (int side = 0; side < SIDES; side++) {
        if (!paths[side])
            continue;
        s->side_path[side] = paths[side];
        s->side[side] = fopen(paths[side], "re");
        if (!s->side[side])
            return error_set_errno(err, errno, "cannot open", paths[side]);
        s->base.may_have |= 1u << side;
    }
    return 0;
}

int plain_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    struct plain_source *s = records_new_source(sizeof *s, &plain_source_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    int rc = vecfile_open(from->path, (enum vecfile_format)from->vecfile_format, &s->file, err);
    if (rc == 0 && vecfile_is_ivecs(s->file))
        rc = error_set(err, QUIRE_ETYPE, "%s holds ids, not vectors", from->path);
    if (rc == 0) {
        s->base.rows = vecfile_rows(s->file);
        s->base.dim = vecfile_dim(s->file);
        s->base.type = vecfile_type(s->file);
        rc = open_sides(s, &from->sides, err);
    }
    if (rc < 0)
        plain_close(&s->base);
    else
        *out = &s->base;
    return rc;
}

/* ---- into -------------------------------------------------------------------------------------------------------- */

struct plain_sink {
    struct records_sink base;
    struct vecwriter *writer;
    struct records_file side[SIDES];
};

static int write_line(struct plain_sink *s, int side, uint64_t row, const char *text, uint32_t bytes,
                      struct quire_error *err)
{
    FILE *file = s->side[side].file;
    if (!file)
        return 0;
    if (!text && side == SIDE_KEYS)
        return error_set(err, QUIRE_EINVALID, "row %llu has no key, and each line of %s is one: leave out --keys",
                         (unsigned long long)row, s->side[side].path);
    if (side == SIDE_ATTRIBUTES) {
        for (uint32_t i = 0; text && i < bytes; i++)
            putc_unlocked(text[i] == '\n' || text[i] == '\r' ? ' ' : text[i], file);
    } else {
        if (bytes && (memchr(text, '\n', bytes) || text[bytes - 1] == '\r'))
            return error_set(err, QUIRE_EINVALID,
                             "the %s of row %llu holds the end of a line, which a file of lines cannot: write .hdf5 "
                             "or .parquet",
                             side_names[side], (unsigned long long)row);
        fwrite_unlocked(text, 1, bytes, file);
    }
    putc_unlocked('\n', file);
    return ferror(file) ? error_set_errno(err, errno, "cannot write", s->side[side].path) : 0;
}

static int plain_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                       struct quire_error *err)
{
    struct plain_sink *s = (struct plain_sink *)sink;
    int rc = vecwriter_write(s->writer, vectors, n, err);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        const struct record *r = &records[i];
        rc = write_line(s, SIDE_KEYS, sink->rows + i, r->key, r->key_bytes, err);
        if (rc == 0)
            rc = write_line(s, SIDE_ATTRIBUTES, sink->rows + i, r->attributes, r->attribute_bytes, err);
        if (rc == 0)
            rc = write_line(s, SIDE_TENANTS, sink->rows + i, r->tenants, r->tenant_bytes, err);
    }
    return rc;
}

static void plain_abort(struct records_sink *sink)
{
    struct plain_sink *s = (struct plain_sink *)sink;
    vecwriter_abort(s->writer);
    for (int side = 0; side < SIDES; side++)
        records_file_abort(&s->side[side]);
    free(sink->name);
    free(s);
}

/* The vectors last: a program that waits for their file finds the lines. */
static int plain_finish(struct records_sink *sink, struct quire_error *err)
{
    struct plain_sink *s = (struct plain_sink *)sink;
    int rc = 0;
    for (int side = 0; rc == 0 && side < SIDES; side++)
        if (s->side[side].file)
            rc = records_file_finish(&s->side[side], err);
    if (rc == 0) {
        rc = vecwriter_finish(s->writer, err);
        s->writer = NULL;
    }
    plain_abort(sink);
    return rc;
}

static const struct records_sink_ops plain_sink_ops = {plain_write, plain_finish, plain_abort, NULL};

int plain_create(const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    const char *const paths[SIDES] = {into->sides.keys, into->sides.attributes, into->sides.tenants};
    struct plain_sink *s = records_new_sink(sizeof *s, &plain_sink_ops, into);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", into->path);
    int rc = vecwriter_open(into->path, (enum vecfile_format)into->vecfile_format, into->rows, into->dim, into->type,
                            &s->writer, err);
    for (int side = 0; rc == 0 && side < SIDES; side++)
        if (paths[side])
            rc = records_file_create(&s->side[side], paths[side], err);
    if (rc < 0)
        plain_abort(&s->base);
    else
        *out = &s->base;
    return rc;
}
