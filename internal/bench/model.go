package bench

import (
	"fmt"

	"github.com/drydock-rl/drydock/internal/capturegen"
	"github.com/drydock-rl/drydock/internal/checkpoint"
	"github.com/drydock-rl/drydock/internal/served"
	"github.com/drydock-rl/drydock/internal/shardlayout"
	"github.com/drydock-rl/drydock/internal/tiles"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// The shape of Qwen3-30B-A3B as its configuration file tells it.
const (
	qwenLayers  = 48
	qwenExperts = 128
	qwenHidden  = 2048
	qwenVocab   = 151936
)

// qwenSources lists the 18,867 tensors of Qwen3-30B-A3B.
func qwenSources() []capturegen.Source {
	var all []capturegen.Source
	add := func(name string, shape ...int64) {
		all = append(all, capturegen.Source{Name: name, DType: "BF16", Shape: shape})
	}
	add("lm_head.weight", qwenVocab, qwenHidden)
	add("model.embed_tokens.weight", qwenVocab, qwenHidden)
	add("model.norm.weight", qwenHidden)
	for l := range qwenLayers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", qwenHidden)
		add(at+"post_attention_layernorm.weight", qwenHidden)
		add(at+"mlp.gate.weight", qwenExperts, qwenHidden)
		add(at+"self_attn.q_proj.weight", 4096, qwenHidden)
		add(at+"self_attn.k_proj.weight", 512, qwenHidden)
		add(at+"self_attn.v_proj.weight", 512, qwenHidden)
		add(at+"self_attn.o_proj.weight", qwenHidden, 4096)
		add(at+"self_attn.q_norm.weight", 128)
		add(at+"self_attn.k_norm.weight", 128)
		for e := range qwenExperts {
			expert := fmt.Sprintf("%smlp.experts.%d.", at, e)
			add(expert+"gate_proj.weight", 768, qwenHidden)
			add(expert+"up_proj.weight", 768, qwenHidden)
			add(expert+"down_proj.weight", qwenHidden, 768)
		}
	}
	return all
}

// qwenConfig is what the capture's generator needs of the configuration file.
func qwenConfig() checkpoint.Config {
	return checkpoint.ParseConfig(map[string]any{
		"architectures": []any{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "hidden_size": float64(qwenHidden), "head_dim": 128.0,
		"num_attention_heads": 32.0, "num_key_value_heads": 4.0, "num_experts": float64(qwenExperts), "vocab_size": float64(qwenVocab),
	})
}

// fsdpLayouts are the layouts that ranks of FSDP trainers publish for the sources.
func fsdpLayouts(sources []capturegen.Source, ranks int) ([]*messages.Layout, error) {
	cut := make([]shardlayout.Source, len(sources))
	for i, s := range sources {
		cut[i] = shardlayout.Source{Name: s.Name, Shape: s.Shape, Size: 2}
	}
	held, err := shardlayout.Cut(cut, shardlayout.FSDP, ranks)
	if err != nil {
		return nil, err
	}
	layouts := make([]*messages.Layout, ranks)
	for rank := range held {
		l := &messages.Layout{Rank: rank, Regions: []int64{held[rank].Nbytes}}
		for _, s := range sources {
			l.Names, l.DTypes = append(l.Names, s.Name), append(l.DTypes, messages.BF16)
			l.Shapes = append(l.Shapes, s.Shape...)
			l.ShapeEnd = append(l.ShapeEnd, uint32(len(l.Shapes)))
			l.Grid = append(l.Grid, served.Grid(s.Name, s.Shape, 2, tiles.Options{})...)
		}
		for _, sh := range held[rank].Shards {
			l.Source, l.Region, l.Offset = append(l.Source, uint32(sh.Source)), append(l.Region, 0), append(l.Offset, sh.Offset)
			for d := range sh.Lo {
				l.Box = append(l.Box, sh.Lo[d], sh.Hi[d])
			}
		}
		layouts[rank] = l
	}
	return layouts, nil
}
