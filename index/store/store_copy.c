/*
 * store_copy.c - segments of copies (collection/lineage.h): files that come from elsewhere become parts.
 *
 * A folder is filled under its building name, which an opening removes; who fills it has verified it when it is
 * adopted. Then it gets its name, is opened, and is published as a seal or merge of this store's own would be: what it
 * replaces goes with the last reader.
 */
#include "index/segment/segment_view.h"
#include "index/store/store_priv.h"
#include "io/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *store_copy_folder(const struct store *store, uint64_t uid)
{
    char *path;
    return asprintf(&path, "%s/%llu" BUILDING_MARK, store->segments, (unsigned long long)uid) < 0 ? NULL : path;
}

char *store_part_folder(const struct store *store, const struct part *part)
{
    return store_segment_path(store, part->uid);
}

struct io_fs *store_fs(const struct store *store)
{
    return store->fs;
}

/* What was opened is what was told of, and fits the set. */
static int check(const struct collection *c, const struct part *part, const struct lineage_told *told,
                 struct quire_error *err)
{
    const struct collection_config *config = collection_config(c);
    const struct segment_info *info = segment_info(part->segment);
    if (memcmp(part->segment->segment_id, told->segment, LINEAGE_ID_BYTES) != 0 || info->rows != told->rows)
        return error_set(err, QUIRE_ECORRUPT, "%s is another segment than the one that was asked for", info->path);
    if (info->dim != config->dim || info->type != config->type || info->metric != config->metric ||
        (info->slot != config->slot && info->slot != collection_slot(config)))
        return error_set(err, QUIRE_ECORRUPT, "%s holds other vectors than its set", info->path);
    return 0;
}

static int open_copy(struct store *store, struct collection *c, const struct lineage_told *told, struct part **out,
                     struct quire_error *err)
{
    struct view *view = collection_view(c);
    uint64_t share = store_share(store, c, view->parts, view->n_parts, told->rows);
    view_unref(view);
    int rc = part_create(told->uid, out, err);
    if (rc == 0)
        rc = store_open_part(store, c, *out, share, err);
    return rc == 0 ? check(c, *out, told, err) : rc;
}

int store_copy_adopt(struct store *store, struct collection *c, const struct lineage_told *told, uint64_t *lsn,
                     struct quire_error *err)
{
    static const uint8_t nothing[LINEAGE_ID_BYTES];
    struct collection_edit edit = {.added = NULL};
    struct part *part = NULL;
    bool comes = memcmp(told->segment, nothing, LINEAGE_ID_BYTES) != 0, published = false;
    char *from = comes ? store_copy_folder(store, told->uid) : NULL;
    char *to = comes ? store_segment_path(store, told->uid) : NULL;
    int rc = comes && (!from || !to) ? error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment") : 0;
    if (rc == 0 && comes) {
        rc = fs_publish(store->fs, from, to, err);
        published = rc == 0;
    }
    if (published)
        rc = open_copy(store, c, told, &part, err);
    if (rc == 0) {
        pthread_mutex_lock(&store->publish);
        journal_quiesce_begin(store->journal);
        rc = lineage_adopt(c, told->uid, part, &edit, lsn, err);
        journal_quiesce_end(store->journal);
        for (uint32_t i = 0; rc == 0 && i < edit.n_removed_parts; i++)
            store_mark_removed(store, edit.removed_parts[i]);
        for (uint32_t i = 0; rc == 0 && i < edit.n_removed_memtables; i++)
            store_mark_table_removed(store, edit.removed_memtables[i]);
        pthread_mutex_unlock(&store->publish);
    }
    if (rc == 0)
        lineage_edit_free(&edit);
    if (rc < 0 && part && part->segment)
        store_mark_removed(store, part);
    else if (rc < 0 && published)
        fs_remove_folder(store->fs, to, NULL);
    part_unref(part);
    free(from);
    free(to);
    if (rc == 0) {
        store_count(store, c);
        store_apply_limits(store);
        store_signal(store);
    }
    return rc;
}
