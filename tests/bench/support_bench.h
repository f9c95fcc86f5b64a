/*
 * support_bench.h - what measuring programs share: they end with a sentence where something fails, and count processor
 * time, because other programs on the machine move the clock but hardly that.
 */
#ifndef QUIRE_TESTS_SUPPORT_BENCH_H
#define QUIRE_TESTS_SUPPORT_BENCH_H

#include "quire.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((format(printf, 1, 2))) static inline _Noreturn void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

/* err: what is said; NULL: what the number means. */
static inline void check(int rc, const struct quire_error *err)
{
    if (rc < 0)
        fail("%s", err ? err->message : quire_error_text(rc));
}

/* Zeroed. */
static inline void *room(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    if (!memory)
        fail("no memory for %zu bytes", bytes);
    return memory;
}

/* Of all threads. */
static inline double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
