/*
 * document_scan.c - see document_scan.h.
 *
 * The file is read through a window of a megabyte or one document, whichever is more, at page boundaries, since it may
 * have been opened with O_DIRECT. A document is told by its checksum, not by where the last one ended: what follows
 * damage is found again.
 *
 * What is rescued keeps its place, so that entries need not be told; the header is written anew, without an end of
 * TTL: it is only used to tell when a segment's last document expires.
 */
#include "cache/document/document_log_priv.h"
#include "io/array.h"
#include "io/error.h"
#include "io/memory.h"
#include <string.h>

#define WINDOW_MIN (1u << 20)

static const uint8_t zeros[DOCUMENT_UNIT];

/* Puts bytes offset .. offset + n of the file, or as many as there are, into the window; *there: how many. */
static int slide(struct document_window *window, const struct io_file *file, uint64_t offset, size_t n, size_t *there,
                 struct quire_error *err)
{
    if (offset < window->begin || offset + n > window->end) {
        uint64_t begin = offset / LOG_PAGE * LOG_PAGE;
        size_t bytes = (size_t)((offset + n - begin + LOG_PAGE - 1) / LOG_PAGE * LOG_PAGE);
        bytes = bytes < WINDOW_MIN ? WINDOW_MIN : bytes;
        if (bytes > window->capacity) {
            memory_free(window->bytes);
            window->bytes = memory_aligned(LOG_PAGE, bytes);
            window->capacity = window->bytes ? bytes : 0;
            if (!window->bytes)
                return error_set(err, QUIRE_ENOMEM, "no memory to read %s: %zu bytes", file->path, bytes);
        }
        window->end = 0; /* until it is read */
        ssize_t got = file->fs->ops->read((struct io_file *)file, window->bytes, bytes, begin);
        if (got < 0)
            return error_set(err, (int)got, "read of %s at offset %llu: %s", file->path, (unsigned long long)begin,
                             quire_error_text((int)got));
        window->begin = begin;
        window->end = begin + (uint64_t)got;
    }
    uint64_t left = window->end > offset ? window->end - offset : 0;
    *there = left < n ? (size_t)left : n;
    return 0;
}

int document_check_at(struct document_window *window, const struct io_file *file, uint64_t limit, uint64_t offset,
                      struct document *document, struct quire_error *err)
{
    size_t there = 0, bytes;
    int rc = slide(window, file, offset, DOCUMENT_UNIT, &there, err);
    if (rc < 0 || there < DOCUMENT_UNIT)
        return rc;
    const uint8_t *at = window->bytes + (offset - window->begin);
    uint32_t length = document_peek(at);
    if (length == 0 || offset + length > limit) {
        window->damaged_units += memcmp(at, zeros, sizeof zeros) != 0;
        return 0;
    }
    rc = slide(window, file, offset, length, &there, err);
    if (rc < 0)
        return rc;
    bool whole = document_decode(window->bytes + (offset - window->begin), there, document, &bytes, NULL) == 0;
    assert(!whole || bytes == length);
    window->damaged_units += !whole;
    return whole;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

int document_scan(struct io_fs *fs, const char *path, uint32_t number,
                  int (*visit)(void *context, const struct document *document, uint32_t unit), void *context,
                  struct document_segment *out, struct quire_error *err)
{
    struct io_file *file = NULL;
    *out = (struct document_segment){0};
    int rc = fs_open(fs, path, FS_READ | FS_DIRECT, &file, err);
    if (rc == 0) {
        struct document_window window = {0};
        out->bytes = file->bytes;
        struct document_log_segment segment = {.number = number};
        size_t there = 0;
        rc = slide(&window, file, 0, LOG_HEADER_BYTES, &there, err);
        if (rc == 0)
            rc = document_log_header_decode(file->path, window.bytes, there, &segment, err);
        if (rc >= 0)
            out->header = (enum document_header)rc;
        rc = rc < 0 ? rc : 0;
        for (uint64_t offset = LOG_HEADER_BYTES; rc == 0 && offset < out->bytes;) {
            struct document found = {0};
            rc = document_check_at(&window, file, out->bytes, offset, &found, err);
            uint64_t next = offset + (rc > 0 ? found.packed.n_bytes : DOCUMENT_UNIT);
            if (rc > 0) {
                out->documents++;
                rc = visit(context, &found, (uint32_t)(offset / DOCUMENT_UNIT));
            }
            offset = next;
        }
        out->damaged_units = window.damaged_units;
        memory_free(window.bytes);
    }
    fs_close(file);
    return rc < 0 ? rc : 0;
}

/* ---- what is damage, and what a crash leaves --------------------------------------------------------------------- */

uint64_t document_extent_of(const struct document_extent *extents, uint32_t n, uint32_t segment)
{
    uint32_t at;
    array_find_first(at, 0, n, extents[at].segment < segment);
    assert(at <= n && (at == 0 || extents[at - 1].segment < segment));
    return at < n && extents[at].segment == segment ? extents[at].bytes : 0;
}

void document_judge(enum document_header header, bool has_documents, uint64_t durable_bytes,
                    struct document_judgement *out)
{
    bool was_whole = durable_bytes > 0, is_whole = header == DOCUMENT_HEADER_WHOLE;
    *out = (struct document_judgement){.use = DOCUMENTS_SERVED, .is_damaged = was_whole && !is_whole};
    if (is_whole)
        return;
    if (has_documents) {
        out->what = "its header is damaged; its documents, which prove themselves, are kept";
        return;
    }
    out->use = DOCUMENTS_NONE;
    if (was_whole) {
        out->what = "its header is damaged, and no document in it is whole";
    } else if (header != DOCUMENT_HEADER_NONE) {
        out->use = DOCUMENTS_OTHERS;
        out->what = "is not a segment of documents, and is left alone: move it out of the folder";
    }
}

bool document_was_durable(uint32_t unit, uint32_t bytes, uint64_t durable_bytes)
{
    return (uint64_t)unit * DOCUMENT_UNIT + bytes <= durable_bytes;
}

/* ---- saving what is whole ---------------------------------------------------------------------------------------- */

struct rescue {
    struct io_file *to;
    struct quire_error *err;
};

static int rescue_document(void *context, const struct document *document, uint32_t unit)
{
    const struct rescue *r = context;
    return fs_write_exact(r->to, document->packed.data, document->packed.n_bytes, (uint64_t)unit * DOCUMENT_UNIT,
                          r->err);
}

int document_rescue(struct io_fs *fs, const char *from, const char *to, uint32_t number, struct quire_error *err)
{
    struct document_log_segment segment = {.number = number, .class = LOG_CLASS_NEVER};
    struct document_segment found;
    struct rescue rescue = {.err = err};
    uint8_t header[LOG_HEADER_BYTES];
    document_log_header_encode(&segment, header);
    int rc = fs_open(fs, to, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &rescue.to, err);
    if (rc == 0)
        rc = fs_write_exact(rescue.to, header, sizeof header, 0, err);
    if (rc == 0)
        rc = document_scan(fs, from, number, rescue_document, &rescue, &found, err);
    if (rc == 0)
        rc = fs_sync(rescue.to, err);
    fs_close(rescue.to);
    return rc;
}
