/*
 * test_library.c - the rest of quire.h: keys, vectors, attributes, loops, calibration, verify and the facts of a
 * handle.
 *
 * Two indexes are built once: one with keys and attributes of the user's own (binary, short, long), one whose keys are
 * row numbers and which is large enough to be calibrated.
 */
#include "index/format/block.h"
#include "index/segment/numbers.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS          500u
#define NUMBERED_ROWS 1500u
#define DIM           40u

static struct {
    char *folder, *path, *numbered_path;
    struct support_data data, numbered_data;
    uint8_t *key[ROWS];
    uint32_t key_bytes[ROWS];
    char *attribute[ROWS];
    uint32_t attribute_bytes[ROWS];
    struct quire_index *index, *numbered;
} shared;

/* Keys of every interesting length; zeros and 0xff inside; each begins with its number. */
static void make_keys(void)
{
    static const uint32_t lengths[] = {4, 5, 16, 63, 64, 65, 66, 127, 128, 1000, 4088, 4096, 9000, 65535};
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t bytes = i < 40 ? lengths[i % SUPPORT_COUNT(lengths)] : 6 + i % 20;
        shared.key[i] = malloc(bytes);
        assert_non_null(shared.key[i]);
        for (uint32_t b = 0; b < bytes; b++)
            shared.key[i][b] = (uint8_t)(b % 3 == 0 ? 0 : b % 3 == 1 ? 0xff : b * i);
        memcpy(shared.key[i], &i, 4);
        shared.key_bytes[i] = bytes;
        if (i % 3 == 0)
            continue;
        uint32_t text = i == 7 ? 100000 : 10 + i;
        shared.attribute[i] = malloc(text + 1);
        assert_non_null(shared.attribute[i]);
        memset(shared.attribute[i], 'a' + (int)(i % 26), text);
        shared.attribute_bytes[i] = text;
    }
}

static int set_up(void **state)
{
    (void)state;
    shared.folder = support_folder_make();
    shared.path = support_path(shared.folder, "keyed");
    shared.numbered_path = support_path(shared.folder, "numbered");
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 4, &shared.data);
    support_clusters(NUMBERED_ROWS, DIM, QUIRE_TYPE_U8, 5, &shared.numbered_data);
    make_keys();
    struct quire_build_options options = support_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO);
    options.keys = (const void *const *)(void *)shared.key;
    options.key_bytes = shared.key_bytes;
    options.attributes = (const char *const *)shared.attribute;
    options.attribute_bytes = shared.attribute_bytes;
    support_build(shared.path, &shared.data, &options);
    options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    options.block_bytes = 4096;
    support_build(shared.numbered_path, &shared.numbered_data, &options);
    shared.index = support_open(shared.path, NULL);
    shared.numbered = support_open(shared.numbered_path, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    quire_close(shared.index);
    quire_close(shared.numbered);
    for (uint32_t i = 0; i < ROWS; i++) {
        free(shared.key[i]);
        free(shared.attribute[i]);
    }
    support_data_free(&shared.data);
    support_data_free(&shared.numbered_data);
    free(shared.path);
    free(shared.numbered_path);
    support_folder_remove(shared.folder);
    return 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void test_every_key_is_found(void **state)
{
    uint8_t *key = malloc(QUIRE_KEY_BYTES_MAX), seen[ROWS] = {0};
    struct quire_error err;
    (void)state;
    assert_non_null(key);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t row = UINT32_MAX;
        size_t bytes = 0;
        if (quire_lookup(shared.index, shared.key[i], shared.key_bytes[i], &row, &err) < 0)
            fail_msg("key %u of %u bytes: %s", i, shared.key_bytes[i], err.message);
        assert_true(row < ROWS && !seen[row]);
        seen[row] = 1;
        if (quire_key(shared.index, row, key, &bytes, &err) < 0)
            fail_msg("key of row %u: %s", row, err.message);
        assert_int_equal(bytes, shared.key_bytes[i]);
        assert_memory_equal(key, shared.key[i], bytes);
    }
    free(key);
}

static void test_absent_keys(void **state)
{
    static const uint32_t lengths[] = {1, 4, 64, 65, 1000, 65535};
    uint8_t *key = calloc(QUIRE_KEY_BYTES_MAX + 1, 1);
    (void)state;
    assert_non_null(key);
    for (size_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
        struct quire_error err = {0};
        uint32_t row = 1234;
        memset(key, 0xee, lengths[i]);
        assert_int_equal(quire_lookup(shared.index, key, lengths[i], &row, &err), QUIRE_ENOTFOUND);
        assert_int_equal(row, 1234);
        assert_true(err.code == QUIRE_ENOTFOUND && err.message[0]);
        assert_true(err.where && strncmp(err.where, "task_", 5) != 0); /* who saw it, not who passed it on */
    }
    /* one byte shorter or different at the end than a key that is there */
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t row = 1234;
        memcpy(key, shared.key[i], shared.key_bytes[i]);
        assert_int_equal(quire_lookup(shared.index, key, shared.key_bytes[i] - 1, &row, NULL), QUIRE_ENOTFOUND);
        key[shared.key_bytes[i] - 1] ^= 0x55;
        assert_int_equal(quire_lookup(shared.index, key, shared.key_bytes[i], &row, NULL), QUIRE_ENOTFOUND);
        assert_int_equal(row, 1234);
    }
    free(key);
}

static void test_bad_keys(void **state)
{
    uint32_t row = 5;
    struct quire_error err;
    uint8_t *key = calloc(QUIRE_KEY_BYTES_MAX + 1, 1);
    (void)state;
    assert_non_null(key);
    assert_int_equal(quire_lookup(shared.index, key, 0, &row, &err), QUIRE_ERANGE);
    assert_int_equal(quire_lookup(shared.index, key, QUIRE_KEY_BYTES_MAX + 1, &row, &err), QUIRE_ERANGE);
    assert_true(quire_lookup(shared.index, NULL, 3, &row, &err) < 0);
    assert_int_equal(quire_lookup(NULL, key, 3, &row, &err), QUIRE_EINVALID);
    assert_int_equal(row, 5);
    free(key);
}

static void test_numbers_as_keys(void **state)
{
    static const char *const absent[] = {
        "1500", "4294967295", "4294967296", "99999999999999999999", "-1", "+1", "01", " 1", "1 ", "1x",
        "x",    "0x1",        "00"};
    char key[QUIRE_KEY_BYTES_MAX];
    uint32_t row;
    (void)state;
    for (uint32_t i = 0; i < NUMBERED_ROWS; i += 7) {
        char text[12];
        size_t bytes = 0, length = (size_t)snprintf(text, sizeof text, "%u", i);
        assert_int_equal(quire_lookup(shared.numbered, text, length, &row, NULL), 0);
        assert_int_equal(quire_key(shared.numbered, row, key, &bytes, NULL), 0);
        assert_int_equal(bytes, length);
        assert_memory_equal(key, text, length);
    }
    for (size_t i = 0; i < SUPPORT_COUNT(absent); i++)
        if (quire_lookup(shared.numbered, absent[i], strlen(absent[i]), &row, NULL) != QUIRE_ENOTFOUND)
            fail_msg("\"%s\" was found", absent[i]);
    assert_int_equal(quire_lookup(shared.numbered, "1\0", 2, &row, NULL), QUIRE_ENOTFOUND);
}

static void test_rows_out_of_range(void **state)
{
    float vector[DIM];
    char text[8];
    size_t bytes = sizeof text;
    struct quire_error err;
    (void)state;
    assert_int_equal(quire_key(shared.index, ROWS, text, &bytes, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "500"));
    assert_int_equal(quire_vector(shared.index, UINT32_MAX, vector, &err), QUIRE_ERANGE);
    assert_int_equal(quire_attributes(shared.index, ROWS, text, &bytes, &err), QUIRE_ERANGE);
    assert_int_equal(bytes, sizeof text);
    assert_int_equal(quire_vector(NULL, 0, vector, &err), QUIRE_EINVALID);
}

/* ---- vectors and attributes -------------------------------------------------------------------------------------- */

static uint32_t row_of_key(uint32_t i)
{
    uint32_t row = UINT32_MAX;
    assert_int_equal(quire_lookup(shared.index, shared.key[i], shared.key_bytes[i], &row, NULL), 0);
    return row;
}

static void test_vectors(void **state)
{
    float vector[DIM];
    (void)state;
    for (uint32_t i = 0; i < ROWS; i++) {
        const float *row = shared.data.floats + (size_t)i * DIM;
        assert_int_equal(quire_vector(shared.index, row_of_key(i), vector, NULL), 0);
        /* unit length under cosine, 8-bit codes */
        assert_true(fabs(support_distance(QUIRE_METRIC_IP, vector, vector, DIM) + 1) < 1e-4);
        assert_true(support_distance(QUIRE_METRIC_COSINE, vector, row, DIM) < 1e-4);
    }
    for (uint32_t i = 0; i < NUMBERED_ROWS; i += 11) {
        char text[12];
        uint32_t row;
        size_t length = (size_t)snprintf(text, sizeof text, "%u", i);
        assert_int_equal(quire_lookup(shared.numbered, text, length, &row, NULL), 0);
        assert_int_equal(quire_vector(shared.numbered, row, vector, NULL), 0);
        assert_memory_equal(vector, shared.numbered_data.floats + (size_t)i * DIM, sizeof vector);
    }
}

static void test_attributes(void **state)
{
    char *text = malloc(200000);
    struct quire_error err;
    (void)state;
    assert_non_null(text);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t row = row_of_key(i);
        size_t bytes = 200000;
        int rc = quire_attributes(shared.index, row, text, &bytes, &err);
        if (!shared.attribute[i]) {
            assert_int_equal(rc, QUIRE_ENOTFOUND);
            assert_int_equal(bytes, 200000);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(bytes, shared.attribute_bytes[i]);
        assert_memory_equal(text, shared.attribute[i], bytes);
    }
    free(text);
}

static void test_attributes_need_room(void **state)
{
    uint32_t row = row_of_key(7);
    struct quire_error err;
    char *text = malloc(100000);
    size_t bytes = 0;
    (void)state;
    assert_non_null(text);
    assert_int_equal(quire_attributes(shared.index, row, text, &bytes, &err), QUIRE_ELIMIT);
    assert_int_equal(bytes, 100000);
    bytes = 99999;
    memset(text, '-', 100000);
    assert_int_equal(quire_attributes(shared.index, row, text, &bytes, &err), QUIRE_ELIMIT);
    assert_int_equal(bytes, 100000);
    assert_true(text[0] == '-' && text[99999] == '-');
    assert_int_equal(err.code, QUIRE_ELIMIT);
    assert_int_equal(quire_attributes(shared.index, row, text, &bytes, &err), 0);
    assert_true(text[0] == 'h' && text[99999] == 'h');
    /* asking for the size alone */
    bytes = 0;
    assert_int_equal(quire_attributes(shared.index, row, NULL, &bytes, &err), QUIRE_ELIMIT);
    assert_int_equal(bytes, 100000);
    free(text);
}

static void test_index_without_attributes(void **state)
{
    char text[16];
    size_t bytes = sizeof text;
    (void)state;
    assert_int_equal(quire_attributes(shared.numbered, 3, text, &bytes, NULL), QUIRE_ENOTFOUND);
    assert_int_equal(bytes, sizeof text);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

struct tally {
    struct quire_loop *loop;
    unsigned done, cancelled, more;
    uint64_t first_id;
};

static void count_callback(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                           const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct tally *tally = context;
    assert_non_null(stats);
    if (code < 0) {
        assert_int_equal(code, QUIRE_ECANCELLED);
        assert_int_equal(n_hits, 0);
        assert_true(err && err->code == code && err->message[0]);
        tally->cancelled++;
        return;
    }
    assert_null(err);
    assert_true(n_hits > 0);
    tally->first_id = hits[0].id;
    tally->done++;
    if (tally->more > 0) { /* a callback may start the next search */
        tally->more--;
        assert_int_equal(quire_loop_search(tally->loop, shared.numbered, shared.numbered_data.floats, NULL,
                                           count_callback, tally, NULL),
                         0);
    }
}

static struct quire_loop *make_loop(enum quire_engine_kind engine, unsigned inflight)
{
    struct quire_loop_options options;
    struct quire_loop *loop = NULL;
    struct quire_error err;
    quire_loop_options_init(&options);
    options.engine = engine;
    options.inflight = inflight;
    if (quire_loop_create(&options, &loop, &err) < 0)
        fail_msg("loop: %s", err.message);
    return loop;
}

static void start_searches(struct tally *tally, unsigned n)
{
    struct quire_search_options options = support_search(10, 0, 100);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(quire_loop_search(tally->loop, shared.numbered, shared.numbered_data.floats + (size_t)i * DIM,
                                           &options, count_callback, tally, NULL),
                         0);
}

static const enum quire_engine_kind engines[] = {QUIRE_ENGINE_URING, QUIRE_ENGINE_THREADS};

static void test_loop_counts_callbacks(void **state)
{
    (void)state;
    for (size_t e = 0; e < SUPPORT_COUNT(engines); e++) {
        struct tally tally = {.loop = make_loop(engines[e], 4), .more = 5};
        unsigned returned = 0;
        assert_int_equal(quire_loop_poll(tally.loop, 0, 0), 0);
        assert_int_equal(quire_loop_poll(tally.loop, 1, 1000), 0);
        start_searches(&tally, 50);
        while (tally.done < 55) {
            int n = quire_loop_poll(tally.loop, 1, UINT64_MAX);
            assert_true(n >= 0);
            returned += (unsigned)n;
        }
        assert_int_equal(returned, 55);
        assert_int_equal(quire_loop_poll(tally.loop, 0, 0), 0);
        quire_loop_destroy(tally.loop);
        assert_int_equal(tally.cancelled, 0);
    }
    quire_loop_destroy(NULL);
}

static void test_loop_errors_at_once(void **state)
{
    struct tally tally = {.loop = make_loop(QUIRE_ENGINE_AUTO, 0)};
    struct quire_search_options options = support_search(0, 0, 0);
    struct quire_error err;
    float query[DIM] = {0};
    (void)state;
    query[0] = 1;
    assert_int_equal(quire_loop_search(tally.loop, shared.index, query, &options, count_callback, &tally, &err),
                     QUIRE_ERANGE);
    query[3] = NAN;
    assert_int_equal(quire_loop_search(tally.loop, shared.index, query, NULL, count_callback, &tally, &err),
                     QUIRE_ENOTFINITE);
    query[3] = INFINITY;
    assert_int_equal(quire_loop_search(tally.loop, shared.index, query, NULL, count_callback, &tally, &err),
                     QUIRE_ENOTFINITE);
    assert_int_equal(quire_loop_search(NULL, shared.index, query, NULL, count_callback, &tally, &err), QUIRE_EINVALID);
    assert_int_equal(quire_loop_search(tally.loop, NULL, query, NULL, count_callback, &tally, &err), QUIRE_EINVALID);
    assert_int_equal(quire_loop_search(tally.loop, shared.index, NULL, NULL, count_callback, &tally, &err),
                     QUIRE_EINVALID);
    assert_int_equal(quire_loop_search(tally.loop, shared.index, query, NULL, NULL, &tally, &err), QUIRE_EINVALID);
    quire_loop_destroy(tally.loop);
    assert_int_equal(tally.done + tally.cancelled, 0);
}

/* Running and waiting searches all end, each exactly once, before destroy returns. */
static void test_destroy_cancels(void **state)
{
    (void)state;
    for (size_t e = 0; e < SUPPORT_COUNT(engines); e++)
        for (unsigned polls = 0; polls < 3; polls++) {
            struct tally tally = {.loop = make_loop(engines[e], 3)};
            start_searches(&tally, 20);
            for (unsigned i = 0; i < polls; i++)
                assert_true(quire_loop_poll(tally.loop, 0, 0) >= 0);
            quire_loop_destroy(tally.loop);
            assert_int_equal(tally.done + tally.cancelled, 20);
            assert_true(polls > 0 || tally.cancelled > 0);
        }
}

static void test_fd_becomes_readable(void **state)
{
    (void)state;
    for (size_t e = 0; e < SUPPORT_COUNT(engines); e++) {
        struct tally tally = {.loop = make_loop(engines[e], 8)};
        int fd = quire_loop_fd(tally.loop);
        assert_true(fd >= 0);
        start_searches(&tally, 8);
        for (unsigned round = 0; tally.done < 8; round++) {
            struct pollfd entry = {.fd = fd, .events = POLLIN};
            assert_true(quire_loop_poll(tally.loop, 0, 0) >= 0);
            if (tally.done == 8)
                break;
            assert_int_equal(poll(&entry, 1, 5000), 1);
            assert_true(entry.revents & POLLIN);
            assert_true(round < 10000);
        }
        quire_loop_destroy(tally.loop);
    }
}

/* The loop keeps the index's files alive until its searches are over. */
static void test_index_closed_before_its_searches(void **state)
{
    struct tally tally = {.loop = make_loop(QUIRE_ENGINE_AUTO, 4)};
    struct quire_index *index = support_open(shared.numbered_path, NULL);
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(quire_loop_search(tally.loop, index, shared.numbered_data.floats + (size_t)i * DIM, NULL,
                                           count_callback, &tally, NULL),
                         0);
    quire_close(index);
    while (tally.done < 10)
        assert_true(quire_loop_poll(tally.loop, 1, UINT64_MAX) >= 0);
    quire_loop_destroy(tally.loop);
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static uint64_t folder_bytes(const char *path)
{
    static const char *const names[] = {"meta", "blocks", "codes", "keys", "attrs", "columns"};
    uint64_t sum = 0;
    for (size_t i = 0; i < SUPPORT_COUNT(names); i++) {
        struct stat status;
        char *file = support_path(path, names[i]);
        if (stat(file, &status) == 0)
            sum += (uint64_t)status.st_size;
        free(file);
    }
    return sum;
}

static void test_info(void **state)
{
    struct quire_info info;
    (void)state;
    quire_get_info(shared.index, &info);
    assert_int_equal(info.rows, ROWS);
    assert_int_equal(info.dim, DIM);
    assert_int_equal(info.type, QUIRE_TYPE_F32);
    assert_int_equal(info.metric, QUIRE_METRIC_COSINE);
    assert_int_equal(info.slot, QUIRE_SLOT_Q8);
    assert_int_equal(info.blocks, (ROWS + info.slots_per_block - 1) / info.slots_per_block);
    assert_int_equal(info.raw_bytes, ROWS * DIM * sizeof(float));
    assert_int_equal(info.index_bytes, folder_bytes(shared.path));
    assert_int_equal(info.memory_bytes, 0);
    assert_int_equal(info.format_version, 4);
    assert_true(info.user_keys && info.block_bytes % 4096 == 0);
    quire_get_info(shared.numbered, &info);
    assert_int_equal(info.rows, NUMBERED_ROWS);
    assert_int_equal(info.type, QUIRE_TYPE_U8);
    assert_int_equal(info.slot, QUIRE_SLOT_U8);
    assert_int_equal(info.block_bytes, 4096);
    assert_int_equal(info.code_bits, 4);
    assert_int_equal(info.raw_bytes, NUMBERED_ROWS * DIM);
    assert_int_equal(info.index_bytes, folder_bytes(shared.numbered_path));
    assert_false(info.user_keys);
    /* 40 dimensions are padded to 64: 32 bytes of code and 4 of factors per row, 32 and 12 per block; and numbers */
    assert_int_equal(info.resident_bytes,
                     NUMBERED_ROWS * 36 + (uint64_t)info.blocks * 44 + numbers_bytes_of(NUMBERED_ROWS));
}

static void test_calibration(void **state)
{
    struct quire_calibration_point points[4096], one;
    uint32_t n = quire_calibration(shared.numbered, points, SUPPORT_COUNT(points));
    bool seen_k[2][101] = {{false}};
    (void)state;
    assert_true(n > 3 && n <= SUPPORT_COUNT(points));
    for (uint32_t i = 0; i < n; i++) {
        assert_true(points[i].k >= 1 && points[i].k <= 100 && points[i].effort >= 1);
        bool exact = points[i].distance == QUIRE_DISTANCE_EXACT;
        assert_true(exact || points[i].distance == QUIRE_DISTANCE_ESTIMATE);
        assert_true(points[i].recall > 0 && points[i].recall <= 1 && points[i].reads >= (exact ? 0.1f : 0));
        seen_k[!exact][points[i].k] = true;
        if (i > 0 && points[i].distance != points[i - 1].distance) {
            assert_true(points[i - 1].distance == QUIRE_DISTANCE_EXACT);
        } else if (i > 0 && points[i].k == points[i - 1].k) {
            assert_true(points[i].effort > points[i - 1].effort);
            assert_true(!exact || points[i].reads >= points[i - 1].reads * 0.9f);
        } else if (i > 0) {
            assert_true(points[i].k > points[i - 1].k);
        }
    }
    for (int estimates = 0; estimates < 2; estimates++)
        assert_true(seen_k[estimates][1] && seen_k[estimates][10] && seen_k[estimates][100]);
    assert_int_equal(quire_calibration(shared.numbered, NULL, 0), n);
    assert_int_equal(quire_calibration(shared.numbered, &one, 1), n);
    assert_memory_equal(&one, &points[0], sizeof one);
    assert_int_equal(quire_calibration(shared.index, points, SUPPORT_COUNT(points)), 0);
}

static int count_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    assert_non_null(phase);
    assert_true(total == 0 || done <= total);
    ++*(unsigned *)context;
    return 0;
}

static int stop_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    (void)phase;
    (void)done;
    (void)total;
    return ++*(unsigned *)context == 2;
}

static void test_verify_counts(void **state)
{
    struct quire_verify_report report;
    struct quire_error err;
    struct quire_info info;
    unsigned calls = 0;
    (void)state;
    quire_get_info(shared.index, &info);
    if (quire_verify(shared.path, NULL, count_progress, &calls, &report, &err) < 0)
        fail_msg("verify: %s", err.message);
    assert_true(calls > 1);
    assert_int_equal(report.files, 6);
    assert_true(report.sections > 10);
    assert_int_equal(report.blocks, info.blocks);
    assert_int_equal(report.rows, ROWS);
    assert_int_equal(report.keys, ROWS);
    assert_int_equal(report.findings, 0);
    assert_true(report.edges > ROWS / 2 && report.blocks_without_entry < info.blocks);
    assert_true(report.code_error > 0.02 && report.code_error < 0.2);
    assert_true(report.code_error_max >= report.code_error);
    assert_int_equal(quire_verify(shared.numbered_path, NULL, NULL, NULL, &report, NULL), 0);
    assert_int_equal(report.files, 4);
    assert_int_equal(report.keys, NUMBERED_ROWS);
    calls = 0;
    assert_int_equal(quire_verify(shared.path, NULL, stop_progress, &calls, NULL, &err), QUIRE_ECANCELLED);
    assert_int_equal(err.code, QUIRE_ECANCELLED);
    assert_int_equal(calls, 2);
}

static void test_open_errors(void **state)
{
    struct quire_open_options options;
    struct quire_index *index = NULL;
    struct quire_error err = {0};
    (void)state;
    assert_int_equal(quire_open(NULL, NULL, &index, &err), QUIRE_EINVALID);
    assert_int_equal(quire_open(shared.path, NULL, NULL, &err), QUIRE_EINVALID);
    quire_open_options_init(&options);
    options.memory_bytes = 1;
    assert_int_equal(quire_open(shared.path, &options, &index, &err), QUIRE_ELIMIT);
    assert_null(index);
    quire_close(NULL);
}

static void test_unknown_struct_bytes(void **state)
{
    struct quire_open_options open_options;
    struct quire_loop_options loop_options;
    struct quire_index *index = NULL;
    struct quire_loop *loop = NULL;
    struct quire_error err = {0};
    (void)state;
    quire_open_options_init(&open_options);
    open_options.struct_bytes += 8;
    int open_rc = quire_open(shared.path, &open_options, &index, &err);
    quire_close(index);
    quire_loop_options_init(&loop_options);
    loop_options.struct_bytes += 8;
    int loop_rc = quire_loop_create(&loop_options, &loop, &err);
    quire_loop_destroy(loop);
    assert_int_equal(open_rc, QUIRE_EINVALID);
    assert_int_equal(loop_rc, QUIRE_EINVALID);
}

static void test_unknown_engine(void **state)
{
    struct quire_loop_options options;
    struct quire_loop *loop = NULL;
    struct quire_error err = {0};
    (void)state;
    quire_loop_options_init(&options);
    options.engine = (enum quire_engine_kind)3;
    int rc = quire_loop_create(&options, &loop, &err);
    quire_loop_destroy(loop);
    assert_int_equal(rc, QUIRE_EINVALID);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(quire_version(), QUIRE_VERSION_STRING);
    assert_string_equal(quire_type_name(QUIRE_TYPE_F16), "f16");
    assert_string_equal(quire_type_name(QUIRE_TYPE_BF16), "bf16");
    assert_string_equal(quire_metric_name(QUIRE_METRIC_COSINE), "cosine");
    assert_string_equal(quire_slot_name(QUIRE_SLOT_Q8), "q8");
    assert_string_equal(quire_slot_name(QUIRE_SLOT_BF16), "bf16");
    assert_int_equal(quire_type_bytes(QUIRE_TYPE_F32), 4);
    assert_int_equal(quire_type_bytes(QUIRE_TYPE_F16), 2);
    assert_int_equal(quire_type_bytes(QUIRE_TYPE_BF16), 2);
    assert_int_equal(quire_type_bytes(QUIRE_TYPE_I8), 1);
    assert_int_equal(quire_type_bytes(QUIRE_TYPE_U8), 1);
    assert_non_null(quire_type_name((enum quire_type)99));
    assert_non_null(quire_metric_name((enum quire_metric)99));
    assert_non_null(quire_slot_name((enum quire_slot)99));
    assert_string_equal(quire_error_name(QUIRE_ECORRUPT), "QUIRE_ECORRUPT");
    assert_non_null(quire_error_text(-12345));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_found),
        cmocka_unit_test(test_absent_keys),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_numbers_as_keys),
        cmocka_unit_test(test_rows_out_of_range),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_attributes_need_room),
        cmocka_unit_test(test_index_without_attributes),
        cmocka_unit_test(test_loop_counts_callbacks),
        cmocka_unit_test(test_loop_errors_at_once),
        cmocka_unit_test(test_destroy_cancels),
        cmocka_unit_test(test_fd_becomes_readable),
        cmocka_unit_test(test_index_closed_before_its_searches),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_calibration),
        cmocka_unit_test(test_verify_counts),
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_unknown_struct_bytes),
        cmocka_unit_test(test_unknown_engine),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
