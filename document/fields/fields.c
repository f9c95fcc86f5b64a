/*
 * fields.c - the indexes of a schema: made, widened, measured, given back.
 *
 * Which document has which value is in four kinds of structures: sets of ids by tag (doc_set.h in a vocabulary.h),
 * ids in the order of their numbers (number_tree.h), postings by word (words.h), and plain sets (the living, those that
 * lack a field). fields_add.c fills them, fields_eval.c asks them, fields_purge.c takes dead ids out.
 */
#include "document/fields/fields_priv.h"
#include "document/fields/geo.h"
#include <math.h>
#include <strings.h>

static bool is_indexed(const struct schema_field *field)
{
    return field->type != SCHEMA_VECTOR && !field->no_index;
}

/* How much a place in a field adds to a word's frequency; RediSearch's rounding. */
static uint32_t weight_of(double weight)
{
    return weight >= 2 ? weight < UINT32_MAX ? (uint32_t)(float)weight : UINT32_MAX : 1;
}

int fields_make(struct fields *fields, const struct schema *schema, struct quire_error *err)
{
    uint32_t n = schema->n_fields, n_text = 0;
    struct field *made = calloc(n + 1, sizeof *made);
    uint32_t *weights = calloc(SCHEMA_TEXT_FIELDS_MAX, sizeof *weights);
    uint32_t *stem_weights = calloc(SCHEMA_TEXT_FIELDS_MAX, sizeof *stem_weights);
    assert(n >= fields->n_fields && n <= SCHEMA_FIELDS_MAX);
    bool fine = made && weights && stem_weights;
    for (uint32_t i = fields->n_fields; fine && i < n; i++)
        fine = schema->fields[i].no_index ||
               doc_set_copy(&fields->living, &made[i].missing); /* those that are there lack it */
    if (!fine) {
        for (uint32_t i = fields->n_fields; made && i < n; i++)
            doc_set_fini(&made[i].missing);
        array_free_all(made, weights, stem_weights);
        return error_set(err, QUIRE_ENOMEM, "no memory for the indexes of %u fields", n);
    }
    if (fields->n_fields > 0)
        memcpy(made, fields->fields, fields->n_fields * sizeof *made);
    for (uint32_t i = 0; i < n; i++) {
        const struct schema_field *field = &schema->fields[i];
        assert(field->index == i);
        if (field->type == SCHEMA_TEXT) {
            assert(field->text_bit < SCHEMA_TEXT_FIELDS_MAX);
            weights[field->text_bit] = weight_of(field->weight);
            stem_weights[field->text_bit] = weight_of(field->weight * .2); /* RediSearch: a stem counts a fifth */
            n_text++;
        }
        if (i < fields->n_fields)
            continue;
        made[i].type = field->type;
        made[i].indexed = is_indexed(field);
        number_init(&made[i].numbers);
    }
    array_free_all(fields->fields, fields->weights, fields->stem_weights);
    fields->fields = made;
    fields->weights = weights;
    fields->stem_weights = stem_weights;
    fields->n_fields = n;
    fields->n_text = n_text;
    fields->schema = schema;
    return 0;
}

int fields_create(const struct schema *schema, struct fields **out, struct quire_error *err)
{
    struct fields *fields = calloc(1, sizeof *fields);
    if (!fields)
        return error_set(err, QUIRE_ENOMEM, "no memory for an index's fields");
    fields->info.item_bytes = sizeof(struct document_info);
    int rc = fields_make(fields, schema, err);
    if (rc < 0)
        free(fields);
    else
        *out = fields;
    return rc;
}

int fields_alter(struct fields *fields, const struct schema *schema, struct quire_error *err)
{
    return fields_make(fields, schema, err);
}

static void free_words(struct vocabulary *words)
{
    for (uint64_t i = 0; i < words->table.capacity; i++)
        if (words->table.places[i].entry)
            words_fini((struct word *)words->table.places[i].entry);
    vocabulary_fini(words);
}

static void free_tags(struct vocabulary *tags)
{
    for (uint64_t i = 0; i < tags->table.capacity; i++)
        if (tags->table.places[i].entry)
            doc_set_fini(&((struct tag *)tags->table.places[i].entry)->documents);
    vocabulary_fini(tags);
}

void fields_free(struct fields *fields)
{
    if (!fields)
        return;
    for (uint32_t i = 0; i < fields->n_fields; i++) {
        free_tags(&fields->fields[i].tags);
        number_fini(&fields->fields[i].numbers);
        doc_set_fini(&fields->fields[i].missing);
    }
    free_words(&fields->words);
    free_words(&fields->stems);
    doc_set_fini(&fields->living);
    doc_set_fini(&fields->purge.living);
    doc_pages_fini(&fields->info);
    array_free_all(fields->fields, fields->weights, fields->stem_weights, fields->mentions, fields->taggings,
                   fields->postings, fields->places, fields->payloads, fields->folded, fields->numbers);
    free(fields);
}

bool fields_has(const struct fields *fields, uint32_t id)
{
    return doc_set_has(&fields->living, id);
}

uint32_t fields_next_id(const struct fields *fields)
{
    return fields->next_id;
}

uint64_t fields_documents(const struct fields *fields)
{
    return fields->living.n;
}

bool fields_number(const struct fields *fields, uint32_t id, uint32_t field, double *number)
{
    const struct field *of = field < fields->n_fields ? &fields->fields[field] : NULL;
    return of && of->type == SCHEMA_NUMERIC && of->indexed && doc_set_has(&fields->living, id) &&
           number_of(&of->numbers, id, number);
}

int fields_tag_values(const struct fields *fields, uint32_t field,
                      bool (*value)(void *context, const char *text, uint32_t bytes, uint64_t documents), void *context,
                      struct quire_error *err)
{
    const struct field *of = field < fields->n_fields ? &fields->fields[field] : NULL;
    struct vocabulary_entry *entry;
    if (!of || of->type != SCHEMA_TAG || !of->indexed)
        return error_set(err, QUIRE_EINVALID, "field %u is no TAG field that is indexed", field);
    struct sorted_place at = {0};
    for (; vocabulary_sorted_at(&of->tags.sorted, &at, &entry); at.index++) {
        const struct tag *tag = (const struct tag *)entry;
        struct doc_walk walk = doc_walk(&tag->documents);
        uint64_t n = fields->n_dead == 0 ? tag->documents.n : 0;
        for (uint32_t id; fields->n_dead > 0 && doc_walk_next(&walk, &id);)
            n += doc_set_has(&fields->living, id);
        if (n > 0 && !value(context, entry->text, entry->bytes, n))
            return 0;
    }
    return 0;
}

void fields_get_stats(const struct fields *fields, struct fields_stats *out)
{
    *out = (struct fields_stats){.n_documents = fields->living.n,
                                 .n_dead = fields->n_dead,
                                 .n_words = fields->words.table.n,
                                 .n_stems = fields->stems.table.n,
                                 .n_records = fields->n_records,
                                 .n_positions = fields->n_positions,
                                 .n_blocks = fields->n_blocks};
    out->text_bytes = vocabulary_bytes(&fields->words) + vocabulary_bytes(&fields->stems) + fields->posting_bytes;
    out->document_bytes =
        doc_set_bytes(&fields->living) + doc_set_bytes(&fields->purge.living) + doc_pages_bytes(&fields->info);
    for (uint32_t i = 0; i < fields->n_fields; i++) {
        const struct field *field = &fields->fields[i];
        out->n_tags += field->tags.table.n;
        out->n_numbers += number_count(&field->numbers);
        out->tag_bytes += vocabulary_bytes(&field->tags) + field->tag_set_bytes;
        if (field->type == SCHEMA_GEO)
            out->geo_bytes += number_bytes(&field->numbers);
        else
            out->number_bytes += number_bytes(&field->numbers);
        out->missing_bytes += doc_set_bytes(&field->missing);
    }
}

uint64_t fields_bytes(const struct fields *fields)
{
    struct fields_stats stats;
    fields_get_stats(fields, &stats);
    return sizeof *fields + fields->n_fields * sizeof *fields->fields + stats.text_bytes + stats.tag_bytes +
           stats.number_bytes + stats.geo_bytes + stats.missing_bytes + stats.document_bytes;
}
