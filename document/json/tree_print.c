/*
 * tree_print.c - a tree to text, in the form that RedisJSON gives (that of Rust's serde_json).
 *
 * Reals are the difficult part: 0.1f read as a double has 17 digits, most others fewer, and a vector has thousands of
 * them. The shortest digits that read back as the same double are found by looking at the interval of all numbers that
 * do (Steele and White 1990; Adams, "Ryu", PLDI 2018). Where numbers are of ordinary size, from 1e-5 to 2^55, the
 * interval scaled to 17 digits is exact in 128 bits, so that no table of powers is needed; others go through printf.
 */
#include "document/json/tree_priv.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 17, SCALE_MAX = 21, MANTISSA_BITS = 52, EXPONENT_BIAS = 1023, POINT_MAX = 16, POINT_MIN = -5 };

__extension__ typedef unsigned __int128 wide;

/* ---- text -------------------------------------------------------------------------------------------------------- */

void tree_text_fini(struct tree_text *text)
{
    free(text->data);
    *text = (struct tree_text){.data = NULL};
}

static void fail(struct tree_text *text, bool too_long)
{
    size_t most = text->most;
    tree_text_fini(text);
    text->most = most;
    text->failed = true;
    text->too_long = too_long;
}

void tree_text_fail(struct tree_text *text)
{
    fail(text, false);
}

void tree_text_add(struct tree_text *text, const void *bytes, size_t n)
{
    if (text->failed || n == 0)
        return;
    if (text->most && n > text->most - text->bytes) {
        fail(text, true);
        return;
    }
    if (text->capacity - text->bytes < n) {
        size_t capacity = text->bytes + n + (text->bytes + n) / 2 + 64;
        char *bigger = realloc(text->data, capacity);
        if (!bigger) {
            fail(text, false);
            return;
        }
        text->data = bigger;
        text->capacity = capacity;
    }
    memcpy(text->data + text->bytes, bytes, n);
    text->bytes += n;
}

static void add_escaped(struct tree_text *out, unsigned char c)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char escape[8];
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if (shorts[i] == (char)c) {
            escape[0] = '\\';
            escape[1] = shorts[i + 1];
            tree_text_add(out, escape, 2);
            return;
        }
    tree_text_add(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", c));
}

void tree_text_add_quoted(struct tree_text *out, const char *string, size_t n)
{
    size_t from = 0;
    tree_text_add(out, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)string[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        tree_text_add(out, string + from, i - from);
        add_escaped(out, c);
        from = i + 1;
    }
    tree_text_add(out, string + from, n - from);
    tree_text_add(out, "\"", 1);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static uint64_t power_of_ten(int n)
{
    static const uint64_t powers[] = {1u,
                                      10u,
                                      100u,
                                      1000u,
                                      10000u,
                                      100000u,
                                      1000000u,
                                      10000000u,
                                      100000000u,
                                      1000000000u,
                                      10000000000u,
                                      100000000000u,
                                      1000000000000u,
                                      10000000000000u,
                                      100000000000000u,
                                      1000000000000000u,
                                      10000000000000000u,
                                      100000000000000000u,
                                      1000000000000000000u,
                                      10000000000000000000u};
    assert(n >= 0 && n < (int)(sizeof powers / sizeof *powers));
    return powers[n];
}

static wide wide_power_of_ten(int n)
{
    int first = n < 19 ? n : 19;
    return (wide)power_of_ten(first) * power_of_ten(n - first);
}

/* Of the multiples of 10^n in [low, high] the one next to value + fraction (of a half: below, equal, above). */
static uint64_t nearest_multiple(uint64_t value, int over_half, bool exact, int n, uint64_t low, uint64_t high)
{
    if (n == 0) {
        bool next = over_half > 0 || (over_half == 0 && value % 2 == 1);
        return (next && value + 1 <= high) || value < low ? value + 1 : value;
    }
    uint64_t unit = power_of_ten(n), rest = value % unit, down = value - rest;
    bool up;
    if (2 * rest != unit)
        up = 2 * rest > unit;
    else
        up = !exact || down / unit % 2 == 1;
    if ((up && down + unit <= high) || down < low)
        return down + unit;
    return down;
}

/* Of 1e-5 <= number < 2^55. */
static struct tree_decimal shortest_exact(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    int binary = (int)(bits >> MANTISSA_BITS) - EXPONENT_BIAS; /* 2^binary <= number */
    /* 10^decimal <= number; the greatest or, at times, the one below: then there is a digit more */
    int decimal = (int)floor(binary * 0.30102999566398120), scale = DIGITS_MAX - 1 - decimal;
    uint64_t mantissa = (bits & ((1ull << MANTISSA_BITS) - 1)) | 1ull << MANTISSA_BITS;
    bool even = mantissa % 2 == 0, at_power = mantissa == 1ull << MANTISSA_BITS;
    unsigned shift = (unsigned)(MANTISSA_BITS + 2 - binary); /* of quarters of the last bit */
    scale = scale < 0 ? 0 : scale > SCALE_MAX ? SCALE_MAX : scale;
    assert(shift < 128 && mantissa < 1ull << (MANTISSA_BITS + 1));
    wide mask = ((wide)1 << shift) - 1, half = shift ? (wide)1 << (shift - 1) : 0;
    wide quarter = wide_power_of_ten(scale), middle = quarter * (4 * mantissa);
    wide below = middle - (at_power ? 1 : 2) * quarter, above = middle + 2 * quarter;
    /* numbers at the ends of the interval round to the even mantissa */
    uint64_t low = (uint64_t)(below >> shift) + !(even && (below & mask) == 0);
    uint64_t high = (uint64_t)(above >> shift) - (!even && (above & mask) == 0);
    wide fraction = middle & mask;
    int n = 0, over_half = fraction == half && shift ? 0 : fraction > half ? 1 : -1;
    assert(low <= high);
    while (n <= DIGITS_MAX && high - high % power_of_ten(n + 1) >= low) /* a multiple is among them */
        n++;
    uint64_t digits = nearest_multiple((uint64_t)(middle >> shift), over_half, fraction == 0, n, low, high);
    return (struct tree_decimal){n > 0 ? digits / power_of_ten(n) : digits, n - scale};
}

/* Of any positive number: the first precision that reads back. */
static struct tree_decimal shortest_by_trial(double number)
{
    char text[TREE_NUMBER_BYTES];
    struct tree_decimal d = {0, 0};
    for (int digits = fpclassify(number) == FP_SUBNORMAL ? 1 : DIGITS_MAX - 2; digits <= DIGITS_MAX; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, number);
        if (strtod(text, NULL) == number)
            break;
    }
    char *e = strchr(text, 'e');
    d.exponent = (int)strtol(e + 1, NULL, 10);
    for (const char *c = text; c < e; c++) {
        if (*c == '.')
            continue;
        d.digits = 10 * d.digits + (uint64_t)(*c - '0');
        d.exponent -= c > text;
    }
    while (d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    return d;
}

static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                            "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                            "8081828384858687888990919293949596979899";

static char *put(char *to, const char *from, int n)
{
    memcpy(to, from, (size_t)n);
    return to + n;
}

static char *put_zeros(char *to, int n)
{
    memset(to, '0', (size_t)n);
    return to + n;
}

/* serde_json's (ryu's) choice between the forms. `point`: digits before the decimal point. The end of the text. */
static char *write_decimal(const char *digits, int n, int point, char *to)
{
    if (point >= n && point <= POINT_MAX)
        return put(put_zeros(put(to, digits, n), point - n), ".0", 2);
    if (point > 0 && point <= POINT_MAX)
        return put(put(put(to, digits, point), ".", 1), digits + point, n - point);
    if (point > POINT_MIN && point <= 0)
        return put(put_zeros(put(to, "0.", 2), -point), digits, n);
    to = put(to, digits, 1);
    if (n > 1)
        to = put(put(to, ".", 1), digits + 1, n - 1);
    return to + snprintf(to, sizeof "e-1023", "e%d", point - 1);
}

struct tree_decimal tree_print_decimal(double number)
{
    assert(isfinite(number) && number > 0);
    return number >= 1e-5 && number < 0x1p55 ? shortest_exact(number) : shortest_by_trial(number);
}

unsigned tree_print_real(double number, char out[TREE_NUMBER_BYTES])
{
    char digits[TREE_NUMBER_BYTES];
    unsigned sign = signbit(number) != 0;
    double size = fabs(number);
    assert(isfinite(number));
    if (sign)
        out[0] = '-';
    if (size == 0) {
        memcpy(out + sign, "0.0", 4);
        return sign + 3;
    }
    struct tree_decimal d = tree_print_decimal(size);
    int at = sizeof digits;
    uint64_t rest = d.digits;
    for (; rest >= 10; rest /= 100) {
        at -= 2;
        memcpy(digits + at, &pairs[2 * (rest % 100)], 2);
    }
    if (rest > 0)
        digits[--at] = (char)('0' + rest);
    int n = (int)sizeof digits - at;
    char *end = write_decimal(digits + at, n, n + d.exponent, out + sign);
    assert(end > out && end < out + TREE_NUMBER_BYTES);
    *end = 0;
    return (unsigned)(end - out);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

void tree_print_break(const struct tree_style *style, unsigned level, struct tree_text *out)
{
    if (!style)
        return;
    tree_text_add(out, style->newline, style->newline_bytes);
    for (unsigned i = 0; i < level && style->indent_bytes > 0; i++)
        tree_text_add(out, style->indent, style->indent_bytes);
}

static void print_array(const json_t *array, const struct tree_style *style, unsigned level, struct tree_text *out)
{
    size_t n = json_array_size(array);
    if (out->packs && tree_pack_list(array, out))
        return;
    tree_text_add(out, "[", 1);
    for (size_t i = 0; i < n && !out->failed; i++) {
        if (i > 0)
            tree_text_add(out, ",", 1);
        tree_print_break(style, level + 1, out);
        tree_print(json_array_get(array, i), style, level + 1, out);
    }
    if (n > 0)
        tree_print_break(style, level, out);
    tree_text_add(out, "]", 1);
}

static void print_object(json_t *object, const struct tree_style *style, unsigned level, struct tree_text *out)
{
    bool first = true;
    tree_text_add(out, "{", 1);
    for (void *at = json_object_iter(object); at && !out->failed; at = json_object_iter_next(object, at)) {
        if (!first)
            tree_text_add(out, ",", 1);
        first = false;
        tree_print_break(style, level + 1, out);
        tree_text_add_quoted(out, json_object_iter_key(at), json_object_iter_key_len(at));
        tree_text_add(out, ":", 1);
        if (style)
            tree_text_add(out, style->space, style->space_bytes);
        tree_print(json_object_iter_value(at), style, level + 1, out);
    }
    if (!first)
        tree_print_break(style, level, out);
    tree_text_add(out, "}", 1);
}

void tree_print(const json_t *value, const struct tree_style *style, unsigned level, struct tree_text *out)
{
    char number[TREE_NUMBER_BYTES];
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        /* iterating changes nothing, though jansson asks for a value that may change */
        print_object((json_t *)(uintptr_t)value, style, level, out);
        break;
    case JSON_ARRAY:
        print_array(value, style, level, out);
        break;
    case JSON_STRING:
        tree_text_add_quoted(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        tree_text_add(out, number,
                      (size_t)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value)));
        break;
    case JSON_REAL:
        tree_text_add(out, number, tree_print_real(json_real_value(value), number));
        break;
    case JSON_TRUE:
        tree_text_add(out, "true", 4);
        break;
    case JSON_FALSE:
        tree_text_add(out, "false", 5);
        break;
    case JSON_NULL:
        tree_text_add(out, "null", 4);
        break;
    }
}
