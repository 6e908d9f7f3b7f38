/* dovetail new: makes an operator project. The templates are a working project called my_ops, whose name is replaced by the new
 * one. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "templates.h"

enum { NTEMPLATES = sizeof templates / sizeof *templates };
#define TEMPLATE_NAME "my_ops"

/* Words that cannot be the name of a project, which becomes a C identifier, a namespace of operators, a Python module and a file
 * name. */
static const char *const reserved_words[] = { /* C11's and Python's */
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for",
    "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "False", "None", "True", "and", "as", "assert",
    "async", "await", "class", "def", "del", "elif", "except", "finally", "from", "global", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "try", "with", "yield", "bool", "complex", "asm", "typeof"
};
/* Existing namespaces and modules, those of Python's standard library (3.9 to 3.14): the project would hide them, or could not be
 * imported. */
static const char *const reserved_modules[] = { "aten", "prim", "prims", "torch", "numpy", "jax", "mindspore", "vllm", "onnx",
    "dovetail", "main", "test", "tests", "struct_", "pip", "setuptools", "pytest", "abc", "aifc", "annotationlib", "antigravity",
    "argparse", "array", "ast", "asynchat", "asyncio", "asyncore", "atexit", "audioop", "base64", "bdb", "binascii", "bisect",
    "builtins", "bz2", "cProfile", "calendar", "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop", "collections",
    "colorsys", "compileall", "compression", "concurrent", "configparser", "contextlib", "contextvars", "copy", "copyreg",
    "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal", "difflib", "dis", "distutils", "doctest",
    "email", "encodings", "ensurepip", "enum", "errno", "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "fractions",
    "ftplib", "functools", "gc", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib", "grp", "gzip", "hashlib",
    "heapq", "hmac", "html", "http", "idlelib", "imaplib", "imghdr", "imp", "importlib", "inspect", "io", "ipaddress",
    "itertools", "json", "keyword", "lib2to3", "linecache", "locale", "logging", "lzma", "mailbox", "mailcap", "marshal", "math",
    "mimetypes", "mmap", "modulefinder", "msilib", "msvcrt", "multiprocessing", "netrc", "nis", "nntplib", "nt", "ntpath",
    "nturl2path", "numbers", "opcode", "operator", "optparse", "os", "ossaudiodev", "pathlib", "pdb", "pickle", "pickletools",
    "pipes", "pkgutil", "platform", "plistlib", "poplib", "posix", "posixpath", "pprint", "profile", "pstats", "pty", "pwd",
    "py_compile", "pyclbr", "pydoc", "pydoc_data", "pyexpat", "queue", "quopri", "random", "re", "readline", "reprlib",
    "resource", "rlcompleter", "runpy", "sched", "secrets", "select", "selectors", "shelve", "shlex", "shutil", "signal", "site",
    "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd", "sqlite3", "sre_compile", "sre_constants", "sre_parse", "ssl",
    "stat", "statistics", "string", "stringprep", "struct", "subprocess", "sunau", "symtable", "sys", "sysconfig", "syslog",
    "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap", "this", "threading", "time", "timeit", "tkinter",
    "token", "tokenize", "tomllib", "trace", "traceback", "tracemalloc", "tty", "turtle", "turtledemo", "types", "typing",
    "unicodedata", "unittest", "urllib", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser", "winreg", "winsound",
    "wsgiref", "xdrlib", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib", "zoneinfo" };

/* Macros of C's headers. With such a project name, the project's C file would not compile, or its library would get another name.
 */
static const char *const reserved_macros[] = { "NULL", "EOF", "NAN", "INFINITY", "BUFSIZ", "RAND_MAX", "SIZE_MAX", "true",
    "false", "stdin", "stdout", "stderr", "linux", "unix", "I", "HUGE_VAL", "offsetof", "noreturn", "alignas", "alignof" };

static bool new_list_has_name(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i]))
            return true;
    return false;
}

static char *new_make_valid_name(const char *name)
{
    char *s = cli_format("%s%s", isdigit((unsigned char)*name) ? "ops_" : "", name);
    for (char *p = s; *p; p++)
        if (!isalnum((unsigned char)*p) || (unsigned char)*p > 127)
            *p = '_';
    return s;
}

static int new_check_project_name(const cli_verb *verb, const char *name)
{
    bool identifier = isalpha((unsigned char)*name) && strlen(name) <= 60;
    for (const char *p = name; *p; p++)
        identifier = identifier && (unsigned char)*p < 128 && (isalnum((unsigned char)*p) || *p == '_');
    if (!identifier) {
        char *form = new_make_valid_name(name);
        const int status = isalpha((unsigned char)*form) && strlen(form) <= 60
            ? cli_fail_usage(
                  verb, "'%s' is not a name: expected a C identifier that begins with a letter, such as '%s'", name, form)
            : cli_fail_usage(
                  verb, "'%s' is not a name: expected a C identifier of at most 60 characters that begins with a letter", name);
        free(form);
        return status;
    }
    if (new_list_has_name(name, reserved_words, sizeof reserved_words / sizeof *reserved_words))
        return cli_fail_usage(verb, "'%s' is a keyword of C or Python: choose another name, such as '%s_ops'", name, name);
    if (new_list_has_name(name, reserved_macros, sizeof reserved_macros / sizeof *reserved_macros))
        return cli_fail_usage(verb, "'%s' is a macro of C: choose another name, such as '%s_ops'", name, name);
    if (new_list_has_name(name, reserved_modules, sizeof reserved_modules / sizeof *reserved_modules))
        return cli_fail_usage(verb,
            "'%s' is the name of a Python module or of a namespace that exists: choose another, such as '%s_ops'", name, name);
    return CLI_OK;
}

static void new_append_template_text(cli_text *to, const char *text, size_t text_size, const char *name)
{
    const size_t n = strlen(TEMPLATE_NAME);
    size_t start = 0;
    for (size_t i = 0; i + n <= text_size;) {
        if (memcmp(text + i, TEMPLATE_NAME, n)) {
            i++;
            continue;
        }
        cli_text_append(to, text + start, i - start);
        cli_text_append_str(to, name);
        start = i += n;
    }
    cli_text_append(to, text + start, text_size - start);
}

/* path: for messages. */
static int new_write_file(int folder, const char *file, const char *path, const cli_text *content)
{
    const int fd = openat(folder, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return cli_fail("cannot create '%s': %s", path, strerror(errno));
    const bool written = fwrite(content->data, 1, content->size, f) == content->size;
    if (fclose(f) || !written)
        return cli_fail("cannot write '%s': %s", path, strerror(errno));
    return CLI_OK;
}

/* Makes the folders in the path of a file, below an open folder. shown: its path, for messages. */
static int new_make_folders(int folder, const char *file, const char *display_path)
{
    for (const char *slash = strchr(file, '/'); slash; slash = strchr(slash + 1, '/')) {
        char *path = cli_format("%.*s", (int)(slash - file), file);
        const int failed = mkdirat(folder, path, 0777) && errno != EEXIST ? errno : 0;
        const int status = failed ? cli_fail("cannot create folder '%s/%s': %s", display_path, path, strerror(failed)) : CLI_OK;
        free(path);
        if (status)
            return status;
    }
    return CLI_OK;
}

/* Writes the files of a new project and lists their names. folder: the new folder, open; shown: its path, for messages. */
static int new_write_templates(int folder, const char *display_path, const char *name, cli_text *list)
{
    int status = CLI_OK;
    for (size_t i = 0; i < NTEMPLATES && !status; i++) {
        cli_text file = { 0 }, content = { 0 };
        new_append_template_text(&file, templates[i].path, strlen(templates[i].path), name);
        new_append_template_text(&content, templates[i].data, templates[i].size, name);
        char *path = cli_join_path(display_path, file.data);
        status = new_make_folders(folder, file.data, display_path);
        if (!status)
            status = new_write_file(folder, file.data, path, &content);
        if (!status)
            cli_text_appendf(list, "%s%s", i ? "\n" : "", file.data);
        free(path);
        cli_text_free(&file);
        cli_text_free(&content);
    }
    return status;
}

/* Removes the written files and folders after a failure, deepest first, and nothing else. They are found from the open folder,
 * since another user may have replaced its path. */
static void new_remove_templates(int folder, const char *path, const char *name)
{
    for (size_t i = 0; i < NTEMPLATES; i++) {
        cli_text file = { 0 };
        new_append_template_text(&file, templates[i].path, strlen(templates[i].path), name);
        unlinkat(folder, file.data, 0);
        for (char *slash; (slash = strrchr(file.data, '/'));) {
            *slash = 0;
            unlinkat(folder, file.data, AT_REMOVEDIR);
        }
        cli_text_free(&file);
    }
    rmdir(path);
}

static int cmd_new_run(const cli_args *args)
{
    if (args->noperands != 1)
        return cli_fail_usage(args->verb,
            args->noperands ? "expected one name, found %zu words" : "expected a name for the project", args->noperands);
    char *folder = cli_format("%s", args->operands[0]);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    cli_text list = { 0 };
    struct stat s;
    int status = new_check_project_name(args->verb, name);
    if (status)
        goto done;
    if (mkdir(folder, 0777)) {
        status = errno == EEXIST ? cli_fail("'%s' exists already: nothing was changed", folder)
                                 : cli_fail("cannot create folder '%s': %s", folder, strerror(errno));
        goto done;
    }
    const int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    status = folder_fd < 0 || fstat(folder_fd, &s) ? cli_fail("cannot open folder '%s': %s", folder, strerror(errno))
        : s.st_uid != geteuid() ? cli_fail("'%s' belongs to another user: it was replaced while it was created", folder)
                                : new_write_templates(folder_fd, folder, name, &list);
    if (status && folder_fd >= 0)
        new_remove_templates(folder_fd, folder, name);
    if (folder_fd >= 0)
        close(folder_fd);
    if (status)
        goto done;
    printf("%s%s%s: a new operator project\n", cli_get_escape_code(stdout, CLI_BOLD), folder,
        cli_get_escape_code(stdout, CLI_STYLE_NONE));
    for (const char *p = list.data; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        printf("  %.*s\n", (int)strcspn(p, "\n"), p);
    cli_text quoted = { 0 };
    cli_text_append_shell_word(&quoted, folder);
    printf("\nNext: %scd %s && dovetail build%s, then see its README.md\n", cli_get_escape_code(stdout, CLI_GREEN), quoted.data,
        cli_get_escape_code(stdout, CLI_STYLE_NONE));
    cli_text_free(&quoted);
done:
    cli_text_free(&list);
    free(folder);
    return status;
}

static const char *const new_examples[] = { "dovetail new vision_ops", "makes the folder vision_ops with vision_ops.c in it",
    NULL };

const cli_verb verb_new = {
    .name = "new",
    .purpose = "make an operator project from nothing",
    .usage = "NAME | FOLDER/NAME",
    .about = "Writes a folder with one C file that declares a real operator and its gradient, a C program that uses it\n"
             "without Python, what `pip install .` needs, tests, and a README with the next steps.\n"
             "NAME becomes the operators' namespace, a C identifier and a Python module. Nothing is ever overwritten.",
    .options = NULL,
    .examples = new_examples,
    .run_verb = cmd_new_run,
};
