/*
 * test_vectors_crash.c - the power is cut at every write, sync and change of a name of a scripted run over a vector
 * field: puts, other ids, removals, transactions, seals, merges, checkpoints.
 *
 * A document's record and its vector are one frame. So after each cut the journal's documents and the rows of the field
 * agree: every document finds its row, no row is left over, nothing has to be written, and each vector is the one of
 * the document's version. What was acknowledged is there. Then the field is written to and opened once more.
 *
 * QUIRE_CRASH_STEP=n cuts at every n-th call only (1 tries all: minutes). Without it the step is chosen so that the
 * test takes seconds.
 */
#include "tests/document/support_vectors.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DOCUMENTS 80u
#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)

struct run {
    struct world world;
    struct world_document acknowledged[DOCUMENTS]; /* as of some moment at or before the cut */
    bool failed;
};

static void acknowledge(struct run *r)
{
    struct journal *journal = store_journal(r->world.store);
    if (!r->failed && journal_wait(journal, journal_last_lsn(journal), NULL) == 0)
        memcpy(r->acknowledged, r->world.documents, sizeof r->acknowledged);
    else
        r->failed = true;
}

static void put_some(struct run *r, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t i = first; i < first + n && !r->failed; i++) {
        r->failed = world_put(&r->world, i % DOCUMENTS, version) < 0;
        if (i % 4 == 0)
            acknowledge(r);
    }
    acknowledge(r);
}

static void remove_some(struct run *r, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n && !r->failed; i++)
        if (r->world.documents[i % DOCUMENTS].version)
            r->failed = world_remove(&r->world, i % DOCUMENTS) < 0;
    acknowledge(r);
}

static void touch_some(struct run *r, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n && !r->failed; i++)
        if (r->world.documents[i].version)
            r->failed = world_put(&r->world, i, r->world.documents[i].version) < 0;
    acknowledge(r);
}

static void seal(struct run *r)
{
    r->failed = r->failed || store_seal(r->world.store, r->world.vectors->collection, NULL) < 0;
}

static void checkpoint(struct run *r)
{
    r->failed = r->failed || store_checkpoint(r->world.store, NULL) < 0;
}

static void script(struct run *r)
{
    put_some(r, 0, 40, 1);
    seal(r);
    put_some(r, 20, 40, 2);
    touch_some(r, 10, 20);
    checkpoint(r);
    remove_some(r, 5, 20);
    seal(r);
    put_some(r, 0, 15, 3); /* by numbers that were others' */
    r->failed = r->failed || store_compact(r->world.store, r->world.vectors->collection, NULL) < 0;
    remove_some(r, 0, 8);
    put_some(r, 60, 20, 4);
    checkpoint(r);
    touch_some(r, 30, 30);
    put_some(r, 0, 80, 5);
    seal(r);
    remove_some(r, 70, 10);
}

static void begin(struct run *r, struct io_fs *fs)
{
    struct schema_vector what = world_field(SCHEMA_COSINE, SCHEMA_FLOAT32);
    memset(r, 0, sizeof *r);
    world_begin(&r->world, fs, "/data", DOCUMENTS, &what, false);
    acknowledge(r);
    assert_false(r->failed);
}

/* Whether what was acknowledged is there, or what came after it. */
static bool has_acknowledged(const struct run *r)
{
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        if (r->world.documents[i].lsn < r->acknowledged[i].lsn ||
            (r->world.documents[i].lsn == r->acknowledged[i].lsn &&
             r->world.documents[i].version != r->acknowledged[i].version)) {
            fprintf(stderr, "document %u: version %u is gone\n", i, r->acknowledged[i].version);
            return false;
        }
    return true;
}

static bool recovers(struct run *r)
{
    struct world *w = &r->world;
    int64_t n = world_open(w);
    if (n != 0) {
        fprintf(stderr, "%lld documents and rows do not agree\n", (long long)n);
        return false;
    }
    bool right = has_acknowledged(r) && world_is_whole(w);
    for (uint32_t i = 0; i < 10 && right; i++)
        right = world_put(w, i, 50) == 0;
    right = right && store_seal(w->store, w->vectors->collection, NULL) == 0 && store_settle(w->store, NULL) == 0 &&
            world_is_whole(w);
    world_close(w);
    right = right && world_open(w) == 0 && world_is_whole(w);
    world_close(w);
    return right;
}

/* Cuts the power at the n-th call. */
static void cut_at(uint64_t n, uint64_t seed)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    assert_true(fs && r);
    begin(r, fs);
    fault_fail_nth(fs, CALLS, n, QUIRE_EIO, true);
    script(r);
    if (!r->failed)
        fault_fail_nth(fs, CALLS, 0, 0, false);
    world_close(&r->world);
    fault_power_cut(fs, seed);
    if (!recovers(r))
        fail_msg("after a cut at call %llu with seed %llu", (unsigned long long)n, (unsigned long long)seed);
    world_end(&r->world);
    free(r);
    fault_fs_destroy(fs);
}

static uint64_t count_calls(void)
{
    struct io_fs *fs = fault_fs_create();
    struct run *r = malloc(sizeof *r);
    assert_true(fs && r);
    begin(r, fs);
    fault_fail_nth(fs, CALLS, 0, 0, false); /* counts from here */
    script(r);
    assert_false(r->failed);
    assert_true(world_is_whole(&r->world));
    uint64_t calls = fault_calls(fs, CALLS);
    world_close(&r->world);
    assert_true(recovers(r));
    world_end(&r->world);
    free(r);
    fault_fs_destroy(fs);
    return calls;
}

static void every_cut_leaves_documents_with_their_vectors(void **state)
{
    const char *text = getenv("QUIRE_CRASH_STEP");
    const uint64_t seeds[] = {0, UINT64_MAX, 1, 2};
    uint64_t calls = count_calls(), chosen = text ? strtoull(text, NULL, 10) : calls / (SANITIZED ? 12 : 60) + 1;
    (void)state;
    assert_true(chosen > 0);
    for (uint64_t n = 1; n <= calls; n += chosen)
        for (unsigned i = 0; i < sizeof seeds / sizeof *seeds; i++)
            cut_at(n, seeds[i] == 0 || seeds[i] == UINT64_MAX ? seeds[i] : seeds[i] + 10 * n);
    fprintf(stderr, "%llu calls, every %llu-th with 4 seeds\n", (unsigned long long)calls, (unsigned long long)chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_leaves_documents_with_their_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
