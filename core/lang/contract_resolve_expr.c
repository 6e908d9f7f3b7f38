/* Finds the meaning of names in expressions, and the type of each node. A name must exist; contract_resolve.c makes the
 * variables. */
#include "lang/contract_internal.h"

#include "base/suggest.h"

/* The context in which a tree is resolved. Predicates of kernels have a separate text. */
struct expr_resolver {
    const dv__contract *c;
    const char *text;
    bool allows_values; /* true in conditions among the facts, which may read x.values: elements are read in check mode only */
    const dv__pattern *list_pattern; /* pattern of a returned list, in which the expression stands; its index name is the position
                                        in the list. NULL: none */
};

static int resolve_expr(const struct expr_resolver *r, dv__expr *e);

/* ---- Variables by name --------------------------------------------------------------------------------------------------- */

/* Returns the index of the size variable with this name; -1: there is none. */
int dv__contract_find_dim_index(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndims; i++)
        if (!strcmp(c->dims[i].name, name))
            return (int)i;
    return -1;
}

/* Returns the index of the variadic with this name; -1: there is none. */
int dv__contract_find_variadic_index(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->nvariadics; i++)
        if (!strcmp(c->variadics[i].name, name))
            return (int)i;
    return -1;
}

/* Returns the index of the dtype variable with this name; -1: there is none. */
int dv__contract_find_dtype_var_index(const dv__contract *c, const char *name)
{
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (!strcmp(c->dtypes[i].name, name))
            return (int)i;
    return -1;
}

/* Returns the kind that an argument of this schema type has in contracts; of an optional type, that of the type without
 * None. */
enum dv__type_kind dv__type_get_contract_kind(const dv__type *t)
{
    if (t->kind == DV__TYPE_OPTIONAL)
        return dv__type_get_contract_kind(t->elems[0]);
    if (t->kind != DV__TYPE_LIST)
        return (enum dv__type_kind)dv__type_rows[t->kind].contract;
    const enum dv__type_kind element = dv__type_get_contract_kind(t->elems[0]);
    return element == DV__TYPE_TENSOR ? DV__TYPE_TENSORS : element == DV__TYPE_INT ? DV__TYPE_INTS : DV__TYPE_LIST;
}

/* ---- Expressions --------------------------------------------------------------------------------------------------------- */

#define resolve_expr_fail(r, e, ...) dv__fail_at_column(DV_ECONTRACT, (r)->text, (e)->at, __VA_ARGS__)

/* Fails unless the type of e is the wanted one, or is INT where NUMBER is wanted. */
static int resolve_expr_check_type(const struct expr_resolver *r, const dv__expr *e, enum dv__type_kind wanted)
{
    const bool number = wanted == DV__TYPE_NUMBER && e->type == DV__TYPE_INT;
    if (e->type == wanted || number)
        return DV_OK;
    return resolve_expr_fail(r, e, "expected %s, found %s", dv__type_rows[wanted].text, dv__type_rows[e->type].text);
}

/* Resolves an expression, which must have the wanted type. Returns a status. */
static int resolve_expr_as(const struct expr_resolver *r, dv__expr *e, enum dv__type_kind wanted)
{
    const int status = resolve_expr(r, e);
    return status ? status : resolve_expr_check_type(r, e, wanted);
}

/* Returns the slot of the list xs{i}[...] that a returned list is like or a view of; that list alone gives the number of
 * returned tensors. -1: there is none. */
static int resolve_find_slot_of_list_that_gives_length(const struct expr_resolver *r)
{
    const int source = r->list_pattern->like_slot >= 0 ? r->list_pattern->like_slot : r->list_pattern->viewed_slot;
    for (uint32_t i = 0; i < r->c->npatterns; i++)
        if (r->c->patterns[i].slot == source && r->c->patterns[i].kind == DV__PATTERN_LIST && r->c->patterns[i].dims.is_any_shape)
            return source;
    return -1;
}

/* Resolves xs{i} in the pattern of a returned list: the tensor of an argument's list at the same index. Fails if the list may
 * be shorter. */
static int resolve_argument_list_tensor(const struct expr_resolver *r, dv__expr *e, int slot)
{
    const dv__contract *c = r->c;
    e->role = DV__ROLE_ARGUMENT;
    e->ref = slot;
    e->type = DV__TYPE_TENSOR;
    for (uint32_t i = 0; i < c->npatterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        if (t->slot != slot || t->presence == DV__PRESENCE_ABSENT)
            continue;
        if (t->kind != DV__PATTERN_LIST || strcmp(t->index_name, e->index_name) != 0)
            return resolve_expr_fail(r, e, "'%s' is not a list with the index %s", e->name, e->index_name);
        if (t->can_be_empty && (!t->dims.is_any_shape || resolve_find_slot_of_list_that_gives_length(r) != slot))
            return resolve_expr_fail(r, e, "'%s' may have no tensor at this index: '%s'", e->name, t->text);
    }
    return DV_OK;
}

/* Resolves n{i}, *s{i} or xs{i} in the pattern of a returned list. Fails unless a list of the arguments has that name. Returns
 * a status. */
static int resolve_per_tensor_name(const struct expr_resolver *r, dv__expr *e)
{
    const bool run = e->kind == DV__EXPR_VARIADIC;
    const char *star = run ? "*" : "";
    const int slot = dv__schema_find_argument_index(r->c->schema, e->name),
              ref = run ? dv__contract_find_variadic_index(r->c, e->name) : dv__contract_find_dim_index(r->c, e->name);
    const char *bound_index = ref < 0 ? NULL : run ? r->c->variadics[ref].index_name : r->c->dims[ref].index_name;
    if (!run && dv__contract_find_dtype_var_index(r->c, e->name) >= 0)
        return resolve_expr_fail(r, e,
            "a dtype variable holds for all tensors of a list: expected %s, or no dtype here and dtype(xs{%s}) in the result",
            e->name, e->index_name);
    if (!r->list_pattern)
        return resolve_expr_fail(r, e,
            run ? "*%s{%s} is for the patterns of lists"
                : slot >= 0 ? "%s{%s} is for the patterns of lists that are returned"
                            : "%s{%s} is for the patterns of lists: expected total(%s)",
            e->name, e->index_name, e->name);
    if (strcmp(e->index_name, r->list_pattern->index_name) != 0)
        return resolve_expr_fail(
            r, e, "expected {%s}, the index of this list, found {%s}", r->list_pattern->index_name, e->index_name);
    const int alone = resolve_find_slot_of_list_that_gives_length(r);
    if (alone >= 0 && slot != alone)
        return resolve_expr_fail(r, e, "'%s' may have another number of tensors: nothing else with {%s} has a meaning here",
            r->c->schema->args[alone].name, e->index_name);
    if (!run && slot >= 0)
        return resolve_argument_list_tensor(r, e, slot);
    if (!bound_index)
        return resolve_expr_fail(r, e, "unknown %s%s{%s}: no list of the inputs has it", star, e->name, e->index_name);
    if (strcmp(bound_index, e->index_name) != 0)
        return resolve_expr_fail(r, e, "%s%s{%s} belongs to the lists with index %s", star, e->name, bound_index, bound_index);
    e->role = run ? DV__ROLE_PER_TENSOR_VARIADIC : DV__ROLE_PER_TENSOR_DIM;
    e->ref = ref;
    e->type = run ? DV__TYPE_DIMS : DV__TYPE_INT;
    return DV_OK;
}

/* Resolves a name: an argument, a size, a dtype, a dtype variable or the index of a returned list. Returns a status. */
static int resolve_name(const struct expr_resolver *r, dv__expr *e)
{
    const dv__contract *c = r->c;
    const int slot = dv__schema_find_argument_index(c->schema, e->name), dim = dv__contract_find_dim_index(c, e->name),
              dtype = dv__contract_find_dtype_var_index(c, e->name);
    uint32_t key;
    if (e->index_name)
        return resolve_per_tensor_name(r, e);
    if (r->list_pattern && !strcmp(e->name, r->list_pattern->index_name)) {
        e->role = DV__ROLE_LIST_INDEX;
        e->type = DV__TYPE_INT;
    } else if (slot >= 0) {
        e->role = DV__ROLE_ARGUMENT;
        e->ref = slot;
        e->type = (uint8_t)dv__type_get_contract_kind(c->schema->args[slot].type);
    } else if (dim >= 0) {
        e->role = DV__ROLE_DIM;
        e->ref = dim;
        e->type = DV__TYPE_INT;
        if (c->dims[dim].index_name)
            return resolve_expr_fail(
                r, e, "'%s' is another size for each tensor of the list: expected total(%s)", e->name, e->name);
    } else if (dtype >= 0) {
        e->role = DV__ROLE_DTYPE_VAR;
        e->ref = dtype;
        e->type = DV__TYPE_DTYPE;
    } else if (dv__try_find_dtype_key(e->name, &key)) {
        e->role = DV__ROLE_DTYPE;
        e->i = (int64_t)key;
        e->type = DV__TYPE_DTYPE;
    } else if (dv__contract_find_variadic_index(c, e->name) >= 0) {
        return resolve_expr_fail(r, e, "'%s' names variadic dims: expected '*%s'", e->name, e->name);
    } else {
        char hint[160];
        return resolve_expr_fail(r, e, "unknown name '%s': no input has such a size or dtype, and the schema no such argument%s",
            e->name, dv__dtype_print_hint(e->name, hint, sizeof hint));
    }
    return DV_OK;
}

/* Resolves *name: variadic dims, or the elements of an int[] argument. Returns a status. */
static int resolve_variadic(const struct expr_resolver *r, dv__expr *e)
{
    const int slot = dv__schema_find_argument_index(r->c->schema, e->name), run = dv__contract_find_variadic_index(r->c, e->name);
    if (e->index_name)
        return resolve_per_tensor_name(r, e);
    e->type = DV__TYPE_DIMS;
    if (slot >= 0) {
        e->role = DV__ROLE_INT_LIST;
        e->ref = slot;
        const enum dv__type_kind type = dv__type_get_contract_kind(r->c->schema->args[slot].type);
        return type == DV__TYPE_INTS
            ? DV_OK
            : resolve_expr_fail(r, e, "'*%s' needs a list of integers, found %s", e->name, dv__type_rows[type].text);
    }
    if (run >= 0 && r->c->variadics[run].index_name)
        return resolve_expr_fail(r, e,
            "'*%s' is another run for each tensor of the list: only *%s{%s} in the pattern of a list has a meaning", e->name,
            e->name, r->c->variadics[run].index_name);
    e->role = DV__ROLE_VARIADIC;
    e->ref = run;
    return run >= 0 ? DV_OK : resolve_expr_fail(r, e, "unknown variadic dims '*%s': no input has it", e->name);
}

static const struct function_row {
    const char *name, *operands;
    enum dv__type_kind result;
} function_rows[] = {
#define FUNCTION_ROW(id, name, result, operands) { name, operands, DV__TYPE_##result },
    DV__CONTRACT_FUNCTIONS(FUNCTION_ROW)
#undef FUNCTION_ROW
};

/* Returns the letter in DV__CONTRACT_FUNCTIONS of an operand of a call; 0: e is no call. */
char dv__expr_get_operand_letter(const dv__expr *e, uint32_t operand)
{
    if (e->kind != DV__EXPR_CALL)
        return 0;
    const char *letters = function_rows[e->ref].operands;
    while (operand-- && letters[1] && letters[1] != '+')
        letters++;
    return *letters;
}

/* Returns a noun, for messages, of what an operand letter of DV__CONTRACT_FUNCTIONS stands for. */
static const char *operand_letter_get_noun(char letter)
{
    switch (letter) {
    case 'i': return "an integer";
    case 'n': return "a number";
    case 'b': return "a boolean";
    case 'd': return "a dtype";
    case 'D': return "a dtype, a tensor or a number argument";
    case 'r': return "variadic dims";
    case 's':
    case 't': return "a tensor argument";
    case 'S':
    case 'R': return "a tensor argument or variadic dims";
    case 'L': return "a list";
    case 'I': return "an int[] argument";
    case 'x': return "an integer or an int[] argument";
    case 'o': return "an optional argument";
    default: return "a size written with {i}";
    }
}

/* True if the resolved operand e is of the kind that an operand letter of DV__CONTRACT_FUNCTIONS stands for. */
static bool operand_matches_letter(const struct expr_resolver *r, char letter, const dv__expr *e)
{
    const bool argument = e->kind == DV__EXPR_NAME && e->role == DV__ROLE_ARGUMENT;
    switch (letter) {
    case 'i': return e->type == DV__TYPE_INT;
    case 'n': return e->type == DV__TYPE_INT || e->type == DV__TYPE_NUMBER;
    case 'b': return e->type == DV__TYPE_BOOL;
    case 'd': return e->type == DV__TYPE_DTYPE;
    case 'D':
        return e->type == DV__TYPE_DTYPE || e->type == DV__TYPE_TENSOR ||
            (argument && (e->type == DV__TYPE_NUMBER || e->type == DV__TYPE_INT || e->type == DV__TYPE_BOOL));
    case 'r': return e->type == DV__TYPE_DIMS;
    case 's':
    case 't': return e->type == DV__TYPE_TENSOR;
    case 'S':
    case 'R': return e->type == DV__TYPE_TENSOR || e->type == DV__TYPE_TENSORS || e->type == DV__TYPE_DIMS;
    case 'L': return e->type == DV__TYPE_TENSORS || e->type == DV__TYPE_INTS || e->type == DV__TYPE_LIST;
    case 'I': return e->type == DV__TYPE_INTS;
    case 'x': return e->type == DV__TYPE_INT || e->type == DV__TYPE_INTS;
    case 'o': return argument && r->c->schema->args[e->ref].type->kind == DV__TYPE_OPTIONAL;
    default: return true;
    }
}

/* Resolves total(n), the only place where n of n{i} is written without {i}. Returns a status. */
static int resolve_total(const struct expr_resolver *r, dv__expr *e)
{
    dv__expr *name = e->args[0];
    const int dim = name->kind == DV__EXPR_NAME ? dv__contract_find_dim_index(r->c, name->name) : -1;
    if (dim < 0 || !r->c->dims[dim].index_name)
        return resolve_expr_fail(r, name, "expected %s in total()", operand_letter_get_noun('e'));
    name->role = DV__ROLE_PER_TENSOR_DIM;
    name->ref = dim;
    name->type = DV__TYPE_INT;
    return DV_OK;
}

/* Resolves if(condition, a, b): both values need one type, or are numbers. Returns a status. */
static int resolve_if(const struct expr_resolver *r, dv__expr *e)
{
    int status = resolve_expr_as(r, e->args[0], DV__TYPE_BOOL);
    if (!status)
        status = resolve_expr(r, e->args[1]);
    if (!status)
        status = resolve_expr(r, e->args[2]);
    if (status)
        return status;
    const unsigned a = e->args[1]->type, b = e->args[2]->type;
    if ((a != b && (a != DV__TYPE_INT || b != DV__TYPE_NUMBER) && (a != DV__TYPE_NUMBER || b != DV__TYPE_INT)) ||
        !dv__type_kind_is_scalar(a))
        return resolve_expr_fail(
            r, e->args[2], "expected values of one type in if(), found %s and %s", dv__type_rows[a].text, dv__type_rows[b].text);
    e->type = (uint8_t)(a == b ? a : DV__TYPE_NUMBER);
    return DV_OK;
}

/* Computes an expression of integers with + - * alone. Returns false for any other expression, and if the result does not fit
 * 64 bits. */
bool dv__expr_try_fold_constant(const dv__expr *e, int64_t *out)
{
    int64_t a, b;
    *out = e->i;
    if (e->kind == DV__EXPR_INT)
        return true;
    if (e->kind == DV__EXPR_NEG)
        return dv__expr_try_fold_constant(e->args[0], &a) && !__builtin_sub_overflow(0, a, out);
    if (e->kind != DV__EXPR_ADD && e->kind != DV__EXPR_SUB && e->kind != DV__EXPR_MUL)
        return false;
    if (!dv__expr_try_fold_constant(e->args[0], &a) || !dv__expr_try_fold_constant(e->args[1], &b))
        return false;
    return e->kind == DV__EXPR_ADD ? !__builtin_add_overflow(a, b, out)
        : e->kind == DV__EXPR_SUB  ? !__builtin_sub_overflow(a, b, out)
                                   : !__builtin_mul_overflow(a, b, out);
}

/* Fails if e is the constant 0, by which no call could divide. */
static int resolve_check_nonzero_divisor(const struct expr_resolver *r, const dv__expr *e)
{
    int64_t value;
    return dv__expr_try_fold_constant(e, &value) && !value ? resolve_expr_fail(r, e, "division by zero") : DV_OK;
}

/* Fails at a call of an unknown function. The hint also tries facts, since a misspelt fact looks like a function. */
static int resolve_fail_unknown_function(const struct expr_resolver *r, const dv__expr *e)
{
    static const char *const facts[] = { "parallel", "sum", "contiguous", "last_contiguous", "strided", "align", "unused" };
    dv__suggestions suggestions = { .wanted = e->name };
    dv__strbuf all = { 0 };
    char hint[200];
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        if (!strcmp(e->name, facts[i]))
            return resolve_expr_fail(
                r, e, "'%s' is a fact of its own and no part of an expression; write ';' before it", e->name);
        dv__suggest_add(&suggestions, facts[i]);
    }
    for (int i = 0; i < DV__FN_COUNT; i++) {
        dv__suggest_add(&suggestions, function_rows[i].name);
        dv__strbuf_printf(&all, "%s%s", i ? ", " : "", function_rows[i].name);
    }
    const char *did_you_mean = dv__suggest_print(&suggestions, hint, sizeof hint);
    const int status = *did_you_mean
        ? resolve_expr_fail(r, e, "unknown function or fact '%s'%s", e->name, did_you_mean)
        : resolve_expr_fail(r, e, "unknown function '%s': expected one of %s", e->name, all.data ? all.data : "?");
    dv__strbuf_deinit(&all);
    return status;
}

/* Checks the constant dim of size(x, d) or stride(x, d) against the rank of the argument's pattern, if that is fixed. Returns a
 * status. */
static int resolve_check_constant_dim(const struct expr_resolver *r, const dv__expr *e)
{
    const dv__expr *x = e->args[0], *d = e->args[1];
    const bool negative = d->kind == DV__EXPR_NEG && d->args[0]->kind == DV__EXPR_INT;
    const dv__pattern *pattern = NULL;
    if (x->type != DV__TYPE_TENSOR || (d->kind != DV__EXPR_INT && !negative))
        return DV_OK;
    for (uint32_t i = 0; i < r->c->npatterns; i++) {
        const dv__pattern *t = &r->c->patterns[i];
        if (t->slot == x->ref && (t->when.group >= 0 || pattern))
            return DV_OK; /* several patterns: which one applies depends on the case */
        if (t->slot == x->ref)
            pattern = t;
    }
    if (!pattern || !pattern->dims.is_written || pattern->dims.is_any_shape || pattern->dims.nsingle_dims != pattern->dims.n)
        return DV_OK;
    const int64_t rank = pattern->dims.n, dim = negative ? -d->args[0]->i : d->i;
    if (dim < rank && dim >= -rank)
        return DV_OK;
    return resolve_expr_fail(r, d, "expected a dim of '%s', which has %lld, in %s(%s, %lld)", x->name, (long long)rank, e->name,
        x->name, (long long)dim);
}

/* Resolves a call of a contract's function: the number and kinds of its operands. Returns a status. */
static int resolve_call(const struct expr_resolver *r, dv__expr *e)
{
    int fn = 0;
    while (fn < DV__FN_COUNT && strcmp(function_rows[fn].name, e->name) != 0)
        fn++;
    if (fn == DV__FN_COUNT)
        return resolve_fail_unknown_function(r, e);
    const char *operands = function_rows[fn].operands;
    const size_t letters = strlen(operands);
    const bool many = operands[letters - 1] == '+';
    const uint32_t least = (uint32_t)(many ? letters - 1 : letters);
    if (e->n < least || (e->n > least && !many))
        return resolve_expr_fail(r, e, "expected %s%u operand%s of %s(), found %u%s", many ? "at least " : "", least,
            least == 1 ? "" : "s", e->name, e->n,
            e->n && e->args[0]->kind == DV__EXPR_IN ? ": the values after 'in' are separated by spaces" : "");
    e->ref = fn;
    e->type = (uint8_t)function_rows[fn].result;
    if (fn == DV__FN_SORTED && !r->allows_values)
        return resolve_expr_fail(r, e, "the values of tensors can be used in constraints only");
    if (fn == DV__FN_TOTAL)
        return resolve_total(r, e);
    if (fn == DV__FN_IF)
        return resolve_if(r, e);
    for (uint32_t i = 0; i < e->n; i++) {
        const char letter = dv__expr_get_operand_letter(e, i);
        const int status = resolve_expr(r, e->args[i]);
        if (status)
            return status;
        if (operand_matches_letter(r, letter, e->args[i]))
            continue;
        if (fn == DV__FN_DTYPE && e->args[i]->type == DV__TYPE_DTYPE && e->args[i]->name)
            return resolve_expr_fail(r, e->args[i],
                "expected a tensor argument in dtype(), found a dtype: write '%s' in place of dtype(%s)", e->args[i]->name,
                e->args[i]->name);
        if (e->args[i]->type == DV__TYPE_TENSORS && r->list_pattern)
            return resolve_expr_fail(r, e->args[i],
                "expected %s in %s(), found a list of tensors: %s{%s} is its tensor at the same index",
                operand_letter_get_noun(letter), e->name, e->args[i]->name, r->list_pattern->index_name);
        return resolve_expr_fail(r, e->args[i], "expected %s in %s(), found %s", operand_letter_get_noun(letter), e->name,
            dv__type_rows[e->args[i]->type].text);
    }
    if (fn == DV__FN_SIZE || fn == DV__FN_STRIDE)
        return resolve_check_constant_dim(r, e);
    return fn == DV__FN_CEILDIV ? resolve_check_nonzero_divisor(r, e->args[1]) : DV_OK;
}

/* Resolves arithmetic: INT if all operands are, else NUMBER. Returns a status. */
static int resolve_arithmetic(const struct expr_resolver *r, dv__expr *e)
{
    e->type = DV__TYPE_INT;
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = resolve_expr_as(r, e->args[i], DV__TYPE_NUMBER);
        if (status)
            return status;
        if (e->args[i]->type == DV__TYPE_NUMBER)
            e->type = DV__TYPE_NUMBER;
    }
    if (e->type == DV__TYPE_NUMBER && (e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD))
        return resolve_expr_fail(r, e, "'%s' is for integers", e->kind == DV__EXPR_MOD ? "%" : "//");
    if (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD)
        return resolve_check_nonzero_divisor(r, e->args[1]);
    return DV_OK;
}

static bool expr_is_number(const dv__expr *e) { return e->type == DV__TYPE_INT || e->type == DV__TYPE_NUMBER; }

/* Resolves a comparison or `in`. Fails if the operands can never be equal, or have no order. */
static int resolve_comparison(const struct expr_resolver *r, dv__expr *e)
{
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = resolve_expr(r, e->args[i]);
    if (status)
        return status;
    e->type = DV__TYPE_BOOL;
    const bool ordered = e->kind == DV__EXPR_LT || e->kind == DV__EXPR_LE || e->kind == DV__EXPR_GT || e->kind == DV__EXPR_GE;
    const dv__expr *a = e->args[0];
    for (uint32_t i = 1; i < e->n; i++) {
        const dv__expr *b = e->args[i];
        if (expr_is_number(a) && expr_is_number(b))
            continue;
        if (ordered)
            return resolve_expr_fail(r, expr_is_number(a) ? b : a, "expected a number, found %s",
                dv__type_rows[expr_is_number(a) ? b->type : a->type].text);
        if (a->type != b->type)
            return resolve_expr_fail(
                r, b, "expected %s, found %s: they can never be equal", dv__type_rows[a->type].text, dv__type_rows[b->type].text);
        if (a->type == DV__TYPE_TENSOR || a->type == DV__TYPE_TENSORS || a->type == DV__TYPE_INTS || a->type == DV__TYPE_LIST ||
            a->type == DV__TYPE_OTHER)
            return resolve_expr_fail(r, b, "%s cannot be compared", dv__type_rows[a->type].text);
    }
    return DV_OK;
}

/* Resolves an expression: the meaning of its names and the type of each node. Returns a status. */
static int resolve_expr(const struct expr_resolver *r, dv__expr *e)
{
    int status = DV_OK;
    switch (e->kind) {
    case DV__EXPR_INT: e->type = DV__TYPE_INT; return DV_OK;
    case DV__EXPR_FLOAT: e->type = DV__TYPE_NUMBER; return DV_OK;
    case DV__EXPR_STRING: e->type = DV__TYPE_STRING; return DV_OK;
    case DV__EXPR_BOOL: e->type = DV__TYPE_BOOL; return DV_OK;
    case DV__EXPR_NAME: return resolve_name(r, e);
    case DV__EXPR_VARIADIC: return resolve_variadic(r, e);
    case DV__EXPR_CALL: return resolve_call(r, e);
    case DV__EXPR_ATTR:
        status = resolve_expr_as(r, e->args[0], DV__TYPE_TENSOR);
        e->type = DV__TYPE_NUMBER;
        if (!status && strcmp(e->name, "values") != 0)
            status = resolve_expr_fail(r, e, "unknown attribute '.%s': expected .values", e->name);
        if (!status && !r->allows_values)
            status = resolve_expr_fail(r, e, "the values of tensors can be used in constraints only");
        return status;
    case DV__EXPR_SUBSCRIPT:
        status = resolve_expr_as(r, e->args[0], DV__TYPE_INTS);
        e->type = DV__TYPE_INT;
        return status ? status : resolve_expr_as(r, e->args[1], DV__TYPE_INT);
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
        e->type = DV__TYPE_BOOL;
        for (uint32_t i = 0; i < e->n && !status; i++)
            status = resolve_expr_as(r, e->args[i], DV__TYPE_BOOL);
        return status;
    case DV__EXPR_NONE: return resolve_expr_fail(r, e, "None has no place here: ask with present() or absent()");
    case DV__EXPR_LIST:
    case DV__EXPR_KEYWORD: return resolve_expr_fail(r, e, "contracts have no lists and no keyword operands");
    default: return resolve_comparison(r, e);
    }
}

int dv__resolve_expr(const dv__contract *c, dv__expr *e, const dv__pattern *returned_list)
{
    const struct expr_resolver r = { c, c->text, false, returned_list };
    return resolve_expr(&r, e);
}

int dv__resolve_expr_as(const dv__contract *c, dv__expr *e, enum dv__type_kind wanted, const dv__pattern *returned_list)
{
    const struct expr_resolver r = { c, c->text, false, returned_list };
    return resolve_expr_as(&r, e, wanted);
}

/* Resolves a condition among the facts, which may use x.values and sorted(x). Returns a status. */
int dv__resolve_constraint(const dv__contract *c, dv__expr *e)
{
    const struct expr_resolver r = { c, c->text, true, NULL };
    const int status = resolve_expr(&r, e);
    if (status || e->type == DV__TYPE_BOOL)
        return status;
    return resolve_expr_fail(&r, e, "expected a boolean for a fact, found %s", dv__type_rows[e->type].text);
}

const char *dv__contract_get_function_name(enum dv__contract_function fn) { return function_rows[fn].name; }

/* Resolves an expression of a text, which may be a kernel's predicate, as a value of the wanted type. purpose: noun for
 * messages. Returns a status. */
int dv__resolve_expr_in_text_as(
    const dv__contract *c, const char *text, dv__expr *e, enum dv__type_kind wanted, const char *purpose)
{
    const struct expr_resolver r = { c, text, false, NULL };
    const int status = resolve_expr(&r, e);
    if (status || e->type == wanted || (wanted == DV__TYPE_NUMBER && e->type == DV__TYPE_INT))
        return status;
    return resolve_expr_fail(
        &r, e, "expected %s for %s, found %s", dv__type_rows[wanted].text, purpose, dv__type_rows[e->type].text);
}

/* Returns the set of variables that an expression uses. */
dv__var_set dv__expr_collect_vars(const dv__contract *c, const dv__expr *e)
{
    dv__var_set n = { 0, 0, 0 };
    if (e->role == DV__ROLE_DIM || e->role == DV__ROLE_PER_TENSOR_DIM)
        n.dims = 1ull << e->ref;
    else if (e->role == DV__ROLE_VARIADIC || e->role == DV__ROLE_PER_TENSOR_VARIADIC)
        n.variadics = 1u << e->ref;
    else if (e->role == DV__ROLE_DTYPE_VAR)
        n.dtypes = 1u << e->ref;
    for (uint32_t i = 0; i < e->n; i++)
        n = dv__var_set_union(n, dv__expr_collect_vars(c, e->args[i]));
    return n;
}

/* Returns the printed expression, in the contract's arena. NULL: memory is out. */
const char *dv__contract_copy_expr_text(dv__contract *c, const dv__expr *e)
{
    dv__strbuf t = { 0 };
    char *s = NULL;
    dv__expr_print(e, &t);
    if (dv__strbuf_detach(&t, &s))
        return NULL;
    const char *copy = dv__arena_strndup(&c->arena, s, strlen(s));
    dv__free(s);
    return copy;
}
