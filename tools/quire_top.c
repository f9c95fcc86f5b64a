/*
 * quire_top.c - `quire top`: what a server does now. The work is tools/top; here are its options and its password.
 *
 * A password is never an argument, which every user of the machine could read in the list of processes.
 */
#include "io/error.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include "tools/top/top_run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PASSWORD_BYTES_MAX 512u

static const struct cli_choice tables[] = {
    {"tenants", TOP_TENANTS}, {"caches", TOP_CACHES}, {"commands", TOP_COMMANDS}, {NULL, 0}};
static const struct cli_choice sorts[] = {{"rate", TOP_SORT_RATE},   {"total", TOP_SORT_TOTAL}, {"time", TOP_SORT_TIME},
                                          {"share", TOP_SORT_SHARE}, {"name", TOP_SORT_NAME},   {NULL, 0}};

static const char summary[] =
    "Shows what a quire-server does: searches and their reads, lookups of caches by outcome, commands, memory against\n"
    "its budget, the disk, seals, merges and checkpoints under way, tenants with their shares. On a terminal a live "
    "view\n"
    "(h: its keys, q: quit); else, or with --once, frames of plain text. A server that goes is waited for.\n"
    "--json prints an object per interval, a line each: docs/operations.md describes its fields. The password comes\n"
    "from --password-file or the variable QUIRE_PASSWORD; the user needs the right to INFO. No TLS: ask on loopback "
    "or\n"
    "by the Unix socket. NO_COLOR=1: no colours.";
static const char examples[] = "  quire top --port 7000\n"
                               "  quire top --unix /run/quire/quire.sock --user ops --password-file /etc/quire/ops\n"
                               "  quire top --port 7000 --once --interval 5\n"
                               "  quire top --port 7000 --json --count 60 > minute.jsonl\n";

/* The first line of a file. */
static int read_password(const char *path, char out[PASSWORD_BYTES_MAX + 2], struct quire_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "read", path);
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n < PASSWORD_BYTES_MAX + 1) {
        got = read(fd, out + n, PASSWORD_BYTES_MAX + 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    int errnum = got < 0 ? errno : 0;
    close(fd);
    out[n] = 0;
    if (errnum)
        return error_set_errno(err, errnum, "read", path);
    out[strcspn(out, "\r\n")] = 0;
    if (strlen(out) > PASSWORD_BYTES_MAX)
        return error_set(err, QUIRE_EINVALID, "the first line of %s is no password: it has more than %u bytes", path,
                         PASSWORD_BYTES_MAX);
    return *out ? 0 : error_set(err, QUIRE_EINVALID, "the first line of %s is empty: write the password there", path);
}

int quire_top_verb(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    struct top_options top = {.address = {.host = "127.0.0.1"}, .interval_s = 1};
    const char *password_file = NULL;
    char password[PASSWORD_BYTES_MAX + 2];
    uint64_t port = 6379;
    bool once = false;
    int table = TOP_TENANTS, sort = TOP_SORT_RATE, code, signal_number = 0;
    const struct cli_option options[] = {
        CLI_OPTION("host", CLI_TEXT, &top.address.host, "NAME", "where the server listens"),
        CLI_OPTION("port", CLI_COUNT, &port, "N", "its port", CLI_RANGE(1, 65535)),
        CLI_OPTION("unix", CLI_TEXT, &top.address.unix_path, "PATH", "its Unix socket, in place of host and port"),
        CLI_OPTION("user", CLI_TEXT, &top.address.user, "NAME", "of the ACL; without it the default user"),
        CLI_OPTION("password-file", CLI_TEXT, &password_file, "FILE", "its first line; goes before QUIRE_PASSWORD"),
        CLI_OPTION("interval", CLI_REAL, &top.interval_s, "S", "seconds between frames, from 0.1 on",
                   CLI_RANGE(0, TOP_INTERVAL_MAX_S)),
        CLI_OPTION("count", CLI_COUNT, &top.count, "N", "frames, then it ends; 0: until it is ended"),
        CLI_OPTION("once", CLI_FLAG, &once, NULL, "one frame of plain text, with the rates of one interval"),
        CLI_OPTION("table", CLI_CHOICE, &table, NULL, "shown first in the live view", .choices = tables),
        CLI_OPTION("sort", CLI_CHOICE, &sort, NULL, "rows of tables", .choices = sorts),
    };
    const struct cli_verb verb = {"quire top", summary, "", 0, options, sizeof options / sizeof *options, examples};
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (top.interval_s < TOP_INTERVAL_MIN_S)
        return cli_mistake(&cli, "--interval %g: it must be from %g to %u seconds", top.interval_s, TOP_INTERVAL_MIN_S,
                           (unsigned)TOP_INTERVAL_MAX_S);
    if (once && top.count > 1)
        return cli_mistake(&cli, "--once is one frame, and --count asks for %llu", (unsigned long long)top.count);
    if (password_file) {
        int rc = read_password(password_file, password, &err);
        if (rc < 0)
            return cli_fail(&cli, rc, &err);
        top.address.password = password;
    } else {
        const char *variable = getenv("QUIRE_PASSWORD");
        top.address.password = variable && *variable ? variable : NULL;
    }
    if (top.address.user && !top.address.password)
        return cli_mistake(&cli, "--user %s needs a password: --password-file FILE, or QUIRE_PASSWORD",
                           top.address.user);
    top.address.port = (uint16_t)port;
    top.table = (enum top_table)table;
    top.sort = (enum top_sort)sort;
    top.text = once;
    top.json = cli.json;
    top.count = once ? 1 : top.count;
    int rc = top_run(&top, &signal_number, &err);
    return rc < 0 ? cli_fail(&cli, rc, &err) : signal_number ? CLI_SIGNAL + signal_number : CLI_OK;
}
