/*
 * console_pool.c - a connection for each user who looks, as that user of the server's ACL.
 *
 * A few at a time; one that nobody uses for a minute is closed, one that the server has refused at once. None is used
 * for longer than AGE_MS: so a password that was changed in the server is asked for soon, also where a page polls on. A
 * user who was removed loses the connection at once, by the server's doing.
 */
#include "gateway/console/console_priv.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/event.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_MS 1000
#define AGE_MS   300000u

struct console_user {
    struct console_pool *pool;
    struct console_user *next;
    struct sc_client *client;
    struct console_credential credential;
    bool slow;
    unsigned uses;
    uint64_t used_us, made_us;
};

struct console_pool {
    struct console *console;
    struct console_user *first;
    unsigned n;
    struct event sweep;
};

static void free_user(struct console_user *user)
{
    sc_client_destroy(user->client);
    OPENSSL_cleanse(&user->credential, sizeof user->credential);
    free(user);
}

/* Not to be used again. */
static bool is_over(const struct console_user *user)
{
    struct sc_client_state state;
    sc_client_state(user->client, &state);
    return state.refused || clock_us() - user->made_us > AGE_MS * 1000ull;
}

/* Not from a callback of a client, which must not end its own client. */
static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    struct console_pool *pool = context;
    uint64_t now = clock_us();
    (void)fd;
    (void)what;
    for (struct console_user **at = &pool->first; *at;) {
        struct console_user *user = *at;
        if (user->uses == 0 && (now - user->used_us > CONSOLE_IDLE_MS * 1000ull || is_over(user))) {
            *at = user->next;
            pool->n--;
            free_user(user);
        } else
            at = &user->next;
    }
}

int console_pool_create(struct console *console, struct console_pool **out, struct quire_error *err)
{
    struct console_pool *pool = calloc(1, sizeof *pool);
    struct timeval every = {.tv_sec = SWEEP_MS / 1000};
    if (!pool)
        return error_set(err, QUIRE_ENOMEM, "no memory for the console's connections");
    pool->console = console;
    event_assign(&pool->sweep, console->base, -1, EV_PERSIST, on_sweep, pool);
    if (event_add(&pool->sweep, &every) != 0) {
        free(pool);
        return error_set(err, QUIRE_ENOMEM, "no memory for a timer");
    }
    *out = pool;
    return 0;
}

void console_pool_destroy(struct console_pool *pool)
{
    if (!pool)
        return;
    event_del(&pool->sweep);
    for (struct console_user *user = pool->first, *next; user; user = next) {
        next = user->next;
        assert(user->uses == 0);
        free_user(user);
    }
    free(pool);
}

struct sc_options console_pool_options(const struct console *console)
{
    const char *server = console->settings->server;
    return (struct sc_options){.address = strncmp(server, "tls://", 6) == 0 ? server + 6 : server,
                               .tls = console->tls,
                               .connections = 1,
                               .connect_ms = CONSOLE_CONNECT_MS,
                               .breaker_failures = UINT32_MAX, /* its calls wait for nobody's request */
                               .breaker_ms = 1,
                               .pending_bytes_max = 4 * CONSOLE_BODY_BYTES_MAX,
                               .raw = true,
                               .reply_bytes_max = CONSOLE_REPLY_BYTES_MAX};
}

static bool is_same(const struct console_credential *a, const struct console_credential *b)
{
    return a->given == b->given && strcmp(a->user, b->user) == 0 &&
           CRYPTO_memcmp(a->password, b->password, sizeof a->password) == 0;
}

/* Makes room where all places are taken: by the connection that nobody has used for longest. Not from a callback. */
static void make_room(struct console_pool *pool)
{
    struct console_user **oldest = NULL, *gone;
    if (pool->n < CONSOLE_USERS_MAX)
        return;
    for (struct console_user **at = &pool->first; *at; at = &(*at)->next) {
        if ((*at)->uses == 0 && (!oldest || (*at)->used_us < (*oldest)->used_us))
            oldest = at;
    }
    if (!oldest)
        return;
    gone = *oldest;
    *oldest = gone->next;
    pool->n--;
    free_user(gone);
}

static struct console_user *add(struct console_pool *pool, const struct console_credential *credential, bool slow)
{
    struct sc_options options = console_pool_options(pool->console);
    make_room(pool);
    struct console_user *user = pool->n < CONSOLE_USERS_MAX ? calloc(1, sizeof *user) : NULL;
    if (!user)
        return NULL;
    user->pool = pool;
    user->credential = *credential;
    user->slow = slow;
    user->made_us = clock_us();
    options.user = credential->given ? credential->user : NULL;
    options.password = credential->given ? credential->password : NULL;
    if (sc_client_create(pool->console->base, &options, &user->client, NULL) < 0) {
        free(user);
        return NULL;
    }
    user->next = pool->first;
    pool->first = user;
    pool->n++;
    return user;
}

struct console_user *console_pool_get(struct console_pool *pool, const struct console_credential *credential, bool slow)
{
    struct console_user *user = pool->first;
    while (user && !(user->slow == slow && is_same(&user->credential, credential) && !is_over(user)))
        user = user->next;
    if (!user)
        user = add(pool, credential, slow);
    if (user)
        user->uses++;
    return user;
}

void console_pool_put(struct console_user *user)
{
    if (!user)
        return;
    assert(user->uses > 0);
    user->uses--;
    user->used_us = clock_us();
}

struct sc_client *console_pool_client(struct console_user *user)
{
    return user->client;
}
