/* flow_unread.h - bodies that are passed on unread, to the upstream that takes their model. */
#ifndef QUIRE_GATEWAY_FLOW_UNREAD_H
#define QUIRE_GATEWAY_FLOW_UNREAD_H

#include <stdbool.h>

struct settings;
struct turn;

/* Whether the settings name models: for upstreams, or to be called otherwise. Then a body's model counts. */
bool flow_unread_is_named(const struct settings *settings);
/* Passes the request on. Where the settings name models, its body is gathered until the name stands there; what has
 * been read of it stays. */
void flow_unread_begin(struct turn *turn);

#endif
