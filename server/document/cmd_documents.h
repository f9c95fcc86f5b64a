/* cmd_documents.h - commands of indexes of documents: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_DOCUMENTS_H
#define QUIRE_SERVER_CMD_DOCUMENTS_H

#include "server/call/caller.h"

command_fn cmd_ft_aggregate, cmd_ft_alias, cmd_ft_aliasdel, cmd_ft_alter, cmd_ft_config, cmd_ft_create, cmd_ft_cursor,
    cmd_ft_dropindex, cmd_ft_explain, cmd_ft_info, cmd_ft_list, cmd_ft_refused, cmd_ft_search, cmd_ft_tagvals;

#endif
