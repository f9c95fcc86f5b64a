/*
 * fields_add.c - a document comes, a document goes.
 *
 * A document is added in two steps. The first does all that may fail: it splits tags and reads words, makes entries for
 * those that are new, puts numbers into their order, encodes postings, and makes room wherever the id will go. If it
 * fails, numbers are taken out again and entries without documents removed, which needs no memory, so nothing is left
 * of the id. The second step appends the id everywhere and cannot fail. No reader sees what is between the two: the
 * caller holds its write lock.
 */
#include "document/fields/fields_priv.h"
#include "document/fields/geo.h"
#include "document/text/fold.h"
#include "document/text/text_words.h"
#include <math.h>

#define SCRATCH_KEPT (1u << 16) /* items of the arrays that stay from one document to the next */

/* ---- first step: tags -------------------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int no_memory(struct quire_error *err, uint32_t id)
{
    return error_set(err, QUIRE_ENOMEM, "no memory to index document %u", id);
}

/* One tag of the document; `text` is trimmed. False without memory. */
static bool prepare_tag(struct fields *fields, uint32_t index, uint32_t id, const char *text, uint32_t bytes)
{
    struct field *field = &fields->fields[index];
    if (!fields->schema->fields[index].case_sensitive) {
        if (!array_reserve(&fields->folded, &fields->folded_capacity, FOLD_ROOM(bytes) + 1))
            return false;
        bytes = fold_text(text, bytes, fields->folded);
        text = fields->folded;
    }
    if (!array_reserve(&fields->taggings, &fields->taggings_capacity, fields->n_taggings + 1))
        return false;
    struct tag *tag = (struct tag *)vocabulary_find(&field->tags, text, bytes);
    if (!tag)
        tag = (struct tag *)vocabulary_add(&field->tags, text, bytes, sizeof *tag);
    if (!tag)
        return false;
    fields->taggings[fields->n_taggings++] = (struct field_tagging){.field = field, .tag = tag};
    uint64_t before = doc_set_bytes(&tag->documents);
    bool reserved = doc_set_reserve(&tag->documents, id);
    field->tag_set_bytes += doc_set_bytes(&tag->documents) - before;
    return reserved;
}

/* A value's tags: between separators, without the blanks around them. */
static bool prepare_tags(struct fields *fields, uint32_t index, uint32_t id, const char *text, uint32_t bytes)
{
    const struct schema_field *field = &fields->schema->fields[index];
    for (uint32_t at = 0; at <= bytes;) {
        uint32_t end = at;
        while (end < bytes && (field->separator == '\0' || text[end] != field->separator))
            end++;
        uint32_t first = at, last = end;
        while (first < last && is_blank(text[first]))
            first++;
        while (last > first && is_blank(text[last - 1]))
            last--;
        if ((last > first || field->index_empty) && !prepare_tag(fields, index, id, text + first, last - first))
            return false;
        at = end + 1;
    }
    return true;
}

/* ---- first step: words ------------------------------------------------------------------------------------------- */

static bool mention(struct fields *fields, bool is_stem, const char *text, uint32_t bytes, struct words_place place)
{
    struct vocabulary *vocabulary = is_stem ? &fields->stems : &fields->words;
    if (!array_reserve(&fields->mentions, &fields->mentions_capacity, fields->n_mentions + 1))
        return false;
    struct word *word = (struct word *)vocabulary_find(vocabulary, text, bytes);
    if (!word)
        word = (struct word *)vocabulary_add(vocabulary, text, bytes, sizeof *word);
    if (!word)
        return false;
    word->is_stem = is_stem;
    fields->mentions[fields->n_mentions++] = (struct field_mention){.word = word, .place = place};
    return true;
}

/* The words of one value; *position is that of the last word before it, and becomes that of its last. */
static bool prepare_value(struct fields *fields, const struct schema_field *field, struct text_rules *rules,
                          const struct record_value *value, uint32_t *position)
{
    struct words_place place = {.field = field->text_bit};
    struct text_words words;
    struct text_word word;
    int rc;
    if (value->bytes == 0 && field->index_empty) {
        place.position = ++*position;
        return mention(fields, false, "", 0, place);
    }
    rules->no_stems = field->no_stem;
    rules->position = *position;
    text_words_init(&words, rules, value->text, value->bytes);
    while ((rc = text_words_next(&words, &word)) > 0) {
        *position = place.position = word.position;
        if (!mention(fields, false, word.text, word.bytes, place) ||
            (word.stem && !mention(fields, true, word.stem, word.stem_bytes, place))) {
            rc = QUIRE_ENOMEM;
            break;
        }
    }
    text_words_fini(&words);
    return rc == 0;
}

static int compare_mentions(const void *a, const void *b)
{
    const struct field_mention *x = a, *y = b;
    if (x->word != y->word)
        return x->word < y->word ? -1 : 1;
    if (x->place.field != y->place.field)
        return x->place.field < y->place.field ? -1 : 1;
    return (x->place.position > y->place.position) - (x->place.position < y->place.position);
}

static void sort_mentions(struct fields *fields)
{
    if (fields->n_mentions > 0)
        qsort(fields->mentions, fields->n_mentions, sizeof *fields->mentions, compare_mentions);
}

/* Mentions of the same word from `first` on. */
static size_t mentions_of_word(const struct fields *fields, size_t first)
{
    size_t end = first;
    while (end < fields->n_mentions && fields->mentions[end].word == fields->mentions[first].word)
        end++;
    return end - first;
}

/* Mentions become postings, one per word, and each word has room for its own. */
static bool prepare_postings(struct fields *fields, uint32_t id)
{
    size_t n_words = 0, payload = 0;
    sort_mentions(fields);
    for (size_t i = 0; i < fields->n_mentions; i += mentions_of_word(fields, i))
        n_words++;
    if (!array_reserve(&fields->postings, &fields->postings_capacity, n_words) ||
        !array_reserve(&fields->places, &fields->places_capacity, fields->n_mentions) ||
        !array_reserve(&fields->payloads, &fields->payloads_capacity,
                       n_words * WORDS_PAYLOAD_MAX(0) + WORDS_PAYLOAD_MAX(fields->n_mentions)))
        return false;
    n_words = 0;
    for (size_t i = 0, n; i < fields->n_mentions; i += n) {
        struct words_posting *posting = &fields->postings[n_words++];
        n = mentions_of_word(fields, i);
        for (size_t j = 0; j < n; j++)
            fields->places[j] = fields->mentions[i + j].place;
        *posting = (struct words_posting){.id = id, .payload = fields->payloads + payload};
        posting->bytes = words_encode(fields->places, (uint32_t)n, fields->payloads + payload);
        payload += posting->bytes;
        if (!words_prepare(fields->mentions[i].word, posting, &fields->posting_bytes))
            return false;
    }
    return true;
}

static int prepare_texts(struct fields *fields, const struct record *record, uint32_t id, struct quire_error *err)
{
    const char *language = record->language ? record->language : fields->schema->language;
    struct text_rules rules = {.schema = fields->schema};
    uint32_t position = 0;
    rules.language = language ? text_language_find(language, strlen(language)) : NULL;
    if (language && !rules.language)
        return error_set(err, QUIRE_EINVALID, "'%.64s' is no language whose words are known", language);
    for (uint32_t i = 0; i < fields->n_fields; i++) {
        const struct record_field *field = &record->fields[i];
        if (fields->fields[i].type != SCHEMA_TEXT || !fields->fields[i].indexed || !field->present)
            continue;
        for (uint32_t j = 0; j < field->n_values; j++) {
            if (j > 0)
                position += FIELDS_VALUE_GAP;
            if (!prepare_value(fields, &fields->schema->fields[i], &rules, &field->values[j], &position))
                return no_memory(err, id);
        }
    }
    return prepare_postings(fields, id) ? 0 : no_memory(err, id);
}

/* ---- first step: numbers, and all together ----------------------------------------------------------------------- */

static int prepare_numbers(struct fields *fields, uint32_t index, const struct record_field *record, uint32_t id,
                           struct quire_error *err)
{
    const struct schema_field *field = &fields->schema->fields[index];
    if (!array_reserve(&fields->numbers, &fields->numbers_capacity, record->n_values))
        return no_memory(err, id);
    for (uint32_t i = 0; i < record->n_values; i++) {
        const struct record_value *value = &record->values[i];
        fields->numbers[i] = value->number;
        if (isnan(value->number) || (field->type == SCHEMA_GEO && isnan(value->latitude)))
            return error_set(err, QUIRE_EINVALID, "a value of %.64s is not a number", field->name);
        if (field->type == SCHEMA_NUMERIC)
            continue;
        if (fabs(value->number) > FIELDS_LONGITUDE_MAX || fabs(value->latitude) > FIELDS_LATITUDE_MAX)
            return error_set(err, QUIRE_ERANGE,
                             "%.64s: longitude %g, latitude %g is outside of -180..180, -85.05112878..85.05112878",
                             field->name, value->number, value->latitude);
        fields->numbers[i] = geo_encode(value->number, value->latitude);
    }
    if (record->n_values > 0 && !number_add(&fields->fields[index].numbers, id, fields->numbers, record->n_values))
        return no_memory(err, id);
    return 0;
}

static int prepare_field(struct fields *fields, uint32_t index, const struct record_field *record, uint32_t id,
                         struct quire_error *err)
{
    struct field *field = &fields->fields[index];
    if (!record->present)
        return fields->schema->fields[index].no_index || doc_set_reserve(&field->missing, id) ? 0 : no_memory(err, id);
    if (!field->indexed)
        return 0;
    if (field->type == SCHEMA_NUMERIC || field->type == SCHEMA_GEO)
        return prepare_numbers(fields, index, record, id, err);
    for (uint32_t i = 0; field->type == SCHEMA_TAG && i < record->n_values; i++)
        if (!prepare_tags(fields, index, id, record->values[i].text, record->values[i].bytes))
            return no_memory(err, id);
    return 0;
}

/* Whether scores depend on what document_info would say of the document. */
static bool has_info(const struct fields *fields, const struct record *record)
{
    return fields->n_text > 0 || record->score != 1;
}

static int prepare(struct fields *fields, uint32_t id, const struct record *record, struct quire_error *err)
{
    if (!doc_set_reserve(&fields->living, id) || (has_info(fields, record) && !doc_pages_make(&fields->info, id)))
        return no_memory(err, id);
    for (uint32_t i = 0; i < fields->n_fields; i++) {
        int rc = prepare_field(fields, i, &record->fields[i], id, err);
        if (rc < 0)
            return rc;
    }
    return fields->n_text > 0 ? prepare_texts(fields, record, id, err) : 0;
}

/* The first step has failed after some of it. */
static void take_back(struct fields *fields, uint32_t id)
{
    for (uint32_t i = 0; i < fields->n_fields; i++)
        number_remove(&fields->fields[i].numbers, id);
    for (size_t i = 0; i < fields->n_taggings; i++) {
        struct field_tagging *at = &fields->taggings[i];
        if (!at->tag || at->tag->documents.n > 0)
            continue;
        struct tag *empty = at->tag;
        for (size_t j = i; j < fields->n_taggings; j++)
            if (fields->taggings[j].tag == empty)
                fields->taggings[j].tag = NULL;
        at->field->tag_set_bytes -= doc_set_bytes(&empty->documents);
        doc_set_fini(&empty->documents);
        vocabulary_remove(&at->field->tags, &empty->entry, sizeof *empty);
    }
    sort_mentions(fields);
    for (size_t i = 0, n; i < fields->n_mentions; i += n) {
        struct word *word = fields->mentions[i].word;
        n = mentions_of_word(fields, i);
        if (word->n_documents > 0)
            continue;
        fields->posting_bytes -= words_bytes(word);
        words_fini(word);
        vocabulary_remove(word->is_stem ? &fields->stems : &fields->words, &word->entry, sizeof *word);
    }
}

/* ---- second step ------------------------------------------------------------------------------------------------- */

static uint32_t saturated_add(uint32_t a, uint64_t b)
{
    return b > UINT32_MAX - a ? UINT32_MAX : a + (uint32_t)b;
}

/* Postings are written; what they say of the document as a whole goes to *info. */
static void commit_words(struct fields *fields, struct document_info *info)
{
    const struct words_posting *posting = fields->postings;
    for (size_t i = 0, n; i < fields->n_mentions; i += n, posting++) {
        struct word *word = fields->mentions[i].word;
        const uint32_t *weights = word->is_stem ? fields->stem_weights : fields->weights;
        uint64_t frequency = 0;
        n = mentions_of_word(fields, i);
        for (size_t j = 0; j < n; j++)
            frequency += weights[fields->mentions[i + j].place.field];
        uint32_t blocks = word->n_blocks;
        words_commit(word, posting);
        fields->n_blocks += word->n_blocks - blocks;
        info->most = frequency > info->most ? saturated_add(0, frequency) : info->most;
        info->length = word->is_stem ? info->length : saturated_add(info->length, frequency);
        fields->n_records++;
    }
    fields->n_positions += fields->n_mentions;
}

static uint32_t score_bits(double score)
{
    float narrow = (float)score;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits ^ DOCUMENT_SCORE_ONE;
}

static void commit(struct fields *fields, uint32_t id, const struct record *record)
{
    struct document_info *info = doc_pages_at(&fields->info, id), said = {.score_bits = score_bits(record->score)};
    bool appended = doc_set_append(&fields->living, id);
    for (uint32_t i = 0; i < fields->n_fields; i++)
        if (!record->fields[i].present && !fields->schema->fields[i].no_index)
            appended = doc_set_append(&fields->fields[i].missing, id) && appended;
    for (size_t i = 0; i < fields->n_taggings; i++) {
        struct doc_set *documents = &fields->taggings[i].tag->documents;
        if (documents->n == 0 || doc_set_last(documents) != id) /* a tag may be there twice */
            appended = doc_set_append(documents, id) && appended;
    }
    assert(appended); /* room was made */
    (void)appended;
    commit_words(fields, &said);
    if (info)
        *info = said;
    fields->length_total += said.length;
    fields->next_id = id + 1;
}

/* What a large document has asked for is given back. */
static void trim_scratch(struct fields *fields)
{
    if (fields->mentions_capacity + fields->taggings_capacity + fields->folded_capacity + fields->numbers_capacity <=
        SCRATCH_KEPT)
        return;
    array_free_all(fields->mentions, fields->taggings, fields->postings, fields->places, fields->payloads,
                   fields->folded, fields->numbers);
    fields->mentions = NULL;
    fields->taggings = NULL;
    fields->postings = NULL;
    fields->places = NULL;
    fields->payloads = NULL;
    fields->folded = NULL;
    fields->numbers = NULL;
    fields->mentions_capacity = fields->taggings_capacity = fields->postings_capacity = fields->places_capacity =
        fields->payloads_capacity = fields->folded_capacity = fields->numbers_capacity = 0;
}

int fields_add(struct fields *fields, uint32_t id, const struct record *record, struct quire_error *err)
{
    if (id < fields->next_id || id > FIELDS_ID_MAX)
        return error_set(err, QUIRE_EINVALID, "document %u: ids ascend from %u to %u", id, fields->next_id,
                         FIELDS_ID_MAX);
    assert(record->schema->n_fields >= fields->n_fields);
    fields->n_mentions = fields->n_taggings = 0;
    int rc = prepare(fields, id, record, err);
    if (rc < 0)
        take_back(fields, id);
    else
        commit(fields, id, record);
    trim_scratch(fields);
    return rc;
}

bool fields_remove(struct fields *fields, uint32_t id)
{
    if (!doc_set_remove(&fields->living, id))
        return false;
    const struct document_info *info = doc_pages_at(&fields->info, id);
    fields->length_total -= info ? info->length : 0;
    fields->n_dead++;
    return true;
}
