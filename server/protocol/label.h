/* label.h - names of tenants, caches and categories as INFO and /metrics show them. */
#ifndef QUIRE_SERVER_LABEL_H
#define QUIRE_SERVER_LABEL_H

#include "quire.h"

enum { LABEL_BYTES = 200 }; /* a name is cut where it is longer */

/* What is no plain character as %XX. */
void label_write(struct quire_bytes name, char text[LABEL_BYTES]);

#endif
