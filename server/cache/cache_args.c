/*
 * cache_args.c - the options of SC.GET, SC.PUT and SC.NEG, from one table.
 *
 * SCOPE, NEED and TAG take words until the next word that is an option of the command. The first word behind one of
 * them is always its own, and so is every value of a scope, whatever it says: what a client's user wrote cannot become
 * an option. Each of the three may be given several times, so that every tag and every scope key can be expressed
 * ("TAG pin", "SCOPE text x SCOPE vec y").
 *
 * Numbers of a vector must lie at multiples of their size; in a request they lie anywhere. Where they lie wrong they
 * are copied.
 */
#include "server/cache/cache_args.h"
#include "io/error.h"
#include "server/call/caller.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 64, NUMBER_ALIGN = 4 };
#define COST_MAX 1e9

enum option_kind {
    TAKES_BYTES,
    TAKES_INTEGER,
    TAKES_NUMBER,
    TAKES_PAIRS,
    TAKES_WORDS,
    TAKES_TOKENS,
    TAKES_CHUNKS,
    IS_FLAG
};

struct option {
    const char *word;
    unsigned commands; /* of enum cache_command */
    enum option_kind kind;
    size_t place;         /* in struct cache_args */
    uint64_t least, most; /* of an integer; most: bytes, where a text is limited */
};

#define AT(field) offsetof(struct cache_args, field)
#define ALL       (CACHE_GET | CACHE_PUT | CACHE_NEG)
static const struct option options[] = {
    {"CAT", ALL, TAKES_BYTES, AT(category), 0, 0},
    {"SCOPE", ALL, TAKES_PAIRS, 0, 0, 0},
    {"HASH", ALL, TAKES_BYTES, AT(hash), 0, 0},
    {"COMPAT", ALL, TAKES_BYTES, AT(compat), 0, 0},
    {"TEXT", ALL, TAKES_BYTES, AT(text), 0, CACHE_TEXT_BYTES_MAX},
    {"VEC", CACHE_GET | CACHE_PUT, TAKES_BYTES, AT(vector), 0, 0},
    {"ENCODER", CACHE_GET | CACHE_PUT, TAKES_BYTES, AT(encoder), 0, 0},
    {"SIM", CACHE_GET, TAKES_NUMBER, AT(similarity), 0, 1},
    {"MAXAGE", CACHE_GET, TAKES_INTEGER, AT(max_age_ms), 1, CACHE_TTL_MS_MAX},
    {"NEED", CACHE_GET, TAKES_WORDS, 0, 0, 0},
    {"WAIT", CACHE_GET, TAKES_INTEGER, AT(wait_ms), 0, CACHE_WAIT_MS_MAX},
    {"NOLEASE", CACHE_GET, IS_FLAG, AT(no_lease), 0, 0},
    {"STALEOK", CACHE_GET, IS_FLAG, AT(stale_ok), 0, 0},
    {"EXPLAIN", CACHE_GET, IS_FLAG, AT(explain), 0, 0},
    {"PROBE", CACHE_GET, IS_FLAG, AT(probe), 0, 0},
    {"ONERROR", CACHE_GET, IS_FLAG, AT(on_error), 0, 0},
    {"LEASE", CACHE_PUT | CACHE_NEG, TAKES_BYTES, AT(lease), 0, 0},
    {"TTL", CACHE_PUT | CACHE_NEG, TAKES_INTEGER, AT(ttl_ms), 1, CACHE_TTL_MS_MAX},
    {"VALUE", CACHE_PUT, TAKES_BYTES, AT(value), 0, 0},
    {"CHUNKS", CACHE_PUT, TAKES_CHUNKS, 0, 0, 0},
    {"TAG", CACHE_PUT, TAKES_WORDS, 0, 0, 0},
    {"TOKENS", CACHE_PUT, TAKES_TOKENS, 0, 0, 0},
    {"COST", CACHE_PUT, TAKES_NUMBER, AT(cost), 0, (uint64_t)COST_MAX},
    {"LLMMS", CACHE_PUT, TAKES_INTEGER, AT(llm_ms), 0, UINT32_MAX},
    {"MODEL", CACHE_PUT, TAKES_BYTES, AT(model), 0, 0},
    {"PIN", CACHE_PUT, IS_FLAG, AT(pin), 0, 0},
    {"NX", CACHE_PUT, IS_FLAG, AT(if_new), 0, 0},
};

/* Options as they are taken. */
struct taking {
    struct cache_args *out;
    enum cache_command command;
    const struct resp_arg *args;
    uint32_t n, at; /* at: the option's word, then behind what was taken */
};

static const struct option *find_option(enum cache_command command, struct resp_arg arg)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if ((options[i].commands & command) && arg_is(arg, options[i].word))
            return &options[i];
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

int cache_arg_integer(const char *word, struct resp_arg arg, uint64_t least, uint64_t most, uint64_t *out,
                      struct quire_error *err)
{
    long long value;
    if (!arg_integer(arg, &value) || value < 0 || (uint64_t)value < least || (uint64_t)value > most)
        return error_set(err, QUIRE_ERANGE, "%s is '%.*s': give a whole number from %llu to %llu", word,
                         ARG_SHOWN(arg, (unsigned)SHOWN), (unsigned long long)least, (unsigned long long)most);
    *out = (uint64_t)value;
    return 0;
}

int cache_arg_number(const char *word, struct resp_arg arg, double most, double *out, struct quire_error *err)
{
    double value;
    if (!arg_number(arg, &value) || !(value >= 0 && value <= most))
        return error_set(err, QUIRE_ERANGE, "%s is '%.*s': give a number from 0 to %g%s", word,
                         ARG_SHOWN(arg, (unsigned)SHOWN), most,
                         most == 1 ? "; similarities are cosines, and the higher the nearer" : "");
    *out = value;
    return 0;
}

int cache_check_vector(const struct cache_config *config, size_t bytes, struct quire_error *err)
{
    size_t element = quire_type_bytes(config->type), wanted = config->dim * element;
    if (bytes == wanted)
        return 0;
    return error_set(err, QUIRE_EDIM,
                     "the vector has %zu bytes, which is %g dimensions of %s, but cache '%.*s' has %u dimensions (%zu "
                     "bytes): make vectors with the cache's encoder%s%.*s",
                     bytes, (double)bytes / (double)element, quire_type_name(config->type),
                     (int)(config->name.n_bytes < SHOWN ? config->name.n_bytes : SHOWN),
                     (const char *)config->name.data, config->dim, wanted, config->encoder.n_bytes ? " " : "",
                     (int)(config->encoder.n_bytes < SHOWN ? config->encoder.n_bytes : SHOWN),
                     (const char *)config->encoder.data);
}

static int needs_value(const char *word, const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID, "syntax error: %s needs %s", word, what);
}

static int take_chunks(struct taking *t, struct quire_error *err)
{
    uint64_t n = 0;
    struct cache_args *out = t->out;
    if (t->at + 1 >= t->n)
        return needs_value("CHUNKS", "their number and the chunks", err);
    int rc = cache_arg_integer("CHUNKS", t->args[t->at + 1], 1, ARGS_MAX, &n, err);
    if (rc < 0)
        return rc;
    if (n > t->n - t->at - 2)
        return error_set(err, QUIRE_EINVALID, "syntax error: CHUNKS says %llu, but only %u words follow",
                         (unsigned long long)n, t->n - t->at - 2);
    free(out->chunks);
    out->chunks = calloc(n, sizeof *out->chunks);
    if (!out->chunks)
        return error_set(err, QUIRE_ENOMEM, "no memory for %llu chunks", (unsigned long long)n);
    out->n_chunks = (uint32_t)n;
    for (uint32_t i = 0; i < n; i++)
        out->chunks[i] = cache_arg_bytes(t->args[t->at + 2 + i]);
    t->at += 2 + (uint32_t)n;
    return 0;
}

/* A text, or one number. */
static int take_value(struct taking *t, const struct option *o, struct quire_error *err)
{
    void *place = (char *)t->out + o->place;
    if (t->at + 1 >= t->n)
        return needs_value(o->word, "a value", err);
    struct resp_arg arg = t->args[t->at + 1];
    t->at += 2;
    if (o->kind == TAKES_INTEGER)
        return cache_arg_integer(o->word, arg, o->least, o->most, place, err);
    if (o->kind == TAKES_NUMBER)
        return cache_arg_number(o->word, arg, (double)o->most, place, err);
    if (o->most && arg.bytes > o->most)
        return error_set(err, QUIRE_ELIMIT, "%s has %u bytes, more than %llu: give the last text of the user only",
                         o->word, arg.bytes, (unsigned long long)o->most);
    if (arg.bytes == 0 && o->place == AT(hash))
        return error_set(err, QUIRE_EINVALID, "HASH is empty: leave it out, or give the hash of the request");
    if (arg.bytes == 0 && o->place == AT(lease))
        return error_set(err, QUIRE_EINVALID, "LEASE is empty: leave it out, or give the token that SC.GET returned");
    *(struct quire_bytes *)place = cache_arg_bytes(arg);
    t->out->has_value |= o->place == AT(value);
    return 0;
}

/* Pairs of a scope, or tags: up to the next option of the command. */
static int take_list(struct taking *t, const struct option *o, struct quire_error *err)
{
    struct cache_args *out = t->out;
    uint32_t first = ++t->at;
    while (t->at < t->n && (t->at == first || !find_option(t->command, t->args[t->at]))) {
        struct resp_arg word = t->args[t->at];
        if (o->kind == TAKES_WORDS) {
            if (out->n_tags == CACHE_TAGS_MAX)
                return error_set(err, QUIRE_ELIMIT, "%s has more than %u tags: give fewer", o->word, CACHE_TAGS_MAX);
            out->tags[out->n_tags++] = cache_arg_bytes(word);
            t->at++;
            continue;
        }
        if (t->at + 1 >= t->n)
            return error_set(err, QUIRE_EINVALID, "syntax error: SCOPE has a key '%.*s' without a value",
                             ARG_SHOWN(word, (unsigned)SHOWN));
        if (out->n_scope == CACHE_SCOPE_KEYS_MAX)
            return error_set(err, QUIRE_ELIMIT, "SCOPE has more than %u pairs: join some of them to one",
                             CACHE_SCOPE_KEYS_MAX);
        out->scope[out->n_scope++] = (struct quire_pair){cache_arg_bytes(word), cache_arg_bytes(t->args[t->at + 1])};
        t->at += 2;
    }
    return t->at == first ? needs_value(o->word, o->kind == TAKES_WORDS ? "tags" : "keys and values", err) : 0;
}

static int take_option(struct taking *t, struct quire_error *err)
{
    struct resp_arg arg = t->args[t->at];
    const struct option *o = find_option(t->command, arg);
    int rc;
    if (!o)
        return error_set(err, QUIRE_EINVALID, "syntax error at '%.*s': no option of this command",
                         ARG_SHOWN(arg, (unsigned)SHOWN));
    switch (o->kind) {
    case TAKES_BYTES:
    case TAKES_INTEGER:
    case TAKES_NUMBER:
        return take_value(t, o, err);
    case TAKES_PAIRS:
    case TAKES_WORDS:
        return take_list(t, o, err);
    case TAKES_TOKENS:
        if (t->at + 2 >= t->n)
            return needs_value("TOKENS", "two numbers: those that went in and those that came out", err);
        rc = cache_arg_integer("TOKENS in", t->args[t->at + 1], 0, UINT32_MAX, &t->out->tokens_in, err);
        if (rc == 0)
            rc = cache_arg_integer("TOKENS out", t->args[t->at + 2], 0, UINT32_MAX, &t->out->tokens_out, err);
        t->at += 3;
        return rc;
    case TAKES_CHUNKS:
        return take_chunks(t, err);
    case IS_FLAG:
        break;
    }
    *(bool *)((char *)t->out + o->place) = true;
    t->at++;
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

int cache_args_take(struct cache_args *out, enum cache_command command, const struct cache_config *config,
                    const struct resp_arg *args, uint32_t n, struct quire_error *err)
{
    struct taking t = {.out = out, .command = command, .args = args, .n = n};
    int rc = 0;
    while (rc == 0 && t.at < n)
        rc = take_option(&t, err);
    if (rc < 0)
        return rc;
    if (out->category.n_bytes == 0)
        return error_set(err, QUIRE_EINVALID, "a category is needed: CAT name (SC.CAT.LIST shows those there are)");
    if (command != CACHE_PUT && !out->hash.n_bytes && !out->vector.data && !out->text.n_bytes)
        return error_set(err, QUIRE_EINVALID, "there is nothing to look for: give %s",
                         command == CACHE_GET ? "HASH, VEC or TEXT" : "HASH or TEXT");
    if (command == CACHE_PUT && !out->has_value && !out->chunks)
        return error_set(err, QUIRE_EINVALID, "there is no answer: give VALUE blob or CHUNKS n chunk ...");
    if (out->has_value && out->chunks)
        return error_set(err, QUIRE_EINVALID, "VALUE and CHUNKS are two ways to give the answer: give one");
    if (!out->vector.data)
        return 0;
    rc = cache_check_vector(config, out->vector.n_bytes, err);
    if (rc < 0 || (uintptr_t)out->vector.data % NUMBER_ALIGN == 0)
        return rc;
    out->vector_copy = malloc(out->vector.n_bytes);
    if (!out->vector_copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    out->vector.data = memcpy(out->vector_copy, out->vector.data, out->vector.n_bytes);
    return 0;
}

void cache_args_fini(struct cache_args *args)
{
    free(args->chunks);
    free(args->vector_copy);
    args->chunks = NULL;
    args->vector_copy = NULL;
}

void cache_args_query(const struct cache_args *a, struct quire_cache_query *out)
{
    *out = (struct quire_cache_query){.category = a->category,
                                      .scope = a->scope,
                                      .n_scope = a->n_scope,
                                      .hash = a->hash,
                                      .compat = a->compat,
                                      .encoder = a->encoder,
                                      .vector = a->vector.data,
                                      .text = a->text,
                                      .similarity = a->similarity,
                                      .max_age_ms = a->max_age_ms,
                                      .need = a->tags,
                                      .n_need = a->n_tags,
                                      .wait_ms = a->wait_ms,
                                      .no_lease = a->no_lease,
                                      .stale_ok = a->stale_ok,
                                      .explain = a->explain,
                                      .probe = a->probe,
                                      .on_error = a->on_error};
}

void cache_args_entry(const struct cache_args *a, struct quire_cache_entry *out)
{
    *out = (struct quire_cache_entry){.category = a->category,
                                      .lease = a->lease,
                                      .scope = a->scope,
                                      .n_scope = a->n_scope,
                                      .hash = a->hash,
                                      .compat = a->compat,
                                      .encoder = a->encoder,
                                      .vector = a->vector.data,
                                      .text = a->text,
                                      .chunks = a->chunks ? a->chunks : &a->value,
                                      .n_chunks = a->chunks ? a->n_chunks : 1,
                                      .ttl_ms = a->ttl_ms,
                                      .tags = a->tags,
                                      .n_tags = a->n_tags,
                                      .model = a->model,
                                      .tokens_in = (uint32_t)a->tokens_in,
                                      .tokens_out = (uint32_t)a->tokens_out,
                                      .llm_ms = (uint32_t)a->llm_ms,
                                      .cost = a->cost,
                                      .pin = a->pin,
                                      .if_new = a->if_new};
}
