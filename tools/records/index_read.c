/*
 * index_read.c - the rows of an index folder, as `quire build` makes it.
 *
 * Through the library's own calls, row by row. Vectors are what the blocks hold: the numbers themselves with slots of
 * the input's type, an approximation with 8-bit codes (which under cosine have the length 1). Keys are there where the
 * index was built with some. Tenants are not: the library gives them to nobody.
 */
#include "io/error.h"
#include "tools/records/records_priv.h"
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_FIRST 4096u

struct index_source {
    struct records_source base;
    struct quire_index *index;
    bool keys;
    uint64_t row;
    char *key, *text;
    size_t text_capacity;
    struct arena texts;
};

static int take_attributes(struct index_source *s, struct record *record, struct quire_error *err)
{
    size_t bytes = s->text_capacity;
    int rc = quire_attributes(s->index, (uint32_t)s->row, s->text, &bytes, err);
    if (rc == QUIRE_ELIMIT) {
        char *grown = realloc(s->text, bytes);
        if (!grown)
            return error_set(err, QUIRE_ENOMEM, "no memory for attributes");
        s->text = grown;
        s->text_capacity = bytes;
        rc = quire_attributes(s->index, (uint32_t)s->row, s->text, &bytes, err);
    }
    if (rc == QUIRE_ENOTFOUND)
        return 0;
    if (rc == 0 && bytes && !records_keep(&s->texts, s->text, bytes, &record->attributes, &record->attribute_bytes))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for attributes");
    return rc;
}

static int64_t index_read(struct records_source *source, void *vectors, struct record *records, uint64_t n,
                          struct quire_error *err)
{
    struct index_source *s = (struct index_source *)source;
    uint64_t got = 0;
    arena_reset(&s->texts);
    for (; got < n && s->row < source->rows; got++, s->row++) {
        struct record *r = &records[got];
        size_t bytes = 0;
        int rc = quire_vector(s->index, (uint32_t)s->row, (float *)vectors + got * source->dim, err);
        if (rc == 0 && s->keys) {
            rc = quire_key(s->index, (uint32_t)s->row, s->key, &bytes, err);
            if (rc == 0 && !records_keep(&s->texts, s->key, bytes, &r->key, &r->key_bytes))
                rc = error_set(err, QUIRE_ENOMEM, "no memory for keys");
        }
        if (rc == 0)
            rc = take_attributes(s, r, err);
        if (rc < 0)
            return rc;
    }
    return (int64_t)got;
}

static void index_close(struct records_source *source)
{
    struct index_source *s = (struct index_source *)source;
    quire_close(s->index);
    arena_fini(&s->texts);
    free(s->key);
    free(s->text);
    free(source->name);
    free(s);
}

static const struct records_source_ops index_ops = {index_read, index_close};

int index_source_open(const char *path, struct records_source **out, struct quire_error *err)
{
    struct quire_info info;
    struct index_source *s = records_new_source(sizeof *s, &index_ops, path);
    if (!s)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    s->key = malloc(QUIRE_KEY_BYTES_MAX);
    s->text = malloc(TEXT_BYTES_FIRST);
    s->text_capacity = TEXT_BYTES_FIRST;
    int rc = s->key && s->text ? quire_open(path, NULL, &s->index, err)
                               : error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    if (rc == 0) {
        quire_get_info(s->index, &info);
        s->base.rows = info.rows;
        s->base.dim = info.dim;
        s->base.type = QUIRE_TYPE_F32;
        s->base.metric = (int)info.metric;
        s->base.may_have = RECORDS_KEYS | RECORDS_ATTRIBUTES;
        s->base.is_approximate = info.slot == QUIRE_SLOT_Q8;
        s->keys = info.user_keys;
    }
    if (rc < 0)
        index_close(&s->base);
    else
        *out = &s->base;
    return rc;
}
