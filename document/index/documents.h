/*
 * documents.h - all indexes of documents: made, changed and dropped by name; told what becomes of documents; in the
 * journal, in checkpoints, and there again after a restart.
 *
 * Records of the journal, numbers little-endian, a word as u32 bytes and the bytes:
 *
 *   DOCUMENT_LOG_CREATE  u32 n, n x u64 uid of the collection of each vector field, words of FT.CREATE
 *   DOCUMENT_LOG_ALTER   u32 n, n x u64 uid of the new vector fields' collections, name of the index, words behind ADD
 *   DOCUMENT_LOG_DROP    name of the index
 *   DOCUMENT_LOG_ALIAS   alias, name of the index; the name empty: the alias is gone
 *
 * A checkpoint holds CREATE, ALTER and ALIAS as they were logged. That all keys are gone (the keyspace's record) takes
 * all indexes with it.
 *
 * Thread-safe, but for create, begin and destroy.
 */
#ifndef QUIRE_DOCUMENTS_H
#define QUIRE_DOCUMENTS_H

#include "document/index/document_index.h"
#include "index/store/store.h"

#define DOCUMENTS_INDEXES_MAX 10000u
#define DOCUMENTS_ALIASES_MAX 10000u

struct documents;

enum document_log_kind {
    DOCUMENT_LOG_CREATE = DOCUMENT_KINDS,
    DOCUMENT_LOG_ALTER,
    DOCUMENT_LOG_DROP,
    DOCUMENT_LOG_ALIAS
};

int documents_create(struct documents **out, struct quire_error *err);
void documents_destroy(struct documents *documents); /* NULL is fine */

/* ---- a folder is opened ------------------------------------------------------------------------------------------ */

/* For struct store_host, with the documents as context. Flush: all keys went (the keyspace's record). */
int documents_restore(void *documents, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                      struct quire_error *err);
int documents_replay(void *documents, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                     struct quire_error *err);
void documents_replay_flush(void *documents, uint64_t lsn);
int documents_save(void *documents, struct checkpoint *checkpoint, struct quire_error *err);
/* When all has been read: indexes get their collections out of the store (NULL: there is no folder, nothing lasts),
 * and what is changed from now on is logged. Documents come next, by documents_changed; then documents_begun. */
int documents_begin(struct documents *documents, struct store *store, struct quire_error *err);
/* Behind documents_begin, where who keeps documents does not log them with their vectors: those that differ are written
 * again when their documents come (vectors_compare). An index whose vectors cannot be read is unavailable. */
int documents_compare(struct documents *documents, struct quire_error *err);
/* Whether this collection is an index's. */
bool documents_own(struct documents *documents, uint64_t uid);
/* Every document has been given: vectors that belong to none go. */
int documents_begun(struct documents *documents, struct quire_error *err);

/* ---- what becomes of documents ----------------------------------------------------------------------------------- */

/* Under the lock of the key's shard. Cheap where no index follows the key. */
void documents_changed(struct documents *documents, const void *key, uint32_t key_bytes,
                       const struct document_view *view);
/* Behind documents_changed, or a back-fill: calls `take` for each field of a hash whose value the indexes have from now
 * on and give back bit for bit (documents_value): its keeper need not have it any more. */
void documents_each_held(struct documents *documents, const void *key, uint32_t key_bytes,
                         const struct document_view *view,
                         void (*take)(void *context, const char *field, uint32_t bytes), void *context);
/* A value of a hash's field that indexes keep. */
struct documents_wanted {
    const void *key;
    uint32_t key_bytes;
    const char *field;
    uint32_t field_bytes;
    uint32_t value_bytes;
    const struct document_index *except; /* not this one's; NULL: any's */
};
/* Where it is: *id of the document in it; a reference. NULL: nowhere. */
struct vectors *documents_value(struct documents *documents, const struct documents_wanted *wanted, uint32_t *id);
/* Whether an index that follows the key would need the bytes of such a field when the document changes, since it does
 * not have them, or takes them for no vector. */
bool documents_lack(struct documents *documents, const void *key, uint32_t key_bytes, const char *field,
                    uint32_t field_bytes);
/* Before an index is dropped: it takes over no value any more; false: again. Its documents are to be gone through
 * then. */
void documents_leave(struct document_index *index, bool leaving);
/* Around the frame of the journal that holds a document and its vectors, and around document_index_put of others: rows
 * of a collection come and go in the order of the numbers of their frames. One thread at a time. */
void documents_write_begin(struct documents *documents);
void documents_write_end(struct documents *documents);
/* Before a document is written: 0, or why its vectors could not be taken now (memory, disk, log). */
int documents_admit(struct documents *documents, const void *key, uint32_t key_bytes, struct quire_error *err);
void documents_gone(struct documents *documents, const void *key, uint32_t key_bytes);
/* All keys are gone, and with them, as in RediSearch, all indexes; the keyspace has logged it. */
void documents_cleared(struct documents *documents);
/* Whether an index follows the key. */
bool documents_follow_key(struct documents *documents, const void *key, uint32_t key_bytes);
/* Whether there is any index: otherwise nothing need be told. And whether one has vectors: a change of a document and
 * what it changes here are to be in one frame of the journal then (document/vectors). */
bool documents_follow(const struct documents *documents);
bool documents_have_vectors(const struct documents *documents);
/* Who takes over the reference to an index that was dropped: it calls documents_drop_vectors where files may be waited
 * for, and lets go. NULL: it is let go at once. */
void documents_on_discard(struct documents *documents, void (*discard)(void *context, struct document_index *index),
                          void *context);
void documents_drop_vectors(struct document_index *index);

/* ---- indexes by name --------------------------------------------------------------------------------------------- */

/* Words as of schema_parse. *out is a reference. Errors: schema_parse's; QUIRE_EEXISTS "Index already exists";
 * QUIRE_ELIMIT; what the journal or the store says. Not on a lane: may wait for files where the schema has vectors. */
int documents_add(struct documents *documents, const struct schema_word *words, uint32_t n_words,
                  struct document_index **out, uint64_t *lsn, struct quire_error *err);
/* Words behind FT.ALTER idx SCHEMA ADD, the first of them at this position in the command (for errors). */
int documents_alter(struct documents *documents, struct schema_word name, const struct schema_word *words,
                    uint32_t n_words, uint32_t position, struct document_index **out, uint64_t *lsn,
                    struct quire_error *err);
/* What documents_add, documents_alter and documents_alias_set were given, in an order in which they can be given
 * again: words with a u32 of their length before each. Takes no lock: by the thread that alone changes them, or in its
 * child. */
void documents_each_definition(const struct documents *documents,
                               void (*visit)(void *context, enum document_log_kind kind, const void *words, uint32_t n),
                               void *context);
/* Gives one again. QUIRE_EEXISTS: there is such an index; errors as there. */
int documents_define(struct documents *documents, enum document_log_kind kind, const void *words, uint32_t n,
                     uint64_t *lsn, struct quire_error *err);
/* By name or alias. *out (a reference) is the index that was. */
int documents_drop(struct documents *documents, struct schema_word name, struct document_index **out, uint64_t *lsn,
                   struct quire_error *err);
/* By name or alias; a reference. QUIRE_ENOTFOUND with the text that clients look for. */
int documents_find(struct documents *documents, struct schema_word name, struct document_index **out,
                   struct quire_error *err);
/* add: QUIRE_EEXISTS where there is such an alias, or index. */
int documents_alias_set(struct documents *documents, struct schema_word alias, struct schema_word name, bool add,
                        uint64_t *lsn, struct quire_error *err);
int documents_alias_remove(struct documents *documents, struct schema_word alias, uint64_t *lsn,
                           struct quire_error *err);

/* Calls visit for each, in the order of their names; it may ask nothing of documents. */
void documents_each(struct documents *documents, void (*visit)(void *context, struct document_index *index),
                    void *context);
uint32_t documents_count(struct documents *documents);
/* Memory of all, without vectors: as of some changes ago. */
uint64_t documents_bytes(const struct documents *documents);

#endif
