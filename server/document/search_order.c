/*
 * search_order.c - see search_order.h. A heap of the rows kept, the last of them on top; those without a value come
 * last in either direction.
 */
#include "server/document/search_order.h"
#include "io/heap.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_values(const struct search_row *a, const struct search_row *b)
{
    if (a->kind == ORDER_NUMBER)
        return (a->number > b->number) - (a->number < b->number);
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Negative: a comes first. */
static int compare(const struct search_row *a, const struct search_row *b)
{
    int order = 0;
    if (a->kind != b->kind) {
        if (a->kind == ORDER_MISSING || b->kind == ORDER_MISSING)
            return a->kind == ORDER_MISSING ? 1 : -1;
        order = a->kind == ORDER_NUMBER ? -1 : 1; /* numbers before texts */
    } else if (a->kind != ORDER_MISSING) {
        order = compare_values(a, b);
    }
    if (a->descending)
        order = -order;
    return order ? order : (a->row > b->row) - (a->row < b->row);
}

static inline bool is_behind(const struct search_row *a, const struct search_row *b)
{
    return compare(a, b) > 0;
}

HEAP_DEFINE(last_rows, struct search_row, is_behind, HEAP_PLACE_UNKNOWN)

bool search_order_offer(struct search_order *o, uint64_t row, enum search_order_kind kind, double number,
                        const char *text, uint32_t bytes)
{
    struct search_row one = {.row = row,
                             .kind = kind,
                             .descending = o->descending,
                             .number = number,
                             .text = (char *)(uintptr_t)text,
                             .bytes = bytes};
    if (o->most == 0 || (o->n == o->most && compare(&one, &o->rows[0]) > 0))
        return true;
    if (o->n == o->capacity && o->n < o->most) {
        uint64_t capacity = o->capacity ? 2 * o->capacity : 64;
        capacity = capacity < o->most ? capacity : o->most;
        struct search_row *rows = realloc(o->rows, capacity * sizeof *rows);
        if (!rows)
            return false;
        o->rows = rows;
        o->capacity = capacity;
    }
    one.text = NULL;
    if (kind == ORDER_TEXT) {
        one.text = malloc(bytes + (size_t)1);
        if (!one.text)
            return false;
        if (bytes > 0)
            memcpy(one.text, text, bytes);
    }
    if (o->n < o->most) {
        last_rows_push(o->rows, o->n++, one);
        return true;
    }
    free(o->rows[0].text);
    o->rows[0] = one;
    last_rows_sink(o->rows, o->n, 0);
    return true;
}

static int compare_for_qsort(const void *a, const void *b)
{
    return compare(a, b);
}

void search_order_finish(struct search_order *o)
{
    if (o->n > 1)
        qsort(o->rows, o->n, sizeof *o->rows, compare_for_qsort);
}

void search_order_fini(struct search_order *o)
{
    for (uint64_t i = 0; i < o->n; i++)
        free(o->rows[i].text);
    free(o->rows);
    o->rows = NULL;
    o->n = o->capacity = 0;
}
