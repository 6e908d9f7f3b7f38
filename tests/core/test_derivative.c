/* dv_gradient() and dv_tangent(): every kind of clause, what is handed over and what is copied, masks, errors, memory that runs
 * out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef DV_STATIC
#define DV_STATIC 1
#endif
#include "dovetail.h"
#include "failing.h"

struct binary {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
struct masked {
    const dv_tensor *x, *y;
    dv_bools mask;
    dv_tensor *a, *b;
};
struct written {
    const dv_tensor *x;
    dv_tensor *y;
};
struct list {
    dv_tensors xs;
    dv_tensor *out;
};

static int calls; /* of times() */
static int times(dv_context *ctx, const struct binary *a)
{
    (void)ctx;
    calls++;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * ((const double *)a->y->data)[i];
    return DV_OK;
}
static int both(dv_context *ctx, const struct masked *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++) {
        ((double *)a->a->data)[i] = a->mask.data[0] ? ((const double *)a->x->data)[i] : -1;
        ((double *)a->b->data)[i] = a->mask.data[1] ? ((const double *)a->y->data)[i] : -1;
    }
    return DV_OK;
}
static int put(dv_context *ctx, const struct written *a)
{
    (void)ctx;
    memcpy(a->y->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(double));
    return DV_OK;
}
static int first(dv_context *ctx, const struct list *a)
{
    (void)ctx;
    memcpy(a->out->data, a->xs.data[0]->data, (size_t)dv_numel(a->out) * sizeof(double));
    return DV_OK;
}

#define TWO "(Tensor x, Tensor y) -> Tensor out"
#define ALIKE "x[*s]:f64, y[*s]:f64 -> out[*s]:f64"
#define TIMES DV_KERNELS(DV_KERNEL(struct binary, "cpu", "f64", times))
DV_OPERATOR(times, struct binary, (x, y, out), .schema = "times" TWO, .contract = ALIKE, .kernels = TIMES,
    .gradient = "x: times(grad, y); y: times(grad, x)", .tangent = "out: times(times(x_t, y), times(x, y_t))");
DV_OPERATOR(shared, struct binary, (x, y, out), .schema = "shared" TWO, .contract = ALIKE, .kernels = TIMES,
    .gradient = "x, y: [times(grad, out), times(grad, out)]");
DV_OPERATOR(passed, struct binary, (x, y, out), .schema = "passed" TWO, .contract = ALIKE, .kernels = TIMES,
    .gradient = "x: grad; y: if(x.ndim > 1, None, times(grad, y))");
DV_OPERATOR(masked, struct binary, (x, y, out), .schema = "masked" TWO, .contract = ALIKE, .kernels = TIMES,
    .gradient = "x, y: both(x, y, [needs(x), needs(y)])");
DV_OPERATOR(late, struct binary, (x, y, out), .schema = "late" TWO, .contract = ALIKE, .kernels = TIMES,
    .gradient = "x: times(grad, y); y: if(x.shape[3] > 0, grad, x)");
DV_OPERATOR(plain, struct binary, (x, y, out), .schema = "plain" TWO, .contract = ALIKE, .kernels = TIMES);
DV_OPERATOR(both, struct masked, (x, y, mask, a, b), .schema = "both(Tensor x, Tensor y, bool[2] mask) -> (Tensor a, Tensor b)",
    .contract = "x[*s]:f64, y[*s]:f64 -> a[*s]:f64, b[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct masked, "cpu", "f64", both)));
DV_OPERATOR(apart, struct masked, (x, y, mask, a, b), .schema = "apart(Tensor x, Tensor y, bool[2] mask) -> (Tensor a, Tensor b)",
    .contract = "x[*s]:f64, y[*s]:f64 -> a[*s]:f64, b[*s]:f64", .gradient = "x: times(grads[0], y); y: times(grads[1], y)",
    .kernels = DV_KERNELS(DV_KERNEL(struct masked, "cpu", "f64", both)));
DV_OPERATOR(put, struct written, (x, y), .schema = "put(Tensor x, Tensor(a!) y) -> ()", .contract = "x[*s]:f64, y[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct written, "cpu", "f64", put)), .gradient = "x: times(grad, y); y: non_differentiable");
DV_OPERATOR(first, struct list, (xs, out), .schema = "first(Tensor[] xs) -> Tensor out", .contract = "xs{i}[n]:f64 -> out[n]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct list, "cpu", "f64", first)),
    .gradient = "xs: if(len(xs) == 2, [grad, times(grad, grad)], [grad])");
DV_LIBRARY(td, &dv_op_times, &dv_op_shared, &dv_op_passed, &dv_op_masked, &dv_op_late, &dv_op_plain, &dv_op_both, &dv_op_apart,
    &dv_op_put, &dv_op_first);

static dv_library *library;
static int load(void **state)
{
    (void)state;
    if (!dv_load_static(&dv_library_td, &library))
        return 0;
    fprintf(stderr, "%s\n", dv_last_error());
    return 1;
}
static int unload(void **state)
{
    (void)state;
    dv_library_free(library);
    return 0;
}

static dv_operator *find(const char *name)
{
    char full[64];
    dv_operator *op;
    snprintf(full, sizeof full, "td::%s", name);
    if (dv_find(full, &op))
        fail_msg("%s", dv_last_error());
    dv_operator_unref(op); /* the library keeps it */
    return op;
}

static const int64_t three[] = { 3 }, two_by_one[] = { 2, 1 };
static dv_tensor *filled(int32_t ndim, const int64_t *shape, double x)
{
    dv_tensor *t;
    if (dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f64), ndim, shape, &t))
        fail_msg("%s", dv_last_error());
    for (int64_t i = 0; i < dv_numel(t); i++)
        ((double *)t->data)[i] = x;
    return t;
}
static double value(const dv_value *v)
{
    assert_int_equal(v->type, DV_VALUE_TENSOR);
    return ((const double *)v->as.tensor->data)[0];
}
static void release(dv_value *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; out[i].type == DV_VALUE_TENSORS && k < out[i].as.tensors.size; k++)
            dv_tensor_unref((dv_tensor *)(uintptr_t)out[i].as.tensors.data[k]);
        if (out[i].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)out[i].as.tensors.data);
        else if (out[i].type == DV_VALUE_TENSOR)
            dv_tensor_unref((dv_tensor *)(uintptr_t)out[i].as.tensor);
    }
}

#define OK(...)                              \
    do {                                     \
        if (__VA_ARGS__)                     \
            fail_msg("%s", dv_last_error()); \
    } while (0)

/* Slots of a call with x = 2, y = 5, out = 10, and what flows: grad = 3. */
typedef struct slots {
    dv_tensor *x, *y, *out, *grad;
    dv_value values[3], flows[3];
} slots;
static slots make(int32_t ndim, const int64_t *shape)
{
    slots s = { filled(ndim, shape, 2), filled(ndim, shape, 5), filled(ndim, shape, 10), filled(ndim, shape, 3),
        { { 0, 0, { 0 } } }, { { 0, 0, { 0 } } } };
    s.values[0] = dv_from_tensor(s.x);
    s.values[1] = dv_from_tensor(s.y);
    s.values[2] = dv_from_tensor(s.out);
    s.flows[0] = s.flows[1] = dv_none();
    s.flows[2] = dv_from_tensor(s.grad);
    return s;
}
static void done(slots *s)
{
    dv_tensor_unref(s->x);
    dv_tensor_unref(s->y);
    dv_tensor_unref(s->out);
    dv_tensor_unref(s->grad);
}

static void gradients(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[3];
    const bool only_y[] = { false, true, false };
    OK(dv_gradient(find("times"), s.values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 15 && value(&out[1]) == 6 && out[2].type == DV_VALUE_NONE);
    release(out, 3);
    OK(dv_gradient(find("times"), s.values, s.flows, only_y, out, NULL));
    assert_true(out[0].type == DV_VALUE_NONE && value(&out[1]) == 6);
    release(out, 3);
    done(&s);
}

/* In the functional form the value of y after the call is the result y_out. */
static void functional(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_operator *op;
    OK(dv_functional(find("put"), &op));
    dv_value values[3] = { s.values[0], s.values[2], s.values[1] }, out[3]; /* y was 10, and is 5 */
    OK(dv_gradient(op, values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 15 && out[1].type == DV_VALUE_NONE && out[2].type == DV_VALUE_NONE);
    release(out, 3);
    dv_operator_unref(op);
    done(&s);
}

/* Equal calls are one; calls that differ only in what `grads[i]` means are two. */
static void equal_calls(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[5];
    calls = 0;
    OK(dv_gradient(find("shared"), s.values, s.flows, NULL, out, NULL));
    assert_int_equal(calls, 1);
    release(out, 3);
    const bool mask[] = { true, true };
    dv_value values[5] = { s.values[0], s.values[1], dv_none(), s.values[0], s.values[1] };
    values[2].type = DV_VALUE_BOOLS;
    values[2].as.bools = (dv_bools){ mask, 2 };
    const dv_value flows[5] = { dv_none(), dv_none(), dv_none(), s.flows[2], s.values[2] };
    OK(dv_gradient(find("apart"), values, flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 15 && value(&out[1]) == 50 && calls == 3);
    release(out, 5);
    done(&s);
}

/* Every tensor is a new one: what is named twice, or was given, is copied. */
static void handed_over(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[3];
    OK(dv_gradient(find("shared"), s.values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 30 && value(&out[1]) == 30);
    assert_ptr_not_equal(out[0].as.tensor->data, out[1].as.tensor->data);
    release(out, 3);
    OK(dv_gradient(find("passed"), s.values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 3 && value(&out[1]) == 15);
    assert_ptr_not_equal(out[0].as.tensor->data, s.grad->data);
    release(out, 3);
    done(&s);
}

static void conditions(void **state)
{
    (void)state;
    slots s = make(1, three), t = make(2, two_by_one);
    dv_value out[3];
    const bool only_y[] = { false, true, false };
    OK(dv_gradient(find("passed"), t.values, t.flows, NULL, out, NULL));
    assert_int_equal(out[1].type, DV_VALUE_NONE);
    release(out, 3);
    OK(dv_gradient(find("masked"), s.values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 2 && value(&out[1]) == 5);
    release(out, 3);
    OK(dv_gradient(find("masked"), s.values, s.flows, only_y, out, NULL));
    assert_true(out[0].type == DV_VALUE_NONE && value(&out[1]) == 5);
    release(out, 3);
    done(&s);
    done(&t);
}

/* The gradient of an argument that is written and not returned stands in its own slot. */
static void written_arguments(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[3];
    s.flows[1] = dv_from_tensor(s.grad);
    OK(dv_gradient(find("put"), s.values, s.flows, NULL, out, NULL));
    assert_true(value(&out[0]) == 15 && out[1].type == DV_VALUE_NONE);
    release(out, 2);
    done(&s);
}

static void lists(void **state)
{
    (void)state;
    slots s = make(1, three);
    const dv_tensor *const xs[] = { s.x, s.y };
    dv_value values[2] = { dv_from_tensors(xs, 2), s.values[2] }, flows[2] = { dv_none(), s.flows[2] }, out[2];
    OK(dv_gradient(find("first"), values, flows, NULL, out, NULL));
    assert_int_equal(out[0].type, DV_VALUE_TENSORS);
    assert_int_equal(out[0].as.tensors.size, 2);
    const dv_value second = dv_from_tensor(out[0].as.tensors.data[1]);
    assert_true(value(&second) == 9);
    release(out, 2);
    done(&s);
}

static void tangents(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[3];
    s.flows[0] = s.flows[1] = s.flows[2];
    OK(dv_tangent(find("times"), s.values, s.flows, out, NULL));
    assert_true(out[0].type == DV_VALUE_NONE && value(&out[2]) == 3 * 5 * 2 * 3);
    release(out, 3);
    done(&s);
}

static void fails(int status, const char *words, int got)
{
    if (got != status || !strstr(dv_last_error(), words))
        fail_msg("expected %s and '%s', found %s: %s", dv_status_name(status), words, dv_status_name(got), dv_last_error());
}

static void errors(void **state)
{
    (void)state;
    slots s = make(1, three);
    dv_value out[3];
    fails(DV_ENOTSUP, "td::plain: it declares no gradient", dv_gradient(find("plain"), s.values, s.flows, NULL, out, NULL));
    fails(DV_ENOTSUP, "td::plain: it declares no tangent", dv_tangent(find("plain"), s.values, s.flows, out, NULL));
    fails(DV_EINVAL, "td::late: gradient: x.shape[3]: the index is out of range",
        dv_gradient(find("late"), s.values, s.flows, NULL, out, NULL));
    assert_true(out[0].type == DV_VALUE_NONE && out[1].type == DV_VALUE_NONE); /* that of x was given back */
    fails(DV_EINVAL, "found NULL", dv_gradient(NULL, s.values, s.flows, NULL, out, NULL));
    fails(DV_EINVAL, "found NULL", dv_tangent(find("times"), s.values, NULL, out, NULL));
    s.values[0] = dv_none();
    fails(DV_ETYPE, "argument 'x'", dv_gradient(find("times"), s.values, s.flows, NULL, out, NULL));
    done(&s);
}

static int each(void *name)
{
    dv_tensor *t;
    dv_value values[3], flows[3], out[3];
    int status = dv_tensor_new(dv_dtype_from_key(DV_DTYPE_f64), 1, three, &t);
    if (status)
        return status;
    for (int i = 0; i < 3; i++)
        values[i] = flows[i] = dv_from_tensor(t);
    const dv_tensor *const xs[] = { t, t };
    if (!strcmp(name, "first"))
        values[0] = dv_from_tensors(xs, 2);
    status = dv_gradient(find(name), values, flows, NULL, out, NULL);
    if (!status)
        release(out, !strcmp(name, "first") ? 2 : 3);
    dv_tensor_unref(t);
    return status;
}

static void memory_runs_out(void **state)
{
    (void)state;
    static char names[][8] = { "times", "shared", "passed", "masked", "first" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        failing_each(each, names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(functional),
        cmocka_unit_test(equal_calls),
        cmocka_unit_test(handed_over),
        cmocka_unit_test(conditions),
        cmocka_unit_test(written_arguments),
        cmocka_unit_test(lists),
        cmocka_unit_test(tangents),
        cmocka_unit_test(errors),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
