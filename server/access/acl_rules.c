/*
 * acl_rules.c - one user: what rules make of it, what it may do, and how it is written down.
 *
 * Rules are Redis's, with its error texts, because operators bring their ACL files. What a user may run is kept twice:
 * as bits per row of the command table, which requests are checked against, and as the rules themselves in the order
 * they were given, which is what people read and files keep: "+@all -@dangerous +info" must not come back as a list of
 * a hundred commands, and must mean something for commands that a later version adds.
 *
 * A rule on a command or category replaces an earlier one on the same words, and one on a container those on its
 * sub-commands: so the text stays short however often a user is changed. "+@all" and "-@all" begin anew.
 *
 * Passwords are kept as SHA-256 only. They are compared in constant time against all digests of the user, so that the
 * time of an answer tells neither how much of a digest was right nor which of several passwords.
 *
 * Tenants (`tenant:NAME`) are ours. A user who is bound to some may run those commands on vector sets whose rows in the
 * table say that they keep to what the user can see (CMD_TENANT); a command that is added is refused until somebody has
 * thought of it. Whatever else shows or changes what is everybody's is refused, too.
 */
#include "index/attribute/grants.h"
#include "io/array.h"
#include "io/error.h"
#include "server/access/acl.h"
#include "server/access/command_table.h"
#include "server/protocol/glob.h"
#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

_Static_assert((int)COMMANDS_MAX <= (int)ACL_ROWS_MAX, "raise ACL_ROWS_MAX");

/* ---- lists of texts ---------------------------------------------------------------------------------------------- */

static void texts_clear(struct acl_texts *texts)
{
    for (unsigned i = 0; i < texts->n; i++) {
        OPENSSL_cleanse(texts->items[i].data, texts->items[i].bytes);
        free(texts->items[i].data);
    }
    free(texts->items);
    *texts = (struct acl_texts){0};
}

static struct acl_text *texts_find(const struct acl_texts *texts, const void *data, size_t bytes)
{
    for (unsigned i = 0; i < texts->n; i++)
        if (texts->items[i].bytes == bytes && memcmp(texts->items[i].data, data, bytes) == 0)
            return &texts->items[i];
    return NULL;
}

static char *copy_bytes(const void *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (text) {
        memcpy(text, data, bytes);
        text[bytes] = 0;
    }
    return text;
}

static int texts_add(struct acl_texts *texts, const void *data, size_t bytes, unsigned flags, struct quire_error *err)
{
    if (texts->n == ACL_ITEMS_MAX)
        return error_set(err, QUIRE_ELIMIT, "a user has at most %d of these", ACL_ITEMS_MAX);
    if (!array_reserve(&texts->items, &texts->capacity, (size_t)texts->n + 1))
        return error_set(err, QUIRE_ENOMEM, "no memory for a user");
    char *copy = copy_bytes(data, bytes);
    if (!copy)
        return error_set(err, QUIRE_ENOMEM, "no memory for a user");
    texts->items[texts->n++] = (struct acl_text){.data = copy, .bytes = bytes, .flags = flags};
    return 0;
}

static void texts_remove(struct acl_texts *texts, struct acl_text *item)
{
    free(item->data);
    texts->n--;
    memmove(item, item + 1, (size_t)(texts->items + texts->n - item) * sizeof *item);
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

struct acl_user *acl_user_create(const void *name, size_t name_bytes)
{
    struct acl_user *user = calloc(1, sizeof *user);
    if (!user)
        return NULL;
    user->name = copy_bytes(name, name_bytes);
    user->name_bytes = name_bytes;
    atomic_init(&user->references, 1);
    if (user->name)
        return user;
    free(user);
    return NULL;
}

struct acl_user *acl_user_copy(const struct acl_user *user)
{
    struct acl_user *copy = acl_user_create(user->name, user->name_bytes);
    if (!copy)
        return NULL;
    copy->id = user->id;
    copy->on = user->on;
    copy->nopass = user->nopass;
    copy->all_keys = user->all_keys;
    copy->all_channels = user->all_channels;
    copy->all_commands = user->all_commands;
    copy->everything = user->everything;
    memcpy(copy->allowed, user->allowed, sizeof copy->allowed);
    const struct acl_texts *from = user->lists;
    for (unsigned l = 0; l < ACL_LISTS; l++)
        for (unsigned i = 0; i < from[l].n; i++)
            if (texts_add(&copy->lists[l], from[l].items[i].data, from[l].items[i].bytes, from[l].items[i].flags,
                          NULL)) {
                acl_user_release(copy);
                return NULL;
            }
    return copy;
}

void acl_user_retain(struct acl_user *user)
{
    atomic_fetch_add_explicit(&user->references, 1, memory_order_relaxed);
}

void acl_user_release(struct acl_user *user)
{
    if (!user || atomic_fetch_sub_explicit(&user->references, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned l = 0; l < ACL_LISTS; l++)
        texts_clear(&user->lists[l]);
    free(user->name);
    free(user);
}

/* ---- rules that are words ---------------------------------------------------------------------------------------- */

/* The flag that a word sets or clears, and the list that it empties. Some words of Redis's have nothing to act on here:
 * there are no selectors, and nothing is restored from dumps. */
#define AT(field) offsetof(struct acl_user, field)
static const struct {
    const char *word;
    bool on;
    size_t flag, texts; /* in struct acl_user; 0: none */
} words[] = {{"on", true, AT(on), 0},
             {"off", false, AT(on), 0},
             {"nopass", true, AT(nopass), AT(passwords)},
             {"resetpass", false, AT(nopass), AT(passwords)},
             {"allkeys", true, AT(all_keys), AT(keys)},
             {"resetkeys", false, AT(all_keys), AT(keys)},
             {"allchannels", true, AT(all_channels), AT(channels)},
             {"resetchannels", false, AT(all_channels), AT(channels)},
             {"allcommands", true, AT(all_commands), AT(rules)},
             {"nocommands", false, AT(all_commands), AT(rules)},
             {"resettenants", false, 0, AT(tenants)},
             {"clearselectors", false, 0, 0},
             {"sanitize-payload", false, 0, 0},
             {"skip-sanitize-payload", false, 0, 0}};

static bool is_word(const char *word, const char *rule, size_t bytes)
{
    return strlen(word) == bytes && strncasecmp(word, rule, bytes) == 0;
}

/* False where the rule is none of the words. "reset" is all those that take something away. */
static bool apply_word(struct acl_user *user, const char *rule, size_t bytes)
{
    bool reset = is_word("reset", rule, bytes), known = reset;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!is_word(words[i].word, rule, bytes) && (!reset || words[i].on))
            continue;
        known = true;
        if (words[i].texts)
            texts_clear((struct acl_texts *)(void *)((char *)user + words[i].texts));
        if (words[i].flag)
            *(bool *)((char *)user + words[i].flag) = words[i].on;
        if (words[i].flag == AT(all_commands))
            memset(user->allowed, words[i].on ? 0xff : 0, sizeof user->allowed);
    }
    return known;
}

/* ---- commands and categories ------------------------------------------------------------------------------------- */

static bool is_allowed(const struct acl_user *user, unsigned row)
{
    return user->allowed[row / 64] >> (row % 64) & 1;
}

static void allow_row(struct acl_user *user, unsigned row, bool allow)
{
    uint64_t bit = (uint64_t)1 << (row % 64);
    user->allowed[row / 64] = allow ? user->allowed[row / 64] | bit : user->allowed[row / 64] & ~bit;
}

/* Puts a rule behind the others and takes away those that it makes meaningless. */
static int add_rule(struct acl_user *user, const char *text, bool allow, struct quire_error *err)
{
    size_t bytes = strlen(text);
    for (unsigned i = user->rules.n; i-- > 0;) {
        const struct acl_text *rule = &user->rules.items[i];
        bool under = rule->bytes > bytes && rule->data[bytes] == '|';
        if ((rule->bytes == bytes || under) && memcmp(rule->data, text, bytes) == 0)
            texts_remove(&user->rules, &user->rules.items[i]);
    }
    return texts_add(&user->rules, text, bytes, allow, err);
}

/* "get" with its sub-commands, "config|get" or "@read". */
static int apply_command(struct acl_user *user, const char *name, size_t bytes, bool allow, struct quire_error *err)
{
    char text[40];
    int category = -1, row = -1;
    if (bytes > 0 && name[0] == '@') {
        if (is_word("@all", name, bytes)) {
            apply_word(user, allow ? "allcommands" : "nocommands", allow ? 11 : 10);
            return 0;
        }
        category = command_category_find(name + 1, bytes - 1);
    } else {
        const char *bar = memchr(name, '|', bytes);
        if (bar && memchr(bar + 1, '|', bytes - (size_t)(bar + 1 - name)))
            return error_set(err, QUIRE_EINVALID, "Allowing first-arg of a subcommand is not supported");
        row = command_find(name, bytes);
    }
    if (category < 0 && row < 0)
        return error_set(err, QUIRE_ENOTFOUND, "Unknown command or category name in ACL");
    snprintf(text, sizeof text, "%s%s", row < 0 ? "@" : "",
             row < 0 ? command_category_name((unsigned)category) : commands[row].name);
    int rc = add_rule(user, text, allow, err);
    for (unsigned i = 0; i < n_commands && rc == 0; i++)
        if (row < 0 ? command_in_category(&commands[i], (unsigned)category)
                    : i == (unsigned)row || command_is_sub(&commands[i], &commands[row]))
            allow_row(user, i, allow);
    return rc;
}

/* ---- passwords --------------------------------------------------------------------------------------------------- */

static void digest_text(const void *password, size_t bytes, char text[ACL_DIGEST_TEXT_BYTES + 1])
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(password, bytes, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* ">password", "<password", "#digest", "!digest". */
static int apply_password(struct acl_user *user, char kind, const char *text, size_t bytes, struct quire_error *err)
{
    char digest[ACL_DIGEST_TEXT_BYTES + 1] = "";
    if (kind == '#' || kind == '!') {
        bool good = bytes == ACL_DIGEST_TEXT_BYTES;
        for (size_t i = 0; i < bytes && good; i++)
            good = text[i] && strchr("0123456789abcdef", text[i]);
        if (!good)
            return error_set(err, QUIRE_EINVALID,
                             "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
                             "characters");
        memcpy(digest, text, bytes);
    } else {
        digest_text(text, bytes, digest);
    }
    struct acl_text *there = texts_find(&user->passwords, digest, ACL_DIGEST_TEXT_BYTES);
    if (kind == '<' || kind == '!') {
        if (!there)
            return error_set(err, QUIRE_ENOTFOUND,
                             "The password you are trying to remove from the user does not exist");
        texts_remove(&user->passwords, there);
        return 0;
    }
    int rc = there ? 0 : texts_add(&user->passwords, digest, ACL_DIGEST_TEXT_BYTES, 0, err);
    if (rc == 0)
        user->nopass = false;
    return rc;
}

bool acl_user_has_password(const struct acl_user *user, const void *password, size_t bytes)
{
    char digest[ACL_DIGEST_TEXT_BYTES + 1];
    int found = 0;
    digest_text(password, bytes, digest);
    for (unsigned i = 0; i < user->passwords.n; i++)
        found |= CRYPTO_memcmp(user->passwords.items[i].data, digest, ACL_DIGEST_TEXT_BYTES) == 0;
    OPENSSL_cleanse(digest, sizeof digest);
    return found != 0;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static int syntax_error(struct quire_error *err)
{
    return error_set(err, QUIRE_EINVALID, "Syntax error");
}

static int add_pattern(struct acl_user *user, const char *text, size_t bytes, unsigned flags, struct quire_error *err)
{
    if (user->all_keys)
        return error_set(err, QUIRE_EEXISTS,
                         "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have "
                         "any effect. Try 'resetkeys' to start with an empty list of patterns");
    struct acl_text *there = texts_find(&user->keys, text, bytes);
    flags |= there ? there->flags : 0;
    /* "%R~*" and "%W~*" together, too */
    if (flags == (ACL_PATTERN_READ | ACL_PATTERN_WRITE) && bytes == 1 && text[0] == '*') {
        texts_clear(&user->keys);
        user->all_keys = true;
        return 0;
    }
    if (!there)
        return texts_add(&user->keys, text, bytes, flags, err);
    there->flags = flags;
    return 0;
}

/* "%R~pattern", "%W~", "%RW~". */
static int apply_access_pattern(struct acl_user *user, const char *rule, size_t bytes, struct quire_error *err)
{
    unsigned flags = 0;
    size_t at = 1;
    for (; at < bytes && rule[at] != '~'; at++) {
        unsigned flag = toupper((unsigned char)rule[at]) == 'R'   ? ACL_PATTERN_READ
                        : toupper((unsigned char)rule[at]) == 'W' ? ACL_PATTERN_WRITE
                                                                  : 0;
        if (flag == 0 || (flags & flag))
            return syntax_error(err);
        flags |= flag;
    }
    if (at == bytes || flags == 0)
        return syntax_error(err);
    return add_pattern(user, rule + at + 1, bytes - at - 1, flags, err);
}

static int add_channel(struct acl_user *user, const char *text, size_t bytes, struct quire_error *err)
{
    if (user->all_channels)
        return error_set(err, QUIRE_EEXISTS,
                         "Adding a channel after the * pattern (or the 'allchannels' flag) is not valid and does not "
                         "have any effect. Try 'resetchannels' to start with an empty list of channels");
    if (bytes == 1 && text[0] == '*') {
        texts_clear(&user->channels);
        user->all_channels = true;
        return 0;
    }
    return texts_find(&user->channels, text, bytes) ? 0 : texts_add(&user->channels, text, bytes, 0, err);
}

static int add_tenant(struct acl_user *user, const char *text, size_t bytes, struct quire_error *err)
{
    if (bytes == 0)
        return error_set(err, QUIRE_EINVALID, "tenant: needs the name of a tenant, as in tenant:acme");
    int rc = grants_check_tenant(text, bytes, err);
    if (rc < 0 || texts_find(&user->tenants, text, bytes))
        return rc;
    return texts_add(&user->tenants, text, bytes, 0, err);
}

/* ---- one rule -------------------------------------------------------------------------------------------------- */

/* What a line of a file could not hold. A password may be anything: only its digest is kept. */
static bool has_blank(const char *rule, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (isspace((unsigned char)rule[i]) || rule[i] == 0)
            return true;
    return false;
}

int acl_user_apply(struct acl_user *user, const void *text, size_t bytes, struct quire_error *err)
{
    const char *rule = text;
    char kind = bytes > 0 ? rule[0] : 0;
    int rc;
    if (bytes > ACL_RULE_BYTES_MAX)
        return error_set(err, QUIRE_ELIMIT, "A rule has at most %d bytes", ACL_RULE_BYTES_MAX);
    if (kind == '>' || kind == '<' || kind == '#' || kind == '!')
        rc = apply_password(user, kind, rule + 1, bytes - 1, err);
    else if (has_blank(rule, bytes))
        rc = syntax_error(err);
    else if (kind == '~')
        rc = add_pattern(user, rule + 1, bytes - 1, ACL_PATTERN_READ | ACL_PATTERN_WRITE, err);
    else if (kind == '%')
        rc = apply_access_pattern(user, rule, bytes, err);
    else if (kind == '&')
        rc = add_channel(user, rule + 1, bytes - 1, err);
    else if (kind == '+' || kind == '-')
        rc = apply_command(user, rule + 1, bytes - 1, kind == '+', err);
    else if (apply_word(user, rule, bytes))
        rc = 0;
    else if (bytes >= 7 && strncasecmp(rule, "tenant:", 7) == 0)
        rc = add_tenant(user, rule + 7, bytes - 7, err);
    else if (kind == '(')
        rc = error_set(err, QUIRE_EUNSUPPORTED,
                       "Selectors are not supported: give the permissions to the user itself, or to a second user");
    else
        rc = syntax_error(err);
    user->everything = user->all_keys && user->tenants.n == 0;
    for (unsigned row = 0; row < n_commands && user->everything; row++)
        user->everything = is_allowed(user, row);
    return rc;
}

/* ---- writing it down --------------------------------------------------------------------------------------------- */

static void put(struct resp_buffer *text, const char *word)
{
    resp_raw(text, word, strlen(word));
}

static void put_item(struct resp_buffer *text, size_t start, const char *mark, const struct acl_text *item)
{
    if (text->bytes > start)
        resp_raw(text, " ", 1);
    put(text, mark);
    resp_raw(text, item->data, item->bytes);
}

void acl_user_commands(const struct acl_user *user, struct resp_buffer *text)
{
    size_t start = text->bytes;
    put(text, user->all_commands ? "+@all" : "-@all");
    for (unsigned i = 0; i < user->rules.n; i++)
        put_item(text, start, user->rules.items[i].flags ? "+" : "-", &user->rules.items[i]);
}

void acl_user_keys(const struct acl_user *user, struct resp_buffer *text)
{
    static const char *const marks[] = {"", "%R~", "%W~", "~"};
    size_t start = text->bytes;
    if (user->all_keys)
        put(text, "~*");
    for (unsigned i = 0; i < user->keys.n; i++)
        put_item(text, start, marks[user->keys.items[i].flags & 3], &user->keys.items[i]);
}

void acl_user_channels(const struct acl_user *user, struct resp_buffer *text)
{
    size_t start = text->bytes;
    if (user->all_channels)
        put(text, "&*");
    for (unsigned i = 0; i < user->channels.n; i++)
        put_item(text, start, "&", &user->channels.items[i]);
}

void acl_user_describe(const struct acl_user *user, struct resp_buffer *text)
{
    put(text, "user ");
    resp_raw(text, user->name, user->name_bytes);
    put(text, user->on ? " on" : " off");
    put(text, user->nopass ? " nopass" : "");
    for (unsigned i = 0; i < user->passwords.n; i++)
        put_item(text, 0, "#", &user->passwords.items[i]);
    if (user->all_keys || user->keys.n > 0)
        put(text, " ");
    acl_user_keys(user, text);
    put(text, user->all_channels ? " " : " resetchannels");
    put(text, user->channels.n > 0 ? " " : "");
    acl_user_channels(user, text);
    for (unsigned i = 0; i < user->tenants.n; i++)
        put_item(text, 0, "tenant:", &user->tenants.items[i]);
    put(text, " ");
    acl_user_commands(user, text);
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static bool key_allowed(const struct acl_user *user, unsigned access, struct resp_arg key)
{
    if (user->all_keys)
        return true;
    for (unsigned i = 0; i < user->keys.n; i++) {
        const struct acl_text *pattern = &user->keys.items[i];
        if ((pattern->flags & access) == access &&
            glob_matches_bytes((struct resp_arg){(const uint8_t *)pattern->data, (uint32_t)pattern->bytes}, key, false))
            return true;
    }
    return false;
}

bool acl_user_may_read(const struct acl_user *user, struct resp_arg key)
{
    return key_allowed(user, ACL_PATTERN_READ, key);
}

/* Whether the command would show or change what a user who is bound to tenants must not see. */
static bool reaches_all(const struct command *command)
{
    if (strcmp(command->group, "vector_set") == 0)
        return !(command->flags & CMD_TENANT);
    /* SLOWLOG, MONITOR and INFO show what others do */
    return strcmp(command->group, "cache") == 0 ||
           (command->flags & (CMD_SHOWS_ALL | CMD_REPLACES | CMD_ADMIN | CMD_DANGEROUS)) ||
           ((command->flags & CMD_WRITE) &&
            (strcmp(command->group, "generic") == 0 || strcmp(command->group, "server") == 0));
}

enum acl_verdict acl_user_check(const struct acl_user *user, unsigned row, const struct resp_arg *args, uint32_t n,
                                uint32_t *key_at)
{
    const struct command *command = &commands[row];
    if (user->everything || (command->flags & CMD_NOAUTH))
        return ACL_ALLOWED;
    if (!is_allowed(user, row))
        return ACL_DENIED_COMMAND;
    struct command_keys keys = command_keys(command, n);
    unsigned wanted = command_key_access(command, args, n);
    unsigned access = (wanted & CMD_READ ? ACL_PATTERN_READ : 0u) | (wanted & CMD_WRITE ? ACL_PATTERN_WRITE : 0u);
    for (uint32_t i = 0; i < keys.n; i++) {
        *key_at = keys.first + i * keys.step;
        if (!key_allowed(user, access, args[*key_at]))
            return ACL_DENIED_KEY;
    }
    return user->tenants.n > 0 && reaches_all(command) ? ACL_DENIED_TENANT : ACL_ALLOWED;
}

void acl_denial(char *text, size_t bytes, const struct acl_user *user, enum acl_verdict verdict, unsigned row,
                struct resp_arg key, bool verbose)
{
    int name_bytes = user->name_bytes < 256 ? (int)user->name_bytes : 256;
    if (verdict == ACL_DENIED_COMMAND)
        snprintf(text, bytes, "User %.*s has no permissions to run the '%s' command", name_bytes, user->name,
                 commands[row].name);
    else if (verdict == ACL_DENIED_TENANT)
        snprintf(text, bytes,
                 "User %.*s is bound to tenants, and '%s' does not tell tenants apart: it would reach what is "
                 "everybody's",
                 name_bytes, user->name, commands[row].name);
    else if (verbose)
        snprintf(text, bytes, "User %.*s has no permissions to access the '%.*s' key", name_bytes, user->name,
                 ARG_SHOWN(key, 256u));
    else
        snprintf(text, bytes, "No permissions to access a key");
}
