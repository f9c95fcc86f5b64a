/*
 * quire_bench.c - `quire bench-kernels`: what every kernel of this machine costs per vector, beside its memory.
 *
 * A kernel is measured on vectors that the caches hold, where it alone is the limit, and on vectors at random places of
 * a set that they do not hold, where memory is. What memory gives is measured in the same run, by one thread that sums
 * slices of the set in order: one before each kernel, so that on a shared machine they see the same neighbours as the
 * kernels; the median of all counts. A kernel whose share of that is near 1 has little more to gain. Shares above 1 are
 * possible: a core waits for more lines at a time when it reads many short rows than one long one.
 *
 * The set is one mapping of at least four times the last-level cache, in huge pages where the kernel gives them, so
 * that misses of the TLB do not hide those of the caches. The vectors in the caches are its first ones. Its bytes are
 * right for every type at once: read as f32 or as f16 each element is a normal number from 0.5 to 2 and its negative,
 * because denormals, infinities and NaNs would be slower than what an index holds.
 *
 * Vectors are worked through in chunks of some ten microseconds and more. The clock runs while a kernel does, not while
 * the next rows are drawn; they are drawn anew for each chunk, since a list used twice would find its vectors in the
 * cache. The run goes through all kernels several times. A figure is the median over these rounds of the median over a
 * round's chunks: neither an interrupt nor seconds in which a neighbour takes the memory decide it.
 *
 * The operands go through pointers to functions that no compiler sees through: results need not be kept. Only
 * `hadamard` works in place, on a vector that is always in the cache; it has no scattered figure.
 */
#include "index/kernels/kernels.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/memory.h"
#include "io/random.h"
#include "tools/cli/cli.h"
#include "tools/quire_verbs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SET_BYTES_LEAST (1ull << 30)
#define SET_BYTES_MOST  (4ull << 30) /* unless --size asks for it */
#define SET_BYTES_MIN   (1ull << 20) /* GROUP rows of the widest vector */
#define SET_BYTES_MAX   (1ull << 40)
#define SET_OF_CACHE    4u
#define CACHED_BYTES    16384u /* half of the smallest first-level cache in use */
#define CACHED_ROWS_MIN 4u
#define GROUP           16u /* rows that f32_l2_many gets at a time */
#define CODE_GROUPS     2u  /* of 32 codes, that group_dot gets at a time */
#define CODE_GROUP_ROWS (32u * CODE_GROUPS)
#define CHUNK_UNIT      CODE_GROUP_ROWS /* each chunk holds whole groups of either kind */
#define CHUNK_ROWS_MAX  2048u
#define CHUNK_ELEMENTS  (1u << 18)
#define CODE_MULTIPLE   32u
#define ROUNDS          5u
#define REPETITIONS_MIN 3u /* of a chunk, in a round */
#define REPETITIONS_MAX 8192u
#define SLICE_BYTES     ((size_t)16 << 20)
#define SECONDS_DEFAULT 12.0
#define SECONDS_MAX     3600u

static const uint32_t dims_default[] = {128, 256, 768};

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

/* A chunk of vectors and what they are compared with. */
struct operands {
    const void *query; /* dim elements of any type */
    const uint8_t *set;
    size_t stride, dim, n;
    uint32_t *rows; /* n row numbers */
    void *out;      /* space for n results, or a vector of floats */
};

struct bench_kernel {
    const char *name;
    unsigned bits;     /* of a stored element */
    unsigned multiple; /* of the dimension; 0: a power of two */
    unsigned group;    /* rows that lie one behind the other */
    bool in_place;
    void (*run)(const struct kernels *k, const struct operands *o);
};

static const void *row_of(const struct operands *o, size_t i)
{
    return o->set + o->rows[i] * o->stride;
}

/* X(kernel, type of the query, type of the stored vector) */
#define PAIRS(X)                                                                                                       \
    X(f32_l2, float, float)                                                                                            \
    X(f32_dot, float, float)                                                                                           \
    X(f16_l2, float, f16_t)                                                                                            \
    X(f16_dot, float, f16_t)                                                                                           \
    X(u8_l2, uint8_t, uint8_t)                                                                                         \
    X(u8_dot, uint8_t, uint8_t)                                                                                        \
    X(i8_l2, int8_t, int8_t)                                                                                           \
    X(i8_dot, int8_t, int8_t)                                                                                          \
    X(f32_u8_dot, float, uint8_t)                                                                                      \
    X(f32_i8_dot, float, int8_t)                                                                                       \
    X(f32_u8_l2, float, uint8_t)                                                                                       \
    X(f32_i8_l2, float, int8_t)
#define GROUP_BITS(X)                                                                                                  \
    X(1)                                                                                                               \
    X(2)                                                                                                               \
    X(4)
#define CODE_BITS(X)                                                                                                   \
    GROUP_BITS(X)                                                                                                      \
    X(8)

#define X(name, query_type, stored_type)                                                                               \
    static void run_##name(const struct kernels *k, const struct operands *o)                                          \
    {                                                                                                                  \
        for (size_t i = 0; i < o->n; i++)                                                                              \
            k->name((const query_type *)o->query, (const stored_type *)row_of(o, i), o->dim);                          \
    }
PAIRS(X)
#undef X

#define X(bits)                                                                                                        \
    static void run_code_dot_##bits(const struct kernels *k, const struct operands *o)                                 \
    {                                                                                                                  \
        k->code_dot[kernels_code_index(bits)](o->query, o->set, o->stride, o->rows, o->n, o->dim, o->out);             \
    }
CODE_BITS(X)
#undef X

/* Groups begin where a posting list's would: at a multiple of their size, of which the rows drawn are rounded down. */
static void run_group_dot(const struct kernels *k, const struct operands *o, unsigned bits)
{
    for (size_t i = 0; i < o->n; i += CODE_GROUP_ROWS) {
        const uint8_t *groups = o->set + o->rows[i] / 32 * 32 * o->stride;
        k->group_dot[kernels_code_index(bits)](o->query, groups, 32 * o->stride, CODE_GROUPS, o->dim, o->out);
    }
}

#define X(bits)                                                                                                        \
    static void run_group_dot_##bits(const struct kernels *k, const struct operands *o)                                \
    {                                                                                                                  \
        run_group_dot(k, o, bits);                                                                                     \
    }
GROUP_BITS(X)
#undef X

static void run_f32_l2_many(const struct kernels *k, const struct operands *o)
{
    for (size_t i = 0; i < o->n; i += GROUP)
        k->f32_l2_many(o->query, row_of(o, i), GROUP, o->dim, o->out);
}

static void run_f16_from_f32(const struct kernels *k, const struct operands *o)
{
    for (size_t i = 0; i < o->n; i++)
        k->f16_from_f32(row_of(o, i), o->out, o->dim);
}

static void run_f32_from_f16(const struct kernels *k, const struct operands *o)
{
    for (size_t i = 0; i < o->n; i++)
        k->f32_from_f16(row_of(o, i), o->out, o->dim);
}

static void run_hadamard(const struct kernels *k, const struct operands *o)
{
    for (size_t i = 0; i < o->n; i++)
        k->hadamard(o->out, o->dim);
}

#define PAIR_ROW(name, query_type, stored_type) {#name, 8 * sizeof(stored_type), 1, 1, false, run_##name},
#define CODE_ROW(bits)                          {"code_dot_" #bits, bits, CODE_MULTIPLE, 1, false, run_code_dot_##bits},

#define GROUP_ROW(bits) {"group_dot_" #bits, bits, CODE_MULTIPLE, CODE_GROUP_ROWS, false, run_group_dot_##bits},

static const struct bench_kernel bench_kernels[] = {{"f16_from_f32", 32, 1, 1, false, run_f16_from_f32},
                                                    {"f32_from_f16", 16, 1, 1, false, run_f32_from_f16},
                                                    {"hadamard", 32, 0, 1, true, run_hadamard},
                                                    {"f32_l2_many", 32, 1, GROUP, false, run_f32_l2_many},
                                                    PAIRS(PAIR_ROW) CODE_BITS(CODE_ROW) GROUP_BITS(GROUP_ROW)};
#define N_KERNELS (sizeof bench_kernels / sizeof *bench_kernels)

/* The dimension wanted, or the next that the kernel takes. */
static size_t dim_for(const struct bench_kernel *kernel, size_t wanted)
{
    size_t dim = 1;
    if (kernel->multiple)
        return (wanted + kernel->multiple - 1) / kernel->multiple * kernel->multiple;
    while (dim < wanted)
        dim *= 2;
    return dim;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* What follows `name` in a line of a file of /proc, without blanks around it; false where there is none. */
static bool proc_field(const char *path, const char *name, char *out, size_t capacity)
{
    FILE *in = fopen(path, "re");
    char line[512];
    bool found = false;
    while (in && !found && fgets(line, sizeof line, in)) {
        const char *value = line + strlen(name);
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        value += strspn(value, " \t:");
        snprintf(out, capacity, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (in)
        fclose(in);
    return found;
}

/* A number of kB as bytes, or 0. */
static uint64_t proc_bytes(const char *path, const char *name)
{
    char text[64];
    return proc_field(path, name, text, sizeof text) ? strtoull(text, NULL, 10) * 1024 : 0;
}

/* 0 where nobody says. */
static uint64_t last_cache_bytes(void)
{
    static const int levels[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        long bytes = sysconf(levels[i]);
        if (bytes > 0)
            return (uint64_t)bytes;
    }
    return 0;
}

/* Several times the cache, from 1 to 4 GiB, but no more than half of what memory has free. */
static uint64_t choose_set_bytes(uint64_t cache_bytes)
{
    uint64_t bytes = SET_OF_CACHE * cache_bytes, free_bytes = proc_bytes("/proc/meminfo", "MemAvailable:");
    bytes = bytes < SET_BYTES_LEAST ? SET_BYTES_LEAST : bytes > SET_BYTES_MOST ? SET_BYTES_MOST : bytes;
    if (free_bytes && bytes > free_bytes / 2)
        bytes = free_bytes / 2;
    return bytes < SET_BYTES_MIN ? SET_BYTES_MIN : bytes;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

struct result {
    const struct bench_kernel *kernel;
    const struct kernels *variant;
    size_t dim;
    double cached_ns[ROUNDS], scattered_ns[ROUNDS]; /* per vector; NAN: not measured */
};

struct bench {
    struct cli *cli;
    uint64_t dim, size; /* as asked for; 0: the default */
    double seconds;
    const char *only; /* a kernel's name or NULL */
    uint64_t cache_bytes, set_bytes, setting_ns;
    void *set, *query, *out;
    uint32_t *rows;
    double *chunk_ns; /* REPETITIONS_MAX */
    struct random random;
    struct result *results;
    size_t n_results;
    double *bandwidths; /* bytes per ns; for each result and round */
    size_t n_bandwidths, slice_at;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void fill(struct bench *b, void *at, size_t bytes)
{
    uint64_t *words = at;
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = (random_next(&b->random) & 0x80ff83ff80ff83ffu) | 0x3f003c003f003c00u;
}

static volatile uint64_t sum_kept; /* so that the reading is not left out */

/* One slice; goes on where the last one ended. */
static void measure_bandwidth(struct bench *b)
{
    size_t n = (b->set_bytes < SLICE_BYTES ? b->set_bytes : SLICE_BYTES) / sizeof(uint64_t) / 8 * 8;
    if (b->slice_at + n > b->set_bytes / sizeof(uint64_t))
        b->slice_at = 0;
    const uint64_t *words = (const uint64_t *)b->set + b->slice_at;
    uint64_t sums[8] = {0}, begin = clock_ns();
    for (size_t i = 0; i < n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += words[i + j];
    for (size_t j = 0; j < 8; j++)
        sum_kept += sums[j];
    b->bandwidths[b->n_bandwidths++] = (double)(n * sizeof *words) / (double)(clock_ns() - begin + 1);
    b->slice_at += n;
}

static void draw_rows(struct bench *b, struct operands *o, uint64_t n_rows)
{
    for (size_t i = 0; i < o->n; i++)
        o->rows[i] = (uint32_t)random_below(&b->random, n_rows);
}

static size_t chunk_rows(size_t dim)
{
    size_t n = CHUNK_ELEMENTS / dim;
    return (n > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : n < CHUNK_UNIT ? CHUNK_UNIT : n) / CHUNK_UNIT * CHUNK_UNIT;
}

/* A chunk again and again: ns per vector in each. Returns how many. */
static size_t repeat(struct bench *b, const struct result *r, struct operands *o, uint64_t n_rows, bool scattered)
{
    uint64_t begin = clock_ns(), after = begin;
    size_t n = 0;
    while (n < REPETITIONS_MIN || (n < REPETITIONS_MAX && after - begin < b->setting_ns)) {
        if (scattered)
            draw_rows(b, o, n_rows);
        uint64_t before = clock_ns();
        r->kernel->run(r->variant, o);
        after = clock_ns();
        b->chunk_ns[n++] = (double)(after - before) / (double)o->n;
    }
    return n;
}

/* ns per vector in one setting. */
static double measure(struct bench *b, const struct result *r, bool scattered)
{
    size_t stride = r->dim * r->kernel->bits / 8, least = r->kernel->group > 1 ? r->kernel->group : CACHED_ROWS_MIN;
    uint64_t n_rows = (scattered ? b->set_bytes : CACHED_BYTES) / stride;
    struct operands o = {.query = b->query,
                         .set = b->set,
                         .stride = stride,
                         .dim = r->dim,
                         .n = chunk_rows(r->dim),
                         .rows = b->rows,
                         .out = b->out};
    n_rows = n_rows < least ? least : n_rows > UINT32_MAX ? UINT32_MAX : n_rows;
    n_rows -= r->kernel->group - 1; /* a group begins where all of it fits */
    draw_rows(b, &o, n_rows);
    r->kernel->run(r->variant, &o); /* brings code and vectors into the caches */
    return median(b->chunk_ns, repeat(b, r, &o, n_rows, scattered));
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* A row of results for each dimension, kernel and variant; how long a setting may take in a round. */
static int plan(struct bench *b, struct quire_error *err)
{
    const struct kernels *const *variants;
    size_t n_variants = kernels_available(&variants), n_dims = b->dim ? 1 : sizeof dims_default / sizeof *dims_default;
    size_t n = n_dims * N_KERNELS * n_variants, points = 0;
    b->results = calloc(n, sizeof *b->results);
    b->bandwidths = malloc(n * ROUNDS * sizeof *b->bandwidths);
    b->chunk_ns = malloc(REPETITIONS_MAX * sizeof *b->chunk_ns);
    if (!b->results || !b->bandwidths || !b->chunk_ns)
        return error_set(err, QUIRE_ENOMEM, "no memory for the results");
    for (size_t d = 0; d < n_dims; d++)
        for (size_t i = 0; i < N_KERNELS; i++)
            for (size_t v = 0; v < n_variants; v++) {
                const struct bench_kernel *kernel = &bench_kernels[i];
                if (b->only && strcmp(b->only, kernel->name) != 0)
                    continue;
                b->results[b->n_results++] = (struct result){.kernel = kernel,
                                                             .variant = variants[v],
                                                             .dim = dim_for(kernel, b->dim ? b->dim : dims_default[d])};
                points += kernel->in_place ? 1 : 2;
            }
    b->setting_ns = (uint64_t)(b->seconds * 1e9 / (double)(points * ROUNDS));
    return 0;
}

static int make_set(struct bench *b, struct quire_error *err)
{
    size_t vector_bytes = QUIRE_DIM_MAX * sizeof(float);
    b->cache_bytes = last_cache_bytes();
    b->set_bytes = b->size ? b->size : choose_set_bytes(b->cache_bytes);
    b->set = memory_map(b->set_bytes, 1);
    b->query = memory_aligned(64, vector_bytes);
    b->out = memory_aligned(64, vector_bytes);
    b->rows = memory_aligned(64, CHUNK_ROWS_MAX * sizeof *b->rows);
    if (!b->set || !b->query || !b->out || !b->rows)
        return error_set(err, QUIRE_ENOMEM, "no memory for a set of %llu bytes: choose a smaller --size",
                         (unsigned long long)b->set_bytes);
    if (b->set_bytes <= b->cache_bytes)
        cli_note(b->cli,
                 "a set of %llu bytes fits into the last-level cache of %llu: scattered results are the cache's",
                 (unsigned long long)b->set_bytes, (unsigned long long)b->cache_bytes);
    random_init(&b->random, 1);
    fill(b, b->set, b->set_bytes);
    fill(b, b->query, vector_bytes);
    fill(b, b->out, vector_bytes);
    return 0;
}

static int run(struct bench *b, struct quire_error *err)
{
    int rc = plan(b, err);
    if (rc == 0)
        rc = make_set(b, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < b->n_results * ROUNDS; i++) {
        struct result *r = &b->results[i % b->n_results];
        size_t round = i / b->n_results;
        measure_bandwidth(b);
        r->cached_ns[round] = measure(b, r, false);
        r->scattered_ns[round] = r->kernel->in_place ? NAN : measure(b, r, true);
        if (cli_progress(b->cli, "kernels", i + 1, b->n_results * ROUNDS))
            return cli_cancelled(err);
    }
    return 0;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* To four figures; more would be noise. */
static double rounded(double x)
{
    double unit = x > 0 ? pow(10, floor(log10(x)) - 3) : 1;
    return round(x / unit) * unit;
}

static void report(const struct bench *b)
{
    struct cli *cli = b->cli;
    char processor[128];
    double bandwidth = median(b->bandwidths, b->n_bandwidths);
    bool named = proc_field("/proc/cpuinfo", "model name", processor, sizeof processor);
    cli_put_text(cli, NULL, "processor", named ? processor : "unknown");
    cli_put_text(cli, NULL, "cpu", kernels_reason());
    cli_put(cli, NULL, "last_cache_bytes", b->cache_bytes ? json_integer((json_int_t)b->cache_bytes) : json_null());
    cli_put_count(cli, NULL, "set_bytes", b->set_bytes);
    cli_put_count(cli, NULL, "huge_page_bytes", proc_bytes("/proc/self/smaps_rollup", "AnonHugePages:"));
    cli_put_real(cli, NULL, "bandwidth_gb_s", rounded(bandwidth));
    for (size_t i = 0; i < b->n_results; i++) {
        struct result *r = &b->results[i];
        size_t row_bytes = (size_t)r->dim * r->kernel->bits / 8;
        double bytes = (double)row_bytes;
        double cached_ns = median(r->cached_ns, ROUNDS), scattered_ns = median(r->scattered_ns, ROUNDS);
        json_t *row = cli_put_row(cli, NULL, "kernels");
        cli_put_text(cli, row, "kernel", r->kernel->name);
        cli_put_text(cli, row, "variant", r->variant->name);
        cli_put_count(cli, row, "dim", r->dim);
        cli_put_count(cli, row, "bytes", (uint64_t)bytes);
        cli_put_real(cli, row, "cached_ns", rounded(cached_ns));
        cli_put_real(cli, row, "cached_gb_s", rounded(bytes / cached_ns));
        cli_put_real(cli, row, "cached_share", rounded(bytes / cached_ns / bandwidth));
        cli_put_real(cli, row, "scattered_ns", rounded(scattered_ns));
        cli_put_real(cli, row, "scattered_gb_s", rounded(bytes / scattered_ns));
        cli_put_real(cli, row, "scattered_share", rounded(bytes / scattered_ns / bandwidth));
    }
}

static int check_name(struct cli *cli, const char *name)
{
    char names[512];
    size_t at = 0;
    for (size_t i = 0; i < N_KERNELS; i++) {
        if (strcmp(name, bench_kernels[i].name) == 0)
            return CLI_OK;
        int n = snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", bench_kernels[i].name);
        at += (size_t)n < sizeof names - at ? (size_t)n : 0;
    }
    return cli_mistake(cli, "--kernel %s: it must be one of %s", name, names);
}

static const char summary[] =
    "Measures every kernel in every variant that this machine can run: nanoseconds per vector and bytes of vectors\n"
    "per second, on vectors in the cache and on vectors scattered over a set that is larger than it, and what share\n"
    "that is of the memory's bandwidth as one thread reads it. hadamard works in place and is measured in the cache\n"
    "only. Dimensions are rounded up where a kernel asks for it: codes to 32, hadamard to a power of two.";
static const char examples[] = "  quire bench-kernels\n"
                               "  quire bench-kernels --dim 384 --seconds 5 --json\n"
                               "  quire bench-kernels --kernel code_dot_4 --size 4G\n";

int quire_bench_kernels(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    struct bench b = {.cli = &cli, .seconds = SECONDS_DEFAULT};
    int code;
    const struct cli_option options[] = {
        CLI_OPTION("dim", CLI_COUNT, &b.dim, "N", "dimensions; 0: 128, 256 and 768", CLI_RANGE(0, QUIRE_DIM_MAX)),
        CLI_OPTION("seconds", CLI_REAL, &b.seconds, "S", "for all kernels together", CLI_RANGE(0, SECONDS_MAX)),
        CLI_OPTION("kernel", CLI_TEXT, &b.only, "NAME", "measure this one only"),
        CLI_OPTION("size", CLI_SIZE, &b.size, "SIZE",
                   "of the set; auto: 4 times the last-level cache, from 1G to 4G, at most half of the free memory",
                   CLI_RANGE(SET_BYTES_MIN, SET_BYTES_MAX)),
    };
    const struct cli_verb verb = {
        "quire bench-kernels", summary, "", 0, options, sizeof options / sizeof *options, examples};
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    if (b.only && check_name(&cli, b.only) != CLI_OK)
        return CLI_USAGE;
    int rc = run(&b, &err);
    if (rc == 0)
        report(&b);
    memory_unmap(b.set, b.set_bytes);
    memory_free(b.query);
    memory_free(b.out);
    memory_free(b.rows);
    free(b.results);
    free(b.bandwidths);
    free(b.chunk_ns);
    return cli_end(&cli, rc, &err);
}
