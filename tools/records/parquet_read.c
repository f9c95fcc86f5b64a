/*
 * parquet_read.c - rows out of Parquet files.
 *
 * A file is columns in groups of rows; the footer says where. Read are: flat columns (required or optional) and lists
 * of
 * them; the vector as a list of floats or doubles, or as bytes of one length (floats of 4 bytes, one after the other).
 * Which column is what follows from its name, as in JSON Lines: id, vector, attributes (a text of JSON), tenants; all
 * others join the attributes. What is nested, encoded or compressed otherwise is refused by name. The metric is known
 * where the file was written here (quire.metric).
 *
 * All columns are read side by side, a page of each in memory. Whole numbers are taken as they are stored, so dates and
 * times are the numbers of their unit; NaN and infinity in attributes become null, which JSON has.
 */
#include "io/bytes.h"
#include "io/error.h"
#include "tools/records/parquet_column.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOOTER_BYTES_MAX (256u << 20)
#define COLUMNS_MAX      4096u

enum part { PART_KEY, PART_VECTOR, PART_ATTRIBUTES, PART_TENANTS, PART_OTHER };
#define NAMES_MAX 5
static const char *const usual[PART_OTHER][NAMES_MAX] = {[PART_KEY] = {"id", "key", "_id"},
                                                         [PART_VECTOR] = {"vector", "embedding", "values"},
                                                         [PART_ATTRIBUTES] = {"attributes", "payload", "metadata"},
                                                         [PART_TENANTS] = {"tenants"}};

struct column {
    struct parquet_leaf leaf;
    enum part part;
    struct parquet_column *values; /* of the group that is read */
};

struct parquet_source {
    struct records_source base;
    int fd;
    struct parquet_meta meta;
    struct column *columns;
    uint32_t n_columns, group; /* group: the one after that which is read */
    int64_t group_left;        /* rows */
    uint64_t row;
    struct parquet_out others, joined; /* texts of a row that are put together */
    struct arena texts;
};

/* ---- the schema -------------------------------------------------------------------------------------------------- */

static enum part part_of(const char *name, const struct records_names *names, const struct parquet_leaf *leaf)
{
    const char *const given[PART_OTHER] = {names->key, names->vector, names->attributes, names->tenants};
    for (int part = 0; part < PART_OTHER; part++) {
        bool found = given[part] && strcmp(given[part], name) == 0;
        for (int i = 0; !given[part] && i < NAMES_MAX && usual[part][i]; i++)
            found |= strcmp(usual[part][i], name) == 0;
        /* attributes that are no text are a field like others */
        if (found && (part != PART_ATTRIBUTES || given[part] || leaf->type == PARQUET_BYTE_ARRAY))
            return (enum part)part;
    }
    return PART_OTHER;
}

static int refuse_column(const struct parquet_source *s, const char *name, const char *why, struct quire_error *err)
{
    return error_set(err, QUIRE_EUNSUPPORTED, "%s: column %s %s; flat columns and lists of numbers or texts are read",
                     s->base.name, name, why);
}

/* The column that begins at element *at, which is moved behind it. */
static int cut_column(const struct parquet_source *s, uint32_t *at, struct parquet_leaf *out, struct quire_error *err)
{
    const struct parquet_element *e = &s->meta.elements[*at], *last = s->meta.elements + s->meta.n_elements - 1;
    const struct parquet_element *leaf = e;
    *out = (struct parquet_leaf){.name = e->name};
    if (e->type < 0) { /* [optional] group { repeated group { [optional] leaf } }, or with the leaf repeated itself */
        if (e->children != 1 || e == last || e[1].repetition != PARQUET_REPEATED || e->repetition == PARQUET_REPEATED)
            return refuse_column(s, e->name, "is nested", err);
        leaf = e + 1;
        out->definition_max = (uint8_t)((e->repetition == PARQUET_OPTIONAL) + 1);
        out->element_definition = out->definition_max;
        out->repetition_max = 1;
        if (leaf->type < 0) {
            if (leaf->children != 1 || leaf == last || leaf[1].type < 0 || leaf[1].repetition == PARQUET_REPEATED)
                return refuse_column(s, e->name, "is nested", err);
            leaf++;
            out->definition_max = (uint8_t)(out->definition_max + (leaf->repetition == PARQUET_OPTIONAL));
        }
    } else {
        out->repetition_max = e->repetition == PARQUET_REPEATED;
        out->definition_max = e->repetition != PARQUET_REQUIRED;
        out->element_definition = out->repetition_max;
    }
    out->type = leaf->type;
    out->type_bytes = leaf->type_bytes;
    out->converted = leaf->converted;
    *at = (uint32_t)(leaf - s->meta.elements) + 1;
    if (out->type > PARQUET_FIXED || (out->type == PARQUET_FIXED && out->type_bytes < 1))
        return error_set(err, QUIRE_EFORMAT, "%s: the type of column %s is damaged", s->base.name, e->name);
    if (out->type == PARQUET_INT96)
        return refuse_column(s, e->name, "is of type INT96", err);
    if (out->converted == PARQUET_DECIMAL)
        return refuse_column(s, e->name, "is of type DECIMAL", err);
    return 0;
}

static int check_part(const struct parquet_source *s, const struct column *c, struct quire_error *err)
{
    const struct parquet_leaf *l = &c->leaf;
    bool list = l->repetition_max > 0, number = l->type == PARQUET_INT32 || l->type == PARQUET_INT64;
    bool right = true;
    if (c->part == PART_KEY)
        right = !list && (number || l->type == PARQUET_BYTE_ARRAY);
    else if (c->part == PART_VECTOR)
        right =
            list ? l->type == PARQUET_FLOAT || l->type == PARQUET_DOUBLE
                 : l->type == PARQUET_FIXED && l->type_bytes % 4 == 0 && l->type_bytes <= (int32_t)(4 * QUIRE_DIM_MAX);
    else if (c->part == PART_ATTRIBUTES)
        right = !list && l->type == PARQUET_BYTE_ARRAY;
    else if (c->part == PART_TENANTS)
        right = l->type == PARQUET_BYTE_ARRAY;
    else if (l->type == PARQUET_FIXED)
        return refuse_column(s, l->name, "is of type FIXED_LEN_BYTE_ARRAY, which is read as the vector only", err);
    static const char *const wanted[] = {"a text or a whole number",
                                         "a list of floats, or floats in bytes of one length", "a text of JSON",
                                         "a list of names, or a text with spaces between them"};
    if (right)
        return 0;
    return error_set(err, QUIRE_ETYPE, "%s: column %s must be %s: --%s-field names another", s->base.name, l->name,
                     wanted[c->part],
                     c->part == PART_KEY       ? "key"
                     : c->part == PART_VECTOR  ? "vector"
                     : c->part == PART_TENANTS ? "tenants"
                                               : "attrs");
}

static int read_schema(struct parquet_source *s, const struct records_names *names, struct quire_error *err)
{
    const struct parquet_meta *meta = &s->meta;
    bool found[PART_OTHER] = {false};
    s->columns = calloc(meta->n_elements, sizeof *s->columns);
    if (!s->columns)
        return error_set(err, QUIRE_ENOMEM, "no memory for the columns of %s", s->base.name);
    for (uint32_t at = 1; at < meta->n_elements;) {
        struct column *c = &s->columns[s->n_columns];
        int rc = s->n_columns == COLUMNS_MAX
                     ? error_set(err, QUIRE_ELIMIT, "%s has more than %u columns", s->base.name, COLUMNS_MAX)
                     : cut_column(s, &at, &c->leaf, err);
        if (rc < 0)
            return rc;
        c->part = part_of(c->leaf.name, names, &c->leaf);
        if (c->part < PART_OTHER && found[c->part])
            c->part = PART_OTHER; /* "id" and "key" both: the first counts */
        if (c->part < PART_OTHER)
            found[c->part] = true;
        s->n_columns++;
        rc = check_part(s, c, err);
        if (rc < 0)
            return rc;
    }
    for (uint32_t g = 0; g < meta->n_groups; g++)
        if (meta->groups[g].n_chunks != s->n_columns || meta->groups[g].rows < 0)
            return error_set(err, QUIRE_EFORMAT, "%s: a group of rows has other columns than the schema", s->base.name);
    s->base.may_have =
        RECORDS_ATTRIBUTES | (found[PART_KEY] ? RECORDS_KEYS : 0) | (found[PART_TENANTS] ? RECORDS_TENANTS : 0);
    if (found[PART_VECTOR])
        return 0;
    return error_set(err, QUIRE_ENOTFOUND,
                     "%s has no column \"%s\" with the vector: --vector-field says what it is called", s->base.name,
                     names->vector ? names->vector : "vector\", \"embedding\" or \"values");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void close_group(struct parquet_source *s)
{
    for (uint32_t i = 0; i < s->n_columns; i++) {
        parquet_column_close(s->columns[i].values);
        s->columns[i].values = NULL;
    }
}

/* 1: there is another row; 0: no more. */
static int enter_group(struct parquet_source *s, struct quire_error *err)
{
    while (s->group_left == 0) {
        close_group(s);
        if (s->group == s->meta.n_groups)
            return 0;
        const struct parquet_group *g = &s->meta.groups[s->group++];
        s->group_left = g->rows;
        for (uint32_t i = 0; i < s->n_columns && g->rows; i++) {
            int rc = parquet_column_open(s->fd, s->base.name, &s->columns[i].leaf, &g->chunks[i], &s->columns[i].values,
                                         err);
            if (rc < 0)
                return rc;
        }
    }
    return 1;
}

static int short_column(const struct parquet_source *s, const struct column *c, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "%s: column %s has fewer values than its group has rows", s->base.name,
                     c->leaf.name);
}

/* The next value of this row, the first if `first`. 1; 0: the row has no more; *out has bytes NULL for a null. */
static int next_value(struct parquet_source *s, struct column *c, bool first, struct parquet_value *out,
                      struct quire_error *err)
{
    uint8_t repetition = 0;
    int rc = parquet_column_peek(c->values, &repetition, err);
    if (rc < 0 || (!first && (rc == 0 || repetition == 0)))
        return rc < 0 ? rc : 0;
    if (rc == 0 || (first && repetition != 0))
        return short_column(s, c, err);
    rc = parquet_column_next(c->values, out, err);
    if (rc == 1 && c->leaf.repetition_max && out->definition < c->leaf.element_definition)
        return 0; /* an empty list, or none */
    return rc;
}

static double real_of(const struct parquet_leaf *leaf, const struct parquet_value *v)
{
    float f;
    double d;
    if (leaf->type == PARQUET_FLOAT) {
        memcpy(&f, v->bytes, sizeof f);
        return (double)f;
    }
    memcpy(&d, v->bytes, sizeof d);
    return d;
}

static int whole_text(const struct parquet_leaf *leaf, const struct parquet_value *v, char *out, size_t capacity)
{
    if (leaf->type == PARQUET_INT64)
        return leaf->converted == PARQUET_UINT_64
                   ? snprintf(out, capacity, "%llu", (unsigned long long)bytes_load_u64(v->bytes))
                   : snprintf(out, capacity, "%lld", (long long)bytes_load_u64(v->bytes));
    return leaf->converted == PARQUET_UINT_32 ? snprintf(out, capacity, "%u", bytes_load_u32(v->bytes))
                                              : snprintf(out, capacity, "%d", (int)bytes_load_u32(v->bytes));
}

static int take_vector(struct parquet_source *s, struct column *c, float *out, struct quire_error *err)
{
    struct parquet_value v;
    uint32_t n = 0;
    int rc = next_value(s, c, true, &v, err);
    for (; rc == 1; rc = next_value(s, c, false, &v, err)) {
        if (!v.bytes)
            break;
        if (c->leaf.type == PARQUET_FIXED) {
            memcpy(out, v.bytes, v.n);
            n = v.n / 4;
            rc = 0;
            break;
        }
        if (n < s->base.dim)
            out[n] = (float)real_of(&c->leaf, &v);
        n++;
    }
    if (rc < 0)
        return rc;
    if (n == s->base.dim && rc == 0)
        return records_check_finite(s->base.name, out, s->row, 1, s->base.dim, err);
    return error_set(err, QUIRE_EDIM, "%s: the vector of row %llu has %u dimensions%s; expected %u", s->base.name,
                     (unsigned long long)s->row, n, rc == 1 ? " and then a null" : "", s->base.dim);
}

static int put_string(struct parquet_source *s, const struct column *c, const char *text, size_t bytes,
                      struct parquet_out *out, struct quire_error *err)
{
    json_t *string = json_stringn(text, bytes);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    json_decref(string);
    if (!quoted)
        return error_set(err, QUIRE_EINVALID, "%s: column %s of row %llu is not UTF-8, which attributes cannot hold",
                         s->base.name, c->leaf.name, (unsigned long long)s->row);
    parquet_put_bytes(out, quoted, strlen(quoted));
    free(quoted);
    return 0;
}

static int put_value(struct parquet_source *s, const struct column *c, const struct parquet_value *v,
                     struct parquet_out *out, struct quire_error *err)
{
    char text[64];
    int n = 0;
    if (!v->bytes)
        n = snprintf(text, sizeof text, "null");
    else if (c->leaf.type == PARQUET_BOOLEAN)
        n = snprintf(text, sizeof text, "%s", *v->bytes ? "true" : "false");
    else if (c->leaf.type == PARQUET_FLOAT || c->leaf.type == PARQUET_DOUBLE)
        n = isfinite(real_of(&c->leaf, v))
                ? snprintf(text, sizeof text, c->leaf.type == PARQUET_FLOAT ? "%.9g" : "%.17g", real_of(&c->leaf, v))
                : snprintf(text, sizeof text, "null");
    else if (c->leaf.type == PARQUET_BYTE_ARRAY)
        return put_string(s, c, (const char *)v->bytes, v->n, out, err);
    else
        n = whole_text(&c->leaf, v, text, sizeof text);
    parquet_put_bytes(out, text, (size_t)n);
    return 0;
}

/* A column that is nothing else: "name":value, unless it is null. */
static int take_other(struct parquet_source *s, struct column *c, struct quire_error *err)
{
    struct parquet_value v = {0};
    bool list = c->leaf.repetition_max > 0;
    int rc = next_value(s, c, true, &v, err);
    if (rc < 0 || (rc == 1 && !list && !v.bytes))
        return rc < 0 ? rc : 0;
    if (rc == 0 && v.definition + 1 < c->leaf.element_definition)
        return 0; /* no list at all */
    int put = 0;
    parquet_put_bytes(&s->others, s->others.n ? "," : "{", 1);
    put = put_string(s, c, c->leaf.name, strlen(c->leaf.name), &s->others, err);
    parquet_put_bytes(&s->others, list ? ":[" : ":", list ? 2 : 1);
    if (!list)
        return put < 0 ? put : put_value(s, c, &v, &s->others, err);
    for (bool first = true; rc == 1 && put == 0; first = false) {
        if (!first)
            parquet_put_bytes(&s->others, ",", 1);
        put = put_value(s, c, &v, &s->others, err);
        if (put == 0)
            rc = next_value(s, c, false, &v, err);
    }
    parquet_put_bytes(&s->others, "]", 1);
    return rc < 0 ? rc : put;
}

static int take_tenants(struct parquet_source *s, struct column *c, struct record *r, struct quire_error *err)
{
    struct parquet_value v;
    s->joined.n = 0;
    int rc = next_value(s, c, true, &v, err);
    while (rc == 1) {
        if (v.bytes && s->joined.n)
            parquet_put_bytes(&s->joined, " ", 1);
        if (v.bytes)
            parquet_put_bytes(&s->joined, v.bytes, v.n);
        rc = c->leaf.repetition_max ? next_value(s, c, false, &v, err) : 0;
    }
    if (rc < 0 || s->joined.n == 0)
        return rc;
    rc = records_check_tenants(s->base.name, s->row, (const char *)s->joined.bytes, s->joined.n, err);
    if (rc == 0 && (s->joined.failed || !records_keep(&s->texts, (const char *)s->joined.bytes, s->joined.n,
                                                      &r->tenants, &r->tenant_bytes)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for tenants");
    return rc;
}

static int take_text(struct parquet_source *s, struct column *c, const char **out, uint32_t *out_bytes,
                     struct quire_error *err)
{
    struct parquet_value v;
    char number[32];
    int rc = next_value(s, c, true, &v, err);
    if (rc < 0 || !v.bytes)
        return rc < 0 ? rc : 0;
    const char *text = (const char *)v.bytes;
    size_t bytes = v.n;
    if (c->leaf.type != PARQUET_BYTE_ARRAY) {
        bytes = (size_t)whole_text(&c->leaf, &v, number, sizeof number);
        text = number;
    }
    rc = c->part == PART_KEY ? records_check_key(s->base.name, s->row, text, bytes, err)
         : bytes             ? records_check_attributes(s->base.name, s->row, text, bytes, err)
                             : 0;
    if (rc == 0 && bytes && !records_keep(&s->texts, text, bytes, out, out_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for texts of %s", s->base.name);
    return rc;
}

/* The object, the columns that are nothing else, or both in one. */
static int join_attributes(struct parquet_source *s, struct record *r, struct quire_error *err)
{
    const char *inner = r->attributes;
    if (s->others.n == 0)
        return 0;
    if (inner) {
        inner += strspn(inner, " \t\r\n");
        inner += *inner == '{';
        inner += strspn(inner, " \t\r\n");
    }
    if (inner && *inner != '}') {
        parquet_put_bytes(&s->others, ",", 1);
        parquet_put_bytes(&s->others, inner, strlen(inner));
    } else {
        parquet_put_bytes(&s->others, "}", 1);
    }
    if (s->others.failed)
        return error_set(err, QUIRE_ENOMEM, "no memory for attributes");
    int rc = records_check_attributes(s->base.name, s->row, (const char *)s->others.bytes, s->others.n, err);
    if (rc == 0 &&
        !records_keep(&s->texts, (const char *)s->others.bytes, s->others.n, &r->attributes, &r->attribute_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for attributes");
    return rc;
}

static int take_row(struct parquet_source *s, float *vector, struct record *r, struct quire_error *err)
{
    int rc = 0;
    s->others.n = 0;
    for (uint32_t i = 0; rc == 0 && i < s->n_columns; i++) {
        struct column *c = &s->columns[i];
        switch (c->part) {
        case PART_KEY:
            rc = take_text(s, c, &r->key, &r->key_bytes, err);
            break;
        case PART_VECTOR:
            rc = take_vector(s, c, vector, err);
            break;
        case PART_ATTRIBUTES:
            rc = take_text(s, c, &r->attributes, &r->attribute_bytes, err);
            break;
        case PART_TENANTS:
            rc = take_tenants(s, c, r, err);
            break;
        case PART_OTHER:
            rc = take_other(s, c, err);
            break;
        }
    }
    return rc == 0 ? join_attributes(s, r, err) : rc;
}

static int64_t parquet_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                            struct quire_error *err)
{
    struct parquet_source *s = (struct parquet_source *)source;
    uint64_t got = 0;
    arena_reset(&s->texts);
    while (got < n) {
        int rc = enter_group(s, err);
        if (rc == 0)
            break;
        if (rc == 1)
            rc = take_row(s, (float *)vectors + got * source->dim, &records[got], err);
        if (rc < 0)
            return rc;
        got++;
        s->row++;
        s->group_left--;
    }
    return (int64_t)got;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void parquet_close(struct records_source *source)
{
    struct parquet_source *s = (struct parquet_source *)source;
    close_group(s);
    if (s->fd >= 0)
        close(s->fd);
    parquet_meta_fini(&s->meta);
    arena_fini(&s->texts);
    free(s->columns);
    free(s->others.bytes);
    free(s->joined.bytes);
    free(source->name);
    free(s);
}

static const struct records_source_ops parquet_source_ops = {parquet_read, parquet_close};

static int read_footer(struct parquet_source *s, const char *path, struct quire_error *err)
{
    struct stat st;
    uint8_t tail[8], *footer = NULL;
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st) != 0)
        return error_set_errno(err, errno, "cannot open", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, QUIRE_EINVALID, "%s is not a plain file, and Parquet begins at its end", path);
    uint64_t bytes = (uint64_t)st.st_size;
    if (bytes < 12)
        return error_set(err, QUIRE_ETRUNCATED, "%s has %llu bytes: no Parquet file is so short", path,
                         (unsigned long long)bytes);
    int rc = records_pread(s->fd, path, tail, sizeof tail, bytes - sizeof tail, err);
    if (rc < 0)
        return rc;
    uint32_t n = bytes_load_u32(tail);
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return error_set(err, QUIRE_EUNSUPPORTED, "%s is encrypted", path);
    if (memcmp(tail + 4, "PAR1", 4) != 0 || n > bytes - 12)
        return error_set(err, QUIRE_EFORMAT, "%s does not end as a Parquet file: it is cut off, or something else",
                         path);
    if (n > FOOTER_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s has a footer of %u bytes; the limit is %u", path, n, FOOTER_BYTES_MAX);
    footer = malloc((size_t)n + 1);
    if (!footer)
        return error_set(err, QUIRE_ENOMEM, "no memory for the footer of %s", path);
    rc = records_pread(s->fd, path, footer, n, bytes - 8 - n, err);
    if (rc == 0)
        rc = parquet_meta_decode(path, footer, n, &s->meta, err);
    free(footer);
    return rc;
}

static int metric_of(const struct parquet_meta *meta)
{
    static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};
    for (size_t i = 0; meta->metric && i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(meta->metric, quire_metric_name(metrics[i])) == 0)
            return (int)metrics[i];
    return RECORDS_METRIC_UNKNOWN;
}

/* Dimensions of the first row. */
static int find_dim(struct parquet_source *s, struct quire_error *err)
{
    uint32_t v = 0;
    struct parquet_value value;
    while (s->columns[v].part != PART_VECTOR)
        v++;
    struct column *c = &s->columns[v];
    if (c->leaf.type == PARQUET_FIXED) {
        s->base.dim = (uint32_t)c->leaf.type_bytes / 4;
        return 0;
    }
    uint32_t g = 0;
    while (g < s->meta.n_groups && s->meta.groups[g].rows == 0)
        g++;
    if (g == s->meta.n_groups)
        return error_set(err, QUIRE_ETRUNCATED, "%s has no row", s->base.name);
    int rc = parquet_column_open(s->fd, s->base.name, &c->leaf, &s->meta.groups[g].chunks[v], &c->values, err);
    uint32_t n = 0;
    if (rc == 0)
        for (rc = next_value(s, c, true, &value, err); rc == 1 && n <= QUIRE_DIM_MAX; n++)
            rc = next_value(s, c, false, &value, err);
    parquet_column_close(c->values);
    c->values = NULL;
    s->base.dim = n;
    if (rc >= 0 && (n < 1 || n > QUIRE_DIM_MAX))
        rc = error_set(err, QUIRE_EDIM, "%s: the vector of row 0 has %u dimensions; expected 1 to %u", s->base.name, n,
                       QUIRE_DIM_MAX);
    return rc < 0 ? rc : 0;
}

int parquet_open(const struct records_from *from, struct records_source **out, struct quire_error *err)
{
    struct parquet_source *s = records_new_source(sizeof *s, &parquet_source_ops, from->path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", from->path);
    s->fd = -1;
    s->base.type = QUIRE_TYPE_F32;
    int rc = strcmp(from->path, "-") == 0
                 ? error_set(err, QUIRE_EUNSUPPORTED, "Parquet begins at its end: it is read from a file, not a pipe")
                 : read_footer(s, from->path, err);
    if (rc == 0) {
        s->base.metric = metric_of(&s->meta);
        rc = read_schema(s, &from->names, err);
    }
    for (uint32_t g = 0; rc == 0 && g < s->meta.n_groups; g++) {
        uint64_t before = g ? s->base.rows : 0;
        s->base.rows = before + (uint64_t)s->meta.groups[g].rows;
    }
    if (rc == 0 && (s->meta.n_groups == 0 || s->base.rows != (uint64_t)s->meta.rows))
        rc = error_set(err, QUIRE_EFORMAT, "%s: its groups have other rows than it says, or none", from->path);
    if (rc == 0)
        rc = find_dim(s, err);
    if (rc < 0)
        parquet_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
