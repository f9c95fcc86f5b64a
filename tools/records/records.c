/*
 * records.c - which format a path is of, and the loop between two of them.
 *
 * A name's extension says the format; what has none that is known (faiss and hnswlib have no customary one) is looked
 * at: files of faiss, Parquet and HDF5 begin with marks of their own. A mark decides only where the name does not.
 *
 * Types: the sink has one type, the source another. Widening to f32 is exact; i8 and u8 take whole numbers of their
 * range only, because cutting a value off would change distances silently; f16 and bf16 round to nearest.
 */
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "tools/records/records_priv.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH_BYTES ((uint64_t)4 << 20) /* of vectors */
#define BATCH_ROWS  16384u

static const struct {
    const char *name;
    enum records_format format;
    int (*open)(const struct records_from *, struct records_source **, struct quire_error *);
    int (*create)(const struct records_into *, struct records_sink **, struct quire_error *);
} formats[] = {
    {"", RECORDS_VECTORS, plain_open, plain_create},     {"jsonl", RECORDS_JSONL, jsonl_open, jsonl_create},
    {"ndjson", RECORDS_JSONL, jsonl_open, jsonl_create}, {"hdf5", RECORDS_HDF5, hdf5_open, hdf5_create},
    {"h5", RECORDS_HDF5, hdf5_open, hdf5_create},        {"parquet", RECORDS_PARQUET, parquet_open, parquet_create},
    {"faiss", RECORDS_FAISS, faiss_open, NULL},          {"hnswlib", RECORDS_HNSWLIB, hnswlib_open, NULL}};
#define FORMATS (sizeof formats / sizeof formats[0])

enum records_format records_format_from_name(const char *name)
{
    for (size_t i = 1; i < FORMATS; i++)
        if (strcmp(name, formats[i].name) == 0)
            return formats[i].format;
    return vecfile_format_from_name(name) != VECFILE_AUTO ? RECORDS_VECTORS : RECORDS_AUTO;
}

/* By the mark at its beginning. */
static enum records_format format_from_content(const char *path)
{
    static const struct {
        char mark[9];
        size_t bytes;
        enum records_format format;
    } marks[] = {{"\x89HDF\r\n\x1a\n", 8, RECORDS_HDF5},
                 {"PAR1", 4, RECORDS_PARQUET},
                 {"Ix", 2, RECORDS_FAISS},
                 {"Iw", 2, RECORDS_FAISS}};
    char head[8] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; n == sizeof head && i < sizeof marks / sizeof *marks; i++)
        if (memcmp(head, marks[i].mark, marks[i].bytes) == 0)
            return marks[i].format;
    return RECORDS_AUTO;
}

enum records_format records_format_from_path(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    enum records_format format = dot ? records_format_from_name(dot + 1) : RECORDS_AUTO;
    return format != RECORDS_AUTO || strcmp(path, "-") == 0 ? format : format_from_content(path);
}

/* plain_open says what is wrong with a name that means nothing. */
static size_t find(enum records_format format, const char *path)
{
    if (format == RECORDS_AUTO)
        format = records_format_from_path(path);
    for (size_t i = 0; i < FORMATS; i++)
        if (formats[i].format == format)
            return i;
    return 0;
}

int records_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    return formats[find(from->format, from->path)].open(from, out, err);
}

int64_t records_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                     struct quire_error *err)
{
    return source->ops->read(source, vectors, records, n, err);
}

void records_close(struct records_source *source)
{
    if (source)
        source->ops->close(source);
}

bool records_type_fits(enum records_format format, int vecfile_format, enum quire_type type)
{
    switch (format) {
    case RECORDS_JSONL:
        return type == QUIRE_TYPE_F32 || type == QUIRE_TYPE_I8 || type == QUIRE_TYPE_U8;
    case RECORDS_HDF5:
        return type != QUIRE_TYPE_BF16;
    case RECORDS_PARQUET:
        return type == QUIRE_TYPE_F32;
    case RECORDS_VECTORS:
        switch ((enum vecfile_format)vecfile_format) {
        case VECFILE_U8BIN:
        case VECFILE_BVECS:
            return type == QUIRE_TYPE_U8;
        case VECFILE_I8BIN:
            return type == QUIRE_TYPE_I8;
        case VECFILE_BF16BIN:
            return type == QUIRE_TYPE_BF16;
        case VECFILE_NPY:
            return true; /* of bf16 the writer says why not */
        default:
            return type == QUIRE_TYPE_F32;
        }
    default:
        return false;
    }
}

int records_create(const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    size_t at = find(into->format, into->path);
    if (!formats[at].create)
        return error_set(err, QUIRE_EUNSUPPORTED, "%s: files of %s are read, not written", into->path,
                         formats[at].name);
    return formats[at].create(into, out, err);
}

int records_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                  struct quire_error *err)
{
    int rc = sink->ops->write(sink, vectors, records, n, err);
    sink->rows += rc == 0 ? n : 0;
    return rc;
}

int records_finish(struct records_sink *sink, struct quire_error *err)
{
    return sink->ops->finish(sink, err);
}

void records_abort(struct records_sink *sink)
{
    if (sink)
        sink->ops->abort(sink);
}

int64_t records_leave_out(struct records_source *source, struct record *records, uint64_t n, struct quire_error *err)
{
    struct records_sink *sink = source->known_to;
    uint64_t kept = 0;
    if (!sink || n == 0)
        return (int64_t)n;
    bool *known = calloc(n, sizeof *known);
    int rc = known ? sink->ops->known(sink, records, n, known, err)
                   : error_set(err, QUIRE_ENOMEM, "no memory for %llu rows", (unsigned long long)n);
    for (uint64_t i = 0; rc == 0 && i < n; i++)
        if (!known[i])
            records[kept++] = records[i];
    free(known);
    source->left_out += rc == 0 ? n - kept : 0;
    return rc == 0 ? (int64_t)kept : rc;
}

void *records_new_source(size_t bytes, const struct records_source_ops *ops, const char *name)
{
    struct records_source *source = calloc(1, bytes);
    if (!source)
        return NULL;
    source->ops = ops;
    source->metric = RECORDS_METRIC_UNKNOWN;
    source->rows = RECORDS_ROWS_UNKNOWN;
    source->name = strdup(strcmp(name, "-") == 0 ? "standard input" : name);
    if (source->name)
        return source;
    free(source);
    return NULL;
}

void *records_new_sink(size_t bytes, const struct records_sink_ops *ops, const struct records_into *into)
{
    struct records_sink *sink = calloc(1, bytes);
    if (!sink)
        return NULL;
    sink->ops = ops;
    sink->dim = into->dim;
    sink->type = into->type;
    sink->name = strdup(strcmp(into->path, "-") == 0 ? "standard output" : into->path);
    if (sink->name)
        return sink;
    free(sink);
    return NULL;
}

/* ---- between two ------------------------------------------------------------------------------------------------- */

struct between {
    const struct records_source *source;
    const struct records_sink *sink;
    uint64_t done;
    void *rows;    /* as read, and as written unless that is f32; f32 is the widest type: both fit */
    float *floats; /* between two types */
};

/* Whole numbers of a range as bytes. */
static int narrow(const struct between *b, uint64_t n, struct quire_error *err)
{
    bool is_signed = b->sink->type == QUIRE_TYPE_I8;
    float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
    uint32_t dim = b->sink->dim;
    uint8_t *bytes = b->rows;
    for (uint64_t i = 0; i < n * dim; i++) {
        float x = b->floats[i];
        if (!(x >= low && x <= high) || x != floorf(x))
            return error_set(err, QUIRE_ERANGE, "row %llu dimension %llu is %g: %s holds whole numbers from %g to %g",
                             (unsigned long long)(b->done + i / dim), (unsigned long long)(i % dim), (double)x,
                             quire_type_name(b->sink->type), (double)low, (double)high);
        bytes[i] = (uint8_t)(int)x;
    }
    return 0;
}

static int turn(const struct between *b, uint64_t n, const void **out, struct quire_error *err)
{
    uint64_t elements = n * b->sink->dim;
    *out = b->rows;
    if (b->source->type == b->sink->type)
        return 0;
    space_floats(b->source->type, b->rows, elements, b->floats);
    switch (b->sink->type) {
    case QUIRE_TYPE_F32:
        *out = b->floats;
        return 0;
    case QUIRE_TYPE_F16:
        kernels()->f16_from_f32(b->floats, b->rows, elements);
        return 0;
    case QUIRE_TYPE_BF16:
        kernels()->bf16_from_f32(b->floats, b->rows, elements);
        return 0;
    default:
        return narrow(b, n, err);
    }
}

static void count_parts(struct records_copy *copy, const struct record *records, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        copy->keys += records[i].key != NULL;
        copy->attributes += records[i].attributes != NULL;
        copy->tenants += records[i].tenants != NULL;
    }
}

int records_copy(struct records_copy *copy, struct records_source *source, struct records_sink *sink,
                 struct quire_error *err)
{
    uint64_t batch = BATCH_BYTES / (source->dim * sizeof(float)) + 1, end = source->rows;
    if (batch > BATCH_ROWS)
        batch = BATCH_ROWS;
    struct between b = {.source = source,
                        .sink = sink,
                        .rows = malloc(batch * source->dim * sizeof(float)),
                        .floats = malloc(batch * source->dim * sizeof(float))};
    struct record *records = calloc(batch, sizeof *records);
    const void *ready;
    int rc = 0;
    source->known_to = copy->resume ? sink : NULL;
    if (copy->limit && copy->limit < end)
        end = copy->limit;
    if (!b.rows || !b.floats || !records)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %llu rows", (unsigned long long)batch);
    while (rc == 0 && b.done < end) {
        uint64_t want = end - b.done < batch ? end - b.done : batch;
        memset(records, 0, want * sizeof *records);
        int64_t n = records_read(source, b.rows, records, want, err);
        if (n <= 0) {
            rc = (int)n;
            break;
        }
        rc = turn(&b, (uint64_t)n, &ready, err);
        if (rc == 0)
            rc = records_write(sink, ready, records, (uint64_t)n, err);
        b.done += (uint64_t)n;
        count_parts(copy, records, (uint64_t)n);
        if (rc == 0 && copy->progress &&
            copy->progress(copy->context, "convert", b.done, end == RECORDS_ROWS_UNKNOWN ? 0 : end) != 0)
            rc = error_set(err, QUIRE_ECANCELLED, "interrupted");
    }
    copy->rows = b.done;
    free(b.rows);
    free(b.floats);
    free(records);
    return rc;
}
