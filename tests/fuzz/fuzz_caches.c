/*
 * fuzz_caches.c - any records of the journal as those of semantic caches (docs/format.md, "Records of the cache"), and
 * any frames as those of a leader (cache/core/cache_replica.h).
 *
 * First byte: bit 2 whether frames follow. Records: bit 0 whether the records are a checkpoint's, bit 1 whether a
 * record that makes cache 1 comes before them. Then records: a byte for the kind, two for the length, the bytes; the
 * cache that a record is about is made one of four, so that it mostly exists. Each is taken in or refused with a
 * sentence, and what was made of them can be freed.
 *
 * Frames come to a cache that follows: a byte for the kind, one for flags (bit 0: its number is not the next), two each
 * for the lengths of body and document; body, document. Whatever would end nearly all of them at once is made right:
 * head and checksums. What was taken leaves a cache that is sound, can lead, and takes an image again.
 */
#include "cache/core/cache_replica.h"
#include "io/bytes.h"
#include "tests/fuzz/support_files.h"
#include "tests/support/fault.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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

/* ---- frames ------------------------------------------------------------------------------------------------------ */

enum { KIND_IMAGE = 1, KIND_LIST = 9, KIND_ENTRIES = 10, DOCUMENT_LEAST = 256 };

static void on_told(void *context, struct cache *cache, const struct cache_told *told)
{
    (void)context;
    (void)cache;
    free(told->bytes);
    free(told->document);
}

/* Cache "l" leads and is "f", which follows. */
static void make_pair(struct caches *caches)
{
    struct cache_config config = {.name = {"l", 1}, .dim = DIM, .memory_bytes = 1 << 20, .disk_bytes = 1 << 20};
    struct quire_bytes words[] = {{"SIM", 3}, {"0.9", 3}};
    uint64_t lsn;
    uint8_t *bytes;
    size_t n;
    struct quire_error err = {0};
    fuzz_require(caches_add(caches, &config, &lsn, &err) == 0);
    struct cache *leader = caches_find(caches, config.name);
    fuzz_require(cache_set_category(leader, (struct quire_bytes){"k", 1}, words, 2, &lsn, &err) == 0);
    cache_tell(leader, true);
    fuzz_require(cache_copy_image(leader, &bytes, &n, &err) == 0);
    fuzz_require(caches_take_image(caches, (struct quire_bytes){"f", 1}, bytes, n, &lsn, &err) == 0);
    free(bytes);
    cache_unref(leader);
}

static int take_frame(struct caches *caches, struct cache *cache, struct cache_scratch *scratch, const uint8_t *bytes,
                      size_t n, struct quire_error *err)
{
    uint64_t lsn, lacking[CACHE_LIST_ENTRIES];
    uint32_t count, next;
    switch (bytes[5]) {
    case KIND_IMAGE:
        return caches_take_image(caches, (struct quire_bytes){"f", 1}, bytes, n, &lsn, err);
    case KIND_LIST:
        return cache_take_list(cache, bytes, n, lacking, &count, &next, err);
    case KIND_ENTRIES:
        return cache_take_entries(cache, scratch, bytes, n, &count, err);
    default:
        return cache_take_effect(cache, scratch, bytes, n, &lsn, err);
    }
}

/* One frame, with a right head, in memory of just that size. */
static void come(struct caches *caches, struct cache_scratch *scratch, const uint8_t *record, size_t n_body,
                 size_t n_document)
{
    struct cache *cache = caches_find(caches, (struct quire_bytes){"f", 1});
    struct cache_standing standing;
    struct quire_error err = {0};
    size_t n_head = CACHE_FRAME_BYTES + n_body, n = n_head + n_document;
    uint8_t *frame = calloc(1, n);
    fuzz_require(cache && frame);
    cache_get_standing(cache, &standing);
    memcpy(frame, "QCRE", 4);
    frame[4] = 1;
    frame[5] = record[0] % 12;
    bytes_store_u64(frame + 8, standing.history);
    bytes_store_u64(frame + 16, standing.seq + 1 + (record[1] & 1));
    bytes_store_u32(frame + 24, (uint32_t)n_head);
    bytes_store_u32(frame + 28, (uint32_t)n_document);
    memcpy(frame + CACHE_FRAME_BYTES, record + 6, n_body + n_document);
    if (n_document >= DOCUMENT_LEAST) {
        uint8_t *document = frame + n_head;
        memcpy(document + 8, "QDOC", 4);
        bytes_store_u32(document + 12, (uint32_t)n_document);
        bytes_store_u64(document, XXH3_64bits(document + 8, n_document - 8));
    }
    bytes_store_u64(frame + 32, XXH3_64bits_withSeed(frame + CACHE_FRAME_BYTES, n_body, XXH3_64bits(frame, 32)));
    int rc = take_frame(caches, cache, scratch, frame, n, &err);
    fuzz_require(rc == 0 || (rc < 0 && err.message[0] != 0));
    free(frame);
    cache_unref(cache);
}

static void follow(const uint8_t *data, size_t size)
{
    struct io_fs *fs = fault_fs_create();
    struct caches_options options = {
        .fs = fs, .folder = "/data", .clock_ms = clock_of, .seed = 1, .no_thread = true, .told = on_told};
    struct caches *caches = NULL;
    struct cache_scratch *scratch;
    struct quire_error err = {0};
    fuzz_require(fs->ops->mkdir(fs, "/data") >= 0 && caches_create(&options, &caches, &err) == 0);
    fuzz_require(caches_begin(caches, NULL, &err) == 0 && cache_scratch_create(&scratch, &err) == 0);
    make_pair(caches);
    while (size >= 6) {
        size_t n_body = bytes_load_u16(data + 2), n_document = bytes_load_u16(data + 4);
        n_body = n_body < size - 6 ? n_body : size - 6;
        n_document = n_document < size - 6 - n_body ? n_document : size - 6 - n_body;
        come(caches, scratch, data, n_body, n_document);
        data += 6 + n_body + n_document;
        size -= 6 + n_body + n_document;
    }
    caches_work(caches);
    struct cache *cache = caches_find(caches, (struct quire_bytes){"f", 1});
    fuzz_require(cache && cache_check(cache, &err) == 0);
    cache_lead(cache, true);
    fuzz_require(cache_check(cache, &err) == 0);
    cache_unref(cache);
    caches_end(caches);
    cache_scratch_destroy(scratch);
    caches_destroy(caches);
    fault_fs_destroy(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct caches_options options = {
        .folder = "/nowhere", .clock_ms = clock_of, .seed = 1, .no_thread = true, .read_only = true};
    struct caches *caches;
    uint64_t lsn = 2;
    if (size < 1)
        return 0;
    if (data[0] & 4) {
        follow(data + 1, size - 1);
        return 0;
    }
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
