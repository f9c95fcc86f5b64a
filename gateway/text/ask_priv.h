/* ask_priv.h - what the files of ask.h share. */
#ifndef QUIRE_GATEWAY_TEXT_ASK_PRIV_H
#define QUIRE_GATEWAY_TEXT_ASK_PRIV_H

#include "gateway/text/ask.h"

/* The first reason stays. */
void ask_odd(struct ask *ask, const char *why);
/* Sets features of a member that must be true, false or null; 0 features: only looks. Returns whether it is true. */
bool ask_flag(struct ask *ask, uint32_t object, const char *name, uint32_t features, const char *odd);
/* The decoded string of a node, in the request's own memory; no text of anything else. */
struct strict_text ask_text(struct ask *ask, uint32_t node);
/* The decoded string, appended to a text that was the last one made, behind a line feed. */
void ask_append(struct ask *ask, struct strict_text *text, uint32_t node);

/* What is said: messages of chat and Anthropic, items of responses, the prompt of completions, input of embeddings. */
void ask_read_messages(struct ask *ask);
void ask_read_responses(struct ask *ask);
void ask_read_prompt(struct ask *ask);
void ask_read_input(struct ask *ask);

#endif
