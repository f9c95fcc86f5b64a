/*
 * store_check.h - data folders that nobody has open: verified, and saved from what is damaged.
 */
#ifndef QUIRE_INDEX_STORE_CHECK_H
#define QUIRE_INDEX_STORE_CHECK_H

#include "index/store/store.h"

/* Either of them in a folder tells that it is a data folder. */
#define LOCK_NAME     "LOCK"
#define SEGMENTS_NAME "segments"

struct store_check_request {
    const char *path;
    const struct store_host *host; /* given its records by restore and replay; NULL: nobody */
    /* A sentence for each finding, of a repair also for each thing that it could not save; NULL: nobody hears it. */
    void (*finding)(void *context, const char *sentence);
    /* Of each segment, as quire_verify's; other than 0: QUIRE_ECANCELLED. NULL: none. */
    int (*progress)(void *context, const char *phase, uint64_t done, uint64_t total);
    void *context;
    struct io_fs *fs; /* NULL: fs_real() */
};

struct store_verify_report {
    uint64_t collections, segments, elements, records, findings;
    struct quire_verify_report segments_total;
};
/* Reads every byte of a data folder. QUIRE_ECORRUPT when there are findings. What the host refuses is a finding, and
 * the reading goes on. report may be NULL. */
int store_verify(const struct store_check_request *request, struct store_verify_report *report,
                 struct quire_error *err);
/* Writes what a damaged folder still holds to the new folder `to`. Records that the host refuses are left out. */
int store_repair(const struct store_check_request *request, const char *to, struct store_verify_report *report,
                 struct quire_error *err);

#endif
