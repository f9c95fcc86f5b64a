/*
 * segment_scan.c - all living rows of a segment, forward and blocking: for merges, checks and repairs; or some of them.
 *
 * Blocks are read a megabyte at a time and each is checked like those of a search. Attributes lie in the order of
 * rows, so their index and heap are read through windows that only move forward. Long keys lie in the order of the
 * build's input: a heap that is not too large is loaded whole when the first of them is met; of a larger one each such
 * key costs a read.
 *
 * Damage ends the scan with a sentence that names file and offset, or, where the caller takes such sentences, costs
 * what it hit: a block its rows, a key its row, a page of attributes or a record those attributes. A failed read of
 * many blocks is repeated block by block, so that a bad sector costs one.
 */
#include "index/build/merge_priv.h"
#include "index/search/search.h"
#include "index/segment/segment_view.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

#define READ_BYTES       (1u << 20)
#define INDEX_WINDOW     (64u << 10)
#define HEAP_WINDOW      (256u << 10)
#define KEYS_WHOLE_MAX   (64u << 20) /* a heap of keys up to this size is loaded whole */
#define KEY_WINDOW       4096u
#define NUMBER_KEY_BYTES 16u

/* A piece of a section in memory, which moves to what is asked for. */
struct window {
    struct section_file *file;
    uint64_t base, section_bytes; /* of the section, in the file */
    uint64_t at, bytes;           /* what is held: offset in the file, both multiples of 4096 */
    size_t least, capacity;
    bool whole; /* all of the section at once */
    uint8_t *buffer;
};

struct scan {
    struct segment *s;
    const uint8_t *dead;
    const uint32_t *rows; /* those that are wanted, ascending; NULL: all that are not dead */
    uint32_t n_rows, at_row;
    int (*visit)(void *context, const struct scanned_row *row);
    int (*visit_view)(void *context, const struct block_view *view); /* or NULL */
    void (*damaged)(void *context, const char *sentence);
    void *context;
    struct quire_error *err;
    uint8_t *blocks; /* READ_BYTES or one block */
    struct window attribute_index, attribute_heap, keys;
    float *rotated, *vector;
    uint64_t page; /* of the attribute index that was checked last */
    bool page_is_damaged;
    uint8_t number_key[NUMBER_KEY_BYTES];
};

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static int window_fill(struct window *w, uint64_t at, size_t bytes, struct quire_error *err)
{
    if (bytes > w->capacity) {
        uint8_t *more = memory_map_alone(bytes, 0);
        if (!more)
            return error_set(err, QUIRE_ENOMEM, "no memory for %zu bytes of %s", bytes, section_file_io(w->file)->path);
        memory_unmap(w->buffer, w->capacity);
        w->buffer = more;
        w->capacity = bytes;
    }
    w->bytes = 0;
    int rc = fs_read_exact(section_file_io(w->file), w->buffer, bytes, at, err);
    if (rc < 0)
        return rc;
    w->at = at;
    w->bytes = bytes;
    return 0;
}

static void window_fini(struct window *w)
{
    memory_unmap(w->buffer, w->capacity);
}

static uint64_t align_up(uint64_t offset)
{
    return (offset + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN;
}

/* To begin .. end of the file. A whole section that cannot be read is tried in pieces from then on. */
static int window_move(struct window *w, uint64_t begin, uint64_t end, struct quire_error *err)
{
    struct quire_error ignored;
    if (w->whole && window_fill(w, w->base, (size_t)align_up(w->section_bytes), &ignored) == 0)
        return 0;
    w->whole = false;
    uint64_t file_bytes = section_file_bytes(w->file), at = begin / SECTION_ALIGN * SECTION_ALIGN;
    uint64_t until = align_up(end);
    if (until < at + w->least)
        until = at + w->least < file_bytes ? at + w->least : file_bytes;
    return window_fill(w, at, (size_t)(until - at), err);
}

/* Bytes offset .. offset + bytes of the section; *out is valid until the next call. */
static int window_get(struct window *w, uint64_t offset, uint64_t bytes, const uint8_t **out, struct quire_error *err)
{
    if (offset > w->section_bytes || bytes > w->section_bytes - offset)
        return error_set(err, QUIRE_ECORRUPT, "%s: %llu bytes at offset %llu lie outside the section, which has %llu",
                         section_file_io(w->file)->path, (unsigned long long)bytes, (unsigned long long)offset,
                         (unsigned long long)w->section_bytes);
    uint64_t begin = w->base + offset, end = begin + bytes;
    if (begin < w->at || end > w->at + w->bytes || w->bytes == 0) {
        int rc = window_move(w, begin, end, err);
        if (rc < 0)
            return rc;
    }
    *out = w->buffer + (begin - w->at);
    return 0;
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* After damage that err tells of: tells the caller, who goes on without (0), or ends the scan. */
static int take_damage(struct scan *scan, int rc, const struct quire_error *err)
{
    bool is_damage = rc == QUIRE_ECORRUPT || rc == QUIRE_EVERSION || rc == QUIRE_EIO || rc == QUIRE_ESHORTREAD;
    if (scan->damaged && is_damage) {
        scan->damaged(scan->context, err->message);
        return 0;
    }
    if (scan->err)
        *scan->err = *err;
    return rc;
}

/* ---- keys and attributes ----------------------------------------------------------------------------------------- */

static int take_key(struct scan *scan, const struct block_view *view, uint32_t slot, struct scanned_row *row,
                    struct quire_error *err)
{
    struct block_key key;
    if (!view->keys) {
        row->key_bytes = search_number_key((uint32_t)row->id, scan->number_key);
        row->key = scan->number_key;
        return 0;
    }
    if (block_key(view, slot, &key) < 0)
        return error_set(err, QUIRE_ECORRUPT, "the keys of block %u of %s do not decode", view->number,
                         section_file_io(scan->s->blocks)->path);
    row->key = key.bytes;
    row->key_bytes = key.length;
    if (key.bytes)
        return 0;
    const struct segment *s = scan->s;
    const uint8_t *record;
    if (!s->keys) /* segment_options.rows_only */
        return error_set(err, QUIRE_ECORRUPT, "the key of row %u of %s is in a file that cannot be read", row->row,
                         s->info.path);
    int rc = window_get(&scan->keys, key.external_at, RECORD_HEADER_BYTES + (uint64_t)key.length, &record, err);
    if (rc < 0)
        return rc;
    if (bytes_load_u64(record) != format_record_checksum(record + RECORD_HEADER_BYTES, key.length, s->segment_id))
        return error_set(err, QUIRE_ECORRUPT, "the key of row %u of %s at offset %llu is damaged: wrong checksum",
                         row->row, section_file_io(s->keys)->path, (unsigned long long)(s->heap_at + key.external_at));
    row->key = record + RECORD_HEADER_BYTES;
    return 0;
}

/* The entry of a row in the attribute index; 0: none. A damaged page is told of once. */
static int attribute_entry(struct scan *scan, uint32_t row, uint64_t *out)
{
    const struct segment *s = scan->s;
    uint64_t page = row / ATTRIBUTES_PER_PAGE;
    const uint8_t *bytes;
    struct quire_error err = {0};
    bool is_new = page != scan->page;
    *out = 0;
    if (!is_new && scan->page_is_damaged)
        return 0;
    int rc = window_get(&scan->attribute_index, page * PAGE_BYTES, PAGE_BYTES, &bytes, &err);
    if (rc == 0 && is_new && !format_page_is_valid(bytes, page, s->segment_id))
        rc = error_set(
            &err, QUIRE_ECORRUPT,
            "page of %s at offset %llu is damaged: wrong checksum; it leads to the attributes of rows %llu to "
            "%llu",
            section_file_io(s->attributes)->path, (unsigned long long)(s->attribute_index_at + page * PAGE_BYTES),
            (unsigned long long)(page * ATTRIBUTES_PER_PAGE),
            (unsigned long long)((page + 1) * ATTRIBUTES_PER_PAGE - 1));
    scan->page = page;
    scan->page_is_damaged = rc < 0;
    if (rc < 0)
        return take_damage(scan, rc, &err);
    *out = bytes_load_u64(bytes + 8 * (size_t)(row % ATTRIBUTES_PER_PAGE));
    return 0;
}

static int take_attributes(struct scan *scan, struct scanned_row *row)
{
    const struct segment *s = scan->s;
    const uint8_t *record;
    uint64_t entry = 0;
    int rc = s->attributes ? attribute_entry(scan, row->row, &entry) : 0;
    if (rc < 0 || entry == 0)
        return rc;
    uint64_t at = (entry >> 24) - 1;
    uint32_t bytes = (uint32_t)(entry & 0xffffff);
    struct quire_error err = {0};
    rc = window_get(&scan->attribute_heap, at, RECORD_HEADER_BYTES + (uint64_t)bytes, &record, &err);
    if (rc == 0 && bytes_load_u64(record) != format_record_checksum(record + RECORD_HEADER_BYTES, bytes, s->segment_id))
        rc =
            error_set(&err, QUIRE_ECORRUPT, "the attributes of row %u of %s at offset %llu are damaged: wrong checksum",
                      row->row, section_file_io(s->attributes)->path, (unsigned long long)(s->attribute_heap_at + at));
    if (rc < 0)
        return take_damage(scan, rc, &err);
    row->attributes = (const char *)record + RECORD_HEADER_BYTES;
    row->attribute_bytes = bytes;
    return 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int visit_slot(struct scan *scan, const struct block_view *view, uint32_t slot)
{
    const struct segment *s = scan->s;
    const struct segment_params *p = &s->params;
    struct quire_error err = {0};
    struct scanned_row row = {.row = view->first_row + slot, .id = bytes_load_u32(view->ids + 4 * (size_t)slot)};
    int rc = take_key(scan, view, slot, &row, &err);
    if (rc < 0)
        return take_damage(scan, rc, &err);
    rc = take_attributes(scan, &row);
    if (rc < 0)
        return rc;
    const uint8_t *at = view->slots + (size_t)slot * p->slot_bytes;
    const uint8_t *factor = view->factors ? view->factors + (size_t)slot * p->factor_bytes : NULL;
    segment_slot_vector(s, view->number, at, factor, scan->rotated, scan->vector);
    row.vector = scan->vector;
    row.slot = at;
    row.factors = factor;
    return scan->visit(scan->context, &row);
}

/* Of rows that are asked for in ascending order. */
static bool is_wanted(struct scan *scan, uint32_t row)
{
    if (!scan->rows)
        return !scan->dead || !bitmap_has(scan->dead, row);
    while (scan->at_row < scan->n_rows && scan->rows[scan->at_row] < row)
        scan->at_row++;
    return scan->at_row < scan->n_rows && scan->rows[scan->at_row] == row;
}

static int visit_block(struct scan *scan, const uint8_t *bytes, uint32_t number)
{
    const struct segment *s = scan->s;
    struct block_view view;
    struct quire_error why = {0}, err = {0};
    int rc = block_open(bytes, &s->shape, number, s->segment_id, &view, &why);
    if (rc == 0 &&
        (view.first_row != number * s->params.slots_per_block || view.n_slots != format_block_rows(&s->params, number)))
        rc = error_set(&why, QUIRE_ECORRUPT, "it holds other rows");
    if (rc < 0) {
        error_set(&err, rc, "block %u of %s at offset %llu is damaged: %s", number, section_file_io(s->blocks)->path,
                  (unsigned long long)segment_block_offset(s, number), why.message);
        return take_damage(scan, rc, &err);
    }
    rc = scan->visit_view ? scan->visit_view(scan->context, &view) : 0;
    for (uint32_t slot = 0; rc == 0 && slot < view.n_slots; slot++)
        if (is_wanted(scan, view.first_row + slot))
            rc = visit_slot(scan, &view, slot);
    return rc;
}

static int read_blocks(struct scan *scan, uint32_t first, uint32_t n, struct quire_error *err)
{
    size_t bytes = (size_t)n * scan->s->params.block_bytes;
    return fs_read_exact(section_file_io(scan->s->blocks), scan->blocks, bytes, segment_block_offset(scan->s, first),
                         err);
}

/* Blocks that could not be read together, one by one. */
static int visit_singly(struct scan *scan, uint32_t first, uint32_t n)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        struct quire_error why = {0}, err = {0};
        rc = read_blocks(scan, first + i, 1, &why);
        if (rc == 0) {
            rc = visit_block(scan, scan->blocks, first + i);
            continue;
        }
        error_set(&err, rc, "block %u of %s cannot be read: %s", first + i, section_file_io(scan->s->blocks)->path,
                  why.message);
        rc = take_damage(scan, rc, &err);
    }
    return rc;
}

static int visit_all(struct scan *scan)
{
    const struct segment_params *p = &scan->s->params;
    uint32_t most = p->block_bytes < READ_BYTES ? READ_BYTES / p->block_bytes : 1;
    int rc = 0;
    for (uint32_t at = 0; rc == 0 && at < p->n_blocks;) {
        uint32_t n = p->n_blocks - at < most ? p->n_blocks - at : most;
        struct quire_error err = {0};
        if (read_blocks(scan, at, n, &err) < 0)
            rc = visit_singly(scan, at, n);
        else
            for (uint32_t i = 0; rc == 0 && i < n; i++)
                rc = visit_block(scan, scan->blocks + (size_t)i * p->block_bytes, at + i);
        at += n;
    }
    return rc;
}

/* The blocks of the rows that are wanted, each once. */
static int visit_some(struct scan *scan)
{
    const struct segment_params *p = &scan->s->params;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < scan->n_rows;) {
        uint32_t block = scan->rows[i] / p->slots_per_block;
        rc = block < p->n_blocks ? visit_singly(scan, block, 1) : 0;
        while (i < scan->n_rows && scan->rows[i] / p->slots_per_block == block)
            i++;
    }
    return rc;
}

/* Makes what is needed, and runs the scan. */
static int run(struct scan *wanted, struct segment *segment)
{
    const struct segment *s = segment;
    const struct segment_params *p = &s->params;
    uint64_t index_bytes = (p->rows + ATTRIBUTES_PER_PAGE - 1) / ATTRIBUTES_PER_PAGE * (uint64_t)PAGE_BYTES;
    size_t blocks_bytes = p->block_bytes > READ_BYTES ? p->block_bytes : READ_BYTES;
    struct scan scan = *wanted;
    scan.s = segment;
    scan.blocks = memory_map_alone(blocks_bytes, 0);
    scan.keys =
        (struct window){.file = s->keys, .base = s->heap_at, .section_bytes = s->heap_bytes, .least = KEY_WINDOW};
    scan.attribute_index = (struct window){s->attributes, s->attribute_index_at, index_bytes, .least = INDEX_WINDOW};
    scan.attribute_heap =
        (struct window){s->attributes, s->attribute_heap_at, s->attribute_heap_bytes, .least = HEAP_WINDOW};
    scan.rotated = malloc(sizeof(float) * p->code_dim);
    scan.vector = malloc(sizeof(float) * p->code_dim);
    scan.page = UINT64_MAX;
    scan.keys.whole = !scan.rows && s->heap_bytes <= KEYS_WHOLE_MAX;
    if (scan.err)
        memset(scan.err, 0, sizeof *scan.err);
    int rc = !scan.blocks || !scan.rotated || !scan.vector
                 ? error_set(scan.err, QUIRE_ENOMEM, "no memory to read %s", s->info.path)
             : scan.rows ? visit_some(&scan)
                         : visit_all(&scan);
    memory_unmap(scan.blocks, blocks_bytes);
    window_fini(&scan.keys);
    window_fini(&scan.attribute_index);
    window_fini(&scan.attribute_heap);
    free(scan.rotated);
    free(scan.vector);
    return rc;
}

int segment_scan_blocks(struct segment *segment, const uint8_t *dead,
                        int (*visit)(void *context, const struct scanned_row *row),
                        int (*visit_view)(void *context, const struct block_view *view),
                        void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err)
{
    struct scan scan = {
        .dead = dead, .visit = visit, .visit_view = visit_view, .damaged = damaged, .context = context, .err = err};
    return run(&scan, segment);
}

int segment_scan(struct segment *segment, const uint8_t *dead,
                 int (*visit)(void *context, const struct scanned_row *row),
                 void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err)
{
    return segment_scan_blocks(segment, dead, visit, NULL, damaged, context, err);
}

int segment_scan_rows(struct segment *segment, const uint32_t *rows, uint32_t n,
                      int (*visit)(void *context, const struct scanned_row *row),
                      void (*damaged)(void *context, const char *sentence), void *context, struct quire_error *err)
{
    struct scan scan = {.rows = rows, .n_rows = n, .visit = visit, .damaged = damaged, .context = context, .err = err};
    return n ? run(&scan, segment) : 0;
}
