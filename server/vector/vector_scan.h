/* vector_scan.h - looking at all elements of a set that match, from a thread that may block. */
#ifndef QUIRE_SERVER_VECTOR_SCAN_H
#define QUIRE_SERVER_VECTOR_SCAN_H

#include "index/collection/collection.h"

/* A lane for blocking calls on collections, apart from those that serve clients. */
struct vector_scanner;
int vector_scan_open(enum quire_engine_kind kind, struct vector_scanner **out, struct quire_error *err);
void vector_scan_close(struct vector_scanner *lane); /* NULL is fine */

/* collection_scan on it. */
int vector_scan_run(struct vector_scanner *lane, struct collection_scan *scan, struct quire_error *err);
/* Looks again at an element whose removal was told QUIRE_ESTALE: 1, with where it is by now, if it still matches; 0 if
 * it does not, is not there any more, or is not to be seen. *seen_lsn: what was put later has not been looked at. */
int vector_scan_look_again(struct vector_scanner *lane, const struct collection_scan *scan, const void *key,
                           uint32_t key_bytes, struct located *out, uint64_t *seen_lsn, struct quire_error *err);

#endif
