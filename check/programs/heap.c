#include "heap.h"
#include "bounds.c"
