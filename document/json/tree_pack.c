/*
 * tree_pack.c - documents as they are kept: their text, in which long lists of numbers are packed.
 *
 * A vector as text takes 10 to 21 bytes a number. What it must give back is the text, and so the doubles: these are
 * held in the first of the forms that holds all of them bit for bit:
 *
 *   FLOATS    4 bytes, of numbers that were floats and have been printed as doubles, as Python and JavaScript do;
 *   DECIMALS  1 to 7 bytes, of integers, and of numbers with few digits: rounded ones, and floats printed with as few
 *             digits as tell floats apart, as Rust, Go and Java do. digits / 10^n is the double that the text is: both
 *             are exact, and a division is rounded correctly (Clinger, "How to read floating point numbers", 1990);
 *   DOUBLES   8 bytes, of all others.
 *
 * 1 and 1.0 are different texts. Lists whose whole numbers are all integers, or all reals, are packed; others are not.
 */
#include "document/json/tree_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIST_MIN = 8,     /* numbers; shorter ones stay text */
    HEAD_BYTES = 5,   /* kind and n, */
    DECIMAL_BYTES = 2 /* width and power */
};

#define POWER_MAX 22     /* of ten, that a double holds exactly */
#define WHOLE_MAX 0x1p53 /* and so all integers up to here */

static const double powers[POWER_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* ---- unpacking --------------------------------------------------------------------------------------------------- */

bool tree_pack_open(const char *at, const char *end, struct tree_list *out)
{
    const uint8_t *from = (const uint8_t *)at;
    size_t there = (size_t)(end - at), head = HEAD_BYTES;
    if (there < HEAD_BYTES + DECIMAL_BYTES || !tree_pack_begins(*at))
        return false;
    *out = (struct tree_list){.integers = from[0] > TREE_LIST_KINDS, .n = bytes_load_u32(from + 1)};
    out->kind = (enum tree_list_kind)(out->integers ? from[0] - TREE_LIST_KINDS : from[0]);
    if (out->kind == TREE_DECIMALS) {
        head += DECIMAL_BYTES;
        out->width = from[HEAD_BYTES];
        if (out->width < 1 || out->width > 7 || from[HEAD_BYTES + 1] > POWER_MAX)
            return false;
        out->divisor = powers[from[HEAD_BYTES + 1]];
    } else {
        out->width = out->kind == TREE_FLOATS ? sizeof(float) : sizeof(double);
    }
    out->items = from + head;
    return out->n > 0 && out->n <= (there - head) / out->width;
}

static bool is_whole(double x)
{
    return fabs(x) <= WHOLE_MAX && x == floor(x) && !(x == 0 && signbit(x));
}

bool tree_pack_number(const struct tree_list *list, uint32_t i, double *out, bool *integer)
{
    const uint8_t *at = list->items + (size_t)i * list->width;
    uint8_t bytes[8] = {0};
    float single;
    assert(i < list->n && list->width <= sizeof bytes);
    switch (list->kind) {
    case TREE_FLOATS:
        memcpy(&single, at, sizeof single);
        *out = single;
        break;
    case TREE_DOUBLES:
        memcpy(out, at, sizeof *out);
        break;
    case TREE_DECIMALS: {
        unsigned unused = 64 - 8 * list->width;
        memcpy(bytes, at, list->width);
        *out = (double)((int64_t)(bytes_load_u64(bytes) << unused) >> unused) / list->divisor;
        break;
    }
    }
    *integer = list->integers && is_whole(*out);
    return isfinite(*out);
}

static int damaged(size_t at, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "the document is damaged at byte %zu: no list of numbers is there", at);
}

static bool print_list(const struct tree_list *list, struct tree_text *out)
{
    char text[TREE_NUMBER_BYTES];
    double number;
    bool integer;
    for (uint32_t i = 0; i < list->n && !out->failed; i++) {
        if (!tree_pack_number(list, i, &number, &integer))
            return false;
        unsigned n = tree_print_real(number, text);
        tree_text_add(out, i == 0 ? "[" : ",", 1);
        tree_text_add(out, text, integer ? n - 2 : n); /* without ".0" */
    }
    tree_text_add(out, "]", 1);
    return true;
}

int tree_unpack_text(const void *document, size_t bytes, struct tree_text *out, struct quire_error *err)
{
    const char *from = document, *at = from, *plain = from, *end = from + bytes;
    struct tree_list list;
    while (at < end) {
        if (!tree_pack_begins(*at)) {
            at++;
            continue;
        }
        tree_text_add(out, plain, (size_t)(at - plain));
        if (!tree_pack_open(at, end, &list) || !print_list(&list, out))
            return damaged((size_t)(at - from), err);
        plain = at = (const char *)list.items + (size_t)list.n * list.width;
    }
    tree_text_add(out, plain, (size_t)(end - plain));
    return 0;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* What a list of numbers is. */
struct numbers {
    uint32_t n, n_integers;
    bool floats;       /* all of them are */
    size_t text_bytes; /* of their text, at least */
};

/* False: it cannot be packed. */
static bool look(const json_t *array, struct numbers *out)
{
    bool whole_reals = false;
    size_t n = json_array_size(array);
    *out = (struct numbers){.n = (uint32_t)n, .floats = true, .text_bytes = 1};
    if (n < LIST_MIN || n > UINT32_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value))
            return false;
        double x = json_number_value(value);
        if (json_is_integer(value)) {
            if (json_integer_value(value) > (json_int_t)WHOLE_MAX || json_integer_value(value) < -(json_int_t)WHOLE_MAX)
                return false;
            out->n_integers++;
            out->text_bytes += sizeof "1," - 1;
        } else {
            whole_reals = whole_reals || x == floor(x);
            out->text_bytes += 4 * x == floor(4 * x) ? sizeof "0.5," - 1 : sizeof "0.125," - 1;
        }
        out->floats = out->floats && fabs(x) <= (double)FLT_MAX && x == (double)(float)x;
    }
    return out->n_integers == 0 || !whole_reals;
}

static void add_head(const struct numbers *numbers, enum tree_list_kind kind, struct tree_text *out)
{
    uint8_t head[HEAD_BYTES] = {(uint8_t)(kind + (numbers->n_integers > 0 ? TREE_LIST_KINDS : 0))};
    bytes_store_u32(head + 1, numbers->n);
    tree_text_add(out, head, sizeof head);
}

static void add_binary(const json_t *array, const struct numbers *numbers, enum tree_list_kind kind,
                       struct tree_text *out)
{
    add_head(numbers, kind, out);
    for (uint32_t i = 0; i < numbers->n; i++) {
        double number = json_number_value(json_array_get(array, i));
        float single = (float)number;
        if (kind == TREE_FLOATS)
            tree_text_add(out, &single, sizeof single);
        else
            tree_text_add(out, &number, sizeof number);
    }
}

/* The decimals of all numbers with one power of ten; false: there is none that holds them. */
static bool find_decimals(const json_t *array, struct tree_decimal *decimals, uint32_t n, int *power, int64_t *largest)
{
    *power = 0;
    *largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double x = json_number_value(json_array_get(array, i));
        decimals[i] = x == 0 ? (struct tree_decimal){0, 0} : tree_print_decimal(fabs(x));
        if ((x == 0 && signbit(x)) || -decimals[i].exponent > POWER_MAX || decimals[i].digits > (uint64_t)WHOLE_MAX)
            return false;
        *power = -decimals[i].exponent > *power ? -decimals[i].exponent : *power;
    }
    for (uint32_t i = 0; i < n; i++) {
        int shift = *power + decimals[i].exponent;
        /* both are exact, and so is the product, if it is less than WHOLE_MAX */
        double scaled = shift > POWER_MAX ? INFINITY : (double)decimals[i].digits * powers[shift];
        if (decimals[i].digits > 0 && scaled >= WHOLE_MAX)
            return false;
        decimals[i].digits = decimals[i].digits > 0 ? (uint64_t)scaled : 0;
        *largest = (int64_t)decimals[i].digits > *largest ? (int64_t)decimals[i].digits : *largest;
    }
    return true;
}

static void add_decimals(const json_t *array, const struct numbers *numbers, const struct tree_decimal *decimals,
                         int power, int64_t largest, struct tree_text *out)
{
    unsigned width = 1;
    while (largest >> (8 * width - 1) > 0)
        width++;
    assert(width <= 7 && power <= POWER_MAX);
    const uint8_t form[DECIMAL_BYTES] = {(uint8_t)width, (uint8_t)power};
    add_head(numbers, TREE_DECIMALS, out);
    tree_text_add(out, form, sizeof form);
    for (uint32_t i = 0; i < numbers->n; i++) {
        uint8_t bytes[8];
        uint64_t digits = decimals[i].digits;
        bytes_store_u64(bytes, json_number_value(json_array_get(array, i)) < 0 ? (uint64_t)0 - digits : digits);
        tree_text_add(out, bytes, width);
    }
}

/* The shortest of its forms behind what is there. */
static void add_packed(const json_t *array, const struct numbers *numbers, struct tree_text *out)
{
    struct tree_decimal *decimals = NULL;
    int power;
    int64_t largest;
    if (numbers->floats && numbers->n_integers < numbers->n) {
        add_binary(array, numbers, TREE_FLOATS, out);
        return;
    }
    decimals = malloc(numbers->n * sizeof *decimals);
    if (!decimals)
        tree_text_fail(out);
    else if (find_decimals(array, decimals, numbers->n, &power, &largest))
        add_decimals(array, numbers, decimals, power, largest, out);
    else
        add_binary(array, numbers, TREE_DOUBLES, out);
    free(decimals);
}

static size_t text_bytes(const json_t *array)
{
    char text[TREE_NUMBER_BYTES];
    size_t bytes = 1;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *value = json_array_get(array, i);
        unsigned n = tree_print_real(json_number_value(value), text);
        bytes += 1 + (json_is_integer(value) ? n - 2 : n);
    }
    return bytes;
}

bool tree_pack_list(const json_t *array, struct tree_text *out)
{
    struct numbers numbers;
    size_t from = out->bytes;
    if (!look(array, &numbers))
        return false;
    add_packed(array, &numbers, out);
    if (out->failed)
        return true;
    size_t taken = out->bytes - from;
    if (taken > numbers.text_bytes && taken > text_bytes(array)) {
        out->bytes = from;
        return false;
    }
    out->n_packed += numbers.n;
    return true;
}

void tree_pack(const json_t *value, size_t text_most, struct tree_text *out)
{
    assert(!out->data && out->most == 0);
    out->packs = true;
    tree_print(value, NULL, 0, out);
    if (out->failed || text_most == 0 || out->bytes + out->n_packed * TREE_NUMBER_BYTES <= text_most)
        return;
    struct tree_text text = {.most = text_most}; /* near the limit: it is made to be measured */
    tree_print(value, NULL, 0, &text);
    out->failed = text.failed;
    out->too_long = text.too_long;
    tree_text_fini(&text);
}
