/*
 * library_tenants.c - quire.h's calls about tenants of a live collection, and about elements by what they are.
 *
 * A removal by filter is a scan whose matches are removed one by one, each only if it is still the element that was
 * looked at and still matches, which for what attributes and grants in memory have become is asked once more under the
 * collection's lock. What segments took elsewhere meanwhile is left for the next scan, until a scan meets none of that.
 */
#include "index/api/library_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static int change_grants(struct quire_collection *c, const void *key, size_t key_bytes,
                         const struct quire_bytes *tenants, uint32_t n_tenants, bool revoke, uint32_t *n_changed,
                         struct quire_error *err)
{
    struct tenant_scope names = {0};
    if (!c || !tenants || n_tenants == 0)
        return error_set(err, QUIRE_EINVALID, "collection and tenants must be given, one at least");
    int rc = library_key_validate(key, key_bytes, err);
    if (rc == 0)
        rc = library_scope_of(tenants, n_tenants, &names, err);
    if (rc < 0)
        return rc;
    assert(names.n == n_tenants && names.tenants);
    struct collection_change change = {.key = key, .key_bytes = (uint32_t)key_bytes};
    *(revoke ? &change.revoke : &change.grant) = names.tenants;
    *(revoke ? &change.n_revoke : &change.n_grant) = names.n;
    rc = library_change(c, &change, err);
    if (rc == 0 && n_changed)
        *n_changed = change.n_changed;
    free(names.tenants);
    return rc;
}

int quire_grant(struct quire_collection *c, const void *key, size_t key_bytes, const struct quire_bytes *tenants,
                uint32_t n_tenants, uint32_t *n_changed, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    return change_grants(c, key, key_bytes, tenants, n_tenants, false, n_changed, err);
}

int quire_revoke(struct quire_collection *c, const void *key, size_t key_bytes, const struct quire_bytes *tenants,
                 uint32_t n_tenants, uint32_t *n_changed, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    return change_grants(c, key, key_bytes, tenants, n_tenants, true, n_changed, err);
}

int quire_drop_tenant(struct quire_collection *c, const char *tenant, size_t tenant_bytes, uint64_t *elements,
                      struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    uint64_t had = 0, lsn = 0;
    if (!c)
        return error_set(err, QUIRE_EINVALID, "collection must be given");
    int rc = grants_check_tenant(tenant, tenant_bytes, err);
    if (rc == 0)
        rc = collection_drop_tenant(c->collection, tenant, (uint32_t)tenant_bytes, &had, &lsn, err);
    if (rc == 0 && elements)
        *elements = had;
    return rc == 0 && lsn > 0 ? journal_wait(store_journal(c->store), lsn, err) : rc;
}

/* ---- elements by what they are ----------------------------------------------------------------------------------- */

void library_chosen_free(struct chosen *chosen)
{
    filter_unref(chosen->filter);
    free(chosen->names.tenants);
}

int library_choose(struct quire_collection *c, const struct quire_where *where, struct chosen *out,
                   struct quire_error *err)
{
    *out = (struct chosen){0};
    if (where->n_tenants > 0 && !where->tenants)
        return error_set(err, QUIRE_EINVALID, "n_tenants is %u, but tenants is NULL", where->n_tenants);
    int rc = where->filter ? filter_compile(where->filter, where->filter_bytes, collection_schema(c->collection),
                                            &out->filter, err)
                           : 0;
    if (rc == 0 && where->tenants)
        rc = library_scope_of(where->tenants, where->n_tenants, &out->names, err);
    if (rc < 0)
        library_chosen_free(out);
    return rc;
}

const struct tenant_scope *library_chosen_scope(const struct chosen *chosen)
{
    return chosen->names.tenants ? &chosen->names : NULL;
}

/* A scan of what was chosen, on a lane of the pool. */
static int run_scan(struct quire_collection *c, const struct chosen *chosen, struct collection_scan *scan,
                    struct quire_error *err)
{
    struct search_lane *lane;
    int rc = search_lane_pool_take(&c->lanes, 1, &lane, err);
    if (rc < 0)
        return rc;
    scan->collection = c->collection;
    scan->filter = chosen->filter;
    scan->scope = library_chosen_scope(chosen);
    rc = collection_scan(lane, scan, err);
    search_lane_pool_put(&c->lanes, lane);
    return rc;
}

int quire_count(struct quire_collection *c, const struct quire_where *where, uint64_t *n, struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    static const struct quire_where all;
    struct chosen chosen;
    if (!c || !n)
        return error_set(err, QUIRE_EINVALID, "collection and n must be given");
    int rc = library_choose(c, where ? where : &all, &chosen, err);
    if (rc < 0)
        return rc;
    if (!chosen.filter) {
        *n = library_chosen_scope(&chosen) ? collection_count_scope(c->collection, library_chosen_scope(&chosen))
                                           : collection_count(c->collection);
    } else {
        struct collection_scan scan = {.want_keys = false};
        rc = run_scan(c, &chosen, &scan, err);
        if (rc == 0)
            *n = scan.n;
    }
    library_chosen_free(&chosen);
    return rc;
}

struct key_visit {
    int (*visit)(void *context, const void *key, size_t key_bytes);
    void *context;
};

static int visit_key(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    const struct key_visit *v = context;
    (void)located;
    return v->visit(v->context, key, key_bytes);
}

int quire_each_key(struct quire_collection *c, const struct quire_where *where,
                   int (*visit)(void *context, const void *key, size_t key_bytes), void *context,
                   struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    static const struct quire_where all;
    struct chosen chosen;
    if (!c || !visit)
        return error_set(err, QUIRE_EINVALID, "collection and visit must be given");
    int rc = library_choose(c, where ? where : &all, &chosen, err);
    if (rc < 0)
        return rc;
    struct key_visit v = {.visit = visit, .context = context};
    struct collection_scan scan = {.want_keys = true, .visit = visit_key, .context = &v};
    rc = run_scan(c, &chosen, &scan, err);
    library_chosen_free(&chosen);
    return rc;
}

struct removal {
    struct quire_collection *c;
    const struct chosen *chosen;
    uint64_t n, lsn;
    bool stale; /* some could not be removed, as segments changed meanwhile */
    struct quire_error *err;
};

static int remove_match(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    struct removal *r = context;
    struct located matching = *located;
    assert(r->chosen->filter || r->chosen->names.tenants); /* never all of them */
    bool removed = false;
    uint64_t lsn = 0;
    matching.matching = r->chosen->filter;
    int rc = collection_remove(r->c->collection, key, key_bytes, &matching, library_chosen_scope(r->chosen), &removed,
                               &lsn, r->err);
    if (rc == QUIRE_ESTALE) {
        r->stale = true;
        return 0;
    }
    r->n += rc == 0 && removed;
    r->lsn = lsn > r->lsn ? lsn : r->lsn;
    return rc;
}

int quire_remove_where(struct quire_collection *c, const struct quire_where *where, bool dry_run, uint64_t *n,
                       struct quire_error *err)
{
    int here = library_here(c, err);
    if (here < 0)
        return here;
    struct removal removal = {.c = c, .err = err};
    struct chosen chosen;
    if (!c || !where || (!where->filter && !where->tenants))
        return error_set(err, QUIRE_EINVALID, "collection and where, with a filter or tenants, must be given");
    if (dry_run) {
        int counted = quire_count(c, where, &removal.n, err);
        if (counted == 0 && n)
            *n = removal.n;
        return counted;
    }
    int rc = library_choose(c, where, &chosen, err);
    if (rc < 0)
        return rc;
    removal.chosen = &chosen;
    do { /* elements whose place has changed between scan and removal are found by the next scan */
        struct collection_scan scan = {.want_keys = true, .visit = remove_match, .context = &removal};
        removal.stale = false;
        rc = run_scan(c, &chosen, &scan, err);
    } while (rc == 0 && removal.stale);
    library_chosen_free(&chosen);
    if (n)
        *n = removal.n;
    return rc == 0 && removal.lsn > 0 ? journal_wait(store_journal(c->store), removal.lsn, err) : rc;
}
