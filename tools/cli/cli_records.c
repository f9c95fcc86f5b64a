/* cli_records.c - what the verbs that move rows between formats share. */
#include "tools/cli/cli_records.h"
#include "datasets/vecfile.h"

const struct cli_choice cli_records_compressions[] = {
    {"none", RECORDS_PLAIN}, {"gzip", RECORDS_GZIP}, {"zstd", RECORDS_ZSTD}, {0}};

enum quire_type cli_records_type(enum records_format format, int vecfile_format, enum quire_type type)
{
    static const enum quire_type all[] = {QUIRE_TYPE_F32, QUIRE_TYPE_BF16, QUIRE_TYPE_I8, QUIRE_TYPE_U8};
    if (records_type_fits(format, vecfile_format, type))
        return type;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (records_type_fits(format, vecfile_format, all[i]))
            return all[i];
    return type;
}

void cli_records_report(struct cli *cli, const struct records_copy *copy, const struct records_into *out)
{
    cli_put_count(cli, NULL, "rows", copy->rows);
    cli_put_count(cli, NULL, "dim", out->dim);
    cli_put_text(cli, NULL, "type", quire_type_name(out->type));
    if (out->metric >= 0)
        cli_put_text(cli, NULL, "metric", quire_metric_name((enum quire_metric)out->metric));
    if (copy->keys)
        cli_put_count(cli, NULL, "keys", copy->keys);
    if (copy->attributes)
        cli_put_count(cli, NULL, "attributes", copy->attributes);
    if (copy->tenants)
        cli_put_count(cli, NULL, "tenants", copy->tenants);
}

void cli_records_note_left(struct cli *cli, const struct records_copy *copy, const struct records_into *out)
{
    if (out->format == RECORDS_JSONL && (out->metric == QUIRE_METRIC_L2 || out->metric == QUIRE_METRIC_IP))
        cli_note(cli, "%s cannot hold the metric: where it is imported, --metric %s says it", out->path,
                 quire_metric_name((enum quire_metric)out->metric));
    if (out->format != RECORDS_VECTORS)
        return;
    if (copy->keys && !out->sides.keys)
        cli_note(cli, "%llu rows have keys, which %s cannot hold: --keys FILE writes them beside it",
                 (unsigned long long)copy->keys, out->path);
    if (copy->attributes && !out->sides.attributes)
        cli_note(cli, "%llu rows have attributes, which %s cannot hold: --attrs FILE writes them beside it",
                 (unsigned long long)copy->attributes, out->path);
    if (copy->tenants && !out->sides.tenants)
        cli_note(cli, "%llu rows have tenants, which %s cannot hold: --tenants FILE writes them beside it",
                 (unsigned long long)copy->tenants, out->path);
}
