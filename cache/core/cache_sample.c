/*
 * cache_sample.c - some entries at random with their vectors, for pictures of a cache.
 *
 * All entries are looked at, a batch under the lock at a time, and each has the same chance (reservoir sampling, Vitter
 * 1985). Then the vectors are taken: those in memory from the graph, inside an epoch; those on the disk from the blocks
 * that hold them, segment by segment, each block once. An entry that goes meanwhile is left out, and so is one whose
 * block cannot be read: searches complain of that.
 *
 * A number becomes a byte: a picture has fewer points than that, and 2,000 vectors are small enough to be sent.
 */
#include "cache/core/sealed.h"
#include "index/vector/codes.h"
#include "io/error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_BATCH = 4096 }; /* entries looked at under the lock at a time */

/* One whose vector lies on the disk. */
struct wanted {
    struct sealed *sealed; /* a reference */
    uint64_t id;
    uint32_t row, at; /* in the segment; in the sample */
};

struct sample {
    struct cache *cache;
    struct cache_sampled *out;
    int8_t *vectors;
    uint32_t n;
    struct wanted *wanted, *reading; /* reading: the first of the segment that is read */
    uint32_t n_wanted, n_reading;
};

/* ---- which ------------------------------------------------------------------------------------------------------- */

static bool may_choose(const struct cache *cache, uint32_t row, uint32_t category)
{
    uint64_t both = ENTRY_LIVE | ENTRY_VECTOR;
    return (cache_entry_word(cache, row) & both) == both &&
           (category == UINT32_MAX || cache->groups[cache_entry_at(cache, row)->group]->category == category);
}

/* Ids of at most `capacity` entries. */
static int choose(struct sample *s, struct quire_bytes category, uint32_t capacity, struct quire_error *err)
{
    struct cache *cache = s->cache;
    uint32_t number = UINT32_MAX;
    uint64_t seen = 0;
    pthread_mutex_lock(&cache->lock);
    int rc = category.data ? cache_category_find(cache, category, &number, err) : 0;
    struct random random;
    random_init(&random, random_next(&cache->random)); /* of its own: two samples have nothing in common */
    for (uint32_t row = 0; rc == 0 && row < cache->n_rows; row++) {
        if (may_choose(cache, row, number)) {
            uint64_t place = s->n < capacity ? s->n++ : random_below(&random, seen + 1);
            if (place < capacity)
                s->out[place].info.id = cache_entry_id(cache_entry_at(cache, row), row);
            seen++;
        }
        if (row % LOOK_BATCH == LOOK_BATCH - 1) { /* others get a turn */
            pthread_mutex_unlock(&cache->lock);
            pthread_mutex_lock(&cache->lock);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- their vectors ----------------------------------------------------------------------------------------------- */

static void take_numbers(struct sample *s, uint32_t at, const float *vector)
{
    uint32_t dim = s->cache->config.dim;
    int8_t *bytes = s->vectors + (size_t)at * dim;
    float largest = 0;
    for (uint32_t i = 0; i < dim; i++)
        largest = fmaxf(largest, fabsf(vector[i]));
    for (uint32_t i = 0; i < dim; i++)
        bytes[i] = (int8_t)(largest > 0 ? lroundf(vector[i] / largest * 127) : 0);
    s->out[at].step = largest > 0 ? largest / 127 : 1;
}

/* Describes entry `at`, and takes its vector or notes where that lies. floats: code_dim and dim. */
static void look_at(struct sample *s, uint32_t at, float *floats)
{
    struct cache *cache = s->cache;
    struct cache_sampled *one = &s->out[at];
    bool in_memory = false;
    uint32_t graph_at = 0;
    unsigned slot = epoch_enter(cache->of->epochs);
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, one->info.id);
    if (row != UINT32_MAX && may_choose(cache, row, UINT32_MAX)) {
        struct place place = sealed_place_of(cache, row);
        struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
        cache_entry_describe(cache, row, &one->info);
        group_scope_text(cache->groups[cache_entry_at(cache, row)->group]->scope, one->scope, sizeof one->scope);
        in_memory = place.segment == 0;
        graph_at = sealed_graph_row(cache, row);
        if (sealed && sealed->segment)
            s->wanted[s->n_wanted++] = (struct wanted){sealed_ref(sealed), one->info.id, place.row, at};
    }
    pthread_mutex_unlock(&cache->lock);
    if (in_memory) { /* the row keeps its code as long as this epoch lasts */
        const uint8_t *code;
        float f, norm2, *vector = floats + cache->space.code_dim;
        graph_row(cache->graph, graph_at, &code, &f, &norm2);
        code_decode(code, cache->space.code_dim, 8, f, floats);
        space_restore(&cache->space, floats, vector);
        take_numbers(s, at, vector);
    }
    epoch_exit(cache->of->epochs, slot);
}

static int by_place(const void *left, const void *right)
{
    const struct wanted *a = left, *b = right;
    if (a->sealed->number != b->sealed->number)
        return a->sealed->number > b->sealed->number ? 1 : -1;
    return (a->row > b->row) - (a->row < b->row);
}

static int take_row(void *context, const struct scanned_row *row)
{
    struct sample *s = context;
    for (uint32_t i = 0; i < s->n_reading; i++) { /* they are ascending, as the rows come */
        const struct wanted *w = &s->reading[i];
        if (w->row != row->row)
            continue;
        if (row->key_bytes == sizeof w->id && memcmp(row->key, &w->id, sizeof w->id) == 0)
            take_numbers(s, w->at, row->vector);
        s->n_reading -= i + 1;
        s->reading += i + 1;
        break;
    }
    return 0;
}

static void on_damage(void *context, const char *sentence)
{
    (void)context;
    (void)sentence;
}

static int read_sealed(struct sample *s, struct quire_error *err)
{
    uint32_t *rows = malloc(sizeof *rows * (s->n_wanted + 1u)), n;
    int rc = rows ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the places of %u vectors", s->n_wanted);
    if (s->n_wanted)
        qsort(s->wanted, s->n_wanted, sizeof *s->wanted, by_place);
    for (uint32_t first = 0; rc == 0 && first < s->n_wanted; first += n) {
        struct wanted *w = &s->wanted[first];
        for (n = 0; first + n < s->n_wanted && w[n].sealed == w->sealed; n++)
            rows[n] = w[n].row;
        s->reading = w;
        s->n_reading = n;
        rc = segment_scan_rows(w->sealed->segment, rows, n, take_row, on_damage, s, err);
    }
    free(rows);
    for (uint32_t i = 0; i < s->n_wanted; i++)
        sealed_unref(s->wanted[i].sealed);
    return rc;
}

int cache_sample(struct cache *cache, struct quire_bytes category, struct cache_sampled *out, int8_t *vectors,
                 uint32_t n, struct quire_error *err)
{
    struct sample s = {.cache = cache, .out = out, .vectors = vectors};
    uint32_t dim = cache->config.dim, kept = 0;
    float *floats = malloc(sizeof *floats * ((size_t)cache->space.code_dim + dim));
    s.wanted = malloc(sizeof *s.wanted * n);
    int rc = n && floats && s.wanted ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a sample of %u vectors", n);
    if (rc == 0)
        rc = choose(&s, category, n, err);
    for (uint32_t i = 0; rc == 0 && i < s.n; i++) {
        out[i].step = 0;
        look_at(&s, i, floats);
    }
    if (rc == 0)
        rc = read_sealed(&s, err);
    for (uint32_t i = 0; rc == 0 && i < s.n; i++) {
        if (!(out[i].step > 0)) /* it is gone */
            continue;
        if (kept != i) {
            out[kept] = out[i];
            memmove(vectors + (size_t)kept * dim, vectors + (size_t)i * dim, dim);
        }
        kept++;
    }
    free(floats);
    free(s.wanted);
    return rc < 0 ? rc : (int)kept;
}
