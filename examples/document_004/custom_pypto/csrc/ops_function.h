/* ops_function.h: the operators of this folder */
#include <dovetail_op.h>

DV__HIDDEN extern const dv_operator_decl dv_op_add_custom, dv_op_add_custom_backward, dv_op_npu_lightning_indexer_pto,
    dv_op_npu_sparse_attention_pto;
