/*
 * filter_sums.c - comparisons of sums (.r + .c > 9990, .price - .paid <= 10): whether numbers within bounds can make
 * one true.
 *
 * A sum that is rounded does not fall when one of its terms rises, so that its least and its most are those of the
 * least and the most of its terms, to the last bit. Nothing that matches is left out. Where a field stood twice its two
 * places would be bounded apart; that is right as well, but whoever looks for the bound of one field wants the answer
 * to change once along its values.
 */
#include "index/attribute/filter_priv.h"
#include <assert.h>
#include <math.h>

static bool is_term(const struct filter *filter, const struct filter_node *node, uint64_t *seen)
{
    if (node->op == OP_CONSTANT) {
        const struct json_value *value = &filter->constants[node->operand].json;
        return (value->kind == VALUE_NUMBER || value->kind == VALUE_BOOL) && fabs(value->number) <= FILTER_SUM_MAX;
    }
    if (node->op != OP_FIELD || (*seen >> node->operand & 1))
        return false;
    *seen |= 1ull << node->operand;
    return true;
}

bool filter_compares_sums(const struct filter *filter, const struct filter_part *part)
{
    uint64_t seen = 0;
    enum filter_op compare = (enum filter_op)filter->nodes[part->end - 1].op;
    if (compare < OP_GREATER || compare > OP_LESS_EQUAL)
        return false;
    for (uint32_t i = part->first; i + 1 < part->end; i++) {
        const struct filter_node *node = &filter->nodes[i];
        if (node->op != OP_ADD && node->op != OP_SUBTRACT && !is_term(filter, node, &seen))
            return false;
    }
    return true;
}

struct bounds {
    double low, high;
};

bool filter_sums_may_match(const struct filter *filter, const struct filter_part *part, const double *low,
                           const double *high)
{
    struct bounds stack[FILTER_DEPTH_MAX];
    uint32_t n = 0;
    for (uint32_t i = part->first; i + 1 < part->end; i++) {
        const struct filter_node *node = &filter->nodes[i];
        assert(n < FILTER_DEPTH_MAX);
        if (node->op == OP_CONSTANT) {
            double number = filter_number(&filter->constants[node->operand].json);
            stack[n++] = (struct bounds){number, number};
        } else if (node->op == OP_FIELD) {
            stack[n++] = (struct bounds){low[node->operand], high[node->operand]};
        } else {
            assert(n >= 2 && (node->op == OP_ADD || node->op == OP_SUBTRACT));
            struct bounds *a = &stack[n - 2], b = stack[n - 1];
            a->low += node->op == OP_ADD ? b.low : -b.high;
            a->high += node->op == OP_ADD ? b.high : -b.low;
            n--;
        }
    }
    assert(n == 2);
    switch ((enum filter_op)filter->nodes[part->end - 1].op) {
    case OP_GREATER:
        return stack[0].high > stack[1].low;
    case OP_GREATER_EQUAL:
        return stack[0].high >= stack[1].low;
    case OP_LESS:
        return stack[0].low < stack[1].high;
    default:
        assert(filter->nodes[part->end - 1].op == OP_LESS_EQUAL);
        return stack[0].low <= stack[1].high;
    }
}
