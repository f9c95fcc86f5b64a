/*
 * columns_select.c - which rows a filter leaves, by columns.
 *
 * Each part of the filter gives two working sets: rows that match it, and rows that may (a field without values, a list
 * in a test of the whole list, several fields at once). Three-valued logic (Kleene) carries both through AND, OR and
 * NOT, so that what comes out is right whatever is negated: a row that may match stays one that may. In the end the two
 * together are the answer, and it is a superset if the second has any.
 *
 *   AND   yes: both yes; may: both at least may, less those
 *   OR    yes: one of them; may: one of them may, less those
 *   NOT   yes: neither yes nor may; may: the same
 *
 * A row that lacks a required field does not match, whatever else holds: that is taken away last.
 *
 * Working sets are over a universe. Where `within` has few rows it is those, and where one of the conditions that must
 * hold leaves few rows (an equality on a name, a narrow range, what a comparison of sums over several fields leaves of
 * one of them: columns_bound.c), it is those: all else is then asked about them alone.
 * The cost is one of the rows that are left, not of the segment.
 *
 * Of two operands the deeper is worked out first, so that there are never more sets at a time than the logarithm of the
 * filter's length.
 */
#include "index/column/columns_bound.h"
#include "index/column/columns_priv.h"
#include "io/bytes.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#define FEW_SHARE 32u /* rows of a universe: below this part of all */

struct selecting {
    const struct columns *columns;
    const struct filter *filter;
    struct universe universe;
    size_t words;
    const struct row_set *keys; /* NULL: not known */
};

/* Bits by the universe; maybe NULL: none. No row is in both. */
struct outcome {
    uint64_t *yes, *maybe; /* owned */
};

static void outcome_fini(struct outcome *o)
{
    free(o->yes);
    free(o->maybe);
    *o = (struct outcome){0};
}

static uint64_t *empty_bits(const struct selecting *s)
{
    return calloc(s->words + 1, sizeof(uint64_t));
}

static void fill(const struct selecting *s, uint64_t *bits)
{
    memset(bits, 0xff, s->words * sizeof *bits);
    if (s->universe.n % 64)
        bits[s->words - 1] = (1ull << s->universe.n % 64) - 1;
}

/* ---- sets of one test -------------------------------------------------------------------------------------------- */

/* Takes the sets that make up a test: into an outcome, or counts and lists their rows. */
struct taker {
    const struct selecting *s;
    struct outcome *out; /* NULL: only n is counted, and rows filled */
    uint64_t n, limit;   /* rows so far; where there is no outcome it ends with more */
    uint32_t *rows;      /* NULL: only counted */
};

/* 0, QUIRE_ENOMEM, or QUIRE_ELIMIT: more than the limit. */
static int take(struct taker *t, const struct row_set *set, bool maybe)
{
    if (t->out) {
        uint64_t **bits = maybe ? &t->out->maybe : &t->out->yes;
        if (set->n && !*bits)
            *bits = empty_bits(t->s);
        if (set->n && !*bits)
            return QUIRE_ENOMEM;
        if (set->n)
            row_set_add(set, &t->s->universe, *bits);
        return 0;
    }
    assert(t->n <= t->limit);
    if (set->n > t->limit - t->n)
        return QUIRE_ELIMIT;
    if (t->rows)
        row_set_rows(set, t->rows + t->n);
    t->n += set->n;
    return 0;
}

/* The sets of values first .. end - 1. */
static int take_values(struct taker *t, const struct column_table *table, uint32_t first, uint32_t end)
{
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    int rc = 0;
    column_walk_from(&walk, table, first);
    for (uint32_t i = first; rc == 0 && i < end && column_walk_next(&walk, &value, &set); i++)
        rc = take(t, &set, false);
    return rc;
}

/* A mark: nothing, one of the table's, or all. */
static struct column_mark mark_at(const struct column_table *table, uint32_t i)
{
    static const struct row_set none = {.form = SET_RUN};
    if (i == 0)
        return (struct column_mark){0, none};
    return i <= table->n_marks ? table->marks[i - 1] : (struct column_mark){table->n, table->rows};
}

static uint32_t distance(uint32_t a, uint32_t b)
{
    return a > b ? a - b : b - a;
}

static struct column_mark nearest_mark(const struct column_table *table, uint32_t value)
{
    struct column_mark best = mark_at(table, 0);
    for (uint32_t i = 1; i <= table->n_marks + 1; i++) {
        struct column_mark mark = mark_at(table, i);
        if (distance(mark.values, value) < distance(best.values, value))
            best = mark;
    }
    return best;
}

/* The values first .. end - 1 of a table in which a row stands once, from the marks next to both: what lies below the
 * upper one, less what lies below the lower, corrected by the values in between. */
static int take_range(struct taker *t, const struct column_table *table, uint32_t first, uint32_t end)
{
    assert(first < end && end <= table->n);
    struct column_mark low = nearest_mark(table, first), high = nearest_mark(table, end);
    if (!t->out || end - first <= distance(low.values, first) + distance(high.values, end))
        return take_values(t, table, first, end);
    struct outcome more = {0}, less = {0};
    struct taker adding = {.s = t->s, .out = &more}, removing = {.s = t->s, .out = &less};
    more.yes = empty_bits(t->s);
    less.yes = empty_bits(t->s);
    int rc = more.yes && less.yes ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && (rc = take(&adding, &high.rows, false)) == 0 && high.values < end)
        rc = take_values(&adding, table, high.values, end);
    if (rc == 0 && (rc = take(&removing, &low.rows, false)) == 0 && end < high.values)
        rc = take_values(&removing, table, end, high.values);
    if (rc == 0 && low.values < first)
        rc = take_values(&removing, table, low.values, first);
    for (size_t i = 0; rc == 0 && i < t->s->words; i++)
        more.yes[i] &= ~less.yes[i];
    if (rc == 0 && first < low.values)
        rc = take_values(&adding, table, first, low.values);
    for (size_t i = 0; rc == 0 && i < t->s->words; i++)
        t->out->yes[i] |= more.yes[i];
    outcome_fini(&more);
    outcome_fini(&less);
    return rc;
}

/* The verdict of each value, as bits; *matching: the rows of those that match. NULL: no memory. */
static uint64_t *test_values(const struct taker *t, const struct column_table *table, const struct filter_part *part,
                             bool members, uint64_t *matching)
{
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    uint64_t *verdicts = calloc(table->n / 64 + 1, sizeof *verdicts);
    if (!verdicts)
        return NULL;
    *matching = 0;
    column_walk_from(&walk, table, 0);
    for (uint32_t i = 0; column_walk_next(&walk, &value, &set); i++)
        if (members ? filter_test_member(t->s->filter, part, &value) : filter_test(t->s->filter, part, &value)) {
            verdicts[i / 64] |= 1ull << i % 64;
            *matching += set.n;
        }
    return verdicts;
}

/* The sets of values with this verdict. */
static int take_verdict(struct taker *t, const struct column_table *table, const uint64_t *verdicts, bool wanted)
{
    struct column_walk walk;
    struct json_value value;
    struct row_set set;
    int rc = 0;
    column_walk_from(&walk, table, 0);
    for (uint32_t i = 0; rc == 0 && column_walk_next(&walk, &value, &set); i++)
        if ((verdicts[i / 64] >> i % 64 & 1) == wanted)
            rc = take(t, &set, false);
    return rc;
}

/* All rows of a table in which a row stands once, less those of the values that do not match, which are few. */
static int take_most(struct taker *t, const struct column_table *table, const uint64_t *verdicts)
{
    struct outcome all = {.yes = empty_bits(t->s)}, few = {.yes = empty_bits(t->s)};
    struct taker to_all = {.s = t->s, .out = &all}, to_few = {.s = t->s, .out = &few};
    int rc = all.yes && few.yes ? take(&to_all, &table->rows, false) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = take_verdict(&to_few, table, verdicts, false);
    for (size_t i = 0; rc == 0 && i < t->s->words; i++)
        t->out->yes[i] |= all.yes[i] & ~few.yes[i];
    outcome_fini(&all);
    outcome_fini(&few);
    return rc;
}

/* The rows of a table whose values are many are asked about one by one. */
static int take_rows(struct taker *t, const struct column_table *table, const struct filter_part *part)
{
    const struct selecting *s = t->s;
    struct outcome of_table = {.yes = empty_bits(s)}, found = {empty_bits(s), empty_bits(s)};
    struct taker to_table = {.s = s, .out = &of_table};
    bool decided = false;
    int rc = of_table.yes && found.yes && found.maybe ? take(&to_table, &table->rows, false) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = columns_select_mixed(s->columns, s->filter, part, &s->universe, found.yes, found.maybe, &decided);
    assert(rc < 0 || decided); /* there is a column */
    for (size_t i = 0; rc == 0 && i < s->words; i++)
        t->out->yes[i] |= found.yes[i] & of_table.yes[i];
    outcome_fini(&of_table);
    outcome_fini(&found);
    return rc;
}

/* Each value is asked about; those that were left out of the table may match. */
static int take_tested(struct taker *t, const struct column_table *table, const struct filter_part *part, bool members)
{
    uint64_t matching;
    if (table->n == 0)
        return take(t, &table->rows, true);
    if (t->out && !members && table->n > COLUMN_TESTS_MAX && !table->texts)
        return take_rows(t, table, part);
    uint64_t *verdicts = test_values(t, table, part, members, &matching);
    if (!verdicts)
        return QUIRE_ENOMEM;
    bool most = t->out && !members && matching > table->rows.n / 2;
    int rc = most ? take_most(t, table, verdicts) : take_verdict(t, table, verdicts, true);
    free(verdicts);
    return rc;
}

static int take_numbers(struct taker *t, const struct column_table *table, const struct filter_part *part)
{
    int rc = 0;
    if (table->rows.n == 0)
        return 0;
    if (!part->numbers_known)
        return take_tested(t, table, part, false);
    if (table->n == 0 && part->n_intervals)
        return take(t, &table->rows, true);
    for (uint32_t i = 0; rc == 0 && i < part->n_intervals; i++) {
        const struct filter_interval *interval = filter_interval_of(t->s->filter, part->first_interval + i);
        uint32_t first = column_table_bound(table, interval->low, interval->low_open);
        uint32_t end = column_table_bound(table, interval->high, !interval->high_open);
        if (first < end)
            rc = take_range(t, table, first, end);
    }
    return rc;
}

static int take_text(struct taker *t, const struct column_table *table, uint32_t text)
{
    struct row_set set;
    uint32_t bytes;
    const char *wanted = filter_text_of(t->s->filter, text, &bytes);
    uint32_t i = column_table_find_text(table, wanted, bytes);
    if (i == table->n)
        return 0;
    column_table_set(table, i, &set);
    return take(t, &set, false);
}

static int take_texts(struct taker *t, const struct column_table *table, const struct filter_part *part)
{
    int rc = 0;
    if (table->rows.n == 0)
        return 0;
    if (!part->strings_listed)
        return take_tested(t, table, part, false);
    if (table->n == 0 && part->n_texts)
        return take(t, &table->rows, true);
    for (uint32_t i = 0; rc == 0 && i < part->n_texts; i++)
        rc = take_text(t, table, part->first_text + i);
    return rc;
}

/* Rows with a list that has the member. */
static int take_members(struct taker *t, const struct column *c, const struct filter_part *part)
{
    const struct column_table *numbers = &c->tables[TABLE_MEMBER_NUMBERS], *texts = &c->tables[TABLE_MEMBER_TEXTS];
    int rc = take(t, &c->odd, true);
    if (rc == 0 && numbers->rows.n && numbers->n == 0)
        rc = take(t, &numbers->rows, true);
    else if (rc == 0) {
        uint32_t first = column_table_bound(numbers, part->member, false),
                 end = column_table_bound(numbers, part->member, true);
        rc = take_values(t, numbers, first, end);
    }
    if (rc < 0 || texts->rows.n == 0)
        return rc;
    if (part->member_is_number)
        return take_tested(t, texts, part, true);
    return texts->n ? take_text(t, texts, part->first_text) : take(t, &texts->rows, true);
}

static int take_lists(struct taker *t, const struct column *c, const struct filter_part *part)
{
    const struct json_value empty = {.kind = VALUE_LIST, .text = ""};
    if (c->lists.n == 0)
        return 0;
    if (part->lists_alike)
        return filter_test(t->s->filter, part, &empty) ? take(t, &c->lists, false) : 0;
    return part->is_member ? take_members(t, c, part) : take(t, &c->lists, true);
}

static int take_test(struct taker *t, const struct column *c, const struct filter_part *part)
{
    const struct json_value null = {.kind = VALUE_NULL};
    int rc = take_numbers(t, &c->tables[TABLE_NUMBERS], part);
    if (rc == 0)
        rc = take_texts(t, &c->tables[TABLE_TEXTS], part);
    if (rc == 0)
        rc = take_lists(t, c, part);
    if (rc == 0 && c->nulls.n && filter_test(t->s->filter, part, &null))
        rc = take(t, &c->nulls, false);
    return rc;
}

/* Rows that have the field as what a test can be made of. */
static int take_present(struct taker *t, const struct column *c, bool nulls, bool objects)
{
    int rc = take(t, &c->tables[TABLE_NUMBERS].rows, false);
    if (rc == 0)
        rc = take(t, &c->tables[TABLE_TEXTS].rows, false);
    if (rc == 0)
        rc = take(t, &c->lists, false);
    if (rc == 0 && nulls)
        rc = take(t, &c->nulls, false);
    return rc == 0 && objects ? take(t, &c->objects, false) : rc;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static const struct column *column_of(const struct selecting *s, uint32_t field)
{
    uint32_t bytes;
    bool required;
    const char *name = filter_field(s->filter, field, &bytes, &required);
    return columns_find(s->columns, name, bytes);
}

/* What cannot be told. */
static int all_maybe(const struct selecting *s, struct outcome *out)
{
    out->maybe = empty_bits(s);
    if (!out->maybe)
        return QUIRE_ENOMEM;
    fill(s, out->maybe);
    return 0;
}

/* Of one field: by its column. */
static int select_field(const struct selecting *s, const struct filter_part *part, struct outcome *out)
{
    struct taker taker = {.s = s, .out = out};
    const struct column *c = column_of(s, part->field);
    if (!c)
        return s->columns->complete ? 0 : all_maybe(s, out);
    if (part->kind == FILTER_EXISTS)
        return take_present(&taker, c, false, true);
    if (part->kind == FILTER_NULL)
        return take(&taker, &c->nulls, false);
    int rc = take_test(&taker, c, part);
    for (size_t i = 0; rc == 0 && out->maybe && i < s->words; i++) /* a list may have the member by two ways */
        out->maybe[i] &= ~out->yes[i];
    return rc;
}

static int select_leaf(const struct selecting *s, const struct filter_part *part, struct outcome *out)
{
    struct taker taker = {.s = s, .out = out};
    bool decided = false;
    int rc;
    assert(!out->yes && !out->maybe);
    out->yes = empty_bits(s);
    if (!out->yes)
        return QUIRE_ENOMEM;
    switch (part->kind) {
    case FILTER_ALWAYS:
        fill(s, out->yes);
        return 0;
    case FILTER_NEVER:
        return 0;
    case FILTER_KEYS:
        return s->keys ? take(&taker, s->keys, false) : all_maybe(s, out);
    case FILTER_TEST:
    case FILTER_EXISTS:
    case FILTER_NULL:
        return select_field(s, part, out);
    default: /* several fields */
        if (!(out->maybe = empty_bits(s)))
            return QUIRE_ENOMEM;
        rc = columns_select_mixed(s->columns, s->filter, part, &s->universe, out->yes, out->maybe, &decided);
        if (rc == 0 && !decided)
            fill(s, out->maybe);
        return rc;
    }
}

static uint64_t word_of(const uint64_t *bits, size_t i)
{
    return bits ? bits[i] : 0;
}

static int combine(const struct selecting *s, bool both, struct outcome *a, const struct outcome *b)
{
    if (!a->maybe && b->maybe && !(a->maybe = empty_bits(s)))
        return QUIRE_ENOMEM;
    assert(a->yes && b->yes);
    for (size_t i = 0; i < s->words; i++) {
        uint64_t x = a->yes[i], x_maybe = word_of(a->maybe, i), y = b->yes[i], y_maybe = word_of(b->maybe, i);
        a->yes[i] = both ? x & y : x | y;
        uint64_t maybe = both ? (x | x_maybe) & (y | y_maybe) : x_maybe | y_maybe;
        if (a->maybe)
            a->maybe[i] = maybe & ~a->yes[i];
    }
    return 0;
}

static void negate(const struct selecting *s, struct outcome *a)
{
    for (size_t i = 0; i < s->words; i++)
        a->yes[i] = ~(a->yes[i] | word_of(a->maybe, i));
    if (s->universe.n % 64)
        a->yes[s->words - 1] &= (1ull << s->universe.n % 64) - 1;
}

static uint32_t depth_of(const struct filter_part *part)
{
    uint32_t left = part->left ? depth_of(part->left) : 0, right = part->right ? depth_of(part->right) : 0;
    return 1 + (left > right ? left : right);
}

static int select_part(const struct selecting *s, const struct filter_part *part, struct outcome *out)
{
    struct outcome other = {0};
    if (part->kind == FILTER_NOT) {
        int rc = select_part(s, part->left, out);
        if (rc == 0)
            negate(s, out);
        return rc;
    }
    if (part->kind != FILTER_AND && part->kind != FILTER_OR)
        return select_leaf(s, part, out);
    bool left_first = depth_of(part->left) >= depth_of(part->right);
    int rc = select_part(s, left_first ? part->left : part->right, out);
    if (rc == 0)
        rc = select_part(s, left_first ? part->right : part->left, &other);
    if (rc == 0)
        rc = combine(s, part->kind == FILTER_AND, out, &other);
    outcome_fini(&other);
    return rc;
}

/* Takes away what lacks a required field. */
static int require_fields(const struct selecting *s, struct outcome *out)
{
    int rc = 0;
    for (uint32_t field = 0; rc == 0 && field < filter_n_fields(s->filter); field++) {
        uint32_t bytes;
        bool required;
        const char *name = filter_field(s->filter, field, &bytes, &required);
        const struct column *c = columns_find(s->columns, name, bytes);
        struct outcome present = {0};
        struct taker taker = {.s = s, .out = &present};
        if (!required)
            continue;
        rc = select_leaf(s, &(struct filter_part){.kind = FILTER_NEVER}, &present);
        if (rc == 0)
            rc = c ? take_present(&taker, c, true, false) : s->columns->complete ? 0 : all_maybe(s, &present);
        if (rc == 0)
            rc = combine(s, true, out, &present);
        outcome_fini(&present);
    }
    return rc;
}

/* ---- the universe ------------------------------------------------------------------------------------------------ */

/* Another's Roaring bitmap as a stored set; *bytes is the caller's to free. QUIRE_EINVALID: it has rows that the
 * segment has not. */
static int stored(const roaring_bitmap_t *rows, uint64_t n_rows, struct row_set *out, char **bytes)
{
    size_t n_bytes = roaring_bitmap_portable_size_in_bytes(rows);
    uint64_t n = roaring_bitmap_get_cardinality(rows);
    *bytes = malloc(n_bytes + 1);
    if (!*bytes)
        return QUIRE_ENOMEM;
    roaring_bitmap_portable_serialize(rows, *bytes);
    *out = (struct row_set){.form = n ? SET_ROARING : SET_RUN, .n = (uint32_t)n};
    out->at = (const uint8_t *)*bytes;
    out->end = out->at + n_bytes;
    return n > UINT32_MAX || !row_set_is_valid(out, n_rows) ? QUIRE_EINVALID : 0;
}

/* What must hold and leaves few rows: a test, or the bound that a comparison of several fields sets to one. */
struct narrowing {
    const struct filter_part *part; /* NULL: nothing */
    struct columns_bound bound;     /* of a MIXED */
    uint64_t n;                     /* rows, at most */
};

static int take_narrowing(struct taker *t, const struct narrowing *by)
{
    if (by->part->kind == FILTER_MIXED)
        return take_values(t, by->bound.table, by->bound.first, by->bound.end);
    return take_test(t, column_of(t->s, by->part->field), by->part);
}

/* `by` if that is no more than the best one so far, which it becomes. */
static void narrow_by(const struct selecting *s, struct narrowing by, struct narrowing *best)
{
    struct taker counter = {.s = s, .limit = best->n};
    if (take_narrowing(&counter, &by) < 0)
        return;
    *best = by;
    best->n = counter.n;
}

static void narrow_by_bounds(const struct selecting *s, const struct filter_part *part, struct narrowing *best)
{
    struct columns_bound bounds[FILTER_FIELDS_MAX];
    uint32_t n = columns_bound_sums(s->columns, s->filter, part, bounds);
    for (uint32_t i = 0; i < n; i++)
        narrow_by(s, (struct narrowing){.part = part, .bound = bounds[i]}, best);
}

/* The conditions that must hold: *best becomes the one that leaves the fewest rows, if those are no more than its n. */
static void find_fewest(const struct selecting *s, const struct filter_part *part, struct narrowing *best)
{
    bool is_cheap = part->kind == FILTER_TEST && part->numbers_known && part->strings_listed;
    if (part->kind == FILTER_AND) {
        find_fewest(s, part->left, best);
        find_fewest(s, part->right, best);
    } else if (is_cheap && column_of(s, part->field)) {
        narrow_by(s, (struct narrowing){.part = part}, best);
    } else if (part->kind == FILTER_MIXED) {
        narrow_by_bounds(s, part, best);
    }
}

/* Universe of the rows that a condition leaves, or may; *rows: owned by the caller. */
static int narrow_to(struct selecting *s, const struct narrowing *by, uint32_t **rows)
{
    struct taker lister = {.s = s, .limit = by->n, .rows = malloc(sizeof(uint32_t) * (by->n + 1))};
    if (!lister.rows)
        return QUIRE_ENOMEM;
    int rc = take_narrowing(&lister, by);
    if (rc < 0) {
        free(lister.rows);
        return rc;
    }
    *rows = lister.rows;
    s->universe = (struct universe){lister.rows, row_set_order(lister.rows, lister.n)};
    return 0;
}

/* What the filter can leave at most: `within`, or the rows of one condition, where those are few; otherwise all. */
static int choose_universe(struct selecting *s, const struct row_set *within, uint32_t **rows)
{
    uint64_t few = s->columns->n_rows / FEW_SHARE;
    struct narrowing best = {.n = within && within->n < few ? within->n : few};
    if (best.n > 0)
        find_fewest(s, filter_root(s->filter), &best);
    s->universe = (struct universe){NULL, s->columns->n_rows};
    if (best.part)
        return narrow_to(s, &best, rows);
    if (!within || within->n > few)
        return 0;
    *rows = malloc(sizeof **rows * (within->n + 1ull));
    if (!*rows)
        return QUIRE_ENOMEM;
    row_set_rows(within, *rows);
    s->universe = (struct universe){*rows, within->n};
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int keep_within(const struct selecting *s, const struct row_set *within, struct outcome *out)
{
    uint64_t *bits = empty_bits(s);
    if (!bits)
        return QUIRE_ENOMEM;
    row_set_add(within, &s->universe, bits);
    for (size_t i = 0; i < s->words; i++) {
        out->yes[i] &= bits[i];
        if (out->maybe)
            out->maybe[i] &= bits[i];
    }
    free(bits);
    return 0;
}

/* The answer as a set of rows; the universe's own rows are used up. */
static int give(const struct selecting *s, struct outcome *result, uint32_t *rows, roaring_bitmap_t **out,
                bool *residual)
{
    bool any = false;
    uint64_t n = 0;
    for (size_t i = 0; result->maybe && i < s->words; i++) {
        any |= result->maybe[i] != 0;
        result->yes[i] |= result->maybe[i];
    }
    for (size_t i = 0; rows && i < s->words; i++)
        for (uint64_t word = result->yes[i]; word; word &= word - 1)
            rows[n++] = rows[64 * i + (unsigned)__builtin_ctzll(word)];
    assert(!rows || (rows == s->universe.rows && n <= s->universe.n));
    struct row_view view = {.rows = rows, .bits = result->yes, .n = rows ? n : s->words};
    int rc = row_view_roaring(&view, out);
    if (rc == 0)
        *residual = any;
    return rc;
}

int columns_select(const struct columns *columns, const struct filter *filter, const roaring_bitmap_t *within,
                   const roaring_bitmap_t *keys, roaring_bitmap_t **out, bool *residual)
{
    struct selecting s = {.columns = columns, .filter = filter};
    struct row_set within_set, keys_set;
    struct outcome result = {0};
    char *within_bytes = NULL, *keys_bytes = NULL;
    uint32_t *rows = NULL;
    int rc = within ? stored(within, columns->n_rows, &within_set, &within_bytes) : 0;
    if (rc == 0 && keys)
        rc = stored(keys, columns->n_rows, &keys_set, &keys_bytes);
    s.keys = keys ? &keys_set : NULL;
    if (rc == 0)
        rc = choose_universe(&s, within ? &within_set : NULL, &rows);
    s.words = row_set_words(&s.universe);
    if (rc == 0)
        rc = select_part(&s, filter_root(filter), &result);
    if (rc == 0)
        rc = require_fields(&s, &result);
    if (rc == 0 && within)
        rc = keep_within(&s, &within_set, &result);
    if (rc == 0)
        rc = give(&s, &result, rows, out, residual);
    outcome_fini(&result);
    free(within_bytes);
    free(keys_bytes);
    free(rows);
    return rc;
}
