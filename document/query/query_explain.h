/* query_explain.h - a query's tree as text, for FT.EXPLAIN. */
#ifndef QUIRE_DOCUMENT_QUERY_EXPLAIN_H
#define QUIRE_DOCUMENT_QUERY_EXPLAIN_H

#include "document/query/query.h"

#define QUERY_EXPLAIN_BYTES_MAX (4u << 20)

/* Lines that end with a line feed, two blanks per level; as RediSearch writes them but for what docs/search.md says.
 * *out is the caller's to free(), and terminated. QUIRE_ENOMEM; QUIRE_ELIMIT: more than QUERY_EXPLAIN_BYTES_MAX. */
int query_explain(const struct query_node *root, const struct schema *schema, char **out, size_t *bytes,
                  struct quire_error *err);

#endif
