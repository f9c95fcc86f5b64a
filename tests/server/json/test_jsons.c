/*
 * test_jsons.c - JSON.* through a server: requests and the replies of RedisJSON, in RESP2 and RESP3; other commands on
 * documents; documents after a restart.
 */
#include "tests/server/support_one_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A reply as text: nil, 1, 1.5, text, -error, [item, item], {key: value}. */
static void show(const struct reply *r, char *out, size_t capacity)
{
    size_t at = strlen(out);
    if (r->null) {
        snprintf(out + at, capacity - at, "nil");
    } else if (r->type == ':') {
        snprintf(out + at, capacity - at, "%lld", r->integer);
    } else if (r->type == '#') {
        snprintf(out + at, capacity - at, r->integer ? "yes" : "no");
    } else if (r->type == ',') {
        snprintf(out + at, capacity - at, "%g", r->number);
    } else if (r->type == '*' || r->type == '%' || r->type == '~') {
        snprintf(out + at, capacity - at, r->type == '%' ? "{" : "[");
        for (size_t i = 0; i < r->n; i++) {
            at = strlen(out);
            snprintf(out + at, capacity - at, "%s", i == 0 ? "" : r->type == '%' && i % 2 == 1 ? ": " : ", ");
            show(&r->items[i], out, capacity);
        }
        at = strlen(out);
        snprintf(out + at, capacity - at, r->type == '%' ? "}" : "]");
    } else {
        snprintf(out + at, capacity - at, "%s%s", r->type == '-' ? "-" : "", r->text);
    }
}

static void expect(const char *request, const char *expected)
{
    char text[8192] = "";
    struct reply r = ask_line(&c, "%s", request);
    show(&r, text, sizeof text);
    reply_free(&r);
    if (strcmp(text, expected) != 0)
        fail_msg("%s replies %s, not %s", request, text, expected);
}

struct row {
    const char *request, *expected;
};

static void expect_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect(rows[i].request, rows[i].expected);
}

#define EXPECT_ROWS(rows) expect_rows((rows), sizeof(rows) / sizeof *(rows))

static void hello(unsigned protocol)
{
    struct reply r = ask_line(&c, "HELLO %u", protocol);
    reply_free(&r);
    expect("FLUSHALL", "OK");
}

/* ---- SET and GET ------------------------------------------------------------------------------------------------- */

static void test_set_and_get(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET doc $ '{\"a\":2}'", "OK"},
        {"JSON.SET doc $.a '3'", "OK"},
        {"JSON.GET doc $", "[{\"a\":3}]"},
        {"JSON.SET doc $.b '8'", "OK"},
        {"JSON.GET doc $", "[{\"a\":3,\"b\":8}]"},
        {"JSON.SET doc $ '{\"f1\":{\"a\":1},\"f2\":{\"a\":2}}'", "OK"},
        {"JSON.SET doc $..a 3", "OK"},
        {"JSON.GET doc", "{\"f1\":{\"a\":3},\"f2\":{\"a\":3}}"},
        {"JSON.GET doc .", "{\"f1\":{\"a\":3},\"f2\":{\"a\":3}}"},
        {"JSON.GET doc f1.a", "3"},
        {"JSON.GET doc .f1.a", "3"},
        {"JSON.GET doc $..a", "[3,3]"},
        {"JSON.GET doc ..a", "3"},
        {"JSON.GET doc $.f3", "[]"},
        {"JSON.GET doc .f3", "-ERR Path '$.f3' does not exist"},
        {"JSON.GET doc f3", "-ERR Path '$.f3' does not exist"},
        {"JSON.GET doc $.f1.a $.f2", "{\"$.f1.a\":[3],\"$.f2\":[{\"a\":3}]}"},
        {"JSON.GET doc .f1.a .f2", "{\".f1.a\":3,\".f2\":{\"a\":3}}"},
        {"JSON.GET doc .f1.a $.f2", "{\".f1.a\":[3],\"$.f2\":[{\"a\":3}]}"},
        {"JSON.GET doc .f1.a .f9", "-ERR Path '$.f9' does not exist"},
        {"JSON.GET doc NOESCAPE $.f1", "[{\"a\":3}]"},
        {"JSON.GET doc INDENT \"  \" NEWLINE \"\\n\" SPACE \" \" $.f1", "[\n  {\n    \"a\": 3\n  }\n]"},
        {"JSON.GET doc INDENT \"\\t\" NEWLINE \"\\n\"",
         "{\n\t\"f1\":{\n\t\t\"a\":3\n\t},\n\t\"f2\":{\n\t\t\"a\":3\n\t}\n}"},
        {"JSON.GET doc INDENT", "-ERR wrong number of arguments for 'json.get' command"},
        {"JSON.GET none", "nil"},
        {"JSON.GET none $.a $.b", "nil"},
        {"JSON.SET none $.a 1", "-ERR new objects must be created at the root (position 2)"},
        {"JSON.SET none $ 1 XX", "nil"},
        {"JSON.SET doc $ 1 NX", "nil"},
        {"JSON.SET doc $.f1.a 4 NX", "nil"},
        {"JSON.SET doc $.f1.b 4 XX", "nil"},
        {"JSON.SET doc $.f1.b 4 NX", "OK"},
        {"JSON.SET doc $.f1.b 5 XX", "OK"},
        {"JSON.GET doc $.f1", "[{\"a\":3,\"b\":5}]"},
        {"JSON.SET doc $.f1.b.c 1", "nil"},
        {"JSON.SET doc $.f9.b 1", "nil"},
        {"JSON.SET doc $..new 1", "-Err wrong static path (position 2)"},
        {"JSON.SET doc $.f1.list '[1,2]'", "OK"},
        {"JSON.SET doc $.f1.list[1] '9'", "OK"},
        {"JSON.SET doc $.f1.list[2] '9'", "-ERR array index out of range (position 2)"},
        {"JSON.SET doc $.f1.list[1] '7' NX", "nil"},
        {"JSON.GET doc .f1.list", "[1,9]"},
        {"JSON.SET doc $ 1 NX XX", "-ERR syntax error ('XX' at position 5)"},
        {"JSON.SET doc $ 1 WHAT", "-ERR syntax error ('WHAT' at position 4)"},
        {"JSON.SET doc $", "-ERR wrong number of arguments for 'json.set' command"},
        {"JSON.SET doc $[ 1",
         "-ERR path ends at byte 2 where a name in quotes, a number, *, : or ? is expected (position 2)"},
        {"JSON.SET doc $ \"{'a'}\"",
         "-ERR invalid JSON at byte 1 (line 1, column 2): a name in quotes is expected (position 3)"},
        {"JSON.GET doc .f1.list", "[1,9]"},
        {"JSON.SET n $ '[1,1.0,-0.5,1e300,0.1]'", "OK"},
        {"JSON.GET n $", "[[1,1.0,-0.5,1e300,0.1]]"},
    };
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        hello(protocol);
        EXPECT_ROWS(rows);
    }
    expect_error(&c, "JSON.SET doc $ 1 FORMAT JSON", "ERR FORMAT is not supported");
}

static void test_values_of_the_protocol(void **state)
{
    (void)state;
    static const struct row rows2[] = {
        {"JSON.SET d $ '{\"a\":[1,2.5,\"x\",true,null,{\"b\":[]}]}'", "OK"},
        {"JSON.GET d FORMAT EXPAND $.a", "-ERR FORMAT argument is not supported on RESP2 (position 2)"},
        {"JSON.GET d $.a[0] FORMAT EXPAND", "[1]"},
        {"JSON.GET d $.a[0] FORMAT WHAT", "-ERR wrong reply format ('WHAT' at position 4)"},
        {"JSON.TYPE d $.a[*]", "[integer, number, string, boolean, null, object]"},
        {"JSON.TYPE d .a", "array"},
        {"JSON.TYPE d .zz", "nil"},
        {"JSON.TYPE d $.zz", "[]"},
        {"JSON.TYPE none", "nil"},
        {"JSON.RESP d $.a", "[[[, 1, 2.5, x, true, nil, [{, b, [[]]]]"},
        {"JSON.RESP d .a[1]", "2.5"},
        {"JSON.RESP d", "[{, a, [[, 1, 2.5, x, true, nil, [{, b, [[]]]]"},
        {"JSON.RESP none", "nil"},
        {"JSON.RESP d .zz", "-ERR Path '$.zz' does not exist"},
    };
    static const struct row rows3[] = {
        {"JSON.SET d $ '{\"a\":[1,2.5,\"x\",true,null,{\"b\":[]}]}'", "OK"},
        {"JSON.GET d FORMAT EXPAND $.a", "[[[1, 2.5, x, yes, nil, {b: []}]]]"},
        {"JSON.GET d FORMAT EXPAND $.a[0] $.zz", "[[1], []]"},
        {"JSON.GET d FORMAT EXPAND1 $.a $.a[*]",
         "[[[1,2.5,\"x\",true,null,{\"b\":[]}]], [1, 2.5, \"x\", yes, nil, {\"b\":[]}]]"},
        {"JSON.GET d FORMAT STRING $.a[0]", "[1]"},
        {"JSON.GET d FORMAT STRINGS $.a[0]", "-ERR wrong reply format ('STRINGS' at position 3)"},
        {"JSON.TYPE d $.a[*]", "[[integer, number, string, boolean, null, object]]"},
        {"JSON.TYPE d .a", "[array]"},
        {"JSON.TYPE d $.zz", "[[]]"},
        {"JSON.TYPE none $.a", "[nil]"},
        {"JSON.RESP d .a[1]", "2.5"},
    };
    hello(2);
    EXPECT_ROWS(rows2);
    hello(3);
    EXPECT_ROWS(rows3);
}

static void test_several_keys(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.MSET a $ '{\"x\":1}' b $ '{\"x\":2,\"y\":[3]}' a $.x 5 a $.z '[]'", "OK"},
        {"JSON.MGET a b c $.x", "[[5], [2], nil]"},
        {"JSON.MGET a b c .x", "[5, 2, nil]"},
        {"JSON.MGET a b .y", "[nil, [3]]"},
        {"JSON.MGET a b $.y", "[[], [[3]]]"},
        {"JSON.MGET a b $", "[[{\"x\":5,\"z\":[]}], [{\"x\":2,\"y\":[3]}]]"},
        {"JSON.MGET a b $.[",
         "-ERR path ends at byte 3 where a name in quotes, a number, *, : or ? is expected (position 3)"},
        {"JSON.GET a $.x $.[",
         "-ERR path ends at byte 3 where a name in quotes, a number, *, : or ? is expected (position 3)"},
        {"JSON.MSET a $.x 6 c $.x 1", "-ERR new objects must be created at the root (position 5)"},
        {"JSON.MSET a $.x 6 b $.x {",
         "-ERR invalid JSON at byte 1 (line 1, column 2): a name in quotes is expected, and the text ends here "
         "(position 6)"},
        {"JSON.MSET a $.x 6 b $", "-ERR wrong number of arguments for 'json.mset' command"},
        {"JSON.GET a $.x", "[5]"},
        {"JSON.MSET a $.x 7 b $.q.r 1", "nil"},
        {"JSON.GET a $.x", "[5]"},
        {"SET s 1", "OK"},
        {"JSON.MSET a $.x 8 s $ 1", "-Existing key has wrong Redis type"},
        {"JSON.MGET s a $.x", "[nil, [5]]"},
        {"EXPIRE a 1000", "1"},
        {"JSON.MSET a $ '{\"x\":9}' n $ 1", "OK"},
        {"JSON.SET a $.y 1", "OK"},
        {"TTL a", "1000"},
        {"JSON.SET a $ '{\"x\":10}'", "OK"},
        {"TTL a", "1000"},
        {"TTL n", "-1"},
    };
    hello(2);
    EXPECT_ROWS(rows);
}

static void test_merge_delete_clear(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET d $ '{\"a\":2}'", "OK"},
        {"JSON.MERGE d $.b 8", "OK"},
        {"JSON.GET d $", "[{\"a\":2,\"b\":8}]"},
        {"JSON.MERGE d $ '{\"a\":null,\"c\":{\"d\":1}}'", "OK"},
        {"JSON.GET d $", "[{\"b\":8,\"c\":{\"d\":1}}]"},
        {"JSON.MERGE d $.c '{\"e\":[1]}'", "OK"},
        {"JSON.MERGE d $.x.y 1", "nil"},
        {"JSON.MERGE d $..zz 1", "-Err wrong static path (position 2)"},
        {"JSON.GET d $", "[{\"b\":8,\"c\":{\"d\":1,\"e\":[1]}}]"},
        {"JSON.MERGE new $ '{\"a\":null}'", "OK"},
        {"JSON.GET new", "{\"a\":null}"},
        {"JSON.MERGE new2 $.a 1", "-ERR new objects must be created at the root (position 2)"},
        {"JSON.DEL d $.nothing", "0"},
        {"JSON.DEL d $..e", "1"},
        {"JSON.FORGET d .c", "1"},
        {"JSON.GET d", "{\"b\":8}"},
        {"JSON.DEL d $.b", "1"}, /* nothing is left */
        {"EXISTS d", "0"},
        {"JSON.DEL d", "0"},
        {"JSON.DEL new", "1"},
        {"EXISTS new", "0"},
        {"JSON.SET d $ '{\"a\":1,\"nested\":{\"a\":2,\"b\":3}}'", "OK"},
        {"JSON.DEL d $..a", "2"},
        {"JSON.GET d $", "[{\"nested\":{\"b\":3}}]"},
        {"JSON.SET d $ "
         "'{\"obj\":{\"a\":1,\"b\":2},\"arr\":[1,2,3],\"str\":\"foo\",\"bool\":true,\"int\":42,\"float\":3.14}'",
         "OK"},
        {"JSON.CLEAR d $.*", "4"},
        {"JSON.GET d $", "[{\"obj\":{},\"arr\":[],\"str\":\"foo\",\"bool\":true,\"int\":0,\"float\":0}]"},
        {"JSON.CLEAR d $.*", "0"},
        {"JSON.CLEAR d", "1"},
        {"JSON.GET d", "{}"},
        {"JSON.CLEAR d $ $", "-ERR wrong number of arguments for 'json.clear' command"},
        {"JSON.FORGET d $.a $.b", "-ERR wrong number of arguments for 'json.forget' command"},
        {"JSON.TYPE d $ $", "-ERR wrong number of arguments for 'json.type' command"},
        {"JSON.CLEAR none", "-ERR could not perform this operation on a key that doesn't exist"},
    };
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        hello(protocol);
        EXPECT_ROWS(rows);
    }
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */

#define NO_KEY "-ERR could not perform this operation on a key that doesn't exist"

static void test_numbers(void **state)
{
    (void)state;
    static const struct row rows2[] = {
        {"JSON.SET doc . '{\"a\":\"b\",\"b\":[{\"a\":2},{\"a\":5},{\"a\":\"c\"}]}'", "OK"},
        {"JSON.NUMINCRBY doc $.a 2", "[null]"},
        {"JSON.NUMINCRBY doc $..a 2", "[null,4,7,null]"},
        {"JSON.NUMMULTBY doc $..a 2", "[null,8,14,null]"},
        {"JSON.NUMINCRBY doc .b[0].a 0.5", "8.5"},
        {"JSON.NUMINCRBY doc .b[0].a 0.5", "9.0"},
        {"JSON.NUMMULTBY doc .b[1].a -1", "-14"},
        {"JSON.NUMINCRBY doc $.zz 1", "[]"},
        {"JSON.NUMINCRBY doc .a 1", "-ERR Path '$.a' does not exist or does not contains a number"},
        {"JSON.NUMINCRBY doc .b[1].a x",
         "-ERR invalid JSON at byte 0 (line 1, column 1): a value is expected (position 3)"},
        {"JSON.NUMINCRBY doc .b[1].a '\"1\"'", "-ERR bad input number ('\"1\"' at position 3)"},
        {"JSON.NUMINCRBY none $.a 1", NO_KEY},
        {"JSON.SET big $ '[9223372036854775807,1e308]'", "OK"},
        {"JSON.NUMMULTBY big $[1] 100", "-ERR result is not a number"},
        {"JSON.NUMINCRBY big $[0] 1.0", "[9.223372036854776e18]"},
        {"JSON.GET big", "[9.223372036854776e18,1e308]"},
    };
    static const struct row rows3[] = {
        {"JSON.SET doc $ '{\"a\":1,\"b\":2.5,\"c\":\"x\"}'", "OK"},
        {"JSON.NUMINCRBY doc $.* 1", "[2, 3.5, nil]"},
        {"JSON.NUMINCRBY doc .a 1", "[3]"},
        {"JSON.NUMMULTBY doc .zz 1", "[]"},
    };
    hello(2);
    EXPECT_ROWS(rows2);
    expect("JSON.SET big $ 9223372036854775807", "OK");
    expect_error(&c, "JSON.NUMINCRBY big $ 1", "ERR numeric overflow");
    hello(3);
    EXPECT_ROWS(rows3);
}

static void test_strings_and_booleans(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET doc $ '{\"a\":\"foo\",\"nested1\":{\"a\":\"hello\"},\"nested2\":{\"a\":31}}'", "OK"},
        {"JSON.STRAPPEND doc $..a '\"baz\"'", "[6, 8, nil]"},
        {"JSON.STRLEN doc $..a", "[6, 8, nil]"},
        {"JSON.GET doc", "{\"a\":\"foobaz\",\"nested1\":{\"a\":\"hellobaz\"},\"nested2\":{\"a\":31}}"},
        {"JSON.STRAPPEND doc .a '\"!\"'", "7"},
        {"JSON.STRLEN doc .a", "7"},
        {"JSON.STRLEN doc .nested2.a", "-WRONGTYPE wrong type of path value - expected string but found integer"},
        {"JSON.STRLEN doc .zz", "-ERR Path '$.zz' does not exist"},
        {"JSON.STRLEN none", "nil"},
        {"JSON.STRLEN none $", NO_KEY},
        {"JSON.STRAPPEND doc .nested2.a '\"!\"'", "-ERR Path '$.nested2.a' does not exist or not a string"},
        {"JSON.STRAPPEND doc $.a 1", "-WRONGTYPE wrong type of path value - expected string but found integer"},
        {"JSON.STRAPPEND none $ '\"x\"'", NO_KEY},
        {"JSON.SET s $ '\"a\"'", "OK"},
        {"JSON.STRAPPEND s '\"b\"'", "2"},
        {"JSON.GET s", "\"ab\""},
        {"JSON.SET doc $ '{\"bool\":true,\"n\":[false,1]}'", "OK"},
        {"JSON.TOGGLE doc $.bool", "[0]"},
        {"JSON.TOGGLE doc $..*", "[1, nil, 1, nil]"},
        {"JSON.TOGGLE doc .bool", "false"},
        {"JSON.TOGGLE doc .n", "-ERR Path '$.n' does not exist or not a bool"},
        {"JSON.TOGGLE none $.a", NO_KEY},
        {"JSON.GET doc", "{\"bool\":false,\"n\":[true,1]}"},
    };
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        hello(protocol);
        EXPECT_ROWS(rows);
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET doc $ '{\"a\":[1],\"nested\":{\"a\":[1,2]},\"nested2\":{\"a\":42}}'", "OK"},
        {"JSON.ARRAPPEND doc $..a 3 4", "[3, 4, nil]"},
        {"JSON.GET doc $", "[{\"a\":[1,3,4],\"nested\":{\"a\":[1,2,3,4]},\"nested2\":{\"a\":42}}]"},
        {"JSON.ARRLEN doc $..a", "[3, 4, nil]"},
        {"JSON.ARRLEN doc .a", "3"},
        {"JSON.ARRLEN doc .nested2", "-ERR Path '$.nested2' does not exist or not an array"},
        {"JSON.ARRLEN doc .zz", "-ERR Path '$.zz' does not exist"},
        {"JSON.ARRLEN none", "nil"},
        {"JSON.ARRLEN none $", NO_KEY},
        {"JSON.ARRINDEX doc $..a 3", "[1, 2, nil]"},
        {"JSON.ARRINDEX doc $..a 3 2", "[-1, 2, nil]"},
        {"JSON.ARRINDEX doc $..a 4 0 -1", "[-1, -1, nil]"},
        {"JSON.ARRINDEX doc $.nested.a 3 -3 3", "[2]"},
        {"JSON.ARRINDEX doc .nested.a '\"x\"'", "-1"},
        {"JSON.ARRINDEX doc .nested2 1", "-WRONGTYPE wrong type of path value - expected array but found object"},
        {"JSON.ARRINDEX none $ 1", "-ERR Path '$' does not exist"},
        {"JSON.ARRINSERT doc $..a 0 '\"x\"' null", "[5, 6, nil]"},
        {"JSON.ARRINSERT doc $.a -1 true", "[6]"},
        {"JSON.GET doc .a", "[\"x\",null,1,3,true,4]"},
        {"JSON.ARRINSERT doc $.a 6 5", "[7]"},
        {"JSON.ARRINSERT doc $.a 8 5", "-ERR index out of bounds"},
        {"JSON.ARRINSERT doc .nested2 0 5", "-ERR Path '$.nested2' does not exist or not an array"},
        {"JSON.ARRPOP doc $.a", "[5]"},
        {"JSON.ARRPOP doc $..a 0", "[\"x\", \"x\", nil]"},
        {"JSON.ARRPOP doc .a -2", "true"},
        {"JSON.ARRPOP doc .nested.a 100", "4"},
        {"JSON.GET doc", "{\"a\":[null,1,3,4],\"nested\":{\"a\":[null,1,2,3]},\"nested2\":{\"a\":42}}"},
        {"JSON.ARRPOP doc .nested2", "-ERR Path '$.nested2' does not exist or not an array"},
        {"JSON.ARRPOP none $.a", NO_KEY},
        {"JSON.ARRTRIM doc $..a 1 -2", "[2, 2, nil]"},
        {"JSON.GET doc .a", "[1,3]"},
        {"JSON.ARRTRIM doc .a 5 9", "0"},
        {"JSON.GET doc .a", "[]"},
        {"JSON.ARRPOP doc .a", "nil"},
        {"JSON.ARRPOP doc $.a", "[nil]"},
        {"JSON.ARRTRIM doc .nested.a -9 0", "1"},
        {"JSON.GET doc", "{\"a\":[],\"nested\":{\"a\":[1]},\"nested2\":{\"a\":42}}"},
        {"JSON.SET l $ '[[1,2,3],[4,5,6]]'", "OK"},
        {"JSON.ARRPOP l", "[4,5,6]"},
        {"JSON.SET l $ '{\"a\":[[1,2,3],[4,5,6]]}'", "OK"},
        {"JSON.SET m $ '{\"a\":[1],\"b\":{\"a\":[2,3,4]},\"c\":{\"a\":5}}'", "OK"},
        {"JSON.ARRAPPEND m ..a 6", "4"}, /* the last array that was found */
        {"JSON.ARRINSERT m ..a 1 7", "5"},
        {"JSON.ARRTRIM m ..a 0 2", "3"},
        {"JSON.ARRPOP m ..a", "3"},
        {"JSON.GET m", "{\"a\":[1,7],\"b\":{\"a\":[2,7]},\"c\":{\"a\":5}}"},
        {"JSON.ARRPOP l $..*", "[[4,5], 3, 6, nil, nil, nil, nil, nil, nil]"},
        {"JSON.GET l", "{\"a\":[[1,2]]}"},
        {"JSON.ARRAPPEND l $.a", "-ERR wrong number of arguments for 'json.arrappend' command"},
        {"JSON.ARRAPPEND none $.a 1", NO_KEY},
        {"JSON.ARRTRIM l $.a x 1", "-ERR value is not an integer or out of range ('x' at position 3)"},
        {"JSON.ARRTRIM l $.a 1 x", "-ERR value is not an integer or out of range ('x' at position 4)"},
        {"JSON.ARRAPPEND l $.a 1 }",
         "-ERR invalid JSON at byte 0 (line 1, column 1): a value is expected (position 4)"},
    };
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        hello(protocol);
        EXPECT_ROWS(rows);
    }
    expect("JSON.SET l $ '[{\"b\":2},3]'", "OK");
    expect("JSON.ARRPOP l FORMAT EXPAND $ 0", "[{b: 2}]");
    expect("JSON.ARRPOP l FORMAT EXPAND . 0", "-ERR Legacy paths are supported only with FORMAT STRINGS (position 3)");
    expect("JSON.ARRPOP l FORMAT STRING $", "-ERR wrong reply format ('STRING' at position 3)");
    expect("JSON.ARRPOP l FORMAT EXPAND1 $", "[3]");
}

static void test_objects(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET doc $ '{\"a\":[3],\"nested\":{\"a\":{\"b\":2,\"c\":1}}}'", "OK"},
        {"JSON.OBJKEYS doc $..a", "[nil, [b, c]]"},
        {"JSON.OBJLEN doc $..a", "[nil, 2]"},
        {"JSON.OBJKEYS doc", "[a, nested]"},
        {"JSON.OBJLEN doc", "2"},
        {"JSON.OBJKEYS doc .a", "-ERR Path '$.a' does not exist or not an object"},
        {"JSON.OBJLEN doc .a", "-WRONGTYPE wrong type of path value - expected object but found array"},
        {"JSON.OBJKEYS doc .zz", "nil"},
        {"JSON.OBJLEN doc .zz", "nil"},
        {"JSON.OBJKEYS none", "nil"},
        {"JSON.OBJKEYS none $", NO_KEY},
        {"JSON.OBJLEN none", "nil"},
        {"JSON.OBJLEN none $.a", "-ERR Path '$.a' does not exist or not an object"},
        {"JSON.DEBUG MEMORY none", "0"},
        {"JSON.DEBUG MEMORY none $", "[]"},
        {"JSON.DEBUG MEMORY none $ $", "-ERR wrong number of arguments for 'json.debug|memory' command"},
        {"JSON.DEBUG MEMORY doc .a[0]", "24"},
        {"JSON.DEBUG MEMORY doc $.a[*]", "[24]"},
    };
    hello(2);
    expect("JSON.DEBUG MEMORY none $", "[]");
    EXPECT_ROWS(rows);
}

/* ---- documents as keys ------------------------------------------------------------------------------------------- */

#define WRONGTYPE "-WRONGTYPE Operation against a key holding the wrong kind of value"

static void test_other_commands(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET doc $ '{\"a\":1}'", "OK"},
        {"TYPE doc", "ReJSON-RL"},
        {"OBJECT ENCODING doc", "raw"},
        {"GET doc", WRONGTYPE},
        {"APPEND doc x", WRONGTYPE},
        {"INCR doc", WRONGTYPE},
        {"HSET doc a 1", WRONGTYPE},
        {"HGETALL doc", WRONGTYPE},
        {"GETRANGE doc 0 1", WRONGTYPE},
        {"SETRANGE doc 0 x", WRONGTYPE},
        {"VADD doc VALUES 2 1 2 x", WRONGTYPE},
        {"MGET doc", "[nil]"},
        {"SCAN 0 TYPE ReJSON-RL", "[0, [doc]]"},
        {"SCAN 0 TYPE string", "[0, []]"},
        {"COPY doc copy", "1"},
        {"RENAME copy moved", "OK"},
        {"JSON.GET moved", "{\"a\":1}"},
        {"EXPIRE moved 100", "1"},
        {"COPY moved again", "1"},
        {"TTL again", "100"},
        {"JSON.SET doc $.b 1", "OK"},
        {"JSON.GET moved", "{\"a\":1}"},
        {"SET moved v", "OK"},
        {"JSON.GET moved", "-Existing key has wrong Redis type"},
        {"JSON.SET moved $ 1", "-Existing key has wrong Redis type"},
        {"JSON.DEL moved", "-Existing key has wrong Redis type"},
        {"JSON.NUMINCRBY moved $ 1", "-Existing key has wrong Redis type"},
        {"DEL doc again", "2"},
        {"DBSIZE", "1"},
    };
    hello(2);
    EXPECT_ROWS(rows);
}

static void test_transactions(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"MULTI", "OK"},
        {"JSON.SET m $ '{\"a\":1}'", "QUEUED"},
        {"JSON.NUMINCRBY m $.a 1", "QUEUED"},
        {"JSON.GET m $.a", "QUEUED"},
        {"JSON.MSET m $.b 1 k $ 2", "QUEUED"},
        {"JSON.GET m .zz", "QUEUED"},
        {"EXPIRE m 50", "QUEUED"},
        {"EXEC", "[OK, [2], [2], OK, -ERR Path '$.zz' does not exist, 1]"},
        {"JSON.MGET m k $", "[[{\"a\":2,\"b\":1}], [2]]"},
        {"WATCH m", "OK"},
        {"JSON.SET m $.c 1", "OK"},
        {"MULTI", "OK"},
        {"JSON.SET m $.d 1", "QUEUED"},
        {"EXEC", "nil"},
        {"JSON.GET m $.d", "[]"},
    };
    hello(2);
    EXPECT_ROWS(rows);
}

static struct reply ask_args(const struct resp_arg *args, size_t n)
{
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, n);
    for (size_t i = 0; i < n; i++)
        resp_bulk(&out, args[i].data, args[i].bytes);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    return read_reply(&c);
}

#define ARG(text) ((struct resp_arg){(const uint8_t *)(text), (uint32_t)strlen(text)})

static void test_dump_and_restore(void **state)
{
    (void)state;
    hello(2);
    expect("JSON.SET doc $ '{\"a\":[1.0,2],\"b\":\"\xc3\xa9\"}'", "OK");
    struct reply dump = ask(&c, "DUMP doc");
    assert_int_equal(dump.type, '$');
    const struct resp_arg restore[] = {
        ARG("RESTORE"), ARG("other"), ARG("0"), {(const uint8_t *)dump.text, (uint32_t)dump.bytes}};
    check_text(ask_args(restore, 4), "OK");
    expect("TYPE other", "ReJSON-RL");
    expect("JSON.GET other", "{\"a\":[1.0,2],\"b\":\"\xc3\xa9\"}");
    struct reply a = ask(&c, "DEBUG DIGEST-VALUE doc"), b = ask(&c, "DEBUG DIGEST-VALUE other");
    assert_string_equal(a.items[0].text, b.items[0].text);
    reply_free(&a);
    reply_free(&b);
    /* a string of the same text is another value */
    const struct resp_arg set[] = {ARG("SET"), ARG("text"), ARG("{\"a\":[1.0,2],\"b\":\"\xc3\xa9\"}")};
    check_text(ask_args(set, 3), "OK");
    a = ask(&c, "DEBUG DIGEST-VALUE doc text");
    assert_string_not_equal(a.items[0].text, a.items[1].text);
    reply_free(&a);
    expect("DEL other", "1");
    dump.text[6] ^= 1;
    check_error(ask_args(restore, 4), "ERR DUMP payload version or checksum are wrong");
    reply_free(&dump);
}

/* A document whose changes are made beside its key. */
static void test_long_documents(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct resp_buffer text = {.protocol = 2};
    hello(2);
    resp_raw(&text, "{\"v\":[", 6);
    for (unsigned i = 0; i < N; i++) {
        char number[48];
        int bytes = snprintf(number, sizeof number, "%s%.17g", i > 0 ? "," : "", (double)((float)i / 3));
        resp_raw(&text, number, (size_t)bytes);
    }
    resp_raw(&text, "],\"n\":0}", 8);
    const struct resp_arg set[] = {ARG("JSON.SET"), ARG("long"), ARG("$"), {text.data, (uint32_t)text.bytes}};
    check_text(ask_args(set, 4), "OK");
    expect("JSON.ARRLEN long $.v", "[20000]");
    for (unsigned i = 1; i <= 5; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "[%u]", i);
        expect("JSON.NUMINCRBY long $.n 1", expected);
    }
    struct reply r = ask(&c, "JSON.GET long $.v[*]");
    const char *at = r.text + 1;
    for (unsigned i = 0; i < N; i++) {
        char *end;
        assert_true(strtod(at, &end) == (double)((float)i / 3)); /* bit for bit */
        at = end + 1;
    }
    reply_free(&r);
    expect("JSON.DEL long $.v[10:]", "19990");
    expect("JSON.ARRLEN long .v", "10");
    resp_buffer_fini(&text);
}

static void test_limits(void **state)
{
    (void)state;
    char text[512];
    hello(2);
    size_t n = 0;
    n += (size_t)snprintf(text, sizeof text, "%s", "JSON.SET deep $ ");
    memset(text + n, '[', 129);
    memset(text + n + 129, ']', 129);
    text[n + 258] = 0;
    expect_error(&c, text, "ERR recursion limit exceeded at byte 128");
    expect("JSON.SET d $ '[]'", "OK");
    for (unsigned i = 0; i < 127; i++) {
        struct reply r = ask(&c, "JSON.GET d");
        struct resp_arg append[] = {
            ARG("JSON.ARRAPPEND"), ARG("e"), ARG("$"), {(const uint8_t *)r.text, (uint32_t)r.bytes}};
        expect("JSON.SET e $ '[]'", "OK");
        struct reply added = ask_args(append, 4);
        reply_free(&added);
        expect("RENAME e d", "OK");
        reply_free(&r);
    }
    struct reply r = ask(&c, "JSON.GET d");
    struct resp_arg append[] = {
        ARG("JSON.ARRAPPEND"), ARG("e"), ARG("$"), {(const uint8_t *)r.text, (uint32_t)r.bytes}};
    expect("JSON.SET e $ '[]'", "OK");
    check_error(ask_args(append, 4), "ERR recursion limit exceeded");
    reply_free(&r);
    expect("JSON.GET e", "[]");
}

/* Lists that are kept packed answer as any others. */
static void test_vectors(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET v $ '{\"v\":[0.10000000149011612,-0.25,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5],\"t\":\"x\"}'", "OK"},
        {"JSON.GET v", "{\"v\":[0.10000000149011612,-0.25,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5],\"t\":\"x\"}"},
        {"JSON.GET v $.v[0]", "[0.10000000149011612]"},
        {"JSON.GET v $.v[-1:]", "[9.5]"},
        {"JSON.GET v $.v[?(@>3)]", "[3.5,8.5,9.5]"},
        {"JSON.TYPE v $.v[4]", "[number]"},
        {"JSON.ARRLEN v $.v", "[9]"},
        {"JSON.ARRINDEX v $.v 0.75", "[3]"},
        {"JSON.NUMINCRBY v $.v[1] 1", "[0.75]"},
        {"JSON.ARRAPPEND v $.v 0.1", "[10]"}, /* no float */
        {"JSON.GET v .v", "[0.10000000149011612,0.75,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5,0.1]"},
        {"JSON.ARRINSERT v $.v 0 '\"no number\"'", "[11]"},
        {"JSON.ARRPOP v $.v 0", "[\"no number\"]"},
        {"JSON.ARRTRIM v $.v 1 8", "[8]"},
        {"JSON.GET v .v", "[0.75,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5]"},
        {"COPY v w", "1"},
        {"JSON.MSET w $.t '\"y\"' w $.v[0] 7 u $ '[1,-20,300,4,5,6,7,8]'", "OK"}, /* 7 among reals */
        {"JSON.MGET v w u $", "[[{\"v\":[0.75,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5],\"t\":\"x\"}], "
                              "[{\"v\":[7,3.5,0.75,0.0,-0.0,1e-7,8.5,9.5],\"t\":\"y\"}], [[1,-20,300,4,5,6,7,8]]]"},
        {"JSON.TYPE u $[0]", "[integer]"},
        {"JSON.NUMMULTBY u $[1] 0.5", "[-10.0]"},
        {"JSON.GET u", "[1,-10.0,300,4,5,6,7,8]"},
        {"JSON.MERGE v $ '{\"v\":[1,2,3,4,5,6,7,123456.75],\"t\":null}'", "OK"},
        {"JSON.GET v", "{\"v\":[1,2,3,4,5,6,7,123456.75]}"},
        {"DEL v w u", "3"},
    };
    hello(2);
    EXPECT_ROWS(rows);
}

/* 256 floats take a quarter of what their text takes, and less still where they are bytes. */
static void test_memory_of_vectors(void **state)
{
    (void)state;
    char *text = malloc(16384);
    hello(2);
    assert_non_null(text);
    size_t n = (size_t)snprintf(text, 16384, "JSON.SET v $ [");
    for (unsigned i = 0; i < 256; i++)
        n += (size_t)snprintf(text + n, 16384 - n, "%s%.17g", i > 0 ? "," : "", (double)(float)(1.0 / (i + 3)));
    snprintf(text + n, 16384 - n, "]");
    expect(text, "OK");
    struct reply before = ask(&c, "JSON.GET v"), memory = ask(&c, "MEMORY USAGE v"), dump = ask(&c, "DUMP v");
    assert_in_range(memory.integer, 1024, 1400);
    assert_true(before.bytes > 4096 && dump.bytes > before.bytes); /* a DUMP has the text */
    struct resp_arg restore[] = {
        ARG("RESTORE"), ARG("w"), ARG("0"), {(const uint8_t *)dump.text, (uint32_t)dump.bytes}};
    struct reply restored = ask_args(restore, 4), after = ask(&c, "JSON.GET w"), same = ask(&c, "MEMORY USAGE w");
    assert_string_equal(restored.text, "OK");
    assert_string_equal(after.text, before.text);
    assert_int_equal(same.integer, memory.integer);
    struct reply sums = ask(&c, "DEBUG DIGEST-VALUE v w");
    assert_string_equal(sums.items[0].text, sums.items[1].text);
    struct reply *const all[] = {&before, &memory, &dump, &restored, &after, &same, &sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        reply_free(all[i]);
    expect("DEL v w", "2");
    free(text);
}

static void test_restart(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"JSON.SET a $ '{\"x\":[1.0,2,\"three\"],\"y\":null}'", "OK"},
        {"JSON.SET b $ '[1]'", "OK"},
        {"EXPIRE b 5000", "1"},
        {"JSON.ARRAPPEND b $ 2", "[2]"},
        {"JSON.SET c $ 1", "OK"},
        {"SET c text", "OK"},
        {"SET d text", "OK"},
        {"DEL d", "1"},
        {"JSON.SET d $ '\"doc\"'", "OK"},
        {"JSON.SET gone $ 1", "OK"},
        {"JSON.DEL gone", "1"},
        {"JSON.SET from $ '{\"r\":1}'", "OK"},
        {"RENAME from to", "OK"},
        {"JSON.SET v $ '{\"v\":[0.5,1.5,2.5,3.5,4.5,5.5,6.5,7.125,-0.10000000149011612]}'", "OK"},
    };
    hello(2);
    EXPECT_ROWS(rows);
    for (unsigned i = 0; i < 3; i++) {
        struct reply before = ask(&c, "DEBUG DIGEST");
        if (i == 1) /* from a checkpoint */
            expect("DEBUG RELOAD", "OK");
        restart();
        struct reply after = ask(&c, "DEBUG DIGEST");
        assert_string_equal(before.text, after.text);
        reply_free(&before);
        reply_free(&after);
        expect("JSON.GET a", "{\"x\":[1.0,2,\"three\"],\"y\":null}");
        expect("JSON.GET b", "[1,2]");
        expect("GET c", "text");
        expect("JSON.GET d", "\"doc\"");
        expect("JSON.GET to $.r", "[1]");
        expect("JSON.GET v", "{\"v\":[0.5,1.5,2.5,3.5,4.5,5.5,6.5,7.125,-0.10000000149011612]}");
        expect("EXISTS gone from", "0");
        struct reply ttl = ask(&c, "TTL b");
        assert_true(ttl.integer > 4000);
        reply_free(&ttl);
    }
}

static void test_access(void **state)
{
    (void)state;
    hello(2);
    expect("JSON.SET mine $ 1", "OK");
    expect("ACL SETUSER reader on >p ~mine +@json -json.set", "OK");
    struct reply r = ask(&c, "ACL CAT json");
    assert_true(r.n >= 25);
    reply_free(&r);
    expect("ACL DRYRUN reader JSON.GET mine", "OK");
    expect("ACL DRYRUN reader JSON.SET mine $ 1", "User reader has no permissions to run the 'json.set' command");
    expect("ACL DRYRUN reader JSON.MGET mine other $", "User reader has no permissions to access the 'other' key");
    expect("ACL DRYRUN reader JSON.MSET mine $ 1 other $ 1",
           "User reader has no permissions to access the 'other' key");
    expect("ACL DELUSER reader", "1");
    expect("COMMAND GETKEYS JSON.MSET a $ 1 b $ 2", "[a, b]");
    expect("COMMAND GETKEYS JSON.MGET a b $", "[a, b]");
    expect("COMMAND GETKEYS JSON.DEBUG MEMORY a", "[a]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_get),
        cmocka_unit_test(test_values_of_the_protocol),
        cmocka_unit_test(test_several_keys),
        cmocka_unit_test(test_merge_delete_clear),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings_and_booleans),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_other_commands),
        cmocka_unit_test(test_transactions),
        cmocka_unit_test(test_dump_and_restore),
        cmocka_unit_test(test_long_documents),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_access),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_memory_of_vectors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
