/*
 * guard_number.c - numbers in digits and words, with their units.
 *
 * "twenty-five", "25" and "25th" are one number, "1,000", "1000" and "1k" too, "5km" is "5 kilometres", "$5" is "5
 * dollars". Two texts agree if their numbers are the same multiset, where a number without a unit agrees with one that
 * has any (a paraphrase leaves "degrees" out), and two units must be the same: nothing is converted, for a question in
 * miles wants an answer in miles.
 *
 * One is weak: "which one", "one of", "in one hour" and "in an hour" ask the same, so a one in words, or with a unit,
 * may be missing on the other side; but it never becomes two, nor one of another unit. "First" likewise, and it is
 * silent before another number ("the first ten rows"). "Second" is a unit after a number or "a", and an ordinal
 * otherwise.
 *
 * Digits keep their form, as in versions 3.1 and 3.10; only before a unit zeros behind the point go ($1.50 is $1.5).
 */
#include "cache/guard/guard_priv.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUE_MAX 1e15

static bool is_thousands(const char *text, size_t bytes, size_t comma)
{
    size_t digits = 0;
    for (size_t i = comma + 1; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        digits++;
    return digits == 3 && comma <= bytes;
}

/* Digits with separators into digits with a point; false: too long to keep. */
static bool plain_digits(const char *text, size_t bytes, struct guard_number *out)
{
    size_t n = 0, at = 0;
    bool negative = bytes && text[0] == '-', point = false;
    out->text[0] = 0;
    if (negative)
        out->text[n++] = text[at++];
    while (at + 1 < bytes && text[at] == '0' && text[at + 1] >= '0' && text[at + 1] <= '9')
        at++;
    for (; at < bytes; at++) {
        if (text[at] == ',' && is_thousands(text, bytes, at) && !point)
            continue;
        if (n + 1 >= sizeof out->text)
            return false;
        point |= text[at] == '.' || text[at] == ',';
        out->text[n++] = text[at] == ',' ? '.' : text[at];
    }
    out->text[n] = 0;
    out->value = strtod(out->text, NULL);
    return true;
}

static void set_value(struct guard_number *out, double value)
{
    out->value = value;
    snprintf(out->text, sizeof out->text, "%.15g", value);
}

/* Whether "second" at token i is the unit: after a number or "a"; "seconds" always is one. */
static bool is_second_unit(const struct guard_reader *r, uint32_t i)
{
    if (!guard_is(r, i, "second"))
        return true;
    return i > 0 && (r->tokens[i - 1].kind == TOKEN_NUMBER || guard_is(r, i - 1, "a") || guard_is(r, i - 1, "per") ||
                     guard_token_means(r, i - 1, MEANS_CARDINAL));
}

const struct guard_meaning *guard_unit_at(const struct guard_reader *r, uint32_t i, uint32_t *n_words)
{
    static const enum guard_meaning_kind kinds[] = {MEANS_UNIT, MEANS_CURRENCY, MEANS_DEGREE};
    const struct guard_meaning *best = NULL;
    *n_words = 0;
    if (i >= r->n_tokens || (r->tokens[i].joint != 0 && guard_is(r, i, "a"))) /* twice a day: no ampere */
        return NULL;
    for (unsigned k = 0; k < 3; k++) {
        uint32_t n = 0;
        const struct guard_meaning *means = guard_match(r, i, kinds[k], &n);
        if (means && n > *n_words) {
            best = means;
            *n_words = n;
        }
    }
    return best;
}

/* A word of scale (hundred, k, million) at token i multiplies; joined letters after digits as well. */
static double scale_at(const struct guard_reader *r, uint32_t i)
{
    const struct guard_meaning *scale = guard_token_means(r, i, MEANS_SCALE);
    if (!scale || r->tokens[i].used)
        return 0;
    if (r->tokens[i].bytes == 1 && r->tokens[i].joint != 0) /* "k" alone is a letter */
        return 0;
    return scale->value;
}

/* What a number in words is so far. `least`: what the last word was worth, rounded down to what may follow it; each
 * word must be worth less, so that "five five" is two numbers. */
#define LEAST_NONE 1e18 /* no word was taken yet */
struct spoken {
    double total, part; /* total: what stands before the last scale of 1,000 and more */
    double least;
    bool ordinal;
};

enum spoken_part { NO_PART, CARDINAL, SCALE, ORDINAL, FILLER };

/* What token i adds to a number in words, and how much: *value. */
static enum spoken_part next_part(const struct guard_reader *r, uint32_t i, const struct spoken *s, double *value)
{
    const struct guard_meaning *cardinal = guard_token_means(r, i, MEANS_CARDINAL);
    const struct guard_meaning *ordinal = guard_token_means(r, i, MEANS_ORDINAL);
    bool first = s->least == LEAST_NONE; /* a filler is never the first */
    double scale = scale_at(r, i);
    if (ordinal && (first || (ordinal->value < 10 && s->least >= 20)) &&
        !(guard_is(r, i, "second") && is_second_unit(r, i))) {
        *value = ordinal->value;
        return ORDINAL;
    }
    if (scale != 0 && (!first || scale >= 12)) {
        *value = scale;
        return SCALE;
    }
    if (cardinal && cardinal->value < s->least && s->least >= 20 && !(s->least < 100 && cardinal->value >= 10)) {
        *value = cardinal->value;
        return CARDINAL;
    }
    if (!first && s->least >= 100 && guard_is(r, i, "and") && guard_token_means(r, i + 1, MEANS_CARDINAL))
        return FILLER;
    return NO_PART;
}

/* Cardinals and scales in words from token i: two hundred and fifty-three thousand. The tokens taken. */
static uint32_t number_in_words(const struct guard_reader *r, uint32_t i, struct guard_number *out)
{
    struct spoken s = {.least = LEAST_NONE};
    uint32_t n = 0;
    assert(!out->ordinal);
    for (bool more = true; more && i + n < r->n_tokens && !r->tokens[i + n].used;) {
        double value = 0;
        enum spoken_part part = next_part(r, i + n, &s, &value);
        if (part == NO_PART)
            break;
        if (part == CARDINAL || part == ORDINAL)
            s.part += value;
        if (part == CARDINAL)
            s.least = value < 10 ? 1 : value < 20 ? 2 : value;
        if (part == SCALE) {
            s.part = (s.part == 0 ? 1 : s.part) * value;
            s.total += value >= 1000 ? s.part : 0;
            s.part = value >= 1000 ? 0 : s.part;
            s.least = value;
        }
        s.ordinal = part == ORDINAL;
        more = part != ORDINAL && (part == FILLER || !r->tokens[i + n].closes);
        n++;
    }
    out->ordinal = s.ordinal;
    if (n == 0 || s.total + s.part > VALUE_MAX)
        return 0;
    set_value(out, s.total + s.part);
    return n;
}

bool guard_number_at(const struct guard_reader *r, uint32_t i, struct guard_number *out, uint32_t *n_words)
{
    *out = (struct guard_number){0};
    *n_words = 0;
    if (i >= r->n_tokens || r->tokens[i].used || r->tokens[i].kind == TOKEN_LITERAL)
        return false;
    if (r->tokens[i].kind == TOKEN_WORD) {
        if (!guard_may_mean(r->tokens[i].word,
                            1u << MEANS_CARDINAL | 1u << MEANS_ORDINAL | 1u << MEANS_SCALE | 1u << MEANS_FRACTION))
            return false;
        const struct guard_meaning *fraction = guard_token_means(r, i, MEANS_FRACTION);
        *n_words = number_in_words(r, i, out);
        if (*n_words == 0 && fraction) {
            *n_words = 1;
            set_value(out, fraction->value);
        }
        out->weak = *n_words == 1 && out->value == 1;
        return *n_words > 0;
    }
    const char *text = r->lower + r->tokens[i].at;
    if (!plain_digits(text, r->tokens[i].bytes, out)) {
        snprintf(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1, text);
        *n_words = 1;
        return true;
    }
    *n_words = 1;
    if (i + 1 < r->n_tokens && r->tokens[i + 1].joint == 0 &&
        (guard_is(r, i + 1, "st") || guard_is(r, i + 1, "nd") || guard_is(r, i + 1, "rd") ||
         guard_is(r, i + 1, "th"))) {
        *n_words = 2;
        out->ordinal = true;
    }
    double scale = scale_at(r, i + *n_words);
    if (scale != 0 && out->value * scale <= VALUE_MAX) {
        set_value(out, out->value * scale);
        ++*n_words;
    }
    out->weak = out->ordinal && out->value == 1;
    return true;
}

static void use(struct guard_reader *r, uint32_t i, uint32_t n)
{
    for (uint32_t t = i; t < i + n; t++)
        r->tokens[t].used = r->tokens[t].named = true;
}

static void emit(struct guard_reader *r, struct guard_number *number, const struct guard_meaning *unit)
{
    char payload[GUARD_PAYLOAD + 1];
    struct quire_bytes name = {"", 0};
    if (unit) {
        size_t n = strlen(number->text);
        if (strchr(number->text, '.')) {
            while (n && number->text[n - 1] == '0')
                number->text[--n] = 0;
            if (n && number->text[n - 1] == '.')
                number->text[n - 1] = 0;
        }
        number->weak |= number->value == 1;
        if (unit->kind != MEANS_DEGREE)
            name = guard_meaning_text(r->tables, unit);
    }
    int bytes =
        snprintf(payload, sizeof payload, "%c%s%s%.*s", number->weak ? 'w' : 's', number->text, name.n_bytes ? " " : "",
                 (int)(name.n_bytes < 16 ? name.n_bytes : 16), (const char *)name.data);
    guard_emit(r, RECORD_NUMBER, payload, (size_t)bytes);
}

/* "An hour" is one hour, weakly. The tokens taken. */
static uint32_t read_article(struct guard_reader *r, uint32_t i)
{
    uint32_t n = 0;
    if (r->tokens[i].used || (!guard_is(r, i, "a") && !guard_is(r, i, "an")))
        return 0;
    const struct guard_meaning *unit = guard_unit_at(r, i + 1, &n);
    if (!unit || r->tokens[i + 1].bytes < 2 || unit->kind == MEANS_DEGREE)
        return 0;
    struct guard_number number = {.text = "1", .value = 1, .weak = true};
    emit(r, &number, unit);
    use(r, i, 1 + n);
    return 1 + n;
}

void guard_read_numbers(struct guard_reader *r)
{
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        struct guard_number number, next;
        uint32_t n, next_n, unit_n = 0, article_n = read_article(r, i);
        if (article_n || !guard_number_at(r, i, &number, &n)) {
            i += article_n ? article_n - 1 : 0;
            continue;
        }
        /* "First" before another number says where it lies, not how many: the first ten rows. */
        if (number.ordinal && number.value == 1 && r->tokens[i].kind == TOKEN_WORD &&
            guard_number_at(r, i + n, &next, &next_n)) {
            r->tokens[i].used = true;
            continue;
        }
        /* "Minus" before a number, unless it stands between two. */
        bool negative = i > 0 && guard_is(r, i - 1, "minus") &&
                        (i == 1 || (r->tokens[i - 2].kind != TOKEN_NUMBER && !r->tokens[i - 2].named));
        if (negative && number.value > 0) {
            memmove(number.text + 1, number.text, sizeof number.text - 1);
            number.text[0] = '-';
            number.text[sizeof number.text - 1] = 0;
        }
        const struct guard_meaning *unit = NULL;
        uint32_t from = i;
        if (i > 0 && !r->tokens[i - 1].used && guard_token_means(r, i - 1, MEANS_CURRENCY)) {
            unit = guard_token_means(r, i - 1, MEANS_CURRENCY);
            from = i - 1;
        }
        const struct guard_meaning *after = number.ordinal ? NULL : guard_unit_at(r, i + n, &unit_n);
        if (after && is_second_unit(r, i + n) && (!unit || after->kind != MEANS_CURRENCY))
            unit = after;
        else if (!after || after->kind != MEANS_CURRENCY)
            unit_n = 0;
        emit(r, &number, unit);
        use(r, from, i - from + n + unit_n);
        i += n + unit_n - 1;
    }
}
