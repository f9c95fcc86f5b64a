/*
 * fuzz_document.c - any bytes as a document of the cache.
 *
 * Bit 0 of the first byte chooses whether magic, length and checksum are made right first: behind them lies what a
 * fuzzer would never reach. What is decoded lies inside the bytes, all of it, and what is encoded from it is the same
 * again up to the padding; what is refused leaves the output alone and has a sentence.
 */
#include "cache/document/document.h"
#include "io/bytes.h"
#include <stdlib.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

static void forge(uint8_t *bytes, size_t n)
{
    size_t length = n / DOCUMENT_UNIT * DOCUMENT_UNIT;
    if (length < DOCUMENT_UNIT)
        return;
    memcpy(bytes + 8, "QDOC", 4);
    bytes_store_u32(bytes + 12, (uint32_t)length);
    bytes_store_u64(bytes, XXH3_64bits(bytes + 8, length - 8));
}

/* Pieces lie one behind the other: *at is where this one must begin. */
static struct quire_bytes follow(struct quire_bytes piece, const uint8_t **at, const uint8_t *end)
{
    require(piece.data == *at && piece.n_bytes <= (size_t)(end - *at));
    *at += piece.n_bytes;
    return piece;
}

static void check(const struct document *found)
{
    const uint8_t *bytes = found->packed.data, *at = found->category.data, *end = bytes + found->packed.n_bytes;
    struct document again = *found;
    struct quire_pair *scope = malloc(found->n_scope * sizeof *scope + 1);
    struct quire_bytes *tags = malloc(found->n_tags * sizeof *tags + 1);
    struct quire_bytes *chunks = malloc(found->n_chunks * sizeof *chunks + 1);
    require(scope && tags && chunks && at > bytes);
    follow(found->category, &at, end);
    follow(found->text, &at, end);
    follow(found->model, &at, end);
    for (uint32_t i = 0; i < found->n_scope; i++) {
        scope[i].key = follow(document_scope(found, i).key, &at, end);
        scope[i].value = follow(document_scope(found, i).value, &at, end);
    }
    for (uint32_t i = 0; i < found->n_tags; i++)
        tags[i] = follow(document_tag(found, i), &at, end);
    struct quire_bytes value = document_value(found);
    require(value.data == at);
    for (uint32_t i = 0; i < found->n_chunks; i++)
        chunks[i] = follow(document_chunk(found, i), &at, end);
    require((const uint8_t *)value.data + value.n_bytes == at && (size_t)(end - at) < DOCUMENT_UNIT);
    again.scope = scope;
    again.tags = tags;
    again.chunks = chunks;
    require(document_bytes(&again) == found->packed.n_bytes);
    uint8_t *encoded = malloc(found->packed.n_bytes);
    require(encoded);
    document_encode(&again, encoded);
    require(memcmp(encoded + 8, bytes + 8, (size_t)(at - bytes) - 8) == 0);
    free(encoded);
    free(chunks);
    free(tags);
    free(scope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct document document = {.id = 1};
    struct quire_error err = {0};
    size_t n = 0;
    if (size == 0 || size > 1 << 16)
        return 0;
    uint8_t *bytes = malloc(size);
    require(bytes);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1)
        forge(bytes, size - 1);
    int rc = document_decode(bytes, size - 1, &document, &n, &err);
    if (rc == 0) {
        require(n <= size - 1 && n == document.packed.n_bytes && document.packed.data == bytes);
        check(&document);
    } else {
        require(rc == QUIRE_ECORRUPT && err.code == rc && err.message[0] != 0 && n == 0 && document.id == 1);
    }
    free(bytes);
    return 0;
}
