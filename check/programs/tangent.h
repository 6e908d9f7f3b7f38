#pragma once
#include "slope.h"

/* Tangents of results. */

/* The weighted sum of tangents when the tensor moves along the direction; results without one get no weight. */
static double tangent_along(dv_operator *op)
{
    static outs o, moves;
    static dv_value tangents[NARGS + NRESULTS + 1], found[NARGS + NRESULTS + 1];
    static const dv_tensor *lists[NTENSORS + 1];
    double sum = 0;
    forward(op, &o);
    moves.n = 0;
    for (int i = 0; i < NARGS + NRESULTS; i++)
        tangents[i] = dv_none();
    for (int i = 0; i < NTENSORS; i++) {
        const int slot = slot_of[i];
        const dv_tensor *t = tensor(i);
        lists[i] = NULL;
        if (!t)
            continue;
        add(&moves, slot, t);
        dv_tensor *v = &moves.of[moves.n - 1].t;
        memset(v->data, 0, (size_t)dv_dtype_bytes(v->dtype, dv_numel(v)));
        for (int64_t k = 0; i == TENSOR && k < dv_numel(v); k++)
            dv_put_f64(v->data, k, dv_dtype_key(v->dtype), direction[k]);
        lists[i] = v;
        tangents[slot] = dv_from_tensor(v);
    }
    for (int i = 0; i < NTENSORS; i++)
        if (args[slot_of[i]].type == DV_VALUE_TENSORS && (!i || slot_of[i - 1] != slot_of[i]))
            tangents[slot_of[i]] = dv_from_tensors(&lists[i], args[slot_of[i]].as.tensors.size);
    if (dv_tangent(op, values, tangents, found, &host))
        exit((fprintf(stderr, "the tangent cannot be computed: %s\n", dv_last_error()), 1));
    for (int64_t i = 0, at = 0; i < o.n; i++) {
        const dv_value *v = &found[o.of[i].slot];
        const size_t place = place_of(&o, i);
        const dv_tensor *t = v->type == DV_VALUE_TENSOR                 ? v->as.tensor
            : v->type == DV_VALUE_TENSORS && place < v->as.tensors.size ? v->as.tensors.data[place]
                                                                        : NULL;
        if (t && dv_numel(t) != dv_numel(&o.of[i].t))
            exit((fprintf(stderr, "slot %d: the tangent has another size\n", o.of[i].slot), 1));
        for (int64_t k = 0, n = dv_numel(&o.of[i].t); k < n; k++, at++) {
            weights[at] = t ? weights[at] : 0;
            sum += t ? weights[at] * element(t, k) : 0;
        }
    }
    return sum;
}
