/* Property torch: PyTorch and Dovetail work together. A Python process with torch makes the checks
 * (bridges/torch/python/check/). This file writes the request, with cases that the contract accepts, and reads the answer as
 * jobs, with a kernel for each of Python's checks.
 *
 * Cases are made as for any property, in workers; their text comes back through shared memory. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "dovetail_op.h"

/* ---- The request ---- */

enum { MAX_CASE_TEXT = 1 << 20, MAX_ELEMENTS = 2048 };
typedef struct case_texts {
    size_t size;
    char text[MAX_CASE_TEXT];
} case_texts;
static case_texts *shared_texts; /* by operator: the text of its cases, in memory that workers share */
static const check_op *first_op;

/* Prints integers as a tuple of Python: "(2, 3, )". */
static void torch_put_python_tuple(const int64_t *numbers, int32_t count, FILE *file)
{
    fputs("(", file);
    for (int32_t i = 0; i < count; i++)
        fprintf(file, "%lld, ", (long long)numbers[i]);
    fputs(")", file);
}

/* Prints a float as Python source, such as "1.0" or "-inf". */
static void torch_put_python_number(double number, FILE *file)
{
    if (isnan(number) || isinf(number))
        fprintf(file, "%s%s", number < 0 ? "-" : "", isnan(number) ? "nan" : "inf");
    else
        fprintf(file, fabs(number) < 1e16 && number == rint(number) ? "%.1f" : "%.17g",
            number); /* a whole number is printed as "-0.0", since an integer has no -0 */
}

/* Prints a tensor of the case as Python source, with shape, strides, the number of the first element and the memory in
 * hexadecimal digits: tensor("float32", (2, ), (1, ), 0, "..."). An absent or too large tensor is "None". */
static void torch_put_python_tensor(const check_case *c, size_t tensor_index, FILE *file)
{
    const check_tensor *t = &c->tensors[tensor_index];
    int64_t strides[CHECK_MAX_DIMS], low, high, n, first;
    unsigned char *memory = t->present ? check_new_tensor_contents(c, tensor_index, &n, &first) : NULL;
    if (!memory) {
        fputs("None", file);
        return;
    }
    check_compute_strides(t, strides, &low, &high);
    fprintf(file, "tensor(\"%s\", ", dv_dtype_long_name(t->dtype));
    torch_put_python_tuple(t->shape, t->ndim, file);
    fputs(", ", file);
    torch_put_python_tuple(strides, t->ndim, file);
    fprintf(file, ", %lld, \"", (long long)first);
    for (int64_t k = 0; k < n * dv_dtype_bytes(t->dtype, 1); k++)
        fprintf(file, "%02x", memory[k]);
    fputs("\")", file);
    free(memory);
}

/* Prints an argument of the case as Python source. */
static void torch_put_python_value(const check_case *c, const check_value *value, FILE *file)
{
    switch (value->type) {
    case DV_VALUE_TENSOR: torch_put_python_tensor(c, value->first_tensor, file); return;
    case DV_VALUE_INT: fprintf(file, "%lld", (long long)value->as.i); return;
    case DV_VALUE_FLOAT: torch_put_python_number(value->as.f, file); return;
    case DV_VALUE_BOOL: fputs(value->as.b ? "True" : "False", file); return;
    case DV_VALUE_COMPLEX:
        fputs("complex(", file);
        torch_put_python_number(value->as.c.re, file);
        fputs(", ", file);
        torch_put_python_number(value->as.c.im, file);
        fputs(")", file);
        return;
    case DV_VALUE_STRING: fprintf(file, "\"%s\"", value->string); return;
    case DV_VALUE_DTYPE: fprintf(file, "\"%s\"", dv_dtype_name(value->as.dtype)); return;
    case DV_VALUE_DEVICE: fputs("\"cpu\"", file); return;
    case DV_VALUE_LAYOUT: fputs("\"strided\"", file); return;
    case DV_VALUE_MEMORY_FORMAT: fputs("\"contiguous_format\"", file); return;
    case DV_VALUE_NONE: fputs("None", file); return;
    default: break;
    }
    fputs("[", file);
    for (uint32_t k = 0; k < value->count; k++) {
        if (value->type == DV_VALUE_TENSORS)
            torch_put_python_tensor(c, value->first_tensor + k, file);
        else if (value->type == DV_VALUE_INTS)
            fprintf(file, "%lld", (long long)value->ints[k]);
        else if (value->type == DV_VALUE_BOOLS)
            fputs(value->ints[k] ? "True" : "False", file);
        else if (value->type == DV_VALUE_STRINGS)
            fprintf(file, "\"%s\"", check_value_get_string(value, k));
        else if (value->type == DV_VALUE_SCALARS && value->ints[k] == DV_SCALAR_INT)
            fprintf(file, "%lld", (long long)value->floats[k]);
        else if (value->type == DV_VALUE_SCALARS && value->ints[k] == DV_SCALAR_BOOL)
            fputs(value->floats[k] > 0 ? "True" : "False", file);
        else
            torch_put_python_number(value->floats[k], file);
        fputs(", ", file);
    }
    fputs("]", file);
}

/* Prints the arguments of a case as Python source: {"x": tensor("float32", (2, ), (1, ), 0, "0000803f00000040"), "dim": 1, }.
 * Arguments at their default are left out. */
static void torch_put_python_arguments(const check_op *op, const check_case *c, FILE *file)
{
    fputs("{", file);
    for (size_t i = 0; i < c->nargs; i++) {
        if (c->args[i].type == DV_VALUE_DEFAULT)
            continue;
        fprintf(file, "\"%s\": ", op->slots[i].name);
        torch_put_python_value(c, &c->args[i], file);
        fputs(", ", file);
    }
    fputs("}", file);
}

/* True if torch's checks can use a case. They treat NaN as unequal to itself, have no negative strides, and should be fast, so
 * tensors are small. */
static bool torch_can_compare_case(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present &&
            (c->tensors[i].layout == CHECK_LAYOUT_REVERSED || c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES ||
                check_tensor_numel(&c->tensors[i]) > MAX_ELEMENTS))
            return false;
    return true;
}

/* Appends the text of a case to the shared memory of its operator, unless torch's checks cannot use it, or there is no room.
 * Function for check_property.test_case. */
static void torch_record_case(check_job *job, const check_case *c)
{
    case_texts *to = &shared_texts[job->op - first_op];
    char *text = NULL, *quoted = NULL;
    size_t size = 0;
    FILE *memory = torch_can_compare_case(c) ? open_memstream(&text, &size) : NULL;
    if (!memory)
        return;
    torch_put_python_arguments(job->op, c, memory);
    fclose(memory);
    memory = open_memstream(&quoted, &size);
    if (memory) {
        fputs(to->size ? ",\n  " : "\n  ", memory);
        check_print_json_string(memory, text);
        fclose(memory);
        if (to->size + size < sizeof to->text) {
            memcpy(to->text + to->size, quoted, size);
            to->size += size;
        }
    }
    free(quoted);
    free(text);
}

static const check_property record_property = {
    .name = "cases", .description = "", .reported_faults = ~0u, .test_case = torch_record_case
};
static const check_property *const record_properties[] = { &record_property, NULL };

/* Makes the cases of all operators in worker processes, and their texts in shared_texts. Returns false, with errno, if that
 * fails. */
static bool torch_try_record_cases(const check_op *ops, size_t nops, const check_options *options)
{
    check_options record_options = *options;
    check_job *jobs;
    size_t njobs;
    if (!(shared_texts = check_map_shared_memory((nops + 1) * sizeof(case_texts))))
        return false;
    first_op = ops;
    record_options.properties = record_properties;
    record_options.progress = NULL;
    record_options.max_cases = record_options.max_cases && record_options.max_cases < 64 ? record_options.max_cases : 64;
    if (check_run_jobs(ops, nops, &record_options, &jobs, &njobs))
        return false;
    free(jobs);
    return true;
}

/* True if an operator is left out of the request; `reason` then receives why, such as a property of it that failed. */
static bool torch_has_skip_reason(const check_op *op, const check_job *jobs, size_t njobs, char *reason, size_t capacity)
{
    const char *failed = NULL;
    for (size_t i = 0; i < njobs && !failed; i++)
        if (jobs[i].op == op && jobs[i].result->outcome == CHECK_OUTCOME_FAIL)
            failed = jobs[i].property->name;
    if (op->load_error)
        snprintf(reason, capacity, "its binary is refused (see binding)");
    else if (failed)
        snprintf(reason, capacity, "it says nothing until %s is right", failed);
    else if (!op->is_torch_operator && !strncmp(op->name, "base::", 6))
        snprintf(reason, capacity, "it is torch's own");
    else if (!op->is_torch_operator && !op->nkernels && op->other_device)
        snprintf(reason, capacity, "it has kernels for %s only and no decomposition: there is nothing to compare them with",
            op->other_device);
    else
        return false;
    return true;
}

char *check_torch_new_request(const check_op *ops, size_t nops, const check_job *jobs, size_t njobs, const check_options *options)
{
    char *text = NULL, why[160];
    size_t size = 0, ncases = 0, asked = 0;
    for (size_t i = 0; i < nops; i++) {
        const bool is_asked = !torch_has_skip_reason(&ops[i], jobs, njobs, why, sizeof why);
        asked += is_asked;
        ncases += is_asked && ops[i].op;
    }
    if (!asked)
        return strdup("");
    if (ncases && !torch_try_record_cases(ops, nops, options))
        return NULL;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    fprintf(to, "{\"seed\": %llu, \"seconds\": %g, \"operators\": [", (unsigned long long)options->seed, options->max_seconds);
    for (size_t i = 0, n = 0; i < nops; i++) {
        if (torch_has_skip_reason(&ops[i], jobs, njobs, why, sizeof why))
            continue;
        fprintf(to, "%s\n {\"name\": ", n++ ? "," : "");
        check_print_json_string(to, ops[i].name);
        fputs(", \"file\": ", to);
        check_print_json_string(to, ops[i].path);
        fprintf(to, ", \"foreign\": %s, \"contract\": %s, \"rtol\": %.17g, \"atol\": %.17g, \"devices\": %s, \"cases\": [%.*s]}",
            ops[i].is_torch_operator ? "true" : "false", ops[i].op ? "true" : "false", fmax(ops[i].rtol, 0), fmax(ops[i].atol, 0),
            ops[i].other_device ? "true" : "false",
            ncases && shared_texts[i].size <= MAX_CASE_TEXT ? (int)shared_texts[i].size : 0, ncases ? shared_texts[i].text : "");
    }
    fputs("]}\n", to);
    fclose(to);
    if (shared_texts)
        munmap(shared_texts, (nops + 1) * sizeof(case_texts));
    shared_texts = NULL;
    return text;
}

/* ---- The answer ---- */

/* Appends a job of property torch, without a result as yet, to *jobs. Returns 0, or -1 if memory is out. */
static int torch_append_job(const check_options *options, check_job **jobs, size_t *njobs, const check_op *op,
    const check_kernel *kernel, check_job **new_job)
{
    check_job *larger = realloc(*jobs, (*njobs + 1) * sizeof **jobs);
    if (!larger)
        return -1;
    *jobs = larger;
    larger[*njobs] = (check_job){ .op = op,
        .kernel = kernel,
        .property = &check_property_torch,
        .result = calloc(1, sizeof(check_result)),
        .seed = options->seed,
        .max_cases = options->max_cases,
        .case_ms = options->case_ms };
    *new_job = &larger[*njobs];
    return larger[(*njobs)++].result ? 0 : -1;
}

/* Returns the kernel that stands for one of Python's checks in the report; makes it at the first call with this name. */
static const check_kernel *torch_get_kernel_for_check(const char *name_of_check)
{
    static check_kernel kernels[64];
    size_t i = 0;
    while (i + 1 < sizeof kernels / sizeof *kernels && kernels[i].name && strcmp(kernels[i].name, name_of_check))
        i++;
    if (!kernels[i].name)
        kernels[i] = (check_kernel){ .name = name_of_check, .is_available = true };
    return &kernels[i];
}

/* Returns an integer member of a JSON object; 0: the object has no such member. */
static int64_t torch_get_json_integer(const check_json *object, const char *key)
{
    const check_json *j = check_json_find_member(object, key);
    return j ? j->int_value : 0;
}

/* Copies the outcome, message and failing case of one entry of Python's answer to a job's result. */
static void torch_fill_result(check_job *job, const check_json *answer)
{
    const char *result = check_json_find_string(answer, "result"), *kind = check_json_find_string(answer, "check"),
               *message = check_json_find_string(answer, "message");
    check_result *r = job->result;
    r->outcome = result && !strcmp(result, "pass") ? CHECK_OUTCOME_PASS
        : result && !strcmp(result, "fail")        ? CHECK_OUTCOME_FAIL
                                                   : CHECK_OUTCOME_UNCHECKED;
    r->tried_cases = (uint32_t)torch_get_json_integer(answer, "cases");
    snprintf(r->kind, sizeof r->kind, "%s", kind ? kind : "");
    snprintf(r->message, sizeof r->message, "%s", message ? message : "");
    job->external_case = check_json_find_string(answer, "case");
    job->external_python = check_json_find_string(answer, "python");
    job->external_numel = torch_get_json_integer(answer, "elements");
}

int check_torch_add_results(const check_op *ops, size_t nops, const check_options *options, const char *answer, const char *why,
    check_job **jobs, size_t *njobs)
{
    const check_json *all = answer ? check_json_parse(answer) : NULL;
    const size_t njudged = *njobs;
    check_job *job;
    if (answer && !all)
        return -1;
    for (size_t i = 0; i < nops; i++) {
        const size_t before = *njobs;
        for (const check_json *j = all ? all->child : NULL; j; j = j->next) {
            const char *name = check_json_find_string(j, "operator"), *check = check_json_find_string(j, "check");
            if (!name || strcmp(name, ops[i].name))
                continue;
            if (torch_append_job(options, jobs, njobs, &ops[i], check ? torch_get_kernel_for_check(check) : NULL, &job))
                return -1;
            torch_fill_result(job, j);
        }
        if (*njobs > before)
            continue;
        if (torch_append_job(options, jobs, njobs, &ops[i], NULL, &job))
            return -1;
        job->result->outcome = CHECK_OUTCOME_UNCHECKED;
        if (!torch_has_skip_reason(&ops[i], *jobs, njudged, job->result->message, sizeof job->result->message))
            snprintf(job->result->message, sizeof job->result->message, "%s", why ? why : "Python says nothing of it");
    }
    return 0;
}

/* ---- An operator of PyTorch: a declaration without kernels ---- */

/* Returns the enum dv_field_type of the struct field that a kernel would have for this slot of its schema. */
static uint32_t torch_find_struct_field_type(const dv_slot_info *slot, bool is_result)
{
    const bool writes = is_result || slot->flags & DV_SLOT_WRITES, is_optional = slot->flags & DV_SLOT_OPTIONAL;
    const uint32_t type = writes ? dv_field_with_form(slot->type, DV_FORM_WRITTEN)
        : is_optional            ? dv_field_with_form(slot->type, DV_FORM_OPTIONAL)
                                 : 0;
    return type ? type : slot->type;
}

/* Makes the struct fields and their names that a kernel of this schema would have, by defining the schema in a temporary library.
 * *nfields receives their number. Returns a status; DV_ENOTSUP if there are more than max_fields. */
static int torch_make_fields_from_schema(
    const char *library_name, const char *schema, dv_field_decl *fields, char (*names)[64], size_t max_fields, size_t *nfields)
{
    dv_library *lib;
    dv_operator *op;
    int status = dv_library_new(DV_LIBRARY_FRAGMENT, library_name, DV_KEY_NONE, &lib);
    if (status)
        return status;
    status = dv_library_define(lib, schema, NULL, &op);
    const size_t nargs = status ? 0 : dv_operator_nargs(op), all = status ? 0 : nargs + dv_operator_nresults(op);
    for (size_t i = 0; i < all && !status; i++) {
        dv_slot_info slot;
        status = dv_operator_slot(op, i, &slot);
        if (!status && (*nfields == max_fields || strlen(slot.name) >= sizeof *names))
            status = dv_fail(DV_ENOTSUP, "it has more arguments or results than the checker handles");
        if (status || (i >= nargs && slot.alias >= 0))
            continue;
        snprintf(names[*nfields], sizeof *names, "%s", slot.name);
        fields[*nfields] = (dv_field_decl){ .size = sizeof *fields,
            .type = torch_find_struct_field_type(&slot, i >= nargs),
            .name = names[*nfields],
            .offset = *nfields * 64 };
        ++*nfields;
    }
    dv_library_free(lib);
    return status;
}

int check_op_init_torch(const char *schema, const char *contract, check_op *out)
{
    static dv_field_decl fields[CHECK_MAX_ARGS + CHECK_MAX_RESULTS];
    static char names[CHECK_MAX_ARGS + CHECK_MAX_RESULTS][64], space[256], name[256];
    static const dv_field_decl *pointers[CHECK_MAX_ARGS + CHECK_MAX_RESULTS + 1];
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
    *out = (check_op){ .name = strdup(name), .is_torch_operator = true };
    if (!contract)
        return 0;
    if (torch_make_fields_from_schema(space, colons + 2, fields, names, CHECK_MAX_ARGS + CHECK_MAX_RESULTS, &n))
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
    out->is_torch_operator = true;
    out->name = strdup(name);
    return 0;
}
