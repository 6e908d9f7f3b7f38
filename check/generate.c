/* Generates cases. Names, sizes and arguments are drawn by themselves; then check_fit() makes them follow the contract. A case
 * that dv_infer() refuses is drawn again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { TRIES = 400, MOST_BYTES = 1 << 22 };

/* What sizes a case has. X(name, says) */
enum regime { SMALL, VECTOR, ZERO, ONES, LARGE, PRIMES, TINY, REGIMES };

typedef struct maker {
    const check_op *op;
    const check_row *row;
    check_random r;
    check_case *c;
    enum regime regime;
    uint32_t i;   /* number of the case */
    bool insists; /* for the numbers in turn: the contract has not refused them */
} maker;

static int64_t one_of(check_random *r, const int64_t *list, size_t n) { return list[check_next(r) % n]; }
#define ONE_OF(r, ...) one_of(r, (const int64_t[]){ __VA_ARGS__ }, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

static bool chance(check_random *r, unsigned percent) { return check_next(r) % 100 < percent; }

static int64_t draw_size(maker *m)
{
    switch (m->regime) {
    case VECTOR: return chance(&m->r, 60) ? ONE_OF(&m->r, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65) : ONE_OF(&m->r, 1, 2, 3);
    case ZERO: return chance(&m->r, 30) ? 0 : check_between(&m->r, 1, 4);
    case ONES: return 1;
    case LARGE: return chance(&m->r, 25) ? ONE_OF(&m->r, 129, 1000, 1025, 4099, 20011, 40000) : ONE_OF(&m->r, 1, 2, 3, 4, 8);
    case PRIMES: return ONE_OF(&m->r, 2, 3, 5, 7, 11, 13, 17, 37);
    case TINY: return check_between(&m->r, 1, 2);
    case SMALL:
    case REGIMES: break;
    }
    return check_between(&m->r, 1, 6);
}

/* ---- Dtypes ---- */

/* The dtypes that a row takes for variable v ("f32 bf16" is for the first variable, "T=f32, U=i32 i64" by name). 0: not given. */
static size_t row_dtypes(const check_row *row, const char *variable, bool first, dv_dtype *out, size_t most)
{
    size_t n = 0;
    char word[32];
    bool mine = first;
    for (const char *p = row && row->dtypes ? row->dtypes : ""; *p;) {
        p += strspn(p, " ,");
        const size_t size = strcspn(p, " ,=");
        snprintf(word, sizeof word, "%.*s", (int)size, p);
        p += size;
        if (p[strspn(p, " ")] == '=') {
            mine = !strcmp(word, variable);
            p += strspn(p, " ") + 1;
        } else if (*word && mine && n < most && !dv_dtype_parse(word, &out[n])) {
            n++;
        }
    }
    return n;
}

static size_t allowed_dtypes(const maker *m, const check_json *variable, bool first, dv_dtype *out, size_t most)
{
    static const char *const common[] = { "f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64" };
    const check_json *in = check_json_get(variable, "in");
    size_t n = row_dtypes(m->row, check_json_text(variable, "name"), first, out, most);
    for (size_t k = 0; !m->row && !n && in && in->kind == CHECK_NULL && k < m->op->nrows; k++) /* any: then what some row takes */
        n = row_dtypes(&m->op->rows[(m->i + k) % m->op->nrows], check_json_text(variable, "name"), first, out, most);
    for (const check_json *d = n || !in ? NULL : in->child; d && n < most; d = d->next)
        n += !dv_dtype_parse(d->text, &out[n]);
    for (size_t k = 0; !n && k < sizeof common / sizeof *common && k < most; k++)
        dv_dtype_parse(common[k], &out[k]);
    return n ? n : sizeof common / sizeof *common;
}

static void draw_dtypes(maker *m)
{
    size_t v = 0;
    const check_json *variables = check_json_get(m->op->contract, "dtypes");
    for (const check_json *d = variables ? variables->child : NULL; d && v < CHECK_RUNS; d = d->next, v++) {
        dv_dtype allowed[64];
        const size_t n = allowed_dtypes(m, d, v == 0, allowed, 64);
        dv_dtype *to = &m->c->names.dtypes[v];
        *to = v ? allowed[check_next(&m->r) % n] : allowed[(m->i + check_next(&m->r) % (m->i / 16 + 1)) % n];
        if (v && chance(&m->r, 50)) /* often all the same */
            for (size_t k = 0; k < n; k++)
                if (dv_dtype_key(allowed[k]) == dv_dtype_key(m->c->names.dtypes[0]))
                    *to = allowed[k];
    }
}

/* ---- Names ---- */

static size_t count_sizes(const maker *m)
{
    size_t n = 0;
    while (check_name_size(m->op, m->c, n))
        n++;
    return n;
}

/* Of sizes that are to be large, one is. */
static void enlarge_one(maker *m)
{
    static const int64_t large[] = { 1025, 4099, 20011, 40000 };
    const size_t n = count_sizes(m);
    if (n)
        *check_name_size(m->op, m->c, check_next(&m->r) % n) = one_of(&m->r, large, sizeof large / sizeof *large);
}

static void draw_runs(maker *m)
{
    for (size_t k = 0; k < CHECK_RUNS; k++) {
        check_shape *s = &m->c->names.runs[k];
        const int64_t most = m->regime == LARGE || m->regime == ONES ? 2 : 3;
        s->n = (int32_t)check_between(&m->r, chance(&m->r, 15) ? 0 : 1, most);
        for (int32_t i = 0; i < CHECK_DIMS; i++)
            s->d[i] = draw_size(m);
        if (k && chance(&m->r, 70)) { /* so that they broadcast */
            *s = m->c->names.runs[check_next(&m->r) % k];
            const int32_t lost = (int32_t)check_between(&m->r, 0, chance(&m->r, 50) ? 0 : s->n);
            memmove(s->d, s->d + lost, sizeof *s->d * (size_t)(CHECK_DIMS - lost));
            s->n -= lost;
            for (int32_t i = 0; i < s->n; i++)
                if (chance(&m->r, 20))
                    s->d[i] = 1;
        }
    }
}

/* A predicate such as "n % 8 == 0" of a row: satisfied often, since the row would rarely run otherwise. */
static void meet_row(maker *m)
{
    char name[32];
    const check_name *found;
    int of;
    for (const char *p = m->row && m->row->when ? m->row->when : ""; *p; p += strcspn(p, " "), p += strspn(p, " (")) {
        if (sscanf(p, "%31[A-Za-z0-9_] %% %d == 0", name, &of) == 2 && of > 0 &&
            (found = check_op_name(m->op, CHECK_NAME_DIM, name)) && chance(&m->r, 75))
            m->c->names.dims[found->at] = (m->c->names.dims[found->at] + of - 1) / of * of;
    }
}

static void draw_names(maker *m)
{
    const size_t n = count_sizes(m), turn = m->i / REGIMES % (n + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t *size = check_name_size(m->op, m->c, i);
        if (m->op->names[i].kind != CHECK_NAME_DIM)
            continue;
        *size = draw_size(m);
        if (m->regime == ZERO && turn < n) /* each alone, in turn */
            *size = i == turn ? 0 : check_between(&m->r, 1, 4);
    }
    draw_runs(m);
    draw_dtypes(m);
    if (m->regime == LARGE && chance(&m->r, 50))
        enlarge_one(m);
    meet_row(m);
}

/* ---- Arguments that are no tensors ---- */

static void set_string(check_value *v, const char *s)
{
    v->type = DV_VALUE_STRING;
    snprintf(v->string, sizeof v->string, "%s", s);
}

static void draw_list(maker *m, const dv_slot_info *slot, check_value *v, uint32_t type)
{
    v->type = type;
    v->count = slot->fixed_size > 1 && slot->fixed_size <= CHECK_LIST ? (uint32_t)slot->fixed_size
                                                                      : (uint32_t)check_between(&m->r, 0, 3);
    for (uint32_t i = 0; i < v->count; i++) {
        v->ints[i] = type == DV_VALUE_BOOLS ? check_between(&m->r, 0, 1) : ONE_OF(&m->r, 0, 1, 2, 3, -1, 4, 8, 5);
        v->floats[i] = (double)ONE_OF(&m->r, 0, 1, -2, 3) / 2;
    }
}

/* Used only in the last cases, since a kernel that counts to 2^32 does not end. */
static bool is_late(const maker *m) { return m->i % 64 >= 48; }

/* Values beyond 32 bits: in late cases each number in turn, for each argument in turn, with sizes of every kind. */
static bool is_huge_in_turn(const maker *m, size_t slot)
{
    size_t before = 0, n = 0;
    for (size_t i = 0; i < m->op->nargs; i++) {
        before += i < slot && m->op->slots[i].type == DV_FIELD_INT;
        n += m->op->slots[i].type == DV_FIELD_INT;
    }
    return is_late(m) && m->insists && m->op->slots[slot].type == DV_FIELD_INT && m->i / 6 % n == before;
}

static void draw_huge(const maker *m, check_value *v)
{
    static const int64_t numbers[] = { INT64_C(1) << 31, INT64_C(1) << 32, -(INT64_C(1) << 32), (INT64_C(1) << 32) + 1, -3,
        1000 };
    v->type = DV_VALUE_INT;
    v->as.i = numbers[m->i % (sizeof numbers / sizeof *numbers)];
}

static void draw_plain(maker *m, const dv_slot_info *slot, check_value *v)
{
    switch (slot->type) {
    case DV_FIELD_INT: v->type = DV_VALUE_INT, v->as.i = ONE_OF(&m->r, 0, 1, 2, 3, 4, 1, 2, 8, -1, 16); break;
    case DV_FIELD_FLOAT: v->type = DV_VALUE_FLOAT, v->as.f = (double)ONE_OF(&m->r, 1, 2, 3, 0, -1, 1, 32) / 2; break;
    case DV_FIELD_BOOL: v->type = DV_VALUE_BOOL, v->as.b = chance(&m->r, 50); break;
    case DV_FIELD_STRING: set_string(v, "a"); break;
    case DV_FIELD_SCALAR:
        v->type = chance(&m->r, 50) ? DV_VALUE_INT : DV_VALUE_FLOAT;
        if (v->type == DV_VALUE_INT)
            v->as.i = check_between(&m->r, -1, 3);
        else
            v->as.f = (double)check_between(&m->r, -4, 6) / 2;
        break;
    case DV_FIELD_COMPLEX: v->type = DV_VALUE_COMPLEX, v->as.c = (dv_complex){ 1, -0.5 }; break;
    case DV_FIELD_DTYPE: v->type = DV_VALUE_DTYPE, dv_dtype_parse(chance(&m->r, 50) ? "f32" : "f64", &v->as.dtype); break;
    case DV_FIELD_DEVICE: v->type = DV_VALUE_DEVICE, v->as.device = (dv_device){ DV_CPU, 0 }; break;
    case DV_FIELD_GENERATOR: v->type = DV_VALUE_NONE; break;
    case DV_FIELD_INTS: draw_list(m, slot, v, DV_VALUE_INTS); break;
    case DV_FIELD_FLOATS: draw_list(m, slot, v, DV_VALUE_FLOATS); break;
    case DV_FIELD_BOOLS: draw_list(m, slot, v, DV_VALUE_BOOLS); break;
    case DV_FIELD_SCALARS: draw_list(m, slot, v, DV_VALUE_SCALARS); break;
    default: { /* rare values: zeros; an empty list fits every element type */
        const dv_field_row *row = dv_field_at(slot->type);
        v->type = row->form == DV_FORM_LIST ? DV_VALUE_INTS : row->value;
    }
    }
}

/* How many tensors a list has: often as many as another. */
static uint32_t draw_length(maker *m, size_t slot)
{
    for (size_t i = 0; i < slot; i++)
        if (m->c->args[i].type == DV_VALUE_TENSORS && m->c->args[i].count && chance(&m->r, 50))
            return m->c->args[i].count;
    return (uint32_t)check_between(&m->r, chance(&m->r, 20) ? 0 : 1, 3);
}

static void draw_argument(maker *m, size_t slot)
{
    const dv_slot_info *s = &m->op->slots[slot];
    const check_literals *literals = &m->op->literals[slot];
    check_value *v = &m->c->args[slot];
    memset(v, 0, sizeof *v);
    if (s->type == DV_FIELD_TENSOR || s->type == DV_FIELD_TENSORS) {
        const bool optional = s->flags & (s->type == DV_FIELD_TENSOR ? DV_SLOT_OPTIONAL : DV_SLOT_ELEMENT_OPTIONAL);
        v->type = s->type == DV_FIELD_TENSOR ? DV_VALUE_TENSOR : DV_VALUE_TENSORS;
        v->count = s->type == DV_FIELD_TENSOR ? 1 : draw_length(m, slot);
        v->first = m->c->ntensors;
        m->c->ntensors += v->count;
        for (uint32_t k = 0; k < v->count; k++)
            m->c->tensors[v->first + k].present = !optional || m->i % 4 == 1 || (m->i % 4 && chance(&m->r, 50));
        return;
    }
    if (literals->n && chance(&m->r, 90)) {
        const check_json *l = literals->of[check_next(&m->r) % literals->n];
        if (l->kind == CHECK_TEXT)
            set_string(v, l->text);
        else
            v->type = DV_VALUE_INT, v->as.i = l->i;
    } else if (is_huge_in_turn(m, slot)) {
        draw_huge(m, v);
    } else if (s->default_value.type != DV_VALUE_DEFAULT && chance(&m->r, m->i % 8 ? 50 : 100)) {
        v->type = DV_VALUE_DEFAULT;
    } else if (s->flags & DV_SLOT_OPTIONAL && chance(&m->r, 50)) {
        v->type = DV_VALUE_NONE;
    } else {
        draw_plain(m, s, v);
    }
}

/* ---- Contents ---- */

/* The range of an integer type, without the minimum, which has no negative; a quarter of it for 64 bits, so that a sum of two
 * fits.
 */
static void whole_range(check_tensor *t)
{
    const int bits = t->dtype.bits == 64 ? 61 : t->dtype.bits - (t->dtype.code != 1);
    t->high = (double)((INT64_C(1) << bits) - 1);
    t->low = t->dtype.code == 1 ? 0 : -t->high;
}

/* Does a result or a written argument have this dtype? Then such numbers are not only indices. */
static bool is_written(const maker *m, dv_dtype dtype)
{
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    check_values_make(&v, m->c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(m->op->op, v.values, m->c->nargs, specs, m->op->nresults) ? 0 : m->op->nresults;
    for (size_t r = 0; r < n; r++)
        if (specs[r].ndim >= 0 && dv_dtype_key(specs[r].dtype) == dv_dtype_key(dtype))
            return true;
    for (size_t i = 0; i < m->c->ntensors; i++)
        if (m->op->slots[check_tensor_argument(m->c, i)].flags & DV_SLOT_WRITES &&
            dv_dtype_key(m->c->tensors[i].dtype) == dv_dtype_key(dtype))
            return true;
    return false;
}

/* A size of a tensor that is there. */
static int64_t some_size(maker *m)
{
    int64_t sizes[64] = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < m->c->ntensors; i++)
        for (int32_t d = 0; d < m->c->tensors[i].ndim && m->c->tensors[i].present && n < 64; d++)
            sizes[n++] = m->c->tensors[i].shape[d];
    return one_of(&m->r, sizes, n ? n : 1);
}

/* If these are indices, all but the last are valid: the last one is a wrong index of each kind in turn, with sizes of every kind.
 * If all sizes are 1, the kinds include the first index past the end and the first before the start. */
static void draw_last(maker *m, check_tensor *t)
{
    const int bits = t->dtype.bits - (t->dtype.code != 1);
    const int64_t most = bits >= 63 ? INT64_MAX >> 1 : (INT64_C(1) << bits) - 1, size = some_size(m);
    const int64_t kinds[] = { -size - 1, 1000, -1000, size, -1 };
    const int64_t last = kinds[m->i / 5 % (sizeof kinds / sizeof *kinds)], low = t->dtype.code == 1 ? 0 : -most;
    t->fill = CHECK_LAST;
    t->low = last > 0 ? 0 : (double)(last < low ? low : last);
    t->high = last < 0 ? 0 : (double)(last > most ? most : last);
}

static bool is_index(const check_tensor *t) { return check_is_integer(t->dtype) && dv_dtype_key(t->dtype) != DV_DTYPE_bool; }

/* Each tensor of integers in turn has a last element that may be a wrong index. */
static bool is_turn_of(const maker *m, size_t tensor)
{
    size_t before = 0, n = 0;
    for (size_t i = 0; i < m->c->ntensors; i++) {
        before += i < tensor && is_index(&m->c->tensors[i]);
        n += is_index(&m->c->tensors[i]);
    }
    return m->i % 5 == 2 && is_index(&m->c->tensors[tensor]) && m->i / 5 % n == before;
}

/* Ranges in turn: spread; far from zero, where exp() overflows or underflows; where the square of an f16 does. Never all near
 * zero: for a division by small numbers the tolerance, which depends on the inputs, is too narrow. */
static void draw_scale(const maker *m, size_t tensor, check_tensor *t)
{
    static const struct { double middle, width; } scales[] = { { 0, 20 }, { 200, 20 }, { -200, 20 }, { 1000, 20 } };
    const size_t turn = m->i / 5, n = sizeof scales / sizeof *scales, k = (turn + tensor * (1 + turn / n)) % n;
    t->low = scales[k].middle - scales[k].width;
    t->high = scales[k].middle + scales[k].width;
}

static void draw_contents(maker *m, const dv_range *facts)
{
    for (size_t i = 0; i < m->c->ntensors; i++) {
        check_tensor *t = &m->c->tensors[i];
        t->fill = !check_is_integer(t->dtype) && m->i % 5 == 4 ? CHECK_SPECIAL : CHECK_RANDOM;
        t->low = check_is_integer(t->dtype) ? 0 : -2;
        t->high = check_is_integer(t->dtype) ? (double)ONE_OF(&m->r, 1, 1, 3) : 2;
        if (!check_is_integer(t->dtype) && m->i % 5 == 2)
            draw_scale(m, i, t);
        if (is_turn_of(m, i))
            draw_last(m, t);
        if (is_index(t) && m->i % 5 == 3)
            t->low = t->dtype.code == 1 ? 0 : m->i % 2 ? -5 : -9, t->high = m->i % 2 ? 100 : 3;
        if (is_index(t) && m->i % 5 == 4 && (t->dtype.bits <= 16 || is_written(m, t->dtype)))
            whole_range(t);
        if (m->op->contract)
            check_narrow(t, facts[i]);
    }
}

/* In every second pair of cases each tensor has the layouts in turn, in other combinations each round, so that no seed leaves one
 * out. */
static void draw_layouts(maker *m)
{
    const size_t turn = m->i / 4 * 2 + m->i % 2, round = turn / CHECK_LAYOUT_COUNT;
    for (size_t i = 0; i < m->c->ntensors; i++) {
        check_tensor *t = &m->c->tensors[i];
        const bool written = m->op->slots[check_tensor_argument(m->c, i)].flags & DV_SLOT_WRITES;
        t->layout = m->i % 4 < 2 || (i && chance(&m->r, 30)) ? CHECK_CONTIGUOUS : (uint8_t)((turn + i * (1 + round)) % CHECK_FAR);
        t->outer = t->layout && chance(&m->r, 50);
        if (written && t->layout == CHECK_EXPANDED)
            t->layout = CHECK_SLICED;
    }
}

/* ---- All of it ---- */

static bool small_enough(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        double bytes = t->present ? (double)dv_dtype_bytes(t->dtype, 1) : 0;
        for (int32_t d = 0; d < t->ndim; d++)
            bytes *= (double)t->shape[d] * (t->layout == CHECK_SLICED ? 2 : 1);
        if (bytes > MOST_BYTES)
            return false;
    }
    return true;
}

/* The contract's conditions on contents are checked by a check-mode call that asks for a row that does not exist, so no kernel
 * runs.
 */
static bool contents_hold(const check_op *op, const check_case *c)
{
    static const check_row nowhere = { .name = "", .index = INT32_MAX };
    static check_call call;
    if (!op->looks_inside)
        return true;
    call = (check_call){ .op = op, .row = &nowhere, .flags = DV_HOST_CHECK };
    check_call_run(&call, c);
    return !call.status || call.not_this_row;
}

static enum check_verdict unfit(const check_op *op)
{
    dv_fail(DV_EINVAL, "%s: all tensors are None, or one is larger than %d MB", op->name, MOST_BYTES >> 20);
    return CHECK_UNFIT;
}

enum check_verdict check_judge(const check_op *op, const check_case *c)
{
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    bool any = !c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        any |= c->tensors[i].present;
    if (!any || !small_enough(c)) /* without a tensor there is no device */
        return unfit(op);
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return CHECK_REFUSED;
    for (size_t r = 0; r < op->nresults; r++) {
        double bytes = specs[r].ndim < 0 ? 0 : (double)dv_dtype_bytes(specs[r].dtype, 1);
        for (int32_t d = 0; d < specs[r].ndim; d++)
            bytes *= (double)specs[r].shape[d];
        if (bytes > MOST_BYTES)
            return unfit(op);
    }
    return contents_hold(op, c) ? CHECK_ACCEPTED : CHECK_UNFIT;
}

bool check_accepts(const check_op *op, const check_case *c) { return check_judge(op, c) == CHECK_ACCEPTED; }

/* Shapes and dtypes of what no name decides. Without a contract they are all the same. */
static void draw_free_shapes(maker *m)
{
    dv_dtype dtypes[16];
    const size_t n = row_dtypes(m->row, "", true, dtypes, 16);
    const bool alike = !m->op->contract || chance(&m->r, 40);
    for (size_t i = 0; i < m->c->ntensors; i++) {
        check_tensor *t = &m->c->tensors[i];
        t->dtype = n ? dtypes[m->i % n] : dv_dtype_from_key(DV_DTYPE_f32);
        t->ndim = (int32_t)check_between(&m->r, 0, 3);
        for (int32_t d = 0; d < CHECK_DIMS; d++)
            t->shape[d] = draw_size(m);
        if (i && alike) {
            t->ndim = m->c->tensors[0].ndim;
            memcpy(t->shape, m->c->tensors[0].shape, sizeof t->shape);
        }
    }
}

static bool draw(maker *m)
{
    dv_range facts[CHECK_TENSORS];
    check_case *c = m->c;
    memset(c, 0, sizeof *c);
    c->seed = (check_next(&m->r) & ~UINT64_C(1)) | (m->i / 5 & 1); /* so that every second special case has extremes */
    c->nargs = (uint32_t)m->op->nargs;
    for (size_t i = 0; i < c->nargs && c->ntensors + 4 <= CHECK_TENSORS; i++)
        draw_argument(m, i);
    draw_names(m);
    draw_free_shapes(m);
    if (!check_fit(m->op, c, NULL, facts))
        return false;
    draw_layouts(m);
    draw_contents(m, facts);
    return check_accepts(m->op, c);
}

bool check_generate(const check_op *op, const check_row *row, uint64_t seed, uint32_t i, check_case *out)
{
    uint64_t mixed = seed * UINT64_C(0x2545f4914f6cdd1d) + i;
    for (const char *p = op->name; *p; p++)
        mixed = mixed * 31 + (unsigned char)*p;
    maker m = { .op = op, .row = row, .r = { mixed }, .c = out, .i = i };
    for (int attempt = 0; attempt < TRIES; attempt++) {
        m.insists = attempt < TRIES / 8;
        m.regime = attempt < TRIES / 2 ? (enum regime)(i % REGIMES) : attempt % 2 ? SMALL : TINY;
        if (draw(&m))
            return true;
    }
    return false;
}

/* ---- More than 2^31 elements ---- */

/* Elements of the largest tensor that is larger than in the other case. */
static int64_t largest_grown(const check_case *from, const check_case *to)
{
    int64_t most = 0;
    for (size_t i = 0; i < to->ntensors; i++)
        if (to->tensors[i].present && check_numel(&to->tensors[i]) > check_numel(&from->tensors[i]) &&
            check_numel(&from->tensors[i]) > most)
            most = check_numel(&from->tensors[i]);
    return most;
}

bool check_enlarge(const check_op *op, check_case *c, uint32_t k, bool *wide, bool *end)
{
    static check_case from, one, two;
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    const int64_t beyond = INT64_C(3) << 30, most = INT64_C(1) << 33;
    int64_t *size = check_name_size(op, c, k);
    *end = !size;
    *wide = false;
    one = two = from = *c;
    if (!size || !*size)
        return false;
    *check_name_size(op, &one, k) = 1;
    *check_name_size(op, &two, k) = 2;
    if (!check_fit(op, &one, &from, NULL) || !check_fit(op, &two, &from, NULL) || !largest_grown(&one, &two))
        return false;
    *size = (beyond / largest_grown(&one, &two) + 64) / 64 * 64; /* often a multiple of something is wanted */
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_CONTIGUOUS;
        if (t->dtype.code == 0 && t->dtype.bits >= 32) { /* indices, maybe */
            t->low = 0;
            t->high = t->dtype.bits == 32 && *size > INT32_MAX ? INT32_MAX : (double)(*size - 1);
        }
    }
    if (!check_fit(op, c, &from, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool written = op->slots[check_tensor_argument(c, i)].flags & DV_SLOT_WRITES;
        if (c->tensors[i].present && check_numel(&c->tensors[i]) > most)
            return false;
        *wide |= written && c->tensors[i].present && check_numel(&c->tensors[i]) > INT32_MAX;
    }
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(op->op, v.values, c->nargs, specs, op->nresults))
        return false;
    for (size_t r = 0; r < op->nresults; r++) {
        double n = specs[r].ndim < 0 ? 0 : 1;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            n *= (double)specs[r].shape[d];
        if (n > (double)most)
            return false;
        *wide |= n > INT32_MAX;
    }
    return true;
}

/* ---- Just outside ---- */

typedef struct breaker {
    check_case *c;
    char *what;
    size_t size;
    uint32_t left;
} breaker;

/* True if this change is the requested one. */
static bool turn(breaker *b) { return b->left-- == 0; }

static bool break_tensor(breaker *b, const check_op *op, size_t i)
{
    check_tensor *t = &b->c->tensors[i];
    const size_t slot = check_tensor_argument(b->c, i);
    const char *name = op->slots[slot].name;
    if (!t->present)
        return false;
    for (int32_t d = 0; d < t->ndim; d++)
        if (turn(b)) {
            t->shape[d]++;
            snprintf(b->what, b->size, "dim %d of '%s' is one larger", (int)d, name);
            return true;
        }
    if (t->ndim < CHECK_DIMS && turn(b)) {
        t->shape[t->ndim++] = 2;
        snprintf(b->what, b->size, "'%s' has one dim more", name);
        return true;
    }
    if (t->ndim && turn(b)) {
        t->ndim--;
        snprintf(b->what, b->size, "'%s' has one dim less", name);
        return true;
    }
    if (turn(b)) {
        dv_dtype_parse(dv_dtype_key(t->dtype) == DV_DTYPE_u16 ? "i16" : "u16", &t->dtype);
        snprintf(b->what, b->size, "'%s' has another dtype", name);
        return true;
    }
    if (b->c->args[slot].type == DV_VALUE_TENSOR && turn(b)) {
        t->present = false;
        snprintf(b->what, b->size, "'%s' is None", name);
        return true;
    }
    return false;
}

static bool break_argument(breaker *b, const check_op *op, size_t slot)
{
    static const int64_t numbers[] = { -1, 0, 1, 7, INT64_C(1) << 40, INT64_MIN };
    check_value *v = &b->c->args[slot];
    const char *name = op->slots[slot].name;
    const bool is_int = op->slots[slot].type == DV_FIELD_INT;
    for (size_t k = 0; is_int && k < sizeof numbers / sizeof *numbers; k++)
        if (turn(b)) {
            memset(v, 0, sizeof *v);
            v->type = DV_VALUE_INT;
            v->as.i = numbers[k];
            snprintf(b->what, b->size, "'%s' is %lld", name, (long long)numbers[k]);
            return true;
        }
    for (int64_t by = -1; is_int && v->type == DV_VALUE_INT && by <= 1; by += 2)
        if (v->as.i < INT64_MAX && v->as.i > INT64_MIN && turn(b)) {
            v->as.i += by;
            snprintf(b->what, b->size, "'%s' is %lld", name, (long long)v->as.i);
            return true;
        }
    if (op->slots[slot].type == DV_FIELD_STRING && turn(b)) {
        memset(v, 0, sizeof *v);
        set_string(v, "no such word");
        snprintf(b->what, b->size, "'%s' is \"no such word\"", name);
        return true;
    }
    return false;
}

bool check_break(const check_op *op, const check_case *accepted, uint32_t i, check_case *out, char *what, size_t size)
{
    breaker b = { out, what, size, i };
    *out = *accepted;
    out->broken = true;
    for (size_t t = 0; t < out->ntensors; t++)
        if (break_tensor(&b, op, t))
            return true;
    for (size_t a = 0; a < out->nargs; a++)
        if (break_argument(&b, op, a))
            return true;
    return false;
}
