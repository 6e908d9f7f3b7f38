/* Which arguments the results depend on. An argument that a caller gives, and that no result depends on in any case, is ignored:
 * an optional tensor beside None, a number, a flag or a word beside another one that the contract accepts. So are all elements of
 * a tensor but the first. It is told after many cases only: in one case an argument may have no influence.
 *
 * Not asked are tensors that must be given, of which an operator may need the sizes alone, and what the contract reads itself. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    ENOUGH = 24, /* cases in which an argument has no influence, until that is told */
    MAX_ELEMENTS = 1 << 13,
};

static bool take(const check_job *job, const check_case *c, bool rest_moved, size_t tensor, check_outs *to)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5 };
    if (rest_moved)
        call.rest_moved = 1 + tensor;
    check_call_run(&call, c);
    if (call.status)
        return false;
    check_outs_take(to, job->op, c, call.results, check_call_tensors());
    return !to->incomplete;
}

/* True if the case has results, and none of its tensors is empty, large, or special. */
static bool is_telling(const check_case *c)
{
    bool is = c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        is &= !t->present ||
            (check_numel(t) && check_numel(t) <= MAX_ELEMENTS && t->fill != CHECK_SPECIAL && t->fill < CHECK_SIGNALLING);
    }
    return is;
}

static bool is_number(uint32_t type)
{
    return type == DV_FIELD_INT || type == DV_FIELD_FLOAT || type == DV_FIELD_BOOL || type == DV_FIELD_STRING;
}

/* Gives an argument another value: that which it has in another case of the plan, or None; false: there is none that the contract
 * accepts. turn: which of the other values. */
static bool change(const check_job *job, const check_case *c, size_t slot, uint32_t turn, check_case *out)
{
    const check_plan *plan = job->plan;
    *out = *c;
    if (job->op->slots[slot].type == DV_FIELD_TENSOR) {
        out->tensors[c->args[slot].first].present = false;
        return check_accepts(job->op, out);
    }
    for (uint32_t k = 0; plan && k < plan->n; k++) {
        const check_value *v = &plan->cases[(k + turn) % plan->n].args[slot];
        const bool huge = v->type == DV_VALUE_INT && (v->as.i > INT16_MAX || v->as.i < INT16_MIN);
        if (v->type == DV_VALUE_DEFAULT || v->type == DV_VALUE_NONE || huge || !memcmp(v, &c->args[slot], sizeof *v))
            continue;
        out->args[slot] = *v;
        return check_accepts(job->op, out);
    }
    return false;
}

static bool is_asked(const check_op *op, const check_case *c, size_t slot)
{
    const dv_slot_info *s = &op->slots[slot];
    if (s->type == DV_FIELD_TENSOR)
        return s->flags & DV_SLOT_OPTIONAL && c->tensors[c->args[slot].first].present && !(s->flags & DV_SLOT_WRITES);
    return is_number(s->type) && !op->literals[slot].read && c->args[slot].type != DV_VALUE_NONE;
}

void check_dependence(check_job *job, const check_case *c)
{
    static uint32_t same[CHECK_ARGS], same_rest[CHECK_ARGS];
    static bool matters[CHECK_ARGS], rest_matters[CHECK_ARGS];
    static check_outs found, other;
    static check_case changed;
    char words[300];
    bool any = false;
    if (!job->result->cases || job->op->random || !is_telling(c) || !take(job, c, false, 0, &found) || !found.size)
        return;
    for (size_t i = 0; i < c->nargs && job->result->outcome == CHECK_PASS; i++) {
        const dv_slot_info *s = &job->op->slots[i];
        if (!matters[i] && is_asked(job->op, c, i) && change(job, c, i, job->result->cases, &changed)) {
            const bool refused = !take(job, &changed, false, 0, &other);
            matters[i] = refused || check_outs_differ(job->op, &found, &other, words, sizeof words);
            any = ++same[i] == ENOUGH && !matters[i];
            if (any)
                check_fail(job, "ignored argument", "no result depends on argument '%s': in %d cases it is the same with %s",
                    s->name, ENOUGH, s->type == DV_FIELD_TENSOR ? "None" : "another value");
        }
        const check_tensor *t = s->type == DV_FIELD_TENSOR ? &c->tensors[c->args[i].first] : NULL;
        if (t && !rest_matters[i] && t->present && check_is_float(t->dtype) && check_numel(t) > 2 && !any &&
            t->layout != CHECK_EXPANDED && !(s->flags & DV_SLOT_WRITES) && job->result->outcome == CHECK_PASS) {
            const bool refused = !take(job, c, true, c->args[i].first, &other);
            rest_matters[i] = refused || check_outs_differ(job->op, &found, &other, words, sizeof words);
            if (++same_rest[i] == ENOUGH && !rest_matters[i])
                check_fail(job, "ignored elements",
                    "no result depends on an element of argument '%s' but the first: in %d cases it is the same with other "
                    "elements",
                    s->name, ENOUGH);
        }
    }
}
