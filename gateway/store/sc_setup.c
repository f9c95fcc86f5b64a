/*
 * sc_setup.c - finds, or makes, the cache and its categories; a chain of commands, one after the other.
 *
 *     SC.INFO -> (SC.CREATE -> SC.INFO) -> SC.CAT.LIST -> (SC.CAT.SET)* -> SC.CAT.GET* -> wait refresh_ms -> SC.INFO
 *
 * A list of categories is put in force as a whole, when its last SC.CAT.GET has come. What fails is tried again after
 * RETRY_MS, and what was known stays in force meanwhile. Several gateways may do this at the same moment: a cache that
 * another has just made (BUSYKEY) is as good, and categories are set to the same.
 *
 * Scope keys of the cache: tenant (required by each category made here), ns (X-Quire-Namespace), user (setting
 * user-scope), salt (cache_salt of a body, which is a wall, too).
 */
#include "gateway/store/sc_setup.h"
#include "gateway/store/sc_client.h"
#include "gateway/store/sc_reply.h"
#include "io/error.h"
#include <assert.h>
#include <ctype.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <hiredis/hiredis.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RETRY_MS       1000u
#define CATEGORIES_MAX 1024u /* as many as a cache has */
#define WORDS_MAX      64u
#define SETTINGS_BYTES 1024u
#define DIFFERS_BYTES  900u
#define CHANGES_BYTES  200u

enum step { STEP_INFO, STEP_CREATE, STEP_LIST, STEP_SET, STEP_GET, STEP_REST };

struct wanted {
    char *text; /* words with NUL between */
    const char *words[WORDS_MAX];
    unsigned n;
    char differs[DIFFERS_BYTES]; /* how the category that is there does; "": in nothing */
};

struct sc_setup {
    struct sc_client *client;
    struct sc_call *call; /* under way */
    struct event timer;
    struct sc_setup_options options;
    char cache[SC_NAME_BYTES_MAX], encoder[SC_NAME_BYTES_MAX];
    struct wanted *wanted;
    unsigned n_wanted, next_wanted;
    enum step step;
    struct sc_category *known, *coming;
    unsigned n_known, n_coming, next_coming;
    bool there; /* the cache is, and categories are known */
    bool vectors_fit;
    char why[320], why_no_vectors[320];
};

static void go_on(struct sc_setup *setup);

static void rest(struct sc_setup *setup, unsigned ms)
{
    struct timeval pause = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    setup->step = STEP_REST;
    evtimer_add(&setup->timer, &pause);
}

static void again_later(struct sc_setup *setup, const char *why)
{
    snprintf(setup->why, sizeof setup->why, "cache '%s': %.160s", setup->cache, why);
    rest(setup, RETRY_MS);
}

static void on_reply(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why);

static void send_words(struct sc_setup *setup, const char *const *words, unsigned n)
{
    size_t bytes[WORDS_MAX + 8];
    assert(n <= WORDS_MAX + 8 && !setup->call);
    for (unsigned i = 0; i < n; i++)
        bytes[i] = strlen(words[i]);
    setup->call = sc_call(setup->client, n, words, bytes, setup->options.deadline_ms, on_reply, setup);
    if (!setup->call)
        again_later(setup, "no memory for a command");
}

static void send_create(struct sc_setup *setup)
{
    char dim[16];
    const char *words[12] = {"SC.CREATE", setup->cache, "DIM", dim, "SCOPE", "tenant", "ns", "user", "salt"};
    unsigned n = 9;
    snprintf(dim, sizeof dim, "%u", setup->options.dim);
    if (*setup->encoder) {
        words[n++] = "ENCODER";
        words[n++] = setup->encoder;
    }
    send_words(setup, words, n);
}

static void send_set(struct sc_setup *setup)
{
    const struct wanted *wanted = &setup->wanted[setup->next_wanted];
    const char *words[WORDS_MAX + 8] = {"SC.CAT.SET", setup->cache};
    unsigned n = 2;
    for (unsigned i = 0; i < wanted->n; i++)
        words[n++] = wanted->words[i];
    words[n++] = "REQUIRESCOPE";
    words[n++] = "tenant";
    send_words(setup, words, n);
}

static bool is_coming(const struct sc_setup *setup, const char *name)
{
    for (unsigned i = 0; i < setup->n_coming; i++)
        if (strcmp(setup->coming[i].name, name) == 0)
            return true;
    return false;
}

static void publish(struct sc_setup *setup)
{
    free(setup->known);
    setup->known = setup->coming;
    setup->n_known = setup->n_coming;
    setup->coming = NULL;
    setup->n_coming = 0;
    setup->there = true;
    setup->why[0] = 0;
    rest(setup, setup->options.refresh_ms);
}

/* Sends what the present step is about, or goes to the next step where there is nothing left of it. */
static void go_on(struct sc_setup *setup)
{
    switch (setup->step) {
    case STEP_REST:
        setup->step = STEP_INFO; /* fall through */
    case STEP_INFO:
        return send_words(setup, (const char *[]){"SC.INFO", setup->cache}, 2);
    case STEP_CREATE:
        if (setup->options.dim == 0)
            return again_later(setup, "it is not there yet, and the encoder has not told its dimension");
        return send_create(setup);
    case STEP_LIST:
        return send_words(setup, (const char *[]){"SC.CAT.LIST", setup->cache}, 2);
    case STEP_SET:
        while (setup->next_wanted < setup->n_wanted && is_coming(setup, setup->wanted[setup->next_wanted].words[0]))
            setup->next_wanted++;
        if (setup->next_wanted < setup->n_wanted)
            return send_set(setup);
        setup->step = STEP_GET;
        setup->next_coming = 0; /* fall through */
    case STEP_GET:
        if (setup->next_coming < setup->n_coming)
            return send_words(setup,
                              (const char *[]){"SC.CAT.GET", setup->cache, setup->coming[setup->next_coming].name}, 3);
        return publish(setup);
    }
}

static bool word_is(const struct redisReply *map, const char *name, const char *word)
{
    const struct redisReply *value = sc_reply_field(map, name);
    return value && value->type == REDIS_REPLY_STRING && strcasecmp(value->str, word) == 0;
}

static uint64_t number_in(const struct redisReply *map, const char *name)
{
    const struct redisReply *value = sc_reply_field(map, name);
    if (value && value->type == REDIS_REPLY_INTEGER)
        return value->integer > 0 ? (uint64_t)value->integer : 0;
    return value && value->type == REDIS_REPLY_STRING ? strtoull(value->str, NULL, 10) : 0;
}

static void read_info(struct sc_setup *setup, const struct redisReply *reply)
{
    uint64_t dim = number_in(reply, "dim");
    const struct redisReply *encoder = sc_reply_field(reply, "encoder");
    const char *name = encoder && encoder->type == REDIS_REPLY_STRING ? encoder->str : "";
    setup->vectors_fit = false;
    if (setup->options.dim == 0)
        snprintf(setup->why_no_vectors, sizeof setup->why_no_vectors, "the encoder has not told its dimension yet");
    else if (dim != setup->options.dim || strcmp(name, setup->encoder) != 0)
        snprintf(
            setup->why_no_vectors, sizeof setup->why_no_vectors,
            "cache '%.60s' is of %llu dimensions by encoder '%.60s', not %u by '%.60s': name another cache, or drop it",
            setup->cache, (unsigned long long)dim, name, setup->options.dim, setup->encoder);
    else
        setup->vectors_fit = *setup->encoder != 0;
    if (setup->vectors_fit)
        setup->why_no_vectors[0] = 0;
    else if (!*setup->encoder)
        snprintf(setup->why_no_vectors, sizeof setup->why_no_vectors, "no encoder is set (embed-url, embed-file)");
}

static bool read_list(struct sc_setup *setup, const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements > CATEGORIES_MAX)
        return false;
    free(setup->coming);
    setup->n_coming = 0;
    setup->coming = calloc(reply->elements + setup->n_wanted + 1, sizeof *setup->coming);
    for (size_t i = 0; setup->coming && i < reply->elements; i++) {
        const struct redisReply *name = reply->element[i];
        if (name->type == REDIS_REPLY_STRING && name->len > 0 && (size_t)name->len < SC_NAME_BYTES_MAX)
            memcpy(setup->coming[setup->n_coming++].name, name->str, (size_t)name->len);
    }
    setup->next_wanted = 0;
    return setup->coming != NULL;
}

static void read_category(struct sc_category *category, const struct redisReply *reply)
{
    bool both = word_is(reply, "mode", "both");
    category->near = both || word_is(reply, "mode", "semantic");
    category->exact = both || word_is(reply, "mode", "exact");
    category->by_risk = sc_reply_field(reply, "risk") != NULL;
    category->lease_ms = number_in(reply, "lease");
    category->stale_error_ms = number_in(reply, "staleerror");
}

/* ---- settings of a category that is there ---- */

/* Whether two values are the same number, or the same word. */
static bool is_same(const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return *end_a || *end_b ? strcasecmp(a, b) == 0 : fabs(x - y) <= 1e-9 * fabs(x);
}

/* The value that a category has of a setting; NULL: none, as SIM where it has RISK. */
static const char *value_of(const struct redisReply *category, const char *word)
{
    char name[32];
    const struct redisReply *value;
    size_t n = strlen(word);
    for (size_t i = 0; i <= n && i < sizeof name; i++)
        name[i] = (char)tolower((unsigned char)word[i]);
    value = n < sizeof name ? sc_reply_field(category, name) : NULL;
    return value && value->type == REDIS_REPLY_STRING ? value->str : NULL;
}

static void append(char *out, size_t room, const char *word, const char *value)
{
    size_t n = strlen(out);
    snprintf(out + n, room - n, "%s%.20s %.40s", n ? " " : "", word, value);
}

/* What decides over its answers is compared. SIM and RISK end each other: who wants the one may find the other. */
static void compare(struct sc_setup *setup, struct wanted *wanted, const struct redisReply *category)
{
    static const struct {
        const char *word, *else_word;
    } compared[] = {{"MODE", "MODE"}, {"SIM", "RISK"}, {"RISK", "SIM"}, {"TTL", "TTL"}};
    char has[CHANGES_BYTES] = "", wants[CHANGES_BYTES] = "", said[DIFFERS_BYTES] = "";
    for (unsigned i = 1; i + 1 < wanted->n; i++)
        for (size_t k = 0; k < sizeof compared / sizeof *compared; k++) {
            const char *word = compared[k].word, *value = value_of(category, word);
            if (strcasecmp(wanted->words[i], word) != 0 || (value && is_same(value, wanted->words[i + 1])))
                continue;
            if (!value)
                value = value_of(category, word = compared[k].else_word);
            if (!value)
                continue;
            append(has, sizeof has, word, value);
            append(wants, sizeof wants, compared[k].word, wanted->words[i + 1]);
        }
    if (*has)
        snprintf(said, sizeof said,
                 "category '%.60s' has %s, and the settings say %s: what is there stands; SC.CAT.SET %.60s %.60s %s "
                 "changes it",
                 wanted->words[0], has, wants, setup->cache, wanted->words[0], wants);
    if (*said && strcmp(said, wanted->differs) != 0 && setup->options.differs)
        setup->options.differs(setup->options.context, said);
    memcpy(wanted->differs, said, sizeof said);
}

static void take_category(struct sc_setup *setup, struct sc_category *category, const struct redisReply *reply)
{
    read_category(category, reply);
    for (unsigned i = 0; i < setup->n_wanted; i++)
        if (strcmp(setup->wanted[i].words[0], category->name) == 0)
            compare(setup, &setup->wanted[i], reply);
}

static void on_reply(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct sc_setup *setup = context;
    setup->call = NULL;
    if (outcome == SC_ERROR && setup->step == STEP_INFO && strncmp(why, "ERR no such cache", 17) == 0) {
        setup->step = STEP_CREATE;
        return go_on(setup);
    }
    if (outcome == SC_ERROR && setup->step == STEP_CREATE && strncmp(why, "BUSYKEY", 7) == 0)
        outcome = SC_REPLY;
    if (outcome != SC_REPLY) {
        setup->there = setup->there && outcome != SC_ERROR;
        return again_later(setup, why);
    }
    switch (setup->step) {
    case STEP_INFO:
        read_info(setup, reply);
        setup->step = STEP_LIST;
        break;
    case STEP_CREATE:
        setup->step = STEP_INFO;
        break;
    case STEP_LIST:
        if (!read_list(setup, reply))
            return again_later(setup, "no memory for its categories");
        setup->step = STEP_SET;
        break;
    case STEP_SET:
        snprintf(setup->coming[setup->n_coming++].name, SC_NAME_BYTES_MAX, "%s",
                 setup->wanted[setup->next_wanted++].words[0]);
        break;
    case STEP_GET:
        take_category(setup, &setup->coming[setup->next_coming++], reply);
        break;
    case STEP_REST:
        assert(false);
    }
    go_on(setup);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    go_on(context);
}

static void on_change(void *context, bool up)
{
    struct sc_setup *setup = context;
    if (!up) {
        snprintf(setup->why, sizeof setup->why, "the connection to the server is lost");
    } else if (!setup->call) {
        event_del(&setup->timer);
        setup->step = STEP_INFO;
        go_on(setup);
    }
}

static int take_wanted(struct wanted *wanted, const char *line, struct quire_error *err)
{
    char *rest_of_line = NULL;
    if (strlen(line) > SETTINGS_BYTES)
        return error_set(err, QUIRE_ELIMIT, "settings of a category have %zu bytes: at most %u", strlen(line),
                         SETTINGS_BYTES);
    if (!(wanted->text = strdup(line)))
        return error_set(err, QUIRE_ENOMEM, "no memory for the settings of a category");
    for (char *word = strtok_r(wanted->text, " ", &rest_of_line); word; word = strtok_r(NULL, " ", &rest_of_line)) {
        if (wanted->n == WORDS_MAX)
            return error_set(err, QUIRE_ELIMIT, "settings of category '%s' have more than %u words", wanted->words[0],
                             WORDS_MAX);
        wanted->words[wanted->n++] = word;
    }
    if (wanted->n == 0 || strlen(wanted->words[0]) >= SC_NAME_BYTES_MAX)
        return error_set(err, QUIRE_EINVALID, "a category needs a name of 1 to %u bytes", SC_NAME_BYTES_MAX - 1);
    return 0;
}

int sc_setup_create(struct event_base *base, struct sc_client *client, const struct sc_setup_options *options,
                    struct sc_setup **out, struct quire_error *err)
{
    struct sc_setup *setup = calloc(1, sizeof *setup);
    int rc = 0;
    if (!setup)
        return error_set(err, QUIRE_ENOMEM, "no memory for the setup of the cache");
    setup->client = client;
    setup->options = *options;
    evtimer_assign(&setup->timer, base, on_timer, setup);
    snprintf(setup->cache, sizeof setup->cache, "%s", options->cache);
    snprintf(setup->encoder, sizeof setup->encoder, "%s", options->encoder ? options->encoder : "");
    snprintf(setup->why, sizeof setup->why, "the connection to the server is being made");
    setup->options.categories = NULL;
    setup->wanted = calloc(options->n_categories ? options->n_categories : 1, sizeof *setup->wanted);
    if (!setup->wanted)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the setup of the cache");
    for (unsigned i = 0; i < options->n_categories && rc == 0; i++) {
        setup->n_wanted = i + 1;
        rc = take_wanted(&setup->wanted[i], options->categories[i], err);
    }
    if (rc) {
        sc_setup_destroy(setup);
        return rc;
    }
    sc_client_on_change(client, on_change, setup);
    rest(setup, RETRY_MS); /* sooner, once a connection is there */
    *out = setup;
    return 0;
}

void sc_setup_destroy(struct sc_setup *setup)
{
    if (!setup)
        return;
    if (setup->call)
        sc_cancel(setup->call);
    sc_client_on_change(setup->client, NULL, NULL);
    event_del(&setup->timer);
    for (unsigned i = 0; i < setup->n_wanted; i++)
        free(setup->wanted[i].text);
    free(setup->wanted);
    free(setup->known);
    free(setup->coming);
    free(setup);
}

void sc_setup_encoder(struct sc_setup *setup, const char *encoder, uint32_t dim)
{
    snprintf(setup->encoder, sizeof setup->encoder, "%s", encoder);
    setup->options.dim = dim;
    if (!setup->call) {
        event_del(&setup->timer);
        setup->step = STEP_INFO;
        go_on(setup);
    }
}

const struct sc_category *sc_setup_category(const struct sc_setup *setup, const char *name, size_t bytes)
{
    const struct sc_category *others = NULL;
    for (unsigned i = 0; i < setup->n_known; i++) {
        const struct sc_category *category = &setup->known[i];
        if (strlen(category->name) == bytes && memcmp(category->name, name, bytes) == 0)
            return category;
        if (strcmp(category->name, "*") == 0)
            others = category;
    }
    return others;
}

void sc_setup_names(const struct sc_setup *setup, char *out, size_t out_bytes)
{
    size_t n = 0;
    out[0] = 0;
    for (unsigned i = 0; i < setup->n_known; i++) {
        int wrote = snprintf(out + n, out_bytes - n, "%s%s", i ? ", " : "", setup->known[i].name);
        if (wrote < 0 || (size_t)wrote >= out_bytes - n) {
            out[n] = 0;
            return;
        }
        n += (size_t)wrote;
    }
}

void sc_setup_each_difference(const struct sc_setup *setup, void (*tell)(void *context, const char *sentence),
                              void *context)
{
    for (unsigned i = 0; i < setup->n_wanted; i++)
        if (*setup->wanted[i].differs)
            tell(context, setup->wanted[i].differs);
}

bool sc_setup_ready(const struct sc_setup *setup, const char **why)
{
    *why = setup->there ? NULL : setup->why;
    return setup->there;
}

bool sc_setup_takes_vectors(const struct sc_setup *setup, const char **why)
{
    bool takes = setup->there && setup->vectors_fit;
    *why = takes ? NULL : setup->there ? setup->why_no_vectors : setup->why;
    return takes;
}
