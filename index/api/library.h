/* library.h - what all that implements quire.h shares, the caches of the layer above among it. */
#ifndef QUIRE_INDEX_LIBRARY_H
#define QUIRE_INDEX_LIBRARY_H

#include "quire.h"

/* Options carry their size, so that a caller that was compiled with another header is refused and not misread. */
int library_struct_validate(size_t given, size_t known, const char *name, struct quire_error *err);

#endif
