/*
 * test_policy.c - controls, gates, tenants, routes, limits and diagnosis against cases written by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/policy/policy_control.h"
#include "gateway/policy/policy_diagnosis.h"
#include "gateway/policy/policy_gate.h"
#include "gateway/policy/policy_limit.h"
#include "gateway/policy/policy_route.h"
#include "gateway/policy/policy_tenant.h"
#include "gateway/text/ask.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int field(struct policy_controls *controls, unsigned allow, const char *name, const char *value,
                 struct quire_error *err)
{
    return policy_control_field(controls, allow, name, strlen(name), value, strlen(value), err);
}

static int quire_control(struct policy_controls *controls, const char *value, struct quire_error *err)
{
    return field(controls, POLICY_ALLOW_ALL, "x-quire-control", value, err);
}

static void test_controls(void **state)
{
    struct policy_controls c;
    struct quire_error err;
    (void)state;
    policy_control_init(&c);
    const char *const http = "no-cache, private, max-age=60, foo=\"a b\", off, sim=0.1, max-age=x";
    assert_int_equal(field(&c, 0, "Cache-Control", http, &err), 0);
    assert_true(!c.no_cache && c.max_age_ms == -1); /* the setting controls allows none */
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "Cache-Control", http, &err), 0);
    assert_true(c.no_cache && !c.no_store && c.max_age_ms == 60000 && !c.off && c.sim == -1);
    assert_int_equal(quire_control(&c, "max-age=90 , ttl=3600,exact , sim=0.95", &err), 0);
    assert_int_equal(c.max_age_ms, 60000); /* the shorter holds */
    assert_true(c.ttl_ms == 3600000 && c.exact && fabs(c.sim - 0.95) < 1e-12);
    assert_int_equal(quire_control(&c, "sim=0.5", &err), 0);
    assert_true(fabs(c.sim - 0.95) < 1e-12); /* and the higher similarity */
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Tags", "doc:17, doc:18,,", &err), 0);
    assert_int_equal(c.n_tags, 2);
    assert_string_equal(c.tags[1], "doc:18");
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Category", " faq ", &err), 0);
    assert_string_equal(c.category, "faq");
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Explain", "yes", &err), 0);
    assert_true(c.explain);
    assert_int_equal(field(&c, 0, "Content-Type", "application/json", &err), 0);
    policy_control_fini(&c);
}

/* What somebody says to us and we do not understand is an error that says so. */
static void test_controls_refused(void **state)
{
    static const char *const values[] = {
        "of",       "max-age=1m", "max-age=-1", "max-age", "ttl=0",     "sim=1.01",   "sim=nan",
        "sim=1e-1", "off=1",      "exact=",     "tags=a",  "sim=0.9.1", "max-age=1 2"};
    struct policy_controls c;
    struct quire_error err;
    char longest[400];
    (void)state;
    policy_control_init(&c);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(quire_control(&c, values[i], &err), QUIRE_EINVALID);
        assert_non_null(strstr(err.message, "X-Quire-Control"));
    }
    assert_int_equal(field(&c, POLICY_ALLOW_ALL & ~(unsigned)POLICY_ALLOW_OFF, "X-Quire-Control", "off", &err),
                     QUIRE_EINVALID);
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Ttl", "5", &err), QUIRE_EINVALID);
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Category", "a b", &err), QUIRE_EINVALID);
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Category", "", &err), QUIRE_EINVALID);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Category", longest, &err), QUIRE_ELIMIT);
    for (unsigned i = 0; i < POLICY_TAGS_MAX; i++)
        assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Tags", "t", &err), 0);
    assert_int_equal(field(&c, POLICY_ALLOW_ALL, "X-Quire-Tags", "t", &err), QUIRE_ELIMIT);
    policy_control_fini(&c);
}

static const struct policy_gate_options gates = {.temperature_max = 1, .turns = 3};

static struct policy_gate gate_of(enum ask_kind kind, uint32_t features, double temperature, uint32_t turns)
{
    struct ask ask = {.kind = kind, .features = features, .temperature = temperature, .user_turns = turns};
    ask.question = (struct strict_text){"why", 3};
    return policy_gate_ask(&ask, &gates);
}

static void test_gates(void **state)
{
    struct policy_gate g = gate_of(ASK_CHAT, 0, NAN, 1);
    struct ask odd = {.odd = "a name twice", .temperature = NAN};
    (void)state;
    assert_true(g.look == POLICY_NEAR && g.keep && !g.reason);
    assert_int_equal(gate_of(ASK_CHAT, ASK_STREAM | ASK_USAGE | ASK_TEMPERATURE, 1.0, 3).look, POLICY_NEAR);
    assert_int_equal(gate_of(ASK_CHAT, ASK_TEMPERATURE, 1.01, 1).look, POLICY_BYPASS);
    assert_int_equal(gate_of(ASK_CHAT, 0, NAN, 4).look, POLICY_EXACT);
    g = gate_of(ASK_CHAT, ASK_N | ASK_SEED, NAN, 1);
    assert_true(g.look == POLICY_EXACT && !g.keep);
    static const uint32_t exact[] = {ASK_BEST_OF, ASK_LOGPROBS,   ASK_ECHO,      ASK_AUDIO,
                                     ASK_SEED,    ASK_TOOLS,      ASK_LAST_TOOL, ASK_LAST_ASSISTANT,
                                     ASK_PARTS,   ASK_PREDICTION, ASK_FORMAT,    ASK_SUFFIX};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        g = gate_of(ASK_CHAT, exact[i], NAN, 1);
        assert_true(g.look == POLICY_EXACT && g.keep && g.reason);
        g = gate_of(ASK_CHAT, exact[i] | ASK_BUILT_IN, NAN, 1);
        assert_true(g.look == POLICY_BYPASS && !g.keep);
    }
    assert_int_equal(gate_of(ASK_CHAT, ASK_BACKGROUND, NAN, 1).look, POLICY_BYPASS);
    assert_int_equal(gate_of(ASK_RESPONSES, ASK_STORES, NAN, 1).look, POLICY_BYPASS);
    assert_int_equal(gate_of(ASK_RESPONSES, ASK_PREVIOUS, NAN, 1).look, POLICY_BYPASS);
    assert_int_equal(gate_of(ASK_RESPONSES, 0, NAN, 1).look, POLICY_EXACT);
    assert_int_equal(gate_of(ASK_MESSAGES, 0, NAN, 1).look, POLICY_EXACT);
    assert_int_equal(gate_of(ASK_EMBEDDINGS, 0, NAN, 0).look, POLICY_EXACT);
    struct ask tools = {.kind = ASK_CHAT, .features = ASK_TOOLS, .temperature = NAN, .question = {"why", 3}};
    struct policy_gate_options near_tools = gates;
    near_tools.near_tools = true;
    g = policy_gate_ask(&tools, &near_tools);
    assert_true(g.look == POLICY_NEAR && g.keep && g.tools && !g.reason);
    tools.features |= ASK_LAST_TOOL;
    g = policy_gate_ask(&tools, &near_tools);
    assert_true(g.look == POLICY_EXACT && g.keep && g.reason);
    g = policy_gate_ask(&odd, &gates);
    assert_true(g.look == POLICY_BYPASS && !g.keep && strcmp(g.reason, "a name twice") == 0);
}

/* A client can only be stricter. */
static void test_narrow(void **state)
{
    struct policy_controls c;
    struct policy_gate near = gate_of(ASK_CHAT, 0, NAN, 1), bypass = gate_of(ASK_CHAT, ASK_BUILT_IN, NAN, 1);
    (void)state;
    policy_control_init(&c);
    assert_int_equal(policy_gate_narrow(near, &c).look, POLICY_NEAR);
    c.exact = true;
    assert_int_equal(policy_gate_narrow(near, &c).look, POLICY_EXACT);
    assert_int_equal(policy_gate_narrow(bypass, &c).look, POLICY_BYPASS);
    c.no_store = true;
    assert_false(policy_gate_narrow(near, &c).keep);
    c.no_store = false;
    c.off = true;
    assert_int_equal(policy_gate_narrow(near, &c).look, POLICY_BYPASS);
}

static struct policy_field text(const char *s)
{
    return (struct policy_field){s, strlen(s)};
}

static void test_credentials(void **state)
{
    static const uint8_t secret[16] = "0123456789abcde", other[16] = "0123456789abcdX";
    struct policy_credential c[] = {{.authorization = {NULL, 0}},
                                    {.authorization = text("Bearer ab")},
                                    {.authorization = text("Bearer a")},
                                    {.api_key = text("Bearer ab")},
                                    {.x_api_key = text("Bearer ab")},
                                    {.authorization = text("Bearer ab"), .organization = text("")},
                                    {.authorization = text("Bearer a"), .organization = text("b")},
                                    {.authorization = text("Bearer a"), .project = text("b")}};
    enum { N = sizeof c / sizeof *c };
    uint8_t hashes[N][POLICY_HASH_BYTES], again[POLICY_HASH_BYTES];
    (void)state;
    assert_true(policy_credential_is_empty(&c[0]) && !policy_credential_is_empty(&c[4]));
    for (unsigned i = 0; i < N; i++) {
        assert_true(policy_credential_hash(&c[i], secret, sizeof secret, hashes[i]));
        for (unsigned j = 0; j < i; j++)
            assert_memory_not_equal(hashes[i], hashes[j], POLICY_HASH_BYTES);
        assert_true(policy_credential_hash(&c[i], other, sizeof other, again));
        assert_memory_not_equal(hashes[i], again, POLICY_HASH_BYTES);
    }
    assert_int_equal(policy_credential_key(&c[1]).bytes, 2);
    assert_null(policy_credential_key(&c[0]).data);
}

static void test_keys(void **state)
{
    /* somebody's, and the SHA-256 of "c", by sha256sum */
    static const char file[] =
        "{\"keys\": [{\"sha256\": "
        "\"2b57f4f3ac90b5f7e1e0ae2ef19c8d7e2c0c6ee5b1d0e4fbf0f5c0f4c9a3b1d2\", \"tenant\": \"b\"},"
        "{\"sha256\": \"%s\", \"tenant\": \"acme\", \"upstream_key\": \"up\", \"rate\": 2.5,"
        "\"concurrent\": 3, \"admin\": true, \"categories\": [\"faq\", \"chat\"]}]}";
    static const char *const bad[] = {"{", "{\"keys\": 5}", "{\"keys\": [5]}", "{\"keys\": [{\"tenant\": \"a\"}]}",
                                      "{\"keys\": [{\"sha256\": \"zz\", \"tenant\": \"a\"}]}"};
    char json[1000];
    struct policy_keys *keys = NULL;
    struct quire_error err;
    const struct policy_key *key;
    (void)state;
    snprintf(json, sizeof json, file, "2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6"); /* "c" */
    assert_int_equal(policy_keys_parse(json, strlen(json), &keys, &err), 0);
    assert_int_equal(policy_keys_n(keys), 2);
    key = policy_keys_find(keys, text("c"));
    assert_non_null(key);
    assert_string_equal(key->tenant, "acme");
    assert_string_equal(key->upstream_key, "up");
    assert_string_equal(key->categories, "faq chat");
    assert_true(key->admin && key->concurrent == 3 && fabs(key->rate - 2.5) < 1e-9);
    assert_null(policy_keys_find(keys, text("d")));
    policy_keys_free(keys);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        keys = NULL;
        assert_int_equal(policy_keys_parse(bad[i], strlen(bad[i]), &keys, &err), QUIRE_EPARSE);
        assert_null(keys);
        assert_non_null(strstr(err.message, "key file"));
    }
    snprintf(json, sizeof json, file, "2b57f4f3ac90b5f7e1e0ae2ef19c8d7e2c0c6ee5b1d0e4fbf0f5c0f4c9a3b1d2");
    assert_int_equal(policy_keys_parse(json, strlen(json), &keys, &err), QUIRE_EPARSE); /* one key, two tenants */
}

/* No tenant's name, no hash and no word for nobody or everybody can be another's scope. */
static void test_scopes(void **state)
{
    uint8_t hash[POLICY_HASH_BYTES] = {0xab, 0xcd};
    struct policy_key named = {.tenant = "anonymous"};
    char scope[POLICY_TENANT_BYTES_MAX + 8];
    (void)state;
    policy_tenant_scope(POLICY_SHARE_KEY, NULL, false, hash, scope);
    assert_string_equal(scope, "k:abcd0000000000000000000000000000");
    policy_tenant_scope(POLICY_SHARE_KEY, &named, false, hash, scope);
    assert_string_equal(scope, "k:abcd0000000000000000000000000000");
    policy_tenant_scope(POLICY_SHARE_TENANT, &named, false, hash, scope);
    assert_string_equal(scope, "t:anonymous");
    policy_tenant_scope(POLICY_SHARE_TENANT, NULL, true, hash, scope);
    assert_string_equal(scope, "anonymous");
    policy_tenant_scope(POLICY_SHARE_ALL, NULL, false, hash, scope);
    assert_string_equal(scope, "all");
    policy_tenant_scope(POLICY_SHARE_ALL, NULL, true, hash, scope); /* nobody shares with those who have a name */
    assert_string_equal(scope, "anonymous");
}

static void test_accepted(void **state)
{
    struct policy_accepted *accepted = policy_accepted_create(4);
    uint8_t hash[POLICY_HASH_BYTES] = {0};
    unsigned known = 0;
    (void)state;
    policy_accepted_add(accepted, hash, 1000, 600);
    assert_true(policy_accepted_has(accepted, hash, 1599));
    assert_false(policy_accepted_has(accepted, hash, 1600));
    policy_accepted_add(accepted, hash, 2000, 600);
    assert_true(policy_accepted_has(accepted, hash, 2500));
    policy_accepted_forget(accepted, hash);
    assert_false(policy_accepted_has(accepted, hash, 2000));
    for (unsigned i = 0; i < 1000; i++) {
        hash[0] = (uint8_t)i;
        hash[9] = (uint8_t)(i >> 8);
        policy_accepted_add(accepted, hash, 1, 10);
        assert_true(policy_accepted_has(accepted, hash, 2));
        if (i % 3 == 0)
            policy_accepted_add(accepted, hash, 1, 10);
        if (i % 7 == 0)
            policy_accepted_forget(accepted, hash);
    }
    for (unsigned i = 0; i < 1000; i++) {
        hash[0] = (uint8_t)i;
        hash[9] = (uint8_t)(i >> 8);
        known += policy_accepted_has(accepted, hash, 2);
    }
    assert_true(known >= 1 && known <= 4);
    policy_accepted_destroy(accepted);
}

static void test_routes(void **state)
{
    static const struct policy_rule rules[] = {{.path = "/v1/embeddings", .category = "vectors"},
                                               {.model = "gpt-4*", .system = "*You are a bank*", .category = "bank"},
                                               {.tenant = "t:ac?e", .category = "acme"}};
    struct policy_asked asked = {.path = "/v1/chat/completions", .path_bytes = 20, .model = "gpt-4o", .model_bytes = 6};
    (void)state;
    assert_null(policy_route(rules, 3, &asked));
    asked.system = "Hi. You are a bank.";
    asked.system_bytes = strlen(asked.system);
    assert_string_equal(policy_route(rules, 3, &asked), "bank");
    asked.system_bytes = 4;
    asked.tenant = "t:acme";
    asked.tenant_bytes = 6;
    assert_string_equal(policy_route(rules, 3, &asked), "acme");
    assert_true(policy_glob("", "", 0) && policy_glob("*", "", 0) && policy_glob("a*b*c", "aXbYbZc", 7));
    assert_false(policy_glob("a*b", "ac", 2) || policy_glob("?", "", 0) || policy_glob("ab", "abc", 3));
    static const struct policy_rule secret = {
        .system = "sha256:2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6", .category = "c"};
    asked.system = "c";
    asked.system_bytes = 1;
    assert_string_equal(policy_route(&secret, 1, &asked), "c");
    asked.system = "d";
    assert_null(policy_route(&secret, 1, &asked));
    char many[60000];
    memset(many, 'a', sizeof many);
    assert_false(policy_glob("*a*a*a*a*a*a*a*a*a*a*b", many, sizeof many)); /* at once */
    assert_true(policy_in_list("faq chat", "chat") && !policy_in_list("faq chat", "cha"));
}

static void test_limits(void **state)
{
    struct policy_limits *limits = policy_limits_create(2);
    struct policy_limit *a, *b, *c;
    uint64_t retry;
    (void)state;
    assert_null(policy_limit_enter(limits, "a", 0, 0, 0, &retry));
    assert_int_equal(retry, 0);
    a = policy_limit_enter(limits, "a", 2, 1, 1000, &retry);
    assert_true(a && retry == 0);
    assert_null(policy_limit_enter(limits, "a", 2, 1, 1000, &retry)); /* one at a time */
    assert_int_equal(retry, 1000);
    policy_limit_leave(a);
    a = policy_limit_enter(limits, "a", 2, 1, 1000, &retry);
    assert_non_null(a);
    policy_limit_leave(a);
    assert_null(policy_limit_enter(limits, "a", 2, 1, 1000, &retry)); /* two a second */
    assert_int_equal(retry, 500);
    a = policy_limit_enter(limits, "a", 2, 1, 1500, &retry);
    assert_non_null(a);
    b = policy_limit_enter(limits, "b", 1, 0, 1500, &retry);
    assert_non_null(b);
    assert_null(policy_limit_enter(limits, "c", 1, 0, 1500, &retry)); /* all that are known are at work */
    assert_int_equal(retry, 1000);
    policy_limit_leave(b);
    c = policy_limit_enter(limits, "c", 1, 0, 1500, &retry);
    assert_non_null(c);
    policy_limit_leave(c);
    policy_limit_leave(a);
    policy_limits_destroy(limits);
}

static void test_diagnosis(void **state)
{
    struct policy_diagnoses *diagnoses = policy_diagnoses_create(2);
    char sentence[500];
    (void)state;
    for (unsigned i = 0; i < POLICY_DIAGNOSIS_REQUESTS; i++) {
        char system[200];
        uint8_t compat[32] = {(uint8_t)i, 1};
        uint8_t same[32] = {7};
        assert_false(policy_diagnosis_of(diagnoses, "acme", sentence, sizeof sentence));
        snprintf(system, sizeof system, "You are kind. It is 2026-11-23T10:00:%02u. Be short.", i % 60);
        /* it is new with the hundredth */
        assert_true(policy_diagnosis_add(diagnoses, "acme", compat, system, strlen(system)) ==
                    (i + 1 == POLICY_DIAGNOSIS_REQUESTS));
        assert_false(policy_diagnosis_add(diagnoses, "good", same, "You are kind.", 13));
    }
    assert_true(policy_diagnosis_of(diagnoses, "acme", sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "99:99:"));
    assert_null(strstr(sentence, "kind"));
    assert_false(policy_diagnosis_of(diagnoses, "good", sentence, sizeof sentence));
    for (unsigned i = 0; i < 3 * POLICY_DIAGNOSIS_REQUESTS; i++) { /* and again, after a hundred that did not */
        uint8_t compat[32] = {(uint8_t)i, (uint8_t)(i / 256), 2};
        bool same = i >= POLICY_DIAGNOSIS_REQUESTS && i < 2 * POLICY_DIAGNOSIS_REQUESTS;
        assert_true(policy_diagnosis_add(diagnoses, "acme", same ? (uint8_t[32]){0} : compat, NULL, 0) ==
                    (i + 1 == 3 * POLICY_DIAGNOSIS_REQUESTS));
    }
    policy_diagnoses_destroy(diagnoses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls), cmocka_unit_test(test_controls_refused), cmocka_unit_test(test_gates),
        cmocka_unit_test(test_narrow),   cmocka_unit_test(test_credentials),      cmocka_unit_test(test_keys),
        cmocka_unit_test(test_scopes),   cmocka_unit_test(test_accepted),         cmocka_unit_test(test_routes),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_diagnosis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
