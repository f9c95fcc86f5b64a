/*
 * links.h - what a lane does for rows that wait for their links in the graph (memtable.h) when the background falls
 * behind with linking them.
 */
#ifndef QUIRE_SERVER_LINKS_H
#define QUIRE_SERVER_LINKS_H

#include "index/collection/collection.h"
#include "server/net/server_priv.h"

enum links_pace { LINKS_FEW, LINKS_CROWD, LINKS_THRONG };
/* After a put; takes the reference over. Answers how many rows wait: of a crowd the writer should rest for a turn of
 * the lane, of a throng for some milliseconds. */
enum links_pace links_add(struct lane *lane, struct collection *collection);
/* Links for about budget_us in one of the collections that were added; false where there is none. */
bool links_work(struct lane *lane, uint64_t budget_us);
/* Lets all collections go. */
void links_fini(struct lane *lane);

#endif
