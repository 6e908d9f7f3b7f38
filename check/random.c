/* Pseudo-random numbers: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators). */
#include "check.h"

uint64_t check_random_next(check_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t check_random_between(check_random *r, int64_t low, int64_t high)
{
    const uint64_t n = (uint64_t)high - (uint64_t)low + 1; /* number of integers in the range; 0 means 2^64 */
    return high <= low ? low : (int64_t)((uint64_t)low + (n ? check_random_next(r) % n : check_random_next(r)));
}
