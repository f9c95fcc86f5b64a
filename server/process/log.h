/* log.h - lines for the operator: level, time, text; one write per line, so that threads do not mix. */
#ifndef QUIRE_SERVER_LOG_H
#define QUIRE_SERVER_LOG_H

#include "quire.h"
#include <stdatomic.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_VERBOSE, LOG_LEVEL_NOTICE, LOG_LEVEL_WARNING };

#define LOG_TAIL_BYTES 65536u /* of the newest lines, which are kept in memory */

struct log_tail;
struct log {
    int fd;
    atomic_int level; /* enum log_level: lines below it are dropped */
    /* Gets the text of each line, in the place of fd; from any thread. NULL: nobody. */
    void (*sink)(enum log_level level, const char *text);
    struct log_tail *tail; /* owned; NULL: not open */
};

/* path "" is standard error. The file is opened for appending, mode 0640. */
int log_open(struct log *log, const char *path, enum log_level level, struct quire_error *err);
void log_close(struct log *log);
/* From any thread. */
void log_set_level(struct log *log, enum log_level level);
/* Thread-safe. A line longer than 1,000 bytes is cut and ends in "...". */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The newest lines that were logged, whole, oldest first, each ending with a line break: at most LOG_TAIL_BYTES, which
 * `out` has room for. Returns their bytes. Thread-safe. */
size_t log_read_tail(const struct log *log, char *out);

#endif
