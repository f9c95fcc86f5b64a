/*
 * monitor.c - MONITOR.
 *
 * While nobody monitors, a command costs one relaxed load. Otherwise its line is written once, goes to the monitors of
 * its own lane at once and to those of each other lane as a message; so a monitor sees the commands of one lane in
 * their order, and those of different lanes about when they ran (the line has the time). Lines are Redis's: time,
 * database, client, arguments in quotes. Passwords show as "(redacted)", commands of administrators not at all. An
 * argument of more than 64 KiB is cut, since a line is copied for every lane.
 *
 * A monitor that does not read its lines is a client that does not read its replies: client-output-buffer-limit ends
 * it.
 */
#include "server/commands/monitor.h"
#include "server/access/command_table.h"
#include "server/commands/cmd_clients.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { ARG_SHOWN_MAX = 65536 };

struct line {
    struct message message;
    size_t bytes;
    uint8_t text[];
};

static void put_quoted(struct resp_buffer *out, const uint8_t *data, size_t bytes)
{
    static const char specials[] = "\\\\\"\"\nn\rr\tt\aa\bb";
    resp_raw(out, "\"", 1);
    for (size_t i = 0; i < bytes; i++) {
        char text[8];
        const char *found = NULL;
        for (const char *s = specials; *s && !found; s += 2)
            if (*s == (char)data[i])
                found = s;
        int n = found                               ? snprintf(text, sizeof text, "\\%c", found[1])
                : data[i] >= 0x20 && data[i] < 0x7f ? snprintf(text, sizeof text, "%c", data[i])
                                                    : snprintf(text, sizeof text, "\\x%02x", data[i]);
        resp_raw(out, text, (size_t)n);
    }
    resp_raw(out, "\"", 1);
}

static void put_line(struct resp_buffer *out, const struct client *c, unsigned row, const struct resp_arg *args,
                     uint32_t n)
{
    char head[CLIENT_ADDRESS_BYTES + 64], address[CLIENT_ADDRESS_BYTES];
    struct timeval now;
    gettimeofday(&now, NULL);
    client_address(c, false, address);
    int bytes = snprintf(head, sizeof head, "+%lld.%06ld [0 %s%s]", (long long)now.tv_sec, (long)now.tv_usec,
                         client_is_unix(c) ? "unix:" : "", address);
    resp_raw(out, head, (size_t)bytes);
    for (uint32_t i = 0; i < n; i++) {
        resp_raw(out, " ", 1);
        if (command_arg_is_secret(row, args, i)) {
            put_quoted(out, (const uint8_t *)"(redacted)", 10);
        } else if (args[i].bytes <= ARG_SHOWN_MAX) {
            put_quoted(out, args[i].data, args[i].bytes);
        } else {
            put_quoted(out, args[i].data, ARG_SHOWN_MAX);
            bytes = snprintf(head, sizeof head, "... (%u more bytes)", args[i].bytes - ARG_SHOWN_MAX);
            resp_raw(out, head, (size_t)bytes);
        }
    }
    resp_raw(out, "\r\n", 2);
}

static void push_to_monitors(struct loop *loop, const struct client *except, const void *text, size_t bytes)
{
    for (struct client *c = loop->clients; c; c = c->next)
        if (c->monitor && c != except)
            client_push(c, text, bytes);
}

static void on_line(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    struct line *line = (struct line *)(void *)message;
    push_to_monitors(loop, NULL, line->text, line->bytes);
    free(line);
}

void monitor_feed(const struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    struct server *server = c->loop->server;
    struct resp_buffer text = {.protocol = 2};
    put_line(&text, c, row, args, n);
    for (unsigned i = 0; i < server->service.n_lanes && !text.failed; i++) {
        struct loop *loop = &server->loops[i];
        if (loop == c->loop) {
            /* one that leaves gets the answer to that, and no further line */
            push_to_monitors(loop, strcmp(commands[row].name, "reset") == 0 ? c : NULL, text.data, text.bytes);
            continue;
        }
        struct line *line = atomic_load(&loop->n_monitors) ? malloc(sizeof *line + text.bytes) : NULL;
        if (!line)
            continue;
        *line = (struct line){.message.run = on_line, .bytes = text.bytes};
        memcpy(line->text, text.data, text.bytes);
        if (!loop_reach(loop, &line->message))
            free(line);
    }
    resp_buffer_fini(&text);
}

void monitor_begin(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    resp_simple(client_reply(c), "OK");
    client_set_monitor(c, true);
}
