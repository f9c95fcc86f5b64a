/* top_json.h - a frame as one line of JSON (docs/operations.md describes its fields). */
#ifndef QUIRE_TOOLS_TOP_JSON_H
#define QUIRE_TOOLS_TOP_JSON_H

#include "tools/top/top_canvas.h"
#include "tools/top/top_frame.h"

/* Adds the line with its end; without memory *out is `failed`. time_ms: Unix time of the INFO, or of the problem. */
void top_json_write(const struct top_shown *shown, uint64_t time_ms, struct top_output_text *out);

#endif
