/* Runs programs without a shell, makes temporary folders that are always removed, and delays signals until they are.
 *
 * The signals that end a process are blocked except inside ppoll(), so a handler runs only while this process waits: the handler
 * notes the signal, which is then sent to the child's process group. A group that does not end is killed. A temporary folder is
 * owned by a lock on it: kill -9 drops the lock, and the next build there removes the folder.
 *
 * Another user may write to the folder of an output, so nothing is removed by a path that is resolved twice: folders are opened
 * without following links, the owner is read from the descriptor, and names are resolved below that descriptor. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const int deferred_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
enum { NSIGNALS = sizeof deferred_signals / sizeof *deferred_signals };
static struct sigaction old_actions[NSIGNALS];
static sigset_t old_mask;
static volatile sig_atomic_t caught_signal;

static void signal_handle(int number) { caught_signal = number; }

void cli_signals_begin(void)
{
    struct sigaction action = { .sa_handler = signal_handle };
    sigset_t block;
    signal(SIGCHLD,
        SIG_DFL); /* SIGCHLD: if the parent process has set it to be ignored, children of this process leave no exit status */
    sigemptyset(&action.sa_mask);
    sigemptyset(&block);
    for (size_t i = 0; i < NSIGNALS; i++)
        sigaddset(&block, deferred_signals[i]);
    sigprocmask(SIG_BLOCK, &block, &old_mask);
    for (size_t i = 0; i < NSIGNALS; i++) {
        sigaction(deferred_signals[i], NULL, &old_actions[i]);
        if (old_actions[i].sa_handler != SIG_IGN) /* nohup stays nohup */
            sigaction(deferred_signals[i], &action, NULL);
    }
}

/* Returns the signal that was caught or is pending; 0: none. A pending signal that is ignored does not count. */
static int signal_get_caught_or_pending(void)
{
    sigset_t pending;
    int number = caught_signal;
    sigpending(&pending);
    for (size_t i = 0; i < NSIGNALS && !number; i++)
        if (sigismember(&pending, deferred_signals[i]) && old_actions[i].sa_handler != SIG_IGN)
            number = deferred_signals[i];
    return number;
}

bool cli_is_interrupted(void) { return signal_get_caught_or_pending() != 0; }

void cli_signals_end(void)
{
    const int number = signal_get_caught_or_pending();
    for (size_t i = 0; i < NSIGNALS; i++)
        sigaction(deferred_signals[i], &old_actions[i], NULL);
    sigprocmask(SIG_SETMASK, &old_mask, NULL); /* a pending signal takes effect here */
    if (number)
        raise(number);
    if (number &&
        getpid() == 1) /* a container's first process does not end by a signal without a handler, so it exits by itself */
        _exit(128 + number);
}

int cli_write_all(int fd, const char *data, size_t size)
{
    while (size && !cli_is_interrupted()) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (ppoll(&p, 1, NULL, &old_mask) < 0 && errno != EINTR)
            return errno;
        if (!p.revents || caught_signal)
            continue;
        const ssize_t n = write(fd, data,
            size < PIPE_BUF ? size : PIPE_BUF); /* a pipe that poll() reports as ready takes PIPE_BUF bytes without blocking */
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return size ? EINTR : 0;
}

/* ---- The output of a child ----------------------------------------------------------------------------------------------- */

/* Capture of a child's output: its first `half` and its last `half` bytes. Bytes between them are counted and dropped. */
typedef struct capture {
    cli_text *to; /* receives the first bytes at once, the others by capture_append_tail_and_count_dropped() */
    size_t half_size;
    size_t head, end; /* numbers of captured bytes: of the first half, and of all later ones */
    char *last;       /* a ring buffer of `half` bytes */
} capture;

/* Appends output to the capture, which retains its first `half` and its last `half` bytes; bytes between them are dropped. */
static void capture_append(capture *c, const char *data, size_t size)
{
    const size_t first = size < c->half_size - c->head ? size : c->half_size - c->head;
    cli_text_append(c->to, data, first);
    c->head += first;
    data += first;
    size -= first;
    if (size && !c->last)
        c->last = cli_realloc_array(NULL, c->half_size, 1);
    while (size) {
        const size_t at = c->end % c->half_size, n = size < c->half_size - at ? size : c->half_size - at;
        memcpy(c->last + at, data, n);
        c->end += n;
        data += n;
        size -= n;
    }
}

/* Appends the last bytes to the text, after a line with the number of dropped bytes. Returns that number. */
static size_t capture_append_tail_and_count_dropped(capture *c)
{
    const size_t left_out = c->end > c->half_size ? c->end - c->half_size : 0, at = left_out ? c->end % c->half_size : 0;
    if (left_out)
        cli_text_appendf(c->to, "\n[... %zu bytes of output are left out here ...]\n", left_out);
    if (left_out)
        cli_text_append(c->to, c->last + at, c->half_size - at);
    cli_text_append(c->to, c->last, left_out ? at : c->end);
    free(c->last);
    c->last = NULL;
    return left_out;
}

/* Reads the bytes that are available now, at most max_size, into the capture. Returns false at the end of the file or after an
 * error. */
static bool capture_try_read(int fd, size_t max_size, capture *output)
{
    char buffer[8192];
    ssize_t n = 0;
    for (size_t remaining = max_size; remaining; remaining -= (size_t)n) {
        while ((n = read(fd, buffer, remaining < sizeof buffer ? remaining : sizeof buffer)) < 0 && errno == EINTR)
            ;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        capture_append(output, buffer, (size_t)n);
    }
    return true;
}

/* ---- Waiting ------------------------------------------------------------------------------------------------------------- */

/* Seconds that a child may clean up after a signal. Then the child is killed, and waited for as long again. */
static const double GRACE_SECONDS = 0.3;

/* Appends the pids of this process's children to `to`, as Linux lists them: "12 34 ". Appends nothing if Linux has no such list.
 */
static void process_append_children(cli_text *to)
{
    char *path = cli_format("/proc/self/task/%ld/children", (long)getpid());
    to->size = 0;
    cli_read_file(path, to);
    free(path);
}

/* True if a list of pids "12 34 " contains the pid of n digits. */
static bool process_list_has_pid(const cli_text *list, const char *pid, size_t n)
{
    for (const char *p = list->data; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && !strncmp(p, pid, n))
            return true;
    return false;
}

/* Kills processes that an interrupted child left outside of its process group. This process is a subreaper at that time, so these
 * processes become its children as soon as their parents have ended. children_before: this process's earlier children, which are
 * spared. */
static void process_kill_new_children(const cli_text *children_before)
{
    cli_text now = { 0 };
    bool any = true;
    for (double start = cli_get_seconds(); any && cli_get_seconds() - start < GRACE_SECONDS;) {
        any = false;
        process_append_children(&now);
        for (const char *p = now.data; p && *p; p += strcspn(p, " "), p += *p == ' ') {
            const pid_t pid = (pid_t)atol(p);
            if (pid <= 0 || process_list_has_pid(children_before, p, strcspn(p, " ")))
                continue;
            any = true;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, WNOHANG);
        }
        if (any)
            nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
    }
    cli_text_free(&now);
}

/* Waits until the child has ended, reads its output, and passes this process's signals on to the child's process group. When the
 * child has ended, the output ends with the bytes in the pipe, even if another process holds the pipe open. Then the rest of the
 * process group is killed. limit: seconds after which the child is killed, even if it is stopped; 0: none. Returns the exit
 * status, 128 + the signal, or -1 - errno. */
static int process_wait_for_child(pid_t child, int fd, capture *output, double max_seconds)
{
    enum { MAX_PIPE_SIZE = 1 << 20 };
    static const struct timespec look_again = { .tv_nsec = 20 * 1000 * 1000 };
    const int process = (int)syscall(
        SYS_pidfd_open, child, 0); /* -1 before Linux 5.3: then only the timeout of poll() ends the wait */
    int status = 0, sent = 0;
    double signalled = 0;
    const double begin = cli_get_seconds();
    bool open = fd >= 0;
    siginfo_t info = { .si_pid = 0 };
    if (open)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    while (info.si_pid != child) {
        struct pollfd p[] = { { .fd = open ? fd : -1, .events = POLLIN }, { .fd = process, .events = POLLIN } };
        ppoll(p, 2, &look_again, &old_mask);
        if (caught_signal && !sent) {
            kill(-child, sent = caught_signal);
            signalled = cli_get_seconds();
        }
        if (sent && cli_get_seconds() - signalled > GRACE_SECONDS)
            kill(-child, SIGKILL);
        if (sent && cli_get_seconds() - signalled > 2 * GRACE_SECONDS)
            break;
        open = open && capture_try_read(fd, MAX_PIPE_SIZE, output);
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) && errno != EINTR) {
            status = -1 - errno;
            break;
        }
        if (max_seconds > 0 && cli_get_seconds() - begin > max_seconds)
            kill(-child, SIGKILL);
    }
    if (open)
        capture_try_read(fd, MAX_PIPE_SIZE, output);
    if (process >= 0)
        close(process);
    kill(-child, SIGKILL); /* killed before the child is reaped, since its number cannot be another group's until then */
    if (status || info.si_pid != child)
        return status ? status : 128 + SIGKILL;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* State of a run: the child's output, and the earlier children of this process, from which orphans are told apart. */
typedef struct child_run {
    capture output;
    cli_text children;
    int was_reaper;
} child_run;

static void child_run_init(child_run *r, cli_text *to, size_t half_size)
{
    *r = (child_run){ .output = { .to = to, .half_size = half_size } };
    prctl(PR_GET_CHILD_SUBREAPER, &r->was_reaper, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    process_append_children(&r->children);
}

/* Ends a run: kills orphans after a signal, restores the subreaper flag and completes the output. Returns the number of output
 * bytes that were dropped. */
static size_t child_run_finish_and_count_dropped(child_run *r)
{
    if (caught_signal)
        process_kill_new_children(&r->children);
    prctl(PR_SET_CHILD_SUBREAPER, r->was_reaper, 0, 0, 0);
    cli_text_free(&r->children);
    return r->output.to ? capture_append_tail_and_count_dropped(&r->output) : 0;
}

/* True if two texts "NAME=value" have the same name. */
static bool process_is_same_variable_name(const char *a, const char *b)
{
    const size_t n = (size_t)(strchr(a, '=') - a) + 1;
    return !strncmp(a, b, n);
}

int cli_run_program(const char *const *argv, const char *extra_env, cli_text *output)
{
    enum { OUTPUT_HALF = 1 << 19 };
    child_run r;
    int fds[2] = { -1, -1 }, error;
    size_t nenv = 0, n = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    if (output && pipe2(fds, O_CLOEXEC))
        return -1 - errno;
    while (environ[nenv])
        nenv++;
    char **env = cli_realloc_array(NULL, nenv + 2, sizeof *env);
    for (size_t i = 0; i < nenv; i++)
        if (!extra_env || !process_is_same_variable_name(extra_env, environ[i]))
            env[n++] = environ[i];
    if (extra_env)
        env[n++] = (char *)(uintptr_t)extra_env;
    env[n] = NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (output) {
        posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
        posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
    }
    sigemptyset(&defaults);
    for (size_t i = 0; i < NSIGNALS; i++)
        if (old_actions[i].sa_handler != SIG_IGN)
            sigaddset(&defaults, deferred_signals[i]);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &old_mask);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    child_run_init(&r, output, OUTPUT_HALF);
    error = posix_spawnp(&child, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(env);
    if (fds[1] >= 0)
        close(fds[1]);
    const int status = error ? -1 - error : process_wait_for_child(child, fds[0], &r.output, 0);
    child_run_finish_and_count_dropped(&r);
    if (fds[0] >= 0)
        close(fds[0]);
    return status;
}

int cli_run_in_child(int (*fn)(void *user, int fd), void *user, cli_text *output)
{
    enum { OUTPUT_HALF = 1 << 26, LIMIT_SECONDS = 30 };
    child_run r;
    int fds[2];
    fflush(stdout);
    fflush(stderr);
    if (pipe2(fds, O_CLOEXEC))
        return -1 - errno;
    child_run_init(&r, output, OUTPUT_HALF);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        for (size_t i = 0; i < NSIGNALS; i++)
            sigaction(deferred_signals[i], &old_actions[i], NULL);
        sigprocmask(SIG_SETMASK, &old_mask, NULL);
        close(fds[0]);
        _exit(fn(user, fds[1]));
    }
    if (child > 0)
        setpgid(child, child);
    close(fds[1]);
    const int status = child < 0 ? -1 - errno : process_wait_for_child(child, fds[0], &r.output, LIMIT_SECONDS);
    const size_t left_out = child_run_finish_and_count_dropped(&r);
    close(fds[0]);
    return left_out ? -1 - EFBIG : status;
}

/* True if the path is a regular file that this process may run. */
static bool process_is_executable(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

char *cli_find_program_path(const char *name)
{
    if (strchr(name, '/'))
        return process_is_executable(name) ? cli_format("%s", name) : NULL;
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        char *folder = cli_format("%.*s", (int)strcspn(p, ":"), p), *full = cli_join_path(folder, name);
        const bool exists = process_is_executable(full);
        free(folder);
        if (exists)
            return full;
        free(full);
    }
    return NULL;
}

bool cli_is_program_on_path(const char *name)
{
    char *path = cli_find_program_path(name);
    free(path);
    return path != NULL;
}

/* ---- Temporary folders --------------------------------------------------------------------------------------------------- */

#define TEMP_PREFIX ".dovetail-build-"
enum { MAX_DEPTH = 16 }; /* levels of folders that a compiler makes in a temporary folder */

/* Opens a file or folder of this user by its name in an open folder, without following a link. Returns its descriptor; -1: there
 * is none, or another user owns it. */
static int temp_open_own_entry(int folder, const char *name, struct stat *s)
{
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && !fstat(fd, s) && s->st_uid == geteuid())
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static DIR *temp_open_directory_stream(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0)
        close(fd);
    return list;
}

/* Removes the entries of an open folder that this user owns. levels: the number of levels of subfolders that are emptied too. */
static void temp_remove_own_content(int folder, int levels)
{
    DIR *list = temp_open_directory_stream(folder);
    for (struct dirent *e; list && (e = readdir(list));) {
        struct stat s;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (!unlinkat(folder, e->d_name, 0) || (errno != EISDIR && errno != EPERM) || !levels)
            continue;
        const int inner = temp_open_own_entry(folder, e->d_name, &s);
        if (inner >= 0 && S_ISDIR(s.st_mode)) {
            temp_remove_own_content(inner, levels - 1);
            unlinkat(folder, e->d_name, AT_REMOVEDIR);
        }
        if (inner >= 0)
            close(inner);
    }
    if (list)
        closedir(list);
}

/* Removes temporary folders, and temporary files of cli_replace_file(), that dead processes of this user left in a folder. If
 * other users may rename entries (is_folder_safe false), folders stay, since such a name may have become any folder of the user.
 */
static void temp_remove_stale(int folder, bool is_folder_safe)
{
    DIR *list = temp_open_directory_stream(folder);
    for (struct dirent *e; list && (e = readdir(list));) {
        struct stat s;
        if (strncmp(e->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)))
            continue;
        const int fd = temp_open_own_entry(folder, e->d_name, &s);
        const bool is_folder = fd >= 0 && S_ISDIR(s.st_mode) && (s.st_mode & 0777) == 0700 && is_folder_safe;
        if (fd >= 0 && (is_folder || S_ISREG(s.st_mode)) && !flock(fd, LOCK_EX | LOCK_NB)) {
            if (is_folder)
                temp_remove_own_content(fd, MAX_DEPTH);
            unlinkat(folder, e->d_name, is_folder ? AT_REMOVEDIR : 0);
        }
        if (fd >= 0)
            close(fd);
    }
    if (list)
        closedir(list);
}

static bool temp_is_safe_folder(const char *folder) { return !dv_folder_check(*folder ? folder : ".", DV_FOLDER_ANY_ROOT); }

/* Returns a folder in which nobody else can rename this user's files: `folder`, or else one for temporary files. NULL: there is
 * none. Container images sometimes have /tmp without its sticky bit. */
static const char *temp_choose_safe_base(const char *folder)
{
    const char *const bases[] = { getenv("TMPDIR"), "/tmp", getenv("XDG_RUNTIME_DIR"), "/var/tmp", getenv("HOME"), "/dev/shm" };
    if (temp_is_safe_folder(folder))
        return *folder ? folder : ".";
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (bases[i] && *bases[i] == '/' && temp_is_safe_folder(bases[i]) && !access(bases[i], W_OK | X_OK))
            return bases[i];
    return NULL;
}

int cli_open_folder(const char *folder)
{
    const int fd = open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 || errno != EACCES ? fd : open(*folder ? folder : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int cli_temp_make(const char *folder, cli_temp *out)
{
    *out = (cli_temp){ NULL, -1, -1 };
    if (access(*folder ? folder : ".", W_OK | X_OK)) /* the result is to go there */
        return CLI_FAILED;
    const char *base = temp_choose_safe_base(folder);
    if (!base) {
        errno = EPERM;
        return CLI_FAILED;
    }
    if ((out->parent = cli_open_folder(base)) < 0)
        return CLI_FAILED;
    temp_remove_stale(out->parent, true);
    for (int attempt = 0; attempt < 100; attempt++) { /* a folder may be removed as stale by another build before it is locked:
                                                         then the next attempt makes a new one */
        char *path = cli_format("%s/" TEMP_PREFIX "XXXXXX", base);
        struct stat a, b;
        if (!mkdtemp(path)) {
            free(path);
            break;
        }
        const char *name = strrchr(path, '/') + 1;
        const int fd = temp_open_own_entry(out->parent, name, &a);
        if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !fstatat(out->parent, name, &b, AT_SYMLINK_NOFOLLOW) &&
            a.st_ino == b.st_ino && a.st_dev == b.st_dev) {
            out->path = path;
            out->lock = fd;
            return CLI_OK;
        }
        if (fd >= 0)
            close(fd);
        free(path);
        errno = EBUSY;
    }
    const int error = errno;
    close(out->parent);
    errno = error;
    return CLI_FAILED;
}

void cli_temp_remove(cli_temp *t)
{
    if (t->path) {
        temp_remove_own_content(t->lock, MAX_DEPTH);
        unlinkat(t->parent, strrchr(t->path, '/') + 1, AT_REMOVEDIR);
        close(t->lock);
        close(t->parent);
    }
    free(t->path);
    *t = (cli_temp){ NULL, -1, -1 };
}

/* Writes all bytes. Returns 0 or errno. */
static int file_write_bytes(int fd, const char *data, size_t size)
{
    while (size) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno != EINTR)
            return errno;
        data += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int cli_copy_file(int from_fd, int to_fd)
{
    char buffer[1 << 16];
    for (;;) {
        const ssize_t n = read(from_fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        const int error = n < 0 ? errno : file_write_bytes(to_fd, buffer, (size_t)n);
        if (n <= 0 || error)
            return error;
    }
}

/* Makes and locks a new file of this user in a folder. name: receives its name. Returns its descriptor, or -1 with errno set. */
static int file_make_locked_temporary(int folder, mode_t mode, char name[64])
{
    for (int attempt = 0; attempt < 100; attempt++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, 0) < 0)
            return -1;
        snprintf(name, 64, TEMP_PREFIX "%016llx", (unsigned long long)random);
        const int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        struct stat s;
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &s) && s.st_nlink)
            return fd;
        if (fd >= 0) /* another process removed the file as stale before it was locked */
            close(fd);
    }
    errno = EBUSY;
    return -1;
}

int cli_replace_file(int from_fd, int folder_fd, const char *name)
{
    char draft[64];
    struct stat s;
    if (fstat(from_fd, &s))
        return errno;
    temp_remove_stale(folder_fd, false);
    const int to = file_make_locked_temporary(folder_fd, s.st_mode & 0777, draft);
    if (to < 0)
        return errno;
    int error = lseek(from_fd, 0, SEEK_SET) < 0 ? errno : cli_copy_file(from_fd, to);
    if (!error && (fchmod(to, s.st_mode & 0777) || fsync(to) || renameat(folder_fd, draft, folder_fd, name)))
        error = errno;
    if (error)
        unlinkat(folder_fd, draft, 0);
    close(to);
    return error;
}

/* Writes to a device or a pipe, such as /dev/stdout, or to a file in a folder that takes no new files. A link is followed only if
 * root or this user made it. Returns 0 or errno. */
static int file_write_in_place(int folder, const char *name, const char *data, size_t size)
{
    struct stat s;
    const bool is_link = !fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) && S_ISLNK(s.st_mode);
    if (is_link && s.st_uid && s.st_uid != geteuid())
        return EPERM;
    const int fd = openat(folder, name, O_WRONLY | O_TRUNC | O_CLOEXEC | (is_link ? 0 : O_NOFOLLOW));
    if (fd < 0)
        return errno;
    const int error = file_write_bytes(fd, data, size);
    return close(fd) && !error ? errno : error;
}

int cli_write_file(const char *path, const char *data, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *in = slash ? cli_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : cli_format(".");
    const int folder = cli_open_folder(in), content = memfd_create("dovetail", MFD_CLOEXEC);
    const mode_t mask = umask(0);
    struct stat s = { .st_mode = S_IFREG | (0666 & ~mask) }; /* mode of the existing file, or of a new one */
    umask(mask);
    int error = folder < 0 || content < 0 ? errno : 0;
    if (!error && fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) && errno != ENOENT)
        error = errno;
    if (!error && S_ISREG(s.st_mode)) {
        error = fchmod(content, s.st_mode & 0777) ? errno : file_write_bytes(content, data, size);
        error = error ? error : cli_replace_file(content, folder, name);
    }
    if (!error && !S_ISREG(s.st_mode))
        error = file_write_in_place(folder, name, data, size);
    else if (error == EACCES || error == EROFS)
        error = file_write_in_place(folder, name, data, size);
    if (folder >= 0)
        close(folder);
    if (content >= 0)
        close(content);
    free(in);
    return error;
}

/* Returns the path of a program in a folder, which the caller frees; NULL: the folder has no such program. */
static char *process_new_program_path_in_folder(const char *folder, const char *program)
{
    char *path = cli_join_path(folder, program);
    if (!access(path, X_OK))
        return path;
    free(path);
    return NULL;
}

char *cli_new_python_path(void)
{
    const char *given = getenv("DOVETAIL_PYTHON"), *active = getenv("VIRTUAL_ENV");
    char *python = NULL;
    if (given)
        return *given ? cli_format("%s", given) : NULL;
    if (strstr(cli_find_home(), "/site-packages/")) {
        char *folder = cli_format("%s", cli_find_home()), *slash;
        while (!python && (slash = strrchr(folder, '/')) && slash > folder) {
            *slash = 0;
            python = process_new_program_path_in_folder(folder, "bin/python3");
        }
        free(folder);
    }
    if (!python && active && *active)
        python = process_new_program_path_in_folder(active, "bin/python3");
    for (const char *const *name = (const char *const[]){ "python3", "python", NULL }; !python && *name; name++)
        python = cli_is_program_on_path(*name) ? cli_format("%s", *name) : NULL;
    return python;
}

char *cli_make_python_path(void)
{
    char *folder = cli_join_path(cli_find_home(), "python"), *file = cli_join_path(folder, "dovetail/__init__.py");
    const char *const path = getenv("PYTHONPATH");
    char *setting = access(file, R_OK) ? NULL
                                       : cli_format("PYTHONPATH=%s%s%s", folder, path && *path ? ":" : "", path ? path : "");
    free(file);
    free(folder);
    return setting;
}

int cli_run_bridge(const char *bridge, const char *action, const char *out_path, const cli_args *args)
{
    char *python = cli_new_python_path(), *module = cli_format("dovetail.%s", bridge), *path = cli_make_python_path();
    if (!python)
        return cli_fail("no Python is installed beside this command, active or on PATH");
    const char **argv = cli_realloc_array(NULL, args->noperands + 7, sizeof *argv);
    const char *const head[] = { python, "-P", "-m", module, action, out_path };
    memcpy(argv, head, sizeof head);
    memcpy(argv + 6, args->operands, args->noperands * sizeof *argv);
    argv[6 + args->noperands] = NULL;
    const int status = cli_run_program(argv, path, NULL);
    free(argv);
    free(path);
    free(module);
    if (status < 0)
        return cli_fail("%s: it cannot be run: %s", python, strerror(-1 - status));
    free(python);
    return status ? CLI_FAILED : CLI_OK;
}
