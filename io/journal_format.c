/*
 * journal_format.c - the bytes and names of a journal's files, for those who write them.
 *
 * A frame shows three things by itself: that its header is whole (a checksum over it), that its payload is the one
 * that belongs to this header (the payload's checksum stands in the header), and that it was written to this very file
 * (the file's random id stands in the header). Without the last, blocks that a file system hands out again could pass
 * for frames. The id is in each frame, and not only the seed of a checksum, so that frames can still be told apart when
 * the file's own header is lost (journal_read with salvage).
 *
 * Records are padded to 8 bytes: who reads them may look at numbers and vectors in place.
 */
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/journal_priv.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

uint64_t journal_checksum(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

uint32_t journal_file_version(const char *magic)
{
    return memcmp(magic, LOG_MAGIC, 8) == 0 ? LOG_VERSION : CHECKPOINT_VERSION;
}

void journal_file_header(uint8_t header[FILE_HEADER_BYTES], const char *magic, uint64_t id, uint64_t first_lsn)
{
    assert(first_lsn > 0);
    memset(header, 0, FILE_HEADER_BYTES);
    memcpy(header, magic, 8);
    bytes_store_u32(header + FILE_VERSION_AT, journal_file_version(magic));
    bytes_store_u64(header + FILE_ID_AT, id);
    bytes_store_u64(header + FILE_FIRST_AT, first_lsn);
    bytes_store_u64(header + FILE_CHECKSUM_AT, journal_checksum(header, FILE_CHECKSUM_AT));
}

void journal_frame_header(uint8_t *at, const struct frame_header *header)
{
    bytes_store_u32(at + FRAME_MAGIC_AT, header->magic);
    bytes_store_u32(at + FRAME_PAYLOAD_BYTES_AT, header->payload_bytes);
    bytes_store_u64(at + FRAME_FILE_ID_AT, header->file_id);
    bytes_store_u64(at + FRAME_NUMBER_AT, header->number);
    bytes_store_u64(at + FRAME_KNOWN_AT, header->known);
    bytes_store_u32(at + FRAME_RECORDS_AT, header->n_records);
    bytes_store_u32(at + FRAME_HEADER_CHECKSUM_AT, 0);
    bytes_store_u64(at + FRAME_PAYLOAD_CHECKSUM_AT, header->payload_checksum);
    bytes_store_u32(at + FRAME_HEADER_CHECKSUM_AT, (uint32_t)journal_checksum(at, FRAME_HEADER_BYTES));
}

uint8_t *journal_put_record(uint8_t *at, uint8_t kind, const uint64_t *lsn, const void *bytes, uint32_t n)
{
    bytes_store_u32(at, n);
    memset(at + 4, 0, 4);
    at[4] = kind;
    at += RECORD_HEADER_BYTES;
    if (lsn) {
        bytes_store_u64(at, *lsn);
        at += 8;
    }
    if (n > 0)
        memcpy(at, bytes, n);
    memset(at + n, 0, journal_record_padded(n) - n);
    return at + journal_record_padded(n);
}

int journal_random_id(uint64_t *id, struct quire_error *err)
{
    uint64_t random = 0;
    while (random == 0) /* means "no id" where files are read */
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return error_set(err, QUIRE_EIO, "the operating system gives no random number for a journal's file");
    *id = random;
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define LSN_DIGITS 20u

/* What an entry of the folder is, and its LSN. */
static enum journal_name parse_name(const char *name, uint64_t *lsn)
{
    static const struct {
        const char *text;
        enum journal_name kind;
    } kinds[] = {{"log-", NAME_LOG}, {"checkpoint-", NAME_CHECKPOINT}};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].text);
        if (strncmp(name, kinds[i].text, n) != 0 || strspn(name + n, "0123456789") != LSN_DIGITS)
            continue;
        *lsn = 0;
        for (const char *digit = name + n; digit < name + n + LSN_DIGITS; digit++)
            if (__builtin_mul_overflow(*lsn, 10, lsn) || __builtin_add_overflow(*lsn, *digit - '0', lsn))
                return NAME_OTHER;
        const char *rest = name + n + LSN_DIGITS;
        if (*lsn == 0 || *lsn > LSN_MAX || (*rest && strcmp(rest, ".tmp") != 0))
            return NAME_OTHER;
        return *rest ? NAME_TEMPORARY : kinds[i].kind;
    }
    return NAME_OTHER;
}

char *journal_path(const char *folder, enum journal_name kind, uint64_t lsn, bool temporary)
{
    assert((kind == NAME_LOG || kind == NAME_CHECKPOINT) && lsn > 0);
    char *path;
    int n = asprintf(&path, "%s/%s-%020llu%s", folder, kind == NAME_LOG ? "log" : "checkpoint", (unsigned long long)lsn,
                     temporary ? ".tmp" : "");
    return n < 0 ? NULL : path;
}

static int add_lsn(uint64_t **array, uint32_t *n, uint32_t *capacity, uint64_t lsn)
{
    if (!array_reserve(array, capacity, *n + 1))
        return QUIRE_ENOMEM;
    (*array)[(*n)++] = lsn;
    return 0;
}

static int list_visit(void *context, const char *name)
{
    struct journal_files *files = context;
    uint64_t lsn;
    switch (parse_name(name, &lsn)) {
    case NAME_LOG:
        return add_lsn(&files->logs, &files->n_logs, &files->logs_capacity, lsn);
    case NAME_CHECKPOINT:
        return add_lsn(&files->checkpoints, &files->n_checkpoints, &files->checkpoints_capacity, lsn);
    default:
        return 0;
    }
}

int journal_list(struct io_fs *fs, const char *folder, struct journal_files *out, struct quire_error *err)
{
    *out = (struct journal_files){0};
    int rc = fs->ops->list(fs, folder, list_visit, out);
    if (rc < 0) {
        journal_files_free(out);
        return error_set(err, rc, "cannot list the journal's folder %s: %s", folder, quire_error_text(rc));
    }
    array_sort_u64(out->logs, out->n_logs);
    array_sort_u64(out->checkpoints, out->n_checkpoints);
    return 0;
}

void journal_files_free(struct journal_files *files)
{
    free(files->logs);
    free(files->checkpoints);
    *files = (struct journal_files){0};
}

struct removal {
    struct io_fs *fs;
    const char *folder;
    uint64_t lsn;
    bool temporary;
};

static int remove_visit(void *context, const char *name)
{
    const struct removal *removal = context;
    uint64_t lsn;
    enum journal_name kind = parse_name(name, &lsn);
    bool useless = kind == NAME_TEMPORARY ? removal->temporary : kind != NAME_OTHER && lsn < removal->lsn;
    char *path;
    if (useless && asprintf(&path, "%s/%s", removal->folder, name) >= 0) {
        removal->fs->ops->unlink(removal->fs, path);
        free(path);
    }
    return 0;
}

void journal_remove_older(struct io_fs *fs, const char *folder, uint64_t lsn, bool temporary)
{
    struct removal removal = {fs, folder, lsn, temporary};
    if (fs->ops->list(fs, folder, remove_visit, &removal) == 0)
        fs->ops->sync_dir(fs, folder);
}
