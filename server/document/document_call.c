/*
 * document_call.c - see document_call.h.
 *
 * An index shows what is in keys, so that a user may search it only who may read all keys that could be in it. Rights
 * are patterns of keys; whether one covers all that begins with a prefix is told by two names that nobody would write a
 * pattern for: the prefix and '*', and the prefix and a byte that is no text.
 */
#include "server/document/document_call.h"
#include "document/schema/schema.h"
#include "io/error.h"
#include "server/protocol/resp.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct schema_word document_word(struct resp_arg arg)
{
    return (struct schema_word){(const char *)arg.data, arg.bytes};
}

struct schema_word *document_words(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct schema_word *words = malloc((n + (size_t)1) * sizeof *words);
    for (uint32_t i = 0; words && i < n; i++)
        words[i] = document_word(args[i]);
    if (!words)
        caller_error(c, "OOM no memory for a request of %u words", n);
    return words;
}

uint32_t document_position(const struct schema_word *words, uint32_t n, const char *bytes)
{
    uint32_t i = 0;
    while (i < n && bytes != words[i].data && !(bytes > words[i].data && bytes < words[i].data + words[i].bytes))
        i++;
    assert(i < n);
    return DOCUMENT_FIRST_POSITION + i;
}

int document_text_fields(const struct schema *schema, const struct schema_word *words, uint32_t n_words,
                         const struct schema_word *names, uint32_t n, uint64_t *bits, struct quire_error *err)
{
    *bits = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct schema_field *field = schema_find(schema, names[i].data, names[i].bytes);
        if (!field || field->type != SCHEMA_TEXT)
            return error_set(err, QUIRE_EINVALID, "INFIELDS: `%.*s` is no TEXT field of the index (position %u)",
                             names[i].bytes < 64 ? (int)names[i].bytes : 64, names[i].data,
                             document_position(words, n_words, names[i].data));
        *bits |= 1ull << field->text_bit;
    }
    return 0;
}

void document_error(struct resp_buffer *out, const struct quire_error *err)
{
    if (strncmp(err->message, "SEARCH_", 7) == 0)
        resp_error(out, "%s", err->message);
    else if (err->code == QUIRE_EPARSE)
        resp_error(out, "SEARCH_SYNTAX %s", err->message);
    else if (err->code == QUIRE_EEXISTS)
        resp_error(out, "SEARCH_INDEX_EXISTS %s", err->message);
    else
        resp_quire_error(out, err);
}

static bool covers(struct caller *c, const struct schema_word *prefix, uint8_t last)
{
    uint8_t *name = malloc(prefix->bytes + (size_t)1);
    bool may = false;
    if (name) {
        if (prefix->bytes > 0)
            memcpy(name, prefix->data, prefix->bytes);
        name[prefix->bytes] = last;
        may = c->lane->host->may_read(c, (struct resp_arg){name, prefix->bytes + 1});
    }
    free(name);
    return may;
}

bool document_may_read(struct caller *c, const struct schema *schema)
{
    for (uint32_t i = 0; i < schema->n_prefixes; i++)
        if (!covers(c, &schema->prefixes[i], '*') || !covers(c, &schema->prefixes[i], 0x01)) {
            caller_error(
                c,
                "NOPERM User does not have the required permissions to query the index: it has keys that begin "
                "with '%.*s'",
                schema->prefixes[i].bytes < 64 ? (int)schema->prefixes[i].bytes : 64, schema->prefixes[i].data);
            return false;
        }
    return true;
}

struct document_index *document_index_of(struct caller *c, struct resp_arg name)
{
    struct document_index *index = NULL;
    struct quire_error err = {0};
    int rc = documents_find(c->lane->service->documents, document_word(name), &index, &err);
    if (rc == 0 && document_index_available(index, &err) < 0)
        rc = err.code;
    if (rc < 0)
        document_error(caller_reply(c), &err);
    if (rc == 0 && document_may_read(c, document_index_schema(index)))
        return index;
    document_index_unref(index);
    return NULL;
}

bool document_wants_maps(const struct caller *c)
{
    return c->protocol == 3 && !c->reads_arrays;
}
