/* library_priv.h - what the files behind quire.h share. */
#ifndef QUIRE_INDEX_LIBRARY_PRIV_H
#define QUIRE_INDEX_LIBRARY_PRIV_H

#include "quire.h"

/* Options carry their size, so that a caller that was compiled with another header is refused and not misread. */
int check_struct_bytes(size_t given, size_t known, const char *name, struct quire_error *err);
int check_search_options(const struct quire_search_options *options, struct quire_error *err);

#endif
