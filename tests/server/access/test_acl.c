/*
 * test_acl.c - users: what rules make of them, what they may do, and how they come and go while others work.
 *
 * Rules are tested on users alone, with no server: every command against every kind of rule, and that what is written
 * down makes the same user again. Then a server: passwords, denials, files that are taken whole or not at all, users
 * who are deleted while connected, and several connections that go on while another changes what they may do.
 */
#include "io/random.h"
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/command_rows.h"
#include "tests/server/support_server.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- users alone ------------------------------------------------------------------------------------------------- */

/* Applies rules that are parted by blanks; the first error's message, or "". */
static const char *apply(struct acl_user *user, const char *rules)
{
    static struct quire_error err;
    err.message[0] = 0;
    while (*rules) {
        size_t bytes = strcspn(rules, " ");
        if (bytes > 0 && acl_user_apply(user, rules, bytes, &err) < 0)
            return err.message;
        rules += bytes + strspn(rules + bytes, " ");
    }
    return "";
}

static struct acl_user *user_of(const char *rules)
{
    struct acl_user *user = acl_user_create("u", 1);
    assert_non_null(user);
    const char *message = apply(user, rules);
    if (message[0])
        fail_msg("'%s': %s", rules, message);
    return user;
}

static int row_of(const char *name)
{
    for (unsigned row = 0; row < n_commands; row++)
        if (strcmp(commands[row].name, name) == 0)
            return (int)row;
    fail_msg("there is no command %s", name);
    return -1;
}

/* The verdict on a command with one key (or none) in each place of a key. */
static enum acl_verdict check(const struct acl_user *user, const char *command, const char *key)
{
    struct resp_arg args[] = {{(const uint8_t *)command, (uint32_t)strlen(command)},
                              {(const uint8_t *)key, (uint32_t)strlen(key)},
                              {(const uint8_t *)key, (uint32_t)strlen(key)},
                              {(const uint8_t *)key, (uint32_t)strlen(key)}};
    uint32_t key_at;
    unsigned row = (unsigned)row_of(command);
    assert_true(commands[row].first_key < 4);
    /* a path stands behind the keys of JSON.MGET */
    uint32_t n = (uint32_t)commands[row].first_key + (commands[row].last_key == -2 ? 2 : 1);
    return acl_user_check(user, row, args, n, &key_at);
}

static void expect_described(struct acl_user *user, const char *expected)
{
    struct resp_buffer text = {.protocol = 2};
    acl_user_describe(user, &text);
    resp_raw(&text, "", 1);
    assert_string_equal((char *)text.data, expected);
    resp_buffer_fini(&text);
}

static void test_a_new_user_may_nothing(void **state)
{
    (void)state;
    struct acl_user *user = user_of("");
    expect_described(user, "user u off resetchannels -@all");
    for (unsigned row = 0; row < n_commands; row++) {
        bool always = commands[row].flags & CMD_NOAUTH;
        assert_int_equal(check(user, commands[row].name, "k"), always ? ACL_ALLOWED : ACL_DENIED_COMMAND);
    }
    assert_false(user->everything);
    acl_user_release(user);
}

static void test_each_command_alone(void **state)
{
    (void)state;
    for (unsigned row = 0; row < n_commands; row++) {
        char rules[80];
        snprintf(rules, sizeof rules, "on allkeys +%s", commands[row].name);
        struct acl_user *user = user_of(rules);
        for (unsigned other = 0; other < n_commands; other++) {
            bool allowed = other == row || command_is_sub(&commands[other], &commands[row]) ||
                           (commands[other].flags & CMD_NOAUTH);
            if ((check(user, commands[other].name, "k") == ACL_ALLOWED) != allowed)
                fail_msg("%s: %s", rules, commands[other].name);
        }
        snprintf(rules, sizeof rules, "+@all -%s", commands[row].name);
        assert_string_equal(apply(user, rules), "");
        for (unsigned other = 0; other < n_commands; other++) {
            bool denied = (other == row || command_is_sub(&commands[other], &commands[row])) &&
                          !(commands[other].flags & CMD_NOAUTH);
            if ((check(user, commands[other].name, "k") == ACL_DENIED_COMMAND) != denied)
                fail_msg("%s: %s", rules, commands[other].name);
        }
        acl_user_release(user);
    }
}

static void test_each_category(void **state)
{
    (void)state;
    unsigned filled = 0;
    for (unsigned category = 0; command_category_name(category); category++) {
        char rules[80];
        bool any = false;
        snprintf(rules, sizeof rules, "allkeys +@%s", command_category_name(category));
        struct acl_user *user = user_of(rules);
        assert_int_equal(
            command_category_find(command_category_name(category), strlen(command_category_name(category))), category);
        for (unsigned row = 0; row < n_commands; row++) {
            bool in = command_in_category(&commands[row], category);
            any |= in;
            if ((check(user, commands[row].name, "k") == ACL_ALLOWED) != (in || (commands[row].flags & CMD_NOAUTH)))
                fail_msg("%s: %s", rules, commands[row].name);
        }
        filled += any;
        acl_user_release(user);
    }
    assert_true(filled >= 9);
    for (unsigned row = 0; row < n_commands; row++) {
        bool fast = command_in_category(&commands[row], (unsigned)command_category_find("FAST", 4));
        assert_true(fast != command_in_category(&commands[row], (unsigned)command_category_find("slow", 4)));
    }
}

static void test_the_order_of_rules_holds(void **state)
{
    (void)state;
    struct acl_user *user = user_of("on nopass ~* +@all -@vectorset +vsim");
    assert_int_equal(check(user, "vsim", "k"), ACL_ALLOWED);
    assert_int_equal(check(user, "vload", "k"), ACL_DENIED_COMMAND);
    expect_described(user, "user u on nopass ~* resetchannels +@all -@vectorset +vsim");
    assert_string_equal(apply(user, "-vsim +@vectorset"), "");
    assert_int_equal(check(user, "vsim", "k"), ACL_ALLOWED);
    expect_described(user, "user u on nopass ~* resetchannels +@all -vsim +@vectorset");
    assert_string_equal(apply(user, "-@all +config -CONFIG|get"), "");
    expect_described(user, "user u on nopass ~* resetchannels -@all +config -config|get");
    assert_int_equal(check(user, "config|get", ""), ACL_DENIED_COMMAND);
    assert_string_equal(apply(user, "+config"), "");
    expect_described(user, "user u on nopass ~* resetchannels -@all +config");
    assert_int_equal(check(user, "config|get", ""), ACL_ALLOWED);
    assert_string_equal(apply(user, "+@all"), "");
    assert_true(user->everything);
    assert_string_equal(apply(user, "tenant:a"), "");
    assert_false(user->everything);
    assert_string_equal(apply(user, "resettenants -ping"), "");
    assert_false(user->everything);
    assert_string_equal(apply(user, "+ping"), "");
    assert_true(user->everything);
    assert_string_equal(apply(user, "reset"), "");
    expect_described(user, "user u off resetchannels -@all");
    acl_user_release(user);
}

static void test_keys(void **state)
{
    (void)state;
    struct acl_user *user = user_of("+@all ~docs:* %R~read:* %W~write:* ~a[bc]? ~lit\\*");
    static const struct {
        const char *key;
        bool read, write;
    } cases[] = {{"docs:1", true, true},   {"docs", false, false},  {"Docs:1", false, false}, {"read:x", true, false},
                 {"write:x", false, true}, {"abz", true, true},     {"acz", true, true},      {"adz", false, false},
                 {"ab", false, false},     {"lit*", true, true},    {"litx", false, false},   {"", false, false},
                 {"read:", true, false},   {"xread:", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(check(user, "vcard", cases[i].key), cases[i].read ? ACL_ALLOWED : ACL_DENIED_KEY);
        assert_int_equal(check(user, "del", cases[i].key), cases[i].write ? ACL_ALLOWED : ACL_DENIED_KEY);
    }
    struct resp_arg several[] = {{(const uint8_t *)"del", 3},
                                 {(const uint8_t *)"docs:1", 6},
                                 {(const uint8_t *)"docs:\0", 6},
                                 {(const uint8_t *)"read:x", 6}};
    uint32_t key_at = 0;
    assert_int_equal(acl_user_check(user, (unsigned)row_of("del"), several, 4, &key_at), ACL_DENIED_KEY);
    assert_int_equal(key_at, 3);
    assert_int_equal(acl_user_check(user, (unsigned)row_of("del"), several, 3, &key_at), ACL_ALLOWED);
    expect_described(user, "user u off ~docs:* %R~read:* %W~write:* ~a[bc]? ~lit\\* resetchannels +@all");
    /* what a write shows must be readable, too */
    assert_int_equal(check(user, "getdel", "write:x"), ACL_DENIED_KEY);
    assert_int_equal(check(user, "incr", "write:x"), ACL_DENIED_KEY);
    assert_int_equal(check(user, "append", "write:x"), ACL_ALLOWED);
    const struct resp_arg set[] = {{(const uint8_t *)"set", 3},
                                   {(const uint8_t *)"write:x", 7},
                                   {(const uint8_t *)"GET", 3},
                                   {(const uint8_t *)"get", 3}};
    assert_int_equal(acl_user_check(user, (unsigned)row_of("set"), set, 3, &key_at), ACL_ALLOWED);
    assert_int_equal(acl_user_check(user, (unsigned)row_of("set"), set, 4, &key_at), ACL_DENIED_KEY);
    struct resp_arg where[] = {{(const uint8_t *)"vdelwhere", 9},
                               {(const uint8_t *)"write:x", 7},
                               {(const uint8_t *)"FILTER", 6},
                               {(const uint8_t *)"1", 1},
                               {(const uint8_t *)"dryrun", 6}};
    assert_int_equal(acl_user_check(user, (unsigned)row_of("vdelwhere"), where, 4, &key_at), ACL_ALLOWED);
    assert_int_equal(acl_user_check(user, (unsigned)row_of("vdelwhere"), where, 5, &key_at), ACL_DENIED_KEY);
    where[1] = (struct resp_arg){(const uint8_t *)"docs:1", 6};
    assert_int_equal(acl_user_check(user, (unsigned)row_of("vdelwhere"), where, 5, &key_at), ACL_ALLOWED);
    assert_true(acl_user_may_read(user, where[1]));
    assert_false(acl_user_may_read(user, set[1]));
    assert_string_equal(apply(user, "%W~read:*"), "");
    assert_int_equal(check(user, "del", "read:x"), ACL_ALLOWED);
    assert_string_equal(apply(user, "resetkeys"), "");
    assert_int_equal(check(user, "vcard", "docs:1"), ACL_DENIED_KEY);
    assert_string_equal(apply(user, "~a %R~* %W~*"), "");
    assert_true(user->all_keys && user->keys.n == 0 && user->everything);
    acl_user_release(user);
}

static void test_keys_of_all_rows(void **state)
{
    (void)state;
    struct acl_user *user = user_of("+@all ~mine");
    for (unsigned row = 0; row < n_commands; row++) {
        struct command_keys keys = command_keys(&commands[row], 4);
        assert_int_equal(keys.n > 0, commands[row].first_key > 0);
        bool checked = keys.n > 0 && !(commands[row].flags & CMD_NOAUTH);
        assert_int_equal(check(user, commands[row].name, "other"), checked ? ACL_DENIED_KEY : ACL_ALLOWED);
        assert_int_equal(check(user, commands[row].name, "mine"), ACL_ALLOWED);
    }
    const struct command stepped = {.first_key = 1, .last_key = -1, .key_step = 2};
    struct command_keys keys = command_keys(&stepped, 7);
    assert_true(keys.first == 1 && keys.step == 2 && keys.n == 3);
    assert_int_equal(command_keys(&stepped, 1).n, 0);
    const struct command two = {.first_key = 1, .last_key = 2, .key_step = 1};
    assert_int_equal(command_keys(&two, 9).n, 2);
    assert_int_equal(command_keys(&two, 2).n, 1);
    acl_user_release(user);
}

static void test_passwords(void **state)
{
    (void)state;
    struct acl_user *user = user_of("nopass >first >second >first");
    assert_false(user->nopass);
    assert_int_equal(user->passwords.n, 2);
    assert_true(acl_user_has_password(user, "first", 5) && acl_user_has_password(user, "second", 6));
    assert_false(acl_user_has_password(user, "firs", 4) || acl_user_has_password(user, "", 0));
    assert_string_equal(apply(user, "<first"), "");
    assert_false(acl_user_has_password(user, "first", 5));
    /* SHA-256 of "abc", FIPS 180-2 */
    assert_string_equal(apply(user, "#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "");
    assert_true(acl_user_has_password(user, "abc", 3));
    assert_string_equal(apply(user, "!ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "");
    assert_false(acl_user_has_password(user, "abc", 3));
    assert_string_equal(apply(user, "nopass"), "");
    assert_true(user->nopass && user->passwords.n == 0);
    assert_string_equal(apply(user, "resetpass"), "");
    assert_false(user->nopass);
    acl_user_release(user);
}

static void test_wrong_rules(void **state)
{
    (void)state;
    static const char hash[] = "The password hash must be exactly 64 characters and contain only lowercase "
                               "hexadecimal characters";
    static const char unknown[] = "Unknown command or category name in ACL";
    static const struct {
        const char *rules, *message;
    } cases[] = {
        {"foo", "Syntax error"},
        {"on off x", "Syntax error"},
        {"+foo", unknown},
        {"-foo", unknown},
        {"+", unknown},
        {"+@", unknown},
        {"+@foo", unknown},
        {"+config|nope", unknown},
        {"+ping|x", unknown},
        {"+config|get|x", "Allowing first-arg of a subcommand is not supported"},
        {"#12", hash},
        {"!12", hash},
        {"#BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD", hash},
        {"<x", "The password you are trying to remove from the user does not exist"},
        {"~* ~x", "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have "
                  "any effect. Try 'resetkeys' to start with an empty list of patterns"},
        {"&* &x", "Adding a channel after the * pattern (or the 'allchannels' flag) is not valid and does not "
                  "have any effect. Try 'resetchannels' to start with an empty list of channels"},
        {"%~x", "Syntax error"},
        {"%RR~x", "Syntax error"},
        {"%X~x", "Syntax error"},
        {"%R", "Syntax error"},
        {"tenant:", "tenant: needs the name of a tenant, as in tenant:acme"},
        {"(+vsim", "Selectors are not supported: give the permissions to the user itself, or to a second user"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct acl_user *user = acl_user_create("u", 1);
        assert_string_equal(apply(user, cases[i].rules), cases[i].message);
        acl_user_release(user);
    }
    struct acl_user *user = acl_user_create("u", 1);
    struct quire_error err = {0};
    assert_int_equal(acl_user_apply(user, "~a b", 4, &err), QUIRE_EINVALID);
    assert_int_equal(acl_user_apply(user, "~a\0b", 4, &err), QUIRE_EINVALID);
    assert_int_equal(acl_user_apply(user, "", 0, &err), QUIRE_EINVALID);
    char *many = calloc(1, ACL_RULE_BYTES_MAX + 1);
    memset(many, '~', ACL_RULE_BYTES_MAX + 1);
    assert_int_equal(acl_user_apply(user, many, ACL_RULE_BYTES_MAX + 1, &err), QUIRE_ELIMIT);
    assert_int_equal(acl_user_apply(user, many, ACL_RULE_BYTES_MAX, &err), 0);
    int rc = 0, n = 1;
    for (; rc == 0; n++) {
        char rule[32];
        snprintf(rule, sizeof rule, "~%d", n);
        rc = acl_user_apply(user, rule, strlen(rule), &err);
    }
    assert_int_equal(rc, QUIRE_ELIMIT);
    assert_int_equal(user->keys.n, ACL_ITEMS_MAX);
    free(many);
    acl_user_release(user);
}

/* Random rules: what is written down makes a user with the same permissions and the same text. */
static void test_descriptions_make_the_same_user(void **state)
{
    (void)state;
    static const char *const others[] = {"on",    "off",        "nopass", ">a",      ">b",           "resetpass",
                                         "~a*",   "%R~b",       "%W~b",   "allkeys", "resetkeys",    "&ch",
                                         "reset", "tenant:one", "+@all",  "-@all",   "resettenants", "allchannels"};
    struct random random;
    random_init(&random, 11);
    for (int round = 0; round < 300; round++) {
        struct acl_user *user = user_of("");
        for (int i = 0; i < 20; i++) {
            char rule[64];
            uint64_t dice = random_next(&random) % 3, place = random_next(&random);
            bool plus = random_next(&random) & 1;
            if (dice == 0)
                snprintf(rule, sizeof rule, "%c%s", plus ? '+' : '-', commands[place % n_commands].name);
            else if (dice == 1)
                snprintf(rule, sizeof rule, "%c@%s", plus ? '+' : '-', command_category_name((unsigned)(place % 22)));
            else
                snprintf(rule, sizeof rule, "%s", others[place % (sizeof others / sizeof *others)]);
            (void)acl_user_apply(user, rule, strlen(rule), NULL); /* "~a*" after allkeys is refused, rightly */
        }
        struct resp_buffer text = {.protocol = 2};
        acl_user_describe(user, &text);
        resp_raw(&text, "", 1);
        struct acl_user *again = user_of((char *)text.data + strlen("user u "));
        expect_described(again, (char *)text.data);
        for (unsigned row = 0; row < n_commands; row++)
            assert_int_equal(check(again, commands[row].name, "b"), check(user, commands[row].name, "b"));
        assert_true(again->everything == user->everything && again->on == user->on);
        resp_buffer_fini(&text);
        acl_user_release(again);
        struct acl_user *copy = acl_user_copy(user);
        assert_memory_equal(copy->allowed, user->allowed, sizeof copy->allowed);
        assert_true(copy->everything == user->everything);
        acl_user_release(copy);
        acl_user_release(user);
    }
}

/* ---- a server ---------------------------------------------------------------------------------------------------- */

static void test_passwords_over_the_wire(void **state)
{
    (void)state;
    struct test_server *s = support_server((const char *const[]){"dir", "", "requirepass", "secret", NULL});
    struct connection c, other;
    connect_to(&c, s->port);
    expect_error(&c, "PING", "NOAUTH Authentication required.");
    expect_error(&c, "ACL WHOAMI", "NOAUTH");
    expect_error(&c, "AUTH wrong", "WRONGPASS invalid username-password pair or user is disabled.");
    expect_error(&c, "AUTH nobody secret", "WRONGPASS");
    expect_text(&c, "AUTH secret", "OK");
    expect_text(&c, "ACL WHOAMI", "default");
    expect_text(&c, "ACL SETUSER alice on >pw +ping +acl|whoami", "OK");
    connect_to(&other, s->port);
    expect_error(&other, "AUTH alice secret", "WRONGPASS");
    expect_text(&other, "AUTH alice pw", "OK");
    expect_text(&other, "ACL WHOAMI", "alice");
    /* a failure changes nothing */
    expect_error(&other, "AUTH alice no", "WRONGPASS");
    expect_text(&other, "ACL WHOAMI", "alice");
    expect_error(&other, "DBSIZE", "NOPERM User alice has no permissions to run the 'dbsize' command");
    expect_error(&other, "ACL LIST", "NOPERM User alice has no permissions to run the 'acl|list' command");
    expect_text(&other, "RESET", "RESET");
    expect_error(&other, "PING", "NOAUTH");
    struct reply hello = ask(&other, "HELLO 3 AUTH alice pw");
    assert_int_equal(hello.type, '%');
    reply_free(&hello);
    expect_text(&other, "ACL WHOAMI", "alice");
    assert_int_equal(info_number(&c, "acl_access_denied_auth"), 4);
    assert_int_equal(info_number(&c, "acl_access_denied_cmd"), 2);
    disconnect(&other);
    disconnect(&c);
    support_server_end(s);
}

static void test_keys_over_the_wire(void **state)
{
    (void)state;
    struct test_server *s =
        support_server((const char *const[]){"dir", "", "user", "alice on >pw ~a* %R~r* +@read +@write", NULL});
    struct connection c, admin;
    connect_to(&admin, s->port);
    connect_to(&c, s->port);
    expect_text(&c, "AUTH alice pw", "OK");
    expect_integer(&c, "EXISTS a1 a2 r1", 0);
    expect_error(&c, "EXISTS a1 b r1", "NOPERM No permissions to access a key");
    expect_integer(&c, "DEL a1", 0);
    expect_error(&c, "DEL r1", "NOPERM No permissions to access a key");
    expect_integer(&c, "VCARD r1", 0);
    assert_int_equal(info_number(&admin, "acl_access_denied_key"), 2);
    expect_text(&admin, "ACL DRYRUN alice EXISTS a", "OK");
    expect_text(&admin, "ACL DRYRUN alice EXISTS b", "User alice has no permissions to access the 'b' key");
    expect_text(&admin, "ACL DRYRUN alice CONFIG GET x",
                "User alice has no permissions to run the 'config|get' command");
    expect_error(&admin, "ACL DRYRUN bob PING", "ERR User 'bob' not found");
    expect_error(&admin, "ACL DRYRUN alice NOPE", "ERR Command 'NOPE' not found");
    expect_error(&admin, "ACL DRYRUN alice CONFIG NOPE", "ERR Command 'CONFIG' not found");
    expect_error(&admin, "ACL DRYRUN alice EXISTS", "ERR wrong number of arguments for 'exists' command");
    /* what changes holds for the next request of those who are connected */
    expect_text(&admin, "ACL SETUSER alice resetkeys ~b -@write", "OK");
    expect_error(&c, "EXISTS a1", "NOPERM No permissions");
    expect_integer(&c, "EXISTS b", 0);
    expect_error(&c, "DEL b", "NOPERM User alice has no permissions to run the 'del' command");
    disconnect(&c);
    disconnect(&admin);
    support_server_end(s);
}

static void test_tenants_are_kept_and_refused(void **state)
{
    (void)state;
    struct test_server *s = support_server(
        (const char *const[]){"dir", "", "user", "acme on >pw ~* +@all tenant:acme tenant:shared", NULL});
    struct connection c, admin;
    connect_to(&admin, s->port);
    connect_to(&c, s->port);
    expect_text(&c, "AUTH acme pw", "OK");
    for (unsigned row = 0; row < n_commands; row++)
        if (strcmp(commands[row].group, "vector_set") == 0 && !(commands[row].flags & CMD_TENANT)) {
            char words[96];
            snprintf(words, sizeof words, "%s k a b c", commands[row].name);
            words[strlen(commands[row].name) + 2 * (size_t)abs(commands[row].arity) - 2] = 0;
            expect_error(&c, words, "NOPERM User acme is bound to tenants");
        }
    static const char *const removals[] = {"DEL k", "RENAME s k", "SET k v", "SETEX k 9 v", "PSETEX k 9 v", "MSET k v"};
    for (size_t i = 0; i < sizeof removals / sizeof *removals; i++)
        expect_error(&c, removals[i], "NOPERM User acme is bound to tenants");
    expect_integer(&c, "SETNX s v", 1); /* never takes the place of a set */
    expect_integer(&c, "EXISTS k", 0);
    expect_text(&c, "PING", "PONG");
    struct reply user = ask(&admin, "ACL GETUSER acme");
    const struct reply *tenants = reply_field(&user, "tenants");
    assert_true(tenants && tenants->n == 2);
    assert_true(reply_is(&tenants->items[0], "acme") && reply_is(&tenants->items[1], "shared"));
    reply_free(&user);
    struct reply list = ask(&admin, "ACL LIST");
    assert_int_equal(list.n, 2);
    assert_non_null(strstr(list.items[0].text, " tenant:acme tenant:shared +@all"));
    reply_free(&list);
    expect_text(&admin, "ACL SETUSER acme resettenants", "OK");
    expect_integer(&c, "VCARD k", 0);
    disconnect(&c);
    disconnect(&admin);
    support_server_end(s);
}

static void test_setuser_is_all_or_nothing(void **state)
{
    (void)state;
    struct test_server *s = support_server((const char *const[]){"dir", "", NULL});
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "ACL SETUSER bob on +ping +nope", "ERR Error in ACL SETUSER modifier '+nope': Unknown command");
    struct reply none = ask(&c, "ACL GETUSER bob");
    assert_true(none.null);
    reply_free(&none);
    expect_text(&c, "ACL SETUSER bob on +ping", "OK");
    expect_error(&c, "ACL SETUSER bob off -ping x", "ERR Error in ACL SETUSER modifier 'x': Syntax error");
    struct reply list = ask(&c, "ACL LIST");
    assert_int_equal(list.n, 2);
    assert_string_equal(list.items[0].text, "user bob on resetchannels -@all +ping");
    assert_string_equal(list.items[1].text, "user default on nopass ~* &* +@all");
    reply_free(&list);
    send_literal(&c, "*4\r\n$3\r\nACL\r\n$7\r\nSETUSER\r\n$3\r\na b\r\n$2\r\non\r\n");
    check_error(read_reply(&c), "ERR Usernames can't contain spaces or null characters");
    expect_error(&c, "ACL DELUSER bob default", "ERR The 'default' user cannot be removed");
    expect_integer(&c, "ACL DELUSER bob nobody", 1);
    struct reply users = ask(&c, "ACL USERS");
    assert_true(users.n == 1 && reply_is(&users.items[0], "default"));
    reply_free(&users);
    disconnect(&c);
    support_server_end(s);
}

static void test_small_commands(void **state)
{
    (void)state;
    struct test_server *s = support_server((const char *const[]){"dir", "", NULL});
    struct connection c;
    connect_to(&c, s->port);
    struct reply r = ask(&c, "ACL GENPASS");
    struct reply second = ask(&c, "ACL GENPASS");
    assert_int_equal(r.bytes, 64);
    assert_string_not_equal(r.text, second.text);
    reply_free(&r);
    reply_free(&second);
    r = ask(&c, "ACL GENPASS 5");
    assert_int_equal(r.bytes, 2);
    reply_free(&r);
    r = ask(&c, "ACL GENPASS 4096");
    assert_true(r.bytes == 1024 && strspn(r.text, "0123456789abcdef") == 1024);
    reply_free(&r);
    expect_error(&c, "ACL GENPASS 0", "ERR ACL GENPASS argument must be the number of bits");
    expect_error(&c, "ACL GENPASS 4097", "ERR ACL GENPASS argument must be the number of bits");
    expect_error(&c, "ACL GENPASS x", "ERR value is not an integer or out of range");
    expect_error(&c, "ACL CAT nope", "ERR Unknown category 'nope'");
    expect_error(&c, "ACL NOPE", "ERR unknown subcommand 'NOPE'. Try ACL HELP.");
    expect_error(&c, "ACL LOAD", "ERR This Redis instance is not configured to use an ACL file.");
    expect_error(&c, "ACL SAVE", "ERR This Redis instance is not configured to use an ACL file.");
    r = ask(&c, "ACL CAT");
    unsigned n = 0;
    for (; command_category_name(n); n++)
        assert_true(n < r.n && reply_is(&r.items[n], command_category_name(n)));
    assert_int_equal(r.n, n);
    reply_free(&r);
    r = ask(&c, "ACL CAT vectorset");
    bool vsim = false;
    for (size_t i = 0; i < r.n; i++)
        vsim |= reply_is(&r.items[i], "vsim");
    assert_true(vsim);
    reply_free(&r);
    r = ask(&c, "COMMAND GETKEYS EXISTS a b");
    assert_true(r.n == 2 && reply_is(&r.items[0], "a") && reply_is(&r.items[1], "b"));
    reply_free(&r);
    r = ask(&c, "COMMAND GETKEYSANDFLAGS DEL a");
    assert_true(r.n == 1 && r.items[0].n == 2 && reply_is(&r.items[0].items[0], "a"));
    assert_true(reply_is(&r.items[0].items[1].items[0], "RW"));
    reply_free(&r);
    expect_error(&c, "COMMAND GETKEYS PING", "ERR The command has no key arguments");
    expect_error(&c, "COMMAND GETKEYS NOPE", "ERR Invalid command specified");
    expect_error(&c, "COMMAND GETKEYS VSIM", "ERR Invalid number of arguments specified for command");
    r = ask(&c, "COMMAND GETKEYSANDFLAGS MSET a 1 b 2");
    assert_true(r.n == 2 && reply_is(&r.items[1].items[0], "b") && r.items[1].items[1].n == 2);
    reply_free(&r);
    r = ask(&c, "COMMAND GETKEYSANDFLAGS SET a 1 GET");
    assert_true(r.n == 1 && r.items[0].items[1].n == 3 && reply_is(&r.items[0].items[1].items[1], "access"));
    reply_free(&r);
    r = ask(&c, "COMMAND GETKEYS OBJECT ENCODING a");
    assert_true(r.n == 1 && reply_is(&r.items[0], "a"));
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

static void test_the_log(void **state)
{
    (void)state;
    struct test_server *s =
        support_server((const char *const[]){"dir", "", "user", "alice on >pw ~a +@read", "acllog-max-len", "3", NULL});
    struct connection c, admin;
    connect_to(&admin, s->port);
    connect_to(&c, s->port);
    expect_error(&c, "AUTH eve x", "WRONGPASS");
    expect_error(&c, "AUTH eve x", "WRONGPASS");
    expect_text(&c, "AUTH alice pw", "OK");
    expect_error(&c, "ECHO x", "NOPERM");
    expect_error(&c, "VCARD b", "NOPERM");
    struct reply log = ask(&admin, "ACL LOG");
    assert_int_equal(log.n, 3);
    static const char *const expected[3][3] = {
        {"key", "b", "alice"}, {"command", "echo", "alice"}, {"auth", "auth", "eve"}};
    for (size_t i = 0; i < 3; i++) {
        assert_true(reply_is(reply_field(&log.items[i], "reason"), expected[i][0]));
        assert_true(reply_is(reply_field(&log.items[i], "object"), expected[i][1]));
        assert_true(reply_is(reply_field(&log.items[i], "username"), expected[i][2]));
        assert_true(reply_is(reply_field(&log.items[i], "context"), "toplevel"));
        assert_non_null(strstr(reply_field(&log.items[i], "client-info")->text, " addr=127.0.0.1:"));
        assert_int_equal(reply_field(&log.items[i], "count")->integer, i == 2 ? 2 : 1);
        assert_int_equal(reply_field(&log.items[i], "entry-id")->integer, 2 - (long long)i);
    }
    reply_free(&log);
    /* the oldest goes; what repeats comes to the front */
    expect_error(&c, "VCARD d", "NOPERM");
    expect_error(&c, "ECHO x", "NOPERM");
    log = ask(&admin, "ACL LOG 1");
    assert_int_equal(log.n, 1);
    assert_true(reply_is(reply_field(&log.items[0], "object"), "echo"));
    assert_int_equal(reply_field(&log.items[0], "count")->integer, 2);
    reply_free(&log);
    log = ask(&admin, "ACL LOG 100");
    assert_int_equal(log.n, 3);
    reply_free(&log);
    expect_error(&admin, "ACL LOG x", "ERR value is not an integer or out of range");
    expect_text(&admin, "ACL LOG RESET", "OK");
    log = ask(&admin, "ACL LOG");
    assert_int_equal(log.n, 0);
    reply_free(&log);
    disconnect(&c);
    disconnect(&admin);
    support_server_end(s);
}

static void test_users_who_go_lose_their_connections(void **state)
{
    (void)state;
    struct test_server *s = support_server((const char *const[]){"dir", "", "user", "alice on >pw +@all ~*", "user",
                                                                 "bob on >pw +@all ~*", "lanes", "3", NULL});
    struct connection admin, alice[6], bob[6];
    connect_to(&admin, s->port);
    for (int i = 0; i < 6; i++) {
        connect_to(&alice[i], s->port);
        expect_text(&alice[i], "AUTH alice pw", "OK");
        connect_to(&bob[i], s->port);
        expect_text(&bob[i], "AUTH bob pw", "OK");
    }
    expect_integer(&admin, "ACL DELUSER alice", 1);
    for (int i = 0; i < 6; i++)
        expect_closed(&alice[i]);
    for (int i = 0; i < 6; i++)
        expect_text(&bob[i], "ACL WHOAMI", "bob");
    expect_text(&admin, "ACL SETUSER bob off", "OK");
    for (int i = 0; i < 6; i++) {
        expect_closed(&bob[i]);
        disconnect(&alice[i]);
        disconnect(&bob[i]);
    }
    /* of the same name, but not the same user; and one who deletes himself gets the reply */
    expect_text(&admin, "ACL SETUSER alice on >pw +acl", "OK");
    connect_to(&alice[0], s->port);
    expect_text(&alice[0], "AUTH alice pw", "OK");
    expect_integer(&alice[0], "ACL DELUSER alice", 1);
    expect_closed(&alice[0]);
    disconnect(&alice[0]);
    /* the default user off: who is new must say who he is */
    expect_text(&admin, "ACL SETUSER root on >root allkeys allcommands", "OK");
    expect_text(&admin, "ACL SETUSER default off", "OK");
    expect_closed(&admin);
    disconnect(&admin);
    connect_to(&admin, s->port);
    expect_error(&admin, "PING", "NOAUTH");
    expect_error(&admin, "AUTH default x", "WRONGPASS");
    expect_text(&admin, "AUTH root root", "OK");
    expect_text(&admin, "ACL SETUSER x", "OK");
    expect_text(&admin, "PING", "PONG");
    disconnect(&admin);
    support_server_end(s);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_users(struct connection *c, const char *names)
{
    char text[256] = "";
    struct reply users = ask(c, "ACL USERS");
    for (size_t i = 0; i < users.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", users.items[i].text);
    assert_string_equal(text, names);
    reply_free(&users);
}

static void test_load_is_all_or_nothing(void **state)
{
    (void)state;
    char *folder = support_folder_make(), path[300], line[400];
    snprintf(path, sizeof path, "%s/users.acl", folder);
    write_text(path, "# people\n\nuser alice on >pw ~* +@all\r\nuser zed off\n");
    struct test_server *s =
        support_server((const char *const[]){"dir", "", "aclfile", path, "requirepass", "secret", NULL});
    struct connection c, alice;
    connect_to(&c, s->port);
    /* the default user is not in the file: requirepass holds */
    expect_error(&c, "PING", "NOAUTH");
    expect_text(&c, "AUTH secret", "OK");
    expect_users(&c, "alice default zed");
    connect_to(&alice, s->port);
    expect_text(&alice, "AUTH alice pw", "OK");

    write_text(path, "user new on +ping\nuser alice on +nope\nperson x\nuser new off\nuser\n");
    struct reply wrong = ask(&c, "ACL LOAD");
    static const char *const parts[] = {":2: user alice: '+nope': Unknown command or category name in ACL.",
                                        ":3: line should start with user keyword followed by the username.",
                                        ":4: user new: Duplicate user found.", ":5: a user needs a name",
                                        " WARNING: ACL errors detected, no change to the previously active ACL rules"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (wrong.type != '-' || !strstr(wrong.text, parts[i]))
            fail_msg("'%s' does not hold '%s'", wrong.text, parts[i]);
    reply_free(&wrong);
    expect_users(&c, "alice default zed");
    expect_text(&alice, "ACL WHOAMI", "alice");

    write_text(path, "user alice on >other ~* +ping\nuser new on nopass +@all\n");
    expect_text(&c, "ACL LOAD", "OK");
    expect_users(&c, "alice default new");
    /* who stays, stays connected, and obeys the new rules */
    expect_text(&alice, "PING", "PONG");
    expect_error(&alice, "ACL WHOAMI", "NOPERM");
    write_text(path, "user new on nopass +@all\n");
    expect_text(&c, "ACL LOAD", "OK");
    expect_closed(&alice);

    expect_text(&c, "ACL SETUSER more on >word ~k* tenant:t +@read -vsim", "OK");
    expect_text(&c, "ACL SAVE", "OK");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    struct reply before = ask(&c, "ACL LIST");
    expect_integer(&c, "ACL DELUSER more new", 2);
    expect_text(&c, "ACL LOAD", "OK");
    struct reply after = ask(&c, "ACL LIST");
    assert_int_equal(before.n, after.n);
    for (size_t i = 0; i < before.n; i++)
        assert_string_equal(before.items[i].text, after.items[i].text);
    reply_free(&before);
    reply_free(&after);

    assert_int_equal(unlink(path), 0);
    snprintf(line, sizeof line, "ERR %s:0: No such file", path);
    expect_error(&c, "ACL LOAD", line);
    expect_users(&c, "default more new");
    disconnect(&alice);
    disconnect(&c);
    support_server_end(s);
    support_folder_remove(folder);
}

static void test_save_that_fails_leaves_the_file(void **state)
{
    (void)state;
    char *folder = support_folder_make(), sub[300], path[330];
    snprintf(sub, sizeof sub, "%s/sub", folder);
    snprintf(path, sizeof path, "%s/users.acl", sub);
    assert_int_equal(mkdir(sub, 0700), 0);
    write_text(path, "user kept on\n");
    struct test_server *s = support_server((const char *const[]){"dir", "", "aclfile", path, NULL});
    struct connection c;
    connect_to(&c, s->port);
    /* a folder in the file's place: the rename fails, whoever runs this */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_error(&c, "ACL SAVE", "ERR There was an error trying to save the ACLs. Please check the server logs");
    assert_int_equal(rmdir(path), 0);
    /* nothing else was left: the folder is empty */
    assert_int_equal(rmdir(sub), 0);
    expect_error(&c, "ACL SAVE", "ERR There was an error trying to save the ACLs.");
    disconnect(&c);
    support_server_end(s);
    support_folder_remove(folder);
}

static void expect_no_start(const char *const *settings, const char *part)
{
    struct test_server *s = NULL;
    struct quire_error err = {0};
    assert_true(support_try_server(&s, &err, settings) < 0);
    if (!strstr(err.message, part))
        fail_msg("'%s' does not hold '%s'", err.message, part);
    support_server_end(s);
}

static void test_wrong_users_end_the_start(void **state)
{
    (void)state;
    char *folder = support_folder_make(), path[300];
    snprintf(path, sizeof path, "%s/users.acl", folder);
    write_text(path, "user ok on\nuser bad +@nope\n");
    expect_no_start((const char *const[]){"dir", "", "aclfile", path, NULL},
                    "users.acl:2: user bad: '+@nope': Unknown command");
    expect_no_start((const char *const[]){"dir", "", "aclfile", "/nonexistent/x", NULL},
                    "/nonexistent/x:0: No such file");
    expect_no_start((const char *const[]){"dir", "", "user", "bad on ~a +nope", NULL},
                    "user bad: '+nope': Unknown command");
    expect_no_start((const char *const[]){"dir", "", "user", "bad on", "user", "bad off", NULL}, "Duplicate user");
    expect_no_start((const char *const[]){"dir", "", "user", "x on", "aclfile", path, NULL}, "keep users in one place");
    /* beyond loopback: the default user must need a password, wherever that was said */
    expect_no_start((const char *const[]){"dir", "", "bind", "0.0.0.0", NULL}, "default user has no password");
    struct test_server *s =
        support_server((const char *const[]){"dir", "", "bind", "0.0.0.0", "user", "default on >pw ~* +@all", NULL});
    support_server_end(s);
    support_folder_remove(folder);
}

/* ---- at the same time -------------------------------------------------------------------------------------------- */

enum { WORKERS = 4, WORK_ROUNDS = 400, CHANGES = 300 };

struct work {
    unsigned port;
    long allowed, denied;
};

/* Each answer is one of the two that some version of the user gives. Runs beside the main thread, so it only counts. */
static void *work(void *context)
{
    struct work *w = context;
    struct connection c;
    connect_to(&c, w->port);
    expect_text(&c, "AUTH worker pw", "OK");
    for (int i = 0; i < WORK_ROUNDS; i++) {
        struct reply r = ask(&c, "EXISTS key");
        w->allowed += r.type == ':';
        w->denied += r.type == '-' && strncmp(r.text, "NOPERM ", 7) == 0;
        reply_free(&r);
    }
    disconnect(&c);
    return NULL;
}

static void test_changes_while_others_work(void **state)
{
    (void)state;
    struct test_server *s =
        support_server((const char *const[]){"dir", "", "user", "worker on >pw ~key +@read", "lanes", "4", NULL});
    struct connection admin;
    struct work workers[WORKERS];
    pthread_t threads[WORKERS];
    connect_to(&admin, s->port);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct work){.port = s->port};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < CHANGES; i++) {
        expect_text(&admin, i & 1 ? "ACL SETUSER worker resetkeys ~key" : "ACL SETUSER worker resetkeys ~other", "OK");
        expect_text(&admin, i & 1 ? "ACL SETUSER other on" : "ACL SETUSER other reset", "OK");
        if (i % 10 == 0)
            expect_integer(&admin, "ACL DELUSER other", 1);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].allowed + workers[i].denied, WORK_ROUNDS);
    }
    disconnect(&admin);
    support_server_end(s);
}

int main(void)
{
    command_rows_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_user_may_nothing),
        cmocka_unit_test(test_each_command_alone),
        cmocka_unit_test(test_each_category),
        cmocka_unit_test(test_the_order_of_rules_holds),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_keys_of_all_rows),
        cmocka_unit_test(test_passwords),
        cmocka_unit_test(test_wrong_rules),
        cmocka_unit_test(test_descriptions_make_the_same_user),
        cmocka_unit_test(test_passwords_over_the_wire),
        cmocka_unit_test(test_keys_over_the_wire),
        cmocka_unit_test(test_tenants_are_kept_and_refused),
        cmocka_unit_test(test_setuser_is_all_or_nothing),
        cmocka_unit_test(test_small_commands),
        cmocka_unit_test(test_the_log),
        cmocka_unit_test(test_users_who_go_lose_their_connections),
        cmocka_unit_test(test_load_is_all_or_nothing),
        cmocka_unit_test(test_save_that_fails_leaves_the_file),
        cmocka_unit_test(test_wrong_users_end_the_start),
        cmocka_unit_test(test_changes_while_others_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
