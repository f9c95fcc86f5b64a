/* keys_keeper.h - the keyspace as the keeper of documents. */
#ifndef QUIRE_SERVER_KEYS_KEEPER_H
#define QUIRE_SERVER_KEYS_KEEPER_H

#include "server/call/keeper.h"

extern const struct keeper keys_keeper;

#endif
