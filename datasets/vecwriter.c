/*
 * vecwriter.c - rows into files of vectors.
 *
 * The header of fbin, its like and npy holds the number of rows and stands first, and a pipe cannot be patched
 * afterwards, so the caller says the number when it opens the file, and vecwriter_finish refuses when another number
 * was written: a file whose header lies never gets its final name. fvecs, bvecs and ivecs have no such header and take
 * rows as they come. A file without rows would be refused by the reader, so the writer refuses it too.
 */
#include "datasets/vecfile_priv.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

struct vecwriter {
    struct outstream out;
    enum vecfile_format format;
    uint64_t rows; /* announced; VECFILE_UNKNOWN: as many as come */
    uint64_t next;
    uint32_t dim;
    size_t element_bytes;
};

static int check_options(const char *path, enum vecfile_format format, uint64_t rows, uint32_t dim,
                         enum quire_type type, struct quire_error *err)
{
    int rc = vecfile_check_dim(path, format, dim, err);
    if (rc < 0)
        return rc;
    if (format != VECFILE_NPY && format != VECFILE_IVECS && type != vecfile_format_type(format))
        return error_set(err, QUIRE_ETYPE, "%s: a file of format %s holds %s, not %s", path,
                         vecfile_format_name(format), quire_type_name(vecfile_format_type(format)),
                         quire_type_name(type));
    if (format == VECFILE_NPY && type == QUIRE_TYPE_BF16)
        return error_set(err, QUIRE_ETYPE, "%s: NumPy has no bf16: write .bf16bin, or .npy of f32", path);
    if (vecfile_has_row_heads(format))
        return 0;
    if (rows == VECFILE_UNKNOWN)
        return error_set(
            err, QUIRE_EINVALID,
            "%s: a file of format %s begins with the number of its rows, which is not known yet: read from "
            "a file, or write .fvecs or .bvecs",
            path, vecfile_format_name(format));
    /* npy has no limit of its own; this one keeps rows * bytes inside 63 bits */
    uint64_t max = format == VECFILE_NPY ? INT64_MAX / (4u * QUIRE_DIM_MAX) : UINT32_MAX;
    if (rows < 1 || rows > max)
        return error_set(err, QUIRE_ERANGE, "%s: %llu rows; a file of format %s holds 1 to %llu", path,
                         (unsigned long long)rows, vecfile_format_name(format), (unsigned long long)max);
    return 0;
}

static int put_header(struct vecwriter *w, enum quire_type type, struct quire_error *err)
{
    if (vecfile_has_row_heads(w->format))
        return 0;
    if (w->format == VECFILE_NPY) {
        uint8_t header[NPY_HEADER_BYTES];
        vecfile_npy_make_header(header, type, w->rows, w->dim);
        return vecstream_out_put(&w->out, header, sizeof header, 1, err);
    }
    uint32_t header[2] = {(uint32_t)w->rows, w->dim};
    return vecstream_out_put(&w->out, header, 2, sizeof header[0], err);
}

int vecwriter_open(const char *path, enum vecfile_format format, uint64_t rows, uint32_t dim, enum quire_type type,
                   struct vecwriter **out, struct quire_error *err)
{
    int rc = vecfile_resolve(path, format, &format, err);
    if (rc == 0)
        rc = check_options(path, format, rows, dim, type, err);
    if (rc < 0)
        return rc;
    struct vecwriter *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    w->format = format;
    w->rows = vecfile_has_row_heads(format) ? VECFILE_UNKNOWN : rows;
    w->dim = dim;
    w->element_bytes = format == VECFILE_IVECS ? sizeof(int32_t) : quire_type_bytes(type);
    rc = vecstream_out_open(&w->out, path, err);
    if (rc == 0)
        rc = put_header(w, type, err);
    if (rc < 0)
        vecwriter_abort(w);
    else
        *out = w;
    return rc;
}

int vecwriter_write(struct vecwriter *writer, const void *rows, uint64_t n, struct quire_error *err)
{
    int rc = 0;
    if (n > writer->rows - writer->next)
        return error_set(err, QUIRE_ERANGE, "row %llu is one too many: %llu rows were announced",
                         (unsigned long long)writer->rows, (unsigned long long)writer->rows);
    if (!vecfile_has_row_heads(writer->format)) {
        rc = vecstream_out_put(&writer->out, rows, n * writer->dim, writer->element_bytes, err);
    } else {
        const uint8_t *row = rows;
        for (uint64_t i = 0; rc == 0 && i < n; i++, row += writer->dim * writer->element_bytes) {
            rc = vecstream_out_put(&writer->out, &writer->dim, 1, sizeof writer->dim, err);
            if (rc == 0)
                rc = vecstream_out_put(&writer->out, row, writer->dim, writer->element_bytes, err);
        }
    }
    writer->next += n;
    return rc;
}

int vecwriter_finish(struct vecwriter *writer, struct quire_error *err)
{
    int rc;
    uint64_t written = writer->next;
    if (written == 0 || (writer->rows != VECFILE_UNKNOWN && written != writer->rows)) {
        rc = written == 0 ? error_set(err, QUIRE_ERANGE, "no row was written; a file of vectors has at least one")
                          : error_set(err, QUIRE_ERANGE, "%llu rows were announced, %llu were written",
                                      (unsigned long long)writer->rows, (unsigned long long)written);
        vecstream_out_abort(&writer->out);
    } else {
        rc = vecstream_out_finish(&writer->out, err);
    }
    free(writer);
    return rc;
}

void vecwriter_abort(struct vecwriter *writer)
{
    if (!writer)
        return;
    vecstream_out_abort(&writer->out);
    free(writer);
}
