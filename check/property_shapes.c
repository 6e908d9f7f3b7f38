/* shapes: what the contract accepts is computed, and what it does not accept is refused before anything is written, with an error
 * that says what is wrong. So it is with what a kernel refuses for what is in its tensors. dv_infer() says what is accepted. */
#include <string.h>

#include "check.h"

enum { BROKEN = 200, EVERY = 4 };

/* Do all tensors hold real numbers? Then only sizes and numbers matter, and a contract can express all conditions.
 */
static bool contents_do_not_matter(const check_op *op, const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_float(c->tensors[i].dtype))
            return false;
    for (size_t i = 0; i < op->nargs; i++)
        if (op->slots[i].type != DV_FIELD_TENSOR && op->slots[i].type != DV_FIELD_BOOL)
            return false;
    return true;
}

/* The message must say which operator, and which argument or size; and not that the kernel breaks its declaration. */
static bool is_clear(const check_op *op, const char *message)
{
    return strstr(message, op->name) && !strstr(message, "and no message") && !strstr(message, "which is not a status") &&
        !strstr(message, "dv_set_output");
}

/* A written argument that has changed; NULL: none. */
static const char *written_anyway(const check_op *op, const check_case *c)
{
    static check_values v;
    static unsigned char fresh[1 << 16];
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        const size_t slot = check_tensor_argument(c, i);
        int64_t low, high, strides[CHECK_DIMS];
        const dv_tensor *now = check_call_tensor(i);
        if (!t->present || !(op->slots[slot].flags & DV_SLOT_WRITES) || !now->data)
            continue;
        check_strides(t, strides, &low, &high);
        const int64_t size = dv_dtype_bytes(t->dtype, 1), bytes = (high - low + 1) * size;
        if (bytes <= 0 || bytes > (int64_t)sizeof fresh || t->layout == CHECK_SLICED || t->layout == CHECK_PADDED)
            continue;
        check_fill_tensor(t, c->seed + i, fresh - low * size, strides);
        if (memcmp(fresh, (const char *)now->data + low * size, (size_t)bytes))
            return op->slots[slot].name;
    }
    return NULL;
}

/* A row that is cut into parts can refuse one part after others were computed. */
static bool is_split(const check_op *op)
{
    bool split = false;
    for (size_t i = 0; i < op->nrows; i++)
        split |= op->rows[i].split > 0;
    return split;
}

/* Does the kernel take the same sizes with other contents? */
static bool runs_with_others(check_job *job, const check_case *c)
{
    static const struct {
        enum check_fill fill;
        double low, high;
    } others[] = { { CHECK_SIMPLE, 1, 3 }, { CHECK_RANDOM, 0, 0 }, { CHECK_RANDOM, 0.25, 0.75 }, { CHECK_RANDOM, -0.75, -0.25 },
        { CHECK_RANDOM, 1, 100 }, { CHECK_ASCENDING, 0.25, 2 } };
    static check_call call;
    static check_case other;
    char message[sizeof job->result->message];
    bool runs = false;
    snprintf(message, sizeof message, "%s", dv_last_error());
    for (size_t k = 0; k < 2 * (sizeof others / sizeof *others) && !runs; k++) {
        other = *c;
        for (size_t i = 0; i < other.ntensors; i++) {
            other.tensors[i].fill = (uint8_t)others[k / 2].fill;
            other.tensors[i].low = others[k / 2].low;
            if (other.tensors[i].layout == CHECK_EXPANDED) /* no matrix with equal rows is an identity */
                other.tensors[i].layout = CHECK_CONTIGUOUS;
            other.tensors[i].high = others[k / 2].high;
        }
        call = (check_call){ .op = job->op, .end = CHECK_AT_END, .poison = 0xa5, .identity = k % 2 };
        check_call_run(&call, &other);
        runs = !call.status;
    }
    dv_fail(call.status, "%s", message);
    return runs;
}

/* A word that the contract names, but of which the kernel refuses every call, and says so, though it takes other words. */
enum { WORDS = 48, REFUSALS = 6 };
static void check_words(check_job *job, const check_case *c, bool taken)
{
    static struct {
        size_t slot;
        const char *word;
        uint32_t taken, refused;
    } words[WORDS];
    static size_t n;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value v = check_default_of(job->op, i, &c->args[i]);
        const check_literals *literals = &job->op->literals[i];
        size_t k = 0, w = 0;
        while (k < literals->n && (literals->of[k]->kind != CHECK_TEXT || strcmp(literals->of[k]->text, v.string)))
            k++;
        if (v.type != DV_VALUE_STRING || k == literals->n)
            continue;
        while (w < n && (words[w].slot != i || strcmp(words[w].word, v.string)))
            w++;
        if (w == n && n == WORDS)
            continue;
        if (w == n) {
            words[n].slot = i;
            words[n++].word = literals->of[k]->text;
        }
        words[w].taken += taken;
        words[w].refused += !taken && strstr(dv_last_error(), words[w].word);
        bool others = !job->result->cases; /* it is being made smaller */
        for (size_t o = 0; o < n; o++)
            others |= words[o].slot == i && o != w && words[o].taken;
        if (!taken && !words[w].taken && others && (words[w].refused >= REFUSALS || (words[w].refused && !job->result->cases)))
            check_fail(job, "word never taken",
                "the contract accepts \"%s\" as '%s', and the kernel refuses every call with it: %s", words[w].word,
                job->op->slots[i].name, dv_last_error());
    }
}

static void check_accepted(check_job *job, const check_case *c)
{
    static check_call call;
    job->how.show = CHECK_SHOW_ACCEPT;
    call = (check_call){ .op = job->op, .end = CHECK_AT_END, .poison = 0xa5 };
    check_call_run(&call, c);
    if (!call.status || call.kernel_ran)
        check_words(job, c, !call.status);
    if (!call.status)
        return;
    check_refused(job);
    if (!is_clear(job->op, dv_last_error())) /* the property `runs` reports it */
        return;
    const char *written = !is_split(job->op) && call.kernel_ran && call.status != DV_ENOMEM && call.status != DV_EKERNEL
        ? written_anyway(job->op, c)
        : NULL;
    if (!call.kernel_ran && call.status == DV_ENOKERNEL)
        check_fail(job, "no kernel", "the contract accepts what no kernel takes: %s", dv_last_error());
    else if (!call.kernel_ran && call.status != DV_ENOMEM)
        check_fail(job, "refused", "the contract accepts what the call refuses: %s", dv_last_error());
    else if (call.kernel_ran && call.status != DV_ENOMEM && call.status != DV_ENOTSUP && contents_do_not_matter(job->op, c) &&
        !runs_with_others(job, c))
        check_fail(job, "refused by the kernel", "the contract accepts what the kernel refuses: %s", dv_last_error());
    if (written) {
        job->how.show = CHECK_SHOW_HALF;
        check_fail(job, "written before it was refused",
            "the kernel refuses what it finds in the tensors after it has written argument '%s': %s", written, dv_last_error());
    }
}

static void check_refusal(check_job *job, const check_case *c, const char *what)
{
    static check_call call;
    job->how.show = CHECK_SHOW_REFUSE;
    call = (check_call){ .op = job->op, .end = CHECK_AT_END, .poison = 0xa5 };
    check_call_run(&call, c);
    if (!call.status)
        check_fail(job, "accepted", "dv_infer() refuses this case, and dv_call() runs it (%s)", what);
    else if (call.kernel_ran)
        check_fail(job, "reached the kernel", "dv_infer() refuses this case, and the kernel was run (%s)", what);
    else if (!is_clear(job->op, dv_last_error()))
        check_fail(job, "unclear error", "the error does not say what is wrong (%s): %s", what, dv_last_error());
    const char *written = call.status ? written_anyway(job->op, c) : NULL;
    job->how.show = CHECK_SHOW_HALF;
    if (written)
        check_fail(job, "written", "argument '%s' was written, though the call was refused (%s)", written, what);
}

/* In a process of its own: a call with contents that a fact forbids. Such a call is tested in check mode alone, so the kernel may
 * do anything, and crash; but where it refuses, it refuses before it writes. */
static void call_forbidden(check_job *job, const check_case *c)
{
    static check_call call;
    call = (check_call){ .op = job->op, .end = CHECK_AT_END, .poison = 0xa5 };
    check_call_run(&call, c);
    const bool refused = call.kernel_ran && call.status && call.status != DV_ENOMEM && call.status != DV_EKERNEL;
    const char *written = refused && is_clear(job->op, dv_last_error()) ? written_anyway(job->op, c) : NULL;
    job->how.show = CHECK_SHOW_HALF;
    if (written)
        check_fail(job, "written before it was refused",
            "the kernel refuses what it finds in the tensors after it has written argument '%s': %s", written, dv_last_error());
}

/* Has the operator something to write before it refuses? */
static bool writes_arguments(const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->nargs; i++)
        any |= op->slots[i].flags & DV_SLOT_WRITES;
    return any && !is_split(op);
}

static void attempt(check_job *job, const check_case *c)
{
    enum { FORBIDDEN = 12 };
    static check_case broken, accepted;
    static uint32_t nforbidden;
    char what[160] = "";
    if (job->result->cases == 1 && job->plan->has_stray)
        check_in_hand(job, &job->plan->stray);
    if (check_is_stray(job->op, c)) {
        job->how.show = CHECK_SHOW_NOTHING; /* the message is what there is to see */
        check_fail(job, "stray view", "the contract accepts sizes for which its view is none: %s", dv_last_error());
        return;
    }
    if (c->broken) { /* one of those below, made smaller */
        const enum check_verdict verdict = check_judge(job->op, c);
        if (verdict == CHECK_REFUSED)
            check_refusal(job, c, "outside the contract");
        else if (verdict == CHECK_UNFIT)
            check_apart(job, c, call_forbidden);
        return;
    }
    check_accepted(job, c);
    if (check_case_largest(c) > 4096) /* said better by small ones */
        return;
    accepted = *c;
    if (writes_arguments(job->op) && nforbidden < FORBIDDEN)
        nforbidden += check_apart_forbidden(job, &accepted, call_forbidden);
    for (uint32_t i = (uint32_t)(accepted.seed % EVERY);
        i < BROKEN && job->result->outcome == CHECK_PASS && check_break(job->op, &accepted, i, &broken, what, sizeof what);
        i += EVERY) {
        check_in_hand(job, &broken);
        if (check_judge(job->op, &broken) == CHECK_REFUSED)
            check_refusal(job, &broken, what);
    }
}

const check_property check_property_shapes = {
    .name = "shapes",
    .promise =
        "what the contract accepts is computed; what lies just outside is refused with a clear error, and nothing is written",
    .attempt = attempt,
};
