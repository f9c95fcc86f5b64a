/*
 * flow_body.c - what a body asks, and what becomes of it: passed on, joined, or sent on an errand.
 *
 * The readers (strict, ask) are the flow's and are used up within this call: what an errand needs is copied into it. A
 * body that cannot be read strictly is the upstream's business: it is passed on as it is, and never looked up or kept.
 */
#include "gateway/policy/policy_diagnosis.h"
#include "gateway/policy/policy_route.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_proof.h"
#include "gateway/proxy/flow_unread.h"
#include "gateway/proxy/flow_vectors.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_setup.h"
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/text/onward.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/buffer.h>
#include <math.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SALT_BYTES_MAX 256u

static void bypass(struct turn *turn, const char *reason)
{
    flow_turn_say(turn, "bypass", "%s", reason);
}

static void pass(struct turn *turn)
{
    flow_turn_pass(turn, *turn->model ? turn->model : NULL);
}

/* ---- controls ---------------------------------------------------------------------------------------------------- */

static void shorter(int64_t *ms, double seconds)
{
    int64_t given = seconds > 3e8 ? 300000000000 : (int64_t)(seconds * 1000);
    if (seconds >= 0 && (*ms < 0 || given < *ms))
        *ms = given;
}

/* LiteLLM's object. It means us, so what is not allowed there is an error, as in X-Quire-Control. False: the request
 * was refused. */
static bool read_cache_object(struct turn *turn, const struct ask_cache *given)
{
    struct policy_controls *c = &turn->controls;
    const struct strict_text space = given->name_space;
    const struct {
        const char *name;
        unsigned bit;
        bool given;
    } words[] = {{"no-cache", POLICY_ALLOW_NO_CACHE, given->no_cache},
                 {"no-store", POLICY_ALLOW_NO_STORE, given->no_store},
                 {"ttl", POLICY_ALLOW_TTL, given->ttl_s >= 0},
                 {"s-maxage", POLICY_ALLOW_MAX_AGE, given->s_maxage_s >= 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].given && !(turn->flow->allow & words[i].bit)) {
            flow_turn_refuse(turn, 400, "bad_control", "cache.%s is not allowed here (setting controls)",
                             words[i].name);
            return false;
        }
    c->no_cache = c->no_cache || given->no_cache;
    c->no_store = c->no_store || given->no_store;
    shorter(&c->ttl_ms, given->ttl_s);
    shorter(&c->max_age_ms, given->s_maxage_s);
    if (!space.data || space.bytes == 0)
        return true;
    if (space.bytes > POLICY_NAME_BYTES_MAX || memchr(space.data, 0, space.bytes)) {
        flow_turn_refuse(turn, 400, "bad_control", "cache.namespace has %zu bytes%s: give 1 to %u, none of them 0",
                         space.bytes, memchr(space.data, 0, space.bytes) ? ", one of them 0" : "",
                         POLICY_NAME_BYTES_MAX);
        return false;
    }
    memcpy(c->space, space.data, space.bytes);
    c->space[space.bytes] = 0;
    return true;
}

/* Header fields and LiteLLM's object. False: the request was refused. */
static bool read_controls(struct turn *turn, const struct ask *ask)
{
    const struct fields *fields = http_fields(turn->r);
    struct policy_controls *c = &turn->controls;
    struct quire_error err = {0};
    for (uint32_t i = 0; i < fields->n; i++) {
        const char *name = fields_name(fields, i), *value = fields_value(fields, i);
        if (policy_control_field(c, turn->flow->allow, name, strlen(name), value, strlen(value), &err) != 0) {
            bypass(turn, "a control of the cache cannot be read");
            flow_turn_refuse(turn, 400, "bad_control", "%s", err.message);
            return false;
        }
    }
    if (ask->cache.given && !read_cache_object(turn, &ask->cache))
        return false;
    if (c->max_age_ms == 0) { /* nothing is as new as that */
        c->no_cache = true;
        c->max_age_ms = -1;
    }
    return true;
}

/* ---- category ---------------------------------------------------------------------------------------------------- */

struct choice {
    struct sc_category category;
    bool near;
};

/* The one beside a category of near answers that takes what only the same request may answer: "faq.exact", if there is
 * such a one, else that of the setting exact-category. */
static const struct sc_category *exact_beside(const struct flow *flow, const char *name)
{
    char beside[SC_NAME_BYTES_MAX + 8];
    const struct sc_category *found;
    int n = snprintf(beside, sizeof beside, "%s.exact", name);
    found = n > 0 && (size_t)n < SC_NAME_BYTES_MAX ? sc_setup_category(flow->setup, beside, (size_t)n) : NULL;
    if (found && strcmp(found->name, beside) == 0)
        return found;
    return sc_setup_category(flow->setup, flow->settings->exact_category, strlen(flow->settings->exact_category));
}

/* Why a category, found by this name, does not serve by nearness at present; NULL: it does. Whatever the one of the
 * setting `category` is in the server, it is near only where the settings say so. */
static const char *not_near(const struct flow *flow, const struct sc_category *category, const char *name)
{
    const struct settings *settings = flow->settings;
    const char *why;
    if (!category || (strcmp(name, settings->category) == 0 && !flow_near_is_on(settings)))
        return "nearness is off: set similarity, or risk and judge";
    if (!category->near)
        return "the category's mode is exact";
    if (!flow->encode)
        return "no encoder is set: embed-url, embed-file";
    if (!sc_setup_takes_vectors(flow->setup, &why))
        return why;
    if (category->by_risk && settings->judge == SETTINGS_JUDGE_NONE)
        return "the category has RISK, which learns nothing while judge is none; or give it SIM";
    return NULL;
}

static bool lists_category(const struct settings_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], "*") == 0 || strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

/* False: the request was refused. choice->category.name "": there is none to use. */
static bool choose_category(struct turn *turn, struct policy_gate *gate, const struct ask *ask, struct choice *choice)
{
    struct flow *flow = turn->flow;
    const struct sc_category *category;
    const char *name = turn->controls.category, *why, *ruled;
    struct policy_asked asked = {.path = turn->path,
                                 .path_bytes = strlen(turn->path),
                                 .model = ask->model.data,
                                 .model_bytes = ask->model.bytes,
                                 .tenant = turn->caller.tenant,
                                 .tenant_bytes = strlen(turn->caller.tenant),
                                 .system = ask->system.data,
                                 .system_bytes = ask->system.bytes};
    *choice = (struct choice){0};
    if (*name && !sc_setup_category(flow->setup, name, strlen(name))) {
        char names[400];
        sc_setup_names(flow->setup, names, sizeof names);
        flow_turn_refuse(turn, 400, "unknown_category", "there is no category '%s'; there are: %s", name, names);
        return false;
    }
    if (*name && turn->caller.categories && !policy_in_list(turn->caller.categories, name)) {
        flow_turn_refuse(turn, 403, "category_not_allowed", "this key may not use category '%s'; it may use: %s", name,
                         turn->caller.categories);
        return false;
    }
    if (!*name) {
        ruled = policy_route(flow->rules, flow->settings->n_routes, &asked);
        name = ruled ? ruled : flow->settings->category;
    }
    category = sc_setup_category(flow->setup, name, strlen(name));
    why = not_near(flow, category, name);
    if (!why && gate->tools && !lists_category(&flow->settings->near_tools, name))
        why = "tools are offered: exact only (setting near-tools)";
    if (!why && ask->question.bytes > (size_t)flow->settings->embed_text_max)
        why = "the question is longer than the encoder's window (setting embed-text-max)";
    if (gate->look == POLICY_NEAR && why) {
        gate->look = POLICY_EXACT;
        gate->reason = why;
    }
    choice->near = gate->look == POLICY_NEAR;
    if (!choice->near && (!category || category->near)) {
        category = exact_beside(flow, name);
        name = category && strcmp(category->name, "*") != 0 ? category->name : flow->settings->exact_category;
        if (category && category->near)
            category = NULL; /* nothing can be put there without a vector */
    }
    if (category && strlen(name) < sizeof choice->category.name) {
        choice->category = *category;
        memcpy(choice->category.name, name, strlen(name) + 1); /* "*" stands for the name that was asked for */
        memcpy(turn->category, name, strlen(name) + 1);
    }
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void to_hex(const uint8_t hash[CANONICAL_HASH_BYTES], char out[2 * CANONICAL_HASH_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < CANONICAL_HASH_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * CANONICAL_HASH_BYTES] = 0;
}

/* SHA-256 over texts, each with its length before it. */
struct digest {
    EVP_MD_CTX *context;
    bool ok;
};

static void digest_add(struct digest *digest, const void *text, size_t bytes)
{
    uint64_t length = bytes;
    digest->ok = digest->ok && EVP_DigestUpdate(digest->context, &length, sizeof length) == 1 &&
                 EVP_DigestUpdate(digest->context, text, bytes) == 1;
}

static void digest_text(struct digest *digest, const char *text)
{
    digest_add(digest, text ? text : "", text ? strlen(text) : 0);
}

static bool digest_end(struct digest *digest, uint8_t out[32])
{
    bool ok = digest->ok && EVP_DigestFinal_ex(digest->context, out, NULL) == 1;
    EVP_MD_CTX_free(digest->context);
    return ok;
}

static struct digest digest_begin(void)
{
    struct digest digest = {.context = EVP_MD_CTX_new()};
    digest.ok = digest.context && EVP_DigestInit_ex(digest.context, EVP_sha256(), NULL) == 1;
    return digest;
}

/* X-Quire-Key takes the place of the body: of the same path, model and stream mode. */
static bool own_key(const struct turn *turn, const struct ask *ask, struct canonical_keys *keys)
{
    struct digest digest = digest_begin();
    const char *group = upstream_group(turn->flow->upstreams, *turn->model ? turn->model : NULL);
    struct strict_text model = turn->renamed ? (struct strict_text){turn->model, strlen(turn->model)} : ask->model;
    digest_text(&digest, "X-Quire-Key");
    digest_text(&digest, turn->path);
    digest_text(&digest, group);
    digest_add(&digest, model.data ? model.data : "", model.bytes);
    digest_text(&digest, ask->features & ASK_STREAM ? "stream" : "");
    digest_text(&digest, turn->controls.key);
    if (!digest_end(&digest, keys->hash))
        return false;
    memcpy(keys->compat, keys->hash, sizeof keys->compat);
    return true;
}

/* The route, and what beside the body chooses how a request is answered: the query, and fields that name a version of
 * the interface. False without memory. */
static bool name_route(const struct turn *turn, char *out, size_t room)
{
    static const char *const versions[] = {"anthropic-version", "anthropic-beta", "OpenAI-Beta"};
    const struct fields *fields = http_fields(turn->r);
    const char *query = strchr(http_target(turn->r), '?');
    struct digest digest = digest_begin();
    uint8_t hash[CANONICAL_HASH_BYTES];
    char hex[2 * CANONICAL_HASH_BYTES + 1] = "";
    bool some = query && query[1];
    digest_text(&digest, some ? query : "");
    for (uint32_t i = 0; i < fields->n; i++)
        for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
            if (strcasecmp(fields_name(fields, i), versions[v]) == 0) {
                digest_text(&digest, versions[v]);
                digest_text(&digest, fields_value(fields, i));
                some = true;
            }
    if (!digest_end(&digest, hash))
        return false;
    if (some)
        to_hex(hash, hex);
    return snprintf(out, room, "%s%s%s", turn->path, some ? "?" : "", hex) < (int)room;
}

bool flow_body_keys(struct turn *turn, const struct ask *ask, struct canonical_keys *keys, struct quire_error *err)
{
    struct flow *flow = turn->flow;
    char route[160], sentence[400];
    struct canonical_options options = {.path = route,
                                        .upstream = upstream_group(flow->upstreams, *turn->model ? turn->model : NULL),
                                        .ignore = (const char *const *)flow->settings->key_ignore.items,
                                        .n_ignore = flow->settings->key_ignore.n,
                                        .masks = flow->masks};
    if (!options.upstream)
        options.upstream = "";
    if (turn->renamed)
        options.model = (struct strict_text){turn->model, strlen(turn->model)};
    if (!name_route(turn, route, sizeof route)) {
        error_set(err, QUIRE_ENOMEM, "no memory for the key");
        return false;
    }
    if (canonical_keys(flow->canonical, ask, &options, keys, err) != 0)
        return false;
    if (policy_diagnosis_add(flow->diagnoses, turn->caller.scope, keys->compat, ask->system.data, ask->system.bytes) &&
        policy_diagnosis_of(flow->diagnoses, turn->caller.scope, sentence, sizeof sentence))
        telemetry_log(TELEMETRY_NOTICE, "tenant %s: %s", turn->caller.scope, sentence);
    return !*turn->controls.key || own_key(turn, ask, keys);
}

/* Requests that may share one flight: the same in all that can make a difference to the answer or to what is kept of
 * it; of the same credential where one is given. */
static bool flight_key(const struct question *asked, const uint8_t *credential, const struct policy_controls *controls,
                       uint8_t out[FLIGHT_KEY_BYTES])
{
    struct digest digest = digest_begin();
    char numbers[120];
    snprintf(numbers, sizeof numbers, "%d %d %d %d %lld %lld %.6f", asked->near, asked->look, asked->keep,
             asked->explain, (long long)asked->ttl_ms, (long long)asked->max_age_ms, asked->sim);
    digest_add(&digest, credential, credential ? POLICY_HASH_BYTES : 0);
    digest_text(&digest, asked->scope);
    digest_text(&digest, asked->space);
    digest_text(&digest, asked->user);
    digest_text(&digest, asked->salt);
    digest_text(&digest, asked->category);
    digest_text(&digest, asked->hash);
    digest_text(&digest, numbers);
    for (unsigned i = 0; i < controls->n_tags; i++)
        digest_text(&digest, controls->tags[i]);
    return digest_end(&digest, out);
}

static bool is_guest(const struct turn *turn, const struct errand *leader)
{
    return memcmp(turn->caller.credential, leader->asked.credential, sizeof turn->caller.credential) != 0;
}

/* The flight that is joined; NULL: none, and a new one is to have the key. Another credential's answer is joined by the
 * rule of a hit: in the same scope, by who was accepted, and only if it is to be kept. False without memory. */
static bool find_flight(const struct turn *turn, const struct question *asked, struct flight **flight,
                        uint8_t key[FLIGHT_KEY_BYTES])
{
    const struct flow *flow = turn->flow;
    uint8_t own[FLIGHT_KEY_BYTES];
    bool common = asked->accepted && asked->keep && turn->n_again + 1 < FLOW_LEADERS_MAX;
    *flight = NULL;
    if (!flight_key(asked, turn->caller.credential, &turn->controls, own) ||
        (common && !flight_key(asked, NULL, &turn->controls, key)))
        return false;
    if (common && (*flight = flight_find(flow->flights, key))) {
        const struct errand *leader = flight_context(*flight);
        if (!is_guest(turn, leader) || leader->asked.keep)
            return true;
        common = false; /* its place is taken */
    }
    *flight = flight_find(flow->flights, own);
    if (!common)
        memcpy(key, own, sizeof own);
    return true;
}

/* ---- the errand -------------------------------------------------------------------------------------------------- */

static bool copy_text(char **out, struct strict_text text, size_t max)
{
    if (!text.data || text.bytes == 0)
        return true;
    /* a text that is too long for a scope still parts those who have different ones: its hash does */
    if (text.bytes > max || memchr(text.data, 0, text.bytes)) {
        uint8_t hash[CANONICAL_HASH_BYTES];
        SHA256((const uint8_t *)text.data, text.bytes, hash);
        *out = malloc(2 * CANONICAL_HASH_BYTES + 1);
        if (*out)
            to_hex(hash, *out);
    } else {
        *out = strndup(text.data, text.bytes);
    }
    return *out != NULL;
}

/* The setting user-scope names a field of the body or of the header. */
static struct strict_text user_of(const struct turn *turn, const struct ask *ask)
{
    const char *name = turn->flow->settings->user_scope, *value;
    if (!*name)
        return (struct strict_text){NULL, 0};
    if (strcmp(name, "user") == 0)
        return ask->user;
    if (strcmp(name, "safety_identifier") == 0)
        return ask->safety_identifier;
    value = http_field(turn->r, name);
    return value ? (struct strict_text){value, strlen(value)} : (struct strict_text){NULL, 0};
}

bool flow_body_walls(const struct turn *turn, const struct ask *ask, char **user, char **salt)
{
    return copy_text(user, user_of(turn, ask), SALT_BYTES_MAX) && copy_text(salt, ask->cache_salt, SALT_BYTES_MAX);
}

bool flow_body_fields(const struct turn *turn, struct fields *out)
{
    const struct fields *in = http_fields(turn->r);
    bool ok = fields_forward(in, out, true);
    for (uint32_t i = 0; i < in->n; i++)
        if (strncasecmp(fields_name(in, i), "X-Quire-", 8) == 0)
            fields_drop(out, fields_name(in, i));
    return ok && (!turn->caller.upstream_key || fields_set_key(out, turn->caller.upstream_key));
}

uint32_t flow_body_timeout(const struct turn *turn)
{
    const char *text = http_field(turn->r, "X-Stainless-Timeout");
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 86400 ? (uint32_t)(seconds * 1000) : 0;
}

static void free_copy(const void *bytes, size_t n, void *unused)
{
    (void)n, (void)unused;
    free((void *)(uintptr_t)bytes);
}

/* The body as it goes on: the client's own bytes, edited where that is needed. In one piece of its own size, since
 * thousands may wait for their first byte: evbuffer_add would take up to four times as much. */
static bool take_body(struct turn *turn, const struct ask *ask, struct errand *e, struct quire_error *err)
{
    struct flow *flow = turn->flow;
    struct onward onward;
    struct onward_edits edits = {.drop_cache = true,
                                 .include_usage = flow->settings->include_usage &&
                                                  (ask->kind == ASK_CHAT || ask->kind == ASK_COMPLETIONS)};
    if (turn->renamed)
        edits.model = (struct strict_text){turn->model, strlen(turn->model)};
    if (onward_plan(&onward, ask, &edits, err) != 0)
        return false;
    size_t n = onward.bytes;
    if (flow->body_bytes + n > (uint64_t)flow->settings->bodies_max) {
        onward_fini(&onward);
        error_set(err, QUIRE_EBUSY, "the bodies of all requests are more than bodies-max");
        return false;
    }
    char *copy = malloc(n);
    if (copy)
        onward_copy(&onward, copy);
    onward_fini(&onward);
    if (!copy || evbuffer_add_reference(e->body, copy, n, free_copy, NULL) != 0) {
        free(copy);
        error_set(err, QUIRE_ENOMEM, "no memory for the request");
        return false;
    }
    flow->body_bytes += n;
    return true;
}

/* Everything of the question that an errand needs; false without memory. */
static bool fill_question(struct turn *turn, const struct ask *ask, const struct canonical_keys *keys,
                          const struct choice *choice, struct question *asked)
{
    const struct policy_controls *c = &turn->controls;
    asked->kind = turn->kind;
    asked->stream = (ask->features & ASK_STREAM) != 0;
    asked->n = ask->n;
    asked->items = ask->items;
    asked->near = choice->near;
    asked->stale_error_ms = choice->category.stale_error_ms;
    asked->others_ms = choice->category.lease_ms;
    asked->ttl_ms = c->ttl_ms;
    asked->max_age_ms = c->max_age_ms;
    asked->sim = c->sim;
    asked->explain = c->explain;
    asked->only_if_cached = c->only_if_cached;
    snprintf(asked->category, sizeof asked->category, "%s", choice->category.name);
    memcpy(asked->scope, turn->caller.scope, sizeof asked->scope);
    memcpy(asked->space, c->space, sizeof asked->space);
    memcpy(asked->credential, turn->caller.credential, sizeof asked->credential);
    if (keys) {
        to_hex(keys->hash, asked->hash);
        to_hex(keys->compat, asked->compat);
    }
    if (ask->question.data && ask->question.bytes <= 65536) {
        asked->text = malloc(ask->question.bytes + 1);
        if (!asked->text)
            return false;
        memcpy(asked->text, ask->question.data, ask->question.bytes);
        asked->text[ask->question.bytes] = 0;
        asked->text_bytes = ask->question.bytes;
    }
    return flow_body_walls(turn, ask, &asked->user, &asked->salt);
}

/* What goes upstream, which a request that joins does not need. */
static bool fill_onward(struct turn *turn, const struct ask *ask, struct errand *e, struct quire_error *err)
{
    const struct policy_controls *c = &turn->controls;
    e->target = strdup(http_target(turn->r));
    if (turn->renamed || !ask->model.data)
        e->model = strdup(turn->renamed ? turn->model : "");
    else
        e->model = strndup(ask->model.data, ask->model.bytes);
    e->head_timeout_ms = flow_body_timeout(turn);
    e->own_key = turn->caller.upstream_key != NULL;
    if (c->n_tags) {
        e->tags = calloc(c->n_tags, sizeof *e->tags);
        for (unsigned i = 0; e->tags && i < c->n_tags; i++) {
            if (!(e->tags[i] = strdup(c->tags[i])))
                return false;
            e->n_tags = i + 1;
        }
    }
    return e->target && e->model && (e->tags || !c->n_tags) && flow_body_fields(turn, &e->fields) &&
           take_body(turn, ask, e, err);
}

/* Sends an errand of this question, or joins one that is under way. Takes the question's texts. */
static void send_or_join(struct turn *turn, const struct ask *ask, struct question *question, const char *cache,
                         const char *reason)
{
    struct flow *flow = turn->flow;
    const struct policy_controls *c = &turn->controls;
    uint8_t key[FLIGHT_KEY_BYTES];
    struct quire_error err = {0};
    struct flight *flight = NULL;
    bool shared =
        !c->no_cache && !c->only_if_cached && strcmp(cache, "bypass") != 0 && find_flight(turn, question, &flight, key);
    struct errand *e;
    turn->wants_usage = (ask->features & ASK_USAGE) != 0 || !flow->settings->include_usage;
    if (flight) {
        flow_errand_forget(question);
        turn->guest = is_guest(turn, flight_context(flight));
        flight_join(flight, &turn->member);
        turn->joined = true;
        flow_turn_follow(turn);
        return;
    }
    e = flow_errand_create(flow, question, shared ? key : NULL, (size_t)flow->settings->answer_max + 65536,
                           &turn->member);
    if (!e) {
        flow_errand_forget(question);
        flow_turn_say(turn, "down", "no memory, or too many requests under way");
        pass(turn);
        return;
    }
    if (!fill_onward(turn, ask, e, &err)) {
        bool many = err.code == QUIRE_EBUSY;
        flow_errand_refuse(e, many ? 503 : 500, many ? NULL : "no_memory", "%s",
                           many ? err.message : "no memory for the request");
        flow_turn_follow(turn);
        return;
    }
    evbuffer_drain(http_body(turn->r), evbuffer_get_length(http_body(turn->r))); /* the errand has it */
    flow_errand_say(e, cache, "%s", reason ? reason : "");
    memcpy(e->head->category, turn->category, sizeof e->head->category);
    flow_turn_follow(turn); /* there is nothing yet: from now on it is woken */
    flow_errand_begin(e);
}

void flow_body_down(struct flow *flow, const char *why)
{
    uint64_t now_us = clock_us();
    if ((!why && !*flow->down) || (flow->down_us && now_us - flow->down_us < 1000000))
        return; /* a server that comes and goes writes a line a second */
    if (!why)
        telemetry_log(TELEMETRY_NOTICE, "the cache is there again");
    else if (strncmp(flow->down, why, sizeof flow->down - 1) != 0)
        telemetry_log(TELEMETRY_WARNING, "requests go on without the cache: %s", why);
    else
        return;
    flow->down_us = now_us;
    snprintf(flow->down, sizeof flow->down, "%s", why ? why : "");
}

/* Passed on, though not kept: as it is, or with the edits that its body needs. */
static void begin_bypass(struct turn *turn, const struct ask *ask)
{
    struct question question = {.sim = -1, .max_age_ms = -1, .ttl_ms = -1};
    struct choice none = {0};
    if (!turn->renamed && (!ask->node_cache || !*turn->cache)) {
        pass(turn);
        return;
    }
    if (!fill_question(turn, ask, NULL, &none, &question)) {
        flow_errand_forget(&question);
        pass(turn);
        return;
    }
    send_or_join(turn, ask, &question, "bypass", turn->reason);
}

bool flow_body_accepted(const struct turn *turn)
{
    return turn->caller.in_key_file || flow_accepted_has(turn->flow, turn->caller.credential, turn->model);
}

static void begin_cached(struct turn *turn, struct policy_gate gate, const struct ask *ask)
{
    struct flow *flow = turn->flow;
    struct question question = {.sim = -1, .max_age_ms = -1, .ttl_ms = -1};
    struct canonical_keys keys;
    struct choice choice = {0};
    struct quire_error err = {0};
    const char *cache = "miss", *reason, *why;
    bool ready = sc_setup_ready(flow->setup, &why);
    if (!ready)
        flow_body_down(flow, why);
    else if (flow->settings->prove && !turn->proved && !turn->controls.no_cache && !flow_body_accepted(turn)) {
        flow_proof_begin(turn);
        return;
    }
    if (!flow_body_keys(turn, ask, &keys, &err)) {
        flow_turn_say(turn, "bypass", "no key: %s", err.message);
        begin_bypass(turn, ask);
        return;
    }
    if (ready && !choose_category(turn, &gate, ask, &choice))
        return;
    reason = gate.reason;
    if (turn->kind == ASK_EMBEDDINGS && ready && *choice.category.name) {
        flow_vectors_begin(turn, ask, &keys, gate.keep && turn->controls.ttl_ms != 0);
        return;
    }
    if (!fill_question(turn, ask, &keys, &choice, &question)) {
        flow_errand_forget(&question);
        flow_turn_say(turn, "down", "no memory for the question");
        pass(turn);
        return;
    }
    question.accepted = flow_body_accepted(turn);
    question.look = question.keep = ready && *choice.category.name;
    question.keep = question.keep && gate.keep && turn->controls.ttl_ms != 0;
    question.keep = question.keep && !flow_keep_never_asked(flow, ask);
    if (!question.look) {
        cache = "down";
        reason = ready ? "there is no category for exact answers: see exact-category" : why;
    } else if (turn->controls.no_cache) {
        question.look = false;
        reason = "the request says no-cache, or max-age=0";
    } else if (!question.accepted) {
        reason = "the upstream has not accepted this credential lately";
    }
    send_or_join(turn, ask, &question, cache, reason);
}

void flow_body_name(struct turn *turn, struct strict_text given)
{
    const struct settings_list *aliases = &turn->flow->settings->model_alias;
    turn->renamed = false;
    if (given.data)
        snprintf(turn->model, sizeof turn->model, "%.*s",
                 (int)(given.bytes < FLOW_MODEL_BYTES - 1 ? given.bytes : FLOW_MODEL_BYTES - 1), given.data);
    for (uint32_t i = 0; i < aliases->n && given.data && !turn->renamed; i++) {
        const char *name = aliases->items[i], *equals = strchr(name, '=');
        assert(equals); /* flow_reload has looked */
        if ((size_t)(equals - name) == given.bytes && memcmp(name, given.data, given.bytes) == 0) {
            snprintf(turn->model, sizeof turn->model, "%s", equals + 1);
            turn->renamed = true;
        }
    }
}

void flow_body_ready(struct turn *turn)
{
    struct flow *flow = turn->flow;
    struct http_request *r = turn->r;
    struct evbuffer *body = http_body(r);
    struct quire_error err = {0};
    struct policy_gate gate;
    const char *text;
    bool off = !flow->client || !flow->settings->cache_on;
    if (!http_body_is_whole(r)) {
        if (!off)
            bypass(turn, "the body is larger than the setting key-body-max");
        flow_unread_begin(turn);
        return;
    }
    text = (const char *)evbuffer_pullup(body, -1);
    if (strict_read(&flow->json, text ? text : "", evbuffer_get_length(body), &err) != 0 ||
        ask_read(&flow->ask, turn->kind, &flow->json, &err) != 0) {
        if (!off)
            bypass(turn, err.message);
        flow_unread_begin(turn);
        return;
    }
    flow_body_name(turn, flow->ask.model);
    if (off && turn->renamed)
        bypass(turn, "the cache is off (cache-on)");
    if (off) {
        begin_bypass(turn, &flow->ask);
        return;
    }
    if (flow->settings->log_texts && flow->ask.question.data && !turn->question)
        turn->question = strndup(flow->ask.question.data, flow->ask.question.bytes);
    if (!read_controls(turn, &flow->ask))
        return;
    gate = policy_gate_ask(&flow->ask, &(struct policy_gate_options){.temperature_max = flow->settings->temperature_max,
                                                                     .turns = (uint32_t)flow->settings->turns,
                                                                     .keep_n = flow->settings->keep_n,
                                                                     .near_tools = flow->settings->near_tools.n > 0});
    gate = policy_gate_narrow(gate, &turn->controls);
    if (gate.look == POLICY_BYPASS) {
        bypass(turn, gate.reason);
        begin_bypass(turn, &flow->ask);
        return;
    }
    begin_cached(turn, gate, &flow->ask);
}
