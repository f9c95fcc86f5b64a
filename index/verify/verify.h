/*
 * verify.h - reads all of a segment and says what is wrong with it.
 */
#ifndef QUIRE_INDEX_VERIFY_H
#define QUIRE_INDEX_VERIFY_H

#include "io/fs.h"
#include "quire.h"

/* Who is told. Both functions may be NULL. */
struct verify_listener {
    void (*finding)(void *context, const char *sentence);
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total); /* not 0: stop */
    void *context;
};

/* quire_verify on any file system. *report (may be NULL) is filled whether or not anything is found. QUIRE_ECANCELLED
 * if progress said so; QUIRE_ECORRUPT after findings. */
int verify_segment(struct io_fs *fs, const char *path, const struct verify_listener *listener,
                   struct quire_verify_report *report, struct quire_error *err);

#endif
