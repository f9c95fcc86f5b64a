/* flow_admin.h - /quire/feedback, /quire/entries/ID and /quire/invalidate: the cache's entries over HTTP. */
#ifndef QUIRE_GATEWAY_FLOW_ADMIN_H
#define QUIRE_GATEWAY_FLOW_ADMIN_H

#include <stdbool.h>

struct turn;

/* Whether who asks is no tenant: the request carries the setting admin-key, or, beside a key file, user and password of
 * the server. */
bool flow_admin_knows(struct turn *turn);
void flow_admin_begin(struct turn *turn);

#endif
