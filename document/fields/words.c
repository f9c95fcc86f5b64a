/*
 * words.c - postings: which documents have a word, and where.
 *
 * Blocks are filled at their end only, since ids ascend. What may fail is done by words_prepare: room in the last
 * block's buffer, or a block behind the last with a buffer. Buffers grow by half, so that a word of few documents takes
 * few bytes.
 *
 * Invariants: every block has at least one posting; first and last are its ids; block ids ascend. Bytes were written
 * here, so reading them checks nothing.
 */
#include "document/fields/words.h"

#define BUFFER_FIRST 12u /* bytes of a block's first buffer */
#define VARINT_MAX   10u

static uint8_t *put_varint(uint8_t *at, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        *at++ = (uint8_t)(number | 0x80);
    *at++ = (uint8_t)number;
    return at;
}

static const uint8_t *get_varint(const uint8_t *at, uint64_t *number)
{
    uint64_t byte = *at++;
    *number = byte & 0x7F;
    for (unsigned shift = 7; byte & 0x80; shift += 7) {
        byte = *at++;
        *number |= (byte & 0x7F) << shift;
    }
    return at;
}

static uint32_t varint_bytes(uint64_t number)
{
    uint32_t n = 1;
    for (; number >= 0x80; number >>= 7)
        n++;
    return n;
}

uint32_t words_encode(const struct words_place *places, uint32_t n, uint8_t *payload)
{
    uint64_t fields = 0;
    uint8_t *at = payload;
    for (uint32_t i = 0; i < n; i++)
        fields |= UINT64_C(1) << places[i].field;
    at = put_varint(at, fields);
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t before = 0;
        for (end = i; end < n && places[end].field == places[i].field;)
            end++;
        at = put_varint(at, end - i);
        for (; i < end; i++) {
            assert(places[i].position >= before);
            at = put_varint(at, places[i].position - before);
            before = places[i].position;
        }
    }
    assert((size_t)(at - payload) <= WORDS_PAYLOAD_MAX(n));
    return (uint32_t)(at - payload);
}

/* ---- putting in -------------------------------------------------------------------------------------------------- */

/* Bytes that the posting takes behind an id. */
static uint32_t posting_bytes(const struct words_posting *posting, uint32_t before)
{
    return varint_bytes(posting->id - before) + varint_bytes(posting->bytes) + posting->bytes;
}

/* The block that the posting goes to: the last, or the one behind it. */
static uint32_t block_for(const struct word *word, const struct words_posting *posting, uint32_t *need)
{
    if (word->n_blocks > 0) {
        const struct words_block *last = &word->blocks[word->n_blocks - 1];
        *need = posting_bytes(posting, last->last);
        if (last->bytes + *need <= WORDS_BLOCK_BYTES)
            return word->n_blocks - 1;
    }
    *need = posting_bytes(posting, posting->id);
    return word->n_blocks;
}

bool words_prepare(struct word *word, const struct words_posting *posting, uint64_t *memory)
{
    uint32_t need, at = block_for(word, posting, &need);
    assert(word->n_blocks == 0 || word->blocks[word->n_blocks - 1].last < posting->id);
    if (at == word->capacity) {
        struct words_block *blocks = realloc(word->blocks, (at + at / 2 + 1) * sizeof *blocks);
        if (!blocks)
            return false;
        *memory += (at + at / 2 + 1 - word->capacity) * sizeof *blocks;
        word->blocks = blocks;
        word->capacity = at + at / 2 + 1;
        memset(&blocks[at], 0, (word->capacity - at) * sizeof *blocks);
    }
    struct words_block *block = &word->blocks[at];
    uint32_t bytes = block->bytes + need;
    if (bytes <= block->capacity)
        return true;
    uint32_t capacity = block->capacity + block->capacity / 2;
    capacity = capacity > WORDS_BLOCK_BYTES ? WORDS_BLOCK_BYTES : capacity;
    capacity = capacity < BUFFER_FIRST ? BUFFER_FIRST : capacity;
    capacity = capacity < bytes ? bytes : capacity;
    uint8_t *data = realloc(block->data, capacity);
    if (!data)
        return false;
    *memory += capacity - block->capacity;
    block->data = data;
    block->capacity = capacity;
    return true;
}

void words_commit(struct word *word, const struct words_posting *posting)
{
    uint32_t need, at = block_for(word, posting, &need);
    struct words_block *block = &word->blocks[at];
    assert(at < word->capacity && block->bytes + need <= block->capacity);
    if (at == word->n_blocks) {
        assert(block->n == 0 && block->bytes == 0);
        word->n_blocks++;
        block->first = block->last = posting->id;
    }
    uint8_t *to = put_varint(block->data + block->bytes, posting->id - block->last);
    to = put_varint(to, posting->bytes);
    memcpy(to, posting->payload, posting->bytes);
    block->bytes += need;
    block->last = posting->id;
    block->n++;
    word->n_documents++;
}

void words_fini(struct word *word)
{
    for (uint32_t i = 0; i < word->capacity; i++)
        free(word->blocks[i].data);
    free(word->blocks);
    word->blocks = NULL;
    word->n_blocks = word->capacity = word->n_documents = 0;
}

uint64_t words_bytes(const struct word *word)
{
    uint64_t bytes = word->capacity * (uint64_t)sizeof *word->blocks;
    for (uint32_t i = 0; i < word->capacity; i++)
        bytes += word->blocks[i].capacity;
    return bytes;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct words_cursor words_begin(const struct word *word)
{
    return (struct words_cursor){.word = word};
}

bool words_next(struct words_cursor *cursor)
{
    const struct word *word = cursor->word;
    if (cursor->block < word->n_blocks && cursor->at == word->blocks[cursor->block].bytes) {
        cursor->block++;
        cursor->at = 0;
    }
    if (cursor->block >= word->n_blocks)
        return false;
    const struct words_block *block = &word->blocks[cursor->block];
    uint64_t delta, bytes;
    const uint8_t *at = get_varint(block->data + cursor->at, &delta);
    at = get_varint(at, &bytes);
    cursor->id = (cursor->at == 0 ? block->first : cursor->id) + (uint32_t)delta;
    cursor->payload = at;
    cursor->payload_end = at + bytes;
    cursor->at = (uint32_t)(cursor->payload_end - block->data);
    return true;
}

bool words_seek(struct words_cursor *cursor, uint32_t id)
{
    const struct word *word = cursor->word;
    if (cursor->payload && cursor->id >= id)
        return true;
    if (cursor->block < word->n_blocks && word->blocks[cursor->block].last < id) {
        /* the first block that ends at or behind it: steps that double, then halves */
        uint32_t first = cursor->block + 1, step = 1, n;
        while (first + step <= word->n_blocks && word->blocks[first + step - 1].last < id) {
            first += step;
            step *= 2;
        }
        for (n = first + step <= word->n_blocks ? step : word->n_blocks - first; n > 0;) {
            if (word->blocks[first + n / 2].last < id) {
                first += n / 2 + 1;
                n -= n / 2 + 1;
            } else {
                n /= 2;
            }
        }
        cursor->block = first;
        cursor->at = 0;
    }
    while (words_next(cursor))
        if (cursor->id >= id)
            return true;
    cursor->payload = NULL;
    return false;
}

uint64_t words_fields(const struct words_cursor *cursor)
{
    uint64_t fields;
    get_varint(cursor->payload, &fields);
    return fields;
}

struct words_field words_first_field(const struct words_cursor *cursor)
{
    struct words_field field = {0};
    field.at = get_varint(cursor->payload, &field.rest);
    return field;
}

bool words_next_place(struct words_field *field, uint32_t *position)
{
    uint64_t delta;
    if (field->left == 0)
        return false;
    field->at = get_varint(field->at, &delta);
    field->left--;
    *position = field->position += (uint32_t)delta;
    return true;
}

bool words_next_field(struct words_field *field)
{
    uint32_t position;
    uint64_t n;
    while (words_next_place(field, &position)) {
    }
    if (field->rest == 0)
        return false;
    field->field = (uint32_t)__builtin_ctzll(field->rest);
    field->rest &= field->rest - 1;
    field->at = get_varint(field->at, &n);
    field->n = field->left = (uint32_t)n;
    field->position = 0;
    return true;
}

/* ---- purging ----------------------------------------------------------------------------------------------------- */

/* How many places a posting has. */
static uint64_t places_of(const uint8_t *payload)
{
    const struct words_cursor cursor = {.payload = payload};
    struct words_field field = words_first_field(&cursor);
    uint64_t n = 0;
    while (words_next_field(&field))
        n += field.n;
    return n;
}

/* Takes dead postings out of one block, in place: what is written never overtakes what is read, since the distance
 * over a posting that is gone takes no more bytes than the two distances that it replaces. */
static void purge_block(struct words_block *block, struct words_purge *purge)
{
    uint32_t n = 0, at = 0, id = block->first, before = 0;
    uint8_t *to = block->data;
    for (uint32_t i = 0; i < block->n; i++) {
        uint64_t delta, bytes;
        const uint8_t *from = get_varint(block->data + at, &delta);
        from = get_varint(from, &bytes);
        id += (uint32_t)delta;
        at = (uint32_t)(from - block->data) + (uint32_t)bytes;
        if (id < purge->end && !doc_set_has(purge->kept, id)) {
            purge->places += places_of(from);
            continue;
        }
        if (n == 0)
            block->first = before = id;
        to = put_varint(to, id - before);
        to = put_varint(to, bytes);
        memmove(to, from, bytes);
        to += bytes;
        before = id;
        n++;
    }
    assert(to <= block->data + block->bytes);
    purge->records += block->n - n;
    block->n = n;
    block->last = before;
    block->bytes = (uint32_t)(to - block->data);
}

/* Gives back what a block has too much, if it is worth it. */
static void shrink_block(struct words_block *block, uint64_t *memory)
{
    uint8_t *data = block->bytes < block->capacity / 2 ? realloc(block->data, block->bytes) : NULL;
    if (data) {
        *memory -= block->capacity - block->bytes;
        block->data = data;
        block->capacity = block->bytes;
    }
}

bool words_purge(struct word *word, struct words_purge *purge, uint32_t *at)
{
    while (*at < word->n_blocks && purge->budget > 0) {
        struct words_block *block = &word->blocks[*at];
        uint64_t before = purge->records;
        purge->budget -= purge->budget < block->bytes ? purge->budget : block->bytes;
        purge_block(block, purge);
        word->n_documents -= (uint32_t)(purge->records - before);
        if (block->n > 0) {
            shrink_block(block, purge->memory);
            (*at)++;
            continue;
        }
        *purge->memory -= block->capacity;
        free(block->data);
        word->n_blocks--;
        purge->blocks++;
        memmove(block, block + 1, (word->capacity - *at - 1) * sizeof *block); /* the spare one behind the last, too */
        memset(&word->blocks[word->capacity - 1], 0, sizeof *block);
    }
    return *at >= word->n_blocks;
}
