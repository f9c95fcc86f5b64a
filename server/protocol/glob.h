/* glob.h - patterns of KEYS, SCAN, CONFIG GET and ACL rules. */
#ifndef QUIRE_SERVER_GLOB_H
#define QUIRE_SERVER_GLOB_H

#include "server/protocol/resp.h"

enum { GLOB_BYTES_MAX = 1024 }; /* of a pattern that a request brings */

/* A pattern that is matched against many texts. */
struct glob {
    struct resp_arg pattern; /* the caller's, as long as it is used */
    bool fold;
    struct glob_states *states; /* NULL: not needed yet; owned */
};
/* Redis's glob: * ? [set] \ ; fold: without regard to case. */
void glob_begin(struct glob *glob, struct resp_arg pattern, bool fold);
void glob_end(struct glob *glob);
/* Takes time in proportion to the text for patterns of up to GLOB_BYTES_MAX bytes: glob_cost steps of about a
 * nanosecond at most. Longer ones, which only operators give, may take pattern times text. */
bool glob_test(struct glob *glob, struct resp_arg text);
uint64_t glob_cost(const struct glob *glob, struct resp_arg text);

/* A pattern that is used once. */
bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold);
/* The same for a text of its own, without regard to case. */
bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text);

#endif
