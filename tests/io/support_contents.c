/*
 * support_contents.c - predictable file contents for the tests of io.
 *
 * Contents are a hash of the offset, so that a byte read from the wrong place is seen as wrong, and so that two
 * contents of one file (old, new) differ everywhere by their seed.
 */
#include "support_contents.h"

uint8_t support_byte(uint64_t offset, uint64_t seed)
{
    return (uint8_t)(((offset + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull) >> 56);
}

void support_fill(uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = support_byte(offset + i, seed);
}

size_t support_differs(const uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != support_byte(offset + i, seed))
            return i;
    return n;
}
