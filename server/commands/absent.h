/* absent.h - what Redis has and this server has not: so that "unknown command" says why. */
#ifndef QUIRE_SERVER_ABSENT_H
#define QUIRE_SERVER_ABSENT_H

#include "server/protocol/arg.h"

/* What kind of thing the command is about, as "lists"; NULL: nothing known of that name. */
const char *absent_kind(struct resp_arg command);

#endif
