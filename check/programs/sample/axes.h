/* Along which axis each tensor is cut. */
#pragma once
static const int axes[] = { 0, -1 };
