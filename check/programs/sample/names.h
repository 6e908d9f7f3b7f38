/* Which operator and which rows. */
#pragma once
#define BINARY "my_ops.so"
#define OPERATOR "my_ops::scale"
enum { ROW = 0, OTHER_ROW = 1, AT_END = 1, APART = 0, ARGUMENTS_APART = 0 };
