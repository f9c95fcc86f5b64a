/*
 * expression_run.c - evaluates a program over one row.
 *
 * A stack of at most EXPRESSION_STACK_MAX values, a loop over the steps, jumps forward only: the time of an evaluation
 * is that of its steps. Each value on the stack is a share; what is left there after an error is released.
 *
 * Division by zero is NaN, whatever is divided, as RediSearch answers.
 */
#include "document/pipeline/expression_priv.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>

struct machine {
    const struct expression *program;
    struct expression_call call;
    struct datum *stack[EXPRESSION_STACK_MAX];
    uint32_t n;
};

static int push(struct machine *machine, struct datum *datum)
{
    struct datum *given = NULL;
    int rc = expression_give(&machine->call, datum, &given);
    if (rc == 0) {
        assert(machine->n < EXPRESSION_STACK_MAX);
        machine->stack[machine->n++] = given;
    }
    return rc;
}

static struct datum *pop(struct machine *machine)
{
    assert(machine->n > 0);
    return machine->stack[--machine->n];
}

/* What is on top, as a condition; "no value" is false. It is popped. */
static bool pop_truth(struct machine *machine)
{
    struct datum *top = pop(machine);
    bool truth = top && datum_is_true(top);
    datum_release(machine->call.pool, top);
    return truth;
}

static int push_name(struct machine *machine, const struct expression_step *step)
{
    const struct expression_row *row = machine->call.row;
    uint32_t column = row->columns[step->at];
    struct datum *value = column < row->n_values ? row->values[column] : NULL;
    if (!value && step->code == CODE_NAME)
        return error_set(
            machine->call.err, QUIRE_EINVALID,
            "Could not find the value for a parameter name, consider using EXISTS if applicable for %.200s",
            machine->program->text + machine->program->names[step->at].from);
    assert(machine->n < EXPRESSION_STACK_MAX);
    machine->stack[machine->n++] = value ? datum_share(value) : NULL;
    return 0;
}

static int want_number(struct machine *machine, const struct datum *datum, double *number)
{
    if (datum_to_number(datum, number))
        return 0;
    if (datum->kind == DATUM_STRING)
        return error_set(machine->call.err, QUIRE_EINVALID, "Error converting string: '%.100s' is not a number",
                         datum_text(datum));
    return error_set(machine->call.err, QUIRE_EINVALID, "Error converting to a number: the value is %s",
                     expression_kind_name(datum));
}

static double calculate(enum expression_code code, double a, double b)
{
    switch (code) {
    case CODE_ADD:
        return a + b;
    case CODE_SUBTRACT:
        return a - b;
    case CODE_MULTIPLY:
        return a * b;
    case CODE_DIVIDE:
        return b == 0 ? (double)NAN : a / b;
    case CODE_MODULO:
        return b == 0 ? (double)NAN : fmod(a, b);
    default:
        assert(code == CODE_POWER);
        return pow(a, b);
    }
}

static int run_arithmetic(struct machine *machine, enum expression_code code)
{
    double a, b;
    struct datum *right = pop(machine), *left = pop(machine);
    int rc = want_number(machine, left, &a);
    if (rc == 0)
        rc = want_number(machine, right, &b);
    if (rc == 0)
        rc = push(machine, datum_number(machine->call.pool, calculate(code, a, b)));
    datum_release(machine->call.pool, left);
    datum_release(machine->call.pool, right);
    return rc;
}

static int run_comparison(struct machine *machine, enum expression_code code)
{
    struct datum *right = pop(machine), *left = pop(machine);
    bool unlike = false, holds;
    int rc = 0;
    if (code == CODE_EQUAL || code == CODE_UNEQUAL) {
        holds = datum_equals(left, right) == (code == CODE_EQUAL);
    } else {
        int order = datum_compare(left, right, &unlike);
        holds = code == CODE_LESS      ? order < 0
                : code == CODE_AT_MOST ? order <= 0
                : code == CODE_GREATER ? order > 0
                                       : order >= 0;
    }
    if (unlike) {
        const struct datum *other = left->kind == DATUM_NUMBER ? right : left;
        double number;
        rc = want_number(machine, other, &number);
        assert(rc < 0);
    } else {
        rc = push(machine, datum_number(machine->call.pool, holds));
    }
    datum_release(machine->call.pool, left);
    datum_release(machine->call.pool, right);
    return rc;
}

static int run_negate(struct machine *machine)
{
    double number;
    struct datum *top = pop(machine);
    int rc = want_number(machine, top, &number);
    if (rc == 0)
        rc = push(machine, datum_number(machine->call.pool, -number));
    datum_release(machine->call.pool, top);
    return rc;
}

static int run_call(struct machine *machine, const struct expression_step *step)
{
    const struct expression_entry *entry = expression_at(step->at);
    struct datum *result = NULL;
    assert(machine->n >= step->n && entry->function);
    struct datum **args = machine->stack + machine->n - step->n;
    machine->call.name = entry->name;
    int rc = entry->function(&machine->call, args, step->n, &result);
    for (uint32_t i = 0; i < step->n; i++)
        datum_release(machine->call.pool, pop(machine));
    assert((rc == 0) == (result != NULL));
    if (rc == 0)
        machine->stack[machine->n++] = result;
    return rc;
}

/* One step; *next is the one behind it, and what it jumps to afterwards. */
static int run_step(struct machine *machine, const struct expression_step *step, uint32_t *next)
{
    const struct expression *program = machine->program;
    struct datum_pool *pool = machine->call.pool;
    switch ((enum expression_code)step->code) {
    case CODE_NUMBER:
        return push(machine, datum_number(pool, program->numbers[step->at]));
    case CODE_STRING:
        return push(machine, datum_string(pool, program->text + program->strings[step->at].from,
                                          program->strings[step->at].bytes));
    case CODE_NULL:
        return push(machine, datum_null(pool));
    case CODE_NAME:
    case CODE_NAME_ANY:
        return push_name(machine, step);
    case CODE_ADD:
    case CODE_SUBTRACT:
    case CODE_MULTIPLY:
    case CODE_DIVIDE:
    case CODE_MODULO:
    case CODE_POWER:
        return run_arithmetic(machine, step->code);
    case CODE_EQUAL:
    case CODE_UNEQUAL:
    case CODE_LESS:
    case CODE_AT_MOST:
    case CODE_GREATER:
    case CODE_AT_LEAST:
        return run_comparison(machine, step->code);
    case CODE_NEGATE:
        return run_negate(machine);
    case CODE_NOT:
        return push(machine, datum_number(pool, !pop_truth(machine)));
    case CODE_TRUTH:
        return push(machine, datum_number(pool, pop_truth(machine)));
    case CODE_AND:
    case CODE_OR:
        if (pop_truth(machine) != (step->code == CODE_OR))
            return 0;
        *next = step->at;
        return push(machine, datum_number(pool, step->code == CODE_OR));
    case CODE_JUMP:
        *next = step->at;
        return 0;
    case CODE_JUMP_FALSE:
        if (!pop_truth(machine))
            *next = step->at;
        return 0;
    case CODE_CALL:
        return run_call(machine, step);
    }
    return error_set(machine->call.err, QUIRE_EINTERNAL, "an expression has a step of kind %u", step->code);
}

int expression_evaluate(const struct expression *expression, const struct expression_row *row, struct datum_pool *pool,
                        struct datum **out, struct quire_error *err)
{
    struct machine machine;
    machine.program = expression;
    machine.call = (struct expression_call){.row = row, .pool = pool, .err = err};
    machine.n = 0;
    int rc = 0;
    for (uint32_t at = 0; rc == 0 && at < expression->n_steps;) {
        uint32_t next = at + 1;
        rc = run_step(&machine, &expression->steps[at], &next);
        assert(next > at);
        at = next;
    }
    assert(rc || machine.n == 1);
    if (rc == 0)
        *out = pop(&machine);
    while (machine.n > 0)
        datum_release(pool, pop(&machine));
    return rc;
}
