/* CANN's libraries: opened once and never closed, since executors and streams live in them.
 *
 * Operators are searched for in this order, which is torch_npu's: libraries of $ASCEND_CUSTOM_OPP_PATH (folders separated by
 * ':'), those of the vendors that $ASCEND_OPP_PATH/vendors/config.ini lists in load_priority, libopapi.so, and libopapi_*.so
 * beside it. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ascend.h"

dv_acl dv__acl;

enum { MAX_LIBRARIES = 64, MAX_PATH_SIZE = 4096 };
static struct {
    pthread_mutex_t lock;
    bool open;
    void *runtime, *operators[MAX_LIBRARIES];
    size_t n;
    char search_log[2048]; /* each path that was searched, and what was found there */
} cann = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Appends "searched_path (result)" to the search log, which ends with "..." once it is full. */
static void cann_log_search(const char *searched_path, const char *result)
{
    const size_t used = strlen(cann.search_log), capacity = sizeof cann.search_log - used;
    if (snprintf(cann.search_log + used, capacity, "%s%s (%s)", used ? "; " : "", searched_path, result) >= (int)capacity)
        memcpy(cann.search_log + sizeof cann.search_log - 4, "...", 4);
}

/* Returns the text for the search log why a library did not open: dlopen()'s message, or a shorter reason. */
static const char *cann_explain_open_failure(const char *path, const char *dl_error)
{
    if (!dl_error)
        return "not usable";
    if (!strstr(dl_error, "No such file") ||
        strncmp(dl_error, path, strlen(path))) /* the file is there, but a library that it needs may be missing */
        return dl_error;
    return strchr(path, '/') && !access(path, F_OK) ? "made for another processor" : "not there";
}

/* Opens a library and returns its handle; NULL: the reason is in the search log. */
static void *cann_open_library(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle)
        cann_log_search(path, cann_explain_open_failure(path, dlerror()));
    return handle;
}

/* Opens a library of operators and adds it to those that are searched, unless it is among them already. */
static void cann_add_library(const char *path)
{
    void *handle = cann.n < MAX_LIBRARIES ? cann_open_library(path) : NULL;
    for (size_t i = 0; handle && i < cann.n; i++)
        if (cann.operators[i] == handle)
            return;
    if (handle) {
        cann_log_search(path, "open");
        cann.operators[cann.n++] = handle;
    }
}

/* Adds the library of a vendor's folder. A folder that another user can write to is left out, since its code would run in this
 * process. */
static void cann_add_vendor(const char *folder)
{
    char path[MAX_PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/op_api/lib", folder) >= (int)sizeof path)
        return;
    if (access(path, F_OK)) {
        cann_log_search(path, "not there");
        return;
    }
    if (dv_folder_check(path, DV_FOLDER_ANY_ROOT)) {
        cann_log_search(path, dv_last_error());
        return;
    }
    strncat(path, "/libcust_opapi.so", sizeof path - strlen(path) - 1);
    cann_add_library(path);
}

/* Adds the vendors that are listed in a text between separators, each as the folder prefix + its name without spaces. text may be
 * NULL. */
static void cann_add_listed_vendors(const char *text, char separator, const char *prefix)
{
    while (text && *text) {
        const char *end = strchr(text, separator), *stop = end ? end : text + strlen(text);
        while (text < stop && strchr(" \t\r\n", *text))
            text++;
        while (stop > text && strchr(" \t\r\n", stop[-1]))
            stop--;
        char path[MAX_PATH_SIZE];
        if (stop > text && snprintf(path, sizeof path, "%s%.*s", prefix, (int)(stop - text), text) < (int)sizeof path)
            cann_add_vendor(path);
        text = end ? end + 1 : NULL;
    }
}

/* Adds the vendors that vendors/config.ini in $ASCEND_OPP_PATH lists in load_priority, in this order. */
static void cann_add_configured_vendors(const char *opp_path)
{
    char path[MAX_PATH_SIZE], prefix[MAX_PATH_SIZE], line[MAX_PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/vendors/config.ini", opp_path) >= (int)sizeof path ||
        snprintf(prefix, sizeof prefix, "%s/vendors/", opp_path) >= (int)sizeof prefix)
        return;
    FILE *file = fopen(path, "re");
    if (!file) {
        cann_log_search(path, "not there");
        return;
    }
    bool found = false;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "load_priority", 13) && strchr(line, '=')) {
            cann_add_listed_vendors(strchr(line, '=') + 1, ',', prefix);
            found = true;
        }
    fclose(file);
    if (!found)
        cann_log_search(path, "without load_priority, so no vendor is searched");
}

/* The filter for scandir(): not 0 for a file libopapi_*.so. */
static int cann_is_opapi_library(const struct dirent *e)
{
    return !strncmp(e->d_name, "libopapi_", 9) && strstr(e->d_name, ".so") != NULL;
}

/* Adds CANN's own libraries of operators: libopapi.so, then libopapi_*.so in the folder cann_home/lib64. */
static void cann_add_builtin_libraries(const char *cann_home)
{
    char path[MAX_PATH_SIZE];
    if (cann_home && snprintf(path, sizeof path, "%s/lib64/libopapi.so", cann_home) < (int)sizeof path)
        cann_add_library(path);
    cann_add_library("libopapi.so");
    struct dirent **found = NULL;
    if (!cann_home || snprintf(path, sizeof path, "%s/lib64", cann_home) >= (int)sizeof path)
        return;
    const int n = scandir(path, &found, cann_is_opapi_library, alphasort);
    for (int i = 0; i < n; i++) {
        if (snprintf(path, sizeof path, "%s/lib64/%s", cann_home, found[i]->d_name) < (int)sizeof path)
            cann_add_library(path);
        free(found[i]);
    }
    free(found);
}

dv__any_function dv__acl_find_function(const char *name)
{
    for (size_t i = 0; i < cann.n; i++) {
        void *p = dlsym(cann.operators[i], name);
        dv__any_function f;
        memcpy(&f, &p, sizeof f); /* copied by memcpy(): POSIX guarantees that a function's address fits a data pointer */
        if (p)
            return f;
    }
    return NULL;
}

const char *dv__acl_get_search_log(void) { return cann.search_log; }

const char *dv__acl_get_last_message(void)
{
    const char *text = dv__acl.aclGetRecentErrMsg ? dv__acl.aclGetRecentErrMsg() : NULL;
    return text && *text ? text : "no message from CANN";
}

/* Returns a function of libascendcl.so; NULL: it has none of this name. */
static dv__any_function cann_find_runtime(const char *name)
{
    void *p = dlsym(cann.runtime, name);
    dv__any_function f;
    memcpy(&f, &p, sizeof f);
    return f;
}

#define FIND_RUNTIME(name) cann_find_runtime(name)
#define FIND_NN(name) dv__acl_find_function(name)
enum { OPTIONAL, REQUIRED };

/* Sets the functions of dv__acl. Returns DV_ENOENT if a REQUIRED one is missing. */
static int cann_set_functions(void)
{
#define ACL(library, need, result, name, parameters)            \
    dv__acl.name = (result(*) parameters)FIND_##library(#name); \
    if (!dv__acl.name && (need) == REQUIRED)                    \
        return dv_fail(DV_ENOENT, "Ascend: CANN's libraries have no %s: %s", #name, cann.search_log);
#include "acl.def"
#undef ACL
    return DV_OK;
}

/* Opens CANN's runtime and all libraries of operators, and sets dv__acl. Returns a status. */
static int cann_open_all(void)
{
    char path[MAX_PATH_SIZE];
    const char *home = getenv("ASCEND_HOME_PATH"), *opp = getenv("ASCEND_OPP_PATH");
    cann.search_log[0] = 0;
    if (!cann.runtime && home && snprintf(path, sizeof path, "%s/lib64/libascendcl.so", home) < (int)sizeof path)
        cann.runtime = cann_open_library(path);
    if (!cann.runtime)
        cann.runtime = cann_open_library("libascendcl.so");
    if (!cann.runtime)
        return dv_fail(DV_ENOENT, "Ascend: no libascendcl.so: %s. Is CANN's set_env.sh sourced?", cann.search_log);
    if (!cann.n) {
        cann_add_listed_vendors(getenv("ASCEND_CUSTOM_OPP_PATH"), ':', "");
        if (opp)
            cann_add_configured_vendors(opp);
        cann_add_builtin_libraries(home);
    }
    return cann.n ? cann_set_functions() : dv_fail(DV_ENOENT, "Ascend: no library of operators: %s", cann.search_log);
}

int dv__acl_open_once(void)
{
    pthread_mutex_lock(&cann.lock);
    const int status = cann.open ? DV_OK : cann_open_all();
    cann.open = !status;
    pthread_mutex_unlock(&cann.lock);
    return status;
}
