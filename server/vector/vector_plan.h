/*
 * vector_plan.h - what the writes of a transaction need of the disk, found out before they are made.
 *
 * A write to an element that a sealed segment may hold must know where its row is, and of some what was stored with it
 * (vector_write.h). Alone it asks the disk and begins again. In a transaction nothing may begin again, so all its
 * writes are noted first, their elements looked up at once, and the answers handed to the writes when they are made.
 *
 * Belongs to its lane's thread.
 */
#ifndef QUIRE_SERVER_VECTOR_PLAN_H
#define QUIRE_SERVER_VECTOR_PLAN_H

#include "server/call/planner.h"
#include "server/vector/vector_write.h"

struct vector_plan;

extern const struct planner vector_planner;

/* Fills in what is known of the write's element in this collection; false: nothing is. */
bool vector_plan_find(const struct vector_plan *plan, const struct collection *collection, struct vector_write *write);
/* Makes a write that is part of the transaction, or notes it while that is not being run yet. */
void vector_plan_run(struct caller *c, struct vector_write *write);

#endif
