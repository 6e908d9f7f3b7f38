/* layers.c: an operator that belongs to a layer of a model gets the layer's name, and asks the host for the layer itself.
 *
 *     dovetail build scale_by_layer.c -o layers.so
 *     cc layers.c $(dovetail --cflags --libs) -o layers && ./layers layers.so layers.0 layers.1
 */
#include "layer.h"
#include <dovetail.h>
#include <stdio.h>

/* The host: what Dovetail needs of it stands first, so that a pointer to one is a pointer to the other. */
struct model {
    dv_host host;
    struct layer layers[3];
};

static int find_layer(const dv_host *host, const char *name, const void **out)
{
    const struct model *model = (const struct model *)(const void *)host;
    int i = -1, end = 0;
    if (sscanf(name, "layers.%d%n", &i, &end) != 1 || name[end] || i < 0 || i >= 3)
        return DV_ENOENT;
    *out = &model->layers[i];
    return DV_OK;
}

int main(int argc, char **argv)
{
    static float data[6] = { 1, 2, 3, 4, 5, 6 };
    static const float tens[3] = { 10, 10, 10 }, rising[3] = { 1, 2, 3 };
    const struct model model = { .host = { .size = sizeof(dv_host), .name = "model", .object = find_layer },
        .layers = { { tens, 3 }, { rising, 3 }, { rising, 2 } } };
    const int64_t shape[2] = { 2, 3 };
    const dv_device cpu = { DV_CPU, 0 };
    int64_t strides[2];
    dv_library *lib = NULL;
    dv_operator *op = NULL;
    dv_dtype f32;
    dv_tensor x;

    if (argc < 2 || dv_load(argv[1], &lib) || dv_find("layers::scale_by_layer", &op) || dv_dtype_parse("f32", &f32) ||
        dv_tensor_init(&x, data, f32, cpu, 2, shape, NULL, strides))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    int failed = 0;
    for (int i = 2; i < argc; i++) {
        const dv_value args[] = { dv_from_tensor(&x), dv_from_string(argv[i]) };
        dv_value out = dv_default();
        if (dv_call(op, args, 2, &out, 1, &model.host)) {
            printf("%s\n", dv_last_error());
            failed = 1;
            continue;
        }
        printf("%s:", argv[i]);
        for (int k = 0; k < 6; k++)
            printf(" %g", (double)((const float *)out.as.tensor->data)[k]);
        printf("\n");
        dv_tensor_unref((dv_tensor *)out.as.tensor);
    }
    dv_operator_unref(op);
    dv_library_free(lib);
    return failed;
}
