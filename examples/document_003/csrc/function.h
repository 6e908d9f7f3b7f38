/* function.h: the operators of extension_add.c and extension_add1.c */
#include <dovetail_op.h>

DV__HIDDEN extern const dv_operator_decl dv_op_my_op, dv_op_my_op_backward, dv_op_add_custom;
