/*
 * cmd_cluster.c - CLUSTER, READONLY, WAIT: a cluster of one node that has all slots and no replica.
 *
 * So clients that are made for clusters find a server to talk to. The node is where the asking client has connected to.
 */
#include "server/commands/cmd_clients.h"
#include "server/net/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16384 };

/* CRC-16/XMODEM, which the specification of Redis Cluster names. */
static unsigned crc16(const uint8_t *bytes, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
    }
    return crc;
}

/* Where a key has {...} that is not empty, only what is between decides. */
static unsigned slot_of(struct resp_arg key)
{
    const uint8_t *open = key.bytes ? memchr(key.data, '{', key.bytes) : NULL;
    const uint8_t *end = key.data + key.bytes, *close = open ? memchr(open, '}', (size_t)(end - open)) : NULL;
    if (close && close > open + 1)
        return crc16(open + 1, (size_t)(close - open - 1)) % SLOTS;
    return crc16(key.data, key.bytes) % SLOTS;
}

void cmd_cluster_keyslot(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    resp_integer(caller_reply(caller), slot_of(args[2]));
}

static const char *node_id(const struct caller *caller)
{
    return client_of((struct caller *)(uintptr_t)caller)->loop->server->run_id;
}

/* Host and port, in text; the port's number. */
static unsigned node_address(const struct caller *caller, char host[CLIENT_ADDRESS_BYTES])
{
    const struct client *c = client_of((struct caller *)(uintptr_t)caller);
    client_address(c, true, host);
    if (client_is_unix(c)) { /* no host is the one that the client has connected to */
        *host = 0;
        return c->loop->server->port;
    }
    char *colon = strrchr(host, ':');
    unsigned port = (unsigned)strtoul(colon + 1, NULL, 10);
    *colon = 0;
    if (*host == '[') {
        memmove(host, host + 1, strlen(host));
        host[strlen(host) - 1] = 0;
    }
    return port;
}

void cmd_cluster_myid(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_text(caller_reply(caller), node_id(caller));
}

void cmd_cluster_info(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    static const char text[] = "cluster_enabled:0\r\ncluster_state:ok\r\ncluster_slots_assigned:16384\r\n"
                               "cluster_slots_ok:16384\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n"
                               "cluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:0\r\n"
                               "cluster_my_epoch:0\r\n";
    (void)args;
    (void)n;
    resp_verbatim(caller_reply(caller), text, sizeof text - 1);
}

void cmd_cluster_nodes(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    char host[CLIENT_ADDRESS_BYTES], line[CLIENT_ADDRESS_BYTES + 160];
    unsigned port = node_address(caller, host);
    int bytes = snprintf(line, sizeof line, "%s %s:%u@0 myself,master - 0 0 0 connected 0-%d\n", node_id(caller), host,
                         port, SLOTS - 1);
    (void)args;
    (void)n;
    resp_verbatim(caller_reply(caller), line, (size_t)bytes);
}

void cmd_cluster_slots(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    char host[CLIENT_ADDRESS_BYTES];
    unsigned port = node_address(caller, host);
    struct resp_buffer *out = caller_reply(caller);
    (void)args;
    (void)n;
    resp_array(out, 1);
    resp_array(out, 3);
    resp_integer(out, 0);
    resp_integer(out, SLOTS - 1);
    resp_array(out, 4);
    resp_text(out, host);
    resp_integer(out, port);
    resp_text(out, node_id(caller));
    resp_array(out, 0);
}

void cmd_cluster_shards(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    char host[CLIENT_ADDRESS_BYTES];
    unsigned port = node_address(caller, host);
    struct resp_buffer *out = caller_reply(caller);
    const char *const texts[][2] = {
        {"id", node_id(caller)}, {"ip", host}, {"endpoint", host}, {"role", "master"}, {"health", "online"}};
    (void)args;
    (void)n;
    resp_array(out, 1);
    resp_map(out, 2);
    resp_text(out, "slots");
    resp_array(out, 2);
    resp_integer(out, 0);
    resp_integer(out, SLOTS - 1);
    resp_text(out, "nodes");
    resp_array(out, 1);
    resp_map(out, 2 + sizeof texts / sizeof *texts);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        resp_text(out, texts[i][0]);
        resp_text(out, texts[i][1]);
    }
    resp_field(out, "port", port);
    resp_field(out, "replication-offset", 0);
}

void cmd_readonly(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    resp_simple(caller_reply(caller), "OK");
}

void cmd_wait(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    long long replicas, timeout_ms;
    (void)n;
    if (!arg_integer(args[1], &replicas) || replicas < 0)
        caller_error(caller, "ERR value is not an integer or out of range");
    else if (!arg_integer(args[2], &timeout_ms))
        caller_error(caller, "ERR timeout is not an integer or out of range");
    else if (timeout_ms < 0)
        caller_error(caller, "ERR timeout is negative");
    else
        resp_integer(caller_reply(caller), 0);
}
