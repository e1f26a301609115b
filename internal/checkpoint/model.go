package checkpoint

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/safetensors"
)

// model is the geometry of a generated Qwen3-MoE checkpoint. Its dimensions are chosen to be awkward for
// trainers and possible for engines: hidden, vocabulary and expert count divide by no power of two above 2, so fsdp
// leaves short and empty shards; heads and expert widths divide by tensor-parallel sizes 1 to 8.
type model struct {
	layers      int64 // the first is dense
	hidden      int64
	heads       int64
	kvHeads     int64
	headDim     int64
	dense       int64 // rows of gate and up in the dense layer
	experts     int64
	expertWidth int64 // rows of gate and up of one expert
	vocab       int64
	shardBytes  int64 // largest file
}

var (
	demoModel = model{
		layers: 9, hidden: 522, heads: 8, kvHeads: 2, headDim: 64, dense: 1056,
		experts: 18, expertWidth: 352, vocab: 32_013, shardBytes: 48 << 20,
	}
	tinyModel = model{
		layers: 3, hidden: 66, heads: 8, kvHeads: 2, headDim: 8, dense: 96,
		experts: 6, expertWidth: 32, vocab: 1_003, shardBytes: 200 << 10,
	}
)

// generated is a tensor to make: fill turns a hash into eight bytes of its elements.
type generated struct {
	safetensors.Spec
	fill func(hash uint64) uint64
}

// nbytes needs no overflow checks: the models above are the only ones.
func (g generated) nbytes() int64 {
	nelems := g.DType.Size()
	for _, dim := range g.Shape {
		nelems *= dim
	}
	return nelems
}

// Every fill keeps to finite numbers of a trained model's magnitude. A lane's sum never carries into the next.
func weightBF16(h uint64) uint64 { return h&0x83ff_83ff_83ff_83ff + 0x3a00_3a00_3a00_3a00 } // ±2^-11 … 2^-3
func nearOne(h uint64) uint64    { return h&0x001f_001f_001f_001f + 0x3f80_3f80_3f80_3f80 } // 1 … 1.24
func nearOneF32(h uint64) uint64 { return h&0x001f_ffff_001f_ffff + 0x3f80_0000_3f80_0000 }
func smallInt(h uint64) uint64   { return h & 0xffff }

// tensors are those of Qwen3-MoE by their Hugging Face names, and three that no family knows: an integer buffer, a
// scalar and a tensor without bytes, each of which some system of this kind has tripped over.
func (m model) tensors() []generated {
	spec := func(name string, dtype safetensors.DType, fill func(uint64) uint64, shape ...int64) generated {
		return generated{safetensors.Spec{Name: name, DType: dtype, Shape: shape}, fill}
	}
	weight := func(name string, rows, columns int64) generated {
		return spec(name+".weight", safetensors.BF16, weightBF16, rows, columns)
	}
	norm := func(name string, n int64) generated { return spec(name+".weight", safetensors.BF16, nearOne, n) }

	all := []generated{weight("model.embed_tokens", m.vocab, m.hidden)}
	mlp := func(at string, width int64) {
		all = append(all, weight(at+".gate_proj", width, m.hidden), weight(at+".up_proj", width, m.hidden),
			weight(at+".down_proj", m.hidden, width))
	}
	for l := range m.layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		q, kv := m.heads*m.headDim, m.kvHeads*m.headDim
		all = append(all, norm(at+"input_layernorm", m.hidden), norm(at+"post_attention_layernorm", m.hidden),
			weight(at+"self_attn.q_proj", q, m.hidden), weight(at+"self_attn.k_proj", kv, m.hidden),
			weight(at+"self_attn.v_proj", kv, m.hidden), weight(at+"self_attn.o_proj", m.hidden, q),
			norm(at+"self_attn.q_norm", m.headDim), norm(at+"self_attn.k_norm", m.headDim))
		if l == 0 {
			mlp(at+"mlp", m.dense)
			continue
		}
		all = append(all, weight(at+"mlp.gate", m.experts, m.hidden))
		for e := range m.experts {
			mlp(fmt.Sprintf("%smlp.experts.%d", at, e), m.expertWidth)
		}
	}
	return append(all, norm("model.norm", m.hidden),
		spec("model.position_ids", safetensors.I64, smallInt, 1, 512),
		spec("model.logit_scale", safetensors.F32, nearOneF32),
		spec("model.rotary_emb.cache", safetensors.F32, nearOneF32, 0, m.headDim)) // a tensor without bytes
}

// config is config.json. The embedding is tied, so there is no lm_head; routers are kept in float32 by the engine.
func (m model) config() map[string]any {
	return map[string]any{
		"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
		"vocab_size": m.vocab, "hidden_size": m.hidden, "num_hidden_layers": m.layers,
		"num_attention_heads": m.heads, "num_key_value_heads": m.kvHeads, "head_dim": m.headDim,
		"intermediate_size": m.dense, "mlp_only_layers": []int{0}, "decoder_sparse_step": 1,
		"num_experts": m.experts, "num_experts_per_tok": 2, "moe_intermediate_size": m.expertWidth,
		"moe_router_dtype": "float32", "tie_word_embeddings": true,
	}
}
