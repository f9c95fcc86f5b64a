/*
 * flow_unread.c - a body that is too large, compressed or odd to be read, or of a route that is not the cache's:
 * the name
 * of its model is looked for while it comes, since it says which upstream it is for.
 *
 *     settings without models and aliases --> passed on at once
 *     "model" found --> passed on to its upstream; under another name (model-alias) with that name in its place
 *     no "model" in it --> to those that take any model, as what has no body
 *
 * SDKs write the name behind the messages, so all of the body may have to come first; body-max and bodies-max bound it.
 * A body of gzip is decompressed to be looked at and goes on as it came: what is decompressed of one is bounded, since
 * the loop serves nobody else meanwhile.
 */
#include "gateway/proxy/flow_unread.h"
#include "gateway/proxy/flow_priv.h"
#include "gateway/settings/settings.h"
#include "gateway/text/model_skim.h"
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define STEP_BYTES     65536u
#define INFLATED_MAX   (4u << 20)
#define INFLATED_PIECE 16384u
#define GZIP_WINDOW    (16 + MAX_WBITS)

struct unread {
    struct model_skim skim;
    size_t seen; /* bytes of the body that were looked at */
    bool packed;
    z_stream gzip;
};

static void drop(struct turn *turn)
{
    struct unread *unread = turn->work;
    turn->work = NULL;
    turn->gone = NULL;
    if (unread->packed)
        inflateEnd(&unread->gzip);
    free(unread);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static enum model_skim_status look_packed(struct unread *unread, const char *bytes, size_t n)
{
    enum model_skim_status status = MODEL_SKIM_MORE;
    char piece[INFLATED_PIECE];
    unread->gzip.next_in = (z_const Bytef *)(uintptr_t)bytes;
    unread->gzip.avail_in = (uInt)n;
    while (status == MODEL_SKIM_MORE && unread->skim.at < INFLATED_MAX) {
        unread->gzip.next_out = (Bytef *)piece;
        unread->gzip.avail_out = sizeof piece;
        int rc = inflate(&unread->gzip, Z_NO_FLUSH);
        status = model_skim_add(&unread->skim, piece, sizeof piece - unread->gzip.avail_out);
        if (status == MODEL_SKIM_MORE && rc != Z_OK && rc != Z_BUF_ERROR)
            return MODEL_SKIM_NONE; /* its end, or no gzip */
        if (unread->gzip.avail_out > 0)
            break; /* all that came */
    }
    return status;
}

/* Looks at what has come since. */
static enum model_skim_status look(struct unread *unread, struct evbuffer *body)
{
    enum model_skim_status status = MODEL_SKIM_MORE;
    struct evbuffer_ptr at;
    struct evbuffer_iovec piece;
    while (status == MODEL_SKIM_MORE && unread->seen < evbuffer_get_length(body) &&
           evbuffer_ptr_set(body, &at, unread->seen, EVBUFFER_PTR_SET) == 0 &&
           evbuffer_peek(body, -1, &at, &piece, 1) > 0) {
        status = unread->packed ? look_packed(unread, piece.iov_base, piece.iov_len)
                                : model_skim_add(&unread->skim, piece.iov_base, piece.iov_len);
        unread->seen += piece.iov_len;
    }
    return status;
}

/* ---- passing on -------------------------------------------------------------------------------------------------- */

/* The name that was found, into the turn; false: it is none, or there is no memory. */
static bool take_name(struct turn *turn, const struct model_skim *skim)
{
    struct strict json = {0};
    char name[MODEL_SKIM_BYTES_MAX];
    bool ok = strict_read(&json, skim->value, (size_t)skim->value_bytes, NULL) == 0;
    size_t bytes = ok ? strict_decode(&json, STRICT_ROOT, name) : 0;
    strict_fini(&json);
    if (!ok || memchr(name, 0, bytes))
        return false;
    flow_body_name(turn, (struct strict_text){name, bytes});
    return true;
}

static void found(struct turn *turn)
{
    const struct unread *unread = turn->work;
    char name[FLOW_MODEL_BYTES];
    bool named = take_name(turn, &unread->skim), packed = unread->packed;
    if (named && turn->renamed && !packed) {
        turn->name_at = unread->skim.value_at;
        turn->name_bytes = (size_t)unread->skim.value_bytes;
    }
    drop(turn);
    memcpy(name, turn->model, sizeof name);
    if (named && turn->renamed && packed)
        flow_turn_refuse(
            turn, 415, "compressed_body",
            "this model is '%s' upstream (setting model-alias), and a compressed body is not written anew: "
            "ask for that name, or send the body without Content-Encoding",
            name);
    else
        flow_turn_pass(turn, named ? name : NULL);
}

static void more(struct turn *turn)
{
    struct unread *unread = turn->work;
    struct evbuffer *body = http_body(turn->r);
    enum model_skim_status status = look(unread, body);
    if (status == MODEL_SKIM_FOUND) {
        found(turn);
    } else if (status == MODEL_SKIM_MORE && unread->packed && unread->skim.at >= INFLATED_MAX) {
        drop(turn);
        http_close_after(turn->r); /* the rest of its body is not read */
        flow_turn_refuse(
            turn, 413, "compressed_body",
            "the body is compressed, and \"model\", which says where it is to go, does not stand in its first "
            "%u bytes: send it first, or the body without Content-Encoding",
            INFLATED_MAX);
    } else if (status == MODEL_SKIM_MORE && !http_body_is_whole(turn->r)) {
        http_read(turn->r, evbuffer_get_length(body) + STEP_BYTES);
    } else {
        drop(turn);
        flow_turn_pass(turn, NULL);
    }
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

bool flow_unread_is_named(const struct settings *settings)
{
    bool named = settings->model_alias.n > 0;
    for (uint32_t i = 0; i < settings->n_upstreams; i++)
        named = named || settings->upstreams[i].models.n > 0;
    return named;
}

void flow_unread_begin(struct turn *turn)
{
    const char *encoding = http_field(turn->r, "Content-Encoding");
    bool packed = encoding && (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0);
    struct unread *unread;
    if (!flow_unread_is_named(turn->flow->settings)) {
        flow_turn_pass(turn, NULL);
        return;
    }
    if (encoding && !packed && strcasecmp(encoding, "identity") != 0) {
        flow_turn_refuse(
            turn, 415, "compressed_body",
            "the body has a Content-Encoding that is not read here, and \"model\" in it says which upstream it "
            "is for: send it with gzip, or without");
        return;
    }
    unread = calloc(1, sizeof *unread);
    if (!unread || (packed && inflateInit2(&unread->gzip, GZIP_WINDOW) != Z_OK)) {
        free(unread);
        flow_turn_refuse(turn, 503, "no_memory", "no memory for the request");
        return;
    }
    unread->packed = packed;
    turn->work = unread;
    turn->gone = drop;
    turn->body = more;
    more(turn);
}
