/* redis_link.h - a connection to a server that speaks Redis's protocol: commands in pipelines, errors as sentences. */
#ifndef QUIRE_TOOLS_RECORDS_REDIS_LINK_H
#define QUIRE_TOOLS_RECORDS_REDIS_LINK_H

#include "tools/records/records.h"
#include "tools/records/redis_tls.h"

struct redis_link {
    redisContext *context;
    struct redis_tls *tls; /* NULL: plain */
    char *name;            /* host:port, for messages */
};

bool redis_is_url(const char *text);
bool redis_is_tls(const char *url);
/* redis://[[user]:password@]host[:port][/database], rediss:// over TLS with `files`. The environment's REDISCLI_AUTH is
 * the password where the URL has none. QUIRE_EINVALID (what is wrong with the URL, or a file), QUIRE_EIO, QUIRE_EPERM
 * (refused). */
int redis_link_open(const char *url, const struct redis_tls_files *files, struct redis_link *out,
                    struct quire_error *err);
void redis_link_close(struct redis_link *link); /* a zeroed one is fine */

/* Asks and waits. The reply is the caller's (freeReplyObject); an error that the server answers is one in *err. */
int redis_ask(struct redis_link *link, redisReply **out, struct quire_error *err, int n, const char **words,
              const size_t *bytes);
/* Puts a command into the pipeline, and takes the next reply out of it. *out may be an error reply. */
int redis_append(struct redis_link *link, int n, const char **words, const size_t *bytes, struct quire_error *err);
int redis_next(struct redis_link *link, redisReply **out, struct quire_error *err);
/* An error reply as an error. */
int redis_answered(const struct redis_link *link, const redisReply *reply, const char *what, struct quire_error *err);

/* A number out of a bulk string or a double. False: it is none. */
bool redis_number(const redisReply *reply, double *out);

/* ---- names of keys ----------------------------------------------------------------------------------------------- */

struct redis_names {
    char **name;
    size_t *bytes;
    size_t n, capacity, bytes_capacity;
};
/* All keys that match, of a type (NULL: any), sorted, each once; what SCAN may say twice is said once. */
int redis_scan(struct redis_link *link, const char *pattern, const char *type, struct redis_names *out,
               struct quire_error *err);
void redis_names_free(struct redis_names *names);

/* ---- sources and sinks ------------------------------------------------------------------------------------------- */

/* The elements of a vector set. */
int redis_set_open(const char *url, const struct redis_tls_files *files, const char *set, bool with_tenants,
                   struct records_source **out, struct quire_error *err);
/* How the set keeps numbers, as VADD takes it: "Q8", "NOQUANT" or "BIN". A source of redis_set_open. */
const char *redis_set_quantization(const struct records_source *source);
/* Hashes or JSON documents: those of an index of FT.CREATE, or (index NULL) hashes whose keys begin with `prefix`, the
 * vector in the field `field` as floats of 4 bytes. */
int redis_documents_open(const char *url, const struct redis_tls_files *files, const char *index, const char *prefix,
                         const char *field, struct records_source **out, struct quire_error *err);
/* Into a vector set, which is made where it is not there. quantization: as above. */
int redis_set_create(const char *url, const struct redis_tls_files *files, const char *set, const char *quantization,
                     const struct records_into *into, struct records_sink **out, struct quire_error *err);

#endif
