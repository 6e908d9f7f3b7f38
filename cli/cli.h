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

/* All verbs of the command, in the order in which help lists them: X(verb). */
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

/* Exit status of the command, and status of functions that print their own message. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* ---- Verbs and their options (options.c) --------------------------------------------------------------------------------- */

typedef struct cli_option {
    char letter;       /* the letter after one dash; 0: the option has no letter */
    const char *name;  /* the long name without dashes; NULL ends a table of options */
    const char *value; /* the name of the option's value in help; NULL: the option takes no value */
    const char *help;
} cli_option;

typedef struct cli_args cli_args;
typedef struct cli_verb {
    const char *name, *purpose; /* the verb's word, and one line about it in help */
    const char *usage;          /* the text after "dovetail <name> " in help */
    const char *about;          /* paragraphs for the verb's help, in lines of at most 100 columns */
    const cli_option *options;  /* the verb's own options, ended by a NULL name; every verb also has --help and --color */
    bool builds_sources;        /* true if the verb builds source files, so that it takes cli_build_options too */
    const char *const
        *examples; /* pairs, ended by NULL: a command that works in a project made by `dovetail new my_ops`, and its effect */
    int (*run_verb)(const cli_args *args);
} cli_verb;

/* Options for compiling and linking source files, ended by a NULL name (cmd_build.c). */
extern const cli_option cli_build_options[];

/* A parsed command line. Strings point into argv. */
struct cli_args {
    const cli_verb *verb;
    const char **operands; /* the words that are neither options nor their values, in order */
    size_t noperands;
    struct cli_given_option {
        const cli_option *option;
        const char *value; /* the value that was given; NULL: the option takes no value */
    } *given_options;      /* every option of the command line, in its order; an option that is given twice has two entries */
    size_t ngiven_options;
};

/* Parses the arguments after the verb. Options and operands may be mixed; "--" ends options; "-1" and "-.5" are operands.
 * Returns CLI_OK, or CLI_USAGE with the message printed. Frees nothing on failure: the process ends. */
int cli_parse_args(const cli_verb *verb, int argc, char **argv, cli_args *out);
bool cli_has_option(const cli_args *args, const char *option);
const char *cli_find_option_value(
    const cli_args *args, const char *option); /* returns the value of the last occurrence; NULL: the option was not given */
/* Returns arguments for `dovetail build` that repeat those given options that are in cli_build_options, in order. NULL ends the
 * list, which lives as long as the process. */
const char *const *cli_list_build_args(const cli_args *args);
/* Sets *out to the option's value, an integer from low to high, or to fallback if the option was not given. Returns CLI_OK;
 * CLI_USAGE, with the message printed, if the value is not such a number. */
int cli_parse_option_int(const cli_args *args, const char *option, int64_t low, int64_t high, int64_t fallback, int64_t *out);
void cli_print_help(const cli_verb *verb); /* prints the help of a verb to stdout */
/* Returns the one of n names that is most similar to a mistyped word; NULL if no name is similar. */
const char *cli_find_nearest_name(const char *word, const char *const *names, size_t n);

/* ---- Text and printing (output.c) ---------------------------------------------------------------------------------------- */

/* A growing text, which its owner zero-initialises. data is NUL-terminated once something was appended. If memory is out, the
 * process ends. */
typedef struct cli_text {
    char *data;
    size_t size, capacity;
} cli_text;
void cli_text_append(cli_text *t, const char *data, size_t size);
void cli_text_append_str(cli_text *t, const char *s);
DV__PRINTF(2, 3) void cli_text_appendf(cli_text *t, const char *format, ...);
void cli_text_free(cli_text *t);
void cli_text_append_json(
    cli_text *t, const char *s); /* appends s as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD */
void cli_text_append_shell_word(cli_text *t, const char *s); /* appends s, quoted so that a POSIX shell reads one word */
DV__PRINTF(1, 2) char *cli_format(const char *format, ...);
void *cli_realloc_array(void *old, size_t n, size_t element_size);
int cli_read_file(const char *path, cli_text *out); /* appends the content of a regular file to *out; returns 0 or errno */
int cli_read_trusted_file(
    const char *path, cli_text *out); /* as cli_read_file(); returns EPERM if another user owns the file or may write to it */

enum cli_style { CLI_STYLE_NONE, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_BLUE };
int cli_set_color(
    const char *mode); /* mode: "auto", "always" or "never"; returns CLI_OK, or CLI_USAGE, without a message, for another word */
bool cli_has_color(FILE *to);
const char *cli_get_escape_code(
    FILE *to, enum cli_style style); /* returns the terminal's escape sequence for a style; "" if the stream has no colour */

extern bool cli_json_output; /* true if --json was given: results and failures are one JSON document on stdout */
/* Sets cli_json_output. Moves the command's stdout to a new descriptor, to which only the document is written: what a library
 * prints to stdout goes to stderr from then on. If this fails, stdout stays as it is, and the document goes there. A second call
 * changes nothing. */
void cli_begin_json_output(void);
int cli_get_document_descriptor(void); /* returns the descriptor to which the document is written; 1 without --json */
/* Writes the document and a newline. If that fails, cli_try_flush_output() reports it. */
void cli_print_document(const char *json);
/* Writes all that is buffered for stdout and for the document. Returns false, without a message, if this or an earlier write
 * failed. */
bool cli_try_flush_output(void);
/* Print "dovetail: error: ..." to stderr. cli_fail() returns CLI_FAILED; cli_fail_usage() adds a hint at the verb's help, and
 * returns CLI_USAGE. */
DV__PRINTF(1, 2) int cli_fail(const char *format, ...);
DV__PRINTF(2, 3) int cli_fail_usage(const cli_verb *verb, const char *format, ...);
/* Returns the part of a message after "dovetail: error: ", which another process of this command may have written. */
const char *cli_skip_error_prefix(const char *message);
DV__PRINTF(1, 2) void cli_print_note(const char *format, ...); /* prints "dovetail: ..." to stderr */
void cli_format_bytes(char out[16], double n);                 /* writes a number of bytes for people: "14.0 KB" */
double cli_get_seconds(void);                                  /* returns the seconds of the monotonic clock */

/* ---- Where things are (home.c) ------------------------------------------------------------------------------------------- */

/* Returns the folder that holds include/, lib/ and ops/: $DOVETAIL_HOME, or else a folder above the command's program. NULL with
 * the message printed. The text lives as long as the process. */
const char *cli_find_home(void);
/* Returns the path of this process's program, to run it again. Below valgrind the link /proc/self/exe leads to valgrind's own
 * program, and only readlink() of it is emulated. The link itself is returned if the path is no longer a program. */
const char *cli_find_command(void);

/* ---- Paths (paths.c) ----------------------------------------------------------------------------------------------------- */

char *cli_join_path(
    const char *folder, const char *name); /* returns "folder/name", or name alone if folder is "" or "."; the caller frees it */
bool cli_is_folder(const char *path);
bool cli_is_same_file(
    const char *a, const char *b); /* true if two paths name the same file; false if one of them does not exist */
bool cli_is_repeated_operand(const cli_args *args, size_t i); /* true if operand i names the same file as an operand before it */

/* ---- Operators by name, and arguments from words (load.c) ---------------------------------------------------------------- */

/* True if an operand is to be built: a source file, or a folder that holds source files. */
bool cli_is_source_operand(const char *word);
/* True if an operand is a binary or a source to be built, and not the name of an operator: it has a '/', ends in .so, or is a
 * source. A call site "ns::op(...)" is none of these. */
bool cli_is_binary_operand(const char *word);
/* Returns the number of binaries and sources at the beginning of the operands, before the first operand of another kind. */
size_t cli_count_binary_operands(const cli_args *args);
/* Loads each binary among the first n operands, and for a source the binary that `dovetail build --cached` makes of it. Source
 * files are one library if at most one of them defines a library; a folder is one library. may_name_operators: other operands are
 * names of operators, and are skipped. Returns CLI_OK, or CLI_FAILED with the message printed. Libraries live as long as the
 * process. */
int cli_load_binaries(const cli_args *args, size_t n, bool may_name_operators);
/* Returns the source files among the first n operands as one list, if they are two or more files of one library; else NULL. The
 * caller frees the list. *nfiles: the length of the list. */
const char **cli_gather_library_sources(const cli_args *args, size_t n, size_t *nfiles);
void cli_load_shipped(void); /* loads the binaries in <home>/ops, once in the process */
/* Sets *out to the libraries of all loaded binaries, in the order of loading, and returns their number. */
size_t cli_list_libraries(dv_library *const **out);
/* Finds the operators for a word of the command line, in order of name: "ns::op" (all its overloads), "ns::op.overload", "ns"
 * (all of a namespace), "op". Searches loaded operators, then the shipped ones. Returns CLI_OK with at least one operator, or
 * CLI_FAILED with the message printed. The caller frees the list; its operators live as long as the process. */
int cli_find_operators(const char *word, dv_operator ***out, size_t *nfound);

/* Makes the call site that the operands from first_operand on describe: the name of an operator and its arguments, each a word,
 * or the whole call site in one word (docs/site.md). The operator is found as by cli_find_operators(). Returns CLI_OK; CLI_FAILED
 * if not exactly one operator is found; CLI_USAGE if the call is wrong. Prints the message. The caller frees the call site. */
int cli_make_call_site(const cli_args *args, size_t first_operand, dv_site **out);
void cli_print_site(const dv_site *s);

/* ---- Running programs, temporary folders, interruption (process.c) ------------------------------------------------------- */

/* Defers SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE, so that temporary files can be removed. Until cli_signals_end() these
 * signals are passed to the running program and recorded, but do not end this process. cli_signals_end() raises a recorded signal
 * again. */
void cli_signals_begin(void);
void cli_signals_end(void);
bool cli_is_interrupted(void);
/* Writes all bytes to a descriptor that may block, such as a pipe with a slow reader. Returns 0 or errno; EINTR: a signal came
 * first. */
int cli_write_all(int fd, const char *data, size_t size);

/* Runs argv[0], found on PATH, without a shell, and waits. output (NULL: not redirected) receives stdout and stderr: the first
 * and the last half megabyte, and the number of bytes left out between them. extra_env: "NAME=value" or NULL. The program has its
 * own process group, which is killed afterwards. Returns the exit status; 128 + n if signal n ended the program; -1 - errno if it
 * could not be started. */
int cli_run_program(const char *const *argv, const char *extra_env, cli_text *output);
/* Runs fn in a child process, which may crash. Its output to the file descriptor is appended to output. Returns as
 * cli_run_program(); more than 128 MB of output are refused. */
int cli_run_in_child(int (*fn)(void *user, int fd), void *user, cli_text *output);
char *cli_find_program_path(
    const char *name); /* returns the path of a program, searched on PATH; NULL: not found. The caller frees it */
bool cli_is_program_on_path(const char *name); /* true if PATH has the program */
/* Returns the path of a Python program that may have the frameworks: $DOVETAIL_PYTHON (empty: none); the one of the environment
 * in which this command is installed; the one of the active environment; the first one on PATH. NULL: none. The caller frees it.
 */
char *cli_new_python_path(void);
/* Returns "PYTHONPATH=..." with the folder of the package `dovetail` in a build tree; NULL: the package is installed, or not
 * found. The caller frees it. */
char *cli_make_python_path(void);
/* Runs `python -m dovetail.<bridge> action out_path operand...`, which prints its own results and messages. Returns CLI_OK, or
 * CLI_FAILED. */
int cli_run_bridge(const char *bridge, const char *action, const char *out_path, const cli_args *args);

/* Private temporary folder for a file that goes to `folder`, locked for as long as this process lives. It lies inside `folder`.
 * If other users could rename entries of `folder`, it lies in a usual place for temporary files. So a compiler's output and a
 * loaded binary are always files of this user. */
typedef struct cli_temp {
    char *path;
    int lock, parent; /* descriptors of the folder and of its parent folder; valid if path is not NULL */
} cli_temp;
/* Makes the folder, and removes folders that dead processes of this user left in the same parent folder. Returns CLI_OK;
 * CLI_FAILED with errno set and `path` NULL. cli_temp_remove() removes the folder with its contents. */
int cli_temp_make(const char *folder, cli_temp *out);
void cli_temp_remove(cli_temp *t);
int cli_open_folder(
    const char *folder); /* opens a folder for openat(): a descriptor, or -1 with errno set; "": the current folder */
int cli_copy_file(int from_fd, int to_fd); /* copies all bytes from one open file to another; 0 or errno */
/* Replaces the entry `name` of an open folder by a copy of an open file, with the file's mode. The replacement is atomic: no
 * reader sees half of the copy. A link of that name is replaced, not followed. Returns 0 or errno. */
int cli_replace_file(int from_fd, int folder_fd, const char *name);
/* Writes a file completely or not at all, in a folder that others may write to as well. Returns 0 or errno. */
int cli_write_file(const char *path, const char *data, size_t size);

/* ---- The digest in a binary (stamp.c) ------------------------------------------------------------------------------------ */

/* Writes the digest of a binary's loaded bytes into the binary. writable_fd: the file at `path`, open for writing. Returns 0 or
 * errno; ENOEXEC: the file cannot have a digest, for the reason in dv_last_error(). */
int cli_write_digest(const char *path, int writable_fd);
int cli_renew_digest(const char *path); /* renews the digest of a user's binary, which is replaced in one step; returns CLI_OK, or
                                           CLI_FAILED with the message printed */

/* ---- Cached builds (cache.c) --------------------------------------------------------------------------------------------- */

enum { CLI_HASH_SIZE = 33 };                                  /* 128 bits as hexadecimal text, with the NUL */
int cli_hash_file(const char *path, char out[CLI_HASH_SIZE]); /* writes the hash of a file's content to out; returns 0 or errno */

/* One entry of the user's folder of cached builds: $DOVETAIL_CACHE, else $XDG_CACHE_HOME/dovetail, else ~/.cache/dovetail. If
 * other users could change the folder's contents, a temporary folder with this prefix is used instead (python/dovetail/_source.py
 * has the prefix too). */
#define CLI_PRIVATE_FOLDER_PREFIX "dovetail-private-"
typedef struct cli_cache {
    char *folder, *binary, *record; /* binary and record are paths, and NULL until the entry is found or stored */
    char key[CLI_HASH_SIZE];
    int lock;
    struct timespec locked_since; /* the time when the lock was taken */
} cli_cache;
/* Opens the entry for a key: a text of everything, known before compiling, that determines the binary. Makes and checks the
 * folder. Returns CLI_OK, or CLI_FAILED with the message printed; the caller calls cli_cache_close() in every case. */
int cli_cache_open(const cli_text *key, cli_cache *out);
void cli_cache_close(cli_cache *c);
bool cli_cache_has_current_binary(cli_cache *c); /* returns true if the entry has a complete binary whose inputs are unchanged;
                                                    sets `binary` and `record`; needs no lock */
int cli_cache_lock(cli_cache *c); /* locks the entry, and waits while another process builds it, so that the caller looks again
                                     afterwards; returns CLI_OK or CLI_FAILED */
/* Moves a new binary into the cache. The binary was made with the lock held, in a folder inside the cache's. dependency_rules:
 * the outputs of the compilers' -MMD, a NUL after each. other_inputs: further files that determine the binary. Returns CLI_OK or
 * CLI_FAILED. */
int cli_cache_store(cli_cache *c, const char *new_binary, const cli_text *dependency_rules, const char *const *other_inputs,
    size_t nother_inputs);
void cli_cache_remove_unused(
    const cli_cache *c); /* removes entries that were not used for 30 days; does nothing if that was done within a day */

/* ---- Source files of a folder (includes.c) ------------------------------------------------------------------------------- */

/* True if a name ends like a source file: .c, .cpp, .cu, .cce. */
bool cli_has_source_extension(const char *name);
/* True if a source file has a line that begins with DV_LIBRARY. */
bool cli_defines_library(const char *path);
/* True if at most one of n source files defines a library, so that they are built as one. */
bool cli_is_one_library(const char *const *files, size_t n);
/* Source files of a folder, each list in order of name. operator_files include <dovetail_op.h>, directly or through headers
 * beside them, of -I or of Dovetail; other_files do not. The strings live as long as the process; the caller frees the two lists.
 */
typedef struct cli_sources {
    const char **operator_files, **other_files;
    size_t noperator_files, nother_files;
} cli_sources;
/* Finds the source files of a folder. missing (or NULL) receives the names of headers that were not found, separated by commas.
 * Returns CLI_OK, even if there are no source files; CLI_FAILED, with the message printed, if the folder or a source file cannot
 * be read. */
int cli_find_sources(const cli_args *args, const char *folder, cli_sources *out, cli_text *missing);
/* True if a source file defines main(). Such a program is not a part of an operator binary. */
bool cli_is_program_file(const char *path);

/* ---- Contents of a compiled binary (elf.c) ------------------------------------------------------------------------------- */

/* Names in a shared object that the linker just made: its defined dynamic symbols, undefined weak symbols and needed libraries.
 * For an object file: all its global symbols. cli_elf_read() reads them, and returns CLI_OK, or CLI_FAILED without a message. */
typedef struct cli_elf {
    char **symbols, **undefined_weak, **needed;
    size_t nsymbols, nundefined_weak, nneeded;
} cli_elf;
int cli_elf_read(const char *path, cli_elf *out);
void cli_elf_free(cli_elf *e);
bool cli_is_sanitizer_runtime(
    const char *library); /* true if the name of a library is that of a sanitizer's runtime (cmd_build.c) */

/* ---- The machine code of kernels (machine_code.c) ------------------------------------------------------------------------ */

/* The functions of a binary that is loaded in this process, decoded as far as needed. */
typedef struct cli_machine_code cli_machine_code;
/* Opens the loaded binary that contains a code address. NULL: its functions cannot be found, or cannot be decoded on this
 * machine. */
cli_machine_code *cli_machine_code_open(const void *address);
void cli_machine_code_close(cli_machine_code *c);
/* True if a kernel for a vector instruction set was certainly compiled for the base set. Then no loop that the kernel's function
 * `entry` reaches has an instruction of AVX or later. Also, some loop has SSE instructions, or writes memory in a function that
 * the base kernels' functions (base_entries) reach too. only_libc: the binary needs no library but libc, so that no other library
 * can do the work. */
bool cli_machine_code_is_base(
    cli_machine_code *c, const void *entry, const void *const *base_entries, size_t nbase_entries, bool only_libc);

/* ---- Inspection of a binary in another process (cmd_build.c) ------------------------------------------------------------- */

/* First argument with which the command starts itself to inspect a binary that needs the runtime of a sanitizer (cmd_build.c). */
#define CLI_INSPECT_ARGUMENT "--inspect-binary"
/* Inspects a binary and ends the process. words: a file descriptor for the answer, the binary, the path of the output, and "1" if
 * --allow-unknown was given. */
_Noreturn void cli_inspect_binary(char **words);

/* ---- Mistakes of the author (hints.c) ------------------------------------------------------------------------------------ */

/* Explanations of a compiler's or linker's errors. cli_add_hints() reads their messages, and adds a line "file:line: explanation"
 * for each error inside Dovetail's macros that it knows. */
typedef struct cli_hints {
    cli_text text;
    size_t nhints;
} cli_hints;
void cli_add_hints(const char *messages, cli_hints *out);

#endif
