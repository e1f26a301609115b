// Package vllm brings staged versions into a running vLLM server, over its HTTP calls and the `drydock` back end that the
// Python package registers in it (python/src/drydock/engines/vllm).
//
// The server needs dev mode and one flag:
//
//	VLLM_SERVER_DEV_MODE=1 … --weight-transfer-config '{"backend":"drydock"}'
//
// An installation goes through these steps. Nothing of the engine is touched before finish, so everything that can be
// refused is refused while requests are answered:
//
//	look      /server_info once, /get_world_size, /weight_info, status of every rank; what an earlier life left open is settled
//	check     /start_weight_update, /update_weights with the file of each rank; every rank says `staged`
//	swap      /pause, /finish_weight_update; every rank says `applied`; /update_weight_version, /reset_prefix_cache, /resume
//	close     the ranks are told that the update is over
//
// Whatever fails after check is settled: the update is given up, ranks that had gone forward go back, the label names what
// serves, and the engine answers again. Where that can't be done the engine stays paused and the error is ErrBroken.
//
// Words: a rank's status is what its worker says of itself by collective_rpc; the label is the version as the server shows
// it to its clients, "run.version"; an update in hand is one that was staged and not closed, and marks a pause as ours.
//
// The main law: an answer that is not in the statuses does not count. vLLM answers 200 to much that did not happen, and
// after an exception in one worker it gives later answers to the wrong calls; so workers never raise, every call to them
// carries a nonce, and a wrong nonce ends the installation.
package vllm
