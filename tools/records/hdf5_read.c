/*
 * hdf5_read.c - rows out of HDF5 files, as ann-benchmarks lays them out.
 *
 *     /train       rows x dim: the vectors (or the dataset that --vector names, such as test)
 *     /test        queries; /neighbors, /distances: queries x k, the nearest rows and how far they are
 *     /keys, /attributes, /tenants   one text per row: written by this program, read where they are there
 *     attributes of the file: distance ("euclidean", "angular"), type ("dense"), dimension
 *
 * f32, f16, i8 and u8 are read as they are; f64 is rounded to f32. Whole numbers of other widths may not fit into f32
 * and are refused, and so are "sparse" files, whose rows are sets. distances are lengths: those of "euclidean" are
 * squared here, as Quire has them.
 */
#include "datasets/vecfile.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/records/hdf5_lib.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum column { COLUMN_KEYS, COLUMN_ATTRIBUTES, COLUMN_TENANTS, COLUMNS };

struct text_column {
    hdf5_id dataset, type; /* dataset < 0: there is none */
    size_t fixed_bytes;    /* of a fixed text; 0: texts of any length; SIZE_MAX: whole numbers */
};

struct hdf5_source {
    struct records_source base;
    struct hdf5_lib lib;
    hdf5_id file, vectors;
    struct text_column columns[COLUMNS];
    uint64_t row;
    struct arena texts;
};

static int unreadable(const char *name, const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "%s: HDF5 cannot read %s: the file is damaged or was not closed", name, what);
}

static int open_file(const struct hdf5_lib *lib, const char *path, hdf5_id *out, struct quire_error *err)
{
    if (access(path, R_OK) != 0)
        return error_set_errno(err, errno, "cannot open", path);
    *out = lib->Fopen(path, HDF5_READ_ONLY, HDF5_DEFAULT);
    return *out < 0 ? error_set(err, QUIRE_EFORMAT, "%s is not a whole HDF5 file", path) : 0;
}

/* A text attribute of the file into `out`; false: it has none. */
static bool file_attribute(const struct hdf5_lib *lib, hdf5_id file, const char *name, char *out, size_t capacity)
{
    if (lib->Aexists(file, name) <= 0)
        return false;
    hdf5_id attribute = lib->Aopen(file, name, HDF5_DEFAULT), type = attribute < 0 ? -1 : lib->Aget_type(attribute);
    hdf5_id space = attribute < 0 ? -1 : lib->Aget_space(attribute);
    bool found = false;
    if (type >= 0 && space >= 0 && lib->Tget_class(type) == HDF5_STRING && lib->Sget_simple_extent_ndims(space) == 0) {
        size_t bytes = lib->Tget_size(type);
        char *text = NULL, fixed[256] = {0};
        if (lib->Tis_variable_str(type) > 0) {
            if (lib->Aread(attribute, type, &text) >= 0 && text) {
                found = snprintf(out, capacity, "%s", text) >= 0;
                lib->Dvlen_reclaim(type, space, HDF5_DEFAULT, &text);
            }
        } else if (bytes < sizeof fixed && lib->Aread(attribute, type, fixed) >= 0) {
            found = snprintf(out, capacity, "%s", fixed) >= 0;
        }
    }
    if (space >= 0)
        lib->Sclose(space);
    if (type >= 0)
        lib->Tclose(type);
    if (attribute >= 0)
        lib->Aclose(attribute);
    return found;
}

static int metric_of(const struct hdf5_lib *lib, hdf5_id file)
{
    static const struct {
        const char *name;
        enum quire_metric metric;
    } metrics[] = {{"euclidean", QUIRE_METRIC_L2},    {"l2", QUIRE_METRIC_L2},  {"angular", QUIRE_METRIC_COSINE},
                   {"cosine", QUIRE_METRIC_COSINE},   {"dot", QUIRE_METRIC_IP}, {"ip", QUIRE_METRIC_IP},
                   {"inner_product", QUIRE_METRIC_IP}};
    char text[64];
    if (file_attribute(lib, file, "distance", text, sizeof text))
        for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
            if (strcmp(text, metrics[i].name) == 0)
                return (int)metrics[i].metric;
    return RECORDS_METRIC_UNKNOWN;
}

/* A dataset of `axes` axes. -1 in *out: the file has none of this name. */
static int open_dataset(const struct hdf5_lib *lib, hdf5_id file, const char *path, const char *name, int axes,
                        hdf5_id *out, hdf5_size sizes[2], struct quire_error *err)
{
    *out = -1;
    if (lib->Lexists(file, name, HDF5_DEFAULT) <= 0)
        return 0;
    hdf5_id dataset = lib->Dopen2(file, name, HDF5_DEFAULT), space = dataset < 0 ? -1 : lib->Dget_space(dataset);
    int found = space < 0 ? -1 : lib->Sget_simple_extent_ndims(space), rc = 0;
    if (found < 0)
        rc = error_set(err, QUIRE_EFORMAT, "%s: /%s is not a dataset", path, name);
    else if (found != axes)
        rc = error_set(err, QUIRE_EFORMAT, "%s: the dataset %s has %d axes; expected %d", path, name, found, axes);
    else if (lib->Sget_simple_extent_dims(space, sizes, NULL) < 0)
        rc = unreadable(path, name, err);
    if (space >= 0)
        lib->Sclose(space);
    if (rc == 0)
        *out = dataset;
    else if (dataset >= 0)
        lib->Dclose(dataset);
    return rc;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static int open_column(struct hdf5_source *s, int column, const char *given, const char *const usual[2],
                       struct quire_error *err)
{
    struct text_column *c = &s->columns[column];
    hdf5_size sizes[2] = {0};
    const char *name = given;
    int rc = 0;
    for (int i = 0; rc == 0 && c->dataset < 0 && i < (given ? 1 : 2); i++) {
        name = given ? given : usual[i];
        rc = name ? open_dataset(&s->lib, s->file, s->base.name, name, 1, &c->dataset, sizes, err) : 0;
    }
    if (rc < 0 || (c->dataset < 0 && !given))
        return rc;
    if (c->dataset < 0)
        return error_set(err, QUIRE_ENOTFOUND, "%s has no dataset %s", s->base.name, name);
    if (sizes[0] != s->base.rows) {
        if (given)
            return error_set(err, QUIRE_EINVALID, "%s: %s has %llu rows, the vectors have %llu", s->base.name, name,
                             sizes[0], (unsigned long long)s->base.rows);
        s->lib.Dclose(c->dataset); /* they belong to other vectors: keys of train, and test is read */
        c->dataset = -1;
        return 0;
    }
    c->type = s->lib.Dget_type(c->dataset);
    int class = c->type < 0 ? -1 : s->lib.Tget_class(c->type);
    if (class == HDF5_INTEGER && column == COLUMN_KEYS) {
        c->fixed_bytes = SIZE_MAX;
    } else if (class == HDF5_STRING) {
        c->fixed_bytes = s->lib.Tis_variable_str(c->type) > 0 ? 0 : s->lib.Tget_size(c->type);
        if (c->fixed_bytes > RECORDS_TEXT_BYTES_MAX)
            return error_set(err, QUIRE_ERANGE, "%s: texts of %s have %zu bytes", s->base.name, name, c->fixed_bytes);
    } else {
        return error_set(err, QUIRE_ETYPE, "%s: %s holds no texts", s->base.name, name);
    }
    s->base.may_have |= 1u << column;
    return 0;
}

/* One text of a row, checked and kept. */
static int take_text(struct hdf5_source *s, int column, uint64_t row, const char *text, size_t bytes,
                     struct record *record, struct quire_error *err)
{
    bool kept = true;
    int rc = 0;
    if (bytes == 0)
        return 0;
    if (column == COLUMN_KEYS) {
        rc = records_check_key(s->base.name, row, text, bytes, err);
        kept = rc == 0 && records_keep(&s->texts, text, bytes, &record->key, &record->key_bytes);
    } else if (column == COLUMN_ATTRIBUTES) {
        rc = records_check_attributes(s->base.name, row, text, bytes, err);
        kept = rc == 0 && records_keep(&s->texts, text, bytes, &record->attributes, &record->attribute_bytes);
    } else {
        rc = records_check_tenants(s->base.name, row, text, bytes, err);
        kept = rc == 0 && records_keep(&s->texts, text, bytes, &record->tenants, &record->tenant_bytes);
    }
    return rc == 0 && !kept ? error_set(err, QUIRE_ENOMEM, "no memory for texts of %s", s->base.name) : rc;
}

/* Row by row: texts have no bound but that of one row. */
static int read_texts(struct hdf5_source *s, int column, struct record *records, uint64_t n, struct quire_error *err)
{
    const struct text_column *c = &s->columns[column];
    size_t each = c->fixed_bytes == 0 ? sizeof(char *) : c->fixed_bytes == SIZE_MAX ? sizeof(int64_t) : c->fixed_bytes;
    char *buffer = calloc(1, memory_size_mul(n, each));
    hdf5_size count = n;
    int rc = 0;
    if (!buffer)
        return error_set(err, QUIRE_ENOMEM, "no memory for texts of %s", s->base.name);
    if (hdf5_lib_read(&s->lib, c->dataset, c->fixed_bytes == SIZE_MAX ? s->lib.i64 : c->type, s->row, n, 0, buffer) < 0)
        rc = unreadable(s->base.name, "texts", err);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        char number[32];
        const char *text = buffer + i * each;
        size_t bytes = c->fixed_bytes;
        if (c->fixed_bytes == SIZE_MAX) {
            int64_t value;
            memcpy(&value, text, sizeof value);
            bytes = (size_t)snprintf(number, sizeof number, "%lld", (long long)value);
            text = number;
        } else if (c->fixed_bytes == 0) {
            memcpy(&text, buffer + i * each, sizeof text);
            bytes = text ? strlen(text) : 0;
        } else {
            bytes = strnlen(text, bytes);
        }
        rc = take_text(s, column, s->row + i, text, bytes, &records[i], err);
    }
    if (c->fixed_bytes == 0) {
        hdf5_id space = s->lib.Screate_simple(1, &count, NULL);
        s->lib.Dvlen_reclaim(c->type, space, HDF5_DEFAULT, buffer);
        s->lib.Sclose(space);
    }
    free(buffer);
    return rc;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int64_t hdf5_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                         struct quire_error *err)
{
    struct hdf5_source *s = (struct hdf5_source *)source;
    int rc = 0;
    arena_reset(&s->texts);
    if (n > source->rows - s->row)
        n = source->rows - s->row;
    if (n == 0)
        return 0;
    if (hdf5_lib_read(&s->lib, s->vectors, hdf5_lib_type(&s->lib, source->type), s->row, n, source->dim, vectors) < 0)
        return unreadable(source->name, "the vectors", err);
    if (source->type == QUIRE_TYPE_F32)
        rc = records_check_finite(source->name, vectors, s->row, n, source->dim, err);
    for (uint64_t i = 0; rc == 0 && source->type == QUIRE_TYPE_F16 && i < n * source->dim; i++)
        if ((((const uint16_t *)vectors)[i] & 0x7c00) == 0x7c00)
            rc = error_set(err, QUIRE_ENOTFINITE, "row %llu of %s holds NaN or infinity: repair or leave out that row",
                           (unsigned long long)(s->row + i / source->dim), source->name);
    for (int column = 0; rc == 0 && column < COLUMNS; column++)
        if (s->columns[column].dataset >= 0)
            rc = read_texts(s, column, records, n, err);
    s->row += n;
    return rc < 0 ? rc : (int64_t)n;
}

static void hdf5_close(struct records_source *source)
{
    struct hdf5_source *s = (struct hdf5_source *)source;
    for (int column = 0; column < COLUMNS; column++) {
        if (s->columns[column].type >= 0)
            s->lib.Tclose(s->columns[column].type);
        if (s->columns[column].dataset >= 0)
            s->lib.Dclose(s->columns[column].dataset);
    }
    if (s->vectors >= 0)
        s->lib.Dclose(s->vectors);
    if (s->file >= 0)
        s->lib.Fclose(s->file);
    hdf5_lib_close(&s->lib);
    arena_fini(&s->texts);
    free(source->name);
    free(s);
}

static const struct records_source_ops hdf5_source_ops = {hdf5_read, hdf5_close};

/* The type as which a dataset is read. */
static int vector_type(const struct hdf5_source *s, const char *name, enum quire_type *out, struct quire_error *err)
{
    hdf5_id type = s->lib.Dget_type(s->vectors);
    int class = type < 0 ? -1 : s->lib.Tget_class(type);
    size_t bytes = type < 0 ? 0 : s->lib.Tget_size(type);
    bool is_unsigned = class == HDF5_INTEGER && s->lib.Tget_sign(type) == HDF5_SIGN_NONE;
    if (type >= 0)
        s->lib.Tclose(type);
    if (class == HDF5_FLOAT && bytes >= 2 && bytes <= 8)
        *out = bytes == 2 ? QUIRE_TYPE_F16 : QUIRE_TYPE_F32;
    else if (class == HDF5_INTEGER && bytes == 1)
        *out = is_unsigned ? QUIRE_TYPE_U8 : QUIRE_TYPE_I8;
    else
        return error_set(err, QUIRE_ETYPE,
                         "%s: the dataset %s holds %s of %zu bytes; vectors are floats of 2, 4 or 8 bytes or whole "
                         "numbers of 1",
                         s->base.name, name, class == HDF5_INTEGER ? "whole numbers" : "values", bytes);
    return 0;
}

static int open_vectors(struct hdf5_source *s, const char *name, struct quire_error *err)
{
    hdf5_size sizes[2] = {0};
    char text[64];
    if (file_attribute(&s->lib, s->file, "type", text, sizeof text) && strcmp(text, "dense") != 0)
        return error_set(err, QUIRE_EUNSUPPORTED, "%s is of type %s, whose rows are sets; dense vectors are read",
                         s->base.name, text);
    int rc = open_dataset(&s->lib, s->file, s->base.name, name, 2, &s->vectors, sizes, err);
    if (rc == 0 && s->vectors < 0)
        rc = error_set(err, QUIRE_ENOTFOUND, "%s has no dataset %s: --vector names the one with the vectors",
                       s->base.name, name);
    if (rc == 0 && (sizes[1] < 1 || sizes[1] > QUIRE_DIM_MAX))
        rc = error_set(err, QUIRE_EDIM, "%s: the vectors of %s have %llu dimensions; expected 1 to %u", s->base.name,
                       name, sizes[1], QUIRE_DIM_MAX);
    s->base.rows = sizes[0];
    s->base.dim = (uint32_t)sizes[1];
    return rc < 0 ? rc : vector_type(s, name, &s->base.type, err);
}

int hdf5_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    static const char *const usual[COLUMNS][2] = {{"keys", "ids"}, {"attributes", NULL}, {"tenants", NULL}};
    const char *const given[COLUMNS] = {from->names.key, from->names.attributes, from->names.tenants};
    struct hdf5_source *s = records_new_source(sizeof *s, &hdf5_source_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    s->file = s->vectors = -1;
    for (int column = 0; column < COLUMNS; column++)
        s->columns[column] = (struct text_column){.dataset = -1, .type = -1};
    int rc = hdf5_lib_open(&s->lib, err);
    if (rc == 0)
        rc = open_file(&s->lib, from->path, &s->file, err);
    if (rc == 0)
        rc = open_vectors(s, from->names.vector ? from->names.vector : "train", err);
    if (rc == 0)
        s->base.metric = metric_of(&s->lib, s->file);
    for (int column = 0; rc == 0 && column < COLUMNS; column++)
        rc = open_column(s, column, given[column], usual[column], err);
    if (rc < 0)
        hdf5_close(&s->base);
    else
        *out = &s->base;
    return rc;
}

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

static int read_truth(const struct hdf5_lib *lib, hdf5_id file, const char *path, int metric, struct truth *out,
                      struct quire_error *err)
{
    hdf5_id neighbours = -1, distances = -1;
    hdf5_size sizes[2] = {0}, other[2] = {0};
    int32_t *ids = NULL;
    double *far = NULL;
    int rc = open_dataset(lib, file, path, "neighbors", 2, &neighbours, sizes, err);
    if (rc == 0)
        rc = open_dataset(lib, file, path, "distances", 2, &distances, other, err);
    if (rc == 0 && (neighbours < 0 || distances < 0))
        rc = error_set(err, QUIRE_ENOTFOUND, "%s has no datasets neighbors and distances", path);
    if (rc == 0 && (sizes[0] != other[0] || sizes[1] != other[1] || sizes[0] < 1 || sizes[0] > UINT32_MAX ||
                    sizes[1] < 1 || sizes[1] > QUIRE_K_MAX))
        rc = error_set(err, QUIRE_EFORMAT, "%s: neighbors has %llu x %llu, distances %llu x %llu; expected the same",
                       path, sizes[0], sizes[1], other[0], other[1]);
    uint64_t n = sizes[0] * sizes[1];
    if (rc == 0) {
        ids = calloc(n, sizeof *ids);
        far = calloc(n, sizeof *far);
        *out = (struct truth){.n_queries = (uint32_t)sizes[0],
                              .k = (uint32_t)sizes[1],
                              .ids = malloc(memory_size_mul(n, sizeof *out->ids)),
                              .distances = malloc(memory_size_mul(n, sizeof *out->distances))};
        if (!ids || !far || !out->ids || !out->distances)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for the neighbours of %llu queries", sizes[0]);
    }
    if (rc == 0 && (hdf5_lib_read(lib, neighbours, lib->i32, 0, sizes[0], sizes[1], ids) < 0 ||
                    hdf5_lib_read(lib, distances, lib->f64, 0, sizes[0], sizes[1], far) < 0))
        rc = unreadable(path, "the neighbours", err);
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        out->ids[i] = ids[i] < 0 ? TRUTH_NONE : (uint32_t)ids[i];
        out->distances[i] = (float)(metric == QUIRE_METRIC_L2 ? far[i] * far[i] : far[i]);
    }
    if (neighbours >= 0)
        lib->Dclose(neighbours);
    if (distances >= 0)
        lib->Dclose(distances);
    free(ids);
    free(far);
    return rc;
}

int hdf5_truth_load(const char *path, struct truth *out, int *metric, struct quire_error *err)
{
    struct hdf5_lib lib = {0};
    hdf5_id file = -1;
    struct truth truth = {0};
    int rc = hdf5_lib_open(&lib, err);
    if (rc == 0)
        rc = open_file(&lib, path, &file, err);
    if (rc == 0) {
        *metric = metric_of(&lib, file);
        rc = read_truth(&lib, file, path, *metric, &truth, err);
    }
    if (file >= 0)
        lib.Fclose(file);
    hdf5_lib_close(&lib);
    if (rc < 0)
        truth_free(&truth);
    else
        *out = truth;
    return rc;
}
