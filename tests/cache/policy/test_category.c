/*
 * test_category.c - settings of a category: words taken and refused, all or nothing, texts that make the same settings
 * again to the last bit, and the table of docs/cache-settings.md, which must say what category.def does.
 */
#include "cache/guard/guard.h"
#include "cache/policy/category.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <cmocka.h>

/* Applies words that stand in one text, between blanks. */
static int apply(struct category_settings *settings, const char *text, struct quire_error *err)
{
    struct quire_bytes words[64];
    uint32_t n = 0;
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, " ");
        assert_true(n < 64);
        words[n++] = (struct quire_bytes){at, bytes};
        at += bytes + (at[bytes] == ' ');
    }
    return category_apply(settings, words, n, err);
}

static struct category_settings defaults(void)
{
    struct category_settings settings;
    category_defaults(&settings);
    return settings;
}

static struct category_settings with(const char *text)
{
    struct category_settings settings = defaults();
    struct quire_error err = {0};
    if (apply(&settings, text, &err) != 0)
        fail_msg("%s: %s", text, err.message);
    return settings;
}

/* Field by field: there is padding. Doubles by their bits. */
static bool is_same(const struct category_settings *a, const struct category_settings *b)
{
#define SAME(field) (memcmp(&a->field, &b->field, sizeof a->field) == 0)
    return SAME(mode) && SAME(sim) && SAME(risk) && SAME(audit) && SAME(floor) && SAME(ceil) && SAME(ttl_ms) &&
           SAME(ttl_max_ms) && SAME(jitter_pct) && SAME(stale_ms) && SAME(stale_error_ms) && SAME(lease_ms) &&
           SAME(quota_bytes) && SAME(quota_entries) && SAME(min_share_pct) && SAME(priority) && SAME(evict) &&
           SAME(admit) && SAME(guards) && SAME(load_risk_max) && SAME(load_ttl_factor) && SAME(sliding) &&
           SAME(n_scope_keys) && SAME(scope_keys);
#undef SAME
}

static void assert_same(const struct category_settings *a, const struct category_settings *b)
{
    char text_a[CATEGORY_TEXT_BYTES], text_b[CATEGORY_TEXT_BYTES];
    category_print(a, text_a);
    category_print(b, text_b);
    assert_string_equal(text_a, text_b);
    assert_true(is_same(a, b));
}

static void test_defaults(void **state)
{
    (void)state;
    struct category_settings s = defaults();
    assert_int_equal(s.mode, CATEGORY_BOTH);
    assert_true(s.sim == 0 && s.risk == 0.02 && s.audit == 0 && s.floor == 0.5 && s.ceil == 1 && s.jitter_pct == 10);
    assert_int_equal(s.ttl_ms, 86400000);
    assert_int_equal(s.lease_ms, 30000);
    assert_int_equal(s.priority, 50);
    assert_int_equal(s.guards, GUARD_ALL);
    assert_int_equal(s.evict, EVICT_LRU);
    assert_int_equal(s.admit, ADMIT_ALWAYS);
    assert_true(s.load_risk_max == 0 && s.load_ttl_factor == 0 && !s.sliding && s.n_scope_keys == 0);
    assert_true(s.ttl_max_ms == 0 && s.stale_ms == 0 && s.stale_error_ms == 0 && s.quota_bytes == 0 &&
                s.quota_entries == 0);
}

static void test_words(void **state)
{
    (void)state;
    struct category_settings s =
        with("mode SEMANTIC Sim 0.9 TTL 60000 ttlmax 120000 GUARD number Date QUOTA 10mb entries 7 "
             "REQUIRESCOPE tenant User EVICT cost ADMIT second LOADMAX .8 2.5 SLIDING yes "
             "PRIORITY 100 MINSHARE 12.5 STALE 5 STALEERROR 9 LEASE 1 JITTER 0 FLOOR 0.7 CEIL 0.95 AUDIT 1e-2");
    assert_int_equal(s.mode, CATEGORY_SEMANTIC);
    assert_true(s.sim == 0.9 && s.risk == 0 && s.floor == 0.7 && s.ceil == 0.95 && s.audit == 0.01);
    assert_true(s.ttl_ms == 60000 && s.ttl_max_ms == 120000 && s.stale_ms == 5 && s.stale_error_ms == 9 &&
                s.lease_ms == 1);
    assert_int_equal(s.guards, 1u << GUARD_NUMBER | 1u << GUARD_DATE);
    assert_true(s.quota_bytes == 10u << 20 && s.quota_entries == 7 && s.min_share_pct == 12.5 && s.priority == 100);
    assert_true(s.evict == EVICT_COST && s.admit == ADMIT_SECOND && s.sliding && s.jitter_pct == 0);
    assert_true(s.load_risk_max == 0.8 && s.load_ttl_factor == 2.5);
    assert_int_equal(s.n_scope_keys, 2);
    assert_string_equal(s.scope_keys[0], "tenant");
    assert_string_equal(s.scope_keys[1], "User");
    /* what is not named stays */
    assert_int_equal(apply(&s, "PRIORITY 3", NULL), 0);
    assert_true(s.priority == 3 && s.ttl_ms == 60000 && s.sim == 0.9);
    assert_int_equal(apply(&s, "", NULL), 0);
    assert_int_equal(apply(&s, "GUARD none REQUIRESCOPE NONE", NULL), 0);
    assert_true(s.guards == 0 && s.n_scope_keys == 0 && s.scope_keys[0][0] == 0);
    assert_int_equal(apply(&s, "GUARD ALL", NULL), 0);
    assert_int_equal(s.guards, GUARD_ALL);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"QUOTA 0", 0},
                 {"QUOTA 5", 5},
                 {"QUOTA 5b", 5},
                 {"QUOTA 5k", 5000},
                 {"QUOTA 5KB", 5u << 10},
                 {"QUOTA 5m", 5000000},
                 {"QUOTA 5Mb", 5u << 20},
                 {"QUOTA 2g", 2000000000},
                 {"QUOTA 2gb", 2ull << 30},
                 {"QUOTA 1048576gb", 1ull << 50}};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(with(sizes[i].text).quota_bytes == sizes[i].bytes);
}

static void test_sim_and_risk(void **state)
{
    (void)state;
    struct category_settings s = with("SIM 0.9");
    assert_true(s.sim == 0.9 && s.risk == 0);
    assert_int_equal(apply(&s, "RISK 0.01", NULL), 0);
    assert_true(s.sim == 0 && s.risk == 0.01);
    assert_int_equal(apply(&s, "LOADMAX 0.05 1", NULL), 0);
    struct quire_error err = {0};
    assert_int_equal(apply(&s, "SIM 0.9", &err), QUIRE_EINVALID); /* LOADMAX would mean something else */
    assert_non_null(strstr(err.message, "LOADMAX"));
    assert_int_equal(apply(&s, "SIM 0.9 LOADMAX 0.8 1", NULL), 0);
    assert_int_equal(apply(&s, "SIM 0.95", NULL), 0);
    assert_int_equal(apply(&s, "RISK 0.01", &err), QUIRE_EINVALID);
    assert_int_equal(apply(&s, "RISK 0.01 LOADMAX 0 0", NULL), 0);
}

/* Each is refused with a message that names what it should, and nothing changes. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
        int code;
    } wrong[] = {
        {"SIMILARITY 0.9", "'SIMILARITY' is not a setting", QUIRE_EINVALID},
        {"PRIORITY 1 0.9", "'0.9' is not a setting", QUIRE_EINVALID},
        {"SIM", "SIM: its value is missing", QUIRE_EINVALID},
        {"SIM RISK 0.1", "SIM: its value is missing", QUIRE_EINVALID},
        {"SIM 1.5", "a similarity", QUIRE_ERANGE},
        {"SIM 90", "no percentage", QUIRE_ERANGE},
        {"FLOOR 1.0001", "no distance", QUIRE_ERANGE},
        {"CEIL 2", "from 0 to 1", QUIRE_ERANGE},
        {"SIM -0.5", "-0.5", QUIRE_ERANGE},
        {"SIM 0", "above 0", QUIRE_ERANGE},
        {"RISK 0", "MODE exact", QUIRE_ERANGE},
        {"RISK 2", "2 per cent are 0.02", QUIRE_ERANGE},
        {"SIM nan", "'nan' is not a number", QUIRE_EINVALID},
        {"RISK inf", "'inf' is not a number", QUIRE_EINVALID},
        {"SIM 0x1p-1", "'0x1p-1'", QUIRE_EINVALID},
        {"SIM 0.5.5", "'0.5.5'", QUIRE_EINVALID},
        {"SIM 1e999", "out of range", QUIRE_ERANGE},
        {"SIM 1e", "'1e'", QUIRE_EINVALID},
        {"SIM .", "'.'", QUIRE_EINVALID},
        {"SIM +0.5", "'+0.5'", QUIRE_EINVALID},
        {"SIM 0.9 RISK 0.1", "exclude each other", QUIRE_EINVALID},
        {"SIM 0.4", "FLOOR 0.5", QUIRE_EINVALID},
        {"SIM 0.9 CEIL 0.8", "CEIL 0.8", QUIRE_EINVALID},
        {"FLOOR 0.9 CEIL 0.8", "FLOOR 0.9 is above CEIL 0.8", QUIRE_EINVALID},
        {"CEIL 0.4", "FLOOR 0.5 is above CEIL 0.4", QUIRE_EINVALID},
        {"TTL 0", "1 to 315360000000", QUIRE_ERANGE},
        {"TTL 315360000001", "out of range", QUIRE_ERANGE},
        {"TTL 99999999999999999999999", "out of range", QUIRE_ERANGE},
        {"TTL 1h", "'1h' is not a whole number", QUIRE_EINVALID},
        {"TTL -1", "'-1'", QUIRE_EINVALID},
        {"TTL 1.5", "'1.5'", QUIRE_EINVALID},
        {"TTL 10 TTLMAX 5", "TTL 10 is above TTLMAX 5", QUIRE_EINVALID},
        {"TTLMAX 5", "TTL 86400000 is above TTLMAX 5", QUIRE_EINVALID},
        {"QUOTA 1tb", "64mb", QUIRE_EINVALID},
        {"QUOTA 1048577gb", "out of range", QUIRE_ERANGE},
        {"QUOTA 18446744073709551615gb", "out of range", QUIRE_ERANGE},
        {"QUOTA mb", "'mb'", QUIRE_EINVALID},
        {"ENTRIES 4294967281", "4294967280", QUIRE_ERANGE},
        {"PRIORITY 101", "0 to 100", QUIRE_ERANGE},
        {"MINSHARE 101", "per cent", QUIRE_ERANGE},
        {"JITTER 91", "0 to 90", QUIRE_ERANGE},
        {"MODE fuzzy", "off|exact|semantic|both", QUIRE_EINVALID},
        {"MODE exac", "'exac'", QUIRE_EINVALID},
        {"EVICT fifo", "lru|lfu|cost", QUIRE_EINVALID},
        {"SLIDING 1", "no|yes", QUIRE_EINVALID},
        {"GUARD", "GUARD: its value is missing", QUIRE_EINVALID},
        {"GUARD TTL 5", "GUARD: its value is missing", QUIRE_EINVALID},
        {"GUARD number weather", "'weather' is not a guard", QUIRE_EINVALID},
        {"GUARD all number", "all and none stand alone", QUIRE_EINVALID},
        {"GUARD number none", "all and none stand alone", QUIRE_EINVALID},
        {"REQUIRESCOPE", "REQUIRESCOPE: its value is missing", QUIRE_EINVALID},
        {"REQUIRESCOPE a none", "none stands alone", QUIRE_EINVALID},
        {"REQUIRESCOPE none a", "none stands alone", QUIRE_EINVALID},
        {"REQUIRESCOPE none none", "none stands alone", QUIRE_EINVALID},
        {"REQUIRESCOPE a b a", "'a' is given twice", QUIRE_EINVALID},
        {"REQUIRESCOPE a\tb", "'a?b' is not a scope key", QUIRE_EINVALID},
        {"REQUIRESCOPE a b c d e f g h i", "at most 8", QUIRE_ELIMIT},
        {"REQUIRESCOPE 0123456789012345678901234567890123456789012345678901234567890123", "1 to 63 bytes",
         QUIRE_EINVALID},
        {"LOADMAX 0.1", "LOADMAX: one of its two values", QUIRE_EINVALID},
        {"LOADMAX 0.01 1", "below RISK 0.02", QUIRE_EINVALID},
        {"LOADMAX 1.1 1", "out of range", QUIRE_ERANGE},
        {"LOADMAX 0.1 101", "out of range", QUIRE_ERANGE},
        {"SIM 0.9 LOADMAX 0.95 1", "lowest similarity", QUIRE_EINVALID},
        {"SIM 0.9 LOADMAX 0.1 1", "lowest similarity", QUIRE_EINVALID},
        {"TTL 5 PRIORITY 3 ttl 6", "TTL is given twice", QUIRE_EINVALID},
        {"PRIORITY 3 TTL 5 MODE exact WRONG", "'WRONG'", QUIRE_EINVALID},
    };
    struct category_settings before = defaults();
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct category_settings s = before;
        struct quire_error err = {0};
        int rc = apply(&s, wrong[i].text, &err);
        if (rc != wrong[i].code || err.code != rc || !strstr(err.message, wrong[i].names))
            fail_msg("%s: %d, %s", wrong[i].text, rc, err.message);
        assert_true(is_same(&s, &before));
        assert_int_equal(apply(&s, wrong[i].text, NULL), rc);
    }
}

/* Words with bytes of any kind, as they come from clients. */
static void test_bytes(void **state)
{
    (void)state;
    struct category_settings s = defaults();
    struct quire_error err = {0};
    struct quire_bytes nul[] = {text_of("TTL"), {"5\0", 2}}, line[] = {{"a\r\nb", 4}}, none[] = {{NULL, 0}},
                       empty[] = {text_of("MODE"), {NULL, 0}}, key[] = {text_of("REQUIRESCOPE"), {"a\0b", 3}};
    assert_int_equal(category_apply(&s, nul, 2, &err), QUIRE_EINVALID);
    assert_int_equal(category_apply(&s, line, 1, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "'a??b'"));
    assert_int_equal(category_apply(&s, none, 1, &err), QUIRE_EINVALID);
    assert_int_equal(category_apply(&s, empty, 2, &err), QUIRE_EINVALID);
    assert_int_equal(category_apply(&s, key, 2, &err), QUIRE_EINVALID);
    char *big = calloc(1, 1u << 20);
    assert_non_null(big);
    memset(big, '9', 1u << 20);
    struct quire_bytes number[] = {text_of("TTL"), {big, 1u << 20}};
    assert_int_equal(category_apply(&s, number, 2, &err), QUIRE_EINVALID);
    assert_int_equal(category_parse(&s, (struct quire_bytes){big, 1u << 20}, &err), QUIRE_EINVALID);
    free(big);
    struct category_settings before = defaults();
    assert_true(is_same(&s, &before));
}

/* ---- round trips ------------------------------------------------------------------------------------------------- */

/* A number with all its bits at random, in least .. most. */
static double any_double(struct random *random, double least, double most)
{
    double x = (double)(random_next(random) >> 11) / 9007199254740992.0;
    if (random_below(random, 4) == 0)
        x *= 1e-9;
    x = least + x * (most - least);
    return x < least ? least : x > most ? most : x;
}

static struct category_settings any_settings(struct random *random)
{
    struct category_settings s = defaults();
    s.mode = (enum category_mode)random_below(random, 4);
    s.floor = any_double(random, 0, 0.5);
    s.ceil = any_double(random, 0.5, 1);
    bool fixed = random_below(random, 2), loaded = random_below(random, 2);
    s.sim = fixed ? any_double(random, 0.5, s.ceil) : 0;
    s.risk = fixed ? 0 : any_double(random, 1e-30, 0.5);
    s.load_risk_max = !loaded ? 0 : any_double(random, fixed ? s.floor : s.risk, fixed ? s.sim : 1);
    s.load_ttl_factor = loaded ? any_double(random, 0, 100) : 0;
    s.audit = any_double(random, 0, 1);
    s.ttl_ms = 1 + random_below(random, 315360000000);
    s.ttl_max_ms = random_below(random, 2) ? s.ttl_ms : 0;
    s.jitter_pct = any_double(random, 0, 90);
    s.stale_ms = random_below(random, 315360000001);
    s.stale_error_ms = random_below(random, 315360000001);
    s.lease_ms = 1 + random_below(random, 3600000);
    s.quota_bytes = random_below(random, (1ull << 50) + 1);
    s.quota_entries = random_below(random, 4294967281);
    s.min_share_pct = any_double(random, 0, 100);
    s.priority = (unsigned)random_below(random, 101);
    s.evict = (enum category_evict)random_below(random, 3);
    s.admit = (enum category_admit)random_below(random, 2);
    s.guards = (unsigned)random_below(random, GUARD_ALL + 1);
    s.sliding = random_below(random, 2);
    s.n_scope_keys = (unsigned)random_below(random, CATEGORY_SCOPE_KEYS_MAX + 1);
    for (unsigned i = 0; i < s.n_scope_keys; i++) {
        unsigned n = 1 + (unsigned)random_below(random, CATEGORY_SCOPE_KEY_BYTES - 1);
        for (unsigned c = 0; c < n; c++)
            s.scope_keys[i][c] = (char)(c == 0 ? '0' + (int)i : (int)(33 + random_below(random, 94)));
    }
    return s;
}

/* All settings as words of one SC.CAT.SET, from what SC.CAT.GET shows. */
static void collect(void *context, const char *word, const char *value)
{
    char *text = context;
    size_t used = strlen(text);
    assert_true(word[0] >= 'a' && word[0] <= 'z' && value[0] != 0);
    snprintf(text + used, CATEGORY_TEXT_BYTES - used, "%s%s %s", used ? " " : "", word, value);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 42);
    uint32_t longest = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct category_settings s = any_settings(&random), again = any_settings(&random);
        char text[CATEGORY_TEXT_BYTES], words[CATEGORY_TEXT_BYTES] = "";
        struct quire_error err = {0};
        uint32_t n = category_print(&s, text);
        assert_int_equal(n, strlen(text));
        longest = n > longest ? n : longest;
        if (category_parse(&again, (struct quire_bytes){text, n}, &err) != 0)
            fail_msg("%s: %s", text, err.message);
        assert_same(&s, &again);
        category_each(&s, collect, words);
        assert_string_equal(words, text);
        again = any_settings(&random); /* as an SC.CAT.SET of everything, onto anything */
        assert_int_equal(apply(&again, words, &err), 0);
        assert_same(&s, &again);
    }
    assert_in_range(longest, 600, CATEGORY_TEXT_BYTES / 2 + 512);
}

/* A log written before a setting was there: the default. */
static void test_parse_of_less(void **state)
{
    (void)state;
    struct category_settings s = with("PRIORITY 7 REQUIRESCOPE tenant"), expected = with("TTL 5");
    assert_int_equal(category_parse(&s, text_of("  ttl 5 "), NULL), 0);
    assert_same(&s, &expected);
    expected = defaults();
    assert_int_equal(category_parse(&s, (struct quire_bytes){NULL, 0}, NULL), 0);
    assert_same(&s, &expected);
}

/* ---- documentation ----------------------------------------------------------------------------------------------- */

struct shown {
    const char *word;
    char value[256];
};

static void find_value(void *context, const char *word, const char *value)
{
    struct shown *shown = context;
    if (strcasecmp(word, shown->word) == 0)
        snprintf(shown->value, sizeof shown->value, "`%s`", value);
}

static char *read_docs(void)
{
    char *text = calloc(1, 65536);
    FILE *file = fopen(QUIRE_SOURCE_DIR "/docs/cache-settings.md", "r");
    assert_true(text && file);
    assert_in_range(fread(text, 1, 65535, file), 1000, 65534);
    fclose(file);
    return text;
}

static const char *choices_text(const char *choices)
{
    static char text[128];
    size_t used = 0;
    for (const char *c = choices; *c; c++)
        used += (size_t)snprintf(text + used, sizeof text - used, *c == '|' ? "`, `" : "%c", *c);
    return text;
}

static const char *range_text(const char *kind, double least, double most)
{
    static char text[128];
    snprintf(text, sizeof text, "%s%.16g to %.16g", kind, least, most);
    return text;
}

/* Each row of category.def is a line of the table: word, values, default, meaning. */
static void assert_line(const char *docs, const char *word, const char *values, const char *help)
{
    struct category_settings s = defaults();
    struct shown shown = {.word = word, .value = "none: RISK is in force"};
    char line[1024];
    category_each(&s, find_value, &shown);
    snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s |\n", word, values, shown.value, help);
    if (!strstr(docs, line))
        fail_msg("docs/cache-settings.md lacks the line %s", line);
}

static void test_docs(void **state)
{
    (void)state;
    char *docs = read_docs(), values[256];
#define CHOICE(field, word, initial, choices, help)                                                                    \
    snprintf(values, sizeof values, "`%s`", choices_text(choices));                                                    \
    assert_line(docs, word, values, help);
#define DECIMAL(field, word, initial, least, most, hint, help)                                                         \
    assert_line(docs, word, range_text("", least, most), help);
#define WHOLE(field, word, initial, least, most, help)                                                                 \
    assert_line(docs, word, range_text("whole, ", (double)(least), (double)(most)), help);
#define SMALL(field, word, initial, least, most, help) WHOLE(field, word, initial, least, most, help)
#define BYTES(field, word, initial, least, most, help)                                                                 \
    assert_line(docs, word, range_text("size, ", (double)(least), (double)(most)), help);
#define SWITCH(field, word, initial, help) assert_line(docs, word, "`no`, `yes`", help);
#define GUARDS(field, word, help)          assert_line(docs, word, "names of guards, `all`, or `none`", help);
#define KEYS(field, word, help)            assert_line(docs, word, "up to 8 names, or `none`", help);
#define LOADMAX(field, word, factor_most, help)                                                                        \
    snprintf(values, sizeof values, "two: 0 to 1, and 0 to %d", factor_most);                                          \
    assert_line(docs, word, values, help);
#include "cache/policy/category.def"
    free(docs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_words),         cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_sim_and_risk), cmocka_unit_test(test_refused),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_parse_of_less), cmocka_unit_test(test_docs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
