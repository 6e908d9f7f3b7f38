#pragma once
#include "gradient.h"

/* Finite differences. */

static double *direction, step;

static void move(void)
{
    dv_tensor *t = tensor(TENSOR);
    protect(t->data, PROT_READ | PROT_WRITE);
    for (int64_t k = 0, n = dv_numel(t); k < n; k++)
        dv_put_f64(t->data, k, dv_dtype_key(t->dtype), element(t, k) + step * direction[k]);
}

/* The slope of the weighted sum of results along the direction, by differences of several steps; 0: they do not agree. */
static int find_slope(dv_operator *op, double *value, double *allowed)
{
    static const double steps[] = { 0, 1, -1, 0.5, -0.5, 0.3, -0.3 };
    static outs o[7];
    int wide = tensor(TENSOR)->dtype.bits == 64;
    double d[7] = { 0 }, squares = 0, noise = 0;
    for (int i = 0; i < NTENSORS; i++)
        wide &= !tensor(i) || !is_real(tensor(i)->dtype) || tensor(i)->dtype.bits == 64;
    const double h = wide ? 1e-4 : 0x1p-5, eps = wide ? 0x1p-53 : 0x1p-24, slack = wide ? 1000 : 30;
    change = move;
    for (int k = 0; k < 7; k++) {
        step = steps[k] * h;
        forward(op, &o[k]);
    }
    change = NULL;
    for (int64_t i = 0, at = 0; i < o->n; i++)
        for (int64_t e = 0, n = dv_numel(&o->of[i].t); e < n; e++, at++) {
            double x[7], most = 0;
            for (int k = 0; k < 7 && is_real(o->of[i].t.dtype) && !o->of[i].number; k++) {
                x[k] = element(&o[k].of[i].t, e);
                if (!isfinite(x[k]))
                    return 0;
                most = fmax(most, fabs(x[k]));
                d[k] += weights[at] * (x[k] - x[0]);
                if (k == 2)
                    squares += pow(weights[at] * (x[1] - x[2]) / (2 * h), 2);
            }
            noise += eps * fabs(weights[at]) * most / (0.3 * h);
        }
    const double whole = (d[1] - d[2]) / (2 * h), half = (d[3] - d[4]) / h, third = (d[5] - d[6]) / (0.6 * h);
    const double right = (4 * d[3] - d[1]) / h, left = -(4 * d[4] - d[2]) / h;
    *value = (4 * half - whole) / 3;
    const double scale = sqrt(squares) + fabs(*value), agree = (wide ? 1e-6 : 3e-3) * scale + slack * noise;
    *allowed = (wide ? 1e-5 : 1e-2) * scale + slack * noise + RTOL * (scale + 4 * noise * 0.3 * h / eps);
    return fabs(*value - third) <= agree && fabs(right - left) <= 4 * agree;
}

/* Is the slope that a formula gives (it may take away weights) another one than that of finite differences, most of the time? */
static inline int ask(dv_operator *op, double (*along)(dv_operator *), const char *formula)
{
    static outs o;
    int differs = 0, smooth = 0;
    forward(op, &o);
    for (int turn = 0; turn < 8; turn++) {
        double slope, allowed;
        weights = draw_some(elements_of(&o));
        direction = draw_some(dv_numel(tensor(TENSOR)));
        const double sum = along(op);
        if (!find_slope(op, &slope, &allowed))
            continue;
        smooth++;
        differs += !(fabs(sum - slope) <= allowed);
        fprintf(stderr, "the %s gives %.9g, and finite differences %.9g\n", formula, sum, slope);
    }
    if (2 * differs > smooth)
        return 1;
    return puts("the fault does not show"), 0;
}
