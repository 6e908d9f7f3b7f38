/* Builds the steps for cases and patterns: which case holds; then each input's device, dtype and dims in textual order. A
 * variable that is not bound yet is bound; everything else is compared. Whether a variable is bound depends on cases and on which
 * optional arguments are given, never on a size. */
#include "lang/contract_build.h"

#include <stdio.h>

/* What the emitted steps do with a tensor. BIND_AND_CHECK: an argument that is one tensor. A list of tensors is matched twice:
 * BIND for its first tensor, then CHECK for each tensor. FIND_POSITIONS: nothing is bound or checked; only the positions of the
 * pattern's items are emitted. */
enum match_phase { MATCH_BIND_AND_CHECK, MATCH_BIND, MATCH_CHECK, MATCH_FIND_POSITIONS };
enum { MAX_ITEMS = DV_MAX_NDIM + DV__MAX_VARIADIC_VARS + 64 }; /* the most items of a pattern's dims */
/* The tensor that is matched with a pattern: an argument, or one tensor of a list. */
struct match_input {
    const dv__pattern *t; /* the tensor's pattern */
    enum match_phase phase;
    dv__operand tensor, shape, guard; /* registers of the tensor and its shape; condition under which they exist */
    dv__operand index, first;         /* CHECK: registers with the tensor's index in the list, and with 1 for the first tensor */
    /* CHECK: conditions under which the list's first tensor has bound each variable, up to the current item */
    dv__operand dim_bound[DV__MAX_DIM_VARS], variadic_bound[DV__MAX_VARIADIC_VARS], device_bound, dtype;
};

/* ---- Patterns that apply ------------------------------------------------------------------------------------------------- */

/* Returns the condition that the case `when` is selected. DV__ALWAYS: an item outside of cases. */
dv__operand dv__case_get_condition(const dv__builder *b, dv__case_ref when)
{
    return when.group < 0 ? DV__ALWAYS : b->p->is_selected[when.group][when.index];
}

/* Emits the condition that a pattern applies: its case is selected, and an optional argument is given. DV__NEVER: for
 * `absent`. */
dv__operand dv__emit_pattern_applies(dv__builder *b, const dv__pattern *pattern)
{
    if (pattern->presence == DV__PRESENCE_ABSENT)
        return DV__NEVER;
    const dv__operand taken = dv__case_get_condition(b, pattern->when);
    return pattern->presence == DV__PRESENCE_REQUIRED ? taken : dv__emit_and(b, taken, dv__emit_present(b, pattern->slot));
}

/* Returns the message part ' when layout == "A"'. NULL: the item is outside of cases. */
dv__message_part *dv__message_make_case(dv__builder *b, dv__case_ref when)
{
    return when.group < 0 ? NULL : dv__message(b, " when %s", b->c->groups[when.group].cases[when.index].text);
}

/* ---- Messages: which argument binds a variable --------------------------------------------------------------------------- */

/* The arguments that may bind one variable, in order. In a call the first entry whose condition holds is the binder. */
struct binder_chain {
    struct {
        dv__operand condition;
        const char *who; /* the argument's name; NULL: a definition binds the variable */
    } entries[512];
    uint32_t n;
};

/* Adds an entry to the chain, unless its condition is DV__NEVER or the chain is full. Returns false if the condition always
 * holds: later entries would never be used. */
static bool binder_chain_add_stays_open(struct binder_chain *chain, dv__operand condition, const char *argument_name)
{
    if (condition == DV__NEVER || chain->n == sizeof chain->entries / sizeof *chain->entries)
        return true;
    chain->entries[chain->n].condition = condition;
    chain->entries[chain->n++].who = argument_name;
    return condition != DV__ALWAYS;
}

/* Adds the arguments whose patterns have the variable: alone as a dim (stands_alone), else in a computed dim. Returns false if
 * the last entry always holds. */
static bool binder_chain_add_patterns_stays_open(
    dv__builder *b, struct binder_chain *chain, bool is_variadic, int variable, bool stands_alone)
{
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        bool found = false;
        for (uint32_t k = 0; k < t->dims.n && !found; k++) {
            const dv__dim_item *item = &t->dims.items[k];
            const bool is_kind = is_variadic ? item->kind == DV__DIM_VARIADIC || item->kind == DV__DIM_PER_TENSOR_VARIADIC
                                             : item->kind == DV__DIM_VAR || item->kind == DV__DIM_PER_TENSOR;
            found = stands_alone ? is_kind && item->ref == variable
                                 : !is_variadic && item->kind == DV__DIM_COMPUTED && item->vars.dims >> variable & 1;
        }
        if (found && !binder_chain_add_stays_open(chain, dv__emit_pattern_applies(b, t), t->name))
            return false;
    }
    return true;
}

/* Lists the possible binders of a size or variadic: first patterns where it stands alone, then definitions, then computed dims
 * that can be solved for it. */
static void binder_chain_build(dv__builder *b, struct binder_chain *chain, bool is_variadic, int variable)
{
    chain->n = 0;
    if (!binder_chain_add_patterns_stays_open(b, chain, is_variadic, variable, true))
        return;
    for (uint32_t i = 0; i < b->c->ndefinitions && !is_variadic; i++)
        if (b->c->definitions[i].var_index == variable &&
            !binder_chain_add_stays_open(chain, dv__case_get_condition(b, b->c->definitions[i].when), NULL))
            return;
    binder_chain_add_patterns_stays_open(b, chain, is_variadic, variable, false);
}

/* Returns the message part with the binder's name between two texts. The part is empty where a definition binds, or nothing
 * does. */
static dv__message_part *binder_chain_make_message(
    dv__builder *b, const struct binder_chain *chain, const char *before, const char *after)
{
    dv__message_part *p = NULL;
    for (uint32_t i = chain->n; i-- > 0;)
        p = dv__message_if(b, chain->entries[i].condition,
            chain->entries[i].who ? dv__message(b, "%s%s%s", before, chain->entries[i].who, after) : NULL, p);
    return p;
}

/* Returns the message part "'n' is bound by 'x'" between the texts before and after. is_variadic: `variable` is an index of a
 * variadic, else of a size. */
dv__message_part *dv__message_make_binder(dv__builder *b, bool is_variadic, int variable, const char *before, const char *after)
{
    struct binder_chain chain;
    char front[400], back[40];
    const dv__message_scope scope = dv__message_scope_begin(b);
    binder_chain_build(b, &chain, is_variadic, variable);
    snprintf(front, sizeof front, "%s'%s%s' is bound by '", before, is_variadic ? "*" : "",
        is_variadic ? b->c->variadics[variable].name : b->c->dims[variable].name);
    snprintf(back, sizeof back, "'%s", after);
    dv__message_part *p = binder_chain_make_message(b, &chain, front, back);
    dv__message_scope_end(b, scope);
    return p;
}

/* Returns the message part " (bound by 'x')" for a size variable, by its index. The part is empty where no argument binds
 * it. */
dv__message_part *dv__message_make_bound_by(dv__builder *b, int dim_variable)
{
    struct binder_chain chain;
    const dv__message_scope scope = dv__message_scope_begin(b);
    binder_chain_build(b, &chain, false, dim_variable);
    dv__message_part *p = binder_chain_make_message(b, &chain, " (bound by '", "')");
    dv__message_scope_end(b, scope);
    return p;
}

/* Returns the message part "'T' is bound by 'x'" for a dtype variable, between the texts before and after. */
static dv__message_part *match_make_dtype_binder_message(
    dv__builder *b, int dtype_variable, const char *before, const char *after)
{
    struct binder_chain chain = { .n = 0 };
    char front[300], back[40];
    const dv__message_scope scope = dv__message_scope_begin(b);
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->dtype.kind == DV__DTYPE_SPEC_VAR && t->dtype.ref == dtype_variable &&
            !binder_chain_add_stays_open(&chain, dv__emit_pattern_applies(b, t), t->name))
            break;
    }
    snprintf(front, sizeof front, "%s'%s' is bound by '", before, b->c->dtypes[dtype_variable].name);
    snprintf(back, sizeof back, "'%s", after);
    dv__message_part *p = binder_chain_make_message(b, &chain, front, back);
    dv__message_scope_end(b, scope);
    return p;
}

/* Returns the message part " ('n' is bound by 'x', '*s' is bound by 'y')" for a set of variables. NULL: the set is empty. */
dv__message_part *dv__message_make_binders(dv__builder *b, dv__var_set vars)
{
    dv__message_part *join = dv__message_join_new(b, " (", ")");
    for (uint32_t i = 0; i < b->c->nvariadics; i++)
        if (vars.variadics >> i & 1)
            dv__message_join_add(b, join, dv__message_make_binder(b, true, (int)i, "", ""));
    for (uint32_t i = 0; i < b->c->ndims; i++)
        if (vars.dims >> i & 1)
            dv__message_join_add(b, join, dv__message_make_binder(b, false, (int)i, "", ""));
    for (uint32_t i = 0; i < b->c->ndtypes; i++)
        if (vars.dtypes >> i & 1)
            dv__message_join_add(b, join, match_make_dtype_binder_message(b, (int)i, "", ""));
    return join && join->then ? join : NULL;
}

/* Adds a part to a JOIN part; in a message it is printed only where the condition `bound` holds. */
static void message_join_add_if_bound(dv__builder *b, dv__message_part *join, dv__operand bound, dv__message_part *part)
{
    dv__message_join_add(b, join, dv__message_if(b, bound, part, NULL));
}

/* Adds "n = 3" for each bound variable of a set to a JOIN part. Returns the JOIN part; NULL: nothing was added. */
dv__message_part *dv__message_add_variables(dv__builder *b, dv__var_set vars, dv__message_part *join)
{
    const dv__contract *c = b->c;
    for (uint32_t i = 0; i < c->nvariadics; i++)
        if (vars.variadics >> i & 1)
            message_join_add_if_bound(b, join, b->variadic_bound[i],
                dv__message(b, "*%s = [%r]", c->variadics[i].name, dv__variadic_register(c, (int)i)));
    for (uint32_t i = 0; i < c->ndims; i++)
        if (vars.dims >> i & 1)
            message_join_add_if_bound(
                b, join, b->dim_bound[i], dv__message(b, "%s = %r", c->dims[i].name, dv__dim_register((int)i)));
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (vars.dtypes >> i & 1)
            message_join_add_if_bound(
                b, join, b->dtype_bound[i], dv__message(b, "%s = %r", c->dtypes[i].name, dv__dtype_register(c, (int)i)));
    return join && join->then ? join : NULL;
}

/* ---- Variables of each tensor of a list ---------------------------------------------------------------------------------- */

/* Returns the item of a pattern that is the same n{i} or *s{i} as an item of another pattern. NULL: it has none. */
static const dv__dim_item *pattern_find_same_per_tensor_item(const dv__pattern *t, const dv__dim_item *item)
{
    for (uint32_t k = 0; k < t->dims.n; k++)
        if (t->dims.items[k].kind == item->kind && t->dims.items[k].ref == item->ref)
            return &t->dims.items[k];
    return NULL;
}

/* Returns the list pattern that binds n{i} or *s{i}: the first one that has the item and can apply, at most t itself. Sets
 * b->status to an error if that list may be absent while t's is given. */
static const dv__pattern *per_tensor_find_binder(dv__builder *b, const dv__pattern *t, const dv__dim_item *item)
{
    const dv__operand pattern_applies = dv__emit_pattern_applies(b, t);
    for (uint32_t i = 0; i < b->c->npatterns && !b->status; i++) {
        const dv__pattern *other = &b->c->patterns[i];
        if (other == t)
            break;
        if (!pattern_find_same_per_tensor_item(other, item) ||
            dv__emit_and(b, pattern_applies, dv__emit_pattern_applies(b, other)) == DV__NEVER)
            continue;
        if (!dv__condition_implies(b, pattern_applies, dv__emit_pattern_applies(b, other), 8))
            b->status = dv__fail_at_column(DV_ECONTRACT, b->c->text, item->e->at,
                "%s%s{%s} is bound by '%s', which may be absent when '%s' is given",
                item->e->kind == DV__EXPR_VARIADIC ? "*" : "", item->e->name, item->e->index_name, other->name, t->name);
        return other;
    }
    return t;
}

static bool match_try_emit_positions(dv__builder *b, const struct match_input *x, dv__shape_position *positions);
static dv__operand match_emit_dims_at(dv__builder *b, const struct match_input *x, const dv__shape_position *position);
static dv__operand match_emit_size_at(
    dv__builder *b, const struct match_input *x, const dv__shape_position *position, dv__operand guard);

/* Emits the size n{i} or the variadic dims *s{i} of the tensor at this index of the binding list. Returns the register. */
static dv__operand per_tensor_emit_value(
    dv__builder *b, const dv__pattern *binder, const dv__dim_item *item, dv__operand index, dv__operand guard)
{
    dv__shape_position positions[MAX_ITEMS];
    struct match_input x = { .t = binder, .phase = MATCH_FIND_POSITIONS, .guard = guard, .index = index };
    x.tensor = dv__emit_op(b, DV__OP_LIST_TENSOR, DV__TYPE_TENSOR, guard, 1, &index, binder->slot, NULL);
    x.shape = dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, guard, x.tensor);
    const dv__dim_item *at = pattern_find_same_per_tensor_item(binder, item);
    if (b->status || !match_try_emit_positions(b, &x, positions))
        return DV__ALWAYS;
    const dv__shape_position *position = &positions[at - binder->dims.items];
    return item->kind == DV__DIM_PER_TENSOR ? match_emit_size_at(b, &x, position, guard) : match_emit_dims_at(b, &x, position);
}

/* ---- Messages: an argument ----------------------------------------------------------------------------------------------- */

/* Returns the message part "argument 'x': ", or "argument 'xs[1]': " in phase CHECK. */
static dv__message_part *match_make_argument_prefix(dv__builder *b, const struct match_input *x)
{
    return x->phase != MATCH_CHECK ? dv__message(b, "argument '%s': ", x->t->name)
                                   : dv__message(b, "argument '%s[%r]': ", x->t->name, x->index);
}

/* Returns the message part of an item: its sizes if its variables are bound, else its text. */
static dv__message_part *match_make_item_sizes_message(dv__builder *b, const dv__dim_item *item, dv__operand guard)
{
    dv__message_part *text = dv__message(b, "%s", item->text);
    const dv__message_scope scope = dv__message_scope_begin(b);
    const dv__operand bound = dv__emit_and(b, guard, dv__emit_all_bound(b, item->vars));
    const dv__operand value = bound == DV__NEVER ? DV__ALWAYS : dv__emit_expr(b, item->e, bound);
    const dv__operand known = bound == DV__NEVER ? bound : dv__emit_and(b, bound, b->message_values_exist);
    dv__message_part *p = known == DV__NEVER        ? text
        : dv__condition_implies(b, guard, known, 6) ? dv__message(b, "%r", value)
                                                    : dv__message_if(b, known, dv__message(b, "%r", value), text);
    dv__message_scope_end(b, scope);
    return p;
}

/* True if each size and variadic of a set is bound under the same condition for a list's first tensor as for the later ones. */
static bool match_has_same_bound_conditions(const dv__builder *b, const struct match_input *x, dv__var_set vars)
{
    for (uint64_t left = vars.dims; left; left &= left - 1)
        if (b->dim_bound[__builtin_ctzll(left)] != x->dim_bound[__builtin_ctzll(left)])
            return false;
    for (uint32_t left = vars.variadics; left; left &= left - 1)
        if (b->variadic_bound[__builtin_ctz(left)] != x->variadic_bound[__builtin_ctz(left)])
            return false;
    return true;
}

/* Returns the message part of n{i} or *s{i}: the sizes that another list binds for this tensor, else the item's text. */
static dv__message_part *match_make_per_tensor_message(dv__builder *b, const struct match_input *x, const dv__dim_item *item)
{
    const dv__pattern *binder = per_tensor_find_binder(b, x->t, item);
    if (binder == x->t || x->phase != MATCH_CHECK)
        return dv__message(b, "%s", item->text);
    const dv__message_scope scope = dv__message_scope_begin(b);
    dv__message_part *p = dv__message(b, "%r", per_tensor_emit_value(b, binder, item, x->index, x->guard));
    dv__message_scope_end(b, scope);
    return p;
}

/* Returns the message part " ('*s{i}' is bound by 'xs[1]')". NULL: this list itself binds the item. */
static dv__message_part *match_make_per_tensor_binder_message(
    dv__builder *b, const struct match_input *x, const dv__dim_item *item)
{
    const dv__pattern *binder = per_tensor_find_binder(b, x->t, item);
    return binder == x->t ? NULL : dv__message(b, " ('%s' is bound by '%s[%r]')", item->text, binder->name, x->index);
}

/* Returns the message part with all items of a pattern, "4, 2*n". For the first tensor of a list, sizes are printed only if
 * they are bound before the list or by an earlier dim. */
static dv__message_part *match_make_all_item_sizes_message(dv__builder *b, const struct match_input *x)
{
    dv__message_part *join = dv__message_join_new(b, "", "");
    const char *message_text = b->message_text;
    for (uint32_t i = 0; i < x->t->dims.n; i++) {
        const dv__dim_item *one = &x->t->dims.items[i];
        b->message_text = one->text;
        if (dv__dim_item_is_per_tensor(one)) {
            dv__message_join_add(b, join, match_make_per_tensor_message(b, x, one));
            continue;
        }
        dv__message_part *p = match_make_item_sizes_message(b, one, x->guard);
        if (x->phase == MATCH_CHECK && !match_has_same_bound_conditions(b, x, one->vars)) {
            dv__operand dims[DV__MAX_DIM_VARS], runs[DV__MAX_VARIADIC_VARS];
            memcpy(dims, b->dim_bound, sizeof dims), memcpy(runs, b->variadic_bound, sizeof runs);
            memcpy(b->dim_bound, x->dim_bound, sizeof dims), memcpy(b->variadic_bound, x->variadic_bound, sizeof runs);
            p = dv__message_if(b, x->first, match_make_item_sizes_message(b, one, x->guard), p);
            memcpy(b->dim_bound, dims, sizeof dims), memcpy(b->variadic_bound, runs, sizeof runs);
        }
        dv__message_join_add(b, join, p);
    }
    b->message_text = message_text;
    return join;
}

/* Returns the message "expected shape ..., found ...". item_index: the item that does not fit; -1: the number of dims does not
 * fit. */
static dv__message_part *match_make_shape_mismatch_message(dv__builder *b, const struct match_input *x, int32_t item_index)
{
    const dv__dim_item *mismatched = item_index < 0 ? NULL : &x->t->dims.items[item_index];
    dv__message_part *items = match_make_all_item_sizes_message(b, x), *binders = NULL;
    if (mismatched)
        binders = dv__dim_item_is_per_tensor(mismatched) ? match_make_per_tensor_binder_message(b, x, mismatched)
                                                         : dv__message_make_binders(b, mismatched->vars);
    const bool is_computed = mismatched && mismatched->kind == DV__DIM_COMPUTED;
    return dv__message(b, "%mexpected shape [%m]%s%s%m, found [%r]", match_make_argument_prefix(b, x), items,
        is_computed ? " with " : "", is_computed ? mismatched->text : "", binders, x->shape);
}

/* Adds a proof obligation for each variable of a set: it is bound where the guard holds. The message of a failure is `subject`,
 * `separator` and "'n' must be bound before `message_end`". */
static void match_add_bound_obligations(dv__builder *b, dv__operand guard, dv__var_set vars, const char *position_in_text,
    const char *subject, const char *separator, const char *message_end)
{
    for (dv__var_binding v; dv__var_set_try_take_next(b, &vars, &v);)
        if (!dv__condition_implies(b, guard, v.bound, 8))
            dv__obligation_add(b, guard, v.bound, position_in_text,
                dv__message(b, "%s%s'%s' must be bound before %s", subject, separator, v.name, message_end));
}

/* ---- Devices ------------------------------------------------------------------------------------------------------------- */

/* Returns the message "expected a tensor on cpu, found one on ...", with the argument that determines a common device. */
static dv__message_part *match_make_device_mismatch_message(
    dv__builder *b, const struct match_input *x, dv__operand expected, dv__operand found)
{
    struct binder_chain chain = { .n = 0 };
    const dv__message_scope scope = dv__message_scope_begin(b);
    for (uint32_t i = 0; i < b->c->npatterns && x->t->device_spec == DV__DEVICE_SPEC_COMMON; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->device_spec == DV__DEVICE_SPEC_COMMON && t->kind != DV__PATTERN_LIST_LENGTH &&
            !binder_chain_add_stays_open(&chain, dv__emit_pattern_applies(b, t), t->name))
            break;
    }
    dv__message_part *p = dv__message(b, "%mexpected a tensor on %r%m, found one on %r", match_make_argument_prefix(b, x),
        expected, binder_chain_make_message(b, &chain, " as '", "' is"), found);
    dv__message_scope_end(b, scope);
    return p;
}

/* Emits the check of a tensor's device against its pattern. The first tensor on the common device binds that device. */
static void match_emit_device(dv__builder *b, const struct match_input *x)
{
    const dv__operand device = dv__device_register(b->c), g = x->guard;
    if (x->t->device_spec == DV__DEVICE_SPEC_ANY || (x->phase == MATCH_BIND && x->t->device_spec != DV__DEVICE_SPEC_COMMON))
        return;
    const dv__operand actual = dv__emit_op1(b, DV__OP_DEVICE_OF, DV__TYPE_DEVICE, g, x->tensor);
    if (x->t->device_spec == DV__DEVICE_SPEC_CPU) {
        const dv__operand is_valid = dv__emit_op1(b, DV__OP_ON_CPU, DV__TYPE_BOOL, g, actual);
        const dv__operand cpu = dv__builder_add_literal(b, DV__TYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
        dv__emit_check(b, is_valid, g, DV_EDEVICE, match_make_device_mismatch_message(b, x, cpu, actual));
        return;
    }
    const dv__operand compared = dv__emit_and(b, g, b->device_bound);
    if (x->phase != MATCH_BIND && compared != DV__NEVER) {
        const dv__operand is_valid = dv__emit_op2(b, DV__OP_SAME_DEVICE, DV__TYPE_BOOL, compared, device, actual);
        dv__emit_check(b, is_valid, compared, DV_EDEVICE, match_make_device_mismatch_message(b, x, device, actual));
    }
    if (x->phase != MATCH_CHECK) {
        dv__emit_copy(b, device, actual, dv__emit_and(b, g, dv__emit_not(b, b->device_bound, DV__ALWAYS)));
        b->device_bound = dv__emit_or(b, b->device_bound, g);
    }
}

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

/* Returns the message part "f32, f64 or bf16" for n dtype keys. */
static dv__message_part *match_make_dtype_names_message(dv__builder *b, const uint32_t *keys, uint32_t n)
{
    dv__message_part *p = NULL;
    for (uint32_t i = 0; i < n; i++)
        p = dv__message(b, "%m%s%s", p, !i ? "" : i + 1 < n ? ", " : " or ", dv_dtype_name(dv_dtype_from_key(keys[i])));
    return p;
}

/* Returns the message "expected dtype ..., found ...". found: register of the tensor's dtype. */
static dv__message_part *match_make_dtype_mismatch_message(
    dv__builder *b, const struct match_input *x, dv__message_part *expected, dv__operand found)
{
    return dv__message(b, "%mexpected dtype %m, found %r", match_make_argument_prefix(b, x), expected, found);
}

/* Emits the condition that the dtype in register `found` is one of n keys. Returns the condition. */
static dv__operand emit_dtype_one_of(dv__builder *b, dv__operand found, const uint32_t *keys, uint32_t n, dv__operand guard)
{
    dv__operand in[256] = { found };
    for (uint32_t i = 0; i < n && i < 255; i++)
        in[i + 1] = dv__builder_dtype_literal(b, keys[i]);
    return dv__emit_op(b, DV__OP_ONE_OF, DV__TYPE_BOOL, guard, (n < 254 ? n : 254) + 1, in, 0, NULL);
}

/* Emits the steps for a dtype variable: binds it to the dtype `found` if it is unbound, else compares. A bound dtype must be
 * one of the allowed ones. */
static void match_emit_dtype_variable(dv__builder *b, const struct match_input *x, dv__operand found)
{
    const int ref = x->t->dtype.ref;
    const dv__dtype_var *var = &b->c->dtypes[ref];
    const dv__operand variable = dv__dtype_register(b->c, ref), g = x->guard;
    const dv__operand before = x->phase == MATCH_CHECK ? x->dtype : b->dtype_bound[ref];
    const dv__operand first = x->phase == MATCH_CHECK ? dv__emit_and(b, g, x->first) : g;
    const dv__operand binds = dv__emit_and(b, first, dv__emit_not(b, before, DV__ALWAYS)),
                      compared = dv__emit_and(b, g, b->dtype_bound[ref]);
    if (x->phase != MATCH_BIND && binds != DV__NEVER && var->allowed) {
        dv__message_part *names = dv__message(
            b, "%m (%s)", match_make_dtype_names_message(b, var->allowed, var->nallowed), var->name);
        dv__emit_check(b, emit_dtype_one_of(b, found, var->allowed, var->nallowed, binds), binds, DV_EDTYPE,
            match_make_dtype_mismatch_message(b, x, names, found));
    }
    if (x->phase != MATCH_BIND && compared != DV__NEVER) {
        const dv__operand same = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_DTYPE, compared, variable, found);
        dv__emit_check(b, same, compared, DV_EDTYPE,
            match_make_dtype_mismatch_message(
                b, x, dv__message(b, "%r%m", variable, match_make_dtype_binder_message(b, ref, " (", ")")), found));
    }
    if (x->phase != MATCH_CHECK) {
        dv__emit_copy(b, variable, found, dv__emit_and(b, g, dv__emit_not(b, b->dtype_bound[ref], DV__ALWAYS)));
        b->dtype_bound[ref] = dv__emit_or(b, b->dtype_bound[ref], g);
    }
}

/* Emits the steps that bind or check a tensor's dtype against its pattern. */
static void match_emit_dtype(dv__builder *b, const struct match_input *x)
{
    const dv__dtype_spec *spec = &x->t->dtype;
    if (x->phase < MATCH_CHECK && spec->kind != DV__DTYPE_SPEC_VAR && spec->n == 1)
        match_add_bound_obligations(
            b, x->guard, dv__expr_collect_vars(b->c, spec->alternatives[0]), spec->alternatives[0]->at, "", "", "this");
    if (spec->kind == DV__DTYPE_SPEC_ANY || (x->phase == MATCH_BIND && spec->kind != DV__DTYPE_SPEC_VAR))
        return;
    const dv__operand g = x->guard, found = dv__emit_op1(b, DV__OP_DTYPE_OF, DV__TYPE_DTYPE, g, x->tensor);
    if (spec->kind == DV__DTYPE_SPEC_VAR) {
        match_emit_dtype_variable(b, x, found);
    } else if (spec->kind == DV__DTYPE_SPEC_SET) {
        uint32_t keys[256];
        const uint32_t n = spec->n < 255 ? spec->n : 255;
        for (uint32_t i = 0; i < n; i++)
            keys[i] = (uint32_t)spec->alternatives[i]->i;
        dv__emit_check(b, emit_dtype_one_of(b, found, keys, n, g), g, DV_EDTYPE,
            match_make_dtype_mismatch_message(b, x, match_make_dtype_names_message(b, keys, n), found));
    } else {
        b->message_text = x->t->text;
        const dv__operand expected = dv__emit_expr(b, spec->alternatives[0], g);
        const dv__operand same = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_DTYPE, g, found, expected);
        dv__emit_check(b, same, g, DV_EDTYPE, match_make_dtype_mismatch_message(b, x, dv__message(b, "%r", expected), found));
    }
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

/* By item of a pattern: the number of dims that the item matches. */
struct item_ranks {
    dv__operand known[MAX_ITEMS];   /* register or literal with the number; 0 where it is not known */
    dv__operand is_free[MAX_ITEMS]; /* condition: the item is an unbound variadic, which matches the remaining dims */
};

/* Emits the value of e of a fact rank(*a) == e, and the check that it is from 0 to DV_MAX_NDIM. Returns its register. */
static dv__operand emit_rank_of_fact(dv__builder *b, const dv__variadic_rank *fact, dv__operand guard)
{
    const char *who = b->message_argument, *message_text = b->message_text;
    b->message_argument = NULL;
    b->message_text = fact->text;
    const dv__operand n = dv__emit_expr(b, fact->e, guard);
    const dv__operand low = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, n, dv__builder_int_literal(b, 0));
    const dv__operand high = dv__emit_op2(b, DV__OP_LE, DV__TYPE_INT, guard, n, dv__builder_int_literal(b, DV_MAX_NDIM));
    const dv__operand is_valid = dv__emit_and_under(b, guard, low, high);
    if (dv__condition_can_fail(b, is_valid, guard))
        dv__emit_check(b, is_valid, guard, DV_EINVAL,
            dv__message(b, "%mexpected a number of dims, found %r", dv__message_make_item_prefix(b), n));
    b->message_argument = who;
    b->message_text = message_text;
    return n;
}

/* Emits the number of dims that a variadic item matches, and the condition under which it is free; sets both in *ranks. */
static void match_emit_variadic_rank(dv__builder *b, const struct match_input *x, uint32_t item_index, struct item_ranks *ranks)
{
    const dv__dim_item *item = &x->t->dims.items[item_index];
    const dv__operand zero = dv__builder_int_literal(b, 0), g = x->guard;
    if (item->kind == DV__DIM_COMPUTED_VARIADIC) {
        b->message_text = item->text;
        if (x->phase < MATCH_CHECK)
            match_add_bound_obligations(b, g, item->vars, item->e->at, item->text, " stands for several dims: ", "it");
        ranks->known[item_index] = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, dv__emit_expr(b, item->e, g));
        return;
    }
    if (item->kind == DV__DIM_PER_TENSOR_VARIADIC) {
        const dv__pattern *binder = per_tensor_find_binder(b, x->t, item);
        if (binder == x->t)
            ranks->known[item_index] = zero, ranks->is_free[item_index] = g;
        else
            ranks->known[item_index] = dv__emit_op1(
                b, DV__OP_RANK, DV__TYPE_INT, g, per_tensor_emit_value(b, binder, item, x->index, g));
        return;
    }
    const dv__operand bound = dv__emit_and(b, g, b->variadic_bound[item->ref]);
    const dv__variadic_rank *fact = &b->c->variadic_ranks[item->ref];
    const dv__operand unbound = dv__emit_and(b, g, dv__emit_not(b, b->variadic_bound[item->ref], DV__ALWAYS));
    const dv__operand known_rank = fact->e ? dv__emit_and(b, unbound, dv__emit_all_bound(b, fact->vars)) : DV__NEVER;
    ranks->known[item_index] = known_rank == DV__NEVER ? zero : emit_rank_of_fact(b, fact, known_rank);
    if (known_rank != unbound)
        ranks->known[item_index] = dv__emit_select(b, g, known_rank, ranks->known[item_index], zero);
    if (bound != DV__NEVER) {
        const dv__operand rank = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, bound, dv__variadic_register(b->c, item->ref));
        ranks->known[item_index] = bound == g ? rank : dv__emit_select(b, g, bound, rank, ranks->known[item_index]);
    }
    ranks->is_free[item_index] = dv__emit_and(b, unbound, dv__emit_not(b, known_rank, DV__ALWAYS));
}

/* Emits the position of each item in the tensor's shape, and the check of the number of dims. Returns false, with the error in
 * b->status, if there are too many items. */
static bool match_try_emit_positions(dv__builder *b, const struct match_input *x, dv__shape_position *positions)
{
    struct item_ranks lengths;
    const dv__dims *dims = &x->t->dims;
    const dv__operand g = x->guard, one = dv__builder_int_literal(b, 1);
    dv__operand known = dv__builder_int_literal(b, 0), has_free = DV__NEVER;
    uint32_t first = 0; /* index of the first variadic that may match the remaining dims */
    if (dims->n > MAX_ITEMS) {
        b->status = dv__fail_at_column(DV_ELIMIT, b->c->text, x->t->at, "more than %d dims", MAX_ITEMS);
        return false;
    }
    for (uint32_t i = 0; i < dims->n; i++) {
        lengths.known[i] = one;
        lengths.is_free[i] = DV__NEVER;
        if (dims->items[i].e->type == DV__TYPE_DIMS)
            match_emit_variadic_rank(b, x, i, &lengths);
        known = dv__emit_add(b, g, known, lengths.known[i]);
        const dv__message_scope scope = dv__message_scope_begin(b);
        const dv__operand both = dv__emit_and(b, has_free, lengths.is_free[i]);
        dv__message_scope_end(b, scope);
        if (both != DV__NEVER && x->phase < MATCH_CHECK) {
            const char *name = dims->items[first].e->name;
            dv__obligation_add(b, both, DV__NEVER, dims->items[i].e->at,
                dv__message(b, "'*%s' and '*%s' are both unknown here: a fact such as rank(*%s) == ... can tell", name,
                    dims->items[i].e->name, name));
        }
        first = has_free == DV__NEVER ? i : first;
        has_free = dv__emit_or(b, has_free, lengths.is_free[i]);
    }
    const dv__operand rank = dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, g, x->shape);
    const bool is_whole_shape = dv__condition_implies(b, g, has_free, 6) && known < 0 && !b->status &&
        !b->p->constants[-1 - known].i; /* [*s] */
    if (x->phase != MATCH_BIND && x->phase != MATCH_FIND_POSITIONS && !is_whole_shape) {
        const dv__operand more = has_free == DV__NEVER ? has_free : dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, g, rank, known);
        const dv__operand equal = dv__condition_implies(b, g, has_free, 6)
            ? more
            : dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, rank, known);
        const dv__operand fits = more == equal ? more : dv__emit_select(b, g, has_free, more, equal);
        dv__emit_check(b, fits, g, DV_ESHAPE, match_make_shape_mismatch_message(b, x, -1));
    }
    dv__operand remaining = DV__ALWAYS, at = dv__builder_int_literal(b, 0);
    for (uint32_t i = 0; i < dims->n; i++) {
        uint32_t nsingle_dims = 0; /* items from i on that are one dim each; 0 if a variadic follows i */
        for (uint32_t k = i; k < dims->n; k++)
            nsingle_dims = dims->items[k].e->type == DV__TYPE_DIMS ? 0 : nsingle_dims + 1;
        const bool back = at >= 0 && nsingle_dims == dims->n - i;
        positions[i].at = back ? dv__builder_int_literal(b, -(int64_t)nsingle_dims) : at;
        positions[i].start = at;
        positions[i].length = lengths.known[i];
        if (lengths.is_free[i] != DV__NEVER) {
            if (remaining == DV__ALWAYS && known < 0 && !b->status)
                remaining = dv__emit_add(b, g, rank, dv__builder_int_literal(b, -b->p->constants[-1 - known].i));
            else if (remaining == DV__ALWAYS)
                remaining = dv__emit_op2(b, DV__OP_SUB, DV__TYPE_INT, g, rank, known);
            positions[i].length = dv__condition_implies(b, g, lengths.is_free[i], 6)
                ? remaining
                : dv__emit_select(b, g, lengths.is_free[i], remaining, lengths.known[i]);
        }
        if (i + 1 < dims->n) {
            bool singles_only = true;
            for (uint32_t k = i + 1; k < dims->n; k++)
                singles_only = singles_only && dims->items[k].e->type != DV__TYPE_DIMS;
            at = singles_only && positions[i].length >= 0 ? positions[i].length : dv__emit_add(b, g, at, positions[i].length);
        }
    }
    return true;
}

/* Emits the size of a tensor at the position of an item that is one dim. Returns its register. */
static dv__operand match_emit_size_at(
    dv__builder *b, const struct match_input *x, const dv__shape_position *position, dv__operand guard)
{
    return dv__emit_op2(b, DV__OP_SIZE_AT, DV__TYPE_INT, guard, x->shape, position->at);
}

/* Emits the dims of a tensor at the position of a variadic item. Returns their register. */
static dv__operand match_emit_dims_at(dv__builder *b, const struct match_input *x, const dv__shape_position *position)
{
    return x->t->dims.n == 1
        ? x->shape
        : dv__emit_op3(b, DV__OP_SLICE, DV__TYPE_DIMS, x->guard, x->shape, position->start, position->length);
}

/* Emits the steps for a size's name as a dim: binds it if it is unbound, else compares. */
static void match_emit_dim_variable(
    dv__builder *b, const struct match_input *x, uint32_t item_index, const dv__shape_position *position)
{
    const int ref = x->t->dims.items[item_index].ref;
    const dv__operand variable = dv__dim_register(ref), g = x->guard, size = match_emit_size_at(b, x, position, g);
    const dv__operand compared = dv__emit_and(b, g, b->dim_bound[ref]);
    if (x->phase != MATCH_BIND && compared != DV__NEVER) {
        const dv__operand same = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, compared, size, variable);
        dv__emit_check(b, same, compared, DV_ESHAPE, match_make_shape_mismatch_message(b, x, (int32_t)item_index));
    }
    if (x->phase != MATCH_CHECK) {
        dv__emit_copy(b, variable, size, dv__emit_and(b, g, dv__emit_not(b, b->dim_bound[ref], DV__ALWAYS)));
        b->dim_bound[ref] = dv__emit_or(b, b->dim_bound[ref], g);
    }
}

/* Emits the steps for *s or computed variadic dims: binds an unbound *s, else compares. */
static void match_emit_variadic(
    dv__builder *b, const struct match_input *x, uint32_t item_index, const dv__shape_position *position)
{
    const dv__dim_item *item = &x->t->dims.items[item_index];
    const dv__operand g = x->guard;
    const dv__operand actual = match_emit_dims_at(b, x, position);
    const bool run = item->kind == DV__DIM_VARIADIC;
    const dv__operand compared = run ? dv__emit_and(b, g, b->variadic_bound[item->ref]) : g;
    if (x->phase != MATCH_BIND && compared != DV__NEVER) {
        b->message_text = item->text;
        const dv__operand value = run ? dv__variadic_register(b->c, item->ref) : dv__emit_expr(b, item->e, g);
        const dv__operand same = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_DIMS, compared, actual, value);
        dv__emit_check(b, same, compared, DV_ESHAPE, match_make_shape_mismatch_message(b, x, (int32_t)item_index));
    }
    if (x->phase != MATCH_CHECK && run) {
        dv__emit_copy(b, dv__variadic_register(b->c, item->ref), actual,
            dv__emit_and(b, g, dv__emit_not(b, b->variadic_bound[item->ref], DV__ALWAYS)));
        b->variadic_bound[item->ref] = dv__emit_or(b, b->variadic_bound[item->ref], g);
    }
}

/* Emits the condition that a set of variables is bound for the first tensor of a list, up to the current item. */
static dv__operand match_emit_is_bound_for_first(dv__builder *b, const struct match_input *x, dv__var_set vars)
{
    dv__operand all = dv__emit_all_bound(b, (dv__var_set){ .dtypes = vars.dtypes });
    for (uint64_t left = vars.dims; left; left &= left - 1)
        all = dv__emit_and(b, all, x->dim_bound[__builtin_ctzll(left)]);
    for (uint32_t left = vars.variadics; left; left &= left - 1)
        all = dv__emit_and(b, all, x->variadic_bound[__builtin_ctz(left)]);
    return all;
}

/* Emits the condition that the sizes of a computed dim are bound. DV__ALWAYS: the item cannot be deferred, so that it is a
 * proof obligation instead. */
static dv__operand match_emit_is_item_bound(dv__builder *b, const dv__dim_item *item, enum match_phase phase, dv__operand guard)
{
    if (item->deferred_bit >= 0)
        return dv__emit_all_bound(b, item->vars);
    if (phase < MATCH_CHECK)
        match_add_bound_obligations(b, guard, item->vars, item->e->at, item->text, ": ", "this");
    return DV__ALWAYS;
}

/* Matches a computed dim: compares it if its sizes are bound, else defers the check. */
static void match_emit_computed_dim(
    dv__builder *b, const struct match_input *x, uint32_t item_index, const dv__shape_position *position)
{
    const dv__dim_item *item = &x->t->dims.items[item_index];
    const dv__operand bound = match_emit_is_item_bound(b, item, x->phase, x->guard);
    dv__operand g = dv__emit_and(b, x->guard, bound);
    if (x->phase == MATCH_CHECK && item->deferred_bit >= 0) { /* the check may have been deferred for the list's first tensor */
        const dv__operand early = match_emit_is_bound_for_first(b, x, item->vars);
        g = early == bound ? g : dv__emit_and(b, g, dv__emit_or(b, dv__emit_not(b, x->first, DV__ALWAYS), early));
    }
    if (x->phase != MATCH_CHECK && item->deferred_bit >= 0) {
        dv__deferred_check *a = &b->deferred[item->deferred_bit];
        a->pattern_applies = x->guard;
        a->is_pending = dv__emit_and(b, x->guard, dv__emit_not(b, bound, DV__ALWAYS));
        a->bound_at_last_try = bound;
        a->position = *position;
        a->found_size_reg = a->is_pending == DV__NEVER ? DV__ALWAYS : match_emit_size_at(b, x, position, x->guard);
    }
    if (x->phase == MATCH_BIND || g == DV__NEVER)
        return;
    b->message_text = item->text;
    const dv__operand expected = dv__emit_expr(b, item->e, g), size = match_emit_size_at(b, x, position, x->guard);
    dv__emit_check(b, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, size, expected), g, DV_ESHAPE,
        match_make_shape_mismatch_message(b, x, (int32_t)item_index));
}

/* Emits the sum of n{i} over all tensors of a list. Sets *carry: the sum's register, which each tensor of the list adds to. */
static void match_emit_sum_over_list(
    dv__builder *b, const struct match_input *x, const dv__dim_item *item, const dv__shape_position *position, dv__carry *carry)
{
    const dv__operand total = dv__dim_register(item->ref);
    const dv__operand in[] = { total, match_emit_size_at(b, x, position, x->guard) };
    b->message_text = item->text;
    const dv__step_error *overflow_error = dv__step_error_new(
        b, DV_ESHAPE, dv__message(b, "%mthe sum over the list does not fit 64 bits", dv__message_make_item_prefix(b)));
    const dv__operand next = dv__emit_op(b, DV__OP_ADD, DV__TYPE_INT, x->guard, 2, in, 0, overflow_error);
    *carry = (dv__carry){ total, dv__builder_int_literal(b, 0), next };
}

/* Emits the steps for n{i} or *s{i}. In the first list that has the item, n{i} is summed up; in later lists the item is
 * compared, tensor by tensor. *ncarries: the number of sums in carries, to which a sum is added. */
static void match_emit_per_tensor_item(dv__builder *b, const struct match_input *x, uint32_t item_index,
    const dv__shape_position *position, dv__carry *carries, uint32_t *ncarries)
{
    const dv__dim_item *item = &x->t->dims.items[item_index];
    const dv__pattern *binder = per_tensor_find_binder(b, x->t, item);
    const bool run = item->kind == DV__DIM_PER_TENSOR_VARIADIC;
    const dv__operand g = x->guard;
    if (binder == x->t) {
        if (!run && *ncarries < DV_MAX_NDIM)
            match_emit_sum_over_list(b, x, item, position, &carries[(*ncarries)++]);
        return;
    }
    const dv__operand actual = run ? match_emit_dims_at(b, x, position) : match_emit_size_at(b, x, position, g);
    const dv__operand same = dv__emit_op2(
        b, DV__OP_EQ, run ? DV__TYPE_DIMS : DV__TYPE_INT, g, actual, per_tensor_emit_value(b, binder, item, x->index, g));
    dv__emit_check(b, same, g, DV_ESHAPE, match_make_shape_mismatch_message(b, x, (int32_t)item_index));
}

/* Emits the steps that bind or check all dims of a tensor. carries: receives the sums over a list. */
static void match_emit_dims(dv__builder *b, struct match_input *x, dv__carry *carries, uint32_t *ncarries)
{
    const dv__dims *dims = &x->t->dims;
    dv__shape_position positions[MAX_ITEMS];
    x->shape = dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, x->guard, x->tensor);
    if (dims->is_any_shape || !match_try_emit_positions(b, x, positions))
        return;
    for (uint32_t i = 0; i < dims->n && !b->status; i++) {
        const dv__dim_item *item = &dims->items[i];
        switch (item->kind) {
        case DV__DIM_VAR: match_emit_dim_variable(b, x, i, &positions[i]); break;
        case DV__DIM_VARIADIC:
        case DV__DIM_COMPUTED_VARIADIC: match_emit_variadic(b, x, i, &positions[i]); break;
        case DV__DIM_LITERAL:
            if (x->phase != MATCH_BIND)
                dv__emit_check(b,
                    dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, x->guard, match_emit_size_at(b, x, &positions[i], x->guard),
                        dv__builder_int_literal(b, item->value)),
                    x->guard, DV_ESHAPE, match_make_shape_mismatch_message(b, x, (int32_t)i));
            break;
        case DV__DIM_COMPUTED: match_emit_computed_dim(b, x, i, &positions[i]); break;
        default:
            if (x->phase == MATCH_CHECK)
                match_emit_per_tensor_item(b, x, i, &positions[i], carries, ncarries);
        }
        if (x->phase == MATCH_CHECK && item->kind == DV__DIM_VAR)
            x->dim_bound[item->ref] = b->dim_bound[item->ref];
        else if (x->phase == MATCH_CHECK && item->kind == DV__DIM_VARIADIC)
            x->variadic_bound[item->ref] = b->variadic_bound[item->ref];
    }
}

/* Emits the steps that bind or check the device, dtype and dims of a tensor. carries: receives the sums over a list. */
static void match_emit_tensor(dv__builder *b, struct match_input *x, dv__carry *carries, uint32_t *ncarries)
{
    x->shape = DV__ALWAYS;
    match_emit_device(b, x);
    match_emit_dtype(b, x);
    match_emit_dims(b, x, carries, ncarries);
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

/* Opens a block that runs for each tensor of a list; x gets the block's registers. Returns the index of the block's step. */
static uint32_t match_open_list_block(dv__builder *b, struct match_input *x, dv__operand guard)
{
    x->tensor = dv__builder_add_register(b, DV__TYPE_TENSOR);
    x->index = dv__builder_add_register(b, DV__TYPE_INT);
    x->first = dv__builder_add_register(b, DV__TYPE_BOOL);
    x->guard = DV__ALWAYS;
    x->phase = MATCH_CHECK;
    const uint32_t at = b->p->nsteps;
    dv__step *s = dv__emit_step(b, DV__OP_EACH_TENSOR, guard);
    if (s) {
        s->slot = x->t->slot;
        s->to = x->tensor;
        s->index = x->index;
        s->first = x->first;
        s->type = DV__TYPE_TENSOR;
    }
    return at;
}

/* Ends a block: all steps after the step with index block_step become the block's body. */
void dv__builder_close_block(dv__builder *b, uint32_t block_step)
{
    if (b->status)
        return;
    b->p->steps[block_step].body_size = (int32_t)(b->p->nsteps - block_step - 1);
    for (uint32_t i = block_step + 1; i < b->p->nsteps; i++)
        b->p->steps[i].flags |= DV__STEP_IN_BLOCK;
}

/* Emits the checks that a list is as long as each earlier list with the same index. A list with [...] as dims may have another
 * length. */
static void match_emit_equal_list_lengths(dv__builder *b, const dv__pattern *t, dv__operand guard)
{
    dv__operand left = guard;
    for (const dv__pattern *other = b->c->patterns; other < t && !t->dims.is_any_shape && left != DV__NEVER; other++) {
        if (other->kind != DV__PATTERN_LIST || other->dims.is_any_shape || other->presence == DV__PRESENCE_ABSENT ||
            strcmp(other->index_name, t->index_name))
            continue;
        const dv__operand pattern_applies = dv__emit_pattern_applies(b, other), g = dv__emit_and(b, left, pattern_applies);
        if (g == DV__NEVER)
            continue;
        const dv__operand expected = dv__emit_load(b, DV__OP_LEN, DV__TYPE_INT, g, other->slot);
        const dv__operand found = dv__emit_load(b, DV__OP_LEN, DV__TYPE_INT, g, t->slot);
        dv__emit_check(b, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, found, expected), g, DV_EINVAL,
            dv__message(
                b, "argument '%s': expected as many tensors as '%s' has, %r, found %r", t->name, other->name, expected, found));
        left = dv__emit_and(b, left, dv__emit_not(b, pattern_applies, DV__ALWAYS));
    }
}

/* Emits the value of n{i} or *s{i} for the current tensor of the returned list b->list_pattern. Returns its register. */
dv__operand dv__emit_list_result_variable(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const bool run = e->role == DV__ROLE_PER_TENSOR_VARIADIC;
    const dv__dim_item item = {
        .kind = run ? DV__DIM_PER_TENSOR_VARIADIC : DV__DIM_PER_TENSOR, .ref = (int16_t)e->ref, .e = (dv__expr *)(uintptr_t)e
    };
    return per_tensor_emit_value(b, per_tensor_find_binder(b, b->list_pattern, &item), &item, b->list_index_reg, guard);
}

/* Emits the tensor of an argument's list at the index of the current tensor of the returned list. Returns its register. */
dv__operand dv__emit_list_result_input(dv__builder *b, int32_t slot, dv__operand guard)
{
    if (!b->status && !dv__condition_implies(b, dv__case_get_condition(b, b->list_pattern->when), dv__emit_present(b, slot), 8))
        b->status = dv__fail_at_column(DV_ECONTRACT, b->c->text, b->list_pattern->at, "'%s': '%s' may be None",
            b->list_pattern->text, b->c->schema->args[slot].name);
    return dv__emit_op(b, DV__OP_LIST_TENSOR, DV__TYPE_TENSOR, guard, 1, &b->list_index_reg, slot, NULL);
}

/* Emits the length of a returned list: that of an argument's list with the same index, which is always given. Sets b->status to
 * an error if there is none. */
dv__operand dv__emit_list_result_length(dv__builder *b, const dv__pattern *returned_list)
{
    const dv__operand pattern_applies = dv__case_get_condition(b, returned_list->when);
    for (int any = 1; any >= 0; any--) /* pass 1: only a list with pattern xs{i}[...] that the result is like() or a view of; pass
                                          2: each list with dims */
        for (const dv__pattern *list = b->c->patterns, *end = list + b->c->npatterns; list < end; list++)
            if (list->kind == DV__PATTERN_LIST && list->presence != DV__PRESENCE_ABSENT &&
                !strcmp(list->index_name, returned_list->index_name) && list->dims.is_any_shape == any &&
                (!any || list->slot == returned_list->like_slot || list->slot == returned_list->viewed_slot) &&
                dv__condition_implies(b, pattern_applies, dv__emit_pattern_applies(b, list), 8))
                return dv__emit_load(b, DV__OP_LEN, DV__TYPE_INT, DV__ALWAYS, list->slot);
    if (!b->status)
        b->status = dv__fail_at_column(DV_ECONTRACT, b->c->text, returned_list->at,
            "'%s': its length is unknown: every list with the index %s may be absent", returned_list->text,
            returned_list->index_name);
    return DV__ALWAYS;
}

/* Emits the steps for a pattern of a list: its length, its first tensor, which binds variables, and a block that checks each
 * tensor. */
static void match_emit_list(dv__builder *b, const dv__pattern *t, dv__operand guard)
{
    struct match_input x = { .t = t, .phase = MATCH_BIND, .index = dv__builder_int_literal(b, 0) };
    dv__carry carries[DV_MAX_NDIM];
    uint32_t ncarries = 0;
    match_emit_equal_list_lengths(b, t, guard);
    dv__operand holds_tensor = dv__emit_load(b, DV__OP_HOLDS_TENSOR, DV__TYPE_BOOL, guard, t->slot);
    if (!t->can_be_empty && !t->dims.is_any_shape) {
        dv__emit_check(b, holds_tensor, guard, DV_EINVAL,
            dv__message(b, "argument '%s': expected at least one tensor%m, found an empty list", t->name,
                dv__message_make_case(b, t->when)));
        holds_tensor = DV__ALWAYS;
    }
    x.guard = dv__emit_and(b, guard, holds_tensor);
    memcpy(x.dim_bound, b->dim_bound, sizeof x.dim_bound);
    memcpy(x.variadic_bound, b->variadic_bound, sizeof x.variadic_bound);
    x.device_bound = b->device_bound;
    x.dtype = t->dtype.kind == DV__DTYPE_SPEC_VAR ? b->dtype_bound[t->dtype.ref] : DV__ALWAYS;
    const dv__operand pattern_applies = x.guard;
    x.tensor = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, pattern_applies, t->slot);
    match_emit_tensor(b, &x, carries, &ncarries);
    const uint32_t at = match_open_list_block(b, &x, pattern_applies);
    match_emit_tensor(b, &x, carries, &ncarries);
    dv__builder_close_block(b, at);
    dv__carry *copy = ncarries && !b->status ? DV__ARENA_ARRAY(b->arena, dv__carry, ncarries) : NULL;
    if (copy) {
        memcpy(copy, carries, ncarries * sizeof *carries);
        b->p->steps[at].carry = copy;
        b->p->steps[at].ncarry = ncarries;
    }
    for (uint32_t i = 0; i < t->dims.n; i++)
        if (t->dims.items[i].kind == DV__DIM_PER_TENSOR)
            b->dim_bound[t->dims.items[i].ref] = dv__emit_or(b, b->dim_bound[t->dims.items[i].ref], pattern_applies);
        else if (t->dims.items[i].kind == DV__DIM_PER_TENSOR_VARIADIC)
            b->variadic_bound[t->dims.items[i].ref] = dv__emit_or(b, b->variadic_bound[t->dims.items[i].ref], pattern_applies);
}

/* ---- Lengths of int[] arguments ------------------------------------------------------------------------------------------ */

/* Returns the message "expected 4 elements, found ..." for a list without tensors. */
static dv__message_part *match_make_length_mismatch_message(
    dv__builder *b, const dv__pattern *t, dv__operand found, dv__operand guard)
{
    const dv__dim_item *item = t->dims.items;
    dv__message_part *expected = match_make_item_sizes_message(b, item, guard),
                     *binders = dv__message_make_binders(b, item->vars);
    return dv__message(b, "argument '%s': expected %m elements%m, found %r", t->name, expected, binders, found);
}

/* Emits the steps that bind or check the length of a list without tensors, box[4]. */
static void match_emit_non_tensor_list_length(dv__builder *b, const dv__pattern *t, dv__operand guard)
{
    if (t->dims.is_any_shape)
        return;
    const dv__dim_item *item = t->dims.items;
    const bool ints = dv__type_get_contract_kind(b->c->schema->args[t->slot].type) == DV__TYPE_INTS;
    const dv__operand n = ints
        ? dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, guard, dv__emit_load(b, DV__OP_ARGUMENT, DV__TYPE_DIMS, guard, t->slot))
        : dv__emit_load(b, DV__OP_LEN, DV__TYPE_INT, guard, t->slot);
    b->message_text = item->text;
    dv__operand compared = guard, expected;
    if (item->kind == DV__DIM_VAR) {
        expected = dv__dim_register(item->ref);
        compared = dv__emit_and(b, guard, b->dim_bound[item->ref]);
    } else if (item->kind == DV__DIM_LITERAL) {
        expected = dv__builder_int_literal(b, item->value);
    } else {
        const dv__operand bound = match_emit_is_item_bound(b, item, MATCH_BIND_AND_CHECK, guard);
        compared = dv__emit_and(b, guard, bound);
        if (item->deferred_bit >= 0)
            b->deferred[item->deferred_bit] = (dv__deferred_check){ .pattern_applies = guard,
                .is_pending = dv__emit_and(b, guard, dv__emit_not(b, bound, DV__ALWAYS)),
                .bound_at_last_try = bound,
                .found_size_reg = n };
        expected = compared == DV__NEVER ? DV__ALWAYS : dv__emit_expr(b, item->e, compared);
    }
    if (compared != DV__NEVER)
        dv__emit_check(b, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, compared, n, expected), compared, DV_EINVAL,
            match_make_length_mismatch_message(b, t, n, compared));
    if (item->kind == DV__DIM_VAR) {
        dv__emit_copy(b, expected, n, dv__emit_and(b, guard, dv__emit_not(b, b->dim_bound[item->ref], DV__ALWAYS)));
        b->dim_bound[item->ref] = dv__emit_or(b, b->dim_bound[item->ref], guard);
    }
}

/* ---- Patterns ------------------------------------------------------------------------------------------------------------ */

/* Returns the message "argument 'x': expected <expected>, found <found>", with the case. */
static dv__message_part *match_make_presence_mismatch_message(
    dv__builder *b, const dv__pattern *t, const char *expected, dv__message_part *found)
{
    return dv__message(b, "argument '%s': expected %s%m, found %m", t->name, expected, dv__message_make_case(b, t->when), found);
}

/* Emits the load of an argument, which fails if the value has another type than the schema's. Only a caller in C can pass such
 * a value. */
static void match_emit_load_or_fail(dv__builder *b, const dv__pattern *t, dv__operand guard, enum dv__type_kind argument_type)
{
    const enum dv__opcode op = argument_type == DV__TYPE_TENSOR ? DV__OP_TENSOR
        : argument_type == DV__TYPE_TENSORS                     ? DV__OP_HOLDS_TENSOR
        : argument_type == DV__TYPE_INTS                        ? DV__OP_ARGUMENT
                                                                : DV__OP_LEN;
    const enum dv__type_kind type = argument_type == DV__TYPE_TENSOR ? DV__TYPE_TENSOR
        : argument_type == DV__TYPE_TENSORS                          ? DV__TYPE_BOOL
        : argument_type == DV__TYPE_INTS                             ? DV__TYPE_DIMS
                                                                     : DV__TYPE_INT;
    const dv__message_scope scope = dv__message_scope_begin(b);
    const dv__operand given = dv__emit_load(b, DV__OP_PRESENT, DV__TYPE_BOOL, DV__ALWAYS, t->slot);
    dv__message_scope_end(b, scope);
    dv__message_part *found = dv__message_if(b, given, dv__message(b, "another type"), dv__message(b, "None"));
    dv__emit_op(b, op, type, guard, 0, NULL, t->slot,
        dv__step_error_new(b, DV_EINVAL, match_make_presence_mismatch_message(b, t, dv__type_rows[argument_type].text, found)));
}

/* Emits the steps for one argument's pattern: whether it must be given, its type, and its device, dtype and dims. */
static void match_emit_pattern(dv__builder *b, const dv__pattern *t)
{
    const enum dv__type_kind argument_type = dv__type_get_contract_kind(b->c->schema->args[t->slot].type);
    const dv__operand taken = dv__case_get_condition(b, t->when), is_present = dv__emit_present(b, t->slot);
    b->message_argument = t->name;
    b->message_text = t->text;
    if (t->presence == DV__PRESENCE_ABSENT) {
        dv__emit_check(b, dv__emit_not(b, is_present, DV__ALWAYS), taken, DV_EINVAL,
            match_make_presence_mismatch_message(b, t, "None", dv__message(b, "%s", dv__type_rows[argument_type].text)));
        return;
    }
    const dv__operand guard = t->presence == DV__PRESENCE_OPTIONAL ? dv__emit_and(b, taken, is_present) : taken;
    if (guard == DV__NEVER)
        return;
    if (t->presence == DV__PRESENCE_PRESENT)
        dv__emit_check(b, is_present, taken, DV_EINVAL,
            match_make_presence_mismatch_message(b, t, dv__type_rows[argument_type].text, dv__message(b, "None")));
    match_emit_load_or_fail(b, t, guard, argument_type);
    if (t->kind == DV__PATTERN_LIST_LENGTH) {
        match_emit_non_tensor_list_length(b, t, guard);
    } else if (t->kind == DV__PATTERN_LIST) {
        match_emit_list(b, t, guard);
    } else {
        struct match_input x = { .t = t, .phase = MATCH_BIND_AND_CHECK, .guard = guard };
        x.tensor = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, guard, t->slot);
        match_emit_tensor(b, &x, NULL, NULL);
    }
}

/* Returns the position of an item in the current tensor of a list. The position differs from tensor to tensor only if the
 * pattern has *s{i}; else in_first, the position in the first tensor, is returned. */
static dv__shape_position match_find_list_position(
    dv__builder *b, const struct match_input *x, uint32_t item_index, dv__shape_position in_first)
{
    struct match_input input = *x;
    dv__shape_position positions[MAX_ITEMS];
    bool has_variadic = false;
    for (uint32_t i = 0; i < x->t->dims.n; i++)
        has_variadic |= x->t->dims.items[i].kind == DV__DIM_PER_TENSOR_VARIADIC;
    input.phase = MATCH_FIND_POSITIONS; /* the number of dims is checked already */
    return has_variadic && match_try_emit_positions(b, &input, positions) ? positions[item_index] : in_first;
}

/* Emits the check of a deferred computed dim whose sizes are bound now; for a list, of each tensor. */
void dv__build_deferred_dim(dv__builder *b, const dv__pattern *t, uint32_t item_index, dv__operand guard)
{
    const dv__dim_item *item = &t->dims.items[item_index];
    const dv__deferred_check *a = &b->deferred[item->deferred_bit];
    struct match_input x = { .t = t, .phase = MATCH_BIND_AND_CHECK, .guard = guard };
    b->message_argument = t->name;
    b->message_text = item->text;
    const dv__operand expected = dv__emit_expr(b, item->e, guard);
    if (t->kind == DV__PATTERN_LIST_LENGTH) {
        dv__emit_check(b, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, guard, a->found_size_reg, expected), guard, DV_EINVAL,
            dv__message(
                b, "argument '%s': expected %s = %r elements, found %r", t->name, item->text, expected, a->found_size_reg));
        return;
    }
    uint32_t at = 0;
    dv__operand g = guard;
    const bool list = t->kind == DV__PATTERN_LIST;
    if (list) {
        memcpy(x.dim_bound, b->dim_bound, sizeof x.dim_bound);
        memcpy(x.variadic_bound, b->variadic_bound, sizeof x.variadic_bound);
        at = match_open_list_block(b, &x, guard);
        g = DV__ALWAYS;
    } else {
        x.tensor = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, a->pattern_applies, t->slot);
    }
    x.shape = dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, list ? g : a->pattern_applies, x.tensor);
    const dv__shape_position position = list ? match_find_list_position(b, &x, item_index, a->position) : a->position;
    const dv__operand found = list ? match_emit_size_at(b, &x, &position, g) : a->found_size_reg;
    dv__emit_check(b, dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, g, found, expected), g, DV_ESHAPE,
        match_make_shape_mismatch_message(b, &x, (int32_t)item_index));
    if (list)
        dv__builder_close_block(b, at);
}

/* ---- Cases --------------------------------------------------------------------------------------------------------------- */

/* Returns the message that no case of a group holds: the values that cases name, and the value in register `found`; negative:
 * None. */
static dv__message_part *cases_make_no_case_holds_message(dv__builder *b, const dv__case_group *g, dv__operand found)
{
    const dv__expr *subject = g->switch_value;
    if (!subject)
        return dv__message(b, "no case holds of: when %s", g->cases[0].text);
    const int argument = subject->role == DV__ROLE_ARGUMENT         ? subject->ref
        : subject->n && subject->args[0]->role == DV__ROLE_ARGUMENT ? subject->args[0]->ref
                                                                    : -1;
    dv__message_part *p = dv__message(b, "argument '%s': expected %s", argument >= 0 ? b->c->schema->args[argument].name : "?",
        subject->type == DV__TYPE_INT ? "rank " : "");
    for (uint32_t i = 0, n = 0; i < g->n; i++)
        for (uint32_t k = 1; g->cases[i].e && k < g->cases[i].e->n; k++, n++) {
            const dv__expr *e = g->cases[i].e->args[k];
            const char *before = !n ? "" : i + 1 == g->n && k + 1 == g->cases[i].e->n ? " or " : ", ";
            if (e->kind == DV__EXPR_INT)
                p = dv__message(b, "%m%s%r", p, before, dv__builder_int_literal(b, e->i));
            else
                p = dv__message(b, e->kind == DV__EXPR_STRING ? "%m%s\"%s\"" : "%m%s%s", p, before,
                    e->name    ? e->name
                        : e->i ? "True"
                               : "False");
        }
    return found >= 0 ? dv__message(b, "%m, found %r", p, found) : dv__message(b, "%m, found None", p);
}

/* Emits the string, rank or dtype for whose values a group has cases. DV__ALWAYS: the group has conditions instead. */
static dv__operand cases_emit_switch_value(dv__builder *b, const dv__expr *e)
{
    if (!e || (e->type != DV__TYPE_STRING && e->type != DV__TYPE_INT && e->type != DV__TYPE_DTYPE))
        return DV__ALWAYS;
    const dv__message_scope scope = dv__message_scope_begin(b);
    const dv__operand x = dv__emit_expr(b, e, DV__ALWAYS);
    dv__message_scope_end(b, scope);
    return x;
}

/* Selects the case of each group: the first whose condition holds. The prover proves that no other condition holds. */
static void cases_emit_selection(dv__builder *b)
{
    for (uint32_t g = 0; g < b->c->ngroups && !b->status; g++) {
        const dv__case_group *group = &b->c->groups[g];
        dv__operand *taken = DV__ARENA_ARRAY(b->arena, dv__operand, group->n), any = DV__NEVER;
        dv__case_choice *choice = &b->choices[g];
        choice->case_conditions = DV__ARENA_ARRAY(b->arena, dv__operand, group->n);
        if (!taken || !choice->case_conditions) {
            b->status = DV_ENOMEM;
            return;
        }
        for (uint32_t i = 0; i < group->n; i++) {
            const dv__operand left = dv__emit_not(b, any, DV__ALWAYS);
            b->message_argument = NULL;
            b->message_text = group->cases[i].text;
            choice->case_conditions[i] = DV__ALWAYS;
            if (group->cases[i].e)
                choice->case_conditions[i] = dv__emit_expr(b, group->cases[i].e, left == DV__NEVER ? DV__ALWAYS : left);
            taken[i] = dv__emit_and(b, left, choice->case_conditions[i]);
            any = dv__emit_or(b, any, taken[i]);
        }
        choice->switch_value = cases_emit_switch_value(b, group->switch_value);
        if (any != DV__ALWAYS) { /* after the check, the last case is selected if no other is */
            dv__emit_check(b, any, DV__ALWAYS, DV_EINVAL, cases_make_no_case_holds_message(b, group, choice->switch_value));
            any = DV__NEVER;
            for (uint32_t i = 0; i + 1 < group->n; i++)
                any = dv__emit_or(b, any, taken[i]);
            taken[group->n - 1] = dv__emit_not(b, any, DV__ALWAYS);
        }
        b->p->is_selected[g] = taken;
    }
    b->p->cases_end_step = b->p->nsteps;
}

/* Emits all steps for cases and for the patterns of arguments, in the order of the text. */
void dv__build_patterns(dv__builder *b)
{
    const dv__contract *c = b->c;
    bool plain = true;
    cases_emit_selection(b);
    for (uint32_t i = 0; i < c->npatterns && !b->status; i++) {
        if (plain && !(i < c->nsimple_patterns && c->patterns[i].presence == DV__PRESENCE_REQUIRED)) {
            plain = false;
            b->p->after_simple = b->reusable_begin_step = b->p->nsteps;
            b->p->nsimple_patterns = i;
        }
        match_emit_pattern(b, &c->patterns[i]);
    }
    if (plain) {
        b->p->after_simple = b->reusable_begin_step = b->p->nsteps;
        b->p->nsimple_patterns = c->npatterns;
    }
}
