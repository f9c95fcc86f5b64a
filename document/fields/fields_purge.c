/*
 * fields_purge.c - dead ids leave the indexes, a slice at a time.
 *
 * A purge begins with a copy of the living and goes through words, stems, fields and infos once; what died after its
 * beginning is the next one's. Between two slices documents come and go. A place in a vocabulary then may lie a little
 * before where the purge was, and some entries are gone through again; or, where an entry has vanished, one further,
 * and that one keeps its dead until the next purge, which costs memory and nothing else. (A number that is left out
 * would cost the order of its tree; number_purge says why none is.)
 */
#include "document/fields/fields_priv.h"

#define WORTH_DEAD   1000u        /* least dead, and */
#define WORTH_PART   4u           /* 1 : this of the living */
#define SLICE_BYTES  (128u << 10) /* of postings, in one slice */
#define ENTRY_BYTES  64u          /* what an entry without postings counts */
#define SLICE_PAGES  2048u
#define RENUMBER_IDS (UINT32_C(1) << 31) /* from which id on ids are given anew */

static bool begin(struct fields *fields)
{
    struct purge *purge = &fields->purge;
    if (fields->n_dead < WORTH_DEAD || fields->n_dead * WORTH_PART < fields->living.n)
        return false;
    *purge = (struct purge){.end = fields->next_id, .n_dead = fields->n_dead};
    if (!doc_set_copy(&fields->living, &purge->living))
        return false;
    purge->stage = PURGE_WORDS;
    return true;
}

static void next_stage(struct purge *purge)
{
    purge->stage++;
    purge->place = (struct sorted_place){0};
    purge->block = 0;
    purge->at = 0;
}

static void purge_words(struct fields *fields, struct vocabulary *words)
{
    struct purge *purge = &fields->purge;
    struct words_purge slice = {
        .kept = &purge->living, .end = purge->end, .budget = SLICE_BYTES, .memory = &fields->posting_bytes};
    struct vocabulary_entry *entry;
    while (slice.budget > 0 && vocabulary_sorted_at(&words->sorted, &purge->place, &entry)) {
        struct word *word = (struct word *)entry;
        if (!words_purge(word, &slice, &purge->block))
            break;
        slice.budget -= slice.budget < ENTRY_BYTES ? slice.budget : ENTRY_BYTES;
        purge->block = 0;
        if (word->n_documents > 0) {
            purge->place.index++;
            continue;
        }
        fields->posting_bytes -= words_bytes(word);
        words_fini(word);
        vocabulary_remove(words, entry, sizeof *word);
    }
    fields->n_records -= slice.records;
    fields->n_positions -= slice.places;
    fields->n_blocks -= slice.blocks;
    if (!vocabulary_sorted_at(&words->sorted, &purge->place, &entry))
        next_stage(purge);
}

/* Whether all tags of the field have been gone through. */
static bool purge_tags(struct fields *fields, struct field *field)
{
    struct purge *purge = &fields->purge;
    struct vocabulary_entry *entry;
    for (uint64_t bytes = 0; vocabulary_sorted_at(&field->tags.sorted, &purge->place, &entry);) {
        struct tag *tag = (struct tag *)entry;
        uint64_t before = doc_set_bytes(&tag->documents);
        if (bytes >= SLICE_BYTES)
            return false;
        doc_set_purge(&tag->documents, &purge->living, purge->end);
        field->tag_set_bytes -= before - doc_set_bytes(&tag->documents);
        bytes += ENTRY_BYTES + before;
        if (tag->documents.n > 0) {
            purge->place.index++;
            continue;
        }
        field->tag_set_bytes -= doc_set_bytes(&tag->documents);
        doc_set_fini(&tag->documents);
        vocabulary_remove(&field->tags, entry, sizeof *tag);
    }
    return true;
}

static void purge_field(struct fields *fields)
{
    struct purge *purge = &fields->purge;
    if (purge->field == fields->n_fields) {
        next_stage(purge);
        return;
    }
    struct field *field = &fields->fields[purge->field];
    if (!purge_tags(fields, field) || !number_purge(&field->numbers, &purge->living, purge->end, &purge->at))
        return;
    doc_set_purge(&field->missing, &purge->living, purge->end);
    purge->field++;
    purge->place = (struct sorted_place){0};
    purge->at = 0;
}

static void purge_info(struct fields *fields)
{
    struct purge *purge = &fields->purge;
    doc_pages_purge(&fields->info, (uint32_t)purge->at, SLICE_PAGES, &purge->living, purge->end);
    purge->at += SLICE_PAGES;
    if (purge->at < fields->info.n_pages)
        return;
    assert(fields->n_dead >= purge->n_dead);
    fields->n_dead -= purge->n_dead;
    doc_set_fini(&purge->living);
    *purge = (struct purge){.stage = PURGE_NONE};
}

bool fields_purge(struct fields *fields)
{
    struct purge *purge = &fields->purge;
    if (purge->stage == PURGE_NONE)
        return begin(fields);
    switch (purge->stage) {
    case PURGE_WORDS:
        purge_words(fields, &fields->words);
        break;
    case PURGE_STEMS:
        purge_words(fields, &fields->stems);
        break;
    case PURGE_FIELDS:
        purge_field(fields);
        break;
    default:
        assert(purge->stage == PURGE_INFO);
        purge_info(fields);
    }
    return purge->stage != PURGE_NONE;
}

bool fields_want_renumber(const struct fields *fields)
{
    return fields->next_id >= RENUMBER_IDS || fields->next_id / 64 > fields->living.n + (1u << 16);
}
