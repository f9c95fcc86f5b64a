/* cmd_vectors.h - commands of vector sets: the handlers of this room, for the table (commands.def). */
#ifndef QUIRE_SERVER_CMD_VECTORS_H
#define QUIRE_SERVER_CMD_VECTORS_H

#include "server/call/caller.h"

command_fn cmd_vadd, cmd_vcard, cmd_vcheck, cmd_vcompact, cmd_vcount, cmd_vcreate, cmd_vdelwhere, cmd_vdim,
    cmd_vdroptenant, cmd_vemb, cmd_vgetattr, cmd_vgetgrants, cmd_vgrant, cmd_vinfo, cmd_vismember, cmd_vlinks,
    cmd_vload, cmd_vmsim, cmd_vrandmember, cmd_vrange, cmd_vrem, cmd_vrevoke, cmd_vseal, cmd_vsegments, cmd_vsetattr,
    cmd_vsim, cmd_vtenants;

#endif
