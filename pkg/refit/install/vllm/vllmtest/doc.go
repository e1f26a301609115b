// Package vllmtest is a stand-in of a vLLM server with Drydock's back end: the calls, answers, orders of calls and traps
// that ../../../../../docs/engines.md describes, as they were seen on vLLM 0.32.0, and workers that behave as
// python/src/drydock/engines does. Tests make it fail at any call, and look at what it holds afterwards.
//
// What it does not do: compute. A rank's weights are the label of the version that it copied; a completion tells which.
package vllmtest
