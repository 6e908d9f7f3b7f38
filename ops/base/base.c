/* base.c: the list of the base set's operators, from the tables in base.h and elementwise.h. */
#include "base.h"
#include "elementwise.h"

/* clang-format off */
#define UNARY(NAME, ...) ENTRY(NAME)
#define BOTH(NAME, ...) ENTRY(NAME##_Tensor) ENTRY(NAME##_Scalar)
#define OPERATORS                                                                                                               \
    BASE_UNARY_FLOAT(UNARY) BASE_UNARY_NUMBER(UNARY) BASE_BINARY_ALPHA(BOTH) BASE_BINARY(BOTH) BASE_COMPARE(BOTH)               \
    BASE_ELEMENTWISE_OTHER(ENTRY) BASE_REDUCE(ENTRY) BASE_SHAPE(ENTRY) BASE_MAKE(ENTRY) BASE_MATMUL(ENTRY)
/* clang-format on */

#define ENTRY(NAME) DV__HIDDEN extern const dv_operator_decl dv_op_##NAME;
OPERATORS
#undef ENTRY
#define ENTRY(NAME) &dv_op_##NAME,

DV_LIBRARY(base, OPERATORS NULL);
