/*
 * example.c - the embedded library from end to end: build an index of random vectors, search it, look a key up.
 *
 * Compile:  cc example.c $(pkg-config --cflags --libs quire)       Run:  ./a.out /tmp/example-index
 */
#include <quire.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2000, DIM = 32, K = 5 };

static int failed(const char *what, int code, const struct quire_error *err)
{
    fprintf(stderr, "%s: %s: %s\n", what, quire_error_name(code), err->message);
    return 1;
}

struct answer {
    int calls;
    uint64_t nearest;
};

static void on_answer(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                      const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct answer *answer = context;
    if (code < 0) {
        fprintf(stderr, "search: %s\n", err->message);
        return;
    }
    answer->calls++;
    answer->nearest = n_hits ? hits[0].id : UINT64_MAX;
    printf("asynchronous: row %llu, %u reads in %u rounds\n", (unsigned long long)answer->nearest, stats->reads,
           stats->rounds);
}

/* One search driven by the caller's own loop. */
static int search_by_loop(struct quire_index *index, const float *query, struct quire_error *err)
{
    struct quire_loop *loop = NULL;
    struct quire_search_options options;
    struct answer answer = {0, 0};
    int rc = quire_loop_create(NULL, &loop, err);
    if (rc < 0)
        return rc;
    quire_search_options_init(&options);
    options.k = 1;
    rc = quire_loop_search(loop, index, query, &options, on_answer, &answer, err);
    while (rc >= 0 && answer.calls == 0)
        rc = quire_loop_poll(loop, 1, UINT64_MAX);
    quire_loop_destroy(loop);
    return rc < 0 ? rc : 0;
}

static int use(struct quire_index *index, const float *vectors)
{
    struct quire_error err = {0};
    struct quire_search_options options;
    struct quire_hit hits[K];
    uint32_t n_hits = 0, row = 0;
    quire_search_options_init(&options);
    options.k = K;
    options.recall = 0.95f;
    int rc = quire_search(index, vectors + 7 * DIM, &options, hits, &n_hits, NULL, &err);
    if (rc < 0)
        return failed("search", rc, &err);
    for (uint32_t i = 0; i < n_hits; i++)
        printf("row %llu at squared distance %.4f\n", (unsigned long long)hits[i].id, (double)hits[i].distance);
    rc = quire_lookup(index, "7", 1, &row, &err);
    if (rc < 0)
        return failed("lookup", rc, &err);
    rc = search_by_loop(index, vectors + 7 * DIM, &err);
    if (rc < 0)
        return failed("asynchronous search", rc, &err);
    return n_hits == K && hits[0].id == 7 && hits[0].row == row ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "example-index";
    struct quire_error err = {0};
    struct quire_build_options build;
    struct quire_index *index = NULL;
    float *vectors = malloc(sizeof(float) * ROWS * DIM);
    if (!vectors)
        return 1;
    srand(1);
    for (int i = 0; i < ROWS * DIM; i++)
        vectors[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    quire_build_options_init(&build);
    build.metric = QUIRE_METRIC_L2;
    int rc = quire_build(path, vectors, ROWS, DIM, QUIRE_TYPE_F32, &build, &err);
    if (rc < 0) {
        free(vectors);
        return failed("build", rc, &err);
    }
    rc = quire_open(path, NULL, &index, &err);
    rc = rc < 0 ? failed("open", rc, &err) : use(index, vectors);
    quire_close(index);
    free(vectors);
    printf("quire %s: %s\n", quire_version(), rc == 0 ? "as expected" : "NOT as expected");
    return rc;
}
