/*
 * evict.h - the order in which entries of a category are given up: lru, lfu, cost. Constant time for each call.
 *
 * Entries are numbers; the links of an entry live in the caller's table, so that an order costs nothing per entry but
 * these. lru: one list. lfu: lists by the logarithm of a frequency that ages. cost: lists by saved cost per byte, in
 * steps of a quarter of a power of two, aged as in GreedyDual-Size (Cao and Irani, 1997). Entries whose saved cost is
 * not known go before all others.
 *
 * No locks: the caller's. Entries that are pinned are not in an order.
 */
#ifndef QUIRE_CACHE_EVICT_H
#define QUIRE_CACHE_EVICT_H

#include "cache/policy/category.h"

#define EVICT_NONE     UINT32_MAX
#define EVICT_LEVELS   64u
#define EVICT_UNLISTED 255u

/* What an order keeps in each entry: 12 bytes, since there are millions. */
struct evict_links {
    uint32_t prev, next;
    union {
        uint16_t at;   /* cost: the clock at its last use, in units of its level, modulo 2^16 */
        uint16_t uses; /* lfu: as of the last use, halved for each step that the clock had made by then */
    };
    uint8_t level; /* of the list it is in; EVICT_UNLISTED (to be set by whoever makes the entry): in none */
    uint8_t hits;  /* see evict_hits; 0 to be set by whoever makes the entry */
};
_Static_assert(sizeof(struct evict_links) == 12, "the links of an entry have 12 bytes");

struct evict_order {
    enum category_evict policy;
    uint64_t filled; /* bit per level that holds an entry */
    uint32_t first[EVICT_LEVELS], last[EVICT_LEVELS];
    uint64_t n;
    double clock;    /* lfu: the step of the last victim; cost: what the last victim was worth */
    int64_t base;    /* no step below this one is filled, nor one 63 or more above it */
    uint64_t random; /* for counts of uses */
    /* the links of entry i */
    struct evict_links *(*links)(void *context, uint32_t entry);
    void *context;
};

void evict_init(struct evict_order *order, enum category_evict policy,
                struct evict_links *(*links)(void *context, uint32_t entry), void *context);
/* The entry is in no order. saved: what a hit saves, per byte that the entry takes (any unit, the same for all entries;
 * 0 where unknown). */
void evict_add(struct evict_order *order, uint32_t entry, double saved_per_byte);
/* Counts a use, also of an entry that is in none (pinned). */
void evict_used(struct evict_order *order, uint32_t entry, double saved_per_byte);
void evict_remove(struct evict_order *order, uint32_t entry); /* no effect if it is in none */
/* The next one to go, EVICT_NONE if there is none; it stays in the order. */
uint32_t evict_victim(const struct evict_order *order);
/* Called when the victim is given up for space, before evict_remove: the clock moves. */
void evict_taken(struct evict_order *order, uint32_t entry);
/* How often an entry was used since it was made, whatever the policy: exact up to 16, beyond within a factor of two
 * (more than 99 of 100 times). */
uint64_t evict_hits(const struct evict_links *links);
/* Another policy, O(n). To lru: what would go first is the longest unused. To lfu: every entry was used once, in the
 * old order. To cost: in the old order, with an unknown cost until evict_used tells it. */
void evict_change(struct evict_order *order, enum category_evict policy);

#endif
