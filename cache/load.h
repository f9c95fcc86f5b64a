/*
 * load.h - how full the models are, and what that lets a category do; and the breaker for a hit rate that cannot be.
 *
 * SC.LOAD says x = 0..1 of a model, for some time. lam = clamp((x - lo) / (hi - lo)) with lo .6 and hi .9, smoothed
 * over time, with hysteresis, so that a load that swings around a border does not make thresholds swing. With it
 *     delta_eff = delta + lam (delta_max - delta)       ttl_eff = min(ttl_max, ttl (1 + beta lam))
 * and never beyond. A category without LOADMAX takes no part.
 *
 * No locks: the caller's. Time is the caller's, in ms.
 */
#ifndef QUIRE_CACHE_LOAD_H
#define QUIRE_CACHE_LOAD_H

#include "cache/category.h"

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
/* QUIRE_ERANGE (x, name), QUIRE_ELIMIT (models; those that are over make room first). ex_ms 0: a minute. */
int load_told(struct load *load, struct quire_bytes model, double x, uint64_t ex_ms, uint64_t now_ms,
              struct quire_error *err);
/* lam of a model at present, 0 where nothing is known; model empty: the highest of all. Moves the smoothing on. */
double load_lam(struct load *load, struct quire_bytes model, uint64_t now_ms);
double load_risk(const struct category_settings *settings, double lam); /* the error budget in force */
double load_sim(const struct category_settings *settings,
                double lam); /* the static threshold in force, never below floor */
uint64_t load_ttl(const struct category_settings *settings, uint64_t ttl_ms, double lam);

/* A breaker looks at the last requests of a category: when nearly all or none of many are hits, against what was usual,
 * something is wrong (a key that is always the same, an encoder that changed) and the category is bypassed for a while;
 * then some requests are let through to see. */
struct breaker {
    uint64_t window_begin_ms, open_until_ms;
    uint32_t requests, hits; /* of the window */
    double usual;            /* hit rate that was usual, slowly following; negative: not known */
    uint32_t distinct;       /* rough count of different questions in the window */
    uint64_t distinct_bits[4];
    uint8_t state; /* enum breaker_state */
    uint32_t trips;
};
enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };
void breaker_init(struct breaker *breaker);
/* Whether a request may use the cache. */
bool breaker_allows(struct breaker *breaker, uint64_t now_ms);
/* After the decision: whether it was served from an entry; question: hash of what was asked. True when the breaker has
 * just opened. */
bool breaker_count(struct breaker *breaker, bool served, uint64_t question, uint64_t now_ms);
/* Why it is open: "hit rate 1.00 over 412 different questions, usual 0.31". */
void breaker_explain(const struct breaker *breaker, char text[128]);

#endif
