/* dovetail_random.h: random numbers for kernels, from the seed and offset that dv_random() returns.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as in cuRAND and PyTorch. It is a
 * function of a seed and a counter, without state: number i of a call is the same on every thread and device, in any order.
 *
 *     uint64_t seed, offset;
 *     int status = dv_random(ctx, a->generator, n, &seed, &offset);
 *     if (status)
 *         return status;
 *     for (int64_t i = 0; i < n; i++)
 *         out[i] = dv_uniform_f32(dv_philox_at(seed, offset + (uint64_t)i));
 */
#ifndef DOVETAIL_RANDOM_H
#define DOVETAIL_RANDOM_H

#include "dovetail_op.h"

/* Computes four random numbers of 32 bits. counter: the position in a sequence, in blocks of four; subsequence: one of the
 * seed's 2^64 sequences. */
DV_INLINE void dv_philox(uint64_t seed, uint64_t subsequence, uint64_t counter, uint32_t out[4])
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = (uint32_t)subsequence,
             c3 = (uint32_t)(subsequence >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Returns number i of the seed's sequence 0: word i % 4 of block i / 4. A loop that uses all four words of a block calls
 * dv_philox() itself. dv_random() reserves whole blocks, so block offset / 4 is the first block of the call. */
DV_INLINE uint32_t dv_philox_at(uint64_t seed, uint64_t i)
{
    uint32_t block[4];
    dv_philox(seed, 0, i / 4, block);
    return block[i % 4];
}

/* Convert random bits to a number that is uniform in [0, 1): a multiple of 2^-24 (f32) or of 2^-53 (f64). */
DV_INLINE float dv_uniform_f32(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }
DV_INLINE double dv_uniform_f64(uint32_t high, uint32_t low) { return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53; }

#endif
