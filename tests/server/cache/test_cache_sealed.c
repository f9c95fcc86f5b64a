/*
 * test_cache_sealed.c - a server whose semantic cache has more vectors than memory: those on the disk answer by
 * nearness and by hash, callers wait for one another's answers there, too, and a snapshot takes the segments along.
 */
#include "tests/server/support_sc.h"
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ENTRIES = 7000, AT_ONCE = 6000, ASKED = 200, TOKEN_BYTES = 128 }; /* memory has room for some 6,300 */

/* Vector i; any two differ by more than a thousandth of a cosine. */
static const float *vector_of(unsigned i)
{
    static float vector[DIM];
    uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned k = 0; k < DIM; k++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        vector[k] = (float)(x >> 40) / (float)(1 << 23) - 1;
    }
    return vector;
}

static const char *const settings[] = {"cache-seal-rows", "1000", NULL};

static struct test_server *serve(struct connection *c)
{
    struct test_server *s = support_server(settings);
    connect_to(c, s->port);
    expect_text(c, "SC.CREATE f DIM 16 MEMORY 1048576", "OK");
    expect_text(c, "SC.CAT.SET f q SIM 0.99 JITTER 0", "OK");
    for (unsigned i = 0; i < ENTRIES; i++) {
        char words[128];
        snprintf(words, sizeof words, "f CAT q VEC @ HASH h%u VALUE answer-%u", i, i);
        sc_put(c, vector_of(i), NULL, words);
        for (unsigned k = 0; i == AT_ONCE && info_number(c, "cache_sealed_entries") < AT_ONCE / 4; k++) {
            assert_true(k < 1000);
            usleep(20000);
        }
    }
    return s;
}

/* Some are near each other, so an answer may be that of a neighbour. How many of the first ASKED answer. */
static unsigned ask_near(struct connection *c)
{
    unsigned hits = 0;
    for (unsigned i = 0; i < ASKED; i++) {
        struct reply r = sc_say(c, vector_of(i), "SC.GET f CAT q VEC @ NOLEASE");
        const struct reply *value = reply_field(&r, "value");
        char right[32];
        snprintf(right, sizeof right, "answer-%u", i);
        if (value)
            sc_check_field(&r, "value", right);
        hits += value != NULL;
        reply_free(&r);
    }
    return hits;
}

static void sealed_entries_answer(void **state)
{
    struct connection c;
    struct test_server *s = serve(&c);
    (void)state;
    struct reply r = ask(&c, "SC.INFO f");
    assert_true(sc_number(&r, "sealed_segments") >= 1 && sc_number(&r, "sealed_disk_bytes") > 0);
    assert_true(sc_number(&r, "memory_bytes") > sc_number(&r, "sealed_memory_bytes"));
    assert_true(sc_number(&r, "entries") == ENTRIES);
    reply_free(&r);
    assert_true(ask_near(&c) >= ASKED - ASKED / 50);
    r = sc_say(&c, vector_of(0), "SC.INVALIDATE f NEAR @ 0.9999 DRYRUN");
    assert_int_equal(reply_number(&r), 1);
    reply_free(&r);
    sc_end(s, &c);
}

static void callers_wait_for_one_answer(void **state)
{
    struct connection c, other;
    char lease[TOKEN_BYTES];
    struct test_server *s = serve(&c);
    (void)state;
    struct reply r = sc_say(&c, vector_of(ENTRIES), "SC.GET f CAT q VEC @ WAIT 15000");
    sc_check_status(&r, "miss");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    connect_to(&other, s->port);
    sc_send_words(&other, vector_of(ENTRIES), "SC.GET f CAT q VEC @ WAIT 15000");
    sc_send_words(&other, vector_of(3), "SC.GET f CAT q HASH h6000");
    for (unsigned i = 0;; i++) {
        r = ask(&c, "SC.STATS f CAT q");
        bool waits = sc_number(&r, "waited") >= 1;
        reply_free(&r);
        if (waits)
            break;
        assert_true(i < 2000);
        usleep(2000);
    }
    r = sc_say(&c, vector_of(ENTRIES), "SC.PUT f CAT q LEASE %s VEC @ VALUE computed", lease);
    assert_true(sc_number(&r, "woken") == 1);
    reply_free(&r);
    r = read_reply(&other);
    sc_check_status(&r, "hit");
    sc_check_field(&r, "value", "computed");
    reply_free(&r);
    r = read_reply(&other);
    sc_check_status(&r, "exact");
    reply_free(&r);
    sc_send_words(&other, vector_of(ENTRIES + 1),
                  "SC.GET f CAT q VEC @ WAIT 15000"); /* and goes while it is searched */
    disconnect(&other);
    expect_text(&c, "PING", "PONG");
    sc_end(s, &c);
}

static void snapshots_have_segments(void **state)
{
    struct connection c;
    struct test_server *s = serve(&c);
    char *snapshots = support_path(s->data, "snapshots"), *elsewhere = support_folder_make();
    char *to = support_path(elsewhere, "data");
    struct dirent *entry;
    (void)state;
    unsigned hits = ask_near(&c);
    assert_true(hits > 0);
    expect_text(&c, "SAVE", "OK");
    DIR *dir = opendir(snapshots);
    while ((entry = readdir(dir)) && entry->d_name[0] == '.')
        ;
    assert_non_null(entry);
    char *from = support_path(snapshots, entry->d_name);
    assert_int_equal(rename(from, to), 0);
    closedir(dir);
    sc_end(s, &c);
    const char *there[] = {"dir", to, "cache-seal-rows", "1000", NULL};
    s = support_server(there);
    connect_to(&c, s->port);
    assert_true(info_number(&c, "cache_sealed_entries") > 0);
    assert_int_equal(ask_near(&c), hits);
    sc_end(s, &c);
    free(from);
    free(to);
    free(snapshots);
    support_folder_remove(elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_entries_answer),
        cmocka_unit_test(callers_wait_for_one_answer),
        cmocka_unit_test(snapshots_have_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
