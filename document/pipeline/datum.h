/*
 * datum.h - values of rows: a number, a string, null, or an array of such.
 *
 * A datum never changes once it is shared; it is counted, and freed with the last share of it. All data of a run come
 * from one pool, which counts their bytes and refuses what would be too many. A pool belongs to one thread at a time.
 * "No value" (the document lacks the field) is not a datum: it is a NULL pointer. Null is a value.
 */
#ifndef QUIRE_DOCUMENT_DATUM_H
#define QUIRE_DOCUMENT_DATUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATUM_STRING_MAX (1u << 29) /* bytes of one string: those of a value in the keyspace */
#define DATUM_PRINT_MAX  32u        /* bytes that a printed number takes at most, its NUL included */

enum datum_kind { DATUM_NULL, DATUM_NUMBER, DATUM_STRING, DATUM_ARRAY };

struct datum {
    uint32_t shares;
    uint32_t n; /* STRING: bytes; ARRAY: items */
    enum datum_kind kind;
    double number; /* NUMBER */
    /* the string's bytes and a NUL, or the items: behind it (datum_text, datum_items) */
};

/* What the data of one owner may take. Zeroed but for bytes_max before first use. */
struct datum_pool {
    size_t bytes, bytes_max;
    bool full; /* something was refused because of bytes_max, not for want of memory */
};

/* Counts bytes that an owner keeps beside its data (rows, groups, tables). False: they would be too many. */
bool datum_pool_take(struct datum_pool *pool, size_t bytes);
void datum_pool_give(struct datum_pool *pool, size_t bytes);

/* New ones, with one share: the caller's. NULL: no memory, or the pool is full. */
struct datum *datum_null(struct datum_pool *pool);
struct datum *datum_number(struct datum_pool *pool, double number);
/* text may be NULL: the bytes are then to be written by the caller (datum_bytes) before it shares the datum. */
struct datum *datum_string(struct datum_pool *pool, const char *text, size_t bytes);
/* Of n empty places, which the caller fills (datum_items), each with a share that becomes the array's. An array whose
 * places are not all filled may only be released. */
struct datum *datum_array(struct datum_pool *pool, size_t n);

static inline struct datum *datum_share(struct datum *datum)
{
    datum->shares++;
    return datum;
}
void datum_release(struct datum_pool *pool, struct datum *datum); /* NULL is fine */

static inline const char *datum_text(const struct datum *datum) /* STRING: a NUL follows its bytes */
{
    return (const char *)(datum + 1);
}
static inline char *datum_bytes(struct datum *datum)
{
    return (char *)(datum + 1);
}
static inline struct datum **datum_items(const struct datum *datum) /* ARRAY */
{
    return (struct datum **)(uintptr_t)(datum + 1);
}

/* As a number: a number; a string that is one from its first byte to its last (blanks in front are allowed, and the
 * empty string is 0). False: it is none. */
bool datum_to_number(const struct datum *datum, double *number);
/* Integers without a point, everything else with up to 12 digits; inf, -inf, nan. Returns the number of bytes. */
size_t datum_print(double number, char text[DATUM_PRINT_MAX]);
/* False: null, 0, "", an empty array. */
bool datum_is_true(const struct datum *datum);

/* < 0, 0, > 0. Null comes before everything. Numbers by value, NaN is equal to any. Strings by their bytes. A number
 * and a string: as numbers; where the string is none, *unlike is set, and the number is compared as text. Arrays by
 * their first items. unlike may be NULL. */
int datum_compare(const struct datum *a, const struct datum *b, bool *unlike);
/* For == and !=: as datum_compare, but a number and a string that is none are different. */
bool datum_equals(const struct datum *a, const struct datum *b);
/* Whether two values make one group: of one kind, and the same number, bytes or items. NULL counts as null. */
bool datum_is_same(const struct datum *a, const struct datum *b);
uint64_t datum_hash(const struct datum *datum, uint64_t seed); /* equal for the same; NULL as null */

/* The string in lower case (document/text/fold.h), of what is no string itself: as the values of a SORTABLE field are
 * compared and grouped. Takes the caller's share of `datum` and gives one of the result; NULL without memory. */
struct datum *datum_fold(struct datum_pool *pool, struct datum *datum);

#endif
