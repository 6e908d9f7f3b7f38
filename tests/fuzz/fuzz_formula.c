/* A formula: the first byte chooses its kind and the operator's schema. Whatever it is, parsing is safe; what is accepted prints
 * as JSON, the same each time; nothing is left half done on failure. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "lang/formula.h"

static const char *const of[] = {
    "f(Tensor x, Tensor y) -> Tensor",
    "f(Tensor x, Tensor? w, int n, float e, int[] sizes, bool b=True) -> Tensor",
    "f(Tensor x) -> (Tensor a, Tensor b)",
    "f(Tensor x, Tensor(a!) out) -> ()",
    "f(Tensor(a!) x, Tensor[] xs) -> Tensor(a!)",
};
static const char *const callees[] = {
    "base::mul.Tensor(Tensor self, Tensor other) -> Tensor",
    "base::mul.Scalar(Tensor self, Scalar other) -> Tensor",
    "base::add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "base::neg(Tensor self) -> Tensor",
    "base::sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    "base::cat(Tensor[] tensors, int dim=0) -> Tensor",
    "my::g(Tensor grad, Tensor? w, bool[2] mask) -> (Tensor, Tensor)",
};
enum { NOF = sizeof of / sizeof of[0], NCALLEES = sizeof callees / sizeof callees[0] };

static dv__schema *schemas[NOF], *known[NCALLEES];

static void require(bool condition, const char *what, const char *text)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n%s\n", what, text, dv_last_error());
    abort();
}

static void parse_schemas(void)
{
    for (size_t i = 0; i < NOF; i++)
        require(!dv__schema_parse(of[i], &schemas[i]), "schema", of[i]);
    for (size_t i = 0; i < NCALLEES; i++)
        require(!dv__schema_parse(callees[i], &known[i]), "schema", callees[i]);
}

static int lookup(void *user, const char *name, size_t i, const dv__schema **out)
{
    (void)user;
    *out = NULL;
    if (!strcmp(name, "refused"))
        return dv_fail(DV_ENOENT, "no operator 'refused'");
    for (size_t k = 0; k < NCALLEES; k++)
        if (!strcmp(known[k]->name, name) && !i--) {
            *out = known[k];
            break;
        }
    return DV_OK;
}

static char *run(unsigned kind, const dv__schema *schema, const char *text)
{
    dv__arena arena = { 0 };
    dv__decomposition *native = NULL;
    dv__formula *formula = NULL;
    char *json = NULL;
    const int status = kind == 0 ? dv__decomposition_parse(text, "my::f", schema, lookup, NULL, &arena, &native)
        : kind == 1              ? dv__gradient_parse(text, "my::f", schema, lookup, NULL, &arena, &formula)
                                 : dv__tangent_parse(text, "my::f", schema, lookup, NULL, &arena, &formula);
    if (!status) {
        dv__strbuf to = { 0 };
        if (kind == 0)
            dv__decomposition_json(native, text, schema, &to);
        else
            dv__formula_json(formula, text, schema, &to);
        require(!dv__strbuf_detach(&to, &json), "json", text);
    } else {
        require(*dv_last_error() && strstr(dv_last_error(), "my::f"), "a message", text);
        require(!native && !formula, "nothing on failure", text);
    }
    dv__arena_deinit(&arena);
    return json;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!schemas[0])
        parse_schemas();
    if (!size)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    const dv__schema *schema = schemas[data[0] / 3 % NOF];
    char *once = run(data[0] % 3, schema, text), *again = run(data[0] % 3, schema, text);
    require(!once == !again && (!once || !strcmp(once, again)), "the same twice", text);
    dv_free(once);
    dv_free(again);
    free(text);
    return 0;
}
