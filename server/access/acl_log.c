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
#include "server/process/config.h"
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
    free(entry->object);
    free(entry->user_name);
    free(entry->client);
    free(entry);
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

void acl_log_add(struct acl *acl, char *client, const char *reason, const void *object, size_t object_bytes,
                 const void *user, size_t user_bytes)
{
    struct acl_log_entry *entry = calloc(1, sizeof *entry);
    if (!entry) {
        free(client);
        return; /* without memory the statistics of INFO still count it */
    }
    entry->reason = reason;
    entry->object = shown(object, object_bytes);
    entry->user_name = shown(user, user_bytes);
    entry->client = client;
    entry->count = 1;
    entry->created_ms = entry->updated_ms = clock_wall_ms();
    if (!entry->object || !entry->user_name || !client) {
        entry_free(entry);
        return;
    }
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
    if (acl->n_log > acl->config->acllog_max)
        drop_oldest(acl, (size_t)acl->config->acllog_max);
    pthread_mutex_unlock(&acl->lock);
}

void acl_log_reset(struct acl *acl)
{
    pthread_mutex_lock(&acl->lock);
    drop_oldest(acl, 0);
    pthread_mutex_unlock(&acl->lock);
}

void acl_log_reply(struct acl *acl, struct resp_buffer *out, uint64_t most)
{
    uint64_t now_ms = clock_wall_ms();
    pthread_mutex_lock(&acl->lock);
    size_t n = most < acl->n_log ? (size_t)most : acl->n_log;
    const struct acl_log_entry *entry = acl->log;
    resp_array(out, n);
    for (size_t i = 0; i < n; i++, entry = entry->next) {
        const char *const texts[][2] = {{"reason", entry->reason},
                                        {"context", "toplevel"},
                                        {"object", entry->object},
                                        {"username", entry->user_name}};
        resp_map(out, 10);
        resp_field(out, "count", (long long)entry->count);
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            resp_text(out, texts[k][0]);
            resp_text(out, texts[k][1]);
        }
        resp_text(out, "age-seconds");
        resp_double(out, (double)(now_ms > entry->created_ms ? now_ms - entry->created_ms : 0) / 1000);
        resp_text(out, "client-info");
        resp_text(out, entry->client);
        resp_field(out, "entry-id", (long long)entry->id);
        resp_field(out, "timestamp-created", (long long)entry->created_ms);
        resp_field(out, "timestamp-last-updated", (long long)entry->updated_ms);
    }
    pthread_mutex_unlock(&acl->lock);
}
