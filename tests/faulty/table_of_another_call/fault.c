/* The fault: a table for the largest n so far, without a lock: a call with a larger n frees the one that another call reads */
#include <dovetail_op.h>
#include <math.h>

struct window {
    const dv_tensor *x;
    dv_tensor *out;
};

static float *table;
static int64_t size;

static int window_f32(dv_context *ctx, const struct window *a)
{
    const int64_t n = a->x->shape[0];
    if (size < n) {
        free(table);
        table = malloc((size_t)n * sizeof *table);
        size = table ? n : 0;
        if (!table)
            return dv_error(ctx, DV_ENOMEM, "out of memory");
        for (int64_t i = 0; i < n; i++)
            table[i] = 1 / (1 + (float)i);
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * table[i];
    return DV_OK;
}

DV_OPERATOR(window, struct window, (x, out), .schema = "window(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct window, "cpu", "f32", window_f32)));

DV_LIBRARY(table_of_another_call, &dv_op_window);
