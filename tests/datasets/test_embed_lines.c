/* test_embed_lines.c - reading texts from files, tables and pipes, and what is refused. */
#include "datasets/embed.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static char folder[256], path[300];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/quire-lines-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/text", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_text(const char *text, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    fclose(out);
}

static struct embed_lines *opened(unsigned text_column, unsigned key_column, bool again)
{
    struct embed_lines *lines = NULL;
    struct quire_error err;
    assert_int_equal(embed_lines_open(path, text_column, key_column, again, &lines, &err), 0);
    return lines;
}

static void expect_line(struct embed_lines *lines, const char *text, const char *key)
{
    struct embed_line line;
    struct quire_error err;
    assert_int_equal(embed_lines_next(lines, &line, &err), 1);
    assert_int_equal(line.text_bytes, strlen(text));
    assert_memory_equal(line.text, text, line.text_bytes);
    if (!key) {
        assert_null(line.key);
        return;
    }
    assert_int_equal(line.key_bytes, strlen(key));
    assert_memory_equal(line.key, key, line.key_bytes);
}

static void expect_end(struct embed_lines *lines)
{
    struct embed_line line;
    struct quire_error err;
    assert_int_equal(embed_lines_next(lines, &line, &err), 0);
}

static void test_plain_lines(void **state)
{
    (void)state;
    const char text[] = "one\n\ntwo\twords\r\nlast";
    write_text(text, sizeof text - 1);
    struct embed_lines *lines = opened(0, 0, true);
    struct quire_error err;
    uint64_t done, total;
    for (int round = 0; round < 2; round++) {
        expect_line(lines, "one", NULL);
        expect_line(lines, "", NULL);
        expect_line(lines, "two\twords", NULL);
        expect_line(lines, "last", NULL);
        expect_end(lines);
        embed_lines_place(lines, &done, &total);
        assert_int_equal(done, sizeof text - 1);
        assert_int_equal(total, sizeof text - 1);
        assert_int_equal(embed_lines_rewind(lines, &err), 0);
    }
    embed_lines_close(lines);
}

static void test_empty_file(void **state)
{
    (void)state;
    write_text("", 0);
    struct embed_lines *lines = opened(0, 0, false);
    expect_end(lines);
    expect_end(lines);
    embed_lines_close(lines);
}

static void test_columns(void **state)
{
    (void)state;
    const char text[] = "k1\tfirst text\tx\nk2\t\tx\nk3\tlast";
    struct embed_line line;
    struct quire_error err;
    write_text(text, sizeof text - 1);
    struct embed_lines *lines = opened(2, 1, false);
    expect_line(lines, "first text", "k1");
    expect_line(lines, "", "k2");
    expect_line(lines, "last", "k3");
    expect_end(lines);
    embed_lines_close(lines);
    lines = opened(3, 0, false);
    expect_line(lines, "x", NULL);
    expect_line(lines, "x", NULL);
    assert_int_equal(embed_lines_next(lines, &line, &err), QUIRE_EPARSE);
    assert_non_null(strstr(err.message, "line 3 has 2 columns and column 3"));
    embed_lines_close(lines);
}

static void test_any_bytes_pass(void **state)
{
    (void)state;
    write_text("a\0b\xff\n\0\n", 7);
    struct embed_lines *lines = opened(0, 0, false);
    struct embed_line line;
    struct quire_error err;
    assert_int_equal(embed_lines_next(lines, &line, &err), 1);
    assert_int_equal(line.text_bytes, 4);
    assert_memory_equal(line.text, "a\0b\xff", 4);
    assert_int_equal(embed_lines_next(lines, &line, &err), 1);
    assert_int_equal(line.text_bytes, 1);
    assert_int_equal(line.number, 2);
    expect_end(lines);
    embed_lines_close(lines);
}

static void test_long_lines(void **state)
{
    (void)state;
    size_t bytes = EMBED_LINE_BYTES_MAX;
    char *text = malloc(bytes + 2);
    struct embed_line line;
    struct quire_error err;
    memset(text, 'x', bytes + 1);
    text[bytes] = '\n';
    write_text(text, bytes + 1);
    struct embed_lines *lines = opened(0, 0, false);
    assert_int_equal(embed_lines_next(lines, &line, &err), 1);
    assert_int_equal(line.text_bytes, bytes);
    embed_lines_close(lines);
    text[bytes] = 'x';
    text[bytes + 1] = '\n';
    write_text(text, bytes + 2);
    lines = opened(0, 0, false);
    assert_int_equal(embed_lines_next(lines, &line, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "line 1 is longer than 2097152 bytes"));
    embed_lines_close(lines);
    free(text);
}

/* A pipe can be read twice because it is copied; once it is read as it comes. */
static void test_pipe(void **state)
{
    (void)state;
    unlink(path);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(mkfifo(path, 0600), 0);
        pid_t child = fork();
        if (child == 0) {
            FILE *out = fopen(path, "wb");
            fputs("key\tthe text\n", out);
            fclose(out);
            _exit(0);
        }
        struct embed_lines *lines = opened(2, 1, again);
        struct quire_error err;
        expect_line(lines, "the text", "key");
        expect_end(lines);
        if (again) {
            assert_int_equal(embed_lines_rewind(lines, &err), 0);
            expect_line(lines, "the text", "key");
        }
        embed_lines_close(lines);
        unlink(path);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
}

static void test_what_cannot_be_opened(void **state)
{
    (void)state;
    struct embed_lines *lines = NULL;
    struct quire_error err;
    unlink(path);
    assert_int_equal(embed_lines_open(path, 0, 0, false, &lines, &err), QUIRE_ENOFILE);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(embed_lines_open(folder, 0, 0, false, &lines, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "is a folder"));
    assert_null(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_lines),           cmocka_unit_test(test_empty_file), cmocka_unit_test(test_columns),
        cmocka_unit_test(test_any_bytes_pass),        cmocka_unit_test(test_long_lines), cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
