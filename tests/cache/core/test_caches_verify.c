/*
 * test_caches_verify.c - checks of the caches of a folder, and saving their documents: what is whole counts, each kind
 * of damage is found, what a crash leaves is none, and entries whose documents were saved answer in the new folder.
 */
#include "cache/core/caches_verify.h"
#include "index/store/store_check.h"
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { DIM = 32, N = 40, UNIT = 256, HEADER = 4096 };

struct heard {
    unsigned findings, notes;
    char last[1024];
};

struct reading {
    struct caches *caches;
    struct heard heard;
    struct caches_report report;
    bool saves;
};

static void hear_finding(void *context, const char *sentence)
{
    struct reading *r = context;
    r->heard.findings++;
    snprintf(r->heard.last, sizeof r->heard.last, "%s", sentence);
}

static void hear_note(void *context, const char *sentence)
{
    struct reading *r = context;
    r->heard.notes++;
    snprintf(r->heard.last, sizeof r->heard.last, "%s", sentence);
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return caches_restore(((struct reading *)context)->caches, kind, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return caches_replay(((struct reading *)context)->caches, kind, lsn, bytes, n, err);
}

static int complete(void *context, const char *folder, struct quire_error *err)
{
    struct reading *r = context;
    struct caches_check check = {
        .finding = hear_finding, .note = hear_note, .context = r, .to = r->saves ? folder : NULL};
    return caches_verify(r->caches, &check, &r->report, err);
}

static uint64_t clock_of(void *context)
{
    return atomic_load(&((struct world *)context)->now_ms);
}

/* Verifies the world's folder, or repairs it to `to`. */
static void read_folder(struct world *world, const char *to, struct reading *r)
{
    struct quire_error err = {0};
    struct caches_options options = {
        .folder = world->folder, .clock_ms = clock_of, .clock_context = world, .no_thread = true, .read_only = true};
    *r = (struct reading){.saves = to != NULL};
    assert_int_equal(caches_create(&options, &r->caches, &err), 0);
    struct store_host host = {.restore = restore, .replay = replay, .complete = complete, .context = r};
    const struct store_check_request request = {world->folder, &host, hear_finding, NULL, r, NULL};
    int rc = to ? store_repair(&request, to, NULL, &err) : store_verify(&request, NULL, &err);
    if (rc < 0)
        fail_msg("%s", err.message);
    caches_destroy(r->caches);
    assert_int_equal(r->report.findings, r->heard.findings);
    assert_int_equal(r->report.caches, 1);
}

/* N entries in category "k", one by one in the order of their documents; closed as a server does. */
static void fill(struct world *world, const char *folder)
{
    float vector[DIM];
    char text[32], value[32];
    world_open(world, folder, DIM);
    world_category(world, "k", "SIM 0.9 TTL 3600000 JITTER 0");
    for (unsigned i = 0; i < N; i++) {
        vector_make(vector, DIM, i);
        snprintf(text, sizeof text, "what about %c%c?", 'a' + i / 26, 'a' + i % 26);
        snprintf(value, sizeof value, "value %u", i);
        put_simple(world, text, vector, value);
    }
    world_close(world);
}

/* Of the n entries those that answer, each rightly. */
static unsigned count_answers(struct world *world)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N; i++) {
        float vector[DIM];
        char text[32], value[256], right[32];
        vector_make(vector, DIM, i);
        snprintf(text, sizeof text, "what about %c%c?", 'a' + i / 26, 'a' + i % 26);
        snprintf(right, sizeof right, "value %u", i);
        enum quire_cache_status status = ask_simple(world, text, vector, value);
        if (status != QUIRE_CACHE_HIT && status != QUIRE_CACHE_EXACT)
            continue;
        assert_string_equal(value, right);
        n++;
    }
    return n;
}

/* The path of the only cache's folder of documents, and of the only segment in it. */
static void find_segment(const char *folder, char *documents, char *segment)
{
    char path[600];
    snprintf(path, sizeof path, "%s/documents", folder);
    for (unsigned level = 0; level < 2; level++) {
        DIR *dir = opendir(path);
        struct dirent *entry;
        assert_non_null(dir);
        assert_int_equal(support_count_entries(path), 1);
        while ((entry = readdir(dir)) && entry->d_name[0] == '.')
            ;
        assert_non_null(entry);
        size_t n = strlen(path);
        snprintf(path + n, sizeof path - n, "/%s", entry->d_name);
        closedir(dir);
        strcpy(level ? segment : documents, path);
    }
}

static void overwrite(const char *path, off_t offset, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, offset), (ssize_t)n);
    close(fd);
}

static void reopen_at(struct world *world, const char *folder)
{
    char path[256]; /* it may be the world's own */
    snprintf(path, sizeof path, "%s", folder);
    memcpy(world->folder, path, sizeof path);
    world_open_again(world);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void sound_folders(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], saved[256];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    assert_int_equal(r.report.entries, N);
    assert_int_equal(r.report.documents, N);
    assert_int_equal(r.report.document_segments, 1);
    read_folder(&world, saved, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    reopen_at(&world, saved);
    assert_int_equal(count_answers(&world), N);
    world_check(&world);
    world_close(&world);
    support_folder_remove(temp);
}

/* A checkpoint and a log behind it, with removals in both: a repair brings nothing back. */
static void repair_keeps_removals(void **state)
{
    struct world world;
    struct reading r;
    struct quire_error err;
    uint64_t n, lsn;
    char *temp = support_folder_make(), folder[256], saved[256];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    reopen_at(&world, folder);
    world_category(&world, "other", "SIM 0.9");
    assert_int_equal(cache_drop_category(world.cache, text_of("other"), &lsn, &err), 0);
    struct quire_bytes k = text_of("k");
    struct quire_cache_selector all = {.by = QUIRE_CACHE_BY_CATEGORY, .names = &k, .n = 1};
    assert_int_equal(cache_invalidate(world.cache, world.scratch, &all, false, &n, &lsn, &err), 0);
    assert_int_equal(n, N);
    assert_int_equal(store_checkpoint(world.store, &err), 0);
    float vector[DIM];
    vector_make(vector, DIM, 7);
    put_simple(&world, "what about ah?", vector, "value 7");
    world_close(&world);
    read_folder(&world, saved, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.report.entries, 1);
    reopen_at(&world, saved);
    assert_int_equal(count_answers(&world), 1);
    world_close(&world);
    support_folder_remove(temp);
}

static void damaged_documents(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], saved[256], documents[600], segment[600];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    overwrite(segment, HEADER + 3 * UNIT + 200, "x", 1);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 1);
    assert_int_equal(r.report.entries_damaged, 1);
    assert_non_null(strstr(r.heard.last, "1 of its 40 entries"));
    read_folder(&world, saved, &r);
    reopen_at(&world, saved);
    assert_int_equal(count_answers(&world), N - 1);
    world_close(&world);
    /* the entry has gone when it was asked for: nothing is wrong with what was saved */
    snprintf(world.folder, sizeof world.folder, "%s", saved);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.report.entries, N - 1);
    support_folder_remove(temp);
}

static void damaged_headers(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], saved[256], documents[600], segment[600];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    overwrite(segment, 17, "x", 1);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 1);
    assert_non_null(strstr(r.heard.last, "header"));
    read_folder(&world, saved, &r);
    reopen_at(&world, saved);
    assert_int_equal(count_answers(&world), N);
    world_close(&world);
    support_folder_remove(temp);
}

/* What was never written is no damage; a file that is missing between others is. */
static void missing_documents(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], documents[600], segment[600], later[700];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    assert_int_equal(truncate(segment, HEADER + 30 * UNIT), 0);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.heard.notes, 1);
    assert_int_equal(r.report.entries_lost, 10);
    assert_int_equal(r.report.entries, N);
    snprintf(later, sizeof later, "%s/%016x.docs", documents, UINT32_MAX);
    assert_int_equal(rename(segment, later), 0);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 2); /* the file that has another number in it, and the one that is missing */
    assert_int_equal(r.report.entries_damaged, N);
    assert_int_equal(rename(later, segment), 0);
    /* opening removes the ten for good */
    reopen_at(&world, folder);
    assert_int_equal(count_answers(&world), 30);
    world_close(&world);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    assert_int_equal(r.report.entries, 30);
    support_folder_remove(temp);
}

static void folders_of_nobody(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], path[300];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    fill(&world, folder);
    snprintf(path, sizeof path, "%s/documents/00000000deadbeef", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.heard.notes, 1);
    assert_non_null(strstr(r.heard.last, "deadbeef is of no cache any more"));
    support_folder_remove(temp);
}

/* Expired entries need no documents. */
static void expired_entries(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], documents[600], segment[600];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    assert_int_equal(unlink(segment), 0);
    world.now_ms += 3600000;
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    assert_int_equal(r.report.entries, 0);
    support_folder_remove(temp);
}

/* ---- sealed vectors ---------------------------------------------------------------------------------------------- */

static void fill_sealed(struct world *world, const char *folder)
{
    float vector[DIM];
    char text[32], value[32];
    world_make(world, folder, &(struct cache_config){.dim = DIM},
               &(struct world_options){.sync = JOURNAL_NO, .seal_rows = N / 2});
    world_category(world, "k", "SIM 0.9 TTL 3600000 JITTER 0 MODE semantic");
    for (unsigned i = 0; i < N; i++) {
        vector_make(vector, DIM, i);
        snprintf(text, sizeof text, "what about %c%c?", 'a' + i / 26, 'a' + i % 26);
        snprintf(value, sizeof value, "value %u", i);
        put_simple(world, text, vector, value);
    }
    world_work(world);
    assert_true(stats_of(world, "").sealed_segments == 1);
    world_close(world);
}

/* One byte in the middle of a file of the only segment of vectors is another one. */
static void damage_sealed(const char *folder, const char *file)
{
    char path[600];
    snprintf(path, sizeof path, "%s/sealed", folder);
    DIR *dir = opendir(path);
    struct dirent *entry;
    assert_non_null(dir);
    while ((entry = readdir(dir)) && entry->d_name[0] == '.')
        ;
    assert_non_null(entry);
    size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "/%s/%s", entry->d_name, file);
    closedir(dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    off_t at = lseek(fd, 0, SEEK_END) / 2;
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x55;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Whole: nothing is found, and a repair takes the segment along. Damaged: it is found, and a repair goes without it. */
static void sealed_vectors_are_proved_and_saved(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), *folder = support_path(temp, "from"), *to = support_path(temp, "to"),
         *to2 = support_path(temp, "to2");
    (void)state;
    fill_sealed(&world, folder);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.report.findings, 0);
    assert_int_equal(r.report.sealed_segments, 1);
    read_folder(&world, to, &r);
    assert_int_equal(r.report.findings, 0);
    struct world saved = world;
    snprintf(saved.folder, sizeof saved.folder, "%s", to);
    world_open_again(&saved);
    assert_int_equal(count_answers(&saved), N);
    assert_true(saved.n_searches > 0);
    world_check(&saved);
    world_close(&saved);
    damage_sealed(folder, "blocks");
    read_folder(&world, NULL, &r);
    assert_true(r.report.findings > 0);
    read_folder(&world, to2, &r);
    assert_true(r.report.findings > 0);
    snprintf(saved.folder, sizeof saved.folder, "%s", to2);
    world_open_again(&saved);
    assert_int_equal(stats_of(&saved, "").sealed_segments, 0);
    assert_in_range(count_answers(&saved), N / 4, N - N / 4);
    world_check(&saved);
    world_close(&saved);
    free(folder);
    free(to);
    free(to2);
    support_folder_remove(temp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_folders),     cmocka_unit_test(repair_keeps_removals),
        cmocka_unit_test(damaged_documents), cmocka_unit_test(damaged_headers),
        cmocka_unit_test(missing_documents), cmocka_unit_test(folders_of_nobody),
        cmocka_unit_test(expired_entries),   cmocka_unit_test(sealed_vectors_are_proved_and_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
