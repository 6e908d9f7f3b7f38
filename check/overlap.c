/* Arguments that share memory: a call must leave the same outputs as with separate copies of them.
 *
 * Two kinds of pairs are tested. In the first, the schema gives both arguments one alias set; one is written and the other only
 * read, so that the memory holds afterwards what was written. In the second, both are only read and are one tensor, as in f(x,
 * x). In the shared memory both begin with the elements of the argument that is read, or of the later one. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    MAX_OVERLAP_ELEMENTS = 1 << 13,
    MAX_SAME_TENSOR_CASES = 4 /* number of cases in which each pair of arguments is tested as one tensor */
};

/* Returns the first name of an argument's alias set (the `a` of Tensor(a!)), or of that of its list's tensors; NULL if it has
 * none. */
static const check_json *overlap_find_first_alias_set(const check_op *op, size_t slot)
{
    const check_json *schema = check_json_find_member(op->json, "schema"),
                     *alias = check_json_find_member(
                         check_json_find_element(check_json_find_member(schema, "args"), slot), "alias"),
                     *element = check_json_find_member(alias, "element");
    const check_json *sets = check_json_find_member(element && element->kind == CHECK_JSON_OBJECT ? element : alias, "before");
    return sets ? sets->child : NULL;
}

/* True if two arguments have a common alias set other than the wildcard *. */
static bool overlap_has_common_alias_set(const check_op *op, size_t slot_a, size_t slot_b)
{
    for (const check_json *x = overlap_find_first_alias_set(op, slot_a); x; x = x->next)
        for (const check_json *y = overlap_find_first_alias_set(op, slot_b); y; y = y->next)
            if (!strcmp(x->text, y->text) && strcmp(x->text, "*") != 0)
                return true;
    return false;
}

/* True if the schema allows tensor `read` to share the memory of tensor `written`, and the pair can be tested: both given, not
 * large, and of one dtype. */
static bool overlap_can_test_pair(const check_op *op, const check_case *c, size_t written, size_t read)
{
    const check_tensor *w = &c->tensors[written], *r = &c->tensors[read];
    const size_t to = check_find_tensor_slot(c, written), from = check_find_tensor_slot(c, read);
    return w->present && r->present && to != from && op->slots[to].flags & DV_SLOT_WRITES &&
        !(op->slots[from].flags & DV_SLOT_WRITES) && dv_dtype_key(w->dtype) == dv_dtype_key(r->dtype) && w->dtype.bits >= 8 &&
        check_tensor_numel(w) && check_tensor_numel(r) && check_tensor_numel(w) <= MAX_OVERLAP_ELEMENTS &&
        check_tensor_numel(r) <= MAX_OVERLAP_ELEMENTS && overlap_has_common_alias_set(op, to, from);
}

/* True if tensor_a and tensor_b may be one tensor: both are only read, of equal shape and dtype, and not large. Integers of an
 * operator with facts on elements are left out, since each tensor may need other values. */
static bool overlap_can_pass_one_tensor_for_both(const check_op *op, const check_case *c, size_t tensor_a, size_t tensor_b)
{
    const check_tensor *t = &c->tensors[tensor_a], *u = &c->tensors[tensor_b];
    const size_t first = check_find_tensor_slot(c, tensor_a), second = check_find_tensor_slot(c, tensor_b);
    return t->present && u->present && first != second && !(op->slots[first].flags & DV_SLOT_WRITES) &&
        !(op->slots[second].flags & DV_SLOT_WRITES) && dv_dtype_key(t->dtype) == dv_dtype_key(u->dtype) && t->dtype.bits >= 8 &&
        t->ndim == u->ndim && !memcmp(t->shape, u->shape, sizeof *t->shape * (size_t)t->ndim) && check_tensor_numel(t) &&
        check_tensor_numel(t) <= MAX_OVERLAP_ELEMENTS && !(op->has_element_facts && check_is_integer_dtype(t->dtype));
}

/* Reports a failure if a call with separate copies and one in which tensor `read` begins `distance` elements after the start of
 * `written` give different outputs. If both are only read, they are one tensor. */
static void overlap_check_at_offset(check_job *job, const check_case *c, size_t written, size_t read, int64_t distance)
{
    static check_unguarded_call overlapping, with_copies_call;
    static check_outputs copied_outputs, outs;
    int whole_axes[CHECK_MAX_TENSORS];
    char words[300] = "", where[80] = "in the same memory";
    const bool only_read = !(job->op->slots[check_find_tensor_slot(c, written)].flags & DV_SLOT_WRITES);
    memset(whole_axes, -1, sizeof whole_axes);
    if (!check_unguarded_call_try_init_overlap(&overlapping, job->op, job->kernel, c, written, read, distance) ||
        !check_unguarded_call_try_init_slice(&with_copies_call, &overlapping, whole_axes, 0, 0))
        return;
    check_unguarded_call_run(&with_copies_call);
    if (with_copies_call.status)
        return;
    check_outputs_copy(&copied_outputs, job->op, c, with_copies_call.results, with_copies_call.values.tensors);
    check_unguarded_call_run(&overlapping);
    if (overlapping.status) /* a kernel may refuse overlapping arguments */
        return;
    check_outputs_copy(&outs, job->op, c, overlapping.results, overlapping.values.tensors);
    const char *to = job->op->slots[check_find_tensor_slot(c, written)].name,
               *from = job->op->slots[check_find_tensor_slot(c, read)].name;
    if (distance)
        snprintf(where, sizeof where, "%lld element%s %s", (long long)(distance < 0 ? -distance : distance),
            distance == 1 || distance == -1 ? "" : "s", distance < 0 ? "before it" : "behind it");
    const bool differs = check_outputs_differ_beyond_rounding(job->op, &copied_outputs, &outs, words, sizeof words);
    if (!differs && (only_read || !check_unguarded_has_stray_write(&overlapping, written)))
        return;
    check_set_current_case(job, c);
    if (differs && only_read)
        check_fail(job, "same tensor",
            "with one tensor for '%s' and '%s', which are only read, the result is not that with copies: %s", to, from, words);
    else if (differs)
        check_fail(job, "overlap",
            "'%s' and '%s' have one alias set, so a call may give them the same memory; with '%s' %s the result is not that with "
            "copies: %s",
            to, from, from, where, words);
    else
        check_fail(job, "overlap", "the kernel writes elements of argument '%s' that are not in '%s', with '%s' %s", from, to,
            from, where);
}

void check_overlapping_arguments(check_job *job, const check_case *drawn)
{
    static check_case c;
    static uint32_t same_tensor_counts[CHECK_MAX_TENSORS]
                                      [CHECK_MAX_TENSORS]; /* number of cases in this process in which the two tensors were one */
    c = *drawn;
    for (size_t i = 0; i < c.ntensors; i++)
        c.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
    for (size_t w = 0; w < c.ntensors; w++)
        for (size_t r = 0; r < c.ntensors; r++) {
            if (w < r && job->result->outcome == CHECK_OUTCOME_PASS && same_tensor_counts[w][r] < MAX_SAME_TENSOR_CASES &&
                overlap_can_pass_one_tensor_for_both(job->op, &c, w, r)) {
                same_tensor_counts[w][r]++;
                overlap_check_at_offset(job, &c, w, r, 0);
            }
            if (!overlap_can_test_pair(job->op, &c, w, r))
                continue;
            const int64_t n = check_tensor_numel(&c.tensors[w]), m = check_tensor_numel(&c.tensors[r]),
                          row_numel = c.tensors[w].ndim ? n / c.tensors[w].shape[0] : 1,
                          by[] = { 0, 1, -1, row_numel, -row_numel };
            for (size_t k = 0; k < sizeof by / sizeof *by && job->result->outcome == CHECK_OUTCOME_PASS; k++)
                if (by[k] < n && -by[k] < m && (k < 3 || row_numel > 1))
                    overlap_check_at_offset(job, &c, w, r, by[k]);
        }
}
