/*
 * fields_score.c - how well documents fit a query.
 *
 * The formulas are RediSearch's, so that whoever has tuned weights and thresholds finds them again:
 *   BM25STD         Robertson and Walker's BM25 (1994) with k1 1.2, b 0.75, idf ln(1 + (N - n + .5) / (n + .5))
 *   BM25STD.TANH    tanh of it divided by a factor
 *   BM25            an older form with b 0.5, of the average length only
 *   TFIDF           sum of frequency times idf, divided by the document's largest frequency, or (TFIDF.DOCNORM) by its
 *                   length; idf is the exponent of 1 + (N + 1) / n in base two
 *   DISMAX          frequencies: summed up by AND, the largest of an OR
 *   DOCSCORE        the document's own score
 * A frequency is the sum of the weights of the fields at each of the word's places, rounded down, at least 1 for each
 * place; for a stem of a fifth of them. A document's length is that of its words. Every sum is multiplied by the node's
 * $weight, and all but DISMAX by the document's score. TFIDF and BM25 are divided by how far the query's parts lie
 * apart. A tag counts as a word with frequency 1; numbers, places and vectors count nothing under BM25STD.
 *
 * Documents come in ascending order, so postings are passed through once. An OR's parts count for the documents that
 * they hold for only: for a part that is more than a leaf that set is evaluated.
 */
#include "document/fields/fields_priv.h"
#include <math.h>
#include <strings.h>

struct scoring {
    struct fields_task *task;
    enum fields_scorer scorer;
    double mean; /* length of a document */
};
/* Documents that a node is to be scored for. */
struct scored {
    const uint32_t *ids; /* ascending */
    double *sums;        /* of each; added to */
    size_t n;
};

bool fields_scorer_find(const char *name, size_t bytes, enum fields_scorer *out)
{
    static const struct {
        const char *name;
        enum fields_scorer scorer;
    } scorers[] = {{"BM25STD", FIELDS_BM25STD},  {"BM25STD.TANH", FIELDS_BM25STD_TANH},
                   {"BM25", FIELDS_BM25},        {"TFIDF", FIELDS_TFIDF},
                   {"DISMAX", FIELDS_DISMAX},    {"TFIDF.DOCNORM", FIELDS_TFIDF_DOCNORM},
                   {"DOCSCORE", FIELDS_DOCSCORE}};
    for (size_t i = 0; i < sizeof scorers / sizeof *scorers; i++)
        if (strlen(scorers[i].name) == bytes && strncasecmp(scorers[i].name, name, bytes) == 0) {
            *out = scorers[i].scorer;
            return true;
        }
    return false;
}

static int no_memory(const struct scoring *s)
{
    return error_set(s->task->err, QUIRE_ENOMEM, "no memory for the scores");
}

static bool is_bm25std(const struct scoring *s)
{
    return s->scorer == FIELDS_BM25STD || s->scorer == FIELDS_BM25STD_TANH;
}

static struct document_info info_of(const struct scoring *s, uint32_t id)
{
    const struct document_info *info = doc_pages_at(&s->task->fields->info, id);
    return info ? *info : (struct document_info){0};
}

/* ---- what one word does for one document ------------------------------------------------------------------------- */

static double idf_of(const struct scoring *s, uint64_t n_with)
{
    double all = (double)s->task->fields->living.n, with = (double)n_with;
    if (is_bm25std(s)) {
        all = all < with ? with : all; /* dead documents are counted until they are purged */
        return log(1 + (all - with + .5) / (with + .5));
    }
    return logb(1 + (all + 1) / (with > 0 ? with : 1));
}

/* A word, or what counts as one, with this frequency. */
static double term_score(const struct scoring *s, double idf, double frequency, uint32_t length)
{
    static const float k1 = 1.2f, b = .75f, b_old = .5f;
    double relative = s->mean > 0 ? length / s->mean : 0;
    switch (s->scorer) {
    case FIELDS_BM25STD:
    case FIELDS_BM25STD_TANH:
        return idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * relative));
    case FIELDS_BM25:
        return idf * frequency / (frequency + k1 * (1 - b_old + b_old * s->mean));
    case FIELDS_DISMAX:
        return frequency;
    default:
        return frequency * idf;
    }
}

/* What has no idf: everything, or a number. */
static double plain_score(const struct scoring *s, bool is_number, uint32_t length)
{
    return is_bm25std(s) && is_number ? 0 : term_score(s, 1, 1, length);
}

static double frequency_of(const struct fields *fields, const struct words_cursor *cursor)
{
    const uint32_t *weights = cursor->word->is_stem ? fields->stem_weights : fields->weights;
    struct words_field field = words_first_field(cursor);
    double frequency = 0;
    while (words_next_field(&field))
        frequency += (double)weights[field.field] * field.n;
    return frequency;
}

static double combined(const struct scoring *s, double a, double b)
{
    if (s->scorer == FIELDS_DISMAX)
        return a > b ? a : b;
    return a + b;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* What the words, or tags, that a leaf stands for do: each in turn, into sums of the leaf's own. */
struct leaf {
    struct scoring *s;
    const struct query_node *node;
    const struct scored *to;
    double *sums; /* owned */
};

/* The first place from `at` on whose id is not below `id`: steps that double, then halves. */
static size_t find_id(const struct scored *to, size_t at, uint32_t id)
{
    size_t step = 1, n;
    while (at + step <= to->n && to->ids[at + step - 1] < id) {
        at += step;
        step *= 2;
    }
    for (n = at + step <= to->n ? step : to->n - at; n > 0;) {
        if (to->ids[at + n / 2] < id) {
            at += n / 2 + 1;
            n -= n / 2 + 1;
        } else {
            n /= 2;
        }
    }
    return at;
}

static void add_term(struct leaf *leaf, size_t at, double idf, double frequency)
{
    double score = term_score(leaf->s, idf, frequency, info_of(leaf->s, leaf->to->ids[at]).length);
    leaf->sums[at] = combined(leaf->s, leaf->sums[at], score);
}

static int add_word(struct leaf *leaf, const struct word *word)
{
    struct words_cursor cursor = words_begin(word);
    double idf = idf_of(leaf->s, word->n_documents);
    int rc = fields_tick(leaf->s->task, 10);
    for (size_t i = 0; rc == 0 && i < leaf->to->n && words_seek(&cursor, leaf->to->ids[i]);) {
        i = find_id(leaf->to, i, cursor.id);
        if (i == leaf->to->n || leaf->to->ids[i] != cursor.id)
            continue;
        if (words_fields(&cursor) & leaf->node->text_fields)
            add_term(leaf, i, idf, frequency_of(leaf->s->task->fields, &cursor));
        i++;
        rc = fields_tick(leaf->s->task, 10);
    }
    return rc;
}

static int add_tag(void *context, const struct tag *tag)
{
    struct leaf *leaf = context;
    const struct scored *to = leaf->to;
    double idf = idf_of(leaf->s, tag->documents.n);
    size_t at = 0, work = 0;
    if (tag->documents.n / 2 > to->n) {
        for (size_t i = 0; i < to->n; i++)
            if (doc_set_has(&tag->documents, to->ids[i]))
                add_term(leaf, i, idf, 1);
        work = to->n;
    } else {
        struct doc_walk walk = doc_walk(&tag->documents);
        for (uint32_t id; at < to->n && doc_walk_next(&walk, &id); work++) {
            at = find_id(to, at, id);
            if (at < to->n && to->ids[at] == id)
                add_term(leaf, at, idf, 1);
        }
    }
    return fields_tick(leaf->s->task, work < UINT32_MAX / 4 ? 4 * (uint32_t)work + 4 : UINT32_MAX);
}

static int add_leaf(struct scoring *s, const struct query_node *node, double weight, const struct scored *to)
{
    struct leaf leaf = {.s = s, .node = node, .to = to, .sums = calloc(to->n + 1, sizeof *leaf.sums)};
    struct fields_words words = {0};
    const struct field *field;
    int rc = leaf.sums ? 0 : no_memory(s);
    if (rc == 0 && node->kind == QUERY_TAG) {
        rc = fields_field_of(s->task, node, SCHEMA_TAG, &field);
        for (uint32_t i = 0; rc == 0 && i < node->n_children; i++)
            rc = fields_tags_of(s->task, field, node->children[i], add_tag, &leaf);
    } else if (rc == 0) {
        rc = fields_words_of(s->task, node, &words);
        for (uint32_t i = 0; rc == 0 && i < words.n; i++)
            rc = add_word(&leaf, words.at[i]);
    }
    for (size_t i = 0; rc == 0 && i < to->n; i++)
        to->sums[i] += weight * leaf.sums[i];
    array_free_all(leaf.sums, words.at);
    return rc;
}

static int add_node(struct scoring *s, const struct query_node *node, double weight, const struct scored *to);

static bool is_leaf(const struct query_node *node)
{
    return node->n_children == 0 || node->kind == QUERY_TAG;
}

/* A part that need not hold: it counts for the documents for which it does. Sums go to *part, by document. */
static int add_part(struct scoring *s, const struct query_node *node, const struct scored *to, double *part)
{
    struct scored all = {.ids = to->ids, .n = to->n, .sums = part}, some = {0};
    struct doc_set among = {0}, holds = {0};
    uint32_t *ids = NULL;
    if (node->kind == QUERY_TAG || (is_leaf(node) && node->kind != QUERY_NUMERIC && node->kind != QUERY_GEO))
        return add_node(s, node, 1, &all);
    int rc = doc_set_from(to->ids, to->n, &among) ? fields_node(s->task, node, &among, &holds) : no_memory(s);
    if (rc == 0) {
        doc_set_and(&holds, &among);
        some = (struct scored){.n = holds.n, .sums = calloc(holds.n + (size_t)1, sizeof *some.sums)};
        some.ids = ids = malloc((holds.n + (size_t)1) * sizeof *ids);
        rc = ids && some.sums ? 0 : no_memory(s);
    }
    if (rc == 0) {
        doc_set_ids(&holds, ids);
        rc = add_node(s, node, 1, &some);
    }
    for (size_t i = 0, k = 0; rc == 0 && i < to->n && k < some.n; i++)
        if (to->ids[i] == some.ids[k])
            part[i] += some.sums[k++];
    array_free_all(ids, some.sums);
    doc_set_fini(&among);
    doc_set_fini(&holds);
    return rc;
}

static int add_any(struct scoring *s, const struct query_node *node, double weight, const struct scored *to)
{
    double *part = malloc((to->n + 1) * sizeof *part), *sums = calloc(to->n + 1, sizeof *sums);
    int rc = part && sums ? 0 : no_memory(s);
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++) {
        memset(part, 0, to->n * sizeof *part);
        rc = add_part(s, node->children[i], to, part);
        for (size_t k = 0; rc == 0 && k < to->n; k++)
            sums[k] = combined(s, sums[k], part[k]);
    }
    for (size_t i = 0; rc == 0 && i < to->n; i++)
        to->sums[i] += weight * sums[i];
    array_free_all(part, sums);
    return rc;
}

/* The node holds for all of the documents, unless it is a leaf. */
static int add_node(struct scoring *s, const struct query_node *node, double weight, const struct scored *to)
{
    int rc = fields_tick(s->task, 100);
    weight *= node->weight;
    switch (node->kind) {
    case QUERY_AND:
    case QUERY_PHRASE:
        for (uint32_t i = 0; rc == 0 && i < node->n_children; i++)
            rc = add_node(s, node->children[i], weight, to);
        return rc;
    case QUERY_OR:
    case QUERY_OPTIONAL:
        return rc < 0 ? rc : add_any(s, node, weight, to);
    case QUERY_TERM:
    case QUERY_PREFIX:
    case QUERY_SUFFIX:
    case QUERY_INFIX:
    case QUERY_WILDCARD:
    case QUERY_FUZZY:
    case QUERY_TAG:
        return rc < 0 ? rc : add_leaf(s, node, weight, to);
    case QUERY_ALL:
    case QUERY_NUMERIC:
    case QUERY_GEO:
        for (size_t i = 0; rc == 0 && i < to->n; i++)
            to->sums[i] += weight * plain_score(s, node->kind != QUERY_ALL, info_of(s, to->ids[i]).length);
        return rc;
    default: /* NOT, MISSING, vectors */
        return rc;
    }
}

/* ---- from sums to scores ----------------------------------------------------------------------------------------- */

static double score_from(const struct scoring *s, double sum, const struct document_info *info, double apart,
                         double tanh_factor)
{
    uint32_t norm = s->scorer == FIELDS_TFIDF_DOCNORM ? info->length : info->most;
    double score = (double)fields_info_score(info);
    switch (s->scorer) {
    case FIELDS_DOCSCORE:
        return score;
    case FIELDS_DISMAX:
        return sum;
    case FIELDS_BM25STD:
        return score * sum;
    case FIELDS_BM25STD_TANH:
        return tanh(score * sum / tanh_factor);
    case FIELDS_BM25:
        return score * sum / apart;
    default:
        return norm > 0 ? score * sum / norm / apart : 0;
    }
}

int fields_score(const struct fields *fields, const struct fields_request *request, enum fields_scorer scorer,
                 double tanh_factor, const uint32_t *ids, size_t n, double *scores, struct quire_error *err)
{
    struct fields_task task = {.fields = fields, .request = request, .err = err};
    struct scoring s = {.task = &task, .scorer = scorer};
    struct scored all = {.ids = ids, .n = n, .sums = calloc(n + 1, sizeof *all.sums)};
    bool distances = scorer == FIELDS_TFIDF || scorer == FIELDS_TFIDF_DOCNORM || scorer == FIELDS_BM25;
    uint32_t *apart = calloc(n + 1, sizeof *apart);
    int rc = all.sums && apart ? 0 : no_memory(&s);
    s.mean = fields->living.n > 0 ? (double)fields->length_total / fields->living.n : 0;
    if (rc == 0 && scorer != FIELDS_DOCSCORE)
        rc = add_node(&s, request->root, 1, &all);
    if (rc == 0 && distances)
        rc = fields_apart(&task, request->root, ids, n, apart);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct document_info info = info_of(&s, ids[i]);
        scores[i] = score_from(&s, all.sums[i], &info, distances ? apart[i] : 1, tanh_factor);
    }
    array_free_all(all.sums, apart);
    return rc;
}
