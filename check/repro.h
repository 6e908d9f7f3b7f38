/* Shared by the files that write programs: repro.c and its texts. */
#ifndef DV_CHECK_REPRO_H
#define DV_CHECK_REPRO_H

#include "check.h"

/* The parts of a C program for one enum check_show: what its question needs, in this order (NULL at the end), and the question.
 */
typedef struct check_repro_text { const char *needs[8], *question; } check_repro_text;
extern const check_repro_text check_repro_texts[CHECK_SHOW_COUNT];
/* Of steps.h, operations.h, between.h. */
extern const char check_steps_text[], check_operations_text[], check_between_text[];

#endif
