/*
 * keeper.h - who keeps the documents that indexes are of, as FT.* sees it: the keyspace
 * (server/document/keys_keeper.h), or a host that has keys of its own. What becomes of documents the keeper tells the
 * indexes itself (document/index/documents.h).
 */
#ifndef QUIRE_SERVER_KEEPER_H
#define QUIRE_SERVER_KEEPER_H

#include "server/call/service.h"

/* A document that does not change and does not go until it is let go. */
struct kept_document {
    struct document_view view;
    /* the keyspace's */
    struct keyspace_lock lock;
    struct key_entry *entry;
    /* another keeper's */
    void *other;
};

struct keeper {
    /* On a lane. False: the key is no document (any more), and nothing is held. */
    bool (*hold)(struct service *service, struct kept_document *document, struct resp_arg key);
    void (*let_go)(struct kept_document *document);
    /* Every field of a hash that is held. */
    void (*each_field)(const struct kept_document *document, hash_visit *visit, void *context);
    /* Removes keys, for FT.DROPINDEX DD. *lsn: of the removal, 0: it is not in the journal. */
    int (*remove)(struct service *service, const struct resp_arg *keys, uint32_t n, uint64_t *lsn,
                  struct quire_error *err);
    /* Puts documents that were there before into an index, soon; again: those that are in it, too. */
    void (*fill)(struct service *service, struct document_index *index, bool again);
    /* Keys whose time is over leave the indexes now, as far as that takes a millisecond. NULL: the keeper has told of
     * them by itself. */
    void (*expire)(struct service *service);
    bool has_json; /* documents may be JSON */
    bool lends;    /* vectors of hashes may be with the indexes alone (key_values.h) */
};

#endif
