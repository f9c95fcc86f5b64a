/*
 * flow_admin.c - what applications and operators say about entries.
 *
 *     POST   /quire/feedback    {"id": "...", "good": false, "similarity": 0.93}
 *     DELETE /quire/entries/ID
 *     POST   /quire/invalidate  {"tags": ["doc:17"]}, {"dry_run": false, ...}; one selector; dry by default
 *
 * Who may. Feedback is for everybody whose credential is known (key file) or was accepted by the upstream lately:
 * whoever has the id was given the answer. It makes an answer rarer, never more frequent than its category allows. To
 * remove needs the admin-key, or a key of the key file with "admin": true: these ask as the gateway itself (setting
 * server-user). Everybody else asks as a user of the server, on a connection of that user, and its ACL decides. A
 * default user who needs no password is nobody here: any password would do.
 */
#include "gateway/proxy/flow_admin.h"
#include "gateway/proxy/flow_accepted.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/proxy/flow_promise.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_users.h"
#include <event2/buffer.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BODY_MAX  65536u
#define WORDS_MAX 1000u
#define ID_DIGITS 16u
#define REPLY_MS  10000u

struct admin_work {
    struct turn *turn;
    struct sc_call *call;
    struct sc_user *user; /* NULL: the gateway itself asks */
    const char *counts;   /* name of the number in the answer; NULL: {"ok": true} */
    bool dry_run;
};

/* ---- who asks ---------------------------------------------------------------------------------------------------- */

static bool has_key(const struct turn *turn)
{
    const char *key = turn->flow->settings->admin_key, *given = http_field(turn->r, "Authorization");
    return *key && given && strncmp(given, "Bearer ", 7) == 0 && strlen(given + 7) == strlen(key) &&
           CRYPTO_memcmp(given + 7, key, strlen(key)) == 0;
}

/* User and password of the server; a key of an upstream or of the key file is none. */
static bool read_user(const struct turn *turn, struct sc_credential *out)
{
    const char *given = http_field(turn->r, "Authorization");
    return given && !turn->caller.in_key_file && (strncasecmp(given, "Bearer ", 7) != 0 || strchr(given, ':')) &&
           sc_credential_read(given, out);
}

static bool has_user(const struct turn *turn)
{
    struct sc_credential credential;
    bool has = read_user(turn, &credential);
    explicit_bzero(&credential, sizeof credential);
    return has;
}

static bool is_in_key_file(const struct turn *turn)
{
    const char *given = http_field(turn->r, "Authorization");
    struct policy_credential credential = {.authorization = {given, given ? strlen(given) : 0}};
    return turn->flow->keys && policy_keys_find(turn->flow->keys, policy_credential_key(&credential));
}

bool flow_admin_knows(struct turn *turn)
{
    if (has_key(turn)) {
        turn->caller.admin = true;
        return true;
    }
    return turn->flow->keys && !is_in_key_file(turn) && has_user(turn);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void answer_text(struct turn *turn, const char *text)
{
    struct fields fields = {0};
    fields_append(&fields, "Content-Type", "application/json");
    flow_turn_fields(turn, &fields);
    http_answer(turn->r, 200, &fields, text, strlen(text));
    fields_fini(&fields);
}

/* The server did not carry it out. */
static void answer_failure(const struct admin_work *work, enum sc_outcome outcome, const char *why)
{
    struct sc_client_state state = {0};
    char text[300];
    if (work->user)
        sc_client_state(sc_users_client(work->user), &state);
    if (outcome == SC_ERROR && strncmp(why, "NOPERM ", 7) == 0) {
        flow_turn_refuse(work->turn, 403, "not_allowed", "%s", why + 7);
    } else if (outcome == SC_ERROR) {
        flow_turn_refuse(work->turn, 400, "refused", "%s", why);
    } else if (state.refused) {
        sc_users_refusal(work->user, why, text, sizeof text);
        flow_turn_refuse(work->turn, 401, "not_a_user", "%s", text);
    } else {
        flow_turn_refuse(work->turn, 503, "no_cache", "%s", why);
    }
}

/* A user's replies are raw: ":3" is an integer. */
static long long number_of(const struct redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING && *reply->str == ':' ? strtoll(reply->str + 1, NULL, 10)
           : reply->type == REDIS_REPLY_INTEGER                    ? (long long)reply->integer
                                                                   : 0;
}

static void on_reply(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct admin_work *work = context;
    struct turn *turn = work->turn;
    char text[120];
    turn->work = NULL;
    turn->gone = NULL;
    if (outcome != SC_REPLY) {
        answer_failure(work, outcome, why);
    } else if (work->counts) {
        snprintf(text, sizeof text, "{\"%s\": %lld, \"dry_run\": %s}\n", work->counts, number_of(reply),
                 work->dry_run ? "true" : "false");
        answer_text(turn, text);
    } else {
        answer_text(turn, "{\"ok\": true}\n");
    }
    sc_users_put(work->user);
    free(work);
}

static void on_gone(struct turn *turn)
{
    struct admin_work *work = turn->work;
    sc_cancel(work->call);
    turn->work = NULL;
    turn->gone = NULL;
    sc_users_put(work->user);
    free(work);
}

/* ---- asking the server ------------------------------------------------------------------------------------------- */

/* The connection on which it is asked; NULL: the request was refused. */
static struct sc_client *connection_for(struct turn *turn, struct sc_user **user)
{
    struct sc_credential credential;
    bool as_user = !turn->caller.admin && !turn->caller.tells && read_user(turn, &credential);
    if (as_user)
        *user = sc_users_get(turn->flow->users, &credential, SC_USERS_LOCKED);
    explicit_bzero(&credential, sizeof credential);
    if (!as_user)
        return turn->flow->client;
    if (*user)
        return sc_users_client(*user);
    flow_turn_refuse(turn, 503, "busy", "too many users of the server at once: ask again in a second");
    return NULL;
}

static void send_words(struct turn *turn, const char *const *words, unsigned n, const char *counts, bool dry_run)
{
    struct sc_user *user = NULL;
    struct sc_client *client = connection_for(turn, &user);
    struct admin_work *work = client ? calloc(1, sizeof *work) : NULL;
    size_t bytes[WORDS_MAX];
    if (!client)
        return;
    for (unsigned i = 0; i < n; i++)
        bytes[i] = strlen(words[i]);
    if (work) {
        *work = (struct admin_work){.turn = turn, .user = user, .counts = counts, .dry_run = dry_run};
        work->call = sc_call(client, n, words, bytes, REPLY_MS, on_reply, work);
    }
    if (!work || !work->call) {
        sc_users_put(user);
        free(work);
        flow_turn_refuse(turn, 503, "no_cache", "no memory for a command");
        return;
    }
    turn->work = work;
    turn->gone = on_gone;
}

static bool is_id(const char *id)
{
    return id && strlen(id) == ID_DIGITS && strspn(id, "0123456789abcdefABCDEF") == ID_DIGITS;
}

/* The id of an entry, from one that a client was given: that of a hit, or of a miss whose answer has been put since.
 * False: the request was refused. */
static bool entry_of(struct turn *turn, const char *given, char out[ID_DIGITS + 1])
{
    uint64_t id = strtoull(given, NULL, 16);
    switch (flow_promise_find(turn->flow->promises, id, &id)) {
    case FLOW_PROMISE_OPEN:
        flow_turn_refuse(turn, 409, "not_yet_kept", "the answer of id %s is being kept: come again in a moment", given);
        return false;
    case FLOW_PROMISE_BROKEN:
        flow_turn_refuse(turn, 404, "not_kept", "the answer of id %s was not kept: there is nothing to change", given);
        return false;
    case FLOW_PROMISE_UNKNOWN:
    case FLOW_PROMISE_KEPT:
        break;
    }
    snprintf(out, ID_DIGITS + 1, "%016" PRIx64, id);
    return true;
}

static void feedback(struct turn *turn, const json_t *body)
{
    const char *id = json_string_value(json_object_get(body, "id"));
    char entry[ID_DIGITS + 1];
    const json_t *good = json_object_get(body, "good"), *similarity = json_object_get(body, "similarity");
    char sim[24];
    const char *words[6] = {"SC.FEEDBACK", turn->flow->cache, entry, json_is_true(good) ? "GOOD" : "BAD", "SIM", sim};
    if (!is_id(id) || !json_is_boolean(good)) {
        flow_turn_refuse(turn, 400, "bad_body",
                         "give {\"id\": \"16 hexadecimal digits of X-Quire-Id\", \"good\": true or "
                         "false, \"similarity\": that of the answer, where it was a hit}");
        return;
    }
    if (similarity && !json_is_null(similarity) &&
        (!json_is_number(similarity) || json_number_value(similarity) < 0 || json_number_value(similarity) > 1)) {
        flow_turn_refuse(turn, 400, "bad_body", "similarity must be a number from 0 to 1");
        return;
    }
    if (!entry_of(turn, id, entry))
        return;
    snprintf(sim, sizeof sim, "%.6f", json_number_value(similarity));
    send_words(turn, words, json_is_number(similarity) ? 6 : 4, NULL, false);
}

/* The words of a list of texts, or of one text. */
static bool add_texts(const json_t *value, const char **words, unsigned *n)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count == 0 || *n + count > WORDS_MAX - 4)
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_is_array(value) ? json_array_get(value, i) : value);
        if (!text || !*text)
            return false;
        words[(*n)++] = text;
    }
    return true;
}

static const struct {
    const char *name, *word;
} selectors[] = {{"ids", "ID"},          {"tags", "TAG"},    {"category", "CAT"},     {"model", "MODEL"},
                 {"encoder", "ENCODER"}, {"scope", "SCOPE"}, {"before_ms", "BEFORE"}, {"all", "ALL"}};
enum { SELECTORS = sizeof selectors / sizeof *selectors };

/* The words of the one selector; false: it is none. */
static bool add_selector(const char *name, const char *word, const json_t *value, const char **words, unsigned *n,
                         char number[24])
{
    words[(*n)++] = word;
    if (strcmp(name, "all") == 0)
        return json_is_true(value);
    if (strcmp(name, "before_ms") == 0) {
        snprintf(number, 24, "%lld", (long long)json_integer_value(value));
        words[(*n)++] = number;
        return json_is_integer(value) && json_integer_value(value) >= 0;
    }
    if (strcmp(name, "scope") == 0) {
        const char *key;
        json_t *text;
        json_object_foreach((json_t *)value, key, text)
        {
            words[(*n)++] = key;
            words[(*n)++] = json_string_value(text);
            return json_object_size(value) == 1 && words[*n - 1];
        }
        return false;
    }
    return add_texts(value, words, n);
}

static void invalidate(struct turn *turn, const json_t *body)
{
    const char *words[WORDS_MAX] = {"SC.INVALIDATE", turn->flow->cache}, *name;
    const json_t *dry = json_object_get(body, "dry_run");
    char number[24], ids[WORDS_MAX][ID_DIGITS + 1];
    unsigned n = 2, chosen = 0;
    bool ok = !dry || json_is_boolean(dry), dry_run = !json_is_false(dry);
    json_t *value;
    json_object_foreach((json_t *)body, name, value)
    {
        unsigned i = 0;
        while (i < SELECTORS && strcmp(selectors[i].name, name) != 0)
            i++;
        if (strcmp(name, "dry_run") == 0)
            continue;
        ok = ok && i < SELECTORS && ++chosen == 1 && add_selector(name, selectors[i].word, value, words, &n, number);
    }
    if (!ok || chosen != 1) {
        flow_turn_refuse(
            turn, 400, "bad_body",
            "give exactly one of ids, tags, category, model, encoder, scope {\"key\": \"value\"}, before_ms, all "
            "(true); it only counts unless \"dry_run\": false is given too");
        return;
    }
    for (unsigned i = 3; i < n && strcmp(words[2], "ID") == 0; i++) {
        if (is_id(words[i]) && !entry_of(turn, words[i], ids[i]))
            return;
        words[i] = is_id(words[i]) ? ids[i] : words[i];
    }
    if (dry_run)
        words[n++] = "DRYRUN";
    send_words(turn, words, n, "entries", dry_run);
}

static void with_body(struct turn *turn, void (*act)(struct turn *turn, const json_t *body))
{
    struct evbuffer *body = http_body(turn->r);
    size_t bytes = evbuffer_get_length(body);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    json_error_t where;
    json_t *root;
    if (!http_body_is_whole(turn->r)) {
        flow_turn_refuse(turn, 413, "too_large", "the body is larger than %u bytes", BODY_MAX);
        return;
    }
    root = json_loadb(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(root))
        act(turn, root);
    else
        flow_turn_refuse(turn, 400, "bad_body", "the body must be a JSON object: %s", root ? "it is none" : where.text);
    json_decref(root);
}

static bool path_is(const struct turn *turn, const char *method, const char *path)
{
    size_t bytes;
    const char *given = http_path(turn->r, &bytes);
    return strcmp(http_method(turn->r), method) == 0 && strlen(path) == bytes && memcmp(path, given, bytes) == 0;
}

static bool may_change(struct turn *turn)
{
    if (turn->caller.admin || has_user(turn))
        return true;
    flow_turn_refuse(
        turn, 403, "not_allowed",
        "this needs a user of the server who may (Authorization: Basic), the admin-key of the settings, or a "
        "key with \"admin\": true in the key file");
    return false;
}

static bool may_tell(struct turn *turn)
{
    turn->caller.tells = turn->caller.in_key_file || flow_accepted_somewhere(turn->flow, turn->caller.credential);
    if (turn->caller.admin || turn->caller.tells || has_user(turn))
        return true;
    flow_turn_refuse(turn, 401, "not_accepted", "feedback is for credentials that the upstream accepted lately");
    return false;
}

static void body_ready(struct turn *turn)
{
    with_body(turn, path_is(turn, "POST", "/quire/feedback") ? feedback : invalidate);
}

static void forget_entry(struct turn *turn, const char *target)
{
    char id[ID_DIGITS + 1];
    if (!is_id(target))
        flow_turn_refuse(turn, 400, "bad_id",
                         "DELETE /quire/entries/ID: ID is the 16 hexadecimal digits of X-Quire-Id");
    else if (entry_of(turn, target, id))
        send_words(turn, (const char *[]){"SC.DEL", turn->flow->cache, id}, 3, "removed", false);
}

void flow_admin_begin(struct turn *turn)
{
    size_t bytes;
    const char *path = http_path(turn->r, &bytes);
    bool to_tell = path_is(turn, "POST", "/quire/feedback"), to_change = path_is(turn, "POST", "/quire/invalidate");
    if (!turn->flow->client) {
        flow_turn_refuse(turn, 503, "no_cache", "the cache is off (cache-on)");
    } else if (to_tell || to_change) {
        if (!(to_tell ? may_tell(turn) : may_change(turn)))
            return;
        turn->body = body_ready;
        http_read(turn->r, BODY_MAX);
    } else if (strcmp(http_method(turn->r), "DELETE") == 0 && bytes > 15 && memcmp(path, "/quire/entries/", 15) == 0) {
        if (may_change(turn))
            forget_entry(turn, path + 15);
    } else {
        flow_turn_refuse(turn, 404, "not_found",
                         "there are POST /quire/feedback, DELETE /quire/entries/ID and POST /quire/invalidate");
    }
}
