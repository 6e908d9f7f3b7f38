/* Relations between gradients, which hold without finite differences (property gradient). */
#include <math.h>
#include <string.h>

#include "gradient.h"

/* Fails the job, with this kind of failure, if the gradient of a wanted slot is not `factor` times the one of full_gradients. */
static void gradient_relation_check_scaled_gradients(check_job *job, const gradient_point *point, const bool *wanted,
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
        check_gradient_format_tensor_name(point, i, name, sizeof name);
        check_fail(job, failure_kind, "the gradient of '%s' is %s", name,
            factor > 1       ? "not linear in grad: a million times grad gives something else than a million times the gradient"
                : factor < 1 ? "not linear in grad: a millionth of grad gives something else than a millionth of the gradient"
                             : "another one when not all gradients are wanted");
    }
}

void check_gradient_linearity(check_job *job, gradient_point *point, const gradient_set *gradients)
{
    static const double factors[] = { 0x1p20, 0x1p-20 };
    bool wanted[MAX_SLOTS];
    check_gradient_set_wanted_slots(point, wanted);
    for (size_t k = 0; k < 2 && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        const size_t before = check_double_pool.used;
        gradient_set scaled = { { NULL } };
        for (int64_t i = 0; i < point->nweights; i++)
            point->weights[i] *= factors[k];
        const bool done = !check_gradient_call_forward(point, 0, NULL, 0) &&
            check_gradient_call_backward(job, point, wanted, &scaled) == BACKWARD_DONE;
        if (done)
            gradient_relation_check_scaled_gradients(job, point, wanted, gradients, factors[k], &scaled, "not linear in grad");
        for (int64_t i = 0; i < point->nweights; i++)
            point->weights[i] /= factors[k];
        check_double_pool.used = before;
    }
}

void check_gradient_wanted_subsets(check_job *job, gradient_point *point, const gradient_set *full_gradients)
{
    bool all_wanted[MAX_SLOTS], wanted[MAX_SLOTS];
    size_t slots[8], n = 0;
    check_gradient_set_wanted_slots(point, all_wanted);
    for (size_t s = 0; s < point->op->nargs && n < 8; s++)
        if (all_wanted[s])
            slots[n++] = s;
    for (uint32_t set = 1; n > 1 && set + 1 < 1u << n && job->result->outcome == CHECK_OUTCOME_PASS;
        set = n <= 4 ? set + 1 : set << 1) {
        const size_t before = check_double_pool.used;
        gradient_set subset_gradients = { { NULL } };
        memset(wanted, 0, sizeof wanted);
        for (size_t k = 0; k < n; k++)
            wanted[slots[k]] = set >> k & 1;
        if (check_gradient_call_forward(point, 0, NULL, 0) ||
            check_gradient_call_backward(job, point, wanted, &subset_gradients) != BACKWARD_DONE)
            return;
        gradient_relation_check_scaled_gradients(
            job, point, wanted, full_gradients, 1, &subset_gradients, "depends on requested gradients");
        check_double_pool.used = before;
    }
}
