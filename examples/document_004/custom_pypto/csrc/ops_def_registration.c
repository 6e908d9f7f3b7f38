/* ops_def_registration.c: the library custom_pypto */
#include "ops_function.h"

DV_LIBRARY(custom_pypto, &dv_op_add_custom, &dv_op_add_custom_backward, &dv_op_npu_lightning_indexer_pto,
    &dv_op_npu_sparse_attention_pto);
