/*
 * doc_set.c - sets of document ids: chunks of sorted numbers or of bits.
 *
 * Invariants: chunks ascend by `high` and none is empty; an array has at most DOC_SET_ARRAY_MAX ids. Bits may have
 * fewer than that: ids that go away do not turn bits into an array unless memory for it is there.
 *
 * What takes ids away works in place. What adds them prepares everything first: doc_set_reserve makes the places,
 * doc_set_or builds the new chunks beside the old ones.
 */
#include "document/fields/doc_set.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BITS_BYTES (DOC_SET_WORDS * sizeof(uint64_t))
#define ARRAY_FIRST      8u /* capacity of a chunk's first array */

static uint16_t high_of(uint32_t id)
{
    return (uint16_t)(id >> 16);
}

static uint32_t id_of(uint16_t high, uint32_t low)
{
    return (uint32_t)high << 16 | low;
}

static bool bits_have(const uint64_t *bits, uint16_t low)
{
    return bits[low >> 6] >> (low & 63) & 1;
}

static void bits_put(uint64_t *bits, uint16_t low)
{
    bits[low >> 6] |= UINT64_C(1) << (low & 63);
}

static uint32_t bits_count(const uint64_t *bits)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < DOC_SET_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(bits[i]);
    return n;
}

/* The first of n ascending lows that is not below `low`. */
static uint32_t lower_bound(const uint16_t *lows, uint32_t n, uint16_t low)
{
    uint32_t first = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (lows[first + half] < low) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return first;
}

/* The first chunk whose high is not below `high`; n_chunks where there is none. */
static uint32_t find_chunk(const struct doc_set *set, uint16_t high)
{
    uint32_t first = 0, n = set->n_chunks;
    if (n > 0 && set->chunks[n - 1].high < high)
        return n; /* what comes next belongs to the end: the common case */
    while (n > 0) {
        uint32_t half = n / 2;
        if (set->chunks[first + half].high < high) {
            first += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return first;
}

static bool chunk_has(const struct doc_chunk *chunk, uint16_t low)
{
    if (chunk->is_bits)
        return bits_have(chunk->bits, low);
    uint32_t at = lower_bound(chunk->lows, chunk->n, low);
    return at < chunk->n && chunk->lows[at] == low;
}

/* Places behind the chunks: the first may have an array already (doc_set_reserve), the others are zeroed. */
static struct doc_chunk *spare_chunk(const struct doc_set *set)
{
    return set->n_chunks < set->capacity ? &set->chunks[set->n_chunks] : NULL;
}

static void free_chunk(struct doc_chunk *chunk)
{
    free(chunk->is_bits ? (void *)chunk->bits : (void *)chunk->lows);
    memset(chunk, 0, sizeof *chunk);
}

/* The set has n chunks; those behind are not wanted any more. */
static void cut_chunks(struct doc_set *set, uint32_t n)
{
    struct doc_chunk *spare = spare_chunk(set);
    assert(n <= set->n_chunks);
    if (spare)
        free_chunk(spare);
    while (set->n_chunks > n)
        free_chunk(&set->chunks[--set->n_chunks]);
}

void doc_set_fini(struct doc_set *set)
{
    if (set->chunked) {
        cut_chunks(set, 0);
        free(set->chunks);
    }
    memset(set, 0, sizeof *set);
}

uint64_t doc_set_bytes(const struct doc_set *set)
{
    uint64_t bytes = set->chunked ? set->capacity * sizeof *set->chunks : 0;
    for (uint32_t i = 0; set->chunked && i < set->n_chunks; i++)
        bytes += set->chunks[i].is_bits ? CHUNK_BITS_BYTES : set->chunks[i].capacity * sizeof(uint16_t);
    return bytes;
}

bool doc_set_has(const struct doc_set *set, uint32_t id)
{
    if (!set->chunked) {
        for (uint32_t i = 0; i < set->n; i++)
            if (set->few[i] == id)
                return true;
        return false;
    }
    uint32_t at = find_chunk(set, high_of(id));
    return at < set->n_chunks && set->chunks[at].high == high_of(id) && chunk_has(&set->chunks[at], (uint16_t)id);
}

uint64_t doc_set_word(const struct doc_set *set, uint32_t word)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; !set->chunked && i < set->n; i++)
        if (set->few[i] / 64 == word)
            bits |= UINT64_C(1) << (set->few[i] & 63);
    if (!set->chunked)
        return bits;
    uint32_t at = find_chunk(set, (uint16_t)(word / DOC_SET_WORDS));
    const struct doc_chunk *chunk = at < set->n_chunks ? &set->chunks[at] : NULL;
    if (!chunk || chunk->high != word / DOC_SET_WORDS)
        return 0;
    if (chunk->is_bits)
        return chunk->bits[word % DOC_SET_WORDS];
    uint16_t first = (uint16_t)(word % DOC_SET_WORDS * 64);
    for (uint32_t i = lower_bound(chunk->lows, chunk->n, first); i < chunk->n && chunk->lows[i] - first < 64; i++)
        bits |= UINT64_C(1) << (chunk->lows[i] & 63);
    return bits;
}

uint32_t doc_set_last(const struct doc_set *set)
{
    assert(set->n > 0);
    if (!set->chunked)
        return set->few[set->n - 1];
    const struct doc_chunk *last = &set->chunks[set->n_chunks - 1];
    if (!last->is_bits)
        return id_of(last->high, last->lows[last->n - 1]);
    uint32_t word = DOC_SET_WORDS - 1;
    while (last->bits[word] == 0)
        word--;
    return id_of(last->high, word * 64 + 63 - (uint32_t)__builtin_clzll(last->bits[word]));
}

/* ---- growing at the end ------------------------------------------------------------------------------------------ */

/* Room for one more in the chunk's array, or bits in its place. */
static bool chunk_reserve(struct doc_chunk *chunk)
{
    if (chunk->is_bits || chunk->n < chunk->capacity)
        return true;
    if (chunk->n < DOC_SET_ARRAY_MAX) {
        uint32_t capacity = chunk->capacity > 0 ? 2u * chunk->capacity : ARRAY_FIRST;
        uint16_t *lows = realloc(chunk->lows, capacity * sizeof *lows);
        if (!lows)
            return false;
        chunk->lows = lows;
        chunk->capacity = (uint16_t)capacity;
        return true;
    }
    uint64_t *bits = calloc(DOC_SET_WORDS, sizeof *bits);
    if (!bits)
        return false;
    for (uint32_t i = 0; i < chunk->n; i++)
        bits_put(bits, chunk->lows[i]);
    free(chunk->lows);
    chunk->bits = bits;
    chunk->is_bits = true;
    return true;
}

/* From few to chunks: one for each high among them. */
static bool make_chunks(struct doc_set *set)
{
    struct doc_set chunked = {.chunked = true, .n = 0};
    assert(!set->chunked && set->n <= DOC_SET_FEW);
    for (uint32_t i = 0; i < set->n; i++)
        if (!doc_set_append(&chunked, set->few[i])) {
            doc_set_fini(&chunked);
            return false;
        }
    *set = chunked;
    return true;
}

bool doc_set_reserve(struct doc_set *set, uint32_t id)
{
    assert(set->n == 0 || doc_set_last(set) < id);
    if (!set->chunked && set->n < DOC_SET_FEW)
        return true;
    if (!set->chunked && !make_chunks(set))
        return false;
    if (set->n_chunks > 0 && set->chunks[set->n_chunks - 1].high == high_of(id))
        return chunk_reserve(&set->chunks[set->n_chunks - 1]);
    /* a chunk that is not counted yet, with its array: the next append finds both */
    if (set->n_chunks == set->capacity) {
        struct doc_chunk *chunks = set->chunks;
        uint32_t capacity = set->capacity;
        if (!array_reserve(&chunks, &capacity, (size_t)set->n_chunks + 1))
            return false;
        memset(&chunks[set->n_chunks], 0, (capacity - set->n_chunks) * sizeof *chunks);
        set->chunks = chunks;
        set->capacity = capacity;
    }
    return chunk_reserve(spare_chunk(set));
}

bool doc_set_append(struct doc_set *set, uint32_t id)
{
    if (!doc_set_reserve(set, id))
        return false;
    set->n++;
    if (!set->chunked) {
        set->few[set->n - 1] = id;
        return true;
    }
    if (set->n_chunks == 0 || set->chunks[set->n_chunks - 1].high != high_of(id))
        set->chunks[set->n_chunks++].high = high_of(id);
    struct doc_chunk *last = &set->chunks[set->n_chunks - 1];
    if (last->is_bits)
        bits_put(last->bits, (uint16_t)id);
    else
        last->lows[last->n] = (uint16_t)id;
    last->n++;
    return true;
}

/* ---- taking away ------------------------------------------------------------------------------------------------- */

/* Takes empty chunks out. */
static void drop_empty(struct doc_set *set)
{
    uint32_t kept = 0;
    struct doc_chunk *spare = spare_chunk(set);
    if (spare)
        free_chunk(spare);
    for (uint32_t i = 0; i < set->n_chunks; i++) {
        if (set->chunks[i].n == 0) {
            free_chunk(&set->chunks[i]);
            continue;
        }
        if (kept < i) {
            set->chunks[kept] = set->chunks[i];
            memset(&set->chunks[i], 0, sizeof set->chunks[i]);
        }
        kept++;
    }
    set->n_chunks = kept;
}

/* Bits with few ids become an array, if there is memory for it. */
static void bits_to_array(struct doc_chunk *chunk)
{
    uint16_t *lows = chunk->is_bits && chunk->n <= DOC_SET_ARRAY_MAX / 2 ? malloc(chunk->n * sizeof *lows + 1) : NULL;
    uint32_t n = 0;
    if (!lows)
        return;
    for (uint32_t word = 0; word < DOC_SET_WORDS; word++)
        for (uint64_t w = chunk->bits[word]; w; w &= w - 1)
            lows[n++] = (uint16_t)(word * 64 + (uint32_t)__builtin_ctzll(w));
    assert(n == chunk->n);
    free(chunk->bits);
    chunk->lows = lows;
    chunk->capacity = (uint16_t)n;
    chunk->is_bits = false;
}

bool doc_set_remove(struct doc_set *set, uint32_t id)
{
    if (!set->chunked) {
        for (uint32_t i = 0; i < set->n; i++)
            if (set->few[i] == id) {
                memmove(&set->few[i], &set->few[i + 1], (set->n - i - 1) * sizeof *set->few);
                set->n--;
                return true;
            }
        return false;
    }
    uint32_t at = find_chunk(set, high_of(id));
    struct doc_chunk *chunk = at < set->n_chunks ? &set->chunks[at] : NULL;
    if (!chunk || chunk->high != high_of(id) || !chunk_has(chunk, (uint16_t)id))
        return false;
    if (chunk->is_bits) {
        chunk->bits[(uint16_t)id >> 6] &= ~(UINT64_C(1) << (id & 63));
    } else {
        uint32_t place = lower_bound(chunk->lows, chunk->n, (uint16_t)id);
        memmove(&chunk->lows[place], &chunk->lows[place + 1], (chunk->n - place - 1) * sizeof *chunk->lows);
    }
    chunk->n--;
    set->n--;
    if (chunk->n == 0)
        drop_empty(set);
    return true;
}

/* The few ids of a set as chunks, for the time of a call. */
static uint32_t few_as_chunks(const struct doc_set *set, struct doc_chunk *chunks, uint16_t *lows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        lows[i] = (uint16_t)set->few[i];
        if (n == 0 || chunks[n - 1].high != high_of(set->few[i]))
            chunks[n++] = (struct doc_chunk){.high = high_of(set->few[i]), .lows = &lows[i]};
        chunks[n - 1].n++;
    }
    return n;
}

/* Keeps the ids of the chunk that are in `other` (kept true), or those that are not. */
static void filter_chunk(struct doc_chunk *chunk, const struct doc_chunk *other, bool kept)
{
    uint32_t n = 0;
    if (!chunk->is_bits && !other->is_bits && chunk->n * 32u >= other->n) {
        uint32_t at = 0; /* both in order: one pass */
        for (uint32_t i = 0; i < chunk->n; i++) {
            while (at < other->n && other->lows[at] < chunk->lows[i])
                at++;
            if ((at < other->n && other->lows[at] == chunk->lows[i]) == kept)
                chunk->lows[n++] = chunk->lows[i];
        }
    } else if (!chunk->is_bits) {
        for (uint32_t i = 0; i < chunk->n; i++)
            if (chunk_has(other, chunk->lows[i]) == kept)
                chunk->lows[n++] = chunk->lows[i];
    } else if (other->is_bits) {
        for (uint32_t i = 0; i < DOC_SET_WORDS; i++)
            chunk->bits[i] &= kept ? other->bits[i] : ~other->bits[i];
        n = bits_count(chunk->bits);
    } else {
        uint64_t bits[DOC_SET_WORDS] = {0};
        for (uint32_t i = 0; i < other->n; i++)
            bits_put(bits, other->lows[i]);
        for (uint32_t i = 0; i < DOC_SET_WORDS; i++)
            chunk->bits[i] &= kept ? bits[i] : ~bits[i];
        n = bits_count(chunk->bits);
    }
    chunk->n = n;
    bits_to_array(chunk);
}

/* The set keeps what is in `other` (kept true), or what is not. */
static void filter_set(struct doc_set *set, const struct doc_set *other, bool kept)
{
    if (!set->chunked) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < set->n; i++)
            if (doc_set_has(other, set->few[i]) == kept)
                set->few[n++] = set->few[i];
        set->n = n;
        return;
    }
    if (!other->chunked) {
        struct doc_set few = {0};
        for (uint32_t i = 0; i < other->n; i++)
            if (!kept)
                doc_set_remove(set, other->few[i]);
            else if (doc_set_has(set, other->few[i]))
                few.few[few.n++] = other->few[i];
        if (kept) {
            doc_set_fini(set);
            *set = few;
        }
        return;
    }
    uint32_t at = 0, n = 0;
    for (uint32_t i = 0; i < set->n_chunks; i++) {
        struct doc_chunk *chunk = &set->chunks[i];
        while (at < other->n_chunks && other->chunks[at].high < chunk->high)
            at++;
        if (at < other->n_chunks && other->chunks[at].high == chunk->high)
            filter_chunk(chunk, &other->chunks[at], kept);
        else if (kept)
            chunk->n = 0;
        n += chunk->n;
    }
    set->n = n;
    drop_empty(set);
}

void doc_set_and(struct doc_set *set, const struct doc_set *other)
{
    filter_set(set, other, true);
}

void doc_set_and_not(struct doc_set *set, const struct doc_set *other)
{
    filter_set(set, other, false);
}

/* All of the chunk's ids from `low` on, and those below that `kept` (NULL: none) has. */
static void purge_chunk(struct doc_chunk *chunk, const struct doc_chunk *kept, uint16_t low)
{
    uint64_t bits[DOC_SET_WORDS] = {0};
    struct doc_chunk mask = {.is_bits = true, .n = DOC_SET_WORDS * 64, .bits = bits};
    if (kept && kept->is_bits)
        memcpy(bits, kept->bits, sizeof bits);
    for (uint32_t i = 0; kept && !kept->is_bits && i < kept->n; i++)
        bits_put(bits, kept->lows[i]);
    for (uint32_t i = low; i < 65536; i++)
        bits_put(bits, (uint16_t)i);
    filter_chunk(chunk, &mask, true);
}

void doc_set_purge(struct doc_set *set, const struct doc_set *kept, uint32_t end)
{
    struct doc_chunk few[DOC_SET_FEW];
    uint16_t lows[DOC_SET_FEW];
    const struct doc_chunk *others = kept->chunked ? kept->chunks : few;
    uint32_t n_others = kept->chunked ? kept->n_chunks : few_as_chunks(kept, few, lows), n = 0, at = 0;
    if (!set->chunked) {
        for (uint32_t i = 0; i < set->n; i++)
            if (set->few[i] >= end || doc_set_has(kept, set->few[i]))
                set->few[n++] = set->few[i];
        set->n = n;
        return;
    }
    for (uint32_t i = 0; i < set->n_chunks; i++) {
        struct doc_chunk *chunk = &set->chunks[i];
        while (at < n_others && others[at].high < chunk->high)
            at++;
        const struct doc_chunk *other = at < n_others && others[at].high == chunk->high ? &others[at] : NULL;
        if (chunk->high == high_of(end))
            purge_chunk(chunk, other, (uint16_t)end);
        else if (chunk->high < high_of(end) && other)
            filter_chunk(chunk, other, true);
        else if (chunk->high < high_of(end))
            chunk->n = 0;
        n += chunk->n;
    }
    set->n = n;
    drop_empty(set);
}

/* ---- new sets ---------------------------------------------------------------------------------------------------- */

static bool copy_chunk(const struct doc_chunk *chunk, struct doc_chunk *out)
{
    *out = *chunk;
    if (chunk->is_bits) {
        out->bits = malloc(CHUNK_BITS_BYTES);
        if (out->bits)
            memcpy(out->bits, chunk->bits, CHUNK_BITS_BYTES);
        return out->bits != NULL;
    }
    out->lows = malloc(chunk->n * sizeof *out->lows);
    out->capacity = (uint16_t)chunk->n;
    if (out->lows)
        memcpy(out->lows, chunk->lows, chunk->n * sizeof *out->lows);
    return out->lows != NULL;
}

/* A set with places for so many chunks, and none yet. */
static bool begin_chunks(struct doc_set *out, uint32_t n_chunks)
{
    *out = (struct doc_set){.chunked = true, .capacity = n_chunks};
    out->chunks = calloc(n_chunks > 0 ? n_chunks : 1, sizeof *out->chunks);
    return out->chunks != NULL;
}

bool doc_set_copy(const struct doc_set *set, struct doc_set *out)
{
    if (!set->chunked) {
        *out = *set;
        return true;
    }
    if (!begin_chunks(out, set->n_chunks)) {
        *out = (struct doc_set){0};
        return false;
    }
    for (uint32_t i = 0; i < set->n_chunks; i++) {
        struct doc_chunk chunk;
        if (!copy_chunk(&set->chunks[i], &chunk)) {
            doc_set_fini(out);
            return false;
        }
        out->chunks[out->n_chunks++] = chunk;
    }
    out->n = set->n;
    return true;
}

bool doc_set_from(const uint32_t *ids, size_t n, struct doc_set *out)
{
    *out = (struct doc_set){0};
    for (size_t i = 0; i < n; i++)
        if (!doc_set_append(out, ids[i])) {
            doc_set_fini(out);
            return false;
        }
    return true;
}

bool doc_set_from_bits(const uint64_t *bits, size_t n_words, struct doc_set *out)
{
    size_t n_chunks = (n_words + DOC_SET_WORDS - 1) / DOC_SET_WORDS;
    assert(n_chunks <= 65536);
    if (!begin_chunks(out, (uint32_t)n_chunks)) {
        *out = (struct doc_set){0};
        return false;
    }
    for (size_t i = 0; i < n_chunks; i++) {
        size_t words = n_words - i * DOC_SET_WORDS < DOC_SET_WORDS ? n_words - i * DOC_SET_WORDS : DOC_SET_WORDS;
        struct doc_chunk chunk = {.high = (uint16_t)i, .is_bits = true};
        uint64_t any = 0;
        for (size_t j = 0; j < words; j++)
            any |= bits[i * DOC_SET_WORDS + j];
        if (any == 0)
            continue;
        chunk.bits = calloc(DOC_SET_WORDS, sizeof *chunk.bits);
        if (!chunk.bits) {
            doc_set_fini(out);
            return false;
        }
        memcpy(chunk.bits, &bits[i * DOC_SET_WORDS], words * sizeof *bits);
        chunk.n = bits_count(chunk.bits);
        bits_to_array(&chunk);
        out->chunks[out->n_chunks++] = chunk;
        out->n += chunk.n;
    }
    return true;
}

/* Both chunks together; neither is changed. */
static bool merge_chunks(const struct doc_chunk *a, const struct doc_chunk *b, struct doc_chunk *out)
{
    *out = (struct doc_chunk){.high = a->high};
    if (!a->is_bits && !b->is_bits && a->n + b->n <= DOC_SET_ARRAY_MAX) {
        uint32_t i = 0, j = 0;
        out->lows = malloc((a->n + b->n) * sizeof *out->lows);
        out->capacity = (uint16_t)(a->n + b->n);
        if (!out->lows)
            return false;
        while (i < a->n || j < b->n) {
            uint32_t left = i < a->n ? a->lows[i] : UINT32_MAX, right = j < b->n ? b->lows[j] : UINT32_MAX;
            out->lows[out->n++] = (uint16_t)(left < right ? left : right);
            i += left <= right;
            j += right <= left;
        }
        return true;
    }
    const struct doc_chunk *both[2] = {a, b};
    out->is_bits = true;
    out->bits = calloc(DOC_SET_WORDS, sizeof *out->bits);
    if (!out->bits)
        return false;
    for (uint32_t k = 0; k < 2; k++)
        if (both[k]->is_bits)
            for (uint32_t i = 0; i < DOC_SET_WORDS; i++)
                out->bits[i] |= both[k]->bits[i];
        else
            for (uint32_t i = 0; i < both[k]->n; i++)
                bits_put(out->bits, both[k]->lows[i]);
    out->n = bits_count(out->bits);
    return true;
}

bool doc_set_or(struct doc_set *set, const struct doc_set *other)
{
    struct doc_chunk few_a[DOC_SET_FEW], few_b[DOC_SET_FEW];
    uint16_t lows_a[DOC_SET_FEW], lows_b[DOC_SET_FEW];
    uint32_t i = 0, j = 0;
    struct doc_set out;
    if (other->n == 0)
        return true;
    uint32_t n_a = set->chunked ? set->n_chunks : few_as_chunks(set, few_a, lows_a);
    uint32_t n_b = other->chunked ? other->n_chunks : few_as_chunks(other, few_b, lows_b);
    const struct doc_chunk *a = set->chunked ? set->chunks : few_a;
    const struct doc_chunk *b = other->chunked ? other->chunks : few_b;
    if (!begin_chunks(&out, n_a + n_b))
        return false;
    while (i < n_a || j < n_b) {
        uint32_t left = i < n_a ? a[i].high : UINT32_MAX, right = j < n_b ? b[j].high : UINT32_MAX;
        struct doc_chunk chunk;
        bool made = left < right   ? copy_chunk(&a[i], &chunk)
                    : right < left ? copy_chunk(&b[j], &chunk)
                                   : merge_chunks(&a[i], &b[j], &chunk);
        if (!made) {
            doc_set_fini(&out);
            return false;
        }
        out.chunks[out.n_chunks++] = chunk;
        out.n += chunk.n;
        i += left <= right;
        j += right <= left;
    }
    doc_set_fini(set);
    *set = out;
    return true;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

struct doc_walk doc_walk(const struct doc_set *set)
{
    return (struct doc_walk){.set = set};
}

bool doc_walk_next(struct doc_walk *walk, uint32_t *id)
{
    const struct doc_set *set = walk->set;
    if (!set->chunked) {
        if (walk->at == set->n)
            return false;
        *id = set->few[walk->at++];
        return true;
    }
    for (; walk->chunk < set->n_chunks; walk->chunk++, walk->at = 0) {
        const struct doc_chunk *chunk = &set->chunks[walk->chunk];
        if (!chunk->is_bits) {
            if (walk->at == chunk->n)
                continue;
            *id = id_of(chunk->high, chunk->lows[walk->at++]);
            return true;
        }
        while (walk->word == 0 && walk->at < DOC_SET_WORDS)
            walk->word = chunk->bits[walk->at++];
        if (walk->word == 0)
            continue;
        *id = id_of(chunk->high, (walk->at - 1) * 64 + (uint32_t)__builtin_ctzll(walk->word));
        walk->word &= walk->word - 1;
        return true;
    }
    return false;
}

void doc_set_ids(const struct doc_set *set, uint32_t *ids)
{
    struct doc_walk walk = doc_walk(set);
    size_t n = 0;
    for (uint32_t id; doc_walk_next(&walk, &id);)
        ids[n++] = id;
    assert(n == set->n);
}

void doc_set_mark(const struct doc_set *set, uint64_t *bits, size_t n_words)
{
    for (uint32_t i = 0; set->chunked && i < set->n_chunks; i++) {
        const struct doc_chunk *chunk = &set->chunks[i];
        size_t first = (size_t)chunk->high * DOC_SET_WORDS;
        for (size_t word = 0; chunk->is_bits && word < DOC_SET_WORDS && first + word < n_words; word++)
            bits[first + word] |= chunk->bits[word];
        for (uint32_t j = 0; !chunk->is_bits && j < chunk->n; j++)
            if (first + (chunk->lows[j] >> 6) < n_words)
                bits[first + (chunk->lows[j] >> 6)] |= UINT64_C(1) << (chunk->lows[j] & 63);
    }
    for (uint32_t i = 0; !set->chunked && i < set->n; i++)
        if (set->few[i] / 64 < n_words)
            bits[set->few[i] / 64] |= UINT64_C(1) << (set->few[i] & 63);
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

bool doc_gather_init(struct doc_gather *gather, uint64_t expected, uint32_t ids_end)
{
    size_t n_words = (size_t)ids_end / 64 + 1;
    *gather = (struct doc_gather){0};
    if (expected * sizeof(uint32_t) < n_words * sizeof(uint64_t))
        return doc_gather_reserve(gather, (size_t)expected);
    gather->n_words = n_words;
    gather->bits = calloc(n_words, sizeof *gather->bits);
    return gather->bits != NULL;
}

void doc_gather_fini(struct doc_gather *gather)
{
    array_free_all(gather->bits, gather->ids);
    *gather = (struct doc_gather){0};
}

bool doc_gather_reserve(struct doc_gather *gather, size_t n)
{
    return gather->bits || array_reserve(&gather->ids, &gather->capacity, gather->n_ids + n);
}

bool doc_gather_put_set(struct doc_gather *gather, const struct doc_set *set)
{
    if (gather->bits) {
        doc_set_mark(set, gather->bits, gather->n_words);
        return true;
    }
    if (!doc_gather_reserve(gather, set->n))
        return false;
    doc_set_ids(set, gather->ids + gather->n_ids);
    gather->n_ids += set->n;
    return true;
}

bool doc_gather_finish(struct doc_gather *gather, struct doc_set *out)
{
    bool made;
    if (gather->bits) {
        made = doc_set_from_bits(gather->bits, gather->n_words, out);
    } else {
        size_t n = 0;
        if (gather->n_ids > 0)
            array_sort_u32(gather->ids, gather->n_ids);
        for (size_t i = 0; i < gather->n_ids; i++)
            if (n == 0 || gather->ids[i] != gather->ids[n - 1])
                gather->ids[n++] = gather->ids[i];
        made = doc_set_from(gather->ids, n, out);
    }
    doc_gather_fini(gather);
    return made;
}
