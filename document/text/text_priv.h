/* text_priv.h - inside of the room: what a language is to text_words.c. */
#ifndef QUIRE_DOCUMENT_TEXT_PRIV_H
#define QUIRE_DOCUMENT_TEXT_PRIV_H

#include "document/text/text_words.h"

/* libstemmer's name of the algorithm; NULL: the language has no stems. */
const char *text_language_algorithm(const struct text_language *language);
/* Whether words stand without blanks between them: each ideograph is one. */
bool text_language_parts(const struct text_language *language);

#endif
