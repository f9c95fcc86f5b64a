/*
 * links.h - what a lane does for rows that wait for their links in the graph (memtable.h) when the background falls
 * behind with linking them.
 */
#ifndef QUIRE_SERVER_LINKS_H
#define QUIRE_SERVER_LINKS_H

#include "index/collection/collection.h"
#include "server/call/caller.h"

enum links_pace { LINKS_FEW, LINKS_SOFT_LIMIT, LINKS_HARD_LIMIT };
/* After a put; takes the reference over. Answers how many rows wait: above the soft limit the writer should rest for a
 * turn of the lane, above the hard limit for some milliseconds. */
enum links_pace links_add(struct lane *lane, struct collection *collection);
/* Links for a fraction of a millisecond in each turn of the lane, in one of the collections that were added. */
extern const struct lane_hook links_hook;

#endif
