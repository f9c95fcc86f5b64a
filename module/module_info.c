/* module_info.c - INFO quire: what the module has, and what an operator must know of it. */
#include "index/store/store.h"
#include "io/journal.h"
#include "module/module_priv.h"
#include "module/replication/module_copy.h"

struct counts {
    uint64_t sets, caches, gone, absent;
};

static void count(void *context, struct module_item *item)
{
    struct counts *c = context;
    c->sets += item->state == MODULE_LIVE && item->kind == MODULE_SET;
    c->caches += item->state == MODULE_LIVE && item->kind == MODULE_CACHE;
    c->gone += item->state == MODULE_GONE;
    c->absent += item->state == MODULE_ABSENT;
}

static void put_searches(struct rm_info *info)
{
    uint64_t searches = 0, reads = 0, errors = 0, under_way = 0;
    for (unsigned i = 0; i < module_the.service.n_lanes; i++) {
        const struct module_lane *m = &module_the.lanes[i];
        searches += lane_stat_get(&m->lane.stats.searches);
        reads += lane_stat_get(&m->lane.stats.search_reads);
        errors += lane_stat_get(&m->lane.stats.search_errors);
        under_way += atomic_load(&m->n_calls);
    }
    rm.info_number(info, "searches", searches);
    rm.info_number(info, "search_reads", reads);
    rm.info_number(info, "search_errors", errors);
    rm.info_number(info, "commands_under_way", under_way);
}

static void put_store(struct rm_info *info)
{
    struct store_stats stats;
    struct journal_stats journal;
    struct quire_error err = {0};
    store_get_stats(module_the.service.store, &stats);
    journal_get_stats(module_the.service.journal, &journal);
    rm.info_number(info, "memtable_bytes", stats.memtable_bytes);
    rm.info_number(info, "resident_bytes", stats.resident_bytes);
    rm.info_number(info, "disk_bytes", stats.disk_bytes);
    rm.info_number(info, "segments", stats.segments);
    rm.info_number(info, "seals", stats.seals);
    rm.info_number(info, "merges", stats.merges);
    rm.info_number(info, "unavailable", stats.unavailable);
    rm.info_number(info, "log_bytes", journal.log_bytes);
    rm.info_text(info, "log_status", journal_health(module_the.service.journal, &err) == 0 ? "ok" : err.message);
}

static void put_replication(struct rm_info *info)
{
    struct module_copies_stats copies;
    struct module_fetch_stats fetch;
    module_copies_get_stats(&copies);
    module_fetch_get_stats(&fetch);
    rm.info_text(info, "replication", module_the.is_replica ? "replica" : module_stream_runs() ? "primary" : "none");
    rm.info_number(info, "replicas", module_the.n_replicas);
    rm.info_number(info, "sets_incomplete", copies.incomplete);
    rm.info_number(info, "sets_stopped", copies.stopped);
    rm.info_number(info, "sets_copied", copies.copied_anew);
    rm.info_text(info, "may_be_elected", copies.is_guarded ? "no" : "yes");
    rm.info_number(info, "segments_fetched", fetch.segments);
    rm.info_number(info, "bytes_fetched", fetch.bytes);
    rm.info_number(info, "segments_damaged", fetch.damaged);
}

static void put_info(struct rm_info *info, int for_crash_report)
{
    struct counts c = {0};
    rm.info_section(info, "");
    if (!module_the.open || for_crash_report)
        return; /* locks may be held by the thread that died */
    module_items_each(count, &c);
    rm.info_text(info, "dir", module_the.config.dir);
    rm.info_text(info, "engine", engine_name(module_the.lanes[0].lane.engine));
    rm.info_number(info, "threads", module_the.n_threads);
    rm.info_number(info, "vector_sets", c.sets);
    rm.info_number(info, "caches", c.caches);
    rm.info_number(info, "indexes", documents_count(module_the.service.documents));
    rm.info_number(info, "documents_owed", module_documents_owed());
    rm.info_number(info, "deleted_kept", c.gone);
    rm.info_number(info, "deleted_removed", module_the.n_dropped);
    rm.info_number(info, "keys_without_data", c.absent);
    rm.info_number(info, "keys_recovered", module_the.n_recovered);
    put_replication(info);
    rm.info_number(info, "refused", module_the.n_refused);
    put_searches(info);
    put_store(info);
}

int module_info_register(struct rm_ctx *ctx)
{
    return rm.register_info(ctx, put_info);
}
