/*
 * cache_finish.c - the end of a lookup: the document that was read answers, or does not; and what is counted.
 *
 * A lookup is counted once: when it ends without a document, or when its document turns out to answer. Where it does
 * not (its entry has left meanwhile, it is lost, or it is another's), the request is taken back: it is made again.
 */
#include "cache/core/cache_priv.h"
#include "cache/document/document.h"
#include "cache/guard/text.h"
#include "io/clock.h"
#include "io/lock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t cache_chunks(const uint8_t *bytes, uint32_t n)
{
    struct document document;
    size_t n_bytes;
    return bytes && document_decode(bytes, n, &document, &n_bytes, NULL) == 0 ? document.n_chunks : 0;
}

/* Whether a document is what its entry says: of the same scope and compat hash. Entries and documents are restored from
 * different files; this is the last look before an answer leaves. (lock) */
static bool is_of_entry(const struct cache *cache, uint32_t row, const struct document *document)
{
    const struct group *group = cache->groups[cache_entry_at(cache, row)->group];
    struct quire_pair pair;
    uint32_t n = 0;
    for (uint32_t at = 0; group_scope_pair(group->scope->bytes, group->scope->n_bytes, &at, &pair); n++) {
        if (n == document->n_scope)
            return false;
        struct quire_pair told = document_scope(document, n);
        if (!text_equal(pair.key, told.key) || !text_equal(pair.value, told.value))
            return false;
    }
    return n == document->n_scope && document->compat.low == group->compat.low &&
           document->compat.high == group->compat.high &&
           text_equal(document->category, cache_category_at(cache, group->category)->name);
}

/* What a document that was read is to the decision that named it. */
enum document_fit {
    DOCUMENT_ANSWERS,
    DOCUMENT_GONE,  /* its entry has left meanwhile */
    DOCUMENT_LOST,  /* it cannot be read, or is not its entry's */
    DOCUMENT_OTHERS /* it answers another request, whose hash has the same forty bits */
};

/* row: the entry, UINT32_MAX: gone. document: NULL: it cannot be read, or has another id. (lock) */
static enum document_fit fit_of(const struct cache *cache, const struct cache_decision *decision, uint32_t row,
                                const struct document *document)
{
    if (row == UINT32_MAX)
        return DOCUMENT_GONE;
    if (!document || !is_of_entry(cache, row, document))
        return DOCUMENT_LOST;
    bool same = document->exact.low == decision->exact.low && document->exact.high == decision->exact.high;
    return decision->answer.status == QUIRE_CACHE_EXACT && !same ? DOCUMENT_OTHERS : DOCUMENT_ANSWERS;
}

/* The answer points into the document. */
static void fill_answer(struct quire_cache_answer *answer, const struct document *document, struct quire_bytes *chunks)
{
    for (uint32_t i = 0; i < document->n_chunks; i++)
        chunks[i] = document_chunk(document, i);
    answer->value = document_value(document);
    answer->n_chunks = document->n_chunks;
    answer->chunks = chunks;
    answer->text = document->text;
    answer->model = document->model;
    answer->tokens_in = document->tokens_in;
    answer->tokens_out = document->tokens_out;
    answer->llm_ms = document->llm_ms;
    /* A cost has the digits that it was given with: 0.01f is not .00999999977. */
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)document->cost);
    answer->cost = strtod(text, NULL);
}

/* What an answer saves, or an audit costs. (lock) */
static void count_saved(struct category *cat, const struct quire_cache_answer *answer)
{
    if (answer->status == QUIRE_CACHE_AUDIT) {
        cat->counters.cost_audits += answer->cost;
        return;
    }
    cat->counters.tokens_saved += answer->tokens_in + answer->tokens_out;
    cat->counters.llm_ms_saved += answer->llm_ms;
    cat->counters.cost_saved += answer->cost;
}

/* The scope of the question, NULL where it is gone. (lock) */
static struct scope *scope_of(const struct cache *cache, const struct cache_decision *decision)
{
    struct group *group = decision->group < cache->n_groups ? cache->groups[decision->group] : NULL;
    return group && group->key == decision->group_key ? group->scope : NULL;
}

void cache_count(struct cache *cache, const struct cache_decision *decision)
{
    const struct quire_cache_answer *answer = &decision->answer;
    enum quire_cache_status status = answer->status;
    struct category *cat = cache_category_at(cache, decision->category);
    struct scope *scope = scope_of(cache, decision);
    bool served = status == QUIRE_CACHE_HIT || status == QUIRE_CACHE_EXACT || status == QUIRE_CACHE_STALE;
    assert(lock_is_held(&cache->lock));
    cat->counters.hits += status == QUIRE_CACHE_HIT;
    cat->counters.exact += status == QUIRE_CACHE_EXACT;
    cat->counters.stale += status == QUIRE_CACHE_STALE;
    cat->counters.misses += status == QUIRE_CACHE_MISS;
    cat->counters.audits += status == QUIRE_CACHE_AUDIT;
    cat->counters.negative += status == QUIRE_CACHE_NEGATIVE;
    cat->counters.bypassed += status == QUIRE_CACHE_BYPASS;
    if (scope && (status == QUIRE_CACHE_HIT || status == QUIRE_CACHE_EXACT))
        scope->hits++;
    if (decision->suspicious)
        load_breaker_count(&cat->breaker, served, decision->question, answer->id, decision->now);
    if (answer->similarity >= 0 && status != QUIRE_CACHE_EXACT)
        cache_count_bin(served ? cat->histogram.hits : cat->histogram.misses, answer->similarity);
}

/* It does not answer after all, and is asked again, which counts it again. (lock) */
static void uncount_request(struct cache *cache, const struct cache_decision *decision)
{
    struct scope *scope = scope_of(cache, decision);
    assert(cache_category_at(cache, decision->category)->counters.requests > 0);
    cache_category_at(cache, decision->category)->counters.requests--;
    if (scope && scope->requests > 0)
        scope->requests--;
}

/* This entry is found by nearness only from now on. (lock) */
static void forget_exact(struct cache *cache, uint32_t row)
{
    if (!(cache_entry_word(cache, row) & ENTRY_EXACT))
        return;
    cache_entry_unlink_exact(cache, row);
    atomic_fetch_and(&cache_entry_at(cache, row)->word, ~ENTRY_EXACT);
}

/* Removes an entry whose document could not be read at `at`, unless that was moved meanwhile. (lock) */
static void lose(struct cache *cache, uint32_t row, const struct document_at *at)
{
    const struct cache_entry *e = cache_entry_at(cache, row);
    struct document_at now = cache_entry_document(e);
    uint64_t lsn;
    if (now.segment != at->segment || now.unit != at->unit)
        return;
    cache_category_at(cache, cache->groups[e->group]->category)->counters.lost++;
    cache_log_gone(cache, &row, 1, &lsn, NULL); /* where it cannot be logged it is found lost again after a restart */
    cache_entry_die(cache, row);
}

enum cache_finished cache_finish(struct cache *cache, struct cache_decision *decision, const uint8_t *bytes, uint32_t n,
                                 struct quire_bytes *chunks)
{
    struct category *cat = cache_category_at(cache, decision->category);
    struct quire_cache_answer *answer = &decision->answer;
    struct document document;
    size_t n_bytes;
    bool decoded = bytes && document_decode(bytes, n, &document, &n_bytes, NULL) == 0 && document.id == answer->id;
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, answer->id);
    enum document_fit fit = fit_of(cache, decision, row, decoded ? &document : NULL);
    if (fit == DOCUMENT_ANSWERS) {
        fill_answer(answer, &document, chunks);
        cache_count(cache, decision);
        count_saved(cat, answer);
    } else {
        uncount_request(cache, decision);
    }
    if (fit == DOCUMENT_OTHERS)
        forget_exact(cache, row);
    if (fit == DOCUMENT_LOST)
        lose(cache, row, &decision->at);
    histogram_add(&cat->get_us, clock_us() - decision->begun_us);
    pthread_mutex_unlock(&cache->lock);
    if (fit != DOCUMENT_ANSWERS && answer->lease[0]) { /* the next lookup asks for one of its own */
        bool led;
        lease_fail(cache->leases, text_of(answer->lease), cache_steady_ms(cache), &led);
    }
    return fit == DOCUMENT_ANSWERS ? CACHE_ANSWERED : CACHE_ENTRY_GONE;
}
