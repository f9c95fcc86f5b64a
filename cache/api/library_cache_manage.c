/*
 * library_cache_manage.c - quire.h's semantic cache: categories, labels, invalidation, single entries, and insight.
 *
 * Each call is the cache's own, between the counting of calls and the wait that the durability asks for. Outputs are
 * filled in a copy first, so that a call that fails leaves the caller's untouched.
 */
#include "cache/api/library_cache.h"
#include "cache/document/document.h"
#include "cache/document/document_log.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

const char *quire_cache_status_name(enum quire_cache_status status)
{
    static const char *const names[] = {
        [QUIRE_CACHE_MISS] = "miss",   [QUIRE_CACHE_HIT] = "hit",           [QUIRE_CACHE_EXACT] = "exact",
        [QUIRE_CACHE_STALE] = "stale", [QUIRE_CACHE_NEGATIVE] = "negative", [QUIRE_CACHE_BYPASS] = "bypass",
        [QUIRE_CACHE_AUDIT] = "audit", [QUIRE_CACHE_VECTOR] = "vector",
    };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *quire_cache_put_outcome_name(enum quire_cache_put_outcome outcome)
{
    static const char *const names[] = {
        [QUIRE_CACHE_STORED] = "stored",     [QUIRE_CACHE_REPLACED] = "replaced",
        [QUIRE_CACHE_EXISTS] = "exists",     [QUIRE_CACHE_NOT_ADMITTED] = "not_admitted",
        [QUIRE_CACHE_OUTDATED] = "outdated", [QUIRE_CACHE_NO_ROOM] = "no_room",
        [QUIRE_CACHE_OFF] = "off",
    };
    return (unsigned)outcome < sizeof names / sizeof *names ? names[outcome] : "unknown";
}

/* ---- categories -------------------------------------------------------------------------------------------------- */

int quire_cache_set_category(struct quire_cache *c, struct quire_bytes category, const struct quire_bytes *words,
                             uint32_t n, struct quire_error *err)
{
    uint64_t lsn = 0;
    if (n && !words)
        return error_set(err, QUIRE_EINVALID, "n is %u, words is NULL", n);
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc
                  : library_cache_written(c, cache_set_category(c->cache, category, words, n, &lsn, err), &lsn, err);
}

int quire_cache_drop_category(struct quire_cache *c, struct quire_bytes category, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_written(c, cache_drop_category(c->cache, category, &lsn, err), &lsn, err);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

int quire_cache_feedback(struct quire_cache *c, uint64_t id, bool good, double similarity, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_written(c, cache_feedback(c->cache, id, good, similarity, &lsn, err), &lsn, err);
}

static struct quire_bytes copy_piece(uint8_t **to, struct quire_bytes piece)
{
    struct quire_bytes copy = {*to, piece.n_bytes};
    if (piece.n_bytes)
        memcpy(*to, piece.data, piece.n_bytes);
    *to += piece.n_bytes;
    return copy;
}

/* Question, category, and of the document text and value, if it is still the entry's, in one piece of memory. */
static int audit_whole(const struct quire_cache_audit *pair, const struct document_read *read,
                       struct quire_cache_audit *out, struct quire_error *err)
{
    struct document document = {0};
    struct quire_bytes value = {NULL, 0};
    size_t n_bytes;
    if (read && document_decode(read->bytes, read->at.bytes, &document, &n_bytes, NULL) == 0 && document.id == pair->id)
        value = document_value(&document);
    else
        document.text = value;
    size_t n = pair->text.n_bytes + pair->category.n_bytes + document.text.n_bytes + value.n_bytes;
    uint8_t *memory = malloc(n + 1), *to = memory;
    if (!memory)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pair of %zu bytes", n);
    *out = *pair;
    out->memory = memory;
    out->text = copy_piece(&to, pair->text);
    out->category = copy_piece(&to, pair->category);
    out->entry_text = copy_piece(&to, document.text);
    out->entry_value = copy_piece(&to, value);
    return 0;
}

/* The oldest pair, or (number above 0) that one. */
static int take_audit(struct quire_cache *c, uint64_t number, struct quire_cache_audit *out, struct quire_error *err)
{
    struct quire_cache_audit pair = {0};
    struct document_read read;
    struct document_at at = {0};
    struct quire_error reason = {0};
    if (!out)
        return error_set(err, QUIRE_EINVALID, "out must be given");
    int rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = number ? cache_audit_get(c->cache, number, &pair, &at, &reason)
                : cache_audit_pop(c->cache, &pair, &at, &reason);
    if (rc == 0) {
        int found = at.bytes ? library_cache_read(c, &at, &read, &reason) : LIBRARY_CACHE_NOT_THERE;
        rc = found < 0 ? found : audit_whole(&pair, found == LIBRARY_CACHE_READ ? &read : NULL, out, &reason);
        if (found == LIBRARY_CACHE_READ)
            document_read_end(&read);
    }
    library_cache_end(c, rc);
    quire_cache_audit_free(&pair);
    if (rc < 0 && err)
        *err = reason;
    return rc;
}

int quire_cache_audit_get(struct quire_cache *c, uint64_t number, struct quire_cache_audit *out,
                          struct quire_error *err)
{
    if (number == 0)
        return error_set(err, QUIRE_ENOTFOUND, "audit 0: the answer had none");
    return take_audit(c, number, out, err);
}

int quire_cache_audit_pop(struct quire_cache *c, struct quire_cache_audit *out, struct quire_error *err)
{
    return take_audit(c, 0, out, err);
}

void quire_cache_audit_free(struct quire_cache_audit *audit)
{
    if (!audit)
        return;
    free(audit->memory);
    memset(audit, 0, sizeof *audit);
}

int quire_cache_audit_put(struct quire_cache *c, uint64_t number, bool right, struct quire_error *err)
{
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_audit_put(c->cache, number, right, err));
}

int quire_cache_load(struct quire_cache *c, struct quire_bytes model, double x, uint64_t ex_ms, struct quire_error *err)
{
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_load(c->cache, model, x, ex_ms, err));
}

/* ---- entries that go, or stay ------------------------------------------------------------------------------------ */

int quire_cache_invalidate(struct quire_cache *c, const struct quire_cache_selector *selector, bool dry_run,
                           uint64_t *n, struct quire_error *err)
{
    struct idle_scratch *scratch = NULL;
    uint64_t lsn = 0, count = 0;
    if (!selector || !n)
        return error_set(err, QUIRE_EINVALID, "selector and n must be given: nothing is invalidated");
    bool named = selector->by == QUIRE_CACHE_BY_TAG || selector->by == QUIRE_CACHE_BY_CATEGORY ||
                 selector->by == QUIRE_CACHE_BY_SCOPE || selector->by == QUIRE_CACHE_BY_MODEL ||
                 selector->by == QUIRE_CACHE_BY_ENCODER;
    if (named && selector->n && !selector->names)
        return error_set(err, QUIRE_EINVALID, "n is %u, names is NULL: nothing is invalidated", selector->n);
    if (selector->by == QUIRE_CACHE_BY_ID && selector->n && !selector->ids)
        return error_set(err, QUIRE_EINVALID, "n is %u, ids is NULL: nothing is invalidated", selector->n);
    if (selector->by == QUIRE_CACHE_BY_NEAR && !selector->vector)
        return error_set(err, QUIRE_EINVALID, "vector must be given: nothing is invalidated");
    int rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_scratch_take(c, &scratch, err);
    if (rc == 0)
        rc = cache_invalidate(c->cache, scratch->scratch, selector, dry_run, &count, &lsn, err);
    library_cache_scratch_put(c, scratch);
    rc = library_cache_written(c, rc, &lsn, err);
    if (rc == 0)
        *n = count;
    return rc;
}

int quire_cache_remove(struct quire_cache *c, uint64_t id, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_written(c, cache_remove(c->cache, id, &lsn, err), &lsn, err);
}

int quire_cache_touch(struct quire_cache *c, uint64_t id, uint64_t ttl_ms, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_written(c, cache_touch(c->cache, id, ttl_ms, &lsn, err), &lsn, err);
}

int quire_cache_pin(struct quire_cache *c, uint64_t id, bool pinned, struct quire_error *err)
{
    uint64_t lsn = 0;
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_written(c, cache_pin(c->cache, id, pinned, &lsn, err), &lsn, err);
}

/* ---- insight ----------------------------------------------------------------------------------------------------- */

int quire_cache_get_stats(struct quire_cache *c, struct quire_bytes category, struct quire_cache_stats *out,
                          struct quire_error *err)
{
    struct quire_cache_stats stats = {0};
    if (!out)
        return error_set(err, QUIRE_EINVALID, "out must be given");
    int rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_end(c, cache_get_stats(c->cache, category, &stats, err));
    if (rc == 0)
        *out = stats;
    return rc;
}

int quire_cache_tune(struct quire_cache *c, struct quire_bytes category, double delta, struct quire_cache_tune *out,
                     struct quire_error *err)
{
    struct quire_cache_tune tune;
    if (!out)
        return error_set(err, QUIRE_EINVALID, "out must be given");
    int rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_end(c, cache_tune(c->cache, category, delta, &tune, err));
    if (rc == 0)
        *out = tune;
    return rc;
}

int quire_cache_export(struct quire_cache *c, void **bytes, size_t *n, struct quire_error *err)
{
    if (!bytes || !n)
        return error_set(err, QUIRE_EINVALID, "bytes and n must be given");
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_export(c->cache, bytes, n, err));
}

int quire_cache_import(struct quire_cache *c, const void *bytes, size_t n, struct quire_error *err)
{
    if (!bytes)
        return error_set(err, QUIRE_EINVALID, "bytes must be given");
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_import(c->cache, bytes, n, err));
}
