/*
 * pattern.c - regular expressions on top of the C library's regcomp.
 *
 * regcomp unrolls repetitions, so "((a{99}){99}){99}" would take gigabytes; and references to groups take exponential
 * time. Both are refused before it sees them, from the text alone: the rewriting pass multiplies the bounds of all
 * braces, nested or not.
 */
#include "document/json/pattern.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
    regex_t regex;
};

struct rewrite {
    const char *at, *end, *from;
    char out[8 * PATTERN_BYTES_MAX + 1];
    size_t n;
    unsigned long repeats;
};

static void put(struct rewrite *r, const char *text)
{
    size_t n = strlen(text);
    assert(r->n + n < sizeof r->out);
    memcpy(r->out + r->n, text, n);
    r->n += n;
}

static void put_one(struct rewrite *r, char c)
{
    put(r, (const char[]){c, 0});
}

static int place(const struct rewrite *r)
{
    return (int)(r->at - r->from);
}

/* Behind a backslash. */
static int rewrite_escape(struct rewrite *r, bool in_set, struct quire_error *err)
{
    static const struct {
        char letter;
        const char *set, *alone;
    } classes[] = {{'d', "[:digit:]", "[[:digit:]]"},   {'D', NULL, "[^[:digit:]]"},
                   {'s', "[:space:]", "[[:space:]]"},   {'S', NULL, "[^[:space:]]"},
                   {'w', "[:alnum:]_", "[[:alnum:]_]"}, {'W', NULL, "[^[:alnum:]_]"}};
    if (r->at == r->end)
        return error_set(err, QUIRE_EPARSE, "the pattern ends with a backslash");
    char c = *r->at++;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].letter == c) {
            if (in_set && !classes[i].set)
                return error_set(err, QUIRE_EPARSE, "\\%c does not stand in brackets (byte %d of the pattern)", c,
                                 place(r));
            put(r, in_set ? classes[i].set : classes[i].alone);
            return 0;
        }
    if (c == 'n' || c == 't' || c == 'r') {
        put_one(r, c == 'n' ? '\n' : c == 't' ? '\t' : '\r');
        return 0;
    }
    if (isalnum((unsigned char)c) && c != 'b' && c != 'B')
        return error_set(err, QUIRE_EPARSE, "\\%c is not understood (byte %d of the pattern)", c, place(r));
    if (in_set && (c == ']' || c == '^' || c == '-'))
        return error_set(err, QUIRE_EPARSE,
                         "\\%c in brackets is not understood: put it first or last, without the backslash", c);
    if (!in_set)
        put_one(r, '\\');
    put_one(r, c);
    return 0;
}

static int rewrite_set(struct rewrite *r, struct quire_error *err)
{
    put_one(r, '[');
    if (r->at < r->end && *r->at == '^')
        put_one(r, *r->at++);
    if (r->at < r->end && *r->at == ']')
        put_one(r, *r->at++);
    while (r->at < r->end && *r->at != ']') {
        char c = *r->at++;
        int rc = 0;
        if (c == '[' && r->at < r->end && memchr(":.=", *r->at, 3)) {
            /* a class such as [:alpha:], to its own end */
            char kind = *r->at;
            put_one(r, c);
            put_one(r, *r->at++);
            while (r->at < r->end && !(*r->at == ']' && r->at[-1] == kind))
                put_one(r, *r->at++);
            if (r->at < r->end)
                put_one(r, *r->at++);
        } else if (c == '\\') {
            rc = rewrite_escape(r, true, err);
        } else {
            put_one(r, c);
        }
        if (rc < 0)
            return rc;
    }
    if (r->at == r->end)
        return error_set(err, QUIRE_EPARSE, "brackets of the pattern are not closed");
    put_one(r, *r->at++);
    return 0;
}

/* Behind an opening brace. */
static int rewrite_braces(struct rewrite *r, struct quire_error *err)
{
    unsigned long most = 1;
    put_one(r, '{');
    while (r->at < r->end && *r->at != '}') {
        unsigned long number = 0;
        if (!isdigit((unsigned char)*r->at) && *r->at != ',')
            return error_set(err, QUIRE_EPARSE, "a repetition is {n}, {n,} or {n,m} (byte %d of the pattern)",
                             place(r));
        if (*r->at == ',') {
            put_one(r, *r->at++);
            continue;
        }
        for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++) {
            number = number > PATTERN_REPEATS_MAX ? number : 10 * number + (unsigned long)(*r->at - '0');
            put_one(r, *r->at);
        }
        most = number > most ? number : most;
    }
    r->repeats *= most;
    if (r->at == r->end)
        return error_set(err, QUIRE_EPARSE, "braces of the pattern are not closed");
    if (r->repeats > PATTERN_REPEATS_MAX)
        return error_set(err, QUIRE_ELIMIT, "the repetitions of a pattern multiply to %u at most", PATTERN_REPEATS_MAX);
    put_one(r, *r->at++);
    return 0;
}

static int rewrite(struct rewrite *r, struct quire_error *err)
{
    int rc = 0;
    while (r->at < r->end && rc == 0) {
        char c = *r->at++;
        if (c == '\\') {
            rc = rewrite_escape(r, false, err);
        } else if (c == '[') {
            rc = rewrite_set(r, err);
        } else if (c == '{') {
            rc = rewrite_braces(r, err);
        } else if (c == '(' && r->end - r->at >= 2 && memcmp(r->at, "?:", 2) == 0) {
            put_one(r, '(');
            r->at += 2;
        } else if (c == '(' && r->at < r->end && *r->at == '?') {
            rc =
                error_set(err, QUIRE_EPARSE,
                          "(? is not understood (byte %d of the pattern): (?i) stands first, (?: is a group", place(r));
        } else {
            put_one(r, c);
        }
    }
    r->out[r->n] = 0;
    return rc;
}

int pattern_compile(const char *text, size_t bytes, struct pattern **out, struct quire_error *err)
{
    struct rewrite r = {.at = text, .end = text + bytes, .from = text, .repeats = 1};
    char why[128];
    int flags = REG_EXTENDED | REG_NOSUB;
    if (bytes > PATTERN_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a pattern has at most %u bytes, this one has %zu", PATTERN_BYTES_MAX,
                         bytes);
    if (bytes > 0 && memchr(text, 0, bytes))
        return error_set(err, QUIRE_EPARSE, "a pattern has no byte 0");
    if (bytes >= 4 && memcmp(text, "(?i)", 4) == 0) {
        flags |= REG_ICASE;
        r.at += 4;
    }
    int rc = rewrite(&r, err);
    if (rc < 0)
        return rc;
    struct pattern *pattern = malloc(sizeof *pattern);
    if (!pattern)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pattern");
    int wrong = regcomp(&pattern->regex, r.out, flags);
    if (wrong == 0) {
        *out = pattern;
        return 0;
    }
    regerror(wrong, &pattern->regex, why, sizeof why);
    free(pattern);
    if (wrong == REG_ESPACE)
        return error_set(err, QUIRE_ENOMEM, "no memory for a pattern");
    return error_set(err, QUIRE_EPARSE, "the pattern is not one: %s", why);
}

void pattern_free(struct pattern *pattern)
{
    if (pattern)
        regfree(&pattern->regex);
    free(pattern);
}

bool pattern_matches(const struct pattern *pattern, const char *text, size_t bytes)
{
    regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)bytes};
    return bytes <= PATTERN_TEXT_MAX && regexec(&pattern->regex, text, 1, &range, REG_STARTEND) == 0;
}
