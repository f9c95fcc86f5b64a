/*
 * parquet_column.c - the values of a column: pages are read, decompressed and decoded one at a time.
 *
 * A page (v1 or v2) has repetition levels, definition levels and values. Levels and dictionary indexes are runs and
 * packed bits (RLE); values are plain, or indexes into the dictionary page before them. Other encodings are refused by
 * name. Memory: a page, as it is in the file and decompressed, its levels, and the dictionary; a page of more than
 * PAGE_BYTES_MAX is refused.
 */
#include "tools/records/parquet_column.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include "tools/records/records_priv.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define PAGE_BYTES_MAX   (256u << 20)
#define PAGE_VALUES_MAX  (64u << 20)
#define HEADER_BYTES     4096u
#define HEADER_BYTES_MAX (16u << 20) /* statistics may hold long texts */

struct parquet_column {
    int fd;
    const char *file;
    struct parquet_leaf leaf;
    int32_t codec;
    uint64_t at, end;
    int64_t left; /* values of the chunk that no page has brought yet */
    uint8_t *packed, *page, *dictionary;
    size_t dictionary_bytes;
    struct parquet_value *entries; /* of the dictionary */
    uint32_t n_entries;
    /* the page */
    uint32_t n, next, n_present, next_present;
    uint8_t *definitions, *repetitions; /* n each; NULL: all at the most, or 0 */
    uint32_t *indexes;                  /* n_present; NULL: plain values */
    const uint8_t *values, *values_end;
};

static int damaged(const struct parquet_column *c, const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "%s: column %s: %s", c->file, c->leaf.name, what);
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

bool parquet_unsnap(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t n)
{
    const uint8_t *end = in + in_bytes;
    uint64_t said = 0;
    size_t done = 0;
    unsigned shift = 0;
    do {
        if (in == end || shift > 28)
            return false;
        said |= (uint64_t)(*in & 0x7f) << shift;
        shift += 7;
    } while (*in++ & 0x80);
    if (said != n)
        return false;
    while (in < end) {
        uint8_t tag = *in++;
        size_t length = tag >> 2, offset = 0;
        if ((tag & 3) == 0) { /* bytes as they are */
            size_t more = length >= 60 ? length - 59 : 0;
            if ((size_t)(end - in) < more)
                return false;
            if (more)
                length = 0;
            for (size_t i = 0; i < more; i++)
                length |= (size_t)*in++ << (8 * i);
            length++;
            if (length > (size_t)(end - in) || length > n - done)
                return false;
            memcpy(out + done, in, length);
            in += length;
            done += length;
            continue;
        }
        size_t more = (tag & 3) == 1 ? 1 : (tag & 3) == 2 ? 2 : 4; /* bytes from before */
        if ((size_t)(end - in) < more)
            return false;
        for (size_t i = 0; i < more; i++)
            offset |= (size_t)*in++ << (8 * i);
        if ((tag & 3) == 1) {
            offset |= (size_t)(tag >> 5) << 8;
            length = (tag >> 2 & 7) + 4;
        } else {
            length++;
        }
        if (offset == 0 || offset > done || length > n - done)
            return false;
        for (size_t i = 0; i < length; i++, done++)
            out[done] = out[done - offset];
    }
    return done == n;
}

static bool inflate_gzip(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)in_bytes, .next_out = out, .avail_out = (uInt)n};
    if (inflateInit2(&z, 15 + 32) != Z_OK) /* gzip or zlib */
        return false;
    int rc;
    while ((rc = inflate(&z, Z_FINISH)) == Z_STREAM_END && z.avail_in > 0 && z.avail_out > 0)
        if (inflateReset(&z) != Z_OK) /* several members */
            break;
    bool ok = rc == Z_STREAM_END && z.total_out <= n && z.avail_out == 0;
    inflateEnd(&z);
    return ok;
}

static int decompress(const struct parquet_column *c, const uint8_t *in, size_t in_bytes, uint8_t *out, size_t n,
                      struct quire_error *err)
{
    bool ok = false;
    switch (c->codec) {
    case PARQUET_UNCOMPRESSED:
        ok = in_bytes == n;
        if (ok)
            memcpy(out, in, n);
        break;
    case PARQUET_SNAPPY:
        ok = parquet_unsnap(in, in_bytes, out, n);
        break;
    case PARQUET_GZIP:
        ok = inflate_gzip(in, in_bytes, out, n);
        break;
    case PARQUET_ZSTD:
        ok = ZSTD_decompress(out, n, in, in_bytes) == n;
        break;
    default:
        break;
    }
    return ok ? 0 : damaged(c, "a page cannot be decompressed", err);
}

/* ---- runs and packed bits ---------------------------------------------------------------------------------------- */

/* n numbers of `bits` bits; false: they are not all there. */
static bool runs(const uint8_t *at, const uint8_t *end, unsigned bits, uint32_t n, uint32_t *wide, uint8_t *narrow)
{
    uint32_t done = 0;
    while (done < n) {
        uint64_t head = 0;
        unsigned shift = 0;
        do {
            if (at == end || shift > 28)
                return false;
            head |= (uint64_t)(*at & 0x7f) << shift;
            shift += 7;
        } while (*at++ & 0x80);
        uint64_t count = head & 1 ? (head >> 1) * 8 : head >> 1;
        uint64_t bytes = head & 1 ? (head >> 1) * bits : (bits + 7) / 8;
        if (count == 0)
            return false;
        if (bytes > (uint64_t)(end - at)) {
            if (!(head & 1))
                return false;
            bytes = (uint64_t)(end - at); /* the last group may be cut off behind its values */
        }
        uint32_t value = 0;
        for (unsigned i = 0; !(head & 1) && i < bytes; i++)
            value |= (uint32_t)at[i] << (8 * i);
        for (uint64_t i = 0; i < count && done < n; i++) {
            if (head & 1) {
                uint64_t bit = i * bits, word = 0;
                if ((bit + bits + 7) / 8 > bytes)
                    return false;
                for (uint64_t b = bit / 8; b < (bit + bits + 7) / 8; b++)
                    word |= (uint64_t)at[b] << (8 * (b - bit / 8));
                value = (uint32_t)(word >> (bit % 8) & ((1ull << bits) - 1));
            }
            if (wide)
                wide[done++] = value;
            else
                narrow[done++] = (uint8_t)value;
        }
        at += bytes;
    }
    return true;
}

static unsigned bits_for(uint8_t most)
{
    unsigned bits = 0;
    while (most >> bits)
        bits++;
    return bits;
}

static int levels(struct parquet_column *c, const uint8_t *at, size_t bytes, uint8_t most, uint8_t **out,
                  struct quire_error *err)
{
    *out = malloc(c->n + 1);
    if (!*out)
        return error_set(err, QUIRE_ENOMEM, "no memory for a page of %s", c->file);
    if (!runs(at, at + bytes, bits_for(most), c->n, NULL, *out))
        return damaged(c, "levels of a page are damaged", err);
    for (uint32_t i = 0; i < c->n; i++)
        if ((*out)[i] > most)
            return damaged(c, "a level of a page is too high", err);
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The next plain value at *at. False: there is none. */
static bool plain(const struct parquet_leaf *leaf, const uint8_t **at, const uint8_t *end, struct parquet_value *out)
{
    static const uint32_t widths[] = {
        [PARQUET_INT32] = 4, [PARQUET_INT64] = 8, [PARQUET_FLOAT] = 4, [PARQUET_DOUBLE] = 8};
    uint32_t n = 0;
    size_t left = (size_t)(end - *at);
    if (leaf->type == PARQUET_BYTE_ARRAY) {
        if (left < 4)
            return false;
        n = bytes_load_u32(*at);
        *at += 4;
        left -= 4;
    } else {
        n = leaf->type == PARQUET_FIXED ? (uint32_t)leaf->type_bytes : widths[leaf->type];
    }
    if (n > left)
        return false;
    out->bytes = *at;
    out->n = n;
    *at += n;
    return true;
}

static int take_dictionary(struct parquet_column *c, const struct parquet_header *h, struct quire_error *err)
{
    if (h->encoding != PARQUET_PLAIN && h->encoding != PARQUET_PLAIN_DICTIONARY)
        return damaged(c, "its dictionary is not plain", err);
    if (c->dictionary || c->leaf.type == PARQUET_BOOLEAN || (uint32_t)h->n_values > PAGE_VALUES_MAX)
        return damaged(c, "a dictionary page is out of place", err);
    c->dictionary = malloc((size_t)h->raw_bytes + 1);
    c->entries = calloc((size_t)h->n_values + 1, sizeof *c->entries);
    if (!c->dictionary || !c->entries)
        return error_set(err, QUIRE_ENOMEM, "no memory for the dictionary of %s", c->leaf.name);
    int rc = decompress(c, c->packed, (size_t)h->bytes, c->dictionary, (size_t)h->raw_bytes, err);
    const uint8_t *at = c->dictionary, *end = at + h->raw_bytes;
    for (int32_t i = 0; rc == 0 && i < h->n_values; i++)
        if (!plain(&c->leaf, &at, end, &c->entries[i]))
            rc = damaged(c, "its dictionary is shorter than it says", err);
    c->n_entries = (uint32_t)h->n_values;
    return rc;
}

static int take_values(struct parquet_column *c, const struct parquet_header *h, const uint8_t *at, const uint8_t *end,
                       struct quire_error *err)
{
    c->values = at;
    c->values_end = end;
    if (h->encoding == PARQUET_PLAIN)
        return 0;
    if (h->encoding == PARQUET_RLE && c->leaf.type == PARQUET_BOOLEAN) {
        if (end - at < 4)
            return damaged(c, "a page is shorter than it says", err);
        at += 4; /* their length */
    } else if (h->encoding != PARQUET_RLE_DICTIONARY && h->encoding != PARQUET_PLAIN_DICTIONARY) {
        static const char *const names[] = {"PLAIN",
                                            "1",
                                            "PLAIN_DICTIONARY",
                                            "RLE",
                                            "BIT_PACKED",
                                            "DELTA_BINARY_PACKED",
                                            "DELTA_LENGTH_BYTE_ARRAY",
                                            "DELTA_BYTE_ARRAY",
                                            "RLE_DICTIONARY",
                                            "BYTE_STREAM_SPLIT"};
        bool known = h->encoding >= 0 && h->encoding < (int)(sizeof names / sizeof *names);
        return error_set(err, QUIRE_EUNSUPPORTED,
                         "%s: column %s is encoded as %s; PLAIN and RLE_DICTIONARY are read: write it again without "
                         "other encodings",
                         c->file, c->leaf.name, known ? names[h->encoding] : "something unknown");
    }
    bool booleans = c->leaf.type == PARQUET_BOOLEAN;
    unsigned bits = 1;
    if (!booleans) {
        if (at == end && c->n_present)
            return damaged(c, "a page is shorter than it says", err);
        bits = c->n_present ? *at++ : 0;
    }
    c->indexes = malloc(((size_t)c->n_present + 1) * sizeof *c->indexes);
    if (!c->indexes)
        return error_set(err, QUIRE_ENOMEM, "no memory for a page of %s", c->file);
    if (bits > 32 || !runs(at, end, bits, c->n_present, c->indexes, NULL))
        return damaged(c, "the indexes of a page are damaged", err);
    for (uint32_t i = 0; !booleans && i < c->n_present; i++)
        if (c->indexes[i] >= c->n_entries)
            return damaged(c, "an index is beyond the dictionary", err);
    return 0;
}

static void drop_page(struct parquet_column *c)
{
    free(c->page);
    free(c->definitions);
    free(c->repetitions);
    free(c->indexes);
    c->page = c->definitions = c->repetitions = NULL;
    c->indexes = NULL;
    c->n = c->next = c->n_present = c->next_present = 0;
}

/* v1: levels stand, with their lengths, in front of the values, compressed with them. */
static int split_v1(struct parquet_column *c, const struct parquet_header *h, const uint8_t **at, const uint8_t *end,
                    struct quire_error *err)
{
    uint8_t **const into[] = {&c->repetitions, &c->definitions};
    const uint8_t most[] = {c->leaf.repetition_max, c->leaf.definition_max};
    const int32_t encodings[] = {h->repetition_encoding, h->definition_encoding};
    for (int i = 0; i < 2; i++) {
        if (most[i] == 0)
            continue;
        if (encodings[i] != PARQUET_RLE)
            return error_set(err, QUIRE_EUNSUPPORTED, "%s: column %s has levels that are not RLE", c->file,
                             c->leaf.name);
        uint32_t bytes = end - *at >= 4 ? bytes_load_u32(*at) : UINT32_MAX;
        if (end - *at < 4 || bytes > (size_t)(end - *at) - 4)
            return damaged(c, "a page is shorter than it says", err);
        int rc = levels(c, *at + 4, bytes, most[i], into[i], err);
        if (rc < 0)
            return rc;
        *at += 4 + bytes;
    }
    return 0;
}

static int take_page(struct parquet_column *c, const struct parquet_header *h, struct quire_error *err)
{
    bool v2 = h->type == PARQUET_DATA_PAGE_V2;
    size_t before = v2 ? (size_t)h->repetition_bytes + (size_t)h->definition_bytes : 0;
    int rc = 0;
    if (h->n_values < 0 || (uint32_t)h->n_values > PAGE_VALUES_MAX || h->n_values > c->left)
        return damaged(c, "a page has more values than the column", err);
    if (v2 && (h->repetition_bytes < 0 || h->definition_bytes < 0 || before > (size_t)h->bytes ||
               before > (size_t)h->raw_bytes))
        return damaged(c, "a page is shorter than it says", err);
    c->n = (uint32_t)h->n_values;
    c->left -= h->n_values;
    c->page = malloc((size_t)h->raw_bytes + 1);
    if (!c->page)
        return error_set(err, QUIRE_ENOMEM, "no memory for a page of %s", c->file);
    memcpy(c->page, c->packed, before);
    if (v2 && !h->is_compressed && h->bytes != h->raw_bytes)
        return damaged(c, "a page is shorter than it says", err);
    if (v2 && !h->is_compressed)
        memcpy(c->page + before, c->packed + before, (size_t)h->bytes - before);
    else if ((size_t)h->raw_bytes > before || (size_t)h->bytes > before)
        rc = decompress(c, c->packed + before, (size_t)h->bytes - before, c->page + before,
                        (size_t)h->raw_bytes - before, err);
    const uint8_t *at = c->page, *end = c->page + h->raw_bytes;
    if (rc == 0 && v2) {
        if (c->leaf.repetition_max)
            rc = levels(c, at, (size_t)h->repetition_bytes, c->leaf.repetition_max, &c->repetitions, err);
        if (rc == 0 && c->leaf.definition_max)
            rc = levels(c, at + h->repetition_bytes, (size_t)h->definition_bytes, c->leaf.definition_max,
                        &c->definitions, err);
        at += before;
    } else if (rc == 0) {
        rc = split_v1(c, h, &at, end, err);
    }
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < c->n; i++)
        c->n_present += !c->definitions || c->definitions[i] == c->leaf.definition_max;
    return take_values(c, h, at, end, err);
}

static int read_header(struct parquet_column *c, struct parquet_header *h, struct quire_error *err)
{
    uint64_t left = c->end - c->at;
    int rc = QUIRE_ETRUNCATED;
    for (size_t want = HEADER_BYTES; rc == QUIRE_ETRUNCATED && left > 0; want *= 16) {
        size_t n = want < left ? want : (size_t)left, used = 0;
        uint8_t *bytes = malloc(n);
        if (!bytes)
            return error_set(err, QUIRE_ENOMEM, "no memory for a page's header");
        rc = records_pread(c->fd, c->file, bytes, n, c->at, err);
        if (rc == 0)
            rc = parquet_header_decode(bytes, n, h, &used);
        free(bytes);
        if (rc == 0)
            c->at += used;
        else if (rc != QUIRE_ETRUNCATED || n == left || want >= HEADER_BYTES_MAX)
            break;
    }
    if (rc == 0 && (h->bytes < 0 || h->raw_bytes < 0 || h->n_values < 0 || (uint64_t)h->bytes > c->end - c->at))
        rc = -1;
    if (rc != 0)
        return damaged(c, "the header of a page is damaged", err);
    if (h->bytes > (int32_t)PAGE_BYTES_MAX || h->raw_bytes > (int32_t)PAGE_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s: column %s has a page of %d bytes; the limit is %u", c->file,
                         c->leaf.name, h->raw_bytes > h->bytes ? h->raw_bytes : h->bytes, PAGE_BYTES_MAX);
    return 0;
}

/* 1: there is a value; 0: no more. */
static int fill(struct parquet_column *c, struct quire_error *err)
{
    struct parquet_header h;
    while (c->next == c->n) {
        drop_page(c);
        if (c->left == 0)
            return 0;
        int rc = read_header(c, &h, err);
        if (rc < 0)
            return rc;
        free(c->packed);
        c->packed = malloc((size_t)h.bytes + 1);
        if (!c->packed)
            return error_set(err, QUIRE_ENOMEM, "no memory for a page of %s", c->file);
        rc = records_pread(c->fd, c->file, c->packed, (size_t)h.bytes, c->at, err);
        c->at += (uint64_t)h.bytes;
        if (rc == 0 && h.type == PARQUET_DICTIONARY_PAGE)
            rc = take_dictionary(c, &h, err);
        else if (rc == 0 && (h.type == PARQUET_DATA_PAGE || h.type == PARQUET_DATA_PAGE_V2))
            rc = take_page(c, &h, err);
        if (rc < 0) {
            drop_page(c);
            return rc;
        }
    }
    return 1;
}

int parquet_column_peek(struct parquet_column *c, uint8_t *repetition, struct quire_error *err)
{
    int rc = fill(c, err);
    if (rc == 1)
        *repetition = c->repetitions ? c->repetitions[c->next] : 0;
    return rc;
}

int parquet_column_next(struct parquet_column *c, struct parquet_value *out, struct quire_error *err)
{
    static const uint8_t booleans[2] = {0, 1};
    int rc = fill(c, err);
    if (rc != 1)
        return rc;
    *out = (struct parquet_value){.definition = c->definitions ? c->definitions[c->next] : c->leaf.definition_max,
                                  .repetition = c->repetitions ? c->repetitions[c->next] : 0};
    c->next++;
    if (out->definition < c->leaf.definition_max)
        return 1;
    uint32_t at = c->next_present++;
    if (c->leaf.type == PARQUET_BOOLEAN) {
        bool is_true;
        if (c->indexes) {
            is_true = c->indexes[at] != 0;
        } else {
            if (at / 8 >= (size_t)(c->values_end - c->values))
                return damaged(c, "a page is shorter than it says", err);
            is_true = c->values[at / 8] >> (at % 8) & 1;
        }
        out->bytes = &booleans[is_true];
        out->n = 1;
    } else if (c->indexes) {
        out->bytes = c->entries[c->indexes[at]].bytes;
        out->n = c->entries[c->indexes[at]].n;
    } else if (!plain(&c->leaf, &c->values, c->values_end, out)) {
        return damaged(c, "a page is shorter than it says", err);
    }
    return 1;
}

int parquet_column_open(int fd, const char *file, const struct parquet_leaf *leaf, const struct parquet_chunk *chunk,
                        struct parquet_column **out, struct quire_error *err)
{
    static const char *const codecs[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
    struct parquet_column *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", file);
    *c = (struct parquet_column){.fd = fd, .file = file, .leaf = *leaf, .codec = chunk->codec, .left = chunk->n_values};
    int64_t at =
        chunk->dictionary_at > 0 && chunk->dictionary_at < chunk->data_at ? chunk->dictionary_at : chunk->data_at;
    int rc = 0;
    if (chunk->codec != PARQUET_UNCOMPRESSED && chunk->codec != PARQUET_SNAPPY && chunk->codec != PARQUET_GZIP &&
        chunk->codec != PARQUET_ZSTD)
        rc =
            error_set(err, QUIRE_EUNSUPPORTED,
                      "%s: column %s is compressed with %s; SNAPPY, GZIP and ZSTD are read, and what is not compressed",
                      file, leaf->name,
                      chunk->codec >= 0 && chunk->codec < (int)(sizeof codecs / sizeof *codecs) ? codecs[chunk->codec]
                                                                                                : "something unknown");
    else if (chunk->type != leaf->type || at < 4 || chunk->bytes < 0 || chunk->n_values < 0 ||
             at > INT64_MAX - chunk->bytes)
        rc = damaged(c, "its place in the file is damaged", err);
    c->at = (uint64_t)at;
    c->end = (uint64_t)at + (uint64_t)chunk->bytes;
    if (rc < 0)
        parquet_column_close(c);
    else
        *out = c;
    return rc;
}

void parquet_column_close(struct parquet_column *c)
{
    if (!c)
        return;
    drop_page(c);
    free(c->packed);
    free(c->dictionary);
    free(c->entries);
    free(c);
}
