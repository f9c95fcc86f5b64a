/*
 * fields_eval.c - the documents for which a query holds.
 *
 * Every node answers with a set of ids, in which dead ones may be: they are taken out once, at the root; NOT begins
 * with the living. The parts of an AND are evaluated in the order of how many documents they may have, and each is told
 * what the ones before have left (`within`): where that is little, a number, a point or a word is looked up document by
 * document instead of gathering all that are in the range or have the word. What such a node answers is exact within
 * that set; what it says of other documents does not count.
 */
#include "document/fields/expansion.h"
#include "document/fields/fields_priv.h"
#include "document/fields/geo.h"
#include "document/text/fold.h"
#include "index/column/row_set.h"
#include <roaring/roaring.h>

#define TICKS_MAX      200000u /* units of work between two questions whether to go on */
#define LOOKUP_FACTOR  8u      /* a look-up costs as much as gathering this many */
#define ESTIMATE_DEPTH 4u      /* levels of a tree that are looked at for an estimate */

int fields_tick(struct fields_task *task, uint32_t work)
{
    task->ticks += work;
    if (task->ticks < TICKS_MAX)
        return 0;
    task->ticks = 0;
    if (task->request->cancelled && task->request->cancelled(task->request->context))
        return error_set(task->err, QUIRE_ETIMEOUT, FIELDS_TOO_LATE);
    return 0;
}

static int no_memory(struct fields_task *task)
{
    return error_set(task->err, QUIRE_ENOMEM, "no memory to evaluate the query");
}

/* Of a step that only fails for memory. */
static int memory(struct fields_task *task, bool done)
{
    return done ? 0 : no_memory(task);
}

static bool is_pattern(enum query_kind kind)
{
    return kind == QUERY_PREFIX || kind == QUERY_SUFFIX || kind == QUERY_INFIX || kind == QUERY_WILDCARD ||
           kind == QUERY_FUZZY;
}

int fields_field_of(const struct fields_task *task, const struct query_node *node, enum schema_type type,
                    const struct field **out)
{
    const struct schema_field *field = node->field;
    assert(field != NULL);
    if (field->index >= task->fields->n_fields)
        return error_set(task->err, QUIRE_EINVALID, "field '%.64s' is not in the index yet", field->name);
    *out = &task->fields->fields[field->index];
    if ((*out)->type != type || !(*out)->indexed)
        return error_set(task->err, QUIRE_EINVALID, "field '%.64s' is not indexed for this kind of query", field->name);
    return 0;
}

/* ---- what patterns and words stand for --------------------------------------------------------------------------- */

/* What it costs to hold a text against a pattern, in units of fields_tick. */
static uint32_t match_work(enum query_kind kind, uint32_t pattern_bytes, uint32_t bytes)
{
    bool each = kind == QUERY_WILDCARD || (kind == QUERY_FUZZY && bytes <= EXPANSION_FUZZY_BYTES);
    uint64_t work = 2 + (each ? (uint64_t)pattern_bytes * bytes / 8 : bytes / 64);
    return work < TICKS_MAX ? (uint32_t)work : TICKS_MAX;
}

/* Each entry that the pattern matches is given to `take`. */
static int match_entries(struct fields_task *task, const struct vocabulary *vocabulary, enum query_kind kind,
                         struct query_text pattern, uint32_t distance,
                         int (*take)(void *context, const struct vocabulary_entry *entry), void *context)
{
    char prefix[256];
    uint32_t prefix_bytes = expansion_literal_prefix(kind, pattern, prefix, sizeof prefix);
    struct sorted_place at = vocabulary_lower_bound(vocabulary, prefix, prefix_bytes);
    struct vocabulary_entry *entry;
    if (kind != QUERY_WILDCARD && kind != QUERY_FUZZY && pattern.bytes < FIELDS_PREFIX_MIN)
        return 0;
    for (; vocabulary_sorted_at(&vocabulary->sorted, &at, &entry); at.index++) {
        if (entry->bytes < prefix_bytes || memcmp(entry->text, prefix, prefix_bytes) != 0)
            break;
        int rc = fields_tick(task, match_work(kind, pattern.bytes, entry->bytes));
        if (rc == 0 && expansion_matches(kind, pattern, distance, entry->text, entry->bytes))
            rc = take(context, entry);
        if (rc < 0)
            return rc;
    }
    return 0;
}

struct taking_words {
    struct fields_task *task;
    struct fields_words *words;
    uint32_t end; /* no more than these */
};

static int take_word(void *context, const struct vocabulary_entry *entry)
{
    struct taking_words *taking = context;
    if (!entry || taking->words->n >= taking->end)
        return 0;
    if (!array_reserve(&taking->words->at, &taking->words->capacity, (size_t)taking->words->n + 1))
        return no_memory(taking->task);
    taking->words->at[taking->words->n++] = (const struct word *)entry;
    return 0;
}

int fields_words_of(struct fields_task *task, const struct query_node *node, struct fields_words *words)
{
    const struct vocabulary *all = &task->fields->words, *stems = &task->fields->stems;
    struct taking_words taking = {.task = task, .words = words, .end = UINT32_MAX};
    if (is_pattern(node->kind)) {
        if (task->request->expansions_max > 0)
            taking.end = words->n + task->request->expansions_max;
        return match_entries(task, all, node->kind, node->text, node->distance, take_word, &taking);
    }
    if (node->kind != QUERY_TERM)
        return 0;
    int rc = take_word(&taking, vocabulary_find(all, node->text.data, node->text.bytes));
    if (rc == 0 && node->stem.bytes > 0)
        rc = take_word(&taking, vocabulary_find(stems, node->stem.data, node->stem.bytes));
    /* a document that has the stem itself as a word has no stem of it */
    if (rc == 0 && node->stem.bytes > 0 &&
        vocabulary_compare(node->stem.data, node->stem.bytes, node->text.data, node->text.bytes) != 0)
        rc = take_word(&taking, vocabulary_find(all, node->stem.data, node->stem.bytes));
    return rc;
}

struct taking_tags {
    int (*take)(void *context, const struct tag *tag);
    void *context;
};

static int take_tag(void *context, const struct vocabulary_entry *entry)
{
    const struct taking_tags *taking = context;
    return entry ? taking->take(taking->context, (const struct tag *)entry) : 0;
}

int fields_tags_of(struct fields_task *task, const struct field *field, const struct query_node *child,
                   int (*take)(void *context, const struct tag *tag), void *context)
{
    struct taking_tags taking = {.take = take, .context = context};
    struct query_text text = child->text;
    char *folded = NULL;
    int rc;
    if (!task->fields->schema->fields[field - task->fields->fields].case_sensitive) {
        folded = malloc(FOLD_ROOM(text.bytes) + 1);
        if (!folded)
            return no_memory(task);
        text = (struct query_text){.data = folded, .bytes = fold_text(text.data, text.bytes, folded)};
    }
    if (is_pattern(child->kind))
        rc = match_entries(task, &field->tags, child->kind, text, child->distance, take_tag, &taking);
    else
        rc = take_tag(&taking, vocabulary_find(&field->tags, text.data, text.bytes));
    free(folded);
    return rc;
}

/* ---- how many documents a node may have -------------------------------------------------------------------------- */

static int count_tag(void *context, const struct tag *tag)
{
    *(uint64_t *)context += tag->documents.n;
    return 0;
}

static uint64_t estimate_range(const struct fields_task *task, const struct query_node *node)
{
    const struct field *field = &task->fields->fields[node->field->index];
    struct number_range ranges[GEO_RANGES_MAX];
    uint64_t n = 0;
    uint32_t n_ranges = 1;
    if (node->kind == QUERY_NUMERIC)
        ranges[0] = (struct number_range){node->low, node->high, node->low_open, node->high_open};
    else
        n_ranges = geo_ranges(node->longitude, node->latitude, node->radius_m, ranges);
    for (uint32_t i = 0; i < n_ranges; i++)
        n += number_range_count(&field->numbers, &ranges[i]);
    return n;
}

/* Of what is quickly said; all documents otherwise. The order of an AND depends on it, nothing else. */
static uint64_t estimate(struct fields_task *task, const struct query_node *node, uint32_t depth)
{
    const struct fields *fields = task->fields;
    uint64_t all = fields->living.n, n = 0;
    const struct vocabulary_entry *entry;
    if (depth == 0)
        return all;
    switch (node->kind) {
    case QUERY_NONE:
        return 0;
    case QUERY_TERM:
        entry = vocabulary_find(&fields->words, node->text.data, node->text.bytes);
        n = entry ? ((const struct word *)entry)->n_documents : 0;
        entry = node->stem.bytes > 0 ? vocabulary_find(&fields->stems, node->stem.data, node->stem.bytes) : NULL;
        return n + (entry ? ((const struct word *)entry)->n_documents : 0);
    case QUERY_TAG:
        for (uint32_t i = 0; i < node->n_children && node->field->index < fields->n_fields; i++)
            if (is_pattern(node->children[i]->kind) ||
                fields_tags_of(task, &fields->fields[node->field->index], node->children[i], count_tag, &n) < 0)
                return all;
        return n;
    case QUERY_NUMERIC:
    case QUERY_GEO:
        return node->field->index < fields->n_fields ? estimate_range(task, node) : 0;
    case QUERY_AND:
    case QUERY_PHRASE:
        for (uint32_t i = 0; i < node->n_children; i++) {
            n = estimate(task, node->children[i], depth - 1);
            all = n < all ? n : all;
        }
        return all;
    case QUERY_OR:
        for (uint32_t i = 0; i < node->n_children && n < all; i++)
            n += estimate(task, node->children[i], depth - 1);
        return n;
    case QUERY_MISSING:
        return node->field->index < fields->n_fields ? fields->fields[node->field->index].missing.n : 0;
    default:
        return all;
    }
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static bool is_in_fields(const struct words_cursor *cursor, uint64_t fields)
{
    return fields == UINT64_MAX || (words_fields(cursor) & fields) != 0;
}

/* The word's documents that are in `within`. */
static int look_up_word(struct fields_task *task, const struct word *word, uint64_t fields,
                        const struct doc_set *within, struct doc_gather *gather)
{
    struct words_cursor cursor = words_begin(word);
    struct doc_walk walk = doc_walk(within);
    int rc = 0;
    for (uint32_t id; rc == 0 && doc_walk_next(&walk, &id);) {
        if (!words_seek(&cursor, id))
            return 0;
        if (cursor.id == id && is_in_fields(&cursor, fields)) {
            if (!doc_gather_reserve(gather, 1))
                return no_memory(task);
            doc_gather_put(gather, id);
        }
        rc = fields_tick(task, LOOKUP_FACTOR);
    }
    return rc;
}

static int gather_word(struct fields_task *task, const struct word *word, uint64_t fields, const struct doc_set *within,
                       struct doc_gather *gather)
{
    struct words_cursor cursor = words_begin(word);
    int rc = 0;
    if (within && (uint64_t)within->n * LOOKUP_FACTOR < word->n_documents)
        return look_up_word(task, word, fields, within, gather);
    if (!doc_gather_reserve(gather, word->n_documents))
        return no_memory(task);
    while (rc == 0 && words_next(&cursor)) {
        if (is_in_fields(&cursor, fields))
            doc_gather_put(gather, cursor.id);
        rc = fields_tick(task, 1);
    }
    return rc;
}

static int eval_words(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                      struct doc_set *out)
{
    uint64_t all = task->fields->n_text < 64 ? (UINT64_C(1) << task->fields->n_text) - 1 : UINT64_MAX, expected = 0;
    uint64_t fields = (node->text_fields & all) == all ? UINT64_MAX : node->text_fields;
    struct fields_words words = {0};
    struct doc_gather gather = {0};
    int rc = fields_words_of(task, node, &words);
    for (uint32_t i = 0; i < words.n; i++)
        expected += within && within->n < words.at[i]->n_documents ? within->n : words.at[i]->n_documents;
    if (rc == 0 && words.n > 0)
        rc = memory(task, doc_gather_init(&gather, expected, task->fields->next_id));
    for (uint32_t i = 0; rc == 0 && i < words.n; i++)
        rc = gather_word(task, words.at[i], fields, within, &gather);
    if (rc == 0 && words.n > 0)
        rc = memory(task, doc_gather_finish(&gather, out));
    doc_gather_fini(&gather);
    free(words.at);
    return rc;
}

struct taking_sets {
    struct fields_task *task;
    struct doc_gather *gather;
    const struct doc_set *only; /* the one that was taken, if it was one */
    uint32_t n;
};

static int count_set(void *context, const struct tag *tag)
{
    struct taking_sets *taking = context;
    taking->only = &tag->documents;
    taking->n++;
    return 0;
}

static int gather_set(void *context, const struct tag *tag)
{
    struct taking_sets *taking = context;
    int rc = memory(taking->task, doc_gather_put_set(taking->gather, &tag->documents));
    return rc < 0 ? rc : fields_tick(taking->task, tag->documents.n / 16 + 1);
}

static int eval_tag(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                    struct doc_set *out)
{
    const struct field *field;
    struct doc_gather gather = {0};
    struct taking_sets taking = {.task = task, .gather = &gather};
    int rc = fields_field_of(task, node, SCHEMA_TAG, &field);
    if (rc == 0 && node->n_children == 1 && !is_pattern(node->children[0]->kind)) {
        rc = fields_tags_of(task, field, node->children[0], count_set, &taking);
        if (rc < 0 || taking.n == 0)
            return rc;
        if (!within || taking.only->n <= within->n)
            return memory(task, doc_set_copy(taking.only, out));
        rc = memory(task, doc_set_copy(within, out));
        if (rc == 0)
            doc_set_and(out, taking.only);
        return rc;
    }
    if (rc == 0)
        rc = memory(task, doc_gather_init(&gather, estimate(task, node, ESTIMATE_DEPTH), task->fields->next_id));
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++)
        rc = fields_tags_of(task, field, node->children[i], gather_set, &taking);
    if (rc == 0)
        rc = memory(task, doc_gather_finish(&gather, out));
    doc_gather_fini(&gather);
    return rc;
}

static bool is_near(const struct number_tree *points, const struct query_node *node, uint32_t id)
{
    double code, longitude, latitude;
    for (uint32_t i = 0; number_at(points, id, i, &code); i++) {
        geo_decode(code, &longitude, &latitude);
        if (geo_distance_m(node->longitude, node->latitude, longitude, latitude) <= node->radius_m)
            return true;
    }
    return false;
}

/* Those of the set whose number is in the range, or whose point is near. */
static int look_up_numbers(struct fields_task *task, const struct query_node *node, const struct number_tree *numbers,
                           const struct doc_set *among, struct doc_set *out)
{
    const struct number_range range = {node->low, node->high, node->low_open, node->high_open};
    struct doc_walk walk = doc_walk(among);
    int rc = 0;
    for (uint32_t id; rc == 0 && doc_walk_next(&walk, &id);) {
        bool has = node->kind == QUERY_NUMERIC ? number_range_has(numbers, &range, id) : is_near(numbers, node, id);
        rc = has ? memory(task, doc_set_append(out, id)) : 0;
        if (rc == 0)
            rc = fields_tick(task, node->kind == QUERY_NUMERIC ? 2 : 20);
    }
    return rc;
}

static int eval_numbers(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                        struct doc_set *out)
{
    struct number_range ranges[GEO_RANGES_MAX];
    const struct field *field;
    struct doc_gather gather = {0};
    struct doc_set near = {0};
    uint32_t n_ranges = 1;
    int rc = fields_field_of(task, node, node->kind == QUERY_NUMERIC ? SCHEMA_NUMERIC : SCHEMA_GEO, &field);
    if (rc < 0)
        return rc;
    uint64_t expected = estimate_range(task, node);
    if (within && (uint64_t)within->n * LOOKUP_FACTOR < expected)
        return look_up_numbers(task, node, &field->numbers, within, out);
    if (node->kind == QUERY_NUMERIC)
        ranges[0] = (struct number_range){node->low, node->high, node->low_open, node->high_open};
    else
        n_ranges = geo_ranges(node->longitude, node->latitude, node->radius_m, ranges);
    rc = memory(task, doc_gather_init(&gather, expected, task->fields->next_id));
    for (uint32_t i = 0; rc == 0 && i < n_ranges; i++)
        rc = memory(task, number_range_gather(&field->numbers, &ranges[i], &gather));
    if (rc == 0)
        rc = fields_tick(task, (uint32_t)(expected / 4 > TICKS_MAX ? TICKS_MAX : expected / 4));
    if (rc == 0)
        rc = memory(task, doc_gather_finish(&gather, node->kind == QUERY_NUMERIC ? out : &near));
    doc_gather_fini(&gather);
    if (rc == 0 && node->kind == QUERY_GEO)
        rc = look_up_numbers(task, node, &field->numbers, &near, out);
    doc_set_fini(&near);
    return rc;
}

static int eval_missing(struct fields_task *task, const struct query_node *node, struct doc_set *out)
{
    uint32_t index = node->field->index;
    if (index >= task->fields->n_fields)
        return error_set(task->err, QUIRE_EINVALID, "field '%.64s' is not in the index yet", node->field->name);
    return memory(task, doc_set_copy(&task->fields->fields[index].missing, out));
}

static int eval_given(struct fields_task *task, const struct query_node *node, struct doc_set *out)
{
    const roaring_bitmap_t *given = NULL;
    if (!task->request->given)
        return error_set(task->err, QUIRE_EINVALID, "a vector query on '%.64s' cannot stand here", node->field->name);
    int rc = task->request->given(task->request->context, node, &given, task->err);
    if (rc < 0)
        return rc;
    uint64_t n = roaring_bitmap_get_cardinality(given);
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (ids)
        roaring_bitmap_to_uint32_array(given, ids);
    bool made = ids && doc_set_from(ids, n, out);
    free(ids);
    return memory(task, made);
}

/* ---- AND, OR, NOT ------------------------------------------------------------------------------------------------ */

static int copy_all(struct fields_task *task, const struct doc_set *within, struct doc_set *out)
{
    return memory(task, doc_set_copy(within ? within : &task->fields->living, out));
}

struct part {
    uint64_t estimate;
    const struct query_node *node;
};

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return (x->estimate > y->estimate) - (x->estimate < y->estimate);
}

/* *out becomes what it has in common with the node (kept true), or what the node has not. */
static int narrow(struct fields_task *task, const struct query_node *node, bool kept, struct doc_set *out)
{
    struct doc_set other = {0};
    int rc = fields_node(task, node, out, &other);
    if (rc == 0 && kept)
        doc_set_and(out, &other);
    else if (rc == 0)
        doc_set_and_not(out, &other);
    doc_set_fini(&other);
    return rc;
}

static int eval_and(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                    struct doc_set *out)
{
    struct part *parts = malloc((node->n_children + (size_t)1) * sizeof *parts);
    uint32_t n = 0;
    int rc = memory(task, parts != NULL);
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++) {
        const struct query_node *child = node->children[i];
        if (child->kind != QUERY_NOT && child->kind != QUERY_OPTIONAL)
            parts[n++] = (struct part){.estimate = estimate(task, child, ESTIMATE_DEPTH), .node = child};
    }
    if (n > 0)
        qsort(parts, n, sizeof *parts, compare_parts);
    if (rc == 0)
        rc = n > 0 ? fields_node(task, parts[0].node, within, out) : copy_all(task, within, out);
    for (uint32_t i = 1; rc == 0 && i < n && out->n > 0; i++)
        rc = narrow(task, parts[i].node, true, out);
    for (uint32_t i = 0; rc == 0 && i < node->n_children && out->n > 0; i++)
        if (node->children[i]->kind == QUERY_NOT)
            rc = narrow(task, node->children[i]->children[0], false, out);
    free(parts);
    return rc;
}

static int eval_or(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                   struct doc_set *out)
{
    struct doc_gather gather = {0};
    int rc = memory(task, doc_gather_init(&gather, estimate(task, node, ESTIMATE_DEPTH), task->fields->next_id));
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++) {
        struct doc_set part = {0};
        rc = fields_node(task, node->children[i], within, &part);
        if (rc == 0)
            rc = memory(task, doc_gather_put_set(&gather, &part));
        if (rc == 0)
            rc = fields_tick(task, part.n / 16 + 1);
        doc_set_fini(&part);
    }
    if (rc == 0)
        rc = memory(task, doc_gather_finish(&gather, out));
    doc_gather_fini(&gather);
    return rc;
}

static int eval_kind(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                     struct doc_set *out)
{
    int rc;
    switch (node->kind) {
    case QUERY_NONE:
        return 0;
    case QUERY_ALL:
    case QUERY_OPTIONAL: /* for itself it asks for nothing */
        return copy_all(task, within, out);
    case QUERY_AND:
        return node->slop >= 0 || node->in_order ? fields_phrase(task, node, within, out)
                                                 : eval_and(task, node, within, out);
    case QUERY_PHRASE:
        return fields_phrase(task, node, within, out);
    case QUERY_OR:
        return eval_or(task, node, within, out);
    case QUERY_NOT:
        rc = copy_all(task, within, out);
        return rc < 0 ? rc : narrow(task, node->children[0], false, out);
    case QUERY_TAG:
        return eval_tag(task, node, within, out);
    case QUERY_NUMERIC:
    case QUERY_GEO:
        return eval_numbers(task, node, within, out);
    case QUERY_MISSING:
        return eval_missing(task, node, out);
    case QUERY_RANGE:
    case QUERY_KNN:
        return eval_given(task, node, out);
    default:
        assert(node->kind == QUERY_TERM || is_pattern(node->kind));
        return eval_words(task, node, within, out);
    }
}

int fields_node(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                struct doc_set *out)
{
    *out = (struct doc_set){0};
    int rc = fields_tick(task, 100);
    if (rc == 0)
        rc = eval_kind(task, node, within, out);
    if (rc < 0)
        doc_set_fini(out);
    return rc;
}

/* As Roaring has it: by bits where ids are dense, otherwise by numbers. */
static int to_roaring(struct fields_task *task, const struct doc_set *set, roaring_bitmap_t **out)
{
    size_t n_words = set->n > 0 ? (size_t)doc_set_last(set) / 64 + 1 : 0;
    bool dense = set->n > n_words;
    uint64_t *bits = dense ? calloc(n_words, sizeof *bits) : NULL;
    uint32_t *ids = dense ? NULL : malloc((set->n + (size_t)1) * sizeof *ids);
    int rc = bits || ids ? 0 : QUIRE_ENOMEM;
    if (bits)
        doc_set_mark(set, bits, n_words);
    else if (ids)
        doc_set_ids(set, ids);
    if (rc == 0)
        rc = row_view_roaring(&(struct row_view){.rows = ids, .bits = bits, .n = dense ? n_words : set->n}, out);
    array_free_all(bits, ids);
    return rc == 0 ? 0 : no_memory(task);
}

int fields_eval(const struct fields *fields, const struct fields_request *request, roaring_bitmap_t **out,
                struct quire_error *err)
{
    struct fields_task task = {.fields = fields, .request = request, .err = err};
    struct doc_set found;
    int rc = fields_node(&task, request->root, NULL, &found);
    if (rc < 0)
        return rc;
    doc_set_and(&found, &fields->living);
    rc = to_roaring(&task, &found, out);
    doc_set_fini(&found);
    return rc;
}
