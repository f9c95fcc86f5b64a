/*
 * flow_turn.c - one client's request, from its flight's pieces to its connection.
 *
 * A turn reads its flight as fast as its client takes it: when the connection is full it stops, and goes on at
 * `writable`. What one client gets is decided here: the usage chunk or not, a new id for a kept answer, its own
 * X-Request-Id. A comment keeps a silent stream alive, between events only.
 */
#include "gateway/policy/policy_limit.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/pass.h"
#include "gateway/proxy/refusal.h"
#include "gateway/settings/settings.h"
#include "io/array.h"
#include "io/clock.h"
#include <assert.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char alive[] = ": quire\n\n";

void flow_turn_say(struct turn *turn, const char *cache, const char *format, ...)
{
    va_list args;
    turn->cache = cache;
    va_start(args, format);
    vsnprintf(turn->reason, sizeof turn->reason, format, args);
    va_end(args);
}

/* ---- header fields ----------------------------------------------------------------------------------------------- */

/* Reasons quote what servers say: nothing but printable ASCII goes into a header. */
static bool set_text(struct fields *fields, const char *name, const char *text)
{
    char value[FLOW_REASON_BYTES];
    fields_printable(value, sizeof value, text);
    return fields_set(fields, name, value);
}

static bool set_timing(const struct turn *turn, struct fields *fields)
{
    char text[160];
    size_t n = 0;
    const struct {
        const char *name;
        uint64_t us;
    } parts[] = {{"embed", turn->embed_us}, {"cache", turn->cache_us}, {"upstream", turn->upstream_us}};
    for (size_t i = 0; i < 3; i++)
        if (parts[i].us > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s;dur=%.2f", n ? ", " : "", parts[i].name,
                                  (double)parts[i].us / 1000);
    return n == 0 || fields_set(fields, "Server-Timing", text);
}

bool flow_turn_fields(const struct turn *turn, struct fields *fields)
{
    return (!*turn->cache || fields_set(fields, "X-Quire-Cache", turn->cache)) &&
           (!*turn->reason || set_text(fields, "X-Quire-Reason", turn->reason)) &&
           (!*turn->category || fields_set(fields, "X-Quire-Category", turn->category)) &&
           (fields_get(fields, "X-Request-Id") || fields_set(fields, "X-Request-Id", turn->request_id)) &&
           fields_set(fields, "Cache-Control", "private, no-store") && fields_set(fields, "Vary", "Authorization") &&
           set_timing(turn, fields);
}

void flow_turn_refuse(struct turn *turn, int status, const char *code, const char *format, ...)
{
    struct fields fields = {0};
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    flow_turn_fields(turn, &fields);
    refusal_answer(turn->r, status, code, &fields, "%s", text);
    fields_fini(&fields);
}

/* ---- from the flight to the client ------------------------------------------------------------------------------- */

static void leave(struct turn *turn)
{
    if (turn->member.flight)
        flight_leave(&turn->member);
    event_del(&turn->keep_alive);
}

void flow_turn_fail(struct turn *turn, int status, const char *reason)
{
    assert(!turn->head_sent && flight_members(turn->member.flight) > 1);
    leave(turn);
    turn->head_sent = true;
    turn->upstream_failed = true;
    flow_turn_say(turn, "miss", "%s", reason);
    flow_turn_refuse(turn, status, NULL, "%s", reason);
}

void flow_turn_drop(struct turn *turn)
{
    leave(turn);
    snprintf(turn->reason, sizeof turn->reason, "ended: it read more slowly than others who read the same answer");
    refusal_in_stream(turn->r, "api_error",
                      "this answer was read more slowly than others read it, and it is too long to be kept for later");
}

void flow_turn_again(struct turn *turn)
{
    assert(turn->guest && !turn->head_sent);
    leave(turn);
    turn->guest = turn->joined = false;
    turn->n_again++;
    policy_control_fini(&turn->controls); /* they are read again */
    policy_control_init(&turn->controls);
    if (http_is_open(turn->r))
        flow_body_ready(turn);
}

static void note_head(struct turn *turn, const struct head *head)
{
    turn->cache = head->cache;
    if (turn->joined)
        snprintf(turn->reason, sizeof turn->reason, "joined the same request, which was under way");
    else
        memcpy(turn->reason, head->reason, sizeof turn->reason);
    memcpy(turn->upstream, head->upstream, sizeof turn->upstream);
    turn->similarity = head->similarity;
    turn->tokens_saved = head->tokens_saved;
    turn->cache_us = head->cache_us;
    turn->embed_us = head->embed_us;
    turn->upstream_us = head->upstream_us;
    turn->upstream_failed = head->upstream_failed;
}

static void begin_replay(struct turn *turn)
{
    const struct settings *settings = turn->flow->settings;
    turn->replay = (struct replay_options){.kind = turn->kind,
                                           .same = settings->replay_id == SETTINGS_REPLAY_SAME,
                                           .zero_usage = settings->usage == SETTINGS_USAGE_ZERO,
                                           .drop_usage = !turn->wants_usage,
                                           .now_s = clock_wall_ms() / 1000};
    if (RAND_bytes(turn->replay.seed, sizeof turn->replay.seed) != 1) {
        uint64_t number = ++turn->flow->replays; /* new ids, if not random ones */
        memcpy(turn->replay.seed, &number, sizeof number);
    }
}

/* Of an answer to another credential: not its cookies, limits and request id. */
static bool is_for_guests(const char *name)
{
    return strncasecmp(name, "X-Quire-", 8) == 0 || strcasecmp(name, "Content-Type") == 0 ||
           strcasecmp(name, "Content-Encoding") == 0 || strcasecmp(name, "Age") == 0;
}

/* False: it is over. */
static bool send_head(struct turn *turn, const struct head *head)
{
    struct fields fields = {0};
    struct evbuffer *body = http_body(turn->r);
    bool ok = true;
    evbuffer_drain(body, evbuffer_get_length(body)); /* a stream may wait for minutes */
    note_head(turn, head);
    turn->head_sent = true;
    if (head->kind == HEAD_REFUSAL) {
        char reason[FLOW_REASON_BYTES];
        memcpy(reason, head->reason, sizeof reason);
        flow_turn_refuse(turn, head->status, head->code, "%s", reason);
        leave(turn);
        return false;
    }
    for (uint32_t i = 0; i < head->fields.n && ok; i++)
        if (!turn->guest || is_for_guests(fields_name(&head->fields, i)))
            ok = fields_append(&fields, fields_name(&head->fields, i), fields_value(&head->fields, i));
    ok = ok && flow_turn_fields(turn, &fields);
    if (ok)
        http_head(turn->r, head->status, &fields, head->length);
    else
        http_abort(turn->r);
    fields_fini(&fields);
    if (ok && head->kind == HEAD_KEPT)
        begin_replay(turn);
    if (ok && head->kind == HEAD_UPSTREAM && head->events) {
        int64_t ms = turn->flow->settings->keep_alive;
        struct timeval pause = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
        event_add(&turn->keep_alive, &pause);
    }
    if (!ok)
        leave(turn);
    return ok;
}

static bool ends_event(const char *data, size_t bytes)
{
    return (bytes >= 2 && (memcmp(data + bytes - 2, "\n\n", 2) == 0 || memcmp(data + bytes - 2, "\r\r", 2) == 0)) ||
           (bytes >= 4 && memcmp(data + bytes - 4, "\r\n\r\n", 4) == 0);
}

static void send_kept(struct turn *turn, const struct flight_piece *piece, bool events)
{
    struct flow *flow = turn->flow;
    bool send = true;
    if (!array_reserve_kept(&flow->scratch, &flow->scratch_capacity, piece->bytes, 1u << 20)) {
        http_abort(turn->r);
        return;
    }
    memcpy(flow->scratch, piece->data, piece->bytes);
    if (events)
        send = replay_event(&flow->replay, &turn->replay, flow->scratch, piece->bytes);
    else
        replay_json(&flow->replay, &turn->replay, flow->scratch, piece->bytes);
    if (send)
        http_data(turn->r, flow->scratch, piece->bytes);
}

static void send_piece(struct turn *turn, const struct flight_piece *piece, const struct head *head)
{
    if (head->kind == HEAD_KEPT) {
        send_kept(turn, piece, head->events);
    } else if (!(piece->flags & FLIGHT_USAGE) || turn->wants_usage) {
        http_data(turn->r, piece->data, piece->bytes);
        turn->in_event = !ends_event(piece->data, piece->bytes);
    }
    turn->last_us = clock_us();
}

static void end_answer(struct turn *turn, const struct head *head, enum flight_end end)
{
    turn->kept_back = head->kept_back;
    leave(turn);
    if (end == FLIGHT_WHOLE) {
        http_end(turn->r);
    } else {
        turn->upstream_failed = true;
        refusal_in_stream(turn->r, "api_connection_error", "the upstream's answer broke off");
    }
}

static void pump(struct turn *turn)
{
    struct flight_piece piece;
    while (http_is_open(turn->r)) {
        struct flight *flight = turn->member.flight;
        const struct head *head = flight_head(flight);
        bool more;
        if (head && !turn->head_sent && !send_head(turn, head))
            return;
        if (head && http_is_full(turn->r))
            return; /* on_writable goes on */
        more = flight_next(&turn->member, &piece);
        assert(!more || head);
        if (!more) {
            if (flight_ended(flight) == FLIGHT_OPEN)
                return;  /* on_wake goes on */
            if (!head) { /* it broke before anything was known: no memory */
                leave(turn);
                flow_turn_refuse(turn, 502, NULL, "the request could not be sent");
                return;
            }
            end_answer(turn, head, flight_ended(flight));
            return;
        }
        send_piece(turn, &piece, head);
        flight_taken(&turn->member);
    }
    leave(turn);
}

static void on_wake(struct flight_member *member)
{
    pump((struct turn *)member);
}

static void on_keep_alive(evutil_socket_t fd, short what, void *context)
{
    struct turn *turn = context;
    int64_t ms = turn->flow->settings->keep_alive;
    (void)fd;
    (void)what;
    if (http_is_open(turn->r) && !turn->in_event && !http_is_full(turn->r) &&
        clock_us() - turn->last_us >= (uint64_t)ms * 1000 / 2) {
        http_data(turn->r, alive, sizeof alive - 1);
        turn->last_us = clock_us();
    }
}

void flow_turn_follow(struct turn *turn)
{
    assert(turn->member.flight);
    pump(turn);
}

/* ---- callbacks of the connection --------------------------------------------------------------------------------- */

static void on_body(void *context, struct http_request *r)
{
    struct turn *turn = context;
    (void)r;
    turn->body(turn);
}

static void on_writable(void *context, struct http_request *r)
{
    struct turn *turn = context;
    (void)r;
    if (turn->member.flight)
        pump(turn);
    else if (turn->writable)
        turn->writable(turn);
}

static void on_gone(void *context, struct http_request *r)
{
    struct turn *turn = context;
    (void)r;
    turn->client_gone = true;
    leave(turn);
    if (turn->gone)
        turn->gone(turn);
}

static void end_turn(struct turn *turn)
{
    struct flow_end end = {.route = turn->route,
                           .cache = turn->cache,
                           .reason = turn->reason,
                           .category = turn->category,
                           .model = turn->model,
                           .upstream = turn->upstream,
                           .tenant = turn->caller.scope,
                           .question = turn->question ? turn->question : "",
                           .kept_back = turn->kept_back,
                           .similarity = turn->similarity,
                           .tokens_saved = turn->tokens_saved,
                           .cache_us = turn->cache_us,
                           .embed_us = turn->embed_us,
                           .connect_us = turn->connect_us,
                           .upstream_us = turn->upstream_us,
                           .joined = turn->joined,
                           .client_gone = turn->client_gone,
                           .upstream_failed = turn->upstream_failed};
    leave(turn);
    turn->flow->tokens_saved += turn->tokens_saved;
    if (turn->done)
        turn->done(turn->context, turn->r, &end);
    policy_limit_leave(turn->caller.limit);
    policy_control_fini(&turn->controls);
    fields_fini(&turn->extra);
    if (turn->caller.upstream_key)
        explicit_bzero(turn->caller.upstream_key, strlen(turn->caller.upstream_key));
    free(turn->caller.upstream_key);
    free(turn->caller.categories);
    free(turn->question);
    free(turn);
}

static void on_done(void *context, struct http_request *r)
{
    (void)r;
    end_turn(context);
}

static const struct http_handlers handlers = {NULL, on_body, on_writable, on_gone, on_done};

struct turn *flow_turn_create(struct flow *flow, struct http_request *r, flow_done *done, void *context)
{
    struct turn *turn = calloc(1, sizeof *turn);
    const char *id = http_field(r, "X-Request-Id");
    if (!turn)
        return NULL;
    turn->flow = flow;
    turn->r = r;
    turn->done = done;
    turn->context = context;
    turn->member.wake = on_wake;
    turn->body = flow_body_ready;
    turn->cache = "";
    turn->route = "other";
    turn->kept_back = "";
    turn->similarity = -1;
    policy_control_init(&turn->controls);
    event_assign(&turn->keep_alive, flow->base, -1, EV_PERSIST, on_keep_alive, turn);
    if (id && strlen(id) < sizeof turn->request_id)
        memcpy(turn->request_id, id, strlen(id) + 1);
    else
        snprintf(turn->request_id, sizeof turn->request_id, "req_%016" PRIx64 "%08" PRIx64, clock_wall_ms() * 1000,
                 http_number(r));
    http_own(r, &handlers, turn);
    return turn;
}

/* ---- passing on -------------------------------------------------------------------------------------------------- */

static void on_passed(void *context, struct http_request *r, const struct pass_end *end)
{
    struct turn *turn = context;
    int status = http_status(r);
    snprintf(turn->upstream, sizeof turn->upstream, "%s", end->upstream ? end->upstream : "");
    turn->client_gone = end->client_gone;
    turn->upstream_failed = end->upstream_failed;
    turn->connect_us = end->connect_us;
    turn->upstream_us = end->head_us;
    /* other paths than the cache's (`path` NULL) may be open to everybody: their answers accept nobody */
    if (*turn->upstream && (turn->path || status >= 400))
        flow_accepted_note(turn->flow, turn->caller.credential, turn->model, status);
    end_turn(turn);
}

void flow_turn_pass(struct turn *turn, const char *model)
{
    struct pass_options options = {.model = model, .done = on_passed, .context = turn};
    const char *timeout = http_field(turn->r, "X-Stainless-Timeout");
    char name[6 * FLOW_MODEL_BYTES + 3];
    if (timeout && strtod(timeout, NULL) > 0 && strtod(timeout, NULL) < 86400)
        options.head_timeout_ms = (uint32_t)(strtod(timeout, NULL) * 1000);
    if (turn->name_bytes > 0) {
        name[strict_quote(turn->model, strlen(turn->model), name)] = 0;
        options.edit = (struct pass_edit){turn->name_at, turn->name_bytes, name};
    }
    if (*turn->cache && flow_turn_fields(turn, &turn->extra))
        options.extra = &turn->extra;
    options.key = turn->caller.upstream_key;
    pass_begin(turn->r, turn->flow->upstreams, &options);
}
