/*
 * log.c - the log of quire-server.
 *
 * A line is "<pid> <date> <time>.<ms> <mark> <text>", marks as Redis has them (. debug, - verbose, * notice, #
 * warning), so that the tools people have for its logs read ours. Each line is one write(2) to a descriptor opened for
 * appending: lines of lanes do not mix, nothing is buffered when the process dies, and rotation by rename and restart
 * works. What a client sent is never logged as it came: control bytes become '?'.
 */
#include "server/process/log.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int log_open(struct log *log, const char *path, enum log_level level, struct quire_error *err)
{
    atomic_init(&log->level, (int)level);
    log->fd = STDERR_FILENO;
    if (path[0] == 0)
        return 0;
    log->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    return log->fd < 0 ? error_set_errno(err, errno, "open the log file", path) : 0;
}

void log_close(struct log *log)
{
    if (log->fd >= 0 && log->fd != STDERR_FILENO)
        close(log->fd);
    log->fd = -1;
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
}
