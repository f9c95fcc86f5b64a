/* console_views.c - what is read: each view asks the server for its parts and puts them together. */
#include "gateway/console/console_priv.h"
#include "io/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATEGORIES_MAX  64u
#define CACHES_MAX      64u
#define SETS_MAX        64u
#define SETS_NAMED_MAX  2048u
#define SCAN_ROUNDS_MAX 16u
#define SCAN_COUNT      "1000"

static json_t *text_of(const char *text)
{
    return console_json_text(text, strlen(text));
}

/* At most `max` texts of an array that was asked for; the rest is told of as truncated. */
static size_t names_of(struct console_job *job, const json_t *names, size_t max)
{
    size_t n = json_array_size(names);
    job->truncated |= n > max;
    return n < max ? n : max;
}

static json_t *append_object(json_t *array)
{
    json_t *object = json_object();
    return json_array_append_new(array, object) == 0 ? object : NULL; /* alive: the array has it */
}

/* ---- me, overview, history ---- */

/* What the page changes, as the commands that do it; CACHE is the gateway's own. */
enum { WORDS_CHANGE = 5 };
static const struct {
    const char *name, *words[WORDS_CHANGE];
} changes[] = {{"pin", {"SC.PIN", "CACHE", "0"}},
               {"delete", {"SC.DEL", "CACHE", "0"}},
               {"feedback", {"SC.FEEDBACK", "CACHE", "0", "BAD"}},
               {"settings", {"SC.CAT.SET", "CACHE", "*", "TTL", "0"}},
               {"labels", {"SC.AUDIT", "POP", "CACHE"}}};

/* Replies of ACL DRYRUN become true, false where the command is refused, null where nothing is known; a key that is
 * refused says nothing of other caches. False: there is nothing that this user may change. */
static bool name_rights(struct console_job *job)
{
    json_t *may = json_object_get(job->root, "may"), *said;
    bool any = false;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        said = json_object_get(may, changes[i].name);
        if (json_is_string(said)) {
            bool no = strstr(json_string_value(said), "no permissions to run") != NULL;
            json_object_set_new(may, changes[i].name, json_boolean(!no));
        }
        any |= !json_is_false(json_object_get(may, changes[i].name));
    }
    return any;
}

static void answer_me(struct console_job *job)
{
    const struct console *console = job->console;
    const struct settings *s = console->settings;
    job->n_bad = 0; /* a user who may not ask who he is, is who he says: the server took the password */
    json_t *more = json_pack("{s:b, s:s, s:s, s:I, s:b, s:b, s:b, s:o, s:b}", "write", (int)name_rights(job), "ui",
                             s->ui == SETTINGS_UI_YES ? "yes" : "read", "version", QUIRE_VERSION_STRING, "now_ms",
                             (json_int_t)clock_wall_ms(), "gateway", s->n_upstreams > 0, "encoder",
                             console->options.encode != NULL, "texts", (int)s->log_texts, "cache", text_of(s->cache),
                             "loopback", (int)console_door_is_local(job->r));
    json_object_update(job->root, more);
    json_decref(more);
}

/* Who it is, is known: the gateway's own user asks what this one may do, since few may ask that themselves. */
static void ask_rights(struct console_job *job)
{
    const char *cache = job->console->settings->cache;
    if (!json_is_string(json_object_get(job->root, "user")))
        json_object_set_new(job->root, "user", text_of(job->credential.user));
    const char *user = json_string_value(json_object_get(job->root, "user"));
    json_t *may = json_object();
    json_object_set_new(job->root, "may", may);
    job->next = answer_me;
    for (size_t i = 0; may && i < sizeof changes / sizeof *changes; i++) {
        const char *words[4 + WORDS_CHANGE] = {"ACL", "DRYRUN", user};
        size_t bytes[4 + WORDS_CHANGE];
        unsigned n = 3;
        for (unsigned k = 0; k < WORDS_CHANGE && changes[i].words[k]; k++)
            words[n++] = strcmp(changes[i].words[k], "CACHE") == 0 ? cache : changes[i].words[k];
        for (unsigned k = 0; k < n; k++)
            bytes[k] = strlen(words[k]);
        if (job->console->settings->ui == SETTINGS_UI_YES)
            console_job_ask_words(job, may, changes[i].name, CONSOLE_QUIET | CONSOLE_OWN, n, words, bytes);
        else
            json_object_set_new(may, changes[i].name, json_false());
    }
}

static void begin_me(struct console_job *job)
{
    job->next = ask_rights;
    console_job_ask(job, NULL, "user", CONSOLE_QUIET, "ACL", "WHOAMI", NULL);
}

static void begin_overview(struct console_job *job)
{
    const struct console_options *options = &job->console->options;
    json_t *gateway = json_object();
    if (options->describe(options->context, gateway) != 0)
        console_job_refuse(job, 503, "busy", "no memory for the gateway's state");
    json_object_set_new(job->root, "now_ms", json_integer((json_int_t)clock_wall_ms()));
    json_object_set_new(job->root, "gateway", gateway);
    console_job_ask(job, NULL, "server", CONSOLE_MUST | CONSOLE_INFO, "INFO", NULL);
}

static void answer_history(struct console_job *job)
{
    int64_t since;
    bool minutes = strcmp(console_job_text(job, "resolution", "1s"), "1m") == 0;
    if (!console_job_number(job, "since", 0, 0, INT64_C(1) << 50, &since))
        return;
    json_decref(job->root);
    job->root = console_ring_json(job->console->ring, minutes, (uint64_t)since);
}

/* The gateway's figures are for those who may see the server's. */
static void ask_right(struct console_job *job)
{
    console_job_ask(job, NULL, "right", CONSOLE_MUST | CONSOLE_INFO, "INFO", "server", NULL);
}

static void begin_history(struct console_job *job)
{
    const char *resolution = console_job_text(job, "resolution", "1s");
    if (strcmp(resolution, "1s") != 0 && strcmp(resolution, "1m") != 0)
        console_job_refuse(job, 400, "bad_request", "resolution is '%.40s': 1s or 1m", resolution);
    job->next = answer_history;
    ask_right(job);
}

static void answer_requests(struct console_job *job)
{
    int64_t since, limit;
    bool texts = json_is_array(json_object_get(job->root, "texts"));
    if (!console_job_number(job, "since", 0, 0, INT64_MAX / 16, &since) ||
        !console_job_number(job, "limit", 1000, 1, 1000, &limit))
        return;
    json_t *requests = console_seen_json(job->console->seen, (uint64_t)since, (uint64_t)limit, texts);
    json_decref(job->root);
    job->root = json_pack("{s:I, s:I, s:i, s:o}", "now_ms", (json_int_t)clock_wall_ms(), "began_ms",
                          (json_int_t)console_seen_began_ms(job->console->seen), "kept", 1000, "requests", requests);
}

static void begin_requests(struct console_job *job)
{
    const struct settings *s = job->console->settings;
    job->next = answer_requests;
    ask_right(job);
    if (s->log_texts) /* who may read the cache's entries may read what was asked */
        console_job_ask(job, NULL, "texts", CONSOLE_QUIET, "SC.SCAN", s->cache, "0", "COUNT", "1", NULL);
}

/* ---- caches ---- */

static void ask_caches(struct console_job *job)
{
    json_t *names = json_incref(json_object_get(job->root, "caches")), *caches = json_array();
    json_object_set_new(job->root, "caches", caches);
    for (size_t i = 0; i < names_of(job, names, CACHES_MAX) && !job->failed; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        json_t *cache = append_object(caches);
        if (!name || !cache || json_object_set_new(cache, "name", json_string_nocheck(name)) != 0)
            continue;
        console_job_ask(job, cache, "info", 0, "SC.INFO", name, NULL);
    }
    json_decref(names);
}

static void begin_caches(struct console_job *job)
{
    job->next = ask_caches;
    console_job_ask(job, NULL, "caches", CONSOLE_MUST, "SC.LIST", NULL);
}

/* The bound of the point of the curve that the threshold is at: how much of the budget is used. */
static json_t *bound_at(const json_t *tune)
{
    double threshold = json_number_value(json_object_get(tune, "threshold")), nearest = 2;
    const json_t *point, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(tune, "points"), i, point)
    {
        double similarity = json_number_value(json_array_get(point, 0));
        if (similarity >= threshold - 1e-6 && similarity < nearest) {
            nearest = similarity;
            found = json_array_get(point, 3);
        }
    }
    return found ? json_deep_copy(found) : json_null();
}

static void shorten_curves(struct console_job *job)
{
    size_t i;
    json_t *category;
    json_array_foreach(json_object_get(job->root, "categories"), i, category)
    {
        json_t *tune = json_object_get(category, "tune");
        if (json_object_get(tune, "points")) {
            json_object_set_new(tune, "bound", bound_at(tune));
            json_object_del(tune, "points");
        }
    }
}

static void ask_categories(struct console_job *job)
{
    const char *cache = console_job_text(job, "cache", "");
    json_t *names = json_incref(json_object_get(job->root, "categories")), *categories = json_array();
    json_object_set(job->root, "names", names);
    json_object_set_new(job->root, "categories", categories);
    job->next = shorten_curves;
    for (size_t i = 0; i < names_of(job, names, CATEGORIES_MAX) && !job->failed; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        json_t *category = append_object(categories);
        if (!name || !category || json_object_set_new(category, "name", json_string_nocheck(name)) != 0)
            continue;
        console_job_ask(job, category, "settings", 0, "SC.CAT.GET", cache, name, NULL);
        console_job_ask(job, category, "stats", 0, "SC.STATS", cache, "CAT", name, NULL);
        console_job_ask(job, category, "tune", 0, "SC.TUNE", cache, name, NULL);
    }
    json_decref(names);
}

static void begin_categories(struct console_job *job)
{
    const char *cache = console_job_text(job, "cache", "");
    job->next = ask_categories;
    console_job_ask(job, NULL, "cache", CONSOLE_MUST, "SC.STATS", cache, NULL);
    console_job_ask(job, NULL, "info", 0, "SC.INFO", cache, NULL);
    console_job_ask(job, NULL, "categories", CONSOLE_MUST, "SC.CAT.LIST", cache, NULL);
}

static void begin_category(struct console_job *job)
{
    const char *cache = console_job_text(job, "cache", ""), *category = console_job_text(job, "category", ""),
               *risk = console_job_text(job, "risk", NULL);
    bool values = strcmp(console_job_text(job, "values", "no"), "yes") == 0;
    int64_t n;
    char top[24];
    if (!console_job_number(job, "top", 20, 1, 1000, &n))
        return;
    snprintf(top, sizeof top, "%lld", (long long)n);
    console_job_ask(job, NULL, "settings", CONSOLE_MUST, "SC.CAT.GET", cache, category, NULL);
    console_job_ask(job, NULL, "stats", 0, "SC.STATS", cache, "CAT", category, NULL);
    console_job_ask(job, NULL, "tune", 0, "SC.TUNE", cache, category, NULL);
    if (risk)
        console_job_ask(job, NULL, "risk", 0, "SC.TUNE", cache, category, "RISK", risk, NULL);
    console_job_ask(job, NULL, "hist", 0, "SC.HIST", cache, category, NULL);
    console_job_ask(job, NULL, "top", 0, "SC.TOP", cache, category, top, values ? "WITHVALUES" : NULL, NULL);
}

static void answer_entries(struct console_job *job)
{
    json_t *page = json_incref(json_object_get(job->root, "page"));
    json_object_clear(job->root);
    json_object_set(job->root, "cursor", json_array_get(page, 0));
    json_object_set(job->root, "entries", json_array_get(page, 1));
    json_decref(page);
}

static void begin_entries(struct console_job *job)
{
    const char *words[9] = {"SC.SCAN", console_job_text(job, "cache", ""), console_job_text(job, "cursor", "0"),
                            "COUNT"};
    const char *category = console_job_text(job, "category", NULL);
    size_t bytes[sizeof words / sizeof *words];
    unsigned n_words = 5;
    int64_t n;
    char count[24];
    if (!console_job_number(job, "count", 50, 1, 1000, &n))
        return;
    snprintf(count, sizeof count, "%lld", (long long)n);
    words[4] = count;
    if (category) {
        words[n_words++] = "CAT";
        words[n_words++] = category;
    }
    if (strcmp(console_job_text(job, "values", "no"), "yes") == 0)
        words[n_words++] = "WITHVALUES";
    for (unsigned i = 0; i < n_words; i++)
        bytes[i] = strlen(words[i]);
    job->next = answer_entries;
    console_job_ask_words(job, NULL, "page", CONSOLE_MUST, n_words, words, bytes);
}

/* ---- tenants ---- */

static void answer_tenants(struct console_job *job)
{
    json_t *stats = json_object_get(job->root, "scopes"), *scopes = json_object_get(stats, "scopes");
    if (scopes)
        json_object_set(job->root, "scopes", scopes);
}

static void begin_tenants(struct console_job *job)
{
    const char *cache = console_job_text(job, "cache", NULL);
    job->next = answer_tenants;
    console_job_ask(job, NULL, "tenants", CONSOLE_MUST | CONSOLE_INFO | CONSOLE_SECTION, "INFO", "tenants", NULL);
    if (cache)
        console_job_ask(job, NULL, "scopes", 0, "SC.STATS", cache, NULL);
    else
        json_object_set_new(job->root, "scopes", json_array());
}

/* ---- sets ---- */

static void ask_sets(struct console_job *job)
{
    const json_t *names = job->work[0];
    json_t *sets = json_array();
    json_object_del(job->root, "page");
    json_object_set_new(job->root, "sets", sets);
    console_job_ask(job, NULL, "quire", CONSOLE_INFO | CONSOLE_SECTION, "INFO", "quire", NULL);
    for (size_t i = 0; i < json_array_size(names) && !job->failed; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        json_t *set = append_object(sets);
        if (!name || !set || json_object_set_new(set, "name", json_string_nocheck(name)) != 0)
            continue;
        console_job_ask(job, set, "info", 0, "VINFO", name, NULL);
    }
}

/* A page of SCAN has few sets where most keys are something else: more pages, until there are enough sets. */
static void scan_on(struct console_job *job)
{
    const json_t *page = json_object_get(job->root, "page");
    const char *cursor = json_string_value(json_array_get(page, 0));
    cursor = cursor ? cursor : "0";
    json_array_extend(job->work[0], json_array_get(page, 1));
    json_object_set_new(job->root, "cursor", json_string(cursor));
    if (strcmp(cursor, "0") == 0 || json_array_size(job->work[0]) >= SETS_MAX || ++job->numbers[0] >= SCAN_ROUNDS_MAX) {
        ask_sets(job);
        return;
    }
    job->next = scan_on;
    console_job_ask(job, NULL, "page", CONSOLE_MUST, "SCAN", json_string_value(json_object_get(job->root, "cursor")),
                    "TYPE", "vectorset", "COUNT", SCAN_COUNT, NULL);
}

static void begin_sets(struct console_job *job)
{
    job->work[0] = json_array();
    job->next = scan_on;
    console_job_ask(job, NULL, "page", CONSOLE_MUST, "SCAN", console_job_text(job, "cursor", "0"), "TYPE", "vectorset",
                    "COUNT", SCAN_COUNT, NULL);
}

/* Of sets that are known, without going through all keys. */
void console_views_sets_named(struct console_job *job)
{
    const json_t *names = json_object_get(job->body, "names"), *name;
    bool right = json_is_array(names) && json_array_size(names) <= SETS_NAMED_MAX;
    size_t i;
    json_array_foreach(names, i, name) right = right && json_is_string(name);
    job->work[0] = json_deep_copy(names);
    if (right)
        ask_sets(job);
    else
        console_job_refuse(job, 400, "bad_request", "names is no list of up to %u texts", SETS_NAMED_MAX);
}

static void answer_set(struct console_job *job)
{
    if (json_is_null(json_object_get(job->root, "info")))
        console_job_refuse(job, 404, "not_found", "there is no such set: SCAN 0 TYPE vectorset shows those there are");
}

static void begin_set(struct console_job *job)
{
    const char *set = console_job_text(job, "set", "");
    job->next = answer_set;
    console_job_ask(job, NULL, "info", CONSOLE_MUST, "VINFO", set, NULL);
    console_job_ask(job, NULL, "memory", 0, "MEMORY", "USAGE", set, NULL);
    console_job_ask(job, NULL, "tenants", 0, "VTENANTS", set, NULL);
    console_job_ask(job, NULL, "sample", 0, "VRANDMEMBER", set, "10", NULL);
    console_job_ask(job, NULL, "segments", 0, "VSEGMENTS", set, NULL);
}

const struct console_view console_views[] = {
    {"GET", "/ui/api/me", "", 0, begin_me},
    {"GET", "/ui/api/overview", "", 0, begin_overview},
    {"GET", "/ui/api/history", "resolution since", 0, begin_history},
    {"GET", "/ui/api/requests", "since limit", 0, begin_requests},
    {"GET", "/ui/api/caches", "", 0, begin_caches},
    {"GET", "/ui/api/categories", "cache!", 0, begin_categories},
    {"GET", "/ui/api/category", "cache! category! risk top values", 0, begin_category},
    {"GET", "/ui/api/entries", "cache! category cursor count values", 0, begin_entries},
    {"GET", "/ui/api/tenants", "cache", 0, begin_tenants},
    {"GET", "/ui/api/sets", "cursor", 0, begin_sets},
    {"GET", "/ui/api/set", "set!", 0, begin_set},
    {"GET", "/ui/api/server", "", 0, console_server_begin},
    {"GET", "/ui/api/map", "set cache category count", 0, console_map_begin},
    {NULL, NULL, NULL, 0, NULL}};
