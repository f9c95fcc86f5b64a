/* cursors.c - see cursors.h. A list: there are few. */
#include "server/document/cursors.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/random.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define ID_MASK ((1ull << 52) - 1) /* clients read it as a double */

struct cursors {
    pthread_mutex_t lock;
    struct aggregation *first;
    uint64_t seed;
};

int cursors_create(struct cursors **out, struct quire_error *err)
{
    struct cursors *cs = calloc(1, sizeof *cs);
    if (!cs)
        return error_set(err, QUIRE_ENOMEM, "no memory for cursors");
    pthread_mutex_init(&cs->lock, NULL);
    cs->seed = clock_ns();
    *out = cs;
    return 0;
}

void cursors_destroy(struct cursors *cs)
{
    if (!cs)
        return;
    for (struct aggregation *a = cs->first, *next; a; a = next) {
        next = a->next;
        aggregation_destroy(a);
    }
    pthread_mutex_destroy(&cs->lock);
    free(cs);
}

static uint32_t count(const struct cursors *cs, const struct document_index *index, uint32_t *idle)
{
    uint32_t n = 0;
    *idle = 0;
    for (const struct aggregation *a = cs->first; a; a = a->next)
        if (!index || a->index == index) {
            n++;
            *idle += !a->busy;
        }
    return n;
}

int cursors_add(struct cursors *cs, struct aggregation *a, uint64_t now_ms, struct quire_error *err)
{
    uint64_t bytes = aggregation_bytes(a);
    uint32_t idle;
    int rc = 0;
    pthread_mutex_lock(&cs->lock);
    for (const struct aggregation *other = cs->first; other; other = other->next)
        bytes += other->bytes;
    if (count(cs, a->index, &idle) >= CURSORS_PER_INDEX_MAX)
        rc = error_set(err, QUIRE_ELIMIT,
                       "Too many cursors allocated for index: it has %u; read them to their ends, or FT.CURSOR DEL",
                       CURSORS_PER_INDEX_MAX);
    else if (count(cs, NULL, &idle) >= CURSORS_MAX)
        rc = error_set(err, QUIRE_ELIMIT,
                       "Too many cursors: the server has %u; read them to their ends, or FT.CURSOR DEL", CURSORS_MAX);
    else if (bytes > CURSORS_BYTES_MAX)
        rc =
            error_set(err, QUIRE_ELIMIT,
                      "cursors would hold %llu bytes together, and may %llu; read them to their ends, or FT.CURSOR DEL",
                      (unsigned long long)bytes, CURSORS_BYTES_MAX);
    if (rc == 0) {
        a->bytes = aggregation_bytes(a);
        do
            a->id = random_mix(cs->seed++) & ID_MASK;
        while (a->id == 0);
        a->used_ms = now_ms;
        a->busy = false;
        a->next = cs->first;
        cs->first = a;
    }
    pthread_mutex_unlock(&cs->lock);
    return rc;
}

struct aggregation *cursors_take(struct cursors *cs, uint64_t id, const struct document_index *index)
{
    struct aggregation *a;
    pthread_mutex_lock(&cs->lock);
    for (a = cs->first; a && (a->id != id || a->index != index || a->busy); a = a->next)
        ;
    if (a)
        a->busy = true;
    pthread_mutex_unlock(&cs->lock);
    return a;
}

/* Takes it out of the list. */
static void unlink_one(struct cursors *cs, const struct aggregation *a)
{
    struct aggregation **link = &cs->first;
    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
}

void cursors_put(struct cursors *cs, struct aggregation *a, uint64_t now_ms, bool ended)
{
    assert(a->busy);
    pthread_mutex_lock(&cs->lock);
    if (ended)
        unlink_one(cs, a);
    a->used_ms = now_ms;
    a->bytes = ended ? 0 : aggregation_bytes(a);
    a->busy = false;
    pthread_mutex_unlock(&cs->lock);
    if (ended)
        aggregation_destroy(a);
}

void cursors_expire(struct cursors *cs, uint64_t now_ms)
{
    struct aggregation *over = NULL;
    pthread_mutex_lock(&cs->lock);
    for (struct aggregation *a = cs->first, *next; a; a = next) {
        next = a->next;
        if (a->busy || a->used_ms + a->idle_ms > now_ms)
            continue;
        unlink_one(cs, a);
        a->next = over;
        over = a;
    }
    pthread_mutex_unlock(&cs->lock);
    for (struct aggregation *next; over; over = next) {
        next = over->next;
        aggregation_destroy(over);
    }
}

uint32_t cursors_count(struct cursors *cs, const struct document_index *index, uint32_t *idle)
{
    pthread_mutex_lock(&cs->lock);
    uint32_t n = count(cs, index, idle);
    pthread_mutex_unlock(&cs->lock);
    return n;
}
