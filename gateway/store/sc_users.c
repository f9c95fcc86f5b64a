/*
 * sc_users.c - a connection for each user who asks, as that user of the server's ACL.
 *
 * A few at a time; one that nobody uses for a minute is closed, one that the server has refused at once. None is used
 * for longer than AGE_MS: so a password that was changed in the server is asked for soon, also where a page polls on. A
 * user who was removed loses the connection at once, by the server's doing.
 */
#include "gateway/store/sc_users.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SWEEP_MS 1000
#define AGE_MS   300000u

struct sc_user {
    struct sc_users *users;
    struct sc_user *next;
    struct sc_client *client;
    struct sc_credential credential;
    unsigned how, uses;
    uint64_t used_us, made_us;
};

struct sc_users {
    struct event_base *base;
    struct sc_options options;
    char *address;
    struct sc_user *first;
    unsigned n;
    struct event sweep;
};

/* ---- credentials ---- */

/* Base64 to bytes, without NUL within; false: it is none, or too long. */
static bool decode(const char *text, char *out, size_t room)
{
    size_t n = strlen(text), padding = n > 1 && text[n - 1] == '=' ? 1 + (text[n - 2] == '=') : 0;
    if (n == 0 || n % 4 != 0 || n / 4 * 3 >= room)
        return false;
    int bytes = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
    if (bytes < 0)
        return false;
    out[(size_t)bytes - padding] = 0;
    return strlen(out) == (size_t)bytes - padding;
}

static bool take(struct sc_credential *out, const char *text, bool user_is_optional)
{
    const char *colon = strchr(text, ':');
    size_t user = colon ? (size_t)(colon - text) : 0;
    const char *password = colon ? colon + 1 : text;
    if ((!colon && !user_is_optional) || user >= sizeof out->user || strlen(password) >= sizeof out->password)
        return false;
    memcpy(out->user, text, user);
    out->user[user] = 0;
    if (user == 0)
        snprintf(out->user, sizeof out->user, "default");
    snprintf(out->password, sizeof out->password, "%s", password);
    out->given = true;
    return true;
}

bool sc_credential_read(const char *authorization, struct sc_credential *out)
{
    char text[SC_USER_BYTES + SC_PASSWORD_BYTES + 128];
    bool ok = false;
    *out = (struct sc_credential){.user = "default"};
    if (strncasecmp(authorization, "Basic ", 6) == 0)
        ok = decode(authorization + 6, text, sizeof text) && take(out, text, false);
    else if (strncasecmp(authorization, "Bearer ", 7) == 0)
        ok = take(out, authorization + 7, true);
    explicit_bzero(text, sizeof text);
    return ok;
}

/* ---- connections ---- */

static void free_user(struct sc_user *user)
{
    sc_client_destroy(user->client);
    OPENSSL_cleanse(&user->credential, sizeof user->credential);
    free(user);
}

/* Not to be used again. */
static bool is_over(const struct sc_user *user)
{
    struct sc_client_state state;
    sc_client_state(user->client, &state);
    return state.refused || clock_us() - user->made_us > AGE_MS * 1000ull;
}

/* Not from a callback of a client, which must not end its own client. */
static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    struct sc_users *users = context;
    uint64_t now = clock_us();
    (void)fd;
    (void)what;
    for (struct sc_user **at = &users->first; *at;) {
        struct sc_user *user = *at;
        if (user->uses == 0 && (now - user->used_us > SC_USERS_IDLE_MS * 1000ull || is_over(user))) {
            *at = user->next;
            users->n--;
            free_user(user);
        } else
            at = &user->next;
    }
}

int sc_users_create(struct event_base *base, const struct sc_options *options, struct sc_users **out,
                    struct quire_error *err)
{
    struct sc_users *users = calloc(1, sizeof *users);
    struct timeval every = {.tv_sec = SWEEP_MS / 1000};
    if (users)
        event_assign(&users->sweep, base, -1, EV_PERSIST, on_sweep, users);
    if (!users || !(users->address = strdup(options->address)) || event_add(&users->sweep, &every) != 0) {
        sc_users_destroy(users);
        return error_set(err, QUIRE_ENOMEM, "no memory for the connections of users");
    }
    users->base = base;
    users->options = (struct sc_options){.address = users->address,
                                         .tls = options->tls,
                                         .connections = 1,
                                         .connect_ms = options->connect_ms,
                                         .breaker_failures = UINT32_MAX, /* its calls wait for nobody's request */
                                         .breaker_ms = 1,
                                         .pending_bytes_max = options->pending_bytes_max,
                                         .raw = true,
                                         .reply_bytes_max = options->reply_bytes_max};
    *out = users;
    return 0;
}

void sc_users_destroy(struct sc_users *users)
{
    if (!users)
        return;
    event_del(&users->sweep);
    for (struct sc_user *user = users->first, *next; user; user = next) {
        next = user->next;
        assert(user->uses == 0);
        free_user(user);
    }
    free(users->address);
    free(users);
}

static bool is_same(const struct sc_credential *a, const struct sc_credential *b)
{
    return a->given == b->given && strcmp(a->user, b->user) == 0 &&
           CRYPTO_memcmp(a->password, b->password, sizeof a->password) == 0;
}

/* Makes room where all places are taken: by the connection that nobody has used for longest. */
static void make_room(struct sc_users *users)
{
    struct sc_user **oldest = NULL, *gone;
    if (users->n < SC_USERS_MAX)
        return;
    for (struct sc_user **at = &users->first; *at; at = &(*at)->next) {
        if ((*at)->uses == 0 && (!oldest || (*at)->used_us < (*oldest)->used_us))
            oldest = at;
    }
    if (!oldest)
        return;
    gone = *oldest;
    *oldest = gone->next;
    users->n--;
    free_user(gone);
}

static struct sc_user *add(struct sc_users *users, const struct sc_credential *credential, unsigned how)
{
    struct sc_options options = users->options;
    make_room(users);
    struct sc_user *user = users->n < SC_USERS_MAX ? calloc(1, sizeof *user) : NULL;
    if (!user)
        return NULL;
    user->users = users;
    user->credential = *credential;
    user->how = how;
    user->made_us = clock_us();
    options.user = credential->given ? credential->user : NULL;
    options.password = credential->given ? credential->password : NULL;
    options.locked = (how & SC_USERS_LOCKED) && credential->given && strcmp(credential->user, "default") == 0;
    if (sc_client_create(users->base, &options, &user->client, NULL) < 0) {
        free_user(user);
        return NULL;
    }
    user->next = users->first;
    users->first = user;
    users->n++;
    return user;
}

struct sc_user *sc_users_get(struct sc_users *users, const struct sc_credential *credential, unsigned how)
{
    struct sc_user *user = users->first;
    while (user && !(user->how == how && is_same(&user->credential, credential) && !is_over(user)))
        user = user->next;
    if (!user)
        user = add(users, credential, how);
    if (user)
        user->uses++;
    return user;
}

void sc_users_put(struct sc_user *user)
{
    if (!user)
        return;
    assert(user->uses > 0);
    user->uses--;
    user->used_us = clock_us();
}

struct sc_client *sc_users_client(struct sc_user *user)
{
    return user->client;
}

void sc_users_refusal(const struct sc_user *user, const char *why, char *out, size_t room)
{
    struct sc_client_state state;
    sc_client_state(user->client, &state);
    if (state.open)
        snprintf(out, room,
                 "the server's user default needs no password, so it is nobody from elsewhere: give it one, or ask as "
                 "another user");
    else if (user->credential.given)
        snprintf(out, room, "the server does not take user '%.80s' with this password", user->credential.user);
    else
        snprintf(out, room, "the server wants a user and password: %.150s", why);
}
