/*
 * reducer.c - the tallies of groups.
 *
 * A tally is small, as there may be a million groups; what grows with the rows of a group (distinct values, lists,
 * quantiles) grows by the pool's count of bytes. Values are numbers where they convert to one; what does not is left
 * out, and a group without any number has NaN as its sum, and infinity as its extremes, as RediSearch answers.
 *
 * Distinct values are counted by 64-bit hashes: two of a million different ones are taken for one with a chance of
 * 3e-8. COUNT_DISTINCTISH keeps hashes, too, and from SKETCH_FROM on a HyperLogLog (Flajolet et al. 2007) of 4,096
 * registers instead: 1.6 % standard error in 4 KiB, however many there are.
 */
#include "document/pipeline/reducer.h"
#include "io/array.h"
#include "io/hash.h"
#include "io/random.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SKETCH_FROM 1024u
#define SKETCH_BITS 12u
#define SKETCH_N    (1u << SKETCH_BITS)

/* A set of 64-bit hashes; 0 is an empty place. */
static inline bool mark_is_set(const uint64_t *mark)
{
    return *mark != 0;
}
static inline uint64_t mark_hash(const uint64_t *mark)
{
    return *mark;
}
static inline bool mark_is_same(const uint64_t *a, const uint64_t *b)
{
    return *a == *b;
}
HASH_DEFINE(marks, uint64_t, mark_is_set, mark_hash, mark_is_same)

/* A set of values. */
struct member {
    struct datum *value;
    uint64_t hash;
};
static inline bool member_is_set(const struct member *member)
{
    return member->value != NULL;
}
static inline uint64_t member_hash(const struct member *member)
{
    return member->hash;
}
static inline bool member_is_same(const struct member *a, const struct member *b)
{
    return a->hash == b->hash && datum_is_same(a->value, b->value);
}
HASH_DEFINE(members, struct member, member_is_set, member_hash, member_is_same)

struct reducer_tally {
    uint64_t n; /* values counted */
    union {
        double total; /* SUM, AVG; MIN, MAX: the extreme */
        struct {      /* STDDEV (Welford 1962) */
            double mean, squares;
        } deviation;
        struct {
            struct marks marks;
            uint8_t *sketch; /* SKETCH_N registers; NULL: there are still marks */
        } distinct;
        struct {
            double *numbers;
            size_t n, capacity;
        } quantile;
        struct { /* TOLIST: in the order in which they came */
            struct members members;
            struct datum **order;
            uint32_t n, capacity;
        } list;
        struct {
            struct datum *value, *by; /* a share of each */
            bool any;
        } first;
        struct {
            struct datum **values; /* `samples` places */
            struct random random;
        } sample;
    } of;
};

/* ---- growing, by the pool's count -------------------------------------------------------------------------------- */

static bool marks_grow(struct marks *marks, struct datum_pool *pool)
{
    if (4 * (marks->n + 1) <= 3 * marks->capacity)
        return true;
    uint64_t before = marks->capacity, after = before ? 2 * before : HASH_CAPACITY_MIN;
    if (!datum_pool_take(pool, (size_t)(after - before) * sizeof *marks->places))
        return false;
    if (marks_reserve(marks) && marks->capacity == after)
        return true;
    datum_pool_give(pool, (size_t)(after - before) * sizeof *marks->places);
    return false;
}

static bool members_grow(struct members *members, struct datum_pool *pool)
{
    if (4 * (members->n + 1) <= 3 * members->capacity)
        return true;
    uint64_t before = members->capacity, after = before ? 2 * before : HASH_CAPACITY_MIN;
    if (!datum_pool_take(pool, (size_t)(after - before) * sizeof *members->places))
        return false;
    if (members_reserve(members) && members->capacity == after)
        return true;
    datum_pool_give(pool, (size_t)(after - before) * sizeof *members->places);
    return false;
}

/* ---- distinct values --------------------------------------------------------------------------------------------- */

static void sketch_add(uint8_t *sketch, uint64_t mark)
{
    uint64_t rest = mark << SKETCH_BITS;
    uint8_t rank = rest ? (uint8_t)(__builtin_clzll(rest) + 1) : (uint8_t)(64 - SKETCH_BITS + 1);
    uint8_t *held = &sketch[mark >> (64 - SKETCH_BITS)];
    if (*held < rank)
        *held = rank;
}

static double sketch_count(const uint8_t *sketch)
{
    double sum = 0;
    uint32_t empty = 0;
    for (uint32_t i = 0; i < SKETCH_N; i++) {
        sum += ldexp(1, -sketch[i]);
        empty += sketch[i] == 0;
    }
    double estimate = 0.7213 / (1 + 1.079 / SKETCH_N) * SKETCH_N * SKETCH_N / sum;
    if (estimate <= 2.5 * SKETCH_N && empty > 0)
        estimate = SKETCH_N * log((double)SKETCH_N / empty);
    return round(estimate);
}

/* From marks to registers. */
static bool sketch_begin(struct reducer_tally *tally, struct datum_pool *pool)
{
    struct marks *marks = &tally->of.distinct.marks;
    if (!datum_pool_take(pool, SKETCH_N))
        return false;
    uint8_t *sketch = calloc(SKETCH_N, 1);
    if (!sketch) {
        datum_pool_give(pool, SKETCH_N);
        return false;
    }
    for (uint64_t i = 0; i < marks->capacity; i++)
        if (marks->places[i])
            sketch_add(sketch, marks->places[i]);
    datum_pool_give(pool, (size_t)marks->capacity * sizeof *marks->places);
    free(marks->places);
    *marks = (struct marks){0};
    tally->of.distinct.sketch = sketch;
    return true;
}

static bool add_distinct(const struct reducer *reducer, struct reducer_tally *tally, const struct datum *value,
                         struct datum_pool *pool)
{
    uint64_t mark = datum_hash(value, 0);
    mark += mark == 0;
    if (tally->of.distinct.sketch) {
        sketch_add(tally->of.distinct.sketch, mark);
        return true;
    }
    if (marks_find(&tally->of.distinct.marks, &mark))
        return true;
    if (!marks_grow(&tally->of.distinct.marks, pool) || !marks_add(&tally->of.distinct.marks, mark))
        return false;
    return reducer->kind == REDUCER_COUNT_DISTINCT || tally->of.distinct.marks.n < SKETCH_FROM ||
           sketch_begin(tally, pool);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static bool add_number(const struct reducer *reducer, struct reducer_tally *tally, double number,
                       struct datum_pool *pool)
{
    tally->n++;
    switch (reducer->kind) {
    case REDUCER_SUM:
    case REDUCER_AVG:
        tally->of.total += number;
        return true;
    case REDUCER_MIN:
        tally->of.total = number < tally->of.total ? number : tally->of.total;
        return true;
    case REDUCER_MAX:
        tally->of.total = number > tally->of.total ? number : tally->of.total;
        return true;
    case REDUCER_STDDEV: {
        double before = tally->of.deviation.mean;
        tally->of.deviation.mean += (number - before) / (double)tally->n;
        if (tally->n > 1)
            tally->of.deviation.squares += (number - before) * (number - tally->of.deviation.mean);
        return true;
    }
    default:
        break;
    }
    assert(reducer->kind == REDUCER_QUANTILE);
    if (isnan(number)) /* has no place among the others */
        return true;
    if (!datum_pool_take(pool, sizeof number)) /* what is held; the array may have twice that */
        return false;
    if (!array_reserve(&tally->of.quantile.numbers, &tally->of.quantile.capacity, tally->of.quantile.n + 1)) {
        datum_pool_give(pool, sizeof number);
        return false;
    }
    tally->of.quantile.numbers[tally->of.quantile.n++] = number;
    return true;
}

/* Items of an array count one by one where the spread matters, as in RediSearch. */
static bool add_numbers(const struct reducer *reducer, struct reducer_tally *tally, const struct datum *value,
                        struct datum_pool *pool)
{
    double number;
    bool items = reducer->kind == REDUCER_STDDEV || reducer->kind == REDUCER_QUANTILE;
    if (value->kind != DATUM_ARRAY || !items)
        return !datum_to_number(value, &number) || add_number(reducer, tally, number, pool);
    for (uint32_t i = 0; i < value->n; i++)
        if (datum_to_number(datum_items(value)[i], &number) && !add_number(reducer, tally, number, pool))
            return false;
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool add_member(struct reducer_tally *tally, struct datum *value, struct datum_pool *pool)
{
    struct member member = {value, datum_hash(value, 0)};
    if (members_find(&tally->of.list.members, &member))
        return true;
    if (!members_grow(&tally->of.list.members, pool) || !datum_pool_take(pool, sizeof value))
        return false;
    if (!array_reserve(&tally->of.list.order, &tally->of.list.capacity, tally->of.list.n + 1u) ||
        !members_add(&tally->of.list.members, member)) {
        datum_pool_give(pool, sizeof value);
        return false;
    }
    tally->of.list.order[tally->of.list.n++] = datum_share(value);
    return true;
}

static bool add_to_list(struct reducer_tally *tally, struct datum *value, struct datum_pool *pool)
{
    if (value->kind != DATUM_ARRAY)
        return add_member(tally, value, pool);
    for (uint32_t i = 0; i < value->n; i++)
        if (!add_member(tally, datum_items(value)[i], pool))
            return false;
    return true;
}

/* Whether `by` comes before what is held. What has no value to be ordered by comes last either way. */
static bool is_earlier(const struct reducer *reducer, const struct datum *by, const struct datum *held)
{
    if (!by || by->kind == DATUM_NULL)
        return false;
    if (!held || held->kind == DATUM_NULL)
        return true;
    int order = datum_compare(by, held, NULL);
    return reducer->descending ? order > 0 : order < 0;
}

static void add_first(const struct reducer *reducer, struct reducer_tally *tally, struct datum *value, struct datum *by,
                      struct datum_pool *pool)
{
    if (tally->of.first.any && !(reducer->by && is_earlier(reducer, by, tally->of.first.by)))
        return;
    datum_release(pool, tally->of.first.value);
    datum_release(pool, tally->of.first.by);
    tally->of.first.value = value ? datum_share(value) : NULL;
    tally->of.first.by = by ? datum_share(by) : NULL;
    tally->of.first.any = true;
}

/* Each of n values is among the samples with the same chance (Vitter 1985, algorithm R). */
static void add_sample(const struct reducer *reducer, struct reducer_tally *tally, struct datum *value,
                       struct datum_pool *pool)
{
    uint64_t at = tally->n < reducer->samples ? tally->n : random_below(&tally->of.sample.random, tally->n + 1);
    tally->n++;
    if (at >= reducer->samples)
        return;
    datum_release(pool, tally->of.sample.values[at]);
    tally->of.sample.values[at] = datum_share(value);
}

/* ---- a tally's life ---------------------------------------------------------------------------------------------- */

static size_t sample_bytes(const struct reducer *reducer)
{
    return reducer->kind == REDUCER_RANDOM_SAMPLE ? reducer->samples * sizeof(struct datum *) : 0;
}

struct reducer_tally *reducer_begin(const struct reducer *reducer, uint64_t seed, struct datum_pool *pool)
{
    assert(reducer->samples <= REDUCER_SAMPLE_MAX && !(reducer->quantile < 0) && !(reducer->quantile > 1));
    size_t bytes = sizeof(struct reducer_tally) + sample_bytes(reducer);
    if (!datum_pool_take(pool, bytes))
        return NULL;
    struct reducer_tally *tally = calloc(1, bytes);
    if (!tally) {
        datum_pool_give(pool, bytes);
        return NULL;
    }
    if (reducer->kind == REDUCER_MIN || reducer->kind == REDUCER_MAX)
        tally->of.total = reducer->kind == REDUCER_MIN ? (double)INFINITY : -(double)INFINITY;
    if (reducer->kind == REDUCER_RANDOM_SAMPLE) {
        tally->of.sample.values = (struct datum **)(tally + 1);
        random_init(&tally->of.sample.random, seed);
    }
    return tally;
}

bool reducer_add(const struct reducer *reducer, struct reducer_tally *tally, struct datum *value, struct datum *by,
                 struct datum_pool *pool)
{
    switch (reducer->kind) {
    case REDUCER_COUNT:
        tally->n++;
        return true;
    case REDUCER_COUNT_DISTINCT:
    case REDUCER_COUNT_DISTINCTISH:
        return !value || value->kind == DATUM_NULL || add_distinct(reducer, tally, value, pool);
    case REDUCER_SUM:
    case REDUCER_MIN:
    case REDUCER_MAX:
    case REDUCER_AVG:
    case REDUCER_STDDEV:
    case REDUCER_QUANTILE:
        return !value || add_numbers(reducer, tally, value, pool);
    case REDUCER_TOLIST:
        return !value || add_to_list(tally, value, pool);
    case REDUCER_FIRST_VALUE:
        add_first(reducer, tally, value, by, pool);
        return true;
    case REDUCER_RANDOM_SAMPLE:
        if (value && reducer->samples > 0)
            add_sample(reducer, tally, value, pool);
        return true;
    }
    return true;
}

/* The number that would stand at `rank` if all were sorted (Hoare 1961, "Find"); they are moved. */
static double select_number(double *numbers, size_t n, size_t rank)
{
    struct random random;
    random_init(&random, n);
    for (size_t low = 0, high = n; high - low > 1;) {
        double pivot = numbers[low + random_below(&random, high - low)];
        size_t less = low, equal = low, more = high;
        while (equal < more) {
            double number = numbers[equal];
            if (number < pivot) {
                numbers[equal++] = numbers[less];
                numbers[less++] = number;
            } else if (number > pivot) {
                numbers[equal] = numbers[--more];
                numbers[more] = number;
            } else {
                equal++;
            }
        }
        if (rank >= less && rank < more)
            return pivot;
        if (rank < less)
            high = less;
        else
            low = more;
    }
    return numbers[rank];
}

/* The value that as large a share of the numbers as `quantile` does not exceed: the nearest rank. */
static double quantile_of(const struct reducer *reducer, struct reducer_tally *tally)
{
    size_t n = tally->of.quantile.n;
    if (n == 0)
        return (double)NAN;
    size_t rank = (size_t)ceil(reducer->quantile * (double)n);
    assert(rank <= n);
    return select_number(tally->of.quantile.numbers, n, rank > 0 ? rank - 1 : 0);
}

static struct datum *array_of(struct datum **values, size_t n, struct datum_pool *pool)
{
    struct datum *array = datum_array(pool, n);
    for (size_t i = 0; array && i < n; i++)
        datum_items(array)[i] = datum_share(values[i]);
    return array;
}

struct datum *reducer_result(const struct reducer *reducer, struct reducer_tally *tally, struct datum_pool *pool)
{
    double n = (double)tally->n;
    switch (reducer->kind) {
    case REDUCER_COUNT:
        return datum_number(pool, n);
    case REDUCER_COUNT_DISTINCT:
    case REDUCER_COUNT_DISTINCTISH:
        return datum_number(pool, tally->of.distinct.sketch ? sketch_count(tally->of.distinct.sketch)
                                                            : (double)tally->of.distinct.marks.n);
    case REDUCER_SUM:
        return datum_number(pool, tally->n ? tally->of.total : (double)NAN);
    case REDUCER_AVG:
        return datum_number(pool, tally->n ? tally->of.total / n : (double)NAN);
    case REDUCER_MIN:
    case REDUCER_MAX:
        return datum_number(pool, tally->of.total);
    case REDUCER_STDDEV:
        return datum_number(pool, tally->n > 1 ? sqrt(tally->of.deviation.squares / (n - 1)) : 0);
    case REDUCER_QUANTILE:
        return datum_number(pool, quantile_of(reducer, tally));
    case REDUCER_TOLIST:
        return array_of(tally->of.list.order, tally->of.list.n, pool);
    case REDUCER_FIRST_VALUE:
        return tally->of.first.value ? datum_share(tally->of.first.value) : datum_null(pool);
    case REDUCER_RANDOM_SAMPLE:
        return array_of(tally->of.sample.values, tally->n < reducer->samples ? tally->n : reducer->samples, pool);
    }
    return NULL;
}

static void end_list(struct reducer_tally *tally, struct datum_pool *pool)
{
    for (uint32_t i = 0; i < tally->of.list.n; i++)
        datum_release(pool, tally->of.list.order[i]);
    datum_pool_give(pool, tally->of.list.n * sizeof *tally->of.list.order +
                              (size_t)tally->of.list.members.capacity * sizeof *tally->of.list.members.places);
    array_free_all(tally->of.list.members.places, tally->of.list.order);
}

void reducer_end(const struct reducer *reducer, struct reducer_tally *tally, struct datum_pool *pool)
{
    if (!tally)
        return;
    if (reducer->kind == REDUCER_COUNT_DISTINCT || reducer->kind == REDUCER_COUNT_DISTINCTISH) {
        datum_pool_give(pool, (size_t)tally->of.distinct.marks.capacity * sizeof *tally->of.distinct.marks.places +
                                  (tally->of.distinct.sketch ? SKETCH_N : 0));
        array_free_all(tally->of.distinct.marks.places, tally->of.distinct.sketch);
    } else if (reducer->kind == REDUCER_QUANTILE) {
        datum_pool_give(pool, tally->of.quantile.n * sizeof *tally->of.quantile.numbers);
        free(tally->of.quantile.numbers);
    } else if (reducer->kind == REDUCER_TOLIST) {
        end_list(tally, pool);
    } else if (reducer->kind == REDUCER_FIRST_VALUE) {
        datum_release(pool, tally->of.first.value);
        datum_release(pool, tally->of.first.by);
    } else if (reducer->kind == REDUCER_RANDOM_SAMPLE) {
        for (uint32_t i = 0; i < reducer->samples; i++)
            datum_release(pool, tally->of.sample.values[i]);
    }
    datum_pool_give(pool, sizeof *tally + sample_bytes(reducer));
    free(tally);
}
