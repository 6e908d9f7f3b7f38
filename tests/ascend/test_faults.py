"""Faults planted in the bridge, one at a time: the stand-in or the test's own values must find each."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
SOURCES = sorted((ROOT / "bridges/ascend").glob("*.c"))
PROGRAM = BUILD / "tests/ascend/test_ascend"

# what: file, text of the source, text in its place, what the stand-in says
FOUND_BY_THE_STAND_IN = {
    "the executor is used twice": ("launch.c", "    if (status && enqueued_task == t)\n", "    t->function->launch(t->workspace, t->size, t->executor, t->stream);\n    if (status && enqueued_task == t)\n",
                                   "the executor was used twice"),
    "a second executor is made and forgotten": ("launch.c", "    if (!failed && t->executor)\n", "    dv__invoke_function(t->function->get_workspace_size, words, n + 2);\n    if (!failed && t->executor)\n",
                                                "aclOpExecutor 1 was never launched or destroyed"),
    "an executor that never ran is lost": ("launch.c", "    task_destroy_executor(t);\n", "", "was never launched or destroyed"),
    "the workspace is freed early": ("launch.c", "    if (status && enqueued_task == t)\n", "    dv__acl.aclrtFree(t->workspace);\n    if (status && enqueued_task == t)\n",
                                     "its workspace is not device memory, or was freed before the kernel ran"),
    "the workspace is too small": ("host.c", "aclrtMalloc(&b->memory, b->size,", "aclrtMalloc(&b->memory, b->size / 2,", "the workspace has room for 500 bytes of 1000"),
    "a workspace that became too small is used on": ("host.c", "library_state.blocks[i]->size < bytes", "!library_state.blocks[i]->size", "the workspace has room for 1000 bytes of 50000"),
    "a workspace that is too small is freed while kernels use it": ("host.c", "    *newest = b;\n    return DV_OK;", "    if (*newest) dv__acl.aclrtFree((*newest)->memory), b->next = NULL;\n    *newest = b;\n    return DV_OK;",
                                                                      "its workspace is not device memory, or was freed before the kernel ran"),
    "the size of the workspace is wrong": ("launch.c", "launch(t->workspace, t->size,", "launch(t->workspace, t->size / 2,", "a workspace of 500 bytes, the first phase asked for 1000"),
    "the workspace is not passed": ("launch.c", "launch(t->workspace, t->size,", "launch(NULL, t->size,", "the workspace is not device memory"),
    "the workspace is memory of the host": ("host.c", "        *memory_out = library_state.blocks[i]->memory;", "        *memory_out = library_state.blocks[i];", "the workspace is not device memory"),
    "another stream": ("launch.c", "t->executor, t->stream)", "t->executor, NULL)", "launched on another stream than the current one"),
    "the framework's stream is not asked for": ("launch.c", "f->stream(f, ctx->device, stream_out)", "(int)DV_OK", "launched on another stream than the current one"),
    "the stream is no stream": ("launch.c", "t->executor, t->stream)", "t->executor, t)", "its stream: not an aclrtStream"),
    "a descriptor is not destroyed": ("argument.c", "for (size_t i = 0; i < o->n; i++)\n        o->entries", "for (size_t i = 1; i < o->n; i++)\n        o->entries", "aclTensor 1 was never destroyed"),
    "descriptors are not destroyed after a failure": ("launch.c", "        task_free(t);\n        return status;\n    }\n    return task_enqueue", "        free(t);\n        return status;\n    }\n    return task_enqueue",
                                                      "was never destroyed"),
    "a descriptor is destroyed twice": ("argument.c", "        o->entries[i].destroy(o->entries[i].p);", "        o->entries[i].destroy(o->entries[i].p), o->entries[i].destroy(o->entries[i].p);", "the aclTensor was destroyed before"),
    "descriptors are destroyed between the phases": ("launch.c", "    dv_clear_error();\n    enqueued_task = t;", "    dv_clear_error();\n    dv__acl_objects_destroy(&t->objects);\n    enqueued_task = t;", "was destroyed before the launch"),
    "the tensors of a list are destroyed besides the list": ("argument.c", "    while (status && n)\n        dv__acl.aclDestroyTensor", "    while (n)\n        dv__acl.aclDestroyTensor", "it belongs to a list"),
    "tensors of a list that failed are lost": ("argument.c", "    while (status && n)\n        dv__acl.aclDestroyTensor", "    while (false)\n        dv__acl.aclDestroyTensor", "was never destroyed"),
    "parameters in another order": ("argument.c", "pass_parameter(&p, &words[i])", "pass_parameter(&p, &words[i ^ (call->list->n > 20)])", "parameter more: not an aclTensorList"),
    "a scalar by value": ("argument.c", "case DV_FIELD_SCALAR:\n        return argument_store_object(", "case DV_FIELD_SCALAR:\n        return argument_pass_number(p, v, word);\n        return argument_store_object(", "parameter scalar: "),
    "an optional tensor is a pointer to nothing": ("argument.c", "        return DV_OK; /* None becomes a null pointer */", "        return word->bits = 8, DV_OK;", "parameter y: not an aclTensor"),
    "a required pointer is null": ("argument.c", "    word->bits = (uint64_t)(uintptr_t)made;", "    word->bits = destroy == destroy_Tensor ? 0 : (uint64_t)(uintptr_t)made;", "a null pointer in the place of an aclTensor"),
    "a tensor's struct in the place of its memory": ("argument.c", "&storage, 1, t->data)", "&storage, 1, (void *)(uintptr_t)t)", "the address is not device memory"),
    "the bridge reads the NPU's memory": ("argument.c", "&storage, 1, t->data)", "&storage, 1, (char *)t->data + 0 * *(volatile char *)t->data)", "Segmentation fault"),
    "the bridge writes the NPU's memory": ("argument.c", "&storage, 1, t->data)", "&storage, 1, (*(volatile char *)t->data = 0, t->data))", "Segmentation fault"),
    "the storage ends before the view": ("argument.c", "storage + (t->shape[i] - 1) * t->strides[i]", "t->shape[i] * storage", "elements, the view reaches"),
    "strides are the shape": ("argument.c", "acl_dtype_number(t->dtype), t->strides, 0,", "acl_dtype_number(t->dtype), t->shape, 0,", "elements, the view reaches"),
    "the executor goes to another operator": ("launch.c", "    const int32_t status = t->function ? t->function->launch(", "    static dv_aclnn_launch_fn first;\n    first = first || !t->function ? first : t->function->launch;\n    const int32_t status = t->function ? first(",
                                              "the executor is one of"),
    "a tensor is freed before its kernel runs": ("host.c", "        dv_ascend_wait(t->device.id);\n        dv__acl.aclrtFree(t->data);", "        dv__acl.aclrtFree(t->data);", "was freed before the kernel ran"),
    "a stream is destroyed while work is on it": ("host.c", "waited = dv__acl.aclrtSynchronizeStream(library_state.streams[i])", "waited = 0", "aclrtDestroyStream: work is left on it"),
    "a launcher gets another stream": ("argument.c", "(uint64_t)(uintptr_t)stream, false", "0, false", "my_custom_op_impl: launched on another stream than the current one"),
    "a launcher gets the stream as l2ctrl": ("argument.c", "words[1] = (dv__argument_word){ 0, false };", "words[1] = (dv__argument_word){ (uint64_t)(uintptr_t)stream, false };", "l2ctrl is not null"),
    "a launcher gets a tensor's struct": ("argument.c", "(uintptr_t)t->data;", "(uintptr_t)t;", "my_custom_op_impl: its memory is not device memory"),
    "workspaces are not given back": ("host.c", "            dv__acl.aclrtFree(b->memory);\n", "", "1000 bytes of device memory were never freed"),
}

# these are right for CANN, and give other values or other messages
FOUND_BY_VALUES = {
    "a float is passed as a double": ("argument.c", "memcpy(&word->bits, &f, sizeof f);", "memcpy(&word->bits, &d, sizeof d);"),
    "the stack is in another order": ("invoke.c", "            stack[ns++] = (int64_t)words[i].bits;", "            stack[ns++ ^ 1] = (int64_t)words[i].bits;"),
    "float elements are not narrowed": ("argument.c", "narrow[i] = (float)list.data[i];", "narrow[i] = ((const float *)list.data)[i];"),
    "a bool is not one bit": ("argument.c", "type == DV_FIELD_BOOL ? d != 0", "type == DV_FIELD_BOOL ? 2"),
    "the constant of None is forgotten": ("argument.c", "        v = &a->constant;", "        v = &(const dv_value){ .type = DV_VALUE_INT };"),
    "the last vendor comes first": ("library.c", "for (size_t i = 0; i < cann.n; i++) {\n        void *p = dlsym(cann.operators[i]", "for (size_t i = 0; i < cann.n; i++) {\n        void *p = dlsym(cann.operators[cann.n - 1 - i]"),
    "a private format is read as ND": ("argument.c", "    if (!argument_is_dense_format(format))", "    if (false)"),
    "a capture is not seen": ("launch.c", "status == DV_ACL_MODEL_RI_CAPTURE_STATUS_NONE)\n", "true)\n"),
    "CANN's message is lost": ("library.c", "return text && *text ? text :", "return text && !*text ? text :"),
    "a failure after the call is forgotten": ("launch.c", "        task_set_late_failure(t, status);", "        (void)task_set_late_failure;"),
    "a wrong dtype": ("dtypes.def", "DTYPE(f32, 0)", "DTYPE(f32, 1)"),
    "a launcher's list begins before the stream": ("argument.c", "words[i ? i + 2 : 0]", "words[i ? i + 1 : 0]"),
    "a launcher runs before its turn": ("launch.c", "        return dv__launcher_fill_arguments(f, call, t->stream, t->words, &t->objects);", "        return dv__launcher_fill_arguments(f, call, t->stream, t->words, &t->objects) || task_run_launcher(t);"),
    "what fails in a launcher is lost": ("launch.c", "    return dv__acl.aclrtGetLastError ? dv__acl", "    return 0 ? dv__acl"),
    "an older failure is the launcher's": ("launch.c", "    if (dv__acl.aclrtGetLastError)\n        dv__acl.aclrtGetLastError(DV_ACL_RT_THREAD_LEVEL);\n", ""),
    "a launcher without blocks": ("argument.c", "!word->bits || word->bits", "word->bits"),
    "every tensor is ND": ("argument.c", "    case 4: return DV_ACL_FORMAT_NCHW;", "    case 4: return DV_ACL_FORMAT_ND;"),
}


def environment(folder=None):
    cann = BUILD / "tests/ascend/cann"
    return {**os.environ, "ASCEND_HOME_PATH": str(cann), "ASCEND_OPP_PATH": str(cann / "opp"),
            "LD_LIBRARY_PATH": f"{folder}:{BUILD}/lib" if folder else ""}


def compile_one(source, folder, include):
    command = ["cc", "-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-D_GNU_SOURCE", f"-I{include}", f"-I{ROOT}/bridges/ascend", f"-I{ROOT}/include", "-c", source, "-o", folder / f"{source.stem}.o"]
    subprocess.run(command, check=True, capture_output=True)


def link(objects, folder):
    subprocess.run(["cc", "-shared", "-Wl,-soname,libdovetail_ascend.so", *objects, f"-L{BUILD}/lib", "-ldovetail", "-o", folder / "libdovetail_ascend.so"],
                   check=True, capture_output=True)


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    if not PROGRAM.exists():
        pytest.skip("cmake -DDOVETAIL_TESTS=ON")
    folder = tmp_path_factory.mktemp("bridge")
    for source in SOURCES:
        compile_one(source, folder, ROOT / "bridges/ascend")
    return {s.name: folder / f"{s.stem}.o" for s in SOURCES}


def run(folder):
    r = subprocess.run([PROGRAM], env=environment(folder), capture_output=True, text=True, timeout=10)
    return r.returncode, r.stdout + r.stderr


def plant(objects, tmp_path, name, old, new):
    text = (ROOT / "bridges/ascend" / name).read_text()
    assert text.count(old) >= 1, f"{name} has no {old!r}"
    copies = tmp_path / "source"
    copies.mkdir()
    for file in (ROOT / "bridges/ascend").iterdir():
        if file.is_file():
            (copies / file.name).write_text(text.replace(old, new, 1) if file.name == name else file.read_text())
    objects = dict(objects)
    for source in copies.glob("*.c") if name.endswith(".def") else [copies / name]:
        compile_one(source, tmp_path, copies)
        objects[source.name] = tmp_path / f"{source.stem}.o"
    link(objects.values(), tmp_path)
    return run(tmp_path)


def test_no_fault(objects, tmp_path):
    link(objects.values(), tmp_path)
    code, out = run(tmp_path)
    assert code == 0 and "FAULT" not in out, out


@pytest.mark.parametrize("what", FOUND_BY_THE_STAND_IN)
def test_the_stand_in_finds(objects, tmp_path, what):
    *where, said = FOUND_BY_THE_STAND_IN[what]
    code, out = plant(objects, tmp_path, *where)
    assert code != 0 and said in out, out


@pytest.mark.parametrize("what", FOUND_BY_VALUES)
def test_values_find(objects, tmp_path, what):
    code, out = plant(objects, tmp_path, *FOUND_BY_VALUES[what])
    assert code != 0 and re.search(r"test_ascend\.c:\d+: error", out), out
