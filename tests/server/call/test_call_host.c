/*
 * test_call_host.c - the commands of vector sets and caches on a host that is no network: a service, one lane that the
 * test turns by hand, and a caller whose functions write into a buffer. Replies are compared byte by byte.
 *
 * It is also what server/call/README.md promises a host: whatever else the handlers needed would be missing here.
 */
#include "io/journal.h"
#include "server/access/command_table.h"
#include "server/cache/cache_call.h"
#include "server/call/data.h"
#include "server/call/fair.h"
#include "server/call/slice.h"
#include "server/command_rows.h"
#include "tests/temp_folder.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORDS_MAX = 32, WAIT_US = 1000, WAIT_S = 30 };

struct test_lane {
    struct lane lane; /* first */
    struct service service;
    struct config config;
    struct log log;
    char *folder;
    pthread_mutex_t lock; /* of the messages */
    struct message *first, *last;
};

struct test_caller {
    struct caller caller; /* first */
    struct resp_buffer out;
    uint64_t lsn;
    unsigned n_waiting, n_deferred;
};

/* ---- the functions of the host ----------------------------------------------------------------------------------- */

static struct resp_buffer *host_reply(struct caller *c)
{
    struct test_caller *t = (struct test_caller *)(void *)c;
    t->out.protocol = c->protocol;
    return &t->out;
}

static void *host_defer(struct caller *c, size_t bytes, bool barrier)
{
    struct test_caller *t = (struct test_caller *)(void *)c;
    struct pending *p = calloc(1, bytes);
    assert_non_null(p);
    p->caller = c;
    p->out.protocol = c->protocol;
    p->barrier = barrier;
    p->deferred = true;
    t->n_waiting++;
    t->n_deferred++;
    return p;
}

static void host_done(struct pending *p)
{
    struct test_caller *t = (struct test_caller *)(void *)p->caller;
    assert_true(t->n_waiting > 0 && t->out.bytes == 0);
    t->n_waiting--;
    t->out = p->out;
    t->lsn = p->lsn > t->lsn ? p->lsn : t->lsn;
    free(p);
}

static void host_wait_lsn(struct caller *c, uint64_t lsn)
{
    struct test_caller *t = (struct test_caller *)(void *)c;
    t->lsn = lsn > t->lsn ? lsn : t->lsn;
}

static void host_spent(struct caller *c, uint64_t us)
{
    (void)c;
    (void)us;
}

static void host_rest(struct caller *c)
{
    (void)c; /* there is one caller, who asks when it has been answered */
}

static void host_slow(struct caller *c, uint32_t us)
{
    (void)c, (void)us;
}

static struct resp_arg host_tenant(const struct caller *c, uint32_t i)
{
    (void)c;
    (void)i;
    fail_msg("the user is bound to no tenant");
    return (struct resp_arg){NULL, 0};
}

static void host_release(struct lane *lane, const struct fair_share *share)
{
    (void)lane;
    (void)share;
}

static bool host_may_read(const struct caller *caller, struct resp_arg key)
{
    (void)caller;
    (void)key;
    return true;
}

static void host_post(struct lane *lane, struct message *message)
{
    struct test_lane *t = (struct test_lane *)(void *)lane;
    message->next = NULL;
    pthread_mutex_lock(&t->lock);
    *(t->first ? &t->last->next : &t->first) = message;
    t->last = message;
    pthread_mutex_unlock(&t->lock);
    engine_wake(lane->engine);
}

static const struct host test_host = {.reply = host_reply,
                                      .defer = host_defer,
                                      .done = host_done,
                                      .wait_lsn = host_wait_lsn,
                                      .rest = host_rest,
                                      .slow = host_slow,
                                      .spent = host_spent,
                                      .tenant = host_tenant,
                                      .may_read = host_may_read,
                                      .release = host_release,
                                      .post = host_post};

/* ---- the lane ---------------------------------------------------------------------------------------------------- */

/* Journals tell their host when more is durable: this one looks for itself. */
static void ignore(void *context)
{
    (void)context;
}

static struct test_lane *begin(void)
{
    struct quire_error err = {0};
    struct engine_config config = {.reads_max = 16, .entries = 64, .one_thread = true};
    struct engine *engine = NULL;
    struct test_lane *t = calloc(1, sizeof *t);
    struct service *s = &t->service;
    t->folder = support_folder_make();
    pthread_mutex_init(&t->lock, NULL);
    assert_int_equal(config_init(&t->config, &err), 0);
    assert_int_equal(config_set(&t->config, "dir", t->folder, &err), 0);
    assert_int_equal(log_open(&t->log, "/dev/null", LOG_LEVEL_WARNING, &err), 0);
    *s = (struct service){.config = &t->config, .log = &t->log, .n_lanes = 1, .on_durable = ignore};
    assert_int_equal(keyspace_init(&s->keyspace, &err), 0);
    assert_int_equal(gate_init(&s->gate, s->n_lanes + 1, &err), 0);
    assert_int_equal(fair_init(s, &err), 0);
    assert_int_equal(worker_start(&s->worker, &err), 0);
    if (data_open(s, &err) < 0)
        fail_msg("%s", err.message);
    command_rows_set();
    t->lane.service = s;
    t->lane.host = &test_host;
    assert_int_equal(lane_stats_init(&t->lane, &err), 0);
    if (lane_open(&t->lane, &config, &engine, &err) < 0)
        fail_msg("%s", err.message);
    t->lane.engine = engine;
    return t;
}

static void run_messages(struct test_lane *t)
{
    pthread_mutex_lock(&t->lock);
    struct message *m = t->first;
    t->first = NULL;
    pthread_mutex_unlock(&t->lock);
    for (struct message *next; m; m = next) {
        next = m->next;
        m->run(&t->lane, m);
    }
}

/* One turn of the loop that a host has. */
static void turn(struct test_lane *t)
{
    struct lane *lane = &t->lane;
    assert_true(engine_poll(lane->engine, 1, WAIT_US) >= 0);
    lane->now_us = clock_us();
    lane->now_ms = lane->now_us / 1000;
    fair_note_wait(lane, lane->now_us, lane->now_us);
    searcher_work(lane->searcher, UINT32_MAX);
    lane_enter(lane);
    run_messages(t);
    lane->turn++;
    fair_work(lane);
    slice_hook.work(lane);
    lane_leave(lane);
}

static void end(struct test_lane *t)
{
    struct engine *engine = t->lane.engine;
    struct service *s = &t->service;
    cache_waits_hook.stop(&t->lane);
    fair_expire(&t->lane, true);
    worker_stop(&s->worker);
    run_messages(t);
    lane_close(&t->lane, engine);
    lane_stats_fini(&t->lane);
    data_close(s);
    gate_fini(&s->gate);
    fair_fini(s);
    log_close(&t->log);
    config_fini(&t->config);
    pthread_mutex_destroy(&t->lock);
    support_folder_remove(t->folder);
    free(t);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct test_caller caller_of(struct test_lane *t)
{
    return (struct test_caller){
        .caller = {.lane = &t->lane, .id = 1, .protocol = 2, .user = "default", .user_bytes = 7}};
}

/* Words parted by blanks, "@" being the vector (4 numbers), through the command's row to a whole reply in c->out. */
static void say(struct test_caller *c, const char *words, const float *vector)
{
    struct lane *lane = c->caller.lane;
    struct resp_arg args[WORDS_MAX];
    time_t until = time(NULL) + WAIT_S;
    char text[512];
    uint32_t n = 0;
    resp_buffer_fini(&c->out);
    c->out = (struct resp_buffer){.protocol = 2};
    assert_true((size_t)snprintf(text, sizeof text, "%s", words) < sizeof text);
    for (char *at, *word = strtok_r(text, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        assert_true(n < WORDS_MAX);
        args[n++] = strcmp(word, "@") == 0 ? (struct resp_arg){(const uint8_t *)vector, 4 * sizeof *vector}
                                           : (struct resp_arg){(const uint8_t *)word, (uint32_t)strlen(word)};
    }
    int row = command_find_request(args, n);
    if (row < 0 || !command_arity_fits(&commands[row], n))
        fail_msg("'%s' is no request", words);
    c->caller.command = commands[row].name;
    lane_enter(lane);
    commands[row].run(&c->caller, args, n);
    lane_leave(lane);
    while (c->n_waiting > 0 || journal_durable_lsn(lane->service->journal) < c->lsn) {
        assert_true(time(NULL) < until);
        turn((struct test_lane *)(void *)lane);
    }
}

static void expect(struct test_caller *c, const char *words, const float *vector, const char *reply)
{
    say(c, words, vector);
    if (c->out.failed || c->out.bytes != strlen(reply) || memcmp(c->out.data, reply, c->out.bytes) != 0)
        fail_msg("%s: '%.*s', not '%s'", words, (int)c->out.bytes, (const char *)c->out.data, reply);
}

/* A map of RESP2 that begins with `first` and holds `part`. */
static void expect_map(struct test_caller *c, const char *words, const float *vector, const char *first,
                       const char *part)
{
    say(c, words, vector);
    if (c->out.bytes < strlen(first) || memcmp(c->out.data, first, strlen(first)) != 0 ||
        !memmem(c->out.data, c->out.bytes, part, strlen(part)))
        fail_msg("%s: '%.*s', not '%s' ... '%s'", words, (int)c->out.bytes, (const char *)c->out.data, first, part);
}

static void no_sockets(void)
{
    DIR *folder = opendir("/proc/self/fd");
    char path[300], target[64];
    for (struct dirent *e; folder && (e = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t bytes = readlink(path, target, sizeof target);
        if (atoi(e->d_name) > STDERR_FILENO && bytes > 0)
            assert_false(strncmp(target, "socket:", 7) == 0);
    }
    if (folder)
        closedir(folder);
}

static const float east[] = {1, 0, 0, 0}, north[] = {0, 1, 0, 0}, most_east[] = {0.9f, 0.1f, 0, 0};

#define TEXT(n, s) "$" #n "\r\n" s "\r\n"

static void test_vectors(void **state)
{
    struct test_lane *t = begin();
    struct test_caller c = caller_of(t);
    (void)state;
    expect(&c, "VSIM v FP32 @", east, "*0\r\n");
    expect(&c, "VADD v FP32 @ e", east, ":1\r\n");
    expect(&c, "VADD v FP32 @ n", north, ":1\r\n");
    expect(&c, "VADD v FP32 @ n SETATTR {\"a\":1}", north, ":0\r\n");
    expect(&c, "VSIM v FP32 @", most_east, "*2\r\n" TEXT(1, "e") TEXT(1, "n"));
    expect(&c, "VSIM v ELE n COUNT 1", NULL, "*1\r\n" TEXT(1, "n"));
    expect(&c, "VSIM v FP32 @ FILTER .a==1", east, "*1\r\n" TEXT(1, "n"));
    expect(&c, "VSIM v FP16 @", east,
           "-ERR invalid vector specification: ELE element, FP32 vector or VALUES num value ...\r\n");
    no_sockets();
    /* from here on on the disk: seals run on the worker, searches and writes read */
    expect(&c, "VSEAL v", NULL, "+OK\r\n");
    c.n_deferred = 0;
    expect(&c, "VSIM v FP32 @", most_east, "*2\r\n" TEXT(1, "e") TEXT(1, "n"));
    expect(&c, "VGETATTR v n", NULL, TEXT(7, "{\"a\":1}"));
    expect(&c, "VREM v n", NULL, ":1\r\n");
    assert_int_equal(c.n_deferred, 3);
    expect(&c, "VREM v n", NULL, ":0\r\n");
    expect(&c, "VCARD v", NULL, ":1\r\n");
    expect(&c, "VREM v e", NULL, ":1\r\n");
    expect(&c, "VCARD v", NULL, ":0\r\n");
    resp_buffer_fini(&c.out);
    end(t);
}

static void test_caches(void **state)
{
    struct test_lane *t = begin();
    struct test_caller c = caller_of(t);
    (void)state;
    expect(&c, "SC.GET f CAT q HASH h", NULL,
           "-ERR no such cache 'f': SC.CREATE makes one, SC.LIST shows those there are\r\n");
    expect(&c, "SC.CREATE f DIM 4", NULL, "+OK\r\n");
    expect(&c, "SC.CAT.SET f q SIM 0.9 JITTER 0", NULL, "+OK\r\n");
    expect_map(&c, "SC.GET f CAT q VEC @ HASH h NOLEASE", east, "*14\r\n" TEXT(6, "status") TEXT(4, "miss"),
               TEXT(5, "lease") "$-1\r\n");
    expect_map(&c, "SC.PUT f CAT q VEC @ HASH h VALUE answer", east, "*10\r\n" TEXT(7, "outcome") TEXT(6, "stored"),
               TEXT(5, "woken") ":0\r\n");
    expect_map(&c, "SC.GET f CAT q HASH h", NULL, "*34\r\n" TEXT(6, "status") TEXT(5, "exact"),
               TEXT(5, "value") TEXT(6, "answer"));
    expect_map(&c, "SC.GET f CAT q VEC @", most_east, "*34\r\n" TEXT(6, "status") TEXT(3, "hit"),
               TEXT(5, "value") TEXT(6, "answer"));
    expect_map(&c, "SC.GET f CAT q VEC @ NOLEASE", north, "*14\r\n" TEXT(6, "status") TEXT(4, "miss"),
               TEXT(5, "guard") "$-1\r\n");
    /* one who waits for an answer that nobody gives gets a miss when the lane stops */
    say(&c, "SC.GET f CAT q HASH other", NULL);
    struct test_caller waits = caller_of(t);
    struct resp_arg args[] = {{(const uint8_t *)"SC.GET", 6}, {(const uint8_t *)"f", 1},
                              {(const uint8_t *)"CAT", 3},    {(const uint8_t *)"q", 1},
                              {(const uint8_t *)"HASH", 4},   {(const uint8_t *)"other", 5},
                              {(const uint8_t *)"WAIT", 4},   {(const uint8_t *)"60000", 5}};
    lane_enter(&t->lane);
    commands[command_find("sc.get", 6)].run(&waits.caller, args, sizeof args / sizeof *args);
    lane_leave(&t->lane);
    assert_int_equal(waits.n_waiting, 1);
    cache_waits_hook.stop(&t->lane);
    assert_int_equal(waits.n_waiting, 0);
    assert_non_null(memmem(waits.out.data, waits.out.bytes, TEXT(4, "miss"), 10));
    no_sockets();
    resp_buffer_fini(&waits.out);
    resp_buffer_fini(&c.out);
    end(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_caches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
