/* AMX's instructions in C, in place of those of ops/squares.h: for processors without them, and to find reads outside of an
 * operand. */
#include <stdint.h>
#include <string.h>

static _Thread_local struct {
    uint8_t rows[8], bytes[8], row[8][16][64];
    int in_use;
} amx; /* clang-format off */
static inline void amx_begin(const void *config)
{
    const uint8_t *const c = config;
    if (c[0] != 1 || c[1] || amx.in_use++)
        __builtin_trap();
    memset(&amx.row, 0, sizeof amx.row);
    for (int i = 0; i < 8; i++) {
        amx.bytes[i] = c[16 + 2 * i], amx.rows[i] = c[48 + i];
        if (amx.rows[i] > 16 || amx.bytes[i] > 64 || c[17 + 2 * i])
            __builtin_trap();
    }
}
static inline void amx_end(void) { amx.in_use = 0; }
static inline void amx_copy(int tile, char *memory, int64_t stride, int to_memory)
{
    if (!amx.in_use)
        __builtin_trap();
    for (int r = 0; r < amx.rows[tile]; r++, memory += stride)
        if (to_memory)
            memcpy(memory, amx.row[tile][r], amx.bytes[tile]);
        else
            memcpy(amx.row[tile][r], memory, amx.bytes[tile]);
}
static inline float amx_number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x > -0x1p-126f && x < 0x1p-126f ? 0 : x;
}
static inline void amx_check(int sum, int a, int b)
{
    if (!amx.in_use || amx.rows[b] * 4 != amx.bytes[a] || amx.rows[sum] != amx.rows[a] || amx.bytes[sum] != amx.bytes[b])
        __builtin_trap();
}
static inline void amx_times_bf16(int sum, int a, int b)
{
    amx_check(sum, a, b);
    for (int m = 0; m < amx.rows[sum]; m++)
        for (int n = 0; n < amx.bytes[sum] / 4; n++) {
            float y, even = 0, odd = 0;
            memcpy(&y, amx.row[sum][m] + 4 * n, 4);
            for (int k = 0; k < amx.rows[b]; k++) {
                uint32_t u, w;
                memcpy(&u, amx.row[a][m] + 4 * k, 4), memcpy(&w, amx.row[b][k] + 4 * n, 4);
                even += amx_number(u << 16) * amx_number(w << 16);
                odd += amx_number(u & 0xffff0000) * amx_number(w & 0xffff0000);
            }
            y += even + odd;
            memcpy(amx.row[sum][m] + 4 * n, &y, 4);
        }
}
static inline void amx_times_i8(int sum, int a, int b)
{
    amx_check(sum, a, b);
    for (int m = 0; m < amx.rows[sum]; m++)
        for (int n = 0; n < amx.bytes[sum] / 4; n++) {
            int32_t y;
            memcpy(&y, amx.row[sum][m] + 4 * n, 4);
            for (int k = 0; k < amx.bytes[a]; k++)
                y += (int8_t)amx.row[a][m][k] * (int8_t)amx.row[b][k / 4][4 * n + k % 4];
            memcpy(amx.row[sum][m] + 4 * n, &y, 4);
        }
}
#define TILES_BEGIN(CONFIG) amx_begin(CONFIG)
#define TILES_END() amx_end()
#define TILE_ZERO(N) memset(amx.row[N], 0, sizeof amx.row[N])
#define TILE_FROM(N, FROM, STRIDE) amx_copy(N, (char *)(uintptr_t)(FROM), STRIDE, 0)
#define TILE_TO(N, TO, STRIDE) amx_copy(N, (char *)(TO), STRIDE, 1)
#define TILE_TIMES_bf16(SUM, A, B) amx_times_bf16(SUM, A, B)
#define TILE_TIMES_i8(SUM, A, B) amx_times_i8(SUM, A, B)
