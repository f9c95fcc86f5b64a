/*
 * fold.h - letters in lower case, for words and tags that are compared without regard to case.
 *
 * UTF-8. The same on every machine: nothing asks the locale. Bytes that are not UTF-8 stay as they are.
 */
#ifndef QUIRE_DOCUMENT_FOLD_H
#define QUIRE_DOCUMENT_FOLD_H

#include <stddef.h>
#include <stdint.h>

/* Room for the folded form of `bytes` bytes: a letter of two bytes may become one of three. */
#define FOLD_ROOM(bytes) ((uint64_t)(bytes) + (bytes) / 2)

/* Writes the folded form of text to `to` (FOLD_ROOM(bytes) bytes; not text itself); its bytes. */
uint32_t fold_text(const char *text, uint32_t bytes, char *to);
/* The lower case of a letter; any other number is answered as it is. */
uint32_t fold_letter(uint32_t letter);
/* The number of the character at text and, as the answer, its bytes; 0 where these bytes are not UTF-8. */
uint32_t fold_decode(const char *text, size_t bytes, uint32_t *letter);

#endif
