/*
 * onward.c - edits of a body by the places of its nodes: the bytes between them are the client's own.
 *
 * An edit takes some bytes out and puts others there; edits do not overlap, because they are of different members at
 * the top. A member that goes takes one comma with it: the one before it, or of the first member the one behind it.
 */
#include "gateway/text/onward.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { EDITS_MAX = 5 };

struct edit {
    size_t at, bytes;        /* taken out */
    struct strict_text text; /* put there */
    const char *behind;      /* and behind it: "" or a comma */
};

struct plan {
    const struct ask *ask;
    const struct strict *json;
    struct edit edits[EDITS_MAX];
    uint32_t n;
    uint32_t members; /* at the top, of those that stay */
};

static const char usage_value[] = "{\"include_usage\":true}", usage_member[] = "\"include_usage\":true",
                  options_member[] = "\"stream_options\":{\"include_usage\":true}";

static struct strict_text text_of(const char *text)
{
    return (struct strict_text){text, strlen(text)};
}

/* In the order of the text; what is put at a place comes before what is taken out there. */
static void add(struct plan *plan, size_t at, size_t bytes, struct strict_text text, const char *behind)
{
    uint32_t i = plan->n++;
    assert(plan->n <= EDITS_MAX);
    for (; i > 0; i--) {
        const struct edit *before = &plan->edits[i - 1];
        if (before->at < at || (before->at == at && (before->bytes == 0 || bytes > 0)))
            break;
        plan->edits[i] = *before;
    }
    plan->edits[i] = (struct edit){at, bytes, text, behind};
}

static void replace(struct plan *plan, uint32_t node, struct strict_text text)
{
    struct strict_text raw = strict_raw(plan->json, node);
    add(plan, (size_t)(raw.data - plan->json->text), raw.bytes, text, "");
}

/* In front of the first member of an object that has `members` others. */
static void insert(struct plan *plan, uint32_t object, struct strict_text text, uint32_t members)
{
    add(plan, plan->json->nodes[object].at + 1u, 0, text, members > 0 ? "," : "");
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void remove_member(struct plan *plan, uint32_t value)
{
    const char *text = plan->json->text;
    struct strict_text raw = strict_raw(plan->json, value), name = strict_raw(plan->json, value - 1);
    size_t begin = (size_t)(name.data - text), end = (size_t)(raw.data - text) + raw.bytes, before = begin;
    while (is_space(text[before - 1]))
        before--;
    if (text[before - 1] == ',') {
        begin = before - 1;
    } else {
        size_t behind = end;
        while (is_space(text[behind]))
            behind++;
        end = text[behind] == ',' ? behind + 1 : end;
    }
    add(plan, begin, end - begin, text_of(""), "");
}

static void ask_for_usage(struct plan *plan)
{
    const struct ask *ask = plan->ask;
    uint32_t options = ask->node_stream_options;
    bool streams = ask->features & ASK_STREAM && (ask->kind == ASK_CHAT || ask->kind == ASK_COMPLETIONS);
    if (!streams || ask->features & ASK_USAGE)
        return;
    if (!options) {
        insert(plan, STRICT_ROOT, text_of(options_member), plan->members);
        plan->members++;
    } else if (strict_kind(plan->json, options) == STRICT_OBJECT) {
        uint32_t usage = strict_member(plan->json, options, "include_usage");
        if (usage)
            replace(plan, usage, text_of("true"));
        else
            insert(plan, options, text_of(usage_member), plan->json->nodes[options].n);
    } else if (strict_kind(plan->json, options) == STRICT_NULL) {
        replace(plan, options, text_of(usage_value));
    }
}

static int set_model(struct plan *plan, struct onward *onward, struct strict_text model, struct quire_error *err)
{
    static const char name[] = "\"model\":";
    if (model.bytes > ONWARD_MODEL_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "the model's name has %zu bytes, at most %d are allowed: name it shorter",
                         model.bytes, ONWARD_MODEL_BYTES_MAX);
    memcpy(onward->model, name, sizeof name - 1);
    size_t bytes = strict_quote(model.data, model.bytes, onward->model + sizeof name - 1);
    if (bytes == 0)
        return error_set(err, QUIRE_EINVALID, "the model's name is no UTF-8");
    if (plan->ask->node_model) {
        struct strict_text old = strict_raw(plan->json, plan->ask->node_model);
        struct strict_text new = {onward->model + sizeof name - 1, bytes};
        if (old.bytes != new.bytes || memcmp(old.data, new.data, new.bytes) != 0)
            replace(plan, plan->ask->node_model, new);
        return 0;
    }
    if (strict_member(plan->json, STRICT_ROOT, "model"))
        return error_set(err, QUIRE_EINVALID, "the body's model is null, so no other name can take its place");
    insert(plan, STRICT_ROOT, (struct strict_text){onward->model, sizeof name - 1 + bytes}, plan->members);
    plan->members++;
    return 0;
}

/* The wanted items of `input` as a list of their own. */
static int set_items(struct plan *plan, struct onward *onward, const struct onward_edits *edits,
                     struct quire_error *err)
{
    const struct ask *ask = plan->ask;
    size_t bytes = 2, n = 0;
    if (ask->kind != ASK_EMBEDDINGS || ask->odd)
        return error_set(err, QUIRE_EINVALID, "the request has no items to choose from");
    for (uint32_t i = 0; i < edits->n_items; i++) {
        if (edits->items[i] >= ask->items)
            return error_set(err, QUIRE_EINVALID, "item %u of a request with %u", edits->items[i], ask->items);
        bytes += strict_raw(plan->json, ask_item(ask, edits->items[i])).bytes + 1;
    }
    onward->input = malloc(bytes);
    if (!onward->input)
        return error_set(err, QUIRE_ENOMEM, "no memory for an input of %zu bytes", bytes);
    onward->input[n++] = '[';
    for (uint32_t i = 0; i < edits->n_items; i++) {
        struct strict_text raw = strict_raw(plan->json, ask_item(ask, edits->items[i]));
        if (i > 0)
            onward->input[n++] = ',';
        memcpy(onward->input + n, raw.data, raw.bytes);
        n += raw.bytes;
    }
    onward->input[n++] = ']';
    assert(n <= bytes);
    replace(plan, ask->node_input, (struct strict_text){onward->input, n});
    return 0;
}

static void add_piece(struct onward *onward, const char *data, size_t bytes)
{
    if (bytes == 0)
        return;
    assert(onward->n_pieces < ONWARD_PIECES_MAX);
    onward->pieces[onward->n_pieces++] = (struct strict_text){data, bytes};
    onward->bytes += bytes;
}

static void cut_pieces(const struct plan *plan, struct onward *onward)
{
    const char *text = plan->json->text;
    size_t at = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct edit *edit = &plan->edits[i];
        assert(edit->at >= at);
        add_piece(onward, text + at, edit->at - at);
        add_piece(onward, edit->text.data, edit->text.bytes);
        add_piece(onward, edit->behind, strlen(edit->behind));
        at = edit->at + edit->bytes;
    }
    add_piece(onward, text + at, plan->json->text_bytes - at);
    onward->edited = plan->n > 0;
}

int onward_plan(struct onward *onward, const struct ask *ask, const struct onward_edits *edits, struct quire_error *err)
{
    struct plan plan = {.ask = ask, .json = ask->json, .members = ask->json->nodes[STRICT_ROOT].n};
    int rc = 0;
    onward->n_pieces = 0;
    onward->bytes = 0;
    onward->edited = false;
    onward->input = NULL;
    if (edits->drop_cache && ask->node_cache) {
        remove_member(&plan, ask->node_cache);
        plan.members--;
    }
    if (edits->items)
        rc = set_items(&plan, onward, edits, err);
    if (rc == 0 && edits->model.data)
        rc = set_model(&plan, onward, edits->model, err);
    if (rc == 0 && edits->include_usage)
        ask_for_usage(&plan);
    if (rc < 0) {
        onward_fini(onward);
        return rc;
    }
    cut_pieces(&plan, onward);
    return 0;
}

void onward_copy(const struct onward *onward, char *out)
{
    for (uint32_t i = 0; i < onward->n_pieces; i++) {
        memcpy(out, onward->pieces[i].data, onward->pieces[i].bytes);
        out += onward->pieces[i].bytes;
    }
}

void onward_fini(struct onward *onward)
{
    free(onward->input);
    onward->input = NULL;
    onward->n_pieces = 0;
    onward->bytes = 0;
}
