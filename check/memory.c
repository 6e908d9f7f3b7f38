/* Memory that knows its bounds.
 *
 * One large range of addresses is reserved. Each tensor of a call gets pages of its own in it, with pages that nobody may touch on both
 * sides, and lies against one of the two: against the other in another run. Inputs are made read-only once they are filled. The
 * workspace and what a kernel gets from dv_alloc() come from here too, by the host's hooks; malloc()'s memory is in heap.c. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

enum { PAGE = 4096, GUARD = 16 * PAGE, REGIONS = 4096, GAP = 0xc3 };
static const size_t AREA = (size_t)1 << 34;

enum use { ARGUMENT, RESULT, TEMPORARY, WORKSPACE, KERNEL, STAND_IN };
typedef struct region {
    uintptr_t begin, end;   /* pages */
    uintptr_t data, first;  /* lowest byte; first element */
    size_t bytes;
    enum use use;
    size_t index;           /* of the tensor in the case, of the result, of the argument */
} region;

typedef struct made_tensor {
    dv_tensor t, as_made;
    int64_t dims[2 * DV_MAX_NDIM];
    int index;
    bool view;
    struct made_tensor *next;
} made_tensor;

/* The host, and everything of the call that runs. */
static struct machine {
    dv_host host;
    check_call *call;
    const check_case *c;
    uintptr_t area, used;
    region regions[REGIONS];
    size_t nregions;
    made_tensor *made;
    check_values values;
    pthread_mutex_t lock;
} machine = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool reserve(struct machine *m)
{
    if (m->area)
        return true;
    void *p = mmap(NULL, AREA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    m->area = m->used = (uintptr_t)p;
    return true;
}

static void *as_pointer(uintptr_t p) { return (void *)p; }

/* Everything that was lent becomes untouchable again. */
static void reset(struct machine *m)
{
    for (made_tensor *t = m->made, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    m->made = NULL;
    if (m->used > m->area)
        mmap(as_pointer(m->area), m->used - m->area, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    m->used = m->area;
    m->nregions = 0;
}

/* The lowest byte of new memory. NULL: too much. */
static region *lend(struct machine *m, size_t bytes, size_t alignment, enum use use, size_t index)
{
    const size_t pages = (bytes + alignment - 1 + PAGE - 1) / PAGE * PAGE;
    pthread_mutex_lock(&m->lock);
    region *r = NULL;
    if (m->nregions < REGIONS && bytes < AREA && m->used + 2 * GUARD + pages < m->area + AREA) {
        r = &m->regions[m->nregions++];
        *r = (region){ .begin = m->used + GUARD, .end = m->used + GUARD + (bytes ? pages : 0), .bytes = bytes, .use = use, .index = index };
        m->used = r->begin + pages + GUARD;
        if (bytes && mprotect(as_pointer(r->begin), r->end - r->begin, PROT_READ | PROT_WRITE)) {
            m->nregions--;
            r = NULL;
        }
    }
    pthread_mutex_unlock(&m->lock);
    if (!r)
        return NULL;
    r->data = m->call->end == CHECK_AT_END ? (r->end - bytes) / alignment * alignment : r->begin;
    r->first = r->data;
    memset(as_pointer(r->begin), GAP, r->end - r->begin);
    return r;
}

/* ---- The host ---- */

static made_tensor *new_header(struct machine *m, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides)
{
    made_tensor *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    memcpy(t->dims, shape, sizeof *shape * (size_t)ndim);
    memcpy(t->dims + DV_MAX_NDIM, strides, sizeof *strides * (size_t)ndim);
    t->t = (dv_tensor){ .device = device, .ndim = ndim, .dtype = dtype, .shape = t->dims, .strides = t->dims + DV_MAX_NDIM };
    t->index = index;
    t->next = m->made;
    m->made = t;
    return t;
}

static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    struct machine *m = &machine;
    int64_t last = 0, n = 1;
    (void)host;
    for (int32_t i = 0; i < ndim; i++) {
        last += (shape[i] - 1) * strides[i];
        n *= shape[i];
    }
    const int64_t bytes = n ? dv_dtype_bytes(dtype, last + 1) : 0;
    made_tensor *t = new_header(m, index, dtype, device, ndim, shape, strides);
    const size_t alignment = dtype.bits >= 8 ? dtype.bits / 8u : 1;
    region *r = t ? lend(m, (size_t)bytes, alignment, index < 0 ? TEMPORARY : RESULT, (size_t)index) : NULL;
    if (!r)
        return dv_fail(DV_ENOMEM, "out of memory: %lld bytes", (long long)bytes);
    memset(as_pointer(r->data), m->call->poison, r->bytes);
    t->t.data = as_pointer(r->data);
    t->as_made = t->t;
    *out = &t->t;
    return DV_OK;
}

static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape, const int64_t *strides,
    int64_t offset, dv_tensor **out)
{
    (void)host;
    made_tensor *t = new_header(&machine, index, base->dtype, base->device, ndim, shape, strides);
    if (!t)
        return dv_fail(DV_ENOMEM, "out of memory");
    t->t.data = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    t->as_made = t->t;
    t->view = true;
    *out = &t->t;
    return DV_OK;
}

static void free_tensor(const dv_host *host, dv_tensor *t) /* with the next call */
{
    (void)host;
    (void)t;
}

static void *lend_to_kernel(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)host;
    const enum use as = use == DV_MEMORY_WORKSPACE ? WORKSPACE : use == DV_MEMORY_KERNEL ? KERNEL : STAND_IN;
    region *r = lend(&machine, bytes, alignment < PAGE ? alignment : PAGE, as, (size_t)slot);
    if (!r)
        return NULL;
    memset(as_pointer(r->data), machine.call->poison, r->bytes);
    return as_pointer(r->data);
}

static void take_back(const dv_host *host, void *p) /* with the next call */
{
    (void)host;
    (void)p;
}

static void before_kernel(const dv_host *host)
{
    (void)host;
    machine.call->kernel_ran = true;
    check_heap_begin(machine.call->end, machine.call->poison);
}

static void after_kernel(const dv_host *host)
{
    (void)host;
    check_heap_end();
}

/* ---- Calls ---- */

/* What was last written into the memory of tensor i: the same case is run several times, and drawing its elements takes the longest. */
static struct contents { check_tensor of; uint64_t seed; unsigned char *bytes; size_t size; } contents[CHECK_TENSORS];

static void fill(struct machine *m, size_t i, const region *r)
{
    struct contents *k = &contents[i];
    const check_tensor *t = &m->c->tensors[i];
    if (k->bytes && k->seed == m->c->seed + i && k->size == r->bytes && !memcmp(&k->of, t, sizeof *t)) {
        memcpy(as_pointer(r->data), k->bytes, r->bytes);
        return;
    }
    check_fill_tensor(t, m->c->seed + i, as_pointer(r->first), m->values.strides[i]);
    free(k->bytes);
    *k = (struct contents){ .of = *t, .seed = m->c->seed + i, .bytes = malloc(r->bytes + 1), .size = r->bytes };
    if (k->bytes)
        memcpy(k->bytes, as_pointer(r->data), r->bytes);
}

/* True: done. */
static bool make_argument(struct machine *m, size_t i)
{
    const check_tensor *t = &m->c->tensors[i];
    const bool written = m->call->op->slots[check_tensor_argument(m->c, i)].flags & DV_SLOT_WRITES;
    int64_t low, high, *strides = m->values.strides[i];
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    if (!t->present)
        return true;
    check_strides(t, strides, &low, &high);
    region *r = lend(m, (size_t)((high - low + 1) * size), (size_t)(t->dtype.code == 5 ? size / 2 : size), ARGUMENT, i);
    if (!r)
        return false;
    r->first = r->data + (uintptr_t)(-low * size);
    m->values.tensors[i].data = as_pointer(r->first);
    fill(m, i, r);
    return written || !r->bytes || !mprotect(as_pointer(r->begin), r->end - r->begin, PROT_READ);
}

void check_call_run(check_call *call, const check_case *c)
{
    struct machine *m = &machine;
    const int32_t row = call->row ? call->row->index : 0;
    m->call = call;
    m->c = c;
    call->kernel_ran = call->not_this_row = false;
    for (size_t r = 0; r < CHECK_RESULTS; r++)
        call->results[r] = dv_default();
    call->status = DV_ENOMEM;
    if (!reserve(m))
        return;
    reset(m);
    check_values_make(&m->values, c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++)
        if (!make_argument(m, i))
            return;
    m->host = (dv_host){ .size = sizeof m->host, .flags = call->flags, .name = "dovetail check", .new_tensor = new_tensor,
        .free_tensor = free_tensor, .new_view = new_view, .before_kernel = before_kernel, .after_kernel = after_kernel,
        .alloc = lend_to_kernel, .free = take_back, .parallel_for = call->parallel_for, .row = row };
    call->status = dv_call(call->op->op, m->values.values, c->nargs, call->results, call->op->nresults, &m->host);
    call->not_this_row = call->status == DV_ENOKERNEL && !call->kernel_ran && row;
}

const dv_tensor *check_call_tensors(void) { return machine.values.tensors; }

const dv_tensor *check_call_tensor(size_t i) { return &machine.values.tensors[i]; }

const dv_tensor *check_call_result(const check_call *call, size_t r, const dv_tensor **made)
{
    const dv_value *v = &call->results[r];
    for (const made_tensor *t = machine.made; t && v->type == DV_VALUE_TENSOR; t = t->next)
        if (v->as.tensor == &t->t && !t->view) {
            if (made)
                *made = &t->as_made;
            return &t->t;
        }
    return NULL;
}

static const region *region_of(enum use use, size_t index)
{
    for (size_t i = 0; i < machine.nregions; i++)
        if (machine.regions[i].use == use && machine.regions[i].index == index)
            return &machine.regions[i];
    return NULL;
}

/* Mark the bytes of elements. */
static void mark(const check_tensor *t, const int64_t *strides, int64_t size, int64_t low, bool *is_element)
{
    int64_t index[CHECK_DIMS] = { 0 };
    for (int64_t n = check_numel(t); n-- > 0;) {
        int64_t at = -low;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        memset(is_element + at * size, true, (size_t)size);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_call_gaps_changed(const check_case *c, size_t tensor, int64_t *offset)
{
    const region *r = region_of(ARGUMENT, tensor);
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_DIMS], low, high;
    if (!r || !r->bytes || (t->layout != CHECK_SLICED && t->layout != CHECK_PADDED))
        return false;
    bool *is_element = calloc(r->bytes, 1), changed = false;
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    check_strides(t, strides, &low, &high);
    if (is_element)
        mark(t, strides, size, low, is_element);
    for (size_t i = 0; is_element && i < r->bytes && !changed; i++)
        if (!is_element[i] && ((const uint8_t *)as_pointer(r->data))[i] != GAP) {
            *offset = (int64_t)i + low * size;
            changed = true;
        }
    free(is_element);
    return changed;
}

static void describe(const region *r, check_place *out)
{
    const check_op *op = machine.call->op;
    const size_t slot = r->use == ARGUMENT ? check_tensor_argument(machine.c, r->index) : r->use == RESULT ? op->nargs + r->index : r->index;
    const bool list = slot < op->nargs && machine.c->args[slot].type == DV_VALUE_TENSORS && r->use == ARGUMENT;
    switch (r->use) {
    case WORKSPACE: snprintf(out->what, sizeof out->what, "the workspace"); return;
    case KERNEL: snprintf(out->what, sizeof out->what, "memory of dv_alloc()"); return;
    case TEMPORARY: snprintf(out->what, sizeof out->what, "a temporary of the native form"); return;
    case STAND_IN:
    case ARGUMENT:
    case RESULT: break;
    }
    const char *name = slot < op->nargs + op->nresults ? op->slots[slot].name : "";
    const char *kind = slot < op->nargs ? "argument" : "result";
    if (list)
        snprintf(out->what, sizeof out->what, "argument '%s[%zu]'", name, r->index - machine.c->args[slot].first);
    else if (*name)
        snprintf(out->what, sizeof out->what, "%s%s '%s'", r->use == STAND_IN ? "the contiguous copy of " : "", kind, name);
    else
        snprintf(out->what, sizeof out->what, "result %zu", slot - op->nargs);
    out->input = r->use == ARGUMENT && !(op->slots[slot].flags & DV_SLOT_WRITES);
}

bool check_call_slack_changed(char *what, size_t size)
{
    for (size_t i = 0; i < machine.nregions; i++) {
        const region *r = &machine.regions[i];
        if (!r->bytes || r->use == ARGUMENT)
            continue;
        for (uintptr_t p = r->begin; p < r->end; p++)
            if ((p < r->data || p >= r->data + r->bytes) && *(const uint8_t *)as_pointer(p) != GAP) {
                check_place place = { .what = "" };
                describe(r, &place);
                snprintf(what, size, "%s, which has %zu bytes: byte %lld", place.what, r->bytes, (long long)((int64_t)p - (int64_t)r->data));
                return true;
            }
    }
    return check_heap_slack_changed(what, size);
}

bool check_memory_find(const void *address, check_place *out)
{
    const uintptr_t p = (uintptr_t)address;
    const region *best = NULL;
    uintptr_t nearest = UINTPTR_MAX;
    memset(out, 0, sizeof *out);
    if (check_heap_find(address, out))
        return true;
    if (!machine.area || p < machine.area || p >= machine.area + AREA || !machine.call)
        return false;
    for (size_t i = 0; i < machine.nregions; i++) {
        const region *r = &machine.regions[i];
        const uintptr_t distance = p < r->data ? r->data - p : p < r->data + r->bytes ? 0 : p - (r->data + r->bytes) + 1;
        if (distance < nearest)
            nearest = distance, best = r;
    }
    if (!best)
        return false;
    describe(best, out);
    out->inside = nearest == 0;
    out->offset = (int64_t)p - (int64_t)best->first;
    out->low = (int64_t)best->data - (int64_t)best->first;
    out->high = out->low + (int64_t)best->bytes;
    return true;
}
