/* flow_models.h - GET /v1/models: asked of the upstream, and kept for a minute per credential. */
#ifndef QUIRE_GATEWAY_FLOW_MODELS_H
#define QUIRE_GATEWAY_FLOW_MODELS_H

struct flow;
struct flow_models;
struct turn;

struct flow_models *flow_models_create(struct flow *flow); /* NULL without memory */
void flow_models_destroy(struct flow_models *models);      /* NULL is fine */
void flow_models_begin(struct turn *turn);

#endif
