/*
 * memtable_columns.c - what the rows of a memtable have in their fields, as arrays, so that a filter is run over
 * thousands of rows at once and not over one text after the other.
 *
 * Beyond MEMTABLE_FLAT_ROWS rows a put takes its attributes apart: of each field a kind and a number, of a string
 * also the number of its text in a list of words. They lie in chunks of COLUMN_ROWS rows. What no column knows (fields
 * beyond COLUMNS_MAX, lists, strings that are long or more than the list takes) is looked up in the row's own text; a
 * filter that names a field without a column is not run here at all. Of grants a hash is kept: it says for certain
 * whom a row is not granted to.
 *
 * So bits tell which rows may match. Who answers a row asks its text once more, so that a hash never decides alone and
 * attributes that change meanwhile are those that are answered.
 *
 * Readers take no lock. A new row is written before it can be seen. Where the attributes of a living row change, the
 * chunk's version is odd meanwhile, and a reader that has seen it change looks again (a seqlock: Lameter 2005).
 */
#include "index/attribute/filter_rows.h"
#include "index/attribute/grants.h"
#include "index/attribute/number_set.h"
#include "index/memtable/memtable_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WORD_NONE      UINT32_MAX
#define WORDS_MAX      16384u
#define WORD_BYTES_MAX 64u
#define WORDS_FIRST    64u
#define CHUNKS_FIRST   4u
#define TRIES          8u /* of a chunk that changes: then all its rows may match */

/* Of a row that is granted to none, to several or nobody knows whom, or to one: a hash, which is neither of these. */
#define GRANTED_NONE  0u
#define GRANTED_ASK   1u
#define GRANTED_FIRST 2u

/* ---- words ------------------------------------------------------------------------------------------------------- */

struct word {
    uint32_t bytes, hash;
    bool escaped;
    char text[];
};

static const struct word *word_at(const struct row_columns *columns, uint32_t number)
{
    return memtable_pointers_get(&columns->words, number);
}

static uint32_t words_capacity(const struct row_columns *columns)
{
    const struct pointers *words = atomic_load_explicit(&columns->words, memory_order_relaxed);
    return words ? words->capacity : 0;
}

/* Room for one word more, and places for twice as many. */
static int words_reserve(struct memtable *table, struct row_columns *columns)
{
    uint32_t before = words_capacity(columns), capacity = before ? 2 * before : WORDS_FIRST, mask = 2 * capacity - 1;
    if (columns->n_words < before)
        return 0;
    uint32_t *places = memtable_block_alloc(table, 2 * capacity * sizeof *places);
    if (!places || memtable_pointers_reserve(table, &columns->words, WORDS_FIRST, columns->n_words + 1) < 0) {
        memtable_block_free(table, places);
        return QUIRE_ENOMEM;
    }
    assert(words_capacity(columns) == capacity);
    memset(places, 0xff, 2 * capacity * sizeof *places);
    for (uint32_t i = 0; i < columns->n_words; i++) {
        uint32_t at = word_at(columns, i)->hash & mask;
        while (places[at] != WORD_NONE)
            at = (at + 1) & mask;
        places[at] = i;
    }
    memtable_block_free(table, columns->word_places);
    columns->word_places = places;
    return 0;
}

/* The number of a string; WORD_NONE: it is not kept. */
static int find_word(struct memtable *table, struct row_columns *columns, const struct json_value *value, uint32_t *out)
{
    *out = WORD_NONE;
    if (value->bytes > WORD_BYTES_MAX)
        return 0;
    int rc = words_reserve(table, columns);
    if (rc < 0)
        return rc;
    uint32_t hash = (uint32_t)XXH3_64bits_withSeed(value->text, value->bytes, (uint64_t)(uintptr_t)table);
    uint32_t mask = 2 * words_capacity(columns) - 1, at = hash & mask;
    for (; columns->word_places[at] != WORD_NONE; at = (at + 1) & mask) {
        const struct word *word = word_at(columns, columns->word_places[at]);
        if (word->hash == hash && word->bytes == value->bytes && word->escaped == value->escaped &&
            (value->bytes == 0 || memcmp(word->text, value->text, value->bytes) == 0)) {
            *out = columns->word_places[at];
            return 0;
        }
    }
    if (columns->n_words == WORDS_MAX)
        return 0;
    struct word *word = memtable_block_alloc(table, sizeof *word + value->bytes);
    if (!word)
        return QUIRE_ENOMEM;
    *word = (struct word){.bytes = value->bytes, .hash = hash, .escaped = value->escaped};
    if (value->bytes)
        memcpy(word->text, value->text, value->bytes);
    *out = columns->word_places[at] = columns->n_words;
    memtable_pointers_set(&columns->words, columns->n_words++, word);
    return 0;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

struct column_values {
    _Atomic double numbers[COLUMN_ROWS];
    _Atomic(struct column_words *) words; /* NULL: no row has one */
    _Atomic uint8_t kinds[COLUMN_ROWS];   /* enum value_kind */
};

struct column_words {
    atomic_uint numbers[COLUMN_ROWS];
};

struct column_grants {
    atomic_uint hashes[COLUMN_ROWS];
};

struct column_chunk {
    atomic_uint version;
    _Atomic(struct column_grants *) grants; /* NULL: no row has any */
    _Atomic(struct column_values *) fields[COLUMNS_MAX];
};

static struct column_chunk *chunk_at(const struct row_columns *columns, uint32_t row)
{
    return memtable_pointers_get(&columns->chunks, row / COLUMN_ROWS);
}

/* Zeroed memory: kinds of it are VALUE_NONE, words the first, grants none. */
static void *zeroed(struct memtable *table, size_t bytes)
{
    void *block = memtable_block_alloc(table, bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

/* Memory for all that is pending, in the chunk of a row. */
static int chunk_reserve(struct memtable *table, struct row_columns *columns, uint32_t row)
{
    const struct columns_pending *pending = &columns->pending;
    int rc = memtable_pointers_reserve(table, &columns->chunks, CHUNKS_FIRST, row / COLUMN_ROWS + 1);
    if (rc < 0)
        return rc;
    struct column_chunk *chunk = chunk_at(columns, row);
    if (!chunk) {
        chunk = zeroed(table, sizeof *chunk);
        if (!chunk)
            return QUIRE_ENOMEM;
        memtable_pointers_set(&columns->chunks, row / COLUMN_ROWS, chunk);
    }
    if (pending->grants != GRANTED_NONE && !atomic_load_explicit(&chunk->grants, memory_order_relaxed)) {
        struct column_grants *grants = zeroed(table, sizeof *grants);
        if (!grants)
            return QUIRE_ENOMEM;
        atomic_store_explicit(&chunk->grants, grants, memory_order_release);
    }
    for (uint32_t i = 0; i < pending->n; i++) {
        _Atomic(struct column_values *) *place = &chunk->fields[pending->values[i].field];
        struct column_values *values = atomic_load_explicit(place, memory_order_relaxed);
        if (!values && !(values = zeroed(table, sizeof *values)))
            return QUIRE_ENOMEM;
        atomic_store_explicit(place, values, memory_order_release);
        if (pending->values[i].kind != VALUE_STRING || atomic_load_explicit(&values->words, memory_order_relaxed))
            continue;
        struct column_words *words = zeroed(table, sizeof *words);
        if (!words)
            return QUIRE_ENOMEM;
        atomic_store_explicit(&values->words, words, memory_order_release);
    }
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* COLUMNS_MAX: the field has no column. */
static int find_field(struct memtable *table, struct row_columns *columns, const struct json_value *name, uint32_t *out)
{
    char plain[COLUMN_NAME_BYTES_MAX * 6]; /* no escape is longer than six bytes for one */
    const char *text = name->text;
    uint32_t bytes = name->bytes, n = atomic_load_explicit(&columns->n_fields, memory_order_relaxed);
    *out = COLUMNS_MAX;
    if (name->escaped && bytes <= sizeof plain) {
        bytes = json_unescape(name, plain);
        text = plain;
    }
    for (uint32_t i = 0; i < n; i++)
        if (columns->fields[i].bytes == bytes && memcmp(columns->fields[i].name, text, bytes) == 0) {
            *out = i;
            return 0;
        }
    if (bytes == 0 || bytes > COLUMN_NAME_BYTES_MAX || n == COLUMNS_MAX) {
        if (bytes > 0)
            atomic_store_explicit(&columns->incomplete, true, memory_order_release);
        return 0;
    }
    char *copy = memtable_block_alloc(table, bytes);
    if (!copy)
        return QUIRE_ENOMEM;
    memcpy(copy, text, bytes);
    columns->fields[n] = (struct column_field){
        .name = copy,
        .bytes = bytes,
        .declared = table->config.schema ? attribute_schema_find(table->config.schema, text, bytes) : NULL};
    atomic_store_explicit(&columns->n_fields, n + 1, memory_order_release);
    *out = n;
    return 0;
}

static bool is_pending(const struct columns_pending *pending, uint32_t field)
{
    for (uint32_t i = 0; i < pending->n; i++)
        if (pending->values[i].field == field)
            return true;
    return false;
}

static uint32_t hash_of_grant(const struct memtable *table, const struct grant *grant)
{
    uint64_t seed = (uint64_t)(uintptr_t)table ^ grant->generation;
    uint32_t hash = (uint32_t)XXH3_64bits_withSeed(grant->name, grant->bytes, seed);
    return hash < GRANTED_FIRST ? hash + GRANTED_FIRST : hash;
}

static uint32_t grants_of(const struct memtable *table, const char *text, uint32_t bytes, uint32_t n)
{
    struct grant grant;
    uint32_t at = 0;
    if (n == 0)
        return GRANTED_NONE;
    return n == 1 && grants_next(text, bytes, &at, &grant) ? hash_of_grant(table, &grant) : GRANTED_ASK;
}

static int take_apart(struct memtable *table, struct row_columns *columns, const char *json, uint32_t bytes)
{
    struct columns_pending *pending = &columns->pending;
    struct json_walk walk;
    struct json_value name, value;
    json_walk_object(&walk, json, bytes);
    while (json_next(&walk, &name, &value)) {
        uint32_t field, word = WORD_NONE;
        int rc = find_field(table, columns, &name, &field);
        if (rc < 0)
            return rc;
        if (field == COLUMNS_MAX || is_pending(pending, field))
            continue; /* of a name that stands twice the first counts */
        value = attribute_typed(columns->fields[field].declared, value);
        if (value.kind == VALUE_STRING && (rc = find_word(table, columns, &value, &word)) < 0)
            return rc;
        pending->values[pending->n++] = (struct pending_value){
            .number = filter_number_of(&value), .field = field, .word = word, .kind = (uint8_t)value.kind};
    }
    return 0;
}

int memtable_columns_prepare(struct memtable *table, struct row_columns *columns, uint32_t row, const void *text,
                             uint32_t bytes)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants = 0;
    columns->pending.n = 0;
    columns->pending.grants = GRANTED_NONE;
    if (bytes == 0)
        return 0;
    int rc = 0;
    if (grants_split(text, bytes, &json, &json_bytes, &n_grants) == 0) {
        columns->pending.grants = grants_of(table, text, bytes, n_grants);
        rc = json ? take_apart(table, columns, json, json_bytes) : 0;
    } else {
        columns->pending.grants = GRANTED_ASK;
    }
    return rc == 0 ? chunk_reserve(table, columns, row) : rc;
}

void memtable_columns_commit(struct row_columns *columns, uint32_t row, bool is_seen)
{
    const struct columns_pending *pending = &columns->pending;
    struct column_chunk *chunk = chunk_at(columns, row);
    uint32_t n = atomic_load_explicit(&columns->n_fields, memory_order_relaxed), at = row % COLUMN_ROWS;
    if (!chunk)
        return; /* no row of it has attributes */
    if (is_seen)
        atomic_fetch_add_explicit(&chunk->version, 1, memory_order_acq_rel);
    struct column_grants *grants = atomic_load_explicit(&chunk->grants, memory_order_relaxed);
    if (grants)
        atomic_store_explicit(&grants->hashes[at], pending->grants, memory_order_release);
    for (uint32_t f = 0; f < n; f++) {
        struct column_values *values = atomic_load_explicit(&chunk->fields[f], memory_order_relaxed);
        if (values)
            atomic_store_explicit(&values->kinds[at], VALUE_NONE, memory_order_release);
    }
    for (uint32_t i = 0; i < pending->n; i++) {
        const struct pending_value *value = &pending->values[i];
        struct column_values *values = atomic_load_explicit(&chunk->fields[value->field], memory_order_relaxed);
        struct column_words *words = atomic_load_explicit(&values->words, memory_order_relaxed);
        atomic_store_explicit(&values->numbers[at], value->number, memory_order_release);
        if (words)
            atomic_store_explicit(&words->numbers[at], value->word, memory_order_release);
        atomic_store_explicit(&values->kinds[at], value->kind, memory_order_release);
    }
    if (is_seen)
        atomic_fetch_add_explicit(&chunk->version, 1, memory_order_acq_rel);
}

int memtable_columns_reserve_number(struct memtable *table, struct row_columns *columns, uint32_t row)
{
    int rc = memtable_pointers_reserve(table, &columns->numbers, CHUNKS_FIRST, row / COLUMN_ROWS + 1);
    if (rc < 0 || memtable_pointers_get(&columns->numbers, row / COLUMN_ROWS))
        return rc;
    void *chunk = zeroed(table, COLUMN_ROWS * sizeof(atomic_uint));
    if (!chunk)
        return QUIRE_ENOMEM;
    memtable_pointers_set(&columns->numbers, row / COLUMN_ROWS, chunk);
    return 0;
}

void memtable_columns_set_number(struct row_columns *columns, uint32_t row, uint32_t number)
{
    atomic_uint *chunk = memtable_pointers_get(&columns->numbers, row / COLUMN_ROWS);
    assert(chunk);
    atomic_store_explicit(&chunk[row % COLUMN_ROWS], number, memory_order_relaxed);
}

/* ---- a filter over all rows -------------------------------------------------------------------------------------- */

/* Of one chunk, as filter_rows wants it. */
struct loaded {
    double numbers[COLUMN_ROWS];
    uint32_t words[COLUMN_ROWS];
    uint8_t kinds[COLUMN_ROWS];
};

struct selecting {
    const struct memtable *table;
    const struct row_columns *columns;
    const struct filter *filter;
    uint32_t first_row;
    uint32_t of[FILTER_FIELDS_MAX]; /* the column of each of the filter's fields; COLUMNS_MAX: no row has it */
    struct loaded *loaded;          /* of each of them */
};

/* A string or a list out of the row's own text. */
static void look_up(const struct selecting *s, uint32_t field, uint32_t row, struct json_value *out)
{
    struct memtable_row found;
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants;
    memtable_row(s->table, row, &found);
    out->text = "";
    out->bytes = 0;
    out->escaped = false;
    if (!found.key)
        return; /* of a row that is not there it does not matter */
    if (field == FILTER_FIELD_KEY) {
        out->kind = VALUE_STRING;
        out->text = found.key;
        out->bytes = found.key_bytes;
        return;
    }
    struct json_name name = {.text = NULL};
    struct json_value value = {.kind = VALUE_NONE};
    bool required;
    name.text = filter_field(s->filter, field, &name.bytes, &required);
    if (grants_split(found.attributes, found.attribute_bytes, &json, &json_bytes, &n_grants) == 0)
        json_fields(json, json ? json_bytes : 0, &name, 1, &value);
    if (value.kind == out->kind) /* otherwise it has changed, and all of this is done again */
        *out = value;
}

static void value_of(void *context, uint32_t field, uint32_t i, struct json_value *out)
{
    const struct selecting *s = context;
    const struct loaded *loaded = field == FILTER_FIELD_KEY ? NULL : &s->loaded[field];
    if (!loaded || loaded->kinds[i] != VALUE_STRING || loaded->words[i] == WORD_NONE) {
        look_up(s, field, s->first_row + i, out);
        return;
    }
    const struct word *word = word_at(s->columns, loaded->words[i]);
    out->text = word->text;
    out->bytes = word->bytes;
    out->escaped = word->escaped;
}

/* One field of a chunk; whether all its rows have numbers. */
static bool load(const struct column_chunk *chunk, uint32_t column, uint32_t n, struct loaded *out)
{
    const struct column_values *values =
        column < COLUMNS_MAX ? atomic_load_explicit(&chunk->fields[column], memory_order_acquire) : NULL;
    bool are_numbers = true;
    if (!values) {
        memset(out->numbers, 0, sizeof out->numbers);
        memset(out->kinds, VALUE_NONE, sizeof out->kinds);
        return false;
    }
    const struct column_words *words = atomic_load_explicit(&values->words, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t kind = atomic_load_explicit(&values->kinds[i], memory_order_acquire);
        out->kinds[i] = kind;
        are_numbers &= kind == VALUE_NUMBER || kind == VALUE_BOOL;
        out->numbers[i] = atomic_load_explicit(&values->numbers[i], memory_order_acquire);
    }
    for (uint32_t i = 0; i < n && words; i++)
        out->words[i] = atomic_load_explicit(&words->numbers[i], memory_order_acquire);
    return are_numbers;
}

/* Hashes of whom a scope names. */
struct allowed {
    uint32_t n, *hashes; /* ascending */
};

static void remove_strangers(const struct column_chunk *chunk, const struct allowed *allowed, uint32_t n,
                             uint64_t *bits)
{
    const struct column_grants *grants = atomic_load_explicit(&chunk->grants, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t hash = grants ? atomic_load_explicit(&grants->hashes[i], memory_order_acquire) : GRANTED_NONE;
        bool may = hash == GRANTED_ASK || (hash != GRANTED_NONE && array_has_u32(allowed->hashes, allowed->n, hash));
        if (!may)
            bits[i / 64] &= ~(1ull << i % 64);
    }
}

/* bits: COLUMN_ROWS / 64 words, all of which are written. rows NULL: no filter. allowed NULL: all. */
static void select_chunk(struct selecting *s, struct filter_rows *rows, const struct allowed *allowed,
                         const struct column_chunk *chunk, uint32_t n, uint64_t *bits)
{
    uint32_t n_fields = rows ? filter_n_fields(s->filter) : 0;
    struct filter_values fields[FILTER_FIELDS_MAX];
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        uint32_t version = atomic_load_explicit(&chunk->version, memory_order_acquire);
        memset(bits, 0xff, COLUMN_ROWS / 8);
        for (uint32_t i = 0; i < n_fields; i++) {
            bool are_numbers = load(chunk, s->of[i], n, &s->loaded[i]);
            fields[i] = (struct filter_values){.numbers = s->loaded[i].numbers,
                                               .kinds = are_numbers ? NULL : s->loaded[i].kinds};
        }
        const struct filter_chunk loaded = {.n = n, .fields = fields, .value = value_of, .context = s};
        if (rows)
            filter_rows_match(rows, &loaded, bits);
        if (allowed)
            remove_strangers(chunk, allowed, n, bits);
        if (version % 2 == 0 && version == atomic_load_explicit(&chunk->version, memory_order_acquire))
            return;
    }
    memset(bits, 0xff, COLUMN_ROWS / 8);
}

/* Leaves the rows whose numbers are in the set. */
static void keep_numbers(const struct row_columns *columns, const struct number_set *set, uint32_t first, uint32_t n,
                         uint64_t *bits)
{
    const atomic_uint *numbers = memtable_pointers_get(&columns->numbers, first / COLUMN_ROWS);
    assert(numbers); /* rows have numbers before they are seen */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t out = !number_set_has(set, atomic_load_explicit(&numbers[i], memory_order_relaxed));
        bits[i / 64] &= ~(out << i % 64);
    }
}

/* Whether all fields of the filter are in columns, as far as any row has them. */
static bool find_columns(struct selecting *s)
{
    uint32_t n = atomic_load_explicit(&s->columns->n_fields, memory_order_acquire), bytes;
    bool required, incomplete = atomic_load_explicit(&s->columns->incomplete, memory_order_acquire);
    for (uint32_t i = 0; i < filter_n_fields(s->filter); i++) {
        const char *name = filter_field(s->filter, i, &bytes, &required);
        s->of[i] = 0;
        while (s->of[i] < n && (s->columns->fields[s->of[i]].bytes != bytes ||
                                memcmp(s->columns->fields[s->of[i]].name, name, bytes) != 0))
            s->of[i]++;
        if (s->of[i] < n)
            continue;
        if (incomplete)
            return false;
        s->of[i] = COLUMNS_MAX;
    }
    return true;
}

int memtable_columns_select(const struct memtable *table, const struct row_columns *columns,
                            const struct memtable_test *test, uint32_t row_end, uint64_t *bits)
{
    struct selecting s = {.table = table, .columns = columns, .filter = test->filter};
    struct filter_rows *rows = NULL;
    struct allowed allowed = {.n = 0}, *walls = test->scope ? &allowed : NULL;
    int rc = 0;
    if (s.filter && !find_columns(&s))
        return 0;
    if (s.filter) {
        rows = filter_rows_create(s.filter, NULL);
        s.loaded = malloc((filter_n_fields(s.filter) + 1) * sizeof *s.loaded);
        rc = rows && s.loaded ? 0 : QUIRE_ENOMEM;
    }
    if (walls && rc == 0) {
        allowed.hashes = malloc((test->scope->n + 1) * sizeof *allowed.hashes);
        rc = allowed.hashes ? 0 : QUIRE_ENOMEM;
    }
    for (uint32_t i = 0; walls && rc == 0 && i < test->scope->n; i++)
        allowed.hashes[allowed.n++] = hash_of_grant(table, &test->scope->tenants[i]);
    array_sort_u32(allowed.hashes, allowed.n);
    static const struct column_chunk nothing; /* of rows none of which has attributes */
    for (uint32_t row = 0; rc == 0 && row < row_end; row += COLUMN_ROWS) {
        const struct column_chunk *chunk = chunk_at(columns, row);
        uint64_t chunk_bits[COLUMN_ROWS / 64];
        uint32_t n = row_end - row < COLUMN_ROWS ? row_end - row : COLUMN_ROWS;
        s.first_row = row;
        select_chunk(&s, rows, walls, chunk ? chunk : &nothing, n, chunk_bits);
        if (test->numbers)
            keep_numbers(columns, test->numbers, row, n, chunk_bits);
        if (n % 64)
            chunk_bits[n / 64] &= (1ull << n % 64) - 1;
        memcpy(bits + row / 64, chunk_bits, (n + 63) / 64 * sizeof *bits);
    }
    free(allowed.hashes);
    free(s.loaded);
    filter_rows_free(rows);
    return rc < 0 ? rc : 1;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

struct row_columns *memtable_columns_new(struct memtable *table)
{
    return zeroed(table, sizeof(struct row_columns));
}

void memtable_columns_free(struct memtable *table, struct row_columns *columns)
{
    if (!columns)
        return;
    struct pointers *chunks = atomic_load(&columns->chunks), *words = atomic_load(&columns->words);
    struct pointers *numbers = atomic_load(&columns->numbers);
    for (uint32_t i = 0; chunks && i < chunks->capacity; i++) {
        struct column_chunk *chunk = memtable_pointers_get(&columns->chunks, i);
        for (uint32_t f = 0; chunk && f < COLUMNS_MAX; f++) {
            struct column_values *values = atomic_load(&chunk->fields[f]);
            if (values)
                memtable_block_free(table, atomic_load(&values->words));
            memtable_block_free(table, values);
        }
        if (chunk)
            memtable_block_free(table, atomic_load(&chunk->grants));
        memtable_block_free(table, chunk);
    }
    for (uint32_t i = 0; i < columns->n_words; i++)
        memtable_block_free(table, memtable_pointers_get(&columns->words, i));
    for (uint32_t i = 0; numbers && i < numbers->capacity; i++)
        memtable_block_free(table, memtable_pointers_get(&columns->numbers, i));
    for (uint32_t i = 0; i < atomic_load(&columns->n_fields); i++)
        memtable_block_free(table, columns->fields[i].name);
    memtable_block_free(table, numbers);
    memtable_block_free(table, words);
    memtable_block_free(table, columns->word_places);
    memtable_block_free(table, chunks);
    memtable_block_free(table, columns);
}
