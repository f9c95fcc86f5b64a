/*
 * fuzz_jsonpath.c - any bytes as a JSON document, and any bytes as a path into it.
 *
 * The path ends at the first line feed, what follows is the document. What parses prints, and what is printed parses to
 * an equal document that prints the same. What a path finds is in the document, each value at the place that it names;
 * the values of `$..*` are all there are. Removing what is found removes each place once, and a document merged with
 * another is within its limits or refused. The document also is taken as a packed one (tree.h), and packed.
 */
#include "document/json/edit.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 16 };

static void require(bool right)
{
    if (!right)
        abort();
}

static json_t *parsed(const char *text, size_t bytes)
{
    struct quire_error err = {0};
    json_t *root = NULL;
    int rc = tree_parse(text, bytes, &root, &err);
    require(rc == 0 ? root != NULL : !root && err.code == rc && err.message[0]);
    require(rc == 0 || rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT);
    return root;
}

static void print(const json_t *root, struct tree_text *out)
{
    *out = (struct tree_text){.data = NULL};
    tree_print(root, NULL, 0, out);
    require(!out->failed && out->bytes > 0);
}

static void check_text(const json_t *root)
{
    struct tree_text text, again;
    require(tree_check(root, NULL) == 0);
    print(root, &text);
    json_t *other = parsed(text.data, text.bytes);
    require(other && json_equal(root, other));
    print(other, &again);
    require(text.bytes == again.bytes && memcmp(text.data, again.data, text.bytes) == 0);
    tree_text_fini(&text);
    tree_text_fini(&again);
    json_decref(other);
}

/* What it packs to is the same document. */
static void check_packed(const json_t *root)
{
    struct tree_text text, packed = {.data = NULL}, unpacked = {.data = NULL};
    json_t *other;
    print(root, &text);
    tree_pack(root, 0, &packed);
    require(!packed.failed && packed.bytes <= text.bytes);
    require(tree_unpack_text(packed.data, packed.bytes, &unpacked, NULL) == 0 && unpacked.bytes == text.bytes &&
            memcmp(unpacked.data, text.data, text.bytes) == 0);
    require(tree_unpack(packed.data, packed.bytes, &other, NULL) == 0 && json_equal(root, other));
    json_decref(other);
    tree_text_fini(&text);
    tree_text_fini(&packed);
    tree_text_fini(&unpacked);
}

/* Any bytes as a packed document: if they are one, it is the document that its text is. */
static void check_unpacked(const char *document, size_t bytes)
{
    struct tree_text text = {.data = NULL};
    json_t *root, *other;
    bool is_one = tree_unpack(document, bytes, &root, NULL) == 0;
    int rc = tree_unpack_text(document, bytes, &text, NULL);
    require(rc == 0 || (rc == QUIRE_ECORRUPT && !is_one));
    if (is_one) {
        other = parsed(text.data, text.bytes);
        require(other && json_equal(root, other));
        check_packed(root);
        json_decref(other);
        json_decref(root);
    }
    tree_text_fini(&text);
}

static void check_places(json_t *root, const struct jsonpath_matches *found)
{
    for (size_t i = 0; i < found->n; i++) {
        const struct jsonpath_match *m = &found->items[i];
        require(edit_get(root, m) == m->value && (m->parent != NULL) == (m->up != JSONPATH_NONE));
        for (uint32_t up = m->up; up != JSONPATH_NONE; up = found->nodes[up].up)
            require(edit_get(root, &found->nodes[up]) == found->nodes[up].value);
    }
}

static void check_all(json_t *root, struct jsonpath_matches *found)
{
    struct jsonpath *path;
    require(jsonpath_compile("$..*", 4, &path, NULL) == 0);
    require(jsonpath_find(path, root, found, NULL) == 0 && found->n + 1 == tree_count(root, TREE_VALUES_MAX));
    jsonpath_free(path);
}

/* On a tree of its own. */
static void check_removal(const struct jsonpath *path, const char *text, size_t bytes)
{
    struct jsonpath_matches found = {.items = NULL};
    struct edit_plan plan;
    json_t *root = parsed(text, bytes);
    if (jsonpath_find(path, root, &found, NULL) == 0) {
        require(edit_plan(&found, true, &plan, NULL) == 0 && plan.n <= found.n && (plan.n > 0) == (found.n > 0));
        for (size_t i = 0; i < plan.n; i++)
            require(edit_remove(&found.items[plan.items[i]]));
        edit_plan_fini(&plan);
        check_text(root);
    }
    jsonpath_matches_fini(&found);
    json_decref(root);
}

static void check_merge(const struct jsonpath *path, const char *text, size_t bytes)
{
    struct jsonpath_matches found = {.items = NULL};
    struct edit_plan plan;
    json_t *root = parsed(text, bytes), *patch = parsed(text, bytes);
    if (jsonpath_find(path, root, &found, NULL) == 0 && found.n < 64) {
        require(edit_plan(&found, false, &plan, NULL) == 0 && plan.n == found.n);
        for (size_t i = 0; i < plan.n; i++)
            require(edit_merge(&root, &found.items[plan.items[i]], patch, NULL) == 0);
        edit_plan_fini(&plan);
        struct tree_text out = {.most = 1 << 20};
        if (tree_check(root, NULL) == 0)
            tree_print(root, NULL, 0, &out);
        tree_text_fini(&out);
    }
    jsonpath_matches_fini(&found);
    json_decref(patch);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonpath *path = NULL;
    struct jsonpath_matches found = {.items = NULL};
    struct quire_error err = {0};
    if (size == 0 || size > INPUT_BYTES_MAX)
        return 0;
    const char *text = (const char *)data, *line = memchr(text, '\n', size);
    size_t bytes = line ? (size_t)(line - text) : size;
    const char *document = line ? line + 1 : text + bytes;
    size_t document_bytes = size - bytes - (line != NULL);
    int rc = jsonpath_compile(text, bytes, &path, &err);
    require(rc == 0 ? path != NULL : (rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT) && err.message[0] && !path);
    json_t *root = parsed(document, document_bytes);
    check_unpacked(document, document_bytes);
    if (root) {
        check_text(root);
        check_all(root, &found);
    }
    if (root && path && jsonpath_find(path, root, &found, &err) == 0) {
        require(!jsonpath_is_static(path) || found.n <= 1);
        check_places(root, &found);
        if (!jsonpath_is_root(path))
            check_removal(path, document, document_bytes);
        check_merge(path, document, document_bytes);
    } else if (root && path) {
        require(err.code == QUIRE_ELIMIT && found.n == 0);
    }
    jsonpath_matches_fini(&found);
    json_decref(root);
    jsonpath_free(path);
    return 0;
}
