/* keys_keeper.c - a document is held by the lock of its key's shard. */
#include "server/document/keys_keeper.h"
#include "server/call/key_document.h"
#include "server/document/backfill.h"
#include "server/keys/keyspace.h"

enum { EXPIRE_US = 1000 };

static bool hold(struct service *service, struct kept_document *d, struct resp_arg name)
{
    struct keyspace *keyspace = &service->keyspace;
    struct key key = keyspace_key(keyspace, name);
    keyspace_lock_key(&d->lock, keyspace, &key);
    d->entry = keyspace_find(&d->lock, &key);
    if (d->entry && key_document_view(d->entry, &d->view))
        return true;
    keyspace_unlock(&d->lock);
    d->entry = NULL;
    return false;
}

static void let_go(struct kept_document *d)
{
    d->entry = NULL;
    keyspace_unlock(&d->lock);
}

static void each_field(const struct kept_document *d, hash_visit *visit, void *context)
{
    hash_each(d->entry->hash, visit, context);
}

static int remove_keys(struct service *service, const struct resp_arg *keys, uint32_t n, uint64_t *lsn,
                       struct quire_error *err)
{
    struct keyspace_lock lock;
    uint32_t n_gone;
    keyspace_lock_args(&lock, &service->keyspace, keys, n, 1);
    int rc = keyspace_delete(&lock, keys, n, &n_gone, err);
    keyspace_unlock(&lock);
    *lsn = lock.lsn;
    return rc;
}

static void fill(struct service *service, struct document_index *index, bool again)
{
    if (again)
        backfill_again(service, index);
    else
        backfill_begin(service, index);
}

static void expire(struct service *service)
{
    unsigned next = 0;
    keyspace_expire_due(&service->keyspace, 0, 1, &next, EXPIRE_US);
}

const struct keeper keys_keeper = {.hold = hold,
                                   .let_go = let_go,
                                   .each_field = each_field,
                                   .remove = remove_keys,
                                   .fill = fill,
                                   .expire = expire,
                                   .has_json = true,
                                   .lends = true};
