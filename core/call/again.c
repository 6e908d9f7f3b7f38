/* A call like one before.
 *
 * The contract's answers depend on the tensors' dtypes, shapes, strides and devices and on the other values, not on where the
 * tensors lie. So when a call has been checked from end to end and ran one kernel over contiguous tensors, twice with
 * the same look, the thread remembers all that was asked, with the row; and a call with exactly the same answers needs none of it
 * again. What does depend on addresses is checked each time: overlaps, missing memory, read-only results. Registration, policy
 * and instruction sets are compared by generation.
 *
 * The entries are the thread's own: no lock, nothing shared. */
#include "call/again.h"

#include "call/fail.h"
#include "call/frame.h"
#include "call/host.h"
#include "call/memory.h"
#include "call/results.h"
#include "call/split.h"

enum { ENTRIES = 16, SLOTS = 8, DIMS = 5 };

/* One tensor: device, ndim and dtype as two words, in the layout of dv_tensor; its shape and strides. */
typedef struct seen_tensor {
    uint64_t device, kind;
    int64_t shape[DIMS], strides[DIMS];
    uint64_t bytes;
} seen_tensor;

struct dv__memory {
    uint64_t last;   /* what the latest call that could have been remembered here looked like */
    uint64_t serial; /* of the operator's plan; 0: empty */
    int reading;     /* a host's allocator may call operators: an entry in use is not replaced */
    const dv__table *table;
    const dv__row *row;
    dv__isas isas; /* dv__isa_limit() */
    uint32_t host_flags;
    dv_device device;
    int64_t workspace;
    bool large;
    uint32_t nargs;         /* the number of arguments passed: the rest had their defaults */
    uint8_t types[SLOTS];   /* enum dv_value_type of what was passed, and of results */
    dv_value passed[SLOTS]; /* those that are not tensors */
    dv_value values[SLOTS]; /* the same, completed and converted */
    bool alias[SLOTS];      /* of results: it is an argument */
    seen_tensor tensors[SLOTS];
};
typedef struct dv__memory entry;

static _Thread_local entry of_thread[ENTRIES];
DV__OF_THREAD static entry *entries(void) { return of_thread; }

static uint64_t word(const void *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* A hash of the operator and the first argument's sizes; its highest bits choose the entry. */
static uint64_t look(const dv_operator *op, const dv_value *args, size_t nargs)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15u;
    const dv_tensor *t = nargs && args[0].type == DV_VALUE_TENSOR ? args[0].as.tensor : NULL;
    uint64_t h = op->plan->serial * odd;
    const int32_t n = t && t->shape && t->ndim <= DIMS ? t->ndim : 0;
    for (int32_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)t->shape[i]) * odd;
    return h;
}

static bool same_tensor(const seen_tensor *s, const dv_tensor *t)
{
    if (word(&t->device) != s->device || word(&t->ndim) != s->kind || (t->ndim && (!t->shape || !t->strides)))
        return false;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] != s->shape[i] || t->strides[i] != s->strides[i])
            return false;
    return true;
}

static bool same_value(const dv_value *a, const dv_value *b)
{
    switch (a->type) {
    case DV_VALUE_INT:
    case DV_VALUE_FLOAT: return word(&a->as) == word(&b->as); /* by bits: -0.0 and NaN too */
    case DV_VALUE_BOOL: return a->as.b == b->as.b;
    case DV_VALUE_DEFAULT:
    case DV_VALUE_NONE: return true;
    case DV_VALUE_DTYPE: return dv_dtype_key(a->as.dtype) == dv_dtype_key(b->as.dtype);
    default: return false; /* never remembered */
    }
}

static bool matches_one(dv__call *c, const entry *e, size_t slot, const dv_value *v)
{
    c->tensors[slot] = NULL;
    if (v->type != e->types[slot])
        return false;
    if (v->type != DV_VALUE_TENSOR)
        return same_value(v, &e->passed[slot]);
    const dv_tensor *t = v->as.tensor;
    const uint64_t bytes = e->tensors[slot].bytes;
    if (!t || !same_tensor(&e->tensors[slot], t) || (!t->data && bytes))
        return false;
    c->tensors[slot] = t;
    c->spans[slot] = (dv__span){ (uintptr_t)t->data, (uintptr_t)t->data + bytes };
    return true;
}

/* The same as the remembered call in all that does not depend on addresses? Finds the tensors; new results are NULL. */
static bool matches(dv__call *c, const entry *e, const dv_value *args, const dv_value *results)
{
    const size_t n = c->plan->nargs;
    for (size_t i = 0; i < e->nargs; i++)
        if (!matches_one(c, e, i, &args[i]))
            return false;
    for (size_t i = e->nargs; i < n; i++)
        c->tensors[i] = NULL;
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (!matches_one(c, e, n + r, &results[r]))
            return false;
    return true;
}

/* The rest of the call: new results, frame, kernel. */
static int run(dv__call *c, entry *e)
{
    _Alignas(16) char frame[DV__STACK_FRAME];
    const dv__row *row = e->row;
    const int64_t workspace = e->workspace;
    c->large = e->large;
    int status = DV_OK;
    e->reading++;
    dv__begin_results(c);
    for (size_t r = 0; r < c->nouts && !status; r++) {
        const size_t slot = c->plan->nargs + r;
        const seen_tensor *s = &e->tensors[slot];
        if (c->tensors[slot]) {
            c->outs[r].origin = DV__RESULT_GIVEN;
            continue;
        }
        if (e->alias[r]) {
            c->outs[r].origin = DV__RESULT_ALIAS;
            c->tensors[slot] = c->tensors[c->plan->slots[slot].alias];
            c->outs[r].tensor = (dv_tensor *)(uintptr_t)c->tensors[slot];
            continue;
        }
        dv_dtype dtype;
        int32_t ndim;
        memcpy(&ndim, &s->kind, sizeof ndim);
        memcpy(&dtype, (const char *)&s->kind + sizeof ndim, sizeof dtype);
        if (!(status = dv__new_tensor(c, (int)r, dtype, c->device, ndim, s->shape, s->strides, &c->outs[r].made))) {
            c->outs[r].origin = DV__RESULT_MADE;
            c->tensors[slot] = c->outs[r].made;
        }
    }
    if (!status)
        dv__fill_frame(c, row->binding, frame);
    e->reading--; /* from here on the entry may be another's */
    if (!status) {
        if (DV__HOST(c->host, before_kernel))
            c->host->before_kernel(c->host);
        c->in_kernel = true;
        status = dv__report(c, dv__run_whole(c, row, frame, workspace, NULL), row->name);
        c->in_kernel = false;
        if (DV__HOST(c->host, after_kernel))
            c->host->after_kernel(c->host);
    }
    return status;
}

bool dv__call_again(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, int *status)
{
    const dv__plan *plan = op->plan;
    if ((nargs && !args) || dv__test_chooses(host))
        return false;
    c->look = look(op, args, nargs);
    entry *e = c->place = &entries()[c->look / (UINT64_MAX / ENTRIES + 1)];
    if (e->serial != plan->serial || nargs != e->nargs || nresults != plan->nreturns || e->host_flags != dv__host_flags(host) ||
        (nresults && !results))
        return false;
    if (e->table != atomic_load_explicit(&op->table, memory_order_acquire) ||
        !atomic_load_explicit(&op->alive, memory_order_acquire) || e->isas != dv__isa_limit() ||
        dv__guards()->included | dv__guards()->excluded)
        return false;
    c->plan = plan;
    c->all_contiguous = true;
    if (!matches(c, e, args, results) || !dv__clearly_apart(c))
        return false;
    c->decision = dv__policy_decide(op, e->host_flags & DV_HOST_FUSES);
    if (!c->decision && op->native)
        return false;
    dv__call_begin(c, op, results, host, 0);
    c->args = e->values; /* all that are not tensors; the frame's strings and lists are never here */
    c->device = e->device;
    *status = run(c, e);
    return true;
}

/* ---- Remembering ---- */

static bool remember_tensor(seen_tensor *s, const dv_tensor *t)
{
    if (t->ndim > DIMS)
        return false;
    s->device = word(&t->device);
    s->kind = word(&t->ndim);
    for (int32_t i = 0; i < t->ndim; i++) {
        s->shape[i] = t->shape[i];
        s->strides[i] = t->strides[i];
    }
    s->bytes = (uint64_t)dv_dtype_bytes(t->dtype, dv_numel(t));
    return true;
}

static bool is_simple(uint32_t type)
{
    return type == DV_VALUE_INT || type == DV_VALUE_FLOAT || type == DV_VALUE_BOOL || type == DV_VALUE_NONE ||
        type == DV_VALUE_DTYPE;
}

static bool remember_argument(entry *e, const dv__call *c, const dv_value *args, size_t nargs, size_t i)
{
    const dv_value missing = { .type = DV_VALUE_DEFAULT }, *v = i < nargs ? &args[i] : &missing;
    e->types[i] = (uint8_t)v->type;
    if (v->type == DV_VALUE_TENSOR)
        return remember_tensor(&e->tensors[i], v->as.tensor);
    e->passed[i] = *v;
    e->values[i] = c->args[i];
    return (is_simple(v->type) || v->type == DV_VALUE_DEFAULT) && is_simple(c->args[i].type) &&
        !(c->plan->slots[i].flags & DV__SLOT_LIST);
}

static bool remember_result(entry *e, const dv__call *c, size_t r)
{
    const size_t slot = c->plan->nargs + r;
    const dv__result *out = &c->outs[r];
    e->types[slot] = (uint8_t)c->results[r].type;
    e->passed[slot] = c->results[r];
    e->alias[r] = out->origin == DV__RESULT_ALIAS;
    if (e->alias[r])
        return c->results[r].type == DV_VALUE_DEFAULT;
    if (out->view ||
        (out->origin != DV__RESULT_GIVEN && (out->origin != DV__RESULT_MADE || c->results[r].type != DV_VALUE_DEFAULT)))
        return false;
    return remember_tensor(&e->tensors[slot], out->tensor);
}

void dv__remember(dv__call *c, const dv__entry *from, const dv__row *row)
{
    const dv__plan *plan = c->plan;
    entry *e = c->place;
    if (!e || c->temps || !c->all_contiguous || !row->takes_all_contiguous || !c->op->contract || dv__uses_shape(c->op))
        return;
    const bool twice = e->last == c->look;
    e->last = c->look;
    if (!twice)
        return; /* sizes that never come again cost nothing here, and replace nothing */
    const dv__table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    if (e->reading || plan->nargs + plan->nreturns > SLOTS || !dv__host_memory(c->device.type) ||
        row->binding->frame_size > DV__STACK_FRAME || dv__guards()->included | dv__guards()->excluded ||
        dv__host_flags(c->host) & DV_HOST_CHECK)
        return;
    if (from < table->entries || from >= table->entries + DV_KEY_RUNTIME_COUNT)
        return; /* replaced in the meantime */
    e->serial = 0;
    for (size_t i = 0; i < plan->nargs; i++)
        if (!remember_argument(e, c, c->passed, c->npassed, i))
            return;
    for (size_t r = 0; r < plan->nreturns; r++)
        if (!remember_result(e, c, r))
            return;
    e->table = table;
    e->row = row;
    e->isas = dv__isa_limit();
    e->device = c->device;
    e->workspace = c->workspace;
    e->large = c->large;
    e->host_flags = dv__host_flags(c->host);
    e->nargs = (uint32_t)c->npassed;
    e->serial = plan->serial;
}
