/*
 * load.c - the load of models, smoothed; and the breaker.
 *
 * Load. What SC.LOAD said goes through lam = clamp((x - lo) / (hi - lo)) into a first-order low pass: it follows within
 * seconds when load rises, since a model in trouble needs relief, and slowly when it falls, since the relief is part of
 * why it falls; quick both ways, the two would chase each other. Adaptation begins a bit above lo only (LOAD_ON) and
 * ends below lo, so that a load of .60 +- noise does nothing. What was told is over at its deadline; from there on the
 * load counts as 0 and lam falls as it does otherwise. The state is a function of what was told and of time, not of how
 * often it was asked: exponentials over the time that passed.
 *
 * Breaker. Requests are counted in windows. A high hit rate alone is no sign of anything wrong: whoever fills a cache
 * and asks the same again has 1.0. What cannot be is that many different questions all have the same few answers: a
 * vector that is always the same, a hash of nothing. Different questions and answers are counted by 256 bits each
 * (linear counting, Whang et al. 1990), good to some per cent up to a window's size. No hits at all are suspicious only
 * where the usual rate makes that a matter of less than one in a million: (1 - usual)^n < 1e-6.
 *
 * Once open, everything is bypassed for 10 s, twice as long each time in a row up to 5 minutes. Then every tenth
 * request is let through until 50 have been seen: if they look as before it opens again. The usual rate is moved on by
 * every window, those too, so that a real change of traffic is accepted after some hours.
 */
#include "cache/policy/load.h"
#include "io/error.h"
#include "io/random.h"
#include <assert.h>
#include <math.h>

#define LOAD_LO    0.6  /* below it a model has room for bursts: queueing time is about x / (1 - x) */
#define LOAD_HI    0.9  /* above it queueing time explodes: everything that is allowed is used */
#define LOAD_ON    0.65 /* where adaptation begins; it ends below LOAD_LO */
#define LOAD_UP_MS 5000.0
#define LOAD_DOWN  30000.0
#define LOAD_EX_MS 60000u
#define LOAD_CLOSE 1e-4 /* nearer than this to where it goes, lam is there: no threshold shows the difference */

/* ---- load -------------------------------------------------------------------------------------------------------- */

static double clamped(double x)
{
    return x > 0 ? x < 1 ? x : 1 : 0; /* NaN: 0 */
}

/* Lets lam go to target for some time. */
static void approach(struct load_model *model, double target, uint64_t ms)
{
    double time = target > model->lam ? LOAD_UP_MS : LOAD_DOWN;
    if (ms == 0 || target == model->lam)
        return;
    model->lam += (target - model->lam) * -expm1(-(double)ms / time);
    if (fabs(target - model->lam) < LOAD_CLOSE)
        model->lam = target;
}

static void advance(struct load_model *model, uint64_t now_ms)
{
    if (now_ms <= model->at_ms)
        return;
    double target = model->relaxed ? clamped((model->told - LOAD_LO) / (LOAD_HI - LOAD_LO)) : 0;
    if (model->at_ms < model->until_ms) {
        uint64_t end = now_ms < model->until_ms ? now_ms : model->until_ms;
        approach(model, target, end - model->at_ms);
        model->at_ms = end;
    }
    if (now_ms >= model->until_ms) {
        model->relaxed = false;
        approach(model, 0, now_ms - model->at_ms);
        model->at_ms = now_ms;
    }
}

static struct load_model *find_model(struct load *load, struct quire_bytes name)
{
    for (unsigned i = 0; i < load->n; i++)
        if (text_equal(text_of(load->models[i].name), name))
            return &load->models[i];
    return NULL;
}

/* A place for a model: a new one, or that of the one whose time is over and whose load has faded most. */
static struct load_model *make_place(struct load *load, uint64_t now_ms)
{
    struct load_model *best = NULL;
    if (load->n < LOAD_MODELS_MAX)
        return &load->models[load->n++];
    for (unsigned i = 0; i < load->n; i++) {
        struct load_model *model = &load->models[i];
        advance(model, now_ms);
        if (now_ms >= model->until_ms && (!best || model->lam < best->lam))
            best = model;
    }
    return best;
}

int load_told(struct load *load, struct quire_bytes name, double x, uint64_t ex_ms, uint64_t now_ms,
              struct quire_error *err)
{
    if (name.n_bytes == 0 || name.n_bytes >= LOAD_NAME_BYTES || memchr(name.data, 0, name.n_bytes))
        return error_set(err, QUIRE_ERANGE, "a model's name of %zu bytes: 1 to %u, without a byte 0", name.n_bytes,
                         LOAD_NAME_BYTES - 1);
    if (!(x >= 0 && x <= 1))
        return error_set(err, QUIRE_ERANGE, "load %g is out of range: 0 (idle) to 1 (full), no percentage", x);
    struct load_model *model = find_model(load, name);
    if (!model) {
        model = make_place(load, now_ms);
        if (!model)
            return error_set(err, QUIRE_ELIMIT,
                             "loads of %u models are in force, the most there can be: let some end first",
                             LOAD_MODELS_MAX);
        *model = (struct load_model){.at_ms = now_ms};
        memcpy(model->name, name.data, name.n_bytes);
    }
    advance(model, now_ms);
    ex_ms = ex_ms ? ex_ms : LOAD_EX_MS;
    model->told = x;
    model->until_ms = now_ms < UINT64_MAX - ex_ms ? now_ms + ex_ms : UINT64_MAX;
    model->relaxed = x >= (model->relaxed ? LOAD_LO : LOAD_ON);
    return 0;
}

double load_lam(struct load *load, struct quire_bytes name, uint64_t now_ms)
{
    double highest = 0;
    if (name.n_bytes > 0) {
        struct load_model *model = find_model(load, name);
        if (model)
            advance(model, now_ms);
        return model ? model->lam : 0;
    }
    for (unsigned i = 0; i < load->n; i++) {
        advance(&load->models[i], now_ms);
        highest = load->models[i].lam > highest ? load->models[i].lam : highest;
    }
    return highest;
}

double load_risk(const struct category_settings *settings, double lam)
{
    double from = settings->risk, to = settings->load_risk_max;
    if (settings->sim > 0 || to <= from)
        return from;
    double risk = from + clamped(lam) * (to - from);
    return risk < to ? risk : to;
}

double load_sim(const struct category_settings *settings, double lam)
{
    double sim = settings->sim, to = settings->load_risk_max;
    if (to > 0 && to < sim) {
        sim -= clamped(lam) * (sim - to);
        sim = sim > to ? sim : to;
    }
    return sim > settings->floor ? sim : settings->floor;
}

uint64_t load_ttl(const struct category_settings *settings, uint64_t ttl_ms, double lam)
{
    uint64_t most = settings->ttl_max_ms ? settings->ttl_max_ms : UINT64_MAX;
    double more = (double)ttl_ms * settings->load_ttl_factor * clamped(lam);
    if (ttl_ms >= most || more >= (double)(most - ttl_ms))
        return most;
    return ttl_ms + (uint64_t)more;
}

/* ---- breaker ----------------------------------------------------------------------------------------------------- */

#define WINDOW           500u /* requests: nearly twice what USUAL_LEAST needs for CHANCE, and soon over */
#define ENOUGH           200u /* requests before every one being a hit means anything */
#define ENOUGH_QUESTIONS 50u  /* different ones: fewer are a few popular questions */
#define PER_ANSWER       25u  /* different questions per entry that answers: one topic does not have so many wordings */
#define USUAL_LEAST      0.05 /* a rate below is too near to none for none to be news */
#define CHANCE           1e-6
#define USUAL_WEIGHT     0.1 /* of a new window */
#define OPEN_MS          10000u
#define OPEN_MS_MOST     300000u
#define LET_THROUGH      10u /* one in so many while half open */
#define TRIAL            50u /* requests that decide then */
#define TRIAL_QUESTIONS  20u

void load_breaker_init(struct breaker *breaker)
{
    *breaker = (struct breaker){.usual = -1};
}

static void mark(uint64_t bits[4], uint64_t hash)
{
    uint64_t bit = random_mix(hash) >> 56;
    bits[bit / 64] |= 1ull << bit % 64;
}

/* About how many different hashes were marked by n calls. */
static uint32_t marked(const uint64_t bits[4], uint32_t n)
{
    int set = 0;
    for (unsigned i = 0; i < 4; i++)
        set += __builtin_popcountll(bits[i]);
    long about = lround(-256 * log((set < 256 ? 256 - set : 0.5) / 256.0));
    return about < n ? (uint32_t)about : n;
}

static bool few_answers(const struct breaker_window *w, uint32_t questions_least)
{
    if (w->hits < w->requests)
        return false;
    uint32_t questions = marked(w->questions, w->requests);
    return questions >= questions_least && marked(w->answers, w->hits) * PER_ANSWER <= questions;
}

/* Lets the rate of the window count for what is usual. */
static void learn_usual(struct breaker *breaker)
{
    assert(breaker->window.requests > 0 && breaker->window.hits <= breaker->window.requests);
    double rate = (double)breaker->window.hits / breaker->window.requests;
    if (breaker->usual < 0)
        breaker->usual = rate;
    else
        breaker->usual += USUAL_WEIGHT * (rate - breaker->usual);
}

static void open_breaker(struct breaker *breaker, enum breaker_cause cause, uint64_t now_ms)
{
    uint64_t ms = OPEN_MS;
    for (uint32_t i = 0; i < breaker->trips_in_row && ms < OPEN_MS_MOST; i++)
        ms *= 2;
    assert(breaker->state != BREAKER_OPEN && breaker->window.requests > 0);
    breaker->trips++;
    breaker->trips_in_row++;
    breaker->state = BREAKER_OPEN;
    breaker->cause = (uint8_t)cause;
    breaker->open_until_ms = now_ms + (ms < OPEN_MS_MOST ? ms : OPEN_MS_MOST);
    breaker->window = (struct breaker_window){0};
}

bool load_breaker_allows(struct breaker *breaker, uint64_t now_ms)
{
    if (breaker->state == BREAKER_OPEN && now_ms >= breaker->open_until_ms) {
        breaker->state = BREAKER_HALF_OPEN;
        breaker->turn = 0;
    }
    if (breaker->state == BREAKER_HALF_OPEN)
        return breaker->turn++ % LET_THROUGH == 0;
    return breaker->state == BREAKER_CLOSED;
}

/* What the requests that were let through say. */
static bool end_trial(struct breaker *breaker, uint64_t now_ms)
{
    const struct breaker_window *w = &breaker->window;
    assert(breaker->state == BREAKER_HALF_OPEN && breaker->trips > 0);
    bool same = breaker->cause == BREAKER_NO_HITS ? w->hits == 0 && breaker->usual >= USUAL_LEAST
                                                  : few_answers(w, TRIAL_QUESTIONS);
    learn_usual(breaker);
    if (same) {
        open_breaker(breaker, breaker->cause, now_ms);
    } else {
        breaker->state = BREAKER_CLOSED;
        breaker->trips_in_row = 0;
        breaker->window = (struct breaker_window){0};
    }
    return same;
}

bool load_breaker_count(struct breaker *breaker, bool served, uint64_t question, uint64_t answer, uint64_t now_ms)
{
    struct breaker_window *w = &breaker->window;
    if (breaker->state == BREAKER_OPEN) /* allowed before it opened */
        return false;
    w->requests++;
    w->hits += served;
    mark(w->questions, question);
    if (served)
        mark(w->answers, answer);
    if (breaker->state == BREAKER_HALF_OPEN)
        return w->requests >= TRIAL && end_trial(breaker, now_ms);
    if (w->hits == 0 && breaker->usual >= USUAL_LEAST && w->requests * log1p(-breaker->usual) < log(CHANCE)) {
        open_breaker(breaker, BREAKER_NO_HITS, now_ms);
        return true;
    }
    if (w->requests >= ENOUGH && few_answers(w, ENOUGH_QUESTIONS)) {
        open_breaker(breaker, BREAKER_FEW_ANSWERS, now_ms);
        return true;
    }
    if (w->requests >= WINDOW) {
        learn_usual(breaker);
        *w = (struct breaker_window){0};
    }
    return false;
}
