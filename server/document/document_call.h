/*
 * document_call.h - what the commands of indexes share: the index a request names, whether its user may see all of it,
 * errors as replies, and replies as maps or arrays.
 */
#ifndef QUIRE_SERVER_DOCUMENT_CALL_H
#define QUIRE_SERVER_DOCUMENT_CALL_H

#include "document/index/documents.h"
#include "server/call/caller.h"

#define DOCUMENT_FIRST_POSITION 2u /* in the command: of the word behind the index's name */

/* An argument as the layer of documents takes it, and all of them from args[0] on: owned by the caller; NULL after an
 * error reply. */
struct schema_word document_word(struct resp_arg arg);
struct schema_word *document_words(struct caller *c, const struct resp_arg *args, uint32_t n);
/* The position in the command, for errors, of the word that these bytes are in: one of the n behind the index's
 * name. */
uint32_t document_position(const struct schema_word *words, uint32_t n, const char *bytes);
/* Bits of TEXT fields for a query's context, of the names behind INFIELDS, which are among these words. QUIRE_EINVALID:
 * one is no TEXT field. */
int document_text_fields(const struct schema *schema, const struct schema_word *words, uint32_t n_words,
                         const struct schema_word *names, uint32_t n, uint64_t *bits, struct quire_error *err);

/* The reply to what failed. A message that begins with a code of its own (SEARCH_...) stays as it is. */
void document_error(struct resp_buffer *out, const struct quire_error *err);

/* The index of this name or alias, which can be used, and whose documents the caller may read: a reference. NULL after
 * an error reply. */
struct document_index *document_index_of(struct caller *c, struct resp_arg name);
/* Whether the user's rights to keys reach every key that the schema's prefixes do; false after an error reply. */
bool document_may_read(struct caller *c, const struct schema *schema);

/* Whether replies of searches are maps: of RESP3, but to clients that read arrays alone. */
bool document_wants_maps(const struct caller *c);

#endif
