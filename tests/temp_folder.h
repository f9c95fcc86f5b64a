/*
 * temp_folder.h - a temporary folder of a test. Part of every test program; each function fails the running test
 * instead of returning an error.
 */
#ifndef QUIRE_TESTS_TEMP_FOLDER_H
#define QUIRE_TESTS_TEMP_FOLDER_H

/* For a test that reads small files many thousand times and asks nothing of a disk: from now on folders are made in
 * memory, where the system has /dev/shm. */
void support_folder_in_memory(void);
/* Makes a new folder under $TMPDIR or /tmp; owned, ended by support_folder_remove. */
char *support_folder_make(void);
/* Removes the folder with all that is below it, and frees the path. NULL is fine. */
void support_folder_remove(char *folder);
/* folder/name; owned by the caller. */
char *support_path(const char *folder, const char *name);
/* Entries of a folder, without "." and "..". */
unsigned support_count_entries(const char *folder);

#endif
