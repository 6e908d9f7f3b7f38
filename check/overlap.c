/* Arguments that share memory: what a call leaves is what it leaves with copies of them, each in memory of its own. Two that the
 * schema gives one alias set, of which one is written and the other is not, so that what stands in the memory afterwards is what
 * was written; and two that are only read, which are one tensor, as in f(x, x). In the shared part both begin with the elements
 * of the one that is read, or of the later one. */
#include <math.h>
#include <string.h>

#include "check.h"

enum { MOST_SHARED = 1 << 13, MOST_SAME = 4 /* cases of two arguments */ };

/* The names of the sets of an argument, or of the tensors in its list. */
static const check_json *sets_of(const check_op *op, size_t slot)
{
    const check_json *schema = check_json_get(op->json, "schema"),
                     *alias = check_json_get(check_json_at(check_json_get(schema, "args"), slot), "alias"),
                     *element = check_json_get(alias, "element");
    const check_json *sets = check_json_get(element && element->kind == CHECK_OBJECT ? element : alias, "before");
    return sets ? sets->child : NULL;
}

static bool share_set(const check_op *op, size_t a, size_t b)
{
    for (const check_json *x = sets_of(op, a); x; x = x->next)
        for (const check_json *y = sets_of(op, b); y; y = y->next)
            if (!strcmp(x->text, y->text) && strcmp(x->text, "*") != 0)
                return true;
    return false;
}

/* May `read` lie in the memory of `written`, and can that be looked at? */
static bool may_overlap(const check_op *op, const check_case *c, size_t written, size_t read)
{
    const check_tensor *w = &c->tensors[written], *r = &c->tensors[read];
    const size_t to = check_tensor_argument(c, written), from = check_tensor_argument(c, read);
    return w->present && r->present && to != from && op->slots[to].flags & DV_SLOT_WRITES &&
        !(op->slots[from].flags & DV_SLOT_WRITES) && dv_dtype_key(w->dtype) == dv_dtype_key(r->dtype) && w->dtype.bits >= 8 &&
        check_numel(w) && check_numel(r) && check_numel(w) <= MOST_SHARED && check_numel(r) <= MOST_SHARED &&
        share_set(op, to, from);
}

/* May two arguments that are only read be one tensor? Numbers that facts on elements bound may be others for each. */
static bool may_be_same(const check_op *op, const check_case *c, size_t a, size_t b)
{
    const check_tensor *t = &c->tensors[a], *u = &c->tensors[b];
    const size_t first = check_tensor_argument(c, a), second = check_tensor_argument(c, b);
    return t->present && u->present && first != second && !(op->slots[first].flags & DV_SLOT_WRITES) &&
        !(op->slots[second].flags & DV_SLOT_WRITES) && dv_dtype_key(t->dtype) == dv_dtype_key(u->dtype) && t->dtype.bits >= 8 &&
        t->ndim == u->ndim && !memcmp(t->shape, u->shape, sizeof *t->shape * (size_t)t->ndim) && check_numel(t) &&
        check_numel(t) <= MOST_SHARED && !(op->looks_inside && check_is_integer(t->dtype));
}

/* `read` begins `by` elements behind the first of `written`, which is only read as well where both are one tensor. */
static void check_moved(check_job *job, const check_case *c, size_t written, size_t read, int64_t by)
{
    static check_plain shared, apart;
    static check_outs with_copies, outs;
    int whole[CHECK_TENSORS];
    char words[300] = "", where[80] = "in the same memory";
    const bool only_read = !(job->op->slots[check_tensor_argument(c, written)].flags & DV_SLOT_WRITES);
    memset(whole, -1, sizeof whole);
    if (!check_plain_make_shared(&shared, job->op, job->row, c, written, read, by) ||
        !check_plain_part(&apart, &shared, whole, 0, 0))
        return;
    check_plain_call(&apart);
    if (apart.status)
        return;
    check_outs_take(&with_copies, job->op, c, apart.results, apart.values.tensors);
    check_plain_call(&shared);
    if (shared.status) /* a kernel may refuse it */
        return;
    check_outs_take(&outs, job->op, c, shared.results, shared.values.tensors);
    const char *to = job->op->slots[check_tensor_argument(c, written)].name,
               *from = job->op->slots[check_tensor_argument(c, read)].name;
    if (by)
        snprintf(where, sizeof where, "%lld element%s %s", (long long)(by < 0 ? -by : by), by == 1 || by == -1 ? "" : "s",
            by < 0 ? "before it" : "behind it");
    job->how = (check_how){ .show = CHECK_SHOW_SHARED, .slot = (int32_t)written, .axis = (int32_t)read, .at = by };
    for (size_t i = 0; i < outs.n; i++)
        job->how.atol = fmax(job->how.atol, check_out_rounding(job->op, &outs.of[i]));
    const bool differs = check_outs_far(job->op, &with_copies, &outs, words, sizeof words);
    if (!differs && (only_read || !check_plain_wrote_beside(&shared, written)))
        return;
    check_in_hand(job, c);
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

void check_overlaps(check_job *job, const check_case *drawn)
{
    static check_case c;
    static uint32_t same[CHECK_TENSORS][CHECK_TENSORS]; /* how often these two were one, in this child */
    c = *drawn;
    for (size_t i = 0; i < c.ntensors; i++)
        c.tensors[i].layout = CHECK_CONTIGUOUS;
    for (size_t w = 0; w < c.ntensors; w++)
        for (size_t r = 0; r < c.ntensors; r++) {
            if (w < r && job->result->outcome == CHECK_PASS && same[w][r] < MOST_SAME && may_be_same(job->op, &c, w, r)) {
                same[w][r]++;
                check_moved(job, &c, w, r, 0);
            }
            if (!may_overlap(job->op, &c, w, r))
                continue;
            const int64_t n = check_numel(&c.tensors[w]), m = check_numel(&c.tensors[r]),
                          line = c.tensors[w].ndim ? n / c.tensors[w].shape[0] : 1, by[] = { 0, 1, -1, line, -line };
            for (size_t k = 0; k < sizeof by / sizeof *by && job->result->outcome == CHECK_PASS; k++)
                if (by[k] < n && -by[k] < m && (k < 3 || line > 1))
                    check_moved(job, &c, w, r, by[k]);
        }
}
