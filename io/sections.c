/*
 * sections.c - the container: a superblock, then sections.
 *
 * Superblock, 4096 bytes, little-endian:
 *   0    8 bytes magic "QUIREFIL"
 *   8    u32 container format version (1)
 *   12   u32 kind of the file
 *   16   16 bytes segment id
 *   32   u64 bytes of the file
 *   40   u32 number of sections     44  u32 zero
 *   48   24 bytes zero
 *   72   section table, 40 bytes each: u32 id, u32 flags, u64 offset, u64 bytes, u64 checksum, u64 zero
 *   4088 u64 XXH3-64 of bytes 0..4087
 *
 * A writer streams: data goes through one aligned buffer to ever higher offsets, sections begin at multiples of 4096,
 * and the superblock is written last, after the data was synced; so a file whose superblock is right has all its data.
 * The file size is a multiple of 4096.
 *
 * A reader believes nothing before the superblock's checksum is right, and even then checks that sections lie inside
 * the file, are aligned and do not overlap: a forged file must not make it read or allocate out of bounds.
 */
#include "io/sections.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BUFFER_BYTES      (1u << 20)
#define TABLE_AT          72u
#define TABLE_ENTRY_BYTES 40u
#define CHECKSUM_AT       (SECTION_ALIGN - 8)

struct section_writer {
    struct io_file *file;
    uint8_t *buffer; /* BUFFER_BYTES, aligned */
    size_t filled;
    uint64_t flushed; /* offset in the file of buffer[0] */
    XXH3_state_t *hash;
    uint32_t kind;
    uint8_t segment_id[16];
    struct section_entry entries[SECTIONS_MAX];
    uint32_t n_entries;
    bool open;  /* a section is begun */
    int failed; /* first error; the writer then refuses all but abort and finish */
};

struct section_file {
    struct io_file *file;
    uint8_t segment_id[16];
    struct section_entry entries[SECTIONS_MAX];
    uint32_t n_entries;
};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void writer_free(struct section_writer *w)
{
    fs_close(w->file);
    memory_free(w->buffer);
    XXH3_freeState(w->hash);
    free(w);
}

int section_writer_create(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t segment_id[16],
                          struct section_writer **out, struct quire_error *err)
{
    struct section_writer *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    w->kind = kind;
    memcpy(w->segment_id, segment_id, sizeof w->segment_id);
    w->buffer = memory_aligned(4096, BUFFER_BYTES);
    w->hash = XXH3_createState();
    int rc = w->buffer && w->hash ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to write %s", path);
    if (rc == 0)
        rc = fs_open(fs, path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE | FS_DIRECT, &w->file, err);
    if (rc < 0) {
        writer_free(w);
        return rc;
    }
    /* space of the superblock, zero until finish */
    memset(w->buffer, 0, SECTION_ALIGN);
    w->filled = SECTION_ALIGN;
    *out = w;
    return 0;
}

static uint64_t place(const struct section_writer *w)
{
    return w->flushed + w->filled;
}

/* Writes out the buffer; it holds whole pages. */
static int flush(struct section_writer *w, struct quire_error *err)
{
    assert(w->filled % SECTION_ALIGN == 0);
    int rc = w->filled ? fs_write_exact(w->file, w->buffer, w->filled, w->flushed, err) : 0;
    w->flushed += w->filled;
    w->filled = 0;
    w->failed = rc;
    return rc;
}

static int put(struct section_writer *w, const void *data, size_t bytes, struct quire_error *err)
{
    while (bytes > 0) {
        assert(w->filled < BUFFER_BYTES);
        size_t n = BUFFER_BYTES - w->filled < bytes ? BUFFER_BYTES - w->filled : bytes;
        memcpy(w->buffer + w->filled, data, n);
        w->filled += n;
        data = (const char *)data + n;
        bytes -= n;
        if (w->filled == BUFFER_BYTES) {
            int rc = flush(w, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int pad(struct section_writer *w, struct quire_error *err)
{
    static const uint8_t zeros[SECTION_ALIGN];
    size_t rest = (SECTION_ALIGN - w->filled % SECTION_ALIGN) % SECTION_ALIGN;
    return put(w, zeros, rest, err);
}

int section_begin(struct section_writer *w, uint32_t id, uint32_t flags, struct quire_error *err)
{
    assert(!w->open || w->failed);
    if (w->failed)
        return w->failed;
    if (w->n_entries == SECTIONS_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s: more than %u sections", w->file->path, SECTIONS_MAX);
    w->entries[w->n_entries] = (struct section_entry){.id = id, .flags = flags, .offset = place(w)};
    XXH3_64bits_reset(w->hash);
    w->open = true;
    return 0;
}

int section_write(struct section_writer *w, const void *data, size_t bytes, struct quire_error *err)
{
    assert(w->open || w->failed);
    if (w->failed)
        return w->failed;
    struct section_entry *entry = &w->entries[w->n_entries];
    if (!(entry->flags & SECTION_SELF_CHECKED) && bytes)
        XXH3_64bits_update(w->hash, data, bytes);
    entry->bytes += bytes;
    return put(w, data, bytes, err);
}

int section_end(struct section_writer *w, struct quire_error *err)
{
    assert(w->open || w->failed);
    if (w->failed)
        return w->failed;
    struct section_entry *entry = &w->entries[w->n_entries];
    if (!(entry->flags & SECTION_SELF_CHECKED))
        entry->checksum = XXH3_64bits_digest(w->hash);
    w->n_entries++;
    w->open = false;
    return pad(w, err);
}

int section_put(struct section_writer *w, uint32_t id, const void *data, size_t bytes, struct quire_error *err)
{
    int rc = section_begin(w, id, 0, err);
    if (rc == 0)
        rc = section_write(w, data, bytes, err);
    return rc == 0 ? section_end(w, err) : rc;
}

static void encode_superblock(const struct section_writer *w, uint64_t file_bytes, uint8_t *out)
{
    assert(w->n_entries <= SECTIONS_MAX && file_bytes % SECTION_ALIGN == 0);
    memset(out, 0, SECTION_ALIGN);
    memcpy(out, SECTION_MAGIC, 8);
    bytes_store_u32(out + 8, SECTION_FORMAT_VERSION);
    bytes_store_u32(out + 12, w->kind);
    memcpy(out + 16, w->segment_id, 16);
    bytes_store_u64(out + 32, file_bytes);
    bytes_store_u32(out + 40, w->n_entries);
    for (uint32_t i = 0; i < w->n_entries; i++) {
        uint8_t *at = out + TABLE_AT + i * TABLE_ENTRY_BYTES;
        bytes_store_u32(at, w->entries[i].id);
        bytes_store_u32(at + 4, w->entries[i].flags);
        bytes_store_u64(at + 8, w->entries[i].offset);
        bytes_store_u64(at + 16, w->entries[i].bytes);
        bytes_store_u64(at + 24, w->entries[i].checksum);
    }
    bytes_store_u64(out + CHECKSUM_AT, XXH3_64bits(out, CHECKSUM_AT));
}

int section_writer_finish(struct section_writer *w, struct quire_error *err)
{
    assert(!w->open || w->failed);
    int rc = w->failed ? w->failed : flush(w, err);
    uint64_t bytes = place(w);
    if (rc == 0)
        rc = fs_sync(w->file, err);
    if (rc == 0) {
        encode_superblock(w, bytes, w->buffer);
        rc = fs_write_exact(w->file, w->buffer, SECTION_ALIGN, 0, err);
    }
    if (rc == 0)
        rc = fs_sync(w->file, err);
    if (rc < 0)
        section_writer_abort(w);
    else
        writer_free(w);
    return rc;
}

void section_writer_abort(struct section_writer *w)
{
    w->file->fs->ops->unlink(w->file->fs, w->file->path);
    writer_free(w);
}

int section_writer_conclude(struct section_writer *w, int rc, struct quire_error *err)
{
    if (!w)
        return rc;
    if (rc == 0)
        return section_writer_finish(w, err);
    section_writer_abort(w);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int check_header(const struct io_file *file, const uint8_t *sb, uint32_t kind, const uint8_t *segment_id,
                        struct quire_error *err)
{
    if (memcmp(sb, SECTION_MAGIC, 8) != 0)
        return error_set(err, QUIRE_EFORMAT, "%s is not a Quire file: its first bytes are not \"%s\"", file->path,
                         SECTION_MAGIC);
    uint64_t stated = bytes_load_u64(sb + CHECKSUM_AT), found = XXH3_64bits(sb, CHECKSUM_AT);
    uint32_t version = bytes_load_u32(sb + 8);
    if (version > SECTION_FORMAT_VERSION)
        return error_set(err, QUIRE_EVERSION,
                         "%s has container format version %u, this build reads %u: it was made by a "
                         "newer Quire, use that one or rebuild",
                         file->path, version, SECTION_FORMAT_VERSION);
    if (stated != found)
        return error_set(err, QUIRE_ECORRUPT, "%s: superblock checksum is %016llx, expected %016llx", file->path,
                         (unsigned long long)found, (unsigned long long)stated);
    if (version != SECTION_FORMAT_VERSION)
        return error_set(err, QUIRE_EVERSION, "%s has container format version %u, this build reads %u", file->path,
                         version, SECTION_FORMAT_VERSION);
    if (bytes_load_u32(sb + 12) != kind)
        return error_set(err, QUIRE_EFORMAT, "%s is a file of kind %u, expected kind %u", file->path,
                         bytes_load_u32(sb + 12), kind);
    if (segment_id && memcmp(sb + 16, segment_id, 16) != 0)
        return error_set(err, QUIRE_ECORRUPT, "%s belongs to another index: its segment id differs", file->path);
    uint64_t bytes = bytes_load_u64(sb + 32);
    if (file->bytes != bytes)
        return error_set(err, file->bytes < bytes ? QUIRE_ETRUNCATED : QUIRE_EOVERSIZED,
                         "%s has %llu bytes, its superblock says %llu: copy it again or rebuild", file->path,
                         (unsigned long long)file->bytes, (unsigned long long)bytes);
    return 0;
}

static struct section_entry load_entry(const uint8_t *sb, uint32_t i)
{
    const uint8_t *at = sb + TABLE_AT + i * TABLE_ENTRY_BYTES;
    return (struct section_entry){bytes_load_u32(at), bytes_load_u32(at + 4), bytes_load_u64(at + 8),
                                  bytes_load_u64(at + 16), bytes_load_u64(at + 24)};
}

static int parse_table(struct section_file *f, const uint8_t *sb, struct quire_error *err)
{
    uint64_t end = SECTION_ALIGN;
    uint32_t n = bytes_load_u32(sb + 40);
    if (n > SECTIONS_MAX)
        return error_set(err, QUIRE_ECORRUPT, "%s: %u sections, at most %u", f->file->path, n, SECTIONS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct section_entry entry = load_entry(sb, i);
        if (entry.offset % SECTION_ALIGN || entry.offset < end || entry.offset > f->file->bytes ||
            entry.bytes > f->file->bytes - entry.offset)
            return error_set(err, QUIRE_ECORRUPT,
                             "%s: section %u (%llu bytes at %llu) lies outside the file or overlaps", f->file->path,
                             entry.id, (unsigned long long)entry.bytes, (unsigned long long)entry.offset);
        end = entry.offset + entry.bytes;
        f->entries[i] = entry;
    }
    f->n_entries = n;
    return 0;
}

int section_file_open(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t *segment_id, unsigned flags,
                      struct section_file **out, struct quire_error *err)
{
    struct section_file *f = calloc(1, sizeof *f);
    uint8_t *sb = memory_for_read(SECTION_ALIGN);
    int rc =
        f && sb ? fs_open(fs, path, flags, &f->file, err) : error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (rc == 0 && f->file->bytes < SECTION_ALIGN)
        rc = error_set(err, f->file->bytes ? QUIRE_ETRUNCATED : QUIRE_EFORMAT,
                       "%s has %llu bytes, a Quire file has at least %u", path, (unsigned long long)f->file->bytes,
                       SECTION_ALIGN);
    if (rc == 0)
        rc = fs_read_exact(f->file, sb, SECTION_ALIGN, 0, err);
    if (rc == 0)
        rc = check_header(f->file, sb, kind, segment_id, err);
    if (rc == 0) {
        memcpy(f->segment_id, sb + 16, 16);
        rc = parse_table(f, sb, err);
    }
    memory_read_end(sb, SECTION_ALIGN);
    if (rc < 0)
        section_file_close(f);
    else
        *out = f;
    return rc;
}

int section_file_open_damaged(struct io_fs *fs, const char *path, uint32_t kind, const uint8_t *segment_id,
                              unsigned flags, struct section_file **out, struct quire_error *err)
{
    struct section_file *f = calloc(1, sizeof *f);
    uint8_t *sb = memory_for_read(SECTION_ALIGN);
    int rc =
        f && sb ? fs_open(fs, path, flags, &f->file, err) : error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (rc == 0 && f->file->bytes >= SECTION_ALIGN && fs_read_exact(f->file, sb, SECTION_ALIGN, 0, NULL) == 0) {
        int right = check_header(f->file, sb, kind, segment_id, NULL);
        bool proved = right == 0 || right == QUIRE_ETRUNCATED || right == QUIRE_EOVERSIZED; /* by its checksum */
        uint32_t n = proved ? bytes_load_u32(sb + 40) : 0;
        for (uint32_t i = 0; i < n && i < SECTIONS_MAX; i++) {
            const struct section_entry entry = load_entry(sb, i);
            if (entry.offset % SECTION_ALIGN == 0 && entry.offset >= SECTION_ALIGN && entry.offset <= f->file->bytes &&
                entry.bytes <= f->file->bytes - entry.offset)
                f->entries[f->n_entries++] = entry;
        }
    }
    memory_read_end(sb, SECTION_ALIGN);
    assert(rc < 0 || f->n_entries <= SECTIONS_MAX);
    if (rc < 0)
        section_file_close(f);
    else
        *out = f;
    return rc;
}

void section_file_close(struct section_file *f)
{
    if (f) {
        fs_close(f->file);
        free(f);
    }
}

struct io_file *section_file_io(struct section_file *f)
{
    return f->file;
}

const uint8_t *section_file_segment_id(const struct section_file *f)
{
    return f->segment_id;
}

uint64_t section_file_bytes(const struct section_file *f)
{
    return f->file->bytes;
}

const struct section_entry *section_find(const struct section_file *f, uint32_t id)
{
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (f->entries[i].id == id)
            return &f->entries[i];
    return NULL;
}

uint32_t section_count(const struct section_file *f)
{
    return f->n_entries;
}

const struct section_entry *section_at(const struct section_file *f, uint32_t index)
{
    return index < f->n_entries ? &f->entries[index] : NULL;
}

/* Reads [offset, offset + bytes) of the file in pieces through an aligned bounce buffer; each piece goes to `take`. */
static int read_pieces(struct section_file *f, uint64_t offset, uint64_t bytes,
                       void (*take)(void *context, const uint8_t *piece, size_t n), void *context,
                       struct quire_error *err)
{
    assert(offset <= f->file->bytes && bytes <= f->file->bytes - offset);
    if (bytes == 0)
        return 0;
    const uint64_t span = offset % SECTION_ALIGN + bytes;
    const size_t room = (size_t)(span < BUFFER_BYTES ? span : BUFFER_BYTES);
    uint8_t *bounce = memory_for_read(room);
    int rc = bounce ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to read %s", f->file->path);
    while (rc == 0 && bytes > 0) {
        uint64_t begin = offset / SECTION_ALIGN * SECTION_ALIGN, skip = offset - begin;
        uint64_t want = skip + bytes < room ? skip + bytes : room;
        /* a file's size is a multiple of a page, so whole pages are there */
        rc = fs_read_exact(f->file, bounce, (size_t)((want + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN), begin,
                           err);
        if (rc < 0)
            break;
        assert(want > skip && want - skip <= bytes);
        take(context, bounce + skip, (size_t)(want - skip));
        offset += want - skip;
        bytes -= want - skip;
    }
    memory_read_end(bounce, room);
    return rc;
}

struct sink {
    uint8_t *to;        /* NULL: hash only */
    XXH3_state_t *hash; /* NULL: copy only */
};

static void take_piece(void *context, const uint8_t *piece, size_t n)
{
    struct sink *sink = context;
    if (sink->hash)
        XXH3_64bits_update(sink->hash, piece, n);
    if (sink->to) {
        memcpy(sink->to, piece, n);
        sink->to += n;
    }
}

static int read_checked(struct section_file *f, const struct section_entry *entry, uint8_t *to, struct quire_error *err)
{
    struct sink sink = {to, NULL};
    bool checked = !(entry->flags & SECTION_SELF_CHECKED);
    if (checked && !(sink.hash = XXH3_createState()))
        return error_set(err, QUIRE_ENOMEM, "no memory to read %s", f->file->path);
    if (checked)
        XXH3_64bits_reset(sink.hash);
    int rc = read_pieces(f, entry->offset, entry->bytes, take_piece, &sink, err);
    if (rc == 0 && checked && XXH3_64bits_digest(sink.hash) != entry->checksum)
        rc = error_set(err, QUIRE_ECORRUPT,
                       "%s: section %u at offset %llu is damaged: checksum %016llx, expected %016llx", f->file->path,
                       entry->id, (unsigned long long)entry->offset, (unsigned long long)XXH3_64bits_digest(sink.hash),
                       (unsigned long long)entry->checksum);
    XXH3_freeState(sink.hash);
    return rc;
}

int section_load(struct section_file *f, const struct section_entry *entry, void *buffer, struct quire_error *err)
{
    return read_checked(f, entry, buffer, err);
}

int section_verify(struct section_file *f, const struct section_entry *entry, struct quire_error *err)
{
    return read_checked(f, entry, NULL, err);
}

int section_read(struct section_file *f, const struct section_entry *entry, uint64_t offset, void *buffer, size_t bytes,
                 struct quire_error *err)
{
    struct sink sink = {buffer, NULL};
    if (offset > entry->bytes || bytes > entry->bytes - offset)
        return error_set(err, QUIRE_ERANGE, "%s: %zu bytes at %llu of section %u, which has %llu", f->file->path, bytes,
                         (unsigned long long)offset, entry->id, (unsigned long long)entry->bytes);
    return read_pieces(f, entry->offset + offset, bytes, take_piece, &sink, err);
}

struct gap {
    uint64_t at;    /* offset in the file of the piece that comes next */
    uint64_t wrong; /* of the first byte that is not zero; UINT64_MAX: there is none */
};

static void take_gap(void *context, const uint8_t *piece, size_t n)
{
    struct gap *gap = context;
    for (size_t i = 0; i < n && gap->wrong == UINT64_MAX; i++)
        if (piece[i])
            gap->wrong = gap->at + i;
    gap->at += n;
}

int section_verify_gaps(struct section_file *f, struct quire_error *err)
{
    uint64_t end = SECTION_ALIGN;
    int rc = 0;
    for (uint32_t i = 0; i <= f->n_entries && rc == 0; i++) {
        uint64_t next = i < f->n_entries ? f->entries[i].offset : f->file->bytes;
        struct gap gap = {end, UINT64_MAX};
        assert(next >= end);
        rc = read_pieces(f, end, next - end, take_gap, &gap, err);
        if (rc == 0 && gap.wrong != UINT64_MAX)
            rc = error_set(err, QUIRE_ECORRUPT, "%s is damaged: the byte at offset %llu is of no section and not 0",
                           f->file->path, (unsigned long long)gap.wrong);
        end = i < f->n_entries ? f->entries[i].offset + f->entries[i].bytes : end;
    }
    return rc;
}
