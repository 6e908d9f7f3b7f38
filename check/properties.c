/* The table of all properties, in the order in which they are checked. */
#include "check.h"

/* property_torch.c makes this property's jobs from the answer of a Python process. The entry is here, so that the table does not
 * need that file, which runs jobs itself. */
const check_property check_property_torch = {
    .name = "torch",
    .description = "fake tensors, autograd, compilation, functionalization and vmap agree with eager calls",
    .runs_in_python = true,
};

#define PROPERTY_ENTRY(name) &check_property_##name,
const check_property *const check_properties[] = { CHECK_PROPERTIES(PROPERTY_ENTRY) NULL };
#undef PROPERTY_ENTRY
