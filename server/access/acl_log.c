/*
 * acl_log.c - what was denied lately, for ACL LOG.
 *
 * The latest acllog-max-len denials. One that repeats within a minute (same reason, object and user) is counted in the
 * entry that is there, which moves to the front: somebody who tries passwords all day fills one entry, not the log.
 * Objects and names are cut, since whoever is denied chose them.
 *
 * Denials are rare, or should cost the denied: the table's lock and a few copies are fine here.
 */
#include "io/clock.h"
#include "server/access/acl.h"
#include "server/commands/command.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAME_ENTRY_MS = 60000, SHOWN_BYTES_MAX = 256 };

static char *shown(const void *data, size_t bytes)
{
    return strndup(data, bytes < SHOWN_BYTES_MAX ? bytes : SHOWN_BYTES_MAX);
}

static void entry_free(struct acl_log_entry *entry)
{
    if (!entry)
        return;
    free(entry->object);
    free(entry->user_name);
    free(entry->client);
    free(entry);
}

/* The client as CLIENT INFO has it: client libraries want all of these fields. */
static char *describe_client(const struct client *c)
{
    char text[1024], address[CLIENT_ADDRESS_BYTES], ours[CLIENT_ADDRESS_BYTES];
    uint64_t now_ms = c->lane->now_ms;
    client_address(c, false, address);
    client_address(c, true, ours);
    int user_bytes = c->user->name_bytes < 128 ? (int)c->user->name_bytes : 128;
    snprintf(text, sizeof text,
             "id=%llu addr=%s laddr=%s fd=%d name=%.128s age=%llu idle=%llu flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 "
             "qbuf=%zu qbuf-free=%zu argv-mem=0 multi-mem=0 obl=%zu oll=0 omem=%zu tot-mem=%zu events=r cmd=%s "
             "user=%.*s redir=-1 resp=%d lib-name=%.64s lib-ver=%.64s",
             (unsigned long long)c->id, address, ours, c->fd, c->name ? c->name : "",
             (unsigned long long)((now_ms - c->created_ms) / 1000), (unsigned long long)((now_ms - c->last_ms) / 1000),
             c->in_bytes - c->in_start, c->in_capacity - c->in_bytes, c->out.bytes, c->pending_bytes,
             sizeof *c + c->in_capacity + c->out.capacity, commands[c->row].name, user_bytes, c->user->name,
             c->protocol, c->library ? c->library : "", c->library_version ? c->library_version : "");
    return strdup(text);
}

static struct acl_log_entry *entry_create(const struct client *c, const char *reason, const void *object,
                                          size_t object_bytes, const void *user, size_t user_bytes)
{
    struct acl_log_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->reason = reason;
    entry->object = shown(object, object_bytes);
    entry->user_name = shown(user, user_bytes);
    entry->client = describe_client(c);
    entry->count = 1;
    entry->created_ms = entry->updated_ms = clock_wall_ms();
    if (entry->object && entry->user_name && entry->client)
        return entry;
    entry_free(entry);
    return NULL;
}

/* Takes out of the list an entry that is about the same as `like`; NULL where there is none. */
static struct acl_log_entry *take_same(struct acl *acl, const struct acl_log_entry *like)
{
    for (struct acl_log_entry **place = &acl->log; *place; place = &(*place)->next) {
        struct acl_log_entry *entry = *place;
        if (entry->reason == like->reason && like->updated_ms - entry->updated_ms < SAME_ENTRY_MS &&
            strcmp(entry->object, like->object) == 0 && strcmp(entry->user_name, like->user_name) == 0) {
            *place = entry->next;
            acl->n_log--;
            return entry;
        }
    }
    return NULL;
}

static void drop_oldest(struct acl *acl, size_t most)
{
    struct acl_log_entry **place = &acl->log;
    for (size_t i = 0; i < most && *place; i++)
        place = &(*place)->next;
    while (*place) {
        struct acl_log_entry *entry = *place;
        *place = entry->next;
        acl->n_log--;
        entry_free(entry);
    }
}

void acl_log_add(struct client *c, const char *reason, const void *object, size_t object_bytes, const void *user,
                 size_t user_bytes)
{
    struct server *server = c->lane->server;
    struct acl *acl = &server->acl;
    struct acl_log_entry *entry = entry_create(c, reason, object, object_bytes, user, user_bytes);
    if (!entry)
        return; /* without memory the figures of INFO still count it */
    pthread_mutex_lock(&acl->lock);
    struct acl_log_entry *same = take_same(acl, entry);
    if (same) {
        entry->count += same->count;
        entry->created_ms = same->created_ms;
        entry->id = same->id;
        entry_free(same);
    } else {
        entry->id = acl->next_log_id++;
    }
    entry->next = acl->log;
    acl->log = entry;
    acl->n_log++;
    if (acl->n_log > server->config->acllog_max)
        drop_oldest(acl, (size_t)server->config->acllog_max);
    pthread_mutex_unlock(&acl->lock);
}

void acl_log_reset(struct server *server)
{
    pthread_mutex_lock(&server->acl.lock);
    drop_oldest(&server->acl, 0);
    pthread_mutex_unlock(&server->acl.lock);
}

static void put_entry(struct resp_buffer *out, const struct acl_log_entry *entry, uint64_t now_ms)
{
    const char *const texts[][2] = {
        {"reason", entry->reason}, {"context", "toplevel"}, {"object", entry->object}, {"username", entry->user_name}};
    resp_map(out, 10);
    resp_text(out, "count");
    resp_integer(out, (long long)entry->count);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        resp_text(out, texts[i][0]);
        resp_text(out, texts[i][1]);
    }
    resp_text(out, "age-seconds");
    resp_double(out, (double)(now_ms > entry->created_ms ? now_ms - entry->created_ms : 0) / 1000);
    resp_text(out, "client-info");
    resp_text(out, entry->client);
    resp_text(out, "entry-id");
    resp_integer(out, (long long)entry->id);
    resp_text(out, "timestamp-created");
    resp_integer(out, (long long)entry->created_ms);
    resp_text(out, "timestamp-last-updated");
    resp_integer(out, (long long)entry->updated_ms);
}

void acl_log_reply(struct server *server, struct resp_buffer *out, uint64_t most)
{
    struct acl *acl = &server->acl;
    uint64_t now_ms = clock_wall_ms();
    pthread_mutex_lock(&acl->lock);
    size_t n = most < acl->n_log ? (size_t)most : acl->n_log;
    const struct acl_log_entry *entry = acl->log;
    resp_array(out, n);
    for (size_t i = 0; i < n; i++, entry = entry->next)
        put_entry(out, entry, now_ms);
    pthread_mutex_unlock(&acl->lock);
}
