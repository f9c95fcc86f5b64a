/*
 * expansion.c - patterns of words and tags.
 *
 * Wildcards are matched with one place to come back to, the last *: time is at most text times pattern. Errors are
 * counted by the rows of the edit-distance table (Wagner and Fischer, 1974), only the band around its diagonal that
 * can stay within `distance`. Characters are those of UTF-8; a byte that begins none counts as one.
 */
#include "document/fields/expansion.h"

/* Bytes of the character at text[0]; bytes > 0. */
static uint32_t character_bytes(const char *text, uint32_t bytes)
{
    uint8_t first = (uint8_t)text[0];
    uint32_t n = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (n > bytes)
        return 1;
    for (uint32_t i = 1; i < n; i++)
        if (((uint8_t)text[i] & 0xC0) != 0x80)
            return 1;
    return n;
}

static bool has_prefix(const char *text, uint32_t bytes, struct query_text prefix)
{
    return bytes >= prefix.bytes && memcmp(text, prefix.data, prefix.bytes) == 0;
}

static bool has_suffix(const char *text, uint32_t bytes, struct query_text suffix)
{
    return bytes >= suffix.bytes && memcmp(text + bytes - suffix.bytes, suffix.data, suffix.bytes) == 0;
}

static bool has_infix(const char *text, uint32_t bytes, struct query_text infix)
{
    return infix.bytes == 0 || memmem(text, bytes, infix.data, infix.bytes) != NULL;
}

static bool wildcard_matches(struct query_text pattern, const char *text, uint32_t bytes)
{
    uint32_t at = 0, p = 0, star = UINT32_MAX, resume = 0;
    while (at < bytes) {
        uint32_t character = character_bytes(text + at, bytes - at);
        if (p < pattern.bytes && pattern.data[p] == '*') {
            star = ++p;
            resume = at;
            continue;
        }
        if (p < pattern.bytes && pattern.data[p] == '?') {
            at += character;
            p++;
            continue;
        }
        uint32_t literal = p + 1 < pattern.bytes && pattern.data[p] == '\\' ? p + 1 : p;
        if (literal < pattern.bytes && pattern.data[literal] == text[at]) {
            at++;
            p = literal + 1;
        } else if (star != UINT32_MAX) {
            p = star; /* the last * takes one character more */
            resume += character_bytes(text + resume, bytes - resume);
            at = resume;
        } else {
            return false;
        }
    }
    while (p < pattern.bytes && pattern.data[p] == '*')
        p++;
    return p == pattern.bytes;
}

/* Characters of a text as numbers; false where there are more than EXPANSION_FUZZY_BYTES. */
static bool characters_of(const char *text, uint32_t bytes, uint32_t *characters, uint32_t *n)
{
    *n = 0;
    if (bytes > EXPANSION_FUZZY_BYTES)
        return false;
    for (uint32_t at = 0; at < bytes;) {
        uint32_t width = character_bytes(text + at, bytes - at);
        uint32_t character = 0;
        for (uint32_t i = 0; i < width; i++)
            character = character << 8 | (uint8_t)text[at + i];
        characters[(*n)++] = character;
        at += width;
    }
    return true;
}

static bool fuzzy_matches(struct query_text pattern, uint32_t distance, const char *text, uint32_t bytes)
{
    uint32_t a[EXPANSION_FUZZY_BYTES], b[EXPANSION_FUZZY_BYTES], n_a, n_b;
    uint32_t row[EXPANSION_FUZZY_BYTES + 1];
    /* a character has at most four bytes, and so many errors at most */
    if (bytes > pattern.bytes + 4 * distance || pattern.bytes > bytes + 4 * distance ||
        !characters_of(pattern.data, pattern.bytes, a, &n_a) || !characters_of(text, bytes, b, &n_b) ||
        n_a > n_b + distance || n_b > n_a + distance)
        return false;
    for (uint32_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= n_a; i++) {
        uint32_t diagonal = row[0], least = i;
        row[0] = i;
        for (uint32_t j = 1; j <= n_b; j++) {
            uint32_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            uint32_t moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < moved ? replaced : moved;
            least = row[j] < least ? row[j] : least;
        }
        if (least > distance)
            return false;
    }
    return row[n_b] <= distance;
}

bool expansion_matches(enum query_kind kind, struct query_text pattern, uint32_t distance, const char *text,
                       uint32_t bytes)
{
    switch (kind) {
    case QUERY_PREFIX:
        return has_prefix(text, bytes, pattern);
    case QUERY_SUFFIX:
        return has_suffix(text, bytes, pattern);
    case QUERY_INFIX:
        return has_infix(text, bytes, pattern);
    case QUERY_WILDCARD:
        return wildcard_matches(pattern, text, bytes);
    default:
        assert(kind == QUERY_FUZZY);
        return fuzzy_matches(pattern, distance, text, bytes);
    }
}

uint32_t expansion_literal_prefix(enum query_kind kind, struct query_text pattern, char *prefix, uint32_t prefix_max)
{
    uint32_t n = 0;
    if (kind != QUERY_PREFIX && kind != QUERY_WILDCARD)
        return 0;
    for (uint32_t p = 0; p < pattern.bytes && n < prefix_max; p++) {
        char c = pattern.data[p];
        if (kind == QUERY_WILDCARD && (c == '*' || c == '?'))
            break;
        if (kind == QUERY_WILDCARD && c == '\\' && p + 1 < pattern.bytes)
            c = pattern.data[++p];
        prefix[n++] = c;
    }
    assert(n <= prefix_max);
    return n;
}
