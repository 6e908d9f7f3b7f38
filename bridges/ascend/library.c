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

enum { MOST = 64, LONGEST = 4096 };
static struct {
    pthread_mutex_t lock;
    bool open;
    void *runtime, *operators[MOST];
    size_t n;
    char places[2048]; /* each place and what became of it */
} cann = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void note(const char *place, const char *what)
{
    const size_t used = strlen(cann.places), room = sizeof cann.places - used;
    if (snprintf(cann.places + used, room, "%s%s (%s)", used ? "; " : "", place, what) >= (int)room)
        memcpy(cann.places + sizeof cann.places - 4, "...", 4);
}

static const char *reason(const char *path, const char *why)
{
    if (!why)
        return "not usable";
    if (!strstr(why, "No such file") || strncmp(why, path, strlen(path))) /* or a library that it needs is missing */
        return why;
    return strchr(path, '/') && !access(path, F_OK) ? "made for another processor" : "not there";
}

static void *open_library(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle)
        note(path, reason(path, dlerror()));
    return handle;
}

static void add(const char *path)
{
    void *handle = cann.n < MOST ? open_library(path) : NULL;
    for (size_t i = 0; handle && i < cann.n; i++)
        if (cann.operators[i] == handle)
            return;
    if (handle) {
        note(path, "open");
        cann.operators[cann.n++] = handle;
    }
}

/* A vendor's folder: another user must not be able to put code into this process. */
static void add_vendor(const char *folder)
{
    char path[LONGEST];
    if (snprintf(path, sizeof path, "%s/op_api/lib", folder) >= (int)sizeof path)
        return;
    if (access(path, F_OK)) {
        note(path, "not there");
        return;
    }
    if (dv_folder_check(path, DV_FOLDER_ANY_ROOT)) {
        note(path, dv_last_error());
        return;
    }
    strncat(path, "/libcust_opapi.so", sizeof path - strlen(path) - 1);
    add(path);
}

/* Call fn with each part of text between separators, without spaces around it. */
static void each_part(const char *text, char separator, const char *prefix)
{
    while (text && *text) {
        const char *end = strchr(text, separator), *stop = end ? end : text + strlen(text);
        while (text < stop && strchr(" \t\r\n", *text))
            text++;
        while (stop > text && strchr(" \t\r\n", stop[-1]))
            stop--;
        char path[LONGEST];
        if (stop > text && snprintf(path, sizeof path, "%s%.*s", prefix, (int)(stop - text), text) < (int)sizeof path)
            add_vendor(path);
        text = end ? end + 1 : NULL;
    }
}

static void add_configured(const char *opp)
{
    char path[LONGEST], prefix[LONGEST], line[LONGEST];
    if (snprintf(path, sizeof path, "%s/vendors/config.ini", opp) >= (int)sizeof path ||
        snprintf(prefix, sizeof prefix, "%s/vendors/", opp) >= (int)sizeof prefix)
        return;
    FILE *file = fopen(path, "re");
    if (!file) {
        note(path, "not there");
        return;
    }
    bool found = false;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "load_priority", 13) && strchr(line, '=')) {
            each_part(strchr(line, '=') + 1, ',', prefix);
            found = true;
        }
    fclose(file);
    if (!found)
        note(path, "without load_priority, so no vendor is searched");
}

static int is_feature(const struct dirent *e) { return !strncmp(e->d_name, "libopapi_", 9) && strstr(e->d_name, ".so") != NULL; }

static void add_own(const char *home)
{
    char path[LONGEST];
    if (home && snprintf(path, sizeof path, "%s/lib64/libopapi.so", home) < (int)sizeof path)
        add(path);
    add("libopapi.so");
    struct dirent **found = NULL;
    if (!home || snprintf(path, sizeof path, "%s/lib64", home) >= (int)sizeof path)
        return;
    const int n = scandir(path, &found, is_feature, alphasort);
    for (int i = 0; i < n; i++) {
        if (snprintf(path, sizeof path, "%s/lib64/%s", home, found[i]->d_name) < (int)sizeof path)
            add(path);
        free(found[i]);
    }
    free(found);
}

dv__function dv__acl_find(const char *name)
{
    for (size_t i = 0; i < cann.n; i++) {
        void *p = dlsym(cann.operators[i], name);
        dv__function f;
        memcpy(&f, &p, sizeof f); /* POSIX: a function's address fits a data pointer */
        if (p)
            return f;
    }
    return NULL;
}

const char *dv__acl_places(void) { return cann.places; }

const char *dv__acl_message(void)
{
    const char *text = dv__acl.aclGetRecentErrMsg ? dv__acl.aclGetRecentErrMsg() : NULL;
    return text && *text ? text : "no message from CANN";
}

static dv__function runtime_find(const char *name)
{
    void *p = dlsym(cann.runtime, name);
    dv__function f;
    memcpy(&f, &p, sizeof f);
    return f;
}

#define FIND_RUNTIME(name) runtime_find(name)
#define FIND_NN(name) dv__acl_find(name)
enum { OPTIONAL, REQUIRED };

static int find_functions(void)
{
#define ACL(library, need, result, name, parameters)            \
    dv__acl.name = (result(*) parameters)FIND_##library(#name); \
    if (!dv__acl.name && (need) == REQUIRED)                    \
        return dv_fail(DV_ENOENT, "Ascend: CANN's libraries have no %s: %s", #name, cann.places);
#include "acl.def"
#undef ACL
    return DV_OK;
}

static int open_all(void)
{
    char path[LONGEST];
    const char *home = getenv("ASCEND_HOME_PATH"), *opp = getenv("ASCEND_OPP_PATH");
    cann.places[0] = 0;
    if (!cann.runtime && home && snprintf(path, sizeof path, "%s/lib64/libascendcl.so", home) < (int)sizeof path)
        cann.runtime = open_library(path);
    if (!cann.runtime)
        cann.runtime = open_library("libascendcl.so");
    if (!cann.runtime)
        return dv_fail(DV_ENOENT, "Ascend: no libascendcl.so: %s. Is CANN's set_env.sh sourced?", cann.places);
    if (!cann.n) {
        each_part(getenv("ASCEND_CUSTOM_OPP_PATH"), ':', "");
        if (opp)
            add_configured(opp);
        add_own(home);
    }
    return cann.n ? find_functions() : dv_fail(DV_ENOENT, "Ascend: no library of operators: %s", cann.places);
}

int dv__acl_open(void)
{
    pthread_mutex_lock(&cann.lock);
    const int status = cann.open ? DV_OK : open_all();
    cann.open = !status;
    pthread_mutex_unlock(&cann.lock);
    return status;
}
