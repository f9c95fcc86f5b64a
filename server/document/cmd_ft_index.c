/*
 * cmd_ft_index.c - FT.CREATE, FT.ALTER, FT.DROPINDEX, FT.ALIAS..., FT._LIST, FT.TAGVALS, FT.CONFIG, and what is
 * refused.
 *
 * Making an index registers it at once; documents that were there before are put in by the worker (backfill.h), while
 * those that are written meanwhile come in by themselves.
 */
#include "document/index/record_read.h"
#include "io/array.h"
#include "io/error.h"
#include "server/call/keeper.h"
#include "server/call/slice.h"
#include "server/document/cmd_documents.h"
#include "server/document/document_call.h"
#include "server/document/index_leave.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void cmd_ft_create(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct service *service = c->lane->service;
    struct quire_error err = {0};
    struct document_index *index;
    struct schema *schema;
    uint64_t lsn = 0;
    struct schema_word *words = document_words(c, args + 1, n - 1);
    if (!words)
        return;
    /* rights first: who may not read the keys may not have them shown */
    int rc = schema_parse(words, n - 1, &schema, &err);
    bool may = rc == 0 && document_may_read(c, schema);
    if (rc == 0) {
        bool fills = !schema->skip_initial_scan;
        if (may)
            rc = record_rules_check(schema, &err);
        if (may && rc == 0 && schema->source == SCHEMA_JSON && !service->keeper->has_json)
            rc = error_set(&err, QUIRE_EUNSUPPORTED, "ON JSON: there are no JSON documents here (docs/cluster.md)");
        schema_free(schema);
        if (may && rc == 0 && (rc = documents_add(service->documents, words, n - 1, &index, &lsn, &err)) == 0) {
            if (fills)
                service->keeper->fill(service, index, false);
            document_index_unref(index);
            resp_simple(caller_reply(c), "OK");
            caller_wait_lsn(c, lsn);
        }
    }
    free(words);
    if (rc < 0)
        document_error(caller_reply(c), &err);
}

/* FT.ALTER index [SKIPINITIALSCAN] SCHEMA ADD field ... */
void cmd_ft_alter(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct service *service = c->lane->service;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    uint32_t at = 2;
    bool skips = arg_is(args[at], "SKIPINITIALSCAN");
    at += skips;
    const uint32_t first = at;
    if (at < n && arg_is(args[at], "SCHEMA"))
        at++;
    if (at == first + 1 && at < n && arg_is(args[at], "ADD"))
        at++;
    if (at != first + 2 || at == n) {
        caller_error(c, "ERR FT.ALTER takes SCHEMA ADD and at least one field behind the index's name (position %u)",
                     at);
        return;
    }
    struct document_index *index = document_index_of(c, args[1]);
    if (!index)
        return;
    document_index_unref(index);
    struct schema_word *words = document_words(c, args + at, n - at);
    if (!words)
        return;
    int rc = documents_alter(service->documents, document_word(args[1]), words, n - at, at, &index, &lsn, &err);
    free(words);
    if (rc < 0) {
        document_error(caller_reply(c), &err);
        return;
    }
    if (!skips)
        service->keeper->fill(service, index, true);
    document_index_unref(index);
    resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

/* ---- FT.DROPINDEX ------------------------------------------------------------------------------------------------ */

enum { DROP_KEYS_BYTES = 256 << 10, DROP_AT_ONCE = 64 };

/* With DD the documents' keys go first, some in each turn of the lane; then vectors that are in no hash come back, also
 * of documents that came meanwhile; then the index goes. */
struct drop_call {
    struct pending pending;
    struct slice slice;
    struct index_leave leave;
    struct lane *lane;
    struct document_index *index; /* a reference */
    uint32_t from;                /* id to go on from */
    uint8_t *keys;
    size_t n_bytes, at;
    uint64_t lsn;
};

static void end_drop(struct drop_call *call)
{
    if (call->pending.out.bytes == 0)
        resp_simple(&call->pending.out, "OK");
    else
        documents_leave(call->index, false);
    call->pending.lsn = call->lsn;
    free(call->keys);
    document_index_unref(call->index);
    caller_done(&call->pending);
}

static void on_left(struct index_leave *leave)
{
    struct drop_call *call = (struct drop_call *)(void *)((char *)leave - offsetof(struct drop_call, leave));
    if (leave->code < 0)
        document_error(&call->pending.out, &leave->error);
    call->lsn = leave->lsn > call->lsn ? leave->lsn : call->lsn;
    end_drop(call);
}

/* The index itself; its documents, with DD, are gone. */
static void drop_index(struct drop_call *call)
{
    struct documents *documents = call->lane->service->documents;
    const char *name = document_index_name(call->index);
    struct document_index *dropped = NULL;
    struct quire_error err = {0};
    int rc;
    bool reads = call->lane->service->keeper->lends && index_leave_reads(call->index);
    if (reads && !call->pending.caller->whole) {
        call->leave = (struct index_leave){.lane = call->lane, .index = call->index, .done = on_left};
        rc = index_leave_start(&call->leave, &err);
        if (rc == 0)
            return;
    } else if (reads) {
        rc = error_set(&err, QUIRE_EUNSUPPORTED,
                       "FT.DROPINDEX reads the vectors of the documents, which stay, from the disk: not inside MULTI");
    } else if (document_index_is_dropped(call->index)) {
        rc = error_set(&err, QUIRE_ENOTFOUND, "SEARCH_INDEX_NOT_FOUND Unknown index name: %.128s", name);
    } else {
        rc = documents_drop(documents, (struct schema_word){name, (uint32_t)strlen(name)}, &dropped, &call->lsn, &err);
    }
    document_index_unref(dropped);
    if (rc < 0)
        document_error(&call->pending.out, &err);
    end_drop(call);
}

/* Deletes the next keys of the buffer; false after an error. */
static bool delete_some(struct drop_call *call)
{
    struct resp_arg keys[DROP_AT_ONCE];
    struct service *service = call->lane->service;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    uint32_t n = 0;
    while (n < DROP_AT_ONCE && call->at < call->n_bytes) {
        uint32_t bytes;
        memcpy(&bytes, call->keys + call->at, sizeof bytes);
        keys[n++] = (struct resp_arg){call->keys + call->at + sizeof bytes, bytes};
        call->at += sizeof bytes + bytes;
    }
    int rc = service->keeper->remove(service, keys, n, &lsn, &err);
    call->lsn = lsn > call->lsn ? lsn : call->lsn;
    if (rc < 0)
        document_error(&call->pending.out, &err);
    return rc == 0;
}

static void go_on_dropping(struct slice *slice)
{
    struct drop_call *call = (struct drop_call *)(void *)((char *)slice - offsetof(struct drop_call, slice));
    bool whole = call->pending.caller->whole, more = true;
    do {
        if (call->at == call->n_bytes) {
            more = call->from != 0;
            call->at = 0;
            if (more)
                call->from = document_index_keys(call->index, call->from, call->keys, DROP_KEYS_BYTES, &call->n_bytes);
            more = more && call->n_bytes > 0;
        }
        if (more && !delete_some(call))
            more = false;
    } while (more && whole);
    if (more)
        slice_post(call->lane, slice);
    else if (call->pending.out.bytes > 0)
        end_drop(call);
    else
        drop_index(call);
}

/* FT.DROPINDEX index [DD]; FT.DROP index [KEEPDOCS], the old name, which deletes documents unless told not to (an empty
 * word is what redis-py 4 sends for no word). */
void cmd_ft_dropindex(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct document_index *index = NULL;
    bool old = strcmp(c->command, "ft.drop") == 0, given = n == 3 && !(old && args[2].bytes == 0);
    bool right = n <= 3 && (!given || arg_is(args[2], old ? "KEEPDOCS" : "DD")), dd = given != old;
    if (!right) {
        caller_error(c, "ERR %s takes an index and %s, not '%.*s' (position %u)", old ? "FT.DROP" : "FT.DROPINDEX",
                     old ? "KEEPDOCS" : "DD", ARG_SHOWN(args[n - 1], 64u), n - 1);
        return;
    }
    int rc = documents_find(c->lane->service->documents, document_word(args[1]), &index, &err);
    bool may = rc == 0 && document_may_read(c, document_index_schema(index));
    if (rc == QUIRE_ENOTFOUND)
        resp_error(caller_reply(c), "Unknown index name"); /* Redis OM for Node.js compares the whole text */
    else if (rc < 0)
        document_error(caller_reply(c), &err);
    struct drop_call *call = may ? caller_defer(c, sizeof *call, true) : NULL;
    if (!call) {
        document_index_unref(index);
        return;
    }
    call->lane = c->lane;
    call->index = index;
    if (!dd) {
        drop_index(call);
        return;
    }
    documents_leave(index, true);
    call->from = 1;
    call->slice.run = go_on_dropping;
    call->slice.caller = c;
    call->keys = malloc(DROP_KEYS_BYTES);
    if (call->keys) {
        go_on_dropping(&call->slice);
        return;
    }
    resp_error(&call->pending.out, "OOM no memory to delete documents");
    end_drop(call);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* FT.ALIASADD, FT.ALIASUPDATE */
void cmd_ft_alias(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t lsn = 0;
    (void)n;
    struct document_index *index = document_index_of(c, args[2]);
    if (!index)
        return;
    document_index_unref(index);
    bool add = strcmp(c->command, "ft.aliasadd") == 0;
    if (documents_alias_set(c->lane->service->documents, document_word(args[1]), document_word(args[2]), add, &lsn,
                            &err) < 0) {
        resp_error(caller_reply(c), "ERR %s", err.message);
        return;
    }
    resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

void cmd_ft_aliasdel(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct document_index *index = NULL;
    struct quire_error err = {0};
    uint64_t lsn = 0;
    (void)n;
    bool may = documents_find(c->lane->service->documents, document_word(args[1]), &index, NULL) < 0 ||
               document_may_read(c, document_index_schema(index));
    document_index_unref(index);
    if (!may)
        return;
    if (documents_alias_remove(c->lane->service->documents, document_word(args[1]), &lsn, &err) < 0) {
        resp_error(caller_reply(c), "ERR %s", err.message);
        return;
    }
    resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

struct names {
    struct resp_buffer items;
    size_t n;
};

static void put_name(void *context, struct document_index *index)
{
    struct names *names = context;
    resp_text(&names->items, document_index_name(index));
    names->n++;
}

void cmd_ft_list(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct names names = {.items = resp_buffer_beside(caller_reply(c))};
    (void)args;
    (void)n;
    documents_each(c->lane->service->documents, put_name, &names);
    resp_set(caller_reply(c), names.n);
    resp_take(caller_reply(c), &names.items);
}

/* ---- FT.CONFIG --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *value;
} settings[] = {
    {"MINPREFIX", "2"},
    {"MAXEXPANSIONS", "-1"}, /* no limit */
    {"MAXPREFIXEXPANSIONS", "-1"},
    {"TIMEOUT", "0"}, /* none */
    {"DEFAULT_DIALECT", "2"},
    {"MAXSEARCHRESULTS", "1000000"},
    {"ON_TIMEOUT", "fail"},
    {"MAXAGGREGATERESULTS", "1000000"},
    {"MAXDOCTABLESIZE", "4294967295"},
    {"CURSOR_MAX_IDLE", "300000"},
};

/* FT.CONFIG GET name|*: what clients ask for, with the values that hold here. Nothing can be set. */
void cmd_ft_config(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct names found = {.items = resp_buffer_beside(caller_reply(c))};
    if (!arg_is(args[1], "GET") || n != 3) {
        caller_error(c, "ERR FT.CONFIG %.*s is not supported by Quire: FT.CONFIG GET name is (position 1)",
                     ARG_SHOWN(args[1], 64u));
        return;
    }
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (!arg_is(args[2], "*") && !arg_is(args[2], settings[i].name))
            continue;
        if (c->protocol == 2)
            resp_array(&found.items, 2);
        resp_text(&found.items, settings[i].name);
        resp_text(&found.items, settings[i].value);
        found.n++;
    }
    if (c->protocol == 2)
        resp_array(caller_reply(c), found.n);
    else
        resp_map(caller_reply(c), found.n);
    resp_take(caller_reply(c), &found.items);
}

/* ---- FT.TAGVALS -------------------------------------------------------------------------------------------------- */

struct tag_values {
    struct resp_buffer items;
    size_t n;
};

static bool put_tag(void *context, const char *tag, uint32_t bytes, uint64_t documents)
{
    struct tag_values *values = context;
    (void)documents;
    resp_bulk(&values->items, tag, bytes);
    values->n++;
    return !values->items.failed;
}

void cmd_ft_tagvals(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct document_index *index = document_index_of(c, args[1]);
    (void)n;
    if (!index)
        return;
    const struct schema_field *field =
        schema_find(document_index_schema(index), (const char *)args[2].data, args[2].bytes);
    if (!field) {
        caller_error(c, "ERR No such field: `%.*s` (position 2)", ARG_SHOWN(args[2], 64u));
    } else if (field->type != SCHEMA_TAG || field->no_index) {
        caller_error(c, "ERR Not a tag field: `%.*s` (position 2)", ARG_SHOWN(args[2], 64u));
    } else {
        struct tag_values values = {.items = resp_buffer_beside(caller_reply(c))};
        document_index_tags(index, field, put_tag, &values, NULL);
        resp_set(caller_reply(c), values.n);
        resp_take(caller_reply(c), &values.items);
    }
    document_index_unref(index);
}

/* FT.SUGADD, FT.SYNUPDATE, FT.PROFILE, ...: what a client may try. */
void cmd_ft_refused(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    caller_error(c, "ERR %.*s is not supported by Quire (docs/search.md lists what is)", ARG_SHOWN(args[0], 64u));
}
