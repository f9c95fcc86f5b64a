/*
 * records.h - rows with what belongs to them, out of and into files of others: vectors, keys, attributes, tenants.
 *
 *     source (a format's reader) --> batches of rows --> sink (a format's writer)
 *
 * Every format is a table of calls behind one of two structs, so `quire convert`, `quire import` and `quire export` are
 * the same loop over different ends (records_copy). A batch is bounded by rows and bytes, whatever the file's length.
 *
 * A source and a sink belong to one thread.
 */
#ifndef QUIRE_TOOLS_RECORDS_RECORDS_H
#define QUIRE_TOOLS_RECORDS_RECORDS_H

#include "quire.h"

#define RECORDS_ROWS_UNKNOWN   UINT64_MAX  /* before the end */
#define RECORDS_TEXT_BYTES_MAX (64u << 20) /* of one row in a text format; of the attributes of one row */

enum records_format {
    RECORDS_AUTO,
    RECORDS_VECTORS, /* what datasets/vecfile.h reads, with lines of keys, attributes and tenants beside it */
    RECORDS_JSONL,
    RECORDS_HDF5,
    RECORDS_PARQUET,
    RECORDS_FAISS,
    RECORDS_HNSWLIB
};

/* What stands beside a vector. NULL: nothing. Texts are not terminated. Tenants: names with single spaces between. */
struct record {
    const char *key, *attributes, *tenants;
    uint32_t key_bytes, attribute_bytes, tenant_bytes;
};

enum records_parts { RECORDS_KEYS = 1, RECORDS_ATTRIBUTES = 2, RECORDS_TENANTS = 4 };
#define RECORDS_METRIC_UNKNOWN (-1)

/* What a file calls its parts; NULL: what the format's readers look for. */
struct records_names {
    const char *vector, *key, *attributes, *tenants;
};

/* Files of lines beside a file of vectors; NULL: none. */
struct records_sides {
    const char *keys, *attributes, *tenants;
};

/* ---- out of ------------------------------------------------------------------------------------------------------ */

struct records_source;
struct records_source_ops {
    /* Up to n rows into vectors (row-major, as stored) and records. Texts are valid until the next call. 0: the end. */
    int64_t (*read)(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                    struct quire_error *err);
    void (*close)(struct records_source *source);
};
struct records_sink;

/* The first field of each format's own struct. */
struct records_source {
    const struct records_source_ops *ops;
    char *name;    /* owned; for messages */
    uint64_t rows; /* or RECORDS_ROWS_UNKNOWN */
    uint32_t dim;
    enum quire_type type;
    unsigned may_have;   /* of enum records_parts */
    int metric;          /* of enum quire_metric, where the file says it */
    bool is_approximate; /* vectors were rebuilt from codes */
    /* Where a copy resumes: rows whose keys are in this sink are left out unread, and counted. NULL: none are. */
    struct records_sink *known_to;
    uint64_t left_out;
};

struct records_from {
    const char *path;
    enum records_format format;
    int vecfile_format; /* of enum vecfile_format, for RECORDS_VECTORS */
    struct records_names names;
    struct records_sides sides; /* for RECORDS_VECTORS */
};
int records_open(const struct records_from *from, struct records_source **out, struct quire_error *err);
int64_t records_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                     struct quire_error *err);
void records_close(struct records_source *source); /* NULL is fine */
/* The rows of an index folder (index_read.c). */
int index_source_open(const char *path, struct records_source **out, struct quire_error *err);

/* ---- into -------------------------------------------------------------------------------------------------------- */

struct records_sink_ops {
    int (*write)(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                 struct quire_error *err);
    /* Both free it. finish: complete, synced, under its name; a failure leaves nothing. */
    int (*finish)(struct records_sink *sink, struct quire_error *err);
    void (*abort)(struct records_sink *sink);
    /* Which of n rows are there already, by their keys. NULL: a sink that begins empty. */
    int (*known)(struct records_sink *sink, const struct record *records, uint64_t n, bool *out,
                 struct quire_error *err);
};
struct records_sink {
    const struct records_sink_ops *ops;
    char *name;
    bool makes_set; /* of a server, which has none of this name yet */
    uint64_t rows;  /* written so far */
    uint32_t dim;
    enum quire_type type;
};

enum records_compression { RECORDS_PLAIN, RECORDS_GZIP, RECORDS_ZSTD };

struct records_into {
    const char *path;
    enum records_format format;
    int vecfile_format;
    struct records_names names;
    struct records_sides sides;
    uint64_t rows; /* to come, or RECORDS_ROWS_UNKNOWN */
    uint32_t dim;
    enum quire_type type;
    unsigned may_have;
    int metric;
    enum records_compression compression; /* Parquet */
    const char *queries, *truth;          /* HDF5: files that go in as test, neighbors, distances */
};
int records_create(const struct records_into *into, struct records_sink **out, struct quire_error *err);
int records_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                  struct quire_error *err);
int records_finish(struct records_sink *sink, struct quire_error *err);
void records_abort(struct records_sink *sink); /* NULL is fine */

/* ---- between ----------------------------------------------------------------------------------------------------- */

struct records_copy {
    uint64_t limit; /* rows; 0: all */
    /* Leaves out what the sink has. The source must have the keys before it reads the rest (a server), and the sink
     * know what it has (a set of a server). */
    bool resume;
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total); /* not 0: QUIRE_ECANCELLED */
    void *context;
    /* result */
    uint64_t rows;
    uint64_t keys, attributes, tenants; /* rows that have them */
};
/* All rows, turned from the source's type into the sink's: widened exactly, narrowed to i8 or u8 where nothing is
 * lost (else QUIRE_ERANGE names row and dimension), rounded to nearest for f16 and bf16. */
int records_copy(struct records_copy *copy, struct records_source *source, struct records_sink *sink,
                 struct quire_error *err);

enum records_format records_format_from_name(const char *name); /* RECORDS_AUTO if it is none of these */
enum records_format records_format_from_path(const char *path); /* by extension, and where there is none, by content */
/* Whether a format's elements may be of this type. */
bool records_type_fits(enum records_format format, int vecfile_format, enum quire_type type);

#endif
