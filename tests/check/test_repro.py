"""The programs that come with a failure: alone, they fail while the fault is there, and do not when it is gone."""
import os
import signal
import statistics
import subprocess
import sys

import pytest
from conftest import COMMAND, ENDLESS, FAULTY, LOADS_NOT, UNDEFINED, build, failure

WITHOUT_PROGRAM = {
    LOADS_NOT,
    "native_refuses", "index_cut_to_32_bits", "view_past_end", "sum_of_another_shape",  # the message is what there is to see: nothing is computed
    "gradient_clipped", "tangent_in_half", "list_first_skipped", "first_call_races", "flag_before_number", "published_before_filled", "locks_in_two_orders", "gradient_loops", "flag_of_another_call", "table_of_another_call",  # several calls, which no program makes
    "pieces_share_counts",  # nor does one stop a piece between two instructions
    "zero_by_comparison", "boolean_of_a_bit",  # programs compare numbers, not the sign of a zero or the bits of a boolean
    "nan_by_carry", "view_of_other_rows",  # the program does not show it: it has NaN without its bits, and native forms in the case's own type
    *UNDEFINED,  # a build that traps shows them; in another one nothing may happen
    "slots_for_256",  # it shows past 2^31 elements, which a program makes for tensors and not for memory of the kernel's own
    "partial_sums_overrun",  # the address that it overwrites beside its array differs between processes: the smallest case may miss it
    "row_on_stack", "memcpy_overlap",  # nor is there a program that measures the stack, or watches memcpy()
    "dropout_p_one", "dropout_split_origin", "random_reserve_short", "generator_ignored", "random_offset_ignored", "random_pieces_alike", "random_state_kept",  # or sets seeds, or gives a Generator
    "f64_number_in_f32", "f64_weight_in_f32", "first_weight_for_all", "gradient_constant_in_f32", "running_sum_in_bf16", "scale_ignored", "conjugate_of_c64_alone",
    "f64_carried_in_float", "maximum_of_bytes_with_a_sign", "product_of_c128_in_float", "quantized_f16_as_bf16", "total_of_8_bits",  # nor compares dtypes, or other arguments
    "unused_decides", "unused_decides_a_little", "unused_elements_decide",  # (the same)
    "maximum_of_odd_sizes", "mean_of_neighbour_past_4096", "group_index_of_8_bits", "slot_of_16_bits", "last_nibble_of_long_rows",  # nor other sizes
    "flags_not_cleared",  # memory of dv_alloc() is not zeros in a program
    "writes_later", "writes_last_result",  # its thread writes at another time in each run: a failure need not repeat
}
NOT_IN_PYTHON = {
    "workspace_too_small", "scratch_too_small", "scratch_after_loop",  # Python's own host gives this memory
    "malloc_too_small", "overrun_before_output", "used_after_free", "freed_twice", "table_of_first_size",  # and malloc() is Python's too
    "unchecked_allocation", "unchecked_before_output", "unchecked_malloc", "unchecked_with_random", "leak_when_second_fails", "lock_kept_without_memory", "tries_for_ever",  # nor can its allocations be made to fail
    "list_second_unwritten", "list_past_end",  # nor can the contents of its lists' memory be chosen
    "shape_looks_inside",  # dv_infer() has no Python function
    "overlap_copied_forward", "same_tensor",  # nor is it asked to give two arguments one memory
    "racy_parallel_for", "lost_update", "places_in_order_taken", "pieces_count_at_once", "running_maximum", "eight_tables", "table_of_first_base",  # a loop's pieces cannot be put in another order
    "absent_int_is_zero", "errno_trusted", "number_unset", "scalar_bool_ignored", "scalar_kind_ignored", "value_without_has", "variable_unset", "every_tenth_call", "cut_off_to_bf16",  # nor has Python these
    "zero_dims", "two_of_a_list", "two_of_ints", "empty_word", "word_of_next_tensor",  # nor are there guard pages beside an array's sizes, a list and a word
    "scratch_marker",  # nor what pieces left in their memory
    "table_of_first_number", "table_of_whole_number", "string_list_static", "max_cached_by_shape",  # takes a second process
    "far_row_offset", "inner_dims_swapped", "int_index", "offset_in_int", "plane_offset_in_int", "position_in_int", "rows_in_int", "slot_negative",  # takes sparse memory
    "static_buffer",  # Python's threads seldom are in the same kernel
}
LUCK_IN_PYTHON = {
    "alloc_less_aligned",  # memory is often better aligned than it was asked for
    "string_list_kept",  # it reads a list that Python has freed: what is there now may do no harm
    "scratch_kept",  # threads often find the memory of a piece as the piece before left it
}
NOT_IN_PYTHON |= {p.parent.name for p in FAULTY.glob("*/expect") if p.read_text().split()[0] in ("gradient", "tags")}  # nor have dv_gradient() and dv_cost()


def python_program(text, folder):
    (folder / "repro.py").write_text(text)
    return [sys.executable, folder / "repro.py"]


def run(program, binary, most=120):
    """Its end; the status is 124 when it has not ended after `most` seconds."""
    env = {k: v for k, v in os.environ.items() if k not in ("GLIBC_TUNABLES", "MALLOC_PERTURB_")}
    return subprocess.run(["timeout", str(most), *program, binary], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("name", sorted({p.parent.name for p in FAULTY.glob("*/fault.c")} - WITHOUT_PROGRAM))
def test_it_fails_alone(faulty, program, binary, tmp_path, name):
    found = failure(faulty(name))
    most = 1 if name in ENDLESS else 120  # a call that does not end is interrupted after 20 s
    done = run([program(name)], binary(name), most)
    assert done.returncode not in (0, 2) and (done.returncode == 124) == (name in ENDLESS), done
    assert ("python" in found) == (name not in NOT_IN_PYTHON)
    if "python" in found and name not in LUCK_IN_PYTHON:
        done = run(python_program(found["python"], tmp_path), binary(name), most)
        assert done.returncode not in (0, 2) and "Traceback" not in done.stderr, done


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ENDLESS - WITHOUT_PROGRAM))
def test_a_program_ends_by_itself(program, binary, name):
    assert run([program(name)], binary(name)).returncode == -signal.SIGALRM


# A change that takes the fault away.
MENDED = {
    "index_not_checked": ("    for (", "    for (int64_t i = 0; i < dv_numel(a->ids); i++)\n        if (ids[i] < 0 || ids[i] >= a->table->shape[0])\n            return dv_error(ctx, DV_EINVAL, \"no such row\");\n    for ("),
    "tail_past_end": ("k < 8; k++", "k < 8 && i + k < n; k++"),
    "input_written": ("x[i] = x[i] > 0 ? x[i] : 0;\n        out[i] = x[i];", "out[i] = x[i] > 0 ? x[i] : 0;"),
    "tail_unwritten": ("n / 8 * 8", "n"),
    "malloc_not_cleared": ("malloc((size_t)n * sizeof *sum + 1)", "calloc((size_t)n + 1, sizeof *sum)"),
    "divides_by_zero": ("sum / n", "(n ? sum / n : 0)"),
    "result_is_input": ("if (n == 1)", "if (n == -1)"),
    "workspace_too_small": ("workspace = 4*n", "workspace = 4*n + 4"),
    "refuses_what_is_accepted": ("% 4)", "% 1)"),
    "nan_swallowed": ("x[i] > 0 ? x[i] : 0", "x[i] < 0 ? 0 : x[i]"),
    "not_parallel": ("sum += x[i]", "sum * 0 + x[i]"),
    "not_a_sum": ("most = x[i] > most ? x[i] : most", "most += x[i]"),
    "counts_calls": ("calls++", "(void)calls"),
    "stale_cache": ("x != last ||", "1 ||"),
    "static_buffer": ("    static float", "    static _Thread_local float"),
    "racy_parallel_for": ("dv_parallel_for(ctx, 0, dv_numel(a->x), 64, piece, &job)", "((void)ctx, piece(&job, 0, dv_numel(a->x)))"),
    "address_in_result": ("/ 64 % 5", "/ 64 % 1"),
    "leak": ("out[i] = copy[n - 1 - i];", "out[i] = copy[n - 1 - i];\n    free(copy);"),
    "leaked_file": ('fopen("/dev/null", "w")', "NULL"),
    "unchecked_allocation": (", 64);", ", 64);\n    if (!copy)\n        return dv_error(ctx, DV_ENOMEM, \"out of memory\");"),
    "gradient_sign": ("y: grad * 1", "y: -grad"),
    "gradient_of_list": ("grad[0];", "if(len(ys) == 1, grad[0], grad[0] + grad[1]);"),
    "gradient_needs_ignored": ("mask.data[0] ? grad[i] * x", "mask.data[1] ? grad[i] * x"),
    "flops_wrong": ("flops = m * n", "flops = 2 * m * n * k"),
    "bytes_of_half": ("bytes = 4 * n", "bytes = 12 * n"),
    "zero_dims": ("a->x->shape[0]", "n"),
    "two_of_a_list": ("a->xs.data[1]", "a->xs.data[a->xs.size - 1]"),
    "two_of_ints": ("a->by.data[1]", "a->by.data[a->by.size - 1]"),
    "unchecked_malloc": ("    for (", "    if (!copy)\n        return dv_error(ctx, DV_ENOMEM, \"out of memory\");\n    for ("),
    "leak_when_second_fails": ("if (!sums)", "if (!sums)\n        free(copy);\n    if (!sums)"),
    "signal_blocked": ("if (n == 1)", "if (n == -1)"),
    "handler_left": ("signal(SIGFPE, ignore);", "(void)ignore;"),
    "errno_trusted": ("    const float by", "    errno = 0;\n    const float by"),
    "variable_unset": ("int l = 1", "int l = 0"),
    "cut_off_to_bf16": ("(uint16_t)(bits >> 16)", "dv_f32_to_bf16(y)"),
    "rows_disagree": ("? 3", "? 2"),
    "overlap_copied_forward": ("    for (int64_t i = 0, n = dv_numel(a->to); i < n; i++)", "    for (int64_t i = dv_numel(a->to); i-- > 0 && to > from;)\n        to[i] = from[i] / 2;\n    for (int64_t i = 0, n = to > from ? 0 : dv_numel(a->to); i < n; i++)"),
    "places_in_order_taken": ("n, 700,", "n, n,"),
    "pieces_count_at_once": ("((int64_t *)a->counts->data)[((const uint8_t *)a->x->data)[i] % 4]++", "__atomic_fetch_add(&((int64_t *)a->counts->data)[((const uint8_t *)a->x->data)[i] % 4], 1, __ATOMIC_RELAXED)"),
    "locale_changed": ('setlocale(LC_ALL, "C.UTF-8")', "setlocale(LC_ALL, NULL)"),
    "workspace_of_nothing": ("sums[0] = 0", "if (n)\n        sums[0] = 0"),
    "kept_pointer": ("last = x", "last = NULL"),
    "table_of_first_size": ("if (!table)", "free(table);\n    table = NULL;\n    if (n >= 0)"),
    "half_written": ("return dv_error", "while (i > 0)\n                x[ids[--i]] -= 1;\n            return dv_error"),
    "int_index": ("(int i = 0; i < (int)n; i++)", "(int64_t i = 0; i < n; i++)"),
    "result_order_ignored": ("[i * n + k]", "[i * a->out->strides[0] + k * a->out->strides[1]]"),
    "tangent_wrong": ("x_t * y + y_t", "x_t * y + y_t * x"),
}


@pytest.mark.parametrize("name", sorted(MENDED))
def test_it_passes_when_the_fault_is_gone(faulty, program, tmp_path, name):
    found = failure(faulty(name))
    text = (FAULTY / name / "fault.c").read_text()
    assert MENDED[name][0] in text
    (tmp_path / "fault.c").write_text(text.replace(*MENDED[name]))
    mended = build(tmp_path / "fault.c", tmp_path / "fault.so")
    done = run([program(name)], mended)
    assert done.returncode == 0, done
    if "python" in found:
        done = run(python_program(found["python"], tmp_path), mended)
        assert done.returncode == 0, done


LARGE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x, *by; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const uint32_t dtype = dv_dtype_key(a->x->dtype);
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, dtype, dv_get_f64(a->x->data, i < 4500 ? i : i - 4001, dtype) * ((const int16_t *)a->by->data)[i]);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, by, out), .schema = "f(Tensor x, Tensor by) -> Tensor out",
    .contract = "x[n]:T, by[n]:i16 -> out[n]:T; T in DTYPE; by.values > 0; by.values < 40", .native = "x * by", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(large, &dv_op_f);
"""


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_many_elements_are_computed(check, tmp_path, dtype):
    """A large case gives a short program, with the checker's own numbers."""
    text = LARGE.replace("DTYPE", dtype)
    (tmp_path / "f.c").write_text(text)
    (tmp_path / "mended.c").write_text(text.replace("i - 4001", "i"))
    broken, mended = (build(tmp_path / f"{name}.c", tmp_path / f"{name}.so") for name in ("f", "mended"))
    found = failure(check(broken, "--only", "values"))
    assert found["elements"] > 4500 and len(found["c"]) < 20000 and len(found["python"]) < 20000, found["case"]
    (tmp_path / "repro.c").write_text(found["c"])
    flags = subprocess.run([COMMAND, "--cflags", "--libs"], check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", tmp_path / "repro.c", *flags, "-lm", "-pthread", "-o", tmp_path / "repro"], check=True)
    ends = [run(program, of) for program in ([tmp_path / "repro"], python_program(found["python"], tmp_path)) for of in (broken, mended)]
    assert [e.returncode for e in ends] == [1, 0, 1, 0], ends


def test_files(check, tmp_path):
    check(FAULTY / "tail_unwritten" / "fault.c", "--repro", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["scale.memory.scale_f32.c", "scale.memory.scale_f32.py"]


def test_the_smallest_inputs_are_small(faulty):
    """Half of all faults, at least, are shown with 8 elements in the largest tensor or fewer."""
    found = [failure(faulty(p.parent.name)) for p in FAULTY.glob("*/fault.c")]
    assert statistics.median(f.get("elements", 0) for f in found) <= 8
