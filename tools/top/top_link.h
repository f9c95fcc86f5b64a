/*
 * top_link.h - a connection to a quire-server that never blocks but for the look-up of a host's name.
 *
 *     top_link_open(&link, &err)                          connects, and sends AUTH where there is a password
 *     poll link.fd for top_link_events(&link)
 *     top_link_turn(&link, &text, &bytes, &err)           after each poll, and when deadline_ns has come
 *     top_link_ask(&link, &err)                           once the state is TOP_LINK_READY
 *
 * An error of open, ask or turn ends the connection (TOP_LINK_DOWN); open connects again.
 */
#ifndef QUIRE_TOOLS_TOP_LINK_H
#define QUIRE_TOOLS_TOP_LINK_H

#include "quire.h"
#include <netdb.h>

#define TOP_LINK_WAIT_MS 10000u /* for a connection, and for a reply */

struct top_address {
    const char *host;
    uint16_t port;
    const char *unix_path;       /* NULL: host and port */
    const char *user, *password; /* user NULL: the default one; password NULL: no AUTH */
};

enum top_link_state { TOP_LINK_DOWN, TOP_LINK_CONNECTING, TOP_LINK_READY, TOP_LINK_ASKED };

struct top_link {
    struct top_address address;
    char name[300]; /* for people: "127.0.0.1:7000" */
    enum top_link_state state;
    int fd; /* -1: none */
    struct addrinfo *found, *next;
    uint64_t deadline_ns; /* when it has taken too long */
    char *out;            /* what is to be sent */
    size_t out_bytes, out_sent, out_capacity;
    char *in;
    size_t in_bytes, in_capacity;
    bool auth_pending, name_pending; /* replies that come before INFO's */
    bool ended;                      /* the other side sends no more */
    int ended_by;                    /* a positive errno, 0: it has closed */
    char said[200];                  /* its last error */
};

enum top_link_event { TOP_LINK_NOTHING, TOP_LINK_REPLY };

void top_link_init(struct top_link *link, const struct top_address *address);
void top_link_fini(struct top_link *link);
int top_link_open(struct top_link *link, struct quire_error *err);
/* Sends INFO with the sections that top reads. */
int top_link_ask(struct top_link *link, struct quire_error *err);
/* Goes on as far as it goes. TOP_LINK_REPLY: *text is INFO's, valid until the next call. Or an error. */
int top_link_turn(struct top_link *link, const char **text, size_t *bytes, struct quire_error *err);
short top_link_events(const struct top_link *link);
void top_link_close(struct top_link *link);

#endif
