/*
 * replay_main.c - runs a fuzz target over the files of folders: `replay_<target> FOLDER-OR-FILE ...`.
 *
 * So what fuzzing once found stays tested in every build, also without clang and libFuzzer. Each file is given as it
 * is and cut short at some places: a corpus of a few tiny files then reaches most of the early returns. The bytes lie
 * in a block of just their size, so that a sanitizer sees one read too many. Exits 1 where nothing was found to run,
 * because a folder that moved would otherwise look like a passed test.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS_MAX = 64 };

static void run_bytes(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* The number of files run: 1, or 0 where it cannot be read. */
static unsigned run_file(const char *path, off_t bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc((size_t)bytes + 1);
    size_t n = file && data ? fread(data, 1, (size_t)bytes, file) : 0;
    bool whole = file && data && n == (size_t)bytes;
    if (whole) {
        size_t step = n / CUTS_MAX + 1;
        for (size_t cut = 0; cut < n; cut += step)
            run_bytes(data, cut);
        run_bytes(data, n);
    } else {
        fprintf(stderr, "cannot read %s\n", path);
    }
    free(data);
    if (file)
        fclose(file);
    return whole;
}

static unsigned run_path(const char *path)
{
    struct stat st;
    unsigned n = 0;
    DIR *folder = opendir(path);
    if (!folder)
        return stat(path, &st) == 0 ? run_file(path, st.st_size) : 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode))
            n += run_file(name, st.st_size);
    }
    closedir(folder);
    return n;
}

int main(int n_arguments, char **arguments)
{
    int rc = n_arguments > 1 ? 0 : 1;
    for (int i = 1; i < n_arguments; i++) {
        unsigned n = run_path(arguments[i]);
        printf("%s: %u files\n", arguments[i], n);
        rc |= n == 0;
    }
    return rc;
}
