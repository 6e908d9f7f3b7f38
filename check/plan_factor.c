/* Factors of a plan and their levels: what the cases of an operator can vary. */
#include <string.h>

#include "plan.h"

/* Appends a factor without levels and returns it. `index` is that of a name or an argument. If MAX_FACTORS exist, returns a dummy
 * that nothing reads. */
static factor *plan_factor_add(planner *p, enum factor_kind kind, size_t index)
{
    static factor none;
    factor *f = p->nfactors < MAX_FACTORS ? &p->factors[p->nfactors++] : &none;
    *f = (factor){ .kind = kind, .index = (uint32_t)index };
    return f;
}

/* Adds a level to a factor. Does nothing if the factor has the level or MAX_LEVELS levels. */
static void plan_factor_add_level(factor *f, int64_t level)
{
    for (uint32_t k = 0; k < f->nlevels; k++)
        if (f->levels[k] == level)
            return;
    if (f->nlevels < MAX_LEVELS)
        f->levels[f->nlevels++] = level;
}

/* Adds a factor whose levels are the integers from low to high. */
static void plan_factor_add_integer_range(planner *p, enum factor_kind kind, size_t index, int64_t low, int64_t high)
{
    factor *f = plan_factor_add(p, kind, index);
    for (int64_t i = low; i <= high; i++)
        plan_factor_add_level(f, i);
}

/* Adds a factor whose levels are all size classes. */
static void plan_factor_add_sizes(planner *p, enum factor_kind kind, size_t index)
{
    factor *f = plan_factor_add(p, kind, index);
    for (int64_t c = 0; c < NUM_SIZE_CLASSES; c++)
        plan_factor_add_level(f, c);
}

/* Adds as levels the dtypes that a kernel's .dtypes lists for one dtype variable. "f32 bf16" is for the contract's first
 * variable; "T=f32, U=i32 i64" names the variables. */
static void plan_factor_add_kernel_dtype_levels(
    factor *f, const check_kernel *kernel, const char *dtype_variable, bool is_first_variable)
{
    char word[32];
    bool is_named = is_first_variable;
    dv_dtype d;
    for (const char *s = kernel && kernel->dtypes ? kernel->dtypes : ""; *s;) {
        s += strspn(s, " ,");
        const size_t size = strcspn(s, " ,=");
        snprintf(word, sizeof word, "%.*s", (int)size, s);
        s += size;
        if (s[strspn(s, " ")] == '=') {
            is_named = !strcmp(word, dtype_variable);
            s += strspn(s, " ") + 1;
        } else if (*word && is_named && !dv_dtype_parse(word, &d)) {
            plan_factor_add_level(f, dv_dtype_key(d));
        }
    }
}

/* Adds a factor whose levels are dtypes: those that the kernel lists, else those that the contract lists, else those of any
 * kernel, else common ones. */
static void plan_factor_add_dtypes(
    planner *p, enum factor_kind kind, size_t index, const check_json *dtype_variable, bool is_first_variable)
{
    static const char *const common[] = { "f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128" };
    const check_json *in = check_json_find_member(dtype_variable, "in");
    const char *name = dtype_variable ? check_json_find_string(dtype_variable, "name") : "";
    dv_dtype d;
    factor *f = plan_factor_add(p, kind, index);
    plan_factor_add_kernel_dtype_levels(f, p->kernel, name, is_first_variable);
    for (size_t k = 0; !p->kernel && in && in->kind == CHECK_JSON_NULL && k < p->op->nkernels;
        k++) /* the contract allows any dtype: dtypes that some kernel lists are used */
        plan_factor_add_kernel_dtype_levels(f, &p->op->kernels[k], name, is_first_variable);
    for (const check_json *x = f->nlevels || !in ? NULL : in->child; x; x = x->next)
        if (!dv_dtype_parse(x->text, &d))
            plan_factor_add_level(f, dv_dtype_key(d));
    for (size_t k = 0; !f->nlevels && kind == FACTOR_FREE_DTYPE && k < p->op->nkernels; k++)
        plan_factor_add_kernel_dtype_levels(f, &p->op->kernels[k], name, is_first_variable);
    for (size_t k = 0, none = !f->nlevels; none && k < (p->op->contract ? sizeof common / sizeof *common : 1); k++)
        if (!dv_dtype_parse(common[k], &d))
            plan_factor_add_level(f, dv_dtype_key(d));
}

/* ---- Arguments that are no tensors ---- */

/* Adds a level for a new argument value of this type, and returns the value for the caller to fill in. If the factor is full,
 * returns a dummy. */
static check_value *plan_factor_add_scalar_level(planner *p, factor *f, uint32_t value_type)
{
    static check_value none;
    check_value *v = f->nlevels < MAX_LEVELS ? &p->scalar_levels[f->index][f->nlevels] : &none;
    plan_factor_add_level(f, f->nlevels);
    *v = (check_value){ .type = value_type };
    return v;
}

/* Adds a string as a level of the factor. */
static void plan_factor_add_string_level(planner *p, factor *f, const char *s)
{
    snprintf(plan_factor_add_scalar_level(p, f, DV_VALUE_STRING)->string, CHECK_MAX_STRING, "%s", s);
}

/* A string argument that is longer than a kernel's buffer is likely to be. */
static const char long_string[] = "a_word_of_eighty_letters_for_which_a_kernel_may_have_no_room_in_a_buffer_of_its_own";

/* Writes to `out` strings to try for an argument: those that the contract compares it with, or, if there are none, string
 * literals of the kernel's source. Returns their number, at most `capacity`. */
static size_t plan_factor_list_candidate_strings(const planner *p, size_t slot, const char **out, size_t capacity)
{
    const check_literals *literals = &p->op->literals[slot];
    size_t words = 0;
    for (size_t k = 0; k < literals->nequality_values && words < capacity; k++)
        if (literals->equality_values[k]->kind == CHECK_JSON_STRING &&
            strlen(literals->equality_values[k]->text) < CHECK_MAX_WORD_BYTES)
            out[words++] = literals->equality_values[k]->text;
    for (size_t k = 0; k < p->op->nsource_words && !literals->nequality_values && words < capacity; k++)
        out[words++] = p->op->source_words[k];
    return words;
}

/* Adds lists of zero to three strings as levels. Strings of plan_factor_list_candidate_strings() are preferred. */
static void plan_factor_add_string_list_levels(planner *p, factor *f, const dv_slot_info *slot_info)
{
    static const char *const others[] = { "a", "", "bc" };
    const bool fixed = slot_info->fixed_size > 1 && slot_info->fixed_size <= CHECK_MAX_LIST;
    const char *words[CHECK_MAX_SOURCE_WORDS + 1];
    const size_t known = plan_factor_list_candidate_strings(p, f->index, words, CHECK_MAX_SOURCE_WORDS), n = known ? known : 3;
    for (uint32_t k = 0; k < (known ? 8 : 6); k++) {
        check_value *v = plan_factor_add_scalar_level(p, f, DV_VALUE_STRINGS);
        char *to = v->string;
        v->count = fixed ? (uint32_t)slot_info->fixed_size : k % 4;
        for (uint32_t i = 0; i < v->count; i++)
            to += snprintf(to, CHECK_MAX_WORD_BYTES, "%s", known ? words[(k / 4 + k + i) % n] : others[(k / 4 + i) % n]) + 1;
    }
    if (!known && !fixed) {
        check_value *v = plan_factor_add_scalar_level(p, f, DV_VALUE_STRINGS);
        v->count = 1;
        snprintf(v->string, CHECK_MAX_STRING, "%s", long_string);
    }
}

/* Adds nnumbers ints as levels of the factor. */
static void plan_factor_add_int_levels(planner *p, factor *f, const int64_t *numbers, size_t nnumbers)
{
    for (size_t k = 0; k < nnumbers; k++)
        plan_factor_add_scalar_level(p, f, DV_VALUE_INT)->as.i = numbers[k];
}
#define PLAN_ADD_INT_LEVELS(p, f, ...) \
    plan_factor_add_int_levels(p, f, (const int64_t[]){ __VA_ARGS__ }, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

/* Adds a float as a level of the factor, unless it is one already. */
static void plan_factor_add_float_level(planner *p, factor *f, double x)
{
    for (uint32_t k = 0; k < f->nlevels; k++)
        if (p->scalar_levels[f->index][k].type == DV_VALUE_FLOAT &&
            !(p->scalar_levels[f->index][k].as.f < x || p->scalar_levels[f->index][k].as.f > x))
            return;
    plan_factor_add_scalar_level(p, f, DV_VALUE_FLOAT)->as.f = x;
}

/* Adds float levels: the numbers that the contract compares with, numbers between each two of them, one below and one above, and
 * common ones. The middle between two numbers is not used: at 0.5 a kernel that computes with p in place of 1 - p is right. 1.7
 * is not exact in f32, so it detects an f64 kernel that rounds to f32. */
static void plan_factor_add_float_levels(planner *p, factor *f, const check_literals *literals)
{
    static const double others[] = { 0.25, 1, 1.7, 0, -0.5, 16 };
    double at[CHECK_MAX_BOUNDS + 1];
    size_t n = 0;
    for (size_t k = 0; k < literals->ncomparison_constants; k++) {
        size_t to = n;
        for (; to && at[to - 1] > literals->comparison_constants[k]; to--)
            at[to] = at[to - 1];
        at[to] = literals->comparison_constants[k];
        n++;
    }
    for (size_t k = 0; k < n; k++) {
        plan_factor_add_float_level(p, f, at[k]);
        for (int i = 1; i < 4 && k + 1 < n; i += 2)
            plan_factor_add_float_level(p, f, at[k] + (at[k + 1] - at[k]) * i / 4);
    }
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        plan_factor_add_float_level(p, f, others[k]);
    if (n)
        plan_factor_add_float_level(p, f, at[0] - 1), plan_factor_add_float_level(p, f, at[n - 1] + 1);
}

/* Adds lists of ints, floats, bools or scalars of different lengths as levels. Partial inference later changes a list whose
 * length or numbers the contract ties to sizes. */
static void plan_factor_add_number_list_levels(planner *p, factor *f, const dv_slot_info *slot_info, uint32_t value_type)
{
    static const int64_t numbers[] = { 0, 1, 2, -1, 1, 0, 3, 2, 4, 1, -1, 8, 5, 3 };
    const bool fixed = slot_info->fixed_size > 1 && slot_info->fixed_size <= CHECK_MAX_LIST,
               read = p->op->literals[f->index].is_read && value_type == DV_VALUE_INTS;
    const uint32_t n = fixed ? (read ? 1 : 6) : (read ? 5 : 7); /* fewer lists suffice if the contract decides the numbers */
    for (uint32_t k = 0; k < n; k++) {
        check_value *v = plan_factor_add_scalar_level(p, f, value_type);
        v->count = fixed ? (uint32_t)slot_info->fixed_size : k + 1 == n ? LONG_LIST_LENGTH : k % 4;
        for (uint32_t i = 0; i < v->count; i++) {
            const int64_t number = numbers[(2 * k + i) % (sizeof numbers / sizeof *numbers)];
            v->ints[i] = value_type == DV_VALUE_BOOLS ? (k + i) % 2 : number;
            v->floats[i] = (double)number / 2;
            if (value_type == DV_VALUE_SCALARS) { /* scalars of the kinds int, float and bool in turn */
                v->ints[i] = DV_SCALAR_INT + (k / 2 + i) % 3;
                v->floats[i] = v->ints[i] == DV_SCALAR_FLOAT ? v->floats[i]
                    : v->ints[i] == DV_SCALAR_INT            ? (double)number
                                                             : (double)((k + i) % 2);
            }
        }
    }
}

/* Adds the factor of a non-tensor argument. Its levels depend on the argument's type: the default, None, values that the contract
 * compares with, and typical values. */
static void plan_factor_add_scalar(planner *p, size_t slot)
{
    static const char *const asked[] = { "f32", "f64", "bool", "i32", "bf16" };
    const dv_slot_info *s = &p->op->slots[slot];
    const check_literals *literals = &p->op->literals[slot];
    factor *f = plan_factor_add(p, FACTOR_SCALAR, slot);
    if (s->default_value.type != DV_VALUE_DEFAULT)
        plan_factor_add_scalar_level(p, f, DV_VALUE_DEFAULT);
    if (s->flags & DV_SLOT_OPTIONAL && s->default_value.type != DV_VALUE_NONE)
        plan_factor_add_scalar_level(p, f, DV_VALUE_NONE);
    for (size_t k = 0; k < literals->nequality_values; k++) {
        bool is_repeated = false;
        for (size_t i = 0; i < k; i++)
            is_repeated |= literals->equality_values[i]->kind == literals->equality_values[k]->kind &&
                literals->equality_values[i]->int_value == literals->equality_values[k]->int_value &&
                !(literals->equality_values[k]->text &&
                    strcmp(literals->equality_values[i]->text, literals->equality_values[k]->text));
        if (!is_repeated && literals->equality_values[k]->kind == CHECK_JSON_STRING)
            plan_factor_add_string_level(p, f, literals->equality_values[k]->text);
        else if (!is_repeated && (literals->equality_values[k]->int_value < -1 || literals->equality_values[k]->int_value > 3))
            plan_factor_add_scalar_level(p, f, DV_VALUE_INT)->as.i = literals->equality_values[k]->int_value;
    }
    switch (s->type) {
    case DV_FIELD_INT:
        PLAN_ADD_INT_LEVELS(p, f, 1, 0, 2, -1, 3, extreme_ints[0]);
        if (!literals->is_read || literals->is_dim_index) {
            PLAN_ADD_INT_LEVELS(p, f, 8, 6);
            break;
        }
        PLAN_ADD_INT_LEVELS(p, f, 278, 4, 5); /* the argument may be a size; 278 has factors for which a ratio is not exact */
        for (uint32_t c = SIZE_BEFORE_VECTOR; c <= (literals->decides_shape ? SIZE_PAST_32768 : SIZE_OTHER); c++)
            plan_factor_add_scalar_level(p, f, DV_VALUE_INT)->count = 1 + c;
        break;
    case DV_FIELD_FLOAT: plan_factor_add_float_levels(p, f, literals); break;
    case DV_FIELD_BOOL:
        plan_factor_add_scalar_level(p, f, DV_VALUE_BOOL), plan_factor_add_scalar_level(p, f, DV_VALUE_BOOL)->as.b = true;
        break;
    case DV_FIELD_STRING:
        for (size_t k = 0; k < p->op->nsource_words && !literals->is_read; k++)
            plan_factor_add_string_level(p, f, p->op->source_words[k]);
        plan_factor_add_string_level(p, f, "a");
        if (!literals->is_read) {
            plan_factor_add_string_level(p, f, "");
            plan_factor_add_string_level(p, f, long_string);
        }
        break;
    case DV_FIELD_STRINGS: plan_factor_add_string_list_levels(p, f, s); break;
    case DV_FIELD_SCALAR:
        PLAN_ADD_INT_LEVELS(p, f, 1, 0, -1, 3), plan_factor_add_float_level(p, f, 0.25), plan_factor_add_float_level(p, f, -1.5),
            plan_factor_add_float_level(p, f, 3);
        plan_factor_add_scalar_level(p, f, DV_VALUE_BOOL)->as.b = true;
        plan_factor_add_scalar_level(p, f, DV_VALUE_COMPLEX)->as.c = (dv_complex){ 0.5, -2 };
        break;
    case DV_FIELD_COMPLEX:
        for (int k = 0; k < 4; k++)
            plan_factor_add_scalar_level(p, f, DV_VALUE_COMPLEX)->as.c = (dv_complex){ 1 - k, k % 2 - 0.5 };
        break;
    case DV_FIELD_DTYPE:
        for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
            dv_dtype_parse(asked[k], &plan_factor_add_scalar_level(p, f, DV_VALUE_DTYPE)->as.dtype);
        break;
    case DV_FIELD_DEVICE: plan_factor_add_scalar_level(p, f, DV_VALUE_DEVICE)->as.device = (dv_device){ DV_CPU, 0 }; break;
    case DV_FIELD_GENERATOR: plan_factor_add_scalar_level(p, f, DV_VALUE_NONE); break;
    case DV_FIELD_INTS: plan_factor_add_number_list_levels(p, f, s, DV_VALUE_INTS); break;
    case DV_FIELD_FLOATS: plan_factor_add_number_list_levels(p, f, s, DV_VALUE_FLOATS); break;
    case DV_FIELD_BOOLS: plan_factor_add_number_list_levels(p, f, s, DV_VALUE_BOOLS); break;
    case DV_FIELD_SCALARS: plan_factor_add_number_list_levels(p, f, s, DV_VALUE_SCALARS); break;
    default: { /* rare types get one level: zero, or an empty list, which fits every element type */
        const dv_field_row *row = dv_field_at(s->type);
        plan_factor_add_scalar_level(p, f, row->form == DV_FORM_LIST ? DV_VALUE_INTS : row->value);
    }
    }
}

/* ---- Tensors, and all factors ---- */

/* True if a tensor argument, or the tensors of a list argument, may be None. */
static bool plan_factor_is_optional_tensor(const check_op *op, size_t slot)
{
    return op->slots[slot].flags & (op->slots[slot].type == DV_FIELD_TENSOR ? DV_SLOT_OPTIONAL : DV_SLOT_ELEMENT_OPTIONAL);
}

/* True if partial inference proves that no call has this level's value of a non-tensor argument, as a string where only None is
 * accepted. */
static bool plan_factor_is_refused_scalar_level(const planner *p, const factor *f, uint32_t level_index)
{
    dv_partial *any = check_new_partial_inference(p->op, 0, NULL);
    dv_partial *one = any && f->kind == FACTOR_SCALAR
        ? check_new_partial_inference(p->op, f->index, &p->scalar_levels[f->index][level_index])
        : NULL;
    const bool refused = any && f->kind == FACTOR_SCALAR && !one;
    dv_partial_free(any);
    dv_partial_free(one);
    return refused;
}

/* Removes each level of each factor for which it is proved that no call has it. Each factor keeps at least one level. */
static void plan_factor_drop_infeasible_levels(planner *p)
{
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0; l < p->factors[k].nlevels;)
            if (p->factors[k].nlevels > 1 &&
                (check_plan_proof_is_infeasible(p, k, (int)l, NONE, 0) ||
                    plan_factor_is_refused_scalar_level(p, &p->factors[k], l))) {
                factor *f = &p->factors[k];
                f->nlevels--;
                if (f->kind == FACTOR_SCALAR)
                    memmove(&p->scalar_levels[f->index][l], &p->scalar_levels[f->index][l + 1],
                        (f->nlevels - l) * sizeof(check_value));
                else
                    memmove(&f->levels[l], &f->levels[l + 1], (f->nlevels - l) * sizeof *f->levels);
            } else {
                l++;
            }
}

/* Removes from factor f each dtype that the tensors of a list argument cannot have. check_try_fit_case() decides, because core
 * has no facts about tensors in lists. base_case: a case with small sizes in which the dtype is tried. */
static void plan_factor_drop_refused_list_dtypes(planner *p, const check_case *base_case, size_t slot, factor *f)
{
    static check_case c;
    const size_t first = base_case->args[slot].first_tensor;
    uint32_t n = 0;
    for (uint32_t l = 0; l < f->nlevels; l++) {
        c = *base_case;
        c.tensors[first].dtype = dv_dtype_from_key((uint32_t)f->levels[l]);
        if (check_try_fit_case(p->op, &c, NULL, NULL) && dv_dtype_key(c.tensors[first].dtype) == f->levels[l])
            f->levels[n++] = f->levels[l];
    }
    f->nlevels = n ? n : f->nlevels;
}

/* Adds the factors of one tensor argument: presence, list length and layout, and shape and dtype if no name decides them
 * (has_free_shape, has_free_dtype). base_case: a case with small sizes. */
static void plan_factor_add_tensor(planner *p, const check_case *base_case, size_t slot, bool has_free_shape, bool has_free_dtype)
{
    const check_op *op = p->op;
    const bool list = op->slots[slot].type == DV_FIELD_TENSORS, written = op->slots[slot].flags & DV_SLOT_WRITES;
    if (plan_factor_is_optional_tensor(op, slot))
        plan_factor_add_integer_range(p, FACTOR_PRESENT, slot, 0, 1);
    if (list)
        plan_factor_add_integer_range(p, FACTOR_LENGTH, slot, 0, 3),
            plan_factor_add_level(&p->factors[p->nfactors - 1], LONG_LIST_LENGTH);
    if (has_free_shape) {
        plan_factor_add_integer_range(p, FACTOR_FREE_RANK, slot, 0, MAX_RANK - 1);
        plan_factor_add_sizes(p, FACTOR_FREE_SIZE, slot);
    }
    if (has_free_dtype)
        plan_factor_add_dtypes(p, FACTOR_FREE_DTYPE, slot, NULL, true);
    if (has_free_dtype && list && op->contract && base_case->args[slot].count)
        plan_factor_drop_refused_list_dtypes(p, base_case, slot, &p->factors[p->nfactors - 1]);
    factor *f = plan_factor_add(p, FACTOR_LAYOUT, slot);
    for (int64_t l = 0; l < CHECK_LAYOUT_WIDE_STRIDE; l++)
        if (!written || l != CHECK_LAYOUT_EXPANDED)
            plan_factor_add_level(f, l);
}

/* True if some dtype factor has an integer dtype as a level. */
static bool plan_factor_has_integer_dtype_level(const planner *p)
{
    bool may = false;
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0;
            l < p->factors[k].nlevels && (p->factors[k].kind == FACTOR_DTYPE || p->factors[k].kind == FACTOR_FREE_DTYPE); l++)
            may |= check_is_integer_dtype(dv_dtype_from_key((uint32_t)p->factors[k].levels[l]));
    return may;
}

void check_plan_factor_add_all(planner *p)
{
    static check_case c;
    static bool shapes[CHECK_MAX_TENSORS], dtypes[CHECK_MAX_TENSORS];
    const check_op *op = p->op;
    const check_json *variables = check_json_find_member(op->contract, "dtypes"), *d = variables ? variables->child : NULL;
    size_t nfree = 0, first_dtype = op->nnames;
    for (size_t k = 0; k < op->nnames; k++) {
        if (op->names[k].kind == CHECK_NAME_DIM)
            plan_factor_add_sizes(p, FACTOR_DIM, k);
        if (op->names[k].kind == CHECK_NAME_VARIADIC) {
            plan_factor_add_integer_range(p, FACTOR_RANK, k, 0, MAX_RANK);
            plan_factor_add_level(&p->factors[p->nfactors - 1], HIGH_RANK);
            plan_factor_add_sizes(p, FACTOR_VARIADIC_SIZE, k);
            plan_factor_add_integer_range(p, FACTOR_ONES, k, 0, ONES_COUNT - 1);
        }
        if (op->names[k].kind == CHECK_NAME_DTYPE) {
            first_dtype = k < first_dtype ? k : first_dtype;
            plan_factor_add_dtypes(p, FACTOR_DTYPE, k, d, k == first_dtype);
            d = d ? d->next : NULL;
        }
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (!check_is_tensor_argument(op, i))
            plan_factor_add_scalar(p, i);
    int want[MAX_FACTORS];
    check_plan_level_want_small_sizes(p, want);
    memset(&c, 0, sizeof c);
    check_plan_case_set_arguments_except_shapes(p, want, false, &c);
    check_plan_case_set_name_values(p, want, false, &c);
    check_plan_case_satisfy_kernel_condition(p, &c);
    check_plan_case_set_free_tensors(p, want, false, &c);
    check_flag_free_tensors(op, &c, shapes, dtypes);
    for (size_t i = 0; i < op->nargs; i++) {
        const size_t t = c.args[i].first_tensor;
        if (!check_is_tensor_argument(op, i))
            continue;
        plan_factor_add_tensor(p, &c, i, shapes[t], dtypes[t]);
        nfree += shapes[t];
    }
    if (nfree > 1)
        plan_factor_add_integer_range(p, FACTOR_SAME_SHAPE, 0, 0, 1);
    const bool literal = plan_factor_has_integer_dtype_level(p);
    bool integers = literal, reals = false;
    for (size_t i = 0; i < c.ntensors; i++) {
        integers |= check_is_integer_dtype(c.tensors[i].dtype);
        reals |= !check_is_integer_dtype(c.tensors[i].dtype);
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (check_is_tensor_argument(op, i))
            plan_factor_add_integer_range(
                p, FACTOR_CONTENTS, i, 0, literal || check_is_integer_dtype(c.tensors[c.args[i].first_tensor].dtype) ? 5 : 2);
    factor *fill_mode_factor = plan_factor_add(p, FACTOR_FILL_MODE, 0);
    plan_factor_add_level(fill_mode_factor, FILL_MODE_PLAIN);
    for (int64_t k = FILL_MODE_SCALED; k <= FILL_MODE_EXTREME && reals; k++)
        plan_factor_add_level(fill_mode_factor, k);
    for (int64_t k = 0; k < NUM_WRONG_INDICES && integers; k++)
        plan_factor_add_level(fill_mode_factor, FILL_MODE_WRONG_INDEX + k);
    if (op->contract)
        plan_factor_drop_infeasible_levels(p);
}

void check_plan_factor_add_source_sizes(planner *p)
{
    p->nextra_sizes = p->op->nextra_sizes;
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].max_levels > p->factors[k].nlevels &&
            check_plan_size_get_class(p, check_plan_size_get_of_class(p, NUM_SIZE_CLASSES, 0)) == NUM_SIZE_CLASSES) {
            if (p->factors[k].kind == FACTOR_SCALAR)
                plan_factor_add_scalar_level(p, &p->factors[k], DV_VALUE_INT)->count = 1 + NUM_SIZE_CLASSES;
            else
                p->factors[k].levels[p->factors[k].nlevels++] = NUM_SIZE_CLASSES;
            if (p->op->contract && check_plan_proof_is_infeasible(p, k, (int)p->factors[k].nlevels - 1, NONE, 0))
                p->factors[k].nlevels--;
        }
}
