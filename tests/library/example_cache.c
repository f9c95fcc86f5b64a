/*
 * example_cache.c - a program that asks an expensive model, and does not ask it twice: the first program of somebody
 * who has a model and something that makes vectors of texts. Here both are made up, so that it runs anywhere.
 *
 * Compile:  cc example_cache.c $(pkg-config --cflags --libs quire) -lm       Run:  ./a.out /tmp/example-cache
 */
#include <math.h>
#include <quire.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 64 };
static int model_calls;

static struct quire_bytes text(const char *s)
{
    return (struct quire_bytes){s, strlen(s)};
}

/* Stands for an embedding model: every piece of three letters adds to one place of the vector. */
static void embed(const char *question, float *vector)
{
    memset(vector, 0, sizeof *vector * DIM);
    for (size_t i = 0; i + 2 < strlen(question); i++)
        vector[(question[i] * 7 + question[i + 1] * 31 + question[i + 2] * 131) % DIM] += 1;
}

/* Stands for the model. */
static const char *ask_model(const char *question)
{
    model_calls++;
    return strstr(question, "France") ? "Paris." : "It depends.";
}

/* Answers a question of a tenant, from the cache where it can. Returns what came of it, negative on an error. */
static int answer(struct quire_cache *cache, const char *tenant, const char *question)
{
    struct quire_error err = {0};
    struct quire_cache_answer got = {0};
    struct quire_cache_put_result put;
    float vector[DIM];
    embed(question, vector);
    struct quire_pair scope = {text("tenant"), text(tenant)};
    struct quire_cache_query query = {.category = text("facts"),
                                      .scope = &scope,
                                      .n_scope = 1,
                                      .text = text(question),
                                      .vector = vector,
                                      .wait_ms = 2000};
    int rc = quire_cache_get(cache, &query, &got, &err);
    int status = (int)got.status;
    if (rc == 0 && got.value.n_bytes && got.status != QUIRE_CACHE_AUDIT) {
        printf("%-8s %-40s %.*s\n", quire_cache_status_name(got.status), question, (int)got.value.n_bytes,
               (const char *)got.value.data);
    } else if (rc == 0) {
        struct quire_bytes value = text(ask_model(question));
        struct quire_cache_entry entry = {.category = query.category,
                                          .lease = text(got.lease), /* others wait for this answer */
                                          .scope = &scope,
                                          .n_scope = 1,
                                          .text = query.text,
                                          .vector = vector,
                                          .chunks = &value,
                                          .n_chunks = 1,
                                          .cost = 0.01};
        printf("%-8s %-40s %.*s (%s)\n", quire_cache_status_name(got.status), question, (int)value.n_bytes,
               (const char *)value.data, got.reason);
        rc = quire_cache_put(cache, &entry, &put, &err);
    }
    quire_cache_answer_free(&got);
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", quire_error_name(rc), err.message);
    return rc < 0 ? rc : status;
}

static int open_cache(const char *path, struct quire_cache **cache)
{
    struct quire_error err = {0};
    struct quire_cache_options options;
    struct quire_bytes scope_keys[] = {text("tenant")};
    struct quire_bytes words[] = {text("SIM"), text("0.8"), text("TTL"), text("3600000")};
    quire_cache_options_init(&options);
    options.create = true;
    options.dim = DIM;
    options.encoder = "letters@1";
    options.scope_keys = scope_keys;
    options.n_scope_keys = 1;
    options.require_scope = true; /* no request forgets whose it is */
    int rc = quire_cache_open(path, &options, cache, &err);
    if (rc == 0)
        rc = quire_cache_set_category(*cache, text("facts"), words, 4, &err);
    if (rc < 0)
        fprintf(stderr, "open %s: %s: %s\n", path, quire_error_name(rc), err.message);
    return rc;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "example-cache";
    struct quire_cache *cache = NULL;
    struct quire_cache_stats stats = {0};
    if (open_cache(path, &cache) < 0)
        return 1;
    int wrong = 0;
    wrong += answer(cache, "acme", "what is the capital of France") != QUIRE_CACHE_MISS;
    wrong += answer(cache, "acme", "what is the capital of France") != QUIRE_CACHE_EXACT;
    wrong += answer(cache, "acme", "what is the capital of France please") != QUIRE_CACHE_HIT;
    wrong += answer(cache, "acme", "how do I get to the station") != QUIRE_CACHE_MISS;
    /* another tenant's answers are none of its business */
    wrong += answer(cache, "emca", "what is the capital of France") != QUIRE_CACHE_MISS;
    wrong += quire_cache_close(cache, NULL) != 0;
    /* everything is there again */
    if (open_cache(path, &cache) < 0)
        return 1;
    wrong += answer(cache, "acme", "what is the capital of France") != QUIRE_CACHE_EXACT;
    wrong += quire_cache_get_stats(cache, text("facts"), &stats, NULL) != 0;
    printf("%d calls of the model; saved since the start: %.2f USD\n", model_calls, stats.cost_saved);
    wrong += model_calls != 3 || fabs(stats.cost_saved - 0.01) > 1e-6;
    wrong += quire_cache_close(cache, NULL) != 0;
    printf("quire %s: %s\n", quire_version(), wrong ? "NOT as expected" : "as expected");
    return wrong != 0;
}
