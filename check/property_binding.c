/* binding: the parts of a declaration agree. Loading has proved most of it (struct against schema, schema against contract, the
 * formulas' names and types); this file checks the parts that are known only when everything is loaded. */
#include <string.h>

#include "check.h"

/* Calls in a formula whose operator does not exist. */
static void check_calls(check_job *job, const check_json *x, const char *where)
{
    dv_operator *op;
    if (!x || (x->kind != CHECK_ARRAY && x->kind != CHECK_OBJECT))
        return;
    if (check_json_is(x, "call") && check_json_at(x, 1) && check_json_at(x, 1)->text) {
        const char *name = check_json_at(x, 1)->text;
        if (!strstr(name, "::"))
            check_fail(job, "unknown operator", "the %s calls '%s', and no operator of this name is known", where, name);
        else if (dv_find(name, &op))
            check_not(job, "the %s calls %s, which is not loaded", where, name);
        else
            dv_operator_unref(op);
    }
    for (const check_json *k = x->child; k; k = k->next)
        check_calls(job, k, where);
}

static void whole(check_job *job)
{
    static const char *const formulas[] = { "native", "gradient", "tangent" };
    const check_op *op = job->op;
    job->result->cases = 1;
    if (op->refused)
        check_fail(job, "refused", "%s", op->refused);
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        check_calls(job, check_json_get(op->json, formulas[i]), formulas[i]);
}

const check_property check_property_binding = {
    .name = "binding",
    .promise = "struct, schema, contract and formulas agree, and what they name is there",
    .whole = whole,
};
