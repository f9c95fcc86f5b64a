/*
 * payload.c - framing and checksum of payloads; strings and hashes in them. Vector sets: transfer.c.
 */
#include "server/dump/payload.h"
#include "document/json/tree.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <xxhash.h>

#define PAYLOAD_MAGIC   0x504d4451u /* "QDMP" */
#define PAYLOAD_VERSION 1u

enum { PAIRS_AT_ONCE = 256 };

static const uint8_t type_bytes[] = {[KEY_STRING] = 1, [KEY_HASH] = 2, [KEY_VECTOR_SET] = 3, [KEY_JSON] = 4};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void payload_number(struct resp_buffer *out, unsigned width, uint64_t number)
{
    uint8_t bytes[8];
    assert(width <= 8);
    bytes_store_u64(bytes, number);
    resp_raw(out, bytes, width);
}

void payload_begin(struct resp_buffer *out, enum key_type type)
{
    payload_number(out, 4, PAYLOAD_MAGIC);
    payload_number(out, 1, type_bytes[type]);
}

void payload_end(struct resp_buffer *out, size_t from)
{
    payload_number(out, 2, PAYLOAD_VERSION);
    if (!out->failed)
        payload_number(out, 8, XXH3_64bits(out->data + from, out->bytes - from));
}

void payload_field(void *out, struct resp_arg field, struct resp_arg value)
{
    payload_number(out, 4, field.bytes);
    payload_number(out, 4, value.bytes);
    resp_raw(out, field.data, field.bytes);
    resp_raw(out, value.data, value.bytes);
}

int payload_document(struct resp_buffer *out, const struct value *document, uint64_t most, struct quire_error *err)
{
    struct tree_text text = {.most = most};
    int rc = tree_unpack_text(document->data, document->bytes, &text, err);
    if (rc == 0 && text.failed)
        rc = text.too_long ? error_set(err, QUIRE_ELIMIT, "the text of the document has more than %llu bytes",
                                       (unsigned long long)most)
                           : error_set(err, QUIRE_ENOMEM, "no memory for the text of a document");
    if (rc == 0)
        resp_raw(out, text.data, text.bytes);
    tree_text_fini(&text);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

int payload_open(struct resp_arg bytes, struct payload *out, struct quire_error *err)
{
    const uint8_t *data = bytes.data;
    size_t n = bytes.bytes;
    bool known = n >= PAYLOAD_HEADER_BYTES + PAYLOAD_FOOTER_BYTES && bytes_load_u32(data) == PAYLOAD_MAGIC &&
                 data[4] >= 1 && data[4] <= 4 && bytes_load_u16(data + n - PAYLOAD_FOOTER_BYTES) == PAYLOAD_VERSION;
    if (!known || bytes_load_u64(data + n - 8) != XXH3_64bits(data, n - 8))
        return error_set(err, QUIRE_EVERSION, "DUMP payload version or checksum are wrong");
    for (unsigned type = 0; type < sizeof type_bytes; type++)
        if (type_bytes[type] == data[4])
            out->type = (enum key_type)type;
    out->at = data + PAYLOAD_HEADER_BYTES;
    out->end = data + n - PAYLOAD_FOOTER_BYTES;
    return 0;
}

bool payload_take_bytes(struct payload *p, uint64_t n, const uint8_t **out)
{
    if (n > (uint64_t)(p->end - p->at))
        return false;
    *out = p->at;
    p->at += n;
    return true;
}

bool payload_take(struct payload *p, unsigned width, uint64_t *out)
{
    const uint8_t *from;
    uint8_t bytes[8] = {0};
    assert(width <= 8);
    if (!payload_take_bytes(p, width, &from))
        return false;
    memcpy(bytes, from, width);
    *out = bytes_load_u64(bytes);
    return true;
}

int payload_string(struct payload *p, struct value **out, struct quire_error *err)
{
    uint32_t bytes = (uint32_t)(p->end - p->at);
    *out = keyspace_value_create(p->at, bytes, bytes);
    return *out ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a string of %u bytes", bytes);
}

/* What is kept is the document that the text is, packed. */
int payload_json(struct payload *p, struct value **out, struct quire_error *err)
{
    struct tree_text text = {.data = NULL};
    json_t *root;
    int rc = tree_parse(p->at, (size_t)(p->end - p->at), &root, err);
    if (rc < 0)
        return rc == QUIRE_EPARSE ? QUIRE_ECORRUPT : rc;
    tree_pack(root, 0, &text);
    json_decref(root);
    *out = text.failed || text.bytes > UINT32_MAX
               ? NULL
               : keyspace_value_create(text.data, (uint32_t)text.bytes, (uint32_t)text.bytes);
    tree_text_fini(&text);
    return *out ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a document");
}

/* A field and its value at *pair. */
static bool take_pair(struct payload *p, struct resp_arg pair[2])
{
    uint64_t field, value;
    if (!payload_take(p, 4, &field) || !payload_take(p, 4, &value) || !payload_take_bytes(p, field, &pair[0].data) ||
        !payload_take_bytes(p, value, &pair[1].data))
        return false;
    pair[0].bytes = (uint32_t)field;
    pair[1].bytes = (uint32_t)value;
    return true;
}

static int take_pairs(struct payload *p, uint64_t n, struct hash *hash, struct quire_error *err)
{
    struct resp_arg pairs[2 * PAIRS_AT_ONCE];
    while (n > 0) {
        uint32_t some = n < PAIRS_AT_ONCE ? (uint32_t)n : PAIRS_AT_ONCE;
        struct hash_spare spare = {.first = NULL};
        for (uint32_t i = 0; i < some; i++)
            if (!take_pair(p, &pairs[2 * (size_t)i]))
                return error_set(err, QUIRE_ECORRUPT, "a hash ends before its fields do");
        if (hash_reserve(hash, pairs, some, &spare) < 0)
            return error_set(err, QUIRE_ENOMEM, "no memory for the fields of a hash");
        for (uint32_t i = 0; i < some; i++)
            hash_set(hash, pairs[2 * (size_t)i], pairs[2 * (size_t)i + 1], &spare);
        hash_spare_end(&spare);
        n -= some;
    }
    return p->at == p->end ? 0 : error_set(err, QUIRE_ECORRUPT, "something stands behind the fields of a hash");
}

int payload_hash(struct payload *p, uint64_t seed, struct hash **out, struct quire_error *err)
{
    uint64_t n;
    if (!payload_take(p, 4, &n) || n == 0)
        return error_set(err, QUIRE_ECORRUPT, "a hash without fields");
    struct hash *hash = hash_create(seed);
    int rc = hash ? take_pairs(p, n, hash, err) : error_set(err, QUIRE_ENOMEM, "no memory for a hash");
    if (rc < 0)
        hash_destroy(hash);
    else
        *out = hash;
    return rc;
}
