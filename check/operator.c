/* The declaration of an operator, read from its JSON: its rows, and what its contract's program does with arguments and names. */
#include <math.h>
#include <string.h>
#include <stdlib.h>

#include "check.h"

/* ---- The operator ---- */

static int read_rows(check_op *op)
{
    const check_json *kernels = check_json_get(op->json, "kernels");
    op->rows = calloc(check_json_size(kernels) + 1, sizeof *op->rows);
    if (!op->rows)
        return -1;
    int32_t index = 0;
    for (const check_json *k = kernels ? kernels->child : NULL; k; k = k->next) {
        const char *key = check_json_text(k, "key");
        if (!key || strcmp(key, "CPU")) {
            if (key && strcmp(key, "Meta"))
                op->device = check_json_text(k, "device");
            continue;
        }
        const check_json *split = check_json_get(k, "split");
        op->rows[op->nrows++] = (check_row){ .name = check_json_text(k, "name"),
            .provider = check_json_text(k, "provider"),
            .dtypes = check_json_text(k, "dtypes"),
            .isa = check_json_text(k, "isa"),
            .when = check_json_text(k, "when"),
            .takes = check_json_text(k, "takes"),
            .index = ++index,
            .available = check_json_true(k, "isa_available"),
            .reference = check_json_true(k, "reference"),
            .split = split ? split->i : 0 };
    }
    const check_json *native = check_json_get(op->json, "native");
    if (!op->nrows && native && native->kind == CHECK_OBJECT)
        op->rows[op->nrows++] = (check_row){ .name = "native form", .index = -1, .available = true };
    bool views = op->nresults;
    for (size_t r = op->nargs; r < op->nargs + op->nresults; r++)
        views &= op->slots[r].alias >= 0 && !(op->slots[op->slots[r].alias].flags & DV_SLOT_WRITES);
    if (!op->nrows && op->contract && views)
        op->rows[op->nrows++] = (check_row){ .name = "contract", .index = 0, .available = true }; /* which makes them */
    return 0;
}

static bool has_tag(const check_op *op, const char *tag)
{
    const check_json *tags = check_json_get(op->json, "tags");
    for (const check_json *t = tags ? tags->child : NULL; t; t = t->next)
        if (t->text && !strcmp(t->text, tag))
            return true;
    return false;
}

static bool is_step(const check_json *step, const char *name)
{
    const char *op = check_json_text(step, "op");
    return op && !strcmp(op, name);
}

static bool is_register(const check_json *operand, int64_t i) { return operand->kind == CHECK_INT && operand->i == i; }

/* The literals that steps compare a register with. */
static void read_literals(const check_json *steps, int64_t i, check_literals *to)
{
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next) {
        const check_json *in = check_json_get(s, "in"), *a = in ? in->child : NULL, *b = a ? a->next : NULL;
        const bool equal = is_step(s, "eq") || is_step(s, "ne"),
                   order = is_step(s, "lt") || is_step(s, "le") || is_step(s, "gt") || is_step(s, "ge");
        if (!b || (!equal && !order) || is_register(a, i) == is_register(b, i))
            continue;
        const check_json *other = is_register(a, i) ? b : a;
        if ((check_json_is(other, "int") || check_json_is(other, "number")) && to->nbounds < CHECK_BOUNDS)
            to->bounds[to->nbounds++] = other->child->next->f;
        if (!equal)
            continue;
        if ((check_json_is(other, "str") || check_json_is(other, "int")) && to->n < CHECK_LITERALS)
            to->of[to->n++] = other->child->next;
    }
}

/* True if a step takes the register for the number of a dim. */
static bool is_axis(const check_json *steps, int64_t at)
{
    bool is = false;
    for (const check_json *s = steps->child; s; s = s->next) {
        const check_json *in = check_json_get(s, "in");
        is |= (is_step(s, "axis") || is_step(s, "is_axis")) && in && in->child && is_register(in->child, at);
    }
    return is;
}

/* Sets op->sorted for the tensor argument of a step that compares each element with the one before, as sorted(x) does. */
static void read_sorted(check_op *op, const check_json *steps, const check_json *step)
{
    const check_json *in = check_json_get(step, "in"), *x = in ? in->child : NULL;
    for (const check_json *s = steps->child; s && x && check_json_get(step, "before"); s = s->next) {
        const check_json *slot = check_json_get(s, "slot"), *to = check_json_get(s, "to");
        if (is_step(s, "tensor") && slot && to && is_register(x, to->i) && slot->i >= 0 && slot->i < CHECK_ARGS)
            op->sorted[slot->i] = true;
    }
}

static void read_steps(check_op *op, const check_json *steps, bool of_result)
{
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next) {
        const check_json *slot = check_json_get(s, "slot"), *to = check_json_get(s, "to");
        op->looks_inside |= is_step(s, "each_value");
        read_sorted(op, steps, s);
        if (!is_step(s, "argument") || !slot || slot->i < 0 || slot->i >= CHECK_ARGS)
            continue;
        op->literals[slot->i].read = true;
        op->literals[slot->i].sizes |= of_result;
        op->literals[slot->i].axis |= is_axis(steps, to->i);
        read_literals(steps, to->i, &op->literals[slot->i]);
    }
}

static void add_bounds(check_op *op, int64_t at, double by, double less)
{
    check_literals found = { 0 };
    read_literals(check_json_get(op->program, "solve"), at, &found);
    for (size_t k = 0; k < found.nbounds; k++) {
        const double bound = (found.bounds[k] - less) / by;
        if (bound > 0 && bound < INT32_MAX)
            check_add_special(op, (int64_t)bound);
    }
}

static double literal(const check_json *operand) { return check_json_is(operand, "int") ? operand->child->next->f : NAN; }

/* The sizes at which multiples, products and sums of sizes reach what they are compared with: the others are 1, or equal. */
static void read_bounds_of(check_op *op, const check_json *step)
{
    const check_json *in = check_json_get(step, "in"), *a = in ? in->child : NULL, *b = a ? a->next : NULL,
                     *to = check_json_get(step, "to");
    if (!to || !b || (!is_step(step, "mul") && !is_step(step, "add")))
        return;
    const bool product = is_step(step, "mul");
    const double number = isnan(literal(a)) ? literal(b) : literal(a);
    if (!isnan(number)) {
        add_bounds(op, to->i, product && number > 0 ? number : 1, product ? 0 : number);
        return;
    }
    add_bounds(op, to->i, 1, product ? 0 : 1);
    if (!product)
        add_bounds(op, to->i, 2, 0);
}

/* The numbers that sizes are compared with. */
static void read_size_bounds(check_op *op)
{
    const check_json *variables = check_json_get(op->program, "variables"), *solve = check_json_get(op->program, "solve");
    for (const check_json *v = variables ? variables->child : NULL; v; v = v->next) {
        const check_json *at = check_json_get(v, "register");
        const char *kind = check_json_text(v, "kind");
        if (at && kind && !strcmp(kind, "dim"))
            add_bounds(op, at->i, 1, 0);
    }
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next)
        read_bounds_of(op, s);
}

/* Does a step use one of these registers, itself or in the steps that it repeats? */
static bool uses(const check_json *step, const bool *registers, size_t n)
{
    const check_json *in = check_json_get(step, "in"), *steps = check_json_get(step, "steps");
    for (const check_json *x = in ? in->child : NULL; x; x = x->next)
        if (x->kind == CHECK_INT && (size_t)x->i < n && registers[x->i])
            return true;
    for (const check_json *s = steps ? steps->child : NULL; s; s = s->next)
        if (uses(s, registers, n))
            return true;
    return false;
}

bool check_name_decides(const check_op *op, const check_name *name)
{
    enum { MOST = 4096 };
    bool on[MOST] = { false }; /* registers that depend on it */
    const check_json *solve = check_json_get(op->program, "solve");
    on[name->index] = true;
    for (const check_json *s = solve ? solve->child : NULL; s; s = s->next) {
        const check_json *to = check_json_get(s, "to");
        if (!uses(s, on, MOST) || is_step(s, "rank")) /* a part has the same rank */
            continue;
        if (is_step(s, "each_value") || is_step(s, "unbacked"))
            return true;
        for (size_t k = 0; k < op->nnames && to; k++)
            if (op->names[k].index == to->i && to->i != name->index)
                return true;
        if (to && (size_t)to->i < MOST)
            on[to->i] = true;
    }
    return false;
}

static bool is_unbacked(const check_op *op, const char *name)
{
    const check_json *unbacked = check_json_get(op->contract, "unbacked");
    for (const check_json *u = unbacked ? unbacked->child : NULL; u; u = u->next)
        if (!strcmp(u->text, name))
            return true;
    return false;
}

static void read_names(check_op *op)
{
    static const char *const kinds[] = { "dim", "run", "dtype" };
    uint32_t n[3] = { 0 };
    const check_json *variables = check_json_get(op->program, "variables");
    for (const check_json *v = variables ? variables->child : NULL; v; v = v->next) {
        if (is_unbacked(op, check_json_text(v, "name"))) /* the kernel's choice */
            continue;
        for (uint32_t kind = 0; kind < 3; kind++)
            if (!strcmp(check_json_text(v, "kind"), kinds[kind]))
                op->names[op->nnames++] = (check_name){ .text = check_json_text(v, "name"),
                    .kind = (enum check_name_kind)kind,
                    .index = (uint32_t)check_json_get(v, "register")->i,
                    .at = n[kind]++ };
    }
}

static void read_unused(check_op *op)
{
    const check_json *unused = check_json_get(op->contract, "unused");
    for (const check_json *u = unused ? unused->child : NULL; u; u = u->next)
        for (size_t i = 0; i < op->nargs; i++)
            op->unused[i] |= !strcmp(u->text, op->slots[i].name);
}

static double number_or(const check_json *object, const char *key, double otherwise)
{
    const check_json *j = check_json_get(object, key);
    return j && j->kind != CHECK_NULL ? j->f : otherwise;
}

int check_op_init(check_op *op, dv_operator *o)
{
    char *text;
    memset(op, 0, sizeof *op);
    op->op = o;
    op->name = dv_operator_name(o);
    op->nargs = dv_operator_nargs(o);
    op->nresults = dv_operator_nresults(o);
    if (op->nargs > CHECK_ARGS || op->nresults > CHECK_RESULTS)
        op->too_large = "it has more arguments or results than the checker handles";
    for (size_t i = 0; !op->too_large && i < op->nargs + op->nresults; i++)
        if (dv_operator_slot(o, i, &op->slots[i]))
            return -1;
    if (dv_operator_json(o, &text))
        return -1;
    op->json = check_json_parse(text);
    dv_free(text);
    if (!op->json)
        return dv_fail(DV_EINVAL, "%s: its JSON cannot be read", op->name), -1;
    const check_json *contract = check_json_get(op->json, "contract");
    op->contract = contract && contract->kind == CHECK_OBJECT ? contract : NULL;
    const bool never = has_tag(op, "nondeterministic_bitwise");
    op->seeded = has_tag(op, "nondeterministic_seeded") && !never;
    op->random = op->seeded || never;
    op->shape_function = check_json_true(op->json, "shape_function");
    op->program = check_json_get(op->contract, "program");
    op->rtol = number_or(op->contract, "rtol", -1);
    op->atol = number_or(op->contract, "atol", -1);
    op->rounded = number_or(op->contract, "rounded", 0);
    read_names(op);
    read_unused(op);
    read_steps(op, check_json_get(op->program, "solve"), false);
    read_size_bounds(op);
    op->nbounds = op->nspecial;
    const check_json *results = check_json_get(op->program, "results");
    for (const check_json *r = results ? results->child : NULL; r; r = r->next)
        read_steps(op, check_json_get(r, "steps"), true);
    return read_rows(op);
}

size_t check_op_slot(const check_op *op, const char *name)
{
    for (size_t i = 0; i < op->nargs; i++)
        if (!strcmp(op->slots[i].name, name))
            return i;
    return SIZE_MAX;
}

const check_name *check_op_name(const check_op *op, enum check_name_kind kind, const char *text)
{
    for (size_t k = 0; k < op->nnames; k++)
        if (op->names[k].kind == kind && !strcmp(op->names[k].text, text))
            return &op->names[k];
    return NULL;
}

int64_t *check_name_size(const check_name *name, check_case *c)
{
    return name->kind == CHECK_NAME_RUN ? c->names.runs[name->at].d
        : name->kind == CHECK_NAME_DIM  ? &c->names.dims[name->at]
                                        : NULL;
}
