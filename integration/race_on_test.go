//go:build race

package integration

// raced says that the tests run under the race detector: the programs are built with it too.
const raced = true
