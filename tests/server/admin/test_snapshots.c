/*
 * test_snapshots.c - SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF, and that a snapshot opened by another server is what it
 * says: every write up to its LSN and none behind it, while clients write and segments are exchanged.
 */
#include "io/random.h"
#include "tests/server/support_server.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SNAPSHOTS_MAX = 16, WRITERS = 3, DIM = 4 };

static unsigned long long lsn_of(const char *name)
{
    return strtoull(name + 17, NULL, 10);
}

static int by_lsn(const void *a, const void *b)
{
    unsigned long long x = lsn_of(a), y = lsn_of(b);
    return x == y ? strcmp(a, b) : x > y ? 1 : -1;
}

/* Names of the folders below `folder`, in the order of their LSNs; nothing else may be there. */
static unsigned list_snapshots(const char *folder, char names[SNAPSHOTS_MAX][64])
{
    unsigned n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(n < SNAPSHOTS_MAX && strlen(entry->d_name) < 64);
        assert_true(strlen(entry->d_name) > 17 && entry->d_name[8] == 'T' && entry->d_name[16] == '-');
        strcpy(names[n++], entry->d_name);
    }
    closedir(dir);
    qsort(names, n, 64, by_lsn);
    return n;
}

static struct test_server *serve(const char *folder)
{
    const char *settings[] = {"dir", folder, NULL};
    return support_server(settings);
}

/* cp -a, as operations.md says. */
static char *copy_of(const char *snapshot, const char *folder, const char *name)
{
    char command[512], *to = support_path(folder, name);
    snprintf(command, sizeof command, "cp -a '%s' '%s'", snapshot, to);
    assert_int_equal(system(command), 0);
    return to;
}

static void wait_for_save(struct connection *c)
{
    for (unsigned i = 0; info_number(c, "rdb_bgsave_in_progress") != 0; i++) {
        assert_true(i < 2000);
        usleep(5000);
    }
}

/* ---- replies and figures ------------------------------------------------------------------------------------------*/

static void test_commands(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    char names[SNAPSHOTS_MAX][64];
    char *folder = support_path(s->data, "snapshots");
    (void)state;
    connect_to(&c, s->port);
    assert_int_equal(info_number(&c, "loading"), 0);
    assert_int_equal(info_number(&c, "aof_enabled"), 1);
    assert_int_equal(info_number(&c, "rdb_saves"), 0);
    assert_int_equal(info_number(&c, "rdb_last_bgsave_time_sec"), -1);
    assert_int_equal(info_number(&c, "rdb_changes_since_last_save"), 0);
    expect_text(&c, "SET k 1", "OK");
    expect_text(&c, "SET k 2", "OK");
    assert_int_equal(info_number(&c, "rdb_changes_since_last_save"), 2);
    struct reply r = ask(&c, "CONFIG GET appendonly");
    assert_true(reply_is(&r.items[1], "yes"));
    reply_free(&r);
    long long before = info_number(&c, "rdb_last_save_time");
    expect_text(&c, "SAVE", "OK");
    assert_int_equal(list_snapshots(folder, names), 1);
    assert_int_equal(lsn_of(names[0]), 2);
    assert_int_equal(info_number(&c, "rdb_changes_since_last_save"), 0);
    assert_int_equal(info_number(&c, "rdb_saves"), 1);
    r = ask(&c, "LASTSAVE");
    assert_true(r.integer >= before);
    reply_free(&r);
    expect_text(&c, "SAVE", "OK"); /* the same LSN, perhaps the same second */
    assert_true(list_snapshots(folder, names) <= 2);
    expect_text(&c, "SET k 3", "OK");
    expect_text(&c, "BGSAVE", "Background saving started");
    wait_for_save(&c);
    expect_text(&c, "SET k 4", "OK");
    expect_text(&c, "BGSAVE SCHEDULE", "Background saving started");
    wait_for_save(&c);
    unsigned n = list_snapshots(folder, names);
    assert_true(n >= 3 && lsn_of(names[n - 1]) == 4 && lsn_of(names[n - 2]) == 3);
    expect_error(&c, "BGSAVE NOW", "ERR syntax error");
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "SET k 5", "QUEUED");
    expect_text(&c, "BGSAVE", "QUEUED");
    expect_text(&c, "SET l 5", "QUEUED");
    r = ask(&c, "EXEC");
    assert_true(r.n == 3 && reply_is(&r.items[1], "Background saving scheduled"));
    reply_free(&r);
    wait_for_save(&c);
    n = list_snapshots(folder, names);
    assert_int_equal(lsn_of(names[n - 1]), 5);
    free(folder);
    disconnect(&c);
    support_server_end(s);
}

static void test_without_folder(void **state)
{
    static const char *const settings[] = {"dir", "", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_error(&c, "SAVE", "ERR snapshots need a data folder");
    expect_error(&c, "BGSAVE", "ERR snapshots need a data folder");
    expect_error(&c, "BGREWRITEAOF", "ERR there is no log without a data folder");
    assert_int_equal(info_number(&c, "aof_enabled"), 0);
    struct reply r = ask(&c, "CONFIG GET appendonly");
    assert_true(reply_is(&r.items[1], "no"));
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

/* What is in the log goes into the checkpoint; all of it is there after a restart. */
static void test_rewrite(void **state)
{
    char *folder = support_folder_make();
    struct test_server *s = serve(folder);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    assert_int_equal(info_number(&c, "aof_last_rewrite_time_sec"), -1);
    expect_text(&c, "SET k value", "OK");
    expect_integer(&c, "VADD v VALUES 2 1 2 a SETATTR {}", 1);
    long long before = info_number(&c, "aof_rewrites"), base = info_number(&c, "aof_base_size");
    expect_text(&c, "BGREWRITEAOF", "Background append only file rewriting started");
    for (unsigned i = 0; info_number(&c, "aof_rewrite_in_progress") != 0; i++) {
        assert_true(i < 2000);
        usleep(5000);
    }
    assert_int_equal(info_number(&c, "aof_rewrites"), before + 1);
    assert_true(info_number(&c, "aof_base_size") > base);
    assert_true(info_number(&c, "aof_last_rewrite_time_sec") >= 0);
    assert_int_equal(info_number(&c, "aof_rewrite_scheduled"), 0);
    struct reply r = ask(&c, "INFO persistence");
    assert_non_null(strstr(r.text, "aof_last_bgrewrite_status:ok\r\n"));
    reply_free(&r);
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "BGREWRITEAOF", "QUEUED");
    expect_text(&c, "BGREWRITEAOF", "QUEUED"); /* the first is under way by then, or done */
    r = ask(&c, "EXEC");
    assert_int_equal(r.n, 2);
    assert_true(reply_is(&r.items[0], "Background append only file rewriting scheduled"));
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
    s = serve(folder);
    connect_to(&c, s->port);
    expect_text(&c, "GET k", "value");
    expect_text(&c, "VGETATTR v a", "{}");
    disconnect(&c);
    support_server_end(s);
    support_folder_remove(folder);
}

static void test_failure(void **state)
{
    char *elsewhere = support_folder_make();
    char *file = support_path(elsewhere, "file");
    const char *settings[] = {"snapshot-dir", file, NULL};
    struct connection c;
    (void)state;
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    struct test_server *s = support_server(settings);
    connect_to(&c, s->port);
    expect_error(&c, "SAVE", "ERR ");
    struct reply r = ask(&c, "INFO persistence");
    assert_non_null(strstr(r.text, "rdb_last_bgsave_status:err\r\n"));
    reply_free(&r);
    assert_int_equal(unlink(file), 0);
    expect_text(&c, "SAVE", "OK");
    r = ask(&c, "INFO persistence");
    assert_non_null(strstr(r.text, "rdb_last_bgsave_status:ok\r\n"));
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
    free(file);
    support_folder_remove(elsewhere);
}

/* Those that stay are the youngest; folders that are no snapshots stay, too. */
static void test_keep(void **state)
{
    static const char *const settings[] = {"snapshots-keep", "2", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    char names[SNAPSHOTS_MAX][64];
    char *folder = support_path(s->data, "snapshots"), *old = support_path(folder, "20010101T000000Z-99");
    char *other = support_path(folder, "20010101T000000Z-mine"), *rest = support_path(folder, "new");
    (void)state;
    assert_int_equal(mkdir(folder, 0700) | mkdir(old, 0700) | mkdir(other, 0700) | mkdir(rest, 0700), 0);
    connect_to(&c, s->port);
    for (unsigned i = 0; i < 4; i++) {
        expect_integer(&c, "INCR k", i + 1);
        expect_text(&c, "SAVE", "OK");
    }
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(list_snapshots(folder, names), 2);
    assert_true(lsn_of(names[0]) == 3 && lsn_of(names[1]) == 4);
    free(old);
    free(other);
    free(rest);
    free(folder);
    disconnect(&c);
    support_server_end(s);
}

/* ---- what they hold -----------------------------------------------------------------------------------------------*/

struct writer {
    unsigned port, id;
    atomic_bool *stop;
    atomic_uint acknowledged;
};

/* What a process that was killed leaves goes at the start, and a snapshot that is whole stays; what was being removed
 * has no name of one. */
static void test_leftovers_of_a_kill(void **state)
{
    static const char *const leftovers[] = {"new", "new.building", "new.building/segments",
                                            "old", "old/segments", "old/segments/7"};
    char *folder = support_folder_make(), path[600], snapshots[300], names[SNAPSHOTS_MAX][64];
    struct connection c;
    (void)state;
    struct test_server *s = serve(folder);
    connect_to(&c, s->port);
    expect_text(&c, "SET a 1", "OK");
    expect_text(&c, "SAVE", "OK");
    disconnect(&c);
    support_server_end(s);
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
    for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
        snprintf(path, sizeof path, "%s/%s", snapshots, leftovers[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    snprintf(path, sizeof path, "%s/old/segments/7/meta", snapshots);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    s = serve(folder);
    assert_int_equal(list_snapshots(snapshots, names), 1);
    support_server_end(s);
    support_folder_remove(folder);
}

/* Counts up: a string, a field and an element each time, one after the other. */
static void *write_on(void *context)
{
    struct writer *w = context;
    struct connection c;
    char words[96];
    connect_to(&c, w->port);
    for (unsigned i = 1; !atomic_load(w->stop); i++) {
        snprintf(words, sizeof words, "SET s%u %u", w->id, i);
        expect_text(&c, words, "OK");
        snprintf(words, sizeof words, "HSET h%u f%u 1", w->id, i);
        expect_integer(&c, words, 1);
        snprintf(words, sizeof words, "VADD v%u VALUES 4 1 %u %u 2 e%u", w->id % 2, i % 100, i / 100,
                 w->id * 1000000 + i);
        expect_integer(&c, words, 1);
        atomic_store(&w->acknowledged, i);
    }
    disconnect(&c);
    return NULL;
}

static long long ask_number(struct connection *c, const char *words)
{
    struct reply r = ask(c, words);
    long long number = r.type == ':' ? r.integer : r.null ? 0 : atoll(r.text);
    reply_free(&r);
    return number;
}

/* Each writer's counts are those of one moment, at least what was acknowledged before the snapshot began and at most
 * one more than what was after it. Returns how many writes there are. */
static void check_moment(const char *folder, const unsigned *before, const unsigned *after)
{
    struct test_server *s = serve(folder);
    struct connection c;
    char words[64];
    long long elements = 0, least = 0;
    connect_to(&c, s->port);
    for (unsigned i = 0; i < WRITERS; i++) {
        snprintf(words, sizeof words, "GET s%u", i);
        long long string = ask_number(&c, words);
        snprintf(words, sizeof words, "HLEN h%u", i);
        long long fields = ask_number(&c, words);
        if (string < before[i] || string > after[i] + 1)
            fail_msg("%s: %lld, not %u to %u", folder, string, before[i], after[i] + 1);
        assert_true(fields == string || fields == string - 1);
        least += fields - 1;
        elements -= string;
        snprintf(words, sizeof words, "HEXISTS h%u f%lld", i, fields);
        assert_int_equal(ask_number(&c, words), fields > 0);
    }
    long long count = ask_number(&c, "VCARD v0") + ask_number(&c, "VCARD v1");
    assert_true(count >= least && count + elements <= 0);
    expect_integer(&c, "EXISTS only-later", 0);
    /* it is written to like any other */
    expect_text(&c, "SET more 1", "OK");
    expect_text(&c, "VSEAL v0", "OK");
    expect_text(&c, "VCOMPACT v0", "OK");
    assert_int_equal(ask_number(&c, "VCARD v0") + ask_number(&c, "VCARD v1"), count);
    expect_text(&c, "SAVE", "OK");
    disconnect(&c);
    support_server_end(s);
}

static void note_acknowledged(struct writer *writers, unsigned *out)
{
    for (unsigned i = 0; i < WRITERS; i++)
        out[i] = atomic_load(&writers[i].acknowledged);
}

static void test_while_writers_write(void **state)
{
    static const char *const settings[] = {"memtable-memory", "64kb", "lanes", "2", "checkpoint-log", "1mb", NULL};
    enum { ROUNDS = 4 };
    struct test_server *s = support_server(settings);
    char *elsewhere = support_folder_make(), *folder = support_path(s->data, "snapshots");
    char names[SNAPSHOTS_MAX][64];
    unsigned before[ROUNDS][WRITERS], after[ROUNDS][WRITERS];
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    struct connection c;
    atomic_bool stop = false;
    (void)state;
    connect_to(&c, s->port);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.port = s->port, .id = i, .stop = &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, write_on, &writers[i]), 0);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        usleep(150000);
        note_acknowledged(writers, before[round]);
        expect_text(&c, "SAVE", "OK");
        note_acknowledged(writers, after[round]);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    expect_text(&c, "SET only-later 1", "OK");
    assert_int_equal(list_snapshots(folder, names), ROUNDS);
    for (unsigned round = 0; round < ROUNDS; round++) {
        char *snapshot = support_path(folder, names[round]), *copy = copy_of(snapshot, elsewhere, names[round]);
        check_moment(copy, before[round], after[round]);
        free(copy);
        free(snapshot);
    }
    /* used in place, it leaves the original alone */
    unsigned total[WRITERS];
    note_acknowledged(writers, total);
    long long elements = ask_number(&c, "VCARD v0"), keys = ask_number(&c, "DBSIZE");
    char *snapshot = support_path(folder, names[ROUNDS - 1]);
    check_moment(snapshot, before[ROUNDS - 1], after[ROUNDS - 1]);
    check_moment(snapshot, before[ROUNDS - 1], after[ROUNDS - 1]);
    expect_text(&c, "VCOMPACT v0", "OK");
    disconnect(&c);
    char *data = strdup(s->data);
    server_destroy(s->server);
    s->server = NULL;
    struct test_server *again = serve(data);
    connect_to(&c, again->port);
    assert_int_equal(ask_number(&c, "VCARD v0"), elements);
    assert_int_equal(ask_number(&c, "DBSIZE"), keys);
    struct reply r = ask(&c, "VCHECK v0");
    assert_int_equal(reply_field(&r, "findings")->integer, 0);
    reply_free(&r);
    expect_integer(&c, "EXISTS only-later more", 1);
    disconnect(&c);
    support_server_end(again);
    free(data);
    free(snapshot);
    free(folder);
    support_server_end(s);
    support_folder_remove(elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands),
                                       cmocka_unit_test(test_without_folder),
                                       cmocka_unit_test(test_rewrite),
                                       cmocka_unit_test(test_failure),
                                       cmocka_unit_test(test_keep),
                                       cmocka_unit_test(test_leftovers_of_a_kill),
                                       cmocka_unit_test(test_while_writers_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
