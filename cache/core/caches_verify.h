/*
 * caches_verify.h - checks of the caches of a data folder that nobody has open, and saving their documents from one
 * that is damaged: for `quire verify` and `quire repair`.
 *
 * The caches were made with caches_options.read_only, and took in the folder's records by caches_restore and
 * caches_replay. caches_verify checks what they became (cache_check), every document of every segment, and that each
 * entry's document is there and is its own. Nothing is written but what `to` asks for. Afterwards only caches_destroy
 * may be called.
 *
 * What a crash leaves is no damage: entries whose documents were never synced, which go at the next opening or when
 * they are asked for, and torn bytes that no entry points to. These are notes.
 */
#ifndef QUIRE_CACHE_CACHES_VERIFY_H
#define QUIRE_CACHE_CACHES_VERIFY_H

#include "cache/core/cache.h"

struct caches_check {
    void (*finding)(void *context, const char *sentence); /* damage */
    void (*note)(void *context, const char *sentence);    /* none; may be NULL, as progress */
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total); /* other than 0: ECANCELLED */
    void *context;
    /* Repair: the new data folder, which gets all documents and vectors that are whole, and its journal, which has the
     * records of the caches and gets those of what could not be saved. NULL: a check only. */
    const char *to;
    struct journal *journal;
};

struct caches_report {
    uint64_t caches, entries, document_segments, documents; /* documents: also those that no entry needs any more */
    uint64_t entries_damaged, entries_lost; /* without their documents: by damage; never written. Among entries */
    uint64_t sealed_segments;               /* of vectors */
    uint64_t vectors_lost;                  /* repair: entries whose vectors could not be saved */
    uint64_t findings;
};

/* Errors: QUIRE_ECANCELLED, ENOMEM, EPERM (a file that may not be read is not called damaged), EIO and those of writing
 * to `to`; damage is none. */
int caches_verify(struct caches *caches, const struct caches_check *check, struct caches_report *report,
                  struct quire_error *err);

#endif
