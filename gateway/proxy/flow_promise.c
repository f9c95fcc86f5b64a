/*
 * flow_promise.c - a ring of places; the low bits of a promise are its place, the others are random, so that nobody can
 * guess the id of an answer that somebody else was given.
 */
#include "gateway/proxy/flow_promise.h"
#include <assert.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint64_t promise, entry; /* promise 0: empty */
    enum flow_promise_state state;
};

struct flow_promises {
    uint32_t next;
    struct place places[FLOW_PROMISES_MAX];
};

static_assert((FLOW_PROMISES_MAX & (FLOW_PROMISES_MAX - 1)) == 0, "the low bits of a promise are its place");

struct flow_promises *flow_promises_create(void)
{
    return calloc(1, sizeof(struct flow_promises));
}

void flow_promises_destroy(struct flow_promises *promises)
{
    free(promises);
}

uint64_t flow_promise_make(struct flow_promises *promises)
{
    struct place *place = &promises->places[promises->next];
    uint64_t random;
    if (RAND_bytes((uint8_t *)&random, sizeof random) != 1 || random < FLOW_PROMISES_MAX)
        return 0;
    *place = (struct place){.promise = (random & ~(uint64_t)(FLOW_PROMISES_MAX - 1)) | promises->next,
                            .state = FLOW_PROMISE_OPEN};
    promises->next = (promises->next + 1) % FLOW_PROMISES_MAX;
    assert(place->promise != 0);
    return place->promise;
}

void flow_promise_end(struct flow_promises *promises, uint64_t promise, const char *id, size_t bytes)
{
    struct place *place = &promises->places[promise % FLOW_PROMISES_MAX];
    char digits[FLOW_PROMISE_ID_DIGITS + 1];
    if (promise == 0 || place->promise != promise || place->state != FLOW_PROMISE_OPEN)
        return;
    place->state = FLOW_PROMISE_BROKEN;
    if (id && bytes == FLOW_PROMISE_ID_DIGITS) {
        memcpy(digits, id, bytes);
        digits[bytes] = 0;
        place->entry = strtoull(digits, NULL, 16);
        place->state = FLOW_PROMISE_KEPT;
    }
}

enum flow_promise_state flow_promise_find(const struct flow_promises *promises, uint64_t id, uint64_t *entry)
{
    const struct place *place = &promises->places[id % FLOW_PROMISES_MAX];
    if (id == 0 || place->promise != id)
        return FLOW_PROMISE_UNKNOWN;
    *entry = place->entry;
    return place->state;
}
