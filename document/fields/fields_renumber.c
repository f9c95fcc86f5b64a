/*
 * fields_renumber.c - the living documents of an index under new ids without gaps.
 *
 * Ids are used up by updates, and there are 2^32 of them; and what is as long as the largest id (bits of a range) wants
 * them dense. Everything is copied into new fields beside the old ones, which stay as they are, so that running out of
 * memory leaves no half of each. The order of ids stays, so postings are copied as they are but for their ids.
 */
#include "document/fields/fields_priv.h"

struct renumbering {
    const struct fields *from;
    struct fields *to;
    uint32_t *old_ids; /* ascending */
    uint32_t n;
};

/* The new id; false: the document is dead. */
static bool new_id(const struct renumbering *r, uint32_t old, uint32_t *id)
{
    uint32_t first = 0, n = r->n;
    while (n > 0) {
        if (r->old_ids[first + n / 2] < old) {
            first += n / 2 + 1;
            n -= n / 2 + 1;
        } else {
            n /= 2;
        }
    }
    *id = first;
    return first < r->n && r->old_ids[first] == old;
}

/* Appends the new ids of the set's living documents. */
static bool copy_set(const struct renumbering *r, const struct doc_set *from, struct doc_set *to)
{
    struct doc_walk walk = doc_walk(from);
    for (uint32_t old, id; doc_walk_next(&walk, &old);)
        if (new_id(r, old, &id) && !doc_set_append(to, id))
            return false;
    return true;
}

static bool copy_word(const struct renumbering *r, const struct word *word)
{
    struct vocabulary *words = word->is_stem ? &r->to->stems : &r->to->words;
    struct words_cursor cursor = words_begin(word);
    struct word *to = NULL;
    uint32_t id;
    while (words_next(&cursor)) {
        struct words_posting posting = {.payload = cursor.payload};
        if (!new_id(r, cursor.id, &id))
            continue;
        if (!to) {
            to = (struct word *)vocabulary_add(words, word->entry.text, word->entry.bytes, sizeof *to);
            if (!to)
                return false;
            to->is_stem = word->is_stem;
        }
        posting.id = id;
        posting.bytes = (uint32_t)(cursor.payload_end - cursor.payload);
        if (!words_prepare(to, &posting, &r->to->posting_bytes))
            return false;
        words_commit(to, &posting);
        r->to->n_records++;
        struct words_field field = words_first_field(&cursor);
        while (words_next_field(&field))
            r->to->n_positions += field.n;
    }
    r->to->n_blocks += to ? to->n_blocks : 0;
    return true;
}

static bool copy_words(const struct renumbering *r, const struct vocabulary *words)
{
    struct vocabulary_entry *entry;
    struct sorted_place at = {0};
    for (; vocabulary_sorted_at(&words->sorted, &at, &entry); at.index++)
        if (!copy_word(r, (const struct word *)entry))
            return false;
    return true;
}

static bool copy_tags(const struct renumbering *r, const struct field *from, struct field *to)
{
    struct vocabulary_entry *entry;
    struct sorted_place at = {0};
    for (; vocabulary_sorted_at(&from->tags.sorted, &at, &entry); at.index++) {
        struct doc_set documents = {0};
        if (!copy_set(r, &((const struct tag *)entry)->documents, &documents)) {
            doc_set_fini(&documents);
            return false;
        }
        if (documents.n == 0)
            continue;
        struct tag *tag = (struct tag *)vocabulary_add(&to->tags, entry->text, entry->bytes, sizeof *tag);
        if (!tag) {
            doc_set_fini(&documents);
            return false;
        }
        tag->documents = documents;
        to->tag_set_bytes += doc_set_bytes(&documents);
    }
    return true;
}

/* One document's numbers; *numbers is an array that grows. */
static bool copy_numbers_of(const struct renumbering *r, const struct number_tree *from, uint32_t id,
                            struct number_tree *to, double **numbers, uint32_t *capacity)
{
    uint32_t n = 0;
    for (double number; number_at(from, r->old_ids[id], n, &number); n++) {
        if (!array_reserve(numbers, capacity, (size_t)n + 1))
            return false;
        (*numbers)[n] = number;
    }
    return n == 0 || number_add(to, id, *numbers, n);
}

static bool copy_numbers(const struct renumbering *r, const struct number_tree *from, struct number_tree *to)
{
    double *numbers = NULL;
    uint32_t capacity = 0, id = 0;
    if (number_count(from) == 0)
        return true;
    while (id < r->n && copy_numbers_of(r, from, id, to, &numbers, &capacity))
        id++;
    free(numbers);
    return id == r->n;
}

static bool copy_info(const struct renumbering *r)
{
    for (uint32_t id = 0; id < r->n; id++) {
        const struct document_info *info = doc_pages_at(&r->from->info, r->old_ids[id]);
        struct document_info *to = info ? doc_pages_make(&r->to->info, id) : NULL;
        if (info && !to)
            return false;
        if (info)
            *to = *info;
        r->to->length_total += info ? info->length : 0;
    }
    return true;
}

static bool copy_all(const struct renumbering *r)
{
    bool copied = copy_set(r, &r->from->living, &r->to->living) && copy_words(r, &r->from->words) &&
                  copy_words(r, &r->from->stems) && copy_info(r);
    for (uint32_t i = 0; copied && i < r->from->n_fields; i++) {
        const struct field *from = &r->from->fields[i];
        struct field *to = &r->to->fields[i];
        copied = copy_tags(r, from, to) && copy_numbers(r, &from->numbers, &to->numbers) &&
                 copy_set(r, &from->missing, &to->missing);
    }
    return copied;
}

int fields_renumber(const struct fields *fields, struct fields **out, uint32_t **old_ids, struct quire_error *err)
{
    struct renumbering r = {.from = fields, .n = fields->living.n};
    int rc = fields_create(fields->schema, &r.to, err);
    if (rc < 0)
        return rc;
    r.old_ids = malloc((r.n + (size_t)1) * sizeof *r.old_ids);
    if (r.old_ids)
        doc_set_ids(&fields->living, r.old_ids);
    if (!r.old_ids || !copy_all(&r)) {
        free(r.old_ids);
        fields_free(r.to);
        return error_set(err, QUIRE_ENOMEM, "no memory to renumber %u documents", r.n);
    }
    r.to->next_id = r.n;
    assert(r.to->living.n == r.n && r.to->length_total == fields->length_total);
    *out = r.to;
    *old_ids = r.old_ids;
    return 0;
}
