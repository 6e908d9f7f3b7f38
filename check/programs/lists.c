#include "crash.c"
