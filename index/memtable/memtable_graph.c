/*
 * memtable_graph.c - the graph stage of a memtable: rows get codes, wait in a queue, are linked by any thread.
 *
 * The change happens inside the put that passes MEMTABLE_FLAT_ROWS: all rows get codes in the space that they define
 * (their mean; under inner product their longest with headroom) and wait to be linked; until then searches compare them
 * one by one.
 * Under cosine the mean stays zero, so that codes made before the change stay what they are; where they are all that is
 * kept of a vector (coded) the graph's copy becomes the only one, and the record without it takes the record's place.
 *
 * The queue is a ring of row numbers, each record knowing its place in it. Readers walk it without a lock: an entry
 * that was overwritten, or belongs to an earlier row of that number, names a record of another place and is passed
 * over. A row is in state LINKED only when searches find it in the graph. So whoever walks the queue first and searches
 * the graph then sees every row.
 *
 * A row that died is not linked when no reader can see it any more; before that it is, since a reader of an older
 * snapshot would find it nowhere else.
 */
#include "index/memtable/memtable_priv.h"
#include "io/bytes.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Of norm2_max over the longest row at the change: lengths may grow by an eighth. More headroom costs recall: at half
 * as much again the graph misses twice as many. */
#define IP_HEADROOM 1.25
#define RING_MIN    64u

/* ---- arrays that grow -------------------------------------------------------------------------------------------- */

static struct nodes *nodes_new(struct memtable *table, uint32_t capacity, const struct nodes *from)
{
    struct nodes *nodes = memtable_block_alloc(table, sizeof *nodes + capacity * sizeof nodes->rows[0]);
    if (!nodes)
        return NULL;
    nodes->capacity = capacity;
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&nodes->rows[i], from && i < from->capacity
                                         ? atomic_load_explicit(&from->rows[i], memory_order_relaxed)
                                         : MEMTABLE_NONE);
    return nodes;
}

/* Room for one graph row more; the graph numbers them without gaps. */
static int nodes_reserve(struct memtable *table, struct navigation *navigation)
{
    struct nodes *old = atomic_load_explicit(&navigation->nodes, memory_order_relaxed);
    if (navigation->node_end < old->capacity)
        return 0;
    struct retired *retired = memtable_retired_new(1);
    struct nodes *nodes = retired ? nodes_new(table, old->capacity + old->capacity / 2, old) : NULL;
    if (!nodes) {
        free(retired);
        return QUIRE_ENOMEM;
    }
    atomic_store_explicit(&navigation->nodes, nodes, memory_order_release);
    memtable_block_replaced(table, retired, old);
    return 0;
}

static struct ring *ring_new(struct memtable *table, uint32_t capacity)
{
    struct ring *ring = memtable_block_alloc(table, sizeof *ring + capacity * sizeof ring->rows[0]);
    if (!ring)
        return NULL;
    ring->mask = capacity - 1;
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&ring->rows[i], 0);
    return ring;
}

static int ring_reserve(struct memtable *table, struct navigation *navigation)
{
    struct ring *old = atomic_load_explicit(&navigation->ring, memory_order_relaxed);
    uint32_t tail = atomic_load(&navigation->tail);
    if (tail - atomic_load(&navigation->head) <= old->mask)
        return 0;
    struct retired *retired = memtable_retired_new(1);
    struct ring *ring = retired ? ring_new(table, (old->mask + 1) * 2) : NULL;
    if (!ring) {
        free(retired);
        return QUIRE_ENOMEM;
    }
    for (uint32_t i = atomic_load(&navigation->head); i != tail; i++)
        atomic_init(&ring->rows[i & ring->mask], atomic_load_explicit(&old->rows[i & old->mask], memory_order_relaxed));
    pthread_mutex_lock(&navigation->lock);
    atomic_store_explicit(&navigation->ring, ring, memory_order_release);
    pthread_mutex_unlock(&navigation->lock);
    memtable_block_replaced(table, retired, old);
    return 0;
}

/* ---- the change -------------------------------------------------------------------------------------------------- */

/* The longest row, under inner product, the coming one included. floats: code_dim. */
static double longest_norm2(const struct memtable *table, const void *vector, float *floats)
{
    space_floats(table->config.type, vector, table->config.dim, floats);
    double longest = memtable_norm2(floats, table->config.dim);
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record)
            continue;
        space_floats(table->config.type, record->bytes, table->config.dim, floats);
        double norm2 = memtable_norm2(floats, table->config.dim);
        longest = norm2 > longest ? norm2 : longest;
    }
    return longest;
}

/* The mean of the rows there. floats: code_dim. */
static int set_mean(struct memtable *table, float *floats)
{
    struct space *space = &table->space;
    double *sum = calloc(space->work_dim, sizeof *sum);
    uint32_t n = 0;
    if (!sum)
        return QUIRE_ENOMEM;
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record)
            continue;
        space_floats(table->config.type, record->bytes, table->config.dim, floats);
        space_lift(space, floats, floats);
        for (uint32_t i = 0; i < space->work_dim; i++)
            sum[i] += floats[i];
        n++;
    }
    for (uint32_t i = 0; n && i < space->work_dim; i++)
        space->mean[i] = (float)(sum[i] / n);
    free(sum);
    return 0;
}

/* The space of a table that kept vectors until now. */
static int space_begin(struct memtable *table, const void *vector)
{
    const struct memtable_config *config = &table->config;
    if (table->coded)
        return 0;
    int rc = space_init(&table->space, config->metric, config->type, config->dim, config->seed);
    if (rc < 0)
        return rc;
    struct workspace workspace;
    float *floats = memtable_workspace_begin(&workspace, sizeof(float) * table->space.code_dim);
    rc = floats ? 0 : QUIRE_ENOMEM;
    if (floats && config->metric == QUIRE_METRIC_IP)
        table->space.norm2_max = IP_HEADROOM * longest_norm2(table, vector, floats);
    if (floats && config->metric != QUIRE_METRIC_COSINE)
        rc = set_mean(table, floats);
    memtable_workspace_end(&workspace);
    if (rc < 0) {
        space_fini(&table->space);
        return rc;
    }
    memtable_block_count(table, table->space.mean);
    memtable_block_count(table, table->space.rotation.signs);
    return 0;
}

static void space_undo(struct memtable *table)
{
    if (table->coded)
        return;
    memtable_block_uncount(table, table->space.mean);
    memtable_block_uncount(table, table->space.rotation.signs);
    space_fini(&table->space);
}

static void navigation_free(struct memtable *table, struct navigation *navigation)
{
    graph_destroy(navigation->graph);
    memtable_block_free(table, atomic_load(&navigation->nodes));
    memtable_block_free(table, atomic_load(&navigation->ring));
    pthread_mutex_destroy(&navigation->lock);
    memtable_block_free(table, navigation);
}

static int navigation_new(struct memtable *table, uint32_t rows, struct navigation **out)
{
    struct graph_config config = {.code_dim = table->space.code_dim,
                                  .degree = table->config.degree,
                                  .beam = table->config.beam,
                                  .seed = table->config.seed,
                                  .epochs = table->config.epochs};
    uint32_t capacity = RING_MIN;
    while (capacity <= rows)
        capacity *= 2;
    struct navigation *navigation = memtable_block_alloc(table, sizeof *navigation);
    if (!navigation)
        return QUIRE_ENOMEM;
    memset(navigation, 0, sizeof *navigation);
    if (pthread_mutex_init(&navigation->lock, NULL) != 0) {
        memtable_block_free(table, navigation);
        return QUIRE_ENOMEM;
    }
    atomic_init(&navigation->nodes, nodes_new(table, capacity, NULL));
    atomic_init(&navigation->ring, ring_new(table, capacity));
    int rc = atomic_load(&navigation->nodes) && atomic_load(&navigation->ring) ? 0 : QUIRE_ENOMEM;
    if (rc == 0)
        rc = graph_create(&config, &navigation->graph, NULL);
    if (rc < 0) {
        navigation_free(table, navigation);
        return rc;
    }
    *out = navigation;
    return 0;
}

/* A vector's code into the graph. `vector` is in the stored form, or what a record keeps of it. */
static int add_code(struct memtable *table, struct navigation *navigation, const void *vector, uint32_t *node)
{
    struct workspace workspace;
    uint32_t code_dim = table->space.code_dim;
    float *floats = memtable_workspace_begin(&workspace, (sizeof(float) + 1) * code_dim), f, norm2;
    if (!floats)
        return QUIRE_ENOMEM;
    const uint8_t *code = vector;
    uint8_t *made = (uint8_t *)(void *)(floats + code_dim);
    if (table->coded) {
        f = bytes_load_f32(code + code_dim);
        norm2 = 1;
    } else {
        memtable_encode(table, vector, floats, made, &f, &norm2);
    }
    int rc = graph_add(navigation->graph, table->coded ? code : made, f, norm2, node);
    memtable_workspace_end(&workspace);
    return rc;
}

/* A row's code into the graph; for a coded one also the record without it, which is put into *successor. */
static int carry_row(struct memtable *table, struct navigation *navigation, struct memtable_record *record,
                     struct memtable_record **successor)
{
    struct memtable_record *carrier = record;
    if (table->coded) {
        carrier = memtable_record_new(table, memtable_record_key(table, record), record->key_bytes, false);
        if (!carrier)
            return QUIRE_ENOMEM;
        memcpy(carrier->bytes, memtable_record_length(table, record), MEMTABLE_LENGTH_BYTES);
        atomic_init(&carrier->attributes, atomic_load_explicit(&record->attributes, memory_order_relaxed));
        carrier->next_dead = record->next_dead;
    }
    *successor = carrier;
    return add_code(table, navigation, record->bytes, &carrier->node);
}

/* Carries all rows; successors[row]: NULL where there is none. */
static int carry_rows(struct memtable *table, struct navigation *navigation, struct memtable_record **successors)
{
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        int rc = record ? carry_row(table, navigation, record, &successors[row]) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* From here on nothing fails. Linkers are kept out until every record is the one that knows its graph row; readers that
 * still see a record with the code find it in the queue as well. */
static void publish(struct memtable *table, struct navigation *navigation, struct memtable_record **successors,
                    struct retired *retired)
{
    uint32_t row_end = atomic_load(&table->row_end);
    pthread_mutex_lock(&navigation->lock);
    for (uint32_t row = 0; row < row_end; row++) {
        if (!successors[row])
            continue;
        memtable_graph_place(navigation, successors[row], row);
        memtable_slot_record(memtable_slot(table, row))->queued = successors[row]->queued;
        memtable_graph_queue(navigation, row);
    }
    atomic_store_explicit(&table->navigation, navigation, memory_order_release);
    for (uint32_t row = 0; row < row_end; row++) {
        struct slot *slot = memtable_slot(table, row);
        struct memtable_record *record = memtable_slot_record(slot);
        if (!successors[row] || successors[row] == record)
            continue;
        atomic_store_explicit(&slot->record, successors[row], memory_order_release);
        memtable_block_retire(table, retired, record);
    }
    pthread_mutex_unlock(&navigation->lock);
    memtable_retired_defer(table, retired);
}

int memtable_graph_begin(struct memtable *table, const void *vector)
{
    uint32_t row_end = atomic_load(&table->row_end);
    struct navigation *navigation = NULL;
    struct memtable_record **successors = calloc(row_end + 1, sizeof *successors);
    struct retired *retired = memtable_retired_new(row_end);
    int rc = successors && retired ? space_begin(table, vector) : QUIRE_ENOMEM;
    if (rc < 0)
        goto out;
    rc = navigation_new(table, row_end, &navigation);
    if (rc == 0)
        rc = carry_rows(table, navigation, successors);
    if (rc == 0) {
        publish(table, navigation, successors, retired);
        retired = NULL;
        goto out;
    }
    for (uint32_t row = 0; table->coded && row < row_end; row++)
        memtable_block_free(table, successors[row]);
    if (navigation)
        navigation_free(table, navigation);
    space_undo(table);
out:
    free(successors);
    free(retired);
    return rc;
}

void memtable_graph_destroy(struct memtable *table)
{
    if (memtable_navigation(table))
        navigation_free(table, memtable_navigation(table));
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

int memtable_graph_add(struct memtable *table, const void *vector, uint32_t *node)
{
    struct navigation *navigation = memtable_navigation(table);
    int rc = nodes_reserve(table, navigation);
    if (rc == 0)
        rc = ring_reserve(table, navigation);
    return rc == 0 ? add_code(table, navigation, vector, node) : rc;
}

static void note_node(struct navigation *navigation, uint32_t node)
{
    if (node >= navigation->node_end)
        navigation->node_end = node + 1;
}

void memtable_graph_discard(struct memtable *table, uint32_t node)
{
    struct navigation *navigation = memtable_navigation(table);
    note_node(navigation, node);
    graph_discard(navigation->graph, node);
}

void memtable_graph_place(struct navigation *navigation, struct memtable_record *record, uint32_t row)
{
    struct nodes *nodes = atomic_load_explicit(&navigation->nodes, memory_order_relaxed);
    assert(record->node < nodes->capacity);
    note_node(navigation, record->node);
    atomic_store_explicit(&nodes->rows[record->node], row, memory_order_release);
    record->queued = atomic_load_explicit(&navigation->tail, memory_order_relaxed);
}

void memtable_graph_queue(struct navigation *navigation, uint32_t row)
{
    struct ring *ring = atomic_load_explicit(&navigation->ring, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&navigation->tail, memory_order_relaxed);
    atomic_store_explicit(&ring->rows[tail & ring->mask], row, memory_order_release);
    assert(tail - atomic_load(&navigation->head) <= ring->mask);
    atomic_fetch_add(&navigation->waiting, 1);
    atomic_store_explicit(&navigation->tail, tail + 1, memory_order_release);
}

static bool become(struct memtable_record *record, enum row_state from, enum row_state to)
{
    uint8_t expected = (uint8_t)from;
    return atomic_compare_exchange_strong(&record->state, &expected, (uint8_t)to);
}

bool memtable_graph_remove(struct memtable *table, struct graph_scratch *scratch, struct memtable_record *record)
{
    struct navigation *navigation = memtable_navigation(table);
    assert(record->node < navigation->node_end);
    if (become(record, ROW_WAITING, ROW_GONE))
        atomic_fetch_sub(&navigation->waiting, 1);
    else if (!become(record, ROW_LINKED, ROW_GONE) && !become(record, ROW_SKIPPED, ROW_GONE))
        return false;
    graph_remove(navigation->graph, &navigation->root, scratch, record->node);
    return true;
}

/* ---- linking ----------------------------------------------------------------------------------------------------- */

struct slot *memtable_queue_slot(const struct memtable *table, const struct navigation *navigation, uint32_t index,
                                 struct memtable_record **record, uint32_t *row)
{
    struct ring *ring = atomic_load_explicit(&navigation->ring, memory_order_acquire);
    *row = atomic_load_explicit(&ring->rows[index & ring->mask], memory_order_acquire);
    struct slot *slot = memtable_slot(table, *row);
    *record = memtable_slot_record(slot);
    return *record && (*record)->queued == index ? slot : NULL;
}

static bool claim(struct navigation *navigation, uint32_t *index)
{
    pthread_mutex_lock(&navigation->lock);
    bool some = navigation->next != atomic_load_explicit(&navigation->tail, memory_order_acquire);
    *index = navigation->next;
    navigation->next += some;
    pthread_mutex_unlock(&navigation->lock);
    return some;
}

/* Moves head behind the entries that nobody has to compare any more. */
static void pass_finished(const struct memtable *table, struct navigation *navigation)
{
    pthread_mutex_lock(&navigation->lock);
    uint32_t head = atomic_load_explicit(&navigation->head, memory_order_relaxed);
    while (head != navigation->next) {
        struct memtable_record *record;
        uint32_t row;
        if (memtable_queue_slot(table, navigation, head, &record, &row) && memtable_record_state(record) <= ROW_LINKING)
            break;
        head++;
    }
    atomic_store_explicit(&navigation->head, head, memory_order_release);
    pthread_mutex_unlock(&navigation->lock);
}

/* A row that could not be linked is the next one again. */
static void unclaim(struct navigation *navigation, uint32_t index)
{
    pthread_mutex_lock(&navigation->lock);
    if ((int32_t)(index - navigation->next) < 0)
        navigation->next = index;
    pthread_mutex_unlock(&navigation->lock);
}

static bool has_unclaimed(struct navigation *navigation)
{
    pthread_mutex_lock(&navigation->lock);
    bool some = navigation->next != atomic_load_explicit(&navigation->tail, memory_order_acquire);
    pthread_mutex_unlock(&navigation->lock);
    return some;
}

static int link_entry(struct memtable *table, struct navigation *navigation, struct graph_scratch *scratch,
                      uint32_t index)
{
    struct memtable_record *record;
    uint32_t row;
    struct slot *slot = memtable_queue_slot(table, navigation, index, &record, &row);
    if (!slot || !become(record, ROW_WAITING, ROW_LINKING))
        return 0;
    bool seen = memtable_slot_end_lsn(slot) > atomic_load(&table->settled);
    int rc = seen ? graph_link(navigation->graph, &navigation->root, scratch, record->node) : 0;
    if (rc == 0)
        atomic_fetch_sub(&navigation->waiting, 1);
    atomic_store_explicit(&record->state,
                          (uint8_t)(rc < 0 ? ROW_WAITING
                                    : seen ? ROW_LINKED
                                           : ROW_SKIPPED),
                          memory_order_release);
    return rc;
}

bool memtable_link(struct memtable *table, struct graph_scratch *scratch, uint64_t budget_us)
{
    struct navigation *navigation = memtable_navigation(table);
    if (!navigation)
        return false;
    uint64_t until = clock_us() + budget_us;
    uint32_t index;
    while (claim(navigation, &index)) {
        if (link_entry(table, navigation, scratch, index) < 0) {
            unclaim(navigation, index);
            return true;
        }
        pass_finished(table, navigation);
        if (clock_us() >= until)
            return has_unclaimed(navigation);
    }
    return false;
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* Each record's graph row leads back to it, and what is not linked is in the queue. */
int memtable_graph_check(const struct memtable *table, struct quire_error *reason)
{
    const struct navigation *navigation = memtable_navigation(table);
    const struct nodes *nodes = atomic_load(&navigation->nodes);
    uint32_t waiting = 0, queued = 0;
    for (uint32_t row = 0; row < atomic_load(&table->row_end); row++) {
        const struct memtable_record *record = memtable_slot_record(memtable_slot(table, row));
        if (!record)
            continue;
        if (record->node >= navigation->node_end || atomic_load(&nodes->rows[record->node]) != row)
            return error_set(reason, QUIRE_ECORRUPT, "row %u has graph row %u, which leads elsewhere", row,
                             record->node);
        waiting += memtable_record_state(record) == ROW_WAITING;
    }
    for (uint32_t i = atomic_load(&navigation->head); i != atomic_load(&navigation->tail); i++) {
        struct memtable_record *record;
        uint32_t row;
        queued +=
            memtable_queue_slot(table, navigation, i, &record, &row) && memtable_record_state(record) == ROW_WAITING;
    }
    if (waiting != queued || waiting != atomic_load(&navigation->waiting))
        return error_set(reason, QUIRE_ECORRUPT, "%u rows wait, %u are in the queue, %u are counted", waiting, queued,
                         atomic_load(&navigation->waiting));
    const struct graph_root *root = &navigation->root;
    return graph_check(navigation->graph, &root, 1, reason);
}
