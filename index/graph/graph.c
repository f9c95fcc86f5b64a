/*
 * graph.c - the rows of the mutable graph: their memory, numbers, locks, and what becomes of a removed one.
 *
 * A row takes code_dim bytes of code, 16 of numbers and 4 of each link, in three arrays that never move
 * (stable_array.h): a search reads codes and numbers of many rows and links of few. On how many upper layers a row is
 * follows from its number alone, so nothing of it is stored, and a number that is used again finds its blocks there.
 * A row that has such blocks gives one of its lowest links for the place where they begin.
 *
 * A removed row goes into a list that runs through the states of its rows. The list is handed to the epochs as a whole,
 * one at a time, so that removing needs no memory: what is removed while one waits makes the next. When it runs, the
 * rows become free. Their states cannot be links by then: a state with STATE_GONE counts no links.
 *
 * Locks: a bit in the row's state, held for some hundred instructions; who finds it set spins, then yields. Two rows
 * are locked in the order of their numbers. graph->mutex is taken inside graph->removing or a row's lock, never the
 * other way round.
 */
#include "index/graph/graph_priv.h"
#include "io/error.h"
#include "io/lock.h"
#include "io/random.h"
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DEGREE_DEFAULT  16u
#define BEAM_DEFAULT    100u
#define DESCENT_DEFAULT 16u
#define LOWEST_MIN      4u
#define THINNING_MAX    8u
#define SLACK_DEFAULT   1.2f
#define REGION_BYTES    ((size_t)1 << 30)
#define COLLECT_EVERY   64u /* rows removed while others wait: then it is asked whether these may go */
#define SPINS           100u

/* ---- locks and links ---- */

unsigned graph_row_layers(const struct graph *graph, uint32_t row)
{
    uint64_t draw = random_mix(graph->seed + (row + UINT64_C(1)) * 0x9e3779b97f4a7c15ull) | 1;
    unsigned layers = (unsigned)__builtin_clzll(draw) / graph->layer_bits;
    return layers < LAYERS_MAX ? layers : LAYERS_MAX - 1;
}

static inline void relax(unsigned spins)
{
    if (spins % SPINS == SPINS - 1)
        sched_yield();
#if defined(__x86_64__)
    else
        __builtin_ia32_pause();
#endif
}

bool graph_row_lock(const struct graph *graph, uint32_t row)
{
    _Atomic uint32_t *state = &graph_row_numbers(graph, row)->state;
    for (unsigned spins = 0;; spins++) {
        uint32_t old = atomic_load_explicit(state, memory_order_relaxed);
        if (old & STATE_GONE)
            return false;
        if (!(old & STATE_LOCKED) && atomic_compare_exchange_weak_explicit(state, &old, old | STATE_LOCKED,
                                                                           memory_order_acquire, memory_order_relaxed))
            return true;
        relax(spins);
    }
}

void graph_row_unlock(const struct graph *graph, uint32_t row)
{
    uint32_t state =
        atomic_fetch_and_explicit(&graph_row_numbers(graph, row)->state, ~STATE_LOCKED, memory_order_release);
    assert((state & (STATE_LOCKED | STATE_GONE)) == STATE_LOCKED);
}

struct graph_link_list graph_link_list(const struct graph *graph, uint32_t row, unsigned layer)
{
    _Atomic uint32_t *links = stable_array_at(&graph->links, row);
    assert(layer < LAYERS_MAX);
    if (layer == 0)
        return (struct graph_link_list){links, &graph_row_numbers(graph, row)->state,
                                        graph->capacity - (graph_row_layers(graph, row) > 0)};
    uint32_t first = atomic_load_explicit(&links[graph->capacity - 1], memory_order_relaxed);
    _Atomic uint32_t *block = stable_array_at(&graph->upper, first + layer - 1);
    return (struct graph_link_list){block + 1, block, graph->degree};
}

uint32_t graph_links_read(const struct graph *graph, uint32_t row, unsigned layer, uint32_t *links)
{
    struct graph_link_list list = graph_link_list(graph, row, layer);
    uint32_t n = graph_link_count(&list);
    for (uint32_t i = 0; i < n; i++)
        links[i] = atomic_load_explicit(&list.links[i], memory_order_acquire);
    return n;
}

/* ---- the graph ---- */

static unsigned lowest_of(const struct graph_config *config)
{
    return config->lowest ? config->lowest : 2 * (config->degree ? config->degree : DEGREE_DEFAULT);
}

static int check_config(const struct graph_config *config, struct quire_error *err)
{
    if (config->code_dim == 0 || config->code_dim % 32 != 0)
        return error_set(err, QUIRE_EINVALID, "code_dim is %u; it must be a multiple of 32", config->code_dim);
    if (config->degree == 1 || config->degree > DEGREE_MAX)
        return error_set(err, QUIRE_EINVALID, "degree is %u; choose 2 to %u, or 0 for %u", config->degree, DEGREE_MAX,
                         DEGREE_DEFAULT);
    if (config->lowest && (config->lowest < LOWEST_MIN || config->lowest > LINKS_MAX))
        return error_set(err, QUIRE_EINVALID, "lowest is %u; choose %u to %u, or 0 for twice the degree",
                         config->lowest, LOWEST_MIN, LINKS_MAX);
    if (config->thinning > THINNING_MAX)
        return error_set(err, QUIRE_EINVALID, "thinning is %u; choose 1 to %u, or 0 to follow the degree",
                         config->thinning, THINNING_MAX);
    if (config->fill > lowest_of(config))
        return error_set(err, QUIRE_EINVALID,
                         "fill is %u; choose at most %u, the links of the lowest layer, or 0 for half", config->fill,
                         lowest_of(config));
    if (!(config->slack == 0 || (config->slack >= 0.5f && config->slack <= 4)))
        return error_set(err, QUIRE_EINVALID, "slack is %g; choose 0.5 to 4, or 0 for %g", (double)config->slack,
                         (double)SLACK_DEFAULT);
    return 0;
}

static void set_config(struct graph *graph, const struct graph_config *config, unsigned region_shift)
{
    memset(graph, 0, sizeof *graph);
    graph->code_dim = config->code_dim;
    graph->degree = config->degree ? config->degree : DEGREE_DEFAULT;
    graph->capacity = lowest_of(config);
    graph->beam = config->beam ? config->beam : BEAM_DEFAULT;
    graph->descent = config->descent ? config->descent : DESCENT_DEFAULT;
    graph->fill = config->fill ? config->fill : graph->capacity / 2;
    graph->slack = config->slack > 0 ? config->slack : SLACK_DEFAULT;
    graph->layer_bits = config->thinning ? config->thinning : 1;
    while (!config->thinning && (2u << graph->layer_bits) <= graph->degree)
        graph->layer_bits++;
    graph->seed = config->seed;
    graph->epochs = config->epochs;
    assert(graph->capacity <= LINKS_MAX && graph->degree <= DEGREE_MAX && graph->fill <= graph->capacity);
    stable_array_init(&graph->codes, graph->code_dim, region_shift);
    stable_array_init(&graph->numbers, sizeof(struct graph_row_numbers), region_shift);
    stable_array_init(&graph->links, graph->capacity * sizeof(uint32_t), region_shift);
    stable_array_init(&graph->upper, (1 + graph->degree) * sizeof(uint32_t), region_shift);
    atomic_init(&graph->linked, 0);
    atomic_init(&graph->distances, 0);
    graph->free_first = graph->gone_first = graph->deferred_first = ROW_NONE;
}

static size_t matrix_bytes(const struct graph *graph)
{
    size_t most = graph->degree > graph->capacity ? graph->degree : graph->capacity;
    return most * most * sizeof(float);
}

int graph_create_sized(const struct graph_config *config, unsigned region_shift, struct graph **out,
                       struct quire_error *err)
{
    int rc = check_config(config, err);
    if (rc < 0)
        return rc;
    struct graph *graph = malloc(sizeof *graph);
    if (!graph)
        return error_set(err, QUIRE_ENOMEM, "no memory for a graph");
    set_config(graph, config, region_shift);
    graph->matrix = malloc(matrix_bytes(graph));
    if (!graph->matrix) {
        free(graph);
        return error_set(err, QUIRE_ENOMEM, "no memory for a graph");
    }
    pthread_mutex_init(&graph->mutex, NULL);
    pthread_mutex_init(&graph->removing, NULL);
    *out = graph;
    return 0;
}

int graph_create(const struct graph_config *config, struct graph **out, struct quire_error *err)
{
    size_t stride = config->code_dim ? config->code_dim : 1;
    return graph_create_sized(config, stable_array_shift(stride, REGION_BYTES), out, err);
}

static void free_shell(struct graph *graph)
{
    pthread_mutex_destroy(&graph->mutex);
    pthread_mutex_destroy(&graph->removing);
    free(graph);
}

/* What was deferred may run on another thread meanwhile: it waits for the mutex, and then sees that the arrays are
 * gone. */
void graph_destroy(struct graph *graph)
{
    if (!graph)
        return;
    pthread_mutex_lock(&graph->mutex);
    assert(!graph->destroyed);
    graph->destroyed = true;
    bool waits = graph->deferred;
    stable_array_fini(&graph->codes);
    stable_array_fini(&graph->numbers);
    stable_array_fini(&graph->links);
    stable_array_fini(&graph->upper);
    free(graph->matrix);
    pthread_mutex_unlock(&graph->mutex);
    if (!waits)
        free_shell(graph);
}

void graph_root_init(struct graph_root *root)
{
    atomic_init(&root->entry, 0);
    atomic_init(&root->linked, 0);
}

/* ---- adding ---- */

/* One number more, with memory, that holds no row and is in no list. (mutex) */
static int new_number(struct graph *graph)
{
    uint32_t n = graph->n_rows;
    assert(graph->placing || lock_is_held(&graph->mutex));
    if (n == ROW_NONE)
        return QUIRE_ELIMIT;
    unsigned layers = graph_row_layers(graph, n);
    if (stable_array_reserve(&graph->codes, n + 1) < 0 || stable_array_reserve(&graph->numbers, n + 1) < 0 ||
        stable_array_reserve(&graph->links, n + 1) < 0 ||
        stable_array_reserve(&graph->upper, graph->n_upper + layers) < 0)
        return QUIRE_ENOMEM;
    if (layers) {
        _Atomic uint32_t *links = stable_array_at(&graph->links, n);
        atomic_store_explicit(&links[graph->capacity - 1], graph->n_upper, memory_order_relaxed);
        graph->n_upper += layers;
    }
    atomic_store_explicit(&graph_row_numbers(graph, n)->state, STATE_GONE | ROW_NONE, memory_order_relaxed);
    atomic_store_explicit(&graph->n_rows, n + 1, memory_order_release);
    return 0;
}

/* A number becomes a row without links. */
void graph_row_fill(struct graph *graph, uint32_t row, const uint8_t *code, float f, float norm2)
{
    memcpy(stable_array_at(&graph->codes, row), code, graph->code_dim);
    struct graph_row_numbers *numbers = graph_row_numbers(graph, row);
    int32_t sum = 0;
    assert(numbers->state & STATE_GONE);
    for (uint32_t i = 0; i < graph->code_dim; i++)
        sum += code[i];
    numbers->f = f;
    numbers->norm2 = norm2;
    numbers->level_sum = sum;
    for (unsigned layer = graph_row_layers(graph, row); layer > 0; layer--)
        atomic_store_explicit(graph_link_list(graph, row, layer).count, 0, memory_order_relaxed);
    atomic_store_explicit(&numbers->state, 0, memory_order_release);
}

int graph_add(struct graph *graph, const uint8_t *code, float f, float norm2, uint32_t *row)
{
    int rc = 0;
    pthread_mutex_lock(&graph->mutex);
    assert(!graph->placing && (graph->free_first == ROW_NONE) == (graph->n_free == 0));
    if (graph->free_first == ROW_NONE) {
        *row = graph->n_rows;
        rc = new_number(graph);
    } else {
        *row = graph->free_first;
        graph->free_first = graph_row_state(graph, *row) & ~STATE_GONE;
        graph->n_free--;
        assert(graph_row_state(graph, *row) & STATE_GONE);
    }
    pthread_mutex_unlock(&graph->mutex);
    if (rc == 0)
        graph_row_fill(graph, *row, code, f, norm2);
    return rc;
}

/* ---- restoring ---- */

/* Makes a number that holds no row ready to be filled. */
int graph_row_prepare(struct graph *graph, uint32_t row)
{
    int rc = graph->n_gone + graph->n_deferred ? QUIRE_EINVALID : row >= ROW_NONE ? QUIRE_ELIMIT : 0;
    if (rc == 0) {
        graph->placing = true;
        graph->free_first = ROW_NONE; /* graph_place_end makes the list anew */
        graph->n_free = 0;
    }
    while (rc == 0 && graph->n_rows <= row)
        rc = new_number(graph);
    return rc == 0 && !(graph_row_state(graph, row) & STATE_GONE) ? QUIRE_EEXISTS : rc;
}

int graph_place(struct graph *graph, uint32_t row, const uint8_t *code, float f, float norm2)
{
    int rc = graph_row_prepare(graph, row);
    if (rc == 0)
        graph_row_fill(graph, row, code, f, norm2);
    return rc;
}

int graph_unplace(struct graph *graph, uint32_t row)
{
    if (row >= graph->n_rows || (graph_row_state(graph, row) & STATE_GONE))
        return QUIRE_ENOTFOUND;
    assert(graph->placing);
    atomic_store_explicit(&graph_row_numbers(graph, row)->state, STATE_GONE | ROW_NONE, memory_order_relaxed);
    return 0;
}

void graph_place_end(struct graph *graph)
{
    if (!graph->placing)
        return;
    assert(!graph->loaded);
    for (uint32_t row = graph->n_rows; row-- > 0;)
        if (graph_row_state(graph, row) & STATE_GONE) {
            atomic_store_explicit(&graph_row_numbers(graph, row)->state, STATE_GONE | graph->free_first,
                                  memory_order_relaxed);
            graph->free_first = row;
            graph->n_free++;
        }
    graph->placing = false;
}

void graph_row(const struct graph *graph, uint32_t row, const uint8_t **code, float *f, float *norm2)
{
    const struct graph_row_numbers *numbers = graph_row_numbers(graph, row);
    *code = graph_row_code(graph, row);
    *f = numbers->f;
    *norm2 = numbers->norm2;
}

/* ---- what becomes of a removed row ---- */

static void run_deferred(struct epoch_item *item);

/* Hands the list of gone rows to the epochs, if none waits; true if it is to be deferred. (mutex) */
static bool defer_gone(struct graph *graph)
{
    assert(lock_is_held(&graph->mutex) && (graph->gone_first == ROW_NONE) == (graph->n_gone == 0));
    if (graph->deferred || graph->gone_first == ROW_NONE)
        return false;
    graph->deferred_first = graph->gone_first;
    graph->n_deferred = graph->n_gone;
    graph->gone_first = ROW_NONE;
    graph->n_gone = 0;
    graph->deferred = true;
    graph->item.run = run_deferred;
    return true;
}

/* All readers that could know them have left: the deferred rows become free. */
static void run_deferred(struct epoch_item *item)
{
    struct graph *graph = (struct graph *)(void *)((char *)item - offsetof(struct graph, item));
    pthread_mutex_lock(&graph->mutex);
    if (graph->destroyed) {
        pthread_mutex_unlock(&graph->mutex);
        free_shell(graph);
        return;
    }
    uint32_t row = graph->deferred_first, n = 0;
    assert(graph->deferred && graph->n_deferred > 0);
    for (; row != ROW_NONE; n++) {
        assert(graph_row_state(graph, row) & STATE_GONE);
        uint32_t next = graph_row_state(graph, row) & ~STATE_GONE;
        atomic_store_explicit(&graph_row_numbers(graph, row)->state, STATE_GONE | graph->free_first,
                              memory_order_relaxed);
        graph->free_first = row;
        row = next;
    }
    assert(n == graph->n_deferred);
    graph->n_free += graph->n_deferred;
    graph->n_deferred = 0;
    graph->deferred_first = ROW_NONE;
    graph->deferred = false;
    bool more = defer_gone(graph);
    pthread_mutex_unlock(&graph->mutex);
    if (more)
        epoch_defer(graph->epochs, &graph->item);
}

void graph_row_gone(struct graph *graph, uint32_t row)
{
    pthread_mutex_lock(&graph->mutex);
    assert(row < graph->n_rows && !(graph_row_state(graph, row) & STATE_GONE));
    atomic_store_explicit(&graph_row_numbers(graph, row)->state, STATE_GONE | graph->gone_first, memory_order_release);
    graph->gone_first = row;
    graph->n_gone++;
    pthread_mutex_unlock(&graph->mutex);
}

void graph_gone_defer(struct graph *graph)
{
    pthread_mutex_lock(&graph->mutex);
    bool first = defer_gone(graph), collect = !first && graph->n_gone % COLLECT_EVERY == 0;
    pthread_mutex_unlock(&graph->mutex);
    if (first)
        epoch_defer(graph->epochs, &graph->item);
    if (collect)
        epochs_collect(graph->epochs);
}

void graph_discard(struct graph *graph, uint32_t row)
{
    graph_row_gone(graph, row);
    graph_gone_defer(graph);
}

/* ---- what is known ---- */

uint32_t graph_row_end(const struct graph *graph)
{
    return atomic_load_explicit(&graph->n_rows, memory_order_acquire);
}

uint32_t graph_links(const struct graph *graph, uint32_t row, uint32_t *rows, uint32_t capacity)
{
    uint32_t links[LINKS_MAX], n = graph_links_read(graph, row, 0, links);
    n = n < capacity ? n : capacity;
    for (uint32_t i = 0; i < n; i++)
        rows[i] = links[i] & ~LINK_TREE;
    return n;
}

void graph_get_stats(const struct graph *graph, struct graph_stats *out)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&graph->mutex;
    pthread_mutex_lock(mutex);
    out->free = graph->n_free;
    out->removed = graph->n_gone + graph->n_deferred;
    out->rows = graph->n_rows - out->free - out->removed;
    out->bytes = sizeof *graph + matrix_bytes(graph) +
                 graph->n_rows * (graph->codes.stride + graph->numbers.stride + graph->links.stride) +
                 graph->n_upper * graph->upper.stride;
    pthread_mutex_unlock(mutex);
    out->linked = (uint32_t)atomic_load(&graph->linked);
    out->distances = atomic_load(&graph->distances);
}
