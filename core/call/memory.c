/* Memory of a call: overlap checks, and staging copies (contiguous copies) of tensors whose layout a kernel does not accept. A
 * written tensor may not share bytes with another tensor of the call, unless the schema gives both one alias set. */
#include "call/memory.h"

#include "base/memory.h"
#include "call/call_error.h"
#include "call/host_tensor.h"
#include "call/bind.h"

/* ---- Gathering ---- */

static int gather_fail_null_data(const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t)
{
    return dv__fail_slot_element(
        c, DV_EINVAL, slot, element_index, "a tensor of %lld elements without memory: its data is NULL", (long long)dv_numel(t));
}

bool dv__has_memory(const dv_tensor *t) { return t->data || t->device.type == DV_META || !dv_numel(t); }

int dv__check_has_memory(const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t)
{
    return dv__has_memory(t) ? DV_OK : gather_fail_null_data(c, slot, element_index, t);
}

static int gather_check_tensor_has_memory(
    const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t, const dv__span *span)
{
    if (t->data || span->begin == span->end || t->device.type == DV_META || c->shapes_only)
        return DV_OK;
    return gather_fail_null_data(c, slot, element_index, t);
}

/* Records the span of a tensor that dv__bind_values() did not see: an element of a list, or a tensor that the host made.
 * Fails if the tensor is invalid or has elements but no memory. */
static int gather_new_tensor(dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t, dv__span *span)
{
    return dv__try_record_tensor_span(c, t, span) ? gather_check_tensor_has_memory(c, slot, element_index, t, span)
                                                  : dv__check_slot_tensor(c, slot, element_index, t);
}

static int gather_list(dv__call *c, size_t slot)
{
    int status = DV_OK;
    dv__span unused;
    for (size_t k = 0; k < c->lists[slot].size && !status; k++)
        if (c->lists[slot].data[k])
            status = gather_new_tensor(c, slot, (int64_t)k, c->lists[slot].data[k], &unused);
    return status;
}

int dv__gather_args(dv__call *c)
{
    int status = DV_OK;
    for (size_t i = 0; i < c->signature->nargs && !status; i++) {
        const dv_value *v = &c->args[i];
        c->tensors[i] = NULL;
        if (v->type == DV_VALUE_TENSOR) {
            c->tensors[i] = v->as.tensor;
            status = gather_check_tensor_has_memory(c, i, DV__NO_ELEMENT, v->as.tensor, &c->spans[i]);
        } else if (c->signature->slots[i].flags & DV__SLOT_TENSORS) {
            c->lists[i] = v->type == DV_VALUE_TENSORS ? v->as.tensors : (dv_tensors){ NULL, 0 };
            status = gather_list(c, i);
        }
    }
    return status;
}

int dv__gather_results(dv__call *c)
{
    int status = DV_OK;
    c->has_given_result = false;
    for (size_t r = 0; r < c->signature->nreturns && !status; r++) {
        const size_t slot = c->signature->nargs + r;
        const dv__result *out = &c->outs[r];
        c->tensors[slot] = out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_ALLOCATED ? out->tensor : NULL;
        switch (out->origin) {
        case DV__RESULT_GIVEN:
            c->has_given_result = true;
            status = gather_check_tensor_has_memory(c, slot, DV__NO_ELEMENT, out->tensor, &c->spans[slot]);
            break;
        case DV__RESULT_ALLOCATED: status = gather_new_tensor(c, slot, DV__NO_ELEMENT, out->tensor, &c->spans[slot]); break;
        case DV__RESULT_PENDING:
            c->tensors[slot] = &out->descriptor;
            c->has_given_result |= out->passed != NULL;
            c->all_contiguous = false;
            break;
        case DV__RESULT_LIST:
        case DV__RESULT_ALLOCATED_LIST:
            c->lists[slot] = out->value.as.tensors;
            c->has_given_result |= out->origin == DV__RESULT_LIST;
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

typedef struct overlap_item {
    const dv_tensor *t;
    dv__span span;
    size_t slot;
    int64_t element; /* index in a list; DV__NO_ELEMENT: the slot is one tensor */
    bool written;
} overlap_item;

static bool overlap_slots_share_alias_set(const dv__call *c, const overlap_item *a, const overlap_item *b)
{
    return a->slot != b->slot && a->slot < c->signature->nargs && b->slot < c->signature->nargs &&
        (c->signature->slots[a->slot].alias_sets & c->signature->slots[b->slot].alias_sets);
}

static bool overlap_items_share_memory(const overlap_item *a, const overlap_item *b)
{
    return dv__spans_overlap(a->span, b->span) && dv_tensor_overlaps(a->t, b->t);
}

/* Returns an upper bound of the number of tensors that overlap_collect_and_count_tensors() collects. */
static size_t overlap_count_tensors_at_most(const dv__call *c)
{
    const size_t nslots = c->signature->nargs + c->signature->nreturns;
    size_t n = nslots;
    for (size_t i = 0; i < nslots; i++)
        if (c->signature->slots[i].flags & DV__SLOT_TENSORS)
            n += i < c->signature->nargs || c->outs[i - c->signature->nargs].origin == DV__RESULT_LIST ? c->lists[i].size : 0;
    return n;
}

/* Collects the tensors of a call that may overlap; new results are left out. Returns their number. */
static size_t overlap_collect_and_count_tensors(const dv__call *c, overlap_item *items)
{
    const size_t nargs = c->signature->nargs, nslots = nargs + c->signature->nreturns;
    size_t n = 0;
    int64_t unused;
    for (size_t i = 0; i < nslots; i++) {
        const dv__result *out = i < nargs ? NULL : &c->outs[i - nargs];
        const bool list = (c->signature->slots[i].flags & DV__SLOT_TENSORS) && (!out || out->origin == DV__RESULT_LIST);
        const bool written = out ? out->origin != DV__RESULT_ALLOCATED : c->signature->slots[i].flags & DV__SLOT_WRITES;
        if (out && out->origin == DV__RESULT_PENDING) {
            if (out->passed)
                items[n++] = (overlap_item){ out->passed, c->spans[i], i, DV__NO_ELEMENT, true };
        } else if (list) {
            for (size_t k = 0; k < c->lists[i].size; k++) {
                dv__span span;
                if (c->lists[i].data[k] && dv__tensor_try_find_span(c->lists[i].data[k], &span, &unused))
                    items[n++] = (overlap_item){ c->lists[i].data[k], span, i, (int64_t)k, written };
            }
        } else if (c->tensors[i] && !(out && out->origin == DV__RESULT_ALLOCATED)) { /* a new tensor overlaps nothing */
            items[n++] = (overlap_item){ c->tensors[i], c->spans[i], i, DV__NO_ELEMENT, written };
        }
    }
    return n;
}

/* Fails if a written tensor is read-only, overlaps itself, or overlaps another item outside its alias set. */
static int overlap_check_written_item(const dv__call *c, const overlap_item *items, size_t nitems, const overlap_item *written)
{
    char name[256];
    if (dv__tensor_is_read_only(written->t))
        return dv__fail_slot_element(c, DV_EINVAL, written->slot, written->element, "would be written, but is read-only");
    if (!dv__span_is_contiguous(written->span) && dv_tensor_overlaps_itself(written->t))
        return dv__fail_slot_element(c, DV_EALIAS, written->slot, written->element,
            "would be written, but overlaps itself: several of its numbers share memory");
    for (size_t i = 0; i < nitems; i++) {
        const overlap_item *o = &items[i];
        if (o == written || !overlap_items_share_memory(written, o) || overlap_slots_share_alias_set(c, written, o))
            continue;
        return dv__fail_slot_element(c, DV_EALIAS, written->slot, written->element,
            "would be written, but overlaps %s, and the schema declares no alias: %s",
            dv__print_slot_name(c, o->slot, o->element, name, sizeof name), c->op->schema->text);
    }
    return DV_OK;
}

bool dv__spans_prove_disjoint(const dv__call *c)
{
    const size_t nargs = c->signature->nargs, n = nargs + c->signature->nreturns;
    if (!c->all_contiguous || c->signature->has_tensor_lists)
        return false;
    for (size_t w = c->signature->writes_arguments ? 0 : nargs; w < n; w++) {
        if (!c->tensors[w] || (w < nargs && !(c->signature->slots[w].flags & DV__SLOT_WRITES)))
            continue;
        if (dv__tensor_is_read_only(c->tensors[w]))
            return false;
        for (size_t i = 0; i < n; i++)
            if (i != w && c->tensors[i] && dv__spans_overlap(c->spans[w], c->spans[i]))
                return false;
    }
    return true;
}

int dv__check_overlaps(dv__call *c)
{
    if ((!c->signature->writes_arguments && !c->has_given_result) || dv__spans_prove_disjoint(c))
        return DV_OK;
    overlap_item stack_items[32], *items = stack_items;
    const size_t capacity = overlap_count_tensors_at_most(c);
    if (capacity > sizeof stack_items / sizeof *stack_items && !(items = dv__calloc(capacity, sizeof *items)))
        return DV_ENOMEM;
    const size_t n = overlap_collect_and_count_tensors(c, items);
    int status = DV_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (items[i].written)
            status = overlap_check_written_item(c, items, n, &items[i]);
    if (items != stack_items)
        dv__free(items);
    return status;
}

/* ---- Staging copies ---- */

static bool staging_has_accepted_layout(const dv_tensor *t, dv__accepted_layout accepted)
{
    if (accepted.align_log2 && (uintptr_t)t->data & (((uintptr_t)1 << accepted.align_log2) - 1))
        return false;
    if (accepted.kind == DV__ACCEPT_STRIDED)
        return true;
    if (accepted.kind == DV__ACCEPT_LAST_CONTIGUOUS && (!t->ndim || t->strides[t->ndim - 1] == 1 || t->shape[t->ndim - 1] <= 1))
        return true;
    return dv__is_contiguous(t->ndim, t->shape, t->strides);
}

/* Allocates a staging copy of t. declared_alignment: the alignment in bytes that the kernel's declaration requires. Test hooks
 * get no larger alignment, so that a read past the copy's end faults. is_deferred: the copy gets no memory yet. Returns a
 * status. */
static int staging_alloc(dv__call *c, size_t slot, const dv_tensor *t, size_t declared_alignment, int64_t *contiguous_strides,
    bool is_deferred, dv__staging_copy **out)
{
    const size_t align = declared_alignment > 64 ? declared_alignment : 64, element = (size_t)dv_dtype_bytes(t->dtype, 1);
    const size_t header_size = (sizeof(dv__staging_copy) + 2 * sizeof(int64_t) * (size_t)t->ndim + align - 1) & ~(align - 1);
    const bool is_cpu = dv__is_cpu_memory(t->device.type),
               use_test_alloc = is_cpu && dv__test_hooks(c->host) && c->host->test->alloc;
    const int64_t bytes = is_cpu && !is_deferred ? dv_dtype_bytes(t->dtype, dv_numel(t)) : 0;
    dv__staging_copy *temp = bytes < 0 ? NULL
                                       : dv__alloc_aligned(use_test_alloc ? header_size : header_size + (size_t)bytes, align);
    if (!temp) {
        dv__fail_slot(c, DV_ENOMEM, slot, "out of memory: %lld bytes for a copy", (long long)bytes);
        return DV_ENOMEM;
    }
    memset(temp, 0, sizeof *temp);
    memcpy(temp->dims, t->shape, sizeof(int64_t) * (size_t)t->ndim);
    memcpy(temp->dims + t->ndim, contiguous_strides, sizeof(int64_t) * (size_t)t->ndim);
    temp->copy = *t;
    temp->copy.shape = temp->dims;
    temp->copy.strides = temp->dims + t->ndim;
    temp->copy.data = is_deferred ? NULL : (char *)temp + header_size;
    temp->is_deferred = is_deferred;
    if (!is_cpu) {
        const int status = dv__new_result_tensor(
            c, -1, t->dtype, t->device, t->ndim, t->shape, contiguous_strides, &temp->host_tensor);
        if (status) {
            dv__free_aligned(temp);
            return status;
        }
        temp->copy.data = temp->host_tensor->data;
    }
    if (use_test_alloc &&
        !(temp->copy.data = temp->test_memory = c->host->test->alloc(c->host, DV_MEMORY_STAGING_COPY, (int)slot, (size_t)bytes,
              declared_alignment > element ? declared_alignment : element))) {
        dv__free_aligned(temp);
        dv__fail_slot(c, DV_ENOMEM, slot, "out of memory: %lld bytes for a copy", (long long)bytes);
        return DV_ENOMEM;
    }
    *out = temp;
    return DV_OK;
}

/* Adds a contiguous staging copy of the tensor t, which the kernel gets in its place. copy_in, copy_back: when elements are
 * copied. may_defer: slices may copy their own parts instead. Returns a status. */
static int staging_add_tensor_copy(dv__call *c, size_t slot, const dv_tensor *t, dv__accepted_layout accepted, bool copy_in,
    bool copy_back, bool may_defer, const dv_tensor **out)
{
    int64_t strides[DV_MAX_NDIM];
    int status = dv__shape_check(t->dtype, t->ndim, t->shape, strides);
    if (status) /* a contiguous copy of an expanded tensor can be larger than memory */
        return status;
    dv__staging_copy *temp;
    const size_t declared_alignment = accepted.align_log2 ? (size_t)1 << accepted.align_log2 : 1;
    const bool is_deferred = may_defer && !copy_back && declared_alignment == 1 && dv__is_cpu_memory(t->device.type);
    if ((status = staging_alloc(c, slot, t, declared_alignment, strides, is_deferred, &temp)))
        return status;
    assert(slot < c->signature->nargs + c->signature->nreturns && (copy_in || copy_back));
    temp->original = t;
    temp->copy_in = copy_in;
    temp->copy_back = copy_back;
    temp->next = c->staging_copies;
    c->staging_copies = temp;
    *out = &temp->copy;
    return DV_OK;
}

/* Makes staging copies for the elements of a list whose layout is not accepted, and replaces the array of pointers in
 * c->lists. Returns a status. */
static int staging_add_list_copies(dv__call *c, size_t slot, dv__accepted_layout accepted, bool copy_in, bool copy_back)
{
    const dv_tensors list = c->lists[slot];
    const dv_tensor **replaced = NULL;
    for (size_t k = 0; k < list.size; k++) {
        if (!list.data[k] || staging_has_accepted_layout(list.data[k], accepted))
            continue;
        if (!replaced) {
            if (!(replaced = DV__ARENA_ARRAY(&c->arena, const dv_tensor *, list.size)))
                return DV_ENOMEM;
            memcpy(replaced, list.data, list.size * sizeof *replaced);
            c->lists[slot].data = replaced;
        }
        const int status = staging_add_tensor_copy(c, slot, list.data[k], accepted, copy_in, copy_back, false, &replaced[k]);
        if (status)
            return status;
    }
    return DV_OK;
}

int dv__staging_make_copies(dv__call *c, const dv__kernel *kernel)
{
    if (c->all_contiguous && kernel->takes_all_contiguous)
        return DV_OK;
    const size_t nargs = c->signature->nargs, nslots = nargs + c->signature->nreturns;
    const dv_test_hooks *test = dv__test_hooks(c->host);
    /* A call that writes an argument reads all inputs before: a slice might write what a later one reads. */
    const bool may_defer = kernel->split > 0 && !c->signature->writes_arguments && !(test && test->alloc);
    for (size_t i = 0; i < nslots; i++) {
        const dv__result *out = i < nargs ? NULL : &c->outs[i - nargs];
        const bool is_new = out && !out->is_view; /* a view shares existing memory: the kernel does not write it */
        const bool written = is_new || (c->signature->slots[i].flags & DV__SLOT_WRITES);
        int status = DV_OK;
        if (out && (out->origin == DV__RESULT_PENDING || out->origin == DV__RESULT_ALIAS))
            continue;
        if ((c->signature->slots[i].flags & DV__SLOT_TENSORS) &&
            (!out || out->origin == DV__RESULT_LIST || out->origin == DV__RESULT_ALLOCATED_LIST))
            status = staging_add_list_copies(c, i, kernel->takes[i], !is_new, written);
        else if (c->tensors[i] && !staging_has_accepted_layout(c->tensors[i], kernel->takes[i]))
            status = staging_add_tensor_copy(c, i, c->tensors[i], kernel->takes[i], !is_new, written, may_defer, &c->tensors[i]);
        if (status)
            return status;
    }
    return DV_OK;
}

int dv__staging_copy_in(dv__call *c)
{
    for (const dv__staging_copy *t = c->staging_copies; t; t = t->next)
        if (t->copy_in && !t->is_deferred) {
            const int status = dv__host_copy(c->host, &t->copy, t->original);
            if (status)
                return status;
        }
    return DV_OK;
}

int dv__staging_fill_deferred(dv__call *c)
{
    for (dv__staging_copy *t = c->staging_copies; t; t = t->next) {
        if (!t->is_deferred || t->is_cut)
            continue;
        const int64_t bytes = dv_dtype_bytes(t->copy.dtype, dv_numel(&t->copy));
        t->copy.data = t->late_memory = bytes < 0 ? NULL : dv__alloc_aligned((size_t)bytes, 64);
        if (!t->copy.data)
            return dv__call_record_error(c, DV_ENOMEM, "out of memory: %lld bytes for a copy", (long long)bytes);
        t->is_deferred = false;
        dv__copy_elements(&t->copy, t->original);
    }
    return DV_OK;
}

const dv_tensor *dv__staging_find_original_and_mark_cut(dv__call *c, const dv_tensor *copy)
{
    for (dv__staging_copy *t = c->staging_copies; t; t = t->next)
        if (&t->copy == copy && t->is_deferred) {
            t->is_cut = true;
            return t->original;
        }
    return NULL;
}

int dv__staging_copy_back(dv__call *c)
{
    for (const dv__staging_copy *t = c->staging_copies; t; t = t->next)
        if (t->copy_back) {
            const int status = dv__host_copy(c->host, t->original, &t->copy);
            if (status)
                return status;
        }
    return DV_OK;
}

void dv__staging_free_copies(dv__call *c)
{
    for (dv__staging_copy *t = c->staging_copies, *next; t; t = next) {
        next = t->next;
        if (t->host_tensor)
            dv__free_host_tensor(c, t->host_tensor);
        if (t->test_memory)
            c->host->test->free(c->host, t->test_memory);
        if (t->late_memory)
            dv__free_aligned(t->late_memory);
        dv__free_aligned(t);
    }
    c->staging_copies = NULL;
}
