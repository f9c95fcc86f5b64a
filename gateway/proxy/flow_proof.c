/*
 * flow_proof.c - GET /v1/models with the client's credential: 2xx proves it, 401 and 403 forget it, all else proves
 * nothing, and the request goes on as a miss. What the list says is not read. An upstream that gives its list to
 * everybody proves everybody; that is for who sets `prove` to know.
 */
#include "gateway/proxy/flow_proof.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PROOF_MS 5000u

/* A turn that waits. */
struct waiter {
    struct waiter *next;
    struct flow_proof *proof;
    struct turn *turn;
};

struct flow_proof {
    struct flow_proof *next;
    struct flow *flow;
    struct waiter *waiters;
    struct upstream_call *call;
    uint8_t credential[POLICY_HASH_BYTES];
    char model[FLOW_MODEL_BYTES];
    int status;
};

static void free_proof(struct flow_proof *proof)
{
    struct flow_proof **at = &proof->flow->proofs;
    assert(!proof->waiters);
    while (*at != proof)
        at = &(*at)->next;
    *at = proof->next;
    if (proof->call)
        upstream_cancel(proof->call);
    free(proof);
}

static void remove_waiter(struct waiter *waiter)
{
    struct waiter **at = &waiter->proof->waiters;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    waiter->turn->work = NULL;
    waiter->turn->gone = NULL;
    free(waiter);
}

static void on_gone(struct turn *turn)
{
    struct waiter *waiter = turn->work;
    struct flow_proof *proof = waiter->proof;
    remove_waiter(waiter);
    if (!proof->waiters)
        free_proof(proof);
}

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    (void)call;
    ((struct flow_proof *)context)->status = head->status;
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    (void)context;
    (void)call;
    (void)bytes;
    (void)n;
}

static void on_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct flow_proof *proof = context;
    struct waiter *waiters = proof->waiters;
    (void)call;
    (void)result;
    proof->call = NULL;
    flow_accepted_note(proof->flow, proof->credential, proof->model, proof->status);
    /* none of them can be reached through the proof any more: what they do now may end others */
    for (struct waiter *w = waiters; w; w = w->next) {
        w->turn->work = NULL;
        w->turn->gone = NULL;
    }
    proof->waiters = NULL;
    free_proof(proof);
    for (struct waiter *next; waiters; waiters = next) {
        struct turn *turn = waiters->turn;
        next = waiters->next;
        free(waiters);
        if (http_is_open(turn->r))
            flow_body_ready(turn);
    }
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

static struct flow_proof *find(const struct turn *turn)
{
    for (struct flow_proof *proof = turn->flow->proofs; proof; proof = proof->next)
        if (memcmp(proof->credential, turn->caller.credential, sizeof proof->credential) == 0 &&
            strcmp(proof->model, turn->model) == 0)
            return proof;
    return NULL;
}

static struct flow_proof *start(const struct turn *turn)
{
    struct flow *flow = turn->flow;
    struct flow_proof *proof = calloc(1, sizeof *proof);
    struct fields fields = {0};
    struct quire_error err;
    struct upstream_request request = {.method = "GET",
                                       .target = "/v1/models",
                                       .fields = &fields,
                                       .model = *turn->model ? turn->model : NULL,
                                       .body_whole = true,
                                       .total_timeout_ms = PROOF_MS};
    if (!proof)
        return NULL;
    if (flow_body_fields(turn, &fields)) {
        fields_drop(&fields, "Content-Type");
        proof->call = upstream_start(flow->upstreams, &request, &events, proof, &err);
    }
    fields_fini(&fields);
    if (!proof->call) {
        free(proof);
        return NULL;
    }
    proof->flow = flow;
    memcpy(proof->credential, turn->caller.credential, sizeof proof->credential);
    memcpy(proof->model, turn->model, sizeof proof->model);
    proof->next = flow->proofs;
    flow->proofs = proof;
    return proof;
}

void flow_proof_begin(struct turn *turn)
{
    struct waiter *waiter = calloc(1, sizeof *waiter);
    struct flow_proof *proof = waiter ? find(turn) : NULL;
    assert(!turn->proved && !turn->work);
    turn->proved = true;
    policy_control_fini(&turn->controls); /* they are read again */
    policy_control_init(&turn->controls);
    if (!proof && waiter)
        proof = start(turn);
    if (!proof) {
        free(waiter);
        flow_body_ready(turn);
        return;
    }
    *waiter = (struct waiter){proof->waiters, proof, turn};
    proof->waiters = waiter;
    turn->work = waiter;
    turn->gone = on_gone;
}
