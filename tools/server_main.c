/*
 * server_main.c - the program quire-server: arguments, signals, the pidfile.
 *
 * The main thread waits for SIGTERM, SIGINT or a client's SHUTDOWN and then stops the server; lanes and worker have all
 * signals blocked, since they are started with this thread's mask. A second signal during the stop ends the process at
 * once. Exit status: 0 after a graceful stop, 1 when the server could not start, 2 for wrong arguments and settings.
 */
#include "io/error.h"
#include "io/notify.h"
#include "server/process/config.h"
#include "server/process/log.h"
#include "server/server.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>
#ifdef QUIRE_MIMALLOC
#include <mimalloc.h>
#endif

#define FREED_MS      5   /* after which what was freed goes back to the system */
#define IGNORED_BYTES 700 /* of names in a line of the log, about */

static void print_setting(void *context, const char *name, const char *value, const char *help)
{
    (void)context;
    printf("  --%-28s %s [%s]\n", name, help, value);
}

static const struct config_page page = {
    .summary = "vector search from NVMe over the Redis protocol",
    .usage = "quire-server [CONFIG-FILE] [--setting value]...",
    .notes = "A file holds one setting per line, without the dashes: port 7000",
    .examples = "  quire-server --port 7000 --import-dir /srv/indexes\n"
                "  quire-server --port 0 --port-file /run/quire.port --load docs /srv/indexes/docs\n"
                "  redis-cli -p 7000 VLOAD docs docs-2024\n"
                "  redis-cli -p 7000 VSIM docs ELE apple WITHSCORES COUNT 5\n",
};

static void print_help(const struct config *config)
{
    printf(
        "quire-server %s: %s\n\nusage: %s\n\n%s\n\n"
        "  --%-28s this text; with --json as an object, for programs\n  --%-28s the version\n\nsettings [default]:\n",
        QUIRE_VERSION_STRING, page.summary, page.usage, page.notes, "help", "version");
    config_each(config, print_setting, NULL);
    printf("\nexamples:\n%s", page.examples);
}

/* Writes a short text to a new file, whole or not at all. */
static int write_file(const char *path, long number, struct quire_error *err)
{
    char text[32], temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return error_set(err, QUIRE_EINVALID, "path of %zu bytes is too long", strlen(path));
    FILE *file = fopen(temporary, "we");
    n = snprintf(text, sizeof text, "%ld\n", number);
    if (!file)
        return error_set_errno(err, errno, "write", path);
    bool written = fwrite(text, 1, (size_t)n, file) == (size_t)n;
    written = fclose(file) == 0 && written;
    if (written && rename(temporary, path) == 0)
        return 0;
    int rc = error_set_errno(err, errno, "write", path);
    unlink(temporary);
    return rc;
}

/* To the service manager, where there is one. */
static void tell(const struct log *log, const char *lines)
{
    struct quire_error err = {0};
    if (notify_send(lines, &err) < 0)
        log_line(log, LOG_LEVEL_WARNING, "%s", err.message);
}

static int wait_for_stop(const struct server *server, const struct log *log, int signals)
{
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = server_stop_fd(server), .events = POLLIN}};
    uint64_t watchdog_us = notify_watchdog_us();
    int timeout_ms = watchdog_us == 0 ? -1 : watchdog_us > 1000000000 ? 1000000 : (int)(watchdog_us / 1000);
    int rc;
    while ((rc = poll(fds, 2, timeout_ms)) == 0 || (rc < 0 && errno == EINTR)) {
        /* alive is not that this thread runs, but that every lane has turned since it was asked */
        if (rc == 0 && server_is_alive(server))
            tell(log, "WATCHDOG=1");
    }
    struct signalfd_siginfo info;
    if ((fds[0].revents & POLLIN) && read(signals, &info, sizeof info) == (ssize_t)sizeof info)
        log_line(log, LOG_LEVEL_NOTICE, "received signal %u", info.ssi_signo);
    return 0;
}

/* In as many lines as the names need. */
static void log_ignored(const struct config *config, const struct log *log)
{
    for (const char *at = config->ignored; *at;) {
        int bytes = (int)strnlen(at, IGNORED_BYTES);
        while (at[bytes] && at[bytes] != ' ')
            bytes++;
        log_line(log, LOG_LEVEL_WARNING, "ignored, as these settings of Redis mean nothing here: %.*s", bytes, at);
        at += bytes + (at[bytes] == ' ');
    }
}

static int serve(struct config *config, struct log *log, int signals, struct quire_error *err)
{
    struct server *server = NULL;
    sigset_t stops;
    char ready[160];
    log_ignored(config, log);
    int rc = server_create(config, log, &server, err);
    if (rc < 0)
        return rc;
    if (config->pidfile[0])
        rc = write_file(config->pidfile, (long)getpid(), err);
    if (rc == 0 && config->port_file[0])
        rc = write_file(config->port_file, (long)server_port(server), err);
    if (rc == 0) {
        log_line(log, LOG_LEVEL_NOTICE, "quire-server %s accepts connections on port %u (%s)", QUIRE_VERSION_STRING,
                 server_port(server), config->bind);
        if (config->unixsocket[0])
            log_line(log, LOG_LEVEL_NOTICE, "and on the Unix socket %s", (const char *)config->unixsocket);
        if (config->tls_port)
            log_line(log, LOG_LEVEL_NOTICE, "TLS on port %u", (unsigned)config->tls_port);
        snprintf(ready, sizeof ready, "READY=1\nSTATUS=Accepts connections on port %u\nMAINPID=%d\n",
                 server_port(server), (int)getpid());
        tell(log, ready);
        wait_for_stop(server, log, signals);
        log_line(log, LOG_LEVEL_NOTICE, "stopping");
        tell(log, "STOPPING=1\nSTATUS=Sends the replies under way\n");
        /* a second signal ends the process at once */
        sigemptyset(&stops);
        sigaddset(&stops, SIGTERM);
        sigaddset(&stops, SIGINT);
        pthread_sigmask(SIG_UNBLOCK, &stops, NULL);
    }
    server_destroy(server);
    if (config->port_file[0])
        unlink(config->port_file);
    if (config->pidfile[0])
        unlink(config->pidfile);
    log_line(log, LOG_LEVEL_NOTICE, "stopped");
    return rc;
}

/* To the most that the process may open: CONFIG SET maxclients can then use it, which is too late to raise it, since
 * io_uring keeps the limit of the moment when accepting began. */
static void raise_files_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* where this is refused the server lowers maxclients and says so */
}

/* Each lane has a heap of its own, and what one freed serves no other: so it must go back to the system soon, or lanes
 * keep, together, a multiple of what clients may take. By default mimalloc waits 25 ms, and each free in between makes
 * it wait a millisecond more: under load, for ever. At once would cost system calls for each reply of 16 KiB. What
 * MIMALLOC_... of the environment says goes before. */
static void set_up_allocator(void)
{
#if defined QUIRE_MIMALLOC && MI_MALLOC_VERSION >= 210
    mi_option_set_default(mi_option_purge_delay, FREED_MS);
#elif defined QUIRE_MIMALLOC
    mi_option_set_default(mi_option_decommit_delay, FREED_MS);
    mi_option_set_default(mi_option_decommit_extend_delay, 0);
#endif
}

int main(int argc, char **argv)
{
    struct config config;
    struct quire_error err = {0};
    struct log log = {.fd = -1};
    sigset_t stops;
    set_up_allocator();
    int rc = config_init(&config, &err);
    for (int i = 1; i < argc && rc == 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            bool json = i + 1 < argc && strcmp(argv[i + 1], "--json") == 0;
            if (!json)
                print_help(&config);
            else if ((rc = config_describe(&config, &page, stdout, &err)) < 0)
                fprintf(stderr, "quire-server: %s\n", err.message);
            config_fini(&config);
            return rc < 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("quire-server %s\n", QUIRE_VERSION_STRING);
            config_fini(&config);
            return 0;
        }
    }
    if (rc == 0)
        rc = config_parse(&config, argc - 1, argv + 1, &err);
    if (rc < 0) {
        fprintf(stderr, "quire-server: %s\n", err.message);
        config_fini(&config);
        return 2;
    }
    raise_files_limit();
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stops, NULL);
    int signals = signalfd(-1, &stops, SFD_CLOEXEC);
    rc = signals < 0 ? error_set_errno(&err, errno, "watch for", "signals")
                     : log_open(&log, config.logfile, (enum log_level)config.loglevel, &err);
    if (rc == 0)
        rc = serve(&config, &log, signals, &err);
    if (rc < 0)
        fprintf(stderr, "quire-server: %s\n", err.message);
    log_close(&log);
    if (signals >= 0)
        close(signals);
    bool refused = config.refused;
    config_fini(&config);
    return rc == 0 ? 0 : refused ? 2 : 1;
}
