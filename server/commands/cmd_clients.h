/* cmd_clients.h - the handlers of this room, for the table (commands.def): connections, transactions, what is slow. */
#ifndef QUIRE_SERVER_CMD_CLIENTS_H
#define QUIRE_SERVER_CMD_CLIENTS_H

#include "server/call/caller.h"

command_fn cmd_auth, cmd_client_getname, cmd_client_getredir, cmd_client_id, cmd_client_info, cmd_client_kill,
    cmd_client_list, cmd_client_flag, cmd_client_pause, cmd_client_reply, cmd_client_setinfo, cmd_client_setname,
    cmd_client_tracking, cmd_client_unpause, cmd_cluster_info, cmd_cluster_keyslot, cmd_cluster_myid, cmd_cluster_nodes,
    cmd_cluster_shards, cmd_cluster_slots, transaction_discard, cmd_echo, transaction_exec, cmd_hello, latency_doctor,
    latency_graph, latency_histogram, latency_history, latency_latest, latency_reset, monitor_begin, transaction_multi,
    cmd_ping, cmd_quit, cmd_readonly, cmd_reset, cmd_select, slowlog_get, slowlog_len, slowlog_reset,
    transaction_unwatch, transaction_watch, cmd_wait;

#endif
