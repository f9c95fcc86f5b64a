/*
 * cmd_server.c - COMMAND, CONFIG, INFO, SHUTDOWN: what concerns the server as a whole.
 *
 * COMMAND answers what Redis 7 answers, entry by entry, from the one table; redis-cli builds its hints from it and
 * cluster clients their routing.
 */
#include "server/command.h"
#include <stdio.h>
#include <string.h>
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
    for (unsigned i = 0; category_name(i); i++)
        count += command_in_category(command, i);
    resp_set(out, count);
    for (unsigned i = 0; category_name(i); i++)
        if (command_in_category(command, i)) {
            snprintf(word, sizeof word, "@%s", category_name(i));
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

void cmd_command(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    put_all(c, client_reply(c));
}

void cmd_command_info(struct client *c, const struct resp_arg *args, uint32_t n)
{
    if (n > COMMANDS_MAX + 2) {
        client_error(c, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = client_reply(c);
    if (n == 2) {
        put_all(c, out);
        return;
    }
    resp_array(out, n - 2);
    for (uint32_t i = 2; i < n; i++) {
        int row = command_find(c->lane->server->command_index, args[i].data, args[i].bytes);
        if (row < 0)
            resp_null_array(out);
        else
            put_command(out, (unsigned)row);
    }
}

void cmd_command_count(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_integer(client_reply(c), count_top());
}

void cmd_command_list(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    struct resp_buffer *out = client_reply(c);
    resp_set(out, count_top());
    for (unsigned row = 0; row < n_commands; row++)
        if (!strchr(commands[row].name, '|'))
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

void cmd_command_docs(struct client *c, const struct resp_arg *args, uint32_t n)
{
    unsigned found = 0;
    if (n > COMMANDS_MAX + 2) {
        client_error(c, "ERR more than %d names", COMMANDS_MAX);
        return;
    }
    struct resp_buffer *out = client_reply(c);
    for (uint32_t i = 2; i < n; i++)
        found += command_find(c->lane->server->command_index, args[i].data, args[i].bytes) >= 0;
    resp_map(out, n == 2 ? count_top() : found);
    for (unsigned row = 0; row < n_commands && n == 2; row++)
        if (!strchr(commands[row].name, '|'))
            put_docs(out, row);
    for (uint32_t i = 2; i < n; i++) {
        int row = command_find(c->lane->server->command_index, args[i].data, args[i].bytes);
        if (row >= 0)
            put_docs(out, (unsigned)row);
    }
}

/* HELP of any container, from its rows. */
void cmd_help(struct client *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct resp_buffer *out = client_reply(c);
    unsigned row = (unsigned)command_find(c->lane->server->command_index, args[0].data, args[0].bytes);
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

/* ---- CONFIG, INFO, SHUTDOWN -------------------------------------------------------------------------------------- */

struct matches {
    const struct resp_arg *patterns;
    uint32_t n_patterns;
    struct resp_buffer *out; /* NULL: count only */
    size_t found;
};

static void match_setting(void *context, const char *name, const char *value, const char *help)
{
    struct matches *m = context;
    (void)help;
    bool found = false;
    for (uint32_t i = 0; i < m->n_patterns && !found; i++)
        found = glob_matches((const char *)m->patterns[i].data, m->patterns[i].bytes, name);
    if (!found)
        return;
    m->found++;
    if (m->out) {
        resp_text(m->out, name);
        resp_text(m->out, value);
    }
}

void cmd_config_get(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct matches m = {.patterns = args + 2, .n_patterns = n - 2};
    config_each(c->lane->server->config, match_setting, &m);
    m.out = client_reply(c);
    resp_map(m.out, m.found);
    config_each(c->lane->server->config, match_setting, &m);
}

void cmd_info(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct resp_buffer text = {.protocol = 2};
    info_write(c->lane->server, args + 1, n - 1, &text);
    struct resp_buffer *out = client_reply(c);
    resp_verbatim(out, (const char *)text.data, text.bytes);
    out->failed |= text.failed;
    resp_buffer_fini(&text);
}

void cmd_shutdown(struct client *c, const struct resp_arg *args, uint32_t n)
{
    uint64_t one = 1;
    if (n > 2 || (n == 2 && !arg_is(args[1], "NOSAVE") && !arg_is(args[1], "SAVE"))) {
        client_error(c, "ERR syntax error");
        return;
    }
    log_line(c->lane->server->log, LOG_LEVEL_NOTICE, "client %llu asked for SHUTDOWN", (unsigned long long)c->id);
    ssize_t written = write(c->lane->server->stop_fd, &one, sizeof one);
    (void)written; /* full: somebody asked before */
    /* as in Redis there is no reply: the connection ends */
    client_end(c);
}
