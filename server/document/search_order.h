/*
 * search_order.h - the rows of an answer in the order that SORTBY asks for: the first so many of them.
 */
#ifndef QUIRE_SERVER_SEARCH_ORDER_H
#define QUIRE_SERVER_SEARCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum search_order_kind { ORDER_MISSING, ORDER_NUMBER, ORDER_TEXT };

/* A row and what it is ordered by. */
struct search_row {
    uint64_t row; /* place in what the search has found: rows that are equal come in this order */
    enum search_order_kind kind;
    bool descending;
    double number;
    char *text; /* owned */
    uint32_t bytes;
};

struct search_order {
    bool descending;
    uint64_t most; /* rows to keep */
    struct search_row *rows;
    uint64_t n;
    uint64_t capacity;
};

/* Keeps the row if it is among the first `most` so far; false without memory. text: copied; NULL: a number, or
 * nothing. */
bool search_order_offer(struct search_order *order, uint64_t row, enum search_order_kind kind, double number,
                        const char *text, uint32_t bytes);
/* Puts the rows in order. */
void search_order_finish(struct search_order *order);
void search_order_fini(struct search_order *order);

#endif
