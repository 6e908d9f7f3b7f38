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

enum { MAX_SYMLINKS = 40 };

typedef struct folder_walk {
    const char *path;             /* the path as the caller gave it, for messages */
    unsigned flags;               /* enum dv_folder */
    uid_t root_uid;               /* another user whose folders are trusted like root's; 0: only root */
    char resolved[PATH_MAX];      /* the part of the path that was checked, without symbolic links; "": the root */
    char remaining[2 * PATH_MAX]; /* the part of the path that was not checked yet */
    unsigned links;
} folder_walk;

static bool folder_is_trusted_owner(const folder_walk *w, uid_t owner)
{
    return !owner || owner == geteuid() || owner == w->root_uid;
}

/* True if the current component is the last one, the folder itself. */
static bool folder_is_last_component(const folder_walk *w) { return !w->remaining[strspn(w->remaining, "/")]; }
/* Returns the status for a component that is not a folder: DV_EINVAL for the last component, DV_EIO for a folder on the way. */
static int folder_fail_status(const folder_walk *w) { return folder_is_last_component(w) ? DV_EINVAL : DV_EIO; }

static int folder_fail_errno(const folder_walk *w, const char *failed_path, int errno_value)
{
    return dv_fail(DV_EIO, "cannot use the folder '%s': %s: %s", w->path, failed_path, strerror(errno_value));
}

static int folder_fail_owner(const folder_walk *w, const char *component_path, uid_t owner)
{
    if (folder_is_last_component(w))
        return dv_fail(DV_EINVAL, "the folder '%s' belongs to user %lu", w->path, (unsigned long)owner);
    return dv_fail(
        DV_EIO, "'%s' belongs to user %lu, and the folder '%s' lies in it", component_path, (unsigned long)owner, w->path);
}

/* Checks the owner and the mode of the folder at w->resolved, whose metadata is s. Fails if its owner is not trusted, or if
 * others may write to it and it is not sticky. */
static int folder_check_permissions(const folder_walk *w, const struct stat *s)
{
    const char *at = *w->resolved ? w->resolved : "/";
    const bool must_be_owned = folder_is_last_component(w) && w->flags & DV_FOLDER_OWN;
    if (must_be_owned ? s->st_uid != geteuid() : !folder_is_trusted_owner(w, s->st_uid))
        return folder_fail_owner(w, at, s->st_uid);
    if (!(s->st_mode & (S_IWGRP | S_IWOTH)) || (s->st_mode & S_ISVTX && !must_be_owned))
        return DV_OK;
    if (must_be_owned)
        return dv_fail(
            DV_EINVAL, "others than its user may write to the folder '%s' (mode %03o)", w->path, (unsigned)(s->st_mode & 0777));
    return dv_fail(DV_EIO, "%s may write to '%s', in which the folder '%s' lies",
        s->st_mode & S_IWOTH ? "everybody" : "a group of users", at, w->path);
}

/* Replaces the current component, a symbolic link, by the link's target, which is walked next. Returns a status. */
static int folder_follow_link(folder_walk *w, const char *link, const struct stat *s)
{
    char target[PATH_MAX], remaining[sizeof w->remaining];
    if (!folder_is_trusted_owner(w, s->st_uid))
        return folder_fail_owner(w, link, s->st_uid);
    const ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0 || ++w->links > MAX_SYMLINKS)
        return folder_fail_errno(w, link, n < 0 ? errno : ELOOP);
    target[n] = 0;
    if ((size_t)snprintf(remaining, sizeof remaining, "%s/%s", target, w->remaining) >= sizeof remaining)
        return folder_fail_errno(w, link, ENAMETOOLONG);
    memcpy(w->remaining, remaining, sizeof remaining);
    if (*target == '/')
        *w->resolved = 0;
    return DV_OK;
}

/* Removes the first component from the unchecked part of the path and copies it to `name`. name: "" at the end of the path. */
static void folder_take_next_component(folder_walk *w, char name[PATH_MAX])
{
    const char *from = w->remaining + strspn(w->remaining, "/");
    const size_t n = strcspn(from, "/") < PATH_MAX ? strcspn(from, "/") : PATH_MAX - 1;
    memcpy(name, from, n);
    name[n] = 0;
    memmove(w->remaining, from + n, strlen(from + n) + 1);
}

/* Moves w->resolved into its entry `name`, and checks that entry. Follows a symbolic link, and makes a missing folder if
 * w->flags has DV_FOLDER_MAKE. Returns a status. */
static int folder_enter_component(folder_walk *w, const char *name)
{
    char next[2 * PATH_MAX];
    struct stat s;
    if (!strcmp(name, "."))
        return DV_OK;
    if (!strcmp(name, "..")) {
        char *slash = strrchr(w->resolved, '/');
        *(slash ? slash : w->resolved) = 0;
        return DV_OK;
    }
    if ((size_t)snprintf(next, sizeof next, "%s/%s", w->resolved, name) >= sizeof w->resolved)
        return folder_fail_errno(w, w->path, ENAMETOOLONG);
    int failed = lstat(next, &s);
    if (failed && errno == ENOENT && w->flags & DV_FOLDER_MAKE && (!mkdir(next, 0700) || errno == EEXIST))
        failed = lstat(next, &s);
    if (failed)
        return folder_fail_errno(w, next, errno);
    if (S_ISLNK(s.st_mode))
        return folder_follow_link(w, next, &s);
    if (!S_ISDIR(s.st_mode))
        return dv_fail(folder_fail_status(w), "cannot use the folder '%s': '%s' is not a folder", w->path, next);
    memcpy(w->resolved, next, strlen(next) + 1);
    return folder_check_permissions(w, &s);
}

int dv_folder_check(const char *path, unsigned flags)
{
    DV__REQUIRE(path, "path");
    folder_walk w = { .path = path, .flags = flags };
    char cwd[PATH_MAX] = "", name[PATH_MAX];
    struct stat root;
    if (*path != '/' && !getcwd(cwd, sizeof cwd))
        return folder_fail_errno(&w, path, errno);
    if ((size_t)snprintf(w.remaining, sizeof w.remaining, "%s/%s", cwd, path) >= PATH_MAX)
        return folder_fail_errno(&w, path, ENAMETOOLONG);
    if (stat("/", &root))
        return folder_fail_errno(&w, "/", errno);
    w.root_uid = flags & DV_FOLDER_ANY_ROOT ? root.st_uid : 0;
    int status = folder_check_permissions(&w, &root);
    for (folder_take_next_component(&w, name); !status && *name; folder_take_next_component(&w, name))
        status = folder_enter_component(&w, name);
    return status;
}
