/*
 * command.h - running commands for the network's clients: look-up, admission, the call, time and errors counted.
 */
#ifndef QUIRE_SERVER_COMMAND_H
#define QUIRE_SERVER_COMMAND_H

#include "server/net/client.h"

/* How clients' requests are run: the functions below. */
extern const struct dispatcher command_dispatcher;

/* Around a batch of requests. */
void command_begin_timing(struct loop *loop);
void command_end_timing(struct loop *loop);
/* Runs one request. */
void command_run(struct client *c, const struct resp_arg *args, uint32_t n);
/* Calls the handler of a request that was admitted; counts and times it. Nests: EXEC calls it for what waited. */
void command_call(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n);
/* Whether a command of these flags, which writes, is refused at present; after the error reply. */
bool command_refuses_write(struct client *c, unsigned flags);
/* Counts a deferred command: from its request to its reply. */
void command_ended(struct client *c, struct pending *p);
/* Whether a request waits for the end of CLIENT PAUSE. */
bool command_must_wait(const struct client *c, const struct resp_arg *args, uint32_t n);
#endif
