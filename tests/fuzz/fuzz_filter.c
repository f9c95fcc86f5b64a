/*
 * fuzz_filter.c - any bytes as a FILTER expression, and any bytes as the attributes it is asked about.
 *
 * Bit 0 of the first byte declares columns (a timestamp t, an integer a, a list b); the expression ends at the first
 * line feed, what follows are attributes. What compiles can be compiled again to the same; what does not says where and
 * leaves the output alone. An element matches if and only if its values, taken apart as for columns, say so
 * (tests/filter_by_parts.h), and walking the fields finds the values that asking for each finds.
 */
#include "tests/filter_by_parts.h"
#include "tests/json_one.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

static struct attribute_schema *declare(void)
{
    static const struct quire_column columns[] = {
        {"t", QUIRE_COLUMN_TIMESTAMP, true}, {"a", QUIRE_COLUMN_INTEGER, true}, {"b", QUIRE_COLUMN_LIST, false}};
    struct attribute_schema *schema = NULL;
    require(attribute_schema_create(columns, 3, &schema, NULL) == 0);
    return schema;
}

static bool same_value(const struct json_value *a, const struct json_value *b)
{
    bool number = a->kind == VALUE_NUMBER || a->kind == VALUE_BOOL;
    return a->kind == b->kind && a->text == b->text && a->bytes == b->bytes && a->escaped == b->escaped &&
           (!number || a->number == b->number);
}

/* What walking finds of this name first. */
static struct json_value first_named(const char *json, uint32_t bytes, const struct json_value *wanted)
{
    struct json_walk walk;
    struct json_value name, value = {.kind = VALUE_NONE};
    json_walk_object(&walk, json, bytes);
    while (json_next(&walk, &name, &value))
        if (json_same_text(&name, wanted))
            return value;
    return (struct json_value){.kind = VALUE_NONE};
}

/* The first field of each name is what asking for the name finds. */
static void check_walk(const char *json, uint32_t bytes)
{
    struct json_walk walk, members;
    struct json_value name, value, member;
    uint32_t n = 0;
    json_walk_object(&walk, json, bytes);
    while (json_next(&walk, &name, &value) && n++ < 16) {
        char *plain = malloc(name.bytes + 1u);
        require(plain && name.kind == VALUE_STRING);
        uint32_t plain_bytes = json_unescape(&name, plain);
        require(plain_bytes <= name.bytes);
        struct json_value found = json_one(json, bytes, plain, plain_bytes);
        struct json_value first = first_named(json, bytes, &name);
        require(same_value(&found, &first));
        free(plain);
        json_walk_list(&members, &value);
        while (value.kind == VALUE_LIST && json_next(&members, NULL, &member))
            require(member.kind != VALUE_NONE && member.kind != VALUE_OBJECT);
    }
}

static void check_match(const struct filter *filter, const struct attribute_schema *schema, const char *json,
                        uint32_t bytes)
{
    struct parts_row row = {filter, schema, json, bytes, "name", 4};
    bool matches = filter_matches(filter, json, bytes, "name", 4);
    enum verdict verdict = parts_decide(&row);
    require(verdict == PARTS_UNKNOWN || verdict == (matches ? PARTS_YES : PARTS_NO));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct filter *filter = NULL, *again = NULL;
    struct quire_error err = {0};
    if (size == 0 || size > 1 << 17)
        return 0;
    struct attribute_schema *schema = data[0] & 1 ? declare() : NULL;
    const char *text = (const char *)data + 1;
    const char *line = memchr(text, '\n', size - 1);
    size_t bytes = line ? (size_t)(line - text) : size - 1;
    const char *json = line ? line + 1 : text + bytes;
    uint32_t json_bytes = (uint32_t)(size - 1 - bytes - (line != NULL));
    check_walk(json, json_bytes);
    int rc = filter_compile(text, bytes, schema, &filter, &err);
    if (rc == 0) {
        uint32_t n;
        const char *kept = filter_text(filter, &n);
        require(n == bytes && memcmp(kept, text, n) == 0 && filter_compile(kept, n, schema, &again, NULL) == 0);
        check_match(filter, schema, json, json_bytes);
        check_match(filter, schema, NULL, 0);
        require(filter_matches(again, json, json_bytes, "name", 4) ==
                filter_matches(filter, json, json_bytes, "name", 4));
    } else {
        require((rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT) && err.code == rc && err.message[0] && !filter);
    }
    filter_unref(again);
    filter_unref(filter);
    attribute_schema_destroy(schema);
    return 0;
}
