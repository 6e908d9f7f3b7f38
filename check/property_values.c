/* Property values: a kernel computes what the reference kernel and the decomposition compute, in every layout, and leaves the
 * process state (signal mask, locale, floating-point environment) unchanged.
 *
 * The references of a case are the reference kernel, the decomposition, and the decomposition in f64 with one rounding at the
 * end. An element is checked where the references agree whether it is finite, which infinity, or NaN; for integers, where they
 * agree on the number. It must be within the tolerance of tolerance.c, widened by the distance between the references. Numbers
 * whose squares overflow may overflow or not. Errors of a narrow dtype must not all have one sign, however small they are.
 * Without a reference a kernel is compared with another kernel. A single kernel is compared with itself on contiguous tensors of
 * the same elements, which checks layouts only. */
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* largest tensor of a case that is compared with references: decompositions are slow. Larger cases only compare layouts */
enum { MAX_ELEMENTS = 1 << 17 };
/* factor: a difference from the reference is accepted up to this many times the change that a perturbation of the arguments
 * causes */
enum { MOVEMENT_FACTOR = 16 };
enum { MIN_BIAS_ELEMENTS = 256 }; /* number of elements from which on the mean error of an output is tested for a bias */
/* A mean error is a bias if it exceeds MIN_BIAS units in the last place and MIN_STANDARD_ERRORS standard errors. Truncation has
 * about 0.5 units. */
static const double MIN_BIAS = 0.08, MIN_STANDARD_ERRORS = 6;
enum { MAX_REFERENCES = 3, MAX_CANDIDATES = 64, MAX_OUTPUTS = CHECK_MAX_RESULTS + CHECK_MAX_TENSORS };

/* Copies of results and written arguments after a call, elements in row-major order. */
typedef struct value_output {
    char name[120];
    size_t slot;
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM], n;
    size_t at;
} value_output;
typedef struct value_outputs {
    size_t n;
    value_output t[MAX_OUTPUTS];
    unsigned char *data;
    size_t size, room;
} value_outputs;

typedef struct comparison {
    check_job *job;
    const check_case *c;
    const value_outputs *found, *references[MAX_REFERENCES];
    /* outputs of the first reference for perturbed and for unperturbed arguments. If arguments have 16 bits, both are computed in
     * f32. perturbed_reference is NULL until a difference is found */
    const value_outputs *perturbed_reference, *unperturbed_reference;
    const check_kernel *reference_kernels[MAX_REFERENCES];
    size_t n;
    const check_case *reference_case; /* the case with which the references were called: c, or c with contiguous tensors */
    /* has_overflow: some input element is so large that its square overflows. can_have_overflow: some 16-bit input may have such
     * an element */
    bool can_have_overflow, has_overflow;
    /* true if an input is filled with CHECK_FILL_BINADES: its sums depend on the order of additions, so integer outputs, such as
     * an argmax, are not compared */
    bool has_binades;
    bool has_negative_infinity; /* true if all elements of some input are -infinity */
    /* true if exactly one input element is NaN or an infinity. The order of products then decides whether a result is NaN or
     * infinity, so both are accepted */
    bool has_lone_special;
    /* true if the decomposition only moves elements and changes their signs; then signs of zeros are compared, too */
    bool only_moves_elements;
    /* true if some input element is a NaN whose only set fraction bit is the lowest. Then only an infinity in place of an
     * expected NaN is reported */
    bool has_low_payload_nan;
} comparison;

/* A difference between a kernel's output and a reference: its kind, such as "no NaN", and the message for the user. */
typedef struct value_difference {
    const char *kind;
    char message[700];
} value_difference;

static const check_kernel contiguous_kernel = { .name = "the same kernel on contiguous tensors", .hook_index = 0 };
static const check_kernel decomposition_kernel = { .name = "the decomposition", .hook_index = -1 },
                          decomposition_f64_kernel = { .name = "the decomposition in f64", .hook_index = -2 };

/* True if the operator has a reference kernel that this processor can run. */
static bool values_has_reference_kernel(const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->nkernels; i++)
        any |= op->kernels[i].is_reference && op->kernels[i].is_available;
    return any;
}

/* True if the operator has a decomposition. */
static bool values_has_decomposition(const check_op *op)
{
    const check_json *form = check_json_find_member(op->json, "native");
    return form && form->kind == CHECK_JSON_OBJECT;
}

/* True if an expression of the decomposition only moves elements or changes their signs, such as flip() or neg(). Then even the
 * sign of a zero is defined. */
static bool values_expr_only_moves_elements(const check_json *expr)
{
    static const char *const names[] = { "abs", "neg", "clone", "flip", "transpose", "cat", "index_select", "narrow", "slice",
        "reshape", "expand", "squeeze", "unsqueeze" };
    bool moves = true;
    if (check_json_is_expr(expr, "call")) {
        const check_json *name = check_json_find_element(expr, 1);
        const char *text = name && name->text ? name->text : "";
        moves = false;
        for (size_t i = 0; i < sizeof names / sizeof *names && !strncmp(text, "base::", 6) && !moves; i++) {
            const size_t n = strlen(names[i]);
            moves = !strncmp(text + 6, names[i], n) && (!text[6 + n] || text[6 + n] == '.');
        }
    }
    for (const check_json *operand = expr->kind == CHECK_JSON_ARRAY ? expr->child : NULL; operand && moves;
        operand = operand->next)
        moves = values_expr_only_moves_elements(operand);
    return moves;
}

/* True if the operator has a decomposition that writes no argument, and all its results only move elements or change their signs.
 */
static bool values_decomposition_only_moves_elements(const check_op *op)
{
    const check_json *form = check_json_find_member(op->json, "native"),
                     *results = form ? check_json_find_member(form, "results") : NULL,
                     *writes = form ? check_json_find_member(form, "writes") : NULL;
    return results && check_json_count_elements(results) && (!writes || !check_json_count_elements(writes)) &&
        values_expr_only_moves_elements(results);
}

/* True if some result is a view of an argument that the operator does not write. Such a view of the contract is compared with
 * what the decomposition in f64 computes. */
static bool values_has_view_result(const check_op *op)
{
    bool any = false;
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_slot_info *s = &op->slots[op->nargs + r];
        any |= s->alias >= 0 && !(op->slots[s->alias].flags & DV_SLOT_WRITES);
    }
    return any;
}

/* Lists what the outputs of `kernel` are compared with, best first: other reference kernels and the decomposition; without these,
 * all other kernels, unless `kernel` is the reference. Returns the number. Of several kernels in the list only the first that
 * accepts the case is used. */
static size_t values_list_references(const check_op *op, const check_kernel *kernel, const check_kernel **references)
{
    size_t n = 0;
    for (size_t i = 0; i < op->nkernels && n < MAX_CANDIDATES - 2; i++)
        if (&op->kernels[i] != kernel && op->kernels[i].is_reference && op->kernels[i].is_available)
            references[n++] = &op->kernels[i];
    if (values_has_decomposition(op) && (kernel->hook_index >= 0 || values_has_view_result(op)))
        references[n++] = &decomposition_f64_kernel;
    /* the result of the decomposition would be the same view, so a comparison would show nothing */
    if (values_has_decomposition(op) && kernel->hook_index >= 0 && !values_has_view_result(op))
        references[n++] = &decomposition_kernel;
    const bool others = !n && kernel->hook_index >= 0 && !kernel->is_reference;
    for (size_t i = op->nkernels; i-- > 0 && others && n < MAX_CANDIDATES;)
        if (&op->kernels[i] != kernel && op->kernels[i].is_available && op->kernels[i].hook_index >= 0)
            references[n++] = &op->kernels[i];
    return n;
}

/* ---- Calls, and copies of their outputs ---- */

/* Process state that a call must leave unchanged. */
typedef struct process_state {
    fenv_t floats;
    unsigned control; /* floating-point control bits, without the exception flags */
    int rounding;
    sigset_t mask;
    struct sigaction handlers[NSIG];
    uint64_t environment_hash; /* hash of the environment variables */
    char locale[256], directory[1024];
    cpu_set_t cpus;              /* processors on which the thread may run */
    int stdout_bytes;            /* bytes written to stdout */
    bool has_child;              /* true if there is a child process that was not waited for */
    bool has_intact_descriptors; /* true if the descriptors that the checker had opened are unchanged */
    bool has_descriptor;         /* true if the process can open one more descriptor */
    bool has_timer;              /* true if an alarm is set */
    mode_t umask_bits;
    struct rlimit limits[RLIM_NLIMITS];
    int modes[5]; /* results of personality(), of prctl() for dumpable, no new privileges and seccomp, and values_count_filters()
                   */
} process_state;

extern char **environ;

/* Returns the number of this thread's filters of system calls, to which the worker's own belongs; -1 if the system does not tell.
 */
static int values_count_filters(void)
{
    static const char name[] = "\nSeccomp_filters:";
    char text[4096] = "";
    const int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        *text = 0;
    if (fd >= 0)
        close(fd);
    const char *at = strstr(text, name);
    return at ? atoi(at + sizeof name - 1) : -1;
}

/* Reads the process state that a call must leave unchanged. */
static void values_read_process_state(process_state *state)
{
    memset(state, 0, sizeof *state);
    fegetenv(&state->floats);
    state->rounding = fegetround();
#if defined(__x86_64__)
    state->control = __builtin_ia32_stmxcsr() & 0xffc0u;
#endif
    pthread_sigmask(SIG_BLOCK, NULL, &state->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &state->handlers[i]);
    for (char **v = environ; v && *v; v++)
        for (const char *p = *v; *p; p++)
            state->environment_hash = state->environment_hash * 31 + (unsigned char)*p;
    if (!getcwd(state->directory, sizeof state->directory))
        *state->directory = 0;
    snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
    sched_getaffinity(0, sizeof state->cpus, &state->cpus);
    state->has_child = !waitid(P_ALL, 0, &(siginfo_t){ .si_pid = 0 }, WEXITED | WNOHANG | WNOWAIT);
    fflush(stdout);
    state->stdout_bytes = check_get_stdout_bytes();
    state->has_intact_descriptors = check_has_intact_descriptors();
    const int one = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    state->has_descriptor = one >= 0 || errno != EMFILE;
    if (one >= 0)
        close(one);
    struct itimerval remaining = { .it_value = { 0, 0 } };
    getitimer(ITIMER_REAL, &remaining);
    state->has_timer = remaining.it_value.tv_sec || remaining.it_value.tv_usec;
    umask(state->umask_bits = umask(0));
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((unsigned)i, &state->limits[i]);
    const int modes[] = { personality(0xffffffff), prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        prctl(PR_GET_SECCOMP), values_count_filters() };
    memcpy(state->modes, modes, sizeof modes);
}

/* Returns the name of the first resource limit in which two process states differ; "another one" for a rare limit. NULL: all
 * limits are equal. */
static const char *values_find_changed_limit_name(const process_state *before, const process_state *after)
{
    static const char *const names[RLIM_NLIMITS] = { [RLIMIT_CPU] = "RLIMIT_CPU",
        [RLIMIT_FSIZE] = "RLIMIT_FSIZE",
        [RLIMIT_DATA] = "RLIMIT_DATA",
        [RLIMIT_STACK] = "RLIMIT_STACK",
        [RLIMIT_CORE] = "RLIMIT_CORE",
        [RLIMIT_NPROC] = "RLIMIT_NPROC",
        [RLIMIT_NOFILE] = "RLIMIT_NOFILE",
        [RLIMIT_MEMLOCK] = "RLIMIT_MEMLOCK",
        [RLIMIT_AS] = "RLIMIT_AS" };
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (before->limits[i].rlim_cur != after->limits[i].rlim_cur || before->limits[i].rlim_max != after->limits[i].rlim_max)
            return names[i] ? names[i] : "another one";
    return NULL;
}

/* Fails the job if the process states before and after a kernel differ. Restores the floating-point environment and the signal
 * mask of `before`. Returns true if the job has not failed. */
static bool values_try_verify_process_state(check_job *job, const process_state *before, const process_state *after)
{
    fesetenv(&before->floats);
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
    if (after->rounding != before->rounding || after->control != before->control)
        check_fail(job, "environment", "the kernel leaves the floating-point environment changed: %s",
            after->rounding != before->rounding ? "another rounding mode"
                                                : "control bits, such as those that flush denormals to zero");
    if (strcmp(after->locale, before->locale))
        check_fail(
            job, "locale", "the kernel changes the locale of the process, from \"%s\" to \"%s\"", before->locale, after->locale);
    if (after->environment_hash != before->environment_hash)
        check_fail(job, "environment variables", "the kernel changes the environment variables of the process");
    if (strcmp(after->directory, before->directory))
        check_fail(job, "folder", "the kernel changes the current folder of the process");
    if (!CPU_EQUAL(&after->cpus, &before->cpus))
        check_fail(job, "processors", "the kernel leaves the thread bound to other processors: %d instead of %d",
            CPU_COUNT(&after->cpus), CPU_COUNT(&before->cpus));
    if (after->stdout_bytes > before->stdout_bytes)
        check_fail(job, "output", "the kernel writes to stdout, which belongs to the program (stderr is for messages)");
    if (before->has_intact_descriptors && !after->has_intact_descriptors)
        check_fail(job, "descriptors", "the kernel closes or replaces descriptors that it has not opened");
    if (before->has_descriptor && !after->has_descriptor)
        check_fail(job, "descriptors", "the kernel opens all descriptors that the process may have, and leaves them open");
    if (after->has_timer && !before->has_timer)
        check_fail(job, "timer", "the kernel leaves a timer running that will send SIGALRM");
    if (after->umask_bits != before->umask_bits)
        check_fail(job, "umask", "the kernel changes the umask of the process");
    if (values_find_changed_limit_name(before, after))
        check_fail(job, "limits", "the kernel changes a limit of the process: %s", values_find_changed_limit_name(before, after));
    if (memcmp(after->modes, before->modes, sizeof after->modes))
        check_fail(job, "modes", "the kernel changes how the process runs: its personality, or by prctl()");
    if (after->has_child && !before->has_child)
        check_fail(job, "child process", "the kernel starts a process and does not wait for it: it stays as a zombie");
    for (int i = 1; i < NSIG; i++)
        if (after->handlers[i].sa_handler != before->handlers[i].sa_handler)
            check_fail(job, "signal handler", "the kernel leaves another handler for signal %d (%s)", i, strsignal(i));
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&after->mask, i) != sigismember(&before->mask, i))
            check_fail(job, "signal mask", "the kernel leaves the thread's signal mask changed: signal %d (%s) is %sblocked", i,
                strsignal(i), sigismember(&after->mask, i) ? "" : "no longer ");
    return job->result->outcome == CHECK_OUTCOME_PASS;
}

/* Appends a copy of a tensor to `outputs`, its elements in row-major order. Skips a dtype of less than 8 bits, and a tensor past
 * MAX_OUTPUTS. Returns false if memory is out. */
static bool values_try_append_tensor(value_outputs *outputs, const dv_tensor *tensor, size_t slot, const char *name)
{
    const int64_t numel = dv_numel(tensor), element_bytes = dv_dtype_bytes(tensor->dtype, 1);
    int64_t index[DV_MAX_NDIM] = { 0 };
    const size_t needed = outputs->size + (size_t)(numel * element_bytes);
    if (tensor->dtype.bits < 8 || outputs->n == MAX_OUTPUTS)
        return true;
    if (needed > outputs->room) {
        unsigned char *larger = realloc(outputs->data, 2 * needed);
        if (!larger)
            return false;
        outputs->data = larger;
        outputs->room = 2 * needed;
    }
    value_output *to = &outputs->t[outputs->n++];
    *to = (value_output){ .dtype = tensor->dtype, .ndim = tensor->ndim, .n = numel, .at = outputs->size, .slot = slot };
    snprintf(to->name, sizeof to->name, "%s", name);
    memcpy(to->shape, tensor->shape, sizeof *tensor->shape * (size_t)tensor->ndim);
    if (numel && dv_tensor_is_contiguous(tensor))
        memcpy(outputs->data + outputs->size, tensor->data, (size_t)(numel * element_bytes));
    for (int64_t i = 0; i < numel && !dv_tensor_is_contiguous(tensor); i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < tensor->ndim; d++)
            at += index[d] * tensor->strides[d];
        memcpy(outputs->data + outputs->size + (size_t)(i * element_bytes), (const char *)tensor->data + at * element_bytes,
            (size_t)element_bytes);
        for (int32_t d = tensor->ndim; d-- > 0 && ++index[d] == tensor->shape[d];)
            index[d] = 0;
    }
    outputs->size = needed;
    return true;
}

/* Appends a result that is an int, float or bool to `outputs`, as a tensor without dims of dtype i64 or f64. Returns false if
 * memory is out. */
static bool values_try_append_number(value_outputs *outputs, const dv_value *number, size_t slot, const char *name)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 }, i64 = { .code = 0, .bits = 64, .lanes = 1 };
    double f = number->as.f;
    int64_t i = number->type == DV_VALUE_BOOL ? number->as.b : number->as.i;
    const bool real = number->type == DV_VALUE_FLOAT;
    const dv_tensor t = { .data = real ? (void *)&f : (void *)&i, .dtype = real ? f64 : i64 };
    return values_try_append_tensor(outputs, &t, slot, name);
}

/* Appends result r of a call to `outputs`: its tensor, the tensors of its list, or its number. An absent result appends nothing.
 * Returns false if memory is out. */
static bool values_try_append_result(value_outputs *outputs, const check_guarded_call *call, size_t result_index)
{
    const dv_value *v = &call->results[result_index];
    const int32_t alias = call->op->slots[call->op->nargs + result_index].alias;
    const size_t slot = alias >= 0 ? (size_t)alias : call->op->nargs + result_index;
    char result[80], name[120];
    check_format_result_name(call->op, result_index, result, sizeof result);
    switch (v->type) {
    case DV_VALUE_TENSOR: return !v->as.tensor || values_try_append_tensor(outputs, v->as.tensor, slot, result);
    case DV_VALUE_FLOAT:
    case DV_VALUE_INT:
    case DV_VALUE_BOOL: return values_try_append_number(outputs, v, slot, result);
    case DV_VALUE_TENSORS:
        /* a list that aliases an argument is copied with the written arguments */
        for (size_t i = 0; i < v->as.tensors.size && alias < 0; i++) {
            snprintf(name, sizeof name, "element %zu of %s", i, result);
            if (!values_try_append_tensor(outputs, v->as.tensors.data[i], slot, name))
                return false;
        }
        return true;
    default: return true;
    }
}

/* Replaces `outputs` by copies of all results and written arguments of a call. Returns false if memory is out. */
static bool values_try_copy_outputs(value_outputs *outputs, const check_guarded_call *call, const check_case *c)
{
    char name[80];
    outputs->n = outputs->size = 0;
    for (size_t r = 0; r < call->op->nresults; r++)
        if (!values_try_append_result(outputs, call, r))
            return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_find_tensor_slot(c, i);
        snprintf(name, sizeof name, "argument '%.60s'", call->op->slots[slot].name);
        if (c->tensors[i].present && call->op->slots[slot].flags & DV_SLOT_WRITES &&
            !values_try_append_tensor(outputs, check_get_last_tensor(i), slot, name))
            return false;
    }
    return true;
}

/* Calls a kernel with a case and copies results and written arguments to `outputs`. contents_from: the case whose elements the
 * tensors have. perturbation: relative change of each real element; 0: none. Returns false if the call failed or memory is out;
 * *call has the status. */
static bool values_try_call_with_contents(const check_job *job, const check_kernel *kernel, const check_case *c,
    const check_case *contents_from, enum check_guard_side guard_side, double perturbation, value_outputs *outputs,
    check_guarded_call *call)
{
    *call = (check_guarded_call){ .op = job->op,
        .kernel = kernel,
        .guard_side = guard_side,
        .poison_byte = 0xa5,
        .relative_perturbation = perturbation,
        .contents_from = contents_from == c ? NULL : contents_from };
    check_guarded_call_run(call, c);
    return !call->status && values_try_copy_outputs(outputs, call, c);
}

/* Calls a kernel with a case and copies results and written arguments to `outputs`. Returns false if the call failed or memory is
 * out; *call has the status. */
static bool values_try_call_kernel(
    const check_job *job, const check_kernel *kernel, const check_case *c, value_outputs *outputs, check_guarded_call *call)
{
    return values_try_call_with_contents(job, kernel, c, c, CHECK_GUARD_AFTER, 0, outputs, call);
}

/* ---- Comparing ---- */

enum number_class { CLASS_FINITE, CLASS_POSITIVE_INF, CLASS_NEGATIVE_INF, CLASS_NAN };
/* Returns the class of a number: finite, positive infinity, negative infinity or NaN. */
static enum number_class values_get_number_class(double x)
{
    return isnan(x) ? CLASS_NAN : !isinf(x) ? CLASS_FINITE : x > 0 ? CLASS_POSITIVE_INF : CLASS_NEGATIVE_INF;
}

/* Returns the address of the copied elements of output number t. */
static const unsigned char *values_get_bytes(const value_outputs *outputs, size_t t) { return outputs->data + outputs->t[t].at; }

/* True if some tensor of the case is filled with NaN or infinities on purpose. */
static bool values_case_has_special_values(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present &&
            (c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES || c->tensors[i].fill >= CHECK_FILL_LOW_PAYLOAD_NAN))
            return true;
    return false;
}

/* Appends to `message` the element of each argument that has the same shape as `output`, at the same index: " (there gate is 3,
 * up is NaN)". Appends nothing if no argument has this shape. */
static void values_append_argument_elements(
    const comparison *m, const value_output *output, int64_t element_index, char *message, size_t capacity)
{
    size_t length = strlen(message);
    const char *separator = " (there ";
    for (size_t i = 0; i < m->c->ntensors; i++) {
        const check_tensor *a = &m->c->tensors[i];
        char number[40];
        if (!a->present || a->ndim != output->ndim || memcmp(a->shape, output->shape, sizeof *a->shape * (size_t)output->ndim) ||
            !check_try_format_element(m->c, i, element_index, number, sizeof number))
            continue;
        length += (size_t)snprintf(message + length, capacity - length, "%s%s is %s", separator,
            m->job->op->slots[check_find_tensor_slot(m->c, i)].name, number);
        if (length >= capacity)
            return;
        separator = ", ";
    }
    if (*separator == ',')
        snprintf(message + length, capacity - length, ")");
}

/* Fills *difference with its kind and message. Its place is component `component_index` of all components of output
 * `output_index`; a complex element has 2. allowed: the tolerance, which the message names for the kind "other value". */
static void values_describe_difference(const comparison *m, size_t output_index, int64_t component_index, int ncomponents,
    double found, double expected, const char *kind, double allowed, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    char index[200], a[40], b[40], limit[60] = "";
    check_format_element_index(t->ndim, t->shape, component_index / ncomponents, index, sizeof index);
    check_format_number(found, values_get_bytes(m->found, output_index), component_index, t->dtype, a, sizeof a);
    check_format_number(expected, values_get_bytes(m->references[0], output_index), component_index, t->dtype, b, sizeof b);
    if (!strcmp(kind, "other value") && allowed > 0)
        snprintf(limit, sizeof limit, "; they may lie %.3g apart", allowed);
    const check_kernel *reference = m->reference_kernels[0];
    snprintf(difference->message, sizeof difference->message, "element [%s] of %s (%s) is %s%s, and %s%s gives %s%s", index,
        t->name, dv_dtype_name(t->dtype), a,
        ncomponents == 1          ? ""
            : component_index % 2 ? " (imaginary)"
                                  : " (real)",
        reference->hook_index > 0 ? "kernel " : "", reference->name, b, limit);
    values_append_argument_elements(m, t, component_index / ncomponents, difference->message, sizeof difference->message);
    difference->kind = kind;
}

/* True if two outputs have the same shape and dtype; their elements are not compared. */
static bool values_has_same_shape_and_dtype(const value_output *a, const value_output *b)
{
    return a->ndim == b->ndim && dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype) &&
        !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

/* True if some element of an output of integers or bools is unequal to the references, and all references agree on this element.
 * *difference receives the first such element. */
static bool values_exact_output_differs(const comparison *m, size_t output_index, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    const size_t size = (size_t)dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < t->n; i++) {
        const unsigned char *first = values_get_bytes(m->references[0], output_index) + (size_t)i * size;
        bool agree = memcmp(first, values_get_bytes(m->found, output_index) + (size_t)i * size, size) != 0;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = !memcmp(first, values_get_bytes(m->references[o], output_index) + (size_t)i * size, size);
        if (agree) {
            values_describe_difference(m, output_index, i, 1,
                check_element_get(values_get_bytes(m->found, output_index), i, t->dtype), check_element_get(first, 0, t->dtype),
                "other value", 0, difference);
            return true;
        }
    }
    return false;
}

/* True if it is no failure, for these inputs, that one of `found` and `expected` is finite, infinite or NaN and the other is not.
 */
static bool values_accepts_other_number_class(const comparison *m, double found, double expected, double max_finite)
{
    /* the author's reference kernel defines what inputs of -infinity give: the maximum of nothing is -inf, for example */
    const bool is_defined_by_author = m->has_negative_infinity && !m->has_lone_special && m->reference_kernels[0]->is_reference;
    if ((m->has_lone_special || m->has_negative_infinity) && !isfinite(found) && !isfinite(expected) &&
        !(is_defined_by_author && isnan(found)))
        return true;
    if (m->has_negative_infinity) /* where the reference gives NaN for an input of -infinity, a kernel may give a number */
        return isnan(expected);
    if (m->has_overflow || (m->can_have_overflow && !(isnan(expected) && isfinite(found) && fabs(found) < sqrt(max_finite))))
        return true;
    /* an infinity is accepted in place of a number near the largest finite one, and the reverse; a NaN is not */
    return !isinf(found) != !isinf(expected) && fabs(isinf(found) ? expected : found) >= 0.9 * max_finite;
}

/* Returns an allowed error: MOVEMENT_FACTOR times the change of the first reference's element when the arguments change by a few
 * units in the last place. Where it is large, as for a division by a sum near zero, no kernel can be accurate. Returns 0 if no
 * perturbed call was made. */
static double values_get_conditioning_tolerance(
    const comparison *m, size_t output_index, int64_t component_index, double equal_terms_factor)
{
    if (!m->perturbed_reference || output_index >= m->perturbed_reference->n || output_index >= m->unperturbed_reference->n ||
        !values_has_same_shape_and_dtype(&m->perturbed_reference->t[output_index], &m->unperturbed_reference->t[output_index]) ||
        m->perturbed_reference->t[output_index].n != m->found->t[output_index].n)
        return 0;
    dv_dtype dtype = m->perturbed_reference->t[output_index].dtype;
    check_get_component_count_and_dtype(&dtype);
    const double change = fabs(check_element_get(values_get_bytes(m->perturbed_reference, output_index), component_index, dtype) -
        check_element_get(values_get_bytes(m->unperturbed_reference, output_index), component_index, dtype));
    return isfinite(change) ? MOVEMENT_FACTOR * equal_terms_factor * change : INFINITY;
}

/* True if every reference has a zero at this place, whose sign is not that of the zero `found`. */
static bool values_is_zero_of_other_sign(
    const comparison *m, size_t output_index, int64_t component_index, dv_dtype dtype, double found)
{
    bool is_other = true;
    for (size_t o = 0; o < m->n && is_other; o++) {
        const double x = check_element_get(values_get_bytes(m->references[o], output_index), component_index, dtype);
        is_other = fpclassify(x) == FP_ZERO && !signbit(x) != !signbit(found);
    }
    return is_other;
}

/* True if some element of an output of real or complex numbers is farther from the references than the tolerance, or is NaN or an
 * infinity where the references agree on something else. *difference receives the first such element. */
static bool values_real_output_differs(const comparison *m, size_t output_index, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    const bool complex = t->dtype.code == 5, special = values_case_has_special_values(m->c);
    const int ncomponents = complex ? 2 : 1;
    const dv_dtype real = { .code = 2, .bits = (uint8_t)(t->dtype.bits / 2), .lanes = 1 }, dtype = complex ? real : t->dtype;
    const check_tolerance tolerance = check_get_tolerance(m->job->op, m->c, t->dtype, t->n, m->n == 1);
    const double largest = check_get_max_finite(dtype);
    double spread = 0;
    for (int64_t i = 0; i < t->n * ncomponents && m->n > 1; i++)
        for (size_t o = 1; o < m->n; o++) {
            const double distance = fabs(check_element_get(values_get_bytes(m->references[o], output_index), i, dtype) -
                check_element_get(values_get_bytes(m->references[0], output_index), i, dtype));
            spread = isfinite(distance) && distance > spread ? distance : spread;
        }
    for (int64_t i = 0; i < t->n * ncomponents; i++) {
        const double found = check_element_get(values_get_bytes(m->found, output_index), i, dtype),
                     expected = check_element_get(values_get_bytes(m->references[0], output_index), i, dtype);
        bool agree = true;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = values_get_number_class(check_element_get(values_get_bytes(m->references[o], output_index), i, dtype)) ==
                values_get_number_class(expected);
        if (!agree)
            continue;
        const double allowed = tolerance.atol + tolerance.rtol * fabs(expected) + 2 * spread +
            values_get_conditioning_tolerance(m, output_index, i, tolerance.equal_terms_factor);
        if (values_get_number_class(found) != values_get_number_class(expected)) {
            if (m->has_low_payload_nan ? !isnan(expected) || !isinf(found)
                                       : values_accepts_other_number_class(m, found, expected, largest))
                continue;
            values_describe_difference(m, output_index, i, ncomponents, found, expected,
                isnan(found)          ? "NaN"
                    : isnan(expected) ? "no NaN"
                                      : "infinity",
                allowed, difference);
            return true;
        }
        if (isfinite(found) && !special && fabs(found - expected) > allowed) {
            values_describe_difference(m, output_index, i, ncomponents, found, expected, "other value", allowed, difference);
            return true;
        }
        if (m->only_moves_elements && fpclassify(found) == FP_ZERO &&
            values_is_zero_of_other_sign(m, output_index, i, dtype, found)) {
            values_describe_difference(m, output_index, i, ncomponents, found, expected, "sign of zero", 0, difference);
            return true;
        }
    }
    return false;
}

/* True if some output differs from the references by more than the tolerance; *difference receives the first. Nothing is compared
 * if the references differ in number, shapes or dtypes of their outputs. */
static bool values_outputs_differ(const comparison *m, value_difference *difference)
{
    for (size_t o = 1; o < m->n; o++) /* references that differ in shapes or dtypes cannot be compared with */
        for (size_t k = 0; k < m->references[0]->n; k++)
            if (m->references[o]->n != m->references[0]->n ||
                !values_has_same_shape_and_dtype(&m->references[o]->t[k], &m->references[0]->t[k]))
                return false;
    for (size_t k = 0; k < m->found->n && k < m->references[0]->n; k++) {
        const value_output *a = &m->found->t[k], *b = &m->references[0]->t[k];
        if (!values_has_same_shape_and_dtype(a, b)) {
            /* another dtype is no difference: without a contract the decomposition in f64 returns f64 */
            if (dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype))
                return false;
            snprintf(difference->message, sizeof difference->message, "%s has %lld elements, and %s%s gives %lld", a->name,
                (long long)a->n, m->reference_kernels[0]->hook_index > 0 ? "kernel " : "", m->reference_kernels[0]->name,
                (long long)b->n);
            difference->kind = "other size";
            return true;
        }
        if (check_is_integer_dtype(a->dtype)
                ? !m->has_low_payload_nan && !m->has_binades && values_exact_output_differs(m, k, difference)
                : (check_is_float_dtype(a->dtype) || a->dtype.code == 5) && values_real_output_differs(m, k, difference))
            return true;
    }
    return false;
}

/* ---- One case ---- */

/* Returns a comparison for the outputs `found` of a case, as yet without references. Sets the flags that follow from the fills of
 * the case's tensors. */
static comparison values_make_comparison(check_job *job, const check_case *c, const value_outputs *found)
{
    comparison m = { .job = job,
        .c = c,
        .reference_case = c,
        .found = found,
        .only_moves_elements = values_decomposition_only_moves_elements(job->op) };
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool special = c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES;
        m.has_overflow |= special && (c->seed + i) % 2;
        m.has_lone_special |= special && (c->seed + i) % 4 == CHECK_SEED_LONE_SPECIAL;
        m.has_binades |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_BINADES;
        m.has_negative_infinity |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_NEGATIVE_INFINITY;
        m.can_have_overflow |= special && c->tensors[i].dtype.bits <= 16;
        m.has_low_payload_nan |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_LOW_PAYLOAD_NAN;
    }
    return m;
}

/* Returns a copy of a case with NaNs of CHECK_FILL_LOW_PAYLOAD_NAN in place of other special values, and makes it the job's
 * current case. Returns c itself unless squares of its numbers overflow, and for every second such case. */
static const check_case *values_select_case_with_low_payload_nan(check_job *job, const check_case *c)
{
    static check_case out;
    const comparison m = values_make_comparison(job, c, NULL);
    if (!m.has_overflow || c->seed / 2 % 2)
        return c;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        if (out.tensors[i].fill == CHECK_FILL_SPECIAL_VALUES)
            out.tensors[i].fill = CHECK_FILL_LOW_PAYLOAD_NAN;
    check_set_current_case(job, &out);
    return &out;
}

/* True if all tensors of a case are contiguous. */
static bool values_has_contiguous_layouts(const check_case *c)
{
    bool is_contiguous = true;
    for (size_t i = 0; i < c->ntensors; i++)
        is_contiguous &= !c->tensors[i].present || !c->tensors[i].layout;
    return is_contiguous;
}

/* Returns a copy of a case with contiguous tensors, in static memory that the next call overwrites. */
static const check_case *values_get_contiguous_copy(const check_case *c)
{
    static check_case out;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        out.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
    return &out;
}

/* Calls the references of job->kernel with a case, copies their outputs to reference_outputs, and enters those that accept the
 * case in *m. Returns their number. Fails the job if a reference kernel or the decomposition refuses a case that the kernel has
 * computed. */
static size_t values_call_references(check_job *job, const check_case *c, value_outputs *reference_outputs, comparison *m)
{
    static check_guarded_call call;
    const check_kernel *kernels[MAX_CANDIDATES];
    const size_t n = values_list_references(job->op, job->kernel, kernels);
    m->n = 0;
    for (size_t o = 0; o < n; o++)
        if (kernels[o]->hook_index > 0 && m->n)
            continue;
        else if (values_try_call_kernel(job, kernels[o], c, &reference_outputs[m->n], &call)) {
            m->reference_kernels[m->n] = kernels[o];
            m->references[m->n] = &reference_outputs[m->n];
            m->n++;
        } else if ((kernels[o] == &decomposition_kernel || kernels[o]->is_reference) && !call.kernel_declined &&
            call.status != DV_ENOMEM) {
            check_fail(job, kernels[o] == &decomposition_kernel ? "decomposition fails" : "reference fails",
                "this kernel computes what %s refuses: %s",
                kernels[o] == &decomposition_kernel ? "the decomposition" : "the reference kernel", dv_last_error());
        } else if (!call.kernel_declined) {
            snprintf(job->result->last_refusal, sizeof job->result->last_refusal, "%s: %s", kernels[o]->name, dv_last_error());
        }
    return m->n;
}

/* True if the outputs differ from the references by more than tolerance and sensitivity to the inputs explain; *difference
 * receives how. Only after a first difference it calls the reference with perturbed arguments, to measure the sensitivity. */
static bool values_differ_beyond_noise(check_job *job, comparison *m, value_difference *difference)
{
    const check_case *c = m->reference_case;
    static check_guarded_call call;
    static check_case in_f32;
    static value_outputs perturbed_outputs, unperturbed_outputs;
    const check_kernel *reference = m->reference_kernels[0] == &contiguous_kernel ? job->kernel : m->reference_kernels[0];
    bool wide_inputs = true, expanded = false;
    if (!values_outputs_differ(m, difference))
        return false;
    if (strcmp(difference->kind, "other value"))
        return true;
    /* elements of an expanded tensor share memory, so they would be perturbed together */
    for (size_t i = 0; i < c->ntensors; i++)
        expanded |= c->tensors[i].present && c->tensors[i].layout == CHECK_LAYOUT_EXPANDED;
    for (size_t i = 0; i < c->ntensors; i++)
        wide_inputs &= !check_is_float_dtype(c->tensors[i].dtype) || check_get_max_finite(c->tensors[i].dtype) > FLT_MAX;
    const check_case *const perturbed_case = expanded ? values_get_contiguous_copy(c) : c;
    const double perturbation = wide_inputs ? 0x1p-51 : 0x1p-22;
    if (check_try_widen_16_bit_floats(job->op, perturbed_case, &in_f32) &&
        values_try_call_with_contents(job, reference, &in_f32, m->c, CHECK_GUARD_AFTER, 0, &unperturbed_outputs, &call) &&
        values_try_call_with_contents(job, reference, &in_f32, m->c, CHECK_GUARD_AFTER, perturbation, &perturbed_outputs,
            &call)) { /* 16-bit floats are converted to f32 first: rounding to 16 bits would undo so small a change */
        m->perturbed_reference = &perturbed_outputs;
        m->unperturbed_reference = &unperturbed_outputs;
    } else if (values_try_call_with_contents(
                   job, reference, perturbed_case, m->c, CHECK_GUARD_AFTER, perturbation, &perturbed_outputs, &call)) {
        m->perturbed_reference = &perturbed_outputs;
        m->unperturbed_reference = m->references[0];
    }
    return values_outputs_differ(m, difference);
}

/* Fails the job with a difference. is_layout_fault: the kernel is right for contiguous tensors, so the layout is reported as the
 * cause. */
static void values_report_difference(check_job *job, const value_difference *difference, bool is_layout_fault)
{
    check_fail(job, is_layout_fault ? "layout" : difference->kind, "%s%s", difference->message,
        is_layout_fault ? "; with contiguous tensors the kernel is right: it depends on the layout" : "");
}

/* True if the kernel, called with the same elements in contiguous tensors, agrees with the references of `m`. False, too, if this
 * call fails. */
static bool values_is_right_when_contiguous(check_job *job, const check_case *c, const comparison *m)
{
    static check_guarded_call call;
    static value_outputs contiguous_outputs;
    value_difference d;
    comparison other = *m;
    other.found = &contiguous_outputs;
    return values_try_call_with_contents(
               job, job->kernel, values_get_contiguous_copy(c), c, CHECK_GUARD_AFTER, 0, &contiguous_outputs, &call) &&
        !values_outputs_differ(&other, &d);
}

/* Fails the job if the kernel's outputs `found` differ from its outputs for contiguous tensors of the same elements. Does nothing
 * for a nondeterministic operator, or if all tensors are contiguous already. other: memory for the outputs of further calls. */
static void values_check_layouts(check_job *job, const check_case *c, const value_outputs *found, value_outputs *other_outputs)
{
    static check_guarded_call call;
    value_difference difference;
    if (job->op->is_nondeterministic || values_has_contiguous_layouts(c) ||
        !values_try_call_with_contents(
            job, job->kernel, values_get_contiguous_copy(c), c, CHECK_GUARD_AFTER, 0, other_outputs, &call))
        return;
    comparison m = values_make_comparison(job, c, found);
    m.reference_case = values_get_contiguous_copy(c);
    m.references[0] = other_outputs;
    m.reference_kernels[0] = &contiguous_kernel;
    m.n = 1;
    if (!values_differ_beyond_noise(job, &m, &difference))
        return;
    value_difference differs_elsewhere;
    /* if the same call at other addresses differs, too, the layout is not the cause */
    if (values_try_call_with_contents(job, job->kernel, c, c, CHECK_GUARD_BEFORE, 0, other_outputs, &call) &&
        !values_outputs_differ(&m, &differs_elsewhere))
        values_report_difference(job, &difference, true);
}

/* Fails the job if the errors of a narrow dtype have a bias: a mean away from zero, in units in the last place. Correct rounding
 * has a mean near 0, however inaccurate the kernel is. Large errors come from cancellation and are left to the tolerance. */
static void values_check_bias(check_job *job, const comparison *m)
{
    size_t best = 0;
    /* the contract declares how inexact the kernel is */
    if (m->job->op->rtol >= 0 || m->job->op->atol >= 0 || m->job->op->rounded_tolerance > 0) {
        for (size_t k = 0; k < m->found->n; k++)
            if (check_is_float_dtype(m->found->t[k].dtype) && m->found->t[k].dtype.bits <= 16)
                check_set_omitted(job, "a bias of the rounding, as the contract declares rtol, atol or rounded");
        return;
    }
    for (size_t o = 0; o < m->n; o++)
        best = m->reference_kernels[o] == &decomposition_f64_kernel ? o : best;
    for (size_t k = 0; k < m->found->n && k < m->references[best]->n; k++) {
        const value_output *t = &m->found->t[k];
        const double u = 2 * check_get_unit_roundoff(t->dtype), least = ldexp(1, -10);
        double sum = 0, squares = 0, n = 0;
        if (!check_is_float_dtype(t->dtype) || t->dtype.bits > 16 || values_case_has_special_values(m->c))
            continue;
        for (int64_t i = 0; i < t->n; i++) {
            const double expected = check_element_get(values_get_bytes(m->references[best], k), i, t->dtype),
                         found = check_element_get(values_get_bytes(m->found, k), i, t->dtype);
            if (!isfinite(expected) || fabs(expected) < least)
                continue;
            const double off = (found - expected) / ldexp(u, ilogb(expected)) * (expected < 0 ? -1 : 1);
            if (!(fabs(off) <= 2)) /* NaN, too */
                continue;
            sum += off;
            squares += off * off;
            n++;
        }
        const double mean = sum / n;
        if (n < MIN_BIAS_ELEMENTS || fabs(mean) < MIN_BIAS ||
            fabs(mean) * sqrt(n) < MIN_STANDARD_ERRORS * sqrt(squares / n - mean * mean))
            continue;
        check_fail(job, "bias",
            "the elements of %s (%s) lie %.2f units in the last place %s zero than those of %s%s, in the mean of %.0f: they are "
            "not rounded to nearest",
            t->name, dv_dtype_name(t->dtype), fabs(mean), sum < 0 ? "nearer to" : "farther from",
            m->reference_kernels[best]->hook_index > 0 ? "kernel " : "", m->reference_kernels[best]->name, n);
        return;
    }
}

/* Returns the outputs of a reference of the comparison. NULL: this reference was not called, or refused the case. */
static const value_outputs *values_find_reference_outputs(const comparison *m, const check_kernel *kernel)
{
    for (size_t o = 0; o < m->n; o++)
        if (m->reference_kernels[o] == kernel)
            return m->references[o];
    return NULL;
}

/* Returns the entry of result->accuracy for a dtype, or else the first unused entry. NULL: all entries belong to other dtypes. */
static check_accuracy *values_find_accuracy_entry(check_result *result, dv_dtype dtype)
{
    for (size_t i = 0; i < CHECK_MAX_ACCURACIES; i++)
        if (!result->accuracy[i].dtype.bits || dv_dtype_key(result->accuracy[i].dtype) == dv_dtype_key(dtype))
            return &result->accuracy[i];
    return NULL;
}

/* Records in the job's result the largest error of each dtype against the decomposition in f64, in units in the last place. Only
 * dtypes narrower than f64 are measured, and elements for which the decomposition in the kernel's dtypes is near: other elements
 * are small differences of large numbers, where no kernel is accurate. Expected zeros, and elements below the declared atol, are
 * left out. */
static void values_measure_accuracy(const comparison *m)
{
    enum { NEAR = 16 };
    const value_outputs *in_f64 = values_find_reference_outputs(m, &decomposition_f64_kernel),
                        *decomposition_outputs = values_find_reference_outputs(m, &decomposition_kernel);
    for (size_t k = 0; in_f64 && decomposition_outputs && k < m->found->n && k < decomposition_outputs->n &&
        !values_case_has_special_values(m->c);
        k++) {
        const value_output *t = &m->found->t[k];
        const dv_dtype_row *form = dv_dtype_find(t->dtype);
        check_accuracy *a = check_is_float_dtype(t->dtype) && t->dtype.bits < 64
            ? values_find_accuracy_entry(m->job->result, t->dtype)
            : NULL;
        for (int64_t i = 0; a && form && i < t->n; i++) {
            const double expected = check_element_get(values_get_bytes(in_f64, k), i, t->dtype), size = fabs(expected),
                         unit = ldexp(2 * check_get_unit_roundoff(t->dtype),
                             size > 0 ? (int)fmax(ilogb(size), 1 - form->bias) : 1 - form->bias),
                         off = fabs(check_element_get(values_get_bytes(m->found, k), i, t->dtype) - expected) / unit,
                         others = fabs(check_element_get(values_get_bytes(decomposition_outputs, k), i, t->dtype) - expected) /
                unit;
            if (isfinite(off) && others <= NEAR && size > fmax(m->job->op->atol, 0))
                *a = (check_accuracy){ t->dtype, fmax(a->max_error_ulp, off) };
        }
    }
}

static uint32_t compared_cases; /* number of this child's cases in which elements were compared with a reference */

bool check_try_make_lone_special_case(const check_op *op, const check_case *c, check_case *out)
{
    enum { MAX_LONE_ELEMENTS = 256, NEAR = 2 };
    const bool one = c->plan_index % 2 || check_case_max_numel(c) > 1, lowest = c->plan_index % 4 == 3;
    /* number of this case among those that do not get -infinity everywhere */
    const uint64_t turn = c->plan_index / 4 * 3 + c->plan_index % 4;
    bool any = false;
    if (values_case_has_special_values(c) || check_case_max_numel(c) > MAX_LONE_ELEMENTS)
        return false;
    *out = *c;
    for (size_t k = 0; k < c->ntensors; k++) {
        const size_t i = (c->plan_index + turn / CHECK_LONE_VARIANTS + k) % c->ntensors;
        check_tensor *t = &out->tensors[i];
        if (!t->present || check_is_integer_dtype(t->dtype) || !check_tensor_numel(t))
            continue;
        if (t->low > NEAR || t->high < -NEAR)
            return false;
        t->low = fmax(t->low, -NEAR);
        t->high = fmin(t->high, NEAR);
        if (any && one)
            continue;
        any = true;
        t->fill = !one ? CHECK_FILL_FIRST_INFINITE : lowest ? CHECK_FILL_NEGATIVE_INFINITY : CHECK_FILL_SPECIAL_VALUES;
        out->seed = c->seed / (4 * CHECK_LONE_VARIANTS) * (4 * CHECK_LONE_VARIANTS) + turn % CHECK_LONE_VARIANTS * 4 +
            CHECK_SEED_LONE_SPECIAL - i;
    }
    return any && (!op->has_element_facts || check_is_accepted(op, out));
}

/* Fails the job if a bool element is a byte other than 0 and 1, since hosts add booleans or compare them with 1. Returns true if
 * such a byte was reported. */
static bool values_try_report_invalid_boolean(check_job *job, const value_outputs *found)
{
    for (size_t k = 0; k < found->n; k++) {
        const value_output *t = &found->t[k];
        for (int64_t i = 0; i < t->n && t->dtype.code == 6 && t->dtype.bits == 8; i++)
            if (values_get_bytes(found, k)[i] > 1) {
                char index[200];
                check_format_element_index(t->ndim, t->shape, i, index, sizeof index);
                check_fail(job, "no boolean", "element [%s] of %s (bool) is the byte %d: true is 1, and no other byte", index,
                    t->name, values_get_bytes(found, k)[i]);
                return true;
            }
    }
    return false;
}

/* Checks one case: calls the kernel, and compares the process state before and after, and the outputs with references or with
 * contiguous layouts. Without a reference it also runs the checks of dependence.c, wider_dtypes.c and size_independence.c. */
static void values_check_one_case(check_job *job, const check_case *input_case)
{
    static check_guarded_call call;
    static value_outputs found, reference_outputs[MAX_REFERENCES];
    value_difference difference;
    process_state before, after;
    const bool is_large = check_case_max_numel(input_case) > MAX_ELEMENTS;
    if (is_large && values_has_contiguous_layouts(input_case)) {
        job->result->tried_cases--;
        if (job->repeat && job->repeat->repeats_one_case) {
            check_report_unchecked(job,
                "values checks tensors of more than %d elements only in layouts that are not contiguous: give the case smaller "
                "tensors",
                MAX_ELEMENTS);
            job->result->nothing_checked = true;
        }
        return;
    }
    const check_case *c = values_select_case_with_low_payload_nan(job, input_case);
    values_read_process_state(&before);
    const bool is_accepted = values_try_call_kernel(job, job->kernel, c, &found, &call);
    values_read_process_state(&after);
    if (call.kernel_declined) {
        job->result->tried_cases--;
        return;
    }
    if (!values_try_verify_process_state(job, &before, &after))
        return;
    if (!is_accepted) {
        check_count_refusal(job);
        return;
    }
    comparison m = values_make_comparison(job, c, &found);
    const bool no_reference = !values_has_reference_kernel(job->op) && !values_has_decomposition(job->op);
    if (job->kernel->hook_index > 0 && no_reference && found.size)
        check_unread_arguments(job, c);
    if (job->op->is_nondeterministic || found.size > 8 * (size_t)(is_large ? CHECK_DEFAULT_MAX_ELEMENTS : MAX_ELEMENTS))
        return;
    if (is_large) {
        values_check_layouts(job, c, &found, &reference_outputs[0]);
        return;
    }
    if (!values_call_references(job, c, reference_outputs, &m))
        values_check_layouts(job, c, &found, &reference_outputs[0]);
    else if (values_differ_beyond_noise(job, &m, &difference))
        values_report_difference(
            job, &difference, !values_has_contiguous_layouts(c) && values_is_right_when_contiguous(job, c, &m));
    else
        values_check_bias(job, &m), values_measure_accuracy(&m);
    if (job->result->outcome == CHECK_OUTCOME_PASS && !values_try_report_invalid_boolean(job, &found) &&
        job->kernel->hook_index >= 0)
        check_overlapping_arguments(job, c);
    if (job->result->outcome == CHECK_OUTCOME_PASS && job->kernel->hook_index > 0)
        check_unused_arguments(job, c);
    if (job->kernel->hook_index > 0 && no_reference) {
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_dependence(job, c);
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_wider_dtypes(job, c);
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            check_size_independence(job, c);
    }
    compared_cases += m.n && found.size;
    if (m.n && no_reference)
        check_set_omitted(job, "a reference: values were compared among kernels only");
}

/* Checks a case, and if it passes, a copy with one NaN or infinity. While a failing case is being shrunk, there is no copy. */
static void values_test_case(check_job *job, const check_case *input_case)
{
    static check_case lone_special_case;
    const uint32_t ncases = job->result->tried_cases; /* number of cases tried so far; 0 while a failing case is being shrunk */
    values_check_one_case(job, input_case);
    const uint32_t nrefused = job->result->refused_cases;
    if (!ncases || job->result->outcome != CHECK_OUTCOME_PASS || job->result->tried_cases != ncases ||
        !check_try_make_lone_special_case(job->op, input_case, &lone_special_case))
        return;
    check_set_current_case(job, &lone_special_case);
    values_check_one_case(job, &lone_special_case);
    job->result->refused_cases = nrefused;
}

/* Returns why no element of this kernel was compared with a reference. NULL: elements were compared. */
static const char *values_find_incomplete_reason(const check_op *op, const check_kernel *kernel)
{
    const check_kernel *kernels[MAX_CANDIDATES];
    if (op->is_nondeterministic)
        return "it is nondeterministic";
    if (!values_list_references(op, kernel, kernels))
        return kernel->is_reference
            ? "it is the reference, and there is no decomposition to compare it with (only layouts were compared)"
            : "there is nothing to compare with: no reference kernel and no decomposition (only layouts were "
              "compared)";
    return compared_cases
        ? NULL
        : "no case had a result with an element and another kernel, or a decomposition, that takes the same arguments";
}

/* Returns why the property does not apply to a kernel: the decomposition is what kernels are compared with. NULL: the property
 * applies. */
static const char *values_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    return kernel->hook_index < 0 && !values_has_view_result(op) ? "the decomposition is what kernels are compared with" : NULL;
}

const check_property check_property_values = {
    .name = "values",
    .description = "each kernel gives what the reference kernel and the decomposition give, within tolerance, in every layout",
    .per_kernel = true,
    .find_inapplicable_reason = values_find_inapplicable_reason,
    .test_case = values_test_case,
    .find_incomplete_reason = values_find_incomplete_reason,
    .is_unchecked_if_kernel_unsound = true,
};
