/*
 * test_device.c - a server with a device answers what a server without one does, byte for byte; and says what it did.
 *
 * Two servers hold the same sets: one with gpu off, one with the first device of the machine, which in tests is pocl,
 * behind the loader that fails on demand (tests/opencl/fake_opencl.c). The device vanishes, has little memory, fails at
 * every call in turn; sets are written to, merged and removed; clients leave, and the server stops, with queries under
 * way. Without a device the tests say that they were skipped.
 */
#include "index/offload/offload.h"
#include "tests/opencl/fail_memory.h"
#include "tests/opencl/skip_without_device.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ADDED = 700, MORE = 60, WIDE = 100 };

#define CL_MEM_FULL (-4)
#define CL_GONE     (-2)

static const char *const sets[] = {"l2", "ip", "cosine", "live"};

static struct fake_opencl *fake;
static struct offload_device device;
static char *folder, *log_path;

struct side {
    struct test_server *server;
    struct connection c;
};
static struct side plain, helped;

static int set_up(void **state)
{
    struct quire_error err = {0};
    uint32_t n = 0;
    (void)state;
    fake = fake_opencl_install();
    folder = support_folder_make();
    log_path = support_path(folder, "log");
    support_build(folder, "l2", QUIRE_METRIC_L2);
    support_build_kind(folder, "ip", QUIRE_METRIC_IP, QUIRE_INDEX_SPANN);
    support_build(folder, "cosine", QUIRE_METRIC_COSINE);
    if (fake && fake->has_device)
        assert_true(offload_list(&device, 1, &n, &err) == 0 && n == 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(log_path);
    support_folder_remove(folder);
    return 0;
}

/* ---- what INFO says ---------------------------------------------------------------------------------------------- */

/* The value of a line of INFO gpu. */
static const char *info(struct side *s, const char *field)
{
    static char value[1024];
    char begin[64];
    struct reply r = ask(&s->c, "INFO gpu");
    snprintf(begin, sizeof begin, "\n%s:", field);
    const char *at = strstr(r.text, begin);
    if (!at)
        fail_msg("INFO gpu has no %s:\n%s", field, r.text);
    at += strlen(begin);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    reply_free(&r);
    return value;
}

static long long count(struct side *s, const char *field)
{
    return strtoll(info(s, field), NULL, 10);
}

/* Waits for a state, or for a count. */
static void await(struct side *s, const char *field, const char *value)
{
    for (unsigned i = 0; strcmp(info(s, field), value) != 0; i++) {
        if (i == 2000)
            fail_msg("%s is %s, not %s", field, info(s, field), value);
        usleep(10000);
    }
}

/* Lines of the log with this text. */
static unsigned log_lines(const char *text)
{
    static char contents[1 << 20];
    FILE *file = fopen(log_path, "r");
    unsigned n = 0;
    assert_non_null(file);
    contents[fread(contents, 1, sizeof contents - 1, file)] = 0;
    fclose(file);
    for (const char *at = contents; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* ---- two servers ------------------------------------------------------------------------------------------------- */

static void start_side(struct side *s, const char *gpu)
{
    const char *const settings[] = {"import-dir", folder, "gpu", gpu, "appendfsync", "no", NULL};
    s->server = support_server_logging(log_path, settings);
    connect_to(&s->c, s->server->port);
}

static void stop_side(struct side *s)
{
    disconnect(&s->c);
    support_server_end(s->server);
}

static void words_of(char *out, size_t room, const char *begin, const float *vector, const char *end)
{
    size_t n = (size_t)snprintf(out, room, "%s", begin);
    for (unsigned d = 0; d < SUPPORT_DIM; d++)
        n += (size_t)snprintf(out + n, room - n, " %.9g", (double)vector[d]);
    snprintf(out + n, room - n, " %s", end);
}

static void add(struct side *s, uint32_t from, uint32_t to)
{
    char begin[40], words[1024], end[24];
    for (uint32_t i = from; i < to; i++) {
        float vector[SUPPORT_DIM];
        for (unsigned d = 0; d < SUPPORT_DIM; d++)
            vector[d] = support_vectors()[(i * 7 % SUPPORT_ROWS) * SUPPORT_DIM + d] + (float)(i % 11) * 0.01f;
        snprintf(begin, sizeof begin, "VADD live VALUES %d", SUPPORT_DIM);
        snprintf(end, sizeof end, "e%u", i);
        words_of(words, sizeof words, begin, vector, end);
        expect_integer(&s->c, words, 1);
    }
}

/* The same sets on each side: three that were built, one that was written to, sealed, and written to again. */
static void fill(struct side *s)
{
    for (size_t i = 0; i < 3; i++) {
        char words[64];
        snprintf(words, sizeof words, "VLOAD %s %s", sets[i], sets[i]);
        expect_text(&s->c, words, "OK");
    }
    add(s, 0, ADDED);
    struct reply r = ask(&s->c, "VSEAL live");
    reply_free(&r);
    add(s, ADDED, ADDED + MORE);
}

static void start(const char *gpu)
{
    unlink(log_path);
    start_side(&plain, "off");
    start_side(&helped, gpu);
    await(&helped, "gpu_state", "ready");
    fill(&plain);
    fill(&helped);
}

static void stop(void)
{
    stop_side(&plain);
    stop_side(&helped);
    assert_int_equal(fake->objects, 0);
}

/* Replies as text, so that they can be compared. */
static void flatten(const struct reply *r, char **out, size_t *n, size_t *room)
{
    if (*room - *n < r->bytes + 100) {
        *room = *room * 2 + r->bytes + 4096;
        *out = realloc(*out, *room);
        assert_non_null(*out);
    }
    *n += (size_t)sprintf(*out + *n, "%c%s %lld %zu\n", r->type, r->text ? r->text : "", r->integer, r->n);
    for (size_t i = 0; i < r->n; i++)
        flatten(&r->items[i], out, n, room);
}

static char *text_of(struct reply r)
{
    char *out = NULL;
    size_t n = 0, room = 0;
    flatten(&r, &out, &n, &room);
    reply_free(&r);
    return out;
}

static void expect_same(const char *words)
{
    char *a = text_of(ask(&plain.c, words)), *b = text_of(ask(&helped.c, words));
    if (strcmp(a, b) != 0)
        fail_msg("%.200s:\nwithout a device\n%.2000s\nwith one\n%.2000s", words, a, b);
    free(a);
    free(b);
}

/* A query near a row. */
static void fill_query(uint32_t i, float query[SUPPORT_DIM])
{
    for (unsigned d = 0; d < SUPPORT_DIM; d++)
        query[d] = support_vectors()[(i * 37 % SUPPORT_ROWS) * SUPPORT_DIM + d] + 0.003f * (float)((i + d) % 7);
}

/* VMSIM of n queries, every `elements`-th by an element (0: none), one of them not there. */
static char *many(const char *set, uint32_t n, uint32_t elements, const char *options)
{
    size_t room = 200 + n * 300, bytes;
    char *out = malloc(room);
    assert_non_null(out);
    bytes = (size_t)snprintf(out, room, "VMSIM %s %u", set, n);
    for (uint32_t i = 0; i < n; i++) {
        float query[SUPPORT_DIM];
        if (elements && i % elements == 0) {
            bytes += (size_t)snprintf(out + bytes, room - bytes, " ELE %s%u", strcmp(set, "live") == 0 ? "e" : "",
                                      i == elements ? 99999 : i);
            continue;
        }
        fill_query(i, query);
        bytes += (size_t)snprintf(out + bytes, room - bytes, " VALUES %d", SUPPORT_DIM);
        for (unsigned d = 0; d < SUPPORT_DIM; d++)
            bytes += (size_t)snprintf(out + bytes, room - bytes, " %.9g", (double)query[d]);
    }
    snprintf(out + bytes, room - bytes, " %s", options);
    return out;
}

/* TRUTH of all kinds, on every set. */
static void compare_all(unsigned n)
{
    char words[1024], begin[40];
    for (size_t s = 0; s < 4; s++) {
        for (unsigned i = 0; i < n; i++) {
            float query[SUPPORT_DIM];
            fill_query(i, query);
            snprintf(begin, sizeof begin, "VSIM %s VALUES %d", sets[s], SUPPORT_DIM);
            words_of(words, sizeof words, begin, query, "COUNT 7 WITHSCORES TRUTH");
            expect_same(words);
            snprintf(words, sizeof words, "VSIM %s ELE %s%u COUNT 12 TRUTH WITHSCORES", sets[s], s == 3 ? "e" : "",
                     i * 17);
            expect_same(words);
        }
        char *wide = many(sets[s], WIDE, 5, "COUNT 5 TRUTH WITHSCORES WITHVECTORS");
        expect_same(wide);
        free(wide);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_off(void **state)
{
    (void)state;
    start_side(&plain, "off");
    assert_string_equal(info(&plain, "gpu_wanted"), "off");
    assert_string_equal(info(&plain, "gpu_state"), "off");
    expect_text(&plain.c, "VLOAD l2 l2", "OK");
    struct reply r = ask(&plain.c, "VSIM l2 ELE 3 COUNT 4 TRUTH EXPLAIN");
    assert_true(reply_is(reply_field(&r.items[1], "plan"), "scan"));
    reply_free(&r);
    stop_side(&plain);
}

static void test_no_such_device(void **state)
{
    (void)state;
    unlink(log_path);
    start_side(&helped, "no such device");
    await(&helped, "gpu_state", "none");
    assert_non_null(strstr(info(&helped, "gpu_note"), "the processor does the work: "));
    assert_int_equal(log_lines("gpu no such device: the processor does the work: "), 1);
    expect_text(&helped.c, "VLOAD l2 l2", "OK");
    struct reply r = ask(&helped.c, "VSIM l2 ELE 3 COUNT 4 TRUTH EXPLAIN");
    assert_true(reply_is(reply_field(&r.items[1], "plan"), "scan"));
    reply_free(&r);
    assert_int_equal(count(&helped, "gpu_queries"), 0);
    stop_side(&helped);
}

static void test_same_answers(void **state)
{
    (void)state;
    skip_without_device(fake);
    start(device.name);
    assert_int_equal(log_lines("whatever it takes"), 1);
    compare_all(6);
    assert_true(count(&helped, "gpu_named") > 4 * WIDE / 2 && count(&helped, "gpu_segments") == 4);
    assert_true(count(&helped, "gpu_rows_bytes") > 0 && count(&helped, "gpu_failed") == 0);
    assert_true(count(&helped, "gpu_asks") >= count(&helped, "gpu_batches") && count(&helped, "gpu_batches") > 0);
    struct reply r = ask(&helped.c, "VSIM l2 ELE 3 COUNT 4 EXPLAIN TRUTH");
    assert_true(reply_is(reply_field(&r.items[1], "plan"), "device"));
    assert_true(reply_is(reply_field(&r.items[1], "result"), "exact"));
    assert_true(reply_field(&r.items[1], "rows-scored")->integer < SUPPORT_ROWS);
    reply_free(&r);
    /* all there are, and more */
    expect_same("VSIM l2 ELE 3 COUNT 600 TRUTH WITHSCORES");
    expect_same("VSIM live ELE e3 COUNT 5000 TRUTH WITHSCORES");
    assert_non_null(strstr(info(&helped, "gpu_last_fall_back"), "all rows"));
    /* in a transaction, and in the newer protocol */
    expect_same("MULTI");
    expect_same("VSIM l2 ELE 30 COUNT 6 TRUTH WITHSCORES");
    expect_same("VSIM live ELE e30 COUNT 6 TRUTH WITHATTRIBS");
    expect_same("EXEC");
    struct reply hello = ask(&plain.c, "HELLO 3");
    reply_free(&hello);
    hello = ask(&helped.c, "HELLO 3");
    reply_free(&hello);
    compare_all(1);
    /* errors */
    expect_same("VSIM l2 ELE none TRUTH");
    expect_same("VSIM l2 VALUES 2 1 2 TRUTH");
    expect_same("VSIM l2 VALUES 16 nan 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 TRUTH");
    stop();
}

/* VMSIM of many queries is exact with a device; of few, of names alone, or with bounded reads it is as without. */
static void test_wide(void **state)
{
    (void)state;
    skip_without_device(fake);
    start(device.name);
    for (size_t s = 0; s < 4; s++) {
        char *exact = many(sets[s], WIDE, 0, "COUNT 10 WITHSCORES TRUTH"),
             *wide = many(sets[s], WIDE, 0, "COUNT 10 WITHSCORES RECALL 0.5");
        char *a = text_of(ask(&plain.c, exact)), *b = text_of(ask(&helped.c, wide));
        assert_true(s == 3 || strcmp(a, b) == 0); /* of what is in memory a walk may miss some */
        free(a);
        free(b);
        free(exact);
        free(wide);
    }
    long long asked = count(&helped, "gpu_queries");
    assert_int_equal(asked, 4 * WIDE);
    char *few = many("l2", 20, 0, "COUNT 10 WITHSCORES"), *names = many("l2", WIDE, 0, "COUNT 10"),
         *bounded = many("l2", WIDE, 0, "COUNT 10 WITHSCORES MAXREADS 5"),
         *filtered = many("l2", WIDE, 0, "COUNT 10 TRUTH WITHSCORES FILTER .a>1"),
         *explained = many("l2", WIDE, 0, "COUNT 3 WITHSCORES EXPLAIN");
    expect_same(few);
    expect_same(names);
    expect_same(bounded);
    expect_same(filtered);
    assert_int_equal(count(&helped, "gpu_queries"), asked);
    struct reply r = ask(&helped.c, explained);
    assert_true(reply_is(reply_field(&r.items[5].items[1], "plan"), "device"));
    reply_free(&r);
    free(few);
    free(names);
    free(bounded);
    free(filtered);
    free(explained);
    stop();
}

/* Rows end, others come, segments are merged and removed: what is on the device follows. */
static void test_writes(void **state)
{
    char words[64];
    (void)state;
    skip_without_device(fake);
    start(device.name);
    compare_all(1);
    for (uint32_t i = 0; i < ADDED + MORE; i += 9) {
        snprintf(words, sizeof words, "VREM live e%u", i);
        expect_same(words);
        if (i % 5 == 0)
            expect_same("VSIM live ELE e1 COUNT 20 TRUTH WITHSCORES");
    }
    compare_all(2);
    add(&plain, 2000, 2100);
    add(&helped, 2000, 2100);
    expect_same("VSEAL live");
    compare_all(1);
    expect_same("VCOMPACT live");
    compare_all(1);
    await(&helped, "gpu_segments", "4");
    for (size_t s = 0; s < 4; s++) {
        snprintf(words, sizeof words, "DEL %s", sets[s]);
        expect_integer(&helped.c, words, 1);
    }
    await(&helped, "gpu_segments", "0");
    assert_int_equal(count(&helped, "gpu_rows_bytes"), 0);
    stop();
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

static void test_vanishes(void **state)
{
    (void)state;
    skip_without_device(fake);
    start(device.name);
    compare_all(1);
    fake->status = CL_GONE;
    fake->stays = true;
    fake->fail_at = 1;
    compare_all(2);
    assert_string_equal(info(&helped, "gpu_state"), "lost");
    assert_non_null(strstr(info(&helped, "gpu_note"), "gone"));
    assert_true(count(&helped, "gpu_failed") > 0);
    assert_int_equal(log_lines("is lost, the processor does the work: "), 1);
    long long asks = count(&helped, "gpu_asks");
    compare_all(1);
    assert_int_equal(count(&helped, "gpu_asks"), asks); /* it is not asked any more */
    stop();
}

static void test_little_memory(void **state)
{
    (void)state;
    skip_without_device(fake);
    fake->memory_bytes = 4000;
    start(device.name);
    compare_all(1);
    assert_int_equal(count(&helped, "gpu_named"), 0);
    assert_true(count(&helped, "gpu_declined") > 0);
    assert_non_null(strstr(info(&helped, "gpu_last_fall_back"), "has 3000 for rows"));
    stop();
    /* for one segment at a time, beside what a call takes */
    fake_opencl_reset(fake);
    fake->memory_bytes = 60000;
    start(device.name);
    compare_all(1);
    assert_string_equal(info(&helped, "gpu_state"), "ready");
    stop();
}

/* A set that no device has been asked about: what failed is not tried again at once. */
static void load_again(void)
{
    expect_same("DEL l2");
    expect_same("VLOAD l2 l2");
}

/* Each call of the driver's in turn has no memory, once; a server that has seen all of that still answers. */
static void test_every_call(void **state)
{
    bool through = false;
    (void)state;
    skip_without_device(fake);
    start(device.name);
    for (unsigned at = 1; !through; at++) {
        char words[64];
        load_again();
        fake->status = CL_MEM_FULL;
        fake->fail_at = at;
        for (unsigned i = 0; i < 3; i++) { /* rows are brought, or again; then they are there */
            snprintf(words, sizeof words, "VSIM l2 ELE %u COUNT 3 TRUTH WITHSCORES", at + i);
            expect_same(words);
        }
        through = fake->fail_at > 0;
        fake->fail_at = 0;
        assert_true(at < 300);
    }
    assert_true(count(&helped, "gpu_failed") > 10 && count(&helped, "gpu_named") > 10);
    assert_string_equal(info(&helped, "gpu_state"), "ready");
    stop();
}

/* Each allocation of the device's thread in turn fails. */
static void test_memory_fails(void **state)
{
    bool through = false;
    (void)state;
    skip_without_device(fake);
    if (!FAIL_MEMORY)
        skip();
    fail_memory_watches = true;
    start(device.name);
    expect_same("VSIM l2 ELE 1 COUNT 3 TRUTH WITHSCORES");
    for (unsigned n = 1; !through; n++) {
        char words[64];
        load_again();
        fail_device_in = n;
        for (unsigned i = 0; i < 3; i++) {
            snprintf(words, sizeof words, "VSIM l2 ELE %u COUNT 3 TRUTH WITHSCORES", n + i);
            expect_same(words);
        }
        through = fail_device_in > 0;
        fail_device_in = 0;
        assert_true(n < 300);
    }
    fail_memory_watches = false;
    assert_true(count(&helped, "gpu_failed") > 10 && count(&helped, "gpu_named") > 10);
    assert_string_equal(info(&helped, "gpu_state"), "ready");
    stop();
}

/* ---- many clients ------------------------------------------------------------------------------------------------ */

/* Requests of many clients go to the device together; some clients leave without their replies. */
static void test_many_clients(void **state)
{
    enum { CLIENTS = 20, REQUESTS = 15 };
    struct connection clients[CLIENTS];
    char words[64];
    (void)state;
    skip_without_device(fake);
    start(device.name);
    for (unsigned i = 0; i < CLIENTS; i++) {
        connect_to(&clients[i], helped.server->port);
        for (unsigned j = 0; j < REQUESTS; j++) {
            snprintf(words, sizeof words, "VSIM %s ELE %s%u COUNT 5 TRUTH WITHSCORES", sets[j % 4],
                     j % 4 == 3 ? "e" : "", i * REQUESTS + j);
            send_request(&clients[i], words);
        }
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        for (unsigned j = 0; j < REQUESTS && i % 4 != 3; j++) {
            snprintf(words, sizeof words, "VSIM %s ELE %s%u COUNT 5 TRUTH WITHSCORES", sets[j % 4],
                     j % 4 == 3 ? "e" : "", i * REQUESTS + j);
            char *a = text_of(ask(&plain.c, words)), *b = text_of(read_reply(&clients[i]));
            assert_string_equal(a, b);
            free(a);
            free(b);
        }
        disconnect(&clients[i]);
    }
    assert_true(count(&helped, "gpu_batches") <= count(&helped, "gpu_asks"));
    stop();
}

/* A server that stops while the device is asked: clients are answered or dropped, nothing hangs. */
static void test_stops(void **state)
{
    (void)state;
    skip_without_device(fake);
    for (unsigned i = 0; i < 4; i++) {
        start(device.name);
        char *wide = many("live", 400, 0, "COUNT 20 TRUTH WITHSCORES");
        send_request(&helped.c, wide);
        if (i % 2)
            usleep(1000 * i);
        stop();
        free(wide);
    }
}

/* auto measures, and says what it found. */
static void test_auto(void **state)
{
    (void)state;
    skip_without_device(fake);
    unlink(log_path);
    start_side(&helped, "auto");
    if (device.is_processor) {
        await(&helped, "gpu_state", "none");
        assert_non_null(strstr(info(&helped, "gpu_note"), "the processor itself"));
    }
    stop_side(&helped);
    fake->as_card = true;
    start_side(&helped, "auto");
    for (unsigned i = 0; strcmp(info(&helped, "gpu_state"), "opening") == 0 && i < 2000; i++)
        usleep(10000);
    assert_non_null(strstr(info(&helped, "gpu_note"), "products per second"));
    assert_true(log_lines("gpu auto: ") == 2);
    start_side(&plain, "off");
    fill(&plain);
    fill(&helped);
    compare_all(1);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),           cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_same_answers),  cmocka_unit_test(test_wide),
        cmocka_unit_test(test_writes),        cmocka_unit_test(test_vanishes),
        cmocka_unit_test(test_little_memory), cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_memory_fails),  cmocka_unit_test(test_many_clients),
        cmocka_unit_test(test_stops),         cmocka_unit_test(test_auto),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
