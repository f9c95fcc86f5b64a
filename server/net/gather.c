/*
 * gather.c - a question to every lane (see gather.h).
 *
 * The asking lane does its own part at once; the others get a message each. Whoever finishes last posts the answer to
 * the asking lane, which cannot have ended: its client's reply is pending, and a lane outlives its clients. Other lanes
 * may have ended while the server stops: loop_reach says so, and their part stays empty.
 */
#include "server/net/gather.h"
#include <stdlib.h>

static void on_back(struct lane *lane, struct message *message)
{
    struct gather *g = (struct gather *)(void *)((char *)message - offsetof(struct gather, back));
    (void)lane;
    g->finish(g);
    for (unsigned i = 0; i < g->n_parts; i++)
        resp_buffer_fini(&g->parts[i].out);
    free(g->parts);
    caller_done(&g->pending);
}

static void part_done(struct gather *g)
{
    if (atomic_fetch_sub_explicit(&g->left, 1, memory_order_acq_rel) == 1)
        lane_post(&g->asker->lane, &g->back);
}

static void on_part(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    struct gather_part *part = (struct gather_part *)(void *)message;
    part->gather->work(part->gather, part, loop);
    part_done(part->gather);
}

void *gather_begin(struct client *c, size_t bytes, gather_work *work, gather_finish *finish)
{
    const struct server *server = c->loop->server;
    struct gather_part *parts = calloc(server->service.n_lanes, sizeof *parts);
    struct gather *g = parts ? caller_defer(&c->caller, bytes, true) : NULL;
    if (!g) {
        free(parts);
        client_kill(c);
        return NULL;
    }
    g->asker = c->loop;
    g->back.run = on_back;
    g->work = work;
    g->finish = finish;
    g->parts = parts;
    g->n_parts = server->service.n_lanes;
    atomic_init(&g->left, server->service.n_lanes);
    for (unsigned i = 0; i < g->n_parts; i++) {
        parts[i].message.run = on_part;
        parts[i].gather = g;
        parts[i].out.protocol = c->caller.protocol;
    }
    return g;
}

void gather_start(struct gather *g)
{
    struct loop *loops = g->asker->server->loops;
    unsigned n = g->n_parts, own = g->asker->lane.index;
    struct gather_part *parts = g->parts;
    for (unsigned i = 0; i < n; i++)
        if (i != own && !loop_reach(&loops[i], &parts[i].message))
            part_done(g);
    /* the last one that may touch g: with it the answer is under way */
    on_part(&g->asker->lane, &parts[own].message);
}

void gather_ask(struct client *c, gather_work *work, gather_finish *finish)
{
    struct gather *g = gather_begin(c, sizeof *g, work, finish);
    if (g)
        gather_start(g);
}

void gather_reply_ok(struct gather *g)
{
    resp_simple(&g->pending.out, "OK");
}

uint64_t gather_count(const struct gather *g)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < g->n_parts; i++)
        sum += g->parts[i].count;
    return sum;
}
