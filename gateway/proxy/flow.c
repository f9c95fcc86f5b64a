/*
 * flow.c - what a request is asked first: where it goes, whose it is, whether it may come now.
 *
 * Server, cache, encoder and secret are opened once and stay; a reload changes what each request looks up anew: the
 * settings' pointer, the key file, rules, masks, controls.
 */
#include "gateway/proxy/flow.h"
#include "gateway/encode/encode.h"
#include "gateway/policy/policy_diagnosis.h"
#include "gateway/policy/policy_limit.h"
#include "gateway/policy/policy_route.h"
#include "gateway/proxy/flow_admin.h"
#include "gateway/proxy/flow_judge.h"
#include "gateway/proxy/flow_models.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_promise.h"
#include "gateway/proxy/flow_unread.h"
#include "gateway/proxy/refusal.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_setup.h"
#include "gateway/store/sc_tls.h"
#include "gateway/store/sc_users.h"
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/text/mask.h"
#include "io/clock.h"
#include "io/error.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PENDING_BYTES_MAX (256u << 20)
#define USERS_BYTES_MAX   (1u << 20) /* of commands and replies of each of the server's users */
#define CONNECT_MS        5000u
#define REFRESH_MS        10000u
#define SECRET_FILE_MAX   4096u

/* ---- routes ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *path; /* without "/v1", which may be left out */
    enum ask_kind kind;
    const char *route, *whole;
} cached[] = {
    {"/chat/completions", ASK_CHAT, "chat", "/v1/chat/completions"},
    {"/completions", ASK_COMPLETIONS, "completions", "/v1/completions"},
    {"/embeddings", ASK_EMBEDDINGS, "embeddings", "/v1/embeddings"},
    {"/responses", ASK_RESPONSES, "responses", "/v1/responses"},
    {"/messages", ASK_MESSAGES, "messages", "/v1/messages"},
};

static enum route route_of(struct turn *turn)
{
    size_t bytes;
    const char *path = http_path(turn->r, &bytes), *method = http_method(turn->r);
    if (bytes >= 7 && memcmp(path, "/quire/", 7) == 0) {
        turn->route = "quire";
        return ROUTE_QUIRE;
    }
    if (bytes >= 3 && memcmp(path, "/v1", 3) == 0 && bytes > 3 && path[3] == '/') {
        path += 3;
        bytes -= 3;
    }
    if (strcmp(method, "GET") == 0 && bytes == 7 && memcmp(path, "/models", 7) == 0) {
        turn->route = "models";
        return ROUTE_MODELS;
    }
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
        if (strcmp(method, "POST") == 0 && strlen(cached[i].path) == bytes &&
            memcmp(cached[i].path, path, bytes) == 0) {
            turn->route = cached[i].route;
            turn->path = cached[i].whole;
            turn->kind = cached[i].kind;
            return ROUTE_CACHE;
        }
    return ROUTE_OTHER;
}

/* ---- whose it is ------------------------------------------------------------------------------------------------- */

static struct policy_field field_of(const struct http_request *r, const char *name)
{
    const char *value = http_field(r, name);
    return (struct policy_field){value, value ? strlen(value) : 0};
}

/* False: it was refused. */
static bool know_caller(struct turn *turn)
{
    struct flow *flow = turn->flow;
    struct caller *caller = &turn->caller;
    struct policy_credential credential = {field_of(turn->r, "Authorization"), field_of(turn->r, "api-key"),
                                           field_of(turn->r, "x-api-key"), field_of(turn->r, "OpenAI-Organization"),
                                           field_of(turn->r, "OpenAI-Project")};
    const struct policy_key *entry = NULL;
    caller->anonymous = policy_credential_is_empty(&credential);
    if (!policy_credential_hash(&credential, flow->secret, sizeof flow->secret, caller->credential)) {
        flow_turn_refuse(turn, 500, "no_memory", "no memory for the request");
        return false;
    }
    if (flow->keys) {
        entry = policy_keys_find(flow->keys, policy_credential_key(&credential));
        if (!entry) {
            flow_turn_refuse(turn, 401, "invalid_api_key",
                             caller->anonymous ? "no API key was given: send Authorization: Bearer KEY"
                                               : "this API key is not known here");
            return false;
        }
        caller->in_key_file = true;
        caller->admin = entry->admin;
        caller->rate = entry->rate;
        caller->concurrent = entry->concurrent;
        snprintf(caller->tenant, sizeof caller->tenant, "%s", entry->tenant);
        if ((entry->upstream_key && !(caller->upstream_key = strdup(entry->upstream_key))) ||
            (entry->categories && !(caller->categories = strdup(entry->categories)))) {
            flow_turn_refuse(turn, 500, "no_memory", "no memory for the request");
            return false;
        }
    }
    policy_tenant_scope((enum policy_share)flow->settings->share, entry, caller->anonymous, caller->credential,
                        caller->scope);
    return true;
}

/* False: it was refused. */
static bool may_come(struct turn *turn)
{
    const struct settings *settings = turn->flow->settings;
    struct caller *caller = &turn->caller;
    char name[FLOW_SCOPE_BYTES];
    uint64_t retry_ms;
    double rate = settings->rate;
    unsigned concurrent = (unsigned)settings->concurrent;
    struct fields fields = {0};
    if (caller->in_key_file) {
        rate = caller->rate > 0 ? caller->rate : rate;
        concurrent = caller->concurrent > 0 ? caller->concurrent : concurrent;
        snprintf(name, sizeof name, "t:%s", caller->tenant);
    } else {
        policy_tenant_scope(POLICY_SHARE_KEY, NULL, caller->anonymous, caller->credential, name);
    }
    caller->limit = policy_limit_enter(turn->flow->limits, name, rate, concurrent, clock_us() / 1000, &retry_ms);
    if (retry_ms == 0)
        return true;
    fields_print(&fields, "Retry-After", "%llu", (unsigned long long)((retry_ms + 999) / 1000));
    fields_print(&fields, "retry-after-ms", "%llu", (unsigned long long)retry_ms);
    flow_turn_fields(turn, &fields);
    refusal_answer(turn->r, 429, "rate_limit_exceeded", &fields,
                   "this tenant asks more than it may (rate %g a second, %u at a time): come again in %llu ms", rate,
                   concurrent, (unsigned long long)retry_ms);
    fields_fini(&fields);
    return false;
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* A route that is not the cache's may have a model, too. */
static void begin_other(struct turn *turn)
{
    const char *type = http_field(turn->r, "Content-Type");
    if (strcmp(http_method(turn->r), "POST") == 0 && type && strncasecmp(type, "application/json", 16) == 0)
        flow_unread_begin(turn);
    else
        flow_turn_pass(turn, NULL);
}

static void begin_cache(struct turn *turn)
{
    const struct settings *settings = turn->flow->settings;
    const char *encoding = http_field(turn->r, "Content-Encoding");
    bool off = !turn->flow->client || !settings->cache_on;
    if (off && !flow_unread_is_named(settings)) {
        flow_turn_pass(turn, NULL);
    } else if (encoding && strcasecmp(encoding, "identity") != 0) {
        flow_turn_say(turn, "bypass", "a compressed body is passed on unread");
        flow_unread_begin(turn);
    } else if (http_body_length(turn->r) > settings->key_body_max) {
        flow_turn_say(turn, "bypass", "the body is larger than the setting key-body-max");
        flow_unread_begin(turn);
    } else {
        http_read(turn->r, (size_t)settings->key_body_max);
    }
}

void flow_begin(struct flow *flow, struct http_request *r, flow_done *done, void *context)
{
    struct turn *turn = flow_turn_create(flow, r, done, context);
    enum route route;
    if (!turn) {
        refusal_answer(r, 500, "no_memory", NULL, "no memory for the request");
        return;
    }
    route = route_of(turn);
    if (route == ROUTE_QUIRE && flow_admin_knows(turn)) {
        flow_admin_begin(turn);
        return;
    }
    if (!know_caller(turn) || !may_come(turn))
        return;
    if (route == ROUTE_QUIRE)
        flow_admin_begin(turn);
    else if (route == ROUTE_MODELS)
        flow_models_begin(turn);
    else if (route == ROUTE_CACHE)
        begin_cache(turn);
    else
        begin_other(turn);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static int read_words(struct flow *flow, const struct settings *settings, unsigned *allow, unsigned *masks,
                      struct quire_error *err)
{
    (void)flow;
    *allow = POLICY_ALLOW_CATEGORY | POLICY_ALLOW_NAMESPACE | POLICY_ALLOW_TAGS | POLICY_ALLOW_KEY;
    *masks = 0;
    if (settings->details)
        *allow |= POLICY_ALLOW_EXPLAIN;
    for (uint32_t i = 0; i < settings->controls.n; i++) {
        unsigned bit = policy_control_bit(settings->controls.items[i], strlen(settings->controls.items[i]));
        if (!bit)
            return error_set(err, QUIRE_EINVALID,
                             "controls has '%s': words are no-cache, no-store, max-age, ttl, exact, "
                             "sim, off, only-if-cached, category, namespace, tags, key, explain",
                             settings->controls.items[i]);
        *allow |= bit;
    }
    for (uint32_t i = 0; i < settings->model_alias.n; i++) {
        const char *alias = settings->model_alias.items[i], *equals = strchr(alias, '=');
        if (!equals || equals == alias || !equals[1] || strlen(equals + 1) >= FLOW_MODEL_BYTES)
            return error_set(err, QUIRE_EINVALID,
                             "model-alias has '%.200s': give name=name of the upstream, the second of 1 to %u bytes",
                             alias, FLOW_MODEL_BYTES - 1);
    }
    for (uint32_t i = 0; i < settings->mask.n; i++) {
        unsigned bit = mask_named(settings->mask.items[i]);
        if (!bit)
            return error_set(err, QUIRE_EINVALID, "mask has '%s': there are iso-time, uuid, date",
                             settings->mask.items[i]);
        *masks |= bit;
    }
    return 0;
}

static struct policy_rule *make_rules(const struct settings *settings)
{
    struct policy_rule *rules = calloc(settings->n_routes + 1u, sizeof *rules);
    for (uint32_t i = 0; rules && i < settings->n_routes; i++) {
        const struct settings_route *route = &settings->routes[i];
        rules[i] = (struct policy_rule){.path = *route->path ? route->path : NULL,
                                        .model = *route->model ? route->model : NULL,
                                        .tenant = *route->tenant ? route->tenant : NULL,
                                        .system = *route->system ? route->system : NULL,
                                        .category = route->category};
    }
    return rules;
}

int flow_reload(struct flow *flow, const struct settings *settings, struct quire_error *err)
{
    struct policy_keys *keys = NULL;
    struct policy_rule *rules;
    unsigned allow, masks;
    int rc = read_words(flow, settings, &allow, &masks, err);
    if (rc == 0 && *settings->keys)
        rc = policy_keys_open(settings->keys, &keys, err);
    if (rc)
        return rc;
    if (!(rules = make_rules(settings))) {
        policy_keys_free(keys);
        return error_set(err, QUIRE_ENOMEM, "no memory for the settings");
    }
    policy_keys_free(flow->keys);
    free(flow->rules);
    flow->keys = keys;
    flow->rules = rules;
    flow->allow = allow;
    flow->masks = masks;
    flow->settings = settings;
    return 0;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* The secret is the SHA-256 of the file, so that any text of some length will do. */
static int read_secret(struct flow *flow, const char *path, struct quire_error *err)
{
    char text[SECRET_FILE_MAX];
    ssize_t bytes;
    int fd;
    if (!*path)
        return RAND_bytes(flow->secret, sizeof flow->secret) == 1
                   ? 0
                   : error_set(err, QUIRE_EIO, "OpenSSL has no random bytes for a secret");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open secret-file", path);
    bytes = read(fd, text, sizeof text);
    close(fd);
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    if (bytes < (ssize_t)POLICY_SECRET_BYTES_MIN)
        return error_set(err, QUIRE_EINVALID, "secret-file %s has %zd bytes: at least %u, as of openssl rand -hex 32",
                         path, bytes, POLICY_SECRET_BYTES_MIN);
    SHA256((uint8_t *)text, (size_t)bytes, flow->secret);
    explicit_bzero(text, sizeof text);
    return 0;
}

static const char *given(const char *text)
{
    return *text ? text : NULL;
}

static int open_encoder(struct flow *flow, struct quire_error *err)
{
    const struct settings *s = flow->settings;
    struct encode_options options = {.url = given(s->embed_url),
                                     .model = given(s->embed_model),
                                     .key = given(s->embed_key),
                                     .file = given(s->embed_file),
                                     .prefix = given(s->embed_prefix),
                                     .dim = (uint32_t)s->embed_dim,
                                     .deadline_ms = (unsigned)s->embed_timeout,
                                     .text_bytes_max = (size_t)s->embed_text_max,
                                     .remembered = (unsigned)s->embed_cache,
                                     .breaker_failures = (unsigned)s->server_failures,
                                     .breaker_ms = (unsigned)s->server_pause};
    if (!options.url && !options.file)
        return 0;
    return encode_create(flow->base, flow->upstreams, &options, &flow->encode, err);
}

static void on_first_vector(void *context, enum encode_outcome outcome, const float *vector, uint32_t dim,
                            const char *why)
{
    struct flow *flow = context;
    (void)vector;
    flow->first_vector = NULL;
    if (outcome == ENCODE_VECTOR) {
        sc_setup_encoder(flow->setup, encode_name(flow->encode), dim);
        return;
    }
    telemetry_log(TELEMETRY_WARNING, "no vector from the encoder: %s", why);
    struct timeval pause = {.tv_sec = 2};
    evtimer_add(&flow->first_vector_timer, &pause);
}

/* The dimension comes with the first vector, so one is asked for at the start, and again until there is one. */
static void ask_first_vector(evutil_socket_t fd, short what, void *context)
{
    struct flow *flow = context;
    (void)fd;
    (void)what;
    flow->first_vector = encode_text(flow->encode, "how long is a vector", 20, on_first_vector, flow);
}

/* ---- categories that are made here ---- */

/* Whether settings of a category, as SC.CAT.SET takes them, have this word. */
static bool have_word(const char *settings, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = settings; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == n && strncasecmp(at, word, n) == 0)
            return true;
    }
    return false;
}

bool flow_near_is_on(const struct settings *s)
{
    return s->similarity > 0 || s->risk > 0 || have_word(s->category_settings, "SIM") ||
           have_word(s->category_settings, "RISK");
}

/* Name and settings; what `own` (category-settings, exact-settings) gives goes before what other settings would. */
static int print_category(char *out, size_t room, const char *name, bool near, const struct settings *s,
                          struct quire_error *err)
{
    const char *own = near ? s->category_settings : s->exact_settings;
    char mode[16] = "", ttl[32] = "", threshold[32] = "";
    if (!have_word(own, "MODE"))
        snprintf(mode, sizeof mode, " MODE %s", near ? "both" : "exact");
    if (!have_word(own, "TTL"))
        snprintf(ttl, sizeof ttl, " TTL %lld", (long long)s->ttl);
    if (near && !have_word(own, "SIM") && !have_word(own, "RISK"))
        snprintf(threshold, sizeof threshold, " %s %g", s->similarity > 0 ? "SIM" : "RISK",
                 s->similarity > 0 ? s->similarity : s->risk);
    return snprintf(out, room, "%s%s%s%s %s", name, mode, ttl, threshold, own) < (int)room
               ? 0
               : error_set(err, QUIRE_ELIMIT, "category-settings or exact-settings are longer than 1,000 bytes");
}

static void on_difference(void *context, const char *sentence)
{
    (void)context;
    telemetry_log(TELEMETRY_WARNING, "%s", sentence);
}

static int open_cache(struct flow *flow, struct quire_error *err)
{
    const struct settings *s = flow->settings;
    bool tls = strncmp(s->server, "tls://", 6) == 0;
    struct sc_options options = {.address = tls ? s->server + 6 : s->server,
                                 .user = given(s->server_user),
                                 .password = given(s->server_password),
                                 .connections = (unsigned)(s->server_connections > (int64_t)SC_CONNECTIONS_MAX
                                                               ? (int64_t)SC_CONNECTIONS_MAX
                                                               : s->server_connections),
                                 .connect_ms = CONNECT_MS,
                                 .breaker_failures = (unsigned)s->server_failures,
                                 .breaker_ms = (unsigned)s->server_pause,
                                 .pending_bytes_max = PENDING_BYTES_MAX};
    struct encode_state encoder = {0};
    char exact[1200], near[1200];
    const char *categories[2] = {exact, near};
    struct sc_setup_options setup = {.cache = s->cache,
                                     .categories = categories,
                                     .n_categories = 1,
                                     .refresh_ms = REFRESH_MS,
                                     .deadline_ms = 5000,
                                     .dim = SC_SETUP_DIM_NONE,
                                     .differs = on_difference};
    int rc = tls ? sc_tls_create(s->server_ca_file, &flow->tls, err) : 0;
    options.tls = flow->tls;
    rc = rc ? rc : print_category(exact, sizeof exact, s->exact_category, false, s, err);
    rc = rc ? rc : print_category(near, sizeof near, s->category, true, s, err);
    if (flow_near_is_on(s))
        setup.n_categories = 2;
    if (flow->encode) {
        encode_state(flow->encode, &encoder);
        setup.encoder = encode_name(flow->encode);
        setup.dim = encoder.dim;
    }
    snprintf(flow->cache, sizeof flow->cache, "%s", s->cache);
    if (rc == 0)
        rc = sc_client_create(flow->base, &options, &flow->client, err);
    if (rc == 0)
        rc = sc_setup_create(flow->base, flow->client, &setup, &flow->setup, err);
    options.pending_bytes_max = options.reply_bytes_max = USERS_BYTES_MAX;
    if (rc == 0)
        rc = sc_users_create(flow->base, &options, &flow->users, err);
    if (rc == 0 && flow->encode && encoder.dim == 0)
        ask_first_vector(-1, 0, flow);
    return rc;
}

static int create_parts(struct flow *flow, struct quire_error *err)
{
    int rc = canonical_create(&flow->canonical, err);
    if (rc)
        return rc;
    flow->flights = flight_table_create(FLOW_FLIGHTS_MAX);
    flow->accepted = policy_accepted_create(FLOW_ACCEPTED_MAX);
    flow->limits = policy_limits_create(FLOW_TENANTS_MAX);
    flow->diagnoses = policy_diagnoses_create(FLOW_DIAGNOSES_MAX);
    flow->models = flow_models_create(flow);
    flow->judge = flow_judge_create(flow);
    flow->promises = flow_promises_create();
    if (!flow->flights || !flow->accepted || !flow->limits || !flow->diagnoses || !flow->models || !flow->judge ||
        !flow->promises)
        return error_set(err, QUIRE_ENOMEM, "no memory for the cache's tables");
    return 0;
}

int flow_create(struct event_base *base, const struct settings *settings, struct upstream_set *upstreams,
                struct telemetry *telemetry, struct flow **out, struct quire_error *err)
{
    struct flow *flow = calloc(1, sizeof *flow);
    int rc;
    if (!flow)
        return error_set(err, QUIRE_ENOMEM, "no memory for the cache's part");
    flow->base = base;
    flow->upstreams = upstreams;
    flow->telemetry = telemetry;
    flow->json.nodes_max = FLOW_VALUES_MAX;
    evtimer_assign(&flow->first_vector_timer, base, ask_first_vector, flow);
    rc = flow_reload(flow, settings, err);
    if (rc == 0)
        rc = create_parts(flow, err);
    if (rc == 0)
        rc = read_secret(flow, settings->secret_file, err);
    if (rc == 0 && settings->cache_on) {
        rc = open_encoder(flow, err);
        if (rc == 0)
            rc = open_cache(flow, err);
    }
    if (rc) {
        flow_destroy(flow);
        return rc;
    }
    *out = flow;
    return 0;
}

void flow_destroy(struct flow *flow)
{
    if (!flow)
        return;
    while (flow->puts_first)
        flow_errand_destroy(flow->puts_first);
    while (flow->errands)
        flow_errand_destroy(flow->errands);
    flow_judge_destroy(flow->judge);
    flow_promises_destroy(flow->promises);
    flow_models_destroy(flow->models);
    event_del(&flow->first_vector_timer);
    encode_destroy(flow->encode);
    sc_setup_destroy(flow->setup);
    sc_users_destroy(flow->users);
    sc_client_destroy(flow->client);
    SSL_CTX_free(flow->tls);
    flight_table_destroy(flow->flights);
    policy_accepted_destroy(flow->accepted);
    policy_limits_destroy(flow->limits);
    policy_diagnoses_destroy(flow->diagnoses);
    policy_keys_free(flow->keys);
    free(flow->rules);
    strict_fini(&flow->json);
    strict_fini(&flow->answer_json);
    ask_fini(&flow->ask);
    canonical_destroy(flow->canonical);
    replay_fini(&flow->replay);
    free(flow->scratch);
    explicit_bzero(flow->secret, sizeof flow->secret);
    free(flow);
}

void flow_on_judged(struct flow *flow, flow_judged_done *done, void *context)
{
    flow->judged = done;
    flow->judged_context = context;
}

struct encode *flow_encoder(const struct flow *flow)
{
    return flow->encode;
}

unsigned flow_keeping(const struct flow *flow)
{
    return flow->n_puts + flow->n_puts_waiting;
}

/* ---- health ------------------------------------------------------------------------------------------------------ */

/* What it quotes may hold anything, and jansson takes UTF-8 only. */
static json_t *sentence_of(const char *text)
{
    char clean[1000];
    fields_printable(clean, sizeof clean, text ? text : "");
    return json_string(clean);
}

static void say_diagnosis(void *context, const char *tenant, const char *sentence)
{
    json_array_append_new(context, json_pack("{s:s, s:o, s:o}", "about", "contexts", "tenant", sentence_of(tenant),
                                             "sentence", sentence_of(sentence)));
}

static void say_difference(void *context, const char *sentence)
{
    json_array_append_new(context, sentence_of(sentence));
}

static json_t *describe_server(const struct flow *flow)
{
    struct sc_client_state server = {0};
    if (flow->client)
        sc_client_state(flow->client, &server);
    return json_pack("{s:i, s:b, s:I, s:I, s:o}", "connections", (int)server.connections_up, "breaker_open",
                     (int)server.breaker_open, "calls", (json_int_t)server.calls, "failures",
                     (json_int_t)server.failures, "last_failure", sentence_of(server.why));
}

static json_t *describe_cache(const struct flow *flow)
{
    const char *why = "the cache is off (cache-on)";
    bool ready = flow->client && sc_setup_ready(flow->setup, &why);
    json_t *diagnoses = json_array();
    json_t *cache = json_pack("{s:b, s:o, s:o, s:O?}", "ready", (int)ready, "name", sentence_of(flow->cache), "why",
                              sentence_of(why), "diagnoses", diagnoses);
    if (cache && flow->client) {
        bool near = sc_setup_takes_vectors(flow->setup, &why);
        json_object_set_new(cache, "vectors", json_boolean(near));
        json_object_set_new(cache, "why_no_vectors", sentence_of(why));
        json_t *differences = json_array();
        if (differences)
            sc_setup_each_difference(flow->setup, say_difference, differences);
        json_object_set_new(cache, "settings_not_in_force", differences);
    }
    if (diagnoses)
        policy_diagnosis_each(flow->diagnoses, say_diagnosis, diagnoses);
    json_decref(diagnoses);
    return cache;
}

static json_t *describe_encoder(const struct flow *flow)
{
    struct encode_state encoder = {0};
    if (!flow->encode)
        return json_pack("{s:b}", "there", 0);
    encode_state(flow->encode, &encoder);
    return json_pack("{s:b, s:i, s:b, s:I, s:I, s:o, s:o}", "there", 1, "dim", (int)encoder.dim, "breaker_open",
                     (int)encoder.breaker_open, "asked", (json_int_t)encoder.asked, "failures",
                     (json_int_t)encoder.failures, "name", sentence_of(encode_name(flow->encode)), "last_failure",
                     sentence_of(encoder.why));
}

static json_t *describe_judge(const struct flow *flow)
{
    static const char *const kinds[] = {"none", "equal", "vector", "model", "hand"};
    const struct flow_judge_cost *cost = flow_judge_cost(flow->judge);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "setting", kinds[flow->settings->judge], "calls",
                     (json_int_t)cost->calls, "uncounted", (json_int_t)cost->uncounted, "prompt_tokens",
                     (json_int_t)cost->prompt_tokens, "completion_tokens", (json_int_t)cost->completion_tokens, "ms",
                     (json_int_t)(cost->us / 1000));
}

int flow_describe(const struct flow *flow, struct json_t *out)
{
    const struct flow_judge_cost *cost = flow_judge_cost(flow->judge);
    json_int_t saved = (json_int_t)flow->tokens_saved,
               spent = (json_int_t)(cost->prompt_tokens + cost->completion_tokens);
    return json_object_set_new(out, "server", describe_server(flow)) == 0 &&
                   json_object_set_new(out, "cache", describe_cache(flow)) == 0 &&
                   json_object_set_new(out, "encoder", describe_encoder(flow)) == 0 &&
                   json_object_set_new(out, "judge", describe_judge(flow)) == 0 &&
                   json_object_set_new(out, "tokens_saved", json_integer(saved)) == 0 &&
                   json_object_set_new(out, "tokens_saved_net", json_integer(saved - spent)) == 0
               ? 0
               : QUIRE_ENOMEM;
}
