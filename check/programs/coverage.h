/* Before each C file of an operator that is built with -fsanitize-coverage=trace-pc: which of its blocks run, in the file that
 * DOVETAIL_COVERAGE names, also of processes that crash. A byte for each address behind a call of the function below; the first
 * eight are the function's own. The definitions are weak, so that several files share one. No header of the system is included:
 * it would come before what the operator's file defines. */
#pragma once
extern char *getenv(const char *name);
extern int open(const char *path, int flags, ...);
extern void *mmap(void *address, unsigned long size, int protection, int flags, int fd, long offset);
extern const char __ehdr_start __attribute__((visibility("hidden")));
#ifdef __clang__
#define DV__NOT_COVERED __attribute__((no_sanitize("coverage"), weak, visibility("hidden")))
#else
#define DV__NOT_COVERED __attribute__((no_sanitize_coverage, weak, visibility("hidden")))
#endif
enum { DV__COVERED = 1 << 22 };
__attribute__((weak, visibility("hidden"))) unsigned char *dv__covered;
DV__NOT_COVERED void __sanitizer_cov_trace_pc(void);
DV__NOT_COVERED void __sanitizer_cov_trace_pc(void)
{
    const unsigned long at = (unsigned long)__builtin_return_address(0) - (unsigned long)&__ehdr_start;
    if (dv__covered && at < DV__COVERED)
        dv__covered[at] = 1;
}
DV__NOT_COVERED __attribute__((constructor)) void dv__cover(void);
DV__NOT_COVERED void dv__cover(void)
{
    const char *path = getenv("DOVETAIL_COVERAGE");
    const int fd = path ? open(path, 2) : -1;
    void *const p = fd < 0 ? (void *)-1 : mmap((void *)0, DV__COVERED, 3, 1, fd, 0); /* to read and write, shared */
    if (p == (void *)-1)
        return;
    dv__covered = (unsigned char *)p;
    *(unsigned long *)p = (unsigned long)&__sanitizer_cov_trace_pc - (unsigned long)&__ehdr_start;
}
