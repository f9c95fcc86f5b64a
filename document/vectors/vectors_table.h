/*
 * vectors_table.h - the documents of a field: their numbers, and which id each has.
 *
 * A number is below the table's end, and either a document's or free. Ids ascend: by_id is a list in their order, to
 * which each new id comes as the last; an id that is not used any more leaves an entry without a number, and those are
 * swept out when they are most of the list. Under the field's lock.
 */
#ifndef QUIRE_DOCUMENT_VECTORS_TABLE_H
#define QUIRE_DOCUMENT_VECTORS_TABLE_H

#include "document/vectors/vectors.h"
#include "index/attribute/number_set.h"

#define NUMBER_NONE UINT32_MAX

struct vectors_entry {
    uint64_t digest; /* of the document's vector; of a free number: the search that had begun last when it was freed */
    uint32_t id;     /* VECTORS_NO_ID: of no document that has one */
    uint32_t next;   /* of a free number: the one that was freed after it */
};

struct vectors_id {
    uint32_t id, number; /* number NUMBER_NONE: not used any more */
};

/* A search under way. */
struct vectors_ticket {
    struct vectors_ticket *previous, *next;
    uint64_t began; /* searches are counted */
};

struct vectors_table {
    struct vectors_entry *entries; /* by number; owned */
    uint32_t end, capacity;        /* numbers */
    struct vectors_id *by_id;      /* owned */
    uint32_t n_ids, ids_capacity, n_documents;
    uint32_t free_first, free_last;
    uint64_t n_begun; /* searches */
    struct vectors_ticket *oldest, *newest;
};

void vectors_table_init(struct vectors_table *table);
void vectors_table_fini(struct vectors_table *table);
uint64_t vectors_table_bytes(const struct vectors_table *table);

/* The number of an id; NUMBER_NONE: none. */
uint32_t vectors_table_find(const struct vectors_table *table, uint32_t id);
/* Room for one more number and one more id. QUIRE_ENOMEM; QUIRE_ELIMIT: all numbers are used. */
int vectors_table_reserve(struct vectors_table *table);
/* After a reserve: a number that is nobody's, and that no search under way has seen as somebody else's. */
uint32_t vectors_table_take(struct vectors_table *table);
/* Of a document that has gone: its id, if it has one, is not used any more, and the number is free. */
void vectors_table_give_back(struct vectors_table *table, uint32_t number);
/* After a reserve: the number's document has this id from now on, which is above all others. */
void vectors_table_name(struct vectors_table *table, uint32_t number, uint32_t id, uint64_t digest);
/* The number's id is not used any more; the number stays taken. */
void vectors_table_unname(struct vectors_table *table, uint32_t number);
/* All numbers below end exist; those that taken (a bit each) does not have are free. Of an empty table. */
int vectors_table_restore(struct vectors_table *table, uint32_t end, const uint8_t *taken);

/* The numbers of ids; those that are not here are left out. The set is ended by number_set_fini. */
int vectors_table_select(const struct vectors_table *table, const roaring_bitmap_t *ids, struct number_set *out);

void vectors_table_search_begins(struct vectors_table *table, struct vectors_ticket *ticket);
void vectors_table_search_ends(struct vectors_table *table, struct vectors_ticket *ticket);

/* Whether it is whole; if not, *reason says why not. For tests. */
bool vectors_table_check(const struct vectors_table *table, const char **reason);

#endif
