/* Dependence of the results on the arguments. An argument is reported as ignored if no result depends on it in many cases; in one
 * case it may have no influence. Tested are arguments with another accepted value: a number, a flag, a string, a list, or None
 * for an optional tensor. Also tested are the elements of a tensor: all together, and those after the first where results depend
 * on the first.
 *
 * Only an optional tensor, a real number, and elements after the first are failures: any other argument may be a hint, and of a
 * required tensor an operator may need only the sizes. Not tested are arguments that the contract itself reads. Of those that it
 * calls unused the opposite is tested. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    ENOUGH = 24, /* cases without influence of an argument, after which it is reported */
    MAX_ELEMENTS = 1 << 13,
};

enum replaced { NOTHING, ALL, ALL_BUT_FIRST };

/* Calls the kernel, with other elements of a tensor, and takes its results. False: it refused the call. */
static bool take(const check_job *job, const check_case *c, enum replaced what, size_t tensor, check_outs *to)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .poison = 0xa5, .but_first = what == ALL_BUT_FIRST };
    if (what != NOTHING)
        call.replaced = 1 + tensor;
    check_call_run(&call, c);
    if (call.status)
        return false;
    check_outs_take(to, job->op, c, call.results, check_call_tensors());
    return !to->incomplete;
}

/* True if the results are others than `found`, or the call is refused. */
static bool changes(const check_job *job, const check_case *c, enum replaced what, size_t tensor, const check_outs *found)
{
    static check_outs other;
    char words[300];
    return !take(job, c, what, tensor, &other) || check_outs_differ(job->op, found, &other, words, sizeof words);
}

/* True if the case has tensors, and no tensor is empty or larger than MAX_ELEMENTS. */
static bool is_small(const check_case *c)
{
    bool is = c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        is &= !c->tensors[i].present || (check_numel(&c->tensors[i]) && check_numel(&c->tensors[i]) <= MAX_ELEMENTS);
    return is;
}

/* True if a tensor is filled with special values, as NaN, which may hide a dependence. */
static bool is_special(const check_case *c)
{
    bool is = false;
    for (size_t i = 0; i < c->ntensors; i++)
        is |= c->tensors[i].present && (c->tensors[i].fill == CHECK_SPECIAL || c->tensors[i].fill >= CHECK_SIGNALLING);
    return is;
}

/* True if an argument of this type is neither a tensor nor an object of the host. */
static bool is_value(uint32_t type)
{
    return type != DV_FIELD_TENSOR && type != DV_FIELD_TENSORS && type != DV_FIELD_DEVICE && type != DV_FIELD_GENERATOR;
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
    return is_value(s->type) && !op->literals[slot].read && c->args[slot].type != DV_VALUE_NONE;
}

/* Reports an argument that has been the same in ENOUGH cases: as a failure, or as a remark if it may be a hint, or a threshold
 * that decides few results. */
static void report(check_job *job, size_t slot, const check_outs *found)
{
    const dv_slot_info *s = &job->op->slots[slot];
    bool real = false;
    for (size_t k = 0; k < found->n; k++)
        real |= check_is_float(found->of[k].t.dtype);
    const bool optional = s->type == DV_FIELD_TENSOR && s->flags & DV_SLOT_OPTIONAL;
    if (!optional && (s->type != DV_FIELD_FLOAT || !real)) {
        char *const list = job->result->ignored;
        const size_t n = strlen(list);
        snprintf(list + n, sizeof job->result->ignored - n, "%s%s", n ? ", " : "", s->name);
        return;
    }
    check_fail(job, "ignored argument",
        "no result depends on argument '%s': in %d cases it is the same with %s; if that is intended, declare unused(%s)",
        s->name, ENOUGH, s->type == DV_FIELD_TENSOR ? "None" : "another value", s->name);
}

/* True if the elements of the argument, a tensor that the kernel only reads, can be replaced by others. */
static bool has_replaceable(const check_op *op, const check_case *c, size_t slot)
{
    const check_tensor *t = &c->tensors[c->args[slot].first];
    return op->slots[slot].type == DV_FIELD_TENSOR && !(op->slots[slot].flags & DV_SLOT_WRITES) && !op->sorted[slot] &&
        t->present && check_can_replace(t);
}

void check_unused(check_job *job, const check_case *c)
{
    static check_outs found, other;
    static check_case changed;
    char words[300], ignored[300];
    const check_op *op = job->op;
    for (size_t i = 0; i < c->nargs && !op->random && is_small(c) && job->result->outcome == CHECK_PASS; i++)
        for (int elements = 0; elements < 2 && op->unused[i] && job->result->outcome == CHECK_PASS; elements++)
            if ((elements ? has_replaceable(op, c, i) : change(job, c, i, job->result->cases, &changed)) &&
                take(job, c, NOTHING, 0, &found) &&
                take(job, elements ? c : &changed, elements ? ALL : NOTHING, c->args[i].first, &other) &&
                check_outs_differ(op, &found, &other, words, sizeof words) && take(job, c, NOTHING, 0, &other) &&
                !check_outs_differ(op, &found, &other, ignored, sizeof ignored)) {
                job->how = (check_how){ .show = CHECK_SHOW_NOTHING };
                check_fail(job, "unused argument", "the contract says unused(%s), and with another '%s' %s", op->slots[i].name,
                    op->slots[i].name, words);
            }
}

void check_dependence(check_job *job, const check_case *c)
{
    static uint32_t same[CHECK_ARGS], same_rest[CHECK_ARGS], first_matters[CHECK_ARGS];
    static bool matters[CHECK_ARGS], rest_matters[CHECK_ARGS];
    static check_outs found;
    static check_case changed;
    const bool special = is_special(c);
    if (!job->result->cases || job->op->random || !is_small(c) || !take(job, c, NOTHING, 0, &found) || !found.size)
        return;
    for (size_t i = 0; i < c->nargs && job->result->outcome == CHECK_PASS; i++) {
        const dv_slot_info *s = &job->op->slots[i];
        if (job->op->unused[i])
            continue;
        const bool asked = is_asked(job->op, c, i), elements = !asked && has_replaceable(job->op, c, i);
        if (!matters[i] && (elements || (asked && change(job, c, i, job->result->cases, &changed)))) {
            matters[i] = changes(job, elements ? c : &changed, elements ? ALL : NOTHING, c->args[i].first, &found);
            same[i] += !special;
            if (!matters[i] && !special && same[i] == ENOUGH)
                report(job, i, &found);
        }
        const check_tensor *t = s->type == DV_FIELD_TENSOR ? &c->tensors[c->args[i].first] : NULL;
        if (t && !special && !rest_matters[i] && t->present && check_is_float(t->dtype) && check_numel(t) > 2 &&
            t->layout != CHECK_EXPANDED && !(s->flags & DV_SLOT_WRITES) && job->result->outcome == CHECK_PASS) {
            rest_matters[i] = changes(job, c, ALL_BUT_FIRST, c->args[i].first, &found);
            same_rest[i]++;
            first_matters[i] += !rest_matters[i] && changes(job, c, ALL, c->args[i].first, &found);
            if (!rest_matters[i] && same_rest[i] >= ENOUGH && first_matters[i] > same_rest[i] / 2)
                check_fail(job, "ignored elements",
                    "no result depends on an element of argument '%s' but the first: in %d cases it is the same with other "
                    "elements; if that is intended, declare unused(%s)",
                    s->name, ENOUGH, s->name);
        }
    }
}
