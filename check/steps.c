#include "check.h"
#include "steps.h"

bool check_steps_begin(void) { return steps_begin(); }
int64_t check_steps_end(void) { return steps_end(); }
