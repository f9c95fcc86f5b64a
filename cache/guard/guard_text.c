/*
 * guard_text.c - splits a text into the tokens that the guards read: words, digits, literals.
 *
 * Typographic quotes, dashes and blanks become those of ASCII first, so that one rule serves all. What stands between
 * quotes or in back-ticks is one literal. A piece without blanks is then
 *
 *   a literal   if it looks like something a machine reads: an address, path, flag, dotted, joined_by_underscores,
 *               camelCase or code of letters and digits (AB-1234, LH400, a1b2c3d);
 *   numbers     if it begins with a digit and every run of letters in it says what the number is: 5km, 7-day, 2nd,
 *               12:30pm, 2024-03-05; they become one token each, which remember the sign between them;
 *   words       otherwise, split at hyphens.
 *
 * A code's hyphens are dropped (W-2 is W2). Only then everything becomes lower-case, but for literals in which case may
 * matter (paths, flags, addresses). Words in scripts without blanks stay whole: nothing in the tables will match them,
 * and the text counts as plain.
 *
 * All offsets stay inside the reader's copy of the text, whatever bytes come in; tests/fuzz/fuzz_guard.c tries.
 */
#include "cache/guard/guard_priv.h"
#include <assert.h>

#define QUOTED_BYTES_MAX 400u

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_letter(char c)
{
    return is_lower(c) || is_upper(c) || (unsigned char)c >= 0x80;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0;
}

/* Signs of more than one byte, and what they become. */
static const struct {
    char from[4], to;
} signs[] = {
    {"\xe2\x80\x98", '\''}, {"\xe2\x80\x99", '\''}, {"\xe2\x80\x9c", '"'}, {"\xe2\x80\x9d", '"'}, {"\xe2\x80\x9e", '"'},
    {"\xc2\xab", '"'},      {"\xc2\xbb", '"'},      {"\xe2\x80\x93", '-'}, {"\xe2\x80\x94", ' '}, {"\xe2\x80\xa6", '.'},
    {"\xc2\xa0", ' '},      {"\xe2\x80\xaf", ' '},  {"\xc2\xbf", ' '},     {"\xc2\xa1", ' '},     {"\xe3\x80\x82", '.'},
    {"\xe3\x80\x81", ','},  {"\xef\xbc\x9f", '?'},  {"\xef\xbc\x81", '!'}, {"\xef\xbc\x8c", ','}, {"\xd8\x9f", '?'},
};

/* Copies the text with its signs made plain; the bytes of the copy. */
static uint32_t plain(struct quire_bytes text, char *out)
{
    const char *in = text.data;
    uint32_t n = 0;
    for (size_t i = 0; i < text.n_bytes;) {
        size_t taken = 0;
        for (unsigned s = 0; (unsigned char)in[i] >= 0x80 && s < sizeof signs / sizeof *signs && !taken; s++) {
            size_t bytes = strlen(signs[s].from);
            if (bytes <= text.n_bytes - i && memcmp(in + i, signs[s].from, bytes) == 0) {
                out[n++] = signs[s].to;
                taken = bytes;
            }
        }
        if (!taken) {
            out[n++] = in[i];
            taken = 1;
        }
        i += taken;
    }
    return n;
}

/* In place: ASCII, Latin-1, Greek and Cyrillic capitals that keep their size. */
static void lower(char *text, uint32_t bytes)
{
    unsigned char *at = (unsigned char *)text;
    for (uint32_t i = 0; i < bytes; i++) {
        if (is_upper(text[i]))
            at[i] |= 0x20;
        if (i + 1 >= bytes)
            continue;
        if (at[i] == 0xc3 && at[i + 1] >= 0x80 && at[i + 1] <= 0x9e && at[i + 1] != 0x97)
            at[i + 1] |= 0x20;
        else if (at[i] == 0xd0 && at[i + 1] >= 0x90 && at[i + 1] <= 0x9f)
            at[i + 1] |= 0x20;
        else if (at[i] == 0xd0 && at[i + 1] >= 0xa0 && at[i + 1] <= 0xaf)
            at[i] = 0xd1, at[i + 1] -= 0x20;
    }
}

/* What a text is split with. */
struct splitter {
    struct guard_reader *r;
    char *text; /* the reader's copy */
    uint32_t bytes;
    bool opens; /* the next token begins a sentence */
};

static struct guard_token *add(struct splitter *s, uint32_t from, uint32_t to, enum guard_token_kind kind, char joint)
{
    struct guard_reader *r = s->r;
    if (r->n_tokens == GUARD_TOKENS) {
        r->overflow = true;
        return &r->tokens[GUARD_TOKENS - 1];
    }
    assert(from <= to && to <= s->bytes);
    struct guard_token *token = &r->tokens[r->n_tokens++];
    *token = (struct guard_token){
        .at = (uint16_t)from, .bytes = (uint16_t)(to - from), .kind = (uint8_t)kind, .joint = joint, .opens = s->opens};
    s->opens = false;
    return token;
}

static void add_word(struct splitter *s, uint32_t from, uint32_t to, char joint)
{
    char *text = s->text;
    bool possessive = false;
    if (to - from > 2 && text[to - 2] == '\'' && (text[to - 1] == 's' || text[to - 1] == 'S')) {
        to -= 2;
        possessive = true;
    }
    uint32_t capitals = 0, letters = 0;
    for (uint32_t i = from; i < to; i++) {
        letters += is_letter(text[i]);
        capitals += is_upper(text[i]);
    }
    if (capitals >= 2 && letters == capitals + 1 && text[to - 1] == 's') { /* APIs */
        to--;
        letters--;
    }
    struct guard_token *token = add(s, from, to, TOKEN_WORD, joint);
    /* a capital has two bytes in Latin-1 and Cyrillic */
    unsigned char first = (unsigned char)text[from], second = to - from > 1 ? (unsigned char)text[from + 1] : 0;
    token->capital = is_upper(text[from]) || (first == 0xc3 && second >= 0x80 && second <= 0x9e) ||
                     (first == 0xd0 && second >= 0x90 && second <= 0xaf);
    token->all_caps = capitals >= 2 && capitals == letters;
    token->possessive = possessive;
    if (token->all_caps && !s->r->shouting)
        token->word = guard_lookup(s->r->tables, text + from, to - from);
    lower(text + from, to - from);
    if (!token->word)
        token->word = guard_lookup(s->r->tables, text + from, to - from);
}

/* ---- literals ---------------------------------------------------------------------------------------------------- */

struct shape {
    unsigned letters, digits, dots, slashes, humps, hyphens;
    bool underscore, backslash, at, colons, other_dot; /* other_dot: one with a letter or digit on both sides */
    bool short_parts;                                  /* a.m.: never two letters in a row */
};

static struct shape shape_of(const char *text, uint32_t bytes)
{
    struct shape shape = {.short_parts = true};
    for (uint32_t i = 0; i < bytes; i++) {
        char c = text[i], next = i + 1 < bytes ? text[i + 1] : ' ', before = i ? text[i - 1] : ' ';
        shape.letters += is_letter(c);
        shape.digits += is_digit(c);
        shape.dots += c == '.';
        shape.slashes += c == '/';
        shape.hyphens += c == '-';
        shape.humps += is_lower(c) && is_upper(next);
        shape.underscore |= c == '_';
        shape.backslash |= c == '\\';
        shape.at |= c == '@' && i > 0 && next != ' ';
        shape.colons |= c == ':' && next == ':';
        shape.other_dot |= c == '.' && (is_letter(before) || is_digit(before)) && (is_letter(next) || is_digit(next));
        if (is_letter(c) && is_letter(next))
            shape.short_parts = false;
    }
    return shape;
}

/* and/or, he/she: two words of a list, no path. */
static bool is_choice(struct splitter *s, uint32_t from, uint32_t to)
{
    char copy[32];
    uint32_t bytes = to - from;
    if (bytes > sizeof copy)
        return false;
    memcpy(copy, s->text + from, bytes);
    lower(copy, bytes);
    const char *slash = memchr(copy, '/', bytes);
    size_t left = slash ? (size_t)(slash - copy) : 0;
    const struct guard_tables *tables = s->r->tables;
    return slash && guard_means(tables, guard_lookup(tables, copy, left), MEANS_STOPWORD) &&
           guard_means(tables, guard_lookup(tables, slash + 1, bytes - left - 1), MEANS_STOPWORD);
}

enum literal_case { NO_LITERAL, LITERAL_FOLDED, LITERAL_AS_IT_IS };

static enum literal_case literal_shape(struct splitter *s, uint32_t from, uint32_t to)
{
    const char *text = s->text + from;
    uint32_t bytes = to - from;
    char copy[GUARD_KEY_BYTES];
    struct shape shape = shape_of(text, bytes);
    if (shape.letters == 0)
        return shape.dots >= 2 && shape.digits >= 3 && text[0] != '-' ? LITERAL_FOLDED : NO_LITERAL;
    if ((text[0] == '-' && bytes > 1) || (text[0] == '$' && bytes > 1 && is_letter(text[1]) && !shape.digits))
        return LITERAL_AS_IT_IS;
    if (shape.backslash || shape.at || (shape.slashes && !is_digit(text[0]) && !is_choice(s, from, to)))
        return LITERAL_AS_IT_IS;
    if (shape.underscore || shape.colons || (text[0] == '#' && bytes > 1))
        return LITERAL_FOLDED;
    if (is_digit(text[0]) || (unsigned char)text[0] >= 0xc2)
        return NO_LITERAL;
    if ((shape.other_dot && !shape.short_parts) || (shape.digits && is_letter(text[0])))
        return LITERAL_FOLDED;
    if (shape.humps == 0 || bytes > sizeof copy)
        return shape.humps ? LITERAL_FOLDED : NO_LITERAL;
    memcpy(copy, text, bytes);
    lower(copy, bytes); /* PostgreSQL is a name that the tables know */
    return guard_lookup(s->r->tables, copy, bytes) ? NO_LITERAL : LITERAL_FOLDED;
}

/* All of one sign go. The new end. */
static uint32_t drop(char *text, uint32_t from, uint32_t to, char sign)
{
    uint32_t n = from;
    for (uint32_t i = from; i < to; i++)
        if (text[i] != sign)
            text[n++] = text[i];
    return n;
}

/* Hyphens of a code go: W-2 is W2. The new end. */
static uint32_t drop_hyphens(char *text, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (!is_letter(text[i]) && !is_digit(text[i]) && text[i] != '-')
            return to;
    return drop(text, from, to, '-');
}

static void add_literal(struct splitter *s, uint32_t from, uint32_t to, enum literal_case how)
{
    if (how == LITERAL_FOLDED && is_letter(s->text[from]))
        to = drop_hyphens(s->text, from, to);
    if (to - from > 2 && s->text[from] == 'v' && is_digit(s->text[from + 1])) /* v2.3 is 2.3 */
        from++;
    if (how == LITERAL_FOLDED)
        lower(s->text + from, to - from);
    add(s, from, to, TOKEN_LITERAL, ' ');
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The end of the digits at `from`, with separators and a decimal point: 1,000 3.5 */
static uint32_t end_of_digits(const char *text, uint32_t from, uint32_t to)
{
    uint32_t i = from;
    while (i < to && (is_digit(text[i]) ||
                      ((text[i] == '.' || text[i] == ',') && i > from && i + 1 < to && is_digit(text[i + 1]))))
        i++;
    return i;
}

/* Whether letters that stand directly behind digits say what the number is. */
static bool is_number_suffix(const struct guard_tables *tables, const char *text, uint32_t bytes)
{
    static const char *const known[] = {"st", "nd", "rd", "th", "s", "am", "pm", "k", "x", "bn", "'s"};
    char copy[16];
    if (bytes > sizeof copy)
        return false;
    memcpy(copy, text, bytes);
    lower(copy, bytes);
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == bytes && memcmp(known[i], copy, bytes) == 0)
            return true;
    const struct guard_word *word = guard_lookup(tables, copy, bytes);
    return guard_means(tables, word, MEANS_UNIT) || guard_means(tables, word, MEANS_CURRENCY) ||
           guard_means(tables, word, MEANS_DEGREE) || guard_means(tables, word, MEANS_SCALE);
}

static uint32_t end_of_letters(const char *text, uint32_t from, uint32_t to)
{
    uint32_t i = from;
    while (i < to && (is_letter(text[i]) || text[i] == '\'' || text[i] == '%' ||
                      (text[i] == '/' && i > from && i + 1 < to && is_letter(text[i + 1]))))
        i++;
    return i;
}

/* Splits a piece that holds digits into numbers, their suffixes and words; with `dry` only says whether that is what
 * it is. */
static bool split_number(struct splitter *s, uint32_t from, uint32_t to, bool dry)
{
    const char *text = s->text;
    bool after_digits = false;
    char joint = ' ';
    for (uint32_t i = from, end; i < to; i = end) {
        bool negative = text[i] == '-' && i == from && i + 1 < to && is_digit(text[i + 1]);
        if (is_digit(text[i]) || negative) {
            end = end_of_digits(text, i + negative, to);
            if (after_digits && joint == 0)
                return false;
            if (!dry)
                add(s, i, end, TOKEN_NUMBER, joint);
            after_digits = true;
            joint = 0;
        } else if (is_letter(text[i]) || text[i] == '%' || text[i] == '\'' || text[i] == '$') {
            end = text[i] == '$' ? i + 1 : end_of_letters(text, i, to);
            bool sign = joint == ' ' && end > i && end - i <= 4 &&
                        guard_means(s->r->tables, guard_lookup(s->r->tables, text + i, end - i), MEANS_CURRENCY);
            if (joint == 0 && !(after_digits && is_number_suffix(s->r->tables, text + i, end - i)))
                return false;
            if (joint == ' ' && !sign)
                return false;
            if (!dry)
                add_word(s, i, end, joint);
            joint = sign ? ' ' : 0;
            after_digits = false;
        } else {
            end = i + 1;
            joint = text[i];
            after_digits = false;
        }
    }
    return true;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void split_words(struct splitter *s, uint32_t from, uint32_t to)
{
    const char *text = s->text;
    char joint = ' ';
    for (uint32_t i = from, end; i < to; i = end) {
        for (end = i; end < to && (is_letter(text[end]) || text[end] == '\'' || is_digit(text[end]));)
            end++;
        if (end == i) {
            if (text[i] != '.') /* a.m. */
                joint = text[i];
            end++;
            continue;
        }
        uint32_t word_end = end;
        while (word_end > i && text[word_end - 1] == '\'')
            word_end--;
        if (word_end > i)
            add_word(s, i, word_end, joint);
        joint = 0;
    }
}

static void split_piece(struct splitter *s, uint32_t from, uint32_t to)
{
    char *text = s->text;
    uint32_t end = to;
    while (from < end && strchr("([{<*,;?!.'\"`|~+=>", text[from]) &&
           !(text[from] == '~' && from + 1 < end && text[from + 1] == '/') &&
           !(text[from] == '.' && from + 1 < end && text[from + 1] == '/'))
        from++;
    while (end > from && strchr(".,;:?!)]}>*'\"`|", text[end - 1]))
        end--;
    if (end > from && text[from] == '#' && end - from > 1 && split_number(s, from + 1, end, true) && end - from < 6)
        from++;
    uint32_t before = s->r->n_tokens;
    if (end > from) {
        struct shape shape = shape_of(text + from, end - from);
        enum literal_case how = literal_shape(s, from, end);
        if (how != NO_LITERAL)
            add_literal(s, from, end, how);
        else if (shape.digits && split_number(s, from, end, true))
            split_number(s, from, end, false);
        else if (shape.digits)
            add_literal(s, from, end, LITERAL_FOLDED);
        else if (shape.other_dot && shape.short_parts) /* a.m. is am */
            split_words(s, from, drop(text, from, end, '.'));
        else
            split_words(s, from, end);
    }
    if (end < to && s->r->n_tokens > 0) {
        s->r->tokens[s->r->n_tokens - 1].closes = true;
        bool abbreviation = s->r->n_tokens == before + 1 && end - from <= 2 && text[end] == '.';
        for (uint32_t i = end; i < to; i++)
            s->opens |= strchr(".?!:", text[i]) && !abbreviation;
    }
}

/* The end of what the quote at `from` opens: the position of the closing one, or 0. */
static uint32_t closing_quote(const struct splitter *s, uint32_t from)
{
    const char *text = s->text;
    char quote = text[from];
    uint32_t last = from + QUOTED_BYTES_MAX < s->bytes ? from + QUOTED_BYTES_MAX : s->bytes;
    for (uint32_t i = from + 1; i < last && text[i] != '\n'; i++) {
        bool inside_word = i + 1 < s->bytes && (is_letter(text[i + 1]) || is_digit(text[i + 1]));
        if (text[i] == quote && (quote != '\'' || !inside_word))
            return i > from + 1 ? i : 0;
    }
    return 0;
}

void guard_split(struct guard_reader *r)
{
    struct splitter s = {.r = r, .text = r->lower, .opens = true};
    s.bytes = plain(r->text, r->lower);
    /* shouting: no lower-case letter; titled: four words of five, and at least three, begin with a capital */
    uint32_t lowers = 0, uppers = 0, words = 0, capitals = 0;
    for (uint32_t i = 0; i < s.bytes; i++) {
        lowers += is_lower(s.text[i]);
        uppers += is_upper(s.text[i]);
        bool begins = is_letter(s.text[i]) && (i == 0 || is_blank(s.text[i - 1]));
        words += begins;
        capitals += begins && is_upper(s.text[i]);
    }
    r->shouting = lowers == 0 && uppers >= 2 && words >= 2;
    r->titled = words >= 3 && capitals * 5 >= words * 4;
    for (uint32_t i = 0; i < s.bytes && !r->overflow;) {
        char c = s.text[i];
        if (is_blank(c)) {
            s.opens |= c == '\n';
            i++;
            continue;
        }
        uint32_t close = c == '"' || c == '`' || c == '\'' ? closing_quote(&s, i) : 0;
        if (close) {
            uint32_t from = i + 1, to = close;
            while (from < to && strchr(" .,;?!", s.text[from]))
                from++;
            while (to > from && strchr(" .,;?!", s.text[to - 1]))
                to--;
            if (to != from) {
                lower(s.text + from, to - from);
                add(&s, from, to, TOKEN_LITERAL, ' ');
            }
            i = close + 1;
            continue;
        }
        if (c == '(' || c == '[' || c == ',') { /* a quote may follow */
            i++;
            continue;
        }
        uint32_t end = i + 1;
        while (end < s.bytes && !is_blank(s.text[end]) &&
               !(end > i && strchr("\"`", s.text[end]) && closing_quote(&s, end)))
            end++;
        split_piece(&s, i, end);
        i = end;
    }
}

const struct guard_word *guard_longest(const struct guard_reader *r, uint32_t i, enum guard_meaning_kind kind,
                                       bool (*may_take)(const struct guard_token *token), uint32_t *n_words)
{
    const struct guard_word *head = r->tokens[i].word, *best = NULL;
    char key[GUARD_KEY_BYTES];
    if (!guard_may_mean(head, 1u << kind))
        return NULL;
    uint32_t bytes = 0, most = head->begins & 1u << kind && head->phrase_words ? head->phrase_words : 1;
    for (uint32_t n = 0; n < most && i + n < r->n_tokens; n++) {
        const struct guard_token *token = &r->tokens[i + n];
        if (!may_take(token) || bytes + token->bytes + 1 > sizeof key)
            break;
        if (n > 0)
            key[bytes++] = ' ';
        memcpy(key + bytes, r->lower + token->at, token->bytes);
        bytes += token->bytes;
        const struct guard_word *word = n == 0 ? head : guard_lookup(r->tables, key, bytes);
        if (guard_means(r->tables, word, kind)) {
            best = word;
            *n_words = n + 1;
        }
    }
    return best;
}

static bool is_free(const struct guard_token *token)
{
    return !token->used && token->kind != TOKEN_LITERAL;
}

const struct guard_meaning *guard_match(const struct guard_reader *r, uint32_t i, enum guard_meaning_kind kind,
                                        uint32_t *n_words)
{
    return guard_means(r->tables, guard_longest(r, i, kind, is_free, n_words), kind);
}
