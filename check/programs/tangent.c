#include "tangent.h"

static int question(dv_operator *op, dv_value *results) { return (void)results, ask(op, tangent_along, "tangent"); }
