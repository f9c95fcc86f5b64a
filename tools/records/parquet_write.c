/*
 * parquet_write.c - rows into Parquet files that any reader takes.
 *
 *     optional binary id (UTF8); required group vector (LIST) { repeated group list { required float element } };
 *     optional binary attributes (JSON); optional binary tenants (UTF8)
 *
 * Columns that the input cannot have are left out. Values are plain, pages v1 of about a MiB, compressed only if asked:
 * floats of embeddings do not get smaller. A group of rows is in memory until it is full (GROUP_BYTES), then its
 * columns
 * are written one after the other; the footer comes last. If a key is not UTF-8, id is not called so. A metric that is
 * known stands among the footer's keys and values (quire.metric), so that what is imported again has it.
 */
#include "io/array.h"
#include "io/error.h"
#include "tools/records/parquet_meta.h"
#include "tools/records/records_priv.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define GROUP_BYTES    (64u << 20)
#define GROUP_ROWS     (1u << 20)
#define PAGE_BYTES     (1u << 20)
#define ZSTD_LEVEL     3
#define GZIP_WINDOW    (15 + 16) /* gzip's head, which readers expect */
#define DEFLATE_MEMORY 8

enum column { COLUMN_KEY, COLUMN_VECTOR, COLUMN_ATTRIBUTES, COLUMN_TENANTS, COLUMNS };

struct text_column {
    struct parquet_out bytes; /* u32 length and text of each row that has one */
    uint8_t *present;         /* a byte per row of the group */
};

struct chunk {
    int64_t at, bytes, raw_bytes, n_values;
};
struct group {
    struct chunk chunks[COLUMNS];
    int64_t rows;
};

struct parquet_sink {
    struct records_sink base;
    struct records_file out;
    enum records_compression compression;
    int metric; /* of enum quire_metric, or RECORDS_METRIC_UNKNOWN */
    const char *names[COLUMNS];
    bool has[COLUMNS], keys_are_text;
    float *vectors; /* of the group */
    struct text_column texts[COLUMNS];
    uint32_t rows, rows_max; /* of the group */
    uint64_t written;        /* bytes of the file */
    struct group *groups;
    size_t n_groups, capacity;
};

static int no_memory(const struct parquet_sink *s, struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory to write %s", s->base.name);
}

static int put(struct parquet_sink *s, const void *bytes, size_t n, struct quire_error *err)
{
    if (n && fwrite(bytes, 1, n, s->out.file) != n)
        return error_set_errno(err, errno ? errno : EIO, "cannot write", s->base.name);
    s->written += n;
    return 0;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static int compress_page(struct parquet_sink *s, const struct parquet_out *raw, struct parquet_out *out,
                         struct quire_error *err)
{
    size_t bound = s->compression == RECORDS_ZSTD ? ZSTD_compressBound(raw->n) : compressBound(raw->n) + 32;
    out->bytes = malloc(bound);
    if (!out->bytes)
        return no_memory(s, err);
    if (s->compression == RECORDS_ZSTD) {
        out->n = ZSTD_compress(out->bytes, bound, raw->bytes, raw->n, ZSTD_LEVEL);
        return ZSTD_isError(out->n) ? error_set(err, QUIRE_EINTERNAL, "zstd: %s", ZSTD_getErrorName(out->n)) : 0;
    }
    z_stream z = {.next_in = raw->bytes, .avail_in = (uInt)raw->n, .next_out = out->bytes, .avail_out = (uInt)bound};
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, DEFLATE_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return no_memory(s, err);
    int rc = deflate(&z, Z_FINISH);
    out->n = z.total_out;
    deflateEnd(&z);
    return rc == Z_STREAM_END ? 0 : error_set(err, QUIRE_EINTERNAL, "zlib answers %d", rc);
}

/* raw: levels and values. */
static int put_page(struct parquet_sink *s, const struct parquet_out *raw, uint32_t n_values, struct chunk *chunk,
                    struct quire_error *err)
{
    struct parquet_out head = {0}, packed = {0};
    int rc = raw->failed ? no_memory(s, err) : 0;
    if (rc == 0 && s->compression != RECORDS_PLAIN)
        rc = compress_page(s, raw, &packed, err);
    const struct parquet_out *body = s->compression != RECORDS_PLAIN ? &packed : raw;
    if (rc == 0) {
        parquet_begin(&head, 0);
        parquet_put_i32(&head, 1, PARQUET_DATA_PAGE);
        parquet_put_i32(&head, 2, (int32_t)raw->n);
        parquet_put_i32(&head, 3, (int32_t)body->n);
        parquet_begin(&head, 5);
        parquet_put_i32(&head, 1, (int32_t)n_values);
        parquet_put_i32(&head, 2, PARQUET_PLAIN);
        parquet_put_i32(&head, 3, PARQUET_RLE);
        parquet_put_i32(&head, 4, PARQUET_RLE);
        parquet_end(&head);
        parquet_end(&head);
        rc = head.failed ? no_memory(s, err) : put(s, head.bytes, head.n, err);
    }
    if (rc == 0)
        rc = put(s, body->bytes, body->n, err);
    chunk->bytes += (int64_t)(head.n + body->n);
    chunk->raw_bytes += (int64_t)(head.n + raw->n);
    chunk->n_values += n_values;
    free(head.bytes);
    free(packed.bytes);
    return rc;
}

/* A run of one level, of one bit. */
static void put_run(struct parquet_out *out, uint32_t n, unsigned level)
{
    uint8_t byte = (uint8_t)level;
    parquet_put_varint(out, (uint64_t)n << 1);
    parquet_put_bytes(out, &byte, 1);
}

/* Levels stand behind their length. */
static void put_levels(struct parquet_out *out, struct parquet_out *levels)
{
    uint32_t n = (uint32_t)levels->n;
    uint8_t length[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    parquet_put_bytes(out, length, sizeof length);
    parquet_put_bytes(out, levels->bytes, levels->n);
    out->failed |= levels->failed;
    levels->n = 0;
}

static int put_vectors(struct parquet_sink *s, struct chunk *chunk, struct quire_error *err)
{
    struct parquet_out page = {0}, levels = {0};
    uint32_t dim = s->base.dim, per_page = PAGE_BYTES / (4 * dim) + 1;
    int rc = 0;
    for (uint32_t row = 0; rc == 0 && row < s->rows; row += per_page) {
        uint32_t n = s->rows - row < per_page ? s->rows - row : per_page;
        page.n = 0;
        for (uint32_t i = 0; i < n; i++) { /* a new list, and the elements that belong to it */
            put_run(&levels, 1, 0);
            if (dim > 1)
                put_run(&levels, dim - 1, 1);
        }
        put_levels(&page, &levels);
        put_run(&levels, n * dim, 1); /* all are there */
        put_levels(&page, &levels);
        parquet_put_bytes(&page, s->vectors + (size_t)row * dim, (size_t)n * dim * sizeof *s->vectors);
        rc = put_page(s, &page, n * dim, chunk, err);
    }
    free(page.bytes);
    free(levels.bytes);
    return rc;
}

static int put_texts(struct parquet_sink *s, const struct text_column *column, struct chunk *chunk,
                     struct quire_error *err)
{
    struct parquet_out page = {0}, levels = {0};
    size_t at = 0;
    int rc = column->bytes.failed ? no_memory(s, err) : 0;
    for (uint32_t row = 0; rc == 0 && row < s->rows;) {
        uint32_t first = row, run = 0;
        size_t begin = at;
        while (row < s->rows && at - begin < PAGE_BYTES) {
            uint32_t length;
            if (row > first && column->present[row] != column->present[row - 1]) {
                put_run(&levels, run, column->present[row - 1]);
                run = 0;
            }
            run++;
            if (column->present[row++]) {
                memcpy(&length, column->bytes.bytes + at, sizeof length);
                at += sizeof length + length;
            }
        }
        put_run(&levels, run, column->present[row - 1]);
        page.n = 0;
        put_levels(&page, &levels);
        if (at > begin)
            parquet_put_bytes(&page, column->bytes.bytes + begin, at - begin);
        rc = put_page(s, &page, row - first, chunk, err);
    }
    free(page.bytes);
    free(levels.bytes);
    return rc;
}

static int flush_group(struct parquet_sink *s, struct quire_error *err)
{
    int rc = 0;
    if (s->rows == 0)
        return 0;
    if (!array_reserve(&s->groups, &s->capacity, s->n_groups + 1))
        return no_memory(s, err);
    struct group *g = &s->groups[s->n_groups++];
    *g = (struct group){.rows = s->rows};
    for (int c = 0; rc == 0 && c < COLUMNS; c++) {
        g->chunks[c].at = (int64_t)s->written;
        if (c == COLUMN_VECTOR)
            rc = put_vectors(s, &g->chunks[c], err);
        else if (s->has[c])
            rc = put_texts(s, &s->texts[c], &g->chunks[c], err);
        s->texts[c].bytes.n = 0;
    }
    s->rows = 0;
    return rc;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void add_text(struct parquet_sink *s, int c, const char *text, uint32_t bytes)
{
    struct text_column *column = &s->texts[c];
    if (!s->has[c])
        return;
    column->present[s->rows] = text != NULL;
    if (!text)
        return;
    parquet_put_bytes(&column->bytes, &bytes, sizeof bytes); /* little-endian machines only, as all of kernels is */
    parquet_put_bytes(&column->bytes, text, bytes);
}

static bool is_utf8(const char *text, size_t bytes)
{
    json_t *string = json_stringn(text, bytes);
    json_decref(string);
    return string != NULL;
}

static int parquet_write(struct records_sink *sink, const void *vectors, const struct record *records, uint64_t n,
                         struct quire_error *err)
{
    struct parquet_sink *s = (struct parquet_sink *)sink;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < n; i++) {
        const struct record *r = &records[i];
        if ((r->key && !s->has[COLUMN_KEY]) || (r->tenants && !s->has[COLUMN_TENANTS]))
            return error_set(err, QUIRE_EINTERNAL, "a row has what its source said that none has");
        memcpy(s->vectors + (size_t)s->rows * sink->dim, (const float *)vectors + i * sink->dim,
               sink->dim * sizeof(float));
        s->keys_are_text = s->keys_are_text && (!r->key || is_utf8(r->key, r->key_bytes));
        add_text(s, COLUMN_KEY, r->key, r->key_bytes);
        add_text(s, COLUMN_ATTRIBUTES, r->attributes, r->attribute_bytes);
        add_text(s, COLUMN_TENANTS, r->tenants, r->tenant_bytes);
        size_t texts =
            s->texts[COLUMN_KEY].bytes.n + s->texts[COLUMN_ATTRIBUTES].bytes.n + s->texts[COLUMN_TENANTS].bytes.n;
        s->rows++;
        if (s->rows == s->rows_max || texts > GROUP_BYTES)
            rc = flush_group(s, err);
    }
    return rc;
}

/* ---- the footer -------------------------------------------------------------------------------------------------- */

static void put_element(struct parquet_out *out, const char *name, int type, int repetition, int children,
                        int converted)
{
    parquet_begin(out, 0);
    if (type >= 0)
        parquet_put_i32(out, 1, type);
    if (repetition >= 0)
        parquet_put_i32(out, 3, repetition);
    parquet_put_text(out, 4, name);
    if (children)
        parquet_put_i32(out, 5, children);
    if (converted >= 0)
        parquet_put_i32(out, 6, converted);
    parquet_end(out);
}

static void put_schema(const struct parquet_sink *s, struct parquet_out *out)
{
    int n = s->has[COLUMN_KEY] + s->has[COLUMN_ATTRIBUTES] + s->has[COLUMN_TENANTS] + 1;
    parquet_put_list(out, 2, PARQUET_ITEM_STRUCT, (uint32_t)n + 3);
    put_element(out, "schema", -1, -1, n, -1);
    if (s->has[COLUMN_KEY])
        put_element(out, s->names[COLUMN_KEY], PARQUET_BYTE_ARRAY, PARQUET_OPTIONAL, 0,
                    s->keys_are_text ? PARQUET_UTF8 : -1);
    put_element(out, s->names[COLUMN_VECTOR], -1, PARQUET_REQUIRED, 1, PARQUET_LIST);
    put_element(out, "list", -1, PARQUET_REPEATED, 1, -1);
    put_element(out, "element", PARQUET_FLOAT, PARQUET_REQUIRED, 0, -1);
    if (s->has[COLUMN_ATTRIBUTES])
        put_element(out, s->names[COLUMN_ATTRIBUTES], PARQUET_BYTE_ARRAY, PARQUET_OPTIONAL, 0, PARQUET_JSON);
    if (s->has[COLUMN_TENANTS])
        put_element(out, s->names[COLUMN_TENANTS], PARQUET_BYTE_ARRAY, PARQUET_OPTIONAL, 0, PARQUET_UTF8);
}

static void put_chunk(const struct parquet_sink *s, struct parquet_out *out, int c, const struct chunk *chunk)
{
    static const int codecs[] = {
        [RECORDS_PLAIN] = PARQUET_UNCOMPRESSED, [RECORDS_GZIP] = PARQUET_GZIP, [RECORDS_ZSTD] = PARQUET_ZSTD};
    parquet_begin(out, 0);
    parquet_put_i64(out, 2, chunk->at);
    parquet_begin(out, 3);
    parquet_put_i32(out, 1, c == COLUMN_VECTOR ? PARQUET_FLOAT : PARQUET_BYTE_ARRAY);
    parquet_put_list(out, 2, PARQUET_ITEM_I32, 2);
    parquet_put_item_i32(out, PARQUET_PLAIN);
    parquet_put_item_i32(out, PARQUET_RLE);
    parquet_put_list(out, 3, PARQUET_ITEM_TEXT, c == COLUMN_VECTOR ? 3 : 1);
    parquet_put_item_text(out, s->names[c]);
    if (c == COLUMN_VECTOR) {
        parquet_put_item_text(out, "list");
        parquet_put_item_text(out, "element");
    }
    parquet_put_i32(out, 4, codecs[s->compression]);
    parquet_put_i64(out, 5, chunk->n_values);
    parquet_put_i64(out, 6, chunk->raw_bytes);
    parquet_put_i64(out, 7, chunk->bytes);
    parquet_put_i64(out, 9, chunk->at);
    parquet_end(out);
    parquet_end(out);
}

static void put_group(const struct parquet_sink *s, struct parquet_out *out, const struct group *g)
{
    int64_t raw = 0;
    uint32_t n = 0;
    for (int c = 0; c < COLUMNS; c++) {
        n += s->has[c];
        raw += g->chunks[c].raw_bytes;
    }
    parquet_begin(out, 0);
    parquet_put_list(out, 1, PARQUET_ITEM_STRUCT, n);
    for (int c = 0; c < COLUMNS; c++)
        if (s->has[c])
            put_chunk(s, out, c, &g->chunks[c]);
    parquet_put_i64(out, 2, raw);
    parquet_put_i64(out, 3, g->rows);
    parquet_end(out);
}

static int put_footer(struct parquet_sink *s, struct quire_error *err)
{
    struct parquet_out out = {0};
    parquet_begin(&out, 0);
    parquet_put_i32(&out, 1, 1); /* version */
    put_schema(s, &out);
    parquet_put_i64(&out, 3, (int64_t)s->base.rows);
    parquet_put_list(&out, 4, PARQUET_ITEM_STRUCT, (uint32_t)s->n_groups);
    for (size_t i = 0; i < s->n_groups; i++)
        put_group(s, &out, &s->groups[i]);
    if (s->metric != RECORDS_METRIC_UNKNOWN) {
        parquet_put_list(&out, 5, PARQUET_ITEM_STRUCT, 1);
        parquet_begin(&out, 0);
        parquet_put_text(&out, 1, PARQUET_METRIC_KEY);
        parquet_put_text(&out, 2, quire_metric_name((enum quire_metric)s->metric));
        parquet_end(&out);
    }
    parquet_put_text(&out, 6, "quire");
    parquet_end(&out);
    uint32_t n = (uint32_t)out.n;
    int rc = out.failed || out.n > INT32_MAX ? no_memory(s, err) : put(s, out.bytes, out.n, err);
    uint8_t tail[8] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24), 'P', 'A', 'R', '1'};
    free(out.bytes);
    return rc == 0 ? put(s, tail, sizeof tail, err) : rc;
}

static void parquet_abort(struct records_sink *sink)
{
    struct parquet_sink *s = (struct parquet_sink *)sink;
    records_file_abort(&s->out);
    for (int c = 0; c < COLUMNS; c++) {
        free(s->texts[c].bytes.bytes);
        free(s->texts[c].present);
    }
    free(s->vectors);
    free(s->groups);
    free(sink->name);
    free(s);
}

static int parquet_finish(struct records_sink *sink, struct quire_error *err)
{
    struct parquet_sink *s = (struct parquet_sink *)sink;
    int rc = flush_group(s, err);
    if (rc == 0)
        rc = put_footer(s, err);
    if (rc == 0)
        rc = records_file_finish(&s->out, err);
    parquet_abort(sink);
    return rc;
}

static const struct records_sink_ops parquet_sink_ops = {parquet_write, parquet_finish, parquet_abort, NULL};

int parquet_create(const struct records_into *into, struct records_sink **out, struct quire_error *err)
{
    static const unsigned parts[COLUMNS] = {
        [COLUMN_KEY] = RECORDS_KEYS, [COLUMN_ATTRIBUTES] = RECORDS_ATTRIBUTES, [COLUMN_TENANTS] = RECORDS_TENANTS};
    const char *const given[COLUMNS] = {into->names.key, into->names.vector, into->names.attributes,
                                        into->names.tenants};
    static const char *const usual[COLUMNS] = {"id", "vector", "attributes", "tenants"};
    struct parquet_sink *s = records_new_sink(sizeof *s, &parquet_sink_ops, into);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", into->path);
    s->compression = into->compression;
    s->metric = into->metric;
    s->keys_are_text = true;
    s->rows_max = GROUP_BYTES / (4 * into->dim) + 1;
    if (s->rows_max > GROUP_ROWS)
        s->rows_max = GROUP_ROWS;
    s->vectors = malloc((size_t)s->rows_max * into->dim * sizeof *s->vectors);
    int rc = s->vectors ? 0 : no_memory(s, err);
    for (int c = 0; rc == 0 && c < COLUMNS; c++) {
        s->names[c] = given[c] ? given[c] : usual[c];
        s->has[c] = c == COLUMN_VECTOR || (into->may_have & parts[c]);
        s->texts[c].present = calloc(s->rows_max, 1);
        if (!s->texts[c].present)
            rc = no_memory(s, err);
    }
    if (rc == 0)
        rc = records_file_create(&s->out, into->path, err);
    if (rc == 0)
        rc = put(s, "PAR1", 4, err);
    if (rc < 0)
        parquet_abort(&s->base);
    else
        *out = &s->base;
    return rc;
}
