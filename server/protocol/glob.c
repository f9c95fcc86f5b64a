/* glob.c - Redis's patterns, matched without recursion: time is at most pattern times text. */
#include "server/protocol/glob.h"
#include <ctype.h>
#include <string.h>

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

bool glob_matches_bytes(struct resp_arg pattern, struct resp_arg text, bool fold)
{
    /* iterative, with one place to go back to: a pattern of many stars stays quadratic */
    const char *p = (const char *)pattern.data, *end = p + pattern.bytes, *star = NULL, *star_text = NULL;
    const char *t = (const char *)text.data, *text_end = t + text.bytes;
    while (t < text_end) {
        const char *next = p;
        bool same = false;
        if (p < end && *p == '*') {
            star = ++p;
            star_text = t;
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

bool glob_matches(const char *pattern, size_t pattern_bytes, const char *text)
{
    return glob_matches_bytes((struct resp_arg){(const uint8_t *)pattern, (uint32_t)pattern_bytes},
                              (struct resp_arg){(const uint8_t *)text, (uint32_t)strlen(text)}, true);
}
