/*
 * guard.h - what two texts must agree in before one's answer may serve the other, however near their vectors are.
 *
 * "turn on dark mode" and "turn off dark mode" are nearer to each other than many a paraphrase: no threshold separates
 * them. A guard looks at what decides: numbers and their units, negation and antonyms, quoted words, names and
 * identifiers, dates, the language. Deterministic, microseconds, no model.
 *
 * A text is reduced once to its features, a few bytes that are kept with the entry; comparing two of them needs no
 * text. Tables (antonyms, negations, units, names of numbers and months, ...) come from files built in, which a folder
 * of the user's may extend (docs/guards.md).
 *
 * Threads: tables are immutable once loaded.
 */
#ifndef QUIRE_CACHE_GUARD_H
#define QUIRE_CACHE_GUARD_H

#include "cache/guard/text.h"

enum guard_kind {
    GUARD_NUMBER,   /* numbers: digits, words, ordinals, with units: 5 km is not 5 miles, "five" is "5" */
    GUARD_NEGATION, /* not, never, without, ...; on/off, ascending/descending, enable/disable, ... */
    GUARD_LITERAL,  /* quoted words, identifiers, paths, addresses, codes; names */
    GUARD_DATE,     /* dates, weekdays, months, times of day, years, today/tomorrow */
    GUARD_LANGUAGE, /* the language, by script and frequent words */
    GUARD_KINDS
};
#define GUARD_ALL   ((1u << GUARD_KINDS) - 1)
#define GUARD_BYTES 512u /* of features at most */

const char *guard_name(enum guard_kind kind); /* "number", ... */
/* The bit of a name; 0: there is none. "all" and "none" are the caller's. */
unsigned guard_find(struct quire_bytes name);

struct guard_tables;
/* The tables that are built in, and with a folder, its files (antonyms.txt, negations.txt, ...) added to them.
 * QUIRE_EPARSE with file and line, QUIRE_ENOFILE. */
int guard_tables_load(const char *folder, struct guard_tables **out, struct quire_error *err);
void guard_tables_free(struct guard_tables *tables); /* NULL is fine */

/* The features of a text (UTF-8; other bytes are taken as they are), at most GUARD_BYTES; returns how many bytes. 0: it
 * has none. A text with more than fit gets a feature of its own that nothing but the same text has. Plain questions
 * without numbers, names and the like take 0 to 4 bytes. */
uint32_t guard_features(const struct guard_tables *tables, struct quire_bytes text, uint8_t out[GUARD_BYTES]);

/* Whether features `query` and `entry` agree under the guards of `mask`. true: they do. Otherwise *kind says which
 * guard speaks first, and `why` (NULL: not asked for) why: "number: 5 km here, 7 km there", without the entry's text
 * beyond its features. Symmetric. */
bool guard_agree(const uint8_t *query, uint32_t query_bytes, const uint8_t *entry, uint32_t entry_bytes, unsigned mask,
                 enum guard_kind *kind, char why[160]);

#endif
