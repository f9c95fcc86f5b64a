/* support_text.h - a body read for a test. */
#ifndef QUIRE_TESTS_GATEWAY_SUPPORT_TEXT_H
#define QUIRE_TESTS_GATEWAY_SUPPORT_TEXT_H

#include "gateway/text/ask.h"

/* Reads of a test, one at a time; ended by text_fini. */
extern struct strict text_json;
extern struct ask text_ask;

/* The body must be strict JSON and an object. */
const struct ask *text_asked(enum ask_kind kind, const char *body);
void text_fini(void);
/* Compares with a literal. */
bool text_says(struct strict_text text, const char *wanted);

#endif
