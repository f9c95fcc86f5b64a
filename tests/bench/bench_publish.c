/*
 * bench_publish.c - how long searches are kept out while a merge of many rows is published.
 *
 *   bench_publish [ROWS [DEAD-PERCENT]]
 *
 * A collection has one part of ROWS rows (10,000,000), DEAD-PERCENT of them dead (20), which is merged into one of the
 * living rows; nothing is read or written, the parts have no files (support_fake_parts.h). Meanwhile one thread removes
 * rows, and one takes the view as each search does. Prints for each step the longest time that the collection's lock
 * was held, in processor time of who held it, so that other programs on the machine do not show, and the longest that
 * taking the view took by the clock.
 */
#include "index/collection/collection_priv.h"
#include "io/clock.h"
#include "io/random.h"
#include "tests/bench/support_bench.h"
#include "tests/index/support_fake_parts.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REMOVED_SHARE 64u /* of all rows, at most, while the merge is under way */

struct bench {
    struct collection_host host;
    struct collection *c;
    struct part *part;
    uint64_t n_rows;
    atomic_bool stop;
    atomic_uint_fast64_t longest_ns, removed;
    char folder[32];
};

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t *watched;
static atomic_uint_fast64_t longest_hold_ns;
static _Thread_local uint64_t held_since_ns;

static uint64_t processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The linker puts these in the place of the C library's (cmake/tests.cmake). */
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    int rc = __real_pthread_mutex_lock(mutex);
    if (mutex == watched)
        held_since_ns = processor_ns();
    return rc;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (mutex == watched) {
        uint64_t ns = processor_ns() - held_since_ns;
        if (ns > atomic_load(&longest_hold_ns))
            atomic_store(&longest_hold_ns, ns);
    }
    return __real_pthread_mutex_unlock(mutex);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static int ignore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    (void)context, (void)kind, (void)lsn, (void)bytes, (void)n, (void)err;
    return 0;
}

/* As long as a search would wait, and be in its way, at the worst. */
static void *search(void *context)
{
    struct bench *b = context;
    while (!atomic_load(&b->stop)) {
        uint64_t began = clock_ns();
        struct view *view = collection_view(b->c);
        uint64_t ns = clock_ns() - began;
        view_unref(view);
        if (ns > atomic_load(&b->longest_ns))
            atomic_store(&b->longest_ns, ns);
        const struct timespec pause = {.tv_nsec = 20000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void *remove_rows(void *context)
{
    struct bench *b = context;
    struct random r;
    random_init(&r, 3);
    while (!atomic_load(&b->stop) && atomic_load(&b->removed) < b->n_rows / REMOVED_SHARE) {
        struct located located = {
            .generation = 2, .segment_uid = b->part->uid, .row = (uint32_t)random_below(&r, b->n_rows)};
        char key[24];
        bool removed;
        uint64_t lsn;
        int bytes = snprintf(key, sizeof key, "%u", located.row);
        if (collection_remove(b->c, key, (uint32_t)bytes, &located, NULL, &removed, &lsn, NULL) < 0)
            return NULL;
        atomic_fetch_add(&b->removed, removed);
        if (atomic_load(&b->removed) % 64 == 0) {
            const struct timespec pause = {.tv_nsec = 50000};
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

static void report(struct bench *b, const char *what, uint64_t began_ns)
{
    double waited = (double)atomic_exchange(&b->longest_ns, 0) / 1e6;
    printf("| %s | %.3f | %.3f | %.1f |\n", what, (double)atomic_exchange(&longest_hold_ns, 0) / 1e6, waited,
           (double)(clock_ns() - began_ns) / 1e6);
}

static void begin(struct bench *b, uint64_t dead_percent)
{
    const struct journal_options options = {.sync = JOURNAL_NO};
    const struct journal_reader reader = {.restore = ignore, .replay = ignore};
    struct collection_config config = {
        .dim = 8, .type = QUIRE_TYPE_F32, .metric = QUIRE_METRIC_L2, .block_bytes = 4096};
    struct attribute_schema *schema = NULL;
    struct journal_report opened;
    struct random r;
    uint64_t lsn;
    strcpy(b->folder, "/tmp/bench_publish.XXXXXX");
    check(mkdtemp(b->folder) ? 0 : -1, NULL);
    check(journal_open(fs_real(), b->folder, &options, &reader, &b->host.journal, &opened, NULL), NULL);
    check(epochs_create(&b->host.epochs), NULL);
    check(collection_config_validate(&config, NULL), NULL);
    check(attribute_schema_create(NULL, 0, &schema, NULL), NULL);
    check(collection_create(&b->host, 0, 1, &config, schema, 0, &b->c, NULL), NULL);
    check(collection_log_create(b->c, &lsn, NULL), NULL);
    b->part = support_fake_part(1, b->n_rows);
    const struct collection_edit edit = {.added = b->part};
    check(collection_publish(b->c, &edit, &lsn, NULL), NULL);
    random_init(&r, 1);
    for (uint32_t row = 0; row < b->n_rows; row++)
        if (random_below(&r, 100) < dead_percent)
            check(part_kill(b->part, row), NULL);
    watched = &b->c->lock;
}

static void merge(struct bench *b)
{
    struct collection_ended *ended;
    uint64_t began = clock_ns(), lsn;
    uint32_t *rows_of = room(sizeof *rows_of * b->n_rows), n = 0;
    check(collection_ended_begin(b->c, &b->part, 1, NULL, 0, &ended), NULL);
    const uint8_t *dead = collection_ended_dead(ended, 0);
    report(b, "tombstones are copied", began);
    for (uint32_t row = 0; row < b->n_rows; row++)
        rows_of[row] = bitmap_has(dead, row) ? UINT32_MAX : n++;
    struct part *added = support_fake_part(2, n);
    while (atomic_load(&b->removed) < b->n_rows / REMOVED_SHARE / 2)
        usleep(1000);
    report(b, "the segment is made", began);
    const struct collection_edit edit = {
        .removed_parts = &b->part, .n_removed_parts = 1, .added = added, .rows_of = &rows_of, .ended = ended};
    began = clock_ns();
    check(collection_ended_carry(b->c, &edit, NULL), NULL);
    report(b, "what ended is carried", began);
    began = clock_ns();
    journal_quiesce_begin(b->host.journal);
    check(collection_publish(b->c, &edit, &lsn, NULL), NULL);
    journal_quiesce_end(b->host.journal);
    usleep(1000);
    report(b, "it is published", began);
    collection_ended_free(b->c, ended);
    printf("\n%llu rows ended meanwhile, %llu of them are in the added part.\n",
           (unsigned long long)atomic_load(&b->removed), (unsigned long long)atomic_load(&added->n_dead));
}

int main(int argc, char **argv)
{
    struct bench b = {.n_rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000};
    pthread_t searcher, remover;
    begin(&b, argc > 2 ? strtoull(argv[2], NULL, 10) : 20);
    pthread_create(&searcher, NULL, search, &b);
    usleep(500000);
    printf("%llu rows.\n\n| | lock held, ms | longest wait for the view, ms | took, ms |\n|---|---:|---:|---:|\n",
           (unsigned long long)b.n_rows);
    report(&b, "nothing", clock_ns());
    pthread_create(&remover, NULL, remove_rows, &b);
    usleep(500000);
    report(&b, "rows are removed", clock_ns());
    uint64_t began = clock_ns();
    for (int i = 0; i < 20; i++) {
        struct collection_snapshot *snapshot;
        check(collection_snapshot_open(b.c, &snapshot, NULL), NULL);
        collection_snapshot_close(snapshot);
    }
    report(&b, "20 snapshots are opened", began);
    merge(&b);
    atomic_store(&b.stop, true);
    pthread_join(searcher, NULL);
    pthread_join(remover, NULL);
    fs_remove_folder(fs_real(), b.folder, NULL);
    return 0; /* the parts' segments are none that could be freed */
}
