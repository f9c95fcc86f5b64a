/* log.h - lines for the operator: level, time, lane; one write per line, so that threads do not mix. */
#ifndef QUIRE_SERVER_LOG_H
#define QUIRE_SERVER_LOG_H

#include "quire.h"
#include <stdatomic.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_VERBOSE, LOG_LEVEL_NOTICE, LOG_LEVEL_WARNING };

struct log {
    int fd;
    atomic_int level; /* enum log_level: lines below it are dropped */
    /* Gets the text of each line, in the place of fd; from any thread. NULL: nobody. */
    void (*sink)(enum log_level level, const char *text);
};

/* path "" is standard error. The file is opened for appending, mode 0640. */
int log_open(struct log *log, const char *path, enum log_level level, struct quire_error *err);
void log_close(struct log *log);
/* From any thread. */
void log_set_level(struct log *log, enum log_level level);
/* Thread-safe. A line longer than 1,000 bytes is cut and ends in "...". */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
