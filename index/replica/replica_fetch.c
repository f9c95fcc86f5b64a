/*
 * replica_fetch.c - a segment on its way. Its files are written forward, each into its own, under a name that an
 * opening of the store removes: what was not adopted before a crash is fetched again.
 */
#include "index/replica/replica_fetch.h"
#include "index/column/columns.h"
#include "index/format/format.h"
#include "index/verify/verify.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replica_fetch {
    struct store *store;
    struct collection *collection; /* a reference */
    struct lineage_told told;
    char *folder;
    uint32_t n;
    struct coming {
        struct replica_file file;
        struct io_file *out; /* NULL: not begun, or ended */
        uint64_t have;
    } files[REPLICA_FILES_MAX];
};

static const char *const segment_files[] = {META_NAME,       BLOCKS_NAME,  CODES_NAME,   KEYS_NAME,
                                            ATTRIBUTES_NAME, COLUMNS_NAME, POSTINGS_NAME};

static bool is_segment_file(const char name[REPLICA_NAME_BYTES])
{
    for (size_t i = 0; i < sizeof segment_files / sizeof *segment_files; i++)
        if (strncmp(name, segment_files[i], REPLICA_NAME_BYTES) == 0)
            return true;
    return false;
}

static int check_files(const struct lineage_told *told, const struct replica_file *files, uint32_t n,
                       struct quire_error *err)
{
    uint64_t bytes = 0;
    bool sound = n > 0 && n <= REPLICA_FILES_MAX;
    for (uint32_t i = 0; sound && i < n; i++) {
        sound = memchr(files[i].name, 0, REPLICA_NAME_BYTES) && is_segment_file(files[i].name) &&
                !__builtin_add_overflow(bytes, files[i].bytes, &bytes);
        for (uint32_t k = 0; sound && k < i; k++)
            sound = strcmp(files[i].name, files[k].name) != 0;
    }
    return sound && bytes == told->bytes
               ? 0
               : error_set(err, QUIRE_ECORRUPT,
                           "the files of a segment on its way are %llu bytes, %llu were told of: ask "
                           "for them again",
                           (unsigned long long)bytes, (unsigned long long)told->bytes);
}

int replica_fetch_begin(struct store *store, struct collection *collection, const struct lineage_told *told,
                        const struct replica_file *files, uint32_t n, struct replica_fetch **out,
                        struct quire_error *err)
{
    struct io_fs *fs = store_fs(store);
    int rc = check_files(told, files, n, err);
    if (rc < 0)
        return rc;
    struct replica_fetch *f = calloc(1, sizeof *f);
    if (f)
        f->folder = store_copy_folder(store, told->uid);
    if (!f || !f->folder) {
        free(f);
        return error_set(err, QUIRE_ENOMEM, "no memory to fetch a segment");
    }
    f->store = store;
    f->collection = collection_ref(collection);
    f->told = *told;
    f->n = n;
    for (uint32_t i = 0; i < n; i++)
        f->files[i].file = files[i];
    fs_remove_folder(fs, f->folder, NULL); /* a fetch that was broken off */
    rc = fs->ops->mkdir(fs, f->folder);
    if (rc < 0) {
        error_set(err, rc, "cannot make folder %s: %s", f->folder, quire_error_text(rc));
        replica_fetch_abort(f);
        return rc;
    }
    *out = f;
    return 0;
}

static void free_fetch(struct replica_fetch *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        fs_close(f->files[i].out);
    collection_unref(f->collection);
    free(f->folder);
    free(f);
}

void replica_fetch_abort(struct replica_fetch *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->n; i++) {
        fs_close(f->files[i].out);
        f->files[i].out = NULL;
    }
    fs_remove_folder(store_fs(f->store), f->folder, NULL);
    free_fetch(f);
}

bool replica_fetch_next(const struct replica_fetch *f, uint32_t most, struct replica_file *file, uint64_t *offset,
                        uint32_t *bytes)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct coming *c = &f->files[i];
        if (c->have == c->file.bytes)
            continue;
        uint64_t left = c->file.bytes - c->have;
        *file = c->file;
        *offset = c->have;
        *bytes = left < most ? (uint32_t)left : most;
        return true;
    }
    return false;
}

static int open_coming(struct replica_fetch *f, struct coming *c, struct quire_error *err)
{
    char *path;
    if (c->out)
        return 0;
    if (asprintf(&path, "%s/%s", f->folder, c->file.name) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to fetch a segment");
    int rc = fs_open(store_fs(f->store), path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &c->out, err);
    free(path);
    return rc;
}

int replica_fetch_write(struct replica_fetch *f, const char *name, uint64_t offset, const void *bytes, uint32_t n,
                        struct quire_error *err)
{
    struct coming *c = NULL;
    for (uint32_t i = 0; i < f->n && !c; i++)
        if (strncmp(f->files[i].file.name, name, REPLICA_NAME_BYTES) == 0)
            c = &f->files[i];
    if (!c || n == 0 || offset != c->have || n > c->file.bytes - c->have)
        return error_set(err, QUIRE_EINVALID, "%u bytes at %llu of %.16s of a segment on its way were not asked for", n,
                         (unsigned long long)offset, name);
    int rc = open_coming(f, c, err);
    if (rc == 0)
        rc = fs_write_exact(c->out, bytes, n, offset, err);
    if (rc < 0)
        return rc;
    c->have += n;
    if (c->have < c->file.bytes)
        return 0;
    rc = fs_sync(c->out, err);
    fs_close(c->out);
    c->out = NULL;
    return rc;
}

int replica_fetch_end(struct replica_fetch *f, uint64_t *lsn, struct quire_error *err)
{
    struct replica_file missing;
    uint64_t offset;
    uint32_t bytes;
    struct quire_error reason = {0};
    const struct verify_listener nobody = {.finding = NULL};
    int rc = replica_fetch_next(f, 1, &missing, &offset, &bytes)
                 ? error_set(err, QUIRE_EINVALID, "%s of a segment on its way is not whole", missing.name)
                 : 0;
    if (rc == 0 && (rc = verify_segment(store_fs(f->store), f->folder, &nobody, NULL, &reason)) < 0)
        error_set(err, rc == QUIRE_ENOMEM ? rc : QUIRE_ECORRUPT,
                  "a segment was damaged on its way and is not taken: %.300s", reason.message);
    if (rc == 0)
        rc = store_copy_adopt(f->store, f->collection, &f->told, lsn, err);
    if (rc < 0) {
        replica_fetch_abort(f);
        return rc == QUIRE_ENOMEM || rc == QUIRE_EBUSY || rc == QUIRE_ENOTFOUND || rc == QUIRE_ECLOSED ||
                       rc == QUIRE_EINVALID || rc == QUIRE_ENOSPACE || rc == QUIRE_EIO
                   ? rc
                   : QUIRE_ECORRUPT;
    }
    free_fetch(f);
    return 0;
}

int replica_fetch_settle(struct store *store, struct collection *collection, struct quire_error *err)
{
    static const uint8_t nothing[LINEAGE_ID_BYTES];
    struct lineage_told told[8];
    int done = 0;
    for (bool more = true; more;) {
        uint32_t n = lineage_list_told(collection, told, 8);
        more = false;
        for (uint32_t i = 0; i < n && i < 8 && !more; i++) {
            uint64_t lsn;
            if (!told[i].is_ready || memcmp(told[i].segment, nothing, LINEAGE_ID_BYTES) != 0)
                continue;
            int rc = store_copy_adopt(store, collection, &told[i], &lsn, err);
            if (rc < 0)
                return rc;
            done++;
            more = true;
        }
    }
    return done;
}
