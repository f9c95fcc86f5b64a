/*
 * tree_priv.h - what printing, packing and parsing of trees share: numbers as decimals, and packed lists of numbers.
 *
 * A packed list stands in a packed document (tree.h) where its text would:
 *
 *   u8   kind: 1 FLOATS, 2 DECIMALS, 3 DOUBLES; 3 more where the whole numbers in it are integers, not reals
 *   u32  n, at least 1; little-endian, as all that follows
 *   u8   DECIMALS: bytes of a number, 1 to 7
 *   u8   DECIMALS: the power of ten by which the numbers are divided, 0 to 22
 *   n    numbers: f32; signed integers of so many bytes; f64
 *
 * None of these kinds is a byte of a text that tree_print writes, so a document without such a list is its text.
 */
#ifndef QUIRE_DOCUMENT_TREE_PRIV_H
#define QUIRE_DOCUMENT_TREE_PRIV_H

#include "document/json/tree.h"

enum tree_list_kind { TREE_FLOATS = 1, TREE_DECIMALS, TREE_DOUBLES, TREE_LIST_KINDS = TREE_DOUBLES };

/* digits * 10^exponent; no zero at the end of the digits */
struct tree_decimal {
    uint64_t digits;
    int exponent;
};
/* The shortest that reads back as the same number, which is finite and above 0. */
struct tree_decimal tree_print_decimal(double number);

/* Whether a packed list begins with the byte. */
static inline bool tree_pack_begins(char c)
{
    return c >= TREE_FLOATS && c <= 2 * TREE_LIST_KINDS;
}

/* A packed list that was opened; points into the document. */
struct tree_list {
    enum tree_list_kind kind;
    bool integers; /* whole numbers are integers */
    uint32_t n;
    unsigned width;       /* bytes of a number */
    double divisor;       /* of DECIMALS */
    const uint8_t *items; /* behind them the document goes on */
};
/* False: it is none, or is longer than what is there. */
bool tree_pack_open(const char *at, const char *end, struct tree_list *out);
/* A number; false: it is not finite. */
bool tree_pack_number(const struct tree_list *list, uint32_t i, double *out, bool *integer);

/* Adds the list as a packed one, where it is such numbers and takes less than its text. */
bool tree_pack_list(const json_t *array, struct tree_text *out);

#endif
