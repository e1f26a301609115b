// Package sglang brings staged versions into a running SGLang server, over its documented HTTP calls.
//
// SGLang loads a folder of checkpoint files and shards them by itself. The arena must therefore be the checkpoint: one
// rank whose parameters are the checkpoint's tensors, as `drydock-capture checkpoint` describes it, whatever the
// tensor-parallel size of the server.
//
// The server checks nothing: a missing tensor or a wrong shape is 200 and garbage, and a damaged header ends its scheduler
// and the server with it. So the file is checked before the server hears of it, against its own label and against the
// tensors of the version before. The steps:
//
//	look      the folder; /get_model_info: served already?
//	swap      /pause_generation, /update_weights_from_disk with label and flush, /continue_generation
//	confirm   the label that /get_model_info shows
//
// An update that answers 400 because "the cache was not flushed" has changed the weights; it is asked for again, which
// changes nothing more, until the flush succeeds. /flush_cache alone answers 200 also when it did nothing.
//
// The package is tested against a stand-in (sglangtest) that follows what was seen on SGLang 0.5.23.
package sglang
