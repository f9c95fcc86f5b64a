/*
 * transaction.h - MULTI, EXEC and WATCH: commands of one client that are run together, alone, and are one frame of the
 * journal.
 *
 * Between MULTI and EXEC commands are checked as always (name, arity, permissions, memory), then copied instead of run.
 * What cannot be queued taints the transaction: EXEC refuses it. A client's functions belong to its lane's thread.
 */
#ifndef QUIRE_SERVER_TRANSACTION_H
#define QUIRE_SERVER_TRANSACTION_H

#include "server/net/client.h"

/* Of a client; NULL: neither MULTI nor a watched key. */
struct transaction;

/* Whether MULTI was given, and neither EXEC nor DISCARD yet. */
bool transaction_is_open(const struct client *c);
/* How many commands wait for EXEC, -1 where no MULTI was given: CLIENT INFO's "multi". */
long transaction_queued(const struct client *c);
/* Whether a request waits for EXEC, as all do but those that end a transaction or cannot be in one. */
bool transaction_takes(const struct client *c, unsigned row);
/* Whether a request of an open transaction writes: EXEC, if one of those queued does. */
bool transaction_would_write(const struct client *c, unsigned row);
/* Copies the request and replies QUEUED, or taints the transaction. */
void transaction_queue(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n);
/* A request was refused, whose row is -1 where the command is unknown; `refusal` holds the error reply, which goes to
 * the client as it is, or as EXECABORT where it was EXEC that was refused. */
void transaction_refused(struct client *c, int row, struct reply_group *refusal);
/* Forgets queue and watched keys: DISCARD, RESET, QUIT, the end. */
void transaction_forget(struct client *c);

#endif
