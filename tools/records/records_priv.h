/* records_priv.h - what the formats of this room share: their openers, and text that lives until the next batch. */
#ifndef QUIRE_TOOLS_RECORDS_RECORDS_PRIV_H
#define QUIRE_TOOLS_RECORDS_RECORDS_PRIV_H

#include "io/arena.h"
#include "tools/records/records.h"
#include <stdio.h>

int plain_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int plain_create(const struct records_into *into, struct records_sink **out, struct quire_error *err);
int jsonl_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int jsonl_create(const struct records_into *into, struct records_sink **out, struct quire_error *err);
int hdf5_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int hdf5_create(const struct records_into *into, struct records_sink **out, struct quire_error *err);
int parquet_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int parquet_create(const struct records_into *into, struct records_sink **out, struct quire_error *err);
int faiss_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int hnswlib_open(const struct records_from *from, struct records_source **out, struct quire_error *err);

/* A zeroed struct of `bytes` that begins with a source or a sink, its fields set; name is copied. NULL: no memory. */
void *records_new_source(size_t bytes, const struct records_source_ops *ops, const char *name);
void *records_new_sink(size_t bytes, const struct records_sink_ops *ops, const struct records_into *into);

/* Takes those that source->known_to has out of n rows of which only the keys are known yet: how many stay. */
int64_t records_leave_out(struct records_source *source, struct record *records, uint64_t n, struct quire_error *err);

/* A copy in the arena; *out NULL where text is. */
bool records_keep(struct arena *arena, const char *text, size_t bytes, const char **out, uint32_t *out_bytes);

/* 0, or QUIRE_ENOTFINITE that names the row. n rows of floats. */
int records_check_finite(const char *name, const float *rows, uint64_t first, uint64_t n, uint32_t dim,
                         struct quire_error *err);
/* An object, or QUIRE_EPARSE that names the row. */
int records_check_attributes(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err);
int records_check_tenants(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err);
int records_check_key(const char *name, uint64_t row, const char *text, size_t bytes, struct quire_error *err);

/* A file that gets its name when it is complete, written through stdio; "-" is standard output. */
struct records_file {
    FILE *file;
    char *path, *temporary; /* NULL: standard output */
};
int records_file_create(struct records_file *out, const char *path, struct quire_error *err);
int records_file_finish(struct records_file *file, struct quire_error *err); /* frees it, also on failure */
void records_file_abort(struct records_file *file);
/* The name that a file has before it is complete; owned by the caller. Its publication under its own. */
char *records_temporary_name(const char *path);
int records_publish(const char *temporary, const char *path, struct quire_error *err);

/* The next line without its end, "\n" or "\r\n", terminated, in *line (grown; freed by free). 1; 0: the end of the
 * file;
 * QUIRE_ERANGE for one of more than RECORDS_TEXT_BYTES_MAX. `number`: of the line, from 0. */
int records_line(FILE *file, const char *name, uint64_t number, char **line, size_t *capacity, size_t *bytes,
                 struct quire_error *err);

/* Bytes of a file at a place, all or QUIRE_ETRUNCATED. */
int records_pread(int fd, const char *name, void *to, size_t bytes, uint64_t at, struct quire_error *err);

#endif
