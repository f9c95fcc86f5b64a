/*
 * cmd_dump.c - DUMP: a value as bytes that RESTORE takes, here or on another server.
 *
 * What is short is written at once. A long string, a large hash, a vector set is written by the worker: of a string a
 * reference is taken, a set is read as of one moment, and a hash in pieces, between which its shard is free; it begins
 * again when the hash was changed meanwhile, each time with longer pieces. The payload has no account while it grows,
 * so it may not grow beyond what one client's reply may take; there is one at a time. When it is there it becomes the
 * client's.
 */
#include "io/error.h"
#include "server/call/key_call.h"
#include "server/call/key_values.h"
#include "server/call/worker_call.h"
#include "server/dump/cmd_dumps.h"
#include "server/process/config.h"
#include <stdio.h>
#include <string.h>

enum {
    AT_ONCE_BYTES = 1 << 20,
    AT_ONCE_PACKED_BYTES = 64 << 10,
    PIECE_BYTES = 256 << 10,
    SCAN_AT_ONCE = 64,
    FRAME_BYTES = 32
};

struct dump_call {
    struct worker_call base;
    struct resp_buffer reply; /* all of it, framed */
    struct value *value;      /* a reference, of a string or a document; NULL: another type */
    enum key_type value_type;
    struct transfer_writing writing; /* of a set in EXEC, whose moment is now; export NULL: not begun */
    uint64_t most;
    const char *setting; /* whose limit that is */
    bool gone;
    uint32_t key_bytes;
    uint8_t key[];
};

/* ---- on the worker ----------------------------------------------------------------------------------------------- */

static int too_large(struct dump_call *call)
{
    return error_set(&call->base.error, QUIRE_ELIMIT,
                     "the dump of this key takes more than %llu bytes, which is what %s allows one reply: raise it, or "
                     "copy the data folder (BGSAVE)",
                     (unsigned long long)call->most, call->setting);
}

static int dump_bytes(struct dump_call *call)
{
    payload_begin(&call->reply, call->value_type);
    if (call->value_type == KEY_JSON) {
        int rc = payload_document(&call->reply, call->value, call->most, &call->base.error);
        if (rc < 0)
            return rc == QUIRE_ELIMIT ? too_large(call) : rc;
    } else if (call->value->bytes > call->most) {
        return too_large(call);
    } else {
        resp_raw(&call->reply, call->value->data, call->value->bytes);
    }
    payload_end(&call->reply, 0);
    return 0;
}

struct piece {
    uint64_t cursor, version, n, bytes;
};

/* 1: there is more. */
static int dump_piece(struct dump_call *call, const struct key_entry *entry, struct piece *p)
{
    call->gone = !entry || entry->type != KEY_HASH;
    if (call->gone)
        return 0;
    if (entry->version != p->version) {
        *p = (struct piece){.version = entry->version, .bytes = 2 * p->bytes};
        call->reply.bytes = 0;
        payload_begin(&call->reply, KEY_HASH);
        payload_number(&call->reply, 4, hash_count(entry->hash));
    }
    size_t end = call->reply.bytes + p->bytes;
    do
        p->cursor = hash_scan(entry->hash, p->cursor, SCAN_AT_ONCE, payload_field, &call->reply);
    while (p->cursor && call->reply.bytes < end && !call->reply.failed);
    if (call->reply.bytes > call->most)
        return too_large(call);
    return p->cursor != 0 && !call->reply.failed;
}

static int dump_hash(struct dump_call *call)
{
    struct values_reader reader = {.service = call->base.base.lane->service};
    struct piece p = {.bytes = PIECE_BYTES / 2};
    int more;
    do {
        more = key_values_lock(&reader, (struct resp_arg){call->key, call->key_bytes}, &call->base.error);
        if (more < 0)
            break;
        more = dump_piece(call, reader.entry, &p);
        key_values_unlock(&reader, NULL);
    } while (more > 0);
    key_values_reader_fini(&reader);
    if (more == 0)
        payload_end(&call->reply, 0);
    return more;
}

static int begin_set(struct dump_call *call)
{
    return transfer_write_begin(&call->writing, call->base.base.collection, call->most, &call->reply,
                                &call->base.error);
}

static int dump_set(struct dump_call *call)
{
    struct transfer_writing *w = &call->writing;
    int rc = w->export ? 0 : begin_set(call);
    if (rc == 0)
        rc = transfer_write_rest(w, &call->base.error);
    transfer_write_end(w);
    return rc == QUIRE_ELIMIT ? too_large(call) : rc;
}

/* What makes it a bulk string. */
static int frame(struct dump_call *call)
{
    struct resp_buffer *reply = &call->reply;
    char head[FRAME_BYTES];
    size_t n = reply->bytes;
    int bytes = snprintf(head, sizeof head, "$%zu\r\n", n);
    if (!resp_reserve(reply, FRAME_BYTES))
        return error_set(&call->base.error, QUIRE_ENOMEM, "no memory for the dump of a key");
    memmove(reply->data + bytes, reply->data, n);
    memcpy(reply->data, head, (size_t)bytes);
    reply->bytes += (size_t)bytes;
    resp_raw(reply, "\r\n", 2);
    return 0;
}

static void dump(struct worker_call *base)
{
    struct dump_call *call = (struct dump_call *)base;
    int rc = call->value ? dump_bytes(call) : base->base.collection ? dump_set(call) : dump_hash(call);
    base->code = rc < 0 || call->gone ? rc : frame(call);
}

/* ---- on the lane ------------------------------------------------------------------------------------------------- */

static void dump_done(struct worker_call *base)
{
    struct dump_call *call = (struct dump_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    if (base->code < 0) {
        resp_quire_error(out, &base->error);
    } else if (call->gone) {
        resp_null(out);
    } else if (resp_account_take(out->account, call->reply.capacity)) {
        call->reply.account = out->account;
        resp_take(out, &call->reply);
    } else {
        out->failed = true; /* as of any reply that is more than the client may have */
    }
    resp_buffer_fini(&call->reply);
    keyspace_value_unref(call->value);
    deferred_end(&base->base);
}

/* The entry is let go. */
static void dump_later(struct caller *c, struct key_call *key)
{
    struct vector_view view = {.collection = NULL};
    struct value *value = NULL;
    if (key->entry->type == KEY_VECTOR_SET)
        view.collection = collection_ref(key->entry->set);
    else if (keyspace_has_bytes(key->entry->type))
        value = keyspace_value_ref(key->entry->string);
    const enum key_type type = (enum key_type)key->entry->type;
    const struct resp_arg name = {key->key.data, key->key.bytes};
    key_end(key);
    struct dump_call *call = deferred_begin(c, view.collection ? &view : NULL, sizeof *call + name.bytes, true);
    if (!call) {
        keyspace_value_unref(value);
        return;
    }
    call->value = value;
    call->value_type = type;
    call->most = caller_reply_max(c, &call->setting);
    call->key_bytes = name.bytes;
    if (name.bytes > 0)
        memcpy(call->key, name.data, name.bytes);
    call->base.work = dump;
    call->base.done = dump_done;
    int rc = c->whole && view.collection ? begin_set(call) : 0; /* later commands of EXEC are in the same frame */
    if (rc < 0) {
        call->base.code = rc == QUIRE_ELIMIT ? too_large(call) : rc;
        dump_done(&call->base);
        return;
    }
    worker_call_start(&call->base);
}

static bool takes_long(const struct key_entry *entry)
{
    if (keyspace_has_bytes(entry->type))
        return entry->string->bytes > (entry->type == KEY_JSON ? AT_ONCE_PACKED_BYTES : AT_ONCE_BYTES);
    return hash_is_large(entry->hash) && hash_memory_bytes(entry->hash) > PIECE_BYTES;
}

static void dump_now(struct caller *c, const struct key_entry *entry)
{
    struct resp_buffer *out = caller_reply(c), payload = resp_buffer_beside(out);
    struct quire_error err = {0};
    int rc = 0;
    payload_begin(&payload, (enum key_type)entry->type);
    if (entry->type == KEY_JSON) {
        rc = payload_document(&payload, entry->string, 0, &err);
    } else if (keyspace_has_bytes(entry->type)) {
        resp_raw(&payload, entry->string->data, entry->string->bytes);
    } else {
        payload_number(&payload, 4, hash_count(entry->hash));
        hash_each(entry->hash, payload_field, &payload);
    }
    payload_end(&payload, 0);
    if (rc < 0)
        resp_quire_error(out, &err);
    else if (payload.failed)
        out->failed = true;
    else
        resp_bulk(out, payload.data, payload.bytes);
    resp_buffer_fini(&payload);
}

void cmd_dump(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    (void)n;
    if (!key_read(&call, c, args[1], KEY_ANY) || !key_values_ready(&call, NULL, 0))
        return;
    if (!call.entry) {
        key_end(&call);
        resp_null(caller_reply(c));
    } else if (call.entry->type == KEY_VECTOR_SET) {
        if (key_is_unavailable(caller_reply(c), args[1], call.entry->set))
            key_end(&call);
        else
            dump_later(c, &call);
    } else if (takes_long(call.entry) && !c->whole) {
        dump_later(c, &call);
    } else {
        dump_now(c, call.entry);
        key_end(&call);
    }
}
