/*
 * stream.c - a labelled text set as a stream of requests: reading it, ordering it, finding the nearest earlier rows.
 *
 * Names become numbers by sorting: the rows' names are sorted once and equal ones share a number, so that a set of any
 * size needs no hash table. Orders are made by giving each row a time and sorting by it; equal times are told apart by
 * the row, so that an order depends on the seed alone. Nearest rows: a row's products with all rows of its category are
 * computed once and looked through for each order, since products cost a hundred times what a comparison does.
 */
#include "datasets/stream.h"
#include "index/kernels/kernels.h"
#include "io/array.h"
#include "io/error.h"
#include "io/random.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES_FIRST (1u << 20)
#define BURST_ROWS       200.0
#define DRIFT_PART       0.7 /* of the stream, over which new answers begin */

/* ---- reading -------------------------------------------------------------------------------------------------- */

static int read_text(const char *path, char **out, struct quire_error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, QUIRE_EIO, "cannot open %s", path);
    size_t capacity = 0, n = 0;
    char *text = NULL;
    int rc = 0;
    do
        if (array_reserve(&text, &capacity, n + READ_BYTES_FIRST))
            n += fread(text + n, 1, capacity - n - 1, file);
        else
            rc = error_set(err, QUIRE_ENOMEM, "no memory for %s", path);
    while (rc == 0 && n == capacity - 1);
    if (rc == 0 && ferror(file))
        rc = error_set(err, QUIRE_EIO, "cannot read %s", path);
    fclose(file);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[n] = 0;
    *out = text;
    return 0;
}

struct name {
    const char *category, *text; /* text: the name itself; category: what it is sorted by first, or "" */
    uint32_t row;
};

static int by_name(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    int order = strcmp(x->category, y->category);
    if (order == 0)
        order = strcmp(x->text, y->text);
    return order ? order : x->row < y->row ? -1 : 1;
}

/* numbers[row] = place of the row's name among the different ones. Returns how many there are; first[] their names. */
static uint32_t number_names(struct name *names, uint32_t n, uint32_t *numbers, const char **first)
{
    uint32_t number = 0;
    qsort(names, n, sizeof *names, by_name);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 &&
            (strcmp(names[i].text, names[i - 1].text) != 0 || strcmp(names[i].category, names[i - 1].category) != 0))
            number++;
        numbers[names[i].row] = number;
        if (first)
            first[number] = names[i].text;
    }
    return n ? number + 1 : 0;
}

/* Cuts a line into columns; the three that count go to out. */
static int cut_line(char *line, const struct stream_columns *columns, uint32_t number, const char *out[3],
                    struct quire_error *err)
{
    const unsigned wanted[3] = {columns->category, columns->answer, columns->text};
    char *rest = line, *column;
    out[0] = out[1] = out[2] = NULL;
    for (unsigned i = 1; (column = strsep(&rest, "\t")); i++)
        for (unsigned w = 0; w < 3; w++)
            if (wanted[w] == i)
                out[w] = column;
    for (unsigned w = 0; w < 3; w++)
        if (!out[w])
            return error_set(err, QUIRE_EFORMAT, "line %u has no column %u", number, wanted[w]);
    return 0;
}

static int cut_lines(struct stream_data *data, const struct stream_columns *columns, struct name *categories,
                     struct name *answers, struct quire_error *err)
{
    char *rest = data->tsv, *line;
    uint32_t n = 0;
    while ((line = strsep(&rest, "\n")) && (*line || rest)) {
        const char *cut[3];
        if (n == data->rows)
            return error_set(err, QUIRE_EDIM, "the text has more lines than the %u vectors", data->rows);
        int rc = cut_line(line, columns, n + 1, cut, err);
        if (rc < 0)
            return rc;
        categories[n] = (struct name){.category = "", .text = cut[0], .row = n};
        answers[n] = (struct name){.category = cut[0], .text = cut[1], .row = n};
        data->texts[n++] = cut[2];
    }
    if (n != data->rows)
        return error_set(err, QUIRE_EDIM, "the text has %u lines, the vectors have %u rows", n, data->rows);
    return 0;
}

static int load_rows(struct stream_data *data, const struct stream_columns *columns, struct quire_error *err)
{
    size_t n = data->rows;
    struct name *categories = calloc(n, sizeof *categories), *answers = calloc(n, sizeof *answers);
    data->category = calloc(n, sizeof *data->category);
    data->answer = calloc(n, sizeof *data->answer);
    data->texts = calloc(n, sizeof *data->texts);
    data->category_names = calloc(n, sizeof *data->category_names);
    int rc = QUIRE_ENOMEM;
    if (!categories || !answers || !data->category || !data->answer || !data->texts || !data->category_names) {
        error_set(err, rc, "no memory for %u rows", data->rows);
        goto out;
    }
    rc = cut_lines(data, columns, categories, answers, err);
    if (rc < 0)
        goto out;
    data->n_categories = number_names(categories, data->rows, data->category, data->category_names);
    data->n_answers = number_names(answers, data->rows, data->answer, NULL);
    if (data->n_categories > STREAM_CATEGORIES_MAX)
        rc = error_set(err, QUIRE_ELIMIT, "%u categories, the limit is %u: is column %u the category?",
                       data->n_categories, STREAM_CATEGORIES_MAX, columns->category);
    for (uint32_t i = 0; i < data->rows && columns->nothing; i++)
        if (strcmp(data->category_names[data->category[i]], columns->nothing) == 0)
            data->answer[i] = STREAM_NO_ANSWER;
out:
    free(categories);
    free(answers);
    return rc;
}

int stream_load(const char *tsv, const char *vectors, const struct stream_columns *columns, struct stream_data *out,
                struct quire_error *err)
{
    struct stream_data data = {0};
    int rc = vecfile_vectors_load(vectors, VECFILE_AUTO, &data.vectors, err);
    if (rc < 0)
        return rc;
    data.rows = (uint32_t)data.vectors.rows;
    if (data.vectors.type != QUIRE_TYPE_F32 || data.vectors.rows > UINT32_MAX)
        rc = error_set(err, QUIRE_EUNSUPPORTED, "%s: vectors of a stream are f32, less than 2^32 rows", vectors);
    if (rc == 0)
        rc = read_text(tsv, &data.tsv, err);
    if (rc == 0)
        rc = load_rows(&data, columns, err);
    if (rc < 0)
        stream_free(&data);
    else
        *out = data;
    return rc;
}

void stream_free(struct stream_data *data)
{
    free(data->category);
    free(data->answer);
    free(data->texts);
    free(data->category_names);
    free(data->tsv);
    vecfile_vectors_free(&data->vectors);
    memset(data, 0, sizeof *data);
}

/* ---- orders --------------------------------------------------------------------------------------------------- */

struct arrival {
    double time;
    uint32_t row;
};

static int by_time(const void *a, const void *b)
{
    const struct arrival *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time ? 1 : x->row < y->row ? -1 : 1;
}

static double uniform(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

/* Rows in random order already: cut into bursts of a category, drawn in proportion to what is left of each. */
static int make_bursts(const struct stream_data *data, struct random *random, struct arrival *arrivals)
{
    uint32_t *left = calloc(data->n_categories, sizeof *left), *next = calloc(data->n_categories, sizeof *next);
    double *times = calloc(data->rows, sizeof *times);
    int rc = left && next && times ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < data->rows; i++)
        left[data->category[arrivals[i].row]]++;
    /* next[c]: start of the category's slots; slots are filled burst by burst with the time of the burst */
    for (uint32_t c = 1; rc == 0 && c < data->n_categories; c++)
        next[c] = next[c - 1] + left[c - 1];
    for (uint32_t time = 0, remaining = rc == 0 ? data->rows : 0; remaining > 0; time++) {
        uint64_t pick = random_below(random, remaining);
        uint32_t c = 0;
        while (pick >= left[c])
            pick -= left[c++];
        do {
            times[next[c]++] = time;
            left[c]--;
            remaining--;
        } while (left[c] > 0 && uniform(random) > 1 / BURST_ROWS);
    }
    for (uint32_t i = data->rows; rc == 0 && i-- > 0;) {
        /* from the end: the category's last row takes its last slot; within a burst the random order stays */
        uint32_t c = data->category[arrivals[i].row];
        arrivals[i].time = times[--next[c]] + i / (1.0 + data->rows);
    }
    free(left);
    free(next);
    free(times);
    return rc;
}

static int make_drift(const struct stream_data *data, struct random *random, struct arrival *arrivals)
{
    double *begin = calloc(data->n_answers, sizeof *begin);
    if (!begin)
        return QUIRE_ENOMEM;
    for (uint32_t a = 0; a < data->n_answers; a++)
        begin[a] = DRIFT_PART * uniform(random);
    for (uint32_t i = 0; i < data->rows; i++) {
        uint32_t answer = data->answer[arrivals[i].row];
        double from = answer == STREAM_NO_ANSWER ? 0 : begin[answer];
        arrivals[i].time = from + (1 - from) * uniform(random);
    }
    free(begin);
    return 0;
}

int stream_order(const struct stream_data *data, enum stream_order order, uint64_t seed, uint32_t *rows)
{
    struct random random;
    struct arrival *arrivals = calloc(data->rows, sizeof *arrivals);
    if (!arrivals)
        return QUIRE_ENOMEM;
    random_init(&random, random_mix(seed + 1));
    for (uint32_t i = 0; i < data->rows; i++)
        arrivals[i] = (struct arrival){.time = uniform(&random), .row = i};
    qsort(arrivals, data->rows, sizeof *arrivals, by_time);
    int rc = order == STREAM_BURSTY     ? make_bursts(data, &random, arrivals)
             : order == STREAM_DRIFTING ? make_drift(data, &random, arrivals)
                                        : 0;
    if (rc == 0 && order != STREAM_RANDOM)
        qsort(arrivals, data->rows, sizeof *arrivals, by_time);
    for (uint32_t i = 0; rc == 0 && i < data->rows; i++)
        rows[i] = arrivals[i].row;
    free(arrivals);
    return rc;
}

/* ---- nearest earlier rows ------------------------------------------------------------------------------------- */

struct nearest {
    const struct stream_data *data;
    uint32_t **place;  /* place[o][row]: where the row stands in order o */
    uint32_t *members; /* rows of the category at work */
    float *products;   /* of a row with each member */
};

static void find_row(const struct nearest *n, uint32_t row, uint32_t count, uint32_t n_orders,
                     struct stream_request *const *requests)
{
    const struct stream_data *data = n->data;
    const float *floats = data->vectors.data;
    const size_t dim = data->vectors.dim;
    for (uint32_t i = 0; i < count; i++)
        n->products[i] = kernels()->f32_dot(floats + row * dim, floats + n->members[i] * dim, dim);
    for (uint32_t o = 0; o < n_orders; o++) {
        const uint32_t *place = n->place[o], mine = place[row];
        struct stream_request request = {.category = data->category[row], .similarity = -1};
        uint32_t best = row;
        for (uint32_t i = 0; i < count; i++)
            if (n->products[i] > request.similarity && place[n->members[i]] < mine) {
                request.similarity = n->products[i];
                best = n->members[i];
            }
        if (request.similarity > 1)
            request.similarity = 1; /* rounding */
        request.right = best != row && data->answer[row] != STREAM_NO_ANSWER && data->answer[best] == data->answer[row];
        requests[o][mine] = request;
    }
}

int stream_nearest(const struct stream_data *data, const uint32_t *const *orders, uint32_t n_orders,
                   struct stream_request *const *requests, const struct progress *progress)
{
    struct nearest n = {.data = data};
    struct parallel_advance advance = {progress, progress ? progress->phase : "", 0, data->rows};
    int rc = QUIRE_ENOMEM;
    n.place = calloc(n_orders, sizeof *n.place);
    n.members = calloc(data->rows, sizeof *n.members);
    n.products = calloc(data->rows, sizeof *n.products);
    if (!n.place || !n.members || !n.products)
        goto out;
    for (uint32_t o = 0; o < n_orders; o++) {
        n.place[o] = calloc(data->rows, sizeof *n.place[o]);
        if (!n.place[o])
            goto out;
        for (uint32_t i = 0; i < data->rows; i++)
            n.place[o][orders[o][i]] = i;
    }
    for (uint32_t c = 0; c < data->n_categories; c++) {
        uint32_t count = 0;
        for (uint32_t row = 0; row < data->rows; row++)
            if (data->category[row] == c)
                n.members[count++] = row;
        for (uint32_t i = 0; i < count; i++) {
            find_row(&n, n.members[i], count, n_orders, requests);
            if ((rc = parallel_report(&advance, 1)) < 0)
                goto out;
        }
    }
    rc = 0;
out:
    for (uint32_t o = 0; n.place && o < n_orders; o++)
        free(n.place[o]);
    free(n.place);
    free(n.members);
    free(n.products);
    return rc;
}
