/* DOVETAIL_DEBUG=4: prints each call that Python makes, and the kernel that the call selects. */
#include "extension.h"

#include <stdio.h>
#include <stdlib.h>

bool ext_trace_calls;

void ext_debug_setup(void)
{
    const char *level = getenv("DOVETAIL_DEBUG");
    ext_trace_calls = level && atoi(level) >= 4;
}

/* Writes the name and the instruction set of the selected kernel to `user`, a buffer of 200 bytes. Callback of dv_explain(). */
static void debug_print_kernel(void *user, const dv_kernel_report *report)
{
    if (report->selected)
        snprintf(user, 200, "row %.100s%s%.20s", report->name, report->isa && *report->isa ? ", " : "",
            report->isa ? report->isa : "");
}

/* Prints a call before it is made, so that a call that crashes is the last line. */
void ext_trace_call(const ext_call *c)
{
    char row[200] = "";
    dv_site *site = NULL;
    char *text = NULL;
    if (dv_explain(c->f->op, c->args, c->f->nargs, debug_print_kernel, row))
        snprintf(row, sizeof row, "%.180s", dv_last_error());
    if (!dv_site_new(c->f->op, c->args, c->f->nargs, &site))
        dv_site_print(site, &text);
    PySys_FormatStderr("dovetail: call %s: %s\n", text ? text : dv_operator_name(c->f->op), *row ? row : "no kernel");
    dv_free(text);
    dv_site_free(site);
    dv_clear_error();
}
