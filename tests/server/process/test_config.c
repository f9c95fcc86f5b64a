/*
 * test_config.c - settings are taken as written or refused with a sentence; nothing is guessed or skipped.
 *
 * Every refusal is looked at: the sentence must name the file and line or the option, the setting, the value, and
 * what would be right, because whoever reads it has nothing else.
 */
#include "server/process/config_priv.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[256], file_path[300];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.200s/quire-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file_path, sizeof file_path, "%s/quire.conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove(file_path);
    return remove(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* Arguments end in NULL. */
static int parse(struct config *config, struct quire_error *err, const char *const *arguments)
{
    char *copy[32];
    int n = 0;
    memset(err, 0, sizeof *err);
    assert_int_equal(config_init(config, err), 0);
    for (; arguments[n]; n++)
        copy[n] = (char *)(uintptr_t)arguments[n];
    return config_parse(config, n, copy, err);
}

static void parse_well(struct config *config, const char *const *arguments)
{
    struct quire_error err;
    if (parse(config, &err, arguments) != 0)
        fail_msg("refused: %s", err.message);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Refused with this code, and with a sentence that holds all of the words (up to a NULL). */
static void expect_refusal(const char *const *arguments, int code, const char *const *words)
{
    struct config config;
    struct quire_error err;
    int rc = parse(&config, &err, arguments);
    if (rc != code || err.code != code)
        fail_msg("code %d (%d in the error), expected %d: %s", rc, err.code, code, err.message);
    for (; *words; words++)
        if (!strstr(err.message, *words))
            fail_msg("'%s' is not in \"%s\"", *words, err.message);
    config_fini(&config);
}

static void expect_file_refusal(const char *text, int code, const char *const *words)
{
    write_file(text);
    expect_refusal(WORDS(file_path), code, words);
    expect_refusal(WORDS(file_path), code, WORDS(file_path));
}

static void test_defaults(void **state)
{
    (void)state;
    struct config config;
    struct quire_error err;
    assert_int_equal(config_init(&config, &err), 0);
    assert_string_equal(config.bind, "127.0.0.1");
    assert_int_equal(config.port, 6379);
    assert_true(config.protected_mode);
    assert_string_equal(config.requirepass, "");
    assert_string_equal(config.import_dir, "");
    assert_int_equal(config.engine, 0);
    assert_int_equal(config.bulk_max, 512u << 20);
    assert_int_equal(config.loglevel, 2);
    assert_int_equal(config_parse(&config, 0, NULL, &err), 0);
    assert_int_equal(config.port, 6379);
    config_fini(&config);
    assert_null(config.bind);
}

static void test_file(void **state)
{
    (void)state;
    struct config config;
    write_file("# a comment\n"
               "\n"
               "   \t\n"
               "port 7001\n"
               "  BIND\t127.0.0.1 ::1  \r\n"
               "requirepass \"a b \"\n"
               "protected-mode NO\n"
               "engine Threads\n"
               "import-dir \"\"\n"
               "client-query-buffer-limit 2mb\n"
               "   # an indented comment\n"
               "port 7002\n"
               "load a /x/a\n"
               "load \"b /x/b c\"\n"
               "timeout 5"); /* no line end */
    parse_well(&config, WORDS(file_path));
    assert_int_equal(config.port, 7002);
    assert_string_equal(config.bind, "127.0.0.1 ::1");
    assert_string_equal(config.requirepass, "a b ");
    assert_false(config.protected_mode);
    assert_int_equal(config.engine, 2);
    assert_string_equal(config.import_dir, "");
    assert_int_equal(config.query_buffer_max, 2u << 20);
    assert_string_equal(config.load, "a /x/a\nb /x/b c");
    assert_int_equal(config.timeout, 5);
    config_fini(&config);
}

static void test_command_line(void **state)
{
    (void)state;
    struct config config;
    write_file("port 7001\nload a /x/a\nlanes 3\n");
    parse_well(&config, WORDS(file_path, "--port", "7003", "--bind", "127.0.0.1", "::1", "--load", "b", "/x/b",
                              "--requirepass", "--dashes", "--logfile", ""));
    assert_int_equal(config.port, 7003);
    assert_int_equal(config.lanes, 3);
    assert_string_equal(config.bind, "127.0.0.1 ::1");
    assert_string_equal(config.load, "a /x/a\nb /x/b");
    assert_string_equal(config.requirepass, "--dashes");
    assert_string_equal(config.logfile, "");
    config_fini(&config);
    parse_well(&config, WORDS("--PORT", "0"));
    assert_int_equal(config.port, 0);
    config_fini(&config);
}

static void test_wrong_command_lines(void **state)
{
    (void)state;
    char *huge = calloc(1, 5001);
    assert_non_null(huge);
    memset(huge, 'x', 5000);
    expect_refusal(WORDS("--nosuch", "1"), QUIRE_ENOTFOUND, WORDS("nosuch", "--help"));
    expect_refusal(WORDS("--port"), QUIRE_EINVALID, WORDS("--port", "value"));
    expect_refusal(WORDS("--lanes", "1", "--port"), QUIRE_EINVALID, WORDS("--port", "value"));
    expect_refusal(WORDS("--", "1"), QUIRE_EINVALID, WORDS("--"));
    expect_refusal(WORDS("--port", "70000"), QUIRE_ERANGE, WORDS("port", "70000", "0 to 65535"));
    expect_refusal(WORDS("--port", "1", "2"), QUIRE_EINVALID, WORDS("port", "'1 2'", "whole number"));
    expect_refusal(WORDS("--logfile", huge), QUIRE_ELIMIT, WORDS("--logfile", "4095"));
    expect_refusal(WORDS("/nowhere/at/all.conf"), QUIRE_ENOFILE, WORDS("/nowhere/at/all.conf"));
    write_file("port 1\n");
    expect_refusal(WORDS(file_path, "port", "2"), QUIRE_EINVALID, WORDS("'port'", "--"));
    expect_refusal(WORDS(folder), QUIRE_EINVALID, WORDS(folder, "directory"));
    free(huge);
}

static void test_refusals_name_the_line(void **state)
{
    (void)state;
    expect_file_refusal("port 1\n\n# x\nnosuch 1\n", QUIRE_ENOTFOUND, WORDS("line 4", "nosuch"));
    expect_file_refusal("port many\n", QUIRE_EINVALID, WORDS("line 1", "port", "'many'", "whole number"));
    expect_file_refusal("\nport 65536", QUIRE_ERANGE, WORDS("line 2", "port", "65536", "0 to 65535"));
    expect_file_refusal("timeout -1\n", QUIRE_EINVALID, WORDS("timeout", "'-1'"));
    expect_file_refusal("timeout +1\n", QUIRE_EINVALID, WORDS("timeout", "'+1'"));
    expect_file_refusal("timeout 1s\n", QUIRE_EINVALID, WORDS("timeout", "'1s'"));
    expect_file_refusal("timeout\n", QUIRE_EINVALID, WORDS("timeout", "''"));
    expect_file_refusal("maxclients 99999999999999999999\n", QUIRE_ERANGE, WORDS("maxclients", "1 to 1000000"));
    expect_file_refusal("maxclients 0\n", QUIRE_ERANGE, WORDS("maxclients", "1 to 1000000"));
    expect_file_refusal("protected-mode maybe\n", QUIRE_EINVALID, WORDS("protected-mode", "'maybe'", "yes", "no"));
    expect_file_refusal("engine epoll\n", QUIRE_EINVALID, WORDS("engine", "'epoll'", "auto|uring|threads"));
    expect_file_refusal("engine uri\n", QUIRE_EINVALID, WORDS("engine", "'uri'"));
    expect_file_refusal("engine uring|threads\n", QUIRE_EINVALID, WORDS("engine"));
    expect_file_refusal("replicaof 10.0.0.1 6379\n", QUIRE_ENOTFOUND, WORDS("line 1", "replicaof"));
    expect_file_refusal("rename-command FLUSHALL x\n", QUIRE_ENOTFOUND, WORDS("line 1", "rename-command"));
    expect_file_refusal("load docs\n", QUIRE_EINVALID, WORDS("line 1", "load", "'docs'", "a key and a path"));
}

/* A redis.conf may say what means nothing here; all of it is named, the value where it is one that is not kept to. */
static void test_settings_of_redis_are_named(void **state)
{
    (void)state;
    struct config config;
    write_file("daemonize yes\nsave 900 1\nport 7001\nHZ 10\nappendonly no\ndatabases 16\nsave \"\"\n"
               "repl-diskless-sync-delay 5\n");
    parse_well(&config, (const char *const[]){file_path, NULL});
    assert_string_equal(config.ignored,
                        "daemonize, save 900 1, HZ, appendonly no, databases 16, repl-diskless-sync-delay");
    assert_int_equal(config.port, 7001);
    config_fini(&config);
    parse_well(&config, (const char *const[]){"--port", "1", NULL});
    assert_string_equal(config.ignored, "");
    config_fini(&config);
}

static void test_what_is_fixed_may_be_said(void **state)
{
    (void)state;
    struct config config;
    write_file("save \"\"\nappendonly yes\ndatabases 1\n");
    parse_well(&config, WORDS(file_path));
    config_fini(&config);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1048576", 1048576}, {"1048576b", 1048576}, {"2000k", 2000000},  {"2048kb", 2097152}, {"3M", 3000000},
                {"3mb", 3145728},     {"1g", 1000000000},    {"1GB", 1073741824}, {"1Kb", 1024}};
    static const char *const bad[] = {"", "mb", "1.5gb", "1 mb", "1tb", "0x10", "-1mb", "1mb x"};
    struct config config;
    struct quire_error err;
    assert_int_equal(config_init(&config, &err), 0);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(config_set(&config, "index-memory", good[i].text, &err), 0);
        assert_int_equal(config.memory, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(config_set(&config, "index-memory", bad[i], &err), QUIRE_EINVALID);
        assert_non_null(strstr(err.message, "512kb"));
        assert_int_equal(config.memory, 1024);
    }
    assert_int_equal(config_set(&config, "index-memory", "70368744177665", &err), QUIRE_ERANGE);
    assert_int_equal(config_set(&config, "index-memory", "18446744073709551615gb", &err), QUIRE_ERANGE);
    assert_int_equal(config_set(&config, "index-memory", "99999999999999999999", &err), QUIRE_ERANGE);
    assert_int_equal(config_set(&config, "client-output-buffer-limit", "65535", &err), QUIRE_ERANGE);
    assert_int_equal(config_set(&config, "client-output-buffer-limit", "64kb", &err), 0);
    config_fini(&config);
}

static void test_values_hold_one_line(void **state)
{
    (void)state;
    struct config config;
    struct quire_error err;
    assert_int_equal(config_init(&config, &err), 0);
    assert_int_equal(config_set(&config, "bind", "a\nb", &err), QUIRE_EINVALID);
    assert_int_equal(config_set(&config, "load", "a\rb", &err), QUIRE_EINVALID);
    assert_string_equal(config.bind, "127.0.0.1");
    assert_int_equal(config_set(&config, "bind", "", &err), 0);
    assert_int_equal(config_set(&config, "nosuch", "", NULL), QUIRE_ENOTFOUND);
    config_fini(&config);
}

/* ---- config_each ------------------------------------------------------------------------------------------------- */

struct listing {
    struct config *into; /* NULL: none */
    char text[8192];
    size_t bytes;
    unsigned n;
};

static void visit(void *context, const char *name, const char *value, const char *help)
{
    struct listing *l = context;
    struct quire_error err;
    assert_true(name[0] && help[0] && strlen(help) > 5);
    l->n++;
    l->bytes += (size_t)snprintf(l->text + l->bytes, sizeof l->text - l->bytes, "%s=%s\n", name, value);
    assert_true(l->bytes < sizeof l->text);
    if (l->into && config_set(l->into, name, value, &err) != 0)
        fail_msg("what config_each says is refused: %s", err.message);
}

static void test_each_round_trip(void **state)
{
    (void)state;
    struct config config, copy;
    struct quire_error err;
    struct listing first = {.into = &copy}, second = {.n = 0};
    parse_well(&config, WORDS("--port", "7004", "--engine", "threads", "--loglevel", "debug", "--requirepass", "a b",
                              "--index-memory", "3gb", "--protected-mode", "no", "--load", "k /p"));
    assert_int_equal(config_init(&copy, &err), 0);
    config_each(&config, visit, &first);
    config_each(&copy, visit, &second);
    assert_int_equal(first.n, second.n);
    assert_true(first.n > 20);
    assert_string_equal(first.text, second.text);
    assert_non_null(strstr(first.text, "engine=threads\n"));
    assert_non_null(strstr(first.text, "loglevel=debug\n"));
    assert_non_null(strstr(first.text, "index-memory=3221225472\n"));
    assert_non_null(strstr(first.text, "protected-mode=no\n"));
    assert_non_null(strstr(first.text, "load=k /p\n"));
    assert_non_null(strstr(first.text, "save=\n"));
    config_fini(&config);
    config_fini(&copy);
}

/* tools/quire.conf shows each setting once, commented out, with its default: "#port 6379". */
static void test_example_file(void **state)
{
    (void)state;
    struct config shown;
    struct quire_error err = {0};
    unsigned seen[N_SETTINGS] = {0}, places = 0;
    char *line = NULL, *name, *value, room[SETTING_TEXT_BYTES];
    size_t bytes = 0;
    FILE *file = fopen(QUIRE_SOURCE_DIR "/tools/quire.conf", "r");
    assert_non_null(file);
    assert_int_equal(config_init(&shown, &err), 0);
    while (getline(&line, &bytes, file) >= 0) {
        if (line[0] != '#' && line[0] != '\n')
            fail_msg("a line that counts: %s", line);
        if (line[0] != '#' || line[1] == ' ')
            continue;
        config_setting_split(line + 1, &name, &value);
        const struct setting *s = config_setting_find(name);
        struct setting_value parsed;
        if (!s)
            fail_msg("'%s' is no setting", name);
        seen[s - config_settings]++;
        if (config_setting_parse(&shown, s, value, &parsed, &err) < 0)
            fail_msg("%s", err.message);
        if (s->kind != KIND_LIST && !config_setting_holds(&shown, s, &parsed))
            fail_msg("%s: '%s' is not the default, %s", name, value, config_setting_text(&shown, s, room));
    }
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (seen[i] != (config_settings[i].kind != KIND_FIXED))
            fail_msg("%s stands there %u times", config_settings[i].name, seen[i]);
        places += seen[i];
    }
    assert_true(places > 20);
    free(line);
    fclose(file);
    config_fini(&shown);
}

static void test_output_limit_by_classes(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        uint64_t bytes; /* 0: refused */
    } cases[] = {{"normal 64mb 0 0", 64u << 20},
                 {"normal 0 0 0", 1ull << 40},
                 {"pubsub 32mb 8mb 60", 256u << 20},
                 {"slave 256mb 64mb 60 normal 1mb 0 0", 1u << 20},
                 {"replica 0 0 0", 256u << 20},
                 {"normal 64mb 1mb 60", 0},
                 {"normal 1 0 0", 0},
                 {"normal 64mb", 0},
                 {"normal 64mb 0", 0},
                 {"abnormal 1mb 0 0", 0},
                 {"normal x 0 0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config;
        struct quire_error err = {0};
        assert_int_equal(config_init(&config, &err), 0);
        int rc = config_set(&config, "client-output-buffer-limit", cases[i].value, &err);
        if ((rc == 0) != (cases[i].bytes > 0) || (rc == 0 && config.output_buffer_max != cases[i].bytes))
            fail_msg("'%s': %d, %llu", cases[i].value, rc, (unsigned long long)config.output_buffer_max);
        config_fini(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example_file),
        cmocka_unit_test(test_output_limit_by_classes),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_command_line),
        cmocka_unit_test(test_wrong_command_lines),
        cmocka_unit_test(test_refusals_name_the_line),
        cmocka_unit_test(test_what_is_fixed_may_be_said),
        cmocka_unit_test(test_settings_of_redis_are_named),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_values_hold_one_line),
        cmocka_unit_test(test_each_round_trip),
    };
    return cmocka_run_group_tests_name("config", tests, make_folder, remove_folder);
}
