/*
 * temp_folder.c - temporary folders of tests: made under $TMPDIR, gone at the end with all that is below them.
 */
#include "tests/temp_folder.h"
#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

char *support_path(const char *folder, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    return path;
}

void support_folder_in_memory(void)
{
    if (access("/dev/shm", W_OK | X_OK) == 0)
        assert_int_equal(setenv("TMPDIR", "/dev/shm", 1), 0);
}

char *support_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    char *folder = support_path(base && *base ? base : "/tmp", "quire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void support_folder_remove(char *folder)
{
    if (folder)
        assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(folder);
}

unsigned support_count_entries(const char *folder)
{
    DIR *entries = opendir(folder);
    unsigned n = 0;
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return n;
}
