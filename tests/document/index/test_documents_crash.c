/*
 * test_documents_crash.c - the power is cut at every write, sync and change of a name while indexes and aliases are
 * made, widened, moved and dropped, with checkpoints in between.
 *
 * What is there after each cut is what was there behind one of the commands, none of those that were acknowledged
 * missing: never half of one. Each index then takes all documents in, hashes and JSON, with their vectors, as at a
 * start of the server or a back-fill. One more index is made, and is there when the folder is opened again.
 *
 * QUIRE_CRASH_STEP=n cuts at every n-th call only (1 tries all). Without it the step is chosen so that the test takes
 * seconds.
 */
#include "document/index/document_search.h"
#include "document/index/documents_priv.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DOCUMENTS = 12, STATE_BYTES = 512, WORDS_MAX = 64 };
#define CALLS                                                                                                          \
    (FAULT_WRITE | FAULT_SYNC | FAULT_RENAME | FAULT_UNLINK | FAULT_SYNC_DIR | FAULT_LINK | FAULT_MKDIR | FAULT_RMDIR)

#define VECTOR "VECTOR HNSW 6 TYPE FLOAT32 DIM 2 DISTANCE_METRIC L2"
/* The first letter is the command; what follows are its words. */
static const char *const script[] = {
    "C a PREFIX 1 h: SCHEMA g TAG n NUMERIC",
    "C b PREFIX 1 h: SCHEMA g TAG v " VECTOR,
    "S now a",
    "K",
    "A a w " VECTOR " n2 NUMERIC",
    "C j ON JSON PREFIX 1 j: SCHEMA $.g AS g TAG $.v AS v " VECTOR,
    "S now b",
    "S old a",
    "D b",
    "K",
    "A j $.n AS n NUMERIC",
    "R old",
    "C b PREFIX 1 h: SCHEMA v " VECTOR " w " VECTOR,
    "S now j",
    "K",
    "D a",
    "A b t TEXT",
};
#define COMMANDS (sizeof script / sizeof *script)
static char states[COMMANDS + 1][STATE_BYTES]; /* behind so many commands */

static struct store *store;
static struct documents *documents;
static struct quire_error err;

/* ---- documents, as their keeper has them ------------------------------------------------------------------------- */

static bool field(const void *context, const char *name, uint32_t bytes, struct schema_word *value)
{
    static const float vectors[2][2] = {{1, 2}, {3, 4}};
    (void)context;
    if (bytes != 1 || (*name != 'g' && *name != 'v' && *name != 'w'))
        return false;
    *value = *name == 'g' ? (struct schema_word){"red", 3}
                          : (struct schema_word){(const char *)vectors[*name == 'w'], sizeof vectors[0]};
    return true;
}

static void give_documents(void)
{
    static const char json[] = "{\"g\":\"red\",\"v\":[1,2]}";
    for (unsigned i = 0; i < 2 * DOCUMENTS; i++) {
        char key[16];
        int bytes = snprintf(key, sizeof key, "%c:%u", i % 2 ? 'j' : 'h', i / 2);
        struct document_view view = {.source = SCHEMA_HASH, .field = field};
        if (i % 2)
            view = (struct document_view){.source = SCHEMA_JSON, .json = json, .json_bytes = sizeof json - 1};
        documents_changed(documents, key, (uint32_t)bytes, &view);
    }
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

/* Negative: it does not open. */
static int open_all(struct io_fs *fs)
{
    assert_int_equal(documents_create(&documents, &err), 0);
    struct store_host host = {
        .restore = documents_restore, .replay = documents_replay, .save = documents_save, .context = documents};
    struct store_options options = {.fs = fs, .no_maintenance = true, .memtable_bytes = 1 << 20, .threads = 1};
    int rc = store_open("/data", &options, &host, &store, NULL, &err);
    if (rc == 0)
        rc = documents_begin(documents, store, &err);
    if (rc == 0) {
        give_documents();
        rc = documents_begun(documents, &err);
    }
    return rc;
}

static void close_all(void)
{
    documents_destroy(documents);
    store_close(store, NULL); /* a disk that fails does so here, too */
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static uint32_t split(const char *text, struct schema_word words[WORDS_MAX])
{
    uint32_t n = 0;
    for (const char *at = text; *at && n < WORDS_MAX;) {
        size_t bytes = strcspn(at, " ");
        words[n++] = (struct schema_word){at, (uint32_t)bytes};
        at += bytes + (at[bytes] == ' ');
    }
    return n;
}

static int drop(struct schema_word name, uint64_t *lsn)
{
    struct document_index *index = NULL;
    int rc = documents_drop(documents, name, &index, lsn, &err);
    if (rc == 0)
        documents_drop_vectors(index);
    document_index_unref(index);
    return rc;
}

/* Negative: it failed, or may be forgotten. */
static int command(const char *text)
{
    struct schema_word words[WORDS_MAX];
    struct document_index *index = NULL;
    struct journal *journal = store_journal(store);
    uint32_t n = split(text + 1 + (text[1] == ' '), words);
    uint64_t lsn = 0;
    int rc = 0;
    if (*text == 'C')
        rc = documents_add(documents, words, n, &index, &lsn, &err);
    else if (*text == 'A')
        rc = documents_alter(documents, words[0], words + 1, n - 1, 2, &index, &lsn, &err);
    else if (*text == 'S')
        rc = documents_alias_set(documents, words[0], words[1], false, &lsn, &err);
    else if (*text == 'R')
        rc = documents_alias_remove(documents, words[0], &lsn, &err);
    else if (*text == 'D')
        rc = drop(words[0], &lsn);
    else
        rc = store_checkpoint(store, &err);
    if (rc == 0)
        document_index_unref(index);
    if (rc == 0 && index)
        give_documents();
    return rc == 0 && *text != 'K' ? journal_wait(journal, journal_last_lsn(journal), NULL) : rc;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

struct state {
    char *text;
    bool whole; /* every index has all documents that it follows */
};

static void describe_index(void *context, struct document_index *index)
{
    struct state *state = context;
    struct document_index_stats stats;
    const struct schema *schema = document_index_schema(index);
    size_t used = strlen(state->text);
    document_index_get_stats(index, &stats);
    uint64_t vectors = DOCUMENTS * (uint64_t)document_index_n_vectors(schema, 0);
    state->whole = state->whole && stats.documents == DOCUMENTS && stats.vectors.documents == vectors;
    snprintf(state->text + used, STATE_BYTES - used, "%s:%u ", document_index_name(index), schema->n_fields);
}

/* Indexes with the number of their fields, and aliases. False: an index lacks documents, or vectors of theirs. */
static bool describe(char text[STATE_BYTES])
{
    static const char *const aliases[] = {"now", "old"};
    struct state state = {text, true};
    *text = 0;
    documents_each(documents, describe_index, &state);
    for (unsigned i = 0; i < 2; i++) {
        struct document_index *index = NULL;
        size_t used = strlen(text);
        if (documents_find(documents, (struct schema_word){aliases[i], 3}, &index, &err) < 0)
            continue;
        snprintf(text + used, STATE_BYTES - used, "%s=%s ", aliases[i], document_index_name(index));
        document_index_unref(index);
    }
    return state.whole;
}

/* Whether it is what was there behind `from` to `to` commands. */
static bool is_one_of(const char *text, size_t from, size_t to)
{
    for (size_t i = from; i <= to; i++)
        if (strcmp(text, states[i]) == 0)
            return true;
    fprintf(stderr, "there is %s, behind %zu commands there was %s, behind %zu %s\n", text, from, states[from], to,
            states[to]);
    return false;
}

static bool recovers(struct io_fs *fs, size_t acknowledged, size_t sent)
{
    char text[STATE_BYTES], again[STATE_BYTES];
    bool right = open_all(fs) == 0;
    if (!right)
        fprintf(stderr, "it does not open: %s\n", err.message);
    right = right && describe(text) && is_one_of(text, acknowledged, sent) &&
            command("C z PREFIX 1 h: SCHEMA g TAG v " VECTOR) == 0 && describe(text);
    close_all();
    if (!right)
        return false;
    right = open_all(fs) == 0 && describe(again) && strcmp(text, again) == 0 && strstr(again, "z:2 ");
    close_all();
    return right;
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* Cuts the power at the n-th call; 0: behind the last. Returns how many there were. */
static uint64_t cut_at(uint64_t n, uint64_t seed)
{
    struct io_fs *fs = fault_fs_create();
    size_t acknowledged = 0, sent = 0;
    assert_non_null(fs);
    assert_int_equal(open_all(fs), 0);
    fault_fail_nth(fs, CALLS, n, QUIRE_EIO, n > 0);
    for (bool failed = false; !failed && sent < COMMANDS;) {
        failed = command(script[sent++]) < 0;
        acknowledged += !failed;
        if (n == 0) {
            if (failed)
                fail_msg("%s: %s", script[sent - 1], err.message);
            assert_true(describe(states[sent]));
        }
    }
    uint64_t calls = fault_calls(fs, CALLS);
    close_all();
    fault_power_cut(fs, seed);
    if (!recovers(fs, acknowledged, sent))
        fail_msg("after a cut at call %llu with seed %llu", (unsigned long long)n, (unsigned long long)seed);
    fault_fs_destroy(fs);
    return calls;
}

static void every_cut_leaves_whole_definitions(void **state)
{
    const char *text = getenv("QUIRE_CRASH_STEP");
    const uint64_t seeds[] = {0, UINT64_MAX, 1, 2};
    uint64_t calls = cut_at(0, 0), chosen = text ? strtoull(text, NULL, 10) : calls / (SANITIZED ? 12 : 60) + 1;
    (void)state;
    assert_true(chosen > 0);
    for (uint64_t n = 1; n <= calls; n += chosen)
        for (unsigned i = 0; i < sizeof seeds / sizeof *seeds; i++)
            cut_at(n, seeds[i] == 0 || seeds[i] == UINT64_MAX ? seeds[i] : seeds[i] + 10 * n);
    fprintf(stderr, "%llu calls, every %llu-th with 4 seeds\n", (unsigned long long)calls, (unsigned long long)chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_leaves_whole_definitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
