/*
 * bench_guard.c - what guards cost: microseconds per text and per comparison, and how often each speaks on real text.
 *
 *   bench_guard                 the cost, for texts of 100 and 2,000 characters
 *   bench_guard FILE [PAIRS]    FILE: lines of part, domain, intent, text (CLINC150); random pairs of one intent, and
 *                               of one domain but two intents (without oos, which is no
 *                               intent): the share that each guard blocks
 *   bench_guard -e A B          the features of two texts, and what the guards say
 *
 * It checks nothing; docs/guards.md has its output.
 */
#include "cache/guard/guard.h"
#include "io/random.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LINES_MAX 100000u

struct line {
    struct quire_bytes domain, intent, text;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void measure(const struct guard_tables *tables)
{
    static const char sentence[] =
        "Please transfer 250 dollars from my savings account to Anna on Friday and don't turn "
        "off the alerts. ";
    static const size_t sizes[] = {100, 2000};
    uint8_t features[GUARD_BYTES], other[GUARD_BYTES];
    char text[2000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = sentence[i % (sizeof sentence - 1)];
    for (unsigned s = 0; s < 2; s++) {
        enum { ROUNDS = 20000 };
        uint64_t bytes = 0;
        double from = now_us();
        for (unsigned i = 0; i < ROUNDS; i++)
            bytes += guard_features(tables, (struct quire_bytes){text, sizes[s] - i % 7}, features);
        printf("features of %4zu characters: %.2f us (%.0f bytes)\n", sizes[s], (now_us() - from) / ROUNDS,
               (double)bytes / ROUNDS);
    }
    enum guard_kind kind;
    uint32_t a = guard_features(tables, (struct quire_bytes){text, 100}, features);
    uint32_t b = guard_features(tables, (struct quire_bytes){text, 96}, other);
    unsigned agreed = 0;
    double from = now_us();
    for (unsigned i = 0; i < 1000000; i++)
        agreed += guard_agree(features, a, other, b - i % 2, GUARD_ALL, &kind, NULL);
    printf("comparison: %.3f us (%u agreed)\n", (now_us() - from) / 1e6, agreed);
}

static struct quire_bytes field(char **at)
{
    char *from = *at, *end = from + strcspn(from, "\t\n");
    *at = *end ? end + 1 : end;
    return (struct quire_bytes){from, (size_t)(end - from)};
}

static uint32_t read_lines(const char *path, struct line *lines)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    uint32_t n = 0;
    if (!file)
        return 0;
    while (n < LINES_MAX && getline(&text, &room, file) > 0) {
        char *at = strdup(text);
        if (!at)
            break;
        field(&at);
        lines[n].domain = field(&at);
        lines[n].intent = field(&at);
        lines[n++].text = field(&at);
    }
    free(text);
    fclose(file);
    return n;
}

/* Draws pairs and counts; `same`: of one intent. */
static void count(const struct guard_tables *tables, const struct line *lines, uint32_t n, uint32_t pairs, bool same)
{
    struct random random;
    uint32_t blocked[GUARD_KINDS] = {0}, total = 0, all = 0, shown = 0;
    uint64_t bytes = 0;
    random_init(&random, same ? 1 : 2);
    while (total < pairs) {
        const struct line *a = &lines[random_below(&random, n)], *b = &lines[random_below(&random, n)];
        uint8_t x[GUARD_BYTES], y[GUARD_BYTES];
        enum guard_kind kind;
        char why[160];
        bool one = a->intent.n_bytes == b->intent.n_bytes && !memcmp(a->intent.data, b->intent.data, a->intent.n_bytes);
        bool near =
            a->domain.n_bytes == b->domain.n_bytes && !memcmp(a->domain.data, b->domain.data, a->domain.n_bytes);
        if (a == b || one != same || !near || (a->intent.n_bytes == 3 && memcmp(a->intent.data, "oos", 3) == 0))
            continue;
        uint32_t n_x = guard_features(tables, a->text, x), n_y = guard_features(tables, b->text, y);
        total++;
        bytes += n_x;
        for (unsigned k = 0; k < GUARD_KINDS; k++)
            blocked[k] += !guard_agree(x, n_x, y, n_y, 1u << k, &kind, why);
        if (guard_agree(x, n_x, y, n_y, GUARD_ALL, &kind, why))
            continue;
        all++;
        if (same && shown++ % (pairs / 200 + 1) == 0)
            printf("    %.*s | %.*s | %s\n", (int)a->text.n_bytes, (const char *)a->text.data, (int)b->text.n_bytes,
                   (const char *)b->text.data, why);
    }
    printf("%u pairs of %s: blocked %.1f %%", total, same ? "one intent" : "one domain and two intents",
           100.0 * all / total);
    for (unsigned k = 0; k < GUARD_KINDS; k++)
        printf(", %s %.1f", guard_name((enum guard_kind)k), 100.0 * blocked[k] / total);
    printf("; %.1f bytes of features a text\n", (double)bytes / total);
}

static void explain(const struct guard_tables *tables, const char *a, const char *b)
{
    uint8_t x[GUARD_BYTES], y[GUARD_BYTES];
    uint32_t n_x = guard_features(tables, (struct quire_bytes){a, strlen(a)}, x);
    uint32_t n_y = guard_features(tables, (struct quire_bytes){b, strlen(b)}, y);
    enum guard_kind kind;
    char why[160] = "they agree";
    for (unsigned side = 0; side < 2; side++) {
        const uint8_t *at = side ? y : x, *end = at + (side ? n_y : n_x);
        for (; at < end; at += 2 + at[1])
            printf("  %c %.*s", at[0], at[1], (const char *)at + 2);
        printf("\n");
    }
    guard_agree(x, n_x, y, n_y, GUARD_ALL, &kind, why);
    printf("%s\n", why);
}

int main(int argc, char **argv)
{
    struct guard_tables *tables;
    struct quire_error err;
    if (guard_tables_load(NULL, &tables, &err) < 0) {
        fprintf(stderr, "bench_guard: %s\n", err.message);
        return 1;
    }
    if (argc == 4 && strcmp(argv[1], "-e") == 0) {
        explain(tables, argv[2], argv[3]);
    } else if (argc > 1) {
        struct line *lines = calloc(LINES_MAX, sizeof *lines);
        uint32_t n = lines ? read_lines(argv[1], lines) : 0;
        uint32_t pairs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 100000;
        if (n == 0) {
            fprintf(stderr, "bench_guard: %s cannot be read\n", argv[1]);
            return 1;
        }
        count(tables, lines, n, pairs, true);
        count(tables, lines, n, pairs, false);
    } else {
        measure(tables);
    }
    guard_tables_free(tables);
    return 0;
}
