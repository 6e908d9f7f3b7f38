/* Finds the meaning of names in trees, and the type of each node. A name must exist; contract_resolve.c makes the variables. */
#include "lang/contract_internal.h"

#include "base/near.h"

/* The context in which a tree is resolved. Predicates of rows have a separate text. */
struct resolver {
    const dv__contract *c;
    const char *text;
    bool values;             /* x.values is allowed: in constraints only, since only check mode reads elements */
    const dv__pattern *list; /* the list that is returned whose pattern this is: its index is the place in it; or NULL */
};

static int resolve(const struct resolver *r, dv__expr *e);

/* ---- Finding ------------------------------------------------------------------------------------------------------------- */

int dv__find_dim(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndims; i++)
        if (!strcmp(c->dims[i].name, name))
            return (int)i;
    return -1;
}

int dv__find_run(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->nruns; i++)
        if (!strcmp(c->runs[i].name, name))
            return (int)i;
    return -1;
}

int dv__find_dtype_var(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (!strcmp(c->dtypes[i].name, name))
            return (int)i;
    return -1;
}

enum dv__ctype dv__type_of_argument(const dv__type *t)
{
    if (t->kind == DV__TYPE_OPTIONAL)
        return dv__type_of_argument(t->elems[0]);
    switch (t->kind) {
    case DV__TYPE_TENSOR: return DV__CTYPE_TENSOR;
    case DV__TYPE_INT:
    case DV__TYPE_SYMINT: return DV__CTYPE_INT;
    case DV__TYPE_FLOAT:
    case DV__TYPE_SYMFLOAT:
    case DV__TYPE_SCALAR: return DV__CTYPE_NUMBER;
    case DV__TYPE_BOOL:
    case DV__TYPE_SYMBOOL: return DV__CTYPE_BOOL;
    case DV__TYPE_STR: return DV__CTYPE_STRING;
    case DV__TYPE_SCALAR_TYPE: return DV__CTYPE_DTYPE;
    case DV__TYPE_LIST: {
        const enum dv__ctype element = dv__type_of_argument(t->elems[0]);
        return element == DV__CTYPE_TENSOR ? DV__CTYPE_TENSORS : element == DV__CTYPE_INT ? DV__CTYPE_INTS : DV__CTYPE_LIST;
    }
    default: return DV__CTYPE_OTHER;
    }
}

const char *dv__ctype_text(unsigned type)
{
    static const char *const texts[] = { "nothing", "an integer", "a number", "a boolean", "a string", "a dtype", "a run of dims",
        "a list of integers", "a list", "a tensor", "a list of tensors", "an argument that only present() can ask about" };
    return texts[type];
}

/* ---- Trees --------------------------------------------------------------------------------------------------------------- */

#define wrong(r, e, ...) dv__fail_at(DV_ECONTRACT, (r)->text, (e)->at, __VA_ARGS__)

static int expect(const struct resolver *r, const dv__expr *e, enum dv__ctype wanted)
{
    const bool number = wanted == DV__CTYPE_NUMBER && e->type == DV__CTYPE_INT;
    if (e->type == wanted || number)
        return DV_OK;
    return wrong(r, e, "expected %s, found %s", dv__ctype_text(wanted), dv__ctype_text(e->type));
}

static int resolve_as(const struct resolver *r, dv__expr *e, enum dv__ctype wanted)
{
    const int status = resolve(r, e);
    return status ? status : expect(r, e, wanted);
}

/* The list with pattern xs{i}[...] that a returned list is like or a view of. It alone says how many tensors are returned. */
static int source_of_any(const struct resolver *r)
{
    const int source = r->list->like >= 0 ? r->list->like : r->list->view_of;
    for (uint32_t i = 0; i < r->c->npatterns; i++)
        if (r->c->patterns[i].slot == source && r->c->patterns[i].kind == DV__PATTERN_LIST && r->c->patterns[i].dims.any)
            return source;
    return -1;
}

/* xs{i} in the pattern of a list that is returned: an argument with a tensor at each of its places. */
static int resolve_tensor_of(const struct resolver *r, dv__expr *e, int slot)
{
    const dv__contract *c = r->c;
    e->role = DV__ROLE_ARG;
    e->ref = slot;
    e->type = DV__CTYPE_TENSOR;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        if (t->slot != slot || t->presence == DV__ABSENT)
            continue;
        if (t->kind != DV__PATTERN_LIST || strcmp(t->index, e->index) != 0)
            return wrong(r, e, "'%s' is not a list with the index %s", e->name, e->index);
        if (t->may_be_empty && (!t->dims.any || source_of_any(r) != slot))
            return wrong(r, e, "'%s' may have no tensor at this place: '%s'", e->name, t->text);
    }
    return DV_OK;
}

/* n{i}, *s{i}, xs{i} in the pattern of a list that is returned: a list of arguments has bound it. */
static int resolve_of_each(const struct resolver *r, dv__expr *e)
{
    const bool run = e->kind == DV__EXPR_STAR;
    const char *star = run ? "*" : "";
    const int slot = dv__schema_arg(r->c->schema, e->name), ref = run ? dv__find_run(r->c, e->name) : dv__find_dim(r->c, e->name);
    const char *own = ref < 0 ? NULL : run ? r->c->runs[ref].index : r->c->dims[ref].index;
    if (!run && dv__find_dtype_var(r->c, e->name) >= 0)
        return wrong(r, e,
            "a dtype variable holds for all tensors of a list: expected %s, or no dtype here and dtype(xs{%s}) in the result",
            e->name, e->index);
    if (!r->list)
        return wrong(r, e,
            run ? "*%s{%s} is for the patterns of lists"
                : slot >= 0 ? "%s{%s} is for the patterns of lists that are returned"
                            : "%s{%s} is for the patterns of lists: expected total(%s)",
            e->name, e->index, e->name);
    if (strcmp(e->index, r->list->index) != 0)
        return wrong(r, e, "expected {%s}, the index of this list, found {%s}", r->list->index, e->index);
    const int alone = source_of_any(r);
    if (alone >= 0 && slot != alone)
        return wrong(r, e, "'%s' may have another number of tensors: nothing else with {%s} has a meaning here",
            r->c->schema->args[alone].name, e->index);
    if (!run && slot >= 0)
        return resolve_tensor_of(r, e, slot);
    if (!own)
        return wrong(r, e, "unknown %s%s{%s}: no list of the inputs has it", star, e->name, e->index);
    if (strcmp(own, e->index) != 0)
        return wrong(r, e, "%s%s{%s} belongs to the lists with index %s", star, e->name, own, own);
    e->role = run ? DV__ROLE_ELEMENT_RUN : DV__ROLE_ELEMENT;
    e->ref = ref;
    e->type = run ? DV__CTYPE_RUN : DV__CTYPE_INT;
    return DV_OK;
}

static int resolve_name(const struct resolver *r, dv__expr *e)
{
    const dv__contract *c = r->c;
    const int slot = dv__schema_arg(c->schema, e->name), dim = dv__find_dim(c, e->name), dtype = dv__find_dtype_var(c, e->name);
    uint32_t key;
    if (e->index)
        return resolve_of_each(r, e);
    if (r->list && !strcmp(e->name, r->list->index)) {
        e->role = DV__ROLE_INDEX;
        e->type = DV__CTYPE_INT;
    } else if (slot >= 0) {
        e->role = DV__ROLE_ARG;
        e->ref = slot;
        e->type = (uint8_t)dv__type_of_argument(c->schema->args[slot].type);
    } else if (dim >= 0) {
        e->role = DV__ROLE_DIM;
        e->ref = dim;
        e->type = DV__CTYPE_INT;
        if (c->dims[dim].index)
            return wrong(r, e, "'%s' is another size for each tensor of the list: expected total(%s)", e->name, e->name);
    } else if (dtype >= 0) {
        e->role = DV__ROLE_DTYPE_VAR;
        e->ref = dtype;
        e->type = DV__CTYPE_DTYPE;
    } else if (dv__dtype_lookup(e->name, &key)) {
        e->role = DV__ROLE_DTYPE;
        e->i = (int64_t)key;
        e->type = DV__CTYPE_DTYPE;
    } else if (dv__find_run(c, e->name) >= 0) {
        return wrong(r, e, "'%s' is a run of dims: expected *%s", e->name, e->name);
    } else {
        char hint[160];
        return wrong(r, e, "unknown name '%s': no input has such a size or dtype, and the schema no such argument%s", e->name,
            dv__dtype_hint(e->name, hint, sizeof hint));
    }
    return DV_OK;
}

static int resolve_star(const struct resolver *r, dv__expr *e)
{
    const int slot = dv__schema_arg(r->c->schema, e->name), run = dv__find_run(r->c, e->name);
    if (e->index)
        return resolve_of_each(r, e);
    e->type = DV__CTYPE_RUN;
    if (slot >= 0) {
        e->role = DV__ROLE_LIST;
        e->ref = slot;
        const enum dv__ctype type = dv__type_of_argument(r->c->schema->args[slot].type);
        return type == DV__CTYPE_INTS ? DV_OK
                                      : wrong(r, e, "'*%s' needs a list of integers, found %s", e->name, dv__ctype_text(type));
    }
    if (run >= 0 && r->c->runs[run].index)
        return wrong(r, e,
            "'*%s' is another run for each tensor of the list: only *%s{%s} in the pattern of a list has a meaning", e->name,
            e->name, r->c->runs[run].index);
    e->role = DV__ROLE_RUN;
    e->ref = run;
    return run >= 0 ? DV_OK : wrong(r, e, "unknown run '*%s': no input has it", e->name);
}

static const struct function {
    const char *name, *operands;
    enum dv__ctype result;
} functions[] = {
#define ROW(id, name, result, operands) { name, operands, DV__CTYPE_##result },
    DV__FUNCTIONS(ROW)
#undef ROW
};

static const char *operand_text(char letter)
{
    switch (letter) {
    case 'i': return "an integer";
    case 'n': return "a number";
    case 'b': return "a boolean";
    case 'd': return "a dtype";
    case 'D': return "a dtype, a tensor or a number argument";
    case 'r': return "a run of dims";
    case 't': return "a tensor argument";
    case 'R': return "a tensor argument or a run of dims";
    case 'L': return "a list";
    case 'I': return "an int[] argument";
    case 'x': return "an integer or an int[] argument";
    case 'o': return "an optional argument";
    default: return "a size written with {i}";
    }
}

static bool operand_fits(const struct resolver *r, char letter, const dv__expr *e)
{
    const bool argument = e->kind == DV__EXPR_NAME && e->role == DV__ROLE_ARG;
    switch (letter) {
    case 'i': return e->type == DV__CTYPE_INT;
    case 'n': return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_NUMBER;
    case 'b': return e->type == DV__CTYPE_BOOL;
    case 'd': return e->type == DV__CTYPE_DTYPE;
    case 'D':
        return e->type == DV__CTYPE_DTYPE || e->type == DV__CTYPE_TENSOR ||
            (argument && (e->type == DV__CTYPE_NUMBER || e->type == DV__CTYPE_INT || e->type == DV__CTYPE_BOOL));
    case 'r': return e->type == DV__CTYPE_RUN;
    case 't': return e->type == DV__CTYPE_TENSOR;
    case 'R': return e->type == DV__CTYPE_TENSOR || e->type == DV__CTYPE_TENSORS || e->type == DV__CTYPE_RUN;
    case 'L': return e->type == DV__CTYPE_TENSORS || e->type == DV__CTYPE_INTS || e->type == DV__CTYPE_LIST;
    case 'I': return e->type == DV__CTYPE_INTS;
    case 'x': return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_INTS;
    case 'o': return argument && r->c->schema->args[e->ref].type->kind == DV__TYPE_OPTIONAL;
    default: return true;
    }
}

/* total(n): the only place where a size of list elements is written without {i}. */
static int resolve_total(const struct resolver *r, dv__expr *e)
{
    dv__expr *name = e->args[0];
    const int dim = name->kind == DV__EXPR_NAME ? dv__find_dim(r->c, name->name) : -1;
    if (dim < 0 || !r->c->dims[dim].index)
        return wrong(r, name, "expected %s in total()", operand_text('e'));
    name->role = DV__ROLE_ELEMENT;
    name->ref = dim;
    name->type = DV__CTYPE_INT;
    return DV_OK;
}

static int resolve_if(const struct resolver *r, dv__expr *e)
{
    int status = resolve_as(r, e->args[0], DV__CTYPE_BOOL);
    if (!status)
        status = resolve(r, e->args[1]);
    if (!status)
        status = resolve(r, e->args[2]);
    if (status)
        return status;
    const unsigned a = e->args[1]->type, b = e->args[2]->type;
    if ((a != b && (a != DV__CTYPE_INT || b != DV__CTYPE_NUMBER) && (a != DV__CTYPE_NUMBER || b != DV__CTYPE_INT)) ||
        a >= DV__CTYPE_RUN)
        return wrong(r, e->args[2], "expected values of one type in if(), found %s and %s", dv__ctype_text(a), dv__ctype_text(b));
    e->type = (uint8_t)(a == b ? a : DV__CTYPE_NUMBER);
    return DV_OK;
}

bool dv__constant(const dv__expr *e, int64_t *out)
{
    int64_t a, b;
    *out = e->i;
    if (e->kind == DV__EXPR_INT)
        return true;
    if (e->kind == DV__EXPR_NEG)
        return dv__constant(e->args[0], &a) && !__builtin_sub_overflow(0, a, out);
    if (e->kind != DV__EXPR_ADD && e->kind != DV__EXPR_SUB && e->kind != DV__EXPR_MUL)
        return false;
    if (!dv__constant(e->args[0], &a) || !dv__constant(e->args[1], &b))
        return false;
    return e->kind == DV__EXPR_ADD ? !__builtin_add_overflow(a, b, out)
        : e->kind == DV__EXPR_SUB  ? !__builtin_sub_overflow(a, b, out)
                                   : !__builtin_mul_overflow(a, b, out);
}

/* No call could evaluate a division by the constant 0. */
static int check_divisor(const struct resolver *r, const dv__expr *e)
{
    int64_t value;
    return dv__constant(e, &value) && !value ? wrong(r, e, "division by zero") : DV_OK;
}

/* A fact that is misspelt looks like a function. */
static int unknown_function(const struct resolver *r, const dv__expr *e)
{
    static const char *const facts[] = { "parallel", "sum", "contiguous", "last_contiguous", "strided", "align", "unused" };
    dv__near near = { .wanted = e->name };
    dv__text all = { 0 };
    char hint[200];
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (!strcmp(e->name, facts[i]))
            return wrong(r, e, "'%s' is a fact of its own and no part of an expression; write ';' before it", e->name);
        dv__near_add(&near, facts[i]);
    }
    for (int i = 0; i < DV__FN_COUNT; i++) {
        dv__near_add(&near, functions[i].name);
        dv__text_add(&all, "%s%s", i ? ", " : "", functions[i].name);
    }
    const char *did_you_mean = dv__near_print(&near, hint, sizeof hint);
    const int status = *did_you_mean
        ? wrong(r, e, "unknown function or fact '%s'%s", e->name, did_you_mean)
        : wrong(r, e, "unknown function '%s': expected one of %s", e->name, all.data ? all.data : "?");
    dv__text_deinit(&all);
    return status;
}

/* Checks the constant dim of size(x, d) or stride(x, d) against the rank of the argument's pattern, if that is fixed. */
static int check_dim(const struct resolver *r, const dv__expr *e)
{
    const dv__expr *x = e->args[0], *d = e->args[1];
    const bool negative = d->kind == DV__EXPR_NEG && d->args[0]->kind == DV__EXPR_INT;
    const dv__pattern *pattern = NULL;
    if (x->type != DV__CTYPE_TENSOR || (d->kind != DV__EXPR_INT && !negative))
        return DV_OK;
    for (uint32_t i = 0; i < r->c->npatterns; i++) {
        const dv__pattern *t = &r->c->patterns[i];
        if (t->slot == x->ref && (t->when.group >= 0 || pattern))
            return DV_OK; /* several patterns, of which one holds */
        if (t->slot == x->ref)
            pattern = t;
    }
    if (!pattern || !pattern->dims.given || pattern->dims.any || pattern->dims.singles != pattern->dims.n)
        return DV_OK;
    const int64_t rank = pattern->dims.n, dim = negative ? -d->args[0]->i : d->i;
    if (dim < rank && dim >= -rank)
        return DV_OK;
    return wrong(r, d, "expected a dim of '%s', which has %lld, in %s(%s, %lld)", x->name, (long long)rank, e->name, x->name,
        (long long)dim);
}

static int resolve_call(const struct resolver *r, dv__expr *e)
{
    int fn = 0;
    while (fn < DV__FN_COUNT && strcmp(functions[fn].name, e->name) != 0)
        fn++;
    if (fn == DV__FN_COUNT)
        return unknown_function(r, e);
    const char *operands = functions[fn].operands;
    const size_t letters = strlen(operands);
    const bool many = operands[letters - 1] == '+';
    const uint32_t least = (uint32_t)(many ? letters - 1 : letters);
    if (e->n < least || (e->n > least && !many))
        return wrong(r, e, "expected %s%u operand%s of %s(), found %u%s", many ? "at least " : "", least, least == 1 ? "" : "s",
            e->name, e->n, e->n && e->args[0]->kind == DV__EXPR_IN ? ": the values after 'in' are separated by spaces" : "");
    e->ref = fn;
    e->type = (uint8_t)functions[fn].result;
    if (fn == DV__FN_SORTED && !r->values)
        return wrong(r, e, "the values of tensors can be used in constraints only");
    if (fn == DV__FN_TOTAL)
        return resolve_total(r, e);
    if (fn == DV__FN_IF)
        return resolve_if(r, e);
    for (uint32_t i = 0; i < e->n; i++) {
        const char letter = operands[i < least ? i : least - 1];
        const int status = resolve(r, e->args[i]);
        if (status)
            return status;
        if (operand_fits(r, letter, e->args[i]))
            continue;
        if (fn == DV__FN_DTYPE && e->args[i]->type == DV__CTYPE_DTYPE && e->args[i]->name)
            return wrong(r, e->args[i], "expected a tensor argument in dtype(), found a dtype: write '%s' in place of dtype(%s)",
                e->args[i]->name, e->args[i]->name);
        if (e->args[i]->type == DV__CTYPE_TENSORS && r->list)
            return wrong(r, e->args[i], "expected %s in %s(), found a list of tensors: %s{%s} is its tensor at the same place",
                operand_text(letter), e->name, e->args[i]->name, r->list->index);
        return wrong(
            r, e->args[i], "expected %s in %s(), found %s", operand_text(letter), e->name, dv__ctype_text(e->args[i]->type));
    }
    if (fn == DV__FN_SIZE || fn == DV__FN_STRIDE)
        return check_dim(r, e);
    return fn == DV__FN_CEILDIV ? check_divisor(r, e->args[1]) : DV_OK;
}

static int resolve_arithmetic(const struct resolver *r, dv__expr *e)
{
    e->type = DV__CTYPE_INT;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = resolve_as(r, e->args[i], DV__CTYPE_NUMBER);
        if (status)
            return status;
        if (e->args[i]->type == DV__CTYPE_NUMBER)
            e->type = DV__CTYPE_NUMBER;
    }
    if (e->type == DV__CTYPE_NUMBER && (e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return wrong(r, e, "'%s' is for integers", e->kind == DV__EXPR_MOD ? "%" : "//");
    if (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD)
        return check_divisor(r, e->args[1]);
    return DV_OK;
}

static bool is_number(const dv__expr *e) { return e->type == DV__CTYPE_INT || e->type == DV__CTYPE_NUMBER; }

static int resolve_comparison(const struct resolver *r, dv__expr *e)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = resolve(r, e->args[i]);
    if (status)
        return status;
    e->type = DV__CTYPE_BOOL;
    const bool ordered = e->kind == DV__EXPR_LT || e->kind == DV__EXPR_LE || e->kind == DV__EXPR_GT || e->kind == DV__EXPR_GE;
    const dv__expr *a = e->args[0];
    for (uint32_t i = 1; i < e->n; i++) {
        const dv__expr *b = e->args[i];
        if (is_number(a) && is_number(b))
            continue;
        if (ordered)
            return wrong(
                r, is_number(a) ? b : a, "expected a number, found %s", dv__ctype_text(is_number(a) ? b->type : a->type));
        if (a->type != b->type)
            return wrong(
                r, b, "expected %s, found %s: they can never be equal", dv__ctype_text(a->type), dv__ctype_text(b->type));
        if (a->type == DV__CTYPE_TENSOR || a->type == DV__CTYPE_TENSORS || a->type == DV__CTYPE_INTS ||
            a->type == DV__CTYPE_LIST || a->type == DV__CTYPE_OTHER)
            return wrong(r, b, "%s cannot be compared", dv__ctype_text(a->type));
    }
    return DV_OK;
}

static int resolve(const struct resolver *r, dv__expr *e)
{
    int status = DV_OK;
    switch (e->kind) {
    case DV__EXPR_INT: e->type = DV__CTYPE_INT; return DV_OK;
    case DV__EXPR_FLOAT: e->type = DV__CTYPE_NUMBER; return DV_OK;
    case DV__EXPR_STRING: e->type = DV__CTYPE_STRING; return DV_OK;
    case DV__EXPR_BOOL: e->type = DV__CTYPE_BOOL; return DV_OK;
    case DV__EXPR_NAME: return resolve_name(r, e);
    case DV__EXPR_STAR: return resolve_star(r, e);
    case DV__EXPR_CALL: return resolve_call(r, e);
    case DV__EXPR_ATTR:
        status = resolve_as(r, e->args[0], DV__CTYPE_TENSOR);
        e->type = DV__CTYPE_NUMBER;
        if (!status && strcmp(e->name, "values") != 0)
            status = wrong(r, e, "unknown attribute '.%s': expected .values", e->name);
        if (!status && !r->values)
            status = wrong(r, e, "the values of tensors can be used in constraints only");
        return status;
    case DV__EXPR_INDEX:
        status = resolve_as(r, e->args[0], DV__CTYPE_INTS);
        e->type = DV__CTYPE_INT;
        return status ? status : resolve_as(r, e->args[1], DV__CTYPE_INT);
    case DV__EXPR_NEG:
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
    case DV__EXPR_MOD: return resolve_arithmetic(r, e);
    case DV__EXPR_NOT:
    case DV__EXPR_AND:
    case DV__EXPR_OR:
        e->type = DV__CTYPE_BOOL;
        for (uint32_t i = 0; i < e->n && !status; i++)
            status = resolve_as(r, e->args[i], DV__CTYPE_BOOL);
        return status;
    case DV__EXPR_NONE: return wrong(r, e, "None has no place here: ask with present() or absent()");
    case DV__EXPR_LIST:
    case DV__EXPR_KEYWORD: return wrong(r, e, "contracts have no lists and no keyword operands");
    default: return resolve_comparison(r, e);
    }
}

int dv__resolve(const dv__contract *c, dv__expr *e, const dv__pattern *list)
{
    const struct resolver r = { c, c->text, false, list };
    return resolve(&r, e);
}

int dv__resolve_as(const dv__contract *c, dv__expr *e, enum dv__ctype wanted, const dv__pattern *list)
{
    const struct resolver r = { c, c->text, false, list };
    return resolve_as(&r, e, wanted);
}

int dv__resolve_constraint(const dv__contract *c, dv__expr *e)
{
    const struct resolver r = { c, c->text, true, NULL };
    const int status = resolve(&r, e);
    if (status || e->type == DV__CTYPE_BOOL)
        return status;
    return wrong(&r, e, "expected a boolean for a fact, found %s", dv__ctype_text(e->type));
}

const char *dv__function_name(enum dv__function fn) { return functions[fn].name; }

int dv__contract_resolve_expr(const dv__contract *c, const char *text, dv__expr *e, enum dv__ctype wanted, const char *what)
{
    const struct resolver r = { c, text, false, NULL };
    const int status = resolve(&r, e);
    if (status || e->type == wanted || (wanted == DV__CTYPE_NUMBER && e->type == DV__CTYPE_INT))
        return status;
    return wrong(&r, e, "expected %s for %s, found %s", dv__ctype_text(wanted), what, dv__ctype_text(e->type));
}

dv__needs dv__contract_needs(const dv__contract *c, const dv__expr *e)
{
    dv__needs n = { 0, 0, 0 };
    if (e->role == DV__ROLE_DIM || e->role == DV__ROLE_ELEMENT)
        n.dims = 1ull << e->ref;
    else if (e->role == DV__ROLE_RUN || e->role == DV__ROLE_ELEMENT_RUN)
        n.runs = 1u << e->ref;
    else if (e->role == DV__ROLE_DTYPE_VAR)
        n.dtypes = 1u << e->ref;
    for (uint32_t i = 0; i < e->n; i++)
        n = dv__needs_or(n, dv__contract_needs(c, e->args[i]));
    return n;
}

const char *dv__contract_text_of(dv__contract *c, const dv__expr *e)
{
    dv__text t = { 0 };
    char *s = NULL;
    dv__expr_print(e, &t);
    if (dv__text_take(&t, &s))
        return NULL;
    const char *copy = dv__arena_strndup(&c->arena, s, strlen(s));
    dv__free(s);
    return copy;
}
