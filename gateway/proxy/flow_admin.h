/* flow_admin.h - /quire/feedback, /quire/entries/ID and /quire/invalidate: the cache's entries over HTTP. */
#ifndef QUIRE_GATEWAY_FLOW_ADMIN_H
#define QUIRE_GATEWAY_FLOW_ADMIN_H

#include <stdbool.h>

struct turn;

/* Whether the request carries the setting admin-key. */
bool flow_admin_has_key(const struct turn *turn);
void flow_admin_begin(struct turn *turn);

#endif
