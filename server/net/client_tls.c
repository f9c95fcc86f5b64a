/*
 * client_tls.c - a connection whose bytes are TLS: the two places where client.c hands bytes over, and the end.
 *
 * In: what the engine received is decrypted piece by piece, and each piece goes the way that bytes of a plain
 * connection go; so limits on what a client may have sent ahead count plain bytes, and pausing works as it does there.
 *
 * Out: replies that would be the next send are first exchanged into `plain`, from which a part at a time is encrypted
 * into `send_buffer`, always only when the send before it is done. So at most a part exists twice, whatever the size
 * of a reply, and limits on unread replies hold.
 *
 * A connection that fails (no TLS, no certificate, a forged record) sends the alert that says why, and ends. Failures
 * are logged with the address, one a second and lane, and all are counted: who knocks in a loop must not fill the disk.
 */
#include "server/net/client.h"
#include <stdlib.h>

enum { PLAIN_BYTES = 16384, PART_BYTES = 131072, HANDSHAKE_MS = 10000, KEEP_BYTES = 16384 };

bool client_tls_begin(struct client *c)
{
    struct lane_stats *stats = &c->loop->lane.stats;
    c->tls = tls_accept(c->loop->server->tls, &c->replies);
    if (!c->tls)
        return false;
    lane_stat_add(&stats->tls_connections, 1);
    lane_stat_add(&stats->tls_clients, 1);
    return true;
}

void client_tls_end(struct client *c)
{
    if (!c->tls)
        return;
    tls_free(c->tls);
    resp_buffer_fini(&c->plain);
    lane_stat_set(&c->loop->lane.stats.tls_clients, lane_stat_get(&c->loop->lane.stats.tls_clients) - 1);
}

static void complain(struct client *c, const char *reason)
{
    struct loop *loop = c->loop;
    char address[CLIENT_ADDRESS_BYTES];
    lane_stat_add(&loop->lane.stats.tls_failures, 1);
    if (loop->lane.now_ms - loop->last_tls_complaint_ms < 1000) {
        loop->tls_complaints_kept_back++;
        return;
    }
    client_address(c, false, address);
    log_line(loop->server->service.log, LOG_LEVEL_WARNING,
             "TLS connection from %s failed: %s (%u more were not logged)", address, reason,
             loop->tls_complaints_kept_back);
    loop->last_tls_complaint_ms = loop->lane.now_ms;
    loop->tls_complaints_kept_back = 0;
}

void client_tls_received(struct client *c, const uint8_t *bytes, size_t n)
{
    uint8_t plain[PLAIN_BYTES];
    long got = TLS_MORE;
    tls_feed(c->tls, bytes, n);
    while (c->state == CLIENT_OPEN && (got = tls_read(c->tls, plain, sizeof plain)) > 0)
        client_take_bytes(c, plain, (size_t)got);
    if (got == TLS_FAILED && c->state == CLIENT_OPEN) {
        complain(c, tls_reason(c->tls));
        client_end(c);
    } else if (got == TLS_ENDED) {
        client_set_eof(c);
    }
    if (tls_has_output(c->tls))
        client_mark(c);
}

void client_tls_next_send_buffer(struct client *c)
{
    if (c->send_buffer.capacity > KEEP_BYTES)
        resp_buffer_fini(&c->send_buffer);
    c->send_buffer.bytes = c->send_buffer_sent = 0;
    if (tls_is_ready(c->tls)) {
        if (c->plain_sent == c->plain.bytes) {
            struct resp_buffer used = c->plain;
            if (used.capacity > KEEP_BYTES)
                resp_buffer_fini(&used);
            used.bytes = 0;
            c->plain = c->out;
            c->plain_sent = 0;
            c->send_buffer_lsn = c->out_lsn; /* for all parts: the first waits, the others find it durable */
            c->out_lsn = 0;
            c->out = used;
        }
        size_t left = c->plain.bytes - c->plain_sent, part = left < PART_BYTES ? left : PART_BYTES;
        if (part > 0 && !tls_write(c->tls, c->plain.data + c->plain_sent, part)) {
            client_kill(c);
            return;
        }
        c->plain_sent += part;
    }
    if (tls_has_output(c->tls))
        tls_take_output(c->tls, &c->send_buffer);
}

bool client_tls_said_goodbye(struct client *c)
{
    if (!c->tls || c->goodbye)
        return true;
    c->goodbye = true;
    tls_end(c->tls);
    if (!tls_has_output(c->tls))
        return true;
    client_mark(c);
    return false;
}

bool client_tls_is_late(const struct client *c)
{
    return c->tls && c->state == CLIENT_OPEN && !tls_is_ready(c->tls) &&
           c->loop->lane.now_ms - c->created_ms >= HANDSHAKE_MS;
}
