/* console_priv.h - what the files of the console share. */
#ifndef QUIRE_GATEWAY_CONSOLE_PRIV_H
#define QUIRE_GATEWAY_CONSOLE_PRIV_H

#include "gateway/console/console.h"
#include "gateway/http/http.h"
#include "gateway/settings/settings.h"
#include "gateway/store/sc_users.h"
#include <event2/event_struct.h>
#include <jansson.h>

#define CONSOLE_JOBS_MAX        32u
#define CONSOLE_MAPS_MAX        2u /* samples of vectors at once: each is megabytes of the server's work */
#define CONSOLE_BODY_BYTES_MAX  (256u << 10)
#define CONSOLE_REPLY_BYTES_MAX (8u << 20)
#define CONSOLE_TEXT_BYTES_MAX  65536u
#define CONSOLE_ITEMS_MAX       4096u
#define CONSOLE_PARAMS_MAX      16u
#define CONSOLE_CONNECT_MS      3000u
#define CONSOLE_CHECK_MS        600000u /* VCHECK reads all of a set */

struct console_page;
struct console_ring;
struct console_seen;
struct encode_call;

struct console {
    struct event_base *base;
    const struct settings *settings;
    struct console_options options;
    struct ssl_ctx_st *tls; /* NULL: the server is asked without */
    struct sc_users *users;
    struct console_ring *ring;
    struct console_seen *seen;
    struct console_page *page;
    unsigned n_jobs, n_maps;
};

/* ---- console_json.c: replies as JSON. NULL is no memory. ---- */

enum {
    CONSOLE_PAIRS = 1,   /* the outermost map becomes an array of [key, value], in its order */
    CONSOLE_INFO = 2,    /* a text of INFO becomes an object of sections */
    CONSOLE_SECTION = 4, /* with CONSOLE_INFO: the fields of the one section, without it */
    CONSOLE_CLIENTS = 8, /* a text of CLIENT LIST becomes an array of objects */
    CONSOLE_BYTES = 16,  /* bulks in an array, of a map in it those named "vector", become texts of a character for each
                          * byte, U+0000 to U+00FF */
};
/* A whole reply of RESP3. *truncated is set where a text or an array was cut. */
json_t *console_json(const char *bytes, size_t n, unsigned how, bool *truncated);
/* What CONSOLE_BYTES made, as bytes again: at most `room` of them. Returns how many. */
size_t console_json_bytes(const json_t *text, unsigned char *out, size_t room);
/* Any bytes as a text: those that are not UTF-8 become U+FFFD. */
json_t *console_json_text(const char *bytes, size_t n);

/* ---- console_door.c: who may come in ---- */

/* 0, or the status of a refusal with its code and sentence. */
struct console_refusal {
    int status;
    const char *code;
    const char *allow; /* the methods that there are, with 405 */
    char message[300];
};
int console_door_host(const struct http_request *r, const struct settings *settings, struct console_refusal *out);
int console_door_credential(const struct http_request *r, struct sc_credential *out, struct console_refusal *why);
bool console_door_is_local(const struct http_request *r);

/* How the server is asked, in raw replies; without a user. */
struct sc_options console_server_options(const struct console *console);

/* ---- console_job.c: a request, and what is asked for it ---- */

struct console_param {
    const char *name, *value;
    size_t bytes;
};
struct console_ask;
struct console_job;
struct console_view {
    const char *method, *path;
    const char *params; /* "cache! category! top": those with ! must be given */
    enum { CONSOLE_CHANGES = 1, CONSOLE_SLOW = 2 } flags;
    void (*begin)(struct console_job *job);
};

struct console_job {
    struct console *console;
    struct http_request *r;
    const struct console_view *view;
    struct sc_user *user;
    struct sc_credential credential;
    json_t *root; /* the answer; NULL: no memory for it */
    json_t *body; /* of a POST */
    struct console_param params[CONSOLE_PARAMS_MAX];
    unsigned n_params;
    char *words; /* what the parameters point into */
    struct console_ask *asks;
    unsigned n_asks, n_good, n_bad;
    struct console_refusal failure; /* of the first part that was refused; of one that must be there: `failed` */
    bool failed, truncated, is_map;
    void (*next)(struct console_job *job); /* when all that was asked is there; NULL: the answer is complete */
    struct encode_call *encoding;
    uint64_t began_us;
    json_t *work[3];     /* what a view keeps between its steps; owned */
    uint64_t numbers[3]; /* likewise */
    char *blob;          /* a vector, or a sample of them; owned */
    size_t blob_bytes;
};

void console_job_begin(struct console *console, struct http_request *r, const struct console_view *view,
                       const struct sc_credential *credential, struct sc_user *user);
const struct console_param *console_job_param(const struct console_job *job, const char *name);
/* The value of a parameter that must be there, or `absent`. */
const char *console_job_text(const struct console_job *job, const char *name, const char *absent);
/* A whole number in its range; refuses the job where it is none: false. */
bool console_job_number(struct console_job *job, const char *name, int64_t absent, int64_t min, int64_t max,
                        int64_t *out);

enum {
    CONSOLE_MUST = 256,
    CONSOLE_QUIET = 512,
    CONSOLE_OWN = 1024
}; /* beside those of console_json: the part must be there; an error is null; asked as the gateway's own user, and null
    * where that has no connection */
/* Asks the server; the reply becomes `key` of `into` (NULL: the answer), or an element where key is NULL. Words end
 * with NULL. */
void console_job_ask(struct console_job *job, json_t *into, const char *key, unsigned how, ...)
    __attribute__((sentinel));
void console_job_ask_words(struct console_job *job, json_t *into, const char *key, unsigned how, unsigned n,
                           const char *const *words, const size_t *bytes);
/* The whole answer is this error. Later calls change nothing. */
void console_job_refuse(struct console_job *job, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* For one step that waits for something other than the server: the job goes on. */
void console_job_go_on(struct console_job *job);
void console_answer_error(struct http_request *r, const struct console_refusal *why);
/* Sends JSON; takes the value. NULL: 503. */
void console_answer(struct http_request *r, int status, json_t *value);
/* What all answers of the console have. */
bool console_fields(struct fields *fields, const char *type);

/* ---- views ---- */
extern const struct console_view console_views[]; /* console_views.c; ends with an empty one */
extern const struct console_view console_acts[];  /* console_acts.c; likewise */
void console_views_sets_named(struct console_job *job);
void console_map_begin(struct console_job *job); /* of a set, or of a cache */
void console_play_cache_begin(struct console_job *job);
void console_play_set_begin(struct console_job *job);
void console_server_begin(struct console_job *job);
/* The default of a setting of quire-server as CONFIG GET shows it; false: not known. *secret: not to be shown. */
bool console_default_of(const char *name, char *out, size_t room, bool *secret);

/* ---- console_ring.c: figures; console_seen.c: requests ---- */
int console_ring_create(struct console *console, struct console_ring **out, struct quire_error *err);
void console_ring_destroy(struct console_ring *ring);
void console_ring_count(struct console_ring *ring, const struct http_request *r, const struct console_request *end);
/* The connection of the gateway's own user. */
struct sc_client *console_ring_client(const struct console_ring *ring);
void console_ring_judged(struct console_ring *ring, uint64_t tokens);
json_t *console_ring_json(const struct console_ring *ring, bool minutes, uint64_t since_ms);

struct console_seen *console_seen_create(void);
void console_seen_add(struct console_seen *seen, const struct http_request *r, const struct console_request *end);
/* When it was made, Unix time in ms: numbers of requests begin at 1 then. */
uint64_t console_seen_began_ms(const struct console_seen *seen);
json_t *console_seen_json(const struct console_seen *seen, uint64_t since, uint64_t limit, bool texts);

/* ---- console_page.c ---- */
int console_page_create(struct console_page **out, struct quire_error *err);
void console_page_answer(const struct console_page *page, struct http_request *r);

/* ---- console_docs.c ---- */
/* The page of this name below /ui/docs/, or 404. */
void console_docs_answer(struct http_request *r, const char *name, size_t n);

#endif
