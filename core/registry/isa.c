/* Instruction sets of the processor, detected once. A set counts only if the operating system saves its registers. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "registry/registry_internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
enum { THIS_ARCHITECTURE = 'x' };
#elif defined(__aarch64__)
enum { THIS_ARCHITECTURE = 'a' };
#else
enum { THIS_ARCHITECTURE = '*' };
#endif

static const struct {
    const char *name;
    enum dv__isa includes;
    bool is_of_this_architecture;
} isas[] = {
#define ISA(key, name, includes, processor) { name, DV__ISA_##includes, (processor) == '*' || (processor) == THIS_ARCHITECTURE },
    DV__ISAS(ISA)
#undef ISA
};
enum { NISAS = sizeof isas / sizeof isas[0] };

const char *dv_isa_at(size_t i) { return i < NISAS ? isas[i].name : NULL; }

/* Returns the bit mask of one instruction set and of all that it includes, BASE among them. isa_index: enum dv__isa. */
static dv__isas isa_closure(int isa_index)
{
    dv__isas all = 1u << isa_index | 1u << DV__ISA_BASE;
    for (; isa_index < NISAS && isa_index; isa_index = (int)isas[isa_index].includes)
        all |= 1u << isa_index;
    return all;
}

#if defined(__x86_64__)
static uint64_t isa_read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* True if this process may use AMX tiles; asks Linux for the permission (ARCH_REQ_XCOMP_PERM, since 5.16). Linux refuses if a
 * thread's alternate signal stack is too small for the tile registers. */
static bool isa_can_use_tiles(void)
{
#ifdef __linux__
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}

static dv__isas isa_detect_all(void)
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
    enum { AVX512VNNI = 1 << 11, AVXVNNI = 1 << 4, AVX512BF16 = 1 << 5 }; /* 7, ecx; 7.1, eax */
    enum { AMXBF16 = 1 << 22, AMX = 1 << 24, AMXINT8 = 1 << 25 };         /* 7, edx */
    const uint32_t avx512vl = 1u << 31, lzcnt = 1u << 5;                  /* 7, ebx; 80000001, ecx */
    const uint32_t need1 = FMA | MOVBE | POPCNT | OSXSAVE | F16C, need7 = BMI1 | AVX2 | BMI2;
    const uint32_t need512 = AVX512F | AVX512DQ | AVX512CD | AVX512BW | avx512vl;
    const dv__isas base = isa_closure(DV__ISA_BASE);
    uint32_t a, b, c, d, features1, features7, more7 = 0, extended, tiles;
    if (!__get_cpuid(1, &a, &b, &features1, &d) || (features1 & need1) != need1)
        return base;
    if (!__get_cpuid_count(7, 0, &a, &features7, &c, &tiles) || (features7 & need7) != need7)
        return base;
    if (!__get_cpuid(0x80000001u, &b, &b, &extended, &d) || !(extended & lzcnt))
        return base;
    const uint64_t saved = isa_read_xcr0();
    if ((saved & 0x06) != 0x06) /* xmm, ymm */
        return base;
    if (a >= 1) /* a: the highest subleaf of leaf 7 */
        __get_cpuid_count(7, 1, &more7, &b, &b, &d);
    dv__isas all = isa_closure(more7 & AVXVNNI ? DV__ISA_AVXVNNI : DV__ISA_AVX2);
    if ((features7 & need512) == need512 && (saved & 0xe6) == 0xe6) /* masks, zmm */
        all |= isa_closure(DV__ISA_AVX512) | (c & AVX512VNNI ? isa_closure(DV__ISA_AVX512VNNI) : 0) |
            (more7 & AVX512BF16 ? isa_closure(DV__ISA_AVX512BF16) : 0);
    if (tiles & AMX && (saved & 0x60000) == 0x60000 && isa_can_use_tiles()) {
        if (tiles & AMXBF16 && all & 1u << DV__ISA_AVX512BF16)
            all |= isa_closure(DV__ISA_AMXBF16);
        if (tiles & AMXINT8 && all & 1u << DV__ISA_AVX512VNNI)
            all |= isa_closure(DV__ISA_AMXINT8);
    }
    return all;
}
#elif defined(__aarch64__) && defined(__linux__)
static dv__isas isa_detect_all(void)
{
    const unsigned long asimd = 1ul << 1, sve = 1ul << 22, has = getauxval(AT_HWCAP);
    return isa_closure(has & sve ? DV__ISA_SVE : has & asimd ? DV__ISA_NEON : DV__ISA_BASE);
}
#else
static dv__isas isa_detect_all(void) { return isa_closure(DV__ISA_BASE); }
#endif

/* isa_detected: the sets that the processor has and DOVETAIL_ISA allows; 0: not detected yet. Two threads may detect at once,
 * with the same result. isa_limit: the sets that dv_set_isa() allows. */
static _Atomic dv__isas isa_detected, isa_limit = ~(dv__isas)0;

static dv__isas isa_get_available(void)
{
    dv__isas has = atomic_load_explicit(&isa_detected, memory_order_relaxed);
    if (!has) {
        const char *allowed = getenv("DOVETAIL_ISA");
        has = isa_detect_all() & (allowed && *allowed ? dv__isa_mask_of_names(allowed) : ~(dv__isas)0);
        atomic_store_explicit(&isa_detected, has, memory_order_relaxed);
    }
    return has & dv__isa_limit();
}

dv__isas dv__isa_mask_of_names(const char *names)
{
    static const char separators[] = " ,+\t\n";
    dv__isas all = isa_closure(DV__ISA_BASE);
    for (size_t n; names && *(names += strspn(names, separators)); names += n) {
        int isa = 0;
        n = strcspn(names, separators);
        while (isa < NISAS && (strncmp(names, isas[isa].name, n) || isas[isa].name[n]))
            isa++;
        all |= isa_closure(isa);
    }
    return all;
}

dv__isas dv__isa_limit(void) { return atomic_load_explicit(&isa_limit, memory_order_relaxed); }

bool dv__isa_is_available(dv__isas wanted) { return !(wanted & ~isa_get_available()); }

int dv__isa_check_architecture(const char *names)
{
    dv__isas others = dv__isa_mask_of_names(names);
    dv__strbuf supported = { 0 };
    for (int i = 0; i < NISAS; i++)
        if (isas[i].is_of_this_architecture) {
            others &= ~(1u << i);
            dv__strbuf_printf(&supported, "%s%s", i ? ", " : "", isas[i].name);
        }
    if (others)
        dv_fail(
            DV_EINVAL, "no instruction set '%s' on this architecture; there are %s", names, supported.data ? supported.data : "");
    dv__strbuf_deinit(&supported);
    return others ? DV_EINVAL : DV_OK;
}

int dv_set_isa(const char *allowed_isas)
{
    const int status = allowed_isas ? dv__isa_check_architecture(allowed_isas) : DV_OK;
    if (!status)
        atomic_store(&isa_limit, allowed_isas ? dv__isa_mask_of_names(allowed_isas) : ~(dv__isas)0);
    return status;
}

const char *dv_get_isa(void)
{
    static _Thread_local char names[128];
    const dv__isas has = isa_get_available();
    dv__isas included = 0;
    size_t n = 0;
    for (int i = 1; i < NISAS; i++)
        if (has >> i & 1)
            included |= 1u << isas[i].includes;
    for (int i = 0; i < NISAS; i++)
        if ((has & ~included) >> i & 1)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? "+" : "", isas[i].name);
    return names;
}
