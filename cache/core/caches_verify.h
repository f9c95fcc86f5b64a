/*
 * caches_verify.h - checks of the caches of a data folder that nobody has open, and saving their documents from one
 * that is damaged: for `quire verify` and `quire repair`.
 *
 * The caches were made with caches_options.read_only, and took in the folder's records by caches_restore and
 * caches_replay. caches_verify checks what they became (cache_check), every document of every segment, and that each
 * entry's document is there and is its own. Nothing is written but what `to` asks for. Afterwards only caches_destroy
 * may be called.
 *
 * What a crash leaves is no damage: entries whose documents were not written yet, which go at the next opening, and
 * torn bytes that no entry points to. These are notes.
 */
#ifndef QUIRE_CACHE_CACHES_VERIFY_H
#define QUIRE_CACHE_CACHES_VERIFY_H

#include "cache/core/cache.h"

struct caches_check {
    void (*finding)(void *context, const char *sentence); /* damage */
    void (*note)(void *context, const char *sentence);    /* none; may be NULL, as progress */
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total); /* other than 0: ECANCELLED */
    void *context;
    const char *to; /* repair: the new data folder, which gets all documents that are whole; NULL: a check only */
};

struct caches_report {
    uint64_t caches, entries, document_segments, documents; /* documents: also those that no entry needs any more */
    uint64_t entries_damaged, entries_lost; /* without their documents: by damage; never written. Among entries */
    uint64_t sealed_segments;               /* of vectors */
    uint64_t findings;
};

/* Errors: QUIRE_ECANCELLED, ENOMEM, EIO and those of writing to `to`; damage is none. */
int caches_verify(struct caches *caches, const struct caches_check *check, struct caches_report *report,
                  struct quire_error *err);

#endif
