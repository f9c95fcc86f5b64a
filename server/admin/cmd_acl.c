/*
 * cmd_acl.c - the ACL command: users shown, changed, saved, and asked what they may do.
 *
 * Replies and error texts are those of Redis 7, which tools parse. LOAD and SAVE touch the disk: the worker does that
 * while the lane goes on; requests behind them on the same connection wait, so that a script that loads and then uses
 * what it loaded works.
 *
 * A connection whose user changes itself away (deletes or switches off its own user) still gets its reply.
 */
#include "io/error.h"
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/admin/cmd_admin.h"
#include "server/commands/command.h"
#include "server/process/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* After a change: a client that lost its own user leaves once its reply is out. */
static void leave_if_gone(struct client *c)
{
    if (!client_acl_refresh(c))
        client_end(c);
}

/* ---- who is there ------------------------------------------------------------------------------------------------ */

void cmd_acl_whoami(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)args;
    (void)n;
    resp_bulk(client_reply(c), c->user->name, c->user->name_bytes);
}

/* Lines collected under the lock, and replied with their number before them. */
struct lines {
    struct resp_buffer text;
    size_t n;
    bool names_only;
};

static void add_line(void *context, const struct acl_user *user)
{
    struct lines *lines = context;
    struct resp_buffer line = {.protocol = 2};
    lines->n++;
    if (lines->names_only) {
        resp_bulk(&lines->text, user->name, user->name_bytes);
        return;
    }
    acl_user_describe(user, &line);
    resp_bulk(&lines->text, line.data, line.bytes);
    lines->text.failed |= line.failed;
    resp_buffer_fini(&line);
}

/* LIST and USERS. */
void cmd_acl_list(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct lines lines = {.text = {.protocol = 2}, .names_only = arg_is(args[1], "USERS")};
    (void)n;
    acl_each(&client_of(caller)->loop->server->acl, add_line, &lines);
    struct resp_buffer *out = caller_reply(caller);
    resp_array(out, lines.n);
    resp_raw(out, lines.text.data, lines.text.bytes);
    out->failed |= lines.text.failed;
    resp_buffer_fini(&lines.text);
}

/* A field whose value one of acl_user_... writes. */
static void put_described(struct resp_buffer *out, const char *field, const struct acl_user *user,
                          void (*describe)(const struct acl_user *user, struct resp_buffer *text))
{
    struct resp_buffer text = {.protocol = 2};
    describe(user, &text);
    resp_text(out, field);
    resp_bulk(out, text.bytes ? (const char *)text.data : "", text.bytes);
    out->failed |= text.failed;
    resp_buffer_fini(&text);
}

static void put_texts(struct resp_buffer *out, const char *field, const struct acl_texts *texts)
{
    resp_text(out, field);
    resp_array(out, texts->n);
    for (unsigned i = 0; i < texts->n; i++)
        resp_bulk(out, texts->items[i].data, texts->items[i].bytes);
}

void cmd_acl_getuser(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    struct acl_user *user = acl_find(&c->loop->server->acl, args[2].data, args[2].bytes);
    struct resp_buffer *out = client_reply(c);
    if (!user) {
        resp_null(out);
        return;
    }
    resp_map(out, 7);
    resp_text(out, "flags");
    resp_set(out, user->nopass ? 2 : 1);
    resp_text(out, user->on ? "on" : "off");
    if (user->nopass)
        resp_text(out, "nopass");
    put_texts(out, "passwords", &user->passwords);
    put_described(out, "commands", user, acl_user_commands);
    put_described(out, "keys", user, acl_user_keys);
    put_described(out, "channels", user, acl_user_channels);
    resp_text(out, "selectors");
    resp_array(out, 0);
    put_texts(out, "tenants", &user->tenants);
    acl_user_release(user);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

void cmd_acl_setuser(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct quire_error err = {0};
    if (acl_change(&c->loop->server->acl, args[2], args + 3, n - 3, &err) < 0) {
        caller_error(&c->caller, "ERR %s", err.message);
        return;
    }
    resp_simple(client_reply(c), "OK");
    leave_if_gone(c);
}

void cmd_acl_deluser(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    long long deleted = 0;
    for (uint32_t i = 2; i < n; i++)
        if (args[i].bytes == 7 && memcmp(args[i].data, "default", 7) == 0) {
            caller_error(&c->caller, "ERR The 'default' user cannot be removed");
            return;
        }
    for (uint32_t i = 2; i < n; i++)
        deleted += acl_delete(&c->loop->server->acl, args[i]);
    resp_integer(client_reply(c), deleted);
    leave_if_gone(c);
}

void cmd_acl_genpass(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    enum { BITS_MAX = 4096 };
    uint8_t bytes[BITS_MAX / 8];
    char text[BITS_MAX / 4 + 1];
    long long bits = 256;
    if (n > 3) {
        caller_error(caller, "ERR wrong number of arguments for 'acl|genpass' command");
        return;
    }
    if (n == 3 && !arg_integer(args[2], &bits)) {
        caller_error(caller, "ERR value is not an integer or out of range");
        return;
    }
    if (bits <= 0 || bits > BITS_MAX) {
        caller_error(caller, "ERR ACL GENPASS argument must be the number of bits for the output password, a positive "
                             "number up to 4096");
        return;
    }
    size_t digits = (size_t)(bits + 3) / 4, filled = 0, wanted = (digits + 1) / 2;
    while (filled < wanted) {
        ssize_t got = getrandom(bytes + filled, wanted - filled, 0);
        filled += got > 0 ? (size_t)got : 0;
    }
    for (size_t i = 0; i < wanted; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    resp_bulk(caller_reply(caller), text, digits);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

void cmd_acl_cat(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    unsigned count = 0;
    int category = n == 3 ? command_category_find(args[2].data, args[2].bytes) : -1;
    if (n > 3) {
        caller_error(caller, "ERR wrong number of arguments for 'acl|cat' command");
        return;
    }
    if (n == 3 && category < 0) {
        caller_error(caller, "ERR Unknown category '%.*s'", ARG_SHOWN(args[2], 128u));
        return;
    }
    struct resp_buffer *out = caller_reply(caller);
    if (category < 0) {
        while (command_category_name(count))
            count++;
        resp_array(out, count);
        for (unsigned i = 0; i < count; i++)
            resp_text(out, command_category_name(i));
        return;
    }
    for (unsigned row = 0; row < n_commands; row++)
        count += command_in_category(&commands[row], (unsigned)category);
    resp_array(out, count);
    for (unsigned row = 0; row < n_commands; row++)
        if (command_in_category(&commands[row], (unsigned)category))
            resp_text(out, commands[row].name);
}

void cmd_acl_dryrun(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    char sentence[512];
    uint32_t key_at = 0;
    struct acl_user *user = acl_find(&client_of(caller)->loop->server->acl, args[2].data, args[2].bytes);
    int row = command_find_request(args + 3, n - 3);
    if (!user) {
        caller_error(caller, "ERR User '%.*s' not found", ARG_SHOWN(args[2], 128u));
    } else if (row < 0) {
        caller_error(caller, "ERR Command '%.*s' not found", ARG_SHOWN(args[3], 128u));
    } else if (!command_arity_fits(&commands[row], n - 3)) {
        caller_error(caller, "ERR wrong number of arguments for '%s' command", commands[row].name);
    } else {
        enum acl_verdict verdict = acl_user_check(user, (unsigned)row, args + 3, n - 3, &key_at);
        if (verdict == ACL_ALLOWED) {
            resp_simple(caller_reply(caller), "OK");
        } else {
            acl_denial(sentence, sizeof sentence, user, verdict, (unsigned)row, args[3 + key_at], true);
            resp_text(caller_reply(caller), sentence);
        }
    }
    acl_user_release(user);
}

void cmd_acl_log(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    long long count = 10;
    if (n > 3) {
        caller_error(&c->caller, "ERR wrong number of arguments for 'acl|log' command");
    } else if (n == 3 && arg_is(args[2], "RESET")) {
        acl_log_reset(&c->loop->server->acl);
        resp_simple(client_reply(c), "OK");
    } else if (n == 3 && !arg_integer(args[2], &count)) {
        caller_error(&c->caller, "ERR value is not an integer or out of range");
    } else {
        acl_log_reply(&c->loop->server->acl, client_reply(c), count < 0 ? 0 : (uint64_t)count);
    }
}

/* ---- LOAD and SAVE ----------------------------------------------------------------------------------------------- */

struct file_call {
    struct pending pending;
    struct loop *loop;
    struct job job;
    struct message message;
    struct resp_buffer problems;
    struct quire_error error;
    int code;
    bool save;
};

static void finish_file_call(struct lane *lane, struct message *message)
{
    struct loop *loop = loop_of(lane);
    struct file_call *call = (struct file_call *)(void *)((char *)message - offsetof(struct file_call, message));
    struct client *c = client_of(call->pending.caller);
    struct resp_buffer *out = &call->pending.out;
    if (call->code == 0)
        resp_simple(out, "OK");
    else if (call->save)
        resp_error(out, "ERR There was an error trying to save the ACLs. Please check the server logs for more "
                        "information");
    else
        resp_error(out,
                   "ERR %.*s WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
                   (int)call->problems.bytes, (const char *)call->problems.data);
    if (call->code < 0)
        log_line(loop->server->service.log, LOG_LEVEL_WARNING, "ACL %s: %.*s", call->save ? "SAVE" : "LOAD",
                 call->save ? (int)strlen(call->error.message) : (int)call->problems.bytes,
                 call->save ? call->error.message : (const char *)call->problems.data);
    resp_buffer_fini(&call->problems);
    caller_done(&call->pending);
    leave_if_gone(c);
}

static void file_job(struct job *job)
{
    struct file_call *call = (struct file_call *)(void *)((char *)job - offsetof(struct file_call, job));
    struct server *server = call->loop->server;
    call->code = call->save ? acl_save(&server->acl, &call->error) : acl_load(&server->acl, &call->problems);
    call->message.run = finish_file_call;
    lane_post(&call->loop->lane, &call->message);
}

/* LOAD and SAVE. */
void cmd_acl_file(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    (void)n;
    if (c->loop->server->service.config->aclfile[0] == 0) {
        caller_error(caller,
                     "ERR This Redis instance is not configured to use an ACL file. You may want to specify users "
                     "via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "
                     "configuration file set) in order to store users in the Redis configuration.");
        return;
    }
    struct file_call *call = caller_defer(caller, sizeof *call, true);
    if (!call)
        return;
    call->loop = c->loop;
    call->save = arg_is(args[1], "SAVE");
    call->problems.protocol = 2;
    call->job.run = file_job;
    worker_post(&c->loop->server->service.worker, &call->job);
}
