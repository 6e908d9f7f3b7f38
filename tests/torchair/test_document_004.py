"""Document 004: a converter for Ascend's graphs."""
import pathlib
import sys
import types

import stand_in  # before torch; skips where torchair is not installed
import torch

import dovetail

INDEXER = r"""
#include <dovetail_op.h>
struct indexer {
    const dv_tensor *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key, *block_table;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode;
    dv_tensor *out;
};
static int indexer(dv_context *ctx, const struct indexer *a)
{
    const float *query = a->query->data;
    int32_t *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = (int32_t)(query[0] + 10 * (float)i);
    return DV_OK;
}
DV_OPERATOR(indexer, struct indexer,
    (query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key, sparse_count, sparse_mode, out),
    .schema = "npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
              "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"PA_BSND\", "
              "int sparse_count=2048, int sparse_mode=3) -> Tensor out",
    .contract = "query[b s n d]:f32, key[*k]:f32, weights[*w]:f32, actual_seq_lengths_query[*q]:i32, actual_seq_lengths_key[*l]:i32, "
                "block_table[*t]:i32 -> out[b s sparse_count]:i32; sparse_count >= 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct indexer, "cpu", "f32", indexer)));
DV_LIBRARY(custom_pypto, &dv_op_indexer);
"""


def test_the_converter(tmp_path, monkeypatch):
    """Lines 148 to 196, word for word, in place of ours: its imports, its keyword-only arguments and defaults, its node with inputs x0 to x4."""
    (tmp_path / "ops.c").write_text(INDEXER)
    library = dovetail.load(tmp_path / "ops.c")
    import torchair
    monkeypatch.setitem(stand_in.PROTOTYPES, "LightningIndexerPto", ([(f"x{i}", "optional") for i in range(5)], [("y0", "required")], []))
    code = pathlib.Path(__file__).with_name("document_004_converter.py").read_text()
    scope = {}
    with monkeypatch.context() as m:  # its first import; torch_npu needs CANN
        m.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
        exec(code, scope)
    op = torch.ops.custom_pypto.npu_lightning_indexer_pto
    assert scope["convert_npu_lightning_indexer_pto"]._aten_op is op.default
    assert op.default._ge_converter.__wrapped__.__name__ == "convert_npu_lightning_indexer_pto" and op.default._ge_converter.__module__ != "dovetail.torchair"
    seen = []

    def run(node, *given):
        seen.append(([d.name for d in node.input_desc], [x is not None for x in given]))
        return op(*given[:3], actual_seq_lengths_key=given[3], block_table=given[4])
    monkeypatch.setitem(stand_in.BUILT_IN, "LightningIndexerPto", run)
    torch._dynamo.reset()
    stand_in.GRAPHS.clear()
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    x = torch.full((1, 2, 3, 4), 7.0)
    f = lambda x, table: op(x, x, x, block_table=table)
    found = torch.compile(f, backend=backend, fullgraph=True)(x, torch.zeros(2, dtype=torch.int32))
    assert found.dtype == torch.int32 and found.shape == (1, 2, 2048) and found.flatten()[:3].tolist() == [7, 17, 27]
    assert stand_in.GRAPHS[0].count("LightningIndexerPto") == 1
    assert seen == [(["x0", "x1", "x2", "x3", "x4"], [True, True, True, False, True])]
    library.close()
