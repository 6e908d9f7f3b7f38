/* Rows of struct operator: a schema, its contract, and calls with their results (test_contract.c). Also the fuzzer's seeds. */

/* ---- The table of DESIGN.md ------------------------------------------------------------------------------------------ */
{ "swiglu(Tensor gate, Tensor up) -> Tensor out", "gate[*s]:T, up[*s]:T -> out[*s]:T; parallel(*s); T in f32 f64 bf16",
    { { "f32[4,6] f32[4,6]", "f32[4,6]" }, { "bf16[] bf16[]", "bf16[]" }, { "f64[0,3] f64[0,3]", "f64[0,3]" },
        { "f32[4,6]@cuda f32[4,6]@cuda", "f32[4,6]@cuda" },
        { "f32[4,6] f32[4,5]",
            "error: ESHAPE: my::swiglu: argument 'up': expected shape [4, 6] ('*s' is bound by 'gate'), found [4, 5]" },
        { "f32[4,6] f32[4]", "error: my::swiglu: argument 'up': expected shape [4, 6], found [4]" },
        { "i32[4] i32[4]", "error: EDTYPE: my::swiglu: argument 'gate': expected dtype f32, f64 or bf16 (T), found i32" },
        { "f32[4] f64[4]", "error: my::swiglu: argument 'up': expected dtype f32 ('T' is bound by 'gate'), found f64" },
        { "f32[4] f32[4]@cuda",
            "error: EDEVICE: my::swiglu: argument 'up': expected a tensor on cpu as 'gate' is, found one on cuda:0" },
        { "f32[4]@cuda f32[4]@cuda:1", "error: expected a tensor on cuda:0 as 'gate' is, found one on cuda:1" },
        { "f32[4]@cpu f32[4]@meta", "error: expected a tensor on cpu as 'gate' is, found one on meta" },
        { "f32[4] -", "error: EINVAL: my::swiglu: argument 'up': expected a tensor, found None" },
        { "f32[4] 3", "error: argument 'up': expected a tensor, found another type" } } },
    { "fused_experts(Tensor x, Tensor w1, Tensor w2, Tensor topk_weights, Tensor topk_ids) -> Tensor",
        "x[m k]:T, w1[e 2*n k]:T, w2[e k n]:T, topk_weights[m j]:f32, topk_ids[m j]:i32 -> [m k]:T; parallel(m)",
        { { "bf16[7,32] bf16[4,10,32] bf16[4,32,5] f32[7,2] i32[7,2]", "bf16[7,32]" },
            { "bf16[7,32] bf16[4,11,32] bf16[4,32,5] f32[7,2] i32[7,2]",
                "error: argument 'w1': expected shape [4, 10, 32] with 2*n ('n' is bound by 'w2'), found [4, 11, 32]" },
            { "bf16[7,32] bf16[4,10,32] bf16[4,31,5] f32[7,2] i32[7,2]",
                "error: argument 'w2': expected shape [4, 32, n] ('k' is bound by 'x'), found [4, 31, 5]" } } },
    { "npu_lightning_indexer(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, Tensor? "
      "actual_seq_lengths_key=None, "
      "Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", int sparse_count=2048, int sparse_mode=3, "
      "int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, bool return_value=False) -> (Tensor "
      "sparse_indices, Tensor sparse_values)",
        "when layout_query == \"BSND\": query[b s n1 d]:T, weights[b s n1]:W, actual_seq_lengths_query[b]:i32\n"
        "    -> sparse_indices[b s n2 sparse_count]:i32, sparse_values[b s n2 if(return_value, sparse_count, 0)]:T\n"
        "  / \"TND\": query[t n1 d]:T, weights[t n1]:W, actual_seq_lengths_query[b]:i32 present\n"
        "    -> sparse_indices[t n2 sparse_count]:i32, sparse_values[t n2 if(return_value, sparse_count, 0)]:T;\n"
        "when layout_key == \"BSND\": key[b s2 n2 d]:T, actual_seq_lengths_key[b]:i32\n"
        "  / \"TND\": key[u n2 d]:T, actual_seq_lengths_key[b]:i32 present\n"
        "  / \"PA_BSND\": key[blocks block_size n2 d]:T, actual_seq_lengths_key[b]:i32 present, block_table[b m]:i32 present, "
        "not return_value;\n"
        "layout_key == \"PA_BSND\" or layout_key == layout_query;\n"
        "T in f32 f16 bf16; W == T or W == f32; n2 > 0; n1 % n2 == 0; sparse_count > 0; sparse_mode in 0 3",
        { { "bf16[2,3,64,128] bf16[2,100,1,128] f32[2,3,64] - - - 'BSND' 'BSND' 2048 3 9 9 False",
              "i32[2,3,1,2048] bf16[2,3,1,0]" },
            { "bf16[2,3,64,128] bf16[2,100,1,128] bf16[2,3,64] i32[2] - - 'BSND' 'BSND' 16 3 9 9 True",
                "i32[2,3,1,16] bf16[2,3,1,16]" },
            { "bf16[6,64,128] bf16[200,2,128] f32[6,64] i32[2] i32[2] - 'TND' 'TND' 16 0 9 9 True", "i32[6,2,16] bf16[6,2,16]" },
            { "f16[2,3,8,16] f16[40,16,1,16] f32[2,3,8] - i32[2] i32[2,7] 'BSND' 'PA_BSND' 16 3 9 9 False",
                "i32[2,3,1,16] f16[2,3,1,0]" },
            { "f16[6,8,16] f16[40,16,1,16] f32[6,8] i32[2] i32[2] i32[2,7] 'TND' 'PA_BSND' 16 3 9 9 False",
                "i32[6,1,16] f16[6,1,0]" },
            { "f16[6,8,16] f16[40,16,1,16] f32[6,8] i32[2] i32[2] - 'TND' 'PA_BSND' 16 3 9 9 False",
                "error: my::npu_lightning_indexer: argument 'block_table': expected a tensor when layout_key == \"PA_BSND\", "
                "found None" },
            { "f16[6,8,16] f16[40,16,1,16] f32[6,8] i32[2] i32[2] i32[3,7] 'TND' 'PA_BSND' 16 3 9 9 False",
                "error: argument 'block_table': expected shape [2, m] ('b' is bound by 'actual_seq_lengths_query'), found [3, "
                "7]" },
            { "f16[6,8,16] f16[40,16,1,16] f32[6,8] i32[2] i32[2] i32[2,7] 'TND' 'PA_BSND' 16 3 9 9 True",
                "error: argument 'return_value': expected not return_value when layout_key == \"PA_BSND\", found return_value = "
                "True" },
            { "bf16[2,3,64,128] bf16[2,100,1,128] bf16[2,3,64] - - i32[2,7] 'BSND' 'BSND' 16 3 9 9 True",
                "error: argument 'block_table': expected None when layout_key == \"BSND\", found a value" },
            { "bf16[6,64,128] bf16[2,100,1,128] f32[6,64] i32[2] - - 'TND' 'BSND' 16 3 9 9 True",
                "error: expected layout_key == \"PA_BSND\" or layout_key == layout_query, found layout_key = \"BSND\", "
                "layout_query = \"TND\"" },
            { "bf16[6,64,128] bf16[2,100,1,128] f32[6,64] - - - 'TND' 'TND' 16 3 9 9 True",
                "error: argument 'actual_seq_lengths_query': expected a tensor when layout_query == \"TND\", found None" },
            { "bf16[2,3,64,128] bf16[2,100,1,128] f32[2,3,64] - - - 'BSND' 'SBH' 2048 3 9 9 False",
                "error: argument 'layout_key': expected \"BSND\", \"TND\" or \"PA_BSND\", found \"SBH\"" },
            { "bf16[2,3,64,128] bf16[2,100,3,128] f32[2,3,64] - - - 'BSND' 'BSND' 2048 3 9 9 False",
                "error: expected n1 % n2 == 0, found n1 = 64, n2 = 3 ('n1' is bound by 'query', 'n2' is bound by 'key')" },
            { "bf16[2,3,64,128] bf16[2,100,0,128] f32[2,3,64] - - - 'BSND' 'BSND' 2048 3 9 9 False",
                "error: expected n2 > 0, found n2 = 0" },
            { "bf16[2,3,64,128] bf16[2,100,1,128] f64[2,3,64] - - - 'BSND' 'BSND' 2048 3 9 9 False",
                "error: expected W == T or W == f32, found T = bf16, W = f64" },
            { "bf16[2,3,64,128] bf16[2,100,1,128] f32[2,3,64] - - - 'BSND' 'BSND' 2048 2 9 9 False",
                "error: argument 'sparse_mode': expected sparse_mode in 0 3, found sparse_mode = 2" } } },
    { "npu_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, Tensor? "
      "block_table=None, "
      "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? "
      "key_rope=None, int sparse_block_size=1, "
      "str layout_query='BSND', str layout_kv='BSND', int sparse_mode=3, int pre_tokens=9223372036854775807, int "
      "next_tokens=9223372036854775807, "
      "int attention_mode=2, bool return_softmax_lse=False) -> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum)",
        "when layout_query == \"BSND\": query[b s n1 d]:T, sparse_indices[b s n2 k]:i32, actual_seq_lengths_query[b]:i32, "
        "query_rope[b s n1 r]:T\n"
        "    -> attention_out[b s n1 d]:T\n"
        "  / \"TND\": query[t n1 d]:T, sparse_indices[t n2 k]:i32, actual_seq_lengths_query[b]:i32 present, query_rope[t n1 "
        "r]:T\n"
        "    -> attention_out[t n1 d]:T;\n"
        "when layout_kv == \"BSND\": key[b s2 n2 d]:T, value[b s2 n2 d]:T, key_rope[b s2 n2 r]:T, actual_seq_lengths_kv[b]:i32\n"
        "  / \"TND\": key[u n2 d]:T, value[u n2 d]:T, key_rope[u n2 r]:T, actual_seq_lengths_kv[b]:i32 present\n"
        "  / \"PA_BSND\": key[blocks block_size n2 d]:T, value[blocks block_size n2 d]:T, key_rope[blocks block_size n2 r]:T,\n"
        "    actual_seq_lengths_kv[b]:i32 present, block_table[b m]:i32 present, not return_softmax_lse, block_size % "
        "sparse_block_size == 0;\n"
        "when not return_softmax_lse: -> softmax_max[0]:f32, softmax_sum[0]:f32\n"
        "  / return_softmax_lse and layout_query == \"BSND\": -> softmax_max[b n2 s n1//n2]:f32, softmax_sum[b n2 s n1//n2]:f32\n"
        "  / return_softmax_lse and layout_query == \"TND\": -> softmax_max[n2 t n1//n2]:f32, softmax_sum[n2 t n1//n2]:f32;\n"
        "layout_kv == \"PA_BSND\" or layout_kv == layout_query; present(query_rope) == present(key_rope);\n"
        "n2 > 0; n1 % n2 == 0; sparse_block_size > 0; sparse_mode in 0 3; attention_mode == 2; T in f32 f16 bf16",
        { { "bf16[2,3,64,512] bf16[2,100,1,512] bf16[2,100,1,512] i32[2,3,1,16] 0.07 - - - bf16[2,3,64,64] bf16[2,100,1,64] 1 "
            "'BSND' 'BSND' 3 9 9 2 False",
              "bf16[2,3,64,512] f32[0] f32[0]" },
            { "bf16[2,3,64,512] bf16[2,100,2,512] bf16[2,100,2,512] i32[2,3,2,16] 0.07 - - - - - 1 'BSND' 'BSND' 3 9 9 2 True",
                "bf16[2,3,64,512] f32[2,2,3,32] f32[2,2,3,32]" },
            { "bf16[6,64,512] bf16[90,2,512] bf16[90,2,512] i32[6,2,16] 0.07 - i32[2] i32[2] - - 1 'TND' 'TND' 3 9 9 2 True",
                "bf16[6,64,512] f32[2,6,32] f32[2,6,32]" },
            { "bf16[6,64,512] bf16[9,16,1,512] bf16[9,16,1,512] i32[6,1,16] 0.07 i32[2,5] i32[2] i32[2] - - 4 'TND' 'PA_BSND' 3 "
              "9 9 2 False",
                "bf16[6,64,512] f32[0] f32[0]" },
            { "bf16[6,64,512] bf16[9,16,1,512] bf16[9,16,1,512] i32[6,1,16] 0.07 i32[2,5] i32[2] i32[2] - - 5 'TND' 'PA_BSND' 3 "
              "9 9 2 False",
                "error: argument 'sparse_block_size': expected block_size % sparse_block_size == 0 when layout_kv == "
                "\"PA_BSND\", found sparse_block_size = 5, block_size = 16 ('block_size' is bound by 'key')" },
            { "bf16[6,64,512] bf16[9,16,1,512] bf16[9,16,1,512] i32[6,1,16] 0.07 i32[2,5] i32[2] i32[2] - - 4 'TND' 'PA_BSND' 3 "
              "9 9 2 True",
                "error: expected not return_softmax_lse" },
            { "bf16[2,3,64,512] bf16[2,100,1,512] bf16[2,100,1,512] i32[2,3,1,16] 0.07 - - - bf16[2,3,64,64] - 1 'BSND' 'BSND' 3 "
              "9 9 2 False",
                "error: expected present(query_rope) == present(key_rope)" },
            { "bf16[2,3,64,512] bf16[2,100,1,512] bf16[2,100,1,511] i32[2,3,1,16] 0.07 - - - - - 1 'BSND' 'BSND' 3 9 9 2 False",
                "error: argument 'value': expected shape [2, 100, 1, 512] ('d' is bound by 'query'), found [2, 100, 1, "
                "511]" } } },
    { "fused_experts_all(Tensor hidden_states, Tensor w1, Tensor w2, Tensor topk_weights, Tensor topk_ids, str "
      "activation=\"silu\", "
      "bool apply_router_weight_on_input=False, bool use_fp8_w8a8=False, bool use_int8_w8a8=False, bool use_int8_w8a16=False, "
      "bool use_int4_w4a16=False, "
      "str? ocp_mx_scheme=None, bool per_channel_quant=False, SymInt global_num_experts=-1, Tensor? expert_map=None, Tensor? "
      "w1_scale=None, "
      "Tensor? w2_scale=None, Tensor? w1_zp=None, Tensor? w2_zp=None, Tensor? a1_scale=None, Tensor? a2_scale=None, SymInt[]? "
      "block_shape=None, "
      "Tensor? w1_bias=None, Tensor? w2_bias=None) -> Tensor",
        "hidden_states[m k]:T, topk_weights[m j]:f32, topk_ids[m j]:i32|i64, expert_map[g]:i32,\n"
        "w1_scale[...], w2_scale[...], w1_zp[...], w2_zp[...], a1_scale[...], a2_scale[...], block_shape[2];\n"
        "when use_int4_w4a16: w1[e 2*n k/2]:u8, w2[e k n/2]:u8, w1_bias[e 2*n]:T, w2_bias[e k]:T\n"
        "  / else: w1[e 2*n k]:W, w2[e k n]:W, w1_bias[e 2*n]:T, w2_bias[e k]:T,\n"
        "    W == if(use_fp8_w8a8, f8_e4m3fn, if(use_int8_w8a8 or use_int8_w8a16, i8, T));\n"
        "-> [m k]:T; T in f32 f16 bf16; parallel(m);\n"
        "activation in \"silu\" \"gelu\" \"gelu_tanh\" \"swigluoai\"; not apply_router_weight_on_input or j == 1;\n"
        "global_num_experts == -1 or global_num_experts >= e; absent(expert_map) or g == global_num_experts; topk_ids.values < "
        "max(e, global_num_experts);\n"
        "flops = 6*m*j*n*k",
        { { "bf16[7,32] bf16[4,10,32] bf16[4,32,5] f32[7,2] i32[7,2] 'silu' False False False False False - False -1 - - - - - - "
            "- - - -",
              "bf16[7,32]" },
            { "bf16[7,32] u8[4,10,16] u8[4,32,3] f32[7,2] i64[7,2] 'silu' False False False False True - False -1 - - - - - - - "
              "- - -",
                "error: ESHAPE: my::fused_experts_all: argument 'w2': n/2: 5 is not divisible by 2" },
            { "bf16[7,32] u8[4,12,16] u8[4,32,3] f32[7,2] i64[7,2] 'silu' False False False False True - False -1 - - - - - - - "
              "(16,16) bf16[4,12] bf16[4,32]",
                "bf16[7,32]" },
            { "bf16[7,32] i8[4,10,32] i8[4,32,5] f32[7,2] i32[7,2] 'silu' False False True False False - False -1 - f32[9] - - - "
              "- - - - -",
                "bf16[7,32]" },
            { "bf16[7,32] i8[4,10,32] i8[4,32,5] f32[7,2] i32[7,2] 'silu' False False False False False - False -1 - f32[9] - - "
              "- - - - - -",
                "error: expected W == if(use_fp8_w8a8, f8_e4m3fn, if(use_int8_w8a8 or use_int8_w8a16, i8, T)) when no other case "
                "holds, found" },
            { "bf16[7,32] bf16[4,10,32] bf16[4,32,5] f32[7,2] i32[7,2] 'silu' True False False False False - False -1 - - - - - "
              "- - - - -",
                "error: expected not apply_router_weight_on_input or j == 1, found apply_router_weight_on_input = True, j = 2 "
                "('j' is bound by 'topk_weights')" },
            { "bf16[7,32] bf16[4,10,32] bf16[4,32,5] f32[7,1] i32[7,1] 'silu' True False False False False - False -1 - - - - - "
              "- - (128,128,1) - -",
                "error: argument 'block_shape': expected 2 elements, found 3" },
            { "bf16[2,32] bf16[4,10,32] bf16[4,32,5] f32[2,2] i32[2,2]=(0,3,3,4) 'silu' False False False False False - False -1 "
              "- - - - - - - - - -",
                "error: argument 'topk_ids': expected topk_ids.values < max(e, global_num_experts), found the element 4 at [1, "
                "1], e = 4" },
            { "bf16[2,32] bf16[4,10,32] bf16[4,32,5] f32[2,2] i32[2,2]=(0,3,3,-1) 'silu' False False False False False - False "
              "-1 - - - - - - - - - -",
                "bf16[2,32]" },
            { "bf16[7,32] bf16[4,10,32] bf16[4,32,5] f32[7,2] i32[7,2] 'silu' False False False False False - False 8 i32[7] - - "
              "- - - - - - -",
                "error: expected absent(expert_map) or g == global_num_experts" } } },
    { "advance_step(int num_seqs, int num_queries, int block_size, Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) "
      "input_positions, "
      "Tensor(c!) seq_lens, Tensor(d!) slot_mapping, Tensor block_tables) -> ()",
        "input_tokens[n]:i64, sampled_token_ids[q 1]:i64, input_positions[n]:i64, seq_lens[n]:I, slot_mapping[n]:i64, "
        "block_tables[n m]:I;\n"
        "I in i32 i64; n == num_seqs; q == num_queries; q <= n; block_size > 0",
        { { "5 3 16 i64[5] i64[3,1] i64[5] i32[5] i64[5] i32[5,8]", "" },
            { "5 3 16 i64[5] i64[3,1] i64[5] i32[5] i64[5] i64[5,8]",
                "error: argument 'block_tables': expected dtype i32 ('I' is bound by 'seq_lens'), found i64" },
            { "5 6 16 i64[5] i64[6,1] i64[5] i32[5] i64[5] i32[5,8]",
                "error: expected q <= n, found n = 5, q = 6 ('n' is bound by 'input_tokens', 'q' is bound by "
                "'sampled_token_ids')" },
            { "4 3 16 i64[5] i64[3,1] i64[5] i32[5] i64[5] i32[5,8]",
                "error: argument 'num_seqs': expected n == num_seqs, found num_seqs = 4, n = 5" },
            { "5 3 0 i64[5] i64[3,1] i64[5] i32[5] i64[5] i32[5,8]",
                "error: argument 'block_size': expected block_size > 0, found block_size = 0" },
            { "5 3 16 i64[5] i64[3,2] i64[5] i32[5] i64[5] i32[5,8]",
                "error: argument 'sampled_token_ids': expected shape [3, 1], found [3, 2]" } } },
    { "crop(Tensor pic, int[4] box) -> Tensor",
        "pic[c h w]:T, box[4] -> [c box[3]-box[1] box[2]-box[0]]:T; box[2] >= box[0]; box[3] >= box[1]",
        { { "f32[3,10,20] (2,3,12,9)", "f32[3,6,10]" }, { "f32[3,10,20] (2,3,2,3)", "f32[3,0,0]" },
            { "f32[3,10,20] (2,3,1,9)", "error: argument 'box': expected box[2] >= box[0]" },
            { "f32[3,10,20] (2,3,12)", "error: argument 'box': expected 4 elements, found 3" },
            { "f32[3,10,20] (-9223372036854775807,0,9223372036854775807,1)",
                "error: ESHAPE: my::crop: box[2] - box[0]: the result does not fit 64 bits" },
            { "f32[10,20] (2,3,12,9)", "error: argument 'pic': expected shape [c, h, w], found [10, 20]" } } },
    { "add(Tensor self, Tensor other) -> Tensor", "self[*a]:T, other[*b]:U -> [broadcast(*a, *b)]:promote(T, U)",
        { { "f32[4,1,3] f32[5,1]", "f32[4,5,3]" }, { "f32[4,1,3] i64[]", "f32[4,1,3]" }, { "i32[3] f64[]", "f64[3]" },
            { "f16[3] f64[]", "f16[3]" }, { "f16[] f64[]", "f64[]" }, { "bf16[3] f16[3]", "f32[3]" }, { "u8[0] i8[1]", "i16[0]" },
            { "f32[0,1] f32[7]", "f32[0,7]" },
            { "f32[4,2] f32[3]",
                "error: ESHAPE: my::add: broadcast(*a, *b): shapes [4, 2] ('*a' is bound by 'self') and [3] ('*b' is bound by "
                "'other') do not broadcast: 2 and 3 at dim -1" },
            { "u16[3] i32[3]",
                "error: EDTYPE: my::add: [broadcast(*a, *b)]:promote(T, U): these dtypes have no common one: u16, i32" } } },
    { "matmul(Tensor a, Tensor b) -> Tensor",
        "a[*p m k]:T, b[*q k n]:T -> [broadcast(*p, *q) m n]:T; sum(k); flops = 2*numel(*p)*m*n*k",
        { { "f32[4,5] f32[5,6]", "f32[4,6]" }, { "f32[7,1,4,5] f32[3,5,6]", "f32[7,3,4,6]" },
            { "f32[4,5] f32[4,6]", "error: argument 'b': expected shape [5, n] ('k' is bound by 'a'), found [4, 6]" },
            { "f32[5] f32[5,6]", "error: argument 'a': expected shape [*p, m, k], found [5]" } } },
    { "cat(Tensor[] xs, int dim=0) -> Tensor", "xs{i}[*a n{i} *b]:T -> [*a total(n) *b]:T; rank(*a) == dim",
        { { "{f32[2,3] f32[4,3]} 0", "f32[6,3]" }, { "{f32[2,3] f32[2,4] f32[2,0]} 1", "f32[2,7]" },
            { "{f32[2,3]} 1", "f32[2,3]" },
            { "{f32[2,3] f32[4,3]} 1",
                "error: argument 'xs[1]': expected shape [2, n{i}] ('*a' is bound by 'xs'), found [4, 3]" },
            { "{f32[2,3] f64[2,3]} 1", "error: argument 'xs[1]': expected dtype f32 ('T' is bound by 'xs'), found f64" },
            { "{} 1", "error: argument 'xs': expected at least one tensor, found an empty list" },
            { "{f32[2,3]} 2", "error: argument 'xs[0]': expected shape [*a, n{i}, *b], found [2, 3]" },
            { "{f32[2,3]} -1", "error: EINVAL: my::cat: rank(*a) == dim: expected a number of dims, found -1" },
            { "{f32[2,3] f32[2,3]@cuda} 1",
                "error: argument 'xs[1]': expected a tensor on cpu as 'xs' is, found one on cuda:0" } } },
    { "cat_axis(Tensor[] xs, int dim=0) -> Tensor", "xs{i}[*a n{i} *b]:T -> [*a total(n) *b]:T; rank(*a) == axis(dim, xs)",
        { { "{f32[2,3] f32[2,4]} -1", "f32[2,7]" }, { "{f32[2,3] f32[3,3]} -2", "f32[5,3]" },
            { "{f32[2,3]} 2", "error: EINVAL: my::cat_axis: argument 'dim': expected a dim from -2 to 1, found 2" } } },
    { "add_all(Tensor[] xs, Tensor[] ys, Tensor[] zs) -> ()", "xs{i}[*s{i} n{i}]:T, ys{i}[*s{i} n{i}]:T, zs{i}[*s{i} k 2 n{i}]",
        { { "{f32[2,3] f32[4]} {f32[2,3] f32[4]} {i8[2,5,2,3] i8[5,2,4]}", "" },
            { "{f32[2,3] f32[4]} {f32[2,3]} {i8[2,5,2,3] i8[5,2,4]}",
                "error: EINVAL: my::add_all: argument 'ys': expected as many tensors as 'xs' has, 2, found 1" },
            { "{f32[2,3] f32[4]} {f32[2,3] f32[4]} {}",
                "error: EINVAL: my::add_all: argument 'zs': expected as many tensors as 'xs' has, 2, found 0" },
            { "{f32[2,3] f32[4]} {f32[2,3] f32[1,4]} {i8[2,5,2,3] i8[5,2,4]}",
                "error: ESHAPE: my::add_all: argument 'ys[1]': expected shape [4], found [1, 4]" },
            { "{f32[2,3] f32[4]} {f32[9,3] f32[4]} {i8[2,5,2,3] i8[5,2,4]}",
                "error: argument 'ys[0]': expected shape [2, 3] ('*s{i}' is bound by 'xs[0]'), found [9, 3]" },
            { "{f32[2,3] f32[4]} {f32[2,3] f32[4]} {i8[2,5,2,3] i8[5,2,5]}",
                "error: argument 'zs[1]': expected shape [5, 2, 4] ('n{i}' is bound by 'xs[1]'), found [5, 2, 5]" },
            { "{f32[2,3] f32[4]} {f32[2,3] f32[4]} {i8[2,5,2,3] i8[6,2,4]}",
                "error: argument 'zs[1]': expected shape [5, 2, 4] ('k' is bound by 'zs'), found [6, 2, 4]" } } },
    { "own_computed(Tensor[] xs, Tensor[] ys, Tensor z) -> Tensor",
        "xs{i}[*s{i} n{i}], ys{i}[*s{i} 2*m 3], z[m *t] -> [m total(n)]:f32",
        { { "{f32[2,3] f32[4]} {f32[2,8,3] f32[8,3]} i8[4]", "f32[4,7]" },
            { "{f32[2,3] f32[4]} {f32[2,8,3] f32[9,3]} i8[4]",
                "error: argument 'ys[1]': expected shape [8, 3] with 2*m ('m' is bound by 'z'), found [9, 3]" },
            { "{f32[2,3] f32[4]} {f32[2,8,3] f32[4,8,3]} i8[4]",
                "error: argument 'ys[1]': expected shape [2*m, 3], found [4, 8, 3]" } } },
    { "own_cases(bool two, Tensor[] xs, Tensor[] ys) -> Tensor",
        "xs{i}[*s{i}]:T; when two: ys{i}[*s{i} 2]:T / else: ys{i}[...], len(ys) == 0; -> [len(xs)]:T",
        { { "True {f32[3] f32[4,5]} {f32[3,2] f32[4,5,2]}", "f32[2]" }, { "False {f32[3] f32[4,5]} {}", "f32[2]" },
            { "True {f32[3] f32[4,5]} {f32[3,2] f32[4,2]}", "error: argument 'ys[1]': expected shape [4, 5, 2], found [4, 2]" },
            { "False {f32[3]} {f32[3]}",
                "error: argument 'ys': expected len(ys) == 0 when no other case holds, found len(ys) = 1" } } },
    { "returned_lists(Tensor[] xs, Tensor[] ys, int[] ks) -> (Tensor[] a, Tensor b, Tensor[] c)",
        "xs{i}[*s{i} n{i}]:T, ys{i}[*s{i}]:U -> a{i}[n{i} *s{i} i]:U, b[total(n)]:T, c{j < len(ks)}[ks[j] j]:f32",
        { { "{f32[2,3] f32[4]} {f64[2] f64[]} (5,6,7)", "{f64[3,2,0] f64[4,1]} f32[7] {f32[5,0] f32[6,1] f32[7,2]}" },
            { "{f32[2,3] f32[4]} {f64[2] f64[]} ()", "{f64[3,2,0] f64[4,1]} f32[7] {}" },
            { "{f32[4]} {f64[]} (1,-1)",
                "error: ESHAPE: my::returned_lists: result 'c[1]': expected a size, found ks[j] = -1" } } },
    { "returned_cases(Tensor x, int n, bool more) -> Tensor[]", "x[*s]:T; when more: -> {i < n}[*s]:T / else: -> {i < 1}[2]:i64",
        { { "f32[2] 3 True", "{f32[2] f32[2] f32[2]}" }, { "f32[2] 3 False", "{i64[2]}" },
            { "f32[2] -3 True", "error: ESHAPE: my::returned_cases: result 0: expected a number of tensors, found -3" } } },
    { "foreach_mixed(Tensor[] xs, Tensor[] ys) -> (Tensor[] a, Tensor[] b)",
        "xs{i}[*s{i} n{i}], ys{i}[*s{i} n{i}] -> a{i}[*s{i} 2*n{i} + i rank(xs{i})]:promote(xs{i}, ys{i}), "
        "b{i}[numel(*s{i})]:dtype(ys{i})",
        { { "{f32[2,3] i8[4]} {f64[2,3] i32[4]}", "{f64[2,6,2] i32[9,1]} {f64[2] i32[1]}" },
            { "{f32[2,3]} {f64[3,2]}",
                "error: argument 'ys[0]': expected shape [2, 3] ('*s{i}' is bound by 'xs[0]'), found [3, 2]" } } },
    { "shrunk(Tensor[] xs, int by) -> Tensor[] a", "xs{i}[n{i} m] -> a{i}[n{i} - by*m]:f32",
        { { "{f32[5,3] f32[7,3]} 1", "{f32[2] f32[4]}" },
            { "{f32[5,3] f32[7,3]} 2", "error: result 'a[0]': expected a size, found n{i} - by*m = -1 with m = 3" } } },
    { "foreach_like(Tensor[] xs) -> (Tensor[] a, Tensor[] b)", "xs{i}[...] -> a{i} like(xs), b{i} like(xs{i})",
        { { "{f32[2,3]/(1,2) i8[4]}", "{f32[2,3]/(1,2) i8[4]} {f32[2,3]/(1,2) i8[4]}" }, { "{}", "{} {}" } } },
    { "foreach_int(Tensor[] xs) -> (Tensor[] a, Tensor[] b)", "xs{i}[*s{i}] -> a{i}[*s{i}]:i64, b{i}[*s{i}]:bool; b: like(xs)",
        { { "{f32[2,3]/(1,2) i8[4]}", "{i64[2,3] i64[4]} {bool[2,3]/(1,2) bool[4]}" } } },
    { "like_one(Tensor[] xs, Tensor y) -> Tensor[]", "xs{i}[n{i} m], y[k m]:T -> {i}[n{i} m]:T like(y)",
        { { "{f32[2,3] f32[5,3]} i8[4,3]/(1,4)", "{i8[2,3]/(1,2) i8[5,3]/(1,5)}" } } },
    { "maybe_lists(Tensor[]? xs) -> Tensor[] out",
        "when present(xs): xs{i}[...] -> out{i} like(xs) / else: xs absent -> out{i < 0}[]:f32",
        { { "{f32[2] i8[]}", "{f32[2] i8[]}" }, { "-", "{}" } } },
    { "unbind(Tensor(a) x) -> Tensor(a)[]", "x[n *s]:T -> {i < n} view(x, select(0, i))",
        { { "f32[3,4]", "{f32[4]&0 f32[4]&0+4 f32[4]&0+8}" }, { "f32[0,4]", "{}" } } },
    { "split(Tensor(a) x, int size) -> Tensor(a)[] parts",
        "x[n *s]:T -> parts{i < ceildiv(n, size)} view(x, narrow(0, i*size, min(size, n - i*size))); size > 0",
        { { "f32[5,2] 2", "{f32[2,2]&0 f32[2,2]&0+4 f32[1,2]&0+8}" }, { "f32[5,2] 0", "error: expected size > 0" } } },
    { "transpose_all(Tensor(a)[] xs) -> Tensor(a)[]", "xs{i}[n{i} m{i}] -> {i} view(xs, swap(0, 1))",
        { { "{f32[2,3] i8[4,5]}", "{f32[3,2]/(1,3)&0 i8[5,4]/(1,5)&0}" } } },
    { "waits(Tensor y, Tensor x, Tensor z) -> Tensor", "y[n]:T, x[n + rank(*s)]:T, z[*s]:T -> [n]:T", /* *s comes later */
        { { "f32[3] f32[5] f32[4,6]", "f32[3]" }, { "f32[3] f32[4] f32[4]", "f32[3]" },
            { "f32[3] f32[3] f32[4,6]",
                "error: argument 'x': expected shape [5] with n + rank(*s) ('*s' is bound by 'z', 'n' is bound by 'y'), found "
                "[3]" } } },
    { "stack(Tensor[] xs, int dim=0) -> Tensor", "xs{i}[*a *b]:T -> [*a len(xs) *b]:T; rank(*a) == dim",
        { { "{f32[2,3] f32[2,3]} 1", "f32[2,2,3]" }, { "{f32[2,3] f32[2,3]} 2", "f32[2,3,2]" } } },
    { "sum(Tensor x, int[]? dim=None, bool keepdim=False) -> Tensor", "x[*s]:T -> [reduced(*s, dim, keepdim)]:accumulate(T)",
        { { "f32[2,3,4] (1) False", "f32[2,4]" }, { "f32[2,3,4] (-1,0) True", "f32[1,3,1]" }, { "i8[2,3] - False", "i64[]" },
            { "bool[2,3] () True", "i64[1,1]" }, { "bf16[] (0) False", "bf16[]" }, { "bf16[] (-1) True", "bf16[]" },
            { "f32[2,3] (2) False", "error: argument 'dim': expected a dim from -2 to 1, found 2" },
            { "f32[2,3] (0,-2) False", "error: argument 'dim': dim 0 appears more than once" } } },
    { "conv2d(Tensor x, Tensor w, Tensor? bias, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor",
        "x[n ci h w_]:T, w[co ci//groups kh kw]:T, bias[co]:T ->\n"
        "[n co (h + 2*padding[0] - dilation[0]*(kh-1) - 1)//stride[0] + 1 (w_ + 2*padding[1] - dilation[1]*(kw-1) - "
        "1)//stride[1] + 1]:T;\n"
        "groups > 0; ci % groups == 0; co % groups == 0; stride[0] > 0; stride[1] > 0; sum(ci); parallel(n)",
        { { "f32[1,3,224,224] f32[64,3,7,7] f32[64] (2,2) (3,3) (1,1) 1", "f32[1,64,112,112]" },
            { "f32[1,4,9,9] f32[6,2,3,3] - (1,1) (0,0) (2,2) 2", "f32[1,6,5,5]" },
            { "f32[1,4,9,9] f32[6,4,3,3] - (1,1) (0,0) (2,2) 2",
                "error: argument 'w': expected shape [6, 2, kh, kw] with ci//groups ('ci' is bound by 'x'), found [6, 4, 3, 3]" },
            { "f32[1,4,2,9] f32[6,4,7,3] - (1,1) (0,0) (1,1) 1",
                "error: ESHAPE: my::conv2d: result 0: expected a size, found (h + 2*padding[0] - dilation[0]*(kh - 1) - "
                "1)//stride[0] + 1 = -4 with h = 2, kh = 7" },
            { "f32[1,4,9,9] f32[6,4,3,3] - (1,1) (0,0) (2,2) 0", "error: ci//groups: division by zero" },
            { "f32[1,4,9,9] f32[6,4,3,3] f32[5] (1,1) (0,0) (2,2) 1",
                "error: argument 'bias': expected shape [6] ('co' is bound by 'w'), found [5]" } } },
    { "nonzero(Tensor x) -> Tensor", "x[*s] -> [u rank(x)]:i64; u unbacked in 0..numel(x)",
        { { "f32[2,3]", "~i64[6,2]" }, { "bool[]", "~i64[1,0]" } } },
    { "transpose(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", "self[*s]:T -> view(self, swap(dim0, dim1))",
        { { "f32[2,3,4] 0 -1", "f32[4,3,2]/(1,4,12)&0" }, { "f32[] 0 -1", "f32[]&0" },
            { "f32[2,3] 0 2", "error: result 0: expected a dim from -2 to 1, found 2" } } },
    { "alias(Tensor(a) self) -> Tensor(a)", "self[*s] -> view(self)", { { "f32[2,3]/(1,2)", "f32[2,3]/(1,2)&0" } } },
    { "permute(Tensor(a) self, int[] dims) -> Tensor(a)", "self[*s] -> view(self, permute(dims))",
        { { "f32[2,3,4] (2,0,1)", "f32[4,2,3]/(1,12,4)&0" },
            { "f32[2,3] (0,0)", "error: 'dims' is not a permutation: found [0, 0]" } } },
    { "narrow(Tensor(a) self, int dim, int start, int length) -> Tensor(a)", "self[*s] -> view(self, narrow(dim, start, length))",
        { { "f32[5,4] 0 1 3", "f32[3,4]&0+4" }, { "f32[5,4] -1 1 3", "f32[5,3]/(4,1)&0+1" },
            { "f32[5,4] 0 3 3", "error: expected start and length inside 5, found 3 and 3" } } },
    { "select(Tensor(a) self, int dim, int index) -> Tensor(a)", "self[*s] -> view(self, select(dim, index))",
        { { "f32[5,4] 0 -1", "f32[4]&0+16" }, { "f32[5,4] 1 2", "f32[5]/(4)&0+2" },
            { "f32[5,4] 1 4", "error: expected a dim from -4 to 3, found 4" } } },
    { "diagonal(Tensor(a) self) -> Tensor(a)",
        "self[n m]:T -> [min(n, m)]:T view(self) strides[stride(self, 0) + stride(self, 1)]",
        { { "f32[3,5]", "f32[3]/(6)&0" } } },
    { "rms_norm(Tensor x, Tensor(a!)? residual, Tensor weight, float eps) -> Tensor",
        "x[*s d]:T, residual[*s d]:T, weight[d]:T -> [*s d]:T; parallel(*s); eps >= 0",
        { { "f32[2,3,8] - f32[8] 1e-5", "f32[2,3,8]" }, { "f32[8] f32[8] f32[8] 1e-5", "f32[8]" },
            { "f32[] - f32[8] 1e-5", "error: argument 'x': expected shape [*s, d], found []" },
            { "f32[2,3,8] - f32[7] 1e-5", "error: argument 'weight': expected shape [8] ('d' is bound by 'x'), found [7]" },
            { "f32[2,3,8] f32[3,8] f32[8] 1e-5", "error: argument 'residual': expected shape [2, 3, 8], found [3, 8]" },
            { "f32[2,3,8] - f32[8] -1.0", "error: argument 'eps': expected eps >= 0, found eps = -1" } } },

    /* ---- One thing at a time -------------------------------------------------------------------------------------------- */
    { "full(SymInt[] size, Scalar value, *, ScalarType? dtype=None, Device? device=None) -> Tensor",
        "-> [*size]:if(present(dtype), dtype, promote(value)) @device",
        { { "(2,3) 1 - -", "i64[2,3]" }, { "() 1.5 - -", "f32[]" }, { "(4) True - -", "bool[4]" }, { "(4) 1 :f16 -", "f16[4]" },
            { "(4,-1) 1 :f16 -", "error: ESHAPE: my::full: result 0: expected a size, found *size = -1" },
            { "(3037000500,3037000500) 1 - -",
                "error: result 0: expected a size in bytes that fits 64 bits, found shape [3037000500, 3037000500] of i64" },
            { "(0,4611686018427387904,4) 1 :i8 -", "error: expected a size in bytes that fits 64 bits" },
            { "4 1 - -", "error: argument 'size': expected a list of integers for *size, found another type" } } },
    { "scale(Tensor x, Scalar k) -> Tensor", "x[*s]:T -> [*s]:promote(T, k)",
        { { "i32[3] 2", "i32[3]" }, { "i32[3] 2.5", "f32[3]" }, { "f16[3] 2.5", "f16[3]" }, { "bool[] True", "bool[]" },
            { "bool[2] 7", "i64[2]" } } },
    { "solve(Tensor x) -> Tensor", "x[2*(n + 1) 7 - m q/3] -> [n m q]:f32",
        { { "i8[10,3,2]", "f32[4,4,6]" },
            { "i8[11,3,2]",
                "error: ESHAPE: my::solve: argument 'x': 2*(n + 1): expected a size for which there is a whole 'n', found 11" },
            { "i8[0,3,2]", "error: argument 'x': 2*(n + 1): 'n' would be negative: -1" },
            { "i8[10,8,2]", "error: argument 'x': 7 - m: 'm' would be negative: -1" },
            { "i8[10,3,4611686018427387904]",
                "error: q/3: expected a size for which there is a whole 'q', found 4611686018427387904" } } },
    { "ratio(Tensor x) -> Tensor", "x[12/n] -> [n]:f32",
        { { "i8[4]", "f32[3]" }, { "i8[5]", "error: 12/n: expected a size for which there is a whole 'n', found 5" },
            { "i8[0]", "error: 12/n: expected a size for which there is a whole 'n', found 0" } } },
    { "negated(Tensor x) -> Tensor", "x[8 - (3 - n)] -> [n]:f32",
        { { "i8[9]", "f32[4]" }, { "i8[2]", "error: 'n' would be negative: -3" } } },
    { "defined(Tensor x, int k) -> Tensor",
        "x[n], half = n // 2, k > half -> [half half]:f32; third = half - 1; third >= 0; workspace = 8*third",
        { { "i8[9] 5", "f32[4,4]" }, { "i8[9] 4", "error: expected k > half, found k = 4, half = 4" },
            { "i8[1] 4", "error: expected third >= 0, found third = -1" } } },
    { "checked(Tensor x, Tensor y) -> Tensor", "x[n], y[m]; m = 2*n + 1; -> [m]:f32",
        { { "i8[3] i8[7]", "f32[7]" },
            { "i8[3] i8[6]", "error: my::checked: m = 2*n + 1: expected m = 7, found 6 (bound by 'y')" } } },
    { "lengths(Tensor x, int[] ks) -> Tensor", "x[*s], ks[n] -> [n ks[0] ks[-1]]:f32; rank(x) == n",
        { { "i8[1,2] (5,6)", "f32[2,5,6]" }, { "i8[1] (5,6)", "error: expected rank(x) == n" },
            { "i8[] ()", "error: argument 'ks': expected at least 1 elements for ks[0], found 0" } } },
    { "modes(Tensor x, bool up, str mode) -> Tensor",
        "when up: x[n]:T -> [n+1]:T / else: x[n]:T -> [n-1]:T; mode in \"a\" \"b\" \"c\"; when mode in \"a\" \"b\": n > 3 / "
        "else: n < 3",
        { { "f32[4] True 'a'", "f32[5]" }, { "f32[2] False 'c'", "f32[1]" },
            { "f32[2] False 'b'", "error: expected n > 3 when mode in \"a\" \"b\"" },
            { "f32[0] False 'c'", "error: expected a size, found n - 1 = -1 with n = 0" },
            { "f32[2] False 'd'", "error: expected mode in \"a\" \"b\" \"c\", found mode = \"d\"" } } },
    { "ranks(Tensor x) -> Tensor", "when rank(x) == 2: x[n d]:T -> [n]:T / 3: x[b n d]:T -> [b n]:T",
        { { "f32[4,5]", "f32[4]" }, { "f32[3,4,5]", "f32[3,4]" },
            { "f32[3]", "error: argument 'x': expected rank 2 or 3, found 1" } } },
    { "dtypes(Tensor x) -> Tensor", "when dtype(x) == f32: x[n]:f32 -> [n]:f64 / bf16 f16: x[n]:T -> [n]:f32",
        { { "f32[4]", "f64[4]" }, { "f16[4]", "f32[4]" },
            { "i8[4]", "error: argument 'x': expected f32, bf16 or f16, found i8" } } },
    { "maybe(Tensor x, Tensor? bias) -> Tensor", "when present(bias): x[n]:T, bias[m]:T -> [n m]:T / else: x[n]:T -> [n]:T",
        { { "f32[4] f32[2]", "f32[4,2]" }, { "f32[4] -", "f32[4]" } } },
    { "guarded(Tensor x, Tensor? bias) -> Tensor", "x[n]:T, bias[m]:T -> [n]:T; m >= n; absent(bias) or m % 2 == 0",
        { { "f32[4] f32[6]", "f32[4]" }, { "f32[4] f32[3]", "error: expected m >= n" }, { "f32[4] -", "f32[4]" },
            { "f32[4] f32[5]", "error: expected absent(bias) or m % 2 == 0" } } },
    { "either(Tensor x, Tensor? y, Tensor? z) -> Tensor", "x[...], y[n], z[n] -> [if(rank(x) > 0, size(x, -1), 1)]:f32",
        { { "f32[4,7] - -", "f32[7]" }, { "f32[] i8[3] i8[3]", "f32[1]" },
            { "f32[] i8[3] i8[2]", "error: argument 'z': expected shape [3] ('n' is bound by 'y'), found [2]" },
            { "f32[] - i8[2]", "f32[1]" } } },
    { "where_is(Tensor x, Tensor n, Tensor? idx) -> (Tensor, Tensor)",
        "x[*s]:T, n[]:i64 @cpu, idx[k]:i64 @any -> [*s]:T, [*s]:i64 @cpu",
        { { "f32[2]@cuda i64[] -", "f32[2]@cuda i64[2]" }, { "f32[2]@cuda i64[] i64[3]", "f32[2]@cuda i64[2]" },
            { "f32[2]@cuda i64[]@cuda -", "error: argument 'n': expected a tensor on cpu, found one on cuda:0" } } },
    { "inplace(Tensor(a!) x, Tensor y) -> Tensor(a!)", "x[*s]:T, y[*t]:U; broadcast(*s, *t) == *s",
        { { "f32[3,4] f32[4]", "f32[3,4]&0" }, { "f32[3,4]/(1,3) i8[3,1]", "f32[3,4]/(1,3)&0" },
            { "f32[4] f32[3,4]",
                "error: expected broadcast(*s, *t) == *s, found *s = [4], *t = [3, 4] ('*s' is bound by 'x', '*t' is bound by "
                "'y')" } } },
    { "out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)", "a[*s]:T, b[*t]:U, out[broadcast(*s, *t)]:promote(T, U)",
        { { "f32[3,1] f32[4] f32[3,4]", "f32[3,4]&2" },
            { "f32[3,1] f64[4] f32[3,4]", "error: argument 'out': expected dtype f64, found f32" },
            { "f32[3,1] f32[4] f32[3,5]",
                "error: argument 'out': expected shape [3, 4] ('*s' is bound by 'a', '*t' is bound by 'b'), found [3, 5]" } } },
    { "like(Tensor x) -> Tensor out", "x[*s]:T -> like(x)",
        { { "f32[3,4]", "f32[3,4]" }, { "f32[3,4]/(1,3)", "f32[3,4]/(1,3)" } } },
    { "like2(Tensor x) -> Tensor out", "x[*s]:T -> out[*s]:f64; out: like(x)",
        { { "f32[3,4]/(1,3)", "f64[3,4]/(1,3)" }, { "f32[3,4]/(1,30)", "f64[3,4]/(1,3)" },
            { "f32[2,3,4,5]/(60,1,15,3)", "f64[2,3,4,5]/(60,1,15,3)" } } },
    { "values(Tensor ids, int e) -> ()", "ids[...]; -1 <= ids.values < e",
        { { "i64[2,2]=(0,-1,2,1) 3", "" },
            { "i64[2,2]=(0,-1,2,3) 3", "error: argument 'ids': expected -1 <= ids.values < e, found the element 3 at [1, 1]" },
            { "i64[2,2]/(1,2)=(0,-2,2,2) 3", "error: found the element -2 at [1, 0]" },
            { "f32[3]=(0,1,5) 3", "error: found the element 5 at [2]" }, { "i64[0] 3", "" },
            { "u8[2]=(255,0) 255", "error: found the element 255 at [0]" } } },
    { "segment_sum(Tensor x, Tensor offsets) -> Tensor",
        "x[n d]:T, offsets[m + 1]:i64 -> [m d]:T; sorted(offsets); 0 <= offsets.values <= n",
        { { "f32[5,2] i64[4]=(0,2,2,5)", "f32[3,2]" },
            { "f32[5,2] i64[4]=(0,3,2,5)",
                "error: argument 'offsets': expected sorted(offsets), found the element 2 at [2] after 3" } } },
    { "two_runs(Tensor x, Tensor y) -> Tensor", "x[*a], y[*a n *b] -> [*b n]:f32",
        { { "i8[2,3] i8[2,3,4,5,6]", "f32[5,6,4]" }, { "i8[] i8[4]", "f32[4]" },
            { "i8[2,3] i8[2,3]", "error: argument 'y': expected shape [2, 3, n, *b], found [2, 3]" },
            { "i8[2,3] i8[2,9,4]",
                "error: argument 'y': expected shape [2, 3, n, *b] ('*a' is bound by 'x'), found [2, 9, 4]" } } },
    { "optional_list(Tensor?[] xs, Tensor y) -> Tensor", "xs{i}[n], y[*s] -> [*s]:f32; len(xs) <= 3",
        { { "{- i8[2] i8[2]} i8[4]", "f32[4]" }, { "{} i8[4]", "f32[4]" }, { "{- -} i8[4]", "f32[4]" },
            { "{i8[2] - i8[3]} i8[4]", "error: argument 'xs[2]': expected shape [2]" },
            { "{- - - -} i8[4]", "error: argument 'xs': expected len(xs) <= 3" } } },
    { "arith(int a, int b) -> Tensor", "-> [abs(a//b) a%b ceildiv(abs(a), abs(b)) max(a, b, 0) - min(a, b, 0)]:f32",
        { { "7 2", "f32[3,1,4,7]" }, { "-7 2", "f32[4,1,4,9]" }, { "7 -2", "error: expected a size, found a%b = -1" },
            { "6 0", "error: ESHAPE: my::arith: abs(a//b): division by zero" },
            { "-9223372036854775808 -1", "error: the result does not fit 64 bits" },
            { "-9223372036854775807 1", "error: the result does not fit 64 bits" } } },
    { "outputs(Tensor x, bool more) -> (Tensor a, Tensor b)", "x[n]:T -> a[n]:T; when more: -> b[n n]:T / else: -> b absent",
        { { "f32[3] True", "f32[3] f32[3,3]" }, { "f32[3] False", "f32[3] -" } } },
    { "optional(Tensor x, Tensor? w) -> (Tensor a, Tensor? b)",
        "x[n]:T, w[m]:T -> a[n]:T; when present(w): -> b[m n]:T / else: -> b absent",
        { { "f32[3] f32[2]", "f32[3] f32[2,3]" }, { "f32[3] -", "f32[3] -" } } },
    { "viewed(Tensor(a) x, bool flat) -> Tensor(a)?", "when flat: x[n m]:T -> view(x, select(0, 0)) / else: x[n m]:T -> absent",
        { { "f32[2,3] True", "f32[3]&0" }, { "f32[2,3] False", "-" } } },
    { "swapped(Tensor x, int a, int b, int[] order) -> (Tensor, Tensor)", "x[*s]:T -> [swap(*s, a, b)]:T, [permute(*s, order)]:T",
        { { "f32[2,3,4] 0 -1 (1,2,0)", "f32[4,3,2] f32[3,4,2]" },
            { "f32[2,3] 0 1 (0)", "error: argument 'order': expected 2 dims, found 1" } } },
    { "taken(Tensor x) -> Tensor", "x[n]:T -> [n]:T; strided(x), align(x, 64)", { { "f32[4]", "f32[4]" } } },
    { "columns(Tensor x, Tensor? y, int d) -> Tensor",
        "x[*s]:T, y[n m]:T -> [*s]:T; stride(x, 1) == 1; size(x, d) <= 8; stride(y, 0) == m",
        { { "f32[2,3] - 0", "f32[2,3]" },
            { "f32[2,3]/(1,2) - 0", "error: argument 'x': expected stride(x, 1) == 1, found stride(x, 1) = 2" },
            { "f32[2,9] - 1", "error: expected size(x, d) <= 8, found size(x, d) = 9, d = 1" },
            { "f32[2,3] f32[2,3]/(1,2) 0", "error: argument 'y': expected stride(y, 0) == m, found stride(y, 0) = 1, m = 3" } } },
    { "bytes(Tensor x) -> ()", "x[n]:T; n * itemsize(T) <= 16",
        { { "f32[4]", "" }, { "f64[3]", "error: expected n * itemsize(T) <= 16, found n = 3, T = f64" } } },
    { "opt_int(Tensor x, int? k) -> Tensor", "x[n] -> [if(present(k), k, n)]:f32",
        { { "i8[3] -", "f32[3]" }, { "i8[3] 5", "f32[5]" } } },
    { "opt_int2(Tensor x, int? k) -> Tensor", "x[n] -> [k]:f32",
        { { "i8[3] -", "error: argument 'k': expected an integer for k, found None" } } },
    { "wild(Tensor x, Tensor y) -> Tensor", "x[...]:f32|f64, y[2 n]:any -> [n]:dtype(y) @cpu",
        { { "f32[3] i8[2,5]", "i8[5]" }, { "f16[3] i8[2,5]", "error: argument 'x': expected dtype f32 or f64, found f16" } } },
