/* redis_link.c - a connection to a server that speaks Redis's protocol. */
#include "tools/records/redis_link.h"
#include "io/array.h"
#include "io/error.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_SECONDS 600 /* a server may have to read a large set before it answers */
#define CONNECT_SECONDS 10

static const char scheme[] = "redis://", scheme_tls[] = "rediss://";

bool redis_is_tls(const char *url)
{
    return strncmp(url, scheme_tls, sizeof scheme_tls - 1) == 0;
}

bool redis_is_url(const char *text)
{
    return strncmp(text, scheme, sizeof scheme - 1) == 0 || redis_is_tls(text);
}

struct url {
    char *text; /* owned: cut into what follows */
    char *user, *password, *host, *database;
    int port;
};

/* %XX in place. */
static void decode(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        if (at[0] == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
            const char digits[] = {at[1], at[2], 0};
            *to++ = (char)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            *to++ = *at;
        }
    }
    *to = 0;
}

static int cut_url(const char *text, struct url *out, struct quire_error *err)
{
    size_t begin = redis_is_tls(text) ? sizeof scheme_tls - 1 : sizeof scheme - 1;
    *out = (struct url){.text = strdup(text + begin), .port = 6379};
    if (!out->text)
        return error_set(err, QUIRE_ENOMEM, "no memory for a URL");
    char *at = strrchr(out->text, '@'), *host = at ? at + 1 : out->text;
    if (at) {
        *at = 0;
        char *colon = strchr(out->text, ':');
        if (!colon)
            return error_set(err, QUIRE_EINVALID,
                             "a URL with @ is redis://user:password@host or redis://:password@host");
        *colon = 0;
        out->user = *out->text ? out->text : NULL;
        out->password = colon + 1;
        decode(out->text);
        decode(out->password);
    }
    char *slash = strchr(host, '/'), *colon, *end;
    if (slash) {
        *slash = 0;
        out->database = slash[1] ? slash + 1 : NULL;
    }
    colon = strrchr(host, ':');
    if (colon && !strchr(colon, ']')) {
        long port = strtol(colon + 1, &end, 10);
        if (*end || end == colon + 1 || port < 1 || port > 65535)
            return error_set(err, QUIRE_EINVALID, "%s: the port is a number from 1 to 65535", text);
        out->port = (int)port;
        *colon = 0;
    }
    if (*host == '[') { /* an IPv6 address */
        host++;
        host[strcspn(host, "]")] = 0;
    }
    out->host = host;
    return *host ? 0 : error_set(err, QUIRE_EINVALID, "%s names no host: redis://HOST[:PORT][/DATABASE]", text);
}

static int greet(struct redis_link *link, const struct url *url, struct quire_error *err)
{
    const char *password = url->password ? url->password : getenv("REDISCLI_AUTH");
    const char *auth[] = {"AUTH", url->user ? url->user : password, password}, *choose[] = {"SELECT", url->database};
    redisReply *reply = NULL;
    int rc = 0;
    if (password) {
        rc = redis_ask(link, &reply, err, url->user ? 3 : 2, auth, NULL);
        if (rc == 0)
            freeReplyObject(reply);
    }
    if (rc == 0 && url->database) {
        rc = redis_ask(link, &reply, err, 2, choose, NULL);
        if (rc == 0)
            freeReplyObject(reply);
    }
    return rc;
}

static int connect_to(struct redis_link *link, const struct url *url, struct quire_error *err)
{
    struct timeval limit = {.tv_sec = CONNECT_SECONDS};
    link->context = redisConnectWithTimeout(url->host, url->port, limit);
    if (!link->context || link->context->err)
        return error_set(err, QUIRE_EIO, "cannot connect to %s: %s: is the server running?", link->name,
                         link->context ? link->context->errstr : "no memory");
    redisSetTimeout(link->context, limit);
    return 0;
}

int redis_link_open(const char *url_text, const struct redis_tls_files *files, struct redis_link *out,
                    struct quire_error *err)
{
    struct redis_link link = {0};
    struct url url = {0};
    int rc = cut_url(url_text, &url, err);
    if (rc == 0 && asprintf(&link.name, "%s:%d", url.host, url.port) < 0) {
        link.name = NULL;
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a URL");
    }
    if (rc == 0)
        rc = connect_to(&link, &url, err);
    if (rc == 0 && redis_is_tls(url_text))
        rc = redis_tls_start(files, url.host, link.context->fd, &link.tls, err);
    if (rc == 0) {
        redisSetTimeout(link.context, (struct timeval){.tv_sec = TIMEOUT_SECONDS});
        rc = greet(&link, &url, err);
    }
    free(url.text);
    if (rc < 0)
        redis_link_close(&link);
    else
        *out = link;
    return rc;
}

void redis_link_close(struct redis_link *link)
{
    redis_tls_close(link->tls);
    if (link->context)
        redisFree(link->context);
    free(link->name);
    *link = (struct redis_link){0};
}

static int lost(const struct redis_link *link, struct quire_error *err)
{
    return error_set(err, QUIRE_EIO, "the connection to %s ended: %s", link->name, link->context->errstr);
}

int redis_answered(const struct redis_link *link, const redisReply *reply, const char *what, struct quire_error *err)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return 0;
    bool denied = strncmp(reply->str, "NOPERM", 6) == 0 || strncmp(reply->str, "NOAUTH", 6) == 0 ||
                  strncmp(reply->str, "WRONGPASS", 9) == 0;
    return error_set(err, denied ? QUIRE_EPERM : QUIRE_EINVALID, "%s answers to %s: %s", link->name, what, reply->str);
}

int redis_append(struct redis_link *link, int n, const char **words, const size_t *bytes, struct quire_error *err)
{
    if (link->tls)
        return redis_tls_append(link->tls, n, words, bytes, err);
    return redisAppendCommandArgv(link->context, n, words, bytes) == REDIS_OK ? 0 : lost(link, err);
}

int redis_next(struct redis_link *link, redisReply **out, struct quire_error *err)
{
    void *reply = NULL;
    if (link->tls)
        return redis_tls_next(link->tls, link->context->reader, out, err);
    if (redisGetReply(link->context, &reply) != REDIS_OK || !reply)
        return lost(link, err);
    *out = reply;
    return 0;
}

int redis_ask(struct redis_link *link, redisReply **out, struct quire_error *err, int n, const char **words,
              const size_t *bytes)
{
    redisReply *reply = NULL;
    int rc = redis_append(link, n, words, bytes, err);
    if (rc == 0)
        rc = redis_next(link, &reply, err);
    if (rc == 0)
        rc = redis_answered(link, reply, words[0], err);
    if (rc < 0 && reply)
        freeReplyObject(reply);
    else if (rc == 0)
        *out = reply;
    return rc;
}

bool redis_number(const redisReply *reply, double *out)
{
    char *end;
    if (reply->type == REDIS_REPLY_INTEGER) {
        *out = (double)reply->integer;
        return true;
    }
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS)
        return false;
    *out = strtod(reply->str, &end);
    return end > reply->str && *end == 0;
}

/* ---- names of keys ----------------------------------------------------------------------------------------------- */

void redis_names_free(struct redis_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    free(names->bytes);
    *names = (struct redis_names){0};
}

static int add_name(struct redis_names *names, const char *text, size_t bytes, struct quire_error *err)
{
    char *copy = malloc(bytes + 1);
    if (!copy || !array_reserve(&names->name, &names->capacity, names->n + 1) ||
        !array_reserve(&names->bytes, &names->bytes_capacity, names->n + 1)) {
        free(copy);
        return error_set(err, QUIRE_ENOMEM, "no memory for the names of %zu keys", names->n);
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    names->name[names->n] = copy;
    names->bytes[names->n++] = bytes;
    return 0;
}

struct name {
    char *text;
    size_t bytes;
};

static int compare(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int sort_once(struct redis_names *names, struct quire_error *err)
{
    struct name *sorted = malloc((names->n + 1) * sizeof *sorted);
    size_t kept = 0;
    if (!sorted)
        return error_set(err, QUIRE_ENOMEM, "no memory for the names of %zu keys", names->n);
    for (size_t i = 0; i < names->n; i++)
        sorted[i] = (struct name){names->name[i], names->bytes[i]};
    qsort(sorted, names->n, sizeof *sorted, compare);
    for (size_t i = 0; i < names->n; i++) {
        if (kept && names->bytes[kept - 1] == sorted[i].bytes &&
            memcmp(names->name[kept - 1], sorted[i].text, sorted[i].bytes) == 0) {
            free(sorted[i].text);
            continue;
        }
        names->name[kept] = sorted[i].text;
        names->bytes[kept++] = sorted[i].bytes;
    }
    names->n = kept;
    free(sorted);
    return 0;
}

int redis_scan(struct redis_link *link, const char *pattern, const char *type, struct redis_names *out,
               struct quire_error *err)
{
    struct redis_names names = {0};
    char cursor[32] = "0";
    int rc;
    do {
        const char *words[] = {"SCAN", cursor, "COUNT", "1000", "MATCH", pattern, "TYPE", type};
        redisReply *reply = NULL;
        rc = redis_ask(link, &reply, err, type ? 8 : 6, words, NULL);
        if (rc == 0 && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !reply->element[0]->str ||
                        reply->element[1]->type != REDIS_REPLY_ARRAY))
            rc = error_set(err, QUIRE_EFORMAT, "%s answers something else to SCAN than Redis", link->name);
        for (size_t i = 0; rc == 0 && i < reply->element[1]->elements; i++)
            if (reply->element[1]->element[i]->str)
                rc = add_name(&names, reply->element[1]->element[i]->str, reply->element[1]->element[i]->len, err);
        if (rc == 0)
            snprintf(cursor, sizeof cursor, "%s", reply->element[0]->str);
        if (reply)
            freeReplyObject(reply);
    } while (rc == 0 && strcmp(cursor, "0") != 0);
    if (rc == 0)
        rc = sort_once(&names, err);
    if (rc < 0)
        redis_names_free(&names);
    else
        *out = names;
    return rc;
}
