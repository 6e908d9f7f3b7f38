/* Policy: which operators run their own kernels.
 *
 * Of four layers (the thread's, the process's, DOVETAIL_OPS, the file that DOVETAIL_POLICY names) the first that is set decides
 * alone. In it a word with a namespace wins over one without, and both over all, none and vllm-default. Without one of these
 * three operators are on. vllm-default is vLLM's rule: off where a compiler will fuse native forms.
 *
 * An operator caches its two decisions (host fuses or not) with the generation they belong to, which changes whenever any layer
 * does; so a call costs one comparison and one count. While any thread has a policy of its own, decisions are not cached. A count
 * is read and written apart: exact from one thread, and calls that race on one operator may lose some, which costs a call
 * nothing. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "registry/internal.h"

typedef struct word {
    bool on;
    char *name;
} word;
enum base { BASE_NONE_GIVEN, BASE_ALL, BASE_NONE, BASE_VLLM };
static const char *const base_words[] = { NULL, "all", "none", "vllm-default" };
typedef struct policy {
    enum base base;
    word *words;
    size_t n;
} policy;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* of the three shared layers */
static policy *process, *environment, *file;
static int environment_status;
static char environment_error[512];
static atomic_uint_fast64_t generation = 1; /* never 0, the initial value in an operator */
static unsigned threads_with_policy;        /* under the lock */
enum { CACHE_NOTHING = -1 };
static atomic_int_fast64_t cacheable = 1; /* the generation whose decisions may be cached */
static _Thread_local policy *of_thread;
static pthread_key_t thread_key; /* frees a thread's policy when it ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- Parsing ---- */

static void policy_free(policy *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        dv__free(p->words[i].name);
    dv__free(p->words);
    dv__free(p);
}

static bool is_separator(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_name(const char *s, size_t n)
{
    size_t colons = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        if (c == ':' && i + 1 < n && s[i + 1] == ':' && i && i + 2 < n) {
            colons++;
            i++;
        } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) {
            return false;
        }
    }
    return n && colons <= 1;
}

enum { MAX_WORDS = 4096 }; /* limit, because each name is compared with all others */

static int add_name(policy *p, const char *s, size_t n)
{
    if (!is_name(s + 1, n - 1))
        return dv_fail(DV_EINVAL, "policy: '%.*s' is not %cname or %cns::name", (int)n, s, *s, *s);
    for (size_t i = 0; i < p->n; i++)
        if (strlen(p->words[i].name) == n - 1 && !memcmp(p->words[i].name, s + 1, n - 1)) {
            if (p->words[i].on == (*s == '+'))
                return DV_OK;
            return dv_fail(DV_EINVAL, "policy: both +%s and -%s", p->words[i].name, p->words[i].name);
        }
    if (p->n == MAX_WORDS)
        return dv_fail(
            DV_ELIMIT, "policy: more than %d names of operators, the first one too many is '%.*s'", MAX_WORDS, (int)n, s);
    word *grown = dv__realloc(p->words, (p->n + 1) * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    p->words = grown;
    char *name = dv__strndup(s + 1, n - 1);
    if (!name)
        return DV_ENOMEM;
    p->words[p->n++] = (word){ *s == '+', name };
    return DV_OK;
}

static int add_word(policy *p, const char *s, size_t n)
{
    for (enum base b = BASE_ALL; b <= BASE_VLLM; b++) {
        if (strlen(base_words[b]) != n || memcmp(s, base_words[b], n) != 0)
            continue;
        if (p->base)
            return dv_fail(DV_EINVAL, "policy: '%s' after '%s': expected one of all, none and vllm-default", base_words[b],
                base_words[p->base]);
        p->base = b;
        return DV_OK;
    }
    if (*s == '+' || *s == '-')
        return add_name(p, s, n);
    return dv_fail(DV_EINVAL, "policy: expected all, none, vllm-default, +name or -name, found '%.*s'", (int)n, s);
}

static int policy_parse(const char *text, policy **out)
{
    *out = NULL;
    policy *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    int status = DV_OK;
    for (const char *at = text; *at && !status;) {
        const char *begin = at;
        if (*at == '#') {
            at += strcspn(at, "\n");
            continue;
        }
        while (*at && !is_separator(*at) && *at != '#')
            at++;
        if (at > begin)
            status = add_word(p, begin, (size_t)(at - begin));
        else
            at++;
    }
    if (status) {
        policy_free(p);
        return status;
    }
    *out = p;
    return DV_OK;
}

enum { POLICY_MOST = 1 << 20 };

/* Only a regular file: reading a device or a pipe may never end. */
static int read_file(const char *path, char **out)
{
    *out = NULL;
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool regular = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    dv__text text = { 0 };
    char buffer[4096];
    ssize_t n = regular ? 1 : -1;
    size_t size = 0;
    while (n > 0 && size <= POLICY_MOST) {
        if ((n = read(fd, buffer, sizeof buffer)) > 0)
            dv__text_put(&text, buffer, (size_t)n);
        size += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    if (fd >= 0)
        close(fd);
    if (!n)
        return dv__text_take(&text, out);
    dv__text_deinit(&text);
    if (n > 0)
        return dv_fail(DV_ELIMIT, "policy file %s: more than %d bytes", path, POLICY_MOST);
    return dv_fail(DV_EIO, "policy file %s cannot be read%s", path, fd >= 0 && !regular ? ": it is not a regular file" : "");
}

static int policy_read(const char *path, policy **out)
{
    *out = NULL;
    char *text;
    int status = read_file(path, &text);
    if (status)
        return status;
    status = policy_parse(text, out);
    dv__free(text);
    return status ? dv__fail_in(status, "%s", path) : DV_OK;
}

/* ---- The environment, once ---- */

/* A layer has changed; threads: the change in the number of threads with a policy of their own. Under the lock. */
static void changed(int threads)
{
    threads_with_policy += (unsigned)threads;
    const uint64_t now = atomic_fetch_add(&generation, 1) + 1;
    atomic_store(&cacheable, threads_with_policy ? CACHE_NOTHING : (int64_t)now);
}

static void end_of_thread(void *p)
{
    policy_free(p);
    pthread_rwlock_wrlock(&lock);
    changed(-1);
    pthread_rwlock_unlock(&lock);
}

static void read_environment(void)
{
    pthread_key_create(&thread_key, end_of_thread);
    const char *ops = getenv("DOVETAIL_OPS"), *path = getenv("DOVETAIL_POLICY"), *isas = getenv("DOVETAIL_ISA");
    int status = ops ? policy_parse(ops, &environment) : DV_OK;
    if (status)
        dv__fail_in(status, "DOVETAIL_OPS");
    else if (path && *path && (status = policy_read(path, &file)))
        dv__fail_in(status, "DOVETAIL_POLICY");
    else if (isas && (status = dv__isa_check(isas)))
        dv__fail_in(status, "DOVETAIL_ISA");
    environment_status = status;
    if (status)
        snprintf(environment_error, sizeof environment_error, "%s", dv_last_error());
}

int dv__policy_init(void)
{
    pthread_once(&once, read_environment);
    return environment_status ? dv_fail(environment_status, "%s", environment_error) : DV_OK;
}

/* ---- Setting ---- */

static void set_process(policy *take)
{
    pthread_rwlock_wrlock(&lock);
    policy *old = process;
    process = take;
    changed(0);
    pthread_rwlock_unlock(&lock);
    policy_free(old);
}

int dv_policy_set(const char *text)
{
    policy *p = NULL;
    pthread_once(&once, read_environment);
    const int status = text ? policy_parse(text, &p) : DV_OK;
    if (!status)
        set_process(p);
    return status;
}

int dv_policy_load(const char *path)
{
    policy *p;
    if (!path)
        return dv_fail(DV_EINVAL, "dv_policy_load: the path is NULL");
    pthread_once(&once, read_environment);
    const int status = policy_read(path, &p);
    if (!status)
        set_process(p);
    return status;
}

int dv_policy_set_thread(const char *text)
{
    policy *p = NULL;
    pthread_once(&once, read_environment);
    const int status = text ? policy_parse(text, &p) : DV_OK;
    if (status)
        return status;
    if (pthread_setspecific(thread_key, p)) {
        policy_free(p);
        return dv_fail(DV_ENOMEM, "out of memory");
    }
    policy *old = of_thread;
    of_thread = p;
    pthread_rwlock_wrlock(&lock);
    changed((p != NULL) - (old != NULL));
    pthread_rwlock_unlock(&lock);
    policy_free(old);
    return DV_OK;
}

/* ---- Deciding ---- */

/* "ns::name.overload" against "ns::name" or "name". */
static bool names(const char *w, const char *op_name)
{
    const char *colons = strstr(op_name, "::"), *base = colons ? colons + 2 : op_name;
    const char *from = strstr(w, "::") ? op_name : base;
    const size_t n = strlen(w);
    return !strncmp(from, w, n) && (!from[n] || from[n] == '.');
}

static bool decide_by(const policy *p, const char *op_name, enum base otherwise, bool host_fuses)
{
    const word *best = NULL;
    for (size_t i = 0; p && i < p->n; i++)
        if (names(p->words[i].name, op_name) && (!best || strstr(p->words[i].name, "::")))
            best = &p->words[i];
    if (best)
        return best->on;
    const enum base base = p && p->base ? p->base : otherwise;
    return base == BASE_ALL || (base == BASE_VLLM && !host_fuses);
}

static bool decide(const char *op_name, enum base otherwise, bool host_fuses)
{
    if (of_thread)
        return decide_by(of_thread, op_name, otherwise, host_fuses);
    pthread_once(&once, read_environment);
    pthread_rwlock_rdlock(&lock);
    const bool on = decide_by(process ? process : environment ? environment : file, op_name, otherwise, host_fuses);
    pthread_rwlock_unlock(&lock);
    return on;
}

bool dv_policy_enabled_class(const char *name, bool host_fuses) { return name && decide(name, BASE_VLLM, host_fuses); }

bool dv_policy_enabled(const dv_operator *op, bool host_fuses)
{
    if (!op)
        return false;
    if (op->functional)
        op = op->functional;
    return !op->native || decide(op->name, BASE_ALL, host_fuses);
}
uint64_t dv_policy_generation(void) { return atomic_load(&generation); }

/* The generation is read before the layers: if one changes in between, the decision is cached under the old generation. */
static uint64_t refresh(dv_operator *op)
{
    const int64_t now = atomic_load(&cacheable);
    const uint64_t decisions = (dv_policy_enabled(op, true) ? 2u : 0u) | (dv_policy_enabled(op, false) ? 1u : 0u);
    if (now == CACHE_NOTHING)
        return decisions;
    const uint64_t fresh = (uint64_t)now << 2 | decisions;
    atomic_store_explicit(&op->policy, fresh, memory_order_relaxed);
    return fresh;
}

bool dv__policy_decide(dv_operator *op, bool host_fuses)
{
    uint64_t cached = atomic_load_explicit(&op->policy, memory_order_relaxed);
    if ((int64_t)(cached >> 2) != atomic_load_explicit(&cacheable, memory_order_relaxed))
        cached = refresh(op);
    const bool on = cached >> host_fuses & 1;
    atomic_uint_fast64_t *count = on ? &op->enabled : &op->disabled;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    return on;
}

/* ---- Counts ---- */

typedef struct counts {
    int (*fn)(void *, const char *, uint64_t, uint64_t);
    void *user;
} counts;

static int count_one(void *user, dv_operator *op)
{
    const counts *c = user;
    return c->fn(c->user, op->name, atomic_load(&op->enabled), atomic_load(&op->disabled));
}

int dv_policy_counts(int (*fn)(void *user, const char *name, uint64_t enabled, uint64_t disabled), void *user)
{
    DV__REQUIRE(fn, "function");
    counts c = { fn, user };
    return dv_each_operator(count_one, &c);
}
