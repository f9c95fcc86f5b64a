/*
 * key_document.h - keys as documents: what indexes are told of them, and how their values are read.
 */
#ifndef QUIRE_SERVER_KEY_DOCUMENT_H
#define QUIRE_SERVER_KEY_DOCUMENT_H

#include "server/call/service.h"

/* The entry as a document: a hash or JSON. False: it is neither. Valid while its shard is held. */
bool key_document_view(const struct key_entry *entry, struct document_view *view);

/* The values of a document that indexes have leave the hash. Behind a back-fill; its shard is held. */
void key_document_send_away(struct keyspace *keyspace, struct documents *documents, struct key_entry *entry);

/* From now on documents are told what becomes of keys. */
void key_document_follow(struct service *service);
/* Gives every key to the indexes that follow it: when a folder has been read, before lanes run. */
void key_document_give_all(struct service *service);

#endif
