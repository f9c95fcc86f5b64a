/*
 * module_fork.c - sets in an RDB that goes to a replica.
 *
 * The engine saves in a child, and tells its parent of a fork when it has been: so what the child needs is prepared by
 * what pthread_atfork calls. Where a replica waits for an RDB (INFO replication says so before the fork), every set
 * gets an identity and a lease of its segments, and is held so that the child finds it as of one moment
 * (store_fork_prepare). The child writes into the RDB what index/replica/replica_manifest.h makes: ids of segments, and
 * what is in memory; of a cache all but its entries, which is made before the fork. The stream behind it goes on where
 * that ends. All other saves hold 60 bytes for each key, and take
 * no lock.
 */
#include "index/replica/replica_manifest.h"
#include "index/store/store.h"
#include "io/error.h"
#include "module/replication/module_copy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool is_prepared, in_child; /* the main thread's */
} forks;

/* INFO of the engine names them slave0, slave1, ...; those without an address are left out. */
static bool replica_waits(void)
{
    struct rm_server_info *info = rm.get_server_info(NULL, "replication");
    int error = 0;
    bool waits = false;
    char field[32];
    unsigned long long n = info ? rm.server_info_number(info, "connected_slaves", &error) : 0;
    for (unsigned i = 0; error == RM_OK && i < n && !waits; i++) {
        snprintf(field, sizeof field, "slave%u", i);
        const char *text = rm.server_info_text(info, field);
        waits = text && (strstr(text, "state=wait_bgsave") || strstr(text, "state=bg_transfer"));
    }
    if (info)
        rm.free_server_info(NULL, info);
    return waits;
}

static void hold_one(void *context, struct module_item *item)
{
    struct quire_error err = {0};
    (void)context;
    if (item->state != MODULE_LIVE || item->attached == 0)
        return;
    if (item->kind == MODULE_CACHE) { /* its locks may be held by others: a child must not ask for it */
        if (module_caches_image(item->name, &item->fork_bytes, &item->fork_n_bytes, &err) < 0)
            item->fork_bytes = NULL; /* the replica asks for it */
        return;
    }
    item->fork_set = module_set_of(item->name);
    int rc = item->fork_set ? module_stream_identify(item, item->fork_set, &err) : 0;
    if (rc == 0 && item->fork_set)
        rc = module_ship_lease(item->fork_set, &err);
    if (rc < 0) { /* the replica asks for it */
        collection_unref(item->fork_set);
        item->fork_set = NULL;
    }
}

static void release_one(void *context, struct module_item *item)
{
    (void)context;
    collection_unref(item->fork_set);
    item->fork_set = NULL;
    free(item->fork_bytes);
    item->fork_bytes = NULL;
}

static void before(void)
{
    if (!module_the.open || !module_the.loaded || !module_is_main_thread() || !replica_waits())
        return;
    module_stream_begin();
    module_items_each(hold_one, NULL);
    store_fork_prepare(module_the.service.store);
    forks.is_prepared = true;
}

static void in_parent(void)
{
    if (!forks.is_prepared)
        return;
    forks.is_prepared = false;
    store_fork_parent(module_the.service.store);
    module_items_each(release_one, NULL);
}

static void in_child(void)
{
    if (!forks.is_prepared)
        return;
    store_fork_child(module_the.service.store);
    forks.in_child = true;
}

int module_fork_open(struct quire_error *err)
{
    int errnum = pthread_atfork(before, in_parent, in_child);
    return errnum ? error_set_errno(err, errnum, "set", "what is done around a fork") : 0;
}

uint8_t *module_fork_image(const struct module_item *item, size_t *n_bytes)
{
    struct quire_error err = {0};
    uint8_t *bytes = NULL;
    if (forks.in_child && item->fork_bytes) {
        bytes = malloc(item->fork_n_bytes);
        if (bytes)
            memcpy(bytes, item->fork_bytes, item->fork_n_bytes);
        *n_bytes = bytes ? item->fork_n_bytes : 0;
        return bytes;
    }
    if (!forks.in_child || !item->fork_set || replica_manifest_make(item->fork_set, &bytes, n_bytes, &err) < 0)
        return NULL;
    return bytes;
}
