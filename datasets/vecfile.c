/*
 * vecfile.c - rows out of files of vectors, whatever their format.
 *
 * All formats come down to one of two: rows of one size behind a header that says how many (fbin and its like, npy),
 * and rows that each carry their dimension (fvecs, bvecs, ivecs). A plain file is checked against its length when it is
 * opened, so that a damaged file of 100 GB is refused before an hour of work; a pipe is checked as it comes.
 *
 * Nothing that a file says is trusted: dimensions are bounded before anything is multiplied, the product of rows and
 * bytes is checked for overflow, and memory for a pipe grows with what has come, not with what was announced. NaN and
 * infinity are refused here, at the border, so that no distance further in has to think of them.
 */
#include "datasets/vecfile_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ROW_HEAD_BYTES   4u                    /* the u32 dimension before each row of fvecs, bvecs, ivecs */
#define PIPE_BYTES_FIRST (16u * 1024u * 1024u) /* memory for a pipe before any of it was read */

struct vecfile {
    struct instream in;
    enum vecfile_format format;
    enum quire_type type;
    uint64_t rows;    /* VECFILE_UNKNOWN: not before the end */
    uint64_t next;    /* row that the next read begins with */
    uint64_t rows_at; /* bytes before row 0 */
    uint32_t dim;
    size_t element_bytes, row_bytes;
};

static const struct {
    const char *name;
    enum quire_type type;
} formats[] = {
    [VECFILE_AUTO] = {"", QUIRE_TYPE_F32},
    [VECFILE_FBIN] = {"fbin", QUIRE_TYPE_F32},
    [VECFILE_U8BIN] = {"u8bin", QUIRE_TYPE_U8},
    [VECFILE_I8BIN] = {"i8bin", QUIRE_TYPE_I8},
    [VECFILE_BF16BIN] = {"bf16bin", QUIRE_TYPE_BF16},
    [VECFILE_FVECS] = {"fvecs", QUIRE_TYPE_F32},
    [VECFILE_BVECS] = {"bvecs", QUIRE_TYPE_U8},
    [VECFILE_IVECS] = {"ivecs", QUIRE_TYPE_F32},
    [VECFILE_NPY] = {"npy", QUIRE_TYPE_F32},
};

#define FORMATS (sizeof formats / sizeof formats[0])

enum vecfile_format vecfile_format_from_name(const char *name)
{
    for (size_t i = 1; i < FORMATS; i++)
        if (strcmp(name, formats[i].name) == 0)
            return (enum vecfile_format)i;
    return VECFILE_AUTO;
}

enum vecfile_format vecfile_format_from_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    return dot ? vecfile_format_from_name(dot + 1) : VECFILE_AUTO;
}

const char *vecfile_format_name(enum vecfile_format format)
{
    return formats[format].name;
}

enum quire_type vecfile_format_type(enum vecfile_format format)
{
    return formats[format].type;
}

int vecfile_resolve(const char *path, enum vecfile_format format, enum vecfile_format *out, struct quire_error *err)
{
    if ((size_t)format >= FORMATS)
        return error_set(err, QUIRE_EINVALID, "format %d is none that this version knows", (int)format);
    if (format == VECFILE_AUTO)
        format = vecfile_format_from_path(path);
    if (format == VECFILE_AUTO)
        return error_set(err, QUIRE_EINVALID,
                         "%s has no extension that names a format of vectors: fbin, u8bin, i8bin, bf16bin, fvecs, "
                         "bvecs, npy (ivecs: "
                         "ground truth); texts, keys and attributes come in files of their own",
                         path);
    *out = format;
    return 0;
}

int vecfile_check_dim(const char *name, enum vecfile_format format, uint64_t dim, struct quire_error *err)
{
    /* a row of ivecs is a list of neighbours, and may be as long as a search's answer */
    uint32_t max = format == VECFILE_IVECS ? QUIRE_K_MAX : QUIRE_DIM_MAX;
    if (dim >= 1 && dim <= max)
        return 0;
    return error_set(err, QUIRE_EDIM, "%s says that its vectors have %llu dimensions; expected 1 to %u", name,
                     (unsigned long long)dim, max);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void set_dim(struct vecfile *file, uint64_t dim)
{
    file->dim = (uint32_t)dim;
    file->element_bytes = quire_type_bytes(file->type);
    file->row_bytes = file->dim * file->element_bytes;
}

/* One size of row, and their number in the header. */
static int open_counted(struct vecfile *file, struct quire_error *err)
{
    uint8_t head[8];
    uint64_t dim, bytes;
    int rc;
    if (file->format == VECFILE_NPY) {
        rc = vecfile_npy_read_header(&file->in, &file->type, &file->rows, &dim, err);
    } else {
        rc = vecstream_in_exact(&file->in, head, sizeof head, "the header", err);
        file->rows = rc == 0 ? bytes_load_u32(head) : 0;
        dim = rc == 0 ? bytes_load_u32(head + 4) : 0;
    }
    if (rc == 0)
        rc = vecfile_check_dim(file->in.name, file->format, dim, err);
    if (rc < 0)
        return rc;
    set_dim(file, dim);
    if (file->rows == 0)
        return error_set(err, QUIRE_EFORMAT, "%s holds no rows; expected at least one", file->in.name);
    if (__builtin_mul_overflow(file->rows, (uint64_t)file->row_bytes, &bytes) || bytes > INT64_MAX - file->in.taken)
        return error_set(err, QUIRE_EFORMAT, "%s says that it holds %llu rows of %zu bytes, which no file can",
                         file->in.name, (unsigned long long)file->rows, file->row_bytes);
    file->rows_at = file->in.taken;
    return vecstream_in_expect(&file->in, file->in.taken + bytes, err);
}

/* Each row with its dimension: the first one's holds for all. */
static int open_headed(struct vecfile *file, struct quire_error *err)
{
    uint8_t head[ROW_HEAD_BYTES];
    int rc = vecstream_in_exact(&file->in, head, sizeof head, "the dimension of row 0", err);
    if (rc == 0)
        rc = vecfile_check_dim(file->in.name, file->format, bytes_load_u32(head), err);
    if (rc < 0)
        return rc;
    set_dim(file, bytes_load_u32(head));
    file->rows = VECFILE_UNKNOWN;
    if (file->in.total == VECFILE_UNKNOWN)
        return 0;
    uint64_t one = ROW_HEAD_BYTES + file->row_bytes, whole = file->in.total / one;
    if (file->in.total % one != 0)
        return error_set(err, QUIRE_ETRUNCATED,
                         "%s does not end with a row: rows of %u dimensions take %llu bytes, expected %llu or %llu "
                         "bytes, found %llu bytes",
                         file->in.name, file->dim, (unsigned long long)one, (unsigned long long)(whole * one),
                         (unsigned long long)((whole + 1) * one), (unsigned long long)file->in.total);
    file->rows = whole;
    return vecstream_in_expect(&file->in, file->in.total, err);
}

int vecfile_open(const char *path, enum vecfile_format format, struct vecfile **out, struct quire_error *err)
{
    struct stat status;
    /* before its name is judged: a name that is misspelt has no file */
    bool is_stream = strcmp(path, "-") == 0;
    if (!is_stream && stat(path, &status) != 0)
        return error_set_errno(err, errno, "open", path);
    if (!is_stream && S_ISDIR(status.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is a folder, not a file of vectors", path);
    int rc = vecfile_resolve(path, format, &format, err);
    if (rc < 0)
        return rc;
    struct vecfile *file = calloc(1, sizeof *file);
    if (!file)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    file->format = format;
    file->type = vecfile_format_type(format);
    rc = vecstream_in_open(&file->in, path, err);
    if (rc == 0)
        rc = vecfile_has_row_heads(format) ? open_headed(file, err) : open_counted(file, err);
    if (rc < 0)
        vecfile_close(file);
    else
        *out = file;
    return rc;
}

void vecfile_close(struct vecfile *file)
{
    if (!file)
        return;
    vecstream_in_close(&file->in);
    free(file);
}

uint64_t vecfile_rows(const struct vecfile *file)
{
    return file->rows;
}

uint32_t vecfile_dim(const struct vecfile *file)
{
    return file->dim;
}

enum quire_type vecfile_type(const struct vecfile *file)
{
    return file->type;
}

bool vecfile_is_ivecs(const struct vecfile *file)
{
    return file->format == VECFILE_IVECS;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Whether one of n stored floats has an exponent of ones only, which is NaN or infinity. No branch: it vectorises. */
static bool any_not_finite(enum quire_type type, const uint8_t *elements, uint64_t n)
{
    uint32_t found = 0;
    for (uint64_t i = 0; type == QUIRE_TYPE_F32 && i < n; i++)
        found |= (bytes_load_u32(elements + 4 * i) & 0x7f800000u) == 0x7f800000u;
    uint16_t ones = type == QUIRE_TYPE_F16 ? 0x7c00u : 0x7f80u;
    for (uint64_t i = 0; type != QUIRE_TYPE_F32 && i < n; i++)
        found |= (bytes_load_u16(elements + 2 * i) & ones) == ones;
    return found != 0;
}

static int check_finite(const struct vecfile *file, const void *rows, uint64_t n, struct quire_error *err)
{
    if (vecfile_is_ivecs(file) || file->type == QUIRE_TYPE_I8 || file->type == QUIRE_TYPE_U8)
        return 0;
    for (uint64_t row = 0; row < n; row++) {
        const uint8_t *at = (const uint8_t *)rows + row * file->row_bytes;
        if (!any_not_finite(file->type, at, file->dim))
            continue;
        uint32_t d = 0;
        while (!any_not_finite(file->type, at + d * file->element_bytes, 1))
            d++;
        return error_set(err, QUIRE_ENOTFINITE,
                         "row %llu of %s holds NaN or infinity in dimension %u: repair or leave out that row",
                         (unsigned long long)(file->next + row), file->in.name, d);
    }
    return 0;
}

/* The dimension before a row; the first row's was read when the file was opened. 1, or 0 at the end. */
static int read_row_head(struct vecfile *file, struct quire_error *err)
{
    uint8_t head[ROW_HEAD_BYTES];
    if (file->next == 0)
        return 1;
    int64_t n = vecstream_in_read(&file->in, head, sizeof head, err);
    if (n <= 0)
        return (int)n;
    if (n < (int64_t)sizeof head)
        return error_set(err, QUIRE_ETRUNCATED,
                         "%s ends inside the dimension of row %llu: expected %u bytes, found %d bytes", file->in.name,
                         (unsigned long long)file->next, ROW_HEAD_BYTES, (int)n);
    if (bytes_load_u32(head) != file->dim)
        return error_set(err, QUIRE_EFORMAT, "row %llu of %s has %u dimensions; expected %u, as the rows before it",
                         (unsigned long long)file->next, file->in.name, bytes_load_u32(head), file->dim);
    return 1;
}

/* Rows with their dimension, one after the other; file->next counts them for the messages. */
static int64_t read_headed(struct vecfile *file, void *rows, uint64_t n, struct quire_error *err)
{
    uint64_t got = 0;
    for (; got < n; got++) {
        void *row = (uint8_t *)rows + got * file->row_bytes;
        int rc = read_row_head(file, err);
        if (rc == 0)
            file->rows = file->next;
        if (rc == 0)
            break;
        if (rc > 0)
            rc = vecstream_in_exact(&file->in, row, file->row_bytes, "a row", err);
        if (rc < 0)
            return rc;
        rc = check_finite(file, row, 1, err);
        if (rc < 0)
            return rc;
        vecstream_order(row, file->dim, file->element_bytes);
        file->next++;
    }
    return (int64_t)got;
}

static int64_t read_counted(struct vecfile *file, void *rows, uint64_t n, struct quire_error *err)
{
    uint64_t left = file->rows - file->next;
    if (left == 0)
        return vecstream_in_finish(&file->in, err);
    n = n < left ? n : left;
    int rc = vecstream_in_exact(&file->in, rows, n * file->row_bytes, "the rows", err);
    if (rc < 0)
        return rc;
    rc = check_finite(file, rows, n, err);
    if (rc < 0)
        return rc;
    vecstream_order(rows, n * file->dim, file->element_bytes);
    file->next += n;
    return (int64_t)n;
}

int64_t vecfile_read(struct vecfile *file, void *rows, uint64_t n, struct quire_error *err)
{
    if (n == 0)
        return 0;
    return vecfile_has_row_heads(file->format) ? read_headed(file, rows, n, err) : read_counted(file, rows, n, err);
}

bool vecfile_is_seekable(const struct vecfile *file)
{
    return file->in.total != VECFILE_UNKNOWN;
}

int vecfile_seek(struct vecfile *file, uint64_t row, struct quire_error *err)
{
    if (row == file->next)
        return 0;
    bool headed = vecfile_has_row_heads(file->format);
    uint64_t each = file->row_bytes + (headed ? ROW_HEAD_BYTES : 0), at = file->rows_at + row * each;
    /* the dimension before row 0 is not read again: it was read when the file was opened */
    int rc = vecstream_in_seek(&file->in, headed && row == 0 ? at + ROW_HEAD_BYTES : at, err);
    if (rc == 0)
        file->next = row;
    return rc;
}

/* ---- whole files ------------------------------------------------------------------------------------------------- */

/* Gives v space for `rows`, and keeps the `used` that are there. */
static int make_room(struct vectors *v, uint64_t rows, uint64_t used, size_t row_bytes, const char *name,
                     struct quire_error *err)
{
    void *data = memory_aligned(64, memory_size_mul(rows, row_bytes));
    if (!data)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu rows of %zu bytes of %s", (unsigned long long)rows,
                         row_bytes, name);
    if (used > 0)
        memcpy(data, v->data, used * row_bytes);
    memory_free(v->data);
    v->data = data;
    return 0;
}

/* Reads until the end. Memory is made for all rows of a plain file at once; for a pipe, it doubles. */
static int load_rows(struct vecfile *file, struct vectors *v, struct quire_error *err)
{
    bool plain = file->in.total != VECFILE_UNKNOWN;
    uint64_t capacity = plain ? file->rows : PIPE_BYTES_FIRST / file->row_bytes + 1;
    int rc = make_room(v, capacity, 0, file->row_bytes, file->in.name, err);
    while (rc == 0) {
        int64_t n = vecfile_read(file, (uint8_t *)v->data + v->rows * file->row_bytes, capacity - v->rows, err);
        if (n <= 0)
            return (int)n;
        v->rows += (uint64_t)n;
        if (v->rows < capacity)
            continue;
        if (plain)
            break; /* its length was checked when it was opened */
        capacity *= 2;
        rc = make_room(v, capacity, v->rows, file->row_bytes, file->in.name, err);
    }
    return rc;
}

int vecfile_vectors_read(struct vecfile *file, struct vectors *out, struct quire_error *err)
{
    struct vectors v = {.dim = file->dim, .type = file->type};
    int rc = 0;
    if (vecfile_is_ivecs(file))
        rc = error_set(err, QUIRE_ETYPE, "%s is an .ivecs file: it holds numbers of rows, not vectors", file->in.name);
    if (rc == 0)
        rc = load_rows(file, &v, err);
    if (rc < 0)
        vecfile_vectors_free(&v);
    else
        *out = v;
    return rc;
}

int vecfile_vectors_load(const char *path, enum vecfile_format format, struct vectors *out, struct quire_error *err)
{
    struct vecfile *file = NULL;
    int rc = vecfile_open(path, format, &file, err);
    if (rc < 0)
        return rc;
    rc = vecfile_vectors_read(file, out, err);
    vecfile_close(file);
    return rc;
}

void vecfile_vectors_free(struct vectors *v)
{
    memory_free(v->data);
    *v = (struct vectors){0};
}
