/*
 * vector_plan.c - elements that a transaction will write to, and what the disk says of them.
 *
 * Notes are (key, element). Which collection a key will have when the write is made is known but for RENAME, so with
 * one in the transaction each element is looked up in the renamed sets as well. An element is asked for once per
 * collection, however often it is written to: the first write ends the sealed row, which collection_put sees by itself.
 *
 * An answer holds as long as the collection's segments stay as they are (the generation of struct located). Whoever
 * opens a batch of the journal and then finds the plan ready may rely on it until the batch ends.
 *
 * The disk is asked for some elements at a time, so that a transaction of many thousands takes little beside its
 * answers; these count as memory of who asks.
 */
#include "server/vector/vector_plan.h"
#include "io/array.h"
#include "io/error.h"
#include "server/keys/keyspace.h"
#include "server/vector/vector_call.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct note {
    struct resp_arg key, element;
    bool want_text, want_vector;
};

/* An element of one collection that the disk was asked for. */
struct answer {
    struct answer *next;           /* of its bucket */
    struct answer *next_missing;   /* of those that are to be asked for */
    struct collection *collection; /* a reference */
    struct resp_arg element;
    uint64_t hash;
    bool want_text, want_vector, there, missing;
    struct located located;
    struct vector_kept kept;
};

enum { FETCHES_AT_ONCE = 64 };

struct answer_fetch {
    struct answer_fetch *next_free;
    struct vector_plan *plan;
    struct answer *answer;
    struct collection_fetch fetch;
};

struct vector_plan {
    struct lane *lane;
    void (*go_on)(void *context);
    void *context;
    bool noting, starting;
    struct note *notes;
    size_t n_notes, notes_capacity;
    struct resp_arg *renames;
    size_t n_renames, renames_capacity;
    struct answer **buckets; /* a power of two of them */
    size_t n_buckets, n_answers, n_running;
    struct answer *missing; /* to be asked for */
    struct answer_fetch *free;
    struct resp_account *account;
    size_t held;              /* noted there, but for what answers keep */
    struct quire_error error; /* the first; code 0: none */
    struct answer_fetch fetches[FETCHES_AT_ONCE];
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static bool take(struct vector_plan *plan, size_t bytes)
{
    if (!resp_account_take(plan->account, bytes))
        return false;
    plan->held += bytes;
    return true;
}

static struct vector_plan *plan_create(struct lane *lane, struct resp_account *account, void (*go_on)(void *context),
                                       void *context)
{
    struct vector_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    *plan = (struct vector_plan){.lane = lane, .account = account, .go_on = go_on, .context = context, .noting = true};
    for (unsigned i = 0; i < FETCHES_AT_ONCE; i++) {
        plan->fetches[i] = (struct answer_fetch){.plan = plan, .next_free = plan->free};
        plan->free = &plan->fetches[i];
    }
    if (take(plan, sizeof *plan))
        return plan;
    free(plan);
    return NULL;
}

static void plan_destroy(struct vector_plan *plan)
{
    if (!plan)
        return;
    assert(plan->n_running == 0 && !plan->starting);
    for (size_t i = 0; i < plan->n_buckets; i++)
        for (struct answer *a = plan->buckets[i], *next; a; a = next) {
            next = a->next;
            collection_unref(a->collection);
            vector_write_forget(plan->account, &a->kept);
            free(a);
        }
    free(plan->buckets);
    free(plan->renames);
    free(plan->notes);
    if (plan->account)
        resp_account_add(plan->account, -(int64_t)plan->held);
    free(plan);
}

static void fail(struct vector_plan *plan, int code, const char *sentence)
{
    if (plan->error.code == 0)
        error_set(&plan->error, code, "%s", sentence);
}

/* ---- notes --------------------------------------------------------------------------------------------------------*/

static void plan_note_rename(struct vector_plan *plan, struct resp_arg from)
{
    if (take(plan, sizeof *plan->renames) &&
        array_reserve(&plan->renames, &plan->renames_capacity, plan->n_renames + 1))
        plan->renames[plan->n_renames++] = from;
    else
        fail(plan, QUIRE_ENOMEM, "no memory to look at the keys of a transaction");
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct collection *collection, struct resp_arg element)
{
    return XXH3_64bits_withSeed(element.data, element.bytes, collection_uid(collection));
}

static struct answer *find(const struct vector_plan *plan, const struct collection *collection, struct resp_arg element,
                           uint64_t hash)
{
    struct answer *a = plan->n_buckets ? plan->buckets[hash & (plan->n_buckets - 1)] : NULL;
    while (a && !(a->hash == hash && a->collection == collection && a->element.bytes == element.bytes &&
                  memcmp(a->element.data, element.data, element.bytes) == 0))
        a = a->next;
    return a;
}

/* A new one, not asked for yet. NULL without memory. */
static struct answer *add(struct vector_plan *plan, struct collection *collection, struct resp_arg element,
                          uint64_t hash)
{
    if (plan->n_answers >= plan->n_buckets) {
        size_t n = plan->n_buckets ? 2 * plan->n_buckets : 64;
        struct answer **buckets = calloc(n, sizeof(struct answer *));
        if (!buckets)
            return NULL;
        for (size_t i = 0; i < plan->n_buckets; i++)
            for (struct answer *a = plan->buckets[i], *next; a; a = next) {
                next = a->next;
                a->next = buckets[a->hash & (n - 1)];
                buckets[a->hash & (n - 1)] = a;
            }
        free(plan->buckets);
        plan->buckets = buckets;
        plan->n_buckets = n;
    }
    struct answer *a = take(plan, sizeof *a + 2 * sizeof(struct answer *)) ? calloc(1, sizeof *a) : NULL;
    if (!a)
        return NULL;
    *a = (struct answer){.next = plan->buckets[hash & (plan->n_buckets - 1)],
                         .collection = collection_ref(collection),
                         .element = element,
                         .hash = hash};
    plan->buckets[hash & (plan->n_buckets - 1)] = a;
    plan->n_answers++;
    return a;
}

/* Marks what must be asked of the disk for one element of one collection. */
static void look_at(struct vector_plan *plan, const struct note *note, struct collection *collection)
{
    struct located now;
    if (collection_locate_now(collection, note->element.data, note->element.bytes, &now))
        return;
    uint64_t hash = hash_of(collection, note->element);
    struct answer *a = find(plan, collection, note->element, hash);
    if (!a && !(a = add(plan, collection, note->element, hash))) {
        fail(plan, QUIRE_ENOMEM, "no memory to look elements up");
        return;
    }
    bool more = (note->want_text && !a->want_text) || (note->want_vector && !a->want_vector);
    a->want_text |= note->want_text;
    a->want_vector |= note->want_vector;
    if (a->missing || (a->there && !more && a->located.generation == now.generation))
        return;
    a->missing = true;
    a->next_missing = plan->missing;
    plan->missing = a;
}

static void look_at_all(struct vector_plan *plan, struct collection *set, const struct note *only)
{
    if (set && collection_available(set, NULL) < 0) { /* its commands will say so */
        collection_unref(set);
        return;
    }
    for (size_t i = 0; set && !only && i < plan->n_notes; i++)
        look_at(plan, &plan->notes[i], set);
    if (set && only)
        look_at(plan, only, set);
    collection_unref(set);
}

static bool plan_is_ready(struct vector_plan *plan)
{
    struct keyspace *keyspace = &plan->lane->service->keyspace;
    bool other;
    plan->noting = false;
    for (size_t i = 0; i < plan->n_notes; i++)
        look_at_all(plan, keyspace_get_vectors(keyspace, plan->notes[i].key, &other), &plan->notes[i]);
    for (size_t i = 0; i < plan->n_renames; i++)
        look_at_all(plan, keyspace_get_vectors(keyspace, plan->renames[i], &other), NULL);
    return !plan->missing && plan->error.code == 0;
}

/* ---- the disk -----------------------------------------------------------------------------------------------------*/

static void start_more(struct vector_plan *plan);

static void on_answer(struct collection_fetch *fetch)
{
    struct answer_fetch *f = fetch->owner;
    struct vector_plan *plan = f->plan;
    struct answer *a = f->answer;
    vector_count_fetch(plan->lane, fetch->reads);
    if (fetch->code < 0 && fetch->code != QUIRE_ENOTFOUND) {
        fail(plan, fetch->code, fetch->error.message);
    } else {
        a->located = fetch->located;
        a->there = true;
        if (!vector_write_keep(fetch, plan->account, &a->kept))
            fail(plan, QUIRE_ENOMEM, "no memory for what an element has");
    }
    assert(plan->n_running > 0 && !a->missing);
    plan->n_running--;
    f->next_free = plan->free;
    plan->free = f;
    if (plan->starting)
        return;
    start_more(plan);
    if (plan->n_running == 0)
        plan->go_on(plan->context);
}

/* As many as there are places for; after an error none. */
static void start_more(struct vector_plan *plan)
{
    struct quire_error err = {0};
    plan->starting = true;
    while (plan->missing && plan->free) {
        struct answer *a = plan->missing;
        plan->missing = a->next_missing;
        a->missing = false;
        if (plan->error.code < 0)
            continue;
        struct answer_fetch *f = plan->free;
        plan->free = f->next_free;
        f->answer = a;
        f->fetch = (struct collection_fetch){.collection = a->collection,
                                             .key = a->element.data,
                                             .key_bytes = a->element.bytes,
                                             .want_attributes = a->want_text,
                                             .want_grants = true,
                                             .want_vector = a->want_vector,
                                             .done = on_answer,
                                             .owner = f};
        plan->n_running++;
        int rc = collection_fetch_start(plan->lane->searcher, &f->fetch, &err);
        if (rc == 0)
            continue;
        plan->n_running--;
        f->next_free = plan->free;
        plan->free = f;
        fail(plan, rc, err.message);
    }
    plan->starting = false;
    assert(plan->n_running > 0 || !plan->missing);
}

static bool plan_ask(struct vector_plan *plan)
{
    assert(plan->n_running == 0);
    if (plan_is_ready(plan))
        return true;
    start_more(plan);
    return plan->n_running == 0;
}

static bool plan_failed(const struct vector_plan *plan, struct quire_error *err)
{
    if (plan->error.code < 0)
        *err = plan->error;
    return plan->error.code < 0;
}

/* ---- making the writes --------------------------------------------------------------------------------------------*/

bool vector_plan_find(const struct vector_plan *plan, const struct collection *collection, struct vector_write *w)
{
    const struct answer *a = find(plan, collection, w->element, hash_of(collection, w->element));
    if (!a || !a->there)
        return false;
    w->located = a->located;
    w->old_text = a->kept.text;
    w->old_text_bytes = a->kept.text_bytes;
    w->old_vector = a->kept.vector;
    return true;
}

void vector_plan_run(struct caller *c, struct vector_write *w)
{
    struct vector_plan *plan = c->plan;
    if (plan->noting && (w->element.bytes == 0 || w->element.bytes > QUIRE_KEY_BYTES_MAX))
        return; /* will be refused */
    if (plan->noting) {
        if (take(plan, sizeof *plan->notes) && array_reserve(&plan->notes, &plan->notes_capacity, plan->n_notes + 1))
            plan->notes[plan->n_notes++] = (struct note){.key = w->key,
                                                         .element = w->element,
                                                         .want_text = vector_write_wants_text(w),
                                                         .want_vector = vector_write_wants_vector(w)};
        else
            fail(plan, QUIRE_ENOMEM, "no memory to look at the elements of a transaction");
        return;
    }
    w->plan = plan;
    if (vector_write_try(c->lane->service, w, caller_reply(c)) == VECTOR_WRITE_ASKS_DISK) {
        collection_unref(w->target);
        caller_error(c, "ERR the set's segments were exchanged while the transaction ran: this write was not made");
        return;
    }
}

const struct planner vector_planner = {.create = plan_create,
                                       .destroy = plan_destroy,
                                       .note_rename = plan_note_rename,
                                       .ask = plan_ask,
                                       .failed = plan_failed,
                                       .is_ready = plan_is_ready};
