/*
 * eval_hindsight.c - the thresholds that somebody would choose who knew the whole stream beforehand.
 *
 * The nearest earlier row of each request is known by brute force (stream_nearest), and whether it is right. Requests
 * are sorted by similarity; going down, all requests of one similarity are let through together, since a threshold
 * cannot tell them apart. The last point at which wrong answers are within the budget serves the most.
 *
 * A single threshold has the budget of all requests; those of each category have that of its own requests, as RISK has.
 * For the second half both are found once more on the second half alone: the best that could be done there.
 */
#include "io/error.h"
#include "tools/eval.h"
#include <stdlib.h>
#include <string.h>

#define NOTHING 2.0 /* above every similarity */

struct pair {
    float similarity;
    bool right;
};

static int by_similarity_down(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->similarity > y->similarity ? -1 : x->similarity < y->similarity;
}

/* The lowest threshold (for most served) whose wrong answers are at most delta of the requests, among those of a
 * category (UINT32_MAX: all); above 1 where none is. QUIRE_ENOMEM. */
static int hindsight_threshold(const struct stream_request *requests, uint32_t n, uint32_t category, double delta,
                               double *threshold, struct quire_error *err)
{
    struct pair *pairs = calloc(n ? n : 1, sizeof *pairs);
    uint32_t all = 0, count = 0, wrong = 0;
    if (!pairs)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u requests", n);
    for (uint32_t i = 0; i < n; i++) {
        if (category != UINT32_MAX && requests[i].category != category)
            continue;
        all++;
        if (requests[i].similarity > 0)
            pairs[count++] = (struct pair){requests[i].similarity, requests[i].right};
    }
    qsort(pairs, count, sizeof *pairs, by_similarity_down);
    *threshold = NOTHING;
    for (uint32_t i = 0; i < count; i++) {
        wrong += !pairs[i].right;
        bool last_of_equals = i + 1 == count || pairs[i + 1].similarity < pairs[i].similarity;
        if (last_of_equals && wrong <= delta * all)
            *threshold = (double)pairs[i].similarity;
    }
    free(pairs);
    return 0;
}

struct eval_served eval_hindsight_served(const struct stream_request *requests, uint32_t n, const double *thresholds)
{
    struct eval_served served = {.requests = n};
    for (uint32_t i = 0; i < n; i++)
        if ((double)requests[i].similarity >= thresholds[requests[i].category]) {
            served.served++;
            served.wrong += !requests[i].right;
        }
    return served;
}

static int find_thresholds(const struct stream_data *data, const struct stream_request *requests, uint32_t n,
                           double delta, double *one, double *own, struct quire_error *err)
{
    int rc = hindsight_threshold(requests, n, UINT32_MAX, delta, &one[0], err);
    for (uint32_t c = 0; rc == 0 && c < data->n_categories; c++) {
        one[c] = one[0];
        rc = hindsight_threshold(requests, n, c, delta, &own[c], err);
    }
    return rc;
}

int eval_hindsight_make(const struct stream_data *data, const struct stream_request *requests, double delta,
                        struct eval_hindsight *out, struct quire_error *err)
{
    const uint32_t n = data->rows, half = n / 2;
    const struct stream_request *second = requests + half;
    memset(out, 0, sizeof *out);
    out->one = calloc(data->n_categories, sizeof *out->one);
    out->own = calloc(data->n_categories, sizeof *out->own);
    int rc = out->one && out->own ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for thresholds");
    double *const of[2] = {out->one, out->own};
    if (rc == 0)
        rc = find_thresholds(data, second, n - half, delta, out->one, out->own, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++)
        out->best_half[i] = eval_hindsight_served(second, n - half, of[i]);
    if (rc == 0)
        rc = find_thresholds(data, requests, n, delta, out->one, out->own, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++) {
        out->whole[i] = eval_hindsight_served(requests, n, of[i]);
        out->half[i] = eval_hindsight_served(second, n - half, of[i]);
    }
    if (rc < 0)
        eval_hindsight_free(out);
    return rc;
}

void eval_hindsight_free(struct eval_hindsight *hindsight)
{
    free(hindsight->one);
    free(hindsight->own);
    memset(hindsight, 0, sizeof *hindsight);
}
