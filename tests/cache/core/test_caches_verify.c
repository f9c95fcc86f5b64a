/*
 * test_caches_verify.c - checks of the caches of a folder, and saving their documents: what is whole counts, each kind
 * of damage is found, what a crash leaves is none, and entries whose documents were saved answer in the new folder.
 */
#include "cache/core/cache_priv.h"
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

/* As if nothing of the documents had been synced before the power went: what the journal keeps of that is in records of
 * one kind. */
static bool forgets_syncs;

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (kind == CACHE_LOG_DURABLE && forgets_syncs)
        return 0;
    return caches_restore(((struct reading *)context)->caches, kind, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    if (kind == CACHE_LOG_DURABLE && forgets_syncs)
        return 0;
    return caches_replay(((struct reading *)context)->caches, kind, lsn, bytes, n, err);
}

static int complete(void *context, const char *folder, struct journal *journal, struct quire_error *err)
{
    struct reading *r = context;
    struct caches_check check = {
        .finding = hear_finding, .note = hear_note, .context = r, .to = r->saves ? folder : NULL, .journal = journal};
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

/* What was on the disk once and is missing is damage; what a crash kept from being written is none. */
static void missing_documents(void **state)
{
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], saved[256], documents[600], segment[600], later[700];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    assert_int_equal(truncate(segment, HEADER + 30 * UNIT), 0);
    forgets_syncs = true;
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.heard.notes, 1);
    assert_int_equal(r.report.entries_lost, 10);
    assert_int_equal(r.report.entries, N);
    snprintf(later, sizeof later, "%s.away", segment);
    assert_int_equal(rename(segment, later), 0);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 0);
    assert_int_equal(r.report.entries_lost, N);
    forgets_syncs = false;
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 1);
    assert_non_null(strstr(r.heard.last, "is not there: the documents of 40 entries"));
    assert_int_equal(r.report.entries_damaged, N);
    assert_int_equal(rename(later, segment), 0);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 1);
    assert_non_null(strstr(r.heard.last, "10 of its 40 entries"));
    assert_int_equal(r.report.entries_damaged, 10);
    /* unavailable, and nothing is given up */
    struct quire_error err = {0};
    reopen_at(&world, folder);
    assert_int_equal(cache_available(world.cache, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, segment));
    assert_int_equal(store_checkpoint(world.store, &err), 0);
    world_close(&world);
    read_folder(&world, saved, &r);
    assert_int_equal(r.report.entries_damaged, 10);
    /* what was saved is sound, and the ten are gone */
    snprintf(world.folder, sizeof world.folder, "%s", saved);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    assert_int_equal(r.report.entries, 30);
    reopen_at(&world, saved);
    assert_int_equal(cache_available(world.cache, &err), 0);
    assert_int_equal(count_answers(&world), 30);
    world_check(&world);
    world_close(&world);
    support_folder_remove(temp);
}

/* A header of zeros with documents behind it: damage, and every one of them is served and saved. */
static void zeroed_headers(void **state)
{
    static const uint8_t zeros[HEADER];
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), folder[256], saved[256], documents[600], segment[600];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    snprintf(saved, sizeof saved, "%s/saved", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    overwrite(segment, 0, zeros, sizeof zeros);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 1);
    assert_non_null(strstr(r.heard.last, "header"));
    assert_int_equal(r.report.entries_damaged + r.report.entries_lost, 0);
    read_folder(&world, saved, &r);
    assert_int_equal(r.heard.findings, 1);
    reopen_at(&world, folder);
    assert_int_equal(count_answers(&world), N);
    world_close(&world);
    reopen_at(&world, folder); /* and after the log's thread has looked for what to remove */
    assert_int_equal(count_answers(&world), N);
    world_close(&world);
    snprintf(world.folder, sizeof world.folder, "%s", saved);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    reopen_at(&world, saved);
    assert_int_equal(count_answers(&world), N);
    world_close(&world);
    support_folder_remove(temp);
}

/* Nothing but zeros: no document can be had, and that is told instead of taken for a file that never was. */
static void zeroed_files(void **state)
{
    static uint8_t zeros[HEADER + N * 2 * UNIT];
    struct world world;
    struct reading r;
    struct quire_error err = {0};
    struct stat status;
    char *temp = support_folder_make(), folder[256], documents[600], segment[600];
    (void)state;
    snprintf(folder, sizeof folder, "%s/data", temp);
    fill(&world, folder);
    find_segment(folder, documents, segment);
    assert_int_equal(stat(segment, &status), 0);
    assert_in_range(status.st_size, HEADER, sizeof zeros);
    overwrite(segment, 0, zeros, (size_t)status.st_size);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.heard.findings, 2);
    assert_int_equal(r.report.entries_damaged, N);
    reopen_at(&world, folder);
    assert_int_equal(cache_available(world.cache, &err), QUIRE_ECORRUPT);
    world_close(&world);
    assert_int_equal(access(segment, F_OK), 0);
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

/* What is saved is sound: verified before a server has seen it. */
static void check_saved(struct world *world, const char *to, unsigned n_answers)
{
    struct world saved = *world;
    struct reading r;
    snprintf(saved.folder, sizeof saved.folder, "%s", to);
    read_folder(&saved, NULL, &r);
    assert_int_equal(r.heard.findings + r.heard.notes, 0);
    assert_int_equal(r.report.entries, n_answers);
    world_open_again(&saved);
    assert_int_equal(cache_available(saved.cache, NULL), 0);
    assert_int_equal(count_answers(&saved), n_answers);
    world_check(&saved);
    world_close(&saved);
}

/* Whole: nothing is found, and a repair takes the segment along. Damaged: it is found, and a repair saves the vectors
 * of whole blocks, all of them where only what can be made anew is damaged. */
static void sealed_vectors_are_proved_and_saved(void **state)
{
    static const char *const files[] = {"codes", "keys", "blocks", "meta"};
    struct world world;
    struct reading r;
    char *temp = support_folder_make(), *folder = support_path(temp, "from"), *to = support_path(temp, "to");
    (void)state;
    fill_sealed(&world, folder);
    read_folder(&world, NULL, &r);
    assert_int_equal(r.report.findings, 0);
    assert_int_equal(r.report.sealed_segments, 1);
    read_folder(&world, to, &r);
    assert_int_equal(r.report.findings, 0);
    check_saved(&world, to, N);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[16];
        snprintf(name, sizeof name, "to%zu", i);
        char *part = support_path(temp, name);
        damage_sealed(folder, files[i]);
        read_folder(&world, NULL, &r);
        assert_true(r.report.findings > 0);
        read_folder(&world, part, &r);
        assert_true(r.report.findings > 0);
        bool needed = strcmp(files[i], "blocks") == 0 || strcmp(files[i], "meta") == 0;
        assert_true(needed || r.report.vectors_lost == 0);
        assert_true(!needed || r.report.vectors_lost > 0);
        check_saved(&world, part, N - (unsigned)r.report.vectors_lost);
        damage_sealed(folder, files[i]); /* the same bits back */
        free(part);
    }
    free(folder);
    free(to);
    support_folder_remove(temp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_folders),     cmocka_unit_test(repair_keeps_removals),
        cmocka_unit_test(damaged_documents), cmocka_unit_test(damaged_headers),
        cmocka_unit_test(missing_documents), cmocka_unit_test(zeroed_headers),
        cmocka_unit_test(zeroed_files),      cmocka_unit_test(folders_of_nobody),
        cmocka_unit_test(expired_entries),   cmocka_unit_test(sealed_vectors_are_proved_and_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
