/*
 * build_keys.c - the keys file (key -> row), the attributes file (row -> JSON) and columns of the latter.
 *
 * Keys of the user's own: one hash table of checked 4 KiB pages, addressed by the hash's upper half, each entry a full
 * 64-bit hash and a row. A look-up reads one page and then the block of the row, which holds the key itself (or its
 * place in the heap) and decides the match. Two thirds full on average; with 226 entries of 339 expected per page an
 * overflow is an 8-sigma event, and if it comes the table is laid out anew with a tenth more pages.
 * Keys that are row numbers need no hashing: KEYS_ROWS is an array of places.
 *
 * The heaps are checked record by record when read, and as whole sections by quire_verify, which cannot find the
 * records that no block points to.
 *
 * Duplicate keys are found here by sorting the hashes, and refused with both rows named.
 */
#include "index/build/build_priv.h"
#include "index/column/columns.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_ENTRIES_WANTED 226u
#define REPORT_EVERY          65536u /* rows */

struct hashed {
    uint64_t hash;
    uint32_t row, input;
};

static int by_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

static int refuse_duplicates(const struct build *b, const struct hashed *keys)
{
    for (uint32_t i = 1; i < b->n; i++)
        for (uint32_t j = i; j > 0 && keys[j - 1].hash == keys[i].hash; j--) {
            uint32_t x = keys[j - 1].input, y = keys[i].input, length = b->options.key_bytes[x];
            if (length == b->options.key_bytes[y] && memcmp(b->options.keys[x], b->options.keys[y], length) == 0)
                return error_set(b->err, QUIRE_EEXISTS,
                                 "rows %u and %u have the same key \"%.*s\": keys must be unique", x, y,
                                 (int)(length < 100 ? length : 100), (const char *)b->options.keys[x]);
        }
    return 0;
}

static bool pages_suffice(const struct hashed *keys, uint32_t n, uint32_t pages)
{
    uint32_t run = 0, before = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = format_key_bucket(keys[i].hash, pages);
        run = page == before ? run + 1 : 1;
        before = page;
        if (run > BUCKET_ENTRIES_MAX)
            return false;
    }
    return true;
}

static int write_buckets(struct build *b, struct section_writer *writer, const struct hashed *keys)
{
    uint8_t page[PAGE_BYTES];
    uint32_t at = 0;
    int rc = section_begin(writer, KEYS_BUCKETS, SECTION_SELF_CHECKED, b->err);
    for (uint32_t number = 0; rc == 0 && number < b->params.key_buckets; number++) {
        uint32_t n = 0;
        while (at + n < b->n && format_key_bucket(keys[at + n].hash, b->params.key_buckets) == number)
            n++;
        memset(page, 0, sizeof page);
        bytes_store_u32(page, n);
        for (uint32_t i = 0; i < n; i++) {
            bytes_store_u64(page + 8 + 8 * i, keys[at + i].hash);
            bytes_store_u32(page + 8 + 8 * n + 4 * i, keys[at + i].row);
        }
        at += n;
        assert(n <= BUCKET_ENTRIES_MAX);
        format_page_seal(page, number, b->segment_id);
        rc = section_write(writer, page, sizeof page, b->err);
    }
    assert(rc < 0 || at == b->n);
    return rc == 0 ? section_end(writer, b->err) : rc;
}

/* After a row of the whole. */
static int report_row(const struct build *b, const char *phase, uint32_t row)
{
    return row % REPORT_EVERY == 0 || row + 1 == b->n ? build_report(b, phase, row + 1, b->n) : 0;
}

/* A record of a heap. */
static int write_record(struct build *b, struct section_writer *writer, const void *bytes, uint32_t n)
{
    uint8_t header[RECORD_HEADER_BYTES];
    bytes_store_u64(header, format_record_checksum(bytes, n, b->segment_id));
    int rc = section_write(writer, header, sizeof header, b->err);
    return rc == 0 ? section_write(writer, bytes, n, b->err) : rc;
}

/* Where each key's record lies in the heap, for the blocks, which hold short keys themselves as well. */
int build_place_keys(struct build *b)
{
    uint64_t at = 0;
    assert(!b->external_at);
    if (!b->options.keys)
        return 0;
    b->external_at = malloc(sizeof(uint64_t) * b->n);
    for (uint32_t i = 0; b->external_at && i < b->n; i++) {
        b->external_at[i] = at;
        at += RECORD_HEADER_BYTES + b->options.key_bytes[i];
    }
    return b->external_at ? 0 : QUIRE_ENOMEM;
}

static int write_user_keys(struct build *b, struct section_writer *writer)
{
    struct hashed *keys = malloc(sizeof *keys * b->n);
    if (!keys)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < b->n; row++) {
        uint32_t input = b->order[row];
        keys[row] = (struct hashed){format_key_hash(b->options.keys[input], b->options.key_bytes[input]), row, input};
    }
    qsort(keys, b->n, sizeof *keys, by_hash);
    int rc = refuse_duplicates(b, keys);
    b->params.key_buckets = b->n / BUCKET_ENTRIES_WANTED + 1;
    while (rc == 0 && !pages_suffice(keys, b->n, b->params.key_buckets))
        b->params.key_buckets += b->params.key_buckets / 10 + 1;
    if (rc == 0)
        rc = write_buckets(b, writer, keys);
    free(keys);
    /* A record for each key, at the places that build_place_keys has noted. A key that fits may still have to leave its
     * block when its neighbours are long, so all are here. */
    uint64_t at = 0;
    if (rc == 0)
        rc = section_begin(writer, KEYS_HEAP, 0, b->err);
    for (uint32_t i = 0; rc == 0 && i < b->n; i++) {
        assert(b->external_at[i] == at);
        rc = write_record(b, writer, b->options.keys[i], b->options.key_bytes[i]);
        if (rc == 0)
            rc = report_row(b, "write keys", i);
        at += RECORD_HEADER_BYTES + b->options.key_bytes[i];
    }
    return rc == 0 ? section_end(writer, b->err) : rc;
}

static int write_row_numbers(struct build *b, struct section_writer *writer)
{
    uint32_t *places = malloc(sizeof(uint32_t) * b->n);
    if (!places)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < b->n; row++)
        places[b->order[row]] = row;
    uint8_t page[PAGE_BYTES];
    int rc = section_begin(writer, KEYS_ROWS, SECTION_SELF_CHECKED, b->err);
    for (uint32_t at = 0; rc == 0 && at < b->n; at += ROWS_PER_PAGE) {
        memset(page, 0, sizeof page);
        for (uint32_t i = 0; i < ROWS_PER_PAGE && at + i < b->n; i++)
            bytes_store_u32(page + 4 * i, places[at + i]);
        format_page_seal(page, at / ROWS_PER_PAGE, b->segment_id);
        rc = section_write(writer, page, sizeof page, b->err);
    }
    free(places);
    return rc == 0 ? section_end(writer, b->err) : rc;
}

int build_write_keys(struct build *b)
{
    struct section_writer *writer = NULL;
    int rc = build_section_writer(b, KEYS_NAME, FILE_KEYS, &writer);
    if (rc == 0)
        rc = b->options.keys ? write_user_keys(b, writer) : write_row_numbers(b, writer);
    return section_writer_conclude(writer, rc, b->err);
}

/* Bytes of the JSON of a row of the index, 0 for none. */
static uint32_t attribute_bytes(const struct build *b, uint32_t row)
{
    uint32_t input = b->order[row];
    return b->options.attributes[input] ? b->options.attribute_bytes[input] : 0;
}

/* The index and then the heap that it leads to. */
static int write_attributes(struct build *b)
{
    struct section_writer *writer = NULL;
    uint8_t page[PAGE_BYTES];
    uint64_t heap_at = 0, heap_bytes = 0;
    int rc = build_section_writer(b, ATTRIBUTES_NAME, FILE_ATTRIBUTES, &writer);
    if (rc == 0)
        rc = section_begin(writer, ATTRIBUTES_INDEX, 0, b->err);
    for (uint32_t at = 0; rc == 0 && at < b->n; at += ATTRIBUTES_PER_PAGE) {
        memset(page, 0, sizeof page);
        for (uint32_t i = 0; i < ATTRIBUTES_PER_PAGE && at + i < b->n; i++) {
            uint32_t bytes = attribute_bytes(b, at + i);
            if (bytes) {
                bytes_store_u64(page + 8 * i, (heap_at + 1) << 24 | bytes);
                heap_at += RECORD_HEADER_BYTES + bytes;
            }
        }
        format_page_seal(page, at / ATTRIBUTES_PER_PAGE, b->segment_id);
        rc = section_write(writer, page, sizeof page, b->err);
    }
    if (rc == 0)
        rc = section_end(writer, b->err);
    if (rc == 0)
        rc = section_begin(writer, ATTRIBUTES_HEAP, 0, b->err);
    for (uint32_t row = 0; rc == 0 && row < b->n; row++) {
        uint32_t bytes = attribute_bytes(b, row);
        if (bytes) {
            rc = write_record(b, writer, b->options.attributes[b->order[row]], bytes);
            heap_bytes += RECORD_HEADER_BYTES + bytes;
        }
        if (rc == 0)
            rc = report_row(b, "write attributes", row);
    }
    assert(rc < 0 || heap_bytes == heap_at);
    if (rc == 0)
        rc = section_end(writer, b->err);
    return section_writer_conclude(writer, rc, b->err);
}

/* A columns_source. */
static int give_attributes(void *context, uint32_t row, const char **text, uint32_t *bytes, struct quire_error *err)
{
    const struct build *b = context;
    (void)err;
    /* asked for several times, in order each time */
    if (row % REPORT_EVERY == 0 && build_report(b, "write columns", row, 0) < 0)
        return QUIRE_ECANCELLED;
    *text = b->options.attributes[b->order[row]];
    *bytes = attribute_bytes(b, row);
    return 0;
}

/* Of the memory that a search will have, columns that nobody asked for take at most one such part. */
#define LEARNT_SHARE 4u

static uint64_t learnt_bytes_max(const struct build *b)
{
    return b->options.memory_bytes ? b->options.memory_bytes / LEARNT_SHARE : UINT64_MAX;
}

/* They hardly take more than the texts that they are made of; where none is declared, the learnt ones have their share
 * and the rest is tenants. */
uint64_t build_columns_bytes(const struct build *b)
{
    uint64_t texts = 0, grants = 0;
    for (uint32_t i = 0; b->options.attributes && i < b->n; i++) {
        const char *json = NULL;
        uint32_t bytes = b->options.attributes[i] ? b->options.attribute_bytes[i] : 0, json_bytes = bytes, n = 0;
        texts += bytes;
        if (bytes && grants_split(b->options.attributes[i], bytes, &json, &json_bytes, &n) == 0)
            grants += bytes - json_bytes;
    }
    uint64_t learnt = grants + learnt_bytes_max(b);
    return b->options.n_columns || learnt < grants || texts < learnt ? texts : learnt;
}

int build_write_attributes(struct build *b)
{
    struct attribute_schema *schema = NULL;
    bool written = false;
    if (!b->options.attributes)
        return 0;
    int rc = write_attributes(b);
    if (rc < 0)
        return rc;
    char *path = build_file_path(b, COLUMNS_NAME);
    rc = path ? attribute_schema_create(b->options.columns, b->options.n_columns, &schema, b->err) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = columns_write(b->fs, path, b->segment_id, b->n, schema, learnt_bytes_max(b), give_attributes, b, &written,
                           b->err);
    if (rc == 0)
        b->params.has_columns = written;
    attribute_schema_destroy(schema);
    free(path);
    return rc;
}
