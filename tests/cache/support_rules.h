/* support_rules.h - questions and answers of the tests of rules (core/test_rules*.c). */
#ifndef QUIRE_TESTS_SUPPORT_RULES_H
#define QUIRE_TESTS_SUPPORT_RULES_H

#include "cache/core/cache_priv.h"
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM  32
#define HOUR 3600000ull

static inline int setup(void **state)
{
    *state = support_folder_make();
    return 0;
}

static inline int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

static inline struct quire_cache_answer ask_for(struct world *w, const struct quire_cache_query *query, char value[256])
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_query made = *query;
    if (made.category.n_bytes == 0)
        made.category = text_of("k");
    if (ask(w, &made, &asked, &err) < 0)
        fail_msg("%s", err.message);
    struct quire_cache_answer answer = asked.answer;
    if (value)
        memcpy(value, asked.value, sizeof asked.value);
    asked_end(&asked);
    return answer;
}

static inline int ask_error(struct world *w, const struct quire_cache_query *query)
{
    struct asked asked;
    struct quire_error err = {0};
    int rc = ask(w, query, &asked, &err);
    if (rc == 0)
        asked_end(&asked);
    else
        assert_true(err.message[0]);
    return rc;
}

static inline enum quire_cache_put_outcome put_with(struct world *w, struct quire_cache_entry entry, const char *value,
                                                    uint64_t *id)
{
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    if (put(w, &entry, value, &result, &err) < 0)
        fail_msg("%s", err.message);
    if (id)
        *id = result.id;
    return result.outcome;
}

#endif
