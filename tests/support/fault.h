/*
 * fault.h - a disk that fails on demand: for tests of everything durable.
 *
 * fault_fs_create makes an io_fs whose files are in memory (fd -1; paths from its own empty root, "/a/b" is "a/b"). It
 * keeps apart what has reached the disk and what has not: data of a file counts as durable after `sync` of that file,
 * names (create, rename, link, unlink, mkdir, rmdir) after `sync_dir` of their folder; nothing else makes anything
 * durable, not even closing. fault_power_cut loses an arbitrary part of the rest.
 *
 * engine_fault_create makes an engine that carries file ops out through their io_fs late and in another order.
 *
 * Both are deterministic: the same calls and the same seed give the same run. All functions but creation and
 * destruction may be called from any thread.
 */
#ifndef QUIRE_TESTS_FAULT_H
#define QUIRE_TESTS_FAULT_H

#include "io/engine.h"
#include "io/fs.h"

/* Kinds of calls, for masks. */
enum fault_call {
    FAULT_OPEN = 1,
    FAULT_READ = 2,
    FAULT_WRITE = 4,
    FAULT_SYNC = 8,
    FAULT_ALLOCATE = 16,
    FAULT_TRUNCATE = 32,
    FAULT_RENAME = 64,
    FAULT_UNLINK = 128,
    FAULT_MKDIR = 256,
    FAULT_RMDIR = 512,
    FAULT_SYNC_DIR = 1024,
    FAULT_LIST = 2048,
    FAULT_LINK = 4096,
    FAULT_ANY = 8191,
};

/* NULL without memory (later lack of memory aborts: this is for tests). */
struct io_fs *fault_fs_create(void);
/* All files must be closed. NULL is fine. */
void fault_fs_destroy(struct io_fs *fs);

/* Calls of these kinds since creation or the last fault_fail_nth. */
uint64_t fault_calls(struct io_fs *fs, unsigned calls);
/* The n-th call (1..) of these kinds from now on fails with `code`; with `forever` all later calls of any kind fail
 * too, as of a device that is gone. A failed write leaves a prefix of its data. n = 0: no failures. */
void fault_fail_nth(struct io_fs *fs, unsigned calls, uint64_t n, int code, bool forever);
/* The n-th write (1..) from now on lands `shift` bytes away and reports success. n = 0: none. */
void fault_misdirect_nth(struct io_fs *fs, uint64_t n, int64_t shift);
/* The n-th read (1..) from now on answers only half of what it has. n = 0: none. */
void fault_short_read_nth(struct io_fs *fs, uint64_t n);
/* Bytes that all files together may have, one with two names twice; what would exceed it fails with QUIRE_ENOSPACE.
 * UINT64_MAX: no limit. */
void fault_capacity(struct io_fs *fs, uint64_t bytes);
/* A slow disk: from now on calls of these kinds (of FAULT_WRITE, FAULT_SYNC, FAULT_SYNC_DIR) are carried out, but do
 * not come back until they are let go, or until another call of this function says that they need not wait. */
void fault_hold(struct io_fs *fs, unsigned calls);
void fault_let_go(struct io_fs *fs, unsigned n); /* n of those that wait, or will */
unsigned fault_held(struct io_fs *fs);           /* calls that wait now */
/* Flips one bit of a file, in memory and on the disk. bit: byte * 8 + 0..7. QUIRE_ENOFILE, QUIRE_ERANGE. */
int fault_flip_bit(struct io_fs *fs, const char *path, uint64_t bit);

/* The power goes out and comes back. Of each file's writes since its last sync an arbitrary subset remains, torn at any
 * 512-byte sector; of the names' changes since the last sync of their folder, too. Files opened before answer QUIRE_EIO
 * to all but fs_close. Failures asked for above are over. seed 0: all that is not durable is lost; UINT64_MAX: nothing.
 */
void fault_power_cut(struct io_fs *fs, uint64_t seed);

/* Calls visit(context, path, data, bytes) for every file, by folder; the path begins with '/'. Stops at the first
 * non-zero answer and returns it. `visit` must not call the fs. */
int fault_each_file(struct io_fs *fs,
                    int (*visit)(void *context, const char *path, const uint8_t *data, uint64_t bytes), void *context);

/* An engine for tests; of config all but the kind counts. Sockets and timers are those of the threads engine. */
int engine_fault_create(const struct engine_config *config, uint64_t seed, struct engine **out,
                        struct quire_error *err);

#endif
