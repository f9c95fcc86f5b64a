/* mask.h - places in a text that change with each request and mean little: times, dates, random ids. Linear time. */
#ifndef QUIRE_GATEWAY_TEXT_MASK_H
#define QUIRE_GATEWAY_TEXT_MASK_H

#include <stdbool.h>
#include <stddef.h>

enum mask {
    MASK_ISO_TIME = 1u << 0, /* 2026-11-23T18:05:10.123+01:00, 2026-11-23 18:05, 18:05:10, 6:05:10 PM */
    MASK_UUID = 1u << 1,     /* 8-4-4-4-12 hexadecimal digits */
    MASK_DATE = 1u << 2      /* 2026-11-23, 2026/11/23, 23.11.2026, 11/23/2026, [Monday, ]November 23[rd][,] 2026,
                                [Mon ]23 Nov 2026, Mon Nov 23 2026 */
};

/* The first place at or behind `from` that one of `masks` fits: *at and *bytes. False: none. A place begins and ends
 * where no letter or digit goes on. */
bool mask_find(const char *text, size_t bytes, size_t from, unsigned masks, size_t *at, size_t *place_bytes);
/* The name of settings ("iso-time", "uuid", "date") as a bit; 0: none is called so. */
unsigned mask_named(const char *name);

#endif
