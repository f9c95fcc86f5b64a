/* cmd_jsons.h - commands of JSON documents: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_JSONS_H
#define QUIRE_SERVER_CMD_JSONS_H

#include "server/call/caller.h"

command_fn cmd_json_arrappend, cmd_json_arrindex, cmd_json_arrinsert, cmd_json_arrlen, cmd_json_arrpop,
    cmd_json_arrtrim, cmd_json_clear, cmd_json_debug_memory, cmd_json_del, cmd_json_get, cmd_json_merge, cmd_json_mget,
    cmd_json_mset, cmd_json_numincrby, cmd_json_nummultby, cmd_json_objkeys, cmd_json_objlen, cmd_json_resp,
    cmd_json_set, cmd_json_strappend, cmd_json_strlen, cmd_json_toggle, cmd_json_type;

#endif
