/*
 * part.c - tombstones, the key filter and the attributed rows of a sealed segment.
 *
 * The filter is a split block Bloom filter (Putze, Sanders, Singler 2007): a key sets one bit in each of the eight
 * words of one 32-byte block, so that a look-up is one cache line. It is made when the part is opened, from the
 * hashes that the pages of the key table hold anyway: 12 bytes per row, read forward, instead of a file of its own
 * that could be wrong. Segments whose keys are row numbers need none.
 *
 * Which rows have attributes is learnt in the same way, 8 bytes a row, so that a count of them can be kept while rows
 * die (collection_attributes.c). A text may be grants alone: then it is just as long as those, which columns know.
 *
 * Rows that die are logged for who copies tombstones meanwhile, under the lock under which they die.
 *
 * While a journal is replayed the segment may not even exist any more (a later record merges it away), so tombstones
 * are collected in a bitmap that grows; opening checks them against the number of rows.
 */
#include "index/collection/part.h"
#include "index/attribute/grants.h"
#include "index/collection/lineage.h"
#include "index/collection/part_numbers.h"
#include "index/column/columns.h"
#include "index/column/row_set.h"
#include "index/segment/segment_view.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define FILTER_WORDS      8u  /* of a block */
#define FILTER_BLOCK_ROWS 25u /* rows that share a block: 10 bits each */
#define PAGES_AT_ONCE     256u
#define BITMAP_START      1024u
#define READ_ROWS         1024u /* of a set at a time */

int part_create(uint64_t uid, struct part **out, struct quire_error *err)
{
    struct part *part = calloc(1, sizeof *part);
    if (!part)
        return error_set(err, QUIRE_ENOMEM, "no memory for a segment's tombstones");
    atomic_init(&part->references, 1);
    part->uid = uid;
    *out = part;
    return 0;
}

struct part *part_ref(struct part *part)
{
    unsigned before = atomic_fetch_add_explicit(&part->references, 1, memory_order_relaxed);
    assert(before > 0);
    return part;
}

void part_unref(struct part *part)
{
    unsigned before = part ? atomic_fetch_sub_explicit(&part->references, 1, memory_order_acq_rel) : 0;
    assert(!part || before > 0);
    if (before != 1)
        return;
    assert(!part->logs);
    if (part->segment)
        segment_retire(part->segment);
    if (part->gone)
        part->gone(part->context, part);
    else
        part_free(part);
}

void part_free(struct part *part)
{
    segment_unref(part->segment);
    part_rows_free(part->attributed);
    part_numbers_free(part->numbers);
    lineage_origins_unref(part->origins);
    free(part->filter);
    free(part->dead);
    free(part);
}

/* ---- logs -------------------------------------------------------------------------------------------------------- */

void part_dead_rows_free(struct dead_rows *rows)
{
    while (rows) {
        struct dead_rows *next = rows->next;
        free(rows);
        rows = next;
    }
}

void part_log_begin(struct part *part, struct part_log *log)
{
    *log = (struct part_log){.next = part->logs};
    part->logs = log;
}

void part_log_end(struct part *part, struct part_log *log)
{
    struct part_log **at = &part->logs;
    while (*at != log)
        at = &(*at)->next;
    *at = log->next;
    log->next = NULL;
}

struct dead_rows *part_log_take(struct part_log *log)
{
    struct dead_rows *rows = log->first;
    log->first = log->last = NULL;
    log->n = 0;
    return rows;
}

static void log_dead(struct part_log *log, uint32_t row)
{
    if (!log->last || log->last->n == DEAD_ROWS) {
        struct dead_rows *more = malloc(sizeof *more);
        if (!more) {
            log->failed = true;
            return;
        }
        more->next = NULL;
        more->n = 0;
        if (log->last)
            log->last->next = more;
        else
            log->first = more;
        log->last = more;
    }
    log->last->rows[log->last->n++] = row;
    log->n++;
}

/* ---- tombstones -------------------------------------------------------------------------------------------------- */

static int reserve_rows(struct part *part, uint64_t rows)
{
    uint64_t capacity = part->dead_capacity ? part->dead_capacity : BITMAP_START;
    assert(!part->segment || part->dead_end <= rows); /* whoever reads it while it is open does not see it move */
    while (capacity < rows)
        capacity *= 2;
    if (capacity == part->dead_capacity)
        return 0;
    uint8_t *bigger = calloc(capacity / 8, 1); /* a number far out costs address space only */
    if (!bigger)
        return QUIRE_ENOMEM;
    if (part->dead)
        memcpy(bigger, part->dead, part->dead_capacity / 8);
    free(part->dead);
    part->dead = bigger;
    part->dead_capacity = capacity;
    return 0;
}

int part_kill(struct part *part, uint32_t row)
{
    if (row >= part->dead_capacity) {
        if (part->segment)
            return QUIRE_ERANGE; /* the bitmap of an open one has space for all rows and does not move */
        if (reserve_rows(part, (uint64_t)row + 1) < 0)
            return QUIRE_ENOMEM;
    }
    if (!part->segment && row >= part->dead_end)
        part->dead_end = (uint64_t)row + 1;
    if (bitmap_add_shared(part->dead, row))
        return false;
    uint64_t n = atomic_fetch_add_explicit(&part->n_dead, 1, memory_order_relaxed) + 1;
    assert(n <= part->dead_capacity && bitmap_has_shared(part->dead, row));
    for (struct part_log *log = part->logs; log; log = log->next)
        log_dead(log, row);
    return true;
}

int part_reserve(struct part *part, uint64_t rows)
{
    assert(!part->segment);
    return reserve_rows(part, rows);
}

bool part_is_dead(const struct part *part, uint32_t row)
{
    return row < part->dead_capacity && bitmap_has_shared(part->dead, row);
}

uint64_t part_living(const struct part *part)
{
    if (!part->segment)
        return 0;
    assert(atomic_load_explicit(&part->n_dead, memory_order_relaxed) <= segment_info(part->segment)->rows);
    return segment_info(part->segment)->rows - atomic_load_explicit(&part->n_dead, memory_order_relaxed);
}

/* ---- the filter -------------------------------------------------------------------------------------------------- */

/* The bit of a hash in word `i` of its block. */
static uint32_t filter_bit(uint64_t hash, unsigned i)
{
    static const uint32_t odd[FILTER_WORDS] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                                               0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};
    return 1u << ((uint32_t)hash * odd[i] >> 27);
}

static uint32_t *filter_block(uint64_t *filter, uint64_t blocks, uint64_t hash)
{
    return (uint32_t *)(void *)filter + FILTER_WORDS * (((hash >> 32) * blocks) >> 32);
}

bool part_may_have(const struct part *part, const void *key, uint32_t key_bytes)
{
    if (!part->filter)
        return true;
    uint64_t hash = format_key_hash(key, key_bytes);
    const uint32_t *block = filter_block(part->filter, part->filter_blocks, hash);
    bool all = true;
    for (unsigned i = 0; i < FILTER_WORDS; i++)
        all = all && (block[i] & filter_bit(hash, i));
    return all;
}

static int add_page(struct part *part, const uint8_t *page, uint64_t number, struct quire_error *err)
{
    const struct segment *s = part->segment;
    uint32_t n = bytes_load_u32(page);
    if (!format_page_is_valid(page, number, s->segment_id) || n > BUCKET_ENTRIES_MAX)
        return error_set(err, QUIRE_ECORRUPT, "key page %llu of %s at offset %llu is damaged: wrong checksum",
                         (unsigned long long)number, section_file_io(s->keys)->path,
                         (unsigned long long)(s->buckets_at + number * PAGE_BYTES));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = bytes_load_u64(page + 8 + 8 * (size_t)i);
        uint32_t *block = filter_block(part->filter, part->filter_blocks, hash);
        for (unsigned k = 0; k < FILTER_WORDS; k++)
            block[k] |= filter_bit(hash, k);
    }
    return 0;
}

static int make_filter(struct part *part, struct quire_error *err)
{
    const struct segment *s = part->segment;
    uint32_t n = s->params.key_buckets;
    if (!s->params.user_keys)
        return 0;
    part->filter_blocks = s->params.rows / FILTER_BLOCK_ROWS + 1;
    /* NOLINTNEXTLINE(clang-analyzer-unix.MallocSizeof): words of 32 bits, aligned as those of 64 */
    part->filter = calloc(part->filter_blocks, FILTER_WORDS * sizeof(uint32_t));
    uint8_t *pages = memory_map_alone((size_t)PAGES_AT_ONCE * PAGE_BYTES, 0);
    int rc = part->filter && pages ? 0
                                   : error_set(err, QUIRE_ENOMEM, "no memory for a filter of %llu keys",
                                               (unsigned long long)s->params.rows);
    for (uint32_t at = 0; at < n && rc == 0; at += PAGES_AT_ONCE) {
        uint32_t some = n - at < PAGES_AT_ONCE ? n - at : PAGES_AT_ONCE;
        rc = fs_read_exact(section_file_io(s->keys), pages, (size_t)some * PAGE_BYTES,
                           s->buckets_at + (uint64_t)at * PAGE_BYTES, err);
        for (uint32_t i = 0; i < some && rc == 0; i++)
            rc = add_page(part, pages + (size_t)i * PAGE_BYTES, at + i, err);
    }
    memory_unmap(pages, (size_t)PAGES_AT_ONCE * PAGE_BYTES);
    return rc;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* The bytes that each row's grants take in its text: 0 for a row without. *out NULL: no row has any; owned. */
static int measure_grants(const struct part *part, uint32_t **out)
{
    const struct columns *columns = part->segment->columns;
    struct grant tenant;
    uint64_t n;
    int rc = 0;
    *out = NULL;
    for (uint32_t i = 0; columns && rc == 0 && columns_tenant_at(columns, i, &tenant, &n); i++) {
        const struct tenant_scope scope = {.tenants = &tenant, .n = 1};
        roaring_bitmap_t *rows = NULL;
        if (!*out && !(*out = calloc(segment_info(part->segment)->rows, sizeof **out)))
            return QUIRE_ENOMEM;
        rc = columns_scope(columns, &scope, &rows);
        roaring_uint32_iterator_t *at = rc == 0 ? roaring_create_iterator(rows) : NULL;
        for (; at && at->has_value; roaring_advance_uint32_iterator(at)) {
            uint32_t *bytes = &(*out)[at->current_value];
            *bytes += (*bytes ? 0 : GRANTS_HEADER_BYTES) + GRANT_HEADER_BYTES + tenant.bytes;
        }
        rc = rc == 0 && !at ? QUIRE_ENOMEM : rc;
        if (at)
            roaring_free_uint32_iterator(at);
        part_rows_free(rows);
    }
    return rc;
}

/* Rows of one page of the index. One that is damaged counts for rows without: who asks for their texts is told. */
static void add_attributed(const struct segment *s, const uint8_t *page, uint64_t number, const uint32_t *grants,
                           uint64_t *bits)
{
    uint64_t first = number * ATTRIBUTES_PER_PAGE, rows = s->params.rows - first;
    uint32_t n = rows < ATTRIBUTES_PER_PAGE ? (uint32_t)rows : ATTRIBUTES_PER_PAGE;
    if (!format_page_is_valid(page, number, s->segment_id))
        return;
    for (uint32_t i = 0; i < n; i++)
        if ((bytes_load_u64(page + 8 * (size_t)i) & 0xffffff) > (grants ? grants[first + i] : 0))
            bits[(first + i) / 64] |= 1ull << (first + i) % 64;
}

/* As most segments have attributes for all rows or for none, those that are alike take no memory. */
static int keep_attributed(struct part *part, const uint64_t *bits, size_t words)
{
    uint64_t n = 0;
    for (size_t i = 0; i < words; i++)
        n += (uint64_t)__builtin_popcountll(bits[i]);
    part->all_attributed = n > 0 && n == segment_info(part->segment)->rows;
    return n == 0 || part->all_attributed
               ? 0
               : row_view_roaring(&(struct row_view){.bits = bits, .n = words}, &part->attributed);
}

static int find_attributed(struct part *part, struct quire_error *err)
{
    const struct segment *s = part->segment;
    uint64_t n = (s->params.rows + ATTRIBUTES_PER_PAGE - 1) / ATTRIBUTES_PER_PAGE;
    uint32_t *grants = NULL;
    if (!s->attributes)
        return 0;
    size_t words = (size_t)(s->params.rows + 63) / 64;
    uint64_t *bits = calloc(words, sizeof *bits);
    uint8_t *pages = memory_map_alone((size_t)PAGES_AT_ONCE * PAGE_BYTES, 0);
    int rc = bits && pages ? measure_grants(part, &grants) : QUIRE_ENOMEM;
    if (rc < 0)
        error_set(err, rc, "no memory to look for the attributes of %llu rows", (unsigned long long)s->params.rows);
    for (uint64_t at = 0; at < n && rc == 0; at += PAGES_AT_ONCE) {
        uint64_t some = n - at < PAGES_AT_ONCE ? n - at : PAGES_AT_ONCE;
        rc = fs_read_exact(section_file_io(s->attributes), pages, (size_t)some * PAGE_BYTES,
                           s->attribute_index_at + at * PAGE_BYTES, err);
        for (uint64_t i = 0; i < some && rc == 0; i++)
            add_attributed(s, pages + (size_t)i * PAGE_BYTES, at + i, grants, bits);
    }
    if (rc == 0 && (rc = keep_attributed(part, bits, words)) < 0)
        error_set(err, rc, "no memory to note which of %llu rows have attributes", (unsigned long long)s->params.rows);
    free(grants);
    free(bits);
    memory_unmap(pages, (size_t)PAGES_AT_ONCE * PAGE_BYTES);
    return rc;
}

bool part_has_attributes(const struct part *part, uint32_t row)
{
    return part->all_attributed || (part->attributed && roaring_bitmap_contains(part->attributed, row));
}

uint64_t part_attributed(const struct part *part)
{
    uint64_t n = part->all_attributed ? segment_info(part->segment)->rows
                 : part->attributed   ? roaring_bitmap_get_cardinality(part->attributed)
                                      : 0;
    if (n == 0 || atomic_load_explicit(&part->n_dead, memory_order_relaxed) == 0)
        return n;
    for (uint64_t row = 0; row < segment_info(part->segment)->rows; row++)
        n -= part_is_dead(part, (uint32_t)row) && part_has_attributes(part, (uint32_t)row);
    return n;
}

int part_open(struct part *part, const char *path, const struct segment_options *options, struct quire_error *err)
{
    assert(!part->segment && !part->filter);
    int rc = segment_open(path, options, &part->segment, err);
    if (rc < 0)
        return rc;
    uint64_t rows = segment_info(part->segment)->rows;
    if (part->dead_end > rows) /* tombstones that were collected before must be of rows that there are */
        rc = error_set(err, QUIRE_ECORRUPT, "row %llu of %s is said to be dead, but there are %llu rows",
                       (unsigned long long)(part->dead_end - 1), path, (unsigned long long)rows);
    if (rc == 0 && reserve_rows(part, rows) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the tombstones of %llu rows", (unsigned long long)rows);
    if (rc == 0)
        rc = make_filter(part, err);
    if (rc == 0)
        rc = find_attributed(part, err);
    if (rc == 0) {
        part->segment->dead = part->dead;
        return 0;
    }
    segment_unref(part->segment);
    part->segment = NULL;
    return rc;
}

uint64_t part_bytes(const struct part *part)
{
    uint64_t filter = part->filter ? part->filter_blocks * FILTER_WORDS * sizeof(uint32_t) : 0;
    uint64_t segment = part->segment ? segment_info(part->segment)->resident_bytes : 0;
    const struct columns *columns = part->segment ? part->segment->columns : NULL;
    uint64_t kept = columns ? columns_kept_bytes(columns) : 0;
    uint64_t attributed = part->attributed ? roaring_bitmap_portable_size_in_bytes(part->attributed) : 0;
    return sizeof *part + part->dead_capacity / 8 + filter + attributed + segment + kept +
           part_numbers_bytes(part->numbers);
}

void part_rows_free(roaring_bitmap_t *rows)
{
    if (rows)
        roaring_bitmap_free(rows);
}

/* ---- what scopes let be seen ------------------------------------------------------------------------------------- */

bool part_allows(const struct part *part, uint32_t row, const struct tenant_scope *scope)
{
    const struct columns *columns = part->segment->columns;
    if (!scope)
        return true;
    for (uint32_t i = 0; columns && i < scope->n; i++)
        if (columns_tenant_has(columns, &scope->tenants[i], row))
            return true;
    return false;
}

/* The set is made anew: to take rows out of it, CRoaring 0.2 needs memory, and aborts where there is none. */
static int remove_dead(roaring_bitmap_t **rows, const struct part *part, const uint8_t *dead)
{
    if (!dead && atomic_load_explicit(&part->n_dead, memory_order_relaxed) == 0)
        return 0;
    dead = dead ? dead : part->dead;
    size_t words = (size_t)(segment_info(part->segment)->rows + 63) / 64;
    uint64_t *bits = calloc(words, sizeof *bits);
    if (!bits)
        return QUIRE_ENOMEM;
    uint32_t numbers[READ_ROWS], n, n_dead = 0;
    roaring_uint32_iterator_t at;
    roaring_init_iterator(*rows, &at);
    while ((n = roaring_read_uint32_iterator(&at, numbers, READ_ROWS)) > 0)
        for (uint32_t i = 0; i < n; i++) {
            bool is_dead = bitmap_has_shared(dead, numbers[i]);
            n_dead += is_dead;
            bits[numbers[i] / 64] |= (uint64_t)!is_dead << numbers[i] % 64;
        }
    roaring_bitmap_t *living = NULL;
    int rc = n_dead == 0 ? 0 : row_view_roaring(&(struct row_view){.bits = bits, .n = words}, &living);
    free(bits);
    if (living) {
        part_rows_free(*rows);
        *rows = living;
    }
    return rc;
}

int part_scope_rows(const struct part *part, const struct tenant_scope *scope, const uint8_t *dead,
                    roaring_bitmap_t **out)
{
    const struct columns *columns = part->segment->columns;
    int rc = 0;
    *out = NULL;
    if (columns)
        rc = columns_scope(columns, scope, out);
    else if (!(*out = roaring_bitmap_create()))
        rc = QUIRE_ENOMEM;
    if (rc == 0 && !roaring_bitmap_is_empty(*out))
        rc = remove_dead(out, part, dead);
    if (rc < 0) {
        part_rows_free(*out);
        *out = NULL;
    }
    return rc;
}
