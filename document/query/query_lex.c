/*
 * query_lex.c - the text of a query into tokens.
 *
 * The tokens are those of RediSearch's lexer (DIALECT 2): the longest one that fits is taken, and punctuation that
 * begins none is skipped like a blank. So "a, b" and "a b" are the same query. Three things are decided otherwise:
 *
 *   * a number ends where no letter follows: there "-5th" is the number -5 and the word "th", and "-information" is
 *     minus infinity and "ormation"; here a sign and a word;
 *   * an apostrophe inside a word that has a partner further on ("user's and owner's") is refused (TOKEN_APOSTROPHE),
 *     as by servers up to Redis 7; later ones take the text between the two for a phrase. A single one is skipped;
 *   * a dot belongs to a field's name where the schema has such a field (query_field.c).
 *
 * query_token is a function of the text and the offset alone, so a parser looks ahead by calling it again.
 */
#include "document/query/query_priv.h"
#include <assert.h>
#include <string.h>
#include <strings.h>

static bool is_punctuation(unsigned char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_control(unsigned char c)
{
    return c < ' ' || c == 0x7f;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_plain(unsigned char c)
{
    return c == '_' || !(is_punctuation(c) || is_control(c) || is_blank(c));
}

uint32_t query_word_end(const char *text, uint32_t bytes, uint32_t at)
{
    while (at < bytes) {
        unsigned char c = (unsigned char)text[at];
        if (c == '\\') {
            unsigned char next = at + 1 < bytes ? (unsigned char)text[at + 1] : 'x';
            if (!is_punctuation(next) && !is_blank(next))
                return at;
            at += 2;
        } else if (is_plain(c)) {
            at++;
        } else {
            return at;
        }
    }
    return at;
}

static uint32_t digits_end(const char *text, uint32_t bytes, uint32_t at)
{
    while (at < bytes && is_digit(text[at]))
        at++;
    return at;
}

/* digits[.digits], .digits or digits., then an exponent; without a sign */
static uint32_t plain_number_end(const char *text, uint32_t bytes, uint32_t at)
{
    uint32_t whole = digits_end(text, bytes, at), end = whole;
    if (whole < bytes && text[whole] == '.') {
        uint32_t fraction = digits_end(text, bytes, whole + 1);
        end = fraction > whole + 1 || whole > at ? fraction : whole;
    }
    if (end == at)
        return at;
    if (end < bytes && (text[end] == 'e' || text[end] == 'E')) {
        uint32_t sign = end + 1 < bytes && (text[end + 1] == '+' || text[end + 1] == '-') ? 1 : 0;
        uint32_t exponent = digits_end(text, bytes, end + 1 + sign);
        end = exponent > end + 1 + sign ? exponent : end;
    }
    if (query_word_end(text, bytes, end) == end)
        return end;
    /* a word goes on: "5." of "5.x" ends before the dot, "5x" is no number */
    return query_word_end(text, bytes, whole) == whole ? whole : at;
}

uint32_t query_number_end(const char *text, uint32_t bytes, uint32_t at)
{
    uint32_t start = at < bytes && (text[at] == '+' || text[at] == '-') ? at + 1 : at;
    uint32_t end = plain_number_end(text, bytes, start);
    if (end > start)
        return end;
    if (bytes - start >= 3 && strncasecmp(text + start, "inf", 3) == 0 &&
        query_word_end(text, bytes, start + 3) == start + 3)
        return start + 3;
    return at;
}

/* Where the quote that opens at `at` closes, 0: nowhere. A quote behind a backslash closes only if no other does. */
static uint32_t quote_end(const char *text, uint32_t bytes, uint32_t at)
{
    uint32_t last = 0;
    for (uint32_t i = at + 1; i < bytes; i++) {
        if (text[i] != text[at])
            continue;
        if (i == at + 1)
            return i;
        if (text[i - 1] != '\\' || i - 1 == at)
            return i;
        last = i;
    }
    return last;
}

/* Of w'pattern': the backslash takes the character behind it along. */
static uint32_t pattern_end(const char *text, uint32_t bytes, uint32_t at)
{
    for (uint32_t i = at + 1; i < bytes; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == text[at])
            return i > at + 1 ? i : 0;
    }
    return 0;
}

static bool is_quote(const char *text, uint32_t bytes, uint32_t at)
{
    return at < bytes && (text[at] == '"' || text[at] == '\'');
}

static bool is_star(const char *text, uint32_t bytes, uint32_t at)
{
    return at < bytes && text[at] == '*';
}

static struct token plain(enum token_kind kind, const char *text, uint32_t at, uint32_t bytes)
{
    return (struct token){.kind = kind, .at = at, .end = at + bytes, .text = text + at, .bytes = bytes};
}

/* A word, a number, $name or "text" at `at`, without looking at stars; TOKEN_END: there is none. */
static struct token operand(const char *text, uint32_t bytes, uint32_t at)
{
    struct token t = plain(TOKEN_END, text, at, 0);
    if (at >= bytes)
        return t;
    if (is_quote(text, bytes, at)) {
        uint32_t end = quote_end(text, bytes, at);
        if (end == 0)
            return t;
        t = plain(end == at + 1 ? TOKEN_WORD : TOKEN_QUOTED, text, at + 1, end - at - 1);
        t.at = at;
        t.end = end + 1;
        return t;
    }
    uint32_t sigil = text[at] == '$' ? 1 : 0;
    uint32_t word = query_word_end(text, bytes, at + sigil);
    uint32_t number = sigil ? at : query_number_end(text, bytes, at);
    if (number > at && number >= word)
        return plain(TOKEN_NUMBER, text, at, number - at);
    if (word == at + sigil)
        return t;
    t = plain(sigil ? TOKEN_PARAM : TOKEN_WORD, text, at + sigil, word - at - sigil);
    t.at = at;
    return t;
}

static struct token affix(enum token_kind kind, struct token inner, uint32_t at, uint32_t end)
{
    inner.is_param = inner.kind == TOKEN_PARAM;
    inner.kind = kind;
    inner.at = at;
    inner.end = end;
    return inner;
}

static struct token star(const char *text, uint32_t bytes, uint32_t at)
{
    struct token inner = operand(text, bytes, at + 1);
    if (inner.kind == TOKEN_END || inner.bytes == 0)
        return plain(TOKEN_STAR, text, at, 1);
    bool both = is_star(text, bytes, inner.end);
    return affix(both ? TOKEN_INFIX : TOKEN_SUFFIX, inner, at, inner.end + both);
}

static struct token wildcard(const char *text, uint32_t at, uint32_t end)
{
    struct token t = plain(TOKEN_WILDCARD, text, at + 2, end - at - 2);
    t.at = at;
    t.end = end + 1;
    if (t.text[0] == '$' && t.bytes > 1) {
        t.is_param = true;
        t.text++;
        t.bytes--;
    }
    return t;
}

/* The tokens that have one character, and =>. */
static enum token_kind sign(const char *text, uint32_t bytes, uint32_t at)
{
    static const enum token_kind kinds[] = {TOKEN_OR,
                                            TOKEN_LEFT_PARENTHESIS,
                                            TOKEN_RIGHT_PARENTHESIS,
                                            TOKEN_LEFT_BRACE,
                                            TOKEN_RIGHT_BRACE,
                                            TOKEN_LEFT_BRACKET,
                                            TOKEN_RIGHT_BRACKET,
                                            TOKEN_COLON,
                                            TOKEN_SEMICOLON,
                                            TOKEN_MINUS,
                                            TOKEN_TILDE,
                                            TOKEN_PERCENT};
    static const char signs[] = "|(){}[]:;-~%";
    _Static_assert(sizeof signs - 1 == sizeof kinds / sizeof kinds[0], "a kind for each sign");
    if (text[at] == '=' && at + 1 < bytes && text[at + 1] == '>')
        return TOKEN_ARROW;
    if (text[at] == '"')
        return TOKEN_QUOTE;
    const char *found = text[at] ? strchr(signs, text[at]) : NULL;
    return found ? kinds[found - signs] : TOKEN_END;
}

/* What begins at `at`; TOKEN_END: nothing does. */
static struct token begin(const char *text, uint32_t bytes, uint32_t at)
{
    if (text[at] == '*')
        return star(text, bytes, at);
    if (text[at] == 'w' && is_quote(text, bytes, at + 1)) {
        uint32_t end = pattern_end(text, bytes, at + 1);
        if (end > 0)
            return wildcard(text, at, end);
    }
    if (text[at] == '@') {
        uint32_t end = query_word_end(text, bytes, at + 1);
        struct token t = plain(end > at + 1 ? TOKEN_FIELD : TOKEN_END, text, at + 1, end - at - 1);
        t.at = at;
        return t;
    }
    struct token t = operand(text, bytes, at);
    if (t.kind != TOKEN_END) {
        bool inside = text[at] == '\'' && at > 0 && is_plain((unsigned char)text[at - 1]);
        if (inside)
            return plain(TOKEN_APOSTROPHE, text, at, 1);
        bool empty = t.bytes == 0;
        return !empty && is_star(text, bytes, t.end) ? affix(TOKEN_PREFIX, t, at, t.end + 1) : t;
    }
    enum token_kind kind = sign(text, bytes, at);
    return plain(kind, text, at, kind == TOKEN_ARROW ? 2 : 1);
}

struct token query_token(const char *text, uint32_t bytes, uint32_t at)
{
    for (; at < bytes; at++) {
        struct token t = begin(text, bytes, at);
        if (t.kind != TOKEN_END) {
            assert(t.end > at && t.end <= bytes && t.text >= text && t.text + t.bytes <= text + bytes);
            return t;
        }
    }
    return plain(TOKEN_END, text, bytes, 0);
}

bool query_token_is(const struct token *t, const char *word)
{
    return t->kind == TOKEN_WORD && t->bytes == strlen(word) && strncasecmp(t->text, word, t->bytes) == 0;
}
