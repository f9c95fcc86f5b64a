/*
 * guard_date.c - dates, times of day and words that stand for them, in one notation each.
 *
 *   "0704" day of a month    "07" month      "1998" year       "1980s" decade     "monday"   "tomorrow"   "christmas"
 *   "t1930" time of day      "t0730?" not known whether in the morning: agrees with either
 *   "next week", "last year"; a period without such a word ("this week", "the weekend") is itself: "weekend"
 *   "today" is weak: what is asked without a day is asked for today
 *
 * Two texts agree if they have the same set. "July 4, 1776", "4th of July 1776" and "1776-07-04" are one date; where
 * slashes leave open which is the month, it is read as written in the United States. Dates relative to now (tomorrow)
 * are kept as words: the features of an entry do not age, the time to live of its category does that.
 *
 * May, march and fall are words of other meaning too, and count only in company: a number of a day, or "in", "last",
 * ... before it. A number of four digits from 1500 to 2099 is a year unless a unit follows.
 */
#include "cache/guard/guard_priv.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* Words that anything here may begin with. */
#define DATE_KINDS                                                                                                     \
    (1u << MEANS_CARDINAL | 1u << MEANS_ORDINAL | 1u << MEANS_SCALE | 1u << MEANS_FRACTION | 1u << MEANS_MONTH |       \
     1u << MEANS_MONTH_LIKE | 1u << MEANS_WEEKDAY | 1u << MEANS_DAY | 1u << MEANS_PART | 1u << MEANS_PERIOD |          \
     1u << MEANS_SEASON | 1u << MEANS_SEASON_LIKE | 1u << MEANS_CLOCK)

#define YEAR_MIN 1500
#define YEAR_MAX 2099

__attribute__((format(printf, 2, 3))) static void emit(struct guard_reader *r, const char *format, ...)
{
    char text[GUARD_PAYLOAD];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert(bytes >= 0 && (size_t)bytes < sizeof text);
    guard_emit(r, RECORD_DATE, text, (size_t)bytes);
}

/* The whole number that token i is in digits; -1: it is none. */
static int digits_at(const struct guard_reader *r, uint32_t i)
{
    if (i >= r->n_tokens || r->tokens[i].kind != TOKEN_NUMBER || r->tokens[i].used || r->tokens[i].bytes > 4)
        return -1;
    int value = 0;
    for (uint32_t b = 0; b < r->tokens[i].bytes; b++) {
        char c = r->lower[r->tokens[i].at + b];
        if (c < '0' || c > '9')
            return -1;
        value = value * 10 + c - '0';
    }
    return value;
}

static bool any_of(const struct guard_reader *r, uint32_t i, const char *const *words)
{
    for (; *words; words++)
        if (guard_is(r, i, *words))
            return true;
    return false;
}

static bool joined(const struct guard_reader *r, uint32_t i, char sign)
{
    return i < r->n_tokens && r->tokens[i].joint == sign;
}

/* ---- days, months, years ----------------------------------------------------------------------------------------- */

static bool is_year(const struct guard_reader *r, uint32_t i)
{
    uint32_t n;
    int year = digits_at(r, i);
    return year >= YEAR_MIN && year <= YEAR_MAX && r->tokens[i].bytes == 4 &&
           !(i > 0 && guard_token_means(r, i - 1, MEANS_CURRENCY)) && !guard_unit_at(r, i + 1, &n) &&
           !(joined(r, i + 1, 0) && r->tokens[i + 1].bytes < 3) && !guard_token_means(r, i + 1, MEANS_SCALE);
}

/* 2024-03-05, 3/5/2024. The tokens taken. */
static uint32_t date_in_digits(struct guard_reader *r, uint32_t i)
{
    int a = digits_at(r, i), b = digits_at(r, i + 1), c = digits_at(r, i + 2);
    char sign = i + 1 < r->n_tokens ? r->tokens[i + 1].joint : 0;
    if (a < 0 || b < 0 || c < 0 || !joined(r, i + 2, sign) || (sign != '-' && sign != '/'))
        return 0;
    int year = a, month = b, day = c;
    if (a < 32) {
        bool day_first = a > 12;
        year = c < 100 ? 2000 + c : c;
        month = day_first ? b : a;
        day = day_first ? a : b;
    }
    if (year < YEAR_MIN || year > YEAR_MAX || month < 1 || month > 12 || day < 1 || day > 31)
        return 0;
    emit(r, "%04d", year);
    emit(r, "%02d%02d", month, day);
    return 3;
}

static const struct guard_meaning *month_at(const struct guard_reader *r, uint32_t i, bool in_company)
{
    if (i >= r->n_tokens || r->tokens[i].used)
        return NULL;
    const struct guard_meaning *month = guard_token_means(r, i, MEANS_MONTH);
    return month || !in_company ? month : guard_token_means(r, i, MEANS_MONTH_LIKE);
}

/* A day of the month, 3 or 3rd or third, at token i. The tokens taken. */
static uint32_t day_at(const struct guard_reader *r, uint32_t i, int *day)
{
    struct guard_number number;
    uint32_t n;
    if (!guard_number_at(r, i, &number, &n) || number.value < 1 || number.value > 31 ||
        number.value != (int)number.value || (r->tokens[i].kind == TOKEN_WORD && !number.ordinal) ||
        joined(r, i + 1, ':'))
        return 0;
    *day = (int)number.value;
    return n;
}

/* July 4 (1776), the 4th of July (1776), July. The tokens taken; the year is found by itself. */
static uint32_t date_in_words(struct guard_reader *r, uint32_t i)
{
    static const char *const company[] = {"in",  "of",    "since",  "until", "by",   "last", "next",    "this", "from",
                                          "for", "every", "during", "early", "late", "mid",  "through", "till", NULL};
    int day;
    const struct guard_meaning *month = month_at(r, i, true);
    uint32_t n = month ? day_at(r, i + 1, &day) : 0;
    if (n) {
        emit(r, "%02d%02d", (int)month->value, day);
        return 1 + n;
    }
    if (month) {
        if (month->kind == MEANS_MONTH_LIKE && !(i > 0 && any_of(r, i - 1, company)) &&
            !(r->tokens[i].capital && !r->tokens[i].opens && !r->titled && !r->shouting))
            return 0;
        emit(r, "%02d", (int)month->value);
        return 1;
    }
    n = day_at(r, i, &day);
    uint32_t of = n && guard_is(r, i + n, "of");
    month = n ? month_at(r, i + n + of, true) : NULL;
    if (!month || (month->kind == MEANS_MONTH_LIKE && of == 0 && r->tokens[i].kind == TOKEN_WORD))
        return 0;
    emit(r, "%02d%02d", (int)month->value, day);
    return n + of + 1;
}

/* the 80s, 1920s */
static uint32_t decade(struct guard_reader *r, uint32_t i)
{
    int value = digits_at(r, i);
    if (value < 0 || value % 10 != 0 || !joined(r, i + 1, 0) ||
        !(guard_is(r, i + 1, "s") || guard_is(r, i + 1, "'s")) ||
        !((value >= 20 && value < 100) || (value >= YEAR_MIN && value <= YEAR_MAX)))
        return 0;
    emit(r, "%ds", value < 100 ? 1900 + value : value);
    return 2;
}

/* ---- times of day ------------------------------------------------------------------------------------------------ */

/* am, pm, "in the morning", "at night" behind a time at token i: 'a', 'p', or 0. *n: the tokens taken. */
static char half_of_day(const struct guard_reader *r, uint32_t i, uint32_t *n)
{
    *n = 1;
    if (i < r->n_tokens && r->tokens[i].used)
        return 0;
    if (guard_is(r, i, "am") || guard_is(r, i, "pm"))
        return r->lower[r->tokens[i].at];
    *n = guard_is(r, i, "at") ? 2 : 3;
    uint32_t part = i + *n - 1;
    if (!(guard_is(r, i, "in") && guard_is(r, i + 1, "the")) && *n == 3)
        return 0;
    if (guard_is(r, part, "morning"))
        return 'a';
    return guard_is(r, part, "afternoon") || guard_is(r, part, "evening") || guard_is(r, part, "night") ? 'p' : 0;
}

/* Emits a time, for which token `next` may say the half of the day. The tokens taken from there. */
static uint32_t emit_time(struct guard_reader *r, int hour, int minute, bool is_24h, uint32_t next)
{
    uint32_t n;
    char half = half_of_day(r, next, &n);
    if (!half)
        n = 0;
    if (half && hour <= 12)
        hour = hour % 12 + (half == 'p' ? 12 : 0);
    bool open = !half && !is_24h && hour >= 1 && hour <= 12;
    emit(r, "t%02d%02d%s", hour, minute, open ? "?" : "");
    return n;
}

/* An hour in digits or words at token i; -1: none. */
static int hour_at(const struct guard_reader *r, uint32_t i, uint32_t *n)
{
    struct guard_number number;
    if (!guard_number_at(r, i, &number, n) || number.ordinal || number.value < 0 || number.value > 24 ||
        number.value != (int)number.value || strchr(number.text, '.'))
        return -1;
    return (int)number.value;
}

/* half past six, quarter to 7, ten past five */
static uint32_t time_in_words(struct guard_reader *r, uint32_t i)
{
    uint32_t n = 1, hour_n;
    int minute = guard_is(r, i, "half") ? 30 : guard_is(r, i, "quarter") ? 15 : hour_at(r, i, &n);
    bool past = guard_is(r, i + n, "past"), to = guard_is(r, i + n, "to") && guard_is(r, i, "quarter");
    if (minute < 0 || (!past && !to))
        return 0;
    int hour = hour_at(r, i + n + 1, &hour_n);
    if (hour < 1 || hour > 12)
        return 0;
    n += 1 + hour_n;
    if (to) {
        hour = hour == 1 ? 12 : hour - 1;
        minute = 60 - minute;
    }
    return n + emit_time(r, hour, minute, false, i + n);
}

/* 6.30: one or two digits, a point, two digits. */
static bool time_with_point(const struct guard_reader *r, uint32_t i, int *hour, int *minute)
{
    const struct guard_token *token = &r->tokens[i];
    const char *text = r->lower + token->at, *point = memchr(text, '.', token->bytes);
    if (token->kind != TOKEN_NUMBER || token->bytes < 4 || token->bytes > 5 || point != text + token->bytes - 3)
        return false;
    *hour = token->bytes == 4 ? text[0] - '0' : (text[0] - '0') * 10 + text[1] - '0';
    *minute = (point[1] - '0') * 10 + point[2] - '0';
    return *hour >= 0 && *hour <= 12 && *minute >= 0 && *minute < 60;
}

/* 17:30, 5:30 pm, 6.30 am, 7 am, at 7, 7 o'clock. The tokens taken. */
static uint32_t time_at(struct guard_reader *r, uint32_t i)
{
    uint32_t n = 0, unit_n, half_n;
    const char *text = r->lower + r->tokens[i].at;
    int hour = digits_at(r, i), minute = digits_at(r, i + 1);
    if (hour >= 0 && hour <= 24 && minute >= 0 && minute < 60 && joined(r, i + 1, ':') && !joined(r, i + 2, ':') &&
        r->tokens[i + 1].bytes == 2)
        return 2 + emit_time(r, hour, minute, r->tokens[i].bytes == 2 && text[0] == '0', i + 2);
    if (time_with_point(r, i, &hour, &minute) && half_of_day(r, i + 1, &half_n))
        return 1 + emit_time(r, hour, minute, false, i + 1);
    hour = hour_at(r, i, &n);
    if (hour < 0)
        return 0;
    if (guard_is(r, i + n, "o'clock") || guard_is(r, i + n, "oclock"))
        return n + 1 + emit_time(r, hour, 0, false, i + n + 1);
    bool half = hour >= 1 && hour <= 12 && half_of_day(r, i + n, &half_n);
    bool meant = half && (half_n == 1 || (i > 0 && guard_is(r, i - 1, "at")));
    bool at = i > 0 && guard_is(r, i - 1, "at") && !guard_unit_at(r, i + n, &unit_n) &&
              !guard_token_means(r, i + n, MEANS_SCALE);
    return meant || at ? n + emit_time(r, hour, 0, false, i + n) : 0;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static bool emit_meaning(struct guard_reader *r, const char *before, const struct guard_meaning *means)
{
    struct quire_bytes name = guard_meaning_text(r->tables, means);
    emit(r, "%s%.*s", before, (int)(name.n_bytes < 30 ? name.n_bytes : 30), (const char *)name.data);
    return true;
}

/* "next " or "last " if such a word stands before token i. */
static const char *direction_before(const struct guard_reader *r, uint32_t i)
{
    static const char *const next[] = {"next", "coming", "following", NULL};
    static const char *const last[] = {"last", "past", "previous", NULL};
    if (i == 0)
        return "";
    return any_of(r, i - 1, next) ? "next " : any_of(r, i - 1, last) ? "last " : "";
}

/* A period counts if something says which; a season and the weekend always do. */
static bool period_at(struct guard_reader *r, uint32_t i)
{
    static const char *const company[] = {"in", "of", "this", "next", "last", "every", "during", "for", "the", NULL};
    const struct guard_meaning *means;
    const char *which = direction_before(r, i);
    if ((means = guard_token_means(r, i, MEANS_PERIOD)) != NULL)
        return *which ? emit_meaning(r, which, means) : i > 0 && guard_is(r, i - 1, "this");
    if ((means = guard_token_means(r, i, MEANS_SEASON)) != NULL)
        return emit_meaning(r, which, means);
    means = guard_token_means(r, i, MEANS_SEASON_LIKE);
    return means && i > 0 && any_of(r, i - 1, company) && emit_meaning(r, which, means);
}

static uint32_t word_at(struct guard_reader *r, uint32_t i)
{
    uint32_t n = 1;
    const struct guard_meaning *means = guard_match(r, i, MEANS_DAY, &n);
    if (means && guard_is(r, i, "tonight")) {
        emit(r, "today");
        emit(r, "evening");
        return 1;
    }
    if (means) {
        emit_meaning(r, "", means);
        return n;
    }
    if ((means = guard_token_means(r, i, MEANS_WEEKDAY)) != NULL)
        return emit_meaning(r, direction_before(r, i), means);
    if ((means = guard_token_means(r, i, MEANS_PART)) != NULL) {
        if (i > 0 && guard_is(r, i - 1, "this"))
            emit(r, "today");
        return guard_is(r, i - 1, "good") && i > 0 ? 1 : emit_meaning(r, direction_before(r, i), means);
    }
    if ((means = guard_token_means(r, i, MEANS_CLOCK)) != NULL) {
        emit(r, "t%02d%02d", (int)means->value / 60 % 24, (int)means->value % 60);
        return 1;
    }
    return period_at(r, i);
}

void guard_read_dates(struct guard_reader *r)
{
    for (uint32_t i = 0; i < r->n_tokens; i++) {
        const struct guard_token *token = &r->tokens[i];
        uint32_t n = 0;
        if (token->used || token->kind == TOKEN_LITERAL ||
            (token->kind == TOKEN_WORD && !guard_may_mean(token->word, DATE_KINDS)))
            continue;
        if (token->kind == TOKEN_NUMBER) {
            n = date_in_digits(r, i);
            n = n ? n : decade(r, i);
        }
        n = n ? n : time_in_words(r, i);
        n = n ? n : time_at(r, i);
        n = n ? n : date_in_words(r, i);
        if (n == 0 && token->kind == TOKEN_NUMBER && is_year(r, i)) {
            emit(r, "%04d", digits_at(r, i));
            n = 1;
        }
        n = n || token->kind == TOKEN_NUMBER ? n : word_at(r, i);
        if (n) {
            for (uint32_t t = i; t < i + n && t < r->n_tokens; t++)
                r->tokens[t].used = r->tokens[t].named = true;
            i += n - 1;
        }
    }
}
