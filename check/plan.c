/* The cases of a row: a covering array. Each thing that a case can vary is a *factor*: the size class of a name, the rank of a
 * run and where it has 1s, a dtype, whether an optional tensor is there, a word or number, the layout and contents of a tensor.
 * Each pair of levels of two factors is met in a case, or core proves that no call has both (is_refuted()), or the case would
 * be larger than --max-elements, or it is counted as not met. Of all this the seed decides only the sizes between those of
 * vectors.
 *
 * A level that keeps a kernel from computing what it otherwise would (no elements, NaN, a wrong index, a number past 2^31) masks
 * the others: such a case meets only pairs with that level. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum {
    LEVELS = 24,
    FACTORS = 96,
    MOST_RANK = 4,
    HIGH_RANK = 17,
    LONG = CHECK_LIST,
    TRIES = 10,
    MOST_TRIES = 12000,
    MOST_VAIN = 24,
    FIRST = 6,
    FEWEST = 64,
    WORK = 10,
    NOT = -1,
    SMALL_SIZES = 128,
    LARGE_SIZE = 65536,
    MOST_TOGETHER = 3,
    MOST_SEARCHED = 4000,
    SOLUTIONS = 4,
    NAMES = CHECK_NAMES + 2 * CHECK_RUNS,
    SIZES = NAMES + CHECK_ARGS /* the names, then the arguments */
};

/* ---- Classes of sizes ------------------------------------------------------------------------------------------------------ */

enum { NOUGHT, ONE, FEW, BEFORE_VECTOR, VECTOR, AFTER_VECTOR, OTHER, PAST_4096, PAST_32768, CLASSES };
static struct {
    const char *name;
    int64_t of[4]; /* its members, or some of them; of OTHER those that the seed decides */
    int64_t low, high;
} classes[CLASSES] = {
    [NOUGHT] = { "0", { 0, 0, 0, 0 }, 0, 0 },
    [ONE] = { "1", { 1, 1, 1, 1 }, 1, 1 },
    [FEW] = { "2 to 6", { 3, 2, 5, 4 }, 2, 6 },
    [BEFORE_VECTOR] = { "7, 15, 31", { 7, 15, 31, 63 }, 0, -1 },
    [VECTOR] = { "8, 16, 32", { 8, 16, 32, 64 }, 0, -1 },
    [AFTER_VECTOR] = { "9, 17, 33", { 9, 17, 33, 65 }, 0, -1 },
    [OTHER] = { "another", { 0, 0, 0, 0 }, 10, 4096 },
    [PAST_4096] = { "past 4096", { 4099, 4097, 8192, 6007 }, 4097, 32768 },
    [PAST_32768] = { "past 32768", { 65537, 66049, 65792, 70001 }, 32769, INT64_MAX },
};
/* Values to try for int arguments, most of them beyond 32 bits. The values from HUGE_SIZES on are not used for arguments that the
 * contract reads, because these may be sizes. */
static const int64_t huge[] = { INT64_C(1) << 31, INT64_C(1) << 32, -(INT64_C(1) << 32), (INT64_C(1) << 32) + 1, -3, 1000,
    INT64_MIN, INT64_MAX, INT32_MIN };
enum { HUGE_NUMBERS = sizeof huge / sizeof *huge, HUGE_SIZES = HUGE_NUMBERS - 3 };

/* Sets the members of OTHER: numbers between those of vectors. */
static void choose_others(uint64_t seed)
{
    static const int64_t first[4] = { 11, 13, 37, 94 }, low[4] = { 10, 12, 34, 66 }, high[4] = { 11, 14, 40, 110 };
    check_random r = { seed };
    for (int k = 0; k < 4; k++)
        classes[OTHER].of[k] = seed == 1 ? first[k] : check_between(&r, low[k], high[k]);
}

static bool is_member(int c, int64_t size)
{
    bool is = false;
    for (size_t k = 0; k < 4; k++)
        is |= classes[c].of[k] == size;
    return is;
}

/* ---- Factors --------------------------------------------------------------------------------------------------------------- */

enum { LISTED = 3 }; /* tensors of a list in which some are empty */
enum kind { DIM, RANK, RUN, ONES, DTYPE, FREE_RANK, FREE_SIZE, FREE_DTYPE, ALIKE, PRESENT, LENGTH, WORD, LAYOUT, CONTENTS, MOOD };
enum ones { NO_ONES, LEADING, TRAILING, BOTH_ENDS, INTERIOR, ONES_LEVELS };
/* The mood of a case: what its tensors hold beside their own contents; from WRONG on, the last element of an index is one of
 * these kinds of wrong index. */
enum mood { PLAIN, SCALED, SPECIAL, EXTREME, WRONG, WRONG_INDICES = 7 };

typedef struct factor {
    enum kind kind;
    uint32_t at, n, room; /* of a name in check_op.names, or an argument; how many levels; and how many it will have */
    int64_t level[LEVELS];
} factor;

/* What became of a pair of levels. */
enum state { OPEN, MET, NO_PAIR, INFEASIBLE, CUT, NOT_MET };

typedef struct planner {
    const check_op *op;
    const check_row *row;
    check_plan *plan;
    check_random r;
    factor f[FACTORS];
    int n;
    check_value words[CHECK_ARGS][LEVELS]; /* an int with a count stands for the size class count - 1 */
    size_t at[FACTORS][FACTORS];           /* of a < b: the pairs of their levels in `state` */
    uint8_t *state;
    size_t npairs;
    uint32_t tries, turn, most;                        /* most: cases */
    uint32_t scaled;                                   /* cases of this mood that were kept */
    uint32_t laid_out[CHECK_ARGS][CHECK_LAYOUT_COUNT]; /* by argument: how many kept cases have this layout, in any form */
    size_t nsolved; /* sizes that the contract accepts, where the search has found them: there are no others */
    int64_t solved[SOLUTIONS][CHECK_NAMES];
    size_t nspecial; /* numbers of the source that are sizes by now: none until all else is met */
    uint32_t reached[SIZES][CLASSES + 1]
                    [CHECK_SPECIALS]; /* how many cases give a size this member of a class, and mask nothing */
    uint32_t like[NAMES];             /* the number of the name whose size this one takes, and 1; 0: its own */
    uint32_t odd; /* of each list, the number of the tensor that is empty, or is not, unlike the others, and 1; 0: none */
    bool odd_is_empty;
    uint32_t vain; /* choices with the most open pairs that no call had, one after the other */
} planner;

/* A class; CLASSES: a number of the source that is in none. NOT: neither. */
static int64_t class_of(const planner *p, int64_t size)
{
    for (int c = 0; c < CLASSES; c++)
        if (is_member(c, size))
            return c;
    for (size_t k = 0; k < p->nspecial; k++)
        if (p->op->special[k] == size)
            return CLASSES;
    for (int c = 0; c < CLASSES; c++)
        if (size >= classes[c].low && size <= classes[c].high)
            return c;
    return NOT;
}

static int64_t of_class(const planner *p, int64_t class, uint32_t turn)
{
    for (size_t k = 0; k < p->nspecial && class == CLASSES; k++)
        if (class_of(p, p->op->special[(turn + k) % p->nspecial]) == CLASSES)
            return p->op->special[(turn + k) % p->nspecial];
    return classes[class < CLASSES ? class : FEW].of[turn % 4];
}

/* Returns the turn, from this one on, whose member of a class the fewest cases give this size; of large classes any. */
static uint32_t rarest(const planner *p, size_t size, int64_t class, uint32_t turn)
{
    const uint32_t members = class == CLASSES ? (uint32_t)p->nspecial : class >= BEFORE_VECTOR && class <= OTHER ? 4 : 0;
    uint32_t best = turn;
    for (uint32_t k = 1; k < members; k++) {
        const uint32_t *const n = p->reached[size][class];
        if (n[(turn + k) % members] < n[best % members] &&
            (class < CLASSES || class_of(p, p->op->special[(turn + k) % members]) == CLASSES))
            best = turn + k;
    }
    return best;
}

/* Cases are made in the first free place of the plan, so that a failing one can be seen. */
static check_case *place(const planner *p) { return &p->plan->cases[p->plan->n]; }

static factor *add(planner *p, enum kind kind, size_t at)
{
    static factor none;
    factor *f = p->n < FACTORS ? &p->f[p->n++] : &none;
    *f = (factor){ .kind = kind, .at = (uint32_t)at };
    return f;
}

static void add_level(factor *f, int64_t level)
{
    for (uint32_t k = 0; k < f->n; k++)
        if (f->level[k] == level)
            return;
    if (f->n < LEVELS)
        f->level[f->n++] = level;
}

static void add_count(planner *p, enum kind kind, size_t at, int64_t low, int64_t high)
{
    factor *f = add(p, kind, at);
    for (int64_t i = low; i <= high; i++)
        add_level(f, i);
}

static void add_classes(planner *p, enum kind kind, size_t at)
{
    factor *f = add(p, kind, at);
    for (int64_t c = 0; c < CLASSES; c++)
        add_level(f, c);
}

/* The dtypes that a row takes for a variable ("f32 bf16" is for the first variable, "T=f32, U=i32 i64" by name). */
static void add_row_dtypes(factor *f, const check_row *row, const char *variable, bool first)
{
    char word[32];
    bool mine = first;
    dv_dtype d;
    for (const char *s = row && row->dtypes ? row->dtypes : ""; *s;) {
        s += strspn(s, " ,");
        const size_t size = strcspn(s, " ,=");
        snprintf(word, sizeof word, "%.*s", (int)size, s);
        s += size;
        if (s[strspn(s, " ")] == '=') {
            mine = !strcmp(word, variable);
            s += strspn(s, " ") + 1;
        } else if (*word && mine && !dv_dtype_parse(word, &d)) {
            add_level(f, dv_dtype_key(d));
        }
    }
}

static void add_dtypes(planner *p, enum kind kind, size_t at, const check_json *variable, bool first)
{
    static const char *const common[] = { "f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128" };
    const check_json *in = check_json_get(variable, "in");
    const char *name = variable ? check_json_text(variable, "name") : "";
    dv_dtype d;
    factor *f = add(p, kind, at);
    add_row_dtypes(f, p->row, name, first);
    for (size_t k = 0; !p->row && in && in->kind == CHECK_NULL && k < p->op->nrows; k++) /* any: then what some row takes */
        add_row_dtypes(f, &p->op->rows[k], name, first);
    for (const check_json *x = f->n || !in ? NULL : in->child; x; x = x->next)
        if (!dv_dtype_parse(x->text, &d))
            add_level(f, dv_dtype_key(d));
    for (size_t k = 0; !f->n && kind == FREE_DTYPE && k < p->op->nrows; k++)
        add_row_dtypes(f, &p->op->rows[k], name, first);
    for (size_t k = 0, none = !f->n; none && k < (p->op->contract ? sizeof common / sizeof *common : 1); k++)
        if (!dv_dtype_parse(common[k], &d))
            add_level(f, dv_dtype_key(d));
}

/* ---- Arguments that are no tensors ---- */

static check_value *new_word(planner *p, factor *f, uint32_t type)
{
    static check_value none;
    check_value *v = f->n < LEVELS ? &p->words[f->at][f->n] : &none;
    add_level(f, f->n);
    *v = (check_value){ .type = type };
    return v;
}

static void add_string(planner *p, factor *f, const char *s)
{
    snprintf(new_word(p, f, DV_VALUE_STRING)->string, CHECK_STRING, "%s", s);
}

/* A kernel may have room for so many letters. */
static const char letters[] = "a_word_of_eighty_letters_for_which_a_kernel_may_have_no_room_in_a_buffer_of_its_own";

/* Words of its own, if it says which; else those of the source, and others. n: how many at most. */
static size_t list_words(const planner *p, size_t slot, const char **out, size_t n)
{
    const check_literals *literals = &p->op->literals[slot];
    size_t words = 0;
    for (size_t k = 0; k < literals->n && words < n; k++)
        if (literals->of[k]->kind == CHECK_TEXT && strlen(literals->of[k]->text) < CHECK_WORD)
            out[words++] = literals->of[k]->text;
    for (size_t k = 0; k < p->op->nwords && !literals->n && words < n; k++)
        out[words++] = p->op->words[k];
    return words;
}

/* Of no string, and of one, two and three; where the source knows words, of these. */
static void add_string_lists(planner *p, factor *f, const dv_slot_info *s)
{
    static const char *const others[] = { "a", "", "bc" };
    const bool fixed = s->fixed_size > 1 && s->fixed_size <= CHECK_LIST;
    const char *words[CHECK_WORDS + 1];
    const size_t known = list_words(p, f->at, words, CHECK_WORDS), n = known ? known : 3;
    for (uint32_t k = 0; k < (known ? 8 : 6); k++) {
        check_value *v = new_word(p, f, DV_VALUE_STRINGS);
        char *to = v->string;
        v->count = fixed ? (uint32_t)s->fixed_size : k % 4;
        for (uint32_t i = 0; i < v->count; i++)
            to += snprintf(to, CHECK_WORD, "%s", known ? words[(k / 4 + k + i) % n] : others[(k / 4 + i) % n]) + 1;
    }
    if (!known && !fixed) {
        check_value *v = new_word(p, f, DV_VALUE_STRINGS);
        v->count = 1;
        snprintf(v->string, CHECK_STRING, "%s", letters);
    }
}

static void add_ints(planner *p, factor *f, const int64_t *numbers, size_t n)
{
    for (size_t k = 0; k < n; k++)
        new_word(p, f, DV_VALUE_INT)->as.i = numbers[k];
}
#define ADD_INTS(p, f, ...) \
    add_ints(p, f, (const int64_t[]){ __VA_ARGS__ }, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

static void add_float(planner *p, factor *f, double x)
{
    for (uint32_t k = 0; k < f->n; k++)
        if (p->words[f->at][k].type == DV_VALUE_FLOAT && !(p->words[f->at][k].as.f < x || p->words[f->at][k].as.f > x))
            return;
    new_word(p, f, DV_VALUE_FLOAT)->as.f = x;
}

/* The numbers that the contract compares with; between two of them, below and above; and others. Never the middle of an interval:
 * at 0.5 a kernel that takes 1 - p for p is right. f32 does not have 1.7: a row in f64 that rounds it to f32 is found. */
static void add_floats(planner *p, factor *f, const check_literals *literals)
{
    static const double others[] = { 0.25, 1, 1.7, 0, -0.5, 16 };
    double at[CHECK_BOUNDS + 1];
    size_t n = 0;
    for (size_t k = 0; k < literals->nbounds; k++) {
        size_t to = n;
        for (; to && at[to - 1] > literals->bounds[k]; to--)
            at[to] = at[to - 1];
        at[to] = literals->bounds[k];
        n++;
    }
    for (size_t k = 0; k < n; k++) {
        add_float(p, f, at[k]);
        for (int i = 1; i < 4 && k + 1 < n; i += 2)
            add_float(p, f, at[k] + (at[k + 1] - at[k]) * i / 4);
    }
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        add_float(p, f, others[k]);
    if (n)
        add_float(p, f, at[0] - 1), add_float(p, f, at[n - 1] + 1);
}

static void add_lists(planner *p, factor *f, const dv_slot_info *s, uint32_t type)
{
    static const int64_t numbers[] = { 0, 1, 2, -1, 1, 0, 3, 2, 4, 1, -1, 8, 5, 3 };
    const bool fixed = s->fixed_size > 1 && s->fixed_size <= CHECK_LIST,
               read = p->op->literals[f->at].read && type == DV_VALUE_INTS;
    const uint32_t n = fixed ? (read ? 1 : 6) : (read ? 5 : 7); /* by the length where the contract ties the numbers */
    for (uint32_t k = 0; k < n; k++) {
        check_value *v = new_word(p, f, type);
        v->count = fixed ? (uint32_t)s->fixed_size : k + 1 == n ? LONG : k % 4;
        for (uint32_t i = 0; i < v->count; i++) {
            const int64_t number = numbers[(2 * k + i) % (sizeof numbers / sizeof *numbers)];
            v->ints[i] = type == DV_VALUE_BOOLS ? (k + i) % 2 : number;
            v->floats[i] = (double)number / 2;
            if (type == DV_VALUE_SCALARS) { /* of each kind */
                v->ints[i] = DV_SCALAR_INT + (k / 2 + i) % 3;
                v->floats[i] = v->ints[i] == DV_SCALAR_FLOAT ? v->floats[i]
                    : v->ints[i] == DV_SCALAR_INT            ? (double)number
                                                             : (double)((k + i) % 2);
            }
        }
    }
}

static void add_words(planner *p, size_t slot)
{
    static const char *const asked[] = { "f32", "f64", "bool", "i32", "bf16" };
    const dv_slot_info *s = &p->op->slots[slot];
    const check_literals *literals = &p->op->literals[slot];
    factor *f = add(p, WORD, slot);
    if (s->default_value.type != DV_VALUE_DEFAULT)
        new_word(p, f, DV_VALUE_DEFAULT);
    if (s->flags & DV_SLOT_OPTIONAL && s->default_value.type != DV_VALUE_NONE)
        new_word(p, f, DV_VALUE_NONE);
    for (size_t k = 0; k < literals->n; k++) {
        bool again = false;
        for (size_t i = 0; i < k; i++)
            again |= literals->of[i]->kind == literals->of[k]->kind && literals->of[i]->i == literals->of[k]->i &&
                !(literals->of[k]->text && strcmp(literals->of[i]->text, literals->of[k]->text));
        if (!again && literals->of[k]->kind == CHECK_TEXT)
            add_string(p, f, literals->of[k]->text);
        else if (!again && (literals->of[k]->i < -1 || literals->of[k]->i > 3))
            new_word(p, f, DV_VALUE_INT)->as.i = literals->of[k]->i;
    }
    switch (s->type) {
    case DV_FIELD_INT:
        ADD_INTS(p, f, 1, 0, 2, -1, 3, huge[0]);
        if (!literals->read || literals->axis) {
            ADD_INTS(p, f, 8, 6);
            break;
        }
        ADD_INTS(p, f, 278, 4, 5); /* perhaps a size; 278 has factors for which a ratio is not exact */
        for (uint32_t c = BEFORE_VECTOR; c <= (literals->sizes ? PAST_32768 : OTHER); c++)
            new_word(p, f, DV_VALUE_INT)->count = 1 + c;
        break;
    case DV_FIELD_FLOAT: add_floats(p, f, literals); break;
    case DV_FIELD_BOOL: new_word(p, f, DV_VALUE_BOOL), new_word(p, f, DV_VALUE_BOOL)->as.b = true; break;
    case DV_FIELD_STRING:
        for (size_t k = 0; k < p->op->nwords && !literals->read; k++)
            add_string(p, f, p->op->words[k]);
        add_string(p, f, "a");
        if (!literals->read) {
            add_string(p, f, "");
            add_string(p, f, letters);
        }
        break;
    case DV_FIELD_STRINGS: add_string_lists(p, f, s); break;
    case DV_FIELD_SCALAR:
        ADD_INTS(p, f, 1, 0, -1, 3), add_float(p, f, 0.25), add_float(p, f, -1.5), add_float(p, f, 3);
        new_word(p, f, DV_VALUE_BOOL)->as.b = true;
        break;
    case DV_FIELD_COMPLEX:
        for (int k = 0; k < 4; k++)
            new_word(p, f, DV_VALUE_COMPLEX)->as.c = (dv_complex){ 1 - k, k % 2 - 0.5 };
        break;
    case DV_FIELD_DTYPE:
        for (size_t k = 0; k < sizeof asked / sizeof *asked; k++)
            dv_dtype_parse(asked[k], &new_word(p, f, DV_VALUE_DTYPE)->as.dtype);
        break;
    case DV_FIELD_DEVICE: new_word(p, f, DV_VALUE_DEVICE)->as.device = (dv_device){ DV_CPU, 0 }; break;
    case DV_FIELD_GENERATOR: new_word(p, f, DV_VALUE_NONE); break;
    case DV_FIELD_INTS: add_lists(p, f, s, DV_VALUE_INTS); break;
    case DV_FIELD_FLOATS: add_lists(p, f, s, DV_VALUE_FLOATS); break;
    case DV_FIELD_BOOLS: add_lists(p, f, s, DV_VALUE_BOOLS); break;
    case DV_FIELD_SCALARS: add_lists(p, f, s, DV_VALUE_SCALARS); break;
    default: { /* rare values: zeros; an empty list fits every element type */
        const dv_field_row *row = dv_field_at(s->type);
        new_word(p, f, row->form == DV_FORM_LIST ? DV_VALUE_INTS : row->value);
    }
    }
}

static bool is_tensor(const check_op *op, size_t slot)
{
    return op->slots[slot].type == DV_FIELD_TENSOR || op->slots[slot].type == DV_FIELD_TENSORS;
}

static bool is_optional(const check_op *op, size_t slot)
{
    return op->slots[slot].flags & (op->slots[slot].type == DV_FIELD_TENSOR ? DV_SLOT_OPTIONAL : DV_SLOT_ELEMENT_OPTIONAL);
}

/* ---- From levels to a case ------------------------------------------------------------------------------------------------- */

/* The level that a case is to have; NOT: there is no such factor. */
static int64_t level(const planner *p, const int *want, enum kind kind, size_t at)
{
    for (int k = 0; k < p->n; k++)
        if (p->f[k].kind == kind && p->f[k].at == at)
            return want[k] < 0 ? NOT : p->f[k].level[want[k]];
    return NOT;
}

static bool is_huge(int64_t number)
{
    for (size_t k = 0; k < HUGE_NUMBERS; k++)
        if (number == huge[k])
            return true;
    return false;
}

/* Numbers that belong to sizes: dims, their neighbours and halves; often the first half is small and the second large, as of a
 * box. */
static void set_list(planner *p, const check_case *c, check_value *v)
{
    for (uint32_t i = 0; i < CHECK_LIST; i++) { /* how many it becomes is the contract's to say */
        const check_name *name = p->op->nnames ? &p->op->names[(p->turn + i) % p->op->nnames] : NULL;
        const int64_t size = !name || name->kind == CHECK_NAME_DTYPE ? 3
            : name->kind == CHECK_NAME_RUN                           ? c->names.runs[name->at].d[i % CHECK_DIMS]
                                                                     : c->names.dims[name->at];
        const int64_t small[] = { 0, 1, 0, -1, 2, 0 }, large[] = { size, size - 1, size / 2, size + 1, 278, size + 7 };
        const uint64_t k = check_next(&p->r) % 6;
        v->ints[i] = p->turn % 3 == 2 ? (k % 2 ? small : large)[k] : (i % 4 < 2 ? small : large)[p->turn % 3 ? k : k % 3];
    }
}

/* Where some tensors of a list are empty, lists of numbers are as long: a contract often ties the two, as scales[len(xs)]. */
static int64_t as_long(const planner *p, size_t slot, int64_t word)
{
    for (int f = 0; f < p->n && p->odd; f++)
        for (uint32_t k = 0; p->f[f].kind == WORD && p->f[f].at == slot && k < p->f[f].n; k++)
            if (p->words[slot][k].count == LISTED)
                return k;
    return word;
}

static void set_arguments(planner *p, const int *want, bool tight, check_case *c)
{
    c->nargs = (uint32_t)p->op->nargs;
    for (size_t i = 0; i < c->nargs; i++) {
        check_value *v = &c->args[i];
        const int64_t word = level(p, want, WORD, i), length = level(p, want, LENGTH, i);
        if (!is_tensor(p->op, i)) {
            if (word >= 0)
                *v = p->words[i][as_long(p, i, word)];
            if (v->type == DV_VALUE_INT && v->count) {
                const int64_t class = (int64_t)v->count - 1;
                const uint32_t member = rarest(p, NAMES + i, class, p->turn + (uint32_t)i);
                v->count = 0;
                v->as.i = of_class(p, class, tight && class <= OTHER ? 0 : member);
            }
            if (v->type == DV_VALUE_INT && v->as.i == huge[0])
                v->as.i = huge[p->turn % (p->op->literals[i].read ? HUGE_SIZES : HUGE_NUMBERS)];
            if (v->type == DV_VALUE_INTS && p->op->literals[i].read)
                set_list(p, c, v);
            continue;
        }
        const uint32_t room = CHECK_TENSORS - c->ntensors;
        v->type = p->op->slots[i].type == DV_FIELD_TENSOR ? DV_VALUE_TENSOR : DV_VALUE_TENSORS;
        v->count = v->type == DV_VALUE_TENSOR ? 1 : p->odd ? LISTED : length < 0 ? 1 : (uint32_t)length;
        v->count = v->count > room ? room : v->count;
        v->first = c->ntensors;
        c->ntensors += v->count;
        for (uint32_t k = 0; k < v->count; k++)
            c->tensors[v->first + k].present = level(p, want, PRESENT, i) != 0 || k % 2;
    }
}

/* A shape of this rank with 1s where they are to be, and one dim of this class. */
static void set_shape(
    planner *p, int64_t rank, int64_t class, int64_t ones, uint32_t turn, uint32_t member, bool tight, int32_t *n, int64_t *d)
{
    int32_t large = -1;
    const bool high = rank > MOST_RANK;
    *n = (int32_t)(rank < 0 ? 2 : rank);
    for (int32_t i = 0; i < CHECK_DIMS; i++)
        d[i] = class == ONE || (high && (i % 6 || class > OTHER)) ? 1 : tight || high ? 2 : of_class(p, FEW, turn + (uint32_t)i);
    for (int32_t i = 0; i < *n; i++) {
        const bool first = i == 0, last = i + 1 == *n;
        const bool one = first ? ones == LEADING || ones == BOTH_ENDS
            : last             ? ones == TRAILING || ones == BOTH_ENDS
                               : ones == INTERIOR;
        if (one && *n > 1)
            d[i] = 1;
        else if (large < 0 || turn % 3)
            large = i;
    }
    if (class >= 0 && class != FEW && class != ONE && large >= 0)
        d[large] = of_class(p, class, tight && class <= OTHER ? 0 : member);
}

/* A predicate such as "n % 8 == 0" of a row: satisfied, since the row would not run otherwise. Of the sides of an "or" one, in
 * turn. */
static void meet_row(const planner *p, check_case *c)
{
    const char *when = p->row && p->row->when ? p->row->when : "";
    const bool all = strchr(when, '(');
    char name[32];
    const check_name *found;
    uint32_t sides = 1, side = 0;
    int of;
    for (const char *s = when; (s = strstr(s, " or ")); s += 4)
        sides++;
    for (const char *s = when; *s; s += strcspn(s, " "), s += strspn(s, " (")) {
        side += !strncmp(s, "or ", 3);
        if ((all || side == p->turn % sides) && sscanf(s, "%31[A-Za-z0-9_] %% %d == 0", name, &of) == 2 && of > 0 &&
            (found = check_op_name(p->op, CHECK_NAME_DIM, name)))
            c->names.dims[found->at] = (c->names.dims[found->at] + of - 1) / of * of;
    }
}

static void set_names(planner *p, const int *want, bool tight, check_case *c)
{
    for (size_t k = 0; k < p->op->nnames; k++) {
        const check_name *name = &p->op->names[k];
        const uint32_t turn = p->turn + (uint32_t)k;
        const int64_t class = level(p, want, name->kind == CHECK_NAME_RUN ? RUN : DIM, k), d = level(p, want, DTYPE, k);
        const uint32_t member = rarest(p, k, class, turn);
        if (name->kind == CHECK_NAME_DTYPE && d >= 0)
            c->names.dtypes[name->at] = dv_dtype_from_key((uint32_t)d);
        else if (name->kind == CHECK_NAME_RUN)
            set_shape(p, level(p, want, RANK, k), class, level(p, want, ONES, k), turn, member, tight, &c->names.runs[name->at].n,
                c->names.runs[name->at].d);
        else if (name->kind == CHECK_NAME_DIM)
            c->names.dims[name->at] = of_class(p, class < 0 ? FEW : class, tight && class <= OTHER ? 0 : member);
    }
    for (size_t k = 0; k < p->op->nnames; k++)
        if (p->like[k])
            c->names.dims[p->op->names[k].at] = c->names.dims[p->op->names[p->like[k] - 1].at];
    if (p->nsolved)
        memcpy(c->names.dims, p->solved[p->turn % p->nsolved], sizeof c->names.dims);
    meet_row(p, c);
}

/* In every second case the tensors of a list have different dtypes. */
static dv_dtype free_dtype(const planner *p, const int *want, size_t slot, size_t element)
{
    for (int k = 0; k < p->n; k++)
        if (p->f[k].kind == FREE_DTYPE && p->f[k].at == slot && want[k] >= 0)
            return dv_dtype_from_key((uint32_t)p->f[k].level[((size_t)want[k] + (p->turn % 2 ? element : 0)) % p->f[k].n]);
    return dv_dtype_from_key(DV_DTYPE_f32);
}

/* Shapes and dtypes of what no name decides. */
static void set_free(planner *p, const int *want, bool tight, check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_tensor_argument(c, i), element = i - c->args[slot].first;
        const bool mixed = p->odd && c->args[slot].type == DV_VALUE_TENSORS;
        const bool empty = mixed && (p->odd == element + 1) == p->odd_is_empty;
        const int64_t rank = level(p, want, FREE_RANK, slot), class = level(p, want, FREE_SIZE, slot);
        t->dtype = free_dtype(p, want, slot, element);
        set_shape(p, mixed && rank == 0 ? 1 : rank, mixed ? FEW : class, NO_ONES, p->turn + (uint32_t)(slot + element),
            p->turn + (uint32_t)(slot + element), tight, &t->ndim, t->shape);
        for (int32_t d = 0; d < CHECK_DIMS && empty; d++) /* the names of a pattern decide the others, as in xs{i}[*a n{i} *b] */
            t->shape[d] = 0;
        if (i && !p->odd && level(p, want, ALIKE, 0) == 1) {
            t->ndim = c->tensors[0].ndim;
            t->dtype = p->op->contract ? t->dtype : c->tensors[0].dtype;
            memcpy(t->shape, c->tensors[0].shape, sizeof t->shape);
        }
    }
}

/* ---- Contents ---- */

static bool is_index(const check_tensor *t) { return check_is_integer(t->dtype) && dv_dtype_key(t->dtype) != DV_DTYPE_bool; }

/* Does a result or a written argument have this dtype? Then such numbers are not only indices. */
static bool is_written(const planner *p, const check_case *c, dv_dtype dtype)
{
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++)
        if (specs[r].ndim >= 0 && dv_dtype_key(specs[r].dtype) == dv_dtype_key(dtype))
            return true;
    for (size_t i = 0; i < c->ntensors; i++)
        if (p->op->slots[check_tensor_argument(c, i)].flags & DV_SLOT_WRITES &&
            dv_dtype_key(c->tensors[i].dtype) == dv_dtype_key(dtype))
            return true;
    return false;
}

/* If these are indices, all but the last are valid: the last one is a wrong index of this kind. If all sizes are 1, the kinds
 * include the first index past the end and the first before the start. */
static void set_last(planner *p, const check_case *c, int64_t kind, check_tensor *t)
{
    const int bits = t->dtype.bits - (t->dtype.code != 1);
    const int64_t most = bits >= 63 ? INT64_MAX >> 1 : (INT64_C(1) << bits) - 1;
    int64_t sizes[64] = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int32_t d = 0; d < c->tensors[i].ndim && c->tensors[i].present && n < 64; d++)
            sizes[n++] = c->tensors[i].shape[d];
    const int64_t size = sizes[n ? p->turn % n : 0], low = t->dtype.code == 1 ? 0 : -most;
    const int64_t kinds[WRONG_INDICES] = { -size - 1, 1000, -1000, size, -1, INT64_MAX, INT64_MIN };
    const int64_t last = kinds[kind];
    t->fill = CHECK_LAST;
    t->low = last > 0 ? 0 : (double)(last < low ? low : last);
    t->high = last < 0 ? 0 : (double)(last > most ? most : last);
}

/* Integers: small ones, which are indices mostly; negative; large; the extremes of their type; all the extreme whose products and
 * sums are largest, or neighbours that are. Others: spread around 0, positive
 * (so that a sum does not cancel), wider (every second time multiples of 1/2, every fourth as many in each binade). */
static void set_contents(const planner *p, const check_case *c, int64_t kind, check_tensor *t)
{
    static const struct {
        double low, high;
    } of[2][4] = { { { -2, 2 }, { 0.25, 2 }, { -20, 20 }, { -2, 2 } }, { { 0, 1 }, { 0, 3 }, { -9, 3 }, { -5, 100 } } };
    const bool integer = check_is_integer(t->dtype);
    t->fill = CHECK_RANDOM;
    t->low = of[integer][kind % 4].low;
    t->high = of[integer][kind % 4].high;
    if (dv_dtype_key(t->dtype) == DV_DTYPE_bool) {
        t->low = kind == 2;
        t->high = kind != 1;
        t->fill = kind == 2 && p->turn % 2 ? CHECK_COUNTED : CHECK_RANDOM;
    } else if (!integer && kind % 4 == 2 && p->turn % 2) {
        t->fill = CHECK_HALVES;
        t->high = p->turn % 4 == 3 ? 2 : t->high; /* many are equal, also zeros of both signs */
        t->low = -t->high;
    } else if (!integer && kind % 4 == 2 && p->turn % 4 == 2) {
        t->fill = CHECK_BINADES;
        t->high = 128;
        t->low = -t->high;
    } else if (integer && kind >= 4 && (t->dtype.bits < 64 || is_written(p, c, t->dtype))) {
        t->fill = kind == 4 ? CHECK_EXTREMES : CHECK_RANDOM;
        t->low = t->dtype.code == 1 ? 0 : -(double)(UINT64_C(1) << (t->dtype.bits - 1));
        t->high = (t->dtype.code == 1 ? 2.0 : 1.0) * (double)(UINT64_C(1) << (t->dtype.bits - 1)) - 1;
        if (kind == 5 && p->turn % 2 && t->dtype.bits >= 32) { /* a float or a double takes several of them for one */
            t->low = t->dtype.bits == 32 ? 0x1p30 : 0x1p58;
            t->high = t->low + 64;
        } else if (kind == 5) { /* of 8 bits also odd ones: sums of powers of two are exact in a float */
            const double apart = t->dtype.bits == 8 && p->turn % 2 ? 7 : 0;
            *(t->dtype.code == 1 ? &t->low : &t->high) = t->dtype.code == 1 ? t->high - apart : t->low + apart;
        }
    }
    if (t->dtype.code == 1 && t->low < 0)
        t->low = 0;
}

/* Far from zero and close together, where a variance cancels, and below what a maximum may begin with; where exp() overflows or
 * underflows; where the square of an f16 does; as many in each binade, of both signs; small but for the last; narrow types whose
 * squares f32 still holds: below what is normal. Never all near zero else: for a division by small numbers the tolerance, which
 * depends on the inputs, is too narrow. */
static void set_scale(const planner *p, size_t tensor, check_tensor *t)
{
    static const double middles[] = { -10500, 0, 300, -300, 0, 0, 0 }, widest[] = { 0x1p10, 0x1p7, 0x1p14, 0x1p17 };
    enum { ALL = sizeof middles / sizeof *middles, CLOSE = 0, WIDE = 1, LAST = 5, TINY, LONG_ROW = 64 };
    const double least = check_is_float(t->dtype) ? -check_largest(t->dtype) / 2 : middles[CLOSE];
    const size_t turn = p->scaled;
    size_t k = (turn + tensor * (1 + turn / ALL)) % ALL;
    const dv_dtype_row *row = dv_dtype_find(t->dtype);
    const double around = k == CLOSE ? 2 : 20;
    if (turn % 2 && check_numel(t) > LONG_ROW) /* behind the end of all whole blocks, too */
        k = LAST;
    else if (turn % 4 == 2 && check_numel(t) > LONG_ROW)
        k = WIDE;
    t->fill = k == LAST ? CHECK_LAST : CHECK_RANDOM;
    const double middle = fmax(middles[k], least);
    t->low = k == LAST ? -2 : middle - around;
    t->high = k == LAST ? (turn & 2 ? 300 : 1000) : middle + around;
    if (k == WIDE) {
        const double most = fmin(widest[turn / 4 % 4], -least);
        t->fill = CHECK_BINADES;
        t->low = -most;
        t->high = most;
    }
    if (k == TINY && check_is_float(t->dtype) && t->dtype.bits <= 16 && row->bias < 64) {
        t->high = ldexp(1, 1 - row->bias);
        t->low = -t->high;
    }
}

/* Numbers that facts bound, as indices are by a size: evenly over all that are allowed, with both ends and where narrow types
 * end. */
static void set_spread(dv_range fact, check_tensor *t)
{
    const double most = ldexp(1, t->dtype.bits - (t->dtype.code != 1)) - 1;
    t->fill = CHECK_SPREAD;
    t->low = fact.least == INT64_MIN ? t->low : (double)fact.least;
    t->high = fmin((double)fact.most, most);
}

/* Sets contents that sorted(x) allows. Integers rise from the lower to the upper bound of the facts; real numbers rise with or
 * without equal neighbours. A wrong index that is the largest number remains the last element. */
static void set_sorted(const planner *p, dv_range fact, check_tensor *t)
{
    if (!check_is_integer(t->dtype)) {
        t->fill = p->turn % 2 ? CHECK_RISING : CHECK_ASCENDING;
        return;
    }
    if (t->fill == CHECK_LAST && t->high > 0)
        return;
    t->fill = CHECK_OFFSETS;
    t->low = fact.least > INT32_MIN ? (double)fact.least : fmin(t->low, t->high);
    t->high = fact.most < INT32_MAX ? (double)fact.most : fmax(t->low, t->high);
}

/* No multiples of 1/2 beside an argument that has one number many times: sums of products would be equal before they are rounded
 * and not after, so their order, as an index, would be that of the additions. */
static void set_apart(check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        for (size_t k = 0; k < c->ntensors; k++)
            if (k != i && c->tensors[i].present && !check_is_integer(c->tensors[i].dtype) &&
                c->tensors[i].layout == CHECK_EXPANDED && c->tensors[k].fill == CHECK_HALVES)
                c->tensors[k].fill = CHECK_RANDOM;
}

static void set_tensors(planner *p, const int *want, const dv_range *facts, bool spread, check_case *c)
{
    const int64_t mood = level(p, want, MOOD, 0);
    size_t indices = 0, index = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        indices += c->tensors[i].present && is_index(&c->tensors[i]);
    c->seed = mood == EXTREME;
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        const size_t slot = check_tensor_argument(c, i), element = i - c->args[slot].first;
        const int64_t layout = level(p, want, LAYOUT, slot), contents = level(p, want, CONTENTS, slot);
        t->layout = layout <= 0 ? CHECK_CONTIGUOUS : (uint8_t)((layout + (int64_t)element) % CHECK_FAR);
        if (p->op->slots[slot].flags & DV_SLOT_WRITES && t->layout == CHECK_EXPANDED)
            t->layout = CHECK_SLICED;
        t->form = (uint8_t)(t->layout ? p->laid_out[slot][t->layout] % CHECK_FORMS : 0);
        set_contents(p, c, contents < 0 ? 0 : contents, t);
        if (contents == 1 && p->turn % 2 && is_index(t))
            check_index_below_size(c, i, p->turn / 2, t);
        if (!check_is_integer(t->dtype) && mood == SCALED)
            set_scale(p, i, t);
        if (!check_is_integer(t->dtype) && (mood == SPECIAL || mood == EXTREME) &&
            (p->turn % 2 || i == p->turn / 2 % c->ntensors))
            t->fill = CHECK_SPECIAL;
        if (spread && contents == 2 && is_index(t) && p->op->contract && facts[i].most < INT64_MAX &&
            facts[i].least <= facts[i].most)
            set_spread(facts[i], t);
        if (t->present && is_index(t) && index++ == p->turn % indices && mood >= WRONG)
            set_last(p, c, mood - WRONG, t);
        if (p->op->sorted[slot])
            set_sorted(p, facts[i], t);
        if (p->op->contract)
            check_narrow(t, facts[i]);
    }
    set_apart(c);
}

double check_work(const check_op *op, const check_case *c)
{
    double dims = 1, most = 1;
    for (size_t k = 0; k < op->nnames; k++) {
        const check_name *name = &op->names[k];
        const check_shape *run = &c->names.runs[name->at];
        double n = 1;
        for (int32_t d = 0; name->kind == CHECK_NAME_RUN && c->names.bound[k] && d < run->n; d++)
            n *= (double)run->d[d];
        if (name->kind == CHECK_NAME_DIM && c->names.bound[k])
            dims *= (double)c->names.dims[name->at];
        most = n > most ? n : most;
    }
    return dims * most;
}

double check_work_with_numbers(const check_op *op, const check_case *c)
{
    double work = check_work(op, c);
    for (size_t i = 0; i < c->nargs; i++)
        work *= c->args[i].type == DV_VALUE_INT && c->args[i].as.i > 1 ? (double)c->args[i].as.i : 1;
    return work;
}

/* A case with these levels, as far as it can have them; the names of factors a and b come first. tight: all else is small. */
static enum check_verdict make(planner *p, const int *want, int a, int b, bool tight, check_case *c)
{
    dv_range facts[CHECK_TENSORS];
    check_order order = { 0 };
    check_plan_goes_on();
    memset(c, 0, sizeof *c);
    c->number = p->turn;
    set_names(p, want, tight, c);
    set_arguments(p, want, tight, c);
    set_free(p, want, tight, c);
    for (int k = 0; k < 2; k++) {
        const int of = k ? b : a;
        if (of >= 0 && p->f[of].kind <= ONES)
            order.names[k] = &p->op->names[p->f[of].at];
        order.numbers |= of >= 0 && p->f[of].kind == WORD;
    }
    if (!check_fit_in_order(p->op, c, &order, facts))
        return CHECK_REFUSED;
    enum check_verdict is = CHECK_TOO_LARGE;
    if (check_work(p->op, c) <= WORK * (double)check_most_elements) {
        set_tensors(p, want, facts, true, c);
        is = check_judge(p->op, c);
    }
    if (is == CHECK_TOO_LARGE && (!p->plan->too_large || check_case_largest(c) < p->plan->too_large))
        p->plan->too_large = check_case_largest(c);
    if (is == CHECK_UNFIT) { /* another fact forbids large numbers */
        set_tensors(p, want, facts, false, c);
        is = check_judge(p->op, c);
    }
    if (is == CHECK_REFUSED && !p->plan->has_stray && check_is_stray(p->op, c)) {
        p->plan->has_stray = true;
        p->plan->stray = *c;
        p->plan->stray.broken = true;
    }
    return is;
}

/* ---- From a case to its levels --------------------------------------------------------------------------------------------- */

static int64_t class_of_shape(const planner *p, int32_t n, const int64_t *d)
{
    int64_t most = n ? 1 : NOT;
    bool empty = false;
    for (int32_t i = 0; i < n; i++) {
        most = d[i] > most ? d[i] : most;
        empty |= !d[i];
    }
    return empty ? NOUGHT : most < 0 ? NOT : class_of(p, most);
}

static int64_t ones_of(int32_t n, const int64_t *d)
{
    bool inner = false, all = true;
    for (int32_t i = 0; i < n; i++) {
        inner |= i && i + 1 < n && d[i] == 1;
        all &= d[i] == 1;
    }
    if (n < 2 || all)
        return NOT;
    return d[0] == 1 ? d[n - 1] == 1 ? BOTH_ENDS : LEADING : d[n - 1] == 1 ? TRAILING : inner ? INTERIOR : NO_ONES;
}

static bool same_word(const check_value *a, const check_value *b, bool read)
{
    return (read && a->type == DV_VALUE_INTS && b->type == DV_VALUE_INTS && a->count == b->count) || !memcmp(a, b, sizeof *a) ||
        (a->type == DV_VALUE_INT && b->type == DV_VALUE_INT && a->as.i == huge[0] && is_huge(b->as.i));
}

static int64_t found_level(const planner *p, const int *want, int k, const check_case *c)
{
    const factor *f = &p->f[k];
    const check_name *name = &p->op->names[f->kind <= DTYPE ? f->at : 0];
    const check_value *v = &c->args[f->kind > DTYPE ? f->at : 0];
    const bool of_tensor = f->kind >= FREE_RANK && f->kind != ALIKE && f->kind != WORD && f->kind != MOOD;
    const check_tensor *t = &c->tensors[of_tensor ? v->first : 0];
    const bool there = of_tensor && v->count && t->present;
    if (f->kind <= DTYPE && !c->names.bound[f->at])
        return NOT;
    if (of_tensor && !there && f->kind != PRESENT && f->kind != LENGTH)
        return NOT;
    switch (f->kind) {
    case DIM: return class_of(p, c->names.dims[name->at]);
    case RANK: return c->names.runs[name->at].n;
    case RUN: return class_of_shape(p, c->names.runs[name->at].n, c->names.runs[name->at].d);
    case ONES: return ones_of(c->names.runs[name->at].n, c->names.runs[name->at].d);
    case DTYPE: return dv_dtype_key(c->names.dtypes[name->at]);
    case FREE_RANK: return t->ndim;
    case FREE_SIZE: return class_of_shape(p, t->ndim, t->shape);
    case FREE_DTYPE: return dv_dtype_key(t->dtype);
    case PRESENT: return v->count ? t->present : NOT;
    case LENGTH: return v->count;
    case WORD:
        for (uint32_t l = 0; l < f->n; l++)
            if (p->words[f->at][l].type == DV_VALUE_INT && p->words[f->at][l].count
                    ? v->type == DV_VALUE_INT && class_of(p, v->as.i) + 1 == p->words[f->at][l].count
                    : same_word(&p->words[f->at][l], v, p->op->literals[f->at].read))
                return l;
        return NOT;
    case LAYOUT: return t->layout;
    default: return want[k] < 0 ? NOT : f->level[want[k]];
    }
}

/* The number of a factor's level; NOT: it has no such level. */
static int level_of(const planner *p, int k, int64_t level)
{
    int at = NOT;
    for (uint32_t l = 0; l < p->f[k].n; l++)
        at = p->f[k].level[l] == level ? (int)l : at;
    return at;
}

static void find_levels(const planner *p, const int *want, const check_case *c, int *found)
{
    for (int k = 0; k < p->n; k++) {
        const int64_t is = found_level(p, want, k, c);
        found[k] = is >= 0 ? level_of(p, k, is) : NOT;
    }
}

/* Is a tensor or the result empty? */
static bool is_empty(const planner *p, const check_case *c)
{
    static dv_result_spec specs[CHECK_RESULTS];
    static check_values v;
    bool empty = false, any = false, all = true;
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    const size_t n = dv_infer(p->op->op, v.values, c->nargs, specs, p->op->nresults) ? 0 : p->op->nresults;
    for (size_t r = 0; r < n; r++) {
        bool none = false;
        for (int32_t d = 0; d < specs[r].ndim; d++)
            none |= !specs[r].shape[d];
        any |= specs[r].ndim >= 0;
        all &= specs[r].ndim < 0 || none;
    }
    for (size_t i = 0; i < c->ntensors; i++)
        empty |= c->tensors[i].present && !check_numel(&c->tensors[i]);
    return empty || (any && all);
}

static bool is_size(enum kind kind) { return kind == DIM || kind == RUN || kind == FREE_SIZE; }

/* Returns the size class that a level stands for; NOT: the level is no size class. */
static int64_t class_at(const planner *p, int k, int l)
{
    const factor *f = &p->f[k];
    if (l < 0 || (f->kind != WORD && !is_size(f->kind)))
        return NOT;
    if (f->kind == WORD)
        return p->words[f->at][l].type == DV_VALUE_INT ? (int64_t)p->words[f->at][l].count - 1 : NOT;
    return f->level[l];
}

/* True if level l of factor k is an int argument of 0 that determines the shape of a result. */
static bool is_zero_size(const planner *p, int k, int l)
{
    const factor *f = &p->f[k];
    const check_value *v = f->kind == WORD && l >= 0 ? &p->words[f->at][l] : NULL;
    return v && p->op->literals[f->at].sizes && v->type == DV_VALUE_INT && !v->as.i && !v->count;
}

/* Does it keep a kernel from computing what it otherwise would? */
static bool masks(const planner *p, int k, int l)
{
    const int64_t is = l < 0 ? 0 : p->f[k].level[l];
    switch (p->f[k].kind) {
    case DIM:
    case RUN:
    case FREE_SIZE: return l >= 0 && is == NOUGHT;
    case WORD: return l >= 0 && p->words[p->f[k].at][l].type == DV_VALUE_INT && is_huge(p->words[p->f[k].at][l].as.i);
    case MOOD: return is != PLAIN;
    case CONTENTS: return is >= 3; /* indices that may be wrong */
    default: return false;
    }
}

/* ---- Pairs ----------------------------------------------------------------------------------------------------------------- */

static uint8_t *pair(const planner *p, int a, int la, int b, int lb)
{
    if (a > b)
        return pair(p, b, lb, a, la);
    return &p->state[p->at[a][b] + (size_t)la * p->f[b].room + (size_t)lb];
}

/* A wrong index is as wrong in any layout; of sizes a few are enough. */
static bool matters_to_wrong_index(const planner *p, int k, int l)
{
    const int64_t class = class_at(p, k, l);
    return p->f[k].kind != LAYOUT && p->f[k].kind != ONES && (class < 0 || class == ONE || class == FEW || class == OTHER);
}

/* Levels that exclude each other by what they are, or that are not tried together. */
static bool is_pair(const planner *p, int a, int la, int b, int lb)
{
    const factor *f = &p->f[a], *g = &p->f[b];
    const int64_t is = f->level[la], other = g->level[lb];
    const bool of_name = f->kind <= ONES && g->kind <= ONES, of_tensor = f->kind >= FREE_RANK && g->kind >= FREE_RANK;
    if ((g->kind == MOOD && other >= WRONG && !matters_to_wrong_index(p, a, la)) ||
        (f->kind == MOOD && is >= WRONG && !matters_to_wrong_index(p, b, lb)))
        return false;
    if (f->at != g->at || (!of_name && !of_tensor) || f->kind == ALIKE || g->kind == ALIKE || f->kind == MOOD || g->kind == MOOD)
        return true;
    if ((f->kind == PRESENT || f->kind == LENGTH) && !is)
        return false;
    if ((g->kind == PRESENT || g->kind == LENGTH) && !other)
        return false;
    if ((f->kind == RANK && g->kind == RUN) || (f->kind == FREE_RANK && g->kind == FREE_SIZE))
        return is > 0 && (is <= MOST_RANK || (other != PAST_4096 && other != PAST_32768));
    if (f->kind == RANK && g->kind == ONES)
        return is >= 2 && is <= MOST_RANK && (other != INTERIOR || is >= 3); /* of a high rank most are 1 */
    if (f->kind == RUN && g->kind == ONES)
        return is != ONE;
    return true;
}

/* True if the last level of a factor, and so most of its levels, is a size class. */
static bool has_classes(const planner *p, int k) { return class_at(p, k, (int)p->f[k].n - 1) >= 0 && p->f[k].n < LEVELS; }

static bool lay_out(planner *p)
{
    for (int k = 0; k < p->n; k++) /* the last level of a size: numbers of the source, which come when all else is met */
        p->f[k].room = p->f[k].n + (has_classes(p, k) && p->op->nspecial);
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++) {
            p->at[a][b] = p->npairs;
            p->npairs += (size_t)p->f[a].room * p->f[b].room;
        }
    p->state = calloc(p->npairs + 1, 1);
    return p->state;
}

static void exclude_pairs(planner *p)
{
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++)
            for (int la = 0; la < (int)p->f[a].n; la++)
                for (int lb = 0; lb < (int)p->f[b].n; lb++)
                    if (!is_pair(p, a, la, b, lb))
                        *pair(p, a, la, b, lb) = NO_PAIR;
}

/* Mark the pairs that a case meets; how many are new. Only count: without marking them. A case that is empty because of something
 * that is not a factor, such as the distance of two numbers, meets none. */
static uint32_t meet(planner *p, const int *found, bool only_count)
{
    bool masked[FACTORS], nought = false;
    int nmasked = 0, ncontents = 0;
    uint32_t n = 0;
    for (int k = 0; k < p->n; k++) {
        nmasked += masked[k] = masks(p, k, found[k]);
        ncontents += masked[k] && p->f[k].kind == CONTENTS;
        nought |= masked[k] && is_size(p->f[k].kind);
    }
    const bool empty = !nought && is_empty(p, place(p));
    for (int k = 0; k < p->n && empty; k++)
        if (!masked[k] && is_zero_size(p, k, found[k])) {
            masked[k] = nought = true;
            nmasked++;
        }
    if (empty && !nought)
        return 0;
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++) {
            const bool contents = p->f[a].kind == CONTENTS && p->f[b].kind == CONTENTS;
            if (found[a] < 0 || found[b] < 0 || (contents && nmasked > ncontents) ||
                (nmasked && !(masked[a] && masked[b]) && !(nmasked == 1 && (masked[a] || masked[b]))))
                continue;
            uint8_t *of = pair(p, a, found[a], b, found[b]);
            if (*of != MET && *of != NO_PAIR) {
                n++;
                *of = only_count ? *of : MET;
            }
        }
    return n;
}

/* ---- Proofs ---------------------------------------------------------------------------------------------------------------- */

/* Of a name or an argument. */
typedef struct wish {
    enum dv_partial_of of;
    size_t index;
    dv_known is;
} wish;

static dv_range between(int64_t low, int64_t high) { return (dv_range){ low, high, 1, 0 }; }

/* Way i in which a size is of a class; false: there are no more. All members, or the range that they lie in. */
static bool size_in(const planner *p, int64_t class, int i, dv_range *out)
{
    const bool range = class < CLASSES && classes[class].high > classes[class].low;
    const int64_t member = range ? 0 : of_class(p, class, (uint32_t)i);
    if (class == CLASSES ? i >= (int)p->nspecial : i > 3 || (i && (range || member == classes[class].of[0])))
        return false;
    *out = range ? between(classes[class].low, classes[class].high) : between(member, member);
    return true;
}

/* Way i in which a shape has this rank, class or 1s. */
static bool shape_with(const planner *p, enum kind kind, int64_t is, int i, dv_known *k)
{
    if (kind == RANK || kind == FREE_RANK) {
        k->value = between(is, is);
        return !i;
    }
    for (int32_t n = kind == ONES ? 2 : 1; n <= HIGH_RANK; n = n == MOST_RANK ? HIGH_RANK : n + 1) {
        k->value = between(n, n);
        if (kind == ONES && is != INTERIOR && !i--) {
            if (is == LEADING || is == BOTH_ENDS)
                k->sizes[0] = between(1, 1);
            if (is == TRAILING || is == BOTH_ENDS)
                k->sizes[n - 1] = between(1, 1);
            return true;
        }
        for (int32_t d = 0; kind != ONES && d<n; d += n> MOST_RANK ? n - 1 : 1) /* inside it is as inside a smaller one */
            for (int j = 0; size_in(p, is, j, &k->sizes[d]); j++)
                if (!i--)
                    return true;
                else
                    k->sizes[d] = dv_unknown().sizes[d];
        for (int32_t d = 1; kind == ONES && is == INTERIOR && d + 1 < n; d++)
            if (!i--) {
                k->sizes[d] = between(1, 1);
                return true;
            }
    }
    return false;
}

/* Way i in which a call has a level; false: no more, or (*said false) core cannot be asked. */
static bool way(const planner *p, int a, int la, int i, wish *w, bool *said)
{
    const factor *f = &p->f[a];
    const int64_t is = f->level[la];
    const bool of_name = f->kind <= DTYPE;
    *w = (wish){ of_name ? DV_PARTIAL_NAME : DV_PARTIAL_ARGUMENT, of_name ? p->op->names[f->at].index : f->at, dv_unknown() };
    *said = true;
    switch (f->kind) {
    case DIM: return size_in(p, is, i, &w->is.value);
    case RANK:
    case RUN:
    case ONES: return shape_with(p, f->kind, is, i, &w->is);
    case FREE_RANK:
    case FREE_SIZE: *said = p->op->slots[f->at].type == DV_FIELD_TENSOR; return shape_with(p, f->kind, is, i, &w->is);
    case DTYPE: w->is.dtype = dv_dtype_from_key((uint32_t)is); return !i;
    case FREE_DTYPE:
        *said = p->op->slots[f->at].type == DV_FIELD_TENSOR;
        w->is.dtype = dv_dtype_from_key((uint32_t)is);
        return !i;
    case PRESENT:
        *said = p->op->slots[f->at].type == DV_FIELD_TENSOR;
        w->is.present = between(is, is);
        return !i;
    case LENGTH: w->is.value = between(is, is); return !i;
    case WORD: {
        const check_value v = check_default_of(p->op, f->at, &p->words[f->at][is]);
        if (class_at(p, a, la) >= 0)
            return size_in(p, class_at(p, a, la), i, &w->is.value);
        *said = p->op->literals[f->at].read && (v.type == DV_VALUE_INT || v.type == DV_VALUE_BOOL || v.type == DV_VALUE_STRING);
        if (v.type == DV_VALUE_INT && v.as.i == huge[0]) {
            w->is.value = between(huge[i % HUGE_NUMBERS], huge[i % HUGE_NUMBERS]);
            return i < HUGE_NUMBERS;
        }
        w->is.value = v.type == DV_VALUE_STRING ? w->is.value
            : v.type == DV_VALUE_BOOL           ? between(v.as.b, v.as.b)
                                                : between(v.as.i, v.as.i);
        if (v.type == DV_VALUE_STRING)
            w->is.string = dv_from_string(p->words[f->at][is].type == DV_VALUE_DEFAULT
                    ? p->op->slots[f->at].default_value.as.s.data
                    : p->words[f->at][is].string)
                               .as.s;
        return !i;
    }
    default: *said = false; return false;
    }
}

/* No call that is still possible is so. */
static bool excludes(dv_partial *calls, const wish *w) { return dv_partial_set(calls, w->of, w->index, 0, &w->is); }

/* Does core prove that no call has both? b NOT: that none has the first. */
static bool is_refuted(const planner *p, int a, int la, int b, int lb)
{
    wish one, two;
    dv_partial *calls = NULL;
    bool said = true, refuted = p->op->contract;
    for (int i = 0; refuted && way(p, a, la, i, &one, &said) && said; i++) {
        calls = calls ? calls : check_unknown(p->op, 0, NULL);
        if (!calls || excludes(calls, &one)) {
            refuted = calls;
            continue;
        }
        refuted = b >= 0;
        for (int k = 0; refuted && way(p, b, lb, k, &two, &said) && said; k++)
            refuted = excludes(calls, &two);
        refuted &= said;
        dv_partial_free(calls);
        calls = NULL;
    }
    dv_partial_free(calls);
    return refuted && said;
}

/* ---- The array ------------------------------------------------------------------------------------------------------------- */

static void reach(planner *p, size_t size, int64_t is)
{
    for (int c = BEFORE_VECTOR; c < CLASSES; c++)
        for (int k = 0; k < 4; k++)
            p->reached[size][c][k] += classes[c].of[k] == is;
    for (size_t k = 0; k < p->nspecial; k++)
        p->reached[size][CLASSES][k] += p->op->special[k] == is;
}

/* The case meets these new pairs. */
static void keep(planner *p, const int *want, uint32_t met)
{
    const check_case *c = place(p);
    bool masked = is_empty(p, c);
    for (int k = 0; k < p->n; k++)
        masked |= want[k] >= 0 && masks(p, k, want[k]);
    for (size_t k = 0; k < p->op->nnames && !masked; k++) {
        const check_name *name = &p->op->names[k];
        for (int32_t d = 0; name->kind == CHECK_NAME_RUN && c->names.bound[k] && d < c->names.runs[name->at].n; d++)
            reach(p, k, c->names.runs[name->at].d[d]);
        if (name->kind == CHECK_NAME_DIM && c->names.bound[k])
            reach(p, k, c->names.dims[name->at]);
    }
    for (size_t i = 0; i < c->nargs && !masked; i++)
        if (c->args[i].type == DV_VALUE_INT)
            reach(p, NAMES + i, c->args[i].as.i);
    for (size_t i = 0; i < c->ntensors; i++)
        p->laid_out[check_tensor_argument(c, i)][c->tensors[i].layout] += c->tensors[i].present &&
            check_has_forms(&c->tensors[i]);
    p->plan->met[p->plan->n++] = met;
    p->scaled += level(p, want, MOOD, 0) == SCALED;
}

static bool is_large(const planner *p, int k, int l)
{
    const int64_t class = class_at(p, k, l);
    return class >= 0 && of_class(p, class, 0) > 1000;
}

/* Many tensors are wished for where they are the level to be met. */
static bool is_long(const planner *p, int k, int l) { return l >= 0 && p->f[k].kind == LENGTH && p->f[k].level[l] == LONG; }

/* In every third case variables have the same dtype, and in every fourth runs the same rank, where that can be: a kernel may have
 * a way of its own for it. */
static void make_alike(const planner *p, int a, int b, int *want)
{
    static const enum kind kinds[] = { DTYPE, RANK };
    for (uint32_t i = 0; i < 2; i++) {
        int like = a >= 0 && p->f[a].kind == kinds[i] ? a : b >= 0 && p->f[b].kind == kinds[i] ? b : NOT;
        for (int k = 0; k < p->n && p->turn % (3 + i) == 0; k++) {
            if (p->f[k].kind != kinds[i])
                continue;
            like = like < 0 ? k : like;
            for (uint32_t l = 0; l < p->f[k].n && k != a && k != b; l++)
                want[k] = p->f[k].level[l] == p->f[like].level[want[like]] ? (int)l : want[k];
        }
    }
}

/* Levels for all factors but a and b: those with the most pairs that are still open. */
static void choose(planner *p, int a, int b, int *want, bool random)
{
    int order[FACTORS];
    const bool large = (a >= 0 && is_large(p, a, want[a])) || (b >= 0 && is_large(p, b, want[b]));
    const bool masked = (a >= 0 && masks(p, a, want[a])) || (b >= 0 && masks(p, b, want[b]));
    const bool both = masked && masks(p, a, want[a]) && masks(p, b, want[b]);
    const bool contents = both && p->f[a].kind == CONTENTS && p->f[b].kind == CONTENTS;
    for (int k = 0; k < p->n; k++) {
        const int other = (int)(check_next(&p->r) % (uint64_t)(k + 1));
        order[k] = order[other];
        order[other] = k;
        want[k] = k == a || k == b ? want[k] : NOT;
    }
    for (int i = 0; i < p->n; i++) {
        const int k = order[i];
        int best = 0;
        uint64_t most = 0;
        if (k == a || k == b)
            continue;
        for (int l = 0; l < (int)p->f[k].n; l++) {
            uint64_t score = 1 + check_next(&p->r) % 256;
            const bool kept = !is_large(p, k, l) && !is_long(p, k, l) &&
                (!masks(p, k, l) || (both && (!contents || p->f[k].kind == CONTENTS))) && !(large && class_at(p, k, l) > FEW) &&
                !(large && (p->f[k].kind == RANK || p->f[k].kind == FREE_RANK) && p->f[k].level[l] > 2);
            for (int g = 0; g < p->n && kept && !random; g++)
                if (g != k && want[g] >= 0 && is_pair(p, k < g ? k : g, k < g ? l : want[g], k < g ? g : k, k < g ? want[g] : l))
                    score += *pair(p, k, l, g, want[g]) == OPEN ? 256 : 0;
            if (kept && score > most) {
                most = score;
                best = l;
            }
        }
        want[k] = best;
    }
    const bool scaled = level(p, want, MOOD, 0) == SCALED && p->turn % 2;
    for (int k = 0; k < p->n && scaled; k++) /* contents of a certain size: a factor would make them others */
        if (p->f[k].kind == WORD && k != a && k != b)
            want[k] = 0;
    make_alike(p, a, b, want);
}

/* The first cases are plain, for properties that look closely at few. */
static void add_first(planner *p)
{
    static const int64_t sizes[FIRST] = { FEW, FEW, OTHER, AFTER_VECTOR, FEW, VECTOR };
    int want[FACTORS], found[FACTORS];
    for (uint32_t i = 0; i < 4 * FIRST && p->plan->n < FIRST && p->plan->n < p->most; i++) {
        choose(p, NOT, NOT, want, true);
        for (int k = 0; k < p->n; k++) {
            const factor *f = &p->f[k];
            for (uint32_t l = 0; l < f->n; l++)
                if ((is_size(f->kind) && f->level[l] == sizes[i % FIRST]) || (f->kind == ONES && f->level[l] == NO_ONES) ||
                    ((f->kind == RANK || f->kind == FREE_RANK) && f->level[l] == 1 + i % 2) ||
                    (f->kind == PRESENT && f->level[l] == (i % 4 != 2)) || (f->kind == LENGTH && f->level[l] == 1 + i % 3) ||
                    (f->kind >= LAYOUT && !f->level[l]) || (f->kind == WORD && !l && i % 2) ||
                    (f->kind == ALIKE && f->level[l] == 1))
                    want[k] = (int)l;
        }
        if (make(p, want, NOT, NOT, false, place(p)) == CHECK_ACCEPTED) {
            find_levels(p, want, place(p), found);
            if (i >= 2 * FIRST || !is_empty(p, place(p)))
                keep(p, want, meet(p, found, false));
        }
        p->turn++;
    }
}

/* Cases until this pair is met, or it cannot be. */
static void meet_pair(planner *p, int a, int la, int b, int lb)
{
    int want[FACTORS], found[FACTORS];
    uint8_t *of = pair(p, a, la, b, lb);
    bool cut = false;
    for (int i = 0; i < TRIES && *of == OPEN && p->tries < MOST_TRIES && p->plan->n < p->most; i++, p->tries++) {
        want[a] = la;
        want[b] = lb;
        const bool random = i > (p->vain < MOST_VAIN ? TRIES / 2 : 0);
        choose(p, a, b, want, random);
        const bool tight = i % 2 || is_large(p, a, la) || is_large(p, b, lb);
        const enum check_verdict is = make(p, want, a, b, tight, place(p));
        cut |= is == CHECK_TOO_LARGE;
        p->turn++;
        p->vain = is == CHECK_ACCEPTED && !random ? 0 : p->vain + !random;
        if (is == CHECK_ACCEPTED) {
            find_levels(p, want, place(p), found);
            const uint32_t met = meet(p, found, true);
            if (found[a] == la && found[b] == lb && (met || i + 2 >= TRIES)) {
                meet(p, found, false);
                keep(p, want, met + (*of != MET));
                *of = MET; /* also where a third level masks it: nothing better was found */
            } else if (met > 8) {
                keep(p, want, meet(p, found, false));
            }
        }
        if (i == 1 && *of == OPEN && is_refuted(p, a, la, b, lb))
            *of = INFEASIBLE;
    }
    if (*of == OPEN)
        *of = cut ? CUT : NOT_MET;
}

typedef struct two { int a, la, b, lb; } two;

/* In any order, so that a full plan leaves out no factor. */
static void meet_all(planner *p)
{
    two *open = calloc(p->npairs + 1, sizeof *open);
    size_t n = 0;
    for (int a = 0; a < p->n && open; a++)
        for (int b = a + 1; b < p->n; b++)
            for (int la = 0; la < (int)p->f[a].n; la++)
                for (int lb = 0; lb < (int)p->f[b].n; lb++) {
                    const size_t other = check_next(&p->r) % (n + 1);
                    open[n] = open[other];
                    open[other] = (two){ a, la, b, lb };
                    n++;
                }
    for (size_t i = 0; i < n && p->plan->n < p->most; i++)
        if (*pair(p, open[i].a, open[i].la, open[i].b, open[i].lb) == OPEN)
            meet_pair(p, open[i].a, open[i].la, open[i].b, open[i].lb);
    free(open);
}

/* A case with two levels of which none masks the others. a, b: factors whose levels are given. */
static bool add_plain(planner *p, int a, int b, int *want, bool tight)
{
    int found[FACTORS];
    choose(p, a, b, want, true);
    const bool accepted = make(p, want, a, b, tight, place(p)) == CHECK_ACCEPTED && (p->odd || !is_empty(p, place(p)));
    p->turn++;
    if (accepted) {
        find_levels(p, want, place(p), found);
        keep(p, want, meet(p, found, false));
    }
    return accepted;
}

static int factor_of(const planner *p, enum kind kind, size_t at)
{
    for (int k = 0; k < p->n; k++)
        if (p->f[k].kind == kind && p->f[k].at == at)
            return k;
    return NOT;
}

/* The number of a factor's level; the first: it has no such level. */
static int level_or_first(const planner *p, int k, int64_t level)
{
    const int at = level_of(p, k, level);
    return at < 0 ? 0 : at;
}

/* Has a case these names of one size that is past whole vectors? */
static bool are_equal(const planner *p, size_t a, size_t b)
{
    bool are = false;
    for (uint32_t i = 0; i < p->plan->n && !are; i++) {
        const check_names *n = &p->plan->cases[i].names;
        const int64_t size = n->dims[p->op->names[a].at];
        are = n->bound[a] && n->bound[b] && size > classes[VECTOR].of[0] && size == n->dims[p->op->names[b].at];
    }
    return are;
}

/* Each two names of sizes are equal in a case, where they can be: a kernel may take one for the other, or have a way of its own
 * for squares. Other names of the case are equal in twos as well, where such a case is missing. */
static void meet_equal(planner *p)
{
    for (size_t a = 0; a < p->op->nnames; a++)
        for (size_t b = a + 1; b < p->op->nnames; b++)
            for (int i = 0; i < TRIES && p->plan->n < p->most; i++) {
                int want[FACTORS];
                const int f = factor_of(p, DIM, a), g = factor_of(p, DIM, b);
                if (f < 0 || g < 0 || are_equal(p, a, b))
                    break;
                want[f] = level_or_first(p, f, OTHER);
                want[g] = level_or_first(p, g, OTHER);
                p->like[b] = (uint32_t)a + 1;
                for (size_t c = 0; c < p->op->nnames && i < TRIES / 2; c++)
                    for (size_t d = c + 1; d < p->op->nnames && c != a && c != b && !p->like[c]; d++)
                        if (d != a && !p->like[d] && factor_of(p, DIM, c) >= 0 && factor_of(p, DIM, d) >= 0 &&
                            !are_equal(p, c, d)) {
                            p->like[d] = (uint32_t)c + 1;
                            break;
                        }
                add_plain(p, f, g, want, i % 2);
                memset(p->like, 0, sizeof p->like);
            }
}

/* Are two runs the same but for the first size, which is 1 in one of them? */
static bool differ_in_first(const planner *p, size_t a, size_t b)
{
    bool are = false;
    for (uint32_t i = 0; i < p->plan->n && !are; i++) {
        const check_names *n = &p->plan->cases[i].names;
        const check_shape *s = &n->runs[p->op->names[a].at], *t = &n->runs[p->op->names[b].at];
        are = n->bound[a] && n->bound[b] && s->n > 1 && s->n == t->n && s->d[0] == 1 && t->d[0] > 1;
        for (int32_t d = 1; d < s->n && are; d++)
            are = s->d[d] == t->d[d] && s->d[d] > 1;
    }
    return are;
}

/* The same of runs, of which one is broadcast along the first dim. */
static void meet_broadcast(planner *p)
{
    for (size_t a = 0; a < p->op->nnames; a++)
        for (size_t b = 0; b < p->op->nnames; b++)
            for (int i = 0; i < TRIES && p->plan->n < p->most && a != b; i++) {
                int want[FACTORS];
                const int f = factor_of(p, ONES, a), g = factor_of(p, ONES, b);
                if (f < 0 || g < 0 || differ_in_first(p, a, b))
                    break;
                want[f] = level_or_first(p, f, LEADING);
                want[g] = level_or_first(p, g, NO_ONES);
                p->turn = (p->turn + 11) / 12 * 12; /* of one rank and one dtype */
                add_plain(p, f, g, want, i % 2);
            }
}

/* Of three tensors of a list the first, the second, the last is empty and the others are not; and the other way round. */
static void mix_empty(planner *p)
{
    bool lists = false;
    for (int f = 0; f < p->n; f++)
        lists |= p->f[f].kind == LENGTH;
    for (uint32_t k = 0; k < 2 * LISTED && lists && p->plan->n < p->most; k++) {
        int want[FACTORS];
        p->odd = k % LISTED + 1;
        p->odd_is_empty = k < LISTED;
        add_plain(p, NOT, NOT, want, false);
        p->odd = 0;
    }
}

/* Returns the index in planner.reached of a factor that is a size. */
static size_t size_of(const factor *f) { return f->at + (size_t)(f->kind == WORD ? NAMES : 0); }

/* Each size of a vector, and its neighbours, for each name and each int argument that may be a size, where there is room. */
static void reach_all(planner *p)
{
    for (int f = 0; f < p->n; f++)
        for (uint32_t l = 0; l < p->f[f].n; l++)
            for (int i = 0; i < TRIES && p->plan->n < p->most; i++) {
                int want[FACTORS];
                const int64_t class = class_at(p, f, (int)l);
                const size_t size = size_of(&p->f[f]);
                if (p->f[f].kind == FREE_SIZE || class < BEFORE_VECTOR || class > AFTER_VECTOR ||
                    p->reached[size][class][rarest(p, size, class, 0) % 4])
                    break;
                want[f] = (int)l;
                add_plain(p, f, NOT, want, false);
            }
}

/* The last level of each size: numbers that the source knows. */
static void add_source_levels(planner *p)
{
    p->nspecial = p->op->nspecial;
    for (int k = 0; k < p->n; k++)
        if (p->f[k].room > p->f[k].n && class_of(p, of_class(p, CLASSES, 0)) == CLASSES) {
            if (p->f[k].kind == WORD)
                new_word(p, &p->f[k], DV_VALUE_INT)->count = 1 + CLASSES;
            else
                p->f[k].level[p->f[k].n++] = CLASSES;
            if (p->op->contract && is_refuted(p, k, (int)p->f[k].n - 1, NOT, 0))
                p->f[k].n--;
        }
}

/* Adds a case with plain contents for each size and each of these special numbers, unless a case has both. */
static void reach_special(planner *p, size_t first, size_t end)
{
    const int mood = factor_of(p, MOOD, 0);
    for (int f = 0; f < p->n; f++)
        for (size_t k = first; k < end && p->plan->n < p->most; k++) {
            int want[FACTORS];
            const int last = (int)p->f[f].n - 1;
            if (class_at(p, f, last) != CLASSES)
                break;
            if (p->f[f].kind == FREE_SIZE || p->reached[size_of(&p->f[f])][CLASSES][k])
                continue;
            want[f] = last;
            if (mood >= 0)
                want[mood] = level_or_first(p, mood, PLAIN);
            while ((p->turn + p->f[f].at) % p->nspecial != k) /* of_class() takes this number then */
                p->turn++;
            add_plain(p, f, mood, want, false);
        }
}

static void add_rest(planner *p, uint32_t fewest)
{
    int want[FACTORS];
    for (uint32_t i = 0; i < 4 * fewest && p->plan->n < fewest && p->plan->n < p->most; i++) {
        choose(p, NOT, NOT, want, true);
        if (make(p, want, NOT, NOT, i % 2, place(p)) == CHECK_ACCEPTED)
            keep(p, want, 0);
        p->turn++;
    }
}

/* A number so large that a loop to it does not end, and that the contract does not name. */
bool check_is_huge(const check_op *op, const check_case *c)
{
    bool is = false;
    for (size_t i = 0; i < c->nargs; i++) {
        const int64_t number = c->args[i].as.i;
        bool named = false;
        for (size_t k = 0; k < op->literals[i].n; k++)
            named |= op->literals[i].of[k]->i == number;
        is |= c->args[i].type == DV_VALUE_INT && (number >= INT32_MAX || number <= INT32_MIN) && !named;
    }
    return is;
}

/* Cases with huge numbers last: a call that does not end ends the others. */
static void put_huge_last(const check_op *op, check_plan *plan)
{
    static check_case kept[CHECK_MOST_CASES];
    uint32_t met[CHECK_MOST_CASES], n = 0, last = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        if (check_is_huge(op, &plan->cases[i])) {
            met[last] = plan->met[i];
            kept[last++] = plan->cases[i];
        } else {
            plan->met[n] = plan->met[i];
            plan->cases[n++] = plan->cases[i];
        }
    memcpy(&plan->met[n], met, last * sizeof *met);
    memcpy(&plan->cases[n], kept, last * sizeof *kept);
}

/* Is it certain that no call has this level of an argument other than a tensor? So it is of a text that has to be None. */
static bool is_refused_word(const planner *p, const factor *f, uint32_t l)
{
    dv_partial *any = check_unknown(p->op, 0, NULL);
    dv_partial *one = any && f->kind == WORD ? check_unknown(p->op, f->at, &p->words[f->at][l]) : NULL;
    const bool refused = any && f->kind == WORD && !one;
    dv_partial_free(any);
    dv_partial_free(one);
    return refused;
}

/* Levels that no call has at all are no levels. */
static void drop_impossible(planner *p)
{
    for (int k = 0; k < p->n; k++)
        for (uint32_t l = 0; l < p->f[k].n;)
            if (p->f[k].n > 1 && (is_refuted(p, k, (int)l, NOT, 0) || is_refused_word(p, &p->f[k], l))) {
                factor *f = &p->f[k];
                f->n--;
                if (f->kind == WORD)
                    memmove(&p->words[f->at][l], &p->words[f->at][l + 1], (f->n - l) * sizeof(check_value));
                else
                    memmove(&f->level[l], &f->level[l + 1], (f->n - l) * sizeof *f->level);
            } else {
                l++;
            }
}

/* Core is not asked about the tensors of lists: dtypes that no call of this kind has are no levels. */
static void keep_possible_dtypes(planner *p, const check_case *like, size_t slot, factor *f)
{
    static check_case c;
    const size_t first = like->args[slot].first;
    uint32_t n = 0;
    for (uint32_t l = 0; l < f->n; l++) {
        c = *like;
        c.tensors[first].dtype = dv_dtype_from_key((uint32_t)f->level[l]);
        if (check_fit(p->op, &c, NULL, NULL) && dv_dtype_key(c.tensors[first].dtype) == f->level[l])
            f->level[n++] = f->level[l];
    }
    f->n = n ? n : f->n;
}

static void add_tensor(planner *p, const check_case *like, size_t slot, bool free_shape, bool free_dtype)
{
    const check_op *op = p->op;
    const bool list = op->slots[slot].type == DV_FIELD_TENSORS, written = op->slots[slot].flags & DV_SLOT_WRITES;
    if (is_optional(op, slot))
        add_count(p, PRESENT, slot, 0, 1);
    if (list)
        add_count(p, LENGTH, slot, 0, 3), add_level(&p->f[p->n - 1], LONG);
    if (free_shape) {
        add_count(p, FREE_RANK, slot, 0, MOST_RANK - 1);
        add_classes(p, FREE_SIZE, slot);
    }
    if (free_dtype)
        add_dtypes(p, FREE_DTYPE, slot, NULL, true);
    if (free_dtype && list && op->contract && like->args[slot].count)
        keep_possible_dtypes(p, like, slot, &p->f[p->n - 1]);
    factor *f = add(p, LAYOUT, slot);
    for (int64_t l = 0; l < CHECK_FAR; l++)
        if (!written || l != CHECK_EXPANDED)
            add_level(f, l);
}

/* May the tensors of an argument be integers? */
static bool may_be_integer(const planner *p)
{
    bool may = false;
    for (int k = 0; k < p->n; k++)
        for (uint32_t l = 0; l < p->f[k].n && (p->f[k].kind == DTYPE || p->f[k].kind == FREE_DTYPE); l++)
            may |= check_is_integer(dv_dtype_from_key((uint32_t)p->f[k].level[l]));
    return may;
}

/* Few elements, and otherwise the first levels. */
static void want_few(const planner *p, int *want)
{
    memset(want, 0, FACTORS * sizeof *want);
    for (int k = 0; k < p->n; k++)
        for (uint32_t l = 0; l < p->f[k].n; l++)
            if ((is_size(p->f[k].kind) && p->f[k].level[l] == FEW) || (p->f[k].kind == RANK && p->f[k].level[l] == 2))
                want[k] = (int)l;
}

static void find_factors(planner *p)
{
    static check_case c;
    static bool shapes[CHECK_TENSORS], dtypes[CHECK_TENSORS];
    const check_op *op = p->op;
    const check_json *variables = check_json_get(op->contract, "dtypes"), *d = variables ? variables->child : NULL;
    size_t nfree = 0, first_dtype = op->nnames;
    for (size_t k = 0; k < op->nnames; k++) {
        if (op->names[k].kind == CHECK_NAME_DIM)
            add_classes(p, DIM, k);
        if (op->names[k].kind == CHECK_NAME_RUN) {
            add_count(p, RANK, k, 0, MOST_RANK);
            add_level(&p->f[p->n - 1], HIGH_RANK);
            add_classes(p, RUN, k);
            add_count(p, ONES, k, 0, ONES_LEVELS - 1);
        }
        if (op->names[k].kind == CHECK_NAME_DTYPE) {
            first_dtype = k < first_dtype ? k : first_dtype;
            add_dtypes(p, DTYPE, k, d, k == first_dtype);
            d = d ? d->next : NULL;
        }
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (!is_tensor(op, i))
            add_words(p, i);
    int want[FACTORS];
    want_few(p, want);
    memset(&c, 0, sizeof c);
    set_arguments(p, want, false, &c);
    set_names(p, want, false, &c);
    set_free(p, want, false, &c);
    check_free(op, &c, shapes, dtypes);
    for (size_t i = 0; i < op->nargs; i++) {
        const size_t t = c.args[i].first;
        if (!is_tensor(op, i))
            continue;
        add_tensor(p, &c, i, shapes[t], dtypes[t]);
        nfree += shapes[t];
    }
    if (nfree > 1)
        add_count(p, ALIKE, 0, 0, 1);
    const bool literal = may_be_integer(p);
    bool integers = literal, reals = false;
    for (size_t i = 0; i < c.ntensors; i++) {
        integers |= check_is_integer(c.tensors[i].dtype);
        reals |= !check_is_integer(c.tensors[i].dtype);
    }
    for (size_t i = 0; i < op->nargs; i++)
        if (is_tensor(op, i))
            add_count(p, CONTENTS, i, 0, literal || check_is_integer(c.tensors[c.args[i].first].dtype) ? 5 : 2);
    factor *mood = add(p, MOOD, 0);
    add_level(mood, PLAIN);
    for (int64_t k = SCALED; k <= EXTREME && reals; k++)
        add_level(mood, k);
    for (int64_t k = 0; k < WRONG_INDICES && integers; k++)
        add_level(mood, WRONG + k);
    if (op->contract)
        drop_impossible(p);
}

/* What was cut, by name: "as n past 4096 with m past 32768". */
static void say_cut(planner *p, int a, int la, int b, int lb)
{
    static const char *const ones[ONES_LEVELS] = { "without a 1", "with a leading 1", "with a trailing 1",
        "with a 1 at both ends", "with a 1 inside" };
    char words[2][64];
    const int of[] = { a, b }, l[] = { la, lb };
    for (int i = 0; i < 2; i++) {
        const factor *f = &p->f[of[i]];
        const int64_t is = f->level[l[i]];
        const char *name = f->kind <= DTYPE ? p->op->names[f->at].text : f->kind == MOOD ? "elements" : p->op->slots[f->at].name;
        char level[24] = "", *const out = words[i];
        if (f->kind == RANK || f->kind == FREE_RANK)
            snprintf(level, sizeof level, "of %d dims", (int)is);
        if (f->kind == LENGTH)
            snprintf(level, sizeof level, "of %d", (int)is);
        snprintf(out, sizeof words[i], "%.30s %s", name,
            class_at(p, of[i], l[i]) >= 0
                ? class_at(p, of[i], l[i]) < CLASSES ? classes[class_at(p, of[i], l[i])].name : "of the source"
                : f->kind == ONES                           ? ones[is]
                : f->kind == DTYPE || f->kind == FREE_DTYPE ? dv_dtype_name(dv_dtype_from_key((uint32_t)is))
                : f->kind == PRESENT                        ? is ? "given" : "None"
                : f->kind == LAYOUT                         ? is ? "in another layout" : "contiguous"
                : f->kind == ALIKE                          ? "of one shape"
                : f->kind == WORD                           ? "of one value"
                : f->kind == CONTENTS || f->kind == MOOD    ? "of one kind"
                                                            : level);
    }
    snprintf(p->plan->example, sizeof p->plan->example, "as %s with %s", words[0], words[1]);
}

static void count_pairs(planner *p)
{
    check_plan *plan = p->plan;
    bool open = false;
    for (int a = 0; a < p->n; a++)
        for (int b = a + 1; b < p->n; b++)
            for (int la = 0; la < (int)p->f[a].n; la++)
                for (int lb = 0; lb < (int)p->f[b].n; lb++) {
                    const uint8_t is = *pair(p, a, la, b, lb);
                    open |= is == OPEN;
                    plan->infeasible += is == INFEASIBLE;
                    plan->cut += is == CUT;
                    plan->not_met += is == NOT_MET || is == OPEN;
                    if ((is == CUT || is == NOT_MET) && (!*plan->example || (is == NOT_MET && plan->not_met == 1)))
                        say_cut(p, a, la, b, lb);
                }
    if (open)
        snprintf(plan->example, sizeof plan->example, "%u cases", plan->n);
}

/* ---- The last resort: all sizes, the small ones first --------------------------------------------------------------------- */

/* 0 to 128, then powers of two, the contract's numbers and the neighbours of both. How many they are. */
static size_t list_sizes(const check_op *op, int64_t *sizes)
{
    size_t n = 0;
    while (n <= SMALL_SIZES)
        sizes[n] = (int64_t)n, n++;
    for (int64_t power = 2 * SMALL_SIZES; power <= LARGE_SIZE; power *= 2)
        for (int by = -1; by <= 1; by++)
            sizes[n++] = power + by;
    for (size_t k = 0; k < op->nbounds; k++)
        sizes[n++] = op->special[k];
    return n;
}

/* Does the contract accept a call with these sizes of n names, or sizes near them? */
static void try_sizes(planner *p, const size_t *names, const int64_t *sizes, int n, int64_t others)
{
    static check_case c;
    int want[FACTORS];
    want_few(p, want);
    for (size_t k = 0; k < CHECK_NAMES; k++)
        p->solved[p->nsolved][k] = others;
    for (int k = 0; k < n; k++)
        p->solved[p->nsolved][p->op->names[names[k]].at] = sizes[k];
    const size_t before = p->nsolved;
    p->turn = (uint32_t)before;
    p->nsolved = before + 1;
    const bool accepted = make(p, want, NOT, NOT, true, &c) == CHECK_ACCEPTED;
    p->nsolved = before;
    for (size_t k = 0; k < before && accepted; k++)
        if (!memcmp(p->solved[k], c.names.dims, sizeof c.names.dims))
            return;
    if (accepted)
        memcpy(p->solved[p->nsolved++], c.names.dims, sizeof c.names.dims);
}

/* All sizes of n names of which the largest is this one. */
static void try_all(planner *p, const size_t *names, int n, const int64_t *sizes, size_t largest, uint32_t *tries)
{
    size_t at[MOST_TOGETHER] = { 0 };
    for (int k = 0; k < n && *tries < MOST_SEARCHED && p->nsolved < SOLUTIONS;) {
        int64_t chosen[MOST_TOGETHER];
        size_t most = 0;
        for (k = 0; k < n; k++) {
            chosen[k] = sizes[at[k]];
            most = at[k] > most ? at[k] : most;
        }
        if (most == largest) {
            ++*tries;
            try_sizes(p, names, chosen, n, 2);
        }
        for (k = 0; k < n && ++at[k] > largest; k++)
            at[k] = 0;
    }
}

/* All names are equal; then sizes of each name alone, of each two, and of each three. */
static void search_sizes(planner *p)
{
    int64_t sizes[SMALL_SIZES + 1 + 4 * CHECK_SPECIALS];
    size_t names[CHECK_NAMES], n = 0;
    const size_t nsizes = list_sizes(p->op, sizes);
    for (size_t k = 0; k < p->op->nnames && n < CHECK_NAMES; k++)
        if (p->op->names[k].kind == CHECK_NAME_DIM)
            names[n++] = k;
    for (size_t i = 0; i < nsizes && n > 1 && p->nsolved < SOLUTIONS; i++)
        try_sizes(p, names, NULL, 0, sizes[i]);
    for (int together = 1; together <= MOST_TOGETHER; together++) {
        uint32_t tries = 0;
        for (size_t largest = 0; largest < nsizes; largest++)
            for (size_t i = 0; i < n; i++)
                for (size_t j = together > 1 ? i + 1 : n - 1; j < n; j++)
                    for (size_t k = together > 2 ? j + 1 : n - 1; k < n; k++)
                        try_all(p, (size_t[]){ names[i], names[j], names[k] }, together, sizes, largest, &tries);
    }
    p->turn = 0;
}

/* ---- Few cases of a plan --------------------------------------------------------------------------------------------------- */

enum { FEATURES = 4096, FEW_OF = 3 /* few cases are chosen among so many times as many */ };

/* Adds a case's features to a set: the size, dtype, layout or value that each name and argument has. Returns how many are new.
 * only_count: adds none. */
static uint32_t add_features(const check_op *op, const check_case *c, bool *set, bool only_count)
{
    uint32_t keys[4 * CHECK_ARGS + 6 * CHECK_TENSORS + 4 * CHECK_NAMES], n = 0, added = 0;
#define FEATURE(kind, of, value)                                                                                           \
    keys[n++] = (uint32_t)((((uint64_t)(kind) * 64 + (uint64_t)(of)) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(value)) * \
            UINT64_C(0xd1342543de82ef95) >>                                                                                \
        40)
    for (size_t k = 0; k < op->nnames && k < CHECK_NAMES; k++) {
        const check_name *name = &op->names[k];
        const check_shape *run = &c->names.runs[name->at];
        int64_t most = 0;
        for (int32_t d = 0; name->kind == CHECK_NAME_RUN && d < run->n; d++)
            most = run->d[d] > most ? run->d[d] : most;
        if (c->names.bound[k])
            FEATURE(1, k, name->kind == CHECK_NAME_DIM ? c->names.dims[name->at] : name->kind == CHECK_NAME_RUN ? most : 0);
        if (c->names.bound[k] && name->kind == CHECK_NAME_RUN)
            FEATURE(2, k, run->n);
    }
    for (size_t i = 0; i < c->nargs && i < CHECK_ARGS; i++) {
        uint64_t value = c->args[i].type * UINT64_C(31) + c->args[i].count;
        for (size_t b = 0; !is_tensor(op, i) && b < sizeof c->args[i]; b++)
            value = value * 31 + ((const unsigned char *)&c->args[i])[b];
        FEATURE(3, i, value);
    }
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        FEATURE(4, i, t->present ? dv_dtype_key(t->dtype) + 1 : 0);
        if (t->present && (t->layout == CHECK_CONTIGUOUS || check_has_forms(t)))
            FEATURE(5, i, t->layout * CHECK_FORMS + t->form);
        if (t->present)
            FEATURE(6, i, t->fill);
    }
#undef FEATURE
    for (uint32_t k = 0; k < n; k++) {
        bool *const is = &set[keys[k] % FEATURES];
        added += !*is;
        *is |= !only_count;
    }
    return added;
}

/* Does a case show little beside what makes it so: no elements, NaN, a wrong index or a number past 2^31? */
static bool is_masked(const check_op *op, const check_case *c)
{
    bool masked = check_is_huge(op, c);
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        masked |= t->present &&
            (!check_numel(t) || t->fill == CHECK_SPECIAL || (t->fill == CHECK_LAST && check_is_integer(t->dtype)));
    }
    return masked;
}

/* Leaves so many cases of a plan: the first ones, then in turn the case with the most features that no other has yet. */
static void leave_few(const check_op *op, check_plan *plan, uint32_t wanted)
{
    static bool set[FEATURES];
    static bool left[CHECK_MOST_CASES];
    uint32_t n = 0;
    memset(set, 0, sizeof set);
    memset(left, 0, sizeof left);
    for (uint32_t chosen = 0; chosen < wanted; chosen++) {
        uint32_t best = chosen, most = 0;
        for (uint32_t i = 0; i < plan->n && chosen >= FIRST; i++) {
            const uint32_t score = left[i]
                ? 0
                : 1 + add_features(op, &plan->cases[i], set, true) * (is_masked(op, &plan->cases[i]) ? 1 : 3);
            best = score > most ? i : best;
            most = score > most ? score : most;
        }
        left[best] = true;
        add_features(op, &plan->cases[best], set, false);
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        if (!left[i]) {
            plan->not_met += plan->met[i];
            continue;
        }
        plan->met[n] = plan->met[i];
        memmove(&plan->cases[n++], &plan->cases[i], sizeof *plan->cases);
    }
    plan->n = n;
    snprintf(plan->example, sizeof plan->example, "%u cases", n);
}

static void add_cases(planner *p, uint32_t wanted)
{
    exclude_pairs(p);
    add_first(p);
    meet_equal(p);
    meet_broadcast(p);
    mix_empty(p);
    meet_all(p);
    reach_all(p);
    add_rest(p, wanted ? wanted : FEWEST);
    if (p->op->nspecial) { /* so they displace nothing */
        add_source_levels(p);
        exclude_pairs(p);
        reach_special(p, 0, p->op->nbounds); /* of all operators, so before those of the source */
        meet_all(p);
        reach_special(p, p->op->nbounds, p->op->nspecial);
    }
}

static bool begin_plan(planner *p)
{
    for (const char *s = p->op->name; *s; s++)
        p->r.state = p->r.state * 31 + (unsigned char)*s;
    find_factors(p);
    return lay_out(p);
}

void check_plan_make(const check_op *op, const check_row *row, uint32_t wanted, uint64_t seed, check_plan *plan)
{
    static planner p;
    static int64_t solved[SOLUTIONS][CHECK_NAMES];
    size_t nsolved = 0;
    choose_others(seed);
    for (int i = 0; i < 2; i++) {
        p = (planner){ .op = op, .row = row, .plan = plan, .most = CHECK_MOST_CASES - 1, .nsolved = nsolved };
        if (wanted && FEW_OF * wanted < p.most)
            p.most = FEW_OF * wanted;
        memcpy(p.solved, solved, sizeof solved);
        if (!begin_plan(&p))
            return;
        add_cases(&p, wanted);
        if (!i && !plan->n && op->contract)
            search_sizes(&p);
        nsolved = p.nsolved;
        memcpy(solved, p.solved, sizeof solved);
        if (i || !nsolved)
            count_pairs(&p);
        free(p.state);
        if (!nsolved)
            break;
    }
    put_huge_last(op, plan);
    if (wanted && wanted < plan->n)
        leave_few(op, plan, wanted);
}
