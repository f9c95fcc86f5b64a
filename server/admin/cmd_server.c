/*
 * cmd_server.c - COMMAND, INFO, LOGTAIL, TIME, ROLE, SHUTDOWN: what concerns the server as a whole.
 *
 * COMMAND answers what Redis 7 answers, entry by entry, from the one table; redis-cli builds its hints from it and
 * cluster clients their routing.
 */
#include "server/access/command_table.h"
#include "server/admin/cmd_admin.h"
#include "server/admin/info.h"
#include "server/commands/command.h"
#include "server/commands/modules.h"
#include "server/process/log.h"
#include "server/protocol/glob.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINES = 100 };

/* ---- COMMAND ----------------------------------------------------------------------------------------------------- */

static unsigned count_subs(unsigned row)
{
    unsigned n = 0;
    while (row + 1 + n < n_commands && command_is_sub(&commands[row + 1 + n], &commands[row]))
        n++;
    return n;
}

static void put_flags(struct resp_buffer *out, unsigned flags)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {{CMD_READ, "readonly"},  {CMD_WRITE, "write"},     {CMD_FAST, "fast"},        {CMD_ADMIN, "admin"},
                 {CMD_NOAUTH, "no_auth"}, {CMD_DENYOOM, "denyoom"}, {CMD_NO_MULTI, "no_multi"}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        count += (flags & names[i].flag) != 0;
    resp_set(out, count);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (flags & names[i].flag)
            resp_simple(out, names[i].name);
}

static void put_categories(struct resp_buffer *out, const struct command *command)
{
    char word[32];
    size_t count = 0;
    for (unsigned i = 0; command_category_name(i); i++)
        count += command_in_category(command, i);
    resp_set(out, count);
    for (unsigned i = 0; command_category_name(i); i++)
        if (command_in_category(command, i)) {
            snprintf(word, sizeof word, "@%s", command_category_name(i));
            resp_simple(out, word);
        }
}

/* The ten fields of an entry of COMMAND and COMMAND INFO. */
static void put_command(struct resp_buffer *out, unsigned row)
{
    const struct command *command = &commands[row];
    unsigned subs = count_subs(row);
    resp_array(out, 10);
    resp_text(out, command->name);
    resp_integer(out, command->arity);
    put_flags(out, command->flags);
    resp_integer(out, command->first_key);
    resp_integer(out, command->last_key);
    resp_integer(out, command->key_step);
    put_categories(out, command);
    resp_array(out, 0); /* tips */
    resp_array(out, 0); /* key specifications: first, last and step say it all */
    resp_array(out, subs);
    for (unsigned i = 0; i < subs; i++)
        put_command(out, row + 1 + i);
}

static unsigned count_top(void)
{
    unsigned n = 0;
    for (unsigned row = 0; row < n_commands; row++)
        n += !strchr(commands[row].name, '|');
    return n;
}

/* COMMAND and COMMAND INFO: all commands, or those that are named. */
void cmd_command(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    if (n > COMMANDS_MAX + 2) {
        caller_error(caller, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, n > 2 ? n - 2 : count_top());
    for (unsigned row = 0; row < n_commands && n <= 2; row++)
        if (!strchr(commands[row].name, '|'))
            put_command(out, row);
    for (uint32_t i = 2; i < n; i++) {
        int row = command_find(args[i].data, args[i].bytes);
        if (row < 0)
            resp_null_array(out);
        else
            put_command(out, (unsigned)row);
    }
}

void cmd_command_count(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_integer(caller_reply(caller), count_top());
}

/* COMMAND LIST FILTERBY (MODULE name | ACLCAT category | PATTERN glob). */
void cmd_command_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    bool filter = n == 5 && arg_is(args[2], "FILTERBY"), module = filter && arg_is(args[3], "MODULE");
    bool by_category = filter && arg_is(args[3], "ACLCAT"), by_pattern = filter && arg_is(args[3], "PATTERN");
    int category = by_category ? command_category_find(args[4].data, args[4].bytes) : -1;
    bool shown[COMMANDS_MAX] = {false};
    unsigned count = 0;
    if (n != 2 && !module && !by_category && !by_pattern) {
        caller_error(caller, "ERR syntax error");
        return;
    }
    for (unsigned row = 0; row < n_commands; row++) {
        const char *name = commands[row].name;
        shown[row] = by_pattern    ? glob_matches((const char *)args[4].data, args[4].bytes, name)
                     : by_category ? category >= 0 && command_in_category(&commands[row], (unsigned)category)
                                   : !module && !strchr(name, '|'); /* no command is a module's */
        count += shown[row];
    }
    struct resp_buffer *out = caller_reply(caller);
    resp_set(out, count);
    for (unsigned row = 0; row < n_commands; row++)
        if (shown[row])
            resp_text(out, commands[row].name);
}

static void put_docs(struct resp_buffer *out, unsigned row)
{
    const struct command *command = &commands[row];
    unsigned subs = count_subs(row);
    bool arguments = command->syntax[0] != 0;
    resp_text(out, command->name);
    resp_map(out, 3 + (arguments ? 1u : 0u) + (subs ? 1u : 0u));
    resp_text(out, "summary");
    resp_text(out, command->summary);
    resp_text(out, "since");
    resp_text(out, command->since);
    resp_text(out, "group");
    resp_text(out, command->group);
    if (arguments) {
        resp_text(out, "arguments");
        command_docs_arguments(out, command);
    }
    if (subs) {
        resp_text(out, "subcommands");
        resp_map(out, subs);
        for (unsigned i = 0; i < subs; i++)
            put_docs(out, row + 1 + i);
    }
}

void cmd_command_docs(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    unsigned found = 0;
    if (n > COMMANDS_MAX + 2) {
        caller_error(caller, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = caller_reply(caller);
    for (uint32_t i = 2; i < n; i++)
        found += command_find(args[i].data, args[i].bytes) >= 0;
    resp_map(out, n == 2 ? count_top() : found);
    for (unsigned row = 0; row < n_commands && n == 2; row++)
        if (!strchr(commands[row].name, '|'))
            put_docs(out, row);
    for (uint32_t i = 2; i < n; i++) {
        int row = command_find(args[i].data, args[i].bytes);
        if (row >= 0)
            put_docs(out, (unsigned)row);
    }
}

/* HELP of any container, from its rows. */
void cmd_help(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct resp_buffer *out = caller_reply(caller);
    unsigned row = (unsigned)command_find(args[0].data, args[0].bytes);
    unsigned subs = count_subs(row);
    char line[256];
    resp_array(out, 2 * subs + 1);
    snprintf(line, sizeof line, "%s <subcommand> [<arg> ...]. Subcommands are:", commands[row].name);
    resp_simple(out, line);
    for (unsigned i = row + 1; i <= row + subs; i++) {
        snprintf(line, sizeof line, "%s %s", strchr(commands[i].name, '|') + 1, commands[i].syntax);
        resp_simple(out, line);
        snprintf(line, sizeof line, "    %s", commands[i].summary);
        resp_simple(out, line);
    }
}

/* ---- INFO, TIME, ROLE, SHUTDOWN ---------------------------------------------------------------------------------- */

/* The lines as they were written, oldest first; a whole one or none. */
void cmd_logtail(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    long long wanted = LOG_LINES;
    size_t lines = 0;
    if (n > 2 || (n == 2 && (!arg_integer(args[1], &wanted) || wanted < 1))) {
        caller_error(caller, "ERR syntax error: LOGTAIL [count], a number of lines from 1 up");
        return;
    }
    char *text = malloc(LOG_TAIL_BYTES);
    if (!text) {
        caller_error(caller, "ERR no memory for the tail of the log");
        return;
    }
    const char *first = text + log_read_tail(caller->lane->service->log, text), *end = first;
    while (first > text && (long long)lines < wanted) { /* behind a line break, or at the begin */
        lines++;
        for (first--; first > text && first[-1] != '\n';)
            first--;
    }
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, lines);
    for (const char *at = first; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        resp_bulk(out, at, (size_t)(stop - at));
        at = stop + 1;
    }
    free(text);
}

void cmd_info(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct resp_buffer text = {.protocol = 2};
    info_write(c->loop->server, args + 1, n - 1, &text);
    struct resp_buffer *out = client_reply(c);
    resp_verbatim(out, (const char *)text.data, text.bytes);
    out->failed |= text.failed;
    resp_buffer_fini(&text);
}

void cmd_time(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct timespec now;
    char text[32];
    (void)args;
    (void)n;
    clock_gettime(CLOCK_REALTIME, &now);
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, 2);
    snprintf(text, sizeof text, "%lld", (long long)now.tv_sec);
    resp_text(out, text);
    snprintf(text, sizeof text, "%ld", now.tv_nsec / 1000);
    resp_text(out, text);
}

/* RedisInsight asks before its first screen. */
void cmd_module_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    modules_put(caller->lane->service->config, caller_reply(caller));
}

void cmd_role(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, 3);
    resp_text(out, "master");
    resp_integer(out, 0);
    resp_array(out, 0);
}

/* NOSAVE, SAVE and FORCE change nothing: there is nothing to save, so nothing that saving could refuse. */
void cmd_shutdown(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    uint64_t one = 1;
    bool save = false, nosave = false, abort = false, now = false, known = true;
    for (uint32_t i = 1; i < n; i++) {
        save |= arg_is(args[i], "SAVE");
        nosave |= arg_is(args[i], "NOSAVE");
        now |= arg_is(args[i], "NOW");
        abort |= arg_is(args[i], "ABORT");
        known &= arg_is(args[i], "SAVE") || arg_is(args[i], "NOSAVE") || arg_is(args[i], "NOW") ||
                 arg_is(args[i], "FORCE") || arg_is(args[i], "ABORT");
    }
    if (!known || (save && nosave) || (abort && n > 2)) {
        caller_error(&c->caller, "ERR syntax error");
        return;
    }
    if (abort) {
        /* one that has begun ends all connections, this one too */
        caller_error(&c->caller, "ERR No shutdown in progress.");
        return;
    }
    log_line(c->loop->server->service.log, LOG_LEVEL_NOTICE, "client %llu asked for SHUTDOWN",
             (unsigned long long)c->caller.id);
    if (now)
        atomic_store(&c->loop->server->stop_now, true);
    ssize_t written = write(c->loop->server->stop_fd, &one, sizeof one);
    (void)written; /* full: somebody asked before */
    /* as in Redis there is no reply: the connection ends */
    client_end(c);
}

/* ---- COMMAND GETKEYS, GETKEYSANDFLAGS ---------------------------------------------------------------------------- */

void cmd_command_getkeys(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    bool with_flags = arg_is(args[1], "GETKEYSANDFLAGS");
    int row = command_find_request(args + 2, n - 2);
    if (row < 0) {
        caller_error(caller, "ERR Invalid command specified");
        return;
    }
    const struct command *command = &commands[row];
    if (command->first_key == 0) {
        caller_error(caller, "ERR The command has no key arguments");
        return;
    }
    if (!command_arity_fits(command, n - 2)) {
        caller_error(caller, "ERR Invalid number of arguments specified for command");
        return;
    }
    struct command_keys keys = command_keys(command, n - 2);
    unsigned access = command_key_access(command, args + 2, n - 2);
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, keys.n);
    for (uint32_t i = 0; i < keys.n; i++) {
        const struct resp_arg *key = &args[2 + keys.first + i * keys.step];
        if (with_flags)
            resp_array(out, 2);
        resp_bulk(out, key->data, key->bytes);
        if (!with_flags)
            continue;
        resp_set(out, access == (CMD_READ | CMD_WRITE) ? 3 : 2);
        resp_simple(out, access & CMD_WRITE ? "RW" : "RO");
        if (access & CMD_READ)
            resp_simple(out, "access");
        if (access & CMD_WRITE)
            resp_simple(out, "update");
    }
}
