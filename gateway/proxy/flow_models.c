/*
 * flow_models.c - the list of models, which many clients ask for at each start.
 *
 * Kept per credential and target, since what a key may use differs; only answers with status 200 and at most
 * LIST_BYTES. A larger list is passed on unread from then on. The table is a ring: the oldest makes room.
 */
#include "gateway/proxy/flow_models.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/refusal.h"
#include "gateway/settings/settings.h"
#include "io/clock.h"
#include <event2/buffer.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTS_MAX  256u
#define LIST_BYTES (1u << 20)
#define KEPT_MS    60000u

struct list {
    uint8_t key[SHA256_DIGEST_LENGTH];
    uint64_t until_ms; /* 0: an empty place */
    char *body;
    size_t bytes;
};

struct flow_models {
    struct list lists[LISTS_MAX];
    unsigned next;
};

/* A list that is asked for. */
struct models_work {
    struct turn *turn;
    struct upstream_call *call;
    struct evbuffer *body;
    struct fields fields;
    uint8_t key[SHA256_DIGEST_LENGTH];
    int status;
    uint64_t began_us;
};

struct flow_models *flow_models_create(struct flow *flow)
{
    (void)flow;
    return calloc(1, sizeof(struct flow_models));
}

void flow_models_destroy(struct flow_models *models)
{
    if (!models)
        return;
    for (unsigned i = 0; i < LISTS_MAX; i++)
        free(models->lists[i].body);
    free(models);
}

static const struct list *find(const struct flow_models *models, const uint8_t *key)
{
    uint64_t now_ms = clock_us() / 1000;
    for (unsigned i = 0; i < LISTS_MAX; i++)
        if (now_ms < models->lists[i].until_ms && memcmp(models->lists[i].key, key, SHA256_DIGEST_LENGTH) == 0)
            return &models->lists[i];
    return NULL;
}

static void keep(struct flow_models *models, const uint8_t *key, struct evbuffer *body)
{
    struct list *list = &models->lists[models->next];
    size_t bytes = evbuffer_get_length(body);
    char *copy = malloc(bytes + 1);
    if (!copy || bytes > LIST_BYTES) {
        free(copy);
        return;
    }
    evbuffer_copyout(body, copy, bytes);
    free(list->body);
    *list = (struct list){.until_ms = clock_us() / 1000 + KEPT_MS, .body = copy, .bytes = bytes};
    memcpy(list->key, key, sizeof list->key);
    models->next = (models->next + 1) % LISTS_MAX;
}

static void free_work(struct models_work *work)
{
    work->turn->work = NULL;
    work->turn->gone = NULL;
    evbuffer_free(work->body);
    fields_fini(&work->fields);
    free(work);
}

static void on_head(void *context, struct upstream_call *call, const struct upstream_head *head)
{
    struct models_work *work = context;
    struct turn *turn = work->turn;
    (void)call;
    work->status = head->status;
    turn->upstream_us = clock_us() - work->began_us;
    snprintf(turn->upstream, sizeof turn->upstream, "%s", head->upstream);
    fields_return(head->fields, &work->fields);
}

static void on_data(void *context, struct upstream_call *call, const void *bytes, size_t n)
{
    struct models_work *work = context;
    if (evbuffer_get_length(work->body) + n <= 16 * LIST_BYTES && evbuffer_add(work->body, bytes, n) == 0)
        return;
    upstream_cancel(call);
    flow_turn_refuse(work->turn, 502, NULL, "the upstream's list of models is larger than %u bytes", 16 * LIST_BYTES);
    free_work(work);
}

static void on_done(void *context, struct upstream_call *call, const struct upstream_result *result)
{
    struct models_work *work = context;
    struct turn *turn = work->turn;
    struct flow *flow = turn->flow;
    (void)call;
    if (result->outcome != UPSTREAM_WHOLE) {
        turn->upstream_failed = true;
        refusal_upstream(turn->r, NULL, result);
        free_work(work);
        return;
    }
    if (work->status == 200 && !fields_get(&work->fields, "Content-Encoding")) /* which a kept list does not say */
        keep(flow->models, work->key, work->body);
    if (work->status >= 400) /* a list accepts nobody: many upstreams give it to everybody */
        flow_accepted_note(flow, turn->caller.credential, "", work->status);
    flow_turn_fields(turn, &work->fields);
    http_head(turn->r, work->status, &work->fields, (int64_t)evbuffer_get_length(work->body));
    http_data_move(turn->r, work->body);
    http_end(turn->r);
    free_work(work);
}

static void on_gone(struct turn *turn)
{
    struct models_work *work = turn->work;
    upstream_cancel(work->call);
    free_work(work);
}

static const struct upstream_events events = {on_head, on_data, NULL, on_done};

static void answer(struct turn *turn, const struct list *list)
{
    struct fields fields = {0};
    flow_turn_say(turn, "exact", "the list of models is kept for a minute");
    fields_append(&fields, "Content-Type", "application/json");
    flow_turn_fields(turn, &fields);
    http_answer(turn->r, 200, &fields, list->body, list->bytes);
    fields_fini(&fields);
}

static bool ask(struct models_work *work, struct quire_error *err)
{
    struct turn *turn = work->turn;
    struct fields fields = {0};
    struct upstream_request request = {.method = "GET",
                                       .target = http_target(turn->r),
                                       .fields = &fields,
                                       .body_whole = true,
                                       .own_key = turn->caller.upstream_key != NULL};
    if (flow_body_fields(turn, &fields))
        work->call = upstream_start(turn->flow->upstreams, &request, &events, work, err);
    fields_fini(&fields);
    return work->call != NULL;
}

void flow_models_begin(struct turn *turn)
{
    struct flow *flow = turn->flow;
    const char *target = http_target(turn->r), *control = http_field(turn->r, "Cache-Control");
    bool fresh = control && (strstr(control, "no-cache") || strstr(control, "no-store"));
    struct models_work *work = calloc(1, sizeof *work);
    struct quire_error err = {0};
    const struct list *list;
    uint8_t both[2 * SHA256_DIGEST_LENGTH];
    if (!work || !flow->settings->cache_on || !(work->body = evbuffer_new())) {
        free(work);
        flow_turn_pass(turn, NULL);
        return;
    }
    memcpy(both, turn->caller.credential, SHA256_DIGEST_LENGTH);
    SHA256((const uint8_t *)target, strlen(target), both + SHA256_DIGEST_LENGTH);
    SHA256(both, sizeof both, work->key);
    list = fresh ? NULL : find(flow->models, work->key);
    work->turn = turn;
    turn->work = work;
    turn->gone = on_gone;
    work->began_us = clock_us();
    if (list) {
        answer(turn, list);
        free_work(work);
        return;
    }
    flow_turn_say(turn, "miss", "%s", "");
    if (!ask(work, &err)) {
        flow_turn_refuse(turn, 502, NULL, "%s", err.message);
        free_work(work);
    }
}
