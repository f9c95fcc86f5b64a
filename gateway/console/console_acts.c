/* console_acts.c - what is posted: changes, and questions with a body. */
#include "gateway/console/console_priv.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WORDS_MAX 128u

/* Words of a command whose number is known at run time only. */
struct words {
    const char *text[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    unsigned n;
    bool full;
};

static void add(struct words *words, const char *text)
{
    if (words->n == WORDS_MAX || !text) {
        words->full = true;
        return;
    }
    words->text[words->n] = text;
    words->bytes[words->n++] = strlen(text);
}

static void answer_ok(struct console_job *job)
{
    json_object_clear(job->root);
    json_object_set_new(job->root, "ok", json_true());
}

/* ---- a category ---- */

/* A value as the words of SC.CAT.SET; numbers as texts, which `held` keeps. False: of another type. */
static bool add_value(struct words *words, const json_t *value, json_t *held)
{
    char text[40];
    const json_t *item;
    size_t i;
    if (json_is_string(value))
        add(words, json_string_value(value));
    else if (json_is_boolean(value))
        add(words, json_is_true(value) ? "yes" : "no");
    else if (json_is_number(value)) {
        if (json_is_integer(value))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else
            snprintf(text, sizeof text, "%.17g", json_real_value(value));
        json_t *kept = json_string(text);
        json_array_append_new(held, kept);
        add(words, json_string_value(kept));
    } else if (json_is_array(value) && json_array_size(value) > 0) {
        json_array_foreach(value, i, item)
        {
            if (!json_is_string(item))
                return false;
            add(words, json_string_value(item));
        }
    } else
        return false;
    return true;
}

static void begin_settings(struct console_job *job)
{
    struct words words = {.n = 0};
    const char *name;
    json_t *value, *settings = json_object_get(job->body, "settings");
    job->work[0] = json_array();
    add(&words, "SC.CAT.SET");
    add(&words, console_job_text(job, "cache", NULL));
    add(&words, console_job_text(job, "category", NULL));
    if (!json_is_object(settings) || json_object_size(settings) == 0)
        words.full = true;
    json_object_foreach(settings, name, value)
    {
        add(&words, name);
        words.full |= !add_value(&words, value, job->work[0]);
    }
    if (words.full) {
        console_job_refuse(job, 400, "bad_request",
                           "settings is no object of 1 to 60 settings with texts, numbers, booleans or lists of texts");
        return;
    }
    job->next = answer_ok;
    console_job_ask_words(job, NULL, "reply", CONSOLE_MUST, words.n, words.text, words.bytes);
}

/* ---- an entry ---- */

static void answer_entry(struct console_job *job)
{
    const json_t *reply = json_object_get(job->root, "reply");
    if (json_is_integer(reply) && json_integer_value(reply) == 0)
        console_job_refuse(job, 404, "not_found", "there is no such entry (any more)");
    else
        json_object_set_new(job->root, "ok", json_true());
}

static void begin_entry(struct console_job *job)
{
    static const struct {
        const char *action, *command, *verdict;
    } actions[] = {{"pin", "SC.PIN", NULL},
                   {"unpin", "SC.UNPIN", NULL},
                   {"delete", "SC.DEL", NULL},
                   {"good", "SC.FEEDBACK", "GOOD"},
                   {"bad", "SC.FEEDBACK", "BAD"}};
    const char *cache = console_job_text(job, "cache", ""), *id = console_job_text(job, "id", ""),
               *action = console_job_text(job, "action", ""), *similarity = console_job_text(job, "similarity", NULL);
    job->next = answer_entry;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(action, actions[i].action) != 0)
            continue;
        if (actions[i].verdict && similarity)
            console_job_ask(job, NULL, "reply", CONSOLE_MUST, actions[i].command, cache, id, actions[i].verdict, "SIM",
                            similarity, NULL);
        else if (actions[i].verdict)
            console_job_ask(job, NULL, "reply", CONSOLE_MUST, actions[i].command, cache, id, actions[i].verdict, NULL);
        else
            console_job_ask(job, NULL, "reply", CONSOLE_MUST, actions[i].command, cache, id, NULL);
        return;
    }
    console_job_refuse(job, 400, "bad_request", "action is '%.40s': pin, unpin, delete, good or bad", action);
}

/* ---- labels ---- */

static void begin_pop(struct console_job *job)
{
    int64_t n;
    char count[24];
    if (!console_job_number(job, "count", 1, 1, 100, &n))
        return;
    snprintf(count, sizeof count, "%lld", (long long)n);
    console_job_ask(job, NULL, "pairs", CONSOLE_MUST, "SC.AUDIT", "POP", console_job_text(job, "cache", ""), "COUNT",
                    count, NULL);
}

static void begin_put(struct console_job *job)
{
    const char *verdict = console_job_text(job, "verdict", "");
    if (strcasecmp(verdict, "good") != 0 && strcasecmp(verdict, "bad") != 0) {
        console_job_refuse(job, 400, "bad_request", "verdict is '%.40s': good or bad", verdict);
        return;
    }
    job->next = answer_ok;
    console_job_ask(job, NULL, "reply", CONSOLE_MUST, "SC.AUDIT", "PUT", console_job_text(job, "cache", ""),
                    console_job_text(job, "audit", ""), verdict, NULL);
}

/* ---- a set ---- */

static void answer_check(struct console_job *job)
{
    json_t *reply = json_incref(json_object_get(job->root, "reply"));
    json_object_clear(job->root);
    json_object_update(job->root, reply);
    json_decref(reply);
}

static void begin_check(struct console_job *job)
{
    job->next = answer_check;
    console_job_ask(job, NULL, "reply", CONSOLE_MUST, "VCHECK", console_job_text(job, "set", ""), NULL);
}

const struct console_view console_acts[] = {
    {"POST", "/ui/api/category", "cache! category! settings!", CONSOLE_CHANGES, begin_settings},
    {"POST", "/ui/api/entry", "cache! id! action! similarity", CONSOLE_CHANGES, begin_entry},
    {"POST", "/ui/api/audit/pop", "cache! count", CONSOLE_CHANGES, begin_pop},
    {"POST", "/ui/api/audit/put", "cache! audit! verdict!", CONSOLE_CHANGES, begin_put},
    {"POST", "/ui/api/sets", "names!", 0, console_views_sets_named},
    {"POST", "/ui/api/set/check", "set!", CONSOLE_SLOW, begin_check},
    {"POST", "/ui/api/playground/cache", "cache! category! text vector scope hash compat similarity max_age_ms query",
     0, console_play_cache_begin},
    {"POST", "/ui/api/playground/set",
     "set! element vector text count filter recall effort max_reads tenants truth attributes query", 0,
     console_play_set_begin},
    {NULL, NULL, NULL, 0, NULL}};
