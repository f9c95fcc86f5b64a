/* cmd_dumps.h - values as one piece: the handlers of this room, for the table (commands.def), and COPY of a set. */
#ifndef QUIRE_SERVER_CMD_DUMPS_H
#define QUIRE_SERVER_CMD_DUMPS_H

#include "server/call/caller.h"
#include "server/dump/transfer.h"

command_fn cmd_dump, cmd_restore;

/* Copies a vector set, a reference to which is taken over, in the background, or in EXEC at once; replies 1, 0 (the key
 * is taken) or an error. */
void cmd_copy_set(struct caller *c, struct collection *from, const struct transfer_target *to);

#endif
