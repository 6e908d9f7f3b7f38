/* register.c: the library myops */
#include "function.h"

DV_LIBRARY(myops, &dv_op_my_op, &dv_op_my_op_backward, &dv_op_add_custom);
