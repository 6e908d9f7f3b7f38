/* What lies at an address of guarded memory, and what a kernel has written beside it. */
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

/* Sets is_element for each byte of a tensor's memory that belongs to an element. low: offset of the lowest element in elements,
 * of `size` bytes each, also if an element has fewer bits than a byte. */
static void guarded_location_mark_element_bytes(
    const check_tensor *t, const int64_t *strides, int64_t size, int64_t low, bool *is_element)
{
    int64_t index[CHECK_MAX_DIMS] = { 0 };
    for (int64_t n = check_tensor_numel(t); n-- > 0;) {
        const int64_t bits = t->dtype.bits * t->dtype.lanes;
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * strides[d];
        at = check_is_sub_byte_dtype(t->dtype) ? (at * bits - (at < 0 ? 7 : 0)) / 8 : at * size; /* rounded down */
        memset(is_element + at - low * size, true, (size_t)size);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
}

bool check_has_write_between_elements(const check_case *c, size_t tensor, int64_t *offset)
{
    const guarded_region *r = check_guarded_find_region(USE_ARGUMENT, tensor);
    const check_tensor *t = &c->tensors[tensor];
    int64_t strides[CHECK_MAX_DIMS], low, high;
    if (!r || !r->bytes || (t->layout != CHECK_LAYOUT_SLICED && t->layout != CHECK_LAYOUT_PADDED))
        return false;
    bool *is_element = calloc(r->bytes, 1), changed = false;
    const int64_t size = dv_dtype_bytes(t->dtype, 1);
    check_compute_strides(t, strides, &low, &high);
    if (is_element)
        guarded_location_mark_element_bytes(t, strides, size, low, is_element);
    for (size_t i = 0; is_element && i < r->bytes && !changed; i++)
        if (!is_element[i] && ((const uint8_t *)check_guarded_as_pointer(r->data))[i] != GAP_BYTE) {
            *offset = (int64_t)i + low * size;
            changed = true;
        }
    free(is_element);
    return changed;
}

/* Sets the name of a region's memory ("argument 'x'", "the workspace") and whether it is read-only, metadata or in a list result.
 */
static void guarded_location_describe_region(const guarded_region *r, check_memory_location *out)
{
    const check_op *op = check_guarded_host.call->op;
    const bool header = r->use == USE_SHAPE || r->use == USE_STRIDES,
               of_result = r->use == USE_RESULT || (header && r->index >= FIRST_RESULT_INDEX);
    const bool of_tensor = r->use == USE_ARGUMENT || (header && !of_result);
    const size_t slot = of_tensor ? check_find_tensor_slot(check_guarded_host.c, r->index)
        : of_result               ? op->nargs + r->index - (header ? FIRST_RESULT_INDEX : 0)
                                  : r->index;
    const bool list = slot < op->nargs && check_guarded_host.c->args[slot].type == DV_VALUE_TENSORS && of_tensor;
    const char *part = r->use == USE_SHAPE ? "the sizes of "
        : r->use == USE_STRIDES            ? "the strides of "
        : r->use == USE_STAGING_COPY       ? "the contiguous copy of "
        : r->use == USE_LIST_DATA          ? "the list or string of "
                                           : "";
    out->is_metadata = header || r->use == USE_LIST_DATA;
    out->is_in_result_list = r->use == USE_RESULT && op->slots[slot].type == DV_FIELD_TENSORS;
    switch (r->use) {
    case USE_WORKSPACE: snprintf(out->description, sizeof out->description, "the workspace"); return;
    case USE_KERNEL: snprintf(out->description, sizeof out->description, "memory of dv_alloc()"); return;
    case USE_SCRATCH:
        snprintf(out->description, sizeof out->description, "the scratch of a chunk%s", r->is_freed ? " that has returned" : "");
        return;
    case USE_TEMPORARY: snprintf(out->description, sizeof out->description, "a temporary of the decomposition"); return;
    case USE_STAGING_COPY:
    case USE_ARGUMENT:
    case USE_RESULT:
    case USE_SHAPE:
    case USE_STRIDES:
    case USE_LIST_DATA: break;
    }
    const char *name = slot < op->nargs + op->nresults ? op->slots[slot].name : "";
    const char *kind = slot < op->nargs ? "argument" : "result";
    if (list)
        snprintf(out->description, sizeof out->description, "%sargument '%s[%zu]'", part, name,
            r->index - check_guarded_host.c->args[slot].first_tensor);
    else if (*name)
        snprintf(out->description, sizeof out->description, "%s%s '%s'", part, kind, name);
    else
        snprintf(out->description, sizeof out->description, "%sresult %zu", part, slot - op->nargs);
    out->is_readonly = out->is_metadata || (r->use == USE_ARGUMENT && !(op->slots[slot].flags & DV_SLOT_WRITES));
}

bool check_has_write_next_to_memory(char *description, size_t size)
{
    for (size_t i = 0; i < check_guarded_host.nregions; i++) {
        const guarded_region *r = &check_guarded_host.regions[i];
        const uint8_t *p;
        if (!r->bytes || r->sparse_margin || r->use == USE_ARGUMENT || r->use >= USE_SHAPE || r->is_freed)
            continue;
        if (check_guarded_has_changed_gap_byte(r, &p)) {
            check_memory_location location = { .description = "" };
            guarded_location_describe_region(r, &location);
            snprintf(description, size, "%s, which has %zu bytes: byte %lld%s", location.description, r->bytes,
                (long long)((int64_t)(uintptr_t)p - (int64_t)r->data),
                check_get_earlier_tensor_note(check_guarded_was_earlier_tensor_address(r, (uintptr_t)p)));
            return true;
        }
    }
    return check_heap_has_write_next_to_block(description, size);
}

/* Returns the size in bytes of an element of an argument's region. */
static uintptr_t guarded_location_get_element_size(const guarded_region *argument)
{
    return (uintptr_t)dv_dtype_bytes(check_guarded_host.c->tensors[argument->index].dtype, 1);
}

bool check_is_in_kernel(void) { return check_guarded_host.in_kernel; }

bool check_has_empty_workspace(void)
{
    const check_json *workspace = check_guarded_host.call
        ? check_json_find_member(check_guarded_host.call->op->program, "workspace")
        : NULL;
    if (!workspace || workspace->kind == CHECK_JSON_NULL || !check_guarded_host.call->kernel_ran)
        return false;
    for (size_t i = 0; i < check_guarded_host.c->ntensors; i++)
        if (!check_guarded_host.c->tensors[i].present)
            return false;
    for (size_t i = 0; i < check_guarded_host.nregions; i++)
        if (check_guarded_host.regions[i].use == USE_WORKSPACE)
            return false;
    return true;
}

bool check_try_find_nearest_memory(const void *address, check_memory_location *out)
{
    const uintptr_t p = (uintptr_t)address;
    const guarded_region *best = NULL;
    uintptr_t nearest = UINTPTR_MAX;
    memset(out, 0, sizeof *out);
    if (check_heap_try_find_location(address, out))
        return true;
    bool ours = check_guarded_host.area && p >= check_guarded_host.area &&
        p < check_guarded_host.area + check_guarded_host.area_bytes;
    for (size_t i = 0; i < check_guarded_host.nregions && !ours; i++) {
        const guarded_region *r = &check_guarded_host.regions[i];
        ours = r->sparse_margin && p >= r->begin - r->sparse_margin && p < r->end + r->sparse_margin;
    }
    if (!ours || !check_guarded_host.call)
        return false;
    for (size_t i = 0; i < check_guarded_host.nregions; i++)
        for (int wrapped = 0; wrapped < 3; wrapped++) { /* a wrong index may have lost or gained 2^32 elements */
            const guarded_region *r = &check_guarded_host.regions[i];
            const uintptr_t by = wrapped && r->use == USE_ARGUMENT ? guarded_location_get_element_size(r) << 32 : 0;
            const uintptr_t at = wrapped == 1 ? p - by : p + by;
            const uintptr_t distance = at < r->data ? r->data - at : at < r->data + r->bytes ? 0 : at - (r->data + r->bytes) + 1;
            if (distance < nearest)
                nearest = distance, best = r;
        }
    const bool inside = best && p >= best->data && p < best->data + best->bytes;
    if (!best)
        return false;
    guarded_location_describe_region(best, out);
    out->is_inside = inside;
    out->is_freed = best->is_freed;
    out->is_in_sparse_range = best->sparse_margin != 0;
    out->is_between_elements = inside && best->sparse_margin && best->use == USE_ARGUMENT &&
        check_guarded_host.c->tensors[best->index].layout == CHECK_LAYOUT_WIDE_STRIDE;
    out->is_earlier_tensor = check_guarded_was_earlier_tensor_address(best, p);
    out->offset = (int64_t)p - (int64_t)best->first_element;
    out->low = (int64_t)best->data - (int64_t)best->first_element;
    out->high = out->low + (int64_t)best->bytes;
    return true;
}
