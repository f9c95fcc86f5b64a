/*
 * evict.h - the order in which entries of a category are given up: lru, lfu, cost. Constant time for each call.
 *
 * Entries are numbers; the two links of an entry live in the caller's table, so that an order costs nothing per entry
 * but these. lru: one list. lfu: lists by the logarithm of a frequency that ages. cost: lists by saved cost per byte,
 * aged as in GreedyDual-Size (Cao and Irani, 1997), in steps of a quarter of a power of two.
 *
 * No locks: the caller's. Entries that are pinned are not in an order.
 */
#ifndef QUIRE_CACHE_EVICT_H
#define QUIRE_CACHE_EVICT_H

#include "cache/category.h"

#define EVICT_NONE   UINT32_MAX
#define EVICT_LEVELS 64u

/* What an order keeps in each entry. */
struct evict_links {
    uint32_t prev, next;
    uint8_t level; /* of the list it is in; 255: in none */
    uint8_t hits;  /* logarithm of uses, for lfu */
};

struct evict_order {
    enum category_evict policy;
    uint64_t filled; /* bit per level that holds an entry */
    uint32_t first[EVICT_LEVELS], last[EVICT_LEVELS];
    uint64_t n;
    double clock;  /* of cost and lfu: what the last victim was worth */
    uint64_t base; /* level 0 stands for this step of the clock */
    /* the links of entry i */
    struct evict_links *(*links)(void *context, uint32_t entry);
    void *context;
};

void evict_init(struct evict_order *order, enum category_evict policy,
                struct evict_links *(*links)(void *context, uint32_t entry), void *context);
/* saved: what a hit saves, per byte that the entry takes (any unit; 0 where unknown). */
void evict_add(struct evict_order *order, uint32_t entry, double saved_per_byte);
void evict_used(struct evict_order *order, uint32_t entry, double saved_per_byte);
void evict_remove(struct evict_order *order, uint32_t entry); /* no effect if it is in none */
/* The next one to go, EVICT_NONE if there is none; it stays in the order. */
uint32_t evict_victim(const struct evict_order *order);
/* Called when the victim is given up for room, before evict_remove: the clock moves. */
void evict_taken(struct evict_order *order, uint32_t entry);
/* Another policy: entries keep their order as far as it has a meaning. O(n). */
void evict_change(struct evict_order *order, enum category_evict policy);

#endif
