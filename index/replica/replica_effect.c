/*
 * replica_effect.c - effects of writes as bytes.
 *
 *   u32 magic, u8 version, u8 kind, u16 flags (1: required), u64 seq, 16 collection, 16 history, u32 bytes behind the
 *   header, u32 0, u64 checksum: XXH3-64 of all bytes with zero here
 *   PUT, REMOVE, TEXT  u32 bytes of key, vector, text, u32 places; those; places are 16 segment, u32 row
 *   all others         u32 bytes of key, u32 generation, u32 rows, u32 segments that go, u64 upto, u64 rows and u64
 *                      bytes of what comes, 16 segment, 16 history; key, rows, segments
 *
 * The history is that of the write before: a copy that has another has parted from this leader. Of EFFECT_HISTORY the
 * new one stands behind the header.
 */
#include "index/replica/replica_effect.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define EFFECT_MAGIC 0x46464551u /* bytes "QEFF" */
#define BYTES_MAX    (1u << 31)

enum effect_at {
    VERSION_AT = 4,
    KIND_AT = 5,
    FLAGS_AT = 6,
    SEQ_AT = 8,
    ID_AT = 16,
    HISTORY_AT = 32,
    BODY_BYTES_AT = 48,
    CHECKSUM_AT = 56,
    EFFECT_HEADER_BYTES = 64,
    ELEMENT_BYTES = 16, /* of the lengths of an element */
    OTHER_BYTES = 72,   /* of those of all others */
    PLACE_BYTES = 20
};

static bool is_element(uint8_t kind)
{
    return kind == EFFECT_PUT || kind == EFFECT_REMOVE || kind == EFFECT_TEXT;
}

static uint8_t *append(uint8_t *to, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(to, bytes, n);
    return to + n;
}

/* Of the bytes with zero where the checksum is. */
static uint64_t checksum_of(const uint8_t *bytes, size_t n)
{
    uint64_t header = XXH3_64bits(bytes, CHECKSUM_AT);
    return XXH3_64bits_withSeed(bytes + EFFECT_HEADER_BYTES, n - EFFECT_HEADER_BYTES, header);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static uint64_t body_bytes(const struct effect *e)
{
    if (is_element((uint8_t)e->kind))
        return ELEMENT_BYTES + (uint64_t)e->key_bytes + e->stored_bytes + e->text_bytes +
               (uint64_t)PLACE_BYTES * e->n_places;
    return OTHER_BYTES + (uint64_t)e->key_bytes + 4 * (uint64_t)e->n_rows + LINEAGE_ID_BYTES * (uint64_t)e->n_gone;
}

static uint8_t *put_element(uint8_t *to, const struct effect *e)
{
    bytes_store_u32(to, e->key_bytes);
    bytes_store_u32(to + 4, e->stored_bytes);
    bytes_store_u32(to + 8, e->text_bytes);
    bytes_store_u32(to + 12, e->n_places);
    to = append(to + ELEMENT_BYTES, e->key, e->key_bytes);
    to = append(to, e->stored, e->stored_bytes);
    to = append(to, e->text, e->text_bytes);
    for (uint32_t i = 0; i < e->n_places; i++) {
        to = append(to, e->places[i].segment, LINEAGE_ID_BYTES);
        bytes_store_u32(to, e->places[i].row);
        to += 4;
    }
    return to;
}

static uint8_t *put_other(uint8_t *to, const struct effect *e)
{
    bytes_store_u32(to, e->key_bytes);
    bytes_store_u32(to + 4, e->generation);
    bytes_store_u32(to + 8, e->n_rows);
    bytes_store_u32(to + 12, e->n_gone);
    bytes_store_u64(to + 16, e->upto);
    bytes_store_u64(to + 24, e->segment_rows);
    bytes_store_u64(to + 32, e->segment_bytes);
    append(to + 40, e->segment, LINEAGE_ID_BYTES);
    append(to + 56, e->history, LINEAGE_ID_BYTES);
    to = append(to + OTHER_BYTES, e->key, e->key_bytes);
    for (uint32_t i = 0; i < e->n_rows; i++, to += 4)
        bytes_store_u32(to, e->rows[i]);
    return append(to, e->gone, (size_t)LINEAGE_ID_BYTES * e->n_gone);
}

uint8_t *replica_effect_encode(const struct effect *e, uint32_t *n_bytes)
{
    uint64_t total = EFFECT_HEADER_BYTES + body_bytes(e);
    uint8_t *bytes = total < BYTES_MAX ? calloc(1, total) : NULL;
    *n_bytes = (uint32_t)total;
    if (!bytes)
        return NULL;
    bytes_store_u32(bytes, EFFECT_MAGIC);
    bytes[VERSION_AT] = REPLICA_EFFECT_VERSION;
    bytes[KIND_AT] = (uint8_t)e->kind;
    bytes_store_u16(bytes + FLAGS_AT, e->required);
    bytes_store_u64(bytes + SEQ_AT, e->seq);
    memcpy(bytes + ID_AT, e->of->id, LINEAGE_ID_BYTES);
    memcpy(bytes + HISTORY_AT, e->of->history, LINEAGE_ID_BYTES);
    bytes_store_u32(bytes + BODY_BYTES_AT, (uint32_t)(total - EFFECT_HEADER_BYTES));
    uint8_t *body = bytes + EFFECT_HEADER_BYTES,
            *end = is_element((uint8_t)e->kind) ? put_element(body, e) : put_other(body, e);
    assert(end == bytes + total);
    bytes_store_u64(bytes + CHECKSUM_AT, checksum_of(bytes, total));
    return bytes;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static int bad(const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "a write from a leader is damaged: %s", what);
}

static int take_element(const uint8_t *at, size_t n, struct effect *e, struct quire_error *err)
{
    if (n < ELEMENT_BYTES)
        return bad("it is too short", err);
    e->key_bytes = bytes_load_u32(at);
    e->stored_bytes = bytes_load_u32(at + 4);
    e->text_bytes = bytes_load_u32(at + 8);
    e->n_places = bytes_load_u32(at + 12);
    if (e->n_places > EFFECT_PLACES_MAX || body_bytes(e) != n)
        return bad("its lengths do not fit", err);
    e->key = at + ELEMENT_BYTES;
    e->stored = e->stored_bytes ? at + ELEMENT_BYTES + e->key_bytes : NULL;
    e->text = e->text_bytes ? at + ELEMENT_BYTES + e->key_bytes + e->stored_bytes : NULL;
    const uint8_t *place = at + ELEMENT_BYTES + e->key_bytes + e->stored_bytes + e->text_bytes;
    for (uint32_t i = 0; i < e->n_places; i++, place += PLACE_BYTES) {
        memcpy(e->places[i].segment, place, LINEAGE_ID_BYTES);
        e->places[i].row = bytes_load_u32(place + LINEAGE_ID_BYTES);
    }
    return 0;
}

static int take_other(const uint8_t *at, size_t n, struct replica_effect *out, struct quire_error *err)
{
    struct effect *e = &out->effect;
    if (n < OTHER_BYTES)
        return bad("it is too short", err);
    e->key_bytes = bytes_load_u32(at);
    e->generation = bytes_load_u32(at + 4);
    e->n_rows = bytes_load_u32(at + 8);
    e->n_gone = bytes_load_u32(at + 12);
    e->upto = bytes_load_u64(at + 16);
    e->segment_rows = bytes_load_u64(at + 24);
    e->segment_bytes = bytes_load_u64(at + 32);
    if (body_bytes(e) != n)
        return bad("its lengths do not fit", err);
    memcpy(e->segment, at + 40, LINEAGE_ID_BYTES);
    memcpy(e->history, at + 56, LINEAGE_ID_BYTES);
    e->key = at + OTHER_BYTES;
    uint32_t *rows = malloc(4 * (size_t)e->n_rows + 1);
    if (!rows)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u rows of a leader's write", e->n_rows);
    const uint8_t *from = at + OTHER_BYTES + e->key_bytes;
    for (uint32_t i = 0; i < e->n_rows; i++, from += 4)
        rows[i] = bytes_load_u32(from);
    out->owned = rows;
    e->rows = rows;
    e->gone = (const uint8_t(*)[LINEAGE_ID_BYTES])(const void *)from;
    return 0;
}

int replica_effect_decode(const uint8_t *bytes, size_t n, struct replica_effect *out, struct quire_error *err)
{
    *out = (struct replica_effect){.owned = NULL};
    if (n < EFFECT_HEADER_BYTES || bytes_load_u32(bytes) != EFFECT_MAGIC)
        return bad("it does not begin as one", err);
    if (bytes[VERSION_AT] != REPLICA_EFFECT_VERSION)
        return error_set(err, QUIRE_EVERSION,
                         "a leader's write is of version %u, this program knows %u: upgrade copies "
                         "before their leader",
                         bytes[VERSION_AT], REPLICA_EFFECT_VERSION);
    if (bytes_load_u32(bytes + BODY_BYTES_AT) != n - EFFECT_HEADER_BYTES ||
        bytes_load_u64(bytes + CHECKSUM_AT) != checksum_of(bytes, n))
        return bad("its checksum is another", err);
    uint8_t kind = bytes[KIND_AT];
    uint16_t flags = bytes_load_u16(bytes + FLAGS_AT);
    if (kind < EFFECT_PUT || kind >= EFFECT_KINDS_END || flags > 1)
        return error_set(err, QUIRE_EVERSION,
                         "a leader's write is of kind %u, which this program does not know: upgrade "
                         "copies before their leader",
                         kind);
    out->effect.kind = (enum effect_kind)kind;
    out->effect.required = flags & 1;
    out->effect.seq = bytes_load_u64(bytes + SEQ_AT);
    memcpy(out->id, bytes + ID_AT, LINEAGE_ID_BYTES);
    memcpy(out->history, bytes + HISTORY_AT, LINEAGE_ID_BYTES);
    const uint8_t *body = bytes + EFFECT_HEADER_BYTES;
    return is_element(kind) ? take_element(body, n - EFFECT_HEADER_BYTES, &out->effect, err)
                            : take_other(body, n - EFFECT_HEADER_BYTES, out, err);
}

void replica_effect_fini(struct replica_effect *effect)
{
    free(effect->owned);
    effect->owned = NULL;
}

/* Of a number that the copy has passed: whether that was this write. A copy that led may have passed it with one of its
 * own, in a history that has parted from that of the new leader. */
static bool was_done(const struct replica_effect *e, const struct lineage_identity *own)
{
    bool same = memcmp(own->history, e->history, LINEAGE_ID_BYTES) == 0;
    if (e->effect.kind == EFFECT_HISTORY && memcmp(own->history, e->effect.history, LINEAGE_ID_BYTES) != 0)
        return !same && e->effect.seq < own->begins;
    return same || e->effect.seq <= own->begins;
}

static int parted(const struct replica_effect *e, const struct lineage_identity *own, struct quire_error *err)
{
    return error_set(err, QUIRE_ESTALE,
                     "write %llu is of another history than the copy here, which has %llu: copy it anew",
                     (unsigned long long)e->effect.seq, (unsigned long long)own->seq);
}

int replica_effect_apply(struct collection *collection, const uint8_t *bytes, size_t n, uint64_t *lsn,
                         struct quire_error *err)
{
    struct replica_effect decoded;
    struct lineage_identity own;
    *lsn = 0;
    int rc = replica_effect_decode(bytes, n, &decoded, err);
    if (rc == 0 && (!lineage_get(collection, &own) || memcmp(own.id, decoded.id, LINEAGE_ID_BYTES) != 0))
        rc = error_set(err, QUIRE_ESTALE, "a write is of another set than the one that is here: copy it anew");
    bool is_next = rc == 0 && decoded.effect.seq > own.seq;
    if (rc == 0 && (is_next ? memcmp(own.history, decoded.history, LINEAGE_ID_BYTES) != 0 : !was_done(&decoded, &own)))
        rc = parted(&decoded, &own, err);
    if (is_next && rc == 0)
        rc = lineage_apply(collection, &decoded.effect, lsn, err);
    replica_effect_fini(&decoded);
    return rc;
}
