/*
 * test_publish.c - rows that end while a new segment is made of them are dead in it, whenever they end: before their
 * tombstones are copied, while they are, after, between what is carried without the lock and what is carried under it,
 * and until nobody can end them in the old parts any more. The journal says the same. A snapshot's tombstones are those
 * of its moment, whatever dies while they are copied.
 */
#include "index/collection/collection_host.h"
#include "io/random.h"
#include "tests/index/support_fake_parts.h"
#include "tests/index/support_store.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { UID = 5, PARTS = 2, KILLERS = 2, ADDED = 100 };

struct state {
    struct io_fs *fs;
    struct collection_host host;
    struct collection *c, *again;
    struct part *parts[PARTS];
    uint32_t rows[PARTS], table_rows;
    struct memtable_ref *table;
};

static int ignore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    (void)context, (void)kind, (void)lsn, (void)bytes, (void)n, (void)err;
    return 0;
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct state *s = context;
    return kind == RECORD_CREATE ? 0 : collection_replay(s->again, kind, false, lsn, bytes, n, err);
}

static void open_journal(struct state *s, int (*play)(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes,
                                                      uint32_t n, struct quire_error *err))
{
    const struct journal_options options = {.sync = JOURNAL_NO};
    const struct journal_reader reader = {.restore = ignore, .replay = play, .context = s};
    struct journal_report report;
    assert_int_equal(journal_open(s->fs, "/log", &options, &reader, &s->host.journal, &report, NULL), 0);
}

static struct collection *create(const struct collection_host *host)
{
    struct collection_config config = support_config();
    struct attribute_schema *schema = NULL;
    struct collection *c = NULL;
    assert_int_equal(collection_config_validate(&config, NULL), 0);
    assert_int_equal(attribute_schema_create(NULL, 0, &schema, NULL), 0);
    assert_int_equal(collection_create(host, 0, UID, &config, schema, 0, &c, NULL), 0);
    return c;
}

static void publish(struct state *s, const struct collection_edit *edit)
{
    uint64_t lsn;
    journal_quiesce_begin(s->host.journal);
    assert_int_equal(collection_publish(s->c, edit, &lsn, NULL), 0);
    journal_quiesce_end(s->host.journal);
}

/* A collection with two parts, and elements in a frozen memtable. */
static void make(struct state *s, uint32_t rows, uint32_t table_rows)
{
    uint64_t lsn;
    *s = (struct state){.fs = fault_fs_create(), .table_rows = table_rows};
    assert_non_null(s->fs);
    assert_int_equal(s->fs->ops->mkdir(s->fs, "/log"), 0);
    open_journal(s, ignore);
    assert_int_equal(epochs_create(&s->host.epochs), 0);
    s->c = create(&s->host);
    assert_int_equal(collection_log_create(s->c, &lsn, NULL), 0);
    for (uint32_t i = 0; i < PARTS; i++) {
        s->rows[i] = rows + 17 * i;
        s->parts[i] = support_fake_part(i + 1, s->rows[i]);
        assert_non_null(s->parts[i]);
        const struct collection_edit edit = {.added = s->parts[i]};
        publish(s, &edit);
    }
    for (uint32_t i = 0; i < table_rows; i++) {
        char key[16];
        float vector[SUPPORT_DIM];
        struct collection_put put = {.key = key, .vector = vector};
        put.key_bytes = (uint32_t)snprintf(key, sizeof key, "row-%u", i);
        put.located.generation = 1 + PARTS;
        support_vector(i, 1, vector);
        assert_int_equal(collection_put(s->c, &put, NULL), 0);
    }
    if (table_rows) {
        journal_quiesce_begin(s->host.journal);
        assert_int_equal(collection_freeze(s->c, NULL), 0);
        journal_quiesce_end(s->host.journal);
        struct view *view = collection_view(s->c);
        assert_int_equal(view->n_memtables, 2);
        s->table = view->memtables[1];
        view_unref(view);
    }
}

static void fini(struct state *s)
{
    struct segment *segments[PARTS];
    for (uint32_t i = 0; i < PARTS; i++) {
        segments[i] = s->parts[i]->segment;
        part_unref(s->parts[i]);
    }
    collection_unref(s->c);
    for (uint32_t i = 0; i < PARTS; i++)
        support_fake_segment_free(segments[i]);
    if (s->host.journal)
        assert_int_equal(journal_close(s->host.journal, NULL), 0);
    epochs_destroy(s->host.epochs);
    fault_fs_destroy(s->fs);
}

/* Ends a row of a part (0, 1), or of the memtable (PARTS); whether it lived. -1: the parts are others by now. */
static int kill_row(struct state *s, uint32_t source, uint32_t row, uint64_t *lsn)
{
    char key[24];
    struct located located = {.generation = 1 + PARTS};
    bool removed = false;
    if (source < PARTS) {
        located.segment_uid = s->parts[source]->uid;
        located.row = row;
    }
    int bytes = snprintf(key, sizeof key, "%s-%u", source < PARTS ? "sealed" : "row", row);
    int rc = collection_remove(s->c, key, (uint32_t)bytes, &located, NULL, &removed, lsn, NULL);
    assert_true(rc == 0 || rc == QUIRE_ESTALE);
    return rc < 0 ? -1 : removed;
}

/* ---- a merge of all that there is -------------------------------------------------------------------------------- */

struct merging {
    struct collection_ended *ended;
    struct part *added;
    uint32_t *rows_of[PARTS], *table_rows_of;
    struct collection_edit edit;
    bool *killed[PARTS + 1]; /* what the model knows */
    uint32_t n_added;
};

static void model_init(struct state *s, struct merging *m)
{
    *m = (struct merging){.ended = NULL};
    for (uint32_t i = 0; i <= PARTS; i++)
        m->killed[i] = calloc((i < PARTS ? s->rows[i] : s->table_rows) + 1, sizeof(bool));
}

/* The copies are taken, and all rows that they have alive go to the added part, in reverse order. */
static void merge_begin(struct state *s, struct merging *m)
{
    uint32_t n_tables = s->table ? 1 : 0, to = 0;
    assert_int_equal(collection_ended_begin(s->c, s->parts, PARTS, &s->table, n_tables, &m->ended), 0);
    for (uint32_t i = PARTS; i-- > 0;) {
        const uint8_t *dead = collection_ended_dead(m->ended, i);
        m->rows_of[i] = malloc(sizeof(uint32_t) * s->rows[i]);
        for (uint32_t row = s->rows[i]; row-- > 0;)
            m->rows_of[i][row] = bitmap_has(dead, row) ? UINT32_MAX : to++;
    }
    m->table_rows_of = malloc(sizeof(uint32_t) * (s->table_rows + 1));
    for (uint32_t row = 0; row < s->table_rows; row++)
        m->table_rows_of[row] = memtable_end_lsn(s->table->memtable, row) == MEMTABLE_LSN_MAX ? to++ : UINT32_MAX;
    m->n_added = to;
    m->added = support_fake_part(ADDED, to);
    assert_non_null(m->added);
    m->edit = (struct collection_edit){.removed_parts = s->parts,
                                       .n_removed_parts = PARTS,
                                       .removed_memtables = &s->table,
                                       .n_removed_memtables = n_tables,
                                       .added = m->added,
                                       .rows_of = m->rows_of,
                                       .ended = m->ended,
                                       .memtable_rows_of = &m->table_rows_of};
}

/* Each row that was killed is dead in the added part, or not in it; all others live there. */
static void merge_check(struct state *s, struct merging *m)
{
    uint64_t living = 0;
    for (uint32_t i = 0; i <= PARTS; i++)
        for (uint32_t row = 0; row < (i < PARTS ? s->rows[i] : s->table_rows); row++) {
            uint32_t to = i < PARTS ? m->rows_of[i][row] : m->table_rows_of[row];
            bool dead = to == UINT32_MAX || part_is_dead(m->added, to);
            if (dead != m->killed[i][row])
                fail_msg("row %u of %u was %skilled and is %s", row, i, m->killed[i][row] ? "" : "not ",
                         dead ? "dead" : "alive");
            living += !dead;
        }
    assert_int_equal(living, part_living(m->added));
    assert_int_equal(living, collection_count(s->c));
}

/* What the journal gives back has the same tombstones. */
static void journal_check(struct state *s, struct merging *m)
{
    struct collection_host host = {.epochs = s->host.epochs};
    assert_int_equal(journal_close(s->host.journal, NULL), 0);
    s->host.journal = NULL;
    s->again = create(&host);
    open_journal(s, replay);
    struct view *view = collection_view(s->again);
    assert_int_equal(view->n_parts, 1);
    assert_int_equal(view->parts[0]->uid, ADDED);
    for (uint32_t row = 0; row < m->n_added; row++)
        assert_int_equal(part_is_dead(view->parts[0], row), part_is_dead(m->added, row));
    assert_int_equal(atomic_load(&view->parts[0]->n_dead), atomic_load(&m->added->n_dead));
    view_unref(view);
    collection_unref(s->again);
}

static void merge_fini(struct state *s, struct merging *m, struct segment *segment)
{
    collection_ended_free(s->c, m->ended);
    part_unref(m->added);
    for (uint32_t i = 0; i < PARTS; i++)
        free(m->rows_of[i]);
    free(m->table_rows_of);
    for (uint32_t i = 0; i <= PARTS; i++)
        free(m->killed[i]);
    fini(s);
    support_fake_segment_free(segment);
}

static void kill_some(struct state *s, struct merging *m, struct random *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t source = (uint32_t)random_below(r, PARTS + (s->table_rows > 0));
        uint32_t row = (uint32_t)random_below(r, source < PARTS ? s->rows[source] : s->table_rows);
        uint64_t lsn;
        assert_int_equal(kill_row(s, source, row, &lsn), !m->killed[source][row]);
        m->killed[source][row] = true;
    }
}

static void rows_that_end_at_any_moment_stay_dead(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < (SANITIZED ? 6 : 30); seed++) {
        struct state s;
        struct merging m;
        struct random r;
        random_init(&r, seed);
        make(&s, 1 + (uint32_t)random_below(&r, 6000), seed % 3 ? 1 + (uint32_t)random_below(&r, 300) : 0);
        model_init(&s, &m);
        kill_some(&s, &m, &r, (uint32_t)random_below(&r, 2000));
        merge_begin(&s, &m);
        kill_some(&s, &m, &r, (uint32_t)random_below(&r, 3000));
        for (uint32_t i = 0; i < seed % 4; i++) {
            assert_int_equal(collection_ended_carry(s.c, &m.edit, NULL), 0);
            kill_some(&s, &m, &r, (uint32_t)random_below(&r, 1500));
        }
        publish(&s, &m.edit);
        merge_check(&s, &m);
        journal_check(&s, &m);
        merge_fini(&s, &m, m.added->segment);
    }
}

/* A segment that is given up leaves nothing behind: the next one is made as if it had not been. */
static void a_merge_that_is_given_up_leaves_nothing(void **state)
{
    (void)state;
    struct state s;
    struct merging m, first;
    struct random r;
    random_init(&r, 77);
    make(&s, 3000, 100);
    model_init(&s, &m);
    merge_begin(&s, &m);
    kill_some(&s, &m, &r, 500);
    assert_int_equal(collection_ended_carry(s.c, &m.edit, NULL), 0);
    collection_ended_free(s.c, m.ended);
    first = m;
    kill_some(&s, &m, &r, 500);
    merge_begin(&s, &m);
    kill_some(&s, &m, &r, 500);
    publish(&s, &m.edit);
    merge_check(&s, &m);
    journal_check(&s, &m);
    for (uint32_t i = 0; i < PARTS; i++)
        free(first.rows_of[i]);
    free(first.table_rows_of);
    struct segment *segment = first.added->segment;
    part_unref(first.added);
    support_fake_segment_free(segment);
    merge_fini(&s, &m, m.added->segment);
}

/* ---- while others kill ------------------------------------------------------------------------------------------- */

struct killer {
    struct state *s;
    struct merging *m;
    uint32_t number;
    atomic_uint n;
};

/* Each has rows of its own. Until the parts are others. */
static void *kill_until_published(void *context)
{
    struct killer *k = context;
    struct random r;
    random_init(&r, k->number + 1);
    for (;;) {
        uint32_t source = (uint32_t)random_below(&r, PARTS + 1);
        uint32_t rows = source < PARTS ? k->s->rows[source] : k->s->table_rows;
        uint32_t row = (uint32_t)random_below(&r, rows) / KILLERS * KILLERS + k->number;
        uint64_t lsn;
        if (row >= rows)
            continue;
        int killed = kill_row(k->s, source, row, &lsn);
        if (killed < 0)
            return NULL;
        k->m->killed[source][row] = true;
        atomic_fetch_add(&k->n, (unsigned)killed);
    }
}

static void rows_that_end_beside_a_merge_stay_dead(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < (SANITIZED ? 3 : 10); round++) {
        struct state s;
        struct merging m;
        struct killer killers[KILLERS];
        pthread_t threads[KILLERS];
        make(&s, 60000, 300);
        model_init(&s, &m);
        for (uint32_t i = 0; i < KILLERS; i++) {
            killers[i] = (struct killer){.s = &s, .m = &m, .number = i};
            assert_int_equal(pthread_create(&threads[i], NULL, kill_until_published, &killers[i]), 0);
        }
        for (uint32_t i = 0; i < KILLERS; i++)
            while (atomic_load(&killers[i].n) == 0)
                sched_yield();
        const struct timespec pause = {.tv_nsec = (long)(round % 4) * 1000000};
        nanosleep(&pause, NULL);
        merge_begin(&s, &m);
        nanosleep(&pause, NULL);
        if (round % 2)
            assert_int_equal(collection_ended_carry(s.c, &m.edit, NULL), 0);
        publish(&s, &m.edit);
        for (uint32_t i = 0; i < KILLERS; i++)
            pthread_join(threads[i], NULL);
        merge_check(&s, &m);
        journal_check(&s, &m);
        merge_fini(&s, &m, m.added->segment);
    }
}

struct remover {
    struct state *s;
    uint64_t *lsns; /* of each row of the first part; 0: it lives */
    atomic_uint n;
};

static void *remove_in_order(void *context)
{
    struct remover *r = context;
    for (uint32_t row = 0; row < r->s->rows[0]; row++) {
        assert_int_equal(kill_row(r->s, 0, row, &r->lsns[row]), 1);
        atomic_store(&r->n, row + 1);
    }
    return NULL;
}

static void snapshots_are_of_one_moment(void **state)
{
    enum { ROWS = 40000, SNAPSHOTS = 200 };
    struct collection_snapshot *snapshots[SNAPSHOTS];
    struct state s;
    pthread_t thread;
    uint32_t n = 0;
    (void)state;
    make(&s, ROWS, 0);
    struct remover remover = {.s = &s, .lsns = calloc(s.rows[0], sizeof(uint64_t))};
    assert_int_equal(pthread_create(&thread, NULL, remove_in_order, &remover), 0);
    while (n < SNAPSHOTS && atomic_load(&remover.n) < s.rows[0])
        assert_int_equal(collection_snapshot_open(s.c, &snapshots[n++], NULL), 0);
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t dead = 0;
        for (uint32_t row = 0; row < s.rows[0]; row++) {
            bool is_dead = bitmap_has(snapshots[i]->tombstones.dead[0], row);
            assert_int_equal(is_dead, remover.lsns[row] <= snapshots[i]->lsn);
            dead += is_dead;
        }
        assert_int_equal(collection_snapshot_count(snapshots[i]) + dead, s.rows[0] + s.rows[1]);
        collection_snapshot_close(snapshots[i]);
    }
    free(remover.lsns);
    fini(&s);
}

/* ---- whoever goes last ------------------------------------------------------------------------------------------- */

static void take_part(void *context, struct part *part)
{
    part->next_gone = NULL;
    *(struct part **)context = part;
}

static void take_table(void *context, struct memtable_ref *table)
{
    *(struct memtable_ref **)context = table;
}

/* The last reference hands over what takes long to free. */
static void parts_and_memtables_are_handed_over(void **state)
{
    struct part *part = support_fake_part(9, 1000), *gone = NULL;
    struct memtable_ref *table = NULL, *table_gone = NULL;
    struct state s;
    (void)state;
    make(&s, 10, 5);
    struct view *view = collection_view(s.c);
    table = memtable_ref(view->memtables[1]);
    view_unref(view);
    part->gone = take_part;
    part->context = &gone;
    struct segment *segment = part->segment;
    assert_true(segment_is_shared(segment));
    part_ref(part);
    part_unref(part);
    assert_null(gone);
    part_unref(part);
    assert_ptr_equal(gone, part);
    assert_true(atomic_load(&segment->retired));
    part_free(gone);
    assert_false(segment_is_shared(segment));
    support_fake_segment_free(segment);
    table->gone = take_table;
    table->context = &table_gone;
    memtable_unref(table);
    assert_null(table_gone);
    fini(&s);
    assert_ptr_equal(table_gone, table);
    memtable_ref_free(table_gone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_end_at_any_moment_stay_dead),
        cmocka_unit_test(a_merge_that_is_given_up_leaves_nothing),
        cmocka_unit_test(rows_that_end_beside_a_merge_stay_dead),
        cmocka_unit_test(snapshots_are_of_one_moment),
        cmocka_unit_test(parts_and_memtables_are_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
