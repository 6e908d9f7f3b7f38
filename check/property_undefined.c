/* undefined: kernels do nothing that C leaves undefined. Where the source is given it is built once more, so that what the
 * compiler can watch (an index past a local array or variable, a shift by too much, a misaligned or null pointer) traps; then
 * another process of this command makes the cases of `runs` with that build. Signed overflow is left out: sums of integer tensors
 * wrap on purpose. The same build marks which of its blocks run (coverage.c). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define WATCHED "-fsanitize=bounds,object-size,shift,alignment,null,vla-bound,unreachable,return"
#define TRAPS "-fsanitize-undefined-trap-on-error"
#define COVERAGE "-fsanitize-coverage=trace-pc"
enum { MOST_OUTPUT = 1 << 22 };

/* What this command prints with these arguments; NULL: it could not be run. The caller frees it. map: NULL, or where it marks
 * what it reaches. */
static char *ask(check_job *job, const char *const *argv, const char *map)
{
    int fds[2], status;
    size_t size = 0;
    char *text = malloc(MOST_OUTPUT + 1), numbers[8192] = "";
    if (!text || pipe(fds))
        return free(text), NULL;
    for (size_t i = 0, n = 0; job->op->sources[i] && n < sizeof numbers; i++) /* the sizes are those of a check of the sources */
        n += (size_t)snprintf(numbers + n, sizeof numbers - n, "%s\n", job->op->sources[i]);
    const pid_t pid = check_fork();
    if (!pid) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        if (map) {
            setenv("DOVETAIL_COVERAGE", map, 1);
            setenv("DOVETAIL_NUMBERS_OF", numbers, 1);
        }
        execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fds[1]);
    for (ssize_t n = 1; pid > 0 && size < MOST_OUTPUT && n;) { /* it has time limits of its own */
        struct pollfd ready = { .fd = fds[0], .events = POLLIN };
        job->result->step++;
        n = poll(&ready, 1, 500) > 0 ? read(fds[0], text + size, MOST_OUTPUT - size) : -1;
        size += n > 0 ? (size_t)n : 0;
    }
    close(fds[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    text[size] = 0;
    return text;
}

/* Paths beside the operator's own binary, in the folder of this check. */
typedef struct paths { char binary[4096], header[4096], map[4096]; } paths;

/* The binary that traps, once for all operators of a library; false: it could not be built. With marks, if the compiler has them.
 */
static bool build(check_job *job, paths *p)
{
    const int n = snprintf(p->binary, sizeof p->binary, "%s.watched.so", job->op->path);
    snprintf(p->header, sizeof p->header, "%s.%d.h", job->op->path, (int)getpid()); /* several operators may be checked at once */
    snprintf(p->map, sizeof p->map, "%s.%d.covered", job->op->path, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof p->binary - 24)
        return false;
    char include[sizeof p->header + sizeof "-include"];
    snprintf(include, sizeof include, "-include%s", p->header); /* one word: the build sorts its options */
    const char *const begin[] = { "dovetail", "build", "--debug", "-X", WATCHED, "-X", TRAPS, "-o", p->binary },
                      *const end[] = { "-X", COVERAGE, "-X", include, NULL };
    enum { BEGIN = sizeof begin / sizeof *begin };
    size_t nflags = 0, nsources = 0;
    while (job->op->flags && job->op->flags[nflags])
        nflags++;
    while (job->op->sources[nsources])
        nsources++;
    const size_t marks_at = BEGIN + nflags + nsources;
    const char **argv = calloc(1, sizeof begin + (nflags + nsources) * sizeof *argv + sizeof end);
    if (!argv)
        return false;
    memcpy(argv, begin, sizeof begin);
    for (size_t i = 0; i < nflags; i++)
        argv[BEGIN + i] = job->op->flags[i];
    memcpy(argv + BEGIN + nflags, job->op->sources, nsources * sizeof *argv);
    memcpy(argv + marks_at, end, sizeof end);
    const bool marks = check_coverage_begin(p->header, p->map);
    if (access(p->binary, R_OK) && marks)
        free(ask(job, argv, NULL));
    argv[marks_at] = NULL;
    if (access(p->binary, R_OK))
        free(ask(job, argv, NULL));
    free(argv);
    return !access(p->binary, R_OK);
}

static void whole(check_job *job)
{
    static paths p;
    char seed[24], lines[128], words[160], loop[96] = "", *answer = NULL;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    const bool built = build(job, &p);
    const char *const argv[] = { "dovetail", "check", "--json", "--only", "runs", "--seed", seed, "--op", job->op->name, p.binary,
        NULL };
    const check_json *report = built && (answer = ask(job, argv, p.map)) ? check_json_parse(answer) : NULL;
    const check_json *results = check_json_get(report, "results");
    if (!results)
        check_not(job, "it could not be built with " WATCHED);
    int64_t refused = 0;
    for (size_t i = 0; i < check_json_size(results); i++) {
        const check_json *r = check_json_at(results, i), *cases = check_json_get(r, "cases"), *n = check_json_get(r, "refused");
        refused += n ? n->i : 0;
        const char *message = check_json_text(r, "message"), *with = check_json_text(r, "case"), *row = check_json_text(r, "row");
        job->result->cases += cases ? (uint32_t)cases->i : 0;
        if (message && (!strncmp(message, "SIGILL", 6) || !strncmp(message, "SIGTRAP", 7)))
            check_fail(job, "undefined behaviour",
                "row %s does what C leaves undefined: an index past an array or variable of its own, a shift by too much, or a "
                "pointer that is null or misaligned; with %s",
                row ? row : "", with ? with : "every case");
    }
    free(answer);
    if (job->result->outcome == CHECK_PASS)
        check_unreached(p.binary, p.map, job->op->sources, lines, sizeof lines, loop, sizeof loop);
    if (job->result->outcome == CHECK_PASS && *loop && 2 * refused >= (int64_t)job->result->cases) {
        job->result->unmade = true;
        check_not(job,
            "the kernel refused %lld of %u cases, and no case reached the loop in %s: facts on contents, such as "
            "sorted(offsets) or ids.values < n, would declare which it accepts",
            (long long)refused, job->result->cases, loop);
    }
    snprintf(words, sizeof words, "lines that no case reached: %s", lines);
    if (job->result->outcome == CHECK_PASS && *lines)
        check_left_out(job, words);
}

static const char *applies(const check_op *op, const check_row *row)
{
    (void)row;
    return op->sources ? NULL : op->refused ? "it does not load (see binding)" : "a binary was given: it takes the C files";
}

const check_property check_property_undefined = {
    .name = "undefined",
    .promise = "kernels do nothing that C leaves undefined, as far as the compiler can watch it",
    .applies = applies,
    .whole = whole,
};
