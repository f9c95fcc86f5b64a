/*
 * cmd_connection.c - PING, ECHO, HELLO, AUTH, QUIT, RESET, SELECT, CLIENT: what concerns one connection.
 *
 * Who may be a user, and with which password, is acl.c's business.
 */
#include "server/access/acl.h"
#include "server/commands/cmd_clients.h"
#include "server/commands/command.h"
#include "server/commands/modules.h"
#include "server/commands/transaction.h"
#include <stdlib.h>
#include <string.h>

void cmd_ping(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    if (n > 2)
        caller_error(&c->caller, "ERR wrong number of arguments for 'ping' command");
    else if (n == 2)
        resp_bulk(client_reply(c), args[1].data, args[1].bytes);
    else
        resp_raw(client_reply(c), "+PONG\r\n", 7);
}

void cmd_echo(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    resp_bulk(client_reply(c), args[1].data, args[1].bytes);
}

void cmd_quit(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    transaction_forget(c);
    resp_simple(client_reply(c), "OK");
    client_end(c);
}

void cmd_select(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    long long index;
    (void)n;
    if (!arg_integer(args[1], &index))
        caller_error(caller, "ERR value is not an integer or out of range");
    else if (index != 0)
        caller_error(caller, "ERR DB index is out of range");
    else
        resp_simple(caller_reply(caller), "OK");
}

/* ---- who is there ------------------------------------------------------------------------------------------------ */

void cmd_auth(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct resp_arg user = {(const uint8_t *)"default", 7};
    if (n > 3)
        caller_error(&c->caller, "ERR syntax error");
    else if (n == 2 && acl_default_is_open(&c->loop->server->acl))
        caller_error(&c->caller,
                     "ERR AUTH <password> called without any password configured for the default user. Are you sure "
                     "your configuration is correct?");
    else if (client_authenticate(c, n == 3 ? args[1] : user, args[n - 1]))
        resp_simple(client_reply(c), "OK");
    else
        caller_error(&c->caller, "WRONGPASS invalid username-password pair or user is disabled.");
}

/* Replaces *place by a name that may stand in logs and lists: printable, no blanks; "" takes it away. */
static bool set_name(struct client *c, char **place, struct resp_arg name, const char *what)
{
    bool good = name.bytes <= 256;
    for (uint32_t i = 0; i < name.bytes && good; i++)
        good = name.data[i] > ' ' && name.data[i] <= '~';
    if (!good) {
        caller_error(&c->caller,
                     "ERR %s cannot contain spaces, newlines or special characters, and has at most 256 bytes.", what);
        return false;
    }
    char *text = name.bytes ? arg_text(name) : NULL;
    if (name.bytes && !text) {
        caller_error(&c->caller, "OOM no memory for a name");
        return false;
    }
    free(*place);
    *place = text;
    return true;
}

void cmd_hello(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    const struct resp_arg *user = NULL, *name = NULL;
    long long protocol = c->caller.protocol;
    if (n > 1 && (!arg_integer(args[1], &protocol))) {
        caller_error(&c->caller, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (protocol != 2 && protocol != 3) {
        caller_error(&c->caller, "NOPROTO unsupported protocol version");
        return;
    }
    for (uint32_t i = 2; i < n;) {
        if (arg_is(args[i], "AUTH") && i + 2 < n) {
            user = &args[i + 1];
            i += 3;
        } else if (arg_is(args[i], "SETNAME") && i + 1 < n) {
            name = &args[i + 1];
            i += 2;
        } else {
            caller_error(&c->caller, "ERR Syntax error in HELLO option '%.*s'", ARG_SHOWN(args[i], 64u));
            return;
        }
    }
    if (user && !client_authenticate(c, user[0], user[1])) {
        caller_error(&c->caller, "WRONGPASS invalid username-password pair or user is disabled.");
        return;
    }
    if (!c->authenticated) {
        caller_error(&c->caller,
                     "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> "
                     "AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol "
                     "version at the same time");
        return;
    }
    if (name && !set_name(c, &c->name, *name, "Client names"))
        return;
    c->caller.protocol = (int)protocol;
    const struct config *config = c->loop->server->service.config;
    struct resp_buffer *out = client_reply(c);
    resp_map(out, 7);
    resp_text(out, "server");
    resp_text(out, "quire");
    resp_text(out, "version");
    resp_text(out, config->redis_version);
    resp_field(out, "proto", c->caller.protocol);
    resp_field(out, "id", (long long)c->caller.id);
    resp_text(out, "mode");
    resp_text(out, "standalone");
    resp_text(out, "role");
    resp_text(out, "master");
    resp_text(out, "modules");
    modules_put(config, out);
}

void cmd_reset(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    free(c->name);
    c->name = NULL;
    c->caller.protocol = 2;
    transaction_forget(c);
    client_set_monitor(c, false);
    c->reply_off = c->no_evict = c->no_touch = false;
    client_acl_begin(c);
    resp_simple(client_reply(c), "RESET");
}

/* ---- CLIENT ------------------------------------------------------------------------------------------------------ */

void cmd_client_id(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    resp_integer(client_reply(c), (long long)c->caller.id);
}

void cmd_client_getname(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    struct resp_buffer *out = client_reply(c);
    if (c->name)
        resp_text(out, c->name);
    else
        resp_null(out);
}

void cmd_client_setname(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    if (set_name(c, &c->name, args[2], "Client names"))
        resp_simple(client_reply(c), "OK");
}

void cmd_client_setinfo(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    bool library = arg_is(args[2], "LIB-NAME");
    if (!library && !arg_is(args[2], "LIB-VER"))
        caller_error(&c->caller, "ERR Unrecognized option '%.*s'", ARG_SHOWN(args[2], 64u));
    else if (set_name(c, library ? &c->library : &c->library_version, args[3], library ? "lib-name" : "lib-ver")) {
        if (library)
            /* valkey-glide says HELLO 3 and reads what valkey-search answers: arrays */
            c->caller.reads_arrays = c->library && strncmp(c->library, "Glide", 5) == 0;
        resp_simple(client_reply(c), "OK");
    }
}
