/*
 * command_table.h - the table of commands as data: from the words of a request to a row; what a row says of access.
 *
 * The rows (commands.def) name handlers of all rooms, so they are given from above, once, before anything runs
 * (command_rows.h). A user of the ACL has a bit per row; statistics have a counter per row.
 */
#ifndef QUIRE_SERVER_COMMAND_TABLE_H
#define QUIRE_SERVER_COMMAND_TABLE_H

#include "server/call/caller.h"

enum command_flags {
    CMD_READ = 1,
    CMD_WRITE = 2,
    CMD_FAST = 4,
    CMD_ADMIN = 8,
    CMD_NOAUTH = 16,       /* allowed before the password was given */
    CMD_DENYOOM = 32,      /* may make the keyspace grow: refused above maxmemory */
    CMD_DANGEROUS = 256,   /* of category @dangerous without being for administrators */
    CMD_READS_TOO = 512,   /* with CMD_WRITE: shows or copies what a key holds, so it needs the right to read it */
    CMD_READS_OLD = 1024,  /* the same where the word GET stands among its options */
    CMD_READS_DRY = 65536, /* the same where the word DRYRUN does: the count tells what is there */
    CMD_VALUES = 128,      /* needs values of hashes, which may be on the disk (call/key_values.h) */
    CMD_REPLACES = 64,     /* puts a string in the place of whatever a key holds, a vector set, too */
    CMD_NO_MULTI = 2048,   /* refused between MULTI and EXEC: it takes long, or ends the server */
    CMD_TENANT = 4096, /* of vector sets: keeps to what the client's user may see, so one bound to tenants may run it */
    CMD_SHOWS_ALL = 8192, /* refused to users who are bound to tenants: it tells of what they must not see */
    CMD_ASKS_DISK =
        16384, /* with CMD_WRITE: may have to ask the disk first, which a transaction does for it (planner.h) */
    CMD_RENAMES = 32768 /* the first key gets the name of the second */
};

struct command {
    const char *name;
    size_t name_bytes;
    command_fn *run; /* NULL: a container that needs a sub-command */
    int arity;
    unsigned flags;
    int first_key, last_key, key_step;
    const char *group, *since, *summary, *syntax;
};

extern const struct command *commands;
extern unsigned n_commands;

/* The rows, n below COMMANDS_MAX, sub-commands behind their container; they stay. Again with the same rows: nothing. */
void command_table_set(const struct command *rows, unsigned n);

/* The row of a name such as "ping" or "config|get" in any case, -1 where there is none. */
int command_find(const void *name, size_t bytes);
/* The same for a name without '|', and for a sub-command of a row. */
int command_find_top(const void *name, size_t bytes);
int command_find_sub(unsigned container, const void *name, size_t bytes);
/* Whether `command` is a sub-command of `container`. */
bool command_is_sub(const struct command *command, const struct command *container);
/* Whether args[i] must not show in MONITOR and SLOWLOG. */
bool command_arg_is_secret(unsigned row, const struct resp_arg *args, uint32_t i);

/* The structured arguments of COMMAND DOCS, from the row's syntax; nothing where there are none. */
void command_docs_arguments(struct resp_buffer *out, const struct command *command);

/* ---- access: command_access.c ------------------------------------------------------------------------------------ */

/* The name of a category without '@', NULL behind the last; the number of a name, -1 where there is none. */
const char *command_category_name(unsigned category);
int command_category_find(const void *name, size_t bytes);
bool command_in_category(const struct command *command, unsigned category);
/* Keys of a request of n arguments: args[first + i * step], i below keys.n. */
struct command_keys {
    uint32_t first, step, n;
};
struct command_keys command_keys(const struct command *command, uint32_t n);
/* What a request does with its keys: CMD_READ, CMD_WRITE, both or (no keys) nothing. */
unsigned command_key_access(const struct command *command, const struct resp_arg *args, uint32_t n);
bool command_arity_fits(const struct command *command, uint32_t n);
/* The row of a request's words, -1 where there is none. */
int command_find_request(const struct resp_arg *args, uint32_t n);

#endif
