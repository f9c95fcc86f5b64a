/*
 * log.c - the log of quire-server.
 *
 * A line is "<pid> <date> <time>.<ms> <mark> <text>", marks as Redis has them (. debug, - verbose, * notice, #
 * warning), so that the tools people have for its logs read ours. Each line is one write(2) to a descriptor opened for
 * appending: lines of lanes do not mix, nothing is buffered when the process dies, and rotation by rename and restart
 * works. What a client sent is never logged as it came: control bytes become '?'.
 *
 * The newest lines are kept in a ring of bytes, too, so that who looks at the server from afar need not have its files.
 */
#include "server/process/log.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Byte i of all that were logged is at i % LOG_TAIL_BYTES, as long as it is one of the last LOG_TAIL_BYTES. */
struct log_tail {
    pthread_mutex_t lock;
    uint64_t end;
    char bytes[LOG_TAIL_BYTES];
};

static void tail_add(struct log_tail *tail, const char *line, size_t bytes)
{
    pthread_mutex_lock(&tail->lock);
    for (size_t done = 0, part; done < bytes; done += part) {
        size_t at = (size_t)((tail->end + done) % LOG_TAIL_BYTES);
        part = bytes - done < LOG_TAIL_BYTES - at ? bytes - done : LOG_TAIL_BYTES - at;
        memcpy(tail->bytes + at, line + done, part);
    }
    tail->end += bytes;
    pthread_mutex_unlock(&tail->lock);
}

size_t log_read_tail(const struct log *log, char *out)
{
    struct log_tail *tail = log->tail;
    size_t n = 0, whole = 0;
    if (!tail)
        return 0;
    pthread_mutex_lock(&tail->lock);
    uint64_t first = tail->end > LOG_TAIL_BYTES ? tail->end - LOG_TAIL_BYTES : 0;
    for (uint64_t i = first; i < tail->end; i++)
        out[n++] = tail->bytes[i % LOG_TAIL_BYTES];
    pthread_mutex_unlock(&tail->lock);
    if (first > 0) { /* the oldest is cut, or was to its end */
        const char *cut = memchr(out, '\n', n);
        whole = cut ? (size_t)(cut + 1 - out) : n;
    }
    memmove(out, out + whole, n - whole);
    return n - whole;
}

int log_open(struct log *log, const char *path, enum log_level level, struct quire_error *err)
{
    atomic_init(&log->level, (int)level);
    log->fd = -1;
    if (!(log->tail = calloc(1, sizeof *log->tail)))
        return error_set(err, QUIRE_ENOMEM, "no memory for the tail of the log");
    pthread_mutex_init(&log->tail->lock, NULL);
    log->fd = path[0] ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640) : STDERR_FILENO;
    if (log->fd >= 0)
        return 0;
    int rc = error_set_errno(err, errno, "open the log file", path);
    log_close(log);
    return rc;
}

void log_close(struct log *log)
{
    if (log->fd >= 0 && log->fd != STDERR_FILENO)
        close(log->fd);
    log->fd = -1;
    if (log->tail)
        pthread_mutex_destroy(&log->tail->lock);
    free(log->tail);
    log->tail = NULL;
}

void log_set_level(struct log *log, enum log_level level)
{
    atomic_store(&log->level, (int)level);
}

void log_line(const struct log *log, enum log_level level, const char *format, ...)
{
    char line[1100];
    struct timespec now;
    struct tm parts;
    va_list arguments;
    if ((int)level < atomic_load_explicit(&log->level, memory_order_relaxed) || (log->fd < 0 && !log->sink))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    int head = snprintf(line, 100, "%d ", (int)getpid());
    head += (int)strftime(line + head, 64, "%d %b %Y %H:%M:%S", &parts);
    head += snprintf(line + head, 32, ".%03d %c ", (int)(now.tv_nsec / 1000000), ".-*#"[level]);
    va_start(arguments, format);
    int text = vsnprintf(line + head, 1000, format, arguments);
    va_end(arguments);
    if (text < 0)
        return;
    if (text >= 1000)
        memcpy(line + head + 996, "...", 4);
    int bytes = head + (text < 1000 ? text : 999);
    for (int i = head; i < bytes; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[bytes] = 0;
    if (log->sink) {
        log->sink(level, line + head);
        return;
    }
    line[bytes++] = '\n';
    ssize_t written = write(log->fd, line, (size_t)bytes);
    (void)written; /* a log that cannot be written must not stop the server */
    if (log->tail)
        tail_add(log->tail, line, (size_t)bytes);
}
