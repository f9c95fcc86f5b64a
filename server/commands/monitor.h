/* monitor.h - MONITOR: a line to every monitoring client for each command, on whatever lane. */
#ifndef QUIRE_SERVER_MONITOR_H
#define QUIRE_SERVER_MONITOR_H

#include "server/commands/command.h"

/* Tells the monitors of a command that is about to run. Called only while there are monitors. */
void monitor_feed(const struct client *c, unsigned row, const struct resp_arg *args, uint32_t n);

#endif
