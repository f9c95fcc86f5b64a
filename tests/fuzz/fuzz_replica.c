/*
 * fuzz_replica.c - any bytes as an effect of a leader's write, and as a manifest.
 *
 * The first byte says which. As the checksum would end nearly all inputs, the right one is written into a copy of them
 * that is read, too. What an effect says comes out the same when it is encoded again; a manifest that is read is made
 * into a copy in a store in memory, or refused, and the store is sound afterwards.
 */
#include "index/replica/replica_effect.h"
#include "index/replica/replica_manifest.h"
#include "io/bytes.h"
#include "tests/fuzz/support_files.h"
#include "tests/support/fault.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum(const uint8_t *bytes, size_t n, size_t at)
{
    return XXH3_64bits_withSeed(bytes + at + 8, n - at - 8, XXH3_64bits(bytes, at));
}

static void read_effect(const uint8_t *bytes, size_t n)
{
    struct replica_effect effect;
    uint32_t n_again;
    if (replica_effect_decode(bytes, n, &effect, NULL) == 0) {
        struct lineage_identity of = {.seq = 0};
        memcpy(of.id, effect.id, LINEAGE_ID_BYTES);
        memcpy(of.history, effect.history, LINEAGE_ID_BYTES);
        effect.effect.of = &of;
        uint8_t *again = replica_effect_encode(&effect.effect, &n_again);
        if (again) {
            struct replica_effect second;
            fuzz_require(n_again == n);
            fuzz_require(replica_effect_decode(again, n_again, &second, NULL) == 0);
            fuzz_require(second.effect.seq == effect.effect.seq && second.effect.kind == effect.effect.kind);
            replica_effect_fini(&second);
        }
        free(again);
    }
    replica_effect_fini(&effect);
}

static void read_manifest(const uint8_t *bytes, size_t n)
{
    struct replica_manifest_info info;
    if (replica_manifest_read(bytes, n, &info, NULL) < 0)
        return;
    struct io_fs *fs = fault_fs_create();
    struct store_options options = {.fs = fs, .no_maintenance = true};
    struct store *store = NULL;
    struct collection *copy = NULL;
    struct quire_error err = {0};
    fuzz_require(store_open("/data", &options, NULL, &store, NULL, &err) == 0);
    if (replica_manifest_load(store, bytes, n, NULL, &copy, &err) == 0) {
        struct lineage_identity identity;
        fuzz_require(lineage_get(copy, &identity) && identity.seq == info.identity.seq);
        fuzz_require(lineage_missing(copy) == lineage_list_told(copy, NULL, 0));
        collection_unref(copy);
    }
    fuzz_require(store_close(store, NULL) == 0);
    fuzz_require(store_open("/data", &options, NULL, &store, NULL, &err) == 0);
    fuzz_require(store_close(store, NULL) == 0);
    fault_fs_destroy(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    size_t n = size - 1, at = data[0] & 1 ? 80 : 56; /* where the checksum is */
    uint8_t *copy = malloc(n + 1);
    fuzz_require(copy != NULL);
    memcpy(copy, data + 1, n);
    void (*read)(const uint8_t *, size_t) = data[0] & 1 ? read_manifest : read_effect;
    read(copy, n);
    if (n >= at + 8) {
        if (data[0] & 1)
            bytes_store_u64(copy + 72, n);
        bytes_store_u64(copy + at, sum(copy, n, at));
        read(copy, n);
    }
    free(copy);
    return 0;
}
