/*
 * parquet_meta.c - Thrift's compact protocol, as far as Parquet's metadata needs it.
 *
 * A struct is a list of fields, each with a byte of type and distance to the field before; numbers are zigzag varints.
 * Everything is bounded by the bytes that there are: a list says how long it is, and no list may be longer than the
 * bytes that are left. Nesting is bounded for what is skipped.
 */
#include "tools/records/parquet_meta.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

enum wire {
    WIRE_STOP,
    WIRE_TRUE,
    WIRE_FALSE,
    WIRE_BYTE,
    WIRE_I16,
    WIRE_I32,
    WIRE_I64,
    WIRE_DOUBLE,
    WIRE_BINARY,
    WIRE_LIST,
    WIRE_SET,
    WIRE_MAP,
    WIRE_STRUCT
};
#define DEPTH_MAX 24u

struct in {
    const uint8_t *at, *end;
    bool bad;
};

static uint64_t varint(struct in *in)
{
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return x;
    }
    in->bad = true;
    return 0;
}

static int64_t zigzag(struct in *in)
{
    uint64_t x = varint(in);
    return (int64_t)(x >> 1) ^ -(int64_t)(x & 1);
}

static int32_t number32(struct in *in)
{
    int64_t x = zigzag(in);
    if (x < INT32_MIN || x > INT32_MAX)
        in->bad = true;
    return (int32_t)x;
}

/* False at the end of the struct. */
static bool field(struct in *in, int *id, int *type)
{
    if (in->bad || in->at == in->end) {
        in->bad = true;
        return false;
    }
    uint8_t head = *in->at++;
    if (head == WIRE_STOP)
        return false;
    *type = head & 15;
    *id = head >> 4 ? *id + (head >> 4) : (int)zigzag(in);
    return !in->bad;
}

static uint32_t list(struct in *in, int *type)
{
    if (in->at == in->end) {
        in->bad = true;
        return 0;
    }
    uint8_t head = *in->at++;
    uint64_t n = head >> 4 == 15 ? varint(in) : head >> 4;
    *type = head & 15;
    if (n > (uint64_t)(in->end - in->at))
        in->bad = true;
    return in->bad ? 0 : (uint32_t)n;
}

static void skip(struct in *in, int type, unsigned depth, bool in_list)
{
    int inner = 0, id = 0;
    uint64_t n;
    if (depth > DEPTH_MAX)
        in->bad = true;
    if (in->bad)
        return;
    switch (type) {
    case WIRE_TRUE:
    case WIRE_FALSE:
        in->at += in_list && in->at < in->end;
        break;
    case WIRE_BYTE:
        in->at += in->at < in->end;
        break;
    case WIRE_I16:
    case WIRE_I32:
    case WIRE_I64:
        varint(in);
        break;
    case WIRE_DOUBLE:
    case WIRE_BINARY:
        n = type == WIRE_DOUBLE ? 8 : varint(in);
        if (n > (uint64_t)(in->end - in->at))
            in->bad = true;
        else
            in->at += n;
        break;
    case WIRE_LIST:
    case WIRE_SET:
        n = list(in, &inner);
        for (uint64_t i = 0; i < n && !in->bad; i++)
            skip(in, inner, depth + 1, true);
        break;
    case WIRE_MAP:
        n = varint(in);
        if (n == 0)
            break;
        if (n > (uint64_t)(in->end - in->at) || in->at == in->end) {
            in->bad = true;
            break;
        }
        inner = *in->at++;
        for (uint64_t i = 0; i < n && !in->bad; i++) {
            skip(in, inner >> 4, depth + 1, true);
            skip(in, inner & 15, depth + 1, true);
        }
        break;
    case WIRE_STRUCT:
        while (field(in, &id, &inner))
            skip(in, inner, depth + 1, false);
        break;
    default:
        in->bad = true;
    }
}

static const char *text(struct in *in, struct arena *memory)
{
    uint64_t n = varint(in);
    char *copy = n <= (uint64_t)(in->end - in->at) ? arena_take(memory, n + 1) : NULL;
    if (!copy) {
        in->bad = true;
        return "";
    }
    memcpy(copy, in->at, n);
    copy[n] = 0;
    in->at += n;
    return copy;
}

/* Room for the items of a list, zeroed. */
static void *items(struct in *in, struct arena *memory, uint32_t n, size_t each)
{
    void *out = arena_take(memory, n * each + 1);
    if (!out)
        in->bad = true;
    else
        memset(out, 0, n * each + 1);
    return out;
}

static void element(struct in *in, struct arena *memory, struct parquet_element *out)
{
    int id = 0, type;
    *out = (struct parquet_element){.name = "", .type = -1, .converted = -1};
    while (field(in, &id, &type))
        if (id == 1 && type == WIRE_I32)
            out->type = number32(in);
        else if (id == 2 && type == WIRE_I32)
            out->type_bytes = number32(in);
        else if (id == 3 && type == WIRE_I32)
            out->repetition = number32(in);
        else if (id == 4 && type == WIRE_BINARY)
            out->name = text(in, memory);
        else if (id == 5 && type == WIRE_I32)
            out->children = number32(in);
        else if (id == 6 && type == WIRE_I32)
            out->converted = number32(in);
        else
            skip(in, type, 0, false);
}

static void chunk_meta(struct in *in, struct parquet_chunk *out)
{
    int id = 0, type;
    while (field(in, &id, &type))
        if (id == 1 && type == WIRE_I32)
            out->type = number32(in);
        else if (id == 4 && type == WIRE_I32)
            out->codec = number32(in);
        else if (id == 5 && type == WIRE_I64)
            out->n_values = zigzag(in);
        else if (id == 7 && type == WIRE_I64)
            out->bytes = zigzag(in);
        else if (id == 9 && type == WIRE_I64)
            out->data_at = zigzag(in);
        else if (id == 11 && type == WIRE_I64)
            out->dictionary_at = zigzag(in);
        else
            skip(in, type, 0, false);
}

static void chunk(struct in *in, struct parquet_chunk *out)
{
    int id = 0, type;
    while (field(in, &id, &type))
        if (id == 3 && type == WIRE_STRUCT)
            chunk_meta(in, out);
        else if (id == 1 && type == WIRE_BINARY) /* in another file */
            in->bad = true;
        else
            skip(in, type, 0, false);
}

static void group(struct in *in, struct arena *memory, struct parquet_group *out)
{
    int id = 0, type, inner;
    while (field(in, &id, &type)) {
        if (id == 1 && type == WIRE_LIST) {
            out->n_chunks = list(in, &inner);
            out->chunks = items(in, memory, out->n_chunks, sizeof *out->chunks);
            for (uint32_t i = 0; i < out->n_chunks && !in->bad; i++)
                chunk(in, &out->chunks[i]);
        } else if (id == 3 && type == WIRE_I64) {
            out->rows = zigzag(in);
        } else {
            skip(in, type, 0, false);
        }
    }
}

/* A key and its value, which may be missing. */
static void pair(struct in *in, struct arena *memory, struct parquet_meta *out)
{
    const char *key = "", *value = NULL;
    int id = 0, type;
    while (field(in, &id, &type))
        if (id == 1 && type == WIRE_BINARY)
            key = text(in, memory);
        else if (id == 2 && type == WIRE_BINARY)
            value = text(in, memory);
        else
            skip(in, type, 0, false);
    if (strcmp(key, PARQUET_METRIC_KEY) == 0)
        out->metric = value;
}

int parquet_meta_decode(const char *name, const uint8_t *bytes, size_t n, struct parquet_meta *out,
                        struct quire_error *err)
{
    struct in in = {bytes, bytes + n, false};
    int id = 0, type, inner;
    *out = (struct parquet_meta){0};
    while (field(&in, &id, &type)) {
        if (id == 2 && type == WIRE_LIST) {
            out->n_elements = list(&in, &inner);
            out->elements = items(&in, &out->memory, out->n_elements, sizeof *out->elements);
            for (uint32_t i = 0; i < out->n_elements && !in.bad; i++)
                element(&in, &out->memory, &out->elements[i]);
        } else if (id == 3 && type == WIRE_I64) {
            out->rows = zigzag(&in);
        } else if (id == 4 && type == WIRE_LIST) {
            out->n_groups = list(&in, &inner);
            out->groups = items(&in, &out->memory, out->n_groups, sizeof *out->groups);
            for (uint32_t i = 0; i < out->n_groups && !in.bad; i++)
                group(&in, &out->memory, &out->groups[i]);
        } else if (id == 5 && type == WIRE_LIST) {
            uint32_t pairs = list(&in, &inner);
            for (uint32_t i = 0; i < pairs && !in.bad; i++)
                pair(&in, &out->memory, out);
        } else {
            skip(&in, type, 0, false);
        }
    }
    if (!in.bad && out->n_elements >= 1 && out->rows >= 0)
        return 0;
    parquet_meta_fini(out);
    return error_set(err, QUIRE_EFORMAT, "%s: the footer is damaged, or its columns are in other files", name);
}

void parquet_meta_fini(struct parquet_meta *meta)
{
    arena_fini(&meta->memory);
    *meta = (struct parquet_meta){0};
}

/* The part for one kind of page: v1 data, dictionary or v2 data. */
static void page_part(struct in *in, int kind, struct parquet_header *out)
{
    int id = 0, type;
    while (field(in, &id, &type))
        if (id == 1 && type == WIRE_I32)
            out->n_values = number32(in);
        else if (id == (kind == PARQUET_DATA_PAGE_V2 ? 4 : 2) && type == WIRE_I32)
            out->encoding = number32(in);
        else if (kind == PARQUET_DATA_PAGE && id == 3 && type == WIRE_I32)
            out->definition_encoding = number32(in);
        else if (kind == PARQUET_DATA_PAGE && id == 4 && type == WIRE_I32)
            out->repetition_encoding = number32(in);
        else if (kind == PARQUET_DATA_PAGE_V2 && id == 5 && type == WIRE_I32)
            out->definition_bytes = number32(in);
        else if (kind == PARQUET_DATA_PAGE_V2 && id == 6 && type == WIRE_I32)
            out->repetition_bytes = number32(in);
        else if (kind == PARQUET_DATA_PAGE_V2 && id == 7)
            out->is_compressed = type == WIRE_TRUE;
        else
            skip(in, type, 0, false);
}

int parquet_header_decode(const uint8_t *bytes, size_t n, struct parquet_header *out, size_t *used)
{
    struct in in = {bytes, bytes + n, false};
    int id = 0, type;
    *out = (struct parquet_header){
        .definition_encoding = PARQUET_RLE, .repetition_encoding = PARQUET_RLE, .is_compressed = true};
    while (field(&in, &id, &type))
        if (id == 1 && type == WIRE_I32)
            out->type = number32(&in);
        else if (id == 2 && type == WIRE_I32)
            out->raw_bytes = number32(&in);
        else if (id == 3 && type == WIRE_I32)
            out->bytes = number32(&in);
        else if (id == 5 && type == WIRE_STRUCT)
            page_part(&in, PARQUET_DATA_PAGE, out);
        else if (id == 7 && type == WIRE_STRUCT)
            page_part(&in, PARQUET_DICTIONARY_PAGE, out);
        else if (id == 8 && type == WIRE_STRUCT)
            page_part(&in, PARQUET_DATA_PAGE_V2, out);
        else
            skip(&in, type, 0, false);
    if (in.bad)
        return QUIRE_ETRUNCATED;
    *used = (size_t)(in.at - bytes);
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void parquet_put_bytes(struct parquet_out *out, const void *bytes, size_t n)
{
    if (out->failed || !array_reserve(&out->bytes, &out->capacity, out->n + n + 1)) {
        out->failed = true;
        return;
    }
    if (n)
        memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
}

static void put_byte(struct parquet_out *out, unsigned byte)
{
    uint8_t b = (uint8_t)byte;
    parquet_put_bytes(out, &b, 1);
}

void parquet_put_varint(struct parquet_out *out, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        put_byte(out, (unsigned)(x & 0x7f) | 0x80);
    put_byte(out, (unsigned)x);
}

static void put_zigzag(struct parquet_out *out, int64_t x)
{
    parquet_put_varint(out, ((uint64_t)x << 1) ^ (uint64_t)(x >> 63));
}

/* Fields come in ascending order, less than 16 apart. */
static void put_field(struct parquet_out *out, int id, int type)
{
    put_byte(out, (unsigned)((id - out->last[out->depth]) << 4 | type));
    out->last[out->depth] = (int16_t)id;
}

void parquet_put_i32(struct parquet_out *out, int id, int32_t x)
{
    put_field(out, id, WIRE_I32);
    put_zigzag(out, x);
}

void parquet_put_i64(struct parquet_out *out, int id, int64_t x)
{
    put_field(out, id, WIRE_I64);
    put_zigzag(out, x);
}

void parquet_put_item_text(struct parquet_out *out, const char *t)
{
    parquet_put_varint(out, strlen(t));
    parquet_put_bytes(out, t, strlen(t));
}

void parquet_put_text(struct parquet_out *out, int id, const char *t)
{
    put_field(out, id, WIRE_BINARY);
    parquet_put_item_text(out, t);
}

void parquet_put_list(struct parquet_out *out, int id, enum parquet_item item, uint32_t n)
{
    put_field(out, id, WIRE_LIST);
    put_byte(out, (n < 15 ? n : 15) << 4 | (unsigned)item);
    if (n >= 15)
        parquet_put_varint(out, n);
}

void parquet_put_item_i32(struct parquet_out *out, int32_t x)
{
    put_zigzag(out, x);
}

void parquet_begin(struct parquet_out *out, int id)
{
    if (id)
        put_field(out, id, WIRE_STRUCT);
    out->depth++;
    out->last[out->depth] = 0;
}

void parquet_end(struct parquet_out *out)
{
    put_byte(out, WIRE_STOP);
    out->depth--;
}
