/* Property undefined: kernels do nothing that C leaves undefined.
 *
 * If the source is given, it is built a second time with traps for what the compiler can detect: an index past a local array or
 * variable, a shift by too much, a misaligned or null pointer, a number out of the range of an integer type. Another process of
 * this command then runs the cases of property runs with that build. Signed overflow is left out, because sums of integer
 * tensors wrap on purpose. The same build marks which of its basic blocks run (coverage.c). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define SANITIZER_FLAGS "-fsanitize=bounds,object-size,shift,alignment,null,vla-bound,unreachable,return,float-cast-overflow"
#define SANITIZE_TRAP_FLAG "-fsanitize-undefined-trap-on-error"
#define COVERAGE_FLAG "-fsanitize-coverage=trace-pc"
enum { MAX_OUTPUT = 1 << 22 };
const char *check_command_path;

/* Runs this program, `dovetail`, with these arguments as a child process. Returns its stdout (of a build, with stderr), which the
 * caller frees; NULL: it was not run. map: the file in which kernels mark what they reach; NULL: a build. */
static char *undefined_run_and_copy_output(check_job *job, const char *const *argv, const char *map)
{
    int fds[2], status;
    size_t size = 0;
    char *text = malloc(MAX_OUTPUT + 1), numbers[8192] = "";
    if (!text || pipe(fds))
        return free(text), NULL;
    /* the process takes sizes to try from these source files */
    for (size_t i = 0, n = 0; job->op->sources[i] && n < sizeof numbers; i++)
        n += (size_t)snprintf(numbers + n, sizeof numbers - n, "%s\n", job->op->sources[i]);
    const pid_t pid = check_fork();
    if (!pid) {
        dup2(fds[1], STDOUT_FILENO);
        if (!map)
            dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        if (map) {
            setenv("DOVETAIL_COVERAGE", map, 1);
            setenv("DOVETAIL_NUMBERS_OF", numbers, 1);
        }
        execv(check_command_path, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t n = 1; pid > 0 && size < MAX_OUTPUT && n;) { /* no time limit here: the child process has its own */
        struct pollfd ready = { .fd = fds[0], .events = POLLIN };
        job->result->progress_count++;
        n = poll(&ready, 1, 500) > 0 ? read(fds[0], text + size, MAX_OUTPUT - size) : -1;
        size += n > 0 ? (size_t)n : 0;
    }
    close(fds[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    text[size] = 0;
    return text;
}

/* Copies the first line of a compiler's output that contains "error" to `line`; "" if no line does. */
static void undefined_copy_error_line(const char *output, char *line, size_t capacity)
{
    const char *start = output ? strstr(output, "error") : NULL;
    while (start && start > output && start[-1] != '\n')
        start--;
    snprintf(line, capacity, "%.*s", start ? (int)strcspn(start, "\n") : 0, start ? start : "");
}

/* Paths of files that this check makes beside the operator's binary: the binary with traps, the header of its build, and the map
 * of what kernels reach. */
typedef struct build_paths { char binary[4096], header[4096], map[4096]; } build_paths;

/* Builds the binary with traps, once for all operators of a library; with marks of what kernels reach, if the compiler has them.
 * Returns false if the build fails; `error` (300 bytes) then has a line of the compiler. */
static bool undefined_try_build_with_traps(check_job *job, build_paths *paths, char *error)
{
    const int n = snprintf(paths->binary, sizeof paths->binary, "%s.watched.so", job->op->path);
    snprintf(paths->header, sizeof paths->header, "%s.%d.h", job->op->path,
        (int)getpid()); /* the process id keeps apart the files of several checks that run at once */
    snprintf(paths->map, sizeof paths->map, "%s.%d.covered", job->op->path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof paths->binary - 24)
        return false;
    char include[sizeof paths->header + sizeof "-include"];
    /* "-include" and its file are one word, since `dovetail build` sorts its options */
    snprintf(include, sizeof include, "-include%s", paths->header);
    const char *const begin[] = { "dovetail", "build", "--debug", "-X", SANITIZER_FLAGS, "-X", SANITIZE_TRAP_FLAG, "-o",
        paths->binary },
                      *const end[] = { "-X", COVERAGE_FLAG, "-X", include, NULL };
    enum { BEGIN = sizeof begin / sizeof *begin };
    size_t nflags = 0, nsources = 0;
    while (job->op->build_flags && job->op->build_flags[nflags])
        nflags++;
    while (job->op->sources[nsources])
        nsources++;
    const size_t marks_at = BEGIN + nflags + nsources;
    const char **argv = calloc(1, sizeof begin + (nflags + nsources) * sizeof *argv + sizeof end);
    if (!argv)
        return false;
    memcpy(argv, begin, sizeof begin);
    for (size_t i = 0; i < nflags; i++)
        argv[BEGIN + i] = job->op->build_flags[i];
    memcpy(argv + BEGIN + nflags, job->op->sources, nsources * sizeof *argv);
    memcpy(argv + marks_at, end, sizeof end);
    const bool has_coverage = check_try_write_coverage_files(paths->header, paths->map);
    if (access(paths->binary, R_OK) && has_coverage)
        free(undefined_run_and_copy_output(job, argv, NULL));
    argv[marks_at] = NULL;
    if (access(paths->binary, R_OK)) {
        char *output = undefined_run_and_copy_output(job, argv, NULL);
        undefined_copy_error_line(output, error, 300);
        free(output);
    }
    free(argv);
    return !access(paths->binary, R_OK);
}

/* Builds the binary with traps and runs its cases in another process. Fails the job for a kernel that trapped, and records in the
 * report the lines that no case reached. */
static void undefined_check(check_job *job)
{
    static build_paths paths;
    char seed[24], lines[128], omitted[160], error[300] = "", loop[96] = "", *answer = NULL;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    const bool is_built = undefined_try_build_with_traps(job, &paths, error);
    const char *const argv[] = { "dovetail", "check", "--json", "--only", "runs", "--seed", seed, "--op", job->op->name,
        paths.binary, NULL };
    const check_json *report = is_built && (answer = undefined_run_and_copy_output(job, argv, paths.map))
        ? check_json_parse(answer)
        : NULL;
    const check_json *results = check_json_find_member(report, "results");
    if (!is_built)
        check_report_unchecked(job, "it could not be built with " SANITIZER_FLAGS "%s%s", *error ? ": " : "", error);
    else if (!results)
        check_report_unchecked(job, "its cases were run with " SANITIZER_FLAGS ", and gave no report: %s",
            answer && strlen(answer) == MAX_OUTPUT ? "it was too long" : "that process did not end by itself");
    int64_t all_refused = 0;
    for (size_t i = 0; i < check_json_count_elements(results); i++) {
        const check_json *result = check_json_find_element(results, i), *cases = check_json_find_member(result, "cases"),
                         *nrefused = check_json_find_member(result, "refused");
        all_refused += nrefused ? nrefused->int_value : 0;
        const char *message = check_json_find_string(result, "message"), *case_text = check_json_find_string(result, "case"),
                   *kernel_name = check_json_find_string(result, "kernel");
        job->result->tried_cases += cases ? (uint32_t)cases->int_value : 0;
        if (message && (!strncmp(message, "SIGILL", 6) || !strncmp(message, "SIGTRAP", 7)))
            check_fail(job, "undefined behaviour",
                "kernel %s does what C leaves undefined: an index past an array or variable of its own, a shift by too much, a "
                "pointer that is null or misaligned, or a NaN or number out of range that becomes an integer; with %s",
                kernel_name ? kernel_name : "", case_text ? case_text : "every case");
    }
    free(answer);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        check_print_unreached_lines(paths.binary, paths.map, job->op->sources, lines, sizeof lines, loop, sizeof loop);
    if (job->result->outcome == CHECK_OUTCOME_PASS && *loop && 2 * all_refused >= (int64_t)job->result->tried_cases) {
        job->result->nothing_checked = true;
        check_report_unchecked(job,
            "the kernel refused %lld of %u cases, and no case reached the loop in %s: facts on contents, such as "
            "sorted(offsets) or ids.values < n, would declare which it accepts",
            (long long)all_refused, job->result->tried_cases, loop);
    }
    snprintf(omitted, sizeof omitted, "lines that no case reached: %s", lines);
    if (job->result->outcome == CHECK_OUTCOME_PASS && *lines)
        check_set_omitted(job, omitted);
}

/* Returns why the property does not apply to an operator: it has no source, or does not load. NULL: it applies. */
static const char *undefined_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    (void)kernel;
    return op->sources ? NULL : op->load_error ? "it does not load (see binding)" : "a binary was given: it takes the C files";
}

const check_property check_property_undefined = {
    .name = "undefined",
    .description = "kernels do nothing that C leaves undefined, as far as the compiler can watch it",
    .find_inapplicable_reason = undefined_find_inapplicable_reason,
    .check_without_cases = undefined_check,
};
