/*
 * test_adversary.c - users who are bound to tenants ask for what is not theirs, in every way that the commands of
 * vector sets offer; nothing of anybody else's may come back, whatever they ask and however the server answers it.
 *
 * Requests are made at random: the others' vectors as queries, their names with ELE, VLINKS and VEMB, filters that are
 * true of everything or name what is hidden, ranges over all, counts, transactions, and writes to the others' elements.
 * Sets lie in memory, sealed, in both, as page graphs and as inverted lists, and are sealed and merged meanwhile. Each
 * element has a name and, in its attributes, a secret that no request knows: a reply in which the name or the secret of
 * a stranger's element stands fails the test, and so does a count that is not the user's own. In the end every element
 * is as it was.
 *
 * Some thousands of requests per run; QUIRE_ADVERSARY=1000000 in the environment asks that many, and QUIRE_SEED others.
 */
#include "io/random.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 8, ELEMENTS = 500, TENANTS = 6, USERS = 8, SETS = 4, PIPELINE = 40 };
static const unsigned REQUESTS = SANITIZED ? 1500 : 6000;

static struct test_server *server;
static struct connection admin, users[USERS];
static unsigned bound[USERS];   /* bits: the user's tenants */
static unsigned mask[ELEMENTS]; /* bits: an element's tenants, the same in all sets */
static char request[4096];
static struct random dice;

static unsigned roll(unsigned n)
{
    return (unsigned)(random_next(&dice) % n);
}

/* The numbers of an element: near those of others, of other tenants, too. */
static int number(unsigned element, unsigned d)
{
    return (int)(random_mix(element / 10 * 64 + d) % 100) + (int)(random_mix(element * 64 + d + 7) % 9);
}

static char *put_vector(char *to, unsigned element)
{
    to += sprintf(to, "VALUES %d", DIM);
    for (unsigned d = 0; d < DIM; d++)
        to += sprintf(to, " %d", number(element, d));
    return to;
}

/* ---- the sets ---------------------------------------------------------------------------------------------------- */

static void add_elements(unsigned set, unsigned first, unsigned end)
{
    char line[1024];
    for (unsigned i = first; i < end; i++) {
        char *to = line + sprintf(line, "VADD s%u ", set);
        to = put_vector(to, i);
        to += sprintf(to, " e%u SETATTR \"{\\\"secret\\\":\\\"S#%u\\\",\\\"owner\\\":\\\"", i, i);
        for (unsigned t = 0; t < TENANTS; t++)
            if (mask[i] >> t & 1)
                to += sprintf(to, "t%u", t);
        to += sprintf(to, "\\\",\\\"x\\\":%u,\\\"tags\\\":[\\\"g%u\\\",%u]}\"", i % 10, i % 7, i % 3);
        for (unsigned t = 0; t < TENANTS; t++)
            if (mask[i] >> t & 1)
                to += sprintf(to, " TENANT t%u", t);
        send_line(&admin, "%s", line);
    }
    for (unsigned i = first; i < end; i++) {
        struct reply r = read_reply(&admin);
        if (r.type != ':')
            fail_msg("VADD: %s", r.text);
        reply_free(&r);
    }
}

/* s0 in memory, s1 sealed, s2 and s3 both, with rows that were replaced; s3 of inverted lists. */
static void make_sets(void)
{
    for (unsigned i = 0; i < ELEMENTS; i++) {
        unsigned kind = (unsigned)(random_mix(i) % 16);
        mask[i] = kind == 0 ? 0 : 1u << random_mix(i + 1000) % TENANTS;
        if (kind == 1)
            mask[i] |= 1u << random_mix(i + 2000) % TENANTS;
    }
    expect_text(&admin, "VCREATE s3 DIM 8 METRIC l2 INDEX spann ATTR x integer INDEXED ATTR owner string INDEXED",
                "OK");
    for (unsigned set = 0; set < SETS; set++) {
        char seal[16];
        snprintf(seal, sizeof seal, "VSEAL s%u", set);
        add_elements(set, 0, ELEMENTS / 2);
        if (set >= 2)
            expect_text(&admin, seal, "OK");
        add_elements(set, ELEMENTS / 3, ELEMENTS);
        if (set == 1)
            expect_text(&admin, seal, "OK");
    }
}

static int set_up(void **state)
{
    (void)state;
    const char *seed = getenv("QUIRE_SEED");
    random_init(&dice, seed ? strtoull(seed, NULL, 10) : 20);
    server = support_server((const char *const[]){"build-threads", "1", NULL});
    connect_to(&admin, server->port);
    make_sets();
    for (unsigned u = 0; u < USERS; u++) {
        char rules[128];
        bound[u] = u < TENANTS ? 1u << u : u == TENANTS ? 3 : 1u << TENANTS; /* each, two of them, one without any */
        int n = snprintf(rules, sizeof rules, "ACL SETUSER u%u on >p ~* +@all", u);
        for (unsigned t = 0; t <= TENANTS; t++)
            if (bound[u] >> t & 1)
                n += snprintf(rules + n, sizeof rules - (size_t)n, " tenant:t%u", t);
        expect_text(&admin, rules, "OK");
        connect_to(&users[u], server->port);
        snprintf(rules, sizeof rules, "AUTH u%u p", u);
        expect_text(&users[u], rules, "OK");
        struct reply r = ask(&users[u], u % 2 ? "HELLO 3" : "HELLO 2");
        reply_free(&r);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned u = 0; u < USERS; u++)
        disconnect(&users[u]);
    disconnect(&admin);
    support_server_end(server);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static unsigned stranger(unsigned user)
{
    unsigned element;
    do
        element = roll(ELEMENTS);
    while (mask[element] & bound[user]);
    return element;
}

/* An expression that is true of others' elements, or that asks about them. */
static char *put_filter(char *to, unsigned user, unsigned depth)
{
    unsigned other = stranger(user);
    switch (roll(depth > 3 ? 11 : 16)) {
    case 0:
        return to + sprintf(to, "1");
    case 1:
        return to + sprintf(to, ".owner == 't%u'", roll(TENANTS));
    case 2:
        return to + sprintf(to, "key in ['e%u', 'e%u', 'e%u']", other, stranger(user), roll(ELEMENTS));
    case 3:
        return to + sprintf(to, "key == 'e%u'", other);
    case 4:
        return to + sprintf(to, ".x %s %u", roll(2) ? ">=" : "!=", roll(12));
    case 5:
        return to + sprintf(to, "exists .secret");
    case 6:
        return to + sprintf(to, ".owner prefix 't'");
    case 7:
        return to + sprintf(to, "'g%u' in .tags", roll(8));
    case 8:
        return to + sprintf(to, ".absent == null");
    case 9:
        return to + sprintf(to, ".x in [0,1,2,3,4,5,6,7,8,9]");
    case 10:
        return to + sprintf(to, "!(.absent)");
    case 11:
    case 12:
        to += sprintf(to, "(");
        to = put_filter(to, user, depth + 1);
        to += sprintf(to, ") or (");
        to = put_filter(to, user, depth + 1);
        return to + sprintf(to, ")");
    case 13:
        to += sprintf(to, "not (");
        to = put_filter(to, user, depth + 1);
        return to + sprintf(to, ")");
    case 14:
        to += sprintf(to, "(");
        to = put_filter(to, user, depth + 1);
        to += sprintf(to, ") and (");
        to = put_filter(to, user, depth + 1);
        return to + sprintf(to, ")");
    default:
        return to + sprintf(to, "%s", roll(2) ? "(.owner" : ".x == 1 or or ]");
    }
}

static char *put_choice(char *to, unsigned user)
{
    if (roll(2)) {
        to += sprintf(to, " FILTER \"");
        to = put_filter(to, user, 0);
        to += sprintf(to, "\"");
    }
    if (roll(8) == 0)
        to += sprintf(to, " TENANT t%u", roll(TENANTS + 1));
    return to;
}

static void put_search(char *to, unsigned user)
{
    static const char *const words[] = {" WITHSCORES",   " WITHATTRIBS", " WITHVECTORS", " TRUTH",
                                        " EXPLAIN",      " EF 500",      " FILTER-EF 0", " FILTER-EF 5",
                                        " EPSILON 1e30", " RECALL 1",    " MAXREADS 2"};
    bool many = roll(6) == 0;
    to += sprintf(to, many ? "VMSIM s%u 2 " : "VSIM s%u ", roll(SETS));
    for (int i = 0; i < 1 + many; i++) {
        if (roll(4) == 0)
            to += sprintf(to, "ELE e%u", roll(ELEMENTS));
        else
            to = put_vector(to, roll(4) ? stranger(user) : roll(ELEMENTS));
        to += sprintf(to, " ");
    }
    to += sprintf(to, "COUNT %u", 1 + roll(roll(3) ? 20 : ELEMENTS));
    to = put_choice(to, user);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (roll(4) == 0 && !(i == 9 && strstr(request, " EF ")))
            to += sprintf(to, "%s", words[i]);
}

static void put_look(char *to, unsigned user)
{
    unsigned set = roll(SETS), other = stranger(user);
    switch (roll(11)) {
    case 0:
        sprintf(to, "VRANGE s%u - +", set);
        break;
    case 1:
        sprintf(to, "VRANGE s%u [e%u (e%u %u", set, other, other + 100, roll(50));
        break;
    case 2:
        sprintf(to, "VLINKS s%u e%u%s", set, roll(ELEMENTS), roll(2) ? " WITHSCORES" : "");
        break;
    case 3:
        sprintf(to, "VRANDMEMBER s%u %s%u", set, roll(2) ? "-" : "", roll(ELEMENTS));
        break;
    case 4:
        sprintf(to, "VGETATTR s%u e%u", set, roll(ELEMENTS));
        break;
    case 5:
        sprintf(to, "VEMB s%u e%u%s", set, other, roll(2) ? " RAW" : "");
        break;
    case 6:
        sprintf(to, "VINFO s%u", set);
        break;
    case 7:
        sprintf(to, "VCARD s%u", set);
        break;
    case 8:
        put_choice(to + sprintf(to, "VCOUNT s%u", set), user);
        break;
    case 9:
        sprintf(to, "VISMEMBER s%u e%u", set, other);
        break;
    default:
        sprintf(to, "VTENANTS s%u", set);
    }
}

/* Writes that would change others' elements, and none of the user's own. */
static void put_write(char *to, unsigned user)
{
    unsigned set = roll(SETS), other = stranger(user), tenant = roll(TENANTS);
    switch (roll(7)) {
    case 0:
        sprintf(to, "VREM s%u e%u", set, other);
        break;
    case 1:
        sprintf(to, "VSETATTR s%u e%u {}", set, other);
        break;
    case 2:
        sprintf(put_vector(to + sprintf(to, "VADD s%u ", set), other), " e%u SETATTR {}", other);
        break;
    case 3:
        sprintf(put_vector(to + sprintf(to, "VADD s%u ", set), other), " e%u TENANT t%u", other, tenant);
        break;
    case 4:
        sprintf(to, "VGRANT s%u e%u t%u", set, other, tenant);
        break;
    case 5:
        sprintf(to, "VREVOKE s%u e%u t%u", set, other, tenant);
        break;
    default:
        sprintf(to, "VDELWHERE s%u FILTER \"key in ['e%u', 'e%u'] or .secret == 'S#%u'\"", set, other, stranger(user),
                other);
    }
}

static void make_request(unsigned user)
{
    unsigned kind = roll(10);
    if (kind < 6)
        put_search(request, user);
    else if (kind < 8)
        put_look(request, user);
    else
        put_write(request, user);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void check_element(unsigned user, unsigned element, const char *asked, const char *text)
{
    if (element >= ELEMENTS || !(mask[element] & bound[user]))
        fail_msg("u%u asked [%s] and got [%s]", user, asked, text);
}

/* Every text of a reply. In errors the request's own names may stand. */
static void check_texts(unsigned user, const struct reply *r, const char *asked, bool is_error)
{
    unsigned element;
    char end;
    is_error |= r->type == '-';
    for (const char *at = r->text; at && (at = strstr(at, "S#")) && sscanf(at, "S#%u", &element) == 1; at++)
        if (!is_error || !strstr(asked, "S#"))
            check_element(user, element, asked, r->text);
    if (r->text && !is_error && sscanf(r->text, "e%u%c", &element, &end) == 1)
        check_element(user, element, asked, r->text);
    for (size_t i = 0; i < r->n; i++)
        check_texts(user, &r->items[i], asked, is_error);
}

static unsigned own(unsigned user)
{
    unsigned n = 0;
    for (unsigned i = 0; i < ELEMENTS; i++)
        n += (mask[i] & bound[user]) != 0;
    return n;
}

static void check_reply(unsigned user, const struct reply *r, const char *asked)
{
    unsigned element = ELEMENTS;
    char word[16] = "";
    sscanf(asked, "%15s", word);
    check_texts(user, r, asked, false);
    bool names = sscanf(asked, "%*s s%*u e%u", &element) == 1 && !(mask[element % ELEMENTS] & bound[user]);
    bool refused = r->type == '-' || r->null || ((r->type == ':' || r->type == '#') && r->integer == 0);
    if (names && !refused)
        fail_msg("u%u asked [%s] and was answered", user, asked);
    if ((strcmp(word, "VDELWHERE") == 0 || strcmp(word, "VTENANTS") == 0) && !refused)
        fail_msg("u%u asked [%s] and was answered", user, asked);
    if (strcmp(word, "VCARD") == 0 && r->integer != own(user))
        fail_msg("u%u has %u elements, VCARD says %lld", user, own(user), r->integer);
    if (strcmp(word, "VCOUNT") == 0 && r->type != '-' && r->integer > own(user))
        fail_msg("u%u has %u elements, [%s] says %lld", user, own(user), asked, r->integer);
    if (strcmp(word, "VINFO") == 0 && reply_field(r, "size")->integer != own(user))
        fail_msg("u%u has %u elements, VINFO says otherwise", user, own(user));
    if (strcmp(asked, "VRANGE s0 - +") == 0 && r->n != own(user))
        fail_msg("u%u has %u elements, VRANGE gives %zu", user, own(user), r->n);
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

/* Seals and merges between requests, so that elements move. */
static void stir(unsigned round)
{
    char words[32];
    if (round % 16 != 7)
        return;
    unsigned set = 1 + roll(SETS - 1), first = roll(ELEMENTS - 30);
    if (roll(2)) {
        snprintf(words, sizeof words, "%s s%u", roll(4) ? "VSEAL" : "VCOMPACT", set);
        expect_text(&admin, words, "OK");
    } else {
        add_elements(set, first, first + 30);
    }
}

static void ask_many(unsigned user, unsigned n)
{
    static char asked[PIPELINE][sizeof request];
    bool in_transaction = roll(4) == 0;
    if (in_transaction)
        n = 3; /* some requests are refused there, and then all are */
    if (in_transaction)
        expect_text(&users[user], "MULTI", "OK");
    for (unsigned i = 0; i < n; i++) {
        make_request(user);
        strcpy(asked[i], request);
        send_line(&users[user], "%s", request);
    }
    for (unsigned i = 0; i < n; i++) {
        struct reply r = read_reply(&users[user]);
        if (!in_transaction)
            check_reply(user, &r, asked[i]);
        reply_free(&r);
    }
    if (!in_transaction)
        return;
    struct reply r = ask(&users[user], "EXEC");
    check_texts(user, &r, "a transaction", true);
    for (size_t i = 0; r.type == '*' && i < r.n && r.n == n; i++)
        check_reply(user, &r.items[i], asked[i]);
    reply_free(&r);
}

static void check_that_all_is_there(void)
{
    for (unsigned set = 0; set < SETS; set++) {
        struct reply r = ask_line(&admin, "VSIM s%u ELE e0 COUNT %u TRUTH WITHATTRIBS", set, ELEMENTS);
        assert_int_equal(r.n, 2 * ELEMENTS);
        for (size_t i = 0; i < r.n; i += 2) {
            char right[64];
            snprintf(right, sizeof right, "{\"secret\":\"S#%s\",\"owner\":\"", r.items[i].text + 1);
            if (strncmp(r.items[i + 1].text, right, strlen(right)) != 0)
                fail_msg("s%u %s has become %s", set, r.items[i].text, r.items[i + 1].text);
        }
        reply_free(&r);
        for (unsigned t = 0; t < TENANTS; t++) {
            r = ask_line(&admin, "VCOUNT s%u TENANT t%u", set, t);
            assert_int_equal(r.integer, own(t));
            reply_free(&r);
        }
    }
}

static void test_nothing_of_strangers_comes_back(void **state)
{
    (void)state;
    const char *wanted = getenv("QUIRE_ADVERSARY");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : REQUESTS;
    for (uint64_t done = 0, round = 0; done < n; done += PIPELINE, round++) {
        ask_many(roll(USERS), PIPELINE);
        stir((unsigned)round);
    }
    check_that_all_is_there();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_of_strangers_comes_back)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
