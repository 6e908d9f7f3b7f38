/* Dependence of the results on the arguments. An argument is reported as ignored if no result depends on it in many cases; in one
 * case it may have no influence. Tested are arguments with another accepted value: a number, a flag, a string, or None for an
 * optional tensor. Also tested are a tensor's elements after the first, all together.
 *
 * Not tested are required tensors, since an operator may need only their sizes, arguments that the contract itself reads, and
 * those that it calls unused. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    ENOUGH = 24, /* cases without influence of an argument, after which it is reported */
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

/* True if the case has tensors, and no tensor is empty, larger than MAX_ELEMENTS, or filled with special values. */
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

/* Copies a case to `out` with another value of an argument: None for a tensor, else a value from another case of the plan. turn:
 * the case of the plan at which the search begins. False: no other value is found, or the contract refuses it. */
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
        if (job->op->unused[i])
            continue;
        if (!matters[i] && is_asked(job->op, c, i) && change(job, c, i, job->result->cases, &changed)) {
            const bool refused = !take(job, &changed, false, 0, &other);
            matters[i] = refused || check_outs_differ(job->op, &found, &other, words, sizeof words);
            any = ++same[i] == ENOUGH && !matters[i];
            if (any)
                check_fail(job, "ignored argument",
                    "no result depends on argument '%s': in %d cases it is the same with %s; "
                    "if that is right, declare unused(%s)",
                    s->name, ENOUGH, s->type == DV_FIELD_TENSOR ? "None" : "another value", s->name);
        }
        const check_tensor *t = s->type == DV_FIELD_TENSOR ? &c->tensors[c->args[i].first] : NULL;
        if (t && !rest_matters[i] && t->present && check_is_float(t->dtype) && check_numel(t) > 2 && !any &&
            t->layout != CHECK_EXPANDED && !(s->flags & DV_SLOT_WRITES) && job->result->outcome == CHECK_PASS) {
            const bool refused = !take(job, c, true, c->args[i].first, &other);
            rest_matters[i] = refused || check_outs_differ(job->op, &found, &other, words, sizeof words);
            if (++same_rest[i] == ENOUGH && !rest_matters[i])
                check_fail(job, "ignored elements",
                    "no result depends on an element of argument '%s' but the first: in %d cases it is the same with other "
                    "elements; if that is right, declare unused(%s)",
                    s->name, ENOUGH, s->name);
        }
    }
}
