/* dovetail_random.h against the known answers of Random123, which PyTorch's and cuRAND's Philox give, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "dovetail_random.h"

static void test_known_answers(void **state)
{
    static const struct {
        uint64_t seed, subsequence, counter;
        uint32_t expected[4];
    } rows[] = {
        { 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { 0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t found[4];
        dv_philox(rows[i].seed, rows[i].subsequence, rows[i].counter, found);
        assert_memory_equal(found, rows[i].expected, sizeof found);
    }
}

/* A number of the sequence does not depend on how the sequence is walked, and blocks follow each other. */
static void test_places(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t block[4];
        dv_philox(42, 0, i / 4, block);
        assert_int_equal(dv_philox_at(42, i), block[i % 4]);
    }
    assert_int_not_equal(dv_philox_at(42, 0), dv_philox_at(42, (uint64_t)1 << 34)); /* the counter's high half counts */
    assert_int_not_equal(dv_philox_at(42, 0), dv_philox_at((uint64_t)1 << 32 | 42, 0));
}

static void test_uniform(void **state)
{
    enum { N = 1 << 16 };
    double sum = 0, squares = 0;
    (void)state;
    assert_true(dv_uniform_f32(0) == 0 && dv_uniform_f32(UINT32_MAX) < 1 && dv_uniform_f64(UINT32_MAX, UINT32_MAX) < 1);
    assert_true(dv_uniform_f64(0, 0) == 0 && dv_uniform_f64(1u << 31, 0) == 0.5 && dv_uniform_f32(1u << 31) == 0.5f);
    for (uint64_t i = 0; i < N; i++) {
        const double x = (double)dv_uniform_f32(dv_philox_at(7, i));
        sum += x;
        squares += x * x;
    }
    assert_true(sum / N > 0.49 && sum / N < 0.51 && squares / N > 0.323 && squares / N < 0.343);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_known_answers), cmocka_unit_test(test_places),
        cmocka_unit_test(test_uniform) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
