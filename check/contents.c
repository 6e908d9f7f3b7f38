/* Contents for index-like arguments: offsets, lengths, permutations. A contract's sorted(x) requires sorted ones. A contract may
 * not state which contents a kernel accepts. If the kernel refuses a case, other contents of its integer tensors are tried until
 * it accepts some. Accepted contents are tried first for the next refused case.
 *
 * A *role* describes the contents of a tensor: a fill, and a bound that follows a size of the case (the `span`). So the bound
 * stays right when a case is made smaller. */
#include <math.h>
#include <string.h>

#include "check.h"

/* ---- Elements ------------------------------------------------------------------------------------------------------------- */

/* Returns number k of a pseudo-random sequence in [0, 1). */
static double unit(uint64_t seed, int64_t k)
{
    check_random r = { seed + (uint64_t)k * UINT64_C(0x9e3779b97f4a7c15) };
    return (double)(check_next(&r) >> 11) * 0x1p-53;
}

/* Returns offset k of n in a row of the last dim, none smaller than the one before. The seed and the row select the segments
 * between offsets: of similar lengths, growing, or empty except at the end, middle or beginning. Most rows begin with the lower
 * bound and end with the upper one. */
static double offset_at(const check_tensor *t, uint64_t seed, int64_t row, int64_t k, int64_t n)
{
    const uint64_t kind = (seed / 8 + (uint64_t)row) % 8;
    const double span = t->high - t->low;
    double x = n < 2 || !k ? 0 : k + 1 == n ? 1 : ((double)(k - 1) + unit(seed + (uint64_t)row, k)) / (double)(n - 1);
    switch (kind) {
    case 1: x = x * x; break;
    case 2: x = x < 1 ? 0 : 1; break;
    case 3: x = fmin(1, fmax(0, 3 * x - 1)); break;
    case 4: x = k ? 1 : 0; break;
    case 5: x = x < 1 ? 0.75 * x : 1; break;
    case 6: x = 0.75 * x; break; /* ends before the upper bound, as offsets do of which each is the beginning of a segment */
    default: break;
    }
    return t->low + floor(span * x);
}

int64_t check_permuted(int64_t n, int64_t j, uint64_t seed)
{
    int64_t step = n * 5 / 8 | 1, a, b;
    do { /* the next step that has no factor in common with n */
        step += 2;
        for (a = n, b = step; b;) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
    } while (a > 1);
    return (int64_t)(((uint64_t)j * (uint64_t)step + seed / 8 % (uint64_t)n) % (uint64_t)n);
}

bool check_is_placed(const check_tensor *t)
{
    return t->fill == CHECK_OFFSETS || t->fill == CHECK_LENGTHS || t->fill == CHECK_PERMUTED;
}

double check_placed(const check_tensor *t, uint64_t seed, int64_t i)
{
    const int64_t n = t->ndim ? t->shape[t->ndim - 1] : 1, row = i / n, j = i % n;
    if (t->fill == CHECK_PERMUTED)
        return fmin(t->low + (double)check_permuted(n, j, seed), t->high);
    if (t->fill == CHECK_LENGTHS)
        return offset_at(t, seed, row, j + 1, n + 1) - offset_at(t, seed, row, j, n + 1);
    return offset_at(t, seed, row, j, n);
}

/* ---- Sizes that bound elements -------------------------------------------------------------------------------------------- */

enum { NO_SPAN = -1, MAX_SPANS = 64 };

/* Returns the size that a span names: 1 + CHECK_DIMS * tensor + dim, or 1 + CHECK_TENSORS * CHECK_DIMS + an int argument.
 * NO_SPAN: the case has no such size. */
static int64_t span_size(const check_case *c, int32_t span)
{
    const uint32_t at = (uint32_t)(span - 1);
    if (at >= CHECK_TENSORS * CHECK_DIMS) {
        const check_value *v = &c->args[at - CHECK_TENSORS * CHECK_DIMS];
        return v->type == DV_VALUE_INT && v->as.i > 0 && v->as.i < INT32_MAX ? v->as.i : NO_SPAN;
    }
    const check_tensor *t = &c->tensors[at / CHECK_DIMS];
    return at / CHECK_DIMS < c->ntensors && t->present && (int32_t)(at % CHECK_DIMS) < t->ndim ? t->shape[at % CHECK_DIMS]
                                                                                               : NO_SPAN;
}

void check_follow_spans(check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const int64_t size = t->span ? span_size(c, t->span) : NO_SPAN;
        if (size < 0)
            continue;
        const bool ends = t->fill == CHECK_OFFSETS || t->fill == CHECK_LENGTHS;
        const double most = ldexp(1, t->dtype.bits - (t->dtype.code != 1)) - 1;
        t->high = fmin(ends && !t->below ? (double)size : fmax(0, (double)size - 1), most);
    }
}

/* ---- Roles that are tried ------------------------------------------------------------------------------------------------- */

typedef struct role {
    uint8_t fill;
    bool below;
    int32_t span;
    double low, high; /* high: used if there is no span */
} role;

static struct {
    bool any;
    role of[CHECK_ARGS];
} accepted; /* roles by argument that this process's kernel accepted last */
static role tried[CHECK_ARGS];
static uint32_t vain; /* attempts since contents were last accepted */

/* True if the tensor is present and of an integer dtype other than bool. */
static bool may_be_index(const check_tensor *t)
{
    return t->present && check_is_integer(t->dtype) && dv_dtype_key(t->dtype) != DV_DTYPE_bool;
}

/* Lists the spans of a case that are not of this tensor itself. Returns their number. *like_offsets: true if the tensor's last
 * dim is one longer than such a size, or its shape is [1]. */
static size_t list_spans(const check_case *c, size_t tensor, int32_t *spans, bool *like_offsets)
{
    size_t n = 0;
    const check_tensor *self = &c->tensors[tensor];
    *like_offsets = false;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int32_t d = 0; c->tensors[i].present && i != tensor && d < c->tensors[i].ndim && n < MAX_SPANS; d++) {
            spans[n++] = (int32_t)(i * CHECK_DIMS) + d + 1;
            *like_offsets |= self->ndim && self->shape[self->ndim - 1] == c->tensors[i].shape[d] + 1;
        }
    for (size_t a = 0; a < c->nargs && n < MAX_SPANS; a++)
        if (c->args[a].type == DV_VALUE_INT && c->args[a].as.i > 0 && c->args[a].as.i < INT32_MAX)
            spans[n++] = (int32_t)(CHECK_TENSORS * CHECK_DIMS + a + 1);
    if (self->ndim == 1)
        *like_offsets |= self->shape[0] == 1;
    return n;
}

static int32_t smallest_span(const check_case *c, const int32_t *spans, size_t n)
{
    int32_t best = 0;
    for (size_t k = 0; k < n; k++) {
        const int64_t size = span_size(c, spans[k]);
        best = size > 0 && (!best || size < span_size(c, best)) ? spans[k] : best;
    }
    return best;
}

/* Draws a random role for a tensor; likely roles are drawn more often. */
static role draw_role(const check_case *c, size_t tensor, check_random *r)
{
    int32_t spans[MAX_SPANS];
    bool like_offsets;
    const size_t n = list_spans(c, tensor, spans, &like_offsets);
    const int64_t turn = check_between(r, 0, 99);
    const int32_t any = n ? spans[check_between(r, 0, (int64_t)n - 1)] : 0, least = smallest_span(c, spans, n);
    if (n && turn < (like_offsets ? 65 : 20))
        return (role){ .fill = CHECK_OFFSETS, .span = any };
    switch (check_between(r, 0, 7)) {
    case 0: return (role){ .fill = CHECK_OFFSETS, .span = any, .below = true };
    case 1: return (role){ .fill = CHECK_LENGTHS, .span = any };
    case 2: return (role){ .fill = CHECK_PERMUTED, .high = INT32_MAX };
    case 3: return (role){ .fill = CHECK_SIMPLE };
    case 4: return (role){ .fill = CHECK_SIMPLE, .low = 1, .high = 1 };
    case 5: return (role){ .fill = CHECK_RANDOM, .span = any, .below = true };
    default: return (role){ .fill = CHECK_RANDOM, .span = least, .below = true };
    }
}

void check_index_below_size(const check_case *c, size_t tensor, uint32_t turn, check_tensor *t)
{
    int32_t spans[MAX_SPANS];
    bool like_offsets;
    const size_t n = list_spans(c, tensor, spans, &like_offsets);
    for (size_t k = 0; k < n; k++) {
        const int32_t span = spans[(turn + k) % n];
        if (span_size(c, span) <= (int64_t)t->high + 1)
            continue;
        t->fill = CHECK_RANDOM;
        t->span = span;
        t->below = true;
        t->low = 0;
        t->high = (double)span_size(c, span) - 1;
        return;
    }
}

static void give_role(const role *p, check_tensor *t)
{
    t->fill = p->fill;
    t->span = p->span;
    t->below = p->below;
    t->low = p->low;
    t->high = fmin(p->high, ldexp(1, t->dtype.bits - (t->dtype.code != 1)) - 1);
}

bool check_contents_try(const check_op *op, const check_case *refused, uint32_t k, check_case *out)
{
    enum { TRIES = 12, MAX_VAIN = 40 };
    check_random r = { (uint64_t)refused->number * 64 + k };
    bool any = false, known = accepted.any && k == refused->number % 2; /* in every second case after another one */
    *out = *refused;
    if (k >= TRIES || vain > MAX_VAIN * TRIES || (accepted.any && k > 3))
        return false;
    vain++;
    for (size_t a = 0; a < op->nargs; a++) {
        const check_value *v = &out->args[a];
        bool drawn = false;
        for (uint32_t e = 0; (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS) && e < v->count; e++) {
            if (!may_be_index(&out->tensors[v->first + e]))
                continue;
            if (!drawn)
                tried[a] = known ? accepted.of[a] : draw_role(out, v->first + e, &r);
            drawn = any = true;
            give_role(&tried[a], &out->tensors[v->first + e]);
        }
    }
    check_follow_spans(out);
    return any;
}

void check_contents_accepted(void)
{
    bool equal = true; /* all elements of a tensor: little is computed then, and other contents are still looked for */
    for (size_t a = 0; a < CHECK_ARGS; a++)
        equal &= tried[a].fill == CHECK_SIMPLE || (tried[a].fill == CHECK_RANDOM && !tried[a].span);
    vain = 0;
    if (equal)
        return;
    memcpy(accepted.of, tried, sizeof tried);
    accepted.any = true;
}
