/* text.h - a piece of bytes that somebody else owns: names, texts, words of a request. */
#ifndef QUIRE_CACHE_TEXT_H
#define QUIRE_CACHE_TEXT_H

#include "quire.h"
#include <string.h>

static inline bool text_equal(struct quire_bytes a, struct quire_bytes b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.data, b.data, a.n_bytes) == 0);
}

static inline struct quire_bytes text_of(const char *text)
{
    return (struct quire_bytes){text, strlen(text)};
}

#endif
