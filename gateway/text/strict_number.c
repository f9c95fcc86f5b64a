/*
 * strict_number.c - numbers of JSON by their exact decimal value: digits, and a power of ten. No double is involved, so
 * 9007199254740993 and 9007199254740992 are two numbers, and 1, 1.0 and 10e-1 are one.
 */
#include "gateway/text/strict_priv.h"
#include <assert.h>

enum { EXPONENT_DIGITS_MAX = 15 };

static size_t digits_from(const char *text, size_t at, size_t n)
{
    size_t begin = at;
    while (at < n && text[at] >= '0' && text[at] <= '9')
        at++;
    return at - begin;
}

static int64_t exponent_of(const char *text, size_t bytes)
{
    bool negative = bytes > 0 && text[0] == '-';
    int64_t x = 0;
    for (size_t i = bytes > 0 && (text[0] == '-' || text[0] == '+'); i < bytes; i++)
        x = x * 10 + (text[i] - '0');
    return negative ? -x : x;
}

/* "e" and x, which is not 0, into `out`; its bytes. Not by snprintf: a list may have a hundred thousand of them. */
static size_t spell_exponent(int64_t x, char out[24])
{
    char digits[20];
    size_t n = 0, bytes = 0;
    uint64_t left = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    for (; left > 0; left /= 10)
        digits[n++] = (char)('0' + left % 10);
    out[bytes++] = 'e';
    if (x < 0)
        out[bytes++] = '-';
    while (n > 0)
        out[bytes++] = digits[--n];
    assert(bytes < 24);
    out[bytes] = 0;
    return bytes;
}

void strict_number(const char *text, size_t bytes, struct strict_number *out)
{
    size_t at = text[0] == '-', whole = digits_from(text, at, bytes), point = at + whole, fraction = 0;
    out->negative = text[0] == '-';
    out->first = text + at;
    out->first_bytes = whole;
    out->tail_bytes = 0;
    out->tail[0] = 0;
    if (point < bytes && text[point] == '.')
        fraction = digits_from(text, point + 1, bytes);
    out->second = text + point + (fraction > 0);
    out->second_bytes = fraction;
    size_t mark = point + (fraction > 0) + fraction;
    int64_t exponent = mark < bytes ? exponent_of(text + mark + 1, bytes - mark - 1) : 0;
    exponent -= (int64_t)fraction;
    while (out->first_bytes > 0 && *out->first == '0') {
        out->first++;
        out->first_bytes--;
    }
    while (out->first_bytes == 0 && out->second_bytes > 0 && *out->second == '0') {
        out->second++;
        out->second_bytes--;
    }
    while (out->second_bytes > 0 && out->second[out->second_bytes - 1] == '0') {
        out->second_bytes--;
        exponent++;
    }
    while (out->second_bytes == 0 && out->first_bytes > 0 && out->first[out->first_bytes - 1] == '0') {
        out->first_bytes--;
        exponent++;
    }
    if (out->first_bytes + out->second_bytes == 0) {
        *out = (struct strict_number){.first = "0", .first_bytes = 1, .second = ""};
        return;
    }
    if (exponent != 0)
        out->tail_bytes = spell_exponent(exponent, out->tail);
}

/* Whether the canonical spelling has an exponent with more digits than are read. */
static bool exponent_is_long(const char *text, size_t bytes)
{
    struct strict_number number;
    strict_number(text, bytes, &number);
    size_t sign = number.tail_bytes > 1 && number.tail[1] == '-' ? 1 : 0;
    return number.tail_bytes > 1 + sign + EXPONENT_DIGITS_MAX;
}

size_t strict_scan_number(const char *text, size_t n, const char **wrong, int *code)
{
    size_t at = text[0] == '-', digits = digits_from(text, at, n);
    *code = QUIRE_EPARSE;
    *wrong = "a value is missing";
    if (digits == 0)
        return 0;
    *wrong = "a number that begins with 0";
    if (digits > 1 && text[at] == '0')
        return 0;
    at += digits;
    *wrong = "a number without digits where they belong";
    if (at < n && text[at] == '.') {
        digits = digits_from(text, at + 1, n);
        if (digits == 0)
            return 0;
        at += 1 + digits;
    }
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += at < n && (text[at] == '+' || text[at] == '-') ? 1 : 0;
        digits = digits_from(text, at, n);
        if (digits == 0)
            return 0;
        size_t zeros = 0;
        while (zeros < digits && text[at + zeros] == '0')
            zeros++;
        *code = QUIRE_ELIMIT;
        *wrong = "a number whose exponent has more than 15 digits";
        if (digits - zeros > EXPONENT_DIGITS_MAX)
            return 0;
        at += digits;
        /* where the point moves, the canonical spelling's exponent may have one more */
        if (digits - zeros == EXPONENT_DIGITS_MAX && exponent_is_long(text, at))
            return 0;
    }
    return at;
}
