/*
 * client_memory.c - what clients may make the server hold: one by itself, one before it authenticates, all together.
 *
 * Each client has two accounts (resp.h): `requests`, which are bytes received and the queue of its transaction, and
 * `replies`, which are all buffers of replies, ready or not, of one command or of many, and what is being sent. They
 * count memory, not contents, and are asked before a buffer grows; so a reply that would be too large fails while it is
 * built, and commands that build it look at that (`failed`) and stop.
 *
 *   one client          client-output-buffer-limit, client-query-buffer-limit: above them it is closed
 *   not authenticated   unauthenticated-output-limit, QUERY_UNAUTHENTICATED, authentication-timeout
 *   its share           a quarter of its output limit: beyond it no further request of it is run, and it must read: in
 *                       each window a 64th of what it has not read yet, so that whoever reads a byte now and then does
 *                       not keep the rest alive
 *   all clients         maxmemory-clients: as in Redis the largest is closed first. Connections themselves are not
 *                       counted (a kilobyte each, with TLS some 40): maxclients bounds those
 *
 * All clients: lanes add up what theirs hold, and say how large their largest is. A client that wants more when there
 * is no more is refused, and closed, if it would be the largest itself; otherwise the largest goes, here or, by a
 * message, on its lane. Who holds little (SMALL_BYTES) always gets what it asks for, so that those who take much cannot
 * close those who do not; if many small ones are too much together, the largest of them go twice a second. From three
 * quarters of the limit on, shares are small for everybody: who does not read his replies waits, before anybody is
 * closed. What the closed ones held takes a turn of the loop to be free, or longer where the kernel or a search still
 * uses it: when that and the rest come to an eighth more than the limit, who asks for more is closed itself.
 *
 * All but client_memory_total and client_memory_max: on the lane's thread.
 */
#include "server/net/client.h"
#include <assert.h>
#include <stddef.h>

enum {
    WINDOW_MS = 5000, /* in which the pace of a reader is judged */
    SLOWEST_SHARE = 64,
    BACKLOG_BYTES = 1 << 18, /* received and not worked on; beyond it nothing is received until there is room */
    KEPT_BYTES = 65536,      /* that empty buffers of a client may keep beyond its limit */
    SMALL_BYTES = 65536,     /* of one client: is never refused for what all hold */
    LEAST_BYTES = 4096,      /* of a client that is ever closed for what all hold */
    BACKLOG_UNAUTHENTICATED = 16384,
    QUERY_UNAUTHENTICATED = 65536,
    DISCARDED_BYTES = 1 << 20,
    IDLE_MS = 1000 /* after which empty buffers are given back */
};

/* ---- sums -------------------------------------------------------------------------------------------------------- */

uint64_t client_memory_max(const struct server *s)
{
    return config_share(s->service.config->clients_max_bytes, s->service.config->maxmemory);
}

uint64_t client_memory_total(const struct server *s)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < s->service.n_lanes; i++)
        bytes += atomic_load_explicit(&s->loops[i].client_bytes, memory_order_relaxed);
    return bytes;
}

static uint64_t evicted_total(const struct server *s)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < s->service.n_lanes; i++)
        bytes += atomic_load_explicit(&s->loops[i].evicted_bytes, memory_order_relaxed);
    return bytes;
}

size_t client_unsent_bytes(const struct client *c)
{
    size_t elsewhere =
        c->out.capacity + c->send_buffer.capacity + c->plain.capacity + (c->tls ? tls_output_room(c->tls) : 0);
    assert(c->replies.held >= elsewhere);
    return c->out.bytes + c->send_buffer.bytes - c->send_buffer_sent + c->plain.bytes - c->plain_sent +
           (size_t)c->replies.held - elsewhere;
}

/* ---- one client -------------------------------------------------------------------------------------------------- */

static uint64_t output_max(const struct client *c)
{
    const struct config *config = c->loop->server->service.config;
    return c->authenticated ? config->output_buffer_max : config->unauthenticated_output_max;
}

bool client_has_room(const struct client *c)
{
    uint64_t share = output_max(c) / 4;
    if (c->loop->pressed && share > SMALL_BYTES)
        share = SMALL_BYTES;
    return client_unsent_bytes(c) <= share;
}

size_t client_backlog_max(const struct client *c)
{
    return !c->authenticated ? BACKLOG_UNAUTHENTICATED : c->loop->pressed ? SMALL_BYTES : BACKLOG_BYTES;
}

uint64_t client_query_max(const struct client *c)
{
    return c->authenticated ? c->loop->server->service.config->query_buffer_max : QUERY_UNAUTHENTICATED;
}

bool client_reads_too_slowly(struct client *c)
{
    uint64_t now = c->loop->lane.now_ms;
    if (c->state != CLIENT_OPEN || client_has_room(c)) {
        c->window_ms = 0;
        return false;
    }
    if (c->window_ms != 0 && now - c->window_ms < WINDOW_MS)
        return false;
    bool slow = c->window_ms != 0 && c->sending && c->window_sent < client_unsent_bytes(c) / SLOWEST_SHARE;
    c->window_ms = now;
    c->window_sent = 0;
    return slow;
}

void client_memory_drop(struct client *c)
{
    assert(c->state == CLIENT_DEAD);
    for (struct pending *p = c->first; p; p = p->next) {
        if (p->ready)
            resp_buffer_fini(&p->out);
        else if (p->abandon)
            p->abandon(p);
    }
    resp_buffer_fini(&c->out);
    resp_buffer_fini(&c->in);
    c->in_start = 0;
    resp_buffer_fini(&c->plain);
    c->plain_sent = 0;
    if (c->sending)
        return;
    resp_buffer_fini(&c->send_buffer);
    c->send_buffer_sent = 0;
}

/* ---- all clients ------------------------------------------------------------------------------------------------- */

static struct client *largest_of(struct loop *loop, const struct client *except)
{
    struct client *largest = NULL;
    for (struct client *c = loop->clients; c; c = c->next)
        if (c != except && c->state != CLIENT_DEAD && c->excess == EXCESS_NONE && !c->no_evict &&
            (!largest || client_memory_bytes(c) > client_memory_bytes(largest)))
            largest = c;
    return largest;
}

static void note_largest(struct loop *loop, uint64_t bytes)
{
    atomic_store_explicit(&loop->largest_client, bytes, memory_order_relaxed);
}

/* The lane other than this one that says that it has the largest client; NULL: there is no other. */
static struct loop *lane_of_largest(const struct loop *loop)
{
    const struct server *s = loop->server;
    struct loop *found = NULL;
    for (unsigned i = 0; i < s->service.n_lanes; i++)
        if (&s->loops[i] != loop && (!found || atomic_load_explicit(&s->loops[i].largest_client, memory_order_relaxed) >
                                                   atomic_load_explicit(&found->largest_client, memory_order_relaxed)))
            found = &s->loops[i];
    return found;
}

/* It is closed when it is worked on next. Until then what it holds makes nobody else go. */
static void evict(struct client *c)
{
    struct resp_account *accounts[] = {&c->requests, &c->replies};
    assert(c->excess == EXCESS_NONE);
    c->excess = EXCESS_ALL_CLIENTS;
    for (unsigned i = 0; i < 2; i++) {
        struct resp_account counted = {.total = &c->loop->client_bytes}, evicted = {.total = &c->loop->evicted_bytes};
        resp_account_add(&counted, -(int64_t)accounts[i]->held);
        resp_account_add(&evicted, (int64_t)accounts[i]->held);
        accounts[i]->total = &c->loop->evicted_bytes;
    }
    client_mark(c);
}

static void on_evict(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    (void)message;
    atomic_store(&loop->evict_posted, false);
    uint64_t most = client_memory_max(loop->server);
    struct client *largest = largest_of(loop, NULL);
    note_largest(loop, largest ? client_memory_bytes(largest) : 0);
    if (most && largest && client_memory_bytes(largest) > SMALL_BYTES && client_memory_total(loop->server) > most)
        evict(largest);
}

static void evict_on(struct loop *loop)
{
    if (atomic_exchange(&loop->evict_posted, true))
        return;
    loop->evict_message.run = on_evict;
    lane_post(&loop->lane, &loop->evict_message);
}

/* What the client would hold in all is `mine`. True where it may, also because another goes for it. */
static bool makes_room(struct client *c, uint64_t mine)
{
    struct loop *loop = c->loop;
    const struct loop *other = lane_of_largest(loop);
    struct client *here = largest_of(loop, c);
    uint64_t there_bytes = other ? atomic_load_explicit(&other->largest_client, memory_order_relaxed) : 0;
    uint64_t here_bytes = here ? client_memory_bytes(here) : 0;
    if (mine >= here_bytes && mine >= there_bytes)
        return false;
    if (here_bytes >= there_bytes)
        evict(here);
    else
        evict_on(lane_of_largest(loop));
    return true;
}

/* Whether all clients together leave room for `more` bytes of this one. */
static bool all_have_room(struct client *c, size_t more)
{
    struct loop *loop = c->loop;
    uint64_t most = client_memory_max(loop->server), mine = client_memory_bytes(c) + more;
    if (mine > atomic_load_explicit(&loop->largest_client, memory_order_relaxed) && !c->no_evict)
        note_largest(loop, mine);
    if (most == 0 || mine <= SMALL_BYTES || c->no_evict)
        return true;
    uint64_t total = client_memory_total(loop->server) + more;
    loop->pressed = loop->pressed || total > most / 4 * 3;
    /* what is being freed is not free yet: beyond an eighth more nobody is closed for who asks */
    if (total + evicted_total(loop->server) > most + most / 8)
        return false;
    return total <= most || makes_room(c, mine);
}

static bool may_grow(struct client *c, size_t more)
{
    if (c->state == CLIENT_DEAD || c->excess != EXCESS_NONE)
        return false;
    if (all_have_room(c, more))
        return true;
    evict(c);
    return false;
}

static bool grow_requests(struct resp_account *account, size_t more)
{
    struct client *c = (struct client *)(void *)((char *)account - offsetof(struct client, requests));
    return may_grow(c, more);
}

static bool grow_replies(struct resp_account *account, size_t more)
{
    struct client *c = (struct client *)(void *)((char *)account - offsetof(struct client, replies));
    if (c->state != CLIENT_DEAD && c->excess == EXCESS_NONE && account->held + more > output_max(c) + KEPT_BYTES) {
        c->excess = EXCESS_REPLIES;
        client_mark(c);
    }
    return may_grow(c, more);
}

/* What nobody reads is kept as far as an error's first word needs. */
static bool grow_discarded(struct resp_account *account, size_t more)
{
    return account->held + more <= DISCARDED_BYTES;
}

void client_memory_begin(struct client *c)
{
    c->requests = (struct resp_account){.total = &c->loop->client_bytes, .grow = grow_requests};
    c->replies = (struct resp_account){.total = &c->loop->client_bytes, .grow = grow_replies};
    c->loop->discard_account.grow = grow_discarded;
    c->loop->discard.account = &c->loop->discard_account;
    c->in.account = &c->requests;
    c->out.account = c->send_buffer.account = c->plain.account = &c->replies;
}

bool client_memory_take(struct client *c, size_t bytes)
{
    if (!may_grow(c, bytes))
        return false;
    resp_account_add(&c->requests, (int64_t)bytes);
    return true;
}

void client_memory_give(struct client *c, size_t bytes)
{
    assert(c->requests.held >= bytes);
    resp_account_add(&c->requests, -(int64_t)bytes);
}

void client_memory_turn(struct loop *loop)
{
    uint64_t most = client_memory_max(loop->server);
    loop->pressed = most && client_memory_total(loop->server) > most / 4 * 3;
}

/* An idle connection holds no buffer. */
static void drop_idle_buffers(struct client *c)
{
    if (c->state != CLIENT_OPEN || c->sending || c->first || c->loop->lane.now_ms - c->last_ms < IDLE_MS)
        return;
    if (c->out.bytes == 0 && !c->out.failed)
        resp_buffer_fini(&c->out);
    if (client_backlog_bytes(c) == 0) {
        resp_buffer_fini(&c->in);
        c->in_start = 0;
    }
    if (c->plain.bytes == c->plain_sent) {
        resp_buffer_fini(&c->plain);
        c->plain_sent = 0;
    }
    if (c->send_buffer.bytes == c->send_buffer_sent) {
        resp_buffer_fini(&c->send_buffer);
        c->send_buffer_sent = 0;
    }
}

void client_memory_scan(struct loop *loop)
{
    uint64_t most = client_memory_max(loop->server);
    for (struct client *c = loop->clients; c; c = c->next)
        drop_idle_buffers(c);
    struct client *largest = largest_of(loop, NULL);
    note_largest(loop, largest ? client_memory_bytes(largest) : 0);
    const struct loop *other = lane_of_largest(loop);
    while (most && largest && client_memory_total(loop->server) > most && client_memory_bytes(largest) > LEAST_BYTES &&
           (!other ||
            client_memory_bytes(largest) >= atomic_load_explicit(&other->largest_client, memory_order_relaxed))) {
        evict(largest);
        largest = largest_of(loop, NULL);
    }
}
