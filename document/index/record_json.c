/*
 * record_json.c - JSON documents become records: each field is what its path leads to.
 *
 * null counts as nothing. A path that leads to several values, or to an array, gives a TEXT, TAG, NUMERIC or GEO field
 * several values; a vector is one array of numbers. Anything else leaves the document out.
 */
#include "document/index/record_read_priv.h"
#include "index/kernels/kernels.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static int bad_type(const struct record_reading *r, const struct schema_field *f, const json_t *value)
{
    static const char *const wanted[] = {"a string or an array of strings", "a string, a boolean or an array of those",
                                         "a number or an array of numbers",
                                         "\"longitude,latitude\" or an array of those", "an array of numbers"};
    return error_set(r->err, QUIRE_EINVALID, "Invalid JSON type: Field `%s` holds %s, and takes %s", f->name,
                     tree_type_name(value), wanted[f->type]);
}

/* What one JSON value says; false: nothing that the type takes. */
static bool read_value(enum schema_type type, const json_t *value, struct record_value *out)
{
    if (type == SCHEMA_NUMERIC) {
        out->number = json_number_value(value);
        return json_is_number(value);
    }
    if (type == SCHEMA_TAG && json_is_boolean(value)) {
        out->text = json_is_true(value) ? "true" : "false";
        out->bytes = (uint32_t)strlen(out->text);
        return true;
    }
    if (!json_is_string(value))
        return false;
    out->text = json_string_value(value);
    out->bytes = (uint32_t)json_string_length(value);
    return type != SCHEMA_GEO || record_place(out->text, out->bytes, &out->number, &out->latitude);
}

static int read_values(struct record_reading *r, const struct schema_field *f, struct record_field *field)
{
    const struct jsonpath_matches *found = r->matches;
    size_t most = 0, n = 0;
    for (size_t i = 0; i < found->n; i++)
        most += json_is_array(found->items[i].value) ? json_array_size(found->items[i].value) : 1;
    if (most > UINT32_MAX)
        return error_set(r->err, QUIRE_ELIMIT, "Field `%s` has more than %u values", f->name, UINT32_MAX);
    struct record_value *values = record_values(r, field, (uint32_t)most);
    if (!values)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for a document's fields");
    for (size_t i = 0; i < found->n; i++) {
        const json_t *value = found->items[i].value;
        size_t members = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t j = 0; j < members; j++) {
            const json_t *one = json_is_array(value) ? json_array_get(value, j) : value;
            if (json_is_null(one))
                continue;
            if (!read_value(f->type, one, &values[n++]))
                return bad_type(r, f, one);
        }
    }
    field->n_values = (uint32_t)n;
    if (n == 0 && !(found->n == 1 && json_is_array(found->items[0].value)))
        field->present = false; /* nothing but null */
    return 0;
}

static bool store_element(enum schema_element element, double x, uint8_t *to)
{
    float single = (float)x;
    uint16_t half;
    switch (element) {
    case SCHEMA_FLOAT64:
        memcpy(to, &x, sizeof x);
        return true;
    case SCHEMA_FLOAT32:
        memcpy(to, &single, sizeof single);
        return isfinite(single);
    case SCHEMA_FLOAT16:
        kernels()->f16_from_f32(&single, &half, 1);
        memcpy(to, &half, sizeof half);
        return (half & 0x7c00u) != 0x7c00u;
    case SCHEMA_BFLOAT16:
        kernels()->bf16_from_f32(&single, &half, 1);
        memcpy(to, &half, sizeof half);
        return (half & 0x7f80u) != 0x7f80u;
    case SCHEMA_INT8:
        *to = (uint8_t)(int8_t)x;
        return x >= -128 && x <= 127 && x == floor(x);
    case SCHEMA_UINT8:
        *to = (uint8_t)x;
        return x >= 0 && x <= 255 && x == floor(x);
    }
    return false;
}

static int read_vector(struct record_reading *r, const struct schema_field *f, struct record_field *field)
{
    const json_t *array = r->matches->items[0].value;
    size_t step = schema_element_bytes(f->vector.element);
    if (r->matches->n > 1)
        return error_set(r->err, QUIRE_EUNSUPPORTED,
                         "Field `%s`: several vectors of one document are not supported by Quire", f->name);
    if (json_is_null(array))
        return 0;
    if (!json_is_array(array))
        return bad_type(r, f, array);
    if (json_array_size(array) != f->vector.dim)
        return error_set(r->err, QUIRE_EDIM, "Invalid vector length. Expected %u, got %zu", f->vector.dim,
                         json_array_size(array));
    struct record_value *value = record_values(r, field, 1);
    uint8_t *to = arena_take(r->arena, f->vector.dim * step);
    if (!value || !to)
        return error_set(r->err, QUIRE_ENOMEM, "no memory for a document's fields");
    for (uint32_t i = 0; i < f->vector.dim; i++) {
        const json_t *one = json_array_get(array, i);
        if (!json_is_number(one))
            return bad_type(r, f, one);
        if (!store_element(f->vector.element, json_number_value(one), to + i * step))
            return error_set(r->err, QUIRE_ERANGE, "Field `%s`: element %u of the vector, %g, does not fit its type",
                             f->name, i, json_number_value(one));
    }
    value->text = (const char *)to;
    value->bytes = (uint32_t)(f->vector.dim * step);
    return 0;
}

int record_json_first(struct record_reading *r, const struct jsonpath *path, json_t *root, const json_t **out)
{
    *out = NULL;
    int rc = path ? jsonpath_find(path, root, r->matches, r->err) : 0;
    if (path && rc == 0 && r->matches->n > 0)
        *out = r->matches->items[0].value;
    return rc;
}

int record_read_json(struct record_reading *r, struct jsonpath *const *paths, json_t *root)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->schema->n_fields && rc == 0; i++) {
        const struct schema_field *f = &r->schema->fields[i];
        rc = jsonpath_find(paths[i], root, r->matches, r->err);
        if (rc == 0 && r->matches->n > 0)
            rc = f->type == SCHEMA_VECTOR ? read_vector(r, f, &r->fields[i]) : read_values(r, f, &r->fields[i]);
    }
    return rc;
}
