/*
 * cache_audit.c - labels: pairs that wait for one, what a label does, and feedback.
 *
 * A label that says wrong does two things: it counts against the category's curve, with the weight of its sampling, and
 * it raises the entry's own threshold just above the similarity that failed, so that this entry does not answer the
 * like of that question again, whatever the category's threshold becomes.
 *
 * Pairs that wait are a ring: when it is full the oldest is forgotten, which costs a label and nothing else.
 */
#include "cache/core/cache_priv.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <stdlib.h>

#define VETO_STEP 0.0025 /* above what failed */
#define VETO_ALL  2.0    /* an exact answer that was wrong: never again */

/* ---- an entry's own threshold ------------------------------------------------------------------------------------ */

int cache_entry_set_veto(struct cache *cache, uint32_t row, float veto)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    struct blob_head head = *blob_head(&cache->blobs, e->blob);
    head.veto = veto;
    uint32_t bytes = blob_bytes(&head), blob = blob_take(&cache->blobs, bytes);
    if (!blob)
        return QUIRE_ENOMEM;
    uint8_t *out = stable_array_at(&cache->blobs.cells, blob);
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, blob_head(&cache->blobs, e->blob) + 1, bytes - sizeof head);
    blob_give(&cache->blobs, e->blob);
    e->blob = blob;
    return 0;
}

/* Raises an entry's own threshold just above a similarity that was wrong. (lock) */
static int veto_entry(struct cache *cache, uint32_t row, double similarity, uint64_t *lsn, struct quire_error *err)
{
    assert(lock_is_held(&cache->lock) && (cache_entry_word(cache, row) & ENTRY_LIVE));
    float old = blob_head(&cache->blobs, cache_entry_at(cache, row)->blob)->veto;
    double above = similarity + VETO_STEP < 1 ? similarity + VETO_STEP : 1; /* 1: its own question is not in doubt */
    float veto = (float)(similarity < 0 || similarity >= 1 ? VETO_ALL : above);
    if (old >= veto)
        return 0;
    int rc = cache_log_change(cache, row, cache_entry_word(cache, row), veto, lsn, err);
    if (rc == 0 && cache_entry_set_veto(cache, row, veto) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an entry's own threshold");
    return rc;
}

/* ---- feedback ---------------------------------------------------------------------------------------------------- */

int cache_feedback(struct cache *cache, uint64_t id, bool good, double similarity, uint64_t *lsn,
                   struct quire_error *err)
{
    if (!(similarity <= 1))
        return error_set(err, QUIRE_ERANGE, "similarity %g; it is what the answer said, 0 to 1", similarity);
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, id);
    int rc = row == UINT32_MAX
                 ? error_set(err, QUIRE_ENOTFOUND, "no entry %016llx: it has gone meanwhile", (unsigned long long)id)
                 : 0;
    if (rc == 0 && !good)
        rc = veto_entry(cache, row, similarity, lsn, err);
    if (rc == 0) {
        struct category *cat = cache_category_at(cache, cache->groups[cache_entry_at(cache, row)->group]->category);
        cat->counters.feedback_good += good;
        cat->counters.feedback_bad += !good;
        cat->counters.false_hits += !good;
        cat->counters.labels++;
        if (similarity >= 0)
            risk_label(cat->curve, RISK_FEEDBACK, similarity, 1, good);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- pairs that wait --------------------------------------------------------------------------------------------- */

static struct audit *audit_at(const struct cache *cache, uint64_t number)
{
    return &cache->audits[number % AUDITS_MAX];
}

uint64_t cache_audit_push(struct cache *cache, uint32_t category, uint64_t id, enum risk_source source,
                          double similarity, double weight, struct quire_bytes text)
{
    assert(lock_is_held(&cache->lock) && category < cache->n_categories && weight >= 1);
    uint64_t number = ++cache->next_audit;
    struct audit *a = audit_at(cache, number);
    uint32_t n = text.n_bytes < AUDIT_TEXT_BYTES ? (uint32_t)text.n_bytes : AUDIT_TEXT_BYTES;
    free(a->text);
    *a = (struct audit){.number = number,
                        .id = id,
                        .category = category,
                        .source = source,
                        .similarity = (float)similarity,
                        .weight = (float)weight};
    a->text = n ? malloc(n) : NULL; /* without memory it waits without its text */
    if (a->text) {
        memcpy(a->text, text.data, n);
        a->n_text = n;
    }
    return number;
}

void cache_audits_free(struct cache *cache)
{
    for (uint32_t i = 0; i < AUDITS_MAX && cache->audits; i++)
        free(cache->audits[i].text);
    free(cache->audits);
}

/* A pair for whoever labels it, and where the entry's document is (bytes 0: the entry is gone). (lock) */
static int show_audit(const struct cache *cache, const struct audit *a, struct quire_cache_audit *out,
                      struct document_at *at, struct quire_error *err)
{
    assert(lock_is_held(&cache->lock));
    uint8_t *memory = malloc(a->n_text + 1u);
    if (!memory)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pair");
    uint32_t row = cache_entry_find(cache, a->id);
    memcpy(memory, a->text ? a->text : memory, a->n_text);
    *out = (struct quire_cache_audit){.number = a->number,
                                      .id = a->id,
                                      .similarity = (double)a->similarity,
                                      .category = cache_category_at(cache, a->category)->name,
                                      .text = {memory, a->n_text},
                                      .memory = memory};
    *at = row == UINT32_MAX ? (struct document_at){0} : cache_entry_document(cache_entry_at(cache, row));
    return 0;
}

static int refuse_audit(uint64_t number, struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "audit %llu waits for no label: it has one, or was too long ago",
                     (unsigned long long)number);
}

int cache_audit_get(struct cache *cache, uint64_t number, struct quire_cache_audit *out, struct document_at *at,
                    struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    const struct audit *a = audit_at(cache, number);
    int rc = number > 0 && a->number == number ? show_audit(cache, a, out, at, err) : refuse_audit(number, err);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_audit_pop(struct cache *cache, struct quire_cache_audit *out, struct document_at *at, struct quire_error *err)
{
    int rc = error_set(err, QUIRE_ENOTFOUND, "no pair waits for a label");
    pthread_mutex_lock(&cache->lock);
    uint64_t first = cache->next_audit > AUDITS_MAX ? cache->next_audit - AUDITS_MAX + 1 : 1;
    if (cache->next_pop < first)
        cache->next_pop = first;
    struct audit *a = audit_at(cache, cache->next_pop); /* the oldest that waits */
    while (cache->next_pop <= cache->next_audit && (a->number != cache->next_pop || a->popped))
        a = audit_at(cache, ++cache->next_pop);
    if (cache->next_pop <= cache->next_audit) {
        rc = show_audit(cache, a, out, at, err);
        a->popped = rc == 0;
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_audit_put(struct cache *cache, uint64_t number, bool right, struct quire_error *err)
{
    int rc = 0;
    uint64_t lsn = 0;
    pthread_mutex_lock(&cache->lock);
    struct audit *a = audit_at(cache, number);
    if (number == 0 || a->number != number) {
        rc = refuse_audit(number, err);
    } else {
        struct category *cat = cache_category_at(cache, a->category);
        double similarity = (double)a->similarity;
        uint32_t row = cache_entry_find(cache, a->id);
        risk_label(cat->curve, a->source, similarity, (double)a->weight, right);
        cat->counters.labels++;
        unsigned bin = (unsigned)(similarity * 100 + 0.5);
        (right ? cat->histogram.right : cat->histogram.wrong)[bin < CACHE_HISTOGRAM_BINS ? bin : 0]++;
        if (!right && row != UINT32_MAX && a->source == RISK_AUDIT)
            rc = veto_entry(cache, row, similarity, &lsn, err);
        a->number = 0;
        free(a->text);
        a->text = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_load(struct cache *cache, struct quire_bytes model, double x, uint64_t ex_ms, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    int rc = load_told(&cache->load, model, x, ex_ms, cache_now(cache), err);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}
