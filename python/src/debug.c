/* DOVETAIL_DEBUG=4: each call that Python makes, and the kernel row that it takes. */
#include "extension.h"

#include <stdio.h>
#include <stdlib.h>

bool ext_shows_calls;

void ext_debug_setup(void)
{
    const char *level = getenv("DOVETAIL_DEBUG");
    ext_shows_calls = level && atoi(level) >= 4;
}

static void note_row(void *user, const dv_row_report *row)
{
    if (row->taken)
        snprintf(user, 200, "row %.100s%s%.20s", row->name, row->isa && *row->isa ? ", " : "", row->isa ? row->isa : "");
}

/* Shown before the call, so that a call which crashes is the last line. */
void ext_show_call(const ext_call *c)
{
    char row[200] = "";
    dv_site *site = NULL;
    char *text = NULL;
    if (dv_explain(c->f->op, c->args, c->f->nargs, note_row, row))
        snprintf(row, sizeof row, "%.180s", dv_last_error());
    if (!dv_site_new(c->f->op, c->args, c->f->nargs, &site))
        dv_site_print(site, &text);
    PySys_FormatStderr("dovetail: call %s: %s\n", text ? text : dv_operator_name(c->f->op), *row ? row : "no row");
    dv_free(text);
    dv_site_free(site);
    dv_clear_error();
}
