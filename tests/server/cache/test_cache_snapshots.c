/*
 * test_cache_snapshots.c - snapshots of a server with a semantic cache, taken while another client puts and removes
 * answers: each verifies without findings, and a server that is started on it gives the right answer to everything that
 * was put before it, and to nothing that was removed before it.
 */
#include "cache/core/caches_verify.h"
#include "index/store/store_check.h"
#include "tests/server/support_sc.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 3, EVERY = 5 }; /* each fifth answer is removed again */

struct writer {
    unsigned port;
    atomic_uint put; /* acknowledged, with the removals that belong to them */
    atomic_bool stop;
};

static void *put_on(void *context)
{
    struct writer *w = context;
    struct connection c;
    connect_to(&c, w->port);
    for (unsigned i = 0; !atomic_load(&w->stop); i++) {
        char words[200], id[ID_DIGITS + 1];
        snprintf(words, sizeof words, "f CAT q SCOPE n %u HASH %032x VALUE answer-%u", i % 7, i + 1, i);
        sc_put(&c, NULL, id, words);
        if (i % EVERY == 0) {
            snprintf(words, sizeof words, "SC.DEL f %s", id);
            expect_integer(&c, words, 1);
        }
        atomic_store(&w->put, i + 1);
    }
    disconnect(&c);
    return NULL;
}

static int restore(void *caches, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return kind < CACHE_KINDS ? 0 : caches_restore(caches, kind, lsn, bytes, n, err);
}

static int replay(void *caches, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return kind < CACHE_KINDS ? 0 : caches_replay(caches, kind, lsn, bytes, n, err);
}

static void no_finding(void *context, const char *sentence)
{
    (void)context;
    fail_msg("%s", sentence);
}

static int complete(void *caches, const char *folder, struct journal *journal, struct quire_error *err)
{
    struct caches_check check = {.finding = no_finding, .note = no_finding};
    struct caches_report report;
    (void)folder;
    assert_null(journal);
    int rc = caches_verify(caches, &check, &report, err);
    assert_int_equal(report.caches, 1);
    assert_int_equal(report.entries_lost + report.entries_damaged, 0);
    return rc;
}

static void check_sound(const char *folder)
{
    struct caches *caches;
    struct quire_error err = {0};
    struct caches_options options = {.folder = folder, .no_thread = true, .read_only = true};
    assert_int_equal(caches_create(&options, &caches, &err), 0);
    struct store_host host = {.restore = restore, .replay = replay, .complete = complete, .context = caches};
    if (store_verify(&(struct store_check_request){folder, &host, no_finding, NULL, NULL, NULL}, NULL, &err) < 0)
        fail_msg("%s", err.message);
    caches_destroy(caches);
}

/* What was put before the snapshot answers, unless it was removed; what came later may. */
static void check_answers(const char *folder, unsigned before, unsigned after)
{
    const char *settings[] = {"dir", folder, NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    connect_to(&c, s->port);
    for (unsigned i = 0; i < after; i++) {
        char value[32];
        struct reply r = sc_say(&c, NULL, "SC.GET f CAT q SCOPE n %u HASH %032x NOLEASE", i % 7, i + 1);
        snprintf(value, sizeof value, "answer-%u", i);
        if (i < before)
            sc_check_status(&r, i % EVERY ? "exact" : "miss");
        if (reply_field(&r, "value"))
            sc_check_field(&r, "value", value);
        reply_free(&r);
    }
    sc_end(s, &c);
}

/* Takes the only snapshot of the folder to `to`. */
static void take_snapshot(const char *folder, const char *to)
{
    struct dirent *entry;
    assert_int_equal(support_count_entries(folder), 1);
    DIR *dir = opendir(folder);
    while ((entry = readdir(dir)) && entry->d_name[0] == '.')
        ;
    assert_non_null(entry);
    char *from = support_path(folder, entry->d_name);
    assert_int_equal(rename(from, to), 0);
    free(from);
    closedir(dir);
}

static void snapshots_hold_what_was_put(void **state)
{
    struct connection c;
    struct test_server *s = sc_serve(&c);
    unsigned before[ROUNDS], after[ROUNDS];
    struct writer writer = {.port = s->port};
    pthread_t thread;
    char *elsewhere = support_folder_make(), *snapshots = support_path(s->data, "snapshots");
    (void)state;
    expect_text(&c, "SC.CAT.SET f q MODE exact", "OK");
    assert_int_equal(pthread_create(&thread, NULL, put_on, &writer), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%u", i);
        while (atomic_load(&writer.put) < 300 * (i + 1))
            sched_yield();
        before[i] = atomic_load(&writer.put);
        expect_text(&c, "SAVE", "OK");
        after[i] = atomic_load(&writer.put) + 1; /* and the one that is under way */
        char *to = support_path(elsewhere, name);
        take_snapshot(snapshots, to);
        check_sound(to);
        free(to);
    }
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%u", i);
        char *to = support_path(elsewhere, name);
        check_answers(to, before[i], after[i]);
        free(to);
    }
    free(snapshots);
    sc_end(s, &c);
    support_folder_remove(elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(snapshots_hold_what_was_put)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
