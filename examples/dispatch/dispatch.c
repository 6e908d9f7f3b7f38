/* dispatch.c: an operator that is registered by hand, key by key.
 *
 *     cc dispatch.c $(dovetail --cflags --libs) -o dispatch && ./dispatch
 *
 * demo::twice is defined by its schema and has one kernel on the CPU key. A second library puts a kernel on the Autograd key: it
 * sees every call first, does its own work, and goes on to the next key with dv_redispatch(). A guard makes calls pass it by. */
#include <dovetail.h>
#include <stdio.h>

/* A boxed kernel gets values in the schema's order. A result is given, or made here. */
static int twice_cpu(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const struct dv_host *host)
{
    const dv_tensor *x = args[0].as.tensor;
    dv_tensor *made = NULL;
    (void)user, (void)nargs, (void)nresults, (void)host;
    if (results[0].type != DV_VALUE_TENSOR) {
        const int status = dv_tensor_new(x->dtype, x->ndim, x->shape, &made);
        if (status)
            return status;
        results[0] = dv_from_tensor(made);
    }
    printf("  cpu: %s\n", dv_operator_name(op));
    for (int64_t i = 0, n = dv_numel(x); i < n; i++)
        ((float *)results[0].as.tensor->data)[i] = 2 * ((const float *)x->data)[i];
    return DV_OK;
}

static int watch(void *user, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const struct dv_host *host)
{
    ++*(int *)user;
    printf("  autograd: %s, call %d\n", dv_operator_name(op), *(int *)user);
    return dv_redispatch(op, DV_KEY_AUTOGRAD_CPU, args, nargs, results, nresults, host);
}

static int call(dv_operator *op, const char *title)
{
    static float data[3] = { 1, 2, 3 };
    const int64_t shape[1] = { 3 };
    int64_t strides[1];
    const dv_device cpu = { DV_CPU, 0 };
    dv_tensor x;
    dv_dtype f32;
    printf("%s\n", title);
    int status = dv_dtype_parse("f32", &f32);
    if (!status)
        status = dv_tensor_init(&x, data, f32, cpu, 1, shape, NULL, strides);
    if (status)
        return status;
    const dv_value arg = dv_from_tensor(&x);
    dv_value result = dv_default();
    if ((status = dv_call(op, &arg, 1, &result, 1, NULL)))
        return status;
    const float *y = result.as.tensor->data;
    printf("  %g %g %g\n", y[0], y[1], y[2]);
    dv_tensor_unref((dv_tensor *)result.as.tensor);
    return DV_OK;
}

int main(void)
{
    dv_library *demo = NULL, *watcher = NULL;
    dv_operator *twice = NULL; /* borrowed from demo */
    int calls = 0;
    int status = dv_library_new(DV_LIBRARY_DEF, "demo", DV_KEY_NONE, &demo);
    if (!status)
        status = dv_library_define(demo, "twice(Tensor x) -> Tensor", NULL, &twice);
    if (!status)
        status = dv_library_impl(demo, "twice", DV_KEY_CPU, twice_cpu, NULL);
    if (!status)
        status = call(twice, "one kernel:");
    if (!status)
        status = dv_library_new(DV_LIBRARY_IMPL, "demo", DV_KEY_AUTOGRAD, &watcher);
    if (!status)
        status = dv_library_impl(watcher, "twice", DV_KEY_NONE, watch, &calls); /* on the library's key */
    if (!status)
        status = call(twice, "a kernel on the Autograd key:");
    if (!status) {
        const dv_guard before = dv_guard_push(0, 1u << DV_KEY_AUTOGRAD_CPU);
        status = call(twice, "with a guard that leaves autograd out:");
        dv_guard_pop(before);
    }
    dv_library_free(watcher);
    if (!status)
        status = call(twice, "its library freed:");
    if (status)
        fprintf(stderr, "%s\n", dv_last_error());
    dv_library_free(demo);
    return status != 0;
}
