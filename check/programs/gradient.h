#pragma once
#include "outs.h"
#include "tensors.h"
#include "wants.h"

/* Gradients of a weighted sum of results. */

/* Weights of results and directions of arguments: always the same numbers. */
static double draw(void)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)((state >> 61) + 1) / 8 * (state >> 60 & 1 ? 1 : -1);
}

static int is_real(dv_dtype d) { return d.code == 2 || d.code == 4; }

static dv_value gradients[NARGS + NRESULTS + 1], values[NARGS + NRESULTS + 1];
static double *weights; /* of all elements of results, one after the other */
static dv_host host;

static double *draw_some(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = draw();
    return x ? x : (exit(2), NULL);
}

/* Call, and keep the arguments and results for a formula. */
static void forward(dv_operator *op, outs *o)
{
    static dv_value results[NRESULTS + 1];
    host = host_of(ROW);
    if (call_again(op, ROW, results))
        exit((fprintf(stderr, "%s\n", dv_last_error()), 0));
    take(o, results);
    memcpy(values, args, sizeof *args * NARGS);
    memcpy(values + NARGS, results, sizeof *results * NRESULTS);
}

static int64_t elements_of(const outs *o)
{
    int64_t n = 0;
    for (int i = 0; i < o->n; i++)
        n += dv_numel(&o->of[i].t);
    return n;
}

/* The place of what was taken in its list; a result that is one tensor has one place. */
static inline size_t place_of(const outs *o, int64_t i)
{
    size_t n = 0;
    while (i-- > 0 && o->of[i].slot == o->of[i + 1].slot)
        n++;
    return n;
}

/* The gradients of the weighted sum of results. */
static inline void backward(dv_operator *op, const bool *wanted)
{
    static outs o;
    static dv_value grads[NARGS + NRESULTS + 1];
    static const dv_tensor *lists[64];
    forward(op, &o);
    for (int i = 0; i < NARGS + NRESULTS; i++)
        grads[i] = dv_none();
    for (int64_t i = 0, at = 0; i < o.n; i++) {
        const dv_tensor *t = &o.of[i].t;
        for (int64_t k = 0, n = dv_numel(t); k < n; k++, at++)
            if (is_real(t->dtype))
                dv_put_f64(t->data, k, dv_dtype_key(t->dtype), weights[at]);
        if (!is_real(t->dtype))
            memset(t->data, 0, (size_t)dv_dtype_bytes(t->dtype, dv_numel(t)));
        const size_t place = place_of(&o, i);
        lists[i] = t;
        if (values[o.of[i].slot].type == DV_VALUE_TENSORS)
            grads[o.of[i].slot] = dv_from_tensors(&lists[i - (int64_t)place], place + 1);
        else if (!o.of[i].number)
            grads[o.of[i].slot] = dv_from_tensor(t);
    }
    if (dv_gradient(op, values, grads, wanted, gradients, &host))
        exit((fprintf(stderr, "the gradient cannot be computed: %s\n", dv_last_error()), 1));
}

/* Of the tensor that is looked at; NULL: nothing flows to it. */
static inline const dv_tensor *gradient(void)
{
    const dv_value *v = &gradients[TENSOR_SLOT];
    if (v->type == DV_VALUE_TENSORS)
        return TENSOR_AT < v->as.tensors.size ? v->as.tensors.data[TENSOR_AT] : NULL;
    return v->type == DV_VALUE_TENSOR ? v->as.tensor : NULL;
}
