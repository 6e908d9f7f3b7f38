/* torch: what PyTorch and Dovetail promise together, asked by a Python with torch (bridges/torch/python/check/). Here: the
 * question, with cases that the contract accepts, and its answer as jobs, a row for each of Python's checks.
 *
 * Cases are made as for any property, in forked children; their text comes back through shared memory. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "dovetail_op.h"

const check_property check_property_torch = {
    .name = "torch",
    .promise = "fake tensors, autograd, compilation, functionalization and vmap agree with eager calls",
    .outside = true,
};

/* ---- The question ---- */

enum { ROOM = 1 << 20, MOST_ELEMENTS = 2048 };
typedef struct cases {
    size_t size;
    char text[ROOM];
} cases;
static cases *shared; /* for each operator */
static const check_op *first_op;

/* torch's own checks treat NaN as unequal to itself. */
static bool fits(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present &&
            (c->tensors[i].layout == CHECK_REVERSED || c->tensors[i].fill == CHECK_SPECIAL ||
                check_numel(&c->tensors[i]) > MOST_ELEMENTS))
            return false;
    return true;
}

static void note(check_job *job, const check_case *c)
{
    cases *to = &shared[job->op - first_op];
    char *text = NULL, *quoted = NULL;
    size_t size = 0;
    FILE *memory = fits(c) ? open_memstream(&text, &size) : NULL;
    if (!memory)
        return;
    check_repro_arguments(job, memory);
    fclose(memory);
    memory = open_memstream(&quoted, &size);
    if (memory) {
        fputs(to->size ? ",\n  " : "\n  ", memory);
        check_put_text(memory, text);
        fclose(memory);
        if (to->size + size < sizeof to->text) {
            memcpy(to->text + to->size, quoted, size);
            to->size += size;
        }
    }
    free(quoted);
    free(text);
}

static const check_property noting = { .name = "cases", .promise = "", .faults = ~0u, .attempt = note };
static const check_property *const only_noting[] = { &noting, NULL };

static bool note_cases(const check_op *ops, size_t nops, const check_options *options)
{
    check_options mine = *options;
    check_job *jobs;
    size_t njobs;
    void *p = mmap(NULL, (nops + 1) * sizeof(cases), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    shared = p;
    first_op = ops;
    mine.properties = only_noting;
    mine.progress = NULL;
    mine.cases = mine.cases && mine.cases < 64 ? mine.cases : 64;
    if (check_run(ops, nops, &mine, &jobs, &njobs))
        return false;
    free(jobs);
    return true;
}

/* Write to text why torch is not asked about an operator; false: it is asked. */
static bool out_of_question(const check_op *op, const check_job *jobs, size_t njobs, char *text, size_t size)
{
    const char *failed = NULL;
    for (size_t i = 0; i < njobs && !failed; i++)
        if (jobs[i].op == op && jobs[i].result->outcome == CHECK_FAIL)
            failed = jobs[i].property->name;
    if (op->refused)
        snprintf(text, size, "its binary is refused (see binding)");
    else if (failed)
        snprintf(text, size, "it says nothing until %s is right", failed);
    else if (!op->foreign && !strncmp(op->name, "base::", 6))
        snprintf(text, size, "it is torch's own");
    else if (!op->foreign && !op->nrows && op->device)
        snprintf(text, size, "it has rows for %s only and no native form: there is nothing to compare them with", op->device);
    else
        return false;
    return true;
}

char *check_torch_question(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options)
{
    char *text = NULL, why[160];
    size_t size = 0, ncases = 0, asked = 0;
    for (size_t i = 0; i < nops; i++) {
        const bool is_asked = !out_of_question(&ops[i], jobs, njobs, why, sizeof why);
        asked += is_asked;
        ncases += is_asked && ops[i].op;
    }
    if (!asked)
        return strdup("");
    if (ncases && !note_cases(ops, nops, options))
        return NULL;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    fprintf(to, "{\"seed\": %llu, \"seconds\": %g, \"operators\": [", (unsigned long long)options->seed, options->seconds);
    for (size_t i = 0, n = 0; i < nops; i++) {
        if (out_of_question(&ops[i], jobs, njobs, why, sizeof why))
            continue;
        fprintf(to, "%s\n {\"name\": ", n++ ? "," : "");
        check_put_text(to, ops[i].name);
        fputs(", \"file\": ", to);
        check_put_text(to, ops[i].path);
        fprintf(to, ", \"foreign\": %s, \"contract\": %s, \"rtol\": %.17g, \"atol\": %.17g, \"devices\": %s, \"cases\": [%.*s]}",
            ops[i].foreign ? "true" : "false", ops[i].op ? "true" : "false", fmax(ops[i].rtol, 0), fmax(ops[i].atol, 0),
            ops[i].device ? "true" : "false", ncases && shared[i].size <= ROOM ? (int)shared[i].size : 0,
            ncases ? shared[i].text : "");
    }
    fputs("]}\n", to);
    fclose(to);
    if (shared)
        munmap(shared, (nops + 1) * sizeof(cases));
    shared = NULL;
    return text;
}

/* ---- The answer ---- */

static int add(check_job **jobs, size_t *njobs, const check_op *op, const check_row *row, check_job **out)
{
    check_job *grown = realloc(*jobs, (*njobs + 1) * sizeof **jobs);
    if (!grown)
        return -1;
    *jobs = grown;
    grown[*njobs] =
        (check_job){ .op = op, .row = row, .property = &check_property_torch, .result = calloc(1, sizeof(check_result)) };
    *out = &grown[*njobs];
    return grown[(*njobs)++].result ? 0 : -1;
}

/* Rows with one name form one row of the whole report. */
static const check_row *row_named(const char *name)
{
    static check_row rows[64];
    size_t i = 0;
    while (i + 1 < sizeof rows / sizeof *rows && rows[i].name && strcmp(rows[i].name, name))
        i++;
    if (!rows[i].name)
        rows[i] = (check_row){ .name = name, .available = true };
    return &rows[i];
}

static int64_t number_of(const check_json *object, const char *key)
{
    const check_json *j = check_json_get(object, key);
    return j ? j->i : 0;
}

static void fill(check_job *job, const check_json *j)
{
    const char *result = check_json_text(j, "result"), *kind = check_json_text(j, "check"),
               *message = check_json_text(j, "message");
    check_result *r = job->result;
    r->outcome = result && !strcmp(result, "pass") ? CHECK_PASS : result && !strcmp(result, "fail") ? CHECK_FAIL : CHECK_NOT;
    r->cases = (uint32_t)number_of(j, "cases");
    snprintf(r->kind, sizeof r->kind, "%s", kind ? kind : "");
    snprintf(r->message, sizeof r->message, "%s", message ? message : "");
    job->said_case = check_json_text(j, "case");
    job->said_python = check_json_text(j, "python");
    job->said_elements = number_of(j, "elements");
}

int check_torch_answer(const check_op *ops, size_t nops, const char *answer, const char *why, check_job **jobs, size_t *njobs)
{
    const check_json *all = answer ? check_json_parse(answer) : NULL;
    const size_t njudged = *njobs;
    check_job *job;
    if (answer && !all)
        return -1;
    for (size_t i = 0; i < nops; i++) {
        const size_t before = *njobs;
        for (const check_json *j = all ? all->child : NULL; j; j = j->next) {
            const char *name = check_json_text(j, "operator"), *check = check_json_text(j, "check");
            if (!name || strcmp(name, ops[i].name))
                continue;
            if (add(jobs, njobs, &ops[i], check ? row_named(check) : NULL, &job))
                return -1;
            fill(job, j);
        }
        if (*njobs > before)
            continue;
        if (add(jobs, njobs, &ops[i], NULL, &job))
            return -1;
        job->result->outcome = CHECK_NOT;
        if (!out_of_question(&ops[i], *jobs, njudged, job->result->message, sizeof job->result->message))
            snprintf(job->result->message, sizeof job->result->message, "%s", why ? why : "Python says nothing of it");
    }
    return 0;
}

/* ---- An operator of torch's: a declaration without kernels ---- */

/* The C type of a field that holds what a slot takes. */
static uint32_t field_type(const dv_slot_info *s, bool result)
{
    const bool writes = result || s->flags & DV_SLOT_WRITES, optional = s->flags & DV_SLOT_OPTIONAL;
    const uint32_t type = writes ? dv_field_over(s->type, DV_FORM_WRITTEN)
        : optional               ? dv_field_over(s->type, DV_FORM_OPTIONAL)
                                 : 0;
    return type ? type : s->type;
}

/* Read a schema without an operator: define it in a temporary library. */
static int read_slots(const char *space, const char *schema, dv_field_decl *fields, char (*names)[64], size_t most, size_t *n)
{
    dv_library *lib;
    dv_operator *op;
    int status = dv_library_new(DV_LIBRARY_FRAGMENT, space, DV_KEY_NONE, &lib);
    if (status)
        return status;
    status = dv_library_define(lib, schema, NULL, &op);
    const size_t nargs = status ? 0 : dv_operator_nargs(op), all = status ? 0 : nargs + dv_operator_nresults(op);
    for (size_t i = 0; i < all && !status; i++) {
        dv_slot_info s;
        status = dv_operator_slot(op, i, &s);
        if (!status && (*n == most || strlen(s.name) >= sizeof *names))
            status = dv_fail(DV_ENOTSUP, "it has more arguments or results than the checker handles");
        if (status || (i >= nargs && s.alias >= 0))
            continue;
        snprintf(names[*n], sizeof *names, "%s", s.name);
        fields[*n] =
            (dv_field_decl){ .size = sizeof *fields, .type = field_type(&s, i >= nargs), .name = names[*n], .offset = *n * 64 };
        ++*n;
    }
    dv_library_free(lib);
    return status;
}

int check_foreign(const char *schema, const char *contract, check_op *out)
{
    static dv_field_decl fields[CHECK_ARGS + CHECK_RESULTS];
    static char names[CHECK_ARGS + CHECK_RESULTS][64], space[256], name[256];
    static const dv_field_decl *pointers[CHECK_ARGS + CHECK_RESULTS + 1];
    static dv_operator_decl decl;
    static const dv_operator_decl *operators[2] = { &decl, NULL };
    static dv_library_decl lib;
    const char *colons = strstr(schema, "::"), *open = strchr(schema, '(');
    size_t n = 0;
    dv_library *loaded;
    if (!colons || !open || colons > open)
        return dv_fail(DV_EINVAL, "expected a schema 'ns::name(...) -> ...', found '%s'", schema), -1;
    snprintf(space, sizeof space, "%.*s", (int)(colons - schema), schema);
    snprintf(name, sizeof name, "%.*s", (int)(open - schema), schema);
    *out = (check_op){ .name = strdup(name), .foreign = true };
    if (!contract)
        return 0;
    if (read_slots(space, colons + 2, fields, names, CHECK_ARGS + CHECK_RESULTS, &n))
        return -1;
    for (size_t i = 0; i < n; i++)
        pointers[i] = &fields[i];
    decl = (dv_operator_decl){ .size = sizeof decl,
        .name = "operator",
        .schema = colons + 2,
        .contract = contract,
        .frame_size = (uint32_t)(n * 64 + 64),
        .file = "--contract",
        .fields = pointers };
    lib = (dv_library_decl){ .size = sizeof lib,
        .abi_minor = DV_ABI_MINOR,
        .kind = DV_LIBRARY_FRAGMENT,
        .name = space,
        .provider = "torch",
        .operators = operators };
    if (dv_load_static(&lib, &loaded) || check_op_init(out, dv_library_operator(loaded, 0)))
        return -1;
    out->foreign = true;
    out->name = strdup(name);
    return 0;
}
