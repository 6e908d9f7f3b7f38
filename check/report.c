/* Reports of all jobs: as a table for people, as JSON, and as JUnit's XML. Texts that several jobs share are printed once, with
 * the number of the others. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

const char *const check_outcomes[] = {
    [CHECK_OUTCOME_PASS] = "pass", [CHECK_OUTCOME_FAIL] = "fail", [CHECK_OUTCOME_UNCHECKED] = "not checked"
};

/* Prints the smallest failing case of a job. Returns false, printing nothing, if the job did not fail or has no case. */
static bool report_try_print_case(const check_job *job, FILE *to)
{
    if (job->result->outcome != CHECK_OUTCOME_FAIL || !(job->external_case || job->result->has_case))
        return false;
    if (job->external_case)
        fputs(job->external_case, to);
    else
        check_job_print_case(job, to);
    return true;
}

/* Prints the command that repeats a failure. Always returns true, so that report_put_json_member_if_printed() can call it. */
static bool report_try_print_command(const check_job *job, FILE *to)
{
    check_job_print_command(job, "", to);
    return true;
}

/* Returns the source line of the operator's declaration; 0 if it is unknown. */
static long long report_get_declaration_line(const check_op *op)
{
    const check_json *line = check_json_find_member(op->json, "line");
    return line && !op->is_torch_operator && check_json_find_string(op->json, "file") ? (long long)line->int_value : 0;
}

/* ---- The table ---- */

typedef struct report_printer {
    const check_job *jobs;
    size_t njobs, ncolumns;
    const check_property *columns[32];
    FILE *to;
    bool color, ulp; /* color: print escape sequences; ulp: the accuracy of some kernel is known */
    int width;
} report_printer;

/* Returns the escape sequence `code`, or "" if the report has no colors. */
static const char *report_get_escape_sequence(const report_printer *p, const char *code) { return p->color ? code : ""; }

/* Sets the table's columns: one for each property that some job has, in the order of check_properties, and p->ulp. */
static void report_set_columns(report_printer *p)
{
    for (size_t i = 0; i < p->njobs; i++)
        p->ulp |= p->jobs[i].result->accuracy[0].dtype.bits != 0;
    for (const check_property *const *c = check_properties; *c; c++)
        for (size_t i = 0; i < p->njobs; i++)
            if (p->jobs[i].property == *c) {
                p->columns[p->ncolumns++] = *c;
                break;
            }
}

/* Returns the job of a property for a kernel, or for the whole operator if kernel is NULL; NULL if there is none. */
static const check_job *report_find_job(
    const report_printer *p, const check_op *op, const check_kernel *kernel, const check_property *property)
{
    for (size_t i = 0; i < p->njobs; i++)
        if (p->jobs[i].op == op && p->jobs[i].kernel == kernel && p->jobs[i].property == property)
            return &p->jobs[i];
    return NULL;
}

typedef struct report_cell { const char *word, *color; } report_cell;

/* Returns the word and color of a job's outcome in the table; empty ones if job is NULL. */
static report_cell report_get_table_cell(const check_job *job)
{
    static const report_cell cells[] = { [CHECK_OUTCOME_PASS] = { "pass", "\033[32m" },
        [CHECK_OUTCOME_FAIL] = { "FAIL", "\033[1;31m" },
        [CHECK_OUTCOME_UNCHECKED] = { "-", "\033[2m" } };
    return job ? cells[job->result->outcome] : (report_cell){ "", "" };
}

/* Prints a kernel's measured accuracy by dtype: "f32 2, bf16 0.5". format: for the dtype's name and the ulp. Returns false if
 * nothing was measured. */
static bool report_try_print_accuracy(const check_job *job, const char *format, FILE *to)
{
    bool any = false;
    for (size_t i = 0; job && i < CHECK_MAX_ACCURACIES && job->result->accuracy[i].dtype.bits; i++, any = true)
        fprintf(to, any ? ", " : ""),
            fprintf(to, format, dv_dtype_name(job->result->accuracy[i].dtype), job->result->accuracy[i].max_error_ulp);
    return any;
}

/* Prints the table's line of a kernel, or of the operator itself if kernel is NULL. */
static void report_print_table_line(const report_printer *p, const check_op *op, const check_kernel *kernel)
{
    const char *name = kernel ? kernel->name : op->name;
    fprintf(p->to, "%s%-*s%s", kernel ? "  " : report_get_escape_sequence(p, "\033[1m"), p->width - (kernel ? 2 : 0), name,
        kernel ? "" : report_get_escape_sequence(p, "\033[0m"));
    for (size_t k = 0; k < p->ncolumns; k++) {
        const report_cell c = report_get_table_cell(report_find_job(p, op, kernel, p->columns[k]));
        const int padding = k + 1 < p->ncolumns || p->ulp ? (int)strlen(p->columns[k]->name) - (int)strlen(c.word) : 0;
        fprintf(p->to, "  %s%s%s%*s", report_get_escape_sequence(p, c.color), c.word, report_get_escape_sequence(p, "\033[0m"),
            padding, "");
    }
    const check_job *values = report_find_job(p, op, kernel, &check_property_values);
    if (values && values->result->accuracy[0].dtype.bits)
        fputs("  ", p->to), report_try_print_accuracy(values, "%s %.3g", p->to);
    fputs("\n", p->to);
}

/* True if no job before number `job` has the same operator and kernel. */
static bool report_is_first_job_of_kernel(const report_printer *p, size_t job)
{
    for (size_t i = 0; i < job; i++)
        if (p->jobs[i].op == p->jobs[job].op && p->jobs[i].kernel == p->jobs[job].kernel)
            return false;
    return true;
}

/* True if two jobs are failures of the same property and kind in kernels of one operator. */
static bool report_is_same_failure(const check_job *a, const check_job *b)
{
    return a->result->outcome == CHECK_OUTCOME_FAIL && b->result->outcome == CHECK_OUTCOME_FAIL && a->op == b->op &&
        a->property == b->property && a->kernel && b->kernel && !strcmp(a->result->kind, b->result->kind);
}

/* True if the job's operator fails values or memory, so that its gradient is compared with wrong results. */
static bool report_has_failed_values_or_memory(const report_printer *p, const check_job *job)
{
    bool any = false;
    for (const check_job *other = p->jobs; other < p->jobs + p->njobs; other++)
        any |= other->op == job->op && other->result->outcome == CHECK_OUTCOME_FAIL &&
            (other->property == &check_property_values || other->property == &check_property_memory);
    return any;
}

const char *check_get_kernel_label(const check_job *job)
{
    return !job->kernel ? "" : job->property->per_kernel ? ", kernel " : ", test ";
}

/* Prints a failure with its case, place and command. Prints nothing if an earlier job failed in the same way; the names of later
 * ones are listed. */
static void report_print_failure(const report_printer *p, const check_job *job)
{
    const check_result *r = job->result;
    for (const check_job *other = p->jobs; other < job; other++)
        if (report_is_same_failure(other, job))
            return;
    fprintf(p->to, "\n%sFAIL%s %s: %s%s%s: %s\n", report_get_escape_sequence(p, "\033[1;31m"),
        report_get_escape_sequence(p, "\033[0m"), job->property->name, job->op->name, check_get_kernel_label(job),
        job->kernel ? job->kernel->name : "", r->message);
    if (job->external_case || r->has_case) {
        fputs("     smallest case found: ", p->to);
        report_try_print_case(job, p->to);
        fputs("\n", p->to);
    }
    char line[300];
    if (r->fault_kind && check_try_format_origin_line(&r->origin, job->op->sources, line, sizeof line))
        fprintf(p->to, "     at %s\n", line);
    if (job->last_seed > job->seed && r->seed)
        fprintf(p->to, "     with --seed %llu\n", (unsigned long long)r->seed);
    fputs("     reproduce: ", p->to);
    report_try_print_command(job, p->to);
    if (job->repeats && job->repeats < CHECK_REPEATS)
        fprintf(p->to, "\n     it failed in %d of %d tries of this", job->repeats, CHECK_REPEATS);
    fputs("\n", p->to);
    const char *separator = "     other kernels that fail in this way: ";
    for (const check_job *other = job + 1; other < p->jobs + p->njobs; other++)
        if (report_is_same_failure(job, other)) {
            fprintf(p->to, "%s%s", separator, other->kernel->name);
            separator = ", ";
        }
    fputs(*separator == ',' ? "\n" : "", p->to);
    if (job->property == &check_property_gradient && report_has_failed_values_or_memory(p, job))
        fputs("     perhaps only because the values, with which it is compared, are wrong: see above\n", p->to);
    if (report_get_declaration_line(job->op))
        fprintf(p->to, "     declared in %s:%lld\n", check_json_find_string(job->op->json, "file"),
            report_get_declaration_line(job->op));
}

/* For a job with this outcome returns why it was not checked, or what a passed job omitted; NULL if the outcome is another or
 * nothing was omitted. */
static const char *report_find_unchecked_or_omitted_text(const check_job *job, enum check_outcome outcome)
{
    const check_result *r = job->result;
    return r->outcome != outcome ? NULL : outcome == CHECK_OUTCOME_UNCHECKED ? r->message : *r->omitted ? r->omitted : NULL;
}

/* True if two jobs have this outcome, the same property, and the same text of report_find_unchecked_or_omitted_text(). */
static bool report_is_same_reason(const check_job *a, const check_job *b, enum check_outcome outcome)
{
    const char *one = report_find_unchecked_or_omitted_text(a, outcome),
               *other = report_find_unchecked_or_omitted_text(b, outcome);
    return one && other && a->property == b->property && !strcmp(one, other);
}

/* Prints below a title, for jobs with this outcome, why they were not checked or what they omitted. A text that several jobs
 * share is printed once, with the number of the others. */
static void report_print_reasons(const report_printer *p, enum check_outcome outcome, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        size_t nbefore = 0, nothers = 0;
        for (size_t k = 0; k < p->njobs; k++) {
            nbefore += k < i && report_is_same_reason(job, &p->jobs[k], outcome);
            nothers += k > i && report_is_same_reason(job, &p->jobs[k], outcome);
        }
        if (nbefore || !report_find_unchecked_or_omitted_text(job, outcome))
            continue;
        fprintf(p->to, "%s%s%s of %s%s%s", any ? "" : "\n", any ? "" : title, job->property->name, job->op->name,
            check_get_kernel_label(job), job->kernel ? job->kernel->name : "");
        any = true;
        if (nothers)
            fprintf(p->to, " and %zu more", nothers);
        fprintf(p->to, ": %s\n", report_find_unchecked_or_omitted_text(job, outcome));
    }
}

/* True if a job passed, but some of its cases were not tried. */
static bool report_has_dropped_cases(const check_job *job)
{
    return *job->result->dropped_cases && job->result->outcome == CHECK_OUTCOME_PASS;
}

/* Prints which cases of passed jobs were not tried: for each property of an operator those of the first kernel, and the number of
 * further kernels. */
static void report_print_dropped_cases(const report_printer *p)
{
    bool any = false;
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        size_t nbefore = 0, nothers = 0;
        for (size_t k = 0; k < p->njobs; k++) {
            const check_job *other = &p->jobs[k];
            const bool same = report_has_dropped_cases(other) && other->op == job->op && other->property == job->property;
            nbefore += same && k < i;
            nothers += same && k > i;
        }
        if (nbefore || !report_has_dropped_cases(job))
            continue;
        fprintf(p->to, "%s%s of %s%s%s", any ? "" : "\npassed, without these cases\n", job->property->name, job->op->name,
            check_get_kernel_label(job), job->kernel ? job->kernel->name : "");
        any = true;
        if (nothers)
            fprintf(p->to, ", and %zu more kernels", nothers);
        fprintf(p->to, ": %s\n", job->result->dropped_cases);
    }
}

/* ---- What a declaration could add, so that more is checked ---- */

/* True if the first job of this property that did not fail is of a kernel of the operator and tried cases. */
static bool report_has_tried_cases(const report_printer *p, const check_op *op, const check_property *property)
{
    for (size_t i = 0; i < p->njobs; i++)
        if (p->jobs[i].op == op && p->jobs[i].property == property && p->jobs[i].result->outcome != CHECK_OUTCOME_FAIL)
            return p->jobs[i].kernel && p->jobs[i].result->tried_cases;
    return false;
}

/* True if the operator has a contract that states no fact of this name, as "parallel". */
static bool report_lacks_fact(const check_op *op, const char *fact)
{
    return op->contract && !check_json_count_elements(check_json_find_member(op->contract, fact));
}

/* True if the contract's first pattern of this argument has no dtype, as "x[n]", unlike "x[n]:f32". */
static bool report_lacks_dtype(const check_op *op, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *text = check_json_find_string(op->contract, "text");
    for (const char *p = text; p && (p = strstr(p, name)); p++) {
        const char *end = p + strlen(name);
        if ((p > text && strchr(letters, p[-1])) || (*end != '[' && *end != '{') || !(end = strchr(end, '[')))
            continue;
        for (int depth = 1; depth && *++end;)
            depth += (*end == '[') - (*end == ']');
        end += *end != 0;
        return end[strspn(end, " ")] != ':';
    }
    return false;
}

/* True if some kernel's ignored_arguments, names with ", " between them, has this argument. */
static bool report_is_ignored_by_any_kernel(const report_printer *p, const check_op *op, const char *name)
{
    const size_t size = strlen(name);
    for (size_t i = 0; i < p->njobs; i++)
        for (const char *at = p->jobs[i].op == op ? p->jobs[i].result->ignored_arguments : ""; *at;) {
            const size_t n = strcspn(at, ",");
            if (n == size && !strncmp(at, name, size))
                return true;
            at += n;
            at += strspn(at, ", ");
        }
    return false;
}

/* Prints what one operator could declare so that more of it is checked; nothing if nothing is missing. */
static void report_print_missing_declarations(const report_printer *p, const check_op *op, FILE *to)
{
    bool reference = false, any = false;
    const check_json *native = check_json_find_member(op->json, "native");
    for (size_t i = 0; i < op->nkernels; i++)
        reference |= op->kernels[i].is_reference || op->kernels[i].hook_index < 0;
    if (report_has_tried_cases(p, op, &check_property_values) && !op->is_nondeterministic && !reference &&
        (!native || native->kind != CHECK_JSON_OBJECT))
        any = fputs("a decomposition or a reference kernel, which values are compared with", to) >= 0;
    if (report_has_tried_cases(p, op, &check_property_parallel) && !op->is_nondeterministic && op->nnames &&
        report_lacks_fact(op, "parallel") && report_lacks_fact(op, "sum"))
        fprintf(to, "%sparallel(...) or sum(...), where one holds", any ? "; " : ""), any = true;
    size_t nignored = 0;
    for (size_t i = 0; i < op->nargs; i++)
        if (report_is_ignored_by_any_kernel(p, op, op->slots[i].name))
            fprintf(to, "%s%s", nignored++ ? ", " : any ? "; unused(" : "unused(", op->slots[i].name);
    if (nignored)
        fprintf(to, "), if no result depends on it"), any = true;
    for (size_t i = 0; i < op->nargs && op->json && !op->is_torch_operator; i++)
        if (check_is_tensor_argument(op, i) && report_lacks_dtype(op, op->slots[i].name))
            fprintf(to, "%sthe dtype of %s", any ? "; " : "", op->slots[i].name), any = true;
}

/* Prints for all operators what they could declare so that more is checked. A text that several operators share is printed once,
 * with the number of the others. */
static void report_print_all_missing_declarations(const report_printer *p, const check_op *ops, size_t nops)
{
    enum { MAX_TEXT = 512 };
    char (*texts)[MAX_TEXT] = calloc(nops + 1, sizeof *texts);
    bool any = false;
    for (size_t i = 0; i < nops && texts; i++) {
        FILE *memory = fmemopen(texts[i], MAX_TEXT - 1, "w");
        if (memory) {
            report_print_missing_declarations(p, &ops[i], memory);
            fclose(memory);
        }
    }
    for (size_t i = 0; i < nops && texts; i++) {
        size_t nbefore = 0, nothers = 0;
        for (size_t k = 0; k < nops; k++) {
            nbefore += k < i && !strcmp(texts[i], texts[k]);
            nothers += k > i && !strcmp(texts[i], texts[k]);
        }
        if (nbefore || !*texts[i])
            continue;
        fprintf(p->to, "%s%s", any ? "" : "\nnot declared, so less is checked\n", ops[i].name);
        if (nothers)
            fprintf(p->to, " and %zu more", nothers);
        fprintf(p->to, ": %s\n", texts[i]);
        any = true;
    }
    free(texts);
}

/* Prints for each kernel that refused cases how many it accepted and refused, as the property that tried most cases counted them.
 */
static void report_print_refused_case_counts(const report_printer *p)
{
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        const check_result *r = job->result;
        bool is_repeated = !r->refused_cases || !job->kernel || r->refused_cases > r->tried_cases;
        for (size_t k = 0; k < p->njobs && !is_repeated; k++)
            is_repeated = p->jobs[k].kernel == job->kernel && p->jobs[k].result->refused_cases &&
                p->jobs[k].result->tried_cases + (k < i) > r->tried_cases;
        if (!is_repeated)
            fprintf(p->to, "\ncases of %s, kernel %s: %u accepted, %u refused by the kernel (%s)\n", job->op->name,
                job->kernel->name, r->tried_cases - r->refused_cases, r->refused_cases, r->last_refusal);
    }
}

/* Prints how many pairs of levels the plans covered: a line for each operator, all kernels together, or one line for more than
 * MAX_PAIR_LINES operators. */
static void report_print_covered_pairs(const report_printer *p, const check_op *ops, size_t nops)
{
    enum { MAX_PAIR_LINES = 4 };
    size_t met = 0, infeasible = 0, cut = 0, not_met = 0;
    const char *example = "";
    for (size_t i = 0; i < nops; i++) {
        for (size_t k = 0; k < p->njobs; k++) {
            const check_result *r = p->jobs[k].result;
            bool is_repeated = p->jobs[k].op != &ops[i];
            for (size_t j = 0; j < p->njobs; j++) /* only the property that covered most pairs counts */
                is_repeated |= p->jobs[j].op == p->jobs[k].op && p->jobs[j].kernel == p->jobs[k].kernel &&
                    p->jobs[j].result->covered_pairs + (j < k) > r->covered_pairs;
            if (is_repeated)
                continue;
            met += r->covered_pairs, infeasible += r->infeasible_pairs, cut += r->oversized_pairs, not_met += r->uncovered_pairs;
            example = *r->uncovered_example && !*example ? r->uncovered_example : example;
        }
        if ((nops > MAX_PAIR_LINES && i + 1 < nops) || !(met + cut + not_met))
            continue;
        fprintf(p->to, "\npairs of %s: %zu of %zu", nops > MAX_PAIR_LINES ? "all" : ops[i].name, met, met + cut + not_met);
        if (infeasible)
            fprintf(p->to, ", %zu infeasible", infeasible);
        if (cut)
            fprintf(p->to, ", %zu larger than --max-elements", cut);
        if (not_met)
            fprintf(p->to, ", %zu uncovered", not_met);
        fprintf(p->to, *example ? " (%s)\n" : "\n", example);
        met = infeasible = cut = not_met = 0;
        example = "";
    }
}

const check_job *check_report_find_unchecked_job(const check_op *op, const check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        if (jobs[i].op == op && jobs[i].result->nothing_checked)
            return &jobs[i];
    return NULL;
}

/* True if a job passed or failed, or repeated a given case (--case) that was refused. */
static bool report_has_verdict(const check_job *job)
{
    const bool was_refused = job->repeat && job->repeat->repeats_one_case && job->result->has_case &&
        !job->result->nothing_checked;
    return job->result->outcome != CHECK_OUTCOME_UNCHECKED || was_refused;
}

/* True if no job of the check passed, failed, or repeated a given case. */
static bool report_has_no_verdict(const check_job *jobs, size_t njobs)
{
    bool any = false;
    for (size_t i = 0; i < njobs; i++)
        any |= report_has_verdict(&jobs[i]);
    return !any;
}

bool check_report_is_ok(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs)
{
    bool ok = !report_has_no_verdict(jobs, njobs);
    for (size_t i = 0; i < njobs; i++)
        ok &= jobs[i].result->outcome != CHECK_OUTCOME_FAIL;
    for (size_t i = 0; i < nops; i++)
        ok &= !check_report_find_unchecked_job(&ops[i], jobs, njobs);
    return ok;
}

void check_report_print_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, bool color, FILE *to)
{
    report_printer p = { .jobs = jobs, .njobs = njobs, .to = to, .color = color };
    report_set_columns(&p);
    for (size_t i = 0; i < nops; i++) {
        const check_job *unchecked_job = check_report_find_unchecked_job(&ops[i], jobs, njobs);
        if (unchecked_job)
            fprintf(to, "%sNOT CHECKED%s %s: %s\n\n", report_get_escape_sequence(&p, "\033[1;31m"),
                report_get_escape_sequence(&p, "\033[0m"), ops[i].name, unchecked_job->result->message);
    }
    for (size_t i = 0; i < nops; i++)
        p.width = (int)strlen(ops[i].name) > p.width ? (int)strlen(ops[i].name) : p.width;
    for (size_t k = 0; k < njobs; k++)
        if (jobs[k].kernel && (int)strlen(jobs[k].kernel->name) + 2 > p.width)
            p.width = (int)strlen(jobs[k].kernel->name) + 2;
    fprintf(to, "%*s", p.width, "");
    for (size_t k = 0; k < p.ncolumns; k++)
        fprintf(to, "  %s", p.columns[k]->name);
    fputs(p.ulp ? "  ulp\n" : "\n", to);
    for (size_t i = 0; i < nops; i++) {
        report_print_table_line(&p, &ops[i], NULL);
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i] && jobs[k].kernel && report_is_first_job_of_kernel(&p, k))
                report_print_table_line(&p, &ops[i], jobs[k].kernel);
    }
    size_t counts[3] = { 0 };
    for (size_t i = 0; i < njobs; i++)
        counts[jobs[i].result->outcome]++;
    for (size_t i = 0; i < njobs; i++)
        if (jobs[i].result->outcome == CHECK_OUTCOME_FAIL)
            report_print_failure(&p, &jobs[i]);
    report_print_reasons(&p, CHECK_OUTCOME_UNCHECKED, "not checked, because\n");
    report_print_reasons(&p, CHECK_OUTCOME_PASS, "passed, without\n");
    report_print_dropped_cases(&p);
    report_print_all_missing_declarations(&p, ops, nops);
    report_print_covered_pairs(&p, ops, nops);
    report_print_refused_case_counts(&p);
    fprintf(to, "\n%zu passed, %zu failed, %zu not checked%s\n", counts[CHECK_OUTCOME_PASS], counts[CHECK_OUTCOME_FAIL],
        counts[CHECK_OUTCOME_UNCHECKED], report_has_no_verdict(jobs, njobs) ? ": nothing was checked" : "");
}

/* ---- JSON ---- */

void check_print_json_string(FILE *to, const char *s)
{
    fputs("\"", to);
    for (; s && *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(to, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(to, "\\u%04x", (unsigned)(unsigned char)*s);
        else
            fputc(*s, to);
    }
    fputs("\"", to);
}

/* Prints ", " and a JSON member with a string value; null if text is NULL. */
static void report_put_json_member(FILE *to, const char *key, const char *text)
{
    fprintf(to, ", \"%s\": ", key);
    if (text)
        check_print_json_string(to, text);
    else
        fputs("null", to);
}

/* Prints a JSON member whose string value print() writes; prints nothing if print() returns false. */
static void report_put_json_member_if_printed(
    const check_job *job, const char *key, bool (*print)(const check_job *, FILE *), FILE *to)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    const bool there = memory && print(job, memory);
    if (memory)
        fclose(memory);
    if (there)
        report_put_json_member(to, key, text);
    free(text);
}

/* Prints a job and its result as a JSON object. */
static void report_put_json_job(const check_job *job, FILE *to)
{
    const check_result *r = job->result;
    fputs("{\"property\": ", to);
    check_print_json_string(to, job->property->name);
    report_put_json_member(to, "operator", job->op->name);
    const char *part = job->kernel ? job->kernel->name : NULL; /* property torch has tests, as `fake`, in place of kernels */
    report_put_json_member(to, "kernel", job->property->per_kernel ? part : NULL);
    report_put_json_member(to, "test", job->property->per_kernel ? NULL : part);
    report_put_json_member(to, "result", check_outcomes[r->outcome]);
    fprintf(to, ", \"cases\": %u, \"refused\": %u, \"cpu_seconds\": %.3f", r->tried_cases, r->refused_cases, r->cpu_seconds);
    if (r->outcome == CHECK_OUTCOME_FAIL && r->seed)
        fprintf(to, ", \"seed\": %llu", (unsigned long long)r->seed);
    if (r->outcome == CHECK_OUTCOME_FAIL)
        report_put_json_member(to, "kind", r->kind);
    if (r->outcome != CHECK_OUTCOME_PASS)
        report_put_json_member(to, r->outcome == CHECK_OUTCOME_FAIL ? "message" : "reason", r->message);
    else if (*r->omitted)
        report_put_json_member(to, "omitted", r->omitted);
    char at[300];
    if (r->outcome == CHECK_OUTCOME_FAIL && r->fault_kind &&
        check_try_format_origin_line(&r->origin, job->op->sources, at, sizeof at))
        report_put_json_member(to, "at", at);
    if (report_get_declaration_line(job->op)) {
        report_put_json_member(to, "file", check_json_find_string(job->op->json, "file"));
        fprintf(to, ", \"line\": %lld", report_get_declaration_line(job->op));
    }
    if (r->accuracy[0].dtype.bits) {
        fputs(", \"ulp\": {", to);
        report_try_print_accuracy(job, "\"%s\": %.6g", to);
        fputs("}", to);
    }
    if (r->nothing_checked)
        fprintf(to, ", \"%s\": true", r->not_started ? "not_started" : r->tried_cases ? "all_refused" : "no_arguments");
    if (*r->dropped_cases)
        report_put_json_member(to, "dropped_cases", r->dropped_cases);
    if (r->covered_pairs)
        fprintf(to, ", \"pairs\": {\"covered\": %u, \"infeasible\": %u, \"too_large\": %u, \"uncovered\": %u}", r->covered_pairs,
            r->infeasible_pairs, r->oversized_pairs, r->uncovered_pairs);
    if (r->outcome == CHECK_OUTCOME_FAIL && (job->external_case || r->has_case)) {
        report_put_json_member_if_printed(job, "case", report_try_print_case, to);
        fprintf(to, ", \"elements\": %lld",
            (long long)(job->external_case ? job->external_numel : check_case_max_numel(&r->current_case)));
    }
    if (r->outcome == CHECK_OUTCOME_FAIL) {
        char *key = check_job_new_key(job);
        report_put_json_member(to, "key", key);
        free(key);
        report_put_json_member_if_printed(job, "reproduce", report_try_print_command, to);
        if (job->repeats && job->repeats < CHECK_REPEATS)
            fprintf(to, ", \"repeats\": [%d, %d]", job->repeats, CHECK_REPEATS);
    }
    fputs("}", to);
}

/* ---- JUnit's XML: a suite for each operator, a case for each property and kernel ---- */

/* Prints text with the characters of XML's syntax escaped; control characters become spaces. */
static void report_put_xml_text(const char *s, FILE *to)
{
    for (; *s; s++)
        switch (*s) {
        case '&': fputs("&amp;", to); break;
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '"': fputs("&quot;", to); break;
        default: fputc((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t' ? ' ' : *s, to);
        }
}

/* Returns the outcome that JUnit shows for a job. Jobs with nothing_checked count as failures, so that a reader notices them. */
static enum check_outcome report_get_junit_outcome(const check_job *job)
{
    return job->result->nothing_checked ? CHECK_OUTCOME_FAIL : job->result->outcome;
}

/* Prints a job as a JUnit <testcase> element. */
static void report_put_junit_testcase(const check_job *job, FILE *to)
{
    const char *element = report_get_junit_outcome(job) == CHECK_OUTCOME_FAIL ? "failure" : "skipped";
    const check_result *r = job->result;
    fputs("    <testcase classname=\"", to);
    report_put_xml_text(job->op->name, to);
    fprintf(to, "\" name=\"%s%s", job->property->name, job->kernel ? "[" : "");
    report_put_xml_text(job->kernel ? job->kernel->name : "", to);
    fputs(job->kernel ? "]\"" : "\"", to);
    if (report_get_declaration_line(job->op)) {
        fputs(" file=\"", to);
        report_put_xml_text(check_json_find_string(job->op->json, "file"), to);
        fprintf(to, "\" line=\"%lld\"", report_get_declaration_line(job->op));
    }
    if (r->outcome == CHECK_OUTCOME_PASS) {
        fputs("/>\n", to);
        return;
    }
    fprintf(to, ">\n      <%s message=\"", element);
    report_put_xml_text(r->message, to);
    fputs("\">", to);
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) {
        if (report_try_print_case(job, memory))
            fputs("\n", memory);
        if (r->outcome == CHECK_OUTCOME_FAIL)
            report_try_print_command(job, memory);
        fclose(memory);
        report_put_xml_text(text, to);
    }
    free(text);
    fprintf(to, "</%s>\n    </testcase>\n", element);
}

void check_report_print_junit(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to)
{
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"dovetail check\">\n", to);
    for (size_t i = 0; i < nops; i++) {
        size_t counts[3] = { 0 };
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i])
                counts[report_get_junit_outcome(&jobs[k])]++;
        fputs("  <testsuite name=\"", to);
        report_put_xml_text(ops[i].name, to);
        fprintf(to, "\" tests=\"%zu\" failures=\"%zu\" skipped=\"%zu\">\n", counts[0] + counts[1] + counts[2],
            counts[CHECK_OUTCOME_FAIL], counts[CHECK_OUTCOME_UNCHECKED]);
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i])
                report_put_junit_testcase(&jobs[k], to);
        fputs("  </testsuite>\n", to);
    }
    fputs("</testsuites>\n", to);
}

/* Prints the report's table as a string member of the JSON document. */
static void report_put_json_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) {
        check_report_print_table(ops, nops, jobs, njobs, false, memory);
        fclose(memory);
    }
    report_put_json_member(to, "table", text);
    free(text);
}

void check_report_print_json(
    const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options, double seconds, FILE *to)
{
    size_t counts[3] = { 0 };
    for (size_t i = 0; i < njobs; i++)
        counts[jobs[i].result->outcome]++;
    const bool interrupted = options->interrupted && options->interrupted();
    const bool ok = check_report_is_ok(ops, nops, jobs, njobs) && !interrupted;
    fprintf(to, "{\"ok\": %s, \"interrupted\": %s, \"seed\": %llu, \"seconds\": %.3f", ok ? "true" : "false",
        interrupted ? "true" : "false", (unsigned long long)options->seed, seconds);
    fprintf(to, ", \"passed\": %zu, \"failed\": %zu, \"not_checked\": %zu, \"operators\": [", counts[CHECK_OUTCOME_PASS],
        counts[CHECK_OUTCOME_FAIL], counts[CHECK_OUTCOME_UNCHECKED]);
    for (size_t i = 0; i < nops; i++) {
        fputs(i ? ", " : "", to);
        check_print_json_string(to, ops[i].name);
    }
    fputs("], \"results\": [", to);
    for (size_t i = 0; i < njobs; i++) {
        fputs(i ? ",\n " : "\n ", to);
        report_put_json_job(&jobs[i], to);
    }
    fputs("]", to);
    report_put_json_table(ops, nops, jobs, njobs, to);
    fputs("}\n", to);
}
