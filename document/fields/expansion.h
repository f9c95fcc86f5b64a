/*
 * expansion.h - which entries of a vocabulary a prefix, suffix, infix, wildcard or fuzzy part of a query means.
 */
#ifndef QUIRE_DOCUMENT_EXPANSION_H
#define QUIRE_DOCUMENT_EXPANSION_H

#include "document/fields/vocabulary.h"
#include "document/query/query.h"

#define EXPANSION_FUZZY_BYTES 256u /* of a word that is searched with errors; longer ones have none near them */

/* Whether the text matches: `kind` is QUERY_PREFIX, SUFFIX, INFIX, WILDCARD (? one character, * any, \ the next one
 * itself) or FUZZY (at most `distance` insertions, removals, replacements of characters). Texts are UTF-8. */
bool expansion_matches(enum query_kind kind, struct query_text pattern, uint32_t distance, const char *text,
                       uint32_t bytes);
/* The bytes that every match begins with: the entries to look at are those that do. */
uint32_t expansion_literal_prefix(enum query_kind kind, struct query_text pattern, char *prefix, uint32_t prefix_max);

#endif
