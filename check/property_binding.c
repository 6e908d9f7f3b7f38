/* Property binding: the parts of a declaration agree. Loading has checked most of it (struct against schema, schema against
 * contract, names and types in formulas). This file checks what is known only when everything is loaded. */
#include <string.h>

#include "check.h"

/* Fails the job if an expression of a formula calls a name without a namespace, which is no operator. Sets "not checked" if it
 * calls an operator that is not loaded. */
static void binding_check_called_operators(check_job *job, const check_json *expr, const char *formula_name)
{
    dv_operator *op;
    if (!expr || (expr->kind != CHECK_JSON_ARRAY && expr->kind != CHECK_JSON_OBJECT))
        return;
    if (check_json_is_expr(expr, "call") && check_json_find_element(expr, 1) && check_json_find_element(expr, 1)->text) {
        const char *name = check_json_find_element(expr, 1)->text;
        if (!strstr(name, "::"))
            check_fail(job, "unknown operator", "the %s calls '%s', and no operator of this name is known", formula_name, name);
        else if (dv_find(name, &op))
            check_report_unchecked(job, "the %s calls %s, which is not loaded", formula_name, name);
        else
            dv_operator_unref(op);
    }
    for (const check_json *k = expr->child; k; k = k->next)
        binding_check_called_operators(job, k, formula_name);
}

/* Fails the job for a binary that does not load, and for formulas that call unknown operators. */
static void binding_check(check_job *job)
{
    static const char *const formulas[] = { "native", "gradient", "tangent" };
    const check_op *op = job->op;
    job->result->tried_cases = 1;
    if (op->load_error)
        check_fail(job, "refused", "%s", op->load_error);
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        binding_check_called_operators(job, check_json_find_member(op->json, formulas[i]), formulas[i]);
}

const check_property check_property_binding = {
    .name = "binding",
    .description = "struct, schema, contract and formulas agree, and what they name is there",
    .check_without_cases = binding_check,
};
