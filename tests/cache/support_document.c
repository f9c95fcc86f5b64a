/* support_document.c - see support_document.h. */
#include "tests/cache/support_document.h"
#include "cache/guard/text.h"
#include "io/random.h"
#include <stdlib.h>

enum { PIECES = 6 };

static void fill(struct random *random, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)random_next(random);
}

uint8_t *support_document(uint64_t id, uint64_t expire_ms, size_t room, uint32_t *n_bytes)
{
    struct random random;
    struct quire_bytes tags[PIECES], chunks[PIECES];
    struct quire_pair scope[PIECES];
    uint8_t *noise = malloc(room + 64);
    random_init(&random, id);
    fill(&random, noise, room + 64);
    for (unsigned i = 0; i < PIECES; i++) {
        scope[i] =
            (struct quire_pair){{noise + i, random_below(&random, 8)}, {noise + 2 * i, random_below(&random, 8)}};
        tags[i] = (struct quire_bytes){noise + i, random_below(&random, 12)};
        chunks[i] = (struct quire_bytes){noise + i, random_below(&random, room / PIECES + 1)};
    }
    struct document document = {.id = id,
                                .created_ms = random_next(&random),
                                .expire_ms = expire_ms,
                                .exact = {random_next(&random), random_next(&random)},
                                .category = text_of("support"),
                                .text = {noise, random_below(&random, 40)},
                                .scope = scope,
                                .tags = tags,
                                .chunks = chunks,
                                .n_scope = (uint32_t)random_below(&random, PIECES + 1),
                                .n_tags = (uint32_t)random_below(&random, PIECES + 1),
                                .n_chunks = 1 + (uint32_t)random_below(&random, PIECES)};
    *n_bytes = (uint32_t)document_bytes(&document);
    uint8_t *bytes = malloc(*n_bytes);
    document_encode(&document, bytes);
    free(noise);
    return bytes;
}

bool support_document_same(uint64_t id, uint64_t expire_ms, size_t room, const uint8_t *bytes, size_t n_bytes)
{
    uint32_t n = 0;
    uint8_t *right = support_document(id, expire_ms, room, &n);
    bool same = n == n_bytes && memcmp(right, bytes, n) == 0;
    free(right);
    return same;
}
