/*
 * cache_told.c - a leader tells what it does to a cache: frames, and effects as they are logged (cache_replica.h).
 *
 * An effect is made under the lock, behind the record of the journal. What is large of it, the answer's document, is
 * not copied for it: it was encoded for the log of documents and is handed on.
 */
#include "cache/core/cache_frame.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/lock.h"
#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

#define FRAME_MAGIC 0x45524351u /* bytes "QCRE" */

enum frame_at {
    VERSION_AT = 4,
    KIND_AT = 5,
    HISTORY_AT = 8,
    SEQ_AT = 16,
    BYTES_AT = 24,
    DOCUMENT_AT = 28,
    CHECKSUM_AT = 32
};

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* Of the bytes with zero where the checksum is. */
static uint64_t checksum_of(const uint8_t *bytes, size_t n)
{
    uint64_t head = XXH3_64bits(bytes, CHECKSUM_AT);
    return XXH3_64bits_withSeed(bytes + CACHE_FRAME_BYTES, n - CACHE_FRAME_BYTES, head);
}

void cache_frame_begin(struct cache_record *r, const struct cache *cache, enum cache_frame_kind kind)
{
    cache_record_empty(r);
    cache_record_u32(r, FRAME_MAGIC);
    cache_record_u8(r, FRAME_VERSION);
    cache_record_u8(r, (uint8_t)kind);
    cache_record_u8(r, 0);
    cache_record_u8(r, 0);
    cache_record_u64(r, cache->history);
    cache_record_u64(r, cache->seq);
    cache_record_u64(r, 0); /* bytes */
    cache_record_u64(r, 0); /* checksum */
}

uint8_t *cache_frame_end(struct cache_record *r, uint32_t document_bytes, uint32_t *n)
{
    uint8_t *bytes = r->failed || r->n > UINT32_MAX ? NULL : malloc(r->n);
    if (bytes) {
        memcpy(bytes, r->bytes, r->n);
        *n = (uint32_t)r->n;
        bytes_store_u32(bytes + BYTES_AT, *n);
        bytes_store_u32(bytes + DOCUMENT_AT, document_bytes);
        bytes_store_u64(bytes + CHECKSUM_AT, checksum_of(bytes, *n));
    }
    cache_record_end(r);
    return bytes;
}

int cache_frame_read(const uint8_t *bytes, size_t n, struct cache_frame *out, struct quire_error *err)
{
    if (n < CACHE_FRAME_BYTES || bytes_load_u32(bytes) != FRAME_MAGIC)
        return error_set(err, QUIRE_ECORRUPT, "what came for a cache is none of its frames");
    if (bytes[VERSION_AT] != FRAME_VERSION)
        return error_set(err, QUIRE_EVERSION, "its frames are of version %u, this node reads %u: update quire.so",
                         bytes[VERSION_AT], FRAME_VERSION);
    uint32_t n_head = bytes_load_u32(bytes + BYTES_AT), n_document = bytes_load_u32(bytes + DOCUMENT_AT);
    if (n_head < CACHE_FRAME_BYTES || (uint64_t)n_head + n_document != n ||
        bytes_load_u64(bytes + CHECKSUM_AT) != checksum_of(bytes, n_head))
        return error_set(err, QUIRE_ECORRUPT, "a frame of %zu bytes for a cache came damaged", n);
    if (bytes[KIND_AT] < FRAME_IMAGE || bytes[KIND_AT] > FRAME_ENTRIES)
        return error_set(err, QUIRE_EVERSION, "a frame of kind %u for a cache: update quire.so", bytes[KIND_AT]);
    *out = (struct cache_frame){.kind = (enum cache_frame_kind)bytes[KIND_AT],
                                .history = bytes_load_u64(bytes + HISTORY_AT),
                                .seq = bytes_load_u64(bytes + SEQ_AT),
                                .body = {bytes + CACHE_FRAME_BYTES, n_head - CACHE_FRAME_BYTES, false},
                                .document = {bytes + n_head, n_document}};
    return out->history ? 0 : error_set(err, QUIRE_ECORRUPT, "a frame for a cache is of no history");
}

void cache_frame_put_entry(struct cache_record *r, const struct cache_frame_entry *entry)
{
    cache_record_u64(r, entry->id);
    cache_record_u64(r, entry->word & FRAME_WORD_BITS);
    cache_record_f32(r, entry->veto);
    cache_record_u32(r, entry->hits);
    cache_record_u32(r, entry->category);
    cache_record_f32(r, entry->f);
    cache_record_f32(r, entry->norm2);
    cache_record_bytes(r, entry->code.data, entry->code.n_bytes);
}

uint64_t cache_entry_print(const struct cache *cache, uint32_t row)
{
    const struct cache_entry *e = cache_entry_at(cache, row);
    const uint64_t facts[] = {cache_entry_created(e), e->exact | (uint64_t)e->exact_high << 32,
                              cache->groups[e->group]->key, cache_entry_word(cache, row) & (ENTRY_VECTOR | ENTRY_TEXT),
                              cache_entry_document(e).bytes};
    return XXH3_64bits(facts, sizeof facts);
}

/* ---- effects ----------------------------------------------------------------------------------------------------- */

/* Whether a change is told now. What is not told ends the history: followers that hear of the next one have a gap. */
static bool begin_effect(struct cache *cache)
{
    if (cache->follows)
        return false;
    if (!cache->tells) {
        cache->history = 0;
        return false;
    }
    assert(lock_is_held(&cache->lock));
    cache->seq++;
    return true;
}

static void end_effect(struct cache *cache, struct cache_record *r, uint8_t **document, uint32_t document_bytes)
{
    struct cache_told told = {.document_bytes = document_bytes};
    told.bytes = cache_frame_end(r, document_bytes, &told.n);
    if (document) {
        told.document = *document;
        *document = NULL;
    }
    cache->of->options.told(cache->of->options.told_context, cache, &told);
}

void cache_tell_put(struct cache *cache, const struct logged_put *put)
{
    struct cache_record r;
    if (!begin_effect(cache))
        return;
    uint64_t word = atomic_load(&put->entry->word);
    const struct cache_frame_entry entry = {.id = cache_entry_id(put->entry, put->row),
                                            .word = word,
                                            .category = put->group->category,
                                            .f = put->f,
                                            .norm2 = put->norm2,
                                            .code = {put->code, word & ENTRY_VECTOR ? cache->space.code_dim : 0}};
    assert(put->document && *put->document);
    cache_frame_begin(&r, cache, FRAME_PUT);
    cache_frame_put_entry(&r, &entry);
    end_effect(cache, &r, put->document, put->document_bytes);
}

void cache_tell_gone(struct cache *cache, const uint32_t *rows, uint32_t n)
{
    struct cache_record r;
    if (!begin_effect(cache))
        return;
    cache_frame_begin(&r, cache, FRAME_GONE);
    for (uint32_t i = 0; i < n; i++)
        cache_record_u64(&r, cache_entry_id(cache_entry_at(cache, rows[i]), rows[i]));
    end_effect(cache, &r, NULL, 0);
}

void cache_tell_change(struct cache *cache, uint32_t row, uint64_t word, float veto)
{
    struct cache_record r;
    if (!begin_effect(cache))
        return;
    cache_frame_begin(&r, cache, FRAME_CHANGE);
    cache_record_u64(&r, cache_entry_id(cache_entry_at(cache, row), row));
    cache_record_u64(&r, word & FRAME_WORD_BITS);
    cache_record_f32(&r, veto);
    end_effect(cache, &r, NULL, 0);
}

void cache_tell_epoch(struct cache *cache, const struct invalidation *invalidation)
{
    struct cache_record r;
    if (!begin_effect(cache))
        return;
    cache_frame_begin(&r, cache, FRAME_EPOCH);
    cache_record_invalidation(&r, cache, invalidation);
    end_effect(cache, &r, NULL, 0);
}

void cache_tell_curve(struct cache *cache, uint32_t number)
{
    struct cache_record r;
    uint8_t curve[RISK_BYTES];
    if (!begin_effect(cache))
        return;
    uint32_t n = risk_save(cache->categories[number]->curve, curve);
    cache_frame_begin(&r, cache, FRAME_CURVE);
    cache_record_u32(&r, number);
    cache_record_bytes(&r, curve, n);
    end_effect(cache, &r, NULL, 0);
}

void cache_tell_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                         const struct category_settings *settings)
{
    struct cache_record r;
    char text[CATEGORY_TEXT_BYTES];
    if (!begin_effect(cache))
        return;
    uint32_t n = category_print(settings, text);
    cache_frame_begin(&r, cache, FRAME_CATEGORY);
    cache_record_u32(&r, number);
    cache_record_bytes(&r, name.data, name.n_bytes);
    cache_record_bytes(&r, text, n);
    end_effect(cache, &r, NULL, 0);
}

void cache_tell_category_drop(struct cache *cache, uint32_t number)
{
    struct cache_record r;
    if (!begin_effect(cache))
        return;
    cache_frame_begin(&r, cache, FRAME_CATEGORY_DROP);
    cache_record_u32(&r, number);
    end_effect(cache, &r, NULL, 0);
}

/* ---- who leads --------------------------------------------------------------------------------------------------- */

int cache_may_change(const struct cache *cache, struct quire_error *err)
{
    return cache->follows ? error_set(err, QUIRE_ECLOSED, "this node follows another one, which has the cache now") : 0;
}

void cache_begin_history(struct cache *cache)
{
    uint64_t history = 0;
    if (getrandom(&history, sizeof history, 0) != (ssize_t)sizeof history || history == 0)
        history = random_next(&cache->random) | 1;
    cache->before_history = cache->history;
    cache->before_seq = cache->seq;
    cache->history = history;
    cache->tells = true;
}

void cache_tell(struct cache *cache, bool tells)
{
    pthread_mutex_lock(&cache->lock);
    if (!tells) {
        cache->tells = false;
    } else if (!cache->follows && !cache->tells && cache->of->options.told) {
        cache->history = 0; /* followers may have missed something, or have what is gone here */
        cache_begin_history(cache);
    }
    pthread_mutex_unlock(&cache->lock);
}

void cache_get_standing(struct cache *cache, struct cache_standing *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = (struct cache_standing){.follows = cache->follows,
                                   .tells = cache->tells,
                                   .is_copying = cache->copying != NULL,
                                   .is_listed = cache->copying && cache->copying->ended,
                                   .history = cache->history,
                                   .seq = cache->seq,
                                   .entries = cache->quota.used.entries};
    pthread_mutex_unlock(&cache->lock);
}
