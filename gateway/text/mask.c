/*
 * mask.c - times, dates and random ids, found by hand-written matchers: each looks at a bounded number of bytes from
 * where it starts, so a text takes time in proportion to its length, whatever it holds.
 *
 * A matcher gets the text from some place on and says how many bytes it takes there, 0 for none. Where several fit, the
 * longest is taken, so that a date with a time behind it is one place.
 */
#include "gateway/text/mask.h"
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct look {
    const char *s;
    size_t n;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* Digits from `at` on, `max` at most. */
static size_t digits_at(struct look l, size_t at, size_t max)
{
    size_t n = 0;
    while (n < max && at + n < l.n && is_digit(l.s[at + n]))
        n++;
    return n;
}

static bool char_at(struct look l, size_t at, const char *any)
{
    return at < l.n && l.s[at] && strchr(any, l.s[at]);
}

/* A number of just `digits` digits, low to high. */
static bool number_at(struct look l, size_t at, size_t digits, int low, int high)
{
    int x = 0;
    if (digits_at(l, at, digits) < digits)
        return false;
    for (size_t i = 0; i < digits; i++)
        x = x * 10 + (l.s[at + i] - '0');
    return x >= low && x <= high;
}

/* ---- times ---- */

/* hh:mm, hh:mm:ss, hh:mm:ss.fff; *seconds: it has them. */
static size_t clock_at(struct look l, size_t at, bool *seconds)
{
    size_t begin = at, hours = digits_at(l, at, 2);
    *seconds = false;
    if (hours == 0 || !number_at(l, at, hours, 0, 24) || !char_at(l, at + hours, ":") ||
        !number_at(l, at + hours + 1, 2, 0, 59))
        return 0;
    at += hours + 3;
    if (!char_at(l, at, ":") || !number_at(l, at + 1, 2, 0, 60))
        return at - begin;
    *seconds = true;
    at += 3;
    size_t fraction = char_at(l, at, ".,") ? digits_at(l, at + 1, 9) : 0;
    return at + (fraction ? fraction + 1 : 0) - begin;
}

/* Z, UTC, +01:00, +0100, AM, PM, with or without a blank before it. */
static size_t zone_at(struct look l, size_t at)
{
    static const char *const words[] = {"z", "utc", "gmt", "am", "pm", "a.m.", "p.m."};
    size_t blank = char_at(l, at, " ") ? 1 : 0, from = at + blank;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i]);
        if (l.n - (from < l.n ? from : l.n) >= bytes && strncasecmp(l.s + from, words[i], bytes) == 0 &&
            (from + bytes == l.n || !is_word(l.s[from + bytes])))
            return blank + bytes;
    }
    if (blank || !char_at(l, at, "+-") || digits_at(l, at + 1, 2) < 2)
        return 0;
    size_t colon = char_at(l, at + 3, ":") ? 1 : 0;
    return digits_at(l, at + 3 + colon, 2) == 2 ? 5 + colon : 3;
}

static size_t iso_date(struct look l, size_t at, char separator)
{
    const char only[] = {separator, 0};
    bool fits = number_at(l, at, 4, 1000, 9999) && char_at(l, at + 4, only) && number_at(l, at + 5, 2, 1, 12) &&
                char_at(l, at + 7, only) && number_at(l, at + 8, 2, 1, 31);
    return fits ? 10 : 0;
}

static size_t match_iso_time(struct look l)
{
    bool seconds;
    size_t date = iso_date(l, 0, '-');
    if (date > 0) {
        size_t clock = char_at(l, date, "Tt ") ? clock_at(l, date + 1, &seconds) : 0;
        return clock ? date + 1 + clock + zone_at(l, date + 1 + clock) : 0;
    }
    size_t clock = clock_at(l, 0, &seconds);
    return clock && seconds ? clock + zone_at(l, clock) : 0;
}

/* ---- ids ---- */

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static size_t match_uuid(struct look l)
{
    if (l.n < 36)
        return 0;
    for (size_t i = 0; i < 36; i++) {
        bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        if (hyphen ? l.s[i] != '-' : !is_hex(l.s[i]))
            return 0;
    }
    return 36;
}

/* ---- dates ---- */

/* A whole word of a list, by its first three letters or in full, with or without a dot. */
static size_t word_at(struct look l, size_t at, const char *const *words, size_t n_words)
{
    size_t letters = 0;
    while (letters < 10 && at + letters < l.n && is_word(l.s[at + letters]) && !is_digit(l.s[at + letters]))
        letters++;
    for (size_t i = 0; letters >= 3 && i < n_words; i++) {
        bool same = letters <= strlen(words[i]) && strncasecmp(l.s + at, words[i], letters) == 0;
        if (same && (letters == 3 || letters == strlen(words[i])))
            return letters + (char_at(l, at + letters, ".") ? 1 : 0);
    }
    return 0;
}

static size_t month_at(struct look l, size_t at)
{
    static const char *const months[] = {"january", "february", "march",     "april",   "may",      "june",
                                         "july",    "august",   "september", "october", "november", "december"};
    return word_at(l, at, months, 12);
}

static size_t weekday_at(struct look l, size_t at)
{
    static const char *const days[] = {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"};
    return word_at(l, at, days, 7);
}

/* ", " or " ". */
static size_t gap_at(struct look l, size_t at)
{
    size_t comma = char_at(l, at, ",") ? 1 : 0;
    return char_at(l, at + comma, " ") ? comma + 1 : 0;
}

static size_t day_at(struct look l, size_t at)
{
    size_t digits = digits_at(l, at, 2);
    if (digits == 0 || !number_at(l, at, digits, 1, 31))
        return 0;
    at += digits;
    bool ordinal = at + 1 < l.n && (strncasecmp(l.s + at, "st", 2) == 0 || strncasecmp(l.s + at, "nd", 2) == 0 ||
                                    strncasecmp(l.s + at, "rd", 2) == 0 || strncasecmp(l.s + at, "th", 2) == 0);
    return digits + (ordinal ? 2 : 0);
}

/* November 23, 2026 and 23 November 2026, a weekday before it or not. */
static size_t named_date(struct look l)
{
    size_t at = weekday_at(l, 0);
    if (at > 0) {
        size_t gap = gap_at(l, at);
        if (gap == 0)
            return 0;
        at += gap;
    }
    size_t month = month_at(l, at), day = month ? 0 : day_at(l, at), gap, second;
    if (month + day == 0)
        return 0;
    at += month + day;
    gap = gap_at(l, at);
    second = gap == 0 ? 0 : month ? day_at(l, at + gap) : month_at(l, at + gap);
    if (second == 0)
        return 0;
    at += gap + second;
    gap = gap_at(l, at);
    return gap && number_at(l, at + gap, 4, 1000, 9999) ? at + gap + 4 : 0;
}

/* 23.11.2026, 11/23/2026, 3/7/2026. */
static size_t numbers_date(struct look l)
{
    size_t first = digits_at(l, 0, 2);
    if (first == 0 || !number_at(l, 0, first, 1, 31) || !char_at(l, first, "./"))
        return 0;
    const char only[] = {l.s[first], 0};
    size_t second = digits_at(l, first + 1, 2), at = first + 1 + second;
    bool fits = second > 0 && number_at(l, first + 1, second, 1, 31) && char_at(l, at, only) &&
                number_at(l, at + 1, 4, 1000, 9999);
    return fits ? at + 5 : 0;
}

static size_t match_date(struct look l)
{
    size_t bytes = iso_date(l, 0, '-');
    bytes = bytes ? bytes : iso_date(l, 0, '/');
    bytes = bytes ? bytes : numbers_date(l);
    return bytes ? bytes : named_date(l);
}

/* ---- all ---- */

static const struct {
    const char *name;
    unsigned mask;
    size_t (*match)(struct look);
} kinds[] = {
    {"iso-time", MASK_ISO_TIME, match_iso_time},
    {"uuid", MASK_UUID, match_uuid},
    {"date", MASK_DATE, match_date},
};

bool mask_find(const char *text, size_t bytes, size_t from, unsigned masks, size_t *at, size_t *place_bytes)
{
    for (size_t i = from; i < bytes; i++) {
        if (!is_word(text[i]) || (i > 0 && is_word(text[i - 1])))
            continue;
        size_t longest = 0;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            size_t n = masks & kinds[k].mask ? kinds[k].match((struct look){text + i, bytes - i}) : 0;
            bool ends = n > 0 && (i + n == bytes || !is_word(text[i + n]));
            longest = ends && n > longest ? n : longest;
        }
        if (longest > 0) {
            *at = i;
            *place_bytes = longest;
            return true;
        }
    }
    return false;
}

unsigned mask_named(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(name, kinds[k].name) == 0)
            return kinds[k].mask;
    return 0;
}
