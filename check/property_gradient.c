/* Property gradient: the declared formulas agree with finite differences.
 *
 * The sum of all results, each element times a random weight, is one function of the arguments. Its slope in a random direction,
 * by finite differences, must equal the gradient's dot product with that direction. This is computed in f64 where the contract
 * allows it, else in f32. The same case in its own dtypes must then give the same gradient up to rounding.
 *
 * Where differences disagree among themselves (other steps, one side against the other), there is a kink, a jump or no
 * precision, and no failure is reported. A difference is reported only if it also appears in other directions and at other
 * points. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum {
    MAX_ELEMENTS = 4096,
    MAX_ELEMENTS_F32 = 256,
    NUM_SPARSE_DIRECTIONS = 8,
    POOL_DOUBLES = 1 << 22,
    MAX_SLOTS = CHECK_MAX_ARGS + CHECK_MAX_RESULTS,
    MAX_OUTPUTS = CHECK_MAX_RESULTS + CHECK_MAX_TENSORS,
    NUM_ROUNDED_RUNS = 3,
    MIN_JUDGED_CASES = 24
};

/* ---- Memory of one call, and of one case ---- */

typedef struct gradient_tensor_block {
    struct gradient_tensor_block *next;
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
    bool is_rounded;
} gradient_tensor_block;

/* Host of gradient calls: results stay valid until the next call begins. noise > 0: the host changes kernels' results by random
 * amounts of this relative size, as rounding does. */
static struct gradient_host {
    dv_host host;
    gradient_tensor_block *tensors;
    double noise, max_magnitude;
    check_random random;
} gradient_host;

/* Returns a new tensor with the shape, strides and dtype of `like` and with `bytes` of zeroed, aligned memory. The tensor lives
 * until the next gradient_begin_call(). NULL: memory is out. */
static gradient_tensor_block *gradient_alloc_tensor_block(const dv_tensor *like, int64_t bytes)
{
    gradient_tensor_block *block = calloc(1, sizeof *block + 64 + (size_t)bytes);
    if (!block)
        return NULL;
    memcpy(block->dims, like->shape, sizeof *block->dims * (size_t)like->ndim);
    memcpy(block->dims + DV_MAX_NDIM, like->strides, sizeof *block->dims * (size_t)like->ndim);
    block->t = *like;
    block->t.shape = block->dims;
    block->t.strides = block->dims + DV_MAX_NDIM;
    block->t.data = (char *)(block + 1) + (64 - (uintptr_t)(block + 1) % 64) % 64;
    block->next = gradient_host.tensors;
    gradient_host.tensors = block;
    return block;
}

/* Allocates a zeroed tensor that lives until the next gradient_begin_call(). Function for dv_host.new_tensor: returns DV_OK, or
 * DV_ENOMEM with a message. */
static int gradient_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0, n = 1;
    (void)host;
    (void)index;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const dv_tensor as = { .device = device, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides };
    gradient_tensor_block *m = gradient_alloc_tensor_block(&as, n ? dv_dtype_bytes(dtype, last + 1) : 0);
    *out = m ? &m->t : NULL;
    return m ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

/* Makes a view of `base`, which begins `offset` elements behind its first element. Function for dv_host.new_view: returns DV_OK,
 * or DV_ENOMEM with a message. */
static int gradient_host_new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    const dv_tensor as = { .device = base->device, .ndim = ndim, .dtype = base->dtype, .shape = shape, .strides = strides };
    gradient_tensor_block *m = gradient_alloc_tensor_block(&as, 0);
    (void)host;
    (void)index;
    *out = m ? &m->t : NULL;
    if (!m)
        return dv_fail(DV_ENOMEM, "out of memory");
    m->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    m->is_rounded = true;
    return DV_OK;
}

/* Does nothing, since gradient_begin_call() frees all tensors. Function for dv_host.free_tensor. */
static void gradient_host_free_tensor(const dv_host *host, dv_tensor *t)
{
    (void)host;
    (void)t;
}

/* Changes each element of new floating-point results by random noise, if gradient_host.noise > 0, and records the largest
 * magnitude. Function for dv_host.after_kernel. */
static void gradient_host_add_noise(const dv_host *host)
{
    (void)host;
    for (gradient_tensor_block *m = gradient_host.tensors; m && gradient_host.noise > 0; m = m->next) {
        if (m->is_rounded || !check_is_float_dtype(m->t.dtype))
            continue;
        m->is_rounded = true;
        for (int64_t i = 0, n = dv_numel(&m->t); i < n; i++) {
            const double x = check_element_get(m->t.data, i, m->t.dtype);
            gradient_host.max_magnitude = fabs(x) > gradient_host.max_magnitude ? fabs(x) : gradient_host.max_magnitude;
            check_element_put(m->t.data, i, m->t.dtype,
                x * (1 + gradient_host.noise * ((double)(check_random_next(&gradient_host.random) >> 11) * 0x1p-52 - 1)));
        }
    }
}

/* Frees all tensors of the last call, and returns the host for the next one. */
static const dv_host *gradient_begin_call(void)
{
    for (gradient_tensor_block *m = gradient_host.tensors, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    gradient_host.tensors = NULL;
    gradient_host.host = (dv_host){ .size = sizeof gradient_host.host,
        .name = "dovetail check",
        .new_tensor = gradient_host_new_tensor,
        .free_tensor = gradient_host_free_tensor,
        .new_view = gradient_host_new_view,
        .after_kernel = gradient_host_add_noise };
    return &gradient_host.host;
}

static struct double_pool {
    double *d;
    size_t used;
} double_pool; /* memory of gradient_alloc_doubles(): 32 MB of address space, of which only the used part is touched */

/* Returns memory for `count` doubles. It is valid until double_pool.used is set back, at the latest by the next case. NULL: the
 * pool is used up. */
static double *gradient_alloc_doubles(int64_t count)
{
    if (!double_pool.d)
        double_pool.d = calloc(POOL_DOUBLES, sizeof *double_pool.d);
    if (!double_pool.d || count < 0 || (size_t)count > POOL_DOUBLES - double_pool.used)
        return NULL;
    double_pool.used += (size_t)count;
    return double_pool.d + double_pool.used - count;
}

/* Copies all elements of a tensor, converted to double, to `elements` in row-major order. */
static void gradient_copy_elements(const dv_tensor *tensor, double *elements)
{
    int64_t index[DV_MAX_NDIM] = { 0 };
    for (int64_t i = 0, n = dv_numel(tensor); i < n; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < tensor->ndim; d++)
            at += index[d] * tensor->strides[d];
        elements[i] = check_element_get(tensor->data, at, tensor->dtype);
        for (int32_t d = tensor->ndim; d-- > 0 && ++index[d] == tensor->shape[d];)
            index[d] = 0;
    }
}

/* ---- A point: a case with its contents ---- */

typedef struct gradient_point {
    const check_op *op;
    check_case c;
    double eps; /* largest unit roundoff of its floating-point arguments and outputs */
    check_values v;
    double *elements[CHECK_MAX_TENSORS]; /* elements of floating tensors */
    /* bytes: contents of each tensor; call_memory: the copy of them that a call gets */
    unsigned char *bytes[CHECK_MAX_TENSORS], *call_memory[CHECK_MAX_TENSORS];
    dv_value slots[MAX_SLOTS];                  /* arguments and results of the last call, by slot */
    const dv_tensor *listed[CHECK_MAX_TENSORS]; /* the tensors of results that are lists */
    /* Floating-point outputs of the last call: results, and written arguments that are not returned; each tensor of a list
     * counts. out_slot: its slot; out_list_index: its position in a list, else 0. */
    size_t nouts, out_slot[MAX_OUTPUTS], out_list_index[MAX_OUTPUTS];
    int64_t weight_offsets[MAX_OUTPUTS], nweights; /* index in `weights` of the first element of each output */
    double *weights;                               /* weight of each output element */
} gradient_point;

/* True for floating-point dtypes, which have a gradient. */
static bool gradient_is_differentiable(dv_dtype d) { return d.code == 2 || d.code == 4; }

/* Makes a point from a case: contiguous tensors with their contents, in memory of the pool. Returns false if the pool is used up.
 */
static bool gradient_try_make_point(gradient_point *point, const check_op *op, const check_case *c)
{
    memset(point, 0, sizeof *point);
    point->op = op;
    point->c = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        point->c.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
    check_values_init_without_data(&point->v, &point->c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &point->c.tensors[i];
        if (!t->present)
            continue;
        const int64_t n = check_tensor_numel(t), words = dv_dtype_bytes(t->dtype, n) / 8 + 2;
        point->bytes[i] = (unsigned char *)gradient_alloc_doubles(words);
        point->call_memory[i] = (unsigned char *)gradient_alloc_doubles(words);
        point->elements[i] = gradient_alloc_doubles(n);
        if (!point->bytes[i] || !point->call_memory[i] || !point->elements[i])
            return false;
        check_fill_tensor(t, c->seed + i, point->bytes[i], point->v.strides[i]);
        for (int64_t k = 0; k < n; k++)
            point->elements[i][k] = check_element_get(point->bytes[i], k, t->dtype);
        point->v.tensors[i].data = point->call_memory[i];
        if (gradient_is_differentiable(t->dtype) && check_get_unit_roundoff(t->dtype) > point->eps)
            point->eps = check_get_unit_roundoff(t->dtype);
    }
    return true;
}

/* Makes a point with the elements of `original`, rounded to the dtypes that the case c has. Returns false if the pool is used up.
 */
static bool gradient_try_make_point_with_dtypes(gradient_point *point, const gradient_point *original, const check_case *c)
{
    if (!gradient_try_make_point(point, original->op, c))
        return false;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int64_t k = 0;
            point->elements[i] && gradient_is_differentiable(c->tensors[i].dtype) && k < check_tensor_numel(&c->tensors[i]);
            k++) {
            point->elements[i][k] = original->elements[i][k];
            check_element_put(point->bytes[i], k, c->tensors[i].dtype, point->elements[i][k]);
        }
    return true;
}

/* Calls the operator at a point, with tensor number moved_tensor moved by `distance` along `direction` (NULL: not moved). Random
 * numbers are the same each time. Returns dv_call()'s status. */
static int gradient_call_forward(gradient_point *point, size_t moved_tensor, const double *direction, double distance)
{
    const dv_host *host = gradient_begin_call();
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const check_tensor *t = &point->c.tensors[i];
        if (!t->present)
            continue;
        memcpy(point->call_memory[i], point->bytes[i], (size_t)dv_dtype_bytes(t->dtype, check_tensor_numel(t)));
        for (int64_t k = 0; i == moved_tensor && direction && k < check_tensor_numel(t); k++)
            check_element_put(point->call_memory[i], k, t->dtype, point->elements[i][k] + distance * direction[k]);
        for (int64_t k = 0; gradient_host.noise > 0 && gradient_is_differentiable(t->dtype) && k < check_tensor_numel(t); k++)
            check_element_put(point->call_memory[i], k, t->dtype,
                point->elements[i][k] *
                    (1 + gradient_host.noise * ((double)(check_random_next(&gradient_host.random) >> 11) * 0x1p-52 - 1)));
    }
    memcpy(point->slots, point->v.values, sizeof *point->slots * point->op->nargs);
    for (size_t result_index = 0; result_index < point->op->nresults; result_index++)
        point->slots[point->op->nargs + result_index] = dv_default();
    if (point->op->is_nondeterministic)
        dv_set_seed(1);
    const int status = dv_call(
        point->op->op, point->v.values, point->op->nargs, point->slots + point->op->nargs, point->op->nresults, host);
    check_exit_if_kernel_forked();
    return check_try_move_result_lists(point->op, point->slots + point->op->nargs, point->listed) ? status : DV_ELIMIT;
}

/* True if some result of the operator is the argument of this slot, or a view of it. */
static bool gradient_is_returned_argument(const check_op *op, size_t slot)
{
    for (size_t result_index = 0; result_index < op->nresults; result_index++)
        if (op->slots[op->nargs + result_index].alias == (int32_t)slot)
            return true;
    return false;
}

/* True if a slot is that of a result, or of a written argument that is not returned. */
static bool gradient_is_output(const check_op *op, size_t slot)
{
    return slot >= op->nargs || ((op->slots[slot].flags & DV_SLOT_WRITES) && !gradient_is_returned_argument(op, slot));
}

/* Returns the number of tensors in a value: those of a list, 1 for a tensor, else 0. */
static size_t gradient_count_tensors(const dv_value *value)
{
    return value->type == DV_VALUE_TENSORS ? value->as.tensors.size : value->type == DV_VALUE_TENSOR;
}
/* Returns tensor `position` of a value; NULL: the value has no such tensor. */
static const dv_tensor *gradient_find_tensor_of_value(const dv_value *value, size_t position)
{
    return position >= gradient_count_tensors(value) ? NULL
        : value->type == DV_VALUE_TENSORS            ? value->as.tensors.data[position]
                                                     : value->as.tensor;
}
/* Returns a floating-point output of the last call by its index. NULL: the call gave no such tensor. */
static const dv_tensor *gradient_find_output(const gradient_point *point, size_t output_index)
{
    return gradient_find_tensor_of_value(&point->slots[point->out_slot[output_index]], point->out_list_index[output_index]);
}
/* Returns the index in point->weights just behind the last weight of an output. */
static int64_t gradient_get_weights_end(const gradient_point *point, size_t output_index)
{
    return output_index + 1 < point->nouts ? point->weight_offsets[output_index + 1] : point->nweights;
}

/* Lists the floating-point outputs of the last call in the point, and draws a random weight for each of their elements, exact in
 * every dtype. Returns false if there is no such output, or the pool is used up. */
static bool gradient_try_draw_weights(gradient_point *point, check_random *random)
{
    point->nouts = 0;
    point->nweights = 0;
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++)
        for (size_t position = 0;
            gradient_is_output(point->op, s) && position < gradient_count_tensors(&point->slots[s]) && point->nouts < MAX_OUTPUTS;
            position++) {
            const dv_tensor *t = gradient_find_tensor_of_value(&point->slots[s], position);
            if (!t || !gradient_is_differentiable(t->dtype))
                continue;
            point->out_slot[point->nouts] = s;
            point->out_list_index[point->nouts] = position;
            point->weight_offsets[point->nouts++] = point->nweights;
            point->nweights += dv_numel(t);
            point->eps = check_get_unit_roundoff(t->dtype) > point->eps ? check_get_unit_roundoff(t->dtype) : point->eps;
        }
    point->weights = gradient_alloc_doubles(point->nweights);
    for (int64_t i = 0; point->weights && i < point->nweights; i++)
        point->weights[i] = (double)check_random_between(random, 1, 8) / 8 * (check_random_next(random) & 1 ? 1 : -1);
    return point->weights && point->nouts;
}

/* Returns a new contiguous tensor of zeros with the shape and dtype of `like`, which need not be contiguous. NULL: memory is out.
 */
static dv_tensor *gradient_alloc_zeros_like(const dv_tensor *like)
{
    int64_t strides[DV_MAX_NDIM], n = 1;
    dv_tensor *zeros;
    for (int32_t d = like->ndim; d-- > 0; n *= like->shape[d] > 0 ? like->shape[d] : 1)
        strides[d] = n;
    if (gradient_host_new_tensor(NULL, 0, like->dtype, like->device, like->ndim, like->shape, strides, &zeros))
        return NULL;
    gradient_host.tensors->is_rounded = true;
    return zeros;
}

/* Sets grads[s], for each output's slot s, to the gradients from which backward begins: the weights of floating-point outputs,
 * zeros for others. For slots that are no outputs it is None. list_tensors: receives the tensors of lists. Returns false if
 * memory is out. */
static bool gradient_try_make_output_grads(const gradient_point *point, dv_value *grads, const dv_tensor **list_tensors)
{
    size_t output_index = 0;
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++) {
        const size_t n = gradient_is_output(point->op, s) ? gradient_count_tensors(&point->slots[s]) : 0;
        grads[s] = dv_none();
        for (size_t position = 0; position < n; position++) {
            const dv_tensor *t = gradient_find_tensor_of_value(&point->slots[s], position);
            dv_tensor *g = t ? gradient_alloc_zeros_like(t) : NULL;
            if (t && !g)
                return false;
            if (output_index < point->nouts && point->out_slot[output_index] == s &&
                point->out_list_index[output_index] == position)
                for (int64_t i = 0, at = point->weight_offsets[output_index++], size = dv_numel(g); i < size; i++)
                    check_element_put(g->data, i, g->dtype, point->weights[at + i]);
            list_tensors[position] = g;
        }
        if (n && point->slots[s].type == DV_VALUE_TENSORS)
            grads[s] = dv_from_tensors(list_tensors, n);
        else if (n && list_tensors[0])
            grads[s] = dv_from_tensor(list_tensors[0]);
        list_tensors += n;
    }
    return true;
}

/* ---- What is declared ---- */

enum clause_kind { CLAUSE_NONE, CLAUSE_NOT_DIFFERENTIABLE, CLAUSE_VALUE };

/* Returns what the formula "gradient" or "tangent" says about a slot: nothing, that it is not differentiable, or a value.
 * *has_any_value: whether the formula has a value for any slot. */
static enum clause_kind gradient_find_clause_kind(const check_op *op, const char *formula_name, size_t slot, bool *has_any_value)
{
    const check_json *clauses = check_json_find_member(check_json_find_member(op->json, formula_name), "clauses");
    enum clause_kind found = CLAUSE_NONE;
    *has_any_value = false;
    for (const check_json *k = clauses ? clauses->child : NULL; k; k = k->next) {
        const check_json *targets = check_json_find_member(k, "targets"), *value = check_json_find_member(k, "value");
        const bool has = value && value->kind != CHECK_JSON_NULL;
        *has_any_value |= has;
        for (const check_json *t = targets ? targets->child : NULL; t; t = t->next)
            if ((size_t)t->int_value == slot)
                found = has ? CLAUSE_VALUE : CLAUSE_NOT_DIFFERENTIABLE;
    }
    return found;
}

/* True if the operator declares the formula of this name: "gradient" or "tangent". */
static bool gradient_has_formula_of_kind(const check_op *op, const char *gradient_or_tangent)
{
    const check_json *f = check_json_find_member(op->json, gradient_or_tangent);
    return f && f->kind == CHECK_JSON_OBJECT;
}

/* True if a JSON expression is, or contains, one of this kind, such as "needs", that has this name. name NULL: with any name. */
static bool gradient_expr_contains(const check_json *expr, const char *kind, const char *name)
{
    if (!expr || (expr->kind != CHECK_JSON_ARRAY && expr->kind != CHECK_JSON_OBJECT))
        return false;
    if (check_json_is_expr(expr, kind) &&
        (!name || (check_json_find_element(expr, 1)->text && !strcmp(check_json_find_element(expr, 1)->text, name))))
        return true;
    for (const check_json *k = expr->child; k; k = k->next)
        if (gradient_expr_contains(k, kind, name))
            return true;
    return false;
}

/* ---- Gradients by formula ---- */

/* Gradient of each tensor of the case. NULL: zero. */
typedef struct gradient_set { double *tensors[CHECK_MAX_TENSORS]; } gradient_set;

/* Returns the gradient of a tensor of the case from the values that dv_gradient() gave by slot. NULL: none was computed, so it is
 * zero. */
static const dv_tensor *gradient_find_gradient_of_tensor(
    const gradient_point *point, const dv_value *gradients, size_t tensor_index)
{
    const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
    return gradient_find_tensor_of_value(&gradients[slot], tensor_index - point->c.args[slot].first_tensor);
}

/* Formats the dtype and shape of a tensor as "f32[3, 4]". */
static void gradient_format_dtype_and_shape(const dv_tensor *tensor, char *text, size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "%s[", dv_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->ndim && length < capacity; d++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    if (length < capacity)
        snprintf(text + length, capacity - length, "]");
}

/* True if all floating-point arguments and outputs have one dtype. Where dtypes are mixed, a framework converts gradients. */
static bool gradient_has_one_dtype(const gradient_point *point)
{
    const dv_tensor *first = NULL;
    for (size_t s = 0; s < point->c.ntensors + point->nouts; s++) {
        const dv_tensor *t = s >= point->c.ntensors ? gradient_find_output(point, s - point->c.ntensors)
            : point->c.tensors[s].present           ? &point->v.tensors[s]
                                                    : NULL;
        if (!t || !gradient_is_differentiable(t->dtype))
            continue;
        if (first && dv_dtype_key(first->dtype) != dv_dtype_key(t->dtype))
            return false;
        first = t;
    }
    return true;
}

/* Checks that each gradient has the shape and dtype of its argument. Fails the job with the first that has not, and returns
 * false. */
static bool gradient_try_verify_shapes_and_dtypes(check_job *job, const gradient_point *point, const dv_value *gradients)
{
    char found[300], expected[300];
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const dv_tensor *t = &point->v.tensors[i],
                        *gradient = point->c.tensors[i].present && gradient_is_differentiable(t->dtype)
            ? gradient_find_gradient_of_tensor(point, gradients, i)
            : NULL;
        if (!gradient)
            continue;
        bool same = gradient->ndim == t->ndim;
        for (int32_t d = 0; d < t->ndim && same; d++)
            same = gradient->shape[d] == t->shape[d];
        const bool has_same_dtype = dv_dtype_key(gradient->dtype) == dv_dtype_key(t->dtype) ||
            (gradient_is_differentiable(gradient->dtype) && !gradient_has_one_dtype(point));
        if (same && has_same_dtype)
            continue;
        gradient_format_dtype_and_shape(gradient, found, sizeof found);
        gradient_format_dtype_and_shape(t, expected, sizeof expected);
        check_fail(job, same ? "gradient's element type" : "gradient's shape",
            "the gradient of '%s' is %s, and the argument is %s", point->op->slots[check_find_tensor_slot(&point->c, i)].name,
            found, expected);
        return false;
    }
    return true;
}

/* Sets wanted[s] to true for each slot s with a floating-point tensor, and to false for all others. */
static void gradient_set_wanted_slots(const gradient_point *point, bool *wanted)
{
    memset(wanted, 0, sizeof *wanted * MAX_SLOTS);
    for (size_t i = 0; i < point->c.ntensors; i++)
        if (point->c.tensors[i].present && gradient_is_differentiable(point->c.tensors[i].dtype))
            wanted[check_find_tensor_slot(&point->c, i)] = true;
}

/* Frees the arrays of those values that are lists of tensors; the tensors stay. */
static void gradient_free_lists(const dv_value *values, size_t count)
{
    for (size_t s = 0; s < count; s++)
        if (values[s].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)values[s].as.tensors.data);
}

enum backward_result { BACKWARD_DONE, BACKWARD_FAILED, BACKWARD_REFUSED };

/* Computes the gradients of the wanted slots after gradient_call_forward(), with the weights as the outputs' gradients.
 * BACKWARD_FAILED: the job has failed. BACKWARD_REFUSED: these arguments have no gradient, or memory is out. */
static enum backward_result gradient_call_backward(
    check_job *job, const gradient_point *point, const bool *wanted, gradient_set *gradients)
{
    static const dv_tensor *list_tensors[MAX_SLOTS + CHECK_MAX_TENSORS];
    dv_value grads[MAX_SLOTS], out[MAX_SLOTS];
    if (!gradient_try_make_output_grads(point, grads, list_tensors))
        return BACKWARD_REFUSED;
    const int status = dv_gradient(point->op->op, point->slots, grads, wanted, out, &gradient_host.host);
    if (status == DV_ENOTSUP || status == DV_ENOMEM) /* these arguments have no gradient, or the host is out of memory */
        return BACKWARD_REFUSED;
    if (status) {
        check_fail(job, "gradient fails", "the gradient cannot be computed: %s", dv_last_error());
        return BACKWARD_FAILED;
    }
    bool is_right = gradient_try_verify_shapes_and_dtypes(job, point, out);
    for (size_t i = 0; i < point->c.ntensors && is_right; i++) {
        const dv_tensor *t = wanted[check_find_tensor_slot(&point->c, i)] && point->c.tensors[i].present &&
                gradient_is_differentiable(point->c.tensors[i].dtype)
            ? gradient_find_gradient_of_tensor(point, out, i)
            : NULL;
        gradients->tensors[i] = t ? gradient_alloc_doubles(dv_numel(t)) : NULL;
        if (gradients->tensors[i])
            gradient_copy_elements(t, gradients->tensors[i]);
    }
    gradient_free_lists(out, point->op->nargs);
    return is_right ? BACKWARD_DONE : BACKWARD_FAILED;
}

/* ---- Finite differences ---- */

typedef struct finite_difference {
    double value, noise, scale, extrapolation_spread;
    bool is_smooth, is_finite, is_flat;
} finite_difference;

/* Calls the operator at a point with one tensor moved by `distance` along `direction`, and copies all elements of its
 * floating-point outputs to `elements`. Returns false if the call is refused, or the outputs' sizes changed. */
static bool gradient_try_call_and_copy_outputs(
    gradient_point *point, size_t moved_tensor, const double *direction, double distance, double *elements)
{
    if (gradient_call_forward(point, moved_tensor, direction, distance))
        return false;
    for (size_t output_index = 0; output_index < point->nouts; output_index++) {
        const dv_tensor *t = gradient_find_output(point, output_index);
        if (!t || dv_numel(t) != gradient_get_weights_end(point, output_index) - point->weight_offsets[output_index])
            return false; /* the size depends on contents */
        gradient_copy_elements(t, elements + point->weight_offsets[output_index]);
    }
    return true;
}

/* True if some output changes, or the call is refused, when a tensor moves by 0.7 to 70,000 to either side. If small steps change
 * nothing, the point is then only locally flat, as with floor() or relu(). Its declared gradient often differs on purpose
 * (straight-through estimator), so it is not judged. */
static bool gradient_changes_with_large_steps(
    gradient_point *point, size_t moved_tensor, const double *direction, const double *outputs_here)
{
    const size_t before = double_pool.used;
    double *outputs_there = gradient_alloc_doubles(point->nweights);
    bool changes = !outputs_there;
    for (double distance = 0.7; distance < 1e5 && !changes; distance *= distance > 0 ? -1 : -10)
        changes = !gradient_try_call_and_copy_outputs(point, moved_tensor, direction, distance, outputs_there) ||
            memcmp(outputs_there, outputs_here, sizeof *outputs_here * (size_t)point->nweights) != 0;
    double_pool.used = before;
    return changes;
}

typedef struct difference_precision { double step, agree, differ, slack; } difference_precision;
static const difference_precision precision_f64 = { 1e-4, 1e-6, 1e-5, 1000 }, precision_f32 = { 0x1p-5, 3e-3, 1e-2, 30 };
static const double MIN_SLOPE = 0x1p-60; /* smaller differences of slopes are accepted: a function may be cut off near 0 */
enum {
    TOLERANCE_FACTOR = 4
}; /* factor: a gradient that is computed from approximate results may be wrong by this many times their declared tolerance */
/* Returns the step and the tolerances of finite differences at a point: those for f64, or those for coarser dtypes. */
static const difference_precision *gradient_get_difference_precision(const gradient_point *point)
{
    return point->eps < 0x1p-50 ? &precision_f64 : &precision_f32;
}

/* Measures the slope of the weighted sum of outputs when a tensor moves along `direction`, from steps h, h/2 and 0.3 h to both
 * sides (Richardson extrapolation). Returns false if a call is refused, or the pool is used up. */
static bool gradient_try_measure_slope(
    gradient_point *point, size_t moved_tensor, const double *direction, finite_difference *difference)
{
    static const double steps[] = { 0, 1, -1, 0.5, -0.5, 0.3, -0.3 };
    const difference_precision *precision = gradient_get_difference_precision(point);
    const size_t before = double_pool.used;
    double *outputs_at[7], d[7] = { 0 }, length = 0, rest = 0;
    bool moved = false;
    memset(difference, 0, sizeof *difference);
    difference->is_finite = true;
    for (int k = 0; k < 7; k++) {
        outputs_at[k] = gradient_alloc_doubles(point->nweights);
        if (!outputs_at[k] ||
            !gradient_try_call_and_copy_outputs(point, moved_tensor, direction, steps[k] * precision->step, outputs_at[k])) {
            double_pool.used = before;
            return false;
        }
    }
    for (int64_t i = 0; i < point->nweights; i++) {
        double most = 0;
        for (int k = 0; k < 7; k++) {
            difference->is_finite &= isfinite(outputs_at[k][i]) != 0;
            most = fabs(outputs_at[k][i]) > most ? fabs(outputs_at[k][i]) : most;
            /* differences of single elements are summed, because a difference of two large sums would lose them */
            d[k] += point->weights[i] * (outputs_at[k][i] - outputs_at[0][i]);
        }
        const double one = point->weights[i] * (outputs_at[1][i] - outputs_at[2][i]) / (2 * precision->step);
        length = hypot(length, one);
        const double noise = point->eps * fabs(point->weights[i]) * most / (0.3 * precision->step);
        difference->noise += fabs(one) > 0 ? noise : 0;
        rest = noise > rest ? noise : rest;
        for (int k = 1; k < 7; k++)
            moved |= outputs_at[k][i] < outputs_at[0][i] || outputs_at[k][i] > outputs_at[0][i];
    }
    difference->noise = fmax(difference->noise, rest);
    difference->is_flat = difference->is_finite && !moved &&
        gradient_changes_with_large_steps(point, moved_tensor, direction, outputs_at[0]);
    double_pool.used = before;
    const double h = precision->step, full_step = (d[1] - d[2]) / (2 * h), half = (d[3] - d[4]) / h,
                 third = (d[5] - d[6]) / (0.6 * h);
    const double forward_slope = (4 * d[3] - d[1]) / h, backward_slope = -(4 * d[4] - d[2]) / h;
    difference->value = (4 * half - full_step) / 3;
    /* distance of two extrapolations, each without the term in h^2 */
    difference->extrapolation_spread = fabs(difference->value - (0.25 * third - 0.09 * half) / 0.16);
    difference->scale = length + fabs(difference->value);
    const double allowed = precision->agree * difference->scale + precision->slack * difference->noise;
    difference->is_smooth = difference->is_finite && fabs(difference->value - third) <= allowed &&
        fabs(forward_slope - backward_slope) <= 4 * allowed;
    return true;
}

/* ---- Comparing ---- */

static struct judged_counts {
    uint32_t cases, nnumeric, nsmooth, nrough;
    const char *unchecked_reason;
} judged_counts; /* counts of this child's cases */

enum comparison_verdict { VERDICT_AGREES, VERDICT_DIFFERS, VERDICT_UNSURE };
typedef struct gradient_difference {
    double formula, slope;
    bool is_slight; /* the difference is no larger than that of a factor that was rounded to f32 */
} gradient_difference;

/* Returns a random direction for a tensor, with a number for each element; in f32 all but a few are 0. NULL: the pool is used up.
 */
static double *gradient_draw_direction(const gradient_point *point, size_t tensor_index, check_random *random)
{
    const int64_t numel = check_tensor_numel(&point->c.tensors[tensor_index]);
    double *direction = gradient_alloc_doubles(numel);
    for (int64_t i = 0; direction && i < numel; i++)
        direction[i] = 0;
    const bool is_sparse = gradient_get_difference_precision(point) == &precision_f32 && numel > NUM_SPARSE_DIRECTIONS;
    for (int64_t k = 0; direction && k < (is_sparse ? NUM_SPARSE_DIRECTIONS : numel); k++)
        direction[is_sparse ? check_random_between(random, 0, numel - 1) : k] = (double)check_random_between(random, 4, 8) / 8 *
            (check_random_next(random) & 1 ? 1 : -1);
    return direction;
}

/* Returns the dot product of a gradient (NULL: zero) and a direction. */
static double gradient_dot_direction(const double *gradient, const double *direction, int64_t numel)
{
    double sum = 0;
    for (int64_t i = 0; i < numel && gradient; i++)
        sum += direction[i] != 0 ? gradient[i] * direction[i] : 0;
    return sum;
}

/* Compares the derivative in a direction that the formula gives with the slope by finite differences. VERDICT_UNSURE: the
 * function is not smooth or finite here, or only locally flat. *difference receives both numbers. */
static enum comparison_verdict gradient_judge_derivative(
    const gradient_point *point, const finite_difference *slope, double formula_derivative, gradient_difference *difference)
{
    const difference_precision *precision = gradient_get_difference_precision(point);
    *difference = (gradient_difference){ formula_derivative, slope->value, false };
    if (!slope->is_finite || !slope->is_smooth || !isfinite(slope->scale))
        return VERDICT_UNSURE;
    if (slope->is_flat)
        return fabs(formula_derivative) > 0 ? VERDICT_UNSURE : VERDICT_AGREES;
    const double results = slope->noise * 0.3 * precision->step / point->eps; /* magnitude of the results */
    const double strict = precision->differ * slope->scale + precision->slack * slope->noise + MIN_SLOPE;
    const double allowed = strict + fmax(point->op->rtol, 0) * (slope->scale + TOLERANCE_FACTOR * results) +
        TOLERANCE_FACTOR * fmax(point->op->atol, 0);
    /* Slopes in f64 are more precise. The error of the forward call shows in the distance of the two extrapolations. */
    const double precise = precision == &precision_f64
        ? fmin(
              allowed, 32 * slope->extrapolation_spread + 200 * slope->noise + 2e-9 * slope->scale + MIN_SLOPE + allowed - strict)
        : allowed;
    difference->is_slight = fabs(formula_derivative - slope->value) <= allowed;
    return fabs(formula_derivative - slope->value) <= precise ? VERDICT_AGREES : VERDICT_DIFFERS;
}

/* Compares the gradient of a tensor (NULL: zero) with the slope in one random direction. VERDICT_UNSURE, too, if a call is
 * refused. *difference receives both numbers. */
static enum comparison_verdict gradient_judge_random_direction(
    gradient_point *point, size_t tensor_index, const double *gradient, check_random *random, gradient_difference *difference)
{
    const size_t before = double_pool.used;
    finite_difference slope;
    double *direction = gradient_draw_direction(point, tensor_index, random);
    enum comparison_verdict verdict = VERDICT_UNSURE;
    if (direction && gradient_try_measure_slope(point, tensor_index, direction, &slope))
        verdict = gradient_judge_derivative(point, &slope,
            gradient_dot_direction(gradient, direction, check_tensor_numel(&point->c.tensors[tensor_index])), difference);
    double_pool.used = before;
    return verdict;
}

/* Makes another point of the same case, with other contents, calls the operator there and draws weights. Returns false if one of
 * these fails. */
static bool gradient_try_make_other_point(
    gradient_point *other, const gradient_point *point, uint64_t number, check_random *random)
{
    check_case c = point->c;
    c.seed += 1000 * number;
    for (size_t i = 0; i < c.ntensors; i++)
        if (gradient_is_differentiable(c.tensors[i].dtype))
            c.tensors[i].fill = CHECK_FILL_RANDOM;
    return gradient_try_make_point(other, point->op, &c) && !gradient_call_forward(other, 0, NULL, 0) &&
        gradient_try_draw_weights(other, random);
}

/* True if the gradient of a tensor also differs from slopes in other random directions, and the function is smooth at two of
 * three other points. Two of five directions must differ; all of them if the difference is slight. */
static bool gradient_is_difference_confirmed(
    gradient_point *point, size_t tensor_index, const double *gradient, check_random *random)
{
    static gradient_point other;
    gradient_difference difference;
    int ndiffering = 0, nsmooth = 0;
    bool is_slight = false;
    for (int k = 0; k < 5; k++) {
        ndiffering += gradient_judge_random_direction(point, tensor_index, gradient, random, &difference) == VERDICT_DIFFERS;
        is_slight |= difference.is_slight;
        if (k == 2 && !is_slight)
            break;
    }
    for (uint64_t k = 1; k <= 3 && ndiffering >= (is_slight ? 5 : 2); k++) {
        const size_t before = double_pool.used;
        if (gradient_try_make_other_point(&other, point, k, random))
            nsmooth += gradient_judge_random_direction(&other, tensor_index, NULL, random, &difference) != VERDICT_UNSURE;
        double_pool.used = before;
    }
    return nsmooth >= 2;
}

/* Returns the dtype in which slopes are computed at a point: "f64" or "f32". */
static const char *gradient_get_slope_dtype_name(const gradient_point *point)
{
    return gradient_get_difference_precision(point) == &precision_f64 ? "f64" : "f32";
}

/* Formats the name of a tensor of the case: "x", or "xs[1]" for one of a list. */
static void gradient_format_tensor_name(const gradient_point *point, size_t tensor_index, char *name, size_t capacity)
{
    const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
    if (point->c.args[slot].type == DV_VALUE_TENSORS)
        snprintf(name, capacity, "%s[%zu]", point->op->slots[slot].name, tensor_index - point->c.args[slot].first_tensor);
    else
        snprintf(name, capacity, "%s", point->op->slots[slot].name);
}

/* Fails the job with a gradient that differs from a slope, as slightly wrong, missing, not finite or wrong. */
static void gradient_report_difference(check_job *job, const gradient_point *point, size_t tensor_index, enum clause_kind clause,
    const gradient_difference *difference)
{
    char name[100];
    gradient_format_tensor_name(point, tensor_index, name, sizeof name);
    if (difference->is_slight)
        check_fail(job, "slightly wrong gradient",
            "the gradient of '%s' is %.12g in a direction in which finite differences give %.12g (f64): a factor seems to be in "
            "f32",
            name, difference->formula, difference->slope);
    if (clause == CLAUSE_NONE)
        check_fail(job, "gradient missing",
            "gradient missing for '%s': no clause names it, and finite differences give %.6g (%s)", name, difference->slope,
            gradient_get_slope_dtype_name(point));
    else if (!isfinite(difference->formula))
        check_fail(job, "gradient not finite", "the gradient of '%s' is %g where finite differences give %.6g (%s)", name,
            difference->formula, difference->slope, gradient_get_slope_dtype_name(point));
    else
        check_fail(job, "wrong gradient",
            "the gradient of '%s' is wrong: %.6g in a direction in which finite differences give %.6g (%s)", name,
            difference->formula, difference->slope, gradient_get_slope_dtype_name(point));
}

/* True if some tensor is filled with multiples of 1/2 (CHECK_FILL_HALVES), so that kinks at 0 and at equal numbers are hit on
 * purpose. */
static bool gradient_has_halves_fill(const gradient_point *point)
{
    bool any = false;
    for (size_t i = 0; i < point->c.ntensors; i++)
        any |= point->c.tensors[i].present && point->c.tensors[i].fill == CHECK_FILL_HALVES;
    return any;
}

/* Fails the job if the gradient of a tensor differs from the slope in a random direction, and further directions and points
 * confirm it. Counts the case as smooth or rough. */
static void gradient_check_against_slopes(
    check_job *job, gradient_point *point, const gradient_set *gradients, check_random *random)
{
    bool has_any_value, is_sure = true;
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const enum clause_kind clause = gradient_find_clause_kind(
            point->op, "gradient", check_find_tensor_slot(&point->c, tensor_index), &has_any_value);
        gradient_difference difference;
        if (!point->c.tensors[tensor_index].present || !gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) || clause == CLAUSE_NOT_DIFFERENTIABLE || !has_any_value)
            continue;
        const enum comparison_verdict verdict = gradient_judge_random_direction(
            point, tensor_index, gradients->tensors[tensor_index], random, &difference);
        is_sure &= verdict != VERDICT_UNSURE;
        if (verdict == VERDICT_DIFFERS &&
            gradient_is_difference_confirmed(point, tensor_index, gradients->tensors[tensor_index], random))
            gradient_report_difference(job, point, tensor_index, clause, &difference);
    }
    judged_counts.nsmooth += is_sure;
    judged_counts.nrough += !is_sure && !gradient_has_halves_fill(point);
}

/* ---- Forward mode ---- */

/* Sets tangents[s] for each argument's slot s: `direction` for the tensor moved_tensor, zeros for all other tensors.
 * list_tensors: receives all tangents. Returns false if memory is out. */
static bool gradient_try_make_tangents(
    const gradient_point *point, size_t moved_tensor, const double *direction, dv_value *tangents, const dv_tensor **list_tensors)
{
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++)
        tangents[s] = dv_none();
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const dv_tensor *t = &point->v.tensors[i];
        const size_t slot = check_find_tensor_slot(&point->c, i);
        dv_tensor *tangent = NULL;
        if (point->c.tensors[i].present &&
            gradient_host_new_tensor(NULL, 0, t->dtype, t->device, t->ndim, t->shape, t->strides, &tangent))
            return false;
        for (int64_t k = 0; i == moved_tensor && k < dv_numel(t); k++)
            check_element_put(tangent->data, k, t->dtype, direction[k]);
        list_tensors[i] = tangent;
        if (point->c.args[slot].type == DV_VALUE_TENSORS)
            tangents[slot] = dv_from_tensors(&list_tensors[point->c.args[slot].first_tensor], point->c.args[slot].count);
        else
            tangents[slot] = dv_from_tensor(tangent);
    }
    return true;
}

/* Computes the sum of all elements of the outputs' tangents, each times its weight, and the sum of the magnitudes. The arguments'
 * tangent is `direction` for one tensor. Returns false if a call is refused, or the job has failed with the tangent. */
static bool gradient_try_compute_tangent(check_job *job, gradient_point *point, size_t moved_tensor, const double *direction,
    double *weighted_sum, double *weighted_magnitude)
{
    static const dv_tensor *list_tensors[CHECK_MAX_TENSORS];
    dv_value tangents[MAX_SLOTS], out[MAX_SLOTS];
    *weighted_sum = *weighted_magnitude = 0;
    if (gradient_call_forward(point, 0, NULL, 0) ||
        !gradient_try_make_tangents(point, moved_tensor, direction, tangents, list_tensors))
        return false;
    if (dv_tangent(point->op->op, point->slots, tangents, out, &gradient_host.host)) {
        check_fail(job, "tangent fails", "the tangent cannot be computed: %s", dv_last_error());
        return false;
    }
    for (size_t k = 0; k < point->nouts; k++) {
        const dv_tensor *t = gradient_find_tensor_of_value(&out[point->out_slot[k]], point->out_list_index[k]),
                        *output = gradient_find_output(point, k);
        const size_t before = double_pool.used;
        double *d = t ? gradient_alloc_doubles(dv_numel(t)) : NULL;
        if (t &&
            (t->ndim != output->ndim || dv_numel(t) != dv_numel(output) ||
                dv_dtype_key(t->dtype) != dv_dtype_key(output->dtype))) {
            check_fail(job, "tangent's shape", "the tangent of result '%s' has another shape or element type than the result",
                point->op->slots[point->out_slot[k]].name);
            return false;
        }
        if (d)
            gradient_copy_elements(t, d);
        for (int64_t i = 0; d && i < dv_numel(t); i++) {
            *weighted_sum += d[i] * point->weights[point->weight_offsets[k] + i];
            *weighted_magnitude += fabs(d[i] * point->weights[point->weight_offsets[k] + i]);
        }
        double_pool.used = before;
    }
    gradient_free_lists(out, point->op->nargs + point->op->nresults);
    return true;
}

/* Sets the weights of all outputs to 0 for which the formula "tangent" has no value. */
static void gradient_zero_weights_without_tangent(gradient_point *point)
{
    bool any;
    for (size_t k = 0; k < point->nouts; k++)
        for (int64_t i = point->weight_offsets[k]; i < gradient_get_weights_end(point, k) &&
            gradient_find_clause_kind(point->op, "tangent", point->out_slot[k], &any) != CLAUSE_VALUE;
            i++)
            point->weights[i] = 0;
}

/* Fails the job if the tangent for an argument differs from the slopes in all of three random directions. */
static void gradient_check_tangents(check_job *job, gradient_point *point, check_random *random)
{
    const check_json *formula = check_json_find_member(point->op->json, "tangent");
    bool any;
    gradient_zero_weights_without_tangent(point);
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
        const bool is_named = gradient_expr_contains(formula, "tangent", point->op->slots[slot].name);
        int differ = 0;
        gradient_difference difference, first = { 0, 0, false };
        if (!point->c.tensors[tensor_index].present || !gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) ||
            (!is_named && gradient_find_clause_kind(point->op, "gradient", slot, &any) != CLAUSE_VALUE))
            continue;
        /* a wrong tangent is reported only if it differs in all three directions */
        for (int k = 0; k < 3 && (k == 0 || differ == k); k++) {
            finite_difference slope;
            double sum, size, *direction = gradient_draw_direction(point, tensor_index, random);
            if (!direction || !gradient_try_measure_slope(point, tensor_index, direction, &slope) ||
                !gradient_try_compute_tangent(job, point, tensor_index, direction, &sum, &size))
                break;
            differ += gradient_judge_derivative(point, &slope, sum, &difference) == VERDICT_DIFFERS && !difference.is_slight;
            first = k ? first : difference;
        }
        if (differ == 3)
            check_fail(job, "wrong tangent",
                "the tangent is wrong: moving '%s' it gives %.6g in a direction in which finite differences give %.6g (%s)",
                point->op->slots[slot].name, first.formula, first.slope, gradient_get_slope_dtype_name(point));
    }
}

/* ---- Relations between gradients, which hold without finite differences ---- */

/* Fails the job, with this kind of failure, if the gradient of a wanted slot is not `factor` times the one of full_gradients. */
static void gradient_check_scaled_gradients(check_job *job, const gradient_point *point, const bool *wanted,
    const gradient_set *full_gradients, double factor, const gradient_set *gradients, const char *failure_kind)
{
    char name[100];
    for (size_t i = 0; i < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS; i++) {
        double worst = 0, scale = 1e-30;
        for (int64_t k = 0; gradients->tensors[i] && full_gradients->tensors[i] && k < check_tensor_numel(&point->c.tensors[i]);
            k++) {
            const double expected = factor * full_gradients->tensors[i][k];
            worst = isfinite(gradients->tensors[i][k]) || factor <= 1 ? fmax(worst, fabs(gradients->tensors[i][k] - expected))
                                                                      : worst;
            scale = fmax(scale, fabs(expected));
        }
        if (worst <= 1000 * point->eps * scale &&
            (!wanted[check_find_tensor_slot(&point->c, i)] || !gradients->tensors[i] == !full_gradients->tensors[i]))
            continue;
        gradient_format_tensor_name(point, i, name, sizeof name);
        check_fail(job, failure_kind, "the gradient of '%s' is %s", name,
            factor > 1       ? "not linear in grad: a million times grad gives something else than a million times the gradient"
                : factor < 1 ? "not linear in grad: a millionth of grad gives something else than a millionth of the gradient"
                             : "another one when not all gradients are wanted");
    }
}

/* Checks that gradients are linear in the results' gradients: scaling these by a power of two, which rounds nothing, scales the
 * gradients alike. gradients: those without scaling. */
static void gradient_check_linearity(check_job *job, gradient_point *point, const gradient_set *gradients)
{
    static const double factors[] = { 0x1p20, 0x1p-20 };
    bool wanted[MAX_SLOTS];
    gradient_set_wanted_slots(point, wanted);
    for (size_t k = 0; k < 2 && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        const size_t before = double_pool.used;
        gradient_set scaled = { { NULL } };
        for (int64_t i = 0; i < point->nweights; i++)
            point->weights[i] *= factors[k];
        const bool done = !gradient_call_forward(point, 0, NULL, 0) &&
            gradient_call_backward(job, point, wanted, &scaled) == BACKWARD_DONE;
        if (done)
            gradient_check_scaled_gradients(job, point, wanted, gradients, factors[k], &scaled, "not linear in grad");
        for (int64_t i = 0; i < point->nweights; i++)
            point->weights[i] /= factors[k];
        double_pool.used = before;
    }
}

/* Checks that gradients stay the same if only those of some arguments are wanted. full_gradients: those if all are wanted. */
static void gradient_check_wanted_subsets(check_job *job, gradient_point *point, const gradient_set *full_gradients)
{
    bool all_wanted[MAX_SLOTS], wanted[MAX_SLOTS];
    size_t slots[8], n = 0;
    gradient_set_wanted_slots(point, all_wanted);
    for (size_t s = 0; s < point->op->nargs && n < 8; s++)
        if (all_wanted[s])
            slots[n++] = s;
    for (uint32_t set = 1; n > 1 && set + 1 < 1u << n && job->result->outcome == CHECK_OUTCOME_PASS;
        set = n <= 4 ? set + 1 : set << 1) {
        const size_t before = double_pool.used;
        gradient_set subset_gradients = { { NULL } };
        memset(wanted, 0, sizeof wanted);
        for (size_t k = 0; k < n; k++)
            wanted[slots[k]] = set >> k & 1;
        if (gradient_call_forward(point, 0, NULL, 0) ||
            gradient_call_backward(job, point, wanted, &subset_gradients) != BACKWARD_DONE)
            return;
        gradient_check_scaled_gradients(
            job, point, wanted, full_gradients, 1, &subset_gradients, "depends on requested gradients");
        double_pool.used = before;
    }
}

/* ---- Low precision ---- */

/* Sets spreads[i] to the largest change of the f64 gradient of tensor i when every intermediate value is rounded, simulated by
 * noise of this relative size. Returns false if a call fails, a change is not finite, or values are near the end of the range of
 * f16. */
static bool gradient_try_measure_rounding_spreads(
    check_job *job, gradient_point *point, double noise, const gradient_set *exact_gradients, double spreads[CHECK_MAX_TENSORS])
{
    bool wanted[MAX_SLOTS];
    gradient_set_wanted_slots(point, wanted);
    memset(spreads, 0, sizeof *spreads * CHECK_MAX_TENSORS);
    gradient_host.noise = noise;
    gradient_host.max_magnitude = 0;
    bool is_usable = true;
    for (int k = 0; k < NUM_ROUNDED_RUNS && is_usable; k++) {
        const size_t before = double_pool.used;
        gradient_set rounded_gradients = { { NULL } };
        is_usable = !gradient_call_forward(point, 0, NULL, 0) &&
            gradient_call_backward(job, point, wanted, &rounded_gradients) == BACKWARD_DONE;
        for (size_t i = 0; i < point->c.ntensors && is_usable; i++)
            for (int64_t n = 0; exact_gradients->tensors[i] && n < check_tensor_numel(&point->c.tensors[i]); n++) {
                const double change = rounded_gradients.tensors[i]
                    ? fabs(rounded_gradients.tensors[i][n] - exact_gradients->tensors[i][n])
                    : NAN;
                is_usable &= isfinite(change) != 0;
                spreads[i] = fmax(spreads[i], change);
            }
        double_pool.used = before;
    }
    gradient_host.noise = 0;
    return is_usable && gradient_host.max_magnitude < 4096; /* f16 ends at 65504: the rest of its range is left for sums */
}

/* True if backward is the transpose of forward: the tangent along a random direction, weighted, equals the gradient for these
 * weights along it. This holds even in narrow dtypes and at jumps. True, too, if one of both cannot be computed. */
static bool gradient_agrees_with_tangent(
    check_job *job, gradient_point *point, size_t tensor_index, check_random *random, gradient_difference *difference)
{
    const size_t before = double_pool.used;
    const int64_t numel = check_tensor_numel(&point->c.tensors[tensor_index]);
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    double size = 0, sum = 0, direction_size = 0, spread[CHECK_MAX_TENSORS],
           *direction = gradient_draw_direction(point, tensor_index, random);
    gradient_set_wanted_slots(point, wanted);
    bool agree = !direction || gradient_call_forward(point, 0, NULL, 0) ||
        gradient_call_backward(job, point, wanted, &gradients) != BACKWARD_DONE ||
        !gradient_try_compute_tangent(job, point, tensor_index, direction, &sum, &size);
    *difference = (gradient_difference){ sum,
        agree ? 0 : gradient_dot_direction(gradients.tensors[tensor_index], direction, numel), false };
    for (int64_t i = 0; !agree && i < numel; i++) {
        size += gradients.tensors[tensor_index] ? fabs(gradients.tensors[tensor_index][i] * direction[i]) : 0;
        direction_size += fabs(direction[i]);
    }
    const double distance = fabs(difference->formula - difference->slope), rounded = 32 * point->eps * size + 1e-5;
    agree = agree || !isfinite(distance) || distance <= rounded ||
        !gradient_try_measure_rounding_spreads(job, point, point->eps, &gradients, spread) ||
        distance <= rounded + 64 * spread[tensor_index] * direction_size;
    double_pool.used = before;
    return agree;
}

/* Fails the job if the gradient of an argument does not agree with the tangent at the point and at three other points. */
static void gradient_check_against_tangents(check_job *job, gradient_point *point, check_random *random)
{
    static gradient_point other;
    gradient_difference difference, first;
    bool any;
    gradient_zero_weights_without_tangent(point);
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const size_t slot = check_find_tensor_slot(&point->c, tensor_index), before = double_pool.used;
        if (!point->c.tensors[tensor_index].present || !gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) ||
            gradient_find_clause_kind(point->op, "gradient", slot, &any) != CLAUSE_VALUE)
            continue;
        bool agree = gradient_agrees_with_tangent(job, point, tensor_index, random, &first);
        for (uint64_t k = 1; k <= 3 && !agree; k++) { /* other points exclude a kink */
            agree = !gradient_try_make_other_point(&other, point, k, random);
            if (!agree)
                gradient_zero_weights_without_tangent(&other);
            agree = agree || gradient_agrees_with_tangent(job, &other, tensor_index, random, &difference);
        }
        double_pool.used = before;
        if (!agree)
            check_fail(job, "tangent and gradient disagree",
                "the tangent and the gradient of '%s' are not of one function: in a direction one gives %.6g and the other %.6g",
                point->op->slots[slot].name, first.formula, first.slope);
    }
}

/* Compares the gradients at low_point, in the case's own dtypes, with those at wide_point, in f64 at the same elements.
 * VERDICT_DIFFERS: *differing_tensor and *difference receive where and how. */
static enum comparison_verdict gradient_judge_low_precision(check_job *job, gradient_point *low_point, gradient_point *wide_point,
    check_random *random, size_t *differing_tensor, gradient_difference *difference)
{
    gradient_set gradients = { { NULL } }, low_gradients = { { NULL } };
    double spread[CHECK_MAX_TENSORS];
    bool wanted[MAX_SLOTS];
    gradient_set_wanted_slots(low_point, wanted);
    if (!gradient_try_draw_weights(wide_point, random) || gradient_call_forward(low_point, 0, NULL, 0) ||
        low_point->nweights != wide_point->nweights)
        return VERDICT_UNSURE;
    memcpy(low_point->weights, wide_point->weights, sizeof *wide_point->weights * (size_t)wide_point->nweights);
    if (gradient_call_backward(job, low_point, wanted, &low_gradients) != BACKWARD_DONE ||
        gradient_call_forward(wide_point, 0, NULL, 0) ||
        gradient_call_backward(job, wide_point, wanted, &gradients) != BACKWARD_DONE ||
        !gradient_try_measure_rounding_spreads(job, wide_point, low_point->eps, &gradients, spread))
        return VERDICT_UNSURE;
    for (size_t i = 0; i < wide_point->c.ntensors; i++) {
        double most = 0;
        const int64_t n = check_tensor_numel(&wide_point->c.tensors[i]);
        for (int64_t k = 0; k < n && gradients.tensors[i]; k++)
            most = fmax(most, fabs(gradients.tensors[i][k]));
        for (int64_t k = 0; k < n && gradients.tensors[i]; k++) {
            const double found = low_gradients.tensors[i] ? low_gradients.tensors[i][k] : 0,
                         allowed = 16 * (spread[i] + low_point->eps * most) + 1e-5 + fmax(wide_point->op->rtol, 0) * most;
            *differing_tensor = i;
            *difference = (gradient_difference){ found, gradients.tensors[i][k], false };
            if (!isfinite(gradients.tensors[i][k]) || fabs(found - gradients.tensors[i][k]) <= allowed)
                continue;
            return VERDICT_DIFFERS;
        }
    }
    return VERDICT_AGREES;
}

/* Fails the job if a gradient in the case's own dtypes differs from the one in f64 at this point and at three others by more than
 * rounding explains. */
static void gradient_check_low_precision(
    check_job *job, gradient_point *low_point, gradient_point *wide_point, check_random *random)
{
    static gradient_point low_again, same_point;
    gradient_difference difference, first;
    size_t other_tensor, differing_tensor;
    char name[100];
    if (gradient_judge_low_precision(job, low_point, wide_point, random, &differing_tensor, &first) != VERDICT_DIFFERS)
        return;
    /* other points must differ, too: rounding may change the outcome of a comparison within the operator at one point */
    for (uint64_t k = 1; k <= 3; k++) {
        const size_t before = double_pool.used;
        const bool differs = gradient_try_make_other_point(&low_again, low_point, k, random) &&
            gradient_try_make_point_with_dtypes(&same_point, &low_again, &wide_point->c) &&
            !gradient_call_forward(&same_point, 0, NULL, 0) &&
            gradient_judge_low_precision(job, &low_again, &same_point, random, &other_tensor, &difference) == VERDICT_DIFFERS;
        double_pool.used = before;
        if (!differs)
            return;
    }
    gradient_format_tensor_name(wide_point, differing_tensor, name, sizeof name);
    check_fail(job, "wrong in low precision",
        "the gradient of '%s' is %.6g, and at the same numbers in %s it is %.6g: more than rounding explains", name,
        first.formula, gradient_get_slope_dtype_name(wide_point), first.slope);
}

/* ---- A case ---- */

/* Copies a case to `out` with this dtype for all its floating-point tensors and dtype arguments. Returns false if the contract
 * does not accept the copy. */
static bool gradient_try_cast_case(const check_op *op, const check_case *c, const char *dtype_name, check_case *out)
{
    dv_dtype dtype;
    *out = *c;
    dv_dtype_parse(dtype_name, &dtype);
    for (size_t i = 0; i < c->ntensors; i++) {
        out->tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
        if (gradient_is_differentiable(c->tensors[i].dtype))
            out->tensors[i].dtype = dtype;
    }
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type == DV_VALUE_DTYPE && gradient_is_differentiable(c->args[i].as.dtype))
            out->args[i].as.dtype = dtype;
    return check_is_accepted(op, out);
}

/* True if the tensors of two cases, except absent ones, have the same dtypes. */
static bool gradient_has_same_dtypes(const check_case *first, const check_case *second)
{
    for (size_t i = 0; i < first->ntensors; i++)
        if (first->tensors[i].present && dv_dtype_key(first->tensors[i].dtype) != dv_dtype_key(second->tensors[i].dtype))
            return false;
    return true;
}

/* True if all elements of the floating-point outputs of the last call are finite. */
static bool gradient_has_finite_outputs(const gradient_point *point)
{
    for (size_t k = 0; k < point->nouts; k++) {
        const dv_tensor *t = gradient_find_output(point, k);
        for (int64_t i = 0; i < dv_numel(t); i++)
            if (!isfinite(check_element_get(t->data, i, t->dtype)))
                return false;
    }
    return true;
}

/* Makes all checks that need a point in f64 or f32: gradients and tangents against slopes, linearity, subsets of wanted
 * gradients, and low precision. Returns without a verdict if the operator accepts neither dtype. */
static void gradient_check_point(check_job *job, gradient_point *point, const check_case *original_case, check_random *random)
{
    static gradient_point wide_point;
    static check_case wide_case;
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    const bool takes_f64 = gradient_try_cast_case(job->op, original_case, "f64", &wide_case);
    if (!takes_f64 && !gradient_try_cast_case(job->op, original_case, "f32", &wide_case)) {
        judged_counts.unchecked_reason = "it takes neither f64 nor f32: finite differences have no precision";
        return;
    }
    if (!takes_f64 && check_case_max_numel(original_case) > MAX_ELEMENTS_F32)
        return;
    if (!gradient_try_make_point_with_dtypes(&wide_point, point, &wide_case) || gradient_call_forward(&wide_point, 0, NULL, 0) ||
        !gradient_try_draw_weights(&wide_point, random))
        return;
    if (wide_point.eps > 0x1p-24) {
        judged_counts.unchecked_reason = "a result is of a type with fewer digits than f32: finite differences have no precision";
        return;
    }
    judged_counts.nnumeric++;
    check_set_current_case(job, &wide_case);
    gradient_set_wanted_slots(&wide_point, wanted);
    if (gradient_call_backward(job, &wide_point, wanted, &gradients) != BACKWARD_DONE)
        return;
    if (gradient_has_formula_of_kind(job->op, "gradient"))
        gradient_check_against_slopes(job, &wide_point, &gradients, random);
    if (job->result->outcome == CHECK_OUTCOME_PASS && gradient_has_formula_of_kind(job->op, "gradient"))
        gradient_check_linearity(job, &wide_point, &gradients);
    if (job->result->outcome == CHECK_OUTCOME_PASS &&
        gradient_expr_contains(check_json_find_member(job->op->json, "gradient"), "needs", NULL))
        gradient_check_wanted_subsets(job, &wide_point, &gradients);
    if (job->result->outcome == CHECK_OUTCOME_PASS && !job->op->is_nondeterministic &&
        !gradient_has_same_dtypes(original_case, &wide_case) && point->eps < 0x1p-7 &&
        gradient_get_difference_precision(&wide_point) == &precision_f64) {
        check_set_current_case(job, original_case);
        gradient_check_low_precision(job, point, &wide_point, random);
    }
    if (job->result->outcome == CHECK_OUTCOME_PASS &&
        gradient_has_formula_of_kind(job->op, "tangent")) { /* tangents are checked last, because that changes the weights */
        check_set_current_case(job, &wide_case);
        gradient_check_tangents(job, &wide_point, random);
    }
}

/* Changes a case's contents so that finite differences are meaningful: no special values, moderate magnitudes, contiguous
 * tensors. is_positive: all elements are at least 0.25. */
static void gradient_simplify_contents(check_case *c, bool is_positive)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_LAYOUT_CONTIGUOUS;
        if (!gradient_is_differentiable(t->dtype))
            continue;
        if (t->fill == CHECK_FILL_BINADES) { /* small elements would vanish in finite differences of large ones */
            t->low = -2;
            t->high = 2;
        }
        t->fill = t->fill == CHECK_FILL_SPECIAL_VALUES || t->fill == CHECK_FILL_BINADES ? CHECK_FILL_RANDOM : t->fill;
        t->low = is_positive ? 0.25 : t->low;
    }
}

/* Counts a case. When MIN_JUDGED_CASES were counted, sets "not checked" if none or too few of them could be judged by finite
 * differences. */
static void gradient_count_case(check_job *job)
{
    if (++judged_counts.cases < MIN_JUDGED_CASES || job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    if (judged_counts.cases == MIN_JUDGED_CASES && !judged_counts.nnumeric)
        check_report_unchecked(job, "%s",
            judged_counts.unchecked_reason ? judged_counts.unchecked_reason
                                           : "no case has a result and an argument of real numbers");
    else if (judged_counts.cases == MIN_JUDGED_CASES && judged_counts.nrough > judged_counts.nsmooth)
        check_report_unchecked(job,
            "finite differences do not agree among themselves at %u of %u points: it is not smooth, or too imprecise",
            judged_counts.nrough, judged_counts.nrough + judged_counts.nsmooth);
}

/* Checks one case: its gradients and tangents against finite differences, and against each other. */
static void gradient_test_case(check_job *job, const check_case *planned_case)
{
    static check_case c;
    static gradient_point point;
    check_random random = { planned_case->seed };
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    double_pool.used = 0;
    gradient_host.noise = 0;
    c = *planned_case;
    gradient_simplify_contents(&c, false);
    check_set_current_case(job, &c);
    if (check_case_max_numel(&c) > MAX_ELEMENTS)
        return;
    for (size_t i = 0; i < c.ntensors; i++)
        if (c.tensors[i].present && c.tensors[i].dtype.code == 5) {
            judged_counts.unchecked_reason = "its element types are complex, of which finite differences are not taken";
            gradient_count_case(job);
            return;
        }
    for (size_t i = 0; i < c.nargs; i++)
        if (c.args[i].type == DV_VALUE_COMPLEX) /* results may be complex, of which finite differences are not taken */
            return;
    if (!gradient_try_make_point(&point, job->op, &c))
        return;
    if (gradient_call_forward(&point, 0, NULL, 0)) {
        check_count_refusal(job);
        return;
    }
    if (gradient_try_draw_weights(&point, &random) && !gradient_has_finite_outputs(&point)) {
        double_pool.used = 0;
        gradient_simplify_contents(&c, true);
        check_set_current_case(job, &c);
        if (!gradient_try_make_point(&point, job->op, &c) || gradient_call_forward(&point, 0, NULL, 0) ||
            !gradient_try_draw_weights(&point, &random) || !gradient_has_finite_outputs(&point))
            return;
    }
    gradient_set_wanted_slots(&point, wanted);
    if (point.nouts && gradient_has_formula_of_kind(job->op, "gradient") &&
        gradient_call_backward(job, &point, wanted, &gradients) == BACKWARD_DONE)
        gradient_check_point(job, &point, &c, &random);
    if (point.nouts && gradient_has_formula_of_kind(job->op, "gradient") && gradient_has_formula_of_kind(job->op, "tangent") &&
        job->result->outcome == CHECK_OUTCOME_PASS) {
        check_set_current_case(job, &c);
        gradient_check_against_tangents(job, &point, &random);
    }
    gradient_count_case(job);
}

/* Returns the reason why the property does not apply, which is a missing formula; NULL: it applies. */
static const char *gradient_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    (void)kernel;
    return gradient_has_formula_of_kind(op, "gradient") ? NULL : "it declares no gradient";
}

const check_property check_property_gradient = {
    .name = "gradient",
    .description =
        "the declared gradients and tangents are those of finite differences, in every element type, shape and for every "
        "part that is wanted",
    .find_inapplicable_reason = gradient_find_inapplicable_reason,
    .test_case = gradient_test_case,
};
