/*
 * vector_plan.c - elements that a transaction will write to, and what the disk says of them.
 *
 * Notes are (key, element). Which collection a key will have when the write is made is known but for RENAME, so with
 * one in the transaction each element is looked up in the renamed sets as well. An element is asked for once per
 * collection, however often it is written to: the first write ends the sealed row, which collection_put sees by itself.
 *
 * An answer holds as long as the collection's segments stay as they are (the generation of struct located). Whoever
 * opens a batch of the journal and then finds the plan ready may rely on it until the batch ends.
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
    struct answer *next; /* of its bucket */
    struct vector_plan *plan;
    struct collection *collection; /* a reference */
    struct resp_arg element;
    uint64_t hash;
    bool want_text, want_vector, there, missing;
    struct located located;
    char *text; /* grants and attributes; owned, as the vector */
    uint32_t text_bytes;
    float *vector;
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
    size_t n_buckets, n_answers, n_missing, n_running;
    struct quire_error error; /* the first; code 0: none */
};

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static struct vector_plan *plan_create(struct lane *lane, void (*go_on)(void *context), void *context)
{
    struct vector_plan *plan = calloc(1, sizeof *plan);
    if (plan)
        *plan = (struct vector_plan){.lane = lane, .go_on = go_on, .context = context, .noting = true};
    return plan;
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
            free(a->text);
            free(a->vector);
            free(a);
        }
    free(plan->buckets);
    free(plan->renames);
    free(plan->notes);
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
    if (array_reserve(&plan->renames, &plan->renames_capacity, plan->n_renames + 1))
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
    struct answer *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct answer){.next = plan->buckets[hash & (plan->n_buckets - 1)],
                         .plan = plan,
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
    plan->n_missing++;
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
    return plan->n_missing == 0 && plan->error.code == 0;
}

/* ---- the disk -----------------------------------------------------------------------------------------------------*/

static void on_answer(struct collection_fetch *fetch)
{
    struct answer *a = fetch->owner;
    struct vector_plan *plan = a->plan;
    vector_count_fetch(plan->lane, fetch->reads);
    if (fetch->code < 0 && fetch->code != QUIRE_ENOTFOUND) {
        fail(plan, fetch->code, fetch->error.message);
    } else {
        a->located = fetch->located;
        a->there = true;
        if (!vector_write_keep(fetch, &a->text, &a->text_bytes, &a->vector))
            fail(plan, QUIRE_ENOMEM, "no memory for what an element has");
    }
    assert(plan->n_running > 0 && !a->missing);
    plan->n_running--;
    if (plan->n_running == 0 && !plan->starting)
        plan->go_on(plan->context);
}

static bool plan_ask(struct vector_plan *plan)
{
    struct quire_error err = {0};
    assert(plan->n_running == 0);
    if (plan_is_ready(plan))
        return true;
    plan->starting = true;
    for (size_t i = 0; i < plan->n_buckets && plan->n_missing > 0; i++)
        for (struct answer *a = plan->buckets[i]; a; a = a->next) {
            if (!a->missing)
                continue;
            a->missing = false;
            a->fetch = (struct collection_fetch){.collection = a->collection,
                                                 .key = a->element.data,
                                                 .key_bytes = a->element.bytes,
                                                 .want_attributes = a->want_text,
                                                 .want_grants = true,
                                                 .want_vector = a->want_vector,
                                                 .done = on_answer,
                                                 .owner = a};
            plan->n_running++;
            int rc = collection_fetch_start(plan->lane->searcher, &a->fetch, &err);
            if (rc == 0)
                continue;
            plan->n_running--;
            fail(plan, rc, err.message);
        }
    plan->n_missing = 0;
    plan->starting = false;
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
    w->old_text = a->text;
    w->old_text_bytes = a->text_bytes;
    w->old_vector = a->vector;
    return true;
}

void vector_plan_run(struct caller *c, struct vector_write *w)
{
    struct vector_plan *plan = c->plan;
    if (plan->noting && (w->element.bytes == 0 || w->element.bytes > QUIRE_KEY_BYTES_MAX))
        return; /* will be refused */
    if (plan->noting) {
        if (array_reserve(&plan->notes, &plan->notes_capacity, plan->n_notes + 1))
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
