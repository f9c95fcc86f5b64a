/*
 * test_fields_model.c - fields against a model that holds the documents as they are and looks at each one for each
 * query: random documents that come, change and go, random trees, purges, renumbering, new fields.
 */
#include "document/fields/fields.h"
#include "document/fields/geo.h"
#include "io/random.h"
#include "tests/document/support_query.h"
#include <math.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define DOCUMENTS 600u
#define VALUES    3u
#define WORDS     12u
#define NODES     64u

/* Words and their English stems; NULL: none that a document would have. */
static const struct {
    const char *word, *stem;
} vocabulary[] = {{"running", "run"}, {"runs", "run"},      {"run", NULL},         {"apples", "appl"},
                  {"apple", "appl"},  {"melon", NULL},      {"melons", "melon"},   {"kiwi", NULL},
                  {"zebra", NULL},    {"zebras", "zebra"},  {"quick", NULL},       {"quit", NULL},
                  {"quite", "quit"},  {"b\xc3\xa4r", NULL}, {"\xc3\xa4pfel", NULL}};
#define VOCABULARY (sizeof vocabulary / sizeof *vocabulary)
static const char *const tags[] = {"red", "Red", "green", "dark green", "blue", "re", "r*d", ""};
#define TAGS (sizeof tags / sizeof *tags)

enum { TAG_PLAIN, TAG_CASE, NUMBER, PLACE, TITLE, BODY, FIELDS };
static const char *const schema_words =
    "i SCHEMA tag TAG SEPARATOR ; INDEXMISSING case TAG CASESENSITIVE INDEXEMPTY number NUMERIC place GEO "
    "title TEXT NOSTEM WEIGHT 3 body TEXT INDEXMISSING";

struct document {
    bool lives;
    uint32_t n[FIELDS]; /* values; 0: the field is missing */
    uint32_t tag[2][VALUES];
    double number[VALUES], longitude[VALUES], latitude[VALUES];
    uint32_t word[2][VALUES][WORDS], n_words[2][VALUES];
};

struct model {
    struct random random;
    struct schema *schema;
    struct fields *fields;
    struct document *documents; /* by id; DOCUMENTS of them and as many changes */
    uint32_t n, capacity;
    struct query_node nodes[NODES];
    struct query_node *children[NODES][4];
    uint32_t n_nodes;
    roaring_bitmap_t *given;
};

static uint32_t below(struct model *m, uint64_t n)
{
    return (uint32_t)random_below(&m->random, n);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

static struct document draw_document(struct model *m)
{
    struct document d = {.lives = true};
    for (uint32_t f = 0; f < FIELDS; f++)
        d.n[f] = below(m, 5) == 0 ? 0 : below(m, 4) == 0 ? 1 + below(m, VALUES) : 1;
    for (uint32_t i = 0; i < VALUES; i++) {
        d.tag[0][i] = below(m, TAGS - 1); /* an empty one is no tag there */
        d.tag[1][i] = below(m, TAGS);
        d.number[i] = below(m, 4) == 0 ? (double)below(m, 10) : (double)below(m, 100000) / 7 - 5000;
        d.longitude[i] = 13 + (double)below(m, 4000) / 1000 - 2;
        d.latitude[i] = 52 + (double)below(m, 4000) / 1000 - 2;
        for (uint32_t t = 0; t < 2; t++) {
            d.n_words[t][i] = below(m, WORDS);
            for (uint32_t k = 0; k < d.n_words[t][i]; k++)
                d.word[t][i][k] = below(m, VOCABULARY);
        }
    }
    return d;
}

static void put_text(const struct document *d, uint32_t t, uint32_t i, char *text)
{
    for (uint32_t k = 0; k < d->n_words[t][i]; k++)
        text += sprintf(text, "%s%s", k % 3 == 1 ? ", The " : k > 0 ? " " : "", vocabulary[d->word[t][i][k]].word);
    *text = 0;
}

static void add(struct model *m, uint32_t id, const struct document *d)
{
    static char texts[2][VALUES][WORDS * 20], joined[VALUES * 16];
    struct record_value values[FIELDS][VALUES] = {0};
    struct record_field fields[FIELDS] = {0};
    struct record record = {.schema = m->schema, .fields = fields, .score = 1};
    struct quire_error err = {0};
    for (uint32_t f = 0; f < FIELDS; f++)
        fields[f] = (struct record_field){.present = d->n[f] > 0, .n_values = d->n[f], .values = values[f]};
    joined[0] = 0; /* several tags as one value */
    for (uint32_t i = 0; i < d->n[TAG_PLAIN]; i++)
        sprintf(joined + strlen(joined), "%s %s\t", i > 0 ? ";" : "", tags[d->tag[0][i]]);
    fields[TAG_PLAIN].n_values = d->n[TAG_PLAIN] > 0;
    values[TAG_PLAIN][0] = (struct record_value){.text = joined, .bytes = (uint32_t)strlen(joined)};
    for (uint32_t i = 0; i < VALUES; i++) {
        const char *tag = tags[d->tag[1][i]];
        values[TAG_CASE][i] = (struct record_value){.text = tag, .bytes = (uint32_t)strlen(tag)};
        values[NUMBER][i].number = d->number[i];
        values[PLACE][i].number = d->longitude[i];
        values[PLACE][i].latitude = d->latitude[i];
        for (uint32_t t = 0; t < 2; t++) {
            put_text(d, t, i, texts[t][i]);
            values[TITLE + t][i] = (struct record_value){.text = texts[t][i], .bytes = (uint32_t)strlen(texts[t][i])};
        }
    }
    if (fields_add(m->fields, id, &record, &err) < 0)
        fail_msg("%s", err.message);
}

/* ---- the model's answer ------------------------------------------------------------------------------------------ */

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    return strlen(text) >= strlen(with) && strcmp(text + strlen(text) - strlen(with), with) == 0;
}

static bool wild(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return wild(pattern + 1, text) || (*text && wild(pattern, text + 1));
    if (*pattern == '?' && *text) {
        text++;
        while ((*text & 0xC0) == 0x80)
            text++;
        return wild(pattern + 1, text);
    }
    return *pattern == *text && (!*text || wild(pattern + 1, text + 1));
}

/* Letters of two bytes become one. */
static uint32_t letters_of(const char *text, int *letters)
{
    uint32_t n = 0;
    for (; *text; text++)
        if ((*text & 0xC0) == 0x80)
            letters[n - 1] = letters[n - 1] * 256 + (uint8_t)*text;
        else
            letters[n++] = (uint8_t)*text;
    return n;
}

static uint32_t edits(const int *a, uint32_t n_a, const int *b, uint32_t n_b)
{
    if (n_a == 0 || n_b == 0)
        return n_a + n_b;
    if (a[0] == b[0])
        return edits(a + 1, n_a - 1, b + 1, n_b - 1);
    if (n_a > n_b + 3 || n_b > n_a + 3)
        return 99;
    uint32_t x = edits(a + 1, n_a - 1, b, n_b), y = edits(a, n_a, b + 1, n_b - 1);
    uint32_t z = edits(a + 1, n_a - 1, b + 1, n_b - 1);
    x = x < y ? x : y;
    return 1 + (x < z ? x : z);
}

static bool text_fits(const struct query_node *node, const char *text)
{
    const char *pattern = node->text.data;
    int a[64], b[64];
    if (node->kind != QUERY_WILDCARD && node->kind != QUERY_FUZZY && node->kind != QUERY_TERM && node->text.bytes < 2)
        return false;
    switch (node->kind) {
    case QUERY_TERM:
        return strcmp(pattern, text) == 0;
    case QUERY_PREFIX:
        return starts(text, pattern);
    case QUERY_SUFFIX:
        return ends(text, pattern);
    case QUERY_INFIX:
        return strstr(text, pattern) != NULL;
    case QUERY_WILDCARD:
        return wild(pattern, text);
    default:
        return edits(a, letters_of(pattern, a), b, letters_of(text, b)) <= node->distance;
    }
}

static bool word_fits(const struct query_node *node, uint32_t text_field, uint32_t word)
{
    const char *stem = text_field == 1 ? vocabulary[word].stem : NULL;
    if (!(node->text_fields >> text_field & 1))
        return false;
    if (text_fits(node, vocabulary[word].word))
        return true;
    return node->stem.bytes > 0 &&
           (strcmp(vocabulary[word].word, node->stem.data) == 0 || (stem && strcmp(stem, node->stem.data) == 0));
}

/* Places of words that fit, in order; returns how many. */
static uint32_t places_of(const struct document *d, const struct query_node *node, int64_t *places)
{
    uint32_t n = 0;
    int64_t place = 0;
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t i = 0; i < d->n[TITLE + t]; i++) {
            place += i > 0 ? 99 : 0;
            for (uint32_t k = 0; k < d->n_words[t][i]; k++) {
                place++;
                if (word_fits(node, t, d->word[t][i][k]))
                    places[n++] = place;
            }
        }
    return n;
}

static bool phrase_fits(const struct document *d, const struct query_node *node)
{
    int64_t places[4][2 * VALUES * WORDS];
    uint32_t n[4];
    bool exact = node->slop < 0 && !node->in_order;
    int64_t slop = exact ? 0 : node->slop < 0 ? INT64_MAX : node->slop;
    for (uint32_t i = 0; i < node->n_children; i++)
        if ((n[i] = places_of(d, node->children[i], places[i])) == 0)
            return false;
    if (node->n_children == 1)
        return true;
    for (uint32_t first = 0; (exact || node->in_order) && first < n[0]; first++) {
        int64_t before = places[0][first], gaps = 0;
        uint32_t i = 1;
        for (; i < node->n_children && gaps <= slop; i++) {
            uint32_t k = 0;
            while (k < n[i] && places[i][k] < before)
                k++;
            if (k == n[i])
                break;
            gaps += places[i][k] - before - 1;
            before = places[i][k];
        }
        if (i == node->n_children && gaps <= slop)
            return true;
    }
    if (exact || node->in_order)
        return false;
    assert_int_equal(node->n_children, 2); /* as it is drawn */
    for (uint32_t i = 0; i < n[0]; i++)
        for (uint32_t k = 0; k < n[1]; k++) {
            int64_t span = places[0][i] - places[1][k];
            span = span < 0 ? -span : span;
            if (span > 0 && span - 1 <= slop)
                return true;
        }
    return false;
}

static bool tag_fits(const struct document *d, const struct query_node *node)
{
    uint32_t which = node->field->index == TAG_PLAIN ? 0 : 1;
    for (uint32_t c = 0; c < node->n_children; c++)
        for (uint32_t i = 0; i < d->n[node->field->index]; i++) {
            char folded[16];
            snprintf(folded, sizeof folded, "%s", tags[d->tag[which][i]]);
            for (char *at = folded; *at && which == 0; at++)
                *at = (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at);
            struct query_node child = *node->children[c];
            char pattern[16];
            snprintf(pattern, sizeof pattern, "%s", child.text.data);
            for (char *at = pattern; *at && which == 0; at++)
                *at = (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at);
            child.text.data = pattern;
            if (text_fits(&child, folded))
                return true;
        }
    return false;
}

static bool place_fits(const struct document *d, const struct query_node *node)
{
    for (uint32_t i = 0; i < d->n[PLACE]; i++) {
        double longitude, latitude;
        geo_decode(geo_encode(d->longitude[i], d->latitude[i]), &longitude, &latitude);
        if (geo_distance_m(node->longitude, node->latitude, longitude, latitude) <= node->radius_m)
            return true;
    }
    return false;
}

static bool fits(const struct model *m, uint32_t id, const struct query_node *node)
{
    const struct document *d = &m->documents[id];
    bool all = true, any = false;
    switch (node->kind) {
    case QUERY_ALL:
    case QUERY_OPTIONAL:
        return true;
    case QUERY_NONE:
        return false;
    case QUERY_AND:
    case QUERY_OR:
        for (uint32_t i = 0; i < node->n_children; i++) {
            bool one = fits(m, id, node->children[i]);
            all = all && one;
            any = any || one;
        }
        return node->kind == QUERY_AND ? all : any;
    case QUERY_NOT:
        return !fits(m, id, node->children[0]);
    case QUERY_PHRASE:
        return phrase_fits(d, node);
    case QUERY_TAG:
        return tag_fits(d, node);
    case QUERY_NUMERIC:
        for (uint32_t i = 0; i < d->n[NUMBER]; i++)
            any = any || ((node->low_open ? d->number[i] > node->low : d->number[i] >= node->low) &&
                          (node->high_open ? d->number[i] < node->high : d->number[i] <= node->high));
        return any;
    case QUERY_GEO:
        return place_fits(d, node);
    case QUERY_MISSING:
        return d->n[node->field->index] == 0;
    case QUERY_RANGE:
        return roaring_bitmap_contains(m->given, id);
    default: {
        int64_t places[2 * VALUES * WORDS];
        return places_of(d, node, places) > 0;
    }
    }
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static struct query_node *new_node(struct model *m, enum query_kind kind)
{
    assert_true(m->n_nodes < NODES);
    struct query_node *node = &m->nodes[m->n_nodes];
    *node = (struct query_node){.kind = kind, .slop = -1, .weight = 1, .children = m->children[m->n_nodes++]};
    node->text_fields = 3;
    return node;
}

static void set_text(struct query_node *node, const char *text)
{
    node->text = (struct query_text){.data = text, .bytes = (uint32_t)strlen(text)};
}

static struct query_node *draw_word(struct model *m, bool plain)
{
    static const char *const parts[] = {"ru", "app", "s", "on", "z", "ui", "\xc3\xa4"};
    static const char *const wildcards[] = {"r*n*", "?pple", "*", "qui?*", "b?r", "*s", "m?lon?"};
    static const char *const misspelt[] = {"runn", "aple", "melom", "quiet", "br", "kiwis", "apfel"};
    static const enum query_kind kinds[] = {QUERY_PREFIX, QUERY_SUFFIX, QUERY_INFIX};
    struct query_node *node = new_node(m, QUERY_TERM);
    uint32_t word = below(m, VOCABULARY), draw = plain ? 9 : below(m, 10);
    set_text(node, vocabulary[word].word);
    node->text_fields = below(m, 3) == 0 ? 1 + below(m, 3) : 3;
    if (draw >= 8)
        return node;
    if (draw >= 5) {
        const char *stem = vocabulary[word].stem ? vocabulary[word].stem : vocabulary[word].word;
        node->stem = (struct query_text){.data = stem, .bytes = (uint32_t)strlen(stem)};
    } else if (draw >= 3) {
        node->kind = kinds[below(m, 3)];
        set_text(node, parts[below(m, 7)]);
    } else if (draw >= 1) {
        node->kind = QUERY_WILDCARD;
        set_text(node, wildcards[below(m, 7)]);
    } else {
        node->kind = QUERY_FUZZY;
        node->distance = 1 + below(m, 3);
        set_text(node, misspelt[below(m, 7)]);
    }
    return node;
}

static struct query_node *draw_phrase(struct model *m)
{
    struct query_node *node = new_node(m, QUERY_PHRASE);
    uint32_t fields = below(m, 3) == 0 ? 1 + below(m, 3) : 3;
    node->n_children = 2 + below(m, 2);
    if (below(m, 3) > 0) {
        node->slop = below(m, 5);
        node->in_order = below(m, 2);
    } else {
        node->in_order = below(m, 2);
    }
    if (node->slop >= 0 && !node->in_order)
        node->n_children = 2;
    for (uint32_t i = 0; i < node->n_children; i++) {
        do {
            node->children[i] = draw_word(m, true);
        } while (i > 0 && strcmp(node->children[i]->text.data, node->children[i - 1]->text.data) == 0);
        node->children[i]->text_fields = fields;
    }
    return node;
}

static struct query_node *draw_tag(struct model *m)
{
    static const char *const patterns[] = {"re", "r", "d", "ee", "RE", " g", "dark*", "r?d", "*", "r\\*d"};
    struct query_node *node = new_node(m, QUERY_TAG);
    node->field = &m->schema->fields[below(m, 2)];
    node->n_children = 1 + below(m, 3);
    for (uint32_t i = 0; i < node->n_children; i++) {
        struct query_node *child = node->children[i] = new_node(m, QUERY_TERM);
        set_text(child, tags[below(m, TAGS)]);
        if (below(m, 3) == 0) {
            uint32_t which = below(m, 9);
            child->kind = which >= 6 ? QUERY_WILDCARD : (enum query_kind)(QUERY_PREFIX + below(m, 3));
            set_text(child, patterns[which]);
        }
    }
    return node;
}

static struct query_node *draw_leaf(struct model *m)
{
    struct query_node *node;
    switch (below(m, 10)) {
    case 0:
    case 1:
        return draw_word(m, false);
    case 2:
        return draw_phrase(m);
    case 3:
    case 4:
        return draw_tag(m);
    case 5:
    case 6:
        node = new_node(m, QUERY_NUMERIC);
        node->field = &m->schema->fields[NUMBER];
        node->low = below(m, 5) == 0 ? -INFINITY : below(m, 2) ? (double)below(m, 10) : (double)below(m, 14000) - 5000;
        node->high = below(m, 5) == 0 ? INFINITY : node->low + (double)below(m, below(m, 2) ? 10 : 4000);
        node->low_open = below(m, 2);
        node->high_open = below(m, 2);
        return node;
    case 7:
        node = new_node(m, QUERY_GEO);
        node->field = &m->schema->fields[PLACE];
        node->longitude = 13 + (double)below(m, 2000) / 1000;
        node->latitude = 52 + (double)below(m, 2000) / 1000;
        node->radius_m = below(m, 2) ? below(m, 1000) : below(m, 300000);
        return node;
    case 8:
        node = new_node(m, QUERY_MISSING);
        node->field = &m->schema->fields[below(m, FIELDS)];
        return node;
    default:
        node = new_node(m, below(m, 3) == 0 ? QUERY_RANGE : below(m, 2) ? QUERY_ALL : QUERY_NONE);
        return node;
    }
}

static struct query_node *draw_tree(struct model *m, uint32_t depth)
{
    if (depth == 0 || m->n_nodes + 20 > NODES || below(m, 4) == 0)
        return draw_leaf(m);
    uint32_t draw = below(m, 8);
    struct query_node *node = new_node(m, draw < 4   ? QUERY_AND
                                          : draw < 6 ? QUERY_OR
                                          : draw < 7 ? QUERY_NOT
                                                     : QUERY_OPTIONAL);
    node->n_children = node->kind == QUERY_AND || node->kind == QUERY_OR ? 2 + below(m, 2) : 1;
    for (uint32_t i = 0; i < node->n_children; i++)
        node->children[i] = m->n_nodes + 20 > NODES ? new_node(m, QUERY_ALL) : draw_tree(m, depth - 1);
    return node;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static int give(void *context, const struct query_node *node, const roaring_bitmap_t **out, struct quire_error *err)
{
    (void)err;
    assert_int_equal(node->kind, QUERY_RANGE);
    *out = ((struct model *)context)->given;
    return 0;
}

/* Whether the node's set is the model's. Says which part of it is to blame. */
static bool agrees(struct model *m, const struct query_node *node)
{
    const struct fields_request request = {.root = node, .given = give, .context = m};
    roaring_bitmap_t *found = NULL;
    struct quire_error err = {0};
    uint32_t n = 0, wrong = m->n;
    if (fields_eval(m->fields, &request, &found, &err) < 0)
        fail_msg("%s", err.message);
    for (uint32_t id = 0; id < m->n; id++) {
        bool there = m->documents[id].lives && fits(m, id, node);
        n += there;
        if (there != roaring_bitmap_contains(found, id))
            wrong = id;
    }
    bool same = wrong == m->n && n == roaring_bitmap_get_cardinality(found);
    roaring_bitmap_free(found);
    if (same)
        return true;
    if (node->kind != QUERY_TAG)
        for (uint32_t i = 0; i < node->n_children; i++)
            if (!agrees(m, node->children[i]))
                return false;
    print_message(
        "a node of kind %d with %u children, slop %d, in order %d, fields %d, text '%.*s', stem '%.*s': document %u\n",
        (int)node->kind, node->n_children, (int)node->slop, node->in_order, (int)node->text_fields,
        (int)node->text.bytes, node->text.data ? node->text.data : "", (int)node->stem.bytes,
        node->stem.data ? node->stem.data : "", wrong);
    for (uint32_t i = 0; i < node->n_children; i++)
        print_message("  child of kind %d: '%.*s'\n", (int)node->children[i]->kind, (int)node->children[i]->text.bytes,
                      node->children[i]->text.data ? node->children[i]->text.data : "");
    return false;
}

static void check(struct model *m, uint32_t n_trees)
{
    for (uint32_t t = 0; t < n_trees; t++) {
        m->n_nodes = 0;
        if (m->given)
            roaring_bitmap_free(m->given);
        m->given = roaring_bitmap_create();
        for (uint32_t i = 0; i < 50; i++)
            roaring_bitmap_add(m->given, below(m, m->n));
        const struct query_node *root = draw_tree(m, 3);
        assert_true(agrees(m, root));
    }
}

/* A step: a document comes, changes (a new id), or goes. */
static void step(struct model *m)
{
    uint32_t draw = below(m, 10), id = m->n > 0 ? below(m, m->n) : 0;
    if (draw < 6 && m->n > 0 && m->documents[id].lives) {
        m->documents[id].lives = false;
        assert_true(fields_remove(m->fields, id));
        assert_false(fields_remove(m->fields, id));
        assert_false(fields_has(m->fields, id));
        if (draw < 3)
            return;
    }
    if (m->n == m->capacity)
        return;
    m->n += below(m, 20) == 0 && m->n + 1 < m->capacity; /* a gap */
    m->documents[m->n] = draw_document(m);
    add(m, m->n, &m->documents[m->n]);
    m->n++;
    assert_int_equal(fields_next_id(m->fields), m->n);
}

static struct model new_model(uint64_t seed)
{
    struct model m = {.capacity = 16 * DOCUMENTS};
    struct quire_error err;
    random_init(&m.random, seed);
    m.schema = schema_of(schema_words);
    m.documents = calloc(m.capacity, sizeof *m.documents);
    assert_non_null(m.schema);
    assert_int_equal(fields_create(m.schema, &m.fields, &err), 0);
    return m;
}

static void free_model(struct model *m)
{
    fields_free(m->fields);
    schema_free(m->schema);
    free(m->documents);
    if (m->given)
        roaring_bitmap_free(m->given);
}

static void random_trees(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct model m = new_model(seed);
        check(&m, 0);
        for (uint32_t i = 0; i < DOCUMENTS; i++) {
            step(&m);
            if (i % 100 == 7)
                check(&m, 40);
        }
        check(&m, 150);
        free_model(&m);
    }
}

static uint64_t living_of(const struct model *m)
{
    uint64_t n = 0;
    for (uint32_t id = 0; id < m->n; id++)
        n += m->documents[id].lives;
    return n;
}

/* A purge takes place in slices among which documents come and go; afterwards nothing of the dead is left. */
static void purges(void **state)
{
    (void)state;
    struct model m = new_model(77);
    struct fields_stats before, after;
    uint32_t n_slices = 0, n_purges = 0;
    bool under_way = false;
    for (uint32_t i = 0; i < 12 * DOCUMENTS; i++) {
        step(&m);
        if (m.n == m.capacity)
            break;
        if (i % 3 == 0) {
            bool more = fields_purge(m.fields);
            n_purges += under_way && !more;
            n_slices += more;
            under_way = more;
        }
        if (i % 900 == 100)
            check(&m, 30);
    }
    print_message("%u purges in %u slices\n", n_purges, n_slices);
    assert_true(n_purges >= 2);
    check(&m, 100);
    fields_get_stats(m.fields, &before);
    assert_int_equal(before.n_documents, living_of(&m));
    for (uint32_t id = 0; id < m.n; id++)
        if (m.documents[id].lives) {
            m.documents[id].lives = false;
            fields_remove(m.fields, id);
        }
    while (fields_purge(m.fields)) {
    }
    while (fields_purge(m.fields)) { /* those that died while the one before was under way */
    }
    check(&m, 5);
    fields_get_stats(m.fields, &after);
    assert_int_equal(after.n_documents, 0);
    if (after.n_dead == 0) {
        assert_int_equal(after.n_words + after.n_stems + after.n_tags + after.n_numbers, 0);
        assert_int_equal(after.n_records + after.n_positions + after.n_blocks, 0);
        assert_true(after.tag_bytes < before.tag_bytes && after.text_bytes < before.text_bytes);
    } else {
        assert_true(after.n_dead < 1000);
    }
    free_model(&m);
}

static void renumbering(void **state)
{
    (void)state;
    struct model m = new_model(99);
    struct fields *fields = NULL;
    struct fields_stats before, after;
    struct quire_error err;
    uint32_t *old_ids = NULL;
    for (uint32_t i = 0; i < 3 * DOCUMENTS; i++)
        step(&m);
    assert_false(fields_want_renumber(m.fields));
    assert_int_equal(fields_renumber(m.fields, &fields, &old_ids, &err), 0);
    fields_get_stats(m.fields, &before);
    fields_get_stats(fields, &after);
    assert_int_equal(after.n_documents, living_of(&m));
    assert_int_equal(before.n_documents, after.n_documents);
    assert_int_equal(after.n_dead, 0);
    assert_true(after.n_records < before.n_records);
    fields_free(m.fields);
    m.fields = fields;
    m.n = (uint32_t)after.n_documents;
    for (uint32_t id = 0; id < m.n; id++) {
        assert_true(old_ids[id] >= id);
        m.documents[id] = m.documents[old_ids[id]];
        assert_true(m.documents[id].lives);
        double number;
        assert_int_equal(fields_number(m.fields, id, NUMBER, &number), m.documents[id].n[NUMBER] > 0);
        assert_true(m.documents[id].n[NUMBER] == 0 || number == m.documents[id].number[0]);
    }
    free(old_ids);
    memset(m.documents + m.n, 0, (m.capacity - m.n) * sizeof *m.documents);
    check(&m, 200);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        step(&m);
    check(&m, 50);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_trees), cmocka_unit_test(purges),
                                       cmocka_unit_test(renumbering)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
