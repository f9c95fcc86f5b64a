/*
 * documents_log.c - indexes in the journal and in checkpoints, and how they come back from there.
 *
 * Reading is idempotent by LSNs, as that of keys is (server/keys): an index keeps the LSN of its last record, and a
 * frame that is not newer says nothing new about it. Where an index was dropped after the checkpoint began, the frames
 * make it and drop it again.
 */
#include "document/index/documents_priv.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES_MAX = 64 << 20, WORDS_MAX = 1 << 20 };

int documents_definition(uint8_t kind, const uint64_t *uids, uint32_t n_uids, const struct schema_word *words,
                         uint32_t n_words, struct definition **out, struct quire_error *err)
{
    bool has_uids = kind != DOCUMENT_LOG_ALIAS;
    size_t bytes = has_uids ? 4 + 8 * (size_t)n_uids : 0;
    for (uint32_t i = 0; i < n_words; i++)
        bytes += 4 + (size_t)words[i].bytes;
    if (bytes > RECORD_BYTES_MAX || n_words > WORDS_MAX)
        return error_set(err, QUIRE_ELIMIT, "the definition of an index has %zu bytes, and may have %d", bytes,
                         RECORD_BYTES_MAX);
    struct definition *d = malloc(sizeof *d + bytes);
    if (!d)
        return error_set(err, QUIRE_ENOMEM, "no memory for the definition of an index");
    d->kind = kind;
    d->n_bytes = (uint32_t)bytes;
    uint8_t *at = d->bytes;
    if (has_uids) {
        bytes_store_u32(at, n_uids);
        at += 4;
        for (uint32_t i = 0; i < n_uids; i++, at += 8)
            bytes_store_u64(at, uids[i]);
    }
    for (uint32_t i = 0; i < n_words; i++) {
        bytes_store_u32(at, words[i].bytes);
        if (words[i].bytes > 0)
            memcpy(at + 4, words[i].data, words[i].bytes);
        at += 4 + (size_t)words[i].bytes;
    }
    assert(at == d->bytes + bytes);
    *out = d;
    return 0;
}

int documents_append(struct documents *d, uint8_t kind, const void *bytes, uint32_t n, uint64_t *lsn,
                     struct quire_error *err)
{
    struct journal_record record = {kind, bytes, n};
    return d->journal ? journal_append(d->journal, &record, 1, lsn, err) : 0;
}

int documents_reserve(struct document_index *x, struct quire_error *err)
{
    struct definition **all = realloc(x->definitions, (x->n_definitions + (size_t)1) * sizeof *all);
    if (!all)
        return error_set(err, QUIRE_ENOMEM, "no memory for the definition of an index");
    x->definitions = all;
    return 0;
}

void documents_keep(struct document_index *x, struct definition *definition)
{
    x->definitions[x->n_definitions++] = definition;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct record_words {
    const uint8_t *bytes;
    uint32_t n_bytes, n_uids;
    const uint8_t *uids;
    struct schema_word *words; /* owned */
    uint32_t n_words;
};

static int broken(struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "a record of an index of documents is damaged");
}

static int read_words(struct record_words *r, bool has_uids, struct quire_error *err)
{
    const uint8_t *at = r->bytes, *end = at + r->n_bytes;
    uint32_t capacity = 0;
    if (has_uids) {
        if (end - at < 4)
            return broken(err);
        r->n_uids = bytes_load_u32(at);
        at += 4;
        if ((uint64_t)(end - at) < 8 * (uint64_t)r->n_uids)
            return broken(err);
        r->uids = at;
        at += 8 * (size_t)r->n_uids;
    }
    while (at < end) {
        if (end - at < 4 || (uint64_t)(end - at - 4) < bytes_load_u32(at) || r->n_words == WORDS_MAX)
            return broken(err);
        if (!array_reserve(&r->words, &capacity, r->n_words + (size_t)1))
            return error_set(err, QUIRE_ENOMEM, "no memory to read an index of documents");
        r->words[r->n_words++] = (struct schema_word){(const char *)at + 4, bytes_load_u32(at)};
        at += 4 + (size_t)bytes_load_u32(at);
    }
    return r->n_words > 0 ? 0 : broken(err);
}

static int keep_bytes(struct document_index *x, uint8_t kind, const struct record_words *r, struct quire_error *err)
{
    struct definition *copy = malloc(sizeof *copy + r->n_bytes);
    if (!copy || documents_reserve(x, err) < 0) {
        free(copy);
        return error_set(err, QUIRE_ENOMEM, "no memory to read an index of documents");
    }
    copy->kind = kind;
    copy->n_bytes = r->n_bytes;
    memcpy(copy->bytes, r->bytes, r->n_bytes);
    documents_keep(x, copy);
    return 0;
}

static int read_create(struct documents *d, uint64_t lsn, const struct record_words *r, struct quire_error *err)
{
    struct document_index *x = NULL;
    struct schema *schema;
    bool found;
    uint32_t at = documents_place(d, r->words[0].data, r->words[0].bytes, &found);
    if (found && d->indexes[at]->lsn >= lsn)
        return 0;
    if (found)
        document_index_unref(documents_take_out(d, at)); /* the record of its drop is in the same frame */
    int rc = schema_parse(r->words, r->n_words, &schema, err);
    if (rc == 0 && document_index_n_vectors(schema, 0) != r->n_uids) {
        schema_free(schema);
        return broken(err);
    }
    if (rc == 0)
        rc = document_index_create(schema, &x, err);
    if (rc == 0)
        rc = keep_bytes(x, DOCUMENT_LOG_CREATE, r, err);
    if (rc == 0)
        rc = documents_insert(d, x, err);
    if (rc == 0)
        x->lsn = lsn;
    else
        document_index_unref(x);
    return rc;
}

static int read_alter(struct documents *d, uint64_t lsn, bool restored, const struct record_words *r,
                      struct quire_error *err)
{
    struct document_change change = {0};
    struct schema *schema;
    bool found;
    uint32_t at = documents_place(d, r->words[0].data, r->words[0].bytes, &found);
    if (!found || (d->indexes[at]->lsn >= lsn && !restored))
        return 0;
    struct document_index *x = d->indexes[at];
    uint32_t first = document_index_schema(x)->n_fields;
    int rc = schema_alter(document_index_schema(x), r->words + 1, r->n_words - 1, 1, &schema, err);
    if (rc < 0)
        return rc;
    uint32_t n = document_index_n_vectors(schema, first);
    struct vectors **none = calloc(n + (size_t)1, sizeof *none); /* they come with documents_begin */
    if (n != r->n_uids)
        rc = broken(err);
    else
        rc = none ? document_index_prepare(x, schema, &change, err)
                  : error_set(err, QUIRE_ENOMEM, "no memory to read an index of documents");
    if (rc == 0)
        rc = document_index_alter(x, &change, none, n, err);
    free(none);
    if (rc < 0) {
        schema_free(schema);
        return rc;
    }
    x->lsn = lsn > x->lsn ? lsn : x->lsn;
    return keep_bytes(x, DOCUMENT_LOG_ALTER, r, err);
}

static void read_drop(struct documents *d, uint64_t lsn, const uint8_t *name, uint32_t n)
{
    bool found;
    uint32_t at = documents_place(d, (const char *)name, n, &found);
    if (found && d->indexes[at]->lsn < lsn)
        document_index_unref(documents_take_out(d, at));
}

static int read_alias(struct documents *d, uint64_t lsn, const struct record_words *r, struct quire_error *err)
{
    bool found;
    if (r->n_words != 2)
        return broken(err);
    uint32_t at = documents_alias_place(d, r->words[0].data, r->words[0].bytes, &found);
    if (found && d->aliases[at].lsn >= lsn)
        return 0;
    if (r->words[1].bytes > 0)
        return documents_alias_put(d, r->words[0].data, r->words[0].bytes, r->words[1].data, r->words[1].bytes, lsn,
                                   err);
    if (found)
        documents_alias_drop(d, at);
    return 0;
}

static int read_record(struct documents *d, uint8_t kind, uint64_t lsn, bool restored, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct record_words r = {.bytes = bytes, .n_bytes = n};
    int rc = 0;
    if (kind == DOCUMENT_LOG_DROP) {
        read_drop(d, lsn, bytes, n);
        return 0;
    }
    if (kind > DOCUMENT_LOG_ALIAS)
        return broken(err);
    rc = read_words(&r, kind != DOCUMENT_LOG_ALIAS, err);
    if (rc == 0 && kind == DOCUMENT_LOG_CREATE)
        rc = read_create(d, lsn, &r, err);
    else if (rc == 0 && kind == DOCUMENT_LOG_ALTER)
        rc = read_alter(d, lsn, restored, &r, err);
    else if (rc == 0)
        rc = read_alias(d, lsn, &r, err);
    free(r.words);
    return rc == QUIRE_EINVALID || rc == QUIRE_EUNSUPPORTED || rc == QUIRE_EPARSE ? broken(err) : rc;
}

int documents_restore(void *documents, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                      struct quire_error *err)
{
    return read_record(documents, kind, lsn, true, bytes, n, err);
}

int documents_replay(void *documents, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n,
                     struct quire_error *err)
{
    return read_record(documents, kind, lsn, false, bytes, n, err);
}

void documents_replay_flush(void *documents, uint64_t lsn)
{
    struct documents *d = documents;
    for (uint32_t i = d->n; i-- > 0;)
        if (d->indexes[i]->lsn < lsn)
            document_index_unref(documents_take_out(d, i));
    for (uint32_t i = d->n_aliases; i-- > 0;)
        if (d->aliases[i].lsn < lsn)
            documents_alias_drop(d, i);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static int save_alias(const struct alias *alias, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct schema_word words[] = {{alias->name, (uint32_t)strlen(alias->name)},
                                  {alias->index, (uint32_t)strlen(alias->index)}};
    struct definition *record = NULL;
    int rc = documents_definition(DOCUMENT_LOG_ALIAS, NULL, 0, words, 2, &record, err);
    if (rc == 0)
        rc = journal_checkpoint_put(checkpoint, DOCUMENT_LOG_ALIAS, alias->lsn, record->bytes, record->n_bytes, err);
    free(record);
    return rc;
}

int documents_save(void *documents, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct documents *d = documents;
    int rc = 0;
    pthread_rwlock_rdlock(&d->lock);
    for (uint32_t i = 0; i < d->n && rc == 0; i++)
        for (uint32_t j = 0; j < d->indexes[i]->n_definitions && rc == 0; j++) {
            const struct definition *one = d->indexes[i]->definitions[j];
            rc = journal_checkpoint_put(checkpoint, one->kind, d->indexes[i]->lsn, one->bytes, one->n_bytes, err);
        }
    for (uint32_t i = 0; i < d->n_aliases && rc == 0; i++)
        rc = save_alias(&d->aliases[i], checkpoint, err);
    pthread_rwlock_unlock(&d->lock);
    return rc;
}

/* ---- definitions elsewhere than in the journal ------------------------------------------------------------------- */

void documents_each_definition(const struct documents *d,
                               void (*visit)(void *context, enum document_log_kind kind, const void *words, uint32_t n),
                               void *context)
{
    for (uint32_t i = 0; i < d->n; i++)
        for (uint32_t j = 0; j < d->indexes[i]->n_definitions; j++) {
            const struct definition *one = d->indexes[i]->definitions[j];
            uint32_t before = 4 + 8 * bytes_load_u32(one->bytes);
            visit(context, one->kind, one->bytes + before, one->n_bytes - before);
        }
    for (uint32_t i = 0; i < d->n_aliases; i++) {
        const struct schema_word words[] = {{d->aliases[i].name, (uint32_t)strlen(d->aliases[i].name)},
                                            {d->aliases[i].index, (uint32_t)strlen(d->aliases[i].index)}};
        struct definition *record = NULL;
        if (documents_definition(DOCUMENT_LOG_ALIAS, NULL, 0, words, 2, &record, NULL) == 0)
            visit(context, DOCUMENT_LOG_ALIAS, record->bytes, record->n_bytes);
        free(record);
    }
}

int documents_define(struct documents *d, enum document_log_kind kind, const void *words, uint32_t n, uint64_t *lsn,
                     struct quire_error *err)
{
    struct record_words r = {.bytes = words, .n_bytes = n};
    struct document_index *x = NULL;
    int rc = read_words(&r, false, err);
    if (rc == 0 && kind == DOCUMENT_LOG_CREATE)
        rc = documents_add(d, r.words, r.n_words, &x, lsn, err);
    else if (rc == 0 && kind == DOCUMENT_LOG_ALTER)
        rc = documents_alter(d, r.words[0], r.words + 1, r.n_words - 1, 1, &x, lsn, err);
    else if (rc == 0 && kind == DOCUMENT_LOG_ALIAS && r.n_words == 2)
        rc = documents_alias_set(d, r.words[0], r.words[1], false, lsn, err);
    else if (rc == 0)
        rc = broken(err);
    document_index_unref(x);
    free(r.words);
    return rc;
}

/* ---- collections of vectors, at start ---------------------------------------------------------------------------- */

int documents_uids(const struct document_index *x, uint64_t **out, uint32_t *n, struct quire_error *err)
{
    uint32_t capacity = 0;
    *out = NULL;
    *n = 0;
    for (uint32_t i = 0; i < x->n_definitions; i++) {
        const struct definition *one = x->definitions[i];
        uint32_t n_uids = bytes_load_u32(one->bytes);
        if (!array_reserve(out, &capacity, *n + (size_t)n_uids + 1))
            return error_set(err, QUIRE_ENOMEM, "no memory to open an index of documents");
        for (uint32_t j = 0; j < n_uids; j++)
            (*out)[(*n)++] = bytes_load_u64(one->bytes + 4 + 8 * (size_t)j);
    }
    return 0;
}

static int open_vectors(struct documents *d, struct document_index *x, struct quire_error *err)
{
    const struct schema *schema = document_index_schema(x);
    uint64_t *uids = NULL;
    uint32_t n = 0, at = 0;
    int rc = documents_uids(x, &uids, &n, err);
    for (uint32_t i = 0; i < schema->n_fields && rc == 0; i++) {
        if (schema->fields[i].type != SCHEMA_VECTOR)
            continue;
        assert(at < n);
        int opened = d->store ? vectors_open(d->store, uids[at], &schema->fields[i].vector, &x->vectors[i], err)
                              : error_set(err, QUIRE_EINVALID, "vectors need a data folder: set dir");
        at++;
        if (opened == QUIRE_ENOMEM)
            rc = opened;
        else if (opened < 0)
            document_index_damaged(x, err); /* its commands say so; the others go on */
    }
    free(uids);
    return rc;
}

int documents_begin(struct documents *d, struct store *store, struct quire_error *err)
{
    int rc = 0;
    d->store = store;
    d->journal = store ? store_journal(store) : NULL;
    for (uint32_t i = 0; i < d->n && rc == 0; i++)
        rc = open_vectors(d, d->indexes[i], err);
    return rc;
}

int documents_compare(struct documents *d, struct quire_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        struct document_index *x = d->indexes[i];
        uint32_t n_fields = document_index_schema(x)->n_fields;
        for (uint32_t j = 0; j < n_fields && rc == 0 && document_index_available(x, NULL) == 0; j++) {
            int compared = x->vectors[j] ? vectors_compare(x->vectors[j], err) : 0;
            if (compared == QUIRE_ENOMEM)
                rc = compared;
            else if (compared < 0)
                document_index_damaged(x, err); /* its commands say so; the others go on */
        }
    }
    return rc;
}

bool documents_own(struct documents *d, uint64_t uid)
{
    bool own = false;
    for (uint32_t i = 0; i < d->n && !own; i++) {
        uint64_t *uids = NULL;
        uint32_t n = 0;
        if (documents_uids(d->indexes[i], &uids, &n, NULL) < 0)
            own = true; /* rather keep one that is nobody's until the next start */
        for (uint32_t j = 0; j < n && !own; j++)
            own = uids[j] == uid;
        free(uids);
    }
    return own;
}

int documents_begun(struct documents *d, struct quire_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < d->n; i++)
        for (uint32_t j = 0; j < document_index_schema(d->indexes[i])->n_fields && rc == 0; j++)
            if (d->indexes[i]->vectors[j] && document_index_available(d->indexes[i], NULL) == 0)
                rc = vectors_loaded(d->indexes[i]->vectors[j], NULL, err);
    return rc;
}
