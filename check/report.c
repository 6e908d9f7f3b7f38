/* What was found, as a table and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

const char *const check_outcomes[] = { [CHECK_PASS] = "pass", [CHECK_FAIL] = "fail", [CHECK_NOT] = "not checked" };

/* The smallest case found; false: none. */
static bool print_case(const check_job *job, FILE *to)
{
    if (job->result->outcome != CHECK_FAIL || !(job->said_case || job->result->has_case))
        return false;
    if (job->said_case)
        fputs(job->said_case, to);
    else
        check_repro_case(job, to);
    return true;
}

/* Where it was declared; 0: not known. */
static long long line_of(const check_op *op)
{
    const check_json *line = check_json_get(op->json, "line");
    return line && !op->foreign && check_json_text(op->json, "file") ? (long long)line->i : 0;
}

/* ---- The table ---- */

typedef struct printer {
    const check_job *jobs;
    size_t njobs, ncolumns;
    const check_property *columns[32];
    FILE *to;
    bool color, ulp; /* ulp: some row's accuracy is known */
    int width;
} printer;

static const char *style(const printer *p, const char *code) { return p->color ? code : ""; }

static void find_columns(printer *p)
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

static const check_job *find_job(const printer *p, const check_op *op, const check_row *row, const check_property *property)
{
    for (size_t i = 0; i < p->njobs; i++)
        if (p->jobs[i].op == op && p->jobs[i].row == row && p->jobs[i].property == property)
            return &p->jobs[i];
    return NULL;
}

typedef struct cell { const char *word, *color; } cell;

static cell cell_of(const check_job *job)
{
    static const cell cells[] = {
        [CHECK_PASS] = { "pass", "\033[32m" }, [CHECK_FAIL] = { "FAIL", "\033[1;31m" }, [CHECK_NOT] = { "-", "\033[2m" }
    };
    return job ? cells[job->result->outcome] : (cell){ "", "" };
}

/* "f32 2, bf16 0.5": what was measured of a row; false: nothing. */
static bool put_accuracy(const check_job *job, const char *format, FILE *to)
{
    bool any = false;
    for (size_t i = 0; job && i < CHECK_ACCURACY && job->result->accuracy[i].dtype.bits; i++, any = true)
        fprintf(to, any ? ", " : ""),
            fprintf(to, format, dv_dtype_name(job->result->accuracy[i].dtype), job->result->accuracy[i].ulp);
    return any;
}

/* One line: an operator, or one of its rows. */
static void print_line(const printer *p, const check_op *op, const check_row *row)
{
    const char *name = row ? row->name : op->name;
    fprintf(p->to, "%s%-*s%s", row ? "  " : style(p, "\033[1m"), p->width - (row ? 2 : 0), name, row ? "" : style(p, "\033[0m"));
    for (size_t k = 0; k < p->ncolumns; k++) {
        const cell c = cell_of(find_job(p, op, row, p->columns[k]));
        const int left = k + 1 < p->ncolumns || p->ulp ? (int)strlen(p->columns[k]->name) - (int)strlen(c.word) : 0;
        fprintf(p->to, "  %s%s%s%*s", style(p, c.color), c.word, style(p, "\033[0m"), left, "");
    }
    const check_job *values = find_job(p, op, row, &check_property_values);
    if (values && values->result->accuracy[0].dtype.bits)
        fputs("  ", p->to), put_accuracy(values, "%s %.3g", p->to);
    fputs("\n", p->to);
}

static bool is_first_of_row(const printer *p, size_t job)
{
    for (size_t i = 0; i < job; i++)
        if (p->jobs[i].op == p->jobs[job].op && p->jobs[i].row == p->jobs[job].row)
            return false;
    return true;
}

static bool same_failure(const check_job *a, const check_job *b)
{
    return a->result->outcome == CHECK_FAIL && b->result->outcome == CHECK_FAIL && a->op == b->op && a->property == b->property &&
        a->row && b->row && !strcmp(a->result->kind, b->result->kind);
}

/* A gradient is compared with the values of its operator: do these fail? */
/* Are results wrong, which a gradient is compared with? */
static bool results_fail(const printer *p, const check_job *job)
{
    bool any = false;
    for (const check_job *other = p->jobs; other < p->jobs + p->njobs; other++)
        any |= other->op == job->op && other->result->outcome == CHECK_FAIL &&
            (other->property == &check_property_values || other->property == &check_property_memory);
    return any;
}

/* Rows of one operator that fail in the same way are printed once. */
static void print_failure(const printer *p, const check_job *job)
{
    const check_result *r = job->result;
    for (const check_job *other = p->jobs; other < job; other++)
        if (same_failure(other, job))
            return;
    fprintf(p->to, "\n%sFAIL%s %s: %s%s%s: %s\n", style(p, "\033[1;31m"), style(p, "\033[0m"), job->property->name, job->op->name,
        job->row ? ", row " : "", job->row ? job->row->name : "", r->message);
    if (job->said_case || r->has_case) {
        fputs("     smallest case found: ", p->to);
        print_case(job, p->to);
        fputs("\n", p->to);
    }
    char line[300];
    if (r->fault && check_origin_line(&r->origin, job->op->sources, line, sizeof line))
        fprintf(p->to, "     at %s\n", line);
    if (job->last_seed > job->seed && r->seed)
        fprintf(p->to, "     with --seed %llu\n", (unsigned long long)r->seed);
    const char *between = "     other rows that fail in this way: ";
    for (const check_job *other = job + 1; other < p->jobs + p->njobs; other++)
        if (same_failure(job, other)) {
            fprintf(p->to, "%s%s", between, other->row->name);
            between = ", ";
        }
    fputs(*between == ',' ? "\n" : "", p->to);
    if (job->property == &check_property_gradient && results_fail(p, job))
        fputs("     perhaps only because the values, with which it is compared, are wrong: see above\n", p->to);
    if (line_of(job->op))
        fprintf(p->to, "     declared in %s:%lld\n", check_json_text(job->op->json, "file"), line_of(job->op));
}

/* Why it was not checked, or what a pass leaves out; NULL for others. */
static const char *reason_of(const check_job *job, enum check_outcome outcome)
{
    const check_result *r = job->result;
    return r->outcome != outcome ? NULL : outcome == CHECK_NOT ? r->message : *r->left_out ? r->left_out : NULL;
}

static bool same_reason(const check_job *a, const check_job *b, enum check_outcome outcome)
{
    const char *one = reason_of(a, outcome), *other = reason_of(b, outcome);
    return one && other && a->property == b->property && !strcmp(one, other);
}

/* A reason that many jobs share is printed once. */
static void print_reasons(const printer *p, enum check_outcome outcome, const char *title)
{
    bool any = false;
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        size_t before = 0, more = 0;
        for (size_t k = 0; k < p->njobs; k++) {
            before += k < i && same_reason(job, &p->jobs[k], outcome);
            more += k > i && same_reason(job, &p->jobs[k], outcome);
        }
        if (before || !reason_of(job, outcome))
            continue;
        fprintf(p->to, "%s%s%s of %s%s%s", any ? "" : "\n", any ? "" : title, job->property->name, job->op->name,
            job->row ? ", row " : "", job->row ? job->row->name : "");
        any = true;
        if (more)
            fprintf(p->to, " and %zu more", more);
        fprintf(p->to, ": %s\n", reason_of(job, outcome));
    }
}

static bool lacks_cases(const check_job *job) { return *job->result->dropped && job->result->outcome == CHECK_PASS; }

/* Cases that were not tried: those of the first row, and how many rows more there are. */
static void print_dropped(const printer *p)
{
    bool any = false;
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        size_t before = 0, more = 0;
        for (size_t k = 0; k < p->njobs; k++) {
            const check_job *other = &p->jobs[k];
            const bool same = lacks_cases(other) && other->op == job->op && other->property == job->property;
            before += same && k < i;
            more += same && k > i;
        }
        if (before || !lacks_cases(job))
            continue;
        fprintf(p->to, "%s%s of %s%s%s", any ? "" : "\npassed, without these cases\n", job->property->name, job->op->name,
            job->row ? ", row " : "", job->row ? job->row->name : "");
        any = true;
        if (more)
            fprintf(p->to, ", and %zu more rows", more);
        fprintf(p->to, ": %s\n", job->result->dropped);
    }
}

/* ---- What a declaration could add, so that more is checked ---- */

static bool was_run(const printer *p, const check_op *op, const check_property *property)
{
    for (size_t i = 0; i < p->njobs; i++)
        if (p->jobs[i].op == op && p->jobs[i].property == property && p->jobs[i].result->outcome != CHECK_FAIL)
            return p->jobs[i].row && p->jobs[i].result->cases;
    return false;
}

static bool lacks(const check_op *op, const char *fact)
{
    return op->contract && !check_json_size(check_json_get(op->contract, fact));
}

/* Has the contract's first pattern of this argument no dtype: "x[n]", not "x[n]:f32"? */
static bool lacks_dtype(const check_op *op, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *text = check_json_text(op->contract, "text");
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

static void put_undeclared(const printer *p, const check_op *op, FILE *to)
{
    bool reference = false, any = false;
    const check_json *native = check_json_get(op->json, "native");
    for (size_t i = 0; i < op->nrows; i++)
        reference |= op->rows[i].reference || op->rows[i].index < 0;
    if (was_run(p, op, &check_property_values) && !op->random && !reference && (!native || native->kind != CHECK_OBJECT))
        any = fputs("a native form or a reference row, which values are compared with", to) >= 0;
    if (was_run(p, op, &check_property_parallel) && !op->random && op->nnames && lacks(op, "parallel") && lacks(op, "sum"))
        fprintf(to, "%sparallel(...) or sum(...), where one holds", any ? "; " : ""), any = true;
    for (size_t i = 0; i < p->njobs; i++)
        if (p->jobs[i].op == op && *p->jobs[i].result->ignored) {
            fprintf(to, "%sunused(%s), if no result depends on it", any ? "; " : "", p->jobs[i].result->ignored);
            any = true;
        }
    for (size_t i = 0; i < op->nargs && op->json && !op->foreign; i++)
        if ((op->slots[i].type == DV_FIELD_TENSOR || op->slots[i].type == DV_FIELD_TENSORS) && lacks_dtype(op, op->slots[i].name))
            fprintf(to, "%sthe dtype of %s", any ? "; " : "", op->slots[i].name), any = true;
}

/* What several operators lack is printed once. */
static void print_undeclared(const printer *p, const check_op *ops, size_t nops)
{
    enum { ROOM = 512 };
    char (*texts)[ROOM] = calloc(nops + 1, sizeof *texts);
    bool any = false;
    for (size_t i = 0; i < nops && texts; i++) {
        FILE *memory = fmemopen(texts[i], ROOM - 1, "w");
        if (memory) {
            put_undeclared(p, &ops[i], memory);
            fclose(memory);
        }
    }
    for (size_t i = 0; i < nops && texts; i++) {
        size_t before = 0, more = 0;
        for (size_t k = 0; k < nops; k++) {
            before += k < i && !strcmp(texts[i], texts[k]);
            more += k > i && !strcmp(texts[i], texts[k]);
        }
        if (before || !*texts[i])
            continue;
        fprintf(p->to, "%s%s", any ? "" : "\nnot declared, so less is checked\n", ops[i].name);
        if (more)
            fprintf(p->to, " and %zu more", more);
        fprintf(p->to, ": %s\n", texts[i]);
        any = true;
    }
    free(texts);
}

/* Prints for each row with refused cases how many cases the kernel accepted and refused. The counts are those of the property
 * that tried most cases. */
static void print_refused(const printer *p)
{
    for (size_t i = 0; i < p->njobs; i++) {
        const check_job *job = &p->jobs[i];
        const check_result *r = job->result;
        bool again = !r->refused || !job->row || r->refused > r->cases;
        for (size_t k = 0; k < p->njobs && !again; k++)
            again = p->jobs[k].row == job->row && p->jobs[k].result->refused && p->jobs[k].result->cases + (k < i) > r->cases;
        if (!again)
            fprintf(p->to, "\ncases of %s, row %s: %u accepted, %u refused by the kernel (%s)\n", job->op->name, job->row->name,
                r->cases - r->refused, r->refused, r->note);
    }
}

/* How far the plans went: of each operator all rows together, of many operators in one line. */
static void print_pairs(const printer *p, const check_op *ops, size_t nops)
{
    enum { MOST_LINES = 4 };
    size_t met = 0, infeasible = 0, cut = 0, not_met = 0;
    const char *example = "";
    for (size_t i = 0; i < nops; i++) {
        for (size_t k = 0; k < p->njobs; k++) {
            const check_result *r = p->jobs[k].result;
            bool again = p->jobs[k].op != &ops[i];
            for (size_t j = 0; j < p->njobs; j++) /* the property that tried most of them */
                again |= p->jobs[j].op == p->jobs[k].op && p->jobs[j].row == p->jobs[k].row &&
                    p->jobs[j].result->met + (j < k) > r->met;
            if (again)
                continue;
            met += r->met, infeasible += r->infeasible, cut += r->cut, not_met += r->not_met;
            example = *r->example && !*example ? r->example : example;
        }
        if ((nops > MOST_LINES && i + 1 < nops) || !(met + cut + not_met))
            continue;
        fprintf(p->to, "\npairs of %s: %zu of %zu", nops > MOST_LINES ? "all" : ops[i].name, met, met + cut + not_met);
        if (infeasible)
            fprintf(p->to, ", %zu infeasible", infeasible);
        if (cut)
            fprintf(p->to, ", %zu larger than --max-elements", cut);
        if (not_met)
            fprintf(p->to, ", %zu not met", not_met);
        fprintf(p->to, *example ? " (%s)\n" : "\n", example);
        met = infeasible = cut = not_met = 0;
        example = "";
    }
}

const check_job *check_report_unmade(const check_op *op, const check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        if (jobs[i].op == op && jobs[i].result->unmade)
            return &jobs[i];
    return NULL;
}

void check_report_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, bool color, FILE *to)
{
    printer p = { .jobs = jobs, .njobs = njobs, .to = to, .color = color };
    find_columns(&p);
    for (size_t i = 0; i < nops; i++) {
        const check_job *unmade = check_report_unmade(&ops[i], jobs, njobs);
        if (unmade)
            fprintf(to, "%sNOT CHECKED%s %s: %s\n\n", style(&p, "\033[1;31m"), style(&p, "\033[0m"), ops[i].name,
                unmade->result->message);
    }
    for (size_t i = 0; i < nops; i++)
        p.width = (int)strlen(ops[i].name) > p.width ? (int)strlen(ops[i].name) : p.width;
    for (size_t k = 0; k < njobs; k++)
        if (jobs[k].row && (int)strlen(jobs[k].row->name) + 2 > p.width)
            p.width = (int)strlen(jobs[k].row->name) + 2;
    fprintf(to, "%*s", p.width, "");
    for (size_t k = 0; k < p.ncolumns; k++)
        fprintf(to, "  %s", p.columns[k]->name);
    fputs(p.ulp ? "  ulp\n" : "\n", to);
    for (size_t i = 0; i < nops; i++) {
        print_line(&p, &ops[i], NULL);
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i] && jobs[k].row && is_first_of_row(&p, k))
                print_line(&p, &ops[i], jobs[k].row);
    }
    size_t counts[3] = { 0 };
    for (size_t i = 0; i < njobs; i++)
        counts[jobs[i].result->outcome]++;
    for (size_t i = 0; i < njobs; i++)
        if (jobs[i].result->outcome == CHECK_FAIL)
            print_failure(&p, &jobs[i]);
    print_reasons(&p, CHECK_NOT, "not checked, because\n");
    print_reasons(&p, CHECK_PASS, "passed, without\n");
    print_dropped(&p);
    print_undeclared(&p, ops, nops);
    print_pairs(&p, ops, nops);
    print_refused(&p);
    fprintf(to, "\n%zu passed, %zu failed, %zu not checked\n", counts[CHECK_PASS], counts[CHECK_FAIL], counts[CHECK_NOT]);
}

/* ---- JSON ---- */

void check_put_text(FILE *to, const char *s)
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

static void put_member(FILE *to, const char *key, const char *text)
{
    fprintf(to, ", \"%s\": ", key);
    check_put_text(to, text);
}

/* A member whose text is written by a function; false: there is none. */
static void put_written(const check_job *job, const char *key, bool (*print)(const check_job *, FILE *), FILE *to)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    const bool there = memory && print(job, memory);
    if (memory)
        fclose(memory);
    if (there)
        put_member(to, key, text);
    free(text);
}

static void put_job(const check_job *job, FILE *to)
{
    const check_result *r = job->result;
    fputs("{\"property\": ", to);
    check_put_text(to, job->property->name);
    put_member(to, "operator", job->op->name);
    if (job->row)
        put_member(to, "row", job->row->name);
    else
        fputs(", \"row\": null", to);
    put_member(to, "result", check_outcomes[r->outcome]);
    fprintf(to, ", \"cases\": %u, \"refused\": %u, \"cpu\": %.3f", r->cases, r->refused, r->used);
    if (r->outcome == CHECK_FAIL && r->seed)
        fprintf(to, ", \"seed\": %llu", (unsigned long long)r->seed);
    if (r->outcome == CHECK_FAIL)
        put_member(to, "kind", r->kind);
    if (r->outcome != CHECK_PASS)
        put_member(to, r->outcome == CHECK_FAIL ? "message" : "because", r->message);
    else if (*r->left_out)
        put_member(to, "without", r->left_out);
    char at[300];
    if (r->outcome == CHECK_FAIL && r->fault && check_origin_line(&r->origin, job->op->sources, at, sizeof at))
        put_member(to, "at", at);
    if (line_of(job->op)) {
        put_member(to, "file", check_json_text(job->op->json, "file"));
        fprintf(to, ", \"line\": %lld", line_of(job->op));
    }
    if (r->accuracy[0].dtype.bits) {
        fputs(", \"ulp\": {", to);
        put_accuracy(job, "\"%s\": %.6g", to);
        fputs("}", to);
    }
    if (r->unmade)
        fprintf(to, ", \"%s\": true", r->unstarted ? "not_started" : r->cases ? "all_refused" : "no_arguments");
    if (*r->dropped)
        put_member(to, "dropped", r->dropped);
    if (r->met)
        fprintf(to, ", \"pairs\": {\"met\": %u, \"infeasible\": %u, \"cut\": %u, \"not_met\": %u}", r->met, r->infeasible, r->cut,
            r->not_met);
    if (r->outcome == CHECK_FAIL && (job->said_case || r->has_case)) {
        put_written(job, "case", print_case, to);
        fprintf(to, ", \"elements\": %lld", (long long)(job->said_case ? job->said_elements : check_case_largest(&r->failing)));
    }
    if (check_repro_possible(job)) {
        put_written(job, "c", check_repro_c, to);
        put_written(job, "python", check_repro_python, to);
    }
    fputs("}", to);
}

/* ---- JUnit's XML: a suite for each operator, a case for each property and row ---- */

static void put_xml(const char *s, FILE *to)
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

/* What a reader of JUnit's XML must not pass over is a failure. */
static enum check_outcome junit_outcome(const check_job *job) { return job->result->unmade ? CHECK_FAIL : job->result->outcome; }

static void put_testcase(const check_job *job, FILE *to)
{
    const char *element = junit_outcome(job) == CHECK_FAIL ? "failure" : "skipped";
    const check_result *r = job->result;
    fputs("    <testcase classname=\"", to);
    put_xml(job->op->name, to);
    fprintf(to, "\" name=\"%s%s", job->property->name, job->row ? "[" : "");
    put_xml(job->row ? job->row->name : "", to);
    fputs(job->row ? "]\"" : "\"", to);
    if (line_of(job->op)) {
        fputs(" file=\"", to);
        put_xml(check_json_text(job->op->json, "file"), to);
        fprintf(to, "\" line=\"%lld\"", line_of(job->op));
    }
    if (r->outcome == CHECK_PASS) {
        fputs("/>\n", to);
        return;
    }
    fprintf(to, ">\n      <%s message=\"", element);
    put_xml(r->message, to);
    fputs("\">", to);
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) {
        print_case(job, memory);
        fclose(memory);
        put_xml(text, to);
    }
    free(text);
    fprintf(to, "</%s>\n    </testcase>\n", element);
}

void check_report_junit(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to)
{
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"dovetail check\">\n", to);
    for (size_t i = 0; i < nops; i++) {
        size_t counts[3] = { 0 };
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i])
                counts[junit_outcome(&jobs[k])]++;
        fputs("  <testsuite name=\"", to);
        put_xml(ops[i].name, to);
        fprintf(to, "\" tests=\"%zu\" failures=\"%zu\" skipped=\"%zu\">\n", counts[0] + counts[1] + counts[2], counts[CHECK_FAIL],
            counts[CHECK_NOT]);
        for (size_t k = 0; k < njobs; k++)
            if (jobs[k].op == &ops[i])
                put_testcase(&jobs[k], to);
        fputs("  </testsuite>\n", to);
    }
    fputs("</testsuites>\n", to);
}

static void put_table(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, FILE *to)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) {
        check_report_table(ops, nops, jobs, njobs, false, memory);
        fclose(memory);
    }
    put_member(to, "table", text);
    free(text);
}

void check_report_json(
    const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options, double seconds, FILE *to)
{
    size_t counts[3] = { 0 };
    for (size_t i = 0; i < njobs; i++)
        counts[jobs[i].result->outcome]++;
    const bool interrupted = options->interrupted && options->interrupted();
    bool ok = !counts[CHECK_FAIL] && !interrupted;
    for (size_t i = 0; i < nops; i++)
        ok &= !check_report_unmade(&ops[i], jobs, njobs);
    fprintf(to, "{\"ok\": %s, \"interrupted\": %s, \"seed\": %llu, \"seconds\": %.3f", ok ? "true" : "false",
        interrupted ? "true" : "false", (unsigned long long)options->seed, seconds);
    fprintf(to, ", \"passed\": %zu, \"failed\": %zu, \"not_checked\": %zu, \"operators\": [", counts[CHECK_PASS],
        counts[CHECK_FAIL], counts[CHECK_NOT]);
    for (size_t i = 0; i < nops; i++) {
        fputs(i ? ", " : "", to);
        check_put_text(to, ops[i].name);
    }
    fputs("], \"results\": [", to);
    for (size_t i = 0; i < njobs; i++) {
        fputs(i ? ",\n " : "\n ", to);
        put_job(&jobs[i], to);
    }
    fputs("]", to);
    put_table(ops, nops, jobs, njobs, to);
    fputs("}\n", to);
}
