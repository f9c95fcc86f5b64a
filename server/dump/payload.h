/*
 * payload.h - the bytes that DUMP answers and RESTORE takes: a value by itself, little-endian.
 *
 *   0       u32 magic "QDMP"
 *   4       u8 type: 1 string, 2 hash, 3 vector set, 4 JSON document
 *   5       the value
 *   n - 10  u16 version of the format
 *   n - 8   u64 XXH3-64 of all bytes before
 *
 *   string      its bytes
 *   document    its text
 *   hash        u32 fields; per field u32 bytes of its name, u32 of its value; both
 *   vector set  u32 bytes of its shape, the shape (collection_export.h), u32 bytes of a vector, u64 elements; per
 *               element u16 bytes of its name, u16 grants, u32 bytes of attributes; name, vector; per grant u8 bytes
 *               and the tenant's name; attributes
 *
 * Valid if and only if magic, type and version are known, the checksum is right, every length lies inside, nothing is
 * left over, a hash has a field, a document is JSON within its limits, names and vectors are such as VADD would take,
 * and no name stands twice. A checksum keeps accidents out, not intent: what stands behind it is believed no more than
 * any request.
 */
#ifndef QUIRE_SERVER_PAYLOAD_H
#define QUIRE_SERVER_PAYLOAD_H

#include "server/keys/keyspace.h"

enum { PAYLOAD_HEADER_BYTES = 5, PAYLOAD_FOOTER_BYTES = 10, PAYLOAD_ELEMENT_BYTES = 8 };

/* Around a value that is written to the end of `out`; from: out->bytes before payload_begin. */
void payload_begin(struct resp_buffer *out, enum key_type type);
void payload_end(struct resp_buffer *out, size_t from);

/* A payload, or what is left of it: what is taken lies behind it then. */
struct payload {
    enum key_type type;
    const uint8_t *at, *end;
};
/* QUIRE_EVERSION where magic, type, version or checksum are wrong. */
int payload_open(struct resp_arg bytes, struct payload *out, struct quire_error *err);
/* Takes a number of 1, 2, 4 or 8 bytes, some bytes. False where there are not so many. */
bool payload_take(struct payload *p, unsigned width, uint64_t *out);
bool payload_take_bytes(struct payload *p, uint64_t n, const uint8_t **out);

void payload_number(struct resp_buffer *out, unsigned width, uint64_t number);
/* A field of a hash, whose number of fields is written before: hash_visit. */
void payload_field(void *out, struct resp_arg field, struct resp_arg value);
/* The string, the document, the hash that the payload holds; references of the caller. QUIRE_ECORRUPT, QUIRE_ENOMEM. */
int payload_string(struct payload *p, struct value **out, struct quire_error *err);
/* Adds the text of a document. QUIRE_ELIMIT: it has more than `most` bytes; QUIRE_ENOMEM, QUIRE_ECORRUPT. */
int payload_document(struct resp_buffer *out, const struct value *document, uint64_t most, struct quire_error *err);
int payload_json(struct payload *p, struct value **out, struct quire_error *err);
int payload_hash(struct payload *p, uint64_t seed, struct hash **out, struct quire_error *err);

#endif
