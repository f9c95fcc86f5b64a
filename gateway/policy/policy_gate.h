/*
 * policy_gate.h - whether a request may be looked up, by nearness or by its exact key, and its answer kept.
 */
#ifndef QUIRE_GATEWAY_POLICY_GATE_H
#define QUIRE_GATEWAY_POLICY_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct ask;
struct policy_controls;

enum policy_look {
    POLICY_BYPASS, /* passed on, as if there were no cache */
    POLICY_EXACT,  /* only the same request */
    POLICY_NEAR,   /* also one in other words */
};

struct policy_gate_options {
    double temperature_max; /* above it: bypass. Not given counts as fit: who asks a cache wants repeats */
    uint32_t turns;         /* user messages up to which nearness counts */
    bool keep_n;            /* answers with several choices are kept */
    bool near_tools;        /* there are categories where a request that offers tools may be answered by nearness */
};

struct policy_gate {
    enum policy_look look;
    bool keep;
    bool tools;         /* tools are offered: near only in a category that allows it */
    const char *reason; /* why not by nearness, or not at all: a sentence; NULL with POLICY_NEAR. Static storage */
};

/* Of what a request asks alone. */
struct policy_gate policy_gate_ask(const struct ask *ask, const struct policy_gate_options *options);

/* What the client's controls leave of that; it never becomes more. no-cache: it is not looked up but kept (the caller
 * sees controls->no_cache). */
struct policy_gate policy_gate_narrow(struct policy_gate gate, const struct policy_controls *controls);

#endif
