/*
 * fuzz_caches.c - any records of the journal as those of semantic caches (docs/format.md, "Records of the cache").
 *
 * First byte: bit 0 whether the records are a checkpoint's, bit 1 whether a record that makes cache 1 comes before
 * them. Then records: a byte for the kind, two for the length, the bytes; the cache that a record is about is made one
 * of four, so that it mostly exists. Each is taken in or refused with a sentence, and what was made of them can be
 * freed.
 */
#include "cache/core/cache.h"
#include "index/store/store.h"
#include "io/bytes.h"
#include "tests/fuzz/support_files.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UIDS = 4, KINDS = 16, RECORD_BYTES_MAX = 4096, DIM = 8 };

static uint64_t clock_of(void *context)
{
    (void)context;
    return 1000000;
}

static bool take(struct caches *caches, bool image, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n)
{
    struct quire_error err = {0};
    int rc =
        image ? caches_restore(caches, kind, lsn, bytes, n, &err) : caches_replay(caches, kind, lsn, bytes, n, &err);
    fuzz_require(rc == 0 || (rc < 0 && err.message[0] != 0));
    return rc == 0;
}

/* Cache 1, named c, of DIM dimensions, without scope keys. */
static bool make_cache(struct caches *caches, bool image)
{
    uint8_t bytes[128] = {0}, *at = bytes;
    bytes_store_u64(at, 1);
    at += 8 + 16 + 8; /* secret and epoch */
    bytes_store_u32(at, DIM);
    at += 4 + 2; /* type f32, scopes are not required */
    bytes_store_u64(at, 1 << 20);
    bytes_store_u64(at + 8, 1 << 20);
    bytes_store_u32(at + 16, 1);
    at[20] = 'c';
    at += 21 + 4 + 4; /* no encoder, no scope keys */
    return take(caches, image, CACHE_KINDS, 1, bytes, (uint32_t)(at - bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct caches_options options = {
        .folder = "/nowhere", .clock_ms = clock_of, .seed = 1, .no_thread = true, .read_only = true};
    struct caches *caches;
    uint64_t lsn = 2;
    if (size < 1)
        return 0;
    bool image = data[0] & 1;
    fuzz_require(caches_create(&options, &caches, NULL) == 0);
    bool goes_on = !(data[0] & 2) || make_cache(caches, image);
    fuzz_require(goes_on);
    for (data++, size--; goes_on && size >= 3; lsn++) {
        uint8_t kind = (uint8_t)(CACHE_KINDS + data[0] % KINDS);
        uint32_t n = (uint32_t)(data[1] | data[2] << 8) % RECORD_BYTES_MAX;
        data += 3;
        size -= 3;
        n = n < size ? n : (uint32_t)size;
        uint8_t *bytes = malloc(n ? n : 1); /* of just that size */
        fuzz_require(bytes != NULL);
        memcpy(bytes, data, n);
        if (n >= 8)
            bytes_store_u64(bytes, bytes[0] % UIDS);
        goes_on = take(caches, image, kind, lsn, bytes, n);
        free(bytes);
        data += n;
        size -= n;
    }
    caches_destroy(caches);
    return 0;
}
