/* cli_records.h - what the verbs that move rows between formats share: types, and what is said at the end. */
#ifndef QUIRE_TOOLS_CLI_RECORDS_H
#define QUIRE_TOOLS_CLI_RECORDS_H

#include "tools/cli/cli.h"
#include "tools/records/records.h"

extern const struct cli_choice cli_records_compressions[];

/* The type in which a format keeps elements that are of `type`: itself where that fits, or what is next to it. */
enum quire_type cli_records_type(enum records_format format, int vecfile_format, enum quire_type type);
/* Rows, dimensions, type, and how many had which parts. */
void cli_records_report(struct cli *cli, const struct records_copy *copy, const struct records_into *out);
/* A note for each part that rows had and the output has no place for, and for a metric that an import would not take by
 * itself. */
void cli_records_note_left(struct cli *cli, const struct records_copy *copy, const struct records_into *out);

#endif
