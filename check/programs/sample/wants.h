/* Whose gradients are asked for, and which tensor is looked at. A program has `wants`, or for tangents `slot_of`. */
#pragma once
#include <stdbool.h>
enum { TENSOR = 0, TENSOR_SLOT = 0 };
#define TENSOR_AT ((size_t)0)
static const bool wants[] = { 1, 0 };
static const int slot_of[] = { 0, 0 };
