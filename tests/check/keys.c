/* keys CASES MUTANTS FILE.so ...: the keys of cases of all operators of these binaries, as a property test. A key that is read
 * and printed again is the same text, and what is read is the same case. Keys with random changes are read or refused with a
 * message; nothing else happens. Plans run shape functions, so each binary has a process of its own. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { MAX_INVALID_CASES = 12 };
static int cases_per_plan, mutants_per_key; /* cases tested of each plan; mutants tested of each key */
static check_random random_numbers = { 7 };
static size_t nkeys, nunwritten, nmutants, naccepted;

/* Prints the texts and ends the program if the condition does not hold. */
static void keys_require(bool holds, const char *what, const char *key, const char *other)
{
    if (holds)
        return;
    fprintf(stderr, "%s:\n  %s\n  %s\n", what, key, other);
    exit(1);
}

/* True if two tensors are both None, or equal in dtype, shape, strides and contents. */
static bool keys_are_equal_tensors(const check_tensor *a, const check_tensor *b)
{
    int64_t x[CHECK_MAX_DIMS], y[CHECK_MAX_DIMS], low[2], high[2];
    if (!a->present || !b->present)
        return a->present == b->present;
    check_compute_strides(a, x, &low[0], &high[0]);
    check_compute_strides(b, y, &low[1], &high[1]);
    return a->ndim == b->ndim && a->layout == b->layout && (a->layout_variant == b->layout_variant || !a->layout) &&
        a->fill == b->fill && dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype) &&
        a->high_is_last_index == b->high_is_last_index && a->high_size_code == b->high_size_code && a->low == b->low &&
        a->high == b->high && low[0] == low[1] && high[0] == high[1] &&
        !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) && !memcmp(x, y, sizeof *x * (size_t)a->ndim);
}

/* True if two cases give the contract's names the same values; true for an invalid case, whose names are unused. */
static bool keys_are_equal_names(const check_op *op, const check_case *a, const check_case *b)
{
    bool same = true;
    for (size_t k = 0; k < op->nnames && !a->is_invalid; k++) {
        const check_name *name = &op->names[k];
        const check_shape *x = &a->names.variadics[name->value_index], *y = &b->names.variadics[name->value_index];
        same &= a->names.is_bound[k] == b->names.is_bound[k];
        if (!a->names.is_bound[k])
            continue;
        if (name->kind == CHECK_NAME_DIM)
            same &= a->names.dims[name->value_index] == b->names.dims[name->value_index];
        else if (name->kind == CHECK_NAME_VARIADIC)
            same &= x->ndim == y->ndim && !memcmp(x->sizes, y->sizes, sizeof *x->sizes * (size_t)x->ndim);
        else
            same &= dv_dtype_key(a->names.dtypes[name->value_index]) == dv_dtype_key(b->names.dtypes[name->value_index]);
    }
    return same;
}

/* True if two cases are equal in all but the arguments that are no tensors, which the printed key compares. */
static bool keys_are_equal_cases(const check_op *op, const check_case *a, const check_case *b)
{
    bool same = a->seed == b->seed && a->plan_index == b->plan_index && a->is_invalid == b->is_invalid && a->nargs == b->nargs &&
        a->ntensors == b->ntensors && keys_are_equal_names(op, a, b);
    for (size_t i = 0; i < a->ntensors && same; i++)
        same = keys_are_equal_tensors(&a->tensors[i], &b->tensors[i]);
    return same;
}

/* Returns a copy of a key with a few letters replaced, removed or inserted, cut off, or joined with a part of another key. The
 * caller frees it. */
static char *keys_new_mutant(const char *key, const char *other)
{
    static const char letters[] = "()[]{};:,=@.+-\"'\\/0123456789afnsx \n";
    const size_t n = strlen(key);
    char *text = calloc(1, n + 3 * strlen(other) + 8);
    keys_require(text != NULL, "memory", key, "");
    memcpy(text, key, n);
    for (uint64_t times = 1 + check_random_next(&random_numbers) % 3; times-- > 0 && *text;) {
        const size_t size = strlen(text), at = check_random_next(&random_numbers) % size;
        switch (check_random_next(&random_numbers) % 5) {
        case 0: text[at] = letters[check_random_next(&random_numbers) % (sizeof letters - 1)]; break;
        case 1: memmove(text + at, text + at + 1, size - at); break;
        case 2: text[at] = 0; break;
        case 3:
            if (size < n + 4) {
                memmove(text + at + 1, text + at, size - at + 1);
                text[at] = letters[check_random_next(&random_numbers) % (sizeof letters - 1)];
            }
            break;
        default:
            text[at] = 0;
            strncat(text, other + check_random_next(&random_numbers) % (strlen(other) + 1), strlen(other));
            break;
        }
    }
    return text;
}

/* Tests the key of a check, and mutants of the key. */
static void keys_test_check(const check_op *op, const check_repeat *given)
{
    static check_repeat read, again;
    static char *last;
    char *key = check_repeat_new_key(given), *printed;
    if (!key) { /* a case that breaks the schema: None where it takes a tensor */
        keys_require(!given->repeats_one_case || given->repeated_case.is_invalid, "an accepted case has no key", op->name,
            dv_last_error());
        nunwritten++;
        return;
    }
    nkeys++;
    keys_require(!check_key_parse(key, op, 1, &read), "a printed key is refused", key, dv_last_error());
    keys_require(read.property == given->property && read.op == given->op && read.kernel == given->kernel &&
            read.repeats_one_case == given->repeats_one_case && read.has_preceding_case == given->has_preceding_case &&
            (!given->has_preceding_case || read.preceding_guard_side == given->preceding_guard_side),
        "another check is read", key, "");
    printed = check_repeat_new_key(&read);
    keys_require(printed && !strcmp(key, printed), "printed again it is another key", key, printed ? printed : "");
    keys_require(!given->repeats_one_case || keys_are_equal_cases(op, &given->repeated_case, &read.repeated_case),
        "another case is read", key, printed);
    keys_require(!given->has_preceding_case || keys_are_equal_cases(op, &given->preceding_case, &read.preceding_case),
        "another case before is read", key, printed);
    for (int i = 0; i < mutants_per_key; i++, nmutants++) {
        char *mutant = keys_new_mutant(key, last ? last : key);
        dv_fail(DV_OK, "%s", "");
        if (check_key_parse(mutant, op, 1, &again)) {
            keys_require(*dv_last_error() != 0, "refused without a message", mutant, "");
        } else {
            naccepted++;
            char *once = check_repeat_new_key(&again);
            keys_require(once || again.repeated_case.is_invalid || again.preceding_case.is_invalid,
                "what is read cannot be printed", mutant, dv_last_error());
            free(once);
        }
        free(mutant);
    }
    free(printed);
    free(last);
    last = key;
}

/* Tests the keys of a case of the plan, and of cases that break the contract. */
static void keys_test_case(check_job *job, const check_case *c)
{
    static check_repeat given;
    char what[200];
    const check_property *property = job->kernel ? &check_property_values : &check_property_shapes;
    given =
        (check_repeat){ .property = property, .op = job->op, .kernel = job->kernel, .repeats_one_case = c->plan_index % 8 != 0 };
    if (given.repeats_one_case)
        given.repeated_case = *c;
    given.has_preceding_case = c->plan_index % 3 == 2 && given.repeats_one_case;
    if (given.has_preceding_case) {
        given.preceding_guard_side = c->plan_index % 2 ? CHECK_GUARD_BEFORE : CHECK_GUARD_AFTER;
        check_copy_case_with_seed(&job->plan->cases[c->plan_index / 2 % job->plan->ncases], c->plan_index, &given.preceding_case);
    }
    keys_test_check(job->op, &given);
    for (uint32_t k = c->plan_index % 7; k < MAX_INVALID_CASES && given.repeats_one_case &&
        check_try_make_invalid_case(job->op, c, k, &given.repeated_case, what, sizeof what);
        k += 7)
        keys_test_check(job->op, &given);
}

static const check_property kernel_keys = { .name = "keys", .description = "", .per_kernel = true, .test_case = keys_test_case },
                            operator_keys = { .name = "keys", .description = "", .test_case = keys_test_case };

/* Tests the keys of all operators of a binary. Returns the exit code: 0, or 2 if the binary does not load. */
static int keys_test_binary(const char *path)
{
    static check_op op;
    static const check_property *const properties[] = { &kernel_keys, &operator_keys, NULL };
    const check_options options = {
        .seed = 1, .max_cases = (uint32_t)cases_per_plan, .case_ms = CHECK_CASE_MS, .properties = properties
    };
    dv_library *lib;
    if (dv_load(path, &lib))
        return fprintf(stderr, "%s\n", dv_last_error()), 2;
    for (size_t i = 0; i < dv_library_noperators(lib); i++) {
        check_job *jobs;
        size_t njobs;
        keys_require(!check_op_init(&op, dv_library_operator(lib, i)), "an operator is not read", path, dv_last_error());
        keys_require(!check_run_jobs_in_process(&op, 1, &options, &jobs, &njobs), "memory", path, "");
    }
    printf(
        "%s: %zu keys, %zu cases without one, %zu mutants, %zu of them are keys\n", path, nkeys, nunwritten, nmutants, naccepted);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc < 3;
    cases_per_plan = failed ? 0 : atoi(argv[1]);
    mutants_per_key = failed ? 0 : atoi(argv[2]);
    for (int i = 3; i < argc; i++) {
        int status;
        fflush(stdout);
        const pid_t child = fork();
        if (!child)
            exit(keys_test_binary(argv[i]));
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && !WEXITSTATUS(status))
            continue;
        fprintf(stderr, "%s: status %d\n", argv[i], status);
        failed++;
    }
    return failed != 0;
}
