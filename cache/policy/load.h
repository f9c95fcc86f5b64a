/*
 * load.h - how full the models are, and what that lets a category do; and the breaker for a hit rate that cannot be.
 *
 * SC.LOAD says x = 0..1 of a model, for some time. lam = clamp((x - lo) / (hi - lo)) with lo .6 and hi .9, smoothed
 * over time (5 s up, 30 s down), with hysteresis, so that a load that swings around a border does not make thresholds
 * swing. With it
 *     delta_eff = delta + lam (delta_max - delta)       ttl_eff = min(ttl_max, ttl (1 + beta lam))
 * and never beyond. Where SIM is in force, the first value of LOADMAX is the lowest similarity that full load allows:
 *     sim_eff = max(floor, sim - lam (sim - sim_min))
 * A category without LOADMAX takes no part.
 *
 * No locks: the caller's. Time is the caller's, in ms; if it goes back, nothing moves until it is there again.
 */
#ifndef QUIRE_CACHE_LOAD_H
#define QUIRE_CACHE_LOAD_H

#include "cache/policy/category.h"

#define LOAD_MODELS_MAX 64u
#define LOAD_NAME_BYTES 64u

struct load_model {
    char name[LOAD_NAME_BYTES];
    double told, lam; /* last SC.LOAD; smoothed */
    uint64_t at_ms, until_ms;
    bool relaxed; /* hysteresis */
};
struct load {
    struct load_model models[LOAD_MODELS_MAX];
    unsigned n;
};
/* QUIRE_ERANGE (x, name: 1 to 63 bytes without a 0), QUIRE_ELIMIT (models; one whose time is over makes room first).
 * ex_ms 0: a minute. */
int load_told(struct load *load, struct quire_bytes model, double x, uint64_t ex_ms, uint64_t now_ms,
              struct quire_error *err);
/* lam of a model at present, 0 where nothing is known; model empty: the highest of all. Moves the smoothing on. */
double load_lam(struct load *load, struct quire_bytes model, uint64_t now_ms);
/* The error budget in force: from RISK to the first value of LOADMAX; RISK itself where that is 0. */
double load_risk(const struct category_settings *settings, double lam);
/* The fixed threshold in force: from SIM down to the first value of LOADMAX, never below FLOOR. */
double load_sim(const struct category_settings *settings, double lam);
uint64_t load_ttl(const struct category_settings *settings, uint64_t ttl_ms, double lam);

/* A breaker looks at the last requests of a category and bypasses it for a while when its hit rate cannot be:
 *  - each one of many different questions is a hit, and all come from a few entries: a key or a vector that is always
 *    the same. A high rate alone says nothing: a cache that was filled before, or asked twice, has it too;
 *  - none is a hit where many used to be: an encoder or a key that changed.
 * Then some requests are let through to see; what lasts for hours becomes the new usual. A cache that had no hits yet,
 * and one question asked over and over, open nothing. */
enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };
enum breaker_cause { BREAKER_FEW_ANSWERS, BREAKER_NO_HITS };

/* Requests counted, and rough sets of what was asked and which entries answered. */
struct breaker_window {
    uint32_t requests, hits;
    uint64_t questions[4], answers[4];
};
struct breaker {
    struct breaker_window window;
    double usual; /* hit rate that was usual, slowly following; negative: not known */
    uint64_t open_until_ms;
    uint32_t trips, trips_in_row; /* times it opened; of these without closing in between */
    uint32_t turn;                /* of those that ask while it is half open */
    uint8_t state, cause;         /* enum breaker_state; enum breaker_cause of the last opening */
};
void load_breaker_init(struct breaker *breaker);
/* Whether a request may use the cache. */
bool load_breaker_allows(struct breaker *breaker, uint64_t now_ms);
/* After the decision on a request that was allowed: whether it was served from an entry; question: hash of what was
 * asked; answer: which entry served it (any number that is the entry's own; not looked at unless served). True when the
 * breaker has just opened. */
bool load_breaker_count(struct breaker *breaker, bool served, uint64_t question, uint64_t answer, uint64_t now_ms);

#endif
