/*
 * links.h - rows that this lane has put and that wait for their links in the graph (memtable.h).
 *
 * A put is visible at once; linking it costs about a tenth of a millisecond, and is done between two looks at the
 * sockets, a little at a time, so that one client's inserts do not hold up the others of the lane.
 */
#ifndef QUIRE_SERVER_LINKS_H
#define QUIRE_SERVER_LINKS_H

#include "index/collection.h"
#include "server/server_priv.h"

/* Takes the reference over. Where very many rows wait it links some at once, a writer pays for what it puts, and
 * answers true: it should rest. */
bool links_add(struct lane *lane, struct collection *collection);
/* Links for about budget_us; true if some still wait. */
bool links_work(struct lane *lane, uint64_t budget_us);
/* Lets all collections go. */
void links_fini(struct lane *lane);

#endif
