/*
 * flow_proof.h - whether an upstream accepts a credential, found out before the cache answers it (setting prove).
 */
#ifndef QUIRE_GATEWAY_FLOW_PROOF_H
#define QUIRE_GATEWAY_FLOW_PROOF_H

struct turn;

/* Asks the upstream for its models with the turn's credential; then flow_body_ready, whatever came. Turns of the same
 * credential and model wait for one call. */
void flow_proof_begin(struct turn *turn);

#endif
