#include "registry/internal.h"

int dv__policy_init(void) { return DV_OK; }
