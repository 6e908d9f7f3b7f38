/* What the processor has, found once. A level counts only when the operating system saves its registers too. */
#include <stdatomic.h>

#include "registry/internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
enum { HERE = 'x' };
#elif defined(__aarch64__)
enum { HERE = 'a' };
#else
enum { HERE = '*' };
#endif

static const struct {
    const char *name;
    bool here;
} isas[] = {
#define ISA(level, name, processor) { name, (processor) == '*' || (processor) == HERE },
    DV__ISAS(ISA)
#undef ISA
};
enum { NISAS = sizeof isas / sizeof isas[0] };

const char *dv_isa_at(size_t i) { return i < NISAS ? isas[i].name : NULL; }

#if defined(__x86_64__)
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int detect(void)
{
    enum { FMA = 1 << 12, MOVBE = 1 << 22, POPCNT = 1 << 23, OSXSAVE = 1 << 27, F16C = 1 << 29 }; /* 1, ecx */
    enum {
        BMI1 = 1 << 3,
        AVX2 = 1 << 5,
        BMI2 = 1 << 8,
        AVX512F = 1 << 16,
        AVX512DQ = 1 << 17,
        AVX512CD = 1 << 28,
        AVX512BW = 1 << 30
    };
    const uint32_t avx512vl = 1u << 31, lzcnt = 1u << 5; /* 7, ebx; 80000001, ecx */
    const uint32_t need1 = FMA | MOVBE | POPCNT | OSXSAVE | F16C, need7 = BMI1 | AVX2 | BMI2;
    const uint32_t need512 = AVX512F | AVX512DQ | AVX512CD | AVX512BW | avx512vl;
    uint32_t a, b, c, d, features1, features7, extended;
    if (!__get_cpuid(1, &a, &b, &features1, &d) || (features1 & need1) != need1)
        return DV__ISA_BASE;
    if (!__get_cpuid_count(7, 0, &a, &features7, &c, &d) || (features7 & need7) != need7)
        return DV__ISA_BASE;
    if (!__get_cpuid(0x80000001u, &a, &b, &extended, &d) || !(extended & lzcnt))
        return DV__ISA_BASE;
    const uint64_t saved = saved_registers();
    if ((saved & 0x06) != 0x06) /* xmm, ymm */
        return DV__ISA_BASE;
    return (features7 & need512) == need512 && (saved & 0xe6) == 0xe6 ? DV__ISA_AVX512 : DV__ISA_AVX2; /* masks, zmm */
}
#elif defined(__aarch64__) && defined(__linux__)
static int detect(void)
{
    const unsigned long asimd = 1ul << 1, sve = 1ul << 22, has = getauxval(AT_HWCAP);
    return has & sve ? DV__ISA_SVE : has & asimd ? DV__ISA_NEON : DV__ISA_BASE;
}
#else
static int detect(void) { return DV__ISA_BASE; }
#endif

static atomic_int detected = -1, limit = DV__ISA_UNKNOWN; /* detecting twice gives the same */

static int level(void)
{
    int has = atomic_load_explicit(&detected, memory_order_relaxed);
    if (has < 0) {
        has = detect();
        atomic_store_explicit(&detected, has, memory_order_relaxed);
    }
    const int most = atomic_load_explicit(&limit, memory_order_relaxed);
    return has < most ? has : most;
}

int dv__isa_parse(const char *name)
{
    if (!name || !*name)
        return DV__ISA_BASE;
    for (int i = 0; i < NISAS; i++)
        if (!strcmp(name, isas[i].name))
            return i;
    return DV__ISA_UNKNOWN;
}

int dv__isa_limit(void) { return atomic_load_explicit(&limit, memory_order_relaxed); }

bool dv__isa_available(int isa) { return isa >= 0 && isa < NISAS && isas[isa].here && isa <= level(); }

int dv_set_isa(const char *isa)
{
    const int most = isa ? dv__isa_parse(isa) : DV__ISA_UNKNOWN;
    if (isa && (most == DV__ISA_UNKNOWN || !isas[most].here)) {
        dv__text names = { 0 };
        for (int i = 0; i < NISAS; i++)
            if (isas[i].here)
                dv__text_add(&names, "%s%s", i ? ", " : "", isas[i].name);
        dv_fail(DV_EINVAL, "no instruction set '%s' on this architecture; there are %s", isa, names.data ? names.data : "");
        dv__text_deinit(&names);
        return DV_EINVAL;
    }
    atomic_store(&limit, most);
    return DV_OK;
}

const char *dv_get_isa(void) { return isas[level()].name; }
