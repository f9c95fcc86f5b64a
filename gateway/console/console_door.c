/*
 * console_door.c - who may come in: Host and Origin, and the credential that is passed on to the server.
 *
 * A page of another site that a browser on this machine has open can send requests here. What it cannot do is choose
 * the Host field of a name that it made point here (DNS rebinding), nor hide its Origin.
 */
#include "gateway/console/console_priv.h"
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int refuse(struct console_refusal *out, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(struct console_refusal *out, int status, const char *code, const char *format, ...)
{
    va_list list;
    *out = (struct console_refusal){.status = status, .code = code};
    va_start(list, format);
    vsnprintf(out->message, sizeof out->message, format, list);
    va_end(list);
    return status;
}

/* "name:80" -> 4, "[::1]:80" -> 5: the bytes of the host. */
static size_t host_bytes(const char *text)
{
    const char *bracket = *text == '[' ? strchr(text, ']') : NULL;
    return bracket ? (size_t)(bracket - text) + 1 : strcspn(text, ":");
}

static bool is_address_of_loopback(const char *host, size_t n)
{
    char text[64];
    struct in_addr address;
    if (n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = 0;
    return strcasecmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0 ||
           (inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static bool is_host(const char *host, size_t n, const char *other)
{
    return host_bytes(other) == n && strncasecmp(host, other, n) == 0;
}

static bool is_listed(const char *host, size_t n, const struct settings *s)
{
    for (uint32_t i = 0; i < s->ui_hosts.n; i++) {
        if (is_host(host, n, s->ui_hosts.items[i]))
            return true;
    }
    for (uint32_t i = 0; i < s->listen.n; i++) {
        if (is_host(host, n, s->listen.items[i]))
            return true;
    }
    return is_host(host, n, s->metrics_listen);
}

int console_door_host(const struct http_request *r, const struct settings *settings, struct console_refusal *out)
{
    const char *host = http_field(r, "Host"), *origin = http_field(r, "Origin");
    char shown[100];
    size_t n = host ? host_bytes(host) : 0;
    if (n == 0 || !(is_address_of_loopback(host, n) || is_listed(host, n, settings))) {
        fields_printable(shown, sizeof shown, host ? host : "");
        return refuse(out, 403, "host",
                      "Host is '%s', which is no address of this machine: add the name to the setting ui-hosts", shown);
    }
    const char *slashes = origin ? strstr(origin, "://") : NULL;
    if (origin && !(slashes && strcasecmp(slashes + 3, host) == 0)) {
        fields_printable(shown, sizeof shown, origin);
        return refuse(out, 403, "origin", "a page of '%s' may not ask here: open /ui of this address itself", shown);
    }
    return 0;
}

bool console_door_is_local(const struct http_request *r)
{
    static const char *const forwarded[] = {"Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"};
    const char *peer = http_peer(r);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
        if (http_field(r, forwarded[i]))
            return false; /* a proxy of this machine speaks for somebody else */
    }
    return strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0 || strncmp(peer, "[::ffff:127.", 12) == 0 ||
           strcmp(peer, "unix") == 0;
}

int console_door_credential(const struct http_request *r, struct sc_credential *out, struct console_refusal *why)
{
    const char *field = http_field(r, "Authorization");
    *out = (struct sc_credential){.user = "default"};
    if (!field && console_door_is_local(r))
        return 0;
    if (!field)
        return refuse(why, 401, "unauthorized",
                      "a user and password of the server are needed (Authorization: Basic, or Bearer user:password)");
    return sc_credential_read(field, out)
               ? 0
               : refuse(why, 401, "unauthorized",
                        "the field Authorization is neither Basic nor Bearer with user:password, or longer than 1 KiB");
}
