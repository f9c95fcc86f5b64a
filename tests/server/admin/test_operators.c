/*
 * test_operators.c - what operators use while the server runs: CONFIG SET and REWRITE, CLIENT, SLOWLOG, MONITOR,
 * LATENCY, MEMORY, DEBUG, over several lanes.
 *
 * Texts of errors are compared with what Redis 7 answers to the same request.
 */
#include "server/process/file_replace.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define START(...) support_server((const char *const[]){__VA_ARGS__ NULL})

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The reply is a text that holds `part`. */
static void expect_part(struct connection *c, const char *words, const char *part)
{
    struct reply reply = ask(c, words);
    if ((reply.type != '$' && reply.type != '=') || !strstr(reply.text, part))
        fail_msg("%s: '%s' is not in %c '%s'", words, part, reply.type, reply.text ? reply.text : "");
    reply_free(&reply);
}

static void expect_items(struct connection *c, const char *words, size_t n)
{
    struct reply reply = ask(c, words);
    if (reply.type != '*' || reply.n != n)
        fail_msg("%s: %c with %zu items, not %zu", words, reply.type, reply.n, n);
    reply_free(&reply);
}

static void expect_setting(struct connection *c, const char *name, const char *value)
{
    char words[128];
    snprintf(words, sizeof words, "CONFIG GET %s", name);
    struct reply reply = ask(c, words);
    assert_int_equal(reply.n, 2);
    if (!reply_is(&reply.items[1], value))
        fail_msg("%s is '%s', not '%s'", name, reply.items[1].text, value);
    reply_free(&reply);
}

/* ---- CONFIG ------------------------------------------------------------------------------------------------------ */

static void test_config_set(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c, other;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    expect_text(&c, "CONFIG SET timeout 100 slowlog-log-slower-than -1", "OK");
    expect_setting(&other, "timeout", "100");
    expect_setting(&other, "slowlog-log-slower-than", "-1");
    expect_text(&c, "CONFIG SET client-query-buffer-limit 2mb loglevel verbose", "OK");
    expect_setting(&other, "client-query-buffer-limit", "2097152");
    expect_setting(&other, "loglevel", "verbose");
    expect_text(&c, "CONFIG SET client-output-buffer-limit 1mb", "OK");
    send_literal(&c, "*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$26\r\nclient-output-buffer-limit\r\n"
                     "$36\r\nnormal 2mb 0 0 pubsub 32mb 8mb 60   \r\n");
    check_text(read_reply(&c), "OK");
    expect_setting(&other, "client-output-buffer-limit", "2097152");
    disconnect(&c);
    disconnect(&other);
    support_server_end(s);
}

static void test_config_set_is_all_or_nothing(void **state)
{
    (void)state;
    struct test_server *s = START("timeout", "7", );
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "CONFIG SET timeout 9 port 1",
                 "ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config");
    expect_error(&c, "CONFIG SET timeout 9 timeout 10",
                 "ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter");
    expect_error(&c, "CONFIG SET timeout 9 nonsense 1",
                 "ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'");
    expect_error(
        &c, "CONFIG SET timeout 9 shutdown-timeout x",
        "ERR CONFIG SET failed (possibly related to argument 'shutdown-timeout') - argument couldn't be parsed "
        "into an integer");
    expect_error(
        &c, "CONFIG SET timeout 9 tcp-keepalive 86401",
        "ERR CONFIG SET failed (possibly related to argument 'tcp-keepalive') - argument must be between 0 and "
        "86400 inclusive");
    expect_error(&c, "CONFIG SET timeout 9 loglevel loud",
                 "ERR CONFIG SET failed (possibly related to argument 'loglevel') - argument(s) must be one of the "
                 "following: debug, verbose, notice, warning");
    expect_error(
        &c, "CONFIG SET timeout 9 proto-max-bulk-len much",
        "ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be a memory "
        "value");
    expect_error(&c, "CONFIG SET timeout 9 maxclients 1000000",
                 "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able "
                 "to handle the specified number of clients, try with ");
    expect_error(&c, "CONFIG SET timeout", "ERR wrong number of arguments for 'config|set' command");
    expect_error(&c, "CONFIG SET timeout 9 loglevel", "ERR wrong number of arguments for 'config|set' command");
    expect_setting(&c, "timeout", "7");
    expect_error(&c, "CONFIG REWRITE", "ERR The server is running without a config file");
    disconnect(&c);
    support_server_end(s);
}

static void test_settings_take_effect(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c, fresh;
    connect_to(&c, s->port);
    expect_text(&c, "CONFIG SET requirepass sesame", "OK");
    expect_text(&c, "PING", "PONG"); /* who is in stays in */
    connect_to(&fresh, s->port);
    expect_error(&fresh, "PING", "NOAUTH Authentication required.");
    expect_text(&fresh, "AUTH sesame", "OK");
    disconnect(&fresh);
    expect_text(&c, "CONFIG SET maxclients 1", "OK");
    connect_to(&fresh, s->port);
    check_error(read_reply(&fresh), "ERR max number of clients reached");
    disconnect(&fresh);
    expect_text(&c, "CONFIG SET maxclients 100 timeout 1", "OK");
    connect_to(&fresh, s->port);
    expect_closed(&fresh);
    disconnect(&fresh);
    disconnect(&c);
    support_server_end(s);
}

static void test_resetstat(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c, other;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    for (unsigned i = 0; i < 20; i++) {
        expect_error(&other, "NOSUCH", "ERR unknown");
        expect_text(&other, "PING", "PONG");
    }
    assert_true(info_number(&c, "total_commands_processed") >= 40);
    assert_int_equal(info_number(&c, "total_error_replies"), 20);
    expect_part(&c, "INFO errorstats", "errorstat_ERR:count=20");
    expect_text(&c, "CONFIG RESETSTAT", "OK");
    assert_true(info_number(&c, "total_commands_processed") < 5);
    assert_int_equal(info_number(&c, "total_error_replies"), 0);
    struct reply reply = ask(&c, "INFO commandstats");
    assert_null(strstr(reply.text, "cmdstat_ping"));
    reply_free(&reply);
    disconnect(&c);
    disconnect(&other);
    support_server_end(s);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 4096);
    assert_true(file && text && fread(text, 1, 4095, file) > 0);
    fclose(file);
    return text;
}

static void test_rewrite(void **state)
{
    const char *folder = *state;
    char *path = support_path(folder, "quire.conf");
    static const char before[] = "# ours\n"
                                 "timeout 5\n"
                                 "\n"
                                 "bind 127.0.0.1   # not a comment here\n"
                                 "timeout 6\n"
                                 "  # indented\n"
                                 "client-query-buffer-limit 2mb\n"
                                 "client-output-buffer-limit normal 64mb 0 0\n"
                                 "client-output-buffer-limit pubsub 32mb 8mb 60\n"
                                 "port 0";
    struct config config;
    struct quire_error err = {0};
    struct config_refusal refusal;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(before, file);
    fclose(file);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(config_init(&config, &err), 0);
    assert_int_equal(config_parse(&config, 1, &path, &err), 0);
    config.port_found = true;
    config.port = 12345;
    assert_int_equal(config_rewrite(&config, &err), 0);
    char *text = read_file(path), expected[4096];
    snprintf(expected, sizeof expected, "%s\n", before);
    assert_string_equal(text, expected);
    free(text);

    const struct config_change changes[] = {{"timeout", "70"}, {"requirepass", " a b\""}, {"maxclients", "55"}};
    assert_int_equal(config_change(&config, changes, 3, NULL, &refusal), 0);
    for (unsigned twice = 0; twice < 2; twice++)
        assert_int_equal(config_rewrite(&config, &err), 0);
    text = read_file(path);
    assert_non_null(strstr(text, "# ours\ntimeout 5\n\nbind"));
    assert_non_null(strstr(text, "\ntimeout 70\n  # indented\nclient-query-buffer-limit 2mb\n"));
    assert_non_null(strstr(text, "port 0\n# Generated by CONFIG REWRITE\nmaxclients 55\nrequirepass \" a b\"\"\n"));
    free(text);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);

    /* a symbolic link stays one, and the file it leads to is rewritten */
    char *link_path = support_path(folder, "link.conf");
    assert_int_equal(symlink("quire.conf", link_path), 0);
    assert_int_equal(file_replace(link_path, "timeout 71\n", 11, 0600, &err), 0);
    assert_int_equal(lstat(link_path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    text = read_file(path);
    assert_string_equal(text, "timeout 71\n");
    free(text);
    free(link_path);
    assert_int_equal(config_rewrite(&config, &err), 0);

    struct config again;
    assert_int_equal(config_init(&again, &err), 0);
    assert_int_equal(config_parse(&again, 1, &path, &err), 0);
    assert_string_equal(again.requirepass, " a b\"");
    assert_int_equal(again.timeout, 70);
    assert_int_equal(again.maxclients, 55);
    config_fini(&again);
    config_fini(&config);
    unlink(path);
    free(path);
}

/* Settings that somebody keeps a copy of: the user `default`, the store, the log's journal. */
static void test_config_set_reaches_copies(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "2", );
    struct connection c, stranger;
    connect_to(&c, s->port);
    expect_text(&c, "CONFIG SET requirepass first maxmemory 1 appendfsync always", "OK");
    expect_setting(&c, "appendfsync", "always");
    connect_to(&stranger, s->port);
    expect_error(&stranger, "GET k", "NOAUTH ");
    expect_error(&stranger, "AUTH second", "WRONGPASS ");
    expect_text(&stranger, "AUTH first", "OK");
    expect_text(&c, "PING", "PONG");
    expect_text(&c, "SET k v", "OK");
    expect_error(&c, "SET k2 v", "OOM ");
    expect_error(&c, "VADD v VALUES 2 1 2 e", "OOM ");
    expect_text(&c, "CONFIG SET maxmemory 0 requirepass second", "OK");
    expect_text(&c, "SET k2 v", "OK");
    expect_integer(&c, "VADD v VALUES 2 1 2 e", 1);
    disconnect(&stranger);
    connect_to(&stranger, s->port);
    expect_error(&stranger, "AUTH first", "WRONGPASS ");
    expect_text(&stranger, "AUTH second", "OK");
    expect_error(&c, "CONFIG SET maxdisk -1 requirepass third", "ERR CONFIG SET failed");
    expect_setting(&c, "requirepass", "second");
    disconnect(&stranger);
    disconnect(&c);
    support_server_end(s);
}

/* ---- CLIENT ------------------------------------------------------------------------------------------------------ */

enum { CROWD = 12 };

static long long id_of(struct connection *c)
{
    struct reply reply = ask(c, "CLIENT ID");
    long long id = reply.integer;
    reply_free(&reply);
    return id;
}

static unsigned lines_in(struct connection *c, const char *words)
{
    struct reply reply = ask(c, words);
    unsigned n = 0;
    assert_int_equal(reply.type, '$');
    for (const char *p = reply.text; (p = strchr(p, '\n')); p++)
        n++;
    reply_free(&reply);
    return n;
}

static void test_client_list(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "3", );
    struct connection crowd[CROWD];
    char words[64];
    for (unsigned i = 0; i < CROWD; i++) {
        connect_to(&crowd[i], s->port);
        snprintf(words, sizeof words, "CLIENT SETNAME n%u", i);
        expect_text(&crowd[i], words, "OK");
    }
    assert_int_equal(lines_in(&crowd[0], "CLIENT LIST"), CROWD);
    assert_int_equal(lines_in(&crowd[0], "CLIENT LIST TYPE normal"), CROWD);
    assert_int_equal(lines_in(&crowd[0], "CLIENT LIST TYPE pubsub"), 0);
    expect_error(&crowd[0], "CLIENT LIST TYPE nobody", "ERR Unknown client type 'nobody'");
    expect_error(&crowd[0], "CLIENT LIST ID x", "ERR Invalid client ID");
    expect_error(&crowd[0], "CLIENT LIST WHAT x", "ERR syntax error");
    snprintf(words, sizeof words, "CLIENT LIST ID %lld %lld 999999", id_of(&crowd[5]), id_of(&crowd[7]));
    assert_int_equal(lines_in(&crowd[0], words), 2);
    struct reply reply = ask(&crowd[3], "CLIENT INFO");
    static const char *const fields[] = {"id=",     " addr=127.0.0.1:", " laddr=127.0.0.1:", " fd=",      " name=n3",
                                         " age=",   " idle=",           " flags=N",          " db=0",     " sub=0",
                                         " psub=0", " multi=-1",        " qbuf=0",           " obl=",     " oll=0",
                                         " omem=",  " tot-mem=",        " cmd=client|info",  " user=def", " resp=2"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strstr(reply.text, fields[i]))
            fail_msg("'%s' is not in '%s'", fields[i], reply.text);
    reply_free(&reply);
    for (unsigned i = 0; i < CROWD; i++)
        disconnect(&crowd[i]);
    support_server_end(s);
}

static void test_client_kill(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "3", );
    struct connection crowd[CROWD];
    char words[128], address[64];
    for (unsigned i = 0; i < CROWD; i++)
        connect_to(&crowd[i], s->port);
    snprintf(words, sizeof words, "CLIENT KILL ID %lld", id_of(&crowd[1]));
    expect_integer(&crowd[0], words, 1);
    expect_closed(&crowd[1]);
    expect_integer(&crowd[0], words, 0);
    struct reply reply = ask(&crowd[2], "CLIENT INFO");
    const char *at = strstr(reply.text, " addr=") + 6;
    snprintf(address, sizeof address, "%.*s", (int)strcspn(at, " "), at);
    reply_free(&reply);
    snprintf(words, sizeof words, "CLIENT KILL %s", address);
    expect_text(&crowd[0], words, "OK");
    expect_closed(&crowd[2]);
    expect_error(&crowd[0], words, "ERR No such client");
    expect_integer(&crowd[0], "CLIENT KILL USER default TYPE pubsub", 0);
    expect_integer(&crowd[0], "CLIENT KILL MAXAGE 1000", 0);
    expect_error(&crowd[0], "CLIENT KILL ID x", "ERR client-id should be greater than 0");
    expect_error(&crowd[0], "CLIENT KILL ID 1 TYPE", "ERR syntax error");
    expect_error(&crowd[0], "CLIENT KILL TYPE odd", "ERR Unknown client type 'odd'");
    expect_error(&crowd[0], "CLIENT KILL USER odd", "ERR No such user 'odd'");
    expect_text(&crowd[0], "ACL SETUSER odd on nopass +@all", "OK");
    expect_integer(&crowd[0], "CLIENT KILL USER odd", 0);
    expect_text(&crowd[3], "AUTH odd x", "OK");
    expect_integer(&crowd[0], "CLIENT KILL USER odd", 1);
    expect_closed(&crowd[3]);
    expect_integer(&crowd[0], "CLIENT KILL TYPE normal", CROWD - 4);
    for (unsigned i = 4; i < CROWD; i++)
        expect_closed(&crowd[i]);
    expect_text(&crowd[0], "PING", "PONG");
    /* itself: told first, then closed */
    expect_integer(&crowd[0], "CLIENT KILL TYPE normal SKIPME no", 1);
    expect_closed(&crowd[0]);
    for (unsigned i = 0; i < CROWD; i++)
        disconnect(&crowd[i]);
    support_server_end(s);
}

static void test_client_reply(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    send_literal(&c, "CLIENT REPLY SKIP\r\nECHO a\r\nECHO b\r\nCLIENT REPLY OFF\r\nECHO c\r\nNOSUCH\r\nCLIENT LIST\r\n"
                     "CLIENT REPLY ON\r\nECHO d\r\n");
    check_text(read_reply(&c), "b");
    check_text(read_reply(&c), "OK");
    check_text(read_reply(&c), "d");
    expect_error(&c, "CLIENT REPLY PERHAPS", "ERR syntax error");
    expect_text(&c, "CLIENT NO-EVICT on", "OK");
    expect_text(&c, "CLIENT NO-TOUCH ON", "OK");
    expect_part(&c, "CLIENT INFO", " flags=eT ");
    expect_error(&c, "CLIENT NO-TOUCH perhaps", "ERR syntax error");
    expect_integer(&c, "CLIENT GETREDIR", -1);
    expect_error(&c, "CLIENT TRACKING ON", "ERR CLIENT TRACKING is not supported");
    expect_text(&c, "CLIENT TRACKING OFF", "OK");
    disconnect(&c);
    support_server_end(s);
}

static void test_client_pause(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "3", );
    struct connection c, other;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    expect_error(&c, "CLIENT PAUSE x", "ERR timeout is not an integer or out of range");
    expect_error(&c, "CLIENT PAUSE -1", "ERR timeout is negative");
    expect_error(&c, "CLIENT PAUSE 1 SOME", "ERR CLIENT PAUSE mode must be WRITE or ALL");
    uint64_t began = now_ms();
    expect_text(&c, "CLIENT PAUSE 300", "OK");
    expect_text(&other, "PING", "PONG");
    assert_true(now_ms() - began >= 300 && now_ms() - began < 5000);
    /* writes only: what reads goes on */
    began = now_ms();
    expect_text(&c, "CLIENT PAUSE 1000 WRITE", "OK");
    expect_text(&other, "PING", "PONG");
    assert_true(now_ms() - began < 1000);
    expect_integer(&other, "DEL nothing", 0);
    assert_true(now_ms() - began >= 1000);
    /* ended early, from a client that is paused as well */
    began = now_ms();
    expect_text(&c, "CLIENT PAUSE 60000 ALL", "OK");
    send_request(&other, "PING");
    usleep(20000);
    expect_text(&c, "CLIENT UNPAUSE", "OK");
    check_text(read_reply(&other), "PONG");
    assert_true(now_ms() - began < 5000);
    /* a paused client does not keep the server from stopping */
    expect_text(&c, "CLIENT PAUSE 60000", "OK");
    send_request(&other, "PING");
    support_server_end(s);
    disconnect(&c);
    disconnect(&other);
}

/* ---- SLOWLOG, MONITOR, LATENCY ----------------------------------------------------------------------------------- */

static void test_slowlog(void **state)
{
    const char *folder = *state;
    struct test_server *s = START("lanes", "2", "import-dir", folder, "slowlog-log-slower-than", "-1", );
    struct connection c, other;
    connect_to(&c, s->port);
    connect_to(&other, s->port);
    expect_text(&c, "VLOAD docs cosine", "OK");
    expect_integer(&c, "SLOWLOG LEN", 0);
    expect_text(&other, "CLIENT SETNAME slow", "OK");
    expect_text(&c, "CONFIG SET slowlog-log-slower-than 0", "OK");
    struct reply reply = ask(&other, "VSIM docs ELE 3 COUNT 2");
    assert_int_equal(reply.n, 2);
    reply_free(&reply);
    expect_error(&c, "CONFIG SET requirepass secret port 1", "ERR CONFIG SET failed");
    expect_text(&other, "ECHO last", "last");
    reply = ask(&c, "SLOWLOG GET -1");
    assert_true(reply.n >= 3);
    unsigned searches = 0;
    for (size_t i = 0; i < reply.n; i++) {
        const struct reply *e = &reply.items[i], *words = &e->items[3];
        assert_true(e->n >= 6 && words->n > 0);
        if (i > 0)
            assert_true(e->items[0].integer < reply.items[i - 1].items[0].integer);
        assert_true(llabs((long long)time(NULL) - e->items[1].integer) < 100 && e->items[2].integer >= 0);
        assert_non_null(strstr(e->items[4].text, "127.0.0.1:"));
        for (size_t w = 0; w < words->n; w++)
            assert_false(reply_is(&words->items[w], "secret"));
        if (!reply_is(&words->items[0], "VSIM"))
            continue;
        searches++;
        assert_int_equal(e->n, 7);
        assert_true(reply_is(&e->items[5], "slow"));
        assert_non_null(strstr(e->items[6].text, "pagegraph reads="));
        assert_true(e->items[2].integer > 0);
    }
    assert_int_equal(searches, 1);
    reply_free(&reply);
    expect_text(&c, "CONFIG SET slowlog-log-slower-than -1 slowlog-max-len 2", "OK");
    expect_integer(&c, "SLOWLOG LEN", 2);
    expect_items(&c, "SLOWLOG GET", 2);
    expect_items(&c, "SLOWLOG GET 1", 1);
    expect_error(&c, "SLOWLOG GET -2", "ERR count should be greater than or equal to -1");
    expect_text(&c, "SLOWLOG RESET", "OK");
    expect_integer(&c, "SLOWLOG LEN", 0);
    disconnect(&c);
    disconnect(&other);
    support_server_end(s);
}

static void test_slowlog_cuts_arguments(void **state)
{
    (void)state;
    struct test_server *s = START("slowlog-log-slower-than", "0", );
    struct connection c;
    char words[1024] = "EXISTS", word[300];
    connect_to(&c, s->port);
    memset(word, 'x', 200);
    word[200] = 0;
    for (unsigned i = 0; i < 40; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), " %u", i);
    snprintf(words + strlen(words), sizeof words - strlen(words), " %s", word);
    expect_integer(&c, words, 0);
    snprintf(words, sizeof words, "ECHO %s", word);
    expect_text(&c, words, word);
    struct reply reply = ask(&c, "SLOWLOG GET 2");
    assert_int_equal(reply.n, 2);
    const struct reply *echo = &reply.items[0].items[3], *exists = &reply.items[1].items[3];
    assert_int_equal(exists->n, 32);
    assert_true(reply_is(&exists->items[31], "... (11 more arguments)"));
    assert_int_equal(strncmp(echo->items[1].text, word, 128), 0);
    assert_string_equal(echo->items[1].text + 128, "... (72 more bytes)");
    reply_free(&reply);
    disconnect(&c);
    support_server_end(s);
}

/* The next line holds all of this, ended by NULL. */
static void expect_line(struct connection *c, const char *const *parts)
{
    struct reply reply = read_reply(c);
    assert_int_equal(reply.type, '+');
    for (; *parts; parts++)
        if (!strstr(reply.text, *parts))
            fail_msg("'%s' is not in '%s'", *parts, reply.text);
    reply_free(&reply);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_monitor(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "2", "requirepass", "sesame", );
    struct connection monitors[2], c;
    for (unsigned i = 0; i < 2; i++) {
        connect_to(&monitors[i], s->port);
        expect_text(&monitors[i], "AUTH sesame", "OK");
        expect_text(&monitors[i], "MONITOR", "OK");
    }
    connect_to(&c, s->port);
    expect_text(&c, "AUTH sesame", "OK");
    send_literal(&c, "*2\r\n$4\r\nECHO\r\n$6\r\na \"\n\001z\r\n");
    struct reply reply = read_reply(&c);
    reply_free(&reply);
    expect_setting(&c, "timeout", "0"); /* of administrators: not shown */
    expect_text(&c, "PING", "PONG");
    /* a command within a command */
    static const char *const nested[] = {"COMMAND GETKEYS AUTH sesame", "COMMAND GETKEYS HELLO 3 AUTH default sesame",
                                         "COMMAND GETKEYS GET key"};
    for (unsigned i = 0; i < 3; i++) {
        reply = ask(&c, nested[i]);
        reply_free(&reply);
    }
    send_request(&c, "HELLO 3 AUTH default sesame");
    reply = read_reply(&c);
    reply_free(&reply);
    for (unsigned i = 0; i < 2; i++) {
        if (i == 0) /* the second one came later */
            expect_line(&monitors[i], PARTS("] \"AUTH\" \"(redacted)\""));
        expect_line(&monitors[i], PARTS("] \"AUTH\" \"(redacted)\""));
        expect_line(&monitors[i], PARTS(" [0 127.0.0.1:", "] \"ECHO\" \"a \\\"\\n\\x01z\""));
        expect_line(&monitors[i], PARTS("] \"PING\""));
        expect_line(&monitors[i], PARTS("\"GETKEYS\" \"AUTH\" \"(redacted)\""));
        expect_line(&monitors[i], PARTS("\"GETKEYS\" \"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\""));
        expect_line(&monitors[i], PARTS("\"GETKEYS\" \"GET\" \"key\""));
        expect_line(&monitors[i], PARTS("] \"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\""));
    }
    expect_text(&monitors[0], "RESET", "RESET");
    expect_text(&monitors[0], "AUTH sesame", "OK");
    expect_text(&c, "PING", "PONG");
    expect_text(&monitors[0], "ECHO mine", "mine");
    expect_line(&monitors[1], PARTS("\"RESET\""));
    disconnect(&c);
    for (unsigned i = 0; i < 2; i++)
        disconnect(&monitors[i]);
    support_server_end(s);
}

static void test_latency(void **state)
{
    (void)state;
    struct test_server *s = START("enable-debug-command", "local", );
    struct connection c;
    connect_to(&c, s->port);
    expect_text(&c, "DEBUG SLEEP 0.02", "OK");
    expect_items(&c, "LATENCY LATEST", 0);
    expect_part(&c, "LATENCY DOCTOR", "latency-monitor-threshold is 0");
    expect_text(&c, "CONFIG SET latency-monitor-threshold 10", "OK");
    expect_text(&c, "DEBUG SLEEP 0.02", "OK");
    expect_text(&c, "DEBUG SLEEP 0.03", "OK");
    struct reply reply = ask(&c, "LATENCY LATEST");
    assert_int_equal(reply.n, 1);
    assert_true(reply_is(&reply.items[0].items[0], "command"));
    assert_true(reply.items[0].items[3].integer >= 30);
    reply_free(&reply);
    reply = ask(&c, "LATENCY HISTORY command");
    assert_true(reply.n == 1 || reply.n == 2);
    assert_true(reply.items[reply.n - 1].items[1].integer >= 30);
    reply_free(&reply);
    expect_items(&c, "LATENCY HISTORY nothing", 0);
    expect_part(&c, "LATENCY GRAPH command", "command - high ");
    expect_error(&c, "LATENCY GRAPH nothing", "ERR No samples available for event 'nothing'");
    expect_part(&c, "LATENCY DOCTOR", "command: ");
    reply = ask(&c, "LATENCY HISTOGRAM debug|sleep nosuch");
    assert_int_equal(reply.n, 2);
    const struct reply *calls = reply_field(&reply.items[1], "calls");
    const struct reply *counts = reply_field(&reply.items[1], "histogram_usec");
    assert_int_equal(calls->integer, 3);
    assert_int_equal(counts->items[counts->n - 1].integer, 3);
    long long most_us = counts->items[counts->n - 2].integer; /* a power of two above the longest, 30 ms */
    assert_true(most_us >= 32768 && (most_us & (most_us - 1)) == 0);
    reply_free(&reply);
    expect_integer(&c, "LATENCY RESET nothing command", 1);
    expect_items(&c, "LATENCY LATEST", 0);
    disconnect(&c);
    support_server_end(s);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void test_memory_and_debug(void **state)
{
    const char *folder = *state;
    struct test_server *s = START("import-dir", folder, "enable-debug-command", "no", );
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "DEBUG SLEEP 0",
                 "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\"");
    expect_text(&c, "VLOAD docs cosine", "OK");
    struct reply reply = ask(&c, "MEMORY USAGE docs"), info = ask(&c, "VINFO docs");
    assert_true(reply.integer >= reply_field(&info, "resident-bytes")->integer && reply.integer > 0);
    reply_free(&reply);
    reply_free(&info);
    reply = ask(&c, "MEMORY USAGE nothing SAMPLES 5");
    assert_true(reply.null);
    reply_free(&reply);
    expect_error(&c, "MEMORY USAGE docs SAMPLES x", "ERR value is not an integer or out of range");
    reply = ask(&c, "MEMORY STATS");
    assert_int_equal(reply_field(&reply, "keys.count")->integer, 1);
    assert_true(reply_field(&reply, "total.allocated")->integer > 0);
    reply_free(&reply);
    expect_text(&c, "MEMORY PURGE", "OK");
    expect_part(&c, "MEMORY DOCTOR", "are resident");
    expect_part(&c, "MEMORY MALLOC-STATS", "malloc");
    expect_items(&c, "ROLE", 3);
    reply = ask(&c, "MODULE LIST");
    assert_true(reply.n == 3 && reply_is(reply_field(&reply.items[0], "name"), "vectorset") &&
                reply_is(reply_field(&reply.items[1], "name"), "search"));
    reply_free(&reply);
    expect_part(&c, "INFO modules", "module:name=vectorset,ver=1,");
    expect_part(&c, "INFO server", "redis_version:8.0.0\r\n");
    reply = ask(&c, "TIME");
    assert_true(reply.n == 2 && llabs(strtoll(reply.items[0].text, NULL, 10) - (long long)time(NULL)) < 100);
    reply_free(&reply);
    expect_items(&c, "COMMAND LIST FILTERBY PATTERN slowlog|*", 4);
    expect_items(&c, "COMMAND LIST FILTERBY MODULE json", 0);
    reply = ask(&c, "COMMAND LIST FILTERBY ACLCAT vectorset");
    assert_true(reply.n >= 8);
    reply_free(&reply);
    expect_error(&c, "COMMAND LIST FILTERBY COLOUR red", "ERR syntax error");
    expect_error(&c, "SHUTDOWN ABORT", "ERR No shutdown in progress.");
    expect_error(&c, "SHUTDOWN SAVE NOSAVE", "ERR syntax error");
    disconnect(&c);
    support_server_end(s);
}

/* What LOGTAIL says is what stands in the file, to its end; older lines than it keeps are gone. */
static void test_logtail(void **state)
{
    char *folder = support_folder_make(), *path = support_path(folder, "log"), line[300], *file_tail[3] = {0};
    struct test_server *s = support_server_logging(path, NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    for (int i = 0; i < 300; i++)
        log_line(&s->log, LOG_LEVEL_NOTICE, "line %d %0*d", i, i % 200, 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        free(file_tail[0]);
        file_tail[0] = file_tail[1];
        file_tail[1] = file_tail[2];
        line[strcspn(line, "\n")] = 0;
        file_tail[2] = strdup(line);
    }
    fclose(file);
    struct reply r = ask(&c, "LOGTAIL 3");
    assert_int_equal(r.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_non_null(file_tail[i]);
        assert_true(reply_is(&r.items[i], file_tail[i]));
        free(file_tail[i]);
    }
    reply_free(&r);
    expect_items(&c, "LOGTAIL", 100);
    for (int i = 0; i < 200; i++)
        log_line(&s->log, LOG_LEVEL_WARNING, "%0*d end", 900, i);
    r = ask(&c, "LOGTAIL 1000"); /* 65,536 bytes have room for 70 such lines */
    assert_in_range(r.n, 65, 70);
    for (size_t i = 0; i < r.n; i++)
        assert_true(r.items[i].bytes > 900 && strcmp(r.items[i].text + r.items[i].bytes - 4, " end") == 0);
    reply_free(&r);
    expect_error(&c, "LOGTAIL 0", "ERR syntax error: LOGTAIL [count]");
    expect_error(&c, "LOGTAIL x", "ERR syntax error: LOGTAIL [count]");
    expect_error(&c, "LOGTAIL 1 2", "ERR syntax error: LOGTAIL [count]");
    expect_text(&c, "ACL SETUSER app on >p ~* +@all -@admin", "OK");
    expect_text(&c, "AUTH app p", "OK");
    expect_error(&c, "LOGTAIL", "NOPERM ");
    disconnect(&c);
    support_server_end(s);
    free(path);
    support_folder_remove(folder);
}

static int make_index(void **state)
{
    char *folder = support_folder_make();
    *state = folder;
    support_build(folder, "cosine", QUIRE_METRIC_COSINE);
    return 0;
}

static int remove_index(void **state)
{
    support_folder_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_set),
        cmocka_unit_test(test_config_set_is_all_or_nothing),
        cmocka_unit_test(test_resetstat),
        cmocka_unit_test(test_settings_take_effect),
        cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_client_list),
        cmocka_unit_test(test_config_set_reaches_copies),
        cmocka_unit_test(test_client_kill),
        cmocka_unit_test(test_client_reply),
        cmocka_unit_test(test_client_pause),
        cmocka_unit_test(test_slowlog),
        cmocka_unit_test(test_monitor),
        cmocka_unit_test(test_slowlog_cuts_arguments),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_memory_and_debug),
        cmocka_unit_test(test_logtail),
    };
    return cmocka_run_group_tests(tests, make_index, remove_index);
}
