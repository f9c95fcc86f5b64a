/*
 * module_main.c - the module's start and end, and what it hears from the engine.
 *
 * Loaded before the engine reads its files: the store is opened first, so that keys find their data. The first timer
 * that runs when nothing is loading makes keys and store agree (module_type_recover); only then data of deleted keys is
 * removed.
 *
 * Nothing is closed before the process exits: a shutdown of the engine may fail and be taken back after it was
 * announced. The announcement syncs the journal; exit() closes the store.
 */
#include "index/vector/parallel.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/journal.h"
#include "io/memory.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"
#include "server/call/data.h"
#include "server/call/fair.h"
#include "server/document/cursors.h"
#include "server/process/config.h"
#include "server/process/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MODULE_VERSION = 1, LANES_OF_MAIN = 2, HANDLE_IO_ERRORS = 1, LOCK_TRIES = 100, LOCK_PAUSE_US = 100000 };

__attribute__((visibility("default"))) int RedisModule_OnLoad(struct rm_ctx *ctx, struct rm_string **argv, int argc);

/* ---- the log ----------------------------------------------------------------------------------------------------- */

/* From any thread. */
static void log_to_engine(enum log_level level, const char *line)
{
    static const char *const levels[] = {"debug", "verbose", "notice", "warning"};
    rm.log(NULL, levels[level], "<quire> %s", line);
}

static int tell(const char *what, const struct quire_error *err)
{
    rm.log(NULL, "warning", "<quire> %s%s", what, err ? err->message : "");
    return RM_ERR;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

/* dir as an absolute path: the engine may change its own folder while it runs. */
static int find_folder(struct quire_error *err)
{
    struct config *config = &module_the.config;
    char here[4096], *path;
    if (config->dir[0] == '/')
        return 0;
    if (!getcwd(here, sizeof here))
        return error_set(err, QUIRE_EIO, "the engine's folder has no path");
    if (asprintf(&path, "%s/%s", here, config->dir[0] ? config->dir : "quire") < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the path of quire.dir");
    int rc = config_set(config, "dir", path, err);
    free(path);
    return rc;
}

/* A child that was saving when the process was killed has the folder's lock as well, until it finds its parent gone,
 * which takes about a second. */
static void wait_for_child(void)
{
    char *path;
    if (asprintf(&path, "%s/LOCK", module_the.config.dir) < 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (unsigned i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++)
        usleep(LOCK_PAUSE_US);
    if (fd >= 0)
        close(fd); /* and with it the lock */
    free(path);
}

/* The store is open, and neither seals nor merges yet. */
static int on_opened(struct service *service, struct quire_error *err)
{
    (void)service;
    int rc = module_items_open(err);
    return rc == 0 ? module_copies_open(err) : rc;
}

static int open_service(struct quire_error *err)
{
    struct service *s = &module_the.service;
    unsigned n = (unsigned)module_the.config.lanes;
    n = n ? n : parallel_processors();
    module_the.n_threads = n < MODULE_THREADS_MAX ? n : MODULE_THREADS_MAX;
    *s = (struct service){.config = &module_the.config,
                          .log = &module_the.log,
                          .n_lanes = module_the.n_threads + LANES_OF_MAIN,
                          .no_priorities = true,
                          .on_effect = module_stream_effect,
                          .on_told = module_stream_told,
                          .on_opened = on_opened,
                          .keeper = &module_keeper,
                          .documents_come_later = true};
    int rc = find_folder(err);
    if (rc == 0)
        rc = module_lanes_create(err);
    if (rc == 0)
        rc = keyspace_init(&s->keyspace, err);
    if (rc == 0)
        rc = gate_init(&s->gate, s->n_lanes + 1, err);
    if (rc == 0)
        rc = fair_init(s, err);
    if (rc == 0)
        rc = cursors_create(&s->cursors, err);
    if (rc == 0)
        rc = module_json_open(err);
    if (rc == 0)
        rc = worker_start(&s->worker, err);
    if (rc == 0) {
        wait_for_child();
        rc = data_open(s, err);
    }
    if (rc == 0)
        rc = module_ship_open(err);
    if (rc == 0)
        rc = module_definitions_open(err);
    if (rc == 0)
        rc = module_lanes_start(err);
    if (rc == 0)
        rc = module_fetch_open(err);
    if (rc == 0)
        rc = module_fork_open(err);
    module_the.open = rc == 0;
    return rc;
}

static void close_service(void)
{
    struct service *s = &module_the.service;
    module_the.open = false;
    module_fetch_close();
    module_lanes_stop();
    worker_stop(&s->worker);
    module_ship_close();
    module_lanes_close();
    module_documents_end();
    cursors_destroy(s->cursors);
    data_close(s);
    module_json_close();
}

/* Children of the engine leave by _exit, or are not this process. */
static void at_exit(void)
{
    if (getpid() == module_the.pid && module_the.open)
        close_service();
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void on_event(struct rm_ctx *ctx, struct rm_event event, uint64_t what, void *data)
{
    struct quire_error err = {0};
    const struct rm_flush *flush = data;
    const struct rm_swap *swap = data;
    if (rm.get_context_flags(ctx) & RM_FLAG_IS_CHILD)
        return; /* what a child does is said to the parent by its death */
    switch (event.id) {
    case RM_EVENT_LOOP:
        if (what != RM_LOOP_BEFORE_SLEEP)
            break;
        if (module_the.open && !(rm.get_context_flags(ctx) & RM_FLAG_LOADING))
            module_documents_begin();
        module_lanes_before_sleep();
        break;
    case RM_EVENT_FLUSH:
        if (what != RM_FLUSH_START)
            break;
        module_items_flush(flush->db);
        module_documents_flush(flush->db);
        break;
    case RM_EVENT_SWAP:
        module_items_swap(swap->first, swap->second);
        module_documents_swap(swap->first, swap->second);
        break;
    case RM_EVENT_FORK:
        module_saves_fork(ctx, what == RM_FORK_BORN);
        break;
    case RM_EVENT_PERSISTENCE:
        module_saves_foreground(what);
        break;
    case RM_EVENT_SHUTDOWN:
        if (module_the.open && journal_sync(module_the.service.journal, &err) < 0)
            log_line(&module_the.log, LOG_LEVEL_WARNING, "the last writes may be lost: %s", err.message);
        break;
    case RM_EVENT_REPLICA:
        if (what == RM_REPLICA_ONLINE) {
            module_the.n_replicas++;
            module_stream_begin();
        } else if (what == RM_REPLICA_OFFLINE && module_the.n_replicas > 0)
            module_the.n_replicas--;
        break;
    case RM_EVENT_ROLE:
        module_copies_role(what == RM_ROLE_REPLICA);
        break;
    case RM_EVENT_LOADING:
        if (what == RM_LOADING_FROM_PRIMARY || module_copies_are_loading())
            module_copies_loading(ctx, what == RM_LOADING_FROM_PRIMARY);
        break;
    default:
        module_look_at_eviction(ctx);
        break;
    }
}

static int subscribe(struct rm_ctx *ctx)
{
    static const uint64_t ids[] = {RM_EVENT_ROLE,    RM_EVENT_PERSISTENCE, RM_EVENT_FLUSH, RM_EVENT_SHUTDOWN,
                                   RM_EVENT_REPLICA, RM_EVENT_SWAP,        RM_EVENT_FORK,  RM_EVENT_LOOP,
                                   RM_EVENT_CONFIG,  RM_EVENT_LOADING};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (rm.subscribe_to_server_event(ctx, (struct rm_event){ids[i], 1}, on_event) != RM_OK)
            return RM_ERR;
    return RM_OK;
}

/* A key has another name, or was restored under one, or is a copy: what that has goes to replicas in one transaction
 * with the COPY, or a node that takes the lead in between would have a key without data. */
static int on_key(struct rm_ctx *ctx, int type, const char *event, struct rm_string *key)
{
    struct quire_error err = {0};
    bool other;
    size_t n;
    (void)type;
    if (strcmp(event, "copy_to") == 0 && module_the.loaded && !module_the.is_replica)
        module_stream_flush(ctx);
    if (strcmp(event, "rename_to") != 0 && strcmp(event, "move_to") != 0 && strcmp(event, "restore") != 0)
        return RM_OK;
    struct module_item *item = module_item_of_key(ctx, key, &other);
    if (!item)
        return RM_OK;
    const char *bytes = rm.string_bytes(key, &n);
    module_item_place(item, rm.get_selected_db(ctx), bytes, n);
    if (item->state == MODULE_LIVE && module_item_log(item, NULL, &err) < 0)
        log_line(&module_the.log, LOG_LEVEL_WARNING, "the new name of a key could not be logged: %s", err.message);
    if (strcmp(event, "restore") == 0 && !module_the.is_replica)
        module_stream_image(item); /* replicas may have removed it for good */
    return RM_OK;
}

static void on_tick(struct rm_ctx *ctx, void *data)
{
    (void)data;
    bool loading = rm.get_context_flags(ctx) & RM_FLAG_LOADING;
    if (!loading && !module_the.loaded)
        module_type_recover(ctx);
    module_lane_turn(&module_the.lanes[0]);
    if (!loading) {
        module_items_settle();
        if (!module_stream_is_held())
            module_calls_tick(ctx);
        module_saves_tick(ctx);
        module_documents_tick();
        module_copies_tick(ctx);
        if (!module_the.is_replica)
            module_stream_tick(ctx);
    }
    rm.create_timer(ctx, module_the.loaded ? MODULE_TICK_MS : 1, on_tick, NULL);
}

/* ---- eviction ---------------------------------------------------------------------------------------------------- */

/* Under allkeys-* the engine removes any key to win memory: of ours it would win a few bytes and lose all data. */
bool module_look_at_eviction(struct rm_ctx *ctx)
{
    struct rm_server_info *info = rm.get_server_info(ctx, "memory");
    const char *policy = info ? rm.server_info_text(info, "maxmemory_policy") : NULL;
    bool evicts = policy && strncmp(policy, "allkeys", 7) == 0;
    if (evicts && !module_the.evicts)
        rm.log(
            ctx, "warning",
            "<quire> maxmemory-policy is %s: it removes keys of vector sets and caches, with all their data, to win a "
            "few bytes of memory. Set noeviction or volatile-*",
            policy);
    module_the.evicts = evicts;
    if (info)
        rm.free_server_info(ctx, info);
    return evicts;
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

static int create_engine_side(struct rm_ctx *ctx)
{
    const char *failed = "";
    char text[200];
    if (module_config_register(ctx) != RM_OK || rm.load_configs(ctx) != RM_OK)
        return tell("a setting of quire.* was not taken: see the line before", NULL);
    if (module_look_at_eviction(ctx))
        return tell("not loaded: maxmemory-policy must be noeviction or one of volatile-*", NULL);
    if (module_type_create(ctx) != RM_OK)
        return tell("the engine does not take the type " MODULE_TYPE_NAME, NULL);
    if (module_definitions_create(ctx) != RM_OK)
        return tell("the engine does not take the type quire-idx", NULL);
    if (module_json_create(ctx) != RM_OK)
        return tell("the engine does not take the type ReJSON-RL: another module has it", NULL);
    if (module_commands_create(ctx, &failed) != RM_OK || module_admin_create(ctx, &failed) != RM_OK) {
        snprintf(text, sizeof text,
                 "the engine does not take the command %s; if it has one of this name, set quire.prefix, such as Q.",
                 failed);
        return tell(text, NULL);
    }
    if (subscribe(ctx) != RM_OK || rm.subscribe_to_keyspace_events(ctx, RM_NOTIFY_GENERIC, on_key) != RM_OK ||
        module_documents_create(ctx) != RM_OK || module_info_register(ctx) != RM_OK)
        return tell("the engine does not take the events that are needed", NULL);
    return RM_OK;
}

int RedisModule_OnLoad(struct rm_ctx *ctx, struct rm_string **argv, int argc)
{
    struct quire_error err = {0};
    (void)argv;
    const char *missing = rm_api_init(ctx);
    if (missing) {
        /* the log may be what is missing */
        fprintf(stderr, "quire: this engine has no RedisModule_%s: Redis 7.0 or newer, or Valkey, is needed\n",
                missing);
        return RM_ERR;
    }
    module_the.main_thread = pthread_self();
    module_the.pid = getpid();
    rm.set_module_attribs(ctx, MODULE_NAME, MODULE_VERSION, RM_API_VERSION);
    module_the.log = (struct log){.fd = -1, .sink = log_to_engine};
    log_set_level(&module_the.log, LOG_LEVEL_NOTICE);
    if (argc > 0)
        return tell("settings are lines of the engine's file, such as quire.dir /var/lib/redis/quire, or given by "
                    "MODULE LOADEX; words behind loadmodule are not taken",
                    NULL);
    if (config_init(&module_the.config, &err) < 0 || config_set(&module_the.config, "dir", "", &err) < 0)
        return tell("", &err);
    rm.set_module_options(ctx, HANDLE_IO_ERRORS);
    if (create_engine_side(ctx) != RM_OK)
        return RM_ERR;
    module_the.is_replica = rm.get_context_flags(ctx) & RM_FLAG_SLAVE;
    module_the.n_replicas = module_stream_replicas(ctx); /* loaded into an engine that runs there may be some */
    if (open_service(&err) < 0) {
        close_service();
        return tell("not loaded: ", &err);
    }
    atexit(at_exit);
    rm.create_timer(ctx, 1, on_tick, NULL);
    log_line(&module_the.log, LOG_LEVEL_NOTICE,
             "serves vector sets and semantic caches from %s, with %u search threads", module_the.config.dir,
             module_the.n_threads);
    return RM_OK;
}
