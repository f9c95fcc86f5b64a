/*
 * library_rates.c - the C side of tests/bench/python.py: an index opened once, then rounds of searches on request.
 *
 * usage: library_rates INDEX QUERIES ROWS K LANES
 *
 * QUERIES are ROWS rows of float32 without a header. Lines on the standard input: `batch` and `single` search all of
 * them, with one call or one by one, and print how many ns that took, and of the processor; `ids FILE` writes the ids
 * of the last round as u64. The Python side does the same between two of these rounds.
 */
#include <quire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned long long now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "library_rates: %s\n", what);
    exit(1);
}

static void write_ids(const char *path, const struct quire_hit *hits, size_t n)
{
    FILE *f = fopen(path, "wb");
    for (size_t i = 0; f && i < n; i++)
        fwrite(&hits[i].id, sizeof hits[i].id, 1, f);
    if (!f || fclose(f) != 0)
        fail("the ids cannot be written");
    puts("0 0");
}

int main(int argc, char **argv)
{
    struct quire_index *index;
    struct quire_search_options options;
    struct quire_error err = {0};
    struct quire_info info;
    char line[4096];
    if (argc != 6)
        fail("usage: library_rates INDEX QUERIES ROWS K LANES");
    size_t rows = strtoul(argv[3], NULL, 10), k = strtoul(argv[4], NULL, 10);
    unsigned lanes = (unsigned)strtoul(argv[5], NULL, 10);
    if (quire_open(argv[1], NULL, &index, &err) < 0)
        fail(err.message);
    quire_get_info(index, &info);
    quire_search_options_init(&options);
    options.k = (uint32_t)k;
    options.dim = info.dim;
    float *queries = malloc(rows * info.dim * sizeof *queries);
    struct quire_hit *hits = malloc(rows * k * sizeof *hits);
    uint32_t *n_hits = malloc(rows * sizeof *n_hits);
    FILE *f = fopen(argv[2], "rb");
    if (!queries || !hits || !n_hits || !f || fread(queries, info.dim * sizeof *queries, rows, f) != rows)
        fail("the queries cannot be read");
    fclose(f);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        unsigned long long begun = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        int rc = 0;
        if (strncmp(line, "ids ", 4) == 0) {
            write_ids(line + 4, hits, rows * k);
        } else {
            if (strcmp(line, "batch") == 0)
                rc = quire_search_batch(index, queries, rows, &options, lanes, 0, hits, n_hits, NULL, &err);
            for (size_t i = 0; strcmp(line, "single") == 0 && rc == 0 && i < rows; i++)
                rc = quire_search(index, queries + i * info.dim, &options, hits + i * k, n_hits + i, NULL, &err);
            if (rc < 0)
                fail(err.message);
            printf("%llu %llu\n", now_ns(CLOCK_MONOTONIC) - begun, now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
        }
        fflush(stdout);
    }
    free(queries);
    free(hits);
    free(n_hits);
    quire_close(index);
    return 0;
}
