/*
 * pattern.h - regular expressions of filters: whether one is found in a string.
 *
 *     a . [a-z] [^a-z] \d \D \s \S \w \W   one character
 *     ^ $ \b \B                            the beginning, the end, the edge of a word, none
 *     x* x+ x? x{2} x{2,} x{2,5}           repetitions; a ? behind one changes nothing, as only the finding counts
 *     xy x|y (x) (?:x)                     sequences, choices, groups
 *     (?i)                                 in front of all: a letter of ASCII is found in either case
 *
 * Strings are UTF-8; sets hold characters of ASCII, and others one by one. A search takes time in proportion to the
 * string and the pattern, and no memory. References to groups are not understood.
 */
#ifndef QUIRE_DOCUMENT_PATTERN_H
#define QUIRE_DOCUMENT_PATTERN_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>

#define PATTERN_BYTES_MAX 256u
#define PATTERN_STEPS_MAX 1024u /* of a pattern whose repetitions are written out */

struct pattern; /* immutable: threads may share it */

/* QUIRE_EPARSE, QUIRE_ELIMIT, QUIRE_ENOMEM. */
int pattern_compile(const char *text, size_t bytes, struct pattern **out, struct quire_error *err);
void pattern_free(struct pattern *pattern); /* NULL is fine */
/* Whether it is found anywhere in the text. */
bool pattern_matches(const struct pattern *pattern, const char *text, size_t bytes);
/* How many steps it has: a byte of a text costs at most so much. */
size_t pattern_steps(const struct pattern *pattern);

#endif
