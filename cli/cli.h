/* The command `dovetail`: declarations shared by its files. A verb is one file, cmd_<verb>.c, which defines `const cli_verb
 * verb_<verb>`, and one row in CLI_VERBS. It uses the library through dovetail.h only, and never a shell. */
#ifndef DV_CLI_H
#define DV_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "dovetail.h"

/* X(verb): in the order in which help lists them. */
#define CLI_VERBS(X) \
    X(new)           \
    X(build)         \
    X(check)         \
    X(info)          \
    X(explain)       \
    X(list)          \
    X(export)        \
    X(import)        \
    X(bench)

/* What the process returns. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---- Verbs and their options (options.c) --------------------------------------------------------------------------------- */

typedef struct cli_option {
    char letter;       /* 0: none */
    const char *name;  /* without the dashes; NULL ends a table */
    const char *value; /* the value's name in help; NULL: a switch */
    const char *help;
} cli_option;

typedef struct cli_args cli_args;
typedef struct cli_verb {
    const char *name, *purpose; /* purpose: one line */
    const char *usage;          /* after "dovetail <name> " */
    const char *about;          /* paragraphs, lines of at most 100 columns */
    const cli_option *options;  /* --help and --color are added */
    bool builds;                /* the command builds source files, so it takes cli_build_options, too */
    const char *const
        *examples; /* pairs: a command that works in a project made by `dovetail new my_ops`, and what it does; NULL */
    int (*run)(const cli_args *args);
} cli_verb;

/* Options for compiling and linking source files (cmd_build.c). */
extern const cli_option cli_build_options[];

/* A parsed command line. Strings point into argv. */
struct cli_args {
    const cli_verb *verb;
    const char **words; /* what is not an option */
    size_t nwords;
    struct cli_given {
        const cli_option *option;
        const char *value;
    } *given;
    size_t ngiven;
};

/* Parse the arguments after the verb. Options and words may be mixed; "--" ends options; "-1" and "-.5" are words. CLI_OK, or
 * CLI_USAGE with the message printed. Frees nothing on failure: the process ends. */
int cli_parse(const cli_verb *verb, int argc, char **argv, cli_args *out);
bool cli_has(const cli_args *args, const char *option);
const char *cli_get(const cli_args *args, const char *option); /* the last one's value; NULL: not given */
/* Returns arguments for `dovetail build` that repeat the given options among cli_build_options, in order. NULL ends the list. It
 * lives as long as the process. */
const char *const *cli_build_arguments(const cli_args *args);
/* The value as a number in [low, high]; absent: fallback. CLI_OK or CLI_USAGE. */
int cli_get_int(const cli_args *args, const char *option, int64_t low, int64_t high, int64_t fallback, int64_t *out);
void cli_print_help(const cli_verb *verb); /* to stdout */
/* The one of n names that is most similar to a mistyped word; NULL if none is similar. */
const char *cli_nearest(const char *word, const char *const *names, size_t n);

/* ---- Text and printing (output.c) ---------------------------------------------------------------------------------------- */

/* A growing text; zero-initialise. data is always terminated once anything was added. Out of memory ends the process. */
typedef struct cli_text {
    char *data;
    size_t size, capacity;
} cli_text;
void cli_add(cli_text *t, const char *data, size_t size);
void cli_adds(cli_text *t, const char *s);
DV__PRINTF(2, 3) void cli_addf(cli_text *t, const char *format, ...);
void cli_text_free(cli_text *t);
void cli_add_json(cli_text *t, const char *s);  /* as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD */
void cli_add_shell(cli_text *t, const char *s); /* quoted so that a POSIX shell reads one word */
char *cli_join(const char *folder, const char *name); /* "folder/name", or name alone when folder is "" or "." */
DV__PRINTF(1, 2) char *cli_format(const char *format, ...);
void *cli_alloc(void *old, size_t n, size_t size);
int cli_read_file(const char *path, cli_text *out);     /* a regular file; 0 or errno */
int cli_read_own_file(const char *path, cli_text *out); /* the same; EPERM if another user owns it or may write to it */

enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_BLUE };
int cli_set_color(const char *when); /* "auto", "always", "never": CLI_OK or CLI_USAGE (nothing printed) */
bool cli_colors(FILE *to);
const char *cli_style(FILE *to, enum cli_style style); /* the escape sequence, or "" without colour */

extern bool cli_json; /* --json was given: results and failures are also one JSON document on stdout */
/* Print "dovetail: error: ..." to stderr and return CLI_FAILED (fail) or CLI_USAGE (usage, with a hint at the verb's help). */
DV__PRINTF(1, 2) int cli_fail(const char *format, ...);
DV__PRINTF(2, 3) int cli_usage(const cli_verb *verb, const char *format, ...);
/* Returns the part of a message after "dovetail: error: ", which another process of this command may have written. */
const char *cli_without_prefix(const char *message);
DV__PRINTF(1, 2) void cli_note(const char *format, ...); /* "dovetail: ..." to stderr */
void cli_bytes(char out[16], double n);                  /* "14.0 KB" */
double cli_now(void);                                    /* seconds, monotonic */

/* ---- Where things are (home.c) ------------------------------------------------------------------------------------------- */

/* The folder that holds include/, lib/ and ops/: DOVETAIL_HOME, else found from the command's own place. NULL with the message
 * printed. Owned by the process. */
const char *cli_home(void);

/* ---- Operators by name, and arguments from words (load.c) ---------------------------------------------------------------- */

bool cli_is_folder(const char *path);
bool cli_is_repeated(const cli_args *args, size_t i); /* true if word i names the same file as a word before it */
/* True if the word is for `dovetail build`: a source file, or a folder that holds source files. */
bool cli_is_source(const char *word);
/* True if the word is to be loaded, and is no operator: it has a '/', ends in .so, or is a source. */
bool cli_is_binary(const char *word);
/* Returns the number of binaries and sources at the beginning of the words of a command line. */
size_t cli_count_binaries(const cli_args *args);
/* Loads each binary among the first n words, and for a source the binary that `dovetail build --cached` makes of it. Source files
 * are one library if at most one of them defines a library; a folder is one library. names: words that are no binaries are names
 * of operators, and are skipped. Messages are printed. Libraries live as long as the process. */
int cli_load(const cli_args *args, size_t n, bool names);
/* Gathers the source files among the first n words. Returns them as one list if they are one library, else NULL. The caller frees
 * the list. *nfiles: its length. */
const char **cli_one_library(const cli_args *args, size_t n, size_t *nfiles);
void cli_load_shipped(void); /* what lies in <home>/ops; once */
/* Every binary that was loaded, in order. */
size_t cli_libraries(dv_library *const **out);
/* Operators for a command-line word, in order of name: "ns::op" (all its overloads), "ns::op.overload", "ns" (all of a
 * namespace), "op". Searches loaded operators, then the shipped ones. At least one, or CLI_FAILED with the message printed. The
 * list is the caller's to free(); its operators live as long as the process. */
int cli_find_all(const char *word, dv_operator ***out, size_t *n);

/* Makes the call site that the words from `first` on describe: the name of an operator and its arguments, each a word, or the
 * whole site in one word (docs/site.md). Searches the operator as cli_find_all() does. Returns CLI_OK; CLI_FAILED if not exactly
 * one is found; CLI_USAGE if the call is wrong. Prints the message. The caller frees the site. */
int cli_site(const cli_args *args, size_t first, dv_site **out);
void cli_print_site(const dv_site *s);

/* ---- Running programs, temporary folders, interruption (process.c) ------------------------------------------------------- */

/* Defers SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE, so that temporary files can be removed. Until cli_signals_end() they are
 * passed to the running program and noted, but do not end this process. cli_signals_end() raises the noted signal again. */
void cli_signals_begin(void);
void cli_signals_end(void);
bool cli_interrupted(void);
extern bool cli_exits_at_once; /* true: this process ends without running code of libraries (main.c) */
/* Writes all bytes to a descriptor that may block, such as a pipe with a slow reader. Returns 0 or errno; EINTR: a signal came
 * first. */
int cli_write(int fd, const char *data, size_t size);

/* Runs argv[0], found on PATH, without a shell, and waits. output (NULL: not redirected) receives stdout and stderr: the first
 * and the last half megabyte, and the number of bytes left out between them. extra_env: "NAME=value" or NULL. The program has its
 * own process group, which is killed afterwards. Returns the exit status; 128 + n if signal n ended the program; -1 - errno if it
 * could not be started. */
int cli_run(const char *const *argv, const char *extra_env, cli_text *output);
/* Runs fn in a child process, which may crash. Its output to the file descriptor is appended to output. Returns as cli_run();
 * more than 128 MB of output are refused. */
int cli_run_function(int (*fn)(void *user, int fd), void *user, cli_text *output);
char *cli_program_path(const char *name); /* the path of a program, searched on PATH; NULL: not found. The caller frees it */
bool cli_find_program(const char *name);  /* is there one? */
/* A Python that may have the frameworks: $DOVETAIL_PYTHON (empty: none); that of the environment that this command is installed
 * in; that of the active environment; the first one on PATH. NULL: none. The caller frees it, as the next one. */
char *cli_find_python(void);
/* PYTHONPATH for the package `dovetail` of a build tree. NULL: it is installed, or not found. */
char *cli_own_package(void);
/* Run `python -m dovetail.<bridge> what out word...`, which prints its own results and messages. */
int cli_run_bridge(const char *bridge, const char *what, const char *out, const cli_args *args);

/* Private temporary folder for a file that goes to `folder`, locked for as long as this process lives. It lies inside `folder`.
 * If other users could rename entries of `folder`, it lies in a usual place for temporary files. So a compiler's output and a
 * loaded binary are always files of this user. */
typedef struct cli_temp {
    char *path;
    int lock, parent; /* descriptors of the folder and of its parent folder; valid if path is not NULL */
} cli_temp;
/* Makes the folder, and removes folders that dead processes of this user left in the same place. On failure `path` is NULL and
 * errno is set. cli_temp_remove() removes it with its contents. */
int cli_temp_make(const char *folder, cli_temp *out);
void cli_temp_remove(cli_temp *t);
int cli_open_folder(
    const char *folder);        /* opens a folder for openat(): a descriptor, or -1 with errno set; "": the current folder */
int cli_copy(int from, int to); /* copies all bytes from one open file to another; 0 or errno */
/* Replaces the entry `name` of an open folder by a copy of an open file, with its mode. The step is atomic: no reader sees half
 * of the copy. A link of that name is replaced, not followed. Returns 0 or errno. */
int cli_replace(int from, int folder, const char *name);
/* Writes a file completely or not at all, in a folder that others may write to as well. Returns 0 or errno. */
int cli_write_file(const char *path, const char *data, size_t size);

/* ---- The digest in a binary (stamp.c) ------------------------------------------------------------------------------------ */

/* Writes the digest of a binary's loaded bytes into the binary. fd: the file at `path`, open for writing. Returns 0 or errno;
 * ENOEXEC: the file can have no digest, for the reason in dv_last_error(). */
int cli_stamp(const char *path, int fd);
int cli_restamp(const char *path); /* renews the digest of a user's file, which is replaced in one step; messages are printed */

/* ---- Cached builds (cache.c) ----------------------------------------------------------------------------------------------- */

enum { CLI_HASH = 33 };                                  /* 128 bits in hex */
int cli_hash_file(const char *path, char out[CLI_HASH]); /* 0 or errno */

/* One entry of the user's folder of builds: $DOVETAIL_CACHE, else $XDG_CACHE_HOME/dovetail, else ~/.cache/dovetail. If others
 * could change its contents, a temporary folder of this name is used instead (python/dovetail/_source.py knows the name too).
 */
#define CLI_PRIVATE_FOLDER "dovetail-private-"
typedef struct cli_cache {
    char *folder, *binary, *record; /* the last two are known when it was found or kept */
    char key[CLI_HASH];
    int lock;
    struct timespec started; /* since when it is locked */
} cli_cache;
/* Open the entry of a key, which holds everything known before compiling that determines the binary. Makes and checks the folder.
 * Prints messages; close the entry in every case. */
int cli_cache_open(const cli_text *key, cli_cache *out);
void cli_cache_close(cli_cache *c);
bool cli_cache_find(cli_cache *c); /* does the binary exist, complete and up to date? Needs no lock */
int cli_cache_lock(cli_cache *c);  /* waits while another process builds it; check again afterwards */
/* Move the new binary (made with the lock held, in a folder inside the cache's) into place. rules: the output of the compiler's
 * -MMD, a NUL after each; more: other input files. */
int cli_cache_keep(cli_cache *c, const char *made, const cli_text *rules, const char *const *more, size_t nmore);
void cli_cache_sweep(const cli_cache *c); /* remove entries that were not used for 30 days; checks once a day */

/* ---- Source files of a folder (includes.c) --------------------------------------------------------------------------------- */

/* True if a name ends like a source file: .c, .cpp, .cu, .cce. */
bool cli_ends_as_source(const char *name);
/* True if a source file has a line that begins with DV_LIBRARY. */
bool cli_defines_library(const char *path);
/* True if at most one of n source files defines a library, so that they are built as one. */
bool cli_is_one_library(const char *const *files, size_t n);
/* Source files of a folder, each list in order of name. files: those that include <dovetail_op.h>, directly or through headers
 * beside them, of -I or of Dovetail. others: the rest. The strings live as long as the process; the lists are the caller's. */
typedef struct cli_sources {
    const char **files, **others;
    size_t nfiles, nothers;
} cli_sources;
/* Finds them. missing (or NULL) receives the names of headers that were not found, separated by commas. Returns CLI_OK even if
 * there are none; CLI_FAILED, with the message printed, if the folder or one of its source files cannot be read. */
int cli_find_sources(const cli_args *args, const char *folder, cli_sources *out, cli_text *missing);
/* True if a source file defines main(): a program, which belongs to no operator binary. */
bool cli_is_program_file(const char *path);

/* ---- Contents of a compiled binary (elf.c) --------------------------------------------------------------------------------- */

/* Reads names from a shared object that the linker just made: defined dynamic symbols, undefined weak symbols, and needed
 * libraries. From an object file, reads the names of all global symbols. Returns CLI_OK or CLI_FAILED. */
typedef struct cli_elf {
    char **symbols, **missing, **needed;
    size_t nsymbols, nmissing, nneeded;
} cli_elf;
int cli_elf_read(const char *path, cli_elf *out);
void cli_elf_free(cli_elf *e);
bool cli_is_sanitizer(const char *library); /* true if the name of a library is that of a sanitizer's runtime (cmd_build.c) */

/* ---- The machine code of kernels (machine_code.c) ------------------------------------------------------------------------- */

/* Functions of a binary that is loaded in this process. */
typedef struct cli_code cli_code;
/* Opens the binary that has an address in its code. NULL: its functions cannot be found, or cannot be decoded on this machine. */
cli_code *cli_code_open(const void *address);
void cli_code_close(cli_code *c);
/* True if a kernel for a vector instruction set was certainly compiled for the base set. No loop that the kernel reaches has an
 * instruction of AVX or later. Also, a loop has SSE instructions, or writes memory in a function that the base kernels (others)
 * reach, too. only_libc: the binary needs no library but libc; in another library the work could be done. */
bool cli_code_is_base(cli_code *c, const void *entry, const void *const *others, size_t nothers, bool only_libc);

/* ---- Inspection of a binary in another process (cmd_build.c) --------------------------------------------------------------- */

/* First argument with which the command starts itself to inspect a binary that needs the runtime of a sanitizer (cmd_build.c). */
#define CLI_INSPECT "--inspect-binary"
/* Inspects a binary and ends the process. words: a file descriptor for the answer, the binary, the path of the output, and "1" if
 * --allow-unknown was given. */
_Noreturn void cli_inspect(char **words);

/* ---- Mistakes of the author (hints.c) -------------------------------------------------------------------------------------- */

/* Read a compiler's or linker's messages and add, for errors inside Dovetail's macros, "file:line: what is wrong" lines. */
typedef struct cli_hints {
    cli_text text;
    size_t count;
} cli_hints;
void cli_explain_errors(const char *messages, cli_hints *out);

#endif
