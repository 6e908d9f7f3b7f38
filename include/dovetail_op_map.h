/* dovetail_op_map.h: DV__MAP(m, x, a, b, ...) is m(x, a) m(x, b) ... for 1 to 64 arguments. Part of dovetail_op.h. */
#ifndef DOVETAIL_OP_MAP_H
#define DOVETAIL_OP_MAP_H
#define DV__M1(m, x, a) m(x, a)
/* clang-format off */
#define DV__M2(m, x, a, ...) m(x, a) DV__M1(m, x, __VA_ARGS__)
#define DV__M3(m, x, a, ...) m(x, a) DV__M2(m, x, __VA_ARGS__)
#define DV__M4(m, x, a, ...) m(x, a) DV__M3(m, x, __VA_ARGS__)
#define DV__M5(m, x, a, ...) m(x, a) DV__M4(m, x, __VA_ARGS__)
#define DV__M6(m, x, a, ...) m(x, a) DV__M5(m, x, __VA_ARGS__)
#define DV__M7(m, x, a, ...) m(x, a) DV__M6(m, x, __VA_ARGS__)
#define DV__M8(m, x, a, ...) m(x, a) DV__M7(m, x, __VA_ARGS__)
#define DV__M9(m, x, a, ...) m(x, a) DV__M8(m, x, __VA_ARGS__)
#define DV__M10(m, x, a, ...) m(x, a) DV__M9(m, x, __VA_ARGS__)
#define DV__M11(m, x, a, ...) m(x, a) DV__M10(m, x, __VA_ARGS__)
#define DV__M12(m, x, a, ...) m(x, a) DV__M11(m, x, __VA_ARGS__)
#define DV__M13(m, x, a, ...) m(x, a) DV__M12(m, x, __VA_ARGS__)
#define DV__M14(m, x, a, ...) m(x, a) DV__M13(m, x, __VA_ARGS__)
#define DV__M15(m, x, a, ...) m(x, a) DV__M14(m, x, __VA_ARGS__)
#define DV__M16(m, x, a, ...) m(x, a) DV__M15(m, x, __VA_ARGS__)
#define DV__M17(m, x, a, ...) m(x, a) DV__M16(m, x, __VA_ARGS__)
#define DV__M18(m, x, a, ...) m(x, a) DV__M17(m, x, __VA_ARGS__)
#define DV__M19(m, x, a, ...) m(x, a) DV__M18(m, x, __VA_ARGS__)
#define DV__M20(m, x, a, ...) m(x, a) DV__M19(m, x, __VA_ARGS__)
#define DV__M21(m, x, a, ...) m(x, a) DV__M20(m, x, __VA_ARGS__)
#define DV__M22(m, x, a, ...) m(x, a) DV__M21(m, x, __VA_ARGS__)
#define DV__M23(m, x, a, ...) m(x, a) DV__M22(m, x, __VA_ARGS__)
#define DV__M24(m, x, a, ...) m(x, a) DV__M23(m, x, __VA_ARGS__)
#define DV__M25(m, x, a, ...) m(x, a) DV__M24(m, x, __VA_ARGS__)
#define DV__M26(m, x, a, ...) m(x, a) DV__M25(m, x, __VA_ARGS__)
#define DV__M27(m, x, a, ...) m(x, a) DV__M26(m, x, __VA_ARGS__)
#define DV__M28(m, x, a, ...) m(x, a) DV__M27(m, x, __VA_ARGS__)
#define DV__M29(m, x, a, ...) m(x, a) DV__M28(m, x, __VA_ARGS__)
#define DV__M30(m, x, a, ...) m(x, a) DV__M29(m, x, __VA_ARGS__)
#define DV__M31(m, x, a, ...) m(x, a) DV__M30(m, x, __VA_ARGS__)
#define DV__M32(m, x, a, ...) m(x, a) DV__M31(m, x, __VA_ARGS__)
#define DV__M33(m, x, a, ...) m(x, a) DV__M32(m, x, __VA_ARGS__)
#define DV__M34(m, x, a, ...) m(x, a) DV__M33(m, x, __VA_ARGS__)
#define DV__M35(m, x, a, ...) m(x, a) DV__M34(m, x, __VA_ARGS__)
#define DV__M36(m, x, a, ...) m(x, a) DV__M35(m, x, __VA_ARGS__)
#define DV__M37(m, x, a, ...) m(x, a) DV__M36(m, x, __VA_ARGS__)
#define DV__M38(m, x, a, ...) m(x, a) DV__M37(m, x, __VA_ARGS__)
#define DV__M39(m, x, a, ...) m(x, a) DV__M38(m, x, __VA_ARGS__)
#define DV__M40(m, x, a, ...) m(x, a) DV__M39(m, x, __VA_ARGS__)
#define DV__M41(m, x, a, ...) m(x, a) DV__M40(m, x, __VA_ARGS__)
#define DV__M42(m, x, a, ...) m(x, a) DV__M41(m, x, __VA_ARGS__)
#define DV__M43(m, x, a, ...) m(x, a) DV__M42(m, x, __VA_ARGS__)
#define DV__M44(m, x, a, ...) m(x, a) DV__M43(m, x, __VA_ARGS__)
#define DV__M45(m, x, a, ...) m(x, a) DV__M44(m, x, __VA_ARGS__)
#define DV__M46(m, x, a, ...) m(x, a) DV__M45(m, x, __VA_ARGS__)
#define DV__M47(m, x, a, ...) m(x, a) DV__M46(m, x, __VA_ARGS__)
#define DV__M48(m, x, a, ...) m(x, a) DV__M47(m, x, __VA_ARGS__)
#define DV__M49(m, x, a, ...) m(x, a) DV__M48(m, x, __VA_ARGS__)
#define DV__M50(m, x, a, ...) m(x, a) DV__M49(m, x, __VA_ARGS__)
#define DV__M51(m, x, a, ...) m(x, a) DV__M50(m, x, __VA_ARGS__)
#define DV__M52(m, x, a, ...) m(x, a) DV__M51(m, x, __VA_ARGS__)
#define DV__M53(m, x, a, ...) m(x, a) DV__M52(m, x, __VA_ARGS__)
#define DV__M54(m, x, a, ...) m(x, a) DV__M53(m, x, __VA_ARGS__)
#define DV__M55(m, x, a, ...) m(x, a) DV__M54(m, x, __VA_ARGS__)
#define DV__M56(m, x, a, ...) m(x, a) DV__M55(m, x, __VA_ARGS__)
#define DV__M57(m, x, a, ...) m(x, a) DV__M56(m, x, __VA_ARGS__)
#define DV__M58(m, x, a, ...) m(x, a) DV__M57(m, x, __VA_ARGS__)
#define DV__M59(m, x, a, ...) m(x, a) DV__M58(m, x, __VA_ARGS__)
#define DV__M60(m, x, a, ...) m(x, a) DV__M59(m, x, __VA_ARGS__)
#define DV__M61(m, x, a, ...) m(x, a) DV__M60(m, x, __VA_ARGS__)
#define DV__M62(m, x, a, ...) m(x, a) DV__M61(m, x, __VA_ARGS__)
#define DV__M63(m, x, a, ...) m(x, a) DV__M62(m, x, __VA_ARGS__)
#define DV__M64(m, x, a, ...) m(x, a) DV__M63(m, x, __VA_ARGS__)
/* clang-format on */
#define DV__PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23, _24,  \
    _25, _26, _27, _28, _29, _30, _31, _32, _33, _34, _35, _36, _37, _38, _39, _40, _41, _42, _43, _44, _45, _46, _47, _48, _49, \
    _50, _51, _52, _53, _54, _55, _56, _57, _58, _59, _60, _61, _62, _63, _64, N, ...)                                           \
    N
/* clang-format off */
#define DV__MAP(m, x, ...) DV__PICK(__VA_ARGS__, DV__M64, DV__M63, DV__M62, DV__M61, DV__M60, DV__M59, DV__M58, \
    DV__M57, DV__M56, DV__M55, DV__M54, DV__M53, DV__M52, DV__M51, DV__M50, DV__M49, DV__M48, DV__M47, DV__M46, DV__M45, \
    DV__M44, DV__M43, DV__M42, DV__M41, DV__M40, DV__M39, DV__M38, DV__M37, DV__M36, DV__M35, DV__M34, DV__M33, DV__M32, \
    DV__M31, DV__M30, DV__M29, DV__M28, DV__M27, DV__M26, DV__M25, DV__M24, DV__M23, DV__M22, DV__M21, DV__M20, DV__M19, \
    DV__M18, DV__M17, DV__M16, DV__M15, DV__M14, DV__M13, DV__M12, DV__M11, DV__M10, DV__M9, DV__M8, DV__M7, DV__M6, \
    DV__M5, DV__M4, DV__M3, DV__M2, DV__M1, 0)(m, x, __VA_ARGS__)
/* clang-format on */
#endif
