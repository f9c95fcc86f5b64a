/*
 * test_filter_random.c - random FILTER expressions over random attributes against a second evaluator.
 *
 * It shares nothing with the first: it walks the tree that the generator made, and knows values as the generator drew
 * them, not as JSON. The same rows are decided by the parts (tests/filter_by_parts.h) and must agree wherever those can
 * tell, and all at once by filter_rows_match.
 */
#include "index/attribute/filter_priv.h"
#include "index/attribute/filter_rows.h"
#include "io/random.h"
#include "tests/filter_by_parts.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct filter *compile(const char *text)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    int rc = filter_compile(text, strlen(text), NULL, &filter, &err);
    if (rc)
        fail_msg("%s: %s", text, err.message);
    return filter;
}

static bool matches_both(const struct filter *filter, const struct attribute_schema *schema, const char *json,
                         uint32_t json_bytes, const char *key, const char *text)
{
    struct parts_row row = {filter, schema, json, json_bytes, key, (uint32_t)strlen(key)};
    bool found = filter_matches(filter, json, json_bytes, key, (uint32_t)strlen(key));
    enum verdict verdict = parts_decide(&row);
    if (verdict != PARTS_UNKNOWN && verdict != (found ? PARTS_YES : PARTS_NO))
        fail_msg("%s of %.*s: matches %d, by parts %d", text, (int)json_bytes, json, found, verdict);
    return found;
}

enum drawn_kind { DRAWN_MISSING, DRAWN_NULL, DRAWN_BOOL, DRAWN_NUMBER, DRAWN_STRING, DRAWN_LIST, DRAWN_OBJECT };

struct drawn {
    enum drawn_kind kind;
    double number;
    const char *text;
    uint32_t n_members;
    const struct drawn *members;
};

/* o: or, a: and, !: not, = n < l > g: comparisons (l: <=, g: >=), i: in, p: prefix, + - * / %, ^: power,
 * F: field, E: exists, K: key, C: constant */
struct tree {
    char op;
    const struct tree *left, *right;
    uint32_t field;
    struct drawn constant;
};

enum { DRAWN_FIELDS = 3, POOL_TREES = 256, POOL_MEMBERS = 256 };

struct draw {
    struct random random;
    struct tree trees[POOL_TREES];
    uint32_t n_trees;
    struct drawn members[POOL_MEMBERS];
    uint32_t n_members;
};

static uint32_t below(struct draw *d, uint32_t n)
{
    return (uint32_t)random_below(&d->random, n);
}

static struct drawn draw_scalar(struct draw *d)
{
    static const char *const texts[] = {"",     "a",        "ab", "b",   "abc",  "5",   "0",  "1.5",
                                        "x\"y", "\xc3\xa9", " 7", "5.0", "0x10", "nan", "\\", "a\nb"};
    static const double numbers[] = {0, 1, 5, -2, 1.5, 7, 1e300, 2, 16, 0.1};
    if (below(d, 2))
        return (struct drawn){.kind = DRAWN_STRING, .text = texts[below(d, sizeof texts / sizeof *texts)]};
    return (struct drawn){.kind = DRAWN_NUMBER, .number = numbers[below(d, sizeof numbers / sizeof *numbers)]};
}

/* Scalars of the language, or of JSON: also null, booleans and lists in lists. */
static struct drawn draw_list(struct draw *d, bool of_json, uint32_t depth)
{
    struct drawn list = {.kind = DRAWN_LIST, .n_members = below(d, 4)};
    struct drawn found[4];
    for (uint32_t i = 0; i < list.n_members; i++) {
        uint32_t kind = of_json ? below(d, 8) : 7;
        found[i] = kind == 0                ? (struct drawn){.kind = DRAWN_NULL}
                   : kind == 1              ? (struct drawn){.kind = DRAWN_BOOL, .number = below(d, 2)}
                   : kind == 2 && depth < 2 ? draw_list(d, true, depth + 1)
                                            : draw_scalar(d);
    }
    if (d->n_members + list.n_members > POOL_MEMBERS)
        list.n_members = 0;
    list.members = d->members + d->n_members;
    for (uint32_t i = 0; i < list.n_members; i++)
        d->members[d->n_members++] = found[i];
    return list;
}

static struct drawn draw_value(struct draw *d)
{
    switch (below(d, 12)) {
    case 0:
        return (struct drawn){.kind = DRAWN_MISSING};
    case 1:
        return (struct drawn){.kind = DRAWN_NULL};
    case 2:
        return (struct drawn){.kind = DRAWN_BOOL, .number = below(d, 2)};
    case 3:
        return below(d, 3) ? draw_scalar(d) : (struct drawn){.kind = DRAWN_OBJECT};
    case 4:
    case 5:
        return draw_list(d, true, 0);
    default:
        return draw_scalar(d);
    }
}

static const struct tree *draw_tree(struct draw *d, uint32_t depth, uint32_t n_fields)
{
    static const char operations[] = "ooooaaaa!!!!====nn<<ll>>ggiiiipp+-*/%^";
    struct tree *tree = &d->trees[d->n_trees++];
    bool leaf = depth == 0 || d->n_trees > POOL_TREES / 2 || below(d, 5) == 0;
    *tree = (struct tree){.op = leaf ? 'C' : operations[below(d, sizeof operations - 1)], .field = below(d, n_fields)};
    if (!leaf) {
        tree->left = draw_tree(d, depth - 1, n_fields);
        tree->right = tree->op == '!' ? NULL : draw_tree(d, depth - 1, n_fields);
        return tree;
    }
    uint32_t kind = below(d, 16);
    if (kind < 8) {
        tree->op = 'F';
    } else if (kind == 8) {
        tree->op = below(d, 3) ? 'E' : 'K';
    } else if (kind == 9) {
        tree->constant.kind = below(d, 2) ? DRAWN_NULL : DRAWN_BOOL;
    } else {
        tree->constant = kind < 12 ? draw_list(d, false, 0) : draw_scalar(d);
    }
    return tree;
}

/* ---- its meaning ---- */

struct naive {
    const struct drawn *fields;
    const char *key;
    bool failed; /* a field is not there */
};

static double naive_number(const struct drawn *x)
{
    char *end;
    double value;
    if (x->kind == DRAWN_NUMBER || x->kind == DRAWN_BOOL)
        return x->number;
    if (x->kind != DRAWN_STRING)
        return 0;
    value = strtod(x->text, &end);
    return *end ? 0 : value;
}

static bool naive_truth(const struct drawn *x)
{
    switch (x->kind) {
    case DRAWN_NUMBER:
    case DRAWN_BOOL:
        return x->number != 0;
    case DRAWN_STRING:
        return x->text[0] != 0;
    default:
        return x->kind == DRAWN_LIST;
    }
}

static bool naive_same(const struct drawn *a, const struct drawn *b)
{
    if (a->kind == DRAWN_STRING && b->kind == DRAWN_STRING)
        return strcmp(a->text, b->text) == 0;
    if (a->kind == DRAWN_NULL || b->kind == DRAWN_NULL)
        return a->kind == b->kind;
    return naive_number(a) == naive_number(b);
}

static bool naive_in(const struct drawn *a, const struct drawn *b)
{
    if (b->kind == DRAWN_STRING)
        return a->kind == DRAWN_STRING && strstr(b->text, a->text);
    for (uint32_t i = 0; b->kind == DRAWN_LIST && i < b->n_members; i++)
        if (naive_same(a, &b->members[i]))
            return true;
    return false;
}

static double naive_operation(char op, const struct drawn *a, const struct drawn *b)
{
    double x = naive_number(a), y = naive_number(b);
    bool texts = a->kind == DRAWN_STRING && b->kind == DRAWN_STRING;
    switch (op) {
    case 'o':
        return naive_truth(a) || naive_truth(b);
    case 'a':
        return naive_truth(a) && naive_truth(b);
    case '=':
        return naive_same(a, b);
    case 'n':
        return !naive_same(a, b);
    case '<':
        return x < y;
    case 'l':
        return x <= y;
    case '>':
        return x > y;
    case 'g':
        return x >= y;
    case 'i':
        return naive_in(a, b);
    case 'p':
        return texts && strncmp(a->text, b->text, strlen(b->text)) == 0;
    case '+':
        return x + y;
    case '-':
        return x - y;
    case '*':
        return x * y;
    case '/':
        return x / y;
    case '%':
        return fmod(x, y);
    default:
        return pow(x, y);
    }
}

static struct drawn naive_value(struct naive *n, const struct tree *tree)
{
    const struct drawn *field = &n->fields[tree->field];
    struct drawn left, right, out = {.kind = DRAWN_NUMBER};
    switch (tree->op) {
    case 'C':
        return tree->constant;
    case 'K':
        return (struct drawn){.kind = DRAWN_STRING, .text = n->key};
    case 'E':
        out.number = field->kind != DRAWN_MISSING && field->kind != DRAWN_NULL;
        return out;
    case 'F':
        n->failed |= field->kind == DRAWN_MISSING || field->kind == DRAWN_OBJECT;
        return *field;
    case '!':
        left = naive_value(n, tree->left);
        out.number = !naive_truth(&left);
        return out;
    default:
        left = naive_value(n, tree->left);
        right = naive_value(n, tree->right);
        out.number = naive_operation(tree->op, &left, &right);
        return out;
    }
}

static bool naive_matches(const struct tree *tree, const struct drawn *fields, const char *key)
{
    struct naive naive = {.fields = fields, .key = key};
    struct drawn value = naive_value(&naive, tree);
    return !naive.failed && naive_truth(&value);
}

/* ---- its text ---- */

static void put(char *out, size_t room, const char *text)
{
    size_t n = strlen(out);
    assert_true(n + strlen(text) < room);
    strcpy(out + n, text);
}

/* Between quotes, with escapes where they must be, and sometimes where they need not. */
static void put_text(struct draw *d, char *out, size_t room, const char *text, char quote)
{
    char piece[8] = {quote};
    put(out, room, piece);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == 0xc3 && below(d, 2)) {
            put(out, room, "\\u00e9");
            text++;
            continue;
        }
        bool must = c == (unsigned char)quote || c == '\\' || c < ' ';
        if (c < 0x80 && (below(d, 6) == 0 || c < ' '))
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)c);
        else
            snprintf(piece, sizeof piece, "%s%c", must ? "\\" : "", *text);
        put(out, room, piece);
    }
    snprintf(piece, sizeof piece, "%c", quote);
    put(out, room, piece);
}

static void put_value(struct draw *d, char *out, size_t room, const struct drawn *value, bool json)
{
    char piece[40];
    switch (value->kind) {
    case DRAWN_NULL:
        put(out, room, "null");
        return;
    case DRAWN_BOOL:
        put(out, room, value->number != 0 ? "true" : "false");
        return;
    case DRAWN_NUMBER:
        snprintf(piece, sizeof piece, below(d, 2) ? "%.17g" : "%g", value->number);
        put(out, room, piece);
        return;
    case DRAWN_STRING:
        put_text(d, out, room, value->text, json || below(d, 2) ? '"' : '\'');
        return;
    case DRAWN_LIST:
        put(out, room, "[");
        for (uint32_t i = 0; i < value->n_members; i++) {
            put(out, room, i ? below(d, 2) ? ", " : "," : "");
            put_value(d, out, room, &value->members[i], json);
        }
        put(out, room, "]");
        return;
    default:
        put(out, room, "{\"in\":[1,\"}\"]}");
    }
}

static void put_row(struct draw *d, char *out, size_t room, const struct drawn *fields)
{
    bool any = false;
    out[0] = 0;
    put(out, room, "{");
    for (uint32_t i = 0; i < DRAWN_FIELDS; i++) {
        char name[24];
        if (fields[i].kind == DRAWN_MISSING)
            continue;
        snprintf(name, sizeof name, below(d, 8) ? "%s\"%c\":" : "%s \"\\u00%x\" : ", any ? "," : "", 'a' + (int)i);
        put(out, room, name);
        put_value(d, out, room, &fields[i], true);
        any = true;
    }
    put(out, room, "}");
}

static int strength(char op)
{
    static const char *const levels[] = {"o", "a", "=n<l>gip", "+-", "*/%", "^", "!"};
    for (int i = 0; i < 7; i++)
        if (strchr(levels[i], op))
            return i;
    return 7;
}

static void put_operator(struct draw *d, char *out, size_t room, char op)
{
    static const char codes[] = "oa=n<l>gip+-*/%^";
    static const char *const words[] = {
        "or", "and", "==", "!=", "<", "<=", ">", ">=", "in", "prefix", "+", "-", "*", "/", "%", "**"};
    const char *word = words[strchr(codes, op) - codes];
    if (op == 'o' && below(d, 2))
        word = "||";
    if (op == 'a' && below(d, 2))
        word = "&&";
    bool tight = below(d, 4) == 0 && op != '-' && (word[0] < 'a' || word[0] > 'z');
    put(out, room, tight ? "" : below(d, 5) ? " " : "\t\n");
    put(out, room, word);
    put(out, room, tight ? "" : " ");
}

static void put_tree(struct draw *d, char *out, size_t room, const struct tree *tree);

/* Parentheses where the order of operators asks for them, and sometimes where it does not. */
static void put_under(struct draw *d, char *out, size_t room, const struct tree *tree, bool needed)
{
    bool parentheses = needed || below(d, 8) == 0;
    put(out, room, parentheses ? "(" : "");
    put_tree(d, out, room, tree);
    put(out, room, parentheses ? ")" : "");
}

static void put_tree(struct draw *d, char *out, size_t room, const struct tree *tree)
{
    char name[16];
    int mine = strength(tree->op);
    switch (tree->op) {
    case 'C':
        put_value(d, out, room, &tree->constant, false);
        return;
    case 'K':
        put(out, room, "key");
        return;
    case 'E':
    case 'F':
        snprintf(name, sizeof name, "%s.%c", tree->op == 'E' ? "exists " : "", 'a' + (int)tree->field);
        put(out, room, name);
        return;
    case '!':
        put(out, room, below(d, 2) ? "!" : "not ");
        put_under(d, out, room, tree->left, strength(tree->left->op) < mine);
        return;
    default:
        put_under(d, out, room, tree->left, strength(tree->left->op) < mine + (tree->op == '^'));
        put_operator(d, out, room, tree->op);
        put_under(d, out, room, tree->right, strength(tree->right->op) < mine + (tree->op != '^'));
    }
}

static uint32_t count_mixed(const struct filter_part *part)
{
    return part ? (part->kind == FILTER_MIXED) + count_mixed(part->left) + count_mixed(part->right) : 0;
}

/* ---- many rows at once ---- */

enum { ROWS = 12, CHUNK_ROWS = 137 };

/* Rows with what is expected of them; a chunk has them over and over. */
struct drawn_rows {
    char json[ROWS][2000];
    const char *keys[ROWS];
    bool expected[ROWS];
    struct json_value values[FILTER_FIELDS_MAX][ROWS];
    double numbers[FILTER_FIELDS_MAX][CHUNK_ROWS];
    uint8_t kinds[FILTER_FIELDS_MAX][CHUNK_ROWS];
};

static void give_value(void *context, uint32_t field, uint32_t row, struct json_value *out)
{
    const struct drawn_rows *rows = context;
    const char *key = rows->keys[row % ROWS];
    if (field == FILTER_FIELD_KEY) {
        *out = (struct json_value){.kind = VALUE_STRING, .text = key, .bytes = (uint32_t)strlen(key)};
        return;
    }
    *out = rows->values[field][row % ROWS];
    assert_true(out->kind == VALUE_STRING || out->kind == VALUE_LIST); /* the others are known */
}

/* What a column knows of its numbers. */
static double whole_max_of(const double *numbers, uint32_t n)
{
    double most = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (numbers[i] != trunc(numbers[i]))
            return 0;
        most = fmax(most, fabs(numbers[i]));
    }
    return most;
}

static void check_rows(const struct filter *filter, struct drawn_rows *rows, const char *text)
{
    struct filter_values fields[FILTER_FIELDS_MAX];
    uint64_t bits[CHUNK_ROWS / 64 + 1];
    for (uint32_t f = 0; f < filter_n_fields(filter); f++) {
        uint32_t bytes;
        bool required, plain = true;
        const char *name = filter_field(filter, f, &bytes, &required);
        for (uint32_t row = 0; row < ROWS; row++)
            rows->values[f][row] = json_one(rows->json[row], strlen(rows->json[row]), name, bytes);
        for (uint32_t i = 0; i < CHUNK_ROWS; i++) {
            const struct json_value *value = &rows->values[f][i % ROWS];
            rows->numbers[f][i] = filter_number_of(value);
            rows->kinds[f][i] = (uint8_t)value->kind;
            plain = plain && (value->kind == VALUE_NUMBER || value->kind == VALUE_BOOL);
        }
        fields[f] = (struct filter_values){.numbers = rows->numbers[f], .kinds = plain ? NULL : rows->kinds[f]};
        if (plain)
            fields[f].whole_max = whole_max_of(rows->numbers[f], CHUNK_ROWS);
    }
    struct filter_chunk chunk = {.n = CHUNK_ROWS, .fields = fields, .value = give_value, .context = rows};
    struct filter_rows *run = filter_rows_create(filter, NULL);
    assert_non_null(run);
    filter_rows_match(run, &chunk, bits);
    for (uint32_t i = 0; i < CHUNK_ROWS; i++)
        if ((bits[i / 64] >> i % 64 & 1) != rows->expected[i % ROWS])
            fail_msg("%s of %s, key %s, among many rows: not %d", text, rows->json[i % ROWS], rows->keys[i % ROWS],
                     rows->expected[i % ROWS]);
    assert_int_equal(bits[CHUNK_ROWS / 64] >> CHUNK_ROWS % 64, 0);
    filter_rows_free(run);
}

static void test_random_expressions(void **state)
{
    enum { EXPRESSIONS = SANITIZED ? 4000 : 30000 };
    static struct draw d;
    static struct drawn_rows rows;
    uint32_t n_true = 0, n_pure = 0;
    (void)state;
    random_init(&d.random, 2026);
    for (uint32_t i = 0; i < EXPRESSIONS; i++) {
        char text[8000] = "";
        d.n_trees = d.n_members = 0;
        const struct tree *tree = draw_tree(&d, 1 + below(&d, 6), 1 + below(&d, DRAWN_FIELDS));
        put_tree(&d, text, sizeof text, tree);
        struct filter *filter = compile(text);
        n_pure += count_mixed(filter_root(filter)) == 0;
        uint32_t n_members = d.n_members;
        for (uint32_t row = 0; row < ROWS; row++) {
            static const char *const keys[] = {"a", "ab", "", "5"};
            const char *key = rows.keys[row] = keys[below(&d, 4)];
            char *json = rows.json[row];
            struct drawn fields[DRAWN_FIELDS];
            d.n_members = n_members;
            for (uint32_t j = 0; j < DRAWN_FIELDS; j++)
                fields[j] = draw_value(&d);
            put_row(&d, json, sizeof rows.json[row], fields);
            bool expected = naive_matches(tree, fields, key);
            if (matches_both(filter, NULL, json, (uint32_t)strlen(json), key, text) != expected)
                fail_msg("%s of %s, key %s: not %d", text, json, key, expected);
            rows.expected[row] = expected;
            n_true += expected;
        }
        check_rows(filter, &rows, text);
        filter_unref(filter);
    }
    assert_true(n_true > EXPRESSIONS * ROWS / 20 && n_pure > EXPRESSIONS / 4);
}

/* What is done without pow and fmod gives their very bits. */
static void test_squares_and_remainders(void **state)
{
    static const double odd[] = {0,
                                 -0.0,
                                 1,
                                 -1,
                                 2,
                                 3,
                                 0.5,
                                 2147483647,
                                 -2147483647,
                                 -2147483648.0,
                                 2147483648.0,
                                 1e300,
                                 67108864,
                                 67108865,
                                 -67108864,
                                 INFINITY,
                                 -INFINITY,
                                 NAN};
    struct random r;
    (void)state;
    random_init(&r, 7);
    for (uint32_t i = 0; i < 1000000; i++) {
        double pair[2];
        for (uint32_t j = 0; j < 2; j++)
            pair[j] = random_below(&r, 4) == 0
                          ? odd[random_below(&r, sizeof odd / sizeof *odd)]
                          : (double)(int64_t)random_next(&r) / (double)(1ull << random_below(&r, 63));
        double a = random_below(&r, 2) ? trunc(pair[0]) : pair[0], b = random_below(&r, 2) ? trunc(pair[1]) : pair[1];
        double got[2] = {filter_power(a, 2), filter_remainder(a, b)}, want[2] = {pow(a, 2), fmod(a, b)};
        for (uint32_t j = 0; j < 2; j++)
            if (memcmp(&got[j], &want[j], sizeof got[j]) != 0 && !(isnan(got[j]) && isnan(want[j])))
                fail_msg("%.17g and %.17g: %.17g, not %.17g", a, b, got[j], want[j]);
    }
}

/* Chunks of whole numbers, some of them with others among them, take other ways; the answers are the same. */
static void test_whole_numbers(void **state)
{
    static const char *const texts[] = {".a % .b == 1",      "1 / (.a % .b) < 0",    ".a % .b > 0 or .b == 0",
                                        ".a ** 2 > .b ** 2", ".a ** .b == 4",        "(.a % .b) ** 2 - .a * .b < 9",
                                        "not (.a % .b)",     "1 / (0 - .a % 2) > 0", ".a ** 2 % .b == 0",
                                        ".a * .b % 7 == 3",  "(.a - .b) % -5 > 1",   "(.a + .b) ** 2 % 97 < 9",
                                        ".a % 1 == 0",       ".a % 2147483647 < 9",  "1 / (.a % 0 + .b) > 0"};
    static const double odd[] = {0.5, 2147483647, -2147483648.0, 1e18, -0.0, 67108864, 67108865};
    double a[FILTER_ROWS_MAX], b[FILTER_ROWS_MAX];
    struct random r;
    (void)state;
    random_init(&r, 11);
    for (uint32_t round = 0; round < 3000; round++) {
        struct filter *filter = compile(texts[round % (sizeof texts / sizeof *texts)]);
        struct filter_rows *run = filter_rows_create(filter, NULL);
        uint32_t n = 1 + (uint32_t)random_below(&r, FILTER_ROWS_MAX), n_odd = (uint32_t)random_below(&r, 3);
        uint64_t most = 2ull << random_below(&r, 31), bits[FILTER_ROWS_MAX / 64];
        struct filter_values fields[] = {{.numbers = a}, {.numbers = b}};
        const struct filter_chunk chunk = {.n = n, .fields = fields};
        for (uint32_t i = 0; i < n; i++) {
            a[i] = (double)random_below(&r, most) - (double)(most / 2);
            b[i] = random_below(&r, 4) ? (double)random_below(&r, 9) - 4 : a[i] / 2 < 1 ? 3 : trunc(a[i] / 2);
        }
        for (uint32_t i = 0; i < n_odd; i++)
            (random_below(&r, 2) ? a : b)[random_below(&r, n)] = odd[random_below(&r, sizeof odd / sizeof *odd)];
        if (round % 2) { /* the caller has looked at them */
            fields[0].whole_max = whole_max_of(a, n);
            fields[1].whole_max = whole_max_of(b, n);
        }
        assert_non_null(run);
        filter_rows_match(run, &chunk, bits);
        for (uint32_t i = 0; i < n; i++) {
            char json[80];
            int bytes = snprintf(json, sizeof json, "{\"a\":%.17g,\"b\":%.17g}", a[i], b[i]);
            if ((bits[i / 64] >> i % 64 & 1) != filter_matches(filter, json, (uint32_t)bytes, NULL, 0))
                fail_msg("%s of %s", texts[round % (sizeof texts / sizeof *texts)], json);
        }
        filter_rows_free(run);
        filter_unref(filter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_random_expressions),
        cmocka_unit_test(test_squares_and_remainders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
