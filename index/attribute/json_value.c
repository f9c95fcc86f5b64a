/*
 * json_value.c - fields of an object and members of a list, read where they stand.
 *
 * What passes as JSON is what passes in Redis's vector sets, because filters there and here must agree on texts that no
 * one has checked: fields that are not asked for are only stepped over (a number is any run of its characters, a pair
 * of brackets is found by counting brackets of its kind outside of strings), the one that is asked for must be
 * well-formed. "01", "+5", "1." and a comma before the closing brace pass, ".5" and "trueish" do not. Where the end of
 * a value cannot be told, nothing behind it is there.
 *
 * Escapes: unlike Redis, \b, \f and \u are taken out as JSON says (Redis leaves the letter), and a name is compared
 * without its escapes; so "caf\u00e9" is the word that its writer meant.
 *
 * Numbers are converted without strtod where that is exact (Clinger 1990: a mantissa below 2^53 and a power of ten up
 * to 22 are both doubles, so one multiplication rounds once). Otherwise strtod gets digits and an exponent without a
 * point, so that the locale of the host cannot change what a number is.
 *
 * Lists are checked when they are met, with a counter instead of recursion: nesting costs nothing and cannot end the
 * stack.
 */
#include "index/attribute/json_value.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 255u /* Redis's: of a longer number the rest is not looked at */
#define DIGITS_EXACT     19   /* that a u64 holds whatever they are */
#define EXPONENT_MAX     100000

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_number_char(char c)
{
    return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct decimal {
    char digits[NUMBER_BYTES_MAX + 1]; /* without leading zeros */
    uint32_t n_digits;
    int exponent; /* of the last digit */
};

/* Digits up to the first other character; those behind a point lower the exponent. */
static const char *read_digits(const char *at, const char *end, bool behind_point, struct decimal *out)
{
    for (; at < end && is_digit(*at); at++) {
        if (out->n_digits || *at != '0')
            out->digits[out->n_digits++] = *at;
        out->exponent -= behind_point;
    }
    return at;
}

/* The whole number behind `e`, or NULL; beyond EXPONENT_MAX every number is 0 or infinite anyway. */
static const char *read_exponent(const char *at, const char *end, int *out)
{
    bool negative = at < end && *at == '-';
    const char *digits = at < end && (*at == '-' || *at == '+') ? at + 1 : at;
    int value = 0;
    for (at = digits; at < end && is_digit(*at); at++)
        value = value < EXPONENT_MAX ? value * 10 + (*at - '0') : EXPONENT_MAX;
    *out = negative ? -value : value;
    return at > digits ? at : NULL;
}

static double decimal_value(struct decimal *x)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[NUMBER_BYTES_MAX + 32];
    if (x->n_digits == 0)
        return 0;
    if (x->n_digits <= DIGITS_EXACT && x->exponent >= -22 && x->exponent <= 22) {
        uint64_t mantissa = 0;
        for (uint32_t i = 0; i < x->n_digits; i++)
            mantissa = mantissa * 10 + (uint64_t)(x->digits[i] - '0');
        if (mantissa <= 1ull << 53)
            return x->exponent < 0 ? (double)mantissa / powers[-x->exponent] : (double)mantissa * powers[x->exponent];
    }
    assert(x->n_digits <= NUMBER_BYTES_MAX);
    x->digits[x->n_digits] = 0;
    snprintf(text, sizeof text, "%se%d", x->digits, x->exponent);
    return strtod(text, NULL);
}

bool json_number(const char *text, size_t bytes, double *out)
{
    const char *at = text, *end = text + bytes;
    struct decimal x = {.n_digits = 0};
    bool negative = bytes && *text == '-';
    int exponent = 0;
    if (bytes > NUMBER_BYTES_MAX)
        return false;
    at += bytes && (*text == '-' || *text == '+');
    const char *digits = at;
    at = read_digits(at, end, false, &x);
    size_t n_digits = (size_t)(at - digits);
    if (at < end && *at == '.') {
        digits = at + 1;
        at = read_digits(digits, end, true, &x);
        n_digits += (size_t)(at - digits);
    }
    if (n_digits == 0)
        return false;
    if (at < end && (*at == 'e' || *at == 'E'))
        at = read_exponent(at + 1, end, &exponent);
    if (at != end)
        return false;
    x.exponent += exponent;
    double value = decimal_value(&x);
    *out = negative ? -value : value;
    return true;
}

/* ---- stepping over values ---------------------------------------------------------------------------------------- */

/* Behind the closing quote of the string that opens at `at`; NULL: there is none. */
static const char *skip_string(const char *at, const char *end, bool *escaped)
{
    for (at++; at < end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\') {
            *escaped = true;
            if (++at == end)
                return NULL;
        }
    }
    return NULL;
}

static const char *skip_brackets(const char *at, const char *end, char open, char close)
{
    uint32_t depth = 0;
    bool escaped = false;
    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end, &escaped);
            if (!at)
                return NULL;
            continue;
        }
        if (*at == open)
            depth++;
        else if (*at == close && --depth == 0)
            return at + 1;
        at++;
    }
    return NULL;
}

static const char *skip_word(const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0 ? at + n : NULL;
}

static const char *skip_number(const char *at, const char *end)
{
    const char *from = at;
    while (at < end && is_number_char(*at))
        at++;
    return at > from ? at : NULL;
}

/* Behind the value at `at`; NULL: its end cannot be told. */
static const char *skip_value(const char *at, const char *end, bool *escaped)
{
    if (at >= end)
        return NULL;
    switch (*at) {
    case '"':
        return skip_string(at, end, escaped);
    case '{':
        return skip_brackets(at, end, '{', '}');
    case '[':
        return skip_brackets(at, end, '[', ']');
    case 't':
        return skip_word(at, end, "true");
    case 'f':
        return skip_word(at, end, "false");
    case 'n':
        return skip_word(at, end, "null");
    default:
        return skip_number(at, end);
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A number at at..behind, or NONE. */
static struct json_value number_value(const char *at, const char *behind)
{
    struct json_value value = {.kind = VALUE_NONE};
    size_t n = (size_t)(behind - at);
    bool begins = is_digit(*at) || *at == '-' || *at == '+';
    if (begins && json_number(at, n < NUMBER_BYTES_MAX ? n : NUMBER_BYTES_MAX, &value.number))
        value.kind = VALUE_NUMBER;
    return value;
}

/* true, false or null at at..behind, or NONE where something is joined to it. */
static struct json_value word_value(const char *at, const char *behind, const char *end)
{
    struct json_value value = {.kind = *at == 'n' ? VALUE_NULL : VALUE_BOOL, .number = *at == 't'};
    bool apart = behind == end || is_space(*behind) || *behind == ',' || *behind == ']' || *behind == '}';
    return apart ? value : (struct json_value){.kind = VALUE_NONE};
}

/* Behind a member of a list that is no list itself; NULL: it is not well-formed. */
static const char *check_member(const char *at, const char *end)
{
    bool escaped = false;
    const char *behind = skip_value(at, end, &escaped);
    if (!behind || *at == '"')
        return behind;
    bool is_word = *at == 't' || *at == 'f' || *at == 'n';
    struct json_value value = is_word ? word_value(at, behind, end) : number_value(at, behind);
    return value.kind == VALUE_NONE || (!is_word && (size_t)(behind - at) > NUMBER_BYTES_MAX) ? NULL : behind;
}

/* LIST, OBJECT or NONE: what the brackets at at..end hold. */
static enum value_kind list_kind(const char *at, const char *end)
{
    uint32_t depth = 0;
    while (at && at < end) {
        at = skip_space(at, end);
        if (at < end && *at == '{')
            return VALUE_OBJECT;
        if (at < end && *at == '[') {
            depth++;
            at = skip_space(at + 1, end);
            if (at >= end || *at != ']')
                continue;
        } else {
            at = check_member(at, end);
        }
        for (at = at ? skip_space(at, end) : end; at < end && *at == ']'; at = skip_space(at + 1, end))
            if (--depth == 0)
                return VALUE_LIST;
        if (at >= end || *at != ',')
            return VALUE_NONE;
        at++;
    }
    return VALUE_NONE;
}

/* The value at at..behind. */
static struct json_value read_value(const char *at, const char *behind, const char *end, bool escaped)
{
    struct json_value value = {.kind = VALUE_NONE};
    switch (*at) {
    case '"':
        value.kind = VALUE_STRING;
        value.escaped = escaped;
        break;
    case '{':
        value.kind = VALUE_OBJECT;
        return value;
    case '[':
        value.kind = list_kind(at, behind);
        if (value.kind != VALUE_LIST)
            return value;
        break;
    case 't':
    case 'f':
    case 'n':
        return word_value(at, behind, end);
    default:
        return number_value(at, behind);
    }
    value.text = at + 1;
    value.bytes = (uint32_t)(behind - at - 2);
    return value;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

void json_walk_object(struct json_walk *walk, const char *json, size_t bytes)
{
    walk->end = bytes ? json + bytes : json;
    walk->at = bytes ? skip_space(json, walk->end) : json;
    walk->at = walk->at < walk->end && *walk->at == '{' ? walk->at + 1 : walk->end;
}

void json_walk_list(struct json_walk *walk, const struct json_value *list)
{
    walk->at = list->text;
    walk->end = list->bytes ? list->text + list->bytes : list->text;
}

/* The name of the next field, up to where its value begins; false: there is none. */
static bool next_name(struct json_walk *walk, struct json_value *name)
{
    bool escaped = false;
    const char *at = skip_space(walk->at, walk->end);
    const char *behind = at < walk->end && *at == '"' ? skip_string(at, walk->end, &escaped) : NULL;
    walk->at = walk->end;
    if (!behind)
        return false;
    *name = read_value(at, behind, walk->end, escaped);
    at = skip_space(behind, walk->end);
    if (at >= walk->end || *at != ':')
        return false;
    walk->at = at + 1;
    return true;
}

/* The next value, which is only stepped over where `value` is NULL; false: its end cannot be told. */
static bool next_value(struct json_walk *walk, struct json_value *value)
{
    bool escaped = false;
    const char *at = skip_space(walk->at, walk->end);
    const char *behind = skip_value(at, walk->end, &escaped);
    walk->at = walk->end;
    if (!behind)
        return false;
    if (value)
        *value = read_value(at, behind, walk->end, escaped);
    at = skip_space(behind, walk->end);
    if (at < walk->end && *at == ',')
        walk->at = at + 1;
    return true;
}

bool json_next(struct json_walk *walk, struct json_value *name, struct json_value *value)
{
    return (!name || next_name(walk, name)) && next_value(walk, value);
}

static bool is_named(const struct json_value *found, const struct json_name *name)
{
    struct json_value plain = {.kind = VALUE_STRING, .text = name->text, .bytes = name->bytes};
    return json_same_text(found, &plain);
}

void json_fields(const char *json, size_t bytes, const struct json_name *names, uint32_t n, struct json_value *values)
{
    struct json_walk walk;
    struct json_value name;
    uint64_t open = n < 64 ? (1ull << n) - 1 : UINT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        values[i] = (struct json_value){.kind = VALUE_NONE};
    json_walk_object(&walk, json, bytes);
    assert(n <= 64);
    while (open && next_name(&walk, &name)) {
        uint32_t i = 0;
        while (i < n && !is_named(&name, &names[i]))
            i++;
        bool asked = i < n && (open >> i & 1);
        if (asked)
            open &= ~(1ull << i);
        if (!next_value(&walk, asked ? &values[i] : NULL))
            return;
    }
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The four hexadecimal digits of a \u at `at`, or -1. */
static int32_t read_hex(const char *at, const char *end)
{
    int32_t value = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (uint32_t i = 2; i < 6; i++) {
        char c = (char)(at[i] | 0x20);
        if (!is_digit(at[i]) && (c < 'a' || c > 'f'))
            return -1;
        value = value << 4 | (is_digit(at[i]) ? at[i] - '0' : c - 'a' + 10);
    }
    return value;
}

static uint32_t put_utf8(uint32_t code, char *out)
{
    uint32_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(marks[n] | code);
    return n;
}

/* A \u with the half that follows it, if it is one; `first` is its number. */
static uint32_t unescape_code(const char **at, const char *end, int32_t first, char *out)
{
    uint32_t code = (uint32_t)first;
    *at += 6;
    if (code >= 0xd800 && code < 0xdc00) {
        int32_t second = read_hex(*at, end);
        bool paired = second >= 0xdc00 && second < 0xe000;
        code = paired ? 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)second - 0xdc00) : 0xfffd;
        *at += paired ? 6 : 0;
    } else if (code >= 0xdc00 && code < 0xe000) {
        code = 0xfffd;
    }
    return put_utf8(code, out);
}

/* One byte as it stands, or the escape at *at < end, which is moved behind it. Never longer than what it stands for. */
static uint32_t unescape_one(const char **at, const char *end, char *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    int32_t code = read_hex(*at, end);
    if (code >= 0)
        return unescape_code(at, end, code, out);
    if (**at == '\\' && *at + 1 < end) {
        ++*at;
        const char *known = **at ? strchr(from, **at) : NULL;
        *out = known ? to[known - from] : **at;
    } else {
        *out = **at;
    }
    ++*at;
    return 1;
}

uint32_t json_unescape(const struct json_value *value, char *out)
{
    const char *at = value->text, *end = value->bytes ? at + value->bytes : at;
    uint32_t n = 0;
    if (!value->escaped) {
        if (value->bytes)
            memcpy(out, value->text, value->bytes);
        return value->bytes;
    }
    while (at < end) {
        char piece[4];
        uint32_t n_piece = unescape_one(&at, end, piece);
        memcpy(out + n, piece, n_piece);
        n += n_piece;
    }
    assert(n <= value->bytes); /* an escape never grows */
    return n;
}

void json_bytes_init(struct json_bytes *bytes, const struct json_value *value)
{
    *bytes = (struct json_bytes){.at = value->text, .escaped = value->escaped};
    bytes->end = value->bytes ? value->text + value->bytes : value->text;
}

int json_byte(struct json_bytes *bytes)
{
    if (bytes->i < bytes->n)
        return (uint8_t)bytes->out[bytes->i++];
    if (bytes->at >= bytes->end)
        return -1;
    if (!bytes->escaped)
        return (uint8_t)*bytes->at++;
    bytes->n = (uint8_t)unescape_one(&bytes->at, bytes->end, bytes->out);
    bytes->i = 1;
    return (uint8_t)bytes->out[0];
}

bool json_same_text(const struct json_value *a, const struct json_value *b)
{
    struct json_bytes from_a, from_b;
    if (!a->escaped && !b->escaped)
        return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->text, b->text, a->bytes) == 0);
    json_bytes_init(&from_a, a);
    json_bytes_init(&from_b, b);
    for (;;) {
        int x = json_byte(&from_a);
        if (x != json_byte(&from_b))
            return false;
        if (x < 0)
            return true;
    }
}
