/*
 * quota.c - who gives up an entry.
 *
 * First the category's own limits, then those of the cache. Only what is short counts: a cache that lacks bytes takes
 * them from whoever is over its share of bytes, however few entries that are, and the other way round; if both are
 * short, being over one of them is enough, and the larger excess, as part of the cache, is compared.
 *
 * The category that asks is measured as if it had the new entry. Otherwise one whose share is the whole cache could not
 * even replace its own entries. As shares add up to at most 1, somebody is over theirs whenever the cache is full. So a
 * refusal means that the entry is larger than a limit, or that the category has nothing to give itself and all the rest
 * is pinned or guaranteed to others.
 *
 * A category of low priority without any entries still gets a foot in the door, by the rule: it takes the space of
 * others' borrowing. With its next entry it is over its share itself, has the lowest priority, and gives up its own.
 */
#include "cache/policy/quota.h"
#include "io/error.h"
#include <assert.h>

/* Shares come from percentages: their sum may be off by rounding. */
#define SHARE_SLACK 1e-9

/* Whether `more` on top of `used` passes `max`; 0 is no limit. */
static bool is_over(uint64_t used, uint64_t more, uint64_t max)
{
    return max > 0 && (more > max || used > max - more);
}

/* How far `used` is over a share of `max`, as part of max; 0 or less: it is not. */
static double excess(double used, double share, uint64_t max)
{
    return used / (double)max - share;
}

static bool gives_nothing(const struct quota_category *c)
{
    return c->empty_handed || c->used.entries == 0;
}

uint32_t quota_victim(const struct quota *quota, const struct quota_category *categories, uint32_t n, uint32_t asks,
                      uint64_t bytes, enum quota_cause *cause, bool *fits)
{
    const struct quota_category *c = &categories[asks];
    assert(asks < n);
    *fits = false;
    if (is_over(0, bytes, c->max.bytes) || is_over(0, bytes, quota->max.bytes))
        return QUOTA_NONE;
    if (is_over(c->used.bytes, bytes, c->max.bytes) || is_over(c->used.entries, 1, c->max.entries)) {
        *cause = QUOTA_OWN;
        return gives_nothing(c) ? QUOTA_NONE : asks;
    }
    if (is_over(quota->used.bytes, bytes, quota->max.bytes) || is_over(quota->used.entries, 1, quota->max.entries)) {
        *cause = QUOTA_CACHE;
        bool bytes_short = is_over(quota->used.bytes, bytes, quota->max.bytes);
        bool entries_short = is_over(quota->used.entries, 1, quota->max.entries);
        /* If nobody is over their share who could give, the one that asks replaces one of its own. */
        uint32_t victim = QUOTA_NONE, last_resort = gives_nothing(&categories[asks]) ? QUOTA_NONE : asks;
        double victim_over = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct quota_category *cat = &categories[i];
            double over = 0;
            if (gives_nothing(cat))
                continue;
            if (bytes_short) {
                double used = (double)cat->used.bytes + (i == asks ? (double)bytes : 0);
                over = excess(used, cat->min_share, quota->max.bytes);
            }
            if (entries_short) {
                double used = (double)cat->used.entries + (i == asks ? 1 : 0);
                double of_entries = excess(used, cat->min_share, quota->max.entries);
                over = of_entries > over ? of_entries : over;
            }
            if (over <= 0)
                continue;
            if (victim == QUOTA_NONE || cat->priority < categories[victim].priority ||
                (cat->priority == categories[victim].priority && over > victim_over)) {
                victim = i;
                victim_over = over;
            }
        }
        return victim == QUOTA_NONE ? last_resort : victim;
    }
    *fits = true;
    return QUOTA_NONE;
}

int quota_check_shares(const struct quota_category *categories, uint32_t n, struct quire_error *err)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += categories[i].min_share;
    if (!(sum <= 1 + SHARE_SLACK))
        return error_set(err, QUIRE_ERANGE,
                         "MINSHAREs of %u categories add up to %g %% of the cache, above 100: lower one of them", n,
                         sum * 100);
    return 0;
}
