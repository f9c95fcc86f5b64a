/* cmd_admin.h - commands for operators, and about commands: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_ADMIN_H
#define QUIRE_SERVER_CMD_ADMIN_H

#include "server/call/caller.h"

command_fn cmd_acl_cat, cmd_acl_deluser, cmd_acl_dryrun, cmd_acl_genpass, cmd_acl_getuser, cmd_acl_list, cmd_acl_file,
    cmd_acl_log, cmd_acl_setuser, cmd_acl_whoami, snapshot_bgrewriteaof, snapshot_bgsave, cmd_command,
    cmd_command_count, cmd_command_docs, cmd_command_getkeys, cmd_command_list, cmd_config_get, cmd_config_resetstat,
    cmd_config_rewrite, cmd_config_set, cmd_debug_active_expire, cmd_debug_digest, cmd_debug_digest_value,
    cmd_debug_object, cmd_debug_reload, cmd_debug_sleep, cmd_help, cmd_info, snapshot_lastsave, cmd_logtail,
    cmd_memory_doctor, cmd_memory_malloc_stats, cmd_memory_purge, cmd_memory_stats, cmd_memory_usage, cmd_module_list,
    cmd_role, snapshot_save, cmd_shutdown, cmd_time;

#endif
