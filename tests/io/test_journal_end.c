/*
 * test_journal_end.c - where a log ends: what was durable and is missing behind the last frame is told from a torn
 * write, and a newest log that is missing from an empty folder.
 */
#include "io/bytes.h"
#include "support_image.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

/* Waits until a mark says that all up to `lsn` is durable; gives the log as it is then. */
static struct image await_mark(struct host *host, uint64_t lsn)
{
    for (unsigned tries = 0; tries < 10000; tries++) {
        struct image image = image_take(host, "/journal/log-");
        for (uint64_t at = MARKS_AT; at < HEAD; at += MARK_STEP)
            if (memcmp(image.bytes + at, "QMRK", 4) == 0 && bytes_load_u64(image.bytes + at + 24) == lsn)
                return image;
        free(image.bytes);
        usleep(1000);
    }
    fail_msg("no mark of LSN %llu", (unsigned long long)lsn);
    return (struct image){.n = 0};
}

/* The log cut behind its n-th frame, or zeros from there on. */
static void cut_behind(struct host *host, const struct image *image, unsigned n, bool zeros)
{
    uint64_t at = image_frame_at(image, n);
    uint8_t *bytes = malloc(image->n);
    memcpy(bytes, image->bytes, at);
    memset(bytes + at, 0, image->n - at);
    image_put(host, image->path, bytes, zeros ? image->n : at);
    free(bytes);
}

/* What a mark knows as durable cannot have been torn off. */
static void test_cut_log_with_mark(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    char frames[64];
    host_must_open(host);
    host_must_append(host, 5, true);
    struct image image = await_mark(host, 5);
    host_kill(host);
    for (unsigned n = 0; n < 10; n++) {
        cut_behind(host, &image, n / 2, n % 2);
        assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
        snprintf(frames, sizeof frames, "LSN %u to 5 are missing", n / 2 + 1);
        assert_non_null(strstr(err.message, frames));
        assert_non_null(strstr(err.message, image.path));
        assert_int_equal(host_read(host, true, &losses, &err), 0);
        assert_int_equal(losses.n, 1);
        assert_non_null(strstr(losses.last, frames));
        assert_int_equal(host->report.frames, n / 2);
        assert_int_equal(host->report.last_lsn, 5);
        assert_int_equal(host->wrong, 0);
    }
    cut_behind(host, &image, 5, false);
    assert_int_equal(host_read(host, false, &losses, &err), 0);
    free(image.bytes);
}

/* A mark that was torn leaves the one before it. */
static void test_torn_mark(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 2, true);
    struct image image = await_mark(host, 2);
    free(image.bytes);
    host_must_append(host, 3, true);
    image = await_mark(host, 5);
    host_kill(host);
    for (uint64_t at = MARKS_AT; at < HEAD; at += MARK_STEP)
        if (bytes_load_u64(image.bytes + at + 24) == 5)
            memset(image.bytes + at + 30, 0xaa, 18);
    cut_behind(host, &image, 2, true);
    assert_int_equal(host_read(host, false, &losses, &err), 0);
    assert_int_equal(host->report.last_lsn, 2);
    cut_behind(host, &image, 1, true);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "LSN 2 to 2 are missing"));
    free(image.bytes);
}

/* What lies before, between and behind the marks is zero. */
static void test_head_of_log(void **state)
{
    static const uint64_t places[] = {FILE_HEADER,
                                      MARKS_AT - 1,
                                      MARKS_AT + FRAME_HEADER,
                                      MARKS_AT + MARK_STEP - 1,
                                      MARKS_AT + MARK_STEP + FRAME_HEADER,
                                      HEAD - 1};
    struct host *host = *state;
    struct quire_error err = {0};
    struct losses losses;
    host_must_open(host);
    host_must_append(host, 2, true);
    host_must_close(host);
    struct image image = image_take(host, "/journal/log-");
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(fault_flip_bit(host->fs, image.path, 8 * places[i]), 0);
        assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
        assert_non_null(strstr(err.message, "header is damaged"));
        assert_int_equal(fault_flip_bit(host->fs, image.path, 8 * places[i]), 0);
    }
    image_put(host, image.path, image.bytes, HEAD - 1);
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
    free(image.bytes);
}

static void assert_log_missing(struct host *host, const char *sentence)
{
    struct quire_error err = {0};
    struct losses losses;
    assert_int_equal(host_read(host, false, &losses, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, sentence));
    assert_int_equal(host_read(host, true, &losses, &err), 0);
    assert_int_equal(losses.n, 1);
    assert_non_null(strstr(losses.last, sentence));
}

static void test_missing_newest_log(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    char path[64];
    host_must_open(host);
    host_must_append(host, 3, true);
    assert_int_equal(host_checkpoint(host, 0, &err), 0);
    host_must_append(host, 2, true);
    host_kill(host);
    assert_int_equal(host->fs->ops->unlink(host->fs, "/journal/log-00000000000000000004"), 0);
    assert_log_missing(host, "the log that begins at LSN 4 is missing, which was begun before the checkpoint");
    /* logs that were begun since */
    assert_int_equal(host->fs->ops->unlink(host->fs, "/journal/checkpoint-00000000000000000004"), 0);
    host->appended = host->acknowledged = 0;
    host->options.file_bytes = 1000;
    host_must_open(host);
    host_must_append(host, 12, true);
    host_kill(host);
    uint64_t last = 13;
    int rc = -1;
    while (rc < 0 && last > 2) {
        snprintf(path, sizeof path, "/journal/log-%020llu", (unsigned long long)--last);
        rc = host->fs->ops->unlink(host->fs, path);
    }
    assert_int_equal(rc, 0);
    snprintf(path, sizeof path, "the log that begins at LSN %llu is missing", (unsigned long long)last);
    assert_log_missing(host, path);
}

/* A disk that is nearly full: 4 MiB are enough to begin. */
static void test_room_at_start(void **state)
{
    struct host *host = *state;
    struct quire_error err = {0};
    host->options.file_bytes = 0;
    fault_capacity(host->fs, (4u << 20) - 1);
    assert_int_equal(host_open(host, &err), QUIRE_ENOSPACE);
    assert_non_null(strstr(err.message, "cannot reserve 4194304 bytes"));
    fault_capacity(host->fs, 4u << 20);
    host_must_open(host);
    host_must_append(host, 5, true);
    host_kill(host);
    fault_capacity(host->fs, 8u << 20);
    host_must_open(host);
    host_must_append(host, 5, true);
    host_must_close(host);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, support_set_up, support_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {ROW(test_cut_log_with_mark), ROW(test_torn_mark), ROW(test_head_of_log),
                                       ROW(test_missing_newest_log), ROW(test_room_at_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
