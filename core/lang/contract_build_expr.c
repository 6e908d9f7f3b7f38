/* Builds the steps of expressions. A check before an operation covers its possible errors, so the operation itself always has a
 * value and may be computed or skipped under a guard. */
#include "lang/contract_build.h"

/* Returns the schema's argument in a slot. */
static const dv__argument *builder_get_argument(const dv__builder *b, int32_t slot) { return &b->c->schema->args[slot]; }

/* Returns the error for arithmetic of the current item whose result does not fit 64 bits. NULL: in a message scope, where no
 * step may fail. */
static const dv__step_error *builder_find_overflow_error(dv__builder *b)
{
    if (b->is_in_message)
        return NULL;
    if (!b->overflow_error || b->overflow_argument != b->message_argument || b->overflow_text != b->message_text) {
        b->overflow_error = dv__step_error_new(
            b, DV_ESHAPE, dv__message(b, "%mthe result does not fit 64 bits", dv__message_make_item_prefix(b)));
        b->overflow_argument = b->message_argument;
        b->overflow_text = b->message_text;
    }
    return b->overflow_error;
}

/* Emits a check whose message begins with the current argument and item. */
static void emit_check_with_item_prefix(dv__builder *b, dv__operand condition, dv__operand guard, dv__message_part *message)
{
    dv__emit_check(b, condition, guard, DV_ESHAPE, dv__message(b, "%m%m", dv__message_make_item_prefix(b), message));
}

/* ---- Arguments ----------------------------------------------------------------------------------------------------------- */

/* Returns the condition that an argument is given. DV__ALWAYS: the schema requires the argument. */
dv__operand dv__emit_present(dv__builder *b, int32_t slot)
{
    return builder_get_argument(b, slot)->type->kind == DV__TYPE_OPTIONAL
        ? dv__emit_load(b, DV__OP_PRESENT, DV__TYPE_BOOL, DV__ALWAYS, slot)
        : DV__ALWAYS;
}

/* Returns the message "argument 'dim': expected an integer for dim + 1, found None". */
static dv__message_part *message_make_missing_argument(dv__builder *b, int32_t slot, const char *expected_noun)
{
    const dv__operand is_present = dv__emit_load(b, DV__OP_PRESENT, DV__TYPE_BOOL, DV__ALWAYS, slot);
    dv__message_part *found = dv__message_if(b, is_present, dv__message(b, "another type"), dv__message(b, "None"));
    return dv__message(b, "argument '%s': expected %s for %s, found %m", builder_get_argument(b, slot)->name, expected_noun,
        b->message_text, found);
}

/* Returns the value's register. In a message scope an absent value is replaced by a default, since messages may read it. */
static dv__operand emit_value_or_default(dv__builder *b, dv__operand is_present, dv__operand value, dv__operand guard)
{
    if (!b->is_in_message || is_present == DV__ALWAYS)
        return value;
    const enum dv__type_kind type = dv__builder_operand_type(b, value);
    dv__reg default_value = { 0 };
    if (type == DV__TYPE_DTYPE)
        default_value.dtype = dv_dtype_from_key(DV_DTYPE_bool);
    return dv__emit_select(
        b, guard, is_present, value, type == DV__TYPE_BOOL ? DV__NEVER : dv__builder_add_literal(b, type, default_value));
}

/* Emits the load of an argument and, if it is optional, the check that it is given. Returns the value's register. The load
 * itself fails for a type other than the schema's, which only a caller in C can pass. */
static dv__operand emit_argument_value(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, int32_t slot, dv__operand guard, const char *expected_noun)
{
    const dv__operand is_present = dv__emit_present(b, slot);
    if (dv__condition_can_fail(b, is_present, guard)) {
        dv__obligation_add(b, guard, is_present, NULL, NULL);
        dv__emit_check(b, is_present, guard, DV_EINVAL, message_make_missing_argument(b, slot, expected_noun));
    }
    const bool was_in_message = b->is_in_message;
    const dv__message_scope scope = dv__message_scope_begin(b); /* only messages read the steps of this scope */
    const dv__step_error *error = was_in_message
        ? NULL
        : dv__step_error_new(b, DV_EINVAL, message_make_missing_argument(b, slot, expected_noun));
    dv__message_scope_end(b, scope);
    for (uint32_t i = b->reusable_begin_step; i < b->p->nsteps && !b->status;
        i++) { /* an earlier load of the argument has the same error */
        const dv__step *s = &b->p->steps[i];
        if (s->op == op && s->slot == slot && s->type == type && s->error && !(s->flags & DV__STEP_IN_BLOCK) &&
            dv__condition_implies(b, guard, s->guard, 6))
            error = s->error;
    }
    const dv__operand value = dv__emit_op(b, op, type, dv__emit_and(b, guard, is_present), 0, NULL, slot, error);
    return emit_value_or_default(b, is_present, value, guard);
}

/* Emits the load of an int[] argument. Returns the register, of type DIMS. */
static dv__operand emit_int_list_argument(dv__builder *b, int32_t slot, dv__operand guard)
{
    return emit_argument_value(b, DV__OP_ARGUMENT, DV__TYPE_DIMS, slot, guard, "a list of integers");
}

/* Emits a property (op) of a tensor argument, of a list's first tensor or, for x{i}, of a list's tensor at the result's index.
 * Returns the register. */
static dv__operand emit_tensor_property(
    dv__builder *b, enum dv__opcode op, enum dv__type_kind type, const dv__expr *e, dv__operand guard)
{
    const bool list = e->type == DV__TYPE_TENSORS;
    if (e->index_name)
        return dv__emit_op1(b, op, type, guard, dv__emit_list_result_input(b, e->ref, guard));
    const dv__operand is_present = list ? dv__emit_load(b, DV__OP_HOLDS_TENSOR, DV__TYPE_BOOL, DV__ALWAYS, e->ref)
                                        : dv__emit_present(b, e->ref);
    if (dv__condition_can_fail(b, is_present, guard))
        dv__emit_check(b, is_present, guard, DV_EINVAL,
            dv__message(b, "argument '%s': expected a tensor for %s, found None", e->name, b->message_text));
    const dv__operand g = dv__emit_and(b, guard, is_present);
    const dv__operand x = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, g, e->ref);
    return emit_value_or_default(b, is_present, dv__emit_op1(b, op, type, b->is_in_message ? g : guard, x), guard);
}

/* Emits the sizes of a tensor argument, of the first tensor of a list, or of variadic dims. Returns the register. */
static dv__operand emit_sizes(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    return e->type == DV__TYPE_DIMS ? dv__emit_expr(b, e, guard) : emit_tensor_property(b, DV__OP_SHAPE, DV__TYPE_DIMS, e, guard);
}

/* Emits the number of dims of a register of type DIMS. Returns its register. */
static dv__operand emit_rank(dv__builder *b, dv__operand dims, dv__operand guard)
{
    return dv__emit_op1(b, DV__OP_RANK, DV__TYPE_INT, guard, dims);
}

/* ---- Dims by number ------------------------------------------------------------------------------------------------------ */

/* Returns the message "<subject>: expected a dim from -2 to 1, found 3". The range is that of max(rank, 1) dims. */
static dv__message_part *message_make_axis_out_of_range(
    dv__builder *b, dv__message_part *subject, dv__operand rank, dv__message_part *found, dv__operand guard)
{
    const dv__message_scope scope = dv__message_scope_begin(b);
    const dv__operand n = dv__emit_op2(b, DV__OP_MAX, DV__TYPE_INT, guard, rank, dv__builder_int_literal(b, 1));
    const dv__operand low = dv__emit_op1(b, DV__OP_NEG, DV__TYPE_INT, guard, n);
    const dv__operand high = dv__emit_op2(b, DV__OP_SUB, DV__TYPE_INT, guard, n, dv__builder_int_literal(b, 1));
    dv__message_scope_end(b, scope);
    return dv__message(b, "%m: expected a dim from %r to %r, found %m", subject, low, high, found);
}

/* Emits the check that dim is a dim of the rank, and the dim counted from 0. Returns the latter's register. subject: what the
 * message begins with. */
dv__operand dv__emit_axis(dv__builder *b, dv__operand dim, dv__operand rank, dv__operand guard, dv__message_part *subject)
{
    const dv__operand is_valid = dv__emit_op2(b, DV__OP_IS_AXIS, DV__TYPE_BOOL, guard, dim, rank);
    if (dv__condition_can_fail(b, is_valid, guard))
        dv__emit_check(
            b, is_valid, guard, DV_EINVAL, message_make_axis_out_of_range(b, subject, rank, dv__message(b, "%r", dim), guard));
    return dv__emit_op2(b, DV__OP_AXIS, DV__TYPE_INT, guard, dim, rank);
}

/* Returns "argument 'dim'" if e is an argument, else the text of the current item. */
static dv__message_part *message_make_axis_subject(dv__builder *b, const dv__expr *e)
{
    return e->role == DV__ROLE_ARGUMENT ? dv__message(b, "argument '%s'", e->name) : dv__message(b, "%s", b->message_text);
}

/* Emits the dim that an expression gives, checked and counted from 0. Returns its register. */
static dv__operand emit_axis_of_expr(dv__builder *b, const dv__expr *e, dv__operand rank, dv__operand guard)
{
    const dv__operand dim = dv__emit_expr(b, e, guard);
    return dv__emit_axis(b, dim, rank, guard, message_make_axis_subject(b, e));
}

/* Returns a part of a kind that prints a wrong or repeated entry of an int[] of dims. */
static dv__message_part *message_make_part_of_axes(
    dv__builder *b, enum dv__message_part_kind kind, dv__operand axes, dv__operand rank)
{
    dv__message_part *p = dv__message_part_new(b, kind);
    if (p)
        p->a = axes, p->b = rank;
    return p;
}

/* Emits checks of the dims in an int[]: each must exist, and none may repeat. */
static void emit_axes_checks(dv__builder *b, const dv__expr *axes_expr, dv__operand axes, dv__operand rank, dv__operand guard)
{
    const dv__operand are_axes_valid = dv__emit_op2(b, DV__OP_ARE_AXES, DV__TYPE_BOOL, guard, axes, rank);
    if (dv__condition_can_fail(b, are_axes_valid, guard))
        dv__emit_check(b, are_axes_valid, guard, DV_EINVAL,
            message_make_axis_out_of_range(b, message_make_axis_subject(b, axes_expr), rank,
                message_make_part_of_axes(b, DV__PART_WRONG_AXIS, axes, rank), guard));
    const dv__operand are_axes_distinct = dv__emit_op2(b, DV__OP_DISTINCT_AXES, DV__TYPE_BOOL, guard, axes, rank);
    if (dv__condition_can_fail(b, are_axes_distinct, guard))
        dv__emit_check(b, are_axes_distinct, guard, DV_EINVAL,
            dv__message(b, "argument '%s': dim %m appears more than once", axes_expr->name ? axes_expr->name : b->message_text,
                message_make_part_of_axes(b, DV__PART_REPEATED_AXIS, axes, rank)));
}

/* Returns a part of a kind that has n operands. */
static dv__message_part *message_make_part_of_operands(
    dv__builder *b, enum dv__message_part_kind kind, const dv__operand *operands, uint32_t n)
{
    dv__message_part *p = dv__message_part_new(b, kind);
    if (p) {
        p->operands = dv__builder_copy_operands(b, operands, n);
        p->noperands = (uint8_t)n;
    }
    return p;
}

/* ---- Variadic dims ------------------------------------------------------------------------------------------------------- */

/* Emits broadcast(...): the check that the shapes broadcast, and the resulting shape. Returns its register. */
static dv__operand emit_broadcast(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand shapes[256] = { 0 };
    const uint32_t n = e->n < 255 ? e->n : 255;
    if (e->n > 255)
        b->status = dv__fail_at_column(DV_ELIMIT, b->c->text, e->at, "more than 255 operands");
    for (uint32_t i = 0; i < n; i++)
        shapes[i] = dv__emit_expr(b, e->args[i], guard);
    const dv__operand fit = dv__emit_op(b, DV__OP_CAN_BROADCAST, DV__TYPE_BOOL, guard, n, shapes, 0, NULL);
    if (dv__condition_can_fail(b, fit, guard)) {
        dv__message_part *all = NULL;
        for (uint32_t i = 0; i < n; i++) {
            const bool is_variadic = e->args[i]->role == DV__ROLE_VARIADIC;
            all = dv__message(b, "%m%s[%r]%m", all, i ? " and " : "", shapes[i],
                is_variadic ? dv__message_make_binder(b, true, e->args[i]->ref, " (", ")") : NULL);
        }
        emit_check_with_item_prefix(b, fit, guard,
            dv__message(b, "shapes %m do not broadcast: %m", all,
                message_make_part_of_operands(b, DV__PART_BROADCAST_CONFLICT, shapes, n)));
    }
    return dv__emit_op(b, DV__OP_BROADCAST, DV__TYPE_DIMS, guard, n, shapes, 0, NULL);
}

/* Emits reduced(*s, dim, keepdim) and returns its register. dim may be an int or an int[]; None and the empty list mean all
 * dims, as in torch.sum. */
static dv__operand emit_reduced(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__expr *axes_expr = e->args[1];
    const dv__operand from = dv__emit_expr(b, e->args[0], guard), keep = dv__emit_expr(b, e->args[2], guard);
    const dv__operand is_present = axes_expr->role == DV__ROLE_ARGUMENT ? dv__emit_present(b, axes_expr->ref) : DV__ALWAYS;
    const dv__operand axes_guard = dv__emit_and(b, guard, is_present), rank = emit_rank(b, from, guard);
    dv__operand axes = axes_expr->type == DV__TYPE_INTS ? emit_int_list_argument(b, axes_expr->ref, axes_guard)
                                                        : dv__emit_expr(b, axes_expr, axes_guard);
    if (axes_expr->type != DV__TYPE_INTS)
        axes = dv__emit_op1(b, DV__OP_PACK, DV__TYPE_DIMS, axes_guard, axes);
    emit_axes_checks(b, axes_expr, axes, rank, axes_guard);
    axes = dv__emit_select(b, guard, is_present, axes, dv__builder_add_literal(b, DV__TYPE_DIMS, (dv__reg){ 0 }));
    return dv__emit_op3(b, DV__OP_REDUCED, DV__TYPE_DIMS, guard, from, axes, keep);
}

/* Emits swap(*s, d0, d1) or permute(*s, dims), with the checks of the dims. Returns the register. */
static dv__operand emit_swap_or_permute(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand from = dv__emit_expr(b, e->args[0], guard), rank = emit_rank(b, from, guard);
    if (e->ref == DV__FN_SWAP) {
        const dv__operand x = dv__emit_expr(b, e->args[1], guard), y = dv__emit_expr(b, e->args[2], guard);
        const dv__operand i = dv__emit_axis(b, x, rank, guard, message_make_axis_subject(b, e->args[1]));
        const dv__operand k = dv__emit_axis(b, y, rank, guard, message_make_axis_subject(b, e->args[2]));
        return dv__emit_op3(b, DV__OP_SWAP, DV__TYPE_DIMS, guard, from, i, k);
    }
    const dv__expr *list = e->args[1];
    const dv__operand order = emit_int_list_argument(b, list->ref, guard), n = emit_rank(b, order, guard);
    const dv__operand fits = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, guard, n, rank);
    if (dv__condition_can_fail(b, fits, guard))
        dv__emit_check(
            b, fits, guard, DV_EINVAL, dv__message(b, "argument '%s': expected %r dims, found %r", list->name, rank, n));
    emit_axes_checks(b, list, order, rank, guard);
    return dv__emit_op2(b, DV__OP_PERMUTE, DV__TYPE_DIMS, guard, from, order);
}

/* Emits *size: the elements of an int[] argument as dims, and the check that they are at most DV_MAX_NDIM. Returns the
 * register. */
static dv__operand emit_int_list_as_dims(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand list = emit_int_list_argument(b, e->ref, guard), n = emit_rank(b, list, guard);
    const dv__operand fits = dv__emit_op2(b, DV__OP_LE, DV__TYPE_INT, guard, n, dv__builder_int_literal(b, DV_MAX_NDIM));
    if (dv__condition_can_fail(b, fits, guard))
        dv__emit_check(b, fits, guard, DV_ESHAPE,
            dv__message(b, "argument '%s': expected at most %d dims, found %r", e->name, DV_MAX_NDIM, n));
    return list;
}

/* Emits an expression that is several dims. Returns its register. */
static dv__operand emit_dims_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->role == DV__ROLE_VARIADIC)
        return dv__variadic_register(b->c, e->ref);
    if (e->role == DV__ROLE_PER_TENSOR_VARIADIC)
        return dv__emit_list_result_variable(b, e, guard);
    if (e->role == DV__ROLE_INT_LIST)
        return emit_int_list_as_dims(b, e, guard);
    switch (e->ref) {
    case DV__FN_BROADCAST: return emit_broadcast(b, e, guard);
    case DV__FN_REDUCED: return emit_reduced(b, e, guard);
    case DV__FN_SHAPE: return emit_sizes(b, e->args[0], guard);
    default: return emit_swap_or_permute(b, e, guard);
    }
}

/* ---- Integers ------------------------------------------------------------------------------------------------------------ */

/* Emits size[i] of an int[] argument, with the check that the list is long enough. Returns the register. */
static dv__operand emit_int_list_element(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__expr *list = e->args[0];
    const dv__operand sizes = emit_int_list_argument(b, list->ref, guard), i = dv__emit_expr(b, e->args[1], guard);
    const dv__operand n = emit_rank(b, sizes, guard);
    dv__operand wanted, negated;
    const dv__operand zero = dv__builder_int_literal(b, 0), one = dv__builder_int_literal(b, 1);
    dv__operand fits;
    if (e->args[1]->kind == DV__EXPR_INT) {
        wanted = dv__builder_int_literal(b, e->args[1]->i + 1);
        fits = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, n, wanted);
    } else { /* i is valid if -n <= i < n; so the list needs max(i + 1, -i) elements */
        negated = dv__emit_op1(b, DV__OP_NEG, DV__TYPE_INT, guard, n);
        const dv__operand low = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, i, negated);
        const dv__operand high = dv__emit_op2(b, DV__OP_LT, DV__TYPE_INT, guard, i, n);
        fits = dv__emit_and_under(b, guard, low, high);
        const dv__message_scope scope = dv__message_scope_begin(b);
        negated = dv__emit_op1(b, DV__OP_NEG, DV__TYPE_INT, guard, i);
        const dv__operand next = dv__emit_op2(b, DV__OP_ADD, DV__TYPE_INT, guard, i, one);
        const dv__operand below = dv__emit_op2(b, DV__OP_LT, DV__TYPE_INT, guard, i, zero);
        wanted = dv__emit_select(b, guard, below, negated, next);
        dv__message_scope_end(b, scope);
    }
    if (dv__condition_can_fail(b, fits, guard))
        dv__emit_check(b, fits, guard, DV_EINVAL,
            dv__message(
                b, "argument '%s': expected at least %r elements for %s, found %r", list->name, wanted, b->message_text, n));
    return dv__emit_op2(b, DV__OP_SIZE_AT, DV__TYPE_INT, guard, sizes, i);
}

/* Emits size(x, d) or stride(x, d), with the checks of d. Returns the register. */
static dv__operand emit_size_or_stride(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand shape = emit_sizes(b, e->args[0], guard), rank = emit_rank(b, shape, guard);
    const dv__operand dim = emit_axis_of_expr(b, e->args[1], rank, guard);
    const dv__operand has_dims = dv__emit_op2(b, DV__OP_GT, DV__TYPE_INT, guard, rank, dv__builder_int_literal(b, 0));
    if (dv__condition_can_fail(b, has_dims, guard))
        emit_check_with_item_prefix(b, has_dims, guard, dv__message(b, "expected at least one dim, found none"));
    if (e->ref == DV__FN_SIZE)
        return dv__emit_op2(b, DV__OP_SIZE_AT, DV__TYPE_INT, guard, shape, dim);
    const dv__operand strides = emit_tensor_property(b, DV__OP_STRIDES, DV__TYPE_DIMS, e->args[0], guard);
    return dv__emit_op2(b, DV__OP_SIZE_AT, DV__TYPE_INT, guard, strides, dim);
}

/* Emits the check that the divisor is not 0. Returns a register with the divisor, where 0 is replaced by 1, so that the program
 * is total. */
static dv__operand emit_divisor(dv__builder *b, dv__operand divisor, dv__operand guard, enum dv__type_kind type)
{
    if (divisor < 0 && type == DV__TYPE_INT && !b->status && b->p->constants[-1 - divisor].i)
        return divisor;
    const dv__operand zero = type == DV__TYPE_INT ? dv__builder_int_literal(b, 0)
                                                  : dv__builder_add_literal(b, type, (dv__reg){ .f = 0, .is_real = 1 });
    const dv__operand one = type == DV__TYPE_INT ? dv__builder_int_literal(b, 1)
                                                 : dv__builder_add_literal(b, type, (dv__reg){ .f = 1, .is_real = 1 });
    const dv__operand is_nonzero = dv__emit_op2(b, DV__OP_NE, type, guard, divisor, zero);
    if (dv__condition_can_fail(b, is_nonzero, guard))
        emit_check_with_item_prefix(b, is_nonzero, guard, dv__message(b, "division by zero"));
    return dv__emit_select(b, guard, is_nonzero, divisor, one);
}

/* Emits x / divisor, with the check that there is no remainder. Returns the register. */
static dv__operand emit_exact_division(dv__builder *b, dv__operand x, dv__operand divisor, dv__operand guard)
{
    const dv__operand d = emit_divisor(b, divisor, guard, DV__TYPE_INT), in[] = { x, d };
    const dv__operand rest = dv__emit_op2(b, DV__OP_MOD, DV__TYPE_INT, guard, x, d);
    const dv__operand is_divisible = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, guard, rest, dv__builder_int_literal(b, 0));
    if (dv__condition_can_fail(b, is_divisible, guard))
        emit_check_with_item_prefix(b, is_divisible, guard, dv__message(b, "%r is not divisible by %r", x, divisor));
    return dv__emit_op(b, DV__OP_FLOORDIV, DV__TYPE_INT, guard, 2, in, 0, builder_find_overflow_error(b));
}

/* Returns the operation of a binary operator of expressions. GE and all other kinds: DV__OP_GE. */
static enum dv__opcode expr_kind_to_opcode(enum dv__expr_kind kind)
{
    switch (kind) {
    case DV__EXPR_ADD: return DV__OP_ADD;
    case DV__EXPR_SUB: return DV__OP_SUB;
    case DV__EXPR_MUL: return DV__OP_MUL;
    case DV__EXPR_DIV: return DV__OP_DIV;
    case DV__EXPR_FLOORDIV: return DV__OP_FLOORDIV;
    case DV__EXPR_MOD: return DV__OP_MOD;
    case DV__EXPR_EQ:
    case DV__EXPR_IN: return DV__OP_EQ;
    case DV__EXPR_NE: return DV__OP_NE;
    case DV__EXPR_LT: return DV__OP_LT;
    case DV__EXPR_LE: return DV__OP_LE;
    case DV__EXPR_GT: return DV__OP_GT;
    default: return DV__OP_GE;
    }
}

/* Emits arithmetic on integers, with the checks of divisors. Returns the register. */
static dv__operand emit_arithmetic(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[2] = { dv__emit_expr(b, e->args[0], guard), 0 };
    if (e->kind == DV__EXPR_NEG)
        return dv__emit_op(b, DV__OP_NEG, DV__TYPE_INT, guard, 1, in, 0, builder_find_overflow_error(b));
    in[1] = dv__emit_expr(b, e->args[1], guard);
    if (e->kind == DV__EXPR_DIV)
        return emit_exact_division(b, in[0], in[1], guard);
    if (e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD)
        in[1] = emit_divisor(b, in[1], guard, DV__TYPE_INT);
    return dv__emit_op(b, expr_kind_to_opcode(e->kind), DV__TYPE_INT, guard, 2, in, 0, builder_find_overflow_error(b));
}

/* Emits if(condition, a, b); emit_branch() emits a and b, each under its condition. Returns the register. */
static dv__operand emit_if(dv__builder *b, const dv__expr *e, dv__operand guard,
    dv__operand (*emit_branch)(dv__builder *, const dv__expr *, dv__operand))
{
    const dv__operand c = dv__emit_expr(b, e->args[0], guard);
    const dv__operand yes = dv__emit_and(b, guard, c), no = dv__emit_and(b, guard, dv__emit_not(b, c, guard));
    if (yes == DV__NEVER || no == DV__NEVER)
        return emit_branch(b, e->args[yes == DV__NEVER ? 2 : 1], guard);
    const dv__operand x = emit_branch(b, e->args[1], yes), y = emit_branch(b, e->args[2], no);
    return dv__emit_select(b, guard, c, x, y);
}

/* Emits min(...) or max(...) of integers. Returns the register. */
static dv__operand emit_min_or_max(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand result = dv__emit_expr(b, e->args[0], guard);
    for (uint32_t i = 1; i < e->n; i++)
        result = dv__emit_op2(
            b, e->ref == DV__FN_MIN ? DV__OP_MIN : DV__OP_MAX, DV__TYPE_INT, guard, result, dv__emit_expr(b, e->args[i], guard));
    return result;
}

/* Emits len() of an argument that is a list. Returns the register. */
static dv__operand emit_length(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->type == DV__TYPE_INTS)
        return emit_rank(b, emit_argument_value(b, DV__OP_ARGUMENT, DV__TYPE_DIMS, e->ref, guard, "a list"), guard);
    return emit_argument_value(b, DV__OP_LEN, DV__TYPE_INT, e->ref, guard, "a list");
}

/* Emits a call of a function whose result is an integer. Returns the register. */
static dv__operand emit_int_call(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[2];
    switch (e->ref) {
    case DV__FN_MIN:
    case DV__FN_MAX: return emit_min_or_max(b, e, guard);
    case DV__FN_ABS:
        in[0] = dv__emit_expr(b, e->args[0], guard);
        return dv__emit_op(b, DV__OP_ABS, DV__TYPE_INT, guard, 1, in, 0, builder_find_overflow_error(b));
    case DV__FN_CEILDIV:
        in[0] = dv__emit_expr(b, e->args[0], guard);
        in[1] = emit_divisor(b, dv__emit_expr(b, e->args[1], guard), guard, DV__TYPE_INT);
        return dv__emit_op(b, DV__OP_CEILDIV, DV__TYPE_INT, guard, 2, in, 0, builder_find_overflow_error(b));
    case DV__FN_IF: return emit_if(b, e, guard, dv__emit_expr);
    case DV__FN_LEN: return emit_length(b, e->args[0], guard);
    case DV__FN_RANK: return emit_rank(b, emit_sizes(b, e->args[0], guard), guard);
    case DV__FN_NUMEL:
        in[0] = emit_sizes(b, e->args[0], guard);
        return dv__emit_op(b, DV__OP_NUMEL, DV__TYPE_INT, guard, 1, in, 0, builder_find_overflow_error(b));
    case DV__FN_SIZE:
    case DV__FN_STRIDE: return emit_size_or_stride(b, e, guard);
    case DV__FN_TOTAL: return dv__dim_register(e->args[0]->ref);
    case DV__FN_AXIS:
        in[0] = dv__emit_expr(b, e->args[0], guard);
        in[1] = emit_rank(b, emit_sizes(b, e->args[1], guard), guard);
        return dv__emit_axis(b, in[0], in[1], guard, message_make_axis_subject(b, e->args[0]));
    default: return dv__emit_op1(b, DV__OP_ITEMSIZE, DV__TYPE_INT, guard, dv__emit_expr(b, e->args[0], guard));
    }
}

/* Emits an expression of type INT. Returns its register. */
static dv__operand emit_int_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    switch (e->kind) {
    case DV__EXPR_INT: return dv__builder_int_literal(b, e->i);
    case DV__EXPR_NAME:
        return e->role == DV__ROLE_LIST_INDEX    ? b->list_index_reg
            : e->role == DV__ROLE_PER_TENSOR_DIM ? dv__emit_list_result_variable(b, e, guard)
            : e->role == DV__ROLE_ARGUMENT ? emit_argument_value(b, DV__OP_ARGUMENT, DV__TYPE_INT, e->ref, guard, "an integer")
                                           : dv__dim_register(e->ref);
    case DV__EXPR_SUBSCRIPT: return emit_int_list_element(b, e, guard);
    case DV__EXPR_CALL: return emit_int_call(b, e, guard);
    default: return emit_arithmetic(b, e, guard);
    }
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------------- */

/* Emits an expression that may be an integer or a real number. Returns its register, of type NUMBER. */
static dv__operand emit_number_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->type == DV__TYPE_INT)
        return dv__emit_op1(b, DV__OP_TO_NUMBER, DV__TYPE_NUMBER, guard, dv__emit_expr(b, e, guard));
    if (e->kind == DV__EXPR_ATTR)
        return b->element;
    if (e->kind == DV__EXPR_NAME)
        return emit_argument_value(b, DV__OP_ARGUMENT, DV__TYPE_NUMBER, e->ref, guard, "a real number");
    if (e->kind == DV__EXPR_CALL)
        return emit_if(b, e, guard, emit_number_expr);
    if (e->kind == DV__EXPR_FLOAT)
        return dv__builder_add_literal(b, DV__TYPE_NUMBER, (dv__reg){ .f = e->f, .is_real = 1 });
    dv__operand in[2] = { emit_number_expr(b, e->args[0], guard), 0 };
    if (e->kind == DV__EXPR_NEG)
        return dv__emit_op(b, DV__OP_NEG, DV__TYPE_NUMBER, guard, 1, in, 0, builder_find_overflow_error(b));
    in[1] = emit_number_expr(b, e->args[1], guard);
    if (e->kind == DV__EXPR_DIV)
        in[1] = emit_divisor(b, in[1], guard, DV__TYPE_NUMBER);
    return dv__emit_op(b, expr_kind_to_opcode(e->kind), DV__TYPE_NUMBER, guard, 2, in, 0, builder_find_overflow_error(b));
}

/* Emits an expression in real numbers, for flops and bytes. Returns its register, of type REAL. */
dv__operand dv__emit_real_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand x, y;
    switch (e->kind) {
    case DV__EXPR_INT: return dv__builder_add_literal(b, DV__TYPE_REAL, (dv__reg){ .f = (double)e->i });
    case DV__EXPR_FLOAT: return dv__builder_add_literal(b, DV__TYPE_REAL, (dv__reg){ .f = e->f });
    case DV__EXPR_NEG: return dv__emit_op1(b, DV__OP_NEG, DV__TYPE_REAL, guard, dv__emit_real_expr(b, e->args[0], guard));
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
        x = dv__emit_real_expr(b, e->args[0], guard);
        y = dv__emit_real_expr(b, e->args[1], guard);
        if (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV)
            y = emit_divisor(b, y, guard, DV__TYPE_REAL);
        return dv__emit_op2(b, expr_kind_to_opcode(e->kind), DV__TYPE_REAL, guard, x, y);
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF)
            return emit_if(b, e, guard, dv__emit_real_expr);
        break;
    default: break;
    }
    return dv__emit_op1(b, DV__OP_TO_REAL, DV__TYPE_REAL, guard, dv__emit_expr(b, e, guard));
}

/* ---- Booleans ------------------------------------------------------------------------------------------------------------ */

/* Returns the type in which two operands are compared: a number unless both are integers. */
static enum dv__type_kind comparison_get_type(const dv__expr *a, const dv__expr *b)
{
    return (enum dv__type_kind)(a->type == DV__TYPE_INT ? b->type : a->type);
}

/* Emits an operand of a comparison in the comparison's type. Returns the register. */
static dv__operand emit_comparison_operand(dv__builder *b, const dv__expr *e, enum dv__type_kind type, dv__operand guard)
{
    return type == DV__TYPE_NUMBER ? emit_number_expr(b, e, guard) : dv__emit_expr(b, e, guard);
}

/* Emits one comparison, or for `x in A B` one for each value, of which one must hold. Returns the condition. */
static dv__operand emit_comparison(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand any = DV__NEVER;
    for (uint32_t i = 1; i < e->n; i++) {
        const enum dv__type_kind type = comparison_get_type(e->args[0], e->args[i]);
        const dv__operand x = emit_comparison_operand(b, e->args[0], type, guard);
        const dv__operand left = i > 1 ? dv__emit_and(b, guard, dv__emit_not(b, any, guard)) : guard;
        const bool literal = e->args[i]->n == 0 &&
            e->args[i]->role != DV__ROLE_ARGUMENT; /* a literal cannot fail, so no guard is needed */
        const dv__operand y = emit_comparison_operand(b, e->args[i], type, literal ? guard : left);
        const dv__operand one = dv__emit_op2(b, expr_kind_to_opcode(e->kind), type, literal ? guard : left, x, y);
        any = i > 1 ? dv__emit_or_under(b, guard, any, one) : one;
    }
    return any;
}

/* Emits a condition. Returns its register; DV__ALWAYS or DV__NEVER if it is constant. */
static dv__operand emit_bool_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand x, y;
    switch (e->kind) {
    case DV__EXPR_BOOL: return e->i ? DV__ALWAYS : DV__NEVER;
    case DV__EXPR_NAME: return emit_argument_value(b, DV__OP_ARGUMENT, DV__TYPE_BOOL, e->ref, guard, "a boolean");
    case DV__EXPR_NOT: return dv__emit_not(b, dv__emit_expr(b, e->args[0], guard), guard);
    case DV__EXPR_AND:
        x = dv__emit_expr(b, e->args[0], guard);
        y = dv__emit_expr(b, e->args[1], dv__emit_and(b, guard, x));
        return dv__emit_and_under(b, guard, x, y);
    case DV__EXPR_OR:
        x = dv__emit_expr(b, e->args[0], guard);
        y = dv__emit_expr(b, e->args[1], dv__emit_and(b, guard, dv__emit_not(b, x, guard)));
        return dv__emit_or_under(b, guard, x, y);
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF)
            return emit_if(b, e, guard, dv__emit_expr);
        if (e->ref == DV__FN_SORTED) {
            b->previous_element_reg = b->previous_element_reg == DV__ALWAYS ? dv__builder_add_register(b, DV__TYPE_NUMBER)
                                                                            : b->previous_element_reg;
            return dv__emit_op2(b, DV__OP_LE, DV__TYPE_NUMBER, guard, b->previous_element_reg, b->element);
        }
        x = dv__emit_load(b, DV__OP_PRESENT, DV__TYPE_BOOL, DV__ALWAYS, e->args[0]->ref);
        return e->ref == DV__FN_PRESENT ? x : dv__emit_not(b, x, DV__ALWAYS);
    default: return emit_comparison(b, e, guard);
    }
}

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

/* Emits the priority in promote() of a dtype variable: DIMENSIONED if a tensor with this variable has dims, else ZERO_DIM.
 * Returns the register. */
static dv__operand emit_dtype_var_priority(dv__builder *b, int dtype_var, dv__operand guard)
{
    dv__operand dims = DV__NEVER;
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->dtype.kind != DV__DTYPE_SPEC_VAR || t->dtype.ref != dtype_var)
            continue;
        dv__operand applies = dv__emit_and(b, dv__emit_pattern_applies(b, t), guard);
        if (t->kind == DV__PATTERN_LIST && t->can_be_empty)
            applies = dv__emit_and(b, applies, dv__emit_load(b, DV__OP_HOLDS_TENSOR, DV__TYPE_BOOL, DV__ALWAYS, t->slot));
        const dv__operand x = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, applies, t->slot);
        const dv__operand rank = emit_rank(b, dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, applies, x), applies);
        const dv__operand has_dims = dv__emit_op2(b, DV__OP_GT, DV__TYPE_INT, applies, rank, dv__builder_int_literal(b, 0));
        dims = dv__emit_or(b, dims, dv__emit_and(b, applies, has_dims));
    }
    return dv__emit_select(
        b, guard, dims, dv__builder_int_literal(b, DV__PRIORITY_DIMENSIONED), dv__builder_int_literal(b, DV__PRIORITY_ZERO_DIM));
}

/* Emits an operand of promote(). Sets *type and *priority to the registers of its dtype and its priority. */
static void emit_promote_dtype_and_priority(
    dv__builder *b, const dv__expr *e, dv__operand guard, dv__operand *type, dv__operand *priority)
{
    *priority = dv__builder_int_literal(b, DV__PRIORITY_DIMENSIONED);
    const bool argument = e->role == DV__ROLE_ARGUMENT;
    if (argument && e->type == DV__TYPE_TENSOR) {
        const dv__operand is_present = e->index_name ? DV__ALWAYS : dv__emit_present(b, e->ref),
                          g = dv__emit_and(b, guard, is_present);
        const dv__operand x = e->index_name ? dv__emit_list_result_input(b, e->ref, g)
                                            : dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, g, e->ref);
        const dv__operand rank = emit_rank(b, dv__emit_op1(b, DV__OP_SHAPE, DV__TYPE_DIMS, g, x), g);
        const dv__operand has_dims = dv__emit_op2(b, DV__OP_GT, DV__TYPE_INT, g, rank, dv__builder_int_literal(b, 0));
        *type = dv__emit_op1(b, DV__OP_DTYPE_OF, DV__TYPE_DTYPE, g, x);
        *type = dv__emit_select(b, guard, is_present, *type, dv__builder_dtype_literal(b, DV_DTYPE_bool));
        *priority = dv__emit_select(b, g, has_dims, dv__builder_int_literal(b, DV__PRIORITY_DIMENSIONED),
            dv__builder_int_literal(b, DV__PRIORITY_ZERO_DIM));
        *priority = dv__emit_select(b, guard, is_present, *priority, dv__builder_int_literal(b, DV__PRIORITY_ABSENT));
    } else if (argument && e->type != DV__TYPE_DTYPE) {
        const dv__operand is_present = dv__emit_present(b, e->ref), g = dv__emit_and(b, guard, is_present);
        *type = dv__emit_load(b, DV__OP_NUMBER_DTYPE, DV__TYPE_DTYPE, g, e->ref);
        *type = dv__emit_select(b, guard, is_present, *type, dv__builder_dtype_literal(b, DV_DTYPE_bool));
        *priority = dv__emit_select(b, guard, is_present, dv__builder_int_literal(b, DV__PRIORITY_NUMBER),
            dv__builder_int_literal(b, DV__PRIORITY_ABSENT));
    } else {
        *type = dv__emit_expr(b, e, guard);
        if (e->role == DV__ROLE_DTYPE_VAR)
            *priority = emit_dtype_var_priority(b, e->ref, guard);
    }
}

/* Emits promote(...) and the check that the dtypes have a common one. Returns the register. */
static dv__operand emit_promote(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[254] = { 0 };
    const uint32_t n = e->n < 127 ? e->n : 127;
    if (e->n > 127)
        b->status = dv__fail_at_column(DV_ELIMIT, b->c->text, e->at, "more than 127 operands");
    for (uint32_t i = 0; i < n; i++)
        emit_promote_dtype_and_priority(b, e->args[i], guard, &in[2 * i], &in[2 * i + 1]);
    const dv__operand fit = dv__emit_op(b, DV__OP_CAN_PROMOTE, DV__TYPE_BOOL, guard, 2 * n, in, 0, NULL);
    if (dv__condition_can_fail(b, fit, guard))
        dv__emit_check(b, fit, guard, DV_EDTYPE,
            dv__message(b, "%mthese dtypes have no common one: %m", dv__message_make_item_prefix(b),
                message_make_part_of_operands(b, DV__PART_DTYPES, in, 2 * n)));
    return dv__emit_op(b, DV__OP_PROMOTE, DV__TYPE_DTYPE, guard, 2 * n, in, 0, NULL);
}

/* Emits an expression that is a dtype. Returns its register. */
static dv__operand emit_dtype_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->role == DV__ROLE_DTYPE_VAR)
        return dv__dtype_register(b->c, e->ref);
    if (e->role == DV__ROLE_DTYPE)
        return dv__builder_dtype_literal(b, (uint32_t)e->i);
    if (e->role == DV__ROLE_ARGUMENT) {
        const dv__operand is_present = dv__emit_present(b, e->ref);
        if (dv__condition_can_fail(b, is_present, guard))
            dv__emit_check(
                b, is_present, guard, DV_EINVAL, dv__message(b, "argument '%s': expected a dtype, found None", e->name));
        const dv__step_error *other = dv__step_error_new(
            b, DV_EINVAL, dv__message(b, "argument '%s': expected a dtype, found another type", e->name));
        return dv__emit_op(b, DV__OP_ARGUMENT, DV__TYPE_DTYPE, dv__emit_and(b, guard, is_present), 0, NULL, e->ref, other);
    }
    switch (e->ref) {
    case DV__FN_PROMOTE: return emit_promote(b, e, guard);
    case DV__FN_ACCUMULATE: return dv__emit_op1(b, DV__OP_ACCUMULATE, DV__TYPE_DTYPE, guard, dv__emit_expr(b, e->args[0], guard));
    case DV__FN_IF: return emit_if(b, e, guard, dv__emit_expr);
    default: return emit_tensor_property(b, DV__OP_DTYPE_OF, DV__TYPE_DTYPE, e->args[0], guard);
    }
}

/* Emits an expression of any type where the guard holds. Returns its register, literal or condition. */
dv__operand dv__emit_expr(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (guard == DV__NEVER) /* nothing reads the value */
        return e->type == DV__TYPE_BOOL ? DV__NEVER : e->type == DV__TYPE_INT ? dv__builder_int_literal(b, 0) : DV__ALWAYS;
    switch (e->type) {
    case DV__TYPE_INT: return emit_int_expr(b, e, guard);
    case DV__TYPE_NUMBER: return emit_number_expr(b, e, guard);
    case DV__TYPE_BOOL: return emit_bool_expr(b, e, guard);
    case DV__TYPE_DTYPE: return emit_dtype_expr(b, e, guard);
    case DV__TYPE_DIMS: return emit_dims_expr(b, e, guard);
    default:
        if (e->kind == DV__EXPR_STRING)
            return dv__builder_add_literal(b, DV__TYPE_STRING, (dv__reg){ .s = e->name, .n = (int32_t)strlen(e->name) });
        return dv__emit_op(b, DV__OP_ARGUMENT, DV__TYPE_STRING, guard, 0, NULL, e->ref, NULL);
    }
}
