/*
 * test_keyspace.c - the keyspace without a server: scans while tables change, expiry on a clock of the test's, memory
 * accounts, threads, and the journal: what is read again equals what was written, whenever the checkpoint was made.
 *
 * Threads assert nothing (cmocka's failures may not leave another thread): they count, and the main thread judges.
 */
#include "io/random.h"
#include "server/keys/gate.h"
#include "server/keys/keyspace_log.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t test_now_ms = 1000000;

static uint64_t test_clock(void *context)
{
    (void)context;
    return test_now_ms;
}

static void begin(struct keyspace *k)
{
    struct quire_error err;
    assert_int_equal(keyspace_init(k, &err), 0);
    k->clock_ms = test_clock;
}

static struct resp_arg arg(const char *text)
{
    return (struct resp_arg){(const uint8_t *)text, (uint32_t)strlen(text)};
}

/* Look-up and hold of one key. */
static struct key_entry *lock(struct keyspace_lock *h, struct keyspace *k, const char *name)
{
    struct key key = keyspace_key(k, arg(name));
    keyspace_lock_key(h, k, &key);
    return keyspace_find(h, &key);
}

static int set(struct keyspace *k, const char *name, const char *text, uint64_t expire_ms)
{
    struct keyspace_lock h;
    struct quire_error err;
    struct key key = keyspace_key(k, arg(name));
    struct key_entry *e = lock(&h, k, name);
    struct value *value = keyspace_value_create(text, (uint32_t)strlen(text), (uint32_t)strlen(text));
    int rc = value ? keyspace_set_string(&h, &key, e, value, expire_ms, &err) : QUIRE_ENOMEM;
    keyspace_unlock(&h);
    return rc;
}

static uint32_t del(struct keyspace *k, const char *name)
{
    struct keyspace_lock h;
    struct quire_error err;
    struct resp_arg key = arg(name);
    uint32_t n_gone = 0;
    keyspace_lock_args(&h, k, &key, 1, 1);
    if (keyspace_delete(&h, &key, 1, &n_gone, &err) < 0)
        n_gone = UINT32_MAX;
    keyspace_unlock(&h);
    return n_gone;
}

static bool there(struct keyspace *k, const char *name)
{
    struct keyspace_lock h;
    bool found = lock(&h, k, name);
    keyspace_unlock(&h);
    return found;
}

/* ---- scans ------------------------------------------------------------------------------------------------------- */

enum { KEPT = 3000, OTHERS = 40000 };

static void note_kept(void *context, const struct key_entry *entry)
{
    unsigned *seen = context, i;
    char text[32] = "";
    memcpy(text, entry->key, entry->node.key_bytes < 31 ? entry->node.key_bytes : 31);
    if (sscanf(text, "kept:%u", &i) == 1)
        seen[i]++;
}

/* Between the steps of a scan the others come and go, so that every table grows and shrinks several times. */
static void test_scan_returns_what_stays(void **state)
{
    struct keyspace k;
    char name[32];
    (void)state;
    begin(&k);
    for (unsigned i = 0; i < KEPT; i++) {
        snprintf(name, sizeof name, "kept:%u", i);
        assert_int_equal(set(&k, name, "v", 0), 0);
    }
    for (unsigned growing = 0; growing < 2; growing++) {
        unsigned *seen = calloc(KEPT, sizeof *seen), steps = 0, other = 0;
        uint64_t cursor = 0;
        assert_non_null(seen);
        do {
            cursor = keyspace_scan(&k, cursor, 10, note_kept, seen);
            for (unsigned i = 0; i < 150 && other < OTHERS; i++, other++) {
                snprintf(name, sizeof name, "other:%u", other);
                if (growing)
                    assert_int_equal(del(&k, name), 1);
                else
                    assert_int_equal(set(&k, name, "v", 0), 0);
            }
            assert_true(++steps < 100000);
        } while (cursor);
        for (unsigned i = 0; i < KEPT; i++)
            if (seen[i] == 0)
                fail_msg("kept:%u was not returned", i);
        for (; other < OTHERS; other++) {
            snprintf(name, sizeof name, "other:%u", other);
            assert_int_equal(growing ? (int)del(&k, name) : set(&k, name, "v", 0), growing ? 1 : 0);
        }
        free(seen);
    }
    assert_int_equal(keyspace_count(&k), KEPT);
    keyspace_fini(&k);
}

static void note_field(void *context, struct resp_arg field, struct resp_arg value)
{
    unsigned *seen = context, i;
    char text[32] = "";
    assert_true(value.bytes > 0);
    memcpy(text, field.data, field.bytes < 31 ? field.bytes : 31);
    if (sscanf(text, "f%u", &i) == 1)
        seen[i]++;
}

static void set_field(struct hash *h, const char *field, const char *value, bool is_new)
{
    struct resp_arg pair[2] = {arg(field), arg(value)};
    struct hash_spare spare;
    assert_int_equal(hash_reserve(h, pair, 1, &spare), 0);
    assert_int_equal(hash_set(h, pair[0], pair[1], &spare), is_new);
    assert_null(spare.first);
}

/* A hash against a plain array of what it should hold, across the step from small to large. */
static void test_hash_as_a_model_has_it(void **state)
{
    enum { FIELDS = 400 };
    (void)state;
    for (unsigned fields = 20; fields <= FIELDS; fields += 380) {
        struct hash *h = hash_create(7);
        unsigned model[FIELDS] = {0}, seen[FIELDS] = {0}, count = 0;
        struct random random;
        assert_non_null(h);
        random_init(&random, fields);
        for (unsigned step = 1; step < 20000; step++) {
            char field[16], value[80];
            unsigned f = (unsigned)random_below(&random, fields);
            struct resp_arg found;
            snprintf(field, sizeof field, "f%u", f);
            snprintf(value, sizeof value, "%u:%.*s", step, (int)(step % 50),
                     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
            if (random_below(&random, 3) > 0) {
                set_field(h, field, value, model[f] == 0);
                count += model[f] == 0;
                model[f] = step;
            } else {
                assert_int_equal(hash_delete(h, arg(field)), model[f] != 0);
                count -= model[f] != 0;
                model[f] = 0;
            }
            assert_int_equal(hash_count(h), count);
            assert_int_equal(hash_get(h, arg(field), &found), model[f] != 0);
            if (model[f])
                assert_int_equal(strtoul((const char *)found.data, NULL, 10), step);
        }
        assert_int_equal(hash_is_large(h), fields > HASH_SMALL_FIELDS_MAX);
        struct hash *copy = hash_copy(h);
        assert_non_null(copy);
        hash_each(copy, note_field, seen);
        for (unsigned f = 0; f < fields; f++)
            assert_int_equal(seen[f], model[f] != 0);
        hash_destroy(copy);
        hash_destroy(h);
    }
}

/* ---- expiry and accounts ----------------------------------------------------------------------------------------- */

static void test_expiry_by_the_clock(void **state)
{
    struct keyspace k;
    struct keyspace_expiries expiries;
    unsigned next = 0;
    char name[32];
    (void)state;
    begin(&k);
    test_now_ms = 1000000;
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "k%u", i);
        assert_int_equal(set(&k, name, "v", i % 2 ? test_now_ms + 1 + i : 0), 0);
    }
    keyspace_get_expiries(&k, &expiries);
    assert_int_equal(expiries.keys, 500);
    assert_int_equal(expiries.mean_ms, 501);
    test_now_ms += 501; /* k1, k3, ... k499 were to end at + 2 ... + 500 */
    assert_false(there(&k, "k1"));
    assert_true(there(&k, "k501"));
    assert_true(there(&k, "k2"));
    assert_int_equal(keyspace_count(&k), 999); /* the others are due, and still there */
    keyspace_expire_due(&k, 0, 1, &next, 1000000);
    assert_int_equal(keyspace_count(&k), 750);
    assert_int_equal(atomic_load(&k.expired), 250);
    keyspace_get_expiries(&k, &expiries);
    assert_int_equal(expiries.keys, 250);
    assert_int_equal(set(&k, "k501", "again", 0), 0); /* an expiry goes with the value */
    test_now_ms += 1000000;
    for (unsigned lane = 0; lane < 3; lane++) {
        next = 0;
        keyspace_expire_due(&k, lane, 3, &next, 1000000);
    }
    assert_int_equal(keyspace_count(&k), 501);
    assert_true(there(&k, "k501"));
    keyspace_fini(&k);
}

/* Expiries in any order, moved and taken back: the heap gives up exactly what is due. */
static void test_the_queue_of_expiries(void **state)
{
    enum { KEYS = 2000 };
    struct keyspace k;
    struct random random;
    uint64_t model[KEYS];
    unsigned next = 0;
    char name[32];
    (void)state;
    begin(&k);
    test_now_ms = 1;
    random_init(&random, 3);
    for (unsigned step = 0; step < 5 * KEYS; step++) {
        unsigned i = step < KEYS ? step : (unsigned)random_below(&random, KEYS);
        model[i] = random_below(&random, 4) ? 10 + random_below(&random, 1000) : 0;
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(set(&k, name, "", model[i]), 0);
    }
    for (test_now_ms = 5; test_now_ms <= 1015; test_now_ms += 101) {
        keyspace_expire_due(&k, 0, 1, &next, 10000000);
        for (unsigned i = 0; i < KEYS; i++) {
            snprintf(name, sizeof name, "%u", i);
            if (there(&k, name) != (model[i] == 0 || model[i] > test_now_ms))
                fail_msg("key %u, which ends at %llu, at %llu", i, (unsigned long long)model[i],
                         (unsigned long long)test_now_ms);
        }
    }
    keyspace_fini(&k);
}

static void test_memory_comes_back(void **state)
{
    struct keyspace k;
    struct keyspace_lock h;
    struct quire_error err;
    uint32_t n;
    char name[32];
    (void)state;
    begin(&k);
    for (unsigned i = 0; i < 5000; i++) {
        struct resp_arg fields[4] = {arg("a"), arg("1"), arg("a field that is long"), arg("value")};
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(set(&k, name, "some text", i % 3 ? 0 : test_now_ms + 10), 0);
        snprintf(name, sizeof name, "h%u", i);
        struct key key = keyspace_key(&k, arg(name));
        assert_null(lock(&h, &k, name));
        assert_int_equal(keyspace_hash_set(&h, &key, NULL, fields, 2, &n, &err), 0);
        keyspace_unlock(&h);
    }
    assert_true(atomic_load(&k.used_bytes) > 10000 * sizeof(struct key_entry));
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(del(&k, name), 1);
        snprintf(name, sizeof name, "h%u", i);
        assert_int_equal(del(&k, name), 1);
    }
    assert_int_equal(keyspace_count(&k), 0);
    /* what is left are the smallest tables of the shards */
    assert_true(atomic_load(&k.used_bytes) <= KEYSPACE_SHARDS * 16 * sizeof(void *));
    keyspace_lock_all(&h, &k);
    assert_int_equal(keyspace_clear(&h, &err), 0);
    keyspace_unlock(&h);
    assert_int_equal(atomic_load(&k.used_bytes), 0);
    keyspace_fini(&k);
}

static void test_versions(void **state)
{
    struct keyspace k;
    struct keyspace_lock h;
    struct quire_error err;
    (void)state;
    begin(&k);
    uint64_t seen[5] = {0};
    assert_int_equal(keyspace_version(&k, arg("k"), NULL), 0);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(i == 2 ? 0 : set(&k, "k", "v", 0), 0);
        if (i == 2) {
            struct key_entry *e = lock(&h, &k, "k");
            assert_int_equal(keyspace_expire(&h, e, test_now_ms + 1000, &err), 0);
            keyspace_unlock(&h);
        }
        seen[i] = keyspace_version(&k, arg("k"), NULL);
        for (unsigned j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
        if (i == 3)
            assert_int_equal(del(&k, "k"), 1);
    }
    assert_true(seen[4] != 0);
    keyspace_fini(&k);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { WRITERS = 3, ROUNDS = 4000 };

struct crowd {
    struct keyspace *k;
    unsigned number;
    _Atomic unsigned *wrong;
    _Atomic bool *over;
};

static void add_one(struct crowd *w, const char *name)
{
    struct keyspace_lock h;
    struct quire_error err;
    char text[24] = "0";
    struct key key = keyspace_key(w->k, arg(name));
    struct key_entry *e = lock(&h, w->k, name);
    if (e) {
        memcpy(text, e->string->data, e->string->bytes);
        text[e->string->bytes] = 0;
    }
    int n = snprintf(text, sizeof text, "%d", atoi(text) + 1);
    struct value *value = keyspace_value_create(text, (uint32_t)n, (uint32_t)n);
    if (!value || keyspace_set_string(&h, &key, e, value, 0, &err) < 0)
        atomic_fetch_add(w->wrong, 1);
    keyspace_unlock(&h);
}

/* Counters that all add to, two keys that are set as one, and a hash that is renamed to and fro. */
static void *write_keys(void *context)
{
    struct crowd *w = context;
    struct keyspace_lock h;
    struct quire_error err;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[32], name[16];
        snprintf(name, sizeof name, "counter%u", i % 7);
        add_one(w, name);
        snprintf(text, sizeof text, "%u-%u", w->number, i);
        struct resp_arg pairs[4] = {arg("left"), arg(text), arg("right"), arg(text)};
        keyspace_lock_args(&h, w->k, pairs, 4, 2);
        if (keyspace_set_strings(&h, pairs, 2, &err) < 0)
            atomic_fetch_add(w->wrong, 1);
        keyspace_unlock(&h);
        struct resp_arg names[2] = {arg(i % 2 ? "here" : "away"), arg(i % 2 ? "away" : "here")};
        keyspace_lock_args(&h, w->k, names, 2, 1);
        struct key from = keyspace_key(w->k, names[0]), to = keyspace_key(w->k, names[1]);
        struct key_entry *e = keyspace_find(&h, &from);
        if (e && keyspace_rename(&h, e, &to, &err) < 0)
            atomic_fetch_add(w->wrong, 1);
        keyspace_unlock(&h);
    }
    return NULL;
}

static void *read_keys(void *context)
{
    struct crowd *w = context;
    unsigned next = 0;
    while (!atomic_load(w->over)) {
        struct keyspace_lock h;
        struct resp_arg names[4] = {arg("left"), arg("right"), arg("here"), arg("away")};
        struct key keys[4];
        struct key_entry *e[4];
        keyspace_lock_args(&h, w->k, names, 4, 1);
        for (unsigned i = 0; i < 4; i++) {
            keys[i] = keyspace_key(w->k, names[i]);
            e[i] = keyspace_find(&h, &keys[i]);
        }
        bool same =
            !e[0] == !e[1] && (!e[0] || (e[0]->string->bytes == e[1]->string->bytes &&
                                         memcmp(e[0]->string->data, e[1]->string->data, e[0]->string->bytes) == 0));
        if (!same || !e[2] == !e[3])
            atomic_fetch_add(w->wrong, 1);
        struct value *kept = e[0] ? keyspace_value_ref(e[0]->string) : NULL;
        keyspace_unlock(&h);
        if (kept && kept->bytes < 3)
            atomic_fetch_add(w->wrong, 1);
        keyspace_value_unref(kept);
        keyspace_expire_due(w->k, 0, 1, &next, 1000);
        keyspace_count(w->k);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct keyspace k;
    _Atomic unsigned wrong = 0;
    _Atomic bool over = false;
    pthread_t threads[WRITERS + 1];
    struct crowd crowd[WRITERS + 1];
    long long sum = 0;
    (void)state;
    begin(&k);
    assert_int_equal(set(&k, "here", "x", 0), 0);
    for (unsigned i = 0; i <= WRITERS; i++) {
        crowd[i] = (struct crowd){&k, i, &wrong, &over};
        assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? write_keys : read_keys, &crowd[i]), 0);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&over, true);
    pthread_join(threads[WRITERS], NULL);
    assert_int_equal(wrong, 0);
    for (unsigned i = 0; i < 7; i++) {
        struct keyspace_lock h;
        char name[16];
        snprintf(name, sizeof name, "counter%u", i);
        const struct key_entry *e = lock(&h, &k, name);
        assert_non_null(e);
        char text[24] = "";
        memcpy(text, e->string->data, e->string->bytes);
        sum += strtoll(text, NULL, 10);
        keyspace_unlock(&h);
    }
    assert_int_equal(sum, WRITERS * ROUNDS);
    keyspace_fini(&k);
}

struct gate_user {
    struct gate *gate;
    unsigned lane;
    _Atomic int *inside;
    _Atomic unsigned *wrong, *closed;
};

static void *use_gate(void *context)
{
    struct gate_user *u = context;
    for (unsigned i = 0; i < 20000; i++) {
        gate_enter(u->gate, u->lane);
        atomic_fetch_add(u->inside, 1);
        atomic_fetch_sub(u->inside, 1);
        if (i % 50 == 0) {
            gate_close(u->gate, u->lane);
            if (atomic_load(u->inside) != 0)
                atomic_fetch_add(u->wrong, 1);
            atomic_fetch_add(u->closed, 1);
            gate_open(u->gate, u->lane);
        }
        gate_leave(u->gate, u->lane);
    }
    return NULL;
}

static void test_gate_lets_one_run_alone(void **state)
{
    struct gate gate;
    struct quire_error err;
    _Atomic int inside = 0;
    _Atomic unsigned wrong = 0, closed = 0;
    pthread_t threads[3];
    struct gate_user users[3];
    (void)state;
    assert_int_equal(gate_init(&gate, 3, &err), 0);
    for (unsigned i = 0; i < 3; i++) {
        users[i] = (struct gate_user){&gate, i, &inside, &wrong, &closed};
        assert_int_equal(pthread_create(&threads[i], NULL, use_gate, &users[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(closed, 3 * 400);
    gate_fini(&gate);
}

/* ---- values that are away ---------------------------------------------------------------------------------------- */

static struct resp_arg long_value(char fill, char text[200])
{
    memset(text, fill, 200);
    return (struct resp_arg){(const uint8_t *)text, 200};
}

/* Against plain fields: a value that goes away, comes as a copy, is let go, is kept, is set, is deleted. */
static void test_hash_whose_values_are_away(void **state)
{
    struct hash *h = hash_create(3);
    struct hash_spare spare;
    struct resp_arg value;
    char text[200];
    (void)state;
    assert_non_null(h);
    struct resp_arg pairs[4] = {arg("short"), arg("1"), arg("vector"), long_value('v', text)};
    assert_int_equal(hash_reserve(h, pairs, 2, &spare), 0);
    hash_set(h, pairs[0], pairs[1], &spare);
    hash_set(h, pairs[2], pairs[3], &spare);
    size_t whole = hash_memory_bytes(h);
    assert_false(hash_send_away(h, arg("short")));
    assert_false(hash_send_away(h, arg("absent")));
    assert_true(hash_send_away(h, arg("vector")));
    assert_int_equal(hash_memory_bytes(h), whole - 200);
    assert_true(hash_get(h, arg("vector"), &value) && !value.data && value.bytes == 200);
    assert_int_equal(hash_n_missing(h), 1);
    assert_int_equal(hash_bring(h, arg("vector"), text), 0);
    assert_true(hash_get(h, arg("vector"), &value) && memcmp(value.data, text, 200) == 0);
    assert_int_equal(hash_n_missing(h), 0);
    assert_true(hash_is_away(h, arg("vector")));
    hash_let_go(h, arg("vector"));
    hash_let_go(h, arg("short"));
    assert_int_equal(hash_n_missing(h), 1);
    assert_int_equal(hash_count(h), 2);
    assert_int_equal(hash_bring(h, arg("vector"), text), 0);
    struct hash *copy = hash_copy(h);
    assert_non_null(copy);
    assert_int_equal(hash_n_away(copy), 0);
    assert_true(hash_get(copy, arg("vector"), &value) && memcmp(value.data, text, 200) == 0);
    hash_destroy(copy);
    hash_keep(h, arg("vector"));
    assert_int_equal(hash_n_away(h), 0);
    assert_int_equal(hash_memory_bytes(h), whole);
    assert_true(hash_send_away(h, arg("vector")));
    assert_int_equal(hash_reserve(h, pairs + 2, 1, &spare), 0);
    assert_false(hash_set(h, pairs[2], pairs[3], &spare)); /* it is the hash's own again */
    assert_int_equal(hash_n_away(h), 0);
    assert_true(hash_send_away(h, arg("vector")));
    assert_true(hash_delete(h, arg("vector")));
    assert_int_equal(hash_n_away(h), 0);
    assert_int_equal(hash_count(h), 1);
    hash_destroy(h);
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

static struct journal *open_journal(const char *folder, struct keyspace *k)
{
    struct journal_options options = {.sync = JOURNAL_NO};
    struct journal_reader reader = {keyspace_restore, keyspace_replay, k};
    struct journal_report report;
    struct journal *journal;
    struct quire_error err;
    if (journal_open(fs_real(), folder, &options, &reader, &journal, &report, &err) < 0)
        fail_msg("journal: %s", err.message);
    k->journal = journal;
    return journal;
}

static void close_journal(struct journal *journal)
{
    struct quire_error err;
    assert_int_equal(journal_close(journal, &err), 0);
}

/* A sum over all keys with types, values and expiries that does not depend on their order. */
static uint64_t sum_of;

static uint64_t mix_bytes(uint64_t seed, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < n; i++)
        seed = random_mix(seed + at[i] + 1);
    return seed;
}

static void sum_field(void *context, struct resp_arg field, struct resp_arg value)
{
    uint64_t *sum = context;
    *sum += mix_bytes(mix_bytes(1, field.data, field.bytes), value.data, value.bytes);
}

static void sum_entry(void *context, const struct key_entry *e)
{
    uint64_t sum = mix_bytes(e->type + e->expire_ms * 3, e->key, e->node.key_bytes), fields = 0;
    (void)context;
    if (keyspace_has_bytes(e->type))
        sum = mix_bytes(sum, e->string->data, e->string->bytes);
    else
        hash_each(e->hash, sum_field, &fields);
    sum_of += random_mix(sum + fields);
}

static uint64_t sum_keys(struct keyspace *k)
{
    sum_of = 0;
    keyspace_each(k, sum_entry, NULL);
    return sum_of;
}

/* One change picked at random. Keys of one letter and a number, so that they meet. */
static void change(struct keyspace *k, struct random *random)
{
    struct keyspace_lock h;
    struct quire_error err;
    char name[16], other[16], text[200];
    uint32_t n;
    snprintf(name, sizeof name, "k%u", (unsigned)random_below(random, 60));
    snprintf(other, sizeof other, "k%u", (unsigned)random_below(random, 60));
    snprintf(
        text, sizeof text, "%llu%.*s", (unsigned long long)random_next(random), (int)random_below(random, 90),
        "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy");
    struct resp_arg names[2] = {arg(name), arg(other)}, pairs[4] = {arg(other), arg(text), arg(text), arg(name)};
    keyspace_lock_args(&h, k, names, 2, 1);
    struct key key = keyspace_key(k, names[0]), to = keyspace_key(k, names[1]);
    struct key_entry *e = keyspace_find(&h, &key);
    bool is_hash = e && e->type == KEY_HASH, is_string = e && e->type == KEY_STRING;
    uint64_t what = random_below(random, 100), at_ms = test_now_ms + 1 + random_below(random, 50);
    int rc = 0;
    if (what < 6)
        rc = keyspace_set_json(&h, &key, e, keyspace_value_create(text, 20, 20), what % 2 ? at_ms : 0, &err);
    else if (what < 20)
        rc = keyspace_set_string(&h, &key, e, keyspace_value_create(text, 20, 20), what % 2 ? at_ms : 0, &err);
    else if (what < 45 && (!e || is_hash))
        rc = keyspace_hash_set(&h, &key, e, pairs, 2, &n, &err);
    else if (what < 55 && is_hash)
        rc = keyspace_hash_delete(&h, e, pairs, 4, &n, &err);
    else if (what < 65 && is_string)
        rc = keyspace_append(&h, e, text, (uint32_t)strlen(text), &err);
    else if (what < 72 && e)
        rc = keyspace_expire(&h, e, what % 2 ? at_ms : 0, &err);
    else if (what < 80 && e && strcmp(name, other) != 0)
        rc = keyspace_rename(&h, e, &to, &err);
    else if (what < 86 && e && strcmp(name, other) != 0)
        rc = keyspace_copy(&h, e, &to, &err);
    else if (what < 96)
        rc = keyspace_delete(&h, names, 2, &n, &err);
    else if (what < 99)
        rc = keyspace_set_strings(&h, (struct resp_arg[4]){names[0], arg(text), names[1], arg(text)}, 2, &err);
    else if (strcmp(name, other) != 0)
        rc = keyspace_set_jsons(&h, (struct resp_arg[4]){names[0], arg(text), names[1], arg(text)}, 2, &err);
    keyspace_unlock(&h);
    assert_int_equal(rc, 0);
    test_now_ms += random_below(random, 3);
    if (random_below(random, 800) > 0)
        return;
    keyspace_lock_all(&h, k);
    assert_int_equal(keyspace_clear(&h, &err), 0);
    keyspace_unlock(&h);
}

static void test_what_was_logged_is_there_again(void **state)
{
    (void)state;
    char *folder = support_folder_make();
    struct random random;
    struct quire_error err;
    uint64_t before = 0;
    size_t count = 0;
    random_init(&random, 11);
    test_now_ms = 1000000;
    for (unsigned life = 0; life < 8; life++) {
        struct keyspace k;
        begin(&k);
        struct journal *journal = open_journal(folder, &k);
        assert_int_equal(keyspace_count(&k), count);
        assert_int_equal(sum_keys(&k), before);
        for (unsigned i = 0; i < 3000; i++) {
            struct checkpoint *checkpoint;
            change(&k, &random);
            if (i != 1000 || life % 2)
                continue;
            assert_int_equal(journal_checkpoint_begin(journal, &checkpoint, &err), 0);
            assert_int_equal(keyspace_save(&k, checkpoint, &err), 0);
            assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
        }
        before = sum_keys(&k);
        count = keyspace_count(&k);
        close_journal(journal);
        keyspace_fini(&k);
    }
    support_folder_remove(folder);
}

struct saver {
    struct keyspace *k;
    struct journal *journal;
    _Atomic bool done;
};

static void *save_keys(void *context)
{
    struct saver *s = context;
    struct checkpoint *checkpoint;
    struct quire_error err;
    int rc = journal_checkpoint_begin(s->journal, &checkpoint, &err);
    rc = rc == 0 ? keyspace_save(s->k, checkpoint, &err) : rc;
    rc = rc == 0 ? journal_checkpoint_finish(checkpoint, &err) : rc;
    atomic_store(&s->done, true);
    return rc == 0 ? s : NULL;
}

/* A command that holds a key begins a batch while a checkpoint wants that key's shard: neither waits for the other. */
static void test_a_checkpoint_gives_way(void **in)
{
    (void)in;
    char *folder = support_folder_make();
    struct keyspace k;
    struct keyspace_lock h;
    struct quire_error err;
    pthread_t thread;
    void *saved;
    uint64_t lsn;
    begin(&k);
    struct saver saver = {.k = &k, .journal = open_journal(folder, &k)};
    assert_int_equal(set(&k, "key", "value", 0), 0);
    assert_non_null(lock(&h, &k, "key"));
    assert_int_equal(pthread_create(&thread, NULL, save_keys, &saver), 0);
    for (unsigned i = 0; i < 400; i++) {
        assert_int_equal(journal_batch_begin(saver.journal, &err), 0);
        assert_int_equal(journal_batch_end(saver.journal, &lsn, &err), 0);
        usleep(100);
    }
    assert_false(atomic_load(&saver.done)); /* it was there meanwhile, and could not have the shard */
    keyspace_unlock(&h);
    assert_int_equal(pthread_join(thread, &saved), 0);
    assert_non_null(saved);
    close_journal(saver.journal);
    keyspace_fini(&k);
    support_folder_remove(folder);
}

struct changer {
    struct keyspace *k;
    uint64_t seed;
    _Atomic bool *over;
};

/* test_now_ms stands still here; change moves it, so what the clock does not touch is called directly. */
static void *change_keys(void *context)
{
    struct changer *c = context;
    struct random random;
    random_init(&random, c->seed);
    while (!atomic_load(c->over)) {
        struct keyspace_lock h;
        struct quire_error err;
        char name[16], other[16], text[32];
        uint32_t n;
        snprintf(name, sizeof name, "k%u", (unsigned)random_below(&random, 300));
        snprintf(other, sizeof other, "k%u", (unsigned)random_below(&random, 300));
        snprintf(text, sizeof text, "%llu", (unsigned long long)random_next(&random));
        struct resp_arg names[2] = {arg(name), arg(other)}, pair[2] = {arg(other), arg(text)};
        keyspace_lock_args(&h, c->k, names, 2, 1);
        struct key key = keyspace_key(c->k, names[0]), to = keyspace_key(c->k, names[1]);
        struct key_entry *e = keyspace_find(&h, &key);
        uint64_t what = random_below(&random, 10);
        if (what < 4 && (!e || e->type == KEY_HASH))
            keyspace_hash_set(&h, &key, e, pair, 1, &n, &err);
        else if (what < 6 && e && e->type == KEY_STRING)
            keyspace_append(&h, e, "z", 1, &err);
        else if (what < 7 && e && e != keyspace_find(&h, &to))
            keyspace_rename(&h, e, &to, &err);
        else if (what < 8)
            keyspace_delete(&h, names, 1, &n, &err);
        else
            keyspace_set_string(&h, &key, e, keyspace_value_create(text, 10, 10), 0, &err);
        keyspace_unlock(&h);
    }
    return NULL;
}

/* Checkpoints are written while others write: read again, all is as it was at the end. */
static void test_fuzzy_checkpoints(void **state)
{
    (void)state;
    char *folder = support_folder_make();
    struct quire_error err;
    uint64_t before = 0;
    for (unsigned life = 0; life < 6; life++) {
        struct keyspace k;
        struct checkpoint *checkpoint;
        _Atomic bool over = false;
        pthread_t threads[2];
        struct changer changers[2];
        begin(&k);
        struct journal *journal = open_journal(folder, &k);
        assert_int_equal(sum_keys(&k), before);
        for (unsigned i = 0; i < 2; i++) {
            changers[i] = (struct changer){&k, 2 * life + i, &over};
            assert_int_equal(pthread_create(&threads[i], NULL, change_keys, &changers[i]), 0);
        }
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(journal_checkpoint_begin(journal, &checkpoint, &err), 0);
            assert_int_equal(keyspace_save(&k, checkpoint, &err), 0);
            assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
        }
        atomic_store(&over, true);
        for (unsigned i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        before = sum_keys(&k);
        close_journal(journal);
        keyspace_fini(&k);
    }
    support_folder_remove(folder);
}

static void test_bad_records(void **state)
{
    static const uint8_t number_and_key[11] = {0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 'k'};
    static const uint8_t key_only[3] = {1, 0, 'k'};
    static const uint8_t field_too_long[11] = {1, 0, 'k', 9, 0, 0, 0, 0, 0, 0, 0};
    struct keyspace k;
    struct quire_error err;
    (void)state;
    begin(&k);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_VECTORS, 1, number_and_key, 10, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_SET, 1, number_and_key, 10, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_JSON, 1, number_and_key, 10, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_JSON_PACKED, 1, number_and_key, 10, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_JSON_PACKED + 1, 1, number_and_key, 11, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_DELETE, 1, key_only, 2, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_JSON + 1, 1, key_only, 3, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_FLUSH, 1, key_only, 3, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_HASH_SET, 1, field_too_long, 11, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_restore(&k, KEY_LOG_FLUSH, 1, NULL, 0, &err), QUIRE_ECORRUPT);
    assert_int_equal(keyspace_count(&k), 0);
    /* a hash in the log where a string is */
    assert_int_equal(keyspace_replay(&k, KEY_LOG_SET, 1, number_and_key, 11, &err), 0);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_HASH_SET, 2, key_only, 3, &err), QUIRE_ECORRUPT);
    /* what is older than the key says nothing */
    assert_int_equal(keyspace_restore(&k, KEY_LOG_SET, 9, (const uint8_t *)"\0\0\0\0\0\0\0\0\1\0mnew", 14, &err), 0);
    assert_int_equal(keyspace_replay(&k, KEY_LOG_DELETE, 9, (const uint8_t *)"\1\0m", 3, &err), 0);
    assert_true(there(&k, "m"));
    assert_int_equal(keyspace_replay(&k, KEY_LOG_DELETE, 10, (const uint8_t *)"\1\0m", 3, &err), 0);
    assert_false(there(&k, "m"));
    keyspace_fini(&k);
}

/* A checkpoint says that a value is away, with its length, also while a copy is here; the log has the bytes of what is
 * kept. */
static void test_what_is_away_is_in_checkpoints(void **state)
{
    char *folder = support_folder_make();
    struct keyspace k;
    struct keyspace_lock h;
    struct checkpoint *checkpoint;
    struct quire_error err;
    struct resp_arg value;
    char text[200];
    uint32_t n;
    (void)state;
    for (unsigned kept = 0; kept < 2; kept++) {
        begin(&k);
        struct journal *journal = open_journal(folder, &k);
        struct key key = keyspace_key(&k, arg("key"));
        struct key_entry *e = lock(&h, &k, "key");
        if (!e) {
            struct resp_arg pairs[4] = {arg("n"), arg("1"), arg("v"), long_value('x', text)};
            assert_int_equal(keyspace_hash_set(&h, &key, e, pairs, 2, &n, &err), 0);
            e = keyspace_find(&h, &key);
            uint64_t before = atomic_load(&k.used_bytes), version = e->version;
            keyspace_send_away(&k, e, arg("v"));
            assert_int_equal(atomic_load(&k.used_bytes), before - 200);
            assert_int_equal(keyspace_bring(&h, e, arg("v"), pairs[3], &err), 0);
            assert_int_equal(atomic_load(&k.used_bytes), before);
            assert_int_equal(e->version, version);
        } else {
            assert_true(hash_get(e->hash, arg("v"), &value) && !value.data && value.bytes == 200);
            assert_int_equal(keyspace_bring(&h, e, arg("v"), long_value('x', text), &err), 0);
            assert_int_equal(keyspace_keep(&h, e, arg("v"), &err), 0);
            assert_int_equal(hash_n_away(e->hash), 0);
        }
        keyspace_unlock(&h);
        if (kept == 0) {
            assert_int_equal(journal_checkpoint_begin(journal, &checkpoint, &err), 0);
            assert_int_equal(keyspace_save(&k, checkpoint, &err), 0);
            assert_int_equal(journal_checkpoint_finish(checkpoint, &err), 0);
        }
        close_journal(journal);
        k.journal = NULL;
        keyspace_fini(&k);
    }
    begin(&k);
    struct journal *journal = open_journal(folder, &k);
    const struct key_entry *e = lock(&h, &k, "key");
    assert_non_null(e);
    assert_int_equal(hash_count(e->hash), 2);
    assert_true(hash_get(e->hash, arg("v"), &value) && value.data && value.bytes == 200);
    assert_memory_equal(value.data, long_value('x', text).data, 200);
    keyspace_unlock(&h);
    close_journal(journal);
    k.journal = NULL;
    keyspace_fini(&k);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan_returns_what_stays),
        cmocka_unit_test(test_hash_as_a_model_has_it),
        cmocka_unit_test(test_hash_whose_values_are_away),
        cmocka_unit_test(test_expiry_by_the_clock),
        cmocka_unit_test(test_the_queue_of_expiries),
        cmocka_unit_test(test_memory_comes_back),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_gate_lets_one_run_alone),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_what_was_logged_is_there_again),
        cmocka_unit_test(test_fuzzy_checkpoints),
        cmocka_unit_test(test_a_checkpoint_gives_way),
        cmocka_unit_test(test_what_is_away_is_in_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
