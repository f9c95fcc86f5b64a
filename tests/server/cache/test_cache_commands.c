/*
 * test_cache_commands.c - semantic caches over the wire: every SC command in both protocols, every refusal, documents
 * of all sizes from memory and from the disk, users, figures, and what a restart and a snapshot keep.
 */
#include "server/admin/metrics.h"
#include "tests/server/support_sc.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- caches and categories --------------------------------------------------------------------------------------- */

static void test_create_and_drop(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    struct reply r = ask(&c, "SC.LIST");
    assert_true(r.type == '*' && r.n == 0);
    reply_free(&r);
    expect_text(&c, "SC.CREATE b dim 8 type i8 memory 2000000 DISK 4000000 SCOPE tenant user REQUIRESCOPE", "OK");
    expect_text(&c, "SC.CREATE a TYPE f16 ENCODER e5@2 DIM 4", "OK");
    expect_error(&c, "SC.CREATE a DIM 4", "BUSYKEY");
    r = ask(&c, "SC.LIST");
    assert_true(r.n == 2 && reply_is(&r.items[0], "a") && reply_is(&r.items[1], "b"));
    reply_free(&r);
    expect_text(&c, "SC.CAT.SET b x SIM 0.8", "OK");
    r = ask(&c, "SC.INFO b");
    sc_check_field(&r, "name", "b");
    sc_check_field(&r, "type", "i8");
    assert_true(sc_number(&r, "dim") == 8 && sc_number(&r, "memory") == 2000000 && sc_number(&r, "disk") == 4000000);
    assert_true(sc_number(&r, "require_scope") == 1 && sc_number(&r, "entries") == 0 &&
                reply_field(&r, "encoder")->null);
    const struct reply *scope = reply_field(&r, "scope"), *categories = reply_field(&r, "categories");
    assert_true(scope->n == 2 && reply_is(&scope->items[0], "tenant") && reply_is(&scope->items[1], "user"));
    assert_true(categories->n == 1 && reply_is(&categories->items[0], "x"));
    reply_free(&r);
    r = ask(&c, "SC.INFO a");
    sc_check_field(&r, "encoder", "e5@2");
    assert_true(sc_number(&r, "memory") == (double)CACHE_MEMORY_DEFAULT);
    reply_free(&r);
    expect_integer(&c, "SC.DROP b", 1);
    expect_integer(&c, "SC.DROP b", 0);
    expect_error(&c, "SC.INFO b", "ERR no such cache 'b': SC.CREATE");
    expect_integer(&c, "DBSIZE", 0);
    sc_end(s, &c);
}

static void test_refused_caches(void **state)
{
    static const struct {
        const char *words, *error;
    } cases[] = {
        {"SC.CREATE x TYPE f32", "ERR DIM is missing"},
        {"SC.CREATE x DIM 0", "ERR DIM is '0': give a whole number from 1 to"},
        {"SC.CREATE x DIM many", "ERR DIM is 'many'"},
        {"SC.CREATE x DIM 4 TYPE u8", "ERR TYPE is 'u8': say f32, f16 or i8"},
        {"SC.CREATE x DIM 4 MEMORY -1", "ERR MEMORY is '-1'"},
        {"SC.CREATE x DIM 4 DISK 1gb", "ERR DISK is '1gb'"},
        {"SC.CREATE x DIM 4 SCOPE", "ERR syntax error: SCOPE needs keys"},
        {"SC.CREATE x DIM 4 ENCODER", "ERR syntax error: ENCODER needs a value"},
        {"SC.CREATE x DIM 4 COLOUR red", "ERR syntax error at 'COLOUR'"},
        {"SC.CREATE x DIM 4 SCOPE 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", "ERR SCOPE has more than 16 keys"},
        {"SC.CREATE x", "ERR wrong number of arguments"},
    };
    static const char *const none[] = {"dir", "", NULL};
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(&c, cases[i].words, cases[i].error);
    struct reply r = ask(&c, "SC.LIST");
    assert_int_equal(r.n, 0);
    reply_free(&r);
    sc_end(s, &c);
    s = support_server(none);
    connect_to(&c, s->port);
    expect_error(&c, "SC.CREATE x DIM 4", "ERR semantic caches need a data folder: start the server with --dir");
    expect_error(&c, "SC.GET x CAT q HASH h", "ERR no such cache 'x'");
    expect_integer(&c, "SC.DROP x", 0);
    r = ask(&c, "SC.LIST");
    assert_int_equal(r.n, 0);
    reply_free(&r);
    assert_int_equal(info_number(&c, "caches"), 0);
    sc_end(s, &c);
}

/* What SC.CAT.GET says, given to SC.CAT.SET of another category, makes the same. */
static void check_round_trip(struct connection *c, const char *from)
{
    struct resp_buffer out = {.protocol = 2};
    struct reply a = sc_say(c, NULL, "SC.CAT.GET f %s", from);
    assert_true(a.n > 20 && a.n % 2 == 0);
    resp_array(&out, 3 + a.n);
    resp_text(&out, "SC.CAT.SET");
    resp_text(&out, "f");
    resp_text(&out, "copy");
    for (size_t i = 0; i < a.n; i++)
        resp_bulk(&out, a.items[i].text, a.items[i].bytes);
    send_bytes(c, out.data, out.bytes);
    check_text(read_reply(c), "OK");
    struct reply b = ask(c, "SC.CAT.GET f copy");
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < a.n; i++)
        assert_string_equal(a.items[i].text, b.items[i].text);
    reply_free(&a);
    reply_free(&b);
    resp_buffer_fini(&out);
}

static void test_categories(void **state)
{
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    check_round_trip(&c, "q");
    expect_text(&c,
                "SC.CAT.SET f rich RISK 0.01 TTL 60000 TTLMAX 120000 GUARD number date EVICT lfu QUOTA 1mb "
                "LOADMAX 0.05 1.5 REQUIRESCOPE tenant user STALE 5000 ADMIT second SLIDING yes MODE exact",
                "OK");
    struct reply r = ask(&c, "SC.CAT.GET f rich");
    sc_check_field(&r, "risk", "0.01");
    sc_check_field(&r, "ttl", "60000");
    sc_check_field(&r, "guard", "number date");
    sc_check_field(&r, "requirescope", "tenant user");
    assert_null(reply_field(&r, "sim"));
    reply_free(&r);
    check_round_trip(&c, "rich");
    r = ask(&c, "SC.CAT.LIST f");
    assert_true(r.n == 3 && reply_is(&r.items[0], "copy") && reply_is(&r.items[2], "rich"));
    reply_free(&r);
    expect_error(&c, "SC.CAT.SET f q SIM 1.5", "ERR ");
    expect_error(&c, "SC.CAT.SET f q COLOUR red", "ERR ");
    expect_error(&c, "SC.CAT.SET f q TTL", "ERR wrong number of arguments");
    expect_error(&c, "SC.CAT.GET f nope", "ERR ");
    expect_error(&c, "SC.CAT.GET nope q", "ERR no such cache");
    expect_error(&c, "SC.GET f CAT unknown HASH h", "ERR ");
    expect_text(&c, "SC.CAT.SET f * SIM 0.95", "OK");
    sc_check_get(&c, NULL, "f CAT unknown HASH h", "miss");
    expect_integer(&c, "SC.CAT.DEL f rich", 1);
    expect_integer(&c, "SC.CAT.DEL f rich", 0);
    sc_end(s, &c);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void look_everywhere(struct connection *c)
{
    char id[ID_DIGITS + 1], lease[LEASE_TOKEN_BYTES], words[200];
    sc_put(
        c, sc_at(0, 1), id,
        "f CAT q VEC @ TEXT what~is~it HASH h1 VALUE forty-two TTL 60000 TAG a b TOKENS 10 20 COST 0.5 LLMMS 900 MODEL "
        "m");
    struct reply r = sc_say(c, sc_at(0, 0.95), "SC.GET f CAT q VEC @ TEXT what~was~it");
    sc_check_status(&r, "hit");
    sc_check_field(&r, "id", id);
    sc_check_field(&r, "value", "forty-two");
    sc_check_field(&r, "text", "what is it");
    sc_check_field(&r, "model", "m");
    assert_true(fabs(sc_number(&r, "similarity") - 0.95) < 0.01 && sc_number(&r, "threshold") == 0.9);
    assert_true(sc_number(&r, "tokens_in") == 10 && sc_number(&r, "tokens_out") == 20 &&
                sc_number(&r, "llm_ms") == 900);
    assert_true(sc_number(&r, "cost") == 0.5 && sc_number(&r, "guards_skipped") == 0);
    assert_true(sc_number(&r, "ttl_ms") > 50000 && sc_number(&r, "ttl_ms") <= 60000 && sc_number(&r, "age_ms") < 10000);
    assert_true(reply_field(&r, "guard")->null && reply_field(&r, "lease")->null);
    assert_null(reply_field(&r, "chunks"));
    assert_null(reply_field(&r, "candidates"));
    assert_null(reply_field(&r, "waited_ms"));
    reply_free(&r);
    r = sc_say(c, sc_at(0, 0.2), "SC.GET f CAT q VEC @ HASH h1");
    sc_check_status(&r, "exact");
    sc_check_field(&r, "id", id);
    reply_free(&r);
    r = sc_say(c, sc_at(0, 0.8), "SC.GET f CAT q VEC @ TEXT what~was~it");
    sc_check_status(&r, "miss");
    assert_true(fabs(sc_number(&r, "similarity") - 0.8) < 0.01);
    assert_true(sc_number(&r, "lease_ms") > 0);
    assert_null(reply_field(&r, "id"));
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.FAIL f %s", lease);
    expect_integer(c, words, 1);
    r = sc_say(c, sc_at(0, 0.95), "SC.GET f CAT q VEC @ SIM 0.99 NOLEASE EXPLAIN");
    sc_check_status(&r, "miss");
    assert_true(reply_field(&r, "lease")->null && sc_number(&r, "threshold") == 0.99);
    assert_true(sc_number(&r, "guards_skipped") == 1);
    const struct reply *candidates = reply_field(&r, "candidates");
    assert_true(candidates && candidates->n == 1);
    sc_check_field(&candidates->items[0], "id", id);
    sc_check_field(&candidates->items[0], "verdict", "below threshold");
    assert_true(fabs(sc_number(&candidates->items[0], "similarity") - 0.95) < 0.01);
    reply_free(&r);
    sc_check_get(c, sc_at(0, 1), "f CAT q VEC @ NEED a b", "hit");
    sc_check_get(c, sc_at(0, 1), "f CAT q VEC @ NEED a z NOLEASE", "miss");
    sc_check_get(c, sc_at(0, 1), "f CAT q VEC @ COMPAT other NOLEASE", "miss");
    sc_check_get(c, sc_at(0, 1), "f CAT q VEC @ SCOPE tenant acme NOLEASE", "miss");
    sc_check_get(c, sc_at(3, 1), "f CAT q VEC @ NOLEASE", "miss");
    expect_integer(c, "SC.INVALIDATE f ALL", 1);
}

static void test_get_and_put(void **state)
{
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    look_everywhere(&c);
    struct reply r = ask(&c, "HELLO 3");
    assert_int_equal(r.type, '%');
    reply_free(&r);
    look_everywhere(&c);
    r = sc_say(&c, sc_at(1, 1), "SC.PUT f CAT q VEC @ HASH h VALUE v PIN");
    assert_int_equal(r.type, '%');
    sc_check_field(&r, "outcome", "stored");
    assert_true(sc_number(&r, "ttl_ms") == -1 && sc_number(&r, "evicted") == 0 && sc_number(&r, "woken") == 0);
    reply_free(&r);
    r = sc_say(&c, sc_at(1, 1), "SC.PUT f CAT q VEC @ HASH h VALUE w NX");
    sc_check_field(&r, "outcome", "exists");
    reply_free(&r);
    r = sc_say(&c, sc_at(1, 1), "SC.PUT f CAT q VEC @ HASH h VALUE w");
    sc_check_field(&r, "outcome", "replaced");
    assert_true(sc_number(&r, "ttl_ms") > 0);
    reply_free(&r);
    r = sc_say(&c, NULL, "SC.GET f CAT q HASH h");
    sc_check_field(&r, "value", "w");
    assert_true(reply_field(&r, "text")->null && reply_field(&r, "model")->null);
    reply_free(&r);
    expect_text(&c, "SC.CAT.SET f none MODE off", "OK");
    sc_check_get(&c, sc_at(1, 1), "f CAT none VEC @", "bypass");
    r = sc_say(&c, sc_at(1, 1), "SC.PUT f CAT none VEC @ VALUE w");
    sc_check_field(&r, "outcome", "off");
    assert_true(reply_field(&r, "id")->null);
    reply_free(&r);
    expect_text(&c, "SC.NEG f CAT q HASH bad TTL 60000", "OK");
    sc_check_get(&c, NULL, "f CAT q HASH bad", "negative");
    sc_end(s, &c);
}

/* Scope values and tags that are named like options are taken as they are. */
static void test_words_that_look_like_options(void **state)
{
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    sc_put(&c, sc_at(0, 1), NULL, "f CAT q SCOPE HASH TEXT SCOPE tenant PIN VEC @ TAG NX TAG PIN VALUE one");
    sc_check_get(&c, sc_at(0, 1), "f CAT q VEC @ SCOPE tenant PIN HASH TEXT", "miss"); /* HASH is the option here */
    struct reply r = sc_say(&c, sc_at(0, 1), "SC.GET f CAT q VEC @ SCOPE HASH TEXT tenant PIN NEED PIN NEED NX");
    sc_check_status(&r, "hit");
    assert_true(sc_number(&r, "ttl_ms") > 0); /* not pinned */
    reply_free(&r);
    expect_integer(&c, "SC.INVALIDATE f TAG PIN DRYRUN", 1);
    expect_integer(&c, "SC.INVALIDATE f TAG DRYRUN", 0); /* a tag of that name */
    expect_integer(&c, "SC.INVALIDATE f DRYRUN SCOPE tenant DRYRUN", 0);
    expect_integer(&c, "SC.INVALIDATE f SCOPE tenant PIN", 1);
    sc_end(s, &c);
}

static void test_refused_requests(void **state)
{
    static const struct {
        const char *words, *error;
    } cases[] = {
        {"SC.GET f HASH h SIM 1", "ERR a category is needed: CAT name"},
        {"SC.GET f CAT q", "ERR there is nothing to look for: give HASH, VEC or TEXT"},
        {"SC.GET f CAT q HASH _", "ERR HASH is empty"},
        {"SC.GET f CAT q HASH", "ERR syntax error: HASH needs a value"},
        {"SC.GET f CAT q HASH h SIM 1.2", "ERR SIM is '1.2': give a number from 0 to 1; similarities are cosines"},
        {"SC.GET f CAT q HASH h SIM nan", "ERR SIM is 'nan'"},
        {"SC.GET f CAT q HASH h WAIT 700000", "ERR WAIT is '700000': give a whole number from 0 to 600000"},
        {"SC.GET f CAT q HASH h WAIT -1", "ERR WAIT is '-1'"},
        {"SC.GET f CAT q HASH h MAXAGE 0", "ERR MAXAGE is '0'"},
        {"SC.GET f CAT q HASH h SCOPE", "ERR syntax error: SCOPE needs keys and values"},
        {"SC.GET f CAT q HASH h SCOPE a", "ERR syntax error: SCOPE has a key 'a' without a value"},
        {"SC.GET f CAT q HASH h SCOPE 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10 10 11 11 12 12 13 13 14 14 15 15 16 16 17 "
         "17",
         "ERR SCOPE has more than 16 pairs"},
        {"SC.GET f CAT q HASH h NEED", "ERR syntax error: NEED needs tags"},
        {"SC.GET f CAT q HASH h VALUE v", "ERR syntax error at 'VALUE': no option of this command"},
        {"SC.GET f CAT q VEC short",
         "ERR the vector has 5 bytes, which is 1.25 dimensions of f32, but cache 'f' has 16 "
         "dimensions (64 bytes)"},
        {"SC.GET f CAT q VEC _", "ERR the vector has 0 bytes"},
        {"SC.GET f CAT q VEC @ ENCODER enc@2", "ERR "},
        {"SC.GET f CAT nope VEC @", "ERR "},
        {"SC.GET nope CAT q HASH h", "ERR no such cache 'nope'"},
        {"SC.PUT f CAT q HASH h TTL 1", "ERR there is no answer: give VALUE blob or CHUNKS"},
        {"SC.PUT f CAT q HASH h VALUE v CHUNKS 1 v", "ERR VALUE and CHUNKS are two ways"},
        {"SC.PUT f CAT q HASH h CHUNKS 0", "ERR CHUNKS is '0'"},
        {"SC.PUT f CAT q HASH h CHUNKS 3 a b", "ERR syntax error: CHUNKS says 3, but only 2 words follow"},
        {"SC.PUT f CAT q HASH h VALUE v TTL 0", "ERR TTL is '0'"},
        {"SC.PUT f CAT q HASH h VALUE v TOKENS 1", "ERR syntax error: TOKENS needs two numbers"},
        {"SC.PUT f CAT q HASH h VALUE v TOKENS 1 x", "ERR TOKENS out is 'x'"},
        {"SC.PUT f CAT q HASH h VALUE v COST -1", "ERR COST is '-1'"},
        {"SC.PUT f CAT q HASH h VALUE v COST inf", "ERR COST is 'inf'"},
        {"SC.PUT f CAT q HASH h VALUE v WAIT 1", "ERR syntax error at 'WAIT'"},
        {"SC.PUT f CAT q HASH h VALUE v", "ERR VEC is missing"},
        {"SC.PUT f CAT q VEC @ HASH h VALUE v LEASE made-up", "ERR "},
        {"SC.NEG f CAT q VEC @ HASH h", "ERR syntax error at 'VEC'"},
        {"SC.NEG f CAT q TTL 5", "ERR there is nothing to look for: give HASH or TEXT"},
        {"SC.FEEDBACK f 0000000000000001 MAYBE", "ERR syntax error at 'MAYBE': say GOOD or BAD"},
        {"SC.FEEDBACK f 12 GOOD", "ERR '12' is not an id: give the 16 hexadecimal digits"},
        {"SC.FEEDBACK f 00000000000000xy GOOD", "ERR '00000000000000xy' is not an id"},
        {"SC.FEEDBACK f 0000000000000001 GOOD SIM", "ERR syntax error at 'SIM'"},
        {"SC.FEEDBACK f 0000000000000001 GOOD SIM 2", "ERR SIM is '2'"},
        {"SC.FEEDBACK f 0000000000000001 GOOD", "ERR "},
        {"SC.AUDIT POP f COUNT 0", "ERR COUNT is '0': give a whole number from 1 to 100"},
        {"SC.AUDIT POP f LIMIT 1", "ERR syntax error at 'LIMIT'"},
        {"SC.AUDIT PUT f 1 GOOD", "ERR "},
        {"SC.AUDIT GET f x", "ERR audit is 'x'"},
        {"SC.AUDIT GET f", "ERR wrong number of arguments"},
        {"SC.AUDIT PUT f x GOOD", "ERR audit is 'x'"},
        {"SC.AUDIT SING f", "ERR unknown subcommand 'SING'. Try SC.AUDIT HELP."},
        {"SC.TUNE f q SIM 1", "ERR syntax error at 'SIM'"},
        {"SC.TUNE f q RISK 2", "ERR RISK is '2'"},
        {"SC.TUNE f nope", "ERR "},
        {"SC.LOAD f m 1.5", "ERR the load is '1.5': give a number from 0 to 1"},
        {"SC.LOAD f m 1 EX 0", "ERR EX is '0'"},
        {"SC.LOAD f m 1 PX 5", "ERR syntax error at 'PX'"},
        {"SC.TOUCH f 0000000000000001 TTL 0", "ERR TTL is '0'"},
        {"SC.TOUCH f 0000000000000001 EX 1", "ERR syntax error at 'EX'"},
        {"SC.PIN f 1", "ERR '1' is not an id"},
        {"SC.DEL f 0000000000000001 x", "ERR 'x' is not an id"},
        {"SC.STATS f CATEGORY q", "ERR syntax error at 'CATEGORY'"},
        {"SC.STATS f CAT nope", "ERR "},
        {"SC.HIST f nope", "ERR "},
        {"SC.TOP f nope 3", "ERR "},
        {"SC.TOP f q 0", "ERR the number of entries is '0': give a whole number from 1 to 1000"},
        {"SC.TOP f q 1 VALUES", "ERR syntax error at 'VALUES'"},
        {"SC.TOP f q 1 WITHVALUES 2", "ERR syntax error at '2'"},
        {"SC.SCAN f x", "ERR the cursor is 'x'"},
        {"SC.SCAN f 0 COUNT 1001", "ERR COUNT is '1001'"},
        {"SC.SCAN f 0 MATCH *", "ERR syntax error at 'MATCH'"},
        {"SC.SCAN f 0 CAT", "ERR syntax error at 'CAT'"},
        {"SC.SCAN f 0 CAT nope", "ERR "},
        {"SC.SCAN f 0 CAT q CAT q", "ERR syntax error at 'CAT'"},
        {"SC.SCAN f 0 COUNT 1 COUNT 1", "ERR syntax error at 'COUNT'"},
        {"SC.SCAN f 0 WITHVALUES WITHVALUES", "ERR syntax error at 'WITHVALUES'"},
        {"SC.IMPORT f junk", "ERR "},
        {"SC.INVALIDATE f", "ERR SC.INVALIDATE needs to be told what"},
        {"SC.INVALIDATE f DRYRUN", "ERR SC.INVALIDATE needs to be told what"},
        {"SC.INVALIDATE f EVERYTHING", "ERR syntax error at 'EVERYTHING': say ID, TAG"},
        {"SC.INVALIDATE f TAG", "ERR syntax error: TAG needs a value"},
        {"SC.INVALIDATE f SCOPE tenant", "ERR syntax error: SCOPE needs two values"},
        {"SC.INVALIDATE f CAT q SCOPE a b", "ERR syntax error at 'SCOPE': give one selector"},
        {"SC.INVALIDATE f TAG a CAT q", "ERR syntax error at 'CAT': give one selector"},
        {"SC.INVALIDATE f ALL DRYRUN please", "ERR syntax error at 'DRYRUN': give one selector"},
        {"SC.INVALIDATE f ID x", "ERR 'x' is not an id"},
        {"SC.INVALIDATE f NEAR short 0.5", "ERR the vector has 5 bytes"},
        {"SC.INVALIDATE f NEAR @ 2", "ERR the similarity is '2'"},
        {"SC.INVALIDATE f BEFORE soon", "ERR BEFORE is 'soon'"},
    };
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply r = sc_say(&c, sc_at(0, 1), "%s", cases[i].words);
        if (r.type != '-' || strncmp(r.text, cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("'%s': %c%s, not '%s'", cases[i].words, r.type, r.text ? r.text : "", cases[i].error);
        assert_true(r.bytes > 8);
        reply_free(&r);
    }
    expect_text(&c, "MULTI", "OK");
    expect_error(&c, "SC.GET f CAT q HASH h", "ERR Command not allowed inside a transaction");
    expect_error(&c, "EXEC", "EXECABORT");
    expect_text(&c, "PING", "PONG");
    sc_end(s, &c);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

static uint8_t byte_of(size_t size, size_t i)
{
    return (uint8_t)(size * 7 + i * 31 + i / 251);
}

static void put_sized(struct connection *c, size_t size)
{
    char name[32];
    struct resp_buffer out = {.protocol = 2};
    uint8_t *value = malloc(size + 1);
    assert_non_null(value);
    for (size_t i = 0; i < size; i++)
        value[i] = byte_of(size, i);
    snprintf(name, sizeof name, "size%zu", size);
    resp_array(&out, 8);
    put_literal(&out, "$6\r\nSC.PUT\r\n$1\r\nf\r\n$3\r\nCAT\r\n$5\r\nexact\r\n$4\r\nHASH\r\n");
    resp_text(&out, name);
    resp_text(&out, "VALUE");
    resp_bulk(&out, value, size);
    send_bytes(c, out.data, out.bytes);
    struct reply r = read_reply(c);
    sc_check_field(&r, "outcome", "stored");
    reply_free(&r);
    resp_buffer_fini(&out);
    free(value);
}

static void check_sized(const struct reply *r, size_t size)
{
    sc_check_status(r, "exact");
    const struct reply *value = reply_field(r, "value");
    assert_true(value && value->bytes == size);
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)value->text[i] != byte_of(size, i))
            fail_msg("byte %zu of an answer of %zu", i, size);
}

static const size_t sizes[] = {0, 1, 15, 16, 17, 511, 4095, 4096, 4097, 65536, 300000, 1048576};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* All at once, so that those from the disk are read side by side with what memory answers. */
static void get_all_sizes(struct connection *c)
{
    for (size_t i = 0; i < 3 * N_SIZES; i++) {
        char words[100];
        snprintf(words, sizeof words, "SC.GET f CAT exact HASH size%zu%s", sizes[i % N_SIZES],
                 i % 2 ? " WAIT 1000" : "");
        send_request(c, words);
        send_request(c, "PING");
    }
    for (size_t i = 0; i < 3 * N_SIZES; i++) {
        struct reply r = read_reply(c);
        check_sized(&r, sizes[i % N_SIZES]);
        reply_free(&r);
        check_text(read_reply(c), "PONG");
    }
}

static struct test_server *restart(struct test_server *s, struct connection *c, const char *folder)
{
    if (s)
        sc_end(s, c);
    s = support_server((const char *const[]){"dir", folder, NULL});
    connect_to(c, s->port);
    return s;
}

static void test_documents(void **state)
{
    char *folder = support_folder_make();
    char *data = support_path(folder, "data");
    struct connection c;
    struct test_server *s = restart(NULL, &c, data);
    (void)state;
    expect_text(&c, "SC.CREATE f DIM 16", "OK");
    expect_text(&c, "SC.CAT.SET f exact MODE exact", "OK");
    for (size_t i = 0; i < N_SIZES; i++)
        put_sized(&c, sizes[i]);
    get_all_sizes(&c);
    s = restart(s, &c, data);
    get_all_sizes(&c); /* from the disk */
    get_all_sizes(&c);
    struct reply r = sc_say(&c, NULL, "SC.PUT f CAT exact HASH chunks CHUNKS 4 a _ bc d");
    sc_check_field(&r, "outcome", "stored");
    reply_free(&r);
    r = ask(&c, "SC.GET f CAT exact HASH chunks");
    const struct reply *chunks = reply_field(&r, "chunks");
    assert_true(chunks && chunks->n == 4 && reply_is(&chunks->items[0], "a") && reply_is(&chunks->items[1], "") &&
                reply_is(&chunks->items[2], "bc") && reply_is(&chunks->items[3], "d"));
    assert_null(reply_field(&r, "value"));
    reply_free(&r);
    sc_end(s, &c);
    free(data);
    support_folder_remove(folder);
}

/* Segments that lose their bytes: the entry goes, the answer is a miss, and nobody gets anything else. */
static void test_damaged_documents(void **state)
{
    char *folder = support_folder_make(), command[512];
    char *data = support_path(folder, "data");
    struct connection c;
    struct test_server *s = restart(NULL, &c, data);
    (void)state;
    expect_text(&c, "SC.CREATE f DIM 16", "OK");
    expect_text(&c, "SC.CAT.SET f exact MODE exact", "OK");
    sc_put(&c, NULL, NULL, "f CAT exact HASH a VALUE one");
    sc_put(&c, NULL, NULL, "f CAT exact HASH b VALUE two");
    sc_end(s, &c);
    snprintf(command, sizeof command,
             "for f in $(find '%s/documents' -name '*.docs'); do head -c 8192 /dev/zero | tr '\\0' 'x' | "
             "dd of=$f bs=4096 seek=1 conv=notrunc 2>/dev/null; done",
             data);
    assert_int_equal(system(command), 0);
    s = restart(NULL, &c, data);
    send_request(&c, "SC.GET f CAT exact HASH a WAIT 100");
    send_request(&c, "SC.GET f CAT exact HASH b NOLEASE");
    struct reply r = read_reply(&c);
    sc_check_status(&r, "miss");
    assert_true(reply_field(&r, "lease")->bytes > 0);
    reply_free(&r);
    r = read_reply(&c);
    sc_check_status(&r, "miss");
    reply_free(&r);
    r = ask(&c, "SC.STATS f");
    assert_true(sc_number(&r, "lost") == 2 && sc_number(&r, "entries") == 0);
    reply_free(&r);
    sc_put(&c, NULL, NULL, "f CAT exact HASH a VALUE three");
    sc_check_get(&c, NULL, "f CAT exact HASH a", "exact");
    sc_end(s, &c);
    free(data);
    support_folder_remove(folder);
}

/* ---- labels, insight --------------------------------------------------------------------------------------------- */

static void test_feedback(void **state)
{
    struct connection c;
    char id[ID_DIGITS + 1], words[200];
    struct test_server *s = sc_serve(&c);
    (void)state;
    sc_put(&c, sc_at(0, 1), id, "f CAT q VEC @ HASH h VALUE v TEXT one");
    snprintf(words, sizeof words, "SC.FEEDBACK f %s GOOD SIM 0.95", id);
    expect_text(&c, words, "OK");
    sc_check_get(&c, sc_at(0, 0.95), "f CAT q VEC @ NOLEASE", "hit");
    snprintf(words, sizeof words, "SC.FEEDBACK f %s BAD SIM 0.96", id);
    expect_text(&c, words, "OK");
    struct reply r = sc_say(&c, sc_at(0, 0.95), "SC.GET f CAT q VEC @ NOLEASE EXPLAIN");
    sc_check_status(&r, "miss");
    sc_check_field(&reply_field(&r, "candidates")->items[0], "verdict", "veto");
    reply_free(&r);
    sc_check_get(&c, sc_at(0, 0.99), "f CAT q VEC @ NOLEASE", "hit");
    r = ask(&c, "SC.STATS f CAT q");
    assert_true(sc_number(&r, "feedback_good") == 1 && sc_number(&r, "feedback_bad") == 1 &&
                sc_number(&r, "vetoed") == 1);
    assert_true(sc_number(&r, "requests") == 3 && sc_number(&r, "hits") == 2 && sc_number(&r, "stored") == 1);
    assert_true(fabs(sc_number(&r, "hit_rate") - 2.0 / 3) < 0.001 && sc_number(&r, "threshold") == 0.9);
    assert_null(reply_field(&r, "scopes"));
    reply_free(&r);
    r = ask(&c, "SC.STATS f");
    const struct reply *scopes = reply_field(&r, "scopes");
    assert_true(scopes && scopes->n == 1 && sc_number(&scopes->items[0], "entries") == 1);
    reply_free(&r);
    sc_put(&c, sc_at(7, 1), NULL, "f CAT q VEC @ VALUE v TEXT do~I~need~a~visa");
    sc_check_get(&c, sc_at(7, 0.99), "f CAT q VEC @ TEXT do~I~not~need~a~visa NOLEASE", "miss");
    for (unsigned all = 0; all < 2; all++) {
        r = ask(&c, all ? "SC.STATS f" : "SC.STATS f CAT q");
        const struct reply *guards = reply_field(&r, "guards");
        assert_true(guards && sc_number(guards, "negation") == 1 && sc_number(guards, "number") == 0 &&
                    sc_number(guards, "literal") + sc_number(guards, "date") + sc_number(guards, "language") == 0);
        assert_true(sc_number(&r, "guarded") == 1);
        reply_free(&r);
    }
    r = ask(&c, "SC.HIST f q");
    assert_true(r.n >= 2);
    for (size_t i = 0; i < r.n; i++) {
        assert_true(r.items[i].n == 6);
        double bin = reply_number(&r.items[i].items[0]);
        assert_true(bin >= 0.94 && bin <= 1);
    }
    reply_free(&r);
    sc_end(s, &c);
}

static void test_entries(void **state)
{
    struct connection c;
    char ids[5][ID_DIGITS + 1], words[300];
    struct test_server *s = sc_serve(&c);
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        snprintf(words, sizeof words, "f CAT q VEC @ HASH h%u TEXT question~%u VALUE v%u TTL 60000", i, i, i);
        sc_put(&c, sc_at(i, 1), ids[i], words);
    }
    for (unsigned i = 0; i < 4; i++)
        sc_check_get(&c, NULL, "f CAT q HASH h3", "exact");
    sc_check_get(&c, NULL, "f CAT q HASH h1", "exact");
    struct reply r = ask(&c, "SC.TOP f q 2");
    assert_int_equal(r.n, 2);
    sc_check_field(&r.items[0], "id", ids[3]);
    sc_check_field(&r.items[0], "text", "question 3");
    assert_true(sc_number(&r.items[0], "hits") == 4 && sc_number(&r.items[0], "pinned") == 0);
    assert_true(sc_number(&r.items[0], "ttl_ms") > 50000 && sc_number(&r.items[0], "bytes") > 0);
    assert_null(reply_field(&r.items[0], "category"));
    assert_null(reply_field(&r.items[0], "value"));
    sc_check_field(&r.items[1], "id", ids[1]);
    reply_free(&r);
    r = ask(&c, "SC.TOP f q 2 WITHVALUES");
    sc_check_field(&r.items[0], "text", "question 3");
    sc_check_field(&r.items[0], "value", "v3");
    sc_check_field(&r.items[1], "value", "v1");
    reply_free(&r);
    snprintf(words, sizeof words, "SC.PIN f %s", ids[0]);
    expect_integer(&c, words, 1);
    snprintf(words, sizeof words, "SC.TOUCH f %s TTL 600000", ids[2]);
    expect_integer(&c, words, 1);
    unsigned seen = 0, pinned = 0, rounds = 0;
    char cursor[32] = "0";
    do {
        snprintf(words, sizeof words, "SC.SCAN f %s COUNT 2", cursor);
        r = ask(&c, words);
        assert_true(r.n == 2 && r.items[1].n <= 2 && rounds++ < 20);
        strcpy(cursor, r.items[0].text);
        for (size_t i = 0; i < r.items[1].n; i++) {
            const struct reply *e = &r.items[1].items[i];
            unsigned which = 0;
            while (which < 5 && !reply_is(reply_field(e, "id"), ids[which]))
                which++;
            assert_true(which < 5 && !(seen & 1u << which));
            seen |= 1u << which;
            snprintf(words, sizeof words, "question %u", which);
            sc_check_field(e, "text", words);
            sc_check_field(e, "category", "q");
            pinned += sc_number(e, "pinned") == 1;
            assert_true(which != 0 || sc_number(e, "ttl_ms") == -1);
            assert_true(which != 2 || sc_number(e, "ttl_ms") > 500000);
        }
        reply_free(&r);
    } while (strcmp(cursor, "0") != 0);
    assert_true(seen == 31 && pinned == 1);
    expect_text(&c, "SC.CAT.SET f other SIM 0.9", "OK");
    sc_put(&c, sc_at(6, 1), NULL, "f CAT other VEC @ HASH x TEXT another VALUE w");
    r = ask(&c, "SC.SCAN f 0 CAT other");
    assert_true(reply_is(&r.items[0], "0") && r.items[1].n == 1);
    sc_check_field(&r.items[1].items[0], "text", "another");
    assert_null(reply_field(&r.items[1].items[0], "value"));
    reply_free(&r);
    r = ask(&c, "SC.SCAN f 0 WITHVALUES COUNT 2 CAT q");
    assert_int_equal(r.items[1].n, 2);
    sc_check_field(&r.items[1].items[0], "category", "q");
    snprintf(words, sizeof words, "v%c", reply_field(&r.items[1].items[0], "text")->text[strlen("question ")]);
    sc_check_field(&r.items[1].items[0], "value", words);
    reply_free(&r);
    expect_integer(&c, "SC.CAT.DEL f other", 1);
    snprintf(words, sizeof words, "SC.UNPIN f %s", ids[0]);
    expect_integer(&c, words, 1);
    expect_integer(&c, "SC.UNPIN f 00000000000000ff", 0);
    expect_integer(&c, "SC.TOUCH f 00000000000000ff", 0);
    snprintf(words, sizeof words, "SC.DEL f %s 00000000000000ff %s", ids[0], ids[1]);
    expect_integer(&c, words, 2);
    sc_check_get(&c, NULL, "f CAT q HASH h1 NOLEASE", "miss");
    r = ask(&c, "SC.INFO f");
    assert_true(sc_number(&r, "entries") == 3);
    reply_free(&r);
    sc_end(s, &c);
}

static void test_invalidate(void **state)
{
    struct connection c;
    char id[ID_DIGITS + 1], words[300], lease[LEASE_TOKEN_BYTES];
    struct test_server *s = sc_serve(&c);
    (void)state;
    expect_text(&c, "SC.CAT.SET f r SIM 0.9", "OK");
    sc_put(&c, sc_at(0, 1), id, "f CAT q VEC @ HASH 0 VALUE v");
    sc_put(&c, sc_at(1, 1), NULL, "f CAT q VEC @ HASH 1 VALUE v TAG red");
    sc_put(&c, sc_at(1, 1), NULL, "f CAT q VEC @ HASH 2 VALUE v TAG green red");
    sc_put(&c, sc_at(2, 1), NULL, "f CAT r VEC @ HASH 3 VALUE v");
    sc_put(&c, sc_at(3, 1), NULL, "f CAT q VEC @ HASH 4 VALUE v SCOPE tenant acme");
    sc_put(&c, sc_at(4, 1), NULL, "f CAT q VEC @ HASH 5 VALUE v MODEL big");
    sc_put(&c, sc_at(5, 1), NULL, "f CAT q VEC @ HASH 6 VALUE v");
    sc_put(&c, sc_at(6, 1), NULL, "f CAT q VEC @ HASH 7 VALUE v");
    snprintf(words, sizeof words, "SC.INVALIDATE f ID %s 00000000000000ff", id);
    expect_integer(&c, words, 1);
    expect_integer(&c, words, 0);
    expect_integer(&c, "SC.INVALIDATE f TAG green red DRYRUN", 2);
    expect_integer(&c, "SC.INVALIDATE f TAG green red", 2);
    expect_integer(&c, "SC.INVALIDATE f DRYRUN CAT r", 1);
    expect_integer(&c, "SC.INVALIDATE f CAT r", 1);
    expect_integer(&c, "SC.INVALIDATE f SCOPE tenant acme", 1);
    expect_integer(&c, "SC.INVALIDATE f MODEL big", 1);
    struct reply r = sc_say(&c, sc_at(5, 0.98), "SC.INVALIDATE f NEAR @ 0.95");
    assert_true(r.type == ':' && r.integer == 1);
    reply_free(&r);
    expect_integer(&c, "SC.INVALIDATE f BEFORE 60000", 0);
    expect_integer(&c, "SC.INVALIDATE f ENCODER enc@0", 0);
    /* an answer that was asked for before is not brought back by who has it */
    r = sc_say(&c, NULL, "SC.GET f CAT q HASH late");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    expect_integer(&c, "SC.INVALIDATE f ALL DRYRUN", 1);
    expect_integer(&c, "SC.INVALIDATE f ALL", 1);
    r = sc_say(&c, sc_at(0, 1), "SC.PUT f CAT q LEASE %s HASH late VEC @ VALUE v", lease);
    sc_check_field(&r, "outcome", "outdated");
    reply_free(&r);
    r = ask(&c, "SC.STATS f");
    assert_true(sc_number(&r, "entries") == 0 && sc_number(&r, "invalidated") == 8 && sc_number(&r, "outdated") == 1);
    reply_free(&r);
    sc_end(s, &c);
}

static void test_an_empty_lease_is_refused(void **state)
{
    static const char *const commands[] = {"*10\r\n$6\r\nSC.PUT\r\n$1\r\nf\r\n$3\r\nCAT\r\n$1\r\nq\r\n$"
                                           "4\r\nHASH\r\n$1\r\nh\r\n$5\r\nVALUE\r\n$1\r\nv\r\n"
                                           "$5\r\nLEASE\r\n$0\r\n\r\n",
                                           "*8\r\n$6\r\nSC.NEG\r\n$1\r\nf\r\n$3\r\nCAT\r\n$1\r\nq\r\n$"
                                           "4\r\nHASH\r\n$1\r\nh\r\n$5\r\nLEASE\r\n$0\r\n\r\n"};
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        send_bytes(&c, commands[i], strlen(commands[i]));
        struct reply r = read_reply(&c);
        assert_true(r.type == '-' && strstr(r.text, "LEASE is empty"));
        reply_free(&r);
    }
    struct reply r = ask(&c, "SC.GET f CAT q HASH h NOLEASE");
    sc_check_status(&r, "miss"); /* neither was stored */
    reply_free(&r);
    sc_end(s, &c);
}

/* ---- users, figures ---------------------------------------------------------------------------------------------- */

static void test_users(void **state)
{
    struct connection c, other;
    struct test_server *s = sc_serve(&c);
    (void)state;
    sc_put(&c, sc_at(0, 1), NULL, "f CAT q VEC @ HASH h VALUE v");
    expect_text(&c, "SC.CREATE secret DIM 16", "OK");
    expect_text(&c, "ACL SETUSER app on >p ~f* +@cache", "OK");
    expect_text(&c, "ACL SETUSER reader on >p %R~f +@all", "OK");
    expect_text(&c, "ACL SETUSER tenant on >p ~* +@all tenant:acme", "OK");
    expect_text(&c, "ACL SETUSER none on >p ~* +@all -@cache", "OK");
    connect_to(&other, s->port);
    expect_text(&other, "AUTH app p", "OK");
    sc_check_get(&other, NULL, "f CAT q HASH h", "exact");
    sc_put(&other, sc_at(1, 1), NULL, "f CAT q VEC @ VALUE v");
    expect_error(&other, "SC.GET secret CAT q HASH h", "NOPERM No permissions to access a key");
    expect_error(&other, "SC.AUDIT POP secret", "NOPERM No permissions to access a key");
    expect_error(&other, "SC.CREATE other DIM 4", "NOPERM");
    expect_error(&other, "GET f", "NOPERM");
    expect_text(&other, "AUTH reader p", "OK");
    sc_check_get(&other, NULL, "f CAT q HASH h", "exact");
    expect_error(&other, "SC.PUT f CAT q HASH h VALUE v", "NOPERM");
    expect_error(&other, "SC.INVALIDATE f ALL", "NOPERM");
    expect_text(&other, "AUTH tenant p", "OK");
    expect_error(&other, "SC.GET f CAT q HASH h", "NOPERM User tenant is bound to tenants");
    /* names are shown to whom the pattern lets read; a count tells what is there */
    expect_text(&c, "ACL SETUSER stranger on >p ~other* +@all", "OK");
    expect_text(&c, "ACL SETUSER writer on >p %W~f +@all", "OK");
    struct reply r = ask(&c, "SC.LIST");
    assert_int_equal(r.n, 2);
    reply_free(&r);
    static const char *const names[][2] = {{"app", "f"}, {"reader", "f"}, {"stranger", NULL}, {"writer", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char login[32];
        snprintf(login, sizeof login, "AUTH %s p", names[i][0]);
        expect_text(&other, login, "OK");
        r = ask(&other, "SC.LIST");
        assert_int_equal(r.n, names[i][1] != NULL);
        if (names[i][1])
            assert_true(reply_is(&r.items[0], names[i][1]));
        reply_free(&r);
    }
    expect_error(&other, "SC.INVALIDATE f ALL DRYRUN", "NOPERM No permissions to access a key");
    expect_error(&other, "SC.INVALIDATE f DRYRUN ALL", "NOPERM No permissions to access a key");
    expect_integer(&other, "SC.INVALIDATE f TAG none", 0);
    expect_text(&other, "AUTH none p", "OK");
    expect_error(&other, "SC.GET f CAT q HASH h", "NOPERM User none has no permissions to run the 'sc.get' command");
    disconnect(&other);
    expect_text(&c, "CONFIG SET requirepass p", "OK");
    connect_to(&other, s->port);
    expect_error(&other, "SC.GET f CAT q HASH h", "NOAUTH");
    disconnect(&other);
    r = ask(&c, "COMMAND GETKEYSANDFLAGS SC.GET f CAT q");
    assert_true(r.n == 1 && reply_is(&r.items[0].items[0], "f"));
    reply_free(&r);
    r = ask(&c, "COMMAND GETKEYS SC.AUDIT POP f");
    assert_true(r.n == 1 && reply_is(&r.items[0], "f"));
    reply_free(&r);
    sc_end(s, &c);
}

static bool has_line(const struct resp_buffer *text, const char *begin, const char *end_of_line)
{
    const char *all = (const char *)text->data;
    for (const char *p = all; (p = strstr(p, begin)); p++) {
        const char *stop = strchr(p, '\n');
        if ((p == all || p[-1] == '\n') && (size_t)(stop - p) >= strlen(end_of_line) &&
            strncmp(stop - strlen(end_of_line), end_of_line, strlen(end_of_line)) == 0)
            return true;
    }
    return false;
}

static void test_figures(void **state)
{
    struct connection c;
    struct resp_buffer text = {.protocol = 2};
    struct test_server *s = sc_serve(&c);
    (void)state;
    expect_text(&c, "SC.CREATE odd,name\"\xff DIM 4", "OK");
    expect_text(&c, "SC.CAT.SET odd,name\"\xff a\\b SIM 0.9", "OK");
    sc_put(&c, sc_at(0, 1), NULL, "f CAT q VEC @ HASH h VALUE v TOKENS 3 4 COST 0.5 LLMMS 2000");
    sc_check_get(&c, NULL, "f CAT q HASH h", "exact");
    sc_check_get(&c, sc_at(0, 0.95), "f CAT q VEC @", "hit");
    sc_check_get(&c, sc_at(1, 1), "f CAT q VEC @", "miss");
    assert_int_equal(info_number(&c, "caches"), 2);
    assert_int_equal(info_number(&c, "cache_entries"), 1);
    assert_int_equal(info_number(&c, "cache_requests"), 3);
    assert_int_equal(info_number(&c, "cache_hits"), 2);
    assert_int_equal(info_number(&c, "cache_tokens_saved"), 14);
    assert_int_equal(info_number(&c, "cache_llm_ms_saved"), 4000);
    assert_true(info_number(&c, "used_memory_caches") > 0);
    struct reply r = ask(&c, "INFO cache");
    assert_non_null(strstr(r.text, "# Cache\r\n"));
    assert_non_null(strstr(r.text, "\r\ncache0:name=f,entries=1,"));
    assert_non_null(strstr(r.text, ",exact=1,"));
    assert_non_null(strstr(r.text, ",hit_rate=0.6667,"));
    assert_non_null(strstr(r.text, "\r\ncache1:name=odd%2Cname%22%FF,entries=0,"));
    reply_free(&r);
    metrics_write(s->server, &text);
    resp_raw(&text, "", 1);
    assert_true(has_line(&text, "quire_caches ", " 2"));
    assert_true(has_line(&text, "quire_cache_requests_total{cache=\"f\",category=\"q\",outcome=\"exact\"} ", " 1"));
    assert_true(has_line(&text, "quire_cache_requests_total{cache=\"f\",category=\"q\",outcome=\"miss\"} ", " 1"));
    assert_true(has_line(&text, "quire_cache_puts_total{cache=\"f\",category=\"q\",outcome=\"stored\"} ", " 1"));
    assert_true(has_line(&text, "quire_cache_entries{cache=\"odd%2Cname%22%FF\",category=\"a%5Cb\"} ", " 0"));
    assert_true(has_line(&text, "quire_cache_cost_saved_dollars_total{cache=\"f\",category=\"q\"} ", " 1"));
    assert_true(has_line(&text, "quire_cache_model_seconds_saved_total{cache=\"f\",category=\"q\"} ", " 4"));
    assert_true(has_line(&text, "quire_cache_get_seconds{cache=\"f\",quantile=\"0.99\"} ", ""));
    assert_true(has_line(&text, "quire_cache_series_left_out ", " 0"));
    resp_buffer_fini(&text);
    sc_end(s, &c);
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

static void fill(struct connection *c)
{
    expect_text(c, "SC.CREATE f DIM 16 ENCODER enc@1 SCOPE tenant", "OK");
    expect_text(c, "SC.CREATE gone DIM 16", "OK");
    expect_text(c, "SC.CAT.SET f q SIM 0.9 TTL 3600000", "OK");
    sc_put(c, sc_at(0, 1), NULL, "f CAT q VEC @ HASH h TEXT kept VALUE kept SCOPE tenant a PIN");
    sc_put(c, sc_at(1, 1), NULL, "f CAT q VEC @ HASH i VALUE removed SCOPE tenant a TAG t");
    expect_integer(c, "SC.DROP gone", 1);
}

static void check_kept(struct connection *c)
{
    struct reply r = ask(c, "SC.LIST");
    assert_true(r.n == 1 && reply_is(&r.items[0], "f"));
    reply_free(&r);
    r = ask(c, "SC.CAT.GET f q");
    sc_check_field(&r, "sim", "0.9");
    sc_check_field(&r, "ttl", "3600000");
    reply_free(&r);
    r = sc_say(c, sc_at(0, 0.95), "SC.GET f CAT q VEC @ SCOPE tenant a NOLEASE");
    sc_check_status(&r, "hit");
    sc_check_field(&r, "value", "kept");
    assert_true(sc_number(&r, "ttl_ms") == -1);
    reply_free(&r);
    sc_check_get(c, sc_at(0, 1), "f CAT q VEC @ SCOPE tenant b NOLEASE", "miss");
}

static void test_restart(void **state)
{
    char *folder = support_folder_make(), lease[LEASE_TOKEN_BYTES];
    char *data = support_path(folder, "data");
    struct connection c;
    struct test_server *s = restart(NULL, &c, data);
    (void)state;
    fill(&c);
    struct reply r = sc_say(&c, NULL, "SC.GET f CAT q HASH late SCOPE tenant a");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    expect_integer(&c, "SC.INVALIDATE f TAG t", 1);
    expect_text(&c, "SET key value", "OK");
    s = restart(s, &c, data);
    expect_text(&c, "GET key", "value");
    check_kept(&c);
    sc_check_get(&c, sc_at(1, 1), "f CAT q VEC @ SCOPE tenant a NOLEASE", "miss");
    /* a lease of before the invalidation, and of before the restart, cannot bring a tagged answer back */
    r = sc_say(&c, sc_at(1, 1), "SC.PUT f CAT q LEASE %s HASH late VEC @ SCOPE tenant a TAG t VALUE v", lease);
    sc_check_field(&r, "outcome", "outdated");
    reply_free(&r);
    sc_put(&c, sc_at(2, 1), NULL, "f CAT q VEC @ HASH j SCOPE tenant a VALUE new");
    s = restart(s, &c, data);
    check_kept(&c);
    sc_check_get(&c, NULL, "f CAT q HASH j SCOPE tenant a", "exact");
    sc_end(s, &c);
    free(data);
    support_folder_remove(folder);
}

static void test_snapshot(void **state)
{
    char *folder = support_folder_make(), command[600];
    char *data = support_path(folder, "data"), *copy = support_path(folder, "copy");
    struct connection c;
    struct test_server *s = restart(NULL, &c, data);
    (void)state;
    fill(&c);
    expect_text(&c, "SAVE", "OK");
    expect_integer(&c, "SC.INVALIDATE f ALL", 2);
    snprintf(command, sizeof command, "cp -a '%s'/snapshots/* '%s'", data, copy);
    assert_int_equal(system(command), 0);
    s = restart(s, &c, copy);
    check_kept(&c);
    sc_check_get(&c, NULL, "f CAT q HASH i SCOPE tenant a", "exact");
    sc_end(s, &c);
    free(data);
    free(copy);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_and_drop),
        cmocka_unit_test(test_refused_caches),
        cmocka_unit_test(test_categories),
        cmocka_unit_test(test_get_and_put),
        cmocka_unit_test(test_words_that_look_like_options),
        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_damaged_documents),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_invalidate),
        cmocka_unit_test(test_an_empty_lease_is_refused),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
