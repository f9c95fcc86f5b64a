/*
 * slowlog.h - SLOWLOG: the commands that took longest to answer, as each lane remembers its own.
 *
 * A lane keeps its last slowlog-max-len entries; asked for, the lanes' entries are put together by their numbers, which
 * grow over all lanes. So the last slowlog-max-len of the server are always among them.
 */
#ifndef QUIRE_SERVER_SLOWLOG_H
#define QUIRE_SERVER_SLOWLOG_H

#include "server/protocol/resp.h"

struct client;
struct loop;
struct pending;

/* A request as SLOWLOG shows it: at most 32 arguments of 128 bytes, secrets redacted; one allocation, ended by free.
 * NULL without memory: it will not be shown. */
struct slow_args;
struct slow_args *slowlog_copy(unsigned row, const struct resp_arg *args, uint32_t n);
/* Memory that it takes. */
size_t slowlog_copy_bytes(const struct slow_args *args);

/* Remembers a command of row `row` that took `us`. deferred: its reply, whose slow_args and description are used; NULL:
 * the request that the lane is running. */
void slowlog_add(struct client *c, unsigned row, uint64_t us, const struct pending *deferred);
/* The loop ends: what it remembered is freed. */
void slowlog_end(struct loop *loop);

#endif
