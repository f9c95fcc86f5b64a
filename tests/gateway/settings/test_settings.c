/* test_settings.c - settings from files and the command line: what is taken, what is refused and in which words. */
#include "gateway/settings/settings.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/quire-settings.XXXXXX";

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct settings *read_ok(const char *text)
{
    struct settings *settings = NULL;
    struct quire_error err = {0};
    write_file(text);
    if (settings_read(path, NULL, 0, &settings, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return settings;
}

static void expect_error(const char *text, const char *words)
{
    struct settings *settings = NULL;
    struct quire_error err = {0};
    write_file(text);
    if (settings_read(path, NULL, 0, &settings, &err) == 0)
        fail_msg("taken: %s", text);
    if (!strstr(err.message, words))
        fail_msg("%s\n  gives \"%s\", which does not have \"%s\"", text, err.message, words);
    assert_null(settings);
}

#define UP "\"upstreams\": [{\"url\": \"http://127.0.0.1:8000\"}]"

static void test_values(void **state)
{
    (void)state;
    struct settings *s = read_ok("{" UP ", \"listen\": [\"127.0.0.1:1\", \"[::1]:2\"], \"body-max\": \"2mb\", "
                                 "\"head-max\": 4096, \"answer-timeout\": \"2m\", \"idle-timeout\": \"750ms\", "
                                 "\"temperature-max\": 1, \"risk\": 0.01, \"share\": \"tenant\", \"finish\": true, "
                                 "\"embed-key\": \"secret\"}");
    assert_int_equal(s->listen.n, 2);
    assert_string_equal(s->listen.items[1], "[::1]:2");
    assert_int_equal(s->body_max, 2 << 20);
    assert_int_equal(s->head_max, 4096);
    assert_int_equal(s->answer_timeout, 120000);
    assert_int_equal(s->idle_timeout, 750);
    assert_true(s->temperature_max == 1.0 && s->risk == 0.01);
    assert_int_equal(s->share, SETTINGS_SHARE_TENANT);
    assert_true(s->finish);
    assert_string_equal(s->embed_key, "secret");
    assert_int_equal(s->connect_timeout, 5000); /* a default */
    settings_destroy(s);
}

static void test_upstreams(void **state)
{
    (void)state;
    struct settings *s =
        read_ok("{\"upstreams\": [{\"name\": \"a\", \"url\": \"https://api.example.com/v1/\", \"key\": \"sk-1\", "
                "\"models\": [\"gpt-*\", \"o1\"], \"weight\": 5, \"health\": \"/health\"}, "
                "{\"url\": \"http://127.0.0.1:8000\", \"models\": \"llama\"}], "
                "\"routes\": [{\"category\": \"faq\", \"model\": \"gpt-*\"}]}");
    assert_int_equal(s->n_upstreams, 2);
    assert_string_equal(s->upstreams[0].url, "https://api.example.com/v1");
    assert_int_equal(s->upstreams[0].weight, 5);
    assert_int_equal(s->upstreams[0].models.n, 2);
    assert_string_equal(s->upstreams[1].name, "127.0.0.1:8000");
    assert_string_equal(s->upstreams[1].models.items[0], "llama");
    assert_string_equal(s->upstreams[1].key, "");
    assert_int_equal(s->upstreams[1].weight, 1);
    assert_int_equal(s->n_routes, 1);
    assert_string_equal(s->routes[0].tenant, "");
    settings_destroy(s);
}

static void test_refused(void **state)
{
    (void)state;
    expect_error("{", "line 1");
    expect_error("[]", "not one JSON object");
    expect_error("{}", "--upstream http://127.0.0.1:8000");
    expect_error("{" UP ", \"body-maxx\": 1}", "body-maxx: no such setting");
    expect_error("{" UP ", \"body-max\": 1024, \"body-max\": 2048}", "duplicate");
    expect_error("{" UP ", \"body-max\": \"12xb\"}", "body-max: 12xb is not a size");
    expect_error("{" UP ", \"body-max\": -1}", "body-max: -1");
    expect_error("{" UP ", \"body-max\": \"99999999999999gb\"}", "body-max");
    expect_error("{" UP ", \"head-max\": 10}", "from 1kb to 1mb");
    expect_error("{" UP ", \"idle-timeout\": 30}", "a time with its unit");
    expect_error("{" UP ", \"idle-timeout\": \"30\"}", "a time with its unit");
    expect_error("{" UP ", \"idle-timeout\": \"30 s\"}", "a time with its unit");
    expect_error("{" UP ", \"share\": \"nobody\"}", "one of key|tenant|all");
    expect_error("{" UP ", \"finish\": \"yes\"}", "true or false");
    expect_error("{" UP ", \"finish\": null}", "null");
    expect_error("{" UP ", \"risk\": 1.5}", "from 0 to 1");
    expect_error("{" UP ", \"turns\": 1.5}", "a whole number");
    expect_error("{" UP ", \"listen\": [1]}", "entry 0 is not a text");
    expect_error("{" UP ", \"listen\": []}", "no address");
    expect_error("{" UP ", \"cache\": \"a\\u0001b\"}", "control character");
    expect_error("{" UP ", \"server-password\": \"***\"}", "give the secret");
    expect_error("{" UP ", \"tls-cert-file\": \"x\"}", "go together");
    expect_error("{" UP ", \"embed-url\": \"localhost:1\"}", "not a URL");
    expect_error("{\"upstreams\": {}}", "not a list");
    expect_error("{\"upstreams\": [1]}", "entry 0 is not an object");
    expect_error("{\"upstreams\": [{\"name\": \"a\"}]}", "no url");
    expect_error("{\"upstreams\": [{\"url\": \"ftp://a\"}]}", "not a URL");
    expect_error("{\"upstreams\": [{\"url\": \"http://\"}]}", "not a URL");
    expect_error("{\"upstreams\": [{\"url\": \"http://a?b\"}]}", "character that no base URL has");
    expect_error("{\"upstreams\": [{\"url\": \"http://me:pw@a\"}]}", "no user or password");
    expect_error("{\"upstreams\": [{\"url\": \"http://a\", \"weight\": 0}]}", "weight");
    expect_error("{\"upstreams\": [{\"url\": \"http://a\", \"wieght\": 1}]}", "wieght is not known");
    expect_error("{\"upstreams\": [{\"url\": \"http://a\"}, {\"url\": \"http://a\"}]}", "two have the name a");
    expect_error("{\"upstreams\": [{\"url\": \"http://a\", \"key-file\": \"/does/not/exist\"}]}", "/does/not/exist");
    expect_error("{" UP ", \"routes\": [{\"model\": \"a\"}]}", "no category");
}

static void test_command_line(void **state)
{
    (void)state;
    struct settings *s = NULL;
    struct quire_error err = {0};
    const char *words[] = {"upstream=http://127.0.0.1:1",
                           "upstream=http://127.0.0.1:2",
                           "listen=[::1]:8080",
                           "never=[\"a b\", \"c\"]",
                           "turns=5",
                           "mask=uuid, date"};
    write_file("{" UP ", \"turns\": 4, \"rate\": 2}");
    assert_int_equal(settings_read(path, words, 6, &s, &err), 0);
    assert_int_equal(s->n_upstreams, 2); /* in place of the file's */
    assert_string_equal(s->listen.items[0], "[::1]:8080");
    assert_int_equal(s->never.n, 2);
    assert_string_equal(s->never.items[0], "a b");
    assert_int_equal(s->mask.n, 2);
    assert_int_equal(s->turns, 5);
    assert_true(s->rate == 2);
    settings_destroy(s);
    const char *wrong[] = {"turns"};
    assert_int_equal(settings_read(NULL, wrong, 1, &s, &err), QUIRE_EINVALID);
    const char *twice[] = {"upstreams=[{\"url\":\"http://a\"}]", "upstream=http://b"};
    assert_int_equal(settings_read(NULL, twice, 2, &s, &err), 0);
    assert_int_equal(s->n_upstreams, 1);
    settings_destroy(s);
}

/* What is printed reads back as the same, but for the secrets, which it refuses. */
static void test_print(void **state)
{
    (void)state;
    struct quire_error err = {0};
    char text[2][65536] = {{0}};
    struct settings *s = read_ok("{" UP ", \"listen\": [\"127.0.0.1:1\"], \"risk\": 0.25, \"ttl\": \"90m\"}");
    for (int i = 0; i < 2; i++) {
        FILE *out = fmemopen(text[i], sizeof text[i], "w");
        assert_int_equal(settings_print(s, out, &err), 0);
        fclose(out);
        settings_destroy(s);
        s = read_ok(text[i]);
    }
    assert_string_equal(text[0], text[1]);
    assert_non_null(strstr(text[0], "\"ttl\": \"90m\""));
    settings_destroy(s);
    s = read_ok("{" UP ", \"server-password\": \"verysecret\"}");
    FILE *out = fmemopen(text[0], sizeof text[0], "w");
    assert_int_equal(settings_print(s, out, &err), 0);
    fclose(out);
    assert_null(strstr(text[0], "verysecret"));
    settings_destroy(s);
    expect_error(text[0], "server-password");
}

/* What takes effect at a start only is named where it differs, all of it at once. */
static void test_fixed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *more;
    } fixed[] = {{"listen", "[\"127.0.0.1:1\"]", ""},
                 {"port-file", "\"/p\"", ""},
                 {"metrics-listen", "\"127.0.0.1:2\"", ""},
                 {"reuse-port", "true", ""},
                 {"backlog", "7", ""},
                 {"server", "\"127.0.0.1:3\"", ""},
                 {"server-user", "\"u\"", ""},
                 {"server-password", "\"p\"", ""},
                 {"server-ca-file", "\"/c\"", ""},
                 {"server-connections", "7", ""},
                 {"server-failures", "7", ""},
                 {"server-pause", "\"7s\"", ""},
                 {"cache", "\"c\"", ""},
                 {"category", "\"c\"", " (if it is to be made)"},
                 {"category-settings", "\"SIM 0.9\"", ""},
                 {"exact-category", "\"e\"", " (if it is to be made)"},
                 {"exact-settings", "\"TTL 5\"", ""},
                 {"ttl", "\"7s\"", ""},
                 {"similarity", "0.7", ""},
                 {"risk", "0.7", ""},
                 {"embed-url", "\"http://a\"", ""},
                 {"embed-model", "\"m\"", ""},
                 {"embed-key", "\"k\"", ""},
                 {"embed-dim", "7", ""},
                 {"embed-prefix", "\"p\"", ""},
                 {"embed-timeout", "\"7s\"", ""},
                 {"embed-text-max", "700", ""},
                 {"embed-cache", "7", ""},
                 {"secret-file", "\"/s\"", ""}};
    char all[4000] = "{" UP, names[SETTINGS_FIXED_BYTES] = "", out[SETTINGS_FIXED_BYTES];
    struct settings *plain = read_ok("{" UP "}"), *other;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        char one[200], name[100];
        snprintf(one, sizeof one, "{" UP ", \"%s\": %s}", fixed[i].name, fixed[i].value);
        snprintf(name, sizeof name, "%s%s", fixed[i].name, fixed[i].more);
        other = read_ok(one);
        settings_fixed_differences(plain, other, out, sizeof out);
        assert_string_equal(out, name);
        settings_destroy(other);
        snprintf(all + strlen(all), sizeof all - strlen(all), ", \"%s\": %s", fixed[i].name, fixed[i].value);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", name);
    }
    strcat(all, "}");
    other = read_ok(all);
    settings_fixed_differences(plain, other, out, sizeof out);
    assert_string_equal(out, names);
    settings_fixed_differences(other, plain, out, sizeof out); /* off at once: similarity, risk */
    assert_true(strstr(out, "ttl, embed-url") && strlen(out) < sizeof out - 100);
    settings_destroy(other);
    other = read_ok("{" UP ", \"cache-on\": false, \"turns\": 7, \"never\": [\"x\"], \"judge\": \"hand\"}");
    settings_fixed_differences(plain, other, out, sizeof out);
    assert_string_equal(out, "");
    settings_fixed_differences(other, plain, out, sizeof out);
    assert_string_equal(out, "cache-on (from false)");
    settings_destroy(other);
    settings_destroy(plain);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),  cmocka_unit_test(test_upstreams),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_command_line),
                                       cmocka_unit_test(test_print),   cmocka_unit_test(test_fixed)};
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
