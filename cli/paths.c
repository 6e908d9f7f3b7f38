/* Joins paths, and compares them by the files that they name. */
#include "cli.h"

#include <sys/stat.h>

char *cli_join_path(const char *folder, const char *name)
{
    if (!*folder || !strcmp(folder, "."))
        return cli_format("%s", name);
    return cli_format(folder[strlen(folder) - 1] == '/' ? "%s%s" : "%s/%s", folder, name);
}

bool cli_is_folder(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

bool cli_is_same_file(const char *a, const char *b)
{
    struct stat file, other;
    return !stat(a, &file) && !stat(b, &other) && file.st_ino == other.st_ino && file.st_dev == other.st_dev;
}

bool cli_is_repeated_operand(const cli_args *args, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (cli_is_same_file(args->operands[k], args->operands[i]))
            return true;
    return false;
}
