/* main.c: my_ops from a C program, with no Python and no framework.
 *
 *     cc main.c $(dovetail --cflags --libs) -o main && ./main
 */
#include <dovetail.h>
#include <math.h>
#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dv_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const float gate_data[6] = {-2, -1, 0, 1, 2, 3}, up_data[6] = {1, 2, 3, 4, 5, 6};
    const int64_t shape[2] = {2, 3};
    dv_library *lib = NULL;
    dv_operator *op = NULL;
    dv_tensor *gate = NULL, *up = NULL;
    int status = 1;

    if (dv_load(argc > 1 ? argv[1] : "./my_ops.so", &lib))
        return fail("load");
    if (dv_find("my_ops::swiglu", &op) || dv_tensor_new((dv_dtype){2, 32, 1}, 2, shape, &gate)
        || dv_tensor_new((dv_dtype){2, 32, 1}, 2, shape, &up)) {
        fail("prepare");
        goto done;
    }
    memcpy(gate->data, gate_data, sizeof gate_data);
    memcpy(up->data, up_data, sizeof up_data);

    /* Results that are not given are allocated: out.as.tensor is ours to unref. */
    dv_value args[2] = {dv_from_tensor(gate), dv_from_tensor(up)}, out = dv_default();
    if (dv_call(op, args, 2, &out, 1, NULL)) {
        fail("call");
        goto done;
    }
    const float *result = out.as.tensor->data;
    status = 0;
    for (int i = 0; i < 6; i++) {
        const float expected = gate_data[i] / (1 + expf(-gate_data[i])) * up_data[i];
        printf("swiglu(%g, %g) = %g\n", gate_data[i], up_data[i], result[i]);
        if (fabsf(result[i] - expected) > 1e-6f * (1 + fabsf(expected)))
            status = 1;
    }
    dv_tensor_unref((dv_tensor *)out.as.tensor);
done:
    dv_tensor_unref(gate);
    dv_tensor_unref(up);
    dv_operator_unref(op);
    dv_library_free(lib);
    return status;
}
