/* fused_experts.c: the experts of a mixture, after routing. Declared in full: the kernels come later, or from anyone who has
 * some for his device (DV_LIBRARY_IMPL).
 *
 * y_t = sum over j of topk_weights[t, j] * w2[e] (silu(g) * u), where e = topk_ids[t, j] and [g; u] = w1[e] x_t. w1 holds for
 * each expert n rows of gates and then n rows of ups. */
#include <dovetail_op.h>

struct fused_experts {
    const dv_tensor *hidden_states, *w1, *w2, *topk_weights, *topk_ids;
    dv_string activation;
    bool apply_router_weight_on_input, use_fp8_w8a8, use_int8_w8a8, use_int8_w8a16, use_int4_w4a16;
    dv_opt_string ocp_mx_scheme;
    bool per_channel_quant;
    int64_t global_num_experts;
    const dv_tensor *expert_map, *w1_scale, *w2_scale, *w1_zp, *w2_zp, *a1_scale, *a2_scale;
    dv_opt_ints block_shape;
    const dv_tensor *w1_bias, *w2_bias;
    dv_tensor *out;
};

/* Of int4 weights two share a byte, so w1 and w2 have half as many columns; all other formats are an element a weight. */
DV_OPERATOR(fused_experts, struct fused_experts,
    (hidden_states, w1, w2, topk_weights, topk_ids, activation, apply_router_weight_on_input, use_fp8_w8a8, use_int8_w8a8,
        use_int8_w8a16, use_int4_w4a16, ocp_mx_scheme, per_channel_quant, global_num_experts, expert_map, w1_scale, w2_scale,
        w1_zp, w2_zp, a1_scale, a2_scale, block_shape, w1_bias, w2_bias, out),
    .schema =
        "fused_experts(Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor topk_ids, str "
        "activation=\"silu\", "
        "bool apply_router_weight_on_input=False, bool use_fp8_w8a8=False, bool use_int8_w8a8=False, bool use_int8_w8a16=False, "
        "bool use_int4_w4a16=False, str? ocp_mx_scheme=None, bool per_channel_quant=False, SymInt global_num_experts=-1, "
        "Tensor? expert_map=None, Tensor? w1_scale=None, Tensor? w2_scale=None, Tensor? w1_zp=None, Tensor? w2_zp=None, "
        "Tensor? a1_scale=None, Tensor? a2_scale=None, SymInt[]? block_shape=None, Tensor? w1_bias=None, Tensor? w2_bias=None) "
        "-> Tensor out",
    .contract = "hidden_states[m k]:T, topk_weights[m j]:f32, topk_ids[m j]:i32|i64, expert_map[g]:i32, "
                "w1_scale[...], w2_scale[...], w1_zp[...], w2_zp[...], a1_scale[...], a2_scale[...], block_shape[2]; "
                "when use_int4_w4a16: w1[e 2*n k/2]:u8, w2[e k n/2]:u8, w1_bias[e 2*n]:T, w2_bias[e k]:T "
                "/ else: w1[e 2*n k]:W, w2[e k n]:W, w1_bias[e 2*n]:T, w2_bias[e k]:T, "
                "W == if(use_fp8_w8a8, f8_e4m3fn, if(use_int8_w8a8 or use_int8_w8a16, i8, T)); "
                "-> out[m k]:T; T in f32 f16 bf16; parallel(m); "
                "activation in \"silu\" \"gelu\" \"gelu_tanh\" \"swigluoai\"; not apply_router_weight_on_input or j == 1; "
                "global_num_experts == -1 or global_num_experts >= e; absent(expert_map) or g == global_num_experts; "
                "topk_ids.values < max(e, global_num_experts); flops = 6*m*j*n*k",
    .doc =
        "The experts of a mixture, after routing: each token goes to the experts in topk_ids, and their results are added with "
        "topk_weights. Id -1, or an id that expert_map sends to -1, adds nothing; one that appears twice counts twice. Products "
        "are "
        "accumulated in float; silu(gate) * up is rounded to the element type in between; the sum over experts is in float.");

DV_LIBRARY_FRAGMENT(dovetail, fused_experts, &dv_op_fused_experts);
