/* Tasks of a worker: it makes a plan, tries the cases of a plan, or repeats one case. */
#include "worker.h"

enum {
    MIN_NONEMPTY_CASES = 8 /* number of nonempty cases from which on it is reported that the kernel refused all of them */
};

/* Makes the call job->preceding_case, which comes before each attempt of the job. */
static void task_make_preceding_call(check_job *job)
{
    check_guarded_call call = {
        .op = job->op, .kernel = job->kernel, .guard_side = job->preceding_guard_side, .poison_byte = 0xa5
    };
    check_guarded_call_run(&call, job->preceding_case);
}

/* Calls the property's test_case() for one case, after the preceding call, if there is one, within the limit of processor time.
 */
static void task_run_case_within_limit(check_job *job, const check_case *c)
{
    check_set_current_case(job, c);
    check_set_cpu_limit(check_case_limit_ms);
    if (job->preceding_case)
        task_make_preceding_call(job);
    job->property->test_case(job, c);
    check_set_cpu_limit(0);
}

/* Replaces the contents of all non-integer tensors of a case by simpler ones, which a kernel refuses less often: log() refuses
 * negative numbers, a search refuses unsorted bounds. simple_fill: which contents, below NUM_SIMPLE_FILLS. */
enum { NUM_SIMPLE_FILLS = 4 };
static void task_set_simple_real_contents(check_case *c, uint32_t simple_fill)
{
    static const enum check_fill fills[NUM_SIMPLE_FILLS] = { CHECK_FILL_RANDOM, CHECK_FILL_RANDOM, CHECK_FILL_NONDECREASING,
        CHECK_FILL_INCREASING };
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_integer_dtype(c->tensors[i].dtype)) {
            c->tensors[i].fill = (uint8_t)fills[simple_fill];
            c->tensors[i].low = simple_fill == 1 ? 0 : 0.25;
            c->tensors[i].high = simple_fill == 1 ? 1 : 2;
        }
}

/* True if the last element of some integer tensor of a case is a wrong index, which a kernel should refuse. */
static bool task_has_wrong_index(const check_case *c)
{
    bool wrong = false;
    for (size_t i = 0; i < c->ntensors; i++)
        wrong |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_LAST_EXTREME &&
            check_is_integer_dtype(c->tensors[i].dtype);
    return wrong;
}

/* True if a case has tensors, and each tensor that is not None has elements. For other cases a kernel may compute nothing and
 * accept any arguments. */
static bool task_is_nonempty_case(const check_case *c)
{
    bool full = c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        full &= !c->tensors[i].present || check_tensor_numel(&c->tensors[i]);
    return full;
}

/* Runs one case of the plan. While the kernel refuses it, runs it again with simpler contents and then with other contents of
 * integer tensors. */
static void task_run_case_until_accepted(check_job *job, uint32_t case_index, uint64_t seed)
{
    static check_case tried;
    check_result *r = job->result;
    const uint32_t refused = r->refused_cases;
    check_copy_case_with_seed(&job->plan->cases[case_index], seed, &r->current_case);
    r->has_case = true;
    check_set_cpu_limit(4 * check_case_limit_ms); /* a shape function may never end */
    if (job->op->has_element_facts && !check_is_accepted(job->op, &r->current_case))
        return;
    tried = r->current_case;
    r->tried_cases++;
    task_run_case_within_limit(job, &r->current_case);
    for (uint32_t how = 0;
        how < NUM_SIMPLE_FILLS && r->outcome == CHECK_OUTCOME_PASS && r->refused_cases > refused && !task_has_wrong_index(&tried);
        how++) {
        task_set_simple_real_contents(&tried, how);
        if (!check_is_accepted(job->op, &tried))
            break;
        r->refused_cases = refused;
        r->current_case = tried;
        task_run_case_within_limit(job, &r->current_case);
    }
    check_copy_case_with_seed(&job->plan->cases[case_index], seed, &tried);
    for (uint32_t k = 0; r->outcome == CHECK_OUTCOME_PASS && r->refused_cases > refused && !task_has_wrong_index(&tried); k++) {
        static check_case other;
        if (!check_try_make_contents_variant(job->op, &tried, k, &other))
            return;
        if (k % 2)
            task_set_simple_real_contents(&other, k / 2 % NUM_SIMPLE_FILLS);
        if (!check_is_accepted(job->op, &other))
            continue;
        r->refused_cases = refused;
        r->current_case = other;
        task_run_case_within_limit(job, &r->current_case);
        if (r->refused_cases == refused)
            check_note_accepted_contents();
    }
}

/* Runs one case of the plan by task_run_case_until_accepted(), and counts it as nonempty and accepted if it is. */
static void task_run_and_count_case(check_job *job, uint32_t case_index, uint64_t seed)
{
    check_result *r = job->result;
    const uint32_t cases = r->tried_cases, refused = r->refused_cases;
    task_run_case_until_accepted(job, case_index, seed);
    if (r->tried_cases == cases || !task_is_nonempty_case(&r->current_case) || task_has_wrong_index(&r->current_case))
        return;
    r->tried_nonempty_cases++;
    r->accepted_nonempty_cases += r->refused_cases == refused;
}

/* Writes to the result's dropped_cases how many cases were not tried, and why; "" if all were. untried: number of cases left when
 * the time was up. */
static void task_describe_dropped_cases(check_job *job, uint32_t untried)
{
    check_result *r = job->result;
    uint32_t n = 0, slow = 0, first = 0;
    for (uint32_t i = job->plan->ncases; i-- > 0;) {
        n += job->plan->dropped[i] != CHECK_NOT_DROPPED;
        const bool is = job->plan->dropped[i] == CHECK_DROPPED_SLOW || job->plan->dropped[i] == CHECK_DROPPED_SLOW_LARGER;
        slow += is;
        first = is ? i : first;
    }
    FILE *to = fmemopen(r->dropped_cases, sizeof r->dropped_cases, "w");
    if (to && n) {
        fprintf(to, "%u of %u cases", n, job->plan->ncases);
        if (n > slow)
            fprintf(to, ": %u that have as much work as %u that take longer than %g s (--case-ms), as does ", n - slow, slow,
                check_current_case_ms / 1e3);
        else
            fprintf(to, ", which take longer than %g s (--case-ms), as does ", check_current_case_ms / 1e3);
        check_print_case(job->op, &job->plan->cases[first], to);
    } else if (to && untried && r->outcome == CHECK_OUTCOME_PASS) {
        fprintf(to, "the last %u of %u cases: the others took %g s of processor time", untried, job->max_cases,
            job->cpu_seconds_per_seed);
    }
    if (to)
        fclose(to);
    r->dropped_cases[sizeof r->dropped_cases - 1] = 0;
}

/* True if all cases of a plan are dropped; false for an empty plan. */
static bool task_has_dropped_all_cases(const check_plan *plan)
{
    uint32_t n = 0;
    while (n < plan->ncases && plan->dropped[n] != CHECK_NOT_DROPPED)
        n++;
    return n && n == plan->ncases;
}

/* Tries the cases of a job's plan, for each seed, until one fails or the time is up. Sets "not checked" if no case says anything:
 * none was found, all were refused or dropped, or the property is incomplete. */
static void task_run_plan_cases(check_job *job)
{
    check_result *r = job->result;
    const check_plan *plan = job->plan;
    const uint32_t each = job->max_cases && job->max_cases < plan->ncases ? job->max_cases : plan->ncases;
    const uint64_t seeds = job->last_seed - job->seed + 1;
    const double end = check_get_cpu_seconds() + job->cpu_seconds_per_seed * (double)seeds;
    job->max_cases = each * (uint32_t)seeds;
    for (; r->cases_begun < job->max_cases && r->outcome == CHECK_OUTCOME_PASS && check_get_cpu_seconds() < end;) {
        r->plan_index = r->cases_begun++ % each;
        r->seed = job->seed + (r->cases_begun - 1) / each;
        r->progress_count++;
        if (!plan->dropped[r->plan_index])
            task_run_and_count_case(job, r->plan_index, r->seed);
    }
    for (uint32_t i = each; i < plan->ncases && r->outcome == CHECK_OUTCOME_PASS && r->tried_cases &&
        r->refused_cases == r->tried_cases && check_get_cpu_seconds() < end;
        i++)
        if (!plan->dropped[i]) /* cases beyond --cases are tried while the kernel has refused all */
            task_run_and_count_case(job, r->plan_index = i, job->seed);
    check_set_cpu_limit(0);
    r->infeasible_pairs = plan->infeasible_pairs, r->oversized_pairs = plan->oversized_pairs,
    r->uncovered_pairs = plan->uncovered_pairs;
    for (uint32_t i = 0; i < plan->ncases; i++)
        *(i < each && i < r->cases_begun && !plan->dropped[i] ? &r->covered_pairs
                                                              : &r->uncovered_pairs) += plan->newly_covered_pairs[i];
    snprintf(r->uncovered_example, sizeof r->uncovered_example, "%s", plan->uncovered_example);
    task_describe_dropped_cases(job, job->max_cases - r->cases_begun);
    const bool all_dropped = task_has_dropped_all_cases(plan);
    const bool calls_once = job->property->reported_faults &
        (CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY); /* only properties runs and memory make one call for each case, so that refusals
                                                     can be counted */
    const bool only_empty = calls_once && r->tried_nonempty_cases >= MIN_NONEMPTY_CASES && !r->accepted_nonempty_cases &&
        r->refused_cases;
    r->nothing_checked = r->outcome == CHECK_OUTCOME_PASS &&
        (!r->tried_cases || r->refused_cases == r->tried_cases || only_empty);
    if (r->nothing_checked && r->refused_cases < r->tried_cases && only_empty)
        check_report_unchecked(job,
            "the kernel refused each of the %u cases in which no tensor is empty: %s; facts on contents, such as "
            "sorted(offsets) or ids.values < n, would declare which it accepts",
            r->tried_nonempty_cases, r->last_refusal);
    else if (r->nothing_checked && r->tried_cases)
        check_report_unchecked(job,
            "the kernel refused all %u cases: %s; a fact on the contents of a tensor, such as x.values > 0, would "
            "declare which it accepts",
            r->tried_cases, r->last_refusal);
    else if (r->outcome == CHECK_OUTCOME_PASS && plan->ncases && (all_dropped || (r->nothing_checked && *r->dropped_cases))) {
        r->nothing_checked = false;
        check_report_unchecked(job, "%s", r->dropped_cases);
    } else if (r->nothing_checked && plan->ncases)
        check_report_unchecked(job, "no arguments were found that this kernel takes");
    else if (r->nothing_checked)
        check_report_unchecked(job, "%s%s",
            job->op->contract ? "no arguments were found that the contract accepts; the last were refused: "
                              : "there is no contract, and no arguments were found that its shape function accepts; the last "
                                "were refused: ",
            plan->last_refusal);
    else if (r->outcome == CHECK_OUTCOME_PASS && job->property->find_incomplete_reason &&
        job->property->find_incomplete_reason(job->op, job->kernel))
        check_report_unchecked(job, "%s", job->property->find_incomplete_reason(job->op, job->kernel));
}

void check_task_make_plan(check_job *job)
{
    check_plan_make_cases(job->op, job->kernel, job->max_cases, job->seed, job->plan);
    if (!job->plan->ncases && job->plan->smallest_too_large_numel)
        snprintf(job->plan->last_refusal, sizeof job->plan->last_refusal,
            "the smallest that fits has a tensor of %lld elements, and --max-elements is %lld",
            (long long)job->plan->smallest_too_large_numel, (long long)check_max_elements);
    else
        snprintf(job->plan->last_refusal, sizeof job->plan->last_refusal, "%s", dv_last_error());
}

/* Sets "not checked" if the checker's own limits prevent a repeated call: a tensor exceeds --max-elements, or no memory is left
 * for tensors. was_refused: the call failed. Does nothing otherwise. */
static void task_report_case_beyond_checker(check_job *job, enum check_verdict verdict, bool was_refused)
{
    if (verdict == CHECK_VERDICT_TOO_LARGE)
        check_report_unchecked(job, "%s", dv_last_error());
    else if (was_refused && check_guarded_call_lacked_memory())
        check_report_unchecked(job,
            "the system gives the checker no memory for the tensors of this call: repeat it with more free memory, or a higher "
            "limit");
    else
        return;
    job->result->tried_cases = job->result->refused_cases = 0;
    job->result->nothing_checked |= job->result->outcome == CHECK_OUTCOME_UNCHECKED;
}

void check_task_run_repeated_case(check_job *job)
{
    check_result *r = job->result;
    const check_case *c = &r->current_case;
    check_set_cpu_limit(check_case_limit_ms);
    const enum check_verdict verdict = c->is_invalid ? CHECK_VERDICT_ACCEPTED : check_classify_case(job->op, c);
    if (verdict != CHECK_VERDICT_ACCEPTED) {
        task_report_case_beyond_checker(job, verdict, true);
        check_report_unchecked(job, "the case is refused: %s", dv_last_error());
        return;
    }
    const double begin = check_get_cpu_seconds(), began = check_get_monotonic_seconds();
    task_run_case_within_limit(job, c);
    r->repeat_seconds = check_get_cpu_seconds() - begin;
    r->elapsed_seconds = check_get_monotonic_seconds() - began;
    if (r->tried_cases) /* the property uncounted the case; the counter is 0 until now, since a property makes more effort for a
                           repeated case */
        check_report_unchecked(job, "the case is refused: a condition of the kernel (.when, .dtypes) does not hold");
    r->tried_cases = 1;
    task_report_case_beyond_checker(job, verdict, r->refused_cases);
    if (r->refused_cases)
        snprintf(r->omitted, sizeof r->omitted, "the kernel refuses the call: %.120s", r->last_refusal);
}

bool check_task_has_given_case(const check_job *job) { return job->repeat && job->repeat->repeats_one_case; }

void check_task_run_job(check_job *job)
{
    if (check_task_has_given_case(job)) {
        job->result->current_case = job->repeat->repeated_case;
        job->result->has_preceding_case = job->repeat->has_preceding_case;
        job->result->preceding_case = job->repeat->preceding_case;
        job->result->has_case = true;
        check_task_run_repeated_case(job);
    } else if (job->property->check_without_cases)
        job->property->check_without_cases(job);
    else
        task_run_plan_cases(job);
}
