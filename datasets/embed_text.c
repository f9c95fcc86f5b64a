/*
 * embed_text.c - from the bytes of a text to a weighted sparse row.
 *
 * Normal form. Words (runs of letters, see embed.h) are lower-cased and written one after another, each between single
 * spaces: " the cat sat ". An apostrophe between letters vanishes (don't = dont). All features are then contiguous
 * bytes of this form, so that hashing needs no copies: word   "cat"                     what the text is about pair
 * "the cat"                 order and set phrases part   " ca" "cat" ... " cat "   3 to 5 characters inside one word
 * with its two spaces: plurals, compounds, typing errors. A character starts at any byte that is not 10xxxxxx, so UTF-8
 * is never cut. Each is hashed with XXH3 (seeded by its group) to a bucket (Weinberger et al. 2009, feature hashing):
 * no dictionary of strings in the model, and unknown words need no special case. Groups have quarters of the bucket
 * space of their own, since a pair that falls on a frequent word would inherit its weight. No sign bit: with 2^20
 * buckets and more per group, of which only those seen often enough are kept, collisions are rare enough not to need
 * the variance that it adds.
 *
 * Weights. Sublinear TF (1 + ln count) times IDF, and each group is normalised to a fixed length before the row as a
 * whole is: otherwise the parts, fifteen for each word, drown the words. The lengths belong to the model, so a model
 * that was fitted under other lengths stays valid.
 *
 * Invariants: entries ascend and are distinct; columns ascend; a row is a unit vector or empty. Cost is linear in the
 * bytes of the text: every character starts at most one part of each length.
 */
#include "datasets/embed_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PART_MIN = 3, PART_MAX = 5 };

static bool is_letter(uint8_t byte)
{
    return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte | 0x20) : byte;
}

/* Writes " word word " and returns its bytes, at most bytes + 2; 0 without a word. */
static size_t normalise(const uint8_t *text, size_t bytes, uint8_t *words)
{
    size_t n = 0;
    words[n++] = ' ';
    for (size_t i = 0; i < bytes; i++)
        if (is_letter(text[i]))
            words[n++] = lower(text[i]);
        else if (text[i] == '\'' && i > 0 && i + 1 < bytes && is_letter(text[i - 1]) && is_letter(text[i + 1]))
            continue;
        else if (words[n - 1] != ' ')
            words[n++] = ' ';
    if (n == 1)
        return 0;
    if (words[n - 1] != ' ')
        words[n++] = ' ';
    return n;
}

static uint32_t bucket_of(enum embed_group group, const uint8_t *bytes, size_t n)
{
    uint64_t hash = XXH3_64bits_withSeed(bytes, n, (uint64_t)group + 1);
    uint32_t quarter = EMBED_BUCKETS / 4;
    if (group == EMBED_PART)
        return 2 * quarter + (uint32_t)(hash % (2 * quarter));
    return (uint32_t)group * quarter + (uint32_t)(hash % quarter);
}

static size_t next_character(const uint8_t *words, size_t at, size_t end)
{
    do
        at++;
    while (at < end && (words[at] & 0xC0) == 0x80);
    return at;
}

/* Parts of the word at [begin, end), both spaces included. */
static uint32_t add_parts(const uint8_t *words, size_t begin, size_t end, uint32_t *out)
{
    uint32_t n = 0;
    for (size_t from = begin; from < end; from = next_character(words, from, end)) {
        size_t to = from;
        for (int characters = 1; characters <= PART_MAX && to < end; characters++) {
            to = next_character(words, to, end);
            if (characters >= PART_MIN)
                out[n++] = bucket_of(EMBED_PART, words + from, to - from);
        }
    }
    return n;
}

/* Buckets of all features of the normal form, in order of the text, repeated as they are there. */
static uint32_t collect(const uint8_t *words, size_t bytes, uint32_t *out)
{
    uint32_t n = 0;
    size_t before = 0; /* start of the word before; 0: none */
    for (size_t begin = 1; begin < bytes;) {
        size_t end = begin;
        while (words[end] != ' ')
            end++;
        out[n++] = bucket_of(EMBED_WORD, words + begin, end - begin);
        if (before)
            out[n++] = bucket_of(EMBED_PAIR, words + before, end - before);
        n += add_parts(words, begin - 1, end + 1, out + n);
        before = begin;
        begin = end + 1;
    }
    return n;
}

/* Radix sort of 22-bit numbers: three passes of eight bits. The result lies in `b`. */
static void sort_buckets(uint32_t *a, uint32_t *b, uint32_t n)
{
    for (unsigned shift = 0; shift < 24; shift += 8) {
        uint32_t place[257] = {0};
        for (uint32_t i = 0; i < n; i++)
            place[(a[i] >> shift & 255) + 1]++;
        for (unsigned i = 0; i < 256; i++)
            place[i + 1] += place[i];
        for (uint32_t i = 0; i < n; i++)
            b[place[a[i] >> shift & 255]++] = a[i];
        uint32_t *swap = a;
        a = b;
        b = swap;
    }
}

static uint32_t count_repeats(const uint32_t *sorted, uint32_t n, uint32_t *entries)
{
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && sorted[end] == sorted[i])
            end++;
        uint32_t count = end - i < EMBED_COUNT_MAX ? end - i : EMBED_COUNT_MAX;
        entries[distinct++] = sorted[i] << 10 | count;
        i = end;
    }
    return distinct;
}

/* Space for a text of so many bytes. A byte adds at most a part of each of three lengths and, with the separator that
 * every further word needs, one word and one pair for two bytes. */
static int features_reserve(struct features *features, size_t bytes, struct quire_error *err)
{
    if (features->entries && bytes <= features->text_bytes)
        return 0;
    size_t text_bytes = bytes < 256 ? 256 : bytes;
    size_t n = 4 * text_bytes + 16;
    struct features larger = {.text_bytes = text_bytes};
    larger.entries = malloc(n * sizeof *larger.entries);
    larger.capacity = malloc(n * sizeof *larger.capacity);
    larger.words = malloc(text_bytes + 2);
    if (!larger.entries || !larger.capacity || !larger.words) {
        embed_features_fini(&larger);
        return error_set(err, QUIRE_ENOMEM, "no memory for the features of a text of %zu bytes", bytes);
    }
    embed_features_fini(features);
    *features = larger;
    return 0;
}

int embed_features_of(struct features *features, const char *text, size_t bytes, struct quire_error *err)
{
    if (bytes > EMBED_TEXT_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a text has %zu bytes and the limit is %u; split it", bytes,
                         EMBED_TEXT_BYTES_MAX);
    int rc = features_reserve(features, bytes, err);
    if (rc != 0)
        return rc;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what features_reserve freed it has replaced */
    size_t n_words = normalise((const uint8_t *)text, bytes, features->words);
    uint32_t n = collect(features->words, n_words, features->entries);
    sort_buckets(features->entries, features->capacity, n);
    features->n = count_repeats(features->capacity, n, features->entries);
    return 0;
}

void embed_features_fini(struct features *features)
{
    free(features->entries);
    free(features->capacity);
    free(features->words);
    *features = (struct features){0};
}

int embed_vocabulary_index(struct vocabulary *vocabulary, struct quire_error *err)
{
    uint32_t slots = 1u << EMBED_DIRECTORY_BITS, column = 0;
    vocabulary->directory = malloc((slots + 1) * sizeof *vocabulary->directory);
    if (!vocabulary->directory)
        return error_set(err, QUIRE_ENOMEM, "no memory for the directory of an embedder's vocabulary");
    for (uint32_t slot = 0; slot <= slots; slot++) {
        while (column < vocabulary->n &&
               vocabulary->bucket[column] >> (EMBED_BUCKET_BITS - EMBED_DIRECTORY_BITS) < slot)
            column++;
        vocabulary->directory[slot] = column;
    }
    return 0;
}

void embed_vocabulary_fini(struct vocabulary *vocabulary)
{
    free(vocabulary->bucket);
    free(vocabulary->idf);
    free(vocabulary->directory);
    *vocabulary = (struct vocabulary){0};
}

/* The column of a bucket, or UINT32_MAX. */
static uint32_t vocabulary_column(const struct vocabulary *vocabulary, uint32_t bucket)
{
    uint32_t slot = bucket >> (EMBED_BUCKET_BITS - EMBED_DIRECTORY_BITS);
    uint32_t end = vocabulary->directory[slot + 1];
    for (uint32_t column = vocabulary->directory[slot]; column < end; column++)
        if (vocabulary->bucket[column] == bucket)
            return column;
    return UINT32_MAX;
}

uint32_t embed_vocabulary_row(const struct vocabulary *vocabulary, const uint32_t *entries, uint32_t n_entries,
                              uint32_t *columns, float *values)
{
    double squares[EMBED_GROUPS] = {0}, scale[EMBED_GROUPS], total = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_entries; i++) {
        uint32_t column = vocabulary_column(vocabulary, embed_feature_bucket(entries[i]));
        if (column == UINT32_MAX)
            continue;
        float value = (1.0f + logf((float)embed_feature_count(entries[i]))) * vocabulary->idf[column];
        squares[embed_bucket_group(vocabulary->bucket[column])] += (double)value * value;
        columns[n] = column;
        values[n++] = value;
    }
    for (int g = 0; g < EMBED_GROUPS; g++)
        if (squares[g] > 0)
            total += (double)vocabulary->weight[g] * vocabulary->weight[g];
    if (!(total > 0))
        return 0;
    for (int g = 0; g < EMBED_GROUPS; g++)
        scale[g] = squares[g] > 0 ? vocabulary->weight[g] / sqrt(squares[g] * total) : 0;
    for (uint32_t i = 0; i < n; i++)
        values[i] *= (float)scale[embed_bucket_group(vocabulary->bucket[columns[i]])];
    return n;
}
