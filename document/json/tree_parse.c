/*
 * tree_parse.c - text to a tree.
 *
 * One pass over the bytes comes first (`survey`), which allocates nothing: it counts levels and values, so that a text
 * that is too deep or has too many values is refused before it takes memory, and finds numbers that jansson would
 * refuse or change: integers outside of 64 bits, and -0. These get ".0" behind them in a copy, and are reals then.
 *
 * Whether the text is JSON at all is not decided there but by jansson, whose errors are kept with their place.
 */
#include "document/json/tree.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { INT64_DIGITS = 19 };

struct survey {
    size_t n_values;  /* at least as many as there are */
    size_t n_reals;   /* integers that must become reals */
    size_t deep_at;   /* where the level beyond the last one begins; SIZE_MAX: nowhere */
    const char *from; /* the text */
    size_t bytes;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of the number that begins at `at`; *must_be_real: it is an integer that does not fit, or -0. */
static size_t end_of_number(const struct survey *s, size_t at, bool *must_be_real)
{
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    bool negative = s->from[at] == '-';
    size_t first = at + negative, end = first;
    while (end < s->bytes && is_digit(s->from[end]))
        end++;
    size_t digits = end - first;
    bool integer = digits > 0 && (end == s->bytes || !memchr(".eE", s->from[end], 3));
    *must_be_real =
        integer && (digits > INT64_DIGITS ||
                    (digits == INT64_DIGITS && memcmp(s->from + first, negative ? least : most, INT64_DIGITS) > 0) ||
                    (negative && digits == 1 && s->from[first] == '0'));
    while (!integer && end < s->bytes && (is_digit(s->from[end]) || memchr(".eE+-", s->from[end], 5)))
        end++;
    return end > at ? end : at + 1;
}

/* Visits what is not inside of a string. With `copy`, writes the text there, with reals for what must be one; returns
 * the bytes of that. */
static size_t go_through(struct survey *s, char *copy)
{
    size_t depth = 0, written = 0, at = 0;
    bool must_be_real;
    while (at < s->bytes) {
        size_t end = at + 1;
        must_be_real = false;
        switch (s->from[at]) {
        case '"':
            while (end < s->bytes && s->from[end] != '"')
                end += s->from[end] == '\\' ? 2 : 1;
            end = end < s->bytes ? end + 1 : s->bytes; /* or it never ends */
            break;
        case '[':
        case '{':
            s->n_values++;
            if (++depth > TREE_DEPTH_MAX && s->deep_at == SIZE_MAX)
                s->deep_at = at;
            break;
        case ']':
        case '}':
            depth -= depth > 0;
            break;
        case ',':
            s->n_values++;
            break;
        default:
            if (s->from[at] == '-' || is_digit(s->from[at]))
                end = end_of_number(s, at, &must_be_real);
            break;
        }
        if (copy)
            memcpy(copy + written, s->from + at, end - at);
        written += end - at;
        if (must_be_real) {
            if (copy)
                memcpy(copy + written, ".0", 2);
            written += 2;
            s->n_reals++;
        }
        at = end;
    }
    return written;
}

static int parse(const char *text, size_t bytes, json_t **out, struct quire_error *err)
{
    json_error_t why;
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (value) {
        *out = value;
        return 0;
    }
    if (json_error_code(&why) == json_error_out_of_memory)
        return error_set(err, QUIRE_ENOMEM, "no memory for a document of %zu bytes", bytes);
    return error_set(err, QUIRE_EPARSE, "invalid JSON at byte %d (line %d, column %d): %s", why.position, why.line,
                     why.column, why.text);
}

int tree_parse(const void *text, size_t bytes, json_t **out, struct quire_error *err)
{
    struct survey s = {.from = text, .bytes = bytes, .deep_at = SIZE_MAX}, again;
    if (bytes == 0)
        return error_set(err, QUIRE_EPARSE, "invalid JSON at byte 0: there is nothing");
    size_t with_reals = go_through(&s, NULL);
    if (s.deep_at != SIZE_MAX)
        return error_set(err, QUIRE_ELIMIT,
                         "recursion limit exceeded at byte %zu: a document has at most %u levels of arrays and "
                         "objects; make it flatter",
                         s.deep_at, TREE_DEPTH_MAX);
    if (s.n_values >= TREE_VALUES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a document has at most %u values, this one has more: split it",
                         TREE_VALUES_MAX);
    if (s.n_reals == 0)
        return parse(text, bytes, out, err);
    char *copy = malloc(with_reals);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for a document of %zu bytes", bytes);
    again = (struct survey){.from = text, .bytes = bytes, .deep_at = SIZE_MAX};
    size_t written = go_through(&again, copy);
    assert(written == with_reals && again.n_reals == s.n_reals);
    int rc = parse(copy, written, out, err);
    free(copy);
    return rc;
}
