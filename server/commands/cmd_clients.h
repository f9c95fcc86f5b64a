/* cmd_clients.h - the handlers of this room, for the table (commands.def): connections, transactions, what is slow. */
#ifndef QUIRE_SERVER_CMD_CLIENTS_H
#define QUIRE_SERVER_CMD_CLIENTS_H

#include "server/call/caller.h"

command_fn cmd_auth, cmd_client_getname, cmd_client_getredir, cmd_client_id, cmd_client_info, cmd_client_kill,
    cmd_client_list, cmd_client_no_evict, cmd_client_no_touch, cmd_client_pause, cmd_client_reply, cmd_client_setinfo,
    cmd_client_setname, cmd_client_tracking, cmd_client_unpause, cmd_discard, cmd_echo, cmd_exec, cmd_hello,
    cmd_latency_doctor, cmd_latency_graph, cmd_latency_histogram, cmd_latency_history, cmd_latency_latest,
    cmd_latency_reset, cmd_monitor, cmd_multi, cmd_ping, cmd_quit, cmd_reset, cmd_select, cmd_slowlog_get,
    cmd_slowlog_len, cmd_slowlog_reset, cmd_unwatch, cmd_watch;

#endif
