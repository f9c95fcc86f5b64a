/*
 * telemetry_log.c - one write() per line, so that several processes may share a file and lines do not mix.
 *
 * There is one of each per process, as there is one standard error: this is the gateway's only global state.
 */
#include "gateway/telemetry/telemetry_log.h"
#include "io/error.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2000

static enum telemetry_level shown = TELEMETRY_NOTICE;
static int access_fd = -1;

void telemetry_log_level(enum telemetry_level level)
{
    shown = level;
}

/* What cannot be written is lost: who watches the log finds that out, no request waits for it. */
static void write_line(int fd, const char *line, size_t n)
{
    ssize_t written = write(fd, line, n);
    (void)written;
}

void telemetry_log(enum telemetry_level level, const char *format, ...)
{
    static const char *const names[] = {"debug", "notice", "warning", "error"};
    char line[LINE_BYTES + 8];
    struct timespec now;
    struct tm tm;
    if (level < shown)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, LINE_BYTES - n, ".%03ldZ %s ", now.tv_nsec / 1000000, names[level]);
    va_list list;
    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was started above */
    int wanted = vsnprintf(line + n, LINE_BYTES - n, format, list);
    va_end(list);
    if (wanted < 0)
        return;
    size_t end = n + (size_t)wanted;
    if (end >= LINE_BYTES) {
        end = LINE_BYTES - 1;
        memcpy(line + end - 3, "...", 3);
    }
    for (size_t i = n; i < end; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    }
    line[end] = '\n';
    write_line(STDERR_FILENO, line, end + 1);
}

int telemetry_access_open(const char *path, struct quire_error *err)
{
    int fd = -1;
    if (strcmp(path, "-") == 0)
        fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    else if (*path)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    if (*path && fd < 0)
        return error_set_errno(err, errno, "open the access log", path);
    telemetry_access_close();
    access_fd = fd;
    return 0;
}

void telemetry_access_close(void)
{
    if (access_fd >= 0)
        close(access_fd);
    access_fd = -1;
}

bool telemetry_access_is_open(void)
{
    return access_fd >= 0;
}

void telemetry_access(const char *line, size_t n)
{
    if (access_fd >= 0)
        write_line(access_fd, line, n);
}
