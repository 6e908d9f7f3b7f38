/* Calls in plain memory. A call's arguments lie in one reserved range of addresses, and what it gets (results, workspace,
 * dv_alloc()) in another, which each call uses from its beginning: nothing is allocated, calls of several threads have nothing in
 * common, and the same call finds the same memory. Guarded calls have found kernels that leave their bounds before.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static const size_t ARGUMENTS = (size_t)64 << 20, LENT = (size_t)128 << 20, KEPT = (size_t)64 << 20;
enum { ALIGN = 64, APART = 4096 };

static char *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- What a call left ---- */

static bool keep(check_outs *o, size_t slot, size_t element, const dv_tensor *from)
{
    const int64_t bytes = dv_dtype_bytes(from->dtype, dv_numel(from));
    check_out *out = o->of + o->n;
    int64_t n = 1;
    if (o->n == sizeof o->of / sizeof *o->of || bytes < 0 || from->ndim > CHECK_DIMS || o->size + (size_t)bytes + ALIGN > o->room)
        return false;
    *out = (check_out){ .slot = slot, .element = element, .t = *from };
    out->t.data = o->memory + o->size;
    out->t.shape = out->dims;
    out->t.strides = out->dims + CHECK_DIMS;
    for (int32_t i = from->ndim; i-- > 0; n *= from->shape[i] ? from->shape[i] : 1) {
        out->dims[i] = from->shape[i];
        out->dims[CHECK_DIMS + i] = n;
    }
    o->size += ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    o->n++;
    return !dv_tensor_copy(&out->t, from);
}

/* Copies an int, float or bool result as a tensor without dims. */
static bool keep_number(check_outs *o, size_t slot, const dv_value *v)
{
    const dv_dtype f64 = { 2, 64, 1 }, i64 = { 0, 64, 1 };
    int64_t i = v->type == DV_VALUE_BOOL ? v->as.b : v->as.i, none = 0;
    double f = v->as.f;
    const bool real = v->type == DV_VALUE_FLOAT;
    const dv_tensor t = { .data = real ? (void *)&f : (void *)&i,
        .dtype = real ? f64 : i64,
        .device = { DV_CPU, 0 },
        .shape = &none,
        .strides = &none };
    const bool kept = keep(o, slot, 0, &t);
    if (kept)
        o->of[o->n - 1].number = true;
    return kept;
}

bool check_keep_lists(const check_op *op, dv_value *results, const dv_tensor **room)
{
    size_t used = 0;
    bool fits = true;
    for (size_t r = 0; r < op->nresults; r++) {
        dv_tensors *list = &results[r].as.tensors;
        if (results[r].type != DV_VALUE_TENSORS)
            continue;
        void *array = (void *)(uintptr_t)(const void *)list->data;
        fits = list->size <= CHECK_TENSORS - used;
        list->size = fits ? list->size : 0;
        memcpy(room + used, list->data, list->size * sizeof *room);
        list->data = room + used;
        used += list->size;
        dv_free(array);
    }
    return fits;
}

void check_outs_take(check_outs *o, const check_op *op, const check_case *c, const dv_value *results, const dv_tensor *tensors)
{
    if (!o->memory) {
        o->memory = reserve(KEPT);
        o->room = o->memory ? KEPT : 0;
    }
    o->n = o->size = 0;
    o->incomplete = false;
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_value *v = &results[r];
        const dv_tensor *const *t = v->type == DV_VALUE_TENSORS ? v->as.tensors.data : &v->as.tensor;
        const size_t n = v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n && op->slots[op->nargs + r].alias < 0; k++)
            o->incomplete |= !keep(o, op->nargs + r, k, t[k]);
        if (v->type == DV_VALUE_INT || v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_BOOL)
            o->incomplete |= !keep_number(o, op->nargs + r, v);
    }
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_tensor_argument(c, i);
        if (c->tensors[i].present && slot < op->nargs && op->slots[slot].flags & DV_SLOT_WRITES)
            o->incomplete |= !keep(o, slot, i - c->args[slot].first, &tensors[i]);
    }
}

const char *check_out_name(const check_op *op, const check_out *o, char *buffer, size_t size)
{
    const dv_slot_info *s = &op->slots[o->slot];
    const bool list = s->type == DV_FIELD_TENSORS || s->type == DV_FIELD_MUT_TENSORS;
    const int n = list ? snprintf(buffer, size, "element %zu of ", o->element) : 0;
    if (o->slot < op->nargs)
        snprintf(buffer + n, size - (size_t)n, "argument '%s'", s->name);
    else
        check_result_name(op, o->slot - op->nargs, buffer + n, size - (size_t)n);
    return buffer;
}

void check_out_element(const check_op *op, const check_out *o, int64_t element, char *words, size_t size)
{
    int64_t index[CHECK_DIMS];
    const char *name = op->slots[o->slot].name;
    if (o->number) {
        check_out_name(op, o, words, size);
        return;
    }
    size_t n = (size_t)snprintf(words, size, "element [");
    for (int32_t i = o->t.ndim; i-- > 0; element /= o->dims[i] ? o->dims[i] : 1)
        index[i] = o->dims[i] ? element % o->dims[i] : 0;
    for (int32_t i = 0; i < o->t.ndim && n < size; i++)
        n += (size_t)snprintf(words + n, size - n, "%s%lld", i ? ", " : "", (long long)index[i]);
    if (n < size && *name)
        snprintf(words + n, size - n, "] of %s '%s'", o->slot < op->nargs ? "argument" : "result", name);
    else if (n < size)
        snprintf(words + n, size - n, "] of result %zu", o->slot - op->nargs);
}

double check_out_largest(const check_out *o)
{
    double most = 0;
    dv_dtype dtype = o->t.dtype;
    const int parts = check_numbers_in(&dtype);
    for (int64_t i = 0, n = dv_numel(&o->t) * parts; i < n; i++) {
        const double x = fabs(check_get(o->t.data, i, dtype));
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

/* The dtype whose rounding an output has. A kernel may compute a float, which is a double, in f32. */
static dv_dtype precision_of(const check_out *o)
{
    return o->number && o->t.dtype.code == 2 ? (dv_dtype){ 2, 32, 1 } : o->t.dtype;
}

double check_out_rounding(const check_op *op, const check_out *o)
{
    return check_rounding(op, precision_of(o), check_out_largest(o));
}

static bool same_form(const check_outs *a, const check_outs *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; i < a->n && same; i++)
        same = a->of[i].slot == b->of[i].slot && a->of[i].t.ndim == b->of[i].t.ndim &&
            dv_dtype_key(a->of[i].t.dtype) == dv_dtype_key(b->of[i].t.dtype) &&
            !memcmp(a->of[i].dims, b->of[i].dims, sizeof a->of[i].dims);
    return same;
}

double check_out_number(const check_out *o, int64_t i, int part)
{
    dv_dtype dtype = o->t.dtype;
    const int parts = check_numbers_in(&dtype);
    return check_get(o->t.data, i * parts + part, dtype);
}

bool check_out_far(const check_out *a, int64_t i, const check_out *b, int64_t k, double tolerance, int *part)
{
    dv_dtype dtype = a->t.dtype;
    const int parts = check_numbers_in(&dtype);
    for (*part = 0; *part < parts; ++*part) {
        const double x = check_out_number(a, i, *part), y = check_out_number(b, k, *part);
        if (!(x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance))
            return true;
    }
    return false;
}

/* Has element i the same bits in both? NaN is NaN: a compiler chooses the order of operands, and with it the sign and the rest of
 * a NaN, in each copy of a loop anew (whole vectors, what is left of them). */
static bool same_bits(const check_out *a, const check_out *b, int64_t i)
{
    dv_dtype dtype = a->t.dtype;
    const int parts = check_numbers_in(&dtype);
    const size_t bytes = (size_t)dv_dtype_bytes(dtype, 1);
    bool same = true;
    if (dtype.bits < 8)
        return check_get(a->t.data, i, dtype) == check_get(b->t.data, i, dtype);
    for (int64_t k = i * parts; k < (i + 1) * parts && same; k++)
        same = !memcmp((const char *)a->t.data + (size_t)k * bytes, (const char *)b->t.data + (size_t)k * bytes, bytes) ||
            (check_is_float(dtype) && isnan(check_get(a->t.data, k, dtype)) && isnan(check_get(b->t.data, k, dtype)));
    return same;
}

static bool same_form_or_say(const check_outs *a, const check_outs *b, char *words, size_t size)
{
    const bool same = same_form(a, b);
    if (!same)
        snprintf(words, size, "a result has another shape");
    return same;
}

/* True if results a and b differ; the first difference is printed to words. rounded: real numbers may differ by the rounding of
 * sums in another order. of (or NULL): case of an operator whose threads add numbers or take places in any order. Then integer
 * results and non-finite elements are skipped, and the case's tolerance is added. */
static bool differ(
    const check_op *op, const check_case *of, const check_outs *a, const check_outs *b, bool rounded, char *words, size_t size)
{
    char where[200];
    if (a->incomplete || b->incomplete)
        return false;
    if (!same_form_or_say(a, b, words, size))
        return true;
    if (a->size == b->size && !memcmp(a->memory, b->memory, a->size))
        return false;
    for (size_t k = 0; k < a->n; k++) {
        const check_out *x = &a->of[k], *y = &b->of[k];
        const int64_t n = dv_numel(&x->t);
        if (of && check_is_integer(x->t.dtype))
            continue;
        double tolerance = rounded ? check_out_rounding(op, x) : 0;
        if (of) {
            const check_tolerance t = check_tolerance_of(op, of, precision_of(x), n, true);
            tolerance = fmax(tolerance, t.atol + t.rtol * check_out_largest(x));
        }
        for (int64_t i = 0; i < n; i++) {
            int part;
            if (same_bits(x, y, i))
                continue;
            if (of && !(isfinite(check_out_number(x, i, 0)) && isfinite(check_out_number(y, i, 0))))
                continue; /* which infinity or NaN it is depends on the order of a sum */
            if (!check_out_far(x, i, y, i, tolerance, &part)) {
                if (rounded)
                    continue;
                part = 0; /* a zero of the other sign */
            }
            check_out_element(op, x, i, where, sizeof where);
            snprintf(words, size, "%s is %.9g and then %.9g", where, check_out_number(x, i, part), check_out_number(y, i, part));
            return true;
        }
    }
    return false;
}

bool check_outs_differ(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size)
{
    return differ(op, NULL, a, b, false, words, size);
}

bool check_outs_far(const check_op *op, const check_outs *a, const check_outs *b, char *words, size_t size)
{
    return differ(op, NULL, a, b, true, words, size);
}

bool check_outs_disagree(
    const check_op *op, const check_case *c, const check_outs *a, const check_outs *b, char *words, size_t size)
{
    const bool any_order = op->random && !op->seeded;
    return differ(op, any_order ? c : NULL, a, b, any_order, words, size);
}

/* ---- The host ---- */

static check_plain *plain_of(const dv_host *host) { return (check_plain *)(uintptr_t)host; }

/* From any thread. */
static void *lend(check_plain *p, size_t bytes, size_t alignment)
{
    const size_t count = __atomic_add_fetch(&p->allocations, 1, __ATOMIC_RELAXED);
    const size_t room = (bytes + alignment + APART + ALIGN - 1) / ALIGN * ALIGN;
    if (count == p->fail_at || bytes > LENT)
        return NULL;
    const size_t at = __atomic_fetch_add(&p->lent_used, room, __ATOMIC_RELAXED);
    if (at + room > LENT) {
        p->incomplete = true;
        return NULL;
    }
    void *memory = (void *)(((uintptr_t)p->lent + at + alignment - 1) / alignment * alignment);
    return memset(memory, 0, bytes);
}

typedef struct header {
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
} header;

static header *new_header(
    check_plain *p, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    header *h = lend(p, sizeof *h, ALIGN);
    if (!h)
        return NULL;
    memcpy(h->dims, shape, sizeof *shape * (size_t)ndim);
    memcpy(h->dims + DV_MAX_NDIM, strides, sizeof *strides * (size_t)ndim);
    h->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = h->dims, .strides = h->dims + DV_MAX_NDIM };
    return h;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    int64_t last = 0;
    (void)index;
    for (int32_t i = 0; i < ndim; i++)
        last += (shape[i] - 1) * strides[i];
    const int64_t bytes = last < 0 ? 0 : dv_dtype_bytes(dtype, last + 1);
    header *h = new_header(plain_of(host), dtype, device, ndim, shape, strides);
    if (!h || bytes < 0 || !(h->t.data = lend(plain_of(host), (size_t)bytes, ALIGN)))
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    *out = &h->t;
    return DV_OK;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    (void)index;
    header *h = new_header(plain_of(host), base->dtype, base->device, ndim, shape, strides);
    if (!h)
        return dv_fail(DV_ENOMEM, "out of memory");
    h->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    *out = &h->t;
    return DV_OK;
}

static void free_tensor(const dv_host *host, dv_tensor *t) /* with the next call */
{
    (void)host;
    (void)t;
}

static void *lend_to_kernel(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)use;
    (void)slot;
    return lend(plain_of(host), bytes, alignment < ALIGN ? ALIGN : alignment);
}

static void take_back(const dv_host *host, void *p)
{
    (void)host;
    (void)p;
}

/* Begins to count the kernel's malloc() calls, or goes on: dv_set_output() interrupts a kernel while the host allocates. */
static void before_kernel(const dv_host *host)
{
    check_plain *p = plain_of(host);
    p->kernel_ran = true;
    if (p->counts_mallocs)
        check_heap_count(p->malloc_fails_at > p->mallocs ? p->malloc_fails_at - p->mallocs : 0);
}

static void after_kernel(const dv_host *host)
{
    check_plain *p = plain_of(host);
    if (p->counts_mallocs)
        p->mallocs += check_heap_counted();
}

/* ---- Calls ---- */

static bool begin(check_plain *p, const check_op *op, const check_case *c, int32_t row)
{
    p->memory = p->memory ? p->memory : reserve(ARGUMENTS);
    p->lent = p->lent ? p->lent : reserve(LENT);
    p->op = op;
    p->c = c;
    p->used = 0;
    memset(p->written, 0, sizeof p->written);
    check_heap_zeroed();
    p->fail_at = p->malloc_fails_at = 0;
    p->counts_mallocs = false;
    p->hooks = (dv_test_hooks){ .row = row, .alloc = lend_to_kernel, .free = take_back };
    p->host = (dv_host){ .size = sizeof p->host,
        .name = "dovetail check",
        .new_tensor = new_tensor,
        .free_tensor = free_tensor,
        .new_view = new_view,
        .before_kernel = before_kernel,
        .after_kernel = after_kernel,
        .test = &p->hooks };
    check_values_make(&p->values, c, (dv_device){ DV_CPU, 0 });
    return p->memory && p->lent;
}

/* Memory for one argument; NULL: there is no more. */
static char *argument(check_plain *p, int64_t bytes)
{
    const size_t room = ((size_t)(bytes > 0 ? bytes : 0) + APART + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes > (int64_t)ARGUMENTS || p->used + room > ARGUMENTS)
        return NULL;
    p->used += room;
    return p->memory + p->used - room;
}

/* Restore the contents of written memory before each call. False: no memory. */
static bool keep_contents(check_plain *p, size_t tensor, char *data, size_t bytes)
{
    const bool written = p->op->slots[check_tensor_argument(p->c, tensor)].flags & DV_SLOT_WRITES;
    char *copy = written ? argument(p, (int64_t)bytes) : NULL;
    if (copy)
        memcpy(copy, data, bytes);
    p->written[tensor] = (check_written){ data, copy, copy ? bytes : 0 };
    return copy || !written;
}

bool check_plain_make(check_plain *p, const check_op *op, const check_row *row, const check_case *c)
{
    if (!begin(p, op, c, row ? row->index : 0))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        int64_t low, high;
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        check_strides(t, p->values.strides[i], &low, &high);
        const int64_t size = dv_dtype_bytes(t->dtype, 1);
        char *data = argument(p, (high - low + 1) * size);
        if (!data)
            return false;
        p->values.tensors[i].data = data - low * size;
        check_fill_tensor(t, c->seed + i, p->values.tensors[i].data, p->values.strides[i]);
        if (!keep_contents(p, i, data, (size_t)((high - low + 1) * size)))
            return false;
    }
    return true;
}

bool check_plain_make_shared(
    check_plain *p, const check_op *op, const check_row *row, const check_case *c, size_t written, size_t read, int64_t by)
{
    const int64_t n = check_numel(&c->tensors[written]), end = by + check_numel(&c->tensors[read]),
                  size = dv_dtype_bytes(c->tensors[written].dtype, 1), low = by < 0 ? by : 0, high = end > n ? end : n;
    char *const data = check_plain_make(p, op, row, c) ? argument(p, (high - low) * size) : NULL;
    if (!data)
        return false;
    p->values.tensors[written].data = data - low * size;
    p->values.tensors[read].data = data + (by - low) * size;
    check_fill_tensor(&c->tensors[written], c->seed + written, p->values.tensors[written].data, p->values.strides[written]);
    check_fill_tensor(&c->tensors[read], c->seed + read, p->values.tensors[read].data, p->values.strides[read]);
    return keep_contents(p, written, data, (size_t)((high - low) * size));
}

bool check_plain_wrote_beside(const check_plain *p, size_t tensor)
{
    const check_written *w = &p->written[tensor];
    const dv_tensor *t = &p->values.tensors[tensor];
    const size_t begin = (size_t)((const char *)t->data - w->data), end = begin + (size_t)dv_dtype_bytes(t->dtype, dv_numel(t));
    return memcmp(w->data, w->copy, begin) || memcmp(w->data + end, w->copy + end, w->bytes - end);
}

bool check_plain_part(check_plain *p, const check_plain *whole, const int *axes, int64_t low, int64_t high)
{
    const check_case *c = whole->c;
    if (!begin(p, whole->op, c, whole->hooks.row))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        if (!c->tensors[i].present)
            continue;
        dv_tensor from = whole->values.tensors[i], *to = &p->values.tensors[i];
        int64_t n = 1, *shape = p->shapes[i], *strides = p->values.strides[i];
        const int64_t size = dv_dtype_bytes(from.dtype, 1);
        memcpy(shape, from.shape, sizeof *shape * (size_t)from.ndim);
        if (axes[i] >= 0) {
            shape[axes[i]] = high - low;
            from.data = (char *)from.data + low * from.strides[axes[i]] * size;
        }
        for (int32_t k = from.ndim; k-- > 0; n *= shape[k] ? shape[k] : 1)
            strides[k] = n;
        to->shape = from.shape = shape;
        if (!(to->data = argument(p, n * size)) || dv_tensor_copy(to, &from) ||
            !keep_contents(p, i, to->data, (size_t)(n * size)))
            return false;
    }
    return true;
}

void check_plain_call(check_plain *p)
{
    p->kernel_ran = p->incomplete = false;
    p->allocations = p->lent_used = p->mallocs = 0;
    for (size_t r = 0; r < p->op->nresults; r++)
        p->results[r] = dv_default();
    for (size_t i = 0; i < p->c->ntensors; i++)
        if (p->written[i].bytes)
            memcpy(p->written[i].data, p->written[i].copy, p->written[i].bytes);
    p->status = dv_call(p->op->op, p->values.values, p->c->nargs, p->results, p->op->nresults, &p->host);
    check_after_kernel();
    if (!check_keep_lists(p->op, p->results, p->listed))
        p->status = DV_ELIMIT;
}
