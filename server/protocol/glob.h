/* glob.h - patterns of KEYS, SCAN, CONFIG GET and ACL rules. */
#ifndef QUIRE_SERVER_GLOB_H
#define QUIRE_SERVER_GLOB_H

#include "server/protocol/resp.h"

/* Redis's glob: * ? [set] \ ; without regard to case. */
bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text);
/* The same for any bytes; `fold`: without regard to case. */
bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold);

#endif
