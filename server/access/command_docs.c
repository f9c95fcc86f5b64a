/*
 * command_docs.c - the arguments of COMMAND DOCS, from the syntax text of a command's row.
 *
 * Grammar of the text (the notation of Redis's documentation):
 *
 *   list   := item*                        item := choice ["..."]
 *   choice := "[" list-or-alternatives "]" optional   |   "(" list-or-alternatives ")"   |   WORD [name]   |   name
 *
 * Alternatives are separated by "|" with no blank around. A word in capitals is a token; a name that follows it belongs
 * to it. What comes out are the maps of Redis 7: name, type (string, integer, double, key, pure-token, block, oneof),
 * token, flags. The text is parsed twice for each list: once to count, once to write.
 */
#include "server/access/command_table.h"
#include <ctype.h>
#include <string.h>

/* A piece of the syntax. */
struct span {
    const char *at, *end;
};

static bool is_token(struct span s)
{
    for (const char *p = s.at; p < s.end; p++)
        if (!isupper((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '-')
            return false;
    return s.at < s.end;
}

/* The next word or group of a list; false at its end. */
static bool next_item(struct span *list, struct span *item)
{
    while (list->at < list->end && *list->at == ' ')
        list->at++;
    if (list->at >= list->end)
        return false;
    item->at = list->at;
    for (int depth = 0; list->at < list->end; list->at++) {
        depth += *list->at == '[' || *list->at == '(';
        depth -= *list->at == ']' || *list->at == ')';
        if (depth == 0 && (list->at + 1 == list->end || list->at[1] == ' ' || list->at[1] == '|')) {
            list->at++;
            break;
        }
    }
    item->end = list->at;
    return true;
}

/* What stands before the next bar at depth 0, or all that is left. */
static struct span take_alternative(struct span *list)
{
    struct span taken = *list;
    for (int depth = 0; list->at < list->end; list->at++) {
        depth += *list->at == '[' || *list->at == '(';
        depth -= *list->at == ']' || *list->at == ')';
        if (depth == 0 && *list->at == '|')
            break;
    }
    taken.end = list->at;
    list->at += list->at < list->end;
    return taken;
}

/* Whether a list is "a|b|c". */
static bool has_bar(struct span list)
{
    return take_alternative(&(struct span){list.at, list.end}).end < list.end;
}

/* One argument: an item with what belongs to it. */
struct argument {
    struct span item, token, inside;
    bool optional, multiple, alternatives;
};

static bool next_argument(struct span *list, struct argument *a)
{
    struct span ahead, rest;
    memset(a, 0, sizeof *a);
    if (!next_item(list, &a->item))
        return false;
    a->inside = a->item;
    if (*a->item.at == '[' || *a->item.at == '(') {
        a->optional = *a->item.at == '[';
        a->inside = (struct span){a->item.at + 1, a->item.end - 1};
        a->alternatives = has_bar(a->inside);
    } else if (is_token(a->item)) {
        a->token = a->item;
    }
    rest = *list;
    if (next_item(&rest, &ahead) && ahead.end - ahead.at == 3 && memcmp(ahead.at, "...", 3) == 0) {
        a->multiple = true;
        *list = rest;
    }
    return true;
}

static unsigned count_arguments(struct span list)
{
    struct argument a;
    unsigned n = 0;
    while (next_argument(&list, &a))
        n++;
    return n;
}

static void put_name(struct resp_buffer *out, struct span name)
{
    char text[64];
    size_t n = 0;
    for (const char *p = name.at; p < name.end && n < sizeof text && (isalnum((unsigned char)*p) || *p == '-'); p++)
        text[n++] = (char)tolower((unsigned char)*p);
    resp_text(out, "name");
    resp_bulk(out, text, n);
}

static const char *type_of(struct span name)
{
    static const struct {
        const char *name, *type;
    } types[] = {{"key", "key"},
                 {"cache", "key"},
                 {"num", "integer"},
                 {"count", "integer"},
                 {"effort", "integer"},
                 {"bytes", "integer"},
                 {"index", "integer"},
                 {"protover", "integer"},
                 {"dim", "integer"},
                 {"numlinks", "integer"},
                 {"build-exploration-factor", "integer"},
                 {"max-filtering-effort", "integer"},
                 {"bits", "integer"},
                 {"delta", "double"},
                 {"recall", "double"},
                 {"value", "double"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == (size_t)(name.end - name.at) &&
            memcmp(types[i].name, name.at, strlen(types[i].name)) == 0)
            return types[i].type;
    return "string";
}

static void put_flags(struct resp_buffer *out, bool optional, bool multiple)
{
    if (!optional && !multiple)
        return;
    resp_text(out, "flags");
    resp_array(out, (size_t)optional + multiple);
    if (optional)
        resp_simple(out, "optional");
    if (multiple)
        resp_simple(out, "multiple");
}

static void put_list(struct resp_buffer *out, struct span list);

/* An argument without parts: a token, a name, or a token with its name. */
static void put_leaf(struct resp_buffer *out, struct span token, struct span name, bool optional, bool multiple)
{
    bool has_token = token.at != NULL, has_name = name.at != NULL;
    resp_map(out, 2 + (size_t)has_token + (optional || multiple) + (has_name && strcmp(type_of(name), "key") == 0));
    put_name(out, has_name ? name : token);
    resp_text(out, "type");
    resp_text(out, has_name ? type_of(name) : "pure-token");
    if (has_name && strcmp(type_of(name), "key") == 0) {
        resp_text(out, "key_spec_index");
        resp_integer(out, 0);
    }
    if (has_token) {
        resp_text(out, "token");
        resp_bulk(out, token.at, (size_t)(token.end - token.at));
    }
    put_flags(out, optional, multiple);
}

/* "TOKEN name" as one argument. */
static bool is_token_and_name(struct span list, struct span *token, struct span *name)
{
    struct argument a;
    struct span rest = list;
    if (!next_argument(&rest, &a) || !a.token.at)
        return false;
    *token = a.token;
    *name = (struct span){NULL, NULL};
    if (!next_argument(&rest, &a))
        return true;
    *name = a.item;
    return !a.token.at && *a.item.at != '[' && *a.item.at != '(' && !a.multiple && !next_argument(&rest, &a);
}

static void put_parts(struct resp_buffer *out, struct span list, const char *type, bool optional, bool multiple)
{
    resp_map(out, 3 + (size_t)(optional || multiple));
    put_name(out, (struct span){list.at + (*list.at == '[' || *list.at == '('), list.end});
    resp_text(out, "type");
    resp_text(out, type);
    put_flags(out, optional, multiple);
    resp_text(out, "arguments");
    put_list(out, list);
}

/* A list that stands for one argument: in brackets, or one of several alternatives. */
static void put_one(struct resp_buffer *out, struct span list, bool optional, bool multiple)
{
    struct span token, name, rest = list;
    struct argument a;
    if (has_bar(list))
        put_parts(out, list, "oneof", optional, multiple);
    else if (is_token_and_name(list, &token, &name))
        put_leaf(out, token, name, optional, multiple);
    else if (count_arguments(list) == 1 && next_argument(&rest, &a) && *a.item.at != '[' && *a.item.at != '(')
        put_leaf(out, a.token, a.token.at ? (struct span){NULL, NULL} : a.item, optional, multiple || a.multiple);
    else
        put_parts(out, list, "block", optional, multiple);
}

static void put_list(struct resp_buffer *out, struct span list)
{
    struct argument a;
    if (has_bar(list)) {
        unsigned n = 0;
        for (struct span rest = list; rest.at < rest.end; n++)
            take_alternative(&rest);
        resp_array(out, n);
        while (list.at < list.end)
            put_one(out, take_alternative(&list), false, false);
        return;
    }
    resp_array(out, count_arguments(list));
    while (next_argument(&list, &a))
        put_one(out, a.inside, a.optional, a.multiple);
}

void command_docs_arguments(struct resp_buffer *out, const struct command *command)
{
    put_list(out, (struct span){command->syntax, command->syntax + strlen(command->syntax)});
}
