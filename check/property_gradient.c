/* gradient: the declared formulas against finite differences.
 *
 * The sum of all results, each element times a random weight, is one function of the arguments. Its slope in a random direction,
 * by differences, must be what the gradient says for that direction. In f64 where the contract allows it, else in f32; the same
 * case in its own element types must then give the same gradient, as near as rounding lets it.
 *
 * Where differences do not agree among themselves (other steps, one side against the other) there is a kink, a jump or no
 * precision: no failure is reported. A difference is only reported when it appears in other directions and at other points too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum {
    LARGEST = 4096,
    LARGEST_F32 = 256,
    SPARSE = 8,
    POOL = 1 << 22,
    SLOTS = CHECK_ARGS + CHECK_RESULTS,
    OUTS = CHECK_RESULTS + CHECK_TENSORS,
    RUNS = 3,
    MANY = 24
};

/* ---- Memory: of one evaluation, and of one case ---- */

typedef struct made {
    struct made *next;
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
    bool rounded;
} made;

/* Results of a call stay until the next one. noise > 0: kernels' results are changed by this relative amount, as rounding does.
 */
static struct bench {
    dv_host host;
    made *made;
    double noise, largest;
    check_random r;
} bench;

static made *new_header(const dv_tensor *as, int64_t bytes)
{
    made *m = calloc(1, sizeof *m + 64 + (size_t)bytes);
    if (!m)
        return NULL;
    memcpy(m->dims, as->shape, sizeof *m->dims * (size_t)as->ndim);
    memcpy(m->dims + DV_MAX_NDIM, as->strides, sizeof *m->dims * (size_t)as->ndim);
    m->t = *as;
    m->t.shape = m->dims;
    m->t.strides = m->dims + DV_MAX_NDIM;
    m->t.data = (char *)(m + 1) + (64 - (uintptr_t)(m + 1) % 64) % 64;
    m->next = bench.made;
    bench.made = m;
    return m;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0, n = 1;
    (void)host;
    (void)index;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const dv_tensor as = { .device = device, .ndim = ndim, .dtype = dtype, .shape = shape, .strides = strides };
    made *m = new_header(&as, n ? dv_dtype_bytes(dtype, last + 1) : 0);
    *out = m ? &m->t : NULL;
    return m ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    const dv_tensor as = { .device = base->device, .ndim = ndim, .dtype = base->dtype, .shape = shape, .strides = strides };
    made *m = new_header(&as, 0);
    (void)host;
    (void)index;
    *out = m ? &m->t : NULL;
    if (!m)
        return dv_fail(DV_ENOMEM, "out of memory");
    m->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    m->rounded = true;
    return DV_OK;
}

static void free_tensor(const dv_host *host, dv_tensor *t) /* with all others */
{
    (void)host;
    (void)t;
}

static void after_kernel(const dv_host *host)
{
    (void)host;
    for (made *m = bench.made; m && bench.noise > 0; m = m->next) {
        if (m->rounded || !check_is_float(m->t.dtype))
            continue;
        m->rounded = true;
        for (int64_t i = 0, n = dv_numel(&m->t); i < n; i++) {
            const double x = check_get(m->t.data, i, m->t.dtype);
            bench.largest = fabs(x) > bench.largest ? fabs(x) : bench.largest;
            check_put(m->t.data, i, m->t.dtype, x * (1 + bench.noise * ((double)(check_next(&bench.r) >> 11) * 0x1p-52 - 1)));
        }
    }
}

static const dv_host *begin(void)
{
    for (made *m = bench.made, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    bench.made = NULL;
    bench.host = (dv_host){ .size = sizeof bench.host,
        .name = "dovetail check",
        .new_tensor = new_tensor,
        .free_tensor = free_tensor,
        .new_view = new_view,
        .after_kernel = after_kernel };
    return &bench.host;
}

static struct pool {
    double *d;
    size_t used;
} pool; /* 32 MB of address space, touched as far as needed */

/* Of a case; NULL: it is too large. */
static double *doubles(int64_t n)
{
    if (!pool.d)
        pool.d = calloc(POOL, sizeof *pool.d);
    if (!pool.d || n < 0 || (size_t)n > POOL - pool.used)
        return NULL;
    pool.used += (size_t)n;
    return pool.d + pool.used - n;
}

/* All elements, in the order of indices. */
static void get_all(const dv_tensor *t, double *to)
{
    int64_t index[DV_MAX_NDIM] = { 0 };
    for (int64_t i = 0, n = dv_numel(t); i < n; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * t->strides[d];
        to[i] = check_get(t->data, at, t->dtype);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

/* ---- A point: a case with its contents ---- */

typedef struct point {
    const check_op *op;
    check_case c;
    double eps; /* of its coarsest element type */
    check_values v;
    double *x[CHECK_TENSORS];                                  /* elements of floating tensors */
    unsigned char *bytes[CHECK_TENSORS], *live[CHECK_TENSORS]; /* contents; what a call gets */
    dv_value slots[SLOTS];                                     /* after a call: arguments and results */
    const dv_tensor *listed[CHECK_TENSORS];                    /* the tensors of results that are lists */
    size_t nouts, out_slot[OUTS], out_place[OUTS]; /* floating outputs: results, and written arguments that are not returned; of
                                                      lists each tensor */
    int64_t out_at[OUTS], nw;                      /* where their elements are in w */
    double *w;                                     /* weights */
} point;

static bool differentiable(dv_dtype d) { return d.code == 2 || d.code == 4; }

/* The memory of the point's tensors is the pool's as well. */
static bool make_point(point *p, const check_op *op, const check_case *c)
{
    memset(p, 0, sizeof *p);
    p->op = op;
    p->c = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        p->c.tensors[i].layout = CHECK_CONTIGUOUS;
    check_values_make(&p->v, &p->c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &p->c.tensors[i];
        if (!t->present)
            continue;
        const int64_t n = check_numel(t), words = dv_dtype_bytes(t->dtype, n) / 8 + 2;
        p->bytes[i] = (unsigned char *)doubles(words);
        p->live[i] = (unsigned char *)doubles(words);
        p->x[i] = doubles(n);
        if (!p->bytes[i] || !p->live[i] || !p->x[i])
            return false;
        check_fill_tensor(t, c->seed + i, p->bytes[i], p->v.strides[i]);
        for (int64_t k = 0; k < n; k++)
            p->x[i][k] = check_get(p->bytes[i], k, t->dtype);
        p->v.tensors[i].data = p->live[i];
        if (differentiable(t->dtype) && check_unit(t->dtype) > p->eps)
            p->eps = check_unit(t->dtype);
    }
    return true;
}

/* The same contents in another type. */
static bool make_twin(point *p, const point *of, const check_case *c)
{
    if (!make_point(p, of->op, c))
        return false;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int64_t k = 0; p->x[i] && differentiable(c->tensors[i].dtype) && k < check_numel(&c->tensors[i]); k++) {
            p->x[i][k] = of->x[i][k];
            check_put(p->bytes[i], k, c->tensors[i].dtype, p->x[i][k]);
        }
    return true;
}

/* Call the operator with tensor a moved by h along v. Random numbers are the same each time. */
static int forward(point *p, size_t a, const double *v, double h)
{
    const dv_host *host = begin();
    for (size_t i = 0; i < p->c.ntensors; i++) {
        const check_tensor *t = &p->c.tensors[i];
        if (!t->present)
            continue;
        memcpy(p->live[i], p->bytes[i], (size_t)dv_dtype_bytes(t->dtype, check_numel(t)));
        for (int64_t k = 0; i == a && v && k < check_numel(t); k++)
            check_put(p->live[i], k, t->dtype, p->x[i][k] + h * v[k]);
        for (int64_t k = 0; bench.noise > 0 && differentiable(t->dtype) && k < check_numel(t); k++)
            check_put(
                p->live[i], k, t->dtype, p->x[i][k] * (1 + bench.noise * ((double)(check_next(&bench.r) >> 11) * 0x1p-52 - 1)));
    }
    memcpy(p->slots, p->v.values, sizeof *p->slots * p->op->nargs);
    for (size_t r = 0; r < p->op->nresults; r++)
        p->slots[p->op->nargs + r] = dv_default();
    if (p->op->random)
        dv_set_seed(1);
    const int status = dv_call(p->op->op, p->v.values, p->op->nargs, p->slots + p->op->nargs, p->op->nresults, host);
    check_after_kernel();
    return check_keep_lists(p->op, p->slots + p->op->nargs, p->listed) ? status : DV_ELIMIT;
}

static bool is_returned(const check_op *op, size_t arg)
{
    for (size_t r = 0; r < op->nresults; r++)
        if (op->slots[op->nargs + r].alias == (int32_t)arg)
            return true;
    return false;
}

static bool is_output(const check_op *op, size_t slot)
{
    return slot >= op->nargs || ((op->slots[slot].flags & DV_SLOT_WRITES) && !is_returned(op, slot));
}

/* Of a tensor one; of anything else none. */
static size_t tensors_in(const dv_value *v)
{
    return v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
}
static const dv_tensor *tensor_in(const dv_value *v, size_t place)
{
    return place >= tensors_in(v) ? NULL : v->type == DV_VALUE_TENSORS ? v->as.tensors.data[place] : v->as.tensor;
}
static const dv_tensor *out_tensor(const point *p, size_t k) { return tensor_in(&p->slots[p->out_slot[k]], p->out_place[k]); }
static int64_t out_end(const point *p, size_t k) { return k + 1 < p->nouts ? p->out_at[k + 1] : p->nw; }

/* After a call: find the outputs, and choose weights that are exact in every type. */
static bool draw_weights(point *p, check_random *r)
{
    p->nouts = 0;
    p->nw = 0;
    for (size_t s = 0; s < p->op->nargs + p->op->nresults; s++)
        for (size_t place = 0; is_output(p->op, s) && place < tensors_in(&p->slots[s]) && p->nouts < OUTS; place++) {
            const dv_tensor *t = tensor_in(&p->slots[s], place);
            if (!t || !differentiable(t->dtype))
                continue;
            p->out_slot[p->nouts] = s;
            p->out_place[p->nouts] = place;
            p->out_at[p->nouts++] = p->nw;
            p->nw += dv_numel(t);
            p->eps = check_unit(t->dtype) > p->eps ? check_unit(t->dtype) : p->eps;
        }
    p->w = doubles(p->nw);
    for (int64_t i = 0; p->w && i < p->nw; i++)
        p->w[i] = (double)check_between(r, 1, 8) / 8 * (check_next(r) & 1 ? 1 : -1);
    return p->w && p->nouts;
}

/* A tensor as this one is, of zeros; NULL: no memory. */
static dv_tensor *zeros_like(const dv_tensor *t)
{
    int64_t strides[DV_MAX_NDIM], n = 1;
    dv_tensor *g;
    for (int32_t d = t->ndim; d-- > 0; n *= t->shape[d] > 0 ? t->shape[d] : 1)
        strides[d] = n;
    if (new_tensor(NULL, 0, t->dtype, t->device, t->ndim, t->shape, strides, &g))
        return NULL;
    bench.made->rounded = true;
    return g;
}

/* Tensors as the outputs are, with the weights or zeros: by slot. list: the tensors of lists. */
static bool make_grads(const point *p, dv_value *grads, const dv_tensor **list)
{
    size_t k = 0;
    for (size_t s = 0; s < p->op->nargs + p->op->nresults; s++) {
        const size_t n = is_output(p->op, s) ? tensors_in(&p->slots[s]) : 0;
        grads[s] = dv_none();
        for (size_t place = 0; place < n; place++) {
            const dv_tensor *t = tensor_in(&p->slots[s], place);
            dv_tensor *g = t ? zeros_like(t) : NULL;
            if (t && !g)
                return false;
            if (k < p->nouts && p->out_slot[k] == s && p->out_place[k] == place)
                for (int64_t i = 0, at = p->out_at[k++], size = dv_numel(g); i < size; i++)
                    check_put(g->data, i, g->dtype, p->w[at + i]);
            list[place] = g;
        }
        if (n && p->slots[s].type == DV_VALUE_TENSORS)
            grads[s] = dv_from_tensors(list, n);
        else if (n && list[0])
            grads[s] = dv_from_tensor(list[0]);
        list += n;
    }
    return true;
}

/* ---- What is declared ---- */

enum clause { NO_CLAUSE, NOT_DIFFERENTIABLE, HAS_CLAUSE };

static enum clause clause_of(const check_op *op, const char *formula, size_t slot, bool *any)
{
    const check_json *clauses = check_json_get(check_json_get(op->json, formula), "clauses");
    enum clause found = NO_CLAUSE;
    *any = false;
    for (const check_json *k = clauses ? clauses->child : NULL; k; k = k->next) {
        const check_json *targets = check_json_get(k, "targets"), *value = check_json_get(k, "value");
        const bool has = value && value->kind != CHECK_NULL;
        *any |= has;
        for (const check_json *t = targets ? targets->child : NULL; t; t = t->next)
            if ((size_t)t->i == slot)
                found = has ? HAS_CLAUSE : NOT_DIFFERENTIABLE;
    }
    return found;
}

static bool has_formula(const check_op *op, const char *formula)
{
    const check_json *f = check_json_get(op->json, formula);
    return f && f->kind == CHECK_OBJECT;
}

static bool names(const check_json *x, const char *kind, const char *name)
{
    if (!x || (x->kind != CHECK_ARRAY && x->kind != CHECK_OBJECT))
        return false;
    if (check_json_is(x, kind) && (!name || (check_json_at(x, 1)->text && !strcmp(check_json_at(x, 1)->text, name))))
        return true;
    for (const check_json *k = x->child; k; k = k->next)
        if (names(k, kind, name))
            return true;
    return false;
}

/* ---- Gradients by formula ---- */

/* The gradient of each tensor; NULL: zero. */
typedef struct gradients { double *of[CHECK_TENSORS]; } gradients;

static const dv_tensor *gradient_tensor(const point *p, const dv_value *out, size_t i)
{
    const size_t slot = check_tensor_argument(&p->c, i);
    return tensor_in(&out[slot], i - p->c.args[slot].first);
}

static void print_shape(const dv_tensor *t, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s[", dv_dtype_name(t->dtype));
    for (int32_t d = 0; d < t->ndim && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    if (n < size)
        snprintf(out + n, size - n, "]");
}

/* Where element types are mixed a framework converts. */
static bool one_type(const point *p)
{
    const dv_tensor *first = NULL;
    for (size_t s = 0; s < p->c.ntensors + p->nouts; s++) {
        const dv_tensor *t = s >= p->c.ntensors ? out_tensor(p, s - p->c.ntensors)
            : p->c.tensors[s].present           ? &p->v.tensors[s]
                                                : NULL;
        if (!t || !differentiable(t->dtype))
            continue;
        if (first && dv_dtype_key(first->dtype) != dv_dtype_key(t->dtype))
            return false;
        first = t;
    }
    return true;
}

static void show(check_job *job, enum check_show how, size_t tensor)
{
    job->how = (check_how){ .show = how, .tensor = (int32_t)tensor, .rtol = fmax(job->op->rtol, 0) };
}

/* Every gradient has its argument's shape and element type. */
static bool looks_right(check_job *job, const point *p, const dv_value *out)
{
    char found[300], expected[300];
    for (size_t i = 0; i < p->c.ntensors; i++) {
        const dv_tensor *t = &p->v.tensors[i],
                        *g = p->c.tensors[i].present && differentiable(t->dtype) ? gradient_tensor(p, out, i) : NULL;
        if (!g)
            continue;
        bool same = g->ndim == t->ndim;
        for (int32_t d = 0; d < t->ndim && same; d++)
            same = g->shape[d] == t->shape[d];
        const bool type = dv_dtype_key(g->dtype) == dv_dtype_key(t->dtype) || (differentiable(g->dtype) && !one_type(p));
        if (same && type)
            continue;
        show(job, CHECK_SHOW_FORM, i);
        job->how.axis = same;
        print_shape(g, found, sizeof found);
        print_shape(t, expected, sizeof expected);
        check_fail(job, same ? "gradient's element type" : "gradient's shape",
            "the gradient of '%s' is %s, and the argument is %s", p->op->slots[check_tensor_argument(&p->c, i)].name, found,
            expected);
        return false;
    }
    return true;
}

static void want_floats(const point *p, bool *wanted)
{
    memset(wanted, 0, sizeof *wanted * SLOTS);
    for (size_t i = 0; i < p->c.ntensors; i++)
        if (p->c.tensors[i].present && differentiable(p->c.tensors[i].dtype))
            wanted[check_tensor_argument(&p->c, i)] = true;
}

static void free_lists(const dv_value *out, size_t n)
{
    for (size_t s = 0; s < n; s++)
        if (out[s].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)out[s].as.tensors.data);
}

enum outcome { DONE, FAILED, REFUSED };

/* Run backward after forward(). FAILED: the failure was reported here. */
static enum outcome backward(check_job *job, const point *p, const bool *wanted, gradients *g)
{
    static const dv_tensor *list[SLOTS + CHECK_TENSORS];
    dv_value grads[SLOTS], out[SLOTS];
    if (!make_grads(p, grads, list))
        return REFUSED;
    const int status = dv_gradient(p->op->op, p->slots, grads, wanted, out, &bench.host);
    if (status == DV_ENOTSUP ||
        status == DV_ENOMEM) /* these arguments have none, as the operator says; or the host has not so much */
        return REFUSED;
    if (status) {
        show(job, CHECK_SHOW_FORM, 0);
        check_fail(job, "gradient fails", "the gradient cannot be computed: %s", dv_last_error());
        return FAILED;
    }
    bool right = looks_right(job, p, out);
    for (size_t i = 0; i < p->c.ntensors && right; i++) {
        const dv_tensor *t = wanted[check_tensor_argument(&p->c, i)] && p->c.tensors[i].present &&
                differentiable(p->c.tensors[i].dtype)
            ? gradient_tensor(p, out, i)
            : NULL;
        g->of[i] = t ? doubles(dv_numel(t)) : NULL;
        if (g->of[i])
            get_all(t, g->of[i]);
    }
    free_lists(out, p->op->nargs);
    return right ? DONE : FAILED;
}

/* ---- Finite differences ---- */

typedef struct slope {
    double value, noise, scale, apart;
    bool smooth, finite, flat;
} slope;

static bool outputs(point *p, size_t a, const double *v, double h, double *to)
{
    if (forward(p, a, v, h))
        return false;
    for (size_t k = 0; k < p->nouts; k++) {
        const dv_tensor *t = out_tensor(p, k);
        if (!t || dv_numel(t) != out_end(p, k) - p->out_at[k])
            return false; /* a size that depends on contents */
        get_all(t, to + p->out_at[k]);
    }
    return true;
}

/* No output changes with the steps, but one does with a longer one, up to 70: floor(), the flat side of relu(). The declared
 * gradient often differs on purpose (straight through), so such a point is not judged. */
static bool flat_here_only(point *p, size_t a, const double *v, const double *here)
{
    const size_t before = pool.used;
    double *there = doubles(p->nw);
    bool moves = !there;
    for (double h = 0.7; h < 1e5 && !moves; h *= h > 0 ? -1 : -10)
        moves = !outputs(p, a, v, h, there) || memcmp(there, here, sizeof *here * (size_t)p->nw) != 0;
    pool.used = before;
    return moves;
}

typedef struct precision { double step, agree, differ, slack; } precision;
static const precision in_f64 = { 1e-4, 1e-6, 1e-5, 1000 }, in_f32 = { 0x1p-5, 3e-3, 1e-2, 30 };
static const double NEGLIGIBLE = 0x1p-60; /* slopes, where a function that is cut off near 0 has none */
enum { APPROXIMATE = 4 }; /* a formula over approximate results is off by so many times their declared tolerance */
static const precision *precision_of(const point *p) { return p->eps < 0x1p-50 ? &in_f64 : &in_f32; }

/* The slope of the weighted sum of outputs when tensor a moves along v: by steps h, h/2 and 0.3 h to both sides. */
static bool find_slope(point *p, size_t a, const double *v, slope *s)
{
    static const double steps[] = { 0, 1, -1, 0.5, -0.5, 0.3, -0.3 };
    const precision *q = precision_of(p);
    const size_t before = pool.used;
    double *o[7], d[7] = { 0 }, length = 0, rest = 0;
    bool moved = false;
    memset(s, 0, sizeof *s);
    s->finite = true;
    for (int k = 0; k < 7; k++) {
        o[k] = doubles(p->nw);
        if (!o[k] || !outputs(p, a, v, steps[k] * q->step, o[k])) {
            pool.used = before;
            return false;
        }
    }
    for (int64_t i = 0; i < p->nw; i++) {
        double most = 0;
        for (int k = 0; k < 7; k++) {
            s->finite &= isfinite(o[k][i]) != 0;
            most = fabs(o[k][i]) > most ? fabs(o[k][i]) : most;
            d[k] += p->w[i] * (o[k][i] - o[0][i]); /* small numbers: sums of large ones would hide them */
        }
        const double one = p->w[i] * (o[1][i] - o[2][i]) / (2 * q->step);
        length = hypot(length, one);
        const double noise = p->eps * fabs(p->w[i]) * most / (0.3 * q->step);
        s->noise += fabs(one) > 0 ? noise : 0;
        rest = noise > rest ? noise : rest;
        for (int k = 1; k < 7; k++)
            moved |= o[k][i] < o[0][i] || o[k][i] > o[0][i];
    }
    s->noise = fmax(s->noise, rest);
    s->flat = s->finite && !moved && flat_here_only(p, a, v, o[0]);
    pool.used = before;
    const double h = q->step, whole = (d[1] - d[2]) / (2 * h), half = (d[3] - d[4]) / h, third = (d[5] - d[6]) / (0.6 * h);
    const double right = (4 * d[3] - d[1]) / h, left = -(4 * d[4] - d[2]) / h;
    s->value = (4 * half - whole) / 3;
    s->apart = fabs(s->value - (0.25 * third - 0.09 * half) / 0.16); /* of two extrapolations, each without the term in h^2 */
    s->scale = length + fabs(s->value);
    const double allowed = q->agree * s->scale + q->slack * s->noise;
    s->smooth = s->finite && fabs(s->value - third) <= allowed && fabs(right - left) <= 4 * allowed;
    return true;
}

/* ---- Comparing ---- */

static struct tally {
    uint32_t cases, numeric, smooth, rough;
    const char *why;
} tally; /* of this child's cases */

enum verdict { AGREES, DIFFERS, UNSURE };
typedef struct difference {
    double formula, slope;
    bool slight; /* the difference is so small that a factor rounded to f32 explains it */
} difference;

static double *draw_direction(const point *p, size_t a, check_random *r)
{
    const int64_t n = check_numel(&p->c.tensors[a]);
    double *v = doubles(n);
    for (int64_t i = 0; v && i < n; i++)
        v[i] = 0;
    const bool few = precision_of(p) == &in_f32 && n > SPARSE;
    for (int64_t k = 0; v && k < (few ? SPARSE : n); k++)
        v[few ? check_between(r, 0, n - 1) : k] = (double)check_between(r, 4, 8) / 8 * (check_next(r) & 1 ? 1 : -1);
    return v;
}

static double along(const double *g, const double *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n && g; i++)
        sum += v[i] != 0 ? g[i] * v[i] : 0;
    return sum;
}

/* Compare the formula's derivative in a direction with the slope. */
static enum verdict judge(const point *p, const slope *s, double formula, difference *d)
{
    const precision *q = precision_of(p);
    *d = (difference){ formula, s->value, false };
    if (!s->finite || !s->smooth || !isfinite(s->scale))
        return UNSURE;
    if (s->flat)
        return fabs(formula) > 0 ? UNSURE : AGREES;
    const double results = s->noise * 0.3 * q->step / p->eps; /* how large they are */
    const double strict = q->differ * s->scale + q->slack * s->noise + NEGLIGIBLE;
    const double allowed = strict + fmax(p->op->rtol, 0) * (s->scale + APPROXIMATE * results) +
        APPROXIMATE * fmax(p->op->atol, 0);
    /* Slopes in f64 are more precise than that. What forward itself loses shows in how far two extrapolations lie apart. */
    const double precise = q == &in_f64
        ? fmin(allowed, 32 * s->apart + 200 * s->noise + 2e-9 * s->scale + NEGLIGIBLE + allowed - strict)
        : allowed;
    d->slight = fabs(formula - s->value) <= allowed;
    return fabs(formula - s->value) <= precise ? AGREES : DIFFERS;
}

static enum verdict compare_once(point *p, size_t a, const double *g, check_random *r, difference *d)
{
    const size_t before = pool.used;
    slope s;
    double *v = draw_direction(p, a, r);
    enum verdict verdict = UNSURE;
    if (v && find_slope(p, a, v, &s))
        verdict = judge(p, &s, along(g, v, check_numel(&p->c.tensors[a])), d);
    pool.used = before;
    return verdict;
}

/* Another point of the same case. */
static bool elsewhere(point *q, const point *p, uint64_t k, check_random *r)
{
    check_case c = p->c;
    c.seed += 1000 * k;
    for (size_t i = 0; i < c.ntensors; i++)
        if (differentiable(c.tensors[i].dtype))
            c.tensors[i].fill = CHECK_RANDOM;
    return make_point(q, p->op, &c) && !forward(q, 0, NULL, 0) && draw_weights(q, r);
}

/* A difference counts if it also appears in another direction and other points are smooth. */
static bool confirmed(point *p, size_t a, const double *g, check_random *r)
{
    static point other;
    difference d;
    int differ = 0, smooth = 0;
    bool slight = false;
    for (int k = 0; k < 5; k++) {
        differ += compare_once(p, a, g, r, &d) == DIFFERS;
        slight |= d.slight;
        if (k == 2 && !slight)
            break;
    }
    for (uint64_t k = 1; k <= 3 && differ >= (slight ? 5 : 2); k++) {
        const size_t before = pool.used;
        if (elsewhere(&other, p, k, r))
            smooth += compare_once(&other, a, NULL, r, &d) != UNSURE;
        pool.used = before;
    }
    return smooth >= 2;
}

static const char *type_text(const point *p) { return precision_of(p) == &in_f64 ? "f64" : "f32"; }

static void print_name(const point *p, size_t i, char *out, size_t size)
{
    const size_t slot = check_tensor_argument(&p->c, i);
    if (p->c.args[slot].type == DV_VALUE_TENSORS)
        snprintf(out, size, "%s[%zu]", p->op->slots[slot].name, i - p->c.args[slot].first);
    else
        snprintf(out, size, "%s", p->op->slots[slot].name);
}

static void report_difference(check_job *job, const point *p, size_t a, enum clause clause, const difference *d)
{
    char name[100];
    print_name(p, a, name, sizeof name);
    show(job, d->slight ? CHECK_SHOW_NOTHING : CHECK_SHOW_SLOPE, a);
    if (d->slight)
        check_fail(job, "slightly wrong gradient",
            "the gradient of '%s' is %.12g in a direction in which finite differences give %.12g (f64): a factor seems to be in "
            "f32",
            name, d->formula, d->slope);
    if (clause == NO_CLAUSE)
        check_fail(job, "gradient missing",
            "gradient missing for '%s': no clause names it, and finite differences give %.6g (%s)", name, d->slope, type_text(p));
    else if (!isfinite(d->formula))
        check_fail(job, "gradient not finite", "the gradient of '%s' is %g where finite differences give %.6g (%s)", name,
            d->formula, d->slope, type_text(p));
    else
        check_fail(job, "wrong gradient",
            "the gradient of '%s' is wrong: %.6g in a direction in which finite differences give %.6g (%s)", name, d->formula,
            d->slope, type_text(p));
}

/* Is it at 0 or at equal numbers on purpose, where kinks are? */
static bool seeks_kinks(const point *p)
{
    bool any = false;
    for (size_t i = 0; i < p->c.ntensors; i++)
        any |= p->c.tensors[i].present && p->c.tensors[i].fill == CHECK_HALVES;
    return any;
}

/* Each tensor's gradient against slopes. */
static void compare_all(check_job *job, point *p, const gradients *g, check_random *r)
{
    bool any, sure = true;
    for (size_t a = 0; a < p->c.ntensors && job->result->outcome == CHECK_PASS; a++) {
        const enum clause clause = clause_of(p->op, "gradient", check_tensor_argument(&p->c, a), &any);
        difference d;
        if (!p->c.tensors[a].present || !differentiable(p->c.tensors[a].dtype) || !check_numel(&p->c.tensors[a]) ||
            clause == NOT_DIFFERENTIABLE || !any)
            continue;
        const enum verdict verdict = compare_once(p, a, g->of[a], r, &d);
        sure &= verdict != UNSURE;
        if (verdict == DIFFERS && confirmed(p, a, g->of[a], r))
            report_difference(job, p, a, clause, &d);
    }
    tally.smooth += sure;
    tally.rough += !sure && !seeks_kinks(p);
}

/* ---- Forward mode ---- */

/* Tangents of all arguments: v for tensor a, zeros for the others. */
static bool make_tangents(const point *p, size_t a, const double *v, dv_value *tangents, const dv_tensor **list)
{
    for (size_t s = 0; s < p->op->nargs + p->op->nresults; s++)
        tangents[s] = dv_none();
    for (size_t i = 0; i < p->c.ntensors; i++) {
        const dv_tensor *t = &p->v.tensors[i];
        const size_t slot = check_tensor_argument(&p->c, i);
        dv_tensor *tangent = NULL;
        if (p->c.tensors[i].present && new_tensor(NULL, 0, t->dtype, t->device, t->ndim, t->shape, t->strides, &tangent))
            return false;
        for (int64_t k = 0; i == a && k < dv_numel(t); k++)
            check_put(tangent->data, k, t->dtype, v[k]);
        list[i] = tangent;
        if (p->c.args[slot].type == DV_VALUE_TENSORS)
            tangents[slot] = dv_from_tensors(&list[p->c.args[slot].first], p->c.args[slot].count);
        else
            tangents[slot] = dv_from_tensor(tangent);
    }
    return true;
}

/* The weighted sum of tangents, and that of their magnitudes; false: reported. */
static bool tangent_along(check_job *job, point *p, size_t a, const double *v, double *sum, double *size)
{
    static const dv_tensor *list[CHECK_TENSORS];
    dv_value tangents[SLOTS], out[SLOTS];
    *sum = *size = 0;
    show(job, CHECK_SHOW_TANGENT, a);
    if (forward(p, 0, NULL, 0) || !make_tangents(p, a, v, tangents, list))
        return false;
    if (dv_tangent(p->op->op, p->slots, tangents, out, &bench.host)) {
        check_fail(job, "tangent fails", "the tangent cannot be computed: %s", dv_last_error());
        return false;
    }
    for (size_t k = 0; k < p->nouts; k++) {
        const dv_tensor *t = tensor_in(&out[p->out_slot[k]], p->out_place[k]), *o = out_tensor(p, k);
        const size_t before = pool.used;
        double *d = t ? doubles(dv_numel(t)) : NULL;
        if (t && (t->ndim != o->ndim || dv_numel(t) != dv_numel(o) || dv_dtype_key(t->dtype) != dv_dtype_key(o->dtype))) {
            check_fail(job, "tangent's shape", "the tangent of result '%s' has another shape or element type than the result",
                p->op->slots[p->out_slot[k]].name);
            return false;
        }
        if (d)
            get_all(t, d);
        for (int64_t i = 0; d && i < dv_numel(t); i++) {
            *sum += d[i] * p->w[p->out_at[k] + i];
            *size += fabs(d[i] * p->w[p->out_at[k] + i]);
        }
        pool.used = before;
    }
    free_lists(out, p->op->nargs + p->op->nresults);
    return true;
}

/* Only of results that have a tangent. */
static void weigh_tangents(point *p)
{
    bool any;
    for (size_t k = 0; k < p->nouts; k++)
        for (int64_t i = p->out_at[k]; i < out_end(p, k) && clause_of(p->op, "tangent", p->out_slot[k], &any) != HAS_CLAUSE; i++)
            p->w[i] = 0;
}

static void compare_tangents(check_job *job, point *p, check_random *r)
{
    const check_json *formula = check_json_get(p->op->json, "tangent");
    bool any;
    weigh_tangents(p);
    for (size_t a = 0; a < p->c.ntensors && job->result->outcome == CHECK_PASS; a++) {
        const size_t slot = check_tensor_argument(&p->c, a);
        const bool named = names(formula, "tangent", p->op->slots[slot].name);
        int differ = 0;
        difference d, first = { 0, 0, false };
        if (!p->c.tensors[a].present || !differentiable(p->c.tensors[a].dtype) || !check_numel(&p->c.tensors[a]) ||
            (!named && clause_of(p->op, "gradient", slot, &any) != HAS_CLAUSE))
            continue;
        for (int k = 0; k < 3 && (k == 0 || differ == k); k++) { /* the same in every direction */
            slope s;
            double sum, size, *v = draw_direction(p, a, r);
            if (!v || !find_slope(p, a, v, &s) || !tangent_along(job, p, a, v, &sum, &size))
                break;
            differ += judge(p, &s, sum, &d) == DIFFERS && !d.slight;
            first = k ? first : d;
        }
        if (differ == 3)
            check_fail(job, "wrong tangent",
                "the tangent is wrong: moving '%s' it gives %.6g in a direction in which finite differences give %.6g (%s)",
                p->op->slots[slot].name, first.formula, first.slope, type_text(p));
    }
}

/* ---- Relations between gradients, which hold without finite differences ---- */

/* Are these, of those that are wanted, `by` times those of all? */
static void compare_gradients(
    check_job *job, const point *p, const bool *wanted, const gradients *all, double by, const gradients *some, const char *kind)
{
    char name[100];
    for (size_t i = 0; i < p->c.ntensors && job->result->outcome == CHECK_PASS; i++) {
        double worst = 0, scale = 1e-30;
        for (int64_t k = 0; some->of[i] && all->of[i] && k < check_numel(&p->c.tensors[i]); k++) {
            const double expected = by * all->of[i][k];
            worst = isfinite(some->of[i][k]) || by <= 1 ? fmax(worst, fabs(some->of[i][k] - expected)) : worst;
            scale = fmax(scale, fabs(expected));
        }
        if (worst <= 1000 * p->eps * scale && (!wanted[check_tensor_argument(&p->c, i)] || !some->of[i] == !all->of[i]))
            continue;
        print_name(p, i, name, sizeof name);
        job->how.tensor = (int32_t)i;
        check_fail(job, kind, "the gradient of '%s' is %s", name,
            by > 1       ? "not linear in grad: a million times grad gives something else than a million times the gradient"
                : by < 1 ? "not linear in grad: a millionth of grad gives something else than a millionth of the gradient"
                         : "another one when not all gradients are wanted");
    }
}

/* The gradient is linear in that of the results. By a power of two nothing is rounded. */
static void compare_scaled(check_job *job, point *p, const gradients *g)
{
    static const double by[] = { 0x1p20, 0x1p-20 };
    bool wanted[SLOTS];
    want_floats(p, wanted);
    for (size_t k = 0; k < 2 && job->result->outcome == CHECK_PASS; k++) {
        const size_t before = pool.used;
        gradients scaled = { { NULL } };
        for (int64_t i = 0; i < p->nw; i++)
            p->w[i] *= by[k];
        const bool done = !forward(p, 0, NULL, 0) && backward(job, p, wanted, &scaled) == DONE;
        show(job, CHECK_SHOW_NOTHING, 0);
        if (done)
            compare_gradients(job, p, wanted, g, by[k], &scaled, "not linear in grad");
        for (int64_t i = 0; i < p->nw; i++)
            p->w[i] /= by[k];
        pool.used = before;
    }
}

/* The gradients of some arguments are the same as when all are computed. */
static void compare_needs(check_job *job, point *p, const gradients *all)
{
    bool everything[SLOTS], wanted[SLOTS];
    size_t slots[8], n = 0;
    want_floats(p, everything);
    for (size_t s = 0; s < p->op->nargs && n < 8; s++)
        if (everything[s])
            slots[n++] = s;
    for (uint32_t set = 1; n > 1 && set + 1 < 1u << n && job->result->outcome == CHECK_PASS; set = n <= 4 ? set + 1 : set << 1) {
        const size_t before = pool.used;
        gradients some = { { NULL } };
        memset(wanted, 0, sizeof wanted);
        for (size_t k = 0; k < n; k++)
            wanted[slots[k]] = set >> k & 1;
        if (forward(p, 0, NULL, 0) || backward(job, p, wanted, &some) != DONE)
            return;
        show(job, CHECK_SHOW_NEEDS, 0);
        job->how.rtol = 1000 * p->eps;
        compare_gradients(job, p, wanted, all, 1, &some, "depends on needs");
        pool.used = before;
    }
}

/* ---- Low precision ---- */

/* The effect of rounding on the f64 gradient: the formula again, with every intermediate value rounded to eps. */
static bool find_spread(check_job *job, point *p, double eps, const gradients *g, double *spread)
{
    bool wanted[SLOTS];
    want_floats(p, wanted);
    memset(spread, 0, sizeof *spread * CHECK_TENSORS);
    bench.noise = eps;
    bench.largest = 0;
    bool done = true;
    for (int k = 0; k < RUNS && done; k++) {
        const size_t before = pool.used;
        gradients again = { { NULL } };
        done = !forward(p, 0, NULL, 0) && backward(job, p, wanted, &again) == DONE;
        for (size_t i = 0; i < p->c.ntensors && done; i++)
            for (int64_t n = 0; g->of[i] && n < check_numel(&p->c.tensors[i]); n++) {
                const double by = again.of[i] ? fabs(again.of[i][n] - g->of[i][n]) : NAN;
                done &= isfinite(by) != 0;
                spread[i] = fmax(spread[i], by);
            }
        pool.used = before;
    }
    bench.noise = 0;
    return done && bench.largest < 4096; /* of f16: 65504 */
}

/* Backward is forward transposed: along v the tangent, weighed with w, is what the gradient for w is along v. Also where
 * differences say nothing: in narrow types, at jumps. */
static bool transposed(check_job *job, point *p, size_t a, check_random *r, difference *d)
{
    const size_t before = pool.used;
    const int64_t n = check_numel(&p->c.tensors[a]);
    bool wanted[SLOTS];
    gradients g = { { NULL } };
    double size = 0, sum = 0, far = 0, spread[CHECK_TENSORS], *v = draw_direction(p, a, r);
    want_floats(p, wanted);
    bool agree = !v || forward(p, 0, NULL, 0) || backward(job, p, wanted, &g) != DONE ||
        !tangent_along(job, p, a, v, &sum, &size);
    *d = (difference){ sum, agree ? 0 : along(g.of[a], v, n), false };
    for (int64_t i = 0; !agree && i < n; i++) {
        size += g.of[a] ? fabs(g.of[a][i] * v[i]) : 0;
        far += fabs(v[i]);
    }
    const double apart = fabs(d->formula - d->slope), rounded = 32 * p->eps * size + 1e-5;
    agree = agree || !isfinite(apart) || apart <= rounded || !find_spread(job, p, p->eps, &g, spread) ||
        apart <= rounded + 64 * spread[a] * far;
    pool.used = before;
    return agree;
}

static void compare_transposed(check_job *job, point *p, check_random *r)
{
    static point other;
    difference d, first;
    bool any;
    weigh_tangents(p);
    for (size_t a = 0; a < p->c.ntensors && job->result->outcome == CHECK_PASS; a++) {
        const size_t slot = check_tensor_argument(&p->c, a), before = pool.used;
        if (!p->c.tensors[a].present || !differentiable(p->c.tensors[a].dtype) || !check_numel(&p->c.tensors[a]) ||
            clause_of(p->op, "gradient", slot, &any) != HAS_CLAUSE)
            continue;
        bool agree = transposed(job, p, a, r, &first);
        for (uint64_t k = 1; k <= 3 && !agree; k++) { /* and at other points, so that it is no kink */
            agree = !elsewhere(&other, p, k, r);
            if (!agree)
                weigh_tangents(&other);
            agree = agree || transposed(job, &other, a, r, &d);
        }
        pool.used = before;
        show(job, CHECK_SHOW_NOTHING, a);
        if (!agree)
            check_fail(job, "not transposed",
                "the tangent and the gradient of '%s' are not of one function: in a direction one gives %.6g and the other %.6g",
                p->op->slots[slot].name, first.formula, first.slope);
    }
}

/* The gradient in the case's own types against that in f64, at the same numbers. DIFFERS: *a and *d say where. */
static enum verdict compare_rounded(check_job *job, point *low, point *p, check_random *r, size_t *a, difference *d)
{
    gradients g = { { NULL } }, rounded = { { NULL } };
    double spread[CHECK_TENSORS];
    bool wanted[SLOTS];
    want_floats(low, wanted);
    if (!draw_weights(p, r) || forward(low, 0, NULL, 0) || low->nw != p->nw)
        return UNSURE;
    memcpy(low->w, p->w, sizeof *p->w * (size_t)p->nw);
    if (backward(job, low, wanted, &rounded) != DONE || forward(p, 0, NULL, 0) || backward(job, p, wanted, &g) != DONE ||
        !find_spread(job, p, low->eps, &g, spread))
        return UNSURE;
    for (size_t i = 0; i < p->c.ntensors; i++) {
        double most = 0;
        const int64_t n = check_numel(&p->c.tensors[i]);
        for (int64_t k = 0; k < n && g.of[i]; k++)
            most = fmax(most, fabs(g.of[i][k]));
        for (int64_t k = 0; k < n && g.of[i]; k++) {
            const double found = rounded.of[i] ? rounded.of[i][k] : 0,
                         allowed = 16 * (spread[i] + low->eps * most) + 1e-5 + fmax(p->op->rtol, 0) * most;
            *a = i;
            *d = (difference){ found, g.of[i][k], false };
            if (!isfinite(g.of[i][k]) || fabs(found - g.of[i][k]) <= allowed)
                continue;
            show(job, CHECK_SHOW_LOW, i);
            job->how.atol = allowed;
            return DIFFERS;
        }
    }
    return AGREES;
}

static void compare_low(check_job *job, point *low, point *p, check_random *r)
{
    static point low_again, again;
    difference d, first;
    size_t a, where;
    char name[100];
    if (compare_rounded(job, low, p, r, &where, &first) != DIFFERS)
        return;
    for (uint64_t k = 1; k <= 3; k++) { /* not caused by a comparison that rounding changed */
        const size_t before = pool.used;
        const bool differs = elsewhere(&low_again, low, k, r) && make_twin(&again, &low_again, &p->c) &&
            !forward(&again, 0, NULL, 0) && compare_rounded(job, &low_again, &again, r, &a, &d) == DIFFERS;
        pool.used = before;
        if (!differs)
            return;
    }
    print_name(p, where, name, sizeof name);
    check_fail(job, "wrong in low precision",
        "the gradient of '%s' is %.6g, and at the same numbers in %s it is %.6g: more than rounding explains", name,
        first.formula, type_text(p), first.slope);
}

/* ---- A case ---- */

/* The same case with all floating types replaced by this one; false: the contract does not accept it. */
static bool in_type(const check_op *op, const check_case *c, const char *type, check_case *out)
{
    dv_dtype wanted;
    *out = *c;
    dv_dtype_parse(type, &wanted);
    for (size_t i = 0; i < c->ntensors; i++) {
        out->tensors[i].layout = CHECK_CONTIGUOUS;
        if (differentiable(c->tensors[i].dtype))
            out->tensors[i].dtype = wanted;
    }
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type == DV_VALUE_DTYPE && differentiable(c->args[i].as.dtype))
            out->args[i].as.dtype = wanted;
    return check_accepts(op, out);
}

static bool same_types(const check_case *a, const check_case *b)
{
    for (size_t i = 0; i < a->ntensors; i++)
        if (a->tensors[i].present && dv_dtype_key(a->tensors[i].dtype) != dv_dtype_key(b->tensors[i].dtype))
            return false;
    return true;
}

static bool all_finite(const point *p)
{
    for (size_t k = 0; k < p->nouts; k++) {
        const dv_tensor *t = out_tensor(p, k);
        for (int64_t i = 0; i < dv_numel(t); i++)
            if (!isfinite(check_get(t->data, i, t->dtype)))
                return false;
    }
    return true;
}

static void compare_numbers(check_job *job, point *own, const check_case *c, check_random *r)
{
    static point p;
    static check_case wide;
    bool wanted[SLOTS];
    gradients g = { { NULL } };
    const bool takes_f64 = in_type(job->op, c, "f64", &wide);
    if (!takes_f64 && !in_type(job->op, c, "f32", &wide)) {
        tally.why = "it takes neither f64 nor f32: finite differences have no precision";
        return;
    }
    if (!takes_f64 && check_case_largest(c) > LARGEST_F32)
        return;
    if (!make_twin(&p, own, &wide) || forward(&p, 0, NULL, 0) || !draw_weights(&p, r))
        return;
    if (p.eps > 0x1p-24) {
        tally.why = "a result is of a type with fewer digits than f32: finite differences have no precision";
        return;
    }
    tally.numeric++;
    check_in_hand(job, &wide);
    want_floats(&p, wanted);
    if (backward(job, &p, wanted, &g) != DONE)
        return;
    if (has_formula(job->op, "gradient"))
        compare_all(job, &p, &g, r);
    if (job->result->outcome == CHECK_PASS && has_formula(job->op, "gradient"))
        compare_scaled(job, &p, &g);
    if (job->result->outcome == CHECK_PASS && names(check_json_get(job->op->json, "gradient"), "needs", NULL))
        compare_needs(job, &p, &g);
    if (job->result->outcome == CHECK_PASS && !job->op->random && !same_types(c, &wide) && own->eps < 0x1p-7 &&
        precision_of(&p) == &in_f64) {
        check_in_hand(job, c);
        compare_low(job, own, &p, r);
    }
    if (job->result->outcome == CHECK_PASS && has_formula(job->op, "tangent")) { /* last: it changes the weights */
        check_in_hand(job, &wide);
        compare_tangents(job, &p, r);
    }
}

/* Contents in which differences mean something. */
static void tame(check_case *c, bool positive)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_CONTIGUOUS;
        if (!differentiable(t->dtype))
            continue;
        if (t->fill == CHECK_BINADES) { /* differences of large numbers say nothing of small ones */
            t->low = -2;
            t->high = 2;
        }
        t->fill = t->fill == CHECK_SPECIAL || t->fill == CHECK_BINADES ? CHECK_RANDOM : t->fill;
        t->low = positive ? 0.25 : t->low;
    }
}

/* Most cases could not be judged: not checked. */
static void take_stock(check_job *job)
{
    if (++tally.cases < MANY || job->result->outcome != CHECK_PASS)
        return;
    if (tally.cases == MANY && !tally.numeric)
        check_not(job, "%s", tally.why ? tally.why : "no case has a result and an argument of real numbers");
    else if (tally.cases == MANY && tally.rough > tally.smooth)
        check_not(job, "finite differences do not agree among themselves at %u of %u points: it is not smooth, or too imprecise",
            tally.rough, tally.rough + tally.smooth);
}

static void attempt(check_job *job, const check_case *given)
{
    static check_case c;
    static point own;
    check_random r = { given->seed };
    bool wanted[SLOTS];
    gradients g = { { NULL } };
    pool.used = 0;
    bench.noise = 0;
    c = *given;
    tame(&c, false);
    check_in_hand(job, &c);
    if (check_case_largest(&c) > LARGEST)
        return;
    for (size_t i = 0; i < c.ntensors; i++)
        if (c.tensors[i].present && c.tensors[i].dtype.code == 5) {
            tally.why = "its element types are complex, of which finite differences are not taken";
            take_stock(job);
            return;
        }
    if (!make_point(&own, job->op, &c))
        return;
    if (forward(&own, 0, NULL, 0)) {
        check_refused(job);
        return;
    }
    if (draw_weights(&own, &r) && !all_finite(&own)) {
        pool.used = 0;
        tame(&c, true);
        check_in_hand(job, &c);
        if (!make_point(&own, job->op, &c) || forward(&own, 0, NULL, 0) || !draw_weights(&own, &r) || !all_finite(&own))
            return;
    }
    want_floats(&own, wanted);
    if (own.nouts && has_formula(job->op, "gradient") && backward(job, &own, wanted, &g) == DONE)
        compare_numbers(job, &own, &c, &r);
    if (own.nouts && has_formula(job->op, "gradient") && has_formula(job->op, "tangent") && job->result->outcome == CHECK_PASS) {
        check_in_hand(job, &c);
        compare_transposed(job, &own, &r);
    }
    take_stock(job);
}

static const char *applies(const check_op *op, const check_row *row)
{
    (void)row;
    return has_formula(op, "gradient") ? NULL : "it declares no gradient";
}

const check_property check_property_gradient = {
    .name = "gradient",
    .promise = "the declared gradients and tangents are those of finite differences, in every element type, shape and for every "
               "part that is wanted",
    .applies = applies,
    .attempt = attempt,
};
