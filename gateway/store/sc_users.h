/*
 * sc_users.h - connections as users of the server's ACL, so that the server decides what who asks here may do.
 *
 * A credential is what the field Authorization says: Basic, or Bearer user:password. Each user has a connection of its
 * own (sc_client.h, raw replies), a few users at once; nothing is asked as anybody else.
 */
#ifndef QUIRE_GATEWAY_SC_USERS_H
#define QUIRE_GATEWAY_SC_USERS_H

#include "gateway/store/sc_client.h"

#define SC_USERS_MAX      16u
#define SC_USERS_IDLE_MS  60000u
#define SC_USER_BYTES     256u
#define SC_PASSWORD_BYTES 1024u

struct sc_user;
struct sc_users;

struct sc_credential {
    bool given; /* false: the server's default user, who needs no password then */
    char user[SC_USER_BYTES], password[SC_PASSWORD_BYTES];
};

/* Reads "Basic base64(user:password)", "Bearer user:password", and "Bearer password" of the user default. False: it is
 * none of these, or longer than there is room; `out` is then not to be used. */
bool sc_credential_read(const char *authorization, struct sc_credential *out);

/* What connections are made with; of the options address, tls, connect_ms, pending_bytes_max and reply_bytes_max are
 * looked at. The address is copied. */
int sc_users_create(struct event_base *base, const struct sc_options *options, struct sc_users **out,
                    struct quire_error *err);
/* Nobody uses one any more. NULL is fine. */
void sc_users_destroy(struct sc_users *users);

enum {
    SC_USERS_APART = 1,  /* a connection of its own, for what takes minutes */
    SC_USERS_LOCKED = 2, /* a default user who needs no password is refused, whatever password was given */
};
/* The connection of this user. NULL: too many users, or no memory. Not from a callback of a client. */
struct sc_user *sc_users_get(struct sc_users *users, const struct sc_credential *credential, unsigned how);
void sc_users_put(struct sc_user *user); /* as often as get; NULL is fine */
struct sc_client *sc_users_client(struct sc_user *user);
/* A sentence for who was given no connection (sc_client_state.refused), into `out`. */
void sc_users_refusal(const struct sc_user *user, const char *why, char *out, size_t room);

#endif
