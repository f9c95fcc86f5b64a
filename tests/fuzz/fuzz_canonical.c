/*
 * fuzz_canonical.c - any bytes as the body of a request: the strict reader, what it asks, its keys, and its way onward.
 *
 * The first byte chooses the route and the masks. What reads writes canonical JSON that reads and writes itself again;
 * the body and its canonical JSON have the same keys, and are odd for the same reason. The body as it goes onward
 * reads, and edits of what is no part of the key (usage, LiteLLM's cache) leave the keys alone. Texts of the request
 * are not longer than the body, and each item of an embeddings request has a key of its own place or text.
 */
#include "gateway/text/canonical.h"
#include "gateway/text/onward.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 16, ITEMS_LOOKED_AT = 4 };

static struct canonical *canonical;
static struct canonical_options options = {.path = "/v1/x", .upstream = "u"};

static void require(bool right)
{
    if (!right)
        abort();
}

static int read_body(struct strict *json, const char *text, size_t bytes)
{
    struct quire_error err = {0};
    int rc = strict_read(json, text, bytes, &err);
    require(rc == 0 || ((rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT) && err.code == rc && err.message[0]));
    return rc;
}

/* Canonical JSON of what was read; the same again of that. */
static char *canonical_of(const struct strict *json, size_t *bytes)
{
    struct strict again = {0};
    char *text, *other;
    size_t other_bytes;
    require(canonical_json(json, &text, bytes, NULL) == 0);
    require(read_body(&again, text, *bytes) == 0 && again.n_nodes == json->n_nodes);
    require(canonical_json(&again, &other, &other_bytes, NULL) == 0);
    require(other_bytes == *bytes && memcmp(text, other, *bytes) == 0);
    strict_fini(&again);
    free(other);
    return text;
}

static void check_nodes(const struct strict *json)
{
    for (uint32_t i = 0; i < json->n_nodes; i++) {
        const struct strict_node *node = &json->nodes[i];
        struct strict_text raw = strict_raw(json, i);
        require(node->next > i && node->next <= json->n_nodes);
        require(raw.data >= json->text && raw.data + raw.bytes <= json->text + json->text_bytes);
        require(node->kind != STRICT_STRING || strict_spelling(json, i).bytes <= node->bytes);
    }
}

static struct canonical_keys keys_of(const struct ask *ask)
{
    struct canonical_keys keys;
    require(canonical_keys(canonical, ask, &options, &keys, NULL) == 0);
    return keys;
}

static void require_same_keys(const struct ask *a, const struct ask *b)
{
    require((a->odd == NULL) == (b->odd == NULL) && (!a->odd || strcmp(a->odd, b->odd) == 0));
    if (a->odd)
        return;
    struct canonical_keys x = keys_of(a), y = keys_of(b);
    require(memcmp(&x, &y, sizeof x) == 0);
}

static void check_items(const struct ask *ask)
{
    struct canonical_keys keys = keys_of(ask);
    uint8_t hash[ITEMS_LOOKED_AT][CANONICAL_HASH_BYTES];
    for (uint32_t i = 0; i < ask->items && i < ITEMS_LOOKED_AT; i++) {
        require(canonical_item(canonical, ask, &keys, i, hash[i], NULL) == 0);
        struct strict_text text = strict_raw(ask->json, ask_item(ask, i));
        for (uint32_t j = 0; j < i; j++) {
            struct strict_text other = strict_raw(ask->json, ask_item(ask, j));
            bool same = text.bytes == other.bytes && memcmp(text.data, other.data, text.bytes) == 0;
            require(!same || memcmp(hash[i], hash[j], CANONICAL_HASH_BYTES) == 0);
        }
    }
}

/* Usage and cache are left out of keys, so the body that goes on has those of the one that came. */
static void check_onward(const struct ask *ask)
{
    const struct onward_edits edits = {.drop_cache = true, .include_usage = true};
    struct onward onward;
    struct strict json = {0};
    struct ask other = {0};
    require(onward_plan(&onward, ask, &edits, NULL) == 0);
    require(onward.edited || (onward.n_pieces == 1 && onward.pieces[0].data == ask->json->text));
    char *body = malloc(onward.bytes);
    require(body != NULL);
    onward_copy(&onward, body);
    require(read_body(&json, body, onward.bytes) == 0 && ask_read(&other, ask->kind, &json, NULL) == 0);
    if (!ask->odd) {
        require_same_keys(ask, &other);
        require(!other.node_cache);
    }
    ask_fini(&other);
    strict_fini(&json);
    onward_fini(&onward);
    free(body);
}

static void check_request(const struct strict *json, enum ask_kind kind, const char *text, size_t bytes)
{
    struct strict plain = {0};
    struct ask ask = {0}, other = {0};
    require(read_body(&plain, text, bytes) == 0);
    int rc = ask_read(&ask, kind, json, NULL);
    require(rc == ask_read(&other, kind, &plain, NULL));
    require((rc == 0) == (strict_kind(json, STRICT_ROOT) == STRICT_OBJECT));
    if (rc == 0) {
        require(ask.question.bytes + ask.system.bytes <= json->text_bytes);
        require(ask.features == other.features && ask.user_turns == other.user_turns && ask.items == other.items);
        require(ask.question.bytes == other.question.bytes && ask.system.bytes == other.system.bytes);
        require_same_keys(&ask, &other);
        if (kind == ASK_EMBEDDINGS && !ask.odd)
            check_items(&ask);
        check_onward(&ask);
    }
    ask_fini(&ask);
    ask_fini(&other);
    strict_fini(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct strict json = {0};
    if (size == 0 || size > INPUT_BYTES_MAX)
        return 0;
    if (!canonical)
        require(canonical_create(&canonical, NULL) == 0);
    options.masks = data[0] >> 5;
    if (read_body(&json, (const char *)data + 1, size - 1) == 0) {
        size_t bytes;
        check_nodes(&json);
        char *text = canonical_of(&json, &bytes);
        check_request(&json, (enum ask_kind)(data[0] % 5), text, bytes);
        free(text);
    }
    strict_fini(&json);
    return 0;
}
