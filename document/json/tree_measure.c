/*
 * tree_measure.c - what can be said of a tree: its limits, its memory, the names of its types.
 */
#include "document/json/tree.h"
#include "io/error.h"

/* jansson's blocks, as they are on a 64-bit machine */
enum { OBJECT_BYTES = 208, MEMBER_BYTES = 56, ARRAY_BYTES = 64, STRING_BYTES = 40, NUMBER_BYTES = 24 };

struct measure {
    size_t n_values, most;
    unsigned deepest;
};

/* Stops where there is enough to say that it is too much. */
static void measure(const json_t *value, unsigned level, struct measure *m)
{
    json_t *object = (json_t *)(uintptr_t)value; /* iterating changes nothing */
    m->n_values++;
    if (!json_is_object(value) && !json_is_array(value))
        return;
    m->deepest = level + 1 > m->deepest ? level + 1 : m->deepest;
    for (size_t i = 0; i < json_array_size(value) && m->n_values < m->most && m->deepest <= TREE_DEPTH_MAX; i++)
        measure(json_array_get(value, i), level + 1, m);
    void *at = json_object_iter(object);
    for (; at && m->n_values < m->most && m->deepest <= TREE_DEPTH_MAX; at = json_object_iter_next(object, at))
        measure(json_object_iter_value(at), level + 1, m);
}

int tree_check(const json_t *value, struct quire_error *err)
{
    struct measure m = {.most = TREE_VALUES_MAX};
    measure(value, 0, &m);
    if (m.deepest > TREE_DEPTH_MAX)
        return error_set(err, QUIRE_ELIMIT,
                         "recursion limit exceeded: a document has at most %u levels of arrays and objects, this one "
                         "would have more; make it flatter",
                         TREE_DEPTH_MAX);
    if (m.n_values >= TREE_VALUES_MAX)
        return error_set(err, QUIRE_ELIMIT, "a document has at most %u values, this one would have more: split it",
                         TREE_VALUES_MAX);
    return 0;
}

size_t tree_count(const json_t *value, size_t most)
{
    struct measure m = {.most = most};
    measure(value, 0, &m);
    return m.n_values;
}

size_t tree_memory_bytes(const json_t *value)
{
    json_t *object = (json_t *)(uintptr_t)value;
    size_t bytes = 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        bytes = OBJECT_BYTES;
        for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
            bytes += MEMBER_BYTES + json_object_iter_key_len(at) + tree_memory_bytes(json_object_iter_value(at));
        return bytes;
    case JSON_ARRAY:
        bytes = ARRAY_BYTES;
        for (size_t i = 0; i < json_array_size(value); i++)
            bytes += sizeof value + tree_memory_bytes(json_array_get(value, i));
        return bytes;
    case JSON_STRING:
        return STRING_BYTES + json_string_length(value);
    case JSON_INTEGER:
    case JSON_REAL:
        return NUMBER_BYTES;
    default:
        return 0; /* shared by all documents */
    }
}

const char *tree_type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array",  [JSON_STRING] = "string", [JSON_INTEGER] = "integer",
        [JSON_REAL] = "number",   [JSON_TRUE] = "boolean", [JSON_FALSE] = "boolean", [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}
