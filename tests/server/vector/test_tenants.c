/*
 * test_tenants.c - grants, and users who are bound to tenants, against every command of vector sets.
 *
 * The table of commands is the guard: a row of the group vector_set is either refused to users who are bound, or it
 * says that it keeps tenants apart (CMD_TENANT) and stands in the list of requests here, each of which is sent as a
 * stranger and must answer nothing that is not the stranger's. A new command fails this test until it is one of both.
 */
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *folder;
static struct test_server *server;
static struct connection admin, acme, bolt; /* unbound; bound to acme; bound to bolt and shared */

static void start(void)
{
    const char *const settings[] = {"dir", folder, "build-threads", "1", NULL};
    server = support_server(settings);
    connect_to(&admin, server->port);
    expect_text(&admin, "ACL SETUSER acme on >a ~* +@all tenant:acme", "OK");
    expect_text(&admin, "ACL SETUSER bolt on >b ~* +@all tenant:bolt tenant:shared", "OK");
    connect_to(&acme, server->port);
    connect_to(&bolt, server->port);
    expect_text(&acme, "AUTH acme a", "OK");
    expect_text(&bolt, "AUTH bolt b", "OK");
}

static void stop(void)
{
    disconnect(&admin);
    disconnect(&acme);
    disconnect(&bolt);
    support_server_end(server);
}

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    start();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stop();
    support_folder_remove(folder);
    return 0;
}

static void expect_names(struct connection *c, const char *request, const char *names)
{
    struct reply r = ask_line(c, "%s", request);
    char text[512] = "";
    if (r.type == '-')
        fail_msg("%s: %s", request, r.text);
    for (size_t i = 0; i < r.n; i++) {
        if (i > 0)
            strcat(text, " ");
        strcat(text, r.items[i].text);
    }
    if (strcmp(text, names) != 0)
        fail_msg("%s: [%s], not [%s]", request, text, names);
    reply_free(&r);
}

/* a: acme's; b: bolt's; s: shared's; ab: acme's and bolt's; n: nobody's. */
static void fill(bool sealed)
{
    expect_text(&admin, "FLUSHALL", "OK");
    expect_integer(&admin, "VADD k VALUES 2 1 0 a SETATTR {\"of\":\"acme\"} TENANT acme", 1);
    expect_integer(&admin, "VADD k VALUES 2 1 1 b SETATTR {\"of\":\"bolt\"} TENANT bolt", 1);
    expect_integer(&admin, "VADD k VALUES 2 0 1 s SETATTR {\"of\":\"shared\"} TENANT shared", 1);
    expect_integer(&admin, "VADD k VALUES 2 1 2 ab SETATTR {\"of\":\"two\"} TENANT acme TENANT bolt", 1);
    expect_integer(&admin, "VADD k VALUES 2 2 1 n SETATTR {\"of\":\"nobody\"}", 1);
    if (sealed)
        expect_text(&admin, "VSEAL k", "OK");
}

/* ---- every row of the table -------------------------------------------------------------------------------------- */

/* Requests of a user who sees nothing of the set k, in which every name and attribute has "secret" in it, and what must
 * come: an integer, null, an empty array, an array of empty arrays ('2'), an error. */
static const struct {
    const char *command, *request;
    char answer; /* ':' 0, '_' null, '*' empty, '2' empty ones, '-' an error; '%': a map without figures */
} exercised[] = {
    {"vadd", "VADD k VALUES 2 1 0 secret1", '-'},
    {"vadd", "VADD k VALUES 2 1 0 secret1 SETATTR {} TENANT stranger", '-'},
    {"vadd", "VADD k VALUES 2 1 0 new TENANT acme", '-'},
    {"vcard", "VCARD k", ':'},
    {"vcount", "VCOUNT k", ':'},
    {"vcount", "VCOUNT k TENANT acme", '-'},
    {"vcount", "VCOUNT k FILTER \".x == 1 or 1\"", ':'},
    {"vdelwhere", "VDELWHERE k FILTER 1", ':'},
    {"vdelwhere", "VDELWHERE k FILTER 1 DRYRUN", ':'},
    {"vdelwhere", "VDELWHERE k FILTER 1 TENANT acme", '-'},
    {"vemb", "VEMB k secret1", '_'},
    {"vemb", "VEMB k secret1 RAW", '_'},
    {"vgetattr", "VGETATTR k secret1", '_'},
    {"vgrant", "VGRANT k secret1 stranger", ':'},
    {"vgrant", "VGRANT k secret1 acme", '-'},
    {"vinfo", "VINFO k", '%'},
    {"vismember", "VISMEMBER k secret1", ':'},
    {"vlinks", "VLINKS k secret1 WITHSCORES", '_'},
    {"vmsim", "VMSIM k 2 VALUES 2 1 0 VALUES 2 0 1 COUNT 100 FILTER 1", '2'},
    {"vmsim", "VMSIM k 1 VALUES 2 1 0 TENANT acme", '-'},
    {"vrandmember", "VRANDMEMBER k", '_'},
    {"vrandmember", "VRANDMEMBER k 10", '*'},
    {"vrandmember", "VRANDMEMBER k -10", '*'},
    {"vrange", "VRANGE k - +", '*'},
    {"vrem", "VREM k secret1", ':'},
    {"vrevoke", "VREVOKE k secret1 stranger", ':'},
    {"vrevoke", "VREVOKE k secret1 acme", '-'},
    {"vsetattr", "VSETATTR k secret1 {}", ':'},
    {"vsim", "VSIM k ELE secret1 COUNT 100", '-'},
    {"vsim", "VSIM k VALUES 2 1 0 COUNT 100 WITHSCORES WITHATTRIBS WITHVECTORS", '*'},
    {"vsim", "VSIM k VALUES 2 1 0 COUNT 100 TRUTH", '*'},
    {"vsim", "VSIM k VALUES 2 1 0 FILTER \"key in ['secret1', 'secret2']\"", '*'},
    {"vsim", "VSIM k VALUES 2 1 0 FILTER \"!(.x == 3) or 1\"", '*'},
    {"vsim", "VSIM k VALUES 2 1 0 TENANT stranger TENANT acme", '-'},
    {"vdim", "VDIM k", 'd'}, /* 2: what everybody may know */
};
enum { EXERCISED = sizeof exercised / sizeof *exercised };

static bool has_secret(const struct reply *r)
{
    if (r->text && strstr(r->text, "secret"))
        return true;
    for (size_t i = 0; i < r->n; i++)
        if (has_secret(&r->items[i]))
            return true;
    return false;
}

static bool is_answer(const struct reply *r, char answer)
{
    switch (answer) {
    case ':':
        return (r->type == ':' || r->type == '#') && r->integer == 0;
    case 'd':
        return r->type == ':' && r->integer == 2;
    case '_':
        return r->null;
    case '*':
        return r->type != '-' && !r->null && r->n == 0;
    case '2':
        return r->n == 2 && r->items[0].n == 0 && r->items[1].n == 0;
    case '%':
        return reply_field(r, "size") && reply_field(r, "size")->integer == 0 && !reply_field(r, "memory-rows") &&
               !reply_field(r, "dead-rows") && !reply_field(r, "segment-rows");
    default:
        return r->type == '-';
    }
}

static void test_every_row_is_thought_of(void **state)
{
    (void)state;
    struct acl_user *user = acl_user_create("u", 1);
    const char *const rules[] = {"on", "nopass", "allkeys", "+@all", "tenant:acme"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_int_equal(acl_user_apply(user, rules[i], strlen(rules[i]), NULL), 0);
    for (unsigned row = 0; row < n_commands; row++) {
        const struct command *command = &commands[row];
        const struct resp_arg arg = {(const uint8_t *)"k", 1}, args[] = {arg, arg, arg, arg, arg, arg, arg, arg};
        uint32_t key_at;
        bool allowed = acl_user_check(user, row, args, (uint32_t)abs(command->arity), &key_at) == ACL_ALLOWED;
        bool of_vectors = strcmp(command->group, "vector_set") == 0, tried = false;
        if (!of_vectors) {
            assert_false(command->flags & CMD_TENANT);
            if (strcmp(command->group, "cache") == 0 ||
                ((command->flags & CMD_ADMIN) && !(command->flags & CMD_NOAUTH)))
                assert_false(allowed);
            continue;
        }
        for (size_t i = 0; i < EXERCISED; i++)
            tried |= strcmp(exercised[i].command, command->name) == 0;
        if (allowed != ((command->flags & CMD_TENANT) != 0))
            fail_msg("%s: allowed to users who are bound: %d", command->name, allowed);
        if (allowed && !tried)
            fail_msg("%s is open to users who are bound to tenants, and no request here tries it", command->name);
    }
    acl_user_release(user);
}

static void test_a_stranger_sees_nothing(void **state)
{
    struct connection c;
    (void)state;
    expect_text(&admin, "ACL SETUSER stranger on >s ~* +@all tenant:stranger", "OK");
    connect_to(&c, server->port);
    expect_text(&c, "AUTH stranger s", "OK");
    for (int round = 0; round < 4; round++) {
        struct reply hello = ask(&c, round % 2 ? "HELLO 3" : "HELLO 2");
        reply_free(&hello);
        expect_text(&admin, "FLUSHALL", "OK");
        for (int i = 0; i < 40; i++) {
            struct reply r =
                ask_line(&admin, "VADD k VALUES 2 %d 1 secret%d SETATTR \"{\\\"x\\\":1,\\\"y\\\":\\\"secret\\\"}\" %s",
                         i, i, i % 4 ? "TENANT acme" : "");
            assert_int_equal(r.integer, 1);
            reply_free(&r);
            if (i == 20 && round >= 2)
                expect_text(&admin, "VSEAL k", "OK");
        }
        for (size_t i = 0; i < EXERCISED; i++) {
            struct reply r = ask_line(&c, "%s", exercised[i].request);
            if (!is_answer(&r, exercised[i].answer))
                fail_msg("%s: %c %lld '%s' of %zu", exercised[i].request, r.type, r.integer, r.text ? r.text : "", r.n);
            if (r.type != '-' && has_secret(&r))
                fail_msg("%s tells a secret", exercised[i].request);
            reply_free(&r);
        }
        expect_integer(&admin, "VCARD k", 40); /* and nothing was lost */
        expect_integer(&admin, "VCOUNT k TENANT acme", 30);
        struct reply r = ask(&admin, "VGETATTR k secret1");
        assert_true(r.text && strcmp(r.text, "{\"x\":1,\"y\":\"secret\"}") == 0);
        reply_free(&r);
    }
    disconnect(&c);
}

static void test_what_else_is_refused(void **state)
{
    (void)state;
    fill(false);
    static const char *const requests[] = {"DEL k",
                                           "UNLINK k",
                                           "RENAME k j",
                                           "EXPIRE k 1",
                                           "PERSIST k",
                                           "COPY k j",
                                           "DUMP k",
                                           "RESTORE j 0 x",
                                           "RESTORE k 0 x REPLACE",
                                           "DEBUG DIGEST-VALUE k",
                                           "DEBUG DIGEST",
                                           "DEBUG RELOAD",
                                           "SET k v",
                                           "MSET k v",
                                           "FLUSHALL",
                                           "FLUSHDB",
                                           "SAVE",
                                           "BGSAVE",
                                           "INFO",
                                           "KEYS *",
                                           "MONITOR",
                                           "SLOWLOG GET",
                                           "MEMORY USAGE k",
                                           "DEBUG OBJECT k",
                                           "CONFIG GET *",
                                           "SC.LIST",
                                           "CLIENT LIST",
                                           "ACL LIST",
                                           "VSEAL k",
                                           "VCOMPACT k",
                                           "VCHECK k",
                                           "VLOAD k x",
                                           "VCREATE j DIM 2",
                                           "VTENANTS k",
                                           "VTENANTS k acme",
                                           "VDROPTENANT k acme",
                                           "VGETGRANTS k a",
                                           "SCAN 0",
                                           "RANDOMKEY",
                                           "DBSIZE",
                                           "MEMORY STATS",
                                           "MEMORY DOCTOR",
                                           "MEMORY PURGE",
                                           "MEMORY MALLOC-STATS",
                                           "OBJECT IDLETIME k",
                                           "OBJECT FREQ k",
                                           "OBJECT ENCODING k",
                                           "OBJECT REFCOUNT k"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        expect_error(&acme, requests[i], "NOPERM User acme is bound to tenants");
    expect_integer(&admin, "VCARD k", 5);
    expect_text(&acme, "PING", "PONG");
    expect_integer(&acme, "SETNX other v", 1);
    expect_integer(&acme, "EXISTS k", 1);
}

/* ---- what each sees ---------------------------------------------------------------------------------------------- */

static void test_each_sees_its_own(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        expect_names(&admin, "VRANGE k - +", "a ab b n s");
        expect_names(&acme, "VRANGE k - +", "a ab");
        expect_names(&bolt, "VRANGE k - +", "ab b s");
        expect_names(&acme, "VSIM k VALUES 2 1 0 COUNT 9", "a ab");
        expect_names(&acme, "VSIM k VALUES 2 1 0 COUNT 9 TRUTH", "a ab");
        expect_names(&acme, "VSIM k ELE ab COUNT 9", "ab a");
        expect_names(&bolt, "VSIM k VALUES 2 1 0 COUNT 9 TENANT bolt", "b ab");
        expect_names(&bolt, "VSIM k VALUES 2 1 0 COUNT 9 TENANT bolt TENANT shared", "b ab s");
        expect_names(&admin, "VSIM k VALUES 2 1 0 COUNT 9 TENANT acme TENANT shared", "a ab s");
        expect_names(&admin, "VSIM k VALUES 2 1 0 COUNT 9 TENANT nobody", "");
        expect_names(&admin, "VSIM k VALUES 2 1 0 COUNT 9", "a n b ab s");
        expect_names(&bolt, "VSIM k VALUES 2 1 0 COUNT 9 FILTER \".of != 'two'\"", "b s");
        expect_error(&bolt, "VSIM k VALUES 2 1 0 TENANT acme", "NOPERM this user is bound to other tenants");
        expect_error(&bolt, "VSIM none VALUES 2 1 0 TENANT acme", "NOPERM this user is bound to other tenants");
        expect_integer(&admin, "VCARD k", 5);
        expect_integer(&acme, "VCARD k", 2);
        expect_integer(&bolt, "VCARD k", 3);
        expect_integer(&bolt, "VCOUNT k TENANT shared", 1);
        expect_integer(&acme, "VISMEMBER k ab", 1);
        expect_integer(&acme, "VISMEMBER k b", 0);
        struct reply info = ask(&bolt, "VINFO k");
        assert_int_equal(reply_field(&info, "size")->integer, 3);
        assert_null(reply_field(&info, "segment-rows"));
        reply_free(&info);
        info = ask(&admin, "VINFO k");
        assert_int_equal(reply_field(&info, "size")->integer, 5);
        reply_free(&info);
        for (int i = 0; i < 30; i++) {
            struct reply r = ask(&bolt, "VRANDMEMBER k");
            assert_true(reply_is(&r, "b") || reply_is(&r, "s") || reply_is(&r, "ab"));
            reply_free(&r);
        }
        struct reply r = ask(&bolt, "VRANDMEMBER k 9");
        assert_int_equal(r.n, 3);
        reply_free(&r);
        r = ask(&bolt, "VRANDMEMBER k -9");
        assert_int_equal(r.n, 9);
        reply_free(&r);
        r = ask(&acme, "VLINKS k a");
        for (size_t i = 0; i < r.items[0].n; i++)
            assert_true(reply_is(&r.items[0].items[i], "ab"));
        reply_free(&r);
    }
}

static void test_transactions_keep_the_scope(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        expect_text(&acme, "MULTI", "OK");
        static const char *const queued[] = {"VREM k b",        "VSETATTR k b {}",
                                             "VGRANT k b acme", "VADD k VALUES 2 1 0 b",
                                             "VREM k a",        "VSIM k VALUES 2 1 0 COUNT 9"};
        for (size_t i = 0; i < sizeof queued / sizeof *queued; i++)
            expect_text(&acme, queued[i], "QUEUED");
        struct reply r = ask(&acme, "EXEC");
        assert_int_equal(r.n, 6);
        for (int i = 0; i < 3; i++)
            assert_true(r.items[i].type == ':' && r.items[i].integer == 0);
        assert_true(r.items[3].type == '-' && strncmp(r.items[3].text, "NOPERM ", 7) == 0);
        assert_int_equal(r.items[4].integer, 1);
        assert_true(r.items[5].n == 1 && reply_is(&r.items[5].items[0], "ab"));
        reply_free(&r);
        expect_names(&admin, "VRANGE k - +", "ab b n s");
        /* who is bound meanwhile is bound at EXEC */
        expect_text(&admin, "ACL SETUSER late on >l ~* +@all", "OK");
        struct connection late;
        connect_to(&late, server->port);
        expect_text(&late, "AUTH late l", "OK");
        expect_text(&late, "MULTI", "OK");
        expect_text(&late, "VSIM k VALUES 2 1 0 COUNT 9", "QUEUED");
        expect_text(&late, "VREM k n", "QUEUED");
        expect_text(&admin, "ACL SETUSER late tenant:acme", "OK");
        r = ask(&late, "EXEC");
        assert_true(r.n == 2 && r.items[0].n == 1 && reply_is(&r.items[0].items[0], "ab"));
        assert_int_equal(r.items[1].integer, 0);
        reply_free(&r);
        disconnect(&late);
        expect_integer(&admin, "ACL DELUSER late", 1);
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void test_bound_users_write_their_own(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        expect_integer(&acme, "VADD k VALUES 2 3 1 mine", 1); /* granted to its one tenant */
        expect_names(&acme, "VRANGE k - +", "a ab mine");
        expect_names(&bolt, "VRANGE k - +", "ab b s");
        expect_error(&bolt, "VADD k VALUES 2 3 1 new", "ERR "); /* to which of two? */
        expect_integer(&bolt, "VADD k VALUES 2 3 1 new TENANT shared", 1);
        expect_error(&bolt, "VADD k VALUES 2 3 1 more TENANT acme", "NOPERM this user is bound to other tenants");
        expect_integer(&bolt, "VCOUNT k TENANT shared", 2);
        /* a new vector leaves grants as they are */
        expect_integer(&acme, "VADD k VALUES 2 5 1 ab", 0);
        expect_integer(&bolt, "VISMEMBER k ab", 1);
        expect_integer(&bolt, "VADD k VALUES 2 5 1 b TENANT shared", 0); /* beside bolt */
        expect_names(&admin, "VSIM k VALUES 2 5 1 COUNT 9 FILTER \".of == 'bolt'\" TENANT shared", "b");
        expect_names(&admin, "VSIM k VALUES 2 5 1 COUNT 9 FILTER \".of == 'bolt'\" TENANT bolt", "b");
        /* others' names are taken */
        expect_error(&acme, "VADD k VALUES 2 5 1 b", "NOPERM ");
        expect_error(&acme, "VADD k VALUES 2 5 1 n TENANT acme", "NOPERM ");
        expect_integer(&acme, "VREM k s", 0);
        expect_integer(&acme, "VSETATTR k s {}", 0);
        expect_integer(&acme, "VSETATTR k ab {\"of\":\"both\"}", 1);
        expect_integer(&bolt, "VCOUNT k FILTER .of==\"both\"", 1);
        expect_integer(&acme, "VREM k ab", 1);
        expect_integer(&bolt, "VISMEMBER k ab", 0);
        /* the last of a set takes the key with it, whoever removes it */
        expect_integer(&acme, "VADD alone VALUES 2 1 1 x", 1);
        expect_integer(&bolt, "VREM alone x", 0);
        expect_integer(&acme, "VREM alone x", 1);
        expect_integer(&admin, "EXISTS alone", 0);
    }
}

static void test_grants(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        expect_integer(&admin, "VGRANT k n acme bolt acme", 2);
        expect_integer(&admin, "VGRANT k n acme", 0);
        expect_names(&acme, "VRANGE k - +", "a ab n");
        check_text(ask(&acme, "VGETATTR k n"), "{\"of\":\"nobody\"}");
        expect_integer(&admin, "VREVOKE k n acme stranger", 1);
        expect_names(&acme, "VRANGE k - +", "a ab");
        expect_names(&bolt, "VRANGE k - +", "ab b n s");
        expect_integer(&admin, "VGRANT k missing acme", 0);
        expect_integer(&admin, "VGRANT none a acme", 0);
        expect_integer(&admin, "VREVOKE none a acme", 0);
        expect_error(&acme, "VGRANT k a bolt", "NOPERM this user is bound to other tenants");
        expect_error(&acme, "VREVOKE k ab bolt", "NOPERM this user is bound to other tenants");
        expect_integer(&acme, "VGRANT k b acme", 0); /* it does not see it */
        expect_integer(&bolt, "VGRANT k b shared", 1);
        expect_integer(&bolt, "VREVOKE k b bolt", 1);
        expect_integer(&bolt, "VCOUNT k TENANT shared", 2);
        expect_integer(&acme, "VREVOKE k ab acme", 1);
        expect_names(&acme, "VRANGE k - +", "a");
        check_error(ask_line(&admin, "VGRANT k a \"\""), "ERR ");
        /* in a transaction */
        expect_text(&admin, "MULTI", "OK");
        expect_text(&admin, "VGRANT k s acme", "QUEUED");
        expect_text(&admin, "VREVOKE k s shared", "QUEUED");
        expect_text(&admin, "VGRANT k a shared", "QUEUED");
        struct reply r = ask(&admin, "EXEC");
        assert_int_equal(r.n, 3);
        for (size_t i = 0; i < r.n; i++)
            assert_true(r.items[i].type == ':' && r.items[i].integer == 1);
        reply_free(&r);
        expect_names(&acme, "VRANGE k - +", "a s");
        expect_names(&bolt, "VRANGE k - +", "a ab b n");
        check_text(ask(&acme, "VGETATTR k s"), "{\"of\":\"shared\"}");
        stop();
        start();
        expect_names(&acme, "VRANGE k - +", "a s");
        expect_names(&bolt, "VRANGE k - +", "a ab b n");
    }
}

/* Whose an element is, for who looks after all of them. */
static void test_grants_are_told(void **state)
{
    (void)state;
    expect_text(&admin, "ACL SETUSER reader on >r ~* +@all -@admin", "OK");
    struct connection reader;
    connect_to(&reader, server->port);
    expect_text(&reader, "AUTH reader r", "OK");
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        for (int protocol = 3; protocol >= 2; protocol--) {
            struct reply r = ask(&admin, protocol == 3 ? "HELLO 3" : "HELLO 2");
            reply_free(&r);
            expect_names(&admin, "VGETGRANTS k a", "acme");
            expect_names(&admin, "VGETGRANTS k ab", "acme bolt"); /* in the order of names */
            r = ask(&admin, "VGETGRANTS k n");
            assert_true(r.type == '*' && r.n == 0 && !r.null);
            reply_free(&r);
            for (int missing = 0; missing < 2; missing++) {
                r = ask(&admin, missing ? "VGETGRANTS k missing" : "VGETGRANTS none a");
                assert_true(r.null && r.type == (protocol == 3 ? '_' : '*'));
                reply_free(&r);
            }
        }
        expect_integer(&admin, "VGRANT k ab aaa", 1);
        expect_names(&admin, "VGETGRANTS k ab", "aaa acme bolt");
        expect_integer(&admin, "VREVOKE k ab acme", 1);
        expect_names(&admin, "VGETGRANTS k ab", "aaa bolt");
        expect_integer(&admin, "SETNX text v", 1);
        expect_error(&admin, "VGETGRANTS text a", "WRONGTYPE");
        expect_error(&admin, "VGETGRANTS k", "ERR wrong number of arguments");
        expect_error(&admin, "VGETGRANTS k a b", "ERR wrong number of arguments");
        expect_error(&reader, "VGETGRANTS k a", "NOPERM ");
        expect_text(&admin, "MULTI", "OK");
        expect_text(&admin, "VGRANT k n acme", "QUEUED");
        expect_text(&admin, "VGETGRANTS k n", "QUEUED");
        struct reply r = ask(&admin, "EXEC");
        assert_true(r.n == 2 && r.items[1].n == 1 && reply_is(&r.items[1].items[0], "acme"));
        reply_free(&r);
        /* a tenant that was dropped has none, and one of its name that comes later has its own */
        expect_integer(&admin, "VDROPTENANT k bolt", 2);
        expect_names(&admin, "VGETGRANTS k ab", "aaa");
        expect_integer(&admin, "VGRANT k s bolt", 1);
        expect_names(&admin, "VGETGRANTS k s", "bolt shared");
        expect_names(&admin, "VGETGRANTS k ab", "aaa");
    }
    disconnect(&reader);
    expect_integer(&admin, "ACL DELUSER reader", 1);
}

static void check_one(struct reply r)
{
    assert_true((r.type == ':' || r.type == '#') && r.integer == 1);
    reply_free(&r);
}

/* Attributes that begin as grants do (grants.h) grant nothing, whoever writes them and whatever is revoked. */
static void test_attributes_forge_no_grants(void **state)
{
    (void)state;
#define FORGED "\1\1\0\11\0\0\0\0\0\0\0\4bolt{}"
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        send_literal(&acme, "*4\r\n$8\r\nVSETATTR\r\n$1\r\nk\r\n$1\r\na\r\n$18\r\n" FORGED "\r\n");
        check_one(read_reply(&acme));
        expect_integer(&acme, "VREVOKE k a acme", 1);
        send_literal(&admin, "*4\r\n$8\r\nVSETATTR\r\n$1\r\nk\r\n$1\r\nn\r\n$18\r\n" FORGED "\r\n");
        check_one(read_reply(&admin));
        expect_integer(&admin, "VSETATTR k s \1", 1);
        for (int moment = 0; moment < 3; moment++) {
            expect_names(&bolt, "VRANGE k - +", "ab b s");
            expect_names(&bolt, "VSIM k VALUES 2 1 1 COUNT 9", "b ab s");
            expect_integer(&admin, "VCARD k", 5);
            struct reply r = ask(&admin, "VGETATTR k a");
            assert_int_equal(r.bytes, sizeof FORGED - 1);
            assert_memory_equal(r.text, FORGED, r.bytes);
            reply_free(&r);
            check_text(ask(&bolt, "VGETATTR k s"), "\1");
            if (moment == 0)
                expect_text(&admin, "VSEAL k", "OK");
            stop();
            start();
        }
    }
#undef FORGED
}

static void test_tenants_are_listed_and_dropped(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        int protocol = 2 + round / 2;
        fill(round % 2);
        struct reply r = ask(&admin, protocol == 3 ? "HELLO 3" : "HELLO 2");
        reply_free(&r);
        r = ask(&admin, "VTENANTS k");
        assert_int_equal(r.type, protocol == 3 ? '%' : '*');
        assert_int_equal(r.n, 6);
        assert_true(reply_is(&r.items[0], "acme") && reply_is(&r.items[2], "bolt") && reply_is(&r.items[4], "shared"));
        assert_int_equal(reply_field(&r, "acme")->integer, 2);
        assert_int_equal(reply_field(&r, "bolt")->integer, 2);
        assert_int_equal(reply_field(&r, "shared")->integer, 1);
        reply_free(&r);
        r = ask(&admin, "HELLO 2");
        reply_free(&r);
        r = ask(&admin, "VTENANTS k bolt");
        assert_true(r.n == 2 && reply_field(&r, "bolt")->integer == 2);
        reply_free(&r);
        expect_names(&admin, "VTENANTS k nobody", "");
        expect_names(&admin, "VTENANTS none", "");
        expect_integer(&admin, "VDROPTENANT k acme", 2);
        expect_integer(&admin, "VDROPTENANT k acme", 0);
        expect_integer(&admin, "VDROPTENANT none acme", 0);
        check_error(ask_line(&admin, "VDROPTENANT k \"\""), "ERR ");
        expect_names(&acme, "VRANGE k - +", "");
        expect_integer(&acme, "VCARD k", 0);
        expect_names(&bolt, "VRANGE k - +", "ab b s");
        /* the name begins anew */
        expect_integer(&acme, "VADD k VALUES 2 1 0 a", 1);
        expect_names(&acme, "VRANGE k - +", "a");
        stop();
        start();
        expect_names(&acme, "VRANGE k - +", "a");
        expect_names(&bolt, "VRANGE k - +", "ab b s");
    }
}

static void test_sets_of_tenants(void **state)
{
    (void)state;
    expect_text(&admin, "FLUSHALL", "OK");
    expect_text(&admin, "VCREATE k DIM 2 TENANTS", "OK");
    expect_error(&admin, "VADD k VALUES 2 1 0 x", "ERR ");
    expect_integer(&admin, "VADD k VALUES 2 1 0 x TENANT acme", 1);
    expect_integer(&admin, "VADD k VALUES 2 0 1 x", 0); /* keeps its own */
    expect_integer(&acme, "VADD k VALUES 2 0 1 y", 1);
    for (int sealed = 0; sealed < 2; sealed++) {
        expect_error(&admin, "VREVOKE k x acme", "ERR "); /* nobody would be left */
        expect_names(&acme, "VRANGE k - +", "x y");
        expect_text(&admin, "VSEAL k", "OK");
    }
    struct reply r = ask(&admin, "VINFO k");
    assert_int_equal(reply_field(&r, "tenants")->integer, 1);
    reply_free(&r);
}

/* A set that was made for tenants stays when its last element goes, so that no tenant can make another in its place. */
static void test_an_empty_set_stays_what_it_was(void **state)
{
    (void)state;
    expect_text(&admin, "FLUSHALL", "OK");
    expect_text(&admin, "VCREATE k DIM 2 TENANTS METRIC l2", "OK");
    expect_integer(&acme, "VADD k VALUES 2 1 0 x", 1);
    expect_integer(&acme, "VREM k x", 1);
    expect_error(&acme, "VADD k VALUES 3 1 0 0 x", "ERR Vector dimension mismatch");
    expect_integer(&acme, "VADD k VALUES 2 1 0 x", 1);
    expect_integer(&acme, "VDELWHERE k FILTER 1", 1);
    expect_integer(&admin, "VADD k VALUES 2 1 0 y TENANT bolt", 1);
    expect_integer(&admin, "VREM k y", 1);
    expect_integer(&admin, "EXISTS k", 1);
    for (int restarted = 0; restarted < 2; restarted++) {
        struct reply r = ask(&admin, "VINFO k");
        assert_int_equal(reply_field(&r, "tenants")->integer, 1);
        assert_int_equal(reply_field(&r, "size")->integer, 0);
        assert_string_equal(reply_field(&r, "metric")->text, "l2");
        reply_free(&r);
        stop();
        start();
    }
    expect_integer(&admin, "DEL k", 1);
    expect_integer(&admin, "EXISTS k", 0);
}

/* What the version of a shared set would tell. */
static void test_watching_shows_no_others(void **state)
{
    (void)state;
    fill(false);
    expect_error(&acme, "WATCH k", "NOPERM ");
    expect_error(&acme, "WATCH own k", "NOPERM ");
    expect_text(&acme, "WATCH own", "OK");
    expect_integer(&admin, "VADD k VALUES 2 3 1 more TENANT bolt", 1);
    expect_text(&acme, "MULTI", "OK");
    expect_text(&acme, "PING", "QUEUED");
    struct reply r = ask(&acme, "EXEC");
    assert_true(r.type == '*' && r.n == 1);
    reply_free(&r);
    expect_text(&admin, "WATCH k", "OK");
    expect_text(&admin, "UNWATCH", "OK");
}

/* What a search did is told only as far as the user's own elements decide it. */
static void test_explain_counts_no_others(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        for (int many = 0; many < 2; many++) {
            const char *request = many ? "VMSIM k 1 VALUES 2 1 0 EXPLAIN" : "VSIM k VALUES 2 1 0 EXPLAIN";
            struct reply r = ask(&acme, request);
            const struct reply *explained = many ? &r.items[0].items[1] : &r.items[1];
            assert_int_equal(explained->n, 8);
            assert_non_null(reply_field(explained, "result"));
            assert_int_equal(reply_field(explained, "matches")->integer, 2);
            assert_non_null(reply_field(explained, "latency-us"));
            assert_non_null(reply_field(explained, "step-us"));
            reply_free(&r);
            r = ask(&admin, request);
            explained = many ? &r.items[0].items[1] : &r.items[1];
            assert_int_equal(explained->n, 32);
            reply_free(&r);
        }
    }
}

static void test_removal_by_filter_keeps_to_the_scope(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        fill(sealed);
        struct reply r = ask_line(&acme, "VDELWHERE k FILTER \"1 or .of\" DRYRUN");
        assert_int_equal(r.integer, 2);
        reply_free(&r);
        r = ask_line(&acme, "VDELWHERE k FILTER \"exists .of or true\"");
        assert_int_equal(r.integer, 2);
        reply_free(&r);
        expect_names(&admin, "VRANGE k - +", "b n s");
        r = ask_line(&admin, "VDELWHERE k FILTER \"exists .of\" TENANT shared TENANT acme");
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        expect_names(&admin, "VRANGE k - +", "b n");
    }
}

static void test_limits_hold_for_filters_everywhere(void **state)
{
    static const char *const requests[] = {"VSIM k VALUES 2 1 0 FILTER", "VCOUNT k FILTER", "VDELWHERE k FILTER"};
    (void)state;
    fill(false);
    check_text(ask_line(&admin, "CONFIG SET tenant-limits \"acme filter-bytes=12\""), "OK");
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct reply r = ask_line(&acme, "%s \".of == 1\"", requests[i]);
        assert_true(r.type != '-');
        reply_free(&r);
        check_error(ask_line(&acme, "%s \".of == 1 and .of\"", requests[i]), "ERR ");
        check_error(ask_line(&admin, "%s \".of == 1 and .of\" TENANT acme", requests[i]), "ERR ");
        r = ask_line(&bolt, "%s \".of == 1 and .of\"", requests[i]);
        assert_true(r.type != '-');
        reply_free(&r);
    }
    check_text(ask_line(&admin, "CONFIG SET tenant-limits \"\""), "OK");
}

/* Three elements of acme's among thousands of others'. */
static void test_few_among_many(void **state)
{
    enum { OTHERS = SANITIZED ? 1000 : 4000 }; /* of which VSEAL finds the recall: long under a sanitizer */
    (void)state;
    expect_text(&admin, "FLUSHALL", "OK");
    for (int sealed = 0; sealed < 2; sealed++) {
        for (int i = 0; i < OTHERS; i++)
            send_line(&admin, "VADD k VALUES 2 %d 1 o%d TENANT other", i, i);
        for (int i = 0; i < OTHERS; i++) {
            struct reply r = read_reply(&admin);
            assert_int_equal(r.type, ':');
            reply_free(&r);
        }
        for (int i = 0; i < 3; i++) {
            struct reply r = ask_line(&admin, "VADD k VALUES 2 %d 2 mine%d TENANT acme", i, i);
            assert_int_equal(r.integer, !sealed);
            reply_free(&r);
        }
        if (sealed)
            expect_text(&admin, "VSEAL k", "OK");
        for (int round = 0; round < 3; round++) {
            unsigned seen[3] = {0};
            struct reply r = ask(&acme, round == 0   ? "VRANDMEMBER k 10"
                                        : round == 1 ? "VRANDMEMBER k -60"
                                                     : "VRANDMEMBER k 2");
            assert_int_equal(r.n, round == 0 ? 3 : round == 1 ? 60 : 2);
            for (size_t i = 0; i < r.n; i++) {
                unsigned which = 3;
                if (sscanf(r.items[i].text, "mine%u", &which) != 1 || which > 2)
                    fail_msg("VRANDMEMBER gives %s", r.items[i].text);
                seen[which]++;
            }
            for (int i = 0; i < 3; i++)
                assert_true(round == 0 ? seen[i] == 1 : round == 1 ? seen[i] > 4 : seen[i] <= 1);
            reply_free(&r);
        }
        struct reply r = ask(&acme, "VRANDMEMBER k");
        assert_int_equal(strncmp(r.text, "mine", 4), 0);
        reply_free(&r);
        expect_names(&acme, "VSIM k VALUES 2 900 1 COUNT 3 FILTER \"key in ['o900', 'mine2']\"", "mine2");
        expect_names(&acme, "VRANGE k - + 2", "mine0 mine1");
    }
}

/* A request goes on with the scope that it began with, however often the user is changed meanwhile. */
static void test_users_change_while_requests_run(void **state)
{
    enum { ROUNDS = 300 };
    (void)state;
    fill(true);
    for (int i = 0; i < ROUNDS; i++) {
        send_line(&bolt, "VSIM k VALUES 2 1 0 COUNT 9 WITHATTRIBS");
        send_line(&bolt, "VEMB k b");
        send_line(&admin, "ACL SETUSER bolt resettenants tenant:%s", i % 2 ? "bolt" : "shared");
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct reply r = read_reply(&bolt);
        assert_int_equal(r.type, '*');
        for (size_t j = 0; j < r.n; j += 2)
            assert_true(reply_is(&r.items[j], "b") || reply_is(&r.items[j], "ab") || reply_is(&r.items[j], "s"));
        reply_free(&r);
        r = read_reply(&bolt);
        assert_true(r.null || r.n == 2);
        reply_free(&r);
        check_text(read_reply(&admin), "OK");
    }
    expect_text(&admin, "ACL SETUSER bolt resettenants tenant:bolt tenant:shared", "OK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_thought_of),
        cmocka_unit_test(test_a_stranger_sees_nothing),
        cmocka_unit_test(test_what_else_is_refused),
        cmocka_unit_test(test_each_sees_its_own),
        cmocka_unit_test(test_transactions_keep_the_scope),
        cmocka_unit_test(test_bound_users_write_their_own),
        cmocka_unit_test(test_grants),
        cmocka_unit_test(test_grants_are_told),
        cmocka_unit_test(test_attributes_forge_no_grants),
        cmocka_unit_test(test_tenants_are_listed_and_dropped),
        cmocka_unit_test(test_sets_of_tenants),
        cmocka_unit_test(test_an_empty_set_stays_what_it_was),
        cmocka_unit_test(test_watching_shows_no_others),
        cmocka_unit_test(test_explain_counts_no_others),
        cmocka_unit_test(test_removal_by_filter_keeps_to_the_scope),
        cmocka_unit_test(test_limits_hold_for_filters_everywhere),
        cmocka_unit_test(test_few_among_many),
        cmocka_unit_test(test_users_change_while_requests_run),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
