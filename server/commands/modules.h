/*
 * modules.h - what HELLO, MODULE LIST and INFO modules say of modules: that vector sets are one, as in Redis 8, where
 * the setting redis-version says that the server is like that. Tools look for it before they show vector sets.
 */
#ifndef QUIRE_SERVER_MODULES_H
#define QUIRE_SERVER_MODULES_H

#include "server/call/service.h"
#include "server/protocol/resp.h"

/* Whether redis-version is a number such as 8.0.0. */
int modules_check_version(const struct config *config, struct quire_error *err);
/* An array, a map for each module. */
void modules_put(const struct config *config, struct resp_buffer *out);
/* Lines of INFO. */
void modules_put_info(const struct config *config, struct resp_buffer *text);

#endif
