/* parallel: what an operator says about parts and threads holds, and a call's results depend on its arguments alone.
 *
 * Guarded calls first, in this order: other contents at the same addresses; the case; the case elsewhere; the case again. The
 * second and the last are the same call, so their bits are the same, unless the operator keeps something from call to call. Then
 * the pieces of a parallel loop in reverse order (so that a sum without a lock shows without a race), then 2 and 4 threads. Then
 * parts in plain memory: slices along `parallel` dims, and partitions of `sum` dims. At last a whole call of another
 * thread between the instructions of a call, then four threads at once, each with its own data, while a fifth stops them. */
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "check.h"
#include "programs/between.h"

enum { POISON = 0xa5, STRESSED = 4, GROWN = 2, SHARED = 2000, THREADS = 4, MOST_STATIC = 1 << 20 };

static const char *applies(const check_op *op, const check_row *row)
{
    (void)row;
    return op->random ? "it is tagged as nondeterministic" : NULL;
}

static bool failed(const check_job *job) { return job->result->outcome != CHECK_PASS; }

/* ---- The same call again ---- */

typedef int (*loop_fn)(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg);

static int64_t pieces; /* of the largest loop of a call */

static int in_order(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    pieces = end - begin > pieces ? end - begin : pieces;
    return fn(arg, begin, end);
}

static int in_reverse(const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    for (int64_t i = end; i-- > begin;) {
        const int status = fn(arg, i, i + 1);
        if (status)
            return status;
    }
    return DV_OK;
}

/* False: it was refused. */
static bool run(const check_job *job, const check_case *c, enum check_end end, loop_fn loop, bool whole, check_outs *outs)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .end = end, .poison = POISON, .parallel_for = loop, .whole = whole };
    check_call_run(&call, c);
    if (call.status)
        return false;
    check_outs_take(outs, job->op, c, call.results, check_call_tensors());
    return true;
}

static double largest_rounding(const check_outs *o)
{
    double most = 0;
    for (size_t i = 0; i < o->n; i++)
        most = fmax(most, check_rounding(o->of[i].t.dtype, check_out_largest(&o->of[i])));
    return most;
}

static void check_again_and_elsewhere(check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs elsewhere, last, again;
    char words[300];
    if (!run(job, c, CHECK_AT_BEGIN, in_order, false, &elsewhere) || !run(job, c, CHECK_AT_END, NULL, false, &last))
        return;
    job->how = (check_how){ .show = CHECK_SHOW_SAME, .atol = largest_rounding(first) };
    if (check_outs_differ(job->op, first, &last, words, sizeof words)) {
        const bool settled = run(job, c, CHECK_AT_END, NULL, false, &again) &&
            !check_outs_differ(job->op, &last, &again, words, sizeof words);
        check_outs_differ(job->op, first, &last, words, sizeof words);
        if (settled)
            check_fail(job, "keeps something",
                "the same call gives another result after other calls, so something is kept from call to call: %s", words);
        else
            check_fail(job, "not deterministic",
                "the same call made again gives another result, and no tag says nondeterministic: %s", words);
    } else if (check_outs_far(job->op, first, &elsewhere, words, sizeof words)) {
        check_fail(job, "depends on addresses", "the same arguments at other addresses give another result: %s", words);
    }
}

/* ---- Pieces and threads ---- */

static void check_pieces(check_job *job, const check_case *c, const check_outs *first)
{
    static check_outs other;
    char words[300], *during = job->result->during;
    job->how = (check_how){ .show = CHECK_SHOW_PIECES };
    job->result->own_show = CHECK_SHOW_PIECES;
    if (run(job, c, CHECK_AT_END, in_reverse, false, &other) && check_outs_differ(job->op, first, &other, words, sizeof words))
        check_fail(job, "order of pieces",
            "the result depends on the order in which threads take the pieces of a parallel loop: %s", words);
    if (!failed(job) && job->row->split && run(job, c, CHECK_AT_END, NULL, true, &other) &&
        check_outs_differ(job->op, &other, first, words, sizeof words))
        check_fail(job, "split differs",
            "the row says .split = %lld, and cut at multiples of this grain it gives another result than whole: %s",
            (long long)job->row->split, words);
    job->result->own = CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY;
    for (int threads = 2; threads <= THREADS && !failed(job); threads *= 2) {
        dv_set_threads(threads);
        snprintf(during, sizeof job->result->during, "when its pieces run on %d threads", threads);
        if (run(job, c, CHECK_AT_END, NULL, false, &other) && check_outs_differ(job->op, first, &other, words, sizeof words))
            check_fail(job, "number of threads", "on %d threads the result is not the same as on one: %s", threads, words);
    }
    dv_set_threads(1);
    job->result->own = 0;
}

/* ---- Parts ---- */

/* Along what tensors are cut. */
typedef struct cutter {
    const check_env *e;
    const check_json *name; /* ["dim", "n"] or ["run", "s"] */
    int32_t axis;           /* of a run: which of its dims */
    int64_t size;
} cutter;

static const char *name_of(const check_json *x) { return x->child->next->text; }

static bool mentions(const check_json *x, const char *name)
{
    for (const check_json *k = x ? x->child : NULL; k; k = k->next)
        if ((k->kind == CHECK_TEXT && k != x->child && !strcmp(k->text, name)) || mentions(k, name))
            return true;
    return false;
}

enum { NOT_CUT = -1, UNSURE = -2 };

/* Which axis of a tensor with this pattern is cut. */
static int axis_of(const cutter *k, const check_json *dims, int32_t ndim, const int64_t *shape)
{
    int32_t at = 0, axis = NOT_CUT;
    if (!dims || dims->kind != CHECK_ARRAY)
        return NOT_CUT;
    for (const check_json *d = dims->child; d; d = d->next) {
        const bool is_name = check_json_is(d, k->name->child->text) && name_of(d) && !strcmp(name_of(d), name_of(k->name));
        check_json one = *d;
        one.next = NULL;
        const check_json list = { .kind = CHECK_ARRAY, .child = &one };
        check_shape s;
        if (!check_eval_dims(k->e, &list, &s) || (is_name && axis >= 0) || (!is_name && mentions(d, name_of(k->name))))
            return UNSURE;
        if (is_name)
            axis = at + k->axis;
        at += s.n;
    }
    return axis != NOT_CUT && (at != ndim || axis >= ndim || shape[axis] != k->size) ? UNSURE : axis;
}

/* Which axis of each tensor argument; false: it cannot be said, or no tensor has it. */
static bool find_axes(const cutter *k, int *axes)
{
    const check_case *c = k->e->c;
    const check_json *inputs = check_json_get(k->e->op->contract, "inputs");
    bool any = false;
    for (size_t i = 0; i < c->ntensors; i++)
        axes[i] = NOT_CUT;
    for (const check_json *in = inputs ? inputs->child : NULL; in; in = in->next) {
        const check_value *v = &c->args[check_json_get(in, "slot")->i];
        const check_json *dims = check_json_get(in, "dims");
        if (!check_holds(k->e, check_json_get(in, "case")))
            continue;
        if (v->type != DV_VALUE_TENSOR && mentions(dims, name_of(k->name)))
            return false;
        for (uint32_t n = 0; n < v->count && v->type == DV_VALUE_TENSOR; n++) {
            const check_tensor *t = &c->tensors[v->first + n];
            axes[v->first + n] = t->present ? axis_of(k, dims, t->ndim, t->shape) : NOT_CUT;
            if (axes[v->first + n] == UNSURE)
                return false;
            any |= axes[v->first + n] >= 0;
        }
    }
    return any;
}

static const check_json *pattern_of(const check_env *e, size_t slot)
{
    const check_json *list = check_json_get(e->op->contract, slot < e->op->nargs ? "inputs" : "outputs");
    for (const check_json *p = list ? list->child : NULL; p; p = p->next)
        if (check_json_get(p, "slot")->i == (int64_t)slot && check_holds(e, check_json_get(p, "case")))
            return p;
    return NULL;
}

/* Facts about what is inside tensors, or sizes that are computed from this one: a part of the call may mean something else. */
static bool stands_in_facts(const check_op *op, const char *name)
{
    const check_json *constraints = check_json_get(op->contract, "constraints");
    for (const check_json *k = constraints ? constraints->child : NULL; k; k = k->next)
        if (check_json_get(k, "values")->kind == CHECK_INT && mentions(check_json_get(k, "expr"), name))
            return true;
    return mentions(check_json_get(op->contract, "definitions"), name);
}

static bool all_random(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_SPECIAL)
            return false;
    return true;
}

/* The part against [low, ...) of the whole; false: they differ by more than rounding. */
static bool same_part(
    const check_op *op, const check_out *whole, const check_out *part, int axis, int64_t low, char *words, size_t room)
{
    const int64_t n = dv_numel(&part->t), size = whole->dims[axis], mine = part->dims[axis];
    const double tolerance = check_rounding(whole->t.dtype, check_out_largest(whole));
    char where[200];
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < part->t.ndim; i++)
        inner *= part->dims[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / inner % mine, at = (i / inner / mine * size + low + k) * inner + i % inner;
        const double x = check_get(part->t.data, i, part->t.dtype), y = check_get(whole->t.data, at, whole->t.dtype);
        if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance)
            continue;
        check_out_element(op, whole, at, where, sizeof where);
        snprintf(words, room, "%s is %.9g in the whole and %.9g in the slice", where, y, x);
        return false;
    }
    return true;
}

typedef struct parts {
    check_plain whole, part[2];
    check_outs outs[3];
} parts;
static parts p;

/* Results of the whole and of two parts that are cut at `at`; false: one was refused. */
static bool run_parts(const cutter *k, const check_job *job, const int *axes, int64_t at)
{
    if (!check_plain_make(&p.whole, job->op, job->row, k->e->c) || !check_plain_part(&p.part[0], &p.whole, axes, 0, at) ||
        !check_plain_part(&p.part[1], &p.whole, axes, at, k->size))
        return false;
    for (int i = 0; i < 3; i++) {
        check_plain *call = i ? &p.part[i - 1] : &p.whole;
        check_plain_call(call);
        if (call->status)
            return false;
        check_outs_take(&p.outs[i], job->op, k->e->c, call->results, call->values.tensors);
        if (p.outs[i].incomplete || p.outs[i].n != p.outs[0].n)
            return false;
    }
    return true;
}

/* How a part of the call is shown. */
static void show_parts(
    check_job *job, enum check_show show, const cutter *k, const int *axes, int64_t at, const check_out *of, double tolerance)
{
    job->how = (check_how){ .show = show, .atol = tolerance, .slot = (int32_t)of->slot, .at = at, .size = k->size };
    for (size_t i = 0; i < k->e->c->ntensors; i++)
        job->how.axes[i] = (int8_t)axes[i];
}

static void check_slices(check_job *job, const cutter *k, int64_t at)
{
    int axes[CHECK_TENSORS];
    char words[300];
    if (!find_axes(k, axes) || !run_parts(k, job, axes, at))
        return;
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < p.outs[0].n && !failed(job); i++) {
            const check_out *whole = &p.outs[0].of[i], *mine = &p.outs[1 + part].of[i];
            const check_json *pattern = pattern_of(k->e, whole->slot);
            const int axis = pattern ? axis_of(k, check_json_get(pattern, "dims"), whole->t.ndim, whole->dims) : UNSURE;
            const int64_t low = part ? at : 0, high = part ? k->size : at;
            bool fits = axis >= 0 && mine->t.ndim == whole->t.ndim && mine->dims[axis] == high - low;
            for (int32_t d = 0; d < whole->t.ndim && fits; d++)
                fits = d == axis || mine->dims[d] == whole->dims[d];
            show_parts(job, CHECK_SHOW_PARTS, k, axes, at, whole, check_rounding(whole->t.dtype, check_out_largest(whole)));
            job->how.axis = axis;
            if (fits && !same_part(job->op, whole, mine, axis, low, words, sizeof words))
                check_fail(job, "not parallel",
                    "parallel(%s%s) does not hold: of the slice [%lld, %lld) alone the result is another than that slice of the "
                    "whole: %s",
                    check_json_is(k->name, "run") ? "*" : "", name_of(k->name), (long long)low, (long long)high, words);
        }
}

static bool all_real(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_float(c->tensors[i].dtype))
            return false;
    return true;
}

/* The tolerance of a sum of products in another order, with each real argument as a factor. A kernel that rounds every step to a
 * small type has inaccurate values, but its result is still a sum, so the largest rounding error is allowed. */
static double sum_rounding(const check_case *c, dv_dtype dtype, double largest)
{
    double product = 1, terms = 1;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        product *= fmax(1, fmax(fabs(t->low), fabs(t->high)));
        terms = fmax(terms, (double)check_numel(t));
    }
    const double order = dtype.bits >= 64 ? 8 * 0x1p-53 : dtype.bits >= 32 ? 8 * 0x1p-24 : terms * check_unit(dtype);
    return check_rounding(dtype, fmax(largest, product)) + order * terms * product;
}

static void check_sum(check_job *job, const cutter *k, int64_t at)
{
    int axes[CHECK_TENSORS];
    char where[200];
    if (!find_axes(k, axes) || !all_real(k->e->c) || !run_parts(k, job, axes, at))
        return;
    for (size_t i = 0; i < p.outs[0].n && !failed(job); i++) {
        const check_out *whole = &p.outs[0].of[i], *a = &p.outs[1].of[i], *b = &p.outs[2].of[i];
        const check_json *pattern = pattern_of(k->e, whole->slot);
        if (whole->slot < job->op->nargs || !check_is_float(whole->t.dtype) || !pattern ||
            mentions(check_json_get(pattern, "dims"), name_of(k->name)) || memcmp(whole->dims, a->dims, sizeof a->dims) ||
            memcmp(whole->dims, b->dims, sizeof a->dims))
            continue;
        const double largest = fmax(check_out_largest(whole), fmax(check_out_largest(a), check_out_largest(b)));
        const double tolerance = sum_rounding(k->e->c, whole->t.dtype, largest);
        show_parts(job, CHECK_SHOW_SUM, k, axes, at, whole, tolerance);
        for (int64_t n = 0, all = dv_numel(&whole->t); n < all && !failed(job); n++) {
            const double w = check_get(whole->t.data, n, whole->t.dtype), x = check_get(a->t.data, n, a->t.dtype),
                         y = check_get(b->t.data, n, b->t.dtype);
            if (!isfinite(w) || !isfinite(x + y) || fabs(x + y - w) <= tolerance)
                continue;
            check_out_element(job->op, whole, n, where, sizeof where);
            check_fail(job, "not a sum",
                "sum(%s) does not hold: of [0, %lld) and [%lld, %lld) alone %s is %.9g and %.9g, and of the whole %.9g",
                name_of(k->name), (long long)at, (long long)at, (long long)k->size, where, x, y, w);
        }
    }
}

/* Every dim that a fact names, cut at one place. */
static void check_parts(check_job *job, const check_case *c)
{
    const check_env e = { .op = job->op, .c = (check_case *)(uintptr_t)c };
    const check_json *parallel = check_json_get(job->op->contract, "parallel"), *sum = check_json_get(job->op->contract, "sum");
    const check_json *dims = check_json_get(job->op->contract, "dims"), *runs = check_json_get(job->op->contract, "runs");
    for (const check_json *f = parallel ? parallel->child : NULL; f; f = f->next) {
        const bool run = check_json_is(f, "run");
        const int i = check_name_index(run ? runs : dims, name_of(f));
        if (i < 0 || i >= (run ? (int)CHECK_RUNS : (int)CHECK_NAMES) || stands_in_facts(job->op, name_of(f)))
            continue;
        const check_shape *s = &c->names.runs[run ? i : 0];
        for (int32_t axis = 0; axis < (run ? s->n : 1) && !failed(job); axis++) {
            const cutter k = { .e = &e, .name = f, .axis = axis, .size = run ? s->d[axis] : c->names.dims[i] };
            if (k.size > 1)
                check_slices(job, &k, 1 + (int64_t)(c->seed % (uint64_t)(k.size - 1)));
        }
    }
    for (const check_json *f = sum ? sum->child : NULL; f && !failed(job); f = f->next) {
        const check_json name = { .kind = CHECK_TEXT, .text = f->text },
                         kind = { .kind = CHECK_TEXT, .text = "dim", .next = &name };
        const check_json dim = { .kind = CHECK_ARRAY, .child = &kind };
        const int i = check_name_index(dims, f->text);
        const cutter k = { .e = &e, .name = &dim, .size = i >= 0 && i < CHECK_NAMES ? c->names.dims[i] : 0 };
        if (k.size > 1 && !stands_in_facts(job->op, f->text))
            check_sum(job, &k, 1 + (int64_t)(c->seed % (uint64_t)(k.size - 1)));
    }
}

/* ---- Four threads at once ---- */

typedef struct stressed {
    check_plain plain;
    check_case c;
    check_outs alone, now;
    pthread_t id;
    atomic_bool *stop;
    bool differs;
} stressed;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_ns(long ns)
{
    const struct timespec t = { 0, ns };
    nanosleep(&t, NULL);
}

/* Stop one thread while the others continue. */
static void on_stop(int number)
{
    (void)number;
    sleep_ns(30000);
}

static void call_once(void *arg)
{
    stressed *s = arg;
    char words[300];
    check_plain_call(&s->plain);
    if (s->plain.status)
        return;
    check_outs_take(&s->now, s->plain.op, &s->c, s->plain.results, s->plain.values.tensors);
    s->differs |= check_outs_differ(s->plain.op, &s->alone, &s->now, words, sizeof words);
}

static void *stress(void *arg)
{
    stressed *s = arg;
    while (!atomic_load_explicit(s->stop, memory_order_relaxed)) {
        call_once(s);
        if (s->differs)
            atomic_store(s->stop, true);
    }
    return NULL;
}

/* ---- Who writes to static memory is looked at for longer ---- */

static int add_writable(struct dl_phdr_info *info, size_t size, void *sum)
{
    static const char *const others[] = { "/libdovetail", "/libc.", "/libm.", "/ld-linux", "linux-vdso" };
    uint64_t *h = sum;
    bool counts = *info->dlpi_name;
    (void)size;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        counts = counts && !strstr(info->dlpi_name, others[i]);
    for (int i = 0; counts && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        const unsigned char *from = (const unsigned char *)(uintptr_t)(info->dlpi_addr + s->p_vaddr);
        if (s->p_type == PT_LOAD && s->p_flags & PF_W && s->p_memsz <= MOST_STATIC)
            for (size_t k = 0; k < s->p_memsz; k++)
                *h = (*h ^ from[k]) * UINT64_C(0x100000001b3);
    }
    return 0;
}

static uint64_t static_memory(void)
{
    uint64_t sum = 0;
    dl_iterate_phdr(add_writable, &sum);
    return sum;
}

static stressed threads[THREADS];

/* The number of threads whose call succeeds alone. */
static int prepare_threads(const check_job *job, const check_case *c)
{
    int n = 0;
    for (int i = 0; i < THREADS; i++) {
        stressed *s = &threads[n];
        s->c = *c;
        s->c.seed += (uint64_t)i * 1000;
        s->differs = false;
        if (!check_plain_make(&s->plain, job->op, job->row, &s->c))
            continue;
        check_plain_call(&s->plain);
        if (s->plain.status)
            continue;
        check_outs_take(&s->alone, job->op, &s->c, s->plain.results, s->plain.values.tensors);
        n += !s->alone.incomplete;
    }
    return n;
}

/* One call between the instructions of another. */
static void step_through(void)
{
    const dv_host host = threads[0].plain.host;
    threads[0].plain.host.before_kernel = between_begin;
    threads[0].plain.host.after_kernel = between_end;
    calls_inside(call_once, &threads[0], call_once, &threads[1]);
    threads[0].plain.host = host;
}

static void stop_them(int n, double seconds, const atomic_bool *stop)
{
    const double end = now() + seconds;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_relaxed) && now() < end; i++) {
        pthread_kill(threads[i % n].id, SIGUSR1);
        sleep_ns(20000);
    }
}

static void check_threads(check_job *job, const check_case *c)
{
    const struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    struct sigaction before;
    static atomic_bool stop;
    int started = 0;
    const int n = prepare_threads(job, c);
    if (n < 2)
        return;
    const uint64_t sum = static_memory();
    check_plain_call(&threads[0].plain);
    const bool written = static_memory() != sum;
    job->how = (check_how){ .show = CHECK_SHOW_THREADS };
    job->result->own = CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY;
    job->result->own_show = CHECK_SHOW_THREADS;
    snprintf(job->result->during, sizeof job->result->during, "when %d threads call it at once, each with its own data", n);
    if (written || !job->result->cases)
        step_through();
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGUSR1, &action, &before);
    atomic_store(&stop, threads[0].differs || threads[1].differs);
    for (; started < n; started++) {
        threads[started].stop = &stop;
        if (pthread_create(&threads[started].id, NULL, stress, &threads[started]))
            break;
    }
    if (started)
        stop_them(started, job->result->cases ? written ? 0.06 : 0.004 : 0.03, &stop);
    atomic_store(&stop, true);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    sigaction(SIGUSR1, &before, NULL);
    job->result->own = 0;
    for (int i = 0; i < started; i++)
        if (threads[i].differs)
            check_fail(job, "not thread-safe",
                "%d threads called it at once, each with its own data, and a result is not the one that the same call gives "
                "alone%s",
                started, written ? ": the kernel writes to static memory" : "");
}

/* ---- All of it ---- */

/* The case with so many steps that work is shared among threads; false: it cannot be made. */
static bool grow(const check_job *job, const check_case *c, check_case *out)
{
    const check_json *contract = job->op->contract, *parallel = check_json_get(contract, "parallel"),
                     *f = parallel ? parallel->child : NULL;
    const bool any = !f, run = any ? check_json_size(check_json_get(contract, "runs")) > 0 : check_json_is(f, "run");
    const int i = any ? 0 : check_name_index(check_json_get(contract, run ? "runs" : "dims"), name_of(f));
    const int64_t wanted = job->row->split ? 5 * job->row->split / 2 + 3 : SHARED;
    *out = *c;
    if (i < 0 || i >= (run ? (int)CHECK_RUNS : (int)CHECK_NAMES) || (run && !c->names.runs[i].n) ||
        (any && check_case_largest(c) > SHARED / 4))
        return false;
    int64_t steps = 1, *first = run ? &out->names.runs[i].d[0] : &out->names.dims[i];
    for (int32_t k = 1; run && k < c->names.runs[i].n; k++)
        steps *= c->names.runs[i].d[k];
    if (!steps || *first * steps > wanted)
        return false;
    *first = wanted / steps + 1;
    return check_rebuild(job->op, out) && check_accepts(job->op, out);
}

static void attempt(check_job *job, const check_case *drawn)
{
    static check_case before, grown;
    static check_outs first;
    const check_case *c = drawn;
    const uint32_t number = job->result->cases; /* 0: it is being made smaller */
    if (number > 1 && number <= 1 + GROWN && grow(job, drawn, &grown)) {
        c = &grown;
        check_in_hand(job, c);
    }
    before = *c;
    before.seed ^= 0x5555;
    run(job, &before, CHECK_AT_END, NULL, false, &first);
    if (!run(job, c, CHECK_AT_END, NULL, false, &first)) {
        static check_call call; /* why */
        call = (check_call){ .op = job->op, .row = job->row, .poison = POISON };
        check_call_run(&call, c);
        if (call.not_this_row)
            job->result->cases--;
        else if (call.status)
            check_refused(job);
        return;
    }
    pieces = 0;
    check_again_and_elsewhere(job, c, &first);
    if (pieces > 1 && !failed(job))
        check_pieces(job, c, &first);
    if (!failed(job) && all_random(c))
        check_parts(job, c);
    if (!failed(job) && number <= STRESSED)
        check_threads(job, c);
}

const check_property check_property_parallel = {
    .name = "parallel",
    .promise = "slices and sums are what is declared; a result depends neither on earlier calls nor on addresses nor on threads",
    .each_row = true,
    .applies = applies,
    .attempt = attempt,
    .needs_sound_row = true,
};
