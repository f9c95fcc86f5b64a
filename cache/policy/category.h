/*
 * category.h - the settings of a category, from one table (category.def): parsed, checked, shown, logged.
 *
 * A row of the table has a word of SC.CAT.SET, its kind, limits and default; it feeds parsing, SC.CAT.GET, the log and
 * the documentation. Settings are logged and saved as the words that would make them.
 */
#ifndef QUIRE_CACHE_CATEGORY_H
#define QUIRE_CACHE_CATEGORY_H

#include "cache/guard/text.h"

enum category_mode { CATEGORY_OFF, CATEGORY_EXACT, CATEGORY_SEMANTIC, CATEGORY_BOTH };
enum category_evict { EVICT_LRU, EVICT_LFU, EVICT_COST };
enum category_admit { ADMIT_ALWAYS, ADMIT_SECOND };

#define CATEGORY_SCOPE_KEYS_MAX  8u
#define CATEGORY_SCOPE_KEY_BYTES 64u

struct category_settings {
    enum category_mode mode;             /* BOTH */
    double sim;                          /* fixed threshold; 0: RISK is in force */
    double risk;                         /* wrong answers per request; 0: SIM is in force. Default: RISK 0.02 */
    double audit;                        /* share of would-be hits; 0: chosen by the rule */
    double floor, ceil;                  /* of the effective threshold; 0.5, 1.0 */
    uint64_t ttl_ms, ttl_max_ms;         /* one day; 0: no limit for TTLMAX */
    double jitter_pct;                   /* TTLs are shortened by up to this at random; 10 */
    uint64_t stale_ms;                   /* served as stale for so long after its end; 0 */
    uint64_t stale_error_ms;             /* the same where the model has failed; 0 */
    uint64_t lease_ms;                   /* time that a leader has; 30,000 */
    uint64_t quota_bytes, quota_entries; /* 0: those of the cache */
    double min_share_pct;                /* of the cache, guaranteed; 0 */
    unsigned priority;                   /* 0..100; 50 */
    enum category_evict evict;
    enum category_admit admit;
    unsigned guards;      /* bits of guard.h; all */
    double load_risk_max; /* budget (or with SIM, the lowest threshold: see load.h) under full load; 0: no adaptation */
    double load_ttl_factor; /* TTL grows to ttl * (1 + factor * load) */
    bool sliding;           /* a hit extends its entry's time to live by its TTL, up to TTLMAX */
    unsigned n_scope_keys;  /* that a request must carry */
    char scope_keys[CATEGORY_SCOPE_KEYS_MAX][CATEGORY_SCOPE_KEY_BYTES];
};

/* For how long an entry is kept after its end. */
static inline uint64_t category_kept_ms(const struct category_settings *settings)
{
    return settings->stale_ms > settings->stale_error_ms ? settings->stale_ms : settings->stale_error_ms;
}

void category_defaults(struct category_settings *settings);
/* Applies n words, such as SIM 0.9 TTL 60000 GUARD number date: all or, with an error that names word, value, limits
 * and remedy, none. Settings that are not named stay. Words of settings and their choices may be of either case.
 *
 * GUARD and REQUIRESCOPE take words up to the next one that names a setting, and replace what was there; `none`
 * empties them, so that a forgotten word does not. A scope key that has the name of a setting, or is "none", cannot be
 * required. SIM ends RISK and the other way round; both at once are an error. As LOADMAX means a share under RISK and
 * a similarity under SIM, a change from one to the other must give it anew where it is not 0.
 *
 * What contradicts is an error: FLOOR above CEIL, SIM outside of them, TTL above TTLMAX, a LOADMAX that is stricter
 * than RISK or SIM, a setting given twice. MINSHAREs of several categories are the cache's to check (quota.h).
 * QUIRE_EINVALID, QUIRE_ERANGE, QUIRE_ELIMIT (scope keys). */
int category_apply(struct category_settings *settings, const struct quire_bytes *words, uint32_t n,
                   struct quire_error *err);
/* Calls emit for every setting: its word, lower case as SC.CAT.GET shows it, and its value as text that category_apply
 * takes; words of lists are separated by blanks. Of SIM and RISK the one that is in force. */
void category_each(const struct category_settings *settings,
                   void (*emit)(void *context, const char *word, const char *value), void *context);
/* All settings as one line of words, for the log, ended by a 0; returns its length, below CATEGORY_TEXT_BYTES. parse is
 * its inverse, to the last bit of each number; what the text does not name gets its default. */
#define CATEGORY_TEXT_BYTES 2048u
uint32_t category_print(const struct category_settings *settings, char text[CATEGORY_TEXT_BYTES]);
/* The words of such a line, at most `max`; they point into it. */
int category_words(struct quire_bytes text, struct quire_bytes *words, uint32_t max, uint32_t *n,
                   struct quire_error *err);
int category_parse(struct category_settings *settings, struct quire_bytes text, struct quire_error *err);

#endif
