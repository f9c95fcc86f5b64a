/*
 * hdf5_write.c - rows into HDF5 files that ann-benchmarks reads (hdf5_read.c says how they are laid out).
 *
 * Where the number of rows is known, train is one piece of the file; else it grows by chunks. Columns of texts are made
 * when the first row has one, and read as empty texts before. distances are written as f64: a float's square root in
 * double, squared and rounded, is that float again, so that ground truth comes back bit by bit.
 *
 * Ground truth is compared with the rows as they come (truth_check.h).
 *
 * HDF5 writes under a temporary name; the file gets its own when it is closed and synced.
 */
#include "datasets/vecfile.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/records/hdf5_lib.h"
#include "tools/records/records_priv.h"
#include "tools/records/truth_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (1u << 20)
#define CHUNK_TEXTS 4096u

enum column { COLUMN_KEYS, COLUMN_ATTRIBUTES, COLUMN_TENANTS, COLUMNS };

struct hdf5_sink {
    struct records_sink base;
    struct hdf5_lib lib;
    char *path, *temporary;
    hdf5_id file, vectors;
    hdf5_id columns[COLUMNS]; /* < 0: no row had one */
    const char *names[COLUMNS];
    uint64_t rows; /* announced, or RECORDS_ROWS_UNKNOWN */
    struct truth_check check;
    char *truth; /* the file of it; NULL: there is none, or no queries */
};

static int unwritable(const struct hdf5_sink *s, const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_EIO, "%s: HDF5 cannot write %s: is the disk full?", s->base.name, what);
}

/* rows RECORDS_ROWS_UNKNOWN: it grows. width 0: one axis. */
static hdf5_id create_dataset(const struct hdf5_sink *s, const char *name, hdf5_id type, uint64_t rows, uint64_t width)
{
    const struct hdf5_lib *lib = &s->lib;
    bool grows = rows == RECORDS_ROWS_UNKNOWN;
    uint64_t per_chunk = width ? CHUNK_BYTES / (width * lib->Tget_size(type)) + 1 : CHUNK_TEXTS;
    hdf5_size now[2] = {grows ? 0 : rows, width}, most[2] = {HDF5_UNLIMITED, width}, chunk[2] = {per_chunk, width};
    int axes = width ? 2 : 1;
    hdf5_id space = lib->Screate_simple(axes, now, grows ? most : NULL), plan = lib->Pcreate(lib->creation), out = -1;
    if (space >= 0 && plan >= 0 && (!grows || lib->Pset_chunk(plan, axes, chunk) >= 0))
        out = lib->Dcreate2(s->file, name, type, space, HDF5_DEFAULT, plan, HDF5_DEFAULT);
    if (space >= 0)
        lib->Sclose(space);
    if (plan >= 0)
        lib->Pclose(plan);
    return out;
}

static bool put_attribute(const struct hdf5_sink *s, const char *name, hdf5_id type, const void *value)
{
    hdf5_id space = s->lib.Screate(HDF5_SCALAR);
    hdf5_id attribute = space < 0 ? -1 : s->lib.Acreate2(s->file, name, type, space, HDF5_DEFAULT, HDF5_DEFAULT);
    bool ok = attribute >= 0 && s->lib.Awrite(attribute, type, value) >= 0;
    if (attribute >= 0)
        s->lib.Aclose(attribute);
    if (space >= 0)
        s->lib.Sclose(space);
    return ok;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void text_of(const struct record *r, int column, const char **text, uint32_t *bytes)
{
    *text = column == COLUMN_KEYS ? r->key : column == COLUMN_ATTRIBUTES ? r->attributes : r->tenants;
    *bytes = column == COLUMN_KEYS ? r->key_bytes : column == COLUMN_ATTRIBUTES ? r->attribute_bytes : r->tenant_bytes;
}

static int write_texts(struct hdf5_sink *s, int column, const struct record *records, uint64_t n,
                       struct quire_error *err)
{
    static const char *const what[COLUMNS] = {"keys", "attributes", "tenants"};
    struct arena terminated = {0};
    hdf5_size rows = s->base.rows + n;
    const char *text;
    uint32_t bytes, kept;
    bool any = s->columns[column] >= 0;
    int rc = 0;
    for (uint64_t i = 0; !any && i < n; i++) {
        text_of(&records[i], column, &text, &bytes);
        any = text != NULL;
    }
    if (!any)
        return 0;
    if (s->columns[column] < 0)
        s->columns[column] = create_dataset(s, s->names[column], s->lib.text, RECORDS_ROWS_UNKNOWN, 0);
    const char **texts = calloc(n, sizeof *texts);
    if (!texts)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for texts");
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        text_of(&records[i], column, &text, &bytes);
        if (text && memchr(text, 0, bytes))
            rc = error_set(err, QUIRE_EINVALID,
                           "the %s of row %llu hold a zero byte, at which HDF5's texts end: write .parquet",
                           what[column], (unsigned long long)(s->base.rows + i));
        else if (!records_keep(&terminated, text, bytes, &texts[i], &kept))
            rc = error_set(err, QUIRE_ENOMEM, "no memory for texts");
    }
    if (rc == 0 && (s->columns[column] < 0 || s->lib.Dset_extent(s->columns[column], &rows) < 0 ||
                    hdf5_lib_write(&s->lib, s->columns[column], s->lib.text, s->base.rows, n, 0, texts) < 0))
        rc = unwritable(s, what[column], err);
    arena_fini(&terminated);
    free(texts);
    return rc;
}

static int hdf5_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                      struct quire_error *err)
{
    struct hdf5_sink *s = (struct hdf5_sink *)sink;
    hdf5_size size[2] = {sink->rows + n, sink->dim};
    if (s->rows != RECORDS_ROWS_UNKNOWN && sink->rows + n > s->rows)
        return error_set(err, QUIRE_ERANGE, "%llu rows were announced for %s, and there are more",
                         (unsigned long long)s->rows, sink->name);
    if ((s->rows == RECORDS_ROWS_UNKNOWN && s->lib.Dset_extent(s->vectors, size) < 0) ||
        hdf5_lib_write(&s->lib, s->vectors, hdf5_lib_type(&s->lib, sink->type), sink->rows, n, sink->dim, vectors) < 0)
        return unwritable(s, "the vectors", err);
    int rc = s->truth ? truth_check_rows(&s->check, s->truth, sink->type, vectors, sink->rows, n, err) : 0;
    for (int column = 0; rc == 0 && column < COLUMNS; column++)
        rc = write_texts(s, column, records, n, err);
    return rc;
}

/* ---- queries and neighbours -------------------------------------------------------------------------------------- */

static int put_queries(const struct hdf5_sink *s, const char *path, struct quire_error *err)
{
    struct vectors queries = {0};
    int rc = vecfile_vectors_load(path, 0, &queries, err);
    hdf5_id type = rc == 0 ? hdf5_lib_type(&s->lib, queries.type) : 0;
    if (rc == 0 && queries.dim != s->base.dim)
        rc = error_set(err, QUIRE_EDIM, "%s has %u dimensions, the rows have %u", path, queries.dim, s->base.dim);
    if (rc == 0 && type == 0)
        rc = error_set(err, QUIRE_ETYPE, "%s holds %s, which HDF5 does not have: convert it to f32", path,
                       quire_type_name(queries.type));
    hdf5_id dataset = rc == 0 ? create_dataset(s, "test", type, queries.rows, queries.dim) : -1;
    if (rc == 0 &&
        (dataset < 0 || hdf5_lib_write(&s->lib, dataset, type, 0, queries.rows, queries.dim, queries.data) < 0))
        rc = unwritable(s, "the queries", err);
    if (dataset >= 0)
        s->lib.Dclose(dataset);
    vecfile_vectors_free(&queries);
    return rc;
}

static int put_truth(const struct hdf5_sink *s, const char *path, int metric, struct quire_error *err)
{
    struct truth truth = {0};
    int rc = truth_load(path, &truth, err);
    uint64_t n = (uint64_t)truth.n_queries * truth.k;
    if (rc == 0 && !truth.distances)
        rc = error_set(err, QUIRE_EINVALID, "%s has no distances, which the file must have: quire truth writes both",
                       path);
    int32_t *ids = rc == 0 ? malloc(memory_size_mul(n, sizeof *ids)) : NULL;
    double *far = rc == 0 ? malloc(memory_size_mul(n, sizeof *far)) : NULL;
    if (rc == 0 && (!ids || !far))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the neighbours of %u queries", truth.n_queries);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        double d = (double)truth.distances[i];
        ids[i] = truth.ids[i] == TRUTH_NONE ? -1 : (int32_t)truth.ids[i];
        far[i] = metric == QUIRE_METRIC_L2 ? sqrt(d) : d;
        if (truth.ids[i] != TRUTH_NONE && truth.ids[i] > INT32_MAX)
            rc = error_set(err, QUIRE_ERANGE, "%s: row %u does not fit into neighbors of 32 bits", path, truth.ids[i]);
    }
    hdf5_id neighbours = rc == 0 ? create_dataset(s, "neighbors", s->lib.i32, truth.n_queries, truth.k) : -1;
    hdf5_id distances = rc == 0 ? create_dataset(s, "distances", s->lib.f64, truth.n_queries, truth.k) : -1;
    if (rc == 0 && (neighbours < 0 || distances < 0 ||
                    hdf5_lib_write(&s->lib, neighbours, s->lib.i32, 0, truth.n_queries, truth.k, ids) < 0 ||
                    hdf5_lib_write(&s->lib, distances, s->lib.f64, 0, truth.n_queries, truth.k, far) < 0))
        rc = unwritable(s, "the neighbours", err);
    if (neighbours >= 0)
        s->lib.Dclose(neighbours);
    if (distances >= 0)
        s->lib.Dclose(distances);
    free(ids);
    free(far);
    truth_free(&truth);
    return rc;
}

static int put_attributes(const struct hdf5_sink *s, int metric, struct quire_error *err)
{
    static const char *const names[] = {
        [QUIRE_METRIC_L2] = "euclidean", [QUIRE_METRIC_COSINE] = "angular", [QUIRE_METRIC_IP] = "dot"};
    const char *dense = "dense", *point = "float", *distance = metric < 0 ? NULL : names[metric];
    int64_t dim = s->base.dim;
    if (put_attribute(s, "type", s->lib.text, &dense) && put_attribute(s, "point_type", s->lib.text, &point) &&
        put_attribute(s, "dimension", s->lib.i64, &dim) &&
        (!distance || put_attribute(s, "distance", s->lib.text, &distance)))
        return 0;
    return unwritable(s, "its attributes", err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int close_file(struct hdf5_sink *s)
{
    int rc = 0;
    for (int column = 0; column < COLUMNS; column++)
        if (s->columns[column] >= 0)
            rc |= s->lib.Dclose(s->columns[column]);
    if (s->vectors >= 0)
        rc |= s->lib.Dclose(s->vectors);
    if (s->file >= 0)
        rc |= s->lib.Fclose(s->file);
    for (int column = 0; column < COLUMNS; column++)
        s->columns[column] = -1;
    s->vectors = s->file = -1;
    return rc;
}

static void hdf5_abort(struct records_sink *sink)
{
    struct hdf5_sink *s = (struct hdf5_sink *)sink;
    bool made = s->file >= 0;
    close_file(s);
    if (made)
        unlink(s->temporary);
    hdf5_lib_close(&s->lib);
    truth_check_fini(&s->check);
    free(s->truth);
    free(s->path);
    free(s->temporary);
    free(sink->name);
    free(s);
}

static int hdf5_finish(struct records_sink *sink, struct quire_error *err)
{
    struct hdf5_sink *s = (struct hdf5_sink *)sink;
    int rc = 0;
    if (s->rows != RECORDS_ROWS_UNKNOWN && sink->rows != s->rows)
        rc = error_set(err, QUIRE_ERANGE, "%llu rows were announced, %llu were written", (unsigned long long)s->rows,
                       (unsigned long long)sink->rows);
    if (close_file(s) < 0 && rc == 0)
        rc = unwritable(s, "its end", err);
    if (rc == 0)
        rc = records_publish(s->temporary, s->path, err);
    if (rc < 0)
        unlink(s->temporary);
    hdf5_abort(sink);
    return rc;
}

static const struct records_sink_ops hdf5_sink_ops = {hdf5_write, hdf5_finish, hdf5_abort, NULL};

static int create_file(struct hdf5_sink *s, const struct records_into *into, struct quire_error *err)
{
    hdf5_id type = hdf5_lib_type(&s->lib, into->type);
    s->path = strdup(into->path);
    s->temporary = records_temporary_name(into->path);
    if (!s->path || !s->temporary)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", into->path);
    s->file = s->lib.Fcreate(s->temporary, HDF5_EXCLUSIVE, HDF5_DEFAULT, HDF5_DEFAULT);
    if (s->file < 0)
        return error_set(err, QUIRE_EIO, "cannot create %s: does the folder exist, and may you write there?",
                         s->temporary);
    s->vectors = create_dataset(s, into->names.vector ? into->names.vector : "train", type, into->rows, into->dim);
    return s->vectors < 0 ? unwritable(s, "the vectors", err) : put_attributes(s, into->metric, err);
}

int hdf5_create(const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    if (strcmp(into->path, "-") == 0)
        return error_set(err, QUIRE_EUNSUPPORTED, "HDF5 is written to a file, not to standard output");
    if (into->truth && into->metric < 0)
        return error_set(err, QUIRE_EINVALID, "%s: --metric must say of which distance --truth is", into->path);
    struct hdf5_sink *s = records_new_sink(sizeof *s, &hdf5_sink_ops, into);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", into->path);
    s->file = s->vectors = -1;
    s->rows = into->rows;
    s->names[COLUMN_KEYS] = into->names.key ? into->names.key : "keys";
    s->names[COLUMN_ATTRIBUTES] = into->names.attributes ? into->names.attributes : "attributes";
    s->names[COLUMN_TENANTS] = into->names.tenants ? into->names.tenants : "tenants";
    for (int column = 0; column < COLUMNS; column++)
        s->columns[column] = -1;
    int rc = hdf5_lib_open(&s->lib, err);
    if (rc == 0)
        rc = create_file(s, into, err);
    if (rc == 0 && into->queries)
        rc = put_queries(s, into->queries, err);
    if (rc == 0 && into->truth)
        rc = put_truth(s, into->truth, into->metric, err);
    if (rc == 0 && into->truth && into->queries) {
        s->truth = strdup(into->truth);
        rc = s->truth ? truth_check_init(&s->check, into->queries, into->truth, (enum quire_metric)into->metric, err)
                      : error_set(err, QUIRE_ENOMEM, "no memory for a name");
    }
    if (rc < 0)
        hdf5_abort(&s->base);
    else
        *out = &s->base;
    return rc;
}
