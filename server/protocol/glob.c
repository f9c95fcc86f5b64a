/*
 * glob.c - Redis's patterns.
 *
 * Two ways with the same answers. Short texts: the pattern is walked beside the text, with one place to go back to,
 * which may take pattern times text steps. Where that product is large, all places of the pattern are walked at once, a
 * bit each (the Shift-And of Baeza-Yates and Gonnet, 1992): bit i says that the first i elements match a text that ends
 * here. A byte of the text takes one step for 64 elements, whatever stars there are, so nobody can make a pattern that
 * takes long. Which elements accept which byte is worked out once per pattern.
 */
#include "server/protocol/glob.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    WALKED_BYTES = 64, /* of a pattern that is used once */
    WALK_STEPS = 4096, /* pattern times text, up to which the two are walked */
    WORDS_MAX = GLOB_BYTES_MAX / 64 + 1
};

struct glob_states {
    unsigned n_words, n_elements;
    uint64_t stays[WORDS_MAX];        /* a star stands before this element, or at the end */
    uint64_t accepts[256][WORDS_MAX]; /* by the byte */
};

static int folded(bool fold, char c)
{
    return fold ? tolower((unsigned char)c) : (unsigned char)c;
}

/* One "[...]" at *p against c; *p stands behind it afterwards. */
static bool set_matches(const char **p, const char *end, char c, bool fold)
{
    const char *at = *p + 1;
    bool negated = at < end && *at == '^', found = false;
    if (negated)
        at++;
    for (; at < end && *at != ']'; at++) {
        char low = *at == '\\' && at + 1 < end ? *++at : *at, high = low;
        if (at + 2 < end && at[1] == '-' && at[2] != ']') {
            high = at[2];
            at += 2;
        }
        int l = folded(fold, low), h = folded(fold, high), x = folded(fold, c);
        found |= (l <= h ? l <= x && x <= h : h <= x && x <= l);
    }
    *p = at < end ? at + 1 : end;
    return found != negated;
}

/* The two side by side. */
static bool walk(struct resp_arg pattern, struct resp_arg text, bool fold)
{
    const char *p = (const char *)pattern.data, *end = p + pattern.bytes, *star = NULL, *star_text = NULL;
    const char *t = (const char *)text.data, *text_end = t + text.bytes;
    while (t < text_end) {
        const char *next = p;
        bool same = false;
        if (p < end && *p == '*') {
            star = ++p;
            star_text = t;
            if (p == end)
                return true;
            continue;
        }
        if (p < end && *p == '[') {
            same = set_matches(&next, end, *t, fold);
        } else if (p < end) {
            next = *p == '\\' && p + 1 < end ? p + 1 : p;
            same = *p == '?' || folded(fold, *next) == folded(fold, *t);
            next++;
        }
        if (same) {
            p = next;
            t++;
        } else if (star) {
            p = star;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

/* ---- all places at once ------------------------------------------------------------------------------------------ */

static struct glob_states *make_states(struct resp_arg pattern, bool fold)
{
    struct glob_states *s = calloc(1, sizeof *s);
    const char *p = (const char *)pattern.data, *end = p + pattern.bytes;
    for (; s && p < end; s->n_elements++) {
        unsigned word = s->n_elements / 64;
        uint64_t bit = (uint64_t)1 << s->n_elements % 64;
        for (; p < end && *p == '*'; p++)
            s->stays[word] |= bit;
        if (p == end)
            break;
        const char *next = p + 1, *literal = *p == '\\' && p + 1 < end ? p + 1 : p;
        if (*p != '[' && *p != '?')
            next = literal + 1;
        for (unsigned c = 0; c < 256; c++) {
            const char *set = p;
            bool accepted = *p == '?';
            if (*p == '[') {
                accepted = set_matches(&set, end, (char)c, fold);
                next = set;
            } else if (*p != '?') {
                accepted = folded(fold, *literal) == folded(fold, (char)c);
            }
            s->accepts[c][word] |= accepted ? bit : 0;
        }
        p = next;
    }
    if (s)
        s->n_words = s->n_elements / 64 + 1;
    return s;
}

static bool run_states(const struct glob_states *s, struct resp_arg text)
{
    uint64_t at[WORDS_MAX] = {1};
    const unsigned last = s->n_elements / 64;
    const uint64_t end = (uint64_t)1 << s->n_elements % 64;
    const bool stays_at_end = s->stays[last] & end;
    for (uint32_t i = 0; i < text.bytes; i++) {
        const uint64_t *accepts = s->accepts[text.data[i]];
        uint64_t carry = 0, any = 0;
        for (unsigned w = 0; w < s->n_words; w++) {
            uint64_t moved = at[w] & accepts[w];
            at[w] = (at[w] & s->stays[w]) | moved << 1 | carry;
            carry = moved >> 63;
            any |= at[w];
        }
        if (!any || (stays_at_end && at[last] & end))
            break;
    }
    return at[last] & end;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

void glob_begin(struct glob *glob, struct resp_arg pattern, bool fold)
{
    *glob = (struct glob){.pattern = pattern, .fold = fold};
}

void glob_end(struct glob *glob)
{
    free(glob->states);
    glob->states = NULL;
}

uint64_t glob_cost(const struct glob *glob, struct resp_arg text)
{
    uint64_t steps = (uint64_t)glob->pattern.bytes * text.bytes;
    return steps <= WALK_STEPS ? steps : (uint64_t)text.bytes * (glob->pattern.bytes / 64 + 1);
}

bool glob_test(struct glob *glob, struct resp_arg text)
{
    bool walks = (uint64_t)glob->pattern.bytes * text.bytes <= WALK_STEPS || glob->pattern.bytes > GLOB_BYTES_MAX;
    if (!walks && !glob->states)
        glob->states = make_states(glob->pattern, glob->fold);
    /* without memory: slowly */
    return walks || !glob->states ? walk(glob->pattern, text, glob->fold) : run_states(glob->states, text);
}

bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold)
{
    struct glob glob;
    if (pattern.bytes <= WALKED_BYTES)
        return walk(pattern, text, fold); /* to find out which byte is accepted where would take longer */
    glob_begin(&glob, pattern, fold);
    bool matches = glob_test(&glob, text);
    glob_end(&glob);
    return matches;
}

bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text)
{
    return glob_matches_bytes((struct resp_arg){(const uint8_t *)pattern, (uint32_t)pattern_bytes},
                              (struct resp_arg){(const uint8_t *)text, (uint32_t)strlen(text)}, true);
}
