/*
 * cursors.h - FT.AGGREGATE WITHCURSOR: aggregations that wait to be read on. Of the service; thread-safe.
 */
#ifndef QUIRE_SERVER_CURSORS_H
#define QUIRE_SERVER_CURSORS_H

#include "server/document/aggregation.h"

#define CURSORS_PER_INDEX_MAX 128u
#define CURSORS_MAX           512u           /* of all indexes */
#define CURSORS_BYTES_MAX     (512ull << 20) /* that they hold together */

struct cursors;

int cursors_create(struct cursors **out, struct quire_error *err);
void cursors_destroy(struct cursors *cursors); /* NULL is fine */

/* Keeps the aggregation, which is taken over on success, and gives it a number. QUIRE_ELIMIT: its index has too many,
 * or there are too many in all. */
int cursors_add(struct cursors *cursors, struct aggregation *aggregation, uint64_t now_ms, struct quire_error *err);
/* Takes the cursor of this number for the caller alone; NULL: there is none of that index, or another reads it now. */
struct aggregation *cursors_take(struct cursors *cursors, uint64_t id, const struct document_index *index);
/* Gives it back to be read on; or, with `ended`, ends it. */
void cursors_put(struct cursors *cursors, struct aggregation *aggregation, uint64_t now_ms, bool ended);
/* Ends those that were not read for as long as they said. */
void cursors_expire(struct cursors *cursors, uint64_t now_ms);
/* How many there are: of an index, and how many of them nobody reads just now; index NULL: of all. */
uint32_t cursors_count(struct cursors *cursors, const struct document_index *index, uint32_t *idle);

#endif
