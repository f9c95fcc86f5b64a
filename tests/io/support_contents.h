/* support_contents.h - predictable file contents for the tests of io. */
#ifndef QUIRE_TESTS_SUPPORT_CONTENTS_H
#define QUIRE_TESTS_SUPPORT_CONTENTS_H

#include "tests/temp_folder.h"
#include <stddef.h>
#include <stdint.h>

/* The byte of a test file at an offset: a function of both offset and seed. */
uint8_t support_byte(uint64_t offset, uint64_t seed);
void support_fill(uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed);
/* Index of the first byte that differs from support_fill's, or n. */
size_t support_differs(const uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed);

#endif
