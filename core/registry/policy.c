/* Policy: decides for each operator whether its kernels or its decomposition run.
 *
 * There are four layers: the thread's, the process's, DOVETAIL_OPS, and the file that DOVETAIL_POLICY names. The first layer
 * that is set decides alone. In a layer a name with namespace wins over a name without, and both over the words all, none
 * and vllm-default. Without any of these three words operators are on. vllm-default is vLLM's rule: operators are off if a
 * compiler fuses decompositions.
 *
 * An operator caches its two decisions (the host fuses, or not) with a generation, which changes whenever a layer changes.
 * So a call costs one comparison and one count. While any thread has a policy, decisions are not cached. Counts are exact
 * for calls of one thread; calls that race on one operator may lose counts, since a count is not one atomic operation. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "registry/registry_internal.h"

typedef struct policy_word {
    bool on;
    char *name;
} policy_word;
enum policy_base { BASE_NONE_GIVEN, BASE_ALL, BASE_NONE, BASE_VLLM };
static const char *const policy_base_words[] = { NULL, "all", "none", "vllm-default" };
typedef struct policy {
    enum policy_base base;
    policy_word *words;
    size_t n;
} policy;

static pthread_rwlock_t policy_rwlock = PTHREAD_RWLOCK_INITIALIZER; /* protects the three layers that threads share */
static policy *process_policy, *environment_policy, *file_policy;
static int environment_status;
static char environment_error[512];
static atomic_uint_fast64_t policy_generation = 1; /* never 0, which an operator has before its first decision */
static unsigned threads_with_policy;               /* number of threads with a policy; protected by policy_rwlock */
enum { CACHE_NOTHING = -1 };
static atomic_int_fast64_t cacheable_generation =
    1; /* the generation whose decisions operators may cache; CACHE_NOTHING while a thread has a policy */
static _Thread_local policy *thread_policy;
static pthread_key_t thread_key; /* its destructor frees a thread's policy when the thread ends */
static pthread_once_t policy_once = PTHREAD_ONCE_INIT;

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

static bool policy_is_separator(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* True if the text is "name" or "ns::name". */
static bool policy_is_name(const char *s, size_t size)
{
    size_t colons = 0;
    for (size_t i = 0; i < size; i++) {
        const char c = s[i];
        if (c == ':' && i + 1 < size && s[i + 1] == ':' && i && i + 2 < size) {
            colons++;
            i++;
        } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) {
            return false;
        }
    }
    return size && colons <= 1;
}

enum { MAX_WORDS = 4096 }; /* maximum number of names: each new name is compared with all earlier ones */

/* Adds "+name" or "-name" of `size` characters to a policy. Fails for a malformed name, and if the policy has the name with
 * the other sign. */
static int policy_add_name(policy *p, const char *signed_name, size_t size)
{
    if (!policy_is_name(signed_name + 1, size - 1))
        return dv_fail(
            DV_EINVAL, "policy: '%.*s' is not %cname or %cns::name", (int)size, signed_name, *signed_name, *signed_name);
    for (size_t i = 0; i < p->n; i++)
        if (strlen(p->words[i].name) == size - 1 && !memcmp(p->words[i].name, signed_name + 1, size - 1)) {
            if (p->words[i].on == (*signed_name == '+'))
                return DV_OK;
            return dv_fail(DV_EINVAL, "policy: both +%s and -%s", p->words[i].name, p->words[i].name);
        }
    if (p->n == MAX_WORDS)
        return dv_fail(DV_ELIMIT, "policy: more than %d names of operators, the first one too many is '%.*s'", MAX_WORDS,
            (int)size, signed_name);
    policy_word *grown = dv__realloc(p->words, (p->n + 1) * sizeof *grown);
    if (!grown)
        return DV_ENOMEM;
    p->words = grown;
    char *name = dv__strndup(signed_name + 1, size - 1);
    if (!name)
        return DV_ENOMEM;
    p->words[p->n++] = (policy_word){ *signed_name == '+', name };
    return DV_OK;
}

/* Adds a word of `size` characters to a policy: all, none, vllm-default, +name or -name. Returns a status. */
static int policy_add_word(policy *p, const char *word, size_t size)
{
    for (enum policy_base b = BASE_ALL; b <= BASE_VLLM; b++) {
        if (strlen(policy_base_words[b]) != size || memcmp(word, policy_base_words[b], size) != 0)
            continue;
        if (p->base)
            return dv_fail(DV_EINVAL, "policy: '%s' after '%s': expected one of all, none and vllm-default", policy_base_words[b],
                policy_base_words[p->base]);
        p->base = b;
        return DV_OK;
    }
    if (*word == '+' || *word == '-')
        return policy_add_name(p, word, size);
    return dv_fail(DV_EINVAL, "policy: expected all, none, vllm-default, +name or -name, found '%.*s'", (int)size, word);
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
        while (*at && !policy_is_separator(*at) && *at != '#')
            at++;
        if (at > begin)
            status = policy_add_word(p, begin, (size_t)(at - begin));
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

enum { MAX_POLICY_FILE_SIZE = 1 << 20 };

/* Reads a policy file. Fails unless the path is a regular file of at most MAX_POLICY_FILE_SIZE bytes: reading a device or a
 * pipe may never end. */
static int policy_read_file(const char *path, char **out)
{
    *out = NULL;
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool regular = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    dv__strbuf text = { 0 };
    char buffer[4096];
    ssize_t n = regular ? 1 : -1;
    size_t size = 0;
    while (n > 0 && size <= MAX_POLICY_FILE_SIZE) {
        if ((n = read(fd, buffer, sizeof buffer)) > 0)
            dv__strbuf_append(&text, buffer, (size_t)n);
        size += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    if (fd >= 0)
        close(fd);
    if (!n)
        return dv__strbuf_detach(&text, out);
    dv__strbuf_deinit(&text);
    if (n > 0)
        return dv_fail(DV_ELIMIT, "policy file %s: more than %d bytes", path, MAX_POLICY_FILE_SIZE);
    return dv_fail(DV_EIO, "policy file %s cannot be read%s", path, fd >= 0 && !regular ? ": it is not a regular file" : "");
}

/* Reads the policy file at `path` to a new policy, *out. Returns a status. */
static int policy_read_and_parse_file(const char *path, policy **out)
{
    *out = NULL;
    char *text;
    int status = policy_read_file(path, &text);
    if (status)
        return status;
    status = policy_parse(text, out);
    dv__free(text);
    return status ? dv__fail_add_context(status, "%s", path) : DV_OK;
}

/* ---- The environment, once ---- */

/* Starts a new generation after a layer has changed. thread_policies_added: how many more threads have a policy than before
 * (-1, 0 or 1). Requires policy_rwlock. */
static void policy_start_new_generation(int thread_policies_added)
{
    threads_with_policy += (unsigned)thread_policies_added;
    const uint64_t now = atomic_fetch_add(&policy_generation, 1) + 1;
    atomic_store(&cacheable_generation, threads_with_policy ? CACHE_NOTHING : (int64_t)now);
}

static void policy_free_thread_policy(void *p)
{
    policy_free(p);
    pthread_rwlock_wrlock(&policy_rwlock);
    policy_start_new_generation(-1);
    pthread_rwlock_unlock(&policy_rwlock);
}

/* Reads DOVETAIL_OPS, DOVETAIL_POLICY and DOVETAIL_ISA, once in a process. A failure is stored in environment_status and
 * environment_error. */
static void policy_read_environment(void)
{
    pthread_key_create(&thread_key, policy_free_thread_policy);
    const char *ops = getenv("DOVETAIL_OPS"), *path = getenv("DOVETAIL_POLICY"), *isas = getenv("DOVETAIL_ISA");
    int status = ops ? policy_parse(ops, &environment_policy) : DV_OK;
    if (status)
        dv__fail_add_context(status, "DOVETAIL_OPS");
    else if (path && *path && (status = policy_read_and_parse_file(path, &file_policy)))
        dv__fail_add_context(status, "DOVETAIL_POLICY");
    else if (isas && (status = dv__isa_check_architecture(isas)))
        dv__fail_add_context(status, "DOVETAIL_ISA");
    environment_status = status;
    if (status)
        snprintf(environment_error, sizeof environment_error, "%s", dv_last_error());
}

int dv__policy_init(void)
{
    pthread_once(&policy_once, policy_read_environment);
    return environment_status ? dv_fail(environment_status, "%s", environment_error) : DV_OK;
}

/* ---- Setting ---- */

static void policy_replace_process_policy(policy *owned_policy)
{
    pthread_rwlock_wrlock(&policy_rwlock);
    policy *old = process_policy;
    process_policy = owned_policy;
    policy_start_new_generation(0);
    pthread_rwlock_unlock(&policy_rwlock);
    policy_free(old);
}

int dv_policy_set(const char *text)
{
    policy *p = NULL;
    pthread_once(&policy_once, policy_read_environment);
    const int status = text ? policy_parse(text, &p) : DV_OK;
    if (!status)
        policy_replace_process_policy(p);
    return status;
}

int dv_policy_load(const char *path)
{
    policy *p;
    if (!path)
        return dv_fail(DV_EINVAL, "dv_policy_load: the path is NULL");
    pthread_once(&policy_once, policy_read_environment);
    const int status = policy_read_and_parse_file(path, &p);
    if (!status)
        policy_replace_process_policy(p);
    return status;
}

int dv_policy_set_thread(const char *text)
{
    policy *p = NULL;
    pthread_once(&policy_once, policy_read_environment);
    const int status = text ? policy_parse(text, &p) : DV_OK;
    if (status)
        return status;
    if (pthread_setspecific(thread_key, p)) {
        policy_free(p);
        return dv_fail(DV_ENOMEM, "out of memory");
    }
    policy *old = thread_policy;
    thread_policy = p;
    pthread_rwlock_wrlock(&policy_rwlock);
    policy_start_new_generation((p != NULL) - (old != NULL));
    pthread_rwlock_unlock(&policy_rwlock);
    policy_free(old);
    return DV_OK;
}

/* ---- Deciding ---- */

/* True if a policy's name, "ns::name" or "name", means the operator op_name, "ns::name.overload". */
static bool policy_word_matches_operator(const char *word, const char *op_name)
{
    const char *colons = strstr(op_name, "::"), *base = colons ? colons + 2 : op_name;
    const char *from = strstr(word, "::") ? op_name : base;
    const size_t n = strlen(word);
    return !strncmp(from, word, n) && (!from[n] || from[n] == '.');
}

/* Returns the decision of one layer: of the most specific name, else of all, none or vllm-default. default_base: used if the
 * layer has none of these words, or p is NULL. */
static bool policy_is_enabled_by_layer(const policy *p, const char *op_name, enum policy_base default_base, bool host_fuses)
{
    const policy_word *best = NULL;
    for (size_t i = 0; p && i < p->n; i++)
        if (policy_word_matches_operator(p->words[i].name, op_name) && (!best || strstr(p->words[i].name, "::")))
            best = &p->words[i];
    if (best)
        return best->on;
    const enum policy_base base = p && p->base ? p->base : default_base;
    return base == BASE_ALL || (base == BASE_VLLM && !host_fuses);
}

/* Returns the decision of the first layer that is set: the thread's, the process's, the environment's or the file's. */
static bool policy_is_enabled_by_first_layer(const char *op_name, enum policy_base default_base, bool host_fuses)
{
    if (thread_policy)
        return policy_is_enabled_by_layer(thread_policy, op_name, default_base, host_fuses);
    pthread_once(&policy_once, policy_read_environment);
    pthread_rwlock_rdlock(&policy_rwlock);
    const bool on = policy_is_enabled_by_layer(process_policy ? process_policy
            : environment_policy                              ? environment_policy
                                                              : file_policy,
        op_name, default_base, host_fuses);
    pthread_rwlock_unlock(&policy_rwlock);
    return on;
}

bool dv_policy_is_class_enabled(const char *name, bool host_fuses)
{
    return name && policy_is_enabled_by_first_layer(name, BASE_VLLM, host_fuses);
}

bool dv_policy_is_enabled(const dv_operator *op, bool host_fuses)
{
    if (!op)
        return false;
    if (op->functional_form_of)
        op = op->functional_form_of;
    return !op->decomposition || policy_is_enabled_by_first_layer(op->name, BASE_ALL, host_fuses);
}
uint64_t dv_policy_generation(void) { return atomic_load(&policy_generation); }

/* Decides for hosts that fuse and that do not, and caches both decisions, unless a thread has a policy. Returns the
 * decisions in bits 1 and 0. The generation is read first: if a layer changes in between, the decisions are cached under the
 * old generation. */
static uint64_t policy_decide_both_and_cache(dv_operator *op)
{
    const int64_t now = atomic_load(&cacheable_generation);
    const uint64_t decisions = (dv_policy_is_enabled(op, true) ? 2u : 0u) | (dv_policy_is_enabled(op, false) ? 1u : 0u);
    if (now == CACHE_NOTHING)
        return decisions;
    const uint64_t fresh = (uint64_t)now << 2 | decisions;
    atomic_store_explicit(&op->policy_cache, fresh, memory_order_relaxed);
    return fresh;
}

bool dv__policy_decide_if_enabled(dv_operator *op, bool host_fuses)
{
    uint64_t cached = atomic_load_explicit(&op->policy_cache, memory_order_relaxed);
    if ((int64_t)(cached >> 2) != atomic_load_explicit(&cacheable_generation, memory_order_relaxed))
        cached = policy_decide_both_and_cache(op);
    const bool on = cached >> host_fuses & 1;
    atomic_uint_fast64_t *count = on ? &op->enabled_calls : &op->disabled_calls;
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    return on;
}

/* ---- Counts ---- */

typedef struct policy_counter {
    int (*fn)(void *, const char *, uint64_t, uint64_t);
    void *user;
} policy_counter;

static int policy_report_count(void *user, dv_operator *op)
{
    const policy_counter *c = user;
    return c->fn(c->user, op->name, atomic_load(&op->enabled_calls), atomic_load(&op->disabled_calls));
}

int dv_policy_counts(int (*fn)(void *user, const char *name, uint64_t enabled, uint64_t disabled), void *user)
{
    DV__REQUIRE(fn, "function");
    policy_counter c = { fn, user };
    return dv_for_each_operator(policy_report_count, &c);
}
