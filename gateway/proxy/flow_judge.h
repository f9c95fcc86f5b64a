/*
 * flow_judge.h - whether two answers say the same: labels for audits, so that RISK can learn (setting judge).
 */
#ifndef QUIRE_GATEWAY_FLOW_JUDGE_H
#define QUIRE_GATEWAY_FLOW_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct errand;
struct flow;
struct flow_judge;

/* NULL without memory: then audits stay for SC.AUDIT POP. */
struct flow_judge *flow_judge_create(struct flow *flow);
/* Cancels what is under way. NULL is fine. */
void flow_judge_destroy(struct flow_judge *judge);
/* What the model has cost so far. */
struct flow_judge_cost {
    uint64_t calls, uncounted; /* uncounted: of the calls, those whose answer does not say its tokens */
    uint64_t prompt_tokens, completion_tokens, us;
};
const struct flow_judge_cost *flow_judge_cost(const struct flow_judge *judge);
/* The errand's audited answer against the fresh one; both are read before it returns. */
void flow_judge_begin(struct flow_judge *judge, const struct errand *errand, const char *fresh, size_t bytes);

#endif
