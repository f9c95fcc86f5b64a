/*
 * collection_digest.c - a digest without an order: elements come as memtables and segments have them, and every layout
 * has another. The XOR of hashes of 128 bits is the same for each, and names occur once, so that nothing cancels out.
 */
#include "index/collection/collection_digest.h"
#include "index/attribute/grants.h"
#include "io/bytes.h"
#include "io/error.h"

struct digest_walk {
    XXH3_state_t *state;
    uint64_t low, high, n;
};

static void add_piece(XXH3_state_t *state, const void *bytes, size_t n)
{
    uint8_t length[8];
    bytes_store_u64(length, n);
    XXH3_128bits_update(state, length, sizeof length);
    if (n > 0)
        XXH3_128bits_update(state, bytes, n);
}

XXH128_hash_t collection_digest_element(XXH3_state_t *state, const struct exported_element *e)
{
    XXH3_128bits_reset(state);
    add_piece(state, e->key, e->key_bytes);
    add_piece(state, e->attributes, e->attribute_bytes);
    add_piece(state, e->exact, e->exact_bytes);
    for (uint32_t i = 0; i < e->n_grants; i++) /* which are sorted */
        add_piece(state, e->grants[i].name, e->grants[i].bytes);
    return XXH3_128bits_digest(state);
}

static int add_element(void *context, const struct exported_element *element)
{
    struct digest_walk *walk = context;
    XXH128_hash_t hash = collection_digest_element(walk->state, element);
    walk->low ^= hash.low64;
    walk->high ^= hash.high64;
    walk->n++;
    return 0;
}

int collection_digest(struct collection *collection, uint8_t out[COLLECTION_DIGEST_BYTES], uint64_t *n,
                      struct quire_error *err)
{
    struct digest_walk walk = {.state = XXH3_createState()};
    int rc = walk.state ? collection_export_all(collection, add_element, &walk, err)
                        : error_set(err, QUIRE_ENOMEM, "no memory to hash");
    XXH3_freeState(walk.state);
    if (rc < 0)
        return rc;
    bytes_store_u64(out, walk.low);
    bytes_store_u64(out + 8, walk.high);
    if (n)
        *n = walk.n;
    return 0;
}
