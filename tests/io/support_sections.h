/* support_sections.h - a small section file whose contents follow from a seed, for tests of sections and of faults. */
#ifndef QUIRE_TESTS_SUPPORT_SECTIONS_H
#define QUIRE_TESTS_SUPPORT_SECTIONS_H

#include "io/sections.h"

#define SUPPORT_KIND          7u
#define SUPPORT_SMALL         1u /* 10 bytes */
#define SUPPORT_LARGE         2u /* large_bytes */
#define SUPPORT_SELF_CHECKED  3u /* 8192 bytes, not covered by a checksum of the container */
#define SUPPORT_EMPTY         4u
#define SUPPORT_LARGE_DEFAULT 20000u

extern const uint8_t support_segment_id[16];

/* Writes the file, four sections; returns what the first failing call, or finish, said. */
int support_sections_write(struct io_fs *fs, const char *path, uint64_t seed, uint64_t large_bytes,
                           struct quire_error *err);
/* Opens the file and checks every byte: 0 when it is whole and of this seed; QUIRE_ECORRUPT when it reads well but
 * holds other bytes; otherwise what open or load said. */
int support_sections_check(struct io_fs *fs, const char *path, uint64_t seed, uint64_t large_bytes, unsigned flags);

#endif
