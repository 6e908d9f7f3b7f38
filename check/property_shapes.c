/* Property shapes: what the contract accepts is computed. What it does not accept is refused before anything is written, with an
 * error that names the fault; the same holds for what a kernel refuses because of the contents of its tensors. dv_infer()
 * decides what is accepted. */
#include <string.h>

#include "check.h"

enum { MAX_INVALID_CASES = 200, INVALID_CASE_STEP = 4 };

/* True if all arguments are float tensors or bools. A contract can express all conditions on such arguments, so a kernel should
 * refuse none of them. */
static bool shapes_takes_only_floats_and_bools(const check_op *op, const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_float_dtype(c->tensors[i].dtype))
            return false;
    for (size_t i = 0; i < op->nargs; i++)
        if (op->slots[i].type != DV_FIELD_TENSOR && op->slots[i].type != DV_FIELD_BOOL)
            return false;
    return true;
}

/* True if an error message names the operator, and does not say that the kernel breaks its declaration. */
static bool shapes_is_clear_message(const check_op *op, const char *message)
{
    return strstr(message, op->name) && !strstr(message, "and no message") && !strstr(message, "which is not a status") &&
        !strstr(message, "dv_set_output");
}

/* Returns the name of an argument that the schema declares as written, if the last call changed an element of it. NULL: it
 * changed none. Large, sliced and padded tensors are not examined. */
static const char *shapes_find_changed_argument(const check_op *op, const check_case *c)
{
    static check_values values;
    static unsigned char expected[1 << 16];
    check_values_init_without_data(&values, c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        const size_t slot = check_find_tensor_slot(c, i);
        int64_t low, high, strides[CHECK_MAX_DIMS];
        const dv_tensor *tensor = check_get_last_tensor(i);
        if (!t->present || !(op->slots[slot].flags & DV_SLOT_WRITES) || !tensor->data)
            continue;
        check_compute_strides(t, strides, &low, &high);
        const int64_t size = dv_dtype_bytes(t->dtype, 1), bytes = (high - low + 1) * size;
        if (bytes <= 0 || bytes > (int64_t)sizeof expected || t->layout == CHECK_LAYOUT_SLICED ||
            t->layout == CHECK_LAYOUT_PADDED)
            continue;
        check_fill_tensor(t, c->seed + i, expected - low * size, strides);
        if (memcmp(expected, (const char *)tensor->data + low * size, (size_t)bytes))
            return op->slots[slot].name;
    }
    return NULL;
}

/* True if some kernel of the operator has .split: such a kernel can refuse one slice after others were computed. */
static bool shapes_has_split_kernel(const check_op *op)
{
    bool has_split = false;
    for (size_t i = 0; i < op->nkernels; i++)
        has_split |= op->kernels[i].split > 0;
    return has_split;
}

/* True if the kernel accepts a case with the same sizes and other contents of its tensors. Keeps the error message of
 * dv_last_error(). */
static bool shapes_accepts_other_contents(check_job *job, const check_case *c)
{
    static const struct {
        enum check_fill fill;
        double low, high;
    } others[] = { { CHECK_FILL_SEQUENCE, 1, 3 }, { CHECK_FILL_RANDOM, 0, 0 }, { CHECK_FILL_RANDOM, 0.25, 0.75 },
        { CHECK_FILL_RANDOM, -0.75, -0.25 }, { CHECK_FILL_RANDOM, 1, 100 }, { CHECK_FILL_INCREASING, 0.25, 2 } };
    static check_guarded_call call;
    static check_case other;
    char message[sizeof job->result->message];
    bool is_accepted = false;
    snprintf(message, sizeof message, "%s", dv_last_error());
    for (size_t k = 0; k < 2 * (sizeof others / sizeof *others) && !is_accepted; k++) {
        other = *c;
        for (size_t i = 0; i < other.ntensors; i++) {
            other.tensors[i].fill = (uint8_t)others[k / 2].fill;
            other.tensors[i].low = others[k / 2].low;
            /* a tensor whose rows share memory cannot hold an identity matrix */
            if (other.tensors[i].layout == CHECK_LAYOUT_EXPANDED)
                other.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
            other.tensors[i].high = others[k / 2].high;
        }
        call = (check_guarded_call){
            .op = job->op, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5, .use_identity_matrices = k % 2
        };
        check_guarded_call_run(&call, &other);
        is_accepted = !call.status;
    }
    dv_fail(call.status, "%s", message);
    return is_accepted;
}

/* Fails the job for a string argument that the contract accepts, if the kernel refuses every call with it by a message that names
 * it, although the kernel accepts other strings. Called for each case that reached the kernel. */
enum { MAX_STRINGS = 48, MIN_REFUSALS = 6 };
static void shapes_check_strings(check_job *job, const check_case *c, bool was_accepted)
{
    static struct {
        size_t slot;
        const char *word;
        uint32_t taken, refused;
    } words[MAX_STRINGS];
    static size_t nwords;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value v = check_get_value_or_default(job->op, i, &c->args[i]);
        const check_literals *literals = &job->op->literals[i];
        size_t k = 0, word_index = 0;
        while (k < literals->nequality_values &&
            (literals->equality_values[k]->kind != CHECK_JSON_STRING || strcmp(literals->equality_values[k]->text, v.string)))
            k++;
        if (v.type != DV_VALUE_STRING || k == literals->nequality_values)
            continue;
        while (word_index < nwords && (words[word_index].slot != i || strcmp(words[word_index].word, v.string)))
            word_index++;
        if (word_index == nwords && nwords == MAX_STRINGS)
            continue;
        if (word_index == nwords) {
            words[nwords].slot = i;
            words[nwords++].word = literals->equality_values[k]->text;
        }
        words[word_index].taken += was_accepted;
        words[word_index].refused += !was_accepted && strstr(dv_last_error(), words[word_index].word);
        bool accepts_others = !job->result->tried_cases; /* the case is being shrunk */
        for (size_t o = 0; o < nwords; o++)
            accepts_others |= words[o].slot == i && o != word_index && words[o].taken;
        if (!was_accepted && !words[word_index].taken && accepts_others &&
            (words[word_index].refused >= MIN_REFUSALS || (words[word_index].refused && !job->result->tried_cases)))
            check_fail(job, "string never accepted",
                "the contract accepts \"%s\" as '%s', and the kernel refuses every call with it: %s", words[word_index].word,
                job->op->slots[i].name, dv_last_error());
    }
}

/* Checks that a case that the contract accepts is computed. A refusal by the kernel must be justified by contents, and must come
 * before anything is written. */
static void shapes_check_accepted_case(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c);
    if (!call.status || call.kernel_ran)
        shapes_check_strings(job, c, !call.status);
    if (!call.status)
        return;
    check_count_refusal(job);
    /* property runs fails for an unclear message, so this property does not */
    if (!shapes_is_clear_message(job->op, dv_last_error()))
        return;
    const char *changed_argument = !shapes_has_split_kernel(job->op) && call.kernel_ran && call.status != DV_ENOMEM &&
            call.status != DV_EKERNEL
        ? shapes_find_changed_argument(job->op, c)
        : NULL;
    if (!call.kernel_ran && call.status == DV_ENOKERNEL)
        check_fail(job, "no kernel", "the contract accepts what no kernel takes: %s", dv_last_error());
    else if (!call.kernel_ran && call.status != DV_ENOMEM)
        check_fail(job, "refused", "the contract accepts what the call refuses: %s", dv_last_error());
    else if (call.kernel_ran && call.status != DV_ENOMEM && call.status != DV_ENOTSUP &&
        shapes_takes_only_floats_and_bools(job->op, c) && !shapes_accepts_other_contents(job, c))
        check_fail(job, "refused by the kernel", "the contract accepts what the kernel refuses: %s", dv_last_error());
    if (changed_argument) {
        check_fail(job, "written before it was refused",
            "the kernel refuses what it finds in the tensors after it has written argument '%s': %s", changed_argument,
            dv_last_error());
    }
}

/* Checks that a call that the contract does not accept is refused before the kernel runs, with a clear message, and writes
 * nothing. violation: what the case violates, for the message. */
static void shapes_check_refusal(check_job *job, const check_case *c, const char *violation)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c);
    if (!call.status)
        check_fail(job, "accepted", "dv_infer() refuses this case, and dv_call() runs it (%s)", violation);
    else if (call.kernel_ran)
        check_fail(job, "reached the kernel", "dv_infer() refuses this case, and the kernel was run (%s)", violation);
    else if (!shapes_is_clear_message(job->op, dv_last_error()))
        check_fail(job, "unclear error", "the error does not say what is wrong (%s): %s", violation, dv_last_error());
    const char *changed_argument = call.status ? shapes_find_changed_argument(job->op, c) : NULL;
    if (changed_argument)
        check_fail(job, "written", "argument '%s' was written, though the call was refused (%s)", changed_argument, violation);
}

/* Checks in a forked process that a kernel that refuses contents, because a fact forbids them, has written nothing before. The
 * kernel need not refuse them, and may crash, since only check mode tests such facts. */
static void shapes_check_forbidden_contents(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c);
    const bool is_refused = call.kernel_ran && call.status && call.status != DV_ENOMEM && call.status != DV_EKERNEL;
    const char *changed_argument = is_refused && shapes_is_clear_message(job->op, dv_last_error())
        ? shapes_find_changed_argument(job->op, c)
        : NULL;
    if (changed_argument)
        check_fail(job, "written before it was refused",
            "the kernel refuses what it finds in the tensors after it has written argument '%s': %s", changed_argument,
            dv_last_error());
}

/* True if the operator writes an argument and no kernel is split, so that writes before a refusal can be found. */
static bool shapes_can_find_early_writes(const check_op *op)
{
    bool has_written_argument = false;
    for (size_t i = 0; i < op->nargs; i++)
        has_written_argument |= op->slots[i].flags & DV_SLOT_WRITES;
    return has_written_argument && !shapes_has_split_kernel(op);
}

/* Checks one accepted case, and cases just outside the contract that are made from it. */
static void shapes_test_case(check_job *job, const check_case *c)
{
    enum { MAX_FORBIDDEN_CASES = 12 };
    static check_case invalid_case, accepted_case;
    static uint32_t nforbidden;
    char violation[160] = "";
    if (job->result->tried_cases == 1 && job->plan->has_stray_view_case)
        check_set_current_case(job, &job->plan->stray_view_case);
    if (check_is_refused_for_stray_view(job->op, c)) {
        check_fail(job, "stray view", "the contract accepts sizes for which its view is none: %s", dv_last_error());
        return;
    }
    if (c->is_invalid) { /* a case that does not fit the contract, made from an earlier case, is being shrunk */
        const enum check_verdict verdict = check_classify_case(job->op, c);
        if (verdict == CHECK_VERDICT_REFUSED)
            shapes_check_refusal(job, c, "outside the contract");
        else if (verdict == CHECK_VERDICT_BAD_CONTENTS)
            check_try_run_isolated(job, c, shapes_check_forbidden_contents);
        return;
    }
    shapes_check_accepted_case(job, c);
    if (check_case_max_numel(c) > 4096) /* small cases show the same */
        return;
    accepted_case = *c;
    if (shapes_can_find_early_writes(job->op) && nforbidden < MAX_FORBIDDEN_CASES)
        nforbidden += check_try_run_forbidden_isolated(job, &accepted_case, shapes_check_forbidden_contents);
    for (uint32_t i = (uint32_t)(accepted_case.seed % INVALID_CASE_STEP);
        i < MAX_INVALID_CASES && job->result->outcome == CHECK_OUTCOME_PASS &&
        check_try_make_invalid_case(job->op, &accepted_case, i, &invalid_case, violation, sizeof violation);
        i += INVALID_CASE_STEP) {
        check_set_current_case(job, &invalid_case);
        if (check_classify_case(job->op, &invalid_case) == CHECK_VERDICT_REFUSED)
            shapes_check_refusal(job, &invalid_case, violation);
    }
}

const check_property check_property_shapes = {
    .name = "shapes",
    .description =
        "what the contract accepts is computed; what lies just outside is refused with a clear error, and nothing is written",
    .test_case = shapes_test_case,
};
