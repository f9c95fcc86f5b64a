/*
 * test_command.c - the command table is consistent with itself, and what COMMAND DOCS says of it is well formed.
 *
 * The table feeds dispatch, arity checks, COMMAND and the documentation: a wrong row is wrong everywhere. So every
 * row is checked, not samples: names, containers, arity against the syntax text, keys against flags, and the
 * structured arguments in both protocols with a reader of its own.
 */
#include "server/access/command_table.h"
#include "server/command_rows.h"
#include "server/protocol/glob.h"
#include "tests/server/support_reply.h"
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int fill(void **state)
{
    (void)state;
    command_rows_set();
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    (void)state;
    assert_true(n_commands > 30 && n_commands <= COMMANDS_MAX);
    for (unsigned i = 0; i < n_commands; i++) {
        const char *name = commands[i].name;
        assert_true(name[0] != 0 && strlen(name) < 32);
        for (const char *p = name; *p; p++)
            if (!islower((unsigned char)*p) && !strchr("|-._", *p))
                fail_msg("'%s' is not lower case", name);
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(name, commands[j].name);
    }
}

static void test_sub_commands_follow_their_container(void **state)
{
    (void)state;
    const struct command *container = NULL;
    for (unsigned i = 0; i < n_commands; i++) {
        bool sub = strchr(commands[i].name, '|');
        if (!sub) {
            container = &commands[i];
            bool has_subs = i + 1 < n_commands && command_is_sub(&commands[i + 1], container);
            if (!container->run)
                assert_true(has_subs);
            continue;
        }
        if (!container || !command_is_sub(&commands[i], container))
            fail_msg("%s does not stand behind its container", commands[i].name);
        assert_non_null(commands[i].run);
        assert_false(command_is_sub(container, &commands[i]));
    }
}

static void test_texts_flags_and_keys(void **state)
{
    (void)state;
    static const char *const groups[] = {"bitmap", "cache",        "cluster",   "connection", "generic",
                                         "hash",   "json",         "search",    "server",     "scripting",
                                         "string", "transactions", "vector_set"};
    for (unsigned i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        unsigned known = 0;
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            known += strcmp(groups[g], c->group) == 0;
        bool of_redis = strcmp(c->group, "vector_set") == 0 && c->since[0] == '8';
        if (known != 1 || (c->since[0] != '0' && !of_redis) || c->summary[0] == 0 ||
            c->summary[strlen(c->summary) - 1] != '.')
            fail_msg("%s: group, since or summary", c->name);
        assert_false((c->flags & CMD_READ) && (c->flags & CMD_WRITE));
        bool keyed = c->first_key > 0, sub = strchr(c->name, '|') != NULL;
        bool watches = strcmp(c->group, "transactions") == 0;
        /* MEMORY USAGE is of the server's group and reads a key */
        /* the key of EVAL stands behind the script and the number of keys */
        int first = strcmp(c->group, "scripting") == 0 ? 3 : sub ? 2 : 1;
        bool scripts = first == 3 && !keyed;
        /* indexes are no keys */
        bool of_keys = strcmp(c->group, "connection") != 0 && strcmp(c->group, "cluster") != 0 &&
                       strcmp(c->group, "search") != 0 && !watches && !scripts &&
                       (strcmp(c->group, "server") != 0 || (sub && (c->flags & CMD_READ)));
        /* SCAN and the like; SC.LIST, SC.AUDIT */
        bool of_all =
            !keyed && (c->flags & CMD_READ) && (strcmp(c->group, "generic") == 0 || strcmp(c->group, "cache") == 0);
        if (keyed && !watches && (!of_keys || !(c->flags & (CMD_READ | CMD_WRITE)) || c->first_key != first))
            fail_msg("%s: keys belong to commands that read or write them", c->name);
        if (of_keys && c->run && !keyed && !of_all && !sub)
            fail_msg("%s: a command of keys without one", c->name);
        if (keyed && first != 3 && strncmp(c->syntax, "key", 3) != 0 && strncmp(c->syntax, "source", 6) != 0 &&
            strncmp(c->syntax, "cache", 5) != 0)
            fail_msg("%s: the syntax begins with the key", c->name);
        assert_true(keyed ? c->key_step >= 1 && c->key_step <= 3 : c->key_step == 0);
        assert_true(keyed ? c->last_key >= c->first_key || c->last_key == -1 || c->last_key == -2 : c->last_key == 0);
    }
}

/* The least number of words of a syntax text, and whether there is no most. */
struct shape {
    unsigned least;
    bool open;
};

static struct shape shape_of(const char **at, char until);

/* A word, or a group in brackets, at *at. */
static struct shape item_shape(const char **at)
{
    struct shape s = {1, false};
    char open = **at;
    if (open == '[' || open == '(') {
        (*at)++;
        s = shape_of(at, open == '[' ? ']' : ')');
        if (open == '[')
            s = (struct shape){0, true};
    } else {
        *at += strcspn(*at, " |])");
    }
    return s;
}

static struct shape shape_of(const char **at, char until)
{
    struct shape s = {0, false}, best = {UINT32_MAX, false};
    while (**at && **at != until) {
        if (**at == ' ') {
            (*at)++;
        } else if (**at == '|') {
            best.open |= best.least != UINT32_MAX && best.least != s.least;
            best.least = s.least < best.least ? s.least : best.least;
            s.least = 0;
            (*at)++;
        } else if (strncmp(*at, "...", 3) == 0) {
            s.open = true;
            *at += 3;
        } else {
            struct shape item = item_shape(at);
            s.least += item.least;
            s.open |= item.open;
        }
    }
    *at += **at == until && until != 0;
    s.open |= best.least != UINT32_MAX && best.least != s.least;
    s.least = s.least < best.least ? s.least : best.least;
    s.open |= best.open;
    return s;
}

static void test_arity_fits_the_syntax(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        const char *at = c->syntax;
        struct shape s = shape_of(&at, 0);
        unsigned words = 1 + (strchr(c->name, '|') != NULL), least = (unsigned)abs(c->arity);
        if (!c->run)
            continue;
        if (least < words || least > words + s.least)
            fail_msg("%s: arity %d, but the syntax '%s' needs %u", c->name, c->arity, c->syntax, words + s.least);
        if (c->arity > 0 && s.open && c->flags != CMD_FAST)
            fail_msg("%s: a fixed arity, but the syntax '%s' is open", c->name, c->syntax);
        if (c->arity > 0 && least != words + s.least)
            fail_msg("%s: arity %d, but the syntax '%s' has %u", c->name, c->arity, c->syntax, words + s.least);
    }
}

static void test_every_row_is_found_in_any_case(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_commands; i++) {
        char name[64];
        size_t n = strlen(commands[i].name);
        for (unsigned way = 0; way < 3; way++) {
            for (size_t j = 0; j <= n; j++) {
                int c = (unsigned char)commands[i].name[j];
                name[j] = (char)(way == 0 || (way == 1 && j % 2) ? c : toupper(c));
            }
            assert_int_equal(command_find(name, n), i);
        }
        assert_true(command_find(name, n - 1) != (int)i);
        name[n] = 'x';
        assert_int_equal(command_find(name, n + 1), -1);
    }
}

static void test_what_is_no_command(void **state)
{
    (void)state;
    static const char *const names[] = {"",     "gett",        "pin",          "ping ",      "ping|x",   "config|",
                                        "|get", "config|nope", "config|get|x", "vsim|count", "\xff\xfe", "p\x49ng\x01"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (command_find(names[i], strlen(names[i])) != -1)
            fail_msg("'%s' is found", names[i]);
    assert_int_equal(command_find("ping\0", 5), -1);
    /* bytes that the hash does not tell from letters */
    assert_int_equal(command_find("\x10ing", 4), -1);
}

/* ---- documentation ----------------------------------------------------------------------------------------------- */

static const char *const types[] = {"string", "integer", "double", "key", "pure-token", "block", "oneof"};

static void check_text(const struct reply *map, const char *name, const char *syntax)
{
    const struct reply *r = reply_field(map, name);
    if (!r || r->type != '$' || r->bytes == 0)
        fail_msg("'%s': an argument without %s", syntax, name);
}

static void check_arguments(const struct reply *list, const char *syntax, unsigned *leaves);

static void check_argument(const struct reply *a, const char *syntax, unsigned *leaves)
{
    const struct reply *flags = reply_field(a, "flags"), *inside = reply_field(a, "arguments");
    const struct reply *type, *token = reply_field(a, "token");
    unsigned known = 0;
    check_text(a, "name", syntax);
    check_text(a, "type", syntax);
    type = reply_field(a, "type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        known += reply_is(type, types[i]);
    assert_int_equal(known, 1);
    bool parts = reply_is(type, "block") || reply_is(type, "oneof");
    assert_int_equal(parts, inside != NULL);
    assert_int_equal(reply_is(type, "key"), reply_field(a, "key_spec_index") != NULL);
    if (reply_is(type, "pure-token"))
        assert_non_null(token);
    if (token && !strstr(syntax, token->text))
        fail_msg("'%s' has no token %s", syntax, token->text);
    for (size_t i = 0; flags && i < flags->n; i++)
        assert_true(reply_is(&flags->items[i], "optional") || reply_is(&flags->items[i], "multiple"));
    if (flags)
        assert_true(flags->n > 0);
    *leaves += !parts ? 1u + (token && !reply_is(type, "pure-token")) : 0;
    if (parts) {
        assert_true(inside->n > 1);
        check_arguments(inside, syntax, leaves);
    }
}

static void check_arguments(const struct reply *list, const char *syntax, unsigned *leaves)
{
    assert_int_equal(list->type, '*');
    for (size_t i = 0; i < list->n; i++)
        check_argument(&list->items[i], syntax, leaves);
}

/* Words of a syntax text that are not dots. */
static unsigned count_words(const char *syntax)
{
    unsigned n = 0;
    for (const char *p = syntax; *p;) {
        size_t bytes = strcspn(p, " |[]()");
        n += bytes > 0 && strncmp(p, "...", 3) != 0;
        p += bytes + (p[bytes] != 0);
    }
    return n;
}

static void test_documentation_of_every_row(void **state)
{
    (void)state;
    for (unsigned i = 0; i < n_commands; i++) {
        const struct command *c = &commands[i];
        size_t counts[2];
        for (int protocol = 2; protocol <= 3; protocol++) {
            struct resp_buffer out = {.protocol = protocol};
            unsigned leaves = 0;
            command_docs_arguments(&out, c);
            struct reply reply = reply_of_buffer(&out);
            check_arguments(&reply, c->syntax, &leaves);
            if (leaves != count_words(c->syntax))
                fail_msg("%s: '%s' has %u words, its arguments %u", c->name, c->syntax, count_words(c->syntax), leaves);
            counts[protocol - 2] = reply.n;
            reply_free(&reply);
            resp_buffer_fini(&out);
        }
        assert_int_equal(counts[0], counts[1]);
    }
}

static struct reply docs_of(const char *syntax)
{
    struct command command = {.name = "x", .syntax = syntax};
    struct resp_buffer out = {.protocol = 3};
    command_docs_arguments(&out, &command);
    struct reply reply = reply_of_buffer(&out);
    resp_buffer_fini(&out);
    return reply;
}

static bool has_flag(const struct reply *a, const char *flag)
{
    const struct reply *flags = reply_field(a, "flags");
    for (size_t i = 0; flags && i < flags->n; i++)
        if (reply_is(&flags->items[i], flag))
            return true;
    return false;
}

static void check_field(const struct reply *a, const char *name, const char *text)
{
    const struct reply *r = reply_field(a, name);
    if (!r || !reply_is(r, text))
        fail_msg("%s is '%s', not '%s'", name, r ? r->text : "missing", text);
}

static void test_documentation_in_detail(void **state)
{
    (void)state;
    struct reply r = docs_of("key (ELE element|VALUES num value ...) [COUNT num] [TRUTH] other ...");
    assert_int_equal(r.n, 5);
    check_field(&r.items[0], "type", "key");
    check_field(&r.items[1], "type", "oneof");
    const struct reply *inside = reply_field(&r.items[1], "arguments");
    assert_int_equal(inside->n, 2);
    check_field(&inside->items[0], "name", "element");
    check_field(&inside->items[0], "token", "ELE");
    check_field(&inside->items[1], "type", "block");
    assert_int_equal(reply_field(&inside->items[1], "arguments")->n, 3);
    assert_true(has_flag(&reply_field(&inside->items[1], "arguments")->items[2], "multiple"));
    check_field(&r.items[2], "token", "COUNT");
    check_field(&r.items[2], "type", "integer");
    assert_true(has_flag(&r.items[2], "optional"));
    check_field(&r.items[3], "type", "pure-token");
    assert_true(has_flag(&r.items[3], "optional") && !has_flag(&r.items[3], "multiple"));
    assert_true(has_flag(&r.items[4], "multiple") && !has_flag(&r.items[4], "optional"));
    reply_free(&r);
}

/* ---- helpers of handlers ----------------------------------------------------------------------------------------- */

static void test_glob(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "abc", true},
        {"**", "abc", true},
        {"a*", "abc", true},
        {"*c", "abc", true},
        {"a*c", "abbbc", true},
        {"a*c", "abbb", false},
        {"a*b*c", "aXbXbc", true},
        {"?", "", false},
        {"?", "a", true},
        {"??", "a", false},
        {"a?c", "abc", true},
        {"ABC", "abc", true},
        {"abc", "ABC", true},
        {"abc", "abcd", false},
        {"abcd", "abc", false},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]x", "Bx", true},
        {"[c-a]", "b", true},
        {"[^a-c]", "b", false},
        {"[^a-c]", "d", true},
        {"[]", "a", false},
        {"[^]", "a", true},
        {"[a", "a", true},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[", "[", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\?", "?", true},
        {"\\[", "[", true},
        {"a\\", "a\\", true},
        {"\\\\", "\\", true},
        {"*[b]*", "abc", true},
        {"*?", "", false},
        {"*-buffer-*", "client-output-buffer-limit", true},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* in a block of just its size, so that the sanitizer sees one byte read too many */
        size_t n = strlen(cases[i].pattern);
        char *pattern = malloc(n ? n : 1);
        assert_non_null(pattern);
        memcpy(pattern, cases[i].pattern, n);
        if (glob_matches(pattern, n, cases[i].text) != cases[i].matches)
            fail_msg("'%s' against '%s' should be %d", cases[i].pattern, cases[i].text, cases[i].matches);
        free(pattern);
    }
}

/* Many stars against a text that nearly matches: must stay far below exponential. */
static void test_glob_is_not_exponential(void **state)
{
    (void)state;
    char pattern[400], *text = malloc(20001);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof pattern; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[sizeof pattern - 1] = 'b';
    memset(text, 'a', 20000);
    text[20000] = 0;
    assert_false(glob_matches(pattern, sizeof pattern, text));
    free(text);
}

static struct resp_arg arg_of(const char *text, size_t bytes)
{
    return (struct resp_arg){(const uint8_t *)text, (uint32_t)bytes};
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long long value;
    } good[] = {
        {"0", 0}, {"-1", -1}, {"42", 42}, {"9223372036854775807", INT64_MAX}, {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",    " 1", "1 ",  "1.0", "1e3", "0x1", "9223372036854775808",
                                      "abc", "-",  "--1", "\t1", "\n1", "1,"};
    long long value = 7;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(arg_integer(arg_of(good[i].text, strlen(good[i].text)), &value));
        assert_true(value == good[i].value);
    }
    value = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (arg_integer(arg_of(bad[i], strlen(bad[i])), &value) || value != 7)
            fail_msg("'%s' is taken as %lld", bad[i], value);
    assert_false(arg_integer(arg_of("1\0", 2), &value));
    assert_false(arg_integer(arg_of("00000000000000000000000000000000000000001", 41), &value));
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0}, {"-1.5", -1.5}, {"1e3", 1000}, {".5", 0.5}, {"1e-400", 0}, {"3.4028235e38", 3.4028235e38}};
    static const char *const bad[] = {"", " 1", "1 ", "1,5", "abc", "1e", "--1", "1.0.0", "-"};
    double value = 7;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(arg_number(arg_of(good[i].text, strlen(good[i].text)), &value));
        assert_true(value == good[i].value);
    }
    assert_true(arg_number(arg_of("nan", 3), &value) && isnan(value));
    assert_true(arg_number(arg_of("inf", 3), &value) && isinf(value));
    assert_true(arg_number(arg_of("1e999", 5), &value) && isinf(value));
    value = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (arg_number(arg_of(bad[i], strlen(bad[i])), &value) || value < 7)
            fail_msg("'%s' is taken as %g", bad[i], value);
    assert_false(arg_number(arg_of("1\0", 2), &value));
}

static void test_words_and_texts(void **state)
{
    (void)state;
    assert_true(arg_is(arg_of("CoUnT", 5), "COUNT"));
    assert_false(arg_is(arg_of("COUN", 4), "COUNT"));
    assert_false(arg_is(arg_of("COUNTS", 6), "COUNT"));
    assert_false(arg_is(arg_of("COUN\0", 5), "COUNT"));
    char *text = arg_text(arg_of("abc", 2));
    assert_string_equal(text, "ab");
    free(text);
    text = arg_text(arg_of("", 0));
    assert_string_equal(text, "");
    free(text);
    assert_null(arg_text(arg_of("a\0b", 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sub_commands_follow_their_container),
        cmocka_unit_test(test_texts_flags_and_keys),
        cmocka_unit_test(test_arity_fits_the_syntax),
        cmocka_unit_test(test_every_row_is_found_in_any_case),
        cmocka_unit_test(test_what_is_no_command),
        cmocka_unit_test(test_documentation_of_every_row),
        cmocka_unit_test(test_documentation_in_detail),
        cmocka_unit_test(test_glob),
        cmocka_unit_test(test_glob_is_not_exponential),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_words_and_texts),
    };
    return cmocka_run_group_tests_name("command", tests, fill, NULL);
}
