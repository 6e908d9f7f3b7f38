/* Property memory: a kernel accesses only its tensors, writes only and all of what the schema declares, and reads no undefined
 * memory.
 *
 * Each case is called three times: at the upper guard page; the same with another fill of undefined memory; and at the lower
 * guard page. An element of a result that holds the old fill after both of the first calls was not written. A result or written
 * argument that differs between the first two calls depends on undefined memory, unless it also differs without the other fill:
 * inputs and addresses are the same. The third call finds zeros in undefined memory, because a flag that nobody clears looks set
 * in the first two. Its results may differ because addresses do, so a difference is confirmed at the upper guard page. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { FIRST_POISON = 0xa5, SECOND_POISON = 0x5a, ZERO_POISON = 0, MIN_SEEN_CASES = 24, MAX_LIST_POSITIONS = 4 };

/* copies of the results and written arguments of the first, the second and a repeated call */
static check_outputs first_outputs, second_outputs, repeated_outputs;

/* Makes a guarded call of the kernel with all undefined memory (results, workspace, stack) filled with the byte `poison`. Returns
 * false if the call was refused. */
static bool memory_try_call_kernel(
    check_job *job, const check_case *c, enum check_guard_side guard_side, int poison, check_guarded_call *call)
{
    const uint8_t byte = (uint8_t)poison;
    *call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = guard_side,
        .always_ends_at_guard = true,
        .poison_byte = byte,
        .stack_poison_byte = byte,
        .number_poison_byte = byte };
    check_guarded_call_run(call, c);
    return !call->status;
}

/* Copies the results and written arguments of the last guarded call to `outputs`. */
static void memory_copy_outputs(check_outputs *outputs, const check_job *job, const check_case *c, const check_guarded_call *call)
{
    check_outputs_copy(outputs, job->op, c, call->results, check_get_last_argument_tensors());
}

/* Fails the job if the kernel changed the address, shape or dtype in the dv_tensor of a result. */
static void memory_check_result_descriptors(check_job *job, const check_guarded_call *call, const check_case *c)
{
    char name[120];
    for (check_result_iterator of = { 0 }; check_result_iterator_try_next(call, &of);) {
        if (!memcmp(of.t, of.as_allocated, sizeof *of.t))
            continue;
        check_format_result_tensor(call, &of, name, sizeof name);
        for (size_t i = 0; i < c->ntensors; i++)
            if (c->tensors[i].present && of.t->data == check_get_last_tensor(i)->data && of.t->data != of.as_allocated->data)
                check_fail(job, "undeclared alias",
                    "%s shares the memory of argument '%s', and the schema declares no alias: the kernel changed the "
                    "address in its header",
                    name, job->op->slots[check_find_tensor_slot(c, i)].name);
        check_fail(job, "changed tensor descriptor", "the kernel changed the dv_tensor of %s: its %s", name,
            of.t->data != of.as_allocated->data ? "address" : "shape or dtype");
    }
}

/* True if all bytes have this value. */
static bool memory_is_filled_with(const unsigned char *bytes, size_t size, unsigned char value)
{
    while (size && *bytes == value)
        bytes++, size--;
    return !size;
}

/* True if an element of a result is all FIRST_POISON after the first call and all SECOND_POISON after the second one: neither
 * call wrote it. */
static bool memory_is_unwritten_element(const check_output *first, const check_output *second, int64_t element_index)
{
    const size_t size = (size_t)dv_dtype_bytes(first->t.dtype, 1), at = (size_t)element_index * size;
    return memory_is_filled_with((const unsigned char *)first->t.data + at, size, FIRST_POISON) &&
        memory_is_filled_with((const unsigned char *)second->t.data + at, size, SECOND_POISON);
}

/* True if two calls' outputs are equal bit for bit. */
static bool memory_has_same_outputs(const check_job *job, const check_outputs *a, const check_outputs *b)
{
    char words[300];
    return !check_outputs_differ(job->op, a, b, words, sizeof words);
}

/* True if a guarded call with the poison bytes of `settings` succeeds, and its outputs equal first_outputs bit for bit. */
static bool memory_call_returns_first_outputs(check_job *job, const check_case *c, check_guarded_call settings)
{
    static check_guarded_call call;
    call = settings;
    call.op = job->op;
    call.kernel = job->kernel;
    call.always_ends_at_guard = true;
    check_guarded_call_run(&call, c);
    memory_copy_outputs(&repeated_outputs, job, c, &call);
    return !call.status && memory_has_same_outputs(job, &first_outputs, &repeated_outputs);
}

/* Names of the kinds of undefined memory, for messages. */
static const char *const undefined_memory_names[] = { [CHECK_DV_ALLOC_MEMORY] = "that of dv_alloc()",
    [CHECK_MALLOC_MEMORY] = "that of malloc()",
    [CHECK_WORKSPACE_MEMORY] = "the workspace",
    [CHECK_SCRATCH_MEMORY] = "the scratch of a chunk",
    [CHECK_RESULT_MEMORY] = "the result itself" };

/* Repeats the first call, with another fill of one kind of undefined memory. True if the call succeeds and its outputs equal
 * first_outputs. */
static bool memory_call_returns_first_outputs_with(
    check_job *job, const check_case *c, enum check_undefined_memory memory, uint8_t other_poison)
{
    return memory_call_returns_first_outputs(job, c,
        (check_guarded_call){ .poison_byte = FIRST_POISON,
            .stack_poison_byte = FIRST_POISON,
            .number_poison_byte = FIRST_POISON,
            .other_memory = memory,
            .other_poison_byte = other_poison });
}

/* Returns the name of the undefined memory, other than the result, that an element of output number `output` is copied from;
 * NULL: none. */
static const char *memory_find_source_of_element(check_job *job, const check_case *c, size_t output, int64_t element_index)
{
    const size_t size = (size_t)dv_dtype_bytes(first_outputs.items[output].t.dtype, 1);
    for (enum check_undefined_memory memory = CHECK_DV_ALLOC_MEMORY; memory < CHECK_RESULT_MEMORY; memory++)
        if (!memory_call_returns_first_outputs_with(job, c, memory, SECOND_POISON) && output < repeated_outputs.noutputs &&
            element_index < dv_numel(&repeated_outputs.items[output].t) &&
            memory_is_filled_with(
                (const unsigned char *)repeated_outputs.items[output].t.data + (size_t)element_index * size, size, SECOND_POISON))
            return undefined_memory_names[memory];
    return NULL;
}

/* Fails the job if a result has elements that neither the first nor the second call wrote. An element that was copied from other
 * undefined memory is written. Returns true if all are written. */
static bool memory_try_verify_written(check_job *job, const check_case *c)
{
    char name[120], index[200], one[40], other[40];
    for (size_t k = 0; k < first_outputs.noutputs && k < second_outputs.noutputs; k++) {
        const check_output *a = &first_outputs.items[k], *b = &second_outputs.items[k];
        const int64_t n = a->t.dtype.bits < 8 ? dv_dtype_bytes(a->t.dtype, dv_numel(&a->t)) : dv_numel(&a->t);
        int64_t missing = 0, which = -1;
        if (a->slot < job->op->nargs || dv_numel(&a->t) != dv_numel(&b->t))
            continue;
        for (int64_t i = 0; i < n; i++)
            if (memory_is_unwritten_element(a, b, i)) {
                missing++;
                which = which < 0 ? i : which;
            }
        if (!missing)
            continue;
        check_output_format_name(job->op, a, name, sizeof name);
        if (a->is_number_result)
            check_fail(job, "unwritten", "the kernel does not set %s", name);
        check_format_element_index(a->t.ndim, a->t.shape, which, index, sizeof index);
        const char *const memory = memory_find_source_of_element(job, c, k, which);
        if (memory)
            check_fail(job, "uninitialised",
                "what the kernel writes depends on memory that nobody wrote, %s: element [%s] of %s is %s and then %s when only "
                "that "
                "differs",
                memory, index, name, check_output_format_number(a, which, 0, one, sizeof one),
                check_output_format_number(&repeated_outputs.items[k], which, 0, other, sizeof other));
        check_fail(job, "unwritten", "the kernel leaves %lld of the %lld elements of %s unwritten, the first at [%s]",
            (long long)missing, (long long)n, name, index);
        return false;
    }
    return true;
}

/* Fails the job with the first element in which first_outputs and second_outputs differ, and says which undefined memory it
 * depends on: the stack, a number, or other memory. poison: the second call's fill of undefined memory. Does nothing if the
 * outputs are equal. */
static void memory_report_undefined(check_job *job, const check_case *c, uint8_t poison)
{
    char words[300];
    if (!check_outputs_differ(job->op, &first_outputs, &second_outputs, words, sizeof words))
        return;
    if (memory_call_returns_first_outputs(job, c,
            (check_guarded_call){ .poison_byte = poison, .stack_poison_byte = FIRST_POISON, .number_poison_byte = poison })) {
        check_fail(job, "variable not set",
            "what the kernel writes depends on a variable of the kernel that was never set: %s when only what the stack held "
            "differs",
            words);
    } else if (memory_call_returns_first_outputs(job, c,
                   (check_guarded_call){
                       .poison_byte = poison, .stack_poison_byte = poison, .number_poison_byte = FIRST_POISON })) {
        check_fail(job, "number not set",
            "what the kernel gives depends on a number that nobody set (a result that is an int, float or bool, `value` of an "
            "optional without `has`, or a member of a Scalar of another kind): %s when only that differs",
            words);
    }
    enum check_undefined_memory memory = CHECK_DV_ALLOC_MEMORY;
    while (memory < CHECK_RESULT_MEMORY && memory_call_returns_first_outputs_with(job, c, memory, poison))
        memory++;
    check_fail(job, "uninitialised", "what the kernel writes depends on memory that nobody wrote, %s: %s when only that differs",
        undefined_memory_names[memory], words);
}

/* True if the outputs follow the fill of undefined memory: repeated calls give first_outputs with FIRST_POISON and second_outputs
 * with `poison`. False if they also differ without it, for example by a count of calls. The order of the calls has no period. */
static bool memory_depends_on_poison(check_job *job, const check_case *c, uint8_t poison, check_guarded_call *call)
{
    static const char order[] = "abbabaabbaab";
    for (const char *p = order; *p; p++) {
        if (!memory_try_call_kernel(job, c, CHECK_GUARD_AFTER, *p == 'a' ? FIRST_POISON : poison, call))
            return false;
        memory_copy_outputs(&repeated_outputs, job, c, call);
        if (!memory_has_same_outputs(job, *p == 'a' ? &first_outputs : &second_outputs, &repeated_outputs))
            return false;
    }
    return true;
}

/* Fails the job if the last call wrote between the elements of an argument, or into the slack behind a buffer. */
static void memory_check_stray_writes(check_job *job, const check_case *c)
{
    int64_t offset;
    char what[160];
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && check_has_write_between_elements(c, i, &offset))
            check_fail(job, "write between elements",
                "the kernel writes between the elements of argument '%s', which is not contiguous: byte %lld",
                job->op->slots[check_find_tensor_slot(c, i)].name, (long long)offset);
    if (check_has_write_next_to_memory(what, sizeof what))
        check_fail(job, "writes past the end", "the kernel writes outside %s", what);
}

/* ---- Indices past 2^31 ---- */

enum {
    MAX_OVERSIZED_CASES = 2,
    MAX_SMALL_ELEMENTS = 256,
    OVERSIZED_MS = 100,
    EXIT_TOO_SLOW = 78,
    EXIT_NO_MEMORY = 79,
    MAX_DATA_BYTES = 1 << 30
};
enum overflow_outcome {
    OVERFLOW_CHECKED,
    OVERFLOW_NO_CASE,
    OVERFLOW_NO_MEMORY,
    OVERFLOW_TOO_SLOW
}; /* the outcome of several tries is the largest of theirs */
static const char *const overflow_omissions[] = {
    [OVERFLOW_NO_CASE] = "indices past 2^31: no small case could be made so large",
    [OVERFLOW_NO_MEMORY] = "indices past 2^31: neither the system nor a call had memory for them",
    [OVERFLOW_TOO_SLOW] = "indices past 2^31 beyond what a call touches in its first 100 ms",
};

/* Ends the process of an oversized call that takes too long. Handler of SIGPROF. */
static void memory_exit_on_timeout(int signal_number)
{
    (void)signal_number;
    _exit(EXIT_TOO_SLOW);
}

/* True if all bytes of a tensor's last MAX_SMALL_ELEMENTS elements have this value, that of the fill from before the call. */
static bool memory_end_is_filled_with(const dv_tensor *tensor, unsigned char value)
{
    const int64_t bytes = dv_dtype_bytes(tensor->dtype, 1), n = dv_numel(tensor);
    return memory_is_filled_with(
        (const unsigned char *)tensor->data + (n - MAX_SMALL_ELEMENTS) * bytes, (size_t)(MAX_SMALL_ELEMENTS * bytes), value);
}

/* Calls an oversized case with two fills of undefined memory, and fails the job if neither call writes the end of a result of
 * more than 2^31 elements. Exits with EXIT_NO_MEMORY if memory is out. */
static void memory_call_case_past_2_31(check_job *job, const check_case *oversized)
{
    static check_guarded_call call;
    char name[120];
    bool stays_unwritten[CHECK_MAX_RESULTS + CHECK_MAX_TENSORS] = { false };
    for (int turn = 0; turn < 2; turn++) {
        const int poison = turn ? SECOND_POISON : FIRST_POISON;
        if (!memory_try_call_kernel(job, oversized, CHECK_GUARD_AFTER, poison, &call)) {
            if (call.status == DV_ENOMEM)
                _exit(EXIT_NO_MEMORY);
            return;
        }
        size_t k = 0;
        for (check_result_iterator of = { 0 }; check_result_iterator_try_next(&call, &of); k++) {
            stays_unwritten[k] = dv_numel(of.t) > INT32_MAX && memory_end_is_filled_with(of.t, (unsigned char)poison) &&
                (!turn || stays_unwritten[k]);
            if (turn && stays_unwritten[k])
                check_fail(job, "unwritten",
                    "the kernel leaves the end of %s unwritten, which has %lld elements: more than 32 bits can count",
                    check_format_result_tensor(&call, &of, name, sizeof name), (long long)dv_numel(of.t));
        }
    }
}

/* Calls an oversized case in a forked process that ends after OVERSIZED_MS: a fault shows at once or not at all. Returns whether
 * the call was checked, too slow or lacked memory. */
static enum overflow_outcome memory_test_case_past_2_31(check_job *job, const check_case *oversized)
{
    check_result *r = job->result;
    int status = 0;
    const pid_t pid = check_fork();
    if (pid < 0)
        return OVERFLOW_NO_MEMORY;
    if (!pid) {
        const struct itimerval t = { .it_value = { 0, OVERSIZED_MS * 1000 } };
        setrlimit(RLIMIT_DATA,
            &(struct rlimit){ MAX_DATA_BYTES, MAX_DATA_BYTES }); /* the kernel's own allocations get no more memory than usual */
        signal(SIGPROF, memory_exit_on_timeout);
        setitimer(ITIMER_PROF, &t, NULL);
        memory_call_case_past_2_31(job, oversized);
        _exit(0);
    }
    r->helper_pid = (int32_t)pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    r->helper_pid = 0;
    const bool other_fault = r->fault_kind && r->fault_kind != CHECK_FAULT_MEMORY;
    if (other_fault) { /* an allocation of the operator may have failed, which is no failure of this property */
        r->fault_kind = 0;
        r->outcome = CHECK_OUTCOME_PASS;
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_NO_MEMORY;
    return code == EXIT_TOO_SLOW                ? OVERFLOW_TOO_SLOW
        : code == EXIT_NO_MEMORY || other_fault ? OVERFLOW_NO_MEMORY
                                                : OVERFLOW_CHECKED;
}

/* Calls the kernel once for each small tensor that can have elements 2^31 apart, with that layout. dim_choice: its parity selects
 * which dim gets the wide stride. Returns OVERFLOW_NO_CASE if no tensor can. */
static enum overflow_outcome memory_test_wide_strides(check_job *job, const check_case *c, uint32_t dim_choice)
{
    static check_case variant;
    static check_guarded_call call;
    enum overflow_outcome outcome = OVERFLOW_NO_CASE;
    for (size_t i = 0; i < c->ntensors && job->result->outcome == CHECK_OUTCOME_PASS; i++)
        if (c->tensors[i].present && !check_is_sub_byte_dtype(c->tensors[i].dtype) && check_tensor_numel(&c->tensors[i]) &&
            check_tensor_numel(&c->tensors[i]) <= MAX_SMALL_ELEMENTS && check_find_wide_stride_dim(&c->tensors[i]) >= 0) {
            variant = *c;
            variant.tensors[i].layout = CHECK_LAYOUT_WIDE_STRIDE;
            variant.tensors[i].layout_variant = dim_choice % 2;
            check_set_current_case(job, &variant);
            outcome = !memory_try_call_kernel(job, &variant, CHECK_GUARD_AFTER, FIRST_POISON, &call) && call.status == DV_ENOMEM
                ? OVERFLOW_NO_MEMORY
                : OVERFLOW_CHECKED;
        }
    return outcome;
}

/* Calls cases made from c with a tensor of more than 2^31 elements: first those in which only arguments that are read are so
 * large, then those with such an output. Returns the largest outcome. */
static enum overflow_outcome memory_test_oversized_cases(check_job *job, const check_case *c)
{
    static check_case variant;
    bool output_is_oversized, end = false;
    enum overflow_outcome outcome = OVERFLOW_NO_CASE;
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t k = 0; job->result->outcome == CHECK_OUTCOME_PASS; k++) {
            variant = *c;
            const bool made = check_try_enlarge_case_past_2_31(job->op, &variant, k, &output_is_oversized, &end);
            if (end)
                break;
            if (made && output_is_oversized == turn) {
                check_set_current_case(job, &variant);
                const enum overflow_outcome now = memory_test_case_past_2_31(job, &variant);
                outcome = outcome == OVERFLOW_NO_CASE || now > outcome ? now : outcome;
            }
        }
    return outcome;
}

/* small cases that were tried before the first check of large indices, and wait for it */
static check_case early_cases[MIN_SEEN_CASES];
static uint32_t nearly_cases;

/* Checks indices past 2^31. Each small case is called with wide strides, which takes little time but shows little where indices
 * are zero or sizes equal. Few cases are oversized. Records in the report what could not be checked. */
static void memory_check_index_overflow(check_job *job, const check_case *c)
{
    static enum overflow_outcome wide_stride_outcome = OVERFLOW_NO_CASE, beyond = OVERFLOW_NO_CASE;
    static uint32_t wide_stride_cases, oversized_cases;
    static check_case small;
    enum overflow_outcome outcome;
    small = *c;
    for (bool last = false; !last && wide_stride_outcome != OVERFLOW_NO_MEMORY && job->result->outcome == CHECK_OUTCOME_PASS;) {
        last = !nearly_cases;
        outcome = memory_test_wide_strides(job, last ? &small : &early_cases[--nearly_cases], wide_stride_cases);
        wide_stride_cases += outcome != OVERFLOW_NO_CASE;
        wide_stride_outcome = outcome == OVERFLOW_NO_CASE ? wide_stride_outcome : outcome;
    }
    if (job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    if (oversized_cases < MAX_OVERSIZED_CASES && (outcome = memory_test_oversized_cases(job, &small)) != OVERFLOW_NO_CASE) {
        beyond = outcome;
        oversized_cases = outcome != OVERFLOW_NO_MEMORY ? oversized_cases + 1 : MAX_OVERSIZED_CASES;
    }
    const enum overflow_outcome worst = wide_stride_outcome == OVERFLOW_NO_MEMORY ||
            (beyond == OVERFLOW_NO_CASE && wide_stride_outcome != OVERFLOW_NO_CASE)
        ? wide_stride_outcome
        : beyond;
    check_set_omitted(job, worst == OVERFLOW_CHECKED ? NULL : overflow_omissions[worst]);
}

/* True if a call of the case succeeds and changes an element of this tensor, which the operator may write. */
static bool memory_call_changes_tensor(check_job *job, const check_case *c, size_t tensor_index)
{
    static check_guarded_call call;
    return memory_try_call_kernel(job, c, CHECK_GUARD_AFTER, FIRST_POISON, &call) && check_has_written_argument(tensor_index);
}

/* Counts a case for a tensor that is declared to be written. counts: number of cases, and of those that changed the tensor. Fails
 * the job if none of MIN_SEEN_CASES did. list_position: "[0]" or "[-1]" for a tensor of a list, else "". */
static void memory_count_change(
    check_job *job, const check_case *c, uint32_t counts[2], size_t tensor_index, bool is_changed, const char *list_position)
{
    const size_t slot = check_find_tensor_slot(c, tensor_index);
    counts[1] += is_changed;
    if (++counts[0] < MIN_SEEN_CASES || counts[1] ||
        (counts[1] += check_holds_for_other_contents(job, c, memory_call_changes_tensor, tensor_index)))
        return;
    check_fail(job, "never written", "the schema says that the kernel writes argument '%s', and none of %d cases changes %s%s",
        job->op->slots[slot].name, MIN_SEEN_CASES, *list_position ? job->op->slots[slot].name : "it", list_position);
}

/* Fails the job if a tensor that is declared to be written is changed by no case. A tensor of a list counts by its index, and as
 * the last one. Not counted are tensors without elements, and single bytes, which are often the same. */
static void memory_check_never_written(check_job *job, const check_case *c)
{
    static uint32_t counts[CHECK_MAX_ARGS][MAX_LIST_POSITIONS + 1][2];
    for (size_t i = 0; i < c->ntensors && job->result->outcome == CHECK_OUTCOME_PASS; i++) {
        const size_t slot = check_find_tensor_slot(c, i), index = i - c->args[slot].first_tensor;
        const check_tensor *t = &c->tensors[i];
        if (!t->present || check_tensor_numel(t) < (t->dtype.bits < 16 ? 2 : 1) || !(job->op->slots[slot].flags & DV_SLOT_WRITES))
            continue;
        const bool list = c->args[slot].type == DV_VALUE_TENSORS, changed = check_has_written_argument(i);
        char which[24] = "";
        if (list)
            snprintf(which, sizeof which, "[%zu]", index);
        if (index < MAX_LIST_POSITIONS)
            memory_count_change(job, c, counts[slot][index], i, changed, which);
        if (list && index > 0 && index + 1 == c->args[slot].count && job->result->outcome == CHECK_OUTCOME_PASS)
            memory_count_change(job, c, counts[slot][MAX_LIST_POSITIONS], i, changed, "[-1]");
    }
}

/* Fails the job if outputs differ from first_outputs when undefined memory holds zeros, at the same addresses. */
static void memory_check_zeros(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    if (!memory_try_call_kernel(job, c, CHECK_GUARD_AFTER, ZERO_POISON, &call))
        return;
    memory_copy_outputs(&second_outputs, job, c, &call);
    if (!memory_has_same_outputs(job, &first_outputs, &second_outputs) && memory_depends_on_poison(job, c, ZERO_POISON, &call))
        memory_report_undefined(job, c, ZERO_POISON);
}

/* Checks one case by three calls with different fills of undefined memory and guard sides, as the head comment of this file says;
 * also indices past 2^31, if the case is small. */
static void memory_test_case(check_job *job, const check_case *c)
{
    static uint32_t attempts;
    static check_guarded_call call;
    if (!attempts++)
        check_set_omitted(job, overflow_omissions[OVERFLOW_NO_CASE]);
    const bool is_accepted = memory_try_call_kernel(job, c, CHECK_GUARD_AFTER, FIRST_POISON, &call);
    if (call.kernel_declined) {
        job->result->tried_cases--;
        return;
    }
    memory_check_stray_writes(job, c);
    if (check_heap_get_overlap_bytes())
        check_fail(job, "overlapping copy", "the kernel copies %zu bytes by memcpy() to memory that overlaps with where they are",
            check_heap_get_overlap_bytes());
    if (!is_accepted)
        check_count_refusal(job);
    else if (job->result->tried_cases) /* never-written arguments are not counted while a case is being shrunk */
        memory_check_never_written(job, c);
    memory_check_result_descriptors(job, &call, c);
    if (job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    memory_copy_outputs(&first_outputs, job, c, &call);
    if (is_accepted && memory_try_call_kernel(job, c, CHECK_GUARD_AFTER, SECOND_POISON, &call)) {
        memory_copy_outputs(&second_outputs, job, c, &call);
        if (memory_try_verify_written(job, c) && !job->op->is_nondeterministic &&
            !memory_has_same_outputs(job, &first_outputs, &second_outputs) &&
            memory_depends_on_poison(job, c, SECOND_POISON, &call))
            memory_report_undefined(job, c, SECOND_POISON);
    }
    if (job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    if (memory_try_call_kernel(job, c, CHECK_GUARD_BEFORE, ZERO_POISON, &call)) {
        memory_copy_outputs(&second_outputs, job, c, &call);
        memory_check_stray_writes(job, c);
        if (is_accepted && !job->op->is_nondeterministic && !memory_has_same_outputs(job, &first_outputs, &second_outputs))
            memory_check_zeros(job, c);
    }
    if (!job->max_cases || job->result->outcome != CHECK_OUTCOME_PASS || !job->op->contract || !is_accepted ||
        check_case_max_numel(c) <= 1 || check_case_max_numel(c) > MAX_SMALL_ELEMENTS)
        return;
    if (attempts > (job->max_cases / 2 < MIN_SEEN_CASES ? job->max_cases / 2 : MIN_SEEN_CASES))
        memory_check_index_overflow(job, c);
    else
        early_cases[nearly_cases++] = *c;
}

/* Returns why the property does not apply to a kernel: a decomposition has no memory of its own. NULL: it applies. */
static const char *memory_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    (void)op;
    return kernel->hook_index < 0 ? "the decomposition has no memory of its own" : NULL;
}

const check_property check_property_memory = {
    .name = "memory",
    .description = "nothing is read or written outside the tensors, no input is written, every element of a result is, nothing "
                   "undefined is read",
    .per_kernel = true,
    .reported_faults = CHECK_FAULT_MEMORY,
    .find_inapplicable_reason = memory_find_inapplicable_reason,
    .test_case = memory_test_case,
};
