/*
 * acl.c - the table of users, and what it means for connections.
 *
 * One mutex guards the table; requests do not take it. A change replaces a pointer in the table, raises the generation
 * and posts a message to each lane, whose clients look for their user again: those whose user was deleted or switched
 * off are closed, also when they idle. (Redis lets connections of a user who was switched off live on. Whoever switches
 * a user off wants him out.) A client that begins a request before its lane has run the message sees the generation,
 * so nothing runs under permissions that were taken away before it began.
 *
 * A user is known by an id, not by the name: a connection of a user who was deleted does not become one of another user
 * who got the name later. ACL LOAD keeps ids of names that stay.
 *
 * The default user always exists. Where neither the file nor the configuration describes it, it may do everything, with
 * the password of `requirepass`, if any; so a file that names other users only takes nothing away.
 *
 * Files: ACL LOAD parses all of the file into a table of its own and swaps tables only when no line was wrong; all
 * wrong lines are named at once. ACL SAVE replaces the file (file_replace.h).
 */
#include "server/access/acl.h"
#include "io/array.h"
#include "io/error.h"
#include "server/process/config.h"
#include "server/process/file_replace.h"
#include "server/protocol/arg.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The place of a name, or where it belongs. */
static size_t users_place(const struct acl_table *table, const void *name, size_t bytes, bool *there)
{
    size_t low = 0, high = table->n;
    *there = false;
    assert(table->users || table->n == 0);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct acl_user *user = table->users[middle];
        size_t common = user->name_bytes < bytes ? user->name_bytes : bytes;
        int order = memcmp(user->name, name, common);
        if (order == 0)
            order = (user->name_bytes > bytes) - (user->name_bytes < bytes);
        if (order == 0) {
            *there = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Takes the reference over when it succeeds; one of the same name is replaced. */
static int users_put(struct acl_table *table, struct acl_user *user, struct quire_error *err)
{
    bool there;
    size_t at = users_place(table, user->name, user->name_bytes, &there);
    assert(!there || at < table->n);
    if (there) {
        acl_user_release(table->users[at]);
        table->users[at] = user;
        return 0;
    }
    if (table->n == ACL_USERS_MAX)
        return error_set(err, QUIRE_ELIMIT, "there are %d users already: delete one first", ACL_USERS_MAX);
    if (!array_reserve(&table->users, &table->capacity, table->n + 1))
        return error_set(err, QUIRE_ENOMEM, "no memory for another user");
    memmove(table->users + at + 1, table->users + at, (table->n - at) * sizeof(struct acl_user *));
    table->users[at] = user;
    table->n++;
    return 0;
}

static void users_fini(struct acl_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        acl_user_release(table->users[i]);
    free(table->users);
    *table = (struct acl_table){0};
}

static struct acl_user *users_find(const struct acl_table *table, const void *name, size_t bytes)
{
    bool there;
    size_t at = users_place(table, name, bytes, &there);
    assert(!there || table->users);
    return there ? table->users[at] : NULL;
}

/* ---- users out of words ------------------------------------------------------------------------------------------ */

static bool good_name(const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (isspace((unsigned char)name[i]) || name[i] == 0)
            return false;
    return bytes > 0 && bytes <= ACL_RULE_BYTES_MAX;
}

/* Adds the default user where nobody described it. */
static int add_default(struct acl_table *table, const struct config *config, struct quire_error *err)
{
    static const char *const open_rules[] = {"on", "nopass", "allkeys", "allchannels", "allcommands"};
    char password[ACL_RULE_BYTES_MAX + 1];
    struct acl_user *user = acl_user_create("default", 7);
    int rc = user ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the default user");
    for (size_t i = 0; i < sizeof open_rules / sizeof *open_rules && rc == 0; i++)
        rc = acl_user_apply(user, open_rules[i], strlen(open_rules[i]), err);
    if (rc == 0 && config->requirepass[0]) {
        int bytes = snprintf(password, sizeof password, ">%s", config->requirepass);
        rc = (size_t)bytes < sizeof password
                 ? acl_user_apply(user, password, (size_t)bytes, err)
                 : error_set(err, QUIRE_ELIMIT, "requirepass: at most %d bytes", ACL_RULE_BYTES_MAX - 1);
    }
    if (rc == 0)
        rc = users_put(table, user, err);
    if (rc < 0)
        acl_user_release(user);
    return rc;
}

/* The next word of a line; its bytes, 0 at the end. */
static size_t next_word(const char **at, const char *end)
{
    while (*at < end && isspace((unsigned char)**at))
        (*at)++;
    size_t bytes = 0;
    while (*at + bytes < end && !isspace((unsigned char)(*at)[bytes]))
        bytes++;
    return bytes;
}

/* Adds the user that "NAME RULE ..." describes. */
static int add_line(struct acl_table *table, const char *at, size_t bytes, struct quire_error *err)
{
    const char *end = at + bytes;
    struct quire_error inner = {0};
    size_t word = next_word(&at, end);
    if (!good_name(at, word))
        return error_set(err, QUIRE_EINVALID, "a user needs a name of 1 to %d bytes", ACL_RULE_BYTES_MAX);
    if (users_find(table, at, word))
        return error_set(err, QUIRE_EEXISTS, "user %.*s: Duplicate user found. A user can only be defined once",
                         word < 64 ? (int)word : 64, at);
    struct acl_user *user = acl_user_create(at, word);
    int rc = user ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a user");
    for (at += word; rc == 0 && (word = next_word(&at, end)) > 0; at += word) {
        rc = acl_user_apply(user, at, word, &inner);
        /* a password is not for the log */
        if (rc < 0)
            error_set(err, rc, "user %.64s: '%.*s': %s", user->name,
                      *at == '>' || *at == '<' ? 1 : (word < 64 ? (int)word : 64), at, inner.message);
    }
    if (rc == 0)
        rc = users_put(table, user, err);
    if (rc < 0)
        acl_user_release(user);
    return rc;
}

/* Gives users their ids, and makes sure of the default one. */
static int complete(struct acl *acl, struct acl_table *table, struct quire_error *err)
{
    int rc = users_find(table, "default", 7) ? 0 : add_default(table, acl->config, err);
    for (size_t i = 0; i < table->n && rc == 0; i++) {
        const struct acl_user *old = users_find(&acl->table, table->users[i]->name, table->users[i]->name_bytes);
        table->users[i]->id = old ? old->id : ++acl->next_id;
    }
    return rc;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void problem(struct resp_buffer *problems, const char *path, unsigned line, const char *text)
{
    char message[640];
    int bytes = snprintf(message, sizeof message, "%s%.200s:%u: %s.", problems->bytes ? " " : "", path, line, text);
    enum { PROBLEMS_BYTES_MAX = 8192 };
    if (problems->bytes < PROBLEMS_BYTES_MAX)
        resp_raw(problems, message, (size_t)bytes < sizeof message ? (size_t)bytes : sizeof message - 1);
}

/* Its lines are empty, comments, or "user NAME RULE ...". */
static int read_file(const char *path, struct acl_table *table, struct resp_buffer *problems)
{
    char *line = NULL;
    size_t line_capacity = 0;
    ssize_t bytes;
    int result = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        int errnum = errno;
        problem(problems, path, 0, strerror(errnum));
        return error_from_errno(errnum);
    }
    for (unsigned number = 1; (bytes = getline(&line, &line_capacity, file)) >= 0; number++) {
        struct quire_error err = {0};
        const char *at = line, *end = line + bytes;
        size_t word = next_word(&at, end);
        if (word == 0 || *at == '#')
            continue;
        int rc = word == 4 && strncmp(at, "user", 4) == 0
                     ? add_line(table, at + 4, (size_t)(end - at) - 4, &err)
                     : error_set(&err, QUIRE_EINVALID, "line should start with user keyword followed by the username");
        if (rc < 0) {
            problem(problems, path, number, err.message);
            result = rc;
        }
    }
    if (ferror(file)) {
        problem(problems, path, 0, "reading failed");
        result = QUIRE_EIO;
    }
    free(line);
    fclose(file);
    return result;
}

static void publish(struct acl *acl)
{
    if (acl->changed)
        acl->changed(acl->changed_context);
}

int acl_load(struct acl *acl, struct resp_buffer *problems)
{
    struct acl_table table = {0};
    struct quire_error err = {0};
    int rc = read_file(acl->config->aclfile, &table, problems);
    if (rc == 0) {
        pthread_mutex_lock(&acl->lock);
        rc = complete(acl, &table, &err);
        if (rc == 0) {
            struct acl_table old = acl->table;
            acl->table = table;
            table = old;
            atomic_fetch_add_explicit(&acl->generation, 1, memory_order_release);
        }
        pthread_mutex_unlock(&acl->lock);
        if (rc < 0)
            problem(problems, acl->config->aclfile, 0, err.message);
    }
    users_fini(&table);
    if (rc == 0)
        publish(acl);
    return rc;
}

int acl_save(struct acl *acl, struct quire_error *err)
{
    const char *path = acl->config->aclfile;
    struct resp_buffer text = {.protocol = 2};
    pthread_mutex_lock(&acl->lock);
    for (size_t i = 0; i < acl->table.n; i++) {
        acl_user_describe(acl->table.users[i], &text);
        resp_raw(&text, "\n", 1);
    }
    pthread_mutex_unlock(&acl->lock);
    int rc = text.failed ? error_set(err, QUIRE_ENOMEM, "no memory for the text of %s", path)
                         : file_replace(path, text.data, text.bytes, S_IRUSR | S_IWUSR, err);
    resp_buffer_fini(&text);
    return rc;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

/* Users of the configuration's `user` lines, or of aclfile. */
static int read_configured(struct acl *acl, struct acl_table *table, struct quire_error *err)
{
    const struct config *config = acl->config;
    struct resp_buffer problems = {.protocol = 2};
    int rc = 0;
    if (config->users[0] && config->aclfile[0])
        return error_set(err, QUIRE_EINVALID,
                         "there are `user` settings and an aclfile: keep users in one place, the file or the settings");
    for (const char *at = config->users; *at && rc == 0;) {
        size_t bytes = strcspn(at, "\n");
        rc = add_line(table, at, bytes, err);
        at += bytes + (at[bytes] == '\n');
    }
    if (rc < 0 || config->aclfile[0] == 0)
        return rc;
    rc = read_file(config->aclfile, table, &problems);
    if (rc < 0)
        error_set(err, rc, "aclfile %.*s", problems.bytes < 300 ? (int)problems.bytes : 300, (char *)problems.data);
    resp_buffer_fini(&problems);
    return rc;
}

int acl_init(struct acl *acl, struct quire_error *err)
{
    struct acl_table table = {0};
    pthread_mutex_init(&acl->lock, NULL);
    atomic_init(&acl->generation, 1);
    int rc = read_configured(acl, &table, err);
    if (rc == 0)
        rc = complete(acl, &table, err);
    if (rc == 0)
        acl->table = table;
    else
        users_fini(&table);
    return rc;
}

void acl_fini(struct acl *acl)
{
    if (atomic_load(&acl->generation) == 0)
        return; /* never began */
    users_fini(&acl->table);
    acl_log_reset(acl);
    pthread_mutex_destroy(&acl->lock);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

int acl_change(struct acl *acl, struct resp_arg name, const struct resp_arg *rules, uint32_t n, struct quire_error *err)
{
    if (!good_name((const char *)name.data, name.bytes))
        return error_set(err, QUIRE_EINVALID, "Usernames can't contain spaces or null characters");
    struct quire_error inner = {0};
    pthread_mutex_lock(&acl->lock);
    const struct acl_user *old = users_find(&acl->table, name.data, name.bytes);
    struct acl_user *user = old ? acl_user_copy(old) : acl_user_create(name.data, name.bytes);
    int rc = user ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a user");
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = acl_user_apply(user, rules[i].data, rules[i].bytes, &inner);
        if (rc < 0)
            error_set(err, rc, "Error in ACL SETUSER modifier '%.*s': %s", ARG_SHOWN(rules[i], 128u), inner.message);
    }
    if (rc == 0 && !old)
        user->id = ++acl->next_id;
    if (rc == 0)
        rc = users_put(&acl->table, user, err);
    if (rc < 0)
        acl_user_release(user);
    else
        atomic_fetch_add_explicit(&acl->generation, 1, memory_order_release);
    pthread_mutex_unlock(&acl->lock);
    if (rc == 0)
        publish(acl);
    return rc;
}

int acl_set_requirepass(struct acl *acl, const char *password, struct quire_error *err)
{
    char rule[ACL_RULE_BYTES_MAX + 1];
    int bytes = snprintf(rule, sizeof rule, password[0] ? ">%s" : "nopass", password);
    if (bytes < 0 || (size_t)bytes >= sizeof rule)
        return error_set(err, QUIRE_ELIMIT, "requirepass: at most %d bytes", ACL_RULE_BYTES_MAX - 1);
    const struct resp_arg name = {(const uint8_t *)"default", 7};
    const struct resp_arg rules[] = {{(const uint8_t *)"resetpass", 9}, {(const uint8_t *)rule, (uint32_t)bytes}};
    return acl_change(acl, name, rules, 2, err);
}

bool acl_delete(struct acl *acl, struct resp_arg name)
{
    bool there;
    pthread_mutex_lock(&acl->lock);
    size_t at = users_place(&acl->table, name.data, name.bytes, &there);
    if (there) {
        acl_user_release(acl->table.users[at]);
        acl->table.n--;
        memmove(acl->table.users + at, acl->table.users + at + 1, (acl->table.n - at) * sizeof(struct acl_user *));
        atomic_fetch_add_explicit(&acl->generation, 1, memory_order_release);
    }
    pthread_mutex_unlock(&acl->lock);
    if (there)
        publish(acl);
    return there;
}

struct acl_user *acl_fetch(struct acl *acl, const void *name, size_t bytes, uint64_t id, uint64_t *generation)
{
    pthread_mutex_lock(&acl->lock);
    struct acl_user *user = users_find(&acl->table, name, bytes);
    if (user && id != 0 && user->id != id)
        user = NULL;
    if (user)
        acl_user_retain(user);
    *generation = atomic_load_explicit(&acl->generation, memory_order_relaxed);
    pthread_mutex_unlock(&acl->lock);
    return user;
}

struct acl_user *acl_find(struct acl *acl, const void *name, size_t bytes)
{
    uint64_t generation;
    return acl_fetch(acl, name, bytes, 0, &generation);
}

void acl_each(struct acl *acl, void (*visit)(void *context, const struct acl_user *user), void *context)
{
    pthread_mutex_lock(&acl->lock);
    for (size_t i = 0; i < acl->table.n; i++)
        visit(context, acl->table.users[i]);
    pthread_mutex_unlock(&acl->lock);
}

bool acl_default_is_open(struct acl *acl)
{
    struct acl_user *user = acl_find(acl, "default", 7);
    bool open = user->on && user->nopass;
    acl_user_release(user);
    return open;
}
