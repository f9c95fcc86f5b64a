/* vecfile_priv.h - what the files that read and write vectors share: streams of bytes, names of formats, .npy headers.
 */
#ifndef QUIRE_DATASETS_VECFILE_PRIV_H
#define QUIRE_DATASETS_VECFILE_PRIV_H

#include "datasets/vecfile.h"

#define VECFILE_UNKNOWN UINT64_MAX /* a number of rows or bytes that only the end will tell */

/* ---- bytes in, forward only (vecstream.c) ------------------------------------------------------------------------ */

struct instream {
    int fd;
    bool owned;        /* close fd at the end */
    bool ended;        /* read(2) said so */
    char *name;        /* for messages */
    uint64_t total;    /* bytes of a plain file from where it was opened; VECFILE_UNKNOWN: a pipe */
    uint64_t expected; /* bytes that the header announces; VECFILE_UNKNOWN: it does not */
    uint64_t taken;    /* bytes handed out */
    int64_t base;      /* offset in a plain file at which it was opened */
    uint8_t *buffer;
    size_t begin, end; /* part of buffer that is still to be handed out */
};

/* path "-" is standard input. A zeroed struct may be given to vecstream_in_close. QUIRE_ENOFILE, EPERM, EINVALID
 * (folder). */
int vecstream_in_open(struct instream *in, const char *path, struct quire_error *err);
void vecstream_in_close(struct instream *in);
/* The next byte read is the one that was number `at` when the stream was opened; plain files only. */
int vecstream_in_seek(struct instream *in, uint64_t at, struct quire_error *err);
/* Bytes read: fewer than asked for at the end only. */
int64_t vecstream_in_read(struct instream *in, void *to, size_t bytes, struct quire_error *err);
/* QUIRE_ETRUNCATED where fewer are left; `what` names them. */
int vecstream_in_exact(struct instream *in, void *to, size_t bytes, const char *what, struct quire_error *err);
/* From now on `expected` is the length in all; a plain file of another length is refused at once. */
int vecstream_in_expect(struct instream *in, uint64_t expected, struct quire_error *err);
/* QUIRE_EOVERSIZED where bytes are left. */
int vecstream_in_finish(struct instream *in, struct quire_error *err);

/* ---- bytes out, published whole or not at all (vecstream.c) ------------------------------------------------------ */

struct outstream {
    struct io_file *file; /* NULL: standard output */
    char *path, *temporary;
    uint8_t *buffer;
    size_t used;
    uint64_t written; /* bytes that left the buffer */
};

int vecstream_out_open(struct outstream *out, const char *path, struct quire_error *err); /* "-": standard output */
/* n elements of 1, 2 or 4 bytes in this machine's order; they leave in little-endian order. */
int vecstream_out_put(struct outstream *out, const void *elements, uint64_t n, size_t element_bytes,
                      struct quire_error *err);
/* Both end the stream. finish: written, synced, renamed; a failure leaves the final name as it was. */
int vecstream_out_finish(struct outstream *out, struct quire_error *err);
void vecstream_out_abort(struct outstream *out);

/* Turns n elements of 1, 2 or 4 bytes from little-endian order into the machine's, or back. */
void vecstream_order(void *elements, uint64_t n, size_t element_bytes);

/* ---- formats ----------------------------------------------------------------------------------------------------- */

/* The format that is given or, for VECFILE_AUTO, that the path's extension names; < 0 where neither does. */
int vecfile_resolve(const char *path, enum vecfile_format format, enum vecfile_format *out, struct quire_error *err);
const char *vecfile_format_name(enum vecfile_format format);
/* Element type of a format; .npy says it in the file, .ivecs holds int32 and answers F32 (the same size). */
enum quire_type vecfile_format_type(enum vecfile_format format);
/* QUIRE_EDIM for 0 and for more than the format may have. */
int vecfile_check_dim(const char *name, enum vecfile_format format, uint64_t dim, struct quire_error *err);

static inline bool vecfile_has_row_heads(enum vecfile_format format)
{
    return format == VECFILE_FVECS || format == VECFILE_BVECS || format == VECFILE_IVECS;
}

/* ---- .npy (vecfile_npy.c) ---------------------------------------------------------------------------------------- */

#define NPY_HEADER_BYTES 128u /* of the headers that are written here */

/* Reads magic, version and header. *rows may be anything. QUIRE_EFORMAT, EVERSION, ETYPE, ETRUNCATED. */
int vecfile_npy_read_header(struct instream *in, enum quire_type *type, uint64_t *rows, uint64_t *dim,
                            struct quire_error *err);
void vecfile_npy_make_header(uint8_t header[NPY_HEADER_BYTES], enum quire_type type, uint64_t rows, uint32_t dim);

#endif
