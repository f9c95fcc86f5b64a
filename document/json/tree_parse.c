/*
 * tree_parse.c - text to a tree, by recursive descent.
 *
 * jansson has a parser of its own, which goes through a text byte by byte, refuses integers outside of 64 bits, and has
 * no limit on values. Documents with vectors are long lists of numbers, parsed anew by every command: here a list of
 * numbers takes a quarter of the time. What is accepted is the same otherwise (RFC 8259), which the tests compare.
 *
 * Levels and values are counted as they come, so that nothing is allocated beyond the limits.
 */
#include "document/json/tree_priv.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_BYTES_MAX = 512, /* longer ones are copied to be read */
    EXACT_DIGITS = 15,      /* of an integer that a double holds for sure, */
    EXACT_POWER = 22        /* as it does this power of ten */
};

struct parser {
    const char *from, *at, *end;
    unsigned depth;
    size_t n_values;
    bool packed;             /* lists of numbers may be binary */
    struct tree_text string; /* one with escapes */
    struct quire_error *err;
};

static json_t *parse_value(struct parser *p);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* What is wrong at p->at. */
static void wrong(const struct parser *p, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *at = p->from; at < p->at; at++) {
        line += *at == '\n';
        column = *at == '\n' ? 1 : column + 1;
    }
    error_set(p->err, QUIRE_EPARSE, "invalid JSON at byte %zu (line %zu, column %zu): %s%s", (size_t)(p->at - p->from),
              line, column, what, p->at == p->end ? ", and the text ends here" : "");
}

static void no_memory(const struct parser *p)
{
    error_set(p->err, QUIRE_ENOMEM, "no memory for a document of %zu bytes", (size_t)(p->end - p->from));
}

/* The value; where there is no memory for one, the error. */
static json_t *made(const struct parser *p, json_t *value)
{
    if (!value)
        no_memory(p);
    return value;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The length of the UTF-8 character at `at`; 0: it is none. */
static size_t utf8_bytes(const unsigned char *at, const unsigned char *end)
{
    unsigned char c = *at, low = 0x80, high = 0xbf; /* of the second byte */
    size_t n = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (n == 0 || (size_t)(end - at) < n)
        return 0;
    low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : low;   /* no overlong forms, */
    high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : high; /* surrogates or numbers that are no characters */
    if (at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    return n;
}

/* Four hexadecimal digits at p->at; false where there are none. */
static bool take_hex(struct parser *p, uint32_t *out)
{
    *out = 0;
    if (p->end - p->at < 4)
        return false;
    for (unsigned i = 0; i < 4; i++) {
        char c = *p->at++;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return false;
        *out = 16 * *out + digit;
    }
    return true;
}

static void add_character(struct tree_text *out, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(first[n] | c);
    tree_text_add(out, bytes, n);
}

/* Behind a backslash. */
static bool take_escape(struct parser *p)
{
    static const char shorts[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    uint32_t c, low;
    char letter = p->at < p->end ? *p->at : 0;
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if (shorts[i] == letter) {
            tree_text_add(&p->string, &shorts[i + 1], 1);
            p->at++;
            return true;
        }
    if (letter != 'u') {
        wrong(p, "an escape is \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX");
        return false;
    }
    p->at++;
    bool right = take_hex(p, &c);
    if (right && c >= 0xd800 && c <= 0xdbff) {
        right = p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u';
        p->at += right ? 2 : 0;
        right = right && take_hex(p, &low) && low >= 0xdc00 && low <= 0xdfff;
        c = right ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : 0;
    } else if (right && c >= 0xdc00 && c <= 0xdfff) {
        right = false;
    }
    if (!right)
        wrong(p, "\\u is followed by four hexadecimal digits, of which two halves of a character make one");
    else
        add_character(&p->string, c);
    return right;
}

/* The string whose quote is next: in the text itself, or with escapes in p->string. False after an error. */
static bool take_string(struct parser *p, const char **out, size_t *n)
{
    const char *plain = ++p->at;
    bool escaped = false;
    p->string.bytes = 0;
    while (p->at < p->end && *p->at != '"') {
        unsigned char c = (unsigned char)*p->at;
        if (c == '\\') {
            tree_text_add(&p->string, plain, (size_t)(p->at - plain));
            escaped = true;
            p->at++;
            if (!take_escape(p))
                return false;
            plain = p->at;
        } else if (c < 0x20) {
            wrong(p, "a control character in a string is written as \\uXXXX");
            return false;
        } else if (c < 0x80) {
            p->at++;
        } else {
            size_t bytes = utf8_bytes((const unsigned char *)p->at, (const unsigned char *)p->end);
            if (bytes == 0) {
                wrong(p, "a string is UTF-8");
                return false;
            }
            p->at += bytes;
        }
    }
    if (p->at == p->end) {
        wrong(p, "a string ends with a quote");
        return false;
    }
    *out = plain;
    *n = (size_t)(p->at - plain);
    p->at++;
    if (!escaped)
        return true;
    tree_text_add(&p->string, plain, *n);
    *out = p->string.data ? p->string.data : "";
    *n = p->string.bytes;
    if (p->string.failed)
        no_memory(p);
    return !p->string.failed;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static bool is_digit(const struct parser *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

/* A number as it is written: its digits, as far as they fit 64 bits, and the power of ten behind them. */
struct number {
    uint64_t digits;
    size_t n_digits; /* without zeros in front */
    int64_t power;
    bool negative, integer;
};

static void take_digits(struct parser *p, struct number *n, int power_each)
{
    for (; is_digit(p); p->at++) {
        unsigned digit = (unsigned)(*p->at - '0');
        n->n_digits += n->n_digits > 0 || digit > 0;
        n->power += power_each;
        if (n->n_digits <= 19)
            n->digits = 10 * n->digits + digit;
    }
}

static bool take_exponent(struct parser *p, struct number *n)
{
    int64_t exponent = 0;
    bool negative = false;
    p->at++;
    if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
        negative = *p->at++ == '-';
    if (!is_digit(p))
        return false;
    for (; is_digit(p); p->at++)
        exponent = exponent < 100000 ? 10 * exponent + (*p->at - '0') : exponent;
    n->power += negative ? -exponent : exponent;
    return true;
}

/* By the grammar of JSON; false after an error. */
static bool take_number(struct parser *p, struct number *n)
{
    *n = (struct number){.integer = true};
    n->negative = *p->at == '-';
    p->at += n->negative;
    bool zero = p->at < p->end && *p->at == '0', right = is_digit(p);
    const char *first = p->at;
    take_digits(p, n, 0);
    right = right && !(zero && p->at - first > 1);
    if (right && p->at < p->end && *p->at == '.') {
        p->at++;
        n->integer = false;
        right = is_digit(p);
        take_digits(p, n, -1);
    }
    if (right && p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        n->integer = false;
        right = take_exponent(p, n);
    }
    if (!right)
        wrong(p, "a number has digits, without a 0 before them, and digits behind a point or exponent");
    return right;
}

/* The double next to a number that is written at `from`. */
static bool read_double(const struct parser *p, const char *from, double *out)
{
    char few[NUMBER_BYTES_MAX], *text = few;
    size_t bytes = (size_t)(p->at - from);
    if (bytes >= sizeof few && !(text = malloc(bytes + 1)))
        return false;
    memcpy(text, from, bytes);
    text[bytes] = 0;
    *out = strtod(text, NULL);
    if (text != few)
        free(text);
    return true;
}

static json_t *parse_number(struct parser *p)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    static_assert(sizeof powers / sizeof *powers == EXACT_POWER + 1, "a power for each exponent");
    const char *from = p->at;
    struct number n;
    double real;
    if (!take_number(p, &n))
        return NULL;
    uint64_t most = (uint64_t)INT64_MAX + n.negative;
    if (n.integer && n.n_digits <= 19 && n.digits <= most && !(n.negative && n.digits == 0))
        return made(p, json_integer(n.negative ? (json_int_t)(0 - n.digits) : (json_int_t)n.digits));
    if (n.n_digits <= EXACT_DIGITS && n.power >= -EXACT_POWER && n.power <= EXACT_POWER) {
        /* both are exact, and what a single operation makes of them is rounded once (Clinger 1990) */
        real = n.power < 0 ? (double)n.digits / powers[-n.power] : (double)n.digits * powers[n.power];
        real = n.negative ? -real : real;
    } else if (!read_double(p, from, &real)) {
        return made(p, NULL);
    }
    if (isfinite(real))
        return made(p, json_real(real));
    p->at = from;
    wrong(p, "a number is at most 1.7976931348623157e308");
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void skip_blanks(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

/* The byte, behind blanks; false where another stands. */
static bool take(struct parser *p, char c)
{
    skip_blanks(p);
    bool there = p->at < p->end && *p->at == c;
    p->at += there;
    return there;
}

/* Behind the bracket. False after an error. */
static bool parse_elements(struct parser *p, json_t *array)
{
    if (take(p, ']'))
        return true;
    do {
        json_t *element = parse_value(p);
        if (!element)
            return false;
        if (json_array_append_new(array, element) < 0) {
            no_memory(p);
            return false;
        }
    } while (take(p, ','));
    if (take(p, ']'))
        return true;
    wrong(p, "',' or ']' is expected");
    return false;
}

/* A name and its value. Of values with one name the last counts, in the place of the first. */
static bool parse_member(struct parser *p, json_t *object)
{
    const char *name;
    char *own = NULL; /* p->string is used again by the value */
    size_t n;
    skip_blanks(p);
    if (p->at == p->end || *p->at != '"') {
        wrong(p, "a name in quotes is expected");
        return false;
    }
    if (!take_string(p, &name, &n))
        return false;
    if (n > 0 && memchr(name, 0, n)) {
        wrong(p, "the name of a member has no byte 0");
        return false;
    }
    if (!take(p, ':')) {
        wrong(p, "':' is expected");
        return false;
    }
    if (n > 0 && name == p->string.data) {
        own = malloc(n);
        if (!own) {
            no_memory(p);
            return false;
        }
        memcpy(own, name, n);
    }
    json_t *value = parse_value(p);
    bool ok = value && json_object_setn_new_nocheck(object, own ? own : name, n, value) == 0;
    if (value && !ok)
        no_memory(p);
    free(own);
    return ok;
}

/* Behind the brace. False after an error. */
static bool parse_members(struct parser *p, json_t *object)
{
    if (take(p, '}'))
        return true;
    do {
        if (!parse_member(p, object))
            return false;
    } while (take(p, ','));
    if (take(p, '}'))
        return true;
    wrong(p, "',' or '}' is expected");
    return false;
}

static json_t *parse_container(struct parser *p)
{
    bool array = *p->at++ == '[';
    if (++p->depth > TREE_DEPTH_MAX) {
        error_set(
            p->err, QUIRE_ELIMIT,
            "recursion limit exceeded at byte %zu: a document has at most %u levels of arrays and objects; make it "
            "flatter",
            (size_t)(p->at - 1 - p->from), TREE_DEPTH_MAX);
        return NULL;
    }
    json_t *value = made(p, array ? json_array() : json_object());
    if (value && !(array ? parse_elements(p, value) : parse_members(p, value))) {
        json_decref(value);
        return NULL;
    }
    p->depth--;
    return value;
}

static bool too_many(struct parser *p, size_t more)
{
    p->n_values += more;
    if (p->n_values < TREE_VALUES_MAX)
        return false;
    error_set(p->err, QUIRE_ELIMIT, "a document has at most %u values, this one has more: split it", TREE_VALUES_MAX);
    return true;
}

static json_t *parse_packed(struct parser *p)
{
    struct tree_list list;
    double number;
    bool integer;
    if (!tree_pack_open(p->at, p->end, &list)) {
        wrong(p, "a packed list of numbers is damaged");
        return NULL;
    }
    json_t *array = too_many(p, list.n) ? NULL : made(p, json_array());
    for (uint32_t i = 0; i < list.n && array; i++) {
        json_t *value = NULL;
        if (!tree_pack_number(&list, i, &number, &integer))
            wrong(p, "a number of a packed list is damaged");
        else
            value = made(p, integer ? json_integer((json_int_t)number) : json_real(number));
        if (value && json_array_append_new(array, value) == 0)
            continue;
        if (value)
            no_memory(p);
        json_decref(array);
        array = NULL;
    }
    p->at = (const char *)list.items + (size_t)list.n * list.width;
    return array;
}

static bool take_word(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    bool there = (size_t)(p->end - p->at) >= n && memcmp(p->at, word, n) == 0;
    p->at += there ? n : 0;
    return there;
}

/* NULL after an error. */
static json_t *parse_value(struct parser *p)
{
    const char *string;
    size_t n;
    skip_blanks(p);
    if (too_many(p, 1))
        return NULL;
    char next = p->at < p->end ? *p->at : 0;
    if (next == '[' || next == '{')
        return parse_container(p);
    if (next == '"')
        return take_string(p, &string, &n) ? made(p, json_stringn_nocheck(string, n)) : NULL;
    if (next == '-' || (next >= '0' && next <= '9'))
        return parse_number(p);
    if (p->packed && tree_pack_begins(next))
        return parse_packed(p);
    if (take_word(p, "true"))
        return json_true();
    if (take_word(p, "false"))
        return json_false();
    if (take_word(p, "null"))
        return json_null();
    wrong(p, "a value is expected");
    return NULL;
}

static int parse(const void *text, size_t bytes, bool packed, json_t **out, struct quire_error *err)
{
    struct quire_error own = {0};
    struct parser p = {.from = text, .at = text, .end = (const char *)text + bytes, .packed = packed, .err = &own};
    json_t *value = parse_value(&p);
    skip_blanks(&p);
    if (value && p.at < p.end) {
        wrong(&p, "nothing is expected behind a value");
        json_decref(value);
        value = NULL;
    }
    tree_text_fini(&p.string);
    if (!value) {
        assert(own.code < 0);
        if (err)
            *err = own;
        return own.code;
    }
    assert(p.depth == 0 && p.n_values > 0);
    *out = value;
    return 0;
}

int tree_parse(const void *text, size_t bytes, json_t **out, struct quire_error *err)
{
    return parse(text, bytes, false, out, err);
}

int tree_unpack(const void *document, size_t bytes, json_t **out, struct quire_error *err)
{
    return parse(document, bytes, true, out, err);
}
