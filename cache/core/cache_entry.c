/*
 * cache_entry.c - entries of a cache: one array, their numbers, where their vectors are, and buckets of those that have
 * an exact hash.
 *
 * In memory an entry has 40 bits of its exact hash, which with its group are taken for the whole: its document holds
 * all 128 and is read before it answers, so a likeness is found out there (cache_finish). Buckets are chains through
 * the entries. How many there are is fixed by the cache's memory, so that they never move: their pages are used as
 * entries come.
 *
 * Numbers of entries. Those that were free when the tables of places were made (sealed.h) are in no chain: making one
 * would be a walk over all entries under the lock. A cursor goes over them instead, a few for each number that is asked
 * for and not in the chain. It takes entries whose word is 0; one that is among the dead rows, in the chain or on its
 * way says so in its word.
 *
 * A number may be given out as soon as its dead row was reclaimed: a search knows rows of the graph, which the graph
 * keeps until it has left its epoch, and ids; that a row is still that entry's, or an id still lives, is asked under
 * the lock.
 */
#include "cache/core/sealed.h"
#include "io/lock.h"

enum { SCAN_AT_ONCE = 64 }; /* entries that the cursor looks at for one number */

uint64_t cache_now(const struct cache *cache)
{
    const struct caches_options *options = &cache->of->options;
    uint64_t ms = options->clock_ms(options->clock_context);
    return ms > BASE_MS ? ms - BASE_MS : 0;
}

uint64_t cache_steady_ms(const struct cache *cache)
{
    const struct caches_options *options = &cache->of->options;
    return options->steady_ms(options->clock_context);
}

int cache_entries_reserve(struct cache *cache, uint32_t n)
{
    if (n <= cache->n_rows)
        return 0;
    int rc = stable_array_reserve(&cache->entries, n);
    if (rc == 0 && cache->apart)
        rc = stable_array_reserve(&cache->places, n);
    if (rc == 0 && cache->apart)
        rc = stable_array_reserve(&cache->graph_entries, n);
    if (rc == 0)
        cache->n_rows = n;
    return rc;
}

/* ---- what an entry says ---- */

struct document_at cache_entry_document(const struct cache_entry *e)
{
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    return (struct document_at){e->segment, e->unit, (uint32_t)(word >> PAGES_SHIFT) * DOCUMENT_UNIT};
}

/* A document is a multiple of this, so that its length takes 16 bits. */
void cache_entry_set_document(struct cache_entry *e, const struct document_at *at)
{
    uint64_t pages = at->bytes / DOCUMENT_UNIT;
    assert(at->bytes % DOCUMENT_UNIT == 0 && pages <= UINT16_MAX && at->unit < UNITS_MAX);
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    e->segment = at->segment;
    e->unit = at->unit & (UNITS_MAX - 1);
    word = (word & ((UINT64_C(1) << PAGES_SHIFT) - 1)) | pages << PAGES_SHIFT;
    atomic_store_explicit(&e->word, word, memory_order_release);
}

void cache_entry_set_expire(struct cache_entry *e, uint64_t expire)
{
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    assert(expire <= EXPIRE_NEVER);
    atomic_store_explicit(&e->word, (word & ~EXPIRE_NEVER) | expire, memory_order_release);
}

void cache_entry_init(struct cache_entry *out, uint64_t word, struct hash128 exact, const struct group *group,
                      uint64_t created, const struct document_at *at)
{
    memset(out, 0, sizeof *out);
    atomic_init(&out->word, word);
    out->exact = (uint32_t)exact.low;
    out->exact_high = (uint8_t)(exact.low >> 32);
    out->group = group->number & (GROUPS_MAX - 1);
    out->created_low = (uint32_t)created;
    out->created_high = (uint8_t)(created >> 32);
    out->links.level = EVICT_UNLISTED;
    cache_entry_set_document(out, at);
}

void cache_entry_live(struct cache *cache, uint32_t row, const struct cache_entry *from)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    assert(cache_entry_word(cache, row) == ENTRY_TAKEN);
    memcpy((uint8_t *)e + sizeof e->word, (const uint8_t *)from + sizeof e->word, sizeof *e - sizeof e->word);
    atomic_store_explicit(&e->word, atomic_load(&from->word) | ENTRY_LIVE, memory_order_release);
}

double cache_entry_saved(const struct cache *cache, const struct cache_entry *e)
{
    uint64_t bytes = cache_entry_document(e).bytes;
    return bytes ? (double)blob_head(&cache->blobs, e->blob)->cost / (double)bytes : 0;
}

uint32_t cache_entry_find(const struct cache *cache, uint64_t id)
{
    uint32_t row = (uint32_t)id;
    if (row >= cache->n_rows)
        return UINT32_MAX;
    const struct cache_entry *e = cache_entry_at(cache, row);
    return (cache_entry_word(cache, row) & ENTRY_LIVE) && cache_entry_id(e, row) == id ? row : UINT32_MAX;
}

/* ---- exact hashes ---- */

static uint32_t *bucket_of(const struct cache *cache, uint32_t exact, uint32_t group)
{
    return &cache->buckets[random_mix((uint64_t)exact << 32 | group) & (cache->n_buckets - 1)];
}

uint32_t cache_entry_find_exact(const struct cache *cache, const struct group *group, struct hash128 exact)
{
    uint32_t bits = (uint32_t)exact.low;
    uint8_t high = (uint8_t)(exact.low >> 32);
    for (uint32_t at = *bucket_of(cache, bits, group->number); at; at = cache_entry_at(cache, at - 1)->chain) {
        const struct cache_entry *e = cache_entry_at(cache, at - 1);
        if (e->exact == bits && e->exact_high == high && e->group == group->number)
            return at - 1;
    }
    return UINT32_MAX;
}

void cache_entry_link_exact(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    uint32_t *bucket = bucket_of(cache, e->exact, e->group);
    e->chain = *bucket;
    *bucket = row + 1;
}

void cache_entry_unlink_exact(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    uint32_t *at = bucket_of(cache, e->exact, e->group);
    while (*at != row + 1) {
        assert(*at); /* it is in its bucket */
        at = &cache_entry_at(cache, *at - 1)->chain;
    }
    *at = e->chain;
    e->chain = 0;
}

/* ---- numbers and places ------------------------------------------------------------------------------------------ */

int cache_entries_part(struct cache *cache)
{
    if (cache->apart)
        return 0;
    uint32_t n_graph = graph_row_end(cache->graph);
    if (cache_entries_reserve(cache, n_graph) < 0 || stable_array_reserve(&cache->places, cache->n_rows) < 0 ||
        stable_array_reserve(&cache->graph_entries, cache->n_rows) < 0)
        return QUIRE_ENOMEM;
    cache->apart = true;
    cache->scan_end = cache->n_rows;
    cache->entry_bytes += sizeof(struct place) + sizeof(uint32_t);
    return 0;
}

static uint32_t free_number(struct cache *cache)
{
    if (cache->free_rows) {
        uint32_t row = cache->free_rows - 1;
        cache->free_rows = cache_entry_at(cache, row)->chain;
        assert(cache_entry_word(cache, row) == ENTRY_TAKEN);
        return row;
    }
    for (unsigned i = 0; i < SCAN_AT_ONCE && cache->scan_row < cache->scan_end; i++)
        if (cache_entry_word(cache, cache->scan_row++) == 0)
            return cache->scan_row - 1;
    return cache->n_rows;
}

/* Entries have memory up to the highest row of the graph, so that who has seen no tables yet may look there. */
static int reserve_both(struct cache *cache, uint32_t graph_row, uint32_t row)
{
    uint32_t before = cache->n_rows, end = graph_row > row ? graph_row + 1 : row + 1;
    if (cache_entries_reserve(cache, end) < 0)
        return QUIRE_ENOMEM;
    for (uint32_t other = before; other < cache->n_rows; other++)
        if (other != row)
            cache_entry_give(cache, other);
    return 0;
}

int cache_entry_take(struct cache *cache, uint32_t graph_row, uint32_t *row)
{
    assert(lock_is_held(&cache->lock));
    if (!cache->apart) {
        if (cache_entries_reserve(cache, graph_row + 1) < 0)
            return QUIRE_ENOMEM;
        *row = graph_row;
    } else {
        uint32_t number = free_number(cache), before = cache->n_rows;
        if (reserve_both(cache, graph_row, number) < 0) {
            if (number < before)
                cache_entry_give(cache, number);
            return QUIRE_ENOMEM;
        }
        sealed_set_place(cache, number, (struct place){0, graph_row ^ number});
        sealed_set_graph_entry(cache, graph_row, number);
        *row = number;
    }
    atomic_store_explicit(&cache_entry_at(cache, *row)->word, ENTRY_TAKEN, memory_order_release);
    return 0;
}

int cache_entry_take_number(struct cache *cache, uint32_t graph_row, uint32_t row)
{
    uint32_t end = graph_row > row ? graph_row + 1 : row + 1;
    assert(cache->apart && cache->follows && (row >= cache->n_rows || cache_entry_word(cache, row) == 0));
    if (cache_entries_reserve(cache, end) < 0)
        return QUIRE_ENOMEM;
    sealed_set_place(cache, row, (struct place){0, graph_row ^ row});
    sealed_set_graph_entry(cache, graph_row, row);
    atomic_store_explicit(&cache_entry_at(cache, row)->word, ENTRY_TAKEN, memory_order_release);
    return 0;
}

void cache_entries_follow(struct cache *cache)
{
    assert(lock_is_held(&cache->lock) && cache->apart);
    for (uint32_t at = cache->free_rows, next; at; at = next) {
        next = cache_entry_at(cache, at - 1)->chain;
        atomic_store_explicit(&cache_entry_at(cache, at - 1)->word, 0, memory_order_release);
    }
    cache->free_rows = 0;
    cache->scan_row = cache->scan_end = 0;
}

void cache_entries_lead(struct cache *cache)
{
    assert(lock_is_held(&cache->lock) && cache->free_rows == 0);
    cache->scan_row = 0;
    cache->scan_end = cache->n_rows;
}

void cache_entry_give(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    assert(!(cache_entry_word(cache, row) & ENTRY_LIVE));
    /* the graph gives it out again, or the leader of a cache that follows */
    bool kept = cache->apart && !cache->follows;
    atomic_store_explicit(&e->word, kept ? ENTRY_TAKEN : 0, memory_order_release);
    if (!kept)
        return;
    e->chain = cache->free_rows;
    cache->free_rows = row + 1;
}

int cache_entry_set_place(struct cache *cache, uint32_t row, struct place place)
{
    if (place.segment == 0 && place.row == 0 && !cache->apart)
        return 0;
    if (cache_entries_part(cache) < 0)
        return QUIRE_ENOMEM;
    sealed_set_place(cache, row, place);
    return 0;
}
