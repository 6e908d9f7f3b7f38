/* What programs of more than one call know of arguments and results. */
#pragma once
#include "case.h"

enum { SLOT = 1, AXIS = 0, AT = 2, SIZE = 4, NTENSORS = 1 };
#define RTOL 0x1p-20
#define ATOL 0x1p-20
static const char is_written[] = { 0, 0 };
static const char is_argument[] = { 0, 0 };
