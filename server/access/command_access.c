/*
 * command_access.c - what a row of the command table says about access: its categories, and the keys of a request.
 *
 * Both are derived from the row, so that a command that is added to commands.def is right in COMMAND, in the ACL and in
 * COMMAND GETKEYS at once. Categories follow from flags and group. Names of categories that no command here belongs to
 * (lists, scripts, ...) are known all the same: rules written for Redis, such as "-@scripting", must be taken.
 *
 * Keys lie at first_key, first_key + step, ... up to last_key, counted from the command's name; a negative last_key
 * counts from the request's end. There is no command whose keys lie elsewhere.
 */
#include "server/access/command_table.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *group; /* every command of the group */
    unsigned flags;           /* every command with one of them */
} categories[] = {
    {"keyspace", "generic", 0},
    {"read", NULL, CMD_READ},
    {"write", NULL, CMD_WRITE},
    {"set", "set", 0},
    {"sortedset", "sorted_set", 0},
    {"list", "list", 0},
    {"hash", "hash", 0},
    {"string", "string", 0},
    {"bitmap", "bitmap", 0},
    {"hyperloglog", "hyperloglog", 0},
    {"geo", "geo", 0},
    {"stream", "stream", 0},
    {"pubsub", "pubsub", 0},
    {"admin", NULL, CMD_ADMIN},
    {"fast", NULL, CMD_FAST},
    {"slow", NULL, 0},
    {"blocking", NULL, 0},
    {"dangerous", NULL, CMD_ADMIN | CMD_DANGEROUS},
    {"connection", "connection", 0},
    {"transaction", "transactions", 0},
    {"scripting", "scripting", 0},
    {"vectorset", "vector_set", 0},
    {"cache", "cache", 0},
    {"search", "search", 0},
    {"json", "json", 0},
};

const char *command_category_name(unsigned category)
{
    return category < sizeof categories / sizeof *categories ? categories[category].name : NULL;
}

int command_category_find(const void *name, size_t bytes)
{
    for (unsigned i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strlen(categories[i].name) == bytes && strncasecmp(categories[i].name, name, bytes) == 0)
            return (int)i;
    return -1;
}

bool command_in_category(const struct command *command, unsigned category)
{
    const char *group = categories[category].group;
    if (strcmp(categories[category].name, "slow") == 0)
        return !(command->flags & CMD_FAST);
    /* DBSIZE, FLUSHALL */
    if (category == 0 && strcmp(command->group, "server") == 0 && (command->flags & (CMD_READ | CMD_WRITE)))
        return true;
    return (command->flags & categories[category].flags) || (group && strcmp(command->group, group) == 0);
}

struct command_keys command_keys(const struct command *command, uint32_t n)
{
    struct command_keys keys = {0, 1, 0};
    int64_t last = command->last_key < 0 ? (int64_t)n + command->last_key : command->last_key;
    last = last < n ? last : (int64_t)n - 1;
    if (command->first_key <= 0 || last < command->first_key)
        return keys;
    keys.first = (uint32_t)command->first_key;
    keys.step = command->key_step > 0 ? (uint32_t)command->key_step : 1;
    keys.n = (uint32_t)(last - command->first_key) / keys.step + 1;
    return keys;
}

unsigned command_key_access(const struct command *command, const struct resp_arg *args, uint32_t n)
{
    unsigned access = command->flags & (CMD_READ | CMD_WRITE);
    bool reads = command->flags & CMD_READS_TOO;
    for (uint32_t i = 3; i < n && (command->flags & CMD_READS_OLD); i++)
        reads |= arg_is(args[i], "GET");
    for (uint32_t i = 2; i < n && (command->flags & CMD_READS_DRY); i++)
        reads |= arg_is(args[i], "DRYRUN");
    return reads ? access | CMD_READ : access;
}

bool command_arity_fits(const struct command *command, uint32_t n)
{
    return command->arity >= 0 ? n == (uint32_t)command->arity : n >= (uint32_t)-command->arity;
}

int command_find_request(const struct resp_arg *args, uint32_t n)
{
    char name[64];
    int row = command_find(args[0].data, args[0].bytes);
    if (row < 0 || n < 2 || (unsigned)row + 1 >= n_commands || !command_is_sub(&commands[row + 1], &commands[row]))
        return row;
    if (memchr(args[0].data, '|', args[0].bytes))
        return -1;
    int length = snprintf(name, sizeof name, "%s|%.*s", commands[row].name, ARG_SHOWN(args[1], 31u));
    int sub = command_find(name, (size_t)length);
    return sub >= 0 && commands[sub].name_bytes == commands[row].name_bytes + 1 + args[1].bytes ? sub : -1;
}
