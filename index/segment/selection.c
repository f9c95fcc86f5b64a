/*
 * selection.c - making selections, keeping them for who asks again, and asking them.
 *
 * The cache of a segment holds the selections that were asked for last, CACHE_BYTES of memory at most and one at least:
 * a tenant or a filter is rarely asked for once. Its lock is held for a look along a short list, never over the making:
 * two lanes that miss at once both make theirs, and the second finds the first one's.
 *
 * Blocks that hold rows are counted in reads as well: blocks with little between them are read as one run, since what
 * lies between costs less than a read of its own (RUN_GAP_BYTES; docs/performance.md has the device's prices).
 */
#include "index/segment/selection.h"
#include "index/attribute/filter.h"
#include "index/column/row_set.h"
#include "index/segment/segment_priv.h"
#include "index/vector/row_place.h"
#include "io/error.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CACHE_BYTES     (8u << 20)
#define CACHE_ENTRIES   256u
#define ROWS_PER_NUMBER 32u /* a row number is as long as so many bits of a bitmap */
#define READ_ROWS       1024u
#define NAME_SCOPE      1
#define NAME_FILTER     2

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Room for n rows: as a list or a bitmap, whichever is shorter. */
static bool reserve(struct selection *s)
{
    bool few = s->n <= s->n_rows / ROWS_PER_NUMBER;
    size_t bytes = few ? sizeof *s->rows * s->n : (size_t)(s->n_rows + 63) / 64 * 8;
    if (few)
        s->rows = malloc(bytes + 1);
    else
        s->bits = calloc(bytes, 1);
    s->all_bytes += bytes;
    return s->rows || s->bits;
}

/* Marks the blocks of rows[0..n), which ascend. */
static void mark_blocks(struct selection *s, const uint32_t *rows, uint32_t n, uint32_t per_block)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t block = rows[i] / per_block;
        uint64_t end = (block + 1ull) * per_block; /* the last block may end behind what a row number can say */
        bitmap_add(s->blocks, block);
        while (i < n && rows[i] < end)
            i++;
    }
}

bool selection_next_run(const struct selection *s, const struct segment *segment, uint32_t from, struct block_run *run)
{
    const struct segment_params *p = &segment->params;
    uint32_t gap = RUN_GAP_BYTES / p->block_bytes, most = RUN_BYTES_MAX / p->block_bytes, block = from;
    while (block < p->n_blocks && !bitmap_has(s->blocks, block))
        block += block % 8 == 0 && s->blocks[block / 8] == 0 ? 8 : 1;
    if (block >= p->n_blocks)
        return false;
    uint32_t last = block;
    for (uint32_t b = block + 1; b < p->n_blocks && b - last - 1 <= gap && b - block < most; b++)
        if (bitmap_has(s->blocks, b))
            last = b;
    *run = (struct block_run){block, last + 1 - block};
    assert(block >= from && last < p->n_blocks && (run->n <= most || run->n == 1));
    return true;
}

/* An empty selection of as many rows; `rows` where it is a list. */
static struct selection *make_empty(uint64_t n, uint64_t n_rows)
{
    struct selection *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->references, 1);
    s->n = n;
    s->n_rows = n_rows;
    s->all_bytes = sizeof *s;
    if (reserve(s))
        return s;
    selection_unref(s);
    return NULL;
}

/* What the segment's layout asks for besides the rows: blocks, cells, places in lists. */
static bool reserve_more(struct selection *s, const struct segment *segment)
{
    uint32_t n_blocks = segment->params.n_blocks, n_cells = segment->cells ? segment->cells->n : 0;
    s->blocks = calloc((n_blocks + 63u) / 64 * 8, 1);
    s->all_bytes += n_blocks / 8;
    if (n_cells) {
        s->cells = calloc((n_cells + 63u) / 64 * 8, 1);
        s->all_bytes += n_cells / 8;
    }
    if (segment->lists && segment->lists->guests) {
        s->places = make_empty(s->n, s->n_rows);
        s->all_bytes += s->places ? s->places->all_bytes : 0;
        return s->blocks && s->places;
    }
    return s->blocks && (s->cells || !n_cells);
}

/* Takes in numbers[0..n), the next rows, of which `before` came already. */
static void add_rows(struct selection *s, const struct segment *segment, const uint32_t *numbers, uint32_t n,
                     uint64_t before)
{
    uint32_t list;
    assert(n > 0 && before + n <= s->n && numbers[n - 1] < s->n_rows);
    mark_blocks(s, numbers, n, segment->params.slots_per_block);
    if (s->rows)
        memcpy(s->rows + before, numbers, sizeof *numbers * n);
    for (uint32_t i = 0; s->bits && i < n; i++)
        bitmap_add(s->bits, numbers[i]);
    for (uint32_t i = 0; s->cells && i < n; i++)
        bitmap_add(s->cells, segment->cells->of[numbers[i]]);
    for (uint32_t i = 0; s->places && i < n; i++) {
        uint32_t place = lists_place(segment->lists, numbers[i], &list);
        if (s->places->rows)
            s->places->rows[before + i] = place;
        else
            bitmap_add(s->places->bits, place);
    }
}

/* For n rows, which are to be added. NULL without memory. */
static struct selection *begin(const struct segment *segment, uint64_t n, bool residual)
{
    struct selection *s = make_empty(n, segment->params.rows);
    if (!s || !reserve_more(s, segment)) {
        selection_unref(s);
        return NULL;
    }
    s->residual = residual;
    return s;
}

/* All its rows have been added. */
static void finish(struct selection *s, const struct segment *segment)
{
    if (s->places && s->places->rows) {
        uint64_t places = row_set_order(s->places->rows, s->n);
        assert(places == s->n); /* each row has a place of its own */
    }
    for (struct block_run run = {0}; selection_next_run(s, segment, run.first + run.n, &run);) {
        s->n_runs++;
        s->run_blocks += run.n;
    }
    for (uint32_t i = 0; i < (segment->params.n_blocks + 7) / 8; i++)
        s->n_blocks += (uint32_t)__builtin_popcount(s->blocks[i]);
    assert(s->n_blocks <= s->run_blocks && s->n_runs <= s->n_blocks && (s->n_runs > 0) == (s->n > 0));
}

int selection_create(const struct segment *segment, const roaring_bitmap_t *rows, bool residual, struct selection **out)
{
    uint32_t numbers[READ_ROWS], n;
    uint64_t taken = 0;
    struct selection *s = begin(segment, roaring_bitmap_get_cardinality(rows), residual);
    if (!s)
        return QUIRE_ENOMEM;
    roaring_uint32_iterator_t at;
    roaring_init_iterator(rows, &at);
    for (; (n = roaring_read_uint32_iterator(&at, numbers, READ_ROWS)) > 0; taken += n)
        add_rows(s, segment, numbers, n, taken);
    assert(taken == s->n);
    finish(s, segment);
    *out = s;
    return 0;
}

int selection_create_rows(const struct segment *segment, const uint32_t *rows, uint64_t n, bool residual,
                          struct selection **out)
{
    struct selection *s = begin(segment, n, residual);
    if (!s)
        return QUIRE_ENOMEM;
    for (uint64_t at = 0; at < n; at += READ_ROWS)
        add_rows(s, segment, rows + at, n - at < READ_ROWS ? (uint32_t)(n - at) : READ_ROWS, at);
    finish(s, segment);
    *out = s;
    return 0;
}

int selection_create_bits(const struct segment *segment, const uint64_t *bits, struct selection **out)
{
    uint32_t numbers[READ_ROWS + 64], n = 0;
    uint64_t words = (segment->params.rows + 63) / 64, all = 0, taken = 0;
    for (uint64_t i = 0; i < words; i++)
        all += (uint64_t)__builtin_popcountll(bits[i]);
    struct selection *s = begin(segment, all, false);
    if (!s)
        return QUIRE_ENOMEM;
    for (uint64_t i = 0; i < words; i++) {
        for (uint64_t left = bits[i]; left; left &= left - 1)
            numbers[n++] = (uint32_t)(64 * i) + (uint32_t)__builtin_ctzll(left);
        if (n < READ_ROWS && i + 1 < words)
            continue;
        if (n > 0)
            add_rows(s, segment, numbers, n, taken);
        taken += n;
        n = 0;
    }
    assert(taken == s->n);
    finish(s, segment);
    *out = s;
    return 0;
}

int selection_without(const struct segment *segment, const struct selection *selection, const uint32_t *rows,
                      uint64_t n, struct selection **out)
{
    uint32_t numbers[READ_ROWS], n_numbers = 0, row;
    uint64_t left = selection->n, taken = 0, at = 0;
    for (uint64_t i = 0; i < n; i++)
        left -= selection_has(selection, rows[i]);
    struct selection *s = begin(segment, left, selection->residual);
    if (!s)
        return QUIRE_ENOMEM;
    for (struct selection_walk walk = selection_walk(selection, 0); selection_next(&walk, &row);) {
        while (at < n && rows[at] < row)
            at++;
        if (at < n && rows[at] == row)
            continue;
        numbers[n_numbers++] = row;
        if (n_numbers == READ_ROWS || taken + n_numbers == left) {
            add_rows(s, segment, numbers, n_numbers, taken);
            taken += n_numbers;
            n_numbers = 0;
        }
    }
    assert(taken == left && n_numbers == 0);
    finish(s, segment);
    *out = s;
    return 0;
}

static struct selection *selection_ref(struct selection *s)
{
    assert(atomic_load_explicit(&s->references, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
    return s;
}

void selection_unref(struct selection *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) != 1)
        return;
    free(s->rows);
    free(s->bits);
    free(s->blocks);
    free(s->cells);
    free(s->name);
    selection_unref(s->places);
    free(s);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

uint64_t selection_first(const struct selection *s, uint32_t row)
{
    return rows_place(s->rows, 0, s->n, row);
}

bool selection_has(const struct selection *s, uint32_t row)
{
    assert(row < s->n_rows && !s->bits != !s->rows);
    if (s->bits)
        return bitmap_has(s->bits, row);
    uint64_t at = selection_first(s, row);
    return at < s->n && s->rows[at] == row;
}

struct selection_walk selection_walk(const struct selection *s, uint32_t first)
{
    return (struct selection_walk){s, s->rows ? selection_first(s, first) : first};
}

bool selection_next(struct selection_walk *walk, uint32_t *row)
{
    const struct selection *s = walk->selection;
    if (s->rows) {
        if (walk->at == s->n)
            return false;
        *row = s->rows[walk->at++];
        return true;
    }
    while (walk->at < s->n_rows && !bitmap_has(s->bits, (uint32_t)walk->at))
        walk->at += walk->at % 8 == 0 && s->bits[walk->at / 8] == 0 ? 8 : 1;
    if (walk->at >= s->n_rows)
        return false;
    *row = (uint32_t)walk->at++;
    return true;
}

uint64_t selection_living(const struct selection *s, const uint8_t *dead)
{
    uint64_t n = s->n;
    if (!dead)
        return n;
    for (uint64_t i = 0; s->rows && i < s->n; i++)
        n -= bitmap_has_shared(dead, s->rows[i]);
    for (uint64_t at = 0; s->bits && at < (s->n_rows + 7) / 8; at++)
        n -= (uint64_t)__builtin_popcount((unsigned)s->bits[at] & __atomic_load_n(&dead[at], __ATOMIC_RELAXED));
    return n;
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

/* What tells selections of a segment apart: the tenants with their generations, and the expression. Whether it is
 * `residual` follows from these. NULL without memory. */
static char *make_name(const struct filter *filter, const struct tenant_scope *scope, uint32_t *n_bytes)
{
    uint32_t text_bytes = 0;
    const char *text = filter ? filter_text(filter, &text_bytes) : NULL;
    size_t bytes = 2 + text_bytes;
    for (uint32_t i = 0; scope && i < scope->n; i++)
        bytes += 8 + scope->tenants[i].bytes;
    char *name = malloc(bytes), *to = name;
    if (!name)
        return NULL;
    *to++ = (char)((scope ? NAME_SCOPE : 0) | (filter ? NAME_FILTER : 0));
    for (uint32_t i = 0; scope && i < scope->n; i++) {
        const struct grant *tenant = &scope->tenants[i];
        to = mempcpy(to, &tenant->bytes, 4);
        to = mempcpy(to, &tenant->generation, 4);
        to = mempcpy(to, tenant->name, tenant->bytes);
    }
    *to++ = 0; /* behind the tenants, of which none is empty */
    if (text_bytes)
        to = mempcpy(to, text, text_bytes);
    *n_bytes = (uint32_t)(to - name);
    assert(*n_bytes <= bytes);
    return name;
}

static struct selection *find_kept(struct segment_whole *segment, const char *name, uint32_t n_bytes, uint64_t hash)
{
    struct selection *found = NULL;
    pthread_mutex_lock(&segment->selections.mutex);
    for (struct selection *s = segment->selections.first; s && !found; s = s->next)
        if (s->hash == hash && s->name_bytes == n_bytes && memcmp(s->name, name, n_bytes) == 0) {
            s->used = ++segment->selections.clock;
            found = selection_ref(s);
        }
    pthread_mutex_unlock(&segment->selections.mutex);
    return found;
}

/* The one that was asked for longest ago; NULL: there is but one. Under the lock. */
static struct selection *take_oldest(struct segment_whole *segment)
{
    struct selection **oldest = NULL;
    if (!segment->selections.first || !segment->selections.first->next)
        return NULL;
    for (struct selection **at = &segment->selections.first; *at; at = &(*at)->next)
        if (!oldest || (*at)->used < (*oldest)->used)
            oldest = at;
    struct selection *s = *oldest;
    *oldest = s->next;
    assert(segment->selections.bytes >= s->all_bytes && segment->selections.n > 0);
    segment->selections.bytes -= s->all_bytes;
    segment->selections.n--;
    return s;
}

static void keep(struct segment_whole *segment, struct selection *s)
{
    struct selection *gone = NULL;
    pthread_mutex_lock(&segment->selections.mutex);
    assert(s->name && !s->next);
    s->used = ++segment->selections.clock;
    s->next = segment->selections.first;
    segment->selections.first = selection_ref(s);
    segment->selections.bytes += s->all_bytes;
    segment->selections.n++;
    while (segment->selections.bytes > CACHE_BYTES || segment->selections.n > CACHE_ENTRIES) {
        struct selection *oldest = take_oldest(segment);
        if (!oldest)
            break;
        oldest->next = gone;
        gone = oldest;
    }
    pthread_mutex_unlock(&segment->selections.mutex);
    while (gone) {
        struct selection *next = gone->next;
        selection_unref(gone);
        gone = next;
    }
}

void selections_fini(struct segment *of)
{
    struct segment_whole *segment = segment_whole(of);
    while (segment->selections.first) {
        struct selection *s = segment->selections.first;
        segment->selections.first = s->next;
        selection_unref(s);
    }
    pthread_mutex_destroy(&segment->selections.mutex);
}

/* ---- from columns ------------------------------------------------------------------------------------------------ */

/* Sets come from stored ones only: of CRoaring's functions that make or change one, version 0.2 does not look at what
 * its allocations give (row_set.h). */
static int all_rows(uint64_t n, roaring_bitmap_t **out)
{
    size_t words = (size_t)(n + 63) / 64;
    uint64_t *bits = malloc(words * sizeof *bits);
    if (!bits)
        return QUIRE_ENOMEM;
    memset(bits, 0xff, words * sizeof *bits);
    if (n % 64)
        bits[words - 1] = (1ull << n % 64) - 1;
    int rc = row_view_roaring(&(struct row_view){.bits = bits, .n = words}, out);
    free(bits);
    return rc;
}

static int copy_rows(const roaring_bitmap_t *rows, roaring_bitmap_t **out)
{
    uint64_t n = roaring_bitmap_get_cardinality(rows);
    uint32_t *numbers = malloc(sizeof *numbers * n + 1);
    if (!numbers)
        return QUIRE_ENOMEM;
    roaring_bitmap_to_uint32_array(rows, numbers);
    int rc = row_view_roaring(&(struct row_view){.rows = numbers, .n = n}, out);
    free(numbers);
    return rc;
}

/* A segment whose rows have neither attributes nor grants: a filter says the same of all of them, but for their
 * names. */
static int select_bare(const struct segment *segment, const struct filter *filter, const struct tenant_scope *scope,
                       const roaring_bitmap_t *keys, roaring_bitmap_t **rows, bool *residual)
{
    const struct filter_part *root = filter ? filter_root(filter) : NULL;
    bool any = !scope, required = false;
    for (uint32_t i = 0, n; filter && any && i < filter_n_fields(filter); i++) {
        filter_field(filter, i, &n, &required);
        any = !required;
    }
    bool named = any && filter && filter_asks_names(filter), only_named = named && keys && root->kind == FILTER_KEYS;
    any = any && (named || filter_matches(filter, NULL, 0, NULL, 0));
    *residual = named && !only_named;
    return !any         ? row_view_roaring(&(struct row_view){.n = 0}, rows)
           : only_named ? copy_rows(keys, rows)
                        : all_rows(segment->params.rows, rows);
}

static int select_rows(const struct segment *segment, const struct filter *filter, const struct tenant_scope *scope,
                       const roaring_bitmap_t *keys, roaring_bitmap_t **rows, bool *residual)
{
    roaring_bitmap_t *within = NULL;
    *residual = false;
    if (!segment->columns && !scope && segment->attributes) {
        /* of before there were columns: every row is to be asked about */
        *residual = true;
        return all_rows(segment->params.rows, rows);
    }
    if (!segment->columns)
        return select_bare(segment, filter, scope, keys, rows, residual);
    int rc = scope ? columns_scope(segment->columns, scope, &within) : 0;
    if (rc < 0 || !filter) {
        *rows = within;
        return rc;
    }
    rc = columns_select(segment->columns, filter, within, keys, rows, residual);
    if (within)
        roaring_bitmap_free(within);
    return rc;
}

int selection_of(struct segment *segment, struct filter *filter, const struct tenant_scope *scope,
                 const roaring_bitmap_t *keys, struct selection **out, struct quire_error *err)
{
    uint32_t n_bytes = 0;
    roaring_bitmap_t *rows = NULL;
    bool residual = false;
    char *name = make_name(filter, scope, &n_bytes);
    if (!name)
        return error_set(err, QUIRE_ENOMEM, "no memory to select rows");
    uint64_t hash = XXH3_64bits(name, n_bytes);
    struct selection *s = keys ? NULL : find_kept(segment_whole(segment), name, n_bytes, hash);
    int rc = 0;
    if (s)
        goto out;
    rc = select_rows(segment, filter, scope, keys, &rows, &residual);
    if (rc == 0)
        rc = selection_create(segment, rows, residual, &s);
    if (rows)
        roaring_bitmap_free(rows);
    if (rc < 0) {
        error_set(err, rc, "no memory to select rows");
        goto out;
    }
    if (!keys) {
        s->name = name;
        s->name_bytes = n_bytes;
        s->hash = hash;
        s->all_bytes += n_bytes;
        name = NULL;
        keep(segment_whole(segment), s);
    }
out:
    free(name);
    if (rc == 0)
        *out = s;
    return rc;
}
