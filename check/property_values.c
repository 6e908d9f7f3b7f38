/* values: what a row computes is what the reference row and the native form compute, whatever the layout, and the signal mask,
 * the locale and the processor's floating-point environment are afterwards as they were.
 *
 * The opinions on a case are the reference row's, the native form's, and the native form's in f64 with one rounding at the end.
 * An element is checked where they agree whether it is finite, which infinity or NaN (integers: on the number), within the rule
 * of tolerance.c widened by how far they lie apart. Numbers so large that their squares overflow may overflow or not. Errors of a
 * narrow type may not all go one way, however small they are. Without any opinion a row is compared with another one; where it is
 * alone, with itself on contiguous tensors of the same elements, which says something of layouts only. */
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

enum { MOST_ELEMENTS = 1 << 17 };          /* of one tensor: native forms are slow. Of larger ones layouts are compared */
enum { MOVEMENT = 16 };                    /* that so many times as far is explained */
enum { FEWEST = 256 };                     /* elements from which a bias is told */
static const double BIAS = 0.08, SURE = 6; /* units in the last place: cutting off is 0.5 where all is rounded; standard errors */
enum { OPINIONS = 3, ASKED = 64, KEPT = CHECK_RESULTS + CHECK_TENSORS };

/* What a call left in results and written arguments, elements in the order of their indices. */
typedef struct kept_tensor {
    char name[120];
    size_t slot;
    dv_dtype dtype;
    int32_t ndim;
    int64_t shape[DV_MAX_NDIM], n;
    size_t at;
} kept_tensor;
typedef struct kept {
    size_t n;
    kept_tensor t[KEPT];
    unsigned char *data;
    size_t size, room;
} kept;

typedef struct comparison {
    check_job *job;
    const check_case *c;
    const kept *found, *opinions[OPINIONS];
    const kept *moved, *still; /* the first opinion on slightly changed arguments, and on the same without the change, both in f32
                                * where the arguments have 16 bits; moved NULL: not computed yet */
    const check_row *rows[OPINIONS];
    size_t n;
    const check_case *asked; /* the case that the opinions are on: c, or the same contiguous */
    bool wild, extreme;      /* some number that goes in may be so large that its square overflows; that is sure */
    bool binades;            /* large and small numbers go in: their sums in another order may be in another order themselves */
    bool lowest;             /* all elements of a tensor are -infinity */
    bool lone;       /* one element is NaN or an infinity: which of the two comes of it depends on the order of products */
    bool signs;      /* the native form only moves elements and changes their signs */
    bool signalling; /* some NaN that goes in is one that C's fmax() and a comparison do not treat alike */
} comparison;

/* A difference, in words. */
typedef struct difference {
    const char *kind;
    char message[700];
    double rtol, atol;
    size_t slot;
    bool shows;
} difference;

static const check_row itself = { .name = "the same row on contiguous tensors", .index = 0 };
static const check_row native = { .name = "the native form", .index = -1 },
                       wide = { .name = "the native form in f64", .index = -2 };

static bool has_reference(const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < op->nrows; i++)
        any |= op->rows[i].reference && op->rows[i].available;
    return any;
}

static bool has_native(const check_op *op)
{
    const check_json *form = check_json_get(op->json, "native");
    return form && form->kind == CHECK_OBJECT;
}

/* Does an expression of the native form only move elements and change their signs? Then not even the sign of a zero is open. */
static bool only_moves(const check_json *x)
{
    static const char *const names[] = { "abs", "neg", "clone", "flip", "transpose", "cat", "index_select", "narrow", "slice",
        "reshape", "expand", "squeeze", "unsqueeze" };
    bool moves = true;
    if (check_json_is(x, "call")) {
        const check_json *name = check_json_at(x, 1);
        const char *text = name && name->text ? name->text : "";
        moves = false;
        for (size_t i = 0; i < sizeof names / sizeof *names && !strncmp(text, "base::", 6) && !moves; i++) {
            const size_t n = strlen(names[i]);
            moves = !strncmp(text + 6, names[i], n) && (!text[6 + n] || text[6 + n] == '.');
        }
    }
    for (const check_json *part = x->kind == CHECK_ARRAY ? x->child : NULL; part && moves; part = part->next)
        moves = only_moves(part);
    return moves;
}

static bool native_only_moves(const check_op *op)
{
    const check_json *form = check_json_get(op->json, "native"), *results = form ? check_json_get(form, "results") : NULL,
                     *writes = form ? check_json_get(form, "writes") : NULL;
    return results && check_json_size(results) && (!writes || !check_json_size(writes)) && only_moves(results);
}

/* Has it a result that the contract makes as a view of an argument? The native form says it a second time. */
static bool gives_view(const check_op *op)
{
    bool any = false;
    for (size_t r = 0; r < op->nresults; r++) {
        const dv_slot_info *s = &op->slots[op->nargs + r];
        any |= s->alias >= 0 && !(op->slots[s->alias].flags & DV_SLOT_WRITES);
    }
    return any;
}

/* Who has an opinion on this row, best first. Of several kernel rows, which may take different dtypes, the first that takes the
 * case is asked. */
static size_t list_opinions(const check_op *op, const check_row *row, const check_row **out)
{
    size_t n = 0;
    for (size_t i = 0; i < op->nrows && n < ASKED - 2; i++)
        if (&op->rows[i] != row && op->rows[i].reference && op->rows[i].available)
            out[n++] = &op->rows[i];
    if (has_native(op) && (row->index >= 0 || gives_view(op)))
        out[n++] = &wide;
    if (has_native(op) && row->index >= 0 && !gives_view(op)) /* it would give the view */
        out[n++] = &native;
    const bool others = !n && row->index >= 0 && !row->reference;
    for (size_t i = op->nrows; i-- > 0 && others && n < ASKED;)
        if (&op->rows[i] != row && op->rows[i].available && op->rows[i].index >= 0)
            out[n++] = &op->rows[i];
    return n;
}

/* ---- Calls, and what they leave ---- */

/* Process state that a call must leave unchanged. */
typedef struct state {
    fenv_t floats;
    unsigned control; /* the bits that the kernel must restore, without the exception flags */
    int rounding;
    sigset_t mask;
    struct sigaction handlers[NSIG];
    uint64_t variables; /* of the environment: a sum */
    char locale[256], folder[1024];
    cpu_set_t processors; /* on which the thread may run */
    int printed;          /* bytes on stdout */
    bool child;           /* is there a process that it started and has not waited for? */
    bool descriptors;     /* true if the checker's descriptors are unchanged */
    bool has_descriptor;  /* true if the process can open one more descriptor */
    bool timer;           /* true if an alarm is set */
    mode_t mask_of_files;
    struct rlimit limits[RLIM_NLIMITS];
    int modes[4]; /* personality, dumpable, no new privileges, seccomp */
} state;

extern char **environ;

static void look(state *s)
{
    memset(s, 0, sizeof *s);
    fegetenv(&s->floats);
    s->rounding = fegetround();
#if defined(__x86_64__)
    s->control = __builtin_ia32_stmxcsr() & 0xffc0u;
#endif
    pthread_sigmask(SIG_BLOCK, NULL, &s->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &s->handlers[i]);
    for (char **v = environ; v && *v; v++)
        for (const char *p = *v; *p; p++)
            s->variables = s->variables * 31 + (unsigned char)*p;
    if (!getcwd(s->folder, sizeof s->folder))
        *s->folder = 0;
    snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
    sched_getaffinity(0, sizeof s->processors, &s->processors);
    s->child = !waitid(P_ALL, 0, &(siginfo_t){ .si_pid = 0 }, WEXITED | WNOHANG | WNOWAIT);
    fflush(stdout);
    s->printed = check_printed();
    s->descriptors = check_descriptors_kept();
    const int one = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    s->has_descriptor = one >= 0 || errno != EMFILE;
    if (one >= 0)
        close(one);
    struct itimerval left = { .it_value = { 0, 0 } };
    getitimer(ITIMER_REAL, &left);
    s->timer = left.it_value.tv_sec || left.it_value.tv_usec;
    umask(s->mask_of_files = umask(0));
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((unsigned)i, &s->limits[i]);
    const int modes[] = { personality(0xffffffff), prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        prctl(PR_GET_SECCOMP) };
    memcpy(s->modes, modes, sizeof modes);
}

static const char *changed_limit(const state *before, const state *after)
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

/* False: they differ, and it was reported. */
static bool state_is_kept(check_job *job, const state *before, const state *after)
{
    job->how.show = CHECK_SHOW_ENVIRONMENT;
    fesetenv(&before->floats);
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
    if (after->rounding != before->rounding || after->control != before->control)
        check_fail(job, "environment", "the kernel leaves the floating-point environment changed: %s",
            after->rounding != before->rounding ? "another rounding mode"
                                                : "control bits, such as those that flush denormals to zero");
    if (strcmp(after->locale, before->locale))
        check_fail(
            job, "locale", "the kernel changes the locale of the process, from \"%s\" to \"%s\"", before->locale, after->locale);
    if (after->variables != before->variables)
        check_fail(job, "environment variables", "the kernel changes the environment variables of the process");
    if (strcmp(after->folder, before->folder))
        check_fail(job, "folder", "the kernel changes the current folder of the process");
    if (!CPU_EQUAL(&after->processors, &before->processors))
        check_fail(job, "processors", "the kernel leaves the thread bound to other processors: %d instead of %d",
            CPU_COUNT(&after->processors), CPU_COUNT(&before->processors));
    if (after->printed > before->printed)
        check_fail(job, "output", "the kernel writes to stdout, which belongs to the program (stderr is for messages)");
    if (before->descriptors && !after->descriptors)
        check_fail(job, "descriptors", "the kernel closes or replaces descriptors that it has not opened");
    if (before->has_descriptor && !after->has_descriptor)
        check_fail(job, "descriptors", "the kernel opens all descriptors that the process may have, and leaves them open");
    if (after->timer && !before->timer)
        check_fail(job, "timer", "the kernel leaves a timer running that will send SIGALRM");
    if (after->mask_of_files != before->mask_of_files)
        check_fail(job, "umask", "the kernel changes the umask of the process");
    if (changed_limit(before, after))
        check_fail(job, "limits", "the kernel changes a limit of the process: %s", changed_limit(before, after));
    if (memcmp(after->modes, before->modes, sizeof after->modes))
        check_fail(job, "modes", "the kernel changes how the process runs: its personality, or by prctl()");
    if (after->child && !before->child)
        check_fail(job, "child process", "the kernel starts a process and does not wait for it: it stays as a zombie");
    for (int i = 1; i < NSIG; i++)
        if (after->handlers[i].sa_handler != before->handlers[i].sa_handler)
            check_fail(job, "signal handler", "the kernel leaves another handler for signal %d (%s)", i, strsignal(i));
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&after->mask, i) != sigismember(&before->mask, i))
            check_fail(job, "signal mask", "the kernel leaves the thread's signal mask changed: signal %d (%s) is %sblocked", i,
                strsignal(i), sigismember(&after->mask, i) ? "" : "no longer ");
    return job->result->outcome == CHECK_PASS;
}

static bool keep_tensor(kept *k, const dv_tensor *t, size_t slot, const char *name)
{
    const int64_t n = dv_numel(t), size = dv_dtype_bytes(t->dtype, 1);
    int64_t index[DV_MAX_NDIM] = { 0 };
    const size_t needed = k->size + (size_t)(n * size);
    if (t->dtype.bits < 8 || k->n == KEPT)
        return true;
    if (needed > k->room) {
        unsigned char *larger = realloc(k->data, 2 * needed);
        if (!larger)
            return false;
        k->data = larger;
        k->room = 2 * needed;
    }
    kept_tensor *to = &k->t[k->n++];
    *to = (kept_tensor){ .dtype = t->dtype, .ndim = t->ndim, .n = n, .at = k->size, .slot = slot };
    snprintf(to->name, sizeof to->name, "%s", name);
    memcpy(to->shape, t->shape, sizeof *t->shape * (size_t)t->ndim);
    if (n && dv_tensor_is_contiguous(t))
        memcpy(k->data + k->size, t->data, (size_t)(n * size));
    for (int64_t i = 0; i < n && !dv_tensor_is_contiguous(t); i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->ndim; d++)
            at += index[d] * t->strides[d];
        memcpy(k->data + k->size + (size_t)(i * size), (const char *)t->data + at * size, (size_t)size);
        for (int32_t d = t->ndim; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
    k->size = needed;
    return true;
}

static bool keep_scalar(kept *k, const dv_value *v, size_t slot, const char *name)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 }, i64 = { .code = 0, .bits = 64, .lanes = 1 };
    double f = v->as.f;
    int64_t i = v->type == DV_VALUE_BOOL ? v->as.b : v->as.i;
    const bool real = v->type == DV_VALUE_FLOAT;
    const dv_tensor t = { .data = real ? (void *)&f : (void *)&i, .dtype = real ? f64 : i64 };
    return keep_tensor(k, &t, slot, name);
}

static bool keep_result(kept *k, const check_call *call, size_t r)
{
    const dv_value *v = &call->results[r];
    const int32_t alias = call->op->slots[call->op->nargs + r].alias;
    const size_t slot = alias >= 0 ? (size_t)alias : call->op->nargs + r;
    char result[80], name[120];
    check_result_name(call->op, r, result, sizeof result);
    switch (v->type) {
    case DV_VALUE_TENSOR: return !v->as.tensor || keep_tensor(k, v->as.tensor, slot, result);
    case DV_VALUE_FLOAT:
    case DV_VALUE_INT:
    case DV_VALUE_BOOL: return keep_scalar(k, v, slot, result);
    case DV_VALUE_TENSORS:
        for (size_t i = 0; i < v->as.tensors.size && alias < 0; i++) { /* else they are arguments */
            snprintf(name, sizeof name, "element %zu of %s", i, result);
            if (!keep_tensor(k, v->as.tensors.data[i], slot, name))
                return false;
        }
        return true;
    default: return true;
    }
}

static bool keep_all(kept *k, const check_call *call, const check_case *c)
{
    char name[80];
    k->n = k->size = 0;
    for (size_t r = 0; r < call->op->nresults; r++)
        if (!keep_result(k, call, r))
            return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_tensor_argument(c, i);
        snprintf(name, sizeof name, "argument '%.60s'", call->op->slots[slot].name);
        if (c->tensors[i].present && call->op->slots[slot].flags & DV_SLOT_WRITES &&
            !keep_tensor(k, check_call_tensor(i), slot, name))
            return false;
    }
    return true;
}

/* contents: the case whose elements it has; NULL: c. moved: by how much its real numbers are, up or down. */
static bool run_at(const check_job *job, const check_row *row, const check_case *c, const check_case *contents,
    enum check_end end, double moved, kept *to, check_call *call)
{
    *call = (check_call){
        .op = job->op, .row = row, .end = end, .poison = 0xa5, .moved = moved, .contents = contents == c ? NULL : contents
    };
    check_call_run(call, c);
    return !call->status && keep_all(to, call, c);
}

static bool run(const check_job *job, const check_row *row, const check_case *c, kept *to, check_call *call)
{
    return run_at(job, row, c, c, CHECK_AT_END, 0, to, call);
}

/* ---- Comparing ---- */

enum class { FINITE, POSITIVE, NEGATIVE, NOTHING };
static enum class class_of(double x) { return isnan(x) ? NOTHING : !isinf(x) ? FINITE : x > 0 ? POSITIVE : NEGATIVE; }

static const unsigned char *bytes_of(const kept *k, size_t t) { return k->data + k->t[t].at; }

static bool has_special(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && (c->tensors[i].fill == CHECK_SPECIAL || c->tensors[i].fill >= CHECK_SIGNALLING))
            return true;
    return false;
}

/* Appends to `out` the element at the same index of each argument that has the result's shape: " (there gate is 3, up is
 * NaN)". */
static void append_arguments(const comparison *m, const kept_tensor *t, int64_t element, char *out, size_t size)
{
    size_t n = strlen(out);
    const char *separator = " (there ";
    for (size_t i = 0; i < m->c->ntensors; i++) {
        const check_tensor *a = &m->c->tensors[i];
        char number[40];
        if (!a->present || a->ndim != t->ndim || memcmp(a->shape, t->shape, sizeof *a->shape * (size_t)t->ndim) ||
            !check_element_print(m->c, i, element, number, sizeof number))
            continue;
        n += (size_t)snprintf(
            out + n, size - n, "%s%s is %s", separator, m->job->op->slots[check_tensor_argument(m->c, i)].name, number);
        if (n >= size)
            return;
        separator = ", ";
    }
    if (*separator == ',')
        snprintf(out + n, size - n, ")");
}

/* Element i (of complex numbers: a part of one) of tensor k. */
static void tell(const comparison *m, size_t k, int64_t i, int parts, double found, double expected, const char *kind,
    const check_tolerance *tolerance, double allowed, difference *out)
{
    const kept_tensor *t = &m->found->t[k];
    char index[200], a[40], b[40], limit[60] = "";
    check_index_print(t->ndim, t->shape, i / parts, index, sizeof index);
    check_print_number(found, bytes_of(m->found, k), i, t->dtype, 9, a, sizeof a);
    check_print_number(expected, bytes_of(m->opinions[0], k), i, t->dtype, 9, b, sizeof b);
    if (!strcmp(kind, "other value") && allowed > 0)
        snprintf(limit, sizeof limit, "; they may lie %.3g apart", allowed);
    const check_row *by = m->rows[0];
    snprintf(out->message, sizeof out->message, "element [%s] of %s (%s) is %s%s, and %s%s gives %s%s", index, t->name,
        dv_dtype_name(t->dtype), a,
        parts == 1  ? ""
            : i % 2 ? " (imaginary)"
                    : " (real)",
        by->index > 0 ? "row " : "", by->name, b, limit);
    append_arguments(m, t, i / parts, out->message, sizeof out->message);
    out->kind = kind;
    out->rtol = check_is_integer(t->dtype)
        ? -1
        : tolerance->rtol; /* -1: they differ in a bit; doubles cannot represent all integers */
    out->atol = isfinite(allowed) ? fmax(0, allowed - tolerance->rtol * fabs(expected)) : tolerance->atol;
    out->atol = has_special(m->c) && !check_is_integer(t->dtype) ? INFINITY : out->atol; /* only which infinity or NaN it is */
    out->slot = t->slot;
    out->shows = true;
}

static bool same_tensor(const kept_tensor *a, const kept_tensor *b)
{
    return a->ndim == b->ndim && dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype) &&
        !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

/* Values that are not real numbers must be equal. */
static bool compare_exactly(const comparison *m, size_t k, difference *out)
{
    const kept_tensor *t = &m->found->t[k];
    const check_tolerance none = { 0, 0, 1 };
    const size_t size = (size_t)dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < t->n; i++) {
        const unsigned char *first = bytes_of(m->opinions[0], k) + (size_t)i * size;
        bool agree = memcmp(first, bytes_of(m->found, k) + (size_t)i * size, size) != 0;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = !memcmp(first, bytes_of(m->opinions[o], k) + (size_t)i * size, size);
        if (agree) {
            tell(m, k, i, 1, check_get(bytes_of(m->found, k), i, t->dtype), check_get(first, 0, t->dtype), "other value", &none,
                0, out);
            return true;
        }
    }
    return false;
}

/* Is it allowed that a number is finite in one result and not in the other, or infinite and NaN? */
static bool may_overflow(const comparison *m, double found, double expected, double largest)
{
    const bool meant = m->lowest && !m->lone &&
        m->rows[0]->reference; /* the author thought of it: -inf of nothing, for example */
    if ((m->lone || m->lowest) && !isfinite(found) && !isfinite(expected) && !(meant && isnan(found)))
        return true;
    if (m->lowest) /* where a formula has no number, a kernel may say one */
        return isnan(expected);
    if (m->extreme || (m->wild && !(isnan(expected) && isfinite(found) && fabs(found) < sqrt(largest))))
        return true;
    return !isinf(found) != !isinf(expected) && fabs(isinf(found) ? expected : found) >= 0.9 * largest; /* not so for NaN */
}

/* The change of an element when the arguments change by a few units in the last place: if it is large, as for a division by a sum
 * near zero, no row can be accurate. */
static double movement(const comparison *m, size_t k, int64_t i, double alike)
{
    if (!m->moved || k >= m->moved->n || k >= m->still->n || !same_tensor(&m->moved->t[k], &m->still->t[k]) ||
        m->moved->t[k].n != m->found->t[k].n)
        return 0;
    dv_dtype dtype = m->moved->t[k].dtype;
    check_numbers_in(&dtype);
    const double by = fabs(check_get(bytes_of(m->moved, k), i, dtype) - check_get(bytes_of(m->still, k), i, dtype));
    return isfinite(by) ? MOVEMENT * alike * by : INFINITY;
}

/* Is it in every opinion a zero of the other sign? */
static bool is_other_zero(const comparison *m, size_t k, int64_t i, dv_dtype dtype, double found)
{
    bool other = true;
    for (size_t o = 0; o < m->n && other; o++) {
        const double x = check_get(bytes_of(m->opinions[o], k), i, dtype);
        other = fpclassify(x) == FP_ZERO && !signbit(x) != !signbit(found);
    }
    return other;
}

static bool compare_real(const comparison *m, size_t k, difference *out)
{
    const kept_tensor *t = &m->found->t[k];
    const bool complex = t->dtype.code == 5, special = has_special(m->c);
    const int parts = complex ? 2 : 1;
    const dv_dtype real = { .code = 2, .bits = (uint8_t)(t->dtype.bits / 2), .lanes = 1 }, dtype = complex ? real : t->dtype;
    const check_tolerance tolerance = check_tolerance_of(m->job->op, m->c, t->dtype, t->n, m->n == 1);
    const double largest = check_largest(dtype);
    double spread = 0;
    for (int64_t i = 0; i < t->n * parts && m->n > 1; i++)
        for (size_t o = 1; o < m->n; o++) {
            const double apart = fabs(
                check_get(bytes_of(m->opinions[o], k), i, dtype) - check_get(bytes_of(m->opinions[0], k), i, dtype));
            spread = isfinite(apart) && apart > spread ? apart : spread;
        }
    for (int64_t i = 0; i < t->n * parts; i++) {
        const double found = check_get(bytes_of(m->found, k), i, dtype),
                     expected = check_get(bytes_of(m->opinions[0], k), i, dtype);
        bool agree = true;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = class_of(check_get(bytes_of(m->opinions[o], k), i, dtype)) == class_of(expected);
        if (!agree)
            continue;
        const double allowed = tolerance.atol + tolerance.rtol * fabs(expected) + 2 * spread + movement(m, k, i, tolerance.alike);
        if (class_of(found) != class_of(expected)) {
            if (m->signalling ? !isnan(expected) || !isinf(found) : may_overflow(m, found, expected, largest))
                continue;
            tell(m, k, i, parts, found, expected,
                isnan(found)          ? "NaN"
                    : isnan(expected) ? "no NaN"
                                      : "infinity",
                &tolerance, allowed, out);
            return true;
        }
        if (isfinite(found) && !special && fabs(found - expected) > allowed) {
            tell(m, k, i, parts, found, expected, "other value", &tolerance, allowed, out);
            return true;
        }
        if (m->signs && fpclassify(found) == FP_ZERO && is_other_zero(m, k, i, dtype, found)) {
            tell(m, k, i, parts, found, expected, "sign of zero", &tolerance, 0, out);
            out->shows = false;
            return true;
        }
    }
    return false;
}

/* True: they differ. */
static bool compare(const comparison *m, difference *out)
{
    for (size_t o = 1; o < m->n; o++) /* what is not comparable is no opinion */
        for (size_t k = 0; k < m->opinions[0]->n; k++)
            if (m->opinions[o]->n != m->opinions[0]->n || !same_tensor(&m->opinions[o]->t[k], &m->opinions[0]->t[k]))
                return false;
    for (size_t k = 0; k < m->found->n && k < m->opinions[0]->n; k++) {
        const kept_tensor *a = &m->found->t[k], *b = &m->opinions[0]->t[k];
        if (!same_tensor(a, b)) {
            if (dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype)) /* without a contract, in f64 */
                return false;
            snprintf(out->message, sizeof out->message, "%s has %lld elements, and %s%s gives %lld", a->name, (long long)a->n,
                m->rows[0]->index > 0 ? "row " : "", m->rows[0]->name, (long long)b->n);
            out->kind = "other size";
            out->slot = a->slot;
            out->shows = true;
            return true;
        }
        if (check_is_integer(a->dtype) ? !m->signalling && !m->binades && compare_exactly(m, k, out)
                                       : (check_is_float(a->dtype) || a->dtype.code == 5) && compare_real(m, k, out))
            return true;
    }
    return false;
}

/* ---- One case ---- */

static comparison comparison_of(check_job *job, const check_case *c, const kept *found)
{
    comparison m = { .job = job, .c = c, .asked = c, .found = found, .signs = native_only_moves(job->op) };
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool special = c->tensors[i].present && c->tensors[i].fill == CHECK_SPECIAL;
        m.extreme |= special && (c->seed + i) % 2;
        m.lone |= special && (c->seed + i) % 4 == CHECK_LONE;
        m.binades |= c->tensors[i].present && c->tensors[i].fill == CHECK_BINADES;
        m.lowest |= c->tensors[i].present && c->tensors[i].fill == CHECK_LOWEST;
        m.wild |= special && c->tensors[i].dtype.bits <= 16;
        m.signalling |= c->tensors[i].present && c->tensors[i].fill == CHECK_SIGNALLING;
    }
    return m;
}

/* Of the cases with numbers so large that little is compared, every second one has NaNs that lose their fraction instead, where
 * it is cut off. */
static const check_case *with_signalling(check_job *job, const check_case *c)
{
    static check_case out;
    const comparison m = comparison_of(job, c, NULL);
    if (!m.extreme || c->seed / 2 % 2)
        return c;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        if (out.tensors[i].fill == CHECK_SPECIAL)
            out.tensors[i].fill = CHECK_SIGNALLING;
    check_in_hand(job, &out);
    return &out;
}

static bool plain_layouts(const check_case *c)
{
    bool plain = true;
    for (size_t i = 0; i < c->ntensors; i++)
        plain &= !c->tensors[i].present || !c->tensors[i].layout;
    return plain;
}

static const check_case *contiguous(const check_case *c)
{
    static check_case out;
    out = *c;
    for (size_t i = 0; i < out.ntensors; i++)
        out.tensors[i].layout = CHECK_CONTIGUOUS;
    return &out;
}

/* Opinions on a case; 0: there are none. */
static size_t ask(check_job *job, const check_case *c, kept *kepts, comparison *m)
{
    static check_call call;
    const check_row *rows[ASKED];
    const size_t n = list_opinions(job->op, job->row, rows);
    m->n = 0;
    for (size_t o = 0; o < n; o++)
        if (rows[o]->index > 0 && m->n)
            continue;
        else if (run(job, rows[o], c, &kepts[m->n], &call)) {
            m->rows[m->n] = rows[o];
            m->opinions[m->n] = &kepts[m->n];
            m->n++;
        } else if ((rows[o] == &native || rows[o]->reference) && !call.not_this_row && call.status != DV_ENOMEM) {
            job->how.show = CHECK_SHOW_NOTHING;
            check_fail(job, rows[o] == &native ? "native form fails" : "reference fails", "this row computes what %s refuses: %s",
                rows[o] == &native ? "the native form" : "the reference row", dv_last_error());
        } else if (!call.not_this_row) {
            snprintf(job->result->note, sizeof job->result->note, "%s: %s", rows[o]->name, dv_last_error());
        }
    return m->n;
}

/* They differ by more than the sensitivity to the inputs explains. */
static bool differ(check_job *job, comparison *m, difference *d)
{
    const check_case *c = m->asked;
    static check_call call;
    static check_case in_f32;
    static kept moved, still;
    const check_row *row = m->rows[0] == &itself ? job->row : m->rows[0];
    bool wide_inputs = true, expanded = false;
    if (!compare(m, d))
        return false;
    if (strcmp(d->kind, "other value"))
        return true;
    for (size_t i = 0; i < c->ntensors; i++) /* elements that are one in memory move as the others do, each by itself */
        expanded |= c->tensors[i].present && c->tensors[i].layout == CHECK_EXPANDED;
    for (size_t i = 0; i < c->ntensors; i++)
        wide_inputs &= !check_is_float(c->tensors[i].dtype) || check_largest(c->tensors[i].dtype) > FLT_MAX;
    const check_case *const at = expanded ? contiguous(c) : c;
    const double by = wide_inputs ? 0x1p-51 : 0x1p-22;
    if (check_widen_16_bits(job->op, at, &in_f32) && run_at(job, row, &in_f32, m->c, CHECK_AT_END, 0, &still, &call) &&
        run_at(job, row, &in_f32, m->c, CHECK_AT_END, by, &moved, &call)) { /* a number of 16 bits would round the change away */
        m->moved = &moved;
        m->still = &still;
    } else if (run_at(job, row, at, m->c, CHECK_AT_END, by, &moved, &call)) {
        m->moved = &moved;
        m->still = m->opinions[0];
    }
    return compare(m, d);
}

static void report(check_job *job, const comparison *m, const difference *d, bool layout)
{
    job->how.show = !d->shows ? CHECK_SHOW_NOTHING : m->rows[0] == &itself ? CHECK_SHOW_LAYOUT : CHECK_SHOW_ROWS;
    job->how.slot = (int32_t)d->slot;
    memset(job->how.axes, -1, sizeof job->how.axes);
    job->how.end = CHECK_AT_END;
    job->how.other_row = m->rows[0]->index;
    job->how.rtol = d->rtol;
    job->how.atol = d->atol;
    check_fail(job, layout ? "layout" : d->kind, "%s%s", d->message,
        layout ? "; with contiguous tensors the row is right: it depends on the layout" : "");
}

/* The same elements in contiguous tensors give what the opinions say. */
static bool is_right_when_contiguous(check_job *job, const check_case *c, const comparison *m)
{
    static check_call call;
    static kept plain;
    difference d;
    comparison other = *m;
    other.found = &plain;
    return run_at(job, job->row, contiguous(c), c, CHECK_AT_END, 0, &plain, &call) && !compare(&other, &d);
}

/* Without opinions: the row itself on contiguous tensors. */
static void compare_layouts(check_job *job, const check_case *c, const kept *found, kept *other)
{
    static check_call call;
    difference d;
    if (job->op->random || plain_layouts(c) || !run_at(job, job->row, contiguous(c), c, CHECK_AT_END, 0, other, &call))
        return;
    comparison m = comparison_of(job, c, found);
    m.asked = contiguous(c);
    m.opinions[0] = other;
    m.rows[0] = &itself;
    m.n = 1;
    if (!differ(job, &m, &d))
        return;
    difference again;
    if (run_at(job, job->row, c, c, CHECK_AT_BEGIN, 0, other, &call) &&
        !compare(&m, &again)) /* else it is no layout that it depends on */
        report(job, &m, &d, true);
}

/* The mean of a row's errors in units in the last place of a narrow type, away from zero: rounding has one near 0, however
 * inaccurate it is. What lies far off is cancellation, and is left to the tolerance. */
static void look_for_bias(check_job *job, const comparison *m)
{
    size_t best = 0;
    if (m->job->op->rtol >= 0 || m->job->op->atol >= 0 || m->job->op->rounded > 0) { /* its author says how far off it is */
        for (size_t k = 0; k < m->found->n; k++)
            if (check_is_float(m->found->t[k].dtype) && m->found->t[k].dtype.bits <= 16)
                check_left_out(job, "a bias of the rounding, as the contract declares rtol, atol or rounded");
        return;
    }
    for (size_t o = 0; o < m->n; o++)
        best = m->rows[o] == &wide ? o : best;
    for (size_t k = 0; k < m->found->n && k < m->opinions[best]->n; k++) {
        const kept_tensor *t = &m->found->t[k];
        const double u = 2 * check_unit(t->dtype), least = ldexp(1, -10);
        double sum = 0, squares = 0, n = 0;
        if (!check_is_float(t->dtype) || t->dtype.bits > 16 || has_special(m->c))
            continue;
        for (int64_t i = 0; i < t->n; i++) {
            const double expected = check_get(bytes_of(m->opinions[best], k), i, t->dtype),
                         found = check_get(bytes_of(m->found, k), i, t->dtype);
            if (!isfinite(expected) || fabs(expected) < least)
                continue;
            const double off = (found - expected) / ldexp(u, ilogb(expected)) * (expected < 0 ? -1 : 1);
            if (!(fabs(off) <= 2)) /* or NaN */
                continue;
            sum += off;
            squares += off * off;
            n++;
        }
        const double mean = sum / n;
        if (n < FEWEST || fabs(mean) < BIAS || fabs(mean) * sqrt(n) < SURE * sqrt(squares / n - mean * mean))
            continue;
        job->how = (check_how){
            .show = CHECK_SHOW_BIAS, .end = CHECK_AT_END, .other_row = m->rows[best]->index, .slot = (int32_t)t->slot
        };
        check_fail(job, "bias",
            "the elements of %s (%s) lie %.2f units in the last place %s zero than those of %s%s, in the mean of %.0f: they are "
            "not rounded to nearest",
            t->name, dv_dtype_name(t->dtype), fabs(mean), sum < 0 ? "nearer to" : "farther from",
            m->rows[best]->index > 0 ? "row " : "", m->rows[best]->name, n);
        return;
    }
}

static const kept *opinion_of(const comparison *m, const check_row *row)
{
    for (size_t o = 0; o < m->n; o++)
        if (m->rows[o] == row)
            return m->opinions[o];
    return NULL;
}

static check_accuracy *accuracy_of(check_result *r, dv_dtype dtype)
{
    for (size_t i = 0; i < CHECK_ACCURACY; i++)
        if (!r->accuracy[i].dtype.bits || dv_dtype_key(r->accuracy[i].dtype) == dv_dtype_key(dtype))
            return &r->accuracy[i];
    return NULL;
}

/* Errors in units in the last place, against the native form in f64: of types narrower than that, and where the native form in
 * the row's own types is near; else the element is a small difference of large numbers, and no row is accurate. What should be 0,
 * or is below the declared atol, has no last place that matters. */
static void measure(const comparison *m)
{
    enum { NEAR = 16 };
    const kept *in_f64 = opinion_of(m, &wide), *own = opinion_of(m, &native);
    for (size_t k = 0; in_f64 && own && k < m->found->n && k < own->n && !has_special(m->c); k++) {
        const kept_tensor *t = &m->found->t[k];
        const dv_dtype_row *form = dv_dtype_find(t->dtype);
        check_accuracy *a = check_is_float(t->dtype) && t->dtype.bits < 64 ? accuracy_of(m->job->result, t->dtype) : NULL;
        for (int64_t i = 0; a && form && i < t->n; i++) {
            const double expected = check_get(bytes_of(in_f64, k), i, t->dtype), size = fabs(expected),
                         unit = ldexp(
                             2 * check_unit(t->dtype), size > 0 ? (int)fmax(ilogb(size), 1 - form->bias) : 1 - form->bias),
                         off = fabs(check_get(bytes_of(m->found, k), i, t->dtype) - expected) / unit,
                         others = fabs(check_get(bytes_of(own, k), i, t->dtype) - expected) / unit;
            if (isfinite(off) && others <= NEAR && size > fmax(m->job->op->atol, 0))
                *a = (check_accuracy){ t->dtype, fmax(a->ulp, off) };
        }
    }
}

static uint32_t compared; /* of this child's cases: those in which elements were compared with an opinion */

bool check_with_lone_special(const check_op *op, const check_case *c, check_case *out)
{
    enum { LARGEST = 256, NEAR = 2 };
    const bool one = c->number % 2 || check_case_largest(c) > 1, lowest = c->number % 4 == 3;
    const uint64_t turn = c->number / 4 * 3 + c->number % 4; /* of the numbers that are not `lowest` */
    bool any = false;
    if (has_special(c) || check_case_largest(c) > LARGEST)
        return false;
    *out = *c;
    for (size_t k = 0; k < c->ntensors; k++) {
        const size_t i = (c->number + turn / CHECK_LONE_WAYS + k) % c->ntensors;
        check_tensor *t = &out->tensors[i];
        if (!t->present || check_is_integer(t->dtype) || !check_numel(t))
            continue;
        if (t->low > NEAR || t->high < -NEAR)
            return false;
        t->low = fmax(t->low, -NEAR);
        t->high = fmin(t->high, NEAR);
        if (any && one)
            continue;
        any = true;
        t->fill = !one ? CHECK_INFINITE : lowest ? CHECK_LOWEST : CHECK_SPECIAL;
        out->seed = c->seed / (4 * CHECK_LONE_WAYS) * (4 * CHECK_LONE_WAYS) + turn % CHECK_LONE_WAYS * 4 + CHECK_LONE - i;
    }
    return any && (!op->looks_inside || check_accepts(op, out));
}

/* A boolean that is neither 0 nor 1: hosts add it, or compare it with 1. */
static bool is_no_boolean(check_job *job, const kept *found)
{
    for (size_t k = 0; k < found->n; k++) {
        const kept_tensor *t = &found->t[k];
        for (int64_t i = 0; i < t->n && t->dtype.code == 6 && t->dtype.bits == 8; i++)
            if (bytes_of(found, k)[i] > 1) {
                char index[200];
                check_index_print(t->ndim, t->shape, i, index, sizeof index);
                job->how.show = CHECK_SHOW_NOTHING;
                check_fail(job, "no boolean", "element [%s] of %s (bool) is the byte %d: true is 1, and no other byte", index,
                    t->name, bytes_of(found, k)[i]);
                return true;
            }
    }
    return false;
}

static void attempt_case(check_job *job, const check_case *given)
{
    static check_call call;
    static kept found, opinions[OPINIONS];
    difference d;
    state before, after;
    const bool large = check_case_largest(given) > MOST_ELEMENTS;
    if (large && plain_layouts(given)) {
        job->result->cases--;
        return;
    }
    const check_case *c = with_signalling(job, given);
    look(&before);
    const bool ran = run(job, job->row, c, &found, &call);
    look(&after);
    if (call.not_this_row) {
        job->result->cases--;
        return;
    }
    if (!state_is_kept(job, &before, &after))
        return;
    if (!ran) {
        check_refused(job);
        return;
    }
    comparison m = comparison_of(job, c, &found);
    if (job->op->random || found.size > 8 * (size_t)(large ? CHECK_MOST_ELEMENTS : MOST_ELEMENTS))
        return;
    if (large) {
        compare_layouts(job, c, &found, &opinions[0]);
        return;
    }
    if (!ask(job, c, opinions, &m))
        compare_layouts(job, c, &found, &opinions[0]);
    else if (differ(job, &m, &d))
        report(job, &m, &d, !plain_layouts(c) && is_right_when_contiguous(job, c, &m));
    else
        look_for_bias(job, &m), measure(&m);
    if (job->result->outcome == CHECK_PASS && !is_no_boolean(job, &found) && job->row->index >= 0)
        check_overlaps(job, c);
    if (job->result->outcome == CHECK_PASS && job->row->index > 0)
        check_unused(job, c);
    const bool no_reference = !has_reference(job->op) && !has_native(job->op);
    if (job->row->index > 0 && no_reference) {
        if (job->result->outcome == CHECK_PASS)
            check_dependence(job, c);
        if (job->result->outcome == CHECK_PASS)
            check_other_dtypes(job, c);
        if (job->result->outcome == CHECK_PASS)
            check_sizes(job, c);
    }
    compared += m.n && found.size;
    if (m.n && no_reference)
        check_left_out(job, "a reference: values were compared among rows only");
}

static void attempt(check_job *job, const check_case *given)
{
    static check_case lone;
    const uint32_t cases = job->result->cases; /* 0: it is being made smaller */
    attempt_case(job, given);
    const uint32_t refused = job->result->refused;
    if (!cases || job->result->outcome != CHECK_PASS || job->result->cases != cases ||
        !check_with_lone_special(job->op, given, &lone))
        return;
    check_in_hand(job, &lone);
    attempt_case(job, &lone);
    job->result->refused = refused;
}

static const char *incomplete(const check_op *op, const check_row *row)
{
    const check_row *rows[ASKED];
    if (op->random)
        return "it is nondeterministic";
    if (!list_opinions(op, row, rows))
        return row->reference ? "it is the reference, and there is no native form to compare it with (only layouts were compared)"
                              : "there is nothing to compare with: no reference row and no native form (only layouts were "
                                "compared)";
    return compared ? NULL
                    : "no case had a result with an element and another row, or a native form, that takes the same arguments";
}

static const char *applies(const check_op *op, const check_row *row)
{
    return row->index < 0 && !gives_view(op) ? "the native form is what rows are compared with" : NULL;
}

const check_property check_property_values = {
    .name = "values",
    .promise = "each row gives what the reference row and the native form give, within tolerance, in every layout",
    .each_row = true,
    .applies = applies,
    .attempt = attempt,
    .incomplete = incomplete,
    .needs_sound_row = true,
};
