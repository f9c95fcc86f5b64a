/*
 * support_folder.h - what tests of data folders begin with: a folder of their own, a lane, a model of a collection's
 * elements, and what they do to a collection and to its model alike.
 */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_FOLDER_H
#define QUIRE_TESTS_INDEX_SUPPORT_FOLDER_H

#include "index/store/store_check.h"
#include "tests/index/support_index.h"
#include "tests/index/support_store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define KEYS 3000u

struct state {
    char *folder, *path;
    struct support_lane lane;
    struct support_model model;
};

static inline int set_up(void **out)
{
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "data");
    support_lane_open(&s->lane, NULL);
    support_model_init(&s->model, KEYS);
    *out = s;
    return 0;
}

static inline int tear_down(void **in)
{
    struct state *s = *in;
    support_lane_close(&s->lane);
    support_model_free(&s->model);
    free(s->path);
    support_folder_remove(s->folder);
    free(s);
    return 0;
}

static inline void put_keys(struct state *s, struct collection *c, uint32_t first, uint32_t n, uint32_t version)
{
    for (uint32_t key = first; key < first + n; key++)
        assert_int_equal(support_put(&s->lane, c, &s->model, key, version, key % 3 ? version : 0, NULL), 0);
}

static inline void remove_keys(struct state *s, struct collection *c, uint32_t first, uint32_t n, uint32_t step)
{
    for (uint32_t key = first; key < first + n; key += step)
        assert_int_equal(support_remove(&s->lane, c, &s->model, key, NULL), 0);
}

static inline void seal(struct store *store, struct collection *c)
{
    struct quire_error err = {0};
    if (store_seal(store, c, &err) < 0)
        fail_msg("seal: %s", err.message);
}

static inline uint32_t parts_of(struct collection *c)
{
    struct view *view = collection_view(c);
    uint32_t n = view->n_parts;
    view_unref(view);
    return n;
}

static inline unsigned folders_of(const struct state *s)
{
    char *segments = support_path(s->path, SEGMENTS_NAME);
    unsigned n = support_count_entries(segments);
    free(segments);
    return n;
}

static inline void no_finding(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "finding: %s\n", sentence);
}

static inline void assert_sound(const struct state *s)
{
    struct store_verify_report report;
    struct quire_error err = {0};
    if (store_verify(&(struct store_check_request){.path = s->path, .finding = no_finding}, &report, &err) < 0)
        fail_msg("verify: %s", err.message);
    assert_int_equal(report.findings, 0);
}

#endif
