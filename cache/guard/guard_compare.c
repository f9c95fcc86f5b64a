/*
 * guard_compare.c - whether the features of two texts agree, and the sentence that says why not.
 *
 * Each guard is asked in the order of enum guard_kind, and in both directions, which makes it symmetric by
 * construction. A direction asks for each record of one side whether the other has its like. Records come from a file,
 * so a walk ends where one does not fit into the rest of the bytes.
 *
 *   number    a multiset: each number of one side takes one of the other, first with the same unit, then with or
 *             without one. Weak ones may remain on one side: "in an hour" is not "in one minute".
 *   negation  some on both sides or on neither; of a pair, not only its left here and only its right there
 *   literal   each one on the other side; optional ones may be missing unless each side misses some; no order reversed
 *   date      each one on the other side; today may be missing; times without am or pm agree with either
 *   language  the same, or both Latin and one of them not known
 */
#include "cache/guard/guard_priv.h"
#include <stdio.h>

struct features {
    const uint8_t *bytes;
    uint32_t n;
};

struct record {
    uint8_t tag, bytes;
    const char *payload;
};

/* The record at *at, which moves on. false: the end. */
static bool next_record(const struct features *features, uint32_t *at, struct record *out)
{
    if (features->n - *at < 3)
        return false;
    out->tag = features->bytes[*at];
    out->bytes = features->bytes[*at + 1];
    out->payload = (const char *)features->bytes + *at + 2;
    if (out->bytes == 0 || out->bytes > features->n - *at - 2)
        return false;
    *at += 2u + out->bytes;
    return true;
}

/* The next record with one tag. */
static bool next_of(const struct features *features, uint8_t tag, uint32_t *at, struct record *out)
{
    while (next_record(features, at, out))
        if (out->tag == tag)
            return true;
    return false;
}

static bool same(const struct record *a, const struct record *b)
{
    return a->bytes == b->bytes && memcmp(a->payload, b->payload, a->bytes) == 0;
}

static bool has(const struct features *features, const struct record *wanted)
{
    struct record record;
    for (uint32_t at = 0; next_of(features, wanted->tag, &at, &record);)
        if (same(&record, wanted))
            return true;
    return false;
}

static bool has_tag(const struct features *features, uint8_t tag)
{
    struct record record;
    uint32_t at = 0;
    return next_of(features, tag, &at, &record);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct amount {
    struct record record;
    uint32_t digits; /* bytes before the unit, without the flag */
    bool taken;
};

static uint32_t list_amounts(const struct features *features, struct amount list[GUARD_RECORDS])
{
    uint32_t n = 0, at = 0;
    struct record record;
    while (n < GUARD_RECORDS && next_of(features, RECORD_NUMBER, &at, &record)) {
        const char *blank = memchr(record.payload, ' ', record.bytes);
        uint32_t digits = blank ? (uint32_t)(blank - record.payload) - 1 : record.bytes - 1u;
        list[n++] = (struct amount){record, blank == record.payload ? 0 : digits, false};
    }
    return n;
}

static bool amounts_match(const struct amount *a, const struct amount *b, bool exactly)
{
    if (a->digits != b->digits || memcmp(a->record.payload + 1, b->record.payload + 1, a->digits) != 0)
        return false;
    uint32_t unit_a = a->record.bytes - 1u - a->digits, unit_b = b->record.bytes - 1u - b->digits;
    if (!exactly && (unit_a == 0 || unit_b == 0))
        return true;
    return unit_a == unit_b &&
           memcmp(a->record.payload + 1 + a->digits, b->record.payload + 1 + b->digits, unit_a) == 0;
}

/* Each of `mine` takes one of `theirs`; one that finds none becomes *odd, unless it is weak and they have none left
 * either. */
static bool numbers_agree(const struct features *mine, const struct features *theirs, struct record *odd)
{
    struct amount a[GUARD_RECORDS], b[GUARD_RECORDS];
    uint32_t n_a = list_amounts(mine, a), n_b = list_amounts(theirs, b);
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n_a; i++)
            for (uint32_t j = 0; j < n_b && !a[i].taken; j++)
                if (!b[j].taken && amounts_match(&a[i], &b[j], pass == 0))
                    a[i].taken = b[j].taken = true;
    bool theirs_remain = false;
    for (uint32_t j = 0; j < n_b; j++)
        theirs_remain |= !b[j].taken;
    for (uint32_t i = 0; i < n_a; i++)
        if (!a[i].taken && (theirs_remain || a[i].record.payload[0] != 'w')) {
            *odd = a[i].record;
            return false;
        }
    return true;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static bool negations_agree(const struct features *mine, const struct features *theirs, struct record *odd)
{
    struct record pair;
    uint32_t at = 0;
    if (next_of(mine, RECORD_NOT, &at, odd) && !has_tag(theirs, RECORD_NOT))
        return false;
    /* a side of a pair that only mine has, where theirs has only the other side */
    for (at = 0; next_of(mine, RECORD_PAIR, &at, &pair);) {
        char flipped[256];
        memcpy(flipped, pair.payload, pair.bytes);
        flipped[0] ^= 1; /* '0' and '1' */
        struct record other = {RECORD_PAIR, pair.bytes, flipped};
        if (!has(mine, &other) && !has(theirs, &pair) && has(theirs, &other)) {
            *odd = pair;
            return false;
        }
    }
    return true;
}

static bool has_literal(const struct features *features, const struct record *wanted)
{
    struct record record;
    for (uint32_t at = 0; next_of(features, RECORD_LITERAL, &at, &record);)
        if (record.bytes == wanted->bytes && memcmp(record.payload + 1, wanted->payload + 1, wanted->bytes - 1u) == 0)
            return true;
    return false;
}

/* Whether one side has a literal that the other has not; *odd is it, a required one where there is one. */
static bool lacks(const struct features *mine, const struct features *theirs, struct record *odd, bool *required)
{
    struct record record;
    bool any = false;
    *required = false;
    for (uint32_t at = 0; !*required && next_of(mine, RECORD_LITERAL, &at, &record);)
        if (!has_literal(theirs, &record)) {
            any = true;
            *odd = record;
            *required = record.payload[0] != 'o';
        }
    return any;
}

static bool literals_agree(const struct features *mine, const struct features *theirs, struct record *odd)
{
    struct record ignored;
    bool required, other;
    if (lacks(mine, theirs, odd, &required) && (required || lacks(theirs, mine, &ignored, &other)))
        return false;
    struct record order;
    for (uint32_t at = 0; next_of(mine, RECORD_ORDER, &at, &order);) {
        char reversed[256];
        const char *sign = memchr(order.payload, '>', order.bytes);
        uint32_t left = sign ? (uint32_t)(sign - order.payload) : 0, right = order.bytes - left - 1u;
        if (!sign)
            continue;
        memcpy(reversed, sign + 1, right);
        reversed[right] = '>';
        memcpy(reversed + right + 1, order.payload, left);
        struct record wanted = {RECORD_ORDER, order.bytes, reversed};
        if (has(theirs, &wanted) && !has(mine, &wanted)) {
            *odd = order;
            return false;
        }
    }
    return true;
}

/* t0730 or t1930 beside t0730? */
static bool times_match(const struct record *a, const struct record *b)
{
    if (a->payload[0] != 't' || b->payload[0] != 't' || (a->bytes != 6 && b->bytes != 6))
        return false;
    if (a->bytes < 5 || b->bytes < 5 || a->bytes > 6 || b->bytes > 6 || a->payload[3] != b->payload[3] ||
        a->payload[4] != b->payload[4])
        return false;
    int hour_a = (a->payload[1] - '0') * 10 + a->payload[2] - '0';
    int hour_b = (b->payload[1] - '0') * 10 + b->payload[2] - '0';
    return hour_a % 12 == hour_b % 12;
}

static bool dates_agree(const struct features *mine, const struct features *theirs, struct record *odd)
{
    static const struct record today = {RECORD_DATE, 5, "today"};
    struct record record, other;
    for (uint32_t at = 0; next_of(mine, RECORD_DATE, &at, &record);) {
        bool found = same(&record, &today);
        for (uint32_t their_at = 0; !found && next_of(theirs, RECORD_DATE, &their_at, &other);)
            found = same(&record, &other) || times_match(&record, &other);
        if (!found) {
            *odd = record;
            return false;
        }
    }
    return true;
}

static bool is_latin(const struct record *language)
{
    static const char others[][3] = {"el", "ru", "he", "ar", "hi", "bn", "ta", "th", "ko", "ja", "zh"};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        if (language->bytes == 2 && memcmp(language->payload, others[i], 2) == 0)
            return false;
    return true;
}

static bool languages_agree(const struct features *mine, const struct features *theirs, struct record *odd)
{
    static const struct record unknown = {RECORD_LANGUAGE, 2, "xx"};
    struct record a, b;
    uint32_t at_a = 0, at_b = 0;
    if (!next_of(mine, RECORD_LANGUAGE, &at_a, &a) || !next_of(theirs, RECORD_LANGUAGE, &at_b, &b) || same(&a, &b))
        return true;
    if (is_latin(&a) && is_latin(&b) && (same(&a, &unknown) || same(&b, &unknown)))
        return true;
    *odd = a;
    return false;
}

/* ---- explanations ------------------------------------------------------------------------------------------------ */

/* A record as a person reads it. */
static int describe(const struct record *record, bool other_side, char *out, size_t capacity)
{
    const char *text = record->payload;
    int bytes = record->bytes;
    if (record->tag == RECORD_NUMBER || record->tag == RECORD_LITERAL)
        return snprintf(out, capacity, "%.*s", bytes - 1, text + 1);
    if (record->tag == RECORD_PAIR) {
        const char *slash = memchr(text, '/', (size_t)bytes);
        int left = slash ? (int)(slash - text) - 1 : bytes - 1;
        if ((text[0] == '0') != other_side || !slash)
            return snprintf(out, capacity, "%.*s", left, text + 1);
        return snprintf(out, capacity, "%.*s", bytes - left - 2, slash + 1);
    }
    if (record->tag == RECORD_ORDER) {
        const char *sign = memchr(text, '>', (size_t)bytes);
        int left = sign ? (int)(sign - text) : bytes;
        if (!other_side || !sign)
            return snprintf(out, capacity, "%.*s before %.*s", left, text, bytes - left - 1, text + left + 1);
        return snprintf(out, capacity, "%.*s before %.*s", bytes - left - 1, sign + 1, left, text);
    }
    return snprintf(out, capacity, "%.*s", bytes, text);
}

/* All records of a tag on one side, as far as they fit: "5 km, 3". */
static void describe_all(const struct features *features, uint8_t tag, char *out, size_t capacity)
{
    struct record record;
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; next_of(features, tag, &i, &record) && at + 1 < capacity;) {
        int bytes = snprintf(out + at, capacity - at, "%s", at ? ", " : "");
        bytes += describe(&record, false, out + at + bytes,
                          capacity - at > (size_t)bytes ? capacity - at - (size_t)bytes : 0);
        at += (size_t)bytes;
    }
    if (at == 0)
        snprintf(out, capacity, "none");
}

bool guard_agree(const uint8_t *query, uint32_t query_bytes, const uint8_t *entry, uint32_t entry_bytes, unsigned mask,
                 enum guard_kind *kind, char why[160])
{
    static bool (*const agree[GUARD_KINDS])(const struct features *, const struct features *, struct record *) = {
        [GUARD_NUMBER] = numbers_agree, [GUARD_NEGATION] = negations_agree, [GUARD_LITERAL] = literals_agree,
        [GUARD_DATE] = dates_agree,     [GUARD_LANGUAGE] = languages_agree,
    };
    const struct features q = {query, query_bytes}, e = {entry, entry_bytes};
    if ((mask & GUARD_ALL) == 0 ||
        (query_bytes == entry_bytes && (query_bytes == 0 || memcmp(query, entry, query_bytes) == 0)))
        return true;
    if (has_tag(&q, RECORD_WHOLE) || has_tag(&e, RECORD_WHOLE)) {
        unsigned first = 0;
        while (!(mask >> first & 1))
            first++;
        *kind = mask & 1u << GUARD_LITERAL ? GUARD_LITERAL : (enum guard_kind)first;
        if (why)
            snprintf(why, 160, "%s: a text with more than %u bytes of features serves only itself", guard_name(*kind),
                     GUARD_BYTES);
        return false;
    }
    for (unsigned k = 0; k < GUARD_KINDS; k++) {
        struct record odd = {0};
        if (!(mask >> k & 1))
            continue;
        bool forth = agree[k](&q, &e, &odd);
        if (forth && agree[k](&e, &q, &odd))
            continue;
        *kind = (enum guard_kind)k;
        if (why) {
            char here[64], there[64];
            if (odd.tag == RECORD_PAIR || odd.tag == RECORD_ORDER) {
                describe(&odd, forth, here, sizeof here);
                describe(&odd, !forth, there, sizeof there);
            } else {
                describe_all(&q, odd.tag, here, sizeof here);
                describe_all(&e, odd.tag, there, sizeof there);
            }
            snprintf(why, 160, "%s: %s here, %s there", guard_name(*kind), here, there);
            for (char *c = why; *c; c++)
                if ((unsigned char)*c < ' ')
                    *c = ' ';
        }
        return false;
    }
    return true;
}
