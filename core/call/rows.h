/* From checked values to a kernel that has run. */
#ifndef DV_CALL_ROWS_H
#define DV_CALL_ROWS_H

#include "call/state.h"

int dv__run_rows(dv__call *c, const dv__entry *entry);
int dv__run_views(dv__call *c, bool *all_views); /* an operator whose results are all views needs no kernel */
int dv__run_contract(dv__call *c);               /* outputs only: on Meta */
/* The first row that fits, or NULL. *status: a predicate could not be evaluated. */
const dv__row *dv__choose_row(dv__call *c, const dv__entry *entry, int *status);
/* Why a row does not fit, in words; NULL: it fits. */
const char *dv__row_reason(dv__call *c, const dv__row *row, char *buffer, size_t size);
int dv__no_row(dv__call *c, const dv__entry *entry); /* DV_ENOKERNEL with all reasons */

#endif
