"""dv_random while a CUDA graph is captured. The machine needs no GPU: call.c's host is asked with a libtorch and a libcudart that pretend."""
import subprocess

import pytest

from conftest import ROOT

PROGRAM = r"""
#include "autograd.h"
#include <stdio.h>
#include <stdlib.h>

static int capturing, answer, drawn;
static int64_t number = 41;

static int32_t current(int32_t device, void **out) { *out = &capturing; return device != -1; }
static int is_capturing(void *stream, int *status) { *status = stream == &capturing ? capturing : 0; return answer; }
static int32_t randint(int64_t high, const int64_t *size, int64_t ndim, int32_t *dtype, int32_t *layout, int32_t *device, int32_t index, int32_t *pin, void **out)
{
    (void)high, (void)size, (void)ndim, (void)dtype, (void)layout, (void)device, (void)index, (void)pin;
    drawn++;
    *out = &number;
    return 0;
}
static int32_t data(void *tensor, void **out) { *out = tensor; return 0; }
static int32_t done(void *tensor) { (void)tensor; return 0; }

bool dv__torch_try_read_tensor(const void *handle, dv_tensor *t) { (void)handle, (void)t; return false; }
int32_t dv__torch_get_dtype_number(const struct dv__torch_shims *t, dv_dtype dtype) { (void)t, (void)dtype; return 4; }
bool dv__torch_try_find_dtype_by_number(const struct dv__torch_shims *t, int32_t n, dv_dtype *out) { (void)t, (void)n, (void)out; return false; }
int32_t dv__torch_get_device_type_number(const struct dv__torch_shims *t, int32_t type) { (void)t; return type; }
int32_t dv__torch_find_device_type_by_number(const struct dv__torch_shims *t, int32_t n) { (void)t; return n; }
const char *dv__torch_get_last_error(const struct dv__torch_shims *t) { (void)t; return "?"; }

int main(int argc, char **argv)
{
    const struct dv__torch_shims shims = { .current_cuda_stream = argv[1][0] == 'y' ? current : NULL, .stream_is_capturing = is_capturing,
        .aoti_torch_cpu_randint = randint, .torch_get_mutable_data_ptr = data, .aoti_torch_delete_tensor_object = done,
        .aoti_torch_delete_device_guard = done };
    const struct dv__torch_op op = { .t = &shims, .name = "ns::noise" };
    struct dv__torch_call c;
    char room[64];
    uint64_t seed = 0, offset = 1;
    (void)argc;
    dv__torch_call_begin(&c, &op, room, sizeof room);
    c.device_guard = argv[2][0] == 'y' ? room : NULL;
    capturing = atoi(argv[3]);
    answer = atoi(argv[4]);
    const int status = c.host.random(&c.host, NULL, 3, &seed, &offset);
    dv__torch_call_free_memory(&c);
    printf("%d %d %d %s\n", status, (int)seed, drawn, status ? dv_last_error() : "");
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capture")
    (folder / "capture.c").write_text(PROGRAM)
    library = ROOT / "build/lib"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-w", f"-I{ROOT / 'include'}", f"-I{ROOT / 'bridges/torch'}", str(folder / "capture.c"),
                    str(ROOT / "bridges/torch/call.c"), f"-L{library}", "-ldovetail", f"-Wl,-rpath,{library}", "-o", str(folder / "capture")], check=True)
    return folder / "capture"


@pytest.mark.parametrize("cuda, accelerator, capturing, answer, refused", [
    ("yes", "yes", 1, 0, True),   # captured
    ("yes", "yes", 2, 0, True),   # a capture that has failed already
    ("yes", "yes", 0, 0, False),  # an ordinary stream
    ("yes", "no", 1, 0, False),   # tensors on the CPU: no graph takes that in
    ("yes", "yes", 1, 900, False),  # CUDA cannot say: the kernel's own launch will
    ("no", "yes", 1, 0, False),   # a torch without CUDA
])
def test_a_seed_is_not_baked_into_a_graph(program, cuda, accelerator, capturing, answer, refused):
    out = subprocess.run([program, cuda, accelerator, str(capturing), str(answer)], capture_output=True, text=True, check=True).stdout.split(maxsplit=3)
    if refused:
        assert out[:3] == ["-18", "0", "0"] and out[3].startswith("ns::noise: dv_random: a CUDA graph is being captured"), out
    else:
        assert out[:3] == ["0", "41", "1"], out
