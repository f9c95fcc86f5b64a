/*
 * command.h - running commands for the network's clients: look-up, admission, the call, time and errors counted.
 */
#ifndef QUIRE_SERVER_COMMAND_H
#define QUIRE_SERVER_COMMAND_H

#include "server/net/client.h"

/* How clients' requests are run. */
extern const struct dispatcher command_dispatcher;

/* Around a batch of requests. */
void command_begin_timing(struct loop *loop);
void command_end_timing(struct loop *loop);
/* Calls the handler of a request that was admitted; counts and times it. Nests: EXEC calls it for what waited. */
void command_call(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n);
/* Whether a command of these flags, which writes, is refused at present; after the error reply. */
bool command_refuses_write(struct client *c, unsigned flags);

#endif
