/* support_folder.h - a temporary folder per test, and what tests do with paths and file contents. */
#ifndef QUIRE_TESTS_SUPPORT_FOLDER_H
#define QUIRE_TESTS_SUPPORT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Makes a new folder under $TMPDIR or /tmp; owned, ended by support_folder_remove. NULL on failure. */
char *support_folder_make(void);
/* Removes the folder with all that is below it, and frees the path. */
void support_folder_remove(char *folder);
/* folder/name; owned by the caller. */
char *support_path(const char *folder, const char *name);
/* Number of entries of a folder, or -1. */
int support_folder_count(const char *folder);
/* The byte of a test file at an offset: a function of both offset and seed. */
uint8_t support_byte(uint64_t offset, uint64_t seed);
void support_fill(uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed);
/* Index of the first byte that differs from support_fill's, or n. */
size_t support_differs(const uint8_t *bytes, size_t n, uint64_t offset, uint64_t seed);

#endif
