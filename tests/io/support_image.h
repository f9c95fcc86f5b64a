/*
 * support_image.h - for tests of the journal that look at its files: taken as they are, cut, damaged and put back.
 */
#ifndef QUIRE_TESTS_SUPPORT_IMAGE_H
#define QUIRE_TESTS_SUPPORT_IMAGE_H

#include "support_journal.h"

/* Sizes of docs/format.md, said once more: a change of the format must show here. */
enum { FILE_HEADER = 64, MARKS_AT = 4096, MARK_STEP = 2048, HEAD = 8192, FRAME_HEADER = 48, RECORD_HEADER = 8 };

struct image {
    char path[64];
    uint8_t *bytes;
    uint64_t n;
};

/* The first file whose path begins so; bytes are owned by the caller. */
struct image image_take(struct host *host, const char *prefix);
/* Puts bytes in the place of a file. */
void image_put(struct host *host, const char *path, const uint8_t *bytes, uint64_t n);
/* As a log is before a mark is written. */
void image_erase_marks(struct image *image);
/* Offset of a frame (0, 1, ...) in a log. */
uint64_t image_frame_at(const struct image *image, unsigned index);
uint64_t image_frame_bytes(const uint8_t *frame);

struct losses {
    unsigned n;
    char last[512];
};

void host_note_loss(void *context, const char *sentence);
int host_read(struct host *host, bool salvage, struct losses *losses, struct quire_error *err);
/* Ends a run as a killed process does: no end frame, reserved room behind the frames. */
void host_kill(struct host *host);

/* A host in a folder "/journal" on a disk of its own, beside an empty "/copy". */
int support_set_up(void **state);
int support_tear_down(void **state);
void host_must_open(struct host *host);
void host_must_close(struct host *host);
void host_must_append(struct host *host, unsigned n, bool wait);

#endif
