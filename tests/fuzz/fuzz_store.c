/*
 * fuzz_store.c - a data folder whose journal holds any records, behind right checksums.
 *
 * First byte: bit 0 whether the records are a checkpoint's, bit 1 whether a record that makes collection 1 comes before
 * them. Then records: a byte for the kind, two for the length, the bytes; the collection that a record is about is made
 * one of four, so that it mostly exists. Segment 1 is there, as sealed by somebody. The folder opens or is refused with
 * a sentence; what has opened can be searched, and opens again with the same elements.
 */
#include "index/collection/collection_priv.h"
#include "index/store/store_priv.h"
#include "io/bytes.h"
#include "tests/fuzz/support_files.h"
#include "tests/support/fault.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UIDS = 4, RECORD_BYTES_MAX = 4096 };

/* The next record of the input, in memory of just its size; owned by the caller. NULL: there is none. */
static uint8_t *next_record(const uint8_t **data, size_t *size, uint8_t *kind, uint32_t *n)
{
    if (*size < 3)
        return NULL;
    *kind = (*data)[0] ? (*data)[0] : 1; /* 0 is not a kind */
    *n = (uint32_t)((*data)[1] | (*data)[2] << 8) % RECORD_BYTES_MAX;
    *data += 3;
    *size -= 3;
    *n = *n < *size ? *n : (uint32_t)*size;
    uint8_t *bytes = malloc(*n ? *n : 1);
    fuzz_require(bytes != NULL);
    memcpy(bytes, *data, *n);
    *data += *n;
    *size -= *n;
    if (*n >= 8)
        bytes_store_u64(bytes, bytes[0] % UIDS);
    return bytes;
}

static void make_collection(struct journal *journal)
{
    uint8_t bytes[8 + COLLECTION_CONFIG_BYTES];
    uint64_t lsn;
    struct collection_config config = {
        .dim = TINY_DIM, .type = QUIRE_TYPE_F32, .metric = QUIRE_METRIC_L2, .block_bytes = TINY_BLOCK_BYTES};
    fuzz_require(collection_config_validate(&config, NULL) == 0);
    bytes_store_u64(bytes, 1);
    collection_config_encode(&config, bytes + 8);
    struct journal_record record = {RECORD_CREATE, bytes, sizeof bytes};
    fuzz_require(journal_append(journal, &record, 1, &lsn, NULL) == 0);
}

static int ignore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    (void)context, (void)kind, (void)lsn, (void)bytes, (void)n, (void)err;
    return 0;
}

static void write_journal(struct io_fs *fs, uint8_t how, const uint8_t *data, size_t size)
{
    struct journal_options options = {.sync = JOURNAL_NO};
    struct journal_reader reader = {.restore = ignore, .replay = ignore};
    struct journal_report report;
    struct journal *journal;
    struct checkpoint *checkpoint = NULL;
    uint8_t kind, *bytes;
    uint32_t n;
    uint64_t lsn = 1;
    fuzz_require(journal_open(fs, "/data", &options, &reader, &journal, &report, NULL) == 0);
    if (how & 2)
        make_collection(journal);
    if (how & 1)
        fuzz_require(journal_checkpoint_begin(journal, &checkpoint, NULL) == 0);
    while ((bytes = next_record(&data, &size, &kind, &n))) {
        struct journal_record record = {kind, bytes, n};
        fuzz_require(checkpoint ? journal_checkpoint_put(checkpoint, kind, lsn, bytes, n, NULL) == 0
                                : journal_append(journal, &record, 1, &lsn, NULL) == 0);
        free(bytes);
    }
    if (checkpoint)
        fuzz_require(journal_checkpoint_finish(checkpoint, NULL) == 0);
    fuzz_require(journal_close(journal, NULL) == 0);
}

/* ---- what has opened is used ------------------------------------------------------------------------------------- */

struct lane_of_test {
    struct engine *engine;
    struct searcher *searcher;
};

static void on_search(struct collection_search *search)
{
    volatile uint8_t sum = 0;
    fuzz_require(search->code == 0 || search->error.message[0] != 0);
    for (uint32_t i = 0; i < search->n_hits; i++)
        for (uint32_t b = 0; b < search->hits[i].key_bytes; b++)
            sum = (uint8_t)(sum + ((const uint8_t *)search->hits[i].key)[b]);
    *(bool *)search->owner = true;
}

static void search_it(void *context, struct collection *collection)
{
    struct lane_of_test *lane = context;
    bool done = false;
    struct quire_error err = {0};
    if (collection_available(collection, &err) < 0) { /* its callers ask */
        fuzz_require(err.message[0] != 0);
        return;
    }
    float *query = calloc(collection_config(collection)->dim, sizeof *query);
    struct collection_search search = {
        .collection = collection, .query = query, .want_attributes = true, .done = on_search, .owner = &done};
    fuzz_require(query != NULL);
    query[0] = 1;
    quire_search_options_init(&search.options);
    search.options.k = 5;
    int rc = collection_search_start(lane->searcher, &search, &err);
    fuzz_require(rc == 0 || (rc < 0 && err.message[0] != 0));
    while (rc == 0 && !done)
        engine_poll(lane->engine, 1, 1000000);
    free(query);
}

static void use(struct store *store)
{
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    struct lane_of_test lane;
    fuzz_require(engine_fault_create(&config, 7, &lane.engine, NULL) == 0);
    fuzz_require(searcher_create(lane.engine, NULL, &lane.searcher, NULL) == 0);
    store_each(store, search_it, &lane);
    searcher_cancel(lane.searcher);
    searcher_destroy(lane.searcher);
    engine_destroy(lane.engine);
}

static int open_store(struct io_fs *fs, uint64_t *elements, bool in_use)
{
    struct store_options options = {.fs = fs, .sync = JOURNAL_NO, .no_maintenance = true};
    struct store_report report;
    struct store *store = NULL;
    struct quire_error err = {0};
    int rc = store_open("/data", &options, NULL, &store, &report, &err);
    fuzz_require(rc == 0 || (rc < 0 && err.code == rc && err.message[0] != 0));
    if (rc < 0)
        return rc;
    *elements = report.elements;
    if (in_use)
        use(store);
    fuzz_require(store_close(store, &err) == 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kept_files segment;
    uint64_t elements = 0, again = 0;
    if (size == 0 || size > 1 << 16)
        return 0;
    if (segment.n == 0)
        support_tiny_segment(TINY_GRAPH, &segment);
    struct io_fs *fs = fault_fs_create();
    fuzz_require(fs && fs->ops->mkdir(fs, "/data") == 0 && fs->ops->mkdir(fs, "/data/" SEGMENTS_NAME) == 0);
    support_put_files(fs, "/data/" SEGMENTS_NAME "/1", &segment);
    write_journal(fs, data[0], data + 1, size - 1);
    if (open_store(fs, &elements, true) == 0) {
        fuzz_require(open_store(fs, &again, false) == 0);
        fuzz_require(again == elements);
    }
    fault_fs_destroy(fs);
    return 0;
}
