/*
 * fuzz_replica.c - any bytes as an effect of a leader's write, as a manifest, and as all that a copy gets: a manifest,
 * effects that are done to it one after the other, and the files of a segment.
 *
 * The first byte says which. As the checksum would end nearly all inputs, the right one is written into a copy of them
 * that is read, too; effects that a copy gets are made to be of its own history and the next number, where they say so.
 * What an effect says comes out the same when it is encoded again; a manifest that is read is made into a copy in a
 * store in memory, or refused; what is done to the copy is done or refused, no segment of random bytes is adopted, and
 * the store is sound afterwards.
 */
#include "index/column/columns.h"
#include "index/format/format.h"
#include "index/replica/replica_effect.h"
#include "index/replica/replica_fetch.h"
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

/* ---- all that a copy gets ---------------------------------------------------------------------------------------- */

struct input {
    const uint8_t *at;
    size_t left;
};

/* What is left where that is less. */
static const uint8_t *take(struct input *in, size_t n, size_t *got)
{
    const uint8_t *from = in->at;
    *got = n < in->left ? n : in->left;
    in->at += *got;
    in->left -= *got;
    return from;
}

static unsigned take_byte(struct input *in)
{
    size_t n;
    const uint8_t *at = take(in, 1, &n);
    return n ? *at : 0;
}

/* A piece that begins with its length, as a copy of just its size. */
static uint8_t *take_piece(struct input *in, size_t *n)
{
    size_t n_length;
    uint8_t length[2] = {0};
    const uint8_t *at = take(in, 2, &n_length);
    memcpy(length, at, n_length);
    at = take(in, bytes_load_u16(length), n);
    uint8_t *copy = malloc(*n + 1);
    fuzz_require(copy != NULL);
    memcpy(copy, at, *n);
    return copy;
}

static void set_sum(uint8_t *bytes, size_t n, size_t at)
{
    if (n >= at + 8)
        bytes_store_u64(bytes + at, sum(bytes, n, at));
}

static void do_effect(struct collection *copy, struct input *in)
{
    struct lineage_identity before, after;
    size_t n;
    uint64_t lsn = 0;
    bool fits = take_byte(in) & 1;
    uint8_t *bytes = take_piece(in, &n);
    fuzz_require(lineage_get(copy, &before));
    if (n >= 64 && fits) {
        bytes_store_u64(bytes + 8, before.seq + 1);
        memcpy(bytes + 16, before.id, LINEAGE_ID_BYTES);
        memcpy(bytes + 32, before.history, LINEAGE_ID_BYTES);
    }
    set_sum(bytes, n, 56);
    int rc = replica_effect_apply(copy, bytes, n, &lsn, NULL);
    fuzz_require(lineage_get(copy, &after));
    fuzz_require(after.seq == before.seq + (rc == 0 && lsn > 0));
    fuzz_require(lineage_missing(copy) <= lineage_list_told(copy, NULL, 0));
    free(bytes);
}

/* Files as a leader lists them, and what it sends of them. */
static void fetch_segment(struct store *store, struct collection *copy, struct input *in)
{
    static const char *const names[] = {META_NAME,       BLOCKS_NAME,  CODES_NAME,    KEYS_NAME,
                                        ATTRIBUTES_NAME, COLUMNS_NAME, POSTINGS_NAME, "LOCK"};
    struct lineage_told told = {.bytes = 0};
    struct replica_file files[REPLICA_FILES_MAX] = {{.bytes = 0}}, missing;
    struct replica_fetch *fetch;
    uint64_t bytes = 0, offset, lsn;
    uint32_t n_missing, n = take_byte(in) % 9;
    if (lineage_list_told(copy, &told, 1) == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        strcpy(files[i].name, names[take_byte(in) % 8]);
        files[i].bytes = i + 1 < n ? take_byte(in) * 7 : told.bytes - bytes;
        bytes += files[i].bytes;
    }
    if (replica_fetch_begin(store, copy, &told, files, n, &fetch, NULL) < 0)
        return;
    while (replica_fetch_next(fetch, 512, &missing, &offset, &n_missing) && in->left > 0) {
        uint8_t piece[512] = {0};
        size_t got;
        const uint8_t *from = take(in, n_missing, &got);
        memcpy(piece, from, got);
        fuzz_require(replica_fetch_write(fetch, missing.name, offset, piece, n_missing, NULL) == 0);
    }
    fuzz_require(replica_fetch_end(fetch, &lsn, NULL) < 0);
}

static void read_all(const uint8_t *bytes, size_t n)
{
    struct input in = {bytes, n};
    struct io_fs *fs = fault_fs_create();
    struct store_options options = {.fs = fs, .no_maintenance = true};
    struct store *store = NULL;
    struct collection *copy = NULL;
    size_t n_manifest;
    uint8_t *manifest = take_piece(&in, &n_manifest);
    if (n_manifest >= 80)
        bytes_store_u64(manifest + 72, n_manifest);
    set_sum(manifest, n_manifest, 80);
    fuzz_require(store_open("/data", &options, NULL, &store, NULL, NULL) == 0);
    if (replica_manifest_load(store, manifest, n_manifest, NULL, &copy, NULL) == 0) {
        for (unsigned n_effects = take_byte(&in) % 32; n_effects > 0; n_effects--)
            do_effect(copy, &in);
        fuzz_require(replica_fetch_settle(store, copy, NULL) >= 0 || lineage_list_told(copy, NULL, 0) > 0);
        fetch_segment(store, copy, &in);
        collection_unref(copy);
    }
    free(manifest);
    fuzz_require(store_close(store, NULL) == 0);
    fuzz_require(store_open("/data", &options, NULL, &store, NULL, NULL) == 0);
    fuzz_require(store_close(store, NULL) == 0);
    fault_fs_destroy(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] & 2) {
        read_all(data + 1, size - 1);
        return 0;
    }
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
