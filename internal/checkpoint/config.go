package checkpoint

// Config is what the layouts of model families need of config.json. Zero fields were absent.
type Config struct {
	ModelType  string `json:"model_type"`
	Hidden     int64  `json:"hidden_size"`
	Heads      int64  `json:"num_attention_heads"`
	KVHeads    int64  `json:"num_key_value_heads"`
	HeadDim    int64  `json:"head_dim"`
	Tied       bool   `json:"tie_word_embeddings"`
	RouterType string `json:"moe_router_dtype"` // dtype that the engine keeps routers in, when not the checkpoint's
}
