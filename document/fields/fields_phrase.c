/*
 * fields_phrase.c - words next to each other: phrases, and any parts of a query within a distance.
 *
 * First the documents that have all parts, as for an AND. Then, document by document, the places of each part (the
 * places of all words that it stands for, in order) are gone through for places that are near enough. The rules are
 * RediSearch's. The gaps between parts, summed up, are at most the slop; a phrase in quotes has slop 0, and parts in
 * order. Parts may have the same place, so "x x" is in a text with one x, and a part that has no places, a tag or a
 * number, does not count. Only places in the fields of a part's own node count (RediSearch forgets which field a place
 * is in). Places go on from one field to the next, and a phrase may do so, too.
 */
#include "document/fields/fields_priv.h"
#include <math.h>

/* One of the words that a part stands for. */
struct part_word {
    struct words_cursor cursor;
    uint64_t fields;             /* in which it counts */
    const struct doc_set *holds; /* not NULL: its part of the query need not hold, and does in these documents */
};
/* One part of the phrase: the places, in this document, of the words it stands for. */
struct part {
    struct part_word *words; /* owned */
    uint32_t n, capacity;
    uint32_t *positions; /* owned; ascending, of the document at hand */
    uint32_t n_positions, positions_capacity, at;
};
struct phrase {
    struct fields_task *task;
    const struct doc_set *among; /* documents that will be asked for */
    struct doc_set **holds;      /* owned, as the sets */
    uint32_t n_holds, holds_capacity;
    struct part *parts; /* owned; those that have words */
    uint32_t n;
    struct part **near; /* owned; those of them that have places in the document at hand */
    uint32_t n_near;
    int64_t slop; /* at most; INT64_MAX: any */
    bool in_order;
};

static int no_memory(struct fields_task *task)
{
    return error_set(task->err, QUIRE_ENOMEM, "no memory to look for a phrase");
}

/* The documents among `within` for which a node holds, kept as long as the phrase. */
static int add_holds(struct phrase *phrase, const struct query_node *node, const struct doc_set *within,
                     const struct doc_set **out)
{
    if (!array_reserve(&phrase->holds, &phrase->holds_capacity, (size_t)phrase->n_holds + 1))
        return no_memory(phrase->task);
    struct doc_set *holds = calloc(1, sizeof *holds);
    if (!holds)
        return no_memory(phrase->task);
    phrase->holds[phrase->n_holds++] = holds;
    int rc = fields_node(phrase->task, node, within, holds);
    if (rc == 0)
        doc_set_and(holds, within);
    *out = holds;
    return rc;
}

/* The words of a node, and of what is below it, but for what a NOT excludes, are the part's. Below an OR a node need
 * not hold in a document that the phrase is looked for in, and its words count where it does; a leaf without its word
 * has no places anyway. */
static int add_words(struct phrase *phrase, const struct query_node *node, bool need_not_hold,
                     const struct doc_set *holds, struct part *part)
{
    bool all = node->kind == QUERY_AND || node->kind == QUERY_PHRASE;
    bool any = node->kind == QUERY_OR || node->kind == QUERY_OPTIONAL;
    struct fields_words words = {0};
    int rc = 0;
    if (all && need_not_hold)
        rc = add_holds(phrase, node, holds ? holds : phrase->among, &holds);
    for (uint32_t i = 0; (all || any) && rc == 0 && i < node->n_children; i++)
        rc = add_words(phrase, node->children[i], any, holds, part);
    if (all || any || rc < 0)
        return rc;
    rc = fields_words_of(phrase->task, node, &words);
    if (rc == 0 && words.n > 0 && !array_reserve(&part->words, &part->capacity, (size_t)part->n + words.n))
        rc = no_memory(phrase->task);
    for (uint32_t i = 0; rc == 0 && i < words.n; i++)
        part->words[part->n++] = (struct part_word){words_begin(words.at[i]), node->text_fields, holds};
    free(words.at);
    return rc;
}

/* The part's places in a document; documents come in ascending order. False without memory. */
static bool find_positions(struct part *part, uint32_t id)
{
    part->n_positions = part->at = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        struct words_cursor *cursor = &part->words[i].cursor;
        const struct doc_set *holds = part->words[i].holds;
        if (!words_seek(cursor, id) || cursor->id != id || (holds && !doc_set_has(holds, id)))
            continue;
        struct words_field field = words_first_field(cursor);
        while (words_next_field(&field)) {
            if (!(part->words[i].fields >> field.field & 1))
                continue;
            if (!array_reserve(&part->positions, &part->positions_capacity, (size_t)part->n_positions + field.n))
                return false;
            while (words_next_place(&field, &part->positions[part->n_positions]))
                part->n_positions++;
        }
    }
    if (part->n > 1 && part->n_positions > 1)
        array_sort_u32(part->positions, part->n_positions);
    return true;
}

/* Whether each part has a place not before that of the part before it, all within the slop. */
static bool is_near_in_order(struct phrase *phrase)
{
    struct part *first = phrase->near[0];
    for (; first->at < first->n_positions; first->at++) {
        uint32_t before = first->positions[first->at];
        int64_t gaps = 0;
        for (uint32_t i = 1; i < phrase->n_near && gaps <= phrase->slop; i++) {
            struct part *part = phrase->near[i];
            while (part->at < part->n_positions && part->positions[part->at] < before)
                part->at++;
            if (part->at == part->n_positions)
                return false; /* nor for any later place of the first */
            gaps += (int64_t)part->positions[part->at] - before - 1;
            before = part->positions[part->at];
        }
        if (gaps <= phrase->slop)
            return true;
    }
    return false;
}

static uint32_t place_of(const struct part *part)
{
    return part->positions[part->at];
}

/* Whether there is a place of each part with so few others between them; not all at the same place. */
static bool is_near(struct phrase *phrase)
{
    for (;;) {
        struct part *least = phrase->near[0], *most = phrase->near[0];
        for (uint32_t i = 0; i < phrase->n_near; i++) {
            least = place_of(phrase->near[i]) < place_of(least) ? phrase->near[i] : least;
            most = place_of(phrase->near[i]) > place_of(most) ? phrase->near[i] : most;
        }
        int64_t span = (int64_t)place_of(most) - place_of(least);
        if (span > 0 && span - (phrase->n_near - 1) <= phrase->slop)
            return true;
        if (++least->at == least->n_positions)
            return false;
    }
}

/* The parts' places in the document: which of them have some. */
static int find_parts(struct phrase *phrase, uint32_t id)
{
    uint32_t work = 4;
    phrase->n_near = 0;
    for (uint32_t i = 0; i < phrase->n; i++) {
        struct part *part = &phrase->parts[i];
        if (!find_positions(part, id))
            return no_memory(phrase->task);
        work += 10 * part->n + part->n_positions;
        if (part->n_positions > 0)
            phrase->near[phrase->n_near++] = part;
    }
    return fields_tick(phrase->task, work);
}

/* Of the documents in `among`, which have all parts, those that have them near each other go to *out. */
static int test_documents(struct phrase *phrase, const struct doc_set *among, struct doc_set *out)
{
    struct doc_walk walk = doc_walk(among);
    int rc = 0;
    for (uint32_t id; rc == 0 && doc_walk_next(&walk, &id);) {
        rc = find_parts(phrase, id);
        bool found =
            rc == 0 && (phrase->n_near <= 1 || (phrase->in_order ? is_near_in_order(phrase) : is_near(phrase)));
        if (found && !doc_set_append(out, id))
            rc = no_memory(phrase->task);
    }
    return rc;
}

static int begin_parts(struct phrase *phrase, const struct query_node *node)
{
    int rc = 0;
    phrase->parts = calloc(node->n_children + (size_t)1, sizeof *phrase->parts);
    phrase->near = calloc(node->n_children + (size_t)1, sizeof *phrase->near);
    if (!phrase->parts || !phrase->near)
        return no_memory(phrase->task);
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++) {
        rc = add_words(phrase, node->children[i], node->kind == QUERY_OR, NULL, &phrase->parts[phrase->n]);
        phrase->n += phrase->parts[phrase->n].n > 0;
    }
    return rc;
}

static void end_parts(struct phrase *phrase, const struct query_node *node)
{
    for (uint32_t i = 0; phrase->parts && i < node->n_children; i++)
        array_free_all(phrase->parts[i].words, phrase->parts[i].positions);
    for (uint32_t i = 0; i < phrase->n_holds; i++) {
        doc_set_fini(phrase->holds[i]);
        free(phrase->holds[i]);
    }
    array_free_all(phrase->parts, phrase->near, phrase->holds);
}

int fields_phrase(struct fields_task *task, const struct query_node *node, const struct doc_set *within,
                  struct doc_set *out)
{
    struct query_node all = *node;
    struct phrase phrase = {.task = task, .slop = node->slop, .in_order = node->in_order};
    struct doc_set among = {0};
    if (node->kind == QUERY_PHRASE && node->slop < 0 && !node->in_order)
        phrase = (struct phrase){.task = task, .slop = 0, .in_order = true};
    else if (node->slop < 0)
        phrase.slop = INT64_MAX;
    all.kind = QUERY_AND;
    all.slop = -1;
    all.in_order = false;
    int rc = fields_node(task, &all, within, &among);
    phrase.among = &among;
    if (rc == 0)
        rc = begin_parts(&phrase, node);
    if (rc == 0 && phrase.n > 1) {
        rc = test_documents(&phrase, &among, out);
    } else if (rc == 0) {
        *out = among;
        among = (struct doc_set){0};
    }
    end_parts(&phrase, node);
    doc_set_fini(&among);
    return rc;
}

/* ---- how far apart ----------------------------------------------------------------------------------------------- */

static uint64_t least_distance(const struct part *a, const struct part *b)
{
    uint64_t least = UINT32_MAX;
    for (uint32_t i = 0, k = 0; i < a->n_positions && k < b->n_positions;) {
        uint32_t x = a->positions[i], y = b->positions[k];
        uint64_t distance = x > y ? x - y : y - x;
        least = distance < least ? distance : least;
        i += y > x;
        k += y <= x;
    }
    return least;
}

int fields_apart(struct fields_task *task, const struct query_node *node, const uint32_t *ids, size_t n,
                 uint32_t *apart)
{
    bool has_parts = node->kind == QUERY_AND || node->kind == QUERY_OR || node->kind == QUERY_PHRASE;
    struct doc_set among;
    struct phrase phrase = {.task = task, .among = &among};
    int rc = doc_set_from(ids, n, &among) ? 0 : no_memory(task);
    if (rc == 0 && has_parts)
        rc = begin_parts(&phrase, node);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint64_t squares = 0;
        apart[i] = 1;
        if (!has_parts || node->n_children < 2)
            continue;
        rc = find_parts(&phrase, ids[i]);
        for (uint32_t k = 1; k < phrase.n_near; k++) {
            uint64_t distance = least_distance(phrase.near[k - 1], phrase.near[k]);
            squares += distance * distance;
        }
        uint32_t n_parts = node->kind == QUERY_OR ? phrase.n_near : node->n_children;
        double root = squares > 0 ? sqrt((double)squares) : n_parts - 1.0;
        apart[i] = root < 1 ? 1 : root < UINT32_MAX ? (uint32_t)root : UINT32_MAX;
    }
    if (has_parts)
        end_parts(&phrase, node);
    doc_set_fini(&among);
    return rc;
}
