package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Config is what the layouts of model families need of config.json. Zero fields were absent or of another type.
type Config struct {
	ModelType string // "model_type"
	Arch      string // the first of "architectures"
	Hidden    int64  // "hidden_size"
	Heads     int64  // "num_attention_heads", query heads
	KVHeads   int64  // "num_key_value_heads", as many as Heads when absent
	HeadDim   int64  // "head_dim", Hidden / Heads when absent
	Tied      bool   // "tie_word_embeddings": lm_head shares the embedding's storage
	// RouterDType is the dtype that the engine keeps expert routers in, when it isn't the
	// checkpoint's ("moe_router_dtype", a torch name such as "float32").
	RouterDType string
	Raw         map[string]any // the whole file
}

// readConfig reads config.json of dir; a folder without one is fine.
func readConfig(dir string) (Config, error) {
	text, err := readLimited(filepath.Join(dir, configName), maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, err
	}
	raw := map[string]any{}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Config{}, fmt.Errorf("parse %s: %w", configName, err)
	}
	return ParseConfig(raw), nil
}

// ParseConfig picks the fields out of a decoded config.json. A multimodal
// model keeps those of its language model in "text_config".
func ParseConfig(raw map[string]any) Config {
	c := Config{Raw: raw}
	if names, ok := raw["architectures"].([]any); ok && len(names) > 0 {
		c.Arch, _ = names[0].(string)
	}
	c.ModelType, _ = raw["model_type"].(string)
	if text, ok := raw["text_config"].(map[string]any); ok {
		raw = text
	}
	// A field of another type (some models have a list of heads per layer) is as good as absent: then nothing is cut by it.
	number := func(key string) int64 {
		value, _ := raw[key].(float64)
		return int64(value)
	}
	c.Hidden, c.Heads = number("hidden_size"), number("num_attention_heads")
	c.KVHeads, c.HeadDim = number("num_key_value_heads"), number("head_dim")
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	c.Tied, _ = raw["tie_word_embeddings"].(bool)
	c.RouterDType, _ = raw["moe_router_dtype"].(string)
	return c
}
