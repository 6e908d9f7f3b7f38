/* Finds Dovetail's own files. Every installation has the layout <home>/bin/dovetail, <home>/lib, <home>/include, <home>/ops; in
 * the build tree `include` is a link. */
#include "cli.h"

#include <stdlib.h>
#include <unistd.h>

/* True if the folder has include/dovetail_op.h, so that it is a home. */
static bool home_has_header(const char *folder)
{
    char *path = cli_join_path(folder, "include/dovetail_op.h");
    const bool there = access(path, R_OK) == 0;
    free(path);
    return there;
}

static const char own_link[] = "/proc/self/exe";

/* Returns the path of this process's program; "": unknown. */
static const char *home_get_command_path(void)
{
    static char path[4096];
    const ssize_t n = *path ? 0 : readlink(own_link, path, sizeof path - 1);
    path[n > 0 ? (size_t)n : strlen(path)] = 0;
    return path;
}

const char *cli_find_command(void) { return !access(home_get_command_path(), X_OK) ? home_get_command_path() : own_link; }

/* Returns the folder of this process's program, which the caller frees; NULL: unknown. */
static char *home_find_command_folder(void)
{
    const char *path = home_get_command_path(), *slash = strrchr(path, '/');
    return slash ? cli_format("%.*s", (int)(slash - path), path) : NULL;
}

const char *cli_find_home(void)
{
    static char *home;
    if (home)
        return home;
    const char *set = getenv("DOVETAIL_HOME");
    if (set && *set) {
        if (!home_has_header(set)) {
            cli_fail("DOVETAIL_HOME is '%s', but there is no include/dovetail_op.h in it", set);
            return NULL;
        }
        return home = cli_format("%s", set);
    }
    char *bin = home_find_command_folder();
    if (bin) {
        static const char *const up[] = { "..", "." };
        for (size_t i = 0; i < 2 && !home; i++) {
            char *candidate = cli_join_path(bin, up[i]), *real = realpath(candidate, NULL);
            if (real && home_has_header(real))
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
