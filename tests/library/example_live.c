/*
 * example_live.c - a live collection from end to end: elements are put, found, replaced and removed while the folder
 * stays searchable; a snapshot shows what was; everything is there again after closing and opening.
 *
 * Compile:  cc example_live.c $(pkg-config --cflags --libs quire)       Run:  ./a.out /tmp/example-live
 */
#include <quire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 2000, DIM = 32 };

static int failed(const char *what, int code, const struct quire_error *err)
{
    fprintf(stderr, "%s: %s: %s\n", what, quire_error_name(code), err->message);
    return 1;
}

/* The nearest element to a vector, now or as of a snapshot: whether it is `key`. */
static int is_nearest(struct quire_collection *collection, const struct quire_snapshot *snapshot, const float *vector,
                      const char *key)
{
    struct quire_error err = {0};
    struct quire_search_options options;
    struct quire_result *result = NULL;
    struct quire_element element;
    quire_search_options_init(&options);
    options.k = 3;
    int rc =
        quire_collection_search(collection, snapshot, vector, &options, QUIRE_WITH_ATTRIBUTES, &result, NULL, &err);
    if (rc < 0)
        return !failed("search", rc, &err);
    quire_result_element(result, 0, &element);
    printf("%.*s at %.4f, attributes %.*s\n", (int)element.key_bytes, (const char *)element.key,
           (double)element.distance, (int)element.attribute_bytes, element.attributes ? element.attributes : "");
    int same = element.key_bytes == strlen(key) && memcmp(element.key, key, element.key_bytes) == 0;
    quire_result_free(result);
    return same;
}

static int fill(struct quire_collection *collection, const float *vectors)
{
    struct quire_error err = {0};
    for (int i = 0; i < ELEMENTS; i++) {
        char key[32], attributes[64];
        int key_bytes = snprintf(key, sizeof key, "article:%d", i);
        int bytes = snprintf(attributes, sizeof attributes, "{\"number\": %d}", i);
        int rc = quire_put(collection, key, (size_t)key_bytes, vectors + (size_t)i * DIM, attributes, (size_t)bytes,
                           NULL, &err);
        if (rc < 0)
            return failed("put", rc, &err);
    }
    return 0;
}

static int change(struct quire_collection *collection, const float *vectors)
{
    struct quire_error err = {0};
    struct quire_snapshot *before = NULL;
    const float *seventh = vectors + 7 * DIM, *eighth = vectors + 8 * DIM;
    int rc = quire_snapshot_open(collection, &before, &err);
    if (rc < 0)
        return failed("snapshot", rc, &err);
    /* another vector for article:7, which keeps its attributes; no article:8 */
    rc = quire_put(collection, "article:7", 9, eighth, NULL, 0, NULL, &err);
    if (rc == 0)
        rc = quire_remove(collection, "article:8", 9, &err);
    if (rc == 0)
        rc = quire_seal(collection, &err); /* the background does so, too, when there is enough to seal */
    int right = is_nearest(collection, NULL, eighth, "article:7") &&
                is_nearest(collection, before, seventh, "article:7") &&
                is_nearest(collection, before, eighth, "article:8");
    quire_snapshot_close(before);
    return rc < 0 ? failed("change", rc, &err) : !right;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "example-live";
    struct quire_error err = {0};
    struct quire_collection_options options;
    struct quire_collection_info info;
    struct quire_collection *collection = NULL;
    float *vectors = malloc(sizeof(float) * ELEMENTS * DIM);
    if (!vectors)
        return 1;
    srand(1);
    for (int i = 0; i < ELEMENTS * DIM; i++)
        vectors[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    quire_collection_options_init(&options);
    options.create = true;
    options.dim = DIM;
    options.durability = QUIRE_DURABLE_EVERYSEC;
    int failures = 0, rc = quire_collection_open(path, &options, &collection, &err);
    if (rc < 0) {
        free(vectors);
        return failed("open", rc, &err);
    }
    failures += fill(collection, vectors);
    failures += failures == 0 && change(collection, vectors);
    rc = quire_collection_close(collection, &err);
    if (rc == 0)
        rc = quire_collection_open(path, NULL, &collection, &err);
    if (rc < 0) {
        free(vectors);
        return failed("open again", rc, &err);
    }
    quire_collection_get_info(collection, &info);
    failures += !is_nearest(collection, NULL, vectors + 8 * DIM, "article:7");
    failures += info.elements != ELEMENTS - 1;
    quire_collection_close(collection, NULL);
    free(vectors);
    printf("quire %s: %s\n", quire_version(), failures == 0 ? "as expected" : "NOT as expected");
    return failures != 0;
}
