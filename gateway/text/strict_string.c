/*
 * strict_string.c - strings of JSON: scanned, spelled canonically, decoded.
 *
 * Eight bytes at a time as long as they are ASCII that stands for itself. UTF-8 is checked by the table of the Unicode
 * standard (3.9, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF. A surrogate that is escaped must
 * have its other half escaped behind it.
 */
#include "gateway/text/strict_priv.h"
#include <assert.h>
#include <string.h>

/* Whether all eight bytes are ASCII from U+0020 on, no quote and no backslash. */
static bool eight_plain(const char *text)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t x;
    memcpy(&x, text, sizeof x);
    uint64_t quote = x ^ (ones * '"'), backslash = x ^ (ones * '\\');
    uint64_t found = ((x - ones * 0x20) & ~x) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | x;
    return (found & tops) == 0;
}

/* The bytes of the character that begins with a byte above 0x7f; 0: that is no UTF-8. */
static size_t utf8_bytes(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    size_t bytes = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || n < bytes)
        return 0;
    unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The four digits behind \u; -1: there are not four. */
static int32_t hex4(const char *s, size_t n)
{
    int32_t x = 0;
    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(s[i]);
        if (digit < 0)
            return -1;
        x = x * 16 + digit;
    }
    return x;
}

/* The escape at `s`, a backslash: its bytes and what it stands for. 0: *wrong. */
static size_t escape_bytes(const char *s, size_t n, uint32_t *character, const char **wrong)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    *wrong = "an escape that is none";
    if (n < 2)
        return 0;
    const char *letter = s[1] ? strchr(letters, s[1]) : NULL;
    if (letter) {
        *character = (unsigned char)meanings[letter - letters];
        return 2;
    }
    int32_t x = s[1] == 'u' ? hex4(s + 2, n - 2) : -1;
    if (x < 0)
        return 0;
    *character = (uint32_t)x;
    if (x < 0xd800 || x > 0xdfff)
        return 6;
    int32_t y = x < 0xdc00 && n >= 12 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8, n - 8) : -1;
    *wrong = "half a surrogate pair";
    if (y < 0xdc00 || y > 0xdfff)
        return 0;
    *character = 0x10000u + (uint32_t)(((x - 0xd800) << 10) + (y - 0xdc00));
    return 12;
}

void strict_scan_string(const char *text, size_t n, struct strict_scan *scan)
{
    size_t at = 0, bytes = 1;
    uint32_t character;
    *scan = (struct strict_scan){.respell = false};
    while (bytes > 0) {
        while (n - at >= 8 && eight_plain(text + at))
            at += 8;
        unsigned char c = at < n ? (unsigned char)text[at] : 0;
        if (c == '"')
            break;
        if (c < 0x20) {
            scan->wrong = at < n ? "a control character in a string" : "a string without an end";
            break;
        }
        bytes = 1;
        if (c == '\\') {
            bytes = escape_bytes(text + at, n - at, &character, &scan->wrong);
            scan->respell |= text[at + (bytes > 0)] == 'u' || text[at + (bytes > 0)] == '/';
        } else if (c >= 0x80) {
            bytes = utf8_bytes((const unsigned char *)text + at, n - at);
            scan->wrong = "bytes that are no UTF-8";
        }
        if (bytes > 0)
            scan->wrong = NULL;
        at += bytes;
    }
    scan->bytes = at;
}

static size_t put_utf8(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(first[bytes] | c);
    return bytes;
}

/* A character as canonical JSON has it. */
static size_t put_canonical(uint32_t c, char *out)
{
    static const char digits[] = "0123456789abcdef", short_ones[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *one = memchr(short_ones, c < 0x80 ? (int)c : 0xff, sizeof short_ones - 1);
    if (one) {
        out[0] = '\\';
        out[1] = letters[one - short_ones];
        return 2;
    }
    if (c >= 0x20)
        return put_utf8(c, out);
    memcpy(out, "\\u00", 4);
    out[4] = digits[c >> 4];
    out[5] = digits[c & 15];
    return 6;
}

size_t strict_spell(const char *string, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < bytes;) {
        const char *escape = memchr(string + at, '\\', bytes - at), *wrong;
        size_t plain = (escape ? (size_t)(escape - string) : bytes) - at;
        memcpy(out + n, string + at, plain);
        n += plain;
        at += plain;
        if (at < bytes) {
            uint32_t character = 0;
            size_t taken = escape_bytes(string + at, bytes - at, &character, &wrong);
            assert(taken > 0);
            n += put_canonical(character, out + n);
            at += taken;
        }
    }
    assert(n <= bytes);
    return n;
}

size_t strict_decode(const struct strict *json, uint32_t node, char *out)
{
    struct strict_text from = strict_spelling(json, node);
    size_t n = 0;
    for (size_t at = 0; at < from.bytes;) {
        const char *escape = memchr(from.data + at, '\\', from.bytes - at), *wrong;
        size_t plain = (escape ? (size_t)(escape - from.data) : from.bytes) - at;
        memcpy(out + n, from.data + at, plain);
        n += plain;
        at += plain;
        if (at < from.bytes) {
            uint32_t character = 0;
            size_t taken = escape_bytes(from.data + at, from.bytes - at, &character, &wrong);
            assert(taken > 0);
            n += put_utf8(character, out + n);
            at += taken;
        }
    }
    return n;
}

size_t strict_quote(const char *text, size_t bytes, char *out)
{
    size_t n = 0;
    out[n++] = '"';
    for (size_t at = 0; at < bytes;) {
        unsigned char c = (unsigned char)text[at];
        size_t taken = c < 0x80 ? 1 : utf8_bytes((const unsigned char *)text + at, bytes - at);
        if (taken == 0)
            return 0;
        if (c < 0x80)
            n += put_canonical(c, out + n);
        else
            memcpy(out + n, text + at, taken);
        n += c < 0x80 ? 0 : taken;
        at += taken;
    }
    out[n++] = '"';
    assert(n <= 6 * bytes + 2);
    return n;
}
