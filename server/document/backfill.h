/*
 * backfill.h - documents that were there before their index: put in by the worker, some at a time.
 */
#ifndef QUIRE_SERVER_BACKFILL_H
#define QUIRE_SERVER_BACKFILL_H

#include "document/index/documents.h"
#include "server/call/service.h"

/* Puts every key that the index follows, and that is not in it yet, into it. The index stays as long as that takes. */
void backfill_begin(struct service *service, struct document_index *index);
/* Goes on after a start, for indexes that could not take all documents then, since only others have the vectors. */
void backfill_resume(struct service *service);
/* The same of those that are in it, too: a field was added. */
void backfill_again(struct service *service, struct document_index *index);

#endif
