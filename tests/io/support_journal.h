/*
 * support_journal.h - a host of a journal whose state can be told from the LSN alone, for the tests of the journal.
 *
 * The state is a value for each of a few keys. A frame sets one to three of them, to values that are a function of its
 * LSN and of the run that appended it; so after any loss of power the state of every LSN is known, and a frame that
 * comes back from an earlier run is seen as wrong.
 */
#ifndef QUIRE_TESTS_SUPPORT_JOURNAL_H
#define QUIRE_TESTS_SUPPORT_JOURNAL_H

#include "io/journal.h"
#include "tests/support/fault.h"

#define HOST_KEYS 7u
#define HOST_LSNS 4096u

struct host {
    struct io_fs *fs;
    const char *folder;
    struct journal_options options;
    struct journal *journal;
    struct journal_report report;
    uint64_t values[HOST_KEYS], lsns[HOST_KEYS]; /* the state, and up to where it is true */
    uint64_t run, runs[HOST_LSNS];               /* who appended an LSN */
    uint64_t appended, acknowledged;             /* LSNs */
    uint64_t replayed;                           /* records */
    unsigned wrong;                              /* records that are not what was appended */
    uint64_t snapshot_lsn;                       /* 0: none was finished */
};

/* A reader into the state, in the caller's memory. */
const struct journal_reader *host_reader(struct host *host, struct journal_reader *reader);
/* Opens and checks that nothing acknowledged is lost and that the state is that of the last LSN. Fails the test where
 * it is not. Returns journal_open's answer. */
int host_open(struct host *host, struct quire_error *err);
/* Forgets the state: before something is read into it. */
void host_clear(struct host *host);
/* Whether the state is that of an LSN. */
bool host_is_at(const struct host *host, uint64_t lsn);
/* Appends the next frame, as a batch if asked for; waits for it if asked for. */
int host_append(struct host *host, bool as_batch, bool wait, struct quire_error *err);
/* Writes a checkpoint and appends `between` frames while it is written. */
int host_checkpoint(struct host *host, unsigned between, struct quire_error *err);
int host_close(struct host *host, struct quire_error *err);

#endif
