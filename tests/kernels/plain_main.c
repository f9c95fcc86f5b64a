/*
 * plain_main.c - the checks of support_compare.c without a test framework, for machines that only an emulator runs.
 *
 * Runs every check on every variant available there, names the failures on stderr and prints "N checks, M failed". With
 * --report it prints the choice instead, as test_kernels does. check_neon.sh builds and runs it.
 */
#include "tests/kernels/support_compare.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--report") == 0)
        return compare_report();
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants), failed = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < n_compare_checks; c++) {
            char message[256] = "";
            if (compare_checks[c].run(variants[i], message, sizeof message))
                continue;
            failed++;
            fprintf(stderr, "%s, %s: %s\n", variants[i]->name, compare_checks[c].name, message);
        }
    printf("%zu checks, %zu failed\n", n * n_compare_checks, failed);
    return failed > 0;
}
