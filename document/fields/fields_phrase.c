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

/* One part of the phrase: the places, in this document, of the words it stands for. */
struct part {
    struct words_cursor *cursors; /* owned */
    uint64_t *fields;             /* owned: of each cursor */
    uint32_t n, capacity, fields_capacity;
    uint32_t *positions; /* owned; ascending, of the document at hand */
    uint32_t n_positions, positions_capacity, at;
};
struct phrase {
    struct fields_task *task;
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

/* The words of a node, and of what is below it, but for what a NOT excludes, are the part's. */
static int add_words(struct fields_task *task, const struct query_node *node, struct part *part)
{
    struct fields_words words = {0};
    if (node->kind == QUERY_OR || node->kind == QUERY_AND || node->kind == QUERY_PHRASE) {
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < node->n_children; i++)
            rc = add_words(task, node->children[i], part);
        return rc;
    }
    int rc = fields_words_of(task, node, &words);
    if (rc == 0 && words.n > 0 &&
        (!array_reserve(&part->cursors, &part->capacity, (size_t)part->n + words.n) ||
         !array_reserve(&part->fields, &part->fields_capacity, (size_t)part->n + words.n)))
        rc = no_memory(task);
    for (uint32_t i = 0; rc == 0 && i < words.n; i++) {
        part->fields[part->n] = node->text_fields;
        part->cursors[part->n++] = words_begin(words.at[i]);
    }
    free(words.at);
    return rc;
}

/* The part's places in a document; documents come in ascending order. False without memory. */
static bool find_positions(struct part *part, uint32_t id)
{
    part->n_positions = part->at = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        struct words_cursor *cursor = &part->cursors[i];
        if (!words_seek(cursor, id) || cursor->id != id)
            continue;
        struct words_field field = words_first_field(cursor);
        while (words_next_field(&field)) {
            if (!(part->fields[i] >> field.field & 1))
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

/* Of the documents in `among`, which have all parts, those that have them near each other go to *out. */
static int test_documents(struct phrase *phrase, const struct doc_set *among, struct doc_set *out)
{
    struct doc_walk walk = doc_walk(among);
    for (uint32_t id; doc_walk_next(&walk, &id);) {
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
        bool found = phrase->n_near <= 1 || (phrase->in_order ? is_near_in_order(phrase) : is_near(phrase));
        if (found && !doc_set_append(out, id))
            return no_memory(phrase->task);
        int rc = fields_tick(phrase->task, work);
        if (rc < 0)
            return rc;
    }
    return 0;
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
    phrase.parts = calloc(node->n_children + (size_t)1, sizeof *phrase.parts);
    phrase.near = calloc(node->n_children + (size_t)1, sizeof *phrase.near);
    if (rc == 0 && (!phrase.parts || !phrase.near))
        rc = no_memory(task);
    for (uint32_t i = 0; rc == 0 && i < node->n_children; i++) {
        rc = add_words(task, node->children[i], &phrase.parts[phrase.n]);
        phrase.n += phrase.parts[phrase.n].n > 0;
    }
    if (rc == 0 && phrase.n > 1) {
        rc = test_documents(&phrase, &among, out);
    } else if (rc == 0) {
        *out = among;
        among = (struct doc_set){0};
    }
    for (uint32_t i = 0; phrase.parts && i < node->n_children; i++)
        array_free_all(phrase.parts[i].cursors, phrase.parts[i].fields, phrase.parts[i].positions);
    array_free_all(phrase.parts, phrase.near);
    doc_set_fini(&among);
    return rc;
}
