/*
 * part_numbers.h - of a sealed part of a numbered collection: the number of each row, and the row of a number.
 *
 * Made from the names of the rows, once, before others see the part; never changed. At most one living row has a
 * number; dead ones may share it.
 */
#ifndef QUIRE_INDEX_PART_NUMBERS_H
#define QUIRE_INDEX_PART_NUMBERS_H

#include "index/attribute/number_set.h"
#include "index/collection/part.h"
#include "index/segment/selection.h"

#define ROW_NONE UINT32_MAX

struct part_numbers {
    uint64_t rows;
    uint32_t *of;                  /* per row its number; owned */
    uint32_t *sorted;              /* rows by their numbers; owned */
    uint32_t *starts;              /* where in `sorted` each run of numbers begins; owned */
    uint32_t first, shift, n_runs; /* run i: numbers from first + (i << shift) */
};

/* Makes part->numbers; the part is open. QUIRE_ECORRUPT: a name is too short to have a number. Blocks: where the names
 * of the rows are not in memory, or one is too long for that, all blocks are read forward. */
int part_number(struct part *part, struct quire_error *err);
void part_numbers_free(struct part_numbers *numbers); /* NULL is fine */
uint64_t part_numbers_bytes(const struct part_numbers *numbers);
/* The living row that has a number; ROW_NONE: there is none. */
uint32_t part_row_of_number(const struct part *part, uint32_t number);
/* The rows whose numbers are in the set; dead ones may be among them. Cost: a look-up of each where the set has a list,
 * otherwise a look at all rows. QUIRE_ENOMEM. */
int part_select_numbers(const struct part *part, const struct number_set *set, struct selection **out);
/* The name of each living row, blocking, as part_number reads them. Ends with what visit answers if that is not 0. */
int part_each_name(const struct part *part, int (*visit)(void *context, uint32_t row, const void *name, uint32_t bytes),
                   void *context, struct quire_error *err);

#endif
