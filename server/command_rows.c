/*
 * command_rows.c - the only list of commands (commands.def), and the handlers that its rows name.
 *
 * It stands above all rooms: whoever looks commands up or runs them is given the rows as data.
 */
#include "server/command_rows.h"
#include "server/access/command_table.h"
#include "server/admin/cmd_admin.h"
#include "server/cache/cmd_caches.h"
#include "server/commands/cmd_clients.h"
#include "server/document/cmd_documents.h"
#include "server/dump/cmd_dumps.h"
#include "server/json/cmd_jsons.h"
#include "server/strings/cmd_strings.h"
#include "server/vector/cmd_vectors.h"

static const struct command rows[] = {
#define COMMAND_ROW(name, handler, arity, flags, first, last, step, group, since, summary, syntax)                     \
    {name, sizeof name - 1, handler, arity, flags, first, last, step, group, since, summary, syntax},
#include "server/commands.def"
#undef COMMAND_ROW
};
_Static_assert(sizeof rows / sizeof *rows < COMMANDS_MAX, "raise COMMANDS_MAX");

void command_rows_set(void)
{
    command_table_set(rows, sizeof rows / sizeof *rows);
}
