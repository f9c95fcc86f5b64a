/*
 * key_document.h - keys as documents: what indexes are told of them, and how their values are read.
 */
#ifndef QUIRE_SERVER_KEY_DOCUMENT_H
#define QUIRE_SERVER_KEY_DOCUMENT_H

#include "document/index/documents.h"
#include "server/keys/keyspace.h"

/* The entry as a document: a hash or JSON. False: it is neither. Valid while its shard is held. */
bool key_document_view(const struct key_entry *entry, struct document_view *view);

/* From now on documents are told what becomes of keys; `follower` must live as long as the keyspace. */
void key_document_follow(struct keyspace *keyspace, struct documents *documents, struct keyspace_follower *follower);
/* Gives every key to the indexes that follow it: when a folder has been read, before lanes run. */
void key_document_give_all(struct keyspace *keyspace, struct documents *documents);

#endif
