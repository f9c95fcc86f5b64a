/*
 * console_json.c - replies of RESP3 as JSON.
 *
 * The replies are whole (sc_scan.h has seen their ends), so every length in them holds. What a client stored may be any
 * bytes; JSON has texts of Unicode only, so what is no UTF-8 becomes U+FFFD, and nothing else is changed.
 */
#include "gateway/console/console_priv.h"
#include "gateway/store/sc_scan.h"
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *bytes;
    size_t n, at;
    bool *truncated;
};

/* ---- texts ---- */

/* Bytes of the character that begins here; 0: it is none (cut, overlong, a surrogate, too large). */
static size_t character(const unsigned char *s, size_t n)
{
    size_t bytes = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (bytes == 0 || bytes > n)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return bytes;
}

/* As UTF-8 in `out`, which has room for 3 n bytes. Returns how many. */
static size_t clean(const char *bytes, size_t n, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        size_t k = character((const unsigned char *)bytes + i, n - i);
        if (k > 0) {
            memcpy(out + used, bytes + i, k);
            used += k;
            i += k;
        } else {
            memcpy(out + used, "\xef\xbf\xbd", 3);
            used += 3;
            i++;
        }
    }
    return used;
}

json_t *console_json_text(const char *bytes, size_t n)
{
    char small[768] = "", *room = n * 3 <= sizeof small ? small : calloc(n, 3);
    json_t *text = room ? json_stringn_nocheck(room, clean(bytes, n, room)) : NULL;
    if (room != small)
        free(room);
    return text;
}

static json_t *cut_text(const struct reader *in, const char *bytes, size_t n)
{
    if (n > CONSOLE_TEXT_BYTES_MAX) {
        n = CONSOLE_TEXT_BYTES_MAX;
        while (n > CONSOLE_TEXT_BYTES_MAX - 4 && ((unsigned char)bytes[n] & 0xc0) == 0x80)
            n--; /* not within a character */
        *in->truncated = true;
    }
    return console_json_text(bytes, n);
}

/* A member whose name may be any bytes. Takes the value. */
static bool set(json_t *object, const char *name, size_t n, json_t *value)
{
    json_t *key = value ? console_json_text(name, n) : NULL;
    bool ok = key && json_object_set_nocheck(object, json_string_value(key), value) == 0;
    json_decref(key);
    json_decref(value);
    return ok;
}

/* "12" and "0.5" are numbers, all else is a text. */
static json_t *number_or_text(const char *bytes, size_t n)
{
    char text[32], *end;
    if (n == 0 || n >= sizeof text || (!isdigit((unsigned char)*bytes) && *bytes != '-') ||
        strspn(bytes, "-0123456789.e+") < n)
        return console_json_text(bytes, n);
    memcpy(text, bytes, n);
    text[n] = 0;
    if (!strpbrk(text, ".e")) {
        long long whole = strtoll(text, &end, 10);
        return *end ? console_json_text(bytes, n) : json_integer(whole);
    }
    double real = strtod(text, &end);
    return *end || !isfinite(real) ? console_json_text(bytes, n) : json_real(real);
}

/* ---- values ---- */

static json_t *read_value(struct reader *in, unsigned how, unsigned depth);

static json_t *read_double(const char *text)
{
    double value = strtod(text, NULL); /* ends at the line's end */
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *read_array(struct reader *in, uint64_t n, unsigned how, unsigned depth)
{
    json_t *array = json_array();
    for (uint64_t i = 0; i < n; i++) {
        json_t *value = read_value(in, how & CONSOLE_BYTES, depth);
        if (!array || i >= CONSOLE_ITEMS_MAX) {
            *in->truncated |= array != NULL;
            json_decref(value);
        } else if (!value || json_array_append_new(array, value) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* The text of a key, which may be a number. */
static json_t *read_key(struct reader *in, unsigned depth)
{
    char digits[24];
    json_t *key = read_value(in, 0, depth);
    if (!json_is_integer(key))
        return key;
    snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(key));
    json_decref(key);
    return json_string(digits);
}

static bool add_member(json_t *map, json_t *key, json_t *value, bool pairs)
{
    if (pairs)
        return json_array_append_new(map, json_pack("[O, O]", key, value)) == 0;
    return json_is_string(key) && json_object_set_nocheck(map, json_string_value(key), value) == 0;
}

static json_t *read_map(struct reader *in, uint64_t n, unsigned how, unsigned depth)
{
    bool pairs = how & CONSOLE_PAIRS;
    json_t *map = pairs ? json_array() : json_object();
    for (uint64_t i = 0; i < n; i++) {
        json_t *key = read_key(in, depth);
        bool bytes = (how & CONSOLE_BYTES) && json_is_string(key) && strcmp(json_string_value(key), "vector") == 0;
        json_t *value = read_value(in, bytes ? CONSOLE_BYTES : 0, depth);
        if (i >= CONSOLE_ITEMS_MAX)
            *in->truncated = true;
        else if (map && !(key && value && add_member(map, key, value, pairs))) {
            json_decref(map);
            map = NULL;
        }
        json_decref(key);
        json_decref(value);
    }
    return map;
}

static json_t *text_of_bytes(const unsigned char *bytes, size_t n)
{
    char *room = calloc(n + 1, 2);
    size_t used = 0;
    for (size_t i = 0; room && i < n; i++) {
        if (bytes[i] >= 0x80)
            room[used++] = (char)(0xc0 | bytes[i] >> 6);
        room[used++] = (char)(bytes[i] >= 0x80 ? 0x80 | (bytes[i] & 0x3f) : bytes[i]);
    }
    json_t *text = room ? json_stringn_nocheck(room, used) : NULL;
    free(room);
    return text;
}

size_t console_json_bytes(const json_t *text, unsigned char *out, size_t room)
{
    const unsigned char *at = (const unsigned char *)json_string_value(text);
    size_t n = json_string_length(text), used = 0;
    for (size_t i = 0; i < n && used < room; i++) {
        bool two = at[i] >= 0x80 && i + 1 < n;
        out[used++] = (unsigned char)(two ? (at[i] & 3) << 6 | (at[i + 1] & 0x3f) : at[i]);
        i += two;
    }
    return used;
}

static json_t *read_info(const char *bytes, size_t n, bool section);
static json_t *read_clients(const char *bytes, size_t n, bool *truncated);

static json_t *read_bulk(struct reader *in, const char *bytes, size_t n, unsigned how)
{
    if (how & CONSOLE_INFO)
        return read_info(bytes, n, how & CONSOLE_SECTION);
    if (how & CONSOLE_BYTES)
        return text_of_bytes((const unsigned char *)bytes, n);
    if (how & CONSOLE_CLIENTS)
        return read_clients(bytes, n, in->truncated);
    return cut_text(in, bytes, n);
}

static json_t *read_value(struct reader *in, unsigned how, unsigned depth)
{
    struct sc_line line;
    bool broken;
    const char *text = in->bytes + in->at + 1;
    if (!sc_scan_line(in->bytes + in->at, in->n - in->at, &line, &broken) || depth > SC_SCAN_DEPTH)
        return NULL;
    in->at += line.bytes;
    switch (line.type) {
    case ':':
        return json_integer(line.number);
    case ',':
        return read_double(text);
    case '#':
        return json_boolean(*text == 't');
    case '_':
        return json_null();
    case '*':
    case '~':
    case '>':
        return line.number < 0 ? json_null() : read_array(in, (uint64_t)line.number, how, depth + 1);
    case '%':
        return line.number < 0 ? json_null()
                               : read_map(in, (uint64_t)line.number, how & (CONSOLE_PAIRS | CONSOLE_BYTES), depth + 1);
    case '$':
    case '=':
    case '!':
        if (line.number < 0)
            return json_null();
        text = in->bytes + in->at;
        in->at += (size_t)line.number + 2;
        size_t kind = line.type == '=' && line.number >= 4 ? 4 : 0; /* "txt:" */
        return read_bulk(in, text + kind, (size_t)line.number - kind, how);
    default: /* + - ( */
        return read_bulk(in, text, line.bytes - 3, how);
    }
}

json_t *console_json(const char *bytes, size_t n, unsigned how, bool *truncated)
{
    struct reader in = {.bytes = bytes, .n = n, .truncated = truncated};
    json_t *value;
    struct sc_line line;
    bool broken;
    /* an array of a map and something else (VSIM ... EXPLAIN): the map is its first element */
    if ((how & CONSOLE_PAIRS) && n > 0 && *bytes == '*' && sc_scan_line(bytes, n, &line, &broken) && line.number > 0) {
        in.at = line.bytes;
        value = json_array();
        for (int64_t i = 0; i < line.number && value; i++) {
            if (json_array_append_new(value, read_value(&in, i == 0 ? how : 0, 1)) != 0) {
                json_decref(value);
                value = NULL;
            }
        }
    } else
        value = read_value(&in, how, 0);
    assert(in.at <= n);
    return value;
}

/* ---- texts with fields ---- */

/* Whether the value of a field is a text, also where it looks like a number: names that people give. */
static bool is_name(const char *key, size_t n)
{
    static const char *const names[] = {"name", "user", "lib-name", "lib-ver", "run_id", "cmd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], key, n) == 0)
            return true;
    }
    return false;
}

static json_t *named_value(const char *key, size_t key_bytes, const char *bytes, size_t n)
{
    return is_name(key, key_bytes) ? console_json_text(bytes, n) : number_or_text(bytes, n);
}

/* "a=1,b=2" or "a=1 b=2" as an object. */
static json_t *read_fields(const char *bytes, size_t n, char between)
{
    json_t *object = json_object();
    for (const char *at = bytes, *end = bytes + n; object && at < end;) {
        const char *stop = memchr(at, between, (size_t)(end - at));
        stop = stop ? stop : end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        if (equals && !set(object, at, (size_t)(equals - at),
                           named_value(at, (size_t)(equals - at), equals + 1, (size_t)(stop - equals) - 1))) {
            json_decref(object);
            return NULL;
        }
        at = stop + 1;
    }
    return object;
}

static json_t *field_value(const char *key, size_t key_bytes, const char *bytes, size_t n)
{
    const char *equals = memchr(bytes, '=', n), *comma = memchr(bytes, ',', n);
    if (equals && comma && equals < comma)
        return read_fields(bytes, n, ',');
    return named_value(key, key_bytes, bytes, n);
}

/* "# Cache" begins the section cache. */
static json_t *begin_section(json_t *all, const char *name, size_t n)
{
    char lower[64];
    size_t used = 0;
    for (; used < n && used < sizeof lower - 1; used++)
        lower[used] = (char)tolower((unsigned char)name[used]);
    json_t *section = json_object();
    return set(all, lower, used, section) ? section : NULL; /* alive: `all` has it */
}

static bool read_info_line(json_t *all, json_t **section, const char *line, size_t n)
{
    if (n > 2 && line[0] == '#')
        return (*section = begin_section(all, line + 2, n - 2)) != NULL;
    const char *colon = memchr(line, ':', n);
    if (!colon || !*section)
        return true;
    return set(*section, line, (size_t)(colon - line),
               field_value(line, (size_t)(colon - line), colon + 1, n - (size_t)(colon - line) - 1));
}

static json_t *read_info(const char *bytes, size_t n, bool section_only)
{
    json_t *all = json_object(), *section = NULL;
    for (const char *at = bytes, *end = bytes + n; all && at < end;) {
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        stop = stop ? stop : end;
        if (!read_info_line(all, &section, at, (size_t)(stop - at))) {
            json_decref(all);
            return NULL;
        }
        at = stop + 2;
    }
    if (!section_only || !all)
        return all;
    section = section ? json_incref(section) : json_object();
    json_decref(all);
    return section;
}

#define CLIENTS_MAX 256u

static json_t *read_clients(const char *bytes, size_t n, bool *truncated)
{
    json_t *clients = json_array();
    for (const char *at = bytes, *end = bytes + n; clients && at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (json_array_size(clients) == CLIENTS_MAX) {
            *truncated = true;
            break;
        }
        if (stop > at && json_array_append_new(clients, read_fields(at, (size_t)(stop - at), ' ')) != 0) {
            json_decref(clients);
            return NULL;
        }
        at = stop + 1;
    }
    return clients;
}
