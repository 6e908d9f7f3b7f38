/* Runs programs without a shell, makes temporary folders that are always removed, and delays signals until they are.
 *
 * The three signals are blocked except inside ppoll(), so a handler runs only while this process waits for a child: the handler
 * notes the signal, which is then sent to the child. A temporary folder is owned by a lock on it: kill -9 drops the lock, and the
 * next build there removes the folder. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
enum { NSIGNALS = sizeof signals / sizeof *signals };
static struct sigaction old_actions[NSIGNALS];
static sigset_t old_mask;
static volatile sig_atomic_t caught;

static void on_signal(int number) { caught = number; }

void cli_signals_begin(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigset_t block;
    signal(SIGCHLD, SIG_DFL); /* if the parent process set it to be ignored, children leave no exit status */
    sigemptyset(&action.sa_mask);
    sigemptyset(&block);
    for (size_t i = 0; i < NSIGNALS; i++)
        sigaddset(&block, signals[i]);
    sigprocmask(SIG_BLOCK, &block, &old_mask);
    for (size_t i = 0; i < NSIGNALS; i++) {
        sigaction(signals[i], NULL, &old_actions[i]);
        if (old_actions[i].sa_handler != SIG_IGN) /* nohup stays nohup */
            sigaction(signals[i], &action, NULL);
    }
}

bool cli_interrupted(void)
{
    sigset_t pending;
    if (caught)
        return true;
    sigpending(&pending);
    for (size_t i = 0; i < NSIGNALS; i++)
        if (sigismember(&pending, signals[i]) && old_actions[i].sa_handler != SIG_IGN)
            return true;
    return false;
}

void cli_signals_end(void)
{
    for (size_t i = 0; i < NSIGNALS; i++)
        sigaction(signals[i], &old_actions[i], NULL);
    const int number = caught;
    sigprocmask(SIG_SETMASK, &old_mask, NULL); /* one that is pending takes effect here */
    if (number)
        raise(number);
}

/* Read the bytes that are available now, up to a maximum; false at end of file. */
static bool read_some(int fd, size_t most, cli_text *output)
{
    char buffer[8192];
    ssize_t n = 0;
    for (size_t room = most; room; room -= (size_t)n) {
        while ((n = read(fd, buffer, room < sizeof buffer ? room : sizeof buffer)) < 0 && errno == EINTR)
            ;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        cli_add(output, buffer, (size_t)n);
    }
    return true;
}

/* Read the child's output until it has ended, and pass on this process's signals. A process that the child left behind may keep
 * the pipe open, so the output ends with what the pipe holds when the child has ended. */
static int wait_for(pid_t child, int fd, cli_text *output)
{
    enum { PIPE_MOST = 1 << 20 };
    static const struct timespec look_again = { .tv_nsec = 100 * 1000 * 1000 };
    int status = 0, sent = 0;
    bool open = fd >= 0, ended = false;
    if (open)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    while (!ended) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        const int n = open ? ppoll(&p, 1, &look_again, &old_mask) : 0;
        if (caught && !sent)
            kill(child, sent = caught);
        if (n < 0 && errno == EINTR)
            continue;
        const pid_t done = waitpid(child, &status, open ? WNOHANG : 0);
        if (done < 0 && errno != EINTR)
            return -1 - errno;
        ended = done == child;
        open = open && read_some(fd, PIPE_MOST, output);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool names_same(const char *a, const char *b)
{
    const size_t n = (size_t)(strchr(a, '=') - a) + 1;
    return !strncmp(a, b, n);
}

int cli_run(const char *const *argv, const char *extra_env, cli_text *output)
{
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
    char **env = cli_alloc(NULL, nenv + 2, sizeof *env);
    for (size_t i = 0; i < nenv; i++)
        if (!extra_env || !names_same(extra_env, environ[i]))
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
            sigaddset(&defaults, signals[i]);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &old_mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    error = posix_spawnp(&child, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(env);
    if (fds[1] >= 0)
        close(fds[1]);
    const int status = error ? -1 - error : wait_for(child, fds[0], output);
    if (fds[0] >= 0)
        close(fds[0]);
    return status;
}

int cli_run_function(int (*fn)(void *user, int fd), void *user, cli_text *output)
{
    int fds[2];
    fflush(stdout);
    fflush(stderr);
    if (pipe2(fds, O_CLOEXEC))
        return -1 - errno;
    const pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < NSIGNALS; i++)
            sigaction(signals[i], &old_actions[i], NULL);
        sigprocmask(SIG_SETMASK, &old_mask, NULL);
        close(fds[0]);
        _exit(fn(user, fds[1]));
    }
    close(fds[1]);
    const int status = child < 0 ? -1 - errno : wait_for(child, fds[0], output);
    close(fds[0]);
    return status;
}

static bool executable(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

char *cli_program_path(const char *name)
{
    if (strchr(name, '/'))
        return executable(name) ? cli_format("%s", name) : NULL;
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        char *folder = cli_format("%.*s", (int)strcspn(p, ":"), p), *full = cli_join(folder, name);
        const bool there = executable(full);
        free(folder);
        if (there)
            return full;
        free(full);
    }
    return NULL;
}

bool cli_find_program(const char *name)
{
    char *path = cli_program_path(name);
    free(path);
    return path != NULL;
}

/* ---- Temporary folders --------------------------------------------------------------------------------------------------- */

#define TEMP_PREFIX ".dovetail-build-"

/* Remove a temporary folder: the compiler leaves files, perhaps in one level of folders. */
static void remove_tree(const char *path, int depth)
{
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char *full = cli_format("%s/%s", path, e->d_name);
        if (unlink(full) && (errno == EISDIR || errno == EPERM) && depth > 0)
            remove_tree(full, depth - 1);
        free(full);
    }
    closedir(dir);
    rmdir(path);
}

static int lock_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void remove_stale(const char *folder)
{
    DIR *dir = opendir(*folder ? folder : ".");
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)))
            continue;
        char *full = cli_format("%s/%s", *folder ? folder : ".", e->d_name);
        const int fd = lock_folder(full);
        if (fd >= 0) {
            remove_tree(full, 2);
            close(fd);
        }
        free(full);
    }
    closedir(dir);
}

int cli_temp_make(const char *folder, cli_temp *out)
{
    *out = (cli_temp){ NULL, -1 };
    remove_stale(folder);
    for (int attempt = 0; attempt < 100; attempt++) { /* another build may consider the folder stale before it is locked */
        char *path = cli_format("%s/" TEMP_PREFIX "XXXXXX", *folder ? folder : ".");
        struct stat a, b;
        if (!mkdtemp(path)) {
            free(path);
            return CLI_FAILED;
        }
        const int fd = lock_folder(path);
        if (fd >= 0 && !fstat(fd, &a) && !stat(path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev) {
            *out = (cli_temp){ path, fd };
            return CLI_OK;
        }
        if (fd >= 0)
            close(fd);
        free(path);
    }
    errno = EBUSY;
    return CLI_FAILED;
}

void cli_temp_remove(cli_temp *t)
{
    if (t->path)
        remove_tree(t->path, 2);
    if (t->lock >= 0)
        close(t->lock);
    free(t->path);
    *t = (cli_temp){ NULL, -1 };
}

/* The path of a program in a folder; NULL: not found. */
static char *program_in(const char *folder, const char *program)
{
    char *path = cli_join(folder, program);
    if (!access(path, X_OK))
        return path;
    free(path);
    return NULL;
}

char *cli_find_python(void)
{
    const char *given = getenv("DOVETAIL_PYTHON"), *active = getenv("VIRTUAL_ENV");
    char *python = NULL;
    if (given)
        return *given ? cli_format("%s", given) : NULL;
    if (strstr(cli_home(), "/site-packages/")) {
        char *folder = cli_format("%s", cli_home()), *slash;
        while (!python && (slash = strrchr(folder, '/')) && slash > folder) {
            *slash = 0;
            python = program_in(folder, "bin/python3");
        }
        free(folder);
    }
    if (!python && active && *active)
        python = program_in(active, "bin/python3");
    for (const char *const *name = (const char *const[]){ "python3", "python", NULL }; !python && *name; name++)
        python = cli_find_program(*name) ? cli_format("%s", *name) : NULL;
    return python;
}

char *cli_own_package(void)
{
    char *folder = cli_join(cli_home(), "python"), *file = cli_join(folder, "dovetail/__init__.py");
    const char *const path = getenv("PYTHONPATH");
    char *setting = access(file, R_OK) ? NULL
                                       : cli_format("PYTHONPATH=%s%s%s", folder, path && *path ? ":" : "", path ? path : "");
    free(file);
    free(folder);
    return setting;
}

int cli_run_bridge(const char *bridge, const char *what, const char *out, const cli_args *args)
{
    char *python = cli_find_python(), *module = cli_format("dovetail.%s", bridge), *path = cli_own_package();
    if (!python)
        return cli_fail("no Python is installed beside this command, active or on PATH");
    const char **argv = cli_alloc(NULL, args->nwords + 7, sizeof *argv);
    const char *const head[] = { python, "-P", "-m", module, what, out };
    memcpy(argv, head, sizeof head);
    memcpy(argv + 6, args->words, args->nwords * sizeof *argv);
    argv[6 + args->nwords] = NULL;
    const int status = cli_run(argv, path, NULL);
    free(argv);
    free(path);
    free(module);
    if (status < 0)
        return cli_fail("%s: it cannot be run: %s", python, strerror(-1 - status));
    free(python);
    return status ? CLI_FAILED : CLI_OK;
}
