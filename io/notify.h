/* notify.h - telling the service manager (systemd) how a program is: ready, alive, stopping. */
#ifndef QUIRE_IO_NOTIFY_H
#define QUIRE_IO_NOTIFY_H

#include "quire.h"

/* Sends lines such as "READY=1" to $NOTIFY_SOCKET. Without that variable nothing happens: 0. Negative: it could not be
 * sent, which is no reason to stop. */
int notify_send(const char *lines, struct quire_error *err);
/* How often the manager wants to hear "WATCHDOG=1", in us; 0: never. A quarter of WATCHDOG_USEC: one
 * that is left out, since a loop was busy, costs nothing yet. */
uint64_t notify_watchdog_us(void);

#endif
