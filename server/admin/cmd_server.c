/*
 * cmd_server.c - COMMAND, INFO, TIME, ROLE, SHUTDOWN: what concerns the server as a whole.
 *
 * COMMAND answers what Redis 7 answers, entry by entry, from the one table; redis-cli builds its hints from it and
 * cluster clients their routing.
 */
#include "server/admin/cmd_admin.h"
#include "server/admin/info.h"
#include "server/commands/command.h"
#include "server/protocol/glob.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- COMMAND ----------------------------------------------------------------------------------------------------- */

static void put_words(struct resp_buffer *out, const char *const *words, const bool *present, unsigned n)
{
    size_t count = 0;
    for (unsigned i = 0; i < n; i++)
        count += present[i];
    resp_set(out, count);
    for (unsigned i = 0; i < n; i++)
        if (present[i])
            resp_simple(out, words[i]);
}

static unsigned count_subs(unsigned row)
{
    unsigned n = 0;
    while (row + 1 + n < n_commands && command_is_sub(&commands[row + 1 + n], &commands[row]))
        n++;
    return n;
}

static void put_flags(struct resp_buffer *out, const struct command *command)
{
    static const char *const flags[] = {"readonly", "write", "fast", "admin", "no_auth", "denyoom", "no_multi"};
    const bool present[] = {command->flags & CMD_READ,    command->flags & CMD_WRITE,  command->flags & CMD_FAST,
                            command->flags & CMD_ADMIN,   command->flags & CMD_NOAUTH, command->flags & CMD_DENYOOM,
                            command->flags & CMD_NO_MULTI};
    put_words(out, flags, present, 7);
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
    put_flags(out, command);
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

static void put_all(struct client *c, struct resp_buffer *out)
{
    (void)c;
    resp_array(out, count_top());
    for (unsigned row = 0; row < n_commands; row++)
        if (!strchr(commands[row].name, '|'))
            put_command(out, row);
}

void cmd_command(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    put_all(c, client_reply(c));
}

void cmd_command_info(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    if (n > COMMANDS_MAX + 2) {
        caller_error(&c->caller, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = client_reply(c);
    if (n == 2) {
        put_all(c, out);
        return;
    }
    resp_array(out, n - 2);
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
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    resp_integer(client_reply(c), count_top());
}

/* COMMAND LIST FILTERBY (MODULE name | ACLCAT category | PATTERN glob). */
struct list_filter {
    struct resp_arg module, category, pattern; /* data NULL: not asked for */
};

static bool passes(const struct list_filter *f, unsigned row)
{
    if (f->pattern.data)
        return glob_matches((const char *)f->pattern.data, f->pattern.bytes, commands[row].name);
    if (!f->category.data)
        return !f->module.data; /* no command is a module's */
    int category = command_category_find(f->category.data, f->category.bytes);
    return category >= 0 && command_in_category(&commands[row], (unsigned)category);
}

void cmd_command_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct list_filter filter = {0};
    struct resp_arg *place = NULL;
    unsigned count = 0;
    if (n == 5 && arg_is(args[2], "FILTERBY"))
        place = arg_is(args[3], "MODULE")    ? &filter.module
                : arg_is(args[3], "ACLCAT")  ? &filter.category
                : arg_is(args[3], "PATTERN") ? &filter.pattern
                                             : NULL;
    if (n != 2 && !place) {
        caller_error(&c->caller, "ERR syntax error");
        return;
    }
    if (place)
        *place = args[4];
    for (unsigned row = 0; row < n_commands; row++)
        count += (place || !strchr(commands[row].name, '|')) && passes(&filter, row);
    struct resp_buffer *out = client_reply(c);
    resp_set(out, count);
    for (unsigned row = 0; row < n_commands; row++)
        if ((place || !strchr(commands[row].name, '|')) && passes(&filter, row))
            resp_text(out, commands[row].name);
}

static void put_docs(struct resp_buffer *out, unsigned row)
{
    const struct command *command = &commands[row];
    unsigned subs = count_subs(row);
    bool arguments = command_has_arguments(command);
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
    struct client *c = client_of(caller);
    unsigned found = 0;
    if (n > COMMANDS_MAX + 2) {
        caller_error(&c->caller, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = client_reply(c);
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
    struct client *c = client_of(caller);
    (void)n;
    struct resp_buffer *out = client_reply(c);
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
    struct client *c = client_of(caller);
    struct timespec now;
    char text[32];
    (void)args;
    (void)n;
    clock_gettime(CLOCK_REALTIME, &now);
    struct resp_buffer *out = client_reply(c);
    resp_array(out, 2);
    snprintf(text, sizeof text, "%lld", (long long)now.tv_sec);
    resp_text(out, text);
    snprintf(text, sizeof text, "%ld", now.tv_nsec / 1000);
    resp_text(out, text);
}

/* As Redis without modules: RedisInsight asks before its first screen. */
void cmd_module_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    resp_array(client_reply(c), 0);
}

void cmd_role(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    struct resp_buffer *out = client_reply(c);
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

static void put_access(struct resp_buffer *out, unsigned access)
{
    resp_set(out, access == (CMD_READ | CMD_WRITE) ? 3 : 2);
    resp_simple(out, access & CMD_WRITE ? "RW" : "RO");
    if (access & CMD_READ)
        resp_simple(out, "access");
    if (access & CMD_WRITE)
        resp_simple(out, "update");
}

static void get_keys(struct client *c, const struct resp_arg *args, uint32_t n, bool with_flags)
{
    int row = command_find_request(args, n);
    if (row < 0) {
        caller_error(&c->caller, "ERR Invalid command specified");
        return;
    }
    const struct command *command = &commands[row];
    if (command->first_key == 0) {
        caller_error(&c->caller, "ERR The command has no key arguments");
        return;
    }
    if (!command_arity_fits(command, n)) {
        caller_error(&c->caller, "ERR Invalid number of arguments specified for command");
        return;
    }
    struct command_keys keys = command_keys(command, n);
    struct resp_buffer *out = client_reply(c);
    resp_array(out, keys.n);
    for (uint32_t i = 0; i < keys.n; i++) {
        const struct resp_arg *key = &args[keys.first + i * keys.step];
        if (with_flags)
            resp_array(out, 2);
        resp_bulk(out, key->data, key->bytes);
        if (with_flags)
            put_access(out, command_key_access(command, args, n));
    }
}

void cmd_command_getkeys(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    get_keys(c, args + 2, n - 2, false);
}

void cmd_command_getkeysandflags(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    get_keys(c, args + 2, n - 2, true);
}
