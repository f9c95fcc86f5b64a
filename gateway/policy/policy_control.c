/*
 * policy_control.c - the words of a request about the cache.
 *
 * Cache-Control is HTTP's and comes from libraries that know nothing of us: what is not understood there is ignored,
 * as RFC 9111 wants it, and so is what the setting `controls` does not allow. X-Quire-* comes from somebody who means
 * us: what is not understood is an error that says so, since a word that silently does nothing would look like a cache
 * that does not work. Where both are given, the stricter holds: flags add up, the shorter time and the higher
 * similarity count.
 */
#include "gateway/policy/policy_control.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECONDS_MAX 315360000 /* ten years, as a category's TTL */

static const struct {
    const char *word;
    unsigned bit;
} words[] = {
    {"no-cache", POLICY_ALLOW_NO_CACHE}, {"no-store", POLICY_ALLOW_NO_STORE},
    {"max-age", POLICY_ALLOW_MAX_AGE},   {"ttl", POLICY_ALLOW_TTL},
    {"exact", POLICY_ALLOW_EXACT},       {"sim", POLICY_ALLOW_SIM},
    {"off", POLICY_ALLOW_OFF},           {"only-if-cached", POLICY_ALLOW_ONLY_IF_CACHED},
    {"category", POLICY_ALLOW_CATEGORY}, {"namespace", POLICY_ALLOW_NAMESPACE},
    {"tags", POLICY_ALLOW_TAGS},         {"key", POLICY_ALLOW_KEY},
    {"explain", POLICY_ALLOW_EXPLAIN},
};

struct piece {
    const char *data;
    size_t bytes;
};

void policy_control_init(struct policy_controls *controls)
{
    *controls = (struct policy_controls){.max_age_ms = -1, .ttl_ms = -1, .sim = -1};
}

void policy_control_fini(struct policy_controls *controls)
{
    for (unsigned i = 0; i < controls->n_tags; i++)
        free(controls->tags[i]);
    controls->n_tags = 0;
}

unsigned policy_control_bit(const char *word, size_t bytes)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == bytes && strncasecmp(words[i].word, word, bytes) == 0)
            return words[i].bit;
    return 0;
}

static bool is(struct piece piece, const char *word)
{
    return piece.bytes == strlen(word) && strncasecmp(piece.data, word, piece.bytes) == 0;
}

static struct piece trimmed(struct piece piece)
{
    while (piece.bytes > 0 && (piece.data[0] == ' ' || piece.data[0] == '\t'))
        piece.data++, piece.bytes--;
    while (piece.bytes > 0 && (piece.data[piece.bytes - 1] == ' ' || piece.data[piece.bytes - 1] == '\t'))
        piece.bytes--;
    return piece;
}

/* The next of a list with commas; false at its end. Empty ones are left out. */
static bool next_piece(struct piece *rest, struct piece *out)
{
    while (rest->bytes > 0) {
        const char *comma = memchr(rest->data, ',', rest->bytes);
        size_t bytes = comma ? (size_t)(comma - rest->data) : rest->bytes;
        *out = trimmed((struct piece){rest->data, bytes});
        bytes += comma != NULL;
        rest->data += bytes;
        rest->bytes -= bytes;
        if (out->bytes > 0)
            return true;
    }
    return false;
}

/* word=value; value.data is NULL without "=". A value may stand in quotes. */
static void part(struct piece all, struct piece *word, struct piece *value)
{
    const char *equals = memchr(all.data, '=', all.bytes);
    *word = all;
    *value = (struct piece){NULL, 0};
    if (!equals)
        return;
    word->bytes = (size_t)(equals - all.data);
    *value = trimmed((struct piece){equals + 1, all.bytes - word->bytes - 1});
    *word = trimmed(*word);
    if (value->bytes >= 2 && value->data[0] == '"' && value->data[value->bytes - 1] == '"')
        *value = (struct piece){value->data + 1, value->bytes - 2};
}

/* Digits alone; -1: they are none, or too many. */
static int64_t seconds_of(struct piece value)
{
    int64_t seconds = 0;
    if (!value.data || value.bytes == 0 || value.bytes > 18)
        return -1;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return -1;
        seconds = seconds * 10 + (value.data[i] - '0');
    }
    return seconds > SECONDS_MAX ? SECONDS_MAX : seconds;
}

/* 0..1 in digits with a point; -1: it is none. */
static double share_of(struct piece value)
{
    char text[24], *end;
    double share;
    if (!value.data || value.bytes == 0 || value.bytes >= sizeof text)
        return -1;
    for (size_t i = 0; i < value.bytes; i++)
        if ((value.data[i] < '0' || value.data[i] > '9') && value.data[i] != '.')
            return -1;
    memcpy(text, value.data, value.bytes);
    text[value.bytes] = 0;
    share = strtod(text, &end);
    return *end == 0 && isfinite(share) && share >= 0 && share <= 1 ? share : -1;
}

static void shorter(int64_t *ms, int64_t seconds)
{
    assert(seconds >= 0);
    if (*ms < 0 || seconds * 1000 < *ms)
        *ms = seconds * 1000;
}

static void cache_control(struct policy_controls *controls, unsigned allow, struct piece rest)
{
    struct piece one, word, value;
    while (next_piece(&rest, &one)) {
        part(one, &word, &value);
        switch (policy_control_bit(word.data, word.bytes) & allow) {
        case POLICY_ALLOW_NO_CACHE:
            controls->no_cache = true;
            break;
        case POLICY_ALLOW_NO_STORE:
            controls->no_store = true;
            break;
        case POLICY_ALLOW_ONLY_IF_CACHED:
            controls->only_if_cached = true;
            break;
        case POLICY_ALLOW_MAX_AGE:
            if (seconds_of(value) >= 0)
                shorter(&controls->max_age_ms, seconds_of(value));
            break;
        default: /* HTTP's other words, and ours, which do not belong here */
            break;
        }
    }
}

static int bad_value(struct quire_error *err, struct piece word, struct piece value, const char *wanted)
{
    return error_set(err, QUIRE_EINVALID, "X-Quire-Control has %.*s=%.*s: give %s", (int)word.bytes, word.data,
                     (int)(value.bytes > 40 ? 40 : value.bytes), value.data ? value.data : "", wanted);
}

static int quire_word(struct policy_controls *controls, struct piece word, struct piece value, struct quire_error *err)
{
    if (is(word, "max-age") || is(word, "ttl")) {
        int64_t seconds = seconds_of(value);
        if (seconds < 0 || (is(word, "ttl") && seconds == 0))
            return bad_value(err, word, value, "whole seconds, as in max-age=60");
        shorter(is(word, "ttl") ? &controls->ttl_ms : &controls->max_age_ms, seconds);
    } else if (is(word, "sim")) {
        double sim = share_of(value);
        if (sim < 0)
            return bad_value(err, word, value, "a number from 0 to 1, as in sim=0.95");
        controls->sim = sim > controls->sim ? sim : controls->sim;
    } else if (value.data) {
        return bad_value(err, word, value, "the word alone");
    } else if (is(word, "no-cache")) {
        controls->no_cache = true;
    } else if (is(word, "no-store")) {
        controls->no_store = true;
    } else if (is(word, "only-if-cached")) {
        controls->only_if_cached = true;
    } else if (is(word, "exact")) {
        controls->exact = true;
    } else {
        assert(is(word, "off"));
        controls->off = true;
    }
    return 0;
}

static int quire_control(struct policy_controls *controls, unsigned allow, struct piece rest, struct quire_error *err)
{
    const unsigned all = POLICY_ALLOW_NO_CACHE | POLICY_ALLOW_NO_STORE | POLICY_ALLOW_MAX_AGE | POLICY_ALLOW_TTL |
                         POLICY_ALLOW_EXACT | POLICY_ALLOW_SIM | POLICY_ALLOW_OFF | POLICY_ALLOW_ONLY_IF_CACHED;
    struct piece one, word, value;
    while (next_piece(&rest, &one)) {
        part(one, &word, &value);
        unsigned bit = policy_control_bit(word.data, word.bytes) & all;
        if (!bit)
            return error_set(
                err, QUIRE_EINVALID,
                "X-Quire-Control has '%.*s': words are no-cache, no-store, only-if-cached, max-age=SECONDS, "
                "ttl=SECONDS, exact, sim=0.95, off",
                (int)(word.bytes > 40 ? 40 : word.bytes), word.data);
        if (!(allow & bit))
            return error_set(err, QUIRE_EINVALID, "X-Quire-Control: '%.*s' is not allowed here (setting controls)",
                             (int)word.bytes, word.data);
        int rc = quire_word(controls, word, value, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Printable ASCII, so that it can stand in a header, a log line and a list. */
static int name_of(char *out, size_t bytes_max, bool blanks, const char *field, struct piece value,
                   struct quire_error *err)
{
    if (value.bytes == 0)
        return error_set(err, QUIRE_EINVALID, "%s is empty: give a name or leave it out", field);
    if (value.bytes > bytes_max)
        return error_set(err, QUIRE_ELIMIT, "%s has %zu bytes: at most %zu", field, value.bytes, bytes_max);
    for (size_t i = 0; i < value.bytes; i++)
        if (value.data[i] < (blanks ? ' ' : '!') || value.data[i] > '~')
            return error_set(err, QUIRE_EINVALID, "%s has a byte %u at %zu: use printable ASCII%s", field,
                             (unsigned)(unsigned char)value.data[i], i, blanks ? "" : " without blanks");
    memcpy(out, value.data, value.bytes);
    out[value.bytes] = 0;
    return 0;
}

static int tags_of(struct policy_controls *controls, struct piece rest, struct quire_error *err)
{
    struct piece one;
    while (next_piece(&rest, &one)) {
        char tag[POLICY_TAG_BYTES_MAX + 1];
        int rc = name_of(tag, POLICY_TAG_BYTES_MAX, true, "a tag of X-Quire-Tags", one, err);
        if (rc)
            return rc;
        if (controls->n_tags == POLICY_TAGS_MAX)
            return error_set(err, QUIRE_ELIMIT, "X-Quire-Tags has more than %u tags", POLICY_TAGS_MAX);
        if (!(controls->tags[controls->n_tags] = strdup(tag)))
            return error_set(err, QUIRE_ENOMEM, "no memory for a tag");
        controls->n_tags++;
    }
    return 0;
}

int policy_control_field(struct policy_controls *controls, unsigned allow, const char *name, size_t name_bytes,
                         const char *value, size_t value_bytes, struct quire_error *err)
{
    struct piece field = {name, name_bytes}, text = trimmed((struct piece){value, value_bytes});
    if (is(field, "cache-control")) {
        cache_control(controls, allow, text);
        return 0;
    }
    if (name_bytes < 8 || strncasecmp(name, "x-quire-", 8) != 0)
        return 0;
    struct piece word = {name + 8, name_bytes - 8};
    if (is(word, "control"))
        return quire_control(controls, allow, text, err);
    unsigned bit = policy_control_bit(word.data, word.bytes);
    if (!(bit & (POLICY_ALLOW_CATEGORY | POLICY_ALLOW_NAMESPACE | POLICY_ALLOW_TAGS | POLICY_ALLOW_KEY |
                 POLICY_ALLOW_EXPLAIN)))
        return error_set(err, QUIRE_EINVALID,
                         "there is no header %.*s: X-Quire-Control, -Category, -Namespace, -Tags, -Key, -Explain are",
                         (int)(name_bytes > 60 ? 60 : name_bytes), name);
    if (!(allow & bit))
        return error_set(err, QUIRE_EINVALID, "%.*s is not allowed here (setting controls)", (int)name_bytes, name);
    switch (bit) {
    case POLICY_ALLOW_CATEGORY:
        return name_of(controls->category, POLICY_NAME_BYTES_MAX, false, "X-Quire-Category", text, err);
    case POLICY_ALLOW_NAMESPACE:
        return name_of(controls->space, POLICY_NAME_BYTES_MAX, false, "X-Quire-Namespace", text, err);
    case POLICY_ALLOW_KEY:
        return name_of(controls->key, POLICY_KEY_BYTES_MAX, true, "X-Quire-Key", text, err);
    case POLICY_ALLOW_TAGS:
        return tags_of(controls, text, err);
    default:
        assert(bit == POLICY_ALLOW_EXPLAIN);
        if (!is(text, "yes") && !is(text, "no"))
            return error_set(err, QUIRE_EINVALID, "X-Quire-Explain is '%.*s': yes or no",
                             (int)(text.bytes > 40 ? 40 : text.bytes), text.data);
        controls->explain = is(text, "yes");
        return 0;
    }
}
