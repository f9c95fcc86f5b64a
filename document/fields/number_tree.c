/*
 * number_tree.c - numbers by document, and documents by number.
 *
 * A page's item is the bits of the number, exclusive or NONE, so that the zeroes of a fresh page are no number's: NONE
 * is a NaN, and no NaN is ever put in. A document with several numbers has another NaN there, SEVERAL with its first
 * slot in the lower 32 bits.
 *
 * The order of ids in the sorted blocks is that of their numbers, which are looked up in the pages; so the number of a
 * dead id stays in its page until the id has left the blocks (number_purge), and a page is cut down only after that.
 */
#include "document/fields/number_tree.h"
#include <math.h>

#define NONE         UINT64_C(0x7FF8000000000001)
#define SEVERAL      UINT64_C(0xFFF8000100000000)
#define PURGE_BLOCKS 4u    /* sorted blocks of one slice */
#define PURGE_PAGES  2048u /* pages of one slice */

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static double number_from(uint64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static bool is_several(uint64_t bits)
{
    return (bits & UINT64_C(0xFFFFFFFF00000000)) == SEVERAL;
}

/* What the page says of an id; NONE: nothing. */
static uint64_t item_of(const struct doc_pages *pages, uint32_t id)
{
    const uint64_t *item = doc_pages_at(pages, id);
    return item ? *item ^ NONE : NONE;
}

static double number_in_order(const struct number_order *order, uint32_t item)
{
    if (item == NUMBER_PROBE)
        return order->probe;
    return order->slots ? order->slots[item].number : number_from(item_of(order->pages, item));
}

bool number_is_before(const void *context, uint32_t a, uint32_t b)
{
    const struct number_order *order = context;
    double x = number_in_order(order, a), y = number_in_order(order, b);
    if (x < y || x > y)
        return x < y;
    if (a == NUMBER_PROBE || b == NUMBER_PROBE)
        return (a == NUMBER_PROBE) != order->probe_behind;
    return a < b;
}

void number_init(struct number_tree *tree)
{
    *tree = (struct number_tree){.pages = {.item_bytes = sizeof(uint64_t)}, .first_free = NUMBER_NO_SLOT};
}

void number_fini(struct number_tree *tree)
{
    doc_pages_fini(&tree->pages);
    number_sorted_fini(&tree->singles);
    number_sorted_fini(&tree->several);
    free(tree->slots);
    number_init(tree);
}

uint64_t number_bytes(const struct number_tree *tree)
{
    return doc_pages_bytes(&tree->pages) + number_sorted_bytes(&tree->singles) + number_sorted_bytes(&tree->several) +
           tree->slots_capacity * (uint64_t)sizeof *tree->slots;
}

uint64_t number_count(const struct number_tree *tree)
{
    return tree->singles.n + tree->several.n;
}

static struct number_order order_of(const struct number_tree *tree, bool several)
{
    return (struct number_order){.pages = &tree->pages, .slots = several ? tree->slots : NULL};
}

/* ---- putting in, forgetting -------------------------------------------------------------------------------------- */

static void free_slot(struct number_tree *tree, uint32_t slot)
{
    tree->slots[slot].next = tree->first_free;
    tree->first_free = slot;
}

/* A slot in the blocks; NUMBER_NO_SLOT without memory. */
static uint32_t add_slot(struct number_tree *tree, uint32_t id, double number)
{
    uint32_t slot = tree->first_free;
    if (slot != NUMBER_NO_SLOT) {
        tree->first_free = tree->slots[slot].next;
    } else {
        if (tree->n_slots == NUMBER_PROBE - 1 ||
            !array_reserve(&tree->slots, &tree->slots_capacity, (size_t)tree->n_slots + 1))
            return NUMBER_NO_SLOT;
        slot = tree->n_slots++;
    }
    tree->slots[slot] = (struct number_slot){.number = number, .id = id, .next = NUMBER_NO_SLOT};
    struct number_order order = order_of(tree, true);
    if (number_sorted_insert(&tree->several, &order, slot))
        return slot;
    free_slot(tree, slot);
    return NUMBER_NO_SLOT;
}

bool number_add(struct number_tree *tree, uint32_t id, const double *numbers, uint32_t n)
{
    uint64_t *item = doc_pages_make(&tree->pages, id);
    struct number_order order = order_of(tree, false);
    assert(n > 0 && id != NUMBER_PROBE);
    if (!item)
        return false;
    assert(*item == 0);
    if (n == 1) {
        *item = bits_of(numbers[0]) ^ NONE;
        bool put = number_sorted_insert(&tree->singles, &order, id);
        if (!put)
            *item = 0;
        return put;
    }
    uint32_t last = NUMBER_NO_SLOT;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = add_slot(tree, id, numbers[i]);
        if (slot == NUMBER_NO_SLOT) {
            if (i > 0)
                number_remove(tree, id);
            return false;
        }
        if (i == 0)
            *item = (SEVERAL | slot) ^ NONE;
        else
            tree->slots[last].next = slot;
        last = slot;
    }
    return true;
}

void number_remove(struct number_tree *tree, uint32_t id)
{
    uint64_t *item = doc_pages_at(&tree->pages, id), bits = item_of(&tree->pages, id);
    struct number_order order = order_of(tree, is_several(bits));
    bool was_there = true;
    if (bits == NONE)
        return;
    if (!is_several(bits)) {
        was_there = number_sorted_remove(&tree->singles, &order, id);
    } else {
        for (uint32_t slot = (uint32_t)bits, next; slot != NUMBER_NO_SLOT; slot = next) {
            next = tree->slots[slot].next;
            was_there = number_sorted_remove(&tree->several, &order, slot) && was_there;
            free_slot(tree, slot);
        }
    }
    assert(was_there);
    (void)was_there;
    *item = 0;
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

/* Where the range begins and ends in the sorted blocks. */
static void range_places(const struct number_tree *tree, const struct number_range *range, bool several,
                         struct sorted_place *first, struct sorted_place *end)
{
    const struct number_sorted *sorted = several ? &tree->several : &tree->singles;
    struct number_order order = order_of(tree, several);
    order.probe = range->low;
    order.probe_behind = range->low_open;
    *first = number_sorted_lower_bound(sorted, &order, NUMBER_PROBE);
    order.probe = range->high;
    order.probe_behind = !range->high_open;
    *end = number_sorted_lower_bound(sorted, &order, NUMBER_PROBE);
    if (end->block < first->block || (end->block == first->block && end->index < first->index))
        *end = *first; /* low above high: nothing */
}

/* Items of block `block` that lie between two places. */
static uint32_t items_between(const struct number_sorted *sorted, uint32_t block, const struct sorted_place *first,
                              const struct sorted_place *end, const uint32_t **items)
{
    uint32_t from = block == first->block ? first->index : 0;
    uint32_t to = block == end->block ? end->index : sorted->blocks[block]->n;
    *items = &sorted->blocks[block]->items[from];
    return to - from;
}

static bool is_empty_range(const struct number_range *range)
{
    return !(range->low <= range->high); /* NaN as well */
}

uint64_t number_range_count(const struct number_tree *tree, const struct number_range *range)
{
    uint64_t n = 0;
    for (uint32_t several = 0; several < 2 && !is_empty_range(range); several++) {
        const struct number_sorted *sorted = several ? &tree->several : &tree->singles;
        struct sorted_place first, end;
        const uint32_t *items;
        range_places(tree, range, several, &first, &end);
        for (uint32_t block = first.block; block <= end.block && block < sorted->n_blocks; block++)
            n += items_between(sorted, block, &first, &end, &items);
    }
    return n;
}

bool number_range_gather(const struct number_tree *tree, const struct number_range *range, struct doc_gather *gather)
{
    for (uint32_t several = 0; several < 2 && !is_empty_range(range); several++) {
        const struct number_sorted *sorted = several ? &tree->several : &tree->singles;
        struct sorted_place first, end;
        range_places(tree, range, several, &first, &end);
        for (uint32_t block = first.block; block <= end.block && block < sorted->n_blocks; block++) {
            const uint32_t *items;
            uint32_t n = items_between(sorted, block, &first, &end, &items);
            if (!doc_gather_reserve(gather, n))
                return false;
            for (uint32_t i = 0; i < n; i++)
                doc_gather_put(gather, several ? tree->slots[items[i]].id : items[i]);
        }
    }
    return true;
}

bool number_range_has(const struct number_tree *tree, const struct number_range *range, uint32_t id)
{
    uint64_t bits = item_of(&tree->pages, id);
    if (bits == NONE)
        return false;
    if (!is_several(bits))
        return number_in_range(number_from(bits), range);
    for (uint32_t slot = (uint32_t)bits; slot != NUMBER_NO_SLOT; slot = tree->slots[slot].next)
        if (number_in_range(tree->slots[slot].number, range))
            return true;
    return false;
}

bool number_at(const struct number_tree *tree, uint32_t id, uint32_t i, double *number)
{
    uint64_t bits = item_of(&tree->pages, id);
    if (bits == NONE || (!is_several(bits) && i > 0))
        return false;
    if (!is_several(bits)) {
        *number = number_from(bits);
        return true;
    }
    uint32_t slot = (uint32_t)bits;
    for (; i > 0 && slot != NUMBER_NO_SLOT; i--)
        slot = tree->slots[slot].next;
    if (slot == NUMBER_NO_SLOT)
        return false;
    *number = tree->slots[slot].number;
    return true;
}

bool number_of(const struct number_tree *tree, uint32_t id, double *number)
{
    return number_at(tree, id, 0, number);
}

/* ---- purging ----------------------------------------------------------------------------------------------------- */

/* Takes dead items out of one block; whether the block is still there. */
static bool purge_block(struct number_tree *tree, bool several, uint32_t at, const struct doc_set *kept, uint32_t end)
{
    struct number_sorted *sorted = several ? &tree->several : &tree->singles;
    struct number_sorted_block *block = sorted->blocks[at];
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n; i++) {
        uint32_t item = block->items[i], id = several ? tree->slots[item].id : item;
        if (id >= end || doc_set_has(kept, id))
            block->items[n++] = item;
        else if (several)
            free_slot(tree, item);
    }
    sorted->n -= block->n - n;
    block->n = n;
    /* what is left may go to the block before, which this purge has gone through */
    struct number_sorted_block *before = at > 0 ? sorted->blocks[at - 1] : NULL;
    if (before && before->n + n <= SORTED_BLOCK) {
        memcpy(&before->items[before->n], block->items, n * sizeof *block->items);
        before->n += n;
        block->n = 0;
    }
    if (block->n > 0)
        return true;
    free(block);
    sorted->n_blocks--;
    memmove(&sorted->blocks[at], &sorted->blocks[at + 1], (sorted->n_blocks - at) * sizeof(void *));
    return false;
}

/* *at: twice the number of the next block, plus 1 for those of documents with several numbers; then PAGES and the
 * number of the next page. Blocks that are split meanwhile are gone through again; only the last can vanish, or one
 * that the purge has come to. */
#define PAGES (UINT64_C(1) << 33)
bool number_purge(struct number_tree *tree, const struct doc_set *kept, uint32_t end, uint64_t *at)
{
    for (uint32_t n = 0; *at < PAGES && n < PURGE_BLOCKS; n++) {
        bool several = *at & 1;
        uint32_t block = (uint32_t)(*at >> 1);
        if (block >= (several ? tree->several.n_blocks : tree->singles.n_blocks)) {
            *at = several ? PAGES : 1;
            continue;
        }
        if (purge_block(tree, several, block, kept, end))
            *at += 2;
    }
    if (*at < PAGES)
        return false;
    uint32_t page = (uint32_t)(*at - PAGES);
    doc_pages_purge(&tree->pages, page, PURGE_PAGES, kept, end);
    *at += PURGE_PAGES;
    return page + (uint64_t)PURGE_PAGES >= tree->pages.n_pages;
}
