/*
 * replica_fetch.h - a segment on its way: pieces come in, all of it is verified, then it is adopted.
 *
 * What is asked of the leader is by id: which files it has (replica_pool_files), then pieces of them. Pieces come in
 * any order within a file and files in any order; each byte once is enough, twice does no harm. Nothing of it is
 * believed: before it is adopted every checksum of every file is computed (index/verify), so that a segment that was
 * damaged, truncated or exchanged on its way is never seen. It is removed then, and fetched again.
 */
#ifndef QUIRE_INDEX_REPLICA_FETCH_H
#define QUIRE_INDEX_REPLICA_FETCH_H

#include "index/store/store.h"

#define REPLICA_FILES_MAX  16u
#define REPLICA_NAME_BYTES 16u

struct replica_file {
    char name[REPLICA_NAME_BYTES]; /* ends with 0 */
    uint64_t bytes;
};

struct replica_fetch;
/* files: as the leader has listed them. QUIRE_ECORRUPT: no segment consists of such. One of a segment at a time. */
int replica_fetch_begin(struct store *store, struct collection *collection, const struct lineage_told *told,
                        const struct replica_file *files, uint32_t n, struct replica_fetch **out,
                        struct quire_error *err);
/* The first piece that is missing, of at most `most` bytes; false: all are there. */
bool replica_fetch_next(const struct replica_fetch *fetch, uint32_t most, struct replica_file *file, uint64_t *offset,
                        uint32_t *bytes);
/* A piece that came. It must begin where its file is missing, which is what replica_fetch_next says. Blocks. */
int replica_fetch_write(struct replica_fetch *fetch, const char *name, uint64_t offset, const void *bytes, uint32_t n,
                        struct quire_error *err);
/* Verifies and adopts it, and frees the fetch in either case. QUIRE_ECORRUPT: it is damaged and gone. QUIRE_EBUSY: its
 * turn has not come: what was fetched is gone; ask for those that are ready. QUIRE_ENOTFOUND: it was overtaken. Blocks:
 * reads all of it. */
int replica_fetch_end(struct replica_fetch *fetch, uint64_t *lsn, struct quire_error *err);
void replica_fetch_abort(struct replica_fetch *fetch); /* NULL is fine */

/* Carries out what needs no segment, as far as its turn has come. How many. */
int replica_fetch_settle(struct store *store, struct collection *collection, struct quire_error *err);

#endif
