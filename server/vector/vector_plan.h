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

#include "server/vector/vector_write.h"

struct vector_plan;

/* go_on(context) is called when the disk has answered all that vector_plan_ask has asked. NULL: no memory. */
struct vector_plan *vector_plan_create(struct lane *lane, void (*go_on)(void *context), void *context);
/* Nothing is being asked. NULL is fine. */
void vector_plan_destroy(struct vector_plan *plan);

/* A write that will be made: its key and element stay where they are until the plan is destroyed. */
void vector_plan_note(struct vector_plan *plan, const struct vector_write *write);
/* The set of this key may have another by the time of a write. The name stays, too. */
void vector_plan_note_rename(struct vector_plan *plan, struct resp_arg from);

/* Asks the disk for what is not known, or no longer true. True: nothing need be waited for. False: go_on comes. */
bool vector_plan_ask(struct vector_plan *plan);
/* Whether something went wrong; then *err says what. */
bool vector_plan_failed(const struct vector_plan *plan, struct quire_error *err);
/* Whether every write can be made without the disk. True as long as no collection's segments change. */
bool vector_plan_is_ready(struct vector_plan *plan);

/* Fills in what is known of the write's element in this collection; false: nothing is. */
bool vector_plan_find(const struct vector_plan *plan, const struct collection *collection, struct vector_write *write);
/* Makes a write that is part of the transaction, or notes it while that is not being run yet. */
void vector_plan_run(struct client *c, struct vector_write *write);
/* After the transaction: rows it has put are linked soon. NULL is fine. */
void vector_plan_link(struct vector_plan *plan);

#endif
