/*
 * fuzz_query.c - any bytes as a query, and as a text of which words are made.
 *
 * The bits of the first byte are the options of the command; the rest is the query. What is read makes a tree that has
 * the form that query.h promises, is shown by FT.EXPLAIN, and comes out the same a second time; what is refused says so
 * with an offset and leaves the output alone. The words of the bytes are in lower case, have places that ascend, and
 * are words again by themselves.
 */
#include "document/text/fold.h"
#include "document/text/text_words.h"
#include "tests/document/support_query.h"
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool right)
{
    if (!right)
        abort();
}

static struct schema *schema;

static const struct schema *fields(void)
{
    if (!schema)
        schema =
            schema_of("idx SCHEMA title TEXT body TEXT NOSTEM tag TAG n NUMERIC g GEO v VECTOR FLAT 6 TYPE FLOAT32 "
                      "DIM 2 DISTANCE_METRIC L2 a.b TAG gone TAG INDEXMISSING empty TAG INDEXEMPTY");
    require(schema != NULL);
    return schema;
}

static void check_leaf(const struct query_node *node)
{
    bool vector = node->kind == QUERY_RANGE || node->kind == QUERY_KNN;
    bool field = vector || node->kind == QUERY_TAG || node->kind == QUERY_NUMERIC || node->kind == QUERY_GEO ||
                 node->kind == QUERY_MISSING;
    require((node->field != NULL) == field);
    require(!vector || (node->vector && node->vector_bytes == 8 && node->radius >= 0 && node->k <= QUERY_KNN_MAX));
    require(node->kind != QUERY_NUMERIC || node->low <= node->high);
    require(node->kind != QUERY_FUZZY || (node->distance >= 1 && node->distance <= 3));
    require(node->weight >= 0 && node->slop >= -1);
}

/* The nodes of the tree. */
static uint32_t check_tree(const struct query_node *node, uint32_t depth, const struct query_node *parent)
{
    static const struct {
        uint32_t least, most;
    } children[] = {
        [QUERY_AND] = {2, UINT32_MAX}, [QUERY_OR] = {2, UINT32_MAX},     [QUERY_NOT] = {1, 1},
        [QUERY_OPTIONAL] = {1, 1},     [QUERY_PHRASE] = {2, UINT32_MAX}, [QUERY_TAG] = {1, UINT32_MAX},
        [QUERY_KNN] = {1, 1},
    };
    uint32_t n = 1;
    require(depth <= 3 * QUERY_DEPTH_MAX && node->kind <= QUERY_KNN);
    require(node->n_children >= children[node->kind].least && node->n_children <= children[node->kind].most);
    require(node->kind != QUERY_KNN || !parent);
    require(!parent || parent->kind != QUERY_PHRASE || node->kind == QUERY_TERM);
    require(!parent || parent->kind != QUERY_TAG || (node->kind >= QUERY_TERM && node->kind <= QUERY_WILDCARD));
    check_leaf(node);
    for (uint32_t i = 0; i < node->n_children; i++)
        n += check_tree(node->children[i], depth + 1, node);
    return n;
}

static void check_words(const char *text, size_t bytes, const struct text_rules *rules)
{
    struct text_words words, again;
    struct text_word word, same;
    char folded[FOLD_ROOM(2 * TEXT_WORD_BYTES_MAX)], escaped[4 * TEXT_WORD_BYTES_MAX];
    uint32_t position = 0;
    int more;
    text_words_init(&words, rules, text, bytes);
    while ((more = text_words_next(&words, &word)) == 1) {
        require(word.bytes > 0 && word.position == ++position);
        require(fold_text(word.text, word.bytes, folded) == word.bytes && memcmp(folded, word.text, word.bytes) == 0);
        uint32_t n = 0;
        for (uint32_t i = 0; i < word.bytes; i++) {
            if (word.text[i] == '\\' || text_is_separator((unsigned char)word.text[i]))
                escaped[n++] = '\\';
            escaped[n++] = word.text[i];
        }
        const struct text_rules plain = {.keep_stopwords = true};
        text_words_init(&again, &plain, escaped, n);
        require(text_words_next(&again, &same) == 1);
        require(word.bytes > TEXT_WORD_BYTES_MAX ||
                (same.bytes == word.bytes && memcmp(same.text, word.text, word.bytes) == 0));
        require(word.bytes > TEXT_WORD_BYTES_MAX || text_words_next(&again, &same) == 0);
        text_words_fini(&again);
    }
    require(more == 0);
    text_words_fini(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct query_param params[] = {{{"vec", 3}, {"\0\0\200\077\0\0\0\100", 8}},
                                                {{"k", 1}, {"7", 1}},
                                                {{"t", 1}, {"New York, the city", 18}},
                                                {{"unit", 4}, {"km", 2}},
                                                {{"open", 4}, {"(3", 2}}};
    static const char *const languages[] = {NULL, "german", "chinese", "turkish"};
    struct query *query = NULL, *again = NULL;
    struct quire_error err = {0};
    char *shown = NULL, *shown_again = NULL;
    size_t n = 0, n_again = 0;
    if (size == 0)
        return 0;
    const struct query_context context = {.schema = fields(),
                                          .params = params,
                                          .n_params = sizeof params / sizeof params[0],
                                          .text_fields = data[0] & 1,
                                          .verbatim = data[0] & 2,
                                          .no_stopwords = data[0] & 4,
                                          .slop = data[0] & 8 ? 1 : -1,
                                          .in_order = data[0] & 16,
                                          .language = languages[data[0] >> 6],
                                          .dialect = 2};
    const char *text = (const char *)data + 1;
    int rc = query_parse(&context, text, size - 1, &query, &err);
    if (rc == 0) {
        require(check_tree(query_root(query), 0, NULL) <= QUERY_NODES_MAX);
        require(query_parse(&context, text, size - 1, &again, NULL) == 0);
        rc = query_explain(query_root(query), context.schema, &shown, &n, &err);
        require(rc == 0 || (rc == QUIRE_ELIMIT && !shown));
        require(query_explain(query_root(again), context.schema, &shown_again, &n_again, NULL) == rc);
        require(rc < 0 || (n > 0 && n == n_again && shown[n - 1] == '\n' && memcmp(shown, shown_again, n) == 0));
    } else {
        require((rc == QUIRE_EPARSE || rc == QUIRE_ELIMIT) && err.code == rc && !query);
        require(strstr(err.message, "offset") || size - 1 > QUERY_BYTES_MAX);
    }
    const struct text_language *language =
        context.language ? text_language_find(context.language, strlen(context.language)) : NULL;
    const struct text_rules rules = {.schema = context.schema, .language = language, .query = data[0] & 32};
    check_words(text, size - 1, &rules);
    free(shown);
    free(shown_again);
    query_free(query);
    query_free(again);
    return 0;
}
