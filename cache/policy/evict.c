/*
 * evict.c - who goes next, in constant time.
 *
 * lru has one list, number 0. lfu and cost have lists 1 to 63 for "steps", integers that may be anything: step s is in
 * list 1 + (s mod 63), and as all steps in use lie within 63 of each other, a list holds one step only. So nothing has
 * to be moved when steps grow without end. A step further away than that is taken as the nearest that fits.
 *
 * lfu: the clock is a step. An entry used f times is at clock + 1 + floor(log2 f), behind those that were used so often
 * before; the victim is the oldest of the lowest list, and the clock becomes its step. So the clock moves on by one
 * whenever everything as cold has gone: frequencies count half then (least frequently used with dynamic aging, Arlitt
 * et al. 1999, with logarithms). An entry shows how far the clock moved since its last use by how much nearer its step
 * is; its count is shifted right by that when it is used again, so that what was hot long ago begins anew.
 *
 * cost: GreedyDual-Size gives entry i at its use H = L + c, c being the saved cost per byte; the victim is the lowest
 * H, which becomes L. Here c is rounded to quarters of powers of two; as L only grows, entries of one list are in
 * order of H if each is put at its end when used, and the victim is the best of at most 64 heads (CAMP,
 * Ghandeharizadeh et al. 2014). H is not kept: the L of the last use is, in 16 bits. It is counted in 2^-15 of the
 * list's own c and modulo 2^16, which suffices as H >= L as long as the entry lives: L - L(use) <= c. What is left, c
 * - (L - L(use)), is what is compared, so that the size of L does not matter before it is 2^30 times the cost of what
 * lives beside it. An unknown cost (list 0) is worth nothing: those go first.
 */
#include "cache/policy/evict.h"
#include "io/random.h"
#include <assert.h>
#include <math.h>

#define N_STEPS   63
#define STEPS     ((1ull << N_STEPS) - 1)
#define AGE_UNITS 32768.0 /* parts of its cost in which an entry's clock is kept */
#define USES_MAX  UINT16_MAX
#define STEP_MOST 1000 /* quarters: 2^250, beyond any cost, and its square is far from the end of a double */

static struct evict_links *links_of(const struct evict_order *order, uint32_t entry)
{
    return order->links(order->context, entry);
}

/* ---- lists and steps --------------------------------------------------------------------------------------------- */

static unsigned list_of(int64_t step)
{
    return 1 + (unsigned)((step % N_STEPS + N_STEPS) % N_STEPS);
}

/* The step of a list that is filled, or may be: the one from base on. */
static int64_t step_of(const struct evict_order *order, unsigned list)
{
    return order->base + (int64_t)((list + N_STEPS - list_of(order->base)) % N_STEPS);
}

/* A bit per step that is filled, bit 0 being base. */
static uint64_t filled_steps(const struct evict_order *order)
{
    uint64_t lists = order->filled >> 1;
    unsigned shift = list_of(order->base) - 1;
    return (lists >> shift | lists << (N_STEPS - shift)) & STEPS;
}

/* The list for a step, moved to the nearest that lies within 63 of all that are filled. */
static unsigned claim(struct evict_order *order, int64_t step)
{
    uint64_t filled = filled_steps(order);
    if (filled == 0) {
        order->base = step;
        return list_of(step);
    }
    int64_t lowest = order->base + __builtin_ctzll(filled), highest = order->base + 63 - __builtin_clzll(filled);
    assert(highest - lowest < N_STEPS);
    if (step > lowest + N_STEPS - 1)
        step = lowest + N_STEPS - 1;
    if (step < highest - N_STEPS + 1)
        step = highest - N_STEPS + 1;
    order->base = step < lowest ? step : lowest;
    return list_of(step);
}

static void append(struct evict_order *order, uint32_t entry, unsigned list)
{
    struct evict_links *links = links_of(order, entry);
    assert(list < EVICT_LEVELS);
    links->level = (uint8_t)list;
    links->next = EVICT_NONE;
    links->prev = order->last[list];
    if (links->prev == EVICT_NONE)
        order->first[list] = entry;
    else
        links_of(order, links->prev)->next = entry;
    order->last[list] = entry;
    order->filled |= 1ull << list;
    order->n++;
}

void evict_remove(struct evict_order *order, uint32_t entry)
{
    struct evict_links *links = links_of(order, entry);
    unsigned list = links->level;
    if (list == EVICT_UNLISTED)
        return;
    assert(order->n > 0 && (order->filled >> list & 1));
    if (links->prev == EVICT_NONE)
        order->first[list] = links->next;
    else
        links_of(order, links->prev)->next = links->next;
    if (links->next == EVICT_NONE)
        order->last[list] = links->prev;
    else
        links_of(order, links->next)->prev = links->prev;
    if (order->first[list] == EVICT_NONE)
        order->filled &= ~(1ull << list);
    links->level = EVICT_UNLISTED;
    order->n--;
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* What entries of a list save per byte, rounded; 0 for the list of unknown costs. */
static double cost_of(const struct evict_order *order, unsigned list)
{
    return list == 0 ? 0 : exp2(((double)step_of(order, list) + 0.5) / 4);
}

static int64_t step_of_cost(double saved_per_byte)
{
    double step = floor(4 * log2(saved_per_byte));
    return (int64_t)(step < -STEP_MOST ? -STEP_MOST : step > STEP_MOST ? STEP_MOST : step);
}

static uint16_t clock_in_units(double clock, double cost)
{
    return (uint16_t)fmod(clock / cost * AGE_UNITS, 65536.0);
}

/* H - L of an entry: how far the clock may still go before it is the lowest. */
static double worth_left(const struct evict_order *order, const struct evict_links *links)
{
    double cost = cost_of(order, links->level);
    if (cost <= 0)
        return 0;
    return cost - (uint16_t)(clock_in_units(order->clock, cost) - links->at) * (cost / AGE_UNITS);
}

/* ---- frequency --------------------------------------------------------------------------------------------------- */

static int64_t log_of_uses(unsigned uses)
{
    return 31 - __builtin_clz(uses);
}

static void add_by_frequency(struct evict_order *order, uint32_t entry, unsigned uses)
{
    assert(uses >= 1 && uses <= USES_MAX);
    links_of(order, entry)->uses = (uint16_t)uses;
    append(order, entry, claim(order, (int64_t)order->clock + 1 + log_of_uses(uses)));
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

/* A count in 8 bits (Morris, 1978): each number up to 16, then eight steps to a power of two, each taken with the
 * probability that makes the expectation right. The last step stands for 2^33: no entry is used more often. */
#define EXACT_HITS 16u
#define HITS_MOST  232u

uint64_t evict_hits(const struct evict_links *links)
{
    if (links->hits < EXACT_HITS)
        return links->hits;
    unsigned steps = links->hits - EXACT_HITS;
    return (8ull + steps % 8) << (steps / 8 + 1);
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static void forget_lists(struct evict_order *order)
{
    order->filled = order->n = 0;
    order->base = 0;
    order->clock = 0;
    for (unsigned i = 0; i < EVICT_LEVELS; i++)
        order->first[i] = order->last[i] = EVICT_NONE;
}

void evict_init(struct evict_order *order, enum category_evict policy,
                struct evict_links *(*links)(void *context, uint32_t entry), void *context)
{
    *order = (struct evict_order){.policy = policy, .links = links, .context = context};
    forget_lists(order);
}

void evict_add(struct evict_order *order, uint32_t entry, double saved_per_byte)
{
    if (order->policy == EVICT_LFU) {
        add_by_frequency(order, entry, 1);
    } else if (order->policy == EVICT_COST) {
        unsigned list = saved_per_byte > 0 ? claim(order, step_of_cost(saved_per_byte)) : 0; /* NaN is unknown */
        if (list > 0)
            links_of(order, entry)->at = clock_in_units(order->clock, cost_of(order, list));
        append(order, entry, list);
    } else {
        append(order, entry, 0);
    }
}

void evict_used(struct evict_order *order, uint32_t entry, double saved_per_byte)
{
    struct evict_links *links = links_of(order, entry);
    struct random random = {order->random};
    if (links->hits < HITS_MOST) {
        if (links->hits < EXACT_HITS || random_below(&random, 2ull << (links->hits - EXACT_HITS) / 8) == 0)
            links->hits++;
        order->random = random.state;
    }
    if (links->level == EVICT_UNLISTED)
        return;
    unsigned uses = 0; /* that count after those of the entry have aged, and one more */
    if (order->policy == EVICT_LFU) {
        int64_t fresh = (int64_t)order->clock + 1 + log_of_uses(links->uses);
        int64_t aged = fresh - step_of(order, links->level);
        unsigned level = aged > 15 ? 0 : aged > 0 ? (unsigned)links->uses >> aged : links->uses;
        uses = level < USES_MAX ? level + 1 : USES_MAX;
    }
    evict_remove(order, entry);
    if (order->policy == EVICT_LFU)
        add_by_frequency(order, entry, uses);
    else
        evict_add(order, entry, saved_per_byte);
}

uint32_t evict_victim(const struct evict_order *order)
{
    assert((order->n == 0) == (order->filled == 0));
    if (order->n == 0)
        return EVICT_NONE;
    if (order->policy == EVICT_LRU)
        return order->first[0];
    if (order->policy == EVICT_COST) {
        uint32_t best = EVICT_NONE;
        double best_left = 0;
        if (order->filled & 1)
            return order->first[0];
        for (uint64_t rest = order->filled; rest; rest &= rest - 1) {
            uint32_t head = order->first[__builtin_ctzll(rest)];
            double left = worth_left(order, links_of(order, head));
            if (best == EVICT_NONE || left < best_left) {
                best = head;
                best_left = left;
            }
        }
        return best;
    }
    return order->first[list_of(order->base + __builtin_ctzll(filled_steps(order)))];
}

void evict_taken(struct evict_order *order, uint32_t entry)
{
    const struct evict_links *links = links_of(order, entry);
    if (links->level == EVICT_UNLISTED)
        return;
    if (order->policy == EVICT_COST) {
        double left = worth_left(order, links);
        order->clock += left > 0 ? left : 0;
    } else if (order->policy == EVICT_LFU) {
        double step = (double)step_of(order, links->level);
        order->clock = step > order->clock ? step : order->clock;
    }
}

/* Lists go one behind the other, the least worth first: of cost that leaves out how long they have been there. */
void evict_change(struct evict_order *order, enum category_evict policy)
{
    struct evict_order old = *order;
    if (policy == old.policy)
        return;
    order->policy = policy;
    forget_lists(order);
    for (unsigned i = 0; i < EVICT_LEVELS; i++) {
        unsigned list = i == 0 ? 0 : list_of(old.base + (int64_t)i - 1);
        for (uint32_t entry = old.first[list]; entry != EVICT_NONE;) {
            uint32_t next = links_of(order, entry)->next;
            evict_add(order, entry, 0);
            entry = next;
        }
    }
}
