/* test_top_reply.c - replies whole, in pieces, too long, and of what is no server. */
#include "tools/top/top_reply.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *bytes, size_t n, enum top_reply_status status)
{
    struct top_reply reply;
    size_t consumed;
    assert_int_equal(top_reply_parse(bytes, n, &reply, &consumed), status);
}

static void test_whole(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
        size_t consumed;
        char type;
    } cases[] = {{"+OK\r\n", "OK", 5, '+'},
                 {"-ERR no\r\n+OK\r\n", "ERR no", 9, '-'},
                 {"$5\r\na\r\nbc\r\n+", "a\r\nbc", 11, '$'},
                 {"$0\r\n\r\n", "", 6, '$'},
                 {"$-1\r\n", NULL, 5, '$'},
                 {"+\r\n", "", 3, '+'}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct top_reply reply;
        size_t consumed = 0;
        assert_int_equal(top_reply_parse(cases[i].bytes, strlen(cases[i].bytes), &reply, &consumed), TOP_REPLY_DONE);
        assert_int_equal(reply.type, cases[i].type);
        assert_int_equal(consumed, cases[i].consumed);
        if (!cases[i].text) {
            assert_null(reply.text);
            continue;
        }
        assert_int_equal(reply.bytes, strlen(cases[i].text));
        assert_memory_equal(reply.text, cases[i].text, reply.bytes);
    }
}

/* Each beginning of a reply asks for more, and reads nothing behind it (a buffer of just so many bytes). */
static void test_pieces(void **state)
{
    (void)state;
    static const char whole[] = "$12\r\nhello\r\nworld\r\n";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char *piece = malloc(n ? n : 1);
        assert_non_null(piece);
        memcpy(piece, whole, n);
        expect(piece, n, TOP_REPLY_MORE);
        free(piece);
    }
    expect(whole, sizeof whole - 1, TOP_REPLY_DONE);
}

static void test_strangers(void **state)
{
    (void)state;
    static const char *const broken[] = {"HTTP/1.1 400 Bad Request\r\n",
                                         "SSH-2.0-OpenSSH\r\n",
                                         "*1\r\n+OK\r\n",
                                         ":1\r\n",
                                         "%1\r\n",
                                         "\r\n",
                                         "$x\r\n",
                                         "$\r\n",
                                         "$-2\r\n",
                                         "$1\r\nab\r\n",
                                         "$+1\r\n",
                                         "$ 1\r\n",
                                         "+OK\n",
                                         "$99999999999999999999\r\n"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        expect(broken[i], strlen(broken[i]), TOP_REPLY_BROKEN);
}

static void test_limits(void **state)
{
    (void)state;
    char *line = malloc(TOP_REPLY_LINE_MAX + 1), text[32];
    assert_non_null(line);
    memset(line, 'x', TOP_REPLY_LINE_MAX + 1);
    line[0] = '-';
    expect(line, TOP_REPLY_LINE_MAX - 1, TOP_REPLY_MORE);
    expect(line, TOP_REPLY_LINE_MAX, TOP_REPLY_BROKEN);
    free(line);
    int n = snprintf(text, sizeof text, "$%u\r\n", TOP_REPLY_BYTES_MAX);
    expect(text, (size_t)n, TOP_REPLY_MORE);
    n = snprintf(text, sizeof text, "$%u\r\n", TOP_REPLY_BYTES_MAX + 1);
    expect(text, (size_t)n, TOP_REPLY_BROKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_strangers), cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
