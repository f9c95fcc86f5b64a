/*
 * json_call.h - what the commands of JSON documents share: from a key and a path to values, and a changed document back
 * under its key.
 *
 * A document lies under its key packed (document/json/tree.h). A command takes a reference to it, lets the key go, and
 * parses; only a change of a short document is made while its key is held. After a change of a long one the key is
 * locked again, and if it was changed meanwhile the command begins again, the last time with the key held.
 */
#ifndef QUIRE_SERVER_JSON_CALL_H
#define QUIRE_SERVER_JSON_CALL_H

#include "document/json/edit.h"
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/protocol/resp.h"

struct json_call {
    struct caller *caller;
    struct jsonpath *path; /* owned */
    struct resp_arg path_text;
    uint32_t path_position; /* in the command; 0: none was given */
    json_t *root;           /* a reference; NULL: there is no such key */
    struct jsonpath_matches found;
    struct edit_plan plan;
    struct resp_buffer reply; /* of a change, until it has been made */
};

/* False after the error reply of a request with more words than `most`. */
bool json_call_fits(struct caller *c, uint32_t n, uint32_t most);
/* Compiles the path, which is args[at]; 0: none is given, which is the legacy root. False after an error reply. Ended
 * by json_call_end either way. */
bool json_call_begin(struct json_call *j, struct caller *c, const struct resp_arg *args, uint32_t at);
void json_call_end(struct json_call *j);

/* A document, packed, with a reference; *out NULL: there is no such key. False after an error reply. */
bool json_call_text(struct caller *c, struct resp_arg key, struct value **out);
/* The document under the key in j->root, and what the path leads to. False after an error reply. */
bool json_call_read(struct json_call *j, struct resp_arg key);
/* The same from a packed document: parse, find. What is wrong is written to `out`. */
bool json_call_look(struct json_call *j, const struct value *text, struct resp_buffer *out);

/* What an edit has come to. */
enum json_outcome {
    JSON_UNCHANGED, /* or failed: the reply says so */
    JSON_CHANGED,
    JSON_REMOVED /* the key goes */
};
/* Changes j->root at j->found, and writes the reply to j->reply. Perhaps called again, with another root. */
typedef enum json_outcome json_edit(struct json_call *j, void *context);
/* Looks the key up for a write, edits, stores, replies. */
void json_call_write(struct json_call *j, struct resp_arg key, json_edit *edit, void *context);
/* The value of a tree, ready for a key; NULL after an error in `out`: too long, too deep, no memory. */
struct value *json_call_store(struct caller *c, const json_t *root, struct resp_buffer *out);
/* Parses args[at]; NULL after an error in `out`. */
json_t *json_call_argument(const struct resp_arg *args, uint32_t at, struct resp_buffer *out);
/* args[at] as a whole number; false after an error reply. */
bool json_call_integer(struct caller *c, const struct resp_arg *args, uint32_t at, long long *out);
/* Looks the key up and locks it: a document or nothing. False after an error reply, with nothing locked. */
bool json_call_lock(struct key_call *call, struct caller *c, struct resp_arg key);

/* Errors with RedisJSON's texts, which clients match. What is wrong with an argument has its position behind that: 1 is
 * the word behind the command's name. */
void json_call_no_key(struct resp_buffer *out);
void json_call_wrong_type(struct resp_buffer *out);
void json_call_no_path(const struct json_call *j, struct resp_buffer *out);
void json_call_no_path_or(const struct json_call *j, const char * or, struct resp_buffer *out);
void json_call_expected(const char *expected, const json_t *found, struct resp_buffer *out);

/* A text as a bulk string; it is freed. */
void json_call_put_text(struct tree_text *text, struct resp_buffer *out);
/* A tree as text; style may be NULL. */
void json_call_put_tree(struct caller *c, const json_t *value, const struct tree_style *style, struct resp_buffer *out);
/* Arrays and objects as values of the protocol with `expand`, otherwise as text. */
void json_call_put_value(struct caller *c, json_t *value, bool expand, struct resp_buffer *out);

#endif
