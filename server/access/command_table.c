/*
 * command_table.c - looking up commands.
 *
 * Look-up is a hash of the upper-case name into a small open-addressing table that is filled when the rows are given;
 * sub-commands follow their container in the table and are found by a short scan.
 */
#include "server/access/command_table.h"
#include "server/process/config.h"
#include <assert.h>
#include <string.h>
#include <strings.h>

/* The one table of the process: constant from command_table_set on. */
const struct command *commands;
unsigned n_commands;
static uint16_t places[2 * COMMANDS_MAX]; /* open addressing: row + 1 of the table, 0: free */

static unsigned hash_name(const uint8_t *name, size_t bytes)
{
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (name[i] | 0x20u)) * 16777619u;
    return hash % (2 * COMMANDS_MAX);
}

void command_table_set(const struct command *rows, unsigned n)
{
    assert(n < COMMANDS_MAX && (!commands || commands == rows));
    if (commands)
        return;
    commands = rows;
    n_commands = n;
    for (unsigned row = 0; row < n_commands; row++) {
        const char *name = commands[row].name;
        if (strchr(name, '|'))
            continue;
        unsigned at = hash_name((const uint8_t *)name, commands[row].name_bytes);
        while (places[at])
            at = (at + 1) % (2 * COMMANDS_MAX);
        places[at] = (uint16_t)(row + 1);
    }
}

int command_find_top(const void *name, size_t bytes)
{
    for (unsigned at = hash_name(name, bytes); places[at]; at = (at + 1) % (2 * COMMANDS_MAX)) {
        const struct command *candidate = &commands[places[at] - 1];
        if (candidate->name_bytes == bytes && strncasecmp(candidate->name, name, bytes) == 0)
            return places[at] - 1;
    }
    return -1;
}

bool command_is_sub(const struct command *command, const struct command *container)
{
    return command->name_bytes > container->name_bytes && command->name[container->name_bytes] == '|' &&
           memcmp(command->name, container->name, container->name_bytes) == 0;
}

int command_find_sub(unsigned container, const void *name, size_t bytes)
{
    size_t prefix = commands[container].name_bytes + 1;
    for (unsigned row = container + 1; row < n_commands && command_is_sub(&commands[row], &commands[container]); row++)
        if (commands[row].name_bytes == prefix + bytes && strncasecmp(commands[row].name + prefix, name, bytes) == 0)
            return (int)row;
    return -1;
}

int command_find(const void *name, size_t bytes)
{
    const uint8_t *bar = memchr(name, '|', bytes), *text = name;
    int row = command_find_top(text, bar ? (size_t)(bar - text) : bytes);
    return row >= 0 && bar ? command_find_sub((unsigned)row, bar + 1, bytes - (size_t)(bar - text) - 1) : row;
}

/* args[0] names a command whose arguments follow, of which at least i + 1 are there. A name that is no command may be a
 * password in its place. */
static bool inner_arg_is_secret(const struct resp_arg *args, uint32_t i)
{
    int row = command_find_top(args[0].data, args[0].bytes), sub = -1;
    if (row >= 0 && i > 0)
        sub = command_find_sub((unsigned)row, args[1].data, args[1].bytes);
    return row >= 0 && command_arg_is_secret(sub >= 0 ? (unsigned)sub : (unsigned)row, args, i);
}

bool command_arg_is_secret(unsigned row, const struct resp_arg *args, uint32_t i)
{
    const char *name = commands[row].name;
    if (strcmp(name, "auth") == 0)
        return i > 0;
    if (strcmp(name, "hello") == 0)
        return (i > 1 && arg_is(args[i - 1], "AUTH")) || (i > 2 && arg_is(args[i - 2], "AUTH"));
    /* a command within a command */
    uint32_t inner = strcmp(name, "command|getkeys") == 0 || strcmp(name, "command|getkeysandflags") == 0 ? 2
                     : strcmp(name, "acl|dryrun") == 0                                                    ? 3
                                                                                                          : 0;
    if (inner > 0 && i >= inner)
        return inner_arg_is_secret(args + inner, i - inner);
    if (strcmp(name, "config|set") == 0)
        return i > 2 && i % 2 == 1 && config_is_secret((const char *)args[i - 1].data, args[i - 1].bytes);
    return strcmp(name, "acl|setuser") == 0 && i > 2;
}
