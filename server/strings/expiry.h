/*
 * expiry.h - times of SET and EXPIRE: an argument in seconds or milliseconds, from now or since 1970, as Unix ms.
 */
#ifndef QUIRE_SERVER_EXPIRY_H
#define QUIRE_SERVER_EXPIRY_H

#include "server/call/caller.h"

enum expiry_unit { EXPIRY_SECONDS, EXPIRY_MILLISECONDS, EXPIRY_AT_SECONDS, EXPIRY_AT_MILLISECONDS };

/* Of SET and the like: above 0. False after an error reply that names the command being run. */
bool expiry_of_set(struct caller *c, struct resp_arg amount, enum expiry_unit unit, uint64_t *expire_ms);

#endif
