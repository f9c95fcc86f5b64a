/*
 * cache_load_crowd.c - a crowd with one new question: how often is the model asked?
 *
 * Every client has a connection of its own and asks the same at once, ready to wait. Whoever gets the lease is the
 * leader and asks the model; all others have to get its answer. Three crowds, each with a question of its own:
 *
 *     answers        the leader puts the answer                                        one call
 *     gives up       the leader says SC.FAIL, its successor answers                    one more
 *     dies           the leader's connection closes, its deadline passes               one more
 *
 * A call of the model is a lease that was given. All must be served in the end: with the answer, or by having led.
 */
#include "io/clock.h"
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATEGORY      "crowd"
#define LEASE_MS      "3000" /* deadline of a leader: how long the crowd waits for one that died */
#define WAIT_MS       60000u
#define GATHER_NS     1000000000u /* from the first lease until the leader does something: the others come meanwhile */
#define GIVE_UP_NS    70000000000u
#define MODEL_CALL_NS 50000000u
#define ANSWER        "the one answer"
#define TOKEN_MAX     80u

enum leader { LEADER_ANSWERS, LEADER_GIVES_UP, LEADER_DIES, LEADERS };
static const char *const leader_names[LEADERS] = {"leader answers", "leader gives up", "leader dies"};

struct crowd {
    const struct load_options *options;
    struct wire *wire;
    float *vector;
    char text[LOAD_TEXT_BYTES];
    uint64_t n_asked, n_replied, n_served, n_leases, n_wrong, dead;
    char token[TOKEN_MAX]; /* of the present leader; "": none */
    uint64_t token_ns;
    uint64_t leader; /* its connection */
    uint64_t begin_ns, last_ns;
    int rc;
    struct quire_error *err;
};

static void on_reply(void *owner, uint64_t client, const redisReply *reply)
{
    struct crowd *crowd = owner;
    const char *lease = reply_text(reply_field(reply, "lease")), *value = reply_text(reply_field(reply, "value"));
    crowd->n_replied++;
    crowd->last_ns = clock_ns();
    if (reply->type == REDIS_REPLY_ERROR) {
        crowd->rc = error_set(crowd->err, QUIRE_EINVALID, "SC.GET answers: %s", reply->str);
    } else if (lease) {
        crowd->n_leases++;
        crowd->leader = client;
        crowd->token_ns = crowd->last_ns;
        snprintf(crowd->token, sizeof crowd->token, "%s", lease);
    } else if (value) {
        crowd->n_served++;
        crowd->n_wrong += strcmp(value, ANSWER) != 0;
    }
}

static void on_answer(void *owner, uint64_t unused, const redisReply *reply)
{
    struct crowd *crowd = owner;
    (void)unused;
    if (reply->type == REDIS_REPLY_ERROR)
        crowd->rc = error_set(crowd->err, QUIRE_EINVALID, "SC.PUT or SC.FAIL answers: %s", reply->str);
}

static void add_question(struct crowd *crowd, struct wire_words *words)
{
    words_text(words, "HASH");
    words_text(words, crowd->text);
    words_text(words, "TEXT");
    words_text(words, crowd->text);
    words_text(words, "VEC");
    words_blob(words, crowd->vector, crowd->options->dim * sizeof *crowd->vector);
}

static int ask_all(struct crowd *crowd)
{
    int rc = 0;
    struct wire_words words;
    words_begin(&words, "SC.GET", crowd->options->cache);
    words_text(&words, "CAT");
    words_text(&words, CATEGORY);
    add_question(crowd, &words);
    words_text(&words, "WAIT");
    words_count(&words, WAIT_MS);
    crowd->begin_ns = clock_ns();
    for (uint32_t i = 0; rc == 0 && i < crowd->options->clients; i++)
        rc = wire_call_on(crowd->wire, i, &words, on_reply, crowd, i);
    crowd->n_asked = crowd->options->clients;
    return rc < 0 ? error_set(crowd->err, rc, "no memory for %llu calls", (unsigned long long)crowd->options->clients)
                  : 0;
}

/* On the leader's own connection, which has its reply and is free. */
static int answer(struct crowd *crowd)
{
    struct wire_words words;
    words_begin(&words, "SC.PUT", crowd->options->cache);
    words_text(&words, "CAT");
    words_text(&words, CATEGORY);
    words_text(&words, "LEASE");
    words_text(&words, crowd->token);
    add_question(crowd, &words);
    words_text(&words, "VALUE");
    words_text(&words, ANSWER);
    return wire_call_on(crowd->wire, (uint32_t)crowd->leader, &words, on_answer, crowd, 0);
}

static int give_up(struct crowd *crowd)
{
    struct wire_words words;
    words_begin(&words, "SC.FAIL", crowd->options->cache);
    words_text(&words, crowd->token);
    return wire_call_on(crowd->wire, (uint32_t)crowd->leader, &words, on_answer, crowd, 0);
}

/* What a leader does when its model has answered, or not: the first one as asked, its successor answers. */
static int lead(struct crowd *crowd, enum leader how)
{
    int rc = 0;
    if (how == LEADER_ANSWERS || crowd->n_leases > 1) {
        rc = answer(crowd);
        crowd->n_served++; /* the leader has its answer from the model */
    } else if (how == LEADER_GIVES_UP) {
        rc = give_up(crowd);
        crowd->dead++;
    } else {
        wire_drop(crowd->wire, (uint32_t)crowd->leader);
        crowd->dead++;
    }
    crowd->token[0] = 0;
    return rc < 0 ? error_set(crowd->err, rc, "no memory for a call") : 0;
}

static int play(struct crowd *crowd, enum leader how, struct cli *cli)
{
    int rc = ask_all(crowd);
    while (rc == 0 && crowd->rc == 0) {
        uint64_t now = clock_ns();
        uint64_t patience = crowd->n_leases > 1 ? MODEL_CALL_NS : GATHER_NS;
        if (crowd->token[0] && now - crowd->token_ns >= patience)
            rc = lead(crowd, how);
        if (crowd->n_replied == crowd->n_asked && !crowd->token[0] && wire_under_way(crowd->wire) == 0)
            break;
        if (now - crowd->begin_ns > GIVE_UP_NS)
            break;
        if (rc == 0)
            rc = wire_poll(crowd->wire, 10000000u, crowd->err);
        if (rc == 0 && cli_progress(cli, leader_names[how], crowd->n_replied, crowd->n_asked))
            rc = cli_cancelled(crowd->err);
    }
    return rc < 0 ? rc : crowd->rc;
}

/* Fresh connections for each crowd: one of the leaders has closed its own. */
static int one_crowd(const struct load_options *options, enum leader how, struct cli *cli, float *vector,
                     struct quire_error *err)
{
    struct crowd crowd = {.options = options, .vector = vector, .err = err};
    struct random random;
    struct load_ask ask = {.question = 1000u + how};
    stream_text(&ask, crowd.text);
    random_init(&random, options->seed + how);
    random_direction(&random, vector, options->dim);
    int rc = wire_open(options, (uint32_t)options->clients, 1, &crowd.wire, err);
    if (rc == 0)
        rc = play(&crowd, how, cli);
    wire_close(crowd.wire);
    if (rc < 0)
        return rc;
    json_t *one = cli_put_row(cli, NULL, "crowds");
    cli_put_text(cli, one, "crowd", leader_names[how]);
    uint64_t expected = how == LEADER_ANSWERS ? 1 : 2;
    cli_put_count(cli, one, "clients", crowd.n_asked);
    cli_put_count(cli, one, "model_calls", crowd.n_leases);
    cli_put_count(cli, one, "model_calls_expected", expected);
    cli_put_count(cli, one, "served", crowd.n_served);
    cli_put_count(cli, one, "leaders_lost", crowd.dead);
    cli_put_count(cli, one, "wrong", crowd.n_wrong);
    cli_put_real(cli, one, "seconds", (double)(crowd.last_ns - crowd.begin_ns) / 1e9);
    cli_put_bool(cli, one, "holds",
                 crowd.n_leases == expected && crowd.n_wrong == 0 && crowd.n_served + crowd.dead == crowd.n_asked);
    return 0;
}

int load_flash_crowd(const struct load_options *options, struct cli *cli, struct quire_error *err)
{
    struct wire *wire = NULL;
    struct wire_words words;
    bool made = false;
    float *vector = calloc(options->dim, sizeof *vector);
    if (!vector)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    int rc = wire_open(options, 1, 1, &wire, err);
    if (rc < 0)
        goto out;
    words_begin(&words, "SC.CREATE", options->cache);
    words_text(&words, "DIM");
    words_count(&words, options->dim);
    rc = wire_do(wire, &words, err);
    made = rc == 0;
    if (rc == 0)
        rc = load_set_category(wire, options->cache, CATEGORY, "LEASE " LEASE_MS, err);
    cli_put_text(cli, NULL, "experiment", "flash-crowd");
    for (int how = 0; rc == 0 && how < LEADERS; how++)
        rc = one_crowd(options, (enum leader)how, cli, vector, err);
out:
    if (made) {
        int dropped = load_drop_cache(wire, options->cache, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : dropped;
    }
    wire_close(wire);
    free(vector);
    return rc;
}
