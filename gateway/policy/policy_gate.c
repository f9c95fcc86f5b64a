/*
 * policy_gate.c - the gates, one row each, the first that a request runs into is the reason that it gets.
 *
 * Temperature: a cache for temperature 0 alone would be useless, since most requests leave it out, which means 1; and
 * who points a base URL at a cache wants repeats. It is part of the key, so answers of different temperatures never
 * mix.
 */
#include "gateway/policy/policy_gate.h"
#include "gateway/policy/policy_control.h"
#include "gateway/text/ask.h"
#include <math.h>

struct row {
    uint32_t features;
    uint32_t kinds; /* bits of enum ask_kind; 0: all */
    enum policy_look look;
    bool keep;
    const char *reason;
};

static const struct row rows[] = {
    {ASK_BUILT_IN, 0, POLICY_BYPASS, false, "tools that the upstream runs (a search of the web) are asked each time"},
    {ASK_BACKGROUND, 0, POLICY_BYPASS, false, "background: the answer comes later, by another request"},
    {ASK_PREVIOUS, 0, POLICY_BYPASS, false,
     "it depends on state that the upstream keeps (previous response, conversation)"},
    {ASK_STORES, 1u << ASK_RESPONSES, POLICY_BYPASS, false,
     "the upstream is to store the response: with store: false it can be answered from the cache"},
    {ASK_N, 0, POLICY_EXACT, false, "n > 1: several answers to one question (setting keep-n)"},
    {ASK_BEST_OF, 0, POLICY_EXACT, true, "best_of: exact only"},
    {ASK_LOGPROBS | ASK_PROMPT_LOGPROBS, 0, POLICY_EXACT, true,
     "logprobs belong to the words as they were: exact only"},
    {ASK_ECHO, 0, POLICY_EXACT, true, "echo repeats the question: exact only"},
    {ASK_AUDIO, 0, POLICY_EXACT, true, "audio: exact only"},
    {ASK_SEED, 0, POLICY_EXACT, true, "a seed is given: exact only"},
    {ASK_LAST_TOOL, 0, POLICY_EXACT, true, "the last message is a tool's: exact only"},
    {ASK_LAST_ASSISTANT, 0, POLICY_EXACT, true, "the last message is the assistant's: exact only"},
    {ASK_TOOLS, 0, POLICY_EXACT, true, "tools are offered: exact only"},
    {ASK_PARTS, 0, POLICY_EXACT, true, "images, files or audio: exact only"},
    {ASK_PREDICTION, 0, POLICY_EXACT, true, "prediction: exact only"},
    {ASK_FORMAT, 0, POLICY_EXACT, true, "response_format other than text: exact only"},
    {ASK_SUFFIX, 0, POLICY_EXACT, true, "a suffix is given: exact only"},
    {0, 1u << ASK_EMBEDDINGS, POLICY_EXACT, true, "embeddings: exact only"},
    {0, 1u << ASK_RESPONSES, POLICY_EXACT, true, "responses: exact only"},
    {0, 1u << ASK_MESSAGES, POLICY_EXACT, true, "messages: exact only"},
};

static struct policy_gate bypass(const char *reason)
{
    return (struct policy_gate){.look = POLICY_BYPASS, .reason = reason};
}

static struct policy_gate exact(struct policy_gate gate, const char *reason)
{
    gate.look = POLICY_EXACT;
    gate.reason = reason;
    return gate;
}

struct policy_gate policy_gate_ask(const struct ask *ask, const struct policy_gate_options *options)
{
    struct policy_gate gate = {POLICY_NEAR, true, false, NULL};
    if (ask->odd)
        return bypass(ask->odd);
    if (!isnan(ask->temperature) && ask->temperature > options->temperature_max)
        return bypass("the temperature is above the setting temperature-max");
    /* bypass wins over exact, and an answer is kept only if all rows agree */
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->kinds && !(row->kinds >> ask->kind & 1))
            continue;
        if (row->features && !(ask->features & row->features))
            continue;
        if (row->features == ASK_TOOLS && options->near_tools) {
            gate.tools = true;
            continue;
        }
        if (!gate.reason) {
            gate.look = row->look;
            gate.reason = row->reason;
        }
        gate.keep = gate.keep && (row->keep || (row->features == ASK_N && options->keep_n));
    }
    if (gate.look == POLICY_NEAR && ask->user_turns > options->turns)
        gate = exact(gate, "more user messages than the setting turns: exact only");
    if (gate.look == POLICY_NEAR && !ask->question.data)
        gate = exact(gate, "no text of a user at its end: exact only");
    return gate;
}

struct policy_gate policy_gate_narrow(struct policy_gate gate, const struct policy_controls *controls)
{
    if (gate.look == POLICY_BYPASS)
        return gate;
    if (controls->off)
        return bypass("X-Quire-Control: off");
    if (controls->no_store)
        return bypass("the request says no-store");
    if (gate.look == POLICY_NEAR && controls->exact)
        return exact(gate, "the request says exact");
    if (gate.look == POLICY_NEAR && controls->key[0])
        return exact(gate, "X-Quire-Key: exact only");
    return gate;
}
