/*
 * client_acl.c - what the table of users means for connections.
 *
 * A client keeps a reference to its user as it was when it looked last, and the generation of the table then. A change
 * of the table posts a message to each loop, whose clients look for their user again: those whose user was deleted or
 * switched off are closed, also when they idle. A client that begins a request before that sees the generation.
 */
#include "server/net/client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The client as CLIENT INFO has it: client libraries want all of these fields. */
static char *describe(const struct client *c)
{
    char text[1024], address[CLIENT_ADDRESS_BYTES], ours[CLIENT_ADDRESS_BYTES];
    uint64_t now_ms = c->loop->lane.now_ms;
    client_address(c, false, address);
    client_address(c, true, ours);
    int user_bytes = c->user->name_bytes < 128 ? (int)c->user->name_bytes : 128;
    snprintf(text, sizeof text,
             "id=%llu addr=%s laddr=%s fd=%d name=%.128s age=%llu idle=%llu flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 "
             "qbuf=%zu qbuf-free=%zu argv-mem=0 multi-mem=0 obl=%zu oll=0 omem=%zu tot-mem=%zu events=r cmd=%s "
             "user=%.*s redir=-1 resp=%d lib-name=%.64s lib-ver=%.64s",
             (unsigned long long)c->caller.id, address, ours, c->fd, c->name ? c->name : "",
             (unsigned long long)((now_ms - c->created_ms) / 1000), (unsigned long long)((now_ms - c->last_ms) / 1000),
             client_backlog_bytes(c), c->in.capacity - c->in.bytes, c->out.bytes, client_unsent_bytes(c),
             sizeof *c + (size_t)client_memory_bytes(c), commands[c->row].name, user_bytes, c->user->name,
             c->caller.protocol, c->library ? c->library : "", c->library_version ? c->library_version : "");
    return strdup(text);
}

/* Gives the client a user of the table as it is now; `id` 0 is any. */
static bool fetch(struct client *c, const void *name, size_t bytes, uint64_t id)
{
    uint64_t generation;
    struct acl_user *user = acl_fetch(&c->loop->server->acl, name, bytes, id, &generation);
    if (!user)
        return false;
    acl_user_release(c->user);
    c->user = user;
    c->acl_generation = generation;
    c->caller.user = user->name;
    c->caller.user_bytes = (uint32_t)user->name_bytes;
    c->caller.n_tenants = user->tenants.n;
    return true;
}

void client_acl_begin(struct client *c)
{
    fetch(c, "default", 7, 0);
    c->authenticated = c->user->on && c->user->nopass;
    c->unauthenticated_ms = c->loop->lane.now_ms;
}

bool client_acl_refresh(struct client *c)
{
    uint64_t generation = atomic_load_explicit(&c->loop->server->acl.generation, memory_order_acquire);
    if (c->acl_generation == generation)
        return true;
    return fetch(c, c->user->name, c->user->name_bytes, c->user->id) && (c->user->on || !c->authenticated);
}

bool client_authenticate(struct client *c, struct resp_arg name, struct resp_arg password)
{
    struct acl *acl = &c->loop->server->acl;
    struct acl_user *user = acl_find(acl, name.data, name.bytes);
    /* a name that does not exist takes as long as one that does */
    struct acl_user *judged = user ? user : acl_find(acl, "default", 7);
    bool known = acl_user_has_password(judged, password.data, password.bytes);
    bool right = user && user->on && (user->nopass || known);
    acl_user_release(judged);
    if (right && fetch(c, name.data, name.bytes, 0)) {
        c->authenticated = true;
        return true;
    }
    lane_stat_add(&c->loop->lane.stats.auth_failures, 1);
    acl_log_add(&c->loop->server->acl, describe(c), "auth", commands[c->row].name, commands[c->row].name_bytes,
                name.data, name.bytes);
    return false;
}

bool client_permits(struct client *c, unsigned row, const struct resp_arg *args, uint32_t n)
{
    char sentence[512];
    uint32_t key_at = 0;
    if (!client_acl_refresh(c)) {
        client_kill(c);
        return false;
    }
    enum acl_verdict verdict = acl_user_check(c->user, row, args, n, &key_at);
    if (verdict == ACL_ALLOWED)
        return true;
    acl_denial(sentence, sizeof sentence, c->user, verdict, row, args[key_at], false);
    resp_error(client_reply(c), "NOPERM %s", sentence);
    if (verdict == ACL_DENIED_KEY) {
        lane_stat_add(&c->loop->lane.stats.acl_denied_keys, 1);
        acl_log_add(&c->loop->server->acl, describe(c), "key", args[key_at].data, args[key_at].bytes, c->user->name,
                    c->user->name_bytes);
    } else {
        lane_stat_add(&c->loop->lane.stats.acl_denied_commands, 1);
        acl_log_add(&c->loop->server->acl, describe(c), "command", commands[row].name, commands[row].name_bytes,
                    c->user->name, c->user->name_bytes);
    }
    return false;
}

static void on_users_changed(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    (void)message;
    /* before the look: what changes from here on posts again */
    atomic_store(&loop->acl_message_posted, false);
    for (struct client *c = loop->clients; c; c = c->next) {
        if (c->state != CLIENT_OPEN || client_acl_refresh(c))
            continue;
        /* what was begun under permissions that held is answered: also the ACL LOAD that took the user away */
        if (c->first)
            client_end(c);
        else
            client_kill(c);
    }
}

void client_users_changed(void *context)
{
    struct server *server = context;
    for (unsigned i = 0; server->loops && i < server->service.n_lanes; i++) {
        struct loop *loop = &server->loops[i];
        if (atomic_exchange(&loop->acl_message_posted, true))
            continue;
        loop->acl_message.run = on_users_changed;
        lane_post(&loop->lane, &loop->acl_message);
    }
}
