/*
 * gateway_main.c - the program quire-gateway: arguments, signals, the loop.
 *
 * SIGHUP reads the settings again; a file that cannot be taken leaves the old ones in force. SIGTERM and SIGINT stop:
 * requests that run may end, at most for stop-timeout; a second one ends the process at once. Exit status: 0 after a
 * stop, 1 when the gateway could not start, 2 for wrong arguments and settings.
 *
 * systemd hears when it is ready, that its loop turns (WatchdogSec), and that it stops.
 */
#include "gateway/proxy/proxy.h"
#include "gateway/settings/settings.h"
#include "gateway/telemetry/telemetry_log.h"
#include "io/error.h"
#include "io/notify.h"
#include <curl/curl.h>
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ASSIGNED_MAX 256

struct gateway {
    struct event_base *base;
    struct settings *settings; /* until the proxy has them */
    struct proxy *proxy;
    const char *file;
    char *assigned[ASSIGNED_MAX]; /* "name=value" of the command line */
    uint32_t n_assigned;
    bool stopping, shows_url;
    struct event *watchdog; /* NULL: nobody wants to hear it */
};

static const char summary[] = "an OpenAI-compatible endpoint in front of model servers, with a semantic cache";
static const char usage[] = "quire-gateway [--settings FILE] [--NAME VALUE]... [--set NAME=VALUE]...";
static const char examples[] =
    "  quire-gateway --upstream http://127.0.0.1:8000\n"
    "  quire-gateway --upstream https://api.openai.com/v1 --server unix:/run/quire/quire.sock\n"
    "  quire-gateway --console --open --server 127.0.0.1:6379\n"
    "  quire-gateway --settings /etc/quire/gateway.json --listen 0.0.0.0:8080 --set log-level=warning\n"
    "  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 your-program\n";

/* What is not a setting. */
static const struct {
    const char *name, *unit, *help;
} words[] = {
    {"settings", "FILE", "a JSON object of settings; read again at SIGHUP"},
    {"upstream", "URL", "a model server; may be given several times"},
    {"set", "NAME=VALUE", "any setting below; also --NAME VALUE and --NAME=VALUE"},
    {"console", "", "the page at /ui, also without an upstream: --ui yes and the setting console"},
    {"open", "", "print the address of the page"},
    {"check-settings", "", "say whether the settings can be taken, and end"},
    {"print-settings", "", "show all of them as JSON, without secrets, and end"},
    {"help", "", "this text; with --json as an object, for programs"},
    {"version", "", "the version"},
};
#define N_WORDS (sizeof words / sizeof *words)

static void print_help(void)
{
    char left[64];
    printf("quire-gateway %s: %s\n\nusage: %s\n\n", QUIRE_VERSION_STRING, summary, usage);
    for (size_t i = 0; i < N_WORDS; i++) {
        snprintf(left, sizeof left, "--%s %s", words[i].name, words[i].unit);
        printf("  %-18s %s\n", left, words[i].help);
    }
    settings_print_help(stdout);
    printf("\nexamples:\n%s", examples);
}

/* --help --json. Returns the exit status. */
static int describe(void)
{
    json_t *options = json_array(), *settings = settings_describe();
    for (size_t i = 0; i < N_WORDS; i++)
        json_array_append_new(options, json_pack("{s:s, s:s, s:s, s:s, s:b}", "name", words[i].name, "kind",
                                                 *words[i].unit ? "text" : "flag", "unit", words[i].unit, "help",
                                                 words[i].help, "repeatable", strcmp(words[i].name, "upstream") == 0));
    json_t *whole =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:s}", "program", "quire-gateway", "version", QUIRE_VERSION_STRING,
                  "summary", summary, "usage", usage, "options", options, "settings", settings, "examples", examples);
    bool ok = whole && json_dumpf(whole, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;
    json_decref(whole);
    return !ok;
}

static int add_assigned(struct gateway *g, const char *name, size_t bytes, const char *value, struct quire_error *err)
{
    size_t n = bytes + strlen(value) + 2;
    char *text = g->n_assigned < ASSIGNED_MAX ? malloc(n) : NULL;
    if (!text)
        return error_set(err, QUIRE_ELIMIT, "more than %d settings on the command line", ASSIGNED_MAX);
    snprintf(text, n, "%.*s=%s", (int)bytes, name, value);
    g->assigned[g->n_assigned++] = text;
    return 0;
}

/* The words without a value that are settings. False: it is none of them. */
static bool read_word(struct gateway *g, const char *word, int *rc, struct quire_error *err)
{
    if (strcmp(word, "--open") == 0) {
        g->shows_url = true;
        return true;
    }
    if (strcmp(word, "--console") != 0)
        return false;
    *rc = add_assigned(g, "console", 7, "true", err);
    if (*rc == 0)
        *rc = add_assigned(g, "ui", 2, "yes", err);
    return true;
}

enum what { RUN, CHECK, PRINT, HELP, VERSION, DESCRIBE };

static int read_arguments(struct gateway *g, int argc, char **argv, enum what *what, struct quire_error *err)
{
    static const char *const ends[] = {"--check-settings", "--print-settings", "--help", "--version"};
    int rc = 0;
    for (int i = 1; i < argc && rc == 0; i++) {
        const char *name = argv[i], *equals = strchr(name, '=');
        bool is_word = strcmp(name, "-h") == 0;
        if (is_word)
            *what = HELP;
        if (*what == HELP && strcmp(name, "--json") == 0) {
            *what = DESCRIBE;
            continue;
        }
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            if (strcmp(name, ends[k]) == 0) {
                *what = (enum what)(CHECK + k);
                is_word = true;
            }
        }
        if (is_word || read_word(g, name, &rc, err))
            continue;
        if (strncmp(name, "--", 2) != 0 || name[2] == 0)
            return error_set(err, QUIRE_EINVALID, "%s: not an option; quire-gateway --help lists them", name);
        if (equals) {
            rc = add_assigned(g, name + 2, (size_t)(equals - name - 2), equals + 1, err);
            continue;
        }
        if (i + 1 == argc)
            return error_set(err, QUIRE_EINVALID, "%s: a value is missing behind it", name);
        const char *value = argv[++i];
        if (strcmp(name, "--settings") == 0)
            g->file = value;
        else if (strcmp(name, "--set") == 0) {
            equals = strchr(value, '=');
            rc = equals ? add_assigned(g, value, (size_t)(equals - value), equals + 1, err)
                        : error_set(err, QUIRE_EINVALID, "--set %s: not name=value", value);
        } else
            rc = add_assigned(g, name + 2, strlen(name + 2), value, err);
    }
    return rc;
}

static int read_settings(const struct gateway *g, struct settings **out, struct quire_error *err)
{
    return settings_read(g->file, (const char *const *)g->assigned, g->n_assigned, out, err);
}

/* ---- systemd ---- */

static void notify(const char *lines)
{
    struct quire_error err = {0};
    if (notify_send(lines, &err) < 0)
        telemetry_log(TELEMETRY_WARNING, "%s", err.message);
}

static void on_watchdog(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
    notify("WATCHDOG=1");
}

static int begin_watchdog(struct gateway *g, struct quire_error *err)
{
    uint64_t us = notify_watchdog_us();
    struct timeval pause = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    if (us == 0)
        return 0;
    g->watchdog = event_new(g->base, -1, EV_PERSIST, on_watchdog, g);
    return g->watchdog && event_add(g->watchdog, &pause) == 0 ? 0
                                                              : error_set(err, QUIRE_ENOMEM, "no memory for a timer");
}

/* ---- signals ---- */

static void on_hangup(evutil_socket_t signal_number, short what, void *context)
{
    struct gateway *g = context;
    struct settings *settings = NULL;
    struct quire_error err = {0};
    (void)signal_number;
    (void)what;
    int rc = read_settings(g, &settings, &err);
    if (rc == 0 && (rc = proxy_reload(g->proxy, settings, &err)) < 0)
        settings_destroy(settings);
    if (rc < 0)
        telemetry_log(TELEMETRY_ERROR, "the settings stay as they were: %s", err.message);
    else
        telemetry_log(TELEMETRY_NOTICE, "settings read again");
}

static void on_drained(void *context)
{
    struct gateway *g = context;
    event_base_loopexit(g->base, NULL);
}

static void on_stop_signal(evutil_socket_t signal_number, short what, void *context)
{
    struct gateway *g = context;
    (void)what;
    if (g->stopping) {
        telemetry_log(TELEMETRY_WARNING, "received signal %d again: ends at once", (int)signal_number);
        event_base_loopbreak(g->base);
        return;
    }
    g->stopping = true;
    notify("STOPPING=1");
    telemetry_log(TELEMETRY_NOTICE, "received signal %d: requests under way may end", (int)signal_number);
    proxy_stop(g->proxy, on_drained, g);
}

/* ---- running ---- */

/* The port in a file, whole or not at all: who waits for the file must not read half a number. */
static int write_port(const char *path, unsigned port, struct quire_error *err)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return error_set(err, QUIRE_EINVALID, "port-file: a path of %zu bytes is too long", strlen(path));
    FILE *file = fopen(temporary, "we");
    if (!file)
        return error_set_errno(err, errno, "write port-file", path);
    bool written = fprintf(file, "%u\n", port) > 0;
    written = fclose(file) == 0 && written;
    if (written && rename(temporary, path) == 0)
        return 0;
    int rc = error_set_errno(err, errno, "write port-file", path);
    unlink(temporary);
    return rc;
}

static struct event_base *make_base(void)
{
    struct event_config *config = event_config_new();
    if (!config)
        return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static void print_url(const struct gateway *g)
{
    char url[300];
    proxy_console_url(g->proxy, url, sizeof url);
    printf("%s\n", url);
    fflush(stdout);
}

static int run(struct gateway *g, struct quire_error *err)
{
    const int stops[] = {SIGTERM, SIGINT};
    struct event *signals[3] = {NULL};
    char port_file[4096];
    snprintf(port_file, sizeof port_file, "%s", g->settings->port_file);
    int rc = (g->base = make_base()) ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the loop");
    if (rc == 0)
        rc = proxy_create(g->base, g->settings, &g->proxy, err);
    if (rc == 0) {
        g->settings = NULL; /* they are the proxy's */
        rc = proxy_listen(g->proxy, err);
    }
    for (size_t i = 0; i < 3 && rc == 0; i++) {
        signals[i] =
            i < 2 ? evsignal_new(g->base, stops[i], on_stop_signal, g) : evsignal_new(g->base, SIGHUP, on_hangup, g);
        if (!signals[i] || evsignal_add(signals[i], NULL) < 0)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for signals");
    }
    if (rc == 0 && *port_file)
        rc = write_port(port_file, proxy_port(g->proxy), err);
    if (rc == 0)
        rc = begin_watchdog(g, err);
    if (rc == 0 && g->shows_url)
        print_url(g);
    if (rc == 0) {
        notify("READY=1");
        telemetry_log(TELEMETRY_NOTICE, "quire-gateway %s accepts connections on port %u", QUIRE_VERSION_STRING,
                      proxy_port(g->proxy));
        event_base_dispatch(g->base);
        telemetry_log(TELEMETRY_NOTICE, "stopped");
        if (*port_file)
            unlink(port_file);
    }
    for (size_t i = 0; i < 3; i++) {
        if (signals[i])
            event_free(signals[i]);
    }
    if (g->watchdog)
        event_free(g->watchdog);
    proxy_destroy(g->proxy);
    if (g->base)
        event_base_free(g->base);
    return rc;
}

static void raise_files_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* where this is refused, accepting says so when it runs out */
}

int main(int argc, char **argv)
{
    struct gateway g = {0};
    struct quire_error err = {0};
    enum what what = RUN;
    int rc = read_arguments(&g, argc, argv, &what, &err), status = 0;
    if (rc == 0 && what == HELP)
        print_help();
    else if (rc == 0 && what == DESCRIBE)
        status = describe();
    else if (rc == 0 && what == VERSION)
        printf("quire-gateway %s\n", QUIRE_VERSION_STRING);
    else if (rc == 0)
        rc = read_settings(&g, &g.settings, &err);
    if (rc == 0 && what == RUN && g.shows_url && g.settings->ui == SETTINGS_UI_NO)
        rc = error_set(&err, QUIRE_EINVALID, "--open: there is no page: set --ui read or --ui yes, or --console");
    if (rc < 0)
        status = 2;
    else if (what == CHECK)
        printf("the settings can be taken\n");
    else if (what == PRINT)
        rc = settings_print(g.settings, stdout, &err);
    else if (what == RUN) {
        signal(SIGPIPE, SIG_IGN);
        raise_files_limit();
        curl_global_init(CURL_GLOBAL_DEFAULT);
        rc = run(&g, &err);
        curl_global_cleanup();
    }
    if (rc < 0)
        fprintf(stderr, "quire-gateway: %s\n", err.message);
    settings_destroy(g.settings);
    for (uint32_t i = 0; i < g.n_assigned; i++)
        free(g.assigned[i]);
    return status ? status : rc < 0 ? 1 : 0;
}
