/*
 * document.c - the bytes of a document: a header of fixed size, a table of ends, then all pieces one behind the other.
 *
 * The pieces are category, text, model, each scope's key and value, the tags, the chunks. The table holds where each
 * piece ends, not how long it is: so piece i is found without adding up those before it, and the chunks of a streamed
 * answer, of which there may be thousands, are walked in linear time. The chunks are last, so that the whole value is
 * one run of bytes.
 *
 * Valid if and only if: magic; a length that is a multiple of DOCUMENT_UNIT, at most DOCUMENT_BYTES_MAX and within the
 * bytes given; XXH3-64 of all but the checksum itself; a table inside the document; ends that never fall, the first not
 * before the end of the table; fewer than DOCUMENT_UNIT bytes behind the last. The structure is checked although the
 * checksum holds, since bytes that somebody made on purpose have a right checksum as well.
 */
#include "cache/document/document.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <xxhash.h>

#define DOCUMENT_MAGIC 0x434f4451u /* bytes "QDOC" */

enum document_field {
    CHECKSUM_AT = 0, /* of everything behind it */
    MAGIC_AT = 8,
    BYTES_AT = 12,
    ID_AT = 16,
    CREATED_AT = 24,
    EXPIRE_AT = 32,
    EXACT_AT = 40,
    COMPAT_AT = 56,
    N_SCOPE_AT = 72,
    N_TAGS_AT = 76,
    N_CHUNKS_AT = 80,
    TOKENS_IN_AT = 84,
    TOKENS_OUT_AT = 88,
    LLM_MS_AT = 92,
    COST_AT = 96,
    ENDS_AT = 100
};
enum { PIECE_CATEGORY, PIECE_TEXT, PIECE_MODEL, PIECE_SCOPE };

static uint64_t count_pieces(uint64_t n_scope, uint64_t n_tags, uint64_t n_chunks)
{
    return PIECE_SCOPE + 2 * n_scope + n_tags + n_chunks;
}

static uint64_t pieces_of(const struct document *document)
{
    return count_pieces(document->n_scope, document->n_tags, document->n_chunks);
}

/* Piece i of a document that is to be encoded. */
static struct quire_bytes source(const struct document *document, uint64_t i)
{
    const struct quire_bytes *first[PIECE_SCOPE] = {&document->category, &document->text, &document->model};
    if (i < PIECE_SCOPE)
        return *first[i];
    i -= PIECE_SCOPE;
    if (i < 2 * (uint64_t)document->n_scope)
        return i % 2 ? document->scope[i / 2].value : document->scope[i / 2].key;
    i -= 2 * (uint64_t)document->n_scope;
    return i < document->n_tags ? document->tags[i] : document->chunks[i - document->n_tags];
}

size_t document_bytes(const struct document *document)
{
    uint64_t n = pieces_of(document), bytes = ENDS_AT + 4 * n;
    for (uint64_t i = 0; i < n && bytes <= DOCUMENT_BYTES_MAX; i++) {
        size_t piece = source(document, i).n_bytes;
        bytes += piece <= DOCUMENT_BYTES_MAX ? piece : DOCUMENT_BYTES_MAX;
    }
    bytes = (bytes + DOCUMENT_UNIT - 1) / DOCUMENT_UNIT * DOCUMENT_UNIT;
    return bytes <= DOCUMENT_BYTES_MAX ? (size_t)bytes : 0;
}

static void store_hash(uint8_t *at, struct hash128 hash)
{
    bytes_store_u64(at, hash.low);
    bytes_store_u64(at + 8, hash.high);
}

static struct hash128 load_hash(const uint8_t *at)
{
    return (struct hash128){bytes_load_u64(at), bytes_load_u64(at + 8)};
}

void document_encode(const struct document *document, uint8_t *out)
{
    size_t bytes = document_bytes(document);
    uint64_t n = pieces_of(document);
    assert(bytes > 0);
    bytes_store_u32(out + MAGIC_AT, DOCUMENT_MAGIC);
    bytes_store_u32(out + BYTES_AT, (uint32_t)bytes);
    bytes_store_u64(out + ID_AT, document->id);
    bytes_store_u64(out + CREATED_AT, document->created_ms);
    bytes_store_u64(out + EXPIRE_AT, document->expire_ms);
    store_hash(out + EXACT_AT, document->exact);
    store_hash(out + COMPAT_AT, document->compat);
    bytes_store_u32(out + N_SCOPE_AT, document->n_scope);
    bytes_store_u32(out + N_TAGS_AT, document->n_tags);
    bytes_store_u32(out + N_CHUNKS_AT, document->n_chunks);
    bytes_store_u32(out + TOKENS_IN_AT, document->tokens_in);
    bytes_store_u32(out + TOKENS_OUT_AT, document->tokens_out);
    bytes_store_u32(out + LLM_MS_AT, document->llm_ms);
    bytes_store_f32(out + COST_AT, document->cost);
    size_t end = (size_t)(ENDS_AT + 4 * n);
    for (uint64_t i = 0; i < n; i++) {
        struct quire_bytes piece = source(document, i);
        if (piece.n_bytes)
            memcpy(out + end, piece.data, piece.n_bytes);
        end += piece.n_bytes;
        bytes_store_u32(out + ENDS_AT + 4 * i, (uint32_t)end);
    }
    memset(out + end, 0, bytes - end);
    bytes_store_u64(out + CHECKSUM_AT, XXH3_64bits(out + MAGIC_AT, bytes - MAGIC_AT));
}

uint32_t document_peek(const uint8_t bytes[DOCUMENT_PEEK_BYTES])
{
    uint32_t n = bytes_load_u32(bytes + BYTES_AT);
    bool right = bytes_load_u32(bytes + MAGIC_AT) == DOCUMENT_MAGIC && n >= ENDS_AT && n % DOCUMENT_UNIT == 0;
    return right && n <= DOCUMENT_BYTES_MAX ? n : 0;
}

/* Piece i of a decoded document. */
static struct quire_bytes piece_at(const struct document *document, uint64_t i)
{
    const uint8_t *bytes = document->packed.data;
    uint64_t n = pieces_of(document);
    assert(bytes && i < n);
    uint64_t begin = i ? bytes_load_u32(bytes + ENDS_AT + 4 * (i - 1)) : ENDS_AT + 4 * n;
    return (struct quire_bytes){bytes + begin, bytes_load_u32(bytes + ENDS_AT + 4 * i) - begin};
}

/* That the table and what it points to lie inside the document. */
static bool pieces_right(const uint8_t *bytes, uint64_t n_bytes, uint64_t n_pieces)
{
    uint64_t end = ENDS_AT + 4 * n_pieces;
    if (end > n_bytes)
        return false;
    for (uint64_t i = 0; i < n_pieces; i++) {
        uint64_t next = bytes_load_u32(bytes + ENDS_AT + 4 * i);
        if (next < end || next > n_bytes)
            return false;
        end = next;
    }
    return n_bytes - end < DOCUMENT_UNIT;
}

int document_decode(const uint8_t *bytes, size_t n, struct document *out, size_t *n_bytes, struct quire_error *err)
{
    uint32_t length = n >= DOCUMENT_PEEK_BYTES ? document_peek(bytes) : 0;
    if (length == 0 || length > n)
        return error_set(err, QUIRE_ECORRUPT, "no document: %s (%zu bytes are there, it says %u)",
                         length ? "its end is missing" : "no header of one", n, length);
    if (XXH3_64bits(bytes + MAGIC_AT, length - MAGIC_AT) != bytes_load_u64(bytes + CHECKSUM_AT))
        return error_set(err, QUIRE_ECORRUPT, "a document of %u bytes does not have its checksum", length);
    struct document document = {.id = bytes_load_u64(bytes + ID_AT),
                                .created_ms = bytes_load_u64(bytes + CREATED_AT),
                                .expire_ms = bytes_load_u64(bytes + EXPIRE_AT),
                                .exact = load_hash(bytes + EXACT_AT),
                                .compat = load_hash(bytes + COMPAT_AT),
                                .n_scope = bytes_load_u32(bytes + N_SCOPE_AT),
                                .n_tags = bytes_load_u32(bytes + N_TAGS_AT),
                                .n_chunks = bytes_load_u32(bytes + N_CHUNKS_AT),
                                .tokens_in = bytes_load_u32(bytes + TOKENS_IN_AT),
                                .tokens_out = bytes_load_u32(bytes + TOKENS_OUT_AT),
                                .llm_ms = bytes_load_u32(bytes + LLM_MS_AT),
                                .cost = bytes_load_f32(bytes + COST_AT)};
    if (!pieces_right(bytes, length, pieces_of(&document)))
        return error_set(err, QUIRE_ECORRUPT, "a document of %u bytes has pieces outside of it", length);
    document.packed = (struct quire_bytes){bytes, length};
    document.category = piece_at(&document, PIECE_CATEGORY);
    document.text = piece_at(&document, PIECE_TEXT);
    document.model = piece_at(&document, PIECE_MODEL);
    *out = document;
    *n_bytes = length;
    return 0;
}

struct quire_pair document_scope(const struct document *document, uint32_t i)
{
    uint64_t piece = PIECE_SCOPE + 2 * (uint64_t)i;
    assert(i < document->n_scope);
    return (struct quire_pair){piece_at(document, piece), piece_at(document, piece + 1)};
}

struct quire_bytes document_tag(const struct document *document, uint32_t i)
{
    assert(i < document->n_tags);
    return piece_at(document, count_pieces(document->n_scope, i, 0));
}

struct quire_bytes document_chunk(const struct document *document, uint32_t i)
{
    assert(i < document->n_chunks);
    return piece_at(document, count_pieces(document->n_scope, document->n_tags, i));
}

struct quire_bytes document_value(const struct document *document)
{
    const uint8_t *bytes = document->packed.data;
    uint64_t n = pieces_of(document), before = n - document->n_chunks;
    assert(bytes);
    /* there are always pieces before the chunks */
    uint32_t begin = bytes_load_u32(bytes + ENDS_AT + 4 * (before - 1)),
             end = bytes_load_u32(bytes + ENDS_AT + 4 * (n - 1));
    return (struct quire_bytes){bytes + begin, end - begin};
}
