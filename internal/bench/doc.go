// Package bench measures Drydock's parts on this machine, beside what the machine itself can do, in one run: machines are
// shared and noisy, so a ratio of two figures of one run says more than either.
//
// Every figure is the best of a few rounds, which are made in turn over all rows of a section.
package bench
