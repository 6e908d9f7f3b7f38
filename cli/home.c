/* One layout everywhere: <home>/bin/dovetail, <home>/lib, <home>/include, <home>/ops; in the build tree include is a link. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

static bool has_header(const char *folder)
{
    char *path = cli_join(folder, "include/dovetail_op.h");
    const bool there = access(path, R_OK) == 0;
    free(path);
    return there;
}

static char *own_folder(void)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return NULL;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = 0;
    return cli_format("%s", path);
}

const char *cli_home(void)
{
    static char *home;
    if (home)
        return home;
    const char *set = getenv("DOVETAIL_HOME");
    if (set && *set) {
        if (!has_header(set)) {
            cli_fail("DOVETAIL_HOME is '%s', but there is no include/dovetail_op.h in it", set);
            return NULL;
        }
        return home = cli_format("%s", set);
    }
    char *bin = own_folder();
    if (bin) {
        static const char *const up[] = { "..", "." };
        for (size_t i = 0; i < 2 && !home; i++) {
            char *candidate = cli_join(bin, up[i]), *real = realpath(candidate, NULL);
            if (real && has_header(real))
                home = real;
            else
                free(real);
            free(candidate);
        }
    }
    if (!home)
        cli_fail("no include/dovetail_op.h beside this command ('%s'): set DOVETAIL_HOME to the folder that holds include/, lib/ "
                 "and ops/",
            bin ? bin : "unknown place");
    free(bin);
    return home;
}
