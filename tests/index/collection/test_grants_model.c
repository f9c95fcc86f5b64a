/*
 * test_grants_model.c - random writes by users of tenants and by users who see all, against a model in memory.
 *
 * After each batch of puts, removals, grants, revocations, changed attributes and dropped tenants, with seals, merges,
 * checkpoints and restarts between them, every way to look at the collection is compared with the model under random
 * scopes and filters: searches (exact ones to the last element, others never with a stranger's row, and with min(k,
 * matches) of the right ones), single elements, counts, scans, ranges of names, tenants.
 *
 * Of dropped tenants' elements those that nobody else has may be seen for a while by who sees all, never by others.
 */
#include "index/attribute/filter.h"
#include "index/collection/collection_range.h"
#include "index/search/search_lane.h"
#include "index/store/store_priv.h"
#include "io/random.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 420, TENANTS = 5, BATCH = 120, SPARSE = 97 };

struct element {
    uint32_t version; /* 0: there is none */
    uint32_t number;  /* of its attributes; 0: none */
    uint8_t grants;   /* a bit per tenant */
    bool ghost;       /* its tenants were dropped: gone, or on its way */
};

struct model {
    struct store *store;
    struct collection *c;
    struct support_lane lane;
    struct search_lane scan_lane;
    struct random random;
    char *path;
    struct element elements[KEYS];
};

static uint32_t below(struct model *m, uint32_t n)
{
    return (uint32_t)random_below(&m->random, n);
}

/* ---- what is written --------------------------------------------------------------------------------------------- */

static uint32_t name_of(uint32_t key, char out[16])
{
    return (uint32_t)snprintf(out, 16, "key-%u", key);
}

static const char *colour_of(uint32_t number)
{
    return (const char *[]){"red", "green", "blue", "grey"}[number % 4];
}

static uint32_t json_of(uint32_t number, char out[96])
{
    if (number == 0)
        return 0;
    if (number % SPARSE == 0)
        return (uint32_t)snprintf(out, 96, "{\"c\":\"%s\",\"n\":%u}", colour_of(number), number);
    return (uint32_t)snprintf(out, 96, "{\"c\":\"%s\",\"n\":%u,\"m\":%u}", colour_of(number), number,
                              number * 7919 % 1000);
}

struct scope {
    struct tenant_scope scope;
    struct grant grants[TENANTS];
    char names[TENANTS][8];
    uint8_t mask;
};

static void scope_of(uint8_t mask, struct scope *out)
{
    *out = (struct scope){.mask = mask};
    out->scope.tenants = out->grants;
    for (uint32_t i = 0; i < TENANTS; i++)
        if (mask >> i & 1) {
            char *name = out->names[out->scope.n];
            uint32_t n = (uint32_t)snprintf(name, 8, "t%u", i);
            out->grants[out->scope.n++] = (struct grant){.name = name, .bytes = n, .generation = 77};
        }
}

/* 0: who sees all, with *scope untouched; otherwise one to three tenants. */
static bool random_scope(struct model *m, struct scope *out)
{
    uint8_t mask = 0;
    if (below(m, 3) == 0)
        return false;
    for (uint32_t i = below(m, 3) + 1; i > 0; i--)
        mask = (uint8_t)(mask | 1u << below(m, TENANTS));
    scope_of(mask, out);
    return true;
}

/* A tenant, or with `one_of` > 1 often none. */
static uint8_t some_tenant(struct model *m, uint32_t one_of)
{
    unsigned mask = below(m, one_of) ? 0u : 1u << below(m, TENANTS);
    return (uint8_t)mask;
}

static bool is_there(const struct element *e)
{
    return e->version && !e->ghost;
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

struct old {
    struct located located;
    char *text;
    uint32_t bytes;
    float vector[SUPPORT_DIM];
    bool done, in_memory;
    int code;
};

static void on_old(struct collection_fetch *f)
{
    struct old *old = f->owner;
    old->done = true;
    old->code = f->code;
    old->located = f->located;
    old->in_memory = f->in_memory;
    if (f->code < 0 || f->in_memory)
        return;
    memcpy(old->vector, f->vector, sizeof old->vector);
    old->bytes = f->attribute_bytes;
    old->text = old->bytes ? malloc(old->bytes) : NULL;
    if (old->text)
        memcpy(old->text, f->attributes, old->bytes);
}

static void run_until(struct model *m, const bool *done)
{
    while (!*done)
        engine_poll(m->lane.engine, 1, 10000000);
    searcher_drop_retired(m->lane.searcher);
}

static struct old ask(struct model *m, const char *name, uint32_t bytes)
{
    struct old old = {.done = false};
    struct collection_fetch fetch = {.collection = m->c,
                                     .key = name,
                                     .key_bytes = bytes,
                                     .want_vector = true,
                                     .want_attributes = true,
                                     .want_grants = true,
                                     .done = on_old,
                                     .owner = &old};
    assert_int_equal(collection_fetch_start(m->lane.searcher, &fetch, NULL), 0);
    run_until(m, &old.done);
    return old;
}

/* What a put is to answer, and what it makes of the element. */
static int expect_put(const struct element *before, const struct collection_put *put, const struct scope *scope,
                      uint8_t given, struct element *after)
{
    bool there = is_there(before);
    if (scope && there && !(before->grants & scope->mask))
        return QUIRE_EPERM;
    if (scope && (given & ~scope->mask))
        return QUIRE_EPERM;
    after->grants = (uint8_t)(given | (put->keep_grants && there ? before->grants : 0));
    if (after->grants == 0 && scope && scope->scope.n > 1)
        return QUIRE_EINVALID;
    if (after->grants == 0 && scope)
        after->grants = scope->mask;
    if (put->keep_attributes)
        after->number = there ? before->number : 0;
    return 0;
}

static void put_one(struct model *m)
{
    uint32_t key = below(m, KEYS);
    struct element *e = &m->elements[key], after = {.version = below(m, 1u << 20) + 1, .number = below(m, 2000)};
    struct scope scope, given;
    struct quire_error err = {0};
    char name[16], json[96];
    float vector[SUPPORT_DIM];
    bool scoped = random_scope(m, &scope);
    uint8_t mask = some_tenant(m, 3);
    if (!scoped)
        mask = mask | some_tenant(m, 2);
    scope_of(mask, &given);
    support_vector(key, after.version, vector);
    struct collection_put put = {.key = name,
                                 .key_bytes = name_of(key, name),
                                 .vector = vector,
                                 .grants = given.grants,
                                 .n_grants = given.scope.n,
                                 .keep_grants = below(m, 2),
                                 .keep_attributes = below(m, 2),
                                 .scope = scoped ? &scope.scope : NULL};
    put.attribute_bytes = json_of(after.number, json);
    put.attributes = put.attribute_bytes ? json : NULL;
    int expected = expect_put(e, &put, scoped ? &scope : NULL, mask, &after);
    struct old old = ask(m, name, put.key_bytes);
    put.located = old.located;
    put.old_text = old.text;
    put.old_text_bytes = old.bytes;
    int rc = collection_put(m->c, &put, &err);
    free(old.text);
    if (rc != expected)
        fail_msg("put of %s answers %d (%s), expected %d", name, rc, err.message, expected);
    if (rc < 0)
        return;
    assert_true(e->ghost || put.was_new == (e->version == 0));
    *e = after;
}

static void remove_one(struct model *m)
{
    uint32_t key = below(m, KEYS), n;
    struct element *e = &m->elements[key];
    struct scope scope;
    char name[16];
    bool scoped = random_scope(m, &scope), removed = false;
    uint64_t lsn;
    n = name_of(key, name);
    struct old old = ask(m, name, n);
    free(old.text);
    assert_int_equal(collection_remove(m->c, name, n, &old.located, scoped ? &scope.scope : NULL, &removed, &lsn, NULL),
                     0);
    bool expected = is_there(e) && (!scoped || (e->grants & scope.mask));
    if (e->ghost && !scoped)
        expected = removed; /* it may have been buried */
    assert_int_equal(removed, expected);
    if (removed)
        *e = (struct element){.version = 0};
}

/* In memory, or sealed and put again. */
static int change(struct model *m, struct collection_change *asked)
{
    struct quire_error err = {0};
    int rc = collection_change(m->c, asked, &err);
    if (rc != QUIRE_ENOTFOUND)
        return rc;
    struct old old = ask(m, asked->key, asked->key_bytes);
    struct collection_put put = {.key = asked->key,
                                 .key_bytes = asked->key_bytes,
                                 .vector = old.vector,
                                 .keep_attributes = true,
                                 .keep_grants = true,
                                 .condition = PUT_ONLY_SEALED,
                                 .located = old.located};
    char *text = NULL;
    rc = old.code < 0 || old.in_memory ? QUIRE_ENOTFOUND
                                       : collection_changed_text(m->c, asked, old.text, old.bytes, &text,
                                                                 &put.old_text_bytes, &asked->n_changed, &err);
    put.old_text = text;
    if (rc == 0)
        rc = collection_put(m->c, &put, &err);
    free(text);
    free(old.text);
    return rc;
}

static void change_one(struct model *m)
{
    uint32_t key = below(m, KEYS), number = below(m, 2000);
    struct element *e = &m->elements[key];
    struct scope scope, granted, revoked;
    char name[16], json[96];
    bool scoped = random_scope(m, &scope);
    struct collection_change asked = {.key = name, .key_bytes = name_of(key, name), .set_attributes = below(m, 2)};
    scope_of(some_tenant(m, 2), &granted);
    scope_of(some_tenant(m, 2), &revoked);
    asked.grant = granted.grants;
    asked.n_grant = granted.scope.n;
    asked.revoke = revoked.grants;
    asked.n_revoke = revoked.scope.n;
    asked.scope = scoped ? &scope.scope : NULL;
    asked.attribute_bytes = json_of(number, json);
    asked.attributes = asked.attribute_bytes ? json : NULL;
    int expected = 0;
    if (!is_there(e) || (scoped && !(e->grants & scope.mask)))
        expected = QUIRE_ENOTFOUND;
    else if (scoped && ((granted.mask | revoked.mask) & ~scope.mask))
        expected = QUIRE_EPERM;
    int rc = change(m, &asked);
    if (rc != expected)
        fail_msg("a change of %s answers %d, expected %d", name, rc, expected);
    if (rc < 0)
        return;
    e->grants = (uint8_t)((e->grants | granted.mask) & ~revoked.mask);
    if (asked.set_attributes)
        e->number = number;
}

static void drop_one(struct model *m)
{
    uint32_t tenant = below(m, TENANTS);
    struct scope scope;
    uint64_t elements, lsn, expected = 0;
    scope_of((uint8_t)(1u << tenant), &scope);
    assert_int_equal(collection_drop_tenant(m->c, scope.grants[0].name, scope.grants[0].bytes, &elements, &lsn, NULL),
                     0);
    for (uint32_t key = 0; key < KEYS; key++) {
        struct element *e = &m->elements[key];
        if (!is_there(e) || !(e->grants & scope.mask))
            continue;
        expected++;
        e->grants = (uint8_t)(e->grants & ~scope.mask);
        e->ghost = e->grants == 0;
    }
    assert_int_equal(elements, expected);
    assert_int_equal(lsn != 0, expected != 0);
}

/* ---- filters ----------------------------------------------------------------------------------------------------- */

static uint32_t m_of(uint32_t number)
{
    return number * 7919 % 1000;
}

static bool is_red(uint32_t key, uint32_t n)
{
    return (void)key, n && n % 4 == 0;
}

static bool is_small(uint32_t key, uint32_t n)
{
    return (void)key, n && n < 100;
}

static bool is_listed(uint32_t key, uint32_t n)
{
    return (void)key, n == 5 || n == 700 || n == 1500;
}

static bool is_both(uint32_t key, uint32_t n)
{
    return (void)key, n && (n % 4 == 1 || n >= 1500) && !(n >= 1800);
}

static bool is_not_red(uint32_t key, uint32_t n)
{
    return (void)key, n && n % 4 != 0;
}

static bool is_residual(uint32_t key, uint32_t n)
{
    return (void)key, n && n % SPARSE && m_of(n) > n;
}

static bool is_rare_residual(uint32_t key, uint32_t n)
{
    return (void)key, n && n % SPARSE && n % 4 == 2 && m_of(n) > 10 * n;
}

static bool lacks_m(uint32_t key, uint32_t n)
{
    return (void)key, !n || n % SPARSE == 0;
}

static bool is_named(uint32_t key, uint32_t n)
{
    return (void)n, key == 3 || key == 77 || key == 200;
}

static bool is_named_or_red(uint32_t key, uint32_t n)
{
    return n && (key == 3 || key == 77 || n % 4 == 0);
}

static bool is_named_twice(uint32_t key, uint32_t n)
{
    return n && ((key == 3 && n % 4 == 0) || (key == 77 && n % 4 != 0));
}

static bool is_nothing(uint32_t key, uint32_t n)
{
    return (void)key, (void)n, false;
}

static const struct expression {
    const char *text;
    bool (*matches)(uint32_t key, uint32_t number);
} expressions[] = {{".c == \"red\"", is_red},
                   {".n < 100", is_small},
                   {".n in [5, 700, 1500]", is_listed},
                   {"(.c == \"green\" or .n >= 1500) and not (.n >= 1800)", is_both},
                   {"not (.c == \"red\")", is_not_red},
                   {".m > .n", is_residual},
                   {".m > .n * 10 and .c == 'blue'", is_rare_residual},
                   {"not (exists .m)", lacks_m},
                   {"key in [\"key-3\", \"key-77\", \"key-200\", \"nobody\"]", is_named},
                   {"key in [\"key-3\", \"key-77\"] or .c == \"red\"", is_named_or_red},
                   {"(key == \"key-3\" and .c == \"red\") or (key == \"key-77\" and .c != \"red\")", is_named_twice},
                   {".n > 100000", is_nothing}};

/* ---- looking ----------------------------------------------------------------------------------------------------- */

struct question {
    struct model *m;
    struct scope scope;
    bool scoped, done;
    const struct expression *expression; /* NULL: all */
    struct filter *filter;
    float query[SUPPORT_DIM];
    struct quire_search_options options;
    bool seen[KEYS];
    uint32_t n, n_ghosts;
    float last;
};

static bool matches(const struct question *q, uint32_t key)
{
    const struct element *e = &q->m->elements[key];
    return e->version && (!q->scoped || (e->grants & q->scope.mask)) &&
           (!q->expression || q->expression->matches(key, e->number));
}

static uint32_t count(const struct question *q)
{
    uint32_t n = 0;
    for (uint32_t key = 0; key < KEYS; key++)
        n += is_there(&q->m->elements[key]) && matches(q, key);
    return n;
}

static float distance_to(const struct question *q, uint32_t key)
{
    float vector[SUPPORT_DIM], sum = 0;
    support_vector(key, q->m->elements[key].version, vector);
    for (uint32_t i = 0; i < SUPPORT_DIM; i++)
        sum += (vector[i] - q->query[i]) * (vector[i] - q->query[i]);
    return sum;
}

static const char *text_of(const struct question *q)
{
    return q->expression ? q->expression->text : "(all)";
}

/* An element that was answered, once, and may be. */
static uint32_t see(struct question *q, const void *name, uint32_t bytes)
{
    char text[16] = "";
    unsigned key = KEYS;
    assert_true(bytes < sizeof text);
    memcpy(text, name, bytes);
    if (sscanf(text, "key-%u", &key) != 1 || key >= KEYS || q->seen[key] || !matches(q, key))
        fail_msg("%s under %s and scope %x is answered, and should not be", text, text_of(q),
                 q->scoped ? q->scope.mask : 0u);
    q->seen[key] = true;
    q->n++;
    q->n_ghosts += q->m->elements[key].ghost;
    return key;
}

static void on_search(struct collection_search *s)
{
    struct question *q = s->owner;
    q->done = true;
    if (s->code < 0)
        fail_msg("a search under %s fails: %s", text_of(q), s->error.message);
    for (uint32_t i = 0; i < s->n_hits; i++) {
        const struct collection_hit *hit = &s->hits[i];
        char json[96];
        uint32_t key = see(q, hit->key, hit->key_bytes), n = json_of(q->m->elements[key].number, json);
        assert_true(hit->distance > distance_to(q, key) - 1e-4f && hit->distance < distance_to(q, key) + 1e-4f);
        q->last = hit->distance;
        if (s->want_attributes) {
            assert_int_equal(hit->attribute_bytes, n);
            assert_true(n == 0 || memcmp(hit->attributes, json, n) == 0);
        }
    }
}

/* Of the present state; with `exact` the nearest ones, all of them. */
static void search(struct question *q, uint32_t k, bool exact, uint32_t effort)
{
    struct collection_search s = {.collection = q->m->c,
                                  .query = q->query,
                                  .filter = q->filter,
                                  .scope = q->scoped ? &q->scope.scope : NULL,
                                  .want_attributes = below(q->m, 2),
                                  .done = on_search,
                                  .owner = q};
    quire_search_options_init(&s.options);
    s.options.k = k;
    s.options.exact = exact;
    s.options.effort = effort;
    support_vector(below(q->m, 1000), 7, q->query);
    memset(q->seen, 0, sizeof q->seen);
    q->done = false;
    q->n = q->n_ghosts = 0;
    assert_int_equal(collection_search_start(q->m->lane.searcher, &s, NULL), 0);
    run_until(q->m, &q->done);
    uint32_t all = count(q), least = k < all ? k : all;
    if (q->n < least || q->n > k)
        fail_msg("%u of %u hits under %s and scope %x, k %u, exact %d", q->n, least, text_of(q),
                 q->scoped ? q->scope.mask : 0u, k, exact);
    for (uint32_t key = 0; exact && key < KEYS; key++)
        if (!q->seen[key] && is_there(&q->m->elements[key]) && matches(q, key) && q->n)
            assert_true(distance_to(q, key) > q->last - 1e-4f && q->n == k);
}

static void on_fetched(struct collection_fetch *f)
{
    struct question *q = f->owner;
    unsigned key = 0;
    char json[96];
    q->done = true;
    assert_int_equal(sscanf(f->key, "key-%u", &key), 1);
    const struct element *e = &q->m->elements[key];
    q->expression = NULL;
    if (e->ghost && !q->scoped)
        return;
    if (f->code != (is_there(e) && matches(q, key) ? 0 : QUIRE_ENOTFOUND))
        fail_msg("key-%u under scope %x: %d", key, q->scoped ? q->scope.mask : 0u, f->code);
    if (f->code < 0)
        return;
    uint32_t n = json_of(e->number, json);
    assert_int_equal(f->attribute_bytes, n);
    assert_true(n == 0 || memcmp(f->attributes, json, n) == 0);
    for (uint32_t i = 0; i < f->n_links; i++) {
        char text[16] = "";
        assert_true(f->links[i].key_bytes < sizeof text);
        memcpy(text, f->links[i].key, f->links[i].key_bytes);
        assert_int_equal(sscanf(text, "key-%u", &key), 1);
        assert_true(matches(q, key));
    }
}

static void fetch(struct question *q)
{
    char name[16];
    struct collection_fetch f = {.collection = q->m->c,
                                 .key = name,
                                 .key_bytes = name_of(below(q->m, KEYS), name),
                                 .want_attributes = true,
                                 .want_links = below(q->m, 2),
                                 .links_max = 5,
                                 .scope = q->scoped ? &q->scope.scope : NULL,
                                 .done = on_fetched,
                                 .owner = q};
    q->done = false;
    assert_int_equal(collection_fetch_start(q->m->lane.searcher, &f, NULL), 0);
    run_until(q->m, &q->done);
}

static int on_scanned(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    assert_true(located->seen_lsn > 0);
    see(context, key, key_bytes);
    return 0;
}

static void scan(struct question *q, bool want_keys)
{
    struct collection_scan s = {.collection = q->m->c,
                                .filter = q->filter,
                                .scope = q->scoped ? &q->scope.scope : NULL,
                                .want_keys = want_keys,
                                .visit = on_scanned,
                                .context = q};
    struct quire_error err = {0};
    uint32_t ghosts = 0;
    memset(q->seen, 0, sizeof q->seen);
    q->n = q->n_ghosts = 0;
    if (collection_scan(&q->m->scan_lane, &s, &err) < 0)
        fail_msg("scan: %s", err.message);
    for (uint32_t key = 0; key < KEYS; key++)
        ghosts += q->m->elements[key].ghost && matches(q, key);
    if (s.n < count(q) || s.n > count(q) + ghosts)
        fail_msg("a scan under %s counts %llu, the model %u and %u ghosts", text_of(q), (unsigned long long)s.n,
                 count(q), ghosts);
    if (want_keys)
        assert_true(q->n == s.n && q->n - q->n_ghosts == count(q));
    else
        assert_int_equal(q->n, 0);
}

static void range(struct question *q)
{
    struct collection_range r = {
        .first.least = true, .last.greatest = true, .count = KEYS + 5, .scope = q->scoped ? &q->scope.scope : NULL};
    struct quire_error err = {0};
    q->expression = NULL;
    memset(q->seen, 0, sizeof q->seen);
    q->n = q->n_ghosts = 0;
    assert_int_equal(collection_range_read(q->m->c, &r, &err), 0);
    for (uint64_t i = 0; i < r.n; i++)
        see(q, r.keys[i].bytes, r.keys[i].n_bytes);
    assert_int_equal(q->n - q->n_ghosts, count(q));
    collection_range_fini(&r);
}

static void on_place(struct place_request *p)
{
    struct question *q = p->owner;
    q->done = true;
    if (p->code == 0) {
        memset(q->seen, 0, sizeof q->seen);
        see(q, p->key, p->key_bytes);
    }
}

static void places(struct question *q)
{
    uint64_t n = collection_places(q->m->c);
    q->expression = NULL;
    for (uint32_t i = 0; i < 20 && n; i++) {
        struct place_request p = {.collection = q->m->c,
                                  .place = random_below(&q->m->random, n),
                                  .scope = q->scoped ? &q->scope.scope : NULL,
                                  .done = on_place,
                                  .owner = q};
        q->done = false;
        assert_int_equal(collection_place_start(q->m->lane.searcher, &p, NULL), 0);
        run_until(q->m, &q->done);
    }
}

static void on_tenant(void *context, const char *name, uint32_t bytes, uint64_t elements)
{
    uint64_t *left = context;
    assert_true(bytes == 2 && name[0] == 't');
    uint32_t tenant = (uint32_t)(name[1] - '0');
    assert_true(tenant < TENANTS);
    assert_int_equal(elements, left[tenant]);
    left[tenant] = 0;
}

static void tenants(struct model *m)
{
    uint64_t left[TENANTS] = {0};
    for (uint32_t key = 0; key < KEYS; key++)
        for (uint32_t i = 0; i < TENANTS; i++)
            left[i] += is_there(&m->elements[key]) && (m->elements[key].grants >> i & 1);
    assert_int_equal(collection_each_tenant(m->c, on_tenant, left, NULL), 0);
    for (uint32_t i = 0; i < TENANTS; i++)
        assert_int_equal(left[i], 0);
}

static void look(struct model *m)
{
    struct question q = {.m = m};
    struct quire_error err = {0};
    q.scoped = random_scope(m, &q.scope);
    q.expression = below(m, 5) ? &expressions[below(m, sizeof expressions / sizeof *expressions)] : NULL;
    if (q.expression &&
        filter_compile(q.expression->text, strlen(q.expression->text), collection_schema(m->c), &q.filter, &err) < 0)
        fail_msg("%s: %s", q.expression->text, err.message);
    search(&q, KEYS + 10, true, 0);
    search(&q, 1 + below(m, 12), true, 0);
    search(&q, 1 + below(m, 12), false, 5 + below(m, 60));
    search(&q, KEYS + 10, false, 0);
    scan(&q, below(m, 2));
    if (q.scoped) {
        const struct expression *expression = q.expression;
        q.expression = NULL;
        assert_int_equal(collection_count_scope(m->c, &q.scope.scope), count(&q));
        q.expression = expression;
    }
    filter_unref(q.filter);
    q.filter = NULL;
    fetch(&q);
    range(&q);
    places(&q);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void open_all(struct model *m, uint64_t uid)
{
    struct store_options options = support_store_options(NULL);
    m->store = support_store_open(m->path, &options);
    m->c = uid ? store_find(m->store, uid) : support_create(m->store);
    assert_non_null(m->c);
    support_lane_open(&m->lane, NULL);
    m->scan_lane = (struct search_lane){.engine = m->lane.engine, .searcher = m->lane.searcher, .tasks = 8};
}

static void close_all(struct model *m)
{
    support_lane_close(&m->lane);
    collection_unref(m->c);
    support_store_close(m->store);
}

/* Everything that is to be done in the background has been. */
static void settle(struct model *m)
{
    assert_int_equal(store_settle(m->store, NULL), 0);
    uint64_t n = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        if (m->elements[key].ghost)
            m->elements[key] = (struct element){.version = 0};
        n += m->elements[key].version != 0;
    }
    assert_int_equal(collection_count(m->c), n);
}

static void upkeep(struct model *m)
{
    uint64_t uid = collection_uid(m->c);
    switch (below(m, 7)) {
    case 0:
    case 1:
        assert_int_equal(store_seal(m->store, m->c, NULL), 0);
        break;
    case 2:
        assert_int_equal(store_compact(m->store, m->c, NULL), 0);
        break;
    case 3:
        settle(m);
        break;
    case 4:
        assert_int_equal(store_checkpoint(m->store, NULL), 0);
        break;
    case 5:
        close_all(m);
        open_all(m, uid);
        break;
    default:
        break;
    }
}

static void write_some(struct model *m, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t what = below(m, 100);
        if (what < 60)
            put_one(m);
        else if (what < 72)
            remove_one(m);
        else if (what < 99)
            change_one(m);
        else
            drop_one(m);
    }
}

static void run(uint64_t seed, enum quire_index_kind kind, uint32_t batches)
{
    struct model *m = calloc(1, sizeof *m);
    char *folder = support_folder_make();
    assert_non_null(m);
    support_kind = kind;
    m->path = support_path(folder, "data");
    random_init(&m->random, seed);
    open_all(m, 0);
    write_some(m, 3 * BATCH);
    for (uint32_t i = 0; i < batches; i++) {
        write_some(m, below(m, BATCH));
        look(m);
        tenants(m);
        upkeep(m);
        look(m);
    }
    settle(m);
    look(m);
    close_all(m);
    struct quire_error err = {0};
    if (store_verify(&(struct store_check_request){.path = m->path}, NULL, &err) < 0)
        fail_msg("verify: %s", err.message);
    free(m->path);
    support_folder_remove(folder);
    free(m);
}

static const uint32_t BATCHES = SANITIZED ? 8 : 25;

static void page_graphs_answer_as_the_model(void **in)
{
    (void)in;
    for (uint64_t seed = 1; seed <= 3; seed++)
        run(seed, QUIRE_INDEX_PAGEGRAPH, BATCHES);
}

static void inverted_lists_answer_as_the_model(void **in)
{
    (void)in;
    for (uint64_t seed = 11; seed <= 13; seed++)
        run(seed, QUIRE_INDEX_SPANN, BATCHES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_graphs_answer_as_the_model),
        cmocka_unit_test(inverted_lists_answer_as_the_model),
    };
    return cmocka_run_group_tests_name("grants_model", tests, NULL, NULL);
}
