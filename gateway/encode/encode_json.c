/*
 * encode_json.c - requests to and answers of /v1/embeddings.
 *
 * Answers are read by the strict reader: one that says something twice or is no JSON is no vector. Rows are placed by
 * their `index`, since some servers do not keep the order.
 */
#include "gateway/encode/encode_priv.h"
#include "gateway/text/strict.h"
#include "io/error.h"
#include <event2/buffer.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool add_escaped(struct evbuffer *out, const char *text, size_t bytes)
{
    size_t from = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        if (evbuffer_add(out, text + from, i - from) != 0 || evbuffer_add_printf(out, "\\u%04x", c) < 0)
            return false;
        from = i + 1;
    }
    return evbuffer_add(out, text + from, bytes - from) == 0;
}

bool encode_json_request(struct evbuffer *out, const char *model, const char *prefix, const char *const *texts,
                         const size_t *bytes, unsigned n)
{
    bool ok = evbuffer_add_printf(out, "{\"model\":\"") > 0 && add_escaped(out, model, strlen(model)) &&
              evbuffer_add_printf(out, "\",\"encoding_format\":\"float\",\"input\":[") > 0;
    for (unsigned i = 0; i < n && ok; i++)
        ok = evbuffer_add_printf(out, i ? ",\"" : "\"") > 0 && (!prefix || add_escaped(out, prefix, strlen(prefix))) &&
             add_escaped(out, texts[i], bytes[i]) && evbuffer_add(out, "\"", 1) == 0;
    return ok && evbuffer_add(out, "]}", 2) == 0;
}

/* One row into `vector`; false: it is no list of dim finite numbers, or all are zero. */
static bool read_vector(const struct strict *json, uint32_t list, uint32_t dim, float *vector)
{
    uint32_t n = 0, numbers = strict_begin(list), at = 0;
    struct strict_text number;
    bool any = false;
    if (numbers == strict_end(json, list) || strict_kind(json, numbers) != STRICT_NUMBERS ||
        strict_next(json, numbers) != strict_end(json, list))
        return false;
    while ((number = strict_numbers(json, numbers, &at)).data) {
        float x = (float)strict_number_double(number.data, number.bytes);
        if (n == dim || !isfinite(x))
            return false;
        vector[n++] = x;
        any = any || x != 0;
    }
    return n == dim && any;
}

static int read_rows(const struct strict *json, uint32_t data, unsigned n, float **vectors, uint32_t *dim,
                     struct quire_error *err)
{
    float *out = NULL;
    uint64_t seen[(ENCODE_BATCH_MAX + 63) / 64] = {0};
    uint32_t row = 0;
    *dim = 0;
    for (uint32_t i = strict_begin(data); i < strict_end(json, data); i = strict_next(json, i), row++) {
        uint32_t list = strict_member(json, i, "embedding"), index_node = strict_given(json, i, "index");
        uint64_t index = row;
        if (!list || strict_kind(json, list) != STRICT_LIST || json->nodes[list].n == 0 ||
            json->nodes[list].n > ENCODE_DIM_MAX || (index_node && !strict_whole(json, index_node, n - 1, &index)) ||
            index >= n || seen[index / 64] >> (index % 64) & 1)
            break;
        if (!out) {
            *dim = json->nodes[list].n;
            out = malloc((size_t)n * *dim * sizeof *out);
            if (!out)
                return error_set(err, QUIRE_ENOMEM, "no memory for %u vectors of %u dimensions", n, *dim);
        }
        if (!read_vector(json, list, *dim, out + index * *dim))
            break;
        seen[index / 64] |= 1ull << (index % 64);
    }
    if (row != n || json->nodes[data].n != n) {
        free(out);
        return error_set(err, QUIRE_EPARSE, "the encoder's answer has no vector of numbers for each of %u texts", n);
    }
    *vectors = out;
    return 0;
}

int encode_json_answer(const char *body, size_t bytes, unsigned n, float **vectors, uint32_t *dim,
                       struct quire_error *err)
{
    struct strict json = {0};
    int rc = strict_read(&json, body, bytes, err);
    uint32_t data = rc == 0 ? strict_member(&json, STRICT_ROOT, "data") : 0;
    if (rc == 0 && (!data || strict_kind(&json, data) != STRICT_LIST))
        rc = error_set(err, QUIRE_EPARSE, "the encoder's answer has no list `data`: is embed-url an /v1/embeddings?");
    if (rc == 0)
        rc = read_rows(&json, data, n, vectors, dim, err);
    strict_fini(&json);
    return rc;
}
