/*
 * upstream_loop.c - libcurl's sockets and its one timer on libevent's loop, and the kick event.
 *
 * libcurl must not be called from within its own callbacks (a handle removed in its data callback), and our owners must
 * not be called from within theirs. So what owners ask for (resume, cancel, more body) marks the call, and the kick
 * event, which runs in the same turn of the loop, does it.
 */
#include "gateway/telemetry/telemetry_log.h"
#include "gateway/upstream/upstream_priv.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

static void collect_ended(struct upstream_set *set)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(set->multi, &left))) {
        struct upstream_call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; /* not valid any more once the handle is removed */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        upstream_call_ended(call, code);
    }
}

static void act(struct upstream_set *set, curl_socket_t fd, int what)
{
    int running;
    curl_multi_socket_action(set->multi, fd, what, &running);
    collect_ended(set);
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    act(context, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    act(context, CURL_SOCKET_TIMEOUT, 0);
}

static int on_multi_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct upstream_set *set = context;
    (void)multi;
    if (timeout_ms < 0)
        evtimer_del(&set->timer);
    else if (timeout_ms == 0)
        event_active(&set->timer, EV_TIMEOUT, 1);
    else {
        struct timeval tv = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
        evtimer_add(&set->timer, &tv);
    }
    return 0;
}

static int on_multi_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *of_socket)
{
    struct upstream_set *set = context;
    struct event *event = of_socket;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (event)
            event_free(event);
        curl_multi_assign(set->multi, fd, NULL);
        return 0;
    }
    short wanted = (short)((what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0) | EV_PERSIST);
    if (event) {
        event_del(event);
        if (event_assign(event, set->base, fd, wanted, on_socket, set) < 0)
            return -1;
    } else if (!(event = event_new(set->base, fd, wanted, on_socket, set)))
        return -1; /* libcurl fails the transfers */
    curl_multi_assign(set->multi, fd, event);
    return event_add(event, NULL);
}

void upstream_loop_kick(struct upstream_call *call)
{
    struct upstream_set *set = call->set;
    if (call->kicked)
        return;
    call->kicked = true;
    call->next_kicked = set->kicked;
    set->kicked = call;
    event_active(&set->kick, EV_TIMEOUT, 1);
}

static void on_kick(evutil_socket_t fd, short what, void *context)
{
    struct upstream_set *set = context;
    (void)fd;
    (void)what;
    struct upstream_call *list = set->kicked;
    set->kicked = NULL;
    while (list) {
        struct upstream_call *call = list;
        list = call->next_kicked;
        call->kicked = false;
        upstream_call_kicked(call);
    }
    collect_ended(set); /* resuming may have ended transfers */
}

int upstream_loop_init(struct upstream_set *set, struct quire_error *err)
{
    evtimer_assign(&set->timer, set->base, on_timer, set);
    evtimer_assign(&set->kick, set->base, on_kick, set);
    set->multi = curl_multi_init();
    if (!set->multi)
        return error_set(err, QUIRE_ENOMEM, "no memory for libcurl");
    curl_multi_setopt(set->multi, CURLMOPT_SOCKETFUNCTION, on_multi_socket);
    curl_multi_setopt(set->multi, CURLMOPT_SOCKETDATA, set);
    curl_multi_setopt(set->multi, CURLMOPT_TIMERFUNCTION, on_multi_timer);
    curl_multi_setopt(set->multi, CURLMOPT_TIMERDATA, set);
    return 0;
}

void upstream_loop_fini(struct upstream_set *set)
{
    assert(!set->calls && !set->kicked);
    if (set->multi)
        curl_multi_cleanup(set->multi);
    event_del(&set->timer);
    event_del(&set->kick);
}
