/*
 * support_folder.c - temporary folders and predictable file contents for the tests of io.
 *
 * Contents are a hash of the offset, so that a byte read from the wrong place is seen as wrong, and so that two
 * contents of one file (old, new) differ everywhere by their seed.
 */
#include "support_folder.h"
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *support_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    char *folder;
    if (asprintf(&folder, "%s/quire-test-XXXXXX", base && *base ? base : "/tmp") < 0)
        return NULL;
    if (mkdtemp(folder))
        return folder;
    free(folder);
    return NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void support_folder_remove(char *folder)
{
    if (folder)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

char *support_path(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

int support_folder_count(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}

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
