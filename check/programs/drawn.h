#pragma once
#include "memory.h"

/* Many elements, as the checker draws them: SplitMix64, or 1, 2, 3, 4 again and again. */
static inline void fill_drawn(void *data, int64_t n, dv_dtype dtype, uint64_t seed, int simple, double low, double high)
{
    const int whole = dtype.code < 2 || dtype.code == 6;
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = seed + (uint64_t)(i + 2) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        double x = low;
        if (!simple)
            x = whole ? low + (double)(z % ((uint64_t)(high - low) + 1)) : low + (high - low) * ((double)(z >> 11) * 0x1p-53);
        else if (whole && low <= 0 && high >= 0)
            x = 0;
        else if (!whole && low <= 1 && high >= 1)
            x = (double)(i % 4 + 1) / (high >= 4 ? 1 : 4);
        dv_element_put(data, i, dtype, x);
    }
}
