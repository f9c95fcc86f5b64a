/*
 * fuzz_schema.c - any words as FT.CREATE and FT.ALTER, and any records as those of indexes in the journal.
 *
 * The first byte says which. Words are the lines of the rest. A schema that is made has the form that schema.h
 * promises, and comes out the same from its own words; FT.ALTER adds fields to it. Records that are refused say that
 * they are damaged; whatever they were, the list of indexes can be ended.
 */
#include "document/index/documents.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS = 512 };

static void require(bool right)
{
    if (!right)
        abort();
}

static uint32_t split(const uint8_t *data, size_t size, struct schema_word words[WORDS])
{
    uint32_t n = 0;
    for (size_t at = 0; at < size && n < WORDS;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t bytes = end ? (size_t)(end - data) - at : size - at;
        words[n++] = (struct schema_word){(const char *)data + at, (uint32_t)bytes};
        at += bytes + 1;
    }
    return n;
}

static void check_field(const struct schema *s, uint32_t i)
{
    const struct schema_field *f = &s->fields[i];
    require(f->index == i && strlen(f->name) == f->name_bytes && strlen(f->identifier) == f->identifier_bytes);
    require(f->name_bytes > 0 && schema_find(s, f->name, f->name_bytes) == f);
    require(f->type != SCHEMA_TEXT || f->text_bit < SCHEMA_TEXT_FIELDS_MAX);
    require(f->type != SCHEMA_VECTOR || (f->vector.dim >= 1 && f->vector.dim <= SCHEMA_DIM_MAX && f->vector.m >= 1));
    require(f->weight >= 0);
}

static void check_schema(const struct schema *s)
{
    require(s->n_fields >= 1 && s->n_fields <= SCHEMA_FIELDS_MAX && s->n_prefixes >= 1);
    require(strlen(s->name) == s->name_bytes && s->language && s->score >= 0 && s->score <= 1);
    for (uint32_t i = 0; i < s->n_fields; i++)
        check_field(s, i);
    for (uint32_t i = 0; i < s->n_prefixes; i++)
        require(schema_follows(s, s->prefixes[i].data, s->prefixes[i].bytes));
}

static void read_words(const uint8_t *data, size_t size)
{
    struct schema_word words[WORDS];
    struct quire_error err = {0};
    struct schema *schema = NULL, *again = NULL, *altered = NULL;
    uint32_t n = split(data, size, words);
    int rc = schema_parse(words, n, &schema, &err);
    if (rc < 0) {
        require(err.code == rc && err.message[0] && !schema);
        return;
    }
    check_schema(schema);
    require(schema_parse(words, n, &again, NULL) == 0 && again->n_fields == schema->n_fields);
    schema_free(again);
    static const struct schema_word more[] = {{"\x7f more", 6}, {"NUMERIC", 7}};
    rc = schema_alter(schema, more, 2, 4, &altered, &err);
    if (rc == 0) {
        check_schema(altered);
        require(altered->n_fields == schema->n_fields + 1);
        schema_free(altered);
    }
    schema_free(schema);
}

static void read_records(const uint8_t *data, size_t size)
{
    struct documents *documents = NULL;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    require(documents_create(&documents, NULL) == 0);
    while (size >= 3) {
        uint8_t kind = (uint8_t)(DOCUMENT_LOG_CREATE + data[0] % 5);
        uint32_t bytes = data[1] | (uint32_t)data[2] << 8;
        bytes = bytes < size - 3 ? bytes : (uint32_t)(size - 3);
        lsn += data[0] >> 7;
        int rc = data[0] & 8 ? documents_restore(documents, kind, lsn, data + 3, bytes, &err)
                             : documents_replay(documents, kind, lsn, data + 3, bytes, &err);
        require(rc == 0 || rc == QUIRE_ECORRUPT || rc == QUIRE_ELIMIT || rc == QUIRE_ERANGE);
        if (data[0] == 0xff)
            documents_replay_flush(documents, lsn);
        data += 3 + bytes;
        size -= 3 + bytes;
    }
    documents_destroy(documents);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0)
        read_words(data + 1, size - 1);
    else
        read_records(data + 1, size - 1);
    return 0;
}
