/* The host that the others are compared with: dv_call() in a C program without a framework.
 *
 * host BINARY... reads call sites (docs/site.md), one a line, and prints a line of JSON for each:
 * {"infer": specs of the results, "after": results and then arguments, all tensors in order, "gradients": by argument} or
 * {"error": text}. A tensor is [dtype, shape, bytes in hexadecimal]. The gradients are those of the weighted sum of all results
 * and of all arguments that are written. */
#include <dovetail.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, LIST = 16 };

static void print_text(const char *s)
{
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    putchar('"');
}

static void print_sizes(int32_t n, const int64_t *sizes)
{
    for (int32_t i = 0; i < n; i++)
        printf("%s%lld", i ? ", " : "[", (long long)sizes[i]);
    printf(n ? "]" : "[]");
}

/* comma: whether one goes before it. */
static void print_tensor(const dv_tensor *t, int *comma)
{
    dv_tensor *whole; /* contiguous */
    if (dv_tensor_new(t->dtype, t->ndim, t->shape, &whole) || dv_tensor_copy(whole, t))
        exit(fprintf(stderr, "%s\n", dv_last_error()));
    printf("%s[\"%s\", ", (*comma)++ ? ", " : "", dv_dtype_name(t->dtype));
    print_sizes(t->ndim, t->shape);
    printf(", \"");
    const int64_t bytes = dv_dtype_bytes(t->dtype, dv_numel(t));
    for (int64_t i = 0; i < bytes; i++)
        printf("%02x", ((const unsigned char *)whole->data)[i]);
    printf("\"]");
    dv_tensor_unref(whole);
}

static void print_tensors(const dv_value *values, size_t n, int *comma)
{
    for (size_t i = 0; i < n; i++)
        if (values[i].type == DV_VALUE_TENSOR)
            print_tensor(values[i].as.tensor, comma);
        else if (values[i].type == DV_VALUE_TENSORS)
            for (size_t k = 0; k < values[i].as.tensors.size; k++)
                if (values[i].as.tensors.data[k])
                    print_tensor(values[i].as.tensors.data[k], comma);
}

static bool floating(dv_dtype t) { return t.bits >= 16 && dv_dtype_find(t)->form == DV_FLOAT_IEEE && t.code != 5; }

/* A tensor like t with 1, 1.25, 1.5, 1.75, 1... */
static dv_tensor *weights(const dv_tensor *t)
{
    static const uint16_t f16[] = { 0x3c00, 0x3d00, 0x3e00, 0x3f00 }, bf16[] = { 0x3f80, 0x3fa0, 0x3fc0, 0x3fe0 };
    dv_tensor *out;
    if (dv_tensor_new(t->dtype, t->ndim, t->shape, &out))
        exit(fprintf(stderr, "%s\n", dv_last_error()));
    for (int64_t i = 0, n = dv_numel(t); i < n; i++)
        switch (dv_dtype_key(t->dtype)) {
        case DV_DTYPE_f64: ((double *)out->data)[i] = 1 + 0.25 * (double)(i % 4); break;
        case DV_DTYPE_f32: ((float *)out->data)[i] = 1 + 0.25F * (float)(i % 4); break;
        case DV_DTYPE_f16: ((uint16_t *)out->data)[i] = f16[i % 4]; break;
        default: ((uint16_t *)out->data)[i] = bf16[i % 4];
        }
    return out;
}

static dv_value weights_like(const dv_value *v)
{
    if (v->type == DV_VALUE_TENSOR && floating(v->as.tensor->dtype))
        return dv_from_tensor(weights(v->as.tensor));
    if (v->type != DV_VALUE_TENSORS)
        return dv_none();
    const dv_tensor **list = calloc(v->as.tensors.size + 1, sizeof *list);
    for (size_t i = 0; i < v->as.tensors.size; i++)
        if (v->as.tensors.data[i] && floating(v->as.tensors.data[i]->dtype))
            list[i] = weights(v->as.tensors.data[i]);
    return dv_from_tensors(list, v->as.tensors.size);
}

static void print_gradients(dv_operator *op, const dv_value *values)
{
    const size_t nargs = dv_operator_nargs(op), nresults = dv_operator_nresults(op);
    dv_value grads[SLOTS], out[SLOTS];
    bool returned[SLOTS] = { false };
    for (size_t i = nargs + nresults; i-- > 0;) {
        dv_slot_info slot;
        if (dv_operator_slot(op, i, &slot))
            exit(fprintf(stderr, "%s\n", dv_last_error()));
        const bool a_result = i >= nargs;
        grads[i] = a_result || (slot.flags & DV_SLOT_WRITES && !returned[i]) ? weights_like(&values[i]) : dv_none();
        if (a_result && slot.alias >= 0 && slot.flags & DV_SLOT_WRITES)
            returned[slot.alias] = true;
        out[i] = dv_none();
    }
    const int status = dv_gradient(op, values, grads, NULL, out, NULL);
    if (status == DV_ENOTSUP)
        return;
    if (status) {
        printf(", \"no gradients\": ");
        print_text(dv_last_error());
        return;
    }
    printf(", \"gradients\": [");
    for (size_t i = 0; i < nargs; i++) {
        int comma = 0;
        printf("%s[", i ? ", " : "");
        if (values[i].type == DV_VALUE_TENSORS || (values[i].type == DV_VALUE_TENSOR && floating(values[i].as.tensor->dtype)))
            print_tensors(&out[i], 1, &comma);
        printf("]");
    }
    printf("]");
}

static int random_numbers(const dv_host *host, const dv_generator *generator, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)host, (void)generator, (void)count;
    *seed = 7, *offset = 0;
    return DV_OK;
}

static int call(const char *text)
{
    const dv_host host = { .size = sizeof host, .name = "parity", .random = random_numbers };
    dv_site *site;
    dv_result_spec specs[SLOTS];
    dv_value values[SLOTS] = { 0 };
    if (dv_site_parse(text, &site))
        return printf("{\"text\": "), print_text(dv_last_error()), 1; /* not a call */
    dv_operator *op = dv_site_operator(site);
    const size_t nargs = dv_operator_nargs(op), nresults = dv_operator_nresults(op);
    if (nargs + nresults > SLOTS || dv_site_infer(site, specs, nresults) || dv_site_alloc(site))
        return printf("{\"error\": "), print_text(dv_last_error()), 1;
    memcpy(values, dv_site_args(site), nargs * sizeof *values);
    if (dv_call(op, values, nargs, values + nargs, nresults, &host))
        return printf("{\"error\": "), print_text(dv_last_error()), 1;
    printf("{\"infer\": [");
    for (size_t i = 0, n = 0; i < nresults; i++) {
        dv_result_spec list[LIST];
        size_t many = 1;
        if (specs[i].flags & DV_SPEC_LIST && dv_infer_list(op, values, nargs, i, list, LIST, &many))
            exit(fprintf(stderr, "%s\n", dv_last_error()));
        for (size_t k = 0; k < many; k++) {
            const dv_result_spec *spec = specs[i].flags & DV_SPEC_LIST ? &list[k] : &specs[i];
            if (spec->ndim < 0)
                continue;
            printf("%s[\"%s\", ", n++ ? ", " : "", dv_dtype_name(spec->dtype));
            print_sizes(spec->ndim, spec->shape);
            printf(", %s]", spec->flags & DV_SPEC_UNBACKED ? "true" : "false");
        }
    }
    printf("], \"after\": [");
    int comma = 0;
    print_tensors(values + nargs, nresults, &comma);
    print_tensors(values, nargs, &comma);
    printf("]");
    print_gradients(op, values);
    return 1;
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    for (int i = 1; i < argc; i++) {
        dv_library *library;
        if (dv_load(argv[i], &library))
            return fprintf(stderr, "%s\n", dv_last_error()), 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        call(line);
        printf("}\n");
    }
    return 0;
}
