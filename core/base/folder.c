/* Checks that only root and this user can change the contents of a folder.
 *
 * The path is walked from the root, a component at a time. Each folder on the way belongs to root or to this user, and nobody
 * else may write to it, unless it is sticky: in a sticky folder only the owner of an entry may rename or remove it. So once a
 * component has been checked, nobody else can replace it, and the path leads to the same folder from then on. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { MOST_LINKS = 40 };

typedef struct walk {
    const char *path;        /* as given, for messages */
    unsigned flags;          /* enum dv_folder */
    uid_t root;              /* who may do everything */
    char done[PATH_MAX];     /* the checked part of the path, without links; "" is the root */
    char rest[2 * PATH_MAX]; /* to come */
    unsigned links;
} walk;

static bool trusted(const walk *w, uid_t owner) { return !owner || owner == geteuid() || owner == w->root; }

/* Is the component that is being checked the folder itself? */
static bool at_end(const walk *w) { return !w->rest[strspn(w->rest, "/")]; }
static int status_of(const walk *w) { return at_end(w) ? DV_EINVAL : DV_EIO; }

static int cannot(const walk *w, const char *at, int error)
{
    return dv_fail(DV_EIO, "cannot use the folder '%s': %s: %s", w->path, at, strerror(error));
}

static int of_another(const walk *w, const char *at, uid_t owner)
{
    if (at_end(w))
        return dv_fail(DV_EINVAL, "the folder '%s' belongs to user %lu", w->path, (unsigned long)owner);
    return dv_fail(DV_EIO, "'%s' belongs to user %lu, and the folder '%s' lies in it", at, (unsigned long)owner, w->path);
}

/* The folder at w->done. */
static int check_folder(const walk *w, const struct stat *s)
{
    const char *at = *w->done ? w->done : "/";
    const bool own = at_end(w) && w->flags & DV_FOLDER_OWN;
    if (own ? s->st_uid != geteuid() : !trusted(w, s->st_uid))
        return of_another(w, at, s->st_uid);
    if (!(s->st_mode & (S_IWGRP | S_IWOTH)) || (s->st_mode & S_ISVTX && !own))
        return DV_OK;
    if (own)
        return dv_fail(
            DV_EINVAL, "others than its user may write to the folder '%s' (mode %03o)", w->path, (unsigned)(s->st_mode & 0777));
    return dv_fail(DV_EIO, "%s may write to '%s', in which the folder '%s' lies",
        s->st_mode & S_IWOTH ? "everybody" : "a group of users", at, w->path);
}

/* What a link names is walked next. */
static int follow(walk *w, const char *link, const struct stat *s)
{
    char target[PATH_MAX], rest[sizeof w->rest];
    if (!trusted(w, s->st_uid))
        return of_another(w, link, s->st_uid);
    const ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0 || ++w->links > MOST_LINKS)
        return cannot(w, link, n < 0 ? errno : ELOOP);
    target[n] = 0;
    if ((size_t)snprintf(rest, sizeof rest, "%s/%s", target, w->rest) >= sizeof rest)
        return cannot(w, link, ENAMETOOLONG);
    memcpy(w->rest, rest, sizeof rest);
    if (*target == '/')
        *w->done = 0;
    return DV_OK;
}

/* Remove the first name from the rest of the path; "" at the end. */
static void take_name(walk *w, char name[PATH_MAX])
{
    const char *from = w->rest + strspn(w->rest, "/");
    const size_t n = strcspn(from, "/") < PATH_MAX ? strcspn(from, "/") : PATH_MAX - 1;
    memcpy(name, from, n);
    name[n] = 0;
    memmove(w->rest, from + n, strlen(from + n) + 1);
}

static int step(walk *w, const char *name)
{
    char next[2 * PATH_MAX];
    struct stat s;
    if (!strcmp(name, "."))
        return DV_OK;
    if (!strcmp(name, "..")) {
        char *slash = strrchr(w->done, '/');
        *(slash ? slash : w->done) = 0;
        return DV_OK;
    }
    if ((size_t)snprintf(next, sizeof next, "%s/%s", w->done, name) >= sizeof w->done)
        return cannot(w, w->path, ENAMETOOLONG);
    int failed = lstat(next, &s);
    if (failed && errno == ENOENT && w->flags & DV_FOLDER_MAKE && (!mkdir(next, 0700) || errno == EEXIST))
        failed = lstat(next, &s);
    if (failed)
        return cannot(w, next, errno);
    if (S_ISLNK(s.st_mode))
        return follow(w, next, &s);
    if (!S_ISDIR(s.st_mode))
        return dv_fail(status_of(w), "cannot use the folder '%s': '%s' is not a folder", w->path, next);
    memcpy(w->done, next, strlen(next) + 1);
    return check_folder(w, &s);
}

int dv_folder_check(const char *path, unsigned flags)
{
    DV__REQUIRE(path, "path");
    walk w = { .path = path, .flags = flags };
    char here[PATH_MAX] = "", name[PATH_MAX];
    struct stat root;
    if (*path != '/' && !getcwd(here, sizeof here))
        return cannot(&w, path, errno);
    if ((size_t)snprintf(w.rest, sizeof w.rest, "%s/%s", here, path) >= PATH_MAX)
        return cannot(&w, path, ENAMETOOLONG);
    if (stat("/", &root))
        return cannot(&w, "/", errno);
    w.root = flags & DV_FOLDER_ANY_ROOT ? root.st_uid : 0;
    int status = check_folder(&w, &root);
    for (take_name(&w, name); !status && *name; take_name(&w, name))
        status = step(&w, name);
    return status;
}
