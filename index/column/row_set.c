/*
 * row_set.c - sets of rows as they are stored: coding, checks, and adding them to a working set.
 *
 * A stored set has one of three forms, whichever is shortest:
 *   run      rows that follow one another: the first
 *   gaps     up to SET_GAPS_MAX rows: the way from each to the next, LEB128; 1 to 3 bytes a row
 *   Roaring  the portable format of Roaring bitmaps (Lemire and others, 2018, "Roaring Bitmaps: Implementation of an
 *            Optimized Software Library"): per 65,536 rows an array, a bitmap or runs
 * Gaps must be read from the start, which is why long sets are not kept so even where that would be shorter.
 *
 * The walk over a Roaring bitmap never reads behind its end, whatever it holds; row_set_is_valid checks the rest once,
 * when a file is opened: CRoaring's own reader checks sizes but neither order nor counts.
 *
 * A working set is a bitmap over a universe: all rows of the segment, or the few that are left. In the latter the sets
 * are looked up by the universe's rows, so that the cost follows the smaller of the two.
 */
#include "index/column/columns_priv.h"
#include "index/vector/row_place.h"
#include "index/vector/varint.h"
#include "io/array.h"
#include "io/bytes.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define SET_GAPS_MAX   1024u
#define CHUNK_ROWS     65536u
#define CHUNK_WORDS    (CHUNK_ROWS / 64)
#define CHUNK_BYTES    (CHUNK_ROWS / 8)
#define CHUNK_ARRAY    4096u  /* rows up to which a chunk is an array */
#define COOKIE_RUNS    12347u /* of the portable format; without runs the other */
#define COOKIE_NO_RUNS 12346u
#define OFFSETS_FROM   4u /* chunks from which on a bitmap with runs has offsets */

void column_buffer_put(struct column_buffer *b, const void *bytes, size_t n)
{
    b->failed = b->failed || !array_reserve(&b->at, &b->capacity, b->n + n);
    if (b->failed || n == 0)
        return;
    memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void column_buffer_put_u32(struct column_buffer *b, uint32_t number)
{
    uint8_t bytes[4];
    bytes_store_u32(bytes, number);
    column_buffer_put(b, bytes, sizeof bytes);
}

static void column_buffer_put_u16(struct column_buffer *b, uint32_t number)
{
    uint8_t bytes[2];
    bytes_store_u16(bytes, (uint16_t)number);
    column_buffer_put(b, bytes, sizeof bytes);
}

void column_buffer_put_varint(struct column_buffer *b, uint64_t number)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    column_buffer_put(b, bytes, varint_put(number, bytes));
}

/* ---- coding ------------------------------------------------------------------------------------------------------ */

/* The rows of one chunk of a view. */
struct chunk_view {
    uint32_t key, n, runs;
    const uint32_t *rows;
    const uint64_t *words;
    uint32_t n_words;
    bool no_runs;
};

/* The chunk of the view that begins at *at (a row's place, or a word's); false at the end. Empty ones are left out. */
static bool view_next(const struct row_view *view, uint64_t *at, struct chunk_view *out)
{
    *out = (struct chunk_view){.no_runs = view->no_runs};
    while (!view->rows && *at < view->n && out->n == 0) {
        uint64_t left = view->n - *at, before = 0;
        out->key = (uint32_t)(*at / CHUNK_WORDS);
        out->words = view->bits + *at;
        out->n_words = left < CHUNK_WORDS ? (uint32_t)left : CHUNK_WORDS;
        for (uint32_t i = 0; i < out->n_words; i++) {
            uint64_t word = out->words[i];
            out->n += (uint32_t)__builtin_popcountll(word);
            out->runs += (uint32_t)__builtin_popcountll(word & ~(word << 1 | before));
            before = word >> 63;
        }
        *at += out->n_words;
    }
    if (!view->rows || *at == view->n)
        return out->n > 0;
    out->rows = view->rows + *at;
    out->key = out->rows[0] / CHUNK_ROWS;
    assert(*at == 0 || out->rows[-1] < out->rows[0]);
    for (; *at < view->n && view->rows[*at] / CHUNK_ROWS == out->key; ++*at, out->n++)
        out->runs += out->n == 0 || out->rows[out->n] != out->rows[out->n - 1] + 1;
    return true;
}

static bool chunk_is_runs(const struct chunk_view *chunk)
{
    uint32_t other = chunk->n <= CHUNK_ARRAY ? 2 * chunk->n : CHUNK_BYTES;
    return !chunk->no_runs && 2 + 4 * chunk->runs < other;
}

static uint32_t chunk_bytes(const struct chunk_view *chunk)
{
    if (chunk_is_runs(chunk))
        return 2 + 4 * chunk->runs;
    return chunk->n <= CHUNK_ARRAY ? 2 * chunk->n : CHUNK_BYTES;
}

/* Walks the rows of a chunk, from 0 to 65,535; word and *at begin with 0. */
static bool chunk_next(const struct chunk_view *chunk, uint32_t *at, uint64_t *word, uint32_t *row)
{
    if (chunk->rows) {
        if (*at == chunk->n)
            return false;
        *row = chunk->rows[(*at)++] % CHUNK_ROWS;
        return true;
    }
    while (*word == 0) {
        if (*at == chunk->n_words)
            return false;
        *word = chunk->words[(*at)++];
    }
    *row = 64 * (*at - 1) + (uint32_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    return true;
}

static void put_runs(struct column_buffer *out, const struct chunk_view *chunk)
{
    uint32_t at = 0, row, first = 0, next = UINT32_MAX;
    uint64_t word = 0;
    column_buffer_put_u16(out, chunk->runs);
    while (chunk_next(chunk, &at, &word, &row)) {
        if (row != next) {
            if (next != UINT32_MAX)
                column_buffer_put_u16(out, next - 1 - first);
            column_buffer_put_u16(out, row);
            first = row;
        }
        next = row + 1;
    }
    column_buffer_put_u16(out, next - 1 - first);
}

static void put_chunk(struct column_buffer *out, const struct chunk_view *chunk)
{
    uint32_t at = 0, row;
    uint64_t word = 0;
    if (chunk_is_runs(chunk)) {
        put_runs(out, chunk);
    } else if (chunk->n <= CHUNK_ARRAY) {
        while (chunk_next(chunk, &at, &word, &row))
            column_buffer_put_u16(out, row);
    } else {
        uint8_t bits[CHUNK_BYTES] = {0};
        while (chunk_next(chunk, &at, &word, &row))
            bits[row / 8] = (uint8_t)(bits[row / 8] | 1u << row % 8);
        column_buffer_put(out, bits, sizeof bits);
    }
}

/* The portable format. */
static void put_roaring(struct column_buffer *out, const struct row_view *view)
{
    struct chunk_view chunk;
    uint32_t n = 0, runs = 0;
    for (uint64_t at = 0; view_next(view, &at, &chunk); n++)
        runs += chunk_is_runs(&chunk);
    uint32_t header = runs ? 4 + (n + 7) / 8 : 8;
    column_buffer_put_u32(out, runs ? COOKIE_RUNS | (n - 1) << 16 : COOKIE_NO_RUNS);
    if (!runs)
        column_buffer_put_u32(out, n);
    uint32_t i = 0;
    uint8_t flags = 0;
    for (uint64_t at = 0; runs && view_next(view, &at, &chunk); i++) {
        flags = (uint8_t)(flags | (unsigned)chunk_is_runs(&chunk) << i % 8);
        if (i % 8 == 7 || i == n - 1) {
            column_buffer_put(out, &flags, 1);
            flags = 0;
        }
    }
    for (uint64_t at = 0; view_next(view, &at, &chunk);) {
        column_buffer_put_u16(out, chunk.key);
        column_buffer_put_u16(out, chunk.n - 1);
    }
    uint32_t offset = header + 8 * n;
    for (uint64_t at = 0; (!runs || n >= OFFSETS_FROM) && view_next(view, &at, &chunk); offset += chunk_bytes(&chunk))
        column_buffer_put_u32(out, offset);
    for (uint64_t at = 0; view_next(view, &at, &chunk);)
        put_chunk(out, &chunk);
}

static uint64_t view_count(const struct row_view *view)
{
    uint64_t n = 0;
    for (uint64_t i = 0; !view->rows && i < view->n; i++)
        n += (uint64_t)__builtin_popcountll(view->bits[i]);
    return view->rows ? view->n : n;
}

/* Up to SET_GAPS_MAX rows of a view. */
static void view_rows(const struct row_view *view, uint32_t *rows)
{
    struct chunk_view chunk;
    uint32_t n = 0, row = 0;
    for (uint64_t at = 0; view_next(view, &at, &chunk);) {
        uint64_t word = 0;
        for (uint32_t i = 0; chunk_next(&chunk, &i, &word, &row);)
            rows[n++] = chunk.key * CHUNK_ROWS + row;
    }
}

static void put_gaps(struct column_buffer *out, const uint32_t *rows, uint32_t n)
{
    assert(n > 0 && n <= SET_GAPS_MAX);
    uint8_t bytes[SET_GAPS_MAX * VARINT_BYTES_MAX];
    uint32_t at = varint_put(rows[0], bytes); /* NOLINT(clang-analyzer-*): view_rows filled n of them */
    for (uint32_t i = 1; i < n; i++)
        at += varint_put(rows[i] - rows[i - 1] - 1, bytes + at); /* NOLINT(clang-analyzer-*): see above */
    column_buffer_put_varint(out, at);
    column_buffer_put(out, bytes, at);
}

static void put_form(struct column_buffer *out, uint64_t n, enum set_form form)
{
    column_buffer_put_varint(out, n << 2 | form);
}

/* Whether the rows follow one another; *first: the first. */
static bool view_is_run(const struct row_view *view, uint32_t *first)
{
    struct chunk_view chunk;
    uint64_t expected = UINT64_MAX;
    *first = 0;
    for (uint64_t at = 0; view_next(view, &at, &chunk);) {
        uint32_t i = 0, row = 0;
        uint64_t word = 0;
        if (chunk.runs > 1)
            return false;
        chunk_next(&chunk, &i, &word, &row);
        uint64_t here = (uint64_t)chunk.key * CHUNK_ROWS + row;
        if (expected == UINT64_MAX)
            *first = (uint32_t)here;
        else if (here != expected)
            return false;
        expected = here + chunk.n;
    }
    return true;
}

void row_set_put(struct column_buffer *out, const struct row_view *view)
{
    uint64_t n = view_count(view);
    assert(n <= UINT32_MAX);
    uint32_t first = 0, rows[SET_GAPS_MAX];
    if (view_is_run(view, &first)) {
        put_form(out, n, SET_RUN);
        column_buffer_put_varint(out, first);
        return;
    }
    struct column_buffer roaring = {0};
    size_t at = out->n;
    put_roaring(&roaring, view);
    if (n <= SET_GAPS_MAX) {
        view_rows(view, rows);
        put_form(out, n, SET_GAPS);
        put_gaps(out, rows, (uint32_t)n);
    }
    if (n > SET_GAPS_MAX || out->n - at > roaring.n + 2 * VARINT_BYTES_MAX) {
        out->n = at;
        put_form(out, n, SET_ROARING);
        column_buffer_put_varint(out, roaring.n);
        column_buffer_put(out, roaring.at, roaring.n);
    }
    out->failed |= roaring.failed;
    free(roaring.at);
}

/* Without runs: CRoaring 0.2 aborts where it has no memory for one that it reads. */
int row_view_roaring(const struct row_view *view, roaring_bitmap_t **out)
{
    const struct row_view plain = {.rows = view->rows, .bits = view->bits, .n = view->n, .no_runs = true};
    struct column_buffer bytes = {0};
    roaring_bitmap_t *made = NULL;
    put_roaring(&bytes, &plain);
    if (!bytes.failed)
        made = roaring_bitmap_portable_deserialize_safe((const char *)bytes.at, bytes.n);
    free(bytes.at);
    if (!made)
        return QUIRE_ENOMEM;
    *out = made;
    return 0;
}

uint64_t row_set_order(uint32_t *rows, uint64_t n)
{
    uint64_t kept = 0;
    array_sort_u32(rows, n);
    for (uint64_t i = 0; i < n; i++)
        if (kept == 0 || rows[i] != rows[kept - 1])
            rows[kept++] = rows[i];
    assert(kept <= n && (kept > 0) == (n > 0));
    return kept;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const uint8_t *row_set_parse(const uint8_t *at, const uint8_t *end, struct row_set *out)
{
    uint64_t head = 0, number = 0;
    const uint8_t *p = varint_get(at, end, &head);
    p = p ? varint_get(p, end, &number) : NULL;
    if (!p || head >> 2 > UINT32_MAX || number > UINT32_MAX || (head & 3) > SET_ROARING)
        return NULL;
    *out = (struct row_set){.form = (enum set_form)(head & 3), .n = (uint32_t)(head >> 2)};
    if (out->form == SET_RUN) {
        out->first = (uint32_t)number;
        return p;
    }
    if (number > (uint64_t)(end - p))
        return NULL;
    out->at = p;
    out->end = p + number;
    return out->end;
}

/* Up to 65,536 rows of a stored Roaring bitmap. */
enum chunk_kind { CHUNK_IS_ARRAY, CHUNK_IS_BITS, CHUNK_IS_RUNS };
struct chunk {
    enum chunk_kind kind;
    uint32_t base, n, runs;
    const uint8_t *at;
};
struct chunks {
    const uint8_t *start, *flags, *keys, *offsets, *at, *end; /* flags, offsets: NULL where there are none */
    uint32_t i, n;
};

static bool chunks_begin(struct chunks *c, const struct row_set *set)
{
    *c = (struct chunks){.start = set->at, .end = set->end};
    size_t bytes = (size_t)(set->end - set->at);
    if (bytes < 8)
        return false;
    uint32_t cookie = bytes_load_u32(set->at), header = 8;
    if ((cookie & 0xffff) == COOKIE_RUNS) {
        c->n = (cookie >> 16) + 1;
        c->flags = set->at + 4;
        header = 4 + (c->n + 7) / 8;
    } else if (cookie == COOKIE_NO_RUNS) {
        c->n = bytes_load_u32(set->at + 4);
    }
    bool offsets = !c->flags || c->n >= OFFSETS_FROM;
    if (c->n == 0 || c->n > CHUNK_ROWS || header + (offsets ? 8ull : 4ull) * c->n > bytes)
        return false;
    c->keys = set->at + header;
    c->offsets = offsets ? c->keys + 4 * (size_t)c->n : NULL;
    c->at = c->keys + (offsets ? 8 : 4) * (size_t)c->n;
    return true;
}

/* False at the end, or where the bytes end first. */
static bool chunks_next(struct chunks *c, struct chunk *out)
{
    if (c->i == c->n)
        return false;
    size_t left = (size_t)(c->end - c->at), bytes;
    bool runs = c->flags && c->flags[c->i / 8] >> c->i % 8 & 1;
    *out = (struct chunk){.base = (uint32_t)bytes_load_u16(c->keys + 4 * (size_t)c->i) * CHUNK_ROWS,
                          .n = bytes_load_u16(c->keys + 4 * (size_t)c->i + 2) + 1u,
                          .at = c->at};
    if (runs && left < 2)
        return false;
    if (runs) {
        out->kind = CHUNK_IS_RUNS;
        out->runs = bytes_load_u16(c->at);
        out->at = c->at + 2;
        bytes = 2 + 4 * (size_t)out->runs;
    } else {
        out->kind = out->n <= CHUNK_ARRAY ? CHUNK_IS_ARRAY : CHUNK_IS_BITS;
        bytes = out->kind == CHUNK_IS_ARRAY ? 2 * (size_t)out->n : CHUNK_BYTES;
    }
    if (bytes > left)
        return false;
    c->at += bytes;
    c->i++;
    return true;
}

/* The rows of a chunk ascend and are as many as it says; *last: the last of them. */
static bool chunk_is_valid(const struct chunk *c, uint32_t *last)
{
    uint32_t n = 0, next = 0;
    for (uint32_t i = 0; c->kind == CHUNK_IS_ARRAY && i < c->n; i++, n++) {
        uint32_t row = bytes_load_u16(c->at + 2 * (size_t)i);
        if (row < next)
            return false;
        next = row + 1;
    }
    for (uint32_t i = 0; c->kind == CHUNK_IS_RUNS && i < c->runs; i++) {
        uint32_t row = bytes_load_u16(c->at + 4 * (size_t)i), length = bytes_load_u16(c->at + 4 * (size_t)i + 2) + 1u;
        if (row < next || row + length > CHUNK_ROWS)
            return false;
        next = row + length;
        n += length;
    }
    for (uint32_t i = 0; c->kind == CHUNK_IS_BITS && i < CHUNK_WORDS; i++) {
        uint64_t word = bytes_load_u64(c->at + 8 * (size_t)i);
        n += (uint32_t)__builtin_popcountll(word);
        if (word)
            next = 64 * i + 64 - (uint32_t)__builtin_clzll(word);
    }
    *last = next - 1;
    return n == c->n;
}

static bool roaring_is_valid(const struct row_set *set, uint64_t n_rows)
{
    struct chunks chunks;
    struct chunk chunk;
    uint64_t n = 0, least = 0;
    if (!chunks_begin(&chunks, set))
        return false;
    while (chunks_next(&chunks, &chunk)) {
        uint32_t last = 0, i = chunks.i - 1;
        const uint8_t *begin = chunk.kind == CHUNK_IS_RUNS ? chunk.at - 2 : chunk.at;
        if (chunk.base < least || !chunk_is_valid(&chunk, &last) || (uint64_t)chunk.base + last >= n_rows)
            return false;
        if (chunks.offsets && bytes_load_u32(chunks.offsets + 4 * (size_t)i) != (uint64_t)(begin - chunks.start))
            return false;
        least = (uint64_t)chunk.base + CHUNK_ROWS;
        n += chunk.n;
    }
    return chunks.i == chunks.n && chunks.at == chunks.end && n == set->n;
}

bool row_set_is_valid(const struct row_set *set, uint64_t n_rows)
{
    if (set->form == SET_RUN)
        return (uint64_t)set->first + set->n <= n_rows && (set->n > 0 || set->first == 0);
    if (set->form == SET_ROARING)
        return roaring_is_valid(set, n_rows);
    const uint8_t *p = set->at;
    uint64_t next = 0, gap = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        p = varint_get(p, set->end, &gap);
        if (!p || gap > UINT32_MAX)
            return false;
        next += gap + 1;
        if (next > n_rows)
            return false;
    }
    return p == set->end && set->n > 0 && set->n <= SET_GAPS_MAX;
}

static void chunk_rows(const struct chunk *c, uint32_t *rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; c->kind == CHUNK_IS_ARRAY && i < c->n; i++)
        rows[n++] = c->base + bytes_load_u16(c->at + 2 * (size_t)i);
    for (uint32_t i = 0; c->kind == CHUNK_IS_RUNS && i < c->runs; i++) {
        uint32_t row = bytes_load_u16(c->at + 4 * (size_t)i), last = row + bytes_load_u16(c->at + 4 * (size_t)i + 2);
        for (; row <= last; row++)
            rows[n++] = c->base + row;
    }
    for (uint32_t i = 0; c->kind == CHUNK_IS_BITS && i < CHUNK_WORDS; i++)
        for (uint64_t word = bytes_load_u64(c->at + 8 * (size_t)i); word; word &= word - 1)
            rows[n++] = c->base + 64 * i + (uint32_t)__builtin_ctzll(word);
}

/* Of gaps: the row behind `next` rows; advances. */
static uint32_t gaps_next(const uint8_t **at, const uint8_t *end, uint64_t *next)
{
    uint64_t gap = 0;
    *at = varint_get(*at, end, &gap);
    assert(*at); /* row_set_is_valid */
    uint64_t row = *next + gap;
    *next = row + 1;
    return (uint32_t)row;
}

void row_set_rows(const struct row_set *set, uint32_t *rows)
{
    struct chunks chunks;
    struct chunk chunk;
    uint64_t next = 0;
    const uint8_t *at = set->at;
    for (uint32_t i = 0; set->form != SET_ROARING && i < set->n; i++)
        rows[i] = set->form == SET_RUN ? set->first + i : gaps_next(&at, set->end, &next);
    if (set->form == SET_ROARING && chunks_begin(&chunks, set))
        for (; chunks_next(&chunks, &chunk); rows += chunk.n)
            chunk_rows(&chunk, rows);
}

static bool chunk_has(const struct chunk *c, uint32_t row)
{
    uint32_t low = 0, high = c->kind == CHUNK_IS_RUNS ? c->runs : c->n, step = c->kind == CHUNK_IS_RUNS ? 4 : 2;
    if (c->kind == CHUNK_IS_BITS)
        return c->at[row / 8] >> row % 8 & 1;
    while (low < high) { /* the first that begins behind it */
        uint32_t middle = low + (high - low) / 2;
        if (bytes_load_u16(c->at + (size_t)step * middle) <= row)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    const uint8_t *found = c->at + (size_t)step * (low - 1);
    uint32_t length = c->kind == CHUNK_IS_RUNS ? bytes_load_u16(found + 2) : 0;
    return row - bytes_load_u16(found) <= length;
}

bool row_set_has(const struct row_set *set, uint32_t row)
{
    struct universe one = {&row, 1};
    uint64_t bits = 0;
    row_set_add(set, &one, &bits);
    return bits != 0;
}

/* ---- working sets ------------------------------------------------------------------------------------------------ */

static void bits_add(uint64_t *bits, uint64_t i)
{
    bits[i / 64] |= 1ull << i % 64;
}

static void bits_add_range(uint64_t *bits, uint64_t from, uint64_t to)
{
    for (; from < to && from % 64; from++)
        bits_add(bits, from);
    for (; from + 64 <= to; from += 64)
        bits[from / 64] = UINT64_MAX;
    for (; from < to; from++)
        bits_add(bits, from);
}

static void add_gaps(const struct row_set *set, const struct universe *u, uint64_t *bits)
{
    const uint8_t *at = set->at;
    uint64_t next = 0, place = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t row = gaps_next(&at, set->end, &next);
        if (u->rows) {
            place = rows_place(u->rows, place, u->n, row);
            if (place == u->n)
                return;
            if (u->rows[place] == row)
                bits_add(bits, place);
        } else
            bits_add(bits, row);
    }
}

static void add_chunk(const struct chunk *c, uint64_t *bits, size_t words)
{
    assert(c->base / 64 < words); /* rows are below n_rows */
    uint64_t *to = bits + c->base / 64;
    size_t n_words = words - c->base / 64;
    for (uint32_t i = 0; c->kind == CHUNK_IS_ARRAY && i < c->n; i++)
        bits_add(to, bytes_load_u16(c->at + 2 * (size_t)i));
    for (uint32_t i = 0; c->kind == CHUNK_IS_RUNS && i < c->runs; i++) {
        uint64_t row = bytes_load_u16(c->at + 4 * (size_t)i);
        bits_add_range(to, row, row + bytes_load_u16(c->at + 4 * (size_t)i + 2) + 1);
    }
    for (uint32_t i = 0; c->kind == CHUNK_IS_BITS && i < CHUNK_WORDS && i < n_words; i++)
        to[i] |= bytes_load_u64(c->at + 8 * (size_t)i);
}

static void add_roaring(const struct row_set *set, const struct universe *u, uint64_t *bits)
{
    struct chunks chunks;
    struct chunk chunk;
    uint64_t place = 0;
    if (!chunks_begin(&chunks, set))
        return;
    while (chunks_next(&chunks, &chunk)) {
        if (!u->rows) {
            add_chunk(&chunk, bits, row_set_words(u));
            continue;
        }
        place = rows_place(u->rows, place, u->n, chunk.base);
        for (; place < u->n && u->rows[place] - chunk.base < CHUNK_ROWS; place++)
            if (chunk_has(&chunk, u->rows[place] - chunk.base))
                bits_add(bits, place);
        if (place == u->n)
            return;
    }
}

void row_set_add(const struct row_set *set, const struct universe *u, uint64_t *bits)
{
    if (set->form == SET_GAPS)
        add_gaps(set, u, bits);
    else if (set->form == SET_ROARING)
        add_roaring(set, u, bits);
    else if (u->rows)
        bits_add_range(bits, rows_place(u->rows, 0, u->n, set->first),
                       rows_place(u->rows, 0, u->n, (uint64_t)set->first + set->n));
    else
        bits_add_range(bits, set->first, (uint64_t)set->first + set->n);
}
