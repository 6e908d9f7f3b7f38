#include "poison.c"
