/*
 * telemetry_log.h - lines for the operator on standard error, and the access log.
 *
 * Neither ever holds a credential, nor a text of a request or answer. A line that cannot be written is lost: logging
 * never holds up the loop, and a disk that is full stops no request.
 */
#ifndef QUIRE_GATEWAY_TELEMETRY_LOG_H
#define QUIRE_GATEWAY_TELEMETRY_LOG_H

#include "quire.h"
#include <stdbool.h>
#include <stddef.h>

enum telemetry_level { TELEMETRY_DEBUG, TELEMETRY_NOTICE, TELEMETRY_WARNING, TELEMETRY_ERROR };

/* Lines below `level` are dropped from now on. The first level is TELEMETRY_NOTICE. */
void telemetry_log_level(enum telemetry_level level);
/* One line "time level text". A line longer than 2,000 bytes is cut and ends in "...". Control characters become
 * question marks. */
void telemetry_log(enum telemetry_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The access log: one JSON object per line. Path "" is none, "-" standard output; otherwise the file is opened for
 * appending, mode 0640. A second call replaces it (after SIGHUP, so that files can be rotated); on failure the log that
 * there was stays. */
int telemetry_access_open(const char *path, struct quire_error *err);
void telemetry_access_close(void);
bool telemetry_access_is_open(void);
/* Writes n bytes that end in a line end by one write(). */
void telemetry_access(const char *line, size_t n);

#endif
