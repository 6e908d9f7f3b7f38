/* Memory of a call: overlap checks, and stand-ins (contiguous copies) of tensors whose layout a row does not accept. A written
 * tensor may not share bytes with another tensor of the call, unless the schema gives both one alias set. */
#include "call/memory.h"

#include "base/memory.h"
#include "call/fail.h"
#include "call/host.h"
#include "call/values.h"

/* ---- Gathering ---- */

static int fail_without_memory(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t)
{
    return dv__fail_element(
        c, DV_EINVAL, slot, element, "a tensor of %lld elements without memory: its data is NULL", (long long)dv_numel(t));
}

bool dv__has_memory(const dv_tensor *t) { return t->data || t->device.type == DV_META || !dv_numel(t); }

int dv__check_memory(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t)
{
    return dv__has_memory(t) ? DV_OK : fail_without_memory(c, slot, element, t);
}

static int check_memory(const dv__call *c, size_t slot, int64_t element, const dv_tensor *t, const dv__span *span)
{
    if (t->data || span->begin == span->end || t->device.type == DV_META || c->infers)
        return DV_OK;
    return fail_without_memory(c, slot, element, t);
}

/* A tensor that the caller did not give as itself: of a list, or made by the host. */
static int gather_one(dv__call *c, size_t slot, int64_t element, const dv_tensor *t, dv__span *span)
{
    return dv__look_at(c, t, span) ? check_memory(c, slot, element, t, span) : dv__check_tensor(c, slot, element, t);
}

static int gather_list(dv__call *c, size_t slot)
{
    int status = DV_OK;
    dv__span unused;
    for (size_t k = 0; k < c->lists[slot].size && !status; k++)
        if (c->lists[slot].data[k])
            status = gather_one(c, slot, (int64_t)k, c->lists[slot].data[k], &unused);
    return status;
}

int dv__gather_args(dv__call *c)
{
    int status = DV_OK;
    for (size_t i = 0; i < c->plan->nargs && !status; i++) {
        const dv_value *v = &c->args[i];
        c->tensors[i] = NULL;
        if (v->type == DV_VALUE_TENSOR) {
            c->tensors[i] = v->as.tensor;
            status = check_memory(c, i, DV__WHOLE, v->as.tensor, &c->spans[i]);
        } else if (c->plan->slots[i].flags & DV__SLOT_TENSORS) {
            c->lists[i] = v->type == DV_VALUE_TENSORS ? v->as.tensors : (dv_tensors){ NULL, 0 };
            status = gather_list(c, i);
        }
    }
    return status;
}

int dv__gather_results(dv__call *c)
{
    int status = DV_OK;
    c->any_given = false;
    for (size_t r = 0; r < c->plan->nreturns && !status; r++) {
        const size_t slot = c->plan->nargs + r;
        const dv__result *out = &c->outs[r];
        c->tensors[slot] = out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_MADE ? out->tensor : NULL;
        switch (out->origin) {
        case DV__RESULT_GIVEN:
            c->any_given = true;
            status = check_memory(c, slot, DV__WHOLE, out->tensor, &c->spans[slot]);
            break;
        case DV__RESULT_MADE: status = gather_one(c, slot, DV__WHOLE, out->tensor, &c->spans[slot]); break;
        case DV__RESULT_PENDING:
            c->tensors[slot] = &out->header;
            c->any_given |= out->given != NULL;
            c->all_contiguous = false;
            break;
        case DV__RESULT_LIST:
        case DV__RESULT_MADE_LIST:
            c->lists[slot] = out->value.as.tensors;
            c->any_given |= out->origin == DV__RESULT_LIST;
            status = gather_list(c, slot);
            break;
        case DV__RESULT_ALIAS:
        case DV__RESULT_ABSENT:
        case DV__RESULT_SCALAR: break;
        }
    }
    return status;
}

/* ---- Overlaps ---- */

typedef struct item {
    const dv_tensor *t;
    dv__span span;
    size_t slot;
    int64_t element; /* of a list; DV__WHOLE */
    bool written;
} item;

static bool share_set(const dv__call *c, const item *a, const item *b)
{
    return a->slot != b->slot && a->slot < c->plan->nargs && b->slot < c->plan->nargs &&
        (c->plan->slots[a->slot].sets & c->plan->slots[b->slot].sets);
}

static bool overlap(const item *a, const item *b) { return dv__spans_meet(a->span, b->span) && dv_tensor_overlaps(a->t, b->t); }

static size_t count_tensors(const dv__call *c)
{
    const size_t nslots = c->plan->nargs + c->plan->nreturns;
    size_t n = nslots;
    for (size_t i = 0; i < nslots; i++)
        if (c->plan->slots[i].flags & DV__SLOT_TENSORS)
            n += i < c->plan->nargs || c->outs[i - c->plan->nargs].origin == DV__RESULT_LIST ? c->lists[i].size : 0;
    return n;
}

static size_t collect(const dv__call *c, item *items)
{
    const size_t nargs = c->plan->nargs, nslots = nargs + c->plan->nreturns;
    size_t n = 0;
    int64_t unused;
    for (size_t i = 0; i < nslots; i++) {
        const dv__result *out = i < nargs ? NULL : &c->outs[i - nargs];
        const bool list = (c->plan->slots[i].flags & DV__SLOT_TENSORS) && (!out || out->origin == DV__RESULT_LIST);
        const bool written = out ? out->origin != DV__RESULT_MADE : c->plan->slots[i].flags & DV__SLOT_WRITES;
        if (out && out->origin == DV__RESULT_PENDING) {
            if (out->given)
                items[n++] = (item){ out->given, c->spans[i], i, DV__WHOLE, true };
        } else if (list) {
            for (size_t k = 0; k < c->lists[i].size; k++) {
                dv__span span;
                if (c->lists[i].data[k] && dv__tensor_span(c->lists[i].data[k], &span, &unused))
                    items[n++] = (item){ c->lists[i].data[k], span, i, (int64_t)k, written };
            }
        } else if (c->tensors[i] && !(out && out->origin == DV__RESULT_MADE)) { /* a new tensor overlaps nothing */
            items[n++] = (item){ c->tensors[i], c->spans[i], i, DV__WHOLE, written };
        }
    }
    return n;
}

static int check_written(const dv__call *c, const item *items, size_t n, const item *w)
{
    char name[256];
    if (dv__tensor_is_read_only(w->t))
        return dv__fail_element(c, DV_EINVAL, w->slot, w->element, "would be written, but is read-only");
    if (!dv__span_is_contiguous(w->span) && dv_tensor_overlaps_itself(w->t))
        return dv__fail_element(
            c, DV_EALIAS, w->slot, w->element, "would be written, but overlaps itself: several of its numbers share memory");
    for (size_t i = 0; i < n; i++) {
        const item *o = &items[i];
        if (o == w || !overlap(w, o) || share_set(c, w, o))
            continue;
        return dv__fail_element(c, DV_EALIAS, w->slot, w->element,
            "would be written, but overlaps %s, and the schema declares no alias: %s",
            dv__slot_name(c, o->slot, o->element, name, sizeof name), c->op->schema->text);
    }
    return DV_OK;
}

bool dv__clearly_apart(const dv__call *c)
{
    const size_t nargs = c->plan->nargs, n = nargs + c->plan->nreturns;
    if (!c->all_contiguous || c->plan->has_lists)
        return false;
    for (size_t w = c->plan->writes ? 0 : nargs; w < n; w++) {
        if (!c->tensors[w] || (w < nargs && !(c->plan->slots[w].flags & DV__SLOT_WRITES)))
            continue;
        if (dv__tensor_is_read_only(c->tensors[w]))
            return false;
        for (size_t i = 0; i < n; i++)
            if (i != w && c->tensors[i] && dv__spans_meet(c->spans[w], c->spans[i]))
                return false;
    }
    return true;
}

int dv__check_overlaps(dv__call *c)
{
    if ((!c->plan->writes && !c->any_given) || dv__clearly_apart(c))
        return DV_OK;
    item few[32], *items = few;
    const size_t room = count_tensors(c);
    if (room > sizeof few / sizeof *few && !(items = dv__calloc(room, sizeof *items)))
        return DV_ENOMEM;
    const size_t n = collect(c, items);
    int status = DV_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (items[i].written)
            status = check_written(c, items, n, &items[i]);
    if (items != few)
        dv__free(items);
    return status;
}

/* ---- Stand-ins ---- */

static bool fits(const dv_tensor *t, dv__takes takes)
{
    if (takes.align_log2 && (uintptr_t)t->data & (((uintptr_t)1 << takes.align_log2) - 1))
        return false;
    if (takes.kind == DV__TAKES_STRIDED)
        return true;
    if (takes.kind == DV__TAKES_LAST_CONTIGUOUS && (!t->ndim || t->strides[t->ndim - 1] == 1 || t->shape[t->ndim - 1] <= 1))
        return true;
    return dv__contiguous(t->ndim, t->shape, t->strides);
}

/* promised: the alignment that the kernel's declaration asks for. Test hooks get no better, so that a read behind a copy faults.
 */
static int temp_memory(dv__call *c, size_t slot, const dv_tensor *t, size_t promised, int64_t *strides, dv__temp **out)
{
    const size_t align = promised > 64 ? promised : 64, element = (size_t)dv_dtype_bytes(t->dtype, 1);
    const size_t head = (sizeof(dv__temp) + 2 * sizeof(int64_t) * (size_t)t->ndim + align - 1) & ~(align - 1);
    const bool own = dv__host_memory(t->device.type), lent = own && dv__test_hooks(c->host) && c->host->test->alloc;
    const int64_t bytes = own ? dv_dtype_bytes(t->dtype, dv_numel(t)) : 0;
    dv__temp *temp = bytes < 0 ? NULL : dv__alloc_aligned(lent ? head : head + (size_t)bytes, align);
    if (!temp) {
        dv__fail_argument(c, DV_ENOMEM, slot, "out of memory: %lld bytes for a copy", (long long)bytes);
        return DV_ENOMEM;
    }
    memset(temp, 0, sizeof *temp);
    memcpy(temp->dims, t->shape, sizeof(int64_t) * (size_t)t->ndim);
    memcpy(temp->dims + t->ndim, strides, sizeof(int64_t) * (size_t)t->ndim);
    temp->t = *t;
    temp->t.shape = temp->dims;
    temp->t.strides = temp->dims + t->ndim;
    temp->t.data = (char *)temp + head;
    if (!own) {
        const int status = dv__new_tensor(c, -1, t->dtype, t->device, t->ndim, t->shape, strides, &temp->hosts);
        if (status) {
            dv__free_aligned(temp);
            return status;
        }
        temp->t.data = temp->hosts->data;
    }
    if (lent &&
        !(temp->t.data = temp->lent = c->host->test->alloc(
              c->host, DV_MEMORY_STAND_IN, (int)slot, (size_t)bytes, promised > element ? promised : element))) {
        dv__free_aligned(temp);
        dv__fail_argument(c, DV_ENOMEM, slot, "out of memory: %lld bytes for a copy", (long long)bytes);
        return DV_ENOMEM;
    }
    *out = temp;
    return DV_OK;
}

static int stand_in(
    dv__call *c, size_t slot, const dv_tensor *t, dv__takes takes, bool copy_in, bool copy_back, const dv_tensor **out)
{
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(t->dtype, t->ndim, t->shape, strides);
    if (status) /* an expanded tensor can be larger than memory */
        return status;
    dv__temp *temp;
    const size_t promised = takes.align_log2 ? (size_t)1 << takes.align_log2 : 1;
    if ((status = temp_memory(c, slot, t, promised, strides, &temp)))
        return status;
    assert(slot < c->plan->nargs + c->plan->nreturns && (copy_in || copy_back));
    temp->original = t;
    temp->copy_in = copy_in;
    temp->copy_back = copy_back;
    temp->next = c->temps;
    c->temps = temp;
    *out = &temp->t;
    return DV_OK;
}

/* Elements of a list: the array of pointers is replaced too. */
static int stand_in_list(dv__call *c, size_t slot, dv__takes takes, bool copy_in, bool copy_back)
{
    const dv_tensors list = c->lists[slot];
    const dv_tensor **replaced = NULL;
    for (size_t k = 0; k < list.size; k++) {
        if (!list.data[k] || fits(list.data[k], takes))
            continue;
        if (!replaced) {
            if (!(replaced = DV__ARENA_ARRAY(&c->arena, const dv_tensor *, list.size)))
                return DV_ENOMEM;
            memcpy(replaced, list.data, list.size * sizeof *replaced);
            c->lists[slot].data = replaced;
        }
        const int status = stand_in(c, slot, list.data[k], takes, copy_in, copy_back, &replaced[k]);
        if (status)
            return status;
    }
    return DV_OK;
}

int dv__make_temps(dv__call *c, const dv__row *row)
{
    if (c->all_contiguous && row->takes_all_contiguous)
        return DV_OK;
    const size_t nargs = c->plan->nargs, nslots = nargs + c->plan->nreturns;
    for (size_t i = 0; i < nslots; i++) {
        const dv__result *out = i < nargs ? NULL : &c->outs[i - nargs];
        const bool made = out && !out->view; /* a view shares existing memory: the kernel does not write it */
        const bool written = made || (c->plan->slots[i].flags & DV__SLOT_WRITES);
        int status = DV_OK;
        if (out && (out->origin == DV__RESULT_PENDING || out->origin == DV__RESULT_ALIAS))
            continue;
        if ((c->plan->slots[i].flags & DV__SLOT_TENSORS) &&
            (!out || out->origin == DV__RESULT_LIST || out->origin == DV__RESULT_MADE_LIST))
            status = stand_in_list(c, i, row->takes[i], !made, written);
        else if (c->tensors[i] && !fits(c->tensors[i], row->takes[i]))
            status = stand_in(c, i, c->tensors[i], row->takes[i], !made, written, &c->tensors[i]);
        if (status)
            return status;
    }
    return DV_OK;
}

int dv__copy_in(dv__call *c)
{
    for (const dv__temp *t = c->temps; t; t = t->next)
        if (t->copy_in) {
            const int status = dv__host_copy(c->host, &t->t, t->original);
            if (status)
                return status;
        }
    return DV_OK;
}

int dv__copy_back(dv__call *c)
{
    for (const dv__temp *t = c->temps; t; t = t->next)
        if (t->copy_back) {
            const int status = dv__host_copy(c->host, t->original, &t->t);
            if (status)
                return status;
        }
    return DV_OK;
}

void dv__free_temps(dv__call *c)
{
    for (dv__temp *t = c->temps, *next; t; t = next) {
        next = t->next;
        if (t->hosts)
            dv__free_tensor(c, t->hosts);
        if (t->lent)
            c->host->test->free(c->host, t->lent);
        dv__free_aligned(t);
    }
    c->temps = NULL;
}
