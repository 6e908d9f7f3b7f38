/* Keys: a check of one kernel as a short text, which `dovetail check FILE --case KEY` repeats.
 *
 *     values; kernel=f_avx2; my_ops::f(x=f32[3, 4] @ [1, 3], dim=1); x: special(-2, 2); seed=7; number=12
 *
 * A key names the property, the kernel and the operator. Without a call in it, it stands for all cases of the kernel's plan. A
 * call is written as a call site (docs/site.md). The fields behind it add what a call site does not have: how the elements are
 * drawn, from which seed, and the case's number, which selects what else a property does with it. A second call is the preceding
 * one. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char *const fill_names[CHECK_FILL_COUNT] = {
    [CHECK_FILL_RANDOM] = "random",
    [CHECK_FILL_SEQUENCE] = "simple",
    [CHECK_FILL_SPECIAL_VALUES] = "special",
    [CHECK_FILL_LAST_EXTREME] = "last",
    [CHECK_FILL_RANGE_BOUNDS] = "extremes",
    [CHECK_FILL_HALVES] = "halves",
    [CHECK_FILL_INCREASING] = "ascending",
    [CHECK_FILL_NONDECREASING] = "rising",
    [CHECK_FILL_COUNT_WRAPS] = "counted",
    [CHECK_FILL_RANGE_ENDS] = "spread",
    [CHECK_FILL_BINADES] = "binades",
    [CHECK_FILL_OFFSETS] = "offsets",
    [CHECK_FILL_LENGTHS] = "lengths",
    [CHECK_FILL_PERMUTATION] = "permuted",
    [CHECK_FILL_LOW_PAYLOAD_NAN] = "signalling",
    [CHECK_FILL_FIRST_INFINITE] = "infinite",
    [CHECK_FILL_NEGATIVE_INFINITY] = "lowest",
};

/* The name of a layout is the first word of its name in reports. */
static const char *const layout_names[CHECK_LAYOUT_COUNT] = {
#define FIRST(name, first, ...) [CHECK_LAYOUT_##name] = first,
    CHECK_LAYOUTS(FIRST)
#undef FIRST
};

static const char *const guard_side_names[] = { [CHECK_GUARD_AFTER] = "end", [CHECK_GUARD_BEFORE] = "begin" };

enum { MAX_SIZE_REF = CHECK_MAX_TENSORS * CHECK_MAX_DIMS + CHECK_MAX_ARGS };

/* Sets layout and variant of a tensor to the first pair, in the order of CHECK_LAYOUTS, that gives these strides. Returns false,
 * with both set to 0, if none does. */
static bool key_try_set_layout_from_strides(check_tensor *t, const int64_t *strides)
{
    int64_t found[CHECK_MAX_DIMS] = { 0 }, low, high;
    for (t->layout = 0; t->layout < CHECK_LAYOUT_COUNT; t->layout++)
        for (t->layout_variant = 0; t->layout_variant < CHECK_LAYOUT_VARIANTS; t->layout_variant++) {
            check_compute_strides(t, found, &low, &high);
            if (!memcmp(found, strides, sizeof *found * (size_t)t->ndim))
                return true;
        }
    t->layout = t->layout_variant = 0;
    return false;
}

/* ---- Printing ---- */

/* Prints what a call site does not say about one tensor: layout, fill and range, as "; x: transposed/1 random(-2, 2)". */
static void key_print_contents(const check_op *op, const check_case *c, size_t tensor_index, FILE *to)
{
    const check_tensor *t = &c->tensors[tensor_index];
    const size_t slot = check_find_tensor_slot(c, tensor_index);
    check_tensor first = *t;
    int64_t strides[CHECK_MAX_DIMS], low, high;
    fprintf(to, "; %s", op->slots[slot].name);
    if (c->args[slot].type == DV_VALUE_TENSORS)
        fprintf(to, "[%zu]", tensor_index - c->args[slot].first_tensor);
    fputs(": ", to);
    check_compute_strides(t, strides, &low, &high);
    if (!key_try_set_layout_from_strides(&first, strides) || first.layout != t->layout ||
        (t->layout && first.layout_variant != t->layout_variant))
        fprintf(to, "%.*s/%d ", (int)strcspn(layout_names[t->layout], ":"), layout_names[t->layout], t->layout_variant);
    fprintf(to, "%s(%.17g, %.17g", fill_names[t->fill], t->low, t->high);
    if (t->high_size_code)
        fprintf(to, ", %s=%d", t->high_is_last_index ? "below" : "span", (int)t->high_size_code);
    fputs(")", to);
}

/* Prints a case as "; " and a call site, followed by its fields. Returns false if it cannot be written as a call site. */
static bool key_try_print_case(const check_op *op, const check_case *c, FILE *to)
{
    static check_values v;
    dv_site *site = NULL;
    char *text = NULL;
    check_values_init_without_data(&v, c, (dv_device){ DV_CPU, 0 });
    const bool written = !dv_site_new(op->op, v.values, c->nargs, &site) && !dv_site_print(site, &text);
    if (written) {
        fprintf(to, "; %s", text);
        for (size_t i = 0; i < c->ntensors; i++)
            if (c->tensors[i].present)
                key_print_contents(op, c, i, to);
        fprintf(to, "; seed=%" PRIu64 "; number=%u%s", c->seed, c->plan_index, c->is_invalid ? "; broken" : "");
    }
    dv_site_free(site);
    dv_free(text);
    return written;
}

/* Returns how many kernels before this one have the same name, which distinguishes them in a key. */
static unsigned key_count_earlier_kernels_of_same_name(const check_op *op, const check_kernel *kernel)
{
    unsigned n = 0;
    for (size_t i = 0; i < op->nkernels && &op->kernels[i] != kernel; i++)
        n += !strcmp(op->kernels[i].name, kernel->name);
    return n;
}

char *check_repeat_new_key(const check_repeat *repeat)
{
    char *out = NULL;
    size_t size;
    FILE *to = open_memstream(&out, &size);
    bool written = to != NULL;
    if (!to)
        return NULL;
    fputs(repeat->property->name, to);
    if (repeat->kernel) {
        const unsigned number = key_count_earlier_kernels_of_same_name(repeat->op, repeat->kernel);
        fprintf(to, "; kernel=%s", repeat->kernel->name);
        if (number)
            fprintf(to, "#%u", number);
    }
    if (repeat->repeats_one_case)
        written = key_try_print_case(repeat->op, &repeat->repeated_case, to);
    else if (repeat->op && !repeat->op->load_error) /* a binary that does not load has no operators, so its key names none */
        fprintf(to, "; %s", repeat->op->name);
    if (repeat->has_preceding_case && written) {
        fprintf(to, "; before=%s", guard_side_names[repeat->preceding_guard_side]);
        written = key_try_print_case(repeat->op, &repeat->preceding_case, to);
    }
    fclose(to);
    if (written)
        return out;
    free(out);
    return NULL;
}

/* ---- Parsing ---- */

typedef struct key_reader {
    const char *text, *p;
    const check_op *ops;
    size_t nops;
    check_repeat *repeat;
} key_reader;

/* Sets dv_last_error() to "column C: expected ..., found ..." and returns DV_ESYNTAX. */
DV__PRINTF(2, 3) static int key_fail_expected(const key_reader *r, const char *format, ...)
{
    char expected[600];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    return dv_fail(DV_ESYNTAX, "column %d: expected %s, found %s%.40s%s", (int)(r->p - r->text) + 1, expected,
        *r->p ? "'" : "the end", r->p, *r->p ? "'" : "");
}

/* Skips white space. */
static void key_skip_space(key_reader *r) { r->p += strspn(r->p, " \t\r\n"); }

/* Skips white space and consumes `token` if the text continues with it. Returns whether it did. */
static bool key_try_accept_text(key_reader *r, const char *token)
{
    key_skip_space(r);
    const size_t n = strlen(token);
    if (strncmp(r->p, token, n) != 0)
        return false;
    r->p += n;
    return true;
}

/* Returns the length of the word of letters, digits and underscores at p; 0 if there is none. */
static size_t key_get_word_length(const char *p)
{
    return strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

/* True if the n bytes at p equal this word. */
static bool key_is_word(const char *p, size_t n, const char *word) { return strlen(word) == n && !strncmp(p, word, n); }

/* Skips white space and consumes one of the names, each up to its ':', if it is next. Returns its index; nnames if none is next.
 */
static size_t key_accept_listed_name_index(key_reader *r, const char *const *names, size_t nnames)
{
    key_skip_space(r);
    const size_t size = key_get_word_length(r->p);
    size_t i = 0;
    while (i < nnames && !(strcspn(names[i], ":") == size && !strncmp(names[i], r->p, size)))
        i++;
    r->p += i < nnames ? size : 0;
    return i;
}

/* Parses an integer from 0 to max_value into *out. Returns a status. */
static int key_parse_integer_up_to(key_reader *r, uint64_t max_value, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = isdigit((unsigned char)*r->p) ? strtoull(r->p, &end, 10) : max_value;
    if (!isdigit((unsigned char)*r->p) || errno || *out > max_value)
        return key_fail_expected(r, "an integer from 0 to %" PRIu64, max_value);
    r->p = end;
    return DV_OK;
}

/* Parses a bound of the elements of a tensor into *out. Returns a status: NaN, and numbers that no integer dtype has for an
 * integer tensor, are refused. */
static int key_parse_bound(key_reader *r, dv_dtype dtype, double *out)
{
    char *end;
    key_skip_space(r);
    *out = strtod(r->p, &end);
    if (end == r->p || isnan(*out) || (check_is_integer_dtype(dtype) && (*out < -0x1p63 || *out > 0x1p64)))
        return key_fail_expected(r, "a number that bounds the elements");
    r->p = end;
    return DV_OK;
}

/* Parses layout, fill and range of a tensor: "special(-2, 2)", "transposed/1 last(0, 5, below=21)". Returns a status. */
static int key_parse_contents(key_reader *r, check_tensor *t)
{
    uint64_t layout_variant = t->layout_variant, span = 0;
    int status;
    const size_t layout = key_accept_listed_name_index(r, layout_names, CHECK_LAYOUT_COUNT);
    if (layout < CHECK_LAYOUT_COUNT) {
        int64_t given[CHECK_MAX_DIMS], strides[CHECK_MAX_DIMS], low, high;
        check_compute_strides(t, given, &low, &high);
        if (!key_try_accept_text(r, "/"))
            return key_fail_expected(r, "'/' and the layout's form");
        if ((status = key_parse_integer_up_to(r, CHECK_LAYOUT_VARIANTS - 1, &layout_variant)))
            return status;
        t->layout = (uint8_t)layout;
        t->layout_variant = (uint8_t)layout_variant;
        check_compute_strides(t, strides, &low, &high);
        if (memcmp(given, strides, sizeof *given * (size_t)t->ndim) != 0)
            return key_fail_expected(r, "the layout that the tensor's strides have");
    }
    const size_t fill = key_accept_listed_name_index(r, fill_names, CHECK_FILL_COUNT);
    if (fill == CHECK_FILL_COUNT)
        return key_fail_expected(r, "contents such as random(-2, 2)");
    t->fill = (uint8_t)fill;
    if (!key_try_accept_text(r, "("))
        return key_fail_expected(r, "'('");
    if ((status = key_parse_bound(r, t->dtype, &t->low)))
        return status;
    if (!key_try_accept_text(r, ","))
        return key_fail_expected(r, "','");
    if ((status = key_parse_bound(r, t->dtype, &t->high)))
        return status;
    if (key_try_accept_text(r, ",")) {
        t->high_is_last_index = key_try_accept_text(r, "below=");
        if (!t->high_is_last_index && !key_try_accept_text(r, "span="))
            return key_fail_expected(r, "'below=' or 'span='");
        if ((status = key_parse_integer_up_to(r, MAX_SIZE_REF, &span)))
            return status;
        t->high_size_code = (int32_t)span;
    }
    return key_try_accept_text(r, ")") ? DV_OK : key_fail_expected(r, "')'");
}

/* Appends a tensor to the case, with dtype, shape and layout of site_tensor; NULL: None. Returns DV_ENOTSUP if the case has too
 * many tensors or dims, or no layout has these strides. */
static int key_append_tensor(check_case *c, const char *name, const dv_tensor *site_tensor)
{
    check_tensor *t = &c->tensors[c->ntensors];
    if (c->ntensors == CHECK_MAX_TENSORS)
        return dv_fail(DV_ENOTSUP, "argument '%s': expected at most %d tensors in a call", name, CHECK_MAX_TENSORS);
    c->ntensors++;
    if (!site_tensor)
        return DV_OK;
    if (site_tensor->ndim > CHECK_MAX_DIMS)
        return dv_fail(
            DV_ENOTSUP, "argument '%s': expected at most %d dims, found %d", name, CHECK_MAX_DIMS, (int)site_tensor->ndim);
    t->present = true;
    t->dtype = site_tensor->dtype;
    t->ndim = site_tensor->ndim;
    memcpy(t->shape, site_tensor->shape, sizeof *t->shape * (size_t)t->ndim);
    t->low = check_is_integer_dtype(t->dtype) ? 0 : -2;
    t->high = check_is_integer_dtype(t->dtype) ? 1 : 2;
    return key_try_set_layout_from_strides(t, site_tensor->strides)
        ? DV_OK
        : dv_fail(DV_ENOTSUP, "argument '%s': no layout of the checker has these strides", name);
}

/* Converts a non-tensor value of a call site to *out. Returns a status: DV_ENOTSUP if the checker cannot hold it. */
static int key_convert_value(const char *name, const dv_value *site_value, check_value *out)
{
    const bool many = site_value->type == DV_VALUE_INTS || site_value->type == DV_VALUE_FLOATS ||
        site_value->type == DV_VALUE_BOOLS || site_value->type == DV_VALUE_STRINGS || site_value->type == DV_VALUE_SCALARS;
    memset(out, 0, sizeof *out);
    out->type = site_value->type;
    if (many && site_value->as.ints.size > CHECK_MAX_LIST)
        return dv_fail(
            DV_ENOTSUP, "argument '%s': expected at most %d elements, found %zu", name, CHECK_MAX_LIST, site_value->as.ints.size);
    out->count = many ? (uint32_t)site_value->as.ints.size : 0;
    size_t used = 0;
    for (uint32_t k = 0; k < (site_value->type == DV_VALUE_STRING ? 1 : out->count); k++) {
        const dv_scalar *s = site_value->type == DV_VALUE_SCALARS ? &site_value->as.scalars.data[k] : NULL;
        const dv_string *word = site_value->type == DV_VALUE_STRING ? &site_value->as.s
            : site_value->type == DV_VALUE_STRINGS                  ? &site_value->as.strings.data[k]
                                                                    : NULL;
        if (s && s->kind == DV_SCALAR_COMPLEX)
            return dv_fail(DV_ENOTSUP, "argument '%s': expected no complex number in a list", name);
        if (word && (word->size >= sizeof out->string - used || memchr(word->data, 0, word->size)))
            return dv_fail(DV_ENOTSUP, "argument '%s': expected text of at most %d bytes", name, CHECK_MAX_STRING - 1);
        if (word) {
            memcpy(out->string + used, word->data, word->size);
            used += word->size + 1;
        } else if (s) {
            out->ints[k] = s->kind;
            out->floats[k] = s->kind == DV_SCALAR_INT ? (double)s->as.i : s->kind == DV_SCALAR_BOOL ? s->as.b : s->as.f;
        } else if (site_value->type == DV_VALUE_FLOATS) {
            out->floats[k] = site_value->as.floats.data[k];
        } else {
            out->ints[k] = site_value->type == DV_VALUE_INTS ? site_value->as.ints.data[k] : site_value->as.bools.data[k];
        }
    }
    if (!many && (dv_field_of_value(site_value->type)->form == DV_FORM_LIST || site_value->type == DV_VALUE_GENERATOR))
        return dv_fail(DV_ENOTSUP, "argument '%s': expected a value that the checker makes", name);
    if (!many && site_value->type != DV_VALUE_STRING)
        memcpy(&out->as, &site_value->as, sizeof out->as);
    return DV_OK;
}

/* Sets one argument of a case from a value of a call site. A value that equals the schema's default becomes DV_VALUE_DEFAULT.
 * Returns a status. */
static int key_set_argument(check_case *c, const check_op *op, size_t slot, const dv_value *site_value)
{
    const dv_slot_info *s = &op->slots[slot];
    check_value *v = &c->args[slot], is_default;
    int status = DV_OK;
    if (site_value->type == DV_VALUE_TENSOR || site_value->type == DV_VALUE_TENSORS ||
        (site_value->type == DV_VALUE_NONE && s->type == DV_FIELD_TENSOR)) {
        const bool list = site_value->type == DV_VALUE_TENSORS;
        v->type = list ? DV_VALUE_TENSORS : DV_VALUE_TENSOR;
        v->first_tensor = c->ntensors;
        v->count = list ? (uint32_t)site_value->as.tensors.size : 1;
        for (uint32_t k = 0; k < v->count && !status; k++)
            status = key_append_tensor(c, s->name,
                list                                    ? site_value->as.tensors.data[k]
                    : site_value->type == DV_VALUE_NONE ? NULL
                                                        : site_value->as.tensor);
        return status;
    }
    status = key_convert_value(s->name, site_value, v);
    if (!status && !key_convert_value(s->name, &s->default_value, &is_default) && !memcmp(v, &is_default, sizeof *v))
        memset(v, 0, sizeof *v);
    return status;
}

/* Sets c->names to the values that follow from the arguments by the contract. Does nothing if the contract refuses the arguments;
 * the call will fail and say so. */
static void key_set_names_from_arguments(const check_op *op, check_case *c)
{
    static check_case fitted;
    static dv_range elements[CHECK_MAX_TENSORS];
    fitted = *c;
    const bool fits = !c->is_invalid && op->contract && check_try_fit_case(op, &fitted, c, elements) &&
        fitted.ntensors == c->ntensors;
    for (size_t i = 0; i < c->ntensors && fits; i++)
        fitted.tensors[i].high = c->tensors[i].high; /* `high` may follow another size after the fit */
    if (fits && !memcmp(fitted.tensors, c->tensors, sizeof c->tensors) && !memcmp(fitted.args, c->args, sizeof c->args))
        c->names = fitted.names;
}

/* Returns the end of a call site, after the bracket that closes its arguments; the end of the text if none does. */
static const char *key_get_site_end(const char *p)
{
    int depth = 0;
    for (char quote = 0; *p; p++) {
        if (quote && *p == '\\' && p[1])
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '"' || *p == '\'')
            quote = *p;
        else if (*p == '(')
            depth++;
        else if (*p == ')' && !--depth)
            return p + 1;
    }
    return p;
}

/* Parses a call site of the repeated operator into the arguments of a case. Returns a status. */
static int key_parse_call_site(key_reader *r, check_case *c)
{
    const check_op *op = r->repeat->op;
    const char *end = key_get_site_end(r->p);
    char *text = strndup(r->p, (size_t)(end - r->p));
    dv_site *site = NULL;
    memset(c, 0, sizeof *c);
    int status = text ? dv_site_parse_for(op->op, text, &site) : DV_ENOMEM;
    c->nargs = (uint32_t)op->nargs;
    for (size_t i = 0; i < op->nargs && !status; i++)
        status = key_set_argument(c, op, i, &dv_site_args(site)[i]);
    dv_site_free(site);
    free(text);
    r->p = end;
    return status;
}

/* Parses "x:" or "xs[1]:" and sets *t to that tensor of the case. Returns a status; a tensor that is None is refused. */
static int key_parse_tensor_name(key_reader *r, check_case *c, check_tensor **t)
{
    const check_op *op = r->repeat->op;
    const size_t n = key_get_word_length(r->p);
    uint64_t element = 0;
    size_t slot = 0;
    while (slot < op->nargs && !key_is_word(r->p, n, op->slots[slot].name))
        slot++;
    const check_value *v = slot < op->nargs ? &c->args[slot] : NULL;
    if (!v || (v->type != DV_VALUE_TENSOR && v->type != DV_VALUE_TENSORS))
        return key_fail_expected(r, "the name of a tensor and ':', 'seed=', 'number=', 'broken' or 'before='");
    r->p += n;
    if (key_try_accept_text(r, "[")) {
        const int status = key_parse_integer_up_to(r, CHECK_MAX_TENSORS, &element);
        if (status || !key_try_accept_text(r, "]"))
            return status ? status : key_fail_expected(r, "']'");
    }
    *t = element < v->count ? &c->tensors[v->first_tensor + element] : NULL;
    if (!*t || !(*t)->present)
        return key_fail_expected(r, "a tensor of '%s' that is there", op->slots[slot].name);
    return key_try_accept_text(r, ":") ? DV_OK : key_fail_expected(r, "':'");
}

/* Parses a call site and the fields after it into a case. Returns a status. */
static int key_parse_case(key_reader *r, check_case *c)
{
    uint64_t number;
    int status = key_parse_call_site(r, c);
    while (!status && key_try_accept_text(r, ";")) {
        check_tensor *t = NULL;
        const char *begin = r->p;
        if (key_try_accept_text(r, "before=")) {
            r->p = begin;
            break;
        }
        if (key_try_accept_text(r, "seed=")) {
            status = key_parse_integer_up_to(r, UINT64_MAX, &c->seed);
        } else if (key_try_accept_text(r, "number=")) {
            status = key_parse_integer_up_to(r, UINT32_MAX, &number);
            c->plan_index = status ? 0 : (uint32_t)number;
        } else if (key_is_word(r->p, key_get_word_length(r->p), "broken")) {
            c->is_invalid = key_try_accept_text(r, "broken");
        } else if (!(status = key_parse_tensor_name(r, c, &t))) {
            status = key_parse_contents(r, t);
        }
    }
    if (!status)
        key_set_names_from_arguments(r->repeat->op, c);
    return status;
}

/* Returns a list of the names of an operator's kernels, or of all operators if op is NULL, for messages. The text is valid until
 * the next call. */
static const char *key_format_kernel_or_operator_names(const key_reader *r, const check_op *op)
{
    static char all[400];
    size_t n = 0;
    *all = 0;
    for (size_t i = 0; i < (op ? op->nkernels : r->nops) && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", op ? op->kernels[i].name : r->ops[i].name);
    return all;
}

/* Sets the repeated kernel to the one that a key names, as NAME or NAME#NUMBER. Returns DV_OK, also if the property is not per
 * kernel; DV_ENOENT if there is no such kernel. */
static int key_set_kernel_by_name(key_reader *r, const char *name, size_t name_length)
{
    check_repeat *g = r->repeat;
    for (size_t i = 0; i < g->op->nkernels && name && !g->kernel; i++) {
        char known[300];
        const unsigned number = key_count_earlier_kernels_of_same_name(g->op, &g->op->kernels[i]);
        snprintf(known, sizeof known, number ? "%s#%u" : "%s", g->op->kernels[i].name, number);
        if (key_is_word(name, name_length, known))
            g->kernel = &g->op->kernels[i];
    }
    if (!g->property->per_kernel || g->kernel)
        return DV_OK;
    return dv_fail(DV_ENOENT, "%s: expected kernel=NAME of one of its kernels (%s), found %s%.*s%s", g->op->name,
        key_format_kernel_or_operator_names(r, g->op), name ? "'" : "none", name ? (int)name_length : 0, name ? name : "",
        name ? "'" : "");
}

/* Parses the operator's name, and sets operator, kernel and has_case of the check to repeat. Returns a status. */
static int key_parse_operator(key_reader *r, const char *kernel_name, size_t name_length)
{
    key_skip_space(r);
    const size_t n = strcspn(r->p, "(;");
    for (size_t i = 0; i < r->nops && !r->repeat->op; i++)
        if (key_is_word(r->p, n, r->ops[i].name))
            r->repeat->op = &r->ops[i];
    if (!r->repeat->op)
        return key_fail_expected(
            r, "an operator that is here (%s)", r->nops ? key_format_kernel_or_operator_names(r, NULL) : "there is none");
    const int status = r->repeat->property->runs_in_python ? DV_OK : key_set_kernel_by_name(r, kernel_name, name_length);
    r->repeat->repeats_one_case = r->p[n] == '(';
    if (!r->repeat->repeats_one_case)
        r->p += n;
    return status;
}

int check_key_parse(const char *text, const check_op *ops, size_t nops, check_repeat *out)
{
    key_reader r = { text, text, ops, nops, out };
    const char *kernel = NULL;
    size_t row_size = 0;
    int status;
    memset(out, 0, sizeof *out);
    key_skip_space(&r);
    const size_t n = key_get_word_length(r.p);
    for (const check_property *const *p = check_properties; *p; p++)
        if (key_is_word(r.p, n, (*p)->name))
            out->property = *p;
    if (!out->property)
        return key_fail_expected(&r, "the name of a property");
    r.p += n;
    key_skip_space(&r);
    if (!*r.p)
        return DV_OK; /* the key stands for all operators */
    if (!key_try_accept_text(&r, ";"))
        return key_fail_expected(&r, "';'");
    if (key_try_accept_text(&r, "kernel=")) {
        kernel = r.p;
        row_size = strcspn(kernel, ";");
        r.p += row_size;
        if (!key_try_accept_text(&r, ";"))
            return key_fail_expected(&r, "';' and the operator");
    }
    snprintf(out->kernel_name, sizeof out->kernel_name, "%.*s", (int)row_size, kernel ? kernel : "");
    if ((status = key_parse_operator(&r, kernel, row_size)) || !out->repeats_one_case)
        return status || !*r.p ? status : key_fail_expected(&r, "'(' or the end");
    if (out->op->unsupported_reason || !out->op->op || !out->property->test_case)
        return key_fail_expected(&r, "no call: this property takes none of this operator");
    if ((status = key_parse_case(&r, &out->repeated_case)))
        return status;
    if (key_try_accept_text(&r, "before=")) {
        const size_t end = key_accept_listed_name_index(&r, guard_side_names, 2);
        if (end == 2 || !key_try_accept_text(&r, ";"))
            return key_fail_expected(&r, "'end' or 'begin', and a call");
        out->has_preceding_case = true;
        out->preceding_guard_side = (enum check_guard_side)end;
        key_skip_space(&r);
        if (!key_is_word(r.p, strcspn(r.p, "(;"), out->op->name))
            return key_fail_expected(&r, "a call of %s", out->op->name);
        if ((status = key_parse_case(&r, &out->preceding_case)))
            return status;
    }
    key_skip_space(&r);
    return *r.p ? key_fail_expected(&r, "';' or the end") : DV_OK;
}

/* ---- The command that repeats a failure ---- */

void check_print_shell_text(const char *s, FILE *to)
{
    static const char unquoted[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-=,:+@";
    const bool has_newline = strchr(s, '\n') != NULL, quoted = !*s || s[strspn(s, unquoted)] != 0;
    fputs(has_newline ? "$'" : quoted ? "'" : "", to);
    for (; *s; s++)
        if (!has_newline)
            fputs(*s == '\'' ? "'\\''" : (char[]){ *s, 0 }, to);
        else if (*s == '\n')
            fputs("\\n", to);
        else
            fputs((char[]){ *s == '\'' || *s == '\\' ? '\\' : *s, *s == '\'' || *s == '\\' ? *s : 0, 0 }, to);
    fputs(quoted ? "'" : "", to);
}

/* Prints a space and a word, quoted for the shell if necessary. */
static void key_print_shell_word(const char *s, FILE *to)
{
    fputs(" ", to);
    check_print_shell_text(s, to);
}

/* Prints each word of a NULL-terminated list after a space, quoted for the shell if necessary; nothing if words is NULL. */
static void key_print_shell_words(const char *const *words, FILE *to)
{
    for (; words && *words; words++)
        key_print_shell_word(*words, to);
}

void check_print_build_arguments(const check_op *op, FILE *to)
{
    key_print_shell_words(op->build_flags, to);
    key_print_shell_words(op->sources, to);
}

/* Prints those options of `dovetail check` that change the plan and are not at their defaults, as " --seed 7 --cases 24". */
static void key_print_options(const check_job *job, FILE *to)
{
    if (job->last_seed > job->seed)
        fprintf(to, " --seeds %" PRIu64 "..%" PRIu64, job->seed, job->last_seed);
    else if (job->seed != 1)
        fprintf(to, " --seed %" PRIu64, job->seed);
    if (job->max_cases)
        fprintf(to, " --cases %u", job->max_cases);
    if (check_max_elements != CHECK_DEFAULT_MAX_ELEMENTS)
        fprintf(to, " --max-elements %" PRId64, check_max_elements);
    if (job->case_ms != CHECK_CASE_MS)
        fprintf(to, " --case-ms %d", job->case_ms);
}

char *check_job_new_key(const check_job *job)
{
    const check_repeat all = { .property = job->found_by ? job->found_by : job->property, .op = job->op, .kernel = job->kernel };
    return job->key ? strdup(job->key) : check_repeat_new_key(job->repeat ? job->repeat : &all);
}

void check_job_print_command(const check_job *job, const char *more, FILE *to)
{
    const check_op *op = job->op;
    fputs("dovetail check", to);
    if (op->module) {
        fputs(" --torch", to);
        key_print_shell_word(op->module, to);
        fputs(" --op", to);
        key_print_shell_word(op->name, to);
        if (op->given_contract) {
            fputs(" --contract", to);
            key_print_shell_word(op->given_contract, to);
        }
    }
    if (op->sources || op->load_error)
        check_print_build_arguments(op, to);
    if (!op->sources && !op->module)
        key_print_shell_word(op->path ? op->path : op->name, to);
    key_print_options(job, to);
    fprintf(to, "%s --case", more);
    char *key = check_job_new_key(job);
    key_print_shell_word(key ? key : "", to);
    free(key);
}
