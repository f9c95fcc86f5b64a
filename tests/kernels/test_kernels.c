/*
 * test_kernels.c - every variant that this machine runs against plain arithmetic, and how one of them is chosen.
 *
 * The choice is made once per process, so the tests of QUIRE_CPU start this program again with --report, which prints
 * the table and the reason. A machine with less than this one is played by calling kernels_choose.
 */
#include "index/kernels/kernels_priv.h"
#include "tests/kernels/support_compare.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void run_check(const char *name)
{
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants);
    bool known = false;
    for (size_t c = 0; c < n_compare_checks; c++) {
        if (strcmp(compare_checks[c].name, name) != 0)
            continue;
        known = true;
        for (size_t i = 0; i < n; i++) {
            char message[256] = "";
            if (!compare_checks[c].run(variants[i], message, sizeof message))
                fail_msg("%s: %s", variants[i]->name, message);
        }
    }
    assert_true(known);
}

static void test_pairs(void **state)
{
    (void)state;
    run_check("sums of pairs");
}

static void test_nan(void **state)
{
    (void)state;
    run_check("NaN shows");
}

static void test_f32_l2_many(void **state)
{
    (void)state;
    run_check("f32_l2_many");
}

static void test_code_dot(void **state)
{
    (void)state;
    run_check("code_dot");
}

static void test_group_dot(void **state)
{
    (void)state;
    run_check("group_dot");
}

static void test_f32_from_f16(void **state)
{
    (void)state;
    run_check("f32_from_f16");
}

static void test_f16_from_f32(void **state)
{
    (void)state;
    run_check("f16_from_f32");
}

static void test_f32_from_bf16(void **state)
{
    (void)state;
    run_check("f32_from_bf16");
}

static void test_bf16_from_f32(void **state)
{
    (void)state;
    run_check("bf16_from_f32");
}

static void test_code_estimates(void **state)
{
    (void)state;
    run_check("code_estimates");
}

static void test_hadamard(void **state)
{
    (void)state;
    run_check("hadamard");
}

static void test_tables(void **state)
{
    (void)state;
    const struct kernels *const *variants;
    run_check("the table");
    size_t n = kernels_available(&variants);
    assert_in_range(n, 1, KERNELS_VARIANTS_MAX);
    assert_string_equal(variants[n - 1]->name, "scalar");
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(variants[i]->name, variants[j]->name);
    }
    assert_non_null(kernels());
    assert_ptr_equal(kernels(), kernels());
    assert_int_equal(kernels_code_index(1), 0);
    assert_int_equal(kernels_code_index(2), 1);
    assert_int_equal(kernels_code_index(4), 2);
    assert_int_equal(kernels_code_index(8), 3);
    assert_int_equal(kernels_code_index(0), -1);
    assert_int_equal(kernels_code_index(3), -1);
    assert_int_equal(kernels_code_index(16), -1);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Name and reason that a process with this QUIRE_CPU (NULL: unset) comes to. */
static void choice_with(const char *quire_cpu, char name[64], char reason[256])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int set = quire_cpu ? setenv("QUIRE_CPU", quire_cpu, 1) : unsetenv("QUIRE_CPU");
        if (set == 0 && dup2(ends[1], STDOUT_FILENO) >= 0)
            execl("/proc/self/exe", "test_kernels", "--report", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    assert_non_null(in);
    assert_non_null(fgets(name, 64, in));
    assert_non_null(fgets(reason, 256, in));
    fclose(in);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    name[strcspn(name, "\n")] = '\0';
    reason[strcspn(reason, "\n")] = '\0';
}

static void test_choice_automatic(void **state)
{
    (void)state;
    const struct kernels *const *variants;
    kernels_available(&variants);
    char name[64], reason[256];
    choice_with(NULL, name, reason);
    assert_string_equal(name, variants[0]->name);
    assert_int_equal(strncmp(reason, name, strlen(name)), 0);
    assert_null(strstr(reason, "QUIRE_CPU"));
    char name_empty[64], reason_empty[256];
    choice_with("", name_empty, reason_empty);
    assert_string_equal(name_empty, name);
    assert_string_equal(reason_empty, reason);
}

static void test_choice_capped(void **state)
{
    (void)state;
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants);
    for (size_t i = 0; i < n; i++) {
        char name[64], reason[256], want[128];
        choice_with(variants[i]->name, name, reason);
        assert_string_equal(name, variants[i]->name);
        snprintf(want, sizeof want, "%s (QUIRE_CPU)", name);
        assert_string_equal(reason, want);
    }
}

/* What is asked for and not there: the best that is, and a reason that names the request. */
static void test_choice_not_there(void **state)
{
    (void)state;
    static const char *const asked[] = {"avx2", "avx512", "neon", "sse9", "AVX2", " avx2", "scalar,avx2"};
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants);
    for (size_t a = 0; a < sizeof asked / sizeof *asked; a++) {
        bool there = false;
        for (size_t i = 0; i < n; i++)
            there = there || strcmp(asked[a], variants[i]->name) == 0;
        if (there)
            continue;
        char name[64], reason[256];
        choice_with(asked[a], name, reason);
        bool is_cap = a < 2 && strcmp(variants[0]->name, "neon") != 0; /* a tier that the compiler could not make */
        if (!is_cap)
            assert_string_equal(name, variants[0]->name);
        assert_int_equal(strncmp(reason, name, strlen(name)), 0);
        assert_non_null(strstr(reason, asked[a]));
        assert_non_null(strstr(reason, "QUIRE_CPU"));
    }
}

/* A tier that the build knows and the machine lacks: kernels_choose is told of a lesser machine. */
static void test_choice_lesser_machine(void **state)
{
    (void)state;
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants);
    for (size_t best = 0; best < n; best++)
        for (size_t asked = 0; asked < n; asked++) {
            struct kernels_choice choice;
            kernels_choose(best, variants[n - 1 - asked]->name, &choice);
            const struct kernels *want = variants[n - 1 - (asked < best ? asked : best)];
            assert_ptr_equal(choice.table, want);
            assert_int_equal(choice.n_available, best + 1);
            for (size_t i = 0; i <= best; i++)
                assert_ptr_equal(choice.available[i], variants[n - 1 - best + i]);
            char more[64];
            snprintf(more, sizeof more, "; QUIRE_CPU=%s is more than this machine or build has)",
                     variants[n - 1 - asked]->name);
            assert_int_equal(strncmp(choice.reason, want->name, strlen(want->name)), 0);
            if (asked > best)
                assert_non_null(strstr(choice.reason, more));
            else
                assert_non_null(strstr(choice.reason, " (QUIRE_CPU)"));
        }
}

/* A hostile value stays bounded and on one line of plain characters. */
static void test_choice_hostile_value(void **state)
{
    (void)state;
    char name[64], reason[256], plain[64], plain_reason[256];
    choice_with(NULL, plain, plain_reason);
    choice_with("a\"b\\c\nd\x1b\xff", name, reason);
    assert_string_equal(name, plain);
    assert_non_null(strstr(reason, "QUIRE_CPU=a?b?c?d?? "));
    char *value = malloc(100001);
    assert_non_null(value);
    memset(value, 'x', 100000);
    value[100000] = '\0';
    choice_with(value, name, reason);
    free(value);
    assert_string_equal(name, plain);
    assert_in_range(strlen(reason), 1, 159);
    assert_non_null(strstr(reason, "names no variant of this build)"));
}

#if defined(__x86_64__)
/* The system's own list of features, which leaves out what it does not save, must agree with ours. */
static void test_agrees_with_cpuinfo(void **state)
{
    (void)state;
    static const char *const needed[2][12] = {
        {" avx2 ", " fma ", " f16c ", " bmi2 "},
        {" avx2 ", " fma ", " f16c ", " bmi2 ", " avx512f ", " avx512bw ", " avx512vl ", " avx512dq ", " avx512_vnni ",
         " avx512_vpopcntdq ", " avx512vbmi "},
    };
    static const char *const names[2] = {"avx2", "avx512"};
    FILE *in = fopen("/proc/cpuinfo", "r");
    static char line[16384];
    bool found = false;
    while (in && !found && fgets(line, sizeof line - 1, in))
        found = strncmp(line, "flags", 5) == 0;
    if (in)
        fclose(in);
    if (!found)
        skip();
    line[strcspn(line, "\n")] = ' ';
    const struct kernels *const *variants;
    size_t n = kernels_available(&variants);
    for (size_t v = 0; v < 2; v++) {
        bool expected = true, there = false;
        for (size_t i = 0; i < 12 && needed[v][i]; i++)
            expected = expected && strstr(line, needed[v][i]);
        for (size_t i = 0; i < n; i++)
            there = there || strcmp(variants[i]->name, names[v]) == 0;
        assert_int_equal(there, expected);
    }
}
#endif

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--report") == 0)
        return compare_report();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_f32_l2_many),
        cmocka_unit_test(test_code_dot),
        cmocka_unit_test(test_group_dot),
        cmocka_unit_test(test_f32_from_f16),
        cmocka_unit_test(test_f16_from_f32),
        cmocka_unit_test(test_f32_from_bf16),
        cmocka_unit_test(test_bf16_from_f32),
        cmocka_unit_test(test_code_estimates),
        cmocka_unit_test(test_hadamard),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_choice_automatic),
        cmocka_unit_test(test_choice_capped),
        cmocka_unit_test(test_choice_not_there),
        cmocka_unit_test(test_choice_lesser_machine),
        cmocka_unit_test(test_choice_hostile_value),
#if defined(__x86_64__)
        cmocka_unit_test(test_agrees_with_cpuinfo),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
