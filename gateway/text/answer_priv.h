/* answer_priv.h - what the files of answer.h share. All read answer->json. */
#ifndef QUIRE_GATEWAY_TEXT_ANSWER_PRIV_H
#define QUIRE_GATEWAY_TEXT_ANSWER_PRIV_H

#include "gateway/text/answer.h"

#define ANSWER_ERROR_UNREAD UINT32_MAX /* an error that is no JSON */

/* The first reason stays. */
void answer_refuse(struct answer *answer, enum answer_reason reason, const char *why);
/* The error at a node, which may be of any kind. */
void answer_error(struct answer *answer, uint32_t error);

/* Chat and completions: a chunk of a stream; a whole answer. Chunks give bits of enum answer_seen. */
unsigned answer_chunk(struct answer *answer);
void answer_choices(struct answer *answer);
/* Responses: an event; the object of a whole answer, at a node. */
unsigned answer_response_event(struct answer *answer);
void answer_response(struct answer *answer, uint32_t response);
/* Anthropic's messages. */
unsigned answer_message_event(struct answer *answer);
void answer_message(struct answer *answer);
/* Embeddings. */
void answer_vectors(struct answer *answer);

#endif
