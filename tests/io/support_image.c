/* support_image.c - see support_image.h. */
#include "support_image.h"
#include "io/bytes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

/* The nth file of a folder by name. */
struct pick {
    const char *prefix;
    struct image image;
};

static int pick_visit(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    struct pick *pick = context;
    if (strncmp(path, pick->prefix, strlen(pick->prefix)) != 0 || pick->image.bytes)
        return 0;
    snprintf(pick->image.path, sizeof pick->image.path, "%s", path);
    pick->image.bytes = malloc(bytes + 1);
    memcpy(pick->image.bytes, data, bytes);
    pick->image.n = bytes;
    return 0;
}

/* As a log is before a mark is written. */
void image_erase_marks(struct image *image)
{
    assert_true(image->n >= HEAD);
    memset(image->bytes + MARKS_AT, 0, HEAD - MARKS_AT);
}

struct image image_take(struct host *host, const char *prefix)
{
    struct pick pick = {.prefix = prefix};
    fault_each_file(host->fs, pick_visit, &pick);
    assert_non_null(pick.image.bytes);
    return pick.image;
}

/* Puts bytes in the place of a file. */
void image_put(struct host *host, const char *path, const uint8_t *bytes, uint64_t n)
{
    struct io_file *file;
    host->fs->ops->unlink(host->fs, path);
    assert_int_equal(fs_open(host->fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file, NULL), 0);
    assert_int_equal(fs_write_exact(file, bytes, n, 0, NULL), 0);
    assert_int_equal(fs_sync(file, NULL), 0);
    fs_close(file);
}

/* Ends a run as a killed process does: no end frame, reserved room behind the frames. */
void host_kill(struct host *host)
{
    struct quire_error err;
    struct journal_stats stats;
    do
        journal_get_stats(host->journal, &stats);
    while (stats.unwritten_bytes > 0);
    fault_fail_nth(host->fs, FAULT_ANY, 1, QUIRE_EIO, true);
    host_close(host, &err);
    fault_power_cut(host->fs, UINT64_MAX);
}

uint64_t image_frame_bytes(const uint8_t *frame)
{
    return FRAME_HEADER + bytes_load_u32(frame + 4);
}

/* Offset of a frame (0, 1, ...) in a log. */
uint64_t image_frame_at(const struct image *image, unsigned index)
{
    uint64_t at = HEAD;
    while (index--)
        at += image_frame_bytes(image->bytes + at);
    return at;
}

void host_note_loss(void *context, const char *sentence)
{
    struct losses *losses = context;
    losses->n++;
    snprintf(losses->last, sizeof losses->last, "%s", sentence);
}

int host_read(struct host *host, bool salvage, struct losses *losses, struct quire_error *err)
{
    struct journal_reader reader;
    host_clear(host);
    *losses = (struct losses){0};
    return journal_read(host->fs, "/journal", host_reader(host, &reader), salvage, host_note_loss, losses,
                        &host->report, err);
}

int support_set_up(void **state)
{
    struct host *host = calloc(1, sizeof *host);
    *host = (struct host){.fs = fault_fs_create(), .folder = "/journal"};
    host->options.file_bytes = 20000; /* little reserved room: damage is tried at each byte, and all of it is read */
    *state = host;
    return host->fs->ops->mkdir(host->fs, "/journal") | host->fs->ops->mkdir(host->fs, "/copy") |
           host->fs->ops->sync_dir(host->fs, "/");
}

int support_tear_down(void **state)
{
    struct host *host = *state;
    fault_fs_destroy(host->fs);
    free(host);
    return 0;
}

void host_must_open(struct host *host)
{
    struct quire_error err = {0};
    if (host_open(host, &err) < 0)
        fail_msg("%s", err.message);
}

void host_must_close(struct host *host)
{
    struct quire_error err = {0};
    assert_int_equal(host_close(host, &err), 0);
}

void host_must_append(struct host *host, unsigned n, bool wait)
{
    struct quire_error err = {0};
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(host_append(host, i % 2, wait, &err), 0);
}
