/* What the program keeps for each layer of its model. The operator finds it by name. */
#include <stdint.h>

struct layer {
    const float *scale; /* one for each column */
    int64_t columns;
};
