/*
 * cmd_cache_manage.c - semantic caches as wholes: SC.CREATE, SC.DROP, SC.CAT.SET, GET, DEL, SC.LOAD, SC.INVALIDATE,
 * SC.EXPORT, SC.IMPORT.
 *
 * SC.INVALIDATE takes exactly one selector, and none is an error: a request whose condition got lost on its way must
 * not remove everything (SC.INVALIDATE cache ALL does). What looks at every entry runs on the worker; requests that its
 * client sent behind it wait.
 *
 * SC.CAT.GET shows settings as names and values, where the values of lists are words with blanks between them.
 * SC.CAT.SET parts its arguments at blanks, so that it takes what SC.CAT.GET has shown.
 */
#include "cache/policy/category.h"
#include "io/error.h"
#include "server/cache/cache_call.h"
#include "server/cache/cmd_caches.h"
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 256 }; /* of SC.CAT.SET */

/* ---- SC.CREATE, SC.DROP ------------------------------------------------------------------------------------------ */

/* Options of SC.CREATE as they are taken: args[at] is the word. */
struct creating {
    const struct resp_arg *args;
    uint32_t n, at;
    struct cache_config config;
};

static bool is_create_option(struct resp_arg arg)
{
    static const char *const words[] = {"DIM", "TYPE", "ENCODER", "MEMORY", "DISK", "SCOPE", "REQUIRESCOPE"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (arg_is(arg, words[i]))
            return true;
    return false;
}

static int take_create_option(struct creating *t, struct quire_error *err)
{
    struct resp_arg word = t->args[t->at];
    uint64_t dim = t->config.dim;
    int rc;
    if (!is_create_option(word))
        return error_set(err, QUIRE_EINVALID, "syntax error at '%.*s': no option of SC.CREATE", ARG_SHOWN(word, 64u));
    if (arg_is(word, "SCOPE")) {
        uint32_t first = ++t->at; /* a key whatever it says */
        for (; t->at < t->n && (t->at == first || !is_create_option(t->args[t->at])); t->at++) {
            if (t->config.n_scope_keys == CACHE_SCOPE_KEYS_MAX)
                return error_set(err, QUIRE_ELIMIT, "SCOPE has more than %u keys: join some of them to one",
                                 CACHE_SCOPE_KEYS_MAX);
            t->config.scope_keys[t->config.n_scope_keys++] = cache_arg_bytes(t->args[t->at]);
        }
        return t->at == first ? error_set(err, QUIRE_EINVALID, "syntax error: SCOPE needs keys") : 0;
    }
    if (arg_is(word, "REQUIRESCOPE")) {
        t->config.require_scope = true;
        t->at++;
        return 0;
    }
    if (t->at + 1 >= t->n)
        return error_set(err, QUIRE_EINVALID, "syntax error: %.*s needs a value", ARG_SHOWN(word, 64u));
    struct resp_arg value = t->args[t->at + 1];
    t->at += 2;
    if (arg_is(word, "TYPE")) {
        static const enum quire_type types[] = {QUIRE_TYPE_F32, QUIRE_TYPE_F16, QUIRE_TYPE_I8};
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (arg_is(value, quire_type_name(types[i]))) {
                t->config.type = types[i];
                return 0;
            }
        return error_set(err, QUIRE_EINVALID, "TYPE is '%.*s': say f32, f16 or i8", ARG_SHOWN(value, 64u));
    }
    if (arg_is(word, "MEMORY"))
        return cache_arg_integer("MEMORY", value, 1, 1ull << 46, &t->config.memory_bytes, err);
    if (arg_is(word, "DISK"))
        return cache_arg_integer("DISK", value, 1, 1ull << 50, &t->config.disk_bytes, err);
    if (arg_is(word, "DIM")) {
        rc = cache_arg_integer("DIM", value, 1, QUIRE_DIM_MAX, &dim, err);
        t->config.dim = (uint32_t)dim;
        return rc;
    }
    t->config.encoder = cache_arg_bytes(value);
    return 0;
}

void cmd_sc_create(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct creating t = {.args = args, .n = n, .at = 2, .config.name = cache_arg_bytes(args[1])};
    struct caches *caches = c->lane->service->caches;
    uint64_t lsn = 0;
    int rc = caches ? 0
                    : error_set(&err, QUIRE_EINVALID,
                                "semantic caches need a data folder: start the server with --dir FOLDER");
    while (rc == 0 && t.at < n)
        rc = take_create_option(&t, &err);
    if (rc == 0 && t.config.dim == 0)
        rc = error_set(&err, QUIRE_EINVALID, "DIM is missing: how many dimensions the encoder's vectors have");
    if (rc == 0)
        rc = caches_add(caches, &t.config, &lsn, &err);
    cache_reply_ok(c, rc, lsn, &err);
}

void cmd_sc_drop(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t lsn = 0;
    struct caches *caches = c->lane->service->caches;
    (void)n;
    int rc = caches ? caches_drop(caches, cache_arg_bytes(args[1]), &lsn, &err) : QUIRE_ENOTFOUND;
    cache_reply_whether(c, rc, lsn, &err);
}

/* ---- SC.CAT.SET, GET, DEL ---------------------------------------------------------------------------------------- */

/* Words of args[0..n), parted at blanks. */
static int part_words(const struct resp_arg *args, uint32_t n, struct quire_bytes words[WORDS_MAX], uint32_t *n_words,
                      struct quire_error *err)
{
    *n_words = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *at = (const char *)args[i].data, *end = at + args[i].bytes;
        while (at < end) {
            const char *begin = at;
            while (at < end && *at != ' ')
                at++;
            if (at > begin && *n_words == WORDS_MAX)
                return error_set(err, QUIRE_ELIMIT, "more than %d words of settings: set them in several calls",
                                 WORDS_MAX);
            if (at > begin)
                words[(*n_words)++] = (struct quire_bytes){begin, (size_t)(at - begin)};
            at += at < end;
        }
    }
    return 0;
}

void cmd_sc_cat_set(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct quire_bytes words[WORDS_MAX];
    uint32_t n_words;
    uint64_t lsn = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = part_words(args + 3, n - 3, words, &n_words, &err);
    if (rc == 0)
        rc = cache_set_category(cache, cache_arg_bytes(args[2]), words, n_words, &lsn, &err);
    cache_reply_ok(c, rc, lsn, &err);
    cache_unref(cache);
}

struct settings_text {
    struct resp_buffer text;
    size_t n;
};

static void add_setting(void *context, const char *word, const char *value)
{
    struct settings_text *settings = context;
    cache_field_text(&settings->text, word, value);
    settings->n++;
}

void cmd_sc_cat_get(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct category_settings settings;
    struct settings_text shown = {.text.protocol = c->protocol};
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    if (cache_get_category(cache, cache_arg_bytes(args[2]), &settings, &err) < 0) {
        cache_reply_error(c, &err);
    } else {
        struct resp_buffer *out = caller_reply(c);
        category_each(&settings, add_setting, &shown);
        resp_map(out, shown.n);
        resp_raw(out, shown.text.data, shown.text.bytes);
        out->failed = out->failed || shown.text.failed;
        resp_buffer_fini(&shown.text);
    }
    cache_unref(cache);
}

void cmd_sc_cat_del(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t lsn = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    int rc = cache_drop_category(cache, cache_arg_bytes(args[2]), &lsn, &err);
    cache_reply_whether(c, rc, lsn, &err);
    cache_unref(cache);
}

/* ---- SC.LOAD, SC.EXPORT, SC.IMPORT ------------------------------------------------------------------------------- */

void cmd_sc_load(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    double x, seconds = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_option(args, n, 4, "EX", "SC.LOAD cache model x [EX seconds]", &err);
    if (rc == 0)
        rc = cache_arg_number("the load", args[3], 1, &x, &err);
    if (rc == 0 && n == 6)
        rc = cache_arg_number("EX", args[5], 86400, &seconds, &err);
    if (rc == 0 && n == 6 && seconds * 1000 < 1)
        rc = error_set(&err, QUIRE_ERANGE, "EX is '%.*s': give at least 0.001 seconds", ARG_SHOWN(args[5], 64u));
    if (rc == 0)
        rc = cache_load(cache, cache_arg_bytes(args[2]), x, (uint64_t)(seconds * 1000), &err);
    cache_reply_ok(c, rc, 0, &err);
    cache_unref(cache);
}

void cmd_sc_export(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    void *bytes = NULL;
    size_t n_bytes = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    if (cache_export(cache, &bytes, &n_bytes, &err) < 0)
        cache_reply_error(c, &err);
    else
        resp_bulk(caller_reply(c), bytes, n_bytes);
    free(bytes);
    cache_unref(cache);
}

void cmd_sc_import(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    int taken = cache_import(cache, args[2].data, args[2].bytes, &err);
    cache_reply_number(c, taken, (uint64_t)taken, 0, &err);
    cache_unref(cache);
}

/* ---- SC.INVALIDATE ----------------------------------------------------------------------------------------------- */

/* What to invalidate, as it is taken; the selector points into it. */
struct invalidation {
    struct quire_cache_selector selector;
    struct quire_bytes names[CACHE_TAGS_MAX];
    uint64_t *ids; /* owned */
    struct quire_bytes vector;
    bool dry_run;
};

/* Selectors by their word; values: how many follow, 0: one or more. */
static const struct selector {
    const char *word;
    enum quire_cache_by by;
    int values;
    bool at_once; /* does not look at every entry */
} selectors[] = {{"ID", QUIRE_CACHE_BY_ID, 0, true},        {"TAG", QUIRE_CACHE_BY_TAG, 0, false},
                 {"CAT", QUIRE_CACHE_BY_CATEGORY, 1, true}, {"SCOPE", QUIRE_CACHE_BY_SCOPE, 2, false},
                 {"MODEL", QUIRE_CACHE_BY_MODEL, 1, false}, {"ENCODER", QUIRE_CACHE_BY_ENCODER, 1, false},
                 {"NEAR", QUIRE_CACHE_BY_NEAR, 2, false},   {"BEFORE", QUIRE_CACHE_BY_BEFORE, 1, false},
                 {"ALL", QUIRE_CACHE_BY_ALL, -1, true}};

static const struct selector *find_selector(struct resp_arg arg)
{
    for (size_t i = 0; i < sizeof selectors / sizeof *selectors; i++)
        if (arg_is(arg, selectors[i].word))
            return &selectors[i];
    return NULL;
}

/* The values of a selector: n of them. */
static int take_values(struct invalidation *v, const struct cache_config *config, const struct resp_arg *args,
                       uint32_t n, struct quire_error *err)
{
    int rc = 0;
    switch (v->selector.by) {
    case QUIRE_CACHE_BY_ID:
        v->ids = malloc(n * sizeof *v->ids);
        if (!v->ids)
            return error_set(err, QUIRE_ENOMEM, "no memory for %u ids", n);
        for (uint32_t i = 0; i < n && rc == 0; i++)
            rc = cache_arg_id(args[i], &v->ids[i], err);
        v->selector.ids = v->ids;
        v->selector.n = n;
        return rc;
    case QUIRE_CACHE_BY_NEAR:
        v->vector = cache_arg_bytes(args[0]);
        rc = cache_check_vector(config, args[0].bytes, err);
        return rc == 0 ? cache_arg_number("the similarity", args[1], 1, &v->selector.similarity, err) : rc;
    case QUIRE_CACHE_BY_BEFORE:
        return cache_arg_integer("BEFORE", args[0], 0, CACHE_TTL_MS_MAX, &v->selector.age_ms, err);
    case QUIRE_CACHE_BY_ALL:
        return 0;
    case QUIRE_CACHE_BY_TAG:
    case QUIRE_CACHE_BY_CATEGORY:
    case QUIRE_CACHE_BY_SCOPE:
    case QUIRE_CACHE_BY_MODEL:
    case QUIRE_CACHE_BY_ENCODER:
        break;
    }
    if (n > CACHE_TAGS_MAX)
        return error_set(err, QUIRE_ELIMIT, "%u names, more than %u: invalidate them in several calls", n,
                         CACHE_TAGS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (v->selector.by == QUIRE_CACHE_BY_TAG && i > 0 && find_selector(args[i]))
            return error_set(err, QUIRE_EINVALID,
                             "syntax error at '%.*s': give one selector (a tag of this name must come first)",
                             ARG_SHOWN(args[i], 64u));
        v->names[i] = cache_arg_bytes(args[i]);
    }
    v->selector.names = v->names;
    v->selector.n = n;
    return 0;
}

/* args: what follows the name of the cache. DRYRUN stands first or last; what a selector needs is its own, whatever it
 * says. */
static int take_invalidation(struct invalidation *v, const struct cache_config *config, const struct resp_arg *args,
                             uint32_t n, const struct selector **which, struct quire_error *err)
{
    v->dry_run = n > 0 && arg_is(args[0], "DRYRUN");
    args += v->dry_run;
    n -= v->dry_run;
    const struct selector *s = n > 0 ? find_selector(args[0]) : NULL;
    if (n == 0)
        return error_set(err, QUIRE_EINVALID,
                         "SC.INVALIDATE needs to be told what: ID, TAG, CAT, SCOPE, MODEL, ENCODER, NEAR, BEFORE, or "
                         "ALL for everything");
    if (!s)
        return error_set(err, QUIRE_EINVALID,
                         "syntax error at '%.*s': say ID, TAG, CAT, SCOPE, MODEL, ENCODER, NEAR, BEFORE or ALL",
                         ARG_SHOWN(args[0], 64u));
    uint32_t least = s->values < 0 ? 0 : s->values ? (uint32_t)s->values : 1, has = n - 1;
    if (has > least && arg_is(args[n - 1], "DRYRUN")) {
        v->dry_run = true;
        has--;
    }
    if (has < least)
        return error_set(err, QUIRE_EINVALID, "syntax error: %s needs %s", s->word,
                         least == 2 ? "two values" : "a value");
    if (s->values != 0 && has > least)
        return error_set(err, QUIRE_EINVALID, "syntax error at '%.*s': give one selector",
                         ARG_SHOWN(args[1 + least], 64u));
    v->selector.by = s->by;
    *which = s;
    return take_values(v, config, args + 1, has, err);
}

struct invalidate_call {
    struct worker_call base;
    struct cache *cache; /* a reference */
    struct invalidation what;
    uint64_t n;
    _Alignas(8) uint8_t bytes[]; /* vector, then names */
};

static void invalidate(struct worker_call *base)
{
    struct invalidate_call *call = (struct invalidate_call *)base;
    base->code = cache_invalidate(call->cache, base->base.lane->service->cache_scratch, &call->what.selector,
                                  call->what.dry_run, &call->n, &base->lsn, &base->error);
}

static void reply_invalidate(struct worker_call *base)
{
    struct invalidate_call *call = (struct invalidate_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    if (base->code < 0)
        resp_quire_error(out, &base->error);
    else
        resp_integer(out, (long long)call->n);
    base->base.pending.lsn = base->code < 0 ? 0 : base->lsn;
    free(call->what.ids);
    cache_unref(call->cache);
    deferred_end(&base->base);
}

/* Hands it to the worker, with the reference to the cache. */
static void invalidate_later(struct caller *c, struct cache *cache, const struct invalidation *what)
{
    uint32_t n = what->selector.names ? what->selector.n : 0;
    size_t bytes = what->vector.n_bytes;
    for (uint32_t i = 0; i < n; i++)
        bytes += what->names[i].n_bytes;
    struct invalidate_call *call = deferred_begin(c, NULL, sizeof *call + bytes, true);
    if (!call) {
        free(what->ids);
        cache_unref(cache);
        return;
    }
    uint8_t *to = call->bytes;
    call->cache = cache;
    call->what = *what;
    if (what->vector.n_bytes) {
        call->what.selector.vector = memcpy(to, what->vector.data, what->vector.n_bytes);
        to += what->vector.n_bytes;
    }
    call->what.selector.names = n ? call->what.names : NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (what->names[i].n_bytes)
            call->what.names[i].data = memcpy(to, what->names[i].data, what->names[i].n_bytes);
        to += what->names[i].n_bytes;
    }
    call->base.work = invalidate;
    call->base.done = reply_invalidate;
    worker_call_start(&call->base);
}

void cmd_sc_invalidate(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct invalidation what = {.dry_run = false};
    const struct selector *selector = NULL;
    uint64_t gone = 0, lsn = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = take_invalidation(&what, cache_get_config(cache), args + 2, n - 2, &selector, &err);
    if (rc == 0 && !selector->at_once) {
        invalidate_later(c, cache, &what);
        return;
    }
    if (rc == 0)
        rc = cache_invalidate(cache, c->lane->cache_scratch, &what.selector, what.dry_run, &gone, &lsn, &err);
    cache_reply_number(c, rc, gone, lsn, &err);
    free(what.ids);
    cache_unref(cache);
}
