/*
 * pattern.h - regular expressions of filters: POSIX's extended ones, with a few words of Perl's, of bounded size.
 *
 * `(?i)` at the beginning ignores case; \d \D \s \S \w \W and (?: are understood. Refused: references to groups, and
 * repetitions that would make a large automaton.
 */
#ifndef QUIRE_DOCUMENT_PATTERN_H
#define QUIRE_DOCUMENT_PATTERN_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>

#define PATTERN_BYTES_MAX   256u
#define PATTERN_REPEATS_MAX 256u   /* the product of all {n} and {m,n} of a pattern */
#define PATTERN_TEXT_MAX    65536u /* bytes of a string that is looked at; longer ones never match */

struct pattern; /* immutable: threads may share it */

/* QUIRE_EPARSE, QUIRE_ELIMIT, QUIRE_ENOMEM. */
int pattern_compile(const char *text, size_t bytes, struct pattern **out, struct quire_error *err);
void pattern_free(struct pattern *pattern); /* NULL is fine */
/* Whether it is found anywhere in the text. */
bool pattern_matches(const struct pattern *pattern, const char *text, size_t bytes);

#endif
