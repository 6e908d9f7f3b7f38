/* Failure of each allocation in turn, in many uses of the library: the status is DV_ENOMEM and nothing leaks. The operators are
 * the shipped ones, whose declarations are long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "call_ops.h"
#include "failing.h"

static void free_value(dv_value *v)
{
    const bool list = v->type == DV_VALUE_TENSORS;
    for (size_t i = 0; list && i < v->as.tensors.size; i++)
        dv_tensor_unref((dv_tensor *)(uintptr_t)v->as.tensors.data[i]);
    if (list)
        dv_free((void *)(uintptr_t)v->as.tensors.data);
    if (v->type == DV_VALUE_TENSOR)
        dv_tensor_unref((dv_tensor *)(uintptr_t)v->as.tensor);
    *v = dv_default();
}

enum { ROOM = 64 };
static size_t nargs_of(const dv_site *s) { return dv_operator_nargs(dv_site_operator(s)); }
static size_t nresults_of(const dv_site *s) { return dv_operator_nresults(dv_site_operator(s)); }

static int call_site(const dv_site *s, dv_value *results)
{
    for (size_t r = 0; r < nresults_of(s); r++)
        results[r] = dv_default();
    return dv_call(dv_site_operator(s), dv_site_args(s), nargs_of(s), results, nresults_of(s), NULL);
}

static int parse_site(void *text)
{
    dv_site *s;
    char *printed;
    int status = dv_site_parse(text, &s);
    if (status)
        return status;
    status = dv_site_print(s, &printed);
    dv_free(printed);
    status = status ? status : dv_site_alloc(s);
    dv_site_free(s);
    return status;
}

static int infer_site(void *site)
{
    dv_result_spec specs[ROOM];
    return dv_site_infer(site, specs, nresults_of(site));
}

static int run_site(void *site)
{
    dv_value results[ROOM];
    const int status = call_site(site, results);
    for (size_t r = 0; r < nresults_of(site) && !status; r++)
        free_value(&results[r]);
    return status;
}

static int run_decomposition(void *site)
{
    int status = dv_policy_set_thread("none");
    if (status)
        return status;
    status = run_site(site);
    CALL_OK(dv_policy_set_thread(NULL));
    return status;
}

static int run_gradient(void *site)
{
    dv_value values[ROOM], grads[ROOM], out[ROOM];
    const size_t nargs = nargs_of(site), n = nargs + nresults_of(site);
    memcpy(values, dv_site_args(site), nargs * sizeof *values);
    int status = call_site(site, values + nargs);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++)
        grads[i] = i < nargs ? dv_none() : values[i];
    status = dv_gradient(dv_site_operator(site), values, grads, NULL, out, NULL);
    for (size_t i = 0; i < n && !status; i++)
        free_value(&out[i]);
    for (size_t i = nargs; i < n; i++)
        free_value(&values[i]);
    return status;
}

static void tell(void *user, const dv_kernel_report *row) { (void)user, (void)row; }
static int explain_site(void *site) { return dv_explain(dv_site_operator(site), dv_site_args(site), nargs_of(site), tell, NULL); }

/* Uses operators with lists of tensors, cases, views, decompositions and gradients whose formulas call operators with list
 * results. */
static void sites(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool gradient;
    } rows[] = {
        { "dovetail::gelu(f32[4])", true },
        { "dovetail::gelu(f32[4, 5] @ [1, 4], approximate=tanh)", true },
        { "dovetail::swiglu(f32[4, 3], f32[4, 3])", true },
        { "dovetail::softmax(f32[4, 3], -1)", true },
        { "dovetail::rms_norm(f32[4, 8], f32[8])", true },
        { "base::cat([f32[2] = [1, 2], f32[3]])", true },
        { "base::index_select(f32[4, 3], 0, i64[2] = 0..3)", true },
        { "dovetail::linear(f32[4, 8], f32[3, 8], f32[3])", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dv_site *s;
        failing_each(parse_site, rows[i].text);
        if (dv_site_parse(rows[i].text, &s) || dv_site_alloc(s))
            fail_msg("%s", dv_last_error());
        failing_each(infer_site, s);
        failing_each(explain_site, s);
        failing_each(run_site, s);
        failing_each(run_decomposition, s);
        if (rows[i].gradient)
            failing_each(run_gradient, s);
        dv_site_free(s);
    }
}

/* Returns arguments of which nothing is known; if `tensors`, only that the tensors are present. */
static const dv_value *unknown_arguments(dv_operator *op, bool tensors)
{
    static dv_value args[ROOM];
    static const dv_tensor any = { .ndim = -1 };
    for (size_t i = 0; i < dv_operator_nargs(op); i++) {
        dv_slot_info slot;
        CALL_OK(dv_operator_slot(op, i, &slot));
        args[i] = (dv_value){ .type = DV_VALUE_UNKNOWN };
        if (tensors && slot.type == DV_FIELD_TENSOR && !(slot.flags & DV_SLOT_OPTIONAL))
            args[i] = dv_from_tensor(&any);
    }
    return args;
}

static bool with_tensors;
static int infer_partly(void *op)
{
    dv_partial_spec known[ROOM];
    return dv_infer_partial(op, unknown_arguments(op, with_tensors), dv_operator_nargs(op), known, dv_operator_nresults(op));
}

static int set_partly(void *op)
{
    dv_partial_spec known;
    dv_partial *p;
    int status = dv_partial_new(op, unknown_arguments(op, with_tensors), dv_operator_nargs(op), &p);
    if (status)
        return status;
    for (size_t i = 0; i < dv_operator_nargs(op) && !status; i++)
        if (!(status = dv_partial_get(p, DV_PARTIAL_ARGUMENT, i, 0, &known)))
            status = dv_partial_set(p, DV_PARTIAL_ARGUMENT, i, 0, &known);
    for (size_t i = 0; i < dv_operator_nresults(op) && !status; i++)
        status = dv_partial_get(p, DV_PARTIAL_RESULT, i, 0, &known);
    dv_partial_free(p);
    return status;
}

static int describe(void *op)
{
    int (*const texts[])(const dv_operator *, char **) = { dv_operator_json, dv_operator_describe, dv_operator_dump_table };
    dv_operator *form;
    for (int i = 0; i < 3; i++) {
        char *out;
        const int status = texts[i](op, &out);
        dv_free(out);
        if (status)
            return status;
    }
    const int status = dv_functional(op, &form);
    dv_operator_unref(form);
    return status;
}

static const char *const names[] = { "dovetail::gelu", "dovetail::swiglu", "dovetail::softmax", "dovetail::rms_norm",
    "dovetail::linear", "base::cat", "base::index_select", "base::matmul" };

static void operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dv_operator *op;
        if (dv_find(names[i], &op))
            fail_msg("%s", dv_last_error());
        failing_each(describe, op);
        for (int k = 0; k < 2; k++) {
            with_tensors = k;
            failing_each(infer_partly, op);
            failing_each(set_partly, op);
        }
        dv_operator_unref(op);
    }
}

static int load(void *path)
{
    dv_library *lib;
    const int status = dv_load(path, &lib);
    if (!status)
        dv_library_free(lib);
    return status;
}

/* Loads contracts of every kind: cases, lists, shapes of written tensors. */
static void loads(void **state)
{
    (void)state;
    static const char *const files[] = { "sparse_flash_attention", "adamw_step", "rotary_embedding" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        snprintf(path, sizeof path, BUILD_DIR "/ops/%s.so", files[i]);
        failing_each(load, path);
    }
}

static int setup(void **state)
{
    (void)state;
    static const char *const files[] = { "base", "gelu", "swiglu", "softmax", "rms_norm", "linear" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        dv_library *lib;
        char path[512];
        snprintf(path, sizeof path, BUILD_DIR "/ops/%s.so", files[i]);
        if (dv_load(path, &lib))
            return fprintf(stderr, "%s\n", dv_last_error()), 1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads),
        cmocka_unit_test(operators),
        cmocka_unit_test(sites),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
