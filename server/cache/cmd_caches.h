/* cmd_caches.h - commands of semantic caches: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_CACHES_H
#define QUIRE_SERVER_CMD_CACHES_H

#include "server/call/caller.h"

command_fn cmd_sc_audit_get, cmd_sc_audit_pop, cmd_sc_audit_put, cmd_sc_cat_del, cmd_sc_cat_get, cmd_sc_cat_list,
    cmd_sc_cat_set, cmd_sc_create, cmd_sc_del, cmd_sc_drop, cmd_sc_export, cmd_sc_fail, cmd_sc_feedback, cmd_sc_get,
    cmd_sc_hist, cmd_sc_import, cmd_sc_info, cmd_sc_invalidate, cmd_sc_list, cmd_sc_load, cmd_sc_neg, cmd_sc_pin,
    cmd_sc_put, cmd_sc_renew, cmd_sc_sample, cmd_sc_scan, cmd_sc_stats, cmd_sc_top, cmd_sc_touch, cmd_sc_tune,
    cmd_sc_unpin;

#endif
