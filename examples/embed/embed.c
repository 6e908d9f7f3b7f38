/* embed.c: an operator inside the program.
 *
 *     cc -DDV_STATIC embed.c square.c $(dovetail --cflags --libs) -o embed && ./embed
 */
#include <dovetail.h>
#include <stdio.h>

#include "square.h"

extern const struct dv_library_decl dv_library_squares;

int main(void)
{
    static float x_data[4] = { 1, 2, 3, 4 }, out_data[4];
    const int64_t shape[1] = { 4 };
    int64_t strides[1];
    const dv_device cpu = { DV_CPU, 0 };
    dv_library *lib = NULL;
    dv_operator *op = NULL;
    dv_tensor x, out;
    dv_dtype f32;

    int status = dv_load_static(&dv_library_squares, &lib);
    if (!status)
        status = dv_find("squares::square", &op);
    if (!status)
        status = dv_dtype_parse("f32", &f32);
    /* Tensors are views of memory that is ours. */
    if (!status)
        status = dv_tensor_init(&x, x_data, f32, cpu, 1, shape, NULL, strides);
    if (!status)
        status = dv_tensor_init(&out, out_data, f32, cpu, 1, shape, NULL, strides);
    /* The author's struct is the call's: all checks are made, nothing is allocated. */
    if (!status) {
        struct square frame = { &x, &out };
        status = dv_call_frame(op, &frame, sizeof frame, DV_FIELDS(struct square, x, out), NULL);
    }
    if (status)
        fprintf(stderr, "%s\n", dv_last_error());
    else
        printf("%g %g %g %g\n", out_data[0], out_data[1], out_data[2], out_data[3]);
    dv_operator_unref(op);
    dv_library_free(lib);
    return status != 0;
}
